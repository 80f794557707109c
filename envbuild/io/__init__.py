"""Files: atomic writes, digests, Parquet and JSON. pyarrow and duckdb live here."""
