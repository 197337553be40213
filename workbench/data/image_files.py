"""Published sets of images in the formats of their distribution: IDX files, and NumPy's .npz."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

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


class ImageSet(NamedTuple):
    """uint8 images [N, ...] and integer labels [N], training and published test split."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def read_image_set(path: str | Path) -> ImageSet:
    """Images from an .npz (x_train, y_train, x_test, y_test), or a folder of IDX files.

    :raises ArgumentError: naming ``path``, if it is none of these.
    """
    location = _validate.path("path", path)
    if location.is_file() and location.suffix == ".npz":
        arrays = read_npz(location)
        names = ("x_train", "y_train", "x_test", "y_test")
        missing = [name for name in names if name not in arrays]
        if missing:
            raise _validate.ArgumentError(
                "path", str(path), f"has no array {missing[0]!r}; it must have {', '.join(names)}."
            )
        x_train, y_train, x_test, y_test = (arrays[name] for name in names)
        return ImageSet(x_train, y_train.reshape(-1), x_test, y_test.reshape(-1))
    if location.is_dir():
        if all(_idx_file(location, name) for name in _IDX_NAMES.values()):
            return ImageSet(*(read_idx(_idx_file(location, name)) for name in _IDX_NAMES.values()))  # type: ignore[arg-type]
        raise _validate.ArgumentError(
            "path",
            str(path),
            f"is a folder without {', '.join(_IDX_NAMES.values())} (or the same with .gz).",
        )
    expectation = (
        "must be a folder of IDX files or an .npz file."
        if location.exists()
        else "no such file or folder."
    )
    raise _validate.ArgumentError("path", str(path), expectation)


def read_idx(path: str | Path) -> np.ndarray:
    """The uint8 array of an IDX file, packed (.gz) or not.

    The format is two zero bytes, 8 for uint8, the number of axes, their lengths as big-endian
    32-bit numbers, the entries.

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
        raise _validate.ArgumentError(
            "path", str(path), f"has {len(entries)} bytes instead of {expected}; is it truncated?"
        )
    return entries.reshape(shape)


def _idx_file(folder: Path, name: str) -> Path | None:
    # some distributions write a dot before "idx"
    spellings = (name, name.replace("-idx", ".idx"))
    candidates = [
        folder / f"{spelling}{suffix}" for spelling in spellings for suffix in ("", ".gz")
    ]
    return next((file for file in candidates if file.is_file()), None)
