"""What a formula means for declared columns: the columns of a design matrix, from the schema alone.

A row's columns follow from that row and from declarations, so tables that differ in one row give
designs that differ in one. Numbers are scaled to [-1, 1] by bounds that are declared or follow from
declared ones.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from workbench._blas import one_thread
from workbench._lazy import pd
from workbench.data.columns import Boolean, Categorical, Numeric, indicator_of
from workbench.data.preprocessing import listed
from workbench.data.schema import Schema, columns_of
from workbench.formula.coding import Block, Form, block_of
from workbench.formula.factors import Factor, Levels, Values, factors_of, level_names
from workbench.formula.geometry import SMALLEST, Geometry, geometry_of, left_by_others
from workbench.formula.parsing import Group, Parsed, refused

__all__ = ["Design", "DesignWarning", "Effects", "design_of", "sd_of"]

_ROWS = 8  # made-up ones for each column
_LEAST_ROWS = 2063  # made-up ones for the geometry
# of a lattice: of all below 2063, its first 40 columns have the least to do with each other
_GENERATOR = 587
_BEYOND = 1.25  # a tenth of each number is at its lower bound, and a tenth at its upper bound
_MOST_COLUMNS = 1000  # whose rank is looked at
_MOST_CONTRASTED = 200  # groups: each contrast is of all of them
_MOST = 20_000  # columns
_ROUNDED = 1e-5  # of a scaled column: more than rounding of its combination in own units
_SURE = 1e-6  # of a column: how exactly others must give it
_MOST_GROUPS = 100_000


class DesignWarning(UserWarning):
    """Columns of a design are constant, or add nothing or hardly anything to the others, by what is
    declared.
    """


def sd_of(group: str) -> str:
    """The site of a group's standard deviations."""
    return f"{group}_sd"


@dataclass(frozen=True, eq=False)
class Effects:
    """A term of groups.

    :param name: such as "hospital", or "hospital:ward". :param labels: of all groups, declared.
    :param by: its factors. :param block: the columns whose effects differ between groups.
    """

    name: str
    labels: tuple[str, ...]
    by: tuple[Levels, ...]
    block: Block

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the effects, the intercept's first."""
        return (*(("Intercept",) if self.block.intercept else ()), *self.block.names)

    @property
    def own_units(self) -> np.ndarray:
        """float64[K, K]: from effects of the fitted columns to those of 1 more of a column in its
        own units; the intercept's stay.
        """
        first = int(self.block.intercept)
        slopes = [
            math.prod(component.scale for component in column) for column in self.block.columns
        ]
        matrix = np.eye(len(self.columns))
        matrix[first:, first:] = np.array(slopes)[:, None] * self.block.mixture[1:, 1:]
        return matrix

    def deviations(self, fitted: np.ndarray) -> np.ndarray:
        """Standard deviations of the effects of 1 more of a column in its own units; the
        intercept's stay.

        :param fitted: [draws, K, ...], those of the effects of the fitted columns, which are
            independent.
        """
        squares = np.square(fitted, dtype=np.float64)
        return np.sqrt(np.einsum("jk,dk...->dj...", self.own_units**2, squares))

    def index(self, values: Values) -> np.ndarray:
        """int32[N]: the group of each row."""
        codes = np.zeros(values.rows, np.int64)
        for factor in self.by:
            codes = codes * len(factor.labels) + values.levels[factor.column]
        return codes.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Design:
    """The design of a formula.

    :param parsed: the formula. :param schema: the columns that it uses, without the response and
        its extras; None if none.
    :param block: the columns of x. :param groups: terms of groups.
    :param cautions: sentences about columns that say nearly the same and are fitted all the same.
    """

    parsed: Parsed
    schema: Schema | None
    block: Block
    groups: tuple[Effects, ...]
    cautions: tuple[str, ...] = ()

    @functools.cached_property
    def as_levels(self) -> frozenset[str]:
        """Columns that are used as categories."""
        blocks = (self.block, *(effects.block for effects in self.groups))
        factors = [factor for block in blocks for factor in block.factors.values()]
        factors += [factor for effects in self.groups for factor in effects.by]
        return frozenset(
            name
            for factor in factors
            if isinstance(factor, Levels) or factor.steps
            for name in factor.columns
        )

    def values(self, frame: pd.DataFrame) -> Values:
        """The columns that the formula uses, each row from its own cells.

        :raises ArgumentError: naming ``frame`` or a column, never a cell.
        """
        numbers, levels = {}, {}
        columns = {} if self.schema is None else self.schema.columns
        series = columns_of(frame, columns)
        for name, column in columns.items():
            if isinstance(column, Categorical):
                levels[name] = column.codes(series[name])
                continue
            if isinstance(column, Boolean):
                numbers[name] = (column.encode(series[name])[:, 0] > 0).astype(np.float64)
            else:
                numbers[name], absent = column.numbers(series[name])
                numbers[indicator_of(name)] = absent.astype(np.float64)
            if name in self.as_levels:
                levels[name] = _codes(column, numbers[name])
        return Values(len(frame), numbers, levels)

    def encode(self, values: Values) -> dict[str, np.ndarray]:
        """``{"x": float32[N, P], group: int32[N], group + "_x": float32[N, K]}``, as far as the
        formula has them.
        """
        arrays = {"x": self.block.encode(values)}
        for effects in self.groups:
            arrays[effects.name] = effects.index(values)
            if effects.block.columns:
                arrays[f"{effects.name}_x"] = effects.block.encode(values)
        return arrays

    @property
    def own_units(self) -> np.ndarray | None:
        """From scaled weights, the intercept's first if there is one, to those of the columns in
        their own units.

        float64[1 + P, 1 + P], or float64[P, P] without an intercept; None for a design of too many
        columns, and for bounds that are too narrow for their distance from 0.

        The predictor is the same: scaled columns . w = columns in their own units . (this matrix .
        w).
        """
        return None if self._in_own_units is None else self._in_own_units[:, :-1]

    @property
    def constant(self) -> np.ndarray | None:
        """The weights of columns in their own units, the intercept's first, with which the
        predictor is 1 for every row.

        None without such weights (``Block.has_constant``), and where ``own_units`` is None.
        """
        return (
            None
            if self._in_own_units is None or not self.block.has_constant
            else self._in_own_units[:, -1]
        )

    @functools.cached_property
    def _in_own_units(self) -> np.ndarray | None:
        """Combinations of columns in their own units that are the scaled ones, and the nearest to a
        constant.
        """
        if len(self.block.columns) > _MOST_COLUMNS:
            return None
        values = self.made_up()
        first = 1 - int(self.block.intercept)
        forms: tuple[Form, Form] = ("scaled", "own")
        scaled, unscaled = (_with_ones(self.block, values, form)[:, first:] for form in forms)
        size = np.abs(unscaled).max(axis=0, initial=0)
        size[size == 0] = 1.0
        wanted = np.column_stack([scaled, np.ones(values.rows)])
        combinations = _combinations(unscaled / size, wanted)
        residuals = np.abs(unscaled / size @ combinations - wanted).max(axis=0, initial=0)
        # float64 lacks digits where bounds are narrow for their distance from 0
        if (residuals[: None if self.block.has_constant else -1] >= _ROUNDED).any():
            return None
        combinations = combinations / size[:, None]
        combinations[:, :-1] = combinations[:, :-1] @ self.block.mixture[first:, first:]
        return combinations

    def shared(self, effects: Effects, intercept: bool) -> np.ndarray | None:
        """The columns of ``effects``, its intercept's first, as combinations of those of x.

        float64[1 + P, 1 + K], without the first where there is no intercept; None where they are
        none, for a single group or so many that contrasts between them take too long, and for a
        design of too many columns. Made-up rows show it.

        :param intercept: whether the model has one besides x.
        """
        if max(len(self.block.columns), len(effects.block.columns)) > _MOST_COLUMNS:
            return None
        if not 1 < len(effects.labels) <= _MOST_CONTRASTED:
            return None
        values = self.made_up()
        columns, wanted = (
            np.hstack([np.ones((values.rows, int(first))), block.encode(values, dtype=np.float64)])
            for first, block in ((intercept, self.block), (effects.block.intercept, effects.block))
        )
        combinations = _combinations(columns, wanted)
        exact = np.abs(columns @ combinations - wanted).max(initial=0) < _ROUNDED
        return np.round(combinations, 9) if exact else None

    def made_up(self) -> Values:
        """As ``spread_out``, with rows in which no column is 0 everywhere."""
        count = _ROWS * (len(self.block.columns) + 8)
        numbers, levels = self._spread_out(2 * count, _spread)
        for index, components in enumerate(self.block.columns):
            rows = slice(count + index * _ROWS, count + (index + 1) * _ROWS)
            for component in components:
                factor = self.block.factors[component.factor]
                if isinstance(factor, Levels):
                    levels[factor.column][rows] = component.entry
        return self._values_of(numbers, levels, 2 * count)

    def spread_out(self, rows: int) -> Values:
        """Made-up rows within the declared bounds, evenly spread. No random numbers."""
        return self._values_of(*self._spread_out(rows, _spread), rows)

    def _spread_out(
        self, rows: int, spreading: Callable[[int, int], Iterator[np.ndarray]], reach: float = 1.0
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(numbers by column, places of levels by column) of made-up rows, evenly spread within the
        declared bounds.

        :param spreading: of numbers in [0, 1) for each column.
        :param reach: how far numbers go, cut to the bounds: above 1, some are at the bounds
            themselves.
        """
        columns = {} if self.schema is None else self.schema.columns
        numbers, levels = {}, {}
        spreads = list(spreading(2 * len(columns), rows))
        spread, uniforms = (dict(zip(columns, spreads[half::2], strict=True)) for half in (0, 1))
        for name, column in columns.items():
            names = level_names(column)
            if isinstance(column, Numeric):
                low, high = (
                    (math.ceil(column.low), math.floor(column.high))
                    if column.whole
                    else (column.low, column.high)
                )
                drawn = low + (high - low) * np.clip(reach * (spread[name] - 0.5) + 0.5, 0.0, 1.0)
                numbers[name] = np.rint(drawn) if column.whole else drawn
                numbers[indicator_of(name)] = (uniforms[name] < 0.3).astype(np.float64)
            if names is not None:
                levels[name] = np.minimum(
                    (spread[name] * len(names)).astype(np.int64), len(names) - 1
                )
        return numbers, levels

    def _values_of(
        self, numbers: dict[str, np.ndarray], levels: dict[str, np.ndarray], rows: int
    ) -> Values:
        """Rows in which a column that is used as categories has the numbers of its levels."""
        for name, column in () if self.schema is None else self.schema.columns.items():
            if isinstance(column, Boolean):
                numbers[name] = levels[name].astype(np.float64)
            elif isinstance(column, Numeric) and name in self.as_levels:
                numbers[name] = math.ceil(column.low) + levels[name].astype(np.float64)
        return Values(rows, numbers, levels)

    def orthogonal(self, named: Collection[str]) -> Design:
        """The same design with columns that are fitted in place of those that others nearly give
        (``geometry``).

        :param named: the names of ``priors=``: columns whose weights have them stay as they are
            written.
        """
        geometry = self._geometry(self.block, _named(self.block, named))
        cautions, groups = list(geometry.warnings), []
        block = replace(self.block, residuals=geometry.residuals)
        for effects in self.groups:
            geometry = self._geometry(effects.block, _named_sds(effects, named))
            cautions += [
                f"In the effects of {effects.name}: {words}" for words in geometry.warnings
            ]
            groups.append(
                replace(effects, block=replace(effects.block, residuals=geometry.residuals))
            )
        return replace(self, block=block, groups=tuple(groups), cautions=tuple(cautions))

    def _geometry(self, block: Block, fixed: frozenset[int]) -> Geometry:
        if not block.numbers or len(block.columns) > _MOST_COLUMNS:
            return Geometry()
        rows = _safe_prime(max(_LEAST_ROWS, _ROWS * len(block.columns)))
        made_up = (
            self._values_of(*self._spread_out(rows, _lattice, reach), rows)
            for reach in (1.0, _BEYOND)
        )
        x = [_with_ones(block, values, "scaled") for values in made_up]
        return geometry_of(np.vstack(x), rows, block.names, block.numbers, fixed)

    def announce(self, *, has_cutpoints: bool = False) -> None:
        """Warn of columns that are constant or add nothing to the others. Made-up rows show it: no
        record is looked at.

        :param has_cutpoints: whether the family has cutpoints instead of an intercept.
        """
        if has_cutpoints and self.block.has_constant and not self.block.intercept:
            words = (
                "columns of all levels add nothing to the cutpoints: the prior alone tells them "
                "apart; write no 0 or - 1"
            )
            warnings.warn(f"{self.parsed.text}: {words}.", DesignWarning, stacklevel=4)
        for words in self.cautions:
            warnings.warn(f"{self.parsed.text}: {words}", DesignWarning, stacklevel=4)
        if len(self.block.columns) > _MOST_COLUMNS:
            return
        values = self.made_up()
        blocks = {
            "": self.block,
            **{f" in the effects of {effects.name}": effects.block for effects in self.groups},
        }
        for clause, block in blocks.items():
            for words in _dependent(block, block.encode(values, dtype=np.float64)):
                warnings.warn(f"{self.parsed.text}: {words}{clause}.", DesignWarning, stacklevel=4)


def _combinations(columns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The combinations of ``columns`` nearest to ``wanted``, without the weights that are nothing
    but rounding.
    """
    with one_thread():
        weights = np.linalg.lstsq(columns, wanted, rcond=1e-13)[0]
    is_used = np.abs(weights) >= 1e-10
    sparse = np.where(is_used, weights, 0.0)
    # of columns that are nearly the same, weights of rounding cancel each other: one is not left
    # out without another
    before, after = (
        np.abs(columns @ combination - wanted).max(axis=0, initial=0)
        for combination in (weights, sparse)
    )
    for target in np.flatnonzero(after > 10 * before):
        used = is_used[:, target]
        sparse[used, target] = np.linalg.lstsq(columns[:, used], wanted[:, target], rcond=1e-13)[0]
    return sparse


def _with_ones(block: Block, values: Values, form: Form) -> np.ndarray:
    """float64[N, 1 + P]: the intercept first, zeros where there is none."""
    first = np.full((values.rows, 1), float(block.intercept))
    return np.hstack([first, block.encode(values, form=form, dtype=np.float64)])


def _named(block: Block, names: Collection[str]) -> frozenset[int]:
    """Columns that are in ``names`` by themselves or by their terms."""
    of_terms = {
        index for term, indices in block.terms.items() if term in names for index in indices
    }
    return frozenset(of_terms | {index for index, name in enumerate(block.names) if name in names})


def _named_sds(effects: Effects, names: Collection[str]) -> frozenset[int]:
    """Columns whose standard deviations between groups are in ``names``."""
    site, columns = sd_of(effects.name), effects.block.names
    return frozenset(
        index for index, name in enumerate(columns) if {site, f"{site}[{name}]"} & {*names}
    )


def _codes(column: Boolean | Numeric, numbers: np.ndarray) -> np.ndarray:
    """int64[N]: places among ``level_names``."""
    if isinstance(column, Boolean):
        return numbers.astype(np.int64)
    low, high = math.ceil(column.low), math.floor(column.high)
    return np.clip(np.rint(numbers), low, high).astype(np.int64) - low


def _spread(columns: int, rows: int) -> Iterator[np.ndarray]:
    """For each column numbers in [0, 1) that fill the unit cube evenly together: multiples of
    square roots of primes.
    """
    primes, number = list[int](), 2
    while len(primes) < columns:
        if all(number % prime for prime in primes):
            primes.append(number)
        number += 1
    return (np.arange(1, rows + 1) * math.sqrt(prime) % 1.0 for prime in primes)


def _safe_prime(at_least: int) -> int:
    """The smallest prime 2 p + 1, where p is prime too: powers of a number repeat after p at the
    earliest.
    """

    def is_prime(number: int) -> bool:
        return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))

    return next(n for n in itertools.count(at_least) if is_prime(n) and is_prime(n // 2))


def _lattice(columns: int, rows: int) -> Iterator[np.ndarray]:
    """For each column the same numbers in (0, 1), evenly spread, in orders that have little to do
    with each other.

    Korobov's lattice rule. Multiples of square roots are correlated where there are hundreds of
    columns.

    :param rows: a safe prime, above twice the number of columns.
    """
    for column in range(columns):
        yield (np.arange(rows) * pow(_GENERATOR, column, rows) % rows + 0.5) / rows


def _dependent(block: Block, x: np.ndarray) -> Iterator[str]:
    """A clause for each term without columns, and each column that is constant or follows from
    those before it.
    """
    yield from (
        f"{name} has no columns, because one level is declared"
        for name, indices in block.terms.items()
        if not indices
    )
    names = ["the intercept", *block.names] if block.intercept else list(block.names)
    x = np.hstack([np.ones((len(x), int(block.intercept))), x])
    if left_by_others(x).min(initial=1) > _SURE:  # which is quicker than to look at each
        return
    independent = list[int]()
    basis = np.empty((len(x), 0))
    for index, column in enumerate(x.T):
        size = float(np.linalg.norm(column))
        if size == 0:
            yield f"{names[index]} is always 0"
            continue
        residual = column - basis @ (basis.T @ column)
        residual -= basis @ (basis.T @ residual)  # again, for what rounding left
        residual_norm = float(np.linalg.norm(residual))
        if residual_norm > SMALLEST * size:
            basis, independent = (
                np.column_stack([basis, residual / residual_norm]),
                [*independent, index],
            )
            continue
        weights = np.linalg.lstsq(x[:, independent], column, rcond=None)[0]
        combined = [
            names[regressor]
            for regressor, weight in zip(independent, weights, strict=True)
            if abs(weight) > _SURE
        ]
        is_power = "**" in names[index] or names[index].startswith("poly(")
        remedy = (
            "; of powers far from 0 write those of the centred column, as in I(center(x)**4)"
            if is_power
            else ""
        )
        yield (
            f"{names[index]} adds nothing to {listed(combined)}: the prior alone tells them "
            f"apart{remedy}"
        )


def design_of(parsed: Parsed, schema: Schema) -> Design:
    """The design of a formula for declared columns.

    :raises ArgumentError: naming ``formula``, for what it cannot mean for these columns.
    """
    parsed = _with_indicators(parsed, schema)
    factors = factors_of(parsed, schema)

    def block(
        intercept: bool, terms: tuple[tuple[str, ...], ...], *, of_groups: bool = False
    ) -> Block:
        _check_alone(parsed, factors, terms, of_groups)
        count = sum(math.prod(len(factors[text].labels) for text in term) for term in terms)
        if count > _MOST:
            raise refused(parsed.text, f"may have {count} columns; at most {_MOST} are possible.")
        return block_of(intercept, [tuple(factors[text] for text in term) for term in terms])

    groups = tuple(
        _effects(parsed, schema, group, block(group.intercept, group.terms, of_groups=True))
        for group in parsed.groups
    )
    names = {factor.column for effects in groups for factor in effects.by}
    names |= {column for factor in factors.values() for column in factor.columns}
    used = {name: column for name, column in schema.columns.items() if name in names}
    return Design(
        parsed, Schema(used) if used else None, block(parsed.intercept, parsed.terms), groups
    )


def _check_alone(
    parsed: Parsed, factors: Mapping[str, Factor], terms: Iterable[tuple[str, ...]], of_groups: bool
) -> None:
    """:raises ArgumentError: for a curve in an interaction, or one for each group."""
    for term in terms:
        alone = [text for text in term if getattr(factors[text], "stands_alone", False)]
        if alone and (of_groups or len(term) > 1):
            where = "in a term of groups" if of_groups else "in an interaction"
            raise refused(
                parsed.text,
                f"has {alone[0]} {where}: write it as a term by itself, which all groups and "
                f"levels share, as in {alone[0]} + C(g).",
            )


def _with_indicators(parsed: Parsed, schema: Schema) -> Parsed:
    """The formula with ``missing(x)`` for each column of numbers that it uses and that may be
    missing, as declared.
    """
    used = {text: factor.columns for text, factor in factors_of(parsed, schema).items()}
    names = dict.fromkeys(name for term in parsed.terms for text in term for name in used[text])
    identifiers = {name: identifier for identifier, name in parsed.quoted.items()}
    texts = [
        f"missing({identifiers.get(name, name)})"
        for name in names
        if getattr(schema.columns[name], "missing", False)
    ]
    return replace(
        parsed, terms=tuple(dict.fromkeys((*parsed.terms, *((text,) for text in texts))))
    )


def _effects(parsed: Parsed, schema: Schema, group: Group, block: Block) -> Effects:
    names = [parsed.quoted.get(name, name) for name in group.by]
    factors = []
    for name in names:
        levels = level_names(schema.columns[name]) if name in schema.columns else None
        if levels is None:
            raise refused(
                parsed.text,
                f"has groups of {name}, whose names must be public: declare them, as in "
                f"schema={{{name!r}: ['a', 'b']}}.",
            )
        factors.append(Levels(name, name, levels, 0))
    count = math.prod(len(factor.labels) for factor in factors)
    if count > _MOST_GROUPS:
        raise refused(
            parsed.text,
            f"has {count} groups of {':'.join(names)}; at most {_MOST_GROUPS} are possible.",
        )
    labels = factors[0].labels
    for factor in factors[1:]:
        labels = tuple(f"{label}:{level}" for label in labels for level in factor.labels)
    return Effects(":".join(names), labels, tuple(factors), block)
