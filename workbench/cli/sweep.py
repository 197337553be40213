"""``workbench sweep``: run the fits of a plan, here or on other processes or machines."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench._validate import ArgumentError, integer
from workbench.cli.shell import (
    DONE,
    FAILED,
    STOPPED,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    add_quiet,
    number,
    out_folder,
    stopped_by_interrupt,
)
from workbench.cli.table import RECORDS, add_packed, packed
from workbench.fitting.groups import Execution, is_a

if TYPE_CHECKING:
    from workbench.sweeps import SweepResult
    from workbench.sweeps.grid import Grid
    from workbench.sweeps.sweeping import PreparedSweep

__all__ = ["add"]

_MOST_WORKERS = 1024
_SECONDS = 10  # time that a scheduler has to answer


_OPTIONS: Options = {
    "plan": (
        "a .yaml, .yml, .toml or .json file; a model file that it names is run",
        {"metavar": "PLAN"},
    ),
    "--store": (
        "file for finished fits; those that it already has are not run again",
        {"metavar": "FILE.sqlite"},
    ),
    "--out": ("folder for table.csv, figure.png and a copy of the plan", {"metavar": "FOLDER"}),
    "--accept-total-epsilon": (
        "run on private records without asking if all fits together spend at most this",
        {"type": number, "metavar": "X"},
    ),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``sweep`` to the command."""
    sweep = add_command(
        commands,
        "sweep",
        "fit a model over a grid of settings, which a plan in a file lists",
        "The plan is a YAML, TOML or JSON mapping of the arguments of "
        "workbench.sweep, such as model, data, epsilons, seeds and iterations. Relative "
        "paths in it are relative to its folder. Data are a name, or a mapping: {name: "
        "adult, path: adult.csv}, {file: clinic.csv, target: ill, bounds: {age: [0, 120]}}, "
        "{file: clinic.wbr, key_file: clinic.key, reading: oblivious} or {generate: "
        "hierarchical, num_features: 5}. A sweep over private records says what epsilon it "
        "spends in total, and asks before it begins.",
    )
    sweep.set_defaults(run=_sweep)
    add_all(sweep, _OPTIONS)
    workers = sweep.add_mutually_exclusive_group()
    workers.add_argument(
        "--devices",
        metavar="COUNT",
        help="spread the fits that run together over this many devices, or all",
    )
    workers.add_argument(
        "--workers", type=number, metavar="N", help="fit in N processes on this machine's CPUs"
    )
    workers.add_argument(
        "--scheduler", metavar="ADDRESS", help="fit on a dask cluster, such as tcp://host:8786"
    )
    sweep.add_argument(
        "--max-lanes",
        type=number,
        metavar="L",
        help="most fits that run together (default: as many as memory allows)",
    )
    sweep.add_argument(
        "--dry-run",
        action="store_true",
        help="check the plan, compute the noise and say what would be spent, without fitting",
    )
    add_json(sweep)
    add_quiet(sweep)
    sweep.add_argument(
        "--data",
        metavar=f"FILE{RECORDS}",
        help="file that workbench pack wrote, for a plan that names no data",
    )
    add_packed(sweep, sweep)


def _sweep(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from workbench.sweeps import plan_file, sweeping
    from workbench.sweeps.store import Store, key_path

    # whatever can be refused is refused before a record is read
    folder = out_folder(arguments)
    lanes = (
        None
        if arguments.max_lanes is None
        else integer("max_lanes", arguments.max_lanes, at_least=1)
    )
    plan = plan_file.read(arguments.plan)
    if arguments.devices is not None:
        execution = is_a(Execution)("execution", plan.get("execution", {})).changed()
        plan["execution"] = {**execution, "devices": arguments.devices}
    _take_data(plan, arguments)
    file = plan.pop("store", None)
    if arguments.store is not None:
        file = Path(arguments.store).expanduser()
    if arguments.dry_run and file is not None and not file.exists() and not key_path(file).exists():
        file = None  # a dry run leaves no empty file
    with _executor(arguments) as executor, contextlib.closing(Store(file)) as store:
        prepared = sweeping.prepare(**plan, store=store)
        for caution in prepared.cautions:
            print(f"workbench sweep: warning: {caution}", file=sys.stderr)
        statuses = [row["status"] for row in store.rows(list(prepared.cells))]
        counts = {"planned": len(prepared.cells), "stored": statuses.count("done")}
        if arguments.dry_run:
            _say(prepared.result(), counts, prepared, as_json=arguments.json)
            return DONE
        if not _accepted(prepared, arguments.accept_total_epsilon, is_kept=file is not None):
            print("workbench sweep: not accepted; no epsilon spent.", file=sys.stderr)
            return STOPPED
        with stopped_by_interrupt("workbench sweep: stopping; finished fits are kept.") as stop:
            try:
                with sweeping.progress_bar(arguments.quiet) as show:
                    result = prepared.run(stop, show, executor=executor, max_lanes=lanes)
            except OSError as error:
                print(f"workbench sweep: {error}", file=sys.stderr)
                return FAILED
            if folder is not None:
                _save(result, Path(arguments.plan).expanduser(), folder)
        _say(result, counts, prepared, as_json=arguments.json)
    return _exit_code(result)


def _take_data(plan: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Put the records that ``--data`` names into the plan. :raises ArgumentError: naming ``data``
    or what needs it.
    """
    if arguments.data is None:
        for name in ("key_file", "keyring", "reading", "scratch", "unit"):
            if (value := getattr(arguments, name)) is not None:
                raise ArgumentError(
                    name,
                    value,
                    "is for --data: a plan that names data says itself how they are opened.",
                )
    elif "data" in plan:
        raise ArgumentError(
            "data", arguments.data, "is given, and the plan names data too: leave one out."
        )
    else:
        plan["data"] = packed(arguments)


def _executor(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    """The executor of the fits: processes or a dask cluster, None for this process."""
    if arguments.workers is not None:
        from workbench.sweeps.executors import Processes

        return Processes(integer("workers", arguments.workers, at_least=1, at_most=_MOST_WORKERS))
    if arguments.scheduler is not None:
        return _client(arguments.scheduler)
    return contextlib.nullcontext()


def _client(address: str) -> contextlib.AbstractContextManager[Any]:
    """A client of a dask scheduler. :raises ArgumentError: naming ``scheduler``."""
    try:
        from distributed import Client
    except ImportError:
        raise ArgumentError(
            "scheduler", address, 'dask is not installed: pip install "dpvi-workbench[cluster]".'
        ) from None
    try:
        return Client(address, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            "scheduler", address, f"cannot be reached ({' '.join(str(error).split())})."
        ) from None


def _accepted(prepared: PreparedSweep, total_epsilon: float | None, *, is_kept: bool) -> bool:
    """Whether what the sweep spends is accepted, by ``total_epsilon`` or by the user at the
    terminal.

    :param is_kept: whether a store keeps what the fits release.
    :raises ArgumentError: if it is not accepted and there is no terminal to ask at.
    """
    from workbench.sweeps import BudgetError

    if prepared.total is not None and not is_kept:
        caution = (
            "without --store only the table is kept; the released parameters are lost when the "
            "command ends."
        )
        print(f"workbench sweep: warning: {caution}", file=sys.stderr)
    try:
        prepared.accept(total_epsilon)
    except BudgetError as error:
        needed = error.total.epsilon
        if (
            total_epsilon is not None
            or not math.isfinite(needed)
            or not (sys.stdin.isatty() and sys.stderr.isatty())
        ):
            hint = (
                f" To run it, give --accept-total-epsilon {needed}."
                if math.isfinite(needed)
                else ""
            )
            raise ArgumentError(
                "accept_total_epsilon", total_epsilon, f"{prepared.statement()}{hint}"
            ) from None
        print(f"{prepared.statement()}\nSpend this? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    return True


def _exit_code(result: SweepResult) -> int:
    if result.status == "done":
        return DONE if (result.table["status"] == "done").all() else FAILED
    return STOPPED if result.status == "stopped" else FAILED


# ---- what is shown -------------------------------------------------------------------------------


def _save(result: SweepResult, plan: Path, folder: Path) -> None:
    from workbench.plots import png

    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"plan{plan.suffix}").write_bytes(plan.read_bytes())
    saved = [result.to_csv(folder / "table.csv")]
    with contextlib.suppress(ArgumentError):  # no private fit has metrics that may be shown
        (folder / "figure.png").write_bytes(png(result.plot()))
        saved.append(folder / "figure.png")
    for path in saved:
        print(f"Saved: {path}", file=sys.stderr)


def _say(
    result: SweepResult, counts: Mapping[str, int], prepared: PreparedSweep, *, as_json: bool
) -> None:
    if as_json:
        print(json.dumps(_answer(result, counts), allow_nan=False))
        return
    if result.status == "planned":
        stored, to_run = counts["stored"], len(prepared.runs)
        unusable = counts["planned"] - stored - to_run
        print(
            f"{counts['planned']} fits: {stored} in the store, {to_run} to run, {unusable} that "
            "cannot be run."
        )
    else:
        _print_metrics(result, prepared.grid)
        statuses = result.table["status"]
        print(
            f"{(statuses == 'done').sum()} of {counts['planned']} fits are "
            f"done. {result.message}".rstrip()
        )
    unfinished = [
        (row["status"], row["message"])
        for row in result.table.to_dict("records")
        if row["status"] != "done"
    ]
    if result.status == "planned":
        unfinished = [(row["status"], row["message"]) for row in prepared.refused]
    for (status, message), count in Counter(unfinished).items():
        print(f"{count} {status}: {message}")
    print(result.statement)


def _answer(result: SweepResult, counts: Mapping[str, int]) -> dict[str, Any]:
    table = result.table.replace([math.inf, -math.inf], math.nan)
    total = None if result.total is None else dataclasses.asdict(result.total)
    return {
        "status": result.status,
        "message": result.message,
        "statement": result.statement,
        "total": total
        and {name: None if value == math.inf else value for name, value in total.items()},
        **counts,
        "fits": table.astype(object).where(table.notna(), None).to_dict(orient="records"),
    }


def _print_metrics(result: SweepResult, grid: Grid) -> None:
    """Print mean and deviation of the first metric over fits that differ only in randomness."""
    table = result.table[lambda table: table["status"] == "done"]
    if not result.metrics:
        if len(table):
            print(
                "No held-out metrics: the evaluation records are private (covered_scores: through "
                "noise; evaluate_private: outside the guarantee), or there are none.\n"
            )
        return
    metric = result.metrics[0]
    by = [
        "method",
        *grid.varying,
        *(["options"] if "model" in grid.varying else []),
        "epsilon",
        "label",
    ]
    groups = table.groupby(by, dropna=False, sort=False)[metric]
    summary = groups.agg(fits="size", mean="mean", deviation="std").reset_index()
    print(f"Held-out {metric}:\n")
    shown = summary.astype(object).where(summary.notna(), "-").map(_shown)
    print(shown.to_string(index=False), end="\n\n")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
