"""Chi-square statistics that are right where, given its size, every subset of the records is an
equally likely minibatch.

That holds of Poisson sampling, of sampling without replacement and of a step of a shuffled epoch.
Given the size k of a minibatch, x_i says whether record i is in it, and

    Cov(x_i, x_j) = v(k) (1[i = j] - 1 / N),                      v(k) = k (N - k) / (N (N - 1)).

So over all minibatches, sum_i (count_i - mean)^2 / sum_t v(k_t) is chi-square with N - 1 degrees of
freedom. Pair counts c_ij = sum_t x_i x_j have a covariance that permutations of the records leave
alone, so it has three eigenspaces (Johnson scheme): constants, whose value k fixes; what the
inclusion counts determine (row sums of c); and matrices with row sums 0, of dimension N (N - 3) /
2, on which it is E[x_1 x_2] - 2 E[x_1 x_2 x_3] + E[x_1 x_2 x_3 x_4] times the identity, that is

    w(k) = k (k - 1) (N - k) (N - k - 1) / (N (N - 1) (N - 2) (N - 3)).

The pair statistic is the squared length of c's part there over sum_t w(k_t): it has N (N - 3) / 2
degrees of freedom and sees what the inclusion statistic does not. Both have exactly the chi-square
mean, and twice that as their variance but for terms of 1 / draws, even where there are more pairs
than draws.

Not a test file: tests/sampling/test_uniformity.py holds these statistics to a NumPy sampler, fair
and biased.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import stats

from workbench.noise.chacha20 import stream

FALSE_ALARMS = 1e-6  # of each statistic, two-sided, over seeds
SETTINGS = ((10, 5), (500, 50), (1000, 100))  # N and the expected minibatch
DRAWS = 100_000
_CHUNK = 10_000


class Tally(NamedTuple):
    """Of many minibatches: ``sizes``, int[draws]; ``counts``, by record; ``together``, by pair (or
    None).
    """

    sizes: np.ndarray
    counts: np.ndarray
    together: np.ndarray | None


@functools.partial(jax.jit, static_argnums=0)
def minibatches(sampler, key, numbers):
    """The minibatches of the steps ``numbers``, uint32[draws], as a run draws them."""

    def one(number):
        return sampler.draw_from(stream(key, number, sampler.words), key, number)

    return lax.map(one, numbers, batch_size=1000)


def members_of(batches, num_records):
    """bool[draws, N]: which record is in which minibatch."""
    # padding goes to a column of its own
    places = np.where(batches.mask, batches.indices, num_records)
    member = np.zeros((len(places), num_records + 1), bool)
    member[np.arange(len(places))[:, None], places] = True
    return member[:, :-1]


def memberships(sampler, key, numbers):
    """Parts of bool[draws, N] for the steps ``numbers``."""
    for start in range(0, len(numbers), _CHUNK):
        part = jnp.asarray(numbers[start : start + _CHUNK], jnp.uint32)
        yield members_of(minibatches(sampler, key, part), sampler.num_records)


def fair(num_records, batch_size, draws, seed):
    """Parts of bool[draws, N] that NumPy drew without replacement: the places of the b smallest of
    N uniform numbers.
    """
    random = np.random.default_rng(seed)
    for start in range(0, draws, _CHUNK):
        uniform = random.random((min(_CHUNK, draws - start), num_records), np.float32)
        member = np.zeros(uniform.shape, bool)
        np.put_along_axis(
            member, np.argpartition(uniform, batch_size, axis=1)[:, :batch_size], True, axis=1
        )
        yield member


def tally(parts, pairs=True):
    """Count records and pairs in ``memberships`` or ``fair``."""
    sizes, counts, together = [], 0, 0
    for member in parts:
        sizes.append(member.sum(axis=1))
        counts = counts + member.sum(axis=0)
        if pairs:
            # whole numbers below 2^24: exact, and a fast matrix product
            floats = member.astype(np.float32)
            together = together + (floats.T @ floats).astype(np.float64)
    return Tally(np.concatenate(sizes), counts, together if pairs else None)


def fits(statistic, degrees):
    """Two-sided chi-square test: too even is wrong as well."""
    return FALSE_ALARMS / 2 < stats.chi2.sf(statistic, degrees) < 1 - FALSE_ALARMS / 2


def inclusion_statistic(tally):
    """The statistic of inclusion and its degrees of freedom."""
    size, k = len(tally.counts), tally.sizes.astype(float)
    variance = np.sum(k * (size - k)) / (size * (size - 1))
    return np.sum((tally.counts - tally.counts.mean()) ** 2) / variance, size - 1


def pair_statistic(tally):
    """The statistic of pairs, apart from what the inclusion counts say, and its degrees
    of freedom.
    """
    size, k = len(tally.counts), tally.sizes.astype(float)
    pairs = tally.together - np.diag(np.diag(tally.together))
    rows = pairs.sum(axis=1)
    rest = pairs - (rows[:, None] + rows) / (size - 2) + rows.sum() / ((size - 1) * (size - 2))
    np.fill_diagonal(rest, 0)
    variance = np.sum(k * (k - 1) * (size - k) * (size - k - 1)) / (
        size * (size - 1) * (size - 2) * (size - 3)
    )
    return np.sum(rest**2) / 2 / variance, size * (size - 3) // 2


def even_inclusion(tally):
    """Whether the counts of records fit."""
    return fits(*inclusion_statistic(tally))


def even_pairs(tally):
    """Whether the counts of pairs fit."""
    return fits(*pair_statistic(tally))


def even_outcomes(codes, outcomes):
    """Whether ``codes``, whole numbers, are spread evenly over so many possible values (whichever
    they are).
    """
    values, observed = np.unique(codes, return_counts=True)
    assert len(values) <= outcomes
    expected = len(codes) / outcomes
    return fits(
        np.sum((observed - expected) ** 2) / expected + (outcomes - len(values)) * expected,
        outcomes - 1,
    )


def subset_codes(parts):
    """A whole number for the subset that each minibatch is (N at most 62)."""
    return np.concatenate([member @ (1 << np.arange(member.shape[1])) for member in parts])
