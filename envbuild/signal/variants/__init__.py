"""Hidden variants: made beside the manifest, stored as rows, built when the reward first asks."""
