"""verl 0.9: an agent loop, an advantage estimator and a reward function, found by entry point."""
