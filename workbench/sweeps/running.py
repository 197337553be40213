"""Run the cells of a sweep. Cells that differ only in numbers are stepped together, as lanes of one
compiled program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.autoguide import AutoGuide

from workbench import _compiled, _validate
from workbench.clipping.separation import PrivacyModelError
from workbench.fitting.baseline import noiseless, noiseless_hyper
from workbench.fitting.evaluation import Outputs, evaluation_key, evaluation_of, metrics_of
from workbench.fitting.functions import CompiledFunctions
from workbench.fitting.spec import FitSpec, is_array
from workbench.inference.batched import (
    BatchedProgram,
    bytes_per_lane,
    cores,
    stacked,
    starting_states,
    unconstrained,
)
from workbench.inference.checkpoint import by_name
from workbench.inference.running_moments import arrays_of
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.training import all_finite
from workbench.privacy.plan import PrivacyPlan
from workbench.sweeps.request import DP, NON_PRIVATE, POOLED

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "SMALL_ENOUGH",
    "Finished",
    "Outcome",
    "Run",
    "are_public",
    "groups_of",
    "plan_of",
    "run_group",
    "scores_of",
]

_MOST_LANES = 256
_WORTH_TOGETHER = (
    2e7  # gradient entries of a step up to which lanes gain more than they wait for each other
)
_MEMORY_SHARE = 0.4  # share of the free memory
SMALL_ENOUGH = 2**20  # largest number of parameter entries that are kept


@dataclass(frozen=True)
class Run:
    """One fit, with all settings and calibrated noise.

    :param key: of the cell.
    :param method: of the cell.
    :param plan: None for "scikit-learn".
    """

    key: str
    method: str
    spec: FitSpec
    plan: PrivacyPlan | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run, computed from the release and the evaluation records alone.

    :param key: of the cell.
    :param status: "done", "failed" or "refused".
    :param message: the reason.
    :param metrics: as ``FitSpec.shows_metrics`` allows; scores through noise if they were asked
        for.
    :param intervals: of scores through noise.
    :param params: constrained parameters by name, if they are kept.
    :param seconds: its share of the time that the steps took.
    """

    key: str
    status: str
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, np.ndarray] | None = None
    seconds: float = 0.0
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A private fit that took all its steps, as ``scoring.Ended``."""

    spec: FitSpec
    plan: PrivacyPlan
    key: jax.Array
    functions: CompiledFunctions
    unconstrained: dict[str, Any]
    is_done: bool = True

    def scored(self, outcome: Outcome) -> Outcome:
        """``outcome`` with the scores that are released of this fit; called once."""
        scores = self.spec.scorer.released(self)
        if not scores:
            return outcome
        return dataclasses.replace(
            outcome,
            metrics=scores["metrics"],  # and no exact ones, which the row would call covered
            intervals=scores.get("metric_intervals", {}),
            message=scores.get("message", outcome.message),
        )


def plan_of(spec: FitSpec, plans: dict[Any, PrivacyPlan], dimension: int = 1) -> PrivacyPlan:
    """The plan of a fit, confirmed. Fits that differ only in the seed are calibrated once and noted
    in ``plans``.

    :param dimension: coordinates that get noise.
    :raises DisagreementError: if a second accountant contradicts its epsilon.
    """
    without_seed = dataclasses.replace(spec.privacy, seed=None)
    key = without_seed, spec.data.num_train, spec.is_vacant, dimension
    if key not in plans:
        plans[key] = (
            dataclasses.replace(spec, privacy=without_seed)
            .plan()
            .for_noise_in(dimension)
            .confirmed()
        )
    plan = plans[key]
    return dataclasses.replace(
        plan, settings=dataclasses.replace(plan.settings, seed=spec.privacy.seed)
    )


def groups_of(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups of runs that one compiled program can step together; the pooled baselines form one
    group.

    Those without privacy are separate from the others, whose steps add noise to all that they
    release.
    """
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        program = None if run.plan is None else run.spec.program_key(run.plan)
        groups.setdefault((run.method == NON_PRIVATE, program), []).append(run)
    return list(groups.values())


def run_group(
    runs: Sequence[Run],
    *,
    max_lanes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int], None] = lambda step: None,
    before: Callable[[Sequence[Run]], None] = lambda runs: None,
) -> Iterator[list[Outcome]]:
    """Run a group of ``groups_of`` and yield the outcomes of each batch. A stop ends it early.

    If there is too little memory, the batch is halved. A batch that is stopped is discarded unseen,
    as if it had not begun.

    :param max_lanes: the most fits that are stepped together.
    :param devices: among which they are spread, the first as of the fits; None for that one alone.
    :param stop: returns True to end early.
    :param on_step: called with the number of steps that each running fit has taken.
    :param before: called with each batch before its first step; an error that it raises ends the
        group.
    """
    if runs[0].method == POOLED:
        for run in runs:
            if stop():
                return
            yield [_pooled(run)]
        return
    try:
        with _compiled.kept(are_public(runs)):
            group = _Group(runs, devices or runs[0].spec.devices)
    except (PrivacyModelError, ValueError) as error:
        yield [Outcome(run.key, "refused", str(error)) for run in runs]
        return
    lanes = min(len(runs), max_lanes or _MOST_LANES * len(group.devices), group.affordable_lanes)
    # batches of nearly the same size share one program
    lanes = math.ceil(len(runs) / math.ceil(len(runs) / lanes))
    over = 0
    while over < len(runs):
        if stop():
            return
        batch = runs[over : over + lanes]
        before(batch)
        try:
            with _compiled.kept(are_public(batch)):
                outcomes = group.run(batch, lanes, stop, on_step)
        except _validate.ArgumentError as error:  # before the first step
            outcomes = [Outcome(run.key, "failed", str(error)) for run in batch]
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            lacks_memory = isinstance(error, MemoryError) or any(
                words in str(error).lower() for words in ("resource_exhausted", "out of memory")
            )
            if lacks_memory and lanes > len(group.devices):  # else each device has one already
                lanes = math.ceil(lanes / 2)
                group.forget()
                continue
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            outcomes = [Outcome(run.key, "failed", message) for run in batch]
        if outcomes is None:
            return
        over += len(batch)
        yield outcomes


def are_public(runs: Sequence[Run]) -> bool:
    """Whether training and evaluation records of all runs are, so that their programs may be kept
    on disk.
    """
    return all(run.spec.data.is_public and run.spec.data.evaluation_is_public for run in runs)


def _room(run: Run) -> float:
    assert run.plan is not None
    return run.plan.mechanism.room(run.plan.sampler.capacity)


class _Group:
    """Runs that share a program, with its compiled functions, and the devices among which they are
    spread.
    """

    def __init__(self, runs: Sequence[Run], devices: Sequence[jax.Device]) -> None:
        # where its noise has room, that of the others has; the step itself asks only for one
        first, self.devices = min(runs, key=_room), devices
        assert first.plan is not None
        self.spec = first.spec
        self.step, self._start = first.spec.begin(first.plan, first.spec.new_key())
        if first.method == NON_PRIVATE:
            self.step = noiseless(self.step)
        datasets = [run.spec.data for run in runs]
        self.shared = all(_same_arrays(run.spec.records, first.spec.records) for run in runs)
        self._evaluation_is_shared = all(
            _same_arrays(data.evaluation, datasets[0].evaluation) for data in datasets
        )
        constants = [run.spec.constants for run in runs]
        # public facts about the data that the model takes by keyword, such as the features of
        # groups
        self._differing = [
            name
            for name, value in constants[0].items()
            if is_array(value)
            and any(
                lane_constants[name] is not value
                and not np.array_equal(lane_constants[name], value)
                for lane_constants in constants
            )
        ]
        self._program: tuple[int, BatchedProgram] | None = None
        self._begun: dict[Any, Any] = {}

    @functools.cached_property
    def affordable_lanes(self) -> int:
        """The number of lanes that fit into memory and are worth stepping together."""
        records = self.spec.records
        needed = bytes_per_lane(self.step, self._start, records, shared=self.shared)
        number, on_cpu = len(self.devices), self.spec.device.platform == "cpu"
        # they share that of the machine
        memory = min(map(_free_memory, self.devices)) / (number if on_cpu else 1)
        lanes = max(1, int(_MEMORY_SHARE * memory / needed))
        if on_cpu:
            minibatch = self.step.sampler.usual_size()
            most = int(_WORTH_TOGETHER / (minibatch * self.step.noise_size))
            lanes = min(lanes, max(cores() if number == 1 else 1, most))
        return number * lanes

    def forget(self) -> None:
        """Release the compiled functions."""
        self._program = None

    def run(
        self,
        runs: Sequence[Run],
        lanes: int,
        stop: Callable[[], bool],
        on_step: Callable[[int], None],
    ) -> list[Outcome] | None:
        """The outcomes of ``runs``; None after a stop."""
        spec = self.spec
        if self._program is None or self._program[0] != lanes:
            self._program = (
                lanes,
                BatchedProgram(self.step, lanes, shared=self.shared, devices=self.devices),
            )
        keys = [run.spec.new_key() for run in runs]
        records = (
            tuple(map(jnp.asarray, spec.records))
            if self.shared
            else tuple(
                jnp.stack(arrays)
                for arrays in zip(*(run.spec.records for run in runs), strict=True)
            )
        )
        hyper = stacked([self._hyper(run) for run in runs])
        starts = self._starts(runs, keys, hyper)
        evaluate = functools.partial(self._outputs, runs, keys, hyper.constants)
        first = unconstrained(self.step, starts, spec.averages)
        with ThreadPoolExecutor(1, thread_name_prefix="dpvi-evaluation") as background:
            # compiles what comes after the steps meanwhile, on the starting values, which are
            # public
            compiling = background.submit(
                lambda: (self._constrained(first), spec.shows_metrics and evaluate(first))
            )
            ended = self._program[1].run(
                starts, records, hyper, spec.privacy.iterations, stop=stop, on_step=on_step
            )
            compiling.result()
        if not ended.finished:
            return None
        params = unconstrained(self.step, ended.state, spec.averages)
        constrained = self._constrained(params)
        host_params, moments = (
            jax.device_get(params),
            arrays_of(jax.device_get(ended.state.moments)),
        )
        finite = [
            all_finite(jax.tree.map(lambda leaf, lane=lane: leaf[lane], host_params))
            for lane in range(len(runs))
        ]
        metrics = self._scores(runs, evaluate(params), finite) if spec.shows_metrics else None
        outcomes = []
        for index, run in enumerate(runs):
            if not finite[index]:
                reason = (
                    "the parameters are not finite: try a smaller learning rate or clip, or a "
                    "larger epsilon."
                )
                outcomes.append(
                    Outcome(run.key, "failed", reason, seconds=ended.seconds / len(runs))
                )
                continue
            is_stored = (
                run.method == DP
                and sum(array[index].size for array in constrained.values()) <= SMALL_ENOUGH
            )
            scores, message = ({}, "") if metrics is None else metrics[index]
            outcome = Outcome(
                run.key,
                "done",
                message,
                scores,
                {name: np.array(array[index]) for name, array in (constrained | moments).items()}
                if is_stored
                else None,
                ended.seconds / len(runs),
            )
            if run.method == DP:
                assert run.plan is not None
                lane = jax.tree.map(lambda leaf, index=index: leaf[index], params)
                functions = self._functions_of(run, keys[index])
                finished = Finished(run.spec, run.plan, keys[index], functions, lane)
                outcome = finished.scored(outcome)
            outcomes.append(outcome)
        return outcomes

    def _functions_of(self, run: Run, key: jax.Array) -> CompiledFunctions:
        if not self._differing:
            return self._functions
        assert run.plan is not None
        return CompiledFunctions(run.spec.private_step(run.plan, key), run.spec)

    @functools.cached_property
    def _functions(self) -> CompiledFunctions:
        return CompiledFunctions(self.step, self.spec)

    def _hyper(self, run: Run) -> Hyperparameters:
        """What this run's steps take as arguments besides state, records and draws."""
        assert run.plan is not None
        hyper = run.spec.hyper(run.plan, self.step)
        if run.method == NON_PRIVATE:
            hyper = noiseless_hyper(hyper)
        return hyper._replace(
            constants={name: jnp.asarray(run.spec.constants[name]) for name in self._differing}
        )

    def _starts(
        self, runs: Sequence[Run], keys: Sequence[jax.Array], hyper: Hyperparameters
    ) -> DPVIState:
        """The lanes' states before the first step, the same as in separate fits."""
        if not isinstance(self.step.model.guide, AutoGuide):
            return starting_states(self.step, keys, hyper)
        states = []
        for run, key in zip(runs, keys, strict=True):
            assert run.plan is not None
            # a seed gives the same starting values with any noise
            origin = run.spec.privacy.seed, *map(id, run.spec.data.train)
            state = self._begun.get(origin) if origin[0] is not None else None
            if state is None:
                model = run.spec.private_step(run.plan, key).model
                state = self.step.init(key, self._hyper(run), model.initial)
                self._begun[origin] = state
            states.append(state)
        return stacked(states)._replace(step=jnp.zeros((), jnp.int32))

    def _constrained(self, params: PyTree) -> dict[str, np.ndarray]:
        """The constrained parameters of all lanes, by name."""
        return by_name(jax.device_get(self._constrain(params)))

    @functools.cached_property
    def _constrain(self) -> Callable[[Any], Any]:
        return jax.jit(jax.vmap(self.step.model.constrain))

    def _outputs(
        self, runs: Sequence[Run], keys: Sequence[jax.Array], constants: PyTree, params: PyTree
    ) -> Any:
        """The ``evaluation.Outputs`` of all runs at ``params``, stacked."""
        sets = [run.spec.data.evaluation for run in runs]
        records = (
            sets[0]
            if self._evaluation_is_shared
            else tuple(np.stack(arrays) for arrays in zip(*sets, strict=True))
        )
        own_keys = jnp.stack([evaluation_key(key) for key in keys])
        return jax.device_get(
            self._evaluate(
                *jax.device_put((params, own_keys, constants, records), self.spec.device)
            )
        )

    def _scores(
        self, runs: Sequence[Run], outputs: Outputs, finite: Sequence[bool]
    ) -> list[tuple[dict[str, float], str]]:
        """``scores_of`` each run; nothing of those whose parameters are not finite."""
        lanes = [
            functools.partial(jax.tree.map, lambda output, lane=lane: output[lane], outputs)
            for lane in range(len(runs))
        ]
        return [
            scores_of(run.spec, run.spec.data.evaluation, outputs_of) if sound else ({}, "")
            for run, outputs_of, sound in zip(runs, lanes, finite, strict=True)
        ]

    @functools.cached_property
    def _evaluate(self) -> Callable[..., Any]:
        """The jitted function that evaluates all lanes, one after the other."""
        evaluate = evaluation_of(self.step, self.spec.model, self.spec.data.num_evaluation)
        shared = self._evaluation_is_shared

        @jax.jit
        def all_lanes(params: PyTree, keys: PyTree, constants: PyTree, records: PyTree) -> Any:
            def one(lane: PyTree) -> Any:
                own_params, key, own_constants, lane_records = lane
                return evaluate(own_params, records if shared else lane_records, key, own_constants)

            return jax.lax.map(one, (params, keys, constants, None if shared else records))

        return all_lanes


def scores_of(
    spec: FitSpec, evaluation: Sequence[np.ndarray], outputs: Callable[[], Outputs]
) -> tuple[dict[str, float], str]:
    """(metrics, what went wrong with them): an error in a model's own score must not lose what
    epsilon was spent on.
    """
    try:
        return metrics_of(spec.model, np.asarray(evaluation[-1]), outputs()), ""
    except Exception as error:
        return {}, f"metrics could not be computed ({_validate.kind_and_message(error)})."


def _same_arrays(arrays: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> bool:
    return all(array is reference for array, reference in zip(arrays, references, strict=True))


def _free_memory(device: jax.Device) -> float:
    """The free memory in bytes, or a guess."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 2e9


def _pooled(run: Run) -> Outcome:
    """Fit scikit-learn's logistic regression, without groups and without privacy."""
    from sklearn.linear_model import LogisticRegression

    data = run.spec.data
    began = time.perf_counter()
    try:
        x, y = data.train[data.arrays.index("x")], data.train[data.arrays.index("y")]
        fitted = LogisticRegression(max_iter=1000).fit(x, y)
        probabilities = fitted.predict_proba(data.evaluation[data.arrays.index("x")])[:, 1]
        metrics = run.spec.model.score(
            np.asarray(data.evaluation[data.arrays.index("y")]), probabilities
        )
    except Exception as error:
        return Outcome(run.key, "failed", f"{type(error).__name__}: {error}".splitlines()[0])
    return Outcome(run.key, "done", "", dict(metrics), None, time.perf_counter() - began)
