"""The report page."""

import dataclasses
from html.parser import HTMLParser

import pytest

HOSTILE = '<script>alert("x")</script>'
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects text and tags, and fails on tags that do not match."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts = [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


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
    assert page.text.index("What is promised") < page.text.index("How well it predicts") < page.text.index("Posterior")


def test_metrics_stand_under_their_label(done, page):
    section = page.text[page.text.index("How well it predicts") : page.text.index("Posterior covered")]
    assert section.startswith("How well it predicts public data")
    assert f"AUC {done.metrics['auc']:.4f}" in section


def test_posterior_is_labelled_covered_and_complete(done, page):
    section = page.text[page.text.index("Posterior covered") :]
    for name, row in done.summary_table().iterrows():
        assert f"{name} {row['mean']:.3f} {row['sd']:.3f}" in section


def test_page_needs_no_other_file(page):
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    assert [source.partition(",")[0] for source in sources] == ["data:image/png;base64"] * 2  # curves and coefficients
    assert not any("href" in attributes for _, attributes in page.tags)
    assert "script" not in [tag for tag, _ in page.tags]


def test_picture_has_a_text_alternative(page):
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")


def test_settings_and_declarations_are_listed(done, page):
    assert "learning_rate" in page.text
    assert str(done.guarantee.noise_multiplier) in page.text
    for line in done.data["declarations"]:
        assert line in page.text


def test_private_evaluation_records_leave_no_metrics_and_no_curves(private_page):
    assert "No metrics: the evaluation records are private and were not used." in private_page.text
    assert [attributes["alt"] for tag, attributes in private_page.tags if tag == "img"] == ["logistic: the fitted model"]


def test_too_narrow_intervals_are_said_to_be(done, page):
    assert done.interval_warning
    assert "The intervals are too narrow." in page.text
    assert done.interval_warning in page.text


def test_intervals_that_noise_hardly_touches_come_without_a_warning(done):
    quiet = dataclasses.replace(done, guarantee=dataclasses.replace(done.guarantee, noise_multiplier=0.1))
    assert quiet.interval_warning == ""
    assert "too narrow" not in Page(quiet.report()).text


def test_metrics_of_private_records_are_marked_as_not_covered(done):
    page = Page(dataclasses.replace(done, metrics_label="outside the guarantee").report())
    assert "How well it predicts outside the guarantee" in page.text
    assert "are not covered by the guarantee" in page.text
    assert "declared public" not in page.text[: page.text.index("Posterior covered")].split("How well")[1]


def test_a_stopped_run_is_marked(done, cancelled):
    text = Page(cancelled.report()).text
    assert f"This run was stopped early after {cancelled.guarantee.steps_taken} of 300 steps" in text
    assert "stopped early" not in Page(done.report()).text


def test_a_failed_run_gives_its_reason(done):
    text = Page(dataclasses.replace(done, status="failed", message="too <bold>").report()).text
    assert "ended by a failure" in text
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
