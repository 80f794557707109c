"""Commands: each parses, calls, prints, returns. Nothing here is needed to use the package."""
