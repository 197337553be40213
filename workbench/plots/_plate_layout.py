"""A layered layout for plate diagrams: each site is in a row below the sites it depends on, and
frames do not overlap.

Lengths are in points (1/72 inch). Rows are counted from the bottom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from math import inf
from random import Random
from statistics import fmean

__all__ = ["BEND", "LABEL_HEIGHT", "PAD", "Box", "Frame", "Layout", "Site", "best_layout"]

Box = tuple[float, float, float, float]  # left, bottom, right, top

BEND = "bend"  # the kind of a bend
# space between a frame and its content, and for its label below the content
PAD, LABEL_HEIGHT = (7.0, 10.0)
_GAP, _BEND_GAP, _ROW_GAP = 11.0, 5.0, 22.0
_STARTS, _ROUNDS = 12, 20


@dataclass
class Site:
    """A node of the diagram, or a bend of a long arrow, which has no width.

    ``kind`` says how it is drawn. ``note`` is the text below its name, ``size`` is shown beside it.
    ``path`` lists the frames around it, the outermost first. ``slot`` is the width that is kept
    free for it. ``row_height`` is the height of the tallest site in its row.
    """

    kind: str
    note: str = ""
    size: str = ""
    width: float = 0.0
    height: float = 0.0
    slot: float = 0.0
    path: tuple[str, ...] = ()
    is_box: bool = False
    row: int = 0
    row_height: float = 0.0
    x: float = 0.0
    y: float = 0.0


@dataclass
class Frame:
    """A plate: its label, the names of the sites inside, the label's width, and its lowest and
    highest rows.
    """

    label: str
    inside: frozenset[str]
    label_width: float = 0.0
    rows: tuple[int, int] = (0, 0)


@dataclass
class Layout:
    """Sites and bends, the names along each arrow, and the boxes of frames.

    ``tree`` lists the sites and frames directly inside each frame; "" is the whole diagram.
    """

    sites: dict[str, Site]
    chains: list[list[str]] = field(default_factory=list)
    tree: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    boxes: dict[str, Box] = field(default_factory=dict)
    x0: float = 0.0
    width: float = 0.0
    height: float = 0.0


def best_layout(
    sites: Mapping[str, Site],
    arrows: list[tuple[str, str]],
    frames: Mapping[str, Frame],
    room: float,
) -> Layout:
    """The first layout that is at most ``room`` wide, trying shorter and shorter rows; else the
    narrowest one.

    :param sites: by name, each after the sites that it depends on.
    :param arrows: (from, to).
    :param frames: outer frames first.
    """
    layouts = []
    for fraction in (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.0):
        layout = _in_rows(sites, arrows, fraction * room)
        _set_up(layout.sites, frames)
        _set_across(layout, frames, room)
        layouts.append(layout)
        if layout.width <= room:
            break
    return min(layouts, key=lambda layout: layout.width)


def _in_rows(sites: Mapping[str, Site], arrows: list[tuple[str, str]], room: float) -> Layout:
    """Put each site in the lowest row with room above all that depends on it, and a bend in each
    row an arrow passes.
    """
    placed = {name: replace(site) for name, site in sites.items()}
    taken: dict[int, float] = defaultdict(float)
    for name, site in reversed(placed.items()):
        site.row = max(
            (placed[after].row + 1 for before, after in arrows if before == name), default=0
        )
        width = site.width + _GAP + 2 * PAD * len(site.path)
        while taken[site.row] and taken[site.row] + width > room:
            site.row += 1
        taken[site.row] += width
    layout = Layout(placed)
    for before, after in arrows:  # arrows to the same site share their bends
        path = tuple(frame for frame in sites[before].path if frame in sites[after].path)
        between = range(placed[before].row - 1, placed[after].row, -1)
        bends = {
            "\0".join((str(row), after, *path)): Site(BEND, path=path, row=row) for row in between
        }
        placed.update(bends)
        layout.chains.append([before, *bends, after])
    for name, site in placed.items():
        for outer, inner in pairwise(("", *site.path, name)):
            if inner not in layout.tree[outer]:
                layout.tree[outer].append(inner)
    return layout


def _set_up(sites: Mapping[str, Site], frames: Mapping[str, Frame]) -> None:
    """Set the heights of the rows, with room for the frames that begin or end between them."""
    for frame in frames.values():
        rows = [sites[name].row for name in frame.inside]
        frame.rows = (min(rows), max(rows))
    y = 0.0
    for row in range(max(site.row for site in sites.values()) + 1):
        here = [site for site in sites.values() if site.row == row]
        tall = max(site.height for site in here)
        below, above = (
            max(sum(frames[name].rows[end] == row for name in site.path) for site in here)
            for end in (0, 1)
        )
        y += below * (PAD + LABEL_HEIGHT) + tall / 2
        for site in here:
            site.y, site.row_height = y, tall
        y += tall / 2 + above * PAD + _ROW_GAP


def _set_across(layout: Layout, frames: Mapping[str, Frame], room: float) -> None:
    """Put each site near the mean of its neighbours above and below, in the order with the fewest
    crossings.

    Sorting by this mean brings neighbours together. Packing repeatedly from both sides aligns them.
    """
    sites, tree = layout.sites, layout.tree
    segments = sorted({pair for chain in layout.chains for pair in pairwise(chain)})
    near = {
        name: [pair[pair[0] == name] for pair in segments if name in pair] or [name]
        for name in sites
    }
    candidates, chance = [], Random(0)
    for turn in range(_STARTS * _ROUNDS):
        if turn % _ROUNDS == 0:
            for site in sites.values():
                site.x = 0.0
            for children in tree.values() if turn else ():  # the first order is the model's own
                chance.shuffle(children)
        wanted = {name: fmean(sites[neighbour].x for neighbour in near[name]) for name in sites}
        if turn % _ROUNDS < _ROUNDS / 2:
            means = wanted | {
                name: fmean(wanted[site] for site in frame.inside) for name, frame in frames.items()
            }
            for children in tree.values():
                children.sort(key=means.__getitem__)
        from_left, from_right = (
            _packed(layout, frames, wanted, 1),
            _packed(layout, frames, wanted, -1),
        )
        for name, site in sites.items():
            site.x = (
                from_left[name] + from_right[name]
            ) / 2  # the mean keeps the least distances, because both packings do
        _set_boxes(layout, frames)
        ends = [(sites[upper].row, sites[upper].x, sites[lower].x) for upper, lower in segments]
        crossings = sum(
            a[0] == b[0] and (a[1] - b[1]) * (a[2] - b[2]) < 0 for a, b in combinations(ends, 2)
        )
        cost = (
            max(layout.width - room, 0.0),
            crossings,
            sum(abs(upper - lower) for _, upper, lower in ends),
        )
        candidates.append((cost, {name: site.x for name, site in sites.items()}))
    _, best = min(candidates, key=lambda candidate: candidate[0])
    for name, site in sites.items():
        site.x = best[name]
    _set_boxes(layout, frames)


def _packed(
    layout: Layout, frames: Mapping[str, Frame], wanted: Mapping[str, float], sign: int
) -> dict[str, float]:
    """Pack sites from the left (``sign`` 1) or right (-1), each at its wanted place or next to its
    predecessor.
    """
    ends: dict[int, float] = defaultdict(lambda: -inf)  # right end of each row so far
    at: dict[str, float] = {}

    def place(name: str) -> None:
        if name in layout.sites:
            site = layout.sites[name]
            half = (site.slot + (_GAP if site.slot else _BEND_GAP)) / 2
            at[name] = max(ends[site.row] + half, wanted[name] * sign)
            ends[site.row] = at[name] + half
            return
        span = range(frames[name].rows[0], frames[name].rows[1] + 1)
        ends.update(dict.fromkeys(span, max(ends[row] for row in span) + PAD))
        for child in layout.tree[name][::sign]:
            place(child)
        ends.update(dict.fromkeys(span, max(ends[row] for row in span) + PAD))

    for child in layout.tree[""][::sign]:
        place(child)
    return {name: x * sign for name, x in at.items()}


def _set_boxes(layout: Layout, frames: Mapping[str, Frame]) -> None:
    """Set the frames' boxes and the layout's size from the places of the sites."""
    boxes = {}
    for name, site in layout.sites.items():
        half, tall = site.slot / 2, site.row_height / 2
        boxes[name] = (site.x - half, site.y - tall, site.x + half, site.y + tall)
    for name in reversed(list(frames)):  # the inner ones first
        lefts, bottoms, rights, tops = zip(
            *(boxes[inner] for inner in layout.tree[name]), strict=True
        )
        boxes[name] = (
            min(lefts) - PAD,
            min(bottoms) - PAD - LABEL_HEIGHT,
            max(rights) + PAD,
            max(tops) + PAD,
        )
    layout.boxes = {name: boxes[name] for name in frames}
    lefts, _, rights, tops = zip(*boxes.values(), strict=True)
    layout.x0, layout.width, layout.height = min(lefts), max(rights) - min(lefts), max(tops)
