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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from workbench import _validate, defaults
from workbench.data import Dataset
from workbench.data import load as load_data
from workbench.inference.dpvi import DPVI, DPVIState, held_out
from workbench.inference.gradients import ESTIMATORS
from workbench.inference.training import Compilation, Snapshot, compile_ahead
from workbench.inference.training import run as run_training
from workbench.models import Model
from workbench.models import get as get_model
from workbench.models.model import inputs_of
from workbench.privacy.accounting import MAX_EPSILON
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan, PrivacySettings, default_delta, make_plan, sampling_rate_of
from workbench.privacy.randomness import fast_key, key_from_seed, new_key
from workbench.results import FitResult, HistoryPoint

__all__ = ["DeltaWarning", "PreparedFit", "RunSettings", "fit", "prepare"]

_EVALUATION_DRAWS = 50  # of the guide, for metrics; fewer where they would take seconds:
_EVALUATION_WORK = 2e10  # draws x evaluation records x coordinates of the release point
_EVALUATION, _POSTERIOR = 101, 102  # purposes of keys, apart from those of inference.dpvi


class DeltaWarning(UserWarning):
    """delta is so large that the guarantee allows one record in the data set to be published outright."""


@dataclass(frozen=True)
class RunSettings:
    """Settings that change the result or what is shown, but not the guarantee.

    :param gradient: "aligned" or "vanilla". :param learning_rate: of Adam, or None where an optimiser was given.
    :param average: the result is the mean of the iterates' second half. :param strategy: how clipped sums are computed.
    :param physical_size: records held at once. :param draws: number of posterior draws kept. :param device: as JAX names it.
    :param evaluate_private: compute metrics on evaluation records that are not public ("outside the guarantee").
    """

    gradient: str
    learning_rate: float | None
    average: bool
    strategy: str
    physical_size: int | None
    draws: int
    device: str
    evaluate_private: bool


def _device(name: Any) -> jax.Device:
    if isinstance(name, jax.Device):
        return name
    if name is None:
        return jax.devices()[0]
    kind, _, number = str(name).partition(":")
    try:
        return {device.id: device for device in jax.devices(kind)}[int(number or 0)]
    except (RuntimeError, KeyError, ValueError):
        known = ", ".join(f"{device.platform}:{device.id}" for device in jax.devices())
        raise _validate.ArgumentError("device", name, f"no such device; JAX sees {known}.") from None


def prepare(
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
) -> PreparedFit:
    """Check every setting, calibrate the noise and read the model, before any private record is touched.

    The arguments are those of ``fit``.
    """
    _validate.choice("gradient", gradient, ESTIMATORS)
    draws = _validate.integer("draws", draws, at_least=2)
    epsilon = _validate.number("epsilon", epsilon, above=0, at_most=MAX_EPSILON)
    if iterations is not None:
        iterations = _validate.integer("iterations", iterations, at_least=1, at_most=2**31 - 1)
    if optimizer is not None and learning_rate is not None:
        raise _validate.ArgumentError("learning_rate", learning_rate, "belongs to the optimizer given; set it there.")
    where = _device(device)
    chosen = get_model(model) if isinstance(model, str) else model
    if not isinstance(chosen, Model):
        raise _validate.ArgumentError("model", model, "must be a name or a workbench.models.Model.")
    dataset = load_data(data) if isinstance(data, str) else data
    if not isinstance(dataset, Dataset):
        raise _validate.ArgumentError("data", type(data).__name__, "must be a name or a workbench.data.Dataset.")
    dataset = chosen.view(dataset)
    constants = dict(chosen.constants(dataset))

    declared = _validate.integer("num_records", dataset.num_train if num_records is None else num_records, at_least=2)
    batched = declared if sampler == "poisson" else dataset.num_train
    chosen_settings = defaults.complete(
        {
            "iterations": iterations,
            "sampling_rate": sampling_rate,
            "batch_size": batch_size,
            "clip": clip,
            "learning_rate": learning_rate,
            "average": average,
        },
        chosen.advice(dataset, batched, epsilon),
        batched,
    )
    iterations = chosen_settings["iterations"]
    privacy = PrivacySettings(
        epsilon=epsilon,
        delta=default_delta(declared) if delta is None else delta,
        iterations=iterations,
        sampling_rate=sampling_rate_of(chosen_settings["sampling_rate"], chosen_settings["batch_size"], batched),
        sampler=sampler,
        clip=chosen_settings["clip"],
        num_records=declared,
        seed=seed,
        relation=relation,
    )
    if optimizer is None:
        learning_rate = _validate.number("learning_rate", chosen_settings["learning_rate"], above=0)
        optimizer = numpyro.optim.Adam(learning_rate)
    settings = RunSettings(
        gradient=gradient,
        learning_rate=learning_rate,
        average=bool(chosen_settings["average"]),
        strategy=strategy,
        physical_size=physical_size,
        draws=draws,
        device=f"{where.platform}:{where.id} ({where.device_kind})",
        evaluate_private=bool(evaluate_private),
    )

    plan = make_plan(privacy, dataset.num_train)
    key = _new_key(privacy)
    dpvi = DPVI(
        chosen.model,
        chosen.new_guide(),
        optimizer,
        plan=plan,
        gradient=gradient,
        strategy=strategy,
        physical_size=physical_size,
        average_from=iterations // 2 if settings.average else None,
    )
    state = dpvi.init(key, *dataset.train, **chosen.options, **constants)
    plan.truncation_delta(dpvi.noise_size)  # refuses what the noise cannot promise, before it is drawn
    return PreparedFit(chosen, dataset, plan, settings, optimizer, dpvi, state, key, where)


def _new_key(privacy: PrivacySettings) -> jax.Array:
    return new_key() if privacy.seed is None else key_from_seed(privacy.seed)


@dataclass(repr=False)
class PreparedFit:
    """A checked and calibrated fit. ``run`` trains; afterwards ``result`` is there, however the run ended.

    It holds private records and a secret key: show and store its ``result``, not itself.
    """

    model: Model
    data: Dataset
    plan: PrivacyPlan
    settings: RunSettings
    optimizer: Any
    dpvi: DPVI
    state: DPVIState
    key: jax.Array
    device: jax.Device
    _last: Snapshot | None = None
    _end: DPVIState | None = None
    _compiled: Future[Compilation] | None = None
    _compiling: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    _history: list[HistoryPoint] = dataclasses.field(default_factory=list)

    def __repr__(self) -> str:
        """Neither records nor the secret key, which a notebook would print and keep."""
        return f"PreparedFit({self.model.name} on {self.data.name}, {self.privacy}, {self.plan.mechanism})"

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
        """Whether metrics on the evaluation records are computed: they are public, or the user asked."""
        return self.data.evaluation_is_public or self.settings.evaluate_private

    def guarantee(self, steps_taken: int) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps."""
        caveats = self.data.caveats
        if self.shows_metrics and not self.data.evaluation_is_public:
            caveats += ("Metrics on private evaluation records were computed on request; they are outside the guarantee.",)
        return self.plan.guarantee(
            steps_taken=steps_taken, unit=self.data.unit, dimension=self.dpvi.noise_size, caveats=caveats
        )

    @functools.cached_property
    def evaluator(self) -> Callable[[dict[str, jax.Array]], dict[str, float]] | None:
        """Metrics on the evaluation records as a function of unconstrained parameters; None where they may not be shown."""
        if not self.shows_metrics:
            return None
        key = fast_key(jax.random.fold_in(self.key, _EVALUATION))
        records = tuple(jax.device_put(array, self.device) for array in self.data.evaluation)
        target = np.asarray(self.data.evaluation[-1])
        compute = self._compute

        def metrics(params: dict[str, jax.Array]) -> dict[str, float]:
            elbo, log_likelihood, predictions = compute(params, records, key)
            found = {"elbo": float(elbo)}
            if log_likelihood is not None:
                found["log_likelihood"] = float(log_likelihood)
            scores = {} if predictions is None else self.model.score(target, np.asarray(predictions))
            return found | scores

        return metrics

    @functools.cached_property
    def _compute(self) -> Callable[..., tuple[jax.Array, jax.Array | None, jax.Array | None]]:
        """The jitted part of ``evaluator``, of unconstrained parameters, evaluation records and a key."""
        split, predict = self.dpvi.split, self.model.predict
        affordable = _EVALUATION_WORK / (self.data.num_evaluation * max(1000, self.dpvi.noise_size))
        num_draws = int(np.clip(affordable, 1, _EVALUATION_DRAWS))

        @jax.jit
        def compute(
            params: dict[str, jax.Array], records: tuple[jax.Array, ...], key: jax.Array
        ) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
            elbo, log_likelihood = held_out(split, params, key, records, num_draws)
            if predict is None:  # a model of the user's need not predict
                return elbo, log_likelihood, None
            inputs = inputs_of(records)
            keys = jax.random.split(key, num_draws)
            fitted = split.constrain(params)
            predictions = jax.vmap(lambda draw: predict(fitted | split.latents(params, draw), *inputs))(keys)
            return elbo, log_likelihood, jnp.mean(predictions, axis=0)

        return compute

    @functools.cached_property
    def on_device(self) -> tuple[tuple[jax.Array, ...], DPVIState]:
        """The training records and the state before the first step, on the device."""
        records = tuple(jax.device_put(array, self.device) for array in self.data.train)
        return records, jax.device_put(self.state, self.device)

    def compile(self) -> None:
        """Compile what ``run`` needs, so that it can begin at once; returns when everything is compiled.

        No step is taken and no privacy is spent: records lend their shapes alone. A second thread that calls it waits.
        """
        with self._compiling:
            if self._compiled is not None:
                return
            records, state = self.on_device
            compiled = compile_ahead(self.dpvi, state, records, self.privacy.iterations)
            if self.evaluator is not None:
                with contextlib.suppress(Exception):  # a score that fails is told by ``run``, which goes on without it
                    self.evaluator(self.dpvi.unconstrained(state, self.settings.average))
            compiled.result()
            self._compiled = compiled

    def again(self) -> PreparedFit:
        """Another fit of the same plan, with randomness of its own (a seed gives the same), compiled as far as this one is.

        It spends its own epsilon.
        """
        key, dpvi = _new_key(self.privacy), copy.copy(self.dpvi)
        dpvi.optim = copy.copy(dpvi.optim)  # ``init`` writes to both, and this fit may be going on
        dpvi.guide = self.model.new_guide()  # an automatic guide keeps its starting values
        other = dataclasses.replace(
            self, dpvi=dpvi, state=dpvi.init(key, *self.data.train), key=key, _last=None, _end=None, _history=[],
            _compiling=threading.Lock(),
        )  # fmt: skip
        for name in ("_compute", "_draw"):
            if name in vars(self):
                vars(other)[name] = vars(self)[name]
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
        """
        if self._last is not None and not self.can_resume:
            raise RuntimeError("this fit has run; prepare another one (every run spends its own epsilon).")
        records, start = self.on_device
        before = 0.0
        if self._last is not None and self._end is not None:
            start, before = self._end, self._last.seconds
        if self._compiled is None:
            self._compiled = compile_ahead(self.dpvi, start, records, self.privacy.iterations)
        snapshots = run_training(
            self.dpvi,
            start,
            records,
            self.privacy.iterations,
            stop=stop,
            evaluate=self.evaluator,
            epsilon_at=self.plan.epsilon_so_far(),
            averaged=self.settings.average,
            compiled=self._compiled,
        )
        while True:
            try:
                snapshot = next(snapshots)
            except StopIteration as ended:
                # an interrupt within a chunk takes the state with it
                whole = not any(leaf.is_deleted() for leaf in jax.tree.leaves(ended.value))
                self._end = ended.value if whole else None
                return
            except Exception as error:  # a partial result is kept whatever went wrong
                if self._last is not None:
                    self._last = dataclasses.replace(self._last, status="failed", message=f"{type(error).__name__}: {error}")
                raise
            snapshot = dataclasses.replace(snapshot, seconds=before + snapshot.seconds)
            self._last = snapshot
            if snapshot.metrics and (not self._history or self._history[-1].step != snapshot.metrics_step):
                self._history.append(HistoryPoint(snapshot.metrics_step, dict(snapshot.metrics)))
            yield snapshot

    @functools.cached_property
    def _draw(self) -> Callable[[dict[str, Any], jax.Array], dict[str, jax.Array]]:
        return jax.jit(jax.vmap(self.dpvi.split.latents, in_axes=(None, 0)))

    def result(self, *, last_iterate: bool = False) -> FitResult:
        """The result of the run that ended, partial or whole.

        :param last_iterate: of a run that averages iterates, give the last one instead. Both are covered by the guarantee.
        """
        last = self._last
        if last is None or last.status == "running":
            raise RuntimeError("result() is there when run() has ended.")
        if last_iterate and self._end is not None and last.status != "failed":
            evaluate = self.evaluator
            last = dataclasses.replace(
                last,
                params=jax.tree.map(np.asarray, self.dpvi.get_params(self._end)),
                metrics={} if evaluate is None else evaluate(self.dpvi.unconstrained(self._end)),
            )
        params = jax.tree.map(jnp.asarray, last.params)
        split = self.dpvi.split
        keys = jax.random.split(fast_key(jax.random.fold_in(self.key, _POSTERIOR)), self.settings.draws)
        latents = self._draw(split.unconstrain(params), keys)
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
            params=_by_name(last.params),
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
            "licence": self.data.licence,
            "source": self.data.source,
        }


def _by_name(params: dict[str, Any]) -> dict[str, np.ndarray]:
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
    :param on_snapshot: called with every ``Snapshot``. :param stop: asked between chunks; True keeps the partial result.
    :return: ``FitResult``, whose ``state`` is "done", "cancelled" or "failed".
    :raises ArgumentError: naming the argument and its value. :raises PrivacyModelError: naming the site.
    """
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
    )
    for caution in prepared.cautions:
        warnings.warn(caution, DeltaWarning, stacklevel=2)
    for snapshot in prepared.run(stop):
        if on_snapshot is not None:
            on_snapshot(snapshot)
    return prepared.result()
