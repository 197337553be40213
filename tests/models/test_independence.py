"""Which guides make quantities independent by construction."""

import dataclasses

import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import (
    AutoBNAFNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

import workbench as wb
from workbench.models import Model
from workbench.models.independence import are_drawn_independently, are_independent
from workbench.models.relations import records_of


def model(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("records", num_records or len(x), subsample_size=len(x)):
        numpyro.sample("x", dist.Normal(mean, scale).to_event(1), obs=x)


def chained(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.0), 1).expand([2]).to_event(1))
    numpyro.sample("scale", dist.LogNormal(mean[0], 1))


def walking(x, num_records=None):
    numpyro.sample("mean", dist.GaussianRandomWalk(1.0, 2))
    numpyro.sample("scale", dist.LogNormal(0, 1))


def computed(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("scale", dist.LogNormal(numpyro.deterministic("double", 2 * mean[0]), 1))


def apart(x, num_records=None):
    numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.0), 1).expand([2]).to_event(1))
    numpyro.sample(
        "scale", dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.ExpTransform())
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        (AutoNormal, True),
        (AutoMultivariateNormal, False),
        (AutoLowRankMultivariateNormal, False),
        pytest.param(AutoBNAFNormal, False, marks=pytest.mark.thorough),
        (chained, False),
        (walking, False),
        (computed, False),
        (apart, True),
    ],
)
def test_guides(guide, expected):
    own = Model("own", "A model.", model, guide=guide)
    assert are_independent(own, [((2,), "float32")], {}, ["mean", "scale"]) is expected


@pytest.mark.parametrize(
    ("name", "data", "options", "expected"),
    [
        ("logistic", "breast_cancer", {}, True),
        ("hierarchical_logistic", "hierarchical", {}, True),
        ("hierarchical_logistic", "hierarchical", {"group_scale": "learnt"}, True),
        (
            "hierarchical_logistic",
            "hierarchical",
            {"group_guide": False},
            False,
        ),  # drawn from the model, given mixing
        ("gmm", "mixture", {}, False),  # sorted
    ],
)
def test_the_gallery(name, data, options, expected):
    known = wb.models.get(name, **options)
    seen = known.view(wb.data.load(data))
    names = ["mixing", "group_weights"] if "hier" in name else ["weights", "intercept"]
    assert are_independent(known, records_of(seen), known.constants(seen), names) is expected


@pytest.mark.thorough
def test_components_that_are_sorted_were_drawn_independently():
    mixture, seen = wb.models.get("gmm"), wb.data.load("mixture")
    known = mixture.view(seen), mixture.constants(seen)
    names = ["log_masses", "log_scales", "means", "scales", "weights"]
    assert not are_independent(mixture, records_of(known[0]), known[1], names)
    assert are_drawn_independently(mixture, records_of(known[0]), known[1], names)
    joint = dataclasses.replace(mixture, guide=AutoMultivariateNormal)
    assert not are_drawn_independently(joint, records_of(known[0]), known[1], names)
