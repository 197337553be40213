"""Files that published sets of images are distributed as."""

import gzip
import pickle
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
        "train-images-idx3-ubyte": IMAGES, "train-labels-idx1-ubyte": LABELS,
        "t10k-images-idx3-ubyte": IMAGES[:1], "t10k-labels-idx1-ubyte": LABELS[:1],
    }.items():  # fmt: skip
        content = gzip.compress(idx(array)) if suffix else idx(array)
        (tmp_path / (name.replace("-idx", mark) + suffix)).write_bytes(content)
    images = read_image_set(tmp_path)
    assert np.array_equal(images.train_images, IMAGES)
    assert images.test_labels.tolist() == [2]


def test_an_npz_is_a_set_of_images(tmp_path):
    np.savez(tmp_path / "set.npz", x_train=IMAGES, y_train=LABELS[:, None], x_test=IMAGES[:1], y_test=LABELS[:1])
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


# --- CIFAR-10 --------------------------------------------------------------------------------------------------------------

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)


def cifar(folder, contents):
    for number, name in enumerate(
        ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
    ):
        (folder / name).write_bytes(contents(number))


def published_pickle(_):
    """The dictionary as Python 2 wrote it: text strings, and NumPy's module under its old name."""

    def text(value):
        return b"T" + struct.pack("<I", len(value)) + value

    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt" + text(b"b") + b"tR(I1\n(I2\nI3072\nt"
    array += b"cnumpy\ndtype\n(" + text(b"u1") + b"I0\nI1\ntR(I3\n" + text(b"|") + b"NNNI-1\nI-1\nI0\ntb"
    array += b"I00\n" + text(PIXELS.tobytes()) + b"tb"
    return b"(d" + text(b"data") + array + b"s" + text(b"labels") + b"(lI3\naI9\nas."


@pytest.mark.parametrize(
    "contents",
    [published_pickle, *(lambda _, p=p: pickle.dumps({b"data": PIXELS, b"labels": [3, 9]}, protocol=p) for p in (2, 4))],
    ids=["published", "protocol 2", "protocol 4"],
)
def test_batches_of_cifar_are_read_in_order(tmp_path, contents):
    cifar(tmp_path, contents)
    images = read_image_set(tmp_path)
    assert (images.train_images.shape, images.test_images.shape) == ((10, 32, 32, 3), (2, 32, 32, 3))
    assert images.train_labels.tolist() == [3, 9] * 5
    # red, green and blue of the pixel in the second row and third column
    assert images.test_images[1, 1, 2].tolist() == [PIXELS[1, colour * 1024 + 34] for colour in range(3)]


class Harmful:
    def __reduce__(self):
        return print, ("this code came from a file",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({b"data": Harmful(), b"labels": [3, 9]}),
        b"",
        b"text",
        pickle.dumps([1]),
        pickle.dumps({b"data": PIXELS[:, 1:]}),
    ],
    ids=["harmful", "empty", "text", "list", "size"],
)
def test_a_batch_that_holds_something_else_is_refused_and_runs_nothing(tmp_path, capsys, content):
    cifar(tmp_path, lambda _: content)
    refused(read_image_set, tmp_path, "is not a batch of CIFAR-10")
    assert capsys.readouterr().out == ""
