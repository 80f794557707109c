"""Which of SQLite's complaints are about the text itself, and which about what it names.

The reward distinguishes SQL that parses from text that does not. SQLite gives both the same result
code, but reads a statement to its end before it looks up a name: so a complaint of its parser
means that the text is no statement, and every other one (`no such column`, `misuse of aggregate`,
a failure while running) that it is.
"""

import re

_SYNTAX = re.compile(
    r"""near\ ".*":\ syntax\ error
    | incomplete\ input
    | unrecognized\ token:
    | parser\ stack\ overflow | Recursion\ limit
    | (?:ORDER\ BY|LIMIT)\ clause\ should\ come\ (?:before|after)
    | a\ JOIN\ clause\ is\ required\ before
    | unknown\ (?:or\ unsupported\ )?join\ type
    | unsupported\ use\ of\ NULLS
    """,
    re.VERBOSE | re.DOTALL,
)


def is_syntax_error(message: str) -> bool:
    """True where SQLite's message says that the text itself is not SQL."""
    return _SYNTAX.match(message) is not None
