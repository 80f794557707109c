"""TRL: the published objective as a trainer, episodes as its rollout function."""
