import math

import numpy as np
import pytest

from tests.conftest import some_of
from tests.privacy.allocations import excess_of_the_mean
from workbench.privacy._mean_ratio import mean_ratio


def excess(law, strike):
    """E[(S - strike)_+] under a discrete law, with the mass at infinity."""
    values = law.values + (law.origin - strike)
    return law.infinite + float(law.masses @ np.maximum(values, 0.0))


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_two_laws_enclose_convex_means_that_are_integrated_numerically(mu, steps):
    upper, lower = (mean_ratio(steps, mu, is_upper) for is_upper in (True, False))
    spread = math.sqrt(math.expm1(mu**2) / steps)
    for strike in (max(1 - spread, 0.1), 1.0, 1 + spread, 1 + 3 * spread):
        true = excess_of_the_mean(mu, steps, strike)
        low, high = excess(lower, strike), excess(upper, strike)
        assert low * (1 - 1e-8) <= true <= high * (1 + 1e-8)
        assert high <= low * 1.03


@pytest.mark.parametrize("is_upper", [True, False])
@pytest.mark.parametrize("mu", some_of([1e-5, 0.5, 0.49, 10.0]))
@pytest.mark.parametrize("steps", [1, 7, 10**6])
def test_mass_and_mean_are_kept(steps, mu, is_upper):
    law = mean_ratio(steps, mu, is_upper)
    assert np.all(law.masses > 0)
    assert np.all(np.diff(law.values) > 0)
    assert law.masses.sum() == pytest.approx(1, abs=law.mass_error)
    mean = law.masses @ law.values + law.origin * law.masses.sum() + law.infinite
    assert mean == pytest.approx(1, abs=law.mass_error + law.value_error)
    assert law.mass_error < 1e-5
    assert law.value_error < 1e-9


@pytest.mark.parametrize("mu", [1e-4, 0.3, 1.5])
def test_the_variance_is_that_of_independent_ratios_from_both_sides(mu):
    """Far tails hold a part of the variance that grows with mu, so mu is moderate here."""
    exact = math.expm1(mu**2) / 1000
    upper, lower = (mean_ratio(1000, mu, is_upper) for is_upper in (True, False))
    variances = [float(law.masses @ (law.values + law.origin - 1) ** 2) for law in (lower, upper)]
    assert variances[0] <= exact * (1 + 1e-9)
    assert exact <= variances[1] * (1 + 1e-9)
    assert variances[1] <= variances[0] * 1.02


def test_more_ratios_are_smaller_in_the_convex_order():
    """The mean of n + 1 is the conditional mean of that of n, so upper laws of more never fall
    below lower ones of fewer.
    """
    for fewer, more in ((1, 2), (10, 11), (100, 128)):
        for strike in (0.8, 1.0, 1.3):
            assert excess(mean_ratio(more, 0.8, False), strike) <= excess(
                mean_ratio(fewer, 0.8, True), strike
            )


def test_a_ratio_of_zero_has_a_loss_of_minus_infinity():
    law = mean_ratio(1, 2.0, True)
    assert law.log_ratios()[0] == -math.inf
    assert np.all(np.isfinite(law.log_ratios()[1:]))


@pytest.mark.parametrize("steps", [2, 181])
def test_rare_large_ratios_do_not_make_small_ones(steps):
    """Otherwise the mean of many ratios near 1 would have outliers, 1 / n below them, that are as
    likely as the tail.
    """
    law = mean_ratio(steps, 1e-4, True)
    likely = law.masses > 1e-35
    assert abs(law.values[likely]).max() < 15e-4
