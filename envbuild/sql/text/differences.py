"""Where two queries differ: the stretch of the second one that is not the first one's."""

from envbuild.sql.text.tokens import iter_code, unquote

_OPTIONAL = frozenset(("as", "inner", "outer"))
"""Words whose presence changes nothing."""
_SAME = {"!=": "<>", "==": "="}


def changed_stretch(before: str, after: str) -> tuple[int, int]:
    """(start, end) in `after` of what differs from `before`, token by token.

    Case, spacing, comments, quotes around names and optional words do not count. An empty
    stretch stands where something was only left out.
    """
    old, new = _tokens(before), _tokens(after)
    same = 0
    while same < min(len(old), len(new)) and old[same][0] == new[same][0]:
        same += 1
    tail = 0
    while tail < min(len(old), len(new)) - same and old[-1 - tail][0] == new[-1 - tail][0]:
        tail += 1
    changed = new[same : len(new) - tail]
    if changed:
        return changed[0][1], changed[-1][2]
    place = new[same][1] if same < len(new) else len(after)
    return place, place


def _tokens(sql: str) -> list[tuple[str, int, int]]:
    folded = (
        (unquote(sql[start:end]).casefold(), start, end)
        for _, start, end in iter_code(sql.rstrip().rstrip(";"))
    )
    return [
        (_SAME.get(word, word), start, end) for word, start, end in folded if word not in _OPTIONAL
    ]
