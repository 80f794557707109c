"""Reading text that is not UTF-8: SQLite hands it out as a blob, and it is decoded here.

Python refuses such text, so a query that meets some is run again inside one that asks for every
text cell as a blob, beside a flag that says it was text.
"""

import msgspec

from envbuild.records.execution import QueryResult, Row, Rows, UndecodableText
from envbuild.sql.text.tokens import Kind, iter_code


def text_as_blobs(sql: str, columns: int) -> str:
    """`sql`, its `columns` result columns each followed by its text flag, text as blobs.

    MATERIALIZED keeps an ORDER BY inside in force. SQLite takes up to 2,000 columns, so `sql` may
    have 1,000 of them.
    """
    tokens = [
        t for t in iter_code(sql) if t.kind is not Kind.OPERATOR or sql[t.start : t.end] != ";"
    ]
    statement = sql[tokens[0].start : tokens[-1].end]
    names = ", ".join(f"c{n}" for n in range(columns))
    cells = ", ".join(
        f"CASE typeof(c{n}) WHEN 'text' THEN CAST(c{n} AS BLOB) ELSE c{n} END, "
        f"typeof(c{n}) = 'text'"
        for n in range(columns)
    )
    return f"WITH lossy({names}) AS MATERIALIZED (\n{statement}\n) SELECT {cells} FROM lossy"


def lossy_rows(wrapped: QueryResult, columns: tuple[str, ...], *, encoding: str) -> QueryResult:
    """The wrapped query's result as the query's own, undecodable text as UndecodableText."""
    rows: Rows = tuple(_decoded(row, encoding) for row in wrapped.rows)
    return msgspec.structs.replace(
        wrapped, rows=rows, lossy=True, columns=columns if wrapped.columns else ()
    )


def _decoded(row: Row, encoding: str) -> Row:
    return tuple(
        _text(cell, encoding) if was_text and isinstance(cell, bytes) else cell
        for cell, was_text in zip(row[::2], row[1::2], strict=True)
    )


def _text(cell: bytes, encoding: str) -> str:
    try:
        return cell.decode(encoding)
    except UnicodeDecodeError:
        return UndecodableText(cell, encoding)
