"""Equality of results beyond plain rows: column orders, tolerance, F1, Spider's rule."""
