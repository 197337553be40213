"""What noised counts of columns say: quantiles, shares of levels and of missing values, and the
scales that regressions are fitted on.

Everything here follows from ``counting.noised``, so it costs no more privacy than the counts do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from workbench import _schema, _validate
from workbench._lazy import optimize, pd
from workbench.data.columns import Numeric
from workbench.data.counting import Counted, Counting, Levels, Numbers
from workbench.data.schema import Schema

__all__ = [
    "CERTAIN",
    "MOST_TAIL",
    "PRODUCTS",
    "Look",
    "Products",
    "Scale",
    "Scales",
    "Shares",
    "Standard",
    "consistent",
    "inside",
    "learned",
    "noise_in_ranks",
    "outer_leaves",
    "ranks",
    "scales_form",
    "scales_from_dict",
    "scales_to_dict",
    "visible_tail",
]

# of a number of records below a point, in standard deviations of one count's noise, over the root
# of the tree's depth: the mean of consistent trees of 8 to 16 levels is .35, the largest .52
_PREFIX = 0.4
CERTAIN = 3.0  # standard deviations of that noise that a tail must have
_IN_GAP = 1.5  # of them, by which no more than one in a hundred gaps is taken for a tail
_LEAST_TAIL, MOST_TAIL = 0.001, 0.2  # share of the records beyond a quantile that gives a scale
# standard deviations of a normal column from its median to its scale's bounds; where little noise
# shows more of the tails, bounds are wider, because a cut biases more than it saves there
_REACH, _FARTHEST, _MUCH_NOISE = 3.3, 5.0, 0.02
_OF_RESPONSE = 1.6  # times as far for a response, of which nothing should be cut
_DIGITS = 3  # significant ones, of learned bounds
# distance of a learned bound from the median: at least, and as a share of the declared bounds' size
_NARROWEST, _RESOLUTION = 1e-17, 1e-9
_INTERVAL = 1.645  # 90 %
# standard deviations that no noise is beyond, and places among what numbers of records are possible
_SURELY, _GRID = 8.0, np.linspace(0.0, 1.0, 1001)
_FEWEST = 0.01  # records, which stands for none
_ROUNDED = 1e-6  # of half a declared range, by which float32 may move a value


def noise_in_ranks(depth: int, deviation: float) -> float:
    """Standard deviation of the noise in the number of records below a point.

    :param depth: of the tree. :param deviation: of the noise of a count, in records.
    """
    return _PREFIX * math.sqrt(depth) * deviation


def ranks(leaves: np.ndarray) -> np.ndarray:
    """float64[leaves]: the number of records below the end of each leaf, which never falls, though
    noise makes sums of leaves fall here and there.
    """
    below: np.ndarray = optimize.isotonic_regression(np.cumsum(leaves)).x
    return below


def visible_tail(records: float, error: float) -> float | None:
    """The smallest share of the records beyond a quantile that shows through noise; None where only
    more than ``MOST_TAIL`` would.

    :param error: standard deviation of the noise of a rank, ``noise_in_ranks``.
    """
    tail = max(_LEAST_TAIL, CERTAIN * error / max(records, 1.0))
    return None if records <= 0 or tail > MOST_TAIL else tail


def outer_leaves(below: np.ndarray, tail: float, error: float) -> tuple[int, int]:
    """The leaves of the quantiles ``tail`` and 1 - ``tail``.

    Most records may be in one leaf, as at 0, and the others far away. Where noise hides whether
    ``tail`` of them are on a side of it, any leaf of the gap could be that side's quantile, so the
    leaf itself is.

    :param below: ranks, float64[leaves]. :param error: as of ``visible_tail``.
    """
    total, counts = below[-1], np.diff(below, prepend=0.0)
    first, last = np.searchsorted(below, [tail * total, (1 - tail) * total]).tolist()
    most = int(np.argmax(counts))
    if counts[most] >= total / 2:
        hidden = tail * total + _IN_GAP * error
        first = most if below[most] - counts[most] < hidden else first
        last = most if total - below[most] < hidden else last
    return first, last


class Scale(NamedTuple):
    """The scale of a column of numbers: the bounds that it is scaled to [-1, 1] by.

    :param low: in the column's units. :param high: in the column's units.
    :param median: of the column. :param spread: standard deviation of a normal column with the same
        quantiles.
    :param beyond: share of the records that are outside the bounds, by three standard deviations of
        noise at least; they count as at the bound.
    """

    low: float
    high: float
    median: float
    spread: float
    beyond: float


class Shares(NamedTuple):
    """How the records are spread over the levels of a category.

    :param levels: by level, what is known of its share by its noised count where any order of
        magnitude is as likely as another: e to the mean of its logarithm, above 0, and the standard
        deviation of that.
    """

    levels: Mapping[str, Sequence[float]]


class Standard(NamedTuple):
    """How the columns of a regression's design become standard ones, by learned scales.

    :param names: of the columns. :param means: float[D]. :param deviations: float[D], above 0.
    """

    names: Sequence[str]
    means: Sequence[float]
    deviations: Sequence[float]


class Products(NamedTuple):
    """Mean products of the columns of a regression's design with each other, through noise.

    :param names: of ``Standard``, and so are ``means`` and ``deviations``.
    :param matrix: float[D + 1, D + 1], of a constant 1 and the standard columns.
    :param error: standard deviation of the noise of its diagonal; of two different columns it is
        that over the square root of 2.
    """

    names: Sequence[str]
    means: Sequence[float]
    deviations: Sequence[float]
    matrix: Sequence[Sequence[float]]
    error: float


PRODUCTS = "(products)"  # beside the columns
Scales = Mapping[str, Scale | Shares | Products]
"""What looks have learned, by column, and under ``PRODUCTS`` of columns together."""


@dataclass(frozen=True, eq=False, repr=False)
class Look:
    """Noised counts of columns, and what they say; made by ``wb.look`` and by fits.

    :param counting: what was counted. :param values: float64[size], the counts with noise, in
        records.
    :param deviation: standard deviation of the noise of each count, in records.
    :param unit: what a record is.
    :param guarantee: of a look by itself; None for one that is part of a fit's guarantee.
    :param schema: the declaration of the columns; of those that had none, as it was learned.
    :param token: by which a ledger counts it together with the fits that use it.
    :param spend: its key in the ledger; "" if it has none.
    :param owners: names of those whose records were counted together, if there were several.
    """

    counting: Counting
    values: np.ndarray
    deviation: float
    unit: str = "training record"
    guarantee: Any = None
    schema: Schema | None = None
    token: str = ""
    spend: str = ""
    owners: tuple[str, ...] = ()
    _columns: Mapping[str, tuple[Counted, slice]] = field(init=False)

    def __post_init__(self) -> None:
        columns = {column.name: (column, place) for column, place in self.counting.slices()}
        object.__setattr__(self, "_columns", columns)

    @property
    def is_secret(self) -> bool:
        """Whether its noise came from a secret key, so that no seed gives it away."""
        return self.guarantee is None or self.guarantee.secure_randomness

    def __repr__(self) -> str:
        return f"Look({len(self._columns)} columns, counts +- {self.deviation:.3g})"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self._columns)

    def _column(self, name: str, kind: type) -> tuple[Any, np.ndarray]:
        if name not in self._columns or not isinstance(self._columns[name][0], kind):
            names = [key for key, (column, _) in self._columns.items() if isinstance(column, kind)]
            raise _validate.unknown_name("name", name, names)
        column, place = self._columns[name]
        return column, self.values[place]

    @functools.cached_property
    def _leaves(self) -> dict[str, np.ndarray]:
        """The number of records in each leaf of the columns of numbers, float64[leaves]."""
        return {
            name: consistent(self.values[place], column.depth)
            for name, (column, place) in self._columns.items()
            if isinstance(column, Numbers)
        }

    @functools.cached_property
    def _below(self) -> dict[str, np.ndarray]:
        """The number of records below the end of each leaf, float64[leaves]."""
        return {name: ranks(leaves) for name, leaves in self._leaves.items()}

    def _ranks(self, name: str) -> tuple[Numbers, np.ndarray]:
        return self._column(name, Numbers)[0], self._below[name]

    def quantiles(self, name: str, probabilities: Sequence[float]) -> pd.DataFrame:
        """Quantiles of a column of numbers with 90 % intervals, by probability.

        Columns: value, low, high, in the column's units. Intervals count the noise, and not how the
        records were sampled from others.

        :raises ArgumentError: naming ``name`` or ``probabilities``.
        """
        levels = [
            _validate.number("probabilities", level, at_least=0, at_most=1)
            for level in probabilities
        ]
        column, below = self._ranks(name)
        error = _INTERVAL * noise_in_ranks(column.depth, self.deviation)
        rows = [
            [_at(column, below, level, shift) for shift in (0.0, -error, error)] for level in levels
        ]
        index = pd.Index(levels, name="probability")
        return pd.DataFrame(rows, index, ["value", "low", "high"])

    def levels(self, name: str) -> pd.DataFrame:
        """Numbers of records by level of a category, with 90 % intervals; noise can make one
        negative, which is shown as 0.

        :raises ArgumentError: naming ``name``.
        """
        column, values = self._column(name, Levels)
        error = _INTERVAL * self.deviation
        bounds = np.maximum(np.column_stack([values, values - error, values + error]), 0)
        return pd.DataFrame(bounds, pd.Index(column.labels, name=name), ["records", "low", "high"])

    def missing(self, name: str) -> tuple[float, float, float]:
        """The number of records without a value of a column, and its 90 % interval."""
        column, values = self._column(name, Numbers)
        if not column.gaps:
            return 0.0, 0.0, 0.0
        error = _INTERVAL * self.deviation
        estimate = float(values[-1])
        return max(estimate, 0.0), max(estimate - error, 0.0), max(estimate + error, 0.0)

    def histogram(self, name: str, bins: int = 32) -> pd.DataFrame:
        """Numbers of records in intervals of equal width: low, high, records, error (a standard
        deviation of the noise).

        :param bins: a power of two, at most the leaves of the tree.
        :raises ArgumentError: naming ``name`` or ``bins``.
        """
        column = self._column(name, Numbers)[0]
        counts = self._leaves[name]
        size = _validate.integer("bins", bins, at_least=1, at_most=len(counts))
        if size & (size - 1):
            raise _validate.ArgumentError("bins", bins, "must be a power of two.")
        edges = np.linspace(column.low, column.high, size + 1)
        table = {
            "low": edges[:-1],
            "high": edges[1:],
            "records": np.maximum(counts.reshape(size, -1).sum(axis=1), 0),
        }
        return pd.DataFrame(table).assign(error=self.deviation)

    def table(self) -> pd.DataFrame:
        """A line for each column: of numbers the median and the middle 90 %, of categories the most
        frequent level; missing values.
        """
        return pd.DataFrame(
            [self._line(name) for name in self.names], pd.Index(self.names, name="column")
        )

    def _line(self, name: str) -> dict[str, Any]:
        column = self._columns[name][0]
        if isinstance(column, Levels):
            counts = self.levels(name)["records"]
            total = max(float(counts.sum()), 1.0)
            largest = counts.idxmax()
            return {
                "kind": "categories",
                "says": f"{largest} {counts[largest] / total:.0%}",
                "learned": True,
            }
        scale = self.scale(name)
        low, middle, high = self.quantiles(name, (0.05, 0.5, 0.95))["value"]
        has_gaps = isinstance(column, Numbers) and column.gaps
        gaps = f", missing {self.missing(name)[0]:.0f}" if has_gaps else ""
        return {
            "kind": "numbers",
            "says": f"median {middle:.4g}, 5 to 95 %: {low:.4g} to {high:.4g}{gaps}",
            "learned": scale is not None,
        }

    def scale(self, name: str, *, is_response: bool = False) -> Scale | None:
        """The scale of a column of numbers; None where its counts are mostly noise, or where they
        show one value alone, as of a rare event.

        On each side of the median the bound is as many standard deviations away as that of a normal
        column with the same outer quantile would be, and never beyond what was declared. So a
        skewed column is cut where it hardly has values.

        :param is_response: whether it is what a regression explains, of which nothing should be
            cut.
        """
        column, below = self._ranks(name)
        total = float(below[-1])
        error = noise_in_ranks(column.depth, self.deviation)
        tail = visible_tail(total, error)
        if tail is None:
            return None
        median = _at(column, below, 0.5, 0.0)
        low, high = (_middle(column, leaf, len(below)) for leaf in outer_leaves(below, tail, error))
        leaf = (column.high - column.low) / 2**column.depth
        if high - low <= leaf:  # all that shows is in one leaf or two
            return None
        deviations = -float(ndtri(tail))
        clear = math.log(_MUCH_NOISE / min(tail, _MUCH_NOISE)) / math.log(_MUCH_NOISE / _LEAST_TAIL)
        reach = _REACH + (_FARTHEST - _REACH) * clear
        farther = reach * (_OF_RESPONSE if is_response else 1.0) / deviations
        # so wide that float64 has digits for what is between the bounds, and a schema accepts them
        resolution = _RESOLUTION * max(abs(column.low), abs(column.high))
        least = max(leaf, resolution, _NARROWEST, 1.0 if column.whole else 0.0)
        outer = _rounded(
            median - max((median - low) * farther, least),
            median + max((high - median) * farther, least),
        )
        bounds = max(outer[0], column.low), min(outer[1], column.high)
        first, last = (math.floor((bound - column.low) / leaf) for bound in bounds)
        upto = np.concatenate([[0.0], below])  # where in a leaf its records are is not known
        inside = upto[min(last + 1, len(below))] - upto[max(first, 0)]
        beyond = float(np.clip(1 - (inside + CERTAIN * math.sqrt(2) * error) / total, 0.0, 1.0))
        spread = max(high - low, leaf) / (2 * deviations)
        return Scale(*bounds, median, spread, beyond)

    def level_shares(self, name: str) -> Shares:
        """The shares of the levels of a category."""
        column, values = self._column(name, Levels)
        counts = np.maximum(values / self.deviation, -_SURELY)[:, None]
        low = np.log(np.maximum(counts - _SURELY, _FEWEST / self.deviation))
        high = np.log(np.maximum(counts, 0.0) + _SURELY)
        logarithms = low + (high - low) * _GRID
        squares = (np.exp(logarithms) - counts) ** 2
        weights = np.exp(-0.5 * (squares - squares.min(1, keepdims=True)))
        means = np.average(logarithms, 1, weights)
        variances = np.average((logarithms - means[:, None]) ** 2, 1, weights)
        records = np.average(np.exp(logarithms), 1, weights).sum()
        pairs = np.column_stack([np.exp(means) / records, np.sqrt(variances)]).tolist()
        return Shares(dict(zip(column.labels, pairs, strict=True)))

    def scales(self, responses: Sequence[str] = ()) -> dict[str, Scale | Shares]:
        """What the columns have of scales and shares. :param responses: as ``scale`` has them."""
        scales = {
            name: self.scale(name, is_response=name in responses)
            if isinstance(column, Numbers)
            else self.level_shares(name)
            for name, (column, _) in self._columns.items()
        }
        return {name: scale for name, scale in scales.items() if scale is not None}


def learned(schema: Schema, scales: Scales) -> Schema:
    """``schema`` with the bounds of ``scales``, as far as they are within those declared.

    :raises ArgumentError: naming ``look``, for bounds that are not.
    """
    columns = dict(schema.columns)
    for name, scale in scales.items():
        column = columns.get(name)
        if isinstance(column, Numeric) and isinstance(scale, Scale):
            low, high = max(scale.low, column.low), min(scale.high, column.high)
            if not low < high:
                raise _validate.ArgumentError(
                    "look",
                    (scale.low, scale.high),
                    f"has these bounds for {name}, which is declared within {column.low:g} to "
                    f"{column.high:g}.",
                )
            columns[name] = Numeric(low, high, column.whole, column.missing)
    return Schema(columns)


_of_numbers = _schema.record(dict.fromkeys(Scale._fields, _schema.number()))
_of_levels = _schema.record(
    {"levels": _schema.mapped(_schema.listed(_schema.number(at_least=0), length=2))}
)


_of_products = _schema.record(
    {
        "names": _schema.listed(_schema.text()),
        "means": _schema.listed(_schema.number()),
        "deviations": _schema.listed(_schema.number(above=0)),
        "matrix": _schema.listed(_schema.listed(_schema.number())),
        "error": _schema.number(above=0),
    }
)
_KINDS = {"levels": (Shares, _of_levels), "matrix": (Products, _of_products)}


def _kind(value: Any) -> tuple[Any, Callable[[str, Any], Any]]:
    """(what ``value`` is of, how its form is checked)."""
    named = [kind for name, kind in _KINDS.items() if isinstance(value, Mapping) and name in value]
    return named[0] if named else (Scale, _of_numbers)


def _form(field: str, value: Any) -> None:
    kind, check = _kind(value)
    check(field, value)
    if kind is Scale and not (value["low"] < value["high"] and value["spread"] > 0):
        raise _schema.FormError(field, "must have low < high and a spread above 0")
    if kind is Products:
        sizes = {len(value["matrix"]), *map(len, value["matrix"])}
        if sizes != {len(value["means"]) + 1} or len(value["means"]) != len(value["deviations"]):
            raise _schema.FormError(field, "must have a square matrix of one more than its means")


scales_form = _schema.mapped(_form)
"""Checks what ``scales_to_dict`` wrote."""


def inside(schema: Schema, x: np.ndarray, scales: Scales) -> np.ndarray:
    """bool[B]: which rows have no value outside the bounds of ``scales``; a missing value is
    inside.

    :param x: float[B, D], encoded by ``schema``.
    """
    rows = np.ones(len(x), bool)
    for name, features in schema.by_column(x).items():
        column, scale = schema.columns[name], scales.get(name)
        if isinstance(scale, Scale) and isinstance(column, Numeric):
            low, high = (
                (bound - column.middle) / column.reach for bound in (scale.low, scale.high)
            )
            values = np.asarray(features[:, 0], np.float64)
            is_inside = (values >= low - _ROUNDED) & (values <= high + _ROUNDED)
            if column.missing:
                is_inside |= features[:, 1] >= 0.5
            rows &= is_inside
    return rows


def scales_to_dict(scales: Scales) -> dict[str, dict[str, Any]]:
    """Scales, ready for JSON."""
    return {name: scale._asdict() for name, scale in scales.items()}


def scales_from_dict(
    values: Mapping[str, Mapping[str, Any]],
) -> dict[str, Scale | Shares | Products]:
    """What ``scales_to_dict`` wrote."""
    return {name: _kind(scale)[0](**scale) for name, scale in values.items()}


def consistent(values: np.ndarray, depth: int) -> np.ndarray:
    """float64[leaves]: counts of leaves by least squares, given noised counts of all intervals.

    The noise is the same in all of them (Hay et al. 2010). Sums of neighbouring leaves are then
    those that the larger intervals say, too.

    :param values: leaves first, then their parents, and so on.
    """
    sizes = [2 ** (depth - level) for level in range(depth)]
    ends = np.cumsum(sizes)
    levels = np.split(values[: ends[-1]], ends[:-1])
    upward = [levels[0]]
    for height, counts in enumerate(levels[1:], start=2):
        of_children = upward[-1].reshape(-1, 2).sum(axis=1)
        share = 2.0 ** (height - 1) / (2.0**height - 1)
        upward.append(share * counts + (1 - share) * of_children)
    counts = np.array([upward[-1].sum()])
    for level in upward[::-1]:
        gap = (counts - level.reshape(-1, 2).sum(axis=1)) / 2
        counts = level + np.repeat(gap, 2)
    return counts


def _at(column: Numbers, below: np.ndarray, level: float, shift: float) -> float:
    """The quantile at ``level``, of ranks that are ``shift`` records larger."""
    return _middle(column, int(np.searchsorted(below, level * below[-1] + shift)), len(below))


def _middle(column: Numbers, leaf: int, leaves: int) -> float:
    return column.low + (column.high - column.low) * (min(leaf, leaves - 1) + 0.5) / leaves


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Bounds outwards to a few significant digits of their distance."""
    decimals = _DIGITS - 1 - math.floor(math.log10(high - low))
    unit = 10.0**-decimals
    return (
        round(math.floor(low / unit) * unit, decimals),
        round(math.ceil(high / unit) * unit, decimals),
    )
