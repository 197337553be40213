"""Mean, standard deviation and interval of each scalar of draws.

``FitResult.coefficients`` has R-hat and effective sample size where they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench import _validate
from workbench._intervals import narrowest_interval
from workbench._lazy import pd
from workbench.results.entries import entry_names

__all__ = ["INTERVAL", "KINDS", "moments", "summary"]

INTERVAL = 0.9  # default probability of the intervals in summaries
KINDS = {"hdi": "highest-density", "eti": "equal-tailed"}


def moments(
    draws: np.ndarray, names: Sequence[Any], interval: float = INTERVAL, kind: str = "hdi"
) -> pd.DataFrame:
    """A row for each column of ``draws``, float[draws, columns]. The names of its own columns say
    which interval it is.

    :param interval: probability of the interval, in (0, 1). :param kind: "hdi" (highest density:
        the narrowest interval) or "eti" (equal tails).
    """
    interval = _validate.probability("interval", interval)
    _validate.choice("kind", kind, KINDS)
    low, high = (
        narrowest_interval(draws, interval)
        if kind == "hdi"
        else np.quantile(draws, [0.5 - interval / 2, 0.5 + interval / 2], axis=0)
    )
    columns = ["mean", "sd", f"{kind}_{100 * interval:g}%_low", f"{kind}_{100 * interval:g}%_high"]
    rows = np.stack([draws.mean(axis=0), draws.std(axis=0, ddof=1), low, high], axis=1)
    return pd.DataFrame(rows, index=list(names), columns=columns)


def summary(
    draws: Mapping[str, np.ndarray],
    coordinates: Mapping[str, Any],
    interval: float = INTERVAL,
    kind: str = "hdi",
) -> pd.DataFrame:
    """``moments`` of each entry of each site. :param draws: ``{site: array[draws, ...]}``.

    :param coordinates: as of ``arviz_adapter.to_posterior``.
    """
    sites = {name: np.asarray(draws[name], float) for name in sorted(draws)}
    names = [
        entry
        for name, values in sites.items()
        for entry in entry_names(name, coordinates.get(name), values.shape[1:])
    ]
    flat = [values.reshape(len(values), -1) for values in sites.values()]
    return moments(np.hstack(flat or [np.zeros((2, 0))]), names, interval, kind)
