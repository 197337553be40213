"""What scores of an outcome add up for a record, and that their intervals hold."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import examples
from workbench import ArgumentError
from workbench.models import covered_scores, estimates
from workbench.models.estimates import covered_means, means_of_units
from workbench.models.outcomes import Classes, Numbers, Predicted, YesOrNo, log_range
from workbench.models.scoring import class_scores
from workbench.noise import new_key
from workbench.noise.chacha20 import key_from_seed
from workbench.privacy import noise_multiplier

ODD = st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e300, -1e300])
NUMBER = st.floats(-20, 20) | ODD
CHANCES = st.lists(st.floats(0, 1) | ODD, min_size=3, max_size=3)
UNIT = st.lists(st.tuples(NUMBER, NUMBER, NUMBER, CHANCES), min_size=1, max_size=4)
OUTCOMES = [YesOrNo(), Classes(3), Numbers(-10.0, 6.0), Numbers(0.0, 1e6, has_errors=False)]


@pytest.fixture
def exact(monkeypatch):
    """Releases without noise, as vectors in spacings, in the order in which they are made."""
    released = []

    def without_noise(counts, per_record, key):
        released.append(np.asarray(counts))
        return counts / per_record

    for module in (covered_scores, estimates):
        monkeypatch.setattr(module, "with_noise", without_noise)
    return released


def predicted(outcome, units):
    """Made-up records of privacy units."""
    records = [record for unit in units for record in unit]
    target, numbers, densities = (
        np.array([record[index] for record in records]) for index in (0, 1, 2)
    )
    if isinstance(outcome, Classes):
        target, numbers = np.nan_to_num(target), np.array([r[3] for r in records]).reshape(-1, 3)
    return Predicted(target, numbers, densities, np.array([len(unit) for unit in units]))


@examples(100)
@given(units=st.lists(UNIT, max_size=4), more=UNIT)
@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_unit_more_moves_a_release_by_at_most_what_its_noise_is_for(outcome, units, more):
    """Whatever it says, and however many rows it has; the noise has sigma times the distance."""
    released = []

    def without_noise(counts, per_record, key):
        released.append(np.asarray(counts, np.float64))
        return counts / per_record

    with pytest.MonkeyPatch.context() as patch:
        for module in (covered_scores, estimates):
            patch.setattr(module, "with_noise", without_noise)
        for some in (units, [*units, more]):
            with np.errstate(all="ignore"):
                outcome.release(predicted(outcome, some), new_key(), 3.0)
    without, with_it = released
    assert len(without) == outcome.draws
    of_noise = 2**21  # standard deviation of all noise, in spacings
    assert np.linalg.norm(with_it - without) <= of_noise / 3.0


def test_a_unit_of_two_rows_counts_once(exact):
    """Its mean counts, so a unit of two equal rows is a unit of one."""
    for outcome in OUTCOMES:
        row = (1.0, 0.25, -1.0, [0.2, 0.5, 0.3])
        once, twice = (
            outcome.release(predicted(outcome, [[row] * rows]), new_key(), 1.0) for rows in (1, 2)
        )
        assert once == twice
    np.testing.assert_array_equal(means_of_units(np.arange(4.0), np.array([1, 3])), [0.0, 2.0])


def test_without_noise_scores_are_those_of_the_records(exact):
    random = np.random.default_rng(0)
    y = random.normal(20, 5, 20_000)
    mean, densities = y + random.normal(0, 2, y.shape), random.normal(-2.5, 0.5, y.shape)
    scores = Numbers(0.0, 40.0).release(Predicted(y, mean, densities), new_key(), 1.0).scores
    assert scores["rmse"].value == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-4)
    assert scores["mae"].value == pytest.approx(np.mean(np.abs(y - mean)), rel=1e-4)
    assert scores["log_likelihood"].value == pytest.approx(densities.mean(), abs=1e-4)

    chances = random.dirichlet([1, 2, 3], 20_000)
    codes = np.array([random.choice(3, p=row) for row in chances])
    scores = Classes(3).release(Predicted(codes, chances, None), new_key(), 1.0).scores
    direct = class_scores(codes, np.maximum(chances, np.exp(-4 - np.log(1.5))))
    assert scores["accuracy"].value == pytest.approx(direct["accuracy"], abs=1e-6)
    assert scores["log_likelihood"].value == pytest.approx(direct["log_likelihood"], abs=1e-4)


def test_densities_are_cut_in_the_units_of_the_number():
    """In another unit all log densities move alike, and so does the range; counts reach 0."""
    (middle, half), (other, same) = log_range(0, 10), log_range(0, 10_000)
    assert other == pytest.approx(middle - math.log(1000) + max(0, math.log(5000) - 8) / 2)
    assert same == pytest.approx(half + max(0, math.log(5000) - 8) / 2)
    assert sum(log_range(0, 1e9)) == 0


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_runs_are_ordered_without_ties_where_noise_hides_their_scores(outcome):
    """Scores end at their bounds, and several would tie as the best."""
    random = np.random.default_rng(0)
    units = [[(1.0, 0.5, -1.0, [0.2, 0.5, 0.3])] for _ in range(50)]
    released = [
        outcome.release(predicted(outcome, units), key_from_seed(int(seed)), 100.0)
        for seed in random.integers(0, 10**6, 20)
    ]
    for name in outcome.scores:
        assert len({result.order[name] for result in released}) == len(released)


def test_the_order_does_not_depend_on_the_range_that_a_fit_has_learned(exact):
    """Each run of a choice learns its own."""
    random = np.random.default_rng(0)
    y = random.normal(0, 1, 4000)
    densities = random.normal(-1.4, 0.5, 4000)
    better, worse = (Predicted(y, mean * y, densities + mean) for mean in (0.9, 0.8))
    for reaches in ((12.0, 4.0), (4.0, 12.0)):
        first, second = (
            Numbers(-reach, reach).release(said, new_key(), 1.0)
            for reach, said in zip(reaches, (better, worse), strict=True)
        )
        for name in Numbers(0.0, 1.0).scores:
            assert first.order[name] > second.order[name]


def test_the_order_is_that_of_the_scores(exact):
    random = np.random.default_rng(0)
    target = random.integers(0, 2, 4000)
    good, bad = (
        np.clip(target * 0.6 + 0.2 + random.normal(0, sd, 4000), 0.01, 0.99) for sd in (0.1, 0.6)
    )
    y = random.normal(0, 1, 4000)
    for outcome, first, second in (
        (YesOrNo(), Predicted(target, good, None), Predicted(target, bad, None)),
        (
            Classes(2),
            Predicted(target, np.stack([1 - good, good], 1), None),
            Predicted(target, np.stack([1 - bad, bad], 1), None),
        ),
        (
            Numbers(-4.0, 4.0),
            Predicted(y, 0.9 * y, np.full(4000, -0.5)),
            Predicted(y, 0.1 * y, np.full(4000, -1.5)),
        ),
    ):
        better, worse = (outcome.release(said, new_key(), 1.0) for said in (first, second))
        for name in outcome.scores:
            assert better.order[name] > worse.order[name]


def test_where_noise_hides_everything_intervals_say_so():
    for seed in range(20):
        means = covered_means(np.ones((2, 1)), key_from_seed(seed), noise_multiplier=1e4)
        value, low, high = means.mean(0)
        assert -1 <= low <= value <= high <= 1
        assert high - low > 0.5
    nothing = covered_means(np.ones((0, 2)), new_key(), noise_multiplier=1.0)
    assert nothing.count < 100


def test_what_cannot_be_used_is_named():
    with pytest.raises(ArgumentError) as error:
        covered_means(np.ones((3, 1)), new_key(), noise_multiplier=0.0)
    assert error.value.argument == "noise_multiplier"
    with pytest.raises(TypeError, match="chacha20"):
        covered_means(np.ones((3, 1)), jax.random.key(0), noise_multiplier=1.0)


def coverage(size, epsilon, repeats, shape):
    """Share of intervals of a mean that hold it, of values of a beta distribution."""
    sigma = noise_multiplier(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, steps=1)
    random, hits = np.random.default_rng(0), 0
    for repeat in range(repeats):
        values = 2 * random.beta(*shape, (size, 1)) - 1
        means = covered_means(values, key_from_seed(repeat), noise_multiplier=sigma)
        _, low, high = means.mean(0)
        hits += low <= 2 * shape[0] / sum(shape) - 1 <= high
    return hits / repeats


@pytest.mark.statistical
@pytest.mark.parametrize("shape", [(5.0, 2.0), (0.2, 4.0)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("size", [500, 10_000])
def test_ninety_of_a_hundred_intervals_hold(size, epsilon, shape):
    assert 0.87 <= coverage(size, epsilon, 1000, shape) <= 0.93
