"""``workbench account``: the epsilon of a plan, and the plan that an epsilon allows."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import _validate, plots
from workbench._validate import ArgumentError, integer, text
from workbench.cli.shell import (
    DONE,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    add_settings,
    number,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.privacy.selection import Runs

__all__ = ["add"]

_MANY_STEPS = 10**7  # above this one bound takes seconds, and a search minutes
_OF_A_PLAN: Options = {
    "--epsilon": ("the epsilon to keep", {"type": number}),
    "--noise-multiplier": (
        "noise standard deviation / clipping norm",
        {"type": number, "metavar": "SIGMA"},
    ),
    "--delta": ("the delta at which epsilon is stated", {"type": number, "required": True}),
    "--iterations": ("number of steps", {"type": number, "metavar": "T"}),
    "--sampling-rate": (
        "probability with which a record enters a step",
        {"type": number, "metavar": "Q"},
    ),
}
_OF_THE_ANSWER: Options = {
    "--unit": (
        "what is protected, such as a patient with all rows (default: record)",
        {"default": "record"},
    ),
    "--accountant": ("pld, rdp, rdp_classic or fourier (default: pld)", {"default": "pld"}),
    "--compare": ("show the plan under every sampler and accountant", {"action": "store_true"}),
    "--best-of": (
        "publish only the best of several runs, RUNS on average (above 1, at most 1000): "
        "their number is drawn at random and stays secret, and the score that decides is a part of "
        "each run; not with --compare, --figure or --accountant",
        {"type": number, "metavar": "RUNS"},
    ),
    "--figure": ("draw the curve, or the comparison, to this file", {"metavar": "FILE.png"}),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``account`` to the command."""
    account = add_command(
        commands,
        "account",
        "compute the epsilon of a plan, or the noise, steps or sampling rate that keep an epsilon",
        "Reads no data. Shows the epsilon and its curve over the steps. With --epsilon, leave out "
        "one of --noise-multiplier, --iterations and --sampling-rate: it is computed.",
    )
    account.set_defaults(run=_account)
    add_all(account, _OF_A_PLAN)
    add_settings(account, ["sampler", "relation"])
    add_json(account)
    add_all(account, _OF_THE_ANSWER)


def _account(arguments: argparse.Namespace) -> int:
    """``workbench account``; the exit code."""
    from workbench.privacy import accounting, selection
    from workbench.privacy.steps import LAWS

    figure = None if arguments.figure is None else _writable_file(arguments.figure)
    runs = None
    if arguments.best_of is not None:
        mean = _validate.number("best_of", arguments.best_of, above=1, at_most=1000)
        runs = selection.Runs.of_mean(mean)
    plan = _completed_plan(arguments, runs)
    if runs is not None:
        return _best_of(plan, arguments, runs, figure)
    if arguments.compare:
        return _compare(plan, arguments, figure)
    accountant = {"accountant": arguments.accountant}
    epsilon = accounting.round_up(accounting.epsilon(**plan, **accountant), 5)
    curve = accounting.epsilon_curve(**plan)
    rates = accounting.trade_off(
        **{name: value for name, value in plan.items() if name != "delta"},
        false_positive_rates=[0.01, 0.1],
    )
    answer = {
        "epsilon": epsilon,
        "delta": plan["delta"],
        "relation": plan["relation"] or LAWS[plan["sampler"]].relations[0],
        "unit": text("unit", arguments.unit),
        "sampler": plan["sampler"],
        "sampling_rate": float(plan["sampling_rate"]),
        "noise_multiplier": float(plan["noise_multiplier"]),
        "steps": plan["steps"],
        "accountant": arguments.accountant,
        "true_positive_rate_at_1_percent": accounting.round_up(rates[0], 4),
        "true_positive_rate_at_10_percent": accounting.round_up(rates[1], 4),
    }
    if arguments.json:
        print(json.dumps({**answer, "curve": curve}))
    else:
        _print_facts(answer)
        print(f"\n{'steps':>12}  epsilon (upper bound)")
        longest = curve[-1][1] if curve else 0.0
        bar = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
        for count, value in curve:
            print(
                f"{count:>12,}  {value:<10.4g} "
                f"{bar * round(40 * value / longest) if longest > 0 else ''}"
            )
    if figure is not None:
        _save(plots.epsilon_figure(curve, plan["delta"]), figure)
    return DONE


def _print_facts(answer: Mapping[str, Any]) -> None:
    width = max(map(len, answer))
    print("\n".join(f"{name.replace('_', ' '):{width}}  {value}" for name, value in answer.items()))


def _best_of(
    plan: Mapping[str, Any], arguments: argparse.Namespace, runs: Runs, figure: Path | None
) -> int:
    """The cost of publishing the best of several runs of ``plan``."""
    from workbench.privacy import accounting, selection
    from workbench.privacy.steps import Steps

    if figure is not None or arguments.compare or arguments.accountant != "pld":
        raise ArgumentError(
            "best_of", arguments.best_of, "has no --figure, --compare or --accountant."
        )
    delta = plan["delta"]
    of_one = Steps.checked(**{name: plan[name] for name in plan if name != "delta"})
    answer = {
        "epsilon": accounting.round_up(selection.epsilon((of_one,), runs, delta), 5),
        "epsilon_of_one_run": accounting.round_up(accounting.bound(of_one, delta), 5),
        "delta": delta,
        "relation": of_one.relation,
        "unit": text("unit", arguments.unit),
        "sampler": of_one.sampler,
        **of_one.phases[0]._asdict(),
        "mean_runs": float(f"{runs.mean:.5g}"),
        "most_runs": runs.most,
        "gamma": runs.gamma,
    }
    if arguments.json:
        print(json.dumps(answer))
    else:
        _print_facts(answer)
    return DONE


def _completed_plan(arguments: argparse.Namespace, runs: Runs | None) -> dict[str, Any]:
    """The plan that is accounted for. The one of noise, steps and sampling rate that is left out
    follows from epsilon.
    """
    from workbench.privacy import calibration

    plan: dict[str, Any] = {
        "sampler": arguments.sampler,
        "relation": arguments.relation,
        "delta": arguments.delta,
        "sampling_rate": arguments.sampling_rate,
        "noise_multiplier": arguments.noise_multiplier,
        "steps": None
        if arguments.iterations is None
        else integer("iterations", arguments.iterations, at_least=1),
    }
    missing = [
        name for name in ("noise_multiplier", "steps", "sampling_rate") if plan[name] is None
    ]
    if missing[-1:] == ["sampling_rate"] and (arguments.epsilon is None or len(missing) > 1):
        plan["sampling_rate"] = 0.1
        missing.pop()
    options = {
        "noise_multiplier": "--noise-multiplier",
        "steps": "--iterations",
        "sampling_rate": "--sampling-rate",
    }
    if arguments.epsilon is None:
        if missing:
            raise ArgumentError("epsilon", None, f"give --epsilon, or {options[missing[0]]} too.")
        return plan
    if len(missing) != 1:
        remedy = (
            "leave out one"
            if not missing
            else f"give {options[missing[-1]]}: epsilon determines only one"
        )
        raise ArgumentError(
            "epsilon",
            arguments.epsilon,
            f"{remedy} of --noise-multiplier, --iterations, --sampling-rate.",
        )
    find: dict[str, Callable[..., float]] = {
        "noise_multiplier": calibration.noise_multiplier,
        "steps": calibration.max_steps,
        "sampling_rate": calibration.max_sampling_rate,
    }
    remaining = {name: value for name, value in plan.items() if name != missing[0]}
    if (plan["steps"] or 0) >= _MANY_STEPS:
        print(f"workbench account: {plan['steps']:,} steps may take some minutes.", file=sys.stderr)
    if runs is not None:
        if missing != ["noise_multiplier"]:
            raise ArgumentError(
                "best_of",
                arguments.best_of,
                "takes --iterations and --sampling-rate, and finds --noise-multiplier.",
            )
        remaining["runs"] = runs
    plan[missing[0]] = find[missing[0]](epsilon=arguments.epsilon, **remaining)
    return plan


def _compare(plan: dict[str, Any], arguments: argparse.Namespace, figure: Path | None) -> int:
    from workbench.privacy.comparison import compare

    numbers = {name: plan[name] for name in ("sampling_rate", "noise_multiplier", "steps", "delta")}
    table = compare(**numbers)
    if arguments.json:
        rows = table.astype(object).where(table.notna(), None).to_dict(orient="records")
        print(json.dumps({**numbers, "rows": rows}))
    else:
        print(f"{'sampler':21}{'relation':19}{'accountant':13}{'epsilon':>10}   note")
        for row in table.itertuples():
            value = "-" if math.isnan(row.epsilon) else f"{row.epsilon:.4f}"
            print(f"{row.sampler:21}{row.relation:19}{row.accountant:13}{value:>10}   {row.note}")
    if figure is not None:
        title = (
            f"sigma = {numbers['noise_multiplier']:g}, q = {numbers['sampling_rate']:g}, T = "
            f"{numbers['steps']:,}, delta = {numbers['delta']:g}"
        )
        _save(plots.comparison_figure(table, title), figure)
    return DONE


def _save(figure: Figure, path: Path) -> None:
    path.write_bytes(plots.png(figure))
    print(f"Saved: {path}", file=sys.stderr)


def _writable_file(text: str) -> Path:
    """The path of a PNG file, checked without writing to it."""
    path = Path(text).expanduser()
    if path.suffix != ".png":
        raise ArgumentError("figure", text, "must end in .png.")
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentError("figure", text, "cannot write there.")
    return path
