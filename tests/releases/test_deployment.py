"""Entries of the deployments registry: valid in its schema for every kind of result, complete, and
with nothing that nobody said.
"""

import json
from pathlib import Path

import jsonschema
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import yaml

import workbench as wb
from tests import fakes
from tests.conftest import some_of
from tests.releases.conftest import ANSWERS, fitted, forge, seal, set_in
from workbench.releases import deployment, description, text_of

SCHEMA = yaml.safe_load((Path(__file__).parent / "deployments-schema.yaml").read_text())
VALIDATOR = jsonschema.Draft7Validator(
    SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
)
OPTIONAL = {"data_product_sector", "sources"}  # what an owner may leave out


def leaves(schema, place=()):
    """(place, schema) of the fields without fields of their own, and of privacy parameters."""
    for name, inside in schema.get("properties", {}).items():
        if "properties" in inside and name != "privacy_parameters":
            yield from leaves(inside, (*place, name))
        else:
            yield (*place, name), inside


def value_at(entry, place):
    for name in place:
        entry = entry.get(name, {})
    return entry


def numbers_table():
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"dose": random.uniform(0, 200, 300), "ward": ["a", "b", "c"] * 100})
    schema = {"dose": (0, 200), "ward": ["a", "b", "c"], "y": (0, 2)}
    return frame.assign(y=frame["dose"] / 200 + random.uniform(0, 0.5, 300)), schema


def formula(**options):
    frame, schema = numbers_table()
    return wb.fit("y ~ dose + ward", frame, schema=schema, epsilon=1, delta=1e-4, **options)


def choice(private_data):
    candidates = ["logistic", {"model": "logistic", "iterations": 60}]
    return wb.choose(
        candidates, private_data, epsilon=2.0, delta=1e-4, runs=3, iterations=40, ledger=False
    )


def looked(private_data):
    frame, schema = numbers_table()
    return wb.look(frame, schema=schema, epsilon=1.0, delta=1e-4, ledger=False)


def evaluated(private_data):
    result = fitted(private_data, ledger=False)
    return wb.evaluate(result, private_data, epsilon=1.0, delta=1e-4, ledger=False)


def persons(private_data):
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"dose": random.uniform(0, 9, 200), "who": np.repeat(range(50), 4)})
    frame["ill"] = frame["dose"] > 4
    data = wb.data.from_frame(
        frame, target="ill", bounds={"dose": (0, 9)}, unit_id="who", max_rows=4, unit="patient"
    )
    return fitted(data, ledger=False)


def swept(private_data):
    return wb.sweep(
        "logistic",
        private_data,
        epsilons=[1.0, 2.0],
        delta=1e-4,
        iterations=20,
        ledger=False,
        accept_total_epsilon=9.0,
    )


def by(sampler):
    options = {"privacy": wb.Privacy(sampler=sampler), "ledger": False}
    return lambda data: fitted(data, **options)


KINDS = {
    "fit": lambda data: fitted(data, ledger=False),
    "public": lambda data: fitted("breast_cancer"),
    "scores": lambda data: fitted(data, ledger=False, privacy=wb.Privacy(covered_scores=True)),
    "one shot": lambda data: formula(ledger=False, training=wb.Training(estimator="statistics")),
    "look before": lambda data: formula(ledger=False, iterations=20, privacy=wb.Privacy(look=0.1)),
    "choice": choice,
    "look": looked,
    "evaluation": evaluated,
    "persons": persons,
    "sweep": swept,
    "shuffle": by("shuffle"),
    "random allocation": by("random_allocation"),
    "images": lambda data: wb.fit("vae", "digits", epsilon=1.0, delta=1e-4, iterations=5),
}


@pytest.mark.parametrize("kind", some_of(list(KINDS)))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_entry_is_valid_and_complete(private_data, kind):
    with fakes.installed():
        result = KINDS[kind](private_data)
    entry = yaml.safe_load(text_of(deployment(result, ANSWERS)))
    assert [error.message for error in VALIDATOR.iter_errors(entry)] == []
    empty = [
        place
        for place, schema in leaves(SCHEMA)
        if place[-1] not in OPTIONAL
        and place[-1] != "privacy_parameters"
        and not value_at(entry, place)
    ]
    assert empty == []
    parameters = entry["deployment"]["privacy_loss"]["privacy_parameters"]
    assert set(parameters) == {"epsilon", "delta"}
    assert parameters["epsilon"] >= 1.0
    text = text_of(entry)
    assert "None" not in text
    assert "  " not in " ".join(line.strip() for line in text.splitlines())


def cancelled(private_data):
    looks = iter(range(100))
    follow = wb.Execution(on_snapshot=lambda snapshot: None, stop=lambda: next(looks) > 1)
    result = fitted(private_data, ledger=False, execution=follow)
    assert result.status == "cancelled"
    return result


def of_a_person(private_data):
    """A model of one's own, which a reviewer does not have."""

    def model(x, y=None, size=None):
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("records", size or len(x), subsample_size=len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    return wb.fit(model, private_data, epsilon=1.0, delta=1e-4, iterations=20, ledger=False)


FITS = {name: make for name, make in KINDS.items() if name not in ("look", "sweep", "evaluation")}


@pytest.mark.parametrize("kind", some_of([*FITS, "cancelled", "of a person"], 4, 2))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_check_of_a_release_fails(private_data, kind, tmp_path):
    make = {**FITS, "cancelled": cancelled, "of a person": of_a_person}[kind]
    with fakes.installed():
        result = make(private_data)
    folder = wb.release(result, tmp_path / "folder", describe=ANSWERS)
    assert failures(folder) == {}


def test_what_is_known_is_that_of_the_guarantee(private_data):
    with fakes.installed():
        result = persons(private_data)
    entry = deployment(result, ANSWERS)["deployment"]
    fit = result.guarantee
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-4}
    assert entry["privacy_loss"]["privacy_unit"] == "patient"
    assert "A patient has at most 4 rows." in entry["privacy_loss"]["privacy_unit_details"]
    assert f"N = {fit.num_records}" in entry["dp_variant"]["unprotected_quantities"]
    domain = entry["dp_variant"]["data_domain"]
    assert "dose (from 0 to 9); ill (the target: False, True)" in domain
    assert (
        f"Gaussian noise of {fit.noise_multiplier:g} times" in entry["implementation"]["mechanisms"]
    )
    assert f"workbench {wb.__version__}" in entry["implementation"]["mechanisms"]
    assert "40 steps" in entry["accounting"]["composition"]


def test_what_only_the_owner_knows_is_the_answer(private_data):
    with fakes.installed():
        result = fitted(private_data, ledger=False)
    answers = {name: f"answer {number}" for number, name in enumerate(description.QUESTIONS)}
    answers |= {"publication_date": "2026-01-31", "data_product_sector": "Healthcare"}
    text = json.dumps(deployment(result, answers))
    assert [name for name, answer in answers.items() if answer not in text] == []


def test_a_sweep_states_the_total(private_data):
    with fakes.installed():
        result = swept(private_data)
    entry = deployment(result, ANSWERS)["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] == result.total.epsilon > 2
    assert "All 2 fits together" in entry["accounting"]["composition"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"intended_use": ""},
            "intended_use: has no answer|describe='intended_use': has no answer",
        ),
        ({"publication_date": "31.1.2026"}, "must be a date such as 2026-01-31"),
        ({"publication_date": "20260131"}, "must be a date such as 2026-01-31"),
        ({"data_product_sector": "Sport"}, "must be one of Technology"),
        ({"data_curators": " ; "}, "must be a name"),
        ({"curator": "us"}, "unknown"),
    ],
)
def test_answers_that_cannot_be_meant_are_refused(released_public, change, message):
    with pytest.raises(wb.ArgumentError, match=message):
        deployment(wb.load(released_public), ANSWERS | change)


def test_what_has_no_entry_is_refused(private_data):
    with fakes.installed():
        open_fit = wb.fit("logistic", "breast_cancer", private=False, iterations=5)
    with pytest.raises(wb.ArgumentError, match="no finite epsilon"):
        deployment(open_fit, ANSWERS)
    with fakes.installed():
        seeded = fitted(private_data, ledger=False, seed=1)
    with pytest.raises(wb.ArgumentError, match="noise that follows from a seed"):
        deployment(seeded, ANSWERS)
    with pytest.raises(wb.ArgumentError, match="must be a result of a fit"):
        deployment("fit", ANSWERS)


# ---- in a folder ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def described(released_public, tmp_path_factory):
    folder = tmp_path_factory.mktemp("described") / "folder"
    return wb.release(released_public, folder, describe=ANSWERS)


def failures(folder):
    return {f.check: f.sentence for f in wb.verify(folder) if f.status == "failed"}


def test_a_folder_has_the_entry_and_it_is_checked(described, copy_of):
    entry = yaml.safe_load((described / "deployment.yaml").read_text())
    assert list(VALIDATOR.iter_errors(entry)) == []
    assert failures(described) == {}
    for old, new in {
        "epsilon: 1.0": "epsilon: 0.1",
        "delta: 0.0001": "delta: 0.00001",
        "tumour": "patient",
        "N = 458": "N = 9458",
        "one answer": "another answer",
    }.items():
        copy = copy_of(described)
        text = (copy / "deployment.yaml").read_text()
        assert old in text
        (copy / "deployment.yaml").write_text(text.replace(old, new))
        seal(copy)
        said = failures(copy)
        assert list(said) == ["registry"]
        assert new.split()[0] in said["registry"]
    copy = copy_of(described)
    forge(
        copy, "result.json", lambda values: set_in(values, "guarantee.arithmetic", "floating point")
    )
    (copy / "description.yaml").write_text("name: [")
    seal(copy)
    answer = {finding.check: finding for finding in wb.verify(copy)}["registry"]
    assert answer.status == "not checked"
    assert "description.yaml" in answer.sentence


def test_the_command_asks_for_what_only_people_know(
    command, released_public, tmp_path, monkeypatch
):
    file, out = tmp_path / "about.yaml", tmp_path / "out"
    arguments = ["release", released_public, "--out", out, "--describe", file]
    code, _, err = command(*arguments)
    assert code == 2
    assert "has no answer: nobody but you knows it" in err
    assert not out.exists()
    questions = file.read_text()
    assert all(question in questions for question in description.QUESTIONS.values())
    asked = []

    def answer(question):
        asked.append(question)
        name = next(n for n, q in description.QUESTIONS.items() if q in question)
        if name == "publication_date" and "must be" not in question:
            return "soon"
        return ANSWERS[name]

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    assert command(*arguments)[0] == 0
    assert len(asked) == len(description.QUESTIONS) + 1 - 2  # a blank file answers what is optional
    monkeypatch.setattr("builtins.input", None)  # asked once
    assert command("release", released_public, "--out", tmp_path / "b", "--describe", file)[0] == 0
    assert yaml.safe_load((tmp_path / "b" / "deployment.yaml").read_text())["status"] == "Draft"


def test_an_interrupted_owner_keeps_the_answers(tmp_path):
    file = tmp_path / "about.yaml"
    answers = iter(["A model", "Us; Them"])
    with pytest.raises(StopIteration):
        description.ask(file, lambda question: next(answers))
    asked = []
    with pytest.raises(EOFError):
        description.ask(file, lambda question: asked.append(question) or end())
    assert asked == [f"{description.QUESTIONS['intended_use']}: "]


def end():
    raise EOFError
