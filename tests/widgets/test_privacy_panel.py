"""The privacy controls through their traits, without a browser."""

import dataclasses
import html
import inspect
import re

import ipywidgets
import pytest

from tests.widget_tree import inside
from workbench.fitting import fits
from workbench.fitting.groups import group_of
from workbench.privacy import accounting, plan
from workbench.privacy.outlook import outlook
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.steps import LAWS
from workbench.widgets.kit import fields
from workbench.widgets.kit.late import unsent
from workbench.widgets.workbench.privacy_panel import PrivacyPanel

SETTINGS = PrivacySettings(
    epsilon=1.0,
    delta=1e-3,
    iterations=800,
    sampling_rate=0.1,
    sampler="poisson",
    clip=2.0,
    num_records=455,
    seed=None,
)
AUTOMATIC = {
    "delta": 0.001,
    "clip": 2.7834921,
    "sampling_rate": 0.1,
    "iterations": 800,
    "learning_rate": 0.0353553,
    "average": True,
}


class Changes:
    """Counts the calls of ``on_change``."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1

    def of(self, act):
        """The number of calls while ``act()`` runs."""
        before = self.count
        act()
        return self.count - before


@pytest.fixture
def changes():
    return Changes()


@pytest.fixture
def panel(changes):
    made = PrivacyPanel(epsilon=1.0, delta=None, iterations=None, on_change=changes)
    yield made
    close(made)


def close(panel):
    """Leave no widget behind, whose state could not be read any more."""
    fields.close_all(whole(panel))
    panel.close()


def whole(panel):
    """All parts of a panel, which the screen shows in several places."""
    boxes = [field.box for field in (panel.epsilon, panel.delta, panel.iterations)]
    with unsent():  # or it would outlive them
        return ipywidgets.VBox(
            [*boxes, panel.errors, panel.promise, panel.settings, panel.consequences]
        )


@pytest.fixture(scope="module")
def seen():
    return outlook(make_plan(SETTINGS, 455), 31)


def is_hidden(widget):
    return widget.layout.display == "none" or widget.layout.visibility == "hidden"


def visible_text(widget):
    """All HTML that is not hidden, as text."""
    if is_hidden(widget):
        return ""
    own = html.unescape(widget.value) if isinstance(widget, ipywidgets.HTML) else ""
    return own + "".join(visible_text(child) for child in getattr(widget, "children", ()))


def set_to(control, value):
    return lambda: setattr(control, "value", value)


# ---- values --------------------------------------------------------------------------------------


def test_values_are_arguments_of_a_fit(panel):
    values = panel.values()
    arguments = {group_of(name) or name for name in values}
    assert arguments <= set(inspect.signature(fits.fit).parameters)
    assert values.pop("epsilon") == 1
    assert values.pop("sampler") == "poisson"
    assert values.pop("clipping") == "flat"
    assert set(values.values()) == {None}


def test_what_it_starts_with_is_what_is_given():
    panel = PrivacyPanel(epsilon=0.3, delta=2e-5, iterations=50_000, on_change=lambda: None)
    assert [panel.values()[name] for name in ("epsilon", "delta", "iterations")] == [
        0.3,
        2e-5,
        50_000,
    ]
    assert panel.epsilon.value == "0.3"
    assert panel.problems() == {}
    close(panel)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("epsilon", "0.30", 0.3),
        ("delta", "1e-5", 1e-5),
        ("iterations", "1e4", 10_000),
        ("sampling_rate", "0.2", 0.2),
        ("clip", " 1.5 ", 1.5),
        ("learning_rate", "3e-2", 0.03),
        ("delta", "", None),
        ("delta", "little", "little"),
    ],
)
def test_text_becomes_the_number_that_it_says(panel, changes, name, text, value):
    field = panel._fields[name]
    assert changes.of(set_to(field, text)) == (1 if text else 0)
    assert panel.values()[name] == value
    assert field.value == text


def test_the_size_is_a_rate_or_a_number_of_records(panel, changes, seen):
    panel.show_outlook(seen, AUTOMATIC)
    panel.size.value = "0.2"
    assert (panel.values()["sampling_rate"], panel.values()["batch_size"]) == (0.2, None)
    assert changes.of(set_to(panel.size_kind, "batch_size")) == 1
    assert (panel.values()["sampling_rate"], panel.values()["batch_size"]) == (None, None)
    assert "records" in panel.size.control.description
    # a rate of .2 typed before the outlook would have hidden it
    assert panel.size.control.placeholder == "automatic: 46"
    panel.size.value = "91"
    assert (panel.values()["sampling_rate"], panel.values()["batch_size"]) == (None, 91)


@pytest.mark.parametrize("sampler", LAWS)
def test_relations_are_those_of_the_sampler(panel, changes, sampler):
    assert changes.of(set_to(panel.sampler, sampler)) == (0 if sampler == "poisson" else 1)
    offered = [value for _, value in panel.relation.control.options]
    assert offered == list(LAWS[sampler].relations)
    assert panel.values()["sampler"] == sampler
    assert panel.values()["relation"] is None
    for relation in offered[1:]:
        assert changes.of(set_to(panel.relation, relation)) == 1
        assert panel.values()["relation"] == relation
        assert "Hides whether" in visible_text(panel.relation.view)
    panel.sampler.value = "poisson"
    assert panel.values()["relation"] is None


@pytest.mark.parametrize(("shown", "value"), [("yes", True), ("no", False), ("automatic", None)])
def test_averaging_is_automatic_yes_or_no(panel, shown, value):
    panel.average.value = shown
    assert panel.values()["average"] is value


# ---- problems ------------------------------------------------------------------------------------

UNUSABLE = [
    ("epsilon", "101"),
    ("epsilon", ""),
    ("delta", "1"),
    ("delta", "little"),
    ("iterations", "0"),
    ("iterations", "2.5"),
    ("sampling_rate", "1.5"),
    ("clip", "0"),
    ("learning_rate", "-1"),
]


@pytest.mark.parametrize(("name", "text"), UNUSABLE)
def test_a_bad_value_is_explained_beside_its_field(panel, name, text):
    field = panel._fields[name]
    field.value = text
    problems = panel.problems()
    assert list(problems) == [name]
    panel.show(problems)
    assert problems[name] in visible_text(field.error_line)
    assert "⚠" in field.error
    assert all(other.error == "" for other in panel._fields.values() if other is not field)
    assert visible_text(whole(panel)).count(problems[name]) == 1
    panel.show({})
    assert problems[name] not in visible_text(whole(panel))


def test_a_size_of_no_records_is_explained(panel):
    panel.size_kind.value = "batch_size"
    panel.size.value = "0"
    panel.show(panel.problems())
    assert "batch size = 0: must be" in visible_text(panel.size.view)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("delta", False), ("clip", True), ("batch_size", True), ("num_records", False)],
)
def test_a_problem_of_the_other_settings_asks_to_show_them(name, hidden):
    asked = []
    panel = PrivacyPanel(
        epsilon=1.0,
        delta=None,
        iterations=None,
        on_change=lambda: None,
        on_hidden_problem=lambda: asked.append(1),
    )
    panel.show({name: "must be smaller."})
    assert bool(asked) is hidden
    assert "must be smaller." in visible_text(whole(panel))


def test_an_argument_without_a_field_is_told_among_the_problems(panel):
    panel.show({"num_records": "must be <b>large</b>.", "delta": "no."})
    place = panel.errors.children[3]
    assert html.unescape(place.value).endswith("num_records: must be <b>large</b>.</div>")
    assert "<b>" not in place.value
    assert panel.epsilon.error == ""
    panel.show({})
    assert is_hidden(place)


def test_problems_are_found_without_an_account(panel, monkeypatch):
    """They are looked for at each key that is pressed."""

    def account(*_, **__):
        pytest.fail("asked the accountant")

    monkeypatch.setattr(accounting, "_losses", account)
    monkeypatch.setattr(plan, "noise_multiplier", account)
    assert panel.problems() == {}


# ---- consequences --------------------------------------------------------------------------------


def test_the_consequences_are_the_outlooks(panel, seen):
    panel.show_outlook(seen, AUTOMATIC)
    shown = visible_text(whole(panel))
    assert all(sentence in shown for sentence in seen.words())
    assert "epsilon 1, delta 0.001, 800 steps" in shown
    assert re.search(r'<img class="dpvi-figure" alt="[^"]+"', panel._picture.value)
    assert not is_hidden(panel._picture)


def test_the_promise_is_shown_until_the_plan_is_unknown(panel, seen):
    promised = make_plan(SETTINGS, 455).guarantee(
        steps_taken=800, unit="<b>", dimension=31, caveats=()
    )
    bound = "epsilon 1, delta 0.001 per <b>"
    panel.show_outlook(seen, AUTOMATIC, promised)
    told = html.unescape(panel.promise.value)
    assert "<span>Promised</span>" in told
    assert bound in told
    assert promised.in_brief() in told
    assert "<b>" not in panel.promise.value.replace("<b>epsilon", "")
    panel.show_outlook(seen, AUTOMATIC, promised, another=True)  # beside a fit that has ended
    told = html.unescape(panel.promise.value)
    assert "Next fit:" in told
    assert "epsilon 1 per <b>" in told
    assert promised.in_brief() not in told
    panel.computing()
    assert "Next fit:" in panel.promise.value
    assert "epsilon" not in panel.promise.value
    panel.show_unknown("There is <none>.")
    assert "<b>Next fit:</b> not known yet." in panel.promise.value  # as high as it was
    assert "Promised" not in panel.promise.value
    panel.show_outlook(seen, AUTOMATIC, promised)
    panel.show_unknown("There is <none>.")
    assert "epsilon" not in panel.promise.value
    assert "There is &lt;none&gt;." in panel.promise.value
    panel.show_begun(None)
    assert "epsilon" not in panel.promise.value


def test_why_less_is_promised_than_was_asked_for_stands_beside_it(panel, seen):
    plan = make_plan(dataclasses.replace(SETTINGS, epsilon=100.0), 455).for_noise_in(31)
    cut, whole_one = (
        made.guarantee(steps_taken=800, unit="record", dimension=31, caveats=())
        for made in (plan, make_plan(SETTINGS, 455))
    )
    assert cut.epsilon < 100
    panel.show_outlook(seen, AUTOMATIC, cut)
    assert "epsilon = 100 was asked for, more than rounding leaves room for." in visible_text(
        panel.promise
    )
    panel.show_outlook(seen, AUTOMATIC, cut, another=True)
    assert "per record (epsilon = 100 was asked for)" in visible_text(panel.promise)
    for another in (False, True):
        panel.show_outlook(seen, AUTOMATIC, whole_one, another=another)
        assert "asked for" not in visible_text(panel.promise)


def test_the_promise_of_a_fit_that_runs_stands_whatever_the_controls_have(panel, seen):
    facts = {"steps_taken": 800, "unit": "record", "dimension": 31, "caveats": ()}
    promised = make_plan(SETTINGS, 455).guarantee(**facts)
    other = dataclasses.replace(promised, epsilon=9.0)
    panel.show_begun(promised)
    before, panel.runs = panel.promise.value, True
    panel.computing()
    panel.show_words(seen, other)
    panel.show_unknown("It is not.")
    assert panel.promise.value == before
    panel.runs = False
    panel.show_words(seen, other)
    assert "epsilon 9" in panel.promise.value


def test_older_consequences_are_called_so_while_new_ones_are_computed(panel, seen):
    panel.computing()
    assert "Computing what this plan means…" in visible_text(whole(panel))
    assert "before" not in visible_text(panel._headline)
    panel.show_outlook(seen, AUTOMATIC)
    panel.computing()
    assert "the plan before" in visible_text(panel._headline)
    panel.show_outlook(seen, AUTOMATIC)
    assert "Computing" not in visible_text(whole(panel))


def test_what_is_unknown_takes_the_numbers_away(panel, seen):
    panel.show_outlook(seen, AUTOMATIC)
    panel.show_unknown("There is no <column>.")
    shown = visible_text(whole(panel))
    assert "There is no <column>." in shown
    assert "&lt;column&gt;" in panel._words.value
    assert "sigma" not in shown
    assert is_hidden(panel._picture)


def test_empty_fields_say_what_they_stand_for(panel, seen):
    assert panel.delta.control.placeholder == "auto"
    panel.show_outlook(seen, AUTOMATIC)
    names = ("delta", "iterations", "sampling_rate", "clip")
    assert {name: panel._fields[name].control.placeholder for name in names} == {
        "delta": "0.001",  # in narrow fields
        "iterations": "800",
        "sampling_rate": "automatic: 0.1",
        "clip": "automatic: 2.783",
    }
    assert panel.learning_rate.control.placeholder == "automatic: 0.03536"
    assert "Automatic: yes." in visible_text(panel.average.view)
    panel.average.value = "no"
    assert "Automatic" not in visible_text(panel.average.view)


def test_what_is_filled_in_is_not_called_automatic(panel, seen):
    panel.clip.value, panel.average.value, panel.size.value = "2", "no", "0.1"
    panel.show_outlook(seen, {**AUTOMATIC, "clip": 2.0, "average": False})
    panel.clip.value, panel.average.value = "", "automatic"
    panel.size_kind.value = "batch_size"
    assert panel.clip.control.placeholder == panel.size.control.placeholder == "automatic"
    assert "Automatic:" not in visible_text(panel.average.view)


def test_a_delta_that_is_too_large_is_told_beside_it(panel, seen):
    unwise = dataclasses.replace(seen, settings=dataclasses.replace(SETTINGS, delta=0.01))
    (caution,) = unwise.settings.cautions()
    panel.show_outlook(unwise, AUTOMATIC)
    place = panel.errors.children[-1]
    assert caution in visible_text(place)
    assert "⚠" in place.value
    panel.show_outlook(seen, AUTOMATIC)
    assert is_hidden(place)


# ---- the screen ----------------------------------------------------------------------------------


def test_every_control_says_what_it_is(panel):
    shown = [part for part in inside(whole(panel)) if hasattr(part, "description")]
    controls = [part for part in shown if not isinstance(part, ipywidgets.HTML)]
    assert len(controls) == 11
    descriptions = [control.description for control in controls]
    assert all(descriptions)
    assert descriptions[:3] == ["epsilon", "delta", "steps"]
    assert len(set(descriptions)) == len(descriptions)
