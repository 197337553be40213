"""``evaluate``: what it releases about private records, and what it spends."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

import workbench as wb
from tests import fakes
from workbench.fitting import evaluating
from workbench.ledger.ledger import CapError, Ledger
from workbench.models import covered_scores, estimates
from workbench.models.outcomes import YesOrNo
from workbench.privacy.guarantee import Guarantee, check_epsilon

SCHEMA = {"dose": (0, 200), "age": (0, 100), "ill": bool, "stay": (0, 40)}
EPSILON = {"epsilon": 1.0, "delta": 1e-4}


def made(size, seed):
    random = np.random.default_rng(seed)
    dose, age = random.uniform(0, 200, size), random.uniform(0, 100, size)
    ill = random.random(size) < 1 / (1 + np.exp((dose - 100) / 20))
    stay = np.clip(10 + age / 10 + random.normal(0, 3, size), 0, 40)
    return pd.DataFrame({"dose": dose, "age": age, "ill": ill, "stay": stay})


@pytest.fixture(scope="module")
def fits():
    """Of a response of yes or no and of a number, by formula."""
    frame, more = made(4000, 1), {"schema": SCHEMA, "epsilon": 8.0, "ledger": False}
    yes_or_no = {"family": "bernoulli", "iterations": 300, "privacy": wb.Privacy(look=0.0), **more}
    sums = {"training": wb.Training(estimator="statistics"), **more}
    with fakes.installed():
        other = wb.fit("ill ~ age", frame, **yes_or_no)
    return {
        "stay ~ age": wb.fit("stay ~ age", frame, **sums),
        "ill ~ dose": wb.fit("ill ~ dose", frame, **yes_or_no),
        "ill ~ age": other,
    }


@pytest.fixture(scope="module")
def new():
    return made(3000, 2)


@pytest.fixture
def exact(monkeypatch):
    """Releases without noise, as vectors in spacings, in the order in which they are made."""
    released = []

    def without_noise(counts, per_record, key):
        released.append(np.asarray(counts, np.float64))
        return counts / per_record

    for module in (covered_scores, estimates):
        monkeypatch.setattr(module, "with_noise", without_noise)
    return released


def test_scores_are_covered_and_have_intervals(fits, new):
    evaluation = wb.evaluate(fits["ill ~ dose"], new, **EPSILON)
    assert evaluation.metrics_label == "covered"
    assert set(evaluation.metrics) == set(YesOrNo().scores)
    for name, (low, high) in evaluation.metric_intervals.items():
        assert low <= evaluation.metrics[name] <= high
    assert evaluation.metrics["auc"] > 0.85
    guarantee = evaluation.guarantee
    check_epsilon(guarantee)
    assert (guarantee.epsilon, guarantee.delta, guarantee.released) == (1.0, 1e-4, "scores")
    assert guarantee.num_records == len(new)
    assert Guarantee.from_dict(guarantee.to_dict()) == guarantee
    assert "a single release, of scores of a fit" in guarantee.statement()
    assert "epsilon 1" in repr(evaluation)
    assert "auc" in evaluation._repr_html_()


def test_what_is_released_is_what_the_records_say(fits, new, exact):
    result = fits["stay ~ age"]
    evaluation = wb.evaluate(result, new, **EPSILON)
    errors = new["stay"] - result.predict(new)
    assert evaluation.metrics["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.01)
    assert evaluation.metrics["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=0.01)
    truth = np.log(3 * math.sqrt(2 * math.pi)) + 0.5
    assert evaluation.metrics["log_likelihood"] == pytest.approx(-truth, abs=0.1)


def test_ranks_are_even_where_the_model_is_right_and_not_where_it_is_not(fits, new):
    predictor = fits["stay ~ age"].predictor
    records = predictor.model.view(evaluating._declared(fits["stay ~ age"]).dataset(new)).train
    words = np.random.default_rng(0).integers(0, 2**32, (len(records[0]), 2), np.uint32)
    ranks = predictor.ranks(records, words)
    assert (ranks > 0).all()
    assert (ranks < 1).all()
    fewer = predictor.ranks(tuple(array[:100] for array in records), words[:100])
    np.testing.assert_array_equal(ranks[:100], fewer)
    assert chisquare(np.histogram(ranks, 10, (0, 1))[0]).pvalue > 1e-4
    *inputs, stay = records
    wider = predictor.ranks((*inputs, 2 * stay - stay.mean()), words)
    assert chisquare(np.histogram(wider, 10, (0, 1))[0]).pvalue < 1e-9


@pytest.mark.parametrize("against", [None, "ill ~ age"])
def test_a_record_more_moves_the_release_by_at_most_its_distance(against, fits, new, exact):
    """The noise is sigma times that; of a response of yes or no, nothing is drawn."""
    other = fits.get(against)
    sizes = [len(new), len(new) - 1]
    guarantees = [
        wb.evaluate(
            fits["ill ~ dose"], new[:size], against=other, ledger=False, **EPSILON
        ).guarantee
        for size in sizes
    ]
    moved = np.linalg.norm(exact[0] - exact[1])
    sigma = min(guarantee.noise_multiplier for guarantee in guarantees)
    assert 0 < moved <= 2**21 / sigma
    expected = math.sqrt(3 if against else 2)
    assert guarantees[0].clip == pytest.approx(expected)


def test_the_difference_of_two_fits(fits, new):
    better, worse = fits["ill ~ dose"], fits["ill ~ age"]
    one, other = (
        wb.evaluate(*pair[:1], new, against=pair[1], ledger=False, seed=1, **EPSILON)
        for pair in ((better, worse), (worse, better))
    )
    (name,) = one.metrics
    low, high = one.metric_intervals[name]
    assert 0.1 < low < one.metrics[name] < high < 1
    assert other.metrics[name] < -0.1
    same = wb.evaluate(better, new, against=better, ledger=False, seed=1, **EPSILON)
    low, high = same.metric_intervals[name]
    assert low <= 0 <= high
    assert high - low < 0.2
    with pytest.raises(wb.ArgumentError, match="yes or no"):
        same.plot()


def test_the_ledger_adds_evaluations_up(fits, new, private_data):
    wb.evaluate(fits["ill ~ dose"], new, **EPSILON)
    wb.evaluate(fits["ill ~ dose"], new, against=fits["ill ~ age"], **EPSILON)
    first, second = Ledger().spends()
    assert first.dataset == second.dataset
    assert first.model == "evaluation"
    assert 1 < Ledger().budget_status(first.dataset).total.epsilon < 2
    Ledger().set_cap(first.dataset, epsilon=1.6, delta=1e-3, why="test")
    with pytest.raises(CapError):
        wb.evaluate(fits["ill ~ dose"], new, **EPSILON)
    assert len(Ledger().spends()) == 2


def test_rows_of_a_person_count_as_one(fits, new, exact):
    persons = new.assign(person=np.arange(len(new)) // 3)
    options = {"unit_id": "person", "max_rows": 3, "ledger": False, **EPSILON}
    evaluation = wb.evaluate(fits["stay ~ age"], persons, **options)
    assert evaluation.guarantee.num_records == len(new) // 3
    assert (evaluation.guarantee.unit, evaluation.guarantee.max_rows) == ("person", 3)
    assert exact[0][0] == len(new) // 3 * (exact[0][0] // (len(new) // 3))


@pytest.mark.usefixtures("made_up_steps")
def test_a_loaded_result_and_a_data_set_are_taken(fits, new, private_data, tmp_path, quick_report):
    result = wb.fit("logistic", private_data, epsilon=1.0, iterations=50)
    loaded = wb.load(result.save(tmp_path / "saved"))
    evaluation = wb.evaluate(loaded, private_data, epsilon=1.0)
    assert evaluation.guarantee.num_records == private_data.num_evaluation
    assert len({row.dataset for row in Ledger().spends()}) == 1
    figure = evaluation.plot()
    assert "covered" in figure.texts[-1].get_text() or figure.texts


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("result", {"result": "ill ~ dose"}),
        ("against", {"against": 1}),
        ("epsilon", {"epsilon": 0}),
        ("unit_id", {"unit_id": "person", "data": "private"}),
        ("data", {"data": "breast_cancer"}),
        ("data", {"data": 3}),
    ],
)
def test_what_cannot_be_evaluated_is_named(argument, change, fits, new, private_data):
    arguments = {"result": fits["ill ~ dose"], "data": new, **EPSILON, **change}
    if change.get("data") == "private":
        arguments["data"] = private_data
    with pytest.raises(wb.ArgumentError) as refused:
        wb.evaluate(arguments.pop("result"), arguments.pop("data"), **arguments)
    assert refused.value.argument == argument
    assert not Ledger().spends()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"against": "stay ~ age"}, "against.*explains another response"),
        ({"data": made(1, 1)}, "data.*too few rows"),
        ({"data": made(20, 1).drop(columns="dose")}, "data.*no column 'dose'"),
        ({"data": made(20, 1).drop(columns="ill")}, "data.*'ill'"),
    ],
)
def test_errors_name_what_was_given(change, words, fits, new):
    arguments = {"result": fits["ill ~ dose"], "data": new, **EPSILON, **change}
    arguments["against"] = fits.get(arguments.get("against"))
    with pytest.raises(wb.ArgumentError, match=words):
        wb.evaluate(arguments.pop("result"), arguments.pop("data"), **arguments)
    assert not Ledger().spends()


def test_fits_with_other_bounds_are_not_compared(fits, new):
    """The table would be cut to those of one, and the other would look worse for it."""
    narrow = {**SCHEMA, "age": (0, 30)}
    sums = {"training": wb.Training(estimator="statistics"), "ledger": False, "epsilon": 8.0}
    with fakes.installed():
        other = wb.fit("stay ~ dose + age", made(400, 3), schema=narrow, **sums)
    for pair in ((other, fits["stay ~ age"]), (fits["stay ~ age"], other)):
        with pytest.raises(wb.ArgumentError, match=r"against.*with age in") as refused:
            wb.evaluate(pair[0], new, against=pair[1], **EPSILON)
        assert refused.value.argument == "against"


def test_records_are_encoded_as_the_fit_had_them(exact):
    """With other reference levels they are refused; with other bounds they are scaled anew."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": random.uniform(0, 10, 600), "ward": random.choice(list("ab"), 600)}
    )
    frame["ill"] = random.random(600) < frame["age"] / 10
    columns = wb.data.schema.Categorical

    def data(reference="a", high=10, **more):
        ward = columns(("a", "b"), reference=reference)
        schema = {"age": (0, high), "ward": ward}
        more |= {"evaluation": frame[450:]}
        return wb.data.from_frame(frame[:450], target="ill", schema=schema, **more)

    more, records = {"iterations": 300, "ledger": False}, data(evaluation_is_public=True)
    result = wb.fit("logistic", records, epsilon=8.0, **more)
    same, scaled = (
        wb.evaluate(result, data(high=high), ledger=False, **EPSILON).metrics for high in (10, 20)
    )
    assert same == pytest.approx(scaled, abs=1e-6)
    # of the records as the fit's data set has them, binned as scores are: exact AUC moves within a
    # bin by as much as .015 from fit to fit
    said, _ = result.predictor.by_record(YesOrNo())(tuple(map(np.asarray, records.evaluation)))
    bins, ill = np.digitize(np.log(said / (1 - said)), covered_scores.EDGES), frame["ill"][450:]
    above = bins[ill][:, None] - bins[~ill]
    within = 0.5 + np.pad(np.diff(covered_scores.EDGES), 1)[bins[ill]][:, None] / 12
    wanted = np.mean((above > 0) + (above == 0) * within)
    assert same["auc"] == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(wb.ArgumentError, match="reference levels"):
        wb.evaluate(result, data("b"), **EPSILON)
    other = wb.data.from_frame(
        frame.rename(columns={"age": "dose"}),
        target="ill",
        schema={"dose": (0, 10), "ward": columns(("a", "b"), reference="a")},
    )
    with pytest.raises(wb.ArgumentError, match="has the columns dose"):
        wb.evaluate(result, other, **EPSILON)
    assert not Ledger().spends()


@pytest.mark.usefixtures("made_up_steps")
def test_models_without_such_scores_are_refused(private_data):
    result = wb.fit("gmm", private_data, epsilon=1.0, iterations=20, ledger=False)
    with pytest.raises(wb.ArgumentError, match="no scores"):
        wb.evaluate(result, private_data, epsilon=1.0)
    logistic = wb.fit("logistic", private_data, epsilon=1.0, iterations=20, ledger=False)
    with pytest.raises(wb.ArgumentError, match="formula"):
        wb.evaluate(logistic, made(50, 1), epsilon=1.0)
    with pytest.raises(wb.ArgumentError, match="no evaluation records"):
        wb.evaluate(
            logistic,
            dataclasses.replace(private_data, evaluation=(np.zeros((0, 2)), np.zeros(0))),
            epsilon=1.0,
        )
    public = dataclasses.replace(private_data, evaluation_is_public=True)
    with pytest.raises(wb.ArgumentError, match="exact scores"):
        wb.evaluate(logistic, public, epsilon=1.0)
    assert not Ledger().spends()
