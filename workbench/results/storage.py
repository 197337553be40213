"""A result as a folder: result.json (all but arrays), params.npz, posterior.nc (the draws), curves.png and report.html."""

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
from workbench.results import _whole, arviz_adapter
from workbench.results._whole import SaveWarning
from workbench.results.fit_result import FitResult, HistoryPoint

__all__ = ["SaveWarning", "check_folder", "load", "save"]

FORMAT = 2


def check_folder(folder: str | Path) -> Path:
    """Prove that ``folder`` can be made and written to, and leave no trace; called before a fit spends its epsilon.

    :raises ArgumentError: naming ``out`` and the folder.
    """
    path = Path(folder).expanduser()
    missing: list[Path] = []
    try:
        missing += [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):  # without a name, where that can be: nothing is left if the process dies
            pass
        taken = [name for name in (_whole.INDEX, *_NUMBERS, *_MADE) if (path / name).is_dir()]
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise _validate.ArgumentError("out", str(folder), f"cannot write there ({reason}).") from None
    finally:
        for place in missing:
            if place.is_dir():
                place.rmdir()
    if taken:
        raise _validate.ArgumentError("out", str(folder), f"{taken[0]} in it is a folder: name another place.")
    return path


def _plain(value: Any) -> Any:
    """JSON has no NaN: a metric that is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_NUMBERS = ("params.npz", "posterior.nc")
_MADE = ("curves.png", "report.html")  # from the numbers, for people
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
    """Write ``result`` into ``folder``: the numbers first, then the pictures and the report.

    A result that was there before is replaced as a whole or stays as it was (``_whole``). A picture or a report that cannot
    be made is a ``SaveWarning``.

    :raises ArgumentError: naming ``out``. :raises OSError: if the numbers cannot be written.
    """
    path = check_folder(folder)
    path.mkdir(parents=True, exist_ok=True)
    values = _encode(result)
    draws = functools.partial(arviz_adapter.save_draws, result.posterior_of(result.draws))
    numbers: dict[str, Callable[[Path], object]] = {
        "params.npz": lambda file: _write_arrays(file, result.params),
        # as the guide drew them, which is how predictions take them: sorted ones would be sorted once more after loading
        "posterior.nc": draws,
    }
    written: dict[str, str] = {}

    def index(digests: dict[str, str]) -> bytes:
        written.update(digests)
        return _index({**values, "files": written})

    former = _whole.replace(path, numbers, index, without=_MADE)
    if result.ledger is not None:
        reservation.note_saved(result.ledger, result.spend, path)
    try:
        made = {name: functools.partial(_write, content) for name, content in _made(result)}
        _whole.replace(path, made, index, after=former)  # unless another process has saved there meanwhile
    except OSError as error:
        _warn_of("the report and its picture", error)
    return path


def _write(content: bytes, file: Path) -> None:
    file.write_bytes(content)


def _made(result: FitResult) -> Iterator[tuple[str, bytes]]:
    """The files for people, which are made from the numbers; what cannot be made is a warning."""
    from workbench.plots import png

    makers: dict[str, Callable[[], bytes]] = {
        "curves.png": lambda: png(result.plot()),
        "report.html": lambda: result.report().encode(),
    }
    for name in _MADE:
        try:
            yield name, makers[name]()
        except Exception as error:  # nothing that a name or a model does to a picture may lose what epsilon was spent on
            _warn_of(name, error)


def _warn_of(what: str, error: Exception) -> None:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    warnings.warn(f"{what} could not be saved ({reason}); the numbers are.", SaveWarning, stacklevel=3)


def _index(values: dict[str, Any]) -> bytes:
    """result.json, with a digest of all else that it says."""
    return (json.dumps({**values, "digest": _digest_of(values)}, indent=2, allow_nan=False) + "\n").encode()


def _digest_of(values: dict[str, Any]) -> str:
    return _whole.digest(json.dumps(values, sort_keys=True).encode())


def load(folder: str | Path) -> FitResult:
    """The result that ``save`` wrote into ``folder``.

    :raises ArgumentError: if the folder holds no result of a known format, a damaged one, or files that do not belong
        together.
    """
    path = Path(folder).expanduser()

    def refused(reason: str) -> _validate.ArgumentError:
        return _validate.ArgumentError("folder", str(folder), reason)

    def files_of(index: bytes) -> dict[str, str | None]:
        return {**dict.fromkeys(_NUMBERS), **_parsed(index, refused).get("files", {})}

    try:
        index, files = _whole.read(path, files_of)
    except FileNotFoundError:
        raise refused("holds no saved result (result.json is missing).") from None
    except _whole.Torn as torn:
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
        except Exception as error:  # of damaged bytes NumPy, HDF5 and xarray raise whatever comes of them
            raise refused(f"{name} is damaged: {_shown(error)}") from None
    values = _parsed(index, refused)
    for name in ("format", "files", "digest"):
        values.pop(name, None)
    try:
        return _decode(values, *arrays.values())
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise refused(f"result.json is damaged: {_shown(error)}") from None


def _shown(error: Exception) -> str:
    """What an error says, on one line."""
    return " ".join(repr(error).split())


def _parsed(index: bytes, refused: Callable[[str], _validate.ArgumentError]) -> dict[str, Any]:
    """What result.json says. :raises ArgumentError: made by ``refused``."""
    try:
        values = json.loads(index)
    except (ValueError, RecursionError) as error:
        raise refused(f"result.json is damaged: {_shown(error)}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise refused(f"result.json is not of format {FORMAT}, which this version reads.")
    said = values.pop("digest", None)  # earlier versions wrote none, nor any of the files
    files = values.get("files", {})
    if not isinstance(files, dict) or not files.keys() <= {*_NUMBERS, *_MADE} or (said is None) != (files == {}):
        raise refused("result.json is damaged: its digests are.")
    if said is not None and said != _digest_of(values):
        raise refused("result.json is damaged: it is not what was saved.")
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
