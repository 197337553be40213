"""``workbench fit`` and ``workbench resume``: one private fit from the shell."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench._validate import ArgumentError
from workbench.cli import ledger as ledger_commands
from workbench.cli.shell import (
    DONE,
    FAILED,
    STOPPED,
    bounds,
    fit_arguments,
    fit_words,
    model_options,
    schema,
    stopped_by_interrupt,
)
from workbench.fitting import sources

__all__ = ["fit", "resume"]

_FILES = ("report.html", "result.json", "posterior.nc", "curves.png")  # of a saved result, as they are named after a fit


def fit(arguments: argparse.Namespace) -> int:
    """``workbench fit``; the exit code."""
    from workbench.fitting import fits
    from workbench.results.storage import check_folder

    # everything that can be refused is refused before a record is touched
    folder = None if arguments.out is None else check_folder(arguments.out)
    prepared = fits.prepare(
        _model(arguments),
        _dataset(arguments),
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        iterations=arguments.iterations,
        sampling_rate=arguments.sampling_rate,
        batch_size=arguments.batch_size,
        sampler=arguments.sampler,
        relation=arguments.relation,
        clip=arguments.clip,
        clipping=arguments.clipping,
        gradient=arguments.gradient,
        learning_rate=arguments.learning_rate,
        average=arguments.average,
        strategy=arguments.strategy,
        physical_size=arguments.physical_size,
        num_records=arguments.num_records,
        evaluate_private=arguments.evaluate_private,
        device=arguments.device,
        seed=arguments.seed,
        ledger=arguments.ledger,
        over_cap=arguments.over_cap,
        checkpoint=arguments.checkpoint,
        origin={"arguments": fit_words(arguments)},
    )
    return _carry_out(prepared, arguments, folder)


def resume(arguments: argparse.Namespace) -> int:
    """``workbench resume``; the exit code."""
    from workbench.fitting import checkpoints, resuming
    from workbench.results.storage import check_folder

    if arguments.path is None:
        if arguments.out is not None or arguments.over_cap is not None:
            raise ArgumentError("path", None, "name the run to go on with; workbench resume alone lists them.")
        if arguments.forget:
            raise ArgumentError("path", None, "name the run to forget; workbench resume alone lists them.")
        return ledger_commands.saved_runs(as_json=arguments.json)
    if arguments.forget:
        return ledger_commands.forget(arguments.path, as_json=arguments.json)
    words = checkpoints.newest(arguments.path).facts["origin"].get("arguments")
    former = None if words is None else fit_arguments(words)
    out = former.out if arguments.out is None and former is not None else arguments.out
    folder = None if out is None else check_folder(out)
    prepared = resuming.prepare(
        arguments.path,
        model=None if former is None else _model(former),
        data=None if former is None else _dataset(former),
        over_cap=arguments.over_cap,
    )
    return _carry_out(prepared, arguments, folder, is_finished=not prepared.can_resume)


def _model(arguments: argparse.Namespace) -> Any:
    return sources.model(arguments.model, model_options(arguments.option))


def _dataset(arguments: argparse.Namespace) -> Any:
    from workbench import data

    split = {"evaluation_fraction": arguments.evaluation_fraction, "split_seed": arguments.split_seed}
    if not sources.is_file(arguments.data):
        return data.load(arguments.data, path=arguments.path, **split)
    if not (arguments.bounds or arguments.schema or arguments.private_scaling):
        raise ArgumentError(
            "bounds",
            None,
            "declare the public range of each feature, as in --bounds age=0:120 income=0:1e6, or name a --schema FILE.json.",
        )
    return data.from_file(
        arguments.data,
        target=arguments.target,
        bounds=bounds(arguments.bounds) if arguments.bounds else None,
        schema=schema(arguments.schema) if arguments.schema else None,
        features=arguments.features,
        positive=arguments.positive,
        classes=arguments.classes,
        threshold=arguments.threshold,
        group=arguments.group,
        groups=arguments.groups,
        group_features=None if arguments.group_features is None else sources.group_features(arguments.group_features),
        evaluation_is_public=arguments.evaluation_public,
        private_scaling=arguments.private_scaling,
        **split,
    )


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _carry_out(prepared: Any, arguments: argparse.Namespace, folder: Path | None, *, is_finished: bool = False) -> int:
    """Take the steps of a prepared fit that are left, save its result in ``folder``, print it; the exit code."""
    from workbench.ledger.reservation import LedgerWarning

    name = f"workbench {arguments.command}"
    for caution in prepared.cautions:
        print(f"{name}: warning: {caution}", file=sys.stderr)
    with (
        warnings.catch_warnings(record=True) as caught,
        stopped_by_interrupt(f"{name}: stopping.") as stop,
    ):
        warnings.simplefilter("always", LedgerWarning)
        if not is_finished:
            _show_progress(prepared, stop, quiet=arguments.quiet)
        result, run = prepared.result(), prepared.recording.folder
        is_empty = result.status == "cancelled" and result.guarantee.steps_taken == 0
        if is_empty:
            unsaved = "there is no result" if folder is None else f"nothing is saved in {folder}"
            print(f"{name}: stopped before the first step: {unsaved}.", file=sys.stderr)
        problem = "" if folder is None or is_empty else _saved(result, folder, run)
        ledger = ledger_commands.after_fit(result)
        for warning in caught:
            print(f"{name}: warning: {warning.message}", file=sys.stderr)
        if problem:
            print(f"{name}: {problem}", file=sys.stderr)
        elif result.status == "cancelled" and not is_empty and (folder or run) is not None:
            print(f"{name}: stopped; the partial result is kept.", file=sys.stderr)
        _say(result, None if problem or is_empty else folder, run, ledger, as_json=arguments.json)
    return FAILED if problem else {"done": DONE, "cancelled": STOPPED}.get(result.status, FAILED)


def _saved(result: Any, folder: Path, run: Path | None) -> str:
    """Save a result on which epsilon was spent; what went wrong and how to get it back, "" where nothing did.

    :param run: folder of its checkpoints.
    """
    from workbench.fitting import checkpoints

    try:
        result.save(folder)
        return ""
    except Exception as error:  # whatever it is, the release must not be lost
        failed = f"cannot save in {folder} ({' '.join(f'{type(error).__name__}: {error}'.split())})."
    with contextlib.suppress(ArgumentError):
        if run is not None and (checkpoints.newest(run).is_finished or result.status == "cancelled"):
            return f"{failed} The release is kept. To save it: workbench resume {shlex.quote(str(run))} --out FOLDER"
    try:
        return f"{failed} It was saved in {result.save(tempfile.mkdtemp(prefix='workbench-result-'))} instead."
    except Exception as error:
        return f"{failed} Nor anywhere else ({error}): it is lost when this process ends."


def _say(result: Any, folder: Path | None, run: Path | None, ledger: Any, *, as_json: bool) -> None:
    """The answer of a fit on standard output."""
    run = run if result.status == "cancelled" else None
    if as_json:
        answer = {
            "state": result.status,
            "message": result.message,
            "guarantee": {**result.guarantee.to_dict(), **result.guarantee.attack_bounds()},
            "metrics": _finite(result.metrics),
            "labels": result.labels,
            "ledger": ledger,
            "resume": None if run is None else str(run),
            "out": None if folder is None else str(folder),
        }
        print(json.dumps(answer, allow_nan=False))
    else:
        _print_result(result, folder, run)
        if ledger is not None:
            print(ledger_commands.in_one_line(ledger))


def _show_progress(prepared: Any, stop: Callable[[], bool], *, quiet: bool) -> None:
    from tqdm import tqdm

    with contextlib.ExitStack() as shown:
        bar = None  # until the run has begun: what refuses it has a line to itself
        for snapshot in prepared.run(stop):
            if bar is None:
                total, first = prepared.privacy.iterations, snapshot.step
                bar = tqdm(
                    total=total, initial=first, unit="step", desc="compiling", file=sys.stderr, disable=quiet,
                    mininterval=0.2 if sys.stderr.isatty() else 10.0,  # a log file wants a line now and then
                )  # fmt: skip
                shown.enter_context(bar)
            if snapshot.step > first:
                bar.set_description("fitting", refresh=False)
            values = {
                name: f"{value:.4g}" for name, value in snapshot.metrics.items() if name in ("elbo", "auc", "accuracy")
            }
            bar.set_postfix({"epsilon": f"{snapshot.epsilon_so_far:.3g}", **values}, refresh=False)
            bar.update(snapshot.step - bar.n)


def _print_result(result: Any, folder: Path | None, run: Path | None) -> None:
    guarantee = result.guarantee
    if result.status == "cancelled":
        print(
            f"Stopped after {guarantee.steps_taken:,} of {guarantee.steps:,} steps. Spent: the promise stays epsilon = "
            f"{guarantee.epsilon:g}; the steps taken alone come to epsilon = {guarantee.epsilon_taken:g}, if the stop was "
            "not decided by the outputs.\n"
        )
    if run is not None:
        print(f"To go on within the same promise: workbench resume {shlex.quote(str(run))}\n")
    if result.message:
        print(f"{'Failed' if result.status == 'failed' else 'Note'}: {result.message}\n")
    print(guarantee.statement())
    print(f"\nParameters and posterior: {result.release_label}.")
    if result.metrics:
        values = ", ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
        print(f"\nHeld-out ({result.data['num_evaluation']} evaluation records, {result.metrics_label}): {values}")
    else:
        print("\nNo held-out metrics: the evaluation records are private (--evaluate-private: outside the guarantee).")
    if folder is not None:
        first, *others = [name for name in _FILES if (folder / name).exists()] or [""]
        print(f"Saved: {folder / first}" + (f" (and {', '.join(others)})" if others else ""))
