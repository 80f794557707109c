"""The grammar of a plainly written query: a sign for each token, and expressions over the signs.

Brackets are taken innermost first and replaced by signs of the same length, so the expressions need
no recursion and a sign's place stays its token's. The grammar knows only what SQLite and sqlglot
read alike: words that either reads in a way of its own are unknown here, and functions are known
with the numbers of arguments that sqlglot takes.
"""

import re

from envbuild.sql.text.tokens import COMMENT, STRING

_UMLAUTS = "À-ÖØ-Þà-öø-ÿ"
"""Letters that no upper case turns into ASCII's."""
TOKEN = re.compile(
    rf"[ \t\n\r]*+([a-z_{_UMLAUTS}][a-z0-9_{_UMLAUTS}]*+|[(),.;*]"
    rf"|[0-9]+(?:\.[0-9]+)?+(?![a-z_.{_UMLAUTS}])|(?=[0-9])|{STRING}|{COMMENT}"
    r"""|"[^"]*+"(?!")|`[^`]*+`(?!`)|\[[^\[\]]*+\](?!\])|[<>!=]=|<>|\|\||[^ \t\n\r])"""
)
"""Tokens of a folded text. What is no whole token of SQLite's falls to signs that fit nowhere."""
_SIGNS = {
    "S": "select",
    "D": "distinct",
    "F": "from",
    "W": "where",
    "G": "group",
    "B": "by",
    "H": "having",
    "O": "order",
    "L": "limit",
    "T": "offset",
    "d": "asc desc",
    "J": "join",
    "I": "inner",
    "l": "left right full",
    "u": "outer",
    "x": "cross",
    "N": "natural",
    "A": "as",
    "o": "on",
    "U": "using",
    "&": "and",
    "|": "or",
    "!": "not",
    "i": "is",
    "m": "in",
    "b": "between",
    "k": "like",
    "e": "exists",
    "0": "null",
    "K": "case",
    "z": "end",
    "w": "when",
    "t": "then",
    "y": "else",
    "C": "cast",
    "V": "over",
    "P": "partition",
    "R": "with",
    "X": "union except intersect",
    "Z": "all",
    "=": "= ==",
    "<": "< > <= >= <> !=",
    "+": "+ / % ||",
    "-": "-",
    "*": "*",
    "(": "(",
    ")": ")",
    ",": ",",
    ";": ";",
    ".": ".",
}
"""Each sign's tokens. Besides: n a name, f a function's, 0 a number, s a string, ? what is odd; and
of brackets, each with `_` behind, g an expression, h a call, q a query, v a list, r names; a blank
is a bracket that may be left out."""
ODD_WORDS = frozenset(
    """alter anti any asof asymmetric collate connect_by_root create cube current_date current_time
    current_timestamp current_user describe drop false fetch for glob grant if ilike insert interval
    into isnull json lateral lock match notnull overlaps partitioned_by precision qualify recursive
    regexp returning revoke rlike rollback rollup security semi sets straight_join symmetric
    tablesample true uncache values varying window xor""".split()  # noqa: SIM905  # a list of 50 lines
)
"""Words that sqlglot, or SQLite, does not read as any other name in every place."""
AGGREGATES = frozenset(("count", "sum", "avg", "min", "max", "total", "group_concat"))
_ARGUMENTS = {
    (0, 0): "rank dense_rank row_number",
    (1, 1): "count total abs avg sum lower upper length sqrt sign typeof hex year",
    (1, 2): "round trim ltrim rtrim group_concat",
    (1, 9): "min max strftime",
    (2, 2): "nullif ifnull instr",
    (2, 3): "substr",
    (2, 9): "coalesce",
    (3, 3): "iif replace",
    (0, 9): "date time datetime julianday",
}
FUNCTIONS = {name: counts for counts, names in _ARGUMENTS.items() for name in names.split()}
"""Functions with the least and most arguments that are sure to be read."""
TYPES = frozenset(("real", "integer", "int", "float", "text", "numeric", "double", "decimal"))
"""Types that CAST is sure to read, without arguments."""
KNOWN = (
    {token: sign for sign, listed in _SIGNS.items() for token in listed.split()}
    | dict.fromkeys(FUNCTIONS, "f")
    | dict.fromkeys(ODD_WORDS, "?")
    | {"": "?"}  # a number with letters behind it
)
"""The signs of tokens that are known as they are."""
OTHERS = (
    dict.fromkeys("abcdefghijklmnopqrstuvwxyz_", "n")
    | {chr(code): "n" for code in range(0xC0, 0x100) if chr(code) not in "×÷ß"}
    | dict.fromkeys("0123456789", "0")
    | {"'": "s", '"': "n", "`": "n", "[": "n"}
)
"""The signs of other tokens, by their first character."""

_N = "[nf]"
COLUMN = rf"{_N}(?:\.{_N})?+"
_TERM = rf"-?+(?:[0s]|h_*+(?:Vg_*+)?+|[gq]_*+|{COLUMN})"
_SUM = rf"{_TERM}(?:[-+*]{_TERM})*+"
_TEST = rf"[=<]{_SUM}|i!?+{_SUM}|!?+(?:k{_SUM}|b{_SUM}&{_SUM}|m[gqv]_*+)"
_PREDICATE = rf" *+!?+(?:eq_*+|{_SUM}(?:{_TEST})?+) *+"
CONDITION = rf"{_PREDICATE}(?:[&|]{_PREDICATE})*+"
_LIST = rf"{CONDITION}(?:,{CONDITION})*+"
_RESULT = rf"(?:\*|{_N}\.\*|{CONDITION}(?:A[nfs])?+)"
_TABLE = rf"(?:{_N}|q_*+)(?:A?+{_N})?+"
_JOIN = rf"N?+(?:lu?+|I|x)?+J{_TABLE}(?:o{CONDITION}|Ur_*+)?+"
_FROM = rf"{_TABLE}(?:,{_TABLE}|{_JOIN})*+"
_SELECT = (
    rf"SD?+{_RESULT}(?:,{_RESULT})*+(?:F{_FROM})?+(?:W{CONDITION})?+"
    rf"(?:GB{_LIST})?+(?:H{CONDITION})?+"
)
_ORDER = rf"(?:OB{CONDITION}d?+(?:,{CONDITION}d?+)*+)?+"
_WITH = rf"(?:R{_N}Aq_*+(?:,{_N}Aq_*+)*+)?+"

CONDITIONS = re.compile(CONDITION)
QUERY = re.compile(rf"{_WITH}{_SELECT}(?:XZ?+{_SELECT})*+{_ORDER}(?:L0(?:[T,]0)?+)?+")
STATEMENT = re.compile(rf"{QUERY.pattern};*+")
ARGUMENTS = re.compile(rf"(?:{_SUM}(?:,{_SUM})*+)?+")
AGGREGATED = re.compile(rf"\*|D?+{_LIST}")
CAST = re.compile(rf"{_SUM}An")
WINDOW = re.compile(rf"(?:PB{_LIST})?+{_ORDER}")
NAMES = re.compile(rf"{_N}(?:,{_N})*+")
LIST = re.compile(_LIST)
CASE = re.compile(rf"K(?:{CONDITION})?+(?:w{CONDITION}t{CONDITION})++(?:y{CONDITION})?+z")
INNERMOST = re.compile(r"[fCUV]?\([^()K]*\)|K[^()Kz]*z")
"""A bracket or a CASE that holds no other, with the function that it calls."""
CTE = re.compile(rf"{_N}A(q_*+)")
RESULT = re.compile(rf"(\*)|({_N})\.\*|(?:({COLUMN})(?=[,AFWGHXOL]|\Z)|{CONDITION})(?:A([nfs]))?+")
"""`*`, the table of `t.*`, a lone column, and the name of one result."""
JOINED = re.compile(rf"F(?:{_N}|q_*+)(?:A?+{_N})?+[,JNluIx]")
"""A FROM clause with more than one source."""
SOURCE = re.compile(rf"(N?)[luIx]*+[F,J]({_N}|q_*+)(?:A?+({_N}))?+(?:o({CONDITION})|U(r_*+))?+")
"""NATURAL, table, alias, ON's condition and USING's names of one source."""
EQUALITY = re.compile(rf"(?<=[oW& ])({COLUMN})[=i]({COLUMN})(?=[& ]|\Z)")
"""Two columns that a condition without OR sets equal."""
