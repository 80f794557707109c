"""Hidden variants: stored as rows, rebuilt to the same results, skipped where they cannot judge."""

from pathlib import Path

import pytest

from envbuild.errors import CorpusFolderError, UnknownNameError
from envbuild.records.variant import VariantBatch
from envbuild.signal.variants.make import make_variants
from envbuild.signal.variants.store import VariantStore, build_image, write_variants
from envbuild.sql.results import decode_rows
from tests.test_amplify import GOLDS, query, shop_image

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
    assert write_variants(tmp_path / "variants.parquet", batch.variants) == 2
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
    monkeypatch.setattr("envbuild.signal.variants.make.GOLDS_A_VARIANT", 10)
    sqls = [f"SELECT count(*) FROM item WHERE price > {number}" for number in range(15)]
    batch = batch_of(shop, *sqls)
    assert [row.variant for row in batch.variants] == ["c/shop/0.0", "c/shop/0.1"]
    assert all(len(batch.ids_of(f"g{number}")) == 1 for number in range(15))


def test_the_same_seed_gives_the_same_rows(shop: Path) -> None:
    assert batch_of(shop, *GOLDS) == batch_of(shop, *GOLDS)
    assert batch_of(shop, *GOLDS, seed=1).variants != batch_of(shop, *GOLDS).variants


def test_what_does_not_fit_is_refused_with_a_sentence(shop: Path, tmp_path: Path) -> None:
    batch = batch_of(shop, *GOLDS)
    write_variants(tmp_path / "variants.parquet", batch.variants)
    store = VariantStore(tmp_path)
    with pytest.raises(UnknownNameError, match="nowhere"):
        store.row("nowhere")
    with pytest.raises(CorpusFolderError, match="another file"):
        build_image(batch.variants[0], shop_image(rows=False))
    with pytest.raises(UnknownNameError):
        VariantStore(tmp_path / "empty").row("c/shop/0.0")
