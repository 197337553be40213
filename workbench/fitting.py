"""One private fit from settings to result: ``prepare`` checks and calibrates, ``PreparedFit.run`` trains, ``fit`` does both.

The command line, the widgets and notebooks all come through here, so a privacy number has one origin.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.checkpoints import Checkpoint, plan_digest
from workbench.data import Dataset
from workbench.evaluation import Outputs, evaluation_key, evaluation_of, metrics_of
from workbench.inference.checkpoint import state_of
from workbench.inference.dpvi import DPVI, DPVIState
from workbench.inference.training import Compiling, Snapshot, compile_ahead, lower
from workbench.inference.training import run as run_training
from workbench.models import Model
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan, PrivacySettings
from workbench.privacy.randomness import fast_key
from workbench.recording import Recording
from workbench.results import FitResult, HistoryPoint
from workbench.settling import RunSettings, Settled, settle

__all__ = ["DeltaWarning", "PreparedFit", "RunSettings", "by_name", "fit", "prepare"]

_POSTERIOR = 102  # purpose of a key, apart from those of inference.dpvi and of evaluation


class DeltaWarning(UserWarning):
    """delta is so large that the guarantee allows one record in the data set to be published outright."""


def prepare(
    model: str | Model,
    data: str | Dataset,
    *,
    ledger: Any = None,
    over_cap: str | None = None,
    checkpoint: bool | str | Path = True,
    origin: Mapping[str, Any] | None = None,
    **settings: Any,
) -> PreparedFit:
    """Check every setting, calibrate the noise and read the model, before any private record is touched.

    The arguments are those of ``fit``. :param origin: JSON-ready, kept with checkpoints for whoever asked for the fit.
    """
    settled = settle(model, data, **settings)
    plan = settled.plan()
    key, dpvi = settled.new_key(), settled.trainer(plan)
    recording = Recording(settled, plan, dpvi, ledger=ledger, over_cap=over_cap, checkpoint=checkpoint, origin=origin)
    state = settled.begin(dpvi, key)
    plan.truncation_delta(dpvi.noise_size)  # refuses what the noise cannot promise, before it is drawn
    return PreparedFit(
        settled, plan, dpvi, state, key, recording, _Program(dpvi, settled.model, settled.data.num_evaluation)
    )


class _Program:
    """What fits of one program compile, once for all of them, by whichever needs it first.

    ``steps`` are those of ``training.compile_ahead``, None until ``lock``'s holder has begun with them.
    """

    def __init__(self, dpvi: DPVI, model: Model, num_evaluation: int) -> None:
        self._dpvi, self._model, self._num_evaluation = dpvi, model, num_evaluation
        self.steps: Compiling | None = None
        self.lock = threading.Lock()

    @functools.cached_property
    def compute(self) -> Callable[..., Outputs]:
        """The jitted part of ``PreparedFit.evaluator``, of unconstrained parameters, evaluation records and a key."""
        return jax.jit(evaluation_of(self._dpvi, self._model, self._num_evaluation))

    @functools.cached_property
    def draw(self) -> Callable[[dict[str, Any], jax.Array], dict[str, jax.Array]]:
        """Posterior draws of unconstrained parameters, one for each key."""
        return jax.jit(jax.vmap(self._dpvi.split.latents, in_axes=(None, 0)))


@dataclass(repr=False)
class PreparedFit:
    """A checked and calibrated fit. ``run`` trains; afterwards ``result`` is there, however the run ended.

    It holds private records and a secret key: show and store its ``result``, not itself.
    """

    settled: Settled
    plan: PrivacyPlan
    dpvi: DPVI
    state: DPVIState
    key: jax.Array
    recording: Recording
    _program: _Program
    _last: Snapshot | None = None
    _end: DPVIState | None = None
    _history: list[HistoryPoint] = dataclasses.field(default_factory=list)

    def __repr__(self) -> str:
        """Neither records nor the secret key, which a notebook would print and keep."""
        return f"PreparedFit({self.model.name} on {self.data.name}, {self.privacy}, {self.plan.mechanism})"

    @property
    def model(self) -> Model:
        """What is fitted."""
        return self.settled.model

    @property
    def data(self) -> Dataset:
        """The records, as the model sees them."""
        return self.settled.data

    @property
    def settings(self) -> RunSettings:
        """The settings that do not change the guarantee."""
        return self.settled.settings

    @property
    def device(self) -> jax.Device:
        """Where it runs."""
        return self.settled.device

    @property
    def privacy(self) -> PrivacySettings:
        """The settings that change the guarantee."""
        return self.plan.settings

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences about settings that are allowed but unwise; ``fit`` raises them as warnings."""
        return self.privacy.cautions()

    @property
    def shows_metrics(self) -> bool:
        """Whether metrics on the evaluation records are computed."""
        return self.settled.shows_metrics

    def guarantee(self, steps_taken: int) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps."""
        return self.settled.guarantee(self.plan, steps_taken, self.dpvi.noise_size)

    @functools.cached_property
    def evaluator(self) -> Callable[[dict[str, jax.Array]], dict[str, float]] | None:
        """Metrics on the evaluation records as a function of unconstrained parameters; None where they may not be shown."""
        if not self.shows_metrics:
            return None
        key = evaluation_key(self.key)
        records = tuple(jax.device_put(array, self.device) for array in self.data.evaluation)
        target = np.asarray(self.data.evaluation[-1])
        compute = self._program.compute
        return lambda params: metrics_of(self.model, target, compute(params, records, key))

    @functools.cached_property
    def on_device(self) -> tuple[tuple[jax.Array, ...], DPVIState]:
        """The training records and the state before the first step, on the device."""
        records = tuple(jax.device_put(array, self.device) for array in self.data.train)
        return records, jax.device_put(self.state, self.device)

    def compile(self) -> None:
        """Compile what ``run`` needs, so that it can begin at once; returns when everything is compiled.

        No step is taken and no privacy is spent: records lend their shapes alone. A second thread that calls it waits.
        """
        program = self._program
        with program.lock:
            if program.steps is not None:
                return
            records, state = self.on_device
            compiled = compile_ahead(self.dpvi, state, records, self.privacy.iterations)
            if self.evaluator is not None:
                with contextlib.suppress(Exception):  # a score that fails is told by ``run``, which goes on without it
                    self.evaluator(self.dpvi.unconstrained(state, self.settings.average))
            compiled.compiled.result()
            program.steps = compiled

    def share(self, other: PreparedFit) -> None:
        """Compile nothing that ``other`` compiles, if one program does for both; to be called before anything is compiled.

        It does where they differ in epsilon, delta, C, learning rate or randomness alone.
        """
        same = self.settled.program(self.plan) == other.settled.program(other.plan)
        constants = self.settled.constants
        if same and all(np.array_equal(value, constants[name]) for name, value in other.settled.constants.items()):
            self._program = other._program

    def again(self) -> PreparedFit:
        """Another fit of the same plan, with randomness of its own (a seed gives the same), with all that is compiled.

        It spends its own epsilon.
        """
        key, dpvi = self.settled.new_key(), copy.copy(self.dpvi)
        dpvi.optim = copy.copy(dpvi.optim)  # ``init`` writes to both, and this fit may be going on
        dpvi.guide = self.model.new_guide()  # an automatic guide keeps its starting values
        other = dataclasses.replace(
            self, dpvi=dpvi, state=dpvi.init(key, *self.data.train), key=key, recording=self.recording.of(dpvi),
            _last=None, _end=None, _history=[],
        )  # fmt: skip
        vars(other)["on_device"] = self.on_device[0], jax.device_put(other.state, self.device)
        return other

    @property
    def has_begun(self) -> bool:
        """Whether ``run`` has taken place or is under way: its noise is this run's own."""
        return self._last is not None

    @property
    def can_resume(self) -> bool:
        """Whether ``run`` would go on: the run was cancelled between two steps."""
        return self._last is not None and self._last.status == "cancelled" and self._end is not None

    def run(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Snapshot]:
        """Train, yielding snapshots; the last one's status is "done", "cancelled" or "failed".

        A cancelled run goes on where it was when called again, up to the planned steps, and ends exactly where it would have
        without the pause: the guarantee is for all planned steps, so a pause costs nothing.

        :param stop: asked between chunks (about every .3 s); True ends the run as "cancelled" with what it has.
        :raises RuntimeError: if the run is over, or was interrupted within a step.
        :raises CapError: if a cap on what is spent on the records does not allow it. :raises LedgerError: if the ledger
            cannot be written.
        """
        _validate.function("stop", stop)
        if self._last is not None and not self.can_resume:
            raise RuntimeError("this fit has run; prepare another one (every run spends its own epsilon).")
        records, start = self.on_device
        compiling = self._compiling()
        self.recording.begin(self._digest)
        taken: int | None = 0  # None: as many as were marked
        try:
            before = 0.0
            if self._last is not None and self._end is not None:
                start, before, taken = self._end, self._last.seconds, self._last.step
            snapshots = run_training(
                self.dpvi,
                start,
                records,
                self.privacy.iterations,
                stop=stop,
                evaluate=self.evaluator,
                epsilon_at=self.plan.epsilon_so_far(),
                averaged=self.settings.average,
                compiled=compiling,
                before_chunk=lambda state, limit: self.recording.before_chunk(state, limit, self._progress),
            )
            while True:
                try:
                    snapshot = next(snapshots)
                except StopIteration as ended:
                    # an interrupt within a chunk takes the state with it
                    whole = not any(leaf.is_deleted() for leaf in jax.tree.leaves(ended.value))
                    self._end = ended.value if whole else None
                    break
                except BaseException as error:  # a partial result is kept whatever went wrong
                    taken = None
                    if self._last is not None:
                        message = f"{type(error).__name__}: {error}"
                        self._last = dataclasses.replace(self._last, status="failed", message=message)
                    raise
                snapshot = dataclasses.replace(snapshot, seconds=before + snapshot.seconds)
                self._last, taken = snapshot, snapshot.step
                if snapshot.metrics and (not self._history or self._history[-1].step != snapshot.metrics_step):
                    self._history.append(HistoryPoint(snapshot.metrics_step, dict(snapshot.metrics)))
                yield snapshot
        finally:
            self._write_end(taken)

    def _compiling(self) -> Compiling:
        """The steps, which somebody has begun to compile."""
        if self._program.steps is None:
            records, start = self.on_device
            self._program.steps = compile_ahead(self.dpvi, start, records, self.privacy.iterations)
        return self._program.steps

    def _digest(self, *, to_run: bool = True) -> str:
        """Of all that decides the result but records and a secret key; to be asked for while ``state`` is the first one.

        :param to_run: whether the steps are to be compiled too.
        """
        records, start = self.on_device
        steps = self._compiling().lowered.result() if to_run else lower(self.dpvi, start, records, self.privacy.iterations)
        return plan_digest(self.settled, self.plan, self.dpvi, steps.digest, self.state)

    def _progress(self) -> dict[str, Any]:
        """What a checkpoint says about the run so far; metrics with their label."""
        return {
            "history": [[point.step, point.metrics] for point in self._history],
            "seconds": 0.0 if self._last is None else self._last.seconds,
            "metrics_label": self.data.evaluation_label,
        }

    def _write_end(self, taken: int | None) -> None:
        """Write the end of a run down, whatever its end; what cannot be written is said on the result."""
        last = self._last
        found: dict[str, Any] = {}
        if last is not None and last.status == "done":
            found["params"] = by_name(last.params)
        elif last is not None and last.status == "cancelled":
            found["state"] = self._end
        problem = self.recording.end(taken, self._progress(), **found)
        if last is not None and problem:
            self._last = dataclasses.replace(last, message=f"{last.message} {problem}".strip())

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint of this very fit for what ``run`` goes on from; of a finished one, ``result`` is there then.

        :raises ArgumentError: if the checkpoint is of another fit, saying in what it differs.
        """
        if self.has_begun:
            raise RuntimeError("this fit has run; prepare another one.")
        self.recording.adopt(checkpoint, functools.partial(self._digest, to_run=not checkpoint.is_finished))
        facts = checkpoint.facts
        history = [HistoryPoint(int(step), dict(metrics)) for step, metrics in facts["history"]]
        if checkpoint.is_finished:
            last = history[-1].metrics if history else {}
            self.adopt(checkpoint.arrays(), last, facts["seconds"])
            self._history = history
            return
        state = state_of(checkpoint.arrays(), self.state, checkpoint.path)
        self.key, self.state, self._end = state.key, state, jax.device_put(state, self.device)
        vars(self).pop("on_device", None)
        params = jax.tree.map(np.asarray, self.dpvi.get_params(state, averaged=self.settings.average))
        step, metrics = int(state.step), history[-1].metrics if history else {}
        self._history = history
        self._last = Snapshot(
            "cancelled", step, params, self.plan.epsilon_after(step), dict(metrics),
            history[-1].step if history else 0, facts["seconds"],
        )  # fmt: skip

    def adopt(self, params: Mapping[str, np.ndarray], metrics: Mapping[str, float], seconds: float) -> None:
        """Take what a run of this plan elsewhere released for the end of a run here; ``result`` is there then.

        :param params: constrained parameters as ``by_name`` calls them. :param metrics: of the evaluation records.
        :raises ArgumentError: if the parameters are not those of this model.
        """
        if self.has_begun:
            raise RuntimeError("this fit has run; prepare another one.")
        like = self.dpvi.get_params(self.state)
        shapes = {name: array.shape for name, array in by_name(like).items()}
        given = {name: np.shape(array) for name, array in params.items()}
        if shapes != given:
            raise ArgumentError("params", given, f"must have the names and shapes {shapes}.")
        adopted = {
            name: jax.tree_util.tree_map_with_path(
                lambda path, leaf, name=name: np.asarray(params[name + jax.tree_util.keystr(path)], leaf.dtype), value
            )
            for name, value in like.items()
        }
        taken = self.privacy.iterations
        self._last = Snapshot("done", taken, adopted, self.plan.epsilon_after(taken), dict(metrics), taken, seconds)
        if metrics:
            self._history.append(HistoryPoint(taken, dict(metrics)))

    def result(self, *, last_iterate: bool = False) -> FitResult:
        """The result of the run that ended, partial or whole.

        :param last_iterate: of a run that averages iterates, give the last one instead. Both are covered by the guarantee.
        """
        last = self._last
        if last is None or last.status == "running":
            raise RuntimeError("result() is there when run() has ended.")
        if _validate.flag("last_iterate", last_iterate) and self._end is not None and last.status != "failed":
            evaluate = self.evaluator
            last = dataclasses.replace(
                last,
                params=jax.tree.map(np.asarray, self.dpvi.get_params(self._end)),
                metrics={} if evaluate is None else evaluate(self.dpvi.unconstrained(self._end)),
            )
        params = jax.tree.map(jnp.asarray, last.params)
        split = self.dpvi.split
        keys = jax.random.split(fast_key(jax.random.fold_in(self.key, _POSTERIOR)), self.settings.draws)
        latents = self._program.draw(split.unconstrain(params), keys)
        return FitResult(
            state=last.status,
            message=last.message,
            guarantee=self.guarantee(last.step),
            model=self.model.name,
            model_options=dict(self.model.options),
            data=self._data_facts(),
            settings={
                **dataclasses.asdict(self.privacy),
                "sampling_rate": self.dpvi.sampler.sampling_rate,
                **dataclasses.asdict(self.settings),
            },
            params=by_name(last.params),
            draws={name: np.asarray(value) for name, value in latents.items()},
            coordinates=self.model.coordinates(self.data),
            history=tuple(self._history),
            metrics=dict(last.metrics),
            metrics_label=self.data.evaluation_label,
            release_label=self.data.release_label,
            seconds=last.seconds,
            finished=time.strftime("%Y-%m-%d %H:%M:%S %z"),
            constants=dict(self.model.constants(self.data)),
            released=split.shared,
            definition=self.model,
            public_records=self.data.evaluation if self.data.evaluation_is_public else None,
            spend=next(iter(self.recording.account.keys), ""),
            ledger=self.recording.account.ledger,
        )

    def _data_facts(self) -> dict[str, Any]:
        """What a result may say about its data: public facts only."""
        return {
            "name": self.data.name,
            "description": self.data.description,
            "unit": self.data.unit,
            "num_evaluation": self.data.num_evaluation if self.shows_metrics else None,
            "target": self.data.target_name,
            "classes": list(self.data.classes),
            "declarations": self.data.declarations(),
            "arrays": list(self.data.arrays),
            "record_shapes": [list(array.shape[1:]) for array in self.data.train],
            "record_types": [str(array.dtype) for array in self.data.train],
            "schema": None if self.data.schema is None else self.data.schema.to_dict(),
            "feature_names": list(self.data.feature_names),
            "group": self.data.group_name,
            "groups": list(self.data.groups),
            "image_shape": list(self.data.image_shape),
            "vocabulary_size": self.data.vocabulary_size,
            "licence": self.data.licence,
            "source": self.data.source,
        }


def by_name(params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Parameters as ``{name: array}``, those of networks called after their place in the network."""
    return {
        name + jax.tree_util.keystr(path): leaf
        for name, value in params.items()
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]
    }


def fit(
    model: str | Model,
    data: str | Dataset,
    *,
    epsilon: float,
    delta: float | None = None,
    iterations: int | None = None,
    sampling_rate: float | None = None,
    batch_size: int | None = None,
    sampler: str = "poisson",
    relation: str | None = None,
    clip: float | None = None,
    clipping: str = "flat",
    gradient: str = "aligned",
    optimizer: Any = None,
    learning_rate: float | None = None,
    average: bool | None = None,
    strategy: str = "auto",
    physical_size: int | None = None,
    num_records: int | None = None,
    evaluate_private: bool = False,
    draws: int = 1000,
    device: Any = None,
    seed: int | None = None,
    ledger: Any = None,
    over_cap: str | None = None,
    checkpoint: bool | str | Path = True,
    on_snapshot: Callable[[Snapshot], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Fit a model by differentially private variational inference.

    The release (parameters, posterior draws and whatever is computed from them and from public data) satisfies
    (epsilon, delta)-differential privacy under the sampler's neighbouring relation: "add_or_remove_one" training record
    for "poisson", "replace_one" for the others. ``result.guarantee`` states it with its conditions.

    :param model: a name from ``workbench.models.names()`` or a ``workbench.models.Model``.
    :param data: a name from ``workbench.data.names()`` or a ``Dataset``.
    :param epsilon: > 0, for the whole run. :param delta: in (0, 1); the largest power of ten below 1/N by default. A
        ``DeltaWarning`` explains what is wrong with delta >= 1/N.
    :param iterations: T >= 1, planned steps; the noise is calibrated for all of them. Its default, and those of the
        sampling rate, clip, learning_rate and average, follow the rule of ``workbench.defaults``.
    :param sampling_rate: q in (0, 1], each record's chance to enter a step.
    :param batch_size: in the place of q, the (for "poisson": expected) number of records in a minibatch.
    :param sampler: "poisson" (default), "without_replacement" or "shuffle"; each comes with its own neighbouring relation
        and accountant. :param relation: another relation of the sampler's: "replace_special" for "shuffle".
    :param clip: C > 0, largest norm of one record's gradient.
    :param clipping: how a record's gradient is brought to it: "flat" (longer ones are cut), "automatic" (all are scaled to
        nearly C) or "per_leaf" (each parameter to its share of C); see ``inference.clipped_sum``. The guarantee is the same.
    :param gradient: "aligned", or "vanilla" for comparison. :param optimizer: a numpyro.optim or optax optimiser; Adam by
        default. :param learning_rate: of Adam.
    :param average: give the mean of the iterates of the run's second half in the place of the last one (Polyak); it costs
        no privacy.
    :param strategy: how clipped sums are computed (``inference.clipped_sum``); speed and memory only.
    :param physical_size: records held at once; larger minibatches are summed in parts.
    :param num_records: N as publicly declared; the number of training records by default.
    :param evaluate_private: also compute metrics on private evaluation records, outside the guarantee.
    :param draws: posterior draws to keep. :param device: None, "cpu", "gpu", "gpu:1" or a ``jax.Device``.
    :param seed: None (secret randomness), or a whole number for a reproducible run whose noise is predictable.
    :param ledger: where the spend on private records is entered: None for the user's own (``privacy.ledger``), a path or a
        ``Ledger``, or False for nowhere. :param over_cap: why the records' cap may be overrun this time; it is recorded.
    :param checkpoint: write checkpoints for ``workbench.resume`` while it runs, into a folder of the workbench's own (True),
        another one, or none (False).
    :param on_snapshot: called with every ``Snapshot``. :param stop: asked between chunks; True keeps the partial result.
    :return: ``FitResult``, whose ``state`` is "done", "cancelled" or "failed".
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not allow the fit.
    :raises PrivacyModelError: naming the site.
    """
    if on_snapshot is not None:
        _validate.function("on_snapshot", on_snapshot)
    _validate.function("stop", stop)
    prepared = prepare(
        model,
        data,
        epsilon=epsilon,
        delta=delta,
        iterations=iterations,
        sampling_rate=sampling_rate,
        batch_size=batch_size,
        sampler=sampler,
        relation=relation,
        clip=clip,
        clipping=clipping,
        gradient=gradient,
        optimizer=optimizer,
        learning_rate=learning_rate,
        average=average,
        strategy=strategy,
        physical_size=physical_size,
        num_records=num_records,
        evaluate_private=evaluate_private,
        draws=draws,
        device=device,
        seed=seed,
        ledger=ledger,
        over_cap=over_cap,
        checkpoint=checkpoint,
    )
    for caution in prepared.cautions:
        warnings.warn(caution, DeltaWarning, stacklevel=2)
    for snapshot in prepared.run(stop):
        if on_snapshot is not None:
            on_snapshot(snapshot)
    return prepared.result()
