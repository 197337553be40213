"""Bayesian logistic regression against formulas written out by hand."""

import dataclasses

import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from workbench.models import logistic as entry
from workbench.models.logistic import guide, model, predict

import workbench as wb
from workbench import ArgumentError

RANDOM = np.random.default_rng(11)
FEATURES = RANDOM.uniform(-1, 1, (6, 3)).astype(np.float32)
TARGET = np.array([0, 1, 1, 0, 1, 0], np.int32)
LATENTS = {"weights": np.array([0.5, -2.0, 1.0], np.float32), "intercept": np.float32(0.3)}


def normal(values, scale):
    return np.sum(-0.5 * (np.asarray(values) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi))


def likelihoods():
    margin = (FEATURES @ LATENTS["weights"] + LATENTS["intercept"]) * (2 * TARGET - 1)
    return -np.log1p(np.exp(-margin))


@pytest.mark.parametrize("prior_scale", [0.5, 5.0])
def test_log_density_is_prior_plus_likelihood(prior_scale):
    found, _ = log_density(model, (FEATURES, TARGET), {"prior_scale": prior_scale}, LATENTS)
    prior = normal(LATENTS["weights"], prior_scale) + normal(LATENTS["intercept"], prior_scale)
    assert float(found) == pytest.approx(prior + likelihoods().sum(), rel=1e-5)


def test_likelihood_of_a_minibatch_is_scaled_to_all_records():
    found, _ = log_density(handlers.seed(model, 0), (FEATURES, TARGET), {"num_records": 60}, LATENTS)
    prior = normal(LATENTS["weights"], 5.0) + normal(LATENTS["intercept"], 5.0)
    assert float(found) == pytest.approx(prior + 10 * likelihoods().sum(), rel=1e-5)


def test_predicted_probability_is_the_sigmoid_of_the_logit():
    logits = FEATURES @ LATENTS["weights"] + LATENTS["intercept"]
    assert np.asarray(predict(LATENTS, FEATURES)) == pytest.approx(1 / (1 + np.exp(-logits)), rel=1e-5)


def test_target_is_drawn_where_none_is_observed():
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(FEATURES)
    assert not trace["y"]["is_observed"]
    assert set(np.unique(trace["y"]["value"])) <= {0, 1}


def test_guide_covers_exactly_the_models_latents():
    with numpyro.handlers.seed(rng_seed=0):
        ours = handlers.trace(guide).get_trace(FEATURES, TARGET)
        theirs = handlers.trace(model).get_trace(FEATURES, TARGET)
    drawn = {name for name, site in ours.items() if site["type"] == "sample"}
    latent = {name for name, site in theirs.items() if site["type"] == "sample" and not site.get("is_observed")}
    assert drawn == latent - {"records"}
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
    entry().check(wb.data.load("breast_cancer"))


@pytest.mark.parametrize("arrays", [lambda x, y: (x,), lambda x, y: (x[:, :, None], y)])
def test_data_of_another_form_are_refused(arrays):
    data = wb.data.load("breast_cancer")
    with pytest.raises(ArgumentError, match=r"^data='breast_cancer': ") as caught:
        entry().check(dataclasses.replace(data, train=arrays(*data.train)))
    assert caught.value.argument == "data"
