"""What a query means: names, joins, demands, nondeterminism (sqlglot trees)."""
