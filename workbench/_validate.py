"""Checks of arguments. Every public entry point uses them, before any JAX tracing.

Each function returns the checked value in its canonical Python type, or raises ``ArgumentError``.
"""

from __future__ import annotations

import difflib
import errno
import math
import numbers
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench._limits import MAX_EPSILON

__all__ = [
    "ArgumentError",
    "choice",
    "composed",
    "epsilon",
    "flag",
    "function",
    "in_one_line",
    "integer",
    "kind_and_message",
    "label",
    "location",
    "nearest",
    "number",
    "path",
    "printable",
    "probability",
    "reason",
    "seed",
    "text",
    "unknown_name",
]


class ArgumentError(ValueError):
    """An argument that cannot be used. The message fits on one line and names the argument and its
    value.

    Programs decide by ``argument`` and ``code``, never by the words.

    >>> try:
    ...     wb.fit("logistic", "breast_cancer", epsilon=-1.0)
    ... except wb.ArgumentError as error:
    ...     print(error.argument, error.value)
    epsilon -1.0

    :param argument: its name.
    :param value: what was given.
    :param expectation: what is wrong, or what is expected.
    :param code: names the problem, where an argument has several that a caller tells apart.
    :param remedy: a sentence that says what to do in Python. The shell and the screens have their
        own for a ``code``.
    """

    def __init__(
        self, argument: str, value: Any, expectation: str, *, code: str = "", remedy: str = ""
    ) -> None:
        # errors are kept and logged, so they must not hold records, and neither must an array of
        # one object
        if getattr(value, "ndim", 0) or str(getattr(value, "dtype", "")) == "object":
            value = _Form(f"{type(value).__name__} of shape {tuple(value.shape)}")
        self.argument = argument
        self.value = value
        self.expectation = expectation
        self.code = code
        self.remedy = remedy
        super().__init__(self.worded())

    def __reduce__(self) -> tuple[Any, ...]:
        """Everything that the error holds, for ``pickle``: workers of a sweep send errors to the
        process that began it.
        """
        return _unpickled, (type(self), *self.args), {**vars(self), "value": _sendable(self.value)}

    def explained(self, remedies: Mapping[str, str] = MappingProxyType({})) -> str:
        """What is wrong and what to do.

        :param remedies: other words for what to do, by ``code``.
        """
        return f"{self.expectation} {remedies.get(self.code, self.remedy)}".rstrip()

    def worded(self, remedies: Mapping[str, str] = MappingProxyType({})) -> str:
        """The whole message.

        :param remedies: as for ``explained``.
        """
        return f"{self.argument}={_shown(self.value)}: {self.explained(remedies)}"


def _unpickled(kind: type[ArgumentError], *words: str) -> ArgumentError:
    """An error of ``kind`` without its attributes, which ``pickle`` restores: each subclass has
    arguments of its own.
    """
    return kind.__new__(kind, *words)


_PLAIN = (type(None), bool, int, float, str, bytes, type(Path()))


def _sendable(value: Any) -> Any:
    """``value`` if every process can read it, otherwise how a message shows it: a class may exist
    in one process alone.
    """
    entries = value if type(value) in (tuple, list) else (value,)
    return (
        value if all(type(entry) in (*_PLAIN, _Form) for entry in entries) else _Form(_shown(value))
    )


class _Form(str):
    """How a value is shown in a message, instead of the value."""

    def __repr__(self) -> str:
        return str(self)


_LONGEST = 200  # characters of a value in a message


def _shown(value: Any) -> str:
    """``repr(value)`` on one line, cut to ``_LONGEST`` characters."""
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))
    except (ValueError, RecursionError):  # an integer of thousands of digits; deeply nested lists
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def printable(line: str) -> str:
    """A line with control characters written out, because a terminal would obey those in the name
    of a data set.
    """
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in line
    )


def in_one_line(text: str) -> str:
    """``printable`` text on one line, with words of more than ``_LONGEST`` characters cut: names
    can be of any length.
    """
    words = (
        word if len(word) <= _LONGEST else f"{word[: _LONGEST - 3]}..." for word in text.split()
    )
    return printable(" ".join(words))


def kind_and_message(error: BaseException) -> str:
    """What an error of any kind says, with the name of its class, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _as_float(value: Any) -> float:
    """``value`` as a float; NaN if it is not a number, or too large for a float."""
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
    """A finite real number within the stated limits, as ``float``.

    >>> wb.models.checks.number("prior_scale", 5, above=0)
    5.0
    """
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


def epsilon(name: str, value: Any, *, above: float = 0.0, at_most: float = MAX_EPSILON) -> float:
    """An epsilon that may be asked for: the one rule for fits, sweeps, caps and calibration."""
    checked = number(name, value, above=above)
    if checked > at_most:
        raise ArgumentError(
            name,
            value,
            f"must be greater than {above:g} and at most {at_most:g}, because e^{at_most:g} as a "
            "bound promises nothing already.",
            code="epsilon too large",
            remedy="For public or made-up data, wb.fit(..., private=False) fits without noise.",
        )
    return checked


def probability(name: str, value: Any) -> float:
    """A number in (0, 1)."""
    return number(name, value, above=0, below=1)


def integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """A whole number of at least ``at_least`` (and at most ``at_most``), as ``int``; 2000.0 is
    accepted, 2000.5 is not.

    >>> wb.models.checks.integer("hidden", 64.0, at_least=1)
    64
    """
    limit = f"at least {at_least}" + (f" and at most {at_most}" if at_most is not None else "")
    expectation = f"must be a whole number of {limit}."
    as_float = _as_float(value)
    if not math.isfinite(as_float) or as_float != math.floor(as_float):
        raise ArgumentError(name, value, expectation)
    integral = value if isinstance(value, int) else int(as_float)
    if integral < at_least or (at_most is not None and integral > at_most):
        raise ArgumentError(name, value, expectation)
    return integral


def flag(name: str, value: Any) -> bool:
    """True or False, also NumPy's. Text is refused: "no", which a YAML plan may hold, would count
    as true.

    >>> wb.models.checks.flag("intercept", np.True_)
    True
    """
    if type(value).__name__ in ("bool", "bool_"):  # by name: this module does not import NumPy
        return bool(value)
    hint = " (in a file true or false, without quotes)" if isinstance(value, str) else ""
    raise ArgumentError(name, value, f"must be True or False{hint}.")


def text(
    name: str,
    value: Any,
    expectation: str = "must be text that is not empty.",
    *,
    refuse_yes_no: bool = False,
) -> str:
    """Text that is not blank. ``refuse_yes_no`` also refuses "no", "off" and the like, which were
    meant to switch it off.
    """
    is_answer = refuse_yes_no and isinstance(value, str) and value.strip().lower() in _ANSWERS
    if not isinstance(value, str) or not value.strip() or "\0" in value or is_answer:
        raise ArgumentError(name, value, expectation)
    return str(value)


_ANSWERS = ("yes", "no", "on", "off", "true", "false", "none", "null")


# Unicode's categories of letters that nobody sees: control characters, surrogates, and format
# characters such as the zero-width space
_INVISIBLE = ("Cc", "Cs", "Cf")


def composed(value: str) -> str:
    """Text in Unicode's composed form (NFC), with single spaces."""
    return " ".join(unicodedata.normalize("NFC", value).split())


def label(name: str, value: Any) -> str:
    """A name that looks like no other: in Unicode's composed form, with single spaces.

    >>> from workbench import _validate
    >>> _validate.label("name", "north  ward ")
    'north ward'
    """
    expectation = (
        "must be text that is not empty; it must not have control characters or invisible ones."
    )
    if any(unicodedata.category(letter) in _INVISIBLE for letter in text(name, value, expectation)):
        raise ArgumentError(name, value, expectation)
    return composed(value)


_LONGEST_REASON = 10_000  # characters


def reason(name: str, value: Any) -> str:
    """Text that says why something is done, for others to read. "yes" and "no" say nothing."""
    why = text(name, value, "must say why, for others to read.", refuse_yes_no=True)
    if not why.isascii() and why != why.encode(errors="ignore").decode():
        raise ArgumentError(name, value, "holds bytes that are no text in UTF-8.")
    if len(why) > _LONGEST_REASON:
        raise ArgumentError(name, value, f"must have at most {_LONGEST_REASON} characters.")
    is_readable = all(
        letter in "\n\t" or unicodedata.category(letter) not in _INVISIBLE for letter in why
    )
    if not is_readable or not any(letter.isalnum() for letter in why):
        raise ArgumentError(
            name, value, "must say why in words, without control or invisible characters."
        )
    return why


def path(name: str, value: Any, expectation: str = "must be the path of a file or folder.") -> Path:
    """A path that the operating system takes, with "~" expanded. Nothing needs to be there."""
    named = text(name, os.fspath(value) if isinstance(value, os.PathLike) else value, expectation)
    try:
        expanded = Path(named).expanduser()
        os.stat(expanded)
    except RuntimeError:  # the home folder of nobody
        raise ArgumentError(name, named, "begins with a user who has no folder here.") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise ArgumentError(name, named, f"cannot be a path ({error.strerror}).") from None
    except ValueError:  # letters that no file name of this system can have
        raise ArgumentError(name, named, "cannot be the name of a file here.") from None
    return expanded


def location(
    name: str, value: Any, expectation: str = "must be the path of a file or folder."
) -> Path:
    """A path where True, False or None may stand too. For a file called "no", give ``Path("no")``
    or "./no".
    """
    if isinstance(value, str):
        text(name, value, expectation, refuse_yes_no=True)
    return path(name, value, expectation)


def function(name: str, value: Any) -> Any:
    """A callable, unchanged."""
    if not callable(value):
        raise ArgumentError(name, value, "must be a function.")
    return value


def seed(name: str, value: Any) -> int:
    """A whole number in 0 .. 2**63 - 1, the range that ledgers and stores can hold."""
    return integer(name, value, at_least=0, at_most=2**63 - 1)


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of ``options``. The error lists them and suggests the nearest.

    >>> wb.models.checks.choice("prior", "laplace", ["normal", "laplace"])
    'laplace'
    """
    names = list(options)
    if not isinstance(value, str) or value not in names:  # an array would compare entry by entry
        raise unknown_name(name, value, names)
    return str(value)


def nearest(value: Any, names: Iterable[str]) -> list[str]:
    """The known names that look most like ``value``, best first; an empty list if none is close."""
    return difflib.get_close_matches(str(value), list(names), n=3, cutoff=0.5)


def unknown_name(argument: str, value: Any, options: Iterable[str]) -> ArgumentError:
    """The error for a name that is not in ``options``."""
    names = sorted(options)
    close = nearest(value, names)
    hint = f"did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
    return ArgumentError(argument, value, f"unknown name; {hint}known: {', '.join(names)}.")
