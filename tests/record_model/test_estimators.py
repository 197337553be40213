import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import expit

from tests import zoo
from tests.conftest import some_of
from workbench.clipping.clipped_sums import clipped_sum
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.estimators import ESTIMATORS, aligned, vanilla
from workbench.record_model.splitting import split
from workbench.sampling import PoissonSampler

KEY = jax.random.key(1)
NUM_RECORDS = 40
X, Y = zoo.logistic_data(NUM_RECORDS)
EVERYBODY = np.ones(NUM_RECORDS, bool)
NO_MECHANISM = GaussianMechanism(math.inf, 0.0)


@pytest.fixture(scope="module")
def logistic():
    return split(
        zoo.logistic, zoo.logistic_guide, KEY, zoo.shapes_of(X, Y), num_records=NUM_RECORDS
    )


@pytest.fixture(scope="module")
def hierarchical():
    return split(
        zoo.hierarchical, zoo.hierarchical_guide, KEY, zoo.shapes_of(X, Y), num_records=NUM_RECORDS
    )


def some_params(seen):
    """Away from the starting values, which are special."""
    random = np.random.default_rng(3)
    return {
        name: value + jnp.asarray(random.normal(0, 0.3, jnp.shape(value)), jnp.float32)
        for name, value in sorted(seen.initial.items())
    }


def gradient_of(
    seen,
    params,
    records=(X, Y),
    mask=EVERYBODY,
    rate=1.0,
    mechanism=NO_MECHANISM,
    noise=None,
    key=KEY,
):
    noise = jnp.zeros(seen.shared_size) if noise is None else noise

    def release(loss, u):
        def of_record(u, record):
            return loss(u, (record, key))

        total, _ = clipped_sum(of_record, u, records, mask, mechanism.clip)
        flat, unravel = ravel_pytree(total)
        return unravel(flat + noise)

    return aligned(seen, params, key, rate, release)


def assert_close(ours, expected, rtol=2e-4, atol=1e-4):
    assert set(ours) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(ours[name], value, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("which", some_of(["logistic", "hierarchical"]))
@pytest.mark.thorough
def test_without_privacy_it_is_the_gradient_of_the_negative_elbo(which, request):
    """By automatic differentiation of all records at once, at the same base noise."""
    seen = request.getfixturevalue(which)

    def negative_elbo(params):
        shared, global_loss = seen.release_point(params, KEY)
        return global_loss + jnp.sum(
            jax.vmap(lambda x, y: seen.record_loss(shared, (x, y), KEY))(X, Y)
        )

    params = some_params(seen)
    assert_close(gradient_of(seen, params), jax.grad(negative_elbo)(params))


def test_without_privacy_it_is_the_logistic_gradient_worked_out_by_hand(logistic):
    """With theta = loc + scale eta and scale = exp(rho):

    d/d loc = sum_i (sigmoid(logit_i) - y_i) x_i + theta / s^2, and d/d rho = (d/d loc) scale eta -
    1, the last term from the entropy.
    """
    params = some_params(logistic)
    draw, _ = logistic.release_point(params, KEY)
    latents = np.append(draw["weights"], draw["intercept"]).astype(np.float64)
    inputs = np.column_stack([X, np.ones(NUM_RECORDS)]).astype(np.float64)
    by_latent = (expit(inputs @ latents) - Y) @ inputs + latents / zoo.PRIOR_SCALE**2
    locs = np.append(params["weights_loc"], params["intercept_loc"])
    by_scale = by_latent * (latents - locs) - 1
    expected = {
        "weights_loc": by_latent[:3],
        "intercept_loc": by_latent[3],
        "weights_scale": by_scale[:3],
        "intercept_scale": by_scale[3],
    }
    assert_close(gradient_of(logistic, params), expected)


def test_prior_and_entropy_are_neither_clipped_nor_noised_nor_scaled(hierarchical):
    """On an empty minibatch without noise, whatever C and q are, only the global loss is left."""
    params = some_params(hierarchical)
    expected = jax.grad(lambda psi: hierarchical.release_point(psi, KEY)[1])(params)
    mechanism = GaussianMechanism(1e-3, 0.0)
    ours = gradient_of(hierarchical, params, mask=~EVERYBODY, rate=0.01, mechanism=mechanism)
    assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_noise_enters_through_the_release_point_divided_by_the_sampling_rate(logistic):
    """The difference that the noise makes is J_u(psi)^T noise / q: noise for a loc, noise times
    scale eta for its rho.
    """
    params = some_params(logistic)
    noise = jnp.array([1.0, -2.0, 3.0, 0.5])  # intercept first: u is sorted by name
    quiet, noisy = (
        gradient_of(logistic, params, rate=0.25, noise=value) for value in (jnp.zeros(4), noise)
    )
    draw, _ = logistic.release_point(params, KEY)
    scale_eta = draw["weights"] - params["weights_loc"]
    np.testing.assert_allclose(noisy["intercept_loc"] - quiet["intercept_loc"], 4.0, rtol=1e-4)
    np.testing.assert_allclose(
        noisy["weights_loc"] - quiet["weights_loc"], [-8.0, 12.0, 2.0], rtol=1e-4
    )
    expected = np.array([-8.0, 12.0, 2.0]) * scale_eta
    np.testing.assert_allclose(
        noisy["weights_scale"] - quiet["weights_scale"], expected, rtol=1e-3, atol=1e-4
    )


def test_noise_spares_a_hyper_parameter_that_no_record_touches(hierarchical):
    params = some_params(hierarchical)
    quiet, noisy = (
        gradient_of(hierarchical, params, noise=jnp.full(3, size)) for size in (0.0, 100.0)
    )
    for name in ("scale_loc", "scale_width"):
        np.testing.assert_array_equal(noisy[name], quiet[name])
    assert np.all(np.abs(noisy["weights_loc"] - quiet["weights_loc"]) > 99)


def test_the_sum_is_divided_by_the_sampling_rate_not_by_the_minibatch_size(logistic):
    params = some_params(logistic)
    empty = gradient_of(logistic, params, mask=~EVERYBODY, rate=0.2)
    for size in (1, 7, 30):
        mask = np.arange(NUM_RECORDS) < size
        whole = gradient_of(logistic, params, mask=mask, rate=1.0)["weights_loc"]
        sampled = gradient_of(logistic, params, mask=mask, rate=0.2)["weights_loc"]
        np.testing.assert_allclose(
            sampled - empty["weights_loc"], 5 * (whole - empty["weights_loc"]), rtol=1e-3, atol=1e-4
        )


def test_one_record_moves_the_gradient_in_u_by_at_most_clip_over_rate(logistic):
    """With loc as parameter, the gradient moves as the released sum does."""
    params = some_params(logistic)
    clip, rate = 0.05, 0.5

    def released(mask):
        gradient = gradient_of(
            logistic, params, mask=mask, rate=rate, mechanism=GaussianMechanism(clip, 0.0)
        )
        return np.append(gradient["weights_loc"], gradient["intercept_loc"]).astype(np.float64)

    everybody = released(EVERYBODY)
    for left_out in range(0, NUM_RECORDS, 5):
        moved = np.linalg.norm(everybody - released(np.arange(NUM_RECORDS) != left_out))
        assert moved <= clip / rate * (1 + 1e-4)
        assert moved > 0.5 * clip / rate  # these gradients are longer than the clip


def largest_bias(logistic, seed, factor=1.0):
    """Largest |z| of (mean of Poisson minibatch gradients - full gradient) over the coordinates,
    and how many they are.
    """
    draws, rate = 20_000, 0.2
    params = some_params(logistic)
    sampler = PoissonSampler(NUM_RECORDS, rate, NUM_RECORDS)

    @partial(jax.jit, static_argnums=1)
    def many(key, count):
        def one(draw_key):
            batch = sampler.draw(draw_key)
            records = (jnp.asarray(X)[batch.indices], jnp.asarray(Y)[batch.indices])
            return gradient_of(
                logistic, params, records=records, mask=batch.mask, rate=factor * rate
            )

        return jax.lax.map(one, jax.random.split(key, count), batch_size=1000)

    samples = many(key_from_seed(seed), draws)
    full = gradient_of(logistic, params)
    z = []
    for name, values in samples.items():
        values = np.asarray(values, np.float64)
        z.append(
            np.ravel((values.mean(axis=0) - full[name]) / (values.std(axis=0) / math.sqrt(draws)))
        )
    z = np.abs(np.concatenate(z))
    return z.max(), z.size


@pytest.mark.statistical
def test_unbiased_over_poisson_minibatches(logistic):
    """False alarms: one seed in a million (Bonferroni over eight coordinates)."""
    worst, count = largest_bias(logistic, seed=0)
    assert worst < stats.norm.isf(5e-7 / count)


@pytest.mark.statistical
def test_a_wrong_division_would_be_noticed(logistic):
    """The test above can fail: dividing by 1.05 q instead of q is rejected."""
    worst, count = largest_bias(logistic, seed=0, factor=1.05)
    assert worst > stats.norm.isf(5e-7 / count)


# --- vanilla --------------------------------------------------------------------------------------


def published_update(seen, params, minibatch, clip, noise, rate):
    """Algorithm 1 of Jälkö, Dikmen and Honkela 2017 for the logistic zoo model, written out in
    NumPy, one record at a time.

    For record i with a draw theta = loc + scale eta_i of its own, g_i is the gradient of
    -log p(y_i | x_i, theta) + [log q(theta) - log p(theta)] / N with respect to (loc, rho), scale =
    exp(rho).
    """
    order = ("intercept_loc", "intercept_scale", "weights_loc", "weights_scale")
    total = np.zeros(8)
    for place in np.flatnonzero(minibatch):
        draw, _ = seen.release_point(params, jax.random.fold_in(KEY, place))
        latents = np.append(draw["intercept"], draw["weights"]).astype(np.float64)
        locs = np.append(params["intercept_loc"], params["weights_loc"]).astype(np.float64)
        x = np.append(1, X[place]).astype(np.float64)
        by_latent = (expit(x @ latents) - Y[place]) * x + latents / zoo.PRIOR_SCALE**2 / NUM_RECORDS
        by_scale = by_latent * (latents - locs) - 1 / NUM_RECORDS
        gradient = np.concatenate([by_latent[:1], by_scale[:1], by_latent[1:], by_scale[1:]])
        total += gradient * min(1, clip / np.linalg.norm(gradient))
    parts = np.split((total + noise) / rate, [1, 2, 5])
    return {
        name: part.reshape(np.shape(params[name])) for name, part in zip(order, parts, strict=True)
    }


@pytest.mark.thorough
@pytest.mark.parametrize("clip", some_of([0.3, 100.0]))
def test_vanilla_is_the_published_update(logistic, clip):
    params = some_params(logistic)
    minibatch = np.arange(NUM_RECORDS) % 3 > 0
    noise = np.random.default_rng(5).normal(size=8)
    keys = jax.vmap(partial(jax.random.fold_in, KEY))(jnp.arange(NUM_RECORDS))

    def release(loss, u):
        total, _ = clipped_sum(
            loss, u, ((jnp.asarray(X), jnp.asarray(Y)), keys), jnp.asarray(minibatch), clip
        )
        flat, unravel = ravel_pytree(total)
        return unravel(flat + jnp.asarray(noise, jnp.float32))

    ours = vanilla(logistic, params, KEY, 0.25, release)
    assert_close(ours, published_update(logistic, params, minibatch, clip, noise, 0.25))


def test_vanilla_noise_has_the_dimension_of_the_parameters_and_aligned_noise_that_of_the_latents(
    hierarchical,
):
    assert ESTIMATORS["vanilla"].noise_size(hierarchical) == 8
    assert ESTIMATORS["aligned"].noise_size(hierarchical) == 3
