"""Queries as sqlglot's trees: what they join, compare and demand."""
