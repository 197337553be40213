"""An attack on what a coordinator sees, together with owners who tell their noise and masks."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import workbench as wb
from tests import fakes
from workbench.auditing.bounds import epsilon_lower_bound
from workbench.noise.chacha20 import new_key
from workbench.owners.agreements import agreement

pytestmark = pytest.mark.statistical

OWNERS = ["Aarhus", "Bern", "Cork"]
SCHEMA = {"ill": ["no", "yes"], "age": (18, 90)}
CANARY = pd.DataFrame({"age": [90.0], "ill": ["yes"]})
POINT = np.array([-40.0, -40.0], np.float32)  # where the canary's gradient is longest
RUNS = 2500


def scores(plan, present, honest, runs):
    """How far the totals of all rounds go in the canary's direction, by run.

    :param present: whether the first of the ``honest`` owners has the canary. The others have no
        records, and what all others sent is taken off the totals.
    """
    nobody = CANARY.head(0)
    frames = [CANARY if present and place == 0 else nobody for place in range(honest)]
    sides = [agreement(plan, frame, "some") for frame in frames]
    shares = [side.sums() for side in sides]
    for share in shares:
        share.begin(new_key())
    size, totals = sides[0].noise_size, np.zeros(runs)
    for run in range(runs):
        for share in shares:  # a run of its own, without the compiling of ``begin``
            share._state = share._state._replace(key=new_key())
        for number in range(plan.rounds):
            units = sum(share.at(number, POINT).words for share in shares)
            totals[run] += units.view(np.int32)[:size].sum(dtype=float)
    return -totals  # the canary's gradient is negative in both coordinates, and equal


def apart(plan, honest, monkeypatch):
    """(scores with and without the canary, of their difference in deviations its value and its
    standard error).
    """
    fakes.split_once(monkeypatch)
    inside, outside = (scores(plan, present, honest, RUNS) for present in (True, False))
    deviation = np.sqrt((inside.var() + outside.var()) / 2)
    difference = (inside.mean() - outside.mean()) / deviation
    return inside, outside, difference, np.sqrt((2 + difference**2 / 4) / RUNS)


def promised_difference(epsilon, delta):
    """mu of the Gaussian mechanism that is just (epsilon, delta)-private, by its formula."""

    def excess(mu):
        ends = norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return ends[0] - np.exp(epsilon) * ends[1] - delta

    return brentq(excess, 1e-3, 20)


def plan_of(colluders, rate):
    settings = {"iterations": 2, "sampling_rate": rate, "clip": 1.0, "learning_rate": 0.1}
    return wb.owners.plan(
        "ill ~ age",
        schema=SCHEMA,
        owners=OWNERS,
        epsilon=2.0,
        delta=1e-3,
        num_records=300,
        colluders=colluders,
        settings=settings,
    )


@pytest.mark.parametrize("colluders", [0, 1])
def test_the_view_of_a_coordinator_keeps_the_promise_and_one_colluder_more_breaks_it(
    colluders, monkeypatch
):
    """Each record enters each round, so what is seen is a Gaussian mechanism."""
    plan = plan_of(colluders, 1.0)
    promise = promised_difference(2.0, 1e-3)
    *_, difference, error = apart(plan, 3 - colluders, monkeypatch)
    assert 0.85 * promise < difference < promise + 3 * error  # nearly all that is promised
    *_, difference, error = apart(plan, 2 - colluders, monkeypatch)
    assert difference > promise + 2 * error


def test_minibatches_that_owners_draw_by_themselves_keep_the_promise(monkeypatch):
    """At half of the records a round, where the noise would not do without the minibatches."""
    plan = plan_of(1, 0.5)
    inside, outside, *_ = apart(plan, 2, monkeypatch)
    kept = epsilon_lower_bound(inside, outside, delta=1e-3, confidence=0.99)
    assert 0.3 < kept.epsilon <= 2.0
