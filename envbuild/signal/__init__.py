"""How well databases tell golds from wrong queries (SIGNAL 7, `signal@1`), and what mends them."""
