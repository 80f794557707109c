"""Hidden variants: stored as rows, rebuilt to the same results, skipped where they cannot judge."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envbuild.errors import CorpusFolderError, UnknownNameError
from envbuild.io.parquet import write_records
from envbuild.manifest.read import VARIANT_SCHEMA, VARIANTS_FILE
from envbuild.records.manifest import VariantBatch
from envbuild.signal.variants import (
    COPIES,
    VariantStore,
    build_image,
    make_variants,
)
from envbuild.sql.verdicts import decode_rows
from tests.generate.test_amplify import GOLDS, query, shop_image

NEVER = "SELECT title FROM shop WHERE size > 5 AND size < 4"
TIED = "SELECT kind FROM shop LIMIT 1"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    path.write_bytes(shop_image())
    return path


def batch_of(shop: Path, *sqls: str, count: int = 1, seed: int = 0) -> VariantBatch:
    golds = [(f"g{number}", sql) for number, sql in enumerate(sqls)]
    return make_variants(shop, golds, corpus="c", db_id="shop", count=count, seed=seed)


def test_a_stored_variant_gives_the_results_it_was_made_with(shop: Path, tmp_path: Path) -> None:
    batch = batch_of(shop, *GOLDS, count=2)
    assert write_records(tmp_path / VARIANTS_FILE, batch.variants, VARIANT_SCHEMA) == 2
    with VariantStore(tmp_path) as store:
        for gold in batch.golds:
            sql = GOLDS[int(gold.gold_id[1:])]
            found = store.session(gold.variant, shop).run(sql)
            assert found.rows == decode_rows(gold.result)
        image = build_image(store.row("c/shop/0.0"), shop.read_bytes())
    assert query(image, "PRAGMA integrity_check") == [("ok",)]
    assert set(query(shop_image(), "SELECT * FROM shop")) <= set(query(image, "SELECT * FROM shop"))
    assert {gold.variant for gold in batch.golds} == {"c/shop/0.0", "c/shop/1.0"}
    first, second = batch.variants
    assert first.rows != second.rows


def test_a_variant_does_not_judge_what_is_empty_or_tied_there(shop: Path) -> None:
    batch = batch_of(shop, NEVER, TIED, GOLDS[1])
    assert {(one.gold_id, one.reason) for one in batch.skipped} == {
        ("g0", "gold_empty"),
        ("g1", "tie_sensitive"),
    }
    assert batch.ids_of("g0") == batch.ids_of("g1") == ()
    assert batch.ids_of("g2") == ("c/shop/0.0",)


def test_many_golds_are_split_over_variants_of_their_own(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.signal.variants.GOLDS_A_VARIANT", 10)
    sqls = [f"SELECT count(*) FROM item WHERE price > {number}" for number in range(15)]
    batch = batch_of(shop, *sqls)
    assert [row.variant for row in batch.variants] == ["c/shop/0.0", "c/shop/0.1"]
    assert all(len(batch.ids_of(f"g{number}")) == 1 for number in range(15))


def test_the_same_seed_gives_the_same_rows(shop: Path) -> None:
    assert batch_of(shop, *GOLDS) == batch_of(shop, *GOLDS)
    assert batch_of(shop, *GOLDS, seed=1).variants != batch_of(shop, *GOLDS).variants


def test_what_does_not_fit_is_refused_with_a_sentence(shop: Path, tmp_path: Path) -> None:
    batch = batch_of(shop, *GOLDS)
    write_records(tmp_path / VARIANTS_FILE, batch.variants, VARIANT_SCHEMA)
    store = VariantStore(tmp_path)
    with pytest.raises(UnknownNameError, match=r"no variant 'nowhere'; known: c/shop/0\.0$"):
        store.row("nowhere")
    with pytest.raises(CorpusFolderError, match="another file"):
        build_image(batch.variants[0], shop_image(rows=False))
    with pytest.raises(UnknownNameError, match="known: none"):
        VariantStore(tmp_path / "empty").row("c/shop/0.0")


def test_variants_are_kept_within_a_budget_of_bytes(shop: Path, tmp_path: Path) -> None:
    batch = batch_of(shop, *GOLDS, count=4)
    write_records(tmp_path / VARIANTS_FILE, batch.variants, VARIANT_SCHEMA)
    names = [row.variant for row in batch.variants]
    size = COPIES * len(build_image(batch.variants[0], shop.read_bytes()))
    with VariantStore(tmp_path, memory_bytes=int(2.5 * size)) as store:
        first = store.session(names[0], shop)
        others = [store.session(name, shop) for name in names[1:]]
        assert 0 < store.kept_bytes() <= store.memory_bytes
        assert store.session(names[3], shop) is others[2]
        assert store.session(names[0], shop) is not first, "the oldest was dropped"
        assert first.run("SELECT count(*) FROM item").ok, "who still holds it goes on"
    with VariantStore(tmp_path, memory_bytes=1) as store:
        assert store.session(names[0], shop) is store.session(names[0], shop)


def test_threads_and_forked_children_share_what_is_built(shop: Path, tmp_path: Path) -> None:
    batch = batch_of(shop, *GOLDS, count=2)
    write_records(tmp_path / VARIANTS_FILE, batch.variants, VARIANT_SCHEMA)
    names = [row.variant for row in batch.variants]
    with VariantStore(tmp_path) as store, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda name: store.session(name, shop), names * 8))
        assert len(set(map(id, found))) == 2
        with store._lock:  # as another thread of the parent may hold it
            child = os.fork()
            if not child:
                signal.alarm(300)
                same = store.session(names[0], shop).run("SELECT count(*) FROM item").ok
                os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
