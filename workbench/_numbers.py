"""Numbers as people read them, the same in figures, tables, reports and on screens."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from decimal import Decimal

__all__ = [
    "MINUS",
    "NARROW_SPACE",
    "brief",
    "count",
    "decimals",
    "duration",
    "fixed",
    "places_for",
    "shown",
    "ticks",
    "upper",
]

MINUS, _DASH, _INFINITE = "\N{MINUS SIGN}", "\N{EN DASH}", "\N{INFINITY}"
# between groups of digits, where no line is broken; fields accept it when it is typed back
NARROW_SPACE = "\u202f"
_MOST_DECIMALS = 6
_LARGE, _SMALL = 1e6, 1e-6  # beyond, a power of ten is shown


def decimals(size: float, digits: int = 2) -> int:
    """The number of decimals, 0 to 6, that shows ``digits`` significant digits of a number of this
    size.
    """
    if not (size > 0 and math.isfinite(size)):
        return 3
    return min(_MOST_DECIMALS, max(0, digits - 1 - math.floor(math.log10(size))))


def places_for(spreads: Sequence[float]) -> list[int]:
    """The number of decimals for each row of a table with a spread, such as a standard deviation,
    in each row.

    All are the same, or more where a small spread needs them.
    """
    usual = decimals(statistics.median(spreads)) if spreads else 0
    return [max(usual, decimals(spread, 1)) if spread > 0 else usual for spread in spreads]


def fixed(value: float, digits: int, *, up: bool = False) -> str:
    """``value`` with ``digits`` decimals, and no minus sign before zero.

    :param up: never below ``value``, as for bounds.
    """
    if not math.isfinite(value):
        return _not_finite(value)
    text = f"{value:.{digits}f}"
    if up and float(text) < value:
        text = str(Decimal(text) + Decimal(1).scaleb(-digits))
    return _with_minus(text.removeprefix("-") if float(text) == 0 else text)


def shown(value: float, spread: float | None = None, *, up: bool = False) -> str:
    """``value`` with the digits that matter: three significant ones, or those down to the second
    one of ``spread``.

    :param spread: of the numbers beside it, such as a standard deviation or the distance of ticks,
        so that all of them have the same decimals.
    :param up: never below ``value``, as for bounds.
    """
    if not math.isfinite(value):
        return _not_finite(value)
    if value == 0 and spread is None:
        return "0"
    size = abs(value) if spread is None else spread
    if value and (abs(value) >= _LARGE or size < _SMALL):
        return _significant(value, 3, up)
    return fixed(value, decimals(size, 3 if spread is None else 2), up=up)


def ticks(values: Sequence[float]) -> list[str]:
    """Evenly spaced ``values`` of an axis, with the fewest decimals that show all of them: 0 and 5,
    not 0.0 and 5.0.

    >>> from workbench import _numbers
    >>> _numbers.ticks([0.98, 0.99, 1.0])
    ['0.98', '0.99', '1.00']
    """
    spread = abs(values[1] - values[0]) if len(values) > 1 else abs(values[0])
    if not spread >= _SMALL or max(map(abs, values)) >= _LARGE:
        return [shown(value, spread or None) for value in values]
    fits = (
        digits
        for digits in range(_MOST_DECIMALS)
        if all(abs(round(v, digits) - v) < 1e-6 * spread for v in values)
    )
    digits = next(fits, _MOST_DECIMALS)
    return [fixed(value, digits) for value in values]


def upper(bound: float, digits: int = 6) -> str:
    """An upper bound such as epsilon: at most ``digits`` significant digits, never below ``bound``.
    Python reads it back.
    """
    return _significant(bound, digits, up=True)


def count(number: float, space: str = NARROW_SPACE) -> str:
    """A whole number with its digits in groups of three: 800, 12 000."""
    return f"{number:,.0f}".replace(",", space).replace("-", MINUS)


def brief(number: float) -> str:
    """A number of steps where there is little room: 800, 12k, 1.6M."""
    for size, sign in ((1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if sign == 'k' else size):.4g}{sign}"
    return f"{number:.0f}"


def duration(seconds: float, *, tenths: bool = True) -> str:
    """A time such as "under 0.1 s", "0.3 s", "12 s", "2 min 05 s" or "1 h 03 min".

    :param tenths: whether times below ten seconds have a decimal.
    """
    if tenths and seconds < 0.05:
        return "under 0.1 s"
    if tenths and seconds < 9.95:
        return f"{seconds:.1f} s"
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"


def _significant(value: float, digits: int, up: bool) -> str:
    if not math.isfinite(value):
        return _not_finite(value)
    text = f"{value:.{digits}g}"
    if up and float(text) < value:
        nearest = Decimal(text)
        text = f"{float(nearest + Decimal(1).scaleb(nearest.adjusted() + 1 - digits)):.{digits}g}"
    return _with_minus(text)


def _not_finite(value: float) -> str:
    return _DASH if math.isnan(value) else _INFINITE if value > 0 else MINUS + _INFINITE


def _with_minus(text: str) -> str:
    """With a true minus sign, which is as wide as a digit; an exponent keeps its hyphen, so that it
    can be typed back.
    """
    return MINUS + text[1:] if text.startswith("-") else text
