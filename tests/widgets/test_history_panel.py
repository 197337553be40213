"""The table of a session's fits, and the comparison of two."""

import dataclasses
import html
import re

import pytest

from workbench.plots.metrics import of_score
from workbench.widgets.workbench.history_panel import HistoryPanel
from workbench.widgets.workbench.result_panel import guarantee_card


@pytest.fixture
def other(done):
    guarantee = dataclasses.replace(
        done.guarantee, epsilon=4.0, epsilon_taken=4.0, noise_multiplier=1.8
    )
    return dataclasses.replace(
        done,
        guarantee=guarantee,
        settings={**done.settings, "epsilon": 4.0, "clip": 0.25},
        metrics={**done.metrics, "auc": 0.875},
    )


def test_an_empty_history_says_so():
    panel = HistoryPanel()
    assert "No fit has ended yet" in panel.table.value
    assert not panel.first.visible


def test_each_fit_is_a_row(done, cancelled):
    panel = HistoryPanel()
    panel.add(done)
    assert not panel.first.visible
    panel.add(cancelled)
    shown = html.unescape(panel.table.value)
    assert shown.count("<tr") == 3
    for text in (
        ">300<",
        f"{cancelled.guarantee.steps_taken} of 300",
        "done",
        "cancelled",
        f"AUC {of_score('auc', done.metrics['auc'])}",
    ):
        assert text in shown
    assert "add up" in shown
    assert panel.results == [done, cancelled]


def test_the_button_in_a_row_presses_its_own(done, cancelled):
    asked = []
    panel = HistoryPanel(asked.append)
    panel.add(done)
    panel.selected = cancelled
    panel.add(cancelled)
    one, two = re.findall("<button.*?</button>", panel.table.value)
    assert ('aria-pressed="false"' in one, 'aria-pressed="true"' in two) == (True, True)
    for number, html_button in enumerate((one, two)):
        (name,) = re.findall(r"'\.(dpvi-press-[0-9a-f]+-\d+)'", html_button)
        (pressed,) = [
            button for button in panel.presses.view.children if name in button._dom_classes
        ]
        pressed.click()
        assert asked[-1] == number


def test_a_fit_that_went_on_takes_its_own_place(done, cancelled):
    panel = HistoryPanel()
    panel.add(cancelled)
    panel.add(done, continues=True)
    assert panel.results == [done]


def test_a_saved_fit_is_opened_and_compared_like_any_other(done, other, tmp_path, quick_report):
    folder = other.save(tmp_path / "first")
    panel = HistoryPanel()
    panel.add(done)
    panel.folder.value = f" {folder} "
    shown = html.unescape(panel.table.value)
    assert shown.count("<tr") == 3
    assert "done, opened" in shown
    assert (panel.folder.value, panel.folder.error) == ("", "")
    assert panel.results[1].guarantee == other.guarantee
    assert "0.875" in panel.comparison.value
    assert (panel.first.value, panel.second.value) == (0, 1)


def test_epsilon_is_never_shown_below_what_was_promised(done, other):
    guarantee = dataclasses.replace(done.guarantee, epsilon=1.23456749)  # which %g rounds down
    result = dataclasses.replace(
        done, guarantee=guarantee, settings={**done.settings, "epsilon": 1.23456749}
    )
    panel = HistoryPanel()
    panel.add(result)
    panel.add(other)
    shown = [
        panel.table.value,
        panel.comparison.value,
        str(panel.first.control.options),
        repr(result),
    ]
    shown.append(guarantee_card(result, ()))
    for text in shown:
        assert "1.23457" in text
        assert "1.23456" not in text.replace(guarantee.headline(), "")


@pytest.mark.thorough
def test_a_folder_without_a_fit_is_refused_beside_its_field(done, tmp_path, quick_report):
    panel = HistoryPanel()
    panel.add(done)
    before = panel.table.value
    panel.folder.value = str(tmp_path / "<b>none</b>")
    assert "holds no saved result" in panel.folder.error
    assert "<b>" not in panel.folder.error
    assert (panel.table.value, panel.results) == (before, [done])
    panel.folder.value = str(done.save(tmp_path / "there"))
    assert panel.folder.error == ""
    assert len(panel.results) == 2


@pytest.mark.thorough
def test_a_damaged_fit_is_refused_and_the_table_stays(done, tmp_path, monkeypatch, quick_report):
    folder = done.save(tmp_path / "kept")
    (folder / "params.npz").write_bytes(b"damaged")
    panel = HistoryPanel()
    panel.folder.value = str(folder)
    assert "params.npz is damaged" in panel.folder.error
    monkeypatch.setattr("workbench.results.load", lambda folder: 1 / 0)
    panel.folder.value = str(tmp_path)
    assert "cannot be opened: ZeroDivisionError" in html.unescape(panel.folder.error)
    assert panel.results == []


def test_names_in_a_saved_fit_are_escaped(done, tmp_path, quick_report):
    hostile = dataclasses.replace(done, model="<script>", data={**done.data, "name": "<img>"})
    panel = HistoryPanel()
    panel.open(hostile.save(tmp_path / "kept"))
    assert "<script>" not in panel.table.value
    assert "&lt;img&gt;" in panel.table.value


@pytest.mark.thorough
def test_a_fit_that_went_on_leaves_an_opened_one_alone(
    done, cancelled, other, tmp_path, quick_report
):
    folder = other.save(tmp_path / "kept")
    panel = HistoryPanel()
    panel.add(cancelled)
    opened = panel.open(folder)
    panel.add(done, continues=True)
    assert panel.results[0] is done
    assert panel.results[1] is opened
    panel.close()
    panel.open(folder)
    panel.add(done, continues=True)
    assert len(panel.results) == 2


def test_two_fits_are_compared_by_what_differs(done, other):
    panel = HistoryPanel()
    panel.add(done)
    panel.add(other)
    assert (panel.first.value, panel.second.value) == (0, 1)
    shown = html.unescape(panel.comparison.value)
    rows = {row.split("<")[0]: row for row in shown.split("background:transparent'>") if row}
    assert "clip" in rows
    assert "sampler" not in rows
    for text in ("fit 1", "fit 2", "0.25", "AUC (public data)", "0.875", "data:image/png"):
        assert text in shown
    assert "attacker finds at most" in shown
    assert "different data" not in shown
    panel.add(dataclasses.replace(other, data={**other.data, "name": "another"}))
    assert (panel.first.value, panel.second.value) == (0, 2)
    panel.first.value = 0
    assert "The fits are of different data" in panel.comparison.value


def test_a_fit_is_not_compared_with_itself(done, other):
    panel = HistoryPanel()
    panel.add(done)
    panel.add(other)
    panel.second.value = 0
    assert "two different fits" in panel.comparison.value


def test_private_scores_are_marked(secret):
    outside = dataclasses.replace(
        secret[1], metrics={"elbo": -1.0}, metrics_label="outside the guarantee"
    )
    panel = HistoryPanel()
    panel.add(outside)
    panel.add(dataclasses.replace(outside, metrics={"elbo": -2.0}))
    assert "ELBO (outside the guarantee)" in panel.comparison.value
    assert "data:image" not in panel.comparison.value
