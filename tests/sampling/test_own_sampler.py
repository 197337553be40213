"""Samplers that are written outside the package, by the protocol alone: no step asks which sampler
a run has.
"""

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpyro.optim import Adam

import workbench
from tests import zoo
from tests.conftest import some_of
from tests.sampling import uniformity
from workbench import ArgumentError
from workbench.inference import DPVI, batched, compiling
from workbench.inference.bringing import DrawnAhead
from workbench.noise.chacha20 import key_from_seed, stream
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy import accounting
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.sampling import FeistelSampler, Minibatch, RandomAllocationSampler
from workbench.sampling.minibatch import RandomSize

N, STEPS = 96, 40
RECORDS = zoo.normal_mean_data(N)
SETTINGS = PrivacySettings(2.0, 1e-4, STEPS, 1 / 8, "poisson", 1.0, N, None)


@dataclasses.dataclass(frozen=True)
class CoinFlips:
    """Poisson minibatches at a rate of 1/8 by a coin for each record: N words a step, exactly."""

    num_records: int
    capacity: int

    name = "poisson"
    sampling_rate = 1 / 8
    total_variation = 0.0
    has_random_size = True
    ascends = True
    preparation = None
    remark = "Minibatches are drawn by coins."

    @property
    def public_size(self):
        return self.num_records

    @property
    def words(self):
        return self.num_records

    def usual_size(self, minibatches=1):
        return self.capacity

    def draw(self, key):
        return self.draw_from(stream(key, 0, self.words), key, jnp.uint32(0))

    def draw_from(self, words, key, number):
        chosen = words < np.uint32(2**29)  # 2^32 / 8
        (places,) = jnp.nonzero(chosen, size=self.capacity, fill_value=0)
        return Minibatch(places.astype(jnp.int32), jnp.arange(self.capacity) < jnp.sum(chosen))


@dataclasses.dataclass(frozen=True)
class Tabulated(RandomSize):
    """Random allocation whose epochs are tables of minibatches, and not sorted records."""

    num_records: int
    steps_per_epoch: int
    capacity: int
    declared: int | None = None

    name = "random_allocation"
    ascends = True
    words = 0
    total_variation = 0.0

    @property
    def sampling_rate(self):
        return 1 / self.steps_per_epoch

    @property
    def preparation(self):
        return self

    @property
    def preparing_words(self):
        return 2 * self.steps_per_epoch * self.capacity + self.num_records

    def _members(self, key, number):
        epoch, step = jnp.divmod(
            jnp.asarray(number).astype(jnp.uint32), np.uint32(self.steps_per_epoch)
        )
        known = RandomAllocationSampler(self.num_records, self.steps_per_epoch, self.capacity)
        chosen = known.assignment(key, epoch) == step
        (places,) = jnp.nonzero(chosen, size=self.capacity, fill_value=0)
        return Minibatch(places.astype(jnp.int32), jnp.arange(self.capacity) < jnp.sum(chosen))

    def draw_from(self, words, key, number):
        self._require(words)
        return self._members(key, number)

    def prepare(self, key, epoch, epochs=1):
        first = jnp.asarray(epoch).astype(jnp.uint32) * np.uint32(self.steps_per_epoch)
        numbers = first + jnp.arange(epochs * self.steps_per_epoch, dtype=jnp.uint32)
        return {"table": lax.map(lambda number: self._members(key, number), numbers)}

    def draw_prepared(self, prepared, number):
        table = prepared["table"]
        return jax.tree.map(lambda rows: rows[jnp.asarray(number) % len(table.mask)], table)


def trainer_of(privacy):
    return DPVI(zoo.normal_mean, zoo.normal_mean_guide, Adam(0.05), privacy=privacy)


def fitted(privacy):
    """(the trainer, its state after a run of the compiled loop)."""
    dpvi = trainer_of(privacy)
    return dpvi, dpvi.run(key_from_seed(1), STEPS, *RECORDS, progress_bar=False).state


def same_bits(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(left, right) for left, right in leaves)


# ---- another implementation of Poisson sampling --------------------------------------------------


def test_a_sampler_of_the_users_is_fitted_with_the_guarantee_of_its_law():
    plan = make_plan(SETTINGS, N)
    own = plan.with_sampler(CoinFlips(N, plan.sampler.capacity))
    (trainer, state), known = fitted(own), trainer_of(plan)
    assert isinstance(trainer.private_step.sampler, CoinFlips)
    guarantee = trainer.guarantee(state)
    other = known.guarantee(known.init(key_from_seed(1), *RECORDS))
    assert (guarantee.epsilon, guarantee.noise_multiplier) == (
        other.epsilon,
        other.noise_multiplier,
    )
    assert (guarantee.sampler, guarantee.sampling_rate, guarantee.relation) == (
        "poisson",
        1 / 8,
        "add_or_remove_one",
    )
    sigma = guarantee.noise_multiplier
    spent = accounting.epsilon(
        noise_multiplier=sigma, sampling_rate=1 / 8, steps=STEPS, delta=SETTINGS.delta
    )
    assert spent <= guarantee.epsilon == 2.0
    assert "Minibatches are drawn by coins." in guarantee.statement()
    assert np.all(np.isfinite(jax.tree.leaves(trainer.get_params(state))[0]))


def test_its_minibatches_follow_the_law_that_is_accounted_for():
    """Each of the statistics raises a false alarm with probability 1e-6, over seeds."""
    sampler, draws = CoinFlips(20, 20), 20_000
    found = uniformity.tally(uniformity.memberships(sampler, key_from_seed(3), np.arange(draws)))
    assert uniformity.even_inclusion(found)
    assert uniformity.even_pairs(found)
    total = found.sizes.sum()  # binomial: 5 standard deviations are a false-alarm rate below 1e-6
    assert abs(total - draws * 20 / 8) < 5 * np.sqrt(draws * 20 / 8 * 7 / 8)


def test_a_plan_whose_noise_makes_it_smaller_keeps_the_sampler():
    plan = make_plan(dataclasses.replace(SETTINGS, epsilon=50.0, iterations=1000), N)
    own = plan.with_sampler(CoinFlips(N, N))
    smaller = own.for_noise_in(10**5)
    assert smaller.settings.epsilon < own.settings.epsilon
    assert smaller.sampler == own.sampler


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (FeistelSampler(N, 12), "must have name = 'poisson'"),
        (CoinFlips(N - 1, N), "must have num_records = 96"),
        (CoinFlips(N, 20), "costs a delta of"),
        ("poisson", "must have name"),
        (None, "must have name"),
    ],
)
def test_a_sampler_that_the_plan_does_not_account_for_is_refused(sampler, words):
    with pytest.raises(ArgumentError, match=rf"^sampler=.*{words}"):
        make_plan(SETTINGS, N).with_sampler(sampler)


def test_a_sampler_that_strays_from_its_law_is_charged():
    plan = make_plan(SETTINGS, N)
    for distance, is_taken in ((1e-12, True), (1e-6, False)):
        kind = dataclasses.make_dataclass(
            "Stray", [("total_variation", float, distance)], bases=(CoinFlips,), frozen=True
        )
        sampler = kind(N, N)
        if is_taken:
            assert plan.with_sampler(sampler).overflow_delta == plan.overflow_delta
        else:
            with pytest.raises(ArgumentError, match=r"^sampler=.*costs a delta of"):
                plan.with_sampler(sampler)


# ---- another preparation of epochs ---------------------------------------------------------------

MECHANISM = GaussianMechanism(1.0, 1.0)
BOTH = Tabulated(N, 7, N), RandomAllocationSampler(N, 7, N)


@pytest.fixture(scope="module")
def few_epochs():
    """(trainer, last state) of both, in a loop that prepares a few epochs at once."""
    return [fitted((sampler, MECHANISM)) for sampler in BOTH]


@pytest.mark.parametrize("keeps_epochs", some_of([False, True]))
def test_a_preparation_of_the_users_ends_at_the_same_bits(monkeypatch, few_epochs, keeps_epochs):
    """In a loop that prepares a few epochs at once, and in one that keeps an epoch between its
    chunks.
    """
    ends = few_epochs
    if keeps_epochs:
        monkeypatch.setattr(compiling, "_WORDS_AHEAD", N // 2)
        ends = [fitted((sampler, MECHANISM)) for sampler in BOTH]
    assert [compiling.epochs_kept(trainer.private_step) is not None for trainer, _ in ends] == [
        keeps_epochs
    ] * 2
    assert same_bits(*(state.optim_state for _, state in ends))


def test_a_loop_that_prepares_nothing_ends_there_too(few_epochs):
    trainer, state = few_epochs[0]
    alone, update = trainer.init(key_from_seed(1), *RECORDS), jax.jit(trainer.update)
    for _ in range(STEPS):
        alone, _ = update(alone, *RECORDS)
    for one, other in zip(
        jax.tree.leaves(alone.optim_state), jax.tree.leaves(state.optim_state), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_minibatches_that_are_drawn_ahead_for_records_in_a_file_are_the_same():
    draws = [DrawnAhead(sampler, None, key_from_seed(2), None, 5) for sampler in BOTH]
    for first in (0, 5, 10):
        assert same_bits(*(draw(first) for draw in draws))


def test_memory_of_lanes_is_that_of_the_preparation(few_epochs):
    sizes = [
        batched.bytes_per_lane(trainer.private_step, state, RECORDS, shared=True)
        for trainer, state in few_epochs
    ]
    assert sizes[0] - sizes[1] == 4 * (BOTH[0].preparing_words - BOTH[1].preparing_words)


def test_nothing_asks_which_sampler_it_is():
    asked = re.compile(r"isinstance\([^)]*Sampler")
    files = Path(workbench.__file__).parent.rglob("*.py")
    assert [file.name for file in files if asked.search(file.read_text())] == []
