"""Driving episodes with a model: over HTTP, in batches in this process, on the user's database."""
