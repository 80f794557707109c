"""Writes the demo corpora: row payloads, a SynSQL folder and a BIRD folder, the same each time."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from envbuild.corpora.synthetic.columns import parse_tables
from envbuild.corpora.synthetic.layouts import WRITERS
from envbuild.corpora.synthetic.sample import SampleDatabase, SampleQuestion, make_database
from envbuild.io.files import writing

CORPORA = ("sqale", "synsql", "bird")
SEED = 20240607


def write_demo_sources(out: Path) -> list[Path]:
    """Writes three sources into `out`; their paths, ready for `materialize`. Takes a second.

    Raises OutputError where `out` cannot be written.
    """
    sources = []
    for corpus in CORPORA:
        text = files("envbuild.corpora.demo").joinpath(f"{corpus}.toml").read_text("utf-8")
        declared = tomllib.loads(text)
        source = Path(out) / declared["name"]
        pairs = [
            (_database(d, declared["name"]), list(_questions(d["db_id"], declared["question"])))
            for d in declared["database"]
        ]
        with writing(source):
            WRITERS[declared["layout"]](pairs, source, seed=SEED)
        sources.append(source)
    return sources


def _database(declared: dict[str, Any], corpus: str) -> SampleDatabase:
    return make_database(
        declared["db_id"],
        parse_tables(declared["tables"]),
        seed=f"{SEED}/{corpus}/{declared['db_id']}",
        orphans=declared.get("orphans", ()),
    )


def _questions(db_id: str, declared: list[dict[str, Any]]) -> Iterator[SampleQuestion]:
    """Each declared question once for every set of values that fills its blanks."""
    for question in declared:
        if question["db"] != db_id:
            continue
        for values in question.get("values", [{}]):
            yield SampleQuestion(
                db_id=db_id,
                text=_filled(question["text"], values),
                sql=_filled(question["sql"], values),
                difficulty=question["difficulty"],
                style=question.get("style", ""),
                evidence=_filled(question.get("evidence", ""), values),
                placeholder=question.get("placeholder", ""),
            )


def _filled(text: str, values: dict[str, Any]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text
