"""One change to a gold's tree, made, rendered and undone: no tree is copied for a mutant."""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

Make = Callable[[], Any]
"""Builds the new value; children it takes from the tree are copied, so that undoing is exact."""


class Edit:
    """Set argument `key` of `owner` to what `make` builds; an `owner` of None replaces the root."""

    __slots__ = ("key", "make", "owner")

    def __init__(self, owner: exp.Expr | None, key: str, make: Make) -> None:
        self.owner, self.key, self.make = owner, key, make

    def render(self, root: exp.Expr) -> str:
        """The SQL of `root` with this one change; `root` is as before afterwards."""
        if self.owner is None:
            return render(self.make())
        old = self.owner.args.get(self.key)
        self.owner.set(self.key, self.make())
        try:
            return render(root)
        finally:
            self.owner.set(self.key, old)


def render(root: exp.Expr) -> str:
    """The tree as SQLite text, without comments."""
    return root.sql(dialect="sqlite", comments=False, copy=False)


def swap(node: exp.Expr, make: Callable[[], exp.Expr]) -> Edit:
    """The edit that puts what `make` builds where `node` stands."""
    owner, key = node.parent, node.arg_key
    if owner is None or key is None:
        return Edit(None, "", make)
    if node.index is None:
        return Edit(owner, key, make)
    siblings = owner.args[key]
    return Edit(owner, key, lambda: [make() if one is node else one for one in siblings])


def without(node: exp.Expr) -> Edit:
    """The edit that takes `node` out of the list it stands in."""
    owner, key = node.parent, node.arg_key
    assert owner is not None and key is not None
    siblings = owner.args[key]
    return Edit(owner, key, lambda: [one for one in siblings if one is not node])


def dropped(owner: exp.Expr, key: str) -> Edit:
    """The edit that clears one argument."""
    return Edit(owner, key, lambda: None)


def same_sides(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
    """A two-sided expression of another kind over copies of `node`'s sides."""
    changed = kind(this=node.this.copy(), expression=node.expression.copy())
    if isinstance(changed, exp.Div):
        # SQLite's own division; without these sqlglot writes a CAST
        changed.set("typed", True)
        changed.set("safe", True)
    return changed
