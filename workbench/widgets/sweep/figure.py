"""The figure of the sweep screen: the noise that is planned, then the scores of all fits and their
means, in words too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from workbench._numbers import count, shown
from workbench.plots.metrics import labelled, score_name, words_of
from workbench.sweeps.request import DP
from workbench.sweeps.result import Series, SweepResult, series_name
from workbench.sweeps.sweeping import PreparedSweep
from workbench.widgets.kit.chart import Levels, Panel, chart

__all__ = ["learnt", "planned", "scored"]

_EMPTY = "The noise of each fit is shown here."
_NAMES = {
    "num_records": "N",
    "iterations": "steps",
    "clip": "C",
    "learning_rate": "rate",
    "sampling_rate": "q",
}
_HIGH, _BETWEEN = 113, 22  # pixels of each of two panels, and of what is between them
_MARGIN = 0.08  # of an axis


def planned(prepared: PreparedSweep | None) -> str:
    """The noise of each planned fit over what varies, as HTML; an empty chart if no fit is planned.

    Plans are public: nothing here was computed from records.
    """
    lines: dict[str, dict[float, float]] = {}
    x, by = ("epsilon", []) if prepared is None else prepared.grid.axes()
    for run in () if prepared is None else prepared.runs:
        cell = prepared.cells[run.key]  # type: ignore[union-attr]
        if cell.method == DP and run.plan is not None:
            model = prepared.grid.models[cell.model].name  # type: ignore[union-attr]
            row = {**cell.settings, "epsilon": cell.epsilon, "model": model}
            lines.setdefault(series_name(row, by), {})[row[x]] = run.plan.mechanism.noise_multiplier
    levels = sorted({level for points in lines.values() for level in points})
    panel = _panel(
        "noise sigma", "of each fit, in units of C", lines, levels, {}, 2 * _HIGH + _BETWEEN
    )
    return chart(
        [panel], 0, f"Noise of the planned fits over {x}", empty=_EMPTY, levels=_levels(x, levels)
    )


def scored(result: SweepResult) -> str:
    """The scores of all fits over what varies, with means as lines, as HTML; "" if there
    are none.
    """
    names = _shown_metrics(result)
    if not names:
        return ""
    scores = [result.series(name) for name in names]
    x = scores[0].x
    levels = sorted({float(level) for series in scores for level in series.private[x]})
    height = _HIGH if len(scores) == 2 else 2 * _HIGH + _BETWEEN
    panels = []
    for series in scores:
        words, unit = words_of(series.metric)
        dots: dict[str, list[tuple[float, float]]] = {}
        bars: dict[str, list[tuple[float, float, float]]] = {}
        for _, row in series.private.iterrows():
            name, level = row["method"], float(row[x])
            dots.setdefault(name, []).append((level, float(row[series.metric])))
            if f"{series.metric}_low" in row:
                ends = float(row[f"{series.metric}_low"]), float(row[f"{series.metric}_high"])
                bars.setdefault(name, []).append((level, *ends))
        lines = "lines: means; bars: 90 % intervals" if bars else "lines: means"
        note = labelled("; ".join(filter(None, [unit, lines])), series.label)
        panels.append(_panel(words, note, _means(series, levels), levels, dots, height, bars))
    return chart(panels, 0, f"{learnt(result)} Dots are fits.", levels=_levels(x, levels))


def learnt(result: SweepResult) -> str:
    """In a sentence, how the mean of the first score changes over what varies; "" if there
    is none.
    """
    names = _shown_metrics(result)
    if not names:
        return ""
    series = result.series(names[0])
    levels = sorted({float(level) for level in series.private[series.x]})
    means = {
        name: line
        for name, line in _means(series, levels).items()
        if name in set(series.private["method"])
    }
    groups = series.private.groupby(["method", series.x])[series.metric]
    error = float((groups.std() / groups.count() ** 0.5).mean())  # of a mean
    digits = 10 * error if error > 0 else None  # down to the first digit of the error
    word, name = words_of(series.metric)[0], _NAMES.get(series.x, series.x)
    ends = list(dict.fromkeys([levels[0], levels[-1]]))
    said = []
    for end in ends:
        at = sorted(line[end] for line in means.values() if end in line)
        value = " to ".join(dict.fromkeys(shown(value, digits) for value in (at[0], at[-1])))
        said.append(f"{value} at {name} {level_text(end)}")
    fits = "1 fit" if len(series.private) == 1 else f"{count(len(series.private))} fits"
    note = f"evaluation records: {series.label}"
    return f"Mean {word} is {' and '.join(said)}, over {fits} in all ({note})."


def level_text(value: float) -> str:
    """A value on the x axis."""
    return count(value) if value >= 1000 and float(value).is_integer() else f"{value:g}"


def _shown_metrics(result: SweepResult) -> list[str]:
    """The score and the ELBO, as far as finished private fits have them."""
    names = result.metrics
    table = result.table if names else None
    wanted = [score_name(names), *(["elbo"] if "elbo" in names else [])]
    if table is None:
        return []
    is_private = (table["method"] == DP) & (table["status"] == "done")
    return [name for name in wanted if name and (table[name].notna() & is_private).any()]


def _means(series: Series, levels: Sequence[float]) -> dict[str, dict[float, float]]:
    """Means by line and level. A baseline that does not depend on what varies has one mean, at all
    levels.
    """
    metric, x = series.metric, series.x
    lines: dict[str, dict[float, float]] = {}
    for (name, level), value in (
        series.private.groupby(["method", x], sort=False)[metric].mean().items()
    ):
        lines.setdefault(name, {})[float(level)] = float(value)
    for name, rows in series.baselines.groupby("method", sort=False):
        if x == "epsilon" or rows[x].isna().all():
            lines[name] = dict.fromkeys(levels, float(rows[metric].mean()))
        else:
            lines[name] = {
                float(level): float(value)
                for level, value in rows.groupby(x)[metric].mean().items()
            }
    return lines


def _panel(
    title: str,
    unit: str,
    lines: Mapping[str, Mapping[float, float]],
    levels: Sequence[float],
    dots: Mapping[str, Sequence[tuple[float, float]]],
    height: int,
    bars: Mapping[str, Sequence[tuple[float, float, float]]] = MappingProxyType({}),
) -> Panel:
    positions = _places(levels)
    words = {name: name.replace("_", " ") if len(lines) > 1 else "" for name in lines}
    names: dict[str, list[tuple[float, float]]] = {
        words[name]: sorted(
            (positions[level], value) for level, value in line.items() if level in positions
        )
        for name, line in lines.items()
    }
    values = [value for line in lines.values() for value in line.values()]
    values += [value for points in dots.values() for _, value in points]
    values += [value for intervals in bars.values() for _, *ends in intervals for value in ends]
    values = [value for value in values if math.isfinite(value)]
    limits = None
    if values:
        low, high = min(values), max(values)
        margin = _MARGIN * (high - low) or 0.01
        limits = low - margin, high + margin
    return Panel(
        title,
        unit if values else "",
        limits=limits,
        height=height,
        names=names,
        has_keys=True,
        dots={
            words[name]: [(positions[level], value) for level, value in points]
            for name, points in dots.items()
        },
        bars={
            words[name]: [(positions[level], low, high) for level, low, high in intervals]
            for name, intervals in bars.items()
        },
    )


def _levels(x: str, levels: Sequence[Any]) -> Levels:
    return Levels(
        _NAMES.get(x, x),
        {position: level_text(level) for level, position in _places(levels).items()},
    )


def _places(levels: Sequence[float]) -> dict[float, float]:
    """The place of each of the ascending ``levels`` on an axis as long as their number, with
    logarithmic distances.
    """
    low, high = (levels[0], levels[-1]) if levels else (1.0, 1.0)
    if not (0 < low < high < math.inf):
        return {level: index + 0.5 for index, level in enumerate(levels)}
    unit = (len(levels) - 1) / math.log(high / low)
    return {level: 0.5 + unit * math.log(level / low) for level in levels}
