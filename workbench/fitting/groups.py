"""Settings in groups, by what they change: what ``fit``, ``prepare`` and ``sweep`` take besides
what a screen shows.

A setting is declared in ``settings`` alone: ``of`` makes the field of a group from there, and type
checkers read its type here. Inside the workbench settings are flat; ``flattened`` and ``grouped``
go from one form to the other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.fitting.settings import (
    FormulaSettings,
    LedgerSettings,
    RunSettings,
    Settings,
    TableSettings,
    about,
    check_all,
    check_relation,
    documented,
    names,
)

if TYPE_CHECKING:
    from workbench.inference.training import Snapshot

__all__ = [
    "GROUPS",
    "Execution",
    "Group",
    "Privacy",
    "Table",
    "Training",
    "as_code",
    "flattened",
    "group_of",
    "grouped",
    "is_a",
    "of",
]

_TABLES: tuple[type, ...] = (Settings, LedgerSettings, RunSettings, FormulaSettings)
T = TypeVar("T")


def of(name: str, *tables: type) -> Any:
    """The field of a setting. :param tables: where it is declared; by default in ``settings``."""
    declared: Field[Any] = next(
        candidate
        for table in tables or _TABLES
        for candidate in fields(table)
        if candidate.name == name
    )
    return field(default=declared.default, metadata=declared.metadata)


class Group:
    """Some settings of a fit, frozen and checked."""

    title: ClassVar[str]

    @classmethod
    def help(cls) -> str:
        """What the group has, for the argument that takes it."""
        return (
            f"{cls.title}: {', '.join(setting.name for setting in _fields(cls))} "
            f"(``workbench.{cls.__name__}``)"
        )

    def __post_init__(self) -> None:
        """Check every value. :raises ArgumentError: naming the setting and its value."""
        check_all(self)

    def changed(self) -> dict[str, Any]:
        """The settings that are not at their default."""
        values = {
            setting.name: (getattr(self, setting.name), setting.default)
            for setting in _fields(type(self))
        }
        return {
            name: value for name, (value, default) in values.items() if not _same(value, default)
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"{type(self).__name__}({shown})"


def _fields(group: Any) -> tuple[Field[Any], ...]:
    return fields(group)


def _same(value: object, default: object) -> bool:
    return value is default or (
        type(value) is type(default) and isinstance(value, (bool, int, str)) and value == default
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Privacy(Group):
    """How minibatches are drawn, what is clipped, and what else the guarantee rests on.

    >>> privacy = wb.Privacy(sampler="shuffle", clipping="automatic")
    >>> prepared = wb.prepare("logistic", "breast_cancer", epsilon=1, privacy=privacy)
    >>> prepared.privacy.relation
    'replace_one'
    """

    title: ClassVar[str] = "privacy beyond epsilon, delta and C"

    sampler: str = of("sampler")
    relation: str | None = of("relation")
    clipping: str = of("clipping")
    num_records: int | None = of("num_records")
    evaluate_private: bool = of("evaluate_private")
    covered_scores: bool = of("covered_scores")
    look: Any = of("look")
    over_cap: str | None = of("over_cap")

    def __post_init__(self) -> None:
        """Check every value, and the relation with the sampler. :raises ArgumentError: naming the
        setting and its value.
        """
        super().__post_init__()
        check_relation(self.relation, self.sampler)


@dataclass(frozen=True, kw_only=True, repr=False)
class Training(Group):
    """How a fit follows the gradients, and what it returns; the guarantee is the same.

    >>> training = wb.Training(average=False, draws=50)
    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1, training=training)
    >>> len(result.draws["weights"])
    50
    """

    title: ClassVar[str] = "training and what it returns"

    estimator: str | None = of("estimator")
    optimizer: Any = of("optimizer")
    average: bool | None = of("average")
    draws: int = of("draws")


@dataclass(frozen=True, kw_only=True, repr=False)
class Execution(Group):
    """Where and how fast a fit runs, who follows it and what it keeps of itself; the result is the
    same up to rounding.

    >>> execution = wb.Execution(checkpoint=False, microbatch_size=32)
    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1, execution=execution)
    >>> result.status
    'done'
    """

    title: ClassVar[str] = "execution"

    device: Any = of("device")
    devices: Any = of("devices")
    strategy: str = of("strategy")
    microbatch_size: int | None = of("microbatch_size")
    checkpoint: bool | str | Path = of("checkpoint")
    on_snapshot: Callable[[Snapshot], None] | None = of("on_snapshot")
    stop: Callable[[], bool] = of("stop")
    progress: bool | None = of("progress")


@dataclass(frozen=True, kw_only=True, repr=False)
class Table(Group, TableSettings):
    """What a formula and a table need besides family and schema; ``wb.models.formula`` and
    ``from_frame`` say more.

    >>> frame = pd.DataFrame({"age": np.arange(80), "ill": [0, 1] * 40})
    >>> table = wb.Table(priors={"age": "Normal(0, 2)"})
    >>> schema = {"ill": bool, "age": (0, 120)}
    >>> formula = {"family": "bernoulli", "schema": schema, "table": table}
    >>> wb.fit("ill ~ age", frame, epsilon=1, **formula).status
    'done'
    """

    title: ClassVar[str] = "formula and table"


GROUPS: dict[str, type[Group]] = {
    "privacy": Privacy,
    "training": Training,
    "execution": Execution,
    "table": Table,
}
for _group in GROUPS.values():  # a decorator would hide the classes' signatures from editors
    _lines = [documented(setting, _group) for setting in names(_group)]
    _group.__doc__ = "\n".join([textwrap.dedent(_group.__doc__ or "").strip(), "", *_lines])
_GROUP_OF = {
    setting.name: argument for argument, group in GROUPS.items() for setting in _fields(group)
}


def group_of(name: str) -> str | None:
    """The argument whose group has a setting; None for one that is an argument itself."""
    return _GROUP_OF.get(name)


def is_a(group: type[T]) -> Callable[[str, Any], T]:
    """A check that a value is a group; a mapping, as plans of sweeps have it, is made one."""

    def check(name: str, value: Any) -> T:
        if isinstance(value, Mapping) and all(isinstance(entry, str) for entry in value):
            names = [entry.name for entry in _fields(group)]
            if unknown := [entry for entry in value if entry not in names]:
                raise _validate.unknown_name(name, unknown[0], names)
            return group(**value)
        if not isinstance(value, group):
            raise ArgumentError(
                name,
                value,
                f"must be a workbench.{group.__name__}, such as {group.__name__}({_first(group)}).",
            )
        return value

    return check


def _first(group: Any) -> str:
    first = next(setting for setting in _fields(group))
    return f"{first.name}={first.default!r}"


def grouped(
    settings: Mapping[str, Any] | None = None, /, direct: Collection[str] = (), **more: Any
) -> dict[str, Any]:
    """Flat settings as arguments of ``fit``, ``prepare`` and ``sweep``.

    :param direct: names that are arguments themselves, such as the lists of a sweep.
    """
    arguments: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in {**(settings or {}), **more}.items():
        argument = group_of(name)
        if argument is None or name in direct:
            arguments[name] = value
        else:
            groups.setdefault(argument, {})[name] = value
    return arguments | {argument: GROUPS[argument](**values) for argument, values in groups.items()}


def flattened(
    arguments: Any, table: Any, function: str, refused: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The arguments of a call as settings of ``table``, those of groups too where they are not at
    their default.

    :param arguments: a dataclass of settings and groups.
    :param refused: settings of ``table`` that ``function`` does not take, and why.
    :raises ArgumentError: naming a setting that ``function`` does not take.
    """
    flat = {
        name: value
        for name in arguments.given
        if not isinstance(value := getattr(arguments, name), Group)
    }
    lists = {about(entry.name, table).values_of: entry.name for entry in fields(table)}
    direct = {entry.name for entry in fields(arguments)}
    taken = {entry.name for entry in fields(table)} - direct
    for argument in [entry for entry in GROUPS if entry in direct]:
        for name, value in getattr(arguments, argument).changed().items():
            if name not in taken:
                hint = f": give {lists[name]}=" if name in lists else ""
                raise ArgumentError(
                    name, value, f"is not taken from {argument}= by {function}{hint}."
                )
            flat[name] = value
    for name in refused:
        if name in flat:
            raise ArgumentError(name, flat[name], refused[name])
    return flat


def as_code(settings: Mapping[str, Any], direct: Collection[str] = ()) -> str:
    """Flat settings as further arguments of a call after ``import workbench as wb``. :param direct:
    as of ``grouped``.
    """
    arguments = grouped(settings, direct)
    return "".join(
        f", {name}={'wb.' * isinstance(value, Group)}{value!r}" for name, value in arguments.items()
    )
