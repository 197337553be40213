"""The table of settings: what is made from it agrees with it, and a wrong value is refused alike
everywhere.
"""

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
from workbench.fitting.groups import GROUPS, Group, flattened, group_of, grouped
from workbench.fitting.settings import Settings, Shared, about, default_of, names
from workbench.noise.mechanism import CLIPPINGS
from workbench.privacy.plan import PrivacySettings
from workbench.privacy.steps import LAWS, SENSITIVITY
from workbench.record_model.estimators import ESTIMATORS
from workbench.sweeps import plan_file, sweeping
from workbench.sweeps.request import LISTS, SweepRequest
from workbench.widgets.sweep.settings import LISTS as SCREEN_LISTS
from workbench.widgets.workbench.settings import PRIVACY_FIELDS, problems_of

CHOICES = {
    "relation": SENSITIVITY,
    "clipping": CLIPPINGS,
    "sampler": LAWS,
    "estimator": ESTIMATORS,
    "strategy": STRATEGIES,
}
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
    error = refusal(lambda: wb.fit("logistic", "breast_cancer", **grouped(asked)))
    assert (error.argument, error.value) == (name, value)
    if name in TEXTS and name not in FLAGS:
        option = f"--{name.replace('_', '-')}={value}"
        code, out, err = command("fit", "--data", "breast_cancer", "--epsilon", "1", option)
        assert (code, out, err) == (2, "", f"workbench fit: {error}\n")
    if name in names(Shared) or name in PLURALS:
        given = {PLURALS[name]: value} if name in PLURALS else {name: value}
        if (group := group_of(name)) is not None and name not in PLURALS:
            given = {group: given}
        plan = {"model": "logistic", "data": "breast_cancer", "epsilons": 1.0, **given}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        other = refusal(lambda: sweeping.prepare(**plan_file.read(tmp_path / "plan.json")))
        assert (other.argument, other.value, other.expectation) == (
            PLURALS.get(name, name),
            value,
            error.expectation,
        )
    if name in PRIVACY_FIELDS:
        assert problems_of({"epsilon": 1.0, name: value}) == {name: error.expectation}


def test_a_relation_of_another_sampler_is_refused_alike(command):
    error = refusal(
        lambda: wb.fit(
            "logistic", "breast_cancer", epsilon=1.0, privacy=wb.Privacy(relation="replace_special")
        )
    )
    assert (error.argument, error.value) == ("relation", "replace_special")
    line = command(
        "fit", "--data", "breast_cancer", "--epsilon", "1", "--relation", "replace_special"
    )[2]
    assert line == f"workbench fit: {error}\n"
    assert problems_of({"epsilon": 1.0, "relation": "replace_special"}) == {
        "relation": error.expectation
    }
    assert problems_of({"epsilon": 1.0, "relation": "replace_special", "sampler": "shuffle"}) == {}


@pytest.mark.parametrize(
    "function", [fits.fit, fits.prepare, spec.resolve, wb.sweep, sweeping.prepare]
)
def test_functions_show_the_arguments_of_the_table(function):
    signature, hints = inspect.signature(function), typing.get_type_hints(function)
    is_sweep, is_flat = function in (wb.sweep, sweeping.prepare), function is spec.resolve
    expected = {*names(Shared), *LISTS} if is_sweep else set(names())
    direct = {
        name
        for name in expected
        if is_flat or (is_sweep and name in LISTS) or group_of(name) is None
    }
    groups = set() if is_flat else {group_of(name) for name in expected - direct}
    assert (
        {"model", "data", *direct, *groups}
        <= signature.parameters.keys()
        == hints.keys() - {"return"}
    )
    assert list(signature.parameters)[:2] == ["model", "data"]
    for name in expected:
        setting = about(name, SweepRequest) if is_sweep else about(name)
        default = default_of(LISTS.get(name, name)) if is_sweep else default_of(name)
        if name == "epsilon" and function in (fits.fit, fits.prepare):
            default = None  # with private=False; without that they ask for it
        shown = function if name in direct else GROUPS[group_of(name)]
        parameter = inspect.signature(shown).parameters[name]
        assert parameter.default == (
            inspect.Parameter.empty if default is dataclasses.MISSING else default
        )
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        described = " ".join(shown.__doc__.partition(f":param {name}: ")[2].split())
        assert setting.help.lower() in described.lower()
        if name not in direct:
            assert name in signature.parameters[group_of(name)].default.help()


@pytest.mark.parametrize("group", GROUPS.values())
def test_a_group_has_the_types_of_the_table(group):
    tables = (
        settings.Settings,
        settings.LedgerSettings,
        settings.RunSettings,
        settings.FormulaSettings,
    )
    types = {name: hint for table in tables for name, hint in typing.get_type_hints(table).items()}
    hints = typing.get_type_hints(group, localns={"Snapshot": typing.Any})
    assert {each.name: hints[each.name] for each in dataclasses.fields(group)} == {
        each.name: types[each.name] for each in dataclasses.fields(group)
    }


def test_a_fit_shows_few_arguments():
    keywords = [
        each
        for each in inspect.signature(wb.fit).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    ]
    assert len(keywords) <= 16
    for name, group in GROUPS.items():
        assert getattr(wb, group.__name__) is group
        assert inspect.signature(wb.fit).parameters[name].default == group()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: wb.fit("logistic", "breast_cancer", epsilon=1, sampler="shuffle"),
            "privacy=wb.Privacy(sampler=...)",
        ),
        (
            lambda: wb.prepare("logistic", "breast_cancer", epsilon=1, draws=3),
            "training=wb.Training(draws=...)",
        ),
        (
            lambda: wb.sweep("logistic", "breast_cancer", epsilons=1, device="cpu"),
            "execution=wb.Execution(device=...)",
        ),
        (lambda: wb.fit("y ~ x", None, epsilon=1, unit_id="who"), "table=wb.Table(unit_id=...)"),
    ],
)
def test_a_setting_outside_of_its_group_is_told_its_place(call, words):
    error = refusal(call)
    assert words in str(error)
    assert error.code == "group"


@pytest.mark.parametrize(
    ("call", "argument", "words"),
    [
        (
            lambda: wb.sweep("logistic", "breast_cancer", epsilons=1, sampler="poisson"),
            "settings",
            "mean 'samplers'",
        ),
        (
            lambda: wb.sweep(
                "logistic", "breast_cancer", epsilons=1, privacy=wb.Privacy(sampler="shuffle")
            ),
            "sampler",
            "give samplers=",
        ),
        (
            lambda: wb.sweep(
                "logistic", "breast_cancer", epsilons=1, privacy=wb.Privacy(num_records=100)
            ),
            "num_records",
            "give num_records=",
        ),
        (
            lambda: wb.sweep(
                "logistic", "breast_cancer", epsilons=1, training=wb.Training(draws=9)
            ),
            "draws",
            "is not taken from training= by a sweep",
        ),
        (
            lambda: wb.prepare(
                "logistic", "breast_cancer", epsilon=1, execution=wb.Execution(progress=True)
            ),
            "progress",
            "give it to wb.fit",
        ),
    ],
)
def test_a_setting_that_a_function_does_not_take_is_refused(call, argument, words):
    error = refusal(call)
    assert error.argument == argument
    assert words in str(error)


def test_groups_show_what_differs_and_are_checked():
    assert repr(wb.Privacy()) == "Privacy()"
    assert repr(wb.Privacy(sampler="shuffle", num_records=None)) == "Privacy(sampler='shuffle')"
    assert wb.Training(draws=50.0).draws == 50
    assert refusal(lambda: wb.Training(draws=1)).argument == "draws"
    assert refusal(lambda: wb.Privacy(relation="replace_special")).argument == "relation"
    with pytest.raises(dataclasses.FrozenInstanceError):
        wb.Execution().device = "cpu"


def test_flat_settings_and_groups_are_the_same():
    flat = {"epsilon": 1.0, "sampler": "shuffle", "draws": 50, "device": "cpu", "link": "log"}
    arguments = grouped(flat)
    assert {
        name: type(value) for name, value in arguments.items() if isinstance(value, Group)
    } == GROUPS
    asked = fits.FitArguments("logistic", "breast_cancer", **arguments)
    assert flattened(asked, fits.FlatRequest, "fit") == {
        "model": "logistic",
        "data": "breast_cancer",
        **flat,
    }


def test_the_command_has_an_option_for_every_setting_that_can_be_typed():
    fit = next(action for action in parser()._actions if action.dest == "command").choices["fit"]
    options = {action.dest: action for action in fit._actions if action.help != argparse.SUPPRESS}
    assert set(TEXTS) == set(names()) - {"optimizer"}
    for name in TEXTS:
        default = default_of(name)
        assert options[name].default == (None if default is dataclasses.MISSING else default)
        assert not options[
            name
        ].required  # epsilon is missing with --no-privacy; without that the fit asks for it
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
    # the word "auto" for ``clip`` makes adapts_clip, and no word at all clip_follows_look
    of_plans = {each.name for each in dataclasses.fields(PrivacySettings)}
    assert guaranteed == of_plans - {"adapts_clip", "clip_follows_look"} | {"batch_size"}


VALID = {
    "epsilon": 1.0,
    "delta": 1e-3,
    "iterations": 10,
    "sampling_rate": 0.1,
    "sampler": "poisson",
    "clip": 1.0,
    "num_records": 100,
    "seed": None,
}


@pytest.mark.parametrize("name", ["epsilon", "delta", "iterations", "clip", "num_records", "seed"])
def test_ranges_are_those_of_the_privacy_settings(name):
    """Privacy has the last word; what it refuses is refused early, where model and data are not
    known yet.
    """
    edges = [
        -1, 0, 1e-12, 0.999e-12, 1 - 1e-15, 1, 2, 100, 100.0001, 2**30 - 1, 2**30, 2**31 - 1,
        2**31, 2**63 - 1, 2**63,
    ]  # fmt: skip

    def taken(call):
        try:
            call()
        except ArgumentError:
            return False
        return True

    for value in edges:
        by_table = taken(lambda value=value: about(name).check(name, value))
        assert by_table == taken(lambda value=value: PrivacySettings(**VALID | {name: value})), (
            value
        )


def test_settings_are_checked_and_noted_when_they_are_made():
    asked = Settings(epsilon=2, iterations=10.0)
    assert (asked.epsilon, asked.iterations, asked.delta) == (2.0, 10, None)
    assert asked.given == {"epsilon", "iterations"}
    assert dataclasses.replace(asked, epsilon=3).epsilon == 3.0
    with pytest.raises(ArgumentError, match=r"^epsilon=0: "):
        dataclasses.replace(asked, epsilon=0)


def test_arguments_that_there_are_not_are_named():
    with pytest.raises(
        ArgumentError, match=r"^settings='epsilons': unknown name; did you mean 'epsilon'"
    ):
        wb.fit("logistic", "breast_cancer", epsilon=1.0, epsilons=1.0)
    with pytest.raises(ArgumentError, match=r"^epsilon=None: must say how much privacy loss"):
        wb.fit("logistic", "breast_cancer")
    with pytest.raises(
        TypeError, match=r"^fit\(\) missing a required (keyword-only )?argument: 'data'"
    ):
        wb.fit("logistic", epsilon=1.0)


def test_values_that_the_screen_does_not_show_are_no_problem():
    assert settings.problems_of({"epsilon": 1.0}) == {}
