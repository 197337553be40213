"""The pictures of results and their labels."""

import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpyro.infer.autoguide import AutoMultivariateNormal

import workbench as wb
from tests import fakes
from workbench import ArgumentError

FITS = {
    "logistic": ("breast_cancer", {"coefficients", "check"}),
    "hierarchical_logistic": ("hierarchical", {"groups", "check"}),
    "gmm": ("mixture", {"mixture", "check"}),
    "vae": ("digits", {"samples", "reconstructions", "latent plane"}),
}


# one picture alone is new in each, and tests/plots and the report draw those
LONG = ("hierarchical_logistic", "gmm", "vae")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.thorough) if name in LONG else name for name in FITS
    ],
)
def fitted(request):
    data, own = FITS[request.param]
    with fakes.installed():
        return wb.fit(request.param, data, epsilon=8.0, iterations=30, seed=1), own


def texts(figure):
    """All text in a figure."""
    return " ".join(text.get_text() for text in figure.findobj(Text))


def test_every_picture_is_a_figure_with_its_label(fitted):
    result, own = fitted
    expected = {"curves", "clipping", *own}
    if result.draws and "coefficients" not in own:  # the coefficients are a forest
        expected.add("forest")
    if (
        result.model == "gmm" or result.posterior_kind == "noise-aware"
    ):  # sorted components, unknown curvature
        expected.add("pairs")
    assert set(result.pictures) == expected
    for name in result.pictures:
        figure = result.plot(name)
        assert isinstance(figure, Figure)
        assert "covered" in texts(figure) or "public data" in texts(figure), name


@pytest.mark.thorough
def test_a_loaded_result_draws_what_needs_no_records(fitted, tmp_path):
    result, own = fitted
    loaded = wb.load(result.save(tmp_path))
    assert set(loaded.pictures) == set(result.pictures)
    for name in own - {"check", "reconstructions"}:
        assert "public data" not in texts(loaded.plot(name))
    for name in own & {"check", "reconstructions"}:
        with pytest.raises(ArgumentError, match=r"^data=None: ") as caught:
            loaded.plot(name)
        assert caught.value.argument == "data"


def test_pictures_of_private_records_are_outside_the_guarantee(fitted):
    result, own = fitted
    private = dataclasses.replace(wb.data.load(FITS[result.model][0]), evaluation_is_public=False)
    for name in own & {"check", "reconstructions", "mixture", "latent plane"}:
        assert "outside the guarantee" in texts(result.plot(name, data=private))
    for name in own & {"coefficients", "groups", "samples"}:
        assert "outside the guarantee" not in texts(result.plot(name, data=private))


def test_a_release_made_with_private_statistics_is_outside_in_every_picture(fitted):
    result, own = fitted
    outside = dataclasses.replace(result, release_label="outside the guarantee")
    for name in own - {"check"}:
        assert "outside the guarantee" in texts(outside.plot(name))


def test_an_unknown_picture_is_named_with_the_nearest(fitted):
    result, _ = fitted
    with pytest.raises(
        ArgumentError, match=r"picture='curve': unknown name; did you mean 'curves'"
    ):
        result.plot("curve")


def test_correlations_that_are_zero_by_construction_are_not_drawn(guided):
    assert guided.quantities_are_independent
    with pytest.raises(
        ArgumentError, match=r"^picture='pairs': .*independent, .* zero by construction"
    ) as caught:
        guided.plot("pairs")
    assert caught.value.argument == "picture"


@pytest.mark.thorough
def test_pairs_are_the_six_clearest_quantities():
    model = dataclasses.replace(wb.models.get("logistic"), guide=AutoMultivariateNormal)
    result = wb.fit(model, "breast_cancer", epsilon=8.0, iterations=5, seed=1)
    draws = {
        "weights": np.random.default_rng(0).normal(size=(200, 30)) + 10 * (np.arange(30) == 0),
        "intercept": np.ones(200),
    }
    shown = texts(dataclasses.replace(result, draws=draws).plot("pairs"))
    assert "weights[mean radius]" in shown.replace("\n", " ")
    assert shown.count("correlation") == 15  # of six
