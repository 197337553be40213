"""Settings in the controls: checked field by field, and printed as code."""

import dataclasses

import pytest

import workbench as wb
from workbench.fitting import defaults
from workbench.models import registry
from workbench.widgets.workbench.data_source import DataSource
from workbench.widgets.workbench.settings import PRIVACY_FIELDS, Settings, problems_of

EMBEDDED = DataSource(
    "breast_cancer", "'breast_cancer'", lambda: wb.data.load("breast_cancer"), "breast_cancer", True
)


def settings(
    *, data=EMBEDDED, model="logistic", options=None, device=None, evaluate_private=False, **privacy
):
    return Settings(
        model=model,
        data=data,
        options=options or {},
        device=device,
        evaluate_private=evaluate_private,
        privacy={"epsilon": 1.0, **privacy},
    )


@pytest.fixture
def clinic(private_data):
    return DataSource("clinic", "data", lambda: private_data, "clinic", False)


def test_settings_to_start_with_have_no_problem():
    assert problems_of(settings().privacy) == {}


def test_the_relation_may_be_any_of_the_sampler():
    assert problems_of({"epsilon": 1, "sampler": "shuffle", "relation": "replace_special"}) == {}
    assert list(
        problems_of({"epsilon": 1, "sampler": "poisson", "relation": "replace_special"})
    ) == ["relation"]


def test_all_bad_fields_are_told_at_once():
    assert set(problems_of({"epsilon": -1, "delta": 2, "iterations": 0})) == {
        "epsilon",
        "delta",
        "iterations",
    }


def test_what_is_left_out_is_automatic(clinic, private_data):
    prepared = settings(data=clinic, iterations=50).prepare(private_data)
    assert prepared.privacy.delta == 1e-3
    (caution,) = prepared.cautions
    assert caution.startswith("There are too few records for this epsilon to learn how columns")
    advised = prepared.model.advice(prepared.data, private_data.num_train, 1.0)
    rule = defaults.complete(dict.fromkeys(PRIVACY_FIELDS), advised, private_data.num_train)
    assert prepared.privacy.clip == rule["clip"]
    assert prepared.settings.average == rule["average"]


def test_settings_reach_the_fit(clinic, private_data):
    given = {
        "epsilon": 3.0,
        "delta": 1e-4,
        "iterations": 50,
        "batch_size": 5,
        "sampler": "shuffle",
        "clip": 0.5,
        "relation": "replace_special",
        "learning_rate": 0.01,
        "average": False,
    }
    prepared = settings(
        data=clinic, evaluate_private=True, device="cpu:0", options={"prior_scale": 2.0}, **given
    ).prepare(private_data)
    for name in ("epsilon", "delta", "iterations", "sampler", "clip", "relation"):
        assert getattr(prepared.privacy, name) == given[name]
    assert prepared.privacy.sampling_rate == 5 / private_data.num_train
    assert (prepared.settings.learning_rate, prepared.settings.average) == (0.01, False)
    assert prepared.settings.evaluate_private
    assert prepared.settings.device.startswith("cpu:0")
    assert prepared.model.options["prior_scale"] == 2.0
    assert prepared.privacy.seed is None


def test_keys_tell_fits_apart_and_nothing_else():
    usual = settings()
    assert usual.key == settings().key == dataclasses.replace(usual, baseline=True).key
    others = [
        settings(options={"prior_scale": 2.0}),
        settings(model="gmm"),
        settings(device="cpu:0"),
        settings(evaluate_private=True),
        settings(data=dataclasses.replace(EMBEDDED, key="other")),
        *(settings(**{name: 0.25}) for name in PRIVACY_FIELDS),
    ]
    assert len({usual.key, *(other.key for other in others)}) == 1 + len(others)


def test_a_model_that_is_registered_again_is_another(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    keys = set()
    for _ in range(2):

        def mine(x, y=None, num_records=None):
            """A cell that is run again defines another function of the same name."""

        wb.models.register("mine", mine)
        keys |= {settings(model="mine").key, settings(model="mine").key}
    assert len(keys) == 2


def test_a_note_stands_above_the_code():
    noted = dataclasses.replace(EMBEDDED, code="data", note="data is mine")
    assert settings(data=noted).as_code().splitlines() == [
        "# data is mine",
        "result = wb.fit('logistic', data, epsilon=1.0)",
    ]


def test_code_names_an_embedded_data_set():
    code = settings(epsilon=2.0, delta=1e-4, iterations=100, sampler="poisson").as_code()
    assert (
        code
        == "result = wb.fit('logistic', 'breast_cancer', epsilon=2.0, delta=0.0001, iterations=100)"
    )


def test_code_refers_to_the_users_own_data_by_a_variable(clinic):
    assert settings(data=clinic).as_code() == "result = wb.fit('logistic', data, epsilon=1.0)"


def test_code_says_so_where_private_records_are_evaluated_or_a_device_was_chosen():
    assert "device='cpu:0'" in settings(device="cpu:0").as_code()
    assert "device" not in settings().as_code()
    assert "evaluate_private=True" in settings(evaluate_private=True).as_code()
    assert "evaluate_private" not in settings().as_code()


@pytest.mark.thorough
@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.filterwarnings("ignore::workbench.results.fit_result.IntervalWarning")
def test_cells_are_code_that_runs(private_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = settings(epsilon=2.0, iterations=20).as_cells().split("# %%\n")
    assert cells[0] == ""
    assert all(cell.startswith("# ") for cell in cells[1:])
    names = {}
    for cell in cells[1:]:
        exec(cell, names)
    assert names["result"].status == "done"
    assert (tmp_path / "runs/mine/report.html").is_file()


def test_ledger_and_reason_are_passed_on_and_printed_where_they_are_not_the_default(
    clinic, private_data, tmp_path
):
    chosen = settings(data=clinic, iterations=10)
    assert "ledger" not in chosen.as_code()
    elsewhere = dataclasses.replace(
        chosen, ledger=str(tmp_path / "ledger.sqlite"), over_cap="agreed"
    )
    assert elsewhere.key != chosen.key
    account = elsewhere.prepare(private_data).run_log.reservation
    assert str(account.ledger.path) == elsewhere.ledger
    assert (
        f"ledger={elsewhere.ledger!r}, privacy=wb.Privacy(over_cap='agreed'))"
        in elsewhere.as_code()
    )
    nowhere = dataclasses.replace(chosen, ledger=False)
    assert nowhere.prepare(private_data).run_log.reservation.ledger is None
    assert "ledger=False" in nowhere.as_code()
