"""Wrong queries near a gold one: operators over its tree (SIGNAL 1). Which are drawn: `signal/`."""
