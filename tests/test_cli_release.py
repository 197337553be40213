"""The commands that use a saved result, and the options that describe models and tables."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import cli

SCHEMA = {"age": {"kind": "numeric", "low": 0, "high": 100}, "ward": {"kind": "categorical", "categories": ["a", "b", "c"]}}
QUIET = ["--epsilon", "8", "--delta", "1e-3", "--iterations", "30", "--seed", "1", "--quiet"]


@pytest.fixture(scope="module")
def people():
    random = np.random.default_rng(5)
    ages = random.uniform(20, 90, 300)
    ill = random.random(300) < 1 / (1 + np.exp((55 - ages) / 8))
    hospital = random.choice(["north", "south"], 300)
    return pd.DataFrame({"age": ages, "ward": random.choice(list("abc"), 300), "hospital": hospital, "ill": ill.astype(int)})


@pytest.fixture(scope="module")
def files(people, tmp_path_factory):
    """A folder with the table, its schema, public facts about its hospitals, and a saved fit."""
    folder = tmp_path_factory.mktemp("tables")
    people.to_csv(folder / "people.csv", index=False)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "hospitals.csv").write_text("hospital,beds\nnorth,3\nsouth,1\n")
    table = ["--data", str(folder / "people.csv"), "--target", "ill", "--schema", str(folder / "schema.json")]
    assert cli.main(["fit", *table, "--features", "age", "ward", *QUIET, "--out", str(folder / "run")]) == 0
    return folder


def test_predictions_stand_beside_the_records(command, files, people):
    code, out, err = command("predict", files / "run", files / "people.csv")
    table = pd.read_csv(io.StringIO(out))
    assert (code, err) == (0, "")
    assert list(table.columns) == [*people.columns, "prediction"]
    assert table["prediction"].to_numpy() == pytest.approx(wb.load(files / "run").predict(people), abs=1e-6)


def test_synthetic_records_are_drawn_for_given_inputs(command, files):
    drawn = files / "twin.csv"
    arguments = ["sample", files / "run", "--given", files / "people.csv", "--seed", "3"]
    code, out, err = command(*arguments, "--out", drawn)
    assert (code, out, err) == (0, "", f"Saved: {drawn}\n")
    table = pd.read_csv(drawn)
    assert list(table.columns) == ["age", "ward", "ill"]
    assert len(table) == 300
    assert command(*arguments)[1] == drawn.read_text()


@pytest.mark.slow
def test_a_mixture_draws_whole_records_and_images_go_to_an_array_file(command, tmp_path):
    three = ["--option", "num_components=3", "--out", tmp_path / "m"]
    assert command("fit", "--model", "gmm", "--data", "mixture", *QUIET, *three)[0] == 0
    code, out, _ = command("sample", tmp_path / "m", "--count", "7")
    assert code == 0
    assert pd.read_csv(io.StringIO(out)).shape == (7, 2)
    assert wb.load(tmp_path / "m").model_options["num_components"] == 3
    assert command("fit", "--model", "vae", "--data", "digits", *QUIET, "--out", tmp_path / "v")[0] == 0
    assert command("sample", tmp_path / "v", "--count", "2", "--out", tmp_path / "v.npy")[0] == 0
    assert np.load(tmp_path / "v.npy").shape == (2, 8, 8)
    code, _, err = command("sample", tmp_path / "v", "--count", "2")
    assert (code, "out=None: these records are images: name a .npy file." in err) == (2, True)


@pytest.mark.slow
def test_groups_of_a_file_reach_the_hierarchical_model(command, files, tmp_path):
    table = ["--data", files / "people.csv", "--target", "ill", "--features", "age", "--bounds", "0:100"]
    groups = ["--group", "hospital", "--group-features", files / "hospitals.csv"]
    code, _, err = command("fit", "--model", "hierarchical_logistic", *table, *groups, *QUIET, "--out", tmp_path / "h")
    assert (code, err) == (0, "")
    result = wb.load(tmp_path / "h")
    assert result.data["groups"] == ["north", "south"]
    assert result.draws["group_weights"].shape[1:] == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["predict", "nowhere", "people.csv"], "folder='nowhere': holds no saved result"),
        (["predict", "run", "none.csv"], "records='none.csv': no such file."),
        (["sample", "run", "--count", "0"], "count=0: "),
        (["sample", "run", "--out", "no/such/folder.csv"], "out='no/such/folder.csv': cannot write there."),
        (["sample", "run", "--given", "none.csv"], "given='none.csv': no such file."),
        (
            ["fit", "--data", "mixture", "--epsilon", "1", "--option", "prior_scale"],
            "option='prior_scale': write NAME=VALUE",
        ),
        (
            ["fit", "--data", "mixture", "--epsilon", "1", "--option", "colour=red"],
            "colour='red': unknown option of 'logistic'",
        ),
        (["fit", "--data", "mixture", "--epsilon", "1"], "has no array 'y', which the model needs"),
        (["fit", "--data", "mnist", "--path", "none", "--epsilon", "1"], "none"),
        (["fit", "--data", "people.csv", "--epsilon", "1", "--schema", "none.json"], "schema='none.json': no such file."),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(command, files, monkeypatch, arguments, line):
    monkeypatch.chdir(files)
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
