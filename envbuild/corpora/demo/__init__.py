"""Three small corpora of our own in the published layouts, with the flaws that real ones have."""
