"""What was changed in a query, whatever its spelling."""

import pytest

from envbuild.sql.tokens import changed_stretch


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("select a from t where x = 1;", 'SELECT "a" FROM t WHERE x <> 1', "<>"),
        ("SELECT a FROM t", "SELECT DISTINCT a FROM t", "DISTINCT"),
        ("SELECT DISTINCT a FROM t", "SELECT a FROM t", ""),
        ("SELECT a FROM t LIMIT 1", "SELECT a FROM t", ""),
        ("SELECT a, a FROM t", "SELECT a, a, a FROM t", ", a"),
        ("SELECT a FROM t", "SELECT a  FROM  t", ""),
        (
            "SELECT a FROM t x JOIN u ON x.a != 1",
            "SELECT a FROM t AS x INNER JOIN u ON x.b <> 1",
            "b",
        ),
    ],
)
def test_changed_stretch(before: str, after: str, changed: str) -> None:
    start, end = changed_stretch(before, after)
    assert after[start:end] == changed
