"""Epsilon is never too small: its own delta, and attacks that need no accountant, say the same of
random plans.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.conftest import some_of
from tests.privacy.attacks import Attack
from workbench.privacy import accounting
from workbench.privacy.steps import LAWS, SENSITIVITY, Phase, Steps

SAMPLERS = ["poisson", "without_replacement"]
DIRECTIONS = {"add_or_remove_one": ("remove", "add"), "replace_one": ("remove", "add", "swap")}


def some_phase(random, sampler, most_steps=6.0):
    """q, sigma and T, log-uniform, of a plan that promises something."""
    rate, steps = 10 ** random.uniform(-4, -0.05), int(10 ** random.uniform(0, most_steps))
    spread = 10 ** random.uniform(-1.5, 0.6) / (rate * math.sqrt(steps))
    sensitivity = SENSITIVITY[LAWS[sampler].relations[0]]
    return Phase(rate, min(max(sensitivity / math.sqrt(math.log1p(spread**2)), 0.4), 1e5), steps)


def check(plans, delta, coarse=False):
    """What is returned has a delta of at most ``delta``, and no attack on one or on all of the
    plans achieves more.
    """
    epsilon = accounting.total_epsilon(tuple(plans), delta, coarse)
    shown = max(loss.delta(epsilon) for loss in accounting._losses(plans, coarse))
    assert min(shown, accounting._participation(plans)) <= delta
    sensitivity = SENSITIVITY[plans[0].relation]
    phases = [
        (rate, sensitivity / sigma, steps) for plan in plans for rate, sigma, steps in plan.phases
    ]
    for direction in DIRECTIONS[plans[0].relation]:
        assert Attack(phases, direction, 10).delta(min(epsilon, 20.0)) <= (
            delta if epsilon < 20 else 1
        )
    return epsilon


def check_random(seed, fits=1):
    random = np.random.default_rng(seed)
    sampler = SAMPLERS[seed % 2]
    relation = LAWS[sampler].relations[0]
    phase = some_phase(random, sampler)
    louder = phase._replace(noise_multiplier=phase.noise_multiplier * random.uniform(1, 2))
    phases = [phase, louder, phase._replace(steps=phase.steps // 3 + 1)]
    delta = 10 ** random.uniform(-9, math.log10(0.5))
    check(
        [Steps(sampler, relation, (phases[place % len(phases)],)) for place in range(fits)],
        delta,
        bool(seed % 3 == 0),
    )


@pytest.mark.parametrize("seed", some_of(list(range(12)), 3))
def test_random_plans(seed):
    check_random(seed)


@pytest.mark.parametrize("seed", some_of(list(range(4)), 4))
def test_random_plans_of_many_fits(seed):
    check_random(100 + seed, fits=2 + 7 * seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(200, 400))
def test_more_random_plans(seed):
    check_random(seed, fits=1 if seed % 4 else 2 + seed % 30)


def test_attacks_reach_what_is_known_exactly():
    """Without sampling: so they are no empty bound."""
    exact = accounting.delta(sampling_rate=1.0, noise_multiplier=50.0, steps=2500, epsilon=1.0)
    for direction in ("remove", "add"):
        assert 0.999 * exact <= Attack([(1.0, 1 / 50, 2500)], direction).delta(1.0) <= exact


VERY_MANY = [(102.25, 0.1, 100_000), (150.0, 0.0315, 422_558), (74.0, 0.5, 40_000)]


@pytest.mark.parametrize(("sigma", "rate", "steps"), some_of(VERY_MANY, 3))
def test_very_many_steps_without_replacement(sigma, rate, steps):
    """Their windows were once placed far above the answer, and epsilon was 0."""
    plan = Steps.checked("without_replacement", None, rate, sigma, steps)
    assert check([plan], 1e-5) > 0.9
    if steps == 100_000:  # dp-accounting's own profile of one pair of neighbours
        assert 2.53 < accounting.bound(plan, 1e-5) < 2.56


def test_a_hundred_fits_cost_more_than_one():
    plan = Steps.checked("without_replacement", None, 0.1, 480.0, 100_000)
    one, hundred = accounting.bound(plan, 1e-5), accounting.total_epsilon((plan,) * 100, 1e-5)
    assert 0.3 < one < 0.6
    assert 5 * one < hundred < 20 * one


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("sigma", some_of([10.9, 1e5]))
@pytest.mark.parametrize(
    ("rate", "steps"),
    some_of([(1e-6, 10**6), (1e-6, 1), (0.0021, 1), (0.0021, 10**6), (1.0, 10**6), (1.0, 1)]),
)
def test_delta_has_an_answer_everywhere(sampler, rate, sigma, steps):
    plan = {"sampler": sampler, "sampling_rate": rate, "noise_multiplier": sigma, "steps": steps}
    values = [
        accounting.delta(epsilon=epsilon, **plan) for epsilon in (0.0, 1e-6, 0.149, 30.0, 1e4)
    ]
    assert all(0 <= value <= 1 for value in values)
    assert all(later <= earlier * (1 + 1e-3) + 1e-25 for earlier, later in pairwise(values))


def test_delta_beyond_all_losses_within_reach_is_next_to_nothing():
    assert (
        accounting.delta(sampling_rate=0.0021, noise_multiplier=10.9, steps=1, epsilon=0.149)
        < 1e-30
    )
