"""What the shell sees when a disk is full, a person stops a command, or we have a bug."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envbuild.cli import app as command_line
from tests.small_manifest import write_small_manifest


def start(*arguments: str, largest_file: int | None = None) -> subprocess.Popen[str]:
    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.Popen(
        [sys.executable, "-m", "envbuild", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("source") / "synthetic"
    made = start("synth", "sqale", "--databases", "30", "--out", str(out))
    assert made.wait(600) == 0
    return out


def test_a_file_that_cannot_be_written_is_a_sentence_and_exit_2(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    arguments = ("materialize", str(source), "--out", str(out), "--limit", "2", "--json", "--quiet")
    full = start(*arguments, largest_file=64 * 1024)
    said, errors = full.communicate(timeout=600)
    assert (full.returncode, said) == (2, "")
    assert "cannot write" in errors
    assert "Traceback" not in errors
    assert not list(out.rglob("*.sqlite")) and not list(out.rglob("corpus.json"))
    roomy = start(*arguments)
    said, _ = roomy.communicate(timeout=600)
    assert roomy.returncode == 0
    assert '"built": 2' in said


def test_a_stopped_command_ends_with_130_and_goes_on_later(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    arguments = ("materialize", str(source), "--out", str(out), "--workers", "1", "--quiet")
    stopped = start(*arguments)
    while not list(out.glob("*/databases/*")) and stopped.poll() is None:
        time.sleep(0.01)
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=600)
    assert stopped.returncode == 130
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] == "envbuild: interrupted: run the same command again to go on"
    assert not list(out.rglob("corpus.json"))
    again = start(*arguments)
    again.communicate(timeout=600)
    assert again.returncode == 0
    assert len(list(out.rglob("*.sqlite"))) == 30


def test_our_own_fault_is_a_traceback_and_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(command_line, "app", broken)
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (70, "")
    assert "ZeroDivisionError: ours" in shown.err
    assert "our bug" in shown.err


def test_a_folder_that_may_not_be_read_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/closed/corpus.json")

    monkeypatch.setattr(command_line, "app", refused)
    monkeypatch.setattr(command_line, "drop_stdout", lambda: None)
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    said = "envbuild: cannot use /closed/corpus.json: Permission denied\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, said)


@pytest.mark.parametrize("command", ["pool", "ladder"])
def test_a_manifest_without_its_databases_is_a_sentence(command: str, tmp_path: Path) -> None:
    alone = write_small_manifest(tmp_path)
    for database in tmp_path.rglob("*.sqlite"):
        database.unlink()
    options = ("--out", str(tmp_path / "l")) if command == "ladder" else ("--test", str(alone))
    made = start(command, str(alone), *options)
    _, errors = made.communicate(timeout=600)
    assert made.returncode == 2, errors
    assert "cannot read the database" in errors and "Traceback" not in errors


@pytest.mark.parametrize("arguments", [("--version",), ("synth", "sqale", "--databases", "1")])
def test_an_output_that_cannot_be_written_is_a_sentence(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    where = ("--out", str(tmp_path / "out"), "--json") if len(arguments) > 1 else ()
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "envbuild", *arguments, *where],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 2
    assert found.stderr == "envbuild: cannot write the output, /dev/full: No space left on device\n"


@pytest.fixture(scope="module")
def corpus(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus")
    made = start("materialize", str(source), "--out", str(out), "--limit", "2", "--quiet")
    assert made.wait(600) == 0
    return out


ENDLESS = [
    ("buckets", "--quiet"),  # written line by line
    ("preflight", "--quiet"),  # by rich
    ("buckets", "--quiet", "--json"),  # as bytes
    ("buckets", "--help"),  # by typer
]


@pytest.mark.parametrize("arguments", ENDLESS, ids=" ".join)
def test_a_reader_who_has_enough_is_no_answer(arguments: tuple[str, ...], corpus: Path) -> None:
    command = start(*arguments, str(corpus))
    assert command.stdout is not None and command.stderr is not None
    command.stdout.close()
    errors = command.stderr.read()
    assert command.wait(600) == 141
    assert "Broken pipe" not in errors and "Traceback" not in errors


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict"])
@pytest.mark.parametrize("command", ["preflight", "buckets"])
def test_no_character_ends_a_command(command: str, encoding: str, corpus: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "envbuild", command, str(corpus), "--quiet"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    shown = found.stdout.decode(encoding.partition(":")[0])
    assert found.returncode in (0, 1)
    assert b"Traceback" not in found.stderr
    assert "synthetic" in shown
    assert "\u2588" not in shown and "?????" not in shown  # bars are drawn of what there is


def test_an_error_about_an_unspeakable_name_is_still_a_sentence(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "envbuild", "buckets", os.fsencode(tmp_path / "n\u00f6") + b"\xff"],
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        capture_output=True,
        check=False,
    )
    assert found.returncode == 2
    assert b"no folder" in found.stderr.splitlines()[-1]


def test_a_stream_that_was_never_open_leads_nowhere(corpus: Path) -> None:
    found = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m envbuild buckets {corpus} >&- 2>&-"],
        check=False,
    )
    assert found.returncode in (0, 1)
