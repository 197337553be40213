"""The style of all figures: colours, axes, names, legends, and the line that labels a figure."""

from __future__ import annotations

import base64
import html
import io
import math
import re
import textwrap
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._numbers import MINUS, count

__all__ = [
    "BAND",
    "COLOURS",
    "DENSITY",
    "DIVERGING",
    "GRID",
    "HALO",
    "INK",
    "LARGE_ENOUGH",
    "LEGEND",
    "LINES",
    "MARKERS",
    "QUIET",
    "SHADE",
    "WIDTH",
    "NotebookFigure",
    "annotate_apart",
    "dress",
    "label_ticks",
    "largest",
    "legend_above",
    "legend_columns",
    "new_figure",
    "plain",
    "png",
    "png_tag",
    "short_names",
    "shortened",
    "svg",
    "use_line",
    "whole_ticks",
    "wrapped",
]

INK, QUIET, GRID, SHADE = "#1b1f24", "#57606a", "#d0d7de", "#f3f5f7"
# distinct for every kind of colour blindness, with a contrast of at least 3 to white; series also
# differ in marker and line
COLOURS = ("#0550ae", "#c2570c", "#1b9e77", "#6b1d55", "#878f98")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2, 1, 1.2)))
# both are light enough that INK on them has a contrast above 7
DENSITY = LinearSegmentedColormap.from_list("density", ["#ffffff", "#d5e5f7", "#8dbbec"])
DIVERGING = LinearSegmentedColormap.from_list("diverging", ["#8dbbec", "#ffffff", "#f0a860"])
LEGEND: dict[str, Any] = {
    "fontsize": 8,
    "frameon": False,
    "labelcolor": INK,
    "handlelength": 2.6,
    "columnspacing": 1.6,
}
BAND = "#8dbbec"
HALO = [withStroke(linewidth=2.5, foreground="white")]  # keeps words on lines readable
WIDTH = 7.0  # inches: 840 pixels, readable when shown at 700
LARGE_ENOUGH = 60  # most rows of a figure; if there are more, the largest are shown
_LONGEST_NAME = 28
_DOTS_PER_INCH = 120
_NAMING = threading.Lock()  # held while matplotlib names the parts of an SVG
_LARGEST_SVG = 300_000  # bytes; beyond, a picture of pixels is smaller
_MEANINGS = {
    "covered": "computed from the private release alone",
    "public data": "computed from records that are declared public",
    "outside the guarantee": "computed from private records without noise; not for publication",
}


def png(figure: Figure) -> bytes:
    """``figure`` as PNG bytes.

    >>> figure = wb.plots.epsilon_figure([(100, 0.5), (1000, 1.2)], delta=1e-5)
    >>> wb.plots.png(figure)[:4]
    b'\x89PNG'
    """
    return _saved(figure, format="png", dpi=_DOTS_PER_INCH)


def _saved(figure: Figure, **how: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, **how)
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """``figure`` on a transparent ground, sharp at any size: SVG bytes, or PNG of twice the
    resolution if SVG is large.

    >>> figure = wb.plots.epsilon_figure([(100, 0.5), (1000, 1.2)], delta=1e-5)
    >>> wb.plots.svg(figure)[:5]
    b'<?xml'
    """
    with _NAMING:
        # equal figures have equal bytes
        salt, rcParams["svg.hashsalt"] = (rcParams["svg.hashsalt"], "workbench")
        try:
            content = _saved(figure, format="svg", transparent=True, metadata={"Date": None})
        finally:
            rcParams["svg.hashsalt"] = salt
    if len(content) <= _LARGEST_SVG:
        return content
    return _saved(figure, format="png", dpi=2 * _DOTS_PER_INCH, transparent=True)


def png_tag(figure: Figure, description: str) -> str:
    """``figure`` as an HTML image with embedded bytes."""
    encoded = base64.b64encode(png(figure)).decode()
    return (
        f'<img alt="{html.escape(description)}" src="data:image/png;base64,{encoded}" '
        'style="max-width:100%">'
    )


class NotebookFigure(Figure):
    """A Figure that a notebook shows without pyplot's inline backend, at twice the resolution of
    its size on the page.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = (round(inches * _DOTS_PER_INCH) for inches in self.get_size_inches())
        content = _saved(self, format="png", dpi=2 * _DOTS_PER_INCH)
        return content, {"width": width, "height": height}


def new_figure(width: float, height: float, title: str = "", use: str = "") -> NotebookFigure:
    """An empty figure of ``width`` x ``height`` inches, with a title above and ``use`` (see
    ``use_line``) below.
    """
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(
            plain(textwrap.fill(title, int(12 * width))),
            fontsize=10.5,
            color=INK,
            x=0.01,
            ha="left",
        )
    if use:
        use = plain(textwrap.fill(use, int(14 * width)))
        marked = "outside the guarantee" in use
        figure.supxlabel(
            use,
            fontsize=8,
            color=INK if marked else QUIET,
            x=0.01,
            ha="left",
            weight="bold" if marked else None,
        )
    return figure


def use_line(label: str, **panels: str) -> str:
    """The line that says whether a figure is covered by the guarantee.

    :param label: "covered", "public data" or "outside the guarantee", of the whole figure or its
        first part.
    :param panels: for a figure with parts, the label of each part by its name, such as
        ``points="public data"``.
    :raises ArgumentError: for another label.
    """
    _validate.choice("label", label, _MEANINGS)
    for name, value in panels.items():
        _validate.choice(f"{name}_label", value, _MEANINGS)
    if not panels or set(panels.values()) == {label}:
        return f"{label}: {_MEANINGS[label]}"
    return " · ".join(f"{name}: {value}" for name, value in panels.items())


def dress(axes: Axes, title: str = "", xlabel: str = "", ylabel: str = "") -> Axes:
    """Give ``axes`` the style of all figures."""
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5, colors=QUIET)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(plain(title), fontsize=9.5, loc="left", color=INK)
    axes.set_xlabel(plain(xlabel), fontsize=9, color=QUIET)
    axes.set_ylabel(plain(ylabel), fontsize=9, color=QUIET)
    return axes


def plain(text: str) -> str:
    """Escape dollar signs in ``text``, because matplotlib reads text between two of them as
    mathematics.

    All names that a figure shows pass through here last, before matplotlib. Escaping twice changes
    nothing.
    """
    return re.sub(r"(?<!\\)\$", r"\\$", text)


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """``name``, with an ellipsis in its middle if it has more than ``longest`` characters: ends
    often differ.
    """
    name = " ".join(str(name).split())
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 3
    return f"{name[: longest - 1 - tail].rstrip()}…{name[-tail:].lstrip()}"


def short_names(names: Sequence[str], longest: int = _LONGEST_NAME) -> list[str]:
    """``shortened`` names. Names that would become equal end in their number, counted from 1."""
    short = [shortened(name, longest) for name in names]
    repeated = {name for name, count in Counter(short).items() if count > 1 and "…" in name}
    return [
        f"{name[: longest - 2 - len(str(number))].rstrip()}…#{number}"
        if shown in repeated
        else shown
        for number, (name, shown) in enumerate(zip(map(str, names), short, strict=True), start=1)
    ]


def wrapped(name: str, width: int) -> str:
    """``name`` in lines of at most ``width`` characters, broken at spaces, brackets and signs, or
    else within words.
    """
    lines = [""]
    for token in re.findall(r"\s+|[\[({]?[\w…]+[^\w\s\[({]*|[^\w\s]+", " ".join(name.split())):
        if lines[-1] and len(lines[-1] + token) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] = (lines[-1] + token) if lines[-1] else token.lstrip()
        while len(lines[-1]) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(line for line in lines if line)


def largest(sizes: np.ndarray, most: int = LARGE_ENOUGH) -> np.ndarray:
    """Indices of the ``most`` largest entries of ``sizes``, in increasing order."""
    if len(sizes) <= most:
        return np.arange(len(sizes))
    return np.sort(np.argsort(-np.asarray(sizes), kind="stable")[:most])


def label_ticks(
    axes: Axes, positions: Sequence[float], names: Sequence[str], which: str = "y"
) -> None:
    """Label ``positions`` with ``names``, without tick marks."""
    (axes.set_yticks if which == "y" else axes.set_xticks)(
        list(positions), [plain(name) for name in names]
    )
    axes.tick_params(axis=which, length=0, labelcolor=INK)  # type: ignore[arg-type]


def whole_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Put ticks of the x axis only at ``values``, or at evenly chosen ones of many, as plain
    numbers.
    """
    chosen = list(values)[:: math.ceil(len(values) / 10)]
    axes.xaxis.set_major_locator(FixedLocator(chosen))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _tick(value: float, _: int | None) -> str:
    return count(value) if value == round(value) else f"{value:.6g}".replace("-", MINUS)


def legend_above(axes: Axes, handles: Sequence[Any] | None = None, width: float = WIDTH) -> None:
    """Put a legend between title and axes, in as many columns as fit into ``width`` inches."""
    entries = list(handles) if handles is not None else axes.get_legend_handles_labels()[0]
    for handle in entries:
        handle.set_label(plain(str(handle.get_label())))
    columns = legend_columns([str(handle.get_label()) for handle in entries], width - 0.7)
    axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        **LEGEND,
    )


def legend_columns(texts: Sequence[str], width: float) -> int:
    """The largest number of columns with which a legend of ``texts`` fits into ``width`` inches."""
    for columns in range(len(texts), 1, -1):
        widths = [
            max(map(len, column)) * 0.06 + 0.62
            for column in np.array_split(np.array(texts, dtype=object), columns)
        ]
        if sum(widths) <= width:
            return columns
    return 1


def annotate_apart(
    axes: Axes,
    points: np.ndarray,
    names: Sequence[str],
    *,
    radii: ArrayLike = 3.0,
    bars: tuple[np.ndarray, np.ndarray] | None = None,
    above: bool = False,
) -> list[Annotation]:
    """Write names beside ``points`` (float[n, 2]), on the side where they cover least.

    Call this last, because it needs the figure's final layout.

    :param radii: of the points' markers, in points.
    :param bars: lower and upper ends of vertical bars to avoid.
    :param above: prefer the place above the point to the place at its right.
    """
    root = axes.get_figure(root=True)
    assert root is not None
    root.draw_without_rendering()
    unit = root.dpi / 72  # pixels per point
    reach = np.broadcast_to(np.asarray(radii, dtype=float), len(points))
    taken = [
        (x - size * unit, y - size * unit, x + size * unit, y + size * unit)
        for (x, y), size in zip(axes.transData.transform(points), reach, strict=True)
    ]
    for low, high in zip(*bars, strict=True) if bars is not None else ():
        (x, bottom), (_, top) = axes.transData.transform([low, high])
        taken.append((x - 2 * unit, bottom, x + 2 * unit, top))
    frame = axes.get_window_extent()
    notes = []
    for point, name, size in zip(points, names, reach, strict=True):
        note = axes.annotate(
            plain(name),
            point,
            (0, 0),
            textcoords="offset points",
            fontsize=8,
            color=INK,
            annotation_clip=False,
            path_effects=HALO,
        )
        best: tuple[float, dict[str, Any]] = (np.inf, {})
        for across, up, more in (
            sorted(_SIDES, key=lambda side: side[:2] != (0, 1)) if above else _SIDES
        ):
            side = {
                "position": (across * (size + 3), up * (size + 3) + more),
                "ha": ("right", "center", "left")[across + 1],
                "va": ("top", "center", "bottom")[up + 1],
            }
            note.set(**side)
            box = note.get_window_extent()
            here = (box.x0, box.y0, box.x1, box.y1)
            cost = sum(_overlap(here, obstacle) for obstacle in taken) + box.width * box.height
            cost -= _overlap(here, (frame.x0, frame.y0, frame.x1, frame.y1))
            if cost < best[0] - 1e-6:
                best = (cost, side)
        note.set(**best[1])
        note.set_in_layout(False)
        box = note.get_window_extent()
        taken.append((box.x0, box.y0, box.x1, box.y1))
        notes.append(note)
    return notes


# right or left of the point (1 or -1), above or below it (1 or -1), and a further shift upwards in
# points
_SIDES = (
    (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (1, 1, 0), (-1, 1, 0), (1, -1, 0), (-1, -1, 0),
    (1, 1, 8), (-1, 1, 8), (1, -1, -8), (-1, -1, -8), (0, 1, 10), (0, -1, -10),
)  # fmt: skip


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Area of the intersection of two boxes (left, bottom, right, top)."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(width, 0.0) * max(height, 0.0)
