"""How an episode ends whose next completion cannot be had."""

from envbuild.episode.text_episode import TextEpisode
from envbuild.records.episode import EndedBy
from envbuild.rollout.client import WindowFullError


def end_unanswered(episode: TextEpisode, error: Exception) -> None:
    """Ends the episode; `error` goes into the record.

    A window that the turns filled is a spent token budget, and the last working query is the
    answer. Anything else, a first prompt that does not fit too, is the server's failure, or the
    engine's: it says nothing about the policy.
    """
    if isinstance(error, WindowFullError) and episode.machine.turns:
        episode.error = str(error)
        episode.machine.stop(EndedBy.TOKEN_BUDGET)
    else:
        episode.fail(str(error) or type(error).__name__, ended_by=EndedBy.SERVER_ERROR)
