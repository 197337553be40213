"""The one-shot release of marginals of a table of levels, and the posterior of its cells.

Each record is in one cell of each of M marginals, the tables of counts of some columns. The release
is the counts of all cells, with noise. A record's statistic has M ones, so its norm is

    C = sqrt(M),

and nothing is clipped. Noise and everything else are those of ``statistics``.

The marginals are the cliques of a decomposable model (Lauritzen 1996, section 4.4): the columns
that a clique shares with those before it, its separator, are all in one of them, its parent. Of all
tables with these marginals, the model's has the largest entropy: the product of the probabilities
of the first clique's cells and, for each other, of its cells given its separator. ``cell_tree``
divides the records of each separator in layers, first into levels and then into halves of what is
in order (a Polya tree, Lavine 1992). A group of K cells that divide the same has the prior

    shares ~ Dirichlet(a, ..., a)        for levels,        log a ~ Normal(-1, 1),
    shares ~ Beta(a w, a (2 - w))        for halves,        log a ~ Normal(0.5, 1.4),

with one a for each layer and w as wide as the first half is, so how many cells are rare is learned.
The log a of all halves of a clique have a correlation of 0.7: a column most of whose records are in
one bin is uneven in every layer, and deep layers alone cannot say so below the noise.

The prior knows that bins are neighbours, and that matters for whatever adds up many of them: one
Dirichlet distribution of all cells would learn that they are alike where they are nearly so, and
move means and cumulative shares to those of equal cells. Here each layer learns it for itself, and
the first layers, on which such sums depend, have little noise.

The counts without noise, s, are unknown. Given s and a, the probabilities are drawn exactly (Dawid
and Lauritzen 1993). So Markov chains (Hamiltonian ones, Neal 2011) move s and a alone. They move
the number of records and the shares of a group's records that its cells have, so whatever they
reach is possible: counts are at least 0, and cliques agree on separators.

Counts need not be whole, and the shares have the prior of the probabilities. The prior of whole
counts, products of Gamma(s + a) / (Gamma(s + 1) Gamma(a)), would be wrong between whole numbers: it
is 1 at 0, but its integral up to a half is next to nothing where a is small. So hardly any cell
would be empty, and rare cells together would draw mass from frequent ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.random import Generator
from scipy.special import gammaln, psi

from workbench.posterior._ellipses import CHAINS, SETTLED, r_hat
from workbench.posterior.cell_tree import Cells, Tree
from workbench.posterior.statistics import model_of_sums

__all__ = ["LARGEST", "Draws", "crowded", "draw", "leaning", "model_of", "norm_of", "prior_draws"]

LARGEST = 5000  # cells of all marginals together
_CENTER, _DEVIATION = -1.0, 1.0  # of log a
_CENTER_HALVES, _TOGETHER, _APART_HALVES = 0.5, 1.2, 0.75  # of halves, as are what they share
_LARGEST_AT_LEAST, _LARGEST_OF_HALVES = 0.5, 6.0  # of a and of the cells of a group
_BEYOND = 0.1  # deviation of log a above the largest one
_LEAST_NOISE = 0.3  # of a whole number
_HIDDEN = 0.5  # deviations of the noise, below which it hides a cell
_SMALL = 0.02  # of all shares of a group, or of the noise of their sum: cells below have nobody
_BURN_IN = (50, 50, 100)  # transitions, after each of which chains move as far as they have seen
_THINNED = 2  # transitions between draws
_LONGER, _RUNS = 4, 3  # times as long, where chains do not agree; runs at most
_LENGTH, _LONGEST = 3.0, 40  # of a transition, and its steps, at most
_LARGEST_PULL = 0.75  # of the prior, in standard deviations
_MANY_BINS, _CROWD = 5, 0.7  # bins of a column, and the share of the records in one of them
_TREND = math.sqrt(3) / 4  # of half the cells, in deviations of a cell
_ACCEPTED = 0.8  # share of transitions
# by which an adaptation changes scales: cells near 0 have long tails that no step has to cross
_RESCALED = (0.01, 1.5)


Leaning = tuple[tuple[int, ...], int, int]


class Draws(NamedTuple):
    """Draws from the posterior.

    :param cells: probabilities of all cells, clique after clique, float[draws, k].
    :param spread: the largest R-hat.
    :param concentrations: the mean a of each layer of the tree, float[layers].
    """

    cells: np.ndarray
    spread: float
    concentrations: np.ndarray


def norm_of(cells: Cells) -> float:
    """C: the norm of every record's statistic."""
    return math.sqrt(len(cells.cliques))


def model_of(cells: Cells, codes: Callable[[jax.Array], jax.Array]) -> Callable[..., None]:
    """As ``statistics.model_of_sums``, of records x. :param codes: of their levels, int[B, D]."""
    return model_of_sums(cells.ends[-1], lambda x: cells.statistic(codes(x)))


def draw(
    released: np.ndarray, noise: float, cells: Cells, count: int, generator: Generator
) -> Draws:
    """``count`` draws, from chains that run until they agree or took too long.

    :param released: noised counts of all cells. :param noise: standard deviation in each of them.
    """
    chain = _Chain(released, noise, cells.rooted, min(CHAINS, count), generator)
    for transitions in _BURN_IN:
        chain.adapt(transitions)
    length, per_chain = _THINNED, math.ceil(count / min(CHAINS, count))
    for _ in range(_RUNS):
        states = []
        for _ in range(per_chain):
            chain.move(length)
            states.append(chain.states)
        roots = np.sqrt([chain.table(state).counts for state in states])
        spread = r_hat(np.swapaxes(roots, 1, 2))
        if spread <= SETTLED:
            break
        length *= _LONGER
    flat = np.concatenate(states, axis=1)[:, :count]
    table = chain.table(flat)
    probabilities = _probabilities(chain.tree, table.counts, table.concentrations, generator)
    return Draws(probabilities[:, chain.tree.measured], spread, table.concentrations.mean(axis=1))


def leaning(drawn: Draws, released: np.ndarray, noise: float, cells: Cells) -> list[Leaning]:
    """Where the prior, under which the cells of a group are alike, moves what adds up many cells by
    much of its standard deviation: (columns of the marginal, column, level), with -1, -1 for the
    whole marginal.

    :param released: as of ``draw``, as is ``noise``.
    """
    tree, ends = Tree.of(cells.rooted), cells.ends
    total = max(float(np.sum(released)) / len(cells.cliques), 1.0)
    means = total * drawn.cells.mean(axis=0)
    pulled = set()
    for layer, a in zip(tree.layers, drawn.concentrations, strict=True):
        above = tree.layers[layer.parent]
        if layer.clique == 0 or (layer.is_halved and above.is_halved and layer.above is None):
            continue  # deep halves are of few cells
        number = layer.clique - 1
        clique, counts = cells.cliques[number], means[ends[number] : ends[number + 1]]
        codes = np.indices(cells.shape(clique)).reshape(len(clique), -1)
        deviation = noise * math.sqrt(float(np.mean(tree.beneath[layer.cells])))
        subsets = [(-1, -1, np.full(len(counts), True))]
        for column, levels in zip(clique, codes, strict=True):
            first = cells.ordered[column]
            subsets += [
                (column, level, levels == level) for level in range(first, levels.max() + 1)
            ]
        are_divided = tree.sizes[tree.of_cell[layer.adds], 0] > 1  # missing numbers are no bins
        for column, level, has in subsets:
            divided = np.unique(layer.adds[has & are_divided])
            groups = len(np.unique(tree.of_cell[divided]))
            size = len(divided) // max(groups, 1)
            usual = counts[has & are_divided].sum() / max(groups, 1)
            if size > 1 and _pull(size, np.array(usual), a, deviation) > _LARGEST_PULL:
                pulled.add((clique, column, level))
    entire = {clique for clique, column, _ in pulled if column < 0}
    return sorted(lean for lean in pulled if lean[1] < 0 or lean[0] not in entire)


def crowded(drawn: Draws, cells: Cells) -> list[tuple[int, int]]:
    """Columns of many bins and the one of their levels that has most records. There the prior is
    learned from one bin and all others, and may move small shares by more than noise does.
    """
    crowds, ends = {}, cells.ends
    for number, clique in enumerate(cells.cliques):
        table = drawn.cells[:, ends[number] : ends[number + 1]].mean(axis=0)
        table = table.reshape(cells.shape(clique))
        for axis, column in enumerate(clique):
            margin = table.sum(axis=tuple({*range(table.ndim)} - {axis}))
            if cells.ordered[column] >= _MANY_BINS and margin.max() > _CROWD:
                crowds[column] = int(margin.argmax())
    return sorted(crowds.items())


def _variance(sizes: Any, counts: Any, noise: Any) -> Any:
    """Four times that of the share of half of ``sizes`` cells with noise. :param counts: records in
    all of them.
    """
    return sizes * np.square(noise / counts) + 1 / counts


def _pull(size: int, counts: np.ndarray, a: float, noise: float) -> np.ndarray:
    """By how many standard deviations the prior moves the share of half of ``size`` cells that grow
    from the first to the last, by as much as a says that cells differ.

    :param counts: records in these cells.
    """
    data = _variance(size, counts, noise)
    prior = 1 / (size * a + 1)
    weight = data / (data + prior)
    away = min(_TREND / math.sqrt(a), 0.25)
    return 2 * away * weight / np.sqrt(data * (1 - weight))


def prior_draws(cells: Cells, count: int, generator: Generator) -> np.ndarray:
    """Draws of probabilities, as of ``draw``, before there is a release."""
    tree = Tree.of(cells.rooted)
    standard = generator.standard_normal((len(tree.layers), count))
    logs = _center(tree) + np.linalg.cholesky(_covariance(tree)) @ standard
    nothing = np.zeros((len(tree.of_cell), count))
    drawn = _probabilities(tree, nothing, np.exp(logs), generator)
    return drawn[:, tree.measured]


def _center(tree: Tree) -> np.ndarray:
    """Of log a of each layer before there is a release, float[layers, 1]."""
    centers = [_CENTER_HALVES if layer.is_halved else _CENTER for layer in tree.layers]
    return np.array(centers)[:, None]


def _covariance(tree: Tree) -> np.ndarray:
    """Of log a of layers before there is a release, float[layers, layers]."""
    cliques = np.array([layer.clique if layer.is_halved else -1 for layer in tree.layers])
    go_together = (cliques[:, None] == cliques) & (cliques >= 0)
    alone = np.where(cliques < 0, _DEVIATION, _APART_HALVES)
    covariance: np.ndarray = _TOGETHER**2 * go_together + np.diag(alone**2)
    return covariance


def _probabilities(
    tree: Tree, counts: np.ndarray, concentrations: np.ndarray, generator: Generator
) -> np.ndarray:
    """A draw of all probabilities for each column of counts, float[n, k].

    :param counts: float[k, n]. :param concentrations: a of each layer, float[layers, n].
    """
    shapes = counts + tree.in_cells(concentrations)
    # logarithms of gamma variables, of which small shapes make numbers that float64 does not have
    logs = np.log(generator.standard_gamma(shapes + 1))
    logs -= generator.standard_exponential(shapes.shape) / shapes
    logs -= np.maximum.reduceat(logs, tree.starts, axis=0)[tree.of_cell]
    proportions = np.exp(logs)
    proportions /= tree.sums(proportions)[tree.of_cell]
    return tree.counts(proportions, np.ones(counts.shape[1]))[0].T


def _largest_concentration(tree: Tree, total: float, noise: np.ndarray) -> np.ndarray:
    """log a of each layer with which the prior moves the share of half of a usual group's cells by
    half a standard deviation at most, float[layers, 1]; see ``leaning``.

    A larger one would be learned where cells are nearly alike, and make sure that they all are. Of
    halves, those of few cells may be as good as equal: what adds up many hardly depends on them.

    :param total: of all records. :param noise: in each cell, float[k, 1].
    """
    groups = np.bincount(tree.layer_of)
    cells = np.bincount(tree.layer_of[tree.of_cell])
    sizes, usual = cells / groups, total / groups
    squares = np.bincount(tree.layer_of[tree.of_cell], np.square(noise[:, 0])) / cells
    deviation = np.sqrt(_variance(sizes, usual, np.sqrt(squares)))
    halved = [layer.is_halved for layer in tree.layers]
    least = np.where(halved, _LARGEST_OF_HALVES, _LARGEST_AT_LEAST)
    largest: np.ndarray = np.log(np.maximum(1 / deviation - 1, least) / sizes)
    return largest[:, None]


class _Table(NamedTuple):
    """What states say. Arrays have a column for each chain.

    :param counts: of all cells, float[k, n]. :param above: of each group's separator, float[g, n].
    :param logs: of the counts' shares of these. :param norms: of groups, without meaning.
    :param concentrations: a of each layer, float[layers, n].
    """

    counts: np.ndarray
    above: np.ndarray
    logs: np.ndarray
    norms: np.ndarray
    concentrations: np.ndarray


class _Prior:
    """Dirichlet distributions of the shares of all groups, given a of each layer."""

    def __init__(self, tree: Tree) -> None:
        of_layer = tree.layer_of[tree.of_cell]
        of_groups = np.column_stack([tree.layer_of, tree.sizes[:, 0], np.ones(len(tree.sizes))])
        of_cells = np.column_stack([of_layer, tree.weights[:, 0], -np.ones(len(of_layer))])
        kinds, counts = np.unique(np.vstack([of_groups, of_cells]), axis=0, return_counts=True)
        self._layer, self._by = kinds[:, 0].astype(int), kinds[:, 1:2]
        self._count = kinds[:, 2:] * counts[:, None]
        self._layers = np.eye(len(tree.layers))[self._layer].T

    def log_norm(self, concentrations: np.ndarray) -> np.ndarray:
        """The logarithm of what makes the densities integrate to 1, float[n]."""
        logs = self._count * gammaln(self._by * concentrations[self._layer])
        total: np.ndarray = logs.sum(axis=0)
        return total

    def slope(self, concentrations: np.ndarray) -> np.ndarray:
        """Of ``log_norm`` in each a, float[layers, n]."""
        slopes = self._count * self._by * psi(self._by * concentrations[self._layer])
        summed: np.ndarray = self._layers @ slopes
        return summed


class _Chain:
    """Chains whose states are the logarithm of the number of records, those of all cells, whose
    sums in groups have no meaning, and log a; each less its centre and in units of its scale.

    :ivar states: float[1 + k + M, chains].
    """

    def __init__(
        self, released: np.ndarray, noise: float, cells: Cells, chains: int, generator: Generator
    ) -> None:
        tree = self.tree = Tree.of(cells)
        self._random, self._prior = generator, _Prior(tree)
        noise = max(noise, _LEAST_NOISE)
        self._released = tree.added(np.asarray(released, float))
        self._precision = np.zeros_like(self._released)
        self._precision[tree.measured] = noise**-2
        size = max(np.sum(released) / (len(cells.cliques) - 1), noise, 1.0)
        noises = noise * np.sqrt(tree.beneath)
        counts = np.maximum(self._released, _HIDDEN * noises)
        self._usual = np.log(tree.sums(counts))
        of_group = np.maximum.reduceat(noises, tree.starts, axis=0)
        together = np.maximum(tree.sums(self._released), of_group)
        least = np.minimum(_SMALL / tree.sizes, _SMALL * of_group / together / np.sqrt(tree.sizes))
        self._least = least[tree.of_cell]
        largest = np.maximum.reduceat(counts, tree.starts, axis=0)
        self._width = np.minimum(of_group / largest, 1.0)
        self._most = _largest_concentration(tree, size, noises)
        self._usual_a, self._sharp = _center(tree), np.linalg.inv(_covariance(tree))
        of_a = np.minimum(self._usual_a, self._most)
        self._center = np.vstack([[[math.log(size)]], np.log(counts), of_a])
        self._scale = np.vstack(
            [[[noise / size]], np.minimum(noises / counts, 1.0), _DEVIATION * np.ones_like(of_a)]
        )
        self._log_step = math.log(0.3)
        self.states = 0.1 * generator.standard_normal((len(self._center), chains))
        self._density = self._log_density(self.states)

    def adapt(self, count: int) -> None:
        """Take ``count`` transitions while the step's length adapts, and scale states by what they
        saw.
        """
        visited = []
        for number in range(count):
            accepted = self.move(1)
            self._log_step += (accepted - _ACCEPTED) / math.sqrt(1 + number / 10)
            visited.append(self.states)
        spread = np.concatenate(visited[count // 2 :], axis=1).std(axis=1, keepdims=True)
        spread = np.clip(spread, *_RESCALED)
        self.states, self._scale = self.states / spread, self._scale * spread

    def move(self, count: int) -> float:
        """Take ``count`` transitions; the mean probability with which they were accepted."""
        total = 0.0
        for _ in range(count):
            step = math.exp(self._log_step) * self._random.uniform(0.8, 1.2)
            longest = min(math.ceil(_LENGTH / step), _LONGEST)
            momentum = self._random.standard_normal(self.states.shape)
            before = self._density - 0.5 * np.square(momentum).sum(axis=0)
            states = self.states
            momentum = momentum + step / 2 * self._slope(states)
            for remaining in reversed(range(self._random.integers(1, longest + 1))):
                states = states + step * momentum
                momentum = momentum + (step if remaining else step / 2) * self._slope(states)
            density = self._log_density(states)
            energy = density - 0.5 * np.square(momentum).sum(axis=0)
            accepted = np.exp(np.minimum(np.nan_to_num(energy - before, nan=-np.inf), 0))
            taken = self._random.random(len(accepted)) < accepted
            self.states = np.where(taken, states, self.states)
            self._density = np.where(taken, density, self._density)
            total += float(accepted.mean())
        return total / count

    def table(self, states: np.ndarray) -> _Table:
        """What states say."""
        tree, layers = self.tree, len(self.tree.layers)
        moved = self._center + self._scale * states
        cells = moved[1:-layers]
        highest = np.maximum.reduceat(cells, tree.starts, axis=0)
        norms = highest + np.log(tree.sums(np.exp(cells - highest[tree.of_cell])))
        logs = cells - norms[tree.of_cell]
        counts, above = tree.counts(np.exp(logs), np.exp(moved[0]))
        return _Table(counts, above, logs, norms, np.exp(moved[-layers:]))

    def _of_shares(self, table: _Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The logarithm of s^(a - 1) of shares s, and its slopes in log s and in a.

        What it has below a small t is spread over t instead, so no chain goes far to be at 0:

            (s + t)^(a - 1) + t^(a - 1) / a exp(-s / t).
        """
        a, least = self.tree.in_cells(table.concentrations), self._least
        proportions = np.exp(table.logs)
        above, log_least = np.log(proportions + least), np.log(least)
        first = (a - 1) * above
        second = (a - 1) * log_least - np.log(a) - proportions / least
        both = np.logaddexp(first, second)
        weight = np.exp(first - both)
        slope = proportions * (weight * (a - 1) / (proportions + least) - (1 - weight) / least)
        return both, slope, weight * above + (1 - weight) * (log_least - 1 / a)

    def _log_density(self, states: np.ndarray) -> np.ndarray:
        """Log density of states given the release."""
        with np.errstate(all="ignore"):
            table = self.table(states)
            misfit = 0.5 * self._precision * np.square(self._released - table.counts)
            of_cells = self._of_shares(table)[0] + table.logs - misfit
            of_groups = -0.5 * np.square((table.norms - self._usual) / self._width)
            logs = np.log(table.concentrations)
            away = logs - self._usual_a
            beyond = np.maximum(logs - self._most, 0) / _BEYOND
            return (
                of_cells.sum(axis=0)
                + of_groups.sum(axis=0)
                + self._prior.log_norm(table.concentrations)
                + np.log(table.above[0])
                - 0.5 * (away * (self._sharp @ away) + np.square(beyond)).sum(axis=0)
            )

    def _slope(self, states: np.ndarray) -> np.ndarray:
        """The gradient of ``_log_density``."""
        with np.errstate(all="ignore"):
            table, tree = self.table(states), self.tree
            proportions = np.exp(table.logs)
            direct = self._precision * (self._released - table.counts)
            of_counts, of_above = tree.slopes(direct, proportions)
            _, of_shares, of_share_a = self._of_shares(table)
            of_logs = of_counts * table.counts + 1 + of_shares
            of_norms = -(table.norms - self._usual) / self._width**2 - tree.sums(of_logs)
            of_cells = of_logs + of_norms[tree.of_cell] * proportions
            first = [layer.cells.start for layer in tree.layers]
            of_a = np.add.reduceat(tree.weights * of_share_a, first, axis=0)
            of_a += self._prior.slope(table.concentrations)
            of_concentrations = table.concentrations * of_a
            logs = np.log(table.concentrations)
            of_concentrations -= self._sharp @ (logs - self._usual_a)
            of_concentrations -= np.maximum(logs - self._most, 0) / _BEYOND**2
            of_total = of_above[:1] * table.above[:1] + 1
            return self._scale * np.vstack([of_total, of_cells, of_concentrations])
