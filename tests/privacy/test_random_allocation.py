import math
import time
from itertools import pairwise

import numpy as np
import pytest

from tests.conftest import some_of
from tests.privacy.allocations import (
    confident_delta,
    excess_of_the_mean,
    expected_excess,
    simulated_losses,
)
from workbench._validate import ArgumentError
from workbench.privacy import accounting, calibration, lower_pld, rdp
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy._mean_ratio import mean_ratio
from workbench.privacy.allocated_gaussian import AllocatedGaussian
from workbench.privacy.lower_pld import ComposedLowerBound
from workbench.privacy.pld import ComposedLoss
from workbench.privacy.steps import LAWS, Steps

# (t, sigma, epochs, delta), and upper and lower bounds on epsilon by Feldman and Shenfeld's package
# PLD_accounting 2.0
REFERENCES = [
    ((100, 1.41, 10, 1e-5), 0.981, 0.938),
    ((10, 2.0, 10, 1e-5), 2.185, 2.098),
    ((333, 0.48, 3, 1e-3), 3.4151, 3.338),
    ((20, 1.0, 1, 1e-5), 1.631, 1.586),
]


def plan(t, sigma, steps):
    return {
        "sampler": "random_allocation",
        "sampling_rate": 1 / t,
        "noise_multiplier": sigma,
        "steps": steps,
    }


def steps_of(t, sigma, steps):
    return Steps.checked("random_allocation", None, 1 / t, sigma, steps)


def least_delta(steps, epsilon):
    return max((bound.delta(epsilon) for bound in lower_pld.of_allocation(steps)), default=0.0)


def bracket(t, sigma, epochs, delta):
    lower = lower_pld.allocation_epsilon(steps_of(t, sigma, t * epochs), delta)
    return lower, accounting.epsilon(delta=delta, **plan(t, sigma, t * epochs))


def bounds(t, sigma, epochs, direction):
    """(upper, lower) bounds on the loss of whole epochs."""
    alike = (t, 1 / sigma, direction, t)
    upper, lower = ((AllocatedGaussian(*alike, is_upper), epochs) for is_upper in (True, False))
    return ComposedLoss((upper,)), ComposedLowerBound((lower,))


@pytest.mark.parametrize(("settings", "upper", "lower"), REFERENCES)
def test_both_bounds_lie_between_those_of_another_accountant(settings, upper, lower):
    low, high = bracket(*settings)
    assert lower <= low <= high <= upper
    assert high <= low * 1.006


def test_many_epochs_with_much_noise_cost_a_little_less_than_poisson():
    low, high = bracket(100, 6.0, 100, 1e-5)
    poisson = accounting.epsilon(sampling_rate=0.01, noise_multiplier=6.0, steps=10_000, delta=1e-5)
    assert 0.59 < low <= high < poisson < 0.602


@pytest.mark.parametrize("sigma", some_of([0.1, 0.7, 3.0, 1e5], 3))
@pytest.mark.parametrize("epochs", [1, 50])
@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_one_step_an_epoch_is_the_gaussian_mechanism(sigma, epochs, delta):
    exact = GaussianLoss(math.sqrt(epochs / sigma**2)).epsilon(delta)
    low, high = bracket(1, sigma, epochs, delta)
    assert low <= exact <= high
    assert high == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_two_epochs_of_two_steps_agree_with_numerical_integration(direction):
    """The second epoch's delta, at what the first epoch's loss leaves of epsilon, is averaged over
    the first epoch.
    """
    mu, epsilon = 1.0, 1.5
    strikes = np.exp(np.linspace(-12, 12, 2401))
    of_the_second = excess_of_the_mean(mu, 2, strikes)
    x = np.linspace(-9, 10, 801)
    ratios = np.exp(mu * x - mu**2 / 2)
    mean = (ratios[:, None] + ratios) / 2
    density = np.exp(-(x[:, None] ** 2 + x**2) / 2) / (2 * math.pi) * (x[1] - x[0]) ** 2
    if direction == "remove":
        left = np.log(math.exp(epsilon) / mean)
        exact = float((density * mean * np.interp(left, np.log(strikes), of_the_second)).sum())
    else:
        strike = np.exp(-epsilon) / mean
        excess = np.interp(np.log(strike), np.log(strikes), of_the_second) - 1 + strike
        exact = float((density * mean * excess).sum()) * math.exp(epsilon)
    upper, lower = (bound.delta(epsilon) for bound in bounds(2, 1 / mu, 2, direction))
    assert lower * (1 - 1e-4) <= exact <= upper * (1 + 1e-4)
    assert upper <= lower * 1.02
    assert accounting.delta(epsilon=epsilon, **plan(2, 1 / mu, 4)) >= exact * (1 - 1e-4)


def is_inside(generator, t, sigma, epochs, direction, false_alarm, trials, used_sigma=None):
    """Whether delta by simulation can be between the bounds, at an epsilon where it is
    about .01.
    """
    upper, lower = bounds(t, sigma, epochs, direction)
    epsilon = upper.epsilon(0.01)
    losses = simulated_losses(generator, 1 / (used_sigma or sigma), t, epochs, direction, trials)
    low, high = confident_delta(losses, epsilon, false_alarm)
    return low <= upper.delta(epsilon) and lower.delta(epsilon) <= high


PLANS = [(20, 1.0, 5), (3, 0.5, 2), (100, 2.0, 1), (7, 3.0, 10)]


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("settings", PLANS)
def test_a_simulation_lies_between_the_bounds(settings, direction):
    """False alarms: 1e-9 a plan."""
    assert is_inside(np.random.default_rng(1), *settings, direction, 1e-9, 40_000)


@pytest.mark.parametrize("factor", [2 / 3, 3 / 2])
def test_a_simulation_with_another_noise_lies_outside(factor):
    for settings in PLANS:
        inside = is_inside(
            np.random.default_rng(2), *settings, "remove", 1e-9, 40_000, settings[1] * factor
        )
        assert not inside, settings


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(50))
def test_simulations_of_random_plans_lie_between_the_bounds(seed):
    """False alarms: 1e-9 a plan and direction."""
    generator = np.random.default_rng([27, seed])
    t, epochs = int(2 ** generator.uniform(0, 8)), int(2 ** generator.uniform(0, 4))
    sigma = float(2 ** generator.uniform(-1, 2))
    for direction in ("remove", "add"):
        assert is_inside(generator, t, sigma, epochs, direction, 1e-9, 200_000), (
            t,
            sigma,
            epochs,
            direction,
        )


def test_an_epoch_that_is_not_finished_costs_less():
    costs = [accounting.epsilon(delta=1e-6, **plan(50, 1.0, steps)) for steps in range(0, 101, 25)]
    assert costs[0] == 0
    assert all(first < second for first, second in pairwise(costs))
    high = accounting.epsilon(delta=1e-6, **plan(50, 1.0, 60))
    low = lower_pld.allocation_epsilon(steps_of(50, 1.0, 60), 1e-6)
    assert 0.99 * costs[2] < low < high < costs[4]
    assert lower_pld.allocation_epsilon(steps_of(50, 1.0, 0), 1e-6) == 0


def test_a_single_step_of_an_epoch_is_a_poisson_sampled_step():
    """Of t steps one was taken: the record was in it with probability 1 / t."""
    for epsilon in (0.0, 0.2):
        bound = accounting.delta(epsilon=epsilon, **plan(20, 1.0, 1))
        strike = 20 * math.exp(epsilon) - 19
        exact = float(expected_excess(1.0, strike)) / 20
        assert exact <= bound <= exact * 1.02
        assert exact * 0.98 <= least_delta(steps_of(20, 1.0, 1), epsilon) <= exact


def test_a_delta_that_covers_entering_at_all_leaves_no_epsilon():
    settings = plan(1000, 0.2, 1)
    assert accounting.epsilon(delta=1.1e-3, **settings) == 0.0
    assert accounting.epsilon(delta=0.9e-3, **settings) > 0.0
    assert accounting.delta(epsilon=0.0, **settings) <= 1e-3 * (1 + 1e-9)


EXTREMES = [
    (10**6, 1e5, 1, 1e-12),
    (10**6, 1.0, 1, 1e-12),
    (2, 0.1, 10**6, 1e-12),
    (10**6, 0.1, 100, 1e-12),
    (9999, 1.0, 100, 1e-5),
    (2, 1e5, 10**6, 1e-12),
    (3, 1.0, 1, 1e-25),
    (10**4, 0.1, 3, 1e-3),
]


@pytest.mark.parametrize("settings", some_of([(each,) for each in EXTREMES]))
def test_extreme_plans_have_finite_bounds_in_order(settings):
    t, sigma, epochs, delta = settings
    low, high = bracket(*settings)
    assert math.isfinite(high)
    assert 0 <= low <= high
    # one known step an epoch is worse, and the sum of all outputs tells less
    assert high <= GaussianLoss(math.sqrt(epochs / sigma**2)).epsilon(delta)
    assert high >= GaussianLoss(math.sqrt(epochs / t) / sigma).epsilon(delta) * (1 - 1e-6)


@pytest.mark.parametrize(
    ("sigma", "epsilon"), [(0.1, 60.0), (1.0, 60.0), (1.0, 1e4), (1e5, 0.0), (0.1, 0.0)]
)
def test_extreme_deltas_are_probabilities_in_order(sigma, epsilon):
    low = least_delta(steps_of(100, sigma, 1000), epsilon)
    assert 0 <= low <= accounting.delta(epsilon=epsilon, **plan(100, sigma, 1000)) <= 1


def test_both_bounds_of_many_steps_and_epochs_take_seconds():
    mean_ratio.cache_clear()
    began = time.process_time()
    low, high = bracket(9999, 1.01, 100, 1e-5)
    assert time.process_time() - began < 5
    assert high <= low * 1.01


def test_delta_and_epsilon_agree():
    settings = plan(30, 1.2, 240)
    epsilon = accounting.epsilon(delta=1e-6, **settings)
    assert accounting.delta(epsilon=epsilon, **settings) == pytest.approx(1e-6, rel=2e-3)


# ---- as a sampler of accountants -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "t"),
    [
        (1.0, 1),
        (0.7, 1),
        (2 / 3, 2),
        (0.4, 3),
        (0.333, 3),
        (0.12, 8),
        (1 / 49, 49),
        (1e-7, 10**7),
        (1 / 9e6, 9 * 10**6),
    ],
)
def test_an_epoch_has_the_nearest_whole_number_of_steps(rate, t):
    assert LAWS["random_allocation"].steps_per_epoch(rate) == t
    assert LAWS["random_allocation"].steps_per_epoch(1 / t) == t


def test_epochs_continue_through_a_schedule_and_are_charged_with_their_least_noise():
    schedule = Steps.checked("random_allocation", None, 0.1, [3.0, 2.0, 2.0], [15, 15, 3])
    assert [(each.released, each.noise_multiplier, each.repeated) for each in schedule.epochs] == [
        (10, 3.0, 1),
        (10, 2.0, 1),
        (10, 2.0, 1),
        (3, 2.0, 1),
    ]
    changed = Steps.checked("random_allocation", None, [0.1, 0.2], 3.0, [15, 7])
    assert [(each.length, each.released, each.repeated) for each in changed.epochs] == [
        (10, 10, 1),
        (10, 5, 1),
        (5, 5, 1),
        (5, 2, 1),
    ]


def test_fits_by_allocation_and_by_poisson_add_up():
    """No more than the parts, and no less than either twice, where both cost about the same."""
    allocated = Steps.checked("random_allocation", None, 0.1, 4.0, 100)
    poisson = Steps.checked("poisson", None, 0.1, 4.0, 100)
    both = accounting.total_epsilon((allocated, poisson), 1e-5)
    assert (
        accounting.total_epsilon((allocated, allocated), 1e-5)
        < both
        < accounting.total_epsilon((poisson, poisson), 1e-5)
    )


def test_epsilon_grows_within_an_epoch_and_never_jumps_over_its_end():
    curve = accounting.epsilon_curve(
        sampler="random_allocation",
        sampling_rate=0.02,
        noise_multiplier=1.0,
        steps=125,
        delta=1e-5,
        points=12,
    )
    assert all(first[1] <= second[1] for first, second in pairwise(curve))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"relation": "replace_one"}, "^relation='replace_one'"),
        (
            {"sampling_rate": 9e-8},
            r"^sampling_rate=9e-08: makes epochs of more than 10,000,000 steps",
        ),
        ({"sampling_rate": 0.0}, "^sampling_rate=0.0"),
        ({"accountant": "fourier"}, "^accountant='fourier': is for Poisson minibatches only"),
    ],
)
def test_bad_settings_of_accountants_are_named(settings, message):
    plan = {
        "sampler": "random_allocation",
        "sampling_rate": 0.1,
        "noise_multiplier": 2.0,
        "steps": 100,
        "delta": 1e-5,
    }
    with pytest.raises(ArgumentError, match=message):
        accounting.epsilon(**plan | settings)


@pytest.mark.thorough
def test_calibrations_keep_epsilon_and_hardly_more():
    target = {"epsilon": 1.0, "delta": 1e-5, "sampler": "random_allocation"}

    def cost(**plan):
        return accounting.epsilon(sampler="random_allocation", delta=1e-5, **plan)

    sigma = calibration.noise_multiplier(**target, sampling_rate=0.01, steps=1000)
    assert 0.999 < cost(sampling_rate=0.01, noise_multiplier=sigma, steps=1000) <= 1
    steps = calibration.max_steps(**target, sampling_rate=0.01, noise_multiplier=1.5)
    assert cost(sampling_rate=0.01, noise_multiplier=1.5, steps=steps) <= 1
    assert cost(sampling_rate=0.01, noise_multiplier=1.5, steps=steps + 1) > 1
    rate = calibration.max_sampling_rate(**target, noise_multiplier=1.5, steps=1000)
    length = round(1 / rate)
    assert rate == 1 / length
    assert cost(sampling_rate=rate, noise_multiplier=1.5, steps=1000) <= 1
    assert cost(sampling_rate=1 / (length - 1), noise_multiplier=1.5, steps=1000) > 1


@pytest.mark.parametrize(
    ("t", "mu", "order"), some_of([(1, 0.7, 5), (3, 0.5, 4), (2, 1.0, 2), (3, 0.5, 9)])
)
def test_renyi_bounds_are_those_of_numerical_integration(t, mu, order):
    """In both directions, of a whole epoch."""
    x = np.linspace(-9, 9 + (order + 1) * mu, 241)
    weights = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    ratios = np.exp(mu * x - mu**2 / 2)
    total, density = ratios, weights
    for _ in range(t - 1):
        total = total[..., None] + ratios
        density = density[..., None] * weights
    mean = total / t
    exact = max(
        math.log(float((density * mean**order).sum())),
        math.log(float((density * mean ** (1.0 - order)).sum())),
    ) / (order - 1)
    bound = rdp.renyi_loss(Steps.checked("random_allocation", None, 1 / t, 1 / mu, t), order)
    assert exact * (1 - 1e-6) <= bound <= exact * 1.01


@pytest.mark.thorough
def test_renyi_bounds_give_an_epsilon_above_that_of_loss_distributions():
    plan = {
        "sampler": "random_allocation",
        "sampling_rate": 0.01,
        "noise_multiplier": 1.41,
        "steps": 1000,
        "delta": 1e-5,
    }
    pld, renyi, classic = (
        accounting.epsilon(**plan, accountant=name) for name in ("pld", "rdp", "rdp_classic")
    )
    assert pld < renyi < classic < 2 * pld
