"""What comparing a prediction with its gold came to (CONTRACT 8)."""

from enum import StrEnum


class Verdict(StrEnum):
    """The word for one comparison; the last four are unscored: null, never 0."""

    EQUAL = "equal"
    DIFFERENT = "different"
    PREDICTED_ERROR = "predicted_error"
    PREDICTED_TIMEOUT = "predicted_timeout"
    PREDICTED_TRUNCATED = "predicted_truncated"
    NO_PREDICTION = "no_prediction"
    GOLD_ERROR = "gold_error"
    GOLD_TIMEOUT = "gold_timeout"
    GOLD_TRUNCATED = "gold_truncated"
    SERVER_ERROR = "server_error"
    """No answer was given, for no fault of the policy: its server failed."""

    @property
    def scored(self) -> bool:
        """False where the gold could not be run to its end, or the server gave no answer."""
        return self is not Verdict.SERVER_ERROR and not self.value.startswith("gold_")

    @property
    def correct(self) -> bool | None:
        """True, False, or None where it is unscored."""
        return self is Verdict.EQUAL if self.scored else None
