"""Data sets from the user's own NumPy arrays, with their public facts declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing
from workbench.data.dataset import Dataset
from workbench.data.schema import Schema
from workbench.data.splits import by_record
from workbench.data.tables import from_frame
from workbench.data.targets import checked_labels

__all__ = ["from_arrays", "labelled"]


def from_arrays(
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    bounds: Mapping[Any, Sequence[float]] | Sequence[float] | None = None,
    schema: Schema | Mapping[Any, Any] | None = None,
    feature_names: Sequence[str] | None = None,
    target_name: str = "y",
    group: ArrayLike | None = None,
    unit_id: ArrayLike | None = None,
    evaluation: tuple[Any, ...] | bool | None = None,
    name: str = "arrays",
    **options: Any,
) -> Dataset:
    """A data set from NumPy arrays. The other arguments are those of ``from_frame``.

    >>> x, y = np.random.uniform(0, 100, (50, 2)), np.arange(50) % 2
    >>> wb.data.from_arrays(
    ...     x,
    ...     y,
    ...     feature_names=["age", "dose"],
    ...     bounds={"age": (0, 120), "dose": (0, 200)},
    ... )
    Dataset('arrays', 2 features, target 'y')

    :param x: array[N, D], one row per record, in the features' own units.
    :param y: array[N], the target (of 0 and 1, or with ``positive=``, ``classes=`` or
        ``threshold=``), or None.
    :param feature_names: D names of the columns; "x1", "x2", ... by default.
    :param group: array[N] of group labels, together with ``groups`` or ``group_features``.
    :param unit_id: array[N] that says whose row each is, together with ``max_rows``.
    :param evaluation: arrays of evaluation records in the order x, group, unit_id, y, as far as
        given; False for none; otherwise ``x`` is split.
    :raises ArgumentError: naming ``x``, ``y``, ``group``, ``evaluation`` or ``feature_names`` and
        their shapes; ``target``.
    """
    if (target := options.pop("target", None)) is not None and (y is None or target != target_name):
        raise _validate.ArgumentError("target", target, "is the array y of arrays: leave it out.")
    x = preprocessing.unmasked("x", x)
    columns = {"x": x, "group": group, "unit": unit_id, "y": y}
    present = [role for role in columns if columns[role] is not None]
    width = np.shape(x)[1] if np.ndim(x) == 2 else 0
    if feature_names is not None and (
        isinstance(feature_names, (str, bytes)) or not np.ndim(feature_names)
    ):
        raise _validate.ArgumentError(
            "feature_names", feature_names, "must be a list of names, one for each column of x."
        )
    feature_names = (
        [f"x{number + 1}" for number in range(width)]
        if feature_names is None
        else list(feature_names)
    )
    _validate.text("target_name", target_name)
    frame = _frame_of({role: columns[role] for role in present}, feature_names, target_name)
    held_out = evaluation
    if evaluation is not None and evaluation is not False:
        held_out = _frame_of(
            _evaluation_arrays(evaluation, present), feature_names, target_name, "evaluation "
        )
    return from_frame(
        frame,
        target=None if y is None else target_name,
        bounds=bounds,
        schema=schema,
        group=None if group is None else "group",
        unit_id=None if unit_id is None else "unit",
        evaluation=held_out,
        name=name,
        **options,
    )


def _frame_of(
    arrays: dict[str, Any], feature_names: list[str], target_name: str, prefix: str = ""
) -> pd.DataFrame:
    x = preprocessing.unmasked(f"{prefix}x", arrays["x"])
    if x.ndim != 2 or x.shape[1] < 1:
        raise _validate.ArgumentError(
            f"{prefix}x", x, "must have shape (records, features); for images use from_images."
        )
    if len(feature_names) != x.shape[1]:
        raise _validate.ArgumentError(
            "feature_names",
            feature_names,
            f"must be {x.shape[1]} names, one for each column of {prefix}x.",
        )
    frame = pd.DataFrame(x, columns=feature_names)
    for which, label in (("group", "group"), ("unit", "unit"), ("y", target_name)):
        if which not in arrays:
            continue
        values = preprocessing.unmasked(f"{prefix}{which}", arrays[which])
        if values.shape != (len(x),):
            raise _validate.ArgumentError(
                f"{prefix}{which}",
                values,
                f"must have shape ({len(x)},), one entry for each row of x.",
            )
        if label in frame.columns:
            raise _validate.ArgumentError(
                "feature_names", label, f"is already the name of {which}."
            )
        frame[label] = values
    return frame


def labelled(
    arrays: Mapping[str, ArrayLike],
    read: Callable[[str, ArrayLike], np.ndarray],
    classes: tuple[str, ...],
    evaluation: tuple[Any, ...] | None,
    fraction: float,
    split_seed: int,
    record: str,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and evaluation records of each of ``arrays``: what ``read`` makes of the first,
    an array for each record, and labels, if there are any.

    :param arrays: by the name of their argument. :param read: for such a name and an array.
    :param evaluation: as many arrays, instead of a split.
    :param fraction: of the records, by the split. :param record: what one is, in words.
    :raises ArgumentError: naming an argument, or "evaluation" and an argument.
    """
    content, *labels = arrays

    def checked(prefix: str, arrays: Mapping[str, ArrayLike]) -> list[np.ndarray]:
        records = read(f"{prefix}{content}", arrays[content])
        return [
            records,
            *(
                checked_labels(f"{prefix}{name}", arrays[name], len(records), classes)
                for name in labels
            ),
        ]

    train = checked("", arrays)
    if evaluation is None:
        held_out = by_record(train, fraction, split_seed)
        return [(array[~held_out], array[held_out]) for array in train]
    evaluated = checked("evaluation ", _evaluation_arrays(evaluation, list(arrays)))
    size = train[0].shape[1:]
    if evaluated[0].shape[1:] != size:
        raise _validate.ArgumentError(
            f"evaluation {content}",
            evaluated[0],
            f"must have {record}s of the same size as the others, {' x '.join(map(str, size))}.",
        )
    if len(train[0]) < 2 or not len(evaluated[0]):
        raise _validate.ArgumentError(
            content,
            type(arrays[content]).__name__,
            f"must have at least 2 training {record}s and 1 evaluation {record}.",
        )
    return list(zip(train, evaluated, strict=True))


def _evaluation_arrays(
    evaluation: Sequence[ArrayLike] | bool, names: Sequence[str]
) -> dict[str, Any]:
    """``{name: array}`` of evaluation records given as a tuple of arrays, which must
    be complete.
    """
    if not isinstance(evaluation, (tuple, list)) or len(evaluation) != len(names):
        expected = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
        raise _validate.ArgumentError(
            "evaluation", type(evaluation).__name__, f"must be a tuple of arrays {expected}."
        )
    return dict(zip(names, evaluation, strict=True))
