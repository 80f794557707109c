"""The reward's arithmetic: a tier and its parts in, a number out (CONTRACT 9)."""

import hashlib

import msgspec

from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier


def reward_of(breakdown: RewardBreakdown, settings: RewardSettings) -> float | None:
    """The reward that this breakdown's tier and parts come to; None where it is unscored."""
    if breakdown.tier is Tier.UNSCORED:
        return None
    if breakdown.tier is Tier.EQUIVALENT:
        return settings.equivalent
    if breakdown.tier is Tier.PARSABLE:
        return settings.parsable
    if breakdown.tier is Tier.INVALID:
        return settings.invalid
    if matches_visible_only(breakdown):
        share = breakdown.variants_matched / breakdown.variants_scored
        return settings.variant_base + settings.variant_weight * share
    return (
        settings.executable
        + settings.f1_weight * breakdown.f1
        + settings.join_weight * breakdown.join_share
        + settings.consensus_weight * breakdown.consensus
    )


def matches_visible_only(breakdown: RewardBreakdown) -> bool:
    """Right on the visible database, not on every hidden variant."""
    return breakdown.variants_matched < breakdown.variants_scored


def settings_sha256(settings: RewardSettings) -> str:
    """Hex SHA-256 of the constants; equal constants, equal digest."""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()
