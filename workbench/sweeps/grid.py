"""The cells of a sweep: one fit each, with an identity by which a finished fit is recognised."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
import math
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from workbench import _validate
from workbench.data import Dataset
from workbench.data import load as load_data
from workbench.data.dataset import is_at_rest
from workbench.data.look import Look, scales_to_dict
from workbench.fitting.devices import devices_named
from workbench.fitting.settings import Shared, default_of
from workbench.fitting.spec import FitSpec
from workbench.inference.sharding import source_on
from workbench.ledger.fingerprint import fingerprint
from workbench.models import Model
from workbench.models.functions import FunctionModel
from workbench.privacy.steps import LAWS
from workbench.sweeps.request import DP, LISTS, MOST_FITS, NON_PRIVATE, POOLED, USUAL, SweepRequest

__all__ = ["AXES", "Cell", "Grid"]

# of figures
AXES = ("epsilon", "num_records", "iterations", "clip", "learning_rate", "sampling_rate")
Source = str | Dataset | Callable[..., Dataset]

_SPEED_ONLY = ("strategy", "microbatch_size", "device")
# Values at which a key leaves shared settings out: the fit is the same whether a caller writes them
# out or not. Stores keep keys, so these stay as they are when a default changes.
_LEFT_OUT = {
    "delta": None,
    "relation": None,
    "clipping": "flat",
    "average": None,
    "evaluate_private": False,
    "covered_scores": False,
}


@dataclass(frozen=True)
class Cell:
    """One fit of a sweep, as asked for.

    :param model: place in ``Grid.models``.
    :param method: one of ``METHODS``.
    :param epsilon: infinite for baselines.
    :param seed: of the fit, and of made-up data; None for secret randomness.
    :param repetition: number of the fit among those that differ in nothing else, from 0.
    :param settings: values of the other settings that a sweep has lists of, by name; None where
        ``workbench.fitting.defaults`` chooses.
    """

    model: int
    method: str
    epsilon: float
    seed: int | None
    repetition: int
    settings: Mapping[str, Any] = field(hash=False)


class Grid:
    """The cells of a sweep and where their records come from.

    :ivar models: workbench models. :ivar data: a ``Dataset``, or a function that makes up records.
    :ivar lists: the values of each setting that a sweep has a list of, by the setting's name; one
        or more each.
    :ivar seeds: how many fits with secret randomness a cell is repeated, or their seeds, which
        anyone can repeat.
    :ivar constant: settings of ``workbench.fit`` that were given for all cells.
    :ivar devices: among which lanes are spread; None for that of the fits alone.
    :ivar key: of private records' fingerprints; None for the user's own.
    """

    def __init__(self, request: SweepRequest) -> None:
        self.models: Sequence[Model] = request.models  # type: ignore[assignment]
        self.seeds, self.baselines = request.seeds, request.baselines
        self.lists: dict[str, tuple[Any, ...]] = {
            name: getattr(request, plural) for plural, name in LISTS.items()
        }
        self.constant = request.passed_to(Shared)
        self.devices: tuple[jax.Device, ...] | None = None
        if request.devices is not None:
            self.devices = devices_named(request.devices, request.device, "lanes")
            source_on(self.devices).processes.require_one("a sweep")
            self.constant["device"] = self.devices[0]
        self.data: Source = request.data or ""
        self.key: bytes | None = None
        self._sets: dict[tuple[int | None, int | None], Dataset] = {}
        self._identities: dict[Any, Any] = {}
        if self.number > MOST_FITS:
            raise _validate.ArgumentError(
                "seeds",
                self.seeds,
                f"the lists make {self.number:,} fits; a sweep has at most {MOST_FITS:,}.",
            )
        if isinstance(self.data, str):
            self.data = load_data(self.data)
        if self.is_at_rest and self.devices is not None:
            raise _validate.ArgumentError(
                "devices",
                request.devices,
                "share fits that are stepped together, but records that stay in their file are "
                "read for one fit after another: leave it out, or open the file with "
                "reading='memory'.",
            )
        self._check_privacy()

    def _check_privacy(self) -> None:
        """Refuse what must not be done with private records.

        :raises ArgumentError: naming the argument and its value.
        """
        sizes = self.lists["num_records"]
        if not self.is_public and not isinstance(self.seeds, int):
            raise _validate.ArgumentError(
                "seeds",
                self.seeds,
                "fits with known seeds share noise that anyone can subtract: on private records "
                "give the number of repetitions instead, and each fit gets its own secret "
                "randomness.",
            )
        if self.baselines and not (
            self._sample.evaluation_is_public or self.constant.get("evaluate_private")
        ):
            raise _validate.ArgumentError(
                "baselines",
                self.baselines,
                "are scores on private evaluation records, outside any guarantee: set "
                "evaluate_private=True of wb.Privacy to compute them.",
            )
        if not self.is_public and sizes != (None,):
            raise _validate.ArgumentError(
                "num_records",
                sizes,
                "only public or made-up records are cut to a size: which records a part of private "
                "ones holds would depend on the others, which no guarantee here covers.",
            )

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The epsilons of private fits."""
        return self.lists["epsilon"]

    @property
    def number(self) -> int:
        """The number of cells, without making them."""
        repeated = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        sizes = len(self.models) * len(self.lists["num_records"])
        return (
            repeated * len(self.models) * math.prod(map(len, self.lists.values()))
            + (NON_PRIVATE in self.baselines) * repeated * sizes * len(self.lists["iterations"])
            + (POOLED in self.baselines) * sizes * (repeated if callable(self.data) else 1)
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether the records stay in a file, so that fits take their steps one after another."""
        return isinstance(self.data, Dataset) and any(map(is_at_rest, self.data.train))

    @property
    def is_public(self) -> bool:
        """Whether the records are public or made up, so that no privacy is spent."""
        return self._sample.is_public

    @property
    def _sample(self) -> Dataset:
        """The records of some cell: what is public of them is public of all."""
        if isinstance(self.data, Dataset):
            return self.data
        return self.dataset(
            0 if isinstance(self.seeds, int) else self.seeds[0], self.lists["num_records"][0]
        )

    def dataset(self, seed: int | None, num_records: int | None) -> Dataset:
        """The records of a cell.

        :raises ArgumentError: naming what of them cannot be had.
        """
        if isinstance(self.data, Dataset):
            seed = None  # the same for all
        key = seed, num_records
        if key not in self._sets:
            self._sets[key] = self._made(seed, num_records)
        return self._sets[key]

    def _made(self, seed: int | None, num_records: int | None) -> Dataset:
        if isinstance(self.data, Dataset):
            return self.data if num_records is None else self.data.subset(num_records)
        size = {} if num_records is None else {"num_records": num_records}
        try:
            made = self.data(seed=seed, **size)  # type: ignore[operator]
        except TypeError as error:
            raise _validate.ArgumentError(
                "data",
                getattr(self.data, "__name__", repr(self.data)),
                f"must take seed= and num_records=: {error}.",
            ) from None
        if not isinstance(made, Dataset) or not made.is_public:
            raise _validate.ArgumentError(
                "data",
                getattr(self.data, "__name__", repr(self.data)),
                "a function must make up records: give private ones as a Dataset.",
            )
        return made

    @property
    def varying(self) -> tuple[str, ...]:
        """Columns of the table for the lists with several values, except epsilon and randomness."""
        counts = {
            "model": len(self.models),
            **{name: len(values) for name, values in self.lists.items()},
        }
        counts["sampling_rate"] += counts.pop("batch_size") - 1  # only one of the two is given
        return tuple(name for name, count in counts.items() if count > 1 and name != "epsilon")

    def axes(self, x: str | None = None) -> tuple[str, list[str]]:
        """The column over which a figure shows the fits, and the columns that tell its lines apart.

        :param x: one of ``AXES``; by default the first that has several values.
        """
        # only what the plan varies: the default of C, for example, may follow epsilon
        varying = [*(["epsilon"] if len(self.epsilons) > 1 else []), *self.varying]
        if x is None:
            x = next((name for name in AXES if name in varying), "epsilon")
        return x, [name for name in varying if name != x]

    def cells(self) -> list[Cell]:
        """All cells, baselines last."""
        if isinstance(self.seeds, int):
            # made-up records need a public seed; that of the noise stays secret
            repeated: list[tuple[int | None, int]] = [
                (None, number) for number in range(self.seeds)
            ]
        else:
            repeated = [(seed, 0) for seed in self.seeds]
        lists = {name: values for name, values in self.lists.items() if name != "epsilon"}
        # cells that differ in epsilon alone follow one another, so that a figure fills evenly
        cells = [
            Cell(model, DP, epsilon, seed, number, dict(zip(lists, values, strict=True)))
            for model, *values, (seed, number), epsilon in itertools.product(
                range(len(self.models)), *lists.values(), repeated, self.epsilons
            )
        ]
        if NON_PRIVATE in self.baselines:
            cells += self._baseline(NON_PRIVATE, ("iterations", "num_records"), repeated)
        if POOLED in self.baselines:
            data_differs = not isinstance(self.data, Dataset)
            cells += self._baseline(
                POOLED, ("num_records",), repeated if data_differs else repeated[:1]
            )
        return cells

    def _baseline(
        self, method: str, swept: Sequence[str], repeated: Sequence[tuple[int | None, int]]
    ) -> list[Cell]:
        defaults = {LISTS[name]: value for name, value in USUAL.items()}
        usual = {
            name: defaults.get(name, default_of(name)) for name in self.lists if name != "epsilon"
        }
        return [
            Cell(
                model, method, math.inf, seed, number, usual | dict(zip(swept, values, strict=True))
            )
            for model, *values, (seed, number) in itertools.product(
                range(len(self.models)), *(self.lists[name] for name in swept), repeated
            )
        ]

    def records_of(self, cell: Cell) -> Dataset:
        """The records of a cell, before the model picks its arrays."""
        # the seed of made-up records is public
        seed = cell.repetition if cell.seed is None else cell.seed
        return self.dataset(seed, cell.settings["num_records"])

    def fingerprint_of(self, cell: Cell) -> str:
        """The fingerprint by which the records are recognised."""
        dataset = self.records_of(cell)
        return self._known(("data", id(dataset)), lambda: fingerprint(dataset, self.key))

    def levels_of(self, cell: Cell) -> list[float]:
        """The epsilons whose settings a cell may take: for a baseline all of them, the largest
        first.
        """
        return sorted(self.epsilons, reverse=True) if math.isinf(cell.epsilon) else [cell.epsilon]

    def settings_of(self, cell: Cell, epsilon: float | None = None) -> dict[str, Any]:
        """Keyword arguments of ``workbench.fit`` for a cell, at the first of ``levels_of`` or
        another of them.
        """
        # the records are cut to it
        swept = {name: value for name, value in cell.settings.items() if name != "num_records"}
        level = self.levels_of(cell)[0] if epsilon is None else epsilon
        look = self.constant.get("look") or 0.0
        return {**self.constant, **swept, "epsilon": level, "seed": cell.seed, "look": look}

    def key_of(self, cell: Cell) -> str:
        """32 hex digits, equal for cells of any sweep that are the same fit of the same records,
        however it is run.

        Stores keep it: it must not change for fits that were possible before. A list that is added
        later may enter it only where it has a value other than the default. What a rule or a
        model's advice chooses has another key than the same value written out, because another
        version may choose otherwise.
        """
        settings = {
            name: value for name, value in self.settings_of(cell).items() if name not in _SPEED_ONLY
        }
        look = settings.pop("look")
        if isinstance(look, Look):
            settings["look"] = self._known("look", lambda: scales_to_dict(look.scales()))
        usual = {**_LEFT_OUT, "relation": LAWS[settings["sampler"]].relations[0]}
        for name, value in _LEFT_OUT.items():
            if name in settings and settings[name] in (value, usual[name]):
                del settings[name]
        if cell.method != DP:
            settings["epsilon"] = None
        facts = {
            "model": self._known(("model", cell.model), lambda: _identity(self.models[cell.model])),
            "records": self.fingerprint_of(cell),
            "method": cell.method,
            "settings": settings,
            "repetition": cell.repetition,
        }
        if references := self.records_of(
            cell
        ).references:  # of which the records' fingerprint is independent
            facts["references"] = references
        return hashlib.blake2b(
            json.dumps(facts, sort_keys=True, default=repr).encode(), digest_size=16
        ).hexdigest()

    def with_shared_scales(self, spec: FitSpec) -> FitSpec:
        """The fit with the model and the records of the first one that a look has scaled alike, so
        that they are stepped together.
        """
        if spec.declared is None:
            return spec
        name = "scaled", id(spec.declared.model), id(spec.declared.source), spec.leaves_out
        first: FitSpec = self._known(name, lambda: spec)
        shared = ("model", "source", "data", "constants")
        return dataclasses.replace(spec, **{field: getattr(first, field) for field in shared})

    def _known(self, name: Hashable, find: Callable[[], Any]) -> Any:
        if name not in self._identities:
            self._identities[name] = find()
        return self._identities[name]


def _identity(model: Model) -> list[Any]:
    """What distinguishes a model from another of the same name: its options and its source."""
    is_function = isinstance(model, FunctionModel)  # whose options do not tell what it closes over
    sources = [
        _source(function, with_closure=is_function or not model.options)
        for function in (model.model, model.guide)
    ]
    if is_function:
        sources += map(_content, _globals_of(model.model))
    digest = hashlib.blake2b("\0".join(sources).encode(), digest_size=16).hexdigest()
    return [
        model.name,
        {name: repr(value) for name, value in sorted(model.options.items())},
        digest,
    ]


def _source(function: Any, *, with_closure: bool) -> str:
    """What a function does, as text: its source, or its code if there is none.

    :param with_closure: add what it closes over, which options do not tell apart.
    """
    if isinstance(function, functools.partial):
        bound = [
            _content(value)
            for value in (*function.args, *itertools.chain(*sorted(function.keywords.items())))
        ]
        return "\0".join([_source(function.func, with_closure=with_closure), *bound])
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = repr(type(function)) if code is None else _code(code)
    cells = (getattr(function, "__closure__", None) or ()) if with_closure else ()
    return "\0".join([text, *(_content(cell.cell_contents) for cell in cells)])


def _globals_of(function: Callable) -> list[Any]:
    """What a function reads besides its arguments, modules aside: globals such as a notebook's, and
    a method's object.
    """
    if isinstance(function, functools.partial):
        return _globals_of(function.func)
    if inspect.ismethod(function):
        return [*vars(function.__self__).items(), *_globals_of(function.__func__)]
    codes, names = [getattr(function, "__code__", None)], list[str]()
    while codes:
        code = codes.pop()
        codes += [
            constant
            for constant in getattr(code, "co_consts", ())
            if isinstance(constant, types.CodeType)
        ]
        names += getattr(code, "co_names", ())
    values = getattr(function, "__globals__", {})
    return [
        values[name]
        for name in dict.fromkeys(names)
        if name in values and not inspect.ismodule(values[name])
    ]


def _code(code: types.CodeType) -> str:
    consts = [
        _code(constant) if isinstance(constant, types.CodeType) else constant
        for constant in code.co_consts
    ]
    return code.co_code.hex() + repr(tuple(consts))


def _content(value: object) -> str:
    """A value as text that is the same in all processes."""
    if callable(value):
        return _source(value, with_closure=False)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        array = np.asarray(value)
        digest = hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()
        return f"{array.dtype}{array.shape}{digest}"
    text = repr(value)
    return repr(type(value)) if f"{id(value):x}" in text else text
