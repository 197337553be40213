"""The settings of a fit that the caller leaves out, by one rule for all data sets.

1. What the model's file advises (``Model.defaults``) goes first: a model knows the scale of its gradients.
2. T is 100 times the cube root of N, rounded up to hundreds: 1000 steps for 1000 records, 3400 for 39 000. More steps cost
   noise about as they bring progress; many records bear more of them, and have rare features that need them.
3. A minibatch is a tenth of the records, but no more than 1000: the noise for a given epsilon hardly depends on it.
4. The clipping norm C is 1, for models that do not know better.
5. The learning rate of Adam is 1 / sqrt(T): calibrated noise grows as sqrt(T), and their product is what counts.
6. The result is the mean of the iterates of the second half, which averages noise away.

The rule looks at N, which is a public constant, and at the public shape of the data. It was chosen on synthetic tables
(tests/experiments/rule.py), and its steps also on Adult, which is public: so it costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["complete"]

_STEPS = 100  # for each unit of N's cube root
_ROUNDING = 1e-9  # of the cube root
_SHARE, _LARGEST = 0.1, 1000  # of the records, and records
_RULE = {"clip": 1.0, "average": True}


def complete(given: Mapping[str, Any], advice: Mapping[str, Any], num_records: int) -> dict[str, Any]:
    """Choose iterations, sampling_rate or batch_size, clip, learning_rate and average where ``given`` has None.

    :param given: these settings, and any others, which are returned as they are.
    :param advice: the model's advice: the same names, or ``epochs`` instead of ``iterations``.
    :param num_records: N, which is public.
    """
    advice = dict(advice)
    settings = dict(given)
    if settings["sampling_rate"] is None and settings["batch_size"] is None:
        settings["batch_size"] = advice.get("batch_size")
        if settings["batch_size"] is None:
            settings["sampling_rate"] = advice.get("sampling_rate", min(_SHARE, _LARGEST / num_records))
        else:
            settings["batch_size"] = min(settings["batch_size"], num_records)
    if settings["iterations"] is None and "epochs" in advice:
        rate = settings["sampling_rate"] or settings["batch_size"] / num_records
        settings["iterations"] = math.ceil(advice["epochs"] / rate)
    rule = {**_RULE, "iterations": 100 * math.ceil(_STEPS * num_records ** (1 / 3) / 100 - _ROUNDING)}
    for name in ("iterations", "clip", "average"):
        if settings[name] is None:
            settings[name] = advice.get(name, rule[name])
    if settings["learning_rate"] is None:
        settings["learning_rate"] = advice.get("learning_rate", 1 / math.sqrt(settings["iterations"]))
    return settings
