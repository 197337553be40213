"""Files that published sets of images are distributed as."""

import gzip
import struct

import numpy as np
import pytest

from workbench import ArgumentError
from workbench.data.image_files import read_idx, read_image_set

IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([2, 0, 1], np.uint8)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def refused(function, path, reason):
    with pytest.raises(ArgumentError) as caught:
        function(path)
    assert caught.value.argument == "path"
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("array", [IMAGES, LABELS])
def test_idx_files_are_read_packed_or_not(tmp_path, pack, array):
    (tmp_path / "file").write_bytes(pack(idx(array)))
    assert np.array_equal(read_idx(tmp_path / "file"), array)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x08", "not an IDX file"),
        (b"\0\0\x08\0", "not an IDX file"),
        (b"\0\0\x0d" + idx(LABELS)[3:], "not an IDX file"),
        (b"some text that is long enough", "not an IDX file"),
        (idx(LABELS)[:6], "not an IDX file"),
        (idx(LABELS)[:-1], "2 bytes instead of 3"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "is it truncated"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-9], "cannot be read"),
    ],
)
def test_a_file_that_is_no_idx_is_named(tmp_path, content, reason):
    (tmp_path / "file").write_bytes(content)
    refused(read_idx, tmp_path / "file", reason)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("mark", ["-idx", ".idx"])
def test_a_folder_of_idx_files_is_a_set_of_images(tmp_path, suffix, mark):
    for name, array in {
        "train-images-idx3-ubyte": IMAGES,
        "train-labels-idx1-ubyte": LABELS,
        "t10k-images-idx3-ubyte": IMAGES[:1],
        "t10k-labels-idx1-ubyte": LABELS[:1],
    }.items():
        content = gzip.compress(idx(array)) if suffix else idx(array)
        (tmp_path / (name.replace("-idx", mark) + suffix)).write_bytes(content)
    images = read_image_set(tmp_path)
    assert np.array_equal(images.train_images, IMAGES)
    assert images.test_labels.tolist() == [2]


def test_an_npz_is_a_set_of_images(tmp_path):
    np.savez(
        tmp_path / "set.npz",
        x_train=IMAGES,
        y_train=LABELS[:, None],
        x_test=IMAGES[:1],
        y_test=LABELS[:1],
    )
    images = read_image_set(tmp_path / "set.npz")
    assert np.array_equal(images.train_images, IMAGES)
    assert images.train_labels.tolist() == [2, 0, 1]
    np.savez(tmp_path / "half.npz", x_train=IMAGES, y_train=LABELS)
    refused(read_image_set, tmp_path / "half.npz", "no array 'x_test'")


def test_other_places_are_refused_with_what_is_needed(tmp_path):
    refused(read_image_set, tmp_path, "train-images-idx3-ubyte")
    refused(read_image_set, tmp_path / "nowhere", "no such file or folder")
    (tmp_path / "file.txt").write_text("text")
    refused(read_image_set, tmp_path / "file.txt", "must be a folder of IDX files")
