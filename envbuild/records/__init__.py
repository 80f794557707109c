"""The records that pass between stages: frozen, keyword-only, each field with its meaning."""
