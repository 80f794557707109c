"""SQLite (through APSW) and SQL text: execution, verdicts, tokens. sqlglot lives here."""
