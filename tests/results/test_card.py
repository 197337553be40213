"""How a notebook shows results, guarantees and data sets: escaped, labelled, in the page's colours,
and with no record.
"""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.conftest import PLANTED, PRIVATE_BOUNDS
from tests.pages import Page
from workbench import _html, _numbers
from workbench.fitting.groups import grouped

HOSTILE = "</b><script>alert(1)</script>&\"'"
TAGS = {"div", "b", "i", "span", "code", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
COLOURS = (
    "inherit",
    _html.INK,
    _html.QUIET,
    "var(--dpvi-alert, currentColor)",
    "var(--dpvi-accent, currentColor)",
)


class Reader(Page):
    """What an object shows of itself, which has no attributes but styles."""

    def __init__(self, source):
        self.styles = []
        super().__init__(source)

    def handle_starttag(self, tag, attributes):
        self.styles += [value for name, value in attributes if name == "style"]
        assert {name for name, _ in attributes} <= {"style"}
        super().handle_starttag(tag, attributes)


def shown(thing):
    read = Reader(thing._repr_html_())
    assert {tag for tag, _ in read.tags} <= TAGS
    for style in read.styles:  # light or dark, the page decides
        for name, value in re.findall(r"(background|(?<!-)color):([^;]+)", style):
            assert value in {"background": ("transparent",), "color": COLOURS}[name]
    return read.text


@pytest.fixture(scope="module")
def hostile_data(private_frame):
    frame = private_frame.rename(columns={"dose": HOSTILE})
    bounds = {HOSTILE: (0, 200), "age": (0, 100)}
    return wb.data.from_frame(frame, target="ill", bounds=bounds, unit=HOSTILE, name=HOSTILE)


@pytest.fixture(scope="module")
def hostile(hostile_data):
    settings = {
        "epsilon": 2.0,
        "iterations": 10,
        "ledger": False,
        "checkpoint": False,
        "evaluate_private": True,
    }
    model = dataclasses.replace(wb.models.get("logistic"), name=HOSTILE)
    result = wb.fit(model, hostile_data, **grouped(settings))
    return dataclasses.replace(
        result, message=HOSTILE, metrics=result.metrics | {HOSTILE: 1.0, "own": HOSTILE}
    )


def test_a_result_says_what_was_promised_how_well_it_did_and_how_to_go_on(done):
    text = shown(done)
    assert text.startswith("logistic on breast_cancer · done · 300 of 300 steps")
    assert done.guarantee.headline() in text
    assert f"ELBO {_numbers.shown(done.metrics['elbo'])}, log-likelihood" in text
    assert re.search(r"Metrics: .* public data Posterior: 5 of 31 quantities covered", text)
    assert "result.summary()" in text
    assert 'result.save("folder")' in text


def test_the_first_rows_are_those_of_the_summary(done):
    table = done.summary_table().head(5)
    text = shown(done)
    for digits, (name, row) in zip(
        _numbers.places_for(table["sd"].tolist()), table.iterrows(), strict=True
    ):
        assert (
            f"{name} {_numbers.fixed(row['mean'], digits)} {_numbers.fixed(row['sd'], digits)}"
            in text
        )


def test_matrices_and_sites_without_labels_are_numbered_or_named(done):
    draws = {"m": np.arange(12.0).reshape(3, 2, 2), "s": np.arange(3.0)}
    changed = dataclasses.replace(
        done, draws=draws, definition=None, model="unknown", coordinates={}
    )
    assert "m[0, 0] 4" in shown(changed)
    named = dataclasses.replace(changed, coordinates={"m": (["a", "b"], ["c", "d"])})
    assert "m[a, d] 5" in shown(named)
    short = dataclasses.replace(changed, coordinates={"m": (["a"], ["c", "d"])})
    assert "m[0, 1] 5" in shown(short)


def test_a_result_without_metrics_or_steps_is_shown_too(done):
    bare = dataclasses.replace(done, metrics={}, draws={}, status="failed", message="It failed.")
    text = shown(bare)
    assert "It failed." in text
    assert "Metrics" not in text
    assert "Posterior" not in text


@pytest.mark.thorough
def test_a_loaded_result_is_shown_like_the_one_that_was_saved(done, tmp_path):
    assert wb.load(done.save(tmp_path / "kept"))._repr_html_() == done._repr_html_()


def test_a_guarantee_shows_its_statement(done):
    assert shown(done.guarantee) == " ".join(done.guarantee.statement().split())


def test_a_data_set_shows_its_declarations(private_data):
    text = shown(private_data)
    assert repr(private_data) in text
    assert "Privacy unit: patient." in text
    for line in private_data.declarations():
        assert line in text


def test_names_that_are_html_are_shown_as_they_are(hostile, hostile_data):
    for thing in (hostile, hostile.guarantee, hostile_data):
        html = thing._repr_html_()
        assert "<script" not in html
        assert "&lt;script&gt;" in html
        assert "<script>" in shown(thing)
    assert "⚠ outside the guarantee" in shown(hostile)


def test_data_sets_that_differ_in_their_records_look_alike(private_frame):
    """No count, no value, no category of a private record is shown."""
    one = wb.data.from_frame(private_frame, target="ill", bounds=PRIVATE_BOUNDS, name="clinic")
    few = private_frame.iloc[:100].assign(dose=lambda frame: frame.dose / 2)
    other = wb.data.from_frame(few, target="ill", bounds=PRIVATE_BOUNDS, name="clinic")
    assert one._repr_html_() == other._repr_html_()
    assert f"{PLANTED:.0f}" not in one._repr_html_()


def test_text_stays_text(done, private_data):
    for thing in (done, done.guarantee, private_data):
        assert "<" not in repr(thing)
    assert repr(done).startswith("FitResult(done, logistic on breast_cancer, epsilon=1, ")
    assert isinstance(done.summary_table(), pd.DataFrame)
