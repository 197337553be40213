import math
from dataclasses import replace

import numpy as np
import pytest

from tests.privacy.allocations import deltas_of_an_epoch, excess_of_the_mean
from workbench.privacy.allocated_gaussian import AllocatedGaussian

DIRECTIONS = ["remove", "add"]


def delta_on_a_grid(step, width, epsilon):
    first, probabilities, infinite = step.on_grid(width)
    losses = (first + np.arange(len(probabilities))) * width
    return infinite - np.expm1(np.minimum(epsilon - losses, 0.0)) @ probabilities


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("mu", "steps"), [(0.1, 2), (1.0, 2), (2.5, 2), (0.4, 3), (1.5, 3)])
def test_one_epoch_on_a_grid_bounds_deltas_that_are_integrated_numerically(mu, steps, direction):
    spread = math.sqrt(math.log1p(math.expm1(mu**2) / steps))
    step = AllocatedGaussian(steps, mu, direction, steps)
    for epsilon in (0.0, spread, 2 * spread):
        exact = deltas_of_an_epoch(mu, steps, epsilon)[direction]
        bound = delta_on_a_grid(step, spread / 50, epsilon)
        assert exact * (1 - 1e-8) <= bound <= exact * 1.03 + 1e-12


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lower_losses_are_below_deltas_that_are_integrated_numerically(direction):
    """At the grid's own epsilons moved losses cost nothing, so a fine grid shows the law itself."""
    step = AllocatedGaussian(2, 1.0, direction, 2, is_upper=False)
    for epsilon in (0.0, 0.7, 1.4):
        exact = deltas_of_an_epoch(1.0, 2, epsilon)[direction]
        assert exact * 0.98 <= delta_on_a_grid(step, 1e-5, epsilon) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_steps_of_an_epoch_that_was_not_finished_are_a_mixture(direction):
    """Of 4 steps 2 were taken: the ratio is (1 + S) / 2, with the S of 2 steps."""
    step = AllocatedGaussian(4, 1.2, direction, 2)
    for epsilon in (0.0, 0.3, 0.6):
        grow = math.exp(epsilon)
        if direction == "remove":
            exact = excess_of_the_mean(1.2, 2, 2 * grow - 1) / 2
        else:
            strike = 2 / grow - 1
            exact = grow / 2 * (excess_of_the_mean(1.2, 2, strike) - 1 + strike)
        assert exact * (1 - 1e-8) <= delta_on_a_grid(step, 0.01, epsilon) <= exact * 1.02 + 1e-12


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("width", [1e-3, 0.1])
def test_the_grid_keeps_the_mass_of_the_other_distribution_too(direction, width):
    step = AllocatedGaussian(20, 1.5, direction, 20)
    first, probabilities, infinite = step.on_grid(width)
    assert np.all(probabilities >= 0)
    assert probabilities.sum() + infinite == pytest.approx(1, abs=1e-9)
    losses = (first + np.arange(len(probabilities))) * width
    assert probabilities @ np.exp(-losses) == pytest.approx(1, abs=1e-9)


def test_a_shorter_reach_and_a_floor_only_raise_delta():
    whole = AllocatedGaussian(20, 1.5, "add", 20)
    for changed in (replace(whole, reach=5.0), replace(whole, floor=-1.0)):
        for epsilon in (0.0, 0.5, 1.0):
            assert delta_on_a_grid(changed, 0.01, epsilon) >= delta_on_a_grid(
                whole, 0.01, epsilon
            ) * (1 - 1e-12)
    assert replace(whole, floor=-1.0).loss_limits()[0] == -1.0
    assert replace(whole, reach=5.0).loss_limits()[1] < whole.loss_limits()[1]


def test_a_shorter_reach_only_lowers_lower_losses():
    whole = AllocatedGaussian(20, 1.5, "remove", 20, is_upper=False)
    cut = replace(whole, reach=5.0)
    assert cut.on_grid(0.01)[2] == 0.0
    for epsilon in (0.0, 0.5, 1.0):
        assert delta_on_a_grid(cut, 0.01, epsilon) <= delta_on_a_grid(whole, 0.01, epsilon)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_cumulant_is_that_of_the_finite_losses(direction):
    """E[e^-l] is what the other distribution gives to them: all but what is beyond the reach."""
    log_moment, mean, variance = AllocatedGaussian(20, 1.0, direction, 20).cumulant(-1.0)
    assert log_moment == pytest.approx(0, abs=1e-9)
    assert mean < 0 < variance  # under the other distribution the mean loss is minus a divergence
