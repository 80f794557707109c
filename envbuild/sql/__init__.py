"""SQLite (through APSW) and SQL text, sqlglot included: what everyone runs and judges SQL with."""
