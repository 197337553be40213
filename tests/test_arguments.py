"""Every argument of a public function takes what it means and refuses the rest by name, whatever
type it has.

The tables call real functions, up to where they would compile. A value that is not listed as taken
must be refused with one line that begins with the argument's name.
"""

import contextlib
import dataclasses
import inspect
import math
import types

import numpy as np
import numpyro
import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError, _validate, auditing
from workbench.data import Boolean, Categorical, Dataset, Numeric
from workbench.fitting import fits, settings, spec
from workbench.fitting.groups import GROUPS, grouped
from workbench.fitting.run_log import RunLog
from workbench.fitting.settings import FormulaSettings
from workbench.fitting.tables import model_and_data
from workbench.inference import DPVI
from workbench.ledger import reservation
from workbench.sklearn._estimator import PrivateEstimator
from workbench.sweeps import prepared as prepared_sweeps
from workbench.sweeps import sweeping
from workbench.sweeps.request import LISTS
from workbench.sweeps.store import Store

STRANGE = [
    "no",
    "False",
    "off",
    "",
    " ",
    0,
    1,
    3,
    2.5,
    math.nan,
    math.inf,
    None,
    True,
    np.True_,
    [],
    (),
    {},
    b"no",
    object(),
    np.array([True, False]),
    np.array(True),
    10**400,
]
FLAG = {"True", "np.True_"}
POSITIVE = {"1", "3", "2.5"}
RATE = {"1"}
WHOLE = {"1", "3"}
FROM_0 = {"0", "1", "3"}
TEXT = {"'no'", "'False'", "'off'"}
OTHERS = {"None"}


def table(function, without=()):
    names = set(inspect.signature(function).parameters) - set(without)
    return sorted(names)


def assert_refuses_all_but(taken, call, names):
    """``call(name, value)`` for all arguments and values; ``taken``: by argument, the values'
    representations.
    """
    wrong = []
    for name in names:
        for value in STRANGE:
            try:
                call(name, value)
            except ArgumentError as error:
                text = str(error)
                if (
                    repr(value) in taken.get(name, ())
                    or not text.startswith(name.rstrip("s"))
                    or "\n" in text
                    or len(text) > 1000
                ):
                    wrong.append(f"{name}={value!r} was refused with: {text}")
            except Exception as error:
                wrong.append(f"{name}={value!r} raised {type(error).__name__}: {error}")
            else:
                if repr(value) not in taken.get(name, ()):
                    wrong.append(f"{name}={value!r} was taken")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def published():
    return wb.data.load("breast_cancer")


FIT = {
    "epsilon": POSITIVE,
    "delta": OTHERS,
    "iterations": WHOLE | OTHERS,
    "sampling_rate": RATE | OTHERS,
    "batch_size": WHOLE | OTHERS,
    "relation": OTHERS,
    "look": {"0"} | OTHERS,
    "clip": POSITIVE | OTHERS,
    "optimizer": OTHERS,
    "learning_rate": POSITIVE | OTHERS,
    "average": FLAG | OTHERS,
    "microbatch_size": WHOLE | OTHERS,
    "num_records": OTHERS,
    "evaluate_private": FLAG,
    "covered_scores": FLAG,
    "draws": {"3"},
    "device": OTHERS,
    "devices": {"1"} | OTHERS,
    "seed": FROM_0 | OTHERS,
    "estimator": OTHERS,
}


FORMULA = {
    "family": OTHERS,
    "link": OTHERS,
    "schema": set(),
    "priors": {"{}"} | OTHERS,
    "trials": OTHERS,
    "exposure": OTHERS,
    "observed": OTHERS,
    "unit_id": OTHERS,
    "max_rows": OTHERS,
    "unit_mean": OTHERS,
    "missing": {"{}"} | OTHERS,
    "evaluation": OTHERS,
    "evaluation_is_public": FLAG | OTHERS,
    "evaluation_fraction": {"0"} | OTHERS,
    "split_seed": FROM_0 | OTHERS,
    "unit": TEXT | OTHERS,
    "name": TEXT | OTHERS,
}


def test_what_a_formula_and_a_table_need():
    frame = pd.DataFrame({"age": np.arange(40.0), "ill": [0, 1] * 20})
    assert set(FORMULA) == {each.name for each in dataclasses.fields(FormulaSettings)}

    def call(name, value):
        given = {"family": "bernoulli", "schema": {"ill": bool, "age": (0, 120)}, name: value}
        if name == "family" and value is None:  # gaussian
            given["schema"] = {"ill": (0, 1), "age": (0, 120)}
        if name == "split_seed":  # which has nothing to decide otherwise
            given["evaluation_fraction"] = 0.2
        FormulaSettings(**given)
        model_and_data("ill ~ age", frame, FormulaSettings(**given))

    assert_refuses_all_but(FORMULA, call, FORMULA)


def test_the_settings_of_a_fit(published):
    def call(name, value):
        given = {
            "model": "logistic",
            "data": published,
            "epsilon": 1.0,
            "iterations": 20,
            name: value,
        }
        spec.resolve(**given)

    assert_refuses_all_but(FIT, call, table(spec.resolve))


def test_every_argument_of_a_fit_is_in_a_table():
    further = {
        "ledger",
        "over_cap",
        "checkpoint",
        "on_snapshot",
        "stop",
        "progress",
        "private",
        *FORMULA,
    }
    of_groups = {
        each.name: argument
        for argument, group in GROUPS.items()
        for each in dataclasses.fields(group)
    }
    direct = set(table(fits.fit)) - set(GROUPS)
    assert direct.isdisjoint(of_groups)
    assert direct | set(of_groups) == set(table(spec.resolve)) | further


@pytest.mark.parametrize("argument", GROUPS)
def test_a_group_is_given_as_one_or_as_a_mapping(published, argument):
    def call(name, value):
        fits.FitArguments("logistic", published, epsilon=1.0, **{name: value})

    assert_refuses_all_but({argument: {"{}"}}, call, [argument])
    with pytest.raises(ArgumentError, match=f"^{argument}='no_such': unknown name"):
        call(argument, {"no_such": 1})
    first = dataclasses.fields(GROUPS[argument])[0]
    call(argument, {first.name: first.default})


def test_what_a_fit_writes_down(published):
    asked = spec.resolve("logistic", published, epsilon=1.0, iterations=20)

    def call(name, value):
        RunLog(asked, types.SimpleNamespace(settings=asked.privacy), None, **{name: value})

    taken = {
        "ledger": OTHERS,
        "over_cap": OTHERS,
        "checkpoint": {"True"},
        "origin": {"{}"} | OTHERS,
    }
    assert_refuses_all_but(taken, call, taken)
    reservation.check_ledger(False)  # nowhere


@pytest.mark.parametrize("run", [fits.fit, sweeping.sweep])
def test_functions_are_asked_for_before_anything_is_spent(published, monkeypatch, run):
    def nothing(*_, **__):
        raise AssertionError("a fit was begun")

    monkeypatch.setattr(fits, "_prepare", nothing)
    monkeypatch.setattr(prepared_sweeps, "run_group", nothing)
    given = {"epsilon": 1.0} if run is fits.fit else {"epsilons": 1.0, "iterations": 20}
    names = ["stop", "on_snapshot"] if run is fits.fit else ["stop", "on_progress"]
    for name in names:
        with pytest.raises(ArgumentError, match=f"{name}='no': must be a function"):
            run("logistic", published, **grouped(given, **{name: "no"}))


def test_the_axes_and_settings_of_a_sweep(published, monkeypatch):
    monkeypatch.setattr(sweeping, "plan_of", lambda *_: None)  # calibration takes long
    monkeypatch.setattr(sweeping, "_facts", lambda *_: {"guarantee": None})

    def call(name, value):
        given = {
            "model": "logistic",
            "data": published,
            "epsilons": 1.0,
            "iterations": 20,
            name: value,
        }
        sweeping.prepare(**grouped(given, direct=LISTS))

    empty = {"[]", "()"}
    taken = {
        **FIT,
        "epsilons": POSITIVE,
        "seeds": WHOLE,
        "num_records": {"3"} | OTHERS,
        "clips": POSITIVE | OTHERS,
        "learning_rates": POSITIVE | OTHERS,
        "sampling_rates": RATE | OTHERS,
        "batch_sizes": WHOLE | OTHERS,
        "iterations": WHOLE | OTHERS,
        "models": empty,
        "baselines": empty,
        "store": OTHERS,
        "ledger": OTHERS,
        "over_cap": OTHERS,
        "estimators": OTHERS,
        **{argument: {"{}"} for argument in GROUPS},
    }
    assert_refuses_all_but(
        taken,
        call,
        [*table(sweeping.prepare), *settings.names(settings.Shared), "devices", "over_cap"],
    )


def test_a_sweep_run(published):
    prepared = sweeping.prepare("logistic", published, epsilons=1.0, iterations=20)
    for name in ("stop", "on_progress", "executor", "max_lanes"):
        for value in ("no", 0, math.nan, {}):
            with pytest.raises(ArgumentError, match=f"^{name}="):
                prepared.run(**{name: value})
    with pytest.raises(ArgumentError, match="accept_total_epsilon='no'"):
        prepared.accept("no")


def test_a_store_is_a_file():
    for value in ("", "no", 3, [], math.nan, b"x", "a\0b"):
        with pytest.raises(ArgumentError, match=r"^store="):
            Store(value)


def test_data_sets_of_tables():
    frame = pd.DataFrame({"a": np.linspace(0, 1, 40), "y": [0, 1] * 20})

    def call(name, value):
        wb.data.from_frame(
            frame, **{"target": "y", "features": ["a"], "bounds": {"a": (0, 1)}, name: value}
        )

    taken = {
        "evaluation_is_public": FLAG,
        "unit": TEXT,
        "name": TEXT,
        "split_seed": FROM_0,
        "evaluation_fraction": {"0"},
    }
    assert_refuses_all_but(taken, call, taken)


def test_data_sets_of_arrays():
    x, y = np.linspace(0, 1, 40)[:, None], np.array([0, 1] * 20)

    def call(name, value):
        wb.data.from_arrays(x, y, **{"bounds": (0, 1), name: value})

    taken = {
        "evaluation_is_public": FLAG,
        "unit": TEXT,
        "name": TEXT,
        "target_name": TEXT,
        "feature_names": OTHERS,
        "group": OTHERS,
        "evaluation": OTHERS,
    }
    assert_refuses_all_but(taken, call, taken)


@pytest.mark.parametrize("kind", ["images", "tokens"])
def test_data_sets_of_images_and_tokens(kind):
    y = np.array([0, 1] * 20)

    def call(name, value):
        if kind == "images":
            wb.data.from_images(np.zeros((40, 4, 4)), y, **{"classes": ["a", "b"], name: value})
        else:
            wb.data.from_tokens(
                np.zeros((40, 3), int),
                y,
                **{"classes": ["a", "b"], "vocabulary_size": 5, name: value},
            )

    taken = {
        "evaluation_is_public": FLAG,
        "unit": TEXT,
        "name": TEXT,
        "split_seed": FROM_0,
        "evaluation": OTHERS,
    }
    assert_refuses_all_but(taken, call, taken)


def test_flags_of_data_sets_and_columns():
    records = np.zeros((4, 1)), np.zeros(4, int)
    flags = ("evaluation_is_public", "is_public")

    def call(name, value):
        made = Dataset(
            **{
                "name": "d",
                "description": "d",
                "train": records,
                "evaluation": records,
                name: value,
            }
        )
        assert type(getattr(made, name)) in (bool, str)

    assert_refuses_all_but(
        dict.fromkeys(flags, FLAG) | {"name": TEXT, "unit": TEXT}, call, (*flags, "name", "unit")
    )
    assert_refuses_all_but(
        {"whole": FLAG}, lambda name, value: Numeric(0, 9, whole=value), ["whole"]
    )
    assert_refuses_all_but(
        {"other": FLAG}, lambda name, value: Categorical(("a",), other=value), ["other"]
    )
    assert Boolean().kind == "boolean"


def test_dpvi():
    model = wb.models.get("logistic")

    def call(name, value):
        given = {
            "optim": numpyro.optim.Adam(1e-3),
            "epsilon": 1.0,
            "sampling_rate": 0.1,
            name: value,
        }
        DPVI(model.model, lambda: None, **given)

    taken = {
        "sampler": TEXT | OTHERS | {"''", "' '"},
        "num_records": {"3"} | OTHERS,
        "microbatch_size": WHOLE | OTHERS,
        "clip_schedule": OTHERS,
        "average_from": FROM_0 | OTHERS,
        "learning_rate": OTHERS,
        "rules": {"{}"} | OTHERS,
    }
    assert_refuses_all_but(taken, call, [*taken, "estimator", "strategy"])


def test_what_dpvi_promises():
    model = wb.models.get("logistic")

    def call(name, value):
        if value is not None:  # then epsilon is needed
            DPVI(model.model, lambda: None, numpyro.optim.Adam(1e-3), **{name: value})

    assert_refuses_all_but({"privacy": {"None"}}, call, ["privacy"])
    with pytest.raises(ArgumentError, match=r"^epsilon=None: is missing"):
        DPVI(model.model, lambda: None, numpyro.optim.Adam(1e-3), privacy=None)


@pytest.mark.parametrize("name", ["", " ", "no"])
def test_dpvi_takes_no_empty_name_of_a_sampler_for_the_usual_one(name, published):
    model = wb.models.get("logistic")
    dpvi = DPVI(
        model.model,
        model.new_guide(),
        numpyro.optim.Adam(1e-3),
        epsilon=1.0,
        sampling_rate=0.1,
        iterations=5,
        sampler=name,
    )
    with pytest.raises(ArgumentError, match=r"^sampler="):
        dpvi.init(wb.noise.new_key(), *published.train, **model.options)


def test_what_is_public_is_said_by_a_flag(published):
    dpvi = object.__new__(DPVI)
    result = object.__new__(wb.FitResult)
    for value in STRANGE:
        if repr(value) in FLAG:
            continue
        with pytest.raises(ArgumentError, match=r"^public="):
            dpvi.evaluate(None, public=value)
        with pytest.raises(ArgumentError, match=r"^public="):
            result.score(published, public=value)


@pytest.mark.thorough
def test_an_audit(monkeypatch):
    # which has checks of its own
    monkeypatch.setattr(auditing.running, "audit_release", lambda *_, **__: None)

    def call(name, value):
        auditing.audit(**{"iterations": 1, "seed": 0, name: value})

    taken = {
        "data": OTHERS,
        "epsilon": POSITIVE,
        "iterations": WHOLE,
        "sampling_rate": RATE,
        "relation": OTHERS,
        "clip": POSITIVE,
        "num_others": WHOLE,
        "learning_rate": POSITIVE | OTHERS,
        "seed": FROM_0 | OTHERS,
    }
    assert_refuses_all_but(taken, call, [*taken, "model", "delta", "sampler", "clipping", "mode"])


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(["noise_multiplier", "max_steps", "max_sampling_rate"], 3))
def test_calibration(name):
    find = getattr(wb.privacy, name)
    given = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "noise_multiplier": 2.0,
        "sampling_rate": 0.01,
        "steps": 10,
    }

    def call(argument, value):
        if argument == "noise_multiplier" and isinstance(
            value, (np.ndarray, list, tuple)
        ):  # schedules
            raise ArgumentError(argument, value, "")
        find(**{key: each for key, each in given.items() if key in table(find)} | {argument: value})

    taken = {
        "epsilon": POSITIVE,
        "noise_multiplier": POSITIVE,
        "steps": WHOLE,
        "relation": OTHERS,
        "sampling_rate": RATE,
    }
    assert_refuses_all_but(taken, call, [each for each in table(find) if each != "sampling_rate"])


@pytest.mark.parametrize(
    "answer", ["no", "off", "False", '"no"', "'off'", "0", "null", "[]", "NO", "n"]
)
@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
def test_no_in_a_plan_is_never_yes(tmp_path, private_frame, answer, form):
    """YAML 1.1 reads no and off as false, YAML 1.2 as text: here the text is refused, and false in
    each format is false.
    """
    from workbench.sweeps import plan_file

    private_frame.to_csv(tmp_path / "clinic.csv", index=False)
    plan = tmp_path / f"plan.{form}"

    def write(value):
        if form == "yaml":
            plan.write_text(
                "model: logistic\nepsilons: 1\ndata:\n  file: clinic.csv\n  target: ill\n"
                f"  bounds: {{dose: [0, 200], age: [0, 100]}}\n  evaluation_is_public: {value}\n"
            )
        elif form == "json":
            value = (
                value
                if value in ("false", "0", "null", "[]")
                else f'"{value.strip(chr(34) + chr(39))}"'
            )
            plan.write_text(
                '{"model": "logistic", "epsilons": 1, "data": {"file": "clinic.csv", "target": '
                '"ill", "bounds": {"dose": [0, 200], "age": [0, 100]}, "evaluation_is_public": '
                f"{value}}}}}"
            )
        else:
            value = (
                value if value in ("false", "0", "[]") else f'"{value.strip(chr(34) + chr(39))}"'
            )
            plan.write_text(
                'model = "logistic"\nepsilons = 1\n[data]\nfile = "clinic.csv"\ntarget = "ill"\n'
                f"bounds = {{dose = [0, 200], age = [0, 100]}}\nevaluation_is_public = {value}\n"
            )

    write(answer)
    if form == "yaml" and answer == "False":
        assert plan_file.read(plan)["data"].evaluation_is_public is False
    else:
        with pytest.raises(ArgumentError, match=r"^evaluation_is_public=.*: must be True or False"):
            plan_file.read(plan)
    write("false")
    assert plan_file.read(plan)["data"].evaluation_is_public is False


@pytest.mark.parametrize(
    ("group", "name"), [("privacy", "evaluate_private"), ("training", "average")]
)
def test_flags_of_a_fit_in_a_plan(tmp_path, group, name):
    from workbench.sweeps import plan_file

    (tmp_path / "plan.yaml").write_text(
        f"model: logistic\ndata: breast_cancer\nepsilons: 1\niterations: 20\n{group}: {{{name}: "
        "no}\n"
    )
    with pytest.raises(ArgumentError, match=f"^{name}='no': must be True or False"):
        sweeping.prepare(**plan_file.read(tmp_path / "plan.yaml"))


@pytest.mark.parametrize(
    "line", ["ledger: no", "store: off", "ledger: true", "store: ''", "privacy: {over_cap: no}"]
)
def test_an_answer_in_a_plan_names_no_file_and_no_reason(tmp_path, line):
    from workbench.sweeps import plan_file

    (tmp_path / "plan.yaml").write_text(
        f"model: logistic\ndata: breast_cancer\nepsilons: 1\niterations: 20\n{line}\n"
    )
    with pytest.raises(
        ArgumentError, match=f"^{'over_cap' if 'over_cap' in line else line.partition(':')[0]}="
    ):
        sweeping.prepare(**plan_file.read(tmp_path / "plan.yaml"))
    assert [file.name for file in tmp_path.iterdir()] == ["plan.yaml"]


def test_a_path_called_no_can_be_named():
    assert _validate.location("store", "./no").name == "no"


def test_equal_flags_are_the_same_fit(published):
    keys = [
        set(
            sweeping.prepare(
                "logistic",
                published,
                epsilons=1.0,
                iterations=20,
                training=wb.Training(average=flag),
            ).cells
        )
        for flag in (True, np.True_)
    ]
    assert keys[0] == keys[1]


@pytest.mark.thorough
def test_estimators_for_scikit_learn(monkeypatch):
    x, y = np.linspace(0, 1, 40)[:, None], np.array([0, 1] * 40)[:40]

    def resolved(estimator, model, data):
        given = {
            name: value
            for name, value in estimator.get_params().items()
            if name in table(spec.resolve)
        }
        spec.resolve(model, data, **given)
        raise Resolved

    monkeypatch.setattr(PrivateEstimator, "_fit", resolved)
    own = {"bounds": set(), "y_bounds": set(), "prior_scale": POSITIVE, "n_clusters": WHOLE}
    own["classes"] = {*OTHERS, repr(np.array([True, False]))}  # of labels 0 and 1
    taken = {**FIT, **own, "covariance": set(), "unit": TEXT, "name": TEXT, "sampler": set()}
    for estimator in (
        wb.sklearn.PrivateClassifier,
        wb.sklearn.PrivateRegressor,
        wb.sklearn.PrivateClusterer,
    ):
        ranges = {"y_bounds": (0, 1)} if estimator is wb.sklearn.PrivateRegressor else {}

        def call(name, value, estimator=estimator, ranges=ranges):
            with contextlib.suppress(Resolved):
                estimator(**{"bounds": (0, 1), "iterations": 20, **ranges, name: value}).fit(x, y)

        # a fit takes the others
        assert_refuses_all_but(taken, call, table(estimator, without=("cap", "ledger", "over_cap")))


class Resolved(Exception):
    """A request was in order."""
