"""Every name a query may resolve to in one database: what tells `"x"` the name from the string."""

import apsw

from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name

_TABLES = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY rowid"
_COLUMNS = """SELECT c.name FROM sqlite_schema AS s CROSS JOIN pragma_table_xinfo(s.name) AS c
WHERE s.type = 'table'"""


def read_identifiers(connection: apsw.Connection) -> frozenset[str]:
    """Names of tables, views and their columns, folded as SQLite compares them.

    A view that no longer compiles gives its name alone.
    """
    names: set[str] = set()
    views: list[str] = []
    for name, kind in connection.execute(_TABLES):
        names.add(fold_name(name))
        if kind == "view":
            views.append(name)
    for (column,) in connection.execute(_COLUMNS):
        names.add(fold_name(column))
    for view in views:
        try:
            columns = connection.execute(f"PRAGMA table_xinfo({quote_name(view)})").fetchall()
        except apsw.SQLError:
            continue
        names.update(fold_name(str(column[1])) for column in columns)
    return frozenset(names)
