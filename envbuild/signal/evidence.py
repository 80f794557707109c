"""Variants of a database that show which mutants are equivalent to their gold (SIGNAL 5).

Four fillings of one schema: grown from nothing, where no rule but the declared ones holds, and
from cuts along the keys, where what the rows show is kept. What none of them tells apart is
presumed equivalent; they are thrown away afterwards.
"""

from collections.abc import Sequence
from pathlib import Path

from envbuild.records.amplified import AmplifySettings, Gold
from envbuild.signal.amplify.build import amplify_database
from envbuild.signal.cuts import cut_image
from envbuild.sql.executor import Session

GROWN_FROM = (0, 2, 5, 20)
"""Rows a table of the cuts the variants grow from, in turn."""
ROWS = (15, 30)
"""Rows a table they grow to: twice as many tell the same mutants apart, at twice the cost."""


def open_variants(
    path: Path, golds: Sequence[str], *, db_id: str, count: int, seed: int
) -> list[Session]:
    """`count` variants of a database, grown for these golds; the caller closes them."""
    return [
        Session.open_image(_grow(path, golds, db_id=db_id, number=number, seed=seed))
        for number in range(count)
    ]


def _grow(path: Path, golds: Sequence[str], *, db_id: str, number: int, seed: int) -> bytes:
    rows = GROWN_FROM[number % len(GROWN_FROM)]
    cut = cut_image(path, rows, seed=seed + number)
    named = [Gold(question_id=str(place), sql=sql) for place, sql in enumerate(golds)]
    settings = AmplifySettings(rows_low=ROWS[0], rows_high=ROWS[1], seed=seed + number)
    return amplify_database(cut, named, settings=settings, db_id=db_id).image
