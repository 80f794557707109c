"""The states of a database that false rewards are counted on: cuts, and what amplifying makes."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from envbuild.records.amplified import AmplifySettings, Gold
from envbuild.signal.amplify.build import amplify_database
from envbuild.signal.cuts import cut_image
from envbuild.sql.executor import Session

CUTS = (0, 1, 2, 5, 10, 20, 68)
SPARSE = 2
"""Rows a table of the corpora that prompted this: SynSQL's published median."""
FULL = "full"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Equality on the visible state, and on every hidden one, pays the full reward."""

    name: str
    visible: str
    hidden: tuple[str, ...] = ()


class State:
    """One filling of a database, open; golds that cannot be judged on it are skipped there."""

    def __init__(self, session: Session, skipped: frozenset[str] = frozenset()) -> None:
        self.session, self.skipped = session, skipped


def cut_name(rows: int) -> str:
    """`2 rows`, `1 row`."""
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def cut_policies() -> list[Policy]:
    """One policy a cut, the naive sparse one, and the full database."""
    policies = [Policy(name=cut_name(rows), visible=cut_name(rows)) for rows in CUTS]
    naive = f"{cut_name(SPARSE)}, naive"
    policies.insert(CUTS.index(SPARSE) + 1, Policy(name=naive, visible=naive))
    return [*policies, Policy(name=FULL, visible=FULL)]


def amplified_policies() -> list[Policy]:
    """The sparse cut with rows added: as the visible database, and as hidden variants."""
    sparse = cut_name(SPARSE)
    return [
        Policy(name=f"{sparse}, grown", visible="grown"),
        Policy(name=f"{sparse}, grown, guided", visible="guided 1"),
        Policy(name=f"{sparse} + 1 variant", visible=sparse, hidden=("grown",)),
        Policy(name=f"{sparse} + 1 guided", visible=sparse, hidden=("guided 1",)),
        Policy(
            name=f"{sparse} + 3 guided",
            visible=sparse,
            hidden=("guided 1", "guided 2", "guided 3"),
        ),
    ]


def open_states(
    path: Path, golds: Sequence[str], *, db_id: str, seed: int, amplified: bool
) -> dict[str, State]:
    """Every state of one database by name; the caller closes their sessions."""
    images = {cut_name(rows): cut_image(path, rows, seed=seed) for rows in CUTS}
    images[f"{cut_name(SPARSE)}, naive"] = cut_image(path, SPARSE, mode="naive")
    states = {name: State(Session.open_image(image)) for name, image in images.items()}
    states[FULL] = State(Session.open_file(path))
    if amplified:
        sparse = images[cut_name(SPARSE)]
        states["grown"] = _grown(sparse, golds, db_id, seed=seed, guided=False)
        for number in (1, 2, 3):
            states[f"guided {number}"] = _grown(
                sparse, golds, db_id, seed=seed + number, guided=True
            )
    return states


def _grown(image: bytes, golds: Sequence[str], db_id: str, *, seed: int, guided: bool) -> State:
    grown = amplify_database(
        image,
        [Gold(question_id=str(number), sql=sql) for number, sql in enumerate(golds)],
        settings=AmplifySettings(seed=seed, guided=guided),
        db_id=db_id,
    )
    skipped = frozenset(
        golds[int(state.question_id)]
        for state in grown.growth.golds
        if state.rows_after <= 0 or state.tie_sensitive
    )
    return State(Session.open_image(grown.image), skipped)
