"""Seeded databases and questions, and writers for the layouts the real corpora come in."""
