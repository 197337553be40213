"""Draws of a posterior by the Markov chains that made them, as diagnostics of chains take them.

Chains give draws in turn: draw i is of chain i mod m. Several of them one after another make one of
the few chains that are shown, so that no Markov chain is in two of these. Independent draws have no
chains, so any split of them will do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Chains", "chains_of"]

_SHOWN = (4, 5, 3, 2)  # how many chains to show: the first that divides the numbers


class Chains(NamedTuple):
    """How many Markov chains made the draws of a posterior, and how many states they gave.

    :param markov: m; 0 for independent draws. :param states: of all chains, a multiple of m. Draw i
        comes from state i mod ``states``, so that of more draws several share one.
    """

    markov: int = 0
    states: int = 1

    def order(self, count: int) -> np.ndarray:
        """Indices of ``count`` draws, int[chains, length]. Draws of one state are side by side.

        It is one chain where ``count`` has no divisor that suits.
        """
        shown = next((n for n in _SHOWN if count % n == 0 and self.markov % n == 0), 1)
        draws = np.arange(count)
        if not self.markov:
            return draws.reshape(shown, -1)
        state = draws % self.states
        return np.lexsort((state, state % self.markov, draws % shown)).reshape(shown, -1)

    def words(self, count: int) -> str:
        """How the draws are in chains."""
        shown = len(self.order(count))
        if not self.markov:
            return f"independent draws in {shown} equal parts"
        return f"{self.markov} Markov chains, {self.markov // shown} after another in each chain"


def chains_of(kind: str, count: int) -> Chains:
    """Chains of ``count`` draws of a posterior.

    :param kind: "noise-aware", whose curvatures come from chains; "sums", for those given noised
        sums; or another, for independent draws.
    """
    if kind == "noise-aware":
        from workbench.posterior import noise_aware

        return Chains(noise_aware.CHAINS, noise_aware.CURVATURES)
    if kind == "sums":
        from workbench.posterior import gram_chain

        return Chains(min(gram_chain.CHAINS, count), max(count, 1))
    return Chains()
