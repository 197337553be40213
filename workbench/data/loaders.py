"""Where data sets come from: embedded ones by name, the user's own from a DataFrame or a CSV file."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench import _validate
from workbench.data import preprocessing
from workbench.data.dataset import Dataset, evaluation_rows

__all__ = ["Embedded", "describe", "from_csv", "from_frame", "load", "names"]

# Ranges of the measurements, from the table in the data set's published description, rounded outwards.
_BREAST_CANCER_BOUNDS = {
    "mean radius": (6, 30), "mean texture": (9, 40), "mean perimeter": (40, 190), "mean area": (140, 2600),
    "mean smoothness": (0.05, 0.17), "mean compactness": (0, 0.35), "mean concavity": (0, 0.45),
    "mean concave points": (0, 0.21), "mean symmetry": (0.1, 0.31), "mean fractal dimension": (0.04, 0.1),
    "radius error": (0.1, 3), "texture error": (0.3, 5), "perimeter error": (0.7, 22), "area error": (6, 550),
    "smoothness error": (0, 0.035), "compactness error": (0, 0.14), "concavity error": (0, 0.4),
    "concave points error": (0, 0.055), "symmetry error": (0, 0.08), "fractal dimension error": (0, 0.03),
    "worst radius": (7, 37), "worst texture": (12, 50), "worst perimeter": (50, 260), "worst area": (180, 4300),
    "worst smoothness": (0.07, 0.23), "worst compactness": (0, 1.1), "worst concavity": (0, 1.3),
    "worst concave points": (0, 0.3), "worst symmetry": (0.15, 0.67), "worst fractal dimension": (0.05, 0.21),
}  # fmt: skip


@dataclass(frozen=True)
class Embedded:
    """A data set that ships with the package's dependencies: a description, and a function that reads it."""

    description: str
    read: Callable[[float, int], Dataset]


def _breast_cancer(evaluation_fraction: float, split_seed: int) -> Dataset:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer(as_frame=True)
    frame = bunch.data.assign(diagnosis=np.where(bunch.target == 1, "benign", "malignant"))
    dataset = from_frame(
        frame,
        target="diagnosis",
        positive="malignant",
        bounds=_BREAST_CANCER_BOUNDS,
        evaluation_fraction=evaluation_fraction,
        split_seed=split_seed,
        evaluation_is_public=True,
        unit="tumour",
        name="breast_cancer",
    )
    return replace(
        dataset,
        description=_EMBEDDED["breast_cancer"].description,
        licence="CC BY 4.0",
        source="UCI Breast Cancer Wisconsin (Diagnostic), embedded in scikit-learn",
    )


_EMBEDDED = {
    "breast_cancer": Embedded(
        "569 tumours, 30 measurements of cell nuclei each, benign or malignant (Wisconsin, 1995).",
        _breast_cancer,
    )
}


def names() -> list[str]:
    """Names of the data sets that need no file and no network."""
    return sorted(_EMBEDDED)


def describe(name: str) -> str:
    """One sentence about an embedded data set."""
    return _EMBEDDED[_validate.choice("data", name, _EMBEDDED)].description


def load(name: str, *, evaluation_fraction: float = 0.2, split_seed: int = 0) -> Dataset:
    """An embedded data set by name.

    :param evaluation_fraction: chance of each row to become an evaluation record, in (0, 1).
    :param split_seed: public seed of the split, >= 0.
    :raises ArgumentError: for an unknown name, with the nearest ones.
    """
    entry = _EMBEDDED[_validate.choice("data", name, _EMBEDDED)]
    return entry.read(evaluation_fraction, split_seed)


def from_frame(
    frame: pd.DataFrame,
    *,
    target: Any,
    bounds: Any = None,
    private_scaling: bool = False,
    features: Sequence[Any] | None = None,
    positive: Any = None,
    evaluation_fraction: float = 0.2,
    split_seed: int = 0,
    evaluation_is_public: bool = False,
    unit: str = "training record",
    name: str = "data frame",
) -> Dataset:
    """A data set from the user's DataFrame, one row a record.

    :param target: name of the binary target column.
    :param bounds: ``{column: (low, high)}``, the publicly known range of every feature in its own units, or one pair for
        all. Values outside are cut. Bounds taken from the private data themselves would not be covered by the guarantee.
    :param private_scaling: True, in the place of ``bounds``, scales every feature by the mean and standard deviation of the
        private training records. These are exact, and every guarantee for this data set says that it does not cover them.
    :param features: columns to use; all but the target by default.
    :param positive: the target value that counts as 1; not needed for 0 / 1 and False / True.
    :param evaluation_fraction: chance of each row to become an evaluation record, in (0, 1).
    :param split_seed: public seed of the split, >= 0.
    :param evaluation_is_public: True declares the evaluation records public; else numbers computed on them are shown
        only on request and labelled "outside the guarantee".
    :param unit: what one row is, in words.
    :raises ArgumentError: naming the argument or column and the value.
    """
    if not isinstance(frame, pd.DataFrame):
        raise _validate.ArgumentError("frame", type(frame).__name__, "must be a pandas DataFrame.")
    fraction = _validate.probability("evaluation_fraction", evaluation_fraction)
    seed = _validate.integer("split_seed", split_seed, at_least=0)
    _check_scaling(bounds, private_scaling)
    names = {label: str(label) for label in frame.columns}
    columns = [str(label) for label in frame.columns]
    repeated = sorted({column for column in columns if columns.count(column) > 1})
    if repeated:
        raise _validate.ArgumentError("frame", repeated[0], "this column name occurs more than once.")
    frame = frame.set_axis(columns, axis=1)
    target = _validate.choice("target", _column(target, names), columns)
    chosen = [column for column in columns if column != target] if features is None else _columns(features, names)
    for column in chosen:
        _validate.choice("features", column, columns)
    if not chosen or target in chosen or len(set(chosen)) < len(chosen):
        raise _validate.ArgumentError("features", chosen, "must name at least one column, each once, and not the target.")
    labels, classes = preprocessing.binary_target(frame[target], positive)
    limits: preprocessing.Bounds = {}
    if not private_scaling:
        if isinstance(bounds, Mapping):
            bounds = {_column(label, names): pair for label, pair in bounds.items()}
        limits = preprocessing.checked_bounds(bounds, chosen)
    values = preprocessing.numeric_features(frame, chosen)
    held_out = evaluation_rows(len(frame), fraction, seed)
    if held_out.sum() < 1 or (~held_out).sum() < 2:
        raise _validate.ArgumentError(
            "evaluation_fraction", fraction, f"leaves too few records of {len(frame)} on one side of the split."
        )
    if private_scaling:
        scaled = preprocessing.standardise(values, values[~held_out])
    else:
        scaled = preprocessing.scale_to_bounds(values, limits)
    return Dataset(
        name=name,
        description=f"{len(chosen)} features, target {target!r}.",
        train=(scaled[~held_out], labels[~held_out]),
        evaluation=(scaled[held_out], labels[held_out]),
        feature_names=tuple(chosen),
        target_name=target,
        classes=classes,
        bounds=limits,
        unit=unit,
        evaluation_is_public=bool(evaluation_is_public),
        private_scaling=private_scaling,
    )


def _check_scaling(bounds: Any, private_scaling: Any) -> None:
    """That the user chose one way of scaling, and knowingly."""
    if not isinstance(private_scaling, bool):
        raise _validate.ArgumentError("private_scaling", private_scaling, "must be True or False.")
    if private_scaling and bounds is not None:
        raise _validate.ArgumentError(
            "bounds", bounds, "must be left out with private_scaling=True, which scales by the private records instead."
        )
    if not private_scaling and bounds is None:
        raise _validate.ArgumentError(
            "bounds",
            None,
            "declare the public range of every feature, such as bounds={'age': (0, 100)}, or ask for private_scaling=True, "
            "which no guarantee covers.",
        )


def _column(given: Any, names: Mapping[Any, str]) -> Any:
    """The text that a column goes by, where ``given`` is its label in the frame or a whole number; else ``given``."""
    try:
        if given in names:
            return names[given]
    except TypeError:  # a list, say: no name
        return given
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


def _columns(given: Any, names: Mapping[Any, str]) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _validate.ArgumentError("features", given, "must be a list of column names.")
    return [_column(each, names) for each in given]


def from_csv(path: str | Path, *, target: Any, bounds: Any = None, **options: Any) -> Dataset:
    """A data set from a CSV file (``.gz`` and the like are unpacked); the other arguments are those of ``from_frame``.

    :raises ArgumentError: if the file is missing or no table, naming ``path``.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise _validate.ArgumentError("path", str(path), "no such file.")
    try:
        frame = pd.read_csv(file)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        reason = str(error).strip().splitlines()[0]
        raise _validate.ArgumentError("path", str(path), f"cannot be read as CSV: {reason}") from error
    return from_frame(frame, target=target, bounds=bounds, **{"name": file.name.split(".")[0], **options})
