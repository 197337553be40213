"""The priors of a formula's model: the family's by default, or the user's by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpyro.distributions as dist

from workbench import _validate
from workbench.formula.design import Design, sd_of
from workbench.formula.families import Family, Response
from workbench.formula.parsing import term_name
from workbench.formula.priors import prior_of, text_of
from workbench.formula.regression import INTERCEPT, WEIGHTS

__all__ = ["PriorLine", "checked_priors", "prior_lines"]


@dataclass(frozen=True)
class PriorLine:
    """The prior of one number.

    :param names: by which ``priors=`` may call it, its own first. :param site: of the model. :param
        words: what it is of.
    """

    names: tuple[str, ...]
    site: str
    words: str
    prior: dist.Distribution


def checked_priors(
    priors: Mapping[str, str | dist.Distribution] | None, columns: Collection[str] = ()
) -> dict[str, dist.Distribution]:
    """Priors by the names that the design has for their terms, as "I(yr ** 2)" for "I(yr**2)".

    :param columns: names that are those of columns, whatever they look like.
    :raises ArgumentError: naming ``priors``.
    """
    if priors is None:
        return {}
    if not isinstance(priors, Mapping):
        raise _validate.ArgumentError(
            "priors",
            priors,
            "must be a mapping of names to priors, such as {'age': 'Normal(0, 2)'}.",
        )
    checked: dict[str, dist.Distribution] = {}
    for key, prior in priors.items():
        name = str(key) if str(key) in columns else term_name(str(key))
        if name in checked:
            raise _validate.ArgumentError(
                "priors", key, f"is given twice, in two spellings of {name}."
            )
        checked[name] = prior_of(f"priors[{str(key)!r}]", prior)
    return checked


def prior_lines(
    design: Design, family: Family, response: Response, declared: Mapping[str, dist.Distribution]
) -> tuple[PriorLine, ...]:
    """The table of priors.

    :param declared: by name of a column, a term, "Intercept", a group's sd or a parameter.
    :raises ArgumentError: naming ``priors``, for an unknown name or another support.
    """
    lines = _defaults(design, family, response)
    names = dict.fromkeys(name for line in lines for name in line.names)
    for name in declared:
        if name not in names:
            raise _validate.unknown_name("priors", name, names)
        if len({line.site for line in lines if name in line.names}) > 1:
            raise _validate.ArgumentError(
                "priors",
                name,
                "is the name of a column and of something else of the model: rename the column.",
            )
    return tuple(_chosen(line, declared) for line in lines)


def _chosen(line: PriorLine, declared: Mapping[str, dist.Distribution]) -> PriorLine:
    name = next((name for name in line.names if name in declared), None)
    if name is None:
        return line
    if line.prior.event_shape:
        raise _validate.ArgumentError(
            f"priors[{name!r}]",
            text_of(declared[name]),
            "is a prior on several numbers and cannot be replaced.",
        )
    if type(declared[name].support) is not type(line.prior.support):
        raise _validate.ArgumentError(
            f"priors[{name!r}]",
            text_of(declared[name]),
            "must be a distribution on "
            f"{'all real' if line.site in (INTERCEPT, WEIGHTS) else 'positive'} numbers.",
        )
    return replace(line, prior=declared[name])


def _defaults(design: Design, family: Family, response: Response) -> list[PriorLine]:
    block, lines = design.block, []
    if block.intercept and family.has_intercept:
        words = (
            f"{family.target_words(response)}; in the middle of all numbers, at references of "
            "all categories"
        )
        lines.append(PriorLine(("Intercept",), INTERCEPT, words, family.intercept_prior(response)))
    term_of = {index: name for name, indices in block.terms.items() for index in indices}
    slope = dist.Normal(0.0, family.slope_scale(response))
    for index, name in enumerate(block.names):
        names = tuple(dict.fromkeys((name, term_of[index])))
        lines.append(PriorLine(names, WEIGHTS, block.fitted_words(index), slope))
    sd = dist.HalfNormal(family.group_scale(response))
    for effects in design.groups:
        site = sd_of(effects.name)
        for name in effects.columns:
            words = f"standard deviation of {name} between groups of {effects.name}"
            lines.append(PriorLine((f"{site}[{name}]", site), site, words, sd))
    for name, prior in family.parameters(response).items():
        lines.append(PriorLine((name,), name, f"{name} of the family {family.name}", prior))
    return lines
