"""How large the squares of a design's columns are, at most and on average, by what a look has
released and by declarations.

The curvature of the likelihood in a weight is in proportion to their means, so these tell which
weights hardly any record speaks of. Columns of the table are taken to be independent, and numbers
to be normal within their learned scale. Of what no look has counted, numbers are uniform within
their bounds and levels equally likely.

Shares of levels are not sure: those that were counted through noise, and more so the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri

from workbench.data.columns import Column, Numeric
from workbench.data.look import PRODUCTS, Products, Scale, Scales, Shares, Standard
from workbench.data.schema import Schema
from workbench.formula.coding import Block
from workbench.formula.design import Design
from workbench.formula.factors import Factor, Levels, Number, Values, level_names

__all__ = [
    "SecondMoments",
    "fillings",
    "hidden_references",
    "largest",
    "second_moments",
    "standard",
]

_LEAST = 1e-6  # of a column that is 0 nearly everywhere
_ROWS = 4096  # made-up ones
_DRAWS = 17  # of shares of levels, of which all have the same scores
# standard deviations of the logarithm of a share: beyond which records are hidden, and of a level
# that nobody has counted
_HIDDEN, _UNCOUNTED = 0.5, 1.0
_TRUTHS = {"False": "no", "True": "yes"}  # as looks count them
# of measured products, in standard units: what they may be before they are measured, and how small
# in a direction, in units of what noise does to it
_OF_SQUARES, _OF_CORRELATIONS = 0.5, 0.4
_SEEN, _FLOORS = 0.25, (0.2, 2.0)
_FARTHEST = 4.0  # standard deviations of a standard column
_TAILS = 0.003  # of the largest density, which is everywhere: columns have longer tails than normal


class SecondMoments(NamedTuple):
    """Mean products of the columns of a design with each other.

    :param draws: float64[draws, B, B], of an intercept, those of x, and those of each group's
        effects, group by group. As many as show how sure they are.
    :param are_measured: whether those of x come from products of the records' columns.
    """

    draws: np.ndarray
    are_measured: bool


def second_moments(design: Design, learned: Scales) -> SecondMoments:
    """Those that were learned, and of what was not those that are supposed.

    :param learned: by column of the table.
    """
    values = design.spread_out(_ROWS)
    draws = _supposed(design, learned, *_columns(design, values), values)
    products = learned.get(PRODUCTS)
    width = 1 + len(design.block.columns)
    if not isinstance(products, Products) or list(products.names) != list(design.block.names):
        return SecondMoments(draws, False)
    measured = _measured(products)
    means = draws[:, 0, :].copy()
    covariances = draws - means[:, :, None] * means[:, None]
    means[:, :width] = measured[:, 0, :]
    centred = measured - measured[:, 0, :, None] * measured[:, 0, None]
    covariances[:, :width, :width] = centred
    return SecondMoments(covariances + means[:, :, None] * means[:, None], True)


def _measured(products: Products) -> np.ndarray:
    """Draws of mean products of the intercept and the columns of x, float64[draws, W, W], by
    what noise leaves open. Before the look, correlations may be any.
    """
    noised = np.array(products.matrix)
    width, generator = len(noised), np.random.default_rng(0)
    is_diagonal = np.eye(width, dtype=bool)
    errors = np.where(is_diagonal, products.error, products.error / math.sqrt(2))
    before = np.where(is_diagonal, _OF_SQUARES, _OF_CORRELATIONS)
    weights = before**2 / (before**2 + errors**2)
    expected = weights * noised + (1 - weights) * is_diagonal
    deviations = np.sqrt(weights) * errors
    least = _SEEN * float(deviations.mean()) * math.sqrt(width)
    back = np.diag([1.0, *products.deviations])
    back[1:, 0] = products.means
    draws = []
    for _ in range(_DRAWS):
        normals = np.triu(generator.normal(size=(width, width)))
        possible = expected + deviations * (normals + np.triu(normals, 1).T)
        values, vectors = np.linalg.eigh(possible)
        floor = np.maximum(least * generator.uniform(*_FLOORS, size=width), _LEAST)
        drawn = (vectors * np.maximum(values, floor)) @ vectors.T
        draws.append(back @ (drawn / drawn[0, 0]) @ back.T)
    return np.array(draws)


def standard(design: Design, learned: Scales) -> Standard:
    """How the columns of x become standard ones, by what is supposed of them; none is further than
    four deviations from its mean.
    """
    values = design.spread_out(_ROWS)
    columns, names = _columns(design, values)
    width = 1 + len(design.block.columns)
    moments = _supposed(design, learned, columns, names, values).mean(axis=0)[:width, :width]
    means = moments[0, 1:]
    deviations = np.sqrt(np.maximum(np.diag(moments)[1:] - means**2, _LEAST))
    farthest = np.abs(columns[:, 1:width] - means).max(axis=0, initial=0.0)
    deviations = np.maximum(deviations, farthest / _FARTHEST)
    return Standard(list(design.block.names), means.tolist(), deviations.tolist())


def _supposed(
    design: Design,
    learned: Scales,
    columns: np.ndarray,
    names: list[frozenset[str]],
    values: Values,
) -> np.ndarray:
    """Mean products where columns of the table are independent, float64[draws, B, B].

    :param columns: of ``_columns``. :param names: of ``_columns``.
    """
    declared = {} if design.schema is None else design.schema.columns
    uses = np.array([[name in of_column for name in declared] for of_column in names], int)
    components = connected_components(uses @ uses.T)[1]
    draws = []
    for draw in range(_DRAWS):
        means = np.zeros(len(names))
        covariances = np.zeros((len(names), len(names)))
        for component in np.unique(components):
            chosen = np.flatnonzero(components == component)
            used = frozenset().union(*(names[index] for index in chosen))
            weights = _weights(used, declared, values, learned, draw)
            together = columns[:, chosen]
            means[chosen] = mean = weights @ together
            products = (weights[:, None] * together).T @ together
            covariances[np.ix_(chosen, chosen)] = products - np.outer(mean, mean)
        draws.append(covariances + np.outer(means, means))
    return np.array(draws)


def _columns(design: Design, values: Values) -> tuple[np.ndarray, list[frozenset[str]]]:
    """(float64[N, B], of the table's columns those that each follows from)."""
    ones = np.ones((values.rows, 1))
    columns = [ones, design.block.encode(values, dtype=np.float64)]
    names = [frozenset[str](), *_names(design.block)]
    for effects in design.groups:
        encoded = effects.block.encode(values, dtype=np.float64)
        slopes = np.hstack([ones[:, : effects.block.intercept], encoded])
        is_of = effects.index(values)[:, None] == np.arange(len(effects.labels))
        columns.append((is_of[:, :, None] * slopes[:, None]).reshape(values.rows, -1))
        by = frozenset(factor.column for factor in effects.by)
        of_slopes = [by] * effects.block.intercept + [by | used for used in _names(effects.block)]
        names += of_slopes * len(effects.labels)
    return np.hstack(columns), names


def _names(block: Block) -> list[frozenset[str]]:
    names = list[frozenset[str]]()
    for index, column in enumerate(block.columns):
        used = (block.factors[component.factor].columns for component in column)
        regressors = block.residuals[index].weights if index in block.residuals else ()
        names.append(frozenset().union(*used, *(names[regressor] for regressor in regressors)))
    return names


def _weights(
    names: frozenset[str],
    declared: Mapping[str, Column],
    values: Values,
    learned: Scales,
    draw: int,
) -> np.ndarray:
    """float64[N], which add up to 1: the density of made-up rows in these columns of the table."""
    logarithm = np.zeros(values.rows)
    for name in names:
        scale = learned.get(name)
        if not isinstance(declared[name], Numeric):
            counted = scale.levels if isinstance(scale, Shares) else {}
            labels = level_names(declared[name]) or ()
            logarithm += _of_levels(counted, labels, draw)[values.levels[name]]
        elif isinstance(scale, Scale):
            squares = ((values.numbers[name] - scale.median) / scale.spread) ** 2
            logarithm += np.log(_TAILS + np.exp(-0.5 * squares))
    weights = np.exp(logarithm - logarithm.max())
    return weights / weights.sum()


def _of_levels(
    counted: Mapping[str, Sequence[float]], labels: Sequence[str], draw: int
) -> np.ndarray:
    """float64[levels], logarithms of shares: of all draws together as sure as they are."""
    count = len(labels)
    means, errors = np.transpose([_share(counted, label, count) for label in labels])
    scores = ndtri(((draw + np.arange(count)) % _DRAWS + 0.5) / _DRAWS)
    return np.log(np.maximum(means, _LEAST)) + errors * scores


def _share(counted: Mapping[str, Sequence[float]], label: str, num_levels: int) -> Sequence[float]:
    """Of a level, as ``Shares`` has it."""
    uncounted = 1 / num_levels, _UNCOUNTED
    return counted.get(label, counted.get(_TRUTHS.get(label, ""), uncounted))


def hidden_references(design: Design, learned: Scales) -> list[tuple[str, str, str]]:
    """Categories of whose reference level noise hides whether any record has it: (column,
    reference, the most frequent level; "" where that is hidden too).
    """
    hidden = []
    block = design.block
    entries = {component[:2] for column in block.columns for component in column}
    for factor in block.factors.values():
        if isinstance(factor, Levels) and isinstance(scale := learned.get(factor.column), Shares):
            per_level = [_share(scale.levels, label, len(factor.labels)) for label in factor.labels]
            is_hidden = per_level[factor.reference][1] > _HIDDEN
            if is_hidden and (factor.name, factor.reference) not in entries:
                frequent = np.argmax(per_level, axis=0)[0]
                advised = factor.labels[frequent] if per_level[frequent][1] <= _HIDDEN else ""
                hidden.append((factor.column, factor.labels[factor.reference], advised))
    return hidden


def fillings(schema: Schema, learned: Scales) -> dict[str, float]:
    """By column, the mean of its squares when scaled, in that of a uniform column."""
    bounds, of_columns = schema.bounds, {}
    for name, scale in learned.items():
        if name in bounds and isinstance(scale, Scale):
            low, high = bounds[name]
            square = scale.spread**2 + (scale.median - low / 2 - high / 2) ** 2
            of_columns[name] = min(1.0, 3 * square / (high / 2 - low / 2) ** 2)
    return of_columns


def largest(design: Design, fillings: Mapping[str, float] = MappingProxyType({})) -> float:
    """The largest sum of squares of a record's columns, with those of effects of groups.

    :param fillings: of columns whose scales were learned, as of ``fillings``: a column counts
        as much less as its squares are on average.
    """
    blocks = [effects.block for effects in design.groups]
    return sum(block.intercept for block in blocks) + sum(
        _square(block, indices, fillings)
        for block in (design.block, *blocks)
        for indices in block.terms.values()
    )


def _square(block: Block, indices: tuple[int, ...], fillings: Mapping[str, float]) -> float:
    """An upper bound of the sum of squares of a term's columns: products of columns that are 1
    together count. :param fillings: as of ``largest``.

    Of the columns with the same factors, such as the levels of a category, one is 1 in a row.
    """
    replaced = sum(index in block.residuals for index in indices)
    together = Counter(
        frozenset(component.factor for component in block.columns[index])
        for index in indices
        if index not in block.residuals
    )
    return replaced + sum(
        min(columns, math.prod(_ones(block.factors[name]) for name in names))
        * math.prod(_filled(block.factors[name], fillings) for name in names)
        for names, columns in together.items()
    )


def _filled(factor: Factor, fillings: Mapping[str, float]) -> float:
    if not isinstance(factor, Number) or factor.sums_to_one or factor.scales:
        return 1.0
    return max((fillings.get(name, 1.0) for name in factor.columns), default=1.0)


def _ones(factor: Factor) -> float:
    """To how many times 1 the squares of a factor's columns may add up in a row."""
    if isinstance(factor, Number) and factor.scales:
        return 0.5 + 0.3 * len(factor.labels)  # of a smooth, whose modes' mean squares are 1/4
    return len(factor.labels) if isinstance(factor, Number) and not factor.sums_to_one else 1
