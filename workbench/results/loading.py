"""Loading results that ``storage`` saved."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _json, _validate
from workbench._schema import FormError
from workbench.posterior.convergence import Convergence
from workbench.privacy.gradient_norms import GradientNorms
from workbench.privacy.guarantee import Guarantee, check_epsilon
from workbench.results import _atomic, _form, arviz_adapter
from workbench.results.fit_result import FitResult, HistoryPoint
from workbench.results.storage import FORMAT, GUIDE_DRAWS, MADE, described, digest_of

__all__ = ["load"]


def load(folder: str | Path) -> FitResult:
    """Load the result that ``save`` wrote into ``folder``.

    Epsilon is recomputed from the noise and the steps that the file states, and a file that states
    less is refused. The digests find damage, not forgery: somebody who can write to the folder can
    state other noise, other steps or another source of randomness. The ledger says what was
    charged.

    :raises ArgumentError: if the folder holds no result of this format, or a damaged one, or files
        that do not belong together; it names the file, and the field in it.
    """
    path = _validate.path("folder", folder, "must be the path of a folder.")

    def refused(reason: str) -> _validate.ArgumentError:
        # names of fields are the file's
        return _validate.ArgumentError("folder", str(folder), _validate.in_one_line(reason))

    try:
        index, files = _atomic.read(path, lambda index: _parsed(index)["files"])
    except FileNotFoundError:
        raise refused("holds no saved result (result.json is missing).") from None
    except _atomic.TornError as torn:
        remedy = (
            "save the result again"
            if str(torn) not in MADE
            else "delete it, or save the result again"
        )
        raise refused(
            f"{torn} is damaged, or not the file that was saved with this result.json: {remedy}."
        ) from None
    except _Damaged as damaged:
        raise refused(f"result.json {damaged}") from None
    except (OSError, ValueError) as error:
        raise refused(f"cannot be read ({error}).") from None
    values = _parsed(index)
    arrays = {}
    for name, read in _READERS.items():
        if name not in files:
            raise refused(f"holds no saved result ({name} is missing).")
        try:
            arrays[name] = read(files[name])
        except arviz_adapter.LinksError as error:
            raise refused(f"{name} is damaged: {error}.") from None
        except (
            Exception
        ) as error:  # NumPy, HDF5 and xarray raise errors of many types on damaged bytes
            raise refused(f"{name} is damaged ({type(error).__name__}).") from None
        difference = _difference(described(arrays[name]), values["arrays"][name])
        if difference:
            raise refused(f"{name} is not the file that result.json describes: {difference}.")
    try:
        _form.check_draws(values, arrays["posterior.nc"])
        result = _decode(values, arrays["params.npz"], arrays["posterior.nc"])
        if result.guarantee.is_private:
            check_epsilon(result.guarantee)
    except FormError as error:
        raise refused(f"result.json is damaged: {error}") from None
    return result


class _Damaged(Exception):
    """What is wrong with result.json, without its name."""


def _parsed(index: bytes) -> dict[str, Any]:
    """The values in result.json. :raises _Damaged: if ``storage.save`` did not write them."""
    try:
        values = _json.loads(index)
    except _json.TwiceError as error:
        raise _Damaged(f"is damaged: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"is damaged: it is no JSON ({type(error).__name__}).") from None
    if (
        not isinstance(values, dict)
        or values.get("format") != FORMAT
        or isinstance(values["format"], (bool, float))
    ):
        raise _Damaged(f"does not have format {FORMAT}, the one that this version reads.")
    try:
        _form.check(values)
    except FormError as error:
        raise _Damaged(f"is damaged: {error}") from None
    except RecursionError:
        raise _Damaged("is damaged: it is nested too deeply.") from None
    if values["digest"] != digest_of(
        {name: value for name, value in values.items() if name != "digest"}
    ):
        raise _Damaged("is damaged: it was changed after it was saved.")
    return values


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


_READERS: dict[str, Callable[[bytes], dict[str, np.ndarray]]] = {
    "params.npz": _read_arrays,
    "posterior.nc": lambda content: arviz_adapter.load_draws(io.BytesIO(content)),
}


def _difference(stored: Mapping[str, str], written: Mapping[str, str]) -> str:
    """The first array that is another one than was written, in words; "" if there is none."""
    for name in sorted({*stored, *written}):
        there, said = stored.get(name, "missing"), written.get(name, "unknown")
        if there != said:
            return f"{name} is {there} there and {said} in result.json"
    return ""


def _decode(
    values: dict[str, Any], params: dict[str, np.ndarray], draws: dict[str, np.ndarray]
) -> FitResult:
    """The inverse of ``storage._encode``."""

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    norms, coordinates = values["gradient_norms"], values["coordinates"]
    convergence = values.get("convergence")
    if convergence is not None:
        score = math.inf if convergence["score"] is None else convergence["score"]
        convergence = Convergence(**{**convergence, "score": score})
    decoded = {
        "guarantee": Guarantee.from_dict(values["guarantee"]),
        "gradient_norms": None if norms is None else GradientNorms.from_dict(norms),
        "convergence": convergence,
        "constants": {
            name: np.array(value["value"], value["dtype"])
            if isinstance(value, dict) and value.keys() == {"dtype", "value"}
            else value
            for name, value in values["constants"].items()
        },
        "coordinates": {
            name: tuple(labels) if labels and isinstance(labels[0], list) else labels
            for name, labels in coordinates.items()
        },
        "released": tuple(values["released"]),
        "cautions": tuple(values["cautions"]),
        "history": tuple(
            HistoryPoint(
                point["step"],
                {name: number(value) for name, value in point.items() if name != "step"},
            )
            for point in values["history"]
        ),
        "metrics": {name: number(value) for name, value in values["metrics"].items()},
        "metric_intervals": {
            name: (low, high) for name, (low, high) in values["metric_intervals"].items()
        },
    }
    of_guide = {
        name.removeprefix(GUIDE_DRAWS): params.pop(name)
        for name in list(params)
        if name.startswith(GUIDE_DRAWS)
    }
    plain = {
        name: value
        for name, value in values.items()
        if name not in ("format", "files", "digest", "arrays")
    }
    return FitResult(params=params, draws=draws, variational_draws=of_guide, **{**plain, **decoded})
