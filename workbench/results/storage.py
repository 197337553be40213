"""Results as folders: result.json (all but arrays), params.npz, posterior.nc (the draws), curves.png and report.html."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench.ledger import reservation
from workbench.privacy.guarantee import Guarantee
from workbench.results import _atomic, arviz_adapter
from workbench.results._atomic import SaveWarning
from workbench.results.fit_result import FitResult, HistoryPoint

__all__ = ["SaveWarning", "check_folder", "load", "save"]

FORMAT = 2
_NUMBERS = ("params.npz", "posterior.nc")
_MADE = ("curves.png", "report.html")  # made from the numbers, for people
_APART = ("draws", "params", "definition", "public_records", "ledger")  # fields in their own files, or not saved


def check_folder(folder: str | Path) -> Path:
    """Check that ``folder`` can be made and written to, and leave no trace. Called before a fit spends its epsilon.

    :raises ArgumentError: naming ``out`` and the folder.
    """
    path = Path(folder).expanduser()
    missing: list[Path] = []
    try:
        missing += [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):  # has no name where the system allows it, so a killed process leaves nothing
            pass
        taken = [name for name in (_atomic.INDEX, *_NUMBERS, *_MADE) if (path / name).is_dir()]
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise _validate.ArgumentError("out", str(folder), f"cannot write there ({reason}).") from None
    finally:
        for place in missing:
            if place.is_dir():
                place.rmdir()
    if taken:
        raise _validate.ArgumentError("out", str(folder), f"{taken[0]} in it is a folder: choose another folder.")
    return path


def _plain(value: Any) -> Any:
    """``value`` for JSON, which has no NaN: a metric that is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _encoded_array(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": str(array.dtype), "value": array.tolist()}


def _decoded_array(entry: dict[str, Any]) -> np.ndarray:
    return np.array(entry["value"], entry["dtype"])


def _encode(result: FitResult) -> dict[str, Any]:
    """Everything but draws and parameters, as values that JSON can hold."""
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
    """Write ``result`` into ``folder``: the numbers first, then the picture and the report.

    A result that is already there is replaced completely or left unchanged (``_atomic``). A picture or report that cannot be
    made causes a ``SaveWarning``.

    :raises ArgumentError: naming ``out``.
    :raises OSError: if the numbers cannot be written.
    """
    path = check_folder(folder)
    path.mkdir(parents=True, exist_ok=True)
    values = _encode(result)
    draws = functools.partial(arviz_adapter.save_draws, result.posterior_of(result.draws))
    numbers: dict[str, Callable[[Path], object]] = {
        "params.npz": lambda file: _write_arrays(file, result.params),
        # in the guide's order, as predictions use them: sorted draws would be sorted again after loading
        "posterior.nc": draws,
    }
    written: dict[str, str] = {}

    def index(digests: dict[str, str]) -> bytes:
        written.update(digests)
        return _index({**values, "files": written})

    saved = _atomic.replace(path, numbers, index, delete=_MADE)
    if result.ledger is not None:
        reservation.note_saved(result.ledger, result.spend, path)
    try:
        made = {name: functools.partial(_write, content) for name, content in _made(result)}
        _atomic.replace(path, made, index, expected=saved)  # unless another process has saved there meanwhile
    except OSError as error:
        _warn_of("the report and its picture", error)
    return path


def _write(content: bytes, file: Path) -> None:
    file.write_bytes(content)


def _made(result: FitResult) -> Iterator[tuple[str, bytes]]:
    """The files for people, made from the numbers. A file that cannot be made causes a warning."""
    from workbench.plots import png

    makers: dict[str, Callable[[], bytes]] = {
        "curves.png": lambda: png(result.plot()),
        "report.html": lambda: result.report().encode(),
    }
    for name in _MADE:
        try:
            yield name, makers[name]()
        except Exception as error:  # a failing picture must not lose the numbers that epsilon was spent on
            _warn_of(name, error)


def _warn_of(what: str, error: Exception) -> None:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    warnings.warn(f"{what} could not be saved ({reason}). The numbers are saved.", SaveWarning, stacklevel=3)


def _index(values: dict[str, Any]) -> bytes:
    """The content of result.json, with a digest of everything else in it."""
    return (json.dumps({**values, "digest": _digest_of(values)}, indent=2, allow_nan=False) + "\n").encode()


def _digest_of(values: dict[str, Any]) -> str:
    return _atomic.digest(json.dumps(values, sort_keys=True).encode())


def load(folder: str | Path) -> FitResult:
    """Load the result that ``save`` wrote into ``folder``.

    :raises ArgumentError: if the folder holds no result of a known format, or a damaged one, or files that do not belong
        together.
    """
    path = Path(folder).expanduser()

    def refused(reason: str) -> _validate.ArgumentError:
        return _validate.ArgumentError("folder", str(folder), reason)

    def files_of(index: bytes) -> dict[str, str | None]:
        return {**dict.fromkeys(_NUMBERS), **_parsed(index, refused).get("files", {})}

    try:
        index, files = _atomic.read(path, files_of)
    except FileNotFoundError:
        raise refused("holds no saved result (result.json is missing).") from None
    except _atomic.TornError as torn:
        remedy = "save the result again" if str(torn) not in _MADE else "delete it, or save the result again"
        raise refused(f"{torn} is damaged, or not the file that was saved with this result.json: {remedy}.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, _validate.ArgumentError):
            raise
        raise refused(f"cannot be read ({error}).") from None
    for name in _NUMBERS:
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
    if not isinstance(files, dict) or not files.keys() <= {*_NUMBERS, *_MADE} or (written is None) != (files == {}):
        raise refused("result.json is damaged: its digests are not usable.")
    if written is not None and written != _digest_of(values):
        raise refused("result.json is damaged: it was changed after it was saved.")
    return values


def _write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    with file.open("wb") as target:
        np.savez(target, **arrays)  # type: ignore[arg-type]


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def _decode(values: dict[str, Any], params: dict[str, np.ndarray], draws: dict[str, np.ndarray]) -> FitResult:
    """The inverse of ``_encode``."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    if "state" in values:  # of earlier versions
        values["status"] = values.pop("state")
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
