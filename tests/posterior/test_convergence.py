"""Whether a run had arrived, from sums of its release."""

import numpy as np
import pytest

from workbench.inference import running_moments
from workbench.posterior.convergence import FALSE_ALARMS, FEWEST_STEPS, convergence_of


def convergence_of_run(directions):
    """The test of a run whose directions are these, float[steps, d]."""
    sums = np.concatenate([[len(directions)], directions.sum(0), np.square(directions).sum(0)])
    moments = running_moments.empty(directions.shape[1])._replace(pull=sums.astype(np.float32))
    return convergence_of(moments, {"intercept": 1, "weights": directions.shape[1] - 1})


def test_a_mean_beyond_its_noise_is_a_fit_that_still_moves():
    directions = np.random.default_rng(0).normal(0.0, 3.0, (400, 4))
    directions[:, 2] += 1.5  # ten standard errors
    found = convergence_of_run(directions)
    assert found.site == "weights"
    assert found.score == pytest.approx(10, abs=3)
    assert found.words.startswith("The fit was still moving when it ended: its mean gradient is")
    assert '(in "weights")' in found.words


def test_noise_alone_raises_as_few_alarms_as_stated():
    """Independent normal directions, 20 000 runs; a count above 40 has a probability below 1e-4 at
    20 expected.
    """
    random = np.random.default_rng(1)
    for steps in (FEWEST_STEPS, 300):
        directions = random.normal(size=(20_000, steps, 3))
        means, squares = directions.mean(1), np.square(directions).mean(1)
        scores = np.abs(means) * np.sqrt(steps / (squares - means**2))
        threshold = convergence_of_run(directions[0]).threshold
        assert np.sum(scores.max(1) > threshold) <= 2 * 20_000 * FALSE_ALARMS


def test_few_steps_do_not_tell():
    found = convergence_of_run(np.zeros((FEWEST_STEPS - 1, 2)))
    assert found.words.startswith(f"Only {FEWEST_STEPS - 1} steps")
    assert convergence_of_run(np.ones((1, 2))).words.startswith("Only 1 steps")


def test_directions_without_noise_are_no_division_by_zero():
    assert convergence_of_run(np.zeros((100, 2))).words == ""
    assert "still moving" in convergence_of_run(np.ones((100, 2))).words


def test_a_run_that_kept_no_directions_is_not_tested():
    assert convergence_of(None, {}) is None
    assert convergence_of(running_moments.empty(None), {"weights": 3}) is None
    # stopped in its first half
    assert convergence_of(running_moments.empty(3), {"weights": 3}) is None
