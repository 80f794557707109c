"""Row amplification: rows added, under every constraint, until golds can be told apart."""
