"""Last bits of sums and parameters tell which records they are of if noise is in floating point,
not if it is whole.
"""

import jax
import numpy as np
import pytest
from scipy.stats import binom, norm

from tests.auditing import reachable
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.normals import normal


@pytest.mark.parametrize("bug", [None, "float_noise"])
def test_float_noise_is_caught_and_whole_noise_is_not(bug):
    """A false alarm in less than one seed of a million; without gaps half of the guesses
    are right.
    """
    assert reachable.tells(bug, ["float32"]) == (bug is not None)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clipping": "automatic"},
        {"clipping": "per_leaf", "clip": 1e-3},
        {"strategy": "loop"},
        {"estimator": "vanilla"},
    ],
    ids=str,
)
def test_whatever_the_settings(options):
    assert not reachable.tells(**options)
    assert reachable.tells("float_noise", **options)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("precision", "width"), [("float32", 1000), ("float64", 1000), ("float64", 3)]
)
def test_sums_and_parameters_of_each_precision_alone_show_float_noise(precision, width):
    """In float64, three coordinates do: none of them can be reached from the wrong sum."""
    right = reachable.right_guesses("float_noise", precision, width=width)
    assert right["sum, float32 normals"] == right["parameters, float32 normals"] == reachable.TRIALS


@pytest.mark.statistical
def test_many_guesses_are_right_as_often_as_chance_has_it():
    assert not reachable.tells(trials=1000)


@pytest.mark.thorough
def test_sums_in_floating_point_have_no_gaps():
    assert not reachable.tells("float_sums")


def made_up(size=2000, spacing=0.01):
    """A sum, noise as float32 normals and as multiples of a spacing, and another sum; standard
    deviation 30.
    """
    generator = np.random.default_rng(0)
    total, other = generator.normal(size=(2, size)).astype(np.float32)
    draws = np.asarray(jax.jit(normal, static_argnums=1)(key_from_seed(0), (size,))) * np.float32(
        30
    )
    whole = (np.round(30 * generator.normal(size=size) / spacing) * spacing).astype(np.float32)
    return total, other, draws, whole, spacing


def test_gaps_of_float32_normals():
    total, other, draws, _, _ = made_up()
    seen = reachable.Seen(total + draws, 30.0, 1.0)
    assert np.mean(reachable.not_from_float32(seen, total)) < 1e-3
    assert np.mean(reachable.not_from_float32(seen, other)) > 0.05
    # in float64 every coordinate shows it
    wide = reachable.Seen(total.astype(np.float64) + draws, 30.0, 1.0)
    assert not reachable.not_from_float32(wide, total.astype(np.float64)).any()
    assert np.mean(reachable.not_from_float32(wide, other + np.float64(np.pi * 1e-6))) > 0.99


def test_sums_that_are_not_on_the_grid():
    """Whole noise on sums in floating point: the difference from the right sum is whole, from
    another it is not.
    """
    total, other, _, whole, spacing = made_up()
    seen = reachable.Seen(total + whole, 30.0, spacing)
    assert not reachable.not_on_grid(seen, total).any()
    assert np.mean(reachable.not_on_grid(seen, other)) > 0.9
    on_grid = np.round(other / spacing) * spacing
    both = reachable.Seen(
        (np.round(total / spacing) * spacing + whole).astype(np.float32), 30.0, spacing
    )
    assert not reachable.not_on_grid(both, on_grid).any()


@pytest.mark.parametrize("trials", [40, 400])
@pytest.mark.parametrize("sigma", [0.5, 30.0])
def test_how_many_right_guesses_are_chance(trials, sigma):
    """The best guess says which mean is nearer."""
    most = reachable.most_right(trials, sigma, 1e-4)
    chance = norm.cdf(0.5, loc=0, scale=sigma)
    assert binom.sf(most, trials, chance) <= 1e-4 < binom.sf(most - 1, trials, chance)
