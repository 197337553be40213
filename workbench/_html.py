"""HTML for notebooks, screens and objects that show themselves: in the colours of the page, with
all text escaped here.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Sequence
from html import escape

__all__ = [
    "BORDER",
    "INK",
    "QUIET",
    "badge",
    "box",
    "code",
    "escape",
    "heading",
    "note",
    "page",
    "paragraph",
    "quiet",
    "sentence",
    "style",
    "table",
]

# Outside a screen the second colour counts.
INK, QUIET = "var(--dpvi-ink, inherit)", "var(--dpvi-quiet, inherit)"
BORDER = "var(--dpvi-border, #8c959f)"


def paragraph(text: str, after: str = "") -> str:
    """A paragraph of a page. :param after: HTML at its end."""
    return f"<p>{escape(text)}{after}</p>"


def heading(text: str) -> str:
    """The title of a part of a page."""
    return f"<h2>{escape(text)}</h2>"


def sentence(text: str) -> str:
    """Plain text."""
    return f'<div style="color:{INK};line-height:1.4">{escape(text)}</div>'


def quiet(*texts: str) -> str:
    """Small print, with a line for each text."""
    return f'<div style="color:{QUIET};line-height:1.35">{"<br>".join(map(escape, texts))}</div>'


def note(first: str, text: str = "", after: str = "") -> str:
    """A line with a bold beginning. :param after: HTML at its end."""
    return (
        f'<div style="color:{INK};line-height:1.4"><b>{escape(first)}</b> '
        f"{escape(text)}{after}</div>"
    )


def badge(label: str) -> str:
    """The label "covered", "public data" or "outside the guarantee" in a frame."""
    outside = label == "outside the guarantee"
    # outside a screen in the colour of the text, because small letters need the contrast
    colour, sign = (
        ("var(--dpvi-alert, currentColor)", "⚠ ")
        if outside
        else ("var(--dpvi-accent, currentColor)", "")
    )
    return (
        f' <span style="border:1px solid {colour};border-radius:10px;padding:0 '
        f'.6em;color:{colour};font-size:.9em">'
        f"{sign}{escape(label)}</span>"
    )


def code(text: str) -> str:
    """A line of Python."""
    return f'<code style="background:transparent;color:inherit">{escape(text)}</code>'


class Html(str):
    """HTML in a place where text would be escaped."""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: bool = True,
    named: bool = False,
) -> str:
    """A table whose first column is aligned left, and the others right if they are ``numbers``.

    :param named: whether cells have the names of their columns, for narrow pages that show each row
        as a block.
    """
    sides = ["left", *["right" if numbers else "left"] * (len(columns) - 1)]
    names = [f' data-column="{escape(column)}"' if named else "" for column in columns]

    def line(cells: Sequence[str], tag: str) -> str:
        style = "padding:1px 10px 1px 0;vertical-align:top;background:transparent"
        return "".join(
            f"<{tag}{name if tag == 'td' else ''} style='text-align:{side};{style}'>"
            f"{cell if isinstance(cell, Html) else escape(cell)}</{tag}>"
            for side, name, cell in zip(sides, names, cells, strict=True)
        )

    body = "".join(f"<tr style='background:transparent'>{line(cells, 'td')}</tr>" for cells in rows)
    return (
        f"<table style='font-variant-numeric:tabular-nums;border-collapse:collapse;color:{INK}'>"
        f"<thead><tr>{line(columns, 'th')}</tr></thead><tbody>{body}</tbody></table>"
    )


def box(*items: str) -> str:
    """``items`` (HTML) beside a line."""
    style = (
        f"border-left:4px solid {BORDER};padding:.1em 1em;margin:.4em 0;max-width:72em;color:{INK}"
    )
    return f'<div style="{style}">{"".join(items)}</div>'


def style() -> str:
    """The style of whole pages, on screens and in print."""
    return importlib.resources.files("workbench").joinpath("_page.css").read_text("utf-8")


def page(title: str, *items: str) -> str:
    """A whole page, which loads nothing. :param items: HTML below the title."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
    )
    body = "\n".join([f"<h1>{escape(title)}</h1>", *items])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}<style>\n{style()}</style></head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )
