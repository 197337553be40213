"""Releases of looks, evaluations and cross-validations, and what is no release."""

import json

import pytest
import yaml

import workbench as wb
from tests import fakes
from tests.releases.conftest import ANSWERS, fitted, forge, set_in
from tests.releases.test_deployment import VALIDATOR, numbers_table, persons, swept
from workbench.releases import deployment


def look(data, book):
    frame, schema = numbers_table()
    return wb.look(frame, schema=schema, epsilon=1.0, delta=1e-4, ledger=book)


def evaluation(data, book):
    return wb.evaluate(fitted(data, ledger=False), data, epsilon=1.0, delta=1e-4, ledger=book)


def cross_validation(data, book):
    options = {"epsilon": 2.0, "delta": 1e-4, "iterations": 20}
    return wb.cross_validate("logistic", data, folds=2, ledger=book, **options)


KINDS = {"look": look, "evaluation": evaluation, "cross-validation": cross_validation}


@pytest.fixture(scope="module")
def folders(private_data, tmp_path_factory):
    """{kind: released folder}, of one ledger."""
    place = tmp_path_factory.mktemp("tables")
    book = wb.ledger.Ledger(place / "ledger.sqlite")
    with fakes.installed():
        results = {kind: make(private_data, book) for kind, make in KINDS.items()}
    return {
        kind: wb.release(result, place / kind, ledger=book, describe=ANSWERS)
        for kind, result in results.items()
    }


def failures(folder):
    return {f.check: f.sentence for f in wb.verify(folder) if f.status == "failed"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_of_tables_passes(folders, kind):
    folder = folders[kind]
    assert failures(folder) == {}
    assert wb.verify(folder).status == "passed"
    entry = yaml.safe_load((folder / "deployment.yaml").read_text())
    assert list(VALIDATOR.iter_errors(entry)) == []
    names = {path.name for path in folder.iterdir()}
    assert {"claim.html", "data.yaml", "ledger.json", "report.html", "statement.txt"} <= names


CLAIMS = {
    "epsilon": (0.1, "epsilon_taken must not be greater than epsilon"),
    "delta": (1e-3, "its guarantee.delta is 0.0001, but result.json has 0.001"),
    "unit": ("visit", "its guarantee.unit"),
    "noise_multiplier": (90.0, "its guarantee.noise_multiplier"),
    "clip": (0.01, "its guarantee.clip"),
    "steps_taken": (0, "guarantee.steps_taken is 0"),
    "num_records": (5000, "guarantee.caveats have another N"),
    "overflow_delta": (0, "minibatches of random sizes can overflow"),
    "noise_delta": (0, "which the draws of noise cost"),
    "secure_randomness": (False, "guarantee.secure_randomness is false, but the program says true"),
    "arithmetic": ("floating point", "guarantee.arithmetic is floating point"),
    "released": ("sums", "guarantee.released is sums, but kind says"),
    "max_rows": (3, "guarantee.max_rows set is true, but guarantee.caveats says false"),
    "accountant": ("rdp", "guarantee.accountant is rdp"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_that_is_changed_is_named(folders, copy_of, kind):
    for field, (value, words) in CLAIMS.items():
        copy = copy_of(folders[kind])
        forge(
            copy, "result.json", lambda values, f=field, v=value: set_in(values["guarantee"], f, v)
        )
        assert words in " ".join(failures(copy).values()), field


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("look", {"kind": "evaluation"}, "guarantee.released is counts, but kind says scores"),
        ("look", {"kind": "fit"}, "result.json is damaged: kind"),
        ("look", {"model": "gmm"}, "its model is look, but result.json has gmm"),
        ("look", {"spend": "abc"}, "the fit with the key abc"),
        ("look", {"versions": {"workbench": "9.9"}}, "its version is"),
        ("look", {"columns": []}, "data.yaml says"),
        ("look", {"tables": {"Columns": {"columns": ["column"], "rows": []}}}, "report.html says"),
        ("look", {"tables": {"Columns": 3}}, "result.json is damaged: tables.Columns"),
        ("evaluation", {"kind": "cross-validation"}, "guarantee.folds set is false"),
        ("cross-validation", {"kind": "evaluation"}, "guarantee.folds set is true"),
    ],
)
def test_a_field_that_is_changed_is_named(folders, copy_of, kind, change, words):
    copy = copy_of(folders[kind])
    forge(copy, "result.json", lambda values: values.update(change))
    assert words in " ".join(failures(copy).values())


def test_a_score_outside_of_its_interval_is_named(folders, copy_of):
    copy = copy_of(folders["evaluation"])

    def better(values):
        row = values["tables"]["Scores"]["rows"][0]
        row[1] = row[3] + 0.1

    forge(copy, "result.json", better)
    assert "is outside its interval" in failures(copy)["consistency"]


def test_a_page_of_tables_that_says_otherwise_is_named(folders, copy_of):
    for name, old, check in (
        ("report.html", "Quantiles of dose", "report"),
        ("claim.html", "epsilon 1", "claim"),
        ("claim.html", "not covered", "claim"),
        ("data.yaml", "from 0 to 200", "data"),
        ("requirements.txt", "jax==", "requirements"),
    ):
        copy = copy_of(folders["look"])
        text = (copy / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, f"9{old}"))
        forge(copy, "manifest.json", lambda values: None)
        assert check in failures(copy), name


def test_what_is_not_covered_stands_in_the_claim(folders):
    page = (folders["look"] / "claim.html").read_text()
    for level in ("Timing and other side channels", "Security and access", "Data collection"):
        assert f">{level}</td>" in page
    assert page.count(">not covered</td>") == 4
    assert "ledger.json has the fits on the same records" in page


def test_no_record_and_no_seed_is_in_a_file(folders):
    frame, _ = numbers_table()
    texts = [path.read_text() for path in folders["look"].iterdir()]
    assert not any(repr(float(value)) in text for value in frame["dose"] for text in texts)
    declared = yaml.safe_load((folders["look"] / "data.yaml").read_text())
    assert declared["columns"]["ward"] == "a, b, c; reference: a"
    assert declared["number of records"] == 300


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_released_by_something_else_says_by_what(private_data, tmp_path):
    with fakes.installed():
        sweep, fit = swept(private_data), persons(private_data)
        twins = fit.twins(sets=2, given=numbers_table()[0][["dose"]] / 100)
        frame, schema = numbers_table()
        seeded = wb.look(frame, schema=schema, epsilon=1.0, ledger=False, seed=1)
        own = fitted(private_data, ledger=False, seed=1)
        scores = wb.evaluate(own, private_data, epsilon=1.0, delta=1e-4, ledger=False)
    refused = {
        r"wb.release\(sweep.fit\(1\), out\)": sweep,
        r"Release the result that they were drawn from": twins,
        "Give a fit, a choice, a look or the scores": 3,
        "has noise that follows from a seed": seeded,
        "that of a look or a fit that it is made of": scores,
    }
    for words, result in refused.items():
        with pytest.raises(wb.ArgumentError, match=f"result=.*{words}"):
            wb.release(result, tmp_path / "new")
    with pytest.raises(wb.ArgumentError, match="noise that follows from a seed"):
        deployment(scores, ANSWERS)
    assert not (tmp_path / "new").exists()
    assert "seed of a fit that is scored" in scores.guarantee.statement()


@pytest.mark.parametrize("nothing_declared", [False, True])
def test_a_fit_that_looked_agrees_with_its_row_in_the_ledger(tmp_path, nothing_declared):
    """The row is written before the look, from which C follows."""
    frame, schema = numbers_table()
    book = wb.ledger.Ledger(tmp_path / "ledger.sqlite")
    declared = {} if nothing_declared else {"schema": schema}
    options = {"epsilon": 20.0, "delta": 1e-3, "iterations": 20, "ledger": book}
    with fakes.installed():
        result = wb.fit("y ~ dose", frame, privacy=wb.Privacy(look=0.3), **declared, **options)
    folder = wb.release(result, tmp_path / "folder", ledger=book)
    assert failures(folder) == {}
    row = json.loads((folder / "ledger.json").read_text())["fits"][0]
    assert row["guarantee"]["look_noise"] == result.guarantee.look_noise > 0
