"""Leaks: which databases, questions and queries of a training corpus stand in a benchmark."""
