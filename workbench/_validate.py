"""Keyword validators: every public entry point checks its arguments here, before any JAX tracing.

Each function returns the checked value in its canonical Python type and raises ``ArgumentError`` with one line that
names the argument and shows its value.
"""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["ArgumentError", "choice", "integer", "nearest", "number", "probability", "unknown_name"]


class ArgumentError(ValueError):
    """An argument that cannot be used; ``argument`` is its name and the message fits on one line."""

    def __init__(self, argument: str, value: Any, expectation: str) -> None:
        if getattr(value, "ndim", 0):  # an error is kept and logged: it must not take records with it
            value = _Form(f"{type(value).__name__} of shape {tuple(value.shape)}")
        self.argument = argument
        self.value = value
        self.expectation = expectation
        super().__init__(f"{argument}={_shown(value)}: {expectation}")


class _Form(str):
    """What is shown of an array or a table: its type and shape."""

    def __repr__(self) -> str:
        return str(self)


_LONGEST = 200  # characters of a value in a message


def _shown(value: Any) -> str:
    """``repr(value)`` on one line and not too long."""
    text = re.sub(r"\s*\n\s*", " ", repr(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _as_float(value: Any) -> float:
    """``value`` as a float; NaN where it is no number or too large for one."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """A finite real number within the stated limits, as ``float``."""
    limits = []
    if above is not None:
        limits.append(f"greater than {above:g}")
    if at_least is not None:
        limits.append(f"at least {at_least:g}")
    if below is not None:
        limits.append(f"less than {below:g}")
    if at_most is not None:
        limits.append(f"at most {at_most:g}")
    expectation = " ".join(["must be a finite number", " and ".join(limits)]).strip() + "."
    result = _as_float(value)
    if not math.isfinite(result):
        raise ArgumentError(name, value, expectation)
    inside = (
        (above is None or result > above)
        and (at_least is None or result >= at_least)
        and (below is None or result < below)
        and (at_most is None or result <= at_most)
    )
    if not inside:
        raise ArgumentError(name, value, expectation)
    return result


def probability(name: str, value: Any) -> float:
    """A number in (0, 1)."""
    return number(name, value, above=0, below=1)


def integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """A whole number of at least ``at_least`` (and at most ``at_most``), as ``int``; 2000.0 is accepted, 2000.5 is not."""
    limit = f"at least {at_least}" + (f" and at most {at_most}" if at_most is not None else "")
    expectation = f"must be a whole number of {limit}."
    as_float = _as_float(value)
    if not math.isfinite(as_float) or as_float != math.floor(as_float):
        raise ArgumentError(name, value, expectation)
    whole = value if isinstance(value, int) else int(as_float)
    if whole < at_least or (at_most is not None and whole > at_most):
        raise ArgumentError(name, value, expectation)
    return whole


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of ``options``; the error lists them and names the nearest."""
    known = list(options)
    if not isinstance(value, str) or value not in known:  # an array would compare entry by entry
        raise unknown_name(name, value, known)
    return str(value)


def nearest(value: Any, known: Iterable[str]) -> list[str]:
    """The known names that look most like ``value``, best first (none where nothing is close)."""
    return difflib.get_close_matches(str(value), list(known), n=3, cutoff=0.5)


def unknown_name(argument: str, value: Any, known: Iterable[str]) -> ArgumentError:
    """The error for a name that is not in ``known``."""
    names = sorted(known)
    close = nearest(value, names)
    hint = f"did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
    return ArgumentError(argument, value, f"unknown name; {hint}known: {', '.join(names)}.")
