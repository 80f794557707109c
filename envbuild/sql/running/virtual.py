"""Virtual tables of the database's own, connected before the authorizer looks."""

from contextlib import suppress

import apsw

from envbuild.sql.connect import quote_name

_VIRTUAL = "SELECT name FROM main.sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"


def connect_virtual_tables(connection: apsw.Connection) -> bool:
    """Whether there are any.

    An R-Tree prepares its writes when it is connected, with the first statement that names it:
    the authorizer refuses those, and the statement would be refused with them.
    """
    names = connection.execute(_VIRTUAL, can_cache=False).fetchall()
    for (name,) in names:
        with suppress(apsw.Error):
            connection.execute(f"SELECT 1 FROM {quote_name(str(name))} LIMIT 0", can_cache=False)
    return bool(names)
