"""The gallery of models by name."""

import pytest
from workbench.models import registry

import workbench as wb
from workbench import ArgumentError


@pytest.fixture
def empty_gallery(monkeypatch):
    monkeypatch.setattr(registry, "_FACTORIES", {})


def test_gallery_lists_the_logistic_model():
    assert "logistic" in wb.models.names()


def test_every_listed_model_can_be_made_and_says_what_it_is():
    for name in wb.models.names():
        model = wb.models.get(name)
        assert model.name == name
        assert model.summary.endswith(".")


def test_unknown_name_offers_the_nearest():
    with pytest.raises(ArgumentError, match=r"^model='logistik': unknown name; did you mean 'logistic'") as caught:
        wb.models.get("logistik")
    assert caught.value.argument == "model"


def test_a_name_like_no_other_lists_what_there_is():
    with pytest.raises(ArgumentError, match=r"^model='zzz': unknown name; known: .*logistic"):
        wb.models.get("zzz")


def test_options_reach_the_model():
    assert wb.models.get("logistic", prior_scale=2.0).options == {"prior_scale": 2.0}


@pytest.mark.parametrize("value", [0, -1, float("inf"), "wide", True])
def test_a_bad_option_is_named_with_its_value(value):
    with pytest.raises(ArgumentError) as caught:
        wb.models.get("logistic", prior_scale=value)
    assert caught.value.argument == "prior_scale"
    assert repr(value) in str(caught.value)


def test_an_unknown_option_is_named():
    with pytest.raises(ArgumentError) as caught:
        wb.models.get("logistic", prior_scael=1.0)
    assert caught.value.argument == "prior_scael"


def test_registered_model_can_be_got_by_name(empty_gallery):
    registry.register("mine", wb.models.logistic)
    assert registry.names() == ["mine"]
    assert registry.get("mine", prior_scale=3.0).options["prior_scale"] == 3.0


def test_a_name_cannot_be_registered_twice(empty_gallery):
    registry.register("mine", wb.models.logistic)
    with pytest.raises(ArgumentError, match=r"^name='mine': .*registered already"):
        registry.register("mine", lambda: None)
    assert registry.get("mine").name == "logistic"


def test_names_are_sorted(empty_gallery):
    for name in ("b", "a", "c"):
        registry.register(name, wb.models.logistic)
    assert registry.names() == ["a", "b", "c"]
