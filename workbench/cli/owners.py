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
    Parser,
    add_command,
    add_json,
    named_values,
    number,
    schema,
    words,
)
from workbench.fitting import sources

__all__ = ["add"]

_FOLDER = "folder for the file (default: the current one)"


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
    summed.add_argument("--data", required=True, metavar="FILE", help="your own table")
    summed.add_argument(
        "--keys", nargs="+", required=True, metavar="FILE", help="the keys of all owners"
    )
    summed.add_argument(
        "--name", type=words, help="name of the records in the ledger (default: the file's name)"
    )
    summed.add_argument("--ledger", metavar="FILE", help="file of the ledger (default: your own)")
    summed.add_argument(
        "--over-cap",
        metavar="REASON",
        help="why to spend more than the cap of these records allows",
    )
    result.add_argument("sums", nargs="+", metavar="FILE", help="the sums of all owners")
    result.add_argument("--out", metavar="FOLDER", help="folder to save the result in")
    add_json(result)
    for action, run in ((key, _key), (code, _code), (summed, _sum), (result, _fit)):
        action.set_defaults(run=run)


def _add_plan(actions: argparse._SubParsersAction[Parser]) -> None:
    plan = add_command(actions, "plan", "write the plan that all owners get")
    plan.add_argument("out", metavar="PLAN", help="file to write, such as plan.json")
    plan.add_argument(
        "--model",
        required=True,
        type=words,
        help="a formula of a linear regression, such as 'days ~ age', normal_table or mixed_table",
    )
    plan.add_argument(
        "--option",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="options of the model; of a formula priors",
    )
    plan.add_argument(
        "--schema", required=True, metavar="FILE.json", help="ranges and categories of the columns"
    )
    plan.add_argument(
        "--owners", nargs="+", required=True, type=words, metavar="NAME", help="their names"
    )
    plan.add_argument(
        "--colluders",
        type=number,
        default=1,
        metavar="C",
        help="how many owners may tell others what noise they added; with 0 the promise does not "
        "hold against the owners themselves (default: 1)",
    )
    plan.add_argument("--epsilon", type=number, required=True, metavar="E", help="privacy loss")
    plan.add_argument(
        "--delta", type=number, metavar="D", help="default: the power of ten below 1 / N"
    )
    plan.add_argument(
        "--num-records",
        type=number,
        required=True,
        metavar="N",
        help="upper bound on the records of all owners together, public",
    )
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from workbench import owners

    names = ("model", "owners", "colluders", "epsilon", "delta", "num_records")
    plan = owners.plan(
        **{name: getattr(arguments, name) for name in names},
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
    from workbench.results.storage import check_folder

    folder = None if arguments.out is None else check_folder(arguments.out)
    with warnings.catch_warnings(record=True) as caught:
        result = owners.fit(arguments.plan, arguments.sums)
        return fit.finish(result, arguments, folder, caught)
