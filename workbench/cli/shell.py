"""What the ``workbench`` command understands: its options, their forms, output, Ctrl-C; ``workbench.cli`` acts on them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench import __version__, _interrupt
from workbench._validate import ArgumentError
from workbench.fitting.sources import is_file

__all__ = [
    "DONE", "FAILED", "STOPPED", "UNUSABLE", "bounds", "check_out", "fit_arguments", "fit_words", "in_options",
    "model_options", "parser", "printable", "schema", "stopped_by_interrupt", "written",
]  # fmt: skip

DONE, FAILED, UNUSABLE, STOPPED = 0, 1, 2, _interrupt.STOPPED  # exit codes

Command = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Errors on one line, with exit code 2; whatever begins like a negative number is a value, as in -1:1."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._negative_number_matcher = re.compile(r"^-[\d.]")

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")


# ---- forms of values ------------------------------------------------------------------------------------------------------


def _number(text: str) -> float:
    """Numbers as people write them: 1e-5, 1/569, 2000."""
    numerator, _, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator) if denominator else float(numerator)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number.") from None


def _whole(text: str) -> float:
    """A whole number to its last digit, or whatever ``_number`` makes of the text."""
    try:
        return int(text)
    except ValueError:  # also of thousands of digits, which are infinite as a float
        return _number(text)


def _json_file(argument: str, text: str) -> Any:
    path = Path(text)
    if not path.is_file():
        raise ArgumentError(argument, text, "no such file.")
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ArgumentError(argument, text, "is nested too deeply.") from None
    except ValueError as error:
        raise ArgumentError(argument, text, f"is not JSON: {error}") from None


def bounds(texts: Sequence[str]) -> Any:
    """Declared bounds from ``LOW:HIGH`` (for all features), ``FEATURE=LOW:HIGH`` items, or one JSON file of pairs."""
    if len(texts) == 1 and texts[0].endswith(".json"):
        return _json_file("bounds", texts[0])
    declared = {}
    for text in texts:
        name, equals, pair = text.rpartition("=")
        low, colon, high = pair.partition(":")
        try:
            values = (float(low), float(high))
        except ValueError:
            colon = ""
        if not colon or (not equals and len(texts) > 1):
            raise ArgumentError(
                "bounds", text, "write FEATURE=LOW:HIGH for each feature, LOW:HIGH for all, or name a .json file."
            )
        if not equals:
            return values
        declared[name] = values
    return declared


def schema(text: str) -> Any:
    """A declared schema from a JSON file: ``{"age": {"kind": "numeric", "low": 0, "high": 120}, ...}``."""
    return _json_file("schema", text)


def model_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options of a model from ``NAME=VALUE`` items; a value is JSON where it can be read as such, else text."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ArgumentError("option", text, "write NAME=VALUE, as in --option prior_scale=2.")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
        except RecursionError:
            raise ArgumentError("option", text, "is nested too deeply.") from None
    return options


_OVER_CAP = "To go over it on purpose, which is recorded, give --over-cap REASON."
_OTHER_LEDGER = "Name another file with --ledger or $WORKBENCH_LEDGER"
_REMEDIES = {  # by code of an ``ArgumentError``
    "over cap": _OVER_CAP,
    "cap relation": _OVER_CAP,
    "not writable": f"{_OTHER_LEDGER}, or make it writable.",
    "not reachable": f"{_OTHER_LEDGER}.",
    "no folder": f"{_OTHER_LEDGER}.",
    "no records": "Name their file, as in --given FILE.csv.",
}


def in_options(error: ArgumentError) -> str:
    """The message of an error, with what to do in options of the command."""
    return error.worded(_REMEDIES)


# ---- output ---------------------------------------------------------------------------------------------------------------


def check_out(out: str | None) -> None:
    """Refuse a file for output where there is no folder for it."""
    if out is not None and not Path(out).expanduser().parent.is_dir():
        raise ArgumentError("out", out, "cannot write there.")


def printable(line: str) -> str:
    """A line with control characters written out: a terminal would obey those in the name of a data set."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def written(text: str, out: str | None) -> None:
    """``text`` to a file, or to standard output."""
    if out is None:
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError as error:
            letter = text[error.start]
            reason = f"standard output is {error.encoding}, which has no {letter!a}: set PYTHONIOENCODING=utf-8."
            raise ArgumentError("out", None, reason) from None
        sys.stdout.write(text)
        return
    try:
        Path(out).expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError("out", out, f"cannot write there ({error.strerror}).") from None
    sys.stderr.write(f"Saved: {out}\n")


# ---- Ctrl-C ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped_by_interrupt(words: str) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed inside. It only asks, with ``words``: what epsilon is being spent on must be kept.

    Afterwards, where it would have left at once before (``_interrupt``), it does nothing: the command is at its end.
    """
    asked = threading.Event()

    def stop(*_: object) -> None:
        asked.set()
        sys.stderr.write(f"\n{words}\n")

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if previous is _interrupt.leave else previous)


# ---- options --------------------------------------------------------------------------------------------------------------


def _add_plan(parser: argparse.ArgumentParser, *, iterations: int | None, rate: str = "") -> None:
    parser.add_argument("--iterations", type=_number, default=iterations, metavar="T", help="planned steps")
    parser.add_argument("--sampling-rate", type=_number, metavar="Q", help=f"share of the records in a minibatch{rate}")
    parser.add_argument("--sampler", default="poisson", help="poisson (default), without_replacement or shuffle")
    parser.add_argument(
        "--relation", help="neighbouring relation; default the sampler's own; shuffle also has replace_special"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")


def parser(run: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The parser of the command line; ``run`` holds what each command calls."""
    top = _Parser(prog="workbench", description="Differentially private variational inference.")
    top.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for add in (_add_fit, _add_resume, _add_ledger, _add_sweep, _add_account, _add_audit, _add_predict, _add_sample):
        add(commands)
    for name, text in (("models", "list the models"), ("data", "list the data sets")):
        listing = commands.add_parser(name, help=text)
        listing.add_argument("--json", action="store_true", help="print one JSON object")
    lab = commands.add_parser("lab", help="open JupyterLab on the quickstart notebook")
    lab.add_argument("--no-browser", action="store_true", help="only serve (also with BROWSER=none or no display)")
    lab.add_argument("jupyter", nargs="*", help="further arguments for jupyter lab, after --")
    app = commands.add_parser("app", help="serve the workbench screen or the teaching pieces alone, with Voilà")
    app.add_argument("--no-browser", action="store_true", help="only serve (also with BROWSER=none or no display)")
    app.add_argument("page", nargs="?", default="workbench", help="workbench (default) or teaching")
    app.add_argument("voila", nargs="*", help="further arguments for voila, after --")
    for name, command in commands.choices.items():
        command.set_defaults(run=run[name])
    return top


def _add_fit(commands: Any) -> None:
    _add_fit_options(commands.add_parser("fit", help="fit a model to data under a guarantee"))


def _add_fit_options(fit: argparse.ArgumentParser) -> None:
    fit.add_argument(
        "--model",
        default="logistic",
        help="a name (see workbench models), or a Python file that registers a model, as FILE.py or FILE.py:NAME; "
        "the file is run, so name only files you trust (logistic)",
    )
    fit.add_argument(
        "--option", nargs="+", default=[], metavar="NAME=VALUE", help="options of the model, such as prior_scale=2"
    )
    fit.add_argument("--data", required=True, help="a name (see workbench data), or a CSV, Parquet or NumPy (.npz) file")
    fit.add_argument("--path", help="file or folder of a data set with a name that is not embedded")
    fit.add_argument("--epsilon", type=_number, required=True, help="privacy loss of the whole run, > 0")
    fit.add_argument("--delta", type=_number, help="in (0, 1); default: the largest power of ten below 1/N")
    _add_plan(fit, iterations=None, rate=" (default: the model's advice, else 0.1, but no more than 1000 records)")
    fit.add_argument(
        "--batch-size", type=_whole, metavar="B", help="records in a minibatch (poisson: expected), for --sampling-rate"
    )
    fit.add_argument("--clip", type=_number, metavar="C", help="largest norm of one record's gradient (the model's advice)")
    fit.add_argument("--clipping", default="flat", help="of a record's gradient: flat (default), automatic or per_leaf")
    fit.add_argument("--gradient", default="aligned", help="aligned (default), or vanilla for comparison")
    fit.add_argument("--learning-rate", type=_number, help="of Adam; default 1 / sqrt(iterations)")
    fit.add_argument(
        "--average",
        action=argparse.BooleanOptionalAction,
        help="give the mean of the iterates of the second half (default), or the last one",
    )
    fit.add_argument("--strategy", default="auto", help="of clipping, speed only: auto (default), bookkeeping, vmap, loop")
    fit.add_argument(
        "--physical-size", type=_whole, metavar="B", help="records held at once; larger minibatches are summed in parts"
    )
    fit.add_argument("--num-records", type=_whole, metavar="N", help="publicly declared number of training records")
    fit.add_argument("--device", help="cpu, gpu, gpu:1")
    fit.add_argument("--seed", type=_whole, help="reproducible run; its noise is predictable to whoever knows the seed")
    _add_run(fit)
    ledger = fit.add_mutually_exclusive_group()
    ledger.add_argument("--ledger", metavar="FILE", help="where fits on private records are entered; default: your own")
    ledger.add_argument(
        "--no-ledger", dest="ledger", action="store_const", const=False, help="enter it nowhere, and keep no cap"
    )
    fit.add_argument(
        "--no-checkpoint", dest="checkpoint", action="store_false", help="write none of the files that resume goes on from"
    )
    fit.add_argument("--target", help="file: name of the target column; none for models of whole records")
    fit.add_argument("--positive", help="file: the target value that counts as 1; all others are one class")
    fit.add_argument("--classes", nargs="+", metavar="NAME", help="file: all values that the target can have, public")
    fit.add_argument("--threshold", type=_number, help="file: a numeric target counts as 1 above this public number")
    fit.add_argument("--features", nargs="+", help="file: columns to use (all but target and group)")
    fit.add_argument(
        "--bounds", nargs="+", metavar="FEATURE=LOW:HIGH", help="file: public ranges, LOW:HIGH for all, or a .json file"
    )
    fit.add_argument(
        "--schema", metavar="FILE.json", help="file: types, ranges and categories of its columns, in the place of --bounds"
    )
    fit.add_argument("--group", help="file: name of the column of groups, for hierarchical models")
    fit.add_argument("--groups", nargs="+", metavar="NAME", help="file: all groups there can be, public")
    fit.add_argument("--group-features", metavar="FILE.csv", help="file: public facts about groups, a row each, name first")
    fit.add_argument(
        "--private-scaling",
        action="store_true",
        help="file: scale by the private records' own mean and deviation instead, outside the guarantee",
    )
    fit.add_argument("--evaluation-fraction", type=_number, default=0.2, help="chance of a row to be held out (0.2)")
    fit.add_argument("--split-seed", type=_whole, default=0, help="public seed of the split (0)")
    fit.add_argument("--evaluation-public", action="store_true", help="file: declare the evaluation records public")
    fit.add_argument(
        "--evaluate-private", action="store_true", help="show metrics on private evaluation records, outside the guarantee"
    )


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", metavar="FOLDER", help="for report, draws, curves and JSON")
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.add_argument(
        "--over-cap",
        metavar="REASON",
        help="run although it goes over the cap on what is spent; the ledger keeps the reason",
    )


_PATHS = ("path", "ledger", "schema", "group_features", "out")  # options of fit


def fit_words(arguments: argparse.Namespace) -> list[str]:
    """The words that, after ``fit``, ask for the same from any folder: all that is not left to a default, absolute paths."""
    form, words = _fit_form(), list[str]()
    for name, value in vars(arguments).items():
        if name in ("command", "run") or value == form.get_default(name):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
            continue
        texts = [_from_anywhere(name, str(each)) for each in (value if isinstance(value, list) else [value])]
        words += [f"--{option}={texts[0]}"] if len(texts) == 1 else [f"--{option}", *texts]
    return words


def fit_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments that ``fit_words`` wrote down."""
    return _fit_form().parse_args(words)


def _fit_form() -> argparse.ArgumentParser:
    form = _Parser(prog="workbench fit", add_help=False)
    _add_fit_options(form)
    return form


def _from_anywhere(name: str, text: str) -> str:
    """The value of an option, an absolute path where it is one."""
    is_path = {"data": is_file(text), "model": is_file(text) or ":" in text, "bounds": text.endswith(".json")}
    return os.path.abspath(os.path.expanduser(text)) if name in _PATHS or is_path.get(name) else text


def _add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        help="go on with a fit that was stopped or interrupted, or list those that can go on",
        description="The fit ends where it would have ended, and its epsilon is spent once. It takes the records and the "
        "model that it had, from the files that it read: a model's file is run again. A finished run gives its result.",
    )
    resume.add_argument("path", nargs="?", metavar="PATH", help="folder of a run; without one, all of them are listed")
    resume.add_argument(
        "--forget",
        action="store_true",
        help="delete the run's checkpoints and its secret key instead; it cannot be resumed then",
    )
    _add_run(resume)
    resume.add_argument("--json", action="store_true", help="print one JSON object on standard output")


def _add_ledger(commands: Any) -> None:
    ledger = commands.add_parser(
        "ledger",
        help="what was spent on which records, and caps on it",
        description="Every fit on private records is entered in the ledger before its first step. DATASET is a number, a "
        "name, or the beginning of a fingerprint.",
    )
    actions = ledger.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_Parser)
    actions.add_parser("list", help="all data sets, what was spent on them and their caps")
    show = actions.add_parser("show", help="what was spent on a data set, fit by fit")
    cap = actions.add_parser("cap", help="set, take away or tell the cap on what all fits on a data set may spend")
    relate = actions.add_parser("relate", help="count two data sets together that share records")
    separate = actions.add_parser("separate", help="count two data sets apart that share no records after all")
    actions.add_parser("recover", help="settle fits that ended without a word to the steps that they may have taken")
    actions.add_parser("begin-anew", help="begin an empty ledger where the file is gone or damaged and there is no copy")
    actions.add_parser("new-key", help="make another key, by which records are known again, where the old one is lost")
    export = actions.add_parser("export", help="write everything as JSON, or the fits as CSV")
    for action in (show, cap):
        action.add_argument("dataset", metavar="DATASET")
    chosen = cap.add_mutually_exclusive_group()
    chosen.add_argument("--epsilon", type=_number, metavar="E", help="that all fits together may spend at most")
    chosen.add_argument("--remove", action="store_true", help="take the cap away; needs --why")
    cap.add_argument("--delta", type=_number, metavar="D", help="at which epsilon is stated")
    cap.add_argument(
        "--relation", help="add_or_remove_one (default), replace_one, which counts all fits, or replace_special"
    )
    cap.add_argument("--order", type=_whole, metavar="A", help="of the Renyi filter; by default a good one for most fits")
    for action in (relate, separate):
        action.add_argument("one", metavar="ONE", help="a data set")
        action.add_argument("other", metavar="OTHER", help="another one")
    for action in (cap, relate, separate):
        action.add_argument("--why", default="", metavar="TEXT", help="the reason, which the ledger keeps")
    export.add_argument("--out", metavar="FILE", help="ending in .json or .csv; by default JSON on standard output")
    for name, action in actions.choices.items():
        action.add_argument("--ledger", metavar="FILE", help="default: your own")
        if name != "export":
            action.add_argument("--json", action="store_true", help="print one JSON object on standard output")


def _add_sweep(commands: Any) -> None:
    sweep = commands.add_parser(
        "sweep",
        help="fit a model over a grid of settings, as a plan in a file has it",
        description="The plan is a YAML, TOML or JSON mapping of the arguments of workbench.sweep, such as model, data, "
        "epsilons, seeds and iterations; relative paths in it begin at its folder. Data are a name, or a mapping: {name: "
        "adult, path: adult.csv}, {file: clinic.csv, target: ill, bounds: {age: [0, 120]}} or {generate: hierarchical, "
        "num_features: 5}. A sweep over private records says what epsilon it spends in total, and asks before it begins.",
    )
    sweep.add_argument(
        "plan", metavar="PLAN", help="a .yaml, .yml, .toml or .json file; models in files that it names are run"
    )
    sweep.add_argument("--store", metavar="FILE.sqlite", help="keeps finished fits; those that it has are not run again")
    sweep.add_argument("--out", metavar="FOLDER", help="for table.csv, figure.png and a copy of the plan")
    sweep.add_argument(
        "--accept-total-epsilon", type=_number, metavar="X", help="run on private records if all fits spend at most this"
    )
    workers = sweep.add_mutually_exclusive_group()
    workers.add_argument("--workers", type=_whole, metavar="N", help="fit in N processes of this machine's CPUs")
    workers.add_argument("--scheduler", metavar="ADDRESS", help="fit on a dask cluster, such as tcp://host:8786")
    sweep.add_argument(
        "--max-lanes", type=_whole, metavar="L", help="fits stepped together at most; default: as memory allows"
    )
    sweep.add_argument("--dry-run", action="store_true", help="check, calibrate and say what would be spent, no more")
    sweep.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    sweep.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_account(commands: Any) -> None:
    account = commands.add_parser(
        "account",
        help="epsilon of a plan; or the noise, the steps or the sampling rate that keep an epsilon",
        description="Epsilon of a plan, with the curve over steps; with --epsilon, the one of --noise-multiplier, "
        "--iterations and --sampling-rate that is left out is found.",
    )
    account.add_argument("--epsilon", type=_number, help="the epsilon to keep")
    account.add_argument(
        "--noise-multiplier", type=_number, metavar="SIGMA", help="noise standard deviation / clipping norm"
    )
    account.add_argument("--delta", type=_number, required=True)
    _add_plan(account, iterations=None)
    account.add_argument("--accountant", default="pld", help="pld (default), rdp, rdp_classic or fourier")
    account.add_argument("--compare", action="store_true", help="the plan under every sampler and accountant")
    account.add_argument("--figure", metavar="FILE.png", help="draw the curve, or the comparison")


def _add_audit(commands: Any) -> None:
    audit = commands.add_parser(
        "audit",
        help="attack the core with canaries: a lower bound on epsilon to hold against the promise",
        description="Runs the steps of a fit on records made for the purpose and attacks them; compares chunks, checkpoints "
        "and lanes with those steps; looks for a record that moves a sum too far, record arrays of a wrong size, noise that "
        "is reused after a crash, and a promise below what an independent bound allows. Exit code 1 if anything refutes the "
        "promise, as a planted bug does. Without the part attack nothing is run --iterations times.",
    )
    audit.add_argument("--model", default="logistic", help="a name, or a Python file, as for fit (logistic)")
    audit.add_argument("--data", help="a data set whose training records may be shown; made-up records by default")
    audit.add_argument("--epsilon", type=_number, default=1.0, help="the promise to be tested (1)")
    audit.add_argument(
        "--delta", type=_number, default=1e-2, help="of the promise (0.01: only frequent events can be counted)"
    )
    _add_plan(audit, iterations=20, rate=" (0.5)")
    audit.add_argument("--clip", type=_number, default=1.0, metavar="C", help="largest norm of one record's gradient (1)")
    audit.add_argument("--clipping", default="flat", help="flat (default), automatic or per_leaf")
    audit.add_argument("--gradient", default="aligned", help="aligned (default) or vanilla")
    audit.add_argument(
        "--mode", default="many_runs", help="many_runs (default), or one_run with many canaries: quick, weaker"
    )
    audit.add_argument(
        "--trials", type=_whole, default=10_000, help="runs with and without the canary, for many_runs (10000)"
    )
    audit.add_argument("--canaries", type=_whole, default=1000, help="canaries in the run, for one_run (1000)")
    audit.add_argument("--confidence", type=_number, default=0.95, help="of the lower bound (0.95)")
    audit.add_argument("--seed", type=_whole, help="reproducible audit")
    audit.add_argument("--strategy", default="auto", help="how clipped sums are computed, as for fit (auto)")
    audit.add_argument(
        "--parts", nargs="+", metavar="PART", help="of the audit: attack paths sensitivity arrays accountant resume (all)"
    )
    audit.add_argument(
        "--planted-bug",
        metavar="BUG",
        help="break what is audited on purpose: half_noise, no_clipping, realised_size, short_norms, clamped_indices, "
        "shared_key, repeated_noise or lenient_accountant",
    )


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser("predict", help="predictions of a saved result for new records")
    predict.add_argument("result", help="folder that fit --out wrote")
    predict.add_argument("records", help="CSV file with the columns of the fitted table, in their own units")
    predict.add_argument("--out", metavar="FILE.csv", help="write there instead of standard output")


def _add_sample(commands: Any) -> None:
    sample = commands.add_parser(
        "sample",
        help="synthetic records from a saved result: a private twin of the data",
        description="Draws records from the private posterior predictive. They are functions of the release and cost no "
        "further privacy.",
    )
    sample.add_argument("result", help="folder that fit --out wrote")
    sample.add_argument("--count", type=_whole, default=1000, help="how many records (1000)")
    sample.add_argument("--given", metavar="FILE.csv", help="inputs, for models that predict a target")
    sample.add_argument("--seed", type=_whole, help="repeat the same records")
    sample.add_argument("--out", metavar="FILE", help="CSV, or .npy for images; standard output by default")
