"""The scores of a model without privacy, with which private curves are compared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from workbench.fitting.prepared import PreparedFit
from workbench.inference.state import Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.inference.training import run, to_the_end
from workbench.noise.chacha20 import new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.results.scores import Scores

__all__ = ["noiseless", "noiseless_hyper", "without_privacy"]


def noiseless(step: PrivateStep) -> PrivateStep:
    """``step`` without clipping and noise, and without what only a noised release has. Not private."""
    shards = None if step.shards is None else dataclasses.replace(step.shards, parts=1)
    return dataclasses.replace(step, mechanism=GaussianMechanism(math.inf, 0.0), counts_norms=False, shards=shards)


def noiseless_hyper(hyper: Hyperparameters) -> Hyperparameters:
    """What ``noiseless(step)`` takes instead of ``hyper``."""
    clip, deviation = jnp.float32(math.inf), jnp.float32(0.0)
    return hyper._replace(clip=clip, standard_deviation=deviation, moments_from=None, adaptive=None, dither=None)


def without_privacy(prepared: PreparedFit, stop: Callable[[], bool] = lambda: False) -> Scores | None:
    """Compute the metrics of the same fit without clipping and noise: same model, optimiser, minibatch sizes and steps.

    The numbers are exact functions of the private training records and labelled "outside the guarantee". Do not publish
    them unless the records are public.

    :param stop: called between chunks of steps; True ends the run.
    :raises ArgumentError: naming ``devices``, if they are of several processes.
    :return: None if the run was stopped or failed, or if no metrics may be computed on the evaluation records.
    """
    prepared.spec.processes.require_one("a fit without privacy")
    evaluate = prepared.evaluator
    if evaluate is None:
        return None
    if prepared.spec.one_shot is not None:
        evaluate = prepared.metrics_of_sums(0.0)
    free, hyper = noiseless(prepared.step), noiseless_hyper(prepared.hyper)
    records, _ = prepared.on_device
    state = prepared.spec.placed(jax.jit(free.init)(new_key(), hyper))
    steps = run(free, hyper, state, records, prepared.privacy.iterations, stop=stop)
    last, state = to_the_end(steps)
    if last.status != "done":
        return None
    return Scores(evaluate(free.unconstrained(state, prepared.spec.averages)), "outside the guarantee")
