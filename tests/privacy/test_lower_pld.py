import math

import numpy as np
import pytest

from tests.conftest import some_of
from tests.privacy.allocations import confident_delta, simulated_losses
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy.allocated_gaussian import AllocatedGaussian
from workbench.privacy.lower_pld import ComposedLowerBound


def lower(steps, mu, epochs, direction):
    return ComposedLowerBound(((AllocatedGaussian(steps, mu, direction, steps, False), epochs),))


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(
    ("sigma", "epochs"), some_of([(300.0, 1), (1.0, 1), (50.0, 10_000), (2.0, 30), (0.3, 100)])
)
@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-12])
def test_one_step_an_epoch_is_bounded_below_the_gaussian_mechanism_and_tightly(
    sigma, epochs, delta, direction
):
    exact = GaussianLoss(math.sqrt(epochs) / sigma).epsilon(delta)
    assert exact * (1 - 5e-3) <= lower(1, 1 / sigma, epochs, direction).epsilon(delta) <= exact


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0])
def test_delta_is_bounded_below_the_gaussian_mechanism_and_tightly(epsilon, direction):
    exact = GaussianLoss(1.0).delta(epsilon)
    assert exact * (1 - 0.02) <= lower(1, 0.25, 16, direction).delta(epsilon) <= exact


def test_what_is_not_known_is_zero():
    assert lower(2, 10.0, 10**6, "remove").epsilon(1e-5) == 0.0  # beyond the largest epsilon
    assert lower(10, 1.0, 1, "add").epsilon(0.9) == 0.0
    assert lower(10, 1.0, 1, "add").delta(200.0) == 0.0


def test_delta_and_epsilon_agree():
    loss = lower(50, 1.0, 20, "remove")
    assert loss.delta(loss.epsilon(1e-6)) == pytest.approx(1e-6, rel=2e-3)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_a_simulation_does_not_refute_it(direction):
    """False alarms: 1e-9."""
    bound = lower(8, 0.7, 4, direction)
    epsilon = bound.epsilon(0.01)
    losses = simulated_losses(np.random.default_rng(3), 0.7, 8, 4, direction, 200_000)
    low, high = confident_delta(losses, epsilon, 1e-9)
    assert bound.delta(epsilon) <= high
    assert low <= bound.delta(epsilon) * 1.1
