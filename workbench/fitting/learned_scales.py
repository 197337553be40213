"""A fit's look at the columns before its first step: how much of the budget it gets, and the scales
that follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from workbench import _schema, _validate
from workbench.data import Dataset
from workbench.data.counting import Counting, Numbers, noised
from workbench.data.dataset import is_at_rest
from workbench.data.look import (
    CERTAIN,
    MOST_TAIL,
    Look,
    Scale,
    Scales,
    Shares,
    inside,
    noise_in_ranks,
    scales_form,
    scales_from_dict,
    scales_to_dict,
)
from workbench.data.preprocessing import OTHER
from workbench.data.schema import Schema
from workbench.inference.state import Purpose
from workbench.models import Model
from workbench.privacy.calibration import gaussian_mu
from workbench.privacy.steps import SENSITIVITY

if TYPE_CHECKING:
    from workbench.fitting.spec import FitSpec
    from workbench.privacy.gradient_norms import GradientNorms

__all__ = [
    "LARGEST_SHARE",
    "as_setting",
    "check_look",
    "has_raw_bounds",
    "looks_by_default",
    "of_absent",
    "of_no_scale",
    "of_other_levels",
    "of_values_outside",
    "rows_inside",
    "share_and_scales",
    "share_for",
    "share_of_budget",
    "take",
]

# of the records beyond the outer quantiles that scales follow from: what a look is to resolve
_TAIL = 0.05
_LEAST, LARGEST_SHARE = 0.02, 0.15  # of the budget, by default
_SEEDED = _schema.record({"scales": scales_form, "is_secret": _schema.flag})
_SCALED = (-1.0, 1.0)  # bounds of columns that the caller has scaled
# from which a result says so: of values outside a column's scale, and of those that are no level
_MANY, _MANY_OTHERS = 0.02, 0.1


def share_for(
    counting: Counting, num_records: int, epsilon: float, delta: float, relation: str
) -> float:
    """The default share of the budget for a look at declared columns."""
    depths = [column.depth for column in counting.columns if isinstance(column, Numbers)]
    if not depths:
        return 0.0
    sensitivity = counting.sensitivity
    return share_of_budget(max(depths), sensitivity, num_records, epsilon, delta, relation)


def share_of_budget(
    depth: int, sensitivity: float, num_records: int, epsilon: float, delta: float, relation: str
) -> float:
    """The default share of the budget for a look, from public facts; 0 where it would see nothing.

    The budget is that of a Gaussian mechanism: with a share s the look's noise is 1 / sqrt(s) of
    the noise that it would have alone, and the steps' is 1 / sqrt(1 - s) of theirs, about. As much
    as shows the outer twentieths of the records through its noise, within limits.

    :param depth: of its deepest tree. :param sensitivity: S of its counts.
    """
    alone = SENSITIVITY[relation] / gaussian_mu(epsilon, delta) * sensitivity
    tail = CERTAIN * noise_in_ranks(depth, alone) / num_records
    if tail > MOST_TAIL * math.sqrt(LARGEST_SHARE):
        return 0.0
    return float(min(max((tail / _TAIL) ** 2, _LEAST), LARGEST_SHARE))


def looks_by_default(model: Model, data: Dataset) -> bool:
    """Whether a fit of ``data`` looks at its columns first, unless the caller says otherwise."""
    if model.columns_scaled is not None or not model.learns_scales:
        return model.learns_scales
    return not data.is_public and not any(map(is_at_rest, data.train)) and has_raw_bounds(data)


def has_raw_bounds(data: Dataset) -> bool:
    """Whether a column is declared on another scale than [-1, 1]."""
    bounds = () if data.schema is None else data.schema.bounds.values()
    return any(ends != _SCALED for ends in bounds)


def check_look(argument: str, value: Any, **limits: float) -> None:
    """:raises ArgumentError: naming ``look``, for anything but a share, a look or its scales."""
    if isinstance(value, Mapping) and value:
        try:
            form = scales_form if _is_secret(value) else _SEEDED
            form("scales", dict(value))
        except _schema.FormError as error:
            raise _validate.ArgumentError(argument, value, f"is no look: {error}") from None
    elif not isinstance(value, Look):
        _validate.number(argument, value, **limits)


def as_setting(scales: Scales, *, is_secret: bool = True) -> Any:
    """Learned scales as the setting ``look`` has them in checkpoints; 0 for none.

    :param is_secret: whether the noise of the look came from a secret key.
    """
    values = scales_to_dict(scales)
    return (values if is_secret else {"scales": values, "is_secret": False}) or 0.0


def _is_secret(setting: Mapping[str, Any]) -> bool:
    return setting.get("is_secret") is not False  # a column of that name has a scale


def share_and_scales(value: Any, model: Model, data: Dataset) -> tuple[float | None, Scales, bool]:
    """What the setting ``look`` says: a share of the budget, None for the default; the scales that
    it brings along; and whether their noise came from a secret key.

    :raises ArgumentError: naming ``look``, for one that has no scale for this model, or is at rows
        of the units of ``data``.
    """
    if isinstance(value, Mapping):
        is_secret = _is_secret(value)
        return 0.0, scales_from_dict(value if is_secret else value["scales"]), is_secret
    if not isinstance(value, Look):
        return value, {}, True
    if data.units is not None and value.unit != data.unit:
        raise _validate.ArgumentError(
            "look",
            value,
            f"protects each {value.unit}, but a {data.unit} with all rows is protected here: take "
            "the look at this data set, or with the same unit_id= and unit=.",
        )
    if model.columns_scaled == frozenset() and not model.responses:
        return 0.0, {}, True  # a model of categories alone
    used, scales = model.columns_used, value.scales(model.responses)
    scales = {name: scale for name, scale in scales.items() if used is None or name in used}
    if not any(isinstance(scale, Scale) for scale in scales.values()):
        raise _validate.ArgumentError(
            "look",
            value,
            "has a scale for no column of the model: it is of other columns, or its counts are "
            "mostly noise.",
            remedy="wb.Privacy(look=0) keeps the declared bounds.",
        )
    return 0.0, scales, value.is_secret


def require_scalable(counting: Counting, model: Model, data: Dataset, processes: int) -> None:
    """Refuse a look at a data set without columns whose scales could be learned, or by several
    processes.

    :raises ArgumentError: naming ``look``.
    """
    if processes > 1:
        raise _validate.ArgumentError(
            "look",
            data.name,
            "is not for fits by several processes yet.",
            remedy="Give wb.Privacy(look=0), or a look that was taken before.",
        )
    has_numbers = any(isinstance(column, Numbers) for column in counting.columns)
    is_fixed = not model.has_own_arrays and any(map(is_at_rest, data.train))
    if not has_numbers or is_fixed:
        raise _validate.ArgumentError(
            "look",
            data.name,
            "needs a table in memory with declared columns of numbers, whose scales are learned.",
            remedy="Leave it out, or wb.Privacy(look=0).",
        )


def take(
    counting: Counting, model: Model, data: Dataset, noise_multiplier: float, key: jax.Array
) -> Scales:
    """The scales of the columns of ``data``, by noised counts.

    :param key: of the run, whose child for this purpose nothing else uses.
    """
    values = noised(counting, data, noise_multiplier, jax.random.fold_in(key, Purpose.LOOK))
    deviation = counting.deviation(noise_multiplier)
    return Look(counting, values, deviation, data.unit).scales(model.responses)


def rows_inside(source: Dataset, model: Model, scales: Scales) -> np.ndarray:
    """bool[N]: which training records are within the scales of what ``model`` explains by."""
    scaled = set(scales) if model.columns_scaled is None else model.columns_scaled
    used = {name: scales[name] for name in (scaled & set(scales)) - set(model.responses)}
    x = source.train[source.arrays.index("x")]
    return inside(source.schema or Schema({}), x, used)


def of_absent(norms: GradientNorms | None) -> list[str]:
    """A sentence about the records that take no part, for all columns together."""
    if norms is None or not norms.absent:
        return []
    return [
        f"About {100 * norms.absent:.0f} % of the declared records take no part: they have values "
        "outside the scales that were learned, or there are fewer than declared."
    ]


def of_values_outside(scales: Scales, responses: Sequence[str], leaves_out: bool) -> list[str]:
    """A sentence about each column that has many values outside its scale.

    :param leaves_out: whether records with such a value of a column that explains take no part.
    """
    consequence = {True: "records with them take no part.", False: "count as at its end."}
    return [
        f"At least {scale.beyond:.0%} of the values of {name} are outside {scale.low:g} to "
        f"{scale.high:g}, the scale that was learned, and "
        f"{consequence[leaves_out and name not in responses]}"
        for name, scale in scales.items()
        if isinstance(scale, Scale) and scale.beyond >= _MANY
    ]


def of_other_levels(scales: Scales) -> list[str]:
    """A sentence about each category of whose levels many records have none."""
    return [
        f"About {counted.levels[OTHER][0]:.0%} of the records have values of {name} that are no "
        f"level of it, and count as one level, {OTHER}. If they are numbers or dates, declare them."
        for name, counted in scales.items()
        if isinstance(counted, Shares) and counted.levels.get(OTHER, (0.0,))[0] > _MANY_OTHERS
    ]


def of_no_scale(spec: FitSpec) -> list[str]:
    """A sentence about each column of which a look has shown no scale. :param spec: after it."""
    if spec.declared is None:
        return []
    bounds = dict(spec.source.schema.bounds) if spec.source.schema else {}
    scaled = spec.declared.model.columns_scaled
    names = (frozenset(bounds) if scaled is None else scaled) - set(spec.scales)
    if spec.source.target_bounds is not None:
        bounds[spec.source.target_name] = spec.source.target_bounds
    return [
        f"No scale of {name} showed through the noise, as where nearly all values are the same, so "
        f"{bounds[name][0]:g} to {bounds[name][1]:g} stands for it; other values count as at its "
        "end."
        for name in sorted(names & set(bounds))
    ]
