"""Variants of a database that show which mutants are equivalent to their gold (SIGNAL 5).

Four fillings of one schema: grown from nothing, where no rule but the declared ones holds, and
from cuts along the keys, where what the rows show is kept. What none of them tells apart is
presumed equivalent; they are thrown away afterwards. They hold the tables that the golds read, the
tables a key away, and whatever those point at: a schema of hundreds costs no more than one of ten.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from envbuild.errors import CorpusError, GoldError
from envbuild.generate.database import amplify_database
from envbuild.records.corpus import Schema
from envbuild.records.signal import AmplifySettings, Gold
from envbuild.schema.read import read_schema
from envbuild.signal.cuts import cut_image
from envbuild.sql.connect import Connection, SQLiteError, open_read_only
from envbuild.sql.execution.session import Session
from envbuild.sql.gold_tables import GoldTableReader

GROWN_FROM = (0, 2, 5, 20)
"""Rows a table of the cuts the variants grow from, in turn."""
ROWS = (15, 30)
"""Rows a table they grow to: twice as many tell the same mutants apart, at twice the cost."""


def open_variants(
    path: Path, golds: Sequence[str], *, db_id: str, count: int, seed: int
) -> list[Session]:
    """`count` variants of a database, grown for these golds; the caller closes them.

    None where SQLite cannot fill its tables: a table may ask for what only its application has.
    """
    if not count:
        return []
    named = [Gold(question_id=str(place), sql=sql) for place, sql in enumerate(golds)]
    with ExitStack() as opened:
        variants = []
        try:
            with closing(open_read_only(path)) as reader:
                tables = tables_asked(reader, read_schema(reader), golds)
            for own in range(seed, seed + count):
                rows = GROWN_FROM[(own - seed) % len(GROWN_FROM)]
                cut = cut_image(path, rows, seed=own, only=tables)
                settings = AmplifySettings(rows_low=ROWS[0], rows_high=ROWS[1], seed=own)
                grown = amplify_database(cut, named, settings=settings, db_id=db_id)
                variants.append(opened.enter_context(Session.open_image(grown.image)))
        except (SQLiteError, CorpusError):
            return []
        opened.pop_all()
        return variants


def tables_asked(reader: Connection, schema: Schema, golds: Iterable[str]) -> frozenset[str]:
    """The tables that golds read, those a key away from them, and all that these point at."""
    read: set[str] = set()
    with GoldTableReader(reader) as asked:
        for sql in golds:
            with suppress(GoldError):
                read.update(asked.read(sql).tables)
    keys = [(key.child, key.parent) for key in schema.foreign_keys]
    near = read.union(*(ends for ends in keys if not read.isdisjoint(ends)))
    while parents := {parent for child, parent in keys if child in near} - near:
        near |= parents
    return frozenset(near)
