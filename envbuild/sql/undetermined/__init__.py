"""The same query under other conditions: ties, scan order, clock, chance, bare columns."""
