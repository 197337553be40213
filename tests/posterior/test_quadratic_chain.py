"""Draws from a quadratic times a prior, against closed forms and numerical integration."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

from tests.conftest import some_of
from workbench.posterior import _quadratic_chain
from workbench.posterior.joint_prior import JointPrior, NoNoiseAwarePosterior

COUNT = 1500
FURTHEST = 0.06  # Kolmogorov's distance; beyond it 1 right sample in 20 000 would be, of 1500


class OfPrior:
    """As much of a ``RecordModel`` as a prior needs."""

    of_records = frozenset()

    def __init__(self, prior, *shared):
        self.prior, self.shared = prior, shared

    def model_trace(self, values, key, changed=lambda prior: prior):
        return handlers.trace(
            handlers.substitute(handlers.seed(changed(self.prior), key), data=values)
        ).get_trace()


def one_site(prior):
    return JointPrior(OfPrior(lambda: numpyro.sample("a", prior), "a"))


def drawn(prior, precision, linear, seed=0, count=COUNT):
    """Draws for ``count`` times the same quadratic."""
    size = len(linear)
    return _quadratic_chain.draws(
        prior,
        np.broadcast_to(np.asarray(precision, float), (count, size, size)),
        np.broadcast_to(np.asarray(linear, float), (count, size)),
        np.random.default_rng(seed),
    )


def distance(draws, points, log_density):
    """Kolmogorov's distance between draws and an unnormalised density on points of a grid of any
    steps.
    """
    density = np.exp(log_density - log_density.max())
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(points))])
    return stats.kstest(draws, lambda where: np.interp(where, points, mass / mass[-1])).statistic


# ---- against closed forms ------------------------------------------------------------------------


def groups_with_known_scale():
    common = numpyro.sample("common", dist.Normal(1.0, 2.0))
    with numpyro.plate("groups", 3):
        numpyro.sample("effects", dist.Normal(common, 0.5))


@pytest.mark.thorough
def test_of_normal_priors_it_is_the_normal_posterior():
    """Effects and their common mean, of which the quadratic knows the effects alone, with
    correlations.
    """
    random, prior = (
        np.random.default_rng(1),
        JointPrior(OfPrior(groups_with_known_scale, "effects")),
    )
    root = random.normal(size=(3, 3))
    of_prior = np.array([[4.0, 0, 0, -4], [0, 4, 0, -4], [0, 0, 4, -4], [-4, -4, -4, 12.25]])
    for weight in (0.0, 0.3, 30.0, 1e4):
        known, linear = weight * root @ root.T, weight * random.normal(size=3)
        precision = of_prior + np.pad(known, (0, 1))
        mean = np.linalg.solve(precision, np.append(linear, 0) + of_prior @ np.ones(4))
        found = drawn(prior, known, linear)
        whitened = (found - mean) @ np.linalg.cholesky(precision)
        np.testing.assert_allclose(whitened.mean(0), 0, atol=4.5 / np.sqrt(COUNT))
        np.testing.assert_allclose(np.cov(whitened.T), np.eye(4), atol=6.5 / np.sqrt(COUNT))


# ---- against numerical integration ---------------------------------------------------------------

REAL = np.sinh(np.linspace(-12, 12, 20_001))
POSITIVE = np.exp(np.linspace(-16, 12, 20_001))


@pytest.mark.parametrize(
    ("prior", "points"),
    some_of(
        [
            (dist.StudentT(3.0, 0.5, 2.0), REAL),
            (dist.Cauchy(0.0, 1.0), REAL),
            (dist.Laplace(-1.0, 0.7), REAL),
            (dist.Gumbel(0.0, 1.0), REAL),
            (dist.HalfNormal(2.0), POSITIVE),
            (dist.LogNormal(0.0, 1.0), POSITIVE),
            (dist.Uniform(0.0, 3.0), np.linspace(1e-6, 3 - 1e-6, 20_001)),
        ],
        8,
    ),
)
def test_of_one_quantity_it_is_the_posterior_by_integration(prior, points):
    joint, center = one_site(prior), 1.7
    for weight in (0.0, 0.1, 2.0, 300.0):
        found = drawn(joint, [[weight]], [weight * center])
        log_density = (
            np.asarray(prior.log_prob(points), float) - weight * (points - center) ** 2 / 2
        )
        assert distance(found[:, 0], points, log_density) < FURTHEST


def groups(size):
    def prior():
        common = numpyro.sample("common", dist.Normal(0, 2))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("groups", size):
            numpyro.sample("effects", dist.Normal(common, scale))

    return JointPrior(OfPrior(prior, "effects"))


@pytest.mark.thorough
def test_group_effects_and_their_scale_are_those_of_integration():
    """From effects that are open to effects that are known to a thousandth: the funnel and its
    opposite.
    """
    effects, prior = np.array([1.1, -0.4, 1.9, 1.3, 0.6, 2.2, 1.0, 0.3]), groups(8)
    logs, commons = np.linspace(-9, 3, 1201), np.linspace(-9, 9, 721)
    scale, common = np.exp(logs)[:, None], commons[None]
    for weight in (0.0, 1.0, 100.0, 1e4, 1e6):
        found = drawn(prior, weight * np.eye(8), weight * effects)
        log_density = -(common**2) / 8 - scale**2 / 2 + logs[:, None]
        if weight:
            variance = scale[..., None] ** 2 + 1 / weight
            log_density = (
                log_density
                - (np.log(variance) + (effects - common[..., None]) ** 2 / variance).sum(-1) / 2
            )
        density = np.exp(log_density - log_density.max())
        assert distance(found[:, 8], commons, np.log(density.sum(0) + 1e-300)) < FURTHEST
        assert distance(np.log(found[:, 9]), logs, np.log(density.sum(1) + 1e-300)) < FURTHEST
        if weight >= 1e4:
            np.testing.assert_allclose((found[:, :8] - effects).std(0), weight**-0.5, rtol=0.15)


@pytest.mark.thorough
def test_bounds_and_tails_of_a_prior_of_a_scale_that_is_released():
    """u holds the scale itself, not its logarithm."""

    def prior():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("effect", dist.StudentT(3.0, 0, scale))

    known, linear = np.diag([4.0, 25.0]), np.array([3.0, 5.0])  # of effect and scale
    found = drawn(JointPrior(OfPrior(prior, "effect", "scale")), known, linear)
    points = np.exp(np.linspace(-9, 3, 3001))
    effects = np.linspace(-8, 8, 1601)
    joint = (
        np.asarray(dist.StudentT(3.0, 0, points[:, None]).log_prob(effects), float)
        - points[:, None] ** 2 / 2
    )
    joint = joint - 2 * effects**2 + 3 * effects + (5 * points - 12.5 * points**2)[:, None]
    density = np.exp(joint - joint.max())
    assert distance(found[:, 1], points, np.log(density.sum(1) + 1e-300)) < FURTHEST
    marginal = ((density[1:] + density[:-1]) / 2 * np.diff(points)[:, None]).sum(0)
    assert distance(found[:, 0], effects, np.log(marginal + 1e-300)) < FURTHEST


def test_a_wrong_quadratic_would_be_seen():
    found = drawn(one_site(dist.Laplace(0, 1)), [[2.0]], [1.0])
    density = np.asarray(dist.Laplace(0, 1).log_prob(REAL), float)
    assert distance(found[:, 0], REAL, density - 3 * REAL**2 / 2 + REAL) > FURTHEST
    assert distance(found[:, 0], REAL, density - REAL**2 + 0.5 * REAL) > FURTHEST


# ---- extremes ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_what_is_not_known_has_its_prior_where_the_quadratic_is_singular():
    direction = np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
    found = drawn(
        one_site(dist.Laplace(0, 1).expand([3]).to_event(1)),
        1e4 * np.outer(direction, direction),
        1e4 * direction,
    )
    np.testing.assert_allclose(found @ direction, 1, atol=0.06)
    assert distance(found[:, 2], REAL, -np.abs(REAL)) < FURTHEST


@pytest.mark.thorough
@pytest.mark.parametrize("count", some_of([1, 2, 7], 3))
def test_few_draws(count):
    found = drawn(groups(3), np.eye(3), np.ones(3), count=count)
    assert found.shape == (count, 5)
    assert np.all(np.isfinite(found))


@pytest.mark.thorough
def test_many_quantities():
    found = drawn(groups(60), 10 * np.eye(60), 10 * np.sin(np.arange(60.0)), count=100)
    assert found.shape == (100, 62)
    assert np.log(found[:, 61]).mean() == pytest.approx(np.log(0.7), abs=0.2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "prior", some_of([dist.Cauchy(0.0, 1.0), dist.StudentT(3.0, 0, 1), dist.Laplace(0.0, 1.0)], 3)
)
def test_a_quadratic_far_outside_of_the_prior(prior):
    joint = one_site(prior)
    for weight in (1e-8, 1.0):
        found = drawn(joint, [[weight]], [weight * 1e3])[:, 0]
        points = np.unique(np.concatenate([REAL, 1e3 + np.sinh(np.linspace(-7, 7, 4001))]))
        log_density = np.asarray(prior.log_prob(points), float) - weight * (points - 1e3) ** 2 / 2
        assert distance(found, points, log_density) < FURTHEST
    found = drawn(joint, [[1e8]], [1e11])  # float32 has no digits for more
    np.testing.assert_allclose(found, 1e3, atol=0.01)


@pytest.mark.thorough
def test_quadratics_of_their_own():
    """Each draw has the curvature that it was given, also where they differ by orders."""
    weights = np.exp(np.random.default_rng(3).uniform(-3, 8, 3000))
    prior = one_site(dist.Laplace(0.0, 1.0))
    found = _quadratic_chain.draws(
        prior, weights[:, None, None], 5 * weights[:, None], np.random.default_rng(4)
    )[:, 0]
    # the prior falls by 1 for each unit there
    scores = (found - (5 - 1 / weights)) * np.sqrt(weights)
    assert stats.kstest(scores[weights > 1], "norm").statistic < 0.05


@pytest.mark.thorough
def test_draws_repeat_with_their_generator():
    prior = groups(3)
    one, same, other = (
        drawn(prior, np.eye(3), np.ones(3), seed=seed, count=40) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.any(one == other)


def test_numbers_that_say_nothing_are_refused():
    with pytest.raises(NoNoiseAwarePosterior, match="did not settle"):
        drawn(one_site(dist.Laplace(0, 1)), [[1.0]], [np.nan], count=10)


# ---- which priors --------------------------------------------------------------------------------


def dependent_bounds():
    numpyro.sample("a", dist.Uniform(0, numpyro.sample("b", dist.HalfNormal(1.0))))


@pytest.mark.parametrize(
    ("prior", "shared", "reason"),
    [
        (lambda: numpyro.sample("a", dist.Poisson(3.0)), "a", "a is discrete"),
        (
            lambda: numpyro.sample("a", dist.Dirichlet(jnp.ones(3))),
            "a",
            "the entries of a are not free of each other",
        ),
        (dependent_bounds, "b", "the bounds of a depend on other quantities"),
        (
            lambda: numpyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ())),
            "a",
            "the prior cannot be drawn from",
        ),
        (
            lambda: numpyro.sample("a", dist.Delta(1.0)),
            "a",
            "the prior's draws are not finite, or do not vary",
        ),
    ],
)
def test_priors_that_it_cannot_use(prior, shared, reason):
    with pytest.raises(NoNoiseAwarePosterior, match=reason):
        drawn(JointPrior(OfPrior(prior, shared)), [[1.0]], [0.0])


@pytest.mark.thorough
def test_a_simplex_that_is_not_released_is_drawn():
    def prior():
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("a", dist.Normal(shares[0], 0.1))

    found = drawn(JointPrior(OfPrior(prior, "a")), [[1e4]], [9e3])
    np.testing.assert_allclose(found[:, 1:].sum(1), 1, atol=1e-5)
    assert 0.75 < found[:, 1].mean() < 0.9
