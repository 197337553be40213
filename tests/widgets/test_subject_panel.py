"""What a fit is about: coefficients that form, and those of a result."""

import dataclasses
import html
import re
import types

import numpy as np
import pytest

import workbench as wb
from tests import fakes
from workbench.inference.training import Snapshot
from workbench.results.coefficients import ranked
from workbench.widgets.kit.forest import Estimate, forest
from workbench.widgets.workbench.session import Progress
from workbench.widgets.workbench.subject_panel import SubjectPanel, estimates_of

PATIENCE = 60


def rows_of(page):
    """Names of the rows, in order."""
    return [html.unescape(name) for name in re.findall(r'<th scope="row">([^<]*)</th>', page)]


def positions(page):
    """Where the marks of estimates are, in percent of the axis."""
    return [float(left) for left in re.findall(r'<b class="\w*" style="left:([\d.]+)%">', page)]


def told(page):
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


# ---- the table -----------------------------------------------------------------------------------


def test_marks_and_intervals_stand_where_their_values_are():
    page = forest("2 slopes", [Estimate("a", 1.0, (0.0, 2.0)), Estimate("b", -2.0, (-3.0, -1.0))])
    reach = 3 * 1.06
    assert positions(page) == [
        pytest.approx(50 + 50 * value / reach, rel=1e-3) for value in (1.0, -2.0)
    ]
    (left, width), _ = re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%">', page)
    assert (float(left), float(width)) == (50.0, pytest.approx(100 / reach, rel=1e-3))


def test_only_what_is_clear_is_filled_and_what_forms_is_marked():
    page = forest("", [Estimate("a", 1.0, (0.5, 2.0), True), Estimate("b", 1.0)])
    assert re.findall(r'<b class="(\w*)"', page) == ["clear", "forms"]


def test_names_and_texts_are_escaped_and_radio_buttons_choose_their_units():
    estimate = Estimate("<b>", 1.0, (0.0, 2.0), texts=("1 <i>", "2"), words='"quoted" <u>')
    page = forest("one", [estimate], units=("own units", "scaled"))
    for markup in ("<u>", "1 <i>", "<b></th>"):
        assert markup not in page
    names = re.findall(r'type="radio" name="([^"]+)" value="(\d)"', page)
    assert [value for _, value in names] == ["0", "1"]
    again = forest("one", [estimate], units=("own units", "scaled"))
    assert names[0][0] not in again  # or the buttons of two tables would exclude each other
    assert "radio" not in forest("one", [estimate], units=("own units",))


def test_a_table_can_be_read_without_its_picture():
    page = forest("3 slopes", [Estimate("a", 1.0, (0.0, 2.0), texts=("1.0 [0.0, 2.0]",))])
    assert (
        '<div class="rows dpvi-scrolls" tabindex="0" role="region" aria-label="3 slopes">' in page
    )
    assert page.count('scope="col"') == 3
    assert "1.0 [0.0, 2.0]" in told(page)


def test_very_many_rows_are_not_drawn():
    page = forest("", [Estimate(str(number), 0.0) for number in range(250)])
    assert len(rows_of(page)) == 200
    assert "and 50 more, which Posterior lists" in page


INFINITE = Estimate("a", float("inf"), (float("nan"), 1.0))


@pytest.mark.parametrize("estimates", [[], [Estimate("a")], [Estimate("a", 0.0)], [INFINITE]])
def test_nothing_and_zero_are_shown_too(estimates):
    page = forest("", estimates)
    assert rows_of(page) == [estimate.name for estimate in estimates]
    assert "nan" not in page
    assert "inf" not in page


# ---- a result ------------------------------------------------------------------------------------


def test_coefficients_are_ranked_by_their_distance_from_zero(done):
    coefficients = ranked(done, 0.9)
    table = done.coefficients(interval=0.9).drop(index="intercept")
    assert {entry.name for entry in coefficients} == set(table.index)
    distance = (table["mean"] / table["sd"]).abs().to_dict()
    order = [distance[entry.name] for entry in coefficients]
    assert order == sorted(order, reverse=True)
    for entry in coefficients:
        row = table.loc[entry.name]
        interval = row["hdi_90%_low"], row["hdi_90%_high"]
        assert entry.unscaled == pytest.approx((row["mean"], row["sd"], *interval), rel=1e-4)
        assert entry.scaled[0] == pytest.approx(row["scaled mean"], rel=1e-4)
    draws = done.draws["weights"]
    reach = np.quantile(np.abs((draws - draws.mean(0)) / draws.std(0)).max(1), 0.9)
    is_clear = np.abs(draws.mean(0) / draws.std(0)) > reach
    names = np.array(done.data["feature_names"])[is_clear]
    assert {entry.name for entry in coefficients if entry.is_clear} == set(names)


def test_a_result_is_its_coefficients_in_two_units_named_by_model_data_and_epsilon(done):
    panel = SubjectPanel()
    panel.show_result(done)
    assert rows_of(panel.view.value) == [entry.name for entry in ranked(done, 0.9)]
    words = told(panel.view.value)
    assert "30 coefficients" in words
    assert f"logistic on breast_cancer, epsilon 1 · {done.release_label}" in words
    first = estimates_of(done)[0]
    assert all(text in words for text in first.texts)
    panel.close()


def test_intervals_that_are_too_narrow_call_nothing_clear(done):
    clear = dataclasses.replace(
        done,
        draws={name: values + 99.0 * (name == "weights") for name, values in done.draws.items()},
    )
    assert all(estimate.is_clear for estimate in estimates_of(clear))
    doubtful = dataclasses.replace(clear, cautions=("It was still moving.",))
    assert doubtful.interval_warning
    assert not any(estimate.is_clear for estimate in estimates_of(doubtful))
    panel = SubjectPanel()
    panel.show_result(doubtful)
    assert "● clear" not in told(panel.view.value)


def test_the_sign_of_a_clear_coefficient_is_that_of_its_mark(done):
    """In own units, the coefficient of a column that interacts may have another."""
    units = wb.models.OwnUnits(np.diag([1.0] + [-1.0] * 30), ("x",) * 31)
    logistic = wb.models.get("logistic")
    linear = wb.models.LinearPredictor("weights", "intercept", own_units=units)
    moved = {name: values + 99.0 * (name == "weights") for name, values in done.draws.items()}
    other = dataclasses.replace(
        done, draws=moved, definition=dataclasses.replace(logistic, linear=linear)
    )
    for entry in ranked(other, 0.9):
        assert entry.is_clear
        assert entry.scaled[0] > 0 > entry.unscaled[0]
    wrong = linear._replace(own_units=wb.models.OwnUnits(np.eye(3), ("x",) * 3))
    definition = dataclasses.replace(logistic, linear=wrong)
    assert ranked(dataclasses.replace(done, definition=definition), 0.9) == []


@pytest.fixture(scope="module")
def mixture():
    with fakes.installed():
        return wb.fit("gmm", "mixture", epsilon=4.0, iterations=20, seed=0)


def test_a_picture_that_cannot_be_drawn_leaves_no_picture_of_another_fit(
    done, mixture, monkeypatch
):
    panel = SubjectPanel()
    panel.show_result(done)
    monkeypatch.setattr(type(mixture), "plot", lambda *_: 1 / 0)
    panel.show_result(mixture)
    assert panel._pictures.wait(PATIENCE)
    assert rows_of(panel.view.value) == []
    assert "gmm on mixture, epsilon 4" in told(panel.view.value)
    assert "Pictures says why" in told(panel.view.value)
    panel.close()


def test_a_model_without_coefficients_shows_its_picture(mixture):
    panel = SubjectPanel()
    panel.show_result(mixture)
    assert panel._pictures.wait(PATIENCE)
    assert "data:image/" in panel.view.value
    assert "gmm on mixture, epsilon 4" in told(panel.view.value)
    assert estimates_of(mixture) == []
    panel.close()


# ---- before and during a fit ---------------------------------------------------------------------


def test_before_a_fit_the_names_of_its_coefficients_or_the_diagram_stand_there():
    prepared = wb.prepare("logistic", "breast_cancer", epsilon=1.0)
    panel = SubjectPanel()
    panel.show_plan(prepared, (b"<svg>diagram</svg>", "the model"))
    names = prepared.model.coordinates(prepared.data)["weights"]
    assert rows_of(panel.view.value) == names
    assert positions(panel.view.value) == []
    prepared = wb.prepare("gmm", "mixture", epsilon=1.0)
    panel.show_plan(prepared, (b"<svg>diagram</svg>", "the model"))
    assert 'alt="the model"' in panel.view.value


def test_the_words_before_the_menu_of_models_say_what_it_is_for():
    panel, data = SubjectPanel(), wb.data.load("breast_cancer")
    assert panel.aim.value == "Fit"
    panel.show_aim(wb.models.get("logistic"), data)
    assert panel.aim.value == "Predict <b>diagnosis</b> with"
    panel.show_aim(wb.models.get("gmm"), data)
    assert panel.aim.value == "Describe the records with"
    panel.show_aim(wb.models.get("logistic"), dataclasses.replace(data, target_name="<b>"))
    assert "Predict <b>&lt;b&gt;</b>" in panel.aim.value
    panel.show_aim()
    assert panel.aim.value == "Fit"


def progress_of(names, *moments):
    followed = tuple((step, np.array(values)) for step, values in moments)
    return Progress(
        "fitting",
        Snapshot("running", moments[-1][0], {}),
        (),
        None,
        None,
        followed=followed,
        followed_names=names,
    )


def session_of(linear, **options):
    model = types.SimpleNamespace(name="mine", linear=linear, options=options)
    return types.SimpleNamespace(
        prepared=types.SimpleNamespace(
            model=model,
            data=types.SimpleNamespace(name="clinic"),
            privacy=types.SimpleNamespace(epsilon=2.0, iterations=100),
        )
    )


def test_coefficients_form_from_the_released_iterates_of_the_last_half():
    names = ("intercept_loc", "weights_loc[age]", "weights_loc[dose]", "weights_scale[age]")
    session = session_of(types.SimpleNamespace(weights="weights"))
    panel = SubjectPanel()
    moments = [(step, [9.0, value, -value, 9.0]) for step, value in enumerate((8.0, 9.0, 1.0, 2.0))]
    panel.show(session, progress_of(names, *moments))
    assert rows_of(panel.view.value) == ["age", "dose"]
    reach = 1.5 * 1.06  # the mean of the last two
    assert positions(panel.view.value) == [
        pytest.approx(50 + sign * 50 * 1.5 / reach, rel=1e-3) for sign in (1, -1)
    ]
    assert "mine on clinic, epsilon 2 · covered" in told(panel.view.value)
    moments = [
        (step, [0.0, value, 0.0, 0.0]) for step, value in enumerate((0.5, 0.5, 0.5, 0.5, 0.5))
    ]
    panel.show(session, progress_of(names, *moments))
    assert positions(panel.view.value)[0] == pytest.approx(50 + 50 * 0.5 / reach, rel=1e-3)


@pytest.mark.parametrize("site", ["weights_loc", "weights_auto_loc"])
def test_weights_of_several_levels_form_too(site):
    panel = SubjectPanel()
    moments = progress_of((f"{site}[age,\n b]",), (0, [1.0]), (5, [2.0]))
    panel.show(session_of(None, formula="y ~ age"), moments)
    assert rows_of(panel.view.value) == ["age,\n b"]
    panel.show(session_of(None), moments)  # of a network, say
    other = SubjectPanel()
    other.show(session_of(None), moments)
    assert rows_of(other.view.value) == []


def test_parameters_that_are_no_coefficients_form_as_lines():
    panel = SubjectPanel()
    names = tuple("abc")
    moments = [(step, [step / 100, -step / 50, 0.0]) for step in (0, 50, 100)]
    panel.show(session_of(None), progress_of(names, *moments))
    words = told(panel.view.value)
    assert "3 of 3 released parameters" in words
    assert "b \N{MINUS SIGN}2.00" in words


def test_what_is_of_another_fit_is_faded(done):
    panel = SubjectPanel()
    panel.begin()
    assert "dpvi-old" not in panel.view._dom_classes  # there is none before
    panel.show_result(done)
    panel.begin()
    assert "dpvi-old" in panel.view._dom_classes
    moment = progress_of(("weights_loc[age]",), (0, [1.0]))
    session = session_of(types.SimpleNamespace(weights="weights"))
    panel.show(session, moment)
    assert "dpvi-old" not in panel.view._dom_classes
    before = panel.view.value
    panel.show(session, moment)  # nothing new
    assert panel.view.value is before
