"""``workbench owners``: one release of sums over the records of several owners, by files that they
exchange.
"""

from __future__ import annotations

import argparse
import sys
import warnings

from workbench import _folders
from workbench.cli import fit
from workbench.cli.shell import (
    DONE,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    named_values,
    number,
    out_folder,
    schema,
    values_of,
    words,
)
from workbench.cli.table import OF_A_CHARGE
from workbench.fitting import sources

__all__ = ["add"]

_FOLDER = "folder for the file (default: the current one)"
_OF_A_PLAN: Options = {
    "out": ("file to write, such as plan.json", {"metavar": "PLAN"}),
    "--model": (
        "a formula of a linear regression, such as 'days ~ age', normal_table or mixed_table",
        {"required": True, "type": words},
    ),
    "--option": (
        "options of the model; of a formula priors",
        {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME=VALUE"},
    ),
    "--schema": (
        "ranges and categories of the columns",
        {"required": True, "metavar": "FILE.json"},
    ),
    "--owners": ("their names", {"nargs": "+", "required": True, "type": words, "metavar": "NAME"}),
    "--colluders": (
        "how many owners may tell others what noise they added; with 0 the promise does not "
        "hold against the owners themselves (default: 1)",
        {"type": number, "default": 1, "metavar": "C"},
    ),
    "--epsilon": ("privacy loss", {"type": number, "required": True, "metavar": "E"}),
    "--delta": ("default: the power of ten below 1 / N", {"type": number, "metavar": "D"}),
    "--num-records": (
        "upper bound on the records of all owners together, public",
        {"type": number, "required": True, "metavar": "N"},
    ),
}
_OF_A_SUM: Options = {
    "--data": ("your own table", {"required": True, "metavar": "FILE"}),
    "--keys": ("the keys of all owners", {"nargs": "+", "required": True, "metavar": "FILE"}),
    **OF_A_CHARGE,
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``owners`` to the command."""
    owners = add_command(
        commands,
        "owners",
        "fit one model to the records of several owners, which never leave them",
        "The coordinator writes a plan. Each owner makes a key for it, gets the keys of the "
        "others, compares the code with them, and writes the noised and masked sum of its records. "
        "The coordinator makes a result of all sums. The files may go by mail.",
    )
    actions = owners.add_subparsers(
        title="actions", dest="action", required=True, metavar="ACTION", parser_class=Parser
    )
    _add_plan(actions)
    key = add_command(actions, "key", "make an owner's key, whose public part all others need")
    code = add_command(
        actions,
        "code",
        "print the code that all owners must read alike, as on the telephone, before they go on",
    )
    summed = add_command(
        actions,
        "sum",
        "write an owner's noised and masked sum, once, after its ledger has the charge",
    )
    result = add_command(actions, "fit", "make a result of the sums of all owners")
    for action in (key, code, summed, result):
        action.add_argument("plan", metavar="PLAN", help="the file of the plan")
    for action in (key, summed):
        action.add_argument(
            "--owner", type=words, required=True, metavar="NAME", help="who you are in the plan"
        )
        action.add_argument("--out", default=".", metavar="FOLDER", help=_FOLDER)
    code.add_argument("keys", nargs="+", metavar="FILE", help="the keys of all owners")
    add_all(summed, _OF_A_SUM)
    result.add_argument("sums", nargs="+", metavar="FILE", help="the sums of all owners")
    result.add_argument("--out", metavar="FOLDER", help="folder to save the result in")
    add_json(result)
    for action, run in ((key, _key), (code, _code), (summed, _sum), (result, _fit)):
        action.set_defaults(run=run)


def _add_plan(actions: argparse._SubParsersAction[Parser]) -> None:
    plan = add_command(actions, "plan", "write the plan that all owners get")
    add_all(plan, _OF_A_PLAN)
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from workbench import owners

    names = ("model", "owners", "colluders", "epsilon", "delta", "num_records")
    plan = owners.plan(
        **values_of(arguments, names),
        schema=schema(arguments.schema),
        options=named_values(arguments.option),
    )
    sys.stderr.write(f"Saved: {plan.save(arguments.out)}\n")
    return DONE


def _key(arguments: argparse.Namespace) -> int:
    from workbench import owners
    from workbench.owners.planning import read_plan

    plan = read_plan(arguments.plan)
    print(plan.question())
    sys.stderr.write(f"Saved: {owners.make_key(plan, arguments.owner, arguments.out)}\n")
    return DONE


def _code(arguments: argparse.Namespace) -> int:
    from workbench import owners

    print(owners.code(arguments.plan, arguments.keys))
    return DONE


def _sum(arguments: argparse.Namespace) -> int:
    from workbench import owners

    path = owners.write_sum(
        arguments.plan,
        arguments.owner,
        sources.table("data", arguments.data),
        arguments.keys,
        arguments.out,
        name=arguments.name or _folders.title_of(arguments.data),
        ledger=arguments.ledger,
        over_cap=arguments.over_cap,
    )
    sys.stderr.write(f"Saved: {path}\n")
    return DONE


def _fit(arguments: argparse.Namespace) -> int:
    from workbench import owners

    folder = out_folder(arguments)
    with warnings.catch_warnings(record=True) as caught:
        result = owners.fit(arguments.plan, arguments.sums)
        return fit.finish(result, arguments, folder, caught)
