"""A formula's fit leaves nothing of its records but what is noised: all records change, and the
mechanism hears nothing.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.test_nothing_leaves import deafness
from workbench.fitting.groups import grouped

pytestmark = pytest.mark.thorough  # two whole fits and their reports each

SCHEMA = {
    "cost": (-20, 60),
    "age": wb.data.Numeric(0, 120, missing=True),
    "bmi": (10, 50),
    "ward": ["a", "b", "c"],
    "site": list("uvwxyz"),
    "ill": bool,
    "risk": (0.5, 4),
    "n": (1, 20, int),
    "wins": (0, 20, int),
    "days": (0, 40, int),
    "grade": ["low", "mid", "high"],
}
CASES = [
    ("cost ~ age * ward + poly(bmi, 2)", "gaussian", {"estimator": "statistics"}),
    ("days | rate(risk) ~ log(bmi) + (1 + age | site)", "negative_binomial", {}),
    ("grade ~ bs(bmi, df=5) + ward:age", "cumulative", {}),
    ("Surv(risk, ill) ~ 0 + ward + scale(bmi)", "weibull", {}),
    ("p(wins, n) ~ I(bmi > 30) + C(ward, Treatment('b'))", "binomial", {"link": "probit"}),
    ("ill ~ age + (1 | site:ward)", "bernoulli", {"clip": "auto"}),
]


def ordinary(rows=80):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            name: random.uniform(low, high, rows)
            for name, (low, high) in {
                "cost": (-10, 50),
                "age": (20, 90),
                "bmi": (15, 45),
                "risk": (1, 3),
            }.items()
        }
    )
    for name in ("ward", "site", "grade"):
        frame[name] = random.choice(SCHEMA[name], rows)
    wins = random.integers(0, 5, rows)
    return frame.assign(
        ill=random.random(rows) < 0.5, wins=wins, n=wins + 3, days=random.integers(0, 9, rows)
    )


def extreme(rows=80):
    """Constant columns, one class, one level, all that may be missing is, and all beyond the
    bounds.
    """
    return pd.DataFrame(
        {
            "cost": 1e9,
            "age": np.nan,
            "bmi": -1e300,
            "risk": 1e-9,
            "ward": "c",
            "site": "z",
            "grade": "high",
            "ill": True,
            "wins": 5000,
            "n": 5000,
            "days": 10**9,
        },
        index=range(rows),
    )


def left(frame, formula, family, options, folder):
    """All that a fit leaves behind, but for the time."""
    result = wb.fit(
        formula,
        frame,
        family=family,
        schema=SCHEMA,
        epsilon=2.0,
        seed=1,
        ledger=False,
        **grouped(
            evaluation=ordinary(5),
            checkpoint=False,
            **({} if "estimator" in options else {"iterations": 20}),
            **options,
        ),
    )
    result = dataclasses.replace(result, seconds=0.0, finished="then")
    result.save(folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".nc"}
    draws = {name: values.tobytes() for name, values in result.draws.items()}
    shown = [
        repr(result),
        str(result.coefficients()),
        str(result.effects(next(iter(result.data["schema"]))).table),
        result.posterior_note,
    ]
    return files, draws, shown


@pytest.mark.parametrize(("formula", "family", "options"), CASES)
def test_a_deaf_fit_leaves_the_same_whatever_all_records_are(formula, family, options, tmp_path):
    with deafness():
        here = left(ordinary(), formula, family, options, tmp_path / "here")
        there = left(extreme(), formula, family, options, tmp_path / "there")
    for one, other in zip(here[0].items(), there[0].items(), strict=True):
        assert one == other
    assert here[1:] == there[1:]


def test_a_fit_that_hears_leaves_something_else(tmp_path):
    """The test above can fail."""
    here, there = (
        left(frame, *CASES[0], tmp_path / str(place))
        for place, frame in enumerate((ordinary(), extreme()))
    )
    assert here[1] != there[1]
