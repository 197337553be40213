"""From terms to columns: how categories are coded, and which numbers may be moved to the middle of
their bounds.

Categories are coded so that the columns of all terms together have full rank and span what the
terms mean, by the algorithm that patsy documents: every term stands for the interactions of all
subsets of its categories; those that earlier terms have are left out, and the rest is put together
again with as few columns as possible.

A number x is scaled to s x + t. If t is not 0, a term with x then contains multiples of the same
term without x. So t is used only if the columns of that term are present too: "y ~ 0 + x" is a line
through the origin of x in its own units.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from workbench.data.preprocessing import level_words, listed
from workbench.formula.factors import Factor, Levels, Number, Values
from workbench.formula.geometry import Residual, mixture

__all__ = ["Block", "Part", "block_of"]

Form = Literal["own", "scaled", "fitted"]

_Subset = frozenset[str]
_TIMES = " \N{MULTIPLICATION SIGN} "


class Part(NamedTuple):
    """One column of a factor: its number, or the number of a level. :param scale: s. :param shift:
    t.
    """

    factor: str
    entry: int
    scale: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True, eq=False)
class Block:
    """The columns of some terms. Every value is in [-1, 1] and follows from one row and
    declarations.

    Columns have three forms: in their own units; scaled; and as they are fitted, where
    ``residuals`` replace some.

    :param intercept: whether there is one; it is no column.
    :param has_constant: whether a constant is an intercept or a combination of columns, as of those
        of all levels.
    :param columns: each the product of its parts. :param factors: by name.
    :param terms: the numbers of the columns of each term, by its name.
    :param residuals: of scaled columns that those before them nearly give, by their numbers.
    """

    intercept: bool
    has_constant: bool
    columns: tuple[tuple[Part, ...], ...]
    factors: Mapping[str, Factor]
    terms: Mapping[str, tuple[int, ...]]
    residuals: Mapping[int, Residual] = field(default_factory=dict)

    @property
    def numbers(self) -> frozenset[int]:
        """The columns that are not made of zeros and ones alone, and that others may replace: those
        of smooths have a prior of their own.
        """
        has_numbers = {
            name: isinstance(factor, Number) and not (factor.is_truth or factor.scales)
            for name, factor in self.factors.items()
        }
        columns = enumerate(self.columns)
        return frozenset(
            index
            for index, components in columns
            if any(has_numbers[component.factor] for component in components)
        )

    @property
    def curves(self) -> dict[str, dict[int, float]]:
        """Of each smooth, the numbers of the columns whose weights have a common scale, and what
        multiple of it is theirs.
        """
        scales = {
            name: factor.scales
            for name, factor in self.factors.items()
            if isinstance(factor, Number) and factor.scales
        }
        return {
            name: {
                index: scale
                for index, scale in zip(self.terms[name], of_columns, strict=True)
                if scale
            }
            for name, of_columns in scales.items()
        }

    @property
    def monotone(self) -> dict[str, tuple[int, ...]]:
        """Of each monotone effect, the numbers of its columns."""
        return {
            name: self.terms[name]
            for name, factor in self.factors.items()
            if isinstance(factor, Number) and factor.steps
        }

    @property
    def mixture(self) -> np.ndarray:
        """float64[1 + P, 1 + P]: (1, scaled columns) times this are (1, fitted columns)."""
        return mixture(self.residuals, len(self.columns))

    @property
    def names(self) -> tuple[str, ...]:
        """Such as "age", "ward=b", "age:ward=b"."""
        return tuple(
            ":".join(self._label(component) for component in column) for column in self.columns
        )

    def _label(self, component: Part) -> str:
        factor = self.factors[component.factor]
        return (
            f"{factor.column}={factor.labels[component.entry]}"
            if isinstance(factor, Levels)
            else factor.labels[component.entry]
        )

    def contrasts(self) -> list[str]:
        """What a weight in own units compares, in words."""
        return [
            _TIMES.join(self._words(component) for component in column) for column in self.columns
        ]

    def _words(self, component: Part) -> str:
        factor = self.factors[component.factor]
        if isinstance(factor, Number):
            return factor.steps[component.entry] if factor.steps else "1 more"
        labels = factor.labels
        return (
            f"{level_words(labels[component.entry])} against {labels[factor.reference]}"
            if component.entry != factor.reference
            else labels[component.entry]
        )

    def fitted_words(self, index: int) -> str:
        """What the weight of a fitted column is of: the step of the column that 1 of it is."""
        if index in self.residuals:
            regressors = [self.names[regressor] for regressor in self.residuals[index].weights]
            return f"the most that it adds to {listed(regressors or ['the intercept'])}"
        words = []
        for component in self.columns[index]:
            factor = self.factors[component.factor]
            words.append(
                self._words(component)
                if isinstance(factor, Levels) or factor.steps
                else f"{1 / component.scale:g} more"
            )
        return _TIMES.join(words)

    def encode(
        self, values: Values, *, form: Form = "fitted", dtype: type = np.float32
    ) -> np.ndarray:
        """[N, P]. :param form: of the columns."""
        used = {component.factor for column in self.columns for component in column}
        made = {
            name: self._made(self.factors[name], values) for name in self.factors if name in used
        }
        replaced = self.residuals if form == "fitted" else {}
        encoded: np.ndarray = np.empty(
            (values.rows, len(self.columns)), np.float64 if replaced else dtype
        )
        for index, column in enumerate(self.columns):
            product = np.ones(values.rows)
            for component in column:
                factor, column_values = self.factors[component.factor], made[component.factor]
                if isinstance(factor, Levels):
                    product = product * (column_values == component.entry)
                elif form == "own":
                    product = product * column_values[:, component.entry]
                else:
                    product = product * np.clip(
                        component.scale * column_values[:, component.entry] + component.shift, -1, 1
                    )
            encoded[:, index] = product
        for index, residual in replaced.items():
            encoded[:, index] = residual.of(encoded, index)
        return encoded.astype(dtype, copy=False)

    @staticmethod
    def _made(factor: Factor, values: Values) -> np.ndarray:
        return (
            values.levels[factor.column] if isinstance(factor, Levels) else factor.compute(values)
        )


def block_of(intercept: bool, terms: Sequence[tuple[Factor, ...]]) -> Block:
    """The columns of ``terms``, which come after the intercept in this order."""
    terms = list({frozenset(factor.name for factor in term): term for term in terms}.values())
    spanned: dict[_Subset, set[_Subset]] = {frozenset(): {frozenset()}} if intercept else {}
    codings = [_codings(term, spanned) for term in terms]  # which fills ``spanned``
    columns: list[tuple[Part, ...]] = []
    of_term = {}
    for term, (news, coded) in zip(terms, codings, strict=True):
        shifted, first = _shifted(term, news, spanned), len(columns)
        for is_full in coded:
            factors = [
                factor for factor in term if isinstance(factor, Number) or factor.name in is_full
            ]
            choices = [
                _parts(factor, is_full.get(factor.name, True), shifted) for factor in factors
            ]
            # the first factor varies fastest, as in R
            columns += [
                tuple(reversed(components)) for components in itertools.product(*reversed(choices))
            ]
        of_term[":".join(factor.name for factor in term)] = tuple(range(first, len(columns)))
    by_name = {factor.name: factor for term in terms for factor in term}
    has_constant = frozenset() in spanned.get(frozenset(), ())
    return Block(intercept, has_constant, tuple(columns), by_name, of_term)


def _parts(factor: Factor, is_full: bool, shifted: set[str]) -> list[Part]:
    if isinstance(factor, Levels):
        return [
            Part(factor.name, entry)
            for entry in range(len(factor.labels))
            if is_full or entry != factor.reference
        ]
    components = []
    for entry, (low, high) in enumerate(factor.bounds.tolist()):
        if factor.name in shifted and high > low:
            reach = high / 2 - low / 2
            components.append(Part(factor.name, entry, 1 / reach, -(high / 2 + low / 2) / reach))
        else:
            components.append(Part(factor.name, entry, 1 / (max(abs(low), abs(high)) or 1.0)))
    return components


def _shifted(
    term: tuple[Factor, ...], news: set[_Subset], spanned: Mapping[_Subset, set[_Subset]]
) -> set[str]:
    """The numbers of a term that may be moved. Polynomials and splines stay as they are."""
    numbers = frozenset(factor.name for factor in term if isinstance(factor, Number))

    def without(names: _Subset) -> bool:
        """Whether the term without these is there too."""
        return news <= spanned.get(numbers - names, set())

    single = [
        variable.name
        for variable in term
        if isinstance(variable, Number) and len(variable.labels) == 1 and not variable.is_truth
    ]
    movable = [name for name in single if without(frozenset([name]))]
    pairs = itertools.chain.from_iterable(
        itertools.combinations(movable, size) for size in range(2, len(movable) + 1)
    )
    return set(movable) if all(without(frozenset(names)) for names in pairs) else set()


def _codings(
    term: tuple[Factor, ...], spanned: dict[_Subset, set[_Subset]]
) -> tuple[set[_Subset], list[dict[str, bool]]]:
    """(the interactions that the term adds, its codings ``{category: whether all its levels have
    columns}``).

    :param spanned: by the numbers of a term, the interactions of categories that are there; those
        of ``term`` are added.
    """
    numbers = frozenset(factor.name for factor in term if isinstance(factor, Number))
    categories = [factor.name for factor in term if isinstance(factor, Levels)]
    covered = spanned.setdefault(numbers, set())
    subsets = [
        frozenset(subset)
        for size in range(len(categories) + 1)
        for subset in itertools.combinations(categories, size)
    ]
    news = [subset for subset in subsets if subset not in covered]
    covered.update(news)
    coded: list[dict[str, bool]] = [dict.fromkeys(subset, False) for subset in news]
    while (pair := _absorbing(coded)) is not None:
        short, long = pair
        extra = next(name for name in long if name not in short)
        long[extra] = True
        coded.remove(short)
    order = {name: position for position, name in enumerate(categories)}
    return set(news), [
        dict(sorted(coding.items(), key=lambda item: order[item[0]])) for coding in coded
    ]


def _absorbing(coded: list[dict[str, bool]]) -> tuple[dict[str, bool], dict[str, bool]] | None:
    """Two codings of which the second has one more category, with contrasts: with all levels it is
    both.
    """
    for short, long in itertools.permutations(coded, 2):
        extra = [name for name in long if name not in short]
        same = all(long.get(name) == is_full for name, is_full in short.items())
        if len(extra) == 1 and same and not long[extra[0]]:
            return short, long
    return None
