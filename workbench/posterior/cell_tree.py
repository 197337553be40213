"""How the cells of a decomposable model's marginals divide the records, step by step.

The records of a separator are divided into cells in layers: first by the levels that have no order,
all at once, and then by halves of those that have one, the widest first:

    sex x age in 4 bins:   all -> woman, man -> younger, older -> 4 bins
                                          -> younger, older -> 4 bins

So neighbours share what is divided late, and a sum of many neighbours hardly depends on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

__all__ = ["Cells", "Tree"]

Ranges = tuple[tuple[int, int], ...]  # of the levels of columns


class Cells(NamedTuple):
    """The cells of a decomposable model's marginals.

    :param levels: how many each column has. :param cliques: columns of each marginal. Those that
        were in one before stand first, and are all in one before; of the first clique, those that
        are in the second stand first. :param ordered: how many of each column's levels, the first,
        are in order.
    """

    levels: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]
    ordered: tuple[int, ...]

    @classmethod
    def of(
        cls,
        levels: Sequence[int],
        cliques: Sequence[Sequence[int]],
        ordered: Sequence[int] | None = None,
    ) -> Cells:
        """From lists. :param ordered: by default none."""
        order = [0] * len(levels) if ordered is None else ordered
        return cls(
            tuple(map(int, levels)), tuple(tuple(clique) for clique in cliques), tuple(order)
        )

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

    def codes(self, clique: Sequence[int]) -> np.ndarray:
        """The level in each column of the cells of some columns, int[k, D]; 0 in others."""
        shape = self.shape(clique)
        codes = np.zeros((math.prod(shape), len(self.levels)), int)
        codes[:, list(clique)] = np.indices(shape).reshape(len(shape), len(codes)).T
        return codes

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

    def divisions(self, columns: Sequence[int]) -> list[tuple[bool, list[list[Ranges]]]]:
        """Layer by layer, into which ranges of levels each one before is divided, and whether by
        halves.
        """
        box = tuple((0, self.levels[column]) for column in columns)
        kinds = [
            [(0, order)] * (order > 0) + [(level, level + 1) for level in range(order, levels)]
            for order, levels in ((self.ordered[column], self.levels[column]) for column in columns)
        ]
        layers: list[tuple[bool, list[list[Ranges]]]] = []
        boxes = [box]
        first = [tuple(ranges) for ranges in itertools.product(*kinds)]
        if first != boxes or max((high - low for low, high in box), default=1) == 1:
            layers.append((False, [first]))
            boxes = first
        while max((high - low for ranges in boxes for low, high in ranges), default=1) > 1:
            layers.append((True, [_halves(ranges) for ranges in boxes]))
            boxes = list(itertools.chain(*layers[-1][1]))
        return layers


def _halves(ranges: Ranges) -> list[Ranges]:
    """Of the widest, unless all are of one level."""
    widths = [high - low for low, high in ranges]
    if max(widths, default=1) == 1:
        return [ranges]
    index = widths.index(max(widths))
    low, high = ranges[index]
    middle = low + (high - low + 1) // 2
    return [
        (*ranges[:index], half, *ranges[index + 1 :]) for half in ((low, middle), (middle, high))
    ]


class Layer(NamedTuple):
    """A layer of cells in groups, each of which divides what is above it.

    :param clique: its number. :param groups: of the layer, and :param cells: of the layer, among
        all. :param parent: the number of the layer above; -1 for all records. :param above: a row
        for each group, with 1 for the cells of the parent that it divides, and the same transposed;
        None where groups are the parent's cells, one by one. :param is_halved: whether what it
        divides is in order. :param adds: for each cell of the clique, which cell here has it,
        int[cells].
    """

    clique: int
    groups: slice
    cells: slice
    parent: int
    above: tuple[csr_array, csr_array] | None
    is_halved: bool
    adds: np.ndarray


class Tree(NamedTuple):
    """All layers of all cliques, one after the other.

    :param layers: of which the first divides all records. :param starts: the first cell of each
        group, int[g]. :param of_cell: the group of each cell, int[k]. :param sizes: cells of each
        group, float[g, 1]. :param layer_of: of each group, int[g]. :param weights: of the cells of
        a group in its prior, with a mean of 1, float[k, 1]. :param beneath: how many cells of the
        clique each cell adds up, float[k, 1]. :param measured: the cells of the last layer of each
        clique but the root, in the order of ``Cells``.
    """

    layers: tuple[Layer, ...]
    starts: np.ndarray
    of_cell: np.ndarray
    sizes: np.ndarray
    layer_of: np.ndarray
    weights: np.ndarray
    beneath: np.ndarray
    measured: np.ndarray

    @classmethod
    def of(cls, cells: Cells) -> Tree:
        """:param cells: of which the first clique is the root."""
        layers: list[Layer] = []
        last: list[Layer] = []  # of each clique
        sizes, weights = [], []
        groups = start = 0
        for number, clique in enumerate(cells.cliques):
            separator = cells.separator(number)
            many = math.prod(cells.shape(separator))
            columns = clique[len(separator) :]
            parent, above = -1, None
            if number:
                parent = layers.index(last[cells.parent(number)])
                above = _above(cells, number, layers[parent])
            divisions = cells.divisions(columns)
            for (is_halved, divided), adds in zip(
                divisions, _adds(divisions, cells.shape(columns)), strict=True
            ):
                counts = np.array([len(children) for children in divided])
                of_box = np.repeat(np.arange(len(divided)), counts)
                widths = np.bincount(adds)
                mean = (np.bincount(of_box, widths) / counts)[of_box]
                sizes.append(np.tile(counts, many))
                weights.append(np.tile(widths / mean if is_halved else np.ones(len(widths)), many))
                group, cell = groups + many * len(counts), start + many * len(widths)
                at = start + np.arange(many)[:, None] * len(widths) + adds
                layers.append(
                    Layer(
                        number,
                        slice(groups, group),
                        slice(start, cell),
                        parent,
                        above,
                        is_halved,
                        at.ravel(),
                    )
                )
                groups, start, parent, above = group, cell, len(layers) - 1, None
            last.append(layers[-1])
        together = np.concatenate(sizes)
        every = np.concatenate([layer.adds for layer in layers])
        return cls(
            tuple(layers),
            np.cumsum(together) - together,
            np.repeat(np.arange(len(together)), together),
            together[:, None].astype(float),
            np.repeat(
                np.arange(len(layers)),
                [layer.groups.stop - layer.groups.start for layer in layers],
            ),
            np.concatenate(weights)[:, None],
            np.bincount(every)[:, None].astype(float),
            np.concatenate([layer.adds for layer in last[1:]]),
        )

    def in_cells(self, concentrations: np.ndarray) -> np.ndarray:
        """The parameter of each cell's Dirichlet distribution, float[k, n].

        :param concentrations: a of each layer, float[layers, n].
        """
        scaled: np.ndarray = self.weights * concentrations[self.layer_of][self.of_cell]
        return scaled

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Of the cells of each group, float[g, n] of float[k, n]."""
        summed: np.ndarray = np.add.reduceat(values, self.starts, axis=0)
        return summed

    def counts(self, proportions: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of all cells, float[k, n], and of what each group divides, float[g, n].

        :param proportions: of the group's records, float[k, n]. :param total: of all records.
        """
        counts = np.empty_like(proportions)
        above = np.empty((len(self.starts), proportions.shape[1]))
        for layer in self.layers:
            if layer.parent < 0:
                above[layer.groups] = total
            else:
                divided = counts[self.layers[layer.parent].cells]
                above[layer.groups] = divided if layer.above is None else layer.above[0] @ divided
            counts[layer.cells] = above[self.of_cell[layer.cells]] * proportions[layer.cells]
        return counts, above

    def slopes(self, direct: np.ndarray, proportions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of a function of ``counts``, in all cells and in what each group divides.

        :param direct: where each count is moved alone, float[k, n].
        """
        of_counts, of_above = direct.copy(), np.empty((len(self.starts), direct.shape[1]))
        for layer in reversed(self.layers):
            first = self.starts[layer.groups] - layer.cells.start
            weighted = of_counts[layer.cells] * proportions[layer.cells]
            passed = of_above[layer.groups] = np.add.reduceat(weighted, first, axis=0)
            if layer.parent >= 0:
                to = self.layers[layer.parent].cells
                of_counts[to] += passed if layer.above is None else layer.above[1] @ passed
        return of_counts, of_above

    def added(self, values: np.ndarray) -> np.ndarray:
        """The sums of measured cells in all cells, float[k, 1]; in the root's, those of the first
        clique that was measured.

        :param values: of all cliques but the root, float[cells].
        """
        ends = np.cumsum([0] + [len(layer.adds) for layer in self.last[1:]])
        blocks = [values[low:high] for low, high in itertools.pairwise(ends)]
        # the groups of the first clique that was measured are the cells of the root
        root = blocks[0].reshape(len(self.last[0].adds), -1).sum(axis=1)
        every = np.concatenate([layer.adds for layer in self.layers])
        weights = np.concatenate([[root, *blocks][layer.clique] for layer in self.layers])
        summed: np.ndarray = np.bincount(every, weights)[:, None]
        return summed

    @property
    def last(self) -> list[Layer]:
        """The last layer of each clique, whose cells are those of the clique."""
        return list({layer.clique: layer for layer in self.layers}.values())


def _adds(
    divisions: Sequence[tuple[bool, list[list[Ranges]]]], shape: Sequence[int]
) -> list[np.ndarray]:
    """For each layer, which of its boxes has each cell of a table of this shape, int[cells]."""
    box = np.zeros(1, int)
    if shape:
        boxes = itertools.chain(*divisions[-1][1])
        firsts = np.array([[low for low, _ in ranges] for ranges in boxes])
        box = np.argsort(np.ravel_multi_index(tuple(firsts.T), shape))
    adds = [box]
    for _, divided in reversed(divisions[1:]):
        box = np.repeat(np.arange(len(divided)), [len(children) for children in divided])[box]
        adds.insert(0, box)
    return adds


def _above(cells: Cells, number: int, parent: Layer) -> tuple[csr_array, csr_array]:
    """For each cell of a clique's separator, the cells of the parent that it adds up; and the same
    transposed.
    """
    separator = cells.separator(number)
    rows = cells.codes_in(separator, cells.codes(cells.cliques[parent.clique]))
    columns = parent.adds - parent.cells.start
    shape = (math.prod(cells.shape(separator)), len(columns))
    summing = csr_array((np.ones(len(columns)), (rows, columns)), shape=shape)
    return summing, summing.T.tocsr()
