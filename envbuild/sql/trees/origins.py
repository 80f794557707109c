"""Where an expression's value comes from: a base column, what is applied to it, or a literal."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from envbuild.records.execution import Value
from envbuild.records.signal import Extreme, Site

PASSED = (exp.Paren, exp.Alias, exp.Cast, exp.TryCast, exp.Round, exp.Coalesce, exp.Collate)
"""Expressions that leave a value recognisable: the first argument is followed."""
FOLDS = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an expression is, as far as rows can be chosen for it."""

    kind: str
    """`column`, `literal`, `count`, `rank` or `mixed`."""
    site: Site | None = None
    value: Value = None
    form: str = ""
    expression: exp.Expr | None = None
    """What is made of a column `v` on the way; None for the column itself."""
    fold: str = ""
    group: tuple[Site, ...] = ()
    """For a rank: its partition."""
    order: tuple[Extreme, ...] = ()
    """For a rank: what it is ordered by."""
    counted: str = ""
    """For a rank: `asc` or `desc` where it is ordered by a count."""
    counts: tuple[Site, ...] = ()
    """For a distinct count: what is counted."""
    chance: bool = False
    """A row number: ties are chance."""


MIXED = Origin(kind="mixed")
Look = Callable[[exp.Column], Origin]


def origin_of(node: exp.Expr, look: Look) -> Origin:
    """The origin of an expression; `look` resolves a column reference."""
    while isinstance(node, exp.Paren | exp.Alias):
        node = node.this
    if isinstance(node, PASSED):
        return _around(node, node.this, origin_of(node.this, look))
    if isinstance(node, exp.Column):
        return look(node)
    if (literal := literal_of(node)) is not None:
        return Origin(kind="literal", value=literal[0])
    for fold, name in FOLDS.items():
        if isinstance(node, fold):
            return _folded(node, name, look)
    if isinstance(node, exp.Window):
        return _windowed(node, look)
    if form := form_of(node):
        inner = origin_of(subject := _subject(node), look)
        found = replace(inner, form=inner.form or form) if inner.kind == "column" else inner
        return _around(node, subject, found)
    return MIXED


def _around(node: exp.Expr, child: exp.Expr, inner: Origin) -> Origin:
    """The origin of `node` from that of the part of it that is followed."""
    if inner.kind != "column":
        return inner
    own = set(map(id, child.find_all(exp.Column, exp.Query)))
    if any(id(part) not in own for part in node.find_all(exp.Column, exp.Query)):
        return inner  # other columns have a say: one value does not decide it
    outer = node.copy()
    place = outer.this
    while node.this is not child:
        node, place = node.this, place.this
    place.replace(inner.expression.copy() if inner.expression else exp.column("v"))
    return replace(inner, expression=outer)


def literal_of(node: exp.Expr) -> tuple[Value] | None:
    """The literal's value in a 1-tuple, or None where the expression is no literal."""
    if isinstance(node, exp.Literal):
        return (str(node.this),) if node.is_string else (_number(str(node.this)),)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        number = _number(str(node.this.this))
        return (-number,) if isinstance(number, int | float) else None
    if isinstance(node, exp.Boolean):
        return (int(bool(node.this)),)
    return (None,) if isinstance(node, exp.Null) else None


def form_of(node: exp.Expr) -> str:
    """The name of what a scalar function makes of its column; empty where rows cannot follow it."""
    if isinstance(node, exp.Lower):
        return "lower"
    if isinstance(node, exp.Upper):
        return "upper"
    if isinstance(node, exp.Length):
        return "length"
    if isinstance(node, exp.TimeToStr):
        pattern = node.args.get("format")
        return f"strftime:{pattern.this}" if isinstance(pattern, exp.Literal) else ""
    if isinstance(node, exp.Substring):
        start, length = (_whole(node.args.get(name)) for name in ("start", "length"))
        return f"substr:{start}:{length}" if start else ""
    if isinstance(node, exp.Date | exp.TsOrDsToDate):
        return "date"
    if isinstance(node, exp.Trim | exp.Abs):
        return "same"
    return ""


def _subject(node: exp.Expr) -> exp.Expr:
    inner = node.this
    while isinstance(inner, exp.TsOrDsToTimestamp | exp.TsOrDsToDate | exp.Date):
        inner = inner.this
    return inner if isinstance(inner, exp.Expr) else exp.Null()


def descends(key: exp.Expr) -> bool:
    """True for an ORDER BY key that puts the largest first."""
    return bool(key.args.get("desc"))


def _whole(node: exp.Expr | None) -> str:
    found = literal_of(node) if node is not None else None
    return str(found[0]) if found and isinstance(found[0], int) else ""


def _folded(node: exp.Expr, name: str, look: Look) -> Origin:
    inner = node.this
    distinct = isinstance(inner, exp.Distinct)
    if isinstance(inner, exp.Distinct) and inner.expressions:
        inner = inner.expressions[0]
    if name == "count":
        counted = origin_of(inner, look) if distinct else MIXED
        return Origin(kind="count", counts=(counted.site,) if counted.site else ())
    if not isinstance(inner, exp.Expr):
        return MIXED
    found = origin_of(inner, look)
    return replace(found, fold=name) if found.kind == "column" else MIXED


def _windowed(node: exp.Window, look: Look) -> Origin:
    if not isinstance(node.this, RANKS):
        return origin_of(node.this, look)
    parts = [origin_of(part, look) for part in node.args.get("partition_by") or ()]
    order = node.args.get("order")
    keys = [(origin_of(k.this, look), descends(k)) for k in (order.expressions if order else ())]
    return Origin(
        kind="rank",
        group=tuple(part.site for part in parts if part.site),
        order=tuple((key.site, desc) for key, desc in keys if key.site),
        counted=next(("desc" if desc else "asc" for key, desc in keys if key.kind == "count"), ""),
        chance=isinstance(node.this, exp.RowNumber),
    )


def _number(text: str) -> Value:
    try:
        return int(text, 0) if not text.isdigit() else int(text)
    except ValueError:
        return float(text)
