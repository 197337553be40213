"""What surrounds a NumPyro model: the arrays it takes, its diagram, its pictures."""

import dataclasses
import re

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.models import Model
from workbench.models.relations import distributions_of, records_of

FITTING_DATA = {
    "logistic": "breast_cancer",
    "hierarchical_logistic": "hierarchical",
    "gmm": "mixture",
    "vae": "digits",
    "neural_classifier": "tokens",
}


def test_the_gallery_has_the_five_models():
    assert set(FITTING_DATA) <= set(wb.models.names())


@pytest.mark.parametrize("name", FITTING_DATA)
def test_a_model_of_the_gallery_is_described_in_full(name):
    model = wb.models.get(name)
    assert model.summary.endswith(".")
    assert model.reference
    assert model.pictures
    assert model.arrays


@pytest.mark.parametrize("name", FITTING_DATA)
def test_a_model_sees_the_arrays_that_it_takes(name):
    data = wb.data.load(FITTING_DATA[name])
    seen = wb.models.get(name).view(data)
    assert seen.arrays == wb.models.get(name).arrays
    for place, array in enumerate(seen.arrays):
        assert seen.train[place] is data.train[data.arrays.index(array)]


@pytest.mark.parametrize(
    ("name", "data", "missing"),
    [("logistic", "mixture", "y"), ("hierarchical_logistic", "breast_cancer", "group")],
)
def test_data_without_an_array_are_refused(name, data, missing):
    with pytest.raises(
        ArgumentError, match=f"^data='{data}': has no array '{missing}', which the model needs"
    ):
        wb.models.get(name).view(wb.data.load(data))


def texts(figure):
    """All text of a diagram, without the sizes of sites."""
    return [re.sub(r" \[.*\]$", "", text.get_text()) for text in figure.axes[0].texts]


@pytest.mark.parametrize("name", FITTING_DATA)
def test_the_plate_diagram_shows_the_sites_and_the_record_plate(name):
    figure = wb.models.get(name).diagram(wb.data.load(FITTING_DATA[name]))
    observed = "x" if name in ("gmm", "vae") else "y"
    assert {observed, "records"} <= set(texts(figure))
    assert figure.get_label().endswith("observed, in the plate records.")
    assert figure._repr_png_()[0].startswith(b"\x89PNG")


def pooled(x, y=None, num_records=None):
    with numpyro.plate("features", x.shape[-1]):
        weights = numpyro.sample("weights", dist.Normal(0, 1))
    with numpyro.plate("pairs", num_records):
        numpyro.sample("noise", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("patients", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def test_a_diagram_looks_at_no_record_and_hides_their_number():
    data = wb.data.load("breast_cancer")
    seen = []
    poisoned = dataclasses.replace(
        data, train=tuple(np.full_like(array, 77) for array in data.train)
    )
    model = Model(
        "pooled",
        "A model.",
        lambda *records, **options: seen.append(records) or pooled(*records, **options),
    )
    shown = texts(model.diagram(poisoned))
    assert {"features: 30", "pairs", "records"} <= set(shown)
    assert not any(str(number) in text for text in shown for number in (data.num_train, 455, 569))
    assert seen
    given = [array for records in seen for array in records]
    assert all(len(array) < 4 for array in given)
    assert not any(array.any() for array in given if not isinstance(array, jax.core.Tracer))


def test_a_diagram_names_distributions_as_people_do():
    shown = texts(wb.models.get("gmm").diagram(wb.data.load("mixture")))
    assert {"~ mixture of Normal", "~ transformed Gamma", "computed"} <= set(shown)
    assert "~ Bernoulli" in texts(wb.models.get("logistic").diagram(wb.data.load("breast_cancer")))


def test_a_diagram_shows_inputs_groups_and_sizes():
    figure = wb.models.get("hierarchical_logistic").diagram(wb.data.load("hierarchical"))
    words = figure.get_label()
    assert "x, an input, in the plate records;" in words
    assert "group_features, an input, in the plate groups: 3;" in words
    assert (
        "group_weights ~ Normal, given mixing and group_features, in the plate groups: 3;" in words
    )
    assert "y ~ Bernoulli, given group_weights, x and group, observed" in words
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert {
        "x [5]",
        "group_features [3]",
        "group_weights [5]",
        "mixing [5 \N{MULTIPLICATION SIGN} 3]",
    } <= set(shown)
    assert {"group", "groups: 3", "input"} <= set(shown)


def test_what_a_model_observes_is_no_input():
    for name, data in (("gmm", "mixture"), ("vae", "digits")):
        assert "input" not in wb.models.get(name).diagram(wb.data.load(data)).get_label()


@pytest.mark.thorough
def test_distributions_have_their_parameters_or_what_they_depend_on():
    def found(name, data, **options):
        model, seen = wb.models.get(name, **options), wb.data.load(data)
        return distributions_of(
            model, records_of(model.view(seen)), model.constants(model.view(seen))
        )

    assert found("logistic", "breast_cancer", prior="student_t", prior_scale=2.5) == {
        "weights": "StudentT(df 3, loc 0, scale 2.5)",
        "intercept": "StudentT(df 3, loc 0, scale 2.5)",
        "y": "Bernoulli(logits from weights, intercept and x)",
    }
    learnt = found("hierarchical_logistic", "hierarchical", group_scale="learnt")
    assert learnt["group_scale"] == "HalfNormal(scale 1)"
    assert (
        learnt["group_weights"]
        == "Normal(loc from mixing and group_features, scale from group_scale)"
    )
    assert found("vae", "digits")["x"] == "Bernoulli(logits from decoder and code)"
    assert found("gmm", "mixture")["x"] == "mixture of Normal, given log_masses, means and scales"


def test_a_diagram_follows_the_options():
    data = wb.data.load("hierarchical")
    fixed, learnt = (
        wb.models.get("hierarchical_logistic", group_scale=scale).diagram(data)
        for scale in (1.0, "learnt")
    )
    assert "group_scale" not in texts(fixed)
    assert "group_scale" in texts(learnt)


def test_data_that_do_not_fit_have_no_diagram():
    with pytest.raises(ArgumentError, match=r"^data='mixture'"):
        wb.models.get("logistic").diagram(wb.data.load("mixture"))
