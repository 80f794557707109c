"""Questions about synthetic databases, whose gold results mean something.

Each walks along a foreign key and compares with a value that a row really holds, so that the result
is seldom empty; short, medium and long queries take turns.
"""

import random
from itertools import cycle
from typing import NamedTuple

import msgspec

from envbuild.corpora.synthetic.database import SampleDatabase, SampleTable

_TRIES = 20


class SampleQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a sample database, in no layout yet."""

    db_id: str
    text: str
    sql: str
    difficulty: str = ""
    style: str = ""
    evidence: str = ""
    placeholder: str = ""
    """A SQaLe phrasing that was never written: it reads `...`."""


class _Link(NamedTuple):
    """A child table, the parent it points at, and columns worth asking about."""

    child: SampleTable
    parent: SampleTable
    number: str
    """A numeric column of the child."""
    child_group: str
    """A column of few values of the child."""
    parent_group: str


class _Template(NamedTuple):
    text: str
    sql: str
    difficulty: str
    value_of: str
    """`child` or `parent`: whose column of few values `{value}` is from."""
    evidence: str = ""


_TEMPLATES = (
    _Template(
        "How many {child} entries have {child_group} {value} and at least {least} {number}?",
        "SELECT COUNT(*) FROM {child} WHERE {child_group} = {value} AND {number} >= {least}",
        "simple",
        "child",
    ),
    _Template(
        "For each {parent_group} of the {parent}s, what is the total {number} of their {child} "
        "entries with {child_group} {value}?",
        "SELECT p.{parent_group}, SUM(c.{number}) AS total FROM {child} AS c JOIN {parent} AS p "
        "ON c.{key} = p.{key} WHERE c.{child_group} = {value} GROUP BY p.{parent_group} "
        "ORDER BY total DESC, p.{parent_group}",
        "moderate",
        "child",
    ),
    _Template(
        "Which {parent}s with {parent_group} {value} have a mean {number} over their {child} "
        "entries above the mean over all {child} entries? Give their id, the number of entries "
        "and by how much they are above, the highest first.",
        "WITH overall AS (SELECT AVG({number}) AS mean FROM {child}), per_{parent} AS "
        "(SELECT c.{key}, COUNT(*) AS entries, AVG(c.{number}) AS mean FROM {child} AS c "
        "WHERE c.{key} IS NOT NULL GROUP BY c.{key}) SELECT p.{key}, x.entries, "
        "x.mean - o.mean AS above FROM per_{parent} AS x JOIN {parent} AS p ON p.{key} = x.{key} "
        "CROSS JOIN overall AS o WHERE p.{parent_group} = {value} AND x.mean > o.mean "
        "ORDER BY above DESC, p.{key}",
        "hard",
        "parent",
        "mean is the average of {number}",
    ),
    _Template(
        "Within each {parent_group} of the {parent}s, name the {top} {parent}s with the most "
        "{child} entries whose {child_group} is {value}, with that number and their rank.",
        "WITH counted AS (SELECT p.{key}, p.{parent_group}, COUNT(c.{child_key}) AS entries "
        "FROM {parent} AS p JOIN {child} AS c ON c.{key} = p.{key} WHERE c.{child_group} = {value} "
        "GROUP BY p.{key}, p.{parent_group}), ranked AS (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY {parent_group} ORDER BY entries DESC, {key}) AS place FROM counted) "
        "SELECT {parent_group}, {key}, entries, place FROM ranked WHERE place <= {top} "
        "ORDER BY {parent_group}, place",
        "hard",
        "child",
    ),
)


def make_questions(
    database: SampleDatabase, count: int, generator: random.Random
) -> list[SampleQuestion]:
    """`count` different questions, or as many as the database has keys to ask along."""
    links = _links(database)
    questions: dict[str, SampleQuestion] = {}
    templates = cycle(_TEMPLATES)
    for _ in range(count * _TRIES if links else 0):
        if len(questions) == count:
            break
        question = _fill(next(templates), generator.choice(links), database, generator)
        questions.setdefault(question.sql, question)
    return list(questions.values())


def _fill(
    template: _Template, link: _Link, database: SampleDatabase, generator: random.Random
) -> SampleQuestion:
    def drawn(table: SampleTable, column: str) -> str:
        """A value of the column as a SQL literal, from a row that exists."""
        values = [row[column] for row in database.rows[table.name] if row[column] is not None]
        value = generator.choice(values) if values else 0
        return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)

    blanks = {
        "child": link.child.name,
        "child_key": link.child.key,
        "parent": link.parent.name,
        "key": link.parent.key,
        "number": link.number,
        "child_group": link.child_group,
        "parent_group": link.parent_group,
    }
    if template.value_of == "child":
        blanks["value"] = drawn(link.child, link.child_group)
    else:
        blanks["value"] = drawn(link.parent, link.parent_group)
    if "{least}" in template.sql:
        blanks["least"] = drawn(link.child, link.number)
    if "{top}" in template.sql:
        blanks["top"] = str(generator.randint(2, 5))
    return SampleQuestion(
        db_id=database.db_id,
        text=template.text.format(**blanks),
        sql=template.sql.format(**blanks),
        difficulty=template.difficulty,
        style="Formal",
        evidence=template.evidence.format(**blanks),
    )


def _links(database: SampleDatabase) -> list[_Link]:
    tables = {table.name: table for table in database.tables}
    found = []
    for child in database.tables:
        number, group = _column(child, ("real:", "int:")), _column(child, ("pick:", "flag"))
        for column in child.columns:
            parent = tables.get(column.parent)
            parent_group = _column(parent, ("pick:", "flag")) if parent else ""
            if parent and number and group and parent_group and child.rows and parent.rows:
                found.append(_Link(child, parent, number, group, parent_group))
    return found


def _column(table: SampleTable, rules: tuple[str, ...]) -> str:
    return next((c.name for c in table.columns if c.rule.startswith(rules)), "")
