"""Pictures of models: ``picture(result, dataset) -> Figure``, drawn from the release and from
records to compare with.

``dataset`` has the evaluation records to show. None shows the fit's own records if they are public,
or else the release alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench import _validate, plots
from workbench.data import Dataset

__all__ = [
    "coefficients",
    "confusion",
    "group_effects",
    "groups",
    "latent_plane",
    "mixture",
    "reconstructions",
    "samples",
]

_IMAGES, _SAMPLES, _SIDE = 16, 32, 9
_REACH = 2.0  # of the latent plane, in standard deviations of a code


# ``result`` is a ``FitResult``, of a room that comes after this one
def _shown(result: Any, dataset: Dataset | None, use: str) -> tuple[tuple[np.ndarray, ...], str]:
    """As ``_records``. :raises ArgumentError: naming ``data``, if there are none."""
    records, label = _records(result, dataset)
    if records is None:
        raise _validate.ArgumentError("data", None, f"must be a Dataset with the evaluation {use}.")
    return records, label


def _records(result: Any, dataset: Dataset | None) -> tuple[tuple[np.ndarray, ...] | None, str]:
    """(arrays to compare with, or None; the label of a picture of them)."""
    if dataset is None and result.public_records is None:
        return None, result.release_label
    return result.predictor.all_arrays(dataset), result.label_beside(dataset)


def coefficients(result: Any, dataset: Dataset | None) -> Any:
    """Weights of the features, and the intercept, with intervals. No records are shown."""
    draws = result.draws["weights"]
    names = list(result.coordinates["weights"])
    if "intercept" in result.draws:
        draws, names = np.column_stack([draws, result.draws["intercept"]]), [*names, "intercept"]
    return plots.coefficients_figure(
        names, draws, result.release_label, verdict=not result.interval_warning
    )


def group_effects(result: Any, dataset: Dataset | None) -> Any:
    """A formula's effects of groups with intervals, on the scale of the link. No records are
    shown.
    """
    rows = result.coefficients(groups=True).drop(index=result.coefficients().index)
    return plots.coefficients_figure(
        None,
        rows[list(rows.columns[1:5])],
        result.release_label,
        title="effects of groups",
        xlabel="difference from a typical group",
        largest_first=False,
        verdict=not result.interval_warning,
    )


def groups(result: Any, dataset: Dataset | None) -> Any:
    """The weight that differs most between groups, against the group feature that explains most of
    it.
    """
    # [draws, L, D], [draws, D, K]
    weights, mixing = (result.draws["group_weights"], result.draws["mixing"])
    features = np.asarray(result.constants["group_features"], float)  # [L, K]
    names, labels = result.coordinates["group_weights"]
    index = int(np.argmax(np.std(weights.mean(axis=0), axis=0)))
    title = f"weight of {labels[index]} in each group"
    spread = np.std(features, axis=0)
    if not np.any(spread > 0):  # constant features do not distinguish groups
        return plots.coefficients_figure(
            names,
            weights[:, :, index],
            result.release_label,
            title=title,
            largest_first=False,
            verdict=not result.interval_warning,
        )
    feature = int(np.argmax(np.abs(mixing.mean(axis=0)[index]) * spread))
    grid = np.linspace(features[:, feature].min(), features[:, feature].max(), 40)
    inputs = np.tile(features.mean(axis=0), (len(grid), 1))
    inputs[:, feature] = grid
    return plots.group_effects_figure(
        weights[:, :, index],
        features[:, feature],
        result.release_label,
        fitted=mixing[:, index] @ inputs.T,
        grid=grid,
        names=names,
        xlabel=str(result.coordinates["mixing"][1][feature]),
        ylabel=f"weight of {labels[index]}",
        title=title,
    )


def mixture(result: Any, dataset: Dataset | None) -> Any:
    """The components at their posterior means, over the records if there are any."""
    draws = result.sorted_draws
    weights = draws["weights"].mean(axis=0)
    means = draws["means"].mean(axis=0)
    scales = np.broadcast_to(draws["scales"].mean(axis=0), means.shape)
    records, label = _records(result, dataset)
    return plots.mixture_figure(
        weights / weights.sum(),
        means,
        scales,
        result.release_label,
        points=None if records is None else records[0],
        points_label=None if records is None else label,
        names=result.data["feature_names"] or None,
    )


def confusion(result: Any, dataset: Dataset | None) -> Any:
    """The confusion matrix: of the records of each class, the share predicted as each class. A
    function of the records.
    """
    from workbench.plots.style import (
        DENSITY,
        INK,
        dress,
        label_ticks,
        new_figure,
        short_names,
        use_line,
    )

    records, label = _shown(result, dataset, "records to classify")
    target, probability = records[-1], result.predict(records[:-1])
    predicted = probability > 0.5 if probability.ndim == 1 else probability.argmax(axis=1)
    names = short_names(result.data["classes"], 14)
    counts = np.zeros((len(names), len(names)))
    np.add.at(counts, (target, predicted.astype(int)), 1)
    rates = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    accuracy = float(np.trace(counts) / counts.sum())
    side = 2.2 + 0.42 * len(names)
    title = f"classes and predictions ({100 * accuracy:.1f} % of the records right)"
    figure = new_figure(side + 1, side, title, use_line(label))
    axes = dress(figure.add_subplot(), "", "predicted, in % of the class", "class")
    axes.grid(False)
    axes.imshow(rates, cmap=DENSITY, vmin=0, vmax=1)
    for row, column in np.ndindex(*rates.shape):
        if rates[row, column] >= 0.005:
            text = f"{100 * rates[row, column]:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=INK)
    for which in ("x", "y"):
        label_ticks(axes, range(len(names)), names, which)
    axes.tick_params(axis="x", labelrotation=90 if max(map(len, names)) > 4 else 0)
    return figure


def samples(result: Any, dataset: Dataset | None, *, decode: Callable) -> Any:
    """Images drawn from the model by ``decode(params, codes, image_shape)``. No records
    are shown.
    """
    length = int(result.params["encoder_mean_kernel"].shape[1])
    codes = np.random.default_rng(0).normal(size=(_SAMPLES, length)).astype(np.float32)
    images = np.asarray(decode(result.predictor.params, codes, tuple(result.data["image_shape"])))
    return plots.image_grid_figure(
        _channels(images), result.release_label, title="images drawn from the model"
    )


def reconstructions(result: Any, dataset: Dataset | None) -> Any:
    """Records beside their reconstructions. A function of the records."""
    records, label = _shown(result, dataset, "images to reconstruct")
    images = records[0][:_IMAGES]
    return plots.reconstructions_figure(_channels(images), _channels(result.predict(images)), label)


def latent_plane(
    result: Any, dataset: Dataset | None, *, encode: Callable, decode: Callable
) -> Any:
    """Images for a grid of the two numbers of a code that the encoder uses most, with the other
    numbers zero.

    They are found from the records to show by ``encode(params, images) -> (mean, scale)``, or
    without records from the weights of the decoder.
    """
    params = result.predictor.params
    records, label = _records(result, dataset)
    if records is None:
        first = next(
            params[name]
            for name in ("decoder_hidden_kernel", "decoder_cells_kernel")
            if name in params
        )
        use = np.linalg.norm(np.asarray(first), axis=1)
        label = result.release_label
    else:
        use = np.std(np.asarray(encode(params, records[0][:1000])[0]), axis=0)
    across, down = np.argsort(-use, kind="stable")[:2] if len(use) > 1 else (0, 0)
    reach = np.linspace(-_REACH, _REACH, _SIDE)
    codes = np.zeros((_SIDE, _SIDE, len(use)), np.float32)
    codes[:, :, across] = reach
    codes[:, :, down] = reach[::-1, None]
    images = np.asarray(
        decode(params, codes.reshape(-1, len(use)), tuple(result.data["image_shape"]))
    )
    return plots.latent_grid_figure(
        _channels(images).reshape(_SIDE, _SIDE, *_channels(images).shape[1:]),
        label,
        vertical=reach[::-1],
        horizontal=reach,
        names=(f"code {across + 1}", f"code {down + 1}"),
    )


def _channels(images: np.ndarray) -> np.ndarray:
    """Images of one channel without its axis."""
    return images[..., 0] if images.ndim == 4 and images.shape[-1] == 1 else images
