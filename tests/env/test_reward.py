"""The reward on real databases: tiers, partial credit, consensus, hidden variants, unscored."""

from collections.abc import Iterator

import apsw
import pytest
from msgspec.structs import replace

from envbuild.env.reward import (
    Variant,
    group_advantages,
    has_zero_variance,
    score_answer,
    settings_sha256,
    with_consensus,
)
from envbuild.errors import UnknownNameError
from envbuild.records.corpus import Schema
from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier
from envbuild.records.execution import Limits
from envbuild.records.manifest import GoldResult
from envbuild.schema.read import read_schema
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import digest_rows, encode_rows

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT max(n) FROM r"
DDL = """
CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer_id INT REFERENCES customers(id), amt REAL);
INSERT INTO customers VALUES (1,'ann','Bonn'),(2,'bob','Bern'),(3,'cy','Bonn');
INSERT INTO orders VALUES (1,1,10),(2,1,20),(3,2,5.5);
"""
GOLD = (
    "SELECT name, sum(amt) FROM orders JOIN customers ON customers.id = customer_id GROUP BY name"
)


def image(extra: str = "") -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute(DDL + extra)
    return connection.serialize("main")


@pytest.fixture
def shop() -> Iterator[Session]:
    with Session.open_image(image(), limits=Limits(seconds=0.3, rows=1000)) as session:
        yield session


@pytest.fixture
def schema(shop: Session) -> Schema:
    return read_schema(shop.connection)


def gold_of(session: Session, sql: str, limits: Limits | None = None) -> GoldResult:
    result = session.run(sql, limits)
    return GoldResult(
        gold_id="g",
        outcome=result.outcome,
        columns=result.columns,
        ordered=order_matters(sql),
        digest=digest_rows(result.rows, ordered=False),
        result=encode_rows(result.rows),
    )


@pytest.mark.parametrize(
    ("sql", "tier", "reward", "verdict"),
    [
        (GOLD, Tier.EQUIVALENT, 3.0, "equal"),
        (GOLD + " ORDER BY 1 DESC", Tier.EQUIVALENT, 3.0, "equal"),
        # one of two rows right: F1 0.5; its join follows the key
        (GOLD.replace("sum", "max"), Tier.EXECUTABLE, 1.0 + 0.45 + 0.1, "different"),
        # the same without a join: one of one right, of two in the gold
        ("SELECT 'bob', 5.5", Tier.EXECUTABLE, 1.0 + 0.9 * 2 / 3, "different"),
        # the right columns and one more: 0.9 x F1 1.0
        (GOLD.replace("name,", "city, name,"), Tier.EXECUTABLE, 1.0 + 0.81 + 0.1, "different"),
        ("SELECT name FROM customers WHERE id < 3", Tier.EXECUTABLE, 1.0 + 0.81, "different"),
        ("SELECT sum(amt), name FROM orders, customers WHERE 0 GROUP BY 2", None, 1.0, "different"),
        ("SELECT nope FROM orders", Tier.PARSABLE, 0.5, "predicted_error"),
        ("DELETE FROM orders", Tier.PARSABLE, 0.5, "predicted_error"),
        (ENDLESS, Tier.PARSABLE, 0.5, "predicted_timeout"),
        (ENDLESS.replace("max(n)", "n"), Tier.PARSABLE, 0.5, "predicted_truncated"),
        ("SELEC 1", Tier.INVALID, 0.0, "predicted_error"),
        (GOLD + ";" + GOLD, Tier.INVALID, 0.0, "predicted_error"),
        ("I do not know.", Tier.INVALID, 0.0, "predicted_error"),
        (" \n", Tier.INVALID, 0.0, "no_prediction"),
        (None, Tier.INVALID, 0.0, "no_prediction"),
    ],
)
def test_tiers(
    shop: Session, schema: Schema, sql: str | None, tier: Tier | None, reward: float, verdict: str
) -> None:
    found = score_answer(sql, session=shop, gold=gold_of(shop, GOLD), schema=schema)
    assert found.reward == pytest.approx(reward)
    assert found.verdict == verdict
    assert found.tier is (tier or Tier.EXECUTABLE)
    assert (found.verdict_name, found.constants_sha256) == (
        "bag@1",
        settings_sha256(RewardSettings()),
    )


@pytest.mark.parametrize(
    ("gold", "verdict"),
    [
        ("SELECT nope", "gold_error"),
        (ENDLESS, "gold_timeout"),
        (ENDLESS.replace("max(n)", "n"), "gold_truncated"),
    ],
)
def test_a_broken_gold_leaves_everything_unscored(
    shop: Session, schema: Schema, gold: str, verdict: str
) -> None:
    stored = gold_of(shop, gold)
    group = [
        score_answer(sql, session=shop, gold=stored, schema=schema)
        for sql in ("SELECT 1", "SELEC", None)
    ]
    for found in with_consensus(group):
        assert (found.tier, found.reward, found.verdict) == (Tier.UNSCORED, None, verdict)


def test_the_settings_decide(shop: Session, schema: Schema) -> None:
    gold = gold_of(shop, "SELECT city FROM customers ORDER BY city")

    def tier(sql: str, verdict: str) -> Tier:
        settings = RewardSettings(verdict=verdict)
        return score_answer(sql, session=shop, gold=gold, schema=schema, settings=settings).tier

    distinct = "SELECT DISTINCT city FROM customers"
    backwards = "SELECT city FROM customers ORDER BY city DESC"
    assert tier(distinct, "official@1") is Tier.EQUIVALENT
    assert tier(distinct, "bag@1") is Tier.EXECUTABLE
    assert tier(backwards, "bag@1") is Tier.EQUIVALENT
    assert tier(backwards, "ordered@1") is Tier.EXECUTABLE
    with pytest.raises(UnknownNameError, match="ordered@1"):
        tier(distinct, "bag")
    assert settings_sha256(RewardSettings()) != settings_sha256(RewardSettings(equivalent=2.0))


def test_a_wide_answer_earns_no_column_credit(schema: Schema) -> None:
    def numbers(rows: int, columns: int) -> str:
        one = f"SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT {rows}"
        named = ", ".join(f"n + {column}" for column in range(columns))
        return f"WITH RECURSIVE r(n) AS ({one}) SELECT {named} FROM r"

    with Session.open_image(image()) as session:
        gold = gold_of(session, numbers(5000, 2))
        for columns, wide in ((200, False), (201, True)):
            found = score_answer(numbers(5000, columns), session=session, gold=gold, schema=schema)
            assert (found.wide, found.f1) == (wide, 0.0 if wide else 0.9)
        gold = gold_of(session, numbers(5000, 201))
        same = score_answer(numbers(5000, 201), session=session, gold=gold, schema=schema)
        assert (same.wide, same.tier) == (True, Tier.EQUIVALENT)
        fewer = score_answer(numbers(4999, 201), session=session, gold=gold, schema=schema)
        assert (fewer.wide, fewer.tier, round(fewer.f1, 4)) == (True, Tier.EXECUTABLE, 0.9999)
        narrow = score_answer(numbers(5000, 2), session=session, gold=gold, schema=schema)
        assert (narrow.wide, narrow.f1) == (True, 0.0)


def test_hidden_variants(shop: Session, schema: Schema) -> None:
    """An answer that is right by luck is told apart by another database."""
    gold = "SELECT name FROM customers WHERE city = 'Bern'"
    lucky = "SELECT name FROM customers WHERE id = 2"
    other = Session.open_image(image("UPDATE customers SET city = 'Bern' WHERE id = 3"))
    same = Session.open_image(image())
    empty = Session.open_image(image("DELETE FROM customers"))
    variants = [Variant(session, gold_of(session, gold)) for session in (other, same, empty)]
    broken = Variant(same, replace(variants[0].gold, outcome="timeout"))

    def score(sql: str, chosen: list[Variant]) -> RewardBreakdown:
        return score_answer(
            sql, session=shop, gold=gold_of(shop, gold), schema=schema, variants=chosen
        )

    both = score(lucky, [*variants, broken])
    assert (both.variants_scored, both.variants_matched) == (2, 1)
    assert both.reward == pytest.approx(2.1 + 0.45)
    assert (both.tier, both.verdict) == (Tier.EXECUTABLE, "equal")
    assert score(lucky, variants[:1]).reward == pytest.approx(2.1)
    assert score(lucky, variants[1:2]).reward == 3.0
    assert score(lucky, [variants[2], broken]).reward == 3.0  # none left: the plain verdict
    assert score(gold, variants).reward == 3.0
    assert score("SELECT 1", variants).variants_scored == 0  # wrong already
    agreed = with_consensus([both, both, score("SELECT 1", [])])
    assert [b.reward for b in agreed[:2]] == [both.reward, both.reward]  # stays below 3.0
    for session in (other, same, empty):
        session.close()


def test_advantages_of_a_group() -> None:
    assert group_advantages([3.0, 1.0, 1.0, 3.0]) == pytest.approx([1.0, -0.7, -0.7, 1.0])
    assert group_advantages([3.0] + [0.0] * 7)[0] == 2.0  # clipped from 2.625
    assert group_advantages([0.0] + [3.0] * 9)[0] == pytest.approx(-1.4)  # -2.7, clipped, x 0.7
    assert group_advantages([3.0, None, 1.0, float("nan")]) == pytest.approx([1.0, 0.0, -0.7, 0.0])
    assert group_advantages([None, None]) == [0.0, 0.0]
    assert group_advantages([]) == []
    assert has_zero_variance([1.0, 1.0, None])
    assert has_zero_variance([3.0, None])
    assert not has_zero_variance([1.0, 1.1])
