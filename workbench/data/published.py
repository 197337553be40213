"""Published tables, with the public bounds and categories of their documentation."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.columns import Categorical, Numeric
from workbench.data.csv_files import read_csv
from workbench.data.dataset import Dataset
from workbench.data.downloads import fetch_openml, find_in_folder
from workbench.data.schema import Schema
from workbench.data.splits import by_place
from workbench.data.tables import from_frame

__all__ = ["abalone", "adult", "breast_cancer", "table_file"]

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

# Categories are those of adult.names; "?" and missing values become "(other)". Ages end at 90, and gains, losses and hours
# at the limits of the survey. Left out are fnlwgt, a sampling weight, and education, which education_num has as a number.
_ADULT = Schema(
    {
        "age": Numeric(17, 90, whole=True),
        "workclass": Categorical(
            (
                "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
                "Never-worked",
            ),
            other=True,
        ),
        "education_num": Numeric(1, 16, whole=True),
        "marital_status": Categorical(
            (
                "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
                "Married-AF-spouse",
            ),
            other=True,
        ),
        "occupation": Categorical(
            (
                "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
                "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
                "Priv-house-serv", "Protective-serv", "Armed-Forces",
            ),
            other=True,
        ),
        "relationship": Categorical(
            ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"), other=True
        ),
        "race": Categorical(("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"), other=True),
        "sex": Categorical(("Female", "Male"), other=True),
        "capital_gain": Numeric(0, 99_999, whole=True),
        "capital_loss": Numeric(0, 4356, whole=True),
        "hours_per_week": Numeric(1, 99, whole=True),
        "native_country": Categorical(
            (
                "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)",
                "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland",
                "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador",
                "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia",
                "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
            ),
            other=True,
        ),
    }
)  # fmt: skip

# Ranges of abalone.names, rounded outwards; lengths and weights as distributed, divided by 200 (millimetres, grams).
_ABALONE = Schema(
    {
        "sex": Categorical(("M", "F", "I")),
        "length": Numeric(0, 0.9),
        "diameter": Numeric(0, 0.7),
        "height": Numeric(0, 1.2),
        "whole_weight": Numeric(0, 2.9),
        "shucked_weight": Numeric(0, 1.5),
        "viscera_weight": Numeric(0, 0.8),
        "shell_weight": Numeric(0, 1.1),
    }
)


def breast_cancer(fraction: float, seed: int, path: Any = None) -> Dataset:
    """569 tumours from scikit-learn: 30 measurements, malignant counts as 1."""
    values = _embedded("breast_cancer.csv")
    frame = pd.DataFrame(values[:, :-1], columns=list(_BREAST_CANCER_BOUNDS))
    frame["diagnosis"] = np.where(values[:, -1] == 1, "benign", "malignant")
    train, evaluation = by_place(frame, fraction, seed)
    return from_frame(
        train, evaluation=evaluation, target="diagnosis", classes=("benign", "malignant"), bounds=_BREAST_CANCER_BOUNDS
    )


def _embedded(name: str) -> np.ndarray:
    """A table of scikit-learn's own, read without importing it, which takes longer than a small fit."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / name, delimiter=",", skiprows=1)


def adult(fraction: float, seed: int, path: Any = None) -> Dataset:
    """48 842 people of the US census of 1994: income above 50 000 dollars counts as 1."""
    frame = _table("adult", path, "https://archive.ics.uci.edu/dataset/2/adult", version=2)
    frame = frame.rename(columns={"class": "income"})
    _need_columns("adult", frame, [*_ADULT.columns, "income"])
    income = frame["income"].astype("string").str.strip().str.rstrip(".")  # UCI's file of test rows ends them with a point
    text = [name for name, column in _ADULT.columns.items() if isinstance(column, Categorical)]
    trimmed = {name: frame[name].astype("string").str.strip() for name in text}
    train, evaluation = by_place(frame.assign(income=income, **trimmed), fraction, seed)
    return from_frame(train, evaluation=evaluation, target="income", classes=("<=50K", ">50K"), schema=_ADULT)


def abalone(fraction: float, seed: int, path: Any = None) -> Dataset:
    """4177 shells: more than 9 rings, which tell the age, count as 1."""
    frame = _table("abalone", path, "https://archive.ics.uci.edu/dataset/1/abalone", version=1)
    frame = frame.rename(columns={"class_number_of_rings": "rings"})
    _need_columns("abalone", frame, [*_ABALONE.columns, "rings"])
    train, evaluation = by_place(frame, fraction, seed)
    return from_frame(train, evaluation=evaluation, target="rings", threshold=9, schema=_ABALONE)


def table_file(name: str) -> Path | None:
    """The file of table ``name`` in the user's folder of data."""
    return find_in_folder(f"{name}.csv", f"{name}.csv.gz")


def _table(name: str, path: Any, page: str, version: int) -> pd.DataFrame:
    """The table with column names in lower case and underscores, as the files of several distributors differ in these."""
    file = path if path is not None else table_file(name)
    if file is not None:
        frame = read_csv(file)
    else:
        instead = (
            f"Download it from {page}, save it as CSV with a line of column names, and give path=, or put it as {name}.csv "
            "in the folder that the environment variable WORKBENCH_DATA names."
        )
        frame = fetch_openml(name, instead, name=name, version=version, as_frame=True).frame
    labels = [str(label).strip().lower().replace("-", "_").replace(" ", "_").replace(".", "_") for label in frame.columns]
    return frame.set_axis(labels, axis=1)


def _need_columns(name: str, frame: pd.DataFrame, columns: list[str]) -> None:
    missing = [column for column in columns if list(frame.columns).count(column) != 1]
    if missing:
        raise _validate.ArgumentError(
            "data", name, f"must have exactly one column {missing[0]!r}; it needs {', '.join(columns)}."
        )
