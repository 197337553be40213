"""Data sets of images from arrays."""

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 6, 5), np.uint8)
LABELS = np.arange(40) % 3


def test_bytes_are_divided_by_255():
    dataset = wb.data.from_images(IMAGES, LABELS, classes=3, evaluation=(IMAGES[:2], LABELS[:2]))
    assert np.array_equal(dataset.train[0], (IMAGES / 255).astype(np.float32))
    assert (dataset.train[0].dtype, dataset.train[1].dtype) == (np.float32, np.int32)
    assert (dataset.image_shape, dataset.feature_names, dataset.classes) == (
        (6, 5),
        (),
        ("0", "1", "2"),
    )


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, bool])
def test_numbers_from_zero_to_one_are_taken_as_they_are(kind):
    images = (IMAGES > 99).astype(kind)
    dataset = wb.data.from_images(images, evaluation=(images[:1],))
    assert np.array_equal(dataset.train[0], images.astype(np.float32))
    assert dataset.train[0].dtype == np.float32


def test_images_and_labels_are_split_together():
    images = np.repeat(np.repeat(LABELS[:, None, None], 4, 1), 4, 2) / 2
    dataset = wb.data.from_images(
        images, LABELS, classes=3, split_seed=3, unit="drawing", name="sketches"
    )
    assert dataset.num_train + dataset.num_evaluation == 40
    for x, y in (dataset.train, dataset.evaluation):
        assert np.array_equal(2 * x[:, 0, 0], y)
    assert (dataset.unit, dataset.name, dataset.evaluation_label) == (
        "drawing",
        "sketches",
        "outside the guarantee",
    )


def test_images_need_no_labels_and_may_have_colours():
    dataset = wb.data.from_images(np.zeros((40, 6, 5, 3)), evaluation_is_public=True)
    assert (dataset.arrays, dataset.image_shape, dataset.target_name) == (("x",), (6, 5, 3), "")
    assert dataset.evaluation_label == "public data"


def test_declared_classes_do_not_depend_on_the_labels():
    dataset = wb.data.from_images(IMAGES, LABELS * 0, classes=["cat", "dog"])
    assert dataset.classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("argument", "shown", "arguments", "options"),
    [
        ("images", "(40, 30)", (IMAGES.reshape(40, 30),), {}),
        ("images", "(40, 6, 5, 2)", (np.zeros((40, 6, 5, 2)),), {}),
        ("images", "(40, 0, 5)", (np.zeros((40, 0, 5)),), {}),
        ("images", "'str'", ("text",), {}),
        ("images", "'int64'", (IMAGES.astype(np.int64),), {}),
        ("images", "'float64'", (np.full((40, 2, 2), 1.5),), {}),
        ("images", "'float64'", (np.full((40, 2, 2), -0.5),), {}),
        ("images", "'float64'", (np.full((40, 2, 2), np.nan),), {}),
        ("labels", "(39,)", (IMAGES, LABELS[:39]), {}),
        ("labels", "'float64'", (IMAGES, LABELS / 1), {}),
        ("labels", "(40,)", (IMAGES, LABELS - 1), {}),
        ("labels", "(40,)", (IMAGES, LABELS), {"classes": ["a", "b"]}),
        ("classes", "None", (IMAGES, LABELS), {"classes": None}),
        ("images", "'MaskedArray'", (np.ma.masked_equal(IMAGES, IMAGES[0, 0, 0]),), {}),
        ("labels", "'MaskedArray'", (IMAGES, np.ma.masked_equal(LABELS, 0)), {}),
        ("evaluation", "ndarray", (IMAGES, LABELS), {"evaluation": IMAGES}),
        ("evaluation", "tuple", (IMAGES, LABELS), {"evaluation": (IMAGES,)}),
        (
            "evaluation images",
            "(40, 5, 6)",
            (IMAGES,),
            {"evaluation": (IMAGES.transpose(0, 2, 1),)},
        ),
        ("evaluation labels", "(40,)", (IMAGES, LABELS), {"evaluation": (IMAGES[:3], LABELS)}),
        ("images", "'ndarray'", (IMAGES[:1],), {"evaluation": (IMAGES,)}),
        ("images", "'ndarray'", (IMAGES,), {"evaluation": (IMAGES[:0],)}),
    ],
)
def test_images_that_cannot_be_used_are_named(argument, shown, arguments, options):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_images(*arguments, **{"classes": 3, **options})
    assert caught.value.argument == argument
    assert shown in str(caught.value).partition(": ")[0]
    assert "\n" not in str(caught.value)
