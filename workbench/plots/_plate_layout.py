"""Where the sites of a plate diagram stand: in rows, each below what it depends on; frames hold what is theirs alone.

Lengths are in points, of which an inch has 72. Rows are counted from below.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.path import Path
from scipy.optimize import linprog

__all__ = ["LABEL_HEIGHT", "PAD", "Box", "Frame", "Layout", "Site", "best_layout"]

Box = tuple[float, float, float, float]  # left, bottom, right, top

PAD, LABEL_HEIGHT = 7.0, 10.0  # between a frame and what is inside; of the line for its label, below that
_GAP, _ROW_GAP, _BEND = 11.0, 22.0, 2.0
_STEEP, _CORNER = 0.65, 0.7  # arrows meet an outline no further from its lowest or highest point, clear of neighbours
_MANY_SIBLINGS = 9


@dataclass
class Site:
    """A node of the diagram, or a bend of a long arrow, which has no note.

    ``kind`` says how it is drawn, ``note`` what stands below its name, ``path`` which frames it is in, from outside in.
    """

    kind: str
    note: str = ""
    width: float = _BEND
    height: float = 0.0
    path: tuple[str, ...] = ()
    row: int = 0
    is_box: bool = False


@dataclass
class Frame:
    """A plate: what is written at it, the width of that, the names of the sites inside, its lowest and highest row."""

    label: str
    inside: frozenset[str]
    label_width: float = 0.0
    rows: tuple[int, int] = (0, 0)


@dataclass
class Layout:
    """Centres of sites and bends, middles and heights of rows, boxes of frames, and for each arrow what it connects."""

    chains: list[list[str]]
    width: float = 0.0
    height: float = 0.0
    across: dict[str, float] = field(default_factory=dict)
    up: dict[int, float] = field(default_factory=dict)
    row_heights: dict[int, float] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)

    def arrow(self, sites: Mapping[str, Site], chain: list[str]) -> Path:
        """From the lower edge of the first through the bends, upright in their rows, to the upper edge of the last."""
        first, last = chain[0], chain[-1]
        points = []
        row = sites[first].row
        for name in chain[1:-1]:
            row -= 1
            half = self.row_heights[row] / 2
            points += [(self.across[name], self.up[row] + half), (self.across[name], self.up[row] - half)]
        ends = [(self.across[name], self.up[sites[name].row]) for name in (first, last)]
        start = _edge(sites[first], ends[0], (points or [ends[1]])[0])
        end = _edge(sites[last], ends[1], (points or [ends[0]])[-1])
        if not points:
            return Path([start, end])
        way = [start, *points, end]
        vertices, codes = [start], [int(Path.MOVETO)]
        for number, (here, there) in enumerate(itertools.pairwise(way)):
            middle = (here[1] + there[1]) / 2
            leave = here[0] if number else (2 * here[0] + there[0]) / 3
            arrive = there[0] if number < len(way) - 2 else (here[0] + 2 * there[0]) / 3
            vertices += [(leave, middle), (arrive, middle), there]
            codes += [int(Path.CURVE4)] * 3
        return Path(vertices, codes)


def _edge(site: Site, centre: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Where an arrow between ``centre`` and ``other`` meets the outline of ``site``."""
    across, up = other[0] - centre[0], other[1] - centre[1]
    half, tall = site.width / 2, site.height / 2
    if site.is_box:
        share, depth = float(np.clip(across / half, -_CORNER, _CORNER)), 1.0
    else:
        share = float(np.clip(across / half / np.hypot(across / half, up / tall), -_STEEP, _STEEP))
        depth = (1 - share**2) ** 0.5
    return centre[0] + share * half, centre[1] + float(np.sign(up)) * tall * depth


def best_layout(sites: dict[str, Site], arrows: list[tuple[str, str]], frames: dict[str, Frame], room: float) -> Layout:
    """The first layout not wider than ``room``, of rows that hold less and less; the narrowest if none is.

    :param sites: by name, each after what it depends on; widths, heights and paths are set. Their rows are set here.
    :param arrows: (from, to). :param frames: outer ones first; labels are measured. Their rows are set here.
    """
    found = []
    for share in (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.0):
        found.append(_layout(sites, arrows, frames, share * room, room))
        if found[-1].width <= room + 0.1:
            return found[-1]
    return min(found, key=lambda layout: layout.width)


def _layout(
    sites: dict[str, Site], arrows: list[tuple[str, str]], frames: dict[str, Frame], row_room: float, room: float
) -> Layout:
    _set_rows(sites, arrows, row_room)
    for frame in frames.values():
        rows = [sites[site].row for site in frame.inside]
        frame.rows = (min(rows), max(rows))
    everything, chains = _with_bends(sites, arrows, frames)
    layout = Layout(chains)
    _set_across(layout, everything, frames, _order(everything, chains, frames), room)
    _set_up(layout, sites, frames)
    return layout


# ---- rows and order -----------------------------------------------------------------------------------------------------


def _set_rows(sites: dict[str, Site], arrows: list[tuple[str, str]], room: float) -> None:
    """Each site in the lowest row above all that depends on it where there is room left."""
    taken: dict[int, float] = {}
    for name, site in reversed(sites.items()):
        below = [sites[after].row for before, after in arrows if before == name]
        width = site.width + _GAP + 2 * PAD * len(site.path)
        row = max(below, default=-1) + 1
        while row in taken and taken[row] + width > room:
            row += 1
        site.row = row
        taken[row] = taken.get(row, 0.0) + width


def _with_bends(
    sites: dict[str, Site], arrows: list[tuple[str, str]], frames: dict[str, Frame]
) -> tuple[dict[str, Site], list[list[str]]]:
    """The sites with a bend in each row that an arrow passes, and for each arrow what it connects from above to below.

    Arrows that lead to the same site share their bends.
    """
    everything, chains = dict(sites), []
    for before, after in arrows:
        chain = [before]
        for row in range(sites[before].row - 1, sites[after].row, -1):

            def spanned(path: tuple[str, ...], row: int = row) -> tuple[str, ...]:
                return tuple(itertools.takewhile(lambda frame: frames[frame].rows[0] <= row <= frames[frame].rows[1], path))

            # an arrow into a plate goes on inside it, and one out of a plate leaves it at its lower end
            path = max(spanned(sites[after].path), spanned(sites[before].path), key=len)
            name = "\0".join(("bend", str(row), *path, after))  # no site has such a name
            everything[name] = Site("bend", "", path=path, row=row)
            chain.append(name)
        chains.append([*chain, after])
    return everything, chains


def _order(everything: dict[str, Site], chains: list[list[str]], frames: dict[str, Frame]) -> dict[str, int]:
    """Places from left to right of sites, bends and frames, with few crossings; what is in a frame stays together."""
    children: dict[str, list[str]] = {"": [], **{name: [] for name in frames}}
    for name, site in everything.items():
        way = ("", *site.path)
        for outer, inner in itertools.pairwise((*way, name)):
            if inner not in children[outer]:
                children[outer].append(inner)
    segments = [pair for chain in chains for pair in itertools.pairwise(chain)]

    def places() -> dict[str, int]:
        found: dict[str, int] = {}

        def visit(name: str) -> None:
            found[name] = len(found)
            for child in children.get(name, ()):
                visit(child)

        visit("")
        return found

    def cost() -> tuple[int, float]:
        place = places()
        across = _packed(everything, place)
        ends = [(everything[above].row, place[above], place[below]) for above, below in segments]
        crossings = sum(
            one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
            for one, other in itertools.combinations(ends, 2)
        )
        return crossings, round(sum(abs(across[above] - across[below]) for above, below in segments), 3)

    best, improved = cost(), True
    while improved:
        improved = False
        for siblings in children.values():
            few = len(siblings) <= _MANY_SIBLINGS
            numbers = range(len(siblings))
            for one, other in itertools.combinations(numbers, 2) if few else itertools.pairwise(numbers):
                siblings[one], siblings[other] = siblings[other], siblings[one]
                if (now := cost()) < best:
                    best, improved = now, True
                else:
                    siblings[one], siblings[other] = siblings[other], siblings[one]
    return places()


def _packed(everything: dict[str, Site], place: dict[str, int]) -> dict[str, float]:
    """Where sites would stand if every row were pushed together around its middle."""
    rows: dict[int, list[str]] = {}
    for name in sorted(everything, key=lambda name: place[name]):
        rows.setdefault(everything[name].row, []).append(name)
    across: dict[str, float] = {}
    for names in rows.values():
        ends = np.cumsum([everything[name].width + _GAP for name in names])
        across |= {name: end - everything[name].width / 2 - ends[-1] / 2 for name, end in zip(names, ends, strict=True)}
    return across


# ---- from left to right -------------------------------------------------------------------------------------------------


class _Programme:
    """A linear programme over variables >= 0 with any names: costs, limits, and distances to keep small."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}
        self._costs: dict[int, float] = {}
        self._rows: list[dict[int, float]] = []
        self._limits: list[float] = []

    def _place(self, variable: Any) -> int:
        return self._places.setdefault(variable, len(self._places))

    def cost(self, variable: Any, weight: float) -> None:
        """Add ``weight`` for each unit of ``variable``."""
        place = self._place(variable)
        self._costs[place] = self._costs.get(place, 0.0) + weight

    def at_most(self, terms: Mapping[Any, float], limit: float) -> None:
        """The sum of the variables times their factors is at most ``limit``."""
        self._rows.append({self._place(variable): factor for variable, factor in terms.items()})
        self._limits.append(limit)

    def apart(self, left: Any, right: Any, distance: float) -> None:
        """left + distance <= right."""
        self.at_most({left: 1.0, right: -1.0}, -distance)

    def near(self, terms: Mapping[Any, float], weight: float) -> None:
        """Keep the absolute value of the sum small."""
        distance = ("distance", len(self._limits))
        self.cost(distance, weight)
        self.at_most({**terms, distance: -1.0}, 0.0)
        self.at_most({**{variable: -factor for variable, factor in terms.items()}, distance: -1.0}, 0.0)

    def solve(self) -> dict[Any, float]:
        """The values of all variables."""
        matrix = np.zeros((len(self._rows), len(self._places)))
        for number, terms in enumerate(self._rows):
            matrix[number, list(terms)] = list(terms.values())
        costs = np.zeros(len(self._places))
        costs[list(self._costs)] = list(self._costs.values())
        found = linprog(costs, A_ub=matrix, b_ub=self._limits, bounds=(0, None), method="highs").x
        return {variable: float(found[place]) for variable, place in self._places.items()}


def _set_across(
    layout: Layout, everything: dict[str, Site], frames: dict[str, Frame], order: dict[str, int], room: float
) -> None:
    """Each site as near as can be to the middle of what it depends on, and of what depends on it."""
    programme = _Programme()
    programme.cost("width", 0.05)
    programme.cost("excess", 1000.0)
    programme.at_most({"width": 1.0, "excess": -1.0}, room)
    for name, site in everything.items():
        half = site.width / 2
        programme.at_most({("at", name): -1.0}, -half)
        programme.apart(("at", name), "width", half)
        if site.path:
            programme.apart(("left", site.path[-1]), ("at", name), half + PAD)
            programme.apart(("at", name), ("right", site.path[-1]), half + PAD)
    outer = {inner: outside for site in everything.values() for outside, inner in itertools.pairwise(site.path)}
    for name, frame in frames.items():
        # the label of a frame that arrows leave stands beside them
        left_by = any((chain[0] in frame.inside) > (chain[-1] in frame.inside) for chain in layout.chains)
        programme.apart(("left", name), ("right", name), (1 + left_by) * frame.label_width + 2 * PAD)
        programme.apart(("right", name), "width", 0.0)
        programme.cost(("right", name), 0.1)
        programme.cost(("left", name), -0.1)
        if name in outer:
            programme.apart(("left", outer[name]), ("left", name), PAD)
            programme.apart(("right", name), ("right", outer[name]), PAD)
    for left, right in _neighbours(everything, frames, order):
        bends = sum(everything[name].kind == "bend" for name in (left, right) if name in everything)
        halves = sum(everything[name].width / 2 for name in (left, right) if name in everything)
        programme.apart(
            ("at" if left in everything else "right", left),
            ("at" if right in everything else "left", right),
            halves + _GAP / (1 + bends),
        )
    above: dict[str, dict[str, None]] = {}
    below: dict[str, dict[str, None]] = {}
    for upper, lower in {pair: None for chain in layout.chains for pair in itertools.pairwise(chain)}:
        above.setdefault(lower, {})[upper] = None
        below.setdefault(upper, {})[lower] = None
        programme.near({("at", upper): 1.0, ("at", lower): -1.0}, 0.3)
    for others in (above, below):
        for name, several in others.items():
            programme.near({("at", name): -1.0, **{("at", other): 1 / len(several) for other in several}}, 1.0)
    found = programme.solve()
    layout.width = found["width"]
    layout.across = {name: found["at", name] for name in everything}
    layout.boxes = {name: (found["left", name], 0.0, found["right", name], 0.0) for name in frames}


def _neighbours(everything: dict[str, Site], frames: dict[str, Frame], order: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs (left, right) of sites, bends and frames in the same frame that share a row."""
    rows = {name: (site.row, site.row) for name, site in everything.items()}
    rows |= {name: frame.rows for name, frame in frames.items()}
    around = {
        inner: outer for name, site in everything.items() for outer, inner in itertools.pairwise(("", *site.path, name))
    }
    for one, other in itertools.combinations(sorted(around, key=lambda name: order[name]), 2):
        if around[one] == around[other] and rows[one][0] <= rows[other][1] and rows[other][0] <= rows[one][1]:
            yield one, other


# ---- from below to above ------------------------------------------------------------------------------------------------


def _set_up(layout: Layout, sites: dict[str, Site], frames: dict[str, Frame]) -> None:
    """Vertical places: rows above each other with room for the frames that begin or end between them."""
    count = max(site.row for site in sites.values()) + 1
    ends = {
        (row, side): max(
            sum(frames[frame].rows[side] == row for frame in site.path) for site in sites.values() if site.row == row
        )
        for row in range(count)
        for side in (0, 1)
    }
    height = 0.0
    for row in range(count):
        tall = max(site.height for site in sites.values() if site.row == row)
        height += ends[row, 0] * (PAD + LABEL_HEIGHT)
        layout.up[row], layout.row_heights[row] = height + tall / 2, tall
        height += tall + ends[row, 1] * PAD + _ROW_GAP
    layout.height = height - _ROW_GAP
    for name in reversed(frames):  # the inner ones first
        left, _, right, _ = layout.boxes[name]
        low, high = frames[name].rows
        inner = [layout.boxes[other] for other in frames if other != name and name in _outside(other, sites, frames)]
        bottom = min([layout.up[low] - layout.row_heights[low] / 2, *(box[1] for box in inner)])
        top = max([layout.up[high] + layout.row_heights[high] / 2, *(box[3] for box in inner)])
        layout.boxes[name] = (left, bottom - PAD - LABEL_HEIGHT, right, top + PAD)


def _outside(frame: str, sites: dict[str, Site], frames: dict[str, Frame]) -> tuple[str, ...]:
    """The frames around ``frame``."""
    path = sites[next(iter(frames[frame].inside))].path
    return path[: path.index(frame)]
