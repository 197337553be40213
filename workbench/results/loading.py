"""Loading results that ``storage`` saved."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench._former_names import with_present_names
from workbench.privacy.gradient_norms import GradientNorms
from workbench.privacy.guarantee import Guarantee
from workbench.results import _atomic, arviz_adapter
from workbench.results.fit_result import FitResult, HistoryPoint
from workbench.results.storage import FORMAT, GUIDE_DRAWS, MADE, NUMBERS, digest_of

__all__ = ["load"]


def load(folder: str | Path) -> FitResult:
    """Load the result that ``save`` wrote into ``folder``.

    :raises ArgumentError: if the folder holds no result of a known format, or a damaged one, or files that do not belong
        together.
    """
    path = Path(folder).expanduser()

    def refused(reason: str) -> _validate.ArgumentError:
        return _validate.ArgumentError("folder", str(folder), reason)

    def files_of(index: bytes) -> dict[str, str | None]:
        return {**dict.fromkeys(NUMBERS), **_parsed(index, refused).get("files", {})}

    try:
        index, files = _atomic.read(path, files_of)
    except FileNotFoundError:
        raise refused("holds no saved result (result.json is missing).") from None
    except _atomic.TornError as torn:
        remedy = "save the result again" if str(torn) not in MADE else "delete it, or save the result again"
        raise refused(f"{torn} is damaged, or not the file that was saved with this result.json: {remedy}.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, _validate.ArgumentError):
            raise
        raise refused(f"cannot be read ({error}).") from None
    for name in NUMBERS:
        if name not in files:
            raise refused(f"holds no saved result ({name} is missing).")
    readers: dict[str, Callable[[bytes], dict[str, np.ndarray]]] = {
        "params.npz": _read_arrays,
        "posterior.nc": lambda content: arviz_adapter.load_draws(io.BytesIO(content)),
    }
    arrays = {}
    for name, read in readers.items():
        try:
            arrays[name] = read(files[name])
        except Exception as error:  # NumPy, HDF5 and xarray raise errors of many types on damaged bytes
            raise refused(f"{name} is damaged: {_shown(error)}") from None
    values = _parsed(index, refused)
    for name in ("format", "files", "digest"):
        values.pop(name, None)
    try:
        return _decode(values, *arrays.values())
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise refused(f"result.json is damaged: {_shown(error)}") from None


def _shown(error: Exception) -> str:
    """An error on one line."""
    return " ".join(repr(error).split())


def _parsed(index: bytes, refused: Callable[[str], _validate.ArgumentError]) -> dict[str, Any]:
    """The values in result.json.

    :param refused: makes the error that is raised if they are damaged.
    """
    try:
        values = json.loads(index)
    except (ValueError, RecursionError) as error:
        raise refused(f"result.json is damaged: {_shown(error)}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise refused(f"result.json does not have format {FORMAT}, the one that this version reads.")
    written = values.pop("digest", None)  # earlier versions wrote no digests, neither this one nor those of the files
    files = values.get("files", {})
    if not isinstance(files, dict) or not files.keys() <= {*NUMBERS, *MADE} or (written is None) != (files == {}):
        raise refused("result.json is damaged: its digests are not usable.")
    if written is not None and written != digest_of(values):
        raise refused("result.json is damaged: it was changed after it was saved.")
    return values


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def _decode(values: dict[str, Any], params: dict[str, np.ndarray], draws: dict[str, np.ndarray]) -> FitResult:
    """The inverse of ``storage._encode``."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    if "state" in values:  # of earlier versions
        values["status"] = values.pop("state")
    values["settings"] = with_present_names(values["settings"])
    values["guarantee"] = Guarantee.from_dict(values["guarantee"])
    norms = values.get("gradient_norms")  # earlier versions did not count them
    values["gradient_norms"] = None if norms is None else GradientNorms.from_dict(norms)
    values["constants"] = {
        name: _decoded_array(value) if isinstance(value, dict) and set(value) == {"dtype", "value"} else value
        for name, value in values["constants"].items()
    }
    values["coordinates"] = {
        name: tuple(labels) if labels and isinstance(labels[0], list) else labels
        for name, labels in values["coordinates"].items()
    }
    if values["model"] == "formula":  # of earlier versions, which had no other basis
        values["model_options"].setdefault("basis", "scaled")
    values["released"] = tuple(values["released"])
    values["cautions"] = tuple(values.get("cautions", ()))  # earlier versions had none
    values["history"] = tuple(
        HistoryPoint(point["step"], {name: number(value) for name, value in point.items() if name != "step"})
        for point in values["history"]
    )
    values["metrics"] = {name: number(value) for name, value in values["metrics"].items()}
    of_guide = {name.removeprefix(GUIDE_DRAWS): params.pop(name) for name in list(params) if name.startswith(GUIDE_DRAWS)}
    return FitResult(params=params, draws=draws, variational_draws=of_guide, **values)


def _decoded_array(entry: dict[str, Any]) -> np.ndarray:
    return np.array(entry["value"], entry["dtype"])
