"""What a linear regression releases in one step, and its posterior given the noised sums."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

from tests.conftest import some_of
from workbench.auditing import audit_release
from workbench.clipping.clipped_sums import clipped_sum
from workbench.clipping.separation import PrivacyModelError
from workbench.noise.mechanism import GaussianMechanism
from workbench.posterior import gram_chain, statistics
from workbench.posterior.noise_aware import Prior
from workbench.posterior.statistics import LinearGaussian, Scales, statistic, sums_in
from workbench.privacy.calibration import noise_multiplier
from workbench.record_model.splitting import split
from workbench.sampling import PoissonSampler

CLIP = 4.0
ENDS = (-1.0, 0.0, 0.5, 1.0)
CORNERS = np.array(list(itertools.product(ENDS, ENDS, ENDS)), np.float32)


def table(size, features, seed=0, slopes=None, scale=0.2, spread=1.0):
    """Records (x, y) of a regression within [-1, 1], its slopes and intercept."""
    random = np.random.default_rng(seed)
    theta = random.normal(size=features + 1) * 0.2 if slopes is None else np.asarray(slopes)
    x = random.uniform(-spread, spread, (size, features)).astype(np.float32)
    y = np.clip(x @ theta[:-1] + theta[-1] + scale * random.normal(size=size), -1, 1).astype(
        np.float32
    )
    return x, y, theta


def released(x, y, clip, noise=0.0, seed=0):
    """The noised sums. :param noise: their standard deviation."""
    exact = np.asarray(statistic(jnp.asarray(x), jnp.asarray(y), clip), float).sum(0)
    return sums_in(
        exact + noise * np.random.default_rng(seed).normal(size=exact.shape), clip, noise
    )


# ---- what a record adds --------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [statistics.SMALLEST_NORM, 2.5, CLIP, 40.0])
def test_no_corner_of_the_bounds_adds_more_than_the_norm(clip):
    for y in ENDS:
        added = np.asarray(statistic(CORNERS, np.full(len(CORNERS), y, np.float32), clip), float)
        assert np.linalg.norm(added, axis=1).max() <= clip * (1 + 1e-6)
    # and the bound is met, where a record just keeps its weight: a larger one would be noise for
    # nothing
    at_most = np.full((1, 40), math.sqrt((Scales.of(clip).squares - 1) / 40), np.float32)
    assert np.linalg.norm(np.asarray(statistic(at_most, np.ones(1), clip), float)) == pytest.approx(
        clip, rel=1e-5
    )


@pytest.mark.parametrize("value", [3.0, -1e30, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", some_of(range(3), 3))
def test_a_record_beyond_its_bounds_moves_the_clipped_sum_no_further(value, place):
    model = statistics.model_of(2, CLIP)
    shapes = (jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))
    by_record = split(model, statistics.guide, jax.random.key(0), shapes, num_records=5)
    loss = lambda u, record: by_record.record_loss(u, record, jax.random.key(0))  # noqa: E731
    row = np.array([0.5, -0.5, 0.5], np.float32)
    row[place] = value
    records = np.float32([[1, 1]] * 4 + [row[:2]]), np.float32([1, 1, -1, 0, row[2]])
    u = {name: np.asarray(each) for name, each in by_record.initial.items()}
    with_it, _ = clipped_sum(loss, u, records, np.ones(5, bool), CLIP)
    without, _ = clipped_sum(loss, u, records, np.array([True] * 4 + [False]), CLIP)
    moved = np.asarray(with_it["sums"]) - np.asarray(without["sums"])
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= CLIP * (1 + 1e-5)
    if np.isnan(value):
        assert not np.any(moved)


def test_the_gradient_of_a_record_is_minus_its_statistic_wherever_it_is_taken():
    x, y, _ = table(4, 2)
    shapes = (jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))
    by_record = split(
        statistics.model_of(2, CLIP), statistics.guide, jax.random.key(0), shapes, num_records=4
    )
    expected = np.asarray(statistic(x, y, CLIP))
    for point in (0.0, 1.0):
        u = {"sums": jnp.full(expected.shape[1], point)}
        found = [
            jax.grad(by_record.record_loss)(u, record, jax.random.key(0))["sums"]
            for record in zip(x, y, strict=True)
        ]
        np.testing.assert_allclose(-np.stack(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [2.5, 12.0])
def test_sums_are_those_of_weighted_least_squares(clip):
    x, y, _ = table(50, 4)
    found = released(x, y, clip)
    z = np.column_stack([x, np.ones(50)]).astype(float)
    weight = np.minimum(1, Scales.of(clip).squares / np.square(z).sum(1))
    assert (clip < 10) == np.any(weight < 1)
    np.testing.assert_allclose(found.products, (z * weight[:, None]).T @ z, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found.with_target, (z * weight[:, None]).T @ y, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(
        [found.of_target, found.squared_weights], [weight @ y**2, weight @ weight], rtol=1e-5
    )


@pytest.mark.parametrize("squares", [1.0, 3.0, 17.0])
def test_the_norm_and_the_scales_are_each_others_inverse(squares):
    assert Scales.of(Scales.norm_for(squares)).squares == pytest.approx(squares)


def test_the_factor_of_the_target_is_the_best():
    """Of all with one R + b^2 for the bound, it makes the variance that it is chosen
    for smallest.
    """
    squares, target = Scales.of(7.0)
    factors = np.linspace(0.2, 6, 4000)
    variance = (squares + factors**2) ** 2 * (1 / factors**2 + 0.5)
    assert factors[np.argmin(variance)] == pytest.approx(target, rel=0.01)


# ---- the noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-4), (8.0, 1e-6)])
def test_the_noise_of_one_release_is_that_of_the_analytic_gaussian_mechanism(epsilon, delta):
    """Balle and Wang 2018, theorem 8, with sensitivity 1."""
    sigma = noise_multiplier(epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=1)

    def exact(sigma):
        return norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(
            -0.5 / sigma - epsilon * sigma
        )

    assert exact(sigma) <= delta < exact(sigma * (1 - 2e-3))


@pytest.mark.thorough
@pytest.mark.parametrize("bug", [None, pytest.param("no_clipping", marks=pytest.mark.statistical)])
def test_an_attack_on_the_release_finds_no_more_than_was_promised(bug):
    """The canary is at the corner of its bounds, in the real step."""
    x, y, _ = table(9, 2)
    mechanism = GaussianMechanism(
        CLIP, noise_multiplier(epsilon=1.0, delta=1e-2, sampling_rate=1.0, steps=1)
    )
    result = audit_release(
        statistics.model_of(2, CLIP / 4 if bug else CLIP),
        statistics.guide,
        (x, y),
        (np.ones((1, 2), np.float32), np.ones(1, np.float32)),
        relation="add_or_remove_one",
        sampler=PoissonSampler(10, 1.0, 10),
        mechanism=mechanism,
        epsilon=1.0,
        delta=1e-2,
        iterations=1,
        trials=2000,
        confidence=0.999,
        seed=0,
        parts=("attack",),
    )
    assert result.lower_bound <= 1.0


# ---- the posterior -------------------------------------------------------------------------------


def known(size, deviation=0.5, scale=0.3):
    return LinearGaussian(
        Prior(np.zeros(size), np.full(size, deviation**-2.0)), dist.HalfNormal(scale)
    )


def drawn(sums, prior, count=4000, seed=0):
    return gram_chain.draw(sums, prior, count, np.random.default_rng(seed))


@pytest.mark.thorough
def test_without_noise_the_posterior_is_that_of_the_normal_linear_model():
    """Given s it is conjugate, and s has a density on a line, which is summed up."""
    x, y, _ = table(300, 3, scale=0.15)
    prior = known(4)
    found = drawn(released(x, y, Scales.norm_for(4.0)), prior)
    z = np.column_stack([x, np.ones(300)]).astype(float)
    scales = np.linspace(0.1, 0.25, 600)
    logs, means, covariances = [], [], []
    for scale in scales:
        total = scale**2 * np.eye(300) + z @ np.diag(1 / prior.prior.precision) @ z.T
        logs.append(
            -0.5 * (np.linalg.slogdet(total)[1] + y @ np.linalg.solve(total, y))
            - 0.5 * (scale / 0.3) ** 2
        )
        covariances.append(np.linalg.inv(z.T @ z / scale**2 + np.diag(prior.prior.precision)))
        means.append(covariances[-1] @ z.T @ y / scale**2)
    share = np.exp(np.array(logs) - max(logs))
    share /= share.sum()
    mean = share @ np.array(means)
    deviation = np.sqrt(
        np.einsum("s,sii->i", share, covariances) + share @ np.square(np.array(means) - mean)
    )
    np.testing.assert_allclose(
        found.coefficients.mean(0), mean, atol=5 * deviation.max() / math.sqrt(4000)
    )
    np.testing.assert_allclose(found.coefficients.std(0), deviation, rtol=0.06)
    of_scale = share @ scales
    assert found.scale.mean() == pytest.approx(of_scale, rel=0.005)
    assert found.scale.std() == pytest.approx(math.sqrt(share @ (scales - of_scale) ** 2), rel=0.08)


@pytest.mark.thorough
def test_without_noise_and_prior_it_is_least_squares():
    """Against NumPy's least squares and its standard errors, with weights for records near their
    bounds too.
    """
    x, y, _ = table(2000, 5, scale=0.1)
    z = np.column_stack([x, np.ones(2000)]).astype(float)
    for squares in (6.0, 2.5):
        weight = np.minimum(1, squares / np.square(z).sum(1))
        found = drawn(released(x, y, Scales.norm_for(squares)), known(6, 1e3, 10.0))
        root = np.sqrt(weight)[:, None]
        theta = np.linalg.lstsq(z * root, y * root[:, 0], rcond=None)[0]
        inverse = np.linalg.inv((z * weight[:, None]).T @ z)
        residual = np.sum(weight * (y - z @ theta) ** 2) / (weight.sum() - 6)
        # of weighted least squares where all residuals have one scale
        errors = np.sqrt(residual * np.diag(inverse @ (z * weight[:, None] ** 2).T @ z @ inverse))
        np.testing.assert_allclose(found.coefficients.mean(0), theta, atol=0.1 * errors.min())
        np.testing.assert_allclose(found.coefficients.std(0), errors, rtol=0.08)


def weighted_draws(sums, prior, count, seed):
    """(draws of theta, of one feature without intercept, of s, weights): the same posterior by
    importance sampling.

    Possible sums of x^2, x and 1 are drawn from those that were released, theta and s from the
    prior, and the sums with the target as records would make them. The weights are densities of
    what was released of these.
    """
    random = np.random.default_rng(seed)
    noise, target = sums.noise, sums.target
    a = sums.products[0, 0] - noise * random.normal(size=count)
    beside = sums.products[0, 1] - noise / math.sqrt(2) * random.normal(size=count)
    n = sums.products[1, 1] - noise * random.normal(size=count)
    possible = (a > 0) & (a * n > beside**2)
    a, n = a[possible], n[possible]
    theta = random.normal(size=len(a)) / math.sqrt(prior.prior.precision[0])
    s = np.abs(random.normal(size=len(a))) * float(prior.scale.scale)
    rho = np.clip(sums.squared_weights / sums.products[1, 1], 0.1, 1)
    h = a * theta + s * np.sqrt(rho * a) * random.normal(size=len(a))
    c = h**2 / a + rho * s**2 * random.chisquare(np.maximum(n - rho, 1) / rho)
    log = norm.logpdf(sums.with_target[0], h, noise / (math.sqrt(2) * target))
    log = log + norm.logpdf(sums.of_target, c, noise / target**2)
    share = np.exp(log - log.max())
    return theta, s, share / share.sum()


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [8.0, 30.0])
def test_with_noise_it_is_what_brute_force_finds(noise):
    x, y, _ = table(200, 1, slopes=[0.5, 0.0], scale=0.3)
    prior = known(1, 0.6, 0.5)
    sums = released(x, y, Scales.norm_for(1.5), noise, seed=3)
    found = drawn(sums, prior, 8000)
    theta, s, share = weighted_draws(sums, prior, 2_000_000, 1)
    assert 1 / np.sum(share**2) > 2000  # draws that the reference is worth
    for own, values in ((found.coefficients[:, 0], theta), (found.scale, s)):
        mean = share @ values
        deviation = math.sqrt(share @ (values - mean) ** 2)
        assert own.mean() == pytest.approx(mean, abs=0.08 * deviation)
        assert own.std() == pytest.approx(deviation, rel=0.08)
        order = np.argsort(values)
        for level in (0.05, 0.5, 0.95):
            quantile = values[order][np.searchsorted(np.cumsum(share[order]), level)]
            assert np.mean(own <= quantile) == pytest.approx(level, abs=0.03)


def test_sums_that_nobody_can_have_give_draws_all_the_same():
    """As noise makes them: not positive definite, and fewer squares of the target than none."""
    x, y, _ = table(50, 4)
    sums = released(x, y, CLIP, noise=60.0, seed=5)
    assert np.linalg.eigvalsh(sums.products)[0] < 0
    found = drawn(sums._replace(of_target=-20.0), known(5), 200)
    assert np.all(np.isfinite(found.coefficients))
    assert np.all(found.scale > 0)
    assert found.coefficients.shape == (200, 5)


# ---- which models --------------------------------------------------------------------------------


def line(x, y, num_records=None, family=dist.Normal, slope=1.0, width=None, prior=None):
    scale = numpyro.sample("scale", dist.HalfNormal(0.3) if width is None else width)
    prior = dist.Normal(0, 1) if prior is None else prior(scale)
    weights = numpyro.sample("weights", prior.expand([2]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", family(slope * x @ weights, scale), obs=y)


def read(**options):
    shapes = (jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((), jnp.float32))
    by_record = split(
        line, statistics.guide, jax.random.key(0), shapes, num_records=10, static=options
    )
    return statistics.linear_gaussian(by_record, "weights", "", "scale")


def test_priors_are_those_of_the_model():
    found = read(prior=lambda scale: dist.Normal(0.5, 2.0), width=dist.Gamma(2.0, 5.0))
    np.testing.assert_array_equal(found.prior, [[0.5, 0.5], [0.25, 0.25]])
    logs = np.log([0.1, 0.5])
    np.testing.assert_allclose(
        found.log_prior(logs), dist.Gamma(2.0, 5.0).log_prob(np.exp(logs)) + logs, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"family": dist.Laplace}, "its likelihood is not normal around features . weights"),
        ({"slope": 1.01}, "its likelihood is not normal around features . weights"),
        ({"prior": lambda scale: dist.Laplace(0.0, 1.0)}, "the prior of weights is not normal"),
        (
            {"prior": lambda scale: dist.Normal(0.0, scale)},
            "the prior of weights is not normal with fixed mean and scale",
        ),
        (
            {"width": dist.Uniform(0.1, 1.0)},
            "the prior of scale must be a distribution on positive numbers",
        ),
    ],
)
def test_another_model_than_it_declares_is_refused(options, words):
    with pytest.raises(PrivacyModelError, match=words):
        read(**options)
