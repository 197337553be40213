"""What a fit of one release takes sums of, and the posterior that follows from them: of a linear
regression, and of a whole table.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from workbench.clipping.separation import PrivacyModelError
from workbench.data import Dataset
from workbench.fitting.posterior import functions_of
from workbench.models.joint_cells import cells_of, codes_of
from workbench.models.model import CellTable, LinearPredictor, NormalResiduals, NormalTable
from workbench.posterior import gram_chain, joint_cells, joint_normal, statistics
from workbench.posterior.cell_tree import Cells
from workbench.posterior.joint_normal import NormalWishart
from workbench.posterior.statistics import LinearGaussian
from workbench.privacy.calibration import noise_multiplier
from workbench.record_model.model import RecordModel

__all__ = [
    "LEARNED",
    "UNIFORM",
    "Draws",
    "OfCells",
    "OfRegression",
    "OfTable",
    "Sums",
    "is_better",
    "of_regression",
    "of_table",
    "usual_norm",
]

# of one column on average, from which on records weigh less: 1 / 3 if it is uniform within its
# bounds
_SQUARE = 0.4
# N epsilon / columns, its cube root, from which on there is so little noise that all weights are 1
_ENOUGH = 20.0

_NAMED = 3  # of the places where noise hides cells

Draws = dict[str, np.ndarray]  # of all sites, ``{site: array[draws, ...]}``


class Sums(ABC):
    """Sums over all records, and what follows from them. Of a whole table one release is all: its
    records have one norm, and nothing is clipped.
    """

    @abstractmethod
    def model(self, clip: float) -> Callable[..., None]:
        """The NumPyro model whose gradient is minus a record's statistic, of norm ``clip`` at
        most.
        """

    @abstractmethod
    def prior(self, count: int, generator: np.random.Generator, key: jax.Array) -> Draws:
        """Draws before there is a release."""

    @abstractmethod
    def posterior(
        self,
        released: np.ndarray,
        clip: float,
        deviation: float,
        count: int,
        generator: np.random.Generator,
    ) -> tuple[Draws, str]:
        """Draws given the noised sums, and "" or what is wrong with them."""

    @property
    @abstractmethod
    def smallest_norm(self) -> float:
        """The least C that the statistics can have."""

    def norm(self, data: Dataset, num_records: int, epsilon: float) -> float:
        """C by default, from public facts."""
        return self.smallest_norm

    def are_better(
        self, data: Dataset, num_records: int, epsilon: float, delta: float, learns_scales: bool
    ) -> bool:
        """Whether they are chosen by default rather than steps, from public facts."""
        return True


def of_regression(
    model: RecordModel, linear: LinearPredictor, residuals: NormalResiduals
) -> OfRegression:
    """:raises PrivacyModelError: if the model is not what it declares."""
    sites = linear.weights, linear.intercept, residuals.scale
    regression = statistics.linear_gaussian(model, *sites, residuals.bounds)
    return OfRegression(int(model.blank_record[0].shape[0]), sites, residuals, regression)


def of_table(
    model: RecordModel, table: NormalTable | CellTable, constants: Mapping[str, Any]
) -> OfTable | OfCells:
    """:param constants: of the ``Model``. :raises PrivacyModelError: for too many columns."""
    if isinstance(table, CellTable):
        levels = constants["levels"]
        return OfCells(model, cells_of(levels, constants["cliques"]), levels, table.site)
    columns = int(model.blank_record[0].shape[0])
    if columns > joint_normal.LARGEST:
        raise PrivacyModelError(f"it has more than {joint_normal.LARGEST} columns")
    return OfTable(model, columns, table)


def _doubt(drawn: gram_chain.Draws | joint_normal.Draws | joint_cells.Draws) -> str:
    if drawn.spread <= gram_chain.SETTLED:
        return ""
    return f"its Markov chains have not settled (R-hat {drawn.spread:.2f})"


class Spread(NamedTuple):
    """How records are taken to fill their bounds.

    :param square: the mean square of a column. :param residual: standard deviation of the
        residuals, in halves of the target's range.
    """

    square: float
    residual: float


UNIFORM = Spread(1 / 3, 0.1)
LEARNED = Spread(0.09, 0.15)  # normal ones within scales that a look learned


@dataclass(frozen=True, eq=False)
class OfRegression(Sums):
    """The sums of a linear regression.

    :param features: D. :param of_site: the sites of weights, intercept (or "") and scale.
    :param residuals: as the model declares them. :param regression: its priors.
    """

    features: int
    of_site: tuple[str, str, str]
    residuals: NormalResiduals
    regression: LinearGaussian
    smallest_norm = statistics.SMALLEST_NORM

    def model(self, clip: float) -> Callable[..., None]:
        return statistics.model_of(self.features, clip, self.residuals.bounds)

    def prior(self, count: int, generator: np.random.Generator, key: jax.Array) -> Draws:
        prior = self.regression.prior
        normals = generator.standard_normal((count, len(prior.mean)))
        coefficients = prior.mean + normals / np.sqrt(prior.precision)
        return self._by_site(coefficients, self.regression.scale.sample(key, (count,)))

    def posterior(
        self,
        released: np.ndarray,
        clip: float,
        deviation: float,
        count: int,
        generator: np.random.Generator,
    ) -> tuple[Draws, str]:
        sums = statistics.sums_in(released, clip, deviation)
        drawn = gram_chain.draw(sums, self.regression, count, generator)
        return self._by_site(drawn.coefficients, drawn.scale), _doubt(drawn)

    def _by_site(self, coefficients: np.ndarray, scale: Any) -> Draws:
        weights, intercept, width = self.of_site
        by_site = {weights: coefficients[:, : self.features], width: np.asarray(scale)}
        if intercept:
            by_site[intercept] = coefficients[:, -1]
        return {name: np.asarray(by_site[name], np.float32) for name in sorted(by_site)}

    def _squares(self, data: Dataset) -> float:
        """The largest |x|^2 of a record, by declared bounds."""
        if self.residuals.squares is not None:
            return self.residuals.squares
        return self.features if data.schema is None else len(data.schema.columns)

    def norm(self, data: Dataset, num_records: int, epsilon: float) -> float:
        return usual_norm(self._squares(data), num_records, epsilon)

    def are_better(
        self, data: Dataset, num_records: int, epsilon: float, delta: float, learns_scales: bool
    ) -> bool:
        spread = LEARNED if learns_scales else UNIFORM
        return is_better(self._squares(data), num_records, epsilon, delta, spread)


@dataclass(frozen=True, eq=False)
class OfTable(Sums):
    """The moments of a table of numbers.

    :param record_model: the user's, split by records. :param columns: D. :param of_site: the sites.
    """

    record_model: RecordModel
    columns: int
    of_site: NormalTable
    density = NormalWishart()

    @property
    def smallest_norm(self) -> float:
        return joint_normal.norm_of(self.columns)

    def model(self, clip: float) -> Callable[..., None]:
        return joint_normal.model_of(self.columns)

    def prior(self, count: int, generator: np.random.Generator, key: jax.Array) -> Draws:
        return self._by_site(
            *joint_normal.prior_draws(self.columns, self.density, count, generator)
        )

    def posterior(
        self,
        released: np.ndarray,
        clip: float,
        deviation: float,
        count: int,
        generator: np.random.Generator,
    ) -> tuple[Draws, str]:
        drawn = joint_normal.draw(released, deviation, self.density, count, generator)
        return self._by_site(drawn.mean, drawn.covariance), _doubt(drawn)

    def _by_site(self, mean: np.ndarray, covariance: np.ndarray) -> Draws:
        rows, columns = np.tril_indices(self.columns)
        latents = {
            self.of_site.mean: np.asarray(mean, np.float32),
            self.of_site.root: np.linalg.cholesky(covariance)[:, rows, columns].astype(np.float32),
        }
        return _with_functions(self.record_model, latents)


@dataclass(frozen=True, eq=False)
class OfCells(Sums):
    """The marginals of a table of levels.

    :param record_model: the user's, split by records. :param cells: of the marginals.
    :param levels: of each column, as ``mixed_table`` has them. :param site: of the probabilities.
    """

    record_model: RecordModel
    cells: Cells
    levels: Sequence[Mapping[str, Any]]
    site: str

    @property
    def smallest_norm(self) -> float:
        return joint_cells.norm_of(self.cells)

    def model(self, clip: float) -> Callable[..., None]:
        return joint_cells.model_of(self.cells, functools.partial(codes_of, self.levels))

    def prior(self, count: int, generator: np.random.Generator, key: jax.Array) -> Draws:
        return self._by_site(joint_cells.prior_draws(self.cells, count, generator))

    def posterior(
        self,
        released: np.ndarray,
        clip: float,
        deviation: float,
        count: int,
        generator: np.random.Generator,
    ) -> tuple[Draws, str]:
        drawn = joint_cells.draw(released, deviation, self.cells, count, generator)
        leans = joint_cells.leaning(drawn, released, deviation, self.cells)
        crowds = self._words_on_crowds(joint_cells.crowded(drawn, self.cells))
        doubts = filter(None, (_doubt(drawn), self._words_on(leans), crowds))
        return self._by_site(drawn.cells), "; ".join(doubts)

    def _words_on(self, leans: Sequence[joint_cells.Leaning]) -> str:
        """That noise hides cells, with the first ones."""
        if not leans:
            return ""
        names = [
            " x ".join(self.levels[index]["name"] for index in clique)
            + (f" with {self.levels[column]['name']} = {self.levels[column]['labels'][level]}")
            * (column >= 0)
            for clique, column, level in leans
        ]
        return (
            f"too few records are in the cells of {_first_of(names)}. The prior, "
            "under which cells are alike, moves what adds up many of them, such as a mean or a "
            "survival curve, by much of its standard deviation; take fewer bins or smaller "
            "marginals"
        )

    def _words_on_crowds(self, crowds: Sequence[tuple[int, int]]) -> str:
        """That nearly all records are in one bin, with the first columns."""
        if not crowds:
            return ""
        names = [
            f"{self.levels[column]['name']} ({self.levels[column]['labels'][level]})"
            for column, level in crowds
        ]
        return (
            f"most records are in one bin of {_first_of(names)}. Shares of that bin and of the "
            "others may be off by more than their intervals say; put edges where records are, with "
            "bins="
        )

    def _by_site(self, cells: np.ndarray) -> Draws:
        return _with_functions(self.record_model, {self.site: np.asarray(cells, np.float32)})


def _first_of(names: Sequence[str]) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
    return f"{', '.join(names[:_NAMED])}{more}"


def _with_functions(model: RecordModel, latents: Draws) -> Draws:
    """Draws of latents, with those of the deterministic sites of a model."""
    trace = model.model_trace(
        {name: values[0] for name, values in latents.items()}, jax.random.key(0)
    )
    functions = [name for name, site in trace.items() if site["type"] == "deterministic"]
    return latents | functions_of(model, functions, latents)


def usual_norm(squares: float, num_records: int, epsilon: float) -> float:
    """C, from public facts: for R a little above |z|^2 of uniform columns, up to its largest where
    there is hardly noise.

    :param squares: the largest |x|^2.
    """
    signal = (num_records * epsilon / max(squares, 1)) ** (1 / 3) / _ENOUGH
    return statistics.Scales.norm_for(1 + squares * min(1.0, max(_SQUARE, signal)))


def is_better(
    squares: float, num_records: int, epsilon: float, delta: float, spread: Spread = UNIFORM
) -> bool:
    """The rule of the default, from public facts: the noise of the sums moves a weight no further
    than the records do.

    For columns of a mean square v the noise has a standard deviation of sigma C / (sqrt(2) v b N)
    in a weight, and least squares one of sqrt(1 / (v N)) times the residuals'.
    """
    clip = usual_norm(squares, num_records, epsilon)
    sigma = noise_multiplier(epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=1)
    target = statistics.Scales.of(clip).target
    noise = sigma * clip / (math.sqrt(2) * spread.square * target * num_records)
    return noise <= spread.residual / math.sqrt(spread.square * num_records)
