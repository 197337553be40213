"""Guides with all covariances: their density, what they cost in noise, and fits with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import stats
from workbench.gallery import hierarchical_logistic, logistic

import workbench as wb
from tests.zoo import shapes_of
from workbench.models.guides import joint_normal
from workbench.noise.chacha20 import key_from_seed
from workbench.record_model.splitting import split

X = np.zeros((4, 2), np.float32)
Y, GROUP = np.zeros(4, np.int32), np.zeros(4, np.int32)
GROUPS = {"group_features": np.ones((3, 1), np.float32)}
FACTOR = np.tril(np.random.default_rng(0).normal(size=(9, 9)), -1) * 0.2 + np.diag(
    np.linspace(0.5, 1.5, 9)
)


def traced(guide, *records, **options):
    """The trace of a guide whose covariance is that of ``FACTOR``, and its location."""
    location = np.linspace(-1, 1, 9)
    size = int(jax.eval_shape(lambda: parameter(guide, *records, **options)).shape[0])
    values = {
        "joint_loc": jnp.asarray(location[:size]),
        "joint_scale_tril": jnp.asarray(FACTOR[:size, :size]),
    }
    seeded = handlers.seed(handlers.substitute(guide, values), 0)
    return (
        handlers.trace(seeded).get_trace(*records, **options),
        location[:size],
        FACTOR[:size, :size],
    )


def parameter(guide, *records, **options):
    return handlers.trace(handlers.seed(guide, 0)).get_trace(*records, **options)["joint_loc"][
        "value"
    ]


def log_density(trace):
    return sum(
        float(site["fn"].log_prob(site["value"]).sum())
        for site in trace.values()
        if site["type"] == "sample"
    )


def test_the_density_is_that_of_the_normal_distribution():
    trace, location, factor = traced(logistic.joint_guide, X, Y)
    values = np.concatenate([trace["weights"]["value"], trace["intercept"]["value"][None]])
    wanted = stats.multivariate_normal.logpdf(values, location, factor @ factor.T)
    assert log_density(trace) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.thorough
def test_a_scale_has_the_density_of_the_exponential_of_a_normal():
    options = {"group_scale": "learnt", **GROUPS}
    trace, location, factor = traced(hierarchical_logistic.joint_guide, X, GROUP, Y, **options)
    scale = float(trace["group_scale"]["value"])
    mixing, weights = (np.ravel(trace[name]["value"]) for name in ("mixing", "group_weights"))
    values = np.concatenate([mixing, [np.log(scale)], weights])
    wanted = stats.multivariate_normal.logpdf(values, location, factor @ factor.T) - np.log(scale)
    assert log_density(trace) == pytest.approx(wanted, rel=1e-4)
    without = traced(hierarchical_logistic.joint_guide, X, GROUP, Y, group_guide=False, **GROUPS)[0]
    assert "group_weights" not in without


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_covariances_take_no_more_noised_coordinates(covariance):
    made, records = wb.models.get("logistic", covariance=covariance), shapes_of(X, Y)
    model = split(
        made.model, made.guide, key_from_seed(0), records, num_records=4, static=made.options
    )
    assert (model.shared, model.shared_size) == (("intercept", "weights"), 3)


@pytest.mark.thorough
def test_a_fit_has_correlated_weights_and_the_noise_aware_posterior():
    data = wb.data.load("breast_cancer")
    model = wb.models.get("logistic", covariance="full")
    result = wb.fit(model, data, epsilon=8.0, delta=1e-3, iterations=300, seed=0, ledger=False)
    assert result.posterior_kind == "noise-aware"
    assert result.metrics["auc"] > 0.97
    drawn = np.corrcoef(result.variational_draws["weights"], rowvar=False)
    assert np.abs(drawn - np.eye(len(drawn))).max() > 0.3


@pytest.mark.thorough
def test_a_hierarchical_fit_predicts():
    model = wb.models.get("hierarchical_logistic", covariance="full", group_scale="learnt")
    result = wb.fit(
        model, wb.data.hierarchical(400, num_evaluation=100), epsilon=8.0, iterations=200, seed=0
    )
    assert result.metrics["auc"] > 0.8


@pytest.mark.thorough
def test_parts_have_their_shapes():
    drawn = handlers.seed(joint_normal, 0)({"one": (2, 3), "other": ()}, 1.0)
    assert {name: value.shape for name, value in drawn.items()} == {"one": (2, 3), "other": ()}
