"""Scores through noise: how far one record moves them, and that their intervals hold."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import examples
from workbench import ArgumentError
from workbench.models import covered_scores as module
from workbench.models.covered_scores import BINS, EDGES, covered_scores
from workbench.models.scoring import binary_scores
from workbench.noise import new_key
from workbench.noise.chacha20 import key_from_seed
from workbench.privacy import noise_multiplier
from workbench.privacy.steps import SENSITIVITY

CUT = 4.0
PROBABILITIES = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, math.nan, math.inf, -math.inf])
RECORDS = st.lists(st.tuples(st.sampled_from([0, 1]), PROBABILITIES), max_size=12)


@pytest.fixture
def exact(monkeypatch):
    """What would get noise, in spacings, and how many of them a record weighs."""
    released = []

    def without_noise(counts, per_record, key):
        released.append((counts, per_record))
        return counts / per_record

    monkeypatch.setattr(module, "with_noise", without_noise)
    return released


def scored(records, relation="add_or_remove_one", sigma=1.0, key=None):
    target = np.array([target for target, _ in records], int)
    probability = np.array([probability for _, probability in records], float)
    key = new_key() if key is None else key
    return covered_scores(target, probability, key, noise_multiplier=sigma, relation=relation)


@examples(200)
@given(records=RECORDS, target=st.sampled_from([0, 1]), probability=PROBABILITIES)
def test_a_record_more_moves_the_release_by_at_most_its_sensitivity(records, target, probability):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "with_noise", lambda counts, per_record, key: counts * 1.0)
        without, with_it = (scored(some) for some in (records, [*records, (target, probability)]))
    spacings = math.floor(2**21 / (math.sqrt(2) * (1 + 1e-9)))
    moved = np.concatenate(
        [
            (with_it.counts - without.counts).ravel(),
            [(with_it.log_likelihoods - without.log_likelihoods) / CUT],
        ]
    )
    assert np.linalg.norm(moved) <= math.sqrt(2) * spacings * (1 + 1e-12)


@examples(100)
@given(records=RECORDS, ends=st.tuples(*[st.tuples(st.sampled_from([0, 1]), PROBABILITIES)] * 2))
def test_another_record_moves_it_by_at_most_that_of_replacement(records, ends):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "with_noise", lambda counts, per_record, key: counts * 1.0)
        one, other = (scored([*records, end], "replace_one") for end in ends)
    spacings = math.floor(2**21 / (math.sqrt(3) / 2 * (1 + 1e-9)))
    moved = [
        *(other.counts - one.counts).ravel(),
        (other.log_likelihoods - one.log_likelihoods) / CUT,
    ]
    assert np.linalg.norm(moved) <= math.sqrt(3) * spacings * (1 + 1e-12)


@pytest.mark.parametrize("relation", SENSITIVITY)
def test_the_noise_is_what_is_accounted_for(relation):
    """mu of the release is that of one unsampled step with this noise multiplier, or less."""
    squared = 2 if relation == "add_or_remove_one" else 3
    deviation = scored([], relation, sigma=3.0).deviation
    mu = math.sqrt(squared) / deviation
    assert (1 - 1e-4) * SENSITIVITY[relation] / 3.0 < mu <= SENSITIVITY[relation] / 3.0


@pytest.mark.parametrize("wrong", [1, pytest.param(3 / 2), pytest.param(2 / 3)])
def test_the_noise_has_its_deviation(wrong):
    """A false alarm once in 10 000 times; a wrong scale is found."""
    drawn: list[float] = []
    for seed in range(49):
        scores = covered_scores(np.zeros(0), np.zeros(0), key_from_seed(seed), noise_multiplier=5.0)
        drawn += [*scores.counts.ravel(), scores.log_likelihoods / CUT]
    ratio = np.std(drawn) / (scores.deviation * wrong)
    assert (abs(ratio - 1) < 3.9 / math.sqrt(2 * len(drawn))) == (wrong == 1)


def population(size, seed, middle=-1.0):
    """Classes and predicted probabilities of made-up records; the model is a little wrong.

    :param middle: of the log-odds; at -5.5 one record in a hundred is of class 1.
    """
    random = np.random.default_rng(seed)
    odds = random.normal(middle, 1.3, size)
    target = (random.random(size) < 1 / (1 + np.exp(-odds))).astype(int)
    return target, 1 / (1 + np.exp(-(0.8 * odds + 0.2)))


def test_without_noise_scores_are_those_of_the_records(exact):
    target, probability = population(50_000, 0)
    scores = covered_scores(target, probability, new_key(), noise_multiplier=1.0)
    direct = binary_scores(target, probability)
    assert scores.log_likelihood().value == pytest.approx(direct["log_likelihood"], abs=1e-3)
    assert scores.auc().value == pytest.approx(direct["auc"], abs=2e-3)
    is_above = probability >= 0.5
    assert scores.accuracy().value == pytest.approx(np.mean(is_above == target))
    for row, column in np.ndindex(2, 2):
        expected = np.mean((target == row) & (is_above == column))
        assert scores.confusion()[row][column].value == pytest.approx(expected)
    bin_of = np.digitize(np.log(probability / (1 - probability)), EDGES)
    rates = {column: rate.value for column, rate in enumerate(scores.calibration())}
    for column in set(bin_of):
        assert rates[column] == pytest.approx(target[bin_of == column].mean())


@pytest.mark.parametrize("middle", [-3.0, -5.5, 5.5])
def test_auc_of_a_rare_outcome_is_that_of_the_records(exact, middle):
    """Bins that end at log-odds of 4 gave .63 where it is .76."""
    target, probability = population(400_000, 0, middle)
    scores = covered_scores(target, probability, new_key(), noise_multiplier=1.0)
    assert scores.auc().value == pytest.approx(binary_scores(target, probability)["auc"], abs=5e-3)


@pytest.mark.parametrize("odds", [1e-3, -9.0])
def test_predictions_within_one_bin_leave_auc_unknown(exact, odds):
    """The records are in perfect order, which the bins do not show."""
    target = np.arange(2000) % 2
    probability = 1 / (1 + np.exp(-odds * (2 + target)))
    auc = covered_scores(target, probability, new_key(), noise_multiplier=1.0).auc()
    assert auc.low < 0.05
    assert auc.high == 1.0


def test_where_noise_hides_everything_intervals_say_so():
    scores = scored([(0, 0.2), (1, 0.7)], sigma=1000.0, key=key_from_seed(3))
    scores = dataclasses.replace(scores, counts=np.zeros((2, BINS)), log_likelihoods=0.0)
    assert scores.auc() == (0.5, 0.0, 1.0)
    assert scores.log_likelihood()[1:] == (-CUT, 0.0)
    assert {rate[1:] for rate in scores.calibration()} == {(0.0, 1.0)}


def test_estimates_are_inside_of_their_intervals_and_these_inside_of_their_range():
    for seed in range(20):
        records = list(zip(*population(30, seed), strict=True))
        scores = scored(records, sigma=10.0, key=key_from_seed(seed))
        limited = [scores.auc(), scores.accuracy(), *scores.calibration(), *scores.confusion()[0]]
        assert all(0 <= score.low <= score.value <= score.high <= 1 for score in limited)
        mean = scores.log_likelihood()
        assert -CUT <= mean.low <= mean.value <= mean.high <= 0


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"relation": "other"}, "relation"),
        ({"cut": 0.0}, "cut"),
    ],
)
def test_what_cannot_be_used_is_named(settings, argument):
    with pytest.raises(ArgumentError) as error:
        covered_scores(
            np.ones(3), np.full(3, 0.5), new_key(), **{"noise_multiplier": 1.0, **settings}
        )
    assert error.value.argument == argument


def test_a_key_of_another_generator_is_refused():
    with pytest.raises(TypeError, match="chacha20"):
        scored([(0, 0.5)], key=jax.random.key(0))


# --- intervals ------------------------------------------------------------------------------------


def coverage(size, epsilon, repeats, deviation=None, middle=-1.0):
    """Shares of intervals with the truth: AUC, log-likelihood, accuracy, a cell of the confusion
    table, the mean over the calibration curve.
    """
    target, probability = population(1_000_000, 7, middle)
    column = np.digitize(np.log(probability / (1 - probability)), EDGES)
    zeros, ones = (np.bincount(column[target == side], minlength=BINS) for side in (0, 1))
    of_target = np.where(target == 1, probability, 1 - probability)
    truth = [
        binary_scores(target, probability)["auc"],
        np.maximum(np.log(of_target), -CUT).mean(),
        np.mean((probability >= 0.5) == target),
        np.mean((probability >= 0.5) & (target == 1)),
        *(ones / np.maximum(ones + zeros, 1)),
    ]
    sigma = noise_multiplier(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, steps=1)
    random, hits = np.random.default_rng(0), np.zeros(len(truth))
    for repeat in range(repeats):
        rows = random.integers(0, len(target), size)
        key = key_from_seed(repeat)
        scores = covered_scores(target[rows], probability[rows], key, noise_multiplier=sigma)
        if deviation is not None:
            scores = dataclasses.replace(scores, deviation=deviation)
        estimates = [scores.auc(), scores.log_likelihood(), scores.accuracy()]
        estimates += [scores.confusion()[1][1], *scores.calibration()]
        hits += [
            low <= value <= high for value, (_, low, high) in zip(truth, estimates, strict=True)
        ]
    used = hits[4:][ones + zeros > 0]
    return [*hits[:4] / repeats, used.mean() / repeats]


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("size", [500, 10_000])
def test_ninety_of_a_hundred_intervals_hold(size, epsilon):
    """A share of exact intervals is outside once in 600 times, as its deviation is .0095."""
    assert all(0.87 <= share <= 0.93 for share in coverage(size, epsilon, 1000))


@pytest.mark.statistical
@pytest.mark.parametrize("middle", [-4.0, -5.5])
def test_intervals_of_auc_hold_for_rare_outcomes(middle):
    assert 0.87 <= coverage(10_000, 1.0, 1000, middle=middle)[0] <= 0.95


@pytest.mark.statistical
def test_intervals_that_forget_the_noise_do_not_hold():
    assert max(coverage(500, 0.5, 100, deviation=1e-9)[:2]) < 0.6
