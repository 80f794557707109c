"""Corpus folders for tests, written as the contract says, without materialize."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw
import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.preflight.row_counts import measure_corpus
from envbuild.preflight.run import CorpusFindings, check_databases, conclude
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow
from envbuild.records.execution import Limits
from envbuild.records.preflight import Thresholds
from envbuild.sql.files.inspect import count_rows


def build_sqlite(path: Path, ddl: str) -> Path:
    """A SQLite file that holds what the script makes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(ddl)
    connection.close()
    return path


def build_corpus(
    root: Path,
    databases: Mapping[str, str],
    questions: Sequence[Question] = (),
    rejects: Sequence[Reject] = (),
) -> Path:
    """A corpus folder at `root` whose databases are made by these scripts."""
    rows, tables = [], []
    for db_id, ddl in databases.items():
        file = f"databases/{db_id}/{db_id}.sqlite"
        path = build_sqlite(root / file, ddl)
        counts = count_rows(path)
        figures = dict.fromkeys(DatabaseRow.__struct_fields__, 0)
        known = {
            "corpus": root.name, "db_id": db_id, "split": "", "sqlite_file": file,
            "sha256": sha256_file(path), "bytes": path.stat().st_size,
        }  # fmt: skip
        rows.append(DatabaseRow(**{**figures, **known}))
        tables += [
            TableRow(
                corpus=root.name,
                db_id=db_id,
                table=table,
                columns=0,
                rows=count,
                rows_offered=count,
                rows_stored=count,
                rows_refused=0,
                undecodable_cells=int(db_id == "undecodable"),
            )
            for table, count in counts.items()
        ]
    asked = [msgspec.structs.replace(q, corpus=root.name) for q in questions]
    write_records(root / "databases.parquet", rows, arrow_schema(DatabaseRow))
    write_records(root / "tables.parquet", tables, arrow_schema(TableRow))
    write_records(root / "questions.parquet", asked, arrow_schema(Question))
    write_records(root / "rejects.parquet", rejects, arrow_schema(Reject))
    index = {"format": "envbuild.corpus/1", "name": root.name}
    (root / "corpus.json").write_bytes(msgspec.json.encode(index))
    return root


def ask(db_id: str, gold_sql: str, question_id: str = "", **fields: object) -> Question:
    """A question about a database; its id is the gold unless one is given."""
    values: dict[str, object] = {
        "question": f"What does {gold_sql} give?",
        **fields,
        "question_id": question_id or gold_sql,
        "db_id": db_id,
        "gold_sql": gold_sql,
    }
    return msgspec.convert(values, Question)


def checked(root: Path, limits: Limits | None = None) -> CorpusFindings:
    """What preflight finds in the corpus at `root`, in this process."""
    measured = measure_corpus(CorpusFolder(root), Thresholds())
    limits = limits or Limits(vm_steps=1_000_000)
    return conclude(measured, check_databases(measured, limits=limits, workers=1))
