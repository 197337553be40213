"""Data sets of images from NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench.data.arrays import labelled
from workbench.data.dataset import Dataset
from workbench.data.preprocessing import unmasked
from workbench.data.targets import class_names

__all__ = ["from_images"]


def from_images(
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    classes: Iterable[Any] | int | None = None,
    evaluation: tuple[Any, ...] | None = None,
    evaluation_fraction: float = 0.2,
    split_seed: int = 0,
    evaluation_is_public: bool = False,
    unit: str = "image",
    name: str = "images",
) -> Dataset:
    """A data set of images, one per record: "x", ``float32[N, *image_shape]`` in [0, 1], and "y"
    with ``labels``.

    >>> images, labels = np.zeros((50, 8, 8), np.uint8), np.arange(50) % 2
    >>> wb.data.from_images(images, labels, classes=["healthy", "ill"])
    Dataset('images', 8 x 8 images, target 'label')

    :param images: array[N, height, width] or [N, height, width, channels], uint8 (divided by 255)
        or floating point in [0, 1].
    :param labels: whole numbers[N], 0 .. number of classes - 1, or None.
    :param classes: names of all labels, public, or their number K for 0 .. K - 1; needed with
        ``labels``.
    :param evaluation: ``(images, labels)``, or ``(images,)``, instead of a split of ``images``.
    :param evaluation_fraction: probability of each image to become an evaluation record, in [0, 1),
        by its own content.
    :param split_seed: public seed of the split, >= 0.
    :param evaluation_is_public: True declares the evaluation records public.
    :param unit: what one image is, in words.
    :raises ArgumentError: naming ``images``, ``labels``, ``classes`` or ``evaluation``, and the
        type or shape.
    """
    names = () if labels is None else class_names(classes)
    both = labelled(
        {"images": images} if labels is None else {"images": images, "labels": labels},
        _unit_interval,
        names,
        evaluation,
        evaluation_fraction,
        split_seed,
        "image",
    )
    shape = both[0][0].shape[1:]
    return Dataset(
        name=name,
        description=f"{' x '.join(map(str, shape))} images"
        + (f", {len(names)} classes." if names else "."),
        train=tuple(training for training, _ in both),
        evaluation=tuple(evaluated for _, evaluated in both),
        target_name="" if labels is None else "label",
        classes=names,
        unit=unit,
        evaluation_is_public=evaluation_is_public,
        arrays=("x", "y")[: len(both)],
        image_shape=shape,
    )


def _unit_interval(argument: str, images: ArrayLike) -> np.ndarray:
    """float32[N, *image_shape] in [0, 1] from uint8, which is divided by 255, or from floating
    point in [0, 1].

    :raises ArgumentError: naming ``argument`` and its shape or type.
    """
    values = unmasked(argument, images)
    if values.ndim not in (3, 4) or 0 in values.shape[1:]:
        raise _validate.ArgumentError(
            argument,
            values if values.ndim else type(images).__name__,
            "must have shape (images, height, width) or (images, height, width, channels); "
            "reshape flat rows first.",
        )
    if values.ndim == 4 and values.shape[3] not in (1, 3, 4):
        raise _validate.ArgumentError(
            argument, values, "must have 1, 3 or 4 channels, on the last axis."
        )
    if values.dtype == np.uint8:
        return np.divide(values, np.float32(255), dtype=np.float32)
    if values.dtype.kind not in "fb":
        raise _validate.ArgumentError(
            argument,
            str(values.dtype),
            "must be uint8 (0 .. 255) or floating point in [0, 1]; divide by the largest value.",
        )
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN fails too
        raise _validate.ArgumentError(
            argument,
            str(values.dtype),
            "has floating-point pixels outside [0, 1], or missing ones; divide by the public "
            "largest value first.",
        )
    return values.astype(np.float32)
