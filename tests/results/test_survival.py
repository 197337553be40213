"""Survival curves from one release of joint counts."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.duration.survfunc import CumIncidenceRight, SurvfuncRight

import workbench as wb
from workbench import ArgumentError

pytestmark = pytest.mark.usefixtures("checked_models")

SCHEMA = {
    "years": wb.data.Numeric(0, 10, missing=True),
    "ended": ["none", "relapse", "death"],
    "arm": ["a", "b"],
    "woman": bool,
}
BINS = 20


def patients(size, seed=0):
    """In arm a relapses are twice as frequent."""
    random = np.random.default_rng(seed)
    arm = random.choice(["a", "b"], size)
    relapse = random.exponential(np.where(arm == "a", 4, 8))
    death, leaves = random.exponential(10, size), random.uniform(1, 14, size)
    years = np.minimum(np.minimum(relapse, death), leaves)
    ended = np.select([years == relapse, years == death], ["relapse", "death"], "none")
    years[random.random(size) < 0.05] = np.nan
    return pd.DataFrame(
        {"years": years, "ended": ended, "arm": arm, "woman": random.random(size) < 0.5}
    )


def fit(table, marginals, schema=SCHEMA, bins=BINS, **options):
    data = wb.data.from_frame(table, schema=schema, evaluation=False)
    execution = wb.Execution(progress=False, checkpoint=False)
    return wb.fit(
        wb.models.mixed_table(marginals, bins={"years": bins}),
        data,
        **{"epsilon": 50.0, "delta": 1e-5, "seed": 1, "ledger": False, **options},
        execution=execution,
    )


@pytest.fixture(scope="module")
def table():
    return patients(20_000)


@pytest.fixture(scope="module")
def fitted(table):
    """With hardly any noise, and columns in another order than they are asked for."""
    return fit(table, [("woman", "arm"), ("arm", "ended", "years")])


def at(curve, years, **levels):
    """Mean and deviation of the curve at some years."""
    rows = curve.table
    for name, level in levels.items():
        rows = rows.xs(level, level=name)
    return rows.loc[years, "mean"].to_numpy(), rows.loc[years, "sd"].to_numpy()


YEARS = [0.5, 2.0, 5.0, 8.0]


def test_survival_is_that_of_kaplan_and_meier(fitted, table):
    known = table.dropna()
    reference = SurvfuncRight(known["years"], known["ended"] != "none")
    steps = np.searchsorted(reference.surv_times, YEARS, side="right") - 1
    mean, sd = at(wb.survival(fitted, "years", "ended"), YEARS)
    np.testing.assert_allclose(mean, reference.surv_prob[steps], atol=0.004)
    np.testing.assert_allclose(sd, reference.surv_prob_se[steps], rtol=0.25)


def test_incidences_are_those_of_aalen_and_johansen(fitted, table):
    known = table.dropna()
    codes = known["ended"].map({"none": 0, "relapse": 1, "death": 2})
    for arm in "ab":
        rows = known["arm"] == arm
        reference = CumIncidenceRight(known["years"][rows], codes[rows])
        steps = np.searchsorted(reference.times, YEARS, side="right") - 1
        for number, cause in enumerate(["relapse", "death"]):
            curve = wb.survival(fitted, "years", "ended", by="arm", cause=cause)
            mean, sd = at(curve, YEARS, arm=arm)
            np.testing.assert_allclose(mean, reference.cinc[number][steps], atol=0.006)
            np.testing.assert_allclose(sd, reference.cinc_se[number][steps], rtol=0.3)


def test_survival_and_incidences_add_up_to_one(fitted):
    curves = [
        wb.survival(fitted, "years", "ended", by="arm", cause=cause).draws
        for cause in (None, "relapse", "death")
    ]
    np.testing.assert_allclose(sum(curves), 1, atol=1e-5)


def test_a_group_of_few_has_a_caution_by_name():
    table = patients(1000).drop(columns="woman")
    table["arm"] = np.where(np.arange(1000) < 20, "b", "a")
    schema = {name: SCHEMA[name] for name in table}
    result = fit(table, [("arm", "ended", "years")], schema, bins=10, epsilon=1.0)
    (caution,) = result.cautions
    assert "too few records are in the cells of" in caution
    assert "arm x ended x years with arm = b" in caution
    assert "ended = none" not in caution
    assert caution in repr(wb.survival(result, "years", "ended"))


def test_the_last_bin_is_left_out_as_longer_times_were_cut_to_it(fitted):
    curve = wb.survival(fitted, "years", "ended")
    assert curve.values == pytest.approx(np.arange(1, BINS) * 10 / BINS)
    assert curve.start == (0.0, 1.0)


def test_curves_show_themselves_with_their_label(fitted):
    curve = wb.survival(fitted, "years", "ended", by="arm")
    assert repr(curve).endswith("Survival without ended (covered).")
    axes = curve.plot().axes[0]
    assert axes.lines[0].get_xydata()[0].tolist() == [0.0, 1.0]
    assert axes.get_ylabel() == "survival without ended"
    one = wb.survival(fitted, "years", "ended", cause="death")
    assert one.plot().axes[0].lines[0].get_xydata()[0].tolist() == [0.0, 0.0]


def test_whole_numbers_have_a_value_after_the_last_one_of_each_bin():
    random = np.random.default_rng(0)
    months = pd.DataFrame({"months": random.integers(0, 20, 4000), "died": True})
    data = wb.data.from_frame(
        months, schema={"months": (0, 20, int), "died": bool}, evaluation=False
    )
    result = wb.fit(
        wb.models.mixed_table([("months", "died")], bins=7),
        data,
        epsilon=50.0,
        delta=1e-5,
        ledger=False,
        seed=1,
    )
    curve = wb.survival(result, "months", "died")
    assert curve.values == (2.0, 5.0, 8.0, 11.0, 14.0, 17.0)
    expected = [(months["months"] > end).mean() for end in curve.values]
    np.testing.assert_allclose(curve.table["mean"], expected, atol=0.005)


def test_whoever_has_no_declared_event_is_left_out():
    table = patients(4000).drop(columns=["arm", "woman"])
    known = np.random.default_rng(1).random(4000) < 0.7
    hidden = table.assign(ended=table["ended"].where(known, None))
    schema = {
        "years": SCHEMA["years"],
        "ended": wb.data.Categorical(("none", "relapse", "death"), other=True),
    }
    result = fit(hidden, [("ended", "years")], schema)
    curve = wb.survival(result, "years", "ended")
    seen = table[known].dropna()
    reference = SurvfuncRight(seen["years"], seen["ended"] != "none")
    steps = np.searchsorted(reference.surv_times, YEARS, side="right") - 1
    mean, sd = at(curve, YEARS)
    assert np.all(np.abs(mean - reference.surv_prob[steps]) < 1.5 * sd)
    with pytest.raises(ArgumentError, match=r"^cause='\(other\)'"):
        wb.survival(result, "years", "ended", cause="(other)")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("year", "ended"), {}, "^time='year': unknown name; did you mean 'years'"),
        (("ended", "ended"), {}, "^time='ended': must be a column of numbers"),
        (("years", "years"), {}, "^event='years': must be a column of levels"),
        (("years", "ended"), {"by": "woman"}, r"^by='woman'.*marginal.*Fit mixed_table"),
        (("years", "woman"), {}, "^event='woman': is in no marginal with years"),
        (("years", "ended"), {"cause": "none"}, "^cause='none'"),
        (("years", "ended"), {"by": "ended"}, "^by='ended': must be another column"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(fitted, arguments, options, words):
    with pytest.raises(ArgumentError, match=words):
        wb.survival(fitted, *arguments, **options)


def test_other_models_are_refused(done):
    with pytest.raises(ArgumentError, match=r"^model='logistic'.*mixed_table"):
        wb.survival(done, "mean radius", "diagnosis")
