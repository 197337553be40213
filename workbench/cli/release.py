"""``workbench predict`` and ``workbench sample``: what can be computed from a saved release without
the records.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from workbench._csv import to_csv
from workbench._validate import ArgumentError, integer
from workbench.cli.shell import (
    DONE,
    Options,
    Parser,
    add_all,
    add_command,
    check_out,
    number,
    written,
)
from workbench.fitting import sources

__all__ = ["add"]

_QUICKLY_DRAWN = 100_000  # records, within seconds


_OF_PREDICTIONS: Options = {
    "result": ("folder that fit --out wrote", {"metavar": "FOLDER"}),
    "records": (
        "records with the columns of the fitted table, in the same units",
        {"metavar": "FILE.csv"},
    ),
    "--out": ("file to write (default: standard output)", {"metavar": "FILE.csv"}),
}


_OF_SAMPLES: Options = {
    "result": ("folder that fit --out wrote", {"metavar": "FOLDER"}),
    "--count": ("number of records (default: 1000)", {"type": number, "default": 1000}),
    "--given": (
        "inputs, for models that predict a target (default: the public evaluation records)",
        {"metavar": "FILE.csv"},
    ),
    "--seed": ("seed, to draw the same records again", {"type": number}),
    "--out": (
        "file to write: CSV, or .npy for images (default: standard output)",
        {"metavar": "FILE"},
    ),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``predict`` and ``sample`` to the command."""
    predict = add_command(
        commands,
        "predict",
        "predict new records from a saved result",
        "Predictions are computed from the release and cost no further privacy.",
    )
    add_all(predict, _OF_PREDICTIONS)
    _add_new_groups(predict, "FILE.csv")
    predict.set_defaults(run=_predict)
    sample = add_command(
        commands,
        "sample",
        "draw synthetic records from a saved result",
        "They are drawn from the posterior predictive. They are computed from the release and cost "
        "no further privacy.",
    )
    add_all(sample, _OF_SAMPLES)
    _add_new_groups(sample, "--given")
    sample.set_defaults(run=_sample)


def _add_new_groups(command: Parser, table: str) -> None:
    command.add_argument(
        "--new-groups",
        action="store_true",
        help=f"let {table} have groups of a formula that were not declared, and missing ones",
    )


def _predict(arguments: argparse.Namespace) -> int:
    """``workbench predict``; the exit code."""
    from workbench import results

    check_out(arguments.out)
    result = results.load(arguments.result)
    records = sources.table("records", arguments.records)
    predictions = result.predict(records, new_groups=arguments.new_groups)
    columns = {"prediction": predictions}
    if predictions.ndim > 1:
        columns = {f"prediction_{index}": column for index, column in enumerate(predictions.T)}
    written(to_csv(records.assign(**columns), index=False), arguments.out)
    return DONE


def _sample(arguments: argparse.Namespace) -> int:
    """``workbench sample``; the exit code."""
    from tqdm import tqdm

    from workbench import results
    from workbench.results.synthesis import synthetic_records

    check_out(arguments.out)
    result = results.load(arguments.result)
    inputs = None if arguments.given is None else sources.table("given", arguments.given)
    total = len(inputs) if inputs is not None else integer("count", arguments.count, at_least=1)
    hidden = total < _QUICKLY_DRAWN
    with tqdm(
        total=total,
        unit="record",
        unit_scale=True,
        desc="drawing",
        file=sys.stderr,
        delay=0.1,
        disable=hidden,
    ) as bar:
        drawn = synthetic_records(
            result,
            arguments.count,
            inputs,
            arguments.seed,
            bar.update,
            new_groups=arguments.new_groups,
        )
    if hasattr(drawn, "to_csv"):
        written(to_csv(drawn, index=False), arguments.out)
        return DONE
    if arguments.out is None or not arguments.out.endswith(".npy"):
        raise ArgumentError("out", arguments.out, "these records are images: name a .npy file.")
    import numpy

    numpy.save(Path(arguments.out).expanduser(), drawn)
    print(f"Saved: {arguments.out}", file=sys.stderr)
    return DONE
