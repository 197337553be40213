"""Data sets of images from NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data.dataset import Dataset
from workbench.data.tables import evaluation_arrays, split_rows

__all__ = ["from_images", "unit_interval"]


def from_images(
    images: Any,
    labels: Any = None,
    *,
    classes: Sequence[Any] | None = None,
    evaluation: tuple[Any, ...] | None = None,
    evaluation_fraction: float = 0.2,
    split_seed: int = 0,
    evaluation_is_public: bool = False,
    unit: str = "image",
    name: str = "images",
) -> Dataset:
    """A data set of images, one a record; its arrays are "x", float32[N, *image_shape] in [0, 1], and "y" with ``labels``.

    :param images: array[N, height, width] or [N, height, width, channels], uint8 (divided by 255) or floating point
        in [0, 1].
    :param labels: whole numbers[N], 0 .. number of classes - 1, or None.
    :param classes: names of the labels, public. By default they are numbered up to the largest label that occurs,
        which is then read from the records.
    :param evaluation: ``(images, labels)``, or ``(images,)``, in the place of a split of ``images``.
    :param evaluation_fraction: chance of each image to become an evaluation record, in (0, 1).
    :param split_seed: public seed of the split, >= 0.
    :param evaluation_is_public: True declares the evaluation records public. :param unit: what one image is, in words.
    :raises ArgumentError: naming ``images``, ``labels``, ``classes`` or ``evaluation``, and the value or shape.
    """
    if classes is not None and (isinstance(classes, (str, bytes)) or not np.ndim(classes)):
        raise _validate.ArgumentError("classes", classes, "must be the names of all classes, declared publicly.")
    x = unit_interval(images)
    y = None if labels is None else _checked_labels("labels", labels, len(x), classes)
    if evaluation is None:
        held_out = split_rows(len(x), evaluation_fraction, split_seed)
        both = [(array[~held_out], array[held_out]) for array in (x, y) if array is not None]
    else:
        held = evaluation_arrays(evaluation, ("images",) if y is None else ("images", "labels"))
        both = [(x, _held_out_images(held["images"], x.shape[1:]))]
        if y is not None:
            both.append((y, _checked_labels("evaluation labels", held["labels"], len(both[0][1]), classes)))
        if len(x) < 2 or not len(both[0][1]):
            raise _validate.ArgumentError("images", x, "at least 2 training images and 1 evaluation image are needed.")
    names: tuple[str, ...] = ()
    if y is not None and classes is not None:
        names = tuple(str(each) for each in classes)
    elif y is not None:
        names = tuple(str(number) for number in range(1 + max(int(part.max(initial=0)) for part in both[1])))
    shape = tuple(int(side) for side in x.shape[1:])
    return Dataset(
        name=name,
        description=f"{' x '.join(map(str, shape))} images" + (f", {len(names)} classes." if names else "."),
        train=tuple(training for training, _ in both),
        evaluation=tuple(held for _, held in both),
        target_name="label" if y is not None else "",
        classes=names,
        unit=unit,
        evaluation_is_public=evaluation_is_public,
        arrays=("x", "y") if y is not None else ("x",),
        image_shape=shape,
    )


def unit_interval(images: Any, argument: str = "images") -> np.ndarray:
    """float32[N, *image_shape] in [0, 1] from uint8, which is divided by 255, or from floating point in [0, 1].

    :raises ArgumentError: naming ``argument`` and its shape, type or first value outside.
    """
    values = np.asarray(images)
    if values.ndim not in (3, 4) or 0 in values.shape[1:]:
        raise _validate.ArgumentError(
            argument,
            values if values.ndim else images,
            "must have shape (images, height, width) or (images, height, width, channels); reshape flat rows first.",
        )
    if values.ndim == 4 and values.shape[3] not in (1, 3, 4):
        raise _validate.ArgumentError(argument, values, "must have 1, 3 or 4 channels, on the last axis.")
    if values.dtype == np.uint8:
        return np.divide(values, np.float32(255), dtype=np.float32)
    if values.dtype.kind not in "fb":
        raise _validate.ArgumentError(
            argument, str(values.dtype), "must be uint8 (0 .. 255) or floating point in [0, 1]; divide by the largest value."
        )
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN fails too
        outside = values[~((values >= 0) & (values <= 1))][0]
        raise _validate.ArgumentError(
            argument, float(outside), "pixels in floating point must be in [0, 1]; divide by the public largest value first."
        )
    return values.astype(np.float32)


def _held_out_images(images: Any, shape: tuple[int, ...]) -> np.ndarray:
    x = unit_interval(images, "evaluation images")
    if x.shape[1:] != shape:
        raise _validate.ArgumentError(
            "evaluation images", x, f"must be of size {' x '.join(map(str, shape))} as the others."
        )
    return x


def _checked_labels(argument: str, labels: Any, num_images: int, classes: Any) -> np.ndarray:
    """int32[N] of whole numbers that ``classes`` has names for."""
    values = np.asarray(labels)
    if values.shape != (num_images,):
        raise _validate.ArgumentError(argument, values, f"must have shape ({num_images},), one label an image.")
    if values.dtype.kind not in "iu":
        raise _validate.ArgumentError(argument, str(values.dtype), "must be whole numbers 0, 1, ... of an integer type.")
    limit = np.iinfo(np.int32).max if classes is None else len(classes)
    wrong = (values < 0) | (values >= limit)
    if wrong.any():
        names = "" if classes is None else f" .. {limit - 1}, the number of classes less 1"
        raise _validate.ArgumentError(argument, int(values[wrong][0]), f"labels must be 0, 1, ...{names}.")
    return values.astype(np.int32)
