"""The model of a result in pictures and words, made of public facts alone; it works for loaded
results too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench._numbers import count
from workbench.models import independence, relations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.results.fit_result import FitResult

__all__ = ["diagram", "distributions", "draws_are_independent", "quantities_are_independent"]


def diagram(result: FitResult) -> Figure:
    """The plate diagram of the fitted model, with the public number of records."""
    from workbench.plots import plate_figure

    structure, labels = relations.relations_of(
        result.predictor.model, _records(result), result.constants
    )
    records = f"records: {count(result.guarantee.num_records)}"
    return plate_figure(
        structure,
        labels={name: records if label == "records" else label for name, label in labels.items()},
    )


def distributions(result: FitResult) -> dict[str, str]:
    """The distribution of each site, as ``relations.distributions_of`` says it."""
    return relations.distributions_of(result.predictor.model, _records(result), result.constants)


def quantities_are_independent(result: FitResult) -> bool:
    """Whether the guide makes all quantities independent, so that their correlations are zero by
    construction.
    """
    return _holds(independence.are_independent, result)


def draws_are_independent(result: FitResult) -> bool:
    """Whether correlations only come from sorting, and from what is computed of the
    guide's draws.
    """
    return _holds(independence.are_drawn_independently, result)


def _holds(question: Callable[..., bool], result: FitResult) -> bool:
    if not result.model_is_known or not result.draws:
        return False
    try:
        return question(
            result.predictor.model, _records(result), result.constants, list(result.draws)
        )
    except (
        Exception
    ):  # users' guides can fail in any way on blank records; the fit is done, so this may not fail
        return False


def _records(result: FitResult) -> relations.Records:
    return [
        (tuple(shape), kind)
        for shape, kind in zip(
            result.data["record_shapes"], result.data["record_types"], strict=True
        )
    ]
