"""For users' own tests: scripted policies and a tokenizer that needs no download.

`python -m envbuild.testing.server MANIFEST` serves the policies to `envbuild rollout`, without a
model.
"""
