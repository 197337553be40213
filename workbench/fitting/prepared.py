"""A checked and calibrated fit: it trains step by step, writes checkpoints, evaluates, and gives a
result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from workbench import _compiled, _memory, _validate
from workbench._validate import ArgumentError
from workbench._versions import versions
from workbench.data import Dataset
from workbench.data.look import scales_to_dict
from workbench.fitting.checkpoints import Checkpoint
from workbench.fitting.digests import Digests, of_outcome
from workbench.fitting.estimation import Inferred, Metrics
from workbench.fitting.functions import CompiledFunctions
from workbench.fitting.learned_scales import (
    of_absent,
    of_no_scale,
    of_other_levels,
    of_values_outside,
)
from workbench.fitting.run_log import RunLog
from workbench.fitting.settings import Settings
from workbench.fitting.spec import FitSpec
from workbench.inference.checkpoint import by_name, state_of
from workbench.inference.compiling import Compiling, compile_ahead, interval_of, lower
from workbench.inference.running_moments import Moments, arrays_of, moments_in
from workbench.inference.sources import ON_ONE_DEVICE
from workbench.inference.state import DPVIState, Hyperparameters, Purpose
from workbench.inference.step import PrivateStep
from workbench.inference.training import Snapshot, all_finite
from workbench.inference.training import run as run_training
from workbench.models import Model
from workbench.noise.chacha20 import child_key
from workbench.privacy.gradient_norms import GradientNorms
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan, PrivacySettings
from workbench.results import FitResult, HistoryPoint

__all__ = ["PreparedFit", "by_name"]

_GUESSED = (
    "There are too few records for this epsilon to learn how columns are spread, so the declared "
    "bounds stand for that. Where a column fills less than a fifth of its bounds, its effect is "
    "drawn towards 0 and its interval may miss it: declare bounds that are near to the values."
)


@dataclass(repr=False)
class PreparedFit:
    """A checked and calibrated fit. ``run`` trains it, and then ``result`` returns the result,
    however the run ended.

    It holds private records and a secret key: show and store its ``result``, not the object itself.
    """

    spec: FitSpec
    plan: PrivacyPlan
    step: PrivateStep
    state: DPVIState
    key: jax.Array
    run_log: RunLog
    functions: CompiledFunctions
    _last: Snapshot | None = None
    _end: DPVIState | None = None
    _adopted: Moments | None = None
    _history: list[HistoryPoint] = dataclasses.field(default_factory=list)
    _scores: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Show neither records nor the secret key, which a notebook would print and keep."""
        words = f" of the {self.model.target_words}" if self.model.target_words else ""
        return (
            f"PreparedFit({self.model.name}{words} on {self.data.name}, {self.privacy}, "
            f"{self.plan.mechanism})"
        )

    @property
    def model(self) -> Model:
        """The model that is fitted."""
        return self.spec.model

    @property
    def data(self) -> Dataset:
        """The records, as the model sees them."""
        return self.spec.data

    @property
    def settings(self) -> Settings:
        """All settings, checked and chosen."""
        return self.spec.settings

    @property
    def device(self) -> jax.Device:
        """The device that it runs on."""
        return self.spec.device

    @property
    def privacy(self) -> PrivacySettings:
        """The settings that change the guarantee."""
        return self.plan.settings

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences about settings and a model that are allowed but unwise; ``fit`` shows them as
        warnings.
        """
        of_scores = self.spec.scorer.cautions(self.spec, self.plan)
        return (*self.privacy.cautions(), *of_scores, *self._guesses(), *self.model.cautions)

    @property
    def shows_metrics(self) -> bool:
        """Whether metrics on the evaluation records are computed."""
        return self.spec.shows_metrics

    def guarantee(self, steps_taken: int) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps."""
        return self.spec.guarantee(
            self.plan, steps_taken, self.step.noised_coordinates, self.run_log.hid_reads
        )

    @functools.cached_property
    def hyper(self) -> Hyperparameters:
        """What the step takes as arguments besides state, records and draws."""
        return self.spec.hyper(self.plan, self.step)

    @functools.cached_property
    def evaluator(self) -> Metrics | None:
        """The function from unconstrained parameters to metrics on the evaluation records; None if
        they may not be shown.
        """
        if not self.shows_metrics:
            return None
        return self.spec.estimation.evaluator(self, float(self.hyper.standard_deviation))

    @functools.cached_property
    def on_device(self) -> tuple[tuple[Any, ...], DPVIState]:
        """The training records, unless they stay in a file, and the state before the first step, on
        the device(s).
        """
        return self.spec.placed_records(), self.spec.placed(self.state)

    @_compiled.keeping
    def compile(self) -> None:
        """Compile what ``run`` needs, so that it can begin at once, and return when everything is
        compiled.

        No step is taken and no privacy is spent: only the shapes of records are used. A second
        thread that calls it waits.
        """
        functions = self.functions
        with functions.lock:
            if functions.steps is not None or self._is_to_look:
                return
            records, state = self.on_device
            steps = compile_ahead(
                self.step, self.hyper, state, records, self.privacy.iterations, self._kept
            )
            if self.evaluator is not None:
                # ``run`` reports a score that fails, and continues without it
                with contextlib.suppress(Exception):
                    self.evaluator(self.step.unconstrained(self.state, self.spec.averages))
            steps.compilation.result()
            functions.steps = steps

    def again(
        self, new_key: Callable[[], jax.Array] | None = None, step: PrivateStep | None = None
    ) -> PreparedFit:
        """Prepare another fit of the same plan, with new randomness (a seed gives the same) and
        everything compiled. It spends its own epsilon.

        :param new_key: makes its key, which nothing else may use.
        :param step: that of this fit, to begin where this one began; without a look alone.
        """
        spec = self.spec if self.plan.look is None else self.spec.declared or self.spec
        # of the spec before a look of the run: C and the number of records are those again
        plan = self.plan.after_look(spec.privacy, spec.data.num_train, is_vacant=spec.is_vacant)
        key = (new_key or spec.new_key)()
        # by default made again: an automatic guide keeps its starting values
        step, state = spec.begin(plan, key, step)
        fresh = dataclasses.replace(
            self,
            spec=spec,
            plan=plan,
            step=step,
            state=state,
            key=key,
            run_log=self.run_log.again(),
            _last=None,
            _end=None,
            _adopted=None,
            _history=[],
            _scores={},
        )
        if spec is self.spec:
            vars(fresh)["on_device"] = self.on_device[0], spec.placed(state)
        else:
            fresh.functions = CompiledFunctions(step, spec)
        return fresh

    @property
    def has_begun(self) -> bool:
        """Whether ``run`` has been called: the noise belongs to that run."""
        return self._last is not None

    @property
    def is_done(self) -> bool:
        """Whether all steps were taken."""
        return self._last is not None and self._last.status == "done"

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics at the end of a run."""
        assert self._last is not None
        return self._last.metrics

    @property
    def unconstrained(self) -> dict[str, Any]:
        """The parameters at the end of a run, as ``evaluator`` takes them."""
        assert self._end is not None
        return self.step.unconstrained(self._end, self.spec.averages)

    @property
    def moments(self) -> Moments | None:
        """Of the release so far; None where none were kept."""
        return self._adopted if self._end is None else self._end.moments

    @property
    def can_resume(self) -> bool:
        """Whether ``run`` can be called again, because the run was cancelled between two steps."""
        return self._last is not None and self._last.status == "cancelled" and self._end is not None

    @_compiled.keeping
    def run(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Snapshot]:
        """Train, and yield snapshots. The last one's status is "done", "cancelled" or "failed".

        A cancelled run that is called again continues where it was, up to the planned steps, and
        ends exactly where it would have ended without the pause. The guarantee is for all planned
        steps, so a pause costs nothing.

        :param stop: called between chunks of steps (about every 0.3 s); True ends the run as
            "cancelled".
        :raises RuntimeError: if the run has ended, or was interrupted within a step.
        :raises CapError: if a cap on what may be spent on the records does not allow it.
        :raises LedgerError: if the ledger cannot be written.
        :raises DisagreementError: if a second accountant does not confirm epsilon.
        """
        _validate.function("stop", stop)
        if self._last is not None and not self.can_resume:
            raise RuntimeError(
                "this fit has run already: prepare another one (every run spends its own epsilon)."
            )
        looks = self._is_to_look
        if looks:
            self._begin()
            try:
                self._look()
            except BaseException:
                self._write_end(0)  # it counts, because the look may have been released
                raise
        records, start = self.on_device
        compiling = self._compiling()
        if not looks:  # while the steps compile
            self._begin()
        taken: int | None = 0  # None for all steps that were marked
        try:
            before = 0.0
            if self._last is not None and self._end is not None:
                start = self.spec.placed(self._end)
                before, taken = self._last.seconds, self._last.step
            self._end = None  # until there is a newer one
            snapshots = run_training(
                self.step,
                self.hyper,
                start,
                records,
                self.privacy.iterations,
                stop=stop,
                evaluate=self.evaluator if self.spec.processes.is_first else None,
                epsilon_at=self.plan.epsilon_so_far(),
                averaged=self.spec.averages,
                compiled=compiling,
                before_chunk=lambda state, limit: self.run_log.before_chunk(
                    state, limit, self._progress
                ),
            )
            while True:
                try:
                    snapshot = next(snapshots)
                except StopIteration as ended:
                    # an interrupt within a chunk takes the state with it
                    leaves = (
                        leaf for leaf in jax.tree.leaves(ended.value) if isinstance(leaf, jax.Array)
                    )
                    is_intact = not any(leaf.is_deleted() for leaf in leaves)
                    self._end = ended.value if is_intact else None
                    break
                except BaseException as error:  # a partial result is kept whatever went wrong
                    taken = None
                    if self._last is not None:
                        message = f"{type(error).__name__}: {error}"
                        self._last = dataclasses.replace(
                            self._last, status="failed", message=message
                        )
                    raise
                snapshot = dataclasses.replace(snapshot, seconds=before + snapshot.seconds)
                self._last, taken = snapshot, snapshot.step
                if snapshot.metrics:
                    if self._history and self._history[-1].step == snapshot.metrics_step:
                        self._history.pop()  # a stopped run is evaluated again at its last step
                    point = HistoryPoint(snapshot.metrics_step, dict(snapshot.metrics))
                    self._history.append(point)
                yield snapshot
            self._scores = self.spec.scorer.released(self)
        finally:
            self._write_end(taken)

    @property
    def _is_to_look(self) -> bool:
        return self.plan.look is not None and self.spec.declared is None

    def _look(self) -> None:
        """Count the columns with noise, and go on with the scales that follow from the counts."""
        self._go_on_with(self.spec.columns.looked(self.spec, self.plan, self.key))

    def _go_on_with(self, spec: FitSpec) -> None:
        self.plan, self.spec = spec.plan_after_look(self.plan), spec
        key = child_key(self.key, Purpose.STEPS_AFTER_LOOK)
        self.key = child_key(key, of_outcome(spec, self.plan))
        self.step, self.state = self.spec.begin(self.plan, self.key)
        self.functions = CompiledFunctions(self.step, self.spec)
        for name in ("on_device", "hyper", "evaluator", "_uncompiled_program"):
            vars(self).pop(name, None)

    def _kept(self) -> contextlib.AbstractContextManager[None]:
        return _compiled.kept(self.data.is_public and self.data.evaluation_is_public)

    def _compiling(self) -> Compiling:
        """The steps, whose compilation has begun."""
        if self.functions.steps is None:
            records, start = self.on_device
            self.functions.steps = compile_ahead(
                self.step, self.hyper, start, records, self.privacy.iterations, self._kept
            )
        return self.functions.steps

    def _begin(self) -> None:
        """Have epsilon confirmed and reserve what the run spends, once in all processes, which must
        be about to take the same steps.
        """
        self.plan = self.plan.confirmed()
        processes = self.spec.processes
        if processes.count > 1:
            secret = processes.from_first(os.urandom(32))
            processes.require_same(self._digests.by_part(self._program(), secret))
        processes.by_first(lambda: self.run_log.begin(self._digest, self._digest_anywhere))

    @property
    def _digests(self) -> Digests:
        return Digests(self.spec, self.plan, self.step.noised_coordinates, self.state)

    def _program(self, *, to_run: bool = True) -> str:
        """The digest of the steps. :param to_run: whether to compile them too."""
        if to_run and not self._is_to_look:
            return self._compiling().lowered.result().digest
        return self._uncompiled_program

    @functools.cached_property
    def _uncompiled_program(self) -> str:
        records, start = self.on_device
        interval = interval_of(self.privacy.iterations)
        return lower(self.step, self.hyper, start, records, interval).digest

    def _digest(self, *, to_run: bool = True) -> str:
        """The digest of everything that decides the result except records and a secret key.

        It depends on ``state`` before the first step, so it must be asked for while that is there.

        :param to_run: whether to compile the steps too.
        """
        return self._digests.of_steps(self._program(to_run=to_run))

    def _digest_anywhere(self) -> str:
        """As ``_digest``, but the same on any number of devices."""
        if len(self.spec.devices) == 1:
            return self._digests.anywhere(self._program())
        step = dataclasses.replace(self.step, source=ON_ONE_DEVICE)
        start = jax.device_put(self.state, self.device)
        sharding = jax.sharding.SingleDeviceSharding(self.device)
        canonical = jax.dtypes.canonicalize_dtype
        records: Any = tuple(
            jax.ShapeDtypeStruct(array.shape, canonical(array.dtype), sharding=sharding)
            for array in self.spec.records
        )
        return self._digests.anywhere(
            lower(step, self.hyper, start, records, interval_of(self.privacy.iterations)).digest
        )

    def _progress(self) -> dict[str, Any]:
        """What checkpoints say about the run so far, with the label of its metrics."""
        return {
            "history": [[point.step, point.metrics] for point in self._history],
            "seconds": 0.0 if self._last is None else self._last.seconds,
            "metrics_label": self.data.evaluation_label,
            "scales": scales_to_dict(self.spec.scales),
            "learned": dict(self.spec.learned),
            "outcome": of_outcome(self.spec, self.plan),
        }

    def _write_end(self, taken: int | None) -> None:
        """Write down that the run ended; the result's message says what could not be written."""
        last = self._last
        outcome: dict[str, Any] = {}
        if last is not None and last.status == "done":
            outcome["params"] = by_name(last.params) | arrays_of(self.moments)
        elif (
            last is not None
            and self._end is not None
            and all_finite(self.step.unconstrained(self._end))
        ):
            outcome["state"] = self._end
        problem = self.run_log.end(taken, self._progress(), **outcome)
        if last is not None and problem:
            self._last = dataclasses.replace(last, message=f"{last.message} {problem}".strip())

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of this fit when ``run`` is called; if it is finished,
        ``result`` can be called.

        :raises ArgumentError: if the checkpoint belongs to another fit, saying how it differs.
        """
        if self.has_begun:
            raise RuntimeError("this fit has run already: prepare another one.")
        digest = functools.partial(self._digest, to_run=not checkpoint.is_finished)
        self.run_log.continue_from(checkpoint, digest, self._digest_anywhere)
        facts = checkpoint.facts
        if (looked := self.run_log.after_look(facts)) is not self.spec:
            self._go_on_with(looked)
        history = [HistoryPoint(int(step), dict(metrics)) for step, metrics in facts["history"]]
        if checkpoint.is_finished:
            last = history[-1].metrics if history else {}
            self.adopt(checkpoint.arrays(), last, facts["seconds"])
            self._history = history
            return
        state = state_of(checkpoint.arrays(), self.state, checkpoint.path)
        self.key, self.state, self._end = state.key, state, state
        vars(self).pop("on_device", None)
        params = jax.tree.map(np.asarray, self.step.get_params(state, averaged=self.spec.averages))
        step, metrics = int(state.step), history[-1].metrics if history else {}
        self._history = history
        self._last = Snapshot(
            "cancelled",
            step,
            params,
            self.plan.epsilon_after(step),
            dict(metrics),
            history[-1].step if history else 0,
            facts["seconds"],
        )

    def adopt(
        self, params: Mapping[str, np.ndarray], metrics: Mapping[str, float], seconds: float
    ) -> None:
        """Take the release of a run of this plan elsewhere as the end of the run here, so that
        ``result`` can be called.

        :param params: constrained parameters, named as by ``by_name``, and moments of the release
            if some were kept.
        :param metrics: of the evaluation records.
        :param seconds: the time that the run took.
        :raises ArgumentError: if the parameters do not belong to this model.
        """
        if self.has_begun:
            raise RuntimeError("this fit has run already: prepare another one.")
        self.plan = self.plan.confirmed()
        self._adopted, params = moments_in(params)
        like = self.step.get_params(self.state)
        shapes = {name: array.shape for name, array in by_name(like).items()}
        actual = {name: np.shape(array) for name, array in params.items()}
        if shapes != actual:
            raise ArgumentError("params", actual, f"must have the names and shapes {shapes}.")
        adopted = {
            name: jax.tree_util.tree_map_with_path(
                lambda path, leaf, name=name: np.asarray(
                    params[name + jax.tree_util.keystr(path)], leaf.dtype
                ),
                value,
            )
            for name, value in like.items()
        }
        taken = self.privacy.iterations
        self._last = Snapshot(
            "done", taken, adopted, self.plan.epsilon_after(taken), dict(metrics), taken, seconds
        )
        if metrics:
            self._history.append(HistoryPoint(taken, dict(metrics)))

    @_compiled.keeping
    def result(self, *, last_iterate: bool = False) -> FitResult:
        """The result of the run that ended, partial or complete.

        :param last_iterate: return the last iterate instead of the mean, for a run that averages
            iterates. Both are covered by the guarantee.
        """
        last = self._last
        if last is None or last.status == "running":
            raise RuntimeError(
                "there is no result yet: call run() and take all its snapshots first."
            )
        scores = self._scores
        if (
            _validate.flag("last_iterate", last_iterate)
            and self._end is not None
            and last.status != "failed"
        ):
            evaluate, scores = self.evaluator, {}  # scores are of the mean
            last = dataclasses.replace(
                last,
                params=jax.tree.map(np.asarray, self.step.get_params(self._end)),
                metrics={} if evaluate is None else evaluate(self.step.unconstrained(self._end)),
            )
        posterior = self._posterior(last)
        _memory.tidy()  # of what compiling took
        result = FitResult(
            status=last.status,
            message=last.message,
            guarantee=self.guarantee(last.step),
            model=self.model.name,
            model_options=dict(self.model.options),
            data=self._data_facts(),
            settings={
                **self.privacy.facts(),
                "sampling_rate": self.step.sampler.sampling_rate,
                **self.spec.run_settings(),
            },
            params=by_name(last.params),
            draws=(draws := posterior.guide if posterior.draws is None else posterior.draws),
            variational_draws={} if posterior.draws is None else posterior.guide,
            gradient_norms=posterior.norms,
            convergence=posterior.convergence,
            cautions=(
                *self._guesses(),
                *posterior.cautions,
                *self._cuts(posterior.norms),
                *self.model.doubts(draws),
                *self.model.cautions,
            ),
            posterior_kind="variational" if posterior.draws is None else "noise-aware",
            posterior_note=posterior.note,
            coordinates=self.model.coordinates(self.data),
            history=tuple(self._history),
            metrics=dict(last.metrics),
            metrics_label=self.data.evaluation_label,
            seconds=last.seconds,
            finished=time.strftime("%Y-%m-%d %H:%M:%S %z"),
            constants=dict(self.model.constants(self.data)),
            released=self.spec.estimation.sites(self.step),
            definition=self.model,
            public_records=self.data.public_evaluation,
            spend=next(iter(self.run_log.reservation.keys), ""),
            ledger=self.run_log.reservation.ledger,
            versions=versions(),
        )
        return dataclasses.replace(result, **scores)

    def _posterior(self, last: Snapshot) -> Inferred:
        return self.spec.estimation.posterior(self, last)

    def _guesses(self) -> list[str]:
        """A sentence about scales that could not be learned."""
        return [_GUESSED] if self.spec.scales_are_guessed else []

    def _cuts(self, norms: GradientNorms | None) -> list[str]:
        """Sentences about columns that have values outside what was learned."""
        spec = self.spec
        return [
            *of_absent(norms),
            *of_values_outside(spec.scales, spec.model.responses, spec.leaves_out),
            *of_no_scale(spec),
            *of_other_levels(spec.scales),
        ]

    def _data_facts(self) -> dict[str, Any]:
        """Public facts about the data, for the result."""
        data = self.data
        plain = ("name", "description", "unit", "vocabulary_size", "licence", "source")
        lists = ("classes", "arrays", "feature_names", "groups", "image_shape")
        return {
            **{name: getattr(data, name) for name in plain},
            **{name: list(getattr(data, name)) for name in lists},
            "num_evaluation": data.num_evaluation if self.shows_metrics else None,
            "target": data.target_name,
            "target_bounds": None if data.target_bounds is None else list(data.target_bounds),
            "group": data.group_name,
            "declarations": (self.spec.declared or self.spec).columns.declarations(self.spec),
            "record_shapes": [list(array.shape[1:]) for array in data.train],
            "record_types": [str(array.dtype) for array in data.train],
            "schema": None if data.schema is None else data.schema.to_dict(),
            "scales": scales_to_dict(self.spec.scales),
        }
