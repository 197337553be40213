"""HTML for the screens: that of ``workbench._html`` and what only screens show. All text is
escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from workbench._html import BORDER, INK, QUIET, Html, badge, escape, note, quiet, sentence, table

__all__ = [
    "ACCENT",
    "ALERT",
    "INK",
    "QUIET",
    "STYLE_SHEET",
    "Html",
    "badge",
    "bar",
    "card",
    "cards",
    "code_box",
    "download",
    "drop_zone",
    "escape",
    "fact",
    "fold",
    "heading",
    "help_mark",
    "image",
    "note",
    "paragraphs",
    "problem",
    "quiet",
    "scrolls",
    "sentence",
    "status",
    "table",
]

# The second colour counts in output that stays in a notebook: readable on light and on dark.
ALERT, ACCENT = "var(--dpvi-alert, #d1242f)", "var(--dpvi-accent, #0969da)"
_GROUND = "var(--dpvi-ground, transparent)"

STYLE_SHEET = (
    f"<style>{resources.files(__package__).joinpath('screen.css').read_text('utf-8')}</style>"
)

_CARD = (
    f"border:1px solid {BORDER};border-left:6px solid {ACCENT};border-radius:4px;padding:.4em "
    f"1em;margin:.6em 0;line-height:1.45;max-width:72em;color:{INK}"
)
_FILLS = {
    "solid": ACCENT,
    "striped": f"repeating-linear-gradient(135deg,{ACCENT} 0 3px,{_GROUND} 3px 7px)",
    "empty": _GROUND,
}
_COPY = (
    "navigator.clipboard.writeText(this.parentNode.querySelector('pre').textContent);"
    "this.textContent='Copied';setTimeout(()=>this.textContent='Copy',1500)"
)
# ipywidgets opens the dialog of an input that is on no page: the dropped file takes its place
_DROP = (
    "event.preventDefault();const files=event.dataTransfer.files,of=HTMLInputElement.prototype,"
    "open=of.click;of.click=function(){this.files=files;this.dispatchEvent(new Event('change'))};"
    "try{this.closest('.dpvi-upload').querySelector('button').click()}finally{of.click=open}"
)


def drop_zone(text: str) -> str:
    """A place for a file that is dropped, beside the button that uploads one."""
    return (
        f'<div class="dpvi-drop" ondragover="event.preventDefault()" ondrop="{_DROP}">'
        f"{escape(text)}</div>"
    )


def problem(text: str) -> str:
    """A problem and its remedy, marked by a sign as well as a colour; "" for an empty text."""
    return (
        f'<div role="alert" style="color:{ALERT};line-height:1.35">⚠ {escape(text)}</div>'
        if text
        else ""
    )


def status(line: str, done: float, end: str = "") -> str:
    """What a run does now (HTML) over a bar of progress.

    :param done: of the work that is done, from 0 to 1. :param end: "cancelled" or "failed", which
        change the bar's colour.
    """
    return f'<div role="status">{line}</div>{_bar(done, end)}'


def _bar(share: float, kind: str) -> str:
    return (
        f'<div class="dpvi-progress"><i class="{kind}" style="width:{100 * share:.4g}%"></i></div>'
    )


def meter(title: str, value: str, share: float) -> str:
    """A value (HTML) over a bar that is filled by ``share`` of its length."""
    words = f'<div class="dpvi-meter"><b>{escape(title)}</b><b>{escape(value)}</b></div>'
    return words + _bar(min(share, 1.0), "spent")


def paragraphs(told: Mapping[str, str]) -> str:
    """A paragraph for each text, after its title in bold."""
    return "".join(
        f"<p><b>{escape(title)}</b> {escape(text)}</p>" for title, text in told.items() if text
    )


def fact(title: str, said: str, line: str = "") -> str:
    """A fact in bold under a small title, and a quiet line about it."""
    return (
        f'<div class="dpvi-fact"><span>{escape(title)}</span><b>{escape(said)}</b>'
        f"<p>{escape(line)}</p></div>"
    )


def heading(text: str) -> str:
    """The title of a section."""
    return f"<h3>{escape(text)}</h3>"


def help_mark(text: str) -> str:
    """A question mark that shows ``text`` while the mouse is over it or it has the focus; "" for an
    empty text.
    """
    if not text:
        return ""
    return (
        f'<span class="dpvi-help" tabindex="0">?<span role="tooltip">{escape(text)}</span></span>'
    )


def fold(summary: str, inner: str, *, is_open: bool = False) -> str:
    """``inner`` (HTML) under a line that shows and hides it."""
    tag = "details open" if is_open else "details"
    return f"<{tag}><summary>{escape(summary)}</summary>{inner}</details>"


def bar(segments: Sequence[tuple[str, float, str]]) -> str:
    """A bar of shares that add up to 1, with their labels below. Shares differ in pattern, not only
    in colour.

    :param segments: (label, share, "solid", "striped" or "empty") for each share.
    """

    def piece(fraction: float, fill: str) -> str:
        return f"<span style='flex:0 0 {100 * fraction:.2f}%;background:{_FILLS[fill]}'></span>"

    def swatch(fill: str) -> str:
        box = (
            "display:inline-block;width:.8em;height:.8em;border:1px solid "
            f"{INK};background:{_FILLS[fill]}"
        )
        return f"<span style='{box}'></span>"

    labels = "".join(
        f"<span style='margin-right:1.4em;white-space:nowrap'>{swatch(fill)} {escape(label)}</span>"
        for label, _, fill in segments
    )
    description = escape(", ".join(label for label, _, _ in segments))
    return (
        f"<div role='img' aria-label='{description}' style='display:flex;height:16px;border:1px "
        f"solid {INK};max-width:46em'>"
        f"{''.join(piece(fraction, fill) for _, fraction, fill in segments)}</div><div "
        f"style='color:{INK};line-height:1.6'>{labels}</div>"
    )


def card(title: str, paragraphs: Sequence[str], cautions: Iterable[str] = ()) -> str:
    """A framed text whose first paragraph is bold."""
    first, *details = paragraphs
    body = "".join(f"<p style='margin:.4em 0'>{escape(text)}</p>" for text in details)
    return (
        f'<div style="{_CARD}"><b>{escape(title)}</b>'
        f'<p style="margin:.4em 0"><b>{escape(first)}</b></p>'
        f"{body}{''.join(map(problem, cautions))}</div>"
    )


def cards(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """A table of words, or of ``numbers``. Where there is no room for its columns, its rows become
    blocks.
    """
    inner = table(columns, rows, numbers=numbers, named=True)
    style = "overflow:auto;max-height:360px;width:fit-content;max-width:100%"
    return scrolls(inner, "table", style, "dpvi-cards")


def scrolls(inner: str, label: str, style: str = "", kind: str = "") -> str:
    """``inner`` (HTML) with scrollbars of its own, which keyboards reach.

    :param label: what it is, for screen readers. :param kind: a further class.
    """
    return (
        f'<div class="dpvi-scrolls {kind}" tabindex="0" role="region" aria-label="{escape(label)}" '
        f'style="{style}">{inner}</div>'
    )


def code_box(text: str) -> str:
    """Code with a button that copies it."""
    return (
        f'<div><button type="button" class="jupyter-button" onclick="{_COPY}" '
        'style="display:block;margin-left:auto">Copy'
        "</button>"
        "<pre "
        'style="user-select:all;white-space:pre-wrap;word-break:normal;overflow-wrap:break-word;padding:.6em;margin:0;'
        f'background:var(--dpvi-soft, transparent);color:{INK}">'
        f"{escape(text)}</pre></div>"
    )


def download(label: str, name: str, content: bytes, kind: str) -> str:
    """A link that downloads ``content`` as the file ``name``."""
    encoded = base64.b64encode(content).decode()
    return (
        f'<a download="{escape(name)}" href="data:{kind};base64,{encoded}" '
        f'style="color:{ACCENT}">{escape(label)}</a>'
    )


def image(
    content: bytes, description: str, width: int | None = None, *, is_drawn: bool | None = None
) -> str:
    """A picture (SVG or PNG) with a description for screen readers.

    :param is_drawn: whether it is a figure on a transparent ground, without images of records;
        None: if it is such an SVG.
    """
    size = "" if width is None else f' width="{width}"'
    kind = "svg+xml" if content.startswith(b"<") else "png"
    # on a dark page figures are inverted, but images of records keep their meaning only on white
    if is_drawn is None:
        is_drawn = kind == "svg+xml" and b"<image" not in content
    style = "dpvi-figure" if is_drawn else "dpvi-paper"
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return (
        f'<img class="{style}" alt="{escape(description)}"{size} src="{source}" '
        'style="max-width:100%">'
    )
