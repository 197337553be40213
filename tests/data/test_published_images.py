"""Published sets of images: from scikit-learn, Debian's package, files and OpenML."""

import urllib.error
from types import SimpleNamespace

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data import published_images

SETS = {"mnist": (28, 28), "fashion_mnist": (28, 28), "cifar10": (32, 32, 3)}


def small(name, num_train=6, num_test=2):
    random = np.random.default_rng(0)
    shapes = {"train": (num_train, *SETS[name]), "test": (num_test, *SETS[name])}
    arrays = {f"x_{side}": random.integers(0, 256, shape, np.uint8) for side, shape in shapes.items()}
    return {**arrays, "y_train": np.arange(num_train), "y_test": np.arange(num_test)}


def test_digits_are_images_in_the_unit_interval():
    digits = wb.data.load("digits")
    assert digits.num_train + digits.num_evaluation == 1797
    assert (digits.image_shape, digits.arrays, digits.feature_names) == ((8, 8), ("x", "y"), ())
    assert digits.classes == tuple("0123456789")
    assert (digits.train[0].min(), digits.train[0].max()) == (0, 1)
    assert wb.data.load("digits", split_seed=1).num_evaluation != digits.num_evaluation


@pytest.mark.thorough
def test_fashion_mnist_of_debian_has_its_published_split():
    if not published_images.DEBIAN_FASHION_MNIST.is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    clothes = wb.data.load("fashion_mnist")
    assert clothes.train[0].shape == (60_000, 28, 28)
    assert clothes.evaluation[0].shape == (10_000, 28, 28)
    assert clothes.train[0].dtype == np.float32
    assert np.bincount(clothes.train[1]).tolist() == [6000] * 10
    assert np.bincount(clothes.evaluation[1]).tolist() == [1000] * 10
    assert clothes.evaluation_label == "public data"
    assert "fashion_mnist" in wb.data.names()


@pytest.mark.parametrize("name", SETS)
def test_images_come_from_a_path_with_their_split(nothing_at_hand, name):
    arrays = small(name)
    np.savez(nothing_at_hand / "any.npz", **arrays)
    dataset = wb.data.load(name, path=nothing_at_hand / "any.npz", evaluation_fraction=0.9)
    assert dataset.image_shape == SETS[name]
    assert np.array_equal(dataset.train[0], (arrays["x_train"] / 255).astype(np.float32))
    assert dataset.evaluation[1].tolist() == [0, 1]
    assert len(dataset.classes) == 10
    assert "images" in repr(dataset)


def test_images_in_the_users_folder_of_data_are_found(nothing_at_hand, monkeypatch):
    monkeypatch.setenv("WORKBENCH_DATA", str(nothing_at_hand))
    assert wb.data.info("mnist").available == ""
    np.savez(nothing_at_hand / "mnist.npz", **small("mnist"))
    assert "mnist" in wb.data.names()
    assert wb.data.load("mnist").num_train == 6


@pytest.mark.parametrize("name", SETS)
def test_images_come_from_openml_in_the_published_order(openml, monkeypatch, name):
    monkeypatch.setattr(published_images, "_NUM_TEST", 2)
    arrays = small(name)
    pixels = np.concatenate([arrays["x_train"], arrays["x_test"]])
    if pixels.ndim == 4:
        pixels = pixels.transpose(0, 3, 1, 2)  # red, green and blue one after another
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    openml(SimpleNamespace(data=pixels.reshape(8, -1).astype(float), target=labels.astype(str).astype(object)))
    dataset = wb.data.load(name)
    assert np.array_equal(dataset.train[0], (arrays["x_train"] / 255).astype(np.float32))
    assert np.array_equal(dataset.evaluation[0], (arrays["x_test"] / 255).astype(np.float32))
    assert dataset.train[1].tolist() == list(range(6))


@pytest.mark.parametrize("name", SETS)
def test_without_a_network_the_user_is_told_what_to_do(openml, name):
    openml(urllib.error.URLError("no route to host"))
    with pytest.raises(ArgumentError, match=rf"^data='{name}': .*path=.*x_train.*WORKBENCH_DATA") as caught:
        wb.data.load(name)
    assert ("apt install" in str(caught.value)) == (name == "fashion_mnist")


def test_another_answer_of_openml_is_refused(openml):
    openml(SimpleNamespace(data=np.zeros((5, 3)), target=np.zeros(5)))
    with pytest.raises(ArgumentError, match=r"^data='mnist': OpenML gave an array of shape \(5, 3\)"):
        wb.data.load("mnist")


def test_images_of_another_size_are_refused(nothing_at_hand):
    np.savez(nothing_at_hand / "any.npz", **small("cifar10"))
    with pytest.raises(ArgumentError, match=r"^data='mnist': images must be 28 x 28, not 32 x 32 x 3"):
        wb.data.load("mnist", path=nothing_at_hand / "any.npz")
