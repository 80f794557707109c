"""Self-contained HTML pages from Jinja2 templates: no network, no other file."""

from functools import cache

import jinja2
import msgspec
from markupsafe import Markup

from envbuild.records.corpus import interval, percent

SERIES = 6
"""Colours for corpora or runs; a seventh shares the last."""


def render_page(template: str, **values: object) -> str:
    """The template of this name with these values, escaped; a name it lacks is our bug."""
    return _templates().get_template(template).render(**values)


def embed_json(document: object) -> Markup:
    """JSON that can stand inside a script element whatever its strings hold."""
    text = msgspec.json.encode(document).decode().replace("<", "\\u003c")
    return Markup(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def show_number(value: float) -> str:
    """Whole numbers and large ones without decimals, others with one."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.1f}"


@cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("envbuild.io"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["number"] = show_number
    found.filters["percent"] = percent
    found.globals["interval"] = interval
    found.filters["series"] = lambda position: f"var(--series-{min(position, SERIES - 1)})"
    return found
