"""Scales and shapes that clipping biases: which rows of a result's tables bear a mark, and why.

Residuals of both signs pull a coefficient both ways, so that what is clipped of them largely
cancels out. What they say of a scale or a shape is skewed: clipping takes most off the records far
out. So these quantities are marked from a tenth of clipped gradients on, which the released counts
of norms tell, and where nothing tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workbench.privacy.gradient_norms import GradientNorms
    from workbench.results.fit_result import FitResult

__all__ = ["ClippingBias", "clipping_bias"]


class ClippingBias(NamedTuple):
    """Marks of rows, and what they mean.

    :param sites: that are marked, of the posterior. :param mark: beside the name or the contrast of
        a row. :param words: a sentence; "" where there is no mark.
    """

    sites: tuple[str, ...] = ()
    mark: str = ""
    words: str = ""

    def of(self, quantity: str) -> str:
        """The mark of a quantity, after a space; "" for most.

        :param quantity: a site's name, with the place in brackets or without.
        """
        return f" {self.mark}" if quantity.partition("[")[0] in self.sites else ""


def clipping_bias(result: FitResult) -> ClippingBias:
    """What clipping did to scales and shapes, from the release alone."""
    from workbench.results import description

    is_clipped = result.guarantee.is_private and result.draws_kind != "sums"
    mark, reason = _verdict(result.gradient_norms) if is_clipped else ("", "")
    sites = description.scales_and_shapes(result) if mark else ()
    if not sites:
        return ClippingBias()
    may = "is" if mark == "(clipped)" else "may be"
    first = f"What is marked {mark} {may} biased by clipping, which intervals do not count:"
    return ClippingBias(sites, mark, f"{first} {reason}")


def _verdict(norms: GradientNorms | None) -> tuple[str, str]:
    """(mark, the reason in words)."""
    if norms is None:
        return "(clipped?)", "nothing was released about how many gradients were clipped."
    are_many, share = norms.many_are_clipped, norms.words_on_clipped()
    mark = {True: "(clipped)", None: "(clipped?)", False: ""}[are_many]
    return mark, share[0].lower() + share[1:]
