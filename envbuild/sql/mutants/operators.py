"""The operators of `signal@1`, in order; a function's name is the operator's name."""

from collections.abc import Callable, Iterator

from envbuild.sql.mutants import aggregates, columns, conditions, shape
from envbuild.sql.mutants.edits import Edit
from envbuild.sql.mutants.tree import GoldTree

Operator = Callable[[GoldTree], Iterator[Edit]]

OPERATORS: tuple[Operator, ...] = (
    conditions.pred_drop,
    conditions.negate,
    conditions.cmp_bound,
    conditions.cmp_rev,
    conditions.cmp_neq,
    conditions.cmp_eq_ge,
    conditions.and_or,
    conditions.between,
    conditions.lit_num,
    conditions.lit_str,
    columns.col_select,
    columns.col_where,
    columns.col_order,
    columns.col_window,
    columns.group_col,
    columns.group_drop,
    conditions.having_drop,
    aggregates.agg,
    aggregates.count_col,
    aggregates.count_distinct,
    aggregates.distinct,
    shape.order_dir,
    shape.order_drop,
    shape.limit,
    shape.join_side,
    columns.join_key,
    columns.table_swap,
    shape.set_op,
    shape.set_side,
    aggregates.arith,
    aggregates.cast_drop,
    aggregates.window,
)
