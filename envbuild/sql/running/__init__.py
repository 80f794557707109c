"""One statement within limits: what the executor is made of."""
