"""The form of result.json: every field, edited by somebody who brings the digests up to date, is
refused or read.
"""

import contextlib
import copy
import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from workbench import ArgumentError, _schema
from workbench.record_model.estimators import ESTIMATORS
from workbench.results import FitResult, _atomic, _form, arviz_adapter, storage

NUMBERS = (None, True, -1, 0, 1.5, 2**70, float("nan"), float("inf"))
WRONG = (*NUMBERS, "", "\0\n", "float32", [], [None], [[1], 2], {}, {"": None})


@pytest.fixture(scope="module")
def table():
    x = np.random.default_rng(5).uniform(0, 10, 60)
    frame = pd.DataFrame({"x": x, "ward": ["a", "b", "c"] * 20, "y": x / 2})
    schema = {"x": (0, 10), "ward": wb.data.Categorical(["a", "b", "c"]), "y": (0, 6)}
    with fakes.installed():
        return wb.fit(
            "y ~ x + ward",
            frame,
            schema=schema,
            epsilon=2.0,
            delta=1e-3,
            iterations=9,
            ledger=False,
            privacy=wb.Privacy(num_records=60),
        )


@pytest.fixture(
    scope="module",
    params=[
        "table",
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("done", "open")),
    ],
)
def folder(request, tmp_path_factory):
    """A saved result, and another one to edit."""
    if request.param == "open":
        result = wb.fit("logistic", "breast_cancer", private=False, iterations=20, seed=1)
    else:
        result = request.getfixturevalue(request.param)
    place = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(FitResult, "report", lambda _: "a report")
        result.save(place)
    return place


def leaves(value, place=()):
    """The places of all values in JSON, those of objects and lists too; of long lists the first two
    and the last.
    """
    yield place
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, entry in inside:
        if not isinstance(value, list) or name < 2 or name == len(value) - 1:
            yield from leaves(entry, (*place, name))


def edited(values, place, wrong):
    """A copy of ``values`` with something else, or nothing, in that place."""
    name, *rest = place
    inside = copy.copy(values)
    if rest:
        inside[name] = edited(values[name], rest, wrong)
    elif wrong is ...:
        del inside[name]
    else:
        inside[name] = wrong
    return inside


def write(folder, values):
    values = {name: value for name, value in values.items() if name != "digest"}
    (folder / "result.json").write_text(json.dumps({**values, "digest": storage.digest_of(values)}))


def use(result):
    """Everything that is read from a result without fitting anything."""
    (
        repr(result),
        result.summary_table(),
        result._repr_html_(),
        result.labels,
        result.guarantee.statement(),
    )
    result.interval_warning, result.interval_words, storage._encode(result)


def test_an_edited_field_is_named_or_harmless(folder, monkeypatch):
    """Numbers of arrays are read once: they are not what is edited."""
    content = (folder / "result.json").read_text()
    values = json.loads(content)
    draws = arviz_adapter.load_draws(folder / "posterior.nc")
    monkeypatch.setitem(wb.results.loading._READERS, "posterior.nc", lambda _: dict(draws))
    places = [place for place in leaves(values) if place and place[0] != "digest"]
    refusals, used = [], 0
    for number, place in enumerate(places):
        some = (
            WRONG if len(place) == 1 else [WRONG[(number + turn) % len(WRONG)] for turn in range(2)]
        )
        for wrong in (..., *some):
            write(folder, edited(values, place, wrong))
            try:
                loaded = wb.load(folder)
            except ArgumentError as error:
                refusals.append((str(place[0]), error.argument, str(error)))
                continue
            used += 1
            if number % 8 == 0 or len(place) == 1:
                of_model = ArgumentError if place[0] in ("model", "model_options") else ()
                with warnings.catch_warnings(), contextlib.suppress(of_model):
                    warnings.simplefilter("ignore")
                    use(loaded)
    (folder / "result.json").write_text(content)
    assert len(places) > 150
    assert len(refusals) > used
    for field, argument, message in refusals:
        assert (argument, "\n" in message) == ("folder", False)
        said = (
            ""
            if field in ("arrays", "files")
            else f"is damaged: {field}"
            if field != "format"
            else "does not have format"
        )
        assert f"result.json {said}".strip() in message


@pytest.mark.parametrize("change", ["shape", "nan", "type", "missing", "more", "draws", "labels"])
def test_arrays_that_are_not_those_of_the_result_are_refused(done, tmp_path, quick_report, change):
    done.save(tmp_path)
    with np.load(tmp_path / "params.npz") as file:
        params = dict(file)
    name = next(name for name in params if params[name].ndim)
    if change == "shape":
        params[name] = params[name][:-1]
    elif change == "nan":
        params[name] = np.full_like(params[name], np.nan)
    elif change == "type":
        params[name] = params[name].astype(np.float64)
    elif change == "missing":
        del params[name]
    elif change == "more":
        params["another"] = np.zeros(3)
    np.savez(tmp_path / "params.npz", **params)
    values = json.loads((tmp_path / "result.json").read_text())
    if change == "draws":
        cut = {
            name: draws[:, :1] if draws.ndim > 1 else draws for name, draws in done.draws.items()
        }
        arviz_adapter.save_draws(arviz_adapter.to_posterior(cut, {}, {}), tmp_path / "posterior.nc")
    if change == "labels":
        values["coordinates"] = {name: labels[1:] for name, labels in values["coordinates"].items()}
    values["files"] = {
        file: _atomic.digest((tmp_path / file).read_bytes()) for file in values["files"]
    }
    write(tmp_path, values)
    with pytest.raises(
        ArgumentError, match=r"result\.json describes|coordinates\.weights must be labels"
    ) as error:
        wb.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_result_without_privacy_is_not_covered(tmp_path, quick_report):
    result = wb.fit("logistic", "breast_cancer", private=False, iterations=5, seed=1)
    result.save(tmp_path)
    values = json.loads((tmp_path / "result.json").read_text())
    write(tmp_path, {**values, "release_label": "covered"})
    with pytest.raises(
        ArgumentError, match="release_label must be that of a fit with this guarantee"
    ):
        wb.load(tmp_path)


def test_estimators_are_those_of_fits():
    for name in (*ESTIMATORS, "statistics"):
        _form._SETTINGS["estimator"]("estimator", name)
    with pytest.raises(_schema.FormError):
        _form._SETTINGS["estimator"]("estimator", "another")


def test_a_key_that_occurs_twice_is_refused(folder, tmp_path):
    """Python's reader would take the last, another program perhaps the first."""
    shutil.copytree(folder, tmp_path / "copy")
    index = tmp_path / "copy" / "result.json"
    index.write_text('{"status": "failed", ' + index.read_text().lstrip()[1:])
    with pytest.raises(ArgumentError, match="the key 'status' occurs twice"):
        wb.load(tmp_path / "copy")
