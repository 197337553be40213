"""The ``workbench`` command: fit, resume, ledger, sweep, predict, sample, account, audit, models, data, lab, app.

Standard output carries results (with ``--json`` one object and nothing else), standard error progress and errors.
Exit codes: 0 done, 1 failed, 2 unusable arguments (one line), 130 stopped with the partial result kept.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench import _interrupt
from workbench._csv import to_csv
from workbench._validate import ArgumentError, integer
from workbench.cli import lab, sweep
from workbench.cli import ledger as _ledger_command
from workbench.cli.shell import (
    DONE,
    FAILED,
    STOPPED,
    UNUSABLE,
    bounds,
    check_out,
    fit_arguments,
    fit_words,
    in_options,
    model_options,
    parser,
    printable,
    schema,
    stopped_by_interrupt,
    written,
)
from workbench.fitting import sources
from workbench.privacy.steps import SAMPLERS

__all__ = ["main"]

_FILES = ("report.html", "result.json", "posterior.nc", "curves.png")  # of a saved result, as they are named after a fit
_MANY_STEPS = 10**7  # beyond which a bound takes seconds, and a search many of them


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


def _fit(arguments: argparse.Namespace) -> int:
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


def _resume(arguments: argparse.Namespace) -> int:
    from workbench.fitting import checkpoints, resuming
    from workbench.results.storage import check_folder

    if arguments.path is None:
        if arguments.out is not None or arguments.over_cap is not None:
            raise ArgumentError("path", None, "name the run to go on with; workbench resume alone lists them.")
        if arguments.forget:
            raise ArgumentError("path", None, "name the run to forget; workbench resume alone lists them.")
        return _ledger_command.saved_runs(as_json=arguments.json)
    if arguments.forget:
        return _ledger_command.forget(arguments.path, as_json=arguments.json)
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
        is_empty = result.state == "cancelled" and result.guarantee.steps_taken == 0
        if is_empty:
            unsaved = "there is no result" if folder is None else f"nothing is saved in {folder}"
            print(f"{name}: stopped before the first step: {unsaved}.", file=sys.stderr)
        problem = "" if folder is None or is_empty else _saved(result, folder, run)
        ledger = _ledger_command.after_fit(result)
        for warning in caught:
            print(f"{name}: warning: {warning.message}", file=sys.stderr)
        if problem:
            print(f"{name}: {problem}", file=sys.stderr)
        elif result.state == "cancelled" and not is_empty and (folder or run) is not None:
            print(f"{name}: stopped; the partial result is kept.", file=sys.stderr)
        _say(result, None if problem or is_empty else folder, run, ledger, as_json=arguments.json)
    return FAILED if problem else {"done": DONE, "cancelled": STOPPED}.get(result.state, FAILED)


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
        if run is not None and (checkpoints.newest(run).is_finished or result.state == "cancelled"):
            return f"{failed} The release is kept. To save it: workbench resume {shlex.quote(str(run))} --out FOLDER"
    try:
        return f"{failed} It was saved in {result.save(tempfile.mkdtemp(prefix='workbench-result-'))} instead."
    except Exception as error:
        return f"{failed} Nor anywhere else ({error}): it is lost when this process ends."


def _say(result: Any, folder: Path | None, run: Path | None, ledger: Any, *, as_json: bool) -> None:
    """The answer of a fit on standard output."""
    run = run if result.state == "cancelled" else None
    if as_json:
        answer = {
            "state": result.state,
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
            print(_ledger_command.in_one_line(ledger))


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
    if result.state == "cancelled":
        print(
            f"Stopped after {guarantee.steps_taken:,} of {guarantee.steps:,} steps. Spent: the promise stays epsilon = "
            f"{guarantee.epsilon:g}; the steps taken alone come to epsilon = {guarantee.epsilon_taken:g}, if the stop was "
            "not decided by the outputs.\n"
        )
    if run is not None:
        print(f"To go on within the same promise: workbench resume {shlex.quote(str(run))}\n")
    if result.message:
        print(f"{'Failed' if result.state == 'failed' else 'Note'}: {result.message}\n")
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


def _account(arguments: argparse.Namespace) -> int:
    from workbench.privacy import accounting

    figure = None if arguments.figure is None else _writable_file("figure", arguments.figure)
    plan = _completed_plan(arguments)
    if arguments.compare:
        return _compare(plan, arguments, figure)
    accountant = {"accountant": arguments.accountant}
    epsilon = accounting.round_up(accounting.epsilon(**plan, **accountant), 5)
    curve = accounting.epsilon_curve(**plan)
    rates = accounting.trade_off(
        **{name: value for name, value in plan.items() if name != "delta"}, false_positive_rates=[0.01, 0.1]
    )
    answer = {
        "epsilon": epsilon,
        "delta": plan["delta"],
        "relation": plan["relation"] or SAMPLERS[plan["sampler"]][0],
        "sampler": plan["sampler"],
        "sampling_rate": plan["sampling_rate"],
        "noise_multiplier": plan["noise_multiplier"],
        "steps": plan["steps"],
        "accountant": arguments.accountant,
        "true_positive_rate_at_1_percent": accounting.round_up(rates[0], 4),
        "true_positive_rate_at_10_percent": accounting.round_up(rates[1], 4),
    }
    if arguments.json:
        print(json.dumps({**answer, "curve": curve}))
    else:
        width = max(map(len, answer))
        print("\n".join(f"{name.replace('_', ' '):{width}}  {value}" for name, value in answer.items()))
        print(f"\n{'steps':>12}  epsilon (upper bound)")
        longest = curve[-1][1] if curve else 0.0
        bar = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
        for count, value in curve:
            print(f"{count:>12,}  {value:<10.4g} {bar * round(40 * value / longest) if longest > 0 else ''}")
    if figure is not None:
        from workbench.plots import epsilon_figure, png

        figure.write_bytes(png(epsilon_figure(curve, plan["delta"])))
        print(f"Saved: {figure}", file=sys.stderr)
    return DONE


def _completed_plan(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is accounted for: the one of noise, steps and sampling rate that was left out follows from epsilon."""
    from workbench.privacy import calibration

    plan: dict[str, Any] = {
        "sampler": arguments.sampler,
        "relation": arguments.relation,
        "delta": arguments.delta,
        "sampling_rate": arguments.sampling_rate,
        "noise_multiplier": arguments.noise_multiplier,
        "steps": None if arguments.iterations is None else integer("iterations", arguments.iterations, at_least=1),
    }
    missing = [name for name in ("noise_multiplier", "steps", "sampling_rate") if plan[name] is None]
    if missing[-1:] == ["sampling_rate"] and (arguments.epsilon is None or len(missing) > 1):
        plan["sampling_rate"] = 0.1
        missing.pop()
    options = {"noise_multiplier": "--noise-multiplier", "steps": "--iterations", "sampling_rate": "--sampling-rate"}
    if arguments.epsilon is None:
        if missing:
            raise ArgumentError("epsilon", None, f"give --epsilon, or {options[missing[0]]} as well.")
        return plan
    if len(missing) != 1:
        given = "leave one out of" if not missing else f"give {options[missing[-1]]}; one is found from epsilon:"
        raise ArgumentError("epsilon", arguments.epsilon, f"{given} --noise-multiplier, --iterations, --sampling-rate.")
    find: dict[str, Callable[..., float]] = {
        "noise_multiplier": calibration.noise_multiplier,
        "steps": calibration.max_steps,
        "sampling_rate": calibration.max_sampling_rate,
    }
    known = {name: value for name, value in plan.items() if name != missing[0]}
    if (plan["steps"] or 0) >= _MANY_STEPS:
        print(f"workbench account: {plan['steps']:,} steps: this may take some minutes.", file=sys.stderr)
    plan[missing[0]] = find[missing[0]](epsilon=arguments.epsilon, **known)
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
        from workbench.plots import comparison_figure, png

        title = (
            f"sigma = {numbers['noise_multiplier']:g}, q = {numbers['sampling_rate']:g}, T = {numbers['steps']:,}, "
            f"delta = {numbers['delta']:g}"
        )
        figure.write_bytes(png(comparison_figure(table, title)))
        print(f"Saved: {figure}", file=sys.stderr)
    return DONE


def _writable_file(argument: str, text: str) -> Path:
    """The path of a PNG file that can be written; nothing is left behind by the check."""
    path = Path(text).expanduser()
    if path.suffix != ".png":
        raise ArgumentError(argument, text, "must end in .png.")
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentError(argument, text, "cannot write there.")
    return path


def _audit(arguments: argparse.Namespace) -> int:
    from workbench.auditing import PARTS, audit

    print("workbench audit: running the core on canaries...", file=sys.stderr)
    result = audit(
        sources.model(arguments.model, {}),
        arguments.data,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        iterations=arguments.iterations,
        sampling_rate=0.5 if arguments.sampling_rate is None else arguments.sampling_rate,
        sampler=arguments.sampler,
        relation=arguments.relation,
        clip=arguments.clip,
        clipping=arguments.clipping,
        gradient=arguments.gradient,
        strategy=arguments.strategy,
        mode=arguments.mode,
        trials=arguments.trials,
        num_canaries=arguments.canaries,
        confidence=arguments.confidence,
        seed=arguments.seed,
        bug=arguments.planted_bug,
        parts=arguments.parts or PARTS,
    )
    print(json.dumps(result.to_dict()) if arguments.json else result.statement())
    return DONE if result.passed else FAILED


def _models(arguments: argparse.Namespace) -> int:
    from workbench import models

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        entries = {name: _describe(name) for name in models.names()}
    for warning in caught:
        print(f"workbench models: warning: {warning.message}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(entries, default=str))
    else:
        for name, entry in entries.items():
            print(f"{name}: {_model_line(entry)}")
        print("Your own: --model FILE.py or --model FILE.py:NAME (the file is run).")
    return DONE


def _describe(name: str) -> dict[str, Any]:
    """What a listing says about a model; one that cannot be made has its error in place of summary and options."""
    from workbench import models

    try:
        model = models.get(name)
    except ArgumentError as error:
        return {"origin": models.origin(name), "error": error.expectation}
    return {"summary": model.summary, "options": dict(model.options), "origin": models.origin(name)}


def _model_line(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"unusable: {entry['error']}"
    options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
    return f"{entry['summary']} " + (f"Options: {options}. " if options else "") + f"Origin: {entry['origin']}."


def _data(arguments: argparse.Namespace) -> int:
    from workbench import data

    entries = {name: data.info(name) for name in data.all_names()}
    if arguments.json:
        print(json.dumps({name: dataclasses.asdict(info) for name, info in entries.items()}))
    else:
        for info in entries.values():
            print(info)
        print("Your own: --data FILE.csv --target COLUMN --bounds FEATURE=LOW:HIGH ... (or --schema FILE.json)")
    return DONE


def _lab(arguments: argparse.Namespace) -> int:
    return lab.serve_lab(no_browser=arguments.no_browser, further=arguments.jupyter)


def _app(arguments: argparse.Namespace) -> int:
    return lab.serve_app(arguments.page, no_browser=arguments.no_browser, further=arguments.voila)


def _predict(arguments: argparse.Namespace) -> int:
    from workbench import results

    check_out(arguments.out)
    result = results.load(arguments.result)
    records = sources.table("records", arguments.records)
    predictions = result.predict(records)
    if predictions.ndim == 1:
        table = records.assign(prediction=predictions)
    else:
        columns = {f"prediction_{place}": predictions[:, place] for place in range(predictions.shape[1])}
        table = records.assign(**columns)
    written(to_csv(table, index=False), arguments.out)
    return DONE


_QUICKLY_DRAWN = 100_000  # records, within seconds


def _sample(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from workbench import results
    from workbench.results.synthesis import synthetic_records

    check_out(arguments.out)
    result = results.load(arguments.result)
    given = None if arguments.given is None else sources.table("given", arguments.given)
    total = len(given) if given is not None else integer("count", arguments.count, at_least=1)
    hidden = total < _QUICKLY_DRAWN
    with tqdm(
        total=total, unit="record", unit_scale=True, desc="drawing", file=sys.stderr, delay=0.1, disable=hidden
    ) as bar:
        drawn = synthetic_records(result, arguments.count, given, arguments.seed, bar.update)
    if hasattr(drawn, "to_csv"):
        written(to_csv(drawn, index=False), arguments.out)
        return DONE
    if arguments.out is None or not arguments.out.endswith(".npy"):
        raise ArgumentError("out", arguments.out, "these records are images: name a .npy file.")
    import numpy

    numpy.save(Path(arguments.out).expanduser(), drawn)
    print(f"Saved: {arguments.out}", file=sys.stderr)
    return DONE


_COMMANDS = {
    "fit": _fit, "resume": _resume, "ledger": _ledger_command.ledger, "sweep": sweep.sweep, "account": _account,
    "audit": _audit, "models": _models, "data": _data, "predict": _predict, "sample": _sample, "lab": _lab, "app": _app,
}  # fmt: skip


def _apart(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of ``workbench app`` and what stands after its --, which argparse would take for the name of a page."""
    if words[:1] == ["app"] and "--" in words:
        place = words.index("--")
        return words[:place], words[place + 1 :]
    return words, []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if arguments is None:
        _interrupt.leave_at_once()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that has no letter for something shows its number
            stream.reconfigure(errors="backslashreplace")
    words, further = _apart(list(sys.argv[1:] if arguments is None else arguments))
    parsed = parser(_COMMANDS).parse_args(words)
    if parsed.command == "app":
        parsed.voila = [*parsed.voila, *further]
    try:
        return int(parsed.run(parsed))
    except ArgumentError as error:
        message = printable(in_options(str(error)))
    except KeyboardInterrupt:
        print(_interrupt.sentence(parsed.command), file=sys.stderr)
        return STOPPED
    except ValueError as error:
        from workbench.inference import PrivacyModelError

        if not isinstance(error, PrivacyModelError):
            raise
        message = str(error)
    print(f"workbench {parsed.command}: {message}", file=sys.stderr)
    return UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
