import math
import subprocess
import sys
from itertools import pairwise

import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import norm

from workbench._validate import ArgumentError
from workbench.privacy import accounting

# Poisson, add_or_remove_one: (sigma, q, T, delta), epsilon by dp-accounting's PLD, by RDP, and the lower end of what
# Microsoft's PRV accountant allows (eps_error .01) where it was run.
REFERENCES = [
    ((4.0, 0.01, 10_000, 1e-5), 0.947, 1.03549, 0.9368),
    ((1.1, 0.004266666666666667, 14_062, 1e-5), 2.38169, 2.59656, 2.3715),
    ((0.8, 0.001, 1000, 1e-6), 0.46769, 1.46188, 0.4576),
    ((1.5, 0.04, 2250, 1e-5), 6.76879, 7.32933, 6.7584),
    ((6.0, 0.01, 10_000, 1e-5), 0.60105, 0.65915, None),
]


def plan(sigma, q, steps):
    return {"noise_multiplier": sigma, "sampling_rate": q, "steps": steps}


@pytest.mark.parametrize(("settings", "reference", "rdp", "prv_low"), REFERENCES)
def test_epsilon_agrees_with_other_accountants(settings, reference, rdp, prv_low):
    *numbers, delta = settings
    epsilon = accounting.epsilon(**plan(*numbers), delta=delta)
    assert epsilon == pytest.approx(reference, rel=2e-4)
    assert epsilon <= rdp
    if prv_low is not None:
        assert epsilon >= prv_low


def gaussian_delta(epsilon, sigma, steps):
    """Exact delta of T Gaussian mechanisms without sampling: mu = sqrt(T) / sigma (Balle and Wang 2018, Theorem 8)."""
    mu = math.sqrt(steps) / sigma
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(
    ("sigma", "steps", "delta"), [(1.0, 1, 1e-5), (5.0, 30, 1e-3), (20.0, 1000, 1e-6), (60.0, 200, 1e-5)]
)
def test_without_sampling_the_bound_is_the_exact_gaussian_one(sigma, steps, delta):
    exact = brentq(lambda epsilon: gaussian_delta(epsilon, sigma, steps) - delta, 1e-9, 100, xtol=1e-12)
    epsilon = accounting.epsilon(**plan(sigma, 1.0, steps), delta=delta)
    assert exact <= epsilon <= exact * (1 + 1e-3)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_without_sampling_delta_is_the_exact_gaussian_one(epsilon):
    exact = gaussian_delta(epsilon, 5.0, 10)
    assert exact <= accounting.delta(**plan(5.0, 1.0, 10), epsilon=epsilon) <= exact * (1 + 1e-2)


@pytest.mark.parametrize(("sigma", "q", "steps", "delta"), [(1.0, 0.01, 500, 1e-5), (2.0, 0.1, 200, 1e-3)])
def test_delta_is_the_inverse_of_epsilon(sigma, q, steps, delta):
    epsilon = accounting.epsilon(**plan(sigma, q, steps), delta=delta)
    assert accounting.delta(**plan(sigma, q, steps), epsilon=epsilon) == pytest.approx(delta, rel=1e-2)


def test_epsilon_grows_with_steps():
    values = [accounting.epsilon(**plan(1.0, 0.05, steps), delta=1e-5) for steps in (0, 1, 2, 5, 10, 100, 1000)]
    assert values[0] == 0
    assert all(earlier < later for earlier, later in pairwise(values))


def test_epsilon_falls_with_noise_and_grows_with_the_sampling_rate():
    by_noise = [accounting.epsilon(**plan(sigma, 0.05, 100), delta=1e-5) for sigma in (0.5, 1.0, 2.0, 8.0)]
    by_rate = [accounting.epsilon(**plan(1.0, q, 100), delta=1e-5) for q in (0.01, 0.05, 0.5, 1.0)]
    assert by_noise == sorted(by_noise, reverse=True)
    assert by_rate == sorted(by_rate)


def test_no_steps_cost_nothing():
    assert accounting.epsilon(**plan(1.0, 0.1, 0), delta=1e-5) == 0
    assert accounting.delta(**plan(1.0, 0.1, 0), epsilon=1.0) == 0


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta", "looseness"),
    [
        (1.1, 0.004, 40_000, 1e-5, 1e-3),
        (20.0, 0.1, 100_000, 1e-6, 1e-3),
        (4.0, 0.01, 50_003, 1e-5, 1e-3),
        (3.0, 0.001, 100_000, 1e-6, 2e-2),
    ],
)
def test_composing_very_many_steps_in_two_stages_stays_a_tight_upper_bound(sigma, q, steps, delta, looseness):
    one_step = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=q, value_discretization_interval=3e-5, use_connect_dots=True
    )
    in_one_stage = one_step.self_compose(steps).get_epsilon_for_delta(delta)
    epsilon = accounting.epsilon(**plan(sigma, q, steps), delta=delta)
    assert in_one_stage <= epsilon <= in_one_stage * (1 + looseness)


def test_without_sampling_very_many_steps_stay_above_the_exact_gaussian_bound():
    sigma, steps, delta = 3000.0, 1_000_003, 1e-5
    exact = brentq(lambda epsilon: gaussian_delta(epsilon, sigma, steps) - delta, 1e-9, 100, xtol=1e-12)
    epsilon = accounting.epsilon(**plan(sigma, 1.0, steps), delta=delta)
    assert exact <= epsilon <= exact * (1 + 2e-2)


@pytest.mark.parametrize("epsilon", [0.0, 1e-4])
def test_delta_at_a_tiny_epsilon_needs_no_tower_of_memory(epsilon):
    """In a process of its own with 4 GiB and 20 s: a laptop must survive the question."""
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({4 * 2**30}, {4 * 2**30}))
from workbench.privacy import accounting
print(accounting.delta(noise_multiplier=1.0, sampling_rate=0.1, steps=10, epsilon={epsilon}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert 0 < float(done.stdout) < 1


def test_curve_bounds_epsilon_and_stays_under_the_plan():
    settings = {"noise_multiplier": 1.0, "sampling_rate": 0.05, "delta": 1e-5}
    planned = accounting.epsilon(**settings, steps=400)
    curve = accounting.epsilon_curve(**settings, steps=400, epsilon=planned)
    steps = [count for count, _ in curve]
    assert steps == sorted(set(steps))
    assert steps[-1] == 400
    assert curve[-1][1] == planned
    for count, bound in curve:
        assert accounting.epsilon(**settings, steps=count) <= bound <= planned


def test_curve_of_one_step_has_one_point():
    planned = accounting.epsilon(**plan(1.0, 0.1, 1), delta=1e-5)
    assert accounting.epsilon_curve(**plan(1.0, 0.1, 1), delta=1e-5, epsilon=planned) == [(1, planned)]


@pytest.mark.parametrize(
    ("value", "digits", "rounded"),
    [(1.0001, 3, 1.001), (1.0, 3, 1.0), (0.0, 2, 0.0), (1.41474, 4, 1.4148), (math.inf, 3, math.inf)],
)
def test_round_up(value, digits, rounded):
    assert accounting.round_up(value, digits) == pytest.approx(rounded, rel=1e-12)


def test_round_up_never_goes_down():
    for number in range(1, 2000):
        value = number / 997
        for digits in (0, 2, 5):
            rounded = accounting.round_up(value, digits)
            assert value <= rounded <= value + 1.000001 * 10.0**-digits


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("sampler", "poison"),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.1),
        ("noise_multiplier", 0.05),
        ("noise_multiplier", math.nan),
        ("steps", -1),
        ("steps", 1.5),
        ("delta", 0.0),
        ("delta", 1.0),
        ("accountant", "guess"),
    ],
)
def test_unusable_arguments_are_named(argument, value):
    settings = {**plan(1.0, 0.1, 10), "delta": 1e-5, argument: value}
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        accounting.epsilon(**settings)


def test_delta_refuses_a_negative_epsilon():
    with pytest.raises(ArgumentError, match="epsilon=-1"):
        accounting.delta(**plan(1.0, 0.1, 10), epsilon=-1)
