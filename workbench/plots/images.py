"""Figures of images: in a grid, with their reconstructions, and over a plane of latent values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.plots._arrays import Shapes
from workbench.plots.style import INK, QUIET, WIDTH, label_ticks, new_figure, plain, use_line

__all__ = ["image_grid_figure", "latent_grid_figure", "reconstructions_figure"]

_ROOM = 0.8  # inches of height for the title, the small print and the margins


def image_grid_figure(
    images: ArrayLike, label: str, *, title: str = "images", columns: int = 8
) -> Figure:
    """Images in a grid, row by row. A cell is at most 0.84 inches wide, and the figure at least 4
    inches.

    >>> figure = wb.plots.image_grid_figure(np.random.uniform(size=(12, 8, 8)), "covered")

    :param images: float[images, height, width] or float[images, height, width, 1 or 3 colours],
        values in [0, 1].
    :param columns: images in a row, 1 to 20.
    :raises ArgumentError: for another shape, or if a value is not finite or outside [0, 1].
    """
    pictures = _checked("images", images, Shapes())
    columns = min(_validate.integer("columns", columns, at_least=1, at_most=20), len(pictures))
    width, cell = _widths(columns)
    rows = -(-len(pictures) // columns)
    figure = new_figure(
        width, _ROOM + rows * cell * pictures.shape[1] / pictures.shape[2], title, use_line(label)
    )
    _show(figure.add_subplot(), _mosaic(pictures, columns))
    return figure


def reconstructions_figure(
    originals: ArrayLike,
    reconstructions: ArrayLike,
    label: str,
    *,
    title: str = "reconstructions",
    columns: int = 8,
) -> Figure:
    """Images with their reconstructions below; the title gives the error over all pixels.

    >>> images = np.random.uniform(size=(8, 8, 8))
    >>> figure = wb.plots.reconstructions_figure(images, 0.9 * images, "public data")

    :param originals: float[images, height, width(, 1 or 3)] in [0, 1].
    :param reconstructions: the same shape.
    :param label: of the records, because originals and reconstructions are functions of them.
    :raises ArgumentError: as ``image_grid_figure``, or if the shapes differ.
    """
    shapes = Shapes()
    above, below = (
        _checked("originals", originals, shapes),
        _checked("reconstructions", reconstructions, shapes),
    )
    columns = min(_validate.integer("columns", columns, at_least=1, at_most=20), len(above))
    width, cell = _widths(columns, 1.1)
    error = float(np.sqrt(np.mean((above - below) ** 2)))
    blocks = -(-len(above) // columns)
    height = _ROOM + blocks * (0.12 + 2 * cell * above.shape[1] / above.shape[2])
    figure = new_figure(width, height, f"{title} (RMSE per pixel {error:.3f})", use_line(label))
    for block, axes in enumerate(figure.subplots(blocks, 1, squeeze=False)[:, 0]):
        span = slice(block * columns, (block + 1) * columns)
        pair = np.concatenate([_padded(above[span], columns), _padded(below[span], columns)])
        _show(axes, _mosaic(pair, columns))
        ticks = [above.shape[1] * 0.5, above.shape[1] * 1.5 + 1]
        label_ticks(axes, ticks, ["record", "reconstruction"])
        axes.tick_params(labelsize=8.5)
    return figure


def latent_grid_figure(
    images: ArrayLike,
    label: str,
    *,
    vertical: ArrayLike | None = None,
    horizontal: ArrayLike | None = None,
    names: Sequence[str] = ("first latent", "second latent"),
    title: str = "images over the latent plane",
) -> Figure:
    """Images decoded from a grid of latent values; 7.0 inches wide.

    >>> images, codes = np.random.uniform(size=(3, 3, 8, 8)), [-1, 0, 1]
    >>> figure = wb.plots.latent_grid_figure(
    ...     images, "covered", vertical=codes, horizontal=codes
    ... )

    :param images: float[rows, columns, height, width] or float[rows, columns, height, width, 1 or 3
        colours], in [0, 1].
    :param vertical: float[rows], the latent value of each row from the top; by default 1, 2, ...
    :param horizontal: float[columns], the latent value of each column.
    :param names: of the horizontal and the vertical axis.
    :raises ArgumentError: as ``image_grid_figure``.
    """
    shapes = Shapes()
    pictures = _checked("images", images, shapes, "rows", "columns")
    rows, columns, height, width = pictures.shape[:4]
    down = (
        np.arange(1.0, rows + 1) if vertical is None else shapes.array("vertical", vertical, "rows")
    )
    across = (
        np.arange(1.0, columns + 1)
        if horizontal is None
        else shapes.array("horizontal", horizontal, "columns")
    )
    if len(names) != 2 or isinstance(names, str):
        raise ArgumentError(
            "names", names, "must be two names, of the horizontal and the vertical axis."
        )
    tall = (WIDTH - 0.9) / columns * height / width * rows
    figure = new_figure(WIDTH, tall + _ROOM + 0.4, title, use_line(label))
    axes = figure.add_subplot()
    _show(axes, _mosaic(pictures.reshape(rows * columns, *pictures.shape[2:]), columns))
    for values, size, which in ((down, height, "y"), (across, width, "x")):
        every = -(-len(values) // 12)
        ticks = ((size + 1) * np.arange(len(values)) + (size - 1) / 2)[::every]
        label_ticks(axes, ticks.tolist(), [f"{value:.3g}" for value in values[::every]], which)
    axes.tick_params(labelsize=8.5)
    axes.set_xlabel(plain(names[0]), fontsize=9, color=QUIET)
    axes.set_ylabel(plain(names[1]), fontsize=9, color=QUIET)
    return figure


def _checked(name: str, images: ArrayLike, shapes: Shapes, *first: str) -> np.ndarray:
    """``images`` as float64[*first, height, width(, 3)], values in [0, 1]; a single colour
    is grey.
    """
    axes = [*(first or ("images",)), "height", "width"]
    ndim = np.ndim(images)
    if ndim == len(axes) + 1:
        axes.append("colours")
        if np.shape(images)[-1] not in (1, 3):
            raise ArgumentError(
                name, images, "must have 1 or 3 colours on its last axis, or no axis of colours."
            )
    checked = shapes.array(name, images, *axes, at_least=0, at_most=1)
    return checked[..., 0] if "colours" in axes and checked.shape[-1] == 1 else checked


def _widths(columns: int, beside: float = 0.2) -> tuple[float, float]:
    """Width of the figure and of one cell in inches; ``beside`` is the width of labels."""
    cell = min(0.84, (WIDTH - beside) / columns)
    return max(4.0, columns * cell + beside), cell


def _padded(images: np.ndarray, count: int) -> np.ndarray:
    """``images`` and then NaN images, ``count`` in all."""
    blank = np.full((count - len(images), *images.shape[1:]), np.nan)
    return np.concatenate([images, blank])


def _mosaic(images: np.ndarray, columns: int) -> np.ndarray:
    """All images in one, float[height, width, 4 (colour and opacity)], with a transparent pixel
    between them.
    """
    rows = -(-len(images) // columns)
    height, width = images.shape[1:3]
    coloured = images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=-1)
    mosaic = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1, 4))
    for number, image in enumerate(coloured):
        row, column = divmod(number, columns)
        tile = mosaic[row * (height + 1) :, column * (width + 1) :][:height, :width]
        tile[..., :3] = np.nan_to_num(image)
        tile[..., 3] = np.isfinite(image).all(axis=-1)
    return mosaic


def _show(axes: Axes, mosaic: np.ndarray) -> None:
    axes.imshow(mosaic, interpolation="nearest")
    axes.set(xticks=[], yticks=[], anchor="W", facecolor="white")
    axes.tick_params(labelcolor=INK)
    axes.spines[:].set_visible(False)
