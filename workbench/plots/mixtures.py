"""Figures of Gaussian mixtures with diagonal covariances, in one, two or many dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import ArrayLike

from workbench._numbers import decimals, fixed
from workbench._validate import ArgumentError
from workbench.plots._arrays import Shapes
from workbench.plots.style import (
    BAND,
    COLOURS,
    DENSITY,
    DIVERGING,
    GRID,
    INK,
    LINES,
    QUIET,
    WIDTH,
    annotate_apart,
    dress,
    label_ticks,
    largest,
    legend_above,
    new_figure,
    short_names,
    use_line,
)

__all__ = ["mixture_figure"]

_MOST_COMPONENTS = 12  # with names, or in a table
_MOST_POINTS = 4000  # in a scatter plot


def mixture_figure(
    weights: ArrayLike,
    means: ArrayLike,
    scales: ArrayLike,
    label: str,
    *,
    points: ArrayLike | None = None,
    points_label: str | None = None,
    names: Sequence[str] | None = None,
    components: Sequence[str] | None = None,
    title: str = "mixture components",
) -> Figure:
    """The components of a mixture.

    One feature: the density over a histogram of the points (7.0 x 3.6 inches). Two: ellipses of one
    and two standard deviations, over the points or over contours of the density (7.0 x 5.2 inches).
    More: a table of means, features by components, coloured by the distance from the mean of the
    whole mixture (7.0 inches wide, 1.9 + 0.24 per feature high). It shows at most the 60 features
    that differ most and the 12 heaviest components.

    >>> figure = wb.plots.mixture_figure(
    ...     [0.4, 0.6], [[0, 0], [2, 1]], [[1, 1], [0.5, 0.5]], "covered"
    ... )

    :param weights: float[components], not negative, with sum 1.
    :param means: float[components, features].
    :param scales: float[components, features], standard deviations above 0.
    :param points: float[records, features], drawn with the components.
    :param points_label: label of the points.
    :param names: of the features.
    :param components: names of the components; by default 1, 2, ...
    :raises ArgumentError: if shapes disagree, a value is not finite, the weights do not sum to 1,
        or points lack a label.
    """
    shapes = Shapes()
    weights = shapes.array("weights", weights, "components", at_least=0)
    means = shapes.array("means", means, "components", "features")
    scales = shapes.array("scales", scales, "components", "features", at_least=0)
    if (scales == 0).any():
        raise ArgumentError("scales", scales, "must be greater than 0.")
    if abs(weights.sum() - 1) > 1e-3:
        raise ArgumentError("weights", weights.tolist(), "must sum to 1.")
    feature_names = short_names(shapes.names("names", names, "features", "feature "))
    called = short_names(shapes.names("components", components, "components", ""), 12)
    if (points is None) != (points_label is None):
        raise ArgumentError(
            "points_label", points_label, "pass both points and points_label, or neither."
        )
    use = use_line(label)
    if points is not None:
        points = shapes.array("points", points, "records", "features")
        use = use_line(label, mixture=label, points=str(points_label))
    heavy = largest(weights, _MOST_COMPONENTS)
    if means.shape[1] > 2:
        return _table(weights, means, scales, points, feature_names, called, heavy, title, use)
    figure = new_figure(WIDTH, 3.6 if means.shape[1] == 1 else 5.2, title, use)
    if means.shape[1] == 1:
        _density(
            figure, weights, means[:, 0], scales[:, 0], points, feature_names[0], called, heavy
        )
    else:
        _ellipses(figure, weights, means, scales, points, feature_names, called, heavy)
    return figure


def _density(
    figure: Figure,
    weights: np.ndarray,
    means: np.ndarray,
    scales: np.ndarray,
    points: np.ndarray | None,
    name: str,
    called: list[str],
    heavy: np.ndarray,
) -> None:
    axes = dress(figure.add_subplot(), "", name, "density")
    if points is not None:
        bins = int(np.clip(len(points) ** 0.5, 10, 40))
        axes.hist(
            points[:, 0], bins=bins, density=True, color=GRID, label="histogram of the points"
        )
    low, high = _range(weights, means, scales, 3.5)
    if points is not None:
        low, high = min(low, points.min()), max(high, points.max())
    x = np.linspace(low, high, 600)
    densities = weights * _normal(x[:, None], means, scales)
    for number in heavy:
        axes.plot(x, densities[:, number], color=COLOURS[1], linewidth=1, linestyle="--")
    axes.plot([], [], color=COLOURS[1], linewidth=1, linestyle="--", label="components by weight")
    axes.plot(x, densities.sum(axis=1), color=COLOURS[0], linewidth=1.8, label="mixture")
    axes.set(xlim=(low, high), ylim=(0, None))
    axes.margins(y=0.15)
    legend_above(axes)
    peaks = np.column_stack([means, weights * _normal(means, means, scales)])[heavy]
    _name(axes, peaks, weights, called, heavy, radii=1.0)


def _ellipses(
    figure: Figure,
    weights: np.ndarray,
    means: np.ndarray,
    scales: np.ndarray,
    points: np.ndarray | None,
    names: list[str],
    called: list[str],
    heavy: np.ndarray,
) -> None:
    axes = dress(figure.add_subplot(), "", names[0], names[1])
    limits = [_range(weights, means[:, axis], scales[:, axis], 2.6) for axis in (0, 1)]
    if points is None:
        x, y = (np.linspace(low, high, 160) for low, high in limits)
        columns = (
            _normal(x[:, None], means[:, 0], scales[:, 0]),
            _normal(y[:, None], means[:, 1], scales[:, 1]),
        )
        density = np.einsum("k,yk,xk->yx", weights, columns[1], columns[0])
        axes.contourf(x, y, density, levels=10, cmap=DENSITY, zorder=0)
        axes.plot(
            [], [], marker="s", linestyle="none", color=BAND, label="density: darker is higher"
        )
    else:
        chosen = np.linspace(0, len(points) - 1, min(len(points), _MOST_POINTS)).astype(int)
        axes.plot(
            *points[chosen].T,
            linestyle="none",
            marker="o",
            markersize=3.4,
            color=QUIET,
            alpha=0.7,
            mew=0,
            label="points",
        )
    for number in range(len(weights)):
        for reach, style in ((2, LINES[0]), (4, LINES[1])):
            size = reach * scales[number]
            axes.add_patch(
                Ellipse(
                    tuple(means[number]),
                    *size,
                    fill=False,
                    color=COLOURS[1],
                    linewidth=1.4,
                    linestyle=style,
                )
            )
    for words, style in (("1 sd", LINES[0]), ("2 sd", LINES[1])):
        axes.plot([], [], color=COLOURS[1], linewidth=1.4, linestyle=style, label=words)
    axes.scatter(
        means[:, 0], means[:, 1], s=_areas(weights), color=COLOURS[1], edgecolor="white", zorder=3
    )
    axes.plot([], [], marker="o", linestyle="none", color=COLOURS[1], label="mean, area by weight")
    if points is not None:
        edge = 0.03 * np.ptp(points, axis=0)
        ends = zip(limits, points.min(axis=0) - edge, points.max(axis=0) + edge, strict=True)
        limits = [(min(low, first), max(high, last)) for (low, high), first, last in ends]
    axes.set(xlim=limits[0], ylim=limits[1])
    legend_above(axes)
    _name(
        axes,
        means[heavy],
        weights,
        called,
        heavy,
        radii=np.sqrt(_areas(weights[heavy]) / np.pi),
    )


def _table(
    weights: np.ndarray,
    means: np.ndarray,
    scales: np.ndarray,
    points: np.ndarray | None,
    names: list[str],
    called: list[str],
    heavy: np.ndarray,
    title: str,
    use: str,
) -> Figure:
    centre = weights @ means
    spread = np.sqrt(weights @ (scales**2 + (means - centre) ** 2))
    rows = largest(np.max(np.abs((means[heavy] - centre) / spread), axis=0))
    # too long for a column's width
    upright = max(len(called[number]) for number in heavy) > 50 / (len(heavy) + 1)
    pattern = "{} ({})" if upright else "{}\n{}"
    values, heads = (
        means[heavy],
        [pattern.format(called[number], _percent(weights[number])) for number in heavy],
    )
    if points is not None:
        values, heads = (
            np.vstack([values, points.mean(axis=0)]),
            [*heads, pattern.format("points", "mean")],
        )
    distance = ((values - centre) / spread)[:, rows].T
    notes = [f"the {len(rows)} of {len(names)} features that differ most"] * (
        len(rows) < len(names)
    )
    notes += [f"the {len(heavy)} heaviest of {len(weights)} components"] * (
        len(heavy) < len(weights)
    )
    heading = title + (f" ({'; '.join(notes)})" if notes else "")
    figure = new_figure(WIDTH, 1.9 + 0.8 * upright + 0.24 * len(rows), heading, use)
    axes = dress(figure.add_subplot())
    axes.grid(False)
    picture = axes.imshow(
        distance, cmap=DIVERGING, vmin=-2, vmax=2, aspect="auto", interpolation="nearest"
    )
    digits = [decimals(spread[row] / 10) for row in rows]
    for row, column in np.ndindex(distance.shape):
        axes.text(
            column,
            row,
            fixed(values[column, rows[row]], digits[row]),
            ha="center",
            va="center",
            fontsize=7.5,
            color=INK,
        )
    label_ticks(axes, range(len(rows)), [names[row] for row in rows])
    label_ticks(axes, range(len(heads)), heads, "x")
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", length=0, rotation=90 if upright else 0)
    axes.spines[:].set_visible(False)
    if points is not None:
        axes.axvline(len(heavy) - 0.5, color=INK, linewidth=1.2)
    bar = figure.colorbar(
        picture,
        ax=axes,
        location="bottom",
        fraction=0.05,
        aspect=45,
        shrink=0.8,
        pad=0.015,
        extend="both",
    )
    bar.set_label(
        "numbers: means · colour: distance from the mixture's mean, in its standard deviations",
        fontsize=8,
        color=QUIET,
    )
    bar.ax.tick_params(labelsize=8, colors=QUIET)
    return figure


def _name(
    axes: Axes,
    points: np.ndarray,
    weights: np.ndarray,
    called: list[str],
    heavy: np.ndarray,
    radii: ArrayLike,
) -> None:
    """Write each component's name and weight beside its place."""
    names = [f"{called[number]}  ({_percent(weights[number])})" for number in heavy]
    for note in annotate_apart(axes, points, names, radii=radii, above=True):
        note.set(weight="bold")


def _areas(weights: np.ndarray) -> np.ndarray:
    """Areas of markers in square points, large enough to be visible."""
    return np.maximum(400 * weights, 24)


def _percent(weight: float) -> str:
    return "<1 %" if 0 < weight < 0.005 else f"{100 * weight:.0f} %"


def _range(
    weights: np.ndarray, means: np.ndarray, scales: np.ndarray, reach: float
) -> tuple[float, float]:
    """A range for the components: ``reach`` standard deviations of those heavier than 0.1 %, and
    one of every other.
    """
    heavy = weights > 1e-3
    low = min((means - reach * scales)[heavy].min(), (means - scales).min())
    high = max((means + reach * scales)[heavy].max(), (means + scales).max())
    return float(low), float(high)


def _normal(x: np.ndarray, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Gaussian density."""
    return np.exp(-0.5 * ((x - means) / scales) ** 2) / (scales * np.sqrt(2 * np.pi))
