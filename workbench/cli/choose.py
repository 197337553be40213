"""``workbench choose``: the best of several private fits, with the choice inside the guarantee."""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench._validate import ArgumentError
from workbench.cli import fit
from workbench.cli.shell import (
    STOPPED,
    Options,
    Parser,
    add_command,
    named_values,
    number,
    out_folder,
    stopped_by_interrupt,
)
from workbench.fitting import groups

__all__ = ["add"]

# a look is for columns that are not declared; the others are refused by a choice
_SETTINGS = [name for name in fit.SETTINGS if name not in ("look", "devices", "evaluate_private")]
_CANDIDATES: Options = {
    "--candidate": (
        "one candidate: a model, or a formula, and its settings, as in "
        "'model=logistic,clip=0.5'; repeat it for each",
        {"action": "append", "default": [], "metavar": "NAME=VALUE,..."},
    ),
    "--formula": (
        "one candidate by its formula alone, such as 'ill ~ age + C(ward)'; repeat it for each",
        {"action": "append", "default": []},
    ),
}
# a comma in front of NAME=, unless it is inside of brackets
_COMMA = re.compile(r",(?=\s*\w+=)(?![^()\[\]{}]*[)\]}])")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``choose`` to the command."""
    choose = add_command(
        commands,
        "choose",
        "return the best of a secret number of private fits, the choice inside the guarantee",
        "Candidates are drawn at random, fitted and scored on held-out records, and the best fit "
        "is shown: nothing of the others, not even how many there were. PLAN is a YAML, TOML or "
        "JSON mapping of arguments of workbench.choose without data, whose candidates are a list "
        "of models or mappings ([[candidates]] in TOML), or one mapping of lists ([candidates]), "
        "all combinations of which are compared. An option overrides the plan. After Ctrl-C "
        "nothing is shown, and the same command continues the choice.",
    )
    choose.usage = "workbench choose [PLAN] --data DATA --epsilon EPSILON [OPTION ...]"
    choose.add_argument(
        "plan",
        nargs="?",
        metavar="PLAN",
        help="a .yaml, .yml, .toml or .json file; a model file that it names is run",
    )
    of_models = {**fit.OF_A_FORMULA, **_CANDIDATES}
    of_steps, *_ = fit.add_options(choose, _SETTINGS, of_models)
    of_steps.add_argument(
        "--runs",
        type=number,
        metavar="RUNS",
        help="how many fits there are on average; there are at most ten times as many (default: "
        "20, or one and a half times the number of candidates where that is more)",
    )
    of_steps.add_argument(
        "--by",
        metavar="SCORE",
        help="the score of held-out records that the best fit has: log_likelihood, auc, accuracy, "
        "rmse or mae (default: log_likelihood)",
    )
    # None for what is not given, and may be in the plan
    choose.set_defaults(run=_choose, **dict.fromkeys([*_SETTINGS, "ledger", "checkpoint"]))


def _choose(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from workbench.fitting.choosing import ChoiceStopped, ChooseArguments, candidates_of, planned
    from workbench.fitting.tables import is_formula
    from workbench.ledger.reservation import LedgerWarning
    from workbench.sweeps import plan_file

    # whatever can be refused is refused before a record is read
    folder = out_folder(arguments)
    settings: dict[str, Any] = {"epsilon": None}
    if arguments.plan is not None:
        settings |= plan_file.choice(arguments.plan)
    entries = [*map(_candidate, arguments.candidate), *arguments.formula]
    if bool(entries) == ("candidates" in settings):
        raise ArgumentError(
            "candidates", entries, "must be options --candidate and --formula, or else in a plan."
        )
    listed = candidates_of(
        plan_file.candidates(entries, Path()) if entries else settings.pop("candidates")
    )
    data, of_formula = fit.records(
        arguments, is_formula=any(is_formula(entry["model"]) for entry in listed)
    )
    names = (*_SETTINGS, "runs", "by", "over_cap", "checkpoint", "ledger")
    options = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    name = "workbench choose"
    with (
        warnings.catch_warnings(record=True) as caught,
        stopped_by_interrupt(f"{name}: stopping.") as stop,
    ):
        # others might be shown for each fit, and so tell how many there were
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", LedgerWarning)
        choice = planned(
            ChooseArguments(listed, data, **groups.grouped({**settings, **of_formula, **options}))
        )
        for caution in (*choice.cautions, *choice.scores_ahead):
            print(f"{name}: warning: {caution}", file=sys.stderr)
        try:
            result = choice.outcome(stop)
        except ChoiceStopped:
            print(
                f"{name}: stopped; nothing is shown. The same command continues the choice, whose "
                "epsilon is spent once.",
                file=sys.stderr,
            )
            return STOPPED
        number = result.settings["chosen"]
        chosen = _words(listed[number - 1])
        if not arguments.json:
            print(f"Chosen: candidate {number} of {len(listed)}, {chosen}\n")
        more = {
            "chosen": number,
            "candidate": chosen,
            "intervals": {name: list(pair) for name, pair in result.metric_intervals.items()},
        }
        return fit.finish(result, arguments, folder, caught, **more)


def _candidate(text: str) -> dict[str, Any]:
    """Settings of a candidate from ``NAME=VALUE,...``."""
    texts = [text.strip() for text in _COMMA.split(text)]
    return named_values(texts, "candidate", "'model=logistic,clip=0.5'")


def _words(settings: Mapping[str, Any]) -> str:
    """A candidate, about as ``--candidate`` takes it."""
    from workbench.models import Model

    model = settings["model"]
    if isinstance(model, Model):
        settings = {**settings, "model": {"name": model.name, **model.options}}
    return ",".join(f"{name}={value}" for name, value in settings.items())
