"""The one-shot release of marginals of a table of levels, and the posterior of its cells.

Each record is in one cell of each of M marginals, the tables of counts of some columns. The release
is the counts of all cells, with noise. A record's statistic has M ones, so its norm is

    C = sqrt(M),

and nothing is clipped. Noise and everything else are those of ``statistics``.

The marginals are the cliques of a decomposable model (Lauritzen 1996, section 4.4): the columns
that a clique shares with those before it, its separator, are all in one of them, its parent. Of all
tables with these marginals, the model's has the largest entropy: the product of the probabilities
of the first clique's cells and, for each other, of its cells given its separator. Each group of K
cells of a clique with the same values of its separator has the prior

    probabilities given the separator ~ Dirichlet(a, ..., a),    log a ~ Normal(-1, 1),

with one a for each clique, so how many cells are rare is learned. The counts without noise, s, are
unknown. Given s and a, the probabilities are drawn exactly (Dawid and Lauritzen 1993). So Markov
chains (Hamiltonian ones, Neal 2011) move s and a alone. They move the number of records and the
shares of a separator's records that its cells have, so whatever they reach is possible: counts are
at least 0, and cliques agree on separators.

Counts need not be whole, and the shares have the prior of the probabilities. The prior of whole
counts, products of Gamma(s + a) / (Gamma(s + 1) Gamma(a)), would be wrong between whole numbers: it
is 1 at 0, but its integral up to a half is next to nothing where a is small. So hardly any cell
would be empty, and rare cells together would draw mass from frequent ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpy.random import Generator
from scipy.sparse import csr_array
from scipy.special import gammaln, psi

from workbench.posterior._ellipses import CHAINS, SETTLED, r_hat
from workbench.posterior.statistics import SITE

__all__ = ["LARGEST", "Cells", "Draws", "draw", "leaning", "model_of", "norm_of", "prior_draws"]

LARGEST = 5000  # cells of all marginals together
_CENTER, _DEVIATION = -1.0, 1.0  # of log a
_BEYOND = 0.1  # deviation of log a above the largest one
_LEAST_NOISE = 0.3  # of a whole number
_HIDDEN = 0.5  # deviations of the noise, below which it hides a cell
_SMALL = 0.02  # of all shares of a group, or of the noise of their sum: cells below have nobody
_BURN_IN = (50, 50, 100)  # transitions, after each of which chains move as far as they have seen
_APART = 2  # transitions between draws
_LONGER, _RUNS = 4, 3  # times as long, where chains do not agree; runs at most
_LENGTH, _LONGEST = 3.0, 40  # of a transition, and its steps, at most
_LARGEST_PULL = 0.75  # of the prior, in standard deviations
_TREND = math.sqrt(3) / 4  # of half the cells, in deviations of a cell
_ACCEPTED = 0.8  # share of transitions
# by which an adaptation changes scales: cells near 0 have long tails that no step has to cross
_RESCALED = (0.01, 1.5)


Leaning = tuple[tuple[int, ...], int, int]


class Cells(NamedTuple):
    """The cells of a decomposable model's marginals.

    :param levels: how many each column has. :param cliques: columns of each marginal. Those that
        were in one before stand first, and are all in one before; of the first clique, those that
        are in the second stand first.
    """

    levels: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, levels: Sequence[int], cliques: Sequence[Sequence[int]]) -> Cells:
        """From lists."""
        return cls(tuple(map(int, levels)), tuple(tuple(clique) for clique in cliques))

    def shape(self, columns: Sequence[int]) -> tuple[int, ...]:
        """How many levels they have."""
        return tuple(self.levels[column] for column in columns)

    @property
    def sizes(self) -> list[int]:
        """Cells of each clique."""
        return [math.prod(self.shape(clique)) for clique in self.cliques]

    @property
    def ends(self) -> list[int]:
        """The first cell of each clique, and the number of all."""
        return [0, *itertools.accumulate(self.sizes)]

    def separator(self, number: int) -> tuple[int, ...]:
        """Columns of a clique that are in one before."""
        before = {column for clique in self.cliques[:number] for column in clique}
        return tuple(column for column in self.cliques[number] if column in before)

    def parent(self, number: int) -> int:
        """The first clique that has all columns of the separator of a clique but the first."""
        separator = set(self.separator(number))
        return next(index for index, clique in enumerate(self.cliques) if separator <= set(clique))

    @property
    def rooted(self) -> Cells:
        """The same with a clique before all others: what the first two share."""
        first, second = self.cliques[0], (*self.cliques, ())[1]
        root = tuple(column for column in first if column in second)
        return self._replace(cliques=(root, *self.cliques))

    def codes_in(self, clique: Sequence[int], codes: Any) -> Any:
        """The cell of each record in the table of some columns, int[B].

        :param codes: of the level in each column, int[B, D] of NumPy or JAX.
        """
        cell = 0 * codes[:, 0]
        for column in clique:
            cell = cell * self.levels[column] + codes[:, column]
        return cell

    def statistic(self, codes: jax.Array) -> jax.Array:
        """1 for the cells of each record, 0 for others, float32[B, k]. :param codes: int[B, D]."""
        counts = [
            jax.nn.one_hot(self.codes_in(clique, codes), size, dtype=jnp.float32)
            for clique, size in zip(self.cliques, self.sizes, strict=True)
        ]
        return jnp.concatenate(counts, axis=1)


class Draws(NamedTuple):
    """Draws from the posterior.

    :param cells: probabilities of all cells, clique after clique, float[draws, k].
    :param spread: the largest R-hat.
    :param concentrations: the mean a of each clique, float[M].
    """

    cells: np.ndarray
    spread: float
    concentrations: np.ndarray

    @property
    def have_settled(self) -> bool:
        """Whether the chains agree."""
        return self.spread <= SETTLED


def norm_of(cells: Cells) -> float:
    """C: the norm of every record's statistic."""
    return math.sqrt(len(cells.cliques))


def model_of(cells: Cells, codes: Callable[[jax.Array], jax.Array]) -> Callable[..., None]:
    """A NumPyro model of records x whose gradient with respect to its parameter is minus a record's
    statistic.

    :param codes: of the levels of records, int[B, D].
    """

    def model(x: jax.Array, num_records: int | None = None) -> None:
        direction = numpyro.param(SITE, jnp.zeros(cells.ends[-1]))
        with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
            numpyro.factor("statistic", cells.statistic(codes(x)) @ direction)

    return model


def draw(
    released: np.ndarray, noise: float, cells: Cells, count: int, generator: Generator
) -> Draws:
    """``count`` draws, from chains that run until they agree or took too long.

    :param released: noised counts of all cells. :param noise: standard deviation in each of them.
    """
    chain = _Chain(released, noise, cells.rooted, min(CHAINS, count), generator)
    for transitions in _BURN_IN:
        chain.adapt(transitions)
    length, per_chain = _APART, math.ceil(count / min(CHAINS, count))
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
    probabilities = _probabilities(chain.groups, table.counts, table.concentrations, generator)
    concentrations = table.concentrations[1:].mean(axis=1)
    return Draws(probabilities[:, -len(released) :], spread, concentrations)


def leaning(drawn: Draws, released: np.ndarray, noise: float, cells: Cells) -> list[Leaning]:
    """Where the prior, under which all cells of a group are alike, moves what adds up many of them
    by much of its standard deviation: (columns of the marginal, column, level), with -1, -1 for the
    whole marginal.

    The prior knows no order of levels. Where neighbours are alike and ends are not, it moves them
    all in the same direction, and a mean or a cumulative share with them.

    :param released: as of ``draw``, as is ``noise``.
    """
    total, ends = max(float(np.sum(released)) / len(cells.cliques), 1.0), cells.ends
    leans = []
    for number, clique in enumerate(cells.cliques):
        shares = drawn.cells[:, ends[number] : ends[number + 1]].mean(axis=0)
        table, a = total * shares.reshape(cells.shape(clique)), drawn.concentrations[number]
        if _pull(table.size, np.array(total), a, noise) > _LARGEST_PULL:
            leans.append((clique, -1, -1))
            continue
        for axis, column in enumerate(clique):
            counts = table.sum(axis=tuple({*range(table.ndim)} - {axis}))
            pulls = _pull(table.size // len(counts), counts, a, noise)
            hidden = np.flatnonzero(pulls > _LARGEST_PULL).tolist()
            leans += [(clique, column, level) for level in hidden]
    return leans


def _variance(sizes: Any, counts: Any, noise: float) -> Any:
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
    rooted = cells.rooted
    logs = _CENTER + _DEVIATION * generator.standard_normal((len(rooted.cliques), count))
    nothing = np.zeros((rooted.ends[-1], count))
    drawn = _probabilities(_Groups.of(rooted), nothing, np.exp(logs), generator)
    return drawn[:, rooted.sizes[0] :]


class _Groups(NamedTuple):
    """Groups of cells with the same values of their clique's separator.

    :param starts: the first cell of each, int[g]. :param of_cell: int[k]. :param sizes: float[g,
        1]. :param cliques: of each group, int[g]. :param above: a row for each group, with 1 for
        the cells of the parent that it divides. :param depth: of the tree of cliques.
    """

    starts: np.ndarray
    of_cell: np.ndarray
    sizes: np.ndarray
    cliques: np.ndarray
    above: csr_array
    depth: int

    @classmethod
    def of(cls, cells: Cells) -> _Groups:
        starts, cliques = [np.zeros(1, int)], [np.zeros(1, int)]
        rows, columns, depths, groups = [], [], [0], 1
        for number, start in enumerate(cells.ends[1:-1], start=1):
            separator, parent = cells.separator(number), cells.parent(number)
            many = math.prod(cells.shape(separator))
            starts.append(start + np.arange(many) * (cells.sizes[number] // many))
            cliques.append(np.full(many, number))
            codes = np.zeros((cells.sizes[parent], len(cells.levels)), int)
            shape = cells.shape(cells.cliques[parent])
            codes[:, cells.cliques[parent]] = np.indices(shape).reshape(len(shape), len(codes)).T
            rows.append(groups + cells.codes_in(separator, codes))
            columns.append(cells.ends[parent] + np.arange(len(codes)))
            depths.append(depths[parent] + 1)
            groups += many
        first = np.concatenate(starts)
        sizes = np.diff(np.append(first, cells.ends[-1]))
        at = tuple(np.concatenate([*blocks, []]).astype(int) for blocks in (rows, columns))
        above = csr_array((np.ones(len(at[0])), at), shape=(groups, cells.ends[-1]))
        of_cell = np.repeat(np.arange(groups), sizes)
        return cls(first, of_cell, sizes[:, None], np.concatenate(cliques), above, max(depths))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Of the cells of each group, float[g, n] of float[k, n]."""
        summed: np.ndarray = np.add.reduceat(values, self.starts, axis=0)
        return summed

    def counts(self, proportions: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of all cells, float[k, n], and of the separator's cell of each group, float[g, n].

        :param proportions: of the separator's records, float[k, n]. :param total: of all records.
        """
        counts, above = proportions, np.zeros((len(self.starts), 1))
        for _ in range(self.depth + 1):
            above = self.above @ counts
            above[0] = total
            counts = above[self.of_cell] * proportions
        return counts, above


def _probabilities(
    groups: _Groups, counts: np.ndarray, concentrations: np.ndarray, generator: Generator
) -> np.ndarray:
    """A draw of all probabilities for each column of counts, float[n, k].

    :param counts: float[k, n]. :param concentrations: a of each clique, float[M, n].
    """
    shapes = counts + concentrations[groups.cliques][groups.of_cell]
    # logarithms of gamma variables, of which small shapes make numbers that float64 does not have
    logs = np.log(generator.standard_gamma(shapes + 1))
    logs -= generator.standard_exponential(shapes.shape) / shapes
    logs -= np.maximum.reduceat(logs, groups.starts, axis=0)[groups.of_cell]
    proportions = np.exp(logs)
    proportions /= groups.sums(proportions)[groups.of_cell]
    return groups.counts(proportions, np.ones(counts.shape[1]))[0].T


def _largest_concentration(groups: _Groups, total: float, noise: float) -> np.ndarray:
    """log a of each clique with which the prior moves the share of half of a usual group's cells by
    half a standard deviation at most, float[M, 1]; see ``leaning``.

    A larger one would be learned where cells are nearly alike, and make sure that they all are.

    :param total: of all records. :param noise: in each cell.
    """
    sizes = groups.sizes[np.unique(groups.cliques, return_index=True)[1]]
    usual = total / np.bincount(groups.cliques)[:, None]
    deviation = np.sqrt(_variance(sizes, usual, noise))
    largest: np.ndarray = np.log(np.maximum(1 / deviation - 1, 0.5) / sizes)
    return largest


class _Table(NamedTuple):
    """What states say. Arrays have a column for each chain.

    :param counts: of all cells, float[k, n]. :param above: of each group's separator, float[g, n].
    :param logs: of the counts' shares of these. :param norms: of groups, without meaning.
    :param concentrations: a of each clique, float[M, n].
    """

    counts: np.ndarray
    above: np.ndarray
    logs: np.ndarray
    norms: np.ndarray
    concentrations: np.ndarray


class _Chain:
    """Chains whose states are the logarithm of the number of records, those of all cells, whose
    sums in groups have no meaning, and log a; each less its centre and in units of its scale.

    :ivar states: float[1 + k + M, chains].
    """

    def __init__(
        self, released: np.ndarray, noise: float, cells: Cells, chains: int, generator: Generator
    ) -> None:
        self.groups, self._random = _Groups.of(cells), generator
        noise, root = max(noise, _LEAST_NOISE), cells.sizes[0]
        measured = np.asarray(released, float)[:, None]
        # the groups of the first clique that was measured are the cells of the root
        of_root = measured[: cells.sizes[1]].reshape(root, -1).sum(axis=1, keepdims=True)
        self._released = np.vstack([of_root, measured])
        self._precision = np.repeat([0.0, noise**-2], [root, len(measured)])[:, None]
        size = max(measured.sum() / (len(cells.cliques) - 1), noise, 1.0)
        counts = np.maximum(self._released, _HIDDEN * noise)
        self._usual = np.log(self.groups.sums(counts))
        together = np.maximum(self.groups.sums(self._released), noise)
        sizes = self.groups.sizes
        least = np.minimum(_SMALL / sizes, _SMALL * noise / together / np.sqrt(sizes))
        self._least = least[self.groups.of_cell]
        largest = np.maximum.reduceat(counts, self.groups.starts, axis=0)
        self._width = np.minimum(noise / largest, 1.0)
        self._most = _largest_concentration(self.groups, size, noise)
        of_a = np.minimum(_CENTER, self._most)
        self._center = np.vstack([[[math.log(size)]], np.log(counts), of_a])
        self._scale = np.vstack(
            [[[noise / size]], np.minimum(noise / counts, 1.0), _DEVIATION * np.ones_like(of_a)]
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
        groups, cliques = self.groups, self.groups.cliques[-1] + 1
        moved = self._center + self._scale * states
        cells = moved[1:-cliques]
        highest = np.maximum.reduceat(cells, groups.starts, axis=0)
        norms = highest + np.log(groups.sums(np.exp(cells - highest[groups.of_cell])))
        logs = cells - norms[groups.of_cell]
        counts, above = groups.counts(np.exp(logs), np.exp(moved[0]))
        return _Table(counts, above, logs, norms, np.exp(moved[-cliques:]))

    def _of_a(self, table: _Table) -> tuple[np.ndarray, np.ndarray]:
        """a of each group, and of each group's cells together."""
        of_group = table.concentrations[self.groups.cliques]
        return of_group, self.groups.sizes * of_group

    def _of_shares(self, table: _Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The logarithm of s^(a - 1) of shares s, and its slopes in log s and in a.

        What it has below a small t is spread over t instead, so no chain goes far to be at 0:

            (s + t)^(a - 1) + t^(a - 1) / a exp(-s / t).
        """
        of_cell, least = self.groups.of_cell, self._least
        a = table.concentrations[self.groups.cliques][of_cell]
        shares = np.exp(table.logs)
        above, log_least = np.log(shares + least), np.log(least)
        first = (a - 1) * above
        second = (a - 1) * log_least - np.log(a) - shares / least
        both = np.logaddexp(first, second)
        part = np.exp(first - both)
        slope = shares * (part * (a - 1) / (shares + least) - (1 - part) / least)
        return both, slope, part * above + (1 - part) * (log_least - 1 / a)

    def _log_density(self, states: np.ndarray) -> np.ndarray:
        """Log density of states given the release."""
        with np.errstate(all="ignore"):
            table, groups = self.table(states), self.groups
            a, together = self._of_a(table)
            misfit = 0.5 * self._precision * np.square(self._released - table.counts)
            of_cells = self._of_shares(table)[0] + table.logs - misfit
            of_groups = (
                gammaln(together)
                - groups.sizes * gammaln(a)
                - 0.5 * np.square((table.norms - self._usual) / self._width)
            )
            logs = np.log(table.concentrations)
            standard = (logs - _CENTER) / _DEVIATION
            beyond = np.maximum(logs - self._most, 0) / _BEYOND
            return (
                of_cells.sum(axis=0)
                + of_groups.sum(axis=0)
                + np.log(table.above[0])
                - 0.5 * (np.square(standard) + np.square(beyond)).sum(axis=0)
            )

    def _slope(self, states: np.ndarray) -> np.ndarray:
        """The gradient of ``_log_density``."""
        with np.errstate(all="ignore"):
            table, groups = self.table(states), self.groups
            a, together = self._of_a(table)
            of_cell, proportions = groups.of_cell, np.exp(table.logs)
            direct = self._precision * (self._released - table.counts)
            of_counts = direct
            for _ in range(groups.depth + 1):
                of_above = groups.sums(of_counts * proportions)
                of_counts = direct + groups.above.T @ of_above
            _, of_shares, of_share_a = self._of_shares(table)
            of_logs = of_counts * table.counts + 1 + of_shares
            of_norms = -(table.norms - self._usual) / self._width**2 - groups.sums(of_logs)
            of_cells = of_logs + of_norms[of_cell] * proportions
            of_a = groups.sums(of_share_a) + groups.sizes * (psi(together) - psi(a))
            first = np.flatnonzero(np.diff(groups.cliques, prepend=-1))
            of_concentrations = table.concentrations * np.add.reduceat(of_a, first, axis=0)
            logs = np.log(table.concentrations)
            of_concentrations -= (logs - _CENTER) / _DEVIATION**2
            of_concentrations -= np.maximum(logs - self._most, 0) / _BEYOND**2
            of_total = of_above[:1] * table.above[:1] + 1
            return self._scale * np.vstack([of_total, of_cells, of_concentrations])
