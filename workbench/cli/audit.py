"""``workbench audit``: run the core on canaries and attack it."""

from __future__ import annotations

import argparse
import json
import sys

from workbench.cli.shell import (
    DONE,
    FAILED,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    add_settings,
    number,
    values_of,
)
from workbench.fitting import sources

__all__ = ["add"]

# settings of a fit that an audit takes, in its own words and with its own defaults
_SETTINGS = (
    "epsilon",
    "delta",
    "relation",
    "clipping",
    "iterations",
    "sampling_rate",
    "sampler",
    "clip",
    "seed",
    "estimator",
    "strategy",
    "devices",
)
_DEFAULTS = {
    "epsilon": 1.0,
    "delta": 0.01,
    "iterations": 20,
    "sampling_rate": 0.5,
    "clip": 1.0,
    "estimator": "aligned",
}


_OF_THE_ATTACK: Options = {
    "--mode": (
        "many_runs, or one_run with many canaries, which is quicker and finds less (default: "
        "many_runs)",
        {"default": "many_runs"},
    ),
    "--trials": (
        "runs with and without the canary, for many_runs (default: 10000)",
        {"type": number, "default": 10_000},
    ),
    "--num-canaries": (
        "canaries in the run, for one_run (default: 1000)",
        {"type": number, "default": 1000},
    ),
    "--max-rows": (
        "rows that each record stands for, to attack people with several (default: one)",
        {"type": number},
    ),
    "--confidence": (
        "confidence of the lower bound (default: 0.95)",
        {"type": number, "default": 0.95},
    ),
    "--parts": (
        "parts of the audit: attack, sensitivity, accountant (default: all)",
        {"nargs": "+", "action": "extend", "metavar": "PART"},
    ),
    "--bug": (
        "break the audited code on purpose: half_noise, no_clipping, realised_size, "
        "short_norms, clip_by_row or lenient_accountant",
        {},
    ),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``audit`` to the command."""
    audit = add_command(
        commands,
        "audit",
        "attack the steps of a fit with canaries, for a lower bound on epsilon to compare with "
        "the promise",
        "Runs the steps of a fit on made-up records. Also looks for a record that moves the "
        "clipped sum too far, and for a promise that is smaller than an independent lower bound "
        "on epsilon. The exit code is 1 if the promise is refuted, as it is "
        "with a planted bug. Leave attack out of --parts to skip the long runs.",
    )
    audit.set_defaults(run=_audit)
    audit.add_argument(
        "--model",
        default="logistic",
        help="a name, or a Python file, as for fit (default: logistic)",
    )
    audit.add_argument(
        "--data", help="a data set whose training records are public (default: made-up records)"
    )
    add_settings(audit, _SETTINGS, **_DEFAULTS)
    add_json(audit)
    add_all(audit, _OF_THE_ATTACK)


def _audit(arguments: argparse.Namespace) -> int:
    """``workbench audit``; the exit code."""
    from workbench.auditing import PARTS, audit

    print("workbench audit: running the steps of a fit on canaries...", file=sys.stderr)
    result = audit(
        sources.model(arguments.model, {}),
        arguments.data,
        **values_of(arguments, (*_SETTINGS, *_OF_THE_ATTACK)) | {"parts": arguments.parts or PARTS},
    )
    print(json.dumps(result.to_dict()) if arguments.json else result.statement())
    return DONE if result.passed else FAILED
