"""What answers are judged by: this engine's golds, on the very databases they were computed on."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from envbuild.corpora.folder import open_corpora
from envbuild.env.environment import Environment
from envbuild.errors import ConfigurationError, CorpusError, CorpusFolderError, SourceError
from envbuild.evaluate.runs import evaluate_episodes
from envbuild.io.episodes import EpisodeJournal
from envbuild.io.parquet import read_records, write_records
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import (
    GOLD_FILE,
    GOLD_SCHEMA,
    MANIFEST_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
    open_manifest,
)
from envbuild.manifest.samples import LADDER, resample_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question
from envbuild.records.episode import EndedBy, Episode, RewardBreakdown
from envbuild.records.execution import Limits, Rows, Verdict
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.sql.connect import SQLITE_VERSION
from envbuild.sql.verdicts import decode_rows, digest_rows, encode_rows
from envbuild.train.trainer_env import RERUN_VARIABLE, TrainerEnv, shared_trainer_env
from tests.shared import envbuild
from tests.small_corpus import write_corpus

SHOP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL);
INSERT INTO orders (price) VALUES (1), (2), (3), (4), (5);
"""
GOLD = "SELECT count(*) FROM orders WHERE price > 1"
ROW = "c/shop/q"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return build(tmp_path)


def build(root: Path, *, variants: int = 0) -> Path:
    asked = Question(corpus="c", question_id="q", db_id="shop", question="how many?", gold_sql=GOLD)
    write_corpus(root / "c", {"shop": SHOP}, [asked])
    settings = ManifestSettings(variants=variants, limits=Limits(vm_steps=1_000_000))
    corpora = open_corpora(root / "c")
    build_manifest(corpora, root / "manifest", settings=settings, workers=1)
    return root / "manifest"


def made_by(manifest: Path, version: str) -> Path:
    """The manifest as another SQLite would have left it, stored results included."""
    change_index(manifest, lambda index: index["versions"].update(sqlite=version))
    change_index(manifest, lambda index: index["configuration"].update(sqlite=version))
    return manifest


def change_index(manifest: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((manifest / MANIFEST_FILE).read_text())
    change(index)
    (manifest / MANIFEST_FILE).write_text(json.dumps(index))


def store_other_result(manifest: Path, rows: Rows = ((99,),)) -> None:
    """Stored golds that are not what their SQL gives: whoever runs it sees the difference."""
    golds = [
        msgspec.structs.replace(
            gold, result=encode_rows(rows), digest=digest_rows(rows, ordered=gold.ordered)
        )
        for gold in read_records(manifest / GOLD_FILE, GoldResult)
    ]
    write_records(manifest / GOLD_FILE, golds, GOLD_SCHEMA)


def ask_for(manifest: Path, gold_sql: str) -> None:
    """The manifest's only question with another gold query."""
    (row,) = read_records(manifest / ROWS_FILE, ManifestRow)
    write_records(
        manifest / ROWS_FILE, [msgspec.structs.replace(row, gold_sql=gold_sql)], ROW_SCHEMA
    )


def score(env: Environment, sql: str) -> RewardBreakdown:
    return env.score(episode(sql))


def episode(sql: str) -> Episode:
    return Episode(
        episode_id=f"{ROW}/0", row_id=ROW, policy="p", ended_by=EndedBy.SUBMIT_SQL, sql=sql
    )


def journal(manifest: Path, folder: Path, sql: str) -> Path:
    with EpisodeJournal(folder, configuration={"manifest": str(manifest)}) as written:
        written.add(episode(sql))
        written.seal()
    return folder


def database_of(manifest: Path) -> Path:
    opened = open_manifest(manifest)
    return opened.database_path(opened.row(ROW))


def change(database: Path, sql: str = "DELETE FROM orders WHERE id = 5") -> None:
    connection = apsw.Connection(str(database))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("place", ["versions", "configuration"])
def test_golds_of_another_sqlite_are_refused(manifest: Path, place: str) -> None:
    change_index(manifest, lambda index: index[place].update(sqlite="3.40.1"))
    said = (
        rf"made by SQLite 3\.40\.1, and SQLite {SQLITE_VERSION} runs here.*"
        r"build the manifest again.*--rerun-golds"
    )
    with pytest.raises(CorpusFolderError, match=said):
        Environment.open(manifest)
    with pytest.raises(CorpusFolderError, match=said):
        TrainerEnv(manifest)
    assert open_manifest(manifest).row(ROW).gold_sql == GOLD, "reading goes on"


def test_a_rung_has_the_version_of_the_golds_it_took_over(manifest: Path, tmp_path: Path) -> None:
    opened = open_manifest(made_by(manifest, "3.40.1"))
    resample_manifest(opened, tmp_path / "rung", LADDER[-1])
    rung = open_manifest(tmp_path / "rung")
    assert rung.sqlite_versions == {"3.40.1", SQLITE_VERSION}
    with pytest.raises(CorpusFolderError, match=r"3\.40\.1"):
        Environment(rung, settings=Environment.open(manifest, rerun_golds=True).settings)


def test_no_gold_is_run_unless_asked(manifest: Path, tmp_path: Path) -> None:
    store_other_result(manifest)
    env = Environment.open(manifest)
    assert (score(env, GOLD).reward or 0) < 3.0 and score(env, "SELECT 99").reward == 3.0
    ran = evaluate_episodes(journal(manifest, tmp_path / "episodes", "SELECT 99"))
    assert ran.verdicts[0].official is Verdict.EQUAL

    asked = Environment.open(manifest, rerun_golds=True)
    assert score(asked, GOLD).reward == 3.0 and (score(asked, "SELECT 99").reward or 0) < 3.0
    again = evaluate_episodes(tmp_path / "episodes", rerun_golds=True)
    assert again.verdicts[0].official is Verdict.DIFFERENT


def test_a_gold_is_run_once_a_process(manifest: Path) -> None:
    ask_for(manifest, "SELECT random() FROM orders")  # another result at every run
    envs = [Environment.open(manifest, rerun_golds=True) for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        golds = list(threads.map(lambda n: envs[n % 4].gold(envs[n % 4].row(ROW)), range(32)))
    assert len({gold.result for gold in golds}) == 1
    assert len(decode_rows(golds[0].result)) == 5


def test_a_manifest_built_again_in_its_place_has_its_golds_run_again(manifest: Path) -> None:
    def gold() -> bytes:
        env = Environment.open(manifest, rerun_golds=True)
        return env.gold(env.row(ROW)).result

    assert decode_rows(gold()) == ((4,),)
    change_index(manifest, lambda index: index["configuration"]["settings"].update(seed=1))
    ask_for(manifest, "SELECT sum(price) FROM orders")
    assert decode_rows(gold()) == ((15.0,),)


def test_golds_are_run_under_the_limits_of_their_manifest(manifest: Path) -> None:
    ask_for(
        manifest, "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e, orders f"
    )
    env = Environment.open(manifest, rerun_golds=True)
    assert env.manifest.limits.vm_steps == 1_000_000
    assert env.gold(env.row(ROW)).outcome == "ok"
    settings = {"limits": {"vm_steps": 5000}}
    change_index(manifest, lambda index: index["configuration"]["settings"].update(settings))
    spent = score(Environment.open(manifest, rerun_golds=True), "SELECT 15625")
    assert (spent.reward, spent.verdict) == (None, Verdict.GOLD_TIMEOUT)


def test_golds_on_hidden_variants_are_run_again_too(tmp_path: Path) -> None:
    manifest = build(tmp_path, variants=2)
    right = score(Environment.open(manifest), GOLD)
    assert (right.reward, right.variants_scored, right.variants_matched) == (3.0, 2, 2)
    visible = decode_rows(Environment.open(manifest).manifest.gold(gold_id(manifest)).result)

    store_other_result(made_by(manifest, "3.40.1"))
    again = score(Environment.open(manifest, rerun_golds=True), GOLD)
    assert (again.reward, again.variants_scored, again.variants_matched) == (3.0, 2, 2)
    lucky = score(Environment.open(manifest, rerun_golds=True), f"SELECT {visible[0][0]}")
    assert (lucky.variants_scored, lucky.variants_matched) == (2, 0)
    run = evaluate_episodes(journal(manifest, tmp_path / "episodes", GOLD), rerun_golds=True)
    assert (run.verdicts[0].official, run.verdicts[0].hidden) == (Verdict.EQUAL, Verdict.EQUAL)


def gold_id(manifest: Path) -> str:
    return open_manifest(manifest).row(ROW).gold_id


def test_adapters_ask_by_a_setting_or_by_the_environment(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by(manifest, "3.40.1")
    store_other_result(manifest)
    with pytest.raises(CorpusFolderError, match="--rerun-golds"):
        shared_trainer_env(manifest)
    by_setting = shared_trainer_env(manifest, rerun_golds=True)
    monkeypatch.setenv(RERUN_VARIABLE, "1")
    assert shared_trainer_env(manifest) is by_setting
    assert score(by_setting.environment, GOLD).reward == 3.0
    monkeypatch.setenv(RERUN_VARIABLE, "perhaps")
    with pytest.raises(ConfigurationError, match="takes 1 or 0"):
        shared_trainer_env(manifest)


def test_commands_that_judge_refuse_and_those_that_read_go_on(
    manifest: Path, tmp_path: Path
) -> None:
    made_by(manifest, "3.40.1")
    episodes = journal(manifest, tmp_path / "episodes", GOLD)
    for judges in (("score", episodes), ("evaluate", episodes), ("play", manifest)):
        refused = envbuild(*judges)
        assert refused.returncode == 2 and not refused.stdout, judges
        assert "made by SQLite 3.40.1" in refused.stderr and "--rerun-golds" in refused.stderr
    for judges in (("score", episodes, "--json"), ("evaluate", episodes, "--json")):
        judged = envbuild(*judges, "--rerun-golds")
        assert judged.returncode == 0, judged.stderr
    for options in ("withheld", "full"):
        out = tmp_path / options
        read = envbuild("export", manifest, "--to", "trl", "--schema", options, "--out", out)
        assert read.returncode == 0, read.stderr
    for reads in (("view", episodes, "--html", tmp_path / "page.html"), ("pool", manifest)):
        assert "SQLite" not in envbuild(*reads).stderr


def test_a_database_that_has_changed_judges_nobody(manifest: Path, tmp_path: Path) -> None:
    env, database = Environment.open(manifest), database_of(manifest)
    assert score(env, GOLD).reward == 3.0
    whole = database.read_bytes()
    change(database)
    for judge in (
        lambda: score(env, GOLD),  # its view was built before
        lambda: env.reset(ROW),
        lambda: score(Environment.open(manifest), GOLD),
        lambda: score(Environment.open(manifest, rerun_golds=True), GOLD),
        lambda: evaluate_episodes(journal(manifest, tmp_path / "episodes", GOLD)),
    ):
        with pytest.raises(CorpusError, match=r"'shop'.*put that file back, or build") as refused:
            judge()
        assert (refused.value.reason, refused.value.db_id) == ("database_changed", "shop")
    database.write_bytes(whole)
    assert score(env, GOLD).reward == 3.0
    database.unlink()
    with pytest.raises(SourceError, match="cannot read the database"):
        score(Environment.open(manifest), GOLD)


def test_a_change_behind_the_same_size_and_time_is_seen(manifest: Path) -> None:
    env, database = Environment.open(manifest), database_of(manifest)
    assert score(env, GOLD).reward == 3.0
    before = database.stat()
    change(database, "UPDATE orders SET price = 9 WHERE id = 1")
    os.utime(database, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert database.stat().st_size == before.st_size
    with pytest.raises(CorpusError, match="database_changed"):
        score(env, GOLD)


def test_a_log_beside_the_file_hides_no_change(manifest: Path) -> None:
    database = database_of(manifest)
    env = Environment.open(manifest)
    assert score(env, GOLD).reward == 3.0
    before = database.read_bytes()
    database.with_name(f"{database.name}-wal").touch()  # as a reader may leave one
    assert score(Environment.open(manifest), GOLD).reward == 3.0

    writer = apsw.Connection(str(database))
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    in_log_mode = database.read_bytes()
    assert in_log_mode != before, "the mode is written in the file"
    writer.execute("PRAGMA wal_autocheckpoint = 0; DELETE FROM orders").fetchall()
    assert database.read_bytes() == in_log_mode, "the change is in the log alone"
    row = msgspec.structs.replace(env.row(ROW), database_sha256=sha256(in_log_mode).hexdigest())
    with pytest.raises(CorpusError, match="database_changed"):
        env.new_episode(row)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with pytest.raises(CorpusError, match="database_changed"):
        env.new_episode(row)
    writer.close()


def test_a_database_is_read_for_its_digest_once(manifest: Path, opened_files: list[str]) -> None:
    database = str(database_of(manifest))
    envs = [Environment.open(manifest) for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        paid = threads.map(lambda n: score(envs[n % 4], GOLD).reward, range(64))
        assert set(paid) == {3.0}
    assert opened_files.count(database) == 1
    child = os.fork()
    if not child:
        score(envs[0], GOLD)
        os._exit(opened_files.count(database))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, "a child knows it already"


_opened: list[str] = []
sys.addaudithook(lambda event, given: _opened.append(str(given[0])) if event == "open" else None)
"""Every file that Python opens; SQLite's own opening is none of them."""


@pytest.fixture
def opened_files() -> Iterator[list[str]]:
    _opened.clear()
    yield _opened


def test_golds_of_format_1_that_may_have_lost_bytes_are_run_again(manifest: Path) -> None:
    sql = "SELECT CAST(x'62ff' AS TEXT), char(65533) FROM orders WHERE id = 1"
    ask_for(manifest, sql)
    store_other_result(manifest, (("b\ufffd", "\ufffd"),))
    shown = "SELECT 'b' || char(65533), char(65533)"
    with Environment.open(manifest) as env:
        assert score(env, sql).verdict == Verdict.DIFFERENT
    change_index(manifest, lambda index: index.update(format="envbuild.manifest/1"))
    with Environment.open(manifest) as env:
        assert score(env, sql).verdict == Verdict.EQUAL
        assert score(env, shown).verdict == Verdict.DIFFERENT
    store_other_result(manifest)
    with Environment.open(manifest) as env:
        assert decode_rows(env.gold(env.row(ROW)).result) == ((99,),), "nothing was lost here"
    change_index(manifest, lambda index: index.update(format="envbuild.manifest/3"))
    with pytest.raises(CorpusFolderError, match=r"this version reads envbuild\.manifest/2 and"):
        open_manifest(manifest)
