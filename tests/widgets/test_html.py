"""HTML of the screen: nothing unescaped, nothing unreadable."""

import base64
import re

import pytest

from workbench.widgets.kit import markup

HOSTILE = '<script>alert("x")</script>'


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == 21
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


LIGHT, DARK = (
    dict(re.findall(r"--dpvi-(\w+): (#\w{6});", block))
    for block in re.findall(r"dpvi-kept\)? \{(.*?)\}", markup.STYLE_SHEET, re.S)[:2]
)
# of JupyterLab's themes
GROUNDS = {"light": ("#ffffff", "#f6f8fa", "#eeeeee"), "dark": ("#111111", "#212121")}


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_text_is_readable(theme, colours):
    assert set(colours) == {"quiet", "accent", "alert", "second", "third", "edge"}
    for ground in GROUNDS[theme]:
        of_text = {name: contrast(colour, ground) for name, colour in colours.items()}
        # edges of controls are no text: WCAG 1.4.11
        assert of_text.pop("edge") >= 3
        assert {name: ratio for name, ratio in of_text.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("colour", [markup.ALERT, markup.ACCENT])
def test_text_outside_a_screen_is_readable_on_light_and_on_dark(colour):
    fallback = re.search(r"#\w{6}", colour).group()
    assert min(contrast(fallback, "#ffffff"), contrast(fallback, "#111111")) >= 3


@pytest.mark.parametrize(
    "made",
    [
        markup.quiet(HOSTILE),
        markup.problem(HOSTILE),
        markup.heading(HOSTILE),
        markup.note(HOSTILE, HOSTILE),
        markup.badge(HOSTILE),
        markup.fold(HOSTILE, ""),
        markup.card(HOSTILE, [HOSTILE, HOSTILE], [HOSTILE]),
        markup.code_box(HOSTILE),
        markup.download(HOSTILE, HOSTILE, b"", "text/html"),
        markup.image(b"", HOSTILE),
        markup.sentence(HOSTILE),
        markup.help_mark(HOSTILE),
        markup.bar([(HOSTILE, 1.0, "solid")]),
        markup.table([HOSTILE, "x"], [[HOSTILE, HOSTILE]]),
    ],
)
def test_text_is_escaped(made):
    assert "<script" not in made
    assert '"x"' not in made
    assert "&lt;script&gt;" in made


def test_a_problem_is_told_by_more_than_its_colour():
    assert "⚠ wrong" in markup.problem("wrong")
    assert 'role="alert"' in markup.problem("wrong")
    assert markup.problem("") == ""
    assert "⚠ outside the guarantee" in markup.badge("outside the guarantee")
    assert "⚠" not in markup.badge("covered")


def test_a_bar_is_told_in_words_and_by_patterns():
    bar = markup.bar(
        [
            ("spent 40 %", 0.4, "solid"),
            ("reserved 10 %", 0.1, "striped"),
            ("left 50 %", 0.5, "empty"),
        ]
    )
    assert "aria-label='spent 40 %, reserved 10 %, left 50 %'" in bar
    assert all(f"0 0 {width:.2f}%" in bar for width in (40, 10, 50))
    assert "repeating-linear-gradient" in bar
    assert bar.count("spent 40 %") == 2


def test_a_download_holds_the_file():
    link = markup.download("Download a.bin", "a.bin", b"\x00\x01", "application/x")
    assert 'download="a.bin"' in link
    assert base64.b64encode(b"\x00\x01").decode() in link


def test_a_table_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="zip"):
        markup.table(["a", "b"], [["1"]])


def test_rows_of_cards_name_their_columns():
    made = markup.cards(["fit", "a < b"], [["1", "x"], ["2", "y"]])
    assert re.findall(r'<td data-column="([^"]*)"', made) == ["fit", "a &lt; b"] * 2
    assert "data-column" not in markup.table(["fit"], [["1"]])
