"""The code that repeats a fit."""

import dataclasses
import re

import numpy as np
import pytest

import workbench as wb
from workbench.fitting.groups import group_of
from workbench.fitting.settings import default_of, names
from workbench.results import code as code_module
from workbench.results.code import code_of


@pytest.mark.thorough
def test_the_code_repeats_a_seeded_fit(done):
    found = {}
    exec(code_of(done), found)
    repeated = found["result"]
    assert repeated.guarantee == done.guarantee
    assert repeated.settings == done.settings
    for name, value in done.params.items():
        np.testing.assert_array_equal(repeated.params[name], value)


def test_only_what_differs_from_the_defaults_is_written(done):
    assert "sampler" not in code_of(done)
    other = dataclasses.replace(
        done,
        settings={
            **done.settings,
            "sampler": "shuffle",
            "draws": 50,
            "learning_rate": None,
            "seed": None,
        },
        model_options={**done.model_options, "prior": "laplace"},
    )
    code = code_of(other)
    assert "sampler='shuffle'" in code
    assert "draws=50" in code
    assert "seed" not in code
    assert re.search(r"privacy=wb\.Privacy\(sampler='shuffle', relation=.*\),\n", code)
    assert (
        "training=wb.Training(estimator='aligned', average=True, draws=50, optimizer=...),  # "
        "the optimiser" in code
    )
    assert "wb.models.get('logistic', prior='laplace')" in code
    compile(code, "code", "exec")


def test_settings_and_defaults_are_those_of_the_table():
    assert {name: default_of(name) for name in code_module._DEFAULTS} == code_module._DEFAULTS
    # the sampling rate says what the batch size does; a comment stands for the optimiser; the
    # others change speed and memory
    of_groups = {
        name: group_of(name)
        for name in (*code_module._SETTINGS, "optimizer")
        if group_of(name) is not None
    }
    assert of_groups == {
        name: group.lower() for group, names in code_module._GROUPS.items() for name in names
    }
    left_out = {"batch_size", "optimizer", "strategy", "microbatch_size", "device", "devices"}
    assert set(names()) - set(code_module._SETTINGS) == left_out


@pytest.mark.parametrize("change", [{"name": "clinic"}, {"source": "somewhere else"}])
def test_data_of_ones_own_are_left_to_fill_in(done, change):
    code = code_of(dataclasses.replace(done, data={**done.data, **change}))
    assert "data = ...  # the data set" in code
    compile(code, "code", "exec")


@pytest.mark.thorough
def test_a_result_knows_the_versions_of_its_fit(done, tmp_path, quick_report):
    assert set(done.versions) == {"workbench", "python", "jax", "numpyro", "numpy"}
    assert done.versions["workbench"] == wb.__version__
    assert wb.load(done.save(tmp_path)).versions == done.versions
