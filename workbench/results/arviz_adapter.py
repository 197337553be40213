"""One adapter for ArviZ 0.23 (InferenceData) and 1.x (DataTree): the two differ in ``from_dict`` and in ``summary``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["INTERVAL", "load_draws", "save_draws", "summary", "to_posterior"]

INTERVAL = 0.9  # probability inside the highest-density intervals of summaries
_ENGINE = "h5netcdf"


def _arviz() -> ModuleType:
    with warnings.catch_warnings():
        # 0.23 announces 1.0 on import
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


def to_posterior(draws: Mapping[str, np.ndarray], coordinates: Mapping[str, list[str]], attributes: dict[str, str]) -> Any:
    """The ArviZ object (InferenceData or DataTree) of independent posterior draws, one chain.

    :param draws: ``{site: array[draws, ...]}``.
    :param coordinates: labels for the entries of vector-valued sites.
    :param attributes: strings kept with the group, such as the guarantee.
    """
    arviz = _arviz()
    posterior = {name: np.asarray(value)[None] for name, value in draws.items()}
    dims = {name: [f"{name}_entry"] for name in coordinates if name in posterior}
    coords = {f"{name}_entry": list(labels) for name, labels in coordinates.items() if name in posterior}
    if not posterior:
        return _empty_posterior(attributes)
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        data = arviz.from_dict(posterior=posterior, coords=coords, dims=dims)
        data.posterior.attrs.update(attributes)
    else:
        data = arviz.from_dict({"posterior": posterior}, coords=coords, dims=dims)
        data["posterior"].attrs.update(attributes)
    return data


def _empty_posterior(attributes: dict[str, str]) -> Any:
    """For a model without global latents, such as a variational auto-encoder: what it learnt are parameters.

    A DataTree under both versions of ArviZ: an InferenceData drops groups without variables.
    """
    import xarray

    return xarray.DataTree.from_dict({"posterior": xarray.Dataset(attrs=attributes)})


def summary(posterior: Any) -> pd.DataFrame:
    """Mean, standard deviation and 90 % highest-density interval of each scalar, from independent draws.

    R-hat and effective sample sizes are left out: they describe Markov chains, and these draws are independent.
    """
    low_name, high_name = f"hdi_{INTERVAL:.0%}_low", f"hdi_{INTERVAL:.0%}_high"
    if not posterior["posterior"].data_vars:
        return pd.DataFrame(columns=["mean", "sd", low_name, high_name], dtype=float)
    arviz = _arviz()
    if "hdi_prob" in inspect.signature(arviz.summary).parameters:
        table = arviz.summary(posterior, kind="stats", hdi_prob=INTERVAL, round_to="none")
    else:
        table = arviz.summary(posterior, kind="stats", ci_prob=INTERVAL, ci_kind="hdi", round_to="none")
    low, high = table.columns[2:4]
    table = table.rename(columns={low: "hdi_5%", high: "hdi_95%"})[["mean", "sd", "hdi_5%", "hdi_95%"]].astype(float)
    return table.rename(columns={"hdi_5%": low_name, "hdi_95%": high_name})


def save_draws(posterior: Any, path: Path) -> None:
    """Write the ArviZ object as NetCDF."""
    posterior.to_netcdf(str(path), engine=_ENGINE)


def load_draws(path: Path) -> dict[str, np.ndarray]:
    """``{site: array[draws, ...]}`` of a file that ``save_draws`` wrote."""
    import xarray

    with xarray.open_dataset(path, group="posterior", engine=_ENGINE) as group:
        return {str(name): np.asarray(group[name].values)[0] for name in group.data_vars}
