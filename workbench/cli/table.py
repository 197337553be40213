"""Options of commands that read a table, or records that were packed."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import _folders
from workbench._validate import ArgumentError
from workbench.cli.shell import Options, add_all, bounds, number, schema, values_of, words
from workbench.fitting import sources
from workbench.fitting.sources import RECORDS

if TYPE_CHECKING:
    from workbench.data import Dataset

__all__ = [
    "DECLARED",
    "OF_A_CHARGE",
    "OF_A_RELEASE",
    "OF_A_SPLIT",
    "OF_ROWS",
    "RECORDS",
    "add_data",
    "add_packed",
    "add_table",
    "check_used",
    "dataset",
    "declared_columns",
    "declared_privacy",
    "named_dataset",
    "of_a_release",
    "of_tables",
    "packed",
    "split_of",
    "table_options",
]

_MANY: dict[str, Any] = {"nargs": "+", "action": "extend", "metavar": "NAME", "type": words}
_NAME: dict[str, Any] = {"type": words, "metavar": "NAME"}
_FROM_A_FILE: Options = {
    "--target": ("name of the target column; omit it for models without a target", _NAME),
    "--positive": (
        "target value that counts as 1; all other values form one class",
        _NAME | {"metavar": "VALUE"},
    ),
    "--classes": ("public list of all values that the target can have", _MANY),
    "--threshold": (
        "public number above which a numeric target counts as 1",
        {"type": number, "metavar": "NUMBER"},
    ),
    "--features": ("columns to use (default: all but target and group)", _MANY),
    "--bounds": (
        "public range of each feature; LOW:HIGH alone for all features, or a .json file",
        {"nargs": "+", "action": "extend", "metavar": "FEATURE=LOW:HIGH"},
    ),
    "--schema": (
        "types, ranges and categories of the columns, instead of --bounds or, for --formula, "
        'beside it; there also a type alone, as "float"',
        {"metavar": "FILE.json"},
    ),
    "--group": ("name of the column of groups, for hierarchical models", _NAME),
    "--groups": ("public list of all groups that there can be", _MANY),
    "--group-features": (
        "public facts about groups: one row per group, its name in the first column",
        {"metavar": "FILE.csv"},
    ),
    "--unit-id": (
        "column that says whose row it is, such as patient_id; the guarantee then protects a "
        "patient with all rows",
        _NAME,
    ),
    "--max-rows": (
        "public limit on the rows that are used of one patient; needed with --unit-id",
        {"type": number, "metavar": "ROWS"},
    ),
    "--unit-mean": (
        "give all rows of one patient a total weight of 1, instead of 1 for each row",
        {"action": "store_true"},
    ),
    "--missing": (
        "rows with a missing value: refuse raises an error (default), drop leaves them out, middle "
        "puts the middle of a number's bounds, indicator does so and adds a feature that marks "
        "these rows",
        {"choices": ("refuse", "drop", "middle", "indicator"), "default": "refuse"},
    ),
}
_OF_A_SPLIT: Options = {
    "--evaluation-fraction": (
        "share of rows held out (default: 0.2; 0 for a fit of a file whose evaluation records are "
        "private, unless --evaluate-private is set)",
        {"type": number, "metavar": "FRACTION"},
    ),
    "--split-seed": (
        "public seed of the split (default: 0)",
        {"type": number, "default": 0, "metavar": "SEED"},
    ),
}
OF_A_CHARGE: Options = {
    "--name": ("name of the records in the ledger (default: the file's name)", {"type": words}),
    "--ledger": ("file of the ledger (default: your own)", {"metavar": "FILE"}),
    "--over-cap": ("why to spend more than the cap of these records allows", {"metavar": "REASON"}),
}
OF_A_RELEASE = ("epsilon", "delta", "num_records", "seed")  # settings of one by itself
OF_ROWS: Options = {
    "--unit-id": ("column of the person", {"type": words, "metavar": "NAME"}),
    "--max-rows": ("rows of a person that are used, at most", {"type": number, "metavar": "ROWS"}),
    "--missing": ("what happens to missing values", {"choices": ("refuse", "drop", "middle")}),
    **OF_A_CHARGE,
}
DECLARED: Options = {option: _FROM_A_FILE[option] for option in ("--schema", "--bounds")}
OF_A_SPLIT = tuple(option[2:].replace("-", "_") for option in _OF_A_SPLIT)


def add_data(fit: argparse.ArgumentParser, data: argparse._ActionsContainer) -> None:
    """Add the options for a fit's records: a named data set's location, a table, or
    packed records.

    :param data: the group of the options that all kinds of data share.
    """
    data.add_argument(
        "--name",
        type=words,
        help="name of the data set in the ledger and in reports (default: the file's name)",
    )
    data.add_argument(
        "--path", help="file or folder of a named data set that does not come with the package"
    )
    add_table(fit, data)
    add_packed(fit, data)


_PACKED: Options = {
    "--key-file": (
        "file with the key of an encrypted file (default: the key in $WORKBENCH_RECORDS_KEY)",
        {"metavar": "FILE"},
    ),
    "--keyring": ("name of the key in the system's keyring (package keyring)", {"metavar": "NAME"}),
    "--reading": (
        "memory reads all records once; direct reads each minibatch from the file; oblivious "
        "does so in an order that hides which records it has (default: memory if they fit; "
        "otherwise oblivious for an encrypted file, direct for any other)",
        {"choices": ("memory", "direct", "oblivious")},
    ),
    "--memory": (
        "memory that the records may take, in GiB (default: 1)",
        {"type": number, "default": 1.0, "metavar": "GIB"},
    ),
    "--scratch": (
        "folder of the temporary files of oblivious reading (default: the file's own)",
        {"metavar": "DIR"},
    ),
}


def add_packed(command: argparse.ArgumentParser, data: argparse._ActionsContainer) -> None:
    """Options that say how a file of records is opened, and what is declared about privacy: no file
    is believed in that.

    :param data: the group of the options that all kinds of data share.
    """
    data.add_argument(
        "--unit", type=words, help="what one record is, such as patient (default: training record)"
    )
    data.add_argument(
        "--evaluation-public", action="store_true", help="declare the evaluation records public"
    )
    add_all(command.add_argument_group(f"data that workbench pack wrote ({RECORDS})"), _PACKED)


def add_table(command: argparse.ArgumentParser, data: argparse._ActionsContainer) -> None:
    """Options that declare what is public about a table in a file.

    :param data: the group of the options that all kinds of data share.
    """
    add_all(data, _OF_A_SPLIT)
    add_all(command.add_argument_group("columns of a table in a file"), _FROM_A_FILE)


def dataset(arguments: argparse.Namespace) -> Any:
    """The data set that the options of ``add_data`` and ``--data`` name."""
    from workbench import data

    if not sources.is_file(arguments.data):
        check_used(
            arguments,
            f"is for tables in files: the columns of {arguments.data} are declared.",
            OF_A_SPLIT,
        )
        return named_dataset(arguments)
    if Path(arguments.data).suffix == RECORDS:
        check_used(arguments, f"is for tables: {arguments.data} was declared as it was packed.")
        return _renamed(packed(arguments), arguments)
    options = table_options(arguments) | declared_privacy(arguments)
    options |= {} if arguments.name is None else {"name": arguments.name}
    if (
        Path(arguments.data).suffix.lower() == ".npz"
    ):  # whose arrays are named, and not columns of a table
        options = {name: value for name, value in options.items() if value is not None}
    return data.from_file(arguments.data, **options)


def named_dataset(arguments: argparse.Namespace) -> Any:
    """The data set that ``--data`` names."""
    from workbench import data

    return _renamed(
        data.load(arguments.data, path=arguments.path, **split_of(arguments, is_named=True)),
        arguments,
    )


def _renamed(made: Dataset, arguments: argparse.Namespace) -> Any:
    return made if arguments.name is None else dataclasses.replace(made, name=arguments.name)


def check_used(arguments: argparse.Namespace, reason: str, used: Collection[str] = ()) -> None:
    """Check that no option of ``add_table`` is given that would be ignored.

    :param used: names of those that are not.
    :raises ArgumentError: with ``reason``, naming the option.
    """
    for option, (_, kind) in (_FROM_A_FILE | _OF_A_SPLIT).items():
        name = option[2:].replace("-", "_")
        value = getattr(arguments, name)
        if (
            name not in used
            and value is not None
            and value is not False
            and value != kind.get("default")
        ):
            raise ArgumentError(name, value, reason)


def packed(arguments: argparse.Namespace) -> Any:
    """The data set in the file of records that ``--data`` names, opened as the options of
    ``add_packed`` say.
    """
    from workbench import data

    return data.open(arguments.data, **values_of(arguments, _PACKED), **declared_privacy(arguments))


def declared_privacy(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options of ``add_packed`` declare about the privacy of records, whatever file they
    are in.
    """
    unit = {} if arguments.unit is None else {"unit": arguments.unit}
    return {"evaluation_is_public": arguments.evaluation_public, **unit}


def split_of(arguments: argparse.Namespace, *, is_named: bool = False) -> dict[str, Any]:
    """Share of evaluation records and seed of the split. :param is_named: whether it is of a data
    set by name.
    """
    fraction = arguments.evaluation_fraction
    # a packed file keeps evaluation records for the fits that read them
    readers = ("evaluation_public", "evaluate_private")
    is_read = is_named or any(getattr(arguments, name, True) for name in readers)
    usual = 0.2 if is_read else 0.0
    return {
        "evaluation_fraction": usual if fraction is None else fraction,
        "split_seed": arguments.split_seed,
    }


def of_tables(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of tables that are not at their defaults; images take none of them."""
    defaults = {"missing": "refuse", "unit_id": None, "max_rows": None, "unit_mean": False}
    return {
        name: value for name in defaults if (value := getattr(arguments, name)) != defaults[name]
    }


def declared_columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """What ``--schema`` and ``--bounds`` declare about some or all columns of a table, as arguments
    of a fit of a formula.

    :raises ArgumentError: naming the option.
    """
    from workbench.data.undeclared import types_from_text

    options: dict[str, Any] = {}
    if arguments.schema:
        written = schema(arguments.schema)
        options = {"schema": written} | sources.unit_in(written)
        if isinstance(options["schema"], Mapping):
            options["schema"] = types_from_text(options["schema"])
    if not arguments.bounds:
        return options
    ranges = bounds(arguments.bounds)
    if not isinstance(ranges, Mapping):
        raise ArgumentError(
            "bounds",
            arguments.bounds[0],
            "have the name of a column, as in --bounds age=0:120.",
        )
    pairs = {name: tuple(pair) if isinstance(pair, list) else pair for name, pair in ranges.items()}
    return options | {"schema": {**options.get("schema", {}), **pairs}}


def of_a_release(arguments: argparse.Namespace, path: str) -> dict[str, Any]:
    """What the options ``OF_A_RELEASE`` and ``OF_ROWS`` say. :param path: of the records."""
    values = values_of(arguments, (*OF_A_RELEASE, *OF_ROWS))
    options = {name: value for name, value in values.items() if value is not None}
    return {"name": _folders.title_of(path)} | options


def table_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options of a command declare about the table in a file, as ``from_frame``
    takes it.
    """
    if not (arguments.bounds or arguments.schema):
        raise ArgumentError(
            "bounds",
            None,
            "declare the public range of each feature, as in --bounds age=0:120 income=0:1e6, or "
            "give --schema FILE.json. A fit of --formula needs neither.",
        )
    plain = ("target", "features", "positive", "classes", "threshold", "group", "groups")
    declared = schema(arguments.schema) if arguments.schema else None
    return {
        **{"schema": declared} | sources.unit_in(declared) | of_tables(arguments),
        **values_of(arguments, plain),
        "bounds": bounds(arguments.bounds) if arguments.bounds else None,
        "group_features": None
        if arguments.group_features is None
        else sources.group_features(arguments.group_features),
        **split_of(arguments),
    }
