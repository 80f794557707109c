"""Packed corpora: the same answers as the files they hold, staged one by one, from a URL too."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from envbuild import Environment
from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.errors import CorpusFolderError, SourceError
from envbuild.io import packs
from envbuild.io.packs import PACK_INDEX, local_file, pack_files, unpack_files
from tests.shared import envbuild, shared_data


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENVBUILD_CACHE", str(tmp_path / "cache"))
    packs._index_of.cache_clear()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spider's shared databases, as files and packed."""
    home = tmp_path_factory.mktemp("made")
    source = shared_data("spider")
    for name, packed in (("plain", ()), ("packed", ("--packed",))):
        done = envbuild("materialize", source, "--out", home / name, "--quiet", *packed)
        assert done.returncode == 0, done.stderr
    return home


def digests(root: Path) -> dict[str, str]:
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def staged(cache: Path) -> list[Path]:
    return sorted(cache.glob("databases/*/*.sqlite"))


def test_every_stage_gives_the_same_for_a_packed_corpus(made: Path, tmp_path: Path) -> None:
    assert not (made / "packed" / "spider" / "databases").exists()
    shown, rows, golds = [], [], []
    for kind in ("plain", "packed"):
        corpus, pool = made / kind / "spider", tmp_path / f"pool-{kind}"
        for command in (["preflight"], ["buckets"], ["sample"], ["manifest", "--out", pool]):
            done = envbuild(command[0], corpus, *command[1:], "--quiet")
            lines = [line for line in done.stdout.splitlines() if str(made) not in line]
            shown.append((command[0], done.returncode, lines))
        rows.append(pl.read_parquet(pool / "manifest.parquet").drop("sqlite_file"))
        golds.append((pool / "gold.parquet").read_bytes())
    assert shown[:4] == shown[4:]
    assert rows[0].equals(rows[1])
    assert golds[0] == golds[1]


def test_unpack_gives_the_files_back_and_packing_them_the_same_packs(
    made: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "spider"
    shutil.copytree(made / "packed" / "spider", corpus)
    before = digests(corpus)
    assert unpack_files(corpus, lambda count: None) == 10
    assert digests(corpus / "databases") == digests(made / "plain" / "spider" / "databases")
    pack_files(corpus, [row.sqlite_file for row in CorpusFolder(corpus).databases()])
    assert digests(corpus) == before
    with pytest.raises(CorpusFolderError, match="no packed corpus"):
        unpack_files(made / "plain" / "spider", lambda count: None)


def test_packs_are_closed_at_their_size_and_large_databases_are_cut(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PACK_BYTES", 10_000)
    monkeypatch.setattr(packs, "PIECE_BYTES", 7_000)
    corpus = tmp_path / "spider"
    shutil.copytree(made / "plain" / "spider", corpus)
    pack_files(corpus, [row.sqlite_file for row in CorpusFolder(corpus).databases()])
    assert len(list((corpus / "packs").glob("0*.parquet"))) > 2
    for row in CorpusFolder(corpus).databases():
        copy = local_file(corpus / row.sqlite_file)
        assert hashlib.sha256(copy.read_bytes()).hexdigest() == row.sha256


def test_only_what_is_read_is_staged_and_the_oldest_makes_room(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = CorpusFolder(made / "packed" / "spider")
    rows = corpus.databases()
    first = local_file(corpus.database_path(rows[0].db_id))
    assert staged(cache) == [first]
    monkeypatch.setenv("ENVBUILD_CACHE_BYTES", str(rows[0].bytes + rows[1].bytes))
    second = local_file(corpus.database_path(rows[1].db_id))
    assert staged(cache) == sorted([first, second])
    os.utime(first.with_suffix(".used"))
    monkeypatch.setenv("ENVBUILD_CACHE_BYTES", str(rows[0].bytes + rows[2].bytes))
    third = local_file(corpus.database_path(rows[2].db_id))
    assert staged(cache) == sorted([first, third])


def test_a_damaged_pack_is_told(made: Path, tmp_path: Path, cache: Path) -> None:
    corpus = tmp_path / "spider"
    shutil.copytree(made / "packed" / "spider", corpus)
    index = pl.read_parquet(corpus / "packs" / PACK_INDEX)
    index.with_columns(pl.lit("0" * 64).alias("sha256")).write_parquet(
        corpus / "packs" / PACK_INDEX
    )
    row = CorpusFolder(corpus).databases()[0]
    with pytest.raises(CorpusFolderError, match="damaged"):
        local_file(corpus / row.sqlite_file)
    assert staged(cache) == []


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket of an object store on this machine."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("store")
    yield "store"
    server.stop()


def test_an_object_store_serves_episodes_by_the_databases_they_touch(
    made: Path, tmp_path: Path, cache: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    home = tmp_path / "home"
    shutil.copytree(made / "packed", home / "corpus")
    done = envbuild("manifest", home / "corpus", "--out", home / "pool", "--quiet")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(cache)
    s3fs.S3FileSystem().put(str(home), f"{bucket}/home", recursive=True)
    with Environment.open(f"s3://{bucket}/home/pool") as environment:
        row = environment.row_ids[0]
        environment.reset(row)
        answer = {"tool": "submit_sql", "args": {"sql": environment.row(row).gold_sql}}
        step = environment.step(json.dumps(answer))
        assert step.breakdown is not None
        assert step.breakdown.reward == 3.0
    assert len(staged(cache)) == 1
    (corpus,) = open_corpora(Path(f"s3://{bucket}/home/corpus/spider"))
    assert len(corpus.databases()) == 10
    with pytest.raises(SourceError, match="cannot read"):
        open_corpora(Path(f"s3://{bucket}/nothing"))
    with pytest.raises(SourceError, match="cannot read nosuch://store"):
        open_corpora(Path("nosuch://store/corpus"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceError, match="NoCredentialsError"):
        open_corpora(Path(f"s3://{bucket}/home/corpus/spider"))


_PLAYED = """
import os, sys
from envbuild import Environment

environment = Environment.open(sys.argv[1])

def play():
    for row in environment.row_ids[:3]:
        environment.reset(row)
        environment.step('{"tool": "run_query", "args": {"sql": "SELECT 1"}}')
        step = environment.step('{"tool": "submit_sql", "args": {"sql": "SELECT 1"}}')
        assert step.breakdown is not None

play()
os.path.exists("/step-begins")
play()
os.path.exists("/step-ends")
"""


@pytest.mark.slow
def test_a_step_opens_no_file_of_the_corpus_or_manifest(made: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    pool = tmp_path / "pool"
    done = envbuild("manifest", made / "packed", "--out", pool, "--quiet")
    assert done.returncode == 0, done.stderr
    program = tmp_path / "step.py"
    program.write_text(_PLAYED)
    trace = tmp_path / "trace"
    calls = "trace=open,openat,stat,newfstatat,statx,access,faccessat2"
    subprocess.run(
        ["strace", "-f", "-o", str(trace), "-e", calls, sys.executable, program, pool],
        check=True,
        capture_output=True,
    )
    traced = trace.read_text()
    step = traced[traced.index("/step-begins") : traced.index("/step-ends")].splitlines()
    assert str(pool) in traced[: traced.index("/step-begins")]
    opened = [line for line in step if "open" in line and (str(made) in line or str(pool) in line)]
    assert opened == []
