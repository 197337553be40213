"""Controls with their labels, help and errors."""

import math

import ipywidgets
import pytest

from workbench._validate import ArgumentError
from workbench.widgets.kit import fields


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("  ", None),
        ("3", 3),
        (" 3 ", 3),
        ("50_000", 50_000),
        ("50 000", 50_000),
        ("5 0", "5 0"),
        ("50,000", "50,000"),
        ("1e4", 10_000),
        ("-2", -2),
        ("\N{MINUS SIGN}2", -2),
        ("12\u202f500", 12_500),
        ("0.5", 0.5),
        ("1e-5", 1e-5),
        ("2.0", 2.0),
        ("abc", "abc"),
        ("1,5", "1,5"),
    ],
)
def test_numbers_are_read_and_other_text_stays_text(text, value):
    found = fields.number_in(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("50,000", 50_000), ("1,600,000", 1_600_000), ("1,5", "1,5"), ("12,5000", "12,5000")],
)
def test_commas_group_digits_only_where_a_whole_number_is_expected(text, value):
    assert fields.number_in(text, is_whole=True) == value


@pytest.mark.parametrize(
    ("text", "value"), [("inf", math.inf), ("1e999", math.inf), ("-1e999", -math.inf)]
)
def test_endless_numbers_are_left_to_the_validators(text, value):
    assert fields.number_in(text) == value
    assert math.isnan(fields.number_in("nan"))


def test_an_error_stands_beside_its_control_and_goes_again():
    field = fields.text("delta", "delta (chance)", "<b>")
    field.show_error("must be a number.")
    assert "delta = &lt;b&gt;: must be a number." in field.error
    assert "⚠" in field.error
    place = field.view.children[-1]
    assert place.layout.display is None
    field.show_error("")
    assert (field.error, place.layout.display) == ("", "none")


def test_what_nobody_typed_wrong_is_a_hint_without_alarm():
    field = fields.text("formula", "formula")
    field.on_change(lambda: None)
    assert field.is_untouched
    field.show_error("write one.", is_hint=field.is_untouched)
    assert "formula: write one." in field.error
    assert "⚠" not in field.error
    assert "dpvi-needed" in field.control._dom_classes
    assert "dpvi-wrong" not in field.control._dom_classes
    field.value = "y ~ x"
    field.value = ""
    assert not field.is_untouched
    field.show_error("write one.", is_hint=field.is_untouched)
    assert "formula: write one." in field.error
    assert "⚠" in field.error
    assert "dpvi-wrong" in field.control._dom_classes
    assert "dpvi-needed" not in field.control._dom_classes
    field.show_error("")
    assert not {"dpvi-wrong", "dpvi-needed"}.intersection(field.control._dom_classes)
    assert field.error == ""


def test_an_error_is_told_in_the_words_of_a_form():
    error = ArgumentError("batch_size", 3, "is too small.", remedy="Give wb.Sampling(...).")
    assert fields.in_words(error) == "batch size: is too small."
    assert fields.in_words(ValueError("a file is gone.")) == "a file is gone."
    assert fields.in_words(KeyError("x")) == "KeyError: 'x'"


def test_help_can_change():
    field = fields.choice("sampler", "sampler", ["a", "b"], "a", help="first")
    mark = field.box.children[1]
    assert "first" in mark.value
    field.show_help("second <i>")
    assert "second &lt;i&gt;" in mark.value
    field.show_help("")
    assert mark.layout.display == "none"


@pytest.mark.parametrize(
    ("field", "new"),
    [
        (fields.text("a", "label"), "x"),
        (fields.choice("a", "label", [1, 2], 1), 2),
        (fields.check("a", "label"), True),
    ],
)
def test_every_control_is_described_and_tells_of_changes(field, new):
    heard = []
    field.on_change(lambda: heard.append(field.value))
    field.value = new
    assert heard == [new]
    assert field.control.description == "label"


def test_a_field_can_leave_the_screen():
    field = fields.check("a", "label")
    assert field.visible
    field.visible = False
    assert (field.visible, field.view.layout.display) == (False, "none")
    field.visible = True
    assert field.visible


def test_another_menu_keeps_the_choice_and_tells_of_one_change_at_most():
    field, heard = fields.choice("a", "label", ["x", "y"], "y"), []
    field.on_change(lambda: heard.append(field.value))
    field.offer([("first", "z"), ("second", "y")], "y")
    assert (field.value, heard) == ("y", [])
    field.offer(["p", "q"], "y")
    assert (field.value, heard) == ("p", ["p"])
    field.value = "q"
    assert heard == ["p", "q"]


def test_another_menu_reaches_the_page_together_with_its_choice(monkeypatch):
    field, sent = fields.choice("a", "label", ["x", "y"], "y"), []
    monkeypatch.setattr(
        field.control,
        "send_state",
        lambda key: sent.append({key} if isinstance(key, str) else set(key)),
    )
    field.offer(["p", "q"], "q")
    assert [{"_options_labels", "index"} <= keys for keys in sent] == [True]


def test_a_fold_opens_and_closes_and_says_so():
    opened = []
    fold = fields.Fold("more", [ipywidgets.Text()], on_open=lambda: opened.append(1))
    assert (fold.is_open, fold.box.layout.display, fold.button.description) == (
        False,
        "none",
        "more",
    )
    fold.is_open = True
    assert (fold.box.layout.display, fold.button.icon, opened) == (None, "chevron-down", [1])
    fold.button.value = False
    assert (fold.is_open, fold.box.layout.display, fold.button.icon) == (
        False,
        "none",
        "chevron-right",
    )


def test_closed_widgets_are_forgotten_with_their_layouts_and_styles():
    registry = ipywidgets.widgets.widget._instances
    before = set(registry)
    fold = fields.Fold("more", [fields.text("a", "label").view])
    fold.fill([fields.check("b", "label").view])
    fields.close_all(fields.section("title", fold.view))
    assert set(registry) - before == set()
