import math

import jax
import numpy as np
import pytest

from tests.conftest import some_of
from tests.sampling.uniformity import (
    DRAWS,
    SETTINGS,
    even_inclusion,
    even_outcomes,
    memberships,
    subset_codes,
    tally,
)
from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_seed
from workbench.sampling import FeistelSampler


@pytest.mark.parametrize(("num_records", "batch_size"), some_of(list(SETTINGS), 3))
def test_records_are_drawn_evenly_as_far_as_these_counts_can_tell(num_records, batch_size):
    counted = tally(
        memberships(FeistelSampler(num_records, batch_size), key_from_seed(0), np.arange(DRAWS)),
        pairs=False,
    )
    assert np.all(counted.sizes == batch_size)
    assert even_inclusion(counted)


@pytest.mark.thorough
@pytest.mark.parametrize("num_records", some_of([5, 10], 2))
def test_pairs_of_few_records_are_not_drawn_evenly(num_records):
    """Where the exact samplers pass the same test: why no accountant of this package covers this
    one.
    """
    codes = subset_codes(
        memberships(FeistelSampler(num_records, 2), key_from_seed(1), np.arange(10 * DRAWS))
    )
    assert not even_outcomes(codes, math.comb(num_records, 2))


@pytest.mark.thorough
def test_four_rounds_are_far_from_even():
    counted = tally(
        memberships(FeistelSampler(10, 3, rounds=4), key_from_seed(2), np.arange(DRAWS)),
        pairs=False,
    )
    assert not even_inclusion(counted)


@pytest.mark.parametrize("num_records", some_of([2, 4, 5, 16, 300, 17]))
def test_all_places_together_are_a_permutation(num_records):
    indices = jax.jit(FeistelSampler(num_records, num_records).draw)(key_from_seed(3)).indices
    np.testing.assert_array_equal(np.sort(indices), np.arange(num_records))


@pytest.mark.parametrize("rounds", [0, 1, 2.5])
def test_too_few_rounds_are_refused(rounds):
    with pytest.raises(ArgumentError, match=r"^rounds="):
        FeistelSampler(10, 2, rounds=rounds)


def test_nothing_is_claimed():
    sampler = FeistelSampler(500, 50)
    assert sampler.name == "feistel"
    assert sampler.total_variation == 1
    assert not hasattr(sampler, "relation"), "an accountant could take it for one of its own"
    assert (sampler.capacity, sampler.usual_size(), sampler.sampling_rate, sampler.words) == (
        50,
        50,
        0.1,
        8,
    )
