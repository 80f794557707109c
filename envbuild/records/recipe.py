"""A published training recipe, in the field's words; each trainer's adapter translates it."""

import msgspec


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The objective and optimiser of one run, free of any trainer's option names."""

    name: str
    model: str
    """Hub id of the policy the published run started from."""
    schedule: str = "synsql"
    """Schedule preset: questions, episodes, steps and the submit gate are its own."""
    episode_preset: str = "default"
    """Preset of the episode's rules."""

    learning_rate: float = 1e-5
    """AdamW, cosine to zero."""
    warmup_share: float = 0.05
    """Linear warm-up, share of all steps."""
    weight_decay: float = 0.0
    temperature: float = 1.0
    """Of the rollouts; no top-p, no top-k."""

    loss_divisor: int = 1024
    """A sequence's token losses are summed and divided by this, then averaged over sequences."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    ratio_level: str = "token"
    """`token` or `sequence`: what the importance ratio is taken over."""
    ratio_cap: float | None = None
    """Upper bound of the ratio, which bites where the advantage is negative; None: no bound."""
    sampler_ratio: bool = True
    """The ratio's denominator is the sampler's own log-probability."""
    advantage_clip: float = 2.0
    """Advantages (reward less group mean, not normalised) are clipped to ± this."""
    negative_weight: float = 0.7
    """Factor on negative advantages, after clipping."""

    kl_target: float = 0.005
    """Mean k3 estimate per token that β is steered to."""
    kl_beta: float = 0.02
    """β at the start, and its lower bound."""
    kl_beta_most: float = 1.0
    reference_every: int = 0
    """Updates between two re-anchorings of the reference; 0: it stays the start policy."""

    resample_rounds: int = 2
    """How often a group of identical rewards is rolled out anew."""
    checkpoint: str = "last"
    """What the card took: `last`, or a note such as `best on BIRD dev, step 1600`."""
