"""Draws by the chains that made them."""

import numpy as np
import pytest

from workbench.posterior import gram_chain, noise_aware
from workbench.results import arviz_adapter
from workbench.results.chains import Chains, chains_of


@pytest.mark.parametrize(("markov", "states", "count"), [(16, 512, 1000), (25, 1000, 1000)])
def test_no_markov_chain_is_in_two_of_those_that_are_shown(markov, states, count):
    order = Chains(markov, states).order(count)
    assert sorted(order.ravel()) == list(range(count))
    chains = [set(row % states % markov) for row in order]
    assert sum(map(len, chains)) == markov
    assert len(chains) > 3


def test_draws_of_one_state_are_side_by_side():
    states = Chains(16, 512).order(1000) % 512
    # a chain goes on in time, and comes to each state once
    for row in states:
        begins = np.flatnonzero(np.diff(row // 16, prepend=99) < 0)
        assert len(begins) == 4
        assert np.sum(np.diff(row) != 0) + 1 == len(set(row))


@pytest.mark.parametrize(
    ("count", "shape"), [(1, (1, 1)), (10, (5, 2)), (1000, (4, 250)), (1001, (1, 1001))]
)
def test_independent_draws_are_split_in_equal_parts(count, shape):
    order = Chains().order(count)
    assert order.shape == shape
    assert order.ravel().tolist() == list(range(count))


def test_chains_are_those_of_the_posterior():
    assert chains_of("noise-aware", 1000) == (noise_aware.CHAINS, noise_aware.CURVATURES)
    assert chains_of("sums", 1000) == (gram_chain.CHAINS, 1000)
    assert chains_of("sums", 8) == (8, 8)
    assert chains_of("variational", 1000).words(1000) == "independent draws in 4 equal parts"


def test_chains_that_disagree_are_told_from_those_that_agree():
    random, chains = np.random.default_rng(4), Chains(16, 512)
    draws = random.normal(size=(1000, 3))
    # one Markov chain elsewhere, and chains that move slowly
    draws[np.arange(1000) % 16 == 3, 1] += 4
    steps = np.cumsum(random.normal(size=(32, 16)), axis=0)
    draws[:, 2] = np.resize(steps.ravel(), 1000)
    sizes, ratios = arviz_adapter.chain_statistics(draws, chains)
    assert sizes[0] > 700
    assert ratios[0] < 1.01
    assert np.all(sizes[1:] < 150)
    assert np.all(ratios[1:] > 1.03)


def test_draws_that_share_a_state_count_once():
    """Of 1000 draws of 512 states, 488 states come twice: sum 1 over sum of squares, 507."""
    random = np.random.default_rng(8)
    draws = np.resize(random.normal(size=512), 1000)[:, None]
    (size,), _ = arviz_adapter.chain_statistics(draws, Chains(16, 512))
    assert 350 < size < 650
