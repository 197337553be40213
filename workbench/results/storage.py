"""Saving results as folders.

A folder has result.json (all but arrays), params.npz, posterior.nc (the draws), curves.png and
report.html.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench.ledger import reservation
from workbench.results import _atomic, arviz_adapter
from workbench.results._atomic import SaveWarning
from workbench.results.fit_result import FitResult

__all__ = [
    "FORMAT",
    "GUIDE_DRAWS",
    "MADE",
    "NUMBERS",
    "SaveWarning",
    "check_folder",
    "described",
    "digest_of",
    "save",
]

FORMAT = 3
NUMBERS = ("params.npz", "posterior.nc")
GUIDE_DRAWS = "draws of the guide/"  # before the names of sites, in params.npz
MADE = ("curves.png", "report.html")  # made from the numbers, for people
# fields in their own files, or not saved
_APART = ("draws", "variational_draws", "params", "definition", "public_records", "ledger")


def check_folder(folder: str | Path) -> Path:
    """Check that ``folder`` can be made and written to, and leave no trace. Called before a fit
    spends its epsilon.

    :raises ArgumentError: naming ``out`` and the folder.
    """
    path = _validate.path("out", folder, "must be the path of a folder.")
    missing: list[Path] = []
    try:
        missing += [directory for directory in (path, *path.parents) if not directory.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(
            dir=path
        ):  # has no name where the system allows it, so a killed process leaves nothing
            pass
        taken = [name for name in (_atomic.INDEX, *NUMBERS, *MADE) if (path / name).is_dir()]
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise _validate.ArgumentError(
            "out", str(folder), f"cannot write there ({reason})."
        ) from None
    finally:
        for directory in missing:
            if directory.is_dir():
                directory.rmdir()
    if taken:
        raise _validate.ArgumentError(
            "out", str(folder), f"{taken[0]} in it is a folder: choose another folder."
        )
    return path


def _plain(value: object) -> Any:
    """``value`` for JSON, which has no NaN: a metric that is not finite becomes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _encode(result: FitResult) -> dict[str, Any]:
    """Everything but draws and parameters, as values that JSON can hold."""
    values = {
        field.name: getattr(result, field.name)
        for field in dataclasses.fields(result)
        if field.name not in _APART
    }
    values["guarantee"] = result.guarantee.to_dict()
    values["gradient_norms"] = (
        None if result.gradient_norms is None else result.gradient_norms.to_dict()
    )
    if result.convergence is not None:
        entries = result.convergence._asdict()
        values["convergence"] = {name: _plain(value) for name, value in entries.items()}
    values["constants"] = {
        name: {"dtype": str(value.dtype), "value": value.tolist()}
        if isinstance(value, np.ndarray)
        else value
        for name, value in result.constants.items()
    }
    values["history"] = [
        {"step": point.step, **{name: _plain(value) for name, value in point.metrics.items()}}
        for point in result.history
    ]
    values["metrics"] = {name: _plain(value) for name, value in result.metrics.items()}
    return {"format": FORMAT, **values}


def save(result: FitResult, folder: str | Path) -> Path:
    """Write ``result`` into ``folder``: the numbers first, then the picture and the report.

    A result that is already there is replaced completely or left unchanged (``_atomic``). A picture
    or report that cannot be made causes a ``SaveWarning``.

    :raises ArgumentError: naming ``out``.
    :raises OSError: if the numbers cannot be written.
    """
    path = check_folder(folder)
    path.mkdir(parents=True, exist_ok=True)
    of_guide = {GUIDE_DRAWS + name: value for name, value in result.variational_draws.items()}
    arrays = {"params.npz": {**result.params, **of_guide}, "posterior.nc": result.draws}
    values = _encode(result) | {
        "arrays": {name: described(content) for name, content in arrays.items()}
    }
    draws = functools.partial(arviz_adapter.save_draws, result.posterior_of(result.draws))
    numbers: dict[str, Callable[[Path], object]] = {
        "params.npz": lambda file: _write_arrays(file, arrays["params.npz"]),
        # in the guide's order, as predictions use them: sorted draws would be sorted again after
        # loading
        "posterior.nc": draws,
    }
    written: dict[str, str] = {}

    def index(digests: dict[str, str]) -> bytes:
        written.update(digests)
        listed = {**values, "files": written}
        listed["digest"] = digest_of(listed)
        return (json.dumps(listed, indent=2, allow_nan=False) + "\n").encode()

    saved = _atomic.replace(path, numbers, index, delete=MADE)
    if result.ledger is not None:
        reservation.note_saved(result.ledger, result.spend, path)
    try:
        made = {name: functools.partial(_write, content) for name, content in _made(result)}
        # unless another process has saved there meanwhile
        _atomic.replace(path, made, index, expected=saved)
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
    for name in MADE:
        try:
            yield name, makers[name]()
        except (
            Exception
        ) as error:  # a failing picture must not lose the numbers that epsilon was spent on
            _warn_of(name, error)


def _warn_of(subject: str, error: Exception) -> None:
    reason = _validate.kind_and_message(error)
    warnings.warn(
        f"{subject} could not be saved ({reason}). The numbers are saved.",
        SaveWarning,
        stacklevel=3,
    )


def described(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Type and shape of arrays by name, such as "float32[3, 4]", and whether some entries are not
    finite.
    """
    return {str(name): _described(np.asarray(array)) for name, array in arrays.items()}


def _described(array: np.ndarray) -> str:
    shape = ", ".join(map(str, array.shape))
    is_finite = array.dtype.kind in "biuf" and bool(np.isfinite(array).all())
    return f"{array.dtype}[{shape}]" + ("" if is_finite else ", not finite")


def digest_of(values: dict[str, Any]) -> str:
    """The digest of everything else in result.json."""
    return _atomic.digest(json.dumps(values, sort_keys=True).encode())


def _write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    with file.open("wb") as target:
        np.savez(target, **arrays)  # type: ignore[arg-type]
