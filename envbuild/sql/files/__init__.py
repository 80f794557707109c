"""SQLite files: built, filled, viewed in part, counted and checked."""
