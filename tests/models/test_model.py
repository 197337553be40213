"""What surrounds a NumPyro model: the arrays it takes, its diagram, its pictures."""

import importlib.util

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError

FITTING_DATA = {"logistic": "breast_cancer", "hierarchical_logistic": "hierarchical", "gmm": "mixture", "vae": "digits"}


def test_the_gallery_has_the_four_models():
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
    ("name", "data", "missing"), [("logistic", "mixture", "y"), ("hierarchical_logistic", "breast_cancer", "group")]
)
def test_data_without_an_array_are_refused(name, data, missing):
    with pytest.raises(ArgumentError, match=f"^data='{data}': has no array '{missing}', which the model needs"):
        wb.models.get(name).view(wb.data.load(data))


@pytest.mark.skipif(importlib.util.find_spec("graphviz") is None, reason="needs graphviz")
@pytest.mark.parametrize("name", FITTING_DATA)
def test_the_plate_diagram_shows_the_record_plate_and_no_record(name):
    data = wb.data.load(FITTING_DATA[name])
    source = wb.models.get(name).diagram(data).source
    assert "cluster_records" in source
    assert str(float(np.ravel(data.train[0])[0])) not in source


def test_without_graphviz_the_diagram_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match="pip install graphviz"):
        wb.models.get("logistic").diagram(wb.data.load("breast_cancer"))
