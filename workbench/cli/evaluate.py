"""``workbench evaluate``: scores of a saved result on private records, through noise."""

from __future__ import annotations

import argparse
import json

from workbench.cli.shell import (
    DONE,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    add_settings,
)
from workbench.cli.table import OF_A_RELEASE, OF_ROWS, of_a_release
from workbench.fitting import sources

__all__ = ["add"]

_FILES: Options = {
    "result": ("folder that fit --out wrote", {"metavar": "FOLDER"}),
    "records": ("the table of private records", {"metavar": "FILE"}),
    "--against": ("another result, whose log-likelihood is taken off", {"metavar": "FOLDER"}),
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
    add_all(evaluate, _FILES)
    add_settings(evaluate, OF_A_RELEASE)
    add_all(evaluate, OF_ROWS)
    add_json(evaluate)
    evaluate.set_defaults(run=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from workbench import results
    from workbench.fitting.evaluating import evaluate

    result = results.load(arguments.result)
    against = None if arguments.against is None else results.load(arguments.against)
    options = of_a_release(arguments, arguments.records)
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
