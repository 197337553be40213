import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism

DRAWS = 20_000


def has_standard_deviation(noise, scale):
    """Two-sided chi-square test of N(0, scale^2) draws; rejects the right scale for one seed in a million."""
    noise = np.asarray(noise, np.float64)
    statistic = np.sum((noise / scale) ** 2)
    return 5e-7 < stats.chi2.sf(statistic, noise.size) < 1 - 5e-7


@pytest.mark.parametrize(("clip", "noise_multiplier"), [(1.0, 1.0), (0.5, 3.0), (20.0, 0.2)])
def test_noise_has_standard_deviation_sigma_times_clip(clip, noise_multiplier):
    """False alarms: one seed in a million for each case."""
    noise = GaussianMechanism(clip, noise_multiplier).noise(key_from_seed(0), DRAWS)
    assert has_standard_deviation(noise, clip * noise_multiplier)


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2, 0.95, 1.05])
def test_a_wrong_noise_scale_is_noticed(wrong):
    """The test above can fail: too little or too much noise is rejected, down to 5 %."""
    noise = GaussianMechanism(1.0, 2.0 * wrong).noise(key_from_seed(0), DRAWS)
    assert not has_standard_deviation(noise, 2.0)


def test_noise_is_normal():
    """Kolmogorov-Smirnov; false alarms one seed in a million."""
    noise = GaussianMechanism(2.0, 1.5).noise(key_from_seed(1), DRAWS)
    assert stats.kstest(np.asarray(noise, np.float64) / 3.0, "norm").pvalue > 1e-6


def test_different_keys_give_independent_noise():
    """Correlation of two vectors; false alarms one seed in a million."""
    mechanism = GaussianMechanism(1.0, 1.0)
    first, second = (np.asarray(mechanism.noise(key, DRAWS)) for key in jax.random.split(key_from_seed(2)))
    assert abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(DRAWS) < stats.norm.isf(5e-7)


@pytest.mark.parametrize("noise_multiplier", [0.0, 1.0])
def test_insecure_keys_are_refused(noise_multiplier):
    with pytest.raises(TypeError, match="new_key"):
        GaussianMechanism(1.0, noise_multiplier).noise(jax.random.key(0), 5)


def test_zero_noise_multiplier_gives_no_noise_even_without_clipping():
    mechanism = GaussianMechanism(math.inf, 0.0)
    assert mechanism.standard_deviation == 0
    np.testing.assert_array_equal(mechanism.noise(key_from_seed(3), 5), np.zeros(5))


def test_add_gives_each_coordinate_of_the_tree_its_own_noise():
    total = {"a": jnp.ones((2, 3)), "b": (jnp.zeros(()), jnp.full(4, 2.0))}
    noise = jnp.arange(11.0) + 1
    difference = jax.tree.map(lambda noised, plain: noised - plain, GaussianMechanism.add(total, noise), total)
    assert jax.tree.structure(difference) == jax.tree.structure(total)
    np.testing.assert_array_equal(np.sort(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(difference)])), noise)


def test_add_refuses_noise_for_another_number_of_coordinates():
    """One value for all coordinates would cancel in differences between them."""
    with pytest.raises((TypeError, ValueError)):
        GaussianMechanism.add({"a": jnp.zeros(3)}, jnp.ones(1))


@pytest.mark.parametrize(
    ("argument", "clip", "noise_multiplier"),
    [
        ("clip", 0.0, 1.0),
        ("clip", -1.0, 1.0),
        ("clip", math.inf, 1.0),
        ("clip", 1e308, 1.0),
        ("noise_multiplier", 1e30, 1e10),
        ("clip", math.nan, 1.0),
        ("clip", 0.0, 0.0),
        ("clip", math.nan, 0.0),
        ("noise_multiplier", 1.0, -1.0),
        ("noise_multiplier", 1.0, math.nan),
        ("noise_multiplier", 1.0, math.inf),
    ],
)
def test_unusable_arguments_are_named(argument, clip, noise_multiplier):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        GaussianMechanism(clip, noise_multiplier)
