"""``workbench fit`` and ``workbench resume``: one private fit."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import _folders
from workbench._numbers import upper
from workbench._validate import ArgumentError, kind_and_message
from workbench.cli import ledger as ledger_commands
from workbench.cli import processes
from workbench.cli.shell import (
    DONE,
    FAILED,
    STOPPED,
    Options,
    Parser,
    add_command,
    add_json,
    add_quiet,
    add_settings,
    named_values,
    out_folder,
    stopped_by_interrupt,
)
from workbench.cli.table import (
    OF_A_SPLIT,
    add_data,
    check_used,
    dataset,
    declared_columns,
    declared_privacy,
    named_dataset,
    of_tables,
)
from workbench.fitting import groups, settings, sources
from workbench.plots.metrics import interval_of

if TYPE_CHECKING:
    from workbench.fitting.prepared import PreparedFit
    from workbench.results.fit_result import FitResult

__all__ = [
    "OF_A_FORMULA",
    "SETTINGS",
    "add",
    "add_options",
    "finish",
    "fit_arguments",
    "fit_words",
    "records",
]

SETTINGS = [name for name in settings.names() if settings.about(name).is_text]
# options that hold the path of a file or folder
_PATHS = ("path", "ledger", "schema", "group_features", "out", "key_file", "scratch")

# of a saved result, as they are named after a fit
_FILES = ("report.html", "result.json", "posterior.nc", "curves.png")


# ---- options -------------------------------------------------------------------------------------


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``fit`` and ``resume`` to the command."""
    fit = add_command(
        commands,
        "fit",
        "fit a model to data under a privacy guarantee",
        "Prints the guarantee and the held-out metrics; --out saves the result for workbench "
        "predict and workbench sample. Ctrl-C stops the fit and keeps the partial result.",
    )
    fit.usage = "workbench fit --data DATA (--epsilon EPSILON | --no-privacy) [OPTION ...]"
    _add_fit_options(fit)
    fit.set_defaults(run=_fit)
    resume = add_command(
        commands,
        "resume",
        "continue a fit that was stopped or interrupted, or list those that can be continued",
        "The fit ends where it would have ended without the interruption, and its "
        "epsilon is spent once. Its records and its model are read again from the same "
        "files; a model's file is run again. If the run has finished, its result is only "
        "saved and printed.",
    )
    resume.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="folder of the run; without one, all runs are listed",
    )
    resume.add_argument(
        "--forget",
        action="store_true",
        help="delete the run's checkpoints and its secret key; it cannot be resumed then",
    )
    resume.add_argument(
        "--devices",
        help="run on different devices: a number or all; after a stop, not after a crash",
    )
    processes.add_processes(resume)
    _add_run(resume, resume)
    add_quiet(resume)
    add_json(resume)
    resume.set_defaults(run=_resume)


def _add_fit_options(fit: argparse.ArgumentParser) -> None:
    of_steps, of_run, of_execution = add_options(fit, SETTINGS, _OF_A_MODEL | OF_A_FORMULA)
    of_steps.add_argument(
        "--no-privacy",
        dest="privacy",
        action="store_false",
        help="fit public or made-up records without clipping and noise, to check a model, instead "
        "of --epsilon; the result is labelled as not private",
    )
    processes.add_processes(of_execution)
    add_quiet(of_run)


def add_options(
    command: argparse.ArgumentParser,
    names: Collection[str],
    of_models: Options,
) -> list[Any]:
    """Add the options of data, models, settings, output and ledger.

    :param names: of settings. :param of_models: options of models and formulas, each with its help
        and how it is read.
    :return: the groups of options for steps, output and execution.
    """
    titles = ("model", "data", "privacy and steps", "output", "formula", "ledger")
    of_model, of_data, of_steps, of_run, of_formula, of_ledger = map(
        command.add_argument_group, titles
    )
    of_data.add_argument(
        "--data",
        required=True,
        help="a name (see workbench data), or a CSV, Parquet, NumPy (.npz) or packed (.wbr) file",
    )
    add_data(command, of_data)
    sections = {
        argument: command.add_argument_group(groups.GROUPS[argument].title)
        for argument in ("privacy", "training", "execution")
    }
    for option, (words, kind) in of_models.items():
        section = of_formula if option[2:] in _FORMULA_ONLY[1:] else of_model
        section.add_argument(option, help=words, **kind)
    add_settings(of_steps, [name for name in names if groups.group_of(name) is None], epsilon=None)
    for argument, section in sections.items():
        add_settings(section, [name for name in names if groups.group_of(name) == argument])
    _add_run(of_run, of_ledger)
    add_json(of_run)
    ledger = of_ledger.add_mutually_exclusive_group()
    ledger.add_argument(
        "--ledger",
        metavar="FILE",
        help="file of the ledger in which fits on private records are recorded (default: "
        "$WORKBENCH_LEDGER, else that of your user account)",
    )
    ledger.add_argument(
        "--no-ledger",
        dest="ledger",
        action="store_const",
        const=False,
        help="do not record the fit in a ledger; caps are then not enforced",
    )
    sections["execution"].add_argument(
        "--no-checkpoint",
        dest="checkpoint",
        action="store_false",
        help="write no checkpoints; the fit cannot be resumed then",
    )
    return [of_steps, of_run, sections["execution"]]


_OF_A_MODEL: Options = {
    "--model": (
        "a name (see workbench models), or a Python file that registers a model, as FILE.py or "
        "FILE.py:NAME; the file is run, so name only files that you trust (default: logistic)",
        {"default": "logistic"},
    ),
    "--option": (
        "options of the model, such as prior_scale=2",
        {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME=VALUE"},
    ),
}

OF_A_FORMULA: Options = {
    "--formula": (
        "a regression instead of --model, such as 'ill ~ age + C(ward) + (1 | hospital)'; without "
        "--schema the fit learns ranges and levels, within its guarantee",
        {},
    ),
    "--family": ("family of the response, such as poisson (default: by its type)", {}),
    "--link": ("link of the mean (default: the family's first)", {}),
    "--prior": (
        "priors instead of the default ones, as in 'age=Normal(0, 2)'",
        {"nargs": "+", "metavar": "NAME=PRIOR"},
    ),
    "--trials": ("column with the number of trials", {"metavar": "NAME"}),
    "--exposure": ("column with the exposure of a count", {"metavar": "NAME"}),
    "--observed": (
        "column that is 1 where the event was seen, 0 where it was censored",
        {"metavar": "NAME"},
    ),
}


def _add_run(command: argparse._ActionsContainer, ledger: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--out", metavar="FOLDER", help="write report, draws, curves and JSON to this folder"
    )
    reason = settings.about("over_cap", settings.LedgerSettings)
    ledger.add_argument("--over-cap", metavar="REASON", help=reason.help)


def fit_words(arguments: argparse.Namespace) -> list[str]:
    """The words that, after ``fit``, ask for the same fit from any folder: every option that is not
    at its default.
    """
    form, words = _fit_form(), list[str]()
    for name, value in vars(arguments).items():
        if name in ("command", "run") or value == form.get_default(name):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
            continue
        texts = [
            _from_anywhere(name, str(item))
            for item in (value if isinstance(value, list) else [value])
        ]
        words += [f"--{option}={texts[0]}"] if len(texts) == 1 else [f"--{option}", *texts]
    return words


def fit_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments that ``fit_words`` wrote down."""
    return _fit_form().parse_args(words)


def _fit_form() -> argparse.ArgumentParser:
    form = Parser(prog="workbench fit", add_help=False)
    _add_fit_options(form)
    return form


def _from_anywhere(name: str, text: str) -> str:
    """The value of an option; an absolute path where it is one."""
    is_path = {
        "data": sources.is_file(text),
        "model": sources.is_file(text) or ":" in text,
        "bounds": text.endswith(".json"),
    }
    return (
        os.path.abspath(os.path.expanduser(text)) if name in _PATHS or is_path.get(name) else text
    )


# ---- actions -------------------------------------------------------------------------------------


def _fit(arguments: argparse.Namespace) -> int:
    """``workbench fit``; the exit code."""
    from workbench.fitting import fits

    # whatever can be refused is refused before a record is read
    folder = out_folder(arguments)
    processes.join(arguments, ["fit", *fit_words(arguments)])
    model, data, of_formula = _model_and_data(arguments)
    prepared = fits.prepare(
        model,
        data,
        **groups.grouped(
            {name: getattr(arguments, name) for name in (*SETTINGS, "over_cap", "checkpoint")},
            **of_formula,
        ),
        ledger=arguments.ledger,
        private=arguments.privacy,
        origin={"arguments": fit_words(arguments)},
    )
    return _carry_out(prepared, arguments, folder)


def _resume(arguments: argparse.Namespace) -> int:
    """``workbench resume``; the exit code."""
    from workbench.fitting import checkpoints, resuming
    from workbench.results.storage import check_folder

    if arguments.path is None:
        if arguments.out is not None or arguments.over_cap is not None:
            raise ArgumentError(
                "path", None, "name the run to resume; workbench resume alone lists all runs."
            )
        if arguments.forget:
            raise ArgumentError(
                "path", None, "name the run to forget; workbench resume alone lists all runs."
            )
        return ledger_commands.saved_runs(as_json=arguments.json)
    if arguments.forget:
        return ledger_commands.forget(arguments.path, as_json=arguments.json)
    words = checkpoints.newest(arguments.path).facts["origin"].get("arguments")
    former = None if words is None else fit_arguments(words)
    out = former.out if arguments.out is None and former is not None else arguments.out
    folder = None if out is None else check_folder(out)
    processes.join(arguments, ["resume", arguments.path, f"--processes={arguments.processes}"])
    model = data = None
    if former is not None:
        model, data, _ = _model_and_data(former)
        model = model if former.formula is None else None  # which the checkpoint has
    prepared = resuming.prepare(
        arguments.path,
        model=model,
        data=data,
        over_cap=arguments.over_cap,
        devices=arguments.devices,
    )
    return _carry_out(prepared, arguments, folder, is_finished=not prepared.can_resume)


def _model_and_data(arguments: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """(model, data, settings of a formula and its table)."""
    if arguments.formula is not None:
        return (arguments.formula, *records(arguments, is_formula=True))
    model = sources.model(arguments.model, named_values(arguments.option))
    return (model, *records(arguments, is_formula=False))


# options of tables
_OF_FORMULAS = ("schema", "bounds", "missing", "unit_id", "max_rows", "unit_mean", *OF_A_SPLIT)
_FORMULA_ONLY = ("family", "link", "prior", "trials", "exposure", "observed")


def records(arguments: argparse.Namespace, *, is_formula: bool) -> tuple[Any, dict[str, Any]]:
    """(data set or table, settings of a formula and its table) that the options name."""
    from workbench.data.files import read_table

    options = {
        name: value for name in _FORMULA_ONLY if (value := getattr(arguments, name)) is not None
    }
    if not is_formula:
        for name, value in options.items():
            raise ArgumentError(name, value, "applies only to formulas; also give --formula.")
        return dataset(arguments), {}
    check_used(
        arguments, "is not for formulas: --bounds and --schema declare columns.", _OF_FORMULAS
    )
    if "prior" in options:
        options["priors"] = _priors(options.pop("prior"))
    options |= declared_columns(arguments)
    if not sources.is_file(arguments.data):
        return named_dataset(arguments), options
    options |= of_tables(arguments) | declared_privacy(arguments)
    options["name"] = arguments.name or _folders.title_of(arguments.data)
    split = {name: getattr(arguments, name) for name in OF_A_SPLIT}
    options |= {name: value for name, value in split.items() if value is not None}
    frame = read_table(arguments.data, options.get("schema"), unit_id=options.get("unit_id"))
    return frame, options


def _priors(texts: Sequence[str]) -> dict[str, str]:
    """``{name: text of a prior}`` from ``NAME=PRIOR``. Names of columns may have =, as in "ward=b",
    priors have none.
    """
    priors = {}
    for text in texts:
        name, equals, prior = text.rpartition("=")
        if not equals or not name:
            raise ArgumentError(
                "prior", text, "write NAME=PRIOR, as in --prior 'age=Normal(0, 2)'."
            )
        priors[name] = prior
    return priors


def _carry_out(
    prepared: PreparedFit,
    arguments: argparse.Namespace,
    folder: Path | None,
    *,
    is_finished: bool = False,
) -> int:
    """Run a prepared fit to its end, print its result and save it in ``folder``; the exit code."""
    from workbench.ledger.reservation import LedgerWarning

    if processes.follows():
        return _follow(prepared, is_finished)
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
        return finish(prepared.result(), arguments, folder, caught, run=prepared.run_log.folder)


def finish(
    result: FitResult,
    arguments: argparse.Namespace,
    folder: Path | None,
    caught: Sequence[warnings.WarningMessage],
    *,
    run: Path | None = None,
    **more: Any,
) -> int:
    """Print a result and save it in ``folder``; the exit code.

    :param caught: warnings so far, to which those of here are added. :param run: folder of its
        checkpoints. :param more: for the answer in JSON.
    """
    name = f"workbench {arguments.command}"
    is_empty = result.status == "cancelled" and result.guarantee.steps_taken == 0
    if is_empty:
        unsaved = "there is no result" if folder is None else f"nothing is saved in {folder}"
        print(f"{name}: stopped before the first step: {unsaved}.", file=sys.stderr)
    if not arguments.json:
        _print_result(result, run)
        sys.stdout.flush()  # saving takes as long as all the rest of a short fit
    problem = "" if folder is None or is_empty else _saved(result, folder, run)
    ledger = ledger_commands.after_fit(result)
    for warning in caught:
        print(f"{name}: warning: {warning.message}", file=sys.stderr)
    if problem:
        print(f"{name}: {problem}", file=sys.stderr)
    elif result.status == "cancelled" and not is_empty and (folder or run) is not None:
        print(f"{name}: stopped; the partial result is kept.", file=sys.stderr)
    saved = None if problem or is_empty else folder
    _say(result, saved, run, ledger, more, as_json=arguments.json)
    return FAILED if problem else {"done": DONE, "cancelled": STOPPED}.get(result.status, FAILED)


def _follow(prepared: PreparedFit, is_finished: bool) -> int:
    """Take the steps with the first process, which saves and prints; the exit code."""
    status = "done"
    with stopped_by_interrupt("workbench: stopping.") as stop:
        for snapshot in prepared.run(stop) if not is_finished else ():
            status = snapshot.status
    return {"done": DONE, "cancelled": STOPPED}.get(status, FAILED)


def _saved(result: FitResult, folder: Path, run: Path | None) -> str:
    """Save a result on which epsilon was spent.

    :param run: folder of its checkpoints.
    :return: what went wrong and where the release is then; "" if nothing went wrong.
    """
    from workbench.fitting import checkpoints

    try:
        result.save(folder)
        return ""
    except Exception as error:  # whatever it is, the release must not be lost
        failed = f"cannot save in {folder} ({kind_and_message(error)})."
    with contextlib.suppress(ArgumentError):
        if run is not None and (
            checkpoints.newest(run).is_finished or result.status == "cancelled"
        ):
            return (
                f"{failed} The release is kept. To save it: workbench resume "
                f"{shlex.quote(str(run))} --out FOLDER"
            )
    try:
        return (
            f"{failed} It was saved in "
            f"{result.save(tempfile.mkdtemp(prefix='workbench-result-'))} instead."
        )
    except Exception as error:
        return (
            f"{failed} Nor can it be saved elsewhere ({error}). It is lost when this process ends."
        )


def _say(
    result: FitResult,
    folder: Path | None,
    run: Path | None,
    ledger: Mapping[str, Any] | None,
    more: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Print where the result of a fit is and what the ledger says, or all of it as JSON."""
    if as_json:
        answer = {
            "status": result.status,
            "message": result.message,
            "guarantee": {**result.guarantee.to_dict(), **result.guarantee.attack_bounds()},
            "cautions": list(result.cautions),
            "metrics": {
                name: value if math.isfinite(value) else None
                for name, value in result.metrics.items()
            },
            "labels": result.labels,
            "ledger": ledger,
            "resume": str(run) if run is not None and result.status == "cancelled" else None,
            "out": None if folder is None else str(folder),
            **more,
        }
        print(json.dumps(answer, allow_nan=False))
        return
    if folder is not None:
        first, *further = [name for name in _FILES if (folder / name).exists()] or [""]
        print(f"Saved: {folder / first}" + (f" (and {', '.join(further)})" if further else ""))
    if ledger is not None:
        print(ledger_commands.in_one_line(ledger))


def _show_progress(prepared: PreparedFit, stop: Callable[[], bool], *, quiet: bool) -> None:
    from tqdm import tqdm

    with contextlib.ExitStack() as shown:
        bar = None  # an error before the run begins has a line to itself
        for snapshot in prepared.run(stop):
            if bar is None:
                total, first = prepared.privacy.iterations, snapshot.step
                bar = tqdm(
                    total=total,
                    initial=first,
                    unit="step",
                    desc="compiling",
                    file=sys.stderr,
                    disable=quiet,
                    mininterval=0.2 if sys.stderr.isatty() else 10.0,  # few lines in a log file
                )
                shown.enter_context(bar)
            if snapshot.step > first:
                bar.set_description("fitting", refresh=False)
            values = {
                name: f"{value:.4g}"
                for name, value in snapshot.metrics.items()
                if name in ("elbo", "auc", "accuracy")
            }
            spent = (
                {}
                if snapshot.epsilon_so_far is None
                else {"epsilon": upper(snapshot.epsilon_so_far, 3)}
            )
            bar.set_postfix({**spent, **values}, refresh=False)
            bar.update(snapshot.step - bar.n)


def _print_result(result: FitResult, run: Path | None) -> None:
    guarantee, is_stopped = result.guarantee, result.status == "cancelled"
    if is_stopped and guarantee.is_private:
        print(
            f"Stopped after {guarantee.steps_taken:,} of {guarantee.steps:,} steps. The "
            f"guarantee is still epsilon = {upper(guarantee.epsilon)}. The steps taken account "
            f"for epsilon = {upper(guarantee.epsilon_taken)}, provided the decision to stop did "
            "not depend on the outputs.\n"
        )
    if is_stopped and run is not None:
        print(f"To continue within the same promise: workbench resume {shlex.quote(str(run))}\n")
    if result.message:
        print(f"{'Failed' if result.status == 'failed' else 'Note'}: {result.message}\n")
    print(guarantee.statement())
    for caution in result.cautions:
        print(f"\nCaution: {caution}")
    model = result.predictor.model if result.model_is_known else None
    words = "" if model is None else model.target_words
    print(
        f"\nParameters and posterior{f' of the {words}' if words else ''}: {result.release_label}."
    )
    if result.draws and model is not None and model.linear is not None:
        print(f"\n{result.coefficients()}")
    if result.metrics:
        values = ", ".join(
            f"{name} {value:.4f}{interval_of(name, result.metric_intervals)}"
            for name, value in result.metrics.items()
        )
        number = result.data["num_evaluation"]  # None where it is private
        size = "" if number is None else f"{number} evaluation records, "
        print(f"\nHeld-out ({size}{result.metrics_label}): {values}")
    else:
        print(
            "\nNo held-out metrics: no evaluation records are declared public. --evaluate-private "
            "computes metrics of private ones, outside the guarantee."
        )
