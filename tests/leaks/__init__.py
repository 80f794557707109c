"""Leaks: planted sets, what is found of them, and what a ledger does."""
