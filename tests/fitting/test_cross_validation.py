"""``cross_validate``: which records each fit reads, and what all of it spends."""

import dataclasses

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

import workbench as wb
from tests.conftest import PRIVATE_BOUNDS
from workbench.fitting import fits
from workbench.fitting.cross_validation import CrossValidationStopped
from workbench.ledger.ledger import CapError, Ledger
from workbench.models import outcomes
from workbench.privacy.cross_validated import CrossValidated
from workbench.privacy.guarantee import Guarantee, check_epsilon

FAST = {"epsilon": 1.0, "iterations": 20, "folds": 4}
SCHEMA = {"dose": (0, 200), "age": (0, 100), "ill": bool}

pytestmark = pytest.mark.usefixtures("made_up_steps")


@pytest.fixture
def begun(monkeypatch):
    """The fits of a cross-validation, as (spec, plan)."""
    made = []
    begin = fits.begun

    def noted(request, spec, plan, key, *more):
        made.append((spec, plan))
        return begin(request, spec, plan, key, *more)

    monkeypatch.setattr(fits, "begun", noted)
    return made


def rows(arrays):
    return [
        tuple(np.concatenate([np.ravel(part) for part in row])) for row in zip(*arrays, strict=True)
    ]


def test_every_record_is_scored_by_the_one_fit_that_did_not_read_it(private_data, begun):
    wb.cross_validate("logistic", private_data, **FAST)
    assert len(begun) == 4
    everybody = sorted(rows(private_data.train))
    scored = []
    for spec, _ in begun:
        read, held_out = rows(spec.data.train), rows(spec.data.evaluation)
        assert sorted([*read, *held_out]) == everybody
        scored += held_out
    assert sorted(scored) == everybody


def test_a_record_moves_no_other_to_another_fold(private_data, begun):
    fewer = dataclasses.replace(private_data, train=tuple(a[1:] for a in private_data.train))
    for data in (private_data, fewer):
        wb.cross_validate("logistic", data, ledger=False, **FAST)
    for (whole, _), (less, _) in zip(begun[:4], begun[4:], strict=True):
        extra = set(rows(whole.data.evaluation)) - set(rows(less.data.evaluation))
        assert len(extra) <= 1
        assert set(rows(less.data.evaluation)) <= set(rows(whole.data.evaluation))
        assert whole.privacy.sampling_rate == less.privacy.sampling_rate


def test_all_steps_and_scores_keep_one_promise(private_data, begun, monkeypatch):
    """By dp-accounting: of a record, the steps of all fits but one and the scores."""
    noises = []
    release = outcomes.covered_scores

    def noted(target, probability, key, *, noise_multiplier, rows):
        noises.append((len(target), noise_multiplier))
        return release(target, probability, key, noise_multiplier=noise_multiplier, rows=rows)

    monkeypatch.setattr(outcomes, "covered_scores", noted)
    evaluation = wb.cross_validate("logistic", private_data, **FAST)
    guarantee = evaluation.guarantee
    ((size, score_noise),) = noises
    assert size == private_data.num_train
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    accountant.compose(dp_event.GaussianDpEvent(score_noise))
    for spec, plan in begun[:-1]:
        step = dp_event.GaussianDpEvent(plan.mechanism.noise_multiplier)
        sampled = dp_event.PoissonSampledDpEvent(plan.sampler.sampling_rate, step)
        accountant.compose(sampled, spec.privacy.iterations)
    delta = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    assert accountant.get_epsilon(delta) == pytest.approx(1.0, rel=2e-3)
    # minibatches that overflow may cost what the guarantee has for those of all fits
    for _, plan in begun:
        assert plan.sampler.capacity >= begun[0][1].sampler.capacity > 0
        assert guarantee.sampling_rate == plan.sampler.sampling_rate


def test_the_guarantee_says_so_and_the_ledger_has_it(private_data):
    evaluation = wb.cross_validate("logistic", private_data, **FAST)
    guarantee = evaluation.guarantee
    assert isinstance(guarantee, CrossValidated)
    check_epsilon(guarantee)
    assert guarantee.steps == 3 * 20
    assert Guarantee.from_dict(guarantee.to_dict()) == guarantee
    statement = guarantee.statement()
    assert "of 4 fits, each record is read by 3" in statement
    assert "scales of the columns" not in statement
    (row,) = Ledger().spends()
    assert row.guarantee == guarantee
    assert Ledger().budget_status(row.dataset).total.epsilon == 1.0
    Ledger().set_cap(row.dataset, epsilon=1.1, delta=1e-2, why="test")
    with pytest.raises(CapError):
        wb.cross_validate("logistic", private_data, **FAST)


def test_tables_and_numbers(private_frame):
    table = wb.Table(name="clinic")
    by_formula = {"schema": SCHEMA, "family": "bernoulli", "table": table}
    evaluation = wb.cross_validate("ill ~ dose + age", private_frame, **by_formula, **FAST)
    assert set(evaluation.metrics) == {"log_likelihood", "auc", "accuracy"}
    steps = {"training": wb.Training(estimator="aligned"), "ledger": False}
    number = wb.cross_validate("dose ~ age", private_frame, schema=SCHEMA, **steps, **FAST)
    assert set(number.metrics) == {"log_likelihood", "rmse", "mae"}


def test_a_stop_shows_nothing_and_is_spent(private_data):
    with pytest.raises(CrossValidationStopped):
        wb.cross_validate(
            "logistic", private_data, execution=wb.Execution(stop=lambda: True), **FAST
        )
    assert Ledger().spends()[0].counted > 0


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("folds", {"folds": 1}),
        ("epsilon", {"epsilon": -1}),
        ("sampler", {"privacy": wb.Privacy(sampler="random_allocation")}),
        ("look", {"privacy": wb.Privacy(look=0.1)}),
        ("evaluate_private", {"privacy": wb.Privacy(evaluate_private=True)}),
        ("model", {"model": "gmm"}),
        ("evaluation_fraction", {"table": wb.Table(evaluation_fraction=0.5)}),
    ],
)
def test_what_cannot_be_used_is_named_and_spends_nothing(argument, change, private_data):
    arguments = {"model": "logistic", **FAST, **change}
    with pytest.raises(wb.ArgumentError) as refused:
        wb.cross_validate(arguments.pop("model"), private_data, **arguments)
    assert refused.value.argument == argument
    assert not Ledger().spends()


def test_folds_are_even_where_records_were_held_out_before(private_frame, begun):
    """The coins are others than those of the split."""
    data = wb.data.from_frame(
        private_frame, target="ill", bounds=PRIVATE_BOUNDS, evaluation_fraction=0.5
    )
    wb.cross_validate("logistic", data, ledger=False, epsilon=1.0, iterations=20, folds=2)
    for spec, _ in begun:
        assert 0.3 < spec.data.num_evaluation / data.num_train < 0.7


def test_a_record_that_has_an_equal_leaves_all_others_in_their_places(private_frame, begun):
    twice = private_frame.iloc[[0, *range(len(private_frame)), 0]]
    for table in (twice, twice[1:]):
        data = wb.data.from_frame(
            table, target="ill", bounds=PRIVATE_BOUNDS, evaluation_fraction=0.0
        )
        request = {"epsilon": 1.0, "iterations": 20, "folds": 2}
        request["privacy"] = wb.Privacy(num_records=400)
        wb.cross_validate("logistic", data, ledger=False, **request)
    for (whole, _), (less, _) in zip(begun[:2], begun[2:], strict=True):
        before, after = rows(whole.data.train), rows(less.data.train)
        gone = len(before) - len(after)
        assert gone in (0, 1)
        places = [
            place for place in range(len(before)) if before[place] not in after[place : place + 1]
        ]
        if gone:
            removed = next((k for k, row in enumerate(after) if row != before[k]), len(after))
            assert before[:removed] + before[removed + 1 :] == after
        else:
            assert not places


def test_what_a_look_learned_counts_and_nobody_inside_takes_part(private_frame, begun):
    look = wb.look(
        private_frame.assign(dose=150.0 + private_frame.index % 7), schema=SCHEMA, epsilon=9.0
    )
    scales = {"family": "bernoulli", "schema": SCHEMA, "privacy": wb.Privacy(look=look)}
    few = private_frame.assign(dose=1.0)
    evaluation = wb.cross_validate("ill ~ dose + age", few, **scales, **FAST)
    for spec, plan in begun:
        assert spec.is_vacant
        assert plan.sampler.is_vacant
    first, second = Ledger().spends()
    assert Ledger().budget_status(second.dataset).total.fits == 2
    assert any("earlier look" in caveat for caveat in evaluation.guarantee.caveats)
    assert first.dataset != second.dataset


def test_too_small_a_number_of_records_is_refused_before_anything_is_spent(private_data):
    with pytest.raises(wb.ArgumentError) as refused:
        wb.cross_validate("logistic", private_data, privacy=wb.Privacy(num_records=150), **FAST)
    assert refused.value.argument == "num_records"
    assert not Ledger().spends()


def test_persons_have_no_folds(private_frame):
    persons = wb.data.from_frame(
        private_frame.assign(person=np.arange(240) // 2),
        target="ill",
        bounds=PRIVATE_BOUNDS,
        unit_id="person",
        max_rows=2,
    )
    with pytest.raises(wb.ArgumentError, match="several rows"):
        wb.cross_validate("logistic", persons, **FAST)
