"""The environment: episodes, tools, prompts, views, reward, and driving it with a model."""
