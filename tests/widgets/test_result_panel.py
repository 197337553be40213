"""Guarantee, posterior, pictures and files of a result."""

import base64
import dataclasses
import html
import io
import json
import re
import types
import zipfile

import numpy as np
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench.plots.metrics import of_score
from workbench.results import coefficients
from workbench.results.coefficients import ranked
from workbench.results.report import summary_rows
from workbench.widgets.kit import markup
from workbench.widgets.workbench import result_panel
from workbench.widgets.workbench.result_panel import ResultPanel, guarantee_card, posterior_table

PATIENCE = 60


@pytest.fixture
def panel(done):
    panel = ResultPanel()
    panel.show(done, None, ())
    assert panel._latest.wait(PATIENCE)
    yield panel
    panel.close()


def made(panel, kind):
    """(file name, content) of the link that the button makes."""
    panel.kind.value = kind
    panel.make.click()
    assert panel._files.wait(PATIENCE)
    name, encoded = re.search(
        r'download="([^"]+)" href="data:[^;]+;base64,([^"]*)"', panel.link.value
    ).groups()
    assert f"Download {name}" in panel.link.value
    return name, base64.b64decode(encoded)


def test_the_guarantee_is_shown_in_full_with_its_cautions(done):
    shown = html.unescape(guarantee_card(done, ("take <care>",), "The ledger counts <much>."))
    assert "The ledger counts <much>." in shown
    for paragraph in done.guarantee.statement().split("\n\n"):
        assert paragraph in shown
    assert "⚠ take <care>" in shown


def test_the_posterior_is_shown_with_its_label_and_warning(done):
    shown = html.unescape(posterior_table(done))
    assert "covered by the guarantee" in shown
    for row in summary_rows(done):
        assert all(f">{cell}</td>" in shown for cell in row)
    assert not done.interval_warning or done.interval_warning in shown


def test_the_models_own_picture_comes_first_and_every_other_can_be_chosen(panel, done):
    assert panel.picture.control.options[0] == "coefficients"
    assert set(panel.picture.control.options) == set(done.pictures) - {"curves"}
    first = panel.image.value
    assert "data:image/svg+xml;base64," in first
    panel.picture.value = "check"
    assert panel._latest.wait(PATIENCE)
    assert panel.image.value not in (first, "")
    assert panel.drawing.value == ""


def test_a_picture_that_cannot_be_drawn_says_why(panel, monkeypatch):
    def explode(*_):
        raise ValueError("no <records>")

    monkeypatch.setattr(type(panel._result), "plot", explode)
    panel.picture.value = "check"
    assert panel._latest.wait(PATIENCE)
    assert "check cannot be drawn: no &lt;records&gt;" in panel.drawing.value
    assert panel.image.value == ""


def test_private_records_are_not_drawn_without_the_box(secret):
    panel = ResultPanel()
    panel.show(secret[1], None, ())
    panel.picture.value = "check"
    assert panel._latest.wait(PATIENCE)
    assert "cannot be drawn" in panel.drawing.value


@pytest.mark.thorough
def test_files_are_those_that_save_writes(panel, done):
    name, report = made(panel, "report (HTML page)")
    assert name == "report.html"
    assert html.escape(
        done.guarantee.headline()
    ) in report.decode() or done.guarantee.headline() in html.unescape(report.decode())
    name, settings = made(panel, "settings and guarantee (JSON)")
    assert json.loads(settings)["guarantee"]["epsilon"] == 1.0
    name, params = made(panel, "parameters (NumPy .npz)")
    with np.load(io.BytesIO(params)) as held:
        np.testing.assert_array_equal(held["weights_loc"], done.params["weights_loc"])
    name, everything = made(panel, "everything (zip)")
    assert {"report.html", "posterior.nc", "params.npz", "result.json"} <= set(
        zipfile.ZipFile(io.BytesIO(everything)).namelist()
    )


@pytest.mark.parametrize(
    ("kind", "begins"), some_of([("PNG", b"\x89PNG"), ("SVG", b"<?xml"), ("PDF", b"%PDF")], 3)
)
def test_the_chosen_picture_can_be_taken_away(panel, kind, begins):
    panel.picture.value = "coefficients"
    name, content = made(panel, f"picture ({kind})")
    assert name == f"coefficients.{kind.lower()}"
    assert content.startswith(begins)


@pytest.mark.thorough
def test_large_files_go_into_a_folder(panel, monkeypatch):
    monkeypatch.setattr(result_panel, "_LARGEST_LINK", 10)
    panel.make.click()
    assert panel._files.wait(PATIENCE)
    assert "save it into a folder instead" in panel.link.value
    assert "base64" not in panel.link.value


def test_a_file_that_cannot_be_made_says_why(panel, monkeypatch):
    def explode(*_):
        raise OSError("disk <full>")

    monkeypatch.setattr(type(panel._result), "save", explode)
    panel.make.click()
    assert panel._files.wait(PATIENCE)
    assert "disk &lt;full&gt;" in panel.link.value


def test_a_result_is_saved_where_the_user_says(panel, tmp_path, done, quick_report):
    panel.folder.value = str(tmp_path / "mine")
    panel.save.click()
    assert str(tmp_path / "mine") in panel.saved.value
    assert wb.load(tmp_path / "mine").guarantee == done.guarantee


def test_one_button_writes_a_release_to_check(panel, tmp_path, done):
    secret = dataclasses.replace(done.guarantee, secure_randomness=True)
    fit = dataclasses.replace(done, guarantee=secret, settings=done.settings | {"seed": None})
    panel.show(fit, None, ())
    panel.folder.value = str(tmp_path / "mine.zip")
    panel.publish.click()
    assert panel._files.wait(PATIENCE)
    assert str(tmp_path / "mine.zip") in panel.saved.value
    assert wb.verify(tmp_path / "mine.zip").status != "failed"
    panel.publish.click()
    assert panel._files.wait(PATIENCE)
    assert "new zip file; choose another folder" in panel.folder.error
    panel.show(dataclasses.replace(fit, guarantee=done.guarantee), None, ())
    panel.folder.value = str(tmp_path / "other")
    panel.publish.click()
    assert panel._files.wait(PATIENCE)
    assert "noise that follows from a seed" in panel.folder.error
    assert not (tmp_path / "other").exists()


@pytest.mark.thorough
def test_a_folder_that_cannot_be_written_is_told_beside_its_field(panel, tmp_path, quick_report):
    (tmp_path / "file").write_text("")
    for text, words in (
        (str(tmp_path / "file/below"), "cannot write there"),
        (" ", "name of a folder"),
    ):
        panel.folder.value = text
        panel.save.click()
        assert words in panel.folder.error
    panel.folder.value = str(tmp_path / "good")
    panel.save.click()
    assert panel.folder.error == ""


def test_a_new_fit_takes_everything_away(panel, quick_report):
    panel.make.click()
    assert panel._files.wait(PATIENCE)
    panel.clear()
    assert (panel.link.value, panel.saved.value, panel.image.value) == ("", "", "")
    assert (panel.promised.value, panel.warnings.value) == ("", "")
    assert "Nothing yet" in panel.learnt.value
    assert panel.make.disabled
    assert panel.save.disabled
    assert panel.publish.disabled
    assert "Guarantee" not in panel.guarantee.value
    panel.make.click()
    panel.save.click()
    assert (panel.link.value, panel.saved.value) == ("", "")


def test_code_is_there_to_copy():
    panel = ResultPanel()
    panel.show_code("result = wb.fit('a', <b>)", "# %%\nimport workbench as wb\n")
    assert "import workbench as wb\nresult = wb.fit('a', <b>)" in html.unescape(panel.code.value)
    assert "<b>" not in panel.code.value
    assert "# %%" in panel.cells.value


def told(result):
    """What a fit has learnt, in brief."""
    panel = ResultPanel()
    panel.show(result, None, ())
    return html.unescape(panel.learnt.value)


def test_what_was_learnt_and_promised_is_said_in_two_lines_each(panel, done):
    said = html.unescape(panel.learnt.value)
    assert f"<b>AUC {of_score('auc', done.metrics['auc'])}: public data</b>" in said
    promised = html.unescape(panel.promised.value)
    assert "<b>epsilon 1, delta 0.001 per tumour</b>" in promised
    assert done.guarantee.in_brief() in promised
    assert panel.warnings.value == "".join(map(markup.problem, done.cautions))


def test_coefficients_that_are_clear_of_zero_are_named(secret):
    result = secret[1]
    said, entries = told(result), ranked(result, 0.9)
    clear, total = [entry.name for entry in entries if entry.is_clear], len(entries)
    assert total == len(result.coefficients().drop(index=["intercept"], errors="ignore"))
    if result.interval_warning:
        assert "Posterior shows" in said
    elif clear:
        more = f", {len(clear) - 2} more" if len(clear) > 2 else ""
        signs = "all signs" if len(clear) > 1 else "sign"
        assert f"Clear of zero: {', '.join(clear[:2])}{more} ({signs} right: 90 %" in said
    else:
        assert "None is jointly clear of zero" in said
    assert result.interval_warning or "covered)" in said
    assert "No score: no public evaluation records" in said
    scaled = dataclasses.replace(result, release_label="outside the guarantee")
    assert "covered" not in told(scaled)
    assert result.interval_warning or "outside the guarantee)" in told(scaled)


@pytest.mark.parametrize(
    ("clear", "words"),
    [
        ("", "None is jointly clear of zero (covered)."),
        ("a", "Clear of zero: a (sign right: 90 %; covered)."),
        ("ab", "Clear of zero: a, b (all signs right: 90 %; covered)."),
        ("abcd", "Clear of zero: a, b, 2 more (all signs right: 90 %; covered)."),
    ],
)
def test_two_of_the_clear_coefficients_are_named(clear, words, done, monkeypatch):
    entries = [types.SimpleNamespace(name=name, is_clear=name in clear) for name in "abcde"]
    monkeypatch.setattr(coefficients, "ranked", lambda *_: entries)
    assert not done.interval_warning
    assert words in told(done)


@pytest.mark.parametrize("label", ["public data", "outside the guarantee"])
def test_a_score_has_its_label_before_the_posterior_is_drawn_too(done, label):
    panel = ResultPanel()
    prepared = types.SimpleNamespace(
        data=types.SimpleNamespace(evaluation_label=label), guarantee=lambda steps: done.guarantee
    )
    panel.show_reached(prepared, {"auc": 0.75}, 300)
    assert f"AUC 0.750: {label}" in html.unescape(panel.learnt.value)
    panel.show_reached(prepared, {}, 300)
    assert "No score" in panel.learnt.value


def test_a_fit_without_privacy_promises_nothing(made_up_steps):
    result = wb.fit("logistic", "breast_cancer", private=False, iterations=20)
    panel = ResultPanel()
    panel.show(result, None, ())
    assert "NO PRIVACY" in panel.promised.value
    assert "Nothing is promised" in panel.promised.value
    assert "times as likely" not in panel.promised.value
    panel.close()


def test_a_fit_that_failed_says_what_to_change(done):
    assert "smaller learning rate" in told(dataclasses.replace(done, status="failed"))


@pytest.mark.filterwarnings("ignore:Many values")
def test_twins_are_saved_beside_the_result(panel, done, tmp_path):
    panel.folder.value = str(tmp_path / "mine")
    panel.twins.click()
    assert panel._files.wait(PATIENCE)
    folder = tmp_path / "mine_twins"
    assert str(folder) in panel.twins_saved.value
    assert len(list(folder.glob("twin_*.csv"))) == 30
    assert "How to analyse them" in (folder / "README.txt").read_text()
    panel.twins.click()
    assert panel._files.wait(PATIENCE)
    assert "Twins cannot be saved: folder=" in html.unescape(panel.twins_saved.value)
    panel.folder.value = " "
    panel.twins.click()
    assert panel.folder.error
