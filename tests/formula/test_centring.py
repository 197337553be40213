"""Clipped gradients of regressions have mean 0 under the model, and are no longer than C."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import biject_to
from scipy import stats

import workbench as wb
from tests.conftest import some_of
from workbench.clipping import clipped_sum
from workbench.formula import centring
from workbench.formula import regression as regressions
from workbench.formula.priors import LogarithmOver

FAMILIES = {
    "gaussian": ((-10, 10), {"sigma": 0.3}),
    "student_t": ((-10, 10), {"sigma": 0.1, "nu": 2.6}),
    "lognormal": ((0.01, 1000), {"sigma": 0.7}),
    "gamma": ((0.01, 1000), {"shape": 2.0}),
    "weibull": ((0.01, 1000), {"shape": 1.5}),
    "negative_binomial": ((0, 1000), {"concentration": 1.5}),
}
X = jnp.array([0.7], jnp.float32)
ROWS = 100_000


def regression(family):
    bounds, parameters = FAMILIES[family]
    model = wb.models.formula("y ~ x", family=family, schema={"x": (-1, 1), "y": bounds}).model
    values = {"intercept": 0.2, "weights": jnp.array([0.3]), **parameters}
    factors = model.family.logarithms
    shared = {
        f"log_{name}" if name in factors else name: jnp.float32(
            np.log(value) / factors[name] if name in factors else value
        )
        for name, value in parameters.items()
    }
    return model, values, {"intercept": jnp.float32(0.2), "weights": values["weights"], **shared}


def loss_of(model):
    factors = model.family.logarithms

    def loss(u, record):
        x, y = record
        values = {
            name.removeprefix("log_"): jnp.exp(factors[name.removeprefix("log_")] * value)
            if name.startswith("log_")
            else value
            for name, value in u.items()
        }
        return -model.likelihood(values, {"x": x[None]}).log_prob(y)[0]

    return loss


def flat(tree, rows):
    return np.concatenate([np.asarray(leaf).reshape(rows, -1) for leaf in jax.tree.leaves(tree)], 1)


@pytest.mark.parametrize("family", some_of(list(FAMILIES)))
def test_clipped_gradients_have_mean_zero_under_the_model(family):
    """Over draws of the family itself, of whose sums the shift knows nothing."""
    model, values, shared = regression(family)
    y = model.likelihood(values, {"x": X[None]}).sample(jax.random.key(0), (ROWS,))[:, 0]
    loss = loss_of(model)
    scores = flat(
        jax.jit(jax.vmap(lambda y: jax.grad(loss)(shared, (X, y))))(y.astype(jnp.float32)), ROWS
    )
    norms = np.linalg.norm(scores, axis=1)
    shift = jax.jit(jax.grad(lambda u, clip: model.clipping_correction(u, (X[None],), clip)))
    for share in (0.05, 0.3, 0.6):
        clip = np.float32(np.quantile(norms, 1 - share))
        shifted = scores + flat(shift(shared, clip), 1)

        def mean(gradients, clip=clip):
            length = np.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = gradients * np.minimum(1, clip / length)
            return np.abs(clipped.mean(0) / clipped.std(0)).max()

        assert mean(shifted) < 0.015  # of a standard deviation; rounds of iterations, and chance
        assert mean(scores) > (0.02 if share == 0.05 else 0.08)
    unclipped = flat(shift(shared, np.float32(1e9)), 1)
    assert np.abs(unclipped).max() < 1e-4 * scores.std()


@pytest.mark.parametrize("family", FAMILIES)
def test_no_record_is_longer_than_c_however_far_it_is(family):
    """Each record by itself through the clipper, in float32, at ordinary and extreme parameters."""
    model, _, shared = regression(family)
    low, high = FAMILIES[family][0]
    loss = loss_of(model)
    rows = [(x, y) for x in (-1.0, 1.0, 1e4, -1e12) for y in (low, high, (low + high) // 2)]
    x, y = (jnp.asarray(column, jnp.float32) for column in zip(*rows, strict=True))
    records = x[:, None, None], y[:, None]  # minibatches of one

    def centred(u, record, clip):
        return loss(u, record) + model.clipping_correction(u, (record[0][None],), clip)

    def sums(u, clip):
        def one(x, y):
            return clipped_sum(
                lambda u, record: centred(u, record, clip),
                u,
                (x, y),
                jnp.array([True]),
                clip,
                "vmap",
            )[0]

        return jax.vmap(one)(*records)

    compiled = jax.jit(sums)
    for move in (0.0, 3.0, -3.0, 30.0):
        u = {
            name: value * np.float32(np.exp(-2 * abs(move))) if name == "sigma" else value + move
            for name, value in shared.items()
        }
        for clip in (1e-3, 1.0, 50.0):
            lengths = np.linalg.norm(flat(compiled(u, jnp.float32(clip)), len(rows)), axis=1)
            assert np.all(lengths <= clip)  # and no NaN
            assert move or lengths.max() > 0.9 * clip


@pytest.mark.parametrize("family", ["student_t", "gamma"])
def test_shifts_between_lengths_are_those_of_each_record(family, monkeypatch):
    model, _, shared = regression(family)
    x = jnp.asarray(np.sqrt(np.geomspace(1.001, 300, 50) - 1), jnp.float32)

    def shifts():
        def correction(u, x):
            return model.clipping_correction(u, (x[None, None],), jnp.float32(2.0))

        gradients = jax.jit(jax.vmap(jax.grad(correction), (None, 0)))(shared, x)
        return flat({name: gradients[name] for name in shared if name != "weights"}, len(x))

    interpolated = shifts()
    monkeypatch.setattr(regressions, "shift_of_square", centring.shift)
    exact = shifts()
    assert np.ptp(exact[:, 1]) > 0.1  # they depend on the length
    assert np.all(np.abs(interpolated - exact) < 0.01 * np.abs(exact).max())


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_shifts_of_short_and_long_records_are_their_own(sigma):
    """A predictor without an intercept has records of any length."""

    def log_density(point, y):
        return dist.Normal(point[0], jnp.exp(point[1])).log_prob(y)

    point = jnp.array([0.0, jnp.log(sigma)])
    values = sigma * jnp.linspace(-8, 8, 161)
    nodes = centring.Nodes(values, jnp.zeros(161))
    squares = jnp.append(jnp.geomspace(1e-7, 2.0**15, 60), 0.0)

    def all_of(shift):
        def one(square):
            return shift(log_density, point, nodes, square, jnp.float32(2.0))

        return np.asarray(jax.jit(jax.vmap(one))(squares))

    exact, interpolated = all_of(centring.shift), all_of(centring.shift_of_square)
    assert np.ptp(exact[:, 1]) > 0.1
    np.testing.assert_allclose(interpolated, exact, atol=0.01 * np.abs(exact).max())


def test_where_others_would_have_been_censored_is_not_known():
    schema = {"x": (-1, 1), "y": (0.1, 10), "seen": (0, 1)}
    model = wb.models.formula("y ~ x", family="weibull", schema=schema, observed="seen").model
    assert model.clipping_correction is None


def test_a_logarithm_has_the_density_of_its_prior_and_guides_draw_it_unscaled():
    prior = LogarithmOver(dist.Gamma(2.0, 0.1), 4.0)
    x = np.array([-0.3, 0.2, 0.9])
    known = stats.gamma(2, scale=10).logpdf(np.exp(4 * x)) + 4 * x + np.log(4)
    np.testing.assert_allclose(prior.log_prob(jnp.asarray(x)), known, rtol=1e-4)
    np.testing.assert_allclose(biject_to(prior.support)(jnp.asarray(4 * x)), x, rtol=1e-5)


def test_counts_with_an_exposure_are_centred_too():
    schema = {"x": (-1, 1), "e": (0.5, 20), "y": (0, 1000)}
    model = wb.models.formula(
        "y ~ x + offset(log(e))", family="negative_binomial", schema=schema
    ).model
    _, values, shared = regression("negative_binomial")
    parameters, exposure = {"concentration": values["concentration"]}, jnp.array([3.0])
    eta = values["intercept"] + X @ values["weights"]
    nodes = model.family.nodes(model.response, eta, parameters, exposure=exposure[0])
    of_nodes = model.family.likelihood(model.response, eta, parameters, exposure=exposure)
    total = jnp.exp(of_nodes.log_prob(nodes.values) + nodes.log_widths).sum()
    assert float(total) == pytest.approx(1, abs=0.01)

    def correction(u, exposure):
        return model.clipping_correction(u, (X[None], exposure, jnp.zeros(1)), jnp.float32(0.4))

    shifts = [jax.grad(correction)(shared, exposure * more)["intercept"] for more in (1, 5)]
    assert np.all(np.isfinite(shifts))
    assert abs(shifts[0] - shifts[1]) > 0.001
