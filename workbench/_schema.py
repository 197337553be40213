"""Forms that values read from JSON must have. What does not have its form is named, as in
``guarantee.epsilon``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

__all__ = [
    "Form",
    "FormError",
    "anything",
    "flag",
    "listed",
    "mapped",
    "number",
    "optional",
    "record",
    "text",
    "whole",
]

Form = Callable[[str, Any], None]  # (field, value); raises ``FormError``


class FormError(ValueError):
    """A field without its form. The value is not quoted: it may be long, or of private records.

    :param field: its name, with those of what it is in. :param expectation: what it must be.
    """

    def __init__(self, field: str, expectation: str) -> None:
        self.field, self.expectation = field, expectation
        super().__init__(f"{field} {expectation}")


def number(
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> Form:
    """A finite number within the limits."""
    limits = {"greater than": above, "at least": at_least, "at most": at_most, "less than": below}
    words = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None)

    def check(field: str, value: Any) -> None:
        is_number = type(value) is float or (type(value) is int and abs(value) < 2**1023)
        if not is_number or not math.isfinite(value):
            raise FormError(field, f"must be a finite number {words}".rstrip() + ".")
        too_low = (above is not None and value <= above) or (
            at_least is not None and value < at_least
        )
        if (
            too_low
            or (at_most is not None and value > at_most)
            or (below is not None and value >= below)
        ):
            raise FormError(field, f"must be a number {words}.")

    return check


def whole(at_least: int = 0, at_most: int = 2**63 - 1) -> Form:
    """A whole number, written without a point."""

    def check(field: str, value: Any) -> None:
        if type(value) is not int or not at_least <= value <= at_most:
            raise FormError(
                field, f"must be a whole number of at least {at_least} and at most {at_most}."
            )

    return check


def text(among: Collection[str] | None = None, empty: bool = True) -> Form:
    """Text. :param among: what it may be; None for any. :param empty: whether it may be empty."""

    def check(field: str, value: Any) -> None:
        if type(value) is not str or not (empty or value):
            raise FormError(field, "must be text." if empty else "must be text that is not empty.")
        if among is not None and value not in among:
            raise FormError(field, f"must be one of {', '.join(sorted(among))}.")

    return check


def flag(field: str, value: Any) -> None:
    """True or false."""
    if type(value) is not bool:
        raise FormError(field, "must be true or false.")


def anything(field: str, value: Any) -> None:
    """Any value."""


def optional(form: Form) -> Form:
    """Null, or a value of ``form``."""
    return lambda field, value: None if value is None else form(field, value)


def listed(form: Form, length: int | None = None) -> Form:
    """A list of values of one form. :param length: how many there must be."""

    def check(field: str, value: Any) -> None:
        if type(value) is not list or length not in (None, len(value)):
            raise FormError(field, "must be a list" + ("." if length is None else f" of {length}."))
        for number, entry in enumerate(value):
            form(f"{field}[{number}]", entry)

    return check


def mapped(form: Form) -> Form:
    """An object with any names and values of one form."""

    def check(field: str, value: Any) -> None:
        if type(value) is not dict:
            raise FormError(field, "must be an object.")
        for name, entry in value.items():
            form(_within(field, name), entry)

    return check


def record(forms: Mapping[str, Form], more: Form | None = None) -> Form:
    """An object with these names. :param more: of values with other names, which it may have; None
    for none.
    """

    def check(field: str, value: Any) -> None:
        if type(value) is not dict:
            raise FormError(field or "the whole", "must be an object.")
        for name in forms:
            if name not in value:
                raise FormError(_within(field, name), "is missing.")
        for name, entry in value.items():
            if name not in forms and more is None:
                raise FormError(_within(field, name), "is not known.")
            (forms.get(name) or more or anything)(_within(field, name), entry)

    return check


def _within(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
