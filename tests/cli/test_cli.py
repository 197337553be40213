"""The ``workbench`` command: what it prints where, and how it exits."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import types

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS, shell_words, some_of
from workbench import ArgumentError, auditing
from workbench.cli import main, shell
from workbench.fitting import fits
from workbench.fitting.groups import Group
from workbench.ledger.ledger import Ledger
from workbench.models import registry
from workbench.results import FitResult

pytestmark = pytest.mark.usefixtures("made_up_steps", "quick_report")

ROOT = pathlib.Path(__file__).parents[2]
FILES = {"result.json", "params.npz", "posterior.nc", "curves.png", "report.html"}
FIT = "fit --data breast_cancer --epsilon 1"


@pytest.fixture
def prepared(monkeypatch):
    """Stops every fit before it is prepared and keeps what it was asked for."""
    asked = []

    class NotToday(Exception):
        pass

    def prepare(model, data, **arguments):
        groups = [value for value in arguments.values() if isinstance(value, Group)]
        settings = {
            name: value for name, value in arguments.items() if not isinstance(value, Group)
        }
        for group in groups:
            settings |= group.changed()
        asked.append((model, data, settings))
        raise NotToday

    monkeypatch.setattr(fits, "prepare", prepare)

    def run(*arguments):
        with pytest.raises(NotToday):
            main.main(shell_words(*arguments))
        return asked[-1]

    return run


@pytest.fixture
def finished(monkeypatch):
    """Puts a result in place of the next fit."""

    class Finished:
        def __init__(self, result, cautions):
            self.cautions = cautions
            self.result = lambda: result
            self.privacy = types.SimpleNamespace(iterations=result.guarantee.steps)
            self.run_log = types.SimpleNamespace(folder=None)

        def run(self, stop):
            return iter(())

    def put(result, *cautions):
        monkeypatch.setattr(fits, "prepare", lambda *_, **__: Finished(result, cautions))

    return put


@pytest.fixture
def no_fit(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a fit was begun")

    monkeypatch.setattr(fits, "prepare", refuse)


@pytest.fixture
def table(private_frame, tmp_path):
    file = tmp_path / "clinic.csv"
    private_frame.to_csv(file, index=False)
    return file


@pytest.fixture(scope="module", params=EITHER_STEPS)
def as_json(request, tmp_path_factory):
    """(standard output, standard error, folder) of one fit with --json and --out."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    settings = ["--delta 1e-3 --iterations 300 --seed 1 --json --out", str(folder)]
    with fakes.installed(request.param == "made up") as monkeypatch:
        streams = tmp_path_factory.mktemp("streams")
        with open(streams / "out", "w+") as out, open(streams / "err", "w+") as err:
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", err)
            code = main.main(shell_words(FIT, *settings))
            texts = [(stream.seek(0), stream.read())[1] for stream in (out, err)]
    assert code == 0
    return *texts, folder


@pytest.fixture
def ended(as_json):
    """A result of which only the words count."""
    return wb.load(as_json[2])


def refused(command, *arguments):
    """The one line on standard error with which unusable arguments are refused."""
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err


def test_version(command):
    assert command("--version") == (0, f"workbench {wb.__version__}\n", "")


def test_json_is_one_object_on_standard_output(as_json, request):
    out, _, folder = as_json
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert answer["status"] == "done"
    assert answer["guarantee"]["epsilon"] == 1.0
    assert answer["guarantee"]["delta"] == 1e-3
    assert (0.9 if "real" in request.node.name else 0) < answer["metrics"]["auc"] <= 1
    assert answer["metrics"]["elbo"] < 0
    assert answer["labels"]["metrics"] == "public data"
    assert answer["labels"]["posterior"] == "covered"
    assert answer["out"] == str(folder)


def test_progress_goes_to_standard_error(as_json):
    _, err, _ = as_json
    assert "fitting" in err
    assert "300/300" in err


def test_saved_fit_is_the_one_that_was_printed(as_json):
    out, _, folder = as_json
    answer, result = json.loads(out), wb.load(folder)
    assert {file.name for file in folder.iterdir()} == FILES
    assert result.guarantee.to_dict().items() <= answer["guarantee"].items()
    assert result.metrics == answer["metrics"]


@pytest.mark.thorough
@pytest.mark.parametrize("as_json", ["real"], indirect=True)
def test_command_and_call_give_the_same_result(as_json, done):
    result = wb.load(as_json[2])
    assert result.guarantee == done.guarantee
    assert result.metrics == done.metrics


def test_a_fit_without_privacy_says_so_and_takes_no_epsilon(command, tmp_path):
    words = "fit --data breast_cancer --iterations 20 --no-privacy --out"
    code, out, err = command(words, tmp_path / "run")
    assert code == 0
    assert out.startswith("NO PRIVACY: ")
    assert "epsilon=" not in err
    assert not wb.load(tmp_path / "run").guarantee.is_private
    told = refused(command, words, tmp_path / "run", "--epsilon 1")
    assert "epsilon=1.0: must be left out, because the fit has no privacy." in told
    assert told.endswith("For a private fit, leave out --no-privacy.\n")
    assert command(words, tmp_path / "other", "--no-ledger --no-checkpoint")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        "fit --data breast_cancer --no-p",
        f"{FIT} --no-l",
        f"{FIT} --evaluate-p",
        "resume run --forg",
        "ledger cap 1 --rem",
    ],
)
def test_options_are_spelt_out(command, words):
    """A switch must not be taken for one that removes privacy."""
    assert f"unrecognized arguments: {words.split()[-1]}" in refused(command, words)


def test_fit_on_a_csv_file_prints_the_guarantee_and_no_private_metrics(command, table, tmp_path):
    code, out, err = command(
        "fit --data",
        table,
        "--target ill --bounds dose=0:200 age=0:100 --look 0 --epsilon 2 --iterations 20 --quiet",
        "--out",
        tmp_path / "run",
    )
    assert (code, err) == (0, "")
    result = wb.load(tmp_path / "run")
    assert result.guarantee.statement() in out
    assert "Parameters and posterior: covered." in out
    assert "No held-out metrics: no evaluation records are declared public." in out
    assert str(tmp_path / "run" / "report.html") in out
    assert result.metrics == {}


@pytest.mark.thorough
def test_fit_protects_the_people_whose_rows_they_are(command, tmp_path):
    rng, ids = np.random.default_rng(0), np.repeat(np.arange(60), 3)
    frame = pd.DataFrame(
        {"patient_id": ids, "age": rng.uniform(0, 100, 180), "ill": rng.integers(0, 2, 180)}
    )
    frame.to_csv(tmp_path / "visits.csv", index=False)
    common = [
        "fit --target ill --epsilon 2 --iterations 20 --quiet --data",
        tmp_path / "visits.csv",
    ]
    words = [*common, "--bounds age=0:100 --unit-id patient_id"]
    code, out, _ = command(*words, "--max-rows 2")
    assert code == 0
    assert "For each patient: " in out
    assert "of up to 2 rows together" in out
    columns = {
        "patient_id": {"kind": "unit", "max_rows": 2},
        "age": {"kind": "numeric", "low": 0, "high": 100},
    }
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    by_file = [*common, "--schema", tmp_path / "columns.json"]
    code, out, _ = command(*by_file)
    assert (code, "of up to 2 rows together" in out) == (0, True)
    (tmp_path / "columns.json").write_text(
        json.dumps({**columns, "other_id": columns["patient_id"]})
    )
    code, _, err = command(*by_file)
    assert "schema={'kind': 'unit', 'max_rows': 2}: must describe exactly one unit column" in err
    code, _, err = command(*words)
    assert code != 0
    assert "max_rows=None: must say how many rows of a unit are used at most" in err


@pytest.mark.parametrize("declared", [[0, 10], [0, 10, "int"], "boolean", True, None])
def test_declarations_in_a_file_are_explained_in_json(command, private_frame, tmp_path, declared):
    private_frame.to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps({"ill": {"kind": "boolean"}, "age": declared}))
    words = [
        "fit --data",
        tmp_path / "clinic.csv",
        "--epsilon 1 --schema",
        tmp_path / "schema.json",
    ]
    code, _, err = command(*words, "--formula 'ill ~ age' --family bernoulli")
    assert code == 2
    assert "schema['age']=" in err
    assert '{"kind": "numeric", "low": 0, "high": 10}' in err
    assert "tuple" not in err


@pytest.fixture
def of_a_formula(private_frame, tmp_path):
    """The words of a fit whose columns are declared in a file."""
    private_frame.assign(code="01", n=3).to_csv(tmp_path / "clinic.csv", index=False)
    schema = {
        "ill": {"kind": "boolean"},
        "age": {"kind": "numeric", "low": 0, "high": 100},
        "code": ["01", "02"],
        "n": [0, 9],
        "dose": {"kind": "numeric", "low": 0, "high": 200},
    }
    schema["n"] = {"kind": "numeric", "low": 0, "high": 9}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    path = tmp_path / "clinic.csv"
    return ["fit --data", path, "--epsilon 1 --schema", tmp_path / "schema.json"]


def test_a_formula_from_the_shell(prepared, of_a_formula):
    formula = [
        (
            "--formula 'ill ~ age + C(code)' --family bernoulli --prior 'age=Normal(0, 1)' "
            "'code=02=Cauchy(0, 1)'"
        )
    ]
    text, table, settings = prepared(*of_a_formula, *formula, "--missing indicator")
    assert text == "ill ~ age + C(code)"
    assert settings["family"] == "bernoulli"
    assert settings["priors"] == {"age": "Normal(0, 1)", "code=02": "Cauchy(0, 1)"}
    assert (settings["missing"], settings["name"]) == ("indicator", "clinic")
    assert set(table["code"]) == {"01"}
    narrower = prepared(*of_a_formula, *formula, "--bounds age=18:90")[2]["schema"]
    assert narrower == {**settings["schema"], "age": (18, 90)}
    # the words in a checkpoint ask for the same fit
    again = prepared("fit", shlex.join(settings["origin"]["arguments"]))
    assert again[0] == text
    assert {name: again[2][name] for name in ("family", "priors", "schema", "missing")} == {
        name: settings[name] for name in ("family", "priors", "schema", "missing")
    }
    pd.testing.assert_frame_equal(again[1], table)
    by_name = prepared(
        "fit --data breast_cancer --epsilon 1 --formula 'diagnosis ~ `mean radius`' "
        "--family bernoulli"
    )
    assert by_name[0] == "diagnosis ~ `mean radius`"
    assert by_name[1].name == "breast_cancer"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("--formula 'ill ~ nothing'", "formula='ill ~ nothing'"),
        ("--family poisson", "family='poisson': applies only to formulas"),
        ("--formula 'ill ~ age' --prior age", "prior='age': write NAME=PRIOR"),
        ("--formula 'ill ~ age' --trials n", "trials='n'"),
        ("--formula 'ill ~ age' --bounds 0:100", "bounds='0:100': have the name"),
    ],
)
def test_a_formula_from_the_shell_is_refused(command, of_a_formula, changes, message):
    code, out, err = command(*of_a_formula, changes)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "declared",
    some_of(
        [None, {"ill": "bool", "age": "float", "dose": {"kind": "numeric", "low": 0, "high": 200}}]
    ),
)
def test_a_formula_learns_what_a_file_declares_nothing_of(
    command, private_frame, tmp_path, declared
):
    many = pd.concat([private_frame] * 20, ignore_index=True)
    many.to_csv(tmp_path / "clinic.csv", index=False)
    words = ["fit --data", tmp_path / "clinic.csv", "--formula 'ill ~ age + dose'"]
    words += ["--family bernoulli --epsilon 4 --iterations 20 --quiet"]
    if declared is not None:
        (tmp_path / "schema.json").write_text(json.dumps(declared))
        words += ["--schema", tmp_path / "schema.json"]
    code, out, err = command(*words, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "Parameters and posterior" in out
    assert "covered." in out
    result = wb.load(tmp_path / "run")
    declarations = " ".join(result.data["declarations"])
    assert "was learned within the guarantee" in declarations
    assert ("dose" in declarations) is (declared is None)
    code, _, err = command(*words, "--schema", tmp_path / "none.json")
    assert code == 2
    assert "schema=" in err


@pytest.mark.thorough
@pytest.mark.parametrize("label", ["public data", "outside the guarantee"])
def test_metrics_are_printed_with_their_label(command, finished, done, label):
    finished(dataclasses.replace(done, metrics_label=label))
    code, out, _ = command(FIT, "--quiet")
    assert code == 0
    assert f"{label}): " in out
    assert f"auc {done.metrics['auc']:.4f}" in out


@pytest.mark.thorough
def test_a_stopped_fit_exits_with_130_and_says_what_was_spent(command, finished, cancelled):
    finished(cancelled)
    code, out, _ = command(FIT, "--quiet")
    assert code == 130
    assert out.startswith(f"Stopped after {cancelled.guarantee.steps_taken} of 300 steps.")
    assert "The guarantee is still epsilon = 1." in out


@pytest.mark.thorough
def test_a_metric_that_is_not_finite_is_null_in_json(command, finished, done):
    finished(dataclasses.replace(done, metrics={"elbo": float("nan"), "auc": 0.5}))
    code, out, _ = command(FIT, "--quiet --json")
    assert code == 0
    assert json.loads(out)["metrics"] == {"elbo": None, "auc": 0.5}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--epsilon 1e400", "epsilon=inf: "),
        ("--model logistik", "model='logistik': unknown name; did you mean 'logistic'"),
        ("--data brest_cancer", "data='brest_cancer': unknown name; did you mean 'breast_cancer'"),
        ("--split-seed -1", "split_seed=-1: "),
        ("--epsilon one", "argument --epsilon: 'one' is not a number."),
        ("--delta 1/0", "argument --delta: '1/0' is not a number."),
        ("--colour", "unrecognized arguments: --colour"),
    ],
)
def test_an_unusable_argument_is_named_with_its_value_on_one_line(command, options, line):
    assert line in refused(command, FIT, options)


@pytest.mark.parametrize(
    "arguments", ["", "bogus", "fit", "fit --data breast_cancer", "account --delta 1e-5"]
)
def test_a_command_that_is_not_whole_is_refused(command, arguments):
    assert refused(command, arguments).startswith("workbench")


@pytest.mark.parametrize(("text", "value"), [("1/569", 1 / 569), ("1e-5", 1e-5), (".25", 0.25)])
def test_numbers_may_be_written_as_people_do(prepared, text, value):
    assert prepared(FIT, "--delta", text)[2]["delta"] == value


def test_every_option_reaches_the_fit(prepared):
    model, data, settings = prepared(
        "fit --model logistic --data breast_cancer --epsilon 2 --delta 1e-5 "
        "--iterations 70 --sampling-rate .2 --clip 3 --estimator vanilla "
        "--learning-rate .01 --num-records 500 --device cpu --seed 9 "
        "--evaluation-fraction .5 --evaluate-private --average --strategy vmap "
        "--microbatch-size 40 --sampler shuffle --relation replace_special --clipping "
        "per_leaf --batch-size 30 --look .1 --draws 40 --ledger book.sqlite --over-cap "
        "approved --no-checkpoint"
    )
    assert model == "logistic"
    assert data.num_evaluation > 200
    words = settings.pop("origin")["arguments"]
    asked = "--data=breast_cancer --evaluation-fraction=0.5 --epsilon=2 --delta=1e-05"
    assert " ".join(words[:4]) == asked
    assert settings == {
        "epsilon": 2,
        "delta": 1e-5,
        "iterations": 70,
        "sampling_rate": 0.2,
        "sampler": "shuffle",
        "clip": 3,
        "estimator": "vanilla",
        "learning_rate": 0.01,
        "num_records": 500,
        "evaluate_private": True,
        "device": "cpu",
        "seed": 9,
        "average": True,
        "strategy": "vmap",
        "microbatch_size": 40,
        "relation": "replace_special",
        "clipping": "per_leaf",
        "batch_size": 30,
        "ledger": "book.sqlite",
        "over_cap": "approved",
        "checkpoint": False,
        "look": 0.1,
        "draws": 40,
        "private": True,
    }


def test_a_large_seed_is_kept_to_the_last_digit(prepared):
    request_seed = 2**53 + 1
    assert prepared(FIT, "--seed", request_seed)[2]["seed"] == request_seed


@pytest.mark.parametrize("form", ["each", "all", "json", "json for all"])
def test_bounds_may_be_written_in_several_forms(prepared, table, tmp_path, form):
    file = tmp_path / "bounds.json"
    file.write_text(
        json.dumps([0, 200] if form == "json for all" else {"dose": [0, 200], "age": [0, 200]})
    )
    texts = {"each": ["dose=0:200", "age=0:200"], "all": ["0:200"]}.get(form, [file])
    _, data, _ = prepared("fit --data", table, "--target ill --epsilon 1 --bounds", *texts)
    assert data.bounds == {"dose": (0.0, 200.0), "age": (0.0, 200.0)}


def test_features_positive_and_declared_public_reach_the_data(prepared, table):
    _, data, _ = prepared(
        "fit --data",
        table,
        (
            "--target ill --epsilon 1 --bounds age=-5:1e2 --features age --positive False "
            "--evaluation-public"
        ),
    )
    assert data.feature_names == ("age",)
    assert data.bounds == {"age": (-5.0, 100.0)}
    assert data.classes == ("(other)", "False")
    assert data.evaluation_label == "public data"


def test_one_pair_of_bounds_may_begin_with_a_minus(prepared, table):
    _, data, _ = prepared("fit --data", table, "--target ill --epsilon 1 --bounds -1:1")
    assert data.bounds["age"] == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--target ill", "bounds=None: "),
        ("--target iil --bounds 0:200", "target='iil': unknown name; did you mean 'ill'"),
        ("--target ill --bounds dose=0:200", "bounds=['dose']: no bounds for 1 feature(s): age"),
        ("--target ill --bounds dose=0-200", "bounds='dose=0-200': "),
        ("--target ill --bounds dose=0:200 0:100", "bounds='0:100': "),
        (
            "--target ill --bounds age=0:9 dose=0:9 age=0:120",
            "bounds='age=0:120': declares 'age' twice.",
        ),
        (
            "--target ill --bounds 0:200 --positive Yes",
            "positive='Yes': must be a number, because 'ill'",
        ),
        ("--target ill --bounds 200:0", "bounds['dose']=(200.0, 0.0): "),
        ("--target ill --bounds nowhere.json", "bounds='nowhere.json': no such file."),
    ],
)
def test_an_unusable_description_of_a_table_is_refused(command, no_fit, table, options, line):
    assert line in refused(command, "fit --data", table, "--epsilon 1", options)


@pytest.mark.parametrize(
    "options", ["--target ill --bounds 0:200", "--formula 'ill ~ age' --family bernoulli"]
)
def test_a_seed_of_a_split_without_a_split_is_refused(command, table, options):
    asked = ["fit --data", table, "--epsilon 1", options, "--split-seed 3"]
    assert "split_seed=3: says which records are held out, and none are" in refused(command, *asked)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--data breast_cancer --positive Yes", "positive='Yes': is for tables in files: "),
        ("--data breast_cancer --threshold 0", "threshold=0: is for tables in files: "),
        ("--data packed.wbr --missing drop", "missing='drop': is for tables: "),
        ("--data packed.wbr --split-seed 3", "split_seed=3: is for tables: "),
        ("--data packed.wbr --evaluation-fraction 0", "evaluation_fraction=0: is for tables: "),
        (
            "--data t.csv --formula 'ill ~ age' --schema s.json --target ill",
            "target='ill': is not for",
        ),
        (
            "--data t.csv --formula 'ill ~ age' --schema s.json --positive 1",
            "positive='1': is not for",
        ),
        ("--data t.csv --formula 'ill ~ age' --schema s.json --threshold 3", "threshold=3: "),
    ],
)
def test_an_option_of_tables_that_would_be_ignored_is_refused(
    command, no_fit, tmp_path, monkeypatch, options, line
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("s.json").write_text("{}")
    assert line in refused(command, "fit --epsilon 1", options)


@pytest.mark.parametrize(
    "words", [[], ["--formula 'ill ~ age + dose' --family bernoulli --schema s.json"]]
)
def test_a_data_set_is_named_by_its_file_or_by_an_option(
    prepared, table, tmp_path, monkeypatch, words
):
    def named(*words):
        _, data, settings = prepared(*words)
        return settings["name"] if isinstance(data, pd.DataFrame) else data.name

    monkeypatch.chdir(tmp_path)
    numbers = {name: {"kind": "numeric", "low": 0, "high": 120} for name in ("age", "dose")}
    pathlib.Path("s.json").write_text(json.dumps({**numbers, "ill": {"kind": "boolean"}}))
    words = [*(words or ["--target ill --bounds 0:120"]), "--epsilon 1"]
    for file, name in (("données.csv", "données"), (os.fsdecode(b"donn\xe9es.csv"), "donn\\xe9es")):
        table.rename(file)
        assert named("fit", "--data", file, *words) == name
        table = pathlib.Path(file)
    assert named("fit", "--data", table, *words, "--name 'clinic 2026'") == "clinic 2026"
    assert named("fit", "--data", "breast_cancer", "--epsilon", "1", "--name", "mine") == "mine"


def test_a_model_with_a_target_needs_one(command, table):
    line = refused(command, "fit --data", table, "--epsilon 1 --bounds 0:200 --features age")
    assert "has no array 'y', which the model needs (target= names its column)" in line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("age: 0-100", "Expecting value"),
        ('{"age": [0, 1], "age": [0, 120]}', "the key 'age' occurs twice."),
    ],
)
def test_a_bounds_file_that_is_no_json_is_refused(command, no_fit, table, tmp_path, text, reason):
    file = tmp_path / "bounds.json"
    file.write_text(text)
    options = ["--target ill --bounds", file]
    line = refused(command, "fit --data", table, "--epsilon 1", *options)
    assert f"bounds={str(file)!r}: cannot be read as JSON: {reason}" in line


def test_a_missing_file_is_refused(command, no_fit):
    line = refused(command, "fit --data nowhere.csv --target y --bounds 0:1 --epsilon 1")
    assert line == "workbench fit: path='nowhere.csv': no such file.\n"


def test_an_unwritable_folder_is_found_before_the_fit(command, no_fit, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert f"out={str(taken)!r}: cannot write there" in refused(command, FIT, "--out", taken)
    assert taken.read_text() == "mine"


def test_refused_arguments_leave_no_folder(command, tmp_path):
    refused(command, "fit --data breast_cancer --epsilon -1 --out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_caution_is_one_line_on_standard_error(command, finished, ended):
    finished(ended, "delta=0.1 is large.")
    _, out, err = command(FIT, "--quiet --json")
    assert err == "workbench fit: warning: delta=0.1 is large.\n"
    assert json.loads(out)["status"] == "done"


def test_a_note_of_a_finished_fit_is_printed(command, finished, ended):
    finished(dataclasses.replace(ended, message="metrics are missing."))
    code, out, _ = command(FIT, "--quiet")
    assert code == 0
    assert out.startswith("Note: metrics are missing.")


def test_a_failed_fit_exits_with_one_and_its_reason(command, finished, ended):
    finished(dataclasses.replace(ended, status="failed", message="it ran away."))
    code, out, _ = command(FIT, "--quiet")
    assert code == 1
    assert out.startswith("Failed: it ran away.")
    assert ended.guarantee.statement() in out


def test_interrupting_the_preparation_spends_nothing(command, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fits, "prepare", interrupt)
    code, out, err = command(FIT)
    assert (code, out) == (130, "")
    assert "no epsilon spent" in err


def account(command, *arguments, drawn=None):
    code, out, err = command("account", *arguments, "--delta 1e-5 --iterations 1000 --json")
    assert (code, err) == (0, "" if drawn is None else f"Saved: {drawn}\n")
    assert out.count("\n") == 1
    return json.loads(out)


def test_account_finds_epsilon_from_noise_the_curve_and_what_an_attacker_can_do(command):
    answer = account(command, "--noise-multiplier 2 --sampling-rate .01 --unit patient")
    assert answer["unit"] == "patient"
    exact = wb.privacy.epsilon(sampling_rate=0.01, noise_multiplier=2.0, steps=1000, delta=1e-5)
    assert exact <= answer["epsilon"] <= exact + 1e-5
    assert (answer["noise_multiplier"], answer["steps"], answer["delta"]) == (2.0, 1000, 1e-5)
    assert answer["relation"] == "add_or_remove_one"
    assert answer["curve"][-1] == [1000, pytest.approx(answer["epsilon"], abs=1e-3)]
    shares = [answer[f"true_positive_rate_at_{percent}_percent"] for percent in (1, 10)]
    assert 0.01 < shares[0] < shares[1] < 1


def test_account_finds_noise_from_epsilon(command):
    answer = account(command, "--epsilon 1 --sampling-rate .01")
    assert 0.98 < answer["epsilon"] <= 1
    back = account(command, "--noise-multiplier", answer["noise_multiplier"], "--sampling-rate .01")
    assert back["epsilon"] == answer["epsilon"]


def test_account_tells_what_the_best_of_several_runs_costs(command):
    plan = "--sampling-rate 1 --best-of 20"
    answer = account(command, "--noise-multiplier 82", plan)
    one = account(command, "--noise-multiplier 82 --sampling-rate 1")["epsilon"]
    assert answer["epsilon_of_one_run"] == pytest.approx(one, rel=1e-4)
    assert 1.3 * one < answer["epsilon"] < 1.7 * one
    assert (answer["mean_runs"], answer["most_runs"]) == (20, 200)
    noise = account(command, "--epsilon 1", plan)["noise_multiplier"]
    back = account(command, "--noise-multiplier", noise, plan)
    assert 0.999 < back["epsilon"] <= 1
    code, out, _ = command(
        "account --noise-multiplier 8.2 --delta 1e-3 --iterations 10 --best-of 5"
    )
    assert code == 0
    assert re.search(r"^mean runs +5\.0$", out, re.MULTILINE)


def test_account_prints_a_table_for_people(command):
    code, out, _ = command("account --noise-multiplier 2 --delta 1e-5 --iterations 10")
    assert code == 0
    facts, _, curve = out.partition("\n\n")
    shown = dict(re.split(r"  +", line) for line in facts.splitlines())
    assert float(shown["epsilon"]) > 0
    assert (shown["noise multiplier"], shown["steps"], shown["relation"]) == (
        "2.0",
        "10",
        "add_or_remove_one",
    )
    steps, epsilon, bar = curve.splitlines()[-1].split()
    assert (steps, len(bar)) == ("10", 40)
    assert float(epsilon) == pytest.approx(float(shown["epsilon"]), rel=1e-3, abs=1e-3)


def test_account_finds_the_most_steps(command):
    code, out, _ = command(
        "account --epsilon 1 --noise-multiplier 2 --delta 1e-5 --sampling-rate .05 --json"
    )
    answer = json.loads(out)
    assert code == 0
    assert answer["epsilon"] <= 1
    more = wb.privacy.epsilon(
        sampling_rate=0.05, noise_multiplier=2.0, steps=answer["steps"] + 1, delta=1e-5
    )
    assert more > 1


@pytest.mark.parametrize(("steps", "is_said"), [(10**9, True), (1000, False)])
def test_account_says_that_a_search_takes_long_before_it_begins(
    command, monkeypatch, steps, is_said
):
    from workbench.privacy import calibration

    def find(**_):
        raise ArgumentError("epsilon", 1, "looked for.")

    monkeypatch.setattr(calibration, "max_sampling_rate", find)
    _, _, err = command(
        "account --epsilon", 1, "--delta", 1e-5, "--noise-multiplier", 2, "--iterations", steps
    )
    assert ("1,000,000,000 steps may take some minutes." in err) == is_said


def test_account_finds_the_largest_sampling_rate(command):
    answer = account(command, "--epsilon 1 --noise-multiplier 2")
    assert answer["epsilon"] <= 1
    assert 0.005 < answer["sampling_rate"] < 0.05


def test_account_takes_samplers_relations_and_accountants(command):
    answer = account(
        command,
        "--noise-multiplier 20 --sampler shuffle --relation replace_special --accountant rdp",
    )
    exact = wb.privacy.epsilon(
        sampler="shuffle",
        relation="replace_special",
        accountant="rdp",
        sampling_rate=0.1,
        noise_multiplier=20.0,
        steps=1000,
        delta=1e-5,
    )
    assert exact <= answer["epsilon"] <= exact + 1e-5
    assert (answer["relation"], answer["accountant"]) == ("replace_special", "rdp")


def test_account_takes_random_allocation(command):
    answer = account(command, "--noise-multiplier 2 --sampler random_allocation")
    exact = wb.privacy.epsilon(
        sampler="random_allocation", sampling_rate=0.1, noise_multiplier=2.0, steps=1000, delta=1e-5
    )
    assert exact <= answer["epsilon"] <= exact + 1e-5
    assert answer["relation"] == "add_or_remove_one"


@pytest.mark.thorough
def test_account_compares_samplers_and_accountants_and_draws(command, tmp_path):
    plan = ["--noise-multiplier 6 --sampling-rate .01 --iterations 1000 --delta 1e-5"]
    figure = tmp_path / "comparison.png"
    code, out, err = command("account", *plan, "--compare --figure", figure)
    assert (code, err) == (0, f"Saved: {figure}\n")
    assert figure.read_bytes().startswith(b"\x89PNG")
    rows = [line.split() for line in out.splitlines()]
    assert ["poisson", "add_or_remove_one", "pld", "0.1724"] in [row[:4] for row in rows]
    code, out, _ = command("account", *plan, "--compare --json")
    assert len(json.loads(out)["rows"]) == len(rows) - 1


def test_account_draws_the_curve(command, tmp_path):
    figure = tmp_path / "curve.png"
    account(
        command,
        "--noise-multiplier 2 --figure",
        figure,
        "--relation add_or_remove_one",
        drawn=figure,
    )
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--noise-multiplier 2 --epsilon 1 --sampling-rate .1", "leave out one of"),
        ("--noise-multiplier 2 --relation replace_one", "relation='replace_one': "),
        ("--noise-multiplier 2 --best-of .5", "best_of=0.5: must be a finite number greater than"),
        ("--noise-multiplier 2 --best-of 9 --compare", "best_of=9: has no --figure, --compare"),
        ("--epsilon 1 --best-of 9 --sampling-rate .1 --noise-multiplier 2", "leave out one"),
        ("--noise-multiplier 2 --accountant fourier --sampling-rate 1", "not defined at q = 1"),
        ("--noise-multiplier 2 --figure curve.pdf", "figure='curve.pdf': must end in .png"),
        ("--noise-multiplier 2 --figure /no/such/curve.png", "cannot write there"),
        ("", "epsilon=None: give --epsilon, or --noise-multiplier too"),
    ],
)
def test_account_refuses_what_it_cannot_use(command, options, line):
    assert line in refused(command, "account --delta 1e-5 --iterations 10", options)


# ---- audit ---------------------------------------------------------------------------------------

AUDIT = "audit --trials 400 --iterations 3 --epsilon 0.5 --seed 1"


@pytest.fixture
def audited(command, monkeypatch):
    """Runs the command with a stand-in for the audit: (what it answered, what the audit was asked
    for).
    """

    def run(lower_bound, *options):
        asked = {}

        def stand_in(model, data, **settings):
            asked.update(settings, model=model, data=data)
            return auditing.AuditResult(
                model="logistic",
                data="made for the audit",
                claimed_epsilon=0.5,
                delta=0.01,
                relation="add_or_remove_one",
                sampler="poisson",
                sampling_rate=0.5,
                noise_multiplier=4.0,
                iterations=3,
                mode="many_runs",
                canaries=1,
                trials=400,
                lower_bound=lower_bound,
                confidence=0.95,
                score="alignment",
                evidence="counts",
                bug=None,
            )

        monkeypatch.setattr(auditing, "audit", stand_in)
        return command(AUDIT, *options), asked

    return run


def test_an_audit_that_refutes_nothing_ends_well(audited):
    (code, out, err), asked = audited(0.4)
    assert code == 0
    assert "no violation of epsilon = 0.5" in out
    assert err == "workbench audit: running the steps of a fit on canaries...\n"
    assert (asked["model"], asked["data"], asked["sampling_rate"], asked["bug"]) == (
        "logistic",
        None,
        0.5,
        None,
    )
    assert (asked["trials"], asked["iterations"], asked["epsilon"], asked["seed"]) == (
        400,
        3,
        0.5,
        1,
    )
    assert (asked["strategy"], asked["parts"]) == ("auto", auditing.PARTS)


def test_an_audit_that_refutes_the_promise_fails(audited):
    (code, out, _), asked = audited(
        0.6,
        (
            "--bug no_clipping --json --sampler shuffle --num-canaries 50 --mode one_run "
            "--parts attack accountant --strategy vmap"
        ),
    )
    answer = json.loads(out)
    assert code == 1
    assert not answer["passed"]
    assert answer["lower_bound"] > answer["claimed_epsilon"] == 0.5
    assert (asked["bug"], asked["sampler"], asked["num_canaries"], asked["mode"]) == (
        "no_clipping",
        "shuffle",
        50,
        "one_run",
    )
    assert (asked["strategy"], asked["parts"]) == ("vmap", ["attack", "accountant"])


def test_planted_bugs_and_parts_are_named_in_the_help(command):
    _, out, _ = command("audit --help")
    named = set(out.replace(",", " ").replace("(", " ").split())
    assert {*auditing.PLANTED_BUGS, *auditing.PARTS} <= named


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--bug typo", "bug='typo': "),
        ("--parts typo", "parts='typo': "),
        ("--mode often", "mode='often': "),
        ("--trials 5", "trials=5: "),
        ("--epsilon 0", "epsilon=0: "),
        ("--sampler shuffle --bug realised_size", "changes nothing where"),
    ],
)
def test_audit_refuses_what_it_cannot_use(command, options, line):
    code, _, err = command(AUDIT, options)
    assert code == 2
    assert line in err.splitlines()[-1]


MODEL_FILE = """
import numpyro
import numpyro.distributions as dist
from workbench.models import register


def counts(x, y=None, num_records=None, prior_scale=1.0):
    "Counts of events."
    rate = numpyro.sample("rate", dist.LogNormal(0.0, prior_scale))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


# register
"""


@pytest.fixture
def gallery(monkeypatch):
    """What a test registers is forgotten afterwards."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(registry, "_warned", set())


@pytest.fixture
def plugins(gallery, tmp_path, monkeypatch):
    """An installed distribution with a model that works, one that fails to load, and one with a
    built-in name.
    """
    metadata = tmp_path / "plugins-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    points = (
        "counts = plugin_of_cli:counts",
        "broken = plugin_of_cli:missing",
        "logistic = plugin_of_cli:counts",
    )
    (metadata / "entry_points.txt").write_text("\n".join(["[workbench.models]", *points]))
    (tmp_path / "plugin_of_cli.py").write_text(MODEL_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("plugin_of_cli", None)


@pytest.fixture
def model_file(gallery, tmp_path, monkeypatch):
    """Writes a model file into the working folder; the text takes the place of its last line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text):
        (tmp_path / "my_model.py").write_text(MODEL_FILE.replace("# register", text))

    return write


def test_models_are_listed(command, gallery):
    wb.models.register(
        "mine", lambda: dataclasses.replace(wb.models.get("logistic"), summary="Mine.", options={})
    )
    code, out, _ = command("models")
    assert code == 0
    *lines, last = out.splitlines()
    assert [line.split(":")[0] for line in lines] == wb.models.names()
    assert "mine: Mine. Origin: registered here." in lines
    assert any(
        line.startswith("logistic: ") and "prior_scale=5.0" in line and "built-in" in line
        for line in lines
    )
    assert "--model FILE.py" in last
    listed = json.loads(command("models --json")[1])
    assert list(listed) == wb.models.names()
    assert listed["logistic"]["options"] == {
        "prior_scale": 5.0,
        "prior": "normal",
        "intercept": True,
    }
    assert listed["mine"] == {"summary": "Mine.", "options": {}, "origin": "registered here"}


def test_models_of_distributions_are_listed_beside_those_that_fail(command, plugins):
    code, out, err = command("models")
    assert code == 0
    assert "counts: Counts of events. Options: prior_scale=1.0. Origin: plugins.\n" in out
    assert (
        "broken: unusable: the distribution 'plugins' declares it as plugin_of_cli:missing, "
        "which fails: Attr" in out
    )
    assert re.fullmatch(
        r"workbench models: warning: the model 'logistic' of plugins is left out: .*\n", err
    )
    listed = json.loads(command("models --json")[1])
    assert (listed["counts"]["origin"], listed["counts"]["options"]) == (
        "plugins",
        {"prior_scale": 1.0},
    )
    assert listed["broken"]["origin"] == "plugins"
    assert "AttributeError" in listed["broken"]["error"]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("register('events', counts)", "my_model.py"),
        ("register('events', counts)", "./my_model.py:events"),
        ("events = counts", "my_model.py:events"),
    ],
)
def test_a_model_may_come_from_a_file(prepared, model_file, text, model):
    model_file(text)
    found = prepared(FIT, "--model", model)[0]
    assert (found.name, found.summary, found.options) == (
        "events",
        "Counts of events.",
        {"prior_scale": 1.0},
    )


@pytest.mark.parametrize(
    ("text", "model", "line"),
    [
        ("", "nowhere.py", "model='nowhere.py': no such file."),
        ("", "nowhere.py:events", "model='nowhere.py:events': no such file."),
        (
            "",
            "my_model.py",
            "the file registers no model and holds none; choose one with my_model.py:NAME",
        ),
        ("", "my_model.py:count", "model='count': unknown name; did you mean 'counts'"),
        (
            "raise ValueError('bad luck')",
            "my_model.py",
            "the file fails in line 14: ValueError: bad luck.",
        ),
        (
            "import no_such_thing",
            "my_model.py",
            "ModuleNotFoundError: No module named 'no_such_thing'.",
        ),
        ("def f(:", "my_model.py", "the file fails in line 14: SyntaxError: "),
        (
            "register('logistic', counts)",
            "my_model.py",
            "name='logistic': is the name of a built-in model",
        ),
    ],
)
def test_a_model_file_that_cannot_be_used_is_refused(
    command, no_fit, model_file, text, model, line
):
    model_file(text)
    assert line in refused(command, FIT, "--model", model)


def test_a_broken_model_of_a_distribution_is_refused(command, plugins):
    with pytest.warns(UserWarning, match="'logistic' of plugins is left out"):
        assert "model='broken': the distribution 'plugins' declares it" in refused(
            command, FIT, "--model broken"
        )


def test_help_says_that_a_model_file_is_run(command):
    assert "the file is run" in " ".join(command("fit --help")[1].split())


def test_data_sets_are_listed(command):
    code, out, _ = command("data")
    assert code == 0
    assert wb.data.describe("breast_cancer") in out
    listed = json.loads(command("data --json")[1])
    assert list(listed) == wb.data.all_names()
    assert listed["adult"]["licence"] == "CC BY 4.0"


def wait_for(file, text, process):
    deadline = time.monotonic() + 120
    while text not in file.read_text():
        assert process.poll() is None, file.read_text()
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.1)


@pytest.mark.integration
def test_ctrl_c_keeps_the_partial_result(tmp_path):
    folder, progress = tmp_path / "run", tmp_path / "progress"
    settings = ["--iterations 5000000 --json --out", str(folder)]
    with open(progress, "w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench", *shell_words(FIT, *settings)],
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            wait_for(progress, "fitting", process)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130
    answer = json.loads(out)
    guarantee = answer["guarantee"]
    assert answer["status"] == "cancelled"
    assert 0 < guarantee["steps_taken"] < 5_000_000
    assert guarantee["epsilon_taken"] < guarantee["epsilon"] == 1.0
    assert {file.name for file in folder.iterdir()} == FILES
    assert wb.load(folder).status == "cancelled"
    assert "the partial result is kept" in progress.read_text()
    assert "Traceback" not in progress.read_text()


@pytest.mark.thorough
def test_a_result_that_cannot_be_saved_is_saved_elsewhere(
    command, finished, done, tmp_path, monkeypatch
):
    finished(done)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    save = FitResult.save

    def full(self, folder):
        if pathlib.Path(folder) == tmp_path / "run":
            raise OSError(28, "No space left on device")
        return save(self, folder)

    monkeypatch.setattr(FitResult, "save", full)
    code, out, err = command(FIT, "--quiet --json --out", tmp_path / "run")
    assert code == 1
    assert json.loads(out)["out"] is None
    assert err.startswith(
        f"workbench fit: cannot save in {tmp_path / 'run'} (OSError: [Errno 28] No space left on "
        "device). "
    )
    place = re.search(r"It was saved in (\S+) instead", err)[1]
    assert wb.load(place).guarantee == done.guarantee


@pytest.mark.thorough
@pytest.mark.filterwarnings("default::workbench.results.storage.SaveWarning")
def test_only_files_that_were_saved_are_listed(command, finished, done, tmp_path, monkeypatch):
    finished(done)
    code, out, _ = command(FIT, "--quiet --out", tmp_path)
    assert code == 0
    assert (
        f"\nSaved: {tmp_path / 'report.html'} (and result.json, posterior.nc, curves.png)\n" in out
    )
    monkeypatch.setattr(
        FitResult, "report", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    code, out, err = command(FIT, "--quiet --out", tmp_path)
    assert code == 0
    assert "report.html could not be saved" in err
    assert f"\nSaved: {tmp_path / 'result.json'} (and posterior.nc, curves.png)\n" in out


@pytest.mark.thorough
def test_a_result_that_cannot_be_saved_can_be_resumed_for(command, place, monkeypatch):
    """The line that the error says gives the release, which was spent on, without
    spending again.
    """
    save = FitResult.save
    monkeypatch.setattr(
        FitResult, "save", lambda *_: (_ for _ in ()).throw(ValueError("a name\nthat breaks it"))
    )
    words = ["--data clinic.csv --target ill --bounds dose=0:200 age=0:100 --epsilon 1"]
    code, _, err = command("fit", *words, "--iterations 20 --quiet --out", place / "run")
    assert code == 1
    monkeypatch.setattr(FitResult, "save", save)
    line = re.search(r"To save it: workbench (resume .*) --out FOLDER", err)[1]
    spends = Ledger().spends()
    code, _, err = command(line, "--quiet --out", place / "other")
    assert code == 0, err
    assert wb.load(place / "other").status == "done"
    assert Ledger().spends() == spends or [each.counted for each in Ledger().spends()] == [
        each.counted for each in spends
    ]


@pytest.mark.thorough
def test_a_fit_that_was_stopped_before_its_first_step_replaces_no_result(
    command, finished, cancelled, done, tmp_path
):
    done.save(tmp_path)
    guarantee = dataclasses.replace(cancelled.guarantee, steps_taken=0, epsilon_taken=0.0)
    finished(dataclasses.replace(cancelled, guarantee=guarantee))
    code, _, err = command(FIT, "--quiet --out", tmp_path)
    assert code == 130
    assert "nothing is saved" in err
    assert "kept" not in err
    assert wb.load(tmp_path).status == "done"
    code, _, err = command(FIT, "--quiet")
    assert (code, err) == (
        130,
        "workbench fit: stopped before the first step: there is no result.\n",
    )


@pytest.mark.thorough
def test_a_partial_result_is_said_to_be_kept_where_it_is(command, finished, cancelled, tmp_path):
    finished(cancelled)
    code, _, err = command(FIT, "--quiet --out", tmp_path / "run")
    assert (code, err) == (130, "workbench fit: stopped; the partial result is kept.\n")
    assert command(FIT, "--quiet")[::2] == (130, "")  # neither saved nor in a checkpoint


def test_the_command_starts_without_the_libraries_that_its_work_needs():
    """``workbench --help`` and a wrong option are answered at once."""
    script = (
        "import sys, workbench.cli.main; print(sorted({'numpy', 'jax', 'pandas', 'scipy'} & "
        "sys.modules.keys()))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


# ---- where a command cannot go on ----------------------------------------------------------------


def begun(*words, stdout, **environment):
    """The process of a command, with its standard error in a pipe."""
    environment = {**os.environ, **environment}
    command = [sys.executable, "-m", "workbench", *shell_words(*words)]
    return subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, env=environment, text=True
    )


@pytest.mark.parametrize("where", ["closed", "full"])
def test_output_that_cannot_be_written_is_said_on_one_line(where):
    if where == "full":
        if not os.path.exists("/dev/full"):
            pytest.skip("no /dev/full")
        with open("/dev/full", "w") as full:
            process = begun("data", stdout=full)
        reason = "No space left on device"
    else:
        reading, writing = os.pipe()
        os.close(reading)
        process = begun("data", stdout=writing)
        os.close(writing)
        reason = "Broken pipe"
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (
        1,
        f"workbench data: cannot write to standard output: {reason}.\n",
    )


def test_a_device_that_there_is_not_is_said_on_one_line(table):
    words = "--target ill --bounds age=0:120 dose=0:200 --epsilon 1 --quiet --no-ledger"
    process = begun("fit --data", table, words, stdout=subprocess.PIPE, JAX_PLATFORMS="tpu")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("workbench fit: JAX starts no device of JAX_PLATFORMS='tpu': ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--bounds age=0:120 --bounds age=0:100", "declares 'age' twice"),
        (
            "--bounds age=0:9 --option prior_scale=2 --option prior_scale=3",
            "sets 'prior_scale' twice",
        ),
        ("--bounds age=0:9 --option prior_scale=2 prior_scale=3", "sets 'prior_scale' twice"),
    ],
)
def test_what_is_declared_twice_is_refused(command, no_fit, table, options, reason):
    line = refused(command, "fit --data", table, "--epsilon 1 --target ill", options)
    assert reason in line


def test_an_option_of_several_values_may_be_given_several_times():
    arguments = main.parser().parse_args(
        shell_words("fit --data a.csv --bounds age=0:120 --bounds stay=0:90 dose=0:5")
    )
    assert arguments.bounds == ["age=0:120", "stay=0:90", "dose=0:5"]


def test_names_are_utf_8_where_the_locale_knows_no_accents():
    text = os.fsdecode("âge=0:120".encode())
    assert shell.bounds([text]) == {"âge": (0.0, 120.0)}
    mangled = "âge".encode().decode("ascii", "surrogateescape")
    # twice: what a resumed fit was asked for has been read before
    program = (
        "from workbench.cli.shell import words\n"
        f"print(ascii(words({mangled!r})), ascii(words(words({mangled!r}))))"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [ascii("âge")] * 2
