import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.integers import COARSEST, FINEST
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid

DRAWS = 20_000


def noise_in_a_sum(mechanism, key=None, size=DRAWS, units=0, level=10):
    """What is added to a sum of zeros, float64[size], in the units of the sum."""
    noise = mechanism.noise(key_from_seed(0) if key is None else key, size, jnp.int32(level))
    sigma, clip = jnp.float32(mechanism.noise_multiplier), jnp.float32(mechanism.clip)
    spacing = mechanism.spacing(sigma, clip, noise.level, 0.0, units)
    return np.asarray(mechanism.add(OnGrid(jnp.zeros(size, jnp.int32), spacing), noise), np.float64)


def has_standard_deviation(noise, scale):
    """Two-sided chi-square test of N(0, scale^2) draws; rejects the right scale for one seed in a
    million.
    """
    statistic = np.sum((noise / scale) ** 2)
    return 5e-7 < stats.chi2.sf(statistic, noise.size) < 1 - 5e-7


@pytest.mark.parametrize(("clip", "noise_multiplier"), [(1.0, 1.0), (0.5, 3.0), (20.0, 0.2)])
def test_noise_has_standard_deviation_sigma_times_clip(clip, noise_multiplier):
    """False alarms: one seed in a million for each case."""
    noise = noise_in_a_sum(GaussianMechanism(clip, noise_multiplier))
    assert has_standard_deviation(noise, clip * noise_multiplier)


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2, 0.95, 1.05])
def test_a_wrong_noise_scale_is_noticed(wrong):
    """The test above can fail: too little or too much noise is rejected, down to 5 %."""
    assert not has_standard_deviation(noise_in_a_sum(GaussianMechanism(1.0, 2.0 * wrong)), 2.0)


def test_noise_is_normal():
    """Kolmogorov-Smirnov; false alarms one seed in a million."""
    noise = noise_in_a_sum(GaussianMechanism(2.0, 1.5), key_from_seed(1))
    assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-6


def test_different_keys_give_independent_noise():
    """Correlation of two vectors; false alarms one seed in a million."""
    mechanism = GaussianMechanism(1.0, 1.0)
    first, second = (noise_in_a_sum(mechanism, key) for key in jax.random.split(key_from_seed(2)))
    assert abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(DRAWS) < stats.norm.isf(5e-7)


@pytest.mark.parametrize("level", [0, 5, 10])
@pytest.mark.parametrize("units", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.0])
def test_noise_is_sigma_times_what_a_record_and_rounding_move(sigma, units, level):
    """s spacings of noise, against C (1 + slack) and sqrt(units) spacings of rounding: worked out
    in 64 bits.
    """
    clip, slack = 0.7, 1e-3
    spacing = float(
        GaussianMechanism.spacing(
            jnp.float32(sigma), jnp.float32(clip), jnp.int32(level), slack, units
        )
    )
    noise = Fraction(2) ** (11 + level) * Fraction(spacing)
    if not math.isnan(spacing):
        sensitivity = Fraction(float(jnp.float32(clip))) * (1 + Fraction(slack)) + Fraction(
            math.sqrt(units)
        ) * Fraction(spacing)
        needed = Fraction(float(jnp.float32(sigma))) * sensitivity
        assert 1 <= noise / needed <= 1 + 1e-5
    assert math.isnan(spacing) == (2 * sigma * math.sqrt(units) > 2.0 ** (11 + level))


@pytest.mark.parametrize("capacity", [1, 100, 10**4, 10**6, 2**30])
@pytest.mark.parametrize("sigma", [1e-3, 0.3, 1.0, 40.0, 1e4, 1e30])
def test_a_level_is_as_fine_as_leaves_room_for_the_sum(sigma, capacity):
    """Where it can: C is 2^(11 + level) / sigma spacings. Sum and noise are then below 2^31."""
    level = int(GaussianMechanism(1.0, sigma).level(capacity))
    assert COARSEST <= level <= FINEST
    sum_in_spacings = capacity * 2.0 ** (11 + level) / sigma
    if level > COARSEST:
        assert sum_in_spacings <= 2**29 * 1.001
        assert sum_in_spacings + 11 * 2 ** (11 + level) < 2**31
    assert level == FINEST or 2 * sum_in_spacings >= 2**29 * 0.999


@pytest.mark.thorough
@pytest.mark.parametrize("capacity", [1, 3, 2**14, 10**5, 2**20])
def test_where_there_is_room_no_step_finds_that_there_is_none(capacity):
    """At the edges: sigma near powers of two times what sums leave, and as much rounding as there
    is room for.
    """
    powers = 2.0 ** np.arange(-6, 16) * capacity / 2.0**29 * 2.0 ** np.arange(22)[:, None]
    near = np.concatenate([powers.ravel() * (1 + ulps * 2.0**-24) for ulps in (-4, -1, 0, 1, 4)])
    sigmas = near[(near > 1e-3) & (near < 1e6)]
    spacing = jax.jit(
        lambda mechanism_sigma, units: GaussianMechanism.spacing(
            mechanism_sigma,
            jnp.float32(1),
            GaussianMechanism(1.0, 1.0).level(capacity, mechanism_sigma),
            0.0,
            units,
        ),
        static_argnums=1,
    )
    for sigma in sigmas[:: max(1, len(sigmas) // 60)].tolist():
        mechanism = GaussianMechanism(1.0, sigma)
        for level in (COARSEST, 0, FINEST):
            for power in range(-1, 2):
                units = (2.0 ** (11 + level + power) / (2 * sigma)) ** 2 * (1 - 1e-7)
                if mechanism.has_room(capacity, units):
                    assert np.isfinite(spacing(jnp.float32(sigma), units))


@pytest.mark.parametrize("noise_multiplier", [0.0, 1.0])
def test_insecure_keys_are_refused(noise_multiplier):
    with pytest.raises(TypeError, match="new_key"):
        GaussianMechanism(1.0, noise_multiplier).noise(jax.random.key(0), 5, jnp.int32(0))


def test_zero_noise_multiplier_gives_no_noise_even_without_clipping():
    mechanism, total = GaussianMechanism(math.inf, 0.0), {"a": jnp.arange(5.0)}
    assert mechanism.standard_deviation == 0
    assert mechanism.words_for(5) == 0
    assert mechanism.noise(key_from_seed(3), 5, jnp.int32(0)) is None
    assert mechanism.add(total, None) is total


def test_add_gives_each_coordinate_of_the_tree_its_own_noise():
    total = {"a": jnp.ones((2, 3), jnp.int32), "b": (jnp.zeros((), jnp.int32), jnp.full(4, 2))}
    noise = Noise(jnp.arange(11) + 1, jnp.int32(0))
    noised = GaussianMechanism.add(OnGrid(total, jnp.float32(0.5)), noise)
    difference = jax.tree.map(lambda noised, plain: noised / 0.5 - plain, noised, total)
    assert jax.tree.structure(difference) == jax.tree.structure(total)
    found = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(difference)])
    np.testing.assert_array_equal(np.sort(found), noise.units)


def test_add_refuses_noise_for_another_number_of_coordinates():
    """One value for all coordinates would cancel in differences between them."""
    total = OnGrid({"a": jnp.zeros(3, jnp.int32)}, jnp.float32(1.0))
    with pytest.raises(ArgumentError, match=r"^noise="):
        GaussianMechanism.add(total, Noise(jnp.ones(1, jnp.int32), jnp.int32(0)))


def test_add_refuses_sums_in_floating_point_and_sums_that_get_no_noise():
    units = {"a": jnp.zeros(3, jnp.int32)}
    with pytest.raises(TypeError, match="OnGrid"):
        GaussianMechanism.add({"a": jnp.zeros(3)}, Noise(jnp.ones(3, jnp.int32), jnp.int32(0)))
    with pytest.raises(TypeError, match="OnGrid"):
        GaussianMechanism.add(OnGrid(units, jnp.float32(1.0)), None)


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
