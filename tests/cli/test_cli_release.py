"""The commands that use a saved result, and the options that describe models and tables."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS, refused, shell_words
from workbench.cli import main

SCHEMA = {
    "age": {"kind": "numeric", "low": 0, "high": 100},
    "ward": {"kind": "categorical", "categories": ["a", "b", "c"]},
}
QUIET = "--epsilon 8 --delta 1e-3 --iterations 30 --seed 1 --quiet"


@pytest.fixture(scope="module")
def people():
    random = np.random.default_rng(5)
    ages = random.uniform(20, 90, 300)
    ill = random.random(300) < 1 / (1 + np.exp((55 - ages) / 8))
    hospital = random.choice(["north", "south"], 300)
    return pd.DataFrame(
        {
            "age": ages,
            "ward": random.choice(list("abc"), 300),
            "hospital": hospital,
            "ill": ill.astype(int),
        }
    )


@pytest.fixture(scope="module", params=EITHER_STEPS)
def files(people, tmp_path_factory, request):
    """A folder with the table, its schema, public facts about its hospitals, and a saved fit."""
    folder = tmp_path_factory.mktemp("tables")
    people.to_csv(folder / "people.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "hospitals.csv").write_text("hospital,beds\nnorth,3\nsouth,1\n")
    table = [
        "--data",
        str(folder / "people.csv"),
        "--target ill --schema",
        str(folder / "schema.json"),
    ]
    with fakes.installed(request.param == "made up"):
        assert (
            main.main(
                shell_words("fit", *table, "--features age ward", QUIET, "--out", folder / "run")
            )
            == 0
        )
    return folder


def test_predictions_stand_beside_the_records(command, files, people):
    code, out, err = command("predict", files / "run", files / "people.csv")
    table = pd.read_csv(io.StringIO(out))
    assert (code, err) == (0, "")
    assert list(table.columns) == [*people.columns, "prediction"]
    assert table["prediction"].to_numpy() == pytest.approx(
        wb.load(files / "run").predict(people), abs=1e-6
    )


def test_synthetic_records_are_drawn_for_given_inputs(command, files):
    drawn = files / "twin.csv"
    arguments = ["sample", files / "run", "--given", files / "people.csv", "--seed 3"]
    code, out, err = command(*arguments, "--out", drawn)
    assert (code, out, err) == (0, "", f"Saved: {drawn}\n")
    table = pd.read_csv(drawn)
    assert list(table.columns) == ["age", "ward", "ill"]
    assert len(table) == 300
    assert command(*arguments)[1] == drawn.read_text()


@pytest.mark.thorough
def test_a_mixture_draws_whole_records_and_images_go_to_an_array_file(command, tmp_path):
    three = ["--option num_components=3 --out", tmp_path / "m"]
    assert command("fit --model gmm --data mixture", QUIET, *three)[0] == 0
    code, out, _ = command("sample", tmp_path / "m", "--count 7")
    assert code == 0
    assert pd.read_csv(io.StringIO(out)).shape == (7, 2)
    assert wb.load(tmp_path / "m").model_options["num_components"] == 3
    assert command("fit --model vae --data digits", QUIET, "--out", tmp_path / "v")[0] == 0
    assert command("sample", tmp_path / "v", "--count 2 --out", tmp_path / "v.npy")[0] == 0
    assert np.load(tmp_path / "v.npy").shape == (2, 8, 8)
    code, _, err = command("sample", tmp_path / "v", "--count 2")
    assert (code, "out=None: these records are images: name a .npy file." in err) == (2, True)


@pytest.mark.thorough
def test_groups_of_a_file_reach_the_hierarchical_model(command, files, tmp_path):
    table = ["--data", files / "people.csv", "--target ill --features age --bounds 0:100"]
    groups = ["--group hospital --group-features", files / "hospitals.csv"]
    code, _, err = command(
        "fit --model hierarchical_logistic", *table, *groups, QUIET, "--out", tmp_path / "h"
    )
    assert (code, err) == (0, "")
    result = wb.load(tmp_path / "h")
    assert result.data["groups"] == ["north", "south"]
    assert result.draws["group_weights"].shape[1:] == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("predict nowhere people.csv", "folder='nowhere': holds no saved result"),
        ("predict run none.csv", "records='none.csv': no such file."),
        ("sample run --count 0", "count=0: "),
        ("sample run --out no/such/folder.csv", "out='no/such/folder.csv': cannot write there."),
        ("sample run", "as in --given FILE.csv."),
        ("sample run --given none.csv", "given='none.csv': no such file."),
        (
            "fit --data mixture --epsilon 1 --option prior_scale",
            "option='prior_scale': write NAME=VALUE",
        ),
        (
            "fit --data mixture --epsilon 1 --option colour=red",
            "colour='red': unknown option of 'logistic'",
        ),
        ("fit --data mixture --epsilon 1", "has no array 'y', which the model needs"),
        ("fit --data fashion_mnist --path none --epsilon 1", "none"),
        (
            "fit --data people.csv --epsilon 1 --schema none.json",
            "schema='none.json': no such file.",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(command, files, monkeypatch, arguments, line):
    monkeypatch.chdir(files)
    code, out, err = command(arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_texts_of_records_are_no_formulas_in_a_spreadsheet(command, files, people, tmp_path):
    note = ["=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-2+3", "-4", "fine"] * 50
    people.assign(**{"=note": note}).to_csv(tmp_path / "notes.csv", index=False)
    code, out, _ = command("predict", files / "run", tmp_path / "notes.csv")
    table = pd.read_csv(io.StringIO(out), dtype=str)
    assert code == 0
    assert list(table["'=note"][:6]) == [
        "'=cmd|' /C calc'!A0",
        "'+1+1",
        "'@SUM(A1)",
        "'-2+3",
        "-4",
        "fine",
    ]
    assert not any(
        str(cell).startswith(("=", "+", "@"))
        for column in table
        for cell in (column, *table[column])
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("made_up_steps")
def test_drawn_records_with_a_class_like_a_formula_are_texts(command, people, tmp_path):
    risky = people.assign(ill=np.where(people["ill"] == 1, "=1+1", "no"))
    risky.to_csv(tmp_path / "risky.csv", index=False)
    words = ["--data", tmp_path / "risky.csv", "--target ill --positive =1+1 --features age"]
    assert command("fit", *words, "--bounds 0:100", QUIET, "--out", tmp_path / "run")[0] == 0
    given = tmp_path / "given.csv"
    people[["age"]].to_csv(given, index=False)
    code, out, err = command("sample", tmp_path / "run", "--given", given, "--seed 1")
    assert (code, err) == (0, "")
    assert set(pd.read_csv(io.StringIO(out))["ill"]) <= {"'=1+1", "(other)"}
    assert "'=1+1" in out


@pytest.mark.parametrize("count", ["1e12", "1000000000000", "1e300", str(10**400)])
def test_more_records_than_fit_into_memory_are_refused_at_once(command, files, count):
    code, out, err = command("sample", files / "run", "--count", count)
    assert (code, out) == (2, "")
    assert err.startswith("workbench sample: count=")
    assert err.count("\n") == 1


@pytest.mark.parametrize("seed", [str(2**64), str(2**63), "1" * 5000])
def test_a_seed_that_nothing_can_hold_is_refused(command, files, seed):
    for words in (
        ["sample", files / "run", "--given", files / "people.csv"],
        ["fit --data breast_cancer --epsilon 1"],
    ):
        code, out, err = command(*words, "--seed", seed)
        assert (code, out) == (2, "")
        assert "seed" in err
        assert err.count("\n") == 1
        assert len(err) < 1000


def test_json_in_json_in_json_is_refused(command, tmp_path):
    deep = "[" * 100_000
    (tmp_path / "deep.json").write_text(deep)
    (tmp_path / "people.csv").write_text("age,ill\n1,0\n")
    table = ["fit --data", tmp_path / "people.csv", "--target ill --epsilon 1"]
    for words in (
        [*table, "--schema", tmp_path / "deep.json"],
        [*table, "--bounds", tmp_path / "deep.json"],
        ["fit --data breast_cancer --epsilon 1 --option", f"prior_scale={deep}"],
        ["sweep", tmp_path / "deep.json"],
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert "is nested" in err
        assert "deep" in err
        assert err.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_some_letters_gets_the_others(files, tmp_path, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}

    def run(*words):
        command = [sys.executable, "-m", "workbench", *shell_words(*words)]
        return subprocess.run(command, capture_output=True, env=environment, timeout=300)

    account = "account --noise-multiplier 2 --delta 1e-5 --iterations 100"
    for words in (account, "models", "data", "fit --data né.csv --epsilon 1"):
        answer = run(words)
        assert answer.returncode in (0, 2)
        assert b"Traceback" not in answer.stderr
    table = pd.DataFrame({"age": [30.0], "ward": ["a"], "név": ["∑"]})
    table.to_csv(tmp_path / "given.csv", index=False)
    answer = run("predict", files / "run", tmp_path / "given.csv")
    assert answer.returncode == 2
    assert b"standard output is" in answer.stderr
    assert (
        run(
            "predict", files / "run", tmp_path / "given.csv", "--out", tmp_path / "out.csv"
        ).returncode
        == 0
    )
    assert "∑" in (tmp_path / "out.csv").read_text("utf-8")


def test_groups_that_were_not_declared_are_predicted_where_asked(command, files, people):
    public = ["--data", files / "people.csv", "--schema", files / "grouped.json"]
    hospitals = {"kind": "categorical", "categories": ["north", "south"]}
    (files / "grouped.json").write_text(json.dumps({**SCHEMA, "hospital": hospitals}))
    formula = "--formula 'ill ~ age + (1 | hospital)' --family bernoulli --no-ledger"
    with fakes.installed():
        assert command("fit", formula, *public, QUIET, "--look 0 --out", files / "grouped")[0] == 0
    people.head(3).assign(hospital=["north", "west", None]).to_csv(files / "new.csv", index=False)
    predict = ["predict", files / "grouped", files / "new.csv"]
    assert "--new-groups" in refused(command(*predict))
    code, out, _ = command(*predict, "--new-groups")
    assert code == 0
    assert pd.read_csv(io.StringIO(out))["prediction"].between(0, 1).all()
    sample = ["sample", files / "grouped", "--seed 1 --given", files / "new.csv"]
    assert "--new-groups" in refused(command(*sample))
    assert command(*sample, "--new-groups")[0] == 0
