"""A result in ArviZ's groups: the posterior, the prior, and what the posterior predicts for records
that are public or given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from workbench import _validate
from workbench.models.model import inputs_of
from workbench.results import description
from workbench.results.chains import chains_of
from workbench.results.pictures import records_of
from workbench.results.prediction import synthetic_key

if TYPE_CHECKING:
    import pandas as pd

    from workbench.data import Dataset
    from workbench.results.fit_result import FitResult

__all__ = ["inference_data"]

_SETS = 200  # draws that predictions are made from


def inference_data(result: FitResult, data: Dataset | pd.DataFrame | None, seed: int | None) -> Any:
    """See ``FitResult.inference_data``."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    count = max(map(len, result.draws.values()), default=0)
    order = chains_of(result.draws_kind, count).order(count)
    prior = description.prior_draws(result)
    if prior:
        in_order = result.in_order(prior)
        groups["prior"] = {name: values[order] for name, values in in_order.items()}
    if data is not None or (result.public_records is not None and _draws_one_site(result)):
        groups |= _predicted(result, data, order, seed)
    answer = result.posterior_of(result.sorted_draws, beside=groups)
    if "observed_data" in groups:
        label = result.label_beside(records_of(result, data))
        for group in ("posterior_predictive", "observed_data"):
            answer[group].attrs["label"] = label
    return answer


def _draws_one_site(result: FitResult) -> bool:
    return bool(result.draws) and len(result.predictor.split.observed) == 1


def _predicted(
    result: FitResult, data: Dataset | pd.DataFrame | None, order: np.ndarray, seed: int | None
) -> dict[str, dict[str, np.ndarray]]:
    """Responses that draws of all chains make for the records, and those that the records have.

    :param order: of the draws, int[chains, length].
    """
    predictor = result.predictor
    arrays = predictor.all_arrays(records_of(result, data))
    if not _draws_one_site(result):
        raise _validate.ArgumentError(
            "model", result.model, "must have latents, and one observed site, to be predicted."
        )
    (site,), inputs, size = predictor.split.observed, inputs_of(arrays), len(arrays[0])
    length = min(order.shape[1], max(1, _SETS // len(order)))
    chosen = order[:, np.linspace(0, order.shape[1] - 1, length).round().astype(int)]
    keys = jax.random.split(synthetic_key(seed), chosen.size)
    sets = [
        predictor.sample_set(
            {name: values[index] for name, values in result.draws.items()}, size, inputs, key
        )
        for index, key in zip(chosen.ravel(), keys, strict=True)
    ]
    made = np.stack(sets).reshape(*chosen.shape, *sets[0].shape)
    return {"posterior_predictive": {site: made}, "observed_data": {site: arrays[-1]}}
