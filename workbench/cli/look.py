"""``workbench look``: the columns of a private table through noise."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import TYPE_CHECKING

from workbench.cli.shell import DONE, Parser, add_all, add_command, add_json, add_settings
from workbench.cli.table import DECLARED, OF_A_RELEASE, OF_ROWS, declared_columns, of_a_release

if TYPE_CHECKING:
    from workbench.data.look import Look

__all__ = ["add", "show"]


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``look`` to the command."""
    look = add_command(
        commands,
        "look",
        "show what the columns of a private table contain, through noise",
        "Quantiles of numbers and shares of levels are one release with noise, which the ledger "
        "adds to what was spent on these records. Nothing needs to be declared.",
    )
    look.add_argument("data", metavar="FILE", help="a .csv or .parquet file of private records")
    add_all(look, DECLARED)
    add_settings(look, OF_A_RELEASE)
    add_all(look, OF_ROWS)
    add_json(look)
    look.set_defaults(run=_look)


def _look(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from workbench.data.files import read_table
    from workbench.fitting.look import look

    options = declared_columns(arguments) | of_a_release(arguments, arguments.data)
    options.pop("unit_mean", None)  # all rows of a person weigh 1 together here
    frame = read_table(arguments.data, options.get("schema"), unit_id=options.get("unit_id"))
    with warnings.catch_warnings(record=True) as caught:
        taken = look(frame, **options)
    for warning in caught:
        print(f"workbench look: warning: {warning.message}", file=sys.stderr)
    return show(taken, arguments)


def show(taken: Look, arguments: argparse.Namespace) -> int:
    """Print what a look says and promises, and return the exit code."""
    table, guarantee = taken.table(), taken.guarantee
    if arguments.json:
        columns = json.loads(table.to_json(orient="index"))
        print(json.dumps({"columns": columns, "guarantee": guarantee.to_dict()}))
        return DONE
    width = max(map(len, table.index))
    for name, line in table["says"].items():
        print(f"{name:<{width}}  {line}")
    print(f"\n{guarantee.statement()}")
    return DONE
