"""Values that satisfy a condition, or miss it narrowly."""

import re
from collections.abc import Sequence
from random import Random

import msgspec

from envbuild.records.demand import Condition
from envbuild.records.execution import Value
from envbuild.signal.amplify.columns import ColumnPlan
from envbuild.signal.amplify.fresh import fresh_value, moved_day, word
from envbuild.signal.amplify.kinds import Kind, stored
from envbuild.sql.trees.comparisons import OPPOSITE

_PARTS = {
    **{"%Y": (0, 4), "%m": (5, 7), "%d": (8, 10), "%Y-%m": (0, 7), "%Y-%m-%d": (0, 10)},
    **{"%H": (11, 13), "%M": (14, 16), "%S": (17, 19)},
}
"""Where each strftime form lies within an ISO date and time."""


def negated(condition: Condition) -> Condition:
    """The condition that holds where this one does not (NULLs aside)."""
    op = condition.op
    opposite = OPPOSITE.get(op) or (op[4:] if op.startswith("not ") else f"not {op}")
    return msgspec.structs.replace(condition, op=opposite)


def satisfying(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    """A value of the column that satisfies the condition, often just inside its bound."""
    values, op = condition.values, condition.op
    match op:
        case "null":
            return None
        case "not null":
            return _drawn(plan, rng)
        case "in":
            return _formed(rng.choice(values), condition.form, plan, rng) if values else None
        case "not in" | "not like" | "not glob" | "not between" | "!=":
            return _outside(condition, plan, rng)
        case "like" | "glob":
            return stored(_from_pattern(str(values[0]), op, rng), plan.affinity)
        case "between":
            return _between(condition, plan, rng)
        case _:
            return _bounded(condition, plan, rng)


def beyond(values: Sequence[Value], largest: bool, rng: Random, *, tie: bool = False) -> Value:
    """A value past every one of `values` on the side asked for; None where they have no order.

    With `tie` the outermost value itself.
    """
    numbers = [v for v in values if isinstance(v, int | float)]
    sign = 1 if largest else -1
    if numbers:
        edge = max(numbers) if largest else min(numbers)
        if tie:
            return edge
        span = max(1.0, (max(numbers) - min(numbers)) * 0.2 * rng.random())
        moved = edge + sign * span
        return int(moved) if isinstance(edge, int) else round(moved, 2)
    texts = [v for v in values if isinstance(v, str)]
    if not texts:
        return None
    edge_text = max(texts) if largest else min(texts)
    if tie:
        return edge_text
    return moved_day(edge_text, sign * (1 + int(rng.random() * 30)))


def _drawn(plan: ColumnPlan, rng: Random) -> Value:
    for _ in range(4):
        if (value := plan.draw(rng)) is not None:
            return value
    return plan.fresh(rng)


def _outside(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    for _ in range(8):
        value = _drawn(plan, rng)
        if plan.holds(condition, value):
            return value
    first = condition.values[0] if condition.values else 0
    return plan.beside(_formed(first, condition.form, plan, rng), rng)


def _between(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    low, high = condition.values[0], condition.values[-1]
    chance = rng.random()
    if chance < 0.5 or condition.form:
        return _formed(low if chance < 0.25 else high, condition.form, plan, rng)
    for _ in range(4):
        if plan.holds(condition, value := _drawn(plan, rng)):
            return value
    if isinstance(low, int | float) and isinstance(high, int | float):
        inside = low + (high - low) * rng.random()
        return stored(round(inside) if isinstance(low, int) else round(inside, 2), plan.affinity)
    return _formed(low, "", plan, rng)


def _bounded(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    op, bound, form = condition.op, condition.values[0], condition.form
    if op == "=":
        return _formed(bound, form, plan, rng)
    if rng.random() < 0.4 and not form:
        for _ in range(3):
            if plan.holds(condition, value := _drawn(plan, rng)):
                return value
    if op in ("<=", ">=") and rng.random() < 0.4:
        return _formed(bound, form, plan, rng)
    sign = 1 if op.startswith(">") else -1
    return _formed(_moved(bound, sign, plan, rng), form, plan, rng)


def _moved(bound: Value, sign: int, plan: ColumnPlan, rng: Random) -> Value:
    """A value beyond the bound: one step, or a good part of the range."""
    if isinstance(bound, str):
        if moved := moved_day(bound, sign * rng.choice((1, 1, 30, 400))):
            return moved
        if re.fullmatch(r"-?\d{1,15}", bound):
            return str(int(bound) + sign * rng.choice((1, 1, 2, 5))).zfill(len(bound))
        return bound + "a" if sign > 0 else bound[:-1]
    if isinstance(bound, int | float):
        far = max(1, int(abs(plan.high - plan.low) * rng.random() * 0.5))
        step = rng.choice((1, 1, far))
        if isinstance(bound, float):
            return round(bound + sign * rng.choice((0.1, 0.01, step)), 6)
        if plan.kind is Kind.REAL and rng.random() < 0.5:
            return round(bound + sign * rng.choice((0.5, 0.1)), 2)
        return bound + sign * step
    return bound


def _formed(value: Value, form: str, plan: ColumnPlan, rng: Random) -> Value:
    """A column value whose `form` is `value`."""
    if not form or form == "same" or value is None:
        return stored(value, plan.affinity)
    base = _drawn(plan, rng)
    text = str(value)
    name, _, argument = form.partition(":")
    if name == "strftime":
        span = _PARTS.get(argument)
        if span is None or not isinstance(base, str) or moved_day(base, 0) is None:
            base = str(fresh_value(Kind.DATE, 2000, 2024, "", rng))
        if span is None:
            return base
        if span[0] > 10:
            base = f"{base[:19]:<10.10} {base[11:19] or '00:00:00':08}"
        return base[: span[0]] + text.zfill(span[1] - span[0]) + base[span[1] :]
    if name == "date":
        return text + base[10:] if isinstance(base, str) and moved_day(base, 0) else text
    if name == "substr":
        start, _, _length = argument.partition(":")
        at = int(start) - (int(start) > 0) if start.lstrip("-").isdigit() else 0
        shown = str(base)
        if at < 0:
            return shown[:at] + text
        return stored(shown[:at].ljust(at, "x") + text + shown[at + len(text) :], plan.affinity)
    if name == "length" and isinstance(value, int | float):
        return (str(base) * (int(value) + 1))[: int(value)] or "x" * int(value)
    return stored(text if name in ("lower", "upper") else value, plan.affinity)


def _from_pattern(pattern: str, op: str, rng: Random) -> str:
    many, one = ("%", "_") if op.endswith("like") else ("*", "?")
    made: list[str] = []
    for letter in pattern:
        if letter == many:
            made.append(f"{word(rng)} " if not made else f" {word(rng)}")
        else:
            made.append(chr(97 + int(rng.random() * 26)) if letter == one else letter)
    text = "".join(made)
    return text if any(c.isalpha() for c in pattern) else text.replace(" ", "")
