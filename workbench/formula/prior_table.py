"""The priors of a formula's model: the family's by default, or the user's by name."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpyro.distributions as dist

from workbench import _validate
from workbench.formula.design import Design, sd_of
from workbench.formula.factors import Factor
from workbench.formula.families import Family, Response
from workbench.formula.parsing import term_name
from workbench.formula.priors import prior_of, text_of
from workbench.formula.regression import INTERCEPT, WEIGHTS
from workbench.formula.shapes import scale_of

__all__ = ["PriorLine", "checked_priors", "prior_lines", "rescaled_priors"]


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


def rescaled_priors(
    declared: Mapping[str, dist.Distribution], before: Design, after: Design, ratio: float
) -> dict[str, dist.Distribution]:
    """Priors of weights of ``before`` as those of the same columns on the scales of ``after``.

    :param ratio: of a unit of the predictor before to one after.

    :raises ArgumentError: naming a prior that is no distribution with a location and a scale.
    """
    rescaled = dict(declared)
    block = after.block
    for name, prior in declared.items():
        of_term = block.terms.get(name, ())
        index = next(
            (place for place, label in enumerate(block.names) if label == name),
            of_term[0] if of_term else None,
        )
        if index is None:  # of another site
            continue
        columns = before.block.columns[index], block.columns[index]
        factor = ratio * math.prod(old.scale / new.scale for old, new in zip(*columns, strict=True))
        if factor == 1.0:
            continue
        if not {"loc", "scale"} <= set(prior.arg_constraints):
            raise _validate.ArgumentError(
                f"priors[{name!r}]",
                text_of(prior),
                "cannot be carried over to the scale that is learned for this column.",
                remedy="Give a distribution with loc and scale, such as Normal or StudentT, or "
                "learn no scales: wb.Privacy(look=0).",
            )
        values = {argument: getattr(prior, argument) for argument in prior.arg_constraints}
        values |= {argument: float(values[argument]) * factor for argument in ("loc", "scale")}
        rescaled[name] = type(prior)(**values)
    return rescaled


def prior_lines(
    design: Design,
    family: Family,
    response: Response,
    declared: Mapping[str, dist.Distribution],
    widths: Mapping[str, float],
) -> tuple[PriorLine, ...]:
    """The table of priors.

    :param declared: by name of a column, a term, "Intercept", a group's sd or a parameter.
    :param widths: of columns whose scale was learned: how many standard deviations 1 of the scaled
        column is. By default a slope's prior is of one of them.
    :raises ArgumentError: naming ``priors``, for an unknown name or another support.
    """
    lines = _defaults(design, family, response, widths)
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
            f"{'all real' if line.prior.support is dist.constraints.real else 'positive'} numbers.",
        )
    return replace(line, prior=declared[name])


def _defaults(
    design: Design, family: Family, response: Response, widths: Mapping[str, float]
) -> list[PriorLine]:
    block, lines = design.block, []
    if block.intercept and family.has_intercept:
        words = (
            f"{family.target_words(response)}; in the middle of all numbers, at references of "
            "all categories"
        )
        lines.append(PriorLine(("Intercept",), INTERCEPT, words, family.intercept_prior(response)))
    term_of = {index: name for name, indices in block.terms.items() for index in indices}
    shaped = {index for shape in (block.curves | block.monotone).values() for index in shape}
    for index, name in enumerate(block.names):
        if index in shaped:
            continue
        is_line = term_of[index] in block.curves
        names = (name,) if is_line else tuple(dict.fromkeys((name, term_of[index])))
        factors = [block.factors[component.factor] for component in block.columns[index]]
        width = math.prod(_width(factor, widths) for factor in factors)
        slope = dist.Normal(0.0, family.slope_scale(response) * width)
        lines.append(PriorLine(names, WEIGHTS, block.fitted_words(index), slope))
    for name in block.curves:
        # a curve in x of a column that is wider than its spread by a factor has the same shape if
        # sd is larger by the power 3/2 of it, as the smoothing spline's prior is
        width = _width(block.factors[name], widths) ** 1.5
        sd = dist.HalfNormal(family.slope_scale(response) * width)
        words = f"standard deviation of the first bend of {name}; later ones have less"
        lines.append(PriorLine((scale_of(name),), scale_of(name), words, sd))
    for name, indices in block.monotone.items():
        average = dist.Normal(0.0, family.slope_scale(response) / len(indices))
        words = f"average step of {name}, of which steps are shares of one sign"
        lines.append(PriorLine((name,), name, words, average))
    sd = dist.HalfNormal(family.group_scale(response))
    for effects in design.groups:
        site = sd_of(effects.name)
        for name in effects.columns:
            words = f"standard deviation of {name} between groups of {effects.name}"
            lines.append(PriorLine((f"{site}[{name}]", site), site, words, sd))
    for name, prior in family.parameters(response).items():
        words = f"{name} of the family {family.name}"
        if name == family.zeros:
            words = f"logit of {words}"
        lines.append(PriorLine((name,), name, words, prior))
    return lines


def _width(factor: Factor, widths: Mapping[str, float]) -> float:
    return widths.get(getattr(factor, "curve_of", "") or factor.name, 1.0)
