"""The marginals of a decomposable model that pairs of dependent columns ask for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from workbench.models.joint_cells import in_order
from workbench.posterior.joint_cells import LARGEST

__all__ = ["marginals_of"]

# deviations of the noise that an average cell has in records at least, in a pair that may be
# independent and in a marginal of three columns
_UNCLEAR, _TRIPLES = 5.0, 20.0
_QUICK = 500  # cells of all marginals, of which more take a minute


def marginals_of(
    levels: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    unclear: Sequence[tuple[int, int]],
    records: float,
    noise_multiplier: float,
) -> list[list[int]]:
    """Columns in marginals of a decomposable model; a column that no pair has is by itself.

    First the maximum spanning forest of the pairs that depend on each other (Chow and Liu 1968),
    then of the unclear ones. Columns that no marginal has together are sure to be independent
    there, though nobody knows; counting them together in vain costs little, where the average cell
    has many more records than noise. At last two columns that are joined to the same third one are
    counted together with it, those of few levels first: they may depend on each other given the
    third, and change its dependence on the other. All cells together are as many as are taken at
    most, so even clear pairs of many levels may be left out.

    :param levels: how many each column has. :param pairs: that depend on each other, clearest
        first, as are ``unclear``, which may not. :param noise_multiplier: sigma of the release of
        the marginals.
    """

    def is_taken(cliques: list[set[int]], joined: set[int], least: float, most: int) -> bool:
        cells = [math.prod(levels[column] for column in clique) for clique in [*cliques, joined]]
        noise = noise_multiplier * math.sqrt(len(cliques))
        has_room = records >= least * noise * cells[-1] and sum(cells[:-1]) <= most
        return has_room and in_order(cliques) is not None

    marginals = [{column} for column in range(len(levels))]
    smallest_first = sorted([*pairs, *unclear], key=lambda pair: levels[pair[0]] * levels[pair[1]])
    for candidates, size, least, most in (
        (pairs, 2, 0.0, LARGEST),
        (unclear, 2, _UNCLEAR, _QUICK),
        (smallest_first, 3, _TRIPLES, _QUICK),
    ):
        for pair in candidates:
            for joined in _joined(marginals, pair, size):
                changed = [clique for clique in marginals if not clique <= joined] + [joined]
                if is_taken(changed, joined, least, most):
                    marginals = changed
                    break
    return sorted(map(sorted, marginals))


def _joined(marginals: list[set[int]], pair: tuple[int, int], size: int) -> Iterator[set[int]]:
    """Marginals of ``size`` columns that join the two of a pair and what both are together with."""
    of_first, of_second = (
        [columns for columns in marginals if column in columns] for column in pair
    )
    if any({*pair} <= columns for columns in of_first):
        return
    for clique, neighbour in itertools.product(of_first, of_second):
        joined = {*pair} | (clique & neighbour)
        if len(joined) == size:
            yield joined
