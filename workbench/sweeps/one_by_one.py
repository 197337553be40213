"""Fits of a sweep whose records stay in a file: one after another, as ``workbench.fit`` takes their
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from workbench import _compiled
from workbench.clipping.separation import PrivacyModelError
from workbench.fitting.baseline import noiseless, noiseless_hyper
from workbench.fitting.evaluation import evaluation_key
from workbench.fitting.functions import CompiledFunctions
from workbench.inference.bringing import require_room
from workbench.inference.checkpoint import by_name
from workbench.inference.compiling import interval_of
from workbench.inference.running_moments import arrays_of
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.inference.training import run as run_training
from workbench.inference.training import to_the_end
from workbench.sweeps.request import DP, NON_PRIVATE
from workbench.sweeps.running import SMALL_ENOUGH, Finished, Outcome, Run, are_public, scores_of

__all__ = ["run_one_by_one"]


def run_one_by_one(
    runs: Sequence[Run],
    stop: Callable[[], bool],
    on_step: Callable[[int], None],
    before: Callable[[Sequence[Run]], None],
) -> Iterator[list[Outcome]]:
    """As ``running.run_group``, without lanes: a minibatch is read for one fit. One that is stopped
    is discarded unseen.
    """
    for run in runs:
        if stop():
            return
        outcome: Outcome | None
        with _compiled.kept(are_public([run])):
            try:
                begun = _begun(run)
            except (PrivacyModelError, ValueError) as error:
                outcome = Outcome(run.key, "refused", str(error))
            else:
                before([run])
                outcome = _outcome(run, *begun, stop, on_step)
        if outcome is None:
            return
        yield [outcome]


def _begun(run: Run) -> tuple[tuple[np.ndarray, ...], PrivateStep, Hyperparameters, DPVIState]:
    """Evaluation records, what a run takes its steps with, and its state before the first.

    :raises ValueError: if it cannot be run. :raises RecordsError: if evaluation records cannot be
        read.
    """
    spec, plan, key = run.spec, run.plan, run.spec.new_key()
    assert plan is not None
    # before any step: what epsilon was spent on must not be lost because these do not fit into
    # memory, or were altered
    is_read = spec.shows_metrics or spec.settings.covered_scores
    held_out = tuple(map(np.asarray, spec.data.evaluation)) if is_read else ()
    step = spec.private_step(plan, key)
    hyper = spec.hyper(plan, step)
    if run.method == NON_PRIVATE:
        step, hyper = noiseless(step), noiseless_hyper(hyper)
    state = step.init(key, hyper, step.model.initial)
    require_room(
        step.sampler, spec.records, spec.privacy.iterations, interval_of(spec.privacy.iterations)
    )
    return held_out, step, hyper, spec.placed(state)


def _outcome(
    run: Run,
    held_out: tuple[np.ndarray, ...],
    step: PrivateStep,
    hyper: Hyperparameters,
    state: DPVIState,
    stop: Callable[[], bool],
    on_step: Callable[[int], None],
) -> Outcome | None:
    """The outcome of a run; None after a stop."""
    spec, key = run.spec, state.key
    snapshots = run_training(
        step,
        hyper,
        state,
        spec.placed_records(),
        spec.privacy.iterations,
        stop=stop,
        averaged=spec.averages,
    )
    last, end = to_the_end(snapshots, lambda snapshot: on_step(snapshot.step))
    if last.status == "cancelled":
        return None
    if last.status == "failed":
        return Outcome(run.key, "failed", last.message, seconds=last.seconds)
    params, at_end = by_name(last.params), step.unconstrained(end, spec.averages)
    functions = CompiledFunctions(step, spec)
    is_stored = run.method == DP and sum(array.size for array in params.values()) <= SMALL_ENOUGH
    metrics, message = (
        scores_of(
            spec,
            held_out,
            lambda: functions.compute(
                at_end, jax.device_put(held_out, spec.device), evaluation_key(key)
            ),
        )
        if spec.shows_metrics
        else ({}, "")
    )
    arrays = params | arrays_of(jax.device_get(end.moments)) if is_stored else None
    outcome = Outcome(run.key, "done", message, metrics, arrays, last.seconds)
    if run.method != DP or run.plan is None:
        return outcome
    return Finished(spec, run.plan, key, functions, at_end).scored(outcome)
