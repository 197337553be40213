"""Scores of private evaluation records that a fit releases through noise."""

import dataclasses

import numpy as np
import pytest

import workbench as wb
from tests.conftest import PRIVATE_BOUNDS, some_of
from workbench.fitting import ScoreWarning, fits
from workbench.fitting.scoring import scores_ahead
from workbench.ledger.composition import total
from workbench.ledger.ledger import Ledger
from workbench.models import outcomes
from workbench.models.outcomes import Predicted, YesOrNo
from workbench.noise.chacha20 import key_from_seed
from workbench.privacy.chosen import Scored
from workbench.privacy.guarantee import Guarantee, check_epsilon

COVERED = {"privacy": wb.Privacy(covered_scores=True), "epsilon": 1.0, "iterations": 40}

pytestmark = pytest.mark.usefixtures("made_up_steps")


def test_scores_are_covered_and_have_intervals(private_data):
    result = wb.fit("logistic", private_data, **COVERED)
    assert result.metrics_label == result.labels["metrics"] == "covered"
    assert set(result.metrics) == set(YesOrNo().scores)
    for name, (low, high) in result.metric_intervals.items():
        assert low <= result.metrics[name] <= high
    assert result.history == ()
    plain = wb.fit("logistic", private_data, epsilon=1.0, iterations=40)
    assert plain.metrics == {}
    # fit and scores are of other records: none of them has more noise than alone
    assert result.guarantee.noise_multiplier == plain.guarantee.noise_multiplier
    assert result.guarantee.epsilon == plain.guarantee.epsilon == 1.0


def test_the_noise_of_scores_is_the_least_that_keeps_epsilon(private_data):
    guarantee = wb.fit("logistic", private_data, **COVERED).guarantee
    check_epsilon(guarantee)
    delta = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    alone = {"sampling_rate": 1.0, "steps": 1, "delta": delta}
    spent = wb.privacy.epsilon(noise_multiplier=guarantee.score_noise, **alone)
    assert 0.999 < spent <= 1
    with pytest.raises(ValueError, match="epsilon"):
        check_epsilon(dataclasses.replace(guarantee, score_noise=0.98 * guarantee.score_noise))


@pytest.mark.parametrize("epsilon", [0.1, 3.7, 20.0])
def test_files_have_the_epsilon_of_scores_too(epsilon, private_data):
    """Of a large one, steps spend less than was asked for, and scores do not."""
    guarantee = wb.fit("logistic", private_data, **{**COVERED, "epsilon": epsilon}).guarantee
    check_epsilon(guarantee)
    assert guarantee.epsilon_taken == guarantee.epsilon


def test_the_ledger_and_files_know_of_them(private_data, tmp_path, quick_report):
    result = wb.fit("logistic", private_data, **COVERED)
    (row,) = Ledger().spends()
    assert isinstance(row.guarantee, Scored)
    assert row.guarantee.score_noise == result.guarantee.score_noise
    assert Guarantee.from_dict(result.guarantee.to_dict()) == result.guarantee
    result.save(tmp_path / "saved")
    loaded = wb.load(tmp_path / "saved")
    assert loaded.metric_intervals == result.metric_intervals
    assert loaded.guarantee == result.guarantee
    assert "scores of private records that no step reads" in loaded.guarantee.statement()
    plain = dataclasses.replace(result.guarantee, epsilon=1.0)
    assert 1 < total([result.guarantee, plain]).epsilon < 2


def test_a_run_releases_them_once(private_data, monkeypatch):
    released = []
    release = outcomes.covered_scores

    def noted(*arguments, **more):
        released.append(more)
        return release(*arguments, **more)

    monkeypatch.setattr(outcomes, "covered_scores", noted)
    prepared = fits.prepare("logistic", private_data, **COVERED)
    list(prepared.run())
    results = [prepared.result(), prepared.result(), prepared.result(last_iterate=True)]
    assert results[0].metrics == results[1].metrics != {}
    assert results[2].metrics == {}  # other parameters, for which there is no noise of their own
    assert len(released) == 1
    again = prepared.again()
    list(again.run())
    assert again.result().metrics != results[0].metrics


def test_a_stopped_fit_has_none_until_it_ends(private_data, tmp_path):
    stop = wb.Execution(stop=lambda: True, checkpoint=tmp_path / "run")
    stopped = wb.fit("logistic", private_data, execution=stop, **COVERED)
    assert stopped.metrics == {}
    assert stopped.guarantee.epsilon_taken <= 1
    resumed = wb.resume(tmp_path / "run", data=private_data)
    assert resumed.metrics_label == "covered"
    assert set(resumed.metrics) == set(YesOrNo().scores)


def test_a_formula_holds_rows_out_for_them(private_frame):
    schema = {"dose": (0, 200), "age": (0, 100), "ill": bool}
    formula = {"schema": schema, "family": "bernoulli"}
    result = wb.fit("ill ~ dose + age", private_frame, **formula, **COVERED)
    assert result.metrics_label == "covered"
    assert result.guarantee.num_records < len(private_frame)


def test_an_evaluation_record_moves_its_own_counts_alone(private_data, monkeypatch):
    """Without noise, the counts of the same release differ by that record."""
    made = {}

    def counts(target, probability, key, **more):
        made[len(target)] = np.stack([target, np.round(probability, 9)])
        return scoring_covered(target, probability, key, **more)

    scoring_covered = outcomes.covered_scores
    monkeypatch.setattr(outcomes, "covered_scores", counts)
    fewer = dataclasses.replace(
        private_data, evaluation=tuple(array[:-1] for array in private_data.evaluation)
    )
    for data in (private_data, fewer):
        wb.fit("logistic", data, seed=1, ledger=False, **COVERED)
    most = max(made)
    assert set(made) == {most, most - 1}


def test_a_warning_says_before_the_fit_that_noise_will_hide_them(private_data, capsys):
    with pytest.warns(ScoreWarning, match="fewer than about 450 held-out records; for AUC about"):
        wb.fit("logistic", private_data, delta=1e-5, **COVERED)
    said, about_scales = fits.prepare("logistic", private_data, delta=1e-5, **COVERED).cautions
    assert "to learn how columns are spread" in about_scales
    assert "450" in said
    assert scores_ahead(YesOrNo(), 3.73, 6_000) == ()  # a fifth held out is enough
    assert scores_ahead(YesOrNo(), 3.73, 5_000) != ()


@pytest.mark.parametrize(("score", "size"), some_of([("log_likelihood", 450), ("auc", 1300)]))
def test_at_the_size_that_it_names_noise_is_about_twice_the_sampling_error(score, size):
    random = np.random.default_rng(0)

    def released(rows, seed, sigma):
        predicted = Predicted(target[rows], probability[rows], None)
        return YesOrNo().release(predicted, key_from_seed(seed), sigma).scores[score].value

    odds = random.normal(-1, 1.3, 200_000)
    probability = 1 / (1 + np.exp(-odds))
    target = (random.random(len(odds)) < probability).astype(int)
    draws = [random.integers(0, len(odds), size) for _ in range(150)]
    noise = np.std([released(draws[0], seed, 3.73) for seed in range(150)])
    sampling = np.std([released(rows, 0, 0.1) for rows in draws])
    assert 1.4 < noise / sampling < 2.8


@pytest.mark.parametrize(
    ("argument", "change", "more"),
    [
        ("covered_scores", {"evaluation_is_public": True}, {}),
        ("sampler", {}, {"privacy": wb.Privacy(covered_scores=True, sampler="shuffle")}),
        ("data", {"evaluation_fraction": 0.0}, {}),
    ],
)
def test_what_has_no_such_scores_is_refused(argument, change, more, private_frame):
    data = wb.data.from_frame(private_frame, target="ill", bounds=PRIVATE_BOUNDS, **change)
    with pytest.raises(wb.ArgumentError) as refused:
        wb.fit("logistic", data, **{**COVERED, **more})
    assert refused.value.argument == argument
    assert not Ledger().spends()


FORMULAS = {
    "gaussian": ("dose ~ age", {"log_likelihood", "rmse", "mae"}),
    "student_t": ("dose ~ age", {"log_likelihood", "rmse", "mae"}),
    "poisson": ("visits ~ age", {"log_likelihood", "rmse", "mae"}),
    "categorical": ("stage ~ age", {"log_likelihood", "accuracy"}),
    "weibull": ("stay ~ age", {"log_likelihood"}),
}


@pytest.mark.parametrize("family", some_of(list(FORMULAS), 3))
def test_other_outcomes_have_scores_of_their_own(family, private_frame):
    random = np.random.default_rng(0)
    frame = private_frame.assign(
        visits=random.poisson(3, len(private_frame)),
        stage=random.choice(["I", "II", "III"], len(private_frame)),
        stay=random.exponential(5, len(private_frame)) + 0.1,
        person=np.arange(len(private_frame)) // 2,
    )
    schema = {"dose": (0, 200), "age": (0, 100), "visits": (0, 50)}
    schema |= {"stage": ["I", "II", "III"], "stay": (0.1, 60.0)}
    formula, scores = FORMULAS[family]
    used = {name: of_column for name, of_column in schema.items() if name in formula}
    for table in (wb.Table(), wb.Table(unit_id="person", max_rows=2)):
        request = {"family": family, "schema": used, "table": table, "ledger": False}
        result = wb.fit(formula, frame, **request, **COVERED)
        assert set(result.metrics) == set(result.metric_intervals) == scores
        assert result.metrics_label == "covered"
        for name, (low, high) in result.metric_intervals.items():
            assert low <= result.metrics[name] <= high


def test_a_score_of_the_other_kind_is_no_comparison(private_frame):
    request = {"schema": {"dose": (0, 200), "age": (0, 100)}, "epsilon": 1.0, "runs": 3}
    with pytest.raises(wb.ArgumentError, match="has log_likelihood, rmse, mae") as refused:
        wb.choose(["dose ~ age"], private_frame, by="auc", iterations=40, **request)
    assert (refused.value.argument, refused.value.value) == ("by", "auc")
    assert not Ledger().spends()
    result = wb.choose(["dose ~ age"], private_frame, by="rmse", iterations=40, **request)
    assert set(result.metrics) == {"log_likelihood", "rmse", "mae"}


def test_models_without_such_scores_are_refused(private_data):
    with pytest.raises(wb.ArgumentError, match="no scores"):
        wb.fit("gmm", private_data, **COVERED)
    with pytest.raises(wb.ArgumentError, match="no scores"):
        wb.sweep("gmm", private_data, epsilons=[1], privacy=COVERED["privacy"])
    with pytest.raises(wb.ArgumentError, match="covered_scores"):
        wb.choose(["logistic"], private_data, **COVERED)
