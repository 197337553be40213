"""``formula``: the ``Model`` of a formula, a family and a declaration of columns."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpyro.distributions as dist

from workbench import _validate
from workbench._lazy import pd
from workbench.data import Dataset, Schema
from workbench.data.columns import Numeric
from workbench.data.look import Products, Scale, Scales, Shares, Standard, learned
from workbench.data.preprocessing import listed
from workbench.formula import squares
from workbench.formula.design import Design, DesignWarning, sd_of
from workbench.formula.factors import Number
from workbench.formula.families import Family, get, of_column
from workbench.formula.new_groups import NewGroups
from workbench.formula.parsing import Parsed, parse, refused
from workbench.formula.prior_table import PriorLine, checked_priors, prior_lines, rescaled_priors
from workbench.formula.priors import text_of
from workbench.formula.records import Columns, columns_of_formula
from workbench.formula.regression import (
    INTERCEPT,
    LINES,
    WEIGHTS,
    Joint,
    MeanField,
    Regression,
    log_site_of,
    sites_of,
)
from workbench.formula.shapes import Curve, Monotone, scale_of
from workbench.models import LinearPredictor, Model, NormalResiduals, OwnUnits, clip_share, pictures
from workbench.models.outcomes import Outcome
from workbench.posterior.noise_aware import LARGEST

__all__ = ["FormulaModel", "formula"]

_GUIDES = {"diagonal": MeanField, "full": Joint}
_BASES = (_ORTHOGONAL := "orthogonal", "scaled")
_OF_GROUPS = (
    "Intervals of effects of {groups} and of their standard deviations may be several times too "
    "narrow: {reason}."
)
_OF_PARAMETERS = (
    "With effects of groups, estimates of {parameters} may be off by more than their intervals say."
)
_TOO_FEW = (
    "The last bends of {name} are clear, so it may have more of them than k allows, and its bands "
    "may be too narrow: write a larger k, or declare a narrower range."
)
_HIDDEN = (
    "The noise hides whether any record has {0}={1}, against which the other levels of {0} are: "
    "their rows and the intercept say little."
)
_FREQUENT = " Write C({0}, Treatment({2!r}))."
_TRUTHS = (
    "{0.name} has whole numbers from {0.low:g} to {0.high:g}, and its mean is taken for a straight "
    'line. If they are 0 and 1 for no and yes, write family="bernoulli".'
)
_LAST, _CLEAR = 2, 3.0  # bends, and standard deviations of their weights
_VISIBLE, _VISIBLE_IF_IT_CANCELS = 100.0, 1000.0  # N epsilon / |x|^2, from which C is adapted


class _Declared(NamedTuple):
    """What a caller said of a formula's model, checked."""

    parsed: Parsed
    family: Family
    schema: Schema
    roles: Mapping[str, str]
    priors: Mapping[str, dist.Distribution]
    covariance: str
    basis: str


@dataclass(frozen=True)
class FormulaModel(Model):
    """A regression from a formula; made by ``wb.models.formula``.

    :param columns: of a table, and how they become arrays.
    :param lines: the table of priors.
    :param scales: that were learned from noised counts of the columns, by column, and shares of
        levels.
    """

    columns: Columns = field(kw_only=True)
    lines: tuple[PriorLine, ...] = ()
    scales: Scales = field(default_factory=dict)
    _declared: _Declared = field(kw_only=True, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Files hold what was declared, of which the design's functions are made again."""
        return _again, (self._declared, dict(self.scales))

    @property
    def learns_scales(self) -> bool:
        """See ``Model.learns_scales``: whether there is a column whose bounds may be learned."""
        return bool(self.columns_scaled) and not self._fixed_by_priors

    @property
    def learns_products(self) -> bool:
        """See ``Model.learns_products``. A linear regression, mostly from one release of noised
        sums, has them there; of slopes of groups no products are taken.
        """
        design, block = self.columns.design, self.columns.design.block
        has_slopes = any(effects.block.columns for effects in design.groups)
        is_several = len(block.terms) > 1 or len(block.columns) > 1
        is_linear = self.linear is not None and self.linear.residuals is not None
        return self.learns_scales and is_several and not (has_slopes or is_linear)

    @functools.cached_property
    def standard(self) -> Standard:
        """See ``Model.standard``."""
        return squares.standard(self.columns.design, self.scales)

    @property
    def _fixed_by_priors(self) -> list[str]:
        """Priors of the user that say something only on the scales that were declared."""
        block = self.columns.design.block
        of_bases = {
            name
            for name, column in zip(block.names, block.columns, strict=True)
            if any(len(block.factors[part.factor].labels) > 1 for part in column)
            and all(isinstance(block.factors[part.factor], Number) for part in column)
        }
        return [
            name
            for line in self.lines
            if line.site == INTERCEPT
            or (line.site == WEIGHTS and line.names[0] in of_bases)
            or line.site in map(scale_of, block.curves)
            or (line.site not in (WEIGHTS, *block.monotone) and self.responses)
            for name in line.names
            if name in self._declared.priors
        ]

    @property
    def columns_used(self) -> frozenset[str]:
        """See ``Model.columns_used``."""
        return frozenset(self.columns.schema.columns)

    @property
    def responses(self) -> tuple[str, ...]:
        """See ``Model.responses``."""
        return (self.columns.response.name,) if self.columns.family.learns_bounds else ()

    @property
    def columns_scaled(self) -> frozenset[str]:
        """See ``Model.columns_scaled``."""
        design = self.columns.design
        blocks = (design.block, *(effects.block for effects in design.groups))
        numbers = {
            name
            for block in blocks
            for factor in block.factors.values()
            for name in (factor.columns if isinstance(factor, Number) else ())
        }
        fixed = {*design.as_levels, *self.columns.extras.values()}
        bounded = numbers & set(self.columns.schema.bounds)
        return frozenset(bounded - fixed) | frozenset(self.responses)

    def with_scales(self, scales: Scales) -> FormulaModel:
        """See ``Model.with_scales``: priors are those of the family for a column of spread 1; a
        prior of the user keeps its meaning in the columns' own units.

        :raises ArgumentError: naming a prior that cannot be expressed on other scales.
        """
        for name in self._fixed_by_priors:
            raise _validate.ArgumentError(
                f"priors[{name!r}]",
                text_of(self._declared.priors[name]),
                "is for the bounds that are declared, and scales are learned here.",
                remedy="Learn none: wb.Privacy(look=0); or leave this prior out.",
            )
        scaled = self.columns_scaled
        return _again(
            self._declared,
            {
                name: scale
                for name, scale in scales.items()
                if name in scaled or isinstance(scale, Shares | Products)
            },
        )

    @property
    def priors(self) -> pd.DataFrame:
        """The priors by name, as ``priors=`` takes them: of what, and the distribution.

        Weights are of columns that were scaled to [-1, 1] by declared bounds. On the scale of the
        link, 1 is what ``Family.units`` says.
        """
        rows = [(line.names[0], line.words, text_of(line.prior)) for line in self.lines]
        return pd.DataFrame(rows, columns=["name", "of", "prior"]).set_index("name")

    def dataset(self, frame: pd.DataFrame, **options: Any) -> Dataset:
        """The data set of a table with the columns that the formula uses.

        :param options: those of ``wb.data.from_frame`` about units, missing values and evaluation
            records.
        :raises ArgumentError: as ``wb.data.from_frame``.
        """
        return self.columns.dataset(frame, **options)

    def view(self, dataset: Dataset) -> Any:
        """``dataset`` with the design's arrays, which follow from its columns row by row.

        :raises ArgumentError: naming ``data``, if it does not have the columns.
        """
        return self.columns.view(dataset)

    @property
    def has_own_arrays(self) -> bool:
        """True: the design's columns follow from the table's."""
        return True

    def beside_target(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """See ``Model.beside_target``: the status of times, of which those above their bound are
        censored there.
        """
        return self.columns.beside_target(y)

    def doubts(self, draws: Mapping[str, np.ndarray]) -> list[str]:
        """See ``Model.doubts``: references that hardly any record may have, whole numbers that may
        be yes or no, and curves whose last bends are clear, so further ones would be too.
        """
        words = [
            _HIDDEN.format(*hidden) + (_FREQUENT.format(*hidden) if hidden[2] else "")
            for hidden in squares.hidden_references(self.columns.design, self.scales)
        ]
        response = self.columns.response
        column = self.columns.schema.columns.get(response.name)
        if (
            self.columns.family.name == "gaussian"
            and isinstance(column, Numeric)
            and column.whole
            and column.low <= 0 < 1 <= column.high <= column.low + 2
        ):
            words.append(_TRUTHS.format(response))
        curves = self.columns.design.block.curves if WEIGHTS in draws else {}
        for name, scales in curves.items():
            last = draws[WEIGHTS][:, list(scales)[-_LAST:]]
            if np.any(np.abs(last.mean(axis=0)) > _CLEAR * last.std(axis=0)):
                words.append(_TOO_FEW.format(name=name))
        return words

    @property
    def target_words(self) -> str:
        """See ``Model.target_words``."""
        return self.columns.target_words

    def outcome(self, dataset: Dataset) -> Outcome | None:
        """See ``Model.outcome``."""
        return self.columns.family.outcome(self.columns.response)

    @property
    def own_units(self) -> OwnUnits | None:
        """How weights, the intercept's first if there is one, become those of the columns in their
        own units.
        """
        return _own_units(self.columns)

    def arrays_of(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """See ``Model.arrays_of``.

        :raises ArgumentError: also for groups that were not declared.
        """
        NewGroups(self.columns.design, frame, allowed=False)
        return self.columns.inputs(frame)

    def new_groups(self, frame: pd.DataFrame) -> NewGroups:
        """The groups of ``frame`` that were not declared, or are missing."""
        return NewGroups(self.columns.design, frame, allowed=True)


def formula(
    formula: str = "",
    family: Any = None,
    schema: Any = None,
    *,
    link: str | None = None,
    priors: Mapping[str, Any] | None = None,
    trials: str | None = None,
    exposure: str | None = None,
    observed: str | None = None,
    covariance: Literal["diagonal", "full"] = "diagonal",
    basis: Literal["orthogonal", "scaled"] = "orthogonal",
) -> FormulaModel:
    """A Bayesian regression from a formula, such as "readmitted ~ age + C(ward) + (1 | hospital)".

    What the formula means follows from ``schema`` alone; nothing is learnt from records. Numbers
    are scaled to [-1, 1] by their declared bounds and cut to them; category weights are differences
    from the reference level.

    >>> schema = {"ill": bool, "age": (0, 120), "ward": ["a", "b"]}
    >>> model = wb.models.formula("ill ~ age + ward", family="bernoulli", schema=schema)
    >>> model.priors.loc["age", "prior"]
    'Normal(0, 2.5)'
    >>> frame = pd.DataFrame(
    ...     {"ill": [0, 1] * 30, "age": np.arange(60), "ward": ["a", "a", "b"] * 20}
    ... )
    >>> model.dataset(frame)
    Dataset('data frame', 2 features, target 'ill')

    :param formula: operators and transforms are those of R and patsy; docs/formulas.md lists them.
    :param family: of the response, a name of ``workbench.formula.families.FAMILIES``, or one that
        other programs have for it; by default ``families.of_column`` of the response.
    :param schema: ``Schema``, or ``{column: declaration}`` as for ``Schema.from_declaration``, of
        the columns that the formula uses, the response among them. Columns that it does not use are
        ignored.
    :param link: of the mean; the family's first by default.
    :param priors: ``{name: prior}`` instead of the default ones: distributions of
        ``numpyro.distributions`` of one number, or their text, "Normal(0, 2)". A name is that of a
        column of the design, of a term (all its columns), "Intercept", "hospital_sd" for a group,
        or of a further parameter, such as "sigma". ``model.priors`` lists them.
    :param trials: column with the number of trials, for binomial responses.
    :param exposure: column with the exposure, such as days at risk, for counts.
    :param observed: column that is 1 where the event was seen and 0 where it was censored, for
        times to an event.
    :param covariance: of the guide, "diagonal" or "full". The full one fits correlated columns, and
        needs little noise.
    :param basis: the columns that are fitted. "orthogonal" replaces a column that others nearly
        give within the declared bounds, as ``I(yr**2)`` beside ``yr``, by what they leave of it;
        ``coefficients()`` are those of the columns as they are written. "scaled" fits all columns
        as they are written, scaled to [-1, 1].
    :raises ArgumentError: naming the argument.
    """
    parsed = parse(formula)
    _validate.choice("covariance", covariance, _GUIDES)
    beside = {"trials": trials, "exposure": exposure, "observed": observed}
    roles = {role: _validate.text(role, name) for role, name in beside.items() if name is not None}
    declared = Schema.from_declaration(schema)
    family = of_column(declared.columns.get(parsed.response)) if family is None else family
    kind = get(family, link, {*parsed.extras, *roles})
    declared_priors = checked_priors(priors, declared.columns)
    _validate.choice("basis", basis, _BASES)
    return _model(_Declared(parsed, kind, declared, roles, declared_priors, covariance, basis), {})


def _again(request: _Declared, scales: Scales) -> FormulaModel:
    with warnings.catch_warnings():  # which were shown when the formula was declared
        warnings.simplefilter("ignore", DesignWarning)
        return _model(request, scales)


def _model(request: _Declared, scales: Scales) -> FormulaModel:
    parsed, kind, declared, roles, declared_priors, covariance, basis = request
    named = declared_priors if basis == _ORTHOGONAL else None
    before = columns = columns_of_formula(parsed, kind, declared, roles, named)
    priors = declared_priors
    if scales:
        columns = columns_of_formula(parsed, kind, learned(declared, scales), roles, named)
        ratio = kind.units(before.response).scale / kind.units(columns.response).scale
        priors = rescaled_priors(declared_priors, before.design, columns.design, ratio)
    widths = _widths(columns, scales)
    lines = prior_lines(columns.design, kind, columns.response, priors, widths)
    regression = _regression(columns, lines, scales)
    return FormulaModel(
        name="formula",
        summary=f"Regression {parsed.text}, {kind.name} with the link {kind.link}: "
        f"{columns.target_words}.",
        model=regression,
        guide=_GUIDES[covariance],
        predict=regression.predict,
        score=functools.partial(kind.scores, columns.response),
        coordinates=functools.partial(_coordinates, regression),
        arrays=columns.arrays,
        defaults=functools.partial(_advice, columns, squares.fillings(columns.schema, scales)),
        pictures={
            **({"coefficients": pictures.coefficients} if _is_single(regression) else {}),
            **({"group effects": pictures.group_effects} if regression.groups else {}),
        },
        sort=functools.partial(_readable, regression),
        linear=_with_residuals(_linear(regression, columns), regression, columns.design),
        options={
            "formula": parsed.text,
            "family": kind.name,
            "link": kind.link,
            "schema": before.schema.to_dict(),
            **roles,
            **(
                {"priors": {name: text_of(prior) for name, prior in declared_priors.items()}}
                if declared_priors
                else {}
            ),
            **({"covariance": covariance} if covariance != "diagonal" else {}),
            "basis": basis,
        },
        columns=columns,
        lines=lines,
        scales=scales,
        _declared=request,
        cautions=(*columns.design.cautions, *_of_groups(columns, regression)),
    )


def _widths(columns: Columns, scales: Scales) -> dict[str, float]:
    """By column, how many of its standard deviations 1 of the scaled column is."""
    bounds = columns.schema.bounds
    return {
        name: (bounds[name][1] - bounds[name][0]) / (2 * scale.spread)
        for name, scale in scales.items()
        if name in bounds and isinstance(scale, Scale)
    }


def _regression(columns: Columns, lines: tuple[PriorLine, ...], scales: Scales) -> Regression:
    def of(site: str) -> list[dist.Distribution]:
        return [line.prior for line in lines if line.site == site]

    intercept, design = of(INTERCEPT), columns.design
    curves, monotone = design.block.curves, design.block.monotone
    if monotone and columns.family.num_predictors(columns.response) > 1:
        raise refused(
            design.parsed.text,
            f"has {next(iter(monotone))} for a response of levels without order: write C().",
        )
    shared = {effects.name: design.shared(effects, bool(intercept)) for effects in design.groups}
    shaped = [index + bool(intercept) for shape in (curves | monotone).values() for index in shape]
    return Regression(
        columns.family,
        columns.response,
        columns.arrays,
        design.groups,
        of(WEIGHTS),
        intercept[0] if intercept else None,
        {effects.name: of(sd_of(effects.name)) for effects in design.groups},
        {name: of(name)[0] for name in columns.family.parameters(columns.response)},
        {
            name: matrix
            for name, matrix in shared.items()
            if matrix is not None and not np.any(matrix[shaped])
        },
        [
            *(Curve(name, scales, of(scale_of(name))[0]) for name, scales in curves.items()),
            *(Monotone(name, indices, of(name)[0]) for name, indices in monotone.items()),
        ],
        functools.partial(squares.second_moments, design, scales),
    )


def _of_groups(columns: Columns, regression: Regression) -> list[str]:
    """Which intervals of a model with groups are not right, by what was measured."""
    groups, words = columns.design.groups, []
    if unsplit := [group.name for group in groups if group.name not in regression.shared]:
        reason = "records do not tell their mean from other quantities"
        words.append(_OF_GROUPS.format(groups=listed(unsplit), reason=reason))
    by = {group.name: {factor.column for factor in group.by} for group in groups}
    if nested := [name for name in by if any(by[outer] < by[name] for outer in by)]:
        reason = "records do not tell their means in a larger group from the effect of that group"
        words.append(_OF_GROUPS.format(groups=listed(nested), reason=reason))
    if groups and _quantities(regression) > LARGEST:
        reason = (
            f"the model has more than {LARGEST} quantities, too many to count the privacy noise"
        )
        words.append(_OF_GROUPS.format(groups=listed(by), reason=reason))
    if groups and (parameters := columns.family.parameters(columns.response)):
        words.append(_OF_PARAMETERS.format(parameters=listed(parameters)))
    return words


def _quantities(regression: Regression) -> int:
    """How many numbers records use."""
    effects = sum(
        (len(group.labels) - (group.name in regression.shared)) * len(group.columns)
        for group in regression.groups
    )
    of_predictor = effects + regression.num_weights + (regression.intercept is not None)
    predictors = regression.family.num_predictors(regression.response)
    return of_predictor * predictors + len(regression.parameters)


def _is_single(regression: Regression) -> bool:
    """Whether there are weights, one for each column."""
    return regression.num_weights > 0 and regression.family.num_predictors(regression.response) == 1


def _readable(
    regression: Regression, draws: Mapping[str, np.ndarray], params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Draws without the sites that other ones are made of."""
    hidden = {site for name in regression.shared for site in sites_of(name)}
    hidden |= {f"mean_{name}" for name in (INTERCEPT, WEIGHTS)} if hidden else set()
    hidden |= {LINES, *(shape.name for shape in regression.shapes)}
    hidden |= {log_site_of(name) for name in regression.family.logarithms}
    return {name: values for name, values in draws.items() if name not in hidden}


def _coordinates(regression: Regression, dataset: Dataset) -> dict[str, Any]:
    response, names = regression.response, list(dataset.feature_names)
    several = regression.family.num_predictors(response) > 1
    levels = list(response.levels[1:])
    coordinates: dict[str, Any] = (
        {WEIGHTS: (names, levels) if several else names} if regression.num_weights else {}
    )
    if several:
        coordinates[INTERCEPT] = levels
    if several:
        coordinates |= {
            scale_of(shape.name): levels for shape in regression.shapes if isinstance(shape, Curve)
        }
    for effects in regression.groups:
        columns = list(effects.columns)
        coordinates[sd_of(effects.name)] = (columns, levels) if several else columns
        if not several:
            coordinates[effects.name] = list(effects.labels), columns
    return coordinates


def _linear(regression: Regression, columns: Columns) -> LinearPredictor | None:
    if not _is_single(regression):
        return None
    ratio = regression.family.ratio.get(regression.family.link, "")
    return LinearPredictor(
        WEIGHTS, INTERCEPT if regression.intercept is not None else "", ratio, _own_units(columns)
    )


def _own_units(columns: Columns) -> OwnUnits | None:
    """Of the intercept and the weights of a predictor; None for a design of too many columns."""
    family, response, design = columns.family, columns.response, columns.design
    matrix, units = design.own_units, family.units(response)
    if matrix is None:
        return None
    words = design.block.contrasts()
    constant = np.zeros(len(matrix)) if design.constant is None else design.constant
    if design.block.intercept and family.has_intercept:
        return OwnUnits(
            matrix * units.scale, ("all columns 0 or at reference", *words), units.shift * constant
        )
    # cutpoints take its place: the columns' own weights do not depend on it
    start = int(design.block.intercept)
    return OwnUnits(
        matrix[start:, start:] * units.scale, tuple(words), units.shift * constant[start:]
    )


def _with_residuals(
    linear: LinearPredictor | None, regression: Regression, design: Design
) -> LinearPredictor | None:
    """With what a fit from noised sums needs, where the response is normal around the linear
    predictor alone.
    """
    family, bounds = (
        regression.family,
        regression.response.bounds if regression.family.normal_scale else (-1.0, 1.0),
    )
    has_others = regression.groups or regression.shapes
    if linear is None or not family.normal_scale or family.link != "identity" or has_others:
        return linear
    if regression.response.through_origin:  # the predictor is 0 in the middle of these
        largest = max(map(abs, bounds))
        bounds = (-largest, largest)
    return linear._replace(
        residuals=NormalResiduals(family.normal_scale, bounds, float(squares.largest(design)))
    )


def _advice(
    columns: Columns,
    fillings: Mapping[str, float],
    dataset: Dataset,
    num_records: int,
    epsilon: float,
) -> dict[str, Any]:
    """C as a share of the largest, or of a typical large, norm of a record's gradient: the rule of
    the gallery's logistic regression, with the family's gradient in the predictor.

    Where gradients have no bound, C is a guess, and clipping bias does not shrink with N as
    intervals do. There the run adapts C if N epsilon / |x|^2 leaves its counts of norms visible
    (``_VISIBLE``); later where clipping bias cancels out unless residuals are skewed, since a large
    C then costs noise and gains little.

    A category adds at most 1 to |x|^2, however many levels it has, and polynomials 1 for each
    degree; effects of groups add as much as columns of their own, of which a row has one group's.
    The share is right for columns that fill their range evenly. Learned ranges reach far beyond
    most records, so C is as much smaller as the root of a record's mean squares is.
    """
    gradient, design = columns.family.gradient(columns.response), columns.design
    size = squares.largest(design)
    largest = gradient.size * math.sqrt(size + 1)
    mean, even = (total / 3 + 1 for total in (squares.largest(design, fillings), size))
    typical = largest * math.sqrt(mean / even)
    visible = _VISIBLE_IF_IT_CANCELS if columns.family.cancels_bias else _VISIBLE
    bounded = gradient.is_bound and not columns.family.parameters(columns.response)
    return {
        "clip": clip_share(num_records * epsilon / max(1, size)) * typical,
        "adapts_clip": not gradient.is_bound and num_records * epsilon >= visible * max(1, size),
        **({"largest_clip": largest} if bounded else {}),
    }
