"""What all figures share: ink, palette, axes, the line that says what a figure may be used for."""

from __future__ import annotations

import base64
import html
import io
import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from workbench import _validate

__all__ = [
    "BAND", "COLOURS", "DENSITY", "DIVERGING", "GRID", "INK", "LARGE_ENOUGH", "LEGEND", "LINES", "MARKERS",
    "QUIET", "SHADE", "WIDTH", "NotebookFigure", "annotate_apart", "decimals", "dress", "fixed", "label_ticks", "largest",
    "legend_above", "legend_columns", "new_figure", "plain", "png", "png_tag", "short_names", "shortened", "use_line",
    "whole_ticks",
]  # fmt: skip

INK, QUIET, GRID, SHADE = "#1b1f24", "#57606a", "#d0d7de", "#f3f5f7"
# told apart with every kind of colour blindness, at least 3 to 1 against white; series differ in marker and line as well
COLOURS = ("#0550ae", "#c2570c", "#1b9e77", "#6b1d55", "#878f98")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", (0, (1, 1.2)))
# both stay so light that INK on them has a contrast above 7
DENSITY = LinearSegmentedColormap.from_list("density", ["#ffffff", "#d5e5f7", "#8dbbec"])
DIVERGING = LinearSegmentedColormap.from_list("diverging", ["#8dbbec", "#ffffff", "#f0a860"])
LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "labelcolor": INK, "handlelength": 2.6, "columnspacing": 1.6}
BAND = "#8dbbec"
WIDTH = 7.0  # inches: 840 pixels, readable when shown at 700
LARGE_ENOUGH = 60  # rows of a figure; of more, the largest are shown
_LONGEST_NAME = 28
_DOTS_PER_INCH = 120
_MEANINGS = {
    "covered": "a function of the private release alone",
    "public data": "made with records that are declared public",
    "outside the guarantee": "made from private records without noise; not for publication",
}


def png(figure: Figure, *, quick: bool = False) -> bytes:
    """``figure`` as PNG bytes, packed for size, or for speed where they are shown for a moment only."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, pil_kwargs={"compress_level": 1} if quick else None)
    return buffer.getvalue()


def png_tag(figure: Figure, description: str) -> str:
    """``figure`` as an HTML image that holds its own bytes."""
    encoded = base64.b64encode(png(figure)).decode()
    return f'<img alt="{html.escape(description)}" src="data:image/png;base64,{encoded}" style="max-width:100%">'


class NotebookFigure(Figure):
    """A Figure that a notebook shows by itself, without pyplot's inline backend."""

    def _repr_png_(self) -> bytes:
        return png(self)


def new_figure(width: float, height: float, title: str = "", use: str = "") -> NotebookFigure:
    """An empty figure of ``width`` x ``height`` inches; title above, ``use`` (see ``use_line``) in small print below."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(plain(textwrap.fill(title, int(12 * width))), fontsize=10.5, color=INK, x=0.01, ha="left")
    if use:
        use = plain(textwrap.fill(use, int(14 * width)))
        marked = "outside the guarantee" in use
        figure.supxlabel(
            use, fontsize=8, color=INK if marked else QUIET, x=0.01, ha="left", weight="bold" if marked else None
        )
    return figure


def use_line(label: str, **parts: str) -> str:
    """What a figure may be used for, in one line.

    :param label: "covered", "public data" or "outside the guarantee": of the whole figure, or of its first part.
    :param parts: for a figure that mixes: the label of each part by its name, such as ``points="public data"``.
    :raises ArgumentError: if a label is none of the three.
    """
    _validate.choice("label", label, _MEANINGS)
    for name, value in parts.items():
        _validate.choice(f"{name}_label", value, _MEANINGS)
    if not parts or set(parts.values()) == {label}:
        return f"{label}: {_MEANINGS[label]}"
    return " · ".join(f"{name}: {value}" for name, value in parts.items())


def dress(axes: Axes, title: str = "", xlabel: str = "", ylabel: str = "") -> Axes:
    """``axes`` in the style of all figures."""
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=QUIET)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if title:
        axes.set_title(plain(title), fontsize=9.5, loc="left", color=INK)
    axes.set_xlabel(plain(xlabel), fontsize=9, color=QUIET)
    axes.set_ylabel(plain(ylabel), fontsize=9, color=QUIET)
    return axes


def plain(text: str) -> str:
    """``text`` as it is to be read: matplotlib would take what is between two dollar signs for mathematics.

    Whatever a figure shows of names goes through here, the last thing before matplotlib; twice is as good as once.
    """
    return re.sub(r"(?<!\\)\$", r"\\$", text)


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """``name`` with an ellipsis in its middle where it is longer than ``longest`` characters: ends tell names apart."""
    name = " ".join(str(name).split())
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 3
    return f"{name[: longest - 1 - tail].rstrip()}…{name[-tail:].lstrip()}"


def short_names(names: Sequence[str], longest: int = _LONGEST_NAME) -> list[str]:
    """``shortened`` names; those that would become equal end in their place, counted from 1."""
    short = [shortened(name, longest) for name in names]
    repeated = {name for name, count in Counter(short).items() if count > 1 and "…" in name}
    return [
        f"{name[: longest - 2 - len(str(place))].rstrip()}…#{place}" if shown in repeated else shown
        for place, (name, shown) in enumerate(zip(map(str, names), short, strict=True), start=1)
    ]


def fixed(value: float, digits: int) -> str:
    """``value`` with ``digits`` decimals, and no minus sign before a zero."""
    return f"{round(float(value), digits) + 0.0:.{digits}f}"


def decimals(spread: float) -> int:
    """Decimals with which ``spread`` has two significant digits, 0 to 5."""
    return int(np.clip(1 - np.floor(np.log10(spread)), 0, 5)) if spread > 0 else 3


def largest(sizes: np.ndarray, most: int = LARGE_ENOUGH) -> np.ndarray:
    """Places of the ``most`` largest entries of ``sizes``, in the order of ``sizes``."""
    if len(sizes) <= most:
        return np.arange(len(sizes))
    return np.sort(np.argsort(-np.asarray(sizes), kind="stable")[:most])


def label_ticks(axes: Axes, places: Sequence[float], names: Sequence[str], which: str = "y") -> None:
    """Tick labels ``names`` in full ink, without ticks."""
    (axes.set_yticks if which == "y" else axes.set_xticks)(list(places), [plain(name) for name in names])
    axes.tick_params(axis=which, length=0, labelcolor=INK)  # type: ignore[arg-type]


def whole_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Ticks of the x axis at ``values`` and nowhere else, written as plain numbers; of many, evenly chosen ones."""
    chosen = list(values)[:: math.ceil(len(values) / 10)]
    axes.xaxis.set_major_locator(FixedLocator(chosen))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def legend_above(axes: Axes, handles: Sequence[Any] | None = None, width: float = WIDTH) -> None:
    """A legend between title and axes, in as many columns as fit into ``width`` inches."""
    found = list(handles) if handles is not None else axes.get_legend_handles_labels()[0]
    for handle in found:
        handle.set_label(plain(str(handle.get_label())))
    columns = legend_columns([str(handle.get_label()) for handle in found], width - 0.7)
    axes.legend(handles=found, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2, **LEGEND)


def legend_columns(texts: Sequence[str], width: float) -> int:
    """The most columns in which a legend of ``texts`` is not wider than ``width`` inches."""
    for columns in range(len(texts), 1, -1):
        widths = [max(map(len, part)) * 0.06 + 0.62 for part in np.array_split(np.array(texts, dtype=object), columns)]
        if sum(widths) <= width:
            return columns
    return 1


def annotate_apart(
    axes: Axes,
    places: np.ndarray,
    names: Sequence[str],
    *,
    radii: Sequence[float] | float = 3.0,
    bars: tuple[np.ndarray, np.ndarray] | None = None,
    above: bool = False,
) -> list[Annotation]:
    """Names beside the points ``places`` (float[n, 2]) on the side where they cover no other, as far as can be.

    Call it last: the figure is laid out here.

    :param radii: of the points' markers, in points. :param bars: lower and upper ends of vertical bars to keep clear of.
    :param above: prefer the place above the point to the one at its right.
    """
    root = axes.get_figure(root=True)
    assert root is not None
    root.draw_without_rendering()
    unit = root.dpi / 72  # pixels in a point
    reach = np.broadcast_to(np.asarray(radii, dtype=float), len(places))
    taken = [
        (x - size * unit, y - size * unit, x + size * unit, y + size * unit)
        for (x, y), size in zip(axes.transData.transform(places), reach, strict=True)
    ]
    for low, high in zip(*bars, strict=True) if bars is not None else ():
        (x, bottom), (_, top) = axes.transData.transform([low, high])
        taken.append((x - 2 * unit, bottom, x + 2 * unit, top))
    frame = axes.get_window_extent()
    notes = []
    for place, name, size in zip(places, names, reach, strict=True):
        note = axes.annotate(
            plain(name), place, (0, 0), textcoords="offset points", fontsize=8, color=INK, annotation_clip=False
        )
        note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        best: tuple[float, dict[str, Any]] = (np.inf, {})
        for across, up, more in sorted(_SIDES, key=lambda side: side[:2] != (0, 1)) if above else _SIDES:
            side = {
                "position": (across * (size + 3), up * (size + 3) + more),
                "ha": ("right", "center", "left")[across + 1],
                "va": ("top", "center", "bottom")[up + 1],
            }
            note.set(**side)
            box = note.get_window_extent()
            here = (box.x0, box.y0, box.x1, box.y1)
            cost = sum(_overlap(here, other) for other in taken) + box.width * box.height
            cost -= _overlap(here, (frame.x0, frame.y0, frame.x1, frame.y1))
            if cost < best[0] - 1e-6:
                best = (cost, side)
        note.set(**best[1])
        note.set_in_layout(False)
        box = note.get_window_extent()
        taken.append((box.x0, box.y0, box.x1, box.y1))
        notes.append(note)
    return notes


# right or left of the point (1, -1), above or below it (1, -1), and further up in points
_SIDES = (
    (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (1, 1, 0), (-1, 1, 0), (1, -1, 0), (-1, -1, 0), (1, 1, 8), (-1, 1, 8),
    (1, -1, -8), (-1, -1, -8), (0, 1, 10), (0, -1, -10),
)  # fmt: skip


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
