"""One statement within limits, in this process or in one that can be killed."""
