"""HTML of the screen: nothing unescaped, nothing unreadable."""

import base64

import pytest

from workbench.widgets import _html

HOSTILE = '<script>alert("x")</script>'


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == 21
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("background", ["#ffffff", "#f6f8fa", "#eef1f4"])
@pytest.mark.parametrize("colour", [_html.INK, _html.QUIET, _html.ALERT, _html.ACCENT])
def test_text_is_readable(colour, background):
    assert contrast(colour, background) >= 4.5


@pytest.mark.parametrize(
    "made",
    [
        _html.quiet(HOSTILE), _html.problem(HOSTILE), _html.heading(HOSTILE), _html.note(HOSTILE, HOSTILE),
        _html.badge(HOSTILE), _html.fold(HOSTILE, ""), _html.card(HOSTILE, [HOSTILE, HOSTILE], [HOSTILE]),
        _html.code_box(HOSTILE), _html.download(HOSTILE, HOSTILE, b"", "text/html"), _html.image(b"", HOSTILE),
        _html.sentence(HOSTILE), _html.bar([(HOSTILE, 1.0, "solid")]),
        _html.table([HOSTILE, "x"], [[HOSTILE, HOSTILE]], caption=HOSTILE),
    ],
)  # fmt: skip
def test_text_is_escaped(made):
    assert "<script" not in made
    assert '"x"' not in made
    assert "&lt;script&gt;" in made


def test_a_problem_is_told_by_more_than_its_colour():
    assert "⚠ wrong" in _html.problem("wrong")
    assert 'role="alert"' in _html.problem("wrong")
    assert _html.problem("") == ""
    assert "⚠ outside the guarantee" in _html.badge("outside the guarantee")
    assert "⚠" not in _html.badge("covered")


def test_a_bar_is_told_in_words_and_by_patterns():
    bar = _html.bar([("spent 40 %", 0.4, "solid"), ("reserved 10 %", 0.1, "striped"), ("left 50 %", 0.5, "empty")])
    assert "aria-label='spent 40 %, reserved 10 %, left 50 %'" in bar
    assert all(f"0 0 {width:.2f}%" in bar for width in (40, 10, 50))
    assert "repeating-linear-gradient" in bar
    assert bar.count("spent 40 %") == 2


def test_a_download_holds_the_file():
    link = _html.download("Download a.bin", "a.bin", b"\x00\x01", "application/x")
    assert 'download="a.bin"' in link
    assert base64.b64encode(b"\x00\x01").decode() in link


def test_a_table_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="zip"):
        _html.table(["a", "b"], [["1"]])
