"""Published sets of images in the formats of their distribution: IDX files, NumPy's .npz, and CIFAR's batches."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench import _folders, _validate
from workbench.data.files import UnreadableFileError, read_npz

__all__ = ["ImageSet", "read_idx", "read_image_set"]

_IDX_NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_CIFAR_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


class ImageSet(NamedTuple):
    """uint8 images [N, ...] and integer labels [N], training and published test split."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def read_image_set(path: str | Path) -> ImageSet:
    """Images from an .npz (x_train, y_train, x_test, y_test), a folder of IDX files, or one of CIFAR's batches.

    :raises ArgumentError: naming ``path``, if it is none of these.
    """
    place = _validate.path("path", path)
    if place.is_file() and place.suffix == ".npz":
        arrays = read_npz(place)
        names = ("x_train", "y_train", "x_test", "y_test")
        missing = [name for name in names if name not in arrays]
        if missing:
            raise _validate.ArgumentError(
                "path", str(path), f"has no array {missing[0]!r}; it must have {', '.join(names)}."
            )
        x_train, y_train, x_test, y_test = (arrays[name] for name in names)
        return ImageSet(x_train, y_train.reshape(-1), x_test, y_test.reshape(-1))  # Keras has CIFAR's labels in a column
    if place.is_dir():
        if all(_idx_file(place, name) for name in _IDX_NAMES.values()):
            return ImageSet(*(read_idx(_idx_file(place, name)) for name in _IDX_NAMES.values()))  # type: ignore[arg-type]
        if all((place / name).is_file() for name in (*_CIFAR_BATCHES, "test_batch")):
            return _read_cifar(place)
        raise _validate.ArgumentError(
            "path",
            str(path),
            f"is a folder with neither {', '.join(_IDX_NAMES.values())} (or the same with .gz) nor CIFAR-10's data_batch_1 "
            ".. data_batch_5 and test_batch.",
        )
    what = (
        "must be a folder of IDX files or of CIFAR-10's batches, or an .npz file."
        if place.exists()
        else "no such file or folder."
    )
    raise _validate.ArgumentError("path", str(path), what)


def read_idx(path: str | Path) -> np.ndarray:
    """The uint8 array of an IDX file, packed (.gz) or not.

    The format is two zero bytes, 8 for uint8, the number of axes, their lengths as big-endian 32-bit numbers, the entries.

    :raises ArgumentError: naming ``path``, if the file is not in that format or truncated.
    """
    file = Path(path)
    try:
        content = _folders.content(file)
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(path, "IDX", str(error)) from error
    axes = content[3] if len(content) > 3 else 0
    if content[:3] != b"\x00\x00\x08" or not axes or len(content) < 4 + 4 * axes:
        raise _validate.ArgumentError("path", str(path), "is not an IDX file of bytes.")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    entries = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    expected = int(np.prod(shape, dtype=object))
    if len(entries) != expected:
        raise _validate.ArgumentError("path", str(path), f"has {len(entries)} bytes instead of {expected}; is it truncated?")
    return entries.reshape(shape)


def _idx_file(folder: Path, name: str) -> Path | None:
    # some distributions write a dot before "idx"
    spellings = (name, name.replace("-idx", ".idx"))
    candidates = [folder / f"{spelling}{suffix}" for spelling in spellings for suffix in ("", ".gz")]
    return next((file for file in candidates if file.is_file()), None)


class _ArraysOnly(pickle.Unpickler):
    """Reads CIFAR's pickles of NumPy arrays, lists and text, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.ndarray.__reduce__(np.empty(0))[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in a file of arrays")


def _latin1(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


def _read_cifar(folder: Path) -> ImageSet:
    batches = [_cifar_batch(folder / name) for name in (*_CIFAR_BATCHES, "test_batch")]
    images, labels = zip(*batches, strict=True)
    return ImageSet(np.concatenate(images[:-1]), np.concatenate(labels[:-1]), images[-1], labels[-1])


def _cifar_batch(file: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _ArraysOnly(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        # rows are the red, then the green, then the blue pixels
        images = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, np.asarray(batch[b"labels"], np.int64)
    except (OSError, EOFError, pickle.UnpicklingError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise _validate.ArgumentError("path", str(file), f"is not a batch of CIFAR-10: {error}") from error
