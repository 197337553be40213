"""The table of settings: what is made from it agrees with it, and a wrong value is refused alike everywhere."""

import argparse
import dataclasses
import inspect
import json
import typing

import pytest

import workbench as wb
from workbench import ArgumentError, _validate
from workbench.cli.main import parser
from workbench.clipping.clipped_sums import STRATEGIES
from workbench.fitting import fits, settings, spec
from workbench.fitting.settings import Settings, Shared, about, default_of, names
from workbench.noise.mechanism import CLIPPINGS
from workbench.privacy.plan import PrivacySettings
from workbench.privacy.steps import SAMPLERS, SENSITIVITY
from workbench.record_model.estimators import ESTIMATORS
from workbench.sweeps import plan_file, sweeping
from workbench.sweeps.request import LISTS, SweepRequest
from workbench.widgets.sweep.settings import LISTS as SCREEN_LISTS
from workbench.widgets.workbench.settings import PRIVACY_FIELDS, problems_of

CHOICES = {
    "relation": SENSITIVITY, "clipping": CLIPPINGS, "sampler": SAMPLERS, "estimator": ESTIMATORS, "strategy": STRATEGIES,
}  # fmt: skip
TEXTS = [name for name in names() if about(name).is_text]
FLAGS = [name for name in TEXTS if about(name).check is _validate.flag]
PLURALS = {name: plural for plural, name in LISTS.items()}


# a number out of range, or a name that there is not
WRONG = {name: -1 if about(name).range or name == "seed" else "nonsense" for name in names()}


def refusal(call):
    with pytest.raises(ArgumentError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("name", names())
def test_a_wrong_value_is_refused_alike_everywhere(name, command, tmp_path):
    value = WRONG[name]
    asked = {"epsilon": 1.0, name: value}
    error = refusal(lambda: wb.fit("logistic", "breast_cancer", **asked))
    assert (error.argument, error.value) == (name, value)
    if name in TEXTS and name not in FLAGS:
        option = f"--{name.replace('_', '-')}={value}"
        code, out, err = command("fit", "--data", "breast_cancer", "--epsilon", "1", option)
        assert (code, out, err) == (2, "", f"workbench fit: {error}\n")
    if name in names(Shared) or name in PLURALS:
        plan = {"model": "logistic", "data": "breast_cancer", "epsilons": 1.0, PLURALS.get(name, name): value}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        other = refusal(lambda: sweeping.prepare(**plan_file.read(tmp_path / "plan.json")))
        assert (other.argument, other.value, other.expectation) == (PLURALS.get(name, name), value, error.expectation)
    if name in PRIVACY_FIELDS:
        assert problems_of({"epsilon": 1.0, name: value}) == {name: error.expectation}


def test_a_relation_of_another_sampler_is_refused_alike(command):
    error = refusal(lambda: wb.fit("logistic", "breast_cancer", epsilon=1.0, relation="replace_special"))
    assert (error.argument, error.value) == ("relation", "replace_special")
    line = command("fit", "--data", "breast_cancer", "--epsilon", "1", "--relation", "replace_special")[2]
    assert line == f"workbench fit: {error}\n"
    assert problems_of({"epsilon": 1.0, "relation": "replace_special"}) == {"relation": error.expectation}
    assert problems_of({"epsilon": 1.0, "relation": "replace_special", "sampler": "shuffle"}) == {}


@pytest.mark.parametrize("function", [fits.fit, fits.prepare, spec.resolve, wb.sweep, sweeping.prepare])
def test_functions_show_the_arguments_of_the_table(function):
    signature, hints = inspect.signature(function), typing.get_type_hints(function)
    is_sweep = function in (wb.sweep, sweeping.prepare)
    expected = {*names(Shared), *LISTS} if is_sweep else set(names())
    assert {"model", "data", *expected} <= signature.parameters.keys() == hints.keys() - {"return"}
    assert list(signature.parameters)[:2] == ["model", "data"]
    for name in expected:
        parameter = signature.parameters[name]
        setting = about(name, SweepRequest) if is_sweep else about(name)
        default = default_of(LISTS.get(name, name)) if is_sweep else default_of(name)
        if name == "epsilon" and function in (fits.fit, fits.prepare):
            default = None  # with private=False; without that they ask for it
        assert parameter.default == (inspect.Parameter.empty if default is dataclasses.MISSING else default)
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        described = " ".join(function.__doc__.partition(f":param {name}: ")[2].split())
        assert setting.help.lower() in described.lower()


def test_the_command_has_an_option_for_every_setting_that_can_be_typed():
    fit = next(action for action in parser()._actions if action.dest == "command").choices["fit"]
    options = {action.dest: action for action in fit._actions if action.help != argparse.SUPPRESS}
    assert set(TEXTS) == set(names()) - {"optimizer"}
    for name in TEXTS:
        default = default_of(name)
        assert options[name].default == (None if default is dataclasses.MISSING else default)
        assert not options[name].required  # epsilon is missing with --no-privacy; without that the fit asks for it
        assert options[name].help.startswith(about(name).help)


def test_lists_of_a_sweep_and_of_the_screens_are_of_settings():
    assert set(LISTS.values()) <= set(names()) - set(names(Shared))
    assert SCREEN_LISTS.items() <= LISTS.items()
    assert set(PRIVACY_FIELDS) <= set(names())
    assert {name: single for name, single in LISTS.items() if name in names(SweepRequest)} == LISTS


def test_all_names_that_can_be_chosen_are_in_the_help():
    for name, choices in CHOICES.items():
        for choice in choices:
            assert about(name).check(name, choice) == choice
            assert choice in about(name).help


def test_what_changes_the_guarantee_is_in_the_privacy_settings():
    guaranteed = {name for name in names() if about(name).changes_guarantee}
    of_plans = {each.name for each in dataclasses.fields(PrivacySettings)}  # the word "auto" for ``clip`` makes adapts_clip
    assert guaranteed == of_plans - {"adapts_clip"} | {"batch_size"}


VALID = {
    "epsilon": 1.0, "delta": 1e-3, "iterations": 10, "sampling_rate": 0.1, "sampler": "poisson", "clip": 1.0,
    "num_records": 100, "seed": None,
}  # fmt: skip


@pytest.mark.parametrize("name", ["epsilon", "delta", "iterations", "clip", "num_records", "seed"])
def test_ranges_are_those_of_the_privacy_settings(name):
    """Privacy has the last word; what it refuses is refused early, where model and data are not known yet."""
    edges = [
        -1, 0, 1e-12, 0.999e-12, 1 - 1e-15, 1, 2, 100, 100.0001, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**63 - 1, 2**63,
    ]  # fmt: skip

    def taken(call):
        try:
            call()
        except ArgumentError:
            return False
        return True

    for value in edges:
        by_table = taken(lambda value=value: about(name).check(name, value))
        assert by_table == taken(lambda value=value: PrivacySettings(**VALID | {name: value})), value


def test_settings_are_checked_and_noted_when_they_are_made():
    asked = Settings(epsilon=2, iterations=10.0)
    assert (asked.epsilon, asked.iterations, asked.delta) == (2.0, 10, None)
    assert asked.given == {"epsilon", "iterations"}
    assert dataclasses.replace(asked, epsilon=3).epsilon == 3.0
    with pytest.raises(ArgumentError, match=r"^epsilon=0: "):
        dataclasses.replace(asked, epsilon=0)


def test_arguments_that_there_are_not_are_named():
    with pytest.raises(ArgumentError, match=r"^settings='epsilons': unknown name; did you mean 'epsilon'"):
        wb.fit("logistic", "breast_cancer", epsilon=1.0, epsilons=1.0)
    with pytest.raises(ArgumentError, match=r"^epsilon=None: must say how much privacy loss"):
        wb.fit("logistic", "breast_cancer")
    with pytest.raises(TypeError, match=r"^fit\(\) missing a required (keyword-only )?argument: 'data'"):
        wb.fit("logistic", epsilon=1.0)


def test_values_that_the_screen_does_not_show_are_no_problem():
    assert settings.problems_of({"epsilon": 1.0}) == {}
