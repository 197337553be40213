"""HTML that objects show themselves with in a notebook: in the page's own colours, light or dark, with all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["bold", "box", "code", "label", "paragraph", "quiet", "table"]


def paragraph(text: str) -> str:
    """Plain text."""
    return f'<div style="line-height:1.45">{escape(text)}</div>'


def bold(first: str, rest: str = "", after: str = "") -> str:
    """A line with a bold beginning. :param after: HTML at its end."""
    return f'<div style="line-height:1.45"><b>{escape(first)}</b> {escape(rest)}{after}</div>'


def quiet(text: str) -> str:
    """Small print."""
    return f'<div style="opacity:.75;line-height:1.4">{escape(text)}</div>'


def label(text: str) -> str:
    """The label "covered", "public data" or "outside the guarantee" in a frame."""
    sign = "⚠ " if text == "outside the guarantee" else ""
    return (
        ' <span style="border:1px solid currentColor;border-radius:10px;padding:0 .6em;font-size:.9em;white-space:nowrap">'
        f"{sign}{escape(text)}</span>"
    )


def code(text: str) -> str:
    """A line of Python."""
    return f'<code style="background:transparent;color:inherit">{escape(text)}</code>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is aligned left, and the others right."""

    def line(cells: Sequence[str], tag: str) -> str:
        style = "padding:1px 12px 1px 0;background:transparent;color:inherit"
        sides = ["left", *["right"] * (len(cells) - 1)]
        return "".join(
            f'<{tag} style="text-align:{side};{style}">{escape(cell)}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )

    body = "".join(f'<tr style="background:transparent">{line(cells, "td")}</tr>' for cells in rows)
    return (
        '<table style="border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0">'
        f'<thead><tr style="background:transparent">{line(columns, "th")}</tr></thead><tbody>{body}</tbody></table>'
    )


def box(*parts: str) -> str:
    """``parts`` (HTML) beside a line, in the colours of the page."""
    inner = "".join(parts)
    return (
        '<div style="color:inherit;background:transparent;border-left:4px solid #8c959f;padding:.1em 1em;margin:.4em 0;'
        f'max-width:72em">{inner}</div>'
    )
