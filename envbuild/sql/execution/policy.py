"""What a statement may do: read the main database with functions that are known to be harmless.

An allow-list. Whatever is not on it is refused when the statement is prepared, so before any of
it runs: writing, ATTACH, PRAGMA in every form (as a table function too), transactions, temporary
objects, and functions that reach outside the database.
"""

import apsw

from envbuild.sql.names import fold_name


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ACTIONS = frozenset(
    (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
)
FUNCTIONS = _names(
    """
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling changes char coalesce
    concat concat_ws cos cosh count cume_dist current_date current_time current_timestamp date
    datetime degrees dense_rank exp first_value floor format glob group_concat hex if ifnull iif
    instr json json_array json_array_insert json_array_length json_error_position json_extract
    json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
    json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_array_insert
    jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch
    jsonb_remove jsonb_replace jsonb_set julianday lag last_insert_rowid last_value lead length
    like likelihood likely ln log log10 log2 lower ltrim max median min mod nth_value ntile
    nullif octet_length percent_rank percentile percentile_cont percentile_disc pi pow power
    printf quote radians random randomblob rank replace round row_number rtrim sign sin sinh
    sqlite_compileoption_get sqlite_compileoption_used sqlite_source_id sqlite_version sqrt
    strftime string_agg substr substring subtype sum tan tanh time timediff total total_changes
    trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob bm25
    highlight snippet offsets matchinfo match geopoly_area geopoly_bbox geopoly_blob
    geopoly_contains_point geopoly_group_bbox geopoly_json geopoly_overlap geopoly_regular
    geopoly_svg geopoly_within geopoly_xform geopoly_ccw
    """
)
"""SQLite's own functions, less those that load code, run SQL, write, or reveal pages."""
BUILT_IN_TABLES = _names(
    """
    dbstat sqlite_dbpage sqlite_stmt sqlite_memstmt bytecode tables_used carray completion
    fts3tokenize
    """
)
"""Virtual tables that exist in every database and show more than its rows."""

SLOW_FUNCTIONS = _names(
    "glob instr like ltrim randomblob replace rtrim trim offsets matchinfo snippet highlight"
)
"""Functions whose one call may take the product of its arguments' lengths, or ms a megabyte."""
UNSTOPPABLE_FUNCTIONS = _names("median percentile percentile_cont percentile_disc unhex")
"""Functions of which one call may last for seconds within any useful limit on values."""


_PLAIN, _SLOW, _UNSTOPPABLE = range(3)
_READ, _FUNCTION = apsw.SQLITE_READ, apsw.SQLITE_FUNCTION
_FTS5_ASKS = (apsw.SQLITE_PRAGMA, "data_version")
_ALLOW, _DENY = apsw.SQLITE_OK, apsw.SQLITE_DENY


def _kind(name: str) -> int:
    if name in UNSTOPPABLE_FUNCTIONS:
        return _UNSTOPPABLE
    return _SLOW if name in SLOW_FUNCTIONS or name.startswith("json") else _PLAIN


_KINDS: dict[str | None, int] = {name: _kind(name) for name in FUNCTIONS}


class Authorizer:
    """SQLite's authorizer for one session's statements; remembers what the last one asked for."""

    def __init__(self) -> None:
        self.own_tables: frozenset[str] = frozenset()
        """Folded names of the database's own tables, once they are known: one may be called as a
        built-in table is."""
        self.harmless: set[str | None] = set()
        """Tables seen before, so that each is looked at once."""
        self.reset()

    def reset(self) -> None:
        """Forgets the last statement."""
        self.slow_calls = 0
        """Calls of slow functions in the text, views included."""
        self.unstoppable = False
        self.denied = False
        self.running = False
        """Prepared and let go: what is asked from here on, a virtual table asks for itself."""

    def check(
        self, action: int, first: str | None, second: str | None, database: str | None, view: object
    ) -> int:
        """SQLite's callback, once for each thing a statement would do."""
        if action == _READ:
            if first in self.harmless or self._is_table(first):
                return _ALLOW
        elif action == _FUNCTION:
            kind = _KINDS.get(second)
            if kind == _PLAIN:
                return _ALLOW
            if kind is None and second:  # a default or a stored expression keeps its spelling
                kind = _KINDS.get(fold_name(second))
            if kind is not None:
                self.slow_calls += kind == _SLOW
                self.unstoppable |= kind == _UNSTOPPABLE
                return _ALLOW
        elif action in ACTIONS or (self.running and (action, first) == _FTS5_ASKS):
            return _ALLOW
        self.denied = True
        return _DENY

    def _is_table(self, name: str | None) -> bool:
        table = fold_name(name or "")
        if table in BUILT_IN_TABLES or table.startswith("pragma_"):
            return table in self.own_tables
        self.harmless.add(name)
        return True
