"""Losses of which only bounds on delta are known: that what they compose to is never too small."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

from tests.conftest import some_of
from workbench.privacy.known_loss import KnownLoss
from workbench.privacy.pld import ComposedLoss
from workbench.privacy.sampled_gaussian import SampledGaussian

EPSILONS = [0.0, 0.1, 0.5, 1.0, 2.0, 3.5]


def of_gaussian(mu):
    """The closed form of Balle and Wang 2018, written anew."""

    def profile(epsilons):
        epsilons = np.asarray(epsilons, float)
        inside = ndtr(mu / 2 - epsilons / mu)
        return np.maximum(inside - np.exp(epsilons) * ndtr(-mu / 2 - epsilons / mu), 0.0)

    return profile


def of_table(p, q):
    """delta of two laws on a few outcomes."""
    p, q = np.asarray(p), np.asarray(q)
    return lambda epsilons: np.maximum(p - np.exp(np.asarray(epsilons))[:, None] * q, 0).sum(axis=1)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("times", some_of([1, 2, 5]))
def test_gaussians_compose_to_the_gaussian_of_the_root_of_their_number(mu, times):
    loss = KnownLoss.of(of_gaussian(mu), of_gaussian(mu))
    composed = ComposedLoss(((loss, times),))
    exact = of_gaussian(mu * np.sqrt(times))
    for epsilon in EPSILONS:
        truth, bound = float(exact(epsilon)), composed.delta(epsilon)
        assert bound >= truth * (1 - 1e-9)
        assert bound <= truth * 1.02 + 1e-13


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_sampled_steps_behind_a_profile_compose_as_they_do_themselves(direction):
    steps = {name: SampledGaussian(0.05, 0.7, name) for name in ("remove", "add")}
    profiles = {name: ComposedLoss(((step, 40),)).profile(0.8) for name, step in steps.items()}
    other = {"remove": "add", "add": "remove"}[direction]
    known = KnownLoss.of(profiles[direction], profiles[other])
    more = (SampledGaussian(0.02, 0.5, direction), 100)
    direct = ComposedLoss(((steps[direction], 40), more))
    behind = ComposedLoss(((known, 1), more))
    for delta in (1e-3, 1e-5, 1e-7):
        truth = direct.epsilon(delta)
        assert truth - 1e-4 <= behind.epsilon(delta) <= truth * 1.003 + 1e-4


@pytest.mark.parametrize("seed", some_of(range(30), 5))
def test_no_composition_of_small_mechanisms_is_below_the_enumerated_one(seed):
    generator = np.random.default_rng(seed)
    pairs = []
    for _ in range(2):
        laws = generator.dirichlet(np.full(generator.integers(2, 5), 0.7), size=2)
        if seed % 2 == 0:  # a rare outcome that only one data set has
            laws[0] = (1e-4, *laws[0, 1:] * (1 - 1e-4) / laws[0, 1:].sum())
            laws[1] = (0, *laws[1, 1:] / laws[1, 1:].sum())
        pairs.append(laws)
    losses = [KnownLoss.of(of_table(p, q), of_table(q, p)) for p, q in pairs]
    composed = ComposedLoss(tuple((loss, 1) for loss in losses))
    products = [
        np.prod(both, axis=0)
        for both in (
            list(zip(*itertools.product(*(laws[side] for laws in pairs)), strict=True))
            for side in (0, 1)
        )
    ]
    exact = of_table(*products)
    for epsilon in EPSILONS:
        truth = float(exact([epsilon])[0])
        assert truth * (1 - 1e-9) - 1e-12 <= composed.delta(epsilon) <= truth + 2e-3


def test_what_is_beyond_reach_becomes_infinite():
    loss = KnownLoss.of(of_gaussian(1.0), of_gaussian(1.0))
    near = loss.within(3.0)
    assert near.losses[-1] < loss.losses[-1]
    assert near.infinite + near.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert 1e-4 < near.infinite <= ndtr(-3.0)


def test_what_shows_everything_has_no_epsilon():
    loss = KnownLoss.of(np.ones_like, np.ones_like)
    assert ComposedLoss(((loss, 1),)).delta(3.0) == 1
    assert ComposedLoss(((loss, 2),)).epsilon(0.5) == np.inf
