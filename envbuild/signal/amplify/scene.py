"""What a gold looks for, bound to the tables of one database: which columns must be equal."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from envbuild.records.demand import Frame, Site
from envbuild.records.execution import Value
from envbuild.signal.amplify.tables import TableRows, Workspace

Values = dict[Site, Value]
"""Class of equal columns (named by its first) to value."""


@dataclass(slots=True)
class Scene:
    """A frame bound to the tables of one database."""

    frame: Frame
    tables: list[TableRows]
    order: list[int]
    """Occurrences, parents first."""
    root: dict[Site, Site] = field(default_factory=dict)
    """Site to its class."""
    numeric: dict[Site, tuple[TableRows, int]] = field(default_factory=dict)
    """Classes that join text to numbers: the column of numbers their values come from."""
    members: list[list[tuple[int, Site]]] = field(default_factory=list)
    """For each occurrence: (column position, class) of every column that matters."""

    def class_of(self, site: Site) -> Site:
        """The class a site belongs to."""
        return self.root.get(site, site)


def open_scene(frame: Frame, workspace: Workspace, rank: dict[str, int]) -> Scene | None:
    """The frame with its tables; None where it reads what cannot be filled (views)."""
    tables = [workspace.tables.get(name.lower()) for name in frame.sources]
    found = [table for table in tables if table is not None]
    if len(found) < len(tables) or not found:
        return None
    order = sorted(range(len(found)), key=lambda i: (rank[found[i].table.name.lower()], i))
    scene = Scene(frame=frame, tables=found, order=order, members=[[] for _ in found])
    sites = dict.fromkeys(_sites(frame))
    parent = {site: site for site in sites}

    def root(site: Site) -> Site:
        while parent[site] != site:
            site = parent[site]
        return site

    for left, right in frame.same:
        parent[root(right)] = root(left)
    for site in sites:
        position = found[site[0]].at.get(site[1].lower())
        scene.root[site] = root(site)
        if position is not None:
            scene.members[site[0]].append((position, scene.root[site]))
    _note_mixed(scene)
    return scene


def _note_mixed(scene: Scene) -> None:
    kinds: dict[Site, set[str]] = {}
    for table, members in zip(scene.tables, scene.members, strict=True):
        for position, root in members:
            affinity = table.plans[position].affinity
            kinds.setdefault(root, set()).add(affinity)
            if affinity == "integer":
                scene.numeric[root] = (table, position)
    first: dict[Site, str] = {}
    for occurrence in scene.order:
        for position, root in scene.members[occurrence]:
            first.setdefault(root, scene.tables[occurrence].plans[position].affinity)
    # where the number's own row is made first, its value is what the text follows
    scene.numeric = {
        root: place
        for root, place in scene.numeric.items()
        if len(kinds[root]) > 1 and first[root] != "integer"
    }


def _sites(frame: Frame) -> Iterator[Site]:
    for pair in frame.same:
        yield from pair
    for clause in frame.clauses:
        for alternative in clause:
            for condition in alternative:
                yield condition.site
                if condition.other:
                    yield condition.other
    for condition in frame.soft:
        yield condition.site
    yield from frame.group
    yield from frame.distinct
    yield from frame.shown
    for site, _ in (*frame.ordered, *frame.extremes):
        yield site
