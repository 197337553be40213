"""The estimate of how far privacy noise moves a location, against runs of Adam on a noisy
quadratic.
"""

import numpy as np
import pytest

from workbench.results._location_noise import coverage, location_noise


def adam_on_a_quadratic(spread, step_noise, learning_rate, iterations, runs=4000, seed=0):
    """Last iterates and averages of the second half, float[runs] each, from the optimum on."""
    rng = np.random.default_rng(seed)
    x, first, second, total = (np.zeros(runs) for _ in range(4))
    for step in range(1, iterations + 1):
        gradient = x / spread**2 + step_noise * rng.normal(size=runs)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        x = x - learning_rate * (first / (1 - 0.9**step)) / np.sqrt(second / (1 - 0.999**step))
        total += x * (step > iterations // 2)
    return x, total / (iterations - iterations // 2)


CASES = [
    # converged, on the way, and hardly begun
    (0.05, 500.0, 0.03, 1000),
    (0.3, 30.0, 0.03, 1000),
    (1.0, 30.0, 0.01, 400),
]


@pytest.mark.parametrize(("spread", "step_noise", "learning_rate", "iterations"), CASES)
def test_estimate_agrees_with_simulated_runs(spread, step_noise, learning_rate, iterations):
    last, mean = adam_on_a_quadratic(spread, step_noise, learning_rate, iterations)
    settings = {"step_noise": step_noise, "learning_rate": learning_rate, "iterations": iterations}
    # the standard deviation of 4000 runs is known to 1.1 %; what is left is the approximation's
    assert location_noise(spread, averaged=False, **settings) == pytest.approx(last.std(), rel=0.1)
    assert location_noise(spread, averaged=True, **settings) == pytest.approx(mean.std(), rel=0.15)


def test_more_noise_moves_further_and_averaging_less():
    settings = {"learning_rate": 0.03, "iterations": 1000}
    some = location_noise(0.1, step_noise=100, averaged=False, **settings)
    assert location_noise(0.1, step_noise=400, averaged=False, **settings) > some
    assert location_noise(0.1, step_noise=100, averaged=True, **settings) < some


def test_works_on_arrays_and_at_both_ends():
    found = location_noise(
        np.array([1e-3, 1.0, 1e3]), step_noise=10, learning_rate=0.03, iterations=100, averaged=True
    )
    assert found.shape == (3,)
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) > 0)


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 0.9), (1.0, 0.7551), (2.0, 0.5379)])
def test_coverage_of_an_interval_with_a_noisy_centre(ratio, expected):
    assert coverage(ratio, 0.9) == pytest.approx(expected, abs=1e-3)
    rng = np.random.default_rng(3)
    truth, centre = rng.normal(size=200_000), ratio * rng.normal(size=200_000)
    inside = np.mean(np.abs(truth - centre) < 1.6449)  # error .001
    assert coverage(ratio, 0.9) == pytest.approx(inside, abs=0.005)
