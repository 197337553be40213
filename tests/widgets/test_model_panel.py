"""The choice of a model and its settings, through the traits of its widgets."""

import base64
import html
import threading

import ipywidgets
import numpyro
import numpyro.distributions as dist
import pytest
from ipywidgets.widgets.widget import _instances

import workbench as wb
from tests.widget_tree import inside
from workbench import ArgumentError
from workbench.models import Model, registry
from workbench.widgets.workbench import model_panel
from workbench.widgets.workbench.model_panel import ModelPanel

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def same_gallery_afterwards(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


@pytest.fixture
def panels():
    """Makes panels with a list of their reported changes, and closes them."""
    made = []

    def make(start="logistic", **options):
        calls = []
        panel = ModelPanel(start, options, lambda: calls.append(panel.options()))
        made.append(panel)
        return panel, calls

    yield make
    for panel in made:
        panel.close()


def mine(x, y=None, num_records=None, scale=2.0, width=None, link="logit"):
    """A <b>bold</b> model.

    :param scale: how <i>wide</i>.
    """
    numpyro.sample("w", dist.Normal(0, scale))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(0.5), obs=y)


def shown(widget):
    return "".join(part.value for part in inside(widget) if isinstance(part, ipywidgets.HTML))


def fold(panel, title):
    (found,) = [
        each for each in (panel._settings, panel._gallery) if each.button.description == title
    ]
    return found


def gallery_threads():
    return [thread for thread in threading.enumerate() if thread.name == "dpvi-gallery"]


# ---- the form ------------------------------------------------------------------------------------


def test_models_of_this_session_are_marked_in_the_menu(panels):
    wb.models.register("mine", mine)
    panel, _ = panels("mine")
    assert ("mine (this notebook)", "mine") in panel.model.control.options
    assert ("logistic", "logistic") in panel.model.control.options


def test_a_panel_shows_its_model_and_asks_nothing(panels):
    panel, calls = panels()
    assert (panel.name, panel.options(), panel.problems(), calls) == ("logistic", {}, {}, [])
    assert [name for _, name in panel.model.control.options] == wb.models.names()
    assert wb.models.get("logistic").summary in html.unescape(shown(panel.view))
    assert wb.models.get("logistic").reference in html.unescape(shown(panel.view))
    assert [fold(panel, title).is_open for title in ("settings of this model", "gallery")] == [
        False,
        False,
    ]


def test_every_option_has_a_control_of_its_kind_with_help(panels):
    panel, _ = panels()
    kinds = {name: type(field.control) for name, field in panel.fields.items()}
    of_logistic = {
        "prior_scale": ipywidgets.Text,
        "prior": ipywidgets.Dropdown,
        "intercept": ipywidgets.Checkbox,
    }
    assert kinds == {**of_logistic, "covariance": ipywidgets.Dropdown}
    assert panel.fields["prior_scale"].control.placeholder == "default: 5.0"
    assert "scale of the priors" in shown(panel.fields["prior_scale"].view)
    panel.model.value = "gmm"
    assert panel.fields["prior_scale"].control.placeholder == "automatic"


@pytest.mark.parametrize("name", wb.models.names())
def test_every_control_is_described(panels, name):
    panel, _ = panels(name)
    fold(panel, "gallery")
    controls = [
        part
        for part in inside(panel.view)
        if isinstance(part, (ipywidgets.Text, ipywidgets.Dropdown, ipywidgets.Checkbox))
    ]
    assert len(controls) == 1 + len(wb.models.options(name))
    assert all(control.description for control in controls)


@pytest.mark.parametrize(
    ("start", "name", "value", "expected"),
    [
        ("logistic", "prior_scale", "2", 2),
        ("logistic", "prior_scale", "5.0", None),
        ("logistic", "prior_scale", " ", None),
        ("logistic", "prior", "laplace", "laplace"),
        ("logistic", "intercept", False, False),
        ("hierarchical_logistic", "group_scale", "learnt", "learnt"),
        ("hierarchical_logistic", "group_scale", ".5", 0.5),
        ("gmm", "num_components", "3", 3),
        ("vae", "hidden", "64", 64),
    ],
)
def test_a_change_is_told_and_read(panels, start, name, value, expected):
    panel, calls = panels(start)
    panel.fields[name].value = value
    options = {} if expected is None else {name: expected}
    assert panel.options() == options
    assert calls == [options]
    assert panel.problems() == {}


def test_a_panel_begins_with_the_given_options(panels):
    options = {"prior_scale": 2.0, "prior": "cauchy", "intercept": False}
    panel, calls = panels("logistic", **options)
    assert (panel.options(), calls) == (options, [])
    assert panels("hierarchical_logistic", group_scale="learnt")[0].options() == {
        "group_scale": "learnt"
    }


@pytest.mark.parametrize(
    ("start", "options", "argument"),
    [
        ("logistik", {}, "model"),
        ("logistic", {"prior_scale": -1}, "prior_scale"),
        ("logistic", {"width": 1}, "width"),
    ],
)
def test_a_panel_cannot_begin_with_what_no_model_takes(start, options, argument):
    with pytest.raises(ArgumentError) as caught:
        ModelPanel(start, options, lambda: None)
    assert caught.value.argument == argument


def test_an_option_without_a_field_is_kept_until_the_model_changes(panels):
    wb.models.register(
        "mine", Model("mine", "A model.", mine, options={"scale": 1.0, "table": [1]})
    )
    panel, _ = panels("mine", table=[2])
    assert (list(panel.fields), panel.options()) == (["scale"], {"table": [2]})
    panel.model.value = "logistic"
    assert panel.options() == {}


def test_an_empty_field_means_none_where_the_default_is_something_else(panels):
    def factory(width: float | None = 2.0, both: bool | None = None):
        return Model("mine", "A model.", mine)

    wb.models.register("mine", factory)
    panel, _ = panels("mine")
    assert panel.fields["width"].value == "2.0"
    panel.fields["width"].value = ""
    panel.fields["both"].value = False
    assert panel.options() == {"width": None, "both": False}


def test_a_model_of_the_users_has_a_form_and_its_words_are_escaped(panels):
    wb.models.register("mine", mine)
    panel, _ = panels("mine")
    assert "<b>bold" not in shown(panel.view)
    assert "<i>wide" not in shown(panel.view)
    assert "A &lt;b&gt;bold&lt;/b&gt; model." in shown(panel.view)
    panel.fields["link"].value = "7"
    panel.fields["width"].value = "7"
    assert panel.options() == {"link": "7", "width": 7}


# ---- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "name", "value", "said"),
    [
        ("logistic", "prior_scale", "-1", "must be a finite number greater than 0."),
        ("logistic", "prior_scale", "wide", "must be a finite number greater than 0."),
        ("hierarchical_logistic", "group_scale", "learn", "must be a number or 'learnt'."),
        ("mine", "scale", "<wide>", "must be a number."),
    ],
)
def test_a_problem_is_explained_beside_its_field_in_the_open_fold(panels, start, name, value, said):
    wb.models.register("mine", mine)
    panel, _ = panels(start)
    panel.fields[name].value = value
    assert panel.problems() == {name: said}
    panel.show(panel.problems())
    assert f"{name.replace('_', ' ')} = {value}: {said}" in html.unescape(panel.fields[name].error)
    assert "<wide>" not in panel.fields[name].error
    assert panel.model.error == ""
    assert fold(panel, "settings of this model").is_open
    panel.show({})
    assert panel.fields[name].error == ""


def test_a_problem_of_no_field_stands_beside_the_menu(panels):
    panel, _ = panels()
    panel.show({"data": "must be a table.", "prior": "is odd."})
    assert "data: must be a table." in panel.model.error
    assert "is odd" not in panel.model.error
    assert "is odd" in panel.fields["prior"].error


def test_a_model_that_cannot_be_made_is_a_problem_of_the_menu(panels):
    wb.models.register("broken", lambda: 1 / 0)
    panel, calls = panels()
    panel.model.value = "broken"
    panel.show(panel.problems())
    assert "cannot be made: ZeroDivisionError" in panel.model.error
    assert calls == [{}]
    panel.model.value = "logistic"
    assert panel.model.error == ""


# ---- changing the model --------------------------------------------------------------------------


def test_another_model_has_another_form_and_leaves_no_widget_behind(panels):
    panel, calls = panels()
    counts = []
    for _ in range(3):
        panel.fields["prior_scale"].value = "2"
        old = panel.fields["prior_scale"].control
        panel.model.value = "vae"
        assert list(panel.fields) == ["layout", "hidden", "latent", "likelihood", "pixel_scale"]
        assert (panel.options(), calls[-1]) == ({}, {})
        assert old.comm is None
        panel.model.value = "logistic"
        counts.append(len(_instances))
    assert len(set(counts)) == 1
    assert wb.models.get("logistic").summary in html.unescape(shown(panel.view))


def test_a_closed_panel_leaves_nothing_behind():
    before = len(_instances)
    panel = ModelPanel("logistic", {}, lambda: None)
    panel.show_diagram(PNG)
    panel.close()
    assert len(_instances) == before


def test_a_model_without_options_has_no_fold_for_them(panels):
    wb.models.register("bare", lambda x, num_records=None: None)
    panel, _ = panels("bare")
    assert fold(panel, "settings of this model").view.layout.display == "none"


def test_refreshing_finds_new_models_and_keeps_choice_and_settings(panels):
    panel, calls = panels("logistic", prior_scale=2.0)
    wb.models.register("alpha", mine)
    panel.refresh()
    assert "alpha" in dict(panel.model.control.options).values()
    assert (panel.name, panel.options(), calls) == ("logistic", {"prior_scale": 2.0}, [])


def test_refreshing_follows_a_cell_that_ran_again(panels):
    wb.models.register("mine", Model("mine", "First.", mine, options={"scale": 1.0}))
    panel, calls = panels("mine", scale=3.0)
    wb.models.register(
        "mine", Model("mine", "Second.", mine, options={"scale": 2.0, "link": "log"})
    )
    panel.refresh()
    assert (list(panel.fields), panel.options()) == (["scale", "link"], {"scale": 3})
    assert "Second." in shown(panel.view)
    assert len(calls) == 1


def test_a_model_that_is_gone_is_left(panels):
    wb.models.register("mine", mine)
    panel, calls = panels("mine")
    del registry._ENTRIES["mine"]
    panel.refresh()
    assert panel.name == wb.models.names()[0]
    assert panel.problems() == {}
    assert len(calls) == 1


# ---- pictures ------------------------------------------------------------------------------------


def test_a_diagram_is_shown_with_its_words_and_goes_with_its_model(panels):
    panel, _ = panels()
    picture = panel._picture
    assert picture.layout.display == "none"
    panel.show_diagram(PNG, "w ~ <Normal>.")
    assert base64.b64encode(PNG).decode() in picture.value
    assert 'alt="w ~ &lt;Normal&gt;."' in picture.value
    assert picture.layout.display is None
    assert "w ~ &lt;Normal&gt;.</" in shown(panel.view)
    panel.model.value = "vae"
    assert (picture.value, picture.layout.display) == ("", "none")
    assert "Normal" not in shown(panel.view)


@pytest.mark.thorough
def test_the_gallery_is_drawn_when_it_is_first_opened(panels, monkeypatch):
    wb.models.register("mine", mine)
    monkeypatch.setattr(wb.models, "names", lambda: ["gmm", "logistic", "mine", "vae"])
    panel, _ = panels()
    gallery = fold(panel, "gallery")
    assert gallery_threads() == []
    assert not [part for part in inside(gallery.box) if isinstance(part, ipywidgets.Button)]
    gallery.is_open = True
    panel._gallery_thread.join(60)
    cards = gallery.box.children
    assert [
        button.description
        for card in cards
        for button in inside(card)
        if isinstance(button, ipywidgets.Button)
    ] == ["Use gmm", "Use logistic", "Use mine", "Use vae"]
    for card, data in zip(
        cards, ("breast_cancer", "breast_cancer", "breast_cancer", "digits"), strict=True
    ):
        assert f"drawn for the data set {data}" in shown(card)
        assert 'alt="Plate diagram. ' in shown(card)
    gallery.is_open = False
    gallery.is_open = True
    assert gallery.box.children == cards


def test_a_button_of_the_gallery_chooses_its_model(panels, monkeypatch):
    monkeypatch.setattr(model_panel._Card, "draw", lambda card: None)
    panel, calls = panels()
    gallery = fold(panel, "gallery")
    gallery.is_open = True
    (button,) = [
        part for part in inside(gallery.box) if getattr(part, "description", "") == "Use vae"
    ]
    button.click()
    assert (panel.name, calls, gallery.is_open) == ("vae", [{}], False)


@pytest.mark.parametrize("broken", [lambda: 1 / 0, lambda x, num_records=None: 1 / 0])
def test_a_model_that_fits_no_data_has_a_card_without_a_picture(broken):
    wb.models.register("broken", broken)
    card = model_panel._Card("broken", lambda name: None)
    card.draw()
    assert "no diagram: the model fits none" in shown(card.view)
    assert "<img" not in shown(card.view)


def test_closing_ends_the_drawing_of_the_gallery(monkeypatch):
    go, drawn = threading.Event(), []
    monkeypatch.setattr(
        model_panel._Card, "draw", lambda card: (go.wait(60), drawn.append(card.name))
    )
    panel = ModelPanel("logistic", {}, lambda: None)
    fold(panel, "gallery").is_open = True
    panel.close()
    go.set()
    panel._gallery_thread.join(60)
    assert len(drawn) <= 1
    assert gallery_threads() == []


NOTEBOOK = """
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import sample

scales = np.ones(3)

def tumours(x, y=None, num_records=None):
    w = numpyro.sample("w", dist.Normal(0, scales).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

def by_name(x, y=None):
    sample("w", dist.Normal(0, 2))

def guide(x, y=None):
    numpyro.sample("w", dist.Normal(numpyro.param("w_loc", 0.0), 2))

def bootstrap(frame, size):
    return frame.sample(size)

def logistic(x, y=None):
    numpyro.sample("w", dist.Normal(0, 2))
"""


def test_models_that_a_notebook_defines_are_offered_without_registration():
    variables = {"__name__": "__main__"}
    exec(NOTEBOOK, variables)
    panel = ModelPanel("logistic", {}, lambda: None, namespace=lambda: variables)
    entries = dict(panel.model.control.options)
    assert entries["tumours (this notebook)"] == "tumours"
    assert "by_name (this notebook)" in entries
    assert not {"guide", "bootstrap"}.intersection(entries.values())
    assert list(entries.values()).count("logistic") == 1
    guided = Model("by_name", "", variables["by_name"], guide=variables["guide"])
    registry.register("by_name", guided, replace=True)
    exec(NOTEBOOK.replace("tumours", "nodes"), variables)
    panel.refresh()
    assert registry.definition("by_name") is guided  # a model with more than its function stays
    assert "nodes" in dict(panel.model.control.options).values()
    assert panel.name == "logistic"
    panel.close()
