"""Bayesian logistic regression against formulas written out by hand."""

import dataclasses

import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from workbench.gallery.logistic import guide, model, predict

import workbench as wb
from workbench import ArgumentError
from workbench.models import logistic as entry

RANDOM = np.random.default_rng(11)
FEATURES = RANDOM.uniform(-1, 1, (6, 3)).astype(np.float32)
TARGET = np.array([0, 1, 1, 0, 1, 0], np.int32)
LATENTS = {"weights": np.array([0.5, -2.0, 1.0], np.float32), "intercept": np.float32(0.3)}


def normal(values, scale):
    return np.sum(
        -0.5 * (np.asarray(values) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
    )


def likelihoods():
    margin = (FEATURES @ LATENTS["weights"] + LATENTS["intercept"]) * (2 * TARGET - 1)
    return -np.log1p(np.exp(-margin))


@pytest.mark.parametrize("prior_scale", [0.5, 5.0])
def test_log_density_is_prior_plus_likelihood(prior_scale):
    found, _ = log_density(model, (FEATURES, TARGET), {"prior_scale": prior_scale}, LATENTS)
    prior = normal(LATENTS["weights"], prior_scale) + normal(LATENTS["intercept"], prior_scale)
    assert float(found) == pytest.approx(prior + likelihoods().sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("prior", "density"),
    [("laplace", stats.laplace), ("student_t", stats.t(3)), ("cauchy", stats.cauchy)],
)
def test_other_priors_have_their_own_density(prior, density):
    found, _ = log_density(model, (FEATURES, TARGET), {"prior": prior, "prior_scale": 2.0}, LATENTS)
    values = np.append(LATENTS["weights"], LATENTS["intercept"])
    expected = np.sum(density.logpdf(values / 2.0) - np.log(2.0)) + likelihoods().sum()
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_without_an_intercept_the_logit_is_zero_at_the_origin():
    weights = {"weights": LATENTS["weights"]}
    found, _ = log_density(model, (FEATURES, TARGET), {"intercept": False}, weights)
    margin = FEATURES @ LATENTS["weights"] * (2 * TARGET - 1)
    expected = normal(LATENTS["weights"], 5.0) - np.log1p(np.exp(-margin)).sum()
    assert float(found) == pytest.approx(expected, rel=1e-5)
    assert np.asarray(predict(weights, np.zeros((2, 3), np.float32))).tolist() == [0.5, 0.5]


def test_likelihood_of_a_minibatch_is_scaled_to_all_records():
    found, _ = log_density(
        handlers.seed(model, 0), (FEATURES, TARGET), {"num_records": 60}, LATENTS
    )
    prior = normal(LATENTS["weights"], 5.0) + normal(LATENTS["intercept"], 5.0)
    assert float(found) == pytest.approx(prior + 10 * likelihoods().sum(), rel=1e-5)


def test_predicted_probability_is_the_sigmoid_of_the_logit():
    logits = FEATURES @ LATENTS["weights"] + LATENTS["intercept"]
    assert np.asarray(predict(LATENTS, FEATURES)) == pytest.approx(
        1 / (1 + np.exp(-logits)), rel=1e-5
    )


def test_target_is_drawn_where_none_is_observed():
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(FEATURES)
    assert not trace["y"]["is_observed"]
    assert set(np.unique(trace["y"]["value"])) <= {0, 1}


@pytest.mark.parametrize("intercept", [True, False])
def test_guide_covers_exactly_the_models_latents(intercept):
    with numpyro.handlers.seed(rng_seed=0):
        ours = handlers.trace(guide).get_trace(FEATURES, TARGET, intercept=intercept)
        theirs = handlers.trace(model).get_trace(FEATURES, TARGET, intercept=intercept)
    drawn = {name for name, site in ours.items() if site["type"] == "sample"}
    latent = {
        name
        for name, site in theirs.items()
        if site["type"] == "sample" and not site.get("is_observed")
    }
    assert drawn == latent - {"records"} == {"weights"} | ({"intercept"} if intercept else set())
    assert ours["weights"]["value"].shape == theirs["weights"]["value"].shape


def test_guide_starts_at_zero_without_looking_at_the_records():
    with numpyro.handlers.seed(rng_seed=0):
        here = handlers.trace(guide).get_trace(FEATURES, TARGET)
    with numpyro.handlers.seed(rng_seed=0):
        there = handlers.trace(guide).get_trace(-FEATURES, 1 - TARGET)
    for name in ("weights_loc", "weights_scale", "intercept_loc", "intercept_scale"):
        assert np.array_equal(here[name]["value"], there[name]["value"])
    assert not np.any(here["weights_loc"]["value"])


def test_weights_are_labelled_with_the_features():
    data = wb.data.load("breast_cancer")
    assert entry().coordinates(data) == {"weights": list(data.feature_names)}


def test_a_table_is_accepted():
    assert entry().view(wb.data.load("breast_cancer")).arrays == ("x", "y")


def test_images_are_refused():
    data = wb.data.load("breast_cancer")
    changes = {
        side: (x[:, :, None], y)
        for side, (x, y) in (("train", data.train), ("evaluation", data.evaluation))
    }
    with pytest.raises(ArgumentError, match=r"^data='breast_cancer': .*table") as caught:
        entry().view(dataclasses.replace(data, feature_names=(), **changes))
    assert caught.value.argument == "data"


def test_data_without_a_target_are_refused():
    with pytest.raises(ArgumentError, match=r"^data='mixture': has no array 'y'"):
        entry().view(wb.data.mixture(num_records=10))


@pytest.mark.parametrize(
    ("classes", "reason"),
    [
        (("a", "b", "c"), "there are 3: a, b, c"),
        (tuple("abcdefg"), "there are 7: a, b, c, d, e, ..."),
    ],
)
def test_a_target_of_more_than_two_classes_is_refused(classes, reason):
    data = dataclasses.replace(wb.data.load("breast_cancer"), classes=classes)
    with pytest.raises(
        ArgumentError, match=rf"^data='breast_cancer': .*two classes; {reason}"
    ) as caught:
        entry().view(data)
    assert caught.value.argument == "data"


def test_a_target_without_classes_is_refused():
    data = dataclasses.replace(wb.data.load("breast_cancer"), classes=())
    with pytest.raises(ArgumentError, match="two classes; there are none"):
        entry().view(data)
