"""What a sweep is asked for: its lists of settings, checked, and the settings that all its fits
share.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench.data import Dataset
from workbench.data.look import Look
from workbench.fitting.settings import (
    LedgerSettings,
    Noted,
    Shared,
    about,
    default_of,
    described,
    setting,
)
from workbench.models import Model
from workbench.models.registry import AnyModel, as_model
from workbench.record_model.estimators import ESTIMATORS
from workbench.sweeps.store import Store

__all__ = ["BASELINES", "LISTS", "METHODS", "MOST_FITS", "USUAL", "SweepRequest", "Swept"]

DP, NON_PRIVATE, POOLED = METHODS = ("dp-vi", "non-private", "scikit-learn")
BASELINES = {
    NON_PRIVATE: "the same steps with neither clipping nor noise",
    POOLED: "scikit-learn's logistic regression on all records, groups ignored",
}

# of all fits of a sweep, where the default of one fit depends on its model
USUAL = {"estimators": "aligned"}
MOST_FITS = 20_000  # of a sweep: planning takes some milliseconds each


# ---- checks --------------------------------------------------------------------------------------


def _values(name: str, entries: Any, check: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """The values of a list, checked and without repetitions; a single value is a list of one."""
    values = tuple(itertools.islice(entries, MOST_FITS + 1)) if _is_list(entries) else (entries,)
    if len(values) > MOST_FITS:
        raise _validate.ArgumentError(
            name,
            type(entries).__name__,
            f"holds more than {MOST_FITS:,} values, the most that a sweep may have.",
        )
    checked = (check(name, value) for value in values)
    return tuple(
        {id(value) if isinstance(value, Model) else value: value for value in checked}.values()
    )


def _is_list(value: object) -> bool:
    is_scalar = getattr(value, "ndim", 1) == 0  # an array of no axes cannot be iterated over
    return (
        isinstance(value, Iterable)
        and not isinstance(value, (str, bytes, Mapping, Dataset))
        and not is_scalar
    )


def _seeds(name: str, seeds: Any) -> Any:
    if isinstance(seeds, (str, bytes)) or (not isinstance(seeds, int) and not _is_list(seeds)):
        raise _validate.ArgumentError(
            name, seeds, "must be a number of repetitions, or a list of seeds."
        )
    if isinstance(seeds, int):
        return _validate.integer(name, seeds, at_least=1, at_most=MOST_FITS)
    return _not_empty(
        name, seeds, _values(name, seeds, functools.partial(_validate.integer, at_least=0))
    )


def _models(name: str, models: Any) -> tuple[Model, ...]:
    return _values(name, models, lambda name, value: as_model(value, name))


def _data(name: str, data: Any) -> Any:
    if not (isinstance(data, (str, Dataset)) or callable(data)):
        raise _validate.ArgumentError(
            name,
            type(data).__name__,
            "must be a name, a workbench.data.Dataset or a function that makes one.",
        )
    return data


def _not_empty(name: str, entries: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise _validate.ArgumentError(name, entries, "is empty: a sweep needs one value at least.")
    return values


# ---- the lists -----------------------------------------------------------------------------------


def _list_of(name: str, help: str = "") -> dict[str, Any]:
    """What is said of a list of values of a setting: the setting's help and check, which each value
    goes through.

    :param help: where the setting means something else in a sweep.
    """
    single, default = about(name), default_of(name)

    def check(argument: str, value: Any) -> Any:
        return (
            value
            if single.check is None or (value is None and default is None)
            else single.check(argument, value)
        )

    return described(
        f"one or several values of ``{name}``: {help or single.help}",
        lambda argument, entries: _not_empty(argument, entries, _values(argument, entries, check)),
        unit=single.unit,
        changes_guarantee=single.changes_guarantee,
        values_of=name,
    )


def _several(name: str, help: str = "") -> Any:
    return field(default=default_of(name), metadata=_list_of(name, help))


@dataclass(frozen=True, eq=False, repr=False)
class Swept(Noted):
    """What a sweep goes over, as its callers name it; checked by a ``SweepRequest``."""

    model: AnyModel | None = setting(None, "a name, a NumPyro function or a ``Model``")
    data: str | Dataset | Callable[..., Dataset] | None = setting(
        None,
        "a name, a ``Dataset``, or a function that makes up records from ``seed=`` (and "
        "``num_records=``), which then differ from seed to seed",
        _data,
    )
    _: KW_ONLY
    epsilons: Sequence[float] | float = field(metadata=_list_of("epsilon"))
    iterations: Sequence[int | None] | int | None = _several("iterations")
    num_records: Sequence[int | None] | int | None = _several(
        "num_records", "how many of the public or made-up records a fit uses"
    )
    samplers: Sequence[str] | str = _several("sampler")
    clips: Sequence[float | str | None] | float | str | None = _several("clip")
    learning_rates: Sequence[float | None] | float | None = _several("learning_rate")
    sampling_rates: Sequence[float | None] | float | None = _several("sampling_rate")
    batch_sizes: Sequence[int | None] | int | None = _several("batch_size")
    estimators: Sequence[str] | str | None = _several("estimator")
    models: Sequence[AnyModel] = setting((), "several models, instead of ``model``", _models)
    seeds: int | Sequence[int] = setting(
        1,
        "how many times a fit is repeated with secret randomness; or, for public records only, a "
        "list of seeds",
        _seeds,
    )
    baselines: Sequence[str] = setting(
        (),
        "fits to compare with, outside the guarantee, because they are exact functions of the "
        'records: "non-private" (the same steps with neither clipping nor noise) and '
        '"scikit-learn" (pooled logistic regression)',
        lambda name, entries: _values(
            name, entries, functools.partial(_validate.choice, options=BASELINES)
        ),
    )
    store: str | Path | Store | None = setting(
        None,
        "SQLite file that keeps finished fits; fits that are in it are not run again",
        otherwise="kept in memory",
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepRequest(Swept, LedgerSettings, Shared):
    """What a caller asks a sweep for. Every list is a tuple of checked values
    after construction.
    """

    devices: Any = setting(
        None,
        "devices of this machine over which fits that are stepped together are spread: how many, "
        "all, or a list of names",
        otherwise="device alone",
    )

    def __post_init__(self) -> None:
        """Check every value, and those that exclude each other.

        :raises ArgumentError: naming the argument and its value.
        """
        super().__post_init__()
        for name in LISTS:
            if getattr(self, name) is None:
                object.__setattr__(self, name, (USUAL.get(name),))
        if self.look and not isinstance(self.look, Look):
            raise _validate.ArgumentError(
                "look",
                self.look,
                "would be paid for by each fit: give one look for all of them, as in "
                "privacy=wb.Privacy(look=wb.look(data, epsilon=0.1)).",
            )
        if not set(self.estimators or ()) <= set(ESTIMATORS):
            raise _validate.ArgumentError(
                "estimators",
                self.estimators,
                f"must be among {', '.join(ESTIMATORS)}; a sweep compares only estimators that "
                "take steps.",
            )
        if self.model is not None:
            object.__setattr__(self, "models", _models("models", [self.model, *self.models]))
        if not self.models:
            raise _validate.ArgumentError("model", None, "name a model, or several with models=.")
        if self.data is None:
            raise _validate.ArgumentError(
                "data", None, "name a data set, or give a Dataset or a function that makes one."
            )
        if self.batch_sizes != (None,) and self.sampling_rates != (None,):
            raise _validate.ArgumentError(
                "batch_sizes", self.batch_sizes, "give batch_sizes or sampling_rates, not both."
            )


_SINGLE = {entry.name: entry.metadata["setting"].values_of for entry in fields(SweepRequest)}
# the setting of a fit of which a list holds values
LISTS = {name: single for name, single in _SINGLE.items() if single}
