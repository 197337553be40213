"""Coefficients of a linear predictor in the columns' own units."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.columns import Contrast
from workbench.data.preprocessing import OTHER
from workbench.data.schema import Schema
from workbench.models.model import LinearPredictor, OwnUnits
from workbench.results import arviz_adapter, description, summaries
from workbench.results.chains import chains_of
from workbench.results.coefficient_table import CoefficientTable, coefficient_table
from workbench.results.effects import formula_of

if TYPE_CHECKING:
    from workbench.formula.model import FormulaModel
    from workbench.results.fit_result import FitResult

__all__ = ["Ranked", "clearest", "has_coefficients", "ranked", "table"]

_MIDDLE = "all columns in the middle of their ranges"
_FEWEST_DRAWS = 100  # fewer do not show a tenth of the tail


def table(
    result: FitResult,
    interval: float,
    kind: str,
    *,
    diagnostics: bool = False,
    groups: bool = False,
) -> CoefficientTable:
    """See ``FitResult.coefficients``. :raises ArgumentError: naming ``model``, if it is no
    regression.
    """
    has_diagnostics = _validate.flag("diagnostics", diagnostics)
    has_groups = _validate.flag("groups", groups)
    coefficients, beside, ratio = _rows(result, has_groups)
    summary = _summary(coefficients, beside, ratio, interval, kind)
    if has_diagnostics:
        columns = _diagnostics(result, [*coefficients, *beside], has_groups)
        summary = summary.iloc[:, :5].assign(**columns)
    return coefficient_table(result, summary, interval, kind, has_diagnostics)


def _diagnostics(result: FitResult, rows: list[_Row], has_groups: bool) -> dict[str, np.ndarray]:
    """Mean and sd of the prior in own units, NaN where it cannot be drawn from, effective sample
    size and R-hat of each row.
    """
    draws = np.stack([row.unscaled for row in rows], axis=1)
    prior = description.prior_draws(result)
    moments = np.full((2, len(rows)), np.nan)
    if prior:
        coefficients, beside, _ = _rows(dataclasses.replace(result, draws=prior), has_groups)
        of_prior = np.stack([row.unscaled for row in (*coefficients, *beside)], axis=1)
        moments = np.stack([of_prior.mean(axis=0), of_prior.std(axis=0, ddof=1)])
    chains = chains_of(result.draws_kind, len(draws))
    columns = [*moments, *arviz_adapter.chain_statistics(draws, chains)]
    return dict(zip(("prior mean", "prior sd", "ess", "r_hat"), columns, strict=True))


class Ranked(NamedTuple):
    """A coefficient beside others.

    :param contrast: what it compares, such as "1 more". :param scaled: mean, standard deviation,
        low and high as the model has it, on the scale of the fitted columns.
    :param unscaled: the same in own units. :param is_clear: whether it is one of those that differ
        from 0 jointly.
    """

    name: str
    contrast: str
    scaled: tuple[float, ...]
    unscaled: tuple[float, ...]
    is_clear: bool


def _distance(coefficient: Ranked) -> float:
    """Standard deviations between the mean and 0."""
    mean, deviation, *_ = coefficient.scaled
    return abs(mean) / max(deviation, 1e-30)


def ranked(result: FitResult, interval: float) -> list[Ranked]:
    """A regression's coefficients without intercepts, the clearest first; none for other models,
    and where a model's declaration of them is wrong.

    With the probability of the intervals, all that are clear have the sign of their scaled mean.
    Intervals of one coefficient each do not promise that: of six that are 0, one of 90 % intervals
    excludes it in nearly every other fit. In own units the coefficient of a column that interacts
    with another is where that one is 0, which may be far from all records.

    :param interval: probability of the intervals.
    """
    if not has_coefficients(result) or not result.draws:
        return []
    try:
        rows = [row for row in _rows(result)[0] if not row.is_intercept]
    except ValueError:
        return []
    if not rows:
        return []
    scaled, unscaled = (
        np.stack([getattr(row, kind) for row in rows], axis=1) for kind in ("scaled", "unscaled")
    )
    of_scaled, of_unscaled = (
        summaries.moments(draws, range(len(rows)), interval).to_numpy().tolist()
        for draws in (scaled, unscaled)
    )
    are_clear = np.isin(np.arange(len(rows)), clearest(scaled, interval))
    are_clear &= len(scaled) >= _FEWEST_DRAWS
    # of a level without records the interval follows from other levels' records, not from its own
    are_clear &= [not row.name.endswith(f"={OTHER}") for row in rows]
    coefficients = [
        Ranked(
            row.name,
            row.words,
            tuple(of_scaled[number]),
            tuple(of_unscaled[number]),
            bool(is_clear),
        )
        for number, (row, is_clear) in enumerate(zip(rows, are_clear, strict=True))
    ]
    return sorted(coefficients, key=_distance, reverse=True)


def clearest(draws: np.ndarray, probability: float) -> np.ndarray:
    """Places of the columns of ``draws``, float[draws, columns], whose simultaneous interval
    excludes 0, int[k], the clearest first.

    The intervals reach equally many standard deviations from their means, and hold all columns at
    once with this probability.
    """
    means, deviations = draws.mean(axis=0), np.maximum(draws.std(axis=0), 1e-30)
    reach = np.quantile(np.abs((draws - means) / deviations).max(axis=1), probability)
    distance = np.abs(means) / deviations
    order = np.argsort(-distance)
    return order[distance[order] > reach]


def _rows(result: FitResult, has_groups: bool = False) -> tuple[list[_Row], list[_Row], str]:
    """(coefficients, quantities beside them, what exp of a coefficient is).

    :param has_groups: whether effects of groups are coefficients, too.
    """
    model = formula_of(result) if result.model_is_known else None
    linear = result.predictor.model.linear if result.model_is_known else None
    if model is not None:
        ratio, groups = _parts_of_formula(result, model)
    elif linear is not None:
        intercept = _drawn(result, linear.intercept, 1) if linear.intercept else None
        ratio, groups = (
            linear.ratio,
            {"": _part(result, linear, _drawn(result, linear.weights, 2), intercept)},
        )
    else:
        raise _validate.ArgumentError(
            "model", result.model, "has no linear predictor: only regressions have coefficients."
        )
    coefficients = [
        _Row(
            f"{level}: {name}" if level else name,
            words,
            unscaled,
            scaled,
            group.has_intercept and number == 0,
        )
        for level, group in groups.items()
        for number, (name, words, unscaled, scaled) in enumerate(
            zip(group.names, group.words, group.columns, group.scaled.T, strict=True)
        )
    ]
    if has_groups:
        coefficients += _of_groups(result)
    return coefficients, _beside(result, model), ratio


def has_coefficients(result: FitResult) -> bool:
    """Whether the model is known to be a regression."""
    return result.model_is_known and (
        result.predictor.model.linear is not None or formula_of(result) is not None
    )


class _Row(NamedTuple):
    """Draws of one quantity, float[draws], in own units and as the model has it."""

    name: str
    words: str
    unscaled: np.ndarray
    scaled: np.ndarray
    is_intercept: bool = False


def _summary(
    coefficients: list[_Row], beside: list[_Row], ratio: str, interval: float, kind: str
) -> pd.DataFrame:
    """A row for each quantity. Ratios and the share above 0 are those of coefficients.

    :param beside: deviations between groups and parameters of the family, which are none.
    """
    rows = [*coefficients, *beside]
    draws = np.stack([row.unscaled for row in rows], axis=1)
    summary = summaries.moments(draws, [row.name for row in rows], interval, kind)
    low, high = summary.columns[2:4]
    summary.insert(0, "contrast", [row.words for row in rows])
    is_coefficient = np.arange(len(rows)) < len(coefficients)
    if ratio:
        for name, column in ((ratio, "mean"), (f"{ratio} low", low), (f"{ratio} high", high)):
            summary[name] = np.exp(summary[column]).where(is_coefficient)
    summary["share above 0"] = [float(np.mean(row.unscaled > 0)) for row in rows]
    summary["share above 0"] = summary["share above 0"].where(is_coefficient)
    summary["scaled mean"] = [float(row.scaled.mean()) for row in rows]
    summary["scaled sd"] = [float(row.scaled.std(ddof=1)) for row in rows]
    return summary


class _Part(NamedTuple):
    """Coefficients of one linear predictor: draws of each in own units, names, contrasts, draws of
    the scaled ones, and whether the first is an intercept.
    """

    columns: list[np.ndarray]
    names: list[str]
    words: list[str]
    scaled: np.ndarray
    has_intercept: bool


def _part(
    result: FitResult, linear: LinearPredictor, weights: np.ndarray, intercept: np.ndarray | None
) -> _Part:
    labels = result.coordinates.get(linear.weights)
    names = list(
        (labels[0] if isinstance(labels, tuple) else labels) or result.data["feature_names"]
    )
    size = weights.shape[1]
    names = names if len(names) == size else [f"feature {number}" for number in range(size)]
    drawn = weights if intercept is None else np.column_stack([intercept, weights])
    units = linear.own_units or _own_units(result, size, intercept is not None)
    columns = list((drawn @ units.matrix.T + units.shift).T)
    if intercept is not None:
        names = [linear.intercept, *names]
    return _Part(columns, names, list(units.contrasts), drawn, intercept is not None)


def _parts_of_formula(result: FitResult, model: FormulaModel) -> tuple[str, dict[str, _Part]]:
    """(what exp of a coefficient is, coefficients by level of the response: of each but the first
    where it has several).
    """
    family, response, design = model.columns.family, model.columns.response, model.columns.design
    several = family.num_predictors(response) > 1
    drawn = [result.draws[site] for site in ("intercept", "weights") if site in result.draws]
    if not drawn:
        return "", {}
    draws = np.concatenate(
        [
            values.reshape(len(values), -1, *(values.shape[-1:] if several else ()))
            for values in drawn
        ],
        axis=1,
    )
    has_intercept = "intercept" in result.draws
    names = [*(["intercept"] if has_intercept else []), *design.block.names]
    units = model.own_units

    def part(scaled: np.ndarray) -> _Part:
        columns, words = scaled, ["1 more, as the model saw it"] * len(names)
        if units is not None:
            columns, words = scaled @ units.matrix.T + units.shift, list(units.contrasts)
        return _Part(list(columns.T), names, words, scaled, has_intercept)

    groups = (
        {level: part(draws[..., index]) for index, level in enumerate(response.levels[1:])}
        if several
        else {"": part(draws)}
    )
    return family.ratio.get(family.link, ""), groups


def _beside(result: FitResult, model: FormulaModel | None) -> list[_Row]:
    """Deviations between groups, on the scale of the link, and the family's parameters; none for a
    model without formula.

    Those of groups' intercepts are in the middle of all columns, those of slopes for 1 more of a
    column, and cutpoints are where all columns are 0 or at reference.
    """
    from workbench.formula.shapes import scale_of

    if model is None:
        return []
    family, response, design = model.columns.family, model.columns.response, model.columns.design
    rows, unit, mark = list[_Row](), family.units(response).scale, result.clipping_bias.of
    for effects in design.groups:
        scaled = result.draws[f"{effects.name}_sd"]
        deviations = effects.deviations(scaled * unit)
        for index, column in enumerate(effects.columns):
            words = _MIDDLE if column == "Intercept" else "1 more"
            rows += _entries(
                f"sd of {column} by {effects.name}",
                f"between groups, {words}{mark(f'{effects.name}_sd')}",
                deviations[:, index],
                scaled[:, index],
            )
    for name in design.block.curves:
        scaled = result.draws[scale_of(name)]
        words = f"first bend{mark(scale_of(name))}"
        rows += _entries(f"sd of {name}", words, scaled * unit, scaled)
    for name, indices in design.block.monotone.items():
        steps = result.draws["weights"][:, list(indices)]
        average = steps.mean(axis=1)
        rows += _entries(f"average of {name}", "a step to the next level", average * unit, average)
        simplex = steps / steps.sum(axis=1, keepdims=True)
        for index, proportion in zip(indices, simplex.T, strict=True):
            words = "share of the whole effect"
            rows += _entries(f"share of {design.block.names[index]}", words, proportion, proportion)
    drawn = {site: result.draws[site] for site in family.parameters(response)}
    parameters = dict(drawn)
    if (
        "cutpoints" in parameters
        and design.block.intercept
        and design.own_units is not None
        and "weights" in result.draws
    ):
        # they take the place of an intercept, with the other sign
        parameters["cutpoints"] = (
            parameters["cutpoints"] - (result.draws["weights"] @ design.own_units[0, 1:])[:, None]
        )
    for site, values in family.own_parameters(response, parameters).items():
        is_cutpoint = site == "cutpoints"
        words = "all columns 0 or at reference" if is_cutpoint else f"of the family{mark(site)}"
        rows += _entries(site, words, values, drawn[site])
    return rows


def _of_groups(result: FitResult) -> list[_Row]:
    """A formula's effects of groups, on the scale of the link: differences from a typical group.

    :raises ArgumentError: naming ``groups``, if there are none.
    """
    model = formula_of(result)
    if model is None or not model.columns.design.groups:
        raise _validate.ArgumentError(
            "groups", True, "is for formulas with groups, such as y ~ x + (1 | hospital)."
        )
    unit, rows = model.columns.family.units(model.columns.response).scale, list[_Row]()
    for effects in model.columns.design.groups:
        fitted = np.asarray(result.draws[effects.name], np.float64)  # [draws, L, K, ...]
        scaled = np.swapaxes(fitted, 1, 2)
        unscaled = np.einsum("jk,dk...->dj...", effects.own_units, scaled * unit)
        for index, column in enumerate(effects.columns):
            where = _MIDDLE if column == "Intercept" else "1 more"
            for level, label in enumerate(effects.labels):
                rows += _entries(
                    f"{column} of {effects.name}={label}",
                    f"against a typical group, {where}",
                    unscaled[:, index, level],
                    scaled[:, index, level],
                )
    return rows


def _entries(name: str, words: str, unscaled: np.ndarray, scaled: np.ndarray) -> list[_Row]:
    unscaled, scaled = (
        np.asarray(values).reshape(len(values), -1) for values in (unscaled, scaled)
    )
    names = (
        [name]
        if unscaled.shape[1] == 1 and name != "cutpoints"
        else [f"{name}[{index}]" for index in range(unscaled.shape[1])]
    )
    return [
        _Row(*row) for row in zip(names, [words] * len(names), unscaled.T, scaled.T, strict=True)
    ]


def _drawn(result: FitResult, site: str, dimensions: int) -> np.ndarray:
    """Draws of a site of the linear predictor. :raises ArgumentError: naming ``linear``, if it is
    not such a site.
    """
    draws = result.draws.get(site)
    if draws is None or draws.ndim != dimensions:
        shape = "one number for each feature" if dimensions == 2 else "one number"
        raise _validate.ArgumentError(
            "linear", site, f"must be a latent site of the model with {shape}."
        )
    return draws


def _own_units(result: FitResult, size: int, has_intercept: bool) -> OwnUnits:
    """Of weights of columns that were each scaled by the schema of the data set."""
    contrasts = _contrasts(result, size)
    words = tuple(contrast.words for contrast in contrasts)
    slopes = np.diag([contrast.slope for contrast in contrasts])
    if not has_intercept:
        return OwnUnits(slopes, words)
    shifts = [[1.0, *(contrast.shift for contrast in contrasts)]]
    return OwnUnits(
        np.vstack([shifts, np.insert(slopes, 0, 0.0, axis=1)]),
        ("all columns 0 or at reference", *words),
    )


def _contrasts(result: FitResult, size: int) -> list[Contrast]:
    schema = result.data["schema"]
    unscaled = [Contrast(1.0, 0.0, "1 more, as the model saw it")] * size
    if not schema:
        return unscaled
    contrasts = [
        contrast
        for column in Schema.from_dict(schema).columns.values()
        for contrast in column.contrasts()
    ]
    return contrasts if len(contrasts) == size else unscaled
