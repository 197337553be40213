"""Figures of the teaching screens: made once and then updated in place, so that they can follow a
slider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from matplotlib.typing import ColorType

from workbench import _numbers
from workbench.plots.style import (
    BAND,
    COLOURS,
    HALO,
    INK,
    LEGEND,
    LINES,
    MARKERS,
    QUIET,
    WIDTH,
    dress,
    new_figure,
    svg,
)
from workbench.privacy.steps import LAWS, NEIGHBOURS
from workbench.teaching.simulations import CLOUD, Attack, DescentStep, Several, Spent

__all__ = [
    "CASES",
    "AttackFigure",
    "CompositionFigure",
    "DescentFigure",
    "MinibatchFigure",
    "SpendingFigure",
]

_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def _line(axes: Axes, *style: str, **looks: Any) -> Any:
    """A line without points, which are set later."""
    (line,) = axes.plot([], [], *style, **looks)
    return line


def _segments(axes: Axes, **looks: Any) -> Any:
    """A collection of lines, of which there are none yet."""
    return axes.add_collection(LineCollection([], **looks))


def _put(line: Any, point: Any) -> None:
    """Let a line have this point alone."""
    line.set_data(point[:1], point[1:])


class _Kept:
    """A figure that is updated in place.

    ``cut`` is the share of its width that is left of its second part. Nothing is drawn across it,
    so that narrow pages can show one part below the other.
    """

    cut = 0.5

    def __init__(self, width: float, height: float) -> None:
        self.figure = new_figure(width, height)
        # fixed positions suit all values; a layout would take half of a frame's time
        self.figure.set_layout_engine(None)

    def frame(self) -> tuple[bytes, bytes]:
        """The two parts of the figure, as SVG bytes each."""
        width, height = (f"{72 * inches:g}" for inches in self.figure.get_size_inches())
        source, size = (
            svg(self.figure),
            f'width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}"'.encode(),
        )
        assert size in source  # SVG, which a figure of this size always is
        begin, ends = 0.0, (self.cut * float(width), float(width))
        halves = []
        for end in ends:
            view_box = (
                f'width="{end - begin:g}pt" height="{height}pt" viewBox="{begin:g} 0 '
                f'{end - begin:g} {height}"'
            )
            halves.append(source.replace(size, view_box.encode(), 1))
            begin = end
        return halves[0], halves[1]


class AttackFigure(_Kept):
    """The attacker's trade-off, on linear and on logarithmic axes; 7.0 x 3.3 inches."""

    cut = 0.522

    def __init__(self) -> None:
        super().__init__(WIDTH, 3.3)
        self._parts = []
        for number, title in ((1, "all rates"), (2, "small rates, both axes logarithmic")):
            axes = dress(
                self.figure.add_subplot(1, 2, number), title, "wrongly accused (% of non-members)"
            )
            self._parts.append(self._panel(axes, is_logarithmic=number == 2))
        self._parts[0][0].set_ylabel("found (% of members), at most", fontsize=9, color=QUIET)
        self.figure.subplots_adjust(left=0.085, right=0.975, bottom=0.15, top=0.91, wspace=0.27)
        self._parts[0][0].legend(
            handles=self._parts[0][1:5], loc="lower right", **{**LEGEND, "handlelength": 2.1}
        )

    def _panel(self, axes: Axes, *, is_logarithmic: bool) -> tuple[Any, ...]:
        bound = _line(
            axes,
            color=COLOURS[1],
            linestyle=LINES[2],
            linewidth=1.6,
            label="(epsilon, delta) alone",
        )
        accounted = _line(
            axes, color=COLOURS[0], linewidth=2.0, label="this fit, by the accountant"
        )
        line = [0.01, 100] if is_logarithmic else [0, 100]
        (guess,) = axes.plot(
            line, line, color=QUIET, linestyle=LINES[1], linewidth=1.2, label="guessing"
        )
        point = _line(
            axes,
            color=COLOURS[0],
            marker="D",
            markersize=6,
            linestyle="none",
            clip_on=False,
            zorder=4,
            label="the attacker chosen",
        )
        note = axes.annotate(
            "",
            (0, 0),
            (7, -4),
            textcoords="offset points",
            fontsize=9,
            color=INK,
            va="top",
            path_effects=HALO,
        )
        if is_logarithmic:
            axes.set(xscale="log", yscale="log", xlim=(0.01, 100), ylim=(0.01, 125))
            for axis in (
                axes.xaxis,
                axes.yaxis,
            ):  # computing ticks would take a third of a frame's time
                axis.set_major_locator(FixedLocator([0.01, 0.1, 1, 10, 100]))
                axis.set_major_formatter(_PLAIN)
                axis.set_minor_locator(NullLocator())
        else:
            axes.set(xlim=(0, 100), ylim=(0, 103), xticks=[0, 25, 50, 75, 100])
        return axes, accounted, bound, guess, point, note

    def draw(self, attack: Attack, rate: float) -> None:
        """Show both curves, and mark the attacker who wrongly accuses the share ``rate`` in (0, 1]
        of non-members.
        """
        position = (100 * rate, 100 * attack.found(rate)[1])
        for axes, accounted, bound, _, point, note in self._parts:
            bound.set_data(100 * attack.rates, 100 * attack.promised)
            accounted.set_data(100 * attack.rates, 100 * attack.accounted)
            _put(point, position)
            low, high = axes.get_xlim()
            fraction = (
                math.log(position[0] / low) / math.log(high / low)
                if axes.get_xscale() == "log"
                else position[0] / high
            )
            note.xy = position
            note.set_text(f"{_numbers.upper(position[1], 3)} %")
            is_low, is_far = position[1] < 8 and low == 0, fraction > 0.75
            note.set_position((-8 if is_far else 8, 2 if is_low else -4))
            note.set(ha="right" if is_far else "left", va="bottom" if is_low else "top")


class CompositionFigure(_Kept):
    """Three bounds on the epsilon of several fits on the same records; 7.0 x 3.2 inches."""

    cut = 0.56

    def __init__(self) -> None:
        super().__init__(WIDTH, 3.2)
        self._axes = dress(
            self.figure.add_axes((0.085, 0.15, 0.45, 0.77)),
            "epsilon of all fits together, at most",
            "fits on the same records",
        )
        kinds = ("sum of guarantees", "advanced composition", "steps composed (PLD)")
        self._lines = [
            _line(
                self._axes, color=COLOURS[index], linestyle=LINES[index], linewidth=1.8, label=kind
            )
            for index, kind in zip((1, 2, 0), kinds, strict=True)
        ]
        self._points = [
            _line(
                self._axes,
                color=line.get_color(),
                marker=marker,
                markersize=7,
                linestyle="none",
                zorder=4,
                clip_on=False,
            )
            for line, marker in zip(self._lines, MARKERS, strict=False)
        ]
        self._here = self._axes.axvline(1, color=QUIET, linewidth=0.9)
        self._texts = [
            self.figure.text(
                0.58, 0.68 - 0.2 * index, "", fontsize=9, color=INK, linespacing=1.35, va="top"
            )
            for index in range(3)
        ]
        self._heading = self.figure.text(
            0.58, 0.85, "", fontsize=9.5, color=INK, weight="bold", va="top"
        )
        self._kinds = kinds
        for line, text, marker in zip(self._lines, self._texts, MARKERS, strict=False):
            x, y = text.get_position()
            self.figure.add_artist(
                _key(self.figure, x, y - 0.03, line.get_color(), line.get_linestyle(), marker)
            )
            text.set_x(x + 0.06)

    def draw(self, several: Several, count: int) -> None:
        """Show ``several`` and mark ``count``, one of its counts."""
        for line, values in zip(
            self._lines, (several.added, several.advanced, several.composed), strict=True
        ):
            line.set_data(several.counts, values)
        chosen = several.of(count)
        for point, value in zip(self._points, chosen, strict=True):
            _put(point, (count, value))
        self._here.set_xdata([count, count])
        self._heading.set_text(f"{count} fit{'s' if count > 1 else ''}")
        for text, kind, value in zip(self._texts, self._kinds, chosen, strict=True):
            text.set_text(f"{kind}:\nepsilon {_numbers.upper(value, 4)}")
        self._axes.set(xlim=(0, several.counts[-1]), ylim=(0, 1.05 * float(several.added[-1])))


def _key(figure: Figure, x: float, y: float, colour: ColorType, line: Any, marker: str) -> Any:
    """A short line with a marker, as in a legend, at a place in the figure."""
    return Line2D(
        [x, x + 0.025, x + 0.05],
        [y, y, y],
        color=colour,
        linestyle=line,
        marker=marker,
        markersize=6,
        markevery=[1],
        linewidth=1.8,
        transform=figure.transFigure,
    )


class MinibatchFigure(_Kept):
    """The records in each step under each sampler, and how often each is drawn; 7.0 x 3.0 inches.

    :param num_records: N.
    :param steps: number of steps to show.
    """

    cut = 0.532

    def __init__(self, num_records: int, steps: int) -> None:
        super().__init__(WIDTH, 3.0)
        black = ListedColormap(["#ffffff", COLOURS[0]])
        self._parts = []
        for index, law in enumerate(LAWS.values()):
            edge = 0.068 + 0.236 * index
            axes = dress(self.figure.add_axes((edge, 0.15, 0.145, 0.6)), "", "step")
            axes.grid(visible=False)
            axes.tick_params(labelleft=index == 0)
            picture = axes.imshow(
                np.zeros((num_records, steps)),
                cmap=black,
                vmin=0,
                vmax=1,
                aspect="auto",
                interpolation="nearest",
                extent=(0.5, steps + 0.5, num_records + 0.5, 0.5),
            )
            counts = dress(self.figure.add_axes((edge + 0.152, 0.15, 0.05, 0.6)), "", "draws")
            counts.set(ylim=(num_records + 0.5, 0.5), yticks=[])
            counts.xaxis.set_major_locator(MaxNLocator(2, integer=True, prune="lower"))
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            line = _line(counts, color=INK, marker=".", markersize=3.5, linestyle="none")
            if index == 0:
                axes.set_ylabel("record", fontsize=9, color=QUIET)
            words = self.figure.text(
                edge, 0.775, "", fontsize=8, color=INK, va="bottom", linespacing=1.3
            )
            self._parts.append((law.label, picture, counts, line, words))

    def draw(self, members: Sequence[np.ndarray]) -> None:
        """Show which records each sampler draws, bool[steps, N] each."""
        most = max(int(member.sum(axis=0).max()) for member in members)
        for (name, picture, counts, line, words), member in zip(self._parts, members, strict=True):
            picture.set_data(member.T)
            times, sizes = member.sum(axis=0), member.sum(axis=1)
            line.set_data(times, np.arange(1, len(times) + 1))
            counts.set_xlim(0, most + 1)
            words.set_text(
                f"{name}\nminibatches of {_span(sizes)}\ndrawn {_span(times)} times each"
            )


def _span(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}"


CASES = {
    (law.name, relation): f"{law.label}, {NEIGHBOURS[relation]}"
    for law in LAWS.values()
    for relation in law.relations
}


class SpendingFigure(_Kept):
    """Epsilon over steps under every sampler and relation; 7.0 x 2.9 inches."""

    cut = 0.535

    def __init__(self) -> None:
        super().__init__(WIDTH, 2.9)
        self._axes = dress(
            self.figure.add_axes((0.085, 0.16, 0.42, 0.74)), "epsilon, at most", "steps"
        )
        self._axes.set_yscale("log")
        self._axes.yaxis.set_major_formatter(_PLAIN)
        self._axes.yaxis.set_minor_formatter(NullFormatter())
        self._axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        self._parts = {}
        for index, (case, words) in enumerate(CASES.items()):
            colour, marker = COLOURS[index], MARKERS[index]
            line = _line(
                self._axes,
                color=colour,
                linestyle=LINES[index],
                linewidth=1.7,
                marker=marker,
                markersize=4.5,
                clip_on=False,
            )
            rdp_mark = _line(
                self._axes,
                color=colour,
                marker=marker,
                markersize=8,
                markerfacecolor="none",
                linestyle="none",
                clip_on=False,
            )
            y = 0.9 - 0.175 * index
            self.figure.add_artist(
                _key(self.figure, 0.555, y - 0.03, colour, line.get_linestyle(), marker)
            )
            text = self.figure.text(
                0.62, y, "", fontsize=8.5, color=INK, va="top", linespacing=1.35
            )
            self._parts[case] = (line, rdp_mark, text, words)

    def draw(self, results: Sequence[Spent], steps: int) -> None:
        """Show all of ``results``: a curve for "pld", and an open marker at the last step
        for "rdp".
        """
        numbers: dict[tuple[str, str], dict[str, float]] = {}
        for _, rdp_mark, _, _ in self._parts.values():
            rdp_mark.set_data([], [])
        values = []
        for result in results:
            line, rdp_mark, _, _ = self._parts[result.sampler, result.relation]
            numbers.setdefault((result.sampler, result.relation), {})[result.accountant] = (
                result.epsilon
            )
            if result.accountant == "pld":
                line.set_data(*(zip(*result.curve, strict=True) if result.curve else ([], [])))
                values += [value for _, value in result.curve if value > 0]
            elif math.isfinite(result.epsilon) and result.epsilon > 0:
                _put(rdp_mark, (steps, result.epsilon))
                values.append(result.epsilon)
        for case, (_, _, text, words) in self._parts.items():
            terms = [
                f"{name.upper()} {_number(value)}" for name, value in numbers.get(case, {}).items()
            ]
            text.set_text(f"{words}\n" + ", ".join(terms))
        self._axes.set_xlim(0, steps)
        if values:
            self._axes.set_ylim(min(values) / 1.5, max(values) * 1.5)


def _number(epsilon: float) -> str:
    return _numbers.upper(epsilon, 3) if math.isfinite(epsilon) else "no bound"


class DescentFigure(_Kept):
    """One step of a private fit in the plane: the records with their pulls, and the sum with its
    noise; 7.0 x 3.9 inches.
    """

    cut = 0.522

    def __init__(self) -> None:
        super().__init__(WIDTH, 3.9)
        mean = CLOUD.mean(axis=0)
        low, high = CLOUD.min(axis=0) - 0.7, CLOUD.max(axis=0) + 0.7
        middle, half = (low + high) / 2, float((high - low).max()) / 2
        self._plane = dress(
            self.figure.add_axes((0.07, 0.11, 0.445, 0.66)), "", "first parameter", ""
        )
        self._plane.set_ylabel("second parameter", fontsize=9, color=QUIET, labelpad=0)
        x0, y0 = middle - half
        self._plane.set(xlim=(x0, x0 + 2.225 * half), ylim=(y0, y0 + 2 * half))
        self._plane.set_aspect("equal", adjustable="box", anchor="SW")
        for radius in (
            0.5,
            1,
            1.5,
            2,
            2.5,
            3,
            3.5,
        ):  # the loss at u is |u - mean|^2 / 2 and a constant
            self._plane.add_patch(
                Circle(tuple(mean), radius, fill=False, edgecolor="#c9d1d9", linewidth=0.8)
            )
        self._others = _line(
            self._plane,
            "o",
            color="white",
            markeredgecolor=QUIET,
            markersize=4,
            label="record, not drawn",
        )
        self._drawn = _line(
            self._plane, "o", color=QUIET, markersize=4, label="record of the minibatch"
        )
        self._pulls = _segments(self._plane, colors="#8c959f", linewidths=0.8, linestyles="--")
        self._cut = _segments(self._plane, colors=COLOURS[0], linewidths=1.6)
        self._ball = self._plane.add_patch(
            Circle((0, 0), 1, fill=True, facecolor=BAND, alpha=0.25, zorder=1)
        )
        self._edge = self._plane.add_patch(
            Circle((0, 0), 1, fill=False, edgecolor=COLOURS[0], linewidth=1.4)
        )
        self._path = _line(self._plane, color=INK, linewidth=1.0, marker=".", markersize=3)
        self._here = _line(
            self._plane, "D", color=INK, markersize=6, label="parameters u", zorder=5
        )
        self._move = _segments(self._plane, colors=COLOURS[3], linewidths=2.0, zorder=4.5)
        self._next = _line(
            self._plane,
            MARKERS[2],
            color=COLOURS[3],
            markersize=6,
            label="after this step",
            zorder=5,
        )
        (self._mean,) = self._plane.plot(
            [mean[0]],
            [mean[1]],
            "P",
            color=COLOURS[3],
            markersize=9,
            label="mean of the records",
            zorder=4,
        )
        self._rest = _line(
            self._plane, "X", color=COLOURS[1], markersize=8, label="where clipping leads", zorder=4
        )
        self._sum = dress(
            self.figure.add_axes((0.628, 0.11, 0.362, 0.66)),
            "",
            "pull / (q N), first coordinate",
            "",
        )
        self._sum.set_ylabel("second coordinate", fontsize=9, color=QUIET, labelpad=0)
        self._sum.set_aspect("equal", adjustable="box", anchor="SW")
        for axis in (self._sum.xaxis, self._sum.yaxis):
            axis.set_major_locator(MaxNLocator(5))
        self._arrows = {}
        for index, (name, words) in enumerate(
            {
                "total": "sum of clipped pulls",
                "noise": "noise",
                "noised": "noised sum: the step's direction",
            }.items()
        ):
            collection = _segments(
                self._sum,
                colors=COLOURS[(0, 1, 3)[index]],
                linewidths=(2.6, 1.6, 2.2)[index],
                linestyles=":" if name == "noise" else "-",
                label=words,
            )
            tip = _line(
                self._sum,
                MARKERS[index],
                color=COLOURS[(0, 1, 3)[index]],
                markersize=6,
                label=words,
            )
            self._arrows[name] = (collection, tip)
        self._sum.plot([0], [0], "D", color=INK, markersize=6, zorder=5)
        self._spread = self._sum.add_patch(
            Circle(
                (0, 0),
                1,
                fill=False,
                edgecolor=COLOURS[1],
                linewidth=1.2,
                linestyle=":",
                label="noise, one sigma C",
            )
        )
        handles = [self._here, self._next, self._drawn, self._others, self._mean, self._rest]
        self.figure.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.03, 1.0),
            ncols=2,
            borderaxespad=0.2,
            **{**LEGEND, "handlelength": 1.2},
        )
        self.figure.legend(
            handles=[*(tip for _, tip in self._arrows.values()), self._spread],
            loc="upper left",
            bbox_to_anchor=(0.575, 1.0),
            ncols=1,
            borderaxespad=0.2,
            **{**LEGEND, "handlelength": 1.2},
        )

    def draw(
        self,
        step: DescentStep,
        path: np.ndarray,
        resting: np.ndarray,
        *,
        clip: float,
        sigma: float,
        rate: float,
    ) -> None:
        """Show the next step.

        :param step: the next step.
        :param path: float[t, 2], the parameters so far, ``step.before`` last.
        :param resting: float[2], where the fit would settle without noise.
        :param clip: C.
        :param sigma: noise multiplier.
        :param rate: q.
        """
        here = step.before
        self._others.set_data(*CLOUD[~step.drawn].T)
        self._drawn.set_data(*CLOUD[step.drawn].T)
        self._pulls.set_segments([np.array([here, here + pull]) for pull in step.pulls[step.drawn]])
        self._cut.set_segments(_arrows(here, step.clipped[step.drawn], 0.1))
        for circle in (self._ball, self._edge):
            circle.set(center=tuple(here), radius=clip)
        self._path.set_data(*path.T)
        _put(self._here, here)
        self._move.set_segments([np.array([here, step.after])])
        _put(self._next, step.after)
        _put(self._rest, resting)
        scale = rate * len(CLOUD)
        total, noise, noised = step.total / scale, step.noise / scale, step.noised / scale
        deviation = sigma * clip / scale
        reach = 1.15 * max(*(np.abs(total) + deviation), *np.abs(noised), 1e-3)
        self._sum.set(xlim=(-reach, reach), ylim=(-reach, reach))
        self._spread.set(center=tuple(total), radius=max(deviation, 1e-9))
        for name, start, vector in (
            ("total", np.zeros(2), total),
            ("noise", total, noise),
            ("noised", np.zeros(2), noised),
        ):
            collection, tip = self._arrows[name]
            collection.set_segments(_arrows(start, vector[None], 0.08 * reach))
            _put(tip, start + vector)


def _arrows(start: np.ndarray, vectors: np.ndarray, head: float) -> list[np.ndarray]:
    """Lines of arrows from one point. Their heads are at most half as long as their shafts."""
    ends = start + vectors
    lengths = np.linalg.norm(vectors, axis=1)
    lines = []
    for end, vector, length in zip(ends, vectors, lengths, strict=True):
        if length == 0:
            continue
        back = -vector / length * min(head, length / 2)
        sides = [
            end
            + np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]) @ back
            for turn in (0.45, -0.45)
        ]
        lines.append(np.array([start, end, sides[0], end, sides[1]]))
    return lines
