"""How long the records' gradients were: what clipping did to them, from noised counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["GradientNorms"]

_MANY = 0.1  # of the gradients are clipped: the fit may answer another question
_FEW = 0.02
_SURE = 2.0  # standard deviations


@dataclass(frozen=True)
class GradientNorms:
    """Shares of the records' gradients by their norm before clipping, over the steps from three tenths of the run on.

    They come from counts that every step releases with noise, so the guarantee covers them.

    >>> norms = wb.fit("logistic", "breast_cancer", epsilon=1.0).gradient_norms
    >>> norms.edges
    (0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0)
    >>> len(norms.shares)
    8

    :param edges: where ranges of norms end, in units of C; the last range has no end.
    :param shares: of the gradients, one for each range. Noise is not taken off: some may be below 0, and their sum not 1.
    :param deviation: standard deviation of the noise in each share.
    :param clip: C in these steps; None in files of earlier versions.
    :param adapted_from: C at the beginning of a run that adapted it; None for one C.
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    deviation: float
    clip: float | None = None
    adapted_from: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GradientNorms:
        """The inverse of ``to_dict``."""
        of_clip = values.get("clip"), values.get("adapted_from")
        return cls(tuple(values["edges"]), tuple(values["shares"]), float(values["deviation"]), *of_clip)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def above(self, edge: float) -> tuple[float, float]:
        """The share of gradients longer than ``edge``, one of ``edges``, and the standard deviation of its noise.

        Both the ranges above and those below say it, since shares add up to 1; the estimate weighs them by their noise. It
        may be a little below 0 or above 1.
        """
        place = self.edges.index(edge) + 1
        below, above = self.shares[:place], self.shares[place:]
        weights = 1 / len(above), 1 / len(below)
        share = (sum(above) * weights[0] + (1 - sum(below)) * weights[1]) / sum(weights)
        return share, self.deviation / math.sqrt(sum(weights))

    @property
    def clipped(self) -> tuple[float, float]:
        """The share of gradients longer than C, which were clipped, in [0, 1], and the standard deviation of its noise."""
        share, deviation = self.above(1.0)
        return min(max(share, 0.0), 1.0), deviation

    def words(self) -> str:
        """What was clipped, in a sentence, and what follows from it in another; before them C, if the run chose it."""
        if self.adapted_from is None:
            return self._of_clipped()
        return f"The run adapted C from {self.adapted_from:.3g} to {self.clip:.3g}. {self._of_clipped()}"

    def _of_clipped(self) -> str:
        share, deviation = self.clipped
        low, high = max(0.0, share - _SURE * deviation), min(1.0, share + _SURE * deviation)
        if high - low > 0.7:
            return "The noise hides how many gradients were clipped."
        ends = [f"{100 * end:.0f}" for end in (low, high)]
        range_ = f"At most about {ends[1]}" if low < 0.005 else "About " + " to ".join(dict.fromkeys(ends))
        return f"{range_} % of the gradients were longer than C and were clipped. {self.advice()}".strip()

    def advice(self) -> str:
        """What the norms say about C, in a sentence; "" where they say nothing."""
        share, deviation = self.above(1.0)
        if share - _SURE * deviation > _MANY:
            return "That can shift what is learnt, which intervals do not show: a larger C shifts less and needs more noise."
        for edge in (edge for edge in self.edges if edge <= 0.5):
            share, deviation = self.above(edge)
            if share + _SURE * deviation < _FEW:
                return f"Hardly any was longer than {edge:g} C: a smaller C would need less noise."
        return ""
