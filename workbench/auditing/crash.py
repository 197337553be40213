"""The part "resume": after a crash, noise that was seen is not drawn again for a model that has changed.

A fit of the auditor's own is stopped hard: what the disk held after some steps is kept, with the snapshots that were shown.
Then a part of its model is changed that a digest of its code may miss, and it is resumed. Either that is refused, or the
steps that are repeated have fresh noise. Otherwise the difference of the two snapshots of one step holds none.
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

_RECORDS, _SIZE, _STEPS, _CRASH = 20, 8, 4, 2  # of the fit: records, coordinates, steps, and where it ends
_NOISE = 0.05  # a difference of less than this share of its noise has none; of fresh noise that is so 4e-10 of the time
_LEARNING_RATE = 1e-3
_FACTOR = 1.0


def _seen(x: Any) -> Any:
    """What the models below observe: a helper that they call."""
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
    """``function`` as it is where these names of its module have other values."""
    made = types.FunctionType(function.__code__, {**function.__globals__, **changed}, function.__name__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


class _Scaled:
    """A model that is a method, or the object itself."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def model(self, x: Any, num_records: int) -> None:
        _with_globals(_with_constant, _FACTOR=self.factor)(x, num_records=num_records)


def _callable_object(factor: float) -> Any:
    """An object whose class has a ``__call__`` of its own."""

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
        description="Records for a fit that is stopped hard.",
        train=(np.ones((_RECORDS, _SIZE), np.float32),),
        evaluation=(np.ones((1, _SIZE), np.float32),),
        feature_names=tuple(f"feature {number}" for number in range(_SIZE)),
        is_public=True,
        arrays=("x",),
        licence="public domain",
        source="the audit",
    )


def noise_seen_again(before: Callable, after: Callable, *, naive: bool) -> float | None:
    """How far apart the first repeated step's parameters are, relative to the noise in them; None where resuming is refused.

    :param before: model of the fit that crashed. :param after: of the fit that goes on.
    :param naive: PLANTED BUG: the saved state is taken up by whatever fit there is.
    """
    from workbench.fitting import (
        fits,  # they import all of the workbench
        resuming,
    )

    data, optimizer = _records(), numpyro.optim.SGD(_LEARNING_RATE)
    models = [Model("made for the audit", "A mean.", model, _guide) for model in (before, after)]
    # so much noise that what records add to it cannot be seen
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
    # of the difference of two runs' parameters, with noise of their own in each step
    unit = _LEARNING_RATE / (prepared.step.sampler.sampling_rate * _RECORDS)
    apart = np.linalg.norm(seen[step] - _location(again[0]))
    return float(apart) / (noise * unit * math.sqrt(2 * _SIZE * (step - began.step)))


def _location(snapshot: Snapshot) -> np.ndarray:
    return np.asarray(snapshot.params["location"], np.float64)


def check(bug: str | None = None, changes: tuple[str, ...] | None = None) -> Check:
    """Whether resuming with each of ``CHANGES`` is refused, or has noise of its own.

    :param changes: names of some of them.
    """
    naive, found = bug == "repeated_noise", {}
    for name in CHANGES if changes is None else changes:
        found[name] = noise_seen_again(*CHANGES[name], naive=naive)
    repeated = [name for name, distance in found.items() if distance is not None and distance < _NOISE]
    if repeated:
        finding = f"steps that were seen are repeated with the same noise where {' or '.join(repeated)} has changed."
        return Check("resume", False, finding)
    return Check("resume", True, f"a fit whose model has changed ({', '.join(found)}) draws no noise again that was seen.")
