"""Noised sums of products of a regression's columns, which a look of the run takes beside its
counts: what it learns of how the columns go together.

A row of the design becomes v = (1, u), where u are its columns in deviations that the scales
expect. A record adds its products v_i v_j, i <= j, times min(1, S / |v|^2), those of two different
columns times the square root of 2: a vector of norm |v|^2 or S, whichever is less. So it moves the
sums by at most S. The rows of a person weigh 1 together. What is added is whole spacings, rounded
towards 0, which makes no vector longer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax
import numpy as np

from workbench.data.counting import deviation, spacings, spacings_of_rows, with_noise
from workbench.data.dataset import Dataset
from workbench.data.look import PRODUCTS, Products, Standard
from workbench.inference.state import Purpose
from workbench.models import Model
from workbench.privacy.accounting import round_up
from workbench.privacy.calibration import gaussian_mu
from workbench.privacy.steps import SENSITIVITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.data.look import Scales
    from workbench.fitting.spec import FitSpec

__all__ = [
    "divided",
    "most_products",
    "parts_of",
    "share_with_products",
    "sums_of",
    "with_products",
]

MOST_COLUMNS = 40  # of more, noise hides how they go together
_OF_LOOK = 1 / 3  # of its budget
_USUAL, _FURTHER = 1.5, 3.0  # S, in columns and beside them
# noise in a direction, in mean squares of a column, from which on it hides how columns go together.
# For N = 5000 and epsilon 1 it is .16 of ten columns and .28 of fifteen. With correlations of .5
# products made intervals of ten a fifth as wide and of fifteen half, and errors of ten .8 of
# what they were. With .9 intervals of ten stayed as wide, and errors rose from 2.6 standard errors
# to 4.2.
_HIDDEN = 0.3
_HIDDEN_AFTER = 0.5  # the same where records were left out, or levels came to the columns
_ROWS, _FAR = 20_000, 1e100  # at once; the farthest value, whose square is finite


def share_with_products(
    share: float, model: Model, num_records: int, epsilon: float, delta: float, relation: str
) -> float:
    """The default share of a fit's budget for a look, from public facts.

    :param share: for its counts alone. :param num_records: of the fit, as all others.
    """
    if not share:
        return share
    total = share / (1 - _OF_LOOK)
    noise = SENSITIVITY[relation] / (gaussian_mu(epsilon, delta) * math.sqrt(total))
    return total if divided(noise, model, num_records)[1] else share


def divided(noise_multiplier: float, model: Model, num_records: int) -> tuple[float, float]:
    """The noise multipliers of counts and of products, which together are one release of
    ``noise_multiplier``; that of products is 0 where there are none, or noise would hide them.

    :param num_records: N, which is public.
    """
    standard = model.standard if model.learns_products else None
    if standard is None:
        return noise_multiplier, 0.0
    of_counts, of_products = (
        round_up(noise_multiplier / math.sqrt(fraction), 4) for fraction in (1 - _OF_LOOK, _OF_LOOK)
    )
    columns = len(standard.means)
    in_a_direction = of_products * _sensitivity(columns) / num_records * math.sqrt(columns)
    if columns > MOST_COLUMNS or in_a_direction > _HIDDEN:
        return noise_multiplier, 0.0
    return of_counts, of_products


def parts_of(spec: FitSpec, noise_multiplier: float) -> tuple[float, float]:
    """Those of ``divided``, of the look of a fit."""
    return divided(noise_multiplier, spec.model, spec.privacy.num_records)


def _sensitivity(columns: int) -> float:
    """S of the products of this number of columns."""
    return 1 + _USUAL * columns + _FURTHER


def most_products(model: Model) -> int:
    """How many sums are released at most."""
    return (MOST_COLUMNS + 1) * (MOST_COLUMNS + 2) // 2 if model.learns_products else 0


def with_products(
    fit: FitSpec, noise_multiplier: float, key: jax.Array, again: Callable[[Scales], FitSpec]
) -> FitSpec:
    """A fit on learned scales with what its records say of products of columns.

    :param noise_multiplier: of ``divided``. :param key: of the run, whose child for this purpose
        nothing else uses. :param again: makes the fit of other scales.
    """
    standard = fit.model.standard if noise_multiplier else None
    if standard is None or not 2 <= len(standard.means) <= MOST_COLUMNS:
        return fit
    columns = len(standard.means)
    sensitivity = _sensitivity(columns)
    per_record = spacings(noise_multiplier, sensitivity)
    if not per_record:
        return fit
    sums = sums_of(fit.data, standard, sensitivity, 0 if fit.is_vacant else per_record)
    child = jax.random.fold_in(key, Purpose.PRODUCTS)
    noised = with_noise(sums, per_record, child)
    count, error = float(noised[0]), deviation(per_record)
    if error * math.sqrt(columns) > _HIDDEN_AFTER * count:
        return fit
    first, second = np.triu_indices(columns + 1)
    matrix = np.zeros((columns + 1, columns + 1))
    matrix[first, second] = noised / np.where(first == second, 1.0, math.sqrt(2)) / count
    matrix = np.triu(matrix) + np.triu(matrix, 1).T
    products = Products(*standard, matrix.tolist(), error / count)
    return again({**fit.scales, PRODUCTS: products})


def sums_of(data: Dataset, standard: Standard, sensitivity: float, per_record: int) -> np.ndarray:
    """int64[products]: sums over the training records, in spacings, without noise.

    :param sensitivity: S. :param per_record: spacings that 1 is.
    """
    x, of_row = data.train[data.arrays.index("x")], spacings_of_rows(data, per_record)
    first, second = np.triu_indices(x.shape[1] + 1)
    doubled = np.where(first == second, 1.0, math.sqrt(2))
    total = np.zeros(len(first), np.int64)
    for start in range(0, len(x), _ROWS):
        chunk = slice(start, start + _ROWS)
        u = (np.asarray(x[chunk], np.float64) - standard.means) / standard.deviations
        v = np.clip(np.nan_to_num(np.column_stack([np.ones(len(u)), u])), -_FAR, _FAR)
        weights = of_row[chunk] * np.minimum(1.0, sensitivity / np.square(v).sum(axis=1))
        vectors = v[:, first] * v[:, second] * doubled * weights[:, None]
        total += np.trunc(vectors).astype(np.int64).sum(axis=0)
    return total
