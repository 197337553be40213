"""One answer from those of many twins."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import workbench as wb
from workbench import ArgumentError
from workbench.results.combining import CombineWarning


def answers(random, sets, posterior, sampling, width=1):
    """Estimates of sets whose parameters have the variance ``posterior`` around 0."""
    drawn = random.normal(size=(sets, width)) * np.sqrt(posterior + sampling)
    return drawn, np.tile(sampling * np.eye(width), (sets, 1, 1))


def test_without_sampling_it_is_students_t():
    estimates, _ = answers(np.random.default_rng(0), 12, 1.0, 0.0, width=2)
    table = wb.combine(estimates, np.zeros((12, 2, 2)), interval=0.9)
    half = stats.t.ppf(0.95, 11) * np.sqrt(13 / 12 * estimates.var(axis=0, ddof=1))
    assert table["estimate"].to_numpy() == pytest.approx(estimates.mean(axis=0))
    assert table["90%_low"].to_numpy() == pytest.approx(estimates.mean(axis=0) - half, rel=2e-3)
    assert table["90%_high"].to_numpy() == pytest.approx(estimates.mean(axis=0) + half, rel=2e-3)


def test_with_many_sets_the_variance_is_that_between_less_that_within():
    estimates, covariances = answers(np.random.default_rng(1), 4000, 3.0, 1.0)
    table = wb.combine(estimates, covariances).iloc[0]
    expected = np.sqrt(4001 / 4000 * estimates.var(ddof=1) - 1.0)
    assert table["se"] == pytest.approx(expected, rel=1e-3)
    assert table["95%_high"] - table["95%_low"] == pytest.approx(2 * 1.96 * expected, rel=2e-3)


@pytest.mark.parametrize("sets", [2, 3, 5, 30])
def test_its_distribution_is_the_truncated_one_by_integration(sets):
    estimates, _ = answers(np.random.default_rng(sets), sets, 1.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CombineWarning)
        table = wb.combine(estimates, np.full((sets, 1, 1), 0.5), interval=0.8).iloc[0]
    squares = np.square(estimates - estimates.mean()).sum()
    between = np.geomspace(0.5, 1e9, 400_001)  # density of B, proportional to B^-(m + 1) / 2 ...
    log = -(sets + 1) / 2 * np.log(between) - squares / 2 / between + np.log(between)
    weights = np.exp(log - log.max())
    variance = (1 + 1 / sets) * between - 0.5
    above = stats.norm.sf((table["80%_high"] - estimates.mean()) / np.sqrt(variance))
    assert np.sum(weights * above) / weights.sum() == pytest.approx(0.1, abs=2e-3)


def test_estimates_that_differ_less_than_sampling_does_still_have_an_interval():
    with pytest.warns(CombineWarning, match=r"valid\. Draw more sets"):
        table = wb.combine([2.01, 2, 2, 2, 2], [1.0] * 5)
    assert table["se"].iloc[0] > 0
    assert np.isfinite(table.to_numpy()).all()


def test_a_mixture_has_the_quantiles_of_its_normals():
    means, variances = np.arange(40.0), np.full(40, 0.25)
    table = wb.combine(means, variances, rule="mixture").iloc[0]
    share = stats.norm.cdf((table["95%_low"] - means) / 0.5).mean()
    assert share == pytest.approx(0.025, abs=1e-6)
    assert table["se"] == pytest.approx(np.sqrt(0.25 + means.var()))


def test_few_sets_are_warned_of_and_enough_are_not():
    random = np.random.default_rng(0)
    with pytest.warns(CombineWarning, match=r"4 sets of this size are few"):
        wb.combine(*answers(random, 4, 1.0, 0.01))
    with pytest.warns(CombineWarning, match=r"mixture of 10 sets is too narrow"):
        wb.combine(*answers(random, 10, 1.0, 0.01), rule="mixture")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.combine(*answers(random, 30, 1.0, 0.1))


def fitted(params, covariance):
    return SimpleNamespace(params=params, cov_params=lambda: covariance)


def test_results_of_statsmodels_keep_their_names():
    import statsmodels.api as sm

    random, results = np.random.default_rng(3), []
    for _ in range(20):
        frame = pd.DataFrame({"const": 1.0, "age": random.normal(size=4000)})
        y = random.normal(2) * frame["age"] + random.normal() + random.normal(size=4000)
        results.append(sm.OLS(y, frame).fit())
    table = wb.combine(results)
    assert list(table.index) == ["const", "age"]
    arrays = wb.combine(
        [made.params for made in results], [made.cov_params().to_numpy() for made in results]
    )
    assert table.equals(arrays)


@pytest.mark.parametrize(
    ("given", "covariances", "words"),
    [
        ("answers", None, r"^estimates='str': must be a list"),
        ([[1.0]], [[[1.0]]], r"^estimates=1: is the number of sets"),
        ([1.0, 2.0], None, r"^estimates\[0\]='float': has no params"),
        ([1.0, 2.0], [1.0], r"^covariances=1: is the number of covariances.*2 sets"),
        ([1.0, np.nan], [1.0, 1.0], r"^estimates\[1\]=.*analysis of this set failed"),
        ([1.0, 2.0], [1.0, -1.0], r"^covariances\[1\]=.*variance below 0"),
        ([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 2, r"^covariances\[0\]=.*must be 2 x 2 numbers"),
        ([[], []], [[], []], r"^estimates=0: has no estimate"),
    ],
)
def test_what_cannot_be_combined_is_named(given, covariances, words):
    with pytest.raises(ArgumentError, match=words):
        wb.combine(given, covariances)


def test_a_level_that_a_set_lacks_is_named():
    first = fitted(pd.Series({"a": 1.0, "ward[b]": 2.0}), np.eye(2))
    second = fitted(pd.Series({"a": 1.0}), np.eye(1))
    with pytest.raises(ArgumentError, match=r"^estimates\[1\]=1:.*ward\[b\].*level may be missing"):
        wb.combine([first, second])


@pytest.mark.statistical
@pytest.mark.parametrize("rows", [1, 10])  # times N
@pytest.mark.parametrize("noise", [0.0, 3.0])  # variance of the posterior's noise, in sampling's
def test_intervals_hold_the_truth_at_any_size_of_the_sets(rows, noise):
    """4000 answers: .95 +- .015, four standard errors; the rule W + B / m has .69 at (1, 3)."""
    random, inside = np.random.default_rng(5), []
    posterior, sampling = 1 + noise, 1 / rows
    for _ in range(200):
        middles = random.normal(size=20) * np.sqrt(posterior)
        estimates = middles + random.normal(size=(30, 20)) * np.sqrt(posterior + sampling)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombineWarning)
            table = wb.combine(estimates, np.tile(sampling * np.eye(20), (30, 1, 1)))
        inside.append((table["95%_low"] <= 0) & (table["95%_high"] >= 0))
    assert abs(np.mean(inside) - 0.95) < 0.015
