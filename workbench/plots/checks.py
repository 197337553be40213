"""Posterior predictive checks: predictions of the posterior compared with records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from scipy.special import ndtr

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.plots._arrays import Shapes
from workbench.plots.style import (
    BAND,
    COLOURS,
    GRID,
    INK,
    LEGEND,
    LINES,
    QUIET,
    WIDTH,
    dress,
    largest,
    legend_above,
    new_figure,
    shortened,
    use_line,
)

__all__ = ["covered_check_figure", "points_check_figure", "predictive_check_figure"]

_MOST_EXACT = 400  # records; with more, sums of Bernoulli draws are approximated by Gaussians
_MOST_DRAWS = 200  # posterior draws that replicated data sets are made from
_MOST_PANELS = 12


def predictive_check_figure(
    observed: ArrayLike,
    probabilities: ArrayLike,
    label: str,
    *,
    bins: int = 10,
    title: str = "posterior predictive check",
) -> Figure:
    """Calibration, and the share of ones in replicated data sets compared with the observed share;
    7.0 x 3.7 inches.

    Left: the records are binned by their predicted probability (the mean over draws) and plotted
    against the share of ones in each bin, with Wilson's 90 % interval; the numbers count the
    records in each bin. Right: the distribution of the share of ones over replicated data sets, one
    for each draw. It is computed, not simulated: exactly for up to 400 records, and as a Gaussian
    with continuity correction for more. It uses at most 200 draws, evenly chosen.

    >>> probabilities = np.random.uniform(size=(50, 200))
    >>> observed = np.random.binomial(1, probabilities[0])
    >>> figure = wb.plots.predictive_check_figure(observed, probabilities, "public data")

    :param observed: int[records] of 0 and 1.
    :param probabilities: float[draws, records], the probability of 1.
    :param label: of the records.
    :param bins: number of ranges of equal width, 2 to 20.
    :raises ArgumentError: if shapes disagree, or a value is not an outcome or a probability.
    """
    shapes = Shapes()
    outcomes = shapes.array("observed", observed, "records")
    if not np.isin(outcomes, (0, 1)).all():
        raise ArgumentError("observed", observed, "must contain only 0 and 1.")
    chances = shapes.array(
        "probabilities", probabilities, "draws", "records", at_least=0, at_most=1
    )
    bins = _validate.integer("bins", bins, at_least=2, at_most=20)
    figure = new_figure(WIDTH, 3.7, title, use_line(label))
    calibration_axes, replication_axes = figure.subplots(1, 2)
    _calibration(calibration_axes, outcomes, chances.mean(axis=0), bins)
    _replicated_shares(replication_axes, outcomes, chances)
    return figure


def covered_check_figure(
    bins: Sequence[tuple[float, float, float, tuple[float, float, float]]],
    label: str,
    *,
    title: str = "calibration",
) -> Figure:
    """Shares by bin with their intervals, and those of a right model; 4.8 x 3.7 inches.

    >>> bins = [(0, 0.5, 0.5, (0.4, 0.3, 0.5)), (0.5, 1, 0.5, (0.6, 0.5, 0.7))]
    >>> figure = wb.plots.covered_check_figure(bins, "covered")

    :param bins: where each begins and ends, the share that is expected there, and the share with
        the low and the high end of its 90 % interval, as ``wb.evaluate`` has them. Where the same
        is expected everywhere they are ranks among draws, else predicted probabilities.
    :param label: of the fractions.
    """
    figure = new_figure(4.8, 3.7, title, use_line(label))
    low, high, expected = (np.array([row[index] for row in bins]) for index in range(3))
    fractions, *ends = (np.array([row[3][index] for row in bins]) for index in range(3))
    is_even = np.ptp(expected) == 0
    axes = dress(
        figure.add_subplot(),
        "",
        "rank of the target among the model's draws" if is_even else "predicted probability of 1",
        "share of the records" if is_even else "share of ones",
    )
    line = expected[[0, -1]] if is_even else [0, 1]
    axes.plot([0, 1], line, color=QUIET, linewidth=1, linestyle=LINES[3], label="a right model")
    _fractions(axes, (low + high) / 2, fractions, *ends)
    axes.set(xlim=(0, 1), ylim=(0, 1.1 * max(ends[1].max(), expected[0]) if is_even else 1))
    legend_above(axes, width=4.8)
    return figure


def points_check_figure(
    observed: ArrayLike,
    replicated: ArrayLike,
    names: Sequence[str] | None,
    label: str,
    *,
    title: str = "posterior predictive check",
) -> Figure:
    """Histograms of observed points over bands of replicated ones, with a panel for each feature;
    7.0 inches wide.

    In each bin, the band contains 90 % of the replicated data sets. If there are more than 12
    features, the figure shows the 12 whose observed mean is farthest from the replicated one. The
    axes range from the 0.2 % to the 99.8 % quantiles.

    >>> observed, replicated = (
    ...     np.random.normal(size=(100, 2)),
    ...     np.random.normal(size=(50, 100, 2)),
    ... )
    >>> figure = wb.plots.points_check_figure(
    ...     observed, replicated, ["height", "weight"], "public data"
    ... )

    :param observed: float[records, features].
    :param replicated: float[draws, replicated records, features].
    :param names: of the features, or None.
    :param label: of the records.
    :raises ArgumentError: if shapes disagree or a value is not finite.
    """
    shapes = Shapes()
    points = shapes.array("observed", observed, "records", "features")
    copies = shapes.array("replicated", replicated, "draws", "replicated records", "features")
    feature_names = shapes.names("names", names, "features", "feature ")
    spread = copies.std(axis=(0, 1)) + points.std(axis=0)
    gap = np.abs(copies.mean(axis=(0, 1)) - points.mean(axis=0)) / np.where(spread > 0, spread, 1)
    shown = largest(gap, _MOST_PANELS)
    heading = title + (
        f" (the {_MOST_PANELS} of {len(feature_names)} features that differ most)"
        if len(shown) < len(feature_names)
        else ""
    )
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    height = 1.2 + 1.7 * rows + 0.6 * (rows == 1)
    figure = new_figure(WIDTH, height, heading, use_line(label))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, feature in zip(panels, shown, strict=False):
        _density_band(
            dress(axes, shortened(feature_names[feature])), points[:, feature], copies[..., feature]
        )
    for axes in panels[len(shown) :]:
        axes.axis("off")
    handles = panels[0].get_legend_handles_labels()[0]
    # two blank lines in the heading make room for the legend
    anchor = (0.0, 1 - (0.07 + 0.17 * len(figure.get_suptitle().splitlines())) / height)
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=anchor, ncols=3, **LEGEND
    ).set_in_layout(False)
    figure.suptitle(f"{figure.get_suptitle()}\n\n", fontsize=10.5, color=INK, x=0.01, ha="left")
    return figure


def _fractions(
    axes: Axes, at: ArrayLike, fractions: ArrayLike, low: ArrayLike, high: ArrayLike
) -> None:
    axes.vlines(at, low, high, color=COLOURS[0], linewidth=1.8)
    axes.plot(
        at,
        fractions,
        linestyle="none",
        marker="o",
        markersize=5,
        color=COLOURS[0],
        label="share and 90 % interval",
    )


def _calibration(axes: Axes, outcomes: np.ndarray, predicted: np.ndarray, bins: int) -> None:
    from scipy.stats import binomtest  # takes long to import

    dress(axes, "", "predicted probability of 1 (numbers: records)", "observed share of ones")
    axes.plot(
        [0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=LINES[3], label="perfect calibration"
    )
    codes = np.minimum((predicted * bins).astype(int), bins - 1)
    counts = np.bincount(codes, minlength=bins)
    filled = counts > 0
    total = counts[filled]
    middle = np.bincount(codes, predicted, bins)[filled] / total
    ones = np.bincount(codes, outcomes, bins)[filled].astype(int)
    intervals = [
        binomtest(*counted).proportion_ci(0.9, method="wilson")
        for counted in zip(ones.tolist(), total.tolist(), strict=True)
    ]
    _fractions(axes, middle, ones / total, *zip(*intervals, strict=True))
    if bins <= 10:
        for number in np.flatnonzero(filled):
            count = counts[number]
            text = f"{count}" if count < 1000 else f"{count / 1000:.0f}k"
            axes.text(
                (number + 0.5) / bins,
                -0.075,
                text,
                ha="center",
                va="center",
                fontsize=7.5,
                color=QUIET,
            )
    axes.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.14, 1.04),
        yticks=np.linspace(0, 1, 6),
        xticks=np.linspace(0, 1, 6),
    )
    legend_above(axes, width=WIDTH / 2)


def _replicated_shares(axes: Axes, outcomes: np.ndarray, chances: np.ndarray) -> None:
    dress(axes, "", "share of ones in a data set")
    chosen = np.linspace(0, len(chances) - 1, min(len(chances), _MOST_DRAWS)).astype(int)
    mass = _counts_of_ones(chances[chosen])
    count, ones = len(outcomes), int(outcomes.sum())
    plausible = np.flatnonzero(
        np.maximum.accumulate(mass > 1e-4) & np.maximum.accumulate((mass > 1e-4)[::-1])[::-1]
    )
    first, last = int(min(plausible.min(), ones)), int(max(plausible.max(), ones))
    width = max(1, (last - first) // 40)  # counts in a bar
    edges = np.arange(first, last + width + 1, width)
    bars = np.add.reduceat(np.append(mass, np.zeros(max(edges[-1] - count, 0) + 1)), edges)[:-1]
    axes.bar(
        (edges[:-1] - 0.5) / count,
        bars,
        width / count,
        align="edge",
        color=BAND,
        edgecolor="white",
        linewidth=0.4,
        label="replicated data sets",
    )
    below = mass[:ones].sum() + mass[ones] / 2
    words = f"observed: {ones / count:.3f}; {_rank(below)} lie below"
    axes.axvline(ones / count, color=COLOURS[1], linewidth=2, linestyle="--", label=words)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    legend_above(axes, width=WIDTH / 2)


def _rank(below: float) -> str:
    return "<1 %" if below < 0.005 else ">99 %" if below > 0.995 else f"{100 * below:.0f} %"


def _counts_of_ones(chances: np.ndarray) -> np.ndarray:
    """Probability of each number of ones, averaged over draws, float[records + 1]."""
    draws, records = chances.shape
    if records <= _MOST_EXACT:
        mass = np.zeros((draws, records + 1))
        mass[:, 0] = 1
        for chance in chances.T[:, :, None]:
            mass[:, 1:] = mass[:, 1:] * (1 - chance) + mass[:, :-1] * chance
            mass[:, :1] *= 1 - chance
        return mass.mean(axis=0)
    mean = chances.sum(axis=1)[:, None]
    spread = np.sqrt((chances * (1 - chances)).sum(axis=1))[:, None]
    up_to = ndtr((np.arange(records + 1) + 0.5 - mean) / np.maximum(spread, 1e-3))
    up_to[:, -1] = 1
    return np.diff(up_to, axis=1, prepend=0).mean(axis=0)


def _density_band(axes: Axes, points: np.ndarray, copies: np.ndarray) -> None:
    ends = [np.quantile(values, (0.002, 0.998)) for values in (points, copies)]
    low, high = float(min(ends[0][0], ends[1][0])), float(max(ends[0][1], ends[1][1]))
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, int(np.clip(len(points) ** 0.5, 8, 24)) + 1)
    width = edges[1] - edges[0]
    ours = np.histogram(points, edges)[0] / (len(points) * width)
    theirs = np.stack([np.histogram(copy, edges)[0] for copy in copies]) / (copies.shape[1] * width)
    bottom, middle, top = np.quantile(theirs, (0.05, 0.5, 0.95), axis=0)
    axes.stairs(
        top, edges, baseline=bottom, fill=True, color=BAND, label="replicated: 90 % of data sets"
    )
    axes.stairs(
        middle, edges, color=COLOURS[0], linewidth=1.2, linestyle="--", label="replicated: median"
    )
    axes.stairs(ours, edges, color=COLOURS[1], linewidth=1.8, label="observed")
    axes.set(xlim=(low, high), ylim=(0, None), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.grid(color=GRID, linewidth=0.6)
    axes.xaxis.set_major_locator(MaxNLocator(4))
