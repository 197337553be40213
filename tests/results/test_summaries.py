"""Summaries of draws, against NumPy and ArviZ."""

import arviz
import numpy as np
import pytest

from workbench.results import arviz_adapter
from workbench.results.summaries import INTERVAL, KINDS, moments, summary

LABELS = ["age", "dose <mg>", "a, b [c]"]


@pytest.fixture(scope="module")
def table(draws):
    return summary(draws, {"weights": LABELS, "absent": ["x"]})


def test_summary_names_its_columns_after_the_interval(table):
    assert list(table.columns) == ["mean", "sd", "hdi_90%_low", "hdi_90%_high"]
    assert INTERVAL == 0.9


def test_summary_has_one_row_a_scalar(table):
    assert sorted(table.index) == sorted(["intercept", *(f"weights[{label}]" for label in LABELS)])


def test_numbers_are_not_rounded(table, draws):
    exact = draws["intercept"].mean(dtype=float)
    assert table.loc["intercept", "mean"] == pytest.approx(exact, rel=1e-5)
    assert table.loc["intercept", "mean"] != round(exact, 3)


def test_two_draws_are_enough_for_a_summary(draws):
    few = {name: value[:2] for name, value in draws.items()}
    table = summary(few, {"weights": LABELS})
    assert table.loc["intercept", "mean"] == pytest.approx(few["intercept"].mean(), rel=1e-5)


def test_it_is_what_arviz_says(draws, table):
    posterior = arviz_adapter.to_posterior(draws, {"weights": LABELS}, {})
    new = hasattr(arviz, "__version__") and int(arviz.__version__.split(".")[0]) >= 1
    options = {"ci_prob": 0.9, "ci_kind": "hdi"} if new else {"hdi_prob": 0.9}
    told = arviz.summary(posterior, kind="stats", round_to="none", **options).iloc[:, :4]
    assert list(told.index) == list(table.index)
    assert table.to_numpy() == pytest.approx(told.to_numpy(float), rel=1e-4)


def test_equal_tails_hold_equally_many_draws_below_and_above(draws):
    low, high = moments(draws["weights"], LABELS, 0.8, "eti").iloc[0, 2:]
    values = draws["weights"][:, 0]
    assert np.mean(values < low) == pytest.approx(0.1, abs=1e-3)
    assert np.mean(values > high) == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize(("interval", "kind"), [(0, "hdi"), (1.0, "hdi"), (0.9, "other")])
def test_what_is_no_interval_is_refused(draws, interval, kind):
    name = "interval" if kind in KINDS else "kind"
    with pytest.raises(ValueError, match=f"^{name}="):
        moments(draws["weights"], LABELS, interval, kind)
