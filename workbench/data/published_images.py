"""Published sets of images, with pixels in [0, 1] and the published split into training and evaluation images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data.dataset import Dataset
from workbench.data.downloads import fetch_openml, find_in_folder
from workbench.data.image_files import ImageSet, read_image_set
from workbench.data.images import from_images
from workbench.data.splits import by_place

__all__ = ["DEBIAN_FASHION_MNIST", "cifar10", "digits", "fashion_mnist", "image_files", "mnist"]

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # Debian's package dataset-fashion-mnist

_DIGITS = tuple(str(number) for number in range(10))
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_NUM_TEST = 10_000  # OpenML keeps the published order: these come last


def digits(fraction: float, seed: int, path: Any = None) -> Dataset:
    """1797 digits of 8 x 8 pixels from scikit-learn; the public range of a pixel is 0 .. 16."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    parts = [by_place(array, fraction, seed) for array in (bunch.images / 16, bunch.target.astype(np.int32))]
    (images, held_images), (labels, held_labels) = parts
    return from_images(images, labels, classes=_DIGITS, evaluation=(held_images, held_labels))


def mnist(fraction: float, seed: int, path: Any = None) -> Dataset:
    """70 000 handwritten digits of 28 x 28 pixels."""
    return _published("mnist", path, (28, 28), _DIGITS, "mnist_784")


def fashion_mnist(fraction: float, seed: int, path: Any = None) -> Dataset:
    """70 000 pieces of clothing of 28 x 28 pixels."""
    return _published("fashion_mnist", path, (28, 28), _CLOTHES, "Fashion-MNIST")


def cifar10(fraction: float, seed: int, path: Any = None) -> Dataset:
    """60 000 photographs of 32 x 32 pixels in three colours."""
    return _published("cifar10", path, (32, 32, 3), _CIFAR, "CIFAR_10")


def image_files(name: str) -> Path | None:
    """The files of image set ``name`` on this machine: in the user's data folder, or of a Debian package."""
    found = find_in_folder(name, f"{name}.npz")
    if found is None and name == "fashion_mnist" and DEBIAN_FASHION_MNIST.is_dir():
        found = DEBIAN_FASHION_MNIST
    return found


def _published(name: str, path: Any, shape: tuple[int, ...], classes: tuple[str, ...], openml: str) -> Dataset:
    place = path if path is not None else image_files(name)
    images = read_image_set(place) if place is not None else _from_openml(name, shape, openml)
    for part in (images.train_images, images.test_images):
        if part.shape[1:] != shape:
            raise _validate.ArgumentError("data", name, f"images must be {_size(shape)}, not {_size(part.shape[1:])}.")
    return from_images(
        images.train_images,
        images.train_labels,
        classes=classes,
        evaluation=(images.test_images, images.test_labels),
    )


def _from_openml(name: str, shape: tuple[int, ...], openml: str) -> ImageSet:
    files = (
        "a folder with data_batch_1 .. data_batch_5 and test_batch" if name == "cifar10" else "a folder with the IDX files"
    )
    instead = (
        f"Give path=, {files} or an .npz with x_train, y_train, x_test and y_test, or put it as {name} or {name}.npz in the "
        "folder that the environment variable WORKBENCH_DATA names"
    )
    instead += "; on Debian: apt install dataset-fashion-mnist." if name == "fashion_mnist" else "."
    bunch = fetch_openml(name, instead, name=openml, version=1, as_frame=False)
    pixels = np.asarray(bunch.data)
    if pixels.ndim != 2 or pixels.shape[1] != np.prod(shape) or len(pixels) <= _NUM_TEST:
        raise _validate.ArgumentError("data", name, f"OpenML gave an array of shape {pixels.shape}. {instead}")
    pixels = pixels.astype(np.uint8)
    x = pixels.reshape(-1, *shape)
    if len(shape) == 3:  # rows are the red, then the green, then the blue pixels
        x = pixels.reshape(-1, shape[2], *shape[:2]).transpose(0, 2, 3, 1)
    y = np.asarray(bunch.target).astype(np.int64)
    return ImageSet(x[:-_NUM_TEST], y[:-_NUM_TEST], x[-_NUM_TEST:], y[-_NUM_TEST:])


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "single numbers"
