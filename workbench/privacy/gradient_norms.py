"""How long the records' gradients were: what clipping did to them, from noised counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench import _schema

__all__ = ["GradientNorms", "check_form"]

_MANY = 0.1  # of the gradients are clipped: the fit may answer another question
_FEW = 0.02
_SURE = 2.0  # standard deviations
_PROVEN = 3.5  # standard deviations; with 2, 9 of 60 default fits of breast_cancer had a caution
# share of the lengths clipped off that does not cancel out between records, as ``adaptive_clip``
# takes it
_ALIGNED = 0.5
_FAR = 256.0  # an adapted C in its beginning, beyond which noise hides the answer
_NEARER = 2.0  # of where it began, which served the same tables
_MANY_ABSENT, _CLEAR = 0.02, 3.0  # of the records; standard deviations
_NOTABLE = 1.0  # posterior standard deviations of shift

_FORMS = {
    "edges": _schema.listed(_schema.number(above=0)),
    "shares": _schema.listed(_schema.number()),
    "deviation": _schema.number(above=0),
    "clip": _schema.number(above=0),
    "adapted_from": _schema.optional(_schema.number(above=0)),
}


def check_form(field: str, values: Any) -> None:
    """Check what ``GradientNorms.to_dict`` wrote.

    :param field: its name, for errors. :raises FormError: naming a field in it.
    """
    _schema.record(_FORMS)(field, values)
    within, edges = f"{field}." if field else "", values["edges"]
    if 1.0 not in edges or min(edges) > 0.5 or sorted(set(edges)) != edges:
        raise _schema.FormError(
            f"{within}edges", "must ascend, with 1 and at least one of at most 0.5."
        )
    if len(values["shares"]) != len(edges) + 1:
        raise _schema.FormError(f"{within}shares", "must be one more than edges.")


@dataclass(frozen=True)
class GradientNorms:
    """Shares of the records' gradients by their norm before clipping, over the steps from three
    tenths of the run on.

    They come from counts that every step releases with noise, so the guarantee covers them.

    >>> norms = wb.fit("logistic", "breast_cancer", epsilon=1.0).gradient_norms
    >>> norms.edges
    (0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0)
    >>> len(norms.shares)
    8

    :param edges: where ranges of norms end, in units of C; the last range has no end.
    :param shares: of the gradients, one for each range. Noise is not taken off: some may be below
        0, and their sum not 1.
    :param deviation: standard deviation of the noise in each share.
    :param clip: C in these steps.
    :param adapted_from: C at the beginning of a run that adapted it; None for one C.
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    deviation: float
    clip: float
    adapted_from: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GradientNorms:
        """The inverse of ``to_dict``.

        :raises FormError: naming a field that is not of one.
        """
        check_form("", values)
        return cls(**{**values, "edges": tuple(values["edges"]), "shares": tuple(values["shares"])})

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def above(self, edge: float) -> tuple[float, float]:
        """The share of gradients longer than ``edge``, one of ``edges``, and the standard deviation
        of its noise.

        Both the ranges above and those below say it, since shares add up to 1; the estimate weighs
        them by their noise. It may be a little below 0 or above 1. Where records are clearly
        ``absent``, it is of the others, and only the ranges above say it.
        """
        index = self.edges.index(edge) + 1
        below, above = self.shares[:index], self.shares[index:]
        if self.absent:
            present = self._present
            return sum(above) / present, self.deviation * math.sqrt(len(above)) / present
        weights = 1 / len(above), 1 / len(below)
        fraction = (sum(above) * weights[0] + (1 - sum(below)) * weights[1]) / sum(weights)
        return fraction, self.deviation / math.sqrt(sum(weights))

    @property
    def absent(self) -> float:
        """The share of the declared records that took no part: left out by learned scales, or fewer
        than declared. 0 where it is little, or the noise hides it.
        """
        share = 1 - sum(self.shares)
        least = share - _CLEAR * self.deviation * math.sqrt(len(self.shares))
        return min(share, 1.0) if least > _MANY_ABSENT else 0.0

    @property
    def _present(self) -> float:
        """The share that took part, far enough from 0 to divide by."""
        return max(1 - self.absent, self.deviation)

    @property
    def clipped(self) -> tuple[float, float]:
        """The share of gradients longer than C, which were clipped, in [0, 1], and the standard
        deviation of its noise.
        """
        fraction, deviation = self.above(1.0)
        return min(max(fraction, 0.0), 1.0), deviation

    @property
    def excess(self) -> float:
        """What clipping takes off a gradient on average: E (norm - C)+ in units of C, at least."""
        return self._excess(_PROVEN)

    def _excess(self, certainty: float) -> float:
        """The integral of P(norm > t) from C on. Each share counts with so many standard deviations
        less than its estimate, and falls in a straight line to the next edge, and to 0 at twice the
        last one.
        """
        edges = [edge for edge in self.edges if edge >= 1.0]
        least = [
            max(0.0, fraction - certainty * deviation)
            for fraction, deviation in map(self.above, edges)
        ]
        points = zip([*edges, 2 * edges[-1]], [*least, 0.0], strict=True)
        return sum((b - a) * (p + r) / 2 for (a, p), (b, r) in itertools.pairwise(points))

    @property
    def mean_square(self) -> float:
        """The mean of the squared norms after clipping, in units of C^2."""
        ends = [0.0, *(edge for edge in self.edges if edge <= 1.0)]
        lengths = [(low + high) / 2 for low, high in itertools.pairwise(ends)]
        lengths += [1.0] * (len(self.shares) - len(lengths))
        squares = sum(
            fraction * length**2 for fraction, length in zip(self.shares, lengths, strict=True)
        )
        return max(squares / self._present, ends[1] ** 2)

    def shift(self, deviations: Sequence[float], certainty: float = _PROVEN) -> float:
        """By how many posterior standard deviations clipping may have moved estimates.

        Clipping moves the mean gradient by b, at most ``excess``; half of it is taken not to cancel
        out between records. By the information identity, a record's curvature is about its mean
        squared gradient over the number of quantities d, so that estimates move by about
        b d / (mean square). The direction is not known: most estimates move less. It is 0 where the
        noise hides how much was clipped.

        :param deviations: posterior standard deviations of the d quantities with these gradients.
        :param certainty: standard deviations of the counts with which it is at least that.
        """
        if not all(deviation > 0 for deviation in deviations):
            return 0.0
        typical = math.exp(sum(map(math.log, deviations)) / len(deviations))
        excess = self._excess(certainty)
        moved = _ALIGNED * excess * len(deviations) / (self.mean_square * self.clip)
        return moved / typical

    def caution(self, deviations: Sequence[float]) -> str:
        """How far clipping may have moved estimates and what to do, in a sentence each.

        "" for less than a posterior standard deviation. Where a C that the run did not adapt surely
        clipped more than a tenth, it is what the counts say, however little they prove of it.

        A C that the run adapted to hundreds of times where it began comes first: its noise is as
        many times larger.

        :param deviations: as of ``shift``.
        """
        if self.adapted_from is not None and self.clip > _FAR * self.adapted_from:
            return (
                f"The run adapted C from {self.adapted_from:.3g} to {self.clip:.3g}, and the noise "
                "with it: estimates may be far off, and intervals are far too wide. Give clip=, "
                f"such as {_NEARER * self.adapted_from:.3g}."
            )
        shift = self.shift(deviations)
        if self.adapted_from is None and self.more_are_clipped():
            shift = max(shift, self.shift(deviations, 0.0))
        if shift < _NOTABLE:
            return ""
        size = f"up to {shift:.0f}" if shift < 100 else "more than 100"
        remedy = 'clip="auto" or a larger clip' if self.adapted_from is None else "a larger clip"
        return (
            f"Clipping may have moved some estimates by {size} of their standard deviations, "
            f"which intervals do not count: about {100 * self.clipped[0]:.0f} % of the gradients "
            f"were longer than C = {self.clip:.3g}. Use {remedy}; more records do not help."
        )

    def words(self) -> str:
        """What was clipped, in a sentence, and what follows from it in another; before them C, if
        the run chose it.
        """
        first = self.adapted_from
        chosen = "" if first is None else f"The run adapted C from {first:.3g} to {self.clip:.3g}."
        advice = "" if self._is_hidden else self.advice()
        return " ".join(filter(None, [chosen, self.words_on_clipped(), advice]))

    def more_are_clipped(self, threshold: float = _MANY) -> bool | None:
        """Whether more than this fraction of the gradients were clipped; None if the noise hides
        it.
        """
        fraction, deviation = self.above(1.0)
        return None if abs(fraction - threshold) <= _SURE * deviation else fraction > threshold

    def words_on_clipped(self) -> str:
        """What was clipped, in a sentence."""
        low, high = self._range
        if self._is_hidden:
            return "The noise hides how many gradients were clipped."
        ends = [f"{100 * end:.0f}" for end in (low, high)]
        range_ = (
            f"At most about {ends[1]}"
            if low < 0.005
            else "About " + " to ".join(dict.fromkeys(ends))
        )
        return f"{range_} % of the gradients were longer than C and were clipped."

    @property
    def _range(self) -> tuple[float, float]:
        """Of the share of gradients that were clipped."""
        fraction, deviation = self.clipped
        return max(0.0, fraction - _SURE * deviation), min(1.0, fraction + _SURE * deviation)

    @property
    def _is_hidden(self) -> bool:
        low, high = self._range
        return high - low > 0.7

    def advice(self) -> str:
        """What the norms say about C, in a sentence; "" where they say nothing."""
        if self.more_are_clipped():
            return (
                "That can shift what is learnt, which intervals do not show: a larger C shifts "
                "less and needs more noise."
            )
        for edge in (edge for edge in self.edges if edge <= 0.5):
            fraction, deviation = self.above(edge)
            if fraction + _SURE * deviation < _FEW:
                return f"Hardly any was longer than {edge:g} C: a smaller C would need less noise."
        return ""
