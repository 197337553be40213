"""``workbench audit``: the core is run on canaries and attacked."""

from __future__ import annotations

import argparse
import json
import sys

from workbench.cli.shell import (
    DONE,
    FAILED,
)
from workbench.fitting import sources

__all__ = ["audit"]


def audit(arguments: argparse.Namespace) -> int:
    """``workbench audit``; the exit code."""
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
