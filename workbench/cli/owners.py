"""``workbench owners``: one fit to the records of several owners, by files that they exchange or
by rounds over HTTPS.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from workbench import _folders
from workbench._validate import ArgumentError
from workbench.cli import fit, look
from workbench.cli.shell import (
    DONE,
    FAILED,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    named_values,
    number,
    out_folder,
    schema,
    stopped_by_interrupt,
    values_of,
    words,
)
from workbench.cli.table import OF_A_CHARGE
from workbench.fitting import sources

if TYPE_CHECKING:
    from workbench.data.look import Look
    from workbench.owners import Plan
    from workbench.results import FitResult

__all__ = ["add"]

_FOLDER = "folder for the file (default: the current one)"
_OF_A_PLAN: Options = {
    "out": ("file to write, such as plan.json", {"metavar": "PLAN"}),
    "--model": (
        "a formula, such as 'days ~ age', the name of a model, or 'look' at the columns",
        {"required": True, "type": words},
    ),
    "--option": (
        "options of the model; of a formula priors",
        {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME=VALUE"},
    ),
    "--setting": (
        "settings of the steps: iterations, sampling_rate, clip, learning_rate, estimator",
        {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME=VALUE"},
    ),
    "--schema": (
        "ranges and categories of the columns",
        {"required": True, "metavar": "FILE.json"},
    ),
    "--look": (
        "the plan of the model 'look' and the sums of its owners: scales are learned from them",
        {"nargs": "+", "metavar": "FILE"},
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
_OF_ROUNDS: Options = {
    "--patience": (
        "seconds that a round may take (default: 600)",
        {"type": number, "default": 600.0, "metavar": "SECONDS"},
    ),
}
_KEYS: Options = {
    "--keys": ("the keys of all owners", {"nargs": "+", "required": True, "metavar": "FILE"}),
}
_AT: Options = {
    **_KEYS,
    "--host": ("address to listen at (default: this machine alone)", {"default": "127.0.0.1"}),
    "--port": ("port to listen at (default: 8920)", {"type": number, "default": 8920}),
    "--certificate": (
        "PEM file of the TLS certificate that the owners trust",
        {"metavar": "FILE"},
    ),
    "--private-key": ("PEM file of its key", {"metavar": "FILE"}),
    **_OF_ROUNDS,
}
_OF_AN_ANSWER: Options = {
    "--server": (
        "where the coordinator listens, as https://coordinator.example:8920",
        {"required": True, "type": words, "metavar": "ADDRESS"},
    ),
    "--certificate": (
        "PEM file of the authority that signed its certificate (default: those of this machine)",
        {"metavar": "FILE"},
    ),
    **_OF_ROUNDS,
}
_OF_A_SUM: Options = {
    "--data": ("your own table", {"required": True, "metavar": "FILE"}),
    **_KEYS,
    **OF_A_CHARGE,
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``owners`` to the command."""
    owners = add_command(
        commands,
        "owners",
        "fit one model to the records of several owners, which never leave them",
        "The coordinator writes a plan. Each owner makes a key for it, gets the keys of the "
        "others and compares the code with them. Where the plan has one round, each owner then "
        "writes the noised and masked sum of its records (sum), and the coordinator makes a result "
        "of all sums (fit). The files may go by mail. Otherwise the coordinator waits for the "
        "owners (coordinate), and each answers its rounds (answer).",
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
    answers = add_command(
        actions,
        "answer",
        "answer the rounds of a coordinator with noised and masked sums, once, after the ledger "
        "has the charge of all",
    )
    waiting = add_command(actions, "coordinate", "wait for all owners and fit with their answers")
    for action in (key, code, summed, result, answers, waiting):
        action.add_argument("plan", metavar="PLAN", help="the file of the plan")
    for action in (key, summed, answers):
        action.add_argument(
            "--owner", type=words, required=True, metavar="NAME", help="who you are in the plan"
        )
    for action in (key, summed):
        action.add_argument("--out", default=".", metavar="FOLDER", help=_FOLDER)
    code.add_argument("keys", nargs="+", metavar="FILE", help="the keys of all owners")
    add_all(summed, _OF_A_SUM)
    add_all(answers, _OF_A_SUM | _OF_AN_ANSWER)
    add_all(waiting, _AT)
    result.add_argument("sums", nargs="+", metavar="FILE", help="the sums of all owners")
    for action in (result, waiting):
        action.add_argument("--out", metavar="FOLDER", help="folder to save the result in")
        add_json(action)
    runs = {key: _key, code: _code, summed: _sum, result: _fit}
    runs |= {answers: _until_end(_answer), waiting: _until_end(_coordinate)}
    for action, run in runs.items():
        action.set_defaults(run=run)


def _add_plan(actions: argparse._SubParsersAction[Parser]) -> None:
    plan = add_command(actions, "plan", "write the plan that all owners get")
    add_all(plan, _OF_A_PLAN)
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from workbench import owners

    names = ("model", "owners", "colluders", "epsilon", "delta", "num_records")
    of_look, *sums = arguments.look or [None]
    look: Any = None if of_look is None else owners.fit(of_look, sums)
    plan = owners.plan(
        **values_of(arguments, names),
        schema=schema(arguments.schema),
        options=named_values(arguments.option),
        settings=named_values(arguments.setting, "setting", "iterations=1000"),
        look=look,
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

    table, charge = _of_owner(arguments)
    path = owners.write_sum(
        arguments.plan, arguments.owner, table, arguments.keys, arguments.out, **charge
    )
    sys.stderr.write(f"Saved: {path}\n")
    return DONE


def _of_owner(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """(the owner's table, name of the records and arguments of the ledger)."""
    name = arguments.name or _folders.title_of(arguments.data)
    charge = {"name": name, **values_of(arguments, ("ledger", "over_cap"))}
    return sources.table("data", arguments.data), charge


def _answer(arguments: argparse.Namespace) -> int:
    from workbench import owners
    from workbench.owners.planning import read_plan

    table, charge = _of_owner(arguments)
    plan = read_plan(arguments.plan)
    sys.stderr.write(f"{plan.question()}\nWaiting for all owners.\n")
    with _shown(plan) as shown:
        guarantee = owners.answer(
            plan,
            arguments.owner,
            table,
            arguments.keys,
            arguments.server,
            on_round=shown,
            **values_of(arguments, ("certificate", "patience")),
            **charge,
        )
    print(guarantee.statement())
    return DONE


@contextlib.contextmanager
def _shown(plan: Plan) -> Iterator[Callable[[int], None]]:
    """What shows how many rounds there were. Without any, an error has a line to itself."""
    from tqdm import tqdm

    interval = 0.2 if sys.stderr.isatty() else 10.0  # few lines in a log file
    with contextlib.ExitStack() as bars:

        @functools.cache
        def bar() -> tqdm:
            rounds = tqdm(total=plan.rounds, unit="round", file=sys.stderr, mininterval=interval)
            return bars.enter_context(rounds)

        def shown(number: int) -> None:
            bar().update(number - bar().n)

        yield shown


def _until_end(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """``run``, which says in a sentence why the rounds ended."""

    def to_the_end(arguments: argparse.Namespace) -> int:
        from workbench.owners import OwnersError

        try:
            return run(arguments)
        except OwnersError as error:
            print(f"workbench owners: {error}", file=sys.stderr)
            return FAILED

    return to_the_end


def _fit(arguments: argparse.Namespace) -> int:
    from workbench import owners
    from workbench.owners.planning import read_plan

    plan = read_plan(arguments.plan)
    return _finished(arguments, plan, lambda: owners.fit(plan, arguments.sums))


def _coordinate(arguments: argparse.Namespace) -> int:
    from workbench import owners
    from workbench.owners.planning import read_plan

    names = ("keys", "host", "port", "certificate", "private_key", "patience")
    plan = read_plan(arguments.plan)
    sys.stderr.write(f"Waiting for {', '.join(plan.owners)}.\n")

    def fitted() -> FitResult | Look:
        with stopped_by_interrupt("workbench: stopping.") as stop, _shown(plan) as shown:
            return owners.coordinate(
                plan,
                stop=stop,
                on_snapshot=lambda snapshot: shown(snapshot.step),
                **values_of(arguments, names),
            )

    return _finished(arguments, plan, fitted)


def _finished(
    arguments: argparse.Namespace, plan: Plan, fitted: Callable[[], FitResult | Look]
) -> int:
    from workbench.data.look import Look
    from workbench.owners.agreements import LOOK

    if arguments.out and plan.model == LOOK:
        reason = "is for the results of fits: a look goes into a plan, with --look."
        raise ArgumentError("out", arguments.out, reason)
    folder = out_folder(arguments)
    with warnings.catch_warnings(record=True) as caught:
        result = fitted()
        if not isinstance(result, Look):
            return fit.finish(result, arguments, folder, caught)
    return look.show(result, arguments)
