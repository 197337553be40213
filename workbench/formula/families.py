"""The families of responses by name."""

from __future__ import annotations

from types import MappingProxyType

from workbench import _validate
from workbench.formula.classes import Categorical, Cumulative
from workbench.formula.continuous import Beta, Gamma, Gaussian, StudentT
from workbench.formula.counts import Bernoulli, Binomial, NegativeBinomial, Poisson
from workbench.formula.family import Family, Gradient, Units
from workbench.formula.response import Response
from workbench.formula.survival import Exponential, Weibull

__all__ = ["FAMILIES", "Family", "Gradient", "Response", "Units", "get"]

FAMILIES = MappingProxyType(
    {
        family.name: family()
        for family in (
            Gaussian, StudentT, Bernoulli, Binomial, Poisson, NegativeBinomial, Gamma, Beta, Categorical, Cumulative,
            Exponential, Weibull,
        )
    }
)  # fmt: skip


def get(name: str | Family, link: str | None = None) -> Family:
    """A family by name, with its first link unless ``link`` names another.

    >>> from workbench.formula import families
    >>> families.get("bernoulli", "probit").link
    'probit'

    :raises ArgumentError: naming ``family`` or ``link``, with the names that there are.
    """
    if isinstance(name, Family):
        return name if link is None else name.with_link(link)
    if not isinstance(name, str) or name not in FAMILIES:
        raise _validate.unknown_name("family", name, FAMILIES)
    return FAMILIES[name].with_link(link)
