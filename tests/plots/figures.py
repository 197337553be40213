"""Helpers for the tests of figures: small inputs, and ways to read a figure."""

import numpy as np
import pandas as pd

GENERATOR = np.random.default_rng(20260)


def summary(count, names=None, scale=1.0):
    """A summary table of ``count`` quantities; the absolute means fall with the row."""
    means = scale * np.linspace(2, 0.1, count) * np.where(np.arange(count) % 2, -1, 1)
    ends = {"hdi_90%_low": means - 0.5, "hdi_90%_high": means + 0.5}
    return pd.DataFrame(
        {"mean": means, "sd": 0.3, **ends},
        index=names or [f"weights[{row}]" for row in range(count)],
    )


def small_print(figure):
    return figure.get_supxlabel()


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def ticks(axes, which="y"):
    labels = axes.get_yticklabels() if which == "y" else axes.get_xticklabels()
    return [label.get_text() for label in labels]


def _boxes(figure, labels):
    """Names and float[labels, 4] of left, bottom, right, top, in pixels, of all texts that are
    shown.
    """
    figure.draw_without_rendering()
    shown = [label for label in labels if label.get_text() and label.get_visible()]
    boxes = [label.get_window_extent().extents for label in shown]
    return [label.get_text() for label in shown], np.array(boxes).reshape(-1, 4)


def overlaps(figure, labels):
    """Pairs of shown texts that lie over each other by more than a pixel."""
    names, boxes = _boxes(figure, labels)
    left, bottom, right, top = boxes.T
    across = np.minimum.outer(right, right) - np.maximum.outer(left, left)
    up = np.minimum.outer(top, top) - np.maximum.outer(bottom, bottom)
    return [
        (names[one], names[other])
        for one, other in np.argwhere(np.triu((across > 1) & (up > 1), 1))
    ]


def outside(figure, labels):
    """Texts that do not lie inside the figure."""
    names, boxes = _boxes(figure, labels)
    width, height = figure.canvas.get_width_height()
    inside = (
        (boxes[:, :2] >= -1).all(axis=1) & (boxes[:, 2] <= width + 1) & (boxes[:, 3] <= height + 1)
    )
    return [names[place] for place in np.flatnonzero(~inside)]
