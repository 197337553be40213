"""Fits that protect persons with several rows: what they promise, and that each way of running them
takes the same steps.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS
from workbench import ArgumentError
from workbench.fitting import fits
from workbench.fitting.groups import grouped
from workbench.inference.units import UnitRows
from workbench.ledger.budget import CapError
from workbench.ledger.ledger import Ledger
from workbench.sweeps.request import LISTS

SETTINGS = {
    "epsilon": 2.0,
    "delta": 1e-4,
    "iterations": 60,
    "sampling_rate": 0.2,
    "clip": 2.0,
    "seed": 3,
}
BOUNDS = {"target": "ill", "bounds": (-1, 1)}


@functools.cache
def visits():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(300), rng.integers(1, 8, 300))
    x = rng.uniform(-1, 1, (len(ids), 2))
    ill = (rng.random(len(ids)) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
    return pd.DataFrame({"patient_id": ids, "a": x[:, 0], "b": x[:, 1], "ill": ill})


def patients(**changes):
    return wb.data.from_frame(
        visits(), **{"unit_id": "patient_id", "max_rows": 5, **BOUNDS, **changes}
    )


def rows():
    return wb.data.from_frame(visits().drop(columns="patient_id"), **BOUNDS)


def fit(data, **changes):
    return wb.fit("logistic", data, **grouped({**SETTINGS, "ledger": False, **changes}))


@pytest.fixture(scope="module", params=EITHER_STEPS)
def fitted(request):
    with fakes.installed(request.param == "made up"):
        return fit(patients())


def test_the_promise_is_to_patients(fitted):
    promised = fitted.guarantee
    assert (promised.unit, promised.max_rows, promised.num_records) == (
        "patient",
        5,
        patients().num_train,
    )
    assert promised.headline().startswith("For each patient: ")
    assert (
        "gradients per patient, of up to 5 rows together, clipped to norm 2" in promised.statement()
    )
    assert "a patient with all rows is the privacy unit" in " ".join(fitted.data["declarations"])
    assert "Here, a record is one patient with all rows." in promised.statement()
    assert type(promised).from_dict(promised.to_dict()) == promised


@pytest.mark.thorough
def test_one_row_each_is_what_it_was():
    """Where every patient has one row, the steps are those of rows, up to the order in which they
    lie.
    """
    frame = visits().drop_duplicates("patient_id")
    second = frame.iloc[:1]
    twice = pd.concat([frame, second], ignore_index=True)  # or the column would say nothing
    alone = wb.data.from_frame(twice, unit_id="patient_id", max_rows=1, **BOUNDS)
    assert set(alone.units.counts) == {1}
    plain = dataclasses.replace(alone, units=None, unit="training record")
    for name, value in fit(alone).params.items():
        np.testing.assert_allclose(value, fit(plain).params[name], rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_lanes_of_a_sweep_are_fits():
    settings = {
        "delta": SETTINGS["delta"],
        "iterations": 60,
        "sampling_rates": 0.2,
        "clips": 2.0,
        "baselines": (),
    }
    public = dataclasses.replace(patients(), is_public=True)
    swept = wb.sweep(
        "logistic", public, epsilons=[1, 2], seeds=[3], **grouped(settings, direct=LISTS)
    )
    for epsilon in (1.0, 2.0):
        (number,) = swept.numbers(epsilon=epsilon)
        alone = fit(patients(), epsilon=epsilon)
        for name, value in swept.fit(number).params.items():
            np.testing.assert_allclose(value, alone.params[name], rtol=1e-3, atol=1e-4)


def test_the_mean_of_a_patient_weighs_each_alike():
    step = fits.prepare("logistic", patients(unit_mean=True), ledger=False, **SETTINGS).step
    assert step.source == UnitRows((5, 2, 1), mean=True)


@pytest.mark.thorough
def test_units_that_differ_have_no_common_total(tmp_path):
    book = Ledger(tmp_path / "ledger.sqlite")
    row_level, by_patient = rows(), patients()
    fit(row_level, ledger=book)
    fit(by_patient, ledger=book, seed=4)
    status = (
        book.budget_status(by_patient.name) if len(book.datasets()) == 1 else book.budget_status(2)
    )
    assert status.units == ("row", "patient")
    assert status.total.epsilon == np.inf
    assert [each.epsilon < 3 for each in status.totals] == [True, True]
    assert "no common total" in status.statement()
    assert "under adding or removing any one patient" in status.statement()
    assert "under adding or removing any one row" in status.statement()
    book.set_cap(2, 10.0, 1e-4, why="a test")
    with pytest.raises(
        CapError, match="unit_id='patient': cannot be counted under one cap"
    ) as caught:
        fit(by_patient, ledger=book, seed=5)
    assert caught.value.code == "cap unit"
    assert fit(by_patient, ledger=book, seed=5, over_cap="the patients agreed").status == "done"


@pytest.mark.thorough
def test_fingerprints_tell_units_apart():
    data = (rows(), patients(), patients(max_rows=4), patients(unit_mean=True))
    fingerprints = {
        fits.prepare("logistic", each, ledger=False, **SETTINGS).spec.fingerprint for each in data
    }
    assert len(fingerprints) == 4


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement"])
def test_units_that_may_be_replaced_keep_their_places(sampler):
    spec = fits.prepare(
        "logistic", patients(), ledger=False, **SETTINGS, privacy=wb.Privacy(sampler=sampler)
    ).spec
    expected = spec.data.units.index if sampler == "poisson" else spec.data.units.in_place
    assert all(np.array_equal(a, b) for a, b in zip(spec.records[-2:], expected, strict=True))
    assert spec.record_source.widths == ((5, 2, 1) if sampler == "poisson" else (5,))


def test_a_padded_data_set_is_refused_for_the_data_set_itself():
    with pytest.raises(ArgumentError, match="pass the data set itself"):
        fit(patients().select(("x", "present", "y")))


def test_an_audit_refuses_units():
    with pytest.raises(ArgumentError, match="give max_rows without data"):
        wb.audit(
            "logistic", dataclasses.replace(patients(), is_public=True), parts=("sensitivity",)
        )


@pytest.mark.thorough
def test_clipping_grows_with_the_root_of_the_rows():
    one, several, mean = (
        fits.prepare("logistic", data, ledger=False, epsilon=1.0).privacy.clip
        for data in (
            patients(max_rows=1),
            patients(max_rows=4),
            patients(max_rows=4, unit_mean=True),
        )
    )
    assert several == pytest.approx(2 * one)
    assert mean == pytest.approx(one)


def test_subsets_are_refused_by_name():
    with pytest.raises(ArgumentError, match="num_records"):
        patients().subset(10)


# --- a latent of each person ----------------------------------------------------------------------


def own_intercepts(x, present, y=None, num_records=None):
    """A random intercept for each person: a plate of people outside the plate of their rows."""
    weights = numpyro.sample("weights", dist.Normal(0, 3).expand([x.shape[-1]]).to_event(1))
    spread = numpyro.sample("spread", dist.LogNormal(0, 1))
    with numpyro.plate("people", num_records or len(x), subsample_size=len(x), dim=-2):
        own = numpyro.sample("own", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[1], dim=-1), numpyro.handlers.mask(mask=present > 0):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights + spread * own), obs=y)


def own_intercepts_guide(x, present, y=None, num_records=None):
    """The networks see how many of a person's rows are 1, and how many there are."""
    for name, link in (("weights", dist.Normal), ("spread", dist.LogNormal)):
        shape = [x.shape[-1]] if name == "weights" else []
        loc = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(
            f"{name}_scale", 0.1 * jnp.ones(shape), constraint=dist.constraints.positive
        )
        numpyro.sample(name, link(loc, scale).to_event(len(shape)))
    slopes, log_scale = (
        numpyro.param("slopes", jnp.zeros(3)),
        numpyro.param("log_scale", jnp.zeros(2)),
    )
    ones, rows = (
        jnp.sum(present * y, axis=1, keepdims=True),
        jnp.sum(present, axis=1, keepdims=True),
    )
    loc = (slopes[0] + slopes[1] * ones + slopes[2] * (rows - ones)) / jnp.sqrt(1 + rows)
    with numpyro.plate("people", num_records or len(x), subsample_size=len(x), dim=-2):
        numpyro.sample(
            "own",
            dist.Normal(loc, jnp.exp(log_scale[0] - jnp.exp(log_scale[1]) * jnp.log1p(rows) / 2)),
        )


def of_people(spread, people=2000):
    rng = np.random.default_rng(1)
    ids = np.repeat(np.arange(people), rng.integers(3, 9, people))
    a = rng.uniform(-1, 1, len(ids))
    logits = 2 * a + rng.normal(0, spread, people)[ids]
    frame = pd.DataFrame(
        {
            "person": ids,
            "a": a,
            "ill": (rng.random(len(ids)) < 1 / (1 + np.exp(-logits))).astype(int),
        }
    )
    return wb.data.from_frame(frame, unit_id="person", max_rows=8, **BOUNDS)


def test_a_model_of_persons_gets_their_rows_beside_one_another():
    data = patients()
    seen = data.select(("x", "present", "y"))
    x, present, y = seen.train
    assert x.shape == (data.num_train, 5, 2)
    assert present.shape == y.shape == (seen.num_train, 5)
    np.testing.assert_array_equal(present.sum(axis=1), data.units.counts)
    np.testing.assert_array_equal(x[present > 0], data.train[0])
    np.testing.assert_array_equal(y[present > 0], data.train[1])
    assert seen.evaluation[1].max(axis=1).all()
    seen.check()
    with pytest.raises(ArgumentError, match="unit_id= names the column"):
        rows().select(("x", "present", "y"))


def test_rows_that_weigh_less_are_not_for_models_of_persons():
    """They would be counted in full, while the result says otherwise."""
    with pytest.raises(ArgumentError, match="unit_mean=True: weighs rows"):
        patients(unit_mean=True).select(("x", "present", "y"))


def test_dpvi_protects_whole_persons():
    """Their arrays have an entry for each person; nothing but N and the shapes tells so."""
    data = patients()
    planned = {"epsilon": 2.0, "delta": 1e-4, "iterations": 60, "sampling_rate": 0.2, "clip": 2.0}
    dpvi = wb.inference.DPVI(
        own_intercepts, own_intercepts_guide, numpyro.optim.Adam(0.05), **planned
    )
    state = dpvi.init(wb.noise.new_key(), *data.select(("x", "present", "y")).train)
    promised = dpvi.guarantee(state, unit="patient")
    assert (promised.num_records, dpvi.private_step.sampler.num_records) == (
        data.num_train,
        data.num_train,
    )
    assert dpvi.private_step.model.blank_record[0].shape == (5, 2)


@pytest.mark.thorough
def test_a_latent_of_each_person_is_learnt():
    """How far people differ, which rows alone cannot tell."""
    model = wb.models.Model(
        "own", "Own intercepts.", own_intercepts, own_intercepts_guide, arrays=("x", "present", "y")
    )
    found = {}
    for spread in (0.3, 2.0):
        result = wb.fit(
            model,
            of_people(spread),
            epsilon=8.0,
            iterations=1500,
            learning_rate=0.03,
            ledger=False,
            seed=1,
        )
        assert (result.guarantee.unit, result.guarantee.max_rows) == ("person", 8)
        found[spread] = (
            float(np.median(result.draws["spread"])),
            float(np.mean(result.draws["weights"])),
        )
    assert found[0.3][0] < 0.8 < 1.2 < found[2.0][0] < 3
    assert abs(found[2.0][1] - 2) < 0.5
