"""The part "resume": after a crash, a changed model does not draw released noise again.

The auditor's own fit is interrupted: the audit keeps the files on disk after some steps, and the snapshots that the fit
showed. Then a part of the model is changed that a digest of its code may miss, and the fit is resumed. Either resuming is
refused, or the repeated steps have fresh noise. Otherwise the noise cancels in the difference of two snapshots of one step.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from workbench import _validate
from workbench.auditing.result import Check
from workbench.data import Dataset
from workbench.inference.checkpoint import load_state
from workbench.inference.training import Snapshot, run
from workbench.models import Model

__all__ = ["CHANGES", "check", "noise_seen_again"]

_RECORDS, _SIZE, _STEPS, _CRASH = 20, 8, 4, 2  # of the fit: records, coordinates, steps, and the step of the crash
_NOISE = 0.05  # a difference below this share of its noise counts as none; fresh noise gives one with probability 4e-10
_LEARNING_RATE = 1e-3
_FACTOR = 1.0


def _seen(x: Any) -> Any:
    """A helper that a model below calls."""
    return x


def _with_helper(x: Any, num_records: int) -> None:
    mean = numpyro.sample("mean", dist.Normal(jnp.zeros(_SIZE), 10.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=_seen(x))


def _with_constant(x: Any, num_records: int) -> None:
    mean = numpyro.sample("mean", dist.Normal(jnp.zeros(_SIZE), 10.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(_FACTOR * mean, 1.0).to_event(1), obs=x)


def _guide(x: Any, num_records: int) -> None:
    location = numpyro.param("location", jnp.zeros(_SIZE))
    numpyro.sample("mean", dist.Normal(location, 0.1).to_event(1))


def _with_globals(function: Callable, **changed: Any) -> Callable:
    """A copy of ``function`` for which these names of its module have other values."""
    made = types.FunctionType(function.__code__, {**function.__globals__, **changed}, function.__name__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


class _Scaled:
    """An object with a method that is a model."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def model(self, x: Any, num_records: int) -> None:
        _with_globals(_with_constant, _FACTOR=self.factor)(x, num_records=num_records)


def _callable_object(factor: float) -> Any:
    """An object whose class has its own ``__call__``."""

    def call(self: Any, x: Any, num_records: int) -> None:
        _with_globals(_with_constant, _FACTOR=factor)(x, num_records=num_records)

    return type("CallableModel", (), {"__call__": call, "__module__": __name__})()


# {what changes: (model before, model after)}
CHANGES: dict[str, tuple[Callable, Callable]] = {
    "a helper function": (_with_helper, _with_globals(_with_helper, _seen=lambda x: -x)),
    "a constant of the module": (_with_constant, _with_globals(_with_constant, _FACTOR=-1.0)),
    "the object of a bound method": (_Scaled(1.0).model, _Scaled(-1.0).model),
    "the __call__ of an object": (_callable_object(1.0), _callable_object(-1.0)),
}


def _records() -> Dataset:
    return Dataset(
        name="made for the audit",
        description="Records for a fit that is interrupted.",
        train=(np.ones((_RECORDS, _SIZE), np.float32),),
        evaluation=(np.ones((1, _SIZE), np.float32),),
        feature_names=tuple(f"feature {number}" for number in range(_SIZE)),
        is_public=True,
        arrays=("x",),
        licence="public domain",
        source="the audit",
    )


def noise_seen_again(before: Callable, after: Callable, *, naive: bool) -> float | None:
    """Distance of the first repeated step's parameters, relative to their noise; None if resuming is refused.

    :param before: model of the fit that crashed.
    :param after: model of the fit that resumes it.
    :param naive: PLANTED BUG: any fit may resume from the saved state.
    """
    from workbench.fitting import (
        fits,  # they import all of the workbench
        resuming,
    )

    data, optimizer = _records(), numpyro.optim.SGD(_LEARNING_RATE)
    models = [Model("made for the audit", "A mean.", model, _guide) for model in (before, after)]
    # so much noise that the contribution of the records is negligible
    settings: dict[str, Any] = {"epsilon": 1e-3, "delta": 1e-4, "iterations": _STEPS, "sampling_rate": 0.5, "clip": 1.0}
    settings |= {"optimizer": optimizer, "ledger": False, "draws": 2, "average": False}
    seen: dict[int, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        running, crashed = Path(folder) / "running", Path(folder) / "crashed"
        prepared = fits.prepare(models[0], data, checkpoint=running, **settings)
        for snapshot in prepared.run():
            seen[snapshot.step] = _location(snapshot)
            if snapshot.step == _CRASH:
                shutil.copytree(running, crashed)
                break
        try:
            if naive:
                other = fits.prepare(models[1], data, checkpoint=False, **settings)
                records, like = other.on_device
                start = load_state(max(crashed.glob("step-*.npz")), like)
                snapshots: Iterator[Snapshot] = run(other.step, other.hyper, start, records, _STEPS)
            else:
                other = resuming.prepare(crashed, model=models[1], data=data, optimizer=optimizer)
                snapshots = other.run()
            began, *again = itertools.islice(snapshots, 2)
        except _validate.ArgumentError:
            return None
    if not again or again[0].step not in seen:
        return None
    step, noise = again[0].step, prepared.plan.mechanism.standard_deviation
    # standard deviation of the difference of two runs' parameters, if they have independent noise in each step
    unit = _LEARNING_RATE / (prepared.step.sampler.sampling_rate * _RECORDS)
    apart = np.linalg.norm(seen[step] - _location(again[0]))
    return float(apart) / (noise * unit * math.sqrt(2 * _SIZE * (step - began.step)))


def _location(snapshot: Snapshot) -> np.ndarray:
    return np.asarray(snapshot.params["location"], np.float64)


def check(bug: str | None = None, changes: tuple[str, ...] | None = None) -> Check:
    """Check that resuming with each of ``CHANGES`` is refused or has fresh noise.

    :param changes: names of the changes to try; all by default.
    """
    naive, found = bug == "repeated_noise", {}
    for name in CHANGES if changes is None else changes:
        found[name] = noise_seen_again(*CHANGES[name], naive=naive)
    repeated = [name for name, distance in found.items() if distance is not None and distance < _NOISE]
    if repeated:
        finding = f"released steps are repeated with the same noise after {' or '.join(repeated)} has changed."
        return Check("resume", False, finding)
    return Check("resume", True, f"a fit whose model has changed ({', '.join(found)}) does not repeat released noise.")
