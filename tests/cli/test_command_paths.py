"""Output paths and ends of commands: said before any work, in a sentence, with the right code."""

import json
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

from envbuild.cli import app as command_line
from envbuild.cli.app import app
from envbuild.cli.output import shorten
from envbuild.errors import ConfigurationError, OutputError
from tests.shared import envbuild

runner = CliRunner()
NOWHERE = "no/such/source"
FILE_OPTIONS = (
    ("evaluate", NOWHERE, "--html"),
    ("evaluate", NOWHERE, "--metrics"),
    ("ladder", NOWHERE, "--html"),
    ("preflight", NOWHERE, "--html"),
    ("view", NOWHERE, "--html"),
)
FOLDER_OPTIONS = (
    ("amplify", NOWHERE, "--rows", "9"),
    ("demo",),
    ("evaluate", NOWHERE),
    ("ladder", NOWHERE),
    ("materialize", NOWHERE),
    ("pack", NOWHERE),
    ("preflight", NOWHERE),
    ("rollout", NOWHERE, "--base-url", "http://127.0.0.1:9/v1", "--model", "m"),
    ("run", NOWHERE),
    ("synth", "bird", "--databases", "1"),
)


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        *((command, "a folder is there already") for command in FILE_OPTIONS),
        *(((*command, "--out"), "a file is there already") for command in FOLDER_OPTIONS),
    ],
)
def test_an_output_that_cannot_be_written_is_said_before_any_work(
    command: tuple[str, ...], taken: str, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    where = tmp_path if command in FILE_OPTIONS else plain
    for path, said in ((where, taken), (plain / "x", "is a file, not")):
        found = runner.invoke(app, [*command, str(path)])
        assert isinstance(found.exception, OutputError), found.output
        assert said in str(found.exception)


@pytest.mark.parametrize("command", ["preflight", "sample", "manifest", "materialize", "amplify"])
def test_an_unknown_engine_is_said_before_anything_runs(command: str, tmp_path: Path) -> None:
    out = () if command == "sample" else ("--out", str(tmp_path / "out"))
    found = runner.invoke(app, [command, NOWHERE, "--engine", "spark", *out])
    assert str(found.exception) == "no engine 'spark'; known: local, ray, slurm", found.output


def write_bird(folder: Path, records: list[dict[str, str]], *, sound: bool = True) -> Path:
    database = folder / "train_databases" / "pets"
    database.mkdir(parents=True)
    if sound:
        connection = apsw.Connection(str(database / "pets.sqlite"))
        connection.execute("CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT)")
        connection.close()
    else:
        (database / "pets.sqlite").write_bytes(b"no database" * 100)
    (folder / "train.json").write_text(json.dumps(records))
    return folder


def test_materialize_tells_no_questions_from_refused_ones_and_from_nothing_readable(
    tmp_path: Path,
) -> None:
    wrong = [{"db_id": "pets", "utterance": "?", "sql_text": "SELECT 1"}]
    right = [{"db_id": "pets", "question": "?", "SQL": "SELECT 1"}]
    for name, records, sound, code, said in (
        ("none", [], True, 0, "databases without questions"),
        (
            "refused",
            wrong,
            True,
            1,
            "1 question offered, all refused: train.json has the keys db_id, utterance, sql_text; "
            "a question needs db_id, question, and its SQL under SQL, query or sql",
        ),
        ("good", right, True, 0, ""),
    ):
        source = write_bird(tmp_path / name, records, sound=sound)
        arguments = ["materialize", str(source), "--out", str(tmp_path / "corpus"), "--workers"]
        found = runner.invoke(app, [*arguments, "1", "--quiet"])
        assert found.exit_code == code, (name, found.output, found.exception)
        assert said in found.stderr, (name, found.stderr)
    source = write_bird(tmp_path / "unreadable", right, sound=False)
    refused = envbuild("materialize", source, "--out", tmp_path / "corpus", "--json")
    told = json.loads(refused.stdout)
    assert (refused.returncode, told["built"], told["failed"]) == (1, 0, 1)
    assert "none of the databases could be built: 1 " in refused.stderr


def test_what_goes_into_a_pipe_is_not_cut() -> None:
    assert shorten("x" * 500) == "x" * 500


PIPELINE = 'format = "envbuild.pipeline/1"\nname = "p"\n'


def test_a_dry_run_checks_its_paths(tmp_path: Path) -> None:
    demo, hub = 'paths = ["demo:"]\n', 'paths = ["demo:", "owner/name@1"]\n'
    for text, said in (
        ('paths = ["nothing"]\n', "source.paths names nothing"),
        (demo + '[preflight]\nthresholds = "t.toml"\n', "preflight.thresholds names t.toml"),
        (hub + '[pool]\nschedule = "s.toml"\n', "pool.schedule names s.toml"),
        (demo + '[pool]\ntest = ["dev"]\n', "pool.test names dev"),
    ):
        (tmp_path / "p.toml").write_text(f"{PIPELINE}[source]\n{text}")
        found = runner.invoke(app, ["run", str(tmp_path / "p.toml"), "--dry-run"])
        assert isinstance(found.exception, ConfigurationError), found.output
        assert said in str(found.exception)


class ActorDiedError(Exception):
    """One of Ray's own, as far as its module tells."""


ActorDiedError.__module__ = "ray.exceptions"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is not enough memory"),
        (ActorDiedError("the node is gone\nmore"), "Ray failed: the node is gone; start it"),
        (OSError(28, "No space left on device"), "cannot write the output"),
        (OSError(28, "No space left on device", "/data/x"), "cannot use /data/x: No space"),
    ],
)
def test_the_machines_faults_are_sentences(
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "app", broken)
    monkeypatch.setattr(command_line, "drop_stdout", lambda: None)
    monkeypatch.setattr(command_line, "prepare_streams", lambda: None)
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors and "Traceback" not in errors
