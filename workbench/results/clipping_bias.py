"""Scales and shapes that clipping biases: which rows of a result's tables bear a mark, and why.

Residuals of both signs pull a coefficient both ways, so that what is clipped of them largely
cancels out. What they say of a scale or a shape is skewed: clipping takes most off the records far
out. With normal, gamma and Weibull responses, clipping a share of the gradients moves the standard
deviation or the shape by about the same share of itself (up to a third of the gradients). So these
quantities are marked if more are clipped than a tenth, or than their relative standard deviation.
The released counts of norms tell it; where nothing tells, the mark has a question mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["ClippingBias", "clipping_bias"]

_MANY = 0.1
_MARKS = {True: "(clipped)", None: "(clipped?)", False: ""}
_NOTHING = "nothing was released about how many gradients were clipped."


class ClippingBias(NamedTuple):
    """Marks of rows, and what they mean.

    :param marks: by site, for beside the name or the contrast of a row. :param words: a sentence;
        "" where there is no mark.
    """

    marks: Mapping[str, str] = MappingProxyType({})
    words: str = ""

    def of(self, quantity: str) -> str:
        """The mark of a quantity, after a space; "" for most.

        :param quantity: a site's name, with the place in brackets or without.
        """
        mark = self.marks.get(quantity.partition("[")[0], "")
        return f" {mark}" if mark else ""


def clipping_bias(result: FitResult) -> ClippingBias:
    """What clipping did to scales and shapes, from the release alone."""
    from workbench.results import description

    norms = result.gradient_norms
    if not result.guarantee.is_private or result.draws_kind == "sums":
        return ClippingBias()
    marks = {
        site: _MARKS[None if norms is None else norms.more_are_clipped(_share(result.draws[site]))]
        for site in description.scales_and_shapes(result)
    }
    marks = {site: mark for site, mark in marks.items() if mark}
    if not marks:
        return ClippingBias()
    verbs = {"(clipped)": "is", "(clipped?)": "may be"}
    subjects = [f"what is marked {mark} {verbs[mark]}" for mark in sorted({*marks.values()})]
    reason = _NOTHING if norms is None else norms.words_on_clipped()
    words = (
        f"{' and '.join(subjects)} biased by clipping, which intervals do not count: "
        f"{reason[0].lower()}{reason[1:]}"
    )
    return ClippingBias(marks, words[0].upper() + words[1:])


def _share(draws: np.ndarray) -> float:
    """The share of clipped gradients that moves an entry of a site by its standard deviation, or a
    tenth.
    """
    deviations, means = np.std(draws, axis=0, dtype=float), np.mean(draws, axis=0, dtype=float)
    relative = deviations / np.maximum(np.abs(means), 1e-30)
    return float(min(_MANY, np.min(relative, initial=_MANY)))
