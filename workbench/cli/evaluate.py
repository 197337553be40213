"""``workbench evaluate``: scores of a saved result on private records, through noise."""

from __future__ import annotations

import argparse
import json

from workbench import _folders
from workbench.cli.shell import DONE, Parser, add_command, add_json, add_settings, number, words
from workbench.fitting import sources

__all__ = ["add"]

_SETTINGS = ("epsilon", "delta", "num_records", "seed")
_OF_LEDGER = {
    "over_cap": ("REASON", "why to spend more than the cap of these records allows"),
    "ledger": ("FILE", "file of the ledger (default: your own)"),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``evaluate`` to the command."""
    evaluate = add_command(
        commands,
        "evaluate",
        "score a saved result of a formula on private records that it did not read",
        "The scores are one release with noise, which the ledger adds to what was spent on these "
        "records. --against compares the result with another, by the difference of their log "
        "predictive densities.",
    )
    evaluate.add_argument("result", metavar="FOLDER", help="folder that fit --out wrote")
    evaluate.add_argument("records", metavar="FILE", help="the table of private records")
    evaluate.add_argument(
        "--against", metavar="FOLDER", help="another result, whose log-likelihood is taken off"
    )
    add_settings(evaluate, _SETTINGS)
    evaluate.add_argument("--unit-id", type=words, metavar="NAME", help="column of the person")
    evaluate.add_argument(
        "--max-rows", type=number, metavar="ROWS", help="rows of a person that are used, at most"
    )
    evaluate.add_argument(
        "--missing", choices=("refuse", "drop", "middle"), help="what happens to missing values"
    )
    evaluate.add_argument(
        "--name", type=words, help="name of the records in the ledger (default: the file's name)"
    )
    for name, (metavar, help) in _OF_LEDGER.items():
        evaluate.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=help)
    add_json(evaluate)
    evaluate.set_defaults(run=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from workbench import results
    from workbench.fitting.evaluating import evaluate

    result = results.load(arguments.result)
    against = None if arguments.against is None else results.load(arguments.against)
    options = {
        name: value
        for name in (*_SETTINGS, *_OF_LEDGER, "unit_id", "max_rows", "missing")
        if (value := getattr(arguments, name)) is not None
    }
    options["name"] = arguments.name or _folders.title_of(arguments.records)
    table = sources.table("records", arguments.records)
    evaluation = evaluate(result, table, against=against, **options)
    if arguments.json:
        facts = {
            "metrics": dict(evaluation.metrics),
            "intervals": {name: list(ends) for name, ends in evaluation.metric_intervals.items()},
            "calibration": [[*bin[:3], list(bin.fraction)] for bin in evaluation.calibration],
            "guarantee": evaluation.guarantee.to_dict(),
            "label": evaluation.metrics_label,
        }
        print(json.dumps(facts))
        return DONE
    print(evaluation.table().to_string(float_format="%.4g"))
    print(f"({evaluation.metrics_label})\n\n{evaluation.guarantee.statement()}")
    return DONE
