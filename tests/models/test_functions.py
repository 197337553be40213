"""NumPyro functions that are passed as models, without registration."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from workbench import ArgumentError
from workbench.fitting import fits
from workbench.models import registry
from workbench.models.functions import arguments_of
from workbench.models.registry import as_model, offer

FEW = {"epsilon": 1.0, "iterations": 5, "seed": 1}


@pytest.fixture(autouse=True)
def same_gallery_afterwards(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


def probit(x, y=None):
    """Probit regression."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", len(x)):
        numpyro.sample("y", dist.Bernoulli(dist.Normal().cdf(x @ weights)), obs=y)


def by_group(group, x, y=None, num_groups=3, prior_scale=1.0):
    spread = numpyro.sample("spread", dist.HalfNormal(prior_scale))
    with numpyro.plate("groups", num_groups):
        level = numpyro.sample("level", dist.Normal(0, spread))
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=level[group] + x @ weights), obs=y)


def counts(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(x @ weights)), obs=y)


def logistic(x, y=None):
    probit(x, y)


class Wide:
    def model(self, x, y=None):
        probit(x, y)


@pytest.fixture
def few_counts():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"age": random.uniform(0, 1, 60), "visits": random.poisson(2, 60)})
    return wb.data.from_frame(
        frame,
        target="visits",
        bounds={"age": (0, 1)},
        target_bounds=(0, 20),
        evaluation_fraction=0.2,
        evaluation_is_public=True,
    )


# ---- what a function takes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arrays", "required", "options"),
    [
        (probit, ("x", "y"), 1, {}),
        (by_group, ("group", "x", "y"), 2, {"num_groups": 3, "prior_scale": 1.0}),
        (
            functools.partial(by_group, num_groups=5),
            ("group", "x", "y"),
            2,
            {"num_groups": 5, "prior_scale": 1.0},
        ),
        (Wide().model, ("x", "y"), 1, {}),
        (lambda data, num_records=None, scale=None: None, ("data",), 1, {"scale": None}),
        (lambda x, y=None, *, scale=2.0, **rest: None, ("x", "y"), 1, {"scale": 2.0}),
        (len, ("obj",), 1, {}),
    ],
)
def test_arrays_come_first_and_options_after_them(function, arrays, required, options):
    found = arguments_of(function)
    assert (found.arrays, found.required, dict(found.options)) == (arrays, required, options)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (probit, "probit"),
        (functools.partial(by_group, num_groups=5), "by_group"),
        (lambda x, y=None: probit(x, y), "model"),
        (logistic, "logistic_function"),
    ],
)
def test_a_function_is_a_model_of_its_name_unless_that_is_taken(function, name):
    model = as_model(function)
    assert (model.name, model.model) == (name, function)
    assert model.summary


def test_names_and_models_are_taken_as_they_are():
    assert as_model("logistic") == wb.models.get("logistic")
    model = wb.models.get("logistic")
    assert as_model(model) is model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (3, "must be a name, a workbench.models.Model or a NumPyro function"),
        (Wide, "must be a name, a workbench.models.Model or a NumPyro function"),
        (lambda scale=1.0: None, "takes no arrays"),
        (lambda x, y=None, *, scale: None, r"must have defaults for scale\. functools\.partial"),
        (lambda y, x: None, r"takes y, x: the target must be the last"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [wb.fit, wb.prepare, wb.audit, functools.partial(wb.sweep, epsilons=[1.0])],
    ids=["fit", "prepare", "audit", "sweep"],
)
def test_what_is_no_model_is_refused_by_name(call, model, words):
    rest = {} if isinstance(call, functools.partial) else {"epsilon": 1.0}
    with pytest.raises(ArgumentError, match=words) as caught:
        call(model=model, data="breast_cancer", **rest)
    assert caught.value.argument.startswith("model")


# ---- which arrays it is given --------------------------------------------------------------------


def test_arrays_are_given_by_name():
    data = wb.data.load("hierarchical")
    seen = as_model(by_group).view(data)
    assert seen.arrays == ("group", "x", "y")
    assert seen.train[0] is data.train[1]
    assert as_model(probit).view(data).arrays == ("x", "y")


def test_arrays_of_other_names_are_given_in_their_order():
    assert as_model(lambda features, labels=None: None).view(
        wb.data.load("breast_cancer")
    ).arrays == ("x", "y")
    assert as_model(lambda *arrays, num_records: None).view(
        wb.data.load("hierarchical")
    ).arrays == ("x", "group", "y")


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (probit, "mixture", "has no array 'y'"),
        (
            lambda features, y=None: None,
            "hierarchical",
            "has the arrays x, group, y, but model takes features, y: give",
        ),
        (
            lambda group, x, y, num_groups: None,
            "hierarchical",
            "takes group, x, y, num_groups: give what is no array",
        ),
        (lambda y, features: None, "breast_cancer", "so y would be x"),
        (lambda first, x, y=None: None, "hierarchical", "so x would be group"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(model, data, words):
    with pytest.raises(ArgumentError, match=words) as caught:
        as_model(model).view(wb.data.load(data))
    assert caught.value.argument == "data"


# ---- fits ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_steps")
def test_a_function_fits_as_the_registered_model_does():
    prepared = fits.prepare(probit, "breast_cancer", **FEW)
    wb.models.register("probit", probit)
    again = fits.prepare("probit", "breast_cancer", **FEW)
    assert prepared.spec.program_key(prepared.plan) == again.spec.program_key(again.plan)


def predicts_and_summarises(result, shape):
    predictions = result.predict()
    assert predictions.shape == shape
    assert np.all((predictions >= 0) & (predictions <= 1))
    assert any(name.startswith("weights") for name in result.summary_table().index)
    assert np.isfinite(result.metrics["elbo"])


@pytest.mark.usefixtures("made_up_steps")
def test_predictions_are_the_mean_of_the_observed_site(few_counts):
    result = wb.fit(counts, few_counts, **FEW)
    (features,) = few_counts.evaluation[:1]
    places = np.unique(np.linspace(0, len(result.draws["weights"]) - 1, 200).round().astype(int))
    expected = np.exp(features @ result.draws["weights"][places].T).mean(axis=1)
    np.testing.assert_allclose(result.predict(), expected, rtol=1e-4)


@pytest.mark.thorough
def test_a_function_that_needs_its_target_or_has_no_inputs_does_not_predict():
    def greedy(x, y=None):
        probit(x + 0 * y[:, None], y)

    def means(x):
        centre = numpyro.sample("centre", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("records", len(x)):
            numpyro.sample("x", dist.Normal(centre, 1).to_event(1), obs=x)

    for model, data in ((greedy, "breast_cancer"), (means, "mixture")):
        with pytest.raises(ArgumentError, match="has no predict function") as caught:
            wb.fit(model, data, **FEW).predict()
        assert caught.value.argument == "model"


def test_a_plate_that_does_not_hold_the_records_is_refused():
    def five(x, y=None):
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("records", 5):
            numpyro.sample(
                "y", dist.Bernoulli(logits=(x @ weights)[:5]), obs=None if y is None else y[:5]
            )

    with pytest.raises(wb.PrivacyModelError, match="plate"):
        wb.prepare(five, "breast_cancer", **FEW)


def test_a_stopped_fit_goes_on_with_the_same_function_only_and_predicts(tmp_path, monkeypatch):
    fakes.trust_models(monkeypatch)

    def scaled(x, y=None, scale=1.0):
        probit(x * scale, y)

    wb.fit(
        scaled,
        "breast_cancer",
        **FEW,
        execution=wb.Execution(checkpoint=tmp_path / "run", stop=lambda: True),
    )
    with pytest.raises(ArgumentError, match="pass the model itself"):
        wb.resume(tmp_path / "run")
    for other in (counts, functools.partial(scaled, scale=3.0)):
        with pytest.raises(ArgumentError, match="belongs to another plan, version, model"):
            wb.resume(tmp_path / "run", model=other)
    result = wb.resume(tmp_path / "run", model=scaled)
    assert result.status == "done"
    predicts_and_summarises(result, (wb.data.load("breast_cancer").num_evaluation,))


# ---- sweeps and menus ----------------------------------------------------------------------------


@pytest.fixture
def trusted_models(monkeypatch):
    fakes.trust_models(monkeypatch)


def keys(model):
    from workbench.sweeps.sweeping import prepare

    grid = prepare(model, "breast_cancer", epsilons=[1.0], seeds=[1]).grid
    return {grid.key_of(cell) for cell in grid.cells()}


@pytest.mark.usefixtures("trusted_models")
def test_a_store_tells_functions_apart_by_what_they_read():
    def scaled(scale):
        def model(x, y=None, intercept=True):
            probit(x * scale, y)

        return model

    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def model(self, x, y=None):
            probit(x * self.scale, y)

    for make in (scaled, lambda scale: Scaled(scale).model):
        assert keys(make(1.0)) == (ones := keys(make(1.0)))
        assert keys(make(2.0)) != ones


@pytest.mark.usefixtures("trusted_models")
def test_a_store_tells_functions_apart_by_the_globals_they_read():
    def model_of(scale):
        names = {"scale": scale, "probit": probit}
        exec("def model(x, y=None):\n    (lambda: probit(x * scale, y))()", names)
        return names["model"]

    assert keys(model_of(1.0)) == (ones := keys(model_of(1.0)))
    assert keys(model_of(2.0)) != ones


def test_a_menu_offers_a_function_under_its_name():
    assert offer("gmm") == "gmm"
    assert offer(probit) == "probit"
    assert offer(logistic) == "logistic_function"
    assert wb.models.get("logistic_function").model is logistic
    assert wb.models.get("logistic").model is not logistic
    assert offer(probit) == "probit"
    assert {"probit", "logistic_function"} <= set(wb.models.names())
