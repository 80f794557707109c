"""envbuild: training databases, question pools and environments for text-to-SQL agents."""

__version__ = "0.1.0"
