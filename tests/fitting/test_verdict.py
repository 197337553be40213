"""The verdict before a fit, against fits of made-up records of several shapes."""

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.privacy.outlook import ALL, MOST, outlook

pytestmark = pytest.mark.thorough

PRIOR = 2.5


def shares_told(records, features, epsilon, seed):
    """Room for how many times the quantities, and the share of them that the noise of a fit leaves
    clear.

    A quantity is clear if the noise leaves it a standard deviation of at most half of 1 / C, as
    ``Outlook.room`` says. The noise's part is what the posterior's variance has more than a normal
    approximation without privacy.
    """
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (records, features))
    probability = 1 / (1 + np.exp(-x @ random.normal(size=features)))
    names = [f"x{place}" for place in range(features)]
    frame = pd.DataFrame(x, columns=names).assign(y=random.random(records) < probability)
    prepared = wb.prepare(
        f"y ~ {' + '.join(names)}",
        frame,
        family="bernoulli",
        schema={"y": bool, **dict.fromkeys(names, (-1, 1))},
        epsilon=epsilon,
        seed=seed,
    )
    assert np.all(prepared.step.options.reach == PRIOR)
    for _ in prepared.run():
        pass
    draws = prepared.result().draws
    variance = np.concatenate(
        [
            np.reshape(draws[name], (-1, size)).var(axis=0)
            for name, size in (("intercept", 1), ("weights", features))
        ]
    )
    design = np.column_stack([np.ones(records), x])
    weights = probability * (1 - probability)
    without = np.diag(
        np.linalg.inv(design.T @ (weights[:, None] * design) + np.eye(features + 1) / PRIOR**2)
    )
    told = outlook(prepared.plan, prepared.step.noise_size)
    clear = variance - without <= (0.5 / prepared.privacy.clip) ** 2
    return told.room / told.dimension, clear.mean(), told.verdict


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("records", "features", "epsilon"),
    [(2000, 2, 2.0), (2000, 5, 8.0), (3000, 10, 8.0), (5000, 20, 8.0), (6000, 30, 8.0)],
)
def test_all_quantities_are_clear_where_the_verdict_says_so(records, features, epsilon, seed):
    times, clear, verdict = shares_told(records, features, epsilon, seed)
    assert times >= ALL
    assert "may hide" not in verdict
    assert clear == 1


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("records", "features", "epsilon"),
    [(500, 10, 8.0), (2000, 5, 1.0), (5000, 20, 2.0), (4000, 30, 4.0)],
)
def test_most_quantities_are_clear_where_the_verdict_says_so(records, features, epsilon, seed):
    times, clear, verdict = shares_told(records, features, epsilon, seed)
    assert MOST <= times < ALL
    assert "may hide some" in verdict
    assert clear > 0.5


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("records", "features", "epsilon"),
    [(300, 2, 0.5), (500, 10, 0.5), (500, 10, 2.0), (5000, 20, 0.5)],
)
def test_room_for_a_few_times_as_many_need_not_suffice(records, features, epsilon, seed):
    times, clear, verdict = shares_told(records, features, epsilon, seed)
    assert 1 < times < MOST
    assert "may hide most" in verdict
    assert clear < 0.5
