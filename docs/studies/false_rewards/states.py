"""The states of a database that false rewards are counted on: cuts, and what amplifying makes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from envbuild.engine.fanout import chunked
from envbuild.engine.seeds import derive_seed
from envbuild.generate.database import amplify_database
from envbuild.records.signal import AmplifySettings, Gold
from envbuild.signal.cuts import cut_image
from envbuild.signal.variants import GOLDS_A_VARIANT
from envbuild.sql.execution.session import Session

CUTS = (0, 1, 2, 5, 10, 20, 68)
VARIANTS = 3
"""Most hidden variants a policy here asks for."""
SPARSE = 2
"""Rows a table of the corpora that prompted this: SynSQL's published median."""
FULL = "full"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Equality on the visible state, and on every hidden one, pays the full reward."""

    name: str
    visible: str
    hidden: tuple[str, ...] = ()


class State:
    """One filling of a database, or one for each group of golds; open until closed."""

    def __init__(self, sessions: Mapping[str, Session], *, otherwise: Session | None) -> None:
        self._sessions, self._otherwise = sessions, otherwise

    @classmethod
    def of(cls, session: Session) -> "State":
        """The same filling for every gold."""
        return cls({}, otherwise=session)

    def session(self, gold: str) -> Session | None:
        """The filling a gold is judged on; None where it cannot be judged."""
        return self._sessions.get(gold, self._otherwise)

    def close(self) -> None:
        """Closes every filling."""
        for session in (*self._sessions.values(), self._otherwise):
            if session is not None:
                session.close()


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
        Policy(name=f"{SPARSE}, amplified", visible="grown"),
        Policy(name=f"{SPARSE}, amplified, guided", visible="guided"),
        Policy(name=f"{SPARSE} + 1 variant", visible=sparse, hidden=("variant",)),
        one_guided(),
        Policy(
            name=f"{SPARSE} + 3 variants, guided", visible=sparse, hidden=tuple(_guided_names())
        ),
    ]


def independent_states() -> frozenset[str]:
    """The states that are evidence of equivalence: the full database, and those with rows grown.

    Cuts of one database hold each other's rows: seven of them are no more evidence than one.
    """
    grown = amplified_policies()
    every = {state for policy in grown for state in (policy.visible, *policy.hidden)}
    return frozenset({FULL, *every} - {cut_name(SPARSE)})


def one_guided() -> Policy:
    """The advised one (SIGNAL 7): 2 rows, and equality on one guided hidden variant."""
    sparse = cut_name(SPARSE)
    return Policy(
        name=f"{SPARSE} + 1 variant, guided", visible=sparse, hidden=(_guided_names()[0],)
    )


def open_states(
    path: Path, golds: Sequence[str], *, db_id: str, seed: int, amplified: bool
) -> dict[str, State]:
    """Every state of one database by name; the caller closes them."""
    images = {cut_name(rows): cut_image(path, rows, seed=seed) for rows in CUTS}
    images[f"{cut_name(SPARSE)}, naive"] = cut_image(path, SPARSE, naive=True)
    states = {name: State.of(Session.open_image(image)) for name, image in images.items()}
    states[FULL] = State.of(Session.open_file(path))
    if amplified:
        grow = _Grower(images[cut_name(SPARSE)], golds, db_id, seed)
        states["grown"] = grow.visible(guided=False)
        states["guided"] = grow.visible(guided=True)
        states["variant"] = grow.variant("variant", guided=False)
        for name in _guided_names():
            states[name] = grow.variant(name, guided=True)
    return states


def _guided_names() -> list[str]:
    return [f"guided variant {number}" for number in range(1, VARIANTS + 1)]


class _Grower:
    """Grows rows for golds on the sparse cut of one database."""

    def __init__(self, image: bytes, golds: Sequence[str], db_id: str, seed: int) -> None:
        self.image, self.golds, self.db_id, self.seed = image, golds, db_id, seed

    def visible(self, *, guided: bool) -> State:
        """The cut amplified for all golds at once, as a user's corpus is."""
        session, _ = self._grow(self.golds, seed=self.seed, guided=guided)
        return State.of(session)

    def variant(self, name: str, *, guided: bool) -> State:
        """A hidden variant as a manifest has it: one filling for its golds, or a few where many."""
        sessions: dict[str, Session] = {}
        for number, group in enumerate(chunked(self.golds, GOLDS_A_VARIANT)):
            seed = derive_seed(self.seed, f"{self.db_id}/{number}", name)
            session, judged = self._grow(group, seed=seed, guided=guided, orphans=True)
            sessions |= dict.fromkeys(judged, session)
        return State(sessions, otherwise=None)

    def _grow(
        self, golds: Sequence[str], *, seed: int, guided: bool, orphans: bool = False
    ) -> tuple[Session, Sequence[str]]:
        """The amplified cut, and the golds that can be judged on it: neither empty nor tied."""
        grown = amplify_database(
            self.image,
            [Gold(question_id=str(number), sql=sql) for number, sql in enumerate(golds)],
            settings=AmplifySettings(seed=seed, guided=guided, orphans=orphans),
            db_id=self.db_id,
        )
        judged = [
            golds[int(state.question_id)]
            for state in grown.growth.golds
            if state.rows_after > 0 and not state.tie_sensitive
        ]
        return Session.open_image(grown.image), judged
