"""What a sweep runs: a grid of settings, one cell a fit, with an identity by which a finished fit is known again."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench import _validate
from workbench.data import Dataset
from workbench.data import load as load_data
from workbench.inference.estimators import ESTIMATORS
from workbench.ledger.fingerprint import fingerprint
from workbench.models import Model
from workbench.models import get as get_model
from workbench.privacy.accounting import MAX_EPSILON
from workbench.privacy.steps import SAMPLERS

__all__ = ["BASELINES", "METHODS", "MOST_FITS", "Cell", "Grid"]

DP, NON_PRIVATE, POOLED = METHODS = ("dp-vi", "non-private", "scikit-learn")
BASELINES = {
    NON_PRIVATE: "the same steps with neither clipping nor noise",
    POOLED: "scikit-learn's logistic regression on all records, groups ignored",
}

MOST_FITS = 20_000  # of a sweep: planning takes some milliseconds each

_SPEED_ONLY = ("strategy", "physical_size", "device")

Source = str | Dataset | Callable[..., Dataset]


@dataclass(frozen=True)
class Cell:
    """One fit of a sweep, as asked for; None where ``workbench.fitting.defaults`` chooses.

    :param model: place in ``Grid.models``. :param method: of ``METHODS``. :param epsilon: infinite for baselines.
    :param seed: of the fit, and of made-up data; None for secret randomness.
    :param repetition: number of the fit among those that differ in nothing else, from 0.
    """

    model: int
    method: str
    epsilon: float
    seed: int | None
    repetition: int
    iterations: int | None = None
    num_records: int | None = None
    sampler: str = "poisson"
    clip: float | None = None
    learning_rate: float | None = None
    sampling_rate: float | None = None
    batch_size: int | None = None
    gradient: str = "aligned"


@dataclass
class Grid:
    """The cells of a sweep and where their records come from. Every axis holds one value or more.

    :param models: workbench models. :param data: a name, a ``Dataset``, or a function that makes up records:
        ``data(seed=)``, and ``num_records=`` where that is swept, such as ``workbench.data.hierarchical``.
    :param seeds: how many fits with secret randomness a cell is repeated, or their seeds, which anyone can repeat.
    :param constant: settings of ``workbench.fit`` that all cells share.
    :param key: of private records' fingerprints; None for the user's own.
    """

    models: Sequence[Model]
    data: Source
    epsilons: Sequence[float]
    seeds: int | Sequence[int] = 1
    iterations: Sequence[int | None] = (None,)
    num_records: Sequence[int | None] = (None,)
    samplers: Sequence[str] = ("poisson",)
    clips: Sequence[float | None] = (None,)
    learning_rates: Sequence[float | None] = (None,)
    sampling_rates: Sequence[float | None] = (None,)
    batch_sizes: Sequence[int | None] = (None,)
    gradients: Sequence[str] = ("aligned",)
    baselines: Sequence[str] = ()
    constant: Mapping[str, Any] = field(default_factory=dict)
    key: bytes | None = field(default=None, repr=False)
    _sets: dict[tuple[int | None, int | None], Dataset] = field(default_factory=dict, repr=False)
    _identities: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check every axis.

        :raises ArgumentError: naming the argument and its value.
        """
        if isinstance(self.seeds, (str, bytes)) or (not isinstance(self.seeds, int) and not _is_list(self.seeds)):
            raise _validate.ArgumentError("seeds", self.seeds, "must be a number of repetitions, or a list of seeds.")
        if isinstance(self.seeds, int):
            self.seeds = _validate.integer("seeds", self.seeds, at_least=1, at_most=MOST_FITS)
        else:
            self.seeds = self._axis("seeds", lambda name, value: _validate.integer(name, value, at_least=0))
        self.models = self._axis("models", lambda name, value: get_model(value) if isinstance(value, str) else _model(value))
        self.epsilons = self._axis(
            "epsilons", lambda name, value: _validate.number(name, value, above=0, at_most=MAX_EPSILON)
        )
        whole = lambda least: lambda name, value: _validate.integer(name, value, at_least=least, at_most=2**31 - 1)  # noqa: E731
        positive = lambda name, value: _validate.number(name, value, above=0)  # noqa: E731
        self.iterations = self._axis("iterations", whole(1), optional=True)
        self.num_records = self._axis("num_records", whole(2), optional=True)
        self.samplers = self._axis("samplers", lambda name, value: _validate.choice(name, value, SAMPLERS))
        self.clips = self._axis("clips", positive, optional=True)
        self.learning_rates = self._axis("learning_rates", positive, optional=True)
        self.sampling_rates = self._axis(
            "sampling_rates", lambda name, value: _validate.number(name, value, above=0, at_most=1), optional=True
        )
        self.batch_sizes = self._axis("batch_sizes", whole(1), optional=True)
        self.gradients = self._axis("gradients", lambda name, value: _validate.choice(name, value, ESTIMATORS))
        self.baselines = self._axis(
            "baselines", lambda name, value: _validate.choice(name, value, BASELINES), may_be_empty=True
        )
        if self.number > MOST_FITS:
            raise _validate.ArgumentError(
                "seeds", self.seeds, f"the lists make {self.number:,} fits; a sweep has at most {MOST_FITS:,}."
            )
        if self.batch_sizes != (None,) and self.sampling_rates != (None,):
            raise _validate.ArgumentError("batch_sizes", self.batch_sizes, "give either it or sampling_rates.")
        if not (isinstance(self.data, (str, Dataset)) or callable(self.data)):
            raise _validate.ArgumentError(
                "data", type(self.data).__name__, "must be a name, a workbench.data.Dataset or a function that makes one."
            )
        flags = {name: self.constant.get(name) for name in ("evaluate_private", "average")}
        checked = {name: _validate.flag(name, value) for name, value in flags.items() if value is not None}
        self.constant = {**self.constant, **checked}
        if isinstance(self.data, str):
            self.data = load_data(self.data)
        if not self.is_public and not isinstance(self.seeds, int):
            raise _validate.ArgumentError(
                "seeds", self.seeds, "fits with known seeds share noise that anyone can take off again: on private records "
                "give the number of repetitions instead, and each fit gets secret randomness of its own."
            )  # fmt: skip
        if self.baselines and not (self._sample.evaluation_is_public or self.constant.get("evaluate_private")):
            raise _validate.ArgumentError(
                "baselines", self.baselines, "are scores on private evaluation records, outside any guarantee: "
                "evaluate_private=True asks for these.",
            )  # fmt: skip
        if not self.is_public and self.num_records != (None,):
            raise _validate.ArgumentError(
                "num_records", self.num_records, "only public or made-up records are cut to a size: which records a part "
                "of private ones holds would depend on the others, which no guarantee here covers."
            )  # fmt: skip

    @property
    def number(self) -> int:
        """How many cells there are, without making them."""
        repeated = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        axes = [
            values for name, values in vars(self).items() if isinstance(values, tuple) and name not in ("seeds", "baselines")
        ]
        sizes = len(self.models) * len(self.num_records)
        return (
            repeated * math.prod(map(len, axes))
            + (NON_PRIVATE in self.baselines) * repeated * sizes * len(self.iterations)
            + (POOLED in self.baselines) * sizes * (repeated if callable(self.data) else 1)
        )

    def _axis(
        self, name: str, check: Callable[[str, Any], Any], *, optional: bool = False, may_be_empty: bool = False
    ) -> tuple[Any, ...]:
        """The values of an axis, checked and without repetitions; a single value is a list of one."""
        given = getattr(self, name)
        values = tuple(itertools.islice(given, MOST_FITS + 1)) if _is_list(given) else (given,)
        if len(values) > MOST_FITS:
            raise _validate.ArgumentError(
                name, type(given).__name__, f"holds more than {MOST_FITS:,} values, the most of a sweep."
            )
        if not values and not may_be_empty:
            raise _validate.ArgumentError(name, given, "is empty: a sweep needs one value at least.")
        checked = (None if value is None and optional else check(name, value) for value in values)
        return tuple({id(value) if isinstance(value, Model) else value: value for value in checked}.values())

    @property
    def is_public(self) -> bool:
        """Whether the records are public or made up, so that no privacy is spent."""
        return self._sample.is_public

    @property
    def _sample(self) -> Dataset:
        """The records of some cell, which tell what is public of all."""
        if isinstance(self.data, Dataset):
            return self.data
        return self.dataset(0 if isinstance(self.seeds, int) else self.seeds[0], self.num_records[0])

    def dataset(self, seed: int | None, num_records: int | None) -> Dataset:
        """The records of a cell.

        :raises ArgumentError: naming what of them cannot be had.
        """
        if isinstance(self.data, Dataset):
            seed = None  # the same for all
        place = seed, num_records
        if place not in self._sets:
            self._sets[place] = self._made(seed, num_records)
        return self._sets[place]

    def _made(self, seed: int | None, num_records: int | None) -> Dataset:
        if isinstance(self.data, Dataset):
            return self.data if num_records is None else self.data.subset(num_records)
        size = {} if num_records is None else {"num_records": num_records}
        try:
            made = self.data(seed=seed, **size)  # type: ignore[operator]
        except TypeError as error:
            raise _validate.ArgumentError(
                "data", getattr(self.data, "__name__", repr(self.data)), f"must take seed= and num_records=: {error}."
            ) from None
        if not isinstance(made, Dataset) or not made.is_public:
            raise _validate.ArgumentError(
                "data", getattr(self.data, "__name__", repr(self.data)),
                "a function must make up records: give private ones as a Dataset.",
            )  # fmt: skip
        return made

    @property
    def varying(self) -> tuple[str, ...]:
        """Columns of the table for the axes with several values, epsilon and randomness apart."""
        columns = {
            "model": self.models, "sampler": self.samplers, "gradient": self.gradients, "num_records": self.num_records,
            "iterations": self.iterations, "clip": self.clips, "learning_rate": self.learning_rates,
            "sampling_rate": [*self.sampling_rates, *self.batch_sizes][1:],
        }  # fmt: skip
        return tuple(name for name, values in columns.items() if len(values) > 1)

    def cells(self) -> list[Cell]:
        """All cells, baselines last."""
        if isinstance(self.seeds, int):
            # made-up records need a public seed; that of the noise stays secret
            repeated: list[tuple[int | None, int]] = [(None, number) for number in range(self.seeds)]
        else:
            repeated = [(seed, 0) for seed in self.seeds]
        # those that differ in epsilon alone stand beside one another, so that a figure fills evenly
        axes: dict[str, Sequence[Any]] = {
            "model": range(len(self.models)), "iterations": self.iterations, "num_records": self.num_records,
            "sampler": self.samplers, "clip": self.clips, "learning_rate": self.learning_rates,
            "sampling_rate": self.sampling_rates, "batch_size": self.batch_sizes, "gradient": self.gradients,
            "repeated": repeated, "epsilon": self.epsilons,
        }  # fmt: skip
        found = []
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            seed, number = chosen.pop("repeated")
            found.append(Cell(method=DP, seed=seed, repetition=number, **chosen))
        if NON_PRIVATE in self.baselines:
            found += [
                Cell(model, NON_PRIVATE, math.inf, seed, number, steps, size)
                for model, steps, size, (seed, number) in itertools.product(
                    range(len(self.models)), self.iterations, self.num_records, repeated
                )
            ]
        if POOLED in self.baselines:
            data_differs = not isinstance(self.data, Dataset)
            found += [
                Cell(model, POOLED, math.inf, seed, number, None, size)
                for model, size, (seed, number) in itertools.product(
                    range(len(self.models)), self.num_records, repeated if data_differs else repeated[:1]
                )
            ]
        return found

    def data_seed(self, cell: Cell) -> int:
        """The public seed of made-up records for a cell."""
        return cell.repetition if cell.seed is None else cell.seed

    def records_of(self, cell: Cell) -> Dataset:
        """The records of a cell, before the model picks its arrays."""
        return self.dataset(self.data_seed(cell), cell.num_records)

    def fingerprint_of(self, cell: Cell) -> str:
        """By which the records are known again."""
        dataset = self.records_of(cell)
        return self._known(("data", id(dataset)), lambda: fingerprint(dataset, self.key))

    def levels_of(self, cell: Cell) -> list[float]:
        """The epsilons whose settings a cell may take: a baseline those of any, the largest first."""
        return sorted(self.epsilons, reverse=True) if math.isinf(cell.epsilon) else [cell.epsilon]

    def settings_of(self, cell: Cell, epsilon: float | None = None) -> dict[str, Any]:
        """Keyword arguments of ``workbench.fit`` for a cell, at the first of ``levels_of`` or another of them."""
        given = {
            "epsilon": self.levels_of(cell)[0] if epsilon is None else epsilon,
            "iterations": cell.iterations, "sampler": cell.sampler, "clip": cell.clip,
            "learning_rate": cell.learning_rate, "sampling_rate": cell.sampling_rate, "batch_size": cell.batch_size,
            "gradient": cell.gradient, "seed": cell.seed,
        }  # fmt: skip
        return {**self.constant, **given}

    def key_of(self, cell: Cell) -> str:
        """32 hex digits, equal for cells of any sweep that are the same fit of the same records, however it is run."""
        settings = {name: value for name, value in self.settings_of(cell).items() if name not in _SPEED_ONLY}
        if cell.method != DP:
            settings["epsilon"] = None
        facts = {
            "model": self._known(("model", cell.model), lambda: _identity(self.models[cell.model])),
            "records": self.fingerprint_of(cell),
            "method": cell.method,
            "settings": settings,
            "repetition": cell.repetition,
        }
        return hashlib.blake2b(json.dumps(facts, sort_keys=True, default=repr).encode(), digest_size=16).hexdigest()

    def _known(self, name: Any, find: Callable[[], Any]) -> Any:
        if name not in self._identities:
            self._identities[name] = find()
        return self._identities[name]


def _is_list(value: Any) -> bool:
    is_scalar = getattr(value, "ndim", 1) == 0  # an array of no axes cannot be iterated over
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, Dataset)) and not is_scalar


def _model(value: Any) -> Model:
    if not isinstance(value, Model):
        raise _validate.ArgumentError("models", value, "must be names or workbench.models.Model objects.")
    return value


def _identity(model: Model) -> list[Any]:
    """What tells a model from another one of the same name: its options and its source."""
    sources = []
    for function in (model.model, model.guide):
        try:
            sources.append(inspect.getsource(function))  # type: ignore[arg-type]
        except (OSError, TypeError):
            code = getattr(function, "__code__", None)
            sources.append(repr(type(function)) if code is None else code.co_code.hex() + repr(code.co_consts))
    digest = hashlib.blake2b("\0".join(sources).encode(), digest_size=16).hexdigest()
    return [model.name, {name: repr(value) for name, value in sorted(model.options.items())}, digest]
