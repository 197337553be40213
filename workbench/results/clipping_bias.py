"""Scales and shapes that clipping biases: which rows of a result's tables bear a mark, and why.

Residuals of both signs pull a coefficient both ways, so that what is clipped of them largely
cancels out. What they say of a scale or a shape is skewed: clipping takes most off the records far
out. With normal, gamma and Weibull responses, clipping a share of the gradients moves the standard
deviation or the shape by about the same share of itself (up to a third of the gradients). So these
quantities are marked if more are clipped than a tenth, or than their relative standard deviation.
The released counts of norms tell it; where nothing tells, the mark has a question mark. Where a
family centres clipped gradients (``formula.centring``), a smaller share moves nothing as long as
the model is right, and a tenth is the limit.

Another mark is for families with several parameters. If one of them is nearly as wide as its prior,
the others have been estimated around what the prior says of it: they are all marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro.distributions.transforms import biject_to

from workbench._validate import ArgumentError
from workbench.data.preprocessing import listed
from workbench.results.effects import formula_of

if TYPE_CHECKING:
    import numpyro.distributions as dist

    from workbench.formula.regression import Regression
    from workbench.results.fit_result import FitResult

__all__ = ["ClippingBias", "clipping_bias"]

_MANY = 0.1
_DRAWS = 2000  # of a prior
_UNLEARNED = 0.5  # of a prior's standard deviation: data that say thrice as much leave this
_BY_PRIOR = "(by the prior)"
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
    is_centred = _is_centred(result)
    clipped_shares = {
        site: _MANY if is_centred else _share(result.draws[site])
        for site in description.scales_and_shapes(result)
    }
    marks = {
        site: _MARKS[None if norms is None else norms.more_are_clipped(clipped_share)]
        for site, clipped_share in clipped_shares.items()
    }
    marks = {site: mark for site, mark in marks.items() if mark}
    words = []
    if marks:
        verbs = {"(clipped)": "is", "(clipped?)": "may be"}
        subjects = [f"what is marked {mark} {verbs[mark]}" for mark in sorted({*marks.values()})]
        reason = _NOTHING if norms is None else norms.words_on_clipped()
        of_clipping = (
            f"{' and '.join(subjects)} biased by clipping, which intervals do not count: "
            f"{reason[0].lower()}{reason[1:]}"
        )
        words.append(of_clipping[0].upper() + of_clipping[1:])
    unlearned, together = _unlearned(result)
    if unlearned:
        words.append(
            f"What is marked {_BY_PRIOR} may be far off: {listed(unlearned)} "
            f"{'is' if len(unlearned) == 1 else 'are'} about as wide as the prior."
        )
        marks |= {site: f"{marks.get(site, '')} {_BY_PRIOR}".strip() for site in together}
    return ClippingBias(marks, " ".join(words))


def _regression(result: FitResult) -> Regression | None:
    """That of a formula; None for other models, and for those that are not in the gallery."""
    try:
        model = formula_of(result)
    except ArgumentError:
        return None
    return None if model is None else cast("Regression", model.model)


def _is_centred(result: FitResult) -> bool:
    """Whether gradients were centred, as of ``PrivateStep.is_centred``."""
    regression = _regression(result)
    return (
        regression is not None
        and regression.clipping_correction is not None
        and result.settings.get("estimator") == "aligned"
        and result.guarantee.clipping == "flat"
        and result.guarantee.max_rows is None
    )


def _unlearned(result: FitResult) -> tuple[list[str], list[str]]:
    """Parameters of a family with several that are about as wide as their priors; and all of them,
    if there is one.
    """
    regression = _regression(result)
    if regression is None:
        return [], []
    priors = {
        site: prior
        for site, prior in regression.parameters.items()
        if site in result.draws and not prior.event_shape
    }
    if len(priors) < 2:
        return [], []
    wide = [
        site
        for site, prior in priors.items()
        if _spread(prior, result.draws[site])
        > _UNLEARNED * _spread(prior, prior.sample(jax.random.key(0), (_DRAWS,)))
    ]
    return wide, list(priors) if wide else []


def _spread(prior: dist.Distribution, draws: ArrayLike) -> float:
    """The standard deviation on unconstrained space."""
    return float(np.std(biject_to(prior.support).inv(jnp.asarray(draws)), dtype=float))


def _share(draws: np.ndarray) -> float:
    """The share of clipped gradients that moves an entry of a site by its standard deviation, or a
    tenth.
    """
    deviations, means = np.std(draws, axis=0, dtype=float), np.mean(draws, axis=0, dtype=float)
    relative = deviations / np.maximum(np.abs(means), 1e-30)
    return float(min(_MANY, np.min(relative, initial=_MANY)))
