"""What can be set about a model, as a form shows it."""

from __future__ import annotations

import functools
from typing import Literal, Optional, Union

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.models import Model, Option, registry
from workbench.models.options import declared

BUILT_IN = ("logistic", "hierarchical_logistic", "gmm", "vae", "neural_classifier")


@pytest.fixture(autouse=True)
def same_gallery_afterwards(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


def by_name(definition):
    return {option.name: option for option in declared(definition)}


def numpyro_model(
    x, y=None, num_records=None, prior_scale=5.0, layers=2, intercept=True, link="logit", width=None
):
    """A model.

    :param prior_scale: of the weights. :param layers: how many.
        They are of one size. A third sentence.
    The other arguments speak for themselves: or not.
    """


# ---- built-in models -----------------------------------------------------------------------------


# options that were added later are among the model's only with another value: stores and results
# know the model by them
LATER = {
    "logistic": {"covariance": "diagonal"},
    "hierarchical_logistic": {"covariance": "diagonal"},
}


BAD = {
    "logistic": {
        "prior_scale": (0, -1, float("inf"), "wide", True),
        "prior": ("gauss", None),
        "intercept": (1, "yes"),
    },
    "hierarchical_logistic": {
        "mixing_scale": (0, "wide"),
        "group_scale": (-1.0, "learned"),
        "group_guide": (1,),
        "intercept": ("no",),
    },
    "gmm": {"num_components": (0, 2.5), "covariance": ("full", 1), "prior_scale": (0,)},
    "vae": {
        "layout": ("deep",),
        "hidden": (0, 1.5),
        "latent": (-1,),
        "likelihood": ("normal",),
        "pixel_scale": (0,),
    },
    "neural_classifier": {
        "network": ("resnet",),
        "weights": ("laplace",),
        "hidden": (0, 2.5),
        "depth": (0, 21),
        "heads": (0,),
        "prior_scale": (0,),
    },
}


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in BUILT_IN for option in BAD[name]]
)
def test_a_bad_option_is_named_with_its_value(name, option):
    for value in BAD[name][option]:
        with pytest.raises(ArgumentError) as caught:
            wb.models.get(name, **{option: value})
        assert caught.value.argument == option
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_options_of_built_in_models_are_those_of_the_model_with_its_defaults(name):
    of_model, later = wb.models.get(name).options, LATER.get(name, {})
    assert {option.name: option.default for option in wb.models.options(name)} == {
        **of_model,
        **later,
    }
    assert not later.keys() & of_model.keys()


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_of_a_built_in_model_has_a_short_help(name):
    for option in wb.models.options(name):
        assert 10 < len(option.help) <= 250
        assert ":param" not in option.help
        assert "  " not in option.help


CHOICES = [
    (name, option.name, option.choices)
    for name in BUILT_IN
    for option in wb.models.options(name)
    if option.choices and option.kind != "yes or no"
]


def test_choices_are_annotated():
    assert {(name, option): choices for name, option, choices in CHOICES} == {
        ("logistic", "prior"): ("normal", "laplace", "student_t", "cauchy"),
        ("logistic", "covariance"): ("diagonal", "full"),
        ("hierarchical_logistic", "group_scale"): ("learnt",),
        ("hierarchical_logistic", "covariance"): ("diagonal", "full"),
        ("gmm", "covariance"): ("spherical", "diagonal"),
        ("vae", "layout"): ("dense", "convolutional"),
        ("vae", "likelihood"): ("bernoulli", "gaussian"),
        ("neural_classifier", "network"): ("fcnn", "cnn", "lstm", "gru", "transformer"),
        ("neural_classifier", "weights"): ("point", "bayesian"),
    }


@pytest.mark.parametrize(("name", "option", "choices"), CHOICES)
def test_each_choice_is_accepted_and_any_other_refused(name, option, choices):
    for choice in choices:
        assert {**LATER.get(name, {}), **wb.models.get(name, **{option: choice}).options}[
            option
        ] == choice
    with pytest.raises(ArgumentError) as caught:
        wb.models.get(name, **{option: "another"})
    assert caught.value.argument == option
    assert all(choice in caught.value.expectation for choice in choices)


@pytest.mark.parametrize("name", BUILT_IN)
def test_defaults_are_no_problem_and_optional_ones_may_be_none(name):
    for option in wb.models.options(name):
        assert option.problem(option.default) == ""
        if option.optional:
            wb.models.get(name, **{option.name: None})


def test_options_of_the_mixture():
    number, covariance, scale = wb.models.options("gmm")
    assert (number.kind, number.default, number.optional) == ("whole number", 5, False)
    assert (covariance.kind, covariance.choices) == ("choice", ("spherical", "diagonal"))
    assert (scale.kind, scale.default, scale.optional) == ("number", None, True)
    assert scale.help.startswith("standard deviation of the normal prior of the means")


# ---- models of the user's own --------------------------------------------------------------------


def test_a_bare_model_has_the_options_after_num_records_by_their_defaults():
    wb.models.register("mine", numpyro_model)
    assert [
        (option.name, option.default, option.kind, option.optional)
        for option in wb.models.options("mine")
    ] == [
        ("prior_scale", 5.0, "number", False),
        ("layers", 2, "whole number", False),
        ("intercept", True, "yes or no", False),
        ("link", "logit", "text", False),
        ("width", None, "text", True),
    ]


def test_help_is_the_first_two_sentences_of_what_the_docstring_says():
    helps = {name: option.help for name, option in by_name(numpyro_model).items()}
    assert helps["prior_scale"] == "of the weights."
    assert helps["layers"] == "how many. They are of one size."
    assert helps["link"] == ""


def test_a_model_object_has_its_own_values_and_the_help_of_its_model():
    wb.models.register(
        "mine",
        Model("mine", "A model.", numpyro_model, options={"prior_scale": 2.0, "table": np.ones(3)}),
    )
    assert wb.models.options("mine") == (
        Option("prior_scale", 2.0, "number", help="of the weights."),
    )


def test_a_factory_has_the_options_of_its_signature():
    def factory(scale: float = 2.0, *rest, kind: Literal["a", "b"] = "b", **others):
        """:param float scale: how wide. :raises ValueError: never."""
        return Model("mine", "A model.", numpyro_model)

    wb.models.register("mine", factory)
    assert wb.models.options("mine") == (
        Option("scale", 2.0, "number", help="how wide."),
        Option("kind", "b", "choice", ("a", "b")),
    )


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(ArgumentError, match="did you mean 'logistic'"):
        wb.models.options("logistik")


def test_what_has_no_options_has_none():
    wb.models.register("mine", lambda x, num_records=None: None)
    assert wb.models.options("mine") == ()


def test_an_installed_model_is_asked_as_well(monkeypatch):
    class Point:
        name, value, dist = "installed", "somewhere:model", None

        def load(self):
            return numpyro_model

    monkeypatch.setattr(registry, "_installed", lambda: {"installed": Point()})
    monkeypatch.setattr(registry, "_owner", lambda distribution: "somebody")
    assert [option.name for option in wb.models.options("installed")][:2] == [
        "prior_scale",
        "layers",
    ]


# ---- annotations ---------------------------------------------------------------------------------


def annotated(
    whole: int = 1,
    real: float = 1,
    either: int | float = 1,
    box: bool = False,
    word: str = "a",
    maybe: float | None = None,
    maybe_given: Optional[int] = 3,  # noqa: UP045
    tri_state: bool | None = None,
    picked: Literal["a", "b", None] = "a",
    number_or_word: float | Literal["learnt"] = 1.0,
    word_or_number: Union[Literal["auto"], int, None] = None,  # noqa: UP007
    box_or_word: bool | Literal["auto"] = "auto",
    free: float | str = 1.0,
    steps: Literal[1, 2] = 1,
    array: np.ndarray = np.zeros(2),  # noqa: B008
    pair: tuple[int, int] = (1, 2),
):
    pass


@pytest.mark.parametrize(
    ("name", "kind", "choices", "optional"),
    [
        ("whole", "whole number", (), False),
        ("real", "number", (), False),
        ("either", "number", (), False),
        ("box", "yes or no", (), False),
        ("word", "text", (), False),
        ("maybe", "number", (), True),
        ("maybe_given", "whole number", (), True),
        ("tri_state", "choice", (True, False), True),
        ("picked", "choice", ("a", "b"), True),
        ("number_or_word", "text", ("learnt",), False),
        ("word_or_number", "text", ("auto",), True),
        ("box_or_word", "choice", (True, False, "auto"), False),
        ("free", "text", (), False),
        ("steps", "choice", (1, 2), False),
    ],
)
def test_kinds_follow_from_annotations(name, kind, choices, optional):
    option = by_name(annotated)[name]
    assert (option.kind, option.choices, option.optional) == (kind, choices, optional)


def test_what_no_line_of_text_can_hold_is_left_out():
    assert not {"array", "pair"} & by_name(annotated).keys()


def test_an_annotation_that_cannot_be_read_leaves_the_others_alone():
    def factory(scale: Undefined = 1.0, count: int = 1, kind: Literal["a", "b"] = "a"):  # noqa: F821
        pass

    found = by_name(factory)
    assert (found["scale"].kind, found["count"].kind, found["kind"].choices) == (
        "number",
        "whole number",
        ("a", "b"),
    )


class Maker:
    def __call__(self, count: float = 1):
        pass


class Made:
    def __init__(self, count: float = 1):
        pass


def wrapped():
    def inner(count: float = 1):
        pass

    @functools.wraps(inner)
    def outer(*arguments, **keywords):
        pass

    return outer


@pytest.mark.parametrize(
    "function", [Maker(), Made, wrapped(), functools.partial(annotated, real=2)]
)
def test_annotations_are_found_inside_what_can_be_called(function):
    assert by_name(function)["real" if "real" in by_name(function) else "count"].kind == "number"


@pytest.mark.parametrize("function", [3, min, lambda: None])
def test_without_a_signature_there_are_no_options(function):
    assert declared(function) == ()


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("real", 2, ""),
        ("real", "2 m", "must be a number."),
        ("real", float("nan"), "must be a finite number."),
        ("real", None, "must be given."),
        ("maybe", None, ""),
        ("box", 1, "must be True or False."),
        ("word", "anything", ""),
        ("picked", "c", "must be 'a' or 'b'."),
        ("number_or_word", "learnt", ""),
        ("number_or_word", "learn", "must be a number or 'learnt'."),
    ],
)
def test_values_of_another_kind_are_a_problem(option, value, problem):
    assert by_name(annotated)[option].problem(value) == problem
