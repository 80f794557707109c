"""Questions about a synthetic database, whose gold results mean something.

Each walks along foreign keys and compares with a value that a row really holds, so that the result
is seldom empty; short, medium and long queries take turns.
"""

import random
from itertools import cycle
from typing import NamedTuple

from envbuild.corpora.synthetic.columns import SampleTable
from envbuild.corpora.synthetic.sample import SampleDatabase, SampleQuestion

_NUMBERS = ("real:", "int:")
_GROUPS = ("pick:", "flag")
_TRIES = 20


class _Link(NamedTuple):
    """A child table, the parent it points at, and columns worth asking about."""

    child: SampleTable
    parent: SampleTable
    number: str
    """A numeric column of the child."""
    child_group: str
    """A column of few values of the child."""
    parent_group: str


class _Asked(NamedTuple):
    text: str
    sql: str
    difficulty: str
    evidence: str = ""


def make_questions(
    database: SampleDatabase, count: int, generator: random.Random
) -> list[SampleQuestion]:
    """`count` different questions, or as many as the database has keys to ask along."""
    links = _links(database)
    questions: dict[str, SampleQuestion] = {}
    ask = cycle((_count_children, _sum_by_parent_group, _above_average, _top_parents))
    for _ in range(count * _TRIES if links else 0):
        if len(questions) == count:
            break
        link = generator.choice(links)
        asked = next(ask)(link, database, generator)
        questions.setdefault(
            asked.sql,
            SampleQuestion(
                db_id=database.db_id,
                text=asked.text,
                sql=asked.sql,
                difficulty=asked.difficulty,
                style="Formal",
                evidence=asked.evidence,
            ),
        )
    return list(questions.values())


def _links(database: SampleDatabase) -> list[_Link]:
    tables = {table.name: table for table in database.tables}
    found = []
    for child in database.tables:
        number = _column(child, _NUMBERS)
        child_group = _column(child, _GROUPS)
        for column in child.columns:
            parent = tables.get(column.parent)
            parent_group = _column(parent, _GROUPS) if parent else ""
            if parent and number and child_group and parent_group and child.rows and parent.rows:
                found.append(_Link(child, parent, number, child_group, parent_group))
    return found


def _column(table: SampleTable, rules: tuple[str, ...]) -> str:
    return next((c.name for c in table.columns if c.rule.startswith(rules)), "")


def _value(
    database: SampleDatabase, table: SampleTable, column: str, generator: random.Random
) -> str:
    """A value of the column as a SQL literal, from a row that exists."""
    values = [row[column] for row in database.rows[table.name] if row[column] is not None]
    value = generator.choice(values) if values else 0
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _count_children(link: _Link, database: SampleDatabase, generator: random.Random) -> _Asked:
    child, group = link.child.name, link.child_group
    value = _value(database, link.child, group, generator)
    least = _value(database, link.child, link.number, generator)
    return _Asked(
        f"How many {child} entries have {group} {value} and at least {least} {link.number}?",
        f"SELECT COUNT(*) FROM {child} WHERE {group} = {value} AND {link.number} >= {least}",
        "simple",
    )


def _sum_by_parent_group(link: _Link, database: SampleDatabase, generator: random.Random) -> _Asked:
    child, parent, key = link.child.name, link.parent.name, link.parent.key
    value = _value(database, link.child, link.child_group, generator)
    return _Asked(
        f"For each {link.parent_group} of the {parent}s, what is the total {link.number} of their "
        f"{child} entries with {link.child_group} {value}?",
        f"SELECT p.{link.parent_group}, SUM(c.{link.number}) AS total FROM {child} AS c "
        f"JOIN {parent} AS p ON c.{key} = p.{key} WHERE c.{link.child_group} = {value} "
        f"GROUP BY p.{link.parent_group} ORDER BY total DESC, p.{link.parent_group}",
        "moderate",
    )


def _above_average(link: _Link, database: SampleDatabase, generator: random.Random) -> _Asked:
    child, parent, key = link.child.name, link.parent.name, link.parent.key
    value = _value(database, link.parent, link.parent_group, generator)
    return _Asked(
        f"Which {parent}s with {link.parent_group} {value} have a mean {link.number} over their "
        f"{child} entries above the mean over all {child} entries? Give their id, the number of "
        "entries and by how much they are above, the highest first.",
        f"WITH overall AS (SELECT AVG({link.number}) AS mean FROM {child}), "
        f"per_{parent} AS (SELECT c.{key}, COUNT(*) AS entries, AVG(c.{link.number}) AS mean "
        f"FROM {child} AS c WHERE c.{key} IS NOT NULL GROUP BY c.{key}) "
        f"SELECT p.{key}, x.entries, x.mean - o.mean AS above FROM per_{parent} AS x "
        f"JOIN {parent} AS p ON p.{key} = x.{key} CROSS JOIN overall AS o "
        f"WHERE p.{link.parent_group} = {value} AND x.mean > o.mean "
        f"ORDER BY above DESC, p.{key}",
        "hard",
        f"mean is the average of {link.number}",
    )


def _top_parents(link: _Link, database: SampleDatabase, generator: random.Random) -> _Asked:
    child, parent, key = link.child.name, link.parent.name, link.parent.key
    value = _value(database, link.child, link.child_group, generator)
    top = generator.randint(2, 5)
    return _Asked(
        f"Within each {link.parent_group} of the {parent}s, name the {top} {parent}s with the most "
        f"{child} entries whose {link.child_group} is {value}, with that number and their rank.",
        f"WITH counted AS (SELECT p.{key}, p.{link.parent_group}, COUNT(c.{link.child.key}) AS "
        f"entries FROM {parent} AS p JOIN {child} AS c ON c.{key} = p.{key} "
        f"WHERE c.{link.child_group} = {value} GROUP BY p.{key}, p.{link.parent_group}), "
        f"ranked AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY {link.parent_group} "
        f"ORDER BY entries DESC, {key}) AS place FROM counted) "
        f"SELECT {link.parent_group}, {key}, entries, place FROM ranked WHERE place <= {top} "
        f"ORDER BY {link.parent_group}, place",
        "hard",
    )
