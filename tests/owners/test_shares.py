"""The noise of several owners keeps the promise of one: exact laws, brute force, real draws."""

import functools
import math

import jax
import numpy as np
import pytest
from scipy.stats import norm

import workbench as wb
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.integers import delta_cost
from workbench.noise.mechanism import GaussianMechanism, OnGrid
from workbench.owners.shares import ShareOfNoise, Shares, distance

REACH = 150  # of the laws here, in spacings


@functools.cache
def one(deviation):
    """The probabilities of round(Z) at -REACH .. REACH, without cancellation in the tails."""
    edges = np.abs(np.arange(-REACH, REACH + 1)) - 0.5
    law = norm.sf(edges / deviation) - norm.sf((edges + 1) / deviation)
    law[REACH] = 1 - 2 * norm.sf(0.5 / deviation)
    return law


def of_sum(shares, deviation):
    """The exact law of the sum of ``shares`` draws."""
    law = one(deviation)
    for _ in range(shares - 1):
        law = np.convolve(law, one(deviation))[REACH:-REACH]
    return law


def of_rounded_sum(shares, deviation):
    """The law of round(W + U): the density of N(0, h s^2) and h uniforms, by its characteristic
    function.
    """
    t = np.linspace(0, 14 / (deviation * math.sqrt(shares)), 6_001)
    characteristic = np.exp(-shares * (deviation * t) ** 2 / 2) * np.sinc(t / (2 * np.pi)) ** shares
    places = np.arange(REACH + 1)
    half = np.array([np.trapezoid(characteristic * np.cos(t * y), t) for y in places]) / np.pi
    return np.concatenate([half[:0:-1], half])


@pytest.mark.parametrize("shares", [1, 2, 3, 5])
@pytest.mark.parametrize("deviation", [0.3, 0.5, 0.8, 1.2])
def test_the_sum_is_as_near_to_a_rounded_sum_as_is_charged(shares, deviation):
    apart = np.abs(of_sum(shares, deviation) - of_rounded_sum(shares, deviation)).sum() / 2
    charged = distance(shares, deviation)
    assert apart <= charged + 1e-12
    if shares == 1:
        assert charged == 0
    elif shares == 2:  # the bound is no wild guess
        assert charged < 100 * apart or charged == 1.0


def test_it_is_no_rounded_normal():
    # what the uniform numbers are for: they matter where spacings are coarse
    deviation = 0.5 * math.sqrt(3)
    assert np.abs(of_sum(3, 0.5) - one(deviation)).sum() / 2 > 0.01


def test_what_is_charged_is_nothing_on_the_coarsest_grid_there_is():
    assert distance(100, 8.0) < 1e-27
    assert distance(100, 0.1) == 1.0


def privacy_loss(law, step, epsilon):
    """The exact delta at ``epsilon`` where a record moves the sum by ``step`` spacings."""
    moved = np.zeros_like(law)
    moved[step:] = law[:-step]
    return float(np.maximum(law - math.exp(epsilon) * moved, 0).sum())


def of_gaussian(step, deviation, epsilon):
    """The exact delta of the Gaussian mechanism (Balle and Wang 2018)."""
    ratio = step / deviation
    first, second = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
    return norm.cdf(first) - math.exp(epsilon) * norm.cdf(second)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("owners", "colluders"), [(2, 0), (3, 0), (3, 1), (5, 2), (2, 1)])
def test_colluders_learn_no_more_than_is_promised(owners, colluders, epsilon):
    sigma, step = 1.2, 5  # noise of 6 spacings where a record moves the sum by 5
    shares = Shares(owners, colluders)
    deviation = step * shares.of(GaussianMechanism(1.0, sigma)).noise_multiplier
    assert deviation > 2  # or the distance would hide what is compared
    promised = of_gaussian(step, step * sigma, epsilon)
    slack = (1 + math.exp(epsilon)) * distance(shares.counted, deviation)
    assert slack < 1e-9
    # what colluders know of their own noise is taken off the total
    remaining = of_sum(owners - colluders, deviation)
    assert privacy_loss(remaining, step, epsilon) <= promised + slack + 1e-13
    assert privacy_loss(of_sum(owners, deviation), step, epsilon) <= promised + slack + 1e-13
    # one owner more is one too many
    if shares.counted > 1:
        fewer = of_sum(shares.counted - 1, deviation)
        assert privacy_loss(fewer, step, epsilon) > promised + slack
        left = shares.against_another_owner(sigma)
        less = of_gaussian(step, step * left, epsilon)
        assert privacy_loss(fewer, step, epsilon) <= less + slack + 1e-13


def test_the_parts_of_those_who_count_have_the_noise_of_the_plan():
    mechanism = GaussianMechanism(2.0, 1.7)
    for owners, colluders in [(2, 0), (3, 1), (7, 2), (100, 99)]:
        shares = Shares(owners, colluders)
        share = shares.of(mechanism)
        assert share.noise_multiplier**2 * shares.counted >= mechanism.noise_multiplier**2
        total = share.noise_multiplier * math.sqrt(owners)
        assert total == pytest.approx(shares.in_all(mechanism).noise_multiplier)
    # the accuracy of equal epsilon: c = 0 costs nothing, c = 1 what M / (M - 1) says
    assert Shares(3, 0).in_all(mechanism).noise_multiplier == 1.7
    assert Shares(3, 1).in_all(mechanism).noise_multiplier == pytest.approx(1.7 * math.sqrt(1.5))


def test_real_draws_add_up_to_the_noise_of_the_plan():
    shares, size = Shares(3, 0), 40_000
    share = shares.of(GaussianMechanism(1.0, 2.0))
    level = share.level(10_000)
    draws = [share.noise(key_from_seed(seed), size, level).units for seed in range(3)]
    spacing = share.spacing(
        jax.numpy.float32(share.noise_multiplier), jax.numpy.float32(1.0), level, 0.0, 0.0
    )
    total = np.sum([np.asarray(units, float) for units in draws], axis=0) * float(spacing)
    # five standard errors of a variance; sigma is 2
    assert np.var(total) == pytest.approx(4.0, rel=5 * math.sqrt(2 / size))


def test_a_share_stays_in_whole_numbers():
    share = ShareOfNoise(1.0, 1.0)
    level = share.level(100)
    noise = share.noise(key_from_seed(0), 3, level)
    total = OnGrid({"sums": np.array([2**31 - 1, 5, -7], np.int32)}, np.float32(0.5))
    added = share.add(total, noise)
    assert added.spacing == 0.5
    exact = total.units["sums"].astype(np.int64) + np.asarray(noise.units)
    assert np.array_equal(added.units["sums"], exact.astype(np.uint64).astype(np.uint32).view("i4"))
    usual = GaussianMechanism.add(total, noise)["sums"]
    assert np.array_equal(usual, np.asarray(added.units["sums"], np.float32) * np.float32(0.5))
    with pytest.raises(TypeError, match="on a grid"):
        share.add(total, None)


def test_delta_counts_the_draws_of_all_owners():
    shares = Shares(4, 1)
    assert shares.delta_cost(50, 1.0) >= delta_cost(200, 1.0) > delta_cost(50, 1.0)
    assert shares.delta_cost(50, 1.0) < 1e-9


@pytest.mark.parametrize(
    ("owners", "colluders", "argument"),
    [(1, 0, "owners"), (101, 0, "owners"), (3, 3, "colluders"), (3, -1, "colluders")],
)
def test_what_cannot_be_shared_is_refused(owners, colluders, argument):
    with pytest.raises(wb.ArgumentError) as caught:
        Shares.checked(owners, colluders)
    assert caught.value.argument == argument
