"""The Gaussian mixture against formulas written out by hand, and the order of its components."""

import dataclasses

import jax
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import logsumexp
from workbench.gallery.gmm import guide, model, predict, sort

import workbench as wb
from tests.conftest import some_of
from tests.zoo import shapes_of
from workbench import ArgumentError
from workbench.models import gmm as entry
from workbench.record_model.splitting import split

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(9, 2)).astype(np.float32)
MASSES = np.array([1.5, 0.4, 2.6])
MEANS = RANDOM.normal(size=(3, 2)).astype(np.float32)
SCALES = {
    "spherical": np.array([[0.5], [1.0], [0.8]]),
    "diagonal": np.array([[0.5, 0.7], [1.0, 0.6], [0.8, 1.2]]),
}


def values_of(covariance):
    log_masses, log_scales = (
        np.log(MASSES).astype(np.float32),
        np.log(SCALES[covariance]).astype(np.float32),
    )
    return {"log_masses": log_masses, "means": MEANS, "log_scales": log_scales}


def joint(covariance):
    """log weight + log density of each component at each record, [9, 3]."""
    scales = np.broadcast_to(SCALES[covariance], MEANS.shape)
    return np.log(MASSES / MASSES.sum()) + stats.norm.logpdf(X[:, None], MEANS, scales).sum(-1)


def prior(covariance, prior_scale):
    # densities of the logarithms: those of masses and variances times d mass / d log mass, d
    # variance / d log scale
    variances = SCALES[covariance] ** 2
    mass = stats.gamma.logpdf(MASSES, 1) + np.log(MASSES)
    scale = stats.invgamma.logpdf(variances, 2, scale=prior_scale**2 / 2) + np.log(2 * variances)
    return mass.sum() + stats.norm.logpdf(MEANS, 0, prior_scale).sum() + scale.sum()


def latents_of(function, **options):
    def values():
        trace = handlers.trace(handlers.seed(function, 0)).get_trace(X, num_records=9, **options)
        sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
        return {name: site["value"] for name, site in sites.items() if not site["is_observed"]}

    return {name: value.shape for name, value in jax.eval_shape(values).items()}


@pytest.mark.parametrize(
    ("covariance", "prior_scale"), some_of([("spherical", 1.0), ("diagonal", 0.5)], first=1)
)
def test_log_density_is_prior_plus_likelihood(covariance, prior_scale):
    options = {"num_components": 3, "covariance": covariance, "prior_scale": prior_scale}
    found, _ = log_density(model, (X,), options, values_of(covariance))
    expected = prior(covariance, prior_scale) + logsumexp(joint(covariance), axis=1).sum()
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_likelihood_of_a_minibatch_is_scaled_to_all_records():
    options = {"num_components": 3, "num_records": 90}
    found, _ = log_density(handlers.seed(model, 0), (X,), options, values_of("spherical"))
    expected = prior("spherical", 1.0) + 10 * logsumexp(joint("spherical"), axis=1).sum()
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.thorough
def test_prior_of_the_weights_is_the_uniform_dirichlet():
    @jax.jit
    @jax.vmap
    def draw(key):
        return handlers.trace(handlers.seed(model, key)).get_trace(X, num_components=3)["weights"][
            "value"
        ]

    weights = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    assert weights.sum(1) == pytest.approx(np.ones(4000), abs=1e-5)
    # a marginal of Dirichlet(1, 1, 1) is Beta(1, 2); false alarms: one seed in a thousand, and the
    # seed is fixed
    assert stats.kstest(weights[:, 0], stats.beta(1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(weights[:, 0], stats.beta(1, 1.5).cdf).pvalue < 1e-3


@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
def test_predicted_probabilities_are_those_of_the_components(covariance):
    both = joint(covariance)
    expected = np.exp(both - logsumexp(both, axis=1, keepdims=True))
    found = np.asarray(predict(values_of(covariance), X))
    assert found == pytest.approx(expected[:, [2, 0, 1]], abs=1e-5)  # by weight: 2.6, 1.5, .4


@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
def test_guide_covers_exactly_the_models_latents(covariance):
    options = {"num_components": 4, "covariance": covariance}
    assert latents_of(guide, **options) == latents_of(model, **options)
    assert latents_of(model, **options)["log_scales"] == (4, 1 if covariance == "spherical" else 2)


@pytest.mark.thorough
@pytest.mark.parametrize("num_features", [1, 2, 30])
def test_starting_means_lie_apart_and_look_at_no_record(num_features):
    x = np.zeros((1, num_features), np.float32)
    starts = [
        handlers.trace(handlers.seed(guide, 0)).get_trace(records, num_records=9, num_components=6)[
            "means_loc"
        ]["value"]
        for records in (x, x + 7)
    ]
    assert np.array_equal(*starts)
    distances = np.linalg.norm(starts[0][:, None] - starts[0][None], axis=-1)[
        ~np.eye(6, dtype=bool)
    ]
    assert distances.min() > 0.3
    assert np.abs(starts[0]).max() <= 2.0


@pytest.mark.thorough
def test_records_are_drawn_where_none_are_observed():
    @jax.jit
    def draw():
        trace = handlers.trace(handlers.seed(model, 0)).get_trace(
            num_records=50, num_features=2, num_components=3
        )
        assert not trace["x"]["is_observed"]
        return trace["x"]["value"]

    records = np.asarray(draw())
    assert records.shape == (50, 2)
    assert len(np.unique(records)) == 100


def test_the_privacy_core_accepts_it_and_sums_the_component_out():
    found = split(
        model,
        guide,
        jax.random.key(0),
        shapes_of(X),
        num_records=9,
        static={"num_components": 3, "num_features": 2},
    )
    assert found.shared == ("log_masses", "log_scales", "means")
    assert found.local_latents == ()
    assert not found.uses_base_noise
    assert set(jax.eval_shape(found.latents, found.initial, jax.random.key(1))) == {
        "log_masses",
        "means",
        "log_scales",
        "weights",
        "scales",
    }


# ---- the order of the components -----------------------------------------------------------------


def posterior(permutation=(0, 1, 2)):
    """(params, draws) of a posterior whose components come in the order ``permutation``."""
    rng = np.random.default_rng(1)
    chosen = list(permutation)
    location = np.array([0.1, 1.0, 0.4])
    # so wide that the largest differs between draws
    log_masses = location + 0.5 * rng.normal(size=(50, 3))
    means, log_scales = rng.normal(size=(50, 3, 2)), rng.normal(size=(50, 3, 1))
    draws = {
        "log_masses": log_masses,
        "weights": np.exp(log_masses) / np.exp(log_masses).sum(1, keepdims=True),
        "means": means,
        "log_scales": log_scales,
        "scales": np.exp(log_scales),
    }
    return {"log_masses_loc": location[chosen]}, {
        name: value[:, chosen] for name, value in draws.items()
    }


@pytest.mark.parametrize("with_params", [True, False])
def test_a_permutation_of_the_components_changes_no_summary(with_params):
    expected = None
    for permutation in [(0, 1, 2), (2, 0, 1), (1, 0, 2)]:
        params, draws = posterior(permutation)
        found = sort(draws, params if with_params else None)
        expected = found if expected is None else expected
        for name in draws:
            assert np.array_equal(found[name], expected[name])
    assert np.all(np.diff(expected["log_masses"].mean(0)) < 0)


def test_all_draws_share_one_order():
    params, draws = posterior()
    found = sort(draws, params)
    assert np.array_equal(found["means"], draws["means"][:, [1, 2, 0]])
    assert len(np.unique(draws["weights"].argmax(1))) > 1  # or the test would show nothing


def test_responsibilities_come_in_the_order_of_the_summary():
    for permutation in [(0, 1, 2), (2, 0, 1)]:
        params, draws = posterior(permutation)
        sorted_draws = sort(draws, params)
        for place in range(5):
            values = {name: value[place] for name, value in draws.items()} | params
            in_order = {name: value[place] for name, value in sorted_draws.items()}
            in_order["log_masses_loc"] = np.array([3.0, 2.0, 1.0])  # in order already
            assert np.asarray(predict(values, X)) == pytest.approx(
                np.asarray(predict(in_order, X)), abs=1e-6
            )


def test_sites_that_are_no_components_are_left_alone():
    params, draws = posterior()
    draws["other"] = np.arange(150.0).reshape(50, 3)
    assert sort(draws, params)["other"] is draws["other"]


# ---- the registry entry --------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_fit_finds_the_clusters():
    result = wb.fit(
        entry(),
        wb.data.mixture(seed=1),
        epsilon=8.0,
        iterations=600,
        seed=0,
        training=wb.Training(draws=20),
    )
    assert set(result.metrics) == {"elbo", "log_likelihood"}
    assert result.metrics["log_likelihood"] > -3.95
    means = np.asarray(result.params["means_loc"])
    for centre in [(0, 0), (2, 2), (2, -2), (-2, 2), (-2, -2)]:
        assert np.linalg.norm(means - centre, axis=1).min() < 0.5


def test_any_table_will_do():
    assert entry().view(wb.data.load("breast_cancer")).arrays == ("x",)


def test_the_prior_is_narrower_where_features_are_scaled():
    assert entry().constants(wb.data.load("breast_cancer")) == {
        "num_features": 30,
        "feature_scale": 0.5,
    }
    assert entry().constants(wb.data.mixture(num_records=10)) == {
        "num_features": 2,
        "feature_scale": 1.0,
    }
    found = [
        float(log_density(model, (X,), {"num_components": 3} | scales, values_of("spherical"))[0])
        for scales in ({"feature_scale": 0.5}, {"feature_scale": 0.5, "prior_scale": 1.0})
    ]
    likelihood = logsumexp(joint("spherical"), axis=1).sum()
    assert found == pytest.approx(
        [prior("spherical", scale) + likelihood for scale in (0.5, 1.0)], rel=1e-5
    )


@pytest.mark.parametrize(
    ("covariance", "columns"), [("spherical", ["all"]), ("diagonal", ["x1", "x2"])]
)
def test_components_and_features_are_labelled(covariance, columns):
    found = entry(num_components=2, covariance=covariance).coordinates(
        wb.data.mixture(num_records=10)
    )
    components = ["component 1", "component 2"]
    assert found["means"] == (components, ["x1", "x2"])
    assert found["scales"] == found["log_scales"] == (components, columns)
    assert found["weights"] == found["log_masses"] == components


def test_more_components_than_records_are_refused():
    with pytest.raises(
        ArgumentError, match=r"^num_components=11: .*at most the number of records\.$"
    ) as caught:
        entry(num_components=11).view(wb.data.mixture(num_records=10))
    assert caught.value.argument == "num_components"


def test_images_are_refused():
    data = wb.data.mixture(num_records=10)
    images = [(array[0][:, :, None],) for array in (data.train, data.evaluation)]
    with pytest.raises(ArgumentError, match=r"^data='mixture': .*table"):
        entry().view(
            dataclasses.replace(data, train=images[0], evaluation=images[1], feature_names=())
        )
