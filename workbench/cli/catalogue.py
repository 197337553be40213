"""``workbench models`` and ``workbench data``: lists of what has a name."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings
from typing import Any

from workbench._validate import ArgumentError
from workbench.cli.shell import DONE, Parser, add_command, add_json

__all__ = ["add"]


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``models`` and ``data`` to the command."""
    for name, text, run in (
        ("models", "list the built-in models and their options", _models),
        ("data", "list the named data sets, their licences and sources", _data),
    ):
        listing = add_command(commands, name, text)
        add_json(listing)
        listing.set_defaults(run=run)


def _models(arguments: argparse.Namespace) -> int:
    """``workbench models``; the exit code."""
    from workbench import models

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        entries = {name: _describe(name) for name in models.names()}
    for warning in caught:
        print(f"workbench models: warning: {warning.message}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(entries, default=str))
    else:
        for name, entry in entries.items():
            print(f"{name}: {_model_line(entry)}")
        print("Your own: --model FILE.py or --model FILE.py:NAME (the file is run).")
    return DONE


def _describe(name: str) -> dict[str, Any]:
    """What a listing says about a model; of one that cannot be made, the error instead of summary
    and options.
    """
    from workbench import models

    try:
        model = models.get(name)
    except ArgumentError as error:
        return {"origin": models.origin(name), "error": error.expectation}
    return {"summary": model.summary, "options": dict(model.options), "origin": models.origin(name)}


def _model_line(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"unusable: {entry['error']}"
    options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
    return (
        f"{entry['summary']} "
        + (f"Options: {options}. " if options else "")
        + f"Origin: {entry['origin']}."
    )


def _data(arguments: argparse.Namespace) -> int:
    """``workbench data``; the exit code."""
    from workbench import data

    entries = {name: data.info(name) for name in data.all_names()}
    if arguments.json:
        print(json.dumps({name: dataclasses.asdict(info) for name, info in entries.items()}))
    else:
        for info in entries.values():
            print(info)
        print(
            "Your own: --data FILE.csv --target COLUMN --bounds FEATURE=LOW:HIGH ... (or "
            "--schema FILE.json)"
        )
    return DONE
