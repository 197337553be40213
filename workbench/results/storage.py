"""A result as a folder: result.json (all but arrays), params.npz, posterior.nc (the draws), curves.png and report.html."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate, spending
from workbench.privacy.guarantee import Guarantee
from workbench.results import arviz_adapter
from workbench.results.fit_result import FitResult, HistoryPoint

__all__ = ["check_folder", "load", "save"]

FORMAT = 2


def check_folder(folder: str | Path) -> Path:
    """Prove that ``folder`` can be made and written to, and leave no trace; called before a fit spends its epsilon.

    :raises ArgumentError: naming ``out`` and the folder.
    """
    path = Path(folder).expanduser()
    missing = [place for place in (path, *path.parents) if not place.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path):
            pass
    except OSError as error:
        raise _validate.ArgumentError("out", str(folder), f"cannot write there ({error.strerror}).") from None
    finally:
        for place in missing:
            if place.is_dir():
                place.rmdir()
    return path


def _plain(value: Any) -> Any:
    """JSON has no NaN: a metric that is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_APART = ("draws", "params", "definition", "public_records", "ledger")  # in files of their own, or not kept


def _encoded_array(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "value": array.tolist()}


def _decoded_array(entry: dict[str, Any]) -> np.ndarray:
    return np.array(entry["value"], entry["dtype"])


def _encode(result: FitResult) -> dict[str, Any]:
    """Everything but draws and parameters, JSON-ready."""
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result) if field.name not in _APART}
    values["guarantee"] = result.guarantee.to_dict()
    values["constants"] = {
        name: _encoded_array(value) if isinstance(value, np.ndarray) else value for name, value in result.constants.items()
    }
    values["history"] = [
        {"step": point.step, **{name: _plain(value) for name, value in point.metrics.items()}} for point in result.history
    ]
    values["metrics"] = {name: _plain(value) for name, value in result.metrics.items()}
    return {"format": FORMAT, **values}


def save(result: FitResult, folder: str | Path) -> Path:
    """Write ``result`` into ``folder``, each file whole or not at all."""
    from workbench.plots import png

    path = check_folder(folder)
    path.mkdir(parents=True, exist_ok=True)

    def put(name: str, write: Callable[[Path], Any]) -> None:
        partial = path / f".{name}.partial"
        try:
            write(partial)
            os.replace(partial, path / name)
        finally:
            partial.unlink(missing_ok=True)

    put("params.npz", lambda file: _write_arrays(file, result.params))
    # as the guide drew them, which is how predictions take them: sorted ones would be sorted once more after loading
    put("posterior.nc", lambda file: arviz_adapter.save_draws(result.posterior_of(result.draws), file))
    put("curves.png", lambda file: file.write_bytes(png(result.plot())))
    put("report.html", lambda file: file.write_text(result.report()))
    put("result.json", lambda file: file.write_text(json.dumps(_encode(result), indent=2, allow_nan=False) + "\n"))
    if result.ledger is not None:
        spending.note_saved(result.ledger, result.spend, path)
    return path


def load(folder: str | Path) -> FitResult:
    """The result that ``save`` wrote into ``folder``.

    :raises ArgumentError: if the folder holds no result of a known format.
    """
    path = Path(folder).expanduser()
    for name in ("result.json", "params.npz", "posterior.nc"):
        if not (path / name).is_file():
            raise _validate.ArgumentError("folder", str(folder), f"holds no saved result ({name} is missing).")
    try:
        values = json.loads((path / "result.json").read_text())
    except ValueError as error:
        raise _validate.ArgumentError("folder", str(folder), f"result.json is damaged: {error}") from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise _validate.ArgumentError(
            "folder", str(folder), f"result.json is not of format {FORMAT}, which this version reads."
        )

    try:
        with np.load(path / "params.npz") as file:
            params = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise _validate.ArgumentError("folder", str(folder), f"params.npz is damaged: {error!r}") from None
    try:
        return _decode(values, params, arviz_adapter.load_draws(path / "posterior.nc"))
    except (KeyError, TypeError, AttributeError) as error:
        raise _validate.ArgumentError("folder", str(folder), f"result.json is damaged: {error!r}") from None
    except OSError as error:
        raise _validate.ArgumentError("folder", str(folder), f"posterior.nc is damaged: {error!r}") from None


def _write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    with file.open("wb") as target:
        np.savez(target, **arrays)  # type: ignore[arg-type]


def _decode(values: dict[str, Any], params: dict[str, np.ndarray], draws: dict[str, np.ndarray]) -> FitResult:
    """The inverse of ``_encode``."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    values["guarantee"] = Guarantee.from_dict(values["guarantee"])
    values["constants"] = {
        name: _decoded_array(value) if isinstance(value, dict) and set(value) == {"dtype", "value"} else value
        for name, value in values["constants"].items()
    }
    values["coordinates"] = {
        name: tuple(labels) if labels and isinstance(labels[0], list) else labels
        for name, labels in values["coordinates"].items()
    }
    values["released"] = tuple(values["released"])
    values["history"] = tuple(
        HistoryPoint(point["step"], {name: number(value) for name, value in point.items() if name != "step"})
        for point in values["history"]
    )
    values["metrics"] = {name: number(value) for name, value in values["metrics"].items()}
    return FitResult(params=params, draws=draws, **values)
