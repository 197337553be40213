"""The families of responses by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from workbench import _validate
from workbench.data import columns
from workbench.formula import hints
from workbench.formula.classes import Categorical, Cumulative
from workbench.formula.continuous import (
    Beta,
    Gamma,
    Gaussian,
    InverseGaussian,
    LogNormal,
    StudentT,
)
from workbench.formula.counts import (
    Bernoulli,
    BetaBinomial,
    Binomial,
    NegativeBinomial,
    Poisson,
)
from workbench.formula.family import Family, Gradient, Units
from workbench.formula.response import Response
from workbench.formula.survival import Exponential, Weibull
from workbench.formula.zeros import (
    HurdleNegativeBinomial,
    HurdlePoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

__all__ = ["FAMILIES", "Family", "Gradient", "Response", "Units", "get", "of_column"]

FAMILIES = MappingProxyType(
    {
        family.name: family()
        for family in (
            Gaussian,
            StudentT,
            Bernoulli,
            Binomial,
            BetaBinomial,
            Poisson,
            NegativeBinomial,
            ZeroInflatedPoisson,
            ZeroInflatedNegativeBinomial,
            HurdlePoisson,
            HurdleNegativeBinomial,
            Gamma,
            InverseGaussian,
            LogNormal,
            Beta,
            Categorical,
            Cumulative,
            Exponential,
            Weibull,
        )
    }
)


def get(
    name: str | Family, link: str | None = None, beside: Collection[str] | None = None
) -> Family:
    """A family by name, with its first link unless ``link`` names another.

    Names of R, statsmodels, bambi and brms that mean one family or link are understood.

    >>> from workbench.formula import families
    >>> families.get("bernoulli", "probit").link
    'probit'
    >>> families.get("negbinomial").name
    'negative_binomial'

    :param beside: the further columns of a response, if they are known. As in R, a binomial
        response without "trials" is yes or no: bernoulli.
    :raises ArgumentError: naming ``family`` or ``link``, with the names that there are.
    """
    if not isinstance(name, Family):
        family, of_name = _named(name)
        if of_name and link is not None and _link_of(family, link) != of_name:
            rule = f"has the link {of_name}: for another one write {family.name!r}."
            raise _validate.ArgumentError("family", name, rule)
        name, link = family, (of_name or None) if link is None else link
    if name.name == "binomial" and beside is not None and "trials" not in beside:
        name = replace(FAMILIES["bernoulli"], link=name.link)
    return name if link is None else replace(name, link=_link_of(name, link))


def of_column(column: object) -> str:
    """The family of a response that is declared so, where nobody names one.

    "bernoulli" for yes or no, "categorical" for one of three or more levels, else "gaussian".
    """
    if isinstance(column, columns.Categorical) and len(column.labels) != 2:
        return "categorical"
    return "bernoulli" if isinstance(column, columns.Boolean | columns.Categorical) else "gaussian"


def _named(name: object) -> tuple[Family, str]:
    """(The family of a name, the link that the name says; "" where it says none)."""
    key = _plain(name)
    if key in hints.FAMILIES:
        raise _validate.ArgumentError("family", name, f"unknown name: {hints.FAMILIES[key]}")
    if key in hints.WITH_LINK:
        family, link = hints.WITH_LINK[key]
        return FAMILIES[family], link
    family = _same(key, FAMILIES, hints.SAME)
    if not family:
        raise _validate.unknown_name("family", name, FAMILIES)
    return FAMILIES[family], ""


def _link_of(family: Family, link: object) -> str:
    """The name of one of the family's links."""
    key, rule = _plain(link), f"must be one of {', '.join(family.links)} for {family.name}."
    if key in hints.LINKS:
        raise _validate.ArgumentError("link", link, f"unknown name: {hints.LINKS[key]} It {rule}")
    all_links = dict.fromkeys(name for candidate in FAMILIES.values() for name in candidate.links)
    name = _same(key, all_links, hints.SAME_LINKS)
    if not name:
        raise _validate.unknown_name("link", link, family.links)
    if name not in family.links:
        raise _validate.ArgumentError("link", link, rule)
    return name


def _same(key: str, names: Iterable[str], synonyms: Mapping[str, str]) -> str:
    """The one of ``names`` that a plain name means; "" for none of them."""
    return next(
        (name for name in names if key in (_plain(name), *synonyms.get(name, "").split())), ""
    )


def _plain(name: object) -> str:
    """What "Negative Binomial", "NegativeBinomial" and "negative_binomial" have in common."""
    return re.sub(r"[\s_.-]+", "", name.lower()) if isinstance(name, str) else ""
