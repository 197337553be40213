"""``workbench ledger``: what was spent on which records, and caps on it; and what ``fit`` and
``resume`` say about it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench._numbers import upper
from workbench._validate import ArgumentError, printable
from workbench.cli.shell import (
    DONE,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    check_out,
    number,
    written,
)

if TYPE_CHECKING:
    from workbench.ledger.ledger import BudgetStatus, Ledger, Spend
    from workbench.privacy.guarantee import Guarantee
    from workbench.results import FitResult

__all__ = ["add", "after_fit", "forget", "in_one_line", "saved_runs"]

_DATASET = "a number from workbench ledger list, a name, or the beginning of a fingerprint"
_FILE = "the ledger's file (default: $WORKBENCH_LEDGER, else that of your user account)"
Answer = tuple[dict[str, Any], list[str]]  # for --json, and lines for people


_OF_A_CAP: Options = {
    "--delta": ("the delta at which epsilon is stated", {"type": number, "metavar": "D"}),
    "--relation": (
        "add_or_remove_one (default), replace_one, which counts all fits, or replace_special",
        {},
    ),
    "--order": (
        "order of the Renyi filter (default: one that suits most fits)",
        {"type": number, "metavar": "A"},
    ),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``ledger`` to the command."""
    ledger = add_command(
        commands,
        "ledger",
        "show what was spent on which records, and set caps on it",
        "Every fit on private records is recorded in the ledger before its first step. "
        f"DATASET is {_DATASET}.",
    )
    ledger.set_defaults(run=_ledger)
    actions = ledger.add_subparsers(
        title="actions", dest="action", required=True, metavar="ACTION", parser_class=Parser
    )
    add_command(actions, "list", "list all data sets, what was spent on them and their caps")
    show = add_command(actions, "show", "show what was spent on a data set, fit by fit")
    cap = add_command(
        actions,
        "cap",
        "set, remove or show the cap on what all fits on a data set may spend",
        "Without --epsilon and --remove, it shows the cap.",
    )
    relate = add_command(
        actions, "relate", "count two data sets together because they share records"
    )
    separate = add_command(
        actions,
        "separate",
        "count a data set separately from others because they share no records",
    )
    add_command(
        actions, "recover", "charge interrupted fits only the steps that they may have taken"
    )
    add_command(
        actions,
        "begin-anew",
        "begin an empty ledger where the file is lost or damaged and there is no copy",
    )
    add_command(actions, "new-key", "make a new recognition key after the old one was lost")
    export = add_command(
        actions, "export", "write a page for an officer, the fits as CSV, or everything"
    )
    for action in (show, cap):
        action.add_argument("dataset", metavar="DATASET", help=_DATASET)
    chosen = cap.add_mutually_exclusive_group()
    chosen.add_argument(
        "--epsilon", type=number, metavar="E", help="the most that all fits together may spend"
    )
    chosen.add_argument("--remove", action="store_true", help="remove the cap")
    add_all(cap, _OF_A_CAP)
    for action in (relate, separate):
        action.add_argument("one", metavar="ONE", help=_DATASET)
    relate.add_argument("other", metavar="OTHER", help="another data set, likewise")
    separate.add_argument("others", metavar="OTHER", nargs="+", help="other data sets, likewise")
    for action in (cap, relate, separate):
        action.add_argument(
            "--why", metavar="TEXT", help="the reason, which the ledger keeps; it must not be empty"
        )
    export.add_argument(
        "--out",
        metavar="FILE",
        help="a page to print (.html), a line for each fit (.csv), text about composition for a "
        "registry (.yaml), or everything (.json; default: JSON on standard output)",
    )
    for name, action in actions.choices.items():
        action.add_argument("--ledger", metavar="FILE", help=_FILE)
        if name != "export":
            add_json(action)


def _ledger(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from workbench.ledger.ledger import Ledger

    book = Ledger(arguments.ledger)
    if arguments.action == "export":
        _export(book, arguments.out)
        return DONE
    if arguments.action in ("show", "cap", "relate", "separate") and not book.exists():
        raise ArgumentError(
            "ledger", str(book.path), "no such file; the first fit on private records creates it."
        )
    _say(_ACTIONS[arguments.action](book, arguments), as_json=arguments.json)
    return DONE


def _say(answer: Answer, *, as_json: bool) -> None:
    facts, lines = answer
    texts = [json.dumps(facts, allow_nan=False)] if as_json else map(printable, lines)
    written("".join(f"{text}\n" for text in texts), None)


def _list(book: Ledger, arguments: argparse.Namespace) -> Answer:
    entries = [
        _facts(book.budget_status(entry.number)) | {"fingerprint": entry.fingerprint}
        for entry in book.datasets()
    ]
    header = ("number", "name", "fits", "spent", "reserved", "cap", "used", "relatives")
    lines = _table(header, map(_listed, entries)) if entries else [f"{book.path} has no entries."]
    return {"ledger": str(book.path), "datasets": entries}, lines


def _listed(facts: Mapping[str, Any]) -> tuple[object, ...]:
    reserved = str(len(facts["reserved"]))
    if facts["interrupted"]:
        reserved += f" ({len(facts['interrupted'])} interrupted)"
    caps = ", ".join(_promised(cap["epsilon"], cap["delta"]) for cap in facts["caps"])
    relatives = ", ".join(str(relative["number"]) for relative in facts["relatives"])
    spent = _promised(facts["epsilon"], facts["delta"])
    return (
        facts["number"],
        facts["name"],
        facts["fits"],
        spent,
        reserved,
        caps or "-",
        _used(facts) or "-",
        relatives or "-",
    )


def _show(book: Ledger, arguments: argparse.Namespace) -> Answer:
    from workbench.ledger.words import also_counted

    status = book.budget_status(arguments.dataset)
    facts = _facts(status) | {"fingerprint": book.entry(arguments.dataset).fingerprint}
    fits = [
        {**_fit_facts(spend), "interrupted": spend.number in status.interrupted}
        for spend in status.spends
    ]
    lines = [
        f"{_called(facts)}: each record is a {facts['unit']}; first seen {facts['first_seen']}.",
        status.statement(),
        *_cap_lines(facts),
        *also_counted(status),
    ]
    if fits:
        header = (
            "fit",
            "data",
            "model",
            "epsilon",
            "delta",
            "steps",
            "status",
            "rule",
            "began",
            "who",
            "result",
        )
        lines += ["", *_table(header, [_row(spend, status) for spend in status.spends]), ""]
        lines.append(
            "Epsilon and delta are of all planned steps, so they hold however a stop was decided."
        )
    lines += [
        f"Fit {fit['number']} was interrupted at step {fit['reached']:,} or earlier. "
        f"{_remedy(fit['run'])}"
        for fit in fits
        if fit["interrupted"]
    ]
    return {
        **facts,
        "statement": status.statement(),
        "cautions": status.cautions(),
        "spends": fits,
    }, lines


def _cap(book: Ledger, arguments: argparse.Namespace) -> Answer:
    epsilon, delta, relation, order = (
        getattr(arguments, name) for name in ("epsilon", "delta", "relation", "order")
    )
    if arguments.remove:
        book.remove_cap(arguments.dataset, arguments.why)
    elif any(value is not None for value in (epsilon, delta, relation, order, arguments.why)):
        book.set_cap(
            arguments.dataset,
            epsilon,
            delta,
            relation or "add_or_remove_one",
            order,
            why=arguments.why,
        )
    status = book.budget_status(arguments.dataset)
    facts = _facts(status)
    lines = _cap_lines(facts) or [f"{_called(facts)} has no cap."]
    return {**facts, "cautions": status.cautions()}, [*lines, *status.cautions()]


def _cap_lines(facts: Mapping[str, Any]) -> list[str]:
    """What each cap means, its filter's order, and what is used."""
    lines = [
        f"Cap of {_called(cap)}: all fits on these records, and on those that count together "
        f"with them, spend at most {_promised(cap['epsilon'], cap['delta'])} under "
        f"{cap['relation']}, even if each is chosen after seeing the results of the others. A "
        f"Renyi filter of order {cap['order']} enforces it."
        for cap in facts["caps"]
    ]
    return (
        [*lines, f"Used: {_used(facts)}{' of the tightest' if len(lines) > 1 else ''}."]
        if lines
        else []
    )


def _separate(book: Ledger, arguments: argparse.Namespace) -> Answer:
    # an unknown one is refused before any is written
    numbers = [book.entry(dataset).number for dataset in arguments.others]
    for dataset in arguments.others:
        book.separate(arguments.one, dataset, arguments.why)
    facts = _facts(book.budget_status(arguments.one))
    separated = [_facts(book.budget_status(dataset)) for dataset in numbers]
    still = [
        dataset
        for dataset in separated
        if dataset["number"] in [relative["number"] for relative in facts["relatives"]]
    ]
    lines = [f"{_called(facts)} and {', '.join(map(_called, separated))} are counted separately."]
    if still:
        lines.append(
            f"Fits on {', '.join(map(_called, still))} still count together with "
            f"{_called(facts)}, because both count together with other data sets."
        )
    answer = {
        "number": facts["number"],
        "separated": numbers,
        "count_together": [dataset["number"] for dataset in still],
    }
    return answer, lines


def _relate(book: Ledger, arguments: argparse.Namespace) -> Answer:
    book.relate(arguments.one, arguments.other, arguments.why)
    facts, relative = (
        _facts(book.budget_status(arguments.one)),
        _facts(book.budget_status(arguments.other)),
    )
    lines = [f"{_called(facts)} and {_called(relative)} count together."]
    return {"related": [facts["number"], relative["number"]]}, lines


def _recover(book: Ledger, arguments: argparse.Namespace) -> Answer:
    recovered = book.recover()
    lines = [
        f"Fit {spend.number} ({spend.model}): {spend.taken:,} of {spend.planned:,} steps may "
        "have been taken and count."
        for spend in recovered
    ]
    return {"recovered": [_fit_facts(spend) for spend in recovered]}, lines or [
        "No fit was interrupted."
    ]


def _begin_anew(book: Ledger, arguments: argparse.Namespace) -> Answer:
    moved = book.begin_anew()
    lines = [f"{book.path} is a new, empty ledger: it knows no earlier fit and no cap."]
    lines += [] if moved is None else [f"The damaged file was moved to {moved}."]
    return {"ledger": str(book.path), "moved": None if moved is None else str(moved)}, lines


def _new_key(book: Ledger, arguments: argparse.Namespace) -> Answer:
    book.new_key()
    lines = [
        f"{book.path} has a new key. Data sets entered before count together with all others "
        "until you separate them."
    ]
    return {"ledger": str(book.path)}, lines


def _export(book: Ledger, out: str | None) -> None:
    check_out(out)
    kind = ".json" if out is None else Path(out).suffix
    kinds: dict[str, Callable[[], str]] = {
        ".json": lambda: json.dumps(book.export(), indent=2) + "\n",
        ".html": lambda: book.report().to_html(),
        ".csv": lambda: book.report().to_csv(),
        ".yaml": lambda: book.report().composition(),
    }
    if kind not in kinds:
        raise ArgumentError("out", out, f"must end in {', '.join(kinds)}.")
    written(kinds[kind](), out)


_ACTIONS: dict[str, Callable[[Ledger, argparse.Namespace], Answer]] = {
    "list": _list,
    "show": _show,
    "cap": _cap,
    "relate": _relate,
    "separate": _separate,
    "recover": _recover,
    "begin-anew": _begin_anew,
    "new-key": _new_key,
}


# ---- what fit and resume say ---------------------------------------------------------------------


def after_fit(result: FitResult) -> dict[str, Any] | None:
    """What the ledger says about a fit's records; None if there is no ledger, or, with a warning,
    if it cannot be read.
    """
    from workbench.ledger.ledger import LedgerError
    from workbench.ledger.reservation import LedgerWarning

    try:
        status = result.budget_status
        return None if status is None else _facts(status, result.guarantee)
    except (ArgumentError, LedgerError) as error:
        warnings.warn(str(error), LedgerWarning, stacklevel=2)
        return None


def in_one_line(facts: Mapping[str, Any]) -> str:
    """What ``after_fit`` returned, in one line."""
    many = "one fit" if facts["fits"] == 1 else f"{facts['fits']} fits together"
    spent = "spent " if facts["epsilon"] is not None else ""
    line = (
        f"Ledger: on {facts['name']!r} {many} {spent}{_promised(facts['epsilon'], facts['delta'])}"
    )
    if facts["epsilon"] and facts["fits"] > 1:
        line += " (if plans did not depend on results)"
    if facts["caps"]:
        line += (
            f"; {_used(facts)} of the cap is used, which leaves room for "
            f"{facts['how_many_more']:,} more fits like this"
        )
    return printable(f"{line}.")


def saved_runs(*, as_json: bool) -> int:
    """``workbench resume`` without a path: list the runs that have checkpoints."""
    from workbench.fitting import resuming

    runs = [{**dataclasses.asdict(run), "path": str(run.path)} for run in resuming.saved_runs()]
    rows = []
    for run in runs:
        steps = "finished" if run["is_finished"] else f"{run['step']:,} of {run['steps']:,}"
        rows.append(
            (
                run["model"],
                run["data"],
                f"{run['epsilon']:g}",
                steps,
                run["written"],
                shlex.quote(run["path"]),
            )
        )
    lines = _table(("model", "data", "epsilon", "steps", "written", "path"), rows)
    unusable = [str(folder) for folder in resuming.unusable_runs()]
    lines = lines if runs else ["No run has checkpoints."]
    if unusable:
        lines += [
            "",
            "Damaged, edited or from another version. To delete the keys in them: workbench "
            "resume --forget PATH",
        ]
        lines += map(shlex.quote, unusable)
    _say(({"runs": runs, "unusable": unusable}, lines), as_json=as_json)
    return DONE


def forget(path: str, *, as_json: bool) -> int:
    """``workbench resume --forget``."""
    from workbench.fitting import resuming

    spend = resuming.forget(path)
    lines = ["The checkpoints and the secret key in them are deleted. The fit cannot be resumed."]
    if spend is not None:
        lines.append(
            f"Ledger: fit {spend.number} counts {spend.counted:,} of {spend.planned:,} planned "
            "steps."
        )
    _say(
        ({"forgotten": path, "fit": None if spend is None else _fit_facts(spend)}, lines),
        as_json=as_json,
    )
    return DONE


# ---- facts and words -----------------------------------------------------------------------------


def _facts(status: BudgetStatus, like: Guarantee | None = None) -> dict[str, Any]:
    """What the ledger says about a data set, JSON-ready.

    ``epsilon`` is None if the fits together promise nothing; ``used`` if there is no cap, or none
    that counts them.

    :param like: a fit, for ``how_many_more``.
    """
    entry, total = status.entry, status.total
    assert entry is not None
    return {
        "number": entry.number,
        "name": entry.name,
        "unit": entry.unit,
        "first_seen": entry.time,
        "fits": len(status.spends),
        "epsilon": 0.0 if total is None else _finite(total.epsilon),
        "delta": 0.0 if total is None else total.delta,
        "relation": None if total is None else total.relation,
        "reserved": [spend.number for spend in status.reserved],
        "interrupted": list(status.interrupted),
        "stopped": [
            spend.number
            for spend in status.spends
            if spend.counts and spend.counted < spend.planned
        ],
        "caps": [
            {
                "number": owner.number,
                "name": owner.name,
                "why": owner.why,
                **dataclasses.asdict(owner.cap),
            }
            for owner in status.caps
            if owner.cap is not None
        ],
        "used": _finite(status.used()),
        "how_many_more": None if like is None else status.how_many_more(like),
        "relatives": [
            {"number": relative.number, "name": relative.name, "how": how}
            for relative, how in status.relatives
        ],
    }


def _fit_facts(spend: Spend) -> dict[str, Any]:
    """One fit, JSON-ready; ``epsilon`` and ``delta`` are 0 if nothing was shown, and otherwise of
    all planned steps.
    """
    promise = spend.promise
    plain = (
        "number",
        "key",
        "dataset",
        "model",
        "relation",
        "planned",
        "reached",
        "taken",
        "rule",
        "why",
        "seed",
    )
    return {
        **{
            name: getattr(spend, name)
            for name in (*plain, "began", "ended", "who", "run", "result")
        },
        "status": spend.status,
        "promised_epsilon": spend.guarantee.epsilon,
        "epsilon": 0.0 if promise is None else promise.epsilon,
        "delta": 0.0 if promise is None else promise.delta,
    }


def _row(spend: Spend, status: BudgetStatus) -> tuple[object, ...]:
    promise = spend.promise
    numbers = ("0", "0") if promise is None else (upper(promise.epsilon), upper(promise.delta))
    return (
        spend.number,
        spend.dataset,
        spend.model,
        *numbers,
        f"{spend.counted:,} of {spend.planned:,}",
        status.status_of(spend),
        spend.allowed_by,
        spend.began,
        spend.who,
        spend.result or "-",
    )


def _remedy(run: str | None) -> str:
    if run is None or not Path(run).is_dir():
        return (
            "It has no checkpoint. To charge only the steps that it may have taken: workbench "
            "ledger recover"
        )
    return f"To continue it: workbench resume {shlex.quote(run)}"


def _called(facts: Mapping[str, Any]) -> str:
    return f"{facts['number']} ({facts['name']})"


def _promised(epsilon: float | None, delta: float) -> str:
    if epsilon is None:
        return "promise nothing"
    return f"epsilon = {upper(epsilon)} at delta = {upper(delta)}" if delta else "nothing"


def _used(facts: Mapping[str, Any]) -> str:
    """The used share of the tightest cap; "" if there is none."""
    if not facts["caps"]:
        return ""
    return "more than can be counted" if facts["used"] is None else f"{100 * facts['used']:.3g} %"


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    texts = [tuple(header), *(tuple(printable(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    ]
