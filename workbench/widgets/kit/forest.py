"""Estimates with intervals as HTML: one row each, in the page's theme, sharp at any size.

It is a table, so that its values can be read by keyboard and by screen readers; style alone draws
the intervals and changes the units.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from workbench import _numbers
from workbench.widgets.kit.chart import round_ticks

__all__ = ["Estimate", "forest"]

_MOST_ROWS = 200
_MARGIN = 0.06  # of the axis beyond the outermost value
_NUMBERS = itertools.count()  # radio buttons of one name exclude each other in the whole page


@dataclass(frozen=True)
class Estimate:
    """One row.

    :param name: of the quantity. :param mean: on the common axis; None before there is one.
    :param interval: (low, high) on the common axis; None while the estimate forms.
    :param is_clear: whether it differs from zero, which fills its mark.
    :param texts: the numbers in words, in each of the units.
    :param words: shown while the mouse is over the row.
    """

    name: str
    mean: float | None = None
    interval: tuple[float, float] | None = None
    is_clear: bool = False
    texts: tuple[str, ...] = ()
    words: str = ""


def forest(
    title: str,
    estimates: Sequence[Estimate],
    *,
    note: str = "",
    units: Sequence[str] = (),
    axis: str = "",
    extent: float = 0.0,
) -> str:
    """``estimates`` one below the other around a line at zero.

    :param title: what they are of. :param note: small print beside it.
    :param units: names of the units of ``Estimate.texts``, which radio buttons choose.
    :param axis: the unit of the common axis. :param extent: the axis reaches at least this far on
        both sides of zero.
    """
    shown = estimates[:_MOST_ROWS]
    ends = [
        abs(value)
        for estimate in shown
        for value in (estimate.mean, *(estimate.interval or ()))
        if value is not None and math.isfinite(value)
    ]
    reach = max([extent, *ends]) * (1 + _MARGIN) or 1.0
    rows = "".join(_row(estimate, reach) for estimate in shown)
    if len(estimates) > len(shown):
        rows += (
            f'<tr><th scope="row" colspan="3">and {len(estimates) - len(shown)} more, which '
            "Posterior lists</th></tr>"
        )
    label = escape(title, quote=True)
    heads = '<th scope="col">name</th><th scope="col">interval</th><th scope="col">value</th>'
    return (
        f'<div class="dpvi-forest"><div class="title"><b>{escape(title)}</b>'
        f"<span>{escape(note)}</span>{_choice(units)}</div>"
        f'<div class="rows dpvi-scrolls" tabindex="0" role="region" aria-label="{label}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{_axis(reach, axis) if ends else ''}</div>"
    )


def _choice(units: Sequence[str]) -> str:
    if len(units) < 2:
        return ""
    group = f"dpvi-units-{next(_NUMBERS)}"
    buttons = "".join(
        f'<label><input type="radio" name="{group}" value="{index}"'
        f"{' checked' if index == 0 else ''}> {escape(unit)}</label>"
        for index, unit in enumerate(units)
    )
    return f'<span class="units" role="radiogroup" aria-label="units">{buttons}</span>'


def _row(estimate: Estimate, reach: float) -> str:
    def at(value: float) -> float:
        return 50 + 50 * value / reach

    drawn = ""
    if estimate.interval is not None and all(map(math.isfinite, estimate.interval)):
        low, high = map(at, estimate.interval)
        drawn = f'<i style="left:{low:.4g}%;width:{high - low:.4g}%"></i>'
    if estimate.mean is not None and math.isfinite(estimate.mean):
        kind = "clear" if estimate.is_clear else "forms" if estimate.interval is None else ""
        drawn += f'<b class="{kind}" style="left:{at(estimate.mean):.4g}%"></b>'
    texts = "".join(
        f'<span class="unit{index}">{escape(text)}</span>'
        for index, text in enumerate(estimate.texts)
    )
    told = f' title="{escape(estimate.words, quote=True)}"' if estimate.words else ""
    return (
        f'<tr{told}><th scope="row">{escape(estimate.name)}</th><td class="bar">{drawn}</td>'
        f"<td>{texts}</td></tr>"
    )


def _axis(reach: float, axis: str) -> str:
    values = round_ticks(-reach, reach, 4)
    labels = "".join(
        f'<span style="left:{50 + 50 * value / reach:.4g}%">{text}</span>'
        for value, text in zip(values, _numbers.ticks(values), strict=True)
    )
    return f'<div class="x"><em>{escape(axis)}</em><div>{labels}</div></div>'
