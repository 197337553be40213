"""The plan of a sweep in a YAML, TOML or JSON file: a mapping of the arguments of
``workbench.sweep``. A choice has one of those of ``workbench.choose``, without data.

model: logistic
data: {file: clinic.csv, target: ill, bounds: {age: [0, 120], dose: [0, 200]}}
epsilons: [1, 2, 4]
seeds: 10
"""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from workbench import _json, _validate
from workbench import data as data_sets
from workbench.fitting import sources
from workbench.fitting.choosing import ChooseArguments
from workbench.fitting.groups import GROUPS, group_of, is_a
from workbench.fitting.settings import names
from workbench.fitting.sources import RECORDS
from workbench.fitting.tables import is_formula
from workbench.sweeps.sweeping import PrepareArguments

__all__ = ["candidates", "choice", "read", "read_mapping"]


def read(path: str | Path) -> dict[str, Any]:
    """Read a plan as keyword arguments of ``sweeping.prepare``. Relative paths are relative to the
    plan's folder.

    A model is a name, FILE.py or FILE.py:NAME (the file is run), or a mapping of ``name`` and
    options. Data are a name, a file or a mapping: ``name`` with the arguments of
    ``workbench.data.load``, ``file`` with those of ``workbench.data.from_file``, or of
    ``workbench.data.open`` for what ``workbench pack`` wrote, or ``generate`` (hierarchical or
    mixture, made up again for every seed) with those of that function. Bounds and schema may be the
    name of a YAML, TOML or JSON file, group features that of a CSV file.

    :raises ArgumentError: naming ``plan`` and its file, or the argument that cannot be used.
    """
    file, plan = _read(path, names(PrepareArguments))
    if "epsilons" not in plan:
        raise _validate.ArgumentError("epsilons", None, f"{file.name} must have one or more.")
    return _formed(plan, file.parent)


def choice(path: str | Path) -> dict[str, Any]:
    """Read the plan of a choice as settings, those of groups flat. Paths and models are as of
    ``read``.

    :raises ArgumentError: naming ``plan`` and its file, or the argument that cannot be used.
    """
    file, plan = _read(path, [name for name in names(ChooseArguments) if name != "data"])
    flat: dict[str, Any] = {}
    for name, value in _formed(plan, file.parent).items():
        flat |= is_a(GROUPS[name])(name, value).changed() if name in GROUPS else {name: value}
    return flat


def _read(path: str | Path, allowed: Collection[str]) -> tuple[Path, dict[str, Any]]:
    """(file, its mapping, whose names are among the ``allowed``)."""
    file = _validate.path("plan", path, "must be the path of a plan.")
    plan = dict(read_mapping("plan", file))
    for name in plan:
        if (group := group_of(name)) in GROUPS and name not in allowed:
            raise _validate.ArgumentError(
                name, plan[name], f"belongs to a group of settings: write {group}: {{{name}: ...}}."
            )
    _check_known("plan", plan, allowed)
    return file, plan


def _formed(plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The arguments that a plan in ``folder`` has."""
    forms: dict[str, Callable[[Any, Path], Any]] = {
        "model": _model,
        "models": _models,
        "candidates": candidates,
        "data": _data,
        "store": lambda value, folder: folder / _path("store", value),
        "ledger": lambda value, folder: value is not False and folder / _path("ledger", value),
    }
    return {
        name: forms[name](value, folder) if name in forms else value for name, value in plan.items()
    }


# ---- files ---------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Reads plain values as YAML 1.2 defines them: 1e-5 is a number; no, 12:30, 007 and dates are
    text.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """A mapping. :raises yaml.MarkedYAMLError: if a key occurs twice, of which YAML's own
        loader takes the last.
        """
        before = set[tuple[str, str]]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in before:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} occurs twice", problem_mark=key.start_mark
                    )
                before.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


for _kind, _form, _first in (
    ("null", r"(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"(true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)$", list("-+0123456789")),
    (
        "float",
        r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|nan))$",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_form), _first)


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # a SafeLoader: tags create no objects
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" (line {error.problem_mark.line + 1})"
        raise ValueError(f"{error.problem}{line}") from None
    except yaml.reader.ReaderError as error:
        raise ValueError(
            f"{error.reason} (line {text.count(chr(10), 0, error.position) + 1})"
        ) from None


_FORMATS: dict[str, Callable[[str], Any]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": tomllib.loads,
    ".json": _json.loads,
}


def read_mapping(argument: str, file: Path) -> dict[str, Any]:
    """The mapping in a YAML, TOML or JSON file.

    >>> from pathlib import Path
    >>> from workbench.sweeps.plan_file import read_mapping
    >>> Path("plan.yaml").write_text("epsilons: [1, 2]")
    16
    >>> read_mapping("plan", Path("plan.yaml"))
    {'epsilons': [1, 2]}

    :raises ArgumentError: naming ``argument``, with the line that cannot be read.
    """
    if not file.is_file():
        raise _validate.ArgumentError(argument, str(file), "no such file.")
    reader = _FORMATS.get(file.suffix.lower())
    if reader is None:
        raise _validate.ArgumentError(
            argument, str(file), f"the suffix must be one of {', '.join(_FORMATS)}."
        )
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
        content = reader(file.read_text(encoding="utf-8"))
        _check_size(content)
    except RecursionError:
        raise _validate.ArgumentError(argument, str(file), _TOO_DEEP) from None
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise _validate.ArgumentError(
            argument, str(file), f"cannot be read as {file.suffix[1:].upper()}: {reason}."
        ) from None
    if not isinstance(content, dict):
        raise _validate.ArgumentError(
            argument, str(file), "must be a mapping, such as 'epsilons: [1, 2]'."
        )
    return content


_MOST_BYTES, _MOST_VALUES, _DEEPEST = 2**25, 10**6, 50
_TOO_DEEP = f"is nested more than {_DEEPEST} levels deep."


def _check_size(content: Any) -> None:
    """Check that a message can show a value: a YAML file of a few lines can expand to billions of
    values.

    :raises ValueError: if there are too many values.
    :raises RecursionError: if they are nested too deeply.
    """
    layer, number = [content], 0
    for _ in range(_DEEPEST + 1):
        inner: list[Any] = []
        for value in layer:
            if isinstance(value, (dict, list)):
                number += len(value)
                if number > _MOST_VALUES:
                    raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
                inner += [*value, *value.values()] if isinstance(value, dict) else value
        if not inner:
            return
        layer = inner
    raise RecursionError


# ---- values --------------------------------------------------------------------------------------


def _path(argument: str, value: Any) -> Path:
    return _validate.location(argument, value, "must be the path of a file.")


def _models(entries: Any, folder: Path) -> list[Any]:
    return [
        _model(entry, folder) for entry in (entries if isinstance(entries, list) else [entries])
    ]


def candidates(entries: Any, folder: Path) -> Any:
    """The candidates of a choice, with models in place of their names and files.

    :param entries: a list of models or mappings, or one mapping of lists. :param folder: that files
        of models are relative to.
    """
    if isinstance(entries, dict):
        return {
            name: _models(value, folder) if name == "model" else value
            for name, value in entries.items()
        }
    if not isinstance(entries, list):
        return entries
    return [
        {**entry, "model": _model(entry.get("model"), folder)}
        if isinstance(entry, dict)
        else _model(entry, folder)
        for entry in entries
    ]


def _model(entry: Any, folder: Path) -> Any:
    options = dict(entry) if isinstance(entry, dict) else {"name": entry}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise _validate.ArgumentError(
            "model", entry, "must be a name or a file, or a mapping of name and options."
        )
    if is_formula(name) and not options:
        return name
    return sources.model(name, options, folder)


def _data(entry: Any, folder: Path) -> Any:
    """A ``Dataset``, or a function that makes one up."""
    if isinstance(entry, str):
        entry = {"file" if sources.is_file(entry) else "name": entry}
    for kind, read_kind in {"file": _from_file, "generate": _generated, "name": _named}.items():
        if isinstance(entry, dict) and kind in entry:
            options = {name: value for name, value in entry.items() if name != kind}
            return read_kind(entry[kind], options, folder)
    raise _validate.ArgumentError(
        "data", entry, "must be a name or a file, or a mapping with name, file or generate."
    )


def _named(name: str, options: dict[str, Any], folder: Path) -> Any:
    _check_known("data", options, _parameters(data_sets.load))
    if "path" in options:
        options["path"] = folder / _path("path", options["path"])
    return data_sets.load(name, **options)


def _generated(name: str, options: dict[str, Any], folder: Path) -> Any:
    makers: dict[str, Callable[..., Any]] = {
        "hierarchical": data_sets.hierarchical,
        "mixture": data_sets.mixture,
    }
    make = makers[_validate.choice("generate", name, makers)]
    _check_known("data", options, _parameters(make) - {"seed"})
    return functools.partial(make, **options)


def _from_file(name: Any, options: dict[str, Any], folder: Path) -> Any:
    file = folder / _path("file", name)
    if file.suffix == RECORDS:
        _check_known("data", options, _parameters(data_sets.open) - {"path"})
        options |= {
            option: folder / _path(option, options[option])
            for option in ("key_file", "scratch")
            if option in options
        }
        return data_sets.open(file, **options)
    allowed = _parameters(data_sets.from_frame)
    if file.suffix.lower() == ".npz":  # its target and groups are arrays
        allowed = (
            allowed | _parameters(data_sets.from_arrays) | _parameters(data_sets.from_images)
        ) - {"target", "group"}
    elif ".csv" in [suffix.lower() for suffix in file.suffixes[-2:]]:
        allowed |= {"separator", "decimal"}
    _check_known("data", options, allowed - {"frame", "x", "y", "images", "labels", "evaluation"})
    for argument in ("bounds", "schema"):
        if isinstance(options.get(argument), str):
            options[argument] = read_mapping(argument, folder / _path(argument, options[argument]))
    options |= sources.unit_in(options.get("schema"))
    if isinstance(options.get("group_features"), str):
        options["group_features"] = sources.group_features(
            folder / _path("group_features", options["group_features"])
        )
    try:
        return data_sets.from_file(file, **options)
    except TypeError as error:  # an .npz holds a table or images, which take different arguments
        raise _validate.ArgumentError("data", str(file), f"{error}.") from None


def _parameters(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments, except ``**``."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD
    }


def _check_known(argument: str, options: Iterable[Any], allowed: Collection[str]) -> None:
    for name in options:
        if name not in allowed:
            raise _validate.unknown_name(argument, name, allowed)
