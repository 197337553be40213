"""A result as a folder: result.json (all but the draws), posterior.nc (the draws), curves.png and report.html."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench.privacy.guarantee import Guarantee
from workbench.results import arviz_adapter
from workbench.results.fit_result import FitResult, HistoryPoint

__all__ = ["check_folder", "load", "save"]

FORMAT = 1


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


def _encode(result: FitResult) -> dict[str, Any]:
    """Everything but the draws, JSON-ready."""
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result) if field.name != "draws"}
    values["guarantee"] = result.guarantee.to_dict()
    values["params"] = {name: {"dtype": str(array.dtype), "value": array.tolist()} for name, array in result.params.items()}
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

    put("posterior.nc", lambda file: arviz_adapter.save_draws(result.posterior, file))
    put("curves.png", lambda file: file.write_bytes(png(result.plot())))
    put("report.html", lambda file: file.write_text(result.report()))
    put("result.json", lambda file: file.write_text(json.dumps(_encode(result), indent=2, allow_nan=False) + "\n"))
    return path


def load(folder: str | Path) -> FitResult:
    """The result that ``save`` wrote into ``folder``.

    :raises ArgumentError: if the folder holds no result of a known format.
    """
    path = Path(folder).expanduser()
    for name in ("result.json", "posterior.nc"):
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
        return _decode(values, arviz_adapter.load_draws(path / "posterior.nc"))
    except (KeyError, TypeError, AttributeError) as error:
        raise _validate.ArgumentError("folder", str(folder), f"result.json is damaged: {error!r}") from None
    except OSError as error:
        raise _validate.ArgumentError("folder", str(folder), f"posterior.nc is damaged: {error!r}") from None


def _decode(values: dict[str, Any], draws: dict[str, np.ndarray]) -> FitResult:
    """The inverse of ``_encode``."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    values["guarantee"] = Guarantee.from_dict(values["guarantee"])
    values["params"] = {name: np.array(entry["value"], entry["dtype"]) for name, entry in values["params"].items()}
    values["history"] = tuple(
        HistoryPoint(point["step"], {name: number(value) for name, value in point.items() if name != "step"})
        for point in values["history"]
    )
    values["metrics"] = {name: number(value) for name, value in values["metrics"].items()}
    return FitResult(draws=draws, **values)
