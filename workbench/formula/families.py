"""The families of responses by name."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from workbench import _validate
from workbench.formula import hints
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
            Gaussian,
            StudentT,
            Bernoulli,
            Binomial,
            Poisson,
            NegativeBinomial,
            Gamma,
            Beta,
            Categorical,
            Cumulative,
            Exponential,
            Weibull,
        )
    }
)


def get(name: str | Family, link: str | None = None) -> Family:
    """A family by name, with its first link unless ``link`` names another.

    >>> from workbench.formula import families
    >>> families.get("bernoulli", "probit").link
    'probit'

    :raises ArgumentError: naming ``family`` or ``link``, with the names that there are.
    """
    if not isinstance(name, Family):
        key = _plain(name)
        if key in hints.FAMILIES:
            raise _validate.ArgumentError("family", name, f"unknown name: {hints.FAMILIES[key]}")
        if key not in FAMILIES:
            raise _validate.unknown_name("family", name, FAMILIES)
        name = FAMILIES[key]
    if link is None:
        return name
    key, rule = _plain(link), f"must be one of {', '.join(name.links)} for {name.name}."
    if key in name.links:
        return replace(name, link=key)
    if key in hints.LINKS:
        raise _validate.ArgumentError("link", link, f"unknown name: {hints.LINKS[key]} It {rule}")
    if any(key in family.links for family in FAMILIES.values()):
        raise _validate.ArgumentError("link", link, rule)
    raise _validate.unknown_name("link", link, name.links)


def _plain(name: object) -> str:
    """A name without capitals and blanks, as "Negative Binomial" for negative_binomial."""
    return "_".join(name.lower().replace("-", " ").split()) if isinstance(name, str) else ""
