"""What the controls say: checked field by field, and printed as code."""

import dataclasses

import pytest

import workbench as wb
from workbench.widgets.settings import Settings


def test_settings_to_start_with_have_no_problem():
    assert Settings().problems() == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epsilon", value) for value in (0, -1.0, float("nan"), float("inf"), 1e4)),
        *(("delta", value) for value in (0.0, 1.0, -1e-5, float("nan"))),
        *(("iterations", value) for value in (0, -5, 2**31)),
    ],
)
def test_a_bad_value_is_a_problem_of_its_field_alone(field, value):
    problems = dataclasses.replace(Settings(), **{field: value}).problems()
    assert list(problems) == [field]
    assert problems[field].startswith("must be a ")


def test_a_model_that_cannot_be_made_is_a_problem_of_its_field():
    problems = Settings(model="logistik").problems()
    assert list(problems) == ["model"]
    assert problems["model"].startswith("unknown name; did you mean 'logistic'")


def test_all_bad_fields_are_told_at_once():
    assert set(Settings(epsilon=-1, delta=2, iterations=0).problems()) == {"epsilon", "delta", "iterations"}


def test_no_delta_means_the_default(private_data):
    prepared = Settings(iterations=50).prepare(private_data)
    assert prepared.privacy.delta == 1e-3
    assert prepared.cautions == ()


def test_settings_reach_the_fit(private_data):
    settings = Settings(epsilon=3.0, delta=1e-4, iterations=50, evaluate_private=True)
    prepared = settings.prepare(private_data)
    assert (prepared.privacy.epsilon, prepared.privacy.delta, prepared.privacy.iterations) == (3.0, 1e-4, 50)
    assert prepared.settings.evaluate_private
    assert prepared.privacy.seed is None


def test_a_caution_about_delta_is_handed_back_instead_of_raised(private_data):
    (caution,) = Settings(delta=0.1, iterations=50).prepare(private_data).cautions
    assert caution.startswith("delta=0.1 is not below 1/N")


def test_code_names_an_embedded_data_set():
    code = Settings(epsilon=2.0, delta=1e-4, iterations=100).as_code(embedded=True)
    assert code == "result = wb.fit('logistic', 'breast_cancer', epsilon=2.0, delta=0.0001, iterations=100)"


def test_code_refers_to_the_users_own_data_by_a_variable():
    assert Settings(data="clinic").as_code(embedded=False).startswith("result = wb.fit('logistic', data, ")


def test_code_says_so_where_private_records_are_evaluated():
    assert "evaluate_private=True" in Settings(evaluate_private=True).as_code(embedded=True)
    assert "evaluate_private" not in Settings().as_code(embedded=True)


def test_code_repeats_the_run(private_data):
    settings = Settings(data="clinic", epsilon=2.0, delta=1e-4, iterations=20)
    names = {"wb": wb, "data": private_data}
    exec(settings.as_code(embedded=False), names)
    guarantee = names["result"].guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.steps) == (2.0, 1e-4, 20)
    assert guarantee.steps_taken == 20


def test_code_of_an_embedded_data_set_is_a_call_of_fit(monkeypatch):
    calls = []
    monkeypatch.setattr(wb, "fit", lambda *names, **options: calls.append((names, options)), raising=False)
    exec(Settings(iterations=7).as_code(embedded=True), {"wb": wb})
    assert calls == [(("logistic", "breast_cancer"), {"epsilon": 1.0, "iterations": 7})]
