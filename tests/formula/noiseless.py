"""Fits of formulas without privacy: what a fit's own steps come to without clipping and noise."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd

import workbench as wb
from workbench.fitting.baseline import noiseless, noiseless_hyper
from workbench.fitting.groups import grouped
from workbench.results import FitResult

__all__ = ["without_privacy"]


def without_privacy(
    model: Any, frame: pd.DataFrame, iterations: int = 1500, **options: Any
) -> FitResult:
    """``wb.fit`` at an infinite epsilon: no clipping and no noise, with all records in each step,
    and else the same.

    :param iterations: of DP-VI. :param options: of ``wb.fit``.
    """
    steps = {
        "iterations": iterations,
        "sampling_rate": 1.0,
        "sampler": "without_replacement",
        "average": True,
    }
    own = {} if options.get("estimator") == "statistics" else {"learning_rate": 0.02, **steps}
    prepared = wb.prepare(
        model,
        frame,
        ledger=False,
        seed=0,
        **grouped(
            evaluation=frame.head(2), checkpoint=False, **({"epsilon": 1.0, **own, **options})
        ),
    )
    # whose C says which records have less weight
    is_one_release = prepared.spec.estimation.released == "sums"
    hyper = (
        prepared.hyper._replace(standard_deviation=np.float32(0))
        if is_one_release
        else noiseless_hyper(prepared.hyper)
    )
    vars(prepared)["hyper"] = hyper
    prepared.step = noiseless(prepared.step).with_options(keeps_moments=False)
    prepared.state = jax.jit(prepared.step.init)(prepared.key, hyper)
    last = list(prepared.run())[-1]
    assert last.status == "done"
    return prepared.result()
