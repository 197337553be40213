"""After a crash, a changed model does not draw released noise again.

A fit is interrupted: the files on disk after some steps are kept, and the snapshots that the fit
showed. Then the model is changed in a way that a digest of its code may miss, and the fit is
resumed. Either resuming is refused, or the repeated steps have fresh noise. Otherwise the noise
cancels in the difference of two snapshots of one step.
"""

import itertools
import math
import shutil
import tempfile
import types
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from workbench import ArgumentError
from workbench.data import Dataset
from workbench.fitting import fits, resuming
from workbench.fitting.groups import grouped
from workbench.inference import checkpoint
from workbench.inference.training import run
from workbench.models import Model

# of the fit: records, coordinates, steps, and the step of the crash
RECORDS, SIZE, STEPS, CRASH = (20, 8, 4, 2)
# a difference below this share of its noise counts as none; fresh noise gives one with probability
# 4e-10
NOISE = 0.05
LEARNING_RATE = 1e-3
FACTOR = 1.0


def _seen(x):
    """A helper that a model below calls."""
    return x


def _with_helper(x, num_records):
    mean = numpyro.sample("mean", dist.Normal(jnp.zeros(SIZE), 10.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=_seen(x))


def _with_constant(x, num_records):
    mean = numpyro.sample("mean", dist.Normal(jnp.zeros(SIZE), 10.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(FACTOR * mean, 1.0).to_event(1), obs=x)


def _guide(x, num_records):
    location = numpyro.param("location", jnp.zeros(SIZE))
    numpyro.sample("mean", dist.Normal(location, 0.1).to_event(1))


def _with_globals(function, **changed):
    """A copy of ``function`` for which these names of its module have other values."""
    made = types.FunctionType(
        function.__code__, {**function.__globals__, **changed}, function.__name__
    )
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


class _Scaled:
    """An object with a method that is a model."""

    def __init__(self, factor):
        self.factor = factor

    def model(self, x, num_records):
        _with_globals(_with_constant, FACTOR=self.factor)(x, num_records=num_records)


def _callable_object(factor):
    """An object whose class has its own ``__call__``."""

    def call(self, x, num_records):
        _with_globals(_with_constant, FACTOR=factor)(x, num_records=num_records)

    return type("CallableModel", (), {"__call__": call, "__module__": __name__})()


# {what changes: (model before, model after)}
CHANGES = {
    "a helper function": (_with_helper, _with_globals(_with_helper, _seen=lambda x: -x)),
    "a constant of the module": (_with_constant, _with_globals(_with_constant, FACTOR=-1.0)),
    "the object of a bound method": (_Scaled(1.0).model, _Scaled(-1.0).model),
    "the __call__ of an object": (_callable_object(1.0), _callable_object(-1.0)),
}


def _records():
    return Dataset(
        name="made for the audit",
        description="Records for a fit that is interrupted.",
        train=(np.ones((RECORDS, SIZE), np.float32),),
        evaluation=(np.ones((1, SIZE), np.float32),),
        feature_names=tuple(f"feature {number}" for number in range(SIZE)),
        is_public=True,
        arrays=("x",),
        licence="public domain",
        source="the audit",
    )


def noise_seen_again(before, after, *, naive):
    """Distance of the first repeated step's parameters, relative to their noise; None if resuming
    is refused.

    :param before: model of the fit that crashed.
    :param after: model of the fit that resumes it.
    :param naive: PLANTED BUG: any fit may resume from the saved state.
    """
    data, optimizer = _records(), numpyro.optim.SGD(LEARNING_RATE)
    models = [Model("made for the audit", "A mean.", model, _guide) for model in (before, after)]
    # so much noise that the contribution of the records is negligible
    settings = {
        "epsilon": 1e-3,
        "delta": 1e-4,
        "iterations": STEPS,
        "sampling_rate": 0.5,
        "clip": 1.0,
    }
    settings |= {"optimizer": optimizer, "ledger": False, "draws": 2, "average": False}
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        running, crashed = Path(folder) / "running", Path(folder) / "crashed"
        prepared = fits.prepare(models[0], data, **grouped(checkpoint=running, **settings))
        for snapshot in prepared.run():
            seen[snapshot.step] = _location(snapshot)
            if snapshot.step == CRASH:
                shutil.copytree(running, crashed)
                break
        try:
            if naive:
                other = fits.prepare(models[1], data, **grouped(checkpoint=False, **settings))
                records, like = other.on_device
                start = checkpoint.load_state(max(crashed.glob("step-*.npz")), like)
                snapshots = run(other.step, other.hyper, start, records, STEPS)
            else:
                other = resuming.prepare(crashed, model=models[1], data=data, optimizer=optimizer)
                snapshots = other.run()
            began, *again = itertools.islice(snapshots, 2)
        except ArgumentError:
            return None
    if not again or again[0].step not in seen:
        return None
    step, noise = again[0].step, prepared.plan.mechanism.standard_deviation
    # standard deviation of the difference of two runs' parameters, if they have independent noise
    # in each step
    unit = LEARNING_RATE / (prepared.step.sampler.sampling_rate * RECORDS)
    apart = np.linalg.norm(seen[step] - _location(again[0]))
    return float(apart) / (noise * unit * math.sqrt(2 * SIZE * (step - began.step)))


def _location(snapshot):
    return np.asarray(snapshot.params["location"], np.float64)


def test_noise_that_is_reused_after_a_crash_is_caught():
    """A fit that accepts any state; the difference of its releases contains no noise."""
    assert noise_seen_again(*CHANGES["a constant of the module"], naive=True) < NOISE


@pytest.mark.thorough
def test_a_restart_with_noise_of_its_own_passes(monkeypatch):
    """The distance of two sums with independent noise is near 1 in units of it; false
    alarms 4e-10.
    """
    # begins anew with its own key
    monkeypatch.setattr(checkpoint, "load_state", lambda path, like: like)
    distance = noise_seen_again(*CHANGES["a constant of the module"], naive=True)
    print(distance)
    assert distance is None or distance > NOISE


@pytest.mark.statistical
@pytest.mark.parametrize("change", CHANGES)
def test_resuming_a_fit_whose_model_has_changed_shows_no_noise_again(change):
    distance = noise_seen_again(*CHANGES[change], naive=False)
    assert distance is None or distance > NOISE
