import math

import pytest

from workbench._validate import ArgumentError
from workbench.privacy.accounting import epsilon
from workbench.privacy.calibration import noise_multiplier

# (epsilon, delta, q, T) and the smallest sigma, found with dp-accounting's PLD by bisection
REFERENCES = [
    ((1.0, 1e-5, 0.01, 1000), 1.4147),
    ((0.5, 1.6666666666666667e-05, 0.0021333333333333334, 9380), 1.5779),
]

PLANS = [
    (1.0, 1e-3, 0.1, 2000),
    (0.1, 1e-5, 0.01, 100),
    (8.0, 1e-6, 0.5, 50),
    (3.0, 1e-5, 1.0, 20),
]


def calibrated(target, delta, q, steps):
    return noise_multiplier(epsilon=target, delta=delta, sampling_rate=q, steps=steps)


def forward(sigma, delta, q, steps):
    return epsilon(noise_multiplier=sigma, sampling_rate=q, steps=steps, delta=delta)


@pytest.mark.parametrize(("settings", "reference"), REFERENCES)
def test_sigma_agrees_with_references(settings, reference):
    sigma = calibrated(*settings)
    assert sigma == pytest.approx(reference, rel=2e-4)
    assert sigma >= reference - 1e-4


@pytest.mark.parametrize("settings", PLANS)
def test_sigma_keeps_the_promise_and_nothing_smaller_does(settings):
    target, delta, q, steps = settings
    sigma = calibrated(*settings)
    assert forward(sigma, delta, q, steps) <= target
    assert forward(0.999 * sigma, delta, q, steps) > target


def test_sigma_has_five_digits():
    sigma = calibrated(1.0, 1e-5, 0.01, 1000)
    assert float(f"{sigma:.4e}") == sigma


def test_sigma_is_never_below_a_fifth():
    sigma = calibrated(1000.0, 1e-3, 0.01, 1)
    assert sigma == 0.2
    assert forward(sigma, 1e-3, 0.01, 1) <= 1000.0


def test_a_smaller_epsilon_needs_more_noise():
    assert calibrated(0.5, 1e-3, 0.1, 100) > calibrated(1.0, 1e-3, 0.1, 100) > calibrated(2.0, 1e-3, 0.1, 100)


def test_a_target_out_of_reach_is_refused_with_advice():
    with pytest.raises(ArgumentError, match=r"^epsilon=.*take fewer steps"):
        calibrated(1e-5, 1e-12, 1.0, 10_000)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("delta", 0.0),
        ("sampling_rate", 0.0),
        ("steps", 0),
        ("sampler", "poison"),
        ("accountant", "guess"),
    ],
)
def test_unusable_arguments_are_named(argument, value):
    settings = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "steps": 10, argument: value}
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        noise_multiplier(**settings)
