"""Fan-out of a function over shards: local processes or Ray. No stage knows how many workers."""
