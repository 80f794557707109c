"""What cases share: databases, corpora and manifests, by the package's own way in."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import read_source
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import Manifest, open_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.materialize.corpus import build_corpus
from envbuild.records.execution import Limits, QueryResult
from envbuild.records.manifest import GoldResult
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only, quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import digest_rows, encode_rows


@dataclass(frozen=True, kw_only=True)
class Run:
    """A case that runs in an empty folder."""

    given: dict[str, Any]
    expected: dict[str, Any]
    folder: Path
    opened: ExitStack
    """What is closed after the checks."""

    def listed(self, one: str, several: str) -> list[Any]:
        """What is given under a key for one value, and under a key for several."""
        return [*([self.given[one]] if one in self.given else []), *self.given.get(several, [])]

    def database(self, name: str = "case") -> Path:
        """The SQLite file that the case's DDL makes."""
        return write_database(self.folder / f"{name}.sqlite", self.given.get("ddl", ""))

    def session(self, path: Path) -> Session:
        """A session with the case's own time-out and row cap; closed after the checks."""
        limits = limits_of(self.given)
        return self.opened.enter_context(Session.open_file(path, limits=limits))


def limits_of(given: Mapping[str, Any]) -> Limits:
    """The executor's limits with the case's own time-out and row cap."""
    limits = Limits()
    return Limits(
        seconds=float(given.get("timeout_s", limits.seconds)),
        rows=int(given.get("row_cap", limits.rows)),
    )


def gold_of(result: QueryResult, sql: str) -> GoldResult:
    """The gold query's result as a manifest keeps it, whatever its outcome."""
    ordered = order_matters(sql)
    return GoldResult(
        gold_id="gold",
        outcome=result.outcome.value,
        columns=result.columns,
        ordered=ordered,
        digest=digest_rows(result.rows, ordered=ordered) if result.ok else "",
        result=encode_rows(result.rows),
    )


def python(*arguments: str, input: str = "", cwd: Path | None = None, **variables: str) -> str:
    """What another Python prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        input=input,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_database(path: Path, script: str) -> Path:
    """A SQLite file that the script makes, whatever it does."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(script if script.strip() else "VACUUM")
    return path


def asked(path: Path, read: Callable[[Any], Any] = read_schema) -> Any:
    """What `read` says of the database, by default its schema."""
    with closing(open_read_only(path)) as connection:
        return read(connection)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query on the file itself."""
    return list(asked(path, lambda connection: connection.execute(sql).fetchall()))


def count_rows(path: Path, tables: Iterable[str]) -> dict[str, int]:
    """Rows of each table."""
    return {t: query(path, f"SELECT count(*) FROM {quote_name(t)}")[0][0] for t in tables}


def leaves(value: Any) -> Iterator[Any]:
    """The values inside objects and lists."""
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


def write_source(folder: Path, records: Iterable[Mapping[str, Any]], name: str = "source") -> Path:
    """The records as one JSON-lines file that materialize reads; a payload becomes text."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    lines = [{**r, "payload": payload_text(r["payload"])} if "payload" in r else r for r in records]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def payload_text(payload: Any) -> str:
    """A payload given as a string is raw JSON text; anything else becomes it."""
    return payload if isinstance(payload, str) else json.dumps(payload)


def build_source(source: Path, out: Path) -> CorpusFolder:
    """The corpus that materialize makes of a source of row payloads."""
    summary = build_corpus(read_source(source, "payload"), out, name="cases", workers=1)
    return CorpusFolder(Path(summary.root))


def write_corpus(
    folder: Path,
    databases: Mapping[str, str],
    questions: Iterable[Mapping[str, Any]],
    payload: Any = "",
) -> CorpusFolder:
    """A corpus folder by materialize: each database's DDL, one payload for all, the questions."""
    source = folder / "source"
    records = [{"db_id": i, "ddl": ddl, "payload": payload} for i, ddl in databases.items()]
    write_source(source, records, "databases")
    if questions := [{"question": f"Question {n}", **q} for n, q in enumerate(questions)]:
        write_source(source, questions, "questions")
    return build_source(source, folder / "corpus")


def write_manifest(
    folder: Path, databases: Mapping[str, str], questions: Iterable[Mapping[str, Any]]
) -> Manifest:
    """The questions' manifest, by way of a corpus folder."""
    return build_rows(write_corpus(folder, databases, questions), folder / "manifest")


def build_rows(corpus: CorpusFolder, out: Path) -> Manifest:
    """The manifest of a corpus under the default settings."""
    build_manifest([corpus], out, settings=ManifestSettings(), workers=1)
    return open_manifest(out)
