"""The report page."""

import dataclasses
import platform
import re

import jax
import numpy as np
import numpyro
import pytest

import workbench as wb
from tests.pages import Page
from workbench._numbers import fixed, shown
from workbench.plots import image_grid_figure
from workbench.plots.metrics import of_score
from workbench.results.code import code_of

HOSTILE = '<script>alert("x")</script>'


def alternatives(page):
    """The texts for those who do not see the pictures."""
    return [attributes["alt"] for tag, attributes in page.tags if tag == "img"]


NORMS = "Norms of the gradients of records before clipping"


@pytest.fixture(scope="module")
def page(done):
    return Page(done.report())


@pytest.fixture(scope="module")
def private_page(secret):
    return Page(secret[1].report())


def test_page_holds_every_sentence_of_the_guarantee(done, page):
    for paragraph in done.guarantee.statement().split("\n\n"):
        assert " ".join(paragraph.split()) in page.text


def test_guarantee_comes_before_every_number_of_the_fit(page):
    assert (
        page.text.index("What is promised")
        < page.text.index("How well it predicts")
        < page.text.index("What was learnt")
    )


def test_metrics_stand_under_their_label(done, page):
    section = page.text[
        page.text.index("How well it predicts") : page.text.index("What was learnt covered")
    ]
    assert section.startswith("How well it predicts public data")
    assert f"AUC {of_score('auc', done.metrics['auc'])}" in section
    assert f"log-likelihood (nats per record) {shown(done.metrics['log_likelihood'])}" in section


def test_posterior_is_labelled_covered_and_complete(done, page):
    section = page.text[page.text.index("What was learnt covered") :]
    table = done.summary_table()
    for name, row in table.iterrows():
        # whose sd are some units
        assert f"{name} {' '.join(fixed(value, 1) for value in row)}" in section
    assert "The intervals count the privacy noise as well as what the data leave open." in section


def test_page_needs_no_other_file(page):
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    assert [source.partition(",")[0] for source in sources] == ["data:image/svg+xml;base64"] * 4
    assert alternatives(page)[1:] == [
        "Metrics over the steps of the fit",
        "logistic: the fitted model",
        NORMS,
    ]
    assert not any("href" in attributes for _, attributes in page.tags)
    assert "script" not in [tag for tag, _ in page.tags]


def test_picture_has_a_text_alternative(page):
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")


def test_the_model_is_drawn_and_told(page):
    (words,) = [words for words in alternatives(page) if words.startswith("Plate diagram")]
    assert (
        "y ~ Bernoulli, given weights, intercept and x, observed, in the plate records: 458."
        in words
    )
    assert "weights Normal(loc 0, scale 5)" in page.text
    assert "y Bernoulli(logits from weights, intercept and x)" in page.text


def test_declared_bounds_categories_and_the_positive_class_are_listed(page, private_page, done):
    for name, column in done.data["schema"].items():
        low, high = (f"{column[end]:,.10g}".replace(",", " ") for end in ("low", "high"))
        assert f"{name} from {low} to {high}" in page.text
    positive = (
        '"malignant" counts as positive, and predictions are its probability. The other class is '
        '"benign".'
    )
    assert f'The target is "diagnosis": {positive}' in page.text
    assert "dose from 0 to 200" in private_page.text


@pytest.mark.thorough
def test_columns_are_told_by_their_kind(done):
    schema = {
        "ward": {"kind": "categorical", "categories": ["a", "b"], "other": True, "reference": "a"},
        "age": {"kind": "numeric", "low": 0, "high": 12000, "whole": True},
        "smokes": {"kind": "boolean"},
        "place": {
            "kind": "categorical",
            "categories": [f"p{n}" for n in range(40)],
            "other": False,
            "reference": None,
        },
    }
    text = Page(dataclasses.replace(done, data={**done.data, "schema": schema}).report()).text
    assert "ward a, b, or any other; reference: a" in text
    assert "age whole numbers from 0 to 12 000" in text
    assert "smokes yes or no" in text
    assert "p29 and 10 more" in text


def test_nothing_looks_like_python_but_the_code(done):
    odd = {
        **done.settings,
        "tags": {"a": None, "b": [1, 2.5]},
        "flag": np.False_,
        "shape": np.array([8, 8]),
        "empty": (),
    }
    page = Page(dataclasses.replace(done, settings=odd).report())
    text = page.text[page.text.index("What is promised") :].replace(
        " ".join(code_of(done).split()), ""
    )
    assert not re.search(r"\b(None|True|False|nan|array)\b|[{}]|'(?!s )", text)
    words = [
        "average yes",
        "evaluate private no",
        "microbatch size automatic",
        "tags a: automatic, b: 1, 2.5",
    ]
    for row in (*words, "shape 8, 8", "flag no", "empty none"):
        assert row in page.text


def test_the_code_and_the_versions_stand_in_the_page(done, page):
    assert " ".join(code_of(done).split()) in page.text
    assert (
        f"workbench {wb.__version__} · python {platform.python_version()} · jax {jax.__version__}"
        in page.text
    )
    assert f"numpyro {numpyro.__version__}" in page.text


@pytest.mark.thorough
def test_a_result_of_an_earlier_version_has_no_versions(done):
    assert "Versions" not in Page(dataclasses.replace(done, versions={}).report()).text


@pytest.mark.thorough
def test_a_loaded_result_has_the_same_report(done, tmp_path):
    assert wb.load(done.save(tmp_path)).report() == done.report()


def test_a_model_that_is_not_there_leaves_its_parts_out(done):
    page = Page(dataclasses.replace(done, model="gone", definition=None).report())
    assert "The model" not in page.text.split("How well")[0]
    assert "model = ... # the model 'gone', which is not in the gallery" in page.text


@pytest.mark.thorough
def test_images_stand_on_paper_and_other_figures_follow_the_theme(done, monkeypatch):
    kinds = [attributes["class"] for tag, attributes in Page(done.report()).tags if tag == "img"]
    assert kinds == ["dpvi-figure"] * 4
    monkeypatch.setattr(
        type(done), "plot", lambda *_: image_grid_figure(np.zeros((2, 3, 3)), "covered")
    )
    kinds = [attributes["class"] for tag, attributes in Page(done.report()).tags if tag == "img"]
    assert kinds == ["dpvi-figure", "dpvi-paper", "dpvi-paper", "dpvi-paper"]


def test_a_picture_that_cannot_be_drawn_is_left_out_with_a_warning(done, monkeypatch):
    monkeypatch.setattr(type(done), "plot", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="lacks the picture"):
        page = Page(done.report())
    assert len(alternatives(page)) == 1


def test_settings_and_declarations_are_listed(done, page):
    assert "learning_rate" in page.text
    assert str(done.guarantee.noise_multiplier) in page.text
    for line in done.data["declarations"]:
        assert line in page.text


def test_private_evaluation_records_leave_no_metrics_and_no_curves(private_page):
    assert "No metrics: the evaluation records are private and were not used." in private_page.text
    # after the diagram
    assert alternatives(private_page)[1:] == ["logistic: the fitted model", NORMS]


@pytest.mark.thorough
def test_public_evaluation_records_without_metrics_are_not_called_private(done):
    text = Page(dataclasses.replace(done, metrics={}, history=()).report()).text
    assert "No metrics were computed." in text
    assert "records are private and were not used" not in text


def test_too_narrow_intervals_are_said_to_be(guided):
    page = Page(guided.report())
    assert guided.interval_warning
    assert "The intervals are too narrow." in page.text
    assert guided.interval_warning in page.text
    assert "privacy noise (sd)" in page.text


@pytest.mark.thorough
def test_intervals_that_noise_hardly_touches_come_without_a_warning(guided):
    quiet = dataclasses.replace(
        guided, guarantee=dataclasses.replace(guided.guarantee, noise_multiplier=0.1)
    )
    assert quiet.interval_warning == ""
    assert "too narrow" not in Page(quiet.report()).text


def test_metrics_of_private_records_are_marked_as_not_covered(done):
    page = Page(dataclasses.replace(done, metrics_label="outside the guarantee").report())
    assert "How well it predicts outside the guarantee" in page.text
    assert "are not covered by the guarantee" in page.text
    assert (
        "declared public"
        not in page.text[: page.text.index("What was learnt covered")].split("How well")[1]
    )


@pytest.mark.thorough
def test_a_stopped_run_is_marked(done, cancelled):
    text = Page(cancelled.report()).text
    assert (
        f"This run was stopped early after {cancelled.guarantee.steps_taken} of 300 steps" in text
    )
    assert "stopped early" not in Page(done.report()).text


@pytest.mark.thorough
def test_a_failed_run_gives_its_reason(done):
    text = Page(dataclasses.replace(done, status="failed", message="too <bold>").report()).text
    assert "This run failed" in text
    assert "too <bold>" in text


def test_names_from_the_data_are_escaped(done):
    result = dataclasses.replace(
        done,
        coordinates={"weights": [HOSTILE, *done.coordinates["weights"][1:]]},
        data={**done.data, "name": HOSTILE, "description": HOSTILE, "declarations": [HOSTILE]},
        guarantee=dataclasses.replace(done.guarantee, unit=HOSTILE),
    )
    source = result.report()
    page = Page(source)
    assert HOSTILE not in source
    assert "script" not in [tag for tag, _ in page.tags]
    assert f"weights[{HOSTILE}]" in page.text
