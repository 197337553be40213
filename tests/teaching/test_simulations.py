"""The teaching screens agree with the accountants, samplers and clipping of real fits."""

import math

import jax
import numpy as np
import pytest
from scipy.special import comb

import workbench as wb
from workbench import ArgumentError
from workbench.noise.chacha20 import key_from_seed
from workbench.privacy import accounting
from workbench.privacy.steps import LAWS
from workbench.teaching import simulations
from workbench.teaching.simulations import (
    CLOUD,
    Descent,
    attack,
    clipped_location,
    minibatches,
    several_fits,
    spent,
)

PLAN = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "steps": 1000}
STEP = {"clip": 1.0, "noise_multiplier": 2.0, "learning_rate": 0.3, "sampling_rate": 0.5}


# ---- one record in or out ------------------------------------------------------------------------


def test_the_attacker_is_bounded_by_the_fit_that_keeps_the_promise():
    seen = attack(**PLAN)
    kept = {"sampling_rate": 0.1, "noise_multiplier": seen.noise_multiplier, "steps": 1000}
    assert 0.99 < wb.privacy.epsilon(**kept, delta=1e-5) <= 1.0
    curve = wb.privacy.trade_off(**kept, false_positive_rates=seen.rates)
    np.testing.assert_allclose(seen.accounted, np.minimum(curve, seen.promised))
    assert (seen.rates <= seen.accounted).all()
    assert seen.accounted[40] < seen.promised[40]


def test_what_is_found_at_a_rate_is_on_the_curves_and_rounded_up():
    seen = attack(**PLAN)
    place = 25
    promised, kept = seen.found(float(seen.rates[place]))
    assert 0 <= promised - seen.promised[place] <= 1.001e-4
    assert 0 <= kept - seen.accounted[place] <= 1.001e-4
    assert promised == pytest.approx(math.e * seen.rates[place] + 1e-5, abs=1.001e-4)


def test_a_suspicion_rises_by_bayes_theorem():
    seen = attack(**PLAN)
    kept = seen.found(0.01)[1]
    assert 0 <= seen.belief(0.01) - kept / (kept + 0.01) <= 1.001e-4


def test_the_promise_has_its_corner_where_both_errors_are_equal():
    seen = attack(**PLAN)
    place = np.argmax(seen.promised - seen.rates)
    assert seen.promised[place] == pytest.approx(1 - seen.rates[place])


# ---- several fits --------------------------------------------------------------------------------


def exact_composition(epsilon, count, slack):
    """Kairouz, Oh and Viswanath 2015, Theorem 3.3: the least epsilon that k pure mechanisms keep
    with delta = slack.
    """
    total = (1 + math.exp(epsilon)) ** count
    for i in range(count // 2, -1, -1):
        terms = (
            comb(count, j)
            * (math.exp((count - j) * epsilon) - math.exp((count - 2 * i + j) * epsilon))
            for j in range(i)
        )
        if sum(terms) / total <= slack:
            return (count - 2 * i) * epsilon
    raise AssertionError


@pytest.mark.parametrize(
    ("epsilon", "count", "slack"), [(0.1, 50, 1e-5), (0.5, 30, 1e-6), (0.02, 200, 1e-3)]
)
def test_advanced_composition_is_a_bound_and_not_far_from_the_best_one(epsilon, count, slack):
    best = exact_composition(epsilon, count, slack)
    found = simulations._advanced(epsilon, count, slack)
    assert best <= found <= 1.6 * best + 2 * epsilon


def test_several_fits_are_counted_three_ways_at_the_same_delta():
    counts = (1, 3, 20, 50)
    seen = several_fits(epsilon=0.2, delta=1e-6, sampling_rate=0.1, steps=1000, counts=counts)
    np.testing.assert_allclose(seen.added, 0.2 * np.array(counts))
    assert (seen.composed <= seen.advanced).all()
    assert (seen.advanced <= seen.added).all()
    assert seen.advanced[-1] < seen.added[-1]
    plan = {"sampling_rate": 0.1, "noise_multiplier": seen.noise_multiplier}
    for count, composed in zip(counts, seen.composed, strict=True):
        tight = wb.privacy.epsilon(**plan, steps=count * 1000, delta=count * 1e-6)
        assert tight <= composed * (1 + 1e-9) <= 1.03 * tight
    assert seen.of(50) == tuple(
        accounting.round_up(float(line[-1]), 3)
        for line in (seen.added, seen.advanced, seen.composed)
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"delta": 0.0}, "delta"),
        ({"counts": (0,)}, "counts"),
        ({"delta": 0.1, "counts": (10,)}, "counts"),
    ],
)
def test_what_promises_nothing_is_refused(changed, named):
    with pytest.raises(ArgumentError) as caught:
        several_fits(**{**PLAN, **changed})
    assert caught.value.argument == named


# ---- minibatches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", LAWS)
def test_minibatches_are_those_of_the_sampler(sampler):
    members = minibatches(sampler, num_records=40, batch_size=8, steps=40, key=key_from_seed(1))
    assert members.shape == (40, 40)
    sizes, times = members.sum(axis=1), members.sum(axis=0)
    if sampler in ("poisson", "random_allocation"):
        assert len(set(sizes)) > 3
    else:
        assert set(sizes) == {8}
    # 8 epochs of 5 steps
    assert (set(times) == {8}) == (sampler in ("shuffle", "random_allocation"))
    # binomial(1600, .2): beyond 7 standard deviations with probability 3e-12
    assert abs(members.sum() - 320) < 7 * math.sqrt(1600 * 0.2 * 0.8)


def test_minibatches_need_a_secure_key_and_a_size():
    with pytest.raises(TypeError, match="key"):
        minibatches("poisson", num_records=40, batch_size=8, steps=7, key=jax.random.key(0))
    with pytest.raises(ArgumentError, match="batch_size=41"):
        minibatches("poisson", num_records=40, batch_size=41, steps=40, key=key_from_seed(1))


@pytest.mark.thorough
def test_epsilon_over_steps_is_that_of_the_accountants():
    plan = {"sampling_rate": 0.1, "noise_multiplier": 1.0, "steps": 50, "delta": 1e-5}
    pld, rdp = (spent("poisson", "add_or_remove_one", name, **plan) for name in ("pld", "rdp"))
    assert [list(point) for point in pld.curve] == [
        list(point) for point in wb.privacy.epsilon_curve(**plan, points=8)
    ]
    assert pld.epsilon == pld.curve[-1][1] < rdp.epsilon
    assert 0 <= rdp.epsilon - wb.privacy.epsilon(**plan, accountant="rdp") <= 1e-3
    lost = spent(
        "without_replacement",
        "replace_one",
        "pld",
        **{**plan, "noise_multiplier": 0.1, "steps": 100_000},
    )
    assert lost.epsilon == math.inf
    assert all(math.isfinite(value) for _, value in lost.curve)


def test_steps_of_several_kinds_are_composed():
    phases = ((0.5, 4.0, 10), (0.25, 2.0, 20))
    tight = wb.privacy.epsilon(
        sampling_rate=[0.5, 0.25], noise_multiplier=[4.0, 2.0], steps=[10, 20], delta=1e-5
    )
    assert tight <= simulations.spent_by_steps(phases, 1e-5) <= 1.03 * tight + 0.01
    assert simulations.spent_by_steps(((0.5, 0.0, 1),), 1e-5) == math.inf


# ---- a fit in the plane --------------------------------------------------------------------------


def test_a_step_is_the_clipped_sum_the_noise_and_the_public_size():
    seen = Descent(seed=1).step((2.0, -1.0), 3, **STEP)
    np.testing.assert_allclose(
        seen.pulls, np.where(seen.drawn[:, None], CLOUD - seen.before, 0), atol=1e-6
    )
    lengths = np.linalg.norm(seen.pulls, axis=1)
    factors = np.minimum(1, 1 / np.maximum(lengths, 1e-9))
    np.testing.assert_allclose(seen.clipped, factors[:, None] * seen.pulls, atol=1e-4)
    np.testing.assert_allclose(seen.total, seen.clipped.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(seen.noised, seen.total + seen.noise, atol=1e-5)
    # never the realised size
    assert seen.drawn.sum() != 20
    np.testing.assert_allclose(seen.change, 0.3 * seen.noised / 20, rtol=1e-5)
    np.testing.assert_allclose(seen.after, seen.before + seen.change, atol=1e-6)
    assert seen.num_clipped == (lengths > 1).sum() > 0


def test_noise_has_standard_deviation_sigma_c_and_scales_with_the_sliders():
    descent = Descent(seed=2)
    numbers = {**STEP, "clip": 0.5, "noise_multiplier": 3.0}
    noise = np.concatenate(
        [descent.step((0.0, 0.0), number, **numbers).noise for number in range(1000)]
    )
    # 2000 draws: the estimate is within 8 % with probability 1 - 4e-7, and 3/2 of sigma C would be
    # far outside
    assert np.std(noise) == pytest.approx(1.5, rel=0.08)
    once, twice = (
        descent.step((0.0, 0.0), 7, **{**numbers, "noise_multiplier": sigma}).noise
        for sigma in (3.0, 6.0)
    )
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5)


def test_the_same_step_has_the_same_draws_but_for_fresh_noise():
    descent = Descent(seed=3)
    first, again, fresh = (descent.step((1.0, 1.0), 4, **STEP, fresh=fresh) for fresh in (0, 0, 1))
    np.testing.assert_array_equal(first.noised, again.noised)
    np.testing.assert_array_equal(first.drawn, fresh.drawn)
    assert not np.allclose(first.noise, fresh.noise)
    assert not np.array_equal(first.drawn, descent.step((1.0, 1.0), 5, **STEP).drawn)
    assert not np.allclose(
        Descent().step((1.0, 1.0), 4, **STEP).noise, Descent().step((1.0, 1.0), 4, **STEP).noise
    )


@pytest.mark.thorough
def test_a_run_is_its_steps():
    descent = Descent(seed=4)
    u = np.array((2.0, -1.0), np.float32)
    path = descent.run(u, 5, **STEP)
    for number in range(5):
        np.testing.assert_allclose(path[number], u, atol=1e-5)
        u = descent.step(u, number, **STEP).after
    np.testing.assert_allclose(path[-1], u, atol=1e-5)


@pytest.mark.parametrize("clip", [0.2, 1.0, 5.0])
def test_without_noise_the_descent_rests_where_clipping_leads(clip):
    path = Descent(seed=0).run(
        (2.0, -1.0), 400, clip=clip, noise_multiplier=0, learning_rate=1.0, sampling_rate=1.0
    )
    assert path.shape == (401, 2)
    np.testing.assert_allclose(path[-1], clipped_location(CLOUD, clip), atol=2e-3)


def test_a_large_ball_leads_to_the_mean_and_a_small_one_away_from_it():
    mean = CLOUD.mean(axis=0)
    np.testing.assert_allclose(clipped_location(CLOUD, 100.0), mean, atol=1e-5)
    away = [np.linalg.norm(clipped_location(CLOUD, clip) - mean) for clip in (3.0, 1.0, 0.1)]
    assert away == sorted(away)
    assert away[-1] > 0.4


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"clip": 0.0}, "clip"),
        ({"noise_multiplier": -1}, "noise_multiplier"),
        ({"sampling_rate": 2}, "sampling_rate"),
        ({"learning_rate": math.nan}, "learning_rate"),
    ],
)
def test_a_step_names_the_argument_it_cannot_use(changed, named):
    with pytest.raises(ArgumentError) as caught:
        Descent(seed=0).step((0.0, 0.0), 0, **{**STEP, **changed})
    assert caught.value.argument == named
