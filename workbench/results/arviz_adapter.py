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

from workbench import _validate

__all__ = ["INTERVAL", "KINDS", "load_draws", "save_draws", "summary", "to_posterior"]

INTERVAL = 0.9  # probability inside the intervals of summaries, unless another is asked for
KINDS = {"hdi": "highest-density", "eti": "equal-tailed"}
_ENGINE = "h5netcdf"


def _arviz() -> ModuleType:
    with warnings.catch_warnings():
        # 0.23 announces 1.0 on import
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


def to_posterior(draws: Mapping[str, np.ndarray], coordinates: Mapping[str, Any], attributes: dict[str, str]) -> Any:
    """The ArviZ object (InferenceData or DataTree) of independent posterior draws, one chain.

    :param draws: ``{site: array[draws, ...]}``.
    :param coordinates: ``{site: labels}`` for the entries of vector-valued sites, ``{site: (labels, labels)}`` for the rows
        and columns of matrices.
    :param attributes: strings kept with the group, such as the guarantee.
    """
    arviz = _arviz()
    posterior = {name: np.asarray(value)[None] for name, value in draws.items()}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[str]] = {}
    for name, given in coordinates.items():
        if name not in posterior:
            continue
        axes = {f"{name}_entry": given}
        if isinstance(given, tuple):
            axes = {f"{name}_row": given[0], f"{name}_column": given[1]}
        dims[name] = list(axes)
        coords |= {axis: list(labels) for axis, labels in axes.items()}
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


def summary(posterior: Any, interval: float = INTERVAL, kind: str = "hdi") -> pd.DataFrame:
    """Mean, standard deviation and interval of each scalar, from independent draws; the columns' names say which interval.

    R-hat and effective sample sizes are left out: they describe Markov chains, and these draws are independent.

    :param interval: probability inside, in (0, 1). :param kind: "hdi" (highest density) or "eti" (equal tails).
    """
    interval = _validate.probability("interval", interval)
    _validate.choice("kind", kind, KINDS)
    columns = ["mean", "sd", f"{kind}_{100 * interval:g}%_low", f"{kind}_{100 * interval:g}%_high"]
    if not posterior["posterior"].data_vars:
        return pd.DataFrame(columns=columns, dtype=float)
    arviz = _arviz()
    if "hdi_prob" not in inspect.signature(arviz.summary).parameters:
        table = arviz.summary(posterior, kind="stats", ci_prob=interval, ci_kind=kind, round_to="none")
    elif kind == "hdi":
        table = arviz.summary(posterior, kind="stats", hdi_prob=interval, round_to="none")
    else:  # ArviZ 0.23 knows equal tails only as functions of the caller's
        tails = {name: _quantile(0.5 + side * interval / 2) for name, side in zip(columns[2:], (-1, 1), strict=True)}
        statistics = {"mean": np.mean, "sd": np.std, **tails}
        table = arviz.summary(posterior, stat_funcs=statistics, extend=False, round_to="none")
    return table.iloc[:, :4].set_axis(columns, axis=1).astype(float)


def _quantile(probability: float) -> Any:
    return lambda values: np.quantile(values, probability)


def save_draws(posterior: Any, path: Path) -> None:
    """Write the ArviZ object as NetCDF."""
    posterior.to_netcdf(str(path), engine=_ENGINE)


def load_draws(path: Path) -> dict[str, np.ndarray]:
    """``{site: array[draws, ...]}`` of a file that ``save_draws`` wrote.

    :raises ArgumentError: naming ``folder``, for one that reads from other files. :raises OSError: if it is damaged.
    """
    import xarray

    _check_own_content(path)
    with xarray.open_dataset(path, group="posterior", engine=_ENGINE) as group:
        return {str(name): np.asarray(group[name].values)[0] for name in group.data_vars}


def _check_own_content(path: Path) -> None:
    """Refuse a file that would show what is in others: a result that was sent to somebody must not read files of theirs."""
    import h5py

    def is_elsewhere(name: str, link: Any) -> bool | None:
        """None for what is in the file itself, by which h5py's visit goes on."""
        if isinstance(link, h5py.ExternalLink):
            return True
        found = file.get(name)
        outside = isinstance(found, h5py.Dataset) and (found.is_virtual or found.external)
        return True if outside else None

    with h5py.File(path) as file:
        if file.visititems_links(is_elsewhere):
            raise _validate.ArgumentError(
                "folder",
                str(path.parent),
                f"{path.name} links to other files, which are not read; no workbench wrote that.",
            )
