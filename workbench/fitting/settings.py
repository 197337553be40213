"""The settings of a fit, each in one place: the table that functions, commands, plans and screens
are made from.

A setting is a field of ``Settings``, or of ``Shared`` if all fits of a sweep have the same value.
Its type and default are the field's, the rest is a ``Setting``. From this table come the signatures
and help of ``fit``, ``prepare`` and ``sweep`` (``takes``), the options of ``workbench fit``, the
names in a sweep's plan, and the checks behind the fields of the screen. To add a setting, add a
field here and read it from ``FitSpec.settings`` where it is used.

The command line reads this module before JAX and NumPy are imported, so checks import what they
need when they run.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, get_type_hints

from workbench import _validate
from workbench._limits import LARGEST_CLIP, MAX_EPSILON, MOST_RECORDS, MOST_STEPS, SMALLEST_CLIP

__all__ = [
    "AUTO",
    "FormulaSettings",
    "LedgerSettings",
    "Noted",
    "RunSettings",
    "Setting",
    "Settings",
    "Shared",
    "TableSettings",
    "about",
    "check_all",
    "check_relation",
    "default_of",
    "described",
    "documented",
    "names",
    "problems_of",
    "setting",
    "takes",
]

# of an argument's name and its value; returns the value as it is used
Check = Callable[[str, Any], Any]

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

AUTO = "auto"  # the value of ``clip`` with which a run chooses C itself
_MOST_DRAWS = 1_000_000  # from the posterior, each as large as all global latents
_WORDS = {
    "above": "greater than",
    "at_least": "at least",
    "below": "less than",
    "at_most": "at most",
}
_LARGE = 10**6  # a limit that help need not mention


@dataclass(frozen=True)
class Setting:
    """What the table says about a setting besides its type and default.

    :param help: what it is, as a phrase without a full stop.
    :param check: returns a value as it is used, or raises ``ArgumentError``. It is not asked about
        None where that is the default.
    :param otherwise: what is used where the value is left out, in words.
    :param unit: of the value.
    :param symbol: by which formulas call it.
    :param changes_guarantee: whether the privacy guarantee depends on it; all others change at most
        the result.
    :param is_text: whether the value can be written down, on the command line or in a file.
    :param values_of: the setting of a fit of which this is a list of values, for a sweep.
    """

    help: str
    check: Check | None = None
    otherwise: str = ""
    unit: str = ""
    symbol: str = ""
    changes_guarantee: bool = False
    is_text: bool = True
    values_of: str = ""

    @property
    def range(self) -> str:
        """The limits of a number in words, "" where there are none."""
        limits = getattr(self.check, "keywords", {})
        return " and ".join(
            f"{_WORDS[name]} {limit:g}" for name, limit in limits.items() if limit < _LARGE
        )

    def phrase(self, default: Any = None) -> str:
        """Help, range and default in one phrase. :param default: None or False where there is
        nothing to say about it.
        """
        phrases = [self.help, f"; {self.range}" if self.range else ""]
        words = self.otherwise if default is None or default is False else str(default)
        return "".join([*phrases, f" (default: {words})" if words else ""])


def setting(default: Any, help: str, check: Check | None = None, **facts: Any) -> Any:
    """A field with a default; one that must be given is ``field(metadata=described(...))``, which
    mypy understands.
    """
    return field(default=default, metadata=described(help, check, **facts))


def described(help: str, check: Check | None = None, **facts: Any) -> dict[str, Setting]:
    """The metadata of a field; the arguments are those of ``Setting``."""
    return {"setting": Setting(help, check, **facts)}


# ---- checks --------------------------------------------------------------------------------------


_number = functools.partial(functools.partial, _validate.number)  # with limits
_integer = functools.partial(functools.partial, _validate.integer)
_fraction = _number(at_least=0, below=1)


def _imported(reference: str) -> Any:
    """The object called ``module:name`` in the workbench."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"workbench.{module}"), name)


def _one_of(reference: str) -> Check:
    return lambda name, value: _validate.choice(name, value, _imported(reference))


def _accepted_by(reference: str) -> Callable[..., Any]:
    """The value itself, if a function of name and value, and of limits, raises nothing."""
    return lambda name, value, **limits: (_imported(reference)(name, value, **limits), value)[1]


def _clip(name: str, value: float | str, **limits: float) -> Any:
    if isinstance(value, str):
        return _validate.choice(name, value, [AUTO])
    return _validate.number(name, value, **limits)


def _strategy(name: str, value: str) -> str:
    _imported("clipping.clipped_sums:check_clipping")("flat", value)
    return str(value)


def check_relation(relation: str | None, sampler: str) -> None:
    """:raises ArgumentError: naming ``relation``, if the sampler has no guarantee under it."""
    if relation is not None:
        _validate.choice("relation", relation, _imported("privacy.steps:LAWS")[sampler].relations)


# ---- the table -----------------------------------------------------------------------------------


class Noted:
    """A dataclass that notes which of its arguments the caller wrote out, in ``given``."""

    given: ClassVar[frozenset[str]]

    def __new__(cls, *positional: Any, **named: Any) -> Self:
        """Note which arguments are given."""
        self = super().__new__(cls)
        table: Any = cls
        by_place = [entry.name for entry in fields(table) if not entry.kw_only]
        vars(self)["given"] = frozenset([*by_place[: len(positional)], *named])
        return self

    def passed_to(self, table: Callable[..., Any]) -> dict[str, Any]:
        """The given arguments that ``table`` has too."""
        typed: Any = table
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(typed)
            if entry.name in self.given
        }


@dataclass(frozen=True, kw_only=True)
class Shared(Noted):
    """Settings that are the same for all fits of a sweep."""

    delta: float | None = setting(
        None,
        "allowance for outcomes that reveal more than a factor of e^epsilon",
        _number(above=0, below=1),
        otherwise="the largest power of ten below 1/N",
        unit="probability",
        changes_guarantee=True,
    )
    relation: str | None = setting(
        None,
        "neighbouring relation of the guarantee: add_or_remove_one (poisson and "
        "random_allocation), replace_one (without_replacement and shuffle) or replace_special "
        "(shuffle only)",
        _one_of("privacy.steps:SENSITIVITY"),
        otherwise="the sampler's",
        changes_guarantee=True,
    )
    clipping: str = setting(
        "flat",
        "how a record's gradient is limited to norm C: flat scales longer gradients down to C, "
        "automatic scales all to nearly C, per_leaf scales each parameter's part down to its "
        "share of C",
        _one_of("noise.mechanism:CLIPPINGS"),
        changes_guarantee=True,
    )
    average: bool | None = setting(
        None,
        "return the mean of the iterates of the run's second half instead of the last one; costs "
        "no privacy",
        _validate.flag,
        otherwise="the model's advice, else yes",
    )
    strategy: str = setting(
        "auto",
        "how clipped sums are computed: auto, bookkeeping, vmap or loop; the last also covers a "
        "deleted row",
        _strategy,
    )
    microbatch_size: int | None = setting(
        None,
        "records held in memory at once; larger minibatches are summed in parts",
        _integer(at_least=1),
        unit="records",
        otherwise="a size that minibatches rarely exceed",
    )
    evaluate_private: bool = setting(
        False,
        "also compute metrics on private evaluation records, outside the guarantee",
        _validate.flag,
    )
    covered_scores: bool = setting(
        False,
        "release scores of private evaluation records through noise at the end, at no more epsilon",
        _validate.flag,
    )
    look: Any = setting(
        None,
        "share of the budget for noised counts of the columns, from which their scales are learned "
        "or a ``mixed_table``'s marginals; a ``Look`` at them, which is not paid for again; or 0",
        functools.partial(
            _accepted_by("fitting.learned_scales:check_look"), at_least=0, at_most=0.5
        ),
        otherwise="of a formula, and of a gallery model on your own table, what shows their outer "
        "twentieths, 0.02 to 0.15, or 0; of a ``mixed_table`` that chooses marginals 0.05 to 0.33",
        changes_guarantee=True,
    )
    device: Any = setting(
        None,
        "where to run: cpu, gpu or gpu:1",
        _accepted_by("fitting.devices:device_named"),
        otherwise="JAX's first device",
    )

    def __post_init__(self) -> None:
        """Check every value.

        :raises ArgumentError: naming the argument and its value.
        """
        check_all(self)


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of one fit. None stands for a value that is left out: ``resolve`` chooses it if
    it has a default rule.
    """

    epsilon: float = field(
        metadata=described(
            "privacy loss of the whole run",
            functools.partial(_validate.epsilon, above=0, at_most=MAX_EPSILON),
            changes_guarantee=True,
        )
    )
    iterations: int | None = setting(
        None,
        "number of planned steps T; the noise is calibrated to all of them",
        _integer(at_least=1, at_most=MOST_STEPS),
        otherwise="the model's advice, else 100 times the cube root of N",
        unit="steps",
        symbol="T",
        changes_guarantee=True,
    )
    sampling_rate: float | None = setting(
        None,
        "probability q with which a record enters a step",
        _number(above=0, at_most=1),
        otherwise="the model's advice, else 0.1, or less so that the expected minibatch is at most "
        "1000 records",
        unit="probability",
        symbol="q",
        changes_guarantee=True,
    )
    batch_size: int | None = setting(
        None,
        "records in a minibatch, on average where it is random, instead of the sampling rate",
        _integer(at_least=1),
        unit="records",
        symbol="B",
        changes_guarantee=True,
    )
    sampler: str = setting(
        "poisson",
        "how minibatches are drawn: poisson, without_replacement, shuffle or random_allocation",
        _one_of("privacy.steps:LAWS"),
        changes_guarantee=True,
    )
    clip: float | str | None = setting(
        None,
        "clipping norm C, the largest norm of one record's gradient; or auto, which adapts C early",
        functools.partial(_clip, at_least=SMALLEST_CLIP, at_most=LARGEST_CLIP),
        otherwise="the model's advice, which may be auto, else 1",
        symbol="C",
        changes_guarantee=True,
    )
    num_records: int | None = setting(
        None,
        "a public upper bound N on the number of training records",
        _integer(at_least=2, at_most=MOST_RECORDS),
        unit="records",
        otherwise="the exact number",
        symbol="N",
        changes_guarantee=True,
    )
    seed: int | None = setting(
        None,
        "seed of a reproducible run, whose noise can be predicted by anyone who knows it",
        _validate.seed,
        otherwise="secret randomness",
        changes_guarantee=True,
    )
    estimator: str | None = setting(
        None,
        "aligned or vanilla (for comparison): steps; statistics: sums, once",
        _one_of("fitting.one_shot:ESTIMATORS"),
        otherwise="statistics for a linear regression with little noise when no step settings are "
        "given, else aligned",
    )
    learning_rate: float | None = setting(
        None,
        "learning rate of Adam",
        _number(above=0),
        otherwise="the model's advice, else 1 / sqrt(T)",
    )
    optimizer: Any = setting(
        None,
        "optimiser of numpyro.optim or optax",
        _accepted_by("inference._optimizers:check_optimizer"),
        otherwise="Adam",
        is_text=False,
    )
    devices: Any = setting(
        None,
        "devices among which the records are spread: a number, all, or a list of names",
        _accepted_by("fitting.devices:check_devices"),
        otherwise="one device",
    )
    draws: int = setting(
        1000,
        "number of posterior draws to keep",
        _integer(at_least=2, at_most=_MOST_DRAWS),
        unit="draws",
    )

    def __post_init__(self) -> None:
        """Check every value, and those that exclude each other.

        :raises ArgumentError: naming the argument and its value.
        """
        super().__post_init__()
        check_relation(self.relation, self.sampler)
        if self.optimizer is not None and self.learning_rate is not None:
            raise _validate.ArgumentError(
                "learning_rate",
                self.learning_rate,
                "applies only to the built-in Adam; set the learning rate in your own optimiser.",
            )


@dataclass(frozen=True, kw_only=True)
class LedgerSettings:
    """Where fits on private records are recorded."""

    ledger: Any = setting(
        None,
        "ledger in which fits on private records are recorded: a path or a ``Ledger``, or False "
        "for none",
        otherwise="your own",
    )
    over_cap: str | None = setting(
        None,
        "reason to exceed the cap on what may be spent on the records; the ledger keeps it",
        _validate.reason,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class TableSettings:
    """What a formula and a table need besides family and schema."""

    link: str | None = setting(
        None, "of a formula: the link of the mean", otherwise="the family's first"
    )
    priors: Any = setting(
        None,
        "of a formula: priors by name, such as {'age': 'Normal(0, 2)'}",
        otherwise="from declared bounds",
    )
    trials: str | None = setting(None, "of a formula: the column with the number of trials")
    exposure: str | None = setting(None, "of a formula: the column with the exposure")
    observed: str | None = setting(
        None, "of a formula: the column that is 1 where the event was seen, 0 where it was censored"
    )
    unit_id: Any = setting(None, "of a table: the column that says whose row it is")
    max_rows: int | None = setting(None, "of a table: how many rows of a unit are used at most")
    unit_mean: bool | None = setting(
        None, "of a table: True gives all rows of a unit a total weight of 1", _validate.flag
    )
    missing: Any = setting(
        None,
        "of a table: what happens to rows with a missing value: refuse, drop, middle, indicator, "
        "or public values by column",
    )
    evaluation: Any = setting(
        None, "of a table: a table of evaluation records, instead of a share of the rows"
    )
    evaluation_fraction: float | None = setting(
        None,
        "of a table: the share of rows that are held out as evaluation records",
        _fraction,
        otherwise="0.2 where they are public or scored on request, else 0",
    )
    split_seed: int | None = setting(
        None, "of a table: the public seed by which rows are held out", otherwise="0"
    )
    evaluation_is_public: bool | None = setting(
        None, "of a table: True declares the evaluation records public", _validate.flag
    )
    unit: str | None = setting(
        None, "of a table: what one row is, or with unit_id one unit", otherwise="training record"
    )
    name: str | None = setting(
        None, "of a table: its name in results and in the ledger", otherwise="data frame"
    )


@dataclass(frozen=True, kw_only=True)
class FormulaSettings(TableSettings):
    """What a formula and a table need besides a fit's settings."""

    family: Any = setting(
        None,
        "of a formula: the family of the response, such as bernoulli or poisson",
        otherwise="by its type: bernoulli for yes or no, categorical for levels, else gaussian",
    )
    schema: Any = setting(
        None, "of a formula: the declaration of its columns, the response among them"
    )

    def given_of(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Those that are not None."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run keeps of itself, and who follows it."""

    checkpoint: bool | str | Path = setting(
        True,
        "write checkpoints for ``workbench.resume``: True for the workbench's own folder, "
        "another folder, or False",
    )
    on_snapshot: Callable[[Any], None] | None = setting(
        None, "called with every ``Snapshot``", _validate.function
    )
    stop: Callable[[], bool] = setting(
        lambda: False,
        "called between chunks of steps; True ends the run and keeps the partial result",
        _validate.function,
    )
    progress: bool | None = setting(
        None,
        "show a line that follows the fit",
        _validate.flag,
        otherwise="in a notebook yes, elsewhere no",
    )


# ---- what is made from it ------------------------------------------------------------------------


def names(table: type = Settings) -> tuple[str, ...]:
    """The names of a table's settings: the required first, then those that change the guarantee."""

    def rank(entry: Field[Any]) -> tuple[bool, bool]:
        return entry.default is not MISSING, not _about(entry).changes_guarantee

    return tuple(entry.name for entry in sorted(fields(table), key=rank))


def about(name: str, table: type = Settings) -> Setting:
    """What ``table`` says about a setting."""
    return _about(_field(name, table))


def default_of(name: str, table: type = Settings) -> Any:
    """The default of a setting; ``dataclasses.MISSING`` where it must be given."""
    return _field(name, table).default


def problems_of(values: Mapping[str, Any]) -> dict[str, str]:
    """``{setting: what is wrong with it}`` of some values, as far as is known without model and
    data.
    """
    problems = {}
    for name, value in values.items():
        check = about(name).check
        if check is not None and not (value is None and default_of(name) is None):
            try:
                check(name, value)
            except _validate.ArgumentError as error:
                problems[name] = error.expectation
    if "relation" in values and not {"relation", "sampler"} & problems.keys():
        try:
            check_relation(values["relation"], values.get("sampler", default_of("sampler")))
        except _validate.ArgumentError as error:
            problems["relation"] = error.expectation
    return problems


def check_all(table: Any) -> None:
    """Check every value of a new, frozen table of settings, and give it the form in which it is
    used.

    :raises ArgumentError: naming the argument and its value.
    """
    for entry in fields(table):
        check, value = _about(entry).check, getattr(table, entry.name)
        if check is not None and not (value is None and entry.default is None):
            object.__setattr__(table, entry.name, check(entry.name, value))


def takes(arguments: Callable[P, S]) -> Callable[[Callable[[S], R]], Callable[P, R]]:
    """Make a function of ``arguments``, a dataclass of settings, one that takes its fields as
    arguments.

    Its signature and the ``:param:`` lines of its docstring are those of the fields. Type checkers
    see the same signature, because they take it from the dataclass.
    """

    def decorate(function: Callable[[S], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*positional: P.args, **named: P.kwargs) -> R:
            if unknown := sorted(named.keys() - signature.parameters.keys()):
                raise _unknown(unknown[0], named[unknown[0]], table)
            try:
                signature.bind(*positional, **named)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(arguments(*positional, **named))

        table: Any = arguments
        parameters, types = inspect.signature(arguments).parameters, get_type_hints(table)
        shown = [parameters[name].replace(annotation=types[name]) for name in names(table)]
        # stable: what may be given by place comes first
        shown.sort(key=lambda parameter: parameter.kind)
        returned = get_type_hints(function)["return"]
        signature = inspect.Signature(shown, return_annotation=returned)
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {argument.name: argument.annotation for argument in shown} | {
            "return": returned
        }
        lines = [documented(argument.name, table) for argument in shown]
        call.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), *lines])
        return call

    return decorate


def _unknown(name: str, value: Any, table: Any) -> _validate.ArgumentError:
    """The error for an argument that a function does not have, which says in which group it is."""
    is_listed = any(_about(entry).values_of == name for entry in fields(table))
    for entry in fields(table) if not is_listed else ():
        if is_dataclass(group := entry.default) and name in [inner.name for inner in fields(group)]:
            advice = f"{entry.name}=wb.{type(group).__name__}({name}=...)"
            return _validate.ArgumentError(
                name, value, f"belongs to a group of settings: give {advice}.", code="group"
            )
    return _validate.unknown_name("settings", name, names(table))


def documented(name: str, table: type) -> str:
    """The ``:param:`` line of a setting."""
    default = default_of(name, table)
    phrase = about(name, table).phrase(
        default if isinstance(default, (int, str)) and default is not True else None
    )
    text = f":param {name}: {phrase[:1].upper()}{phrase[1:]}."
    return textwrap.fill(text, 100, subsequent_indent="    ", break_on_hyphens=False)


def _field(name: str, table: type) -> Field[Any]:
    return next(entry for entry in fields(table) if entry.name == name)


def _about(entry: Field[Any]) -> Setting:
    description: Setting = entry.metadata["setting"]
    return description
