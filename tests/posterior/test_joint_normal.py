"""What a table of numbers releases in one step, and its posterior given the noised moments."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.conftest import some_of
from workbench.posterior import joint_normal
from workbench.posterior.gram_chain import SETTLED
from workbench.posterior.joint_normal import NormalWishart, draw, norm_of, prior_draws, statistic
from workbench.posterior.statistics import SITE, guide
from workbench.record_model.splitting import split

ENDS = (-1.0, 0.0, 0.5, 1.0)
CORNERS = np.array(list(itertools.product(ENDS, ENDS, ENDS)), np.float32)
COVARIANCE = np.array([[0.04, 0.015], [0.015, 0.02]])


def released(x, noise=0.0, seed=0):
    """The noised sums, computed without the code that is tested."""
    random, z = np.random.default_rng(seed), np.column_stack([np.ones(len(x)), x])
    products, width = z.T @ z, z.shape[1]
    entries = [
        products[i, j] * (1 if i == j else np.sqrt(2))
        for i in range(width)
        for j in range(i, width)
    ]
    return np.array(entries) + noise * random.normal(size=len(entries))


def table(size, seed=0):
    return np.random.default_rng(seed).multivariate_normal([0.3, -0.2], COVARIANCE, size)


# ---- what a record adds --------------------------------------------------------------------------


def test_no_record_adds_more_than_the_norm_and_a_corner_adds_it():
    norms = np.linalg.norm(np.asarray(statistic(jnp.asarray(CORNERS)), float), axis=1)
    assert norms.max() == pytest.approx(norm_of(3), rel=1e-6)
    assert norms == pytest.approx(1 + np.square(CORNERS).sum(axis=1), rel=1e-5)
    beyond = np.asarray(statistic(jnp.asarray([[3.0, -1e30, np.inf]])), float)
    assert np.linalg.norm(beyond) == pytest.approx(norm_of(3), rel=1e-6)


def test_the_sums_are_those_of_products_with_a_constant():
    x = table(50).astype(np.float32)
    sums = np.asarray(statistic(jnp.asarray(x)), float).sum(axis=0)
    assert sums == pytest.approx(released(x), rel=1e-4)


def test_the_gradient_of_a_record_is_its_statistic():
    shapes = (jax.ShapeDtypeStruct((3,), jnp.float32),)
    model = split(joint_normal.model_of(3), guide, jax.random.key(0), shapes, num_records=5)
    record = jnp.asarray(CORNERS[27])
    slope = jax.grad(lambda u: model.record_loss(u, (record,), jax.random.key(0)))(model.initial)
    assert np.asarray(slope[SITE]) == pytest.approx(-np.asarray(statistic(record[None]))[0])


# ---- the posterior -------------------------------------------------------------------------------


def test_without_noise_it_is_the_conjugate_one():
    """By the formulas of a normal-inverse-Wishart posterior, with a scale that hardly counts."""
    x = table(400)
    drawn = draw(released(x), 0.0, NormalWishart(), 2000, np.random.default_rng(1))
    assert drawn.spread <= SETTLED
    scatter = np.cov(x.T, ddof=0) * 400
    errors = drawn.covariance.std(axis=0) / np.sqrt(2000)
    # D + 1 + n degrees of freedom; its mean has n less D + 1 of them
    expected = (scatter + 0.01 * np.eye(2) * 0.5) / 400
    assert np.all(np.abs(drawn.covariance.mean(axis=0) - expected) < 5 * errors + 2e-4)
    of_mean = np.cov(drawn.mean.T)
    assert of_mean == pytest.approx(scatter / 400 / 400, rel=0.25)
    assert np.all(np.abs(drawn.mean.mean(axis=0) - x.mean(axis=0)) < 5e-4)
    spread = drawn.covariance[:, 0, 0].std() / drawn.covariance[:, 0, 0].mean()
    assert spread == pytest.approx(np.sqrt(2 / 400), rel=0.1)


def test_noise_widens_it_by_its_size():
    x, noise = table(4000), 40.0
    drawn = draw(released(x, noise), noise, NormalWishart(), 500, np.random.default_rng(2))
    spread = drawn.covariance[:, 0, 0].std()
    # of a second moment: its noise, that of the mean (sqrt(1 / 2) 2 m) and of n (m^2), and sampling
    second = np.hypot(noise * np.sqrt(1 + 2 * 0.3**2 + 0.3**4), np.sqrt(2 * 4000) * 0.04) / 4000
    assert spread == pytest.approx(second, rel=0.2)
    assert abs(drawn.covariance[:, 0, 0].mean() - 0.04) < 4 * spread
    assert np.all(np.linalg.eigvalsh(drawn.covariance) > 0)


@pytest.mark.parametrize("noise", some_of([1e3, 1e5], first=1))
def test_noise_that_hides_everything_leaves_the_prior_and_no_warning(noise):
    drawn = draw(released(table(500), noise), noise, NormalWishart(), 200, np.random.default_rng(3))
    assert np.all(np.isfinite(drawn.mean))
    assert np.all(np.isfinite(drawn.covariance))
    deviations = np.sqrt(drawn.covariance[:, 0, 0])
    assert np.quantile(deviations, 0.9) > 3 * np.quantile(deviations, 0.1)


@pytest.mark.parametrize("columns", some_of([1, 2, 6], first=1))
def test_it_takes_any_number_of_columns(columns):
    random = np.random.default_rng(4)
    x = 0.2 * random.normal(size=(300, columns))
    drawn = draw(released(x, 5.0), 5.0, NormalWishart(), 50, random)
    assert drawn.mean.shape == (50, columns)
    assert drawn.covariance.shape == (50, columns, columns)


def test_two_records_and_a_constant_column_break_nothing():
    for x in (np.array([[0.1, 0.2], [0.3, 0.1]]), np.full((200, 2), 0.5)):
        drawn = draw(released(x, 3.0), 3.0, NormalWishart(), 50, np.random.default_rng(5))
        assert np.all(np.isfinite(drawn.covariance))


def test_the_prior_has_uniform_correlations_and_scales_around_its_middle():
    mean, covariance = prior_draws(2, NormalWishart(), 4000, np.random.default_rng(6))
    deviations = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = covariance[:, 0, 1] / deviations.prod(axis=1)
    assert stats.kstest(correlation, "uniform", (-1, 2)).pvalue > 1e-3
    # a deviation is s_j over the root of a chi-squared number with 2 degrees of freedom
    random = np.random.default_rng(7)
    reference = 0.1 * np.exp(random.normal(size=4000)) / np.sqrt(random.chisquare(2, 4000))
    assert stats.ks_2samp(deviations[:, 0], reference).pvalue > 1e-3
    assert stats.kstest(mean[:, 0] / deviations[:, 0] * 0.1, "norm").pvalue > 1e-3


@pytest.mark.statistical
def test_ranks_of_the_truth_among_its_draws_are_even():
    """Truths from the prior, 200 tables of 300 records; a false alarm in 250."""
    prior, ranks = NormalWishart(), []
    for seed in range(200):
        random = np.random.default_rng(1000 + seed)
        mean, covariance = (array[0] for array in prior_draws(2, prior, 1, random))
        x = random.multivariate_normal(mean, covariance, 300)
        drawn = draw(released(x, 10.0, seed), 10.0, prior, 199, random)
        quantities = np.column_stack(
            [drawn.mean, np.log(drawn.covariance[:, 0, 0]), _correlation(drawn.covariance)]
        )
        truth = np.append(mean, [np.log(covariance[0, 0]), _correlation(covariance)])
        ranks.append((quantities < truth).mean(axis=0))
    for of_one in np.array(ranks).T:
        assert stats.kstest(of_one, "uniform").pvalue > 1e-3


def _correlation(covariance):
    return covariance[..., 0, 1] / np.sqrt(covariance[..., 0, 0] * covariance[..., 1, 1])
