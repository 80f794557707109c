"""Rows under constraints: amplified corpora and hidden variants."""
