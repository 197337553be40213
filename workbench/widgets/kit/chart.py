"""Curves as HTML, over the steps of a run or over levels: in the page's theme, sharp at any size,
answering the mouse.

All panels share one x axis. Lines are SVG that stretches with the page; text is HTML, so it keeps
its size. Style alone shows the values under the mouse.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType

from workbench import _numbers
from workbench._numbers import shown

__all__ = ["Levels", "Panel", "chart", "round_ticks"]

Points = Sequence[tuple[float, float]]

_MOST_POINTS = 400  # of a line
_MOST_STRIPS = 120  # places that answer the mouse
_APART = 16  # pixels between ends of lines that have names
_LATEST = 70.0  # percent of the axis at which words may still begin
_NEAREST_LABELS = 0.09  # of levels, in shares of the axis
_TALL = 100.0  # units of a panel's height
# of named lines with keys, which differ in more than colour
_KINDS = ("", "second dashes", "third dotted")


@dataclass(frozen=True)
class Panel:
    """Lines with one y axis.

    :param title: what is shown, such as "AUC". :param unit: small print beside it.
    :param points: (step, value) of the run. :param limits: of the y axis; None for an empty panel.
    :param colour: a class of the style sheet: "", "second" or "third".
    :param faint: lines of other runs. :param level: a value to compare with, and its name.
    :param height: in pixels. :param stairs: whether a value holds until the next point.
    :param words: how a value is written.
    :param names: further lines by their names. :param has_keys: whether these have colours, and
        keys above the chart.
    :param links: HTML in place of the names that stand at the ends of lines, such as buttons.
    :param dots: values without a line, by the name of the line that they belong to.
    :param bars: (step, low, high) of intervals, likewise.
    :param ticks: of the y axis; round numbers by default.
    """

    title: str
    unit: str = ""
    points: Points = ()
    limits: tuple[float, float] | None = None
    colour: str = ""
    faint: tuple[Points, ...] = ()
    level: tuple[float, str] | None = None
    height: int = 84
    stairs: bool = False
    words: Callable[[float], str] = shown
    names: Mapping[str, Points] = field(default_factory=dict)
    has_keys: bool = False
    links: Mapping[str, str] = field(default_factory=dict)
    dots: Mapping[str, Points] = field(default_factory=dict)
    bars: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Levels:
    """Values of a setting on the x axis, which is as long as there are values.

    :param name: of the setting, in a word.
    :param texts: by their place on the axis, ascending.
    """

    name: str
    texts: Mapping[float, str]


def chart(
    panels: Sequence[Panel],
    steps: int,
    description: str,
    *,
    empty: str = "",
    marks: Mapping[float, str] = MappingProxyType({}),
    levels: Levels | None = None,
) -> str:
    """``panels`` one above the other.

    :param steps: the right end of the x axis; 0 if it is not known. :param description: for screen
        readers.
    :param empty: what stands in the first panel if there are no values. :param marks: steps that
        are marked in all panels, and what begins there, which the last panel says: below an epsilon
        that grows there is room.
    :param levels: the x axis instead of ``steps``.
    """
    steps = steps if levels is None else len(levels.texts)
    body = "".join(
        _panel(
            panel,
            max(steps, 1),
            "" if index else empty,
            marks if panel is panels[-1] else dict.fromkeys(marks, ""),
        )
        for index, panel in enumerate(panels)
    )
    label = escape(description, quote=True)
    role = "group" if any(panel.links for panel in panels) else "img"  # which hides buttons
    return (
        f'<div class="dpvi-chart" role="{role}" '
        f'aria-label="{label}">{_keys(panels)}{body}{_axis(steps, levels)}<div '
        f'class="strips">{_strips(panels, max(steps, 1), levels)}</div></div>'
    )


def _kinds(panel: Panel) -> list[str]:
    """The class of each of a panel's named lines."""
    return [
        _KINDS[index] if panel.has_keys and index < len(_KINDS) else "faint"
        for index in range(len(panel.names))
    ]


def _keys(panels: Sequence[Panel]) -> str:
    """The names of the lines that have keys, each once, unless there is but one line."""
    kinds = {
        name: kind
        for panel in panels
        if panel.has_keys
        for name, kind in zip(panel.names, _kinds(panel), strict=True)
    }
    keys = "".join(
        f'<span><i class="{kind}"></i>{escape(name)}</span>' for name, kind in kinds.items() if name
    )
    return f'<div class="keys">{keys}</div>' if len(kinds) > 1 else ""


def _axis(steps: int, levels: Levels | None) -> str:
    if levels is None:
        labels, name = (_x_labels(steps), "<b>steps</b>") if steps else ([], "")
    else:
        fractions = [(position / steps, escape(text)) for position, text in levels.texts.items()]
        labels = fractions[-1:]  # backwards, so that the last one is there
        for fraction, text in reversed(fractions):
            if labels[0][0] - fraction >= _NEAREST_LABELS:
                labels.insert(0, (fraction, text))
        name = f"<b>{escape(levels.name)}</b>"
    shown = "".join(
        f'<span style="left:{100 * fraction:.4g}%">{text}</span>' for fraction, text in labels
    )
    return f'<div class="x{" levels" if levels is not None else ""}">{name}{shown}</div>'


def _panel(panel: Panel, steps: int, empty: str, marks: Mapping[float, str]) -> str:
    points = _finite(panel.points)
    newest = f"<b>{escape(panel.words(points[-1][1]))}</b>" if points else "<b></b>"
    title = (
        "<div "
        f'class="title"><b>{escape(panel.title)}</b><span>{escape(panel.unit)}</span>{newest}</div>'
    )
    if panel.limits is None:
        inside = f'<div class="empty">{escape(empty)}</div>'
    else:
        inside = _lines(panel, points, steps, panel.limits, marks)
    return (
        f'<div class="panel">{title}<div class="plot" '
        f'style="height:{panel.height}px">{inside}</div></div>'
    )


def _lines(
    panel: Panel,
    points: Points,
    steps: int,
    limits: tuple[float, float],
    marks: Mapping[float, str],
) -> str:
    low, high = limits
    span = high - low or 1.0

    def at(value: float) -> float:
        return _TALL * (high - value) / span

    def line(of: Points, kind: str, stairs: bool = False) -> str:
        corners = [
            (1000 * step / steps, min(max(at(value), -_TALL), 2 * _TALL))
            for step, value in _thinned(_finite(of))
        ]
        if stairs:
            corners = (
                [
                    corner
                    for before, after in zip(corners, [*corners[1:], corners[-1]], strict=True)
                    for corner in (before, (after[0], before[1]))
                ]
                if corners
                else []
            )
        return (
            f'<polyline class="{kind}" '
            f'points="{" ".join(f"{x:.4g},{y:.4g}" for x, y in corners)}"/>'
        )

    ticks = panel.ticks or round_ticks(low, high, 3 if panel.height > 60 else 2)
    grid = "".join(
        f'<line class="grid" x1="0" x2="1000" y1="{at(tick):.4g}" y2="{at(tick):.4g}"/>'
        for tick in ticks
    )
    texts = [f"{tick:g}" for tick in ticks] if panel.ticks else _numbers.ticks(ticks)
    labels = "".join(
        f'<span class="y" style="top:clamp(5px,{at(tick):.4g}%,100% - 4px)">{text}</span>'
        for tick, text in zip(ticks, texts, strict=True)
    )
    drawn = [grid, *(line(curve, "faint") for curve in panel.faint)]
    kinds = dict(zip(panel.names, _kinds(panel), strict=True))
    drawn += [line(curve, kinds[name]) for name, curve in panel.names.items()]
    if not panel.has_keys:
        ends = {
            name: at(curve[-1][1]) for name, of in panel.names.items() if (curve := _finite(of))
        }
        newest = {"": at(points[-1][1])} if points else {}
        words = {name: panel.links.get(name) or escape(name) for name in ends}
        labels += _names_apart(ends | newest, _APART * _TALL / panel.height, words)
    for name, bars in panel.bars.items():
        path = "".join(
            f"M{1000 * step / steps:.4g},{at(low):.4g}V{at(high):.4g}" for step, low, high in bars
        )
        drawn.append(f'<path class="bars {kinds.get(name, "faint")}" d="{path}"/>')
    for name, dots in panel.dots.items():
        path = "".join(
            f"M{1000 * step / steps:.4g},{at(value):.4g}h0"
            for step, value in _thinned(_finite(dots))
        )
        drawn.append(f'<path class="dots {kinds.get(name, "faint")}" d="{path}"/>')
    if panel.level is not None:
        drawn.append(
            f'<line class="dashed" x1="0" x2="1000" y1="{at(panel.level[0]):.4g}" '
            f'y2="{at(panel.level[0]):.4g}"/>'
        )
        # the label stands where the curve does not end
        is_high = bool(points) and at(points[-1][1]) < _TALL / 2
        labels += f'<span class="mark{"" if is_high else " high"}">{escape(panel.level[1])}</span>'
    for mark, begins in marks.items():
        if mark < steps:
            fraction = mark / steps
            drawn.append(
                f'<line class="faint" x1="{1000 * fraction:.4g}" x2="{1000 * fraction:.4g}" y1="0" '
                'y2="100"/>'
            )
            labels += (
                f'<span class="begins" style="left:{100 * fraction:.4g}%">{escape(begins)}</span>'
                if begins
                else ""
            )
    if points:
        drawn.append(line(points, panel.colour, panel.stairs))
        labels += _start(points, steps, limits)
        step, value = points[-1]
        css = f"left:{100 * step / steps:.4g}%;top:{min(max(at(value), 0), 100):.4g}%"
        labels += f'<i class="tip-dot {panel.colour}" style="{css}"></i>'
    stretched = f'viewBox="0 0 1000 {_TALL:g}" preserveAspectRatio="none" aria-hidden="true"'
    return f"<svg {stretched}>{''.join(drawn)}</svg>{labels}"


def _start(points: Points, steps: int, limits: tuple[float, float]) -> str:
    """Where a line begins that enters the panel from outside, said beside its entry; "" for one
    that begins within.
    """
    (low, high), first = limits, points[0][1]
    if low <= first <= high:
        return ""
    is_below, room = first < low, 0.3 * (high - low)
    clear = (
        step for step, value in points if (value > low + room if is_below else value < high - room)
    )
    side, sign = ("", "\N{DOWNWARDS ARROW}") if is_below else (" above", "\N{UPWARDS ARROW}")
    offset = 100 * next(clear, points[-1][0]) / steps
    return (
        ""
        if offset > _LATEST
        else f'<span class="begins{side}" style="left:{offset:.4g}%">{sign} {shown(first)}</span>'
    )


def _names_apart(ends: Mapping[str, float], least: float, words: Mapping[str, str]) -> str:
    """Names above the ends of lines, as far as no other line ends nearby.

    :param ends: in units from the top of the panel, "" that of a line without a name.
    :param least: how far apart ends must be. :param words: HTML of each name.
    """
    return "".join(
        f'<span class="name" style="top:clamp(13px,{end:.4g}%,100%)">{words[name]}</span>'
        for name, end in ends.items()
        if name
        and all(
            abs(end - neighbour_end) >= least
            for neighbour, neighbour_end in ends.items()
            if neighbour != name
        )
    )


def _strips(panels: Sequence[Panel], steps: int, levels: Levels | None) -> str:
    """For each evaluation or level a strip that shows, while the mouse is over it, the values
    there.
    """
    drawn = {panel.title: _finite(panel.points) for panel in panels}
    curves = [panel for panel in panels if not panel.stairs]
    stops = sorted(
        {
            step
            for panel in curves
            for points in (drawn[panel.title], *panel.names.values())
            for step, _ in points
        }
    )
    stops = [stops[round(number)] for number in _spaced(len(stops), _MOST_STRIPS)]
    strips = []
    for number, step in enumerate(stops):
        begin = 0.0 if number == 0 else (stops[number - 1] + step) / 2
        end = steps if number + 1 == len(stops) else (step + stops[number + 1]) / 2
        facts = [
            f"step {_numbers.count(step)}"
            if levels is None
            else f"{levels.name} {levels.texts[step]}"
        ]
        for panel in panels:
            value = _value_at(drawn[panel.title], step, panel.stairs)
            if value is not None:
                facts.append(f"{panel.title} {panel.words(value)}")
            for name, points in panel.names.items():
                value = _value_at(points, step, not panel.has_keys)
                if value is not None:
                    facts.append(
                        " ".join(
                            filter(
                                None,
                                [panel.title if panel.has_keys else "", name, panel.words(value)],
                            )
                        )
                    )
        at = 100 * (step - begin) / max(end - begin, 1e-9)
        late = " late" if step > 0.55 * steps else ""
        strips.append(
            f'<div class="strip{late}" '
            f'style="left:{100 * begin / steps:.4g}%;width:{100 * (end - begin) / steps:.4g}%;'
            f'--at:{at:.4g}%"><span>{escape(chr(10).join(facts))}</span></div>'
        )
    return "".join(strips)


def _value_at(points: Points, step: float, holds: bool) -> float | None:
    """The value at ``step``; that of the point before, if it ``holds``."""
    index = bisect_right(points, (step, math.inf)) - 1
    if index < 0 or not (holds or points[index][0] == step):
        return None
    return points[index][1]


def _finite(points: Points) -> Points:
    return [(step, value) for step, value in points if math.isfinite(value)]


def _thinned(points: Points) -> Points:
    return [points[round(number)] for number in _spaced(len(points), _MOST_POINTS)]


def _spaced(count: int, most: int) -> list[float]:
    """Places of at most ``most`` of ``count`` things, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [number * (count - 1) / (most - 1) for number in range(most)]


def round_ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between ``low`` and ``high``, at least two."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    ticks = [
        step * number
        for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]
    return ticks if len(ticks) > 1 else round_ticks(low, high, about + 1)


def _x_labels(steps: int) -> list[tuple[float, str]]:
    """Shares of the axis and what stands there, which are whole numbers of steps."""
    inner = [
        tick
        for tick in round_ticks(0, steps, 4)
        if 0.06 * steps < tick < 0.81 * steps and tick % 1 == 0
    ]
    return [
        (0.0, "0"),
        *((tick / steps, _numbers.brief(tick)) for tick in inner),
        (1.0, _numbers.brief(steps)),
    ]
