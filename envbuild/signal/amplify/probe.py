"""Whether a value satisfies a condition, decided by SQLite: the value is stored, then compared."""

from envbuild.records.demand import Condition
from envbuild.records.execution import Value
from envbuild.sql.connect import SQLiteError, open_private

BUILT_IN_COLLATIONS = ("BINARY", "NOCASE", "RTRIM")


class Probe:
    """A private database with one cell for every column affinity and collation asked for."""

    def __init__(self) -> None:
        self._connection = open_private()
        self._connection.execute("BEGIN")  # never committed: nothing is kept
        self._cells: dict[tuple[str, str], str] = {}

    def holds(
        self, condition: Condition, value: Value, *, affinity: str, collation: str = "BINARY"
    ) -> bool:
        """Whether `value`, stored in such a column, satisfies the condition.

        True where SQLite cannot say it of one value: the query itself has the last word.
        """
        cell = self._cells.get((affinity, collation)) or self._cell(affinity, collation)
        sql = f"UPDATE {cell} SET v = ? RETURNING {condition_sql(condition)}"
        try:
            return bool(self._connection.execute(sql, (value, *condition.values)).get)
        except (SQLiteError, OverflowError):
            return True

    def _cell(self, affinity: str, collation: str) -> str:
        name = self._cells[affinity, collation] = f"cell{len(self._cells)}"
        self._connection.execute(
            f"CREATE TABLE {name} (v {affinity} COLLATE {collation});"
            f" INSERT INTO {name} VALUES (NULL)"
        )
        return name


def condition_sql(condition: Condition) -> str:
    """The condition as SQL over the column `v`, its literals as `?`."""
    op, shown, marks = condition.op, condition.expression, ["?"] * len(condition.values)
    if op in ("null", "not null"):
        return f"{shown} IS {op}"
    if op in ("in", "not in"):
        return f"{shown} {op} ({', '.join(marks)})"
    return f"{shown} {op} {' AND '.join(marks)}"
