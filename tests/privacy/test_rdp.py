"""Renyi losses: never below the divergence of a pair of neighbours, and close to the largest."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad, trapezoid
from scipy.stats import norm

from tests.conftest import some_of
from workbench.privacy.rdp import MAX_ORDER, renyi_loss
from workbench.privacy.steps import Steps

GRID = some_of(
    [
        (rate, sigma, order)
        for rate in (0.001, 0.1, 0.6)
        for sigma in (0.6, 1.0, 5.0)
        for order in (2, 3, 12, 64)
    ],
    5,
)


def loss(sampler, rate, sigma, steps, order, relation=None, **options):
    return renyi_loss(Steps.checked(sampler, relation, rate, sigma, steps), order, **options)


def divergence(first, second, order):
    """D_order of two densities given by their logarithms, by quadrature in logarithms around the
    integrand's peak.
    """

    def exponent(x):
        return order * first(x) + (1 - order) * second(x)

    grid = np.linspace(-400, 400, 800_001)
    values = exponent(grid)
    peak = float(values.max())
    return (peak + math.log(trapezoid(np.exp(values - peak), grid))) / (order - 1)


def mixture(rate, mean, sigma):
    return lambda x: np.logaddexp(
        math.log1p(-rate) + norm.logpdf(x, 0, sigma), math.log(rate) + norm.logpdf(x, mean, sigma)
    )


@pytest.mark.parametrize(("rate", "sigma", "order"), GRID)
def test_poisson_is_the_larger_of_both_directions(rate, sigma, order):
    present, absent = mixture(rate, 1.0, sigma), lambda x: norm.logpdf(x, 0, sigma)
    directions = [divergence(present, absent, order), divergence(absent, present, order)]
    found = loss("poisson", rate, sigma, 1, order)
    assert max(directions) <= found * (1 + 1e-7) + 1e-13
    assert found == pytest.approx(max(directions), rel=1e-4, abs=1e-12)


@pytest.mark.parametrize(("rate", "sigma", "order"), GRID)
def test_poisson_agrees_with_dp_accounting(rate, sigma, order):
    known = RdpAccountant([order], NeighboringRelation.ADD_OR_REMOVE_ONE)
    known.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), 300)
    assert loss("poisson", rate, sigma, 300, order) == pytest.approx(
        known._rdp[0], rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize(("rate", "sigma", "order"), GRID)
def test_without_replacement_bounds_a_replaced_record(rate, sigma, order):
    """A record at C replaced by one at -C: two mixtures, of which neither is the other's worst case
    in all of its range.
    """
    one, other = mixture(rate, 2.0, sigma), mixture(rate, 0.0, sigma)
    found = loss("without_replacement", rate, sigma, 1, order)
    assert divergence(one, other, order) <= found * (1 + 1e-6) + 1e-12
    assert found <= order * (2 / sigma) ** 2 / 2 * (1 + 1e-5)  # sampling makes nothing worse


@pytest.mark.parametrize("order", [2, 5, 40])
def test_without_replacement_is_no_looser_than_what_was_known(order):
    """Wang, Balle and Kasiviswanathan 2019, as dp-accounting has it; noise in units of the
    sensitivity 2.
    """
    known = RdpAccountant([order], NeighboringRelation.REPLACE_ONE)
    known.compose(
        dp_event.SampledWithoutReplacementDpEvent(1000, 50, dp_event.GaussianDpEvent(4.0 / 2))
    )
    assert loss("without_replacement", 0.05, 4.0, 1, order) <= known._rdp[0]


def test_the_integral_of_the_profile_is_that_of_adaptive_quadrature():
    rate, sigma, order = 0.1, 1.5, 6
    mu = 2 / sigma

    def integrand(epsilon):
        s = math.log1p(math.expm1(epsilon) / rate)
        profile = rate * (norm.cdf(mu / 2 - s / mu) - math.exp(s) * norm.cdf(-mu / 2 - s / mu))
        return (math.exp((order - 1) * epsilon) + math.exp(-order * epsilon)) * profile

    whole = sum(
        quad(integrand, low, low + 0.5, epsabs=0, epsrel=1e-10)[0] for low in np.arange(0, 14, 0.5)
    )
    expected = math.log1p(order * (order - 1) * whole) / (order - 1)
    assert loss("without_replacement", rate, sigma, 1, order) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("relation", "sensitivity"), [("replace_one", 2.0), ("replace_special", 1.0)]
)
def test_shuffled_epochs_are_gaussian_mechanisms(relation, sensitivity):
    """Ten steps of a fifth of the records are two epochs."""
    assert loss("shuffle", 0.2, 3.0, 10, 7, relation) == pytest.approx(
        2 * 7 * (sensitivity / 3.0) ** 2 / 2
    )


@pytest.mark.parametrize("order", [2, 10])
def test_two_changes_bound_a_removal_with_an_addition(order):
    """Minibatches with a record at C in the one data set and at -C in the other, the rest at 0."""
    rate, sigma = 0.2, 1.3
    one, other = mixture(rate, 1.0, sigma), mixture(rate, -1.0, sigma)
    found = loss("poisson", rate, sigma, 1, order, changes=2)
    assert loss("poisson", rate, sigma, 1, order) < divergence(one, other, order) <= found


def test_losses_add_up_over_steps_and_schedules():
    whole = loss("poisson", 0.1, 1.0, 30, 8)
    assert loss("poisson", [0.1, 0.1], [1.0, 1.0], [10, 20], 8) == pytest.approx(whole)
    assert loss("poisson", 0.1, 1.0, 0, 8) == 0


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement", "shuffle"])
def test_extremes_are_finite_and_in_order(sampler):
    losses = [loss(sampler, rate, 1e5, 1, MAX_ORDER) for rate in (1e-6, 1e-3, 1.0)]
    assert all(map(math.isfinite, losses))
    assert losses == sorted(losses)
    assert math.isfinite(loss(sampler, 0.5, 0.1, 10**6, MAX_ORDER))
