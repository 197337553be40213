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

from workbench.results.chains import Chains, chains_of

if TYPE_CHECKING:
    import h5py

    from workbench.results.fit_result import FitResult

__all__ = [
    "LinksError",
    "chain_statistics",
    "load_draws",
    "posterior_of",
    "save_draws",
    "to_posterior",
    "words_on_intervals",
    "words_on_tails",
]

_ENGINE = "h5netcdf"
_INDEPENDENT = Chains()
Groups = Mapping[str, Mapping[str, np.ndarray]]
_INFERENCE = {
    "noise-aware": "draws from a posterior that counts the privacy noise (DP-VI, regression on the "
    "release); those of the curvature are of Markov chains",
    "sums": "draws from a posterior that counts the privacy noise (Markov chains, given noised "
    "sums)",
    "variational": "independent draws from a variational posterior (DP-VI)",
    "normal likelihood": "draws from a posterior whose likelihood is taken to be normal, without "
    "privacy",
}
_NO_LOG_LIKELIHOOD = (
    "none: it would have a number for each private record. az.loo and az.waic cannot be had; "
    "wb.evaluate(result, records, against=other, epsilon=...) compares fits within a guarantee"
)
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


def posterior_of(
    result: FitResult,
    draws: Mapping[str, np.ndarray],
    kind: str,
    beside: Groups | None = None,
) -> Any:
    """See ``FitResult.posterior_of``. :param kind: of the draws, as of ``chains_of``."""
    attributes = {
        "guarantee": result.guarantee.headline(),
        "label": result.release_label,
        "inference": _INFERENCE[kind],
        "log_likelihood": _NO_LOG_LIKELIHOOD,
    }
    chains = chains_of(kind, max(map(len, draws.values()), default=0))
    return to_posterior(draws, result.coordinates, attributes, chains, beside)


def to_posterior(
    draws: Mapping[str, np.ndarray],
    coordinates: Mapping[str, Any],
    attributes: Mapping[str, Any],
    chains: Chains = _INDEPENDENT,
    beside: Groups | None = None,
) -> Any:
    """Posterior draws as an ArviZ object (InferenceData or DataTree), in several chains.

    :param draws: ``{site: array[draws, ...]}``.
    :param coordinates: ``{site: labels}`` for the entries of vector-valued sites, ``{site: (labels,
        labels)}`` for the rows and columns of matrices.
    :param attributes: strings stored with the group, such as the guarantee.
    :param chains: that made the draws.
    :param beside: further groups, ``{site: array[chains, draws, ...]}``, and "observed_data",
        ``{site: array[records, ...]}``.
    """
    arviz = _arviz()
    count = max(map(len, draws.values()), default=0)
    order = chains.order(count)
    groups = {"posterior": {name: np.asarray(value)[order] for name, value in draws.items()}}
    groups |= {group: dict(values) for group, values in (beside or {}).items() if values}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[str]] = {}
    for name, entries in coordinates.items():
        if name not in draws:
            continue
        axes = {f"{name}_entry": entries}
        if isinstance(entries, tuple):
            axes = {f"{name}_row": entries[0], f"{name}_column": entries[1]}
        dims[name] = list(axes)
        coords |= {axis: list(labels) for axis, labels in axes.items()}
    attributes = {**attributes, "chains": chains.words(count), **chains._asdict()}
    if not draws:
        return _empty_posterior(attributes)
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        data = arviz.from_dict(**groups, coords=coords, dims=dims)
        data.posterior.attrs.update(attributes)
    else:
        data = arviz.from_dict(groups, coords=coords, dims=dims)
        data["posterior"].attrs.update(attributes)
    for group in groups:
        # saving a result again gives the same file
        data[group].attrs.pop("created_at", None)
    return data


def _empty_posterior(attributes: Mapping[str, Any]) -> Any:
    """An ArviZ object without variables, for a model without global latents such as a variational
    auto-encoder.

    It is a DataTree under both versions of ArviZ, because an InferenceData drops groups without
    variables.
    """
    import xarray

    return xarray.DataTree.from_dict({"posterior": xarray.Dataset(attrs=attributes)})


def chain_statistics(draws: np.ndarray, chains: Chains) -> tuple[np.ndarray, np.ndarray]:
    """Effective sample size (bulk) and R-hat of each column, float[columns] each, NaN for one
    chain. Vehtari et al. 2021 define both.

    :param draws: float[draws, columns].
    """
    import xarray

    arviz = _arviz()
    in_chains = xarray.Dataset({"x": (("chain", "draw", "row"), draws[chains.order(len(draws))])})
    sizes, ratios = arviz.ess(in_chains, method="bulk"), arviz.rhat(in_chains)
    return np.asarray(sizes["x"], float), np.asarray(ratios["x"], float)


def words_on_intervals(result: FitResult) -> str:
    """What the posterior's intervals count, in a sentence."""
    note = result.posterior_note
    if not result.guarantee.is_private:
        words = f"the guide's own ({note})" if note else "of a normal likelihood"
        return f"NO PRIVACY, no noise: the intervals are {words}."
    if result.posterior_kind == "noise-aware":
        counted = "The intervals count the privacy noise as well as what the data leave open."
        return counted + words_on_tails(result.draws)
    return (
        f"The intervals are the guide's own ({note}). They do not include the privacy noise on "
        "their location; the last column estimates its size."
    )


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
        group = content["posterior"]
        arrays = {name: _values(entry) for name, entry in group.items() if not entry.is_scale}
        if "markov" not in group.attrs:  # by a former version, in one chain
            return {name: values[0] for name, values in arrays.items()}
        chains = Chains(*(int(np.ravel(group.attrs[name])[0]) for name in Chains._fields))
        return {name: _in_turn(values, chains) for name, values in arrays.items()}


def _in_turn(values: np.ndarray, chains: Chains) -> np.ndarray:
    """Draws in the order in which they were made. :param values: array[chains, length, ...].

    :raises ValueError: if they are not in these chains.
    """
    order = chains.order(values.shape[0] * values.shape[1])
    if order.shape != values.shape[:2]:
        raise ValueError("the draws are in other chains")
    draws = np.empty((order.size, *values.shape[2:]), values.dtype)
    draws[order] = values
    return draws


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
