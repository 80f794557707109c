"""For users' own tests: scripted policies and a tokenizer that needs no download."""
