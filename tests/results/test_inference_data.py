"""A result in ArviZ's groups."""

import dataclasses
import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import workbench as wb
from workbench._validate import ArgumentError
from workbench.results import arviz_adapter
from workbench.results.description import prior_draws


@pytest.fixture(scope="module")
def groups(done):
    return done.inference_data(seed=1)


def test_arviz_has_chains_of_the_posterior(done):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = arviz_adapter._arviz().summary(done.posterior, round_to="none")
    assert np.all(np.isfinite(table["r_hat"].astype(float)))
    assert len(table) == 31


def test_the_prior_stands_beside_the_posterior(groups):
    prior, posterior = groups["prior"], groups["posterior"]
    assert prior["weights"].shape == posterior["weights"].shape == (4, 250, 30)
    assert prior["weights"].dims == posterior["weights"].dims
    # Normal(0, 5), of the gallery's logistic regression: 30 000 draws
    assert prior["weights"].values.std() == pytest.approx(5.0, rel=0.02)
    assert abs(prior["weights"].values.mean()) < 0.15


def test_public_records_are_predicted_by_draws_of_all_chains(done, groups):
    (site,) = groups["observed_data"].data_vars
    observed, made = groups["observed_data"][site], groups["posterior_predictive"][site]
    assert np.array_equal(observed.values, done.public_records[-1])
    assert made.shape == (4, 50, len(observed))
    assert set(np.unique(made)) == {0, 1}
    from scipy.special import expit

    x = np.asarray(done.public_records[0], float)
    expected = expit(x @ done.draws["weights"].T + done.draws["intercept"]).mean(axis=1)
    error = np.sqrt(expected * (1 - expected) / 200) + 0.02
    assert np.all(np.abs(made.values.mean(axis=(0, 1)) - expected) < 5 * error)
    assert groups["observed_data"].attrs["label"] == "public data"


def test_a_seed_repeats_the_predictions(done, groups):
    again = done.inference_data(seed=1)["posterior_predictive"]
    site = next(iter(again.data_vars))
    assert np.array_equal(again[site], groups["posterior_predictive"][site])


def test_without_public_records_nothing_is_predicted(done):
    alone = dataclasses.replace(done, public_records=None).inference_data()
    assert "prior" in alone.groups() if callable(alone.groups) else alone.groups
    with pytest.raises(KeyError):
        alone["posterior_predictive"]


def test_a_prior_that_cannot_be_drawn_from_is_left_out(done):
    def improper(x, y=None, num_records=None, **static):
        weights = numpyro.sample("weights", dist.ImproperUniform(dist.constraints.real, (), (30,)))
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
        with numpyro.plate("records", num_records or len(x), subsample_size=len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)

    other = dataclasses.replace(
        done, definition=dataclasses.replace(done.predictor.model, model=improper)
    )
    assert prior_draws(other) == {}
    assert other.coefficients(diagnostics=True)["prior sd"].isna().all()
    assert set(prior_draws(done)) == {"weights", "intercept"}


def test_private_records_are_outside_the_guarantee(done, private_data):
    with pytest.raises(ArgumentError):
        done.inference_data(private_data)  # of other columns
    data = dataclasses.replace(wb.data.load("breast_cancer"), evaluation_is_public=False)
    groups = done.inference_data(data)
    for name in ("posterior_predictive", "observed_data"):
        assert groups[name].attrs["label"] == "outside the guarantee"
    assert groups["posterior"].attrs["label"] == "covered"


def test_leaving_out_records_is_impossible_and_attributes_say_it(done):
    with pytest.raises(TypeError, match=r"log.likelihood"):
        arviz_adapter._arviz().loo(done.posterior)
    assert "wb.evaluate" in done.posterior["posterior"].attrs["log_likelihood"]
