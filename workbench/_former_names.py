"""Names that earlier versions gave to settings and to a guarantee's fields.

Saved files, commands in checkpoints and plans of sweeps have them still.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FORMER_NAMES", "with_present_names"]

FORMER_NAMES = {"gradient": "estimator", "physical_size": "microbatch_size", "truncation_delta": "noise_delta"}


def with_present_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a fit, or fields of a guarantee, by their present names, in a file of any version."""
    return {FORMER_NAMES.get(name, name): value for name, value in values.items()}
