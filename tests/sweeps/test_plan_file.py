"""Plans of sweeps in files: what each form means, and which line or argument is wrong."""

import itertools
import json
import time

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.fitting.groups import grouped
from workbench.models import Model
from workbench.sweeps import plan_file, sweeping
from workbench.sweeps.grid import Grid
from workbench.sweeps.request import LISTS, SweepRequest

YAML = """
model: logistic
data: breast_cancer
epsilons: [1, 0.5]  # a comment
seeds: [3, 4]
delta: 1e-5
clips: [null, 2.]
privacy: {evaluate_private: false, clipping: automatic}
"""
TOML = """
model = "logistic"
data = "breast_cancer"
epsilons = [1, 0.5]
seeds = [3, 4]
delta = 1e-5
clips = 2.0

[privacy]
evaluate_private = false
clipping = "automatic"
"""
READ = {
    "model": "logistic",
    "epsilons": [1, 0.5],
    "seeds": [3, 4],
    "delta": 1e-5,
    "privacy": {"evaluate_private": False, "clipping": "automatic"},
}
SCHEMA = {
    "dose": {"kind": "numeric", "low": 0, "high": 200},
    "age": {"kind": "numeric", "low": 0, "high": 100},
}
MODELS = '''
import numpyro.distributions as dist, numpyro
from workbench.models import Model

def counts(x, y=None, num_records=None, scale=1.0):
    """Counts."""

def others(x, y=None, num_records=None):
    """Others."""
'''


@pytest.fixture
def plan(tmp_path):
    """Writes a plan, as text or by its arguments, into a folder and reads it."""

    def read(text="", suffix="yaml", **arguments):
        file = tmp_path / f"plan.{suffix}"
        file.write_text(
            text
            or json.dumps(
                {"data": "breast_cancer", "model": "logistic", "epsilons": 1, **arguments}
            )
        )
        return plan_file.read(file)

    return read


@pytest.fixture
def table(private_frame, tmp_path):
    (tmp_path / "tables").mkdir()
    private_frame.to_csv(tmp_path / "tables" / "clinic.csv", index=False)
    return {"file": "tables/clinic.csv", "target": "ill"}


def refused(plan, *arguments, **settings):
    with pytest.raises(ArgumentError) as caught:
        plan(*arguments, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "suffix", "clips"),
    [
        (YAML, "yaml", [None, 2.0]),
        (YAML, "yml", [None, 2.0]),
        (TOML, "toml", 2.0),
        (json.dumps({**READ, "data": "breast_cancer", "clips": None}), "json", None),
    ],
)
def test_all_formats_say_the_same(plan, text, suffix, clips):
    read = plan(text, suffix)
    assert read.pop("data").num_train == wb.data.load("breast_cancer").num_train
    assert read == {**READ, "clips": clips}


def test_groups_of_settings_are_mappings(plan):
    prepared = sweeping.prepare(
        **plan(iterations=5, privacy={"clipping": "automatic"}, execution={"device": "cpu"})
    )
    (run,) = prepared.runs
    assert (run.spec.privacy.clipping, run.spec.settings.device) == ("automatic", "cpu:0")
    assert (
        "clipping='flat': belongs to a group of settings: write privacy: {clipping: ...}."
        in refused(plan, clipping="flat")
    )
    with pytest.raises(
        ArgumentError, match=r"^privacy='cliping': unknown name; did you mean 'clipping'"
    ):
        sweeping.prepare(**plan(privacy={"cliping": "flat"}))


def test_plain_yaml_is_what_it_looks_like(plan):
    text = (
        "{model: logistic, data: breast_cancer, epsilons: [1, -2, +.5e1, 3e2, .inf, 007, 12:30, "
        "no, true, ~, 2024-01-01]}"
    )
    assert plan(text)["epsilons"] == [
        1,
        -2,
        5.0,
        300.0,
        np.inf,
        "007",
        "12:30",
        "no",
        True,
        None,
        "2024-01-01",
    ]


def test_models_are_names_files_and_mappings_with_options(plan, tmp_path):
    (tmp_path / "mine.py").write_text(MODELS)
    assert plan(model="gmm")["model"] == "gmm"
    found = plan(models=["logistic", "mine.py:others", {"name": "mine.py:counts", "scale": 3}])[
        "models"
    ]
    assert found[0] == "logistic"
    assert [model.name for model in found[1:]] == ["others", "counts"]
    assert found[2].options == {"scale": 3}
    (model,) = plan(models={"name": "logistic", "prior_scale": 2})["models"]
    assert isinstance(model, Model)
    assert model.options["prior_scale"] == 2


def test_a_store_is_found_beside_the_plan(plan, tmp_path):
    assert plan(store="fits.sqlite")["store"] == tmp_path / "fits.sqlite"
    assert plan(store=str(tmp_path / "x"))["store"] == tmp_path / "x"


def test_data_by_name_take_what_load_takes(plan):
    data = plan(data={"name": "breast_cancer", "evaluation_fraction": 0.5})["data"]
    assert data.num_train == wb.data.load("breast_cancer", evaluation_fraction=0.5).num_train
    assert data.is_public


def test_the_path_of_named_data_begins_at_the_plan(plan, tmp_path):
    message = refused(plan, data={"name": "adult", "path": "no/adult.csv"})
    assert f"{tmp_path}/no/adult.csv" in message


@pytest.mark.parametrize("form", ["mapping", "pair", "file", "schema", "schema file"])
def test_a_table_is_declared_in_several_forms(plan, table, tmp_path, form):
    (tmp_path / "bounds.toml").write_text("age = [0, 100]\ndose = [0, 200]")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    declared = {
        "mapping": {"bounds": {"dose": [0, 200], "age": [0, 100]}},
        "pair": {"bounds": [0, 200]},
        "file": {"bounds": "bounds.toml"},
        "schema": {"schema": SCHEMA},
        "schema file": {"schema": "schema.json"},
    }[form]
    data = plan(data={**table, **declared, "unit": "patient", "evaluation_fraction": 0.5})["data"]
    assert (data.name, data.unit, data.is_public) == ("clinic", "patient", False)
    assert data.feature_names == ("dose", "age")
    assert abs(data.num_train - 120) < 30
    age = {"pair": 200.0}.get(form, 100.0)
    assert data.bounds == {"dose": (0.0, 200.0), "age": (0.0, age)}


def test_public_facts_about_groups_come_from_a_file(plan, private_frame, tmp_path):
    private_frame.assign(ward=["a", "b"] * 120).to_csv(tmp_path / "wards.csv", index=False)
    (tmp_path / "facts.csv").write_text("ward,beds\na,3\nb,1\n")
    grouped = {
        "file": "wards.csv",
        "target": "ill",
        "bounds": [0, 200],
        "group": "ward",
        "features": ["age", "dose"],
    }
    data = plan(data={**grouped, "group_features": "facts.csv"})["data"]
    assert data.groups == ("a", "b")
    assert data.group_feature_names == ("beds",)
    data = plan(data={**grouped, "group_features": {"a": [1, 2], "b": [3, 4]}})["data"]
    assert data.group_features.tolist() == [[1, 2], [3, 4]]


def test_arrays_of_an_npz_file_are_tables_or_images(plan, tmp_path):
    random = np.random.default_rng(1)
    np.savez(tmp_path / "table.npz", x=random.random((60, 2)), y=random.integers(0, 2, 60))
    np.savez(tmp_path / "images.npz", x=random.random((60, 4, 4)))
    data = plan(data={"file": "table.npz", "bounds": [0, 1], "feature_names": ["a", "b"]})["data"]
    assert data.bounds == {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    assert plan(data={"file": "images.npz", "unit": "face"})["data"].image_shape == (4, 4)
    assert "unexpected keyword argument 'bounds'" in refused(
        plan, data={"file": "images.npz", "bounds": [0, 1]}
    )


def test_made_up_data_wait_for_their_seed(plan):
    make = plan(data={"generate": "hierarchical", "num_features": 2, "num_groups": 4})["data"]
    one, other = make(seed=1, num_records=30), make(seed=2)
    assert (one.num_train, one.train[0].shape[1]) == (30, 2)
    assert not np.array_equal(one.train[0], other.train[0][:30])


@pytest.mark.parametrize(
    ("text", "suffix", "line"),
    [
        ("epsilons: [1\nseeds: 2", "yaml", "cannot be read as YAML: "),
        ("model: a\ndata: b: c", "yaml", "mapping values are not allowed here (line 2)."),
        ("a: 1\n\tb: 2", "yml", "(line 2)."),
        (
            "epsilons: [1]\nseeds: 2\nepsilons: [8]",
            "yaml",
            "the key 'epsilons' occurs twice (line 3).",
        ),
        (
            "data: {file: a.csv, bounds: {age: [0, 1], age: [0, 9]}}",
            "yaml",
            "the key 'age' occurs twice (line 1).",
        ),
        ("a: 1\nb: \x07", "yaml", "(line 2)."),
        ("a: 1\nb: !!python/object/apply:os.getcwd []", "yaml", "(line 2)."),
        ("a = 1\nb = nothing", "toml", "cannot be read as TOML: Invalid value (at line 2"),
        ('{\n"a": }', "json", "cannot be read as JSON: Expecting value: line 2"),
        (
            '{"epsilons": [1], "seeds": 2, "epsilons": [8]}',
            "json",
            "the key 'epsilons' occurs twice.",
        ),
        (
            '{"data": {"bounds": {"age": [0, 1], "age": [0, 9]}}}',
            "json",
            "the key 'age' occurs twice.",
        ),
        ("- 1", "yaml", "must be a mapping"),
        ("\n", "yaml", "must be a mapping"),
        ("a", "ini", "the suffix must be one of .yaml, .yml, .toml, .json."),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(plan, tmp_path, text, suffix, line):
    message = refused(plan, text, suffix)
    assert message.startswith(f"plan='{tmp_path}/plan.{suffix}': ")
    assert line in message


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ArgumentError, match="cannot be read as TOML: 'utf-8' codec"):
        plan_file.read(tmp_path / "plan.toml")


def test_a_missing_plan_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"plan='.*none.yaml': no such file."):
        plan_file.read(tmp_path / "none.yaml")


def test_epsilons_are_asked_for(plan):
    assert refused(plan, "{model: logistic}") == "epsilons=None: plan.yaml must have one or more."


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"epsilon": 1}, "plan='epsilon': unknown name; did you mean 'epsilons'"),
        ({"executor": "dask"}, "plan='executor': unknown name; "),
        ({"model": 3}, "model=3: must be a name or a file, or a mapping of name and options."),
        ({"model": {"prior_scale": 2}}, "model={'prior_scale': 2}: must be a name"),
        ({"model": {"name": "logistic", "colour": 2}}, "colour=2: unknown option of 'logistic'"),
        ({"model": "none.py"}, "none.py': no such file."),
        ({"store": 3}, "store=3: must be the path of a file."),
        (
            {"data": 3},
            "data=3: must be a name or a file, or a mapping with name, file or generate.",
        ),
        ({"data": {"target": "ill"}}, "data={'target': 'ill'}: must be a name"),
        (
            {"data": "brest_cancer"},
            "data='brest_cancer': unknown name; did you mean 'breast_cancer'",
        ),
        ({"data": {"name": "adult", "pth": "x"}}, "data='pth': unknown name; did you mean 'path'"),
        ({"data": {"name": "adult", "path": 3}}, "path=3: must be the path of a file."),
        ({"data": "none.csv"}, "none.csv': no such file."),
        ({"data": {"file": 3}}, "file=3: must be the path of a file."),
        (
            {"data": {"file": "tables/clinic.csv", "taget": "ill"}},
            "data='taget': unknown name; did you mean 'target'",
        ),
        (
            {"data": {"file": "tables/clinic.csv", "evaluation": "x"}},
            "data='evaluation': unknown name; ",
        ),
        ({"data": {"file": "tables/clinic.csv", "frame": "x"}}, "data='frame': unknown name; "),
        (
            {"data": "tables/clinic.csv"},
            "bounds=None: must declare the public range of every feature",
        ),
        (
            {"data": {"file": "tables/clinic.csv", "schema": "none.json"}},
            "none.json': no such file.",
        ),
        (
            {"data": {"file": "tables/clinic.csv", "group_features": "none.csv"}},
            "none.csv': no such file.",
        ),
        ({"data": {"file": "x.npz", "target": "ill"}}, "data='target': unknown name; "),
        (
            {"data": {"generate": "mixtur"}},
            "generate='mixtur': unknown name; did you mean 'mixture'",
        ),
        ({"data": {"generate": "mixture", "seed": 1}}, "data='seed': unknown name; "),
        (
            {"data": {"generate": "hierarchical", "features": 1}},
            "data='features': unknown name; did you mean 'num_features'",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_what_is_nearest(plan, table, arguments, line):
    assert line in refused(plan, **arguments)


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", '{"model": ' + "[" * 200_000 + "]" * 200_000 + "}"),
        ("deeper.json", '{"model": ' + '{"a": ' * 5000 + "1" + "}" * 5000 + "}"),
        ("deep.yaml", "model: " + "[" * 5000 + "]" * 5000),
        ("deep.toml", "model = " + "[" * 5000 + "]" * 5000),
        ("few.yaml", "model: " + "[" * 60 + "]" * 60),
    ],
)
def test_a_plan_that_is_nested_too_deep_is_one_sentence(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(
        ArgumentError, match=r"^plan=.*: (is nested more than 50 levels deep\.|cannot be read as)"
    ) as error:
        plan_file.read(tmp_path / name)
    assert len(str(error.value)) < 1000


def test_a_few_lines_that_stand_for_thousands_of_millions_of_values_are_refused(tmp_path):
    lines = ["a: &a [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]"
        for old, new in itertools.pairwise("abcdefghij")
    ]
    (tmp_path / "plan.yaml").write_text("\n".join([*lines, "epsilons: *j"]))
    began = time.monotonic()
    with pytest.raises(ArgumentError, match="it holds more than 1,000,000 values"):
        plan_file.read(tmp_path / "plan.yaml")
    assert time.monotonic() - began < 30


def test_a_plan_as_large_as_a_data_set_is_not_read(tmp_path):
    with open(tmp_path / "plan.json", "wb") as file:
        file.truncate(2**26)
    with pytest.raises(ArgumentError, match="it is larger than 32 MiB"):
        plan_file.read(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"seeds": 10**9},
            r"^seeds=1000000000: must be a whole number of at least 1 and at most 20000",
        ),
        ({"seeds": range(10**9)}, r"^seeds='range': holds more than 20,000 values"),
        ({"seeds": itertools.count()}, r"^seeds='count': holds more than 20,000 values"),
        (
            {"epsilons": (0.001 * (1 + number) for number in itertools.count())},
            "^epsilons='generator': holds more than 20,000",
        ),
        (
            {"epsilons": range(1, 101), "iterations": range(1, 1001)},
            r"^seeds=1: the lists make 100,000 fits; a sweep has at most 20,000\.",
        ),
        (
            {"seeds": 20_000, "baselines": ["non-private"]},
            r"^seeds=20000: the lists make 40,000 fits",
        ),
    ],
)
def test_the_number_of_fits_is_found_before_any_is_made(settings, message, monkeypatch):
    monkeypatch.setattr(Grid, "cells", lambda self: pytest.fail("made the fits"))
    began = time.process_time()
    with pytest.raises(ArgumentError, match=message):
        sweeping.prepare(
            "logistic", "breast_cancer", **grouped({"epsilons": [1.0], **settings}, direct=LISTS)
        )
    assert time.process_time() - began < 10


@pytest.mark.parametrize("data", ["breast_cancer", wb.data.hierarchical])
@pytest.mark.parametrize(
    "baselines", [[], ["non-private"], ["scikit-learn"], ["non-private", "scikit-learn"]]
)
@pytest.mark.parametrize("seeds", [3, [4, 5]])
def test_fits_are_counted_as_they_are_made(data, baselines, seeds):
    axes = {
        "iterations": [10, 20],
        "clips": [1, 2, 3],
        "num_records": [50, None],
        "estimators": ["aligned", "vanilla"],
    }
    grid = Grid(
        SweepRequest(
            "hierarchical_logistic",
            data,
            epsilons=[1.0, 2.0],
            seeds=seeds,
            baselines=baselines,
            **axes,
        )
    )
    assert grid.number == len(grid.cells())
