"""How an episode ends whose next completion cannot be had."""

from envbuild.episode.text_episode import TextEpisode
from envbuild.records.episode import EndedBy
from envbuild.rollout.client import WindowFullError


def end_unanswered(episode: TextEpisode, error: Exception) -> None:
    """Ends the episode; `error` goes into the record.

    A window that the turns filled is a spent token budget, and the last working query is the
    answer; a prompt that never fitted, and anything else, is a policy that could not go on.
    """
    if isinstance(error, WindowFullError) and episode.machine.turns:
        episode.error = str(error)
        episode.machine.stop(EndedBy.TOKEN_BUDGET)
    else:
        episode.fail(str(error))
