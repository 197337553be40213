"""The ``workbench`` command: fit, account, audit, models, data, lab.

Standard output carries results (with ``--json`` one object and nothing else), standard error progress and errors.
Exit codes: 0 done, 1 failed, 2 unusable arguments (one line), 130 stopped with the partial result kept.
"""

from __future__ import annotations

import argparse
import importlib.resources
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench import __version__
from workbench._validate import ArgumentError, integer

__all__ = ["main"]

DONE, FAILED, UNUSABLE, STOPPED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """Errors on one line, with exit code 2; whatever begins like a negative number is a value, as in -1:1."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._negative_number_matcher = re.compile(r"^-[\d.]")

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")


def _number(text: str) -> float:
    """Numbers as people write them: 1e-5, 1/569, 2000."""
    numerator, _, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator) if denominator else float(numerator)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number.") from None


def _whole(text: str) -> float:
    """A whole number to its last digit, or whatever ``_number`` makes of the text."""
    return int(text) if text.lstrip("-").isdigit() else _number(text)


def _bounds(texts: Sequence[str]) -> Any:
    """Declared bounds from ``LOW:HIGH`` (for all features), ``FEATURE=LOW:HIGH`` items, or one JSON file of pairs."""
    if len(texts) == 1 and texts[0].endswith(".json"):
        path = Path(texts[0])
        if not path.is_file():
            raise ArgumentError("bounds", texts[0], "no such file.")
        try:
            return json.loads(path.read_text())
        except ValueError as error:
            raise ArgumentError("bounds", texts[0], f"is not JSON: {error}") from None
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


def _dataset(arguments: argparse.Namespace) -> Any:
    from workbench import data

    split = {"evaluation_fraction": arguments.evaluation_fraction, "split_seed": arguments.split_seed}
    looks_like_file = "." in arguments.data or os.sep in arguments.data
    if not looks_like_file:
        return data.load(arguments.data, **split)
    if arguments.target is None:
        raise ArgumentError("target", None, "name the target column of the file.")
    if not arguments.bounds and not arguments.private_scaling:
        raise ArgumentError(
            "bounds", None, "declare the public range of each feature, as in --bounds age=0:120 income=0:1e6."
        )
    return data.from_csv(
        arguments.data,
        target=arguments.target,
        bounds=_bounds(arguments.bounds) if arguments.bounds else None,
        features=arguments.features,
        positive=arguments.positive,
        evaluation_is_public=arguments.evaluation_public,
        private_scaling=arguments.private_scaling,
        **split,
    )


def _model(text: str) -> Any:
    """The name of a model as it is, or the ``Model`` of a file, which is run."""
    if not any(sign in text for sign in (".", ":", os.sep)):
        return text
    from workbench import models

    return models.from_file(text)


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _fit(arguments: argparse.Namespace) -> int:
    from workbench import fitting
    from workbench.results.storage import check_folder

    # everything that can be refused is refused before a record is touched
    folder = None if arguments.out is None else check_folder(arguments.out)
    prepared = fitting.prepare(
        _model(arguments.model),
        _dataset(arguments),
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        iterations=arguments.iterations,
        sampling_rate=arguments.sampling_rate,
        batch_size=arguments.batch_size,
        sampler=arguments.sampler,
        relation=arguments.relation,
        clip=arguments.clip,
        gradient=arguments.gradient,
        learning_rate=arguments.learning_rate,
        average=arguments.average,
        strategy=arguments.strategy,
        physical_size=arguments.physical_size,
        num_records=arguments.num_records,
        evaluate_private=arguments.evaluate_private,
        device=arguments.device,
        seed=arguments.seed,
    )
    for caution in prepared.cautions:
        print(f"workbench fit: warning: {caution}", file=sys.stderr)
    asked = threading.Event()

    def stop(*_: object) -> None:
        # only asks: from here on epsilon is being spent, and what it bought must be kept
        asked.set()
        print("\nworkbench fit: stopping; the partial result is kept.", file=sys.stderr)

    previous = signal.signal(signal.SIGINT, stop)
    try:
        _show_progress(prepared, asked.is_set, quiet=arguments.quiet)
        result = prepared.result()
        if folder is not None:
            result.save(folder)
    finally:
        signal.signal(signal.SIGINT, previous)
    if arguments.json:
        answer = {
            "state": result.state,
            "message": result.message,
            "guarantee": {**result.guarantee.to_dict(), **result.guarantee.attack_bounds()},
            "metrics": _finite(result.metrics),
            "labels": result.labels,
            "out": None if folder is None else str(folder),
        }
        print(json.dumps(answer, allow_nan=False))
    else:
        _print_result(result, folder)
    return {"done": DONE, "cancelled": STOPPED}.get(result.state, FAILED)


def _show_progress(prepared: Any, stop: Callable[[], bool], *, quiet: bool) -> None:
    from tqdm import tqdm

    total = prepared.privacy.iterations
    with tqdm(total=total, unit="step", desc="compiling", file=sys.stderr, disable=quiet, mininterval=0.2) as bar:
        for snapshot in prepared.run(stop):
            if snapshot.step:
                bar.set_description("fitting", refresh=False)
            shown = {name: f"{value:.4g}" for name, value in snapshot.metrics.items() if name in ("elbo", "auc")}
            bar.set_postfix({"epsilon": f"{snapshot.epsilon_so_far:.3g}", **shown}, refresh=False)
            bar.update(snapshot.step - bar.n)


def _print_result(result: Any, folder: Path | None) -> None:
    guarantee = result.guarantee
    if result.state == "cancelled":
        print(
            f"Stopped after {guarantee.steps_taken:,} of {guarantee.steps:,} steps. Spent: the promise stays epsilon = "
            f"{guarantee.epsilon:g}; the steps taken alone come to epsilon = {guarantee.epsilon_taken:g}, if the stop was "
            "not decided by the outputs.\n"
        )
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
        print(f"Saved: {folder / 'report.html'} (and result.json, posterior.nc, curves.png)")


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
        "relation": plan["relation"] or accounting.SAMPLERS[plan["sampler"]][0],
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
        for count, value in curve:
            print(f"{count:>12,}  {value:<10.4g} {'█' * round(40 * value / longest) if longest > 0 else ''}")
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
    from workbench.auditing import audit

    print("workbench audit: running the core on canaries...", file=sys.stderr)
    result = audit(
        _model(arguments.model),
        arguments.data,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        iterations=arguments.iterations,
        sampling_rate=0.5 if arguments.sampling_rate is None else arguments.sampling_rate,
        sampler=arguments.sampler,
        relation=arguments.relation,
        clip=arguments.clip,
        gradient=arguments.gradient,
        mode=arguments.mode,
        trials=arguments.trials,
        num_canaries=arguments.canaries,
        confidence=arguments.confidence,
        seed=arguments.seed,
        bug=arguments.planted_bug,
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

    entries = {name: data.describe(name) for name in data.names()}
    if arguments.json:
        print(json.dumps(entries))
    else:
        for name, description in entries.items():
            print(f"{name}: {description}")
        print("Your own: --data FILE.csv --target COLUMN --bounds FEATURE=LOW:HIGH ...")
    return DONE


def _lab(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        print("workbench lab: JupyterLab is not installed; pip install jupyterlab.", file=sys.stderr)
        return FAILED
    notebook = Path("notebooks", "quickstart.ipynb")
    if not notebook.is_file():
        notebook = Path("quickstart.ipynb")
        if not notebook.exists():
            shutil.copyfile(str(importlib.resources.files("workbench.notebooks").joinpath("quickstart.ipynb")), notebook)
    command = [sys.executable, "-m", "jupyter", "lab", "--ServerApp.root_dir=."]
    command.append(f"--LabApp.default_url=/lab/tree/{notebook.as_posix()}")
    no_display = sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if arguments.no_browser or os.environ.get("BROWSER") == "none" or no_display:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    command += arguments.jupyter
    if os.name == "posix":  # in this process's place, so that whoever ends it ends JupyterLab
        os.execv(sys.executable, command)
    return subprocess.call(command)


def _add_plan(parser: argparse.ArgumentParser, *, iterations: int | None, rate: float = 0.1) -> None:
    parser.add_argument("--iterations", type=_number, default=iterations, metavar="T", help="planned steps")
    parser.add_argument(
        "--sampling-rate", type=_number, metavar="Q", help=f"share of the records in a minibatch, on average ({rate:g})"
    )
    parser.add_argument("--sampler", default="poisson", help="poisson (default), without_replacement or shuffle")
    parser.add_argument(
        "--relation", help="neighbouring relation; default the sampler's own; shuffle also has replace_special"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="workbench", description="Differentially private variational inference.")
    parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    fit = commands.add_parser("fit", help="fit a model to data under a guarantee")
    fit.set_defaults(run=_fit)
    fit.add_argument(
        "--model",
        default="logistic",
        help="a name (see workbench models), or a Python file that registers a model, as FILE.py or FILE.py:NAME; "
        "the file is run, so name only files you trust (logistic)",
    )
    fit.add_argument("--data", required=True, help="a name (see workbench data) or a CSV file")
    fit.add_argument("--epsilon", type=_number, required=True, help="privacy loss of the whole run, > 0")
    fit.add_argument("--delta", type=_number, help="in (0, 1); default: the largest power of ten below 1/N")
    _add_plan(fit, iterations=2000)
    fit.add_argument(
        "--batch-size", type=_whole, metavar="B", help="records in a minibatch (poisson: expected), for --sampling-rate"
    )
    fit.add_argument("--clip", type=_number, default=1.0, metavar="C", help="largest norm of one record's gradient (1)")
    fit.add_argument("--gradient", default="aligned", help="aligned (default), or vanilla for comparison")
    fit.add_argument("--learning-rate", type=_number, help="of Adam; default 1 / sqrt(iterations)")
    fit.add_argument("--average", action="store_true", help="give the mean of the second half of the iterates")
    fit.add_argument(
        "--strategy", default="auto", help="of clipping, speed only: auto (default), bookkeeping, two_pass, vmap, loop"
    )
    fit.add_argument(
        "--physical-size", type=_whole, metavar="B", help="records held at once; larger minibatches are summed in parts"
    )
    fit.add_argument("--num-records", type=_whole, metavar="N", help="publicly declared number of training records")
    fit.add_argument("--device", help="cpu, gpu, gpu:1")
    fit.add_argument("--seed", type=_whole, help="reproducible run; its noise is predictable to whoever knows the seed")
    fit.add_argument("--out", help="folder for report, draws, curves and JSON")
    fit.add_argument("--quiet", action="store_true", help="no progress bar")
    fit.add_argument("--target", help="CSV: name of the binary target column")
    fit.add_argument("--positive", help="CSV: the target value that counts as 1")
    fit.add_argument("--features", nargs="+", help="CSV: columns to use (all but the target)")
    fit.add_argument(
        "--bounds", nargs="+", metavar="FEATURE=LOW:HIGH", help="CSV: public ranges, LOW:HIGH for all, or a .json file"
    )
    fit.add_argument(
        "--private-scaling",
        action="store_true",
        help="CSV: scale by the private records' own mean and deviation instead, outside the guarantee",
    )
    fit.add_argument("--evaluation-fraction", type=_number, default=0.2, help="chance of a row to be held out (0.2)")
    fit.add_argument("--split-seed", type=_whole, default=0, help="public seed of the split (0)")
    fit.add_argument("--evaluation-public", action="store_true", help="CSV: declare the evaluation records public")
    fit.add_argument(
        "--evaluate-private", action="store_true", help="show metrics on private evaluation records, outside the guarantee"
    )

    account = commands.add_parser(
        "account",
        help="epsilon of a plan; or the noise, the steps or the sampling rate that keep an epsilon",
        description="Epsilon of a plan, with the curve over steps; with --epsilon, the one of --noise-multiplier, "
        "--iterations and --sampling-rate that is left out is found.",
    )
    account.set_defaults(run=_account)
    account.add_argument("--epsilon", type=_number, help="the epsilon to keep")
    account.add_argument(
        "--noise-multiplier", type=_number, metavar="SIGMA", help="noise standard deviation / clipping norm"
    )
    account.add_argument("--delta", type=_number, required=True)
    _add_plan(account, iterations=None)
    account.add_argument("--accountant", default="pld", help="pld (default), rdp, rdp_classic or fourier")
    account.add_argument("--compare", action="store_true", help="the plan under every sampler and accountant")
    account.add_argument("--figure", metavar="FILE.png", help="draw the curve, or the comparison")

    audit = commands.add_parser(
        "audit",
        help="attack the core with canaries: a lower bound on epsilon to hold against the promise",
        description="Runs the steps of a fit on records made for the purpose and attacks them. Exit code 1 if the attack "
        "refutes the promise, as it does with a planted bug.",
    )
    audit.set_defaults(run=_audit)
    audit.add_argument("--model", default="logistic", help="a name, or a Python file, as for fit (logistic)")
    audit.add_argument("--data", help="a data set whose training records may be shown; made-up records by default")
    audit.add_argument("--epsilon", type=_number, default=1.0, help="the promise to be tested (1)")
    audit.add_argument(
        "--delta", type=_number, default=1e-2, help="of the promise (0.01: only frequent events can be counted)"
    )
    _add_plan(audit, iterations=20, rate=0.5)
    audit.add_argument("--clip", type=_number, default=1.0, metavar="C", help="largest norm of one record's gradient (1)")
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
    audit.add_argument(
        "--planted-bug", metavar="BUG", help="break the run on purpose: half_noise, no_clipping or realised_size"
    )

    for name, run, text in (("models", _models, "list the models"), ("data", _data, "list the embedded data sets")):
        listing = commands.add_parser(name, help=text)
        listing.set_defaults(run=run)
        listing.add_argument("--json", action="store_true", help="print one JSON object")

    lab = commands.add_parser("lab", help="open JupyterLab on the quickstart notebook")
    lab.set_defaults(run=_lab)
    lab.add_argument("--no-browser", action="store_true", help="only serve (also with BROWSER=none or no display)")
    lab.add_argument("jupyter", nargs="*", help="further arguments for jupyter lab, after --")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except ArgumentError as error:
        message = str(error)
    except KeyboardInterrupt:
        print(f"workbench {parsed.command}: interrupted before there was a result; no epsilon spent.", file=sys.stderr)
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
