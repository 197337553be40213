"""Hierarchical logistic regression against formulas written out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from numpyro.optim import Adam
from scipy import stats
from workbench.gallery.hierarchical_logistic import guide, model, predict

import workbench as wb
from tests.zoo import shapes_of
from workbench import ArgumentError
from workbench.inference import DPVI
from workbench.inference.compiling import chunk_of
from workbench.models import hierarchical_logistic as entry
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.splitting import split
from workbench.sampling import PoissonSampler

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(8, 2)).astype(np.float32)
GROUP = np.array([0, 1, 2, 2, 1, 0, 0, 2], np.int32)
Y = np.array([0, 1, 1, 0, 1, 0, 1, 1], np.int32)
GROUP_FEATURES = RANDOM.normal(size=(4, 3)).astype(np.float32)  # the last group has no records
MIXING = RANDOM.normal(size=(2, 3)).astype(np.float32)
WEIGHTS = RANDOM.normal(size=(4, 2)).astype(np.float32)
VALUES = {"mixing": MIXING, "group_weights": WEIGHTS}
FACTS = {"group_features": GROUP_FEATURES}


def likelihoods(weights, x=X):
    margin = np.sum(weights[GROUP] * x, axis=1) * (2 * Y - 1)
    return -np.log1p(np.exp(-margin))


def prior(mixing, weights, mixing_scale, group_scale):
    around = stats.norm.logpdf(weights, GROUP_FEATURES @ mixing.T, group_scale).sum()
    return stats.norm.logpdf(mixing, 0, mixing_scale).sum() + around


def latents_of(function, **options):
    def values():
        trace = handlers.trace(handlers.seed(function, 0)).get_trace(
            X, GROUP, Y, **FACTS, **options
        )
        sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
        return {name: site["value"] for name, site in sites.items() if not site["is_observed"]}

    return {name: value.shape for name, value in jax.eval_shape(values).items()}


def dataset(**changes):
    return dataclasses.replace(wb.data.hierarchical(num_records=40, num_evaluation=20), **changes)


@pytest.mark.parametrize(("mixing_scale", "group_scale"), [(4.0, 1.0), (1.5, 0.3)])
def test_log_density_is_prior_plus_likelihood(mixing_scale, group_scale):
    options = {"mixing_scale": mixing_scale, "group_scale": group_scale, **FACTS}
    found, _ = log_density(model, (X, GROUP, Y), options, VALUES)
    expected = prior(MIXING, WEIGHTS, mixing_scale, group_scale) + likelihoods(WEIGHTS).sum()
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_log_density_with_a_learnt_scale_has_its_half_normal_prior():
    found, _ = log_density(
        model, (X, GROUP, Y), {"group_scale": "learnt", **FACTS}, {**VALUES, "group_scale": 0.7}
    )
    expected = (
        prior(MIXING, WEIGHTS, 4.0, 0.7) + stats.halfnorm.logpdf(0.7) + likelihoods(WEIGHTS).sum()
    )
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_likelihood_of_a_minibatch_is_scaled_to_all_records():
    found, _ = log_density(
        handlers.seed(model, 0), (X, GROUP, Y), {"num_records": 80, **FACTS}, VALUES
    )
    assert float(found) == pytest.approx(
        prior(MIXING, WEIGHTS, 4.0, 1.0) + 10 * likelihoods(WEIGHTS).sum(), rel=1e-5
    )


def test_an_intercept_is_the_weight_of_a_constant_feature():
    weights = np.column_stack([WEIGHTS, [0.5, -1.0, 2.0, 0.0]]).astype(np.float32)
    mixing = np.vstack([MIXING, [0.1, 0.2, 0.3]]).astype(np.float32)
    values = {"mixing": mixing, "group_weights": weights}
    found, _ = log_density(model, (X, GROUP, Y), {"intercept": True, **FACTS}, values)
    widened = np.column_stack([X, np.ones(len(X))])
    assert float(found) == pytest.approx(
        prior(mixing, weights, 4.0, 1.0) + likelihoods(weights, widened).sum(), rel=1e-5
    )
    logits = np.sum(weights[GROUP] * widened, axis=1)
    assert np.asarray(predict(values, X, GROUP)) == pytest.approx(
        1 / (1 + np.exp(-logits)), rel=1e-5
    )


def test_predicted_probability_uses_the_weights_of_the_records_group():
    logits = np.sum(WEIGHTS[GROUP] * X, axis=1)
    assert np.asarray(predict(VALUES, X, GROUP)) == pytest.approx(
        1 / (1 + np.exp(-logits)), rel=1e-5
    )


@pytest.mark.thorough
def test_target_is_drawn_where_none_is_observed():
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(X, GROUP, **FACTS)
    assert set(np.unique(trace["y"]["value"])) <= {0, 1}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("group_scale", [1.0, "learnt"])
def test_guide_covers_exactly_the_models_latents(group_scale, intercept):
    options = {"group_scale": group_scale, "intercept": intercept}
    ours, theirs = latents_of(guide, **options), latents_of(model, **options)
    assert ours == theirs
    assert theirs["group_weights"] == (4, 2 + intercept)
    assert ("group_scale" in theirs) == (group_scale == "learnt")


def test_guide_leaves_the_group_weights_out_on_request():
    assert set(latents_of(guide, group_guide=False)) == {"mixing"}


@pytest.mark.parametrize(("group_scale", "group_guide"), [(1.0, False), ("learnt", True)])
def test_only_the_group_weights_are_noised(group_scale, group_guide):
    options = {"group_scale": group_scale, "group_guide": group_guide, **FACTS}
    found = split(
        model, guide, jax.random.key(0), shapes_of(X, GROUP, Y), num_records=8, static=options
    )
    assert found.shared == ("group_weights",)
    assert found.shared_size == WEIGHTS.size
    draw = jax.eval_shape(found.latents, found.initial, jax.random.key(1))
    assert draw["group_weights"].shape == WEIGHTS.shape


@pytest.mark.thorough
def test_a_group_without_records_falls_back_on_its_features():
    """No noise and much data: group 3 is declared, but nobody is in it."""
    rng = np.random.default_rng(0)
    features = np.array([[1, -1], [1, 0], [1, 1], [1, 2]], np.float32)
    mixing = np.array([[0.5, 1.0], [-0.5, 0.5]])
    weights = features @ mixing.T
    group = rng.integers(0, 3, 400).astype(np.int32)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    y = (rng.random(400) < 1 / (1 + np.exp(-np.sum(weights[group] * x, axis=1)))).astype(np.int32)
    options = {"group_features": features, "group_scale": 0.2}
    dpvi = DPVI(
        model,
        guide,
        Adam(0.05),
        privacy=(PoissonSampler(400, 0.5, 300), GaussianMechanism(100.0, 0.0)),
        average_from=400,
    )
    state = dpvi.init(key_from_seed(0), x, group, y, **options)
    state = jax.jit(chunk_of(dpvi.private_step, 800), donate_argnums=0)(
        state, (jnp.asarray(x), jnp.asarray(group), jnp.asarray(y)), jnp.int32(800), dpvi.hyper
    )
    params = dpvi.get_params(state, averaged=True)
    predicted = features @ np.asarray(params["mixing_loc"]).T
    assert np.asarray(params["group_weights_loc"])[3] == pytest.approx(predicted[3], abs=0.15)
    assert np.asarray(params["group_weights_loc"])[3] == pytest.approx(weights[3], abs=0.8)
    assert np.asarray(params["group_weights_scale"])[3] == pytest.approx(0.2, rel=0.25)


@pytest.mark.thorough
@pytest.mark.parametrize("group_guide", [True, False])
def test_a_fit_with_and_without_a_guide_of_the_groups_predicts(group_guide):
    records = wb.data.hierarchical(num_records=500, num_evaluation=500, seed=1)
    result = wb.fit(
        entry(group_guide=group_guide),
        records,
        epsilon=4.0,
        delta=1e-3,
        seed=0,
        training=wb.Training(draws=50),
    )
    assert result.metrics["auc"] > (0.95 if group_guide else 0.85)


@pytest.mark.parametrize(
    ("num_records", "epsilon", "intercept", "share"),
    [(2000, 1.0, False, 0.511), (2000, 1.0, True, 0.481), (500, 1.0, False, 0.322), (6e6, 1, 0, 1)],
)
def test_default_c_follows_the_records_of_one_group(num_records, epsilon, intercept, share):
    features = 5 + intercept
    advice = entry(intercept=bool(intercept)).advice(dataset(), num_records, epsilon)
    assert advice["clip"] == pytest.approx(share * features**0.5, rel=2e-3)
    assert (advice["iterations"], advice["average"]) == (1000, True)


@pytest.mark.thorough
def test_default_c_leaves_moderate_weights_where_they_are():
    """With C = 0.2, half of the gradients were clipped and the error was 1.3 (10 repeats)."""
    random = np.random.default_rng(1000)
    weights = random.normal(size=(3, 5)).astype(np.float32)
    x = random.uniform(-1, 1, (2000, 5)).astype(np.float32)
    group = random.integers(0, 3, 2000).astype(np.int32)
    y = random.random(2000) < 1 / (1 + np.exp(-np.sum(x * weights[group], axis=1)))
    records = dataset(train=(x, group, y.astype(np.int32)))
    prepared = wb.prepare(entry(mixing_scale=1.0), records, epsilon=1.0, delta=1e-4, seed=0)
    *_, last = prepared.run()
    error = np.asarray(last.params["group_weights_loc"]) - weights
    assert np.sqrt(np.mean(error**2)) < 0.5


def test_weights_are_labelled_with_groups_and_features():
    data = dataset()
    found = entry(intercept=True).coordinates(data)
    features = [*data.feature_names, "intercept"]
    assert found == {
        "group_weights": (list(data.groups), features),
        "mixing": (features, list(data.group_feature_names)),
    }
    assert entry().coordinates(data)["mixing"] == (
        list(data.feature_names),
        list(data.group_feature_names),
    )


def test_groups_without_features_share_a_constant_one():
    data = dataset(group_features=None, group_feature_names=())
    assert entry().constants(data)["group_features"].tolist() == [[1.0]] * len(data.groups)
    assert entry().coordinates(data)["mixing"][1] == ["constant"]


def test_grouped_records_are_accepted():
    assert entry().view(dataset()).arrays == ("x", "group", "y")


def test_data_without_groups_are_refused():
    with pytest.raises(ArgumentError, match=r"^data='breast_cancer': .*'group'") as caught:
        entry().view(wb.data.load("breast_cancer"))
    assert caught.value.argument == "data"


def test_a_target_of_three_classes_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^data='hierarchical': .*two classes; there are 3: a, b, c"
    ) as caught:
        entry().view(dataset(classes=("a", "b", "c")))
    assert caught.value.argument == "data"


def test_images_are_refused():
    data = dataset()
    images = tuple((array[0][:, :, None], *array[1:]) for array in (data.train, data.evaluation))
    with pytest.raises(ArgumentError, match="a table of features"):
        entry().view(dataset(train=images[0], evaluation=images[1], feature_names=()))


def test_groups_that_are_not_declared_are_refused():
    data = dataset(groups=(), group_features=None, group_feature_names=())
    with pytest.raises(ArgumentError, match=r"^data='hierarchical': must declare its groups"):
        entry().view(data)
