"""The marginals of a decomposable model that pairs of dependent columns ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from workbench.models.joint_cells import in_order
from workbench.posterior.joint_cells import LARGEST

__all__ = ["marginals_of"]

_FULL = 20.0  # deviations of the noise, which cells of three columns have records for on average


def marginals_of(
    levels: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    others: Sequence[tuple[int, int]],
    records: float,
    noise_multiplier: float,
) -> list[list[int]]:
    """Columns in marginals of a decomposable model; a column that no pair has is by itself.

    First the maximum spanning forest of the pairs (Chow and Liu 1968). Then two columns that are
    joined to the same third one are counted together with it, those of few levels first and where
    the average cell has many more records than noise: they may depend on each other given the
    third, and change its dependence on the other. All cells together are as many as are taken at
    most, so pairs of many levels may be left out.

    :param levels: how many each column has. :param pairs: that depend on each other, clearest
        first, and ``others`` that may not. :param noise_multiplier: sigma of the release of the
        marginals.
    """

    def is_taken(cliques: list[set[int]], joined: set[int]) -> bool:
        cells = [math.prod(levels[column] for column in clique) for clique in [*cliques, joined]]
        noise = noise_multiplier * math.sqrt(len(cliques))
        has_room = len(joined) == 2 or records >= _FULL * noise * cells[-1]
        return has_room and sum(cells[:-1]) <= LARGEST and in_order(cliques) is not None

    marginals = [{column} for column in range(len(levels))]
    smallest_first = sorted([*pairs, *others], key=lambda pair: levels[pair[0]] * levels[pair[1]])
    for size, candidates in ((2, pairs), (3, smallest_first)):
        for pair in candidates:
            for joined in _joined(marginals, pair, size):
                changed = [clique for clique in marginals if not clique <= joined] + [joined]
                if is_taken(changed, joined):
                    marginals = changed
                    break
    return sorted(map(sorted, marginals))


def _joined(marginals: list[set[int]], pair: tuple[int, int], size: int) -> Iterator[set[int]]:
    """Marginals of ``size`` columns that join the two of a pair and what both are together with."""
    first, second = ([one for one in marginals if column in one] for column in pair)
    if any({*pair} <= one for one in first):
        return
    for one in first:
        for other in second:
            joined = {*pair} | (one & other)
            if len(joined) == size:
                yield joined
