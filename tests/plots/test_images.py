"""Figures of images."""

import numpy as np
import pytest

from tests.plots.figures import GENERATOR, outside, small_print, ticks
from workbench._validate import ArgumentError
from workbench.plots import image_grid_figure, latent_grid_figure, reconstructions_figure

IMAGES = GENERATOR.uniform(size=(11, 5, 4))


def mosaic(axes):
    return np.asarray(axes.images[0].get_array())


def test_images_stand_in_order_and_empty_places_are_transparent():
    figure = image_grid_figure(IMAGES, "covered", columns=4)
    picture = mosaic(figure.axes[0])
    assert picture.shape == (3 * 6 - 1, 4 * 5 - 1, 4)
    assert np.allclose(picture[6:11, 5:9, :3], IMAGES[5][..., None])
    assert (picture[6:11, 5:9, 3] == 1).all()
    assert (picture[12:, 15:, 3] == 0).all()
    assert (picture[5, :, 3] == 0).all()  # between rows


def test_images_can_have_colours():
    images = GENERATOR.uniform(size=(2, 5, 4, 3))
    picture = mosaic(image_grid_figure(images, "covered").axes[0])
    assert np.allclose(picture[:, :4, :3], images[0])


def test_a_single_colour_is_grey():
    grey, flat = (
        mosaic(image_grid_figure(images, "covered").axes[0])
        for images in (IMAGES[..., None], IMAGES)
    )
    assert np.array_equal(grey, flat)


def test_brightness_is_not_stretched():
    """Zero is black and one is white, whatever the images contain."""
    assert mosaic(image_grid_figure(np.full((1, 2, 2), 0.3), "covered").axes[0]).max() == 1.0
    assert np.allclose(
        mosaic(image_grid_figure(np.full((1, 2, 2), 0.3), "covered").axes[0])[..., :3], 0.3
    )


def test_a_grid_grows_with_its_rows_and_keeps_its_width():
    few, many = (
        image_grid_figure(GENERATOR.uniform(size=(count, 5, 4)), "covered") for count in (8, 64)
    )
    assert few.get_figwidth() == many.get_figwidth() <= 7
    assert few.get_figheight() < many.get_figheight()


@pytest.mark.parametrize("label", ["covered", "public data", "outside the guarantee"])
def test_the_label_fits_below_a_single_image(label):
    figure = image_grid_figure(IMAGES[:1], label, title="one image")
    assert small_print(figure).startswith(label)
    assert not outside(figure, [figure._supxlabel, figure._suptitle])


def test_reconstructions_stand_below_their_originals():
    other = np.clip(IMAGES - 0.1, 0, 1)
    figure = reconstructions_figure(IMAGES, other, "public data", columns=8)
    assert len(figure.axes) == 2
    first = mosaic(figure.axes[0])
    assert np.allclose(first[:5, :4, 0], IMAGES[0])
    assert np.allclose(first[6:11, :4, 0], other[0])
    last = mosaic(figure.axes[1])
    assert np.allclose(last[6:11, 10:14, 0], other[10])
    assert (last[:, 15:, 3] == 0).all()
    assert ticks(figure.axes[0]) == ["record", "reconstruction"]
    error = np.sqrt(np.mean((IMAGES - other) ** 2))
    assert f"RMSE per pixel {error:.3f}" in figure.get_suptitle()
    assert figure.get_figwidth() <= 7.01


def test_a_latent_grid_names_its_values():
    images = GENERATOR.uniform(size=(3, 4, 5, 5))
    figure = latent_grid_figure(
        images, "covered", vertical=[1, 0, -1], horizontal=[-2, -1, 1, 2], names=("a", "b")
    )
    (axes,) = figure.axes
    assert ticks(axes) == ["1", "0", "-1"]
    assert ticks(axes, "x") == ["-2", "-1", "1", "2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b")
    assert np.allclose(mosaic(axes)[12:17, 6:11, 0], images[2, 1])
    assert np.allclose(axes.get_yticks(), [2, 8, 14])


def test_a_large_latent_grid_names_every_second_value():
    (axes,) = latent_grid_figure(np.zeros((20, 20, 2, 2)), "covered").axes
    assert ticks(axes) == [str(number) for number in range(1, 20, 2)]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 3)), r"images=.*\[images, height, width\]"),
        (np.zeros((2, 3, 3, 2)), "1 or 3 colours"),
        (np.full((2, 3, 3), 2.0), "at most 1, but contains 2"),
        (np.full((2, 3, 3), -1.0), "at least 0"),
        (np.full((2, 3, 3), np.nan), "finite"),
        (np.zeros((0, 3, 3)), "is empty along its axis of images"),
        ("words", "array of numbers"),
    ],
)
def test_what_is_no_image_is_an_error(images, message):
    with pytest.raises(ArgumentError, match=message):
        image_grid_figure(images, "covered")


def test_other_useless_arguments_are_errors():
    with pytest.raises(ArgumentError, match="columns=0"):
        image_grid_figure(IMAGES, "covered", columns=0)
    with pytest.raises(
        ArgumentError, match=r"reconstructions=.*has 3 images, but originals has 11"
    ):
        reconstructions_figure(IMAGES, IMAGES[:3], "covered")
    with pytest.raises(ArgumentError, match=r"vertical=.*has 2 rows, but images has 3"):
        latent_grid_figure(np.zeros((3, 3, 2, 2)), "covered", vertical=[1, 2])
    with pytest.raises(ArgumentError, match="names="):
        latent_grid_figure(np.zeros((3, 3, 2, 2)), "covered", names=("a",))
