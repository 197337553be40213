"""The response of a regression: its public declaration, and the encoding of private values that
follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing

__all__ = ["LARGEST", "MOST", "Response"]

LARGEST = (
    1e12  # a declared bound: a residual's square fits into float32 even where a mean is far off
)
_COARSEST = (
    1e-3  # of half the range to the largest bound: float32 still has four digits of the range
)
_ROUNDED = 1e-6  # of a declared range: what is left of a bound after float32 and back
MOST = 2**24  # a count: float32 has all whole numbers up to here


@dataclass(frozen=True)
class Response:
    """Public facts about a response, all of them declared.

    >>> from workbench.formula.families import Response
    >>> Response("visits", 0, 40, extras={"exposure": (0.1, 5)}).extras
    {'exposure': (0.1, 5.0)}

    :param name: of the column.
    :param low: lower bound, in the response's own units. Smaller values are cut to it. None for a
        response of levels.
    :param high: upper bound.
    :param levels: of a response of levels, in order; for two, the second is the one whose
        probability is modelled.
    :param extras: ``{"trials" or "exposure": (low, high)}``, the bounds of further columns that the
        family takes.
    :param through_origin: True where link(mean) is 0 if all columns are, as in a formula without a
        constant.
    :raises ArgumentError: naming ``response``, unless bounds are finite with low < high, and levels
        are different texts.
    """

    name: str
    low: float | None = None
    high: float | None = None
    levels: tuple[str, ...] = ()
    extras: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    through_origin: bool = False

    def __post_init__(self) -> None:
        _validate.text("response", self.name)
        if (self.low is None) != (self.high is None):
            raise _validate.ArgumentError("response", self.name, "must have both bounds or none.")
        if self.low is not None:
            low, high = _bounds(self.name, (self.low, self.high))
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)
        levels = tuple(preprocessing.text_of(level) for level in self.levels)
        if preprocessing.repeated(levels):
            raise _validate.ArgumentError(
                "response", self.name, "must have each level once (levels are compared as text)."
            )
        object.__setattr__(self, "levels", levels)
        extras = {str(role): _bounds(str(role), pair) for role, pair in self.extras.items()}
        object.__setattr__(self, "extras", extras)
        low, high = extras.get("exposure", (0.0, 1.0))
        if 0 < low < _ROUNDED * high:
            raise _validate.ArgumentError(
                "exposure",
                (low, high),
                f"has bounds too far apart: beside {high:g}, exposures near {low:g} are rounded "
                "to others. Let the upper bound be at most a million times the lower one.",
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """(low, high). :raises ArgumentError: naming ``response``, where they are not declared."""
        if self.low is None or self.high is None:
            raise _validate.ArgumentError(
                "response",
                self.name,
                "must have declared bounds for this family.",
                code=preprocessing.DECLARATION,
                remedy="Declare them, as in schema={...: (0, 120)}.",
            )
        return self.low, self.high

    def require_numbers(self) -> None:
        """:raises ArgumentError: naming ``response``, unless bounds are declared that float32
        resolves.
        """
        low, high = self.bounds
        largest = max(-low, high)
        if largest > LARGEST or high - low < 2 * _COARSEST * largest:
            raise _validate.ArgumentError(
                "response",
                (low, high),
                f"{self.name} needs bounds within {-LARGEST:g} .. {LARGEST:g} that are not far "
                "from 0 for their width; subtract a public number, or divide by one.",
            )

    def require_positive(self) -> None:
        """:raises ArgumentError: naming ``response``, unless the lower bound is above 0."""
        low, _ = self.bounds
        if low <= 0:
            raise _validate.ArgumentError(
                "response",
                self.bounds,
                f"{self.name} must have a lower bound above 0 for this family, such as 0.1: "
                "smaller values are cut to it.",
            )

    def require_counts(self) -> None:
        """:raises ArgumentError: naming ``response``, unless the bounds are those of counts, with a
        whole number above 0.
        """
        _counts(self.name, self.bounds)

    def require_levels(self, at_least: int, at_most: int) -> None:
        """:raises ArgumentError: naming ``response``, unless that many levels are declared."""
        if not at_least <= len(self.levels) <= at_most:
            wanted = f"{at_least}" if at_least == at_most else f"{at_least} to {at_most}"
            raise _validate.ArgumentError(
                "response",
                self.name,
                f"must be declared with {wanted} levels for this family; it has "
                f"{len(self.levels)}.",
            )

    def require_extra(self, role: str) -> None:
        """Bounds of ``trials`` (whole numbers) or ``exposure`` (above 0). :raises ArgumentError:
        naming ``role``.
        """
        if role not in self.extras:
            raise _validate.ArgumentError(
                role, None, f"of the response {self.name} must have declared bounds."
            )
        low, high = self.extras[role]
        if role == "trials":
            _counts(role, (low, high))
        elif low <= 0 or high > LARGEST:
            raise _validate.ArgumentError(
                role,
                (low, high),
                f"must have bounds above 0 and up to {LARGEST:g}: smaller values are cut to the "
                "lower one.",
            )

    def numbers(
        self,
        values: ArrayLike,
        *,
        at_least: float = -math.inf,
        at_most: float = math.inf,
    ) -> np.ndarray:
        """float32[N], cut to the declared bounds.

        :raises ArgumentError: naming the column, if a value is missing, not a finite number, or
            outside the limits of what the family has at all. A value is never quoted.
        """
        numbers = _within(self.name, values, at_least, at_most)
        return np.clip(numbers, *self.bounds).astype(np.float32)

    def counts(self, values: ArrayLike) -> np.ndarray:
        """int32[N], cut to the declared bounds. :raises ArgumentError: naming the column, if a
        value is no count.
        """
        numbers, (low, high) = _within(self.name, values, 0, math.inf), self.bounds
        _require_whole(self.name, values, numbers)
        return np.clip(numbers, math.ceil(low), math.floor(high)).astype(np.int32)

    def counts_per(
        self, role: str, values: ArrayLike, sizes: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """(Counts, float32[N]; their trials, int32[N], or exposure, float32[N]), cut to the
        declared bounds together.

        Counts that were rescaled with their trials or exposure need not be whole.

        :raises ArgumentError: naming the column of a value that cannot be; the value is never
            quoted.
        """
        counts, size = _within(self.name, values, 0, math.inf), _within(role, sizes, 0, math.inf)
        low, high = self.extras[role]
        edge = _ROUNDED * (high - low)  # a data set's columns were scaled and back
        is_inside = (
            (low + edge < size) & (size < high - edge) & (counts < math.floor(self.bounds[1]))
        )
        _require_whole(self.name, values, counts[is_inside])
        if role == "trials":
            _require_whole(role, sizes, size)
        if low > 0 and (size == 0).any():  # nothing that it could be multiplied by
            raise _refused(
                role, sizes, "is 0 in some row, which is below its bounds; leave such rows out."
            )
        counts, size = self.rescaled(role, counts, size)
        counts = np.clip(counts, math.ceil(self.bounds[0]), math.floor(self.bounds[1]))
        return counts.astype(np.float32), size.astype(np.int32 if role == "trials" else np.float32)

    def rescaled(
        self, role: str, counts: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Counts and their trials or exposure, within the upper bounds and the exposure's lower
        one, each row by itself.

        Both are multiplied by one number where either is outside, so a proportion or a rate stays
        what it was, and the likelihood of such a row is that of the whole row to the power of this
        number. NaN stays.

        :param counts: float64[N]. :param sizes: float64[N], of ``role``.
        """
        low, high = self.extras[role]
        if role == "trials":
            low, high = math.ceil(low), math.floor(high)
        size = np.clip(sizes, low, high)
        counts = counts * np.divide(size, sizes, out=np.ones_like(size), where=sizes > 0)
        most = math.floor(self.bounds[1])
        ratio = np.divide(most, counts, out=np.ones_like(size), where=counts > most)
        smaller = np.rint(size * ratio) if role == "trials" else size * ratio
        size = np.where(ratio < 1, np.maximum(smaller, low), size)
        return np.minimum(counts, most), size

    def extra(self, role: str, values: ArrayLike) -> np.ndarray:
        """Values of ``trials`` (int32), ``exposure`` (float32) or ``observed`` (float32, 0 or 1),
        as they are.

        :raises ArgumentError: naming the role, for a value that cannot be; the value is never
            quoted.
        """
        if role == "observed":
            events = _numbers(role, values)
            if not np.isin(events, (0, 1)).all():
                raise _refused(
                    role, values, "must be 1 where the event was seen and 0 where it was censored."
                )
            return events.astype(np.float32)
        numbers = _within(role, values, 0, LARGEST)
        if role == "exposure":
            return numbers.astype(np.float32)
        _require_whole(role, values, numbers)
        return np.minimum(numbers, MOST).astype(np.int32)

    def codes(self, values: ArrayLike) -> np.ndarray:
        """int32[N]: the place of each value among the levels.

        :raises ArgumentError: naming the column, if a value is missing or no declared level.
        """
        column = _column(self.name, values)
        texts = preprocessing.texts_of(column)
        if None in texts:
            raise preprocessing.unfit(
                column,
                "is missing in some row; fill or drop such rows first.",
                preprocessing.MISSING,
            )
        codes = preprocessing.places_of(texts, self.levels)
        if (codes < 0).any():
            raise _refused(
                self.name,
                values,
                f"has none of the declared levels ({preprocessing.listed(self.levels)}) in some "
                "row.",
            )
        return codes.astype(np.int32)

    def zeros_and_ones(self, values: ArrayLike) -> np.ndarray:
        """int32[N] of 0 and 1, from two levels, or from numbers and truth values where no levels
        are declared.
        """
        if self.levels:
            return self.codes(values)
        numbers = _numbers(self.name, values)
        if not np.isin(numbers, (0, 1)).all():
            raise _refused(
                self.name,
                values,
                "must be 0 or 1, False or True, in every row; or declare its two levels.",
            )
        return numbers.astype(np.int32)


def _bounds(name: str, pair: tuple[float, float | None]) -> tuple[float, float]:
    try:
        return preprocessing.checked_pair("response", pair)
    except _validate.ArgumentError as error:
        raise _validate.ArgumentError(
            "response", pair, f"the bounds of {name} {error.expectation}"
        ) from None


def _counts(name: str, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if low < 0 or high < 1 or high > MOST or math.floor(high) < math.ceil(low):
        raise _validate.ArgumentError(
            "response" if name != "trials" else name,
            bounds,
            f"{name} must have bounds of counts: at least 0, with a whole number above 0, at "
            f"most {MOST}.",
        )


def _column(name: str, values: ArrayLike) -> pd.Series:
    column = (
        values if isinstance(values, pd.Series) else pd.Series(preprocessing.unmasked(name, values))
    )
    return column.rename(name)


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    return preprocessing.finite_numbers(_column(name, values))


def _refused(name: str, values: ArrayLike, expectation: str) -> _validate.ArgumentError:
    return preprocessing.unfit(_column(name, values), expectation)


def _within(name: str, values: ArrayLike, at_least: float, at_most: float) -> np.ndarray:
    numbers = _numbers(name, values)
    if ((numbers < at_least) | (numbers > at_most)).any():
        limits = (
            f"below {at_least:g}" if at_most == math.inf else f"outside {at_least:g} .. {at_most:g}"
        )
        raise _refused(
            name, values, f"has a number {limits} in some row, which this family cannot have."
        )
    return numbers


def _require_whole(name: str, values: ArrayLike, numbers: np.ndarray) -> None:
    if (numbers != np.floor(numbers)).any():
        raise _refused(
            name, values, "has a number that is not whole in some row, but counts are whole."
        )
