"""Adapter for ArviZ 0.23 (InferenceData) and 1.x (DataTree), which differ in ``from_dict``."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:
    import h5py

__all__ = [
    "LinksError",
    "load_draws",
    "save_draws",
    "to_posterior",
    "words_on_tails",
]

_ENGINE = "h5netcdf"
_LONG_TAILS = (
    " Some have longer tails than a normal distribution, so an sd may look large beside its "
    "interval."
)
_SHORT = 2.6  # standard deviations; the middle 90 % of a normal distribution have 3.3


class LinksError(ValueError):
    """A file of draws that names other files."""


def _arviz() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 0.23 announces 1.0 on import
        import arviz
    return arviz


def to_posterior(
    draws: Mapping[str, np.ndarray], coordinates: Mapping[str, Any], attributes: dict[str, str]
) -> Any:
    """Independent posterior draws as an ArviZ object (InferenceData or DataTree) with one chain.

    :param draws: ``{site: array[draws, ...]}``.
    :param coordinates: ``{site: labels}`` for the entries of vector-valued sites, ``{site: (labels,
        labels)}`` for the rows and columns of matrices.
    :param attributes: strings stored with the group, such as the guarantee.
    """
    arviz = _arviz()
    posterior = {name: np.asarray(value)[None] for name, value in draws.items()}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[str]] = {}
    for name, entries in coordinates.items():
        if name not in posterior:
            continue
        axes = {f"{name}_entry": entries}
        if isinstance(entries, tuple):
            axes = {f"{name}_row": entries[0], f"{name}_column": entries[1]}
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
    data["posterior"].attrs.pop("created_at", None)  # saving a result again gives the same file
    return data


def _empty_posterior(attributes: dict[str, str]) -> Any:
    """An ArviZ object without variables, for a model without global latents such as a variational
    auto-encoder.

    It is a DataTree under both versions of ArviZ, because an InferenceData drops groups without
    variables.
    """
    import xarray

    return xarray.DataTree.from_dict({"posterior": xarray.Dataset(attrs=attributes)})


def words_on_tails(draws: Mapping[str, np.ndarray]) -> str:
    """A sentence that begins with a space, if the middle 90 % of some quantity are much narrower
    than its sd suggests.

    So it is where little is known of the curvature: a few draws are then as far out as the prior
    lets them.

    :param draws: ``{site: array[draws, ...]}``.
    """
    flattened = [
        np.reshape(of_site, (len(of_site), -1)) for of_site in draws.values() if np.size(of_site)
    ]
    spans = (
        np.subtract(*np.quantile(quantity, (0.95, 0.05), axis=0)) < _SHORT * quantity.std(axis=0)
        for quantity in flattened
    )
    return _LONG_TAILS if any(span.any() for span in spans) else ""


def save_draws(posterior: Mapping[str, Any], path: Path) -> None:
    """Write the ArviZ object as NetCDF.

    The file is made in memory first: when the disk is full, HDF5 crashes the process (SIGSEGV) as
    it closes a file.

    :raises OSError: if it cannot be written.
    """
    group = posterior["posterior"]
    if hasattr(group, "to_dataset"):  # a DataTree's
        group = group.to_dataset()
    buffer = io.BytesIO()
    group.to_netcdf(buffer, group="posterior", engine=_ENGINE)
    path.write_bytes(buffer.getvalue())


def load_draws(file: Path | BinaryIO) -> dict[str, np.ndarray]:
    """Read ``{site: array[draws, ...]}`` from a file that ``save_draws`` wrote.

    :raises LinksError: if the file links to other files, as HDF5 (the format under NetCDF) allows.
    """
    import h5py

    with h5py.File(file, "r") as content:
        _refuse_links(content)
        # without xarray, whose import takes longer than all else that a check of a file does
        entries = content["posterior"].items()
        return {name: _values(entry)[0] for name, entry in entries if not entry.is_scale}


def _values(entry: h5py.Dataset) -> np.ndarray:
    """A variable of a NetCDF file, which has truth values as numbers with an attribute."""
    values = np.asarray(entry[()])
    return values.astype(bool) if entry.attrs.get("dtype") == "bool" else values


def _refuse_links(group: h5py.Group) -> None:
    import h5py

    for name in group:
        is_own = isinstance(group.get(name, getlink=True), h5py.HardLink)
        entry = group[name] if is_own else None
        if entry is None or (
            isinstance(entry, h5py.Dataset) and (entry.external or entry.is_virtual)
        ):
            raise LinksError("it links to other files, which are not read")
        if isinstance(entry, h5py.Group):
            _refuse_links(entry)
