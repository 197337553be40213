"""A C that the run chooses, from counts that it releases."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.optim import SGD

from tests import zoo
from tests.conftest import Watched, quick_jit
from workbench._limits import SMALLEST_CLIP
from workbench._validate import ArgumentError
from workbench.inference import DPVI, adaptive_clip, norm_counts, running_moments
from workbench.inference.state import Draws
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, Noise
from workbench.sampling import Minibatch, PoissonSampler

STEPS = 400
ADAPTIVE = adaptive_clip.of(STEPS)  # until step 80
UNTIL = int(ADAPTIVE.until)
EXPECTED = 100.0
SIZE, SIGMA, LEVEL = 12, 3.0, jnp.int32(8)
DEVIATION = 2.0 ** (11 + int(LEVEL))


@functools.cache
def stepping(size):
    """(rung, counts, what a step counted of norms and noise, ...) -> (rung, counts, C)."""

    def step(rung, counts, norms, noise, present, number, adaptive, clip, sigma):
        now = adaptive_clip.clip_of(rung, clip, adaptive)
        seen = (
            norm_counts.counts_of(norms, jnp.ones(len(norms), bool), now)
            * jnp.float32(EXPECTED / len(norms))
            * present
            + noise
        )
        return *adaptive_clip.with_counts(
            rung, counts, seen, number, adaptive, clip, sigma, size, EXPECTED
        ), now

    return quick_jit(step)


def adapted(
    norms,
    *,
    clip=1.0,
    sigma=1e-3,
    adaptive=ADAPTIVE,
    noise=None,
    size=6,
    steps=UNTIL + 5,
    later=1.0,
    later_sigma=None,
    present=1.0,
):
    """C in each step of a run whose gradients have these norms.

    :param noise: NumPy's generator, for noise on counts. :param later: gradients are that many
        times as long after the warm-up. :param later_sigma: noise multiplier after it.
    :param present: share of the declared records that are there.
    """
    rung, counts, found = jnp.int32(0), jnp.zeros(1 + norm_counts.RANGES), []
    for number in range(steps):
        longer, multiplier = 1.0, sigma
        if number >= UNTIL:
            longer, multiplier = later, later_sigma or sigma
        facts = adaptive, jnp.float32(clip), jnp.float32(multiplier)
        own = (
            np.zeros(norm_counts.RANGES)
            if noise is None
            else noise.normal(size=norm_counts.RANGES) * multiplier / 0.2**0.5
        )
        drawn = jnp.asarray(norms, jnp.float32) * longer, jnp.asarray(own, jnp.float32)
        rung, counts, now = stepping(size)(
            rung, counts, drawn[0], drawn[1], jnp.float32(present), jnp.int32(number), *facts
        )
        found.append(float(now))
    return found


@pytest.mark.parametrize("clip", [1e-3, 0.3, 1.0, 50.0])
def test_without_noise_c_comes_to_the_longest_gradients_from_anywhere(clip):
    found = adapted(np.linspace(0.1, 2.0, 100), clip=clip)
    assert 1.4 <= found[-1] <= 4.01


@pytest.mark.parametrize("clip", [1e-3, 1.0, 50.0])
def test_records_that_are_absent_do_not_count_as_long(clip):
    norms = np.linspace(0.1, 2.0, 100)
    absent, whole = (adapted(norms, clip=clip, present=present)[-1] for present in (0.6, 1.0))
    assert 1.0 <= absent <= whole <= 4.01


def test_noise_makes_a_smaller_c_worth_its_bias():
    norms = np.concatenate([np.full(95, 0.4), np.full(5, 3.0)])
    quiet, loud = (adapted(norms, sigma=sigma, size=50)[-1] for sigma in (1e-3, 10.0))
    assert loud < quiet
    assert quiet >= 2.8


def test_c_changes_only_when_it_is_decided_on():
    found = adapted(np.linspace(0.1, 30.0, 100), clip=1e-3)
    changes = [number for number in range(1, len(found)) if found[number] != found[number - 1]]
    assert set(changes) <= {UNTIL // 2**turn for turn in range(5)}
    assert len(changes) >= 3


def test_after_the_warm_up_c_may_fall_and_not_rise():
    norms, end = np.linspace(0.1, 2.0, 100), UNTIL + UNTIL // 2
    fallen = adapted(norms, later=1e-3, steps=end + 40)
    assert fallen[UNTIL] > 1.4
    assert 1.4e-3 <= fallen[-1] <= 4.01e-3
    assert len(set(fallen[end:])) == 1
    kept = adapted(norms, later=1e3, steps=end + 40)
    assert set(kept[UNTIL:]) == {fallen[UNTIL]}
    same = adapted(norms, later=0.8, steps=end + 40)  # a half rung is no reason
    assert set(same[UNTIL:]) == {fallen[UNTIL]}
    changes = [
        number for number in range(UNTIL + 1, len(fallen)) if fallen[number] != fallen[number - 1]
    ]
    assert set(changes) <= {UNTIL + UNTIL // 2 // 2**turn for turn in range(3)}


def test_where_noise_hides_the_norms_after_the_warm_up_c_does_not_return_to_where_it_began():
    norms, moved = np.linspace(0.1, 2.0, 100), 0
    for seed in range(20):
        noise = np.random.default_rng(seed)
        found = adapted(norms, clip=0.02, later_sigma=400.0, noise=noise, steps=UNTIL + 41)
        assert found[UNTIL] > 1.4
        moved += found[-1] != found[UNTIL]
    assert moved <= 2


def test_where_noise_hides_the_norms_c_stays():
    """Each of 7 shares is beyond three standard errors once in 740 decisions, of which there are
    200, and not all move C.
    """
    moved = 0
    for seed in range(40):
        found = adapted(np.linspace(0.1, 1.3, 100), sigma=400.0, noise=np.random.default_rng(seed))
        moved += found[-1] != found[0]
    assert moved <= 4


def test_c_is_never_above_the_largest_gradient_nor_out_of_range():
    bounded = adaptive_clip.of(STEPS, 1.2)
    assert max(adapted(np.full(10, 1.2), clip=0.2, adaptive=bounded)) == pytest.approx(1.2)
    assert adapted(np.full(10, 1.2), clip=2.0, adaptive=bounded)[0] == pytest.approx(1.2)
    low, high = (
        adaptive_clip.clip_of(jnp.int32(rung), jnp.float32(1e-12), ADAPTIVE)
        for rung in (-(2**31), 2**31 - 1)
    )
    assert float(low) == pytest.approx(SMALLEST_CLIP)
    assert np.isfinite(float(high))


def test_numbers_that_are_not_finite_count_as_long():
    assert adapted(np.full(10, np.nan))[-1] > 1.0


@pytest.mark.thorough
def test_a_short_run_keeps_c():
    assert int(adaptive_clip.of(4).until) == 0
    rung, _ = adaptive_clip.with_counts(
        jnp.int32(0),
        jnp.zeros(9),
        jnp.full(8, 100.0),
        jnp.int32(0),
        adaptive_clip.of(4),
        1.0,
        jnp.float32(0.1),
        1,
        1.0,
    )
    assert int(rung) == 0


def test_shares_of_the_noise_add_up_to_one_in_each_step():
    for number in (0, UNTIL - 1, UNTIL, UNTIL + UNTIL // 2, STEPS):
        parts = adaptive_clip.shares(jnp.int32(number), ADAPTIVE)
        assert sum(float(part) ** 2 for part in parts) == pytest.approx(1, abs=1e-6)
        assert float(parts[0]) >= adaptive_clip.SMALLEST_SHARE - 1e-7
    late = adaptive_clip.shares(jnp.int32(UNTIL + UNTIL // 2), ADAPTIVE)
    assert np.allclose(late, (norm_counts.OF_SUM, norm_counts.OF_NORMS))


def trainer_of(mechanism, optimizer=None):
    """DP-VI of the mean of a normal, all records in every minibatch."""
    optimizer = SGD(0.1) if optimizer is None else optimizer
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        optimizer,
        privacy=(PoissonSampler(SIZE, 1.0, SIZE), mechanism),
    )
    trainer.init(key_from_seed(0), *zoo.normal_mean_data(SIZE))
    return trainer


def test_at_every_c_a_record_moves_sum_and_counts_by_no_more_than_the_noise_covers():
    """Within the warm-up and after it, for values of C a million times apart."""
    mechanism = Watched(0.5, SIGMA)
    trainer = trainer_of(mechanism)
    step = trainer.private_step.with_options(counts_norms=True)
    hyper = trainer.hyper._replace(moments_from=jnp.int32(0), adaptive=ADAPTIVE)
    start = step.init(key_from_seed(1), hyper)

    @quick_jit
    def moved(rung, number, x, mask):
        mechanism.seen.clear()
        noise = Noise(jnp.zeros(step.noised_coordinates, jnp.int32), LEVEL)
        draws = Draws(Minibatch(jnp.arange(SIZE, dtype=jnp.int32), mask), noise, jax.random.key(1))
        state = start._replace(step=number, moments=start.moments._replace(rung=rung))
        step.step(state, (x,), draws, hyper)
        units = [
            jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(units)])
            for units, _ in mechanism.seen
        ]
        return units, mechanism.seen[0][1]

    everyone = jnp.ones(SIZE, bool)
    for number in (0, UNTIL, UNTIL + UNTIL // 2):
        ratios = []
        for rung in (-24, -5, 0, 1, 20):
            for scale in (1e-3, 1.0, 1e4):
                x = jnp.asarray(
                    scale * np.random.default_rng(rung % 7).normal(size=SIZE), jnp.float32
                )
                (with_it, spacing), (without, _) = (
                    moved(jnp.int32(rung), jnp.int32(number), x, mask)
                    for mask in (everyone, everyone.at[3].set(False))
                )
                apart = [
                    np.float64(one) - np.float64(other)
                    for one, other in zip(with_it, without, strict=True)
                ]
                ratios.append(np.linalg.norm(np.concatenate(apart)) * SIGMA / DEVIATION)
                clip = float(adaptive_clip.clip_of(jnp.int32(rung), jnp.float32(0.5), ADAPTIVE))
                of_sum = float(adaptive_clip.shares(jnp.int32(number), ADAPTIVE)[0])
                assert float(spacing) * DEVIATION == pytest.approx(SIGMA / of_sum * clip, rel=2e-3)
        assert 0.99 < max(ratios) <= 1


def test_a_run_adapts_c_and_counts_moments_after_it():
    trainer = trainer_of(GaussianMechanism(1e-3, 0.05))
    step = trainer.private_step.with_options(counts_norms=True)
    hyper = trainer.hyper._replace(moments_from=jnp.int32(6), adaptive=adaptive_clip.of(20))
    state = step.init(key_from_seed(2), hyper)
    clips = []
    take = quick_jit(
        lambda state, records: step.step(
            state, records, step.draw(state.key, state.step, hyper), hyper
        )
    )
    for _ in range(8):
        clips.append(float(step.clip(state, hyper)))
        state = take(state, zoo.normal_mean_data(SIZE))
    assert clips[0] == pytest.approx(1e-3)
    assert clips[4] > 0.02
    assert len(set(clips[4:])) == 1
    assert float(state.moments.norms[0]) == 2
    kept, others = running_moments.moments_in(
        running_moments.arrays_of(state.moments) | {"loc": np.zeros(1)}
    )
    assert int(kept.rung) == int(state.moments.rung)
    assert list(others) == ["loc"]


def test_a_step_without_counts_does_not_adapt():
    trainer = trainer_of(GaussianMechanism(1.0, 1.0))
    with pytest.raises(ArgumentError, match=r"^hyper="):
        trainer.private_step.init(key_from_seed(3), trainer.hyper._replace(adaptive=ADAPTIVE))
