"""A look at columns of which nothing is declared, attacked by its likelihood ratio.

The attacker knows all records but one, and sees both releases: all noised counts of the first one,
apart from those of texts, of which only levels are released, and all of the second one. The claim
is that of a Gaussian mechanism, by its closed form (Balle and Wang 2018).
"""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq

import workbench as wb
from tests.auditing.gaussian import gaussian_delta
from workbench.auditing.bounds import epsilon_lower_bound
from workbench.data import undeclared as tables
from workbench.data.counting import Levels, counted
from workbench.data.undeclared import Table
from workbench.fitting import undeclared
from workbench.fitting.undeclared import Undeclared
from workbench.noise.chacha20 import key_from_seed

TYPES = {"stay": float, "age": int, "ward": str}
MULTIPLIER, DELTA, OF_TEXTS = 1.0, 0.01, 1e-3
RUNS = 300  # with the canary, and as many without
RANDOM = np.random.default_rng(3)
OTHERS = pd.DataFrame(
    {
        "stay": RANDOM.gamma(2.0, 3.0, 400),
        "age": RANDOM.integers(18, 90, 400),
        "ward": RANDOM.choice(["north", "south"], 400),
    }
)
CANARIES = {
    "in the tails": {"stay": 1e9, "age": -(10**12), "ward": "north"},
    "of a rare level": {"stay": 2.0, "age": 40, "ward": "hospice"},
}


@pytest.fixture(autouse=True)
def small_trees(monkeypatch):
    """Leaves half an octave wide: the same code with an eighth of the counts."""
    monkeypatch.setattr(tables, "_BITS", 13)


def claimed(delta):
    """Epsilon of a Gaussian mechanism with ``MULTIPLIER``."""
    return brentq(lambda epsilon: gaussian_delta(1 / MULTIPLIER, epsilon) - delta, 0, 50)


def scores(frame, canary, seeds, monkeypatch):
    """The logarithm of the likelihood ratio of each run on ``frame``."""
    releases = []

    def keep(name):
        function = getattr(undeclared, name)

        def call(*arguments):
            values = function(*arguments)
            releases.append((arguments, values))
            return values

        monkeypatch.setattr(undeclared, name, call)

    keep("with_noise")
    keep("noised")

    def records(table, schema):
        return wb.data.from_frame(table, schema=schema, evaluation=False, missing="drop")

    table = Table(frame, TYPES)
    columns = Undeclared(table, lambda schema: records(frame, schema), "drop")
    first, alone = table.counting(), Table(pd.DataFrame([canary]), TYPES)
    of_canary = alone.counted(alone.counting(), 1)
    deviation = first.deviation(undeclared._of_each(MULTIPLIER))
    shown, its = (
        np.concatenate(
            [
                np.arange(place.start, place.stop)
                for column, place in counting.slices()
                if not isinstance(column, Levels)
            ]
        )
        for counting in (first, alone.counting())
    )
    base = table.counted(first, 1)[shown]
    moved = np.flatnonzero(of_canary[its])
    base = base - (1 if len(frame) > len(OTHERS) else 0) * (of_canary[its] > 0)
    found = []
    for seed in seeds:
        releases.clear()
        look = columns.take(MULTIPLIER, key_from_seed(seed), OF_TEXTS)
        (_, one), ((counting, _, noise, _), two) = releases
        ratio = np.sum((one[shown] - base)[moved] - 0.5) / deviation**2
        with_it = records(pd.concat([OTHERS, pd.DataFrame([canary])]), look.schema)
        without = records(OTHERS, look.schema)
        before = counted(counting, without, 1)
        difference = counted(counting, with_it, 1) - before
        ratio += (
            np.sum(difference * (two - before - difference / 2)) / counting.deviation(noise) ** 2
        )
        rare = canary["ward"] not in set(OTHERS["ward"])
        found.append(ratio + 1e3 * (rare and canary["ward"] in look.schema.columns["ward"].labels))
    return np.array(found)


def attacked(canary, monkeypatch, runs=RUNS):
    """(the epsilon that the attack proves, how far apart the scores are on average)."""
    everybody = pd.concat([OTHERS, pd.DataFrame([canary])], ignore_index=True)
    inside = scores(everybody, canary, range(runs), monkeypatch)
    outside = scores(OTHERS, canary, range(runs, 2 * runs), monkeypatch)
    proven = epsilon_lower_bound(inside, outside, DELTA + OF_TEXTS, 0.99).epsilon
    return proven, inside.mean() - outside.mean()


@pytest.mark.statistical
@pytest.mark.parametrize("canary", CANARIES)
def test_no_attack_on_both_releases_proves_more_than_is_claimed(canary, monkeypatch):
    proven, apart = attacked(CANARIES[canary], monkeypatch)
    assert proven < claimed(DELTA)
    if canary == "in the tails":  # it moves as many counts as any record: the attack loses nothing
        assert apart == pytest.approx(MULTIPLIER**-2, abs=4 * (2 / RUNS) ** 0.5)
        assert proven > 0


@pytest.mark.statistical
def test_the_attack_finds_noise_that_is_of_one_release_alone(monkeypatch):
    monkeypatch.setattr(undeclared, "_of_each", lambda noise_multiplier: 0.6 * noise_multiplier)
    assert attacked(CANARIES["in the tails"], monkeypatch)[0] > claimed(DELTA)
