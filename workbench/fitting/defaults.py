"""Default values of the settings that a caller leaves out, by one rule for all data sets.

1. The advice of the model's file (``Model.defaults``) comes first: a model knows the scale of its
  gradients.
2. T is 100 times the cube root of N, rounded up to hundreds: 1000 steps for 1000 records, 3400 for
   39 000. More steps need more noise, which about cancels their progress. Large data sets tolerate
   more noise, and have rare features that need more steps.
3. A minibatch is a tenth of the records, but at most 1000. The noise for a given epsilon hardly
  depends on its size.
4. The clipping norm C is 1. Where up to R rows of a person are clipped together, it is sqrt(R)
   times that of one row: as rows that differ at random add up. (One person's rows are more alike,
   but larger C adds noise.)
5. The learning rate of Adam is 1 / sqrt(T): calibrated noise grows as sqrt(T), and what matters is
  their product.
6. The result is the mean of the iterates of the second half, which averages noise away. Where
   intervals can count the noise, the fifth of the steps before them is taken at points that are
   moved apart for these (``noise_aware.dither``).

The rule uses N, which is a public constant, and the public shape of the data. It was chosen on
synthetic tables (tests/experiments/rule.py), and T also on Adult, which is public. So it costs no
privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["clip_of", "complete"]

_STEPS = 100  # for each unit of N's cube root
_ROUNDING = 1e-9  # of the cube root
_SHARE, _LARGEST = 0.1, 1000  # of the records, and records
_RULE = {"average": True}
_CLIP = 1.0


def complete(
    requested: Mapping[str, Any], advice: Mapping[str, Any], num_records: int, rows: int = 1
) -> dict[str, Any]:
    """Choose iterations, sampling_rate or batch_size, clip, learning_rate and average where
    ``requested`` has None.

    :param requested: these settings, and any others, which are returned as they are.
    :param advice: the model's advice: the same names, or ``epochs`` instead of ``iterations``.
    :param num_records: N, which is public.
    :param rows: of one record that are clipped together, at most.
    """
    advice = dict(advice)
    settings = dict(requested)
    if settings["sampling_rate"] is None and settings["batch_size"] is None:
        settings["batch_size"] = advice.get("batch_size")
        if settings["batch_size"] is None:
            settings["sampling_rate"] = advice.get(
                "sampling_rate", min(_SHARE, _LARGEST / num_records)
            )
        else:
            settings["batch_size"] = min(settings["batch_size"], num_records)
    if settings["iterations"] is None and "epochs" in advice:
        rate = settings["sampling_rate"] or settings["batch_size"] / num_records
        settings["iterations"] = math.ceil(advice["epochs"] / rate)
    rule = {
        **_RULE,
        "iterations": 100 * math.ceil(_STEPS * num_records ** (1 / 3) / 100 - _ROUNDING),
    }
    for name in ("iterations", "average"):
        if settings[name] is None:
            settings[name] = advice.get(name, rule[name])
    if settings["clip"] is None:
        settings["clip"] = clip_of(advice, rows)
    if settings["learning_rate"] is None:
        settings["learning_rate"] = advice.get(
            "learning_rate", 1 / math.sqrt(settings["iterations"])
        )
    return settings


def clip_of(advice: Mapping[str, Any], rows: int = 1) -> float:
    """The default C. The arguments are those of ``complete``."""
    return float(advice.get("clip", _CLIP)) * math.sqrt(rows)
