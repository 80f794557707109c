"""The data layouts of trainers: one module each, a table of them in `adapters/export.py`."""
