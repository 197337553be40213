"""DP-VI as init / draw / step: pure functions of state, records and keys, with a class that only closes over them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench.inference._optimizers import Optimizer
from workbench.inference._separation import BY_POSITION, has_axis_of_records, require_no_records, require_separate
from workbench.inference.clipping import SMALLEST_CLIP, check_clipping, clipped_sum_in_parts
from workbench.inference.estimators import ESTIMATORS, RecordLoss
from workbench.inference.record_model import Record, RecordModel, common_length, record_keys, split
from workbench.noise import _key_use
from workbench.noise.chacha20 import fast_key, is_secret, require_secure, stream
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling.minibatch import Minibatch, Sampler

if TYPE_CHECKING:  # the core runs where no accountant is installed
    from workbench.privacy.guarantee import Guarantee
    from workbench.privacy.plan import PrivacyPlan

__all__ = ["DPVI", "DPVIRunResult", "DPVIState", "Draws", "Evaluation", "Hyperparameters", "elbo_per_record", "held_out"]

# One key serves a whole run; a step's draws come from the key's stream of that number, what happens once from fold_in(key,
# purpose). Chunking, stopping and resuming therefore change no draw.
_STARTING_VALUES, _LARGE_NOISE, _EVALUATION = range(3)

_OF_THE_KEY = (
    "No step's noise may be drawn twice: that this run's key and states were not used again was checked for calls in the "
    "process that began it, not under jit and not in other processes (a fork, a saved state)."
)


class DPVIState(NamedTuple):
    """What a run carries, a pytree: saved (``inference.checkpoint``) and restored it goes on bit for bit.

    :param optim_state: of the optimiser. :param step: steps taken, int32. :param key: the run's secret key.
    :param average: mean of the iterates from ``average_from`` on, unconstrained; None where none is kept.
    """

    optim_state: Any
    step: jax.Array
    key: jax.Array
    average: Any = None


class Draws(NamedTuple):
    """The randomness of one step: which records, the mechanism's noise (float[size of u]), the guide's base noise."""

    minibatch: Minibatch
    noise: jax.Array
    base_noise: jax.Array


class Hyperparameters(NamedTuple):
    """What fits that share a compiled step may differ in, beside records and keys: its arguments, not constants in it.

    :param clip: C, float32 scalar. :param standard_deviation: of the noise in a coordinate, sigma C, float32 scalar.
    :param learning_rate: float32 scalar; None where the optimiser was given with its own.
    :param average_from: int32 scalar; None where no average is kept.
    :param constants: arrays that the model takes by keyword, in the place of those it was split with.
    """

    clip: Any
    standard_deviation: Any
    learning_rate: Any = None
    average_from: Any = None
    constants: Any = {}  # noqa: RUF012 - a NamedTuple's default, which nothing writes to


class DPVIRunResult(NamedTuple):
    """What ``DPVI.run`` returns, in the order of numpyro's ``SVIRunResult``.

    :param params: constrained parameters after the last good step. :param state: to go on from or to save.
    :param losses: None, because the losses of minibatches are un-noised functions of records.
    :param status: "done", "cancelled" (interrupted) or "failed". :param message: why it failed.
    """

    params: dict[str, Any]
    state: DPVIState
    losses: None
    status: str
    message: str


class Evaluation(NamedTuple):
    """A loss with what may be done with it: "public data" or "outside the guarantee"."""

    loss: jax.Array
    label: str

    def __float__(self) -> float:
        """The loss alone."""
        return float(self.loss)


class DPVI:
    """Differentially private variational inference for a NumPyro model and guide.

    The surface is that of ``numpyro.infer.SVI``: ``init``, ``update``, ``get_params``, ``run``, ``evaluate``, with records
    (all of them, first axis N) where SVI takes a minibatch, and a privacy target where SVI takes a loss:

        svi  = SVI(model, guide, Adam(1e-3), Trace_ELBO())
        dpvi = DPVI(model, guide, Adam(1e-3), epsilon=1.0, delta=1e-5, sampling_rate=0.01)
        result = dpvi.run(new_key(), 10_000, x, y)

    The target is one of: ``epsilon`` and ``delta``; ``guarantee``, another run's, to be kept again; ``plan`` from
    ``workbench.privacy.plan``; or ``sampler`` and ``mechanism`` themselves, without accounting.

    ``update`` returns None in the place of the loss, because a minibatch's loss is an un-noised function of records.

    :param model: NumPyro model with one record plate (see ``workbench.inference.record_model``).
    :param guide: NumPyro guide.
    :param optim: a ``numpyro.optim`` optimiser or an optax gradient transformation, with any schedule of the step size; or,
        with ``learning_rate``, a function that makes one of a learning rate, such as ``Adam`` itself.
    :param learning_rate: given to ``optim``; fits that differ in it share a compiled step.
    :param epsilon: > 0. :param delta: in (0, 1). :param iterations: T, planned steps; ``run``'s number of steps by default.
    :param sampling_rate: q in (0, 1], public. :param clip: C > 0, 1 by default.
    :param sampler: decides which records enter a step: with a privacy target a name ("poisson" by default,
        "without_replacement", "shuffle"), with ``mechanism`` a ``workbench.sampling.Sampler``.
    :param mechanism: clipping norm C and noise multiplier sigma.
    :param num_records: N, a declared public constant that scales the likelihood; the number of records by default.
    :param gradient: "aligned" or "vanilla" (``workbench.inference.estimators``).
    :param clipping: how a record's gradient is brought to norm C: "flat" (by default), "automatic" or "per_leaf"
        (``clipped_sum``). It goes with ``epsilon``, as ``delta``, ``iterations``, ``sampling_rate`` and ``clip`` do: a
        mechanism, a plan or a guarantee has its own, and beside one they are refused.
    :param strategy: how clipped sums are computed (``clipped_sum``); changes speed and memory only.
    :param rules: of book-keeping, ``{leaf: rule}``, as ``clipped_sum`` takes them; speed and memory only.
    :param physical_size: records held at once; a larger minibatch is summed in parts, the noise added once.
    :param clip_schedule: ``clip_schedule(step) -> C_t`` in the place of C, a JAX function of the step number (int32) alone.
        Noise is sigma C_t, so the guarantee is the same.
    :param average_from: step from which on iterates are averaged (Polyak), which costs no privacy; see ``get_params``.
    :param static_kwargs: further keyword arguments of model and guide, public constants.
    :raises ArgumentError: naming the argument and its value.
    """

    def __init__(
        self,
        model: Callable,
        guide: Callable,
        optim: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        iterations: int | None = None,
        sampling_rate: float | None = None,
        clip: float | None = None,
        guarantee: Guarantee | None = None,
        plan: PrivacyPlan | None = None,
        sampler: str | Sampler | None = None,
        mechanism: GaussianMechanism | None = None,
        num_records: int | None = None,
        gradient: str = "aligned",
        clipping: str | None = None,
        strategy: str = "auto",
        rules: Mapping[str, str] | None = None,
        physical_size: int | None = None,
        clip_schedule: Callable[[jax.Array], jax.Array] | None = None,
        average_from: int | None = None,
        learning_rate: float | None = None,
        **static_kwargs: Any,
    ) -> None:
        self.model = model
        self.guide = guide
        self.learning_rate = None if learning_rate is None else _validate.number("learning_rate", learning_rate, above=0)
        self.given_optim = optim
        if learning_rate is not None and not callable(optim):
            raise _validate.ArgumentError("learning_rate", learning_rate, "belongs to the optimizer given; set it there.")
        self.optim = Optimizer(optim if learning_rate is None else optim(self.learning_rate))
        self._numbers: Hyperparameters | None = None
        self.estimator = ESTIMATORS[_validate.choice("gradient", gradient, ESTIMATORS)]
        self.strategy, self.rules = strategy, rules
        self.physical_size = None if physical_size is None else _validate.integer("physical_size", physical_size, at_least=1)
        self.average_from = None if average_from is None else _validate.integer("average_from", average_from, at_least=0)
        self.clip_schedule = clip_schedule
        self.static_kwargs = static_kwargs
        self.num_records = None if num_records is None else _validate.integer("num_records", num_records, at_least=2)
        self.records_split: RecordModel | None = None
        self._plan = plan
        name = sampler if isinstance(sampler, str) else None
        self._sampler, self._mechanism = None if isinstance(sampler, str) else sampler, mechanism
        if self._sampler is not None and not hasattr(self._sampler, "num_records"):
            raise _validate.ArgumentError("sampler", sampler, "must be a name or a workbench.sampling.Sampler.")
        if clip_schedule is not None and not callable(clip_schedule):
            raise _validate.ArgumentError("clip_schedule", clip_schedule, "must be a function of the step's number.")
        if self._sampler is not None and num_records is None:
            self.num_records = self._sampler.num_records
        targets = {"epsilon": epsilon, "guarantee": guarantee, "plan": plan, "mechanism": mechanism}
        given = [name for name, value in targets.items() if value is not None]
        if len(given) != 1:
            raise _validate.ArgumentError(
                "epsilon", epsilon, "give one of epsilon (with delta), guarantee, plan, or sampler and mechanism"
                + (f", not {' and '.join(given)}." if given else ".")
            )  # fmt: skip
        if (self._sampler is None) != (mechanism is None):
            raise _validate.ArgumentError(
                "sampler", sampler, "a Sampler goes with a mechanism, a name with a privacy target."
            )
        if name is not None and epsilon is None:
            raise _validate.ArgumentError("sampler", sampler, "goes with epsilon; a guarantee or a plan has its own.")
        own = {"delta": delta, "iterations": iterations, "sampling_rate": sampling_rate, "clip": clip, "clipping": clipping}
        if epsilon is None:
            for argument, value in own.items():
                if value is not None:
                    raise _validate.ArgumentError(argument, value, f"goes with epsilon; {given[0]}= decides that itself.")
        self._target: dict[str, Any] = {}
        if epsilon is not None:
            if sampling_rate is None:
                raise _validate.ArgumentError("sampling_rate", sampling_rate, "is needed with epsilon: a number in (0, 1].")
            self._target = {
                "epsilon": epsilon,
                "delta": delta,
                "iterations": iterations,
                "sampling_rate": sampling_rate,
                "sampler": "poisson" if name is None else name,
                "clip": 1.0 if clip is None else clip,
                "clipping": "flat" if clipping is None else clipping,
            }
        elif guarantee is not None:
            names = ("epsilon", "delta", "sampling_rate", "sampler", "relation", "clip", "clipping")
            self._target = {name: getattr(guarantee, name) for name in names} | {"iterations": guarantee.steps}
        if plan is not None:
            self._sampler, self._mechanism = plan.sampler, plan.mechanism
            self.num_records = plan.settings.num_records if self.num_records is None else self.num_records
        known = self._target["clipping"] if self._mechanism is None else self._mechanism.clipping
        check_clipping(known, strategy, rules)

    @property
    def split(self) -> RecordModel:
        """The model's global and per-record parts; there after ``init``."""
        return _there(self.records_split)

    @property
    def sampler(self) -> Sampler:
        """What decides which records enter a step; there after ``init`` at the latest."""
        return _there(self._sampler)

    @property
    def mechanism(self) -> GaussianMechanism:
        """Clipping norm and noise; there after ``init`` at the latest."""
        return _there(self._mechanism)

    @property
    def numbers(self) -> Hyperparameters:
        """What a compiled step takes as arguments; there after ``init``."""
        mechanism = self.mechanism
        return Hyperparameters(
            jnp.float32(mechanism.clip),
            jnp.float32(mechanism.standard_deviation),
            None if self.learning_rate is None else jnp.float32(self.learning_rate),
            None if self.average_from is None else jnp.int32(self.average_from),
        )

    def with_numbers(self, numbers: Hyperparameters) -> DPVI:
        """The same steps with other ``numbers``, which may be traced; ``init`` must have been called."""
        own = copy.copy(self)
        own._numbers = numbers
        if self.learning_rate is not None:
            own.optim = self.optim.like(self.given_optim(numbers.learning_rate))
        if numbers.constants:
            own.records_split = self.split.with_static(numbers.constants)
        return own

    @property
    def noise_size(self) -> int:
        """Coordinates that a step's noise has; there after ``init``."""
        return self.estimator.noise_size(self.split)

    @property
    def _has_large_noise(self) -> bool:
        return self.noise_size >= 2**16

    def _calibrate(self, size: int) -> None:
        """Sampler and mechanism for the privacy target on ``size`` records."""
        from workbench.privacy.plan import PrivacySettings, default_delta, make_plan

        target = dict(self._target)
        if target["iterations"] is None:
            raise _validate.ArgumentError("iterations", None, "the planned number of steps: give it to DPVI, or call run.")
        declared = size if self.num_records is None else self.num_records
        if target["delta"] is None:
            target["delta"] = default_delta(declared)
        self._plan = make_plan(PrivacySettings(**target, num_records=declared, seed=None), size)
        self._sampler, self._mechanism = self._plan.sampler, self._plan.mechanism

    def init(self, key: jax.Array, /, *records: Any, init_params: dict[str, Any] | None = None, **kwargs: Any) -> DPVIState:
        """The state before the first step. Only shapes and types of ``records`` (first axis: records) are used.

        :param key: the run's key, from ``workbench.noise.chacha20.new_key`` or ``key_from_seed``. A secret key begins
            one run: a second one would have the same noise.
        :param init_params: constrained starting values of some parameters, public.
        :param kwargs: ``num_records`` and further static arguments, as in the constructor.
        :raises PrivacyModelError: if the model cannot be fitted privately (``records.split``, ``_separation``).
        :raises ArgumentError: naming ``key``, if it began a run in this process.
        """
        require_secure(key)
        size = common_length(records)
        if "num_records" in kwargs:
            self.num_records = _validate.integer("num_records", kwargs.pop("num_records"), at_least=2)
        self.static_kwargs = {**self.static_kwargs, **kwargs}
        # a list of rows has one entry for each record too, but only arrays are long lists' usual entries
        is_rows = lambda value: isinstance(value, (list, tuple)) and len(value) == size and np.ndim(value[0]) > 0  # noqa: E731
        for path, value in jax.tree_util.tree_flatten_with_path(self.static_kwargs, is_leaf=is_rows)[0]:
            shape = (size,) if is_rows(value) else getattr(value, "shape", ())
            if has_axis_of_records(shape, size):
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                raise _validate.ArgumentError(name, shape, f"has an axis of {size}, the number of records. {BY_POSITION}")
        if self._sampler is None:
            self._calibrate(size)
        if self.sampler.num_records != size:
            raise _validate.ArgumentError("records", size, f"the sampler draws from {self.sampler.num_records} records.")
        if self.num_records is None:
            self.num_records = size
        self.records_split = split(
            self.model,
            self.guide,
            fast_key(jax.random.fold_in(key, _STARTING_VALUES)),
            tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in records),
            num_records=self.num_records,
            static=self.static_kwargs,
        )
        self._require_separate_records(size)
        start = dict(self.split.initial)
        for name, value in (init_params or {}).items():
            if name not in start:
                raise _validate.unknown_name("init_params", name, start)
            start[name] = self.split.unconstrain({name: jax.tree.map(jnp.asarray, value)})[name]
        start = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), start)
        average = None if self.average_from is None else jax.tree.map(jnp.array, start)
        _key_use.begin_run(key)  # last: what was refused above may begin with the same key
        return DPVIState(self.optim.init(start), jnp.zeros((), jnp.int32), key, average)

    def _require_separate_records(self, size: int) -> None:
        """Look at what a step computes: a record's loss is of that record alone, and nothing else is of any record."""

        def without_records(params: Any, key: jax.Array) -> Any:
            def release(loss: RecordLoss, u: Any) -> Any:
                require_separate(loss, u, (self.split.blank_record, key), size)
                return jax.tree.map(jnp.zeros_like, u)

            return self.estimator.gradient(self.split, params, key, 1.0, release)

        base_noise = jax.eval_shape(fast_key, jax.ShapeDtypeStruct((2,), jnp.uint32))
        require_no_records(jax.make_jaxpr(without_records)(self.split.initial, base_noise), size)

    def require_records(self, records: tuple[Any, ...]) -> None:
        """:raises ArgumentError: naming ``records``, unless they are as many as ``init`` saw, of those shapes and types.

        Only shapes count, so a step asks while it is traced. JAX reads beyond the end of an array as its last entry: of
        fewer records the last one would enter many times.
        """
        size, planned = self.split.require_like(records), self.sampler.num_records
        if size != planned:
            raise _validate.ArgumentError(
                "records", size, f"init saw {planned} records, and each step draws its minibatch from all of them: give the "
                "whole arrays that init saw, not a minibatch."
            )  # fmt: skip
        for array, seen in zip(records, self.split.blank_record, strict=True):
            if jax.dtypes.canonicalize_dtype(array.dtype) != seen.dtype:
                raise _validate.ArgumentError("records", str(array.dtype), f"init saw {seen.dtype} in this array.")

    def start(self, key: jax.Array, constants: Any = None) -> tuple[Any, Any]:
        """(state of the optimiser, average) before the first step of a run with ``key``, for jit and vmap; after ``init``.

        :param constants: as in ``Hyperparameters``.
            The guide must not be an automatic one: those find their starting values when ``init`` calls them.
        """
        params = self.split.starting_values(fast_key(jax.random.fold_in(key, _STARTING_VALUES)), constants)
        return self.optim.init(params), None if self.average_from is None else params

    def draw(self, key: jax.Array, step: jax.Array) -> Draws:
        """The randomness of step number ``step`` (int32 scalar) of the run with ``key``."""

        # one stream for all: each call of ChaCha20 costs .2 s of compilation and some microseconds
        sizes = (self.sampler.words, 0 if self._has_large_noise else 2 * self.noise_size, 2)
        words = stream(key, step, sum(sizes))
        for_minibatch, for_noise, for_base_noise = jnp.split(words, np.cumsum(sizes[:-1]))
        deviation = None if self._numbers is None else self._numbers.standard_deviation
        if self._has_large_noise:
            noise_key = jax.random.fold_in(jax.random.fold_in(key, _LARGE_NOISE), step)
            noise = self.mechanism.noise(noise_key, self.noise_size, deviation)
        else:
            noise = self.mechanism.noise_from(for_noise.reshape(2, -1), deviation)
        return Draws(self.sampler.draw_from(for_minibatch, key, step), noise, fast_key(for_base_noise))

    def step(self, state: DPVIState, records: Record, draws: Draws) -> DPVIState:
        """One step of the optimiser on the noised gradient divided by N.

        :param draws: of ``draw`` for this very step and no other: draws that are used twice cancel between two releases.

        :raises ArgumentError: as ``require_records`` does, or naming ``state``, if a later one was reached already; the
            latter not under jit, which cannot see it.
        """
        self.require_records(records)
        records = tuple(map(jnp.asarray, records))  # NumPy's cannot be indexed by what is traced
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in (state.key, state.step)):
            _key_use.draw_steps(state.key, int(state.step), int(state.step) + 1)
        params = self.optim.get_params(state.optim_state)
        minibatch, own_keys = draws.minibatch, self.estimator.base_noise(self.split)
        clip: Any = self._clip
        noise = draws.noise
        if self.clip_schedule is not None:
            # kept in range here, where NaN would otherwise switch clipping off: it turns the noise into NaN
            clip = jnp.maximum(jnp.asarray(self.clip_schedule(state.step), noise.dtype), SMALLEST_CLIP)
            noise = noise * (clip / self._clip)

        def chosen(places: jax.Array) -> Any:
            rows = tuple(array[minibatch.indices[places]] for array in records)
            return rows, record_keys(draws.base_noise, places) if own_keys else None

        def release(loss: RecordLoss, u: Any) -> Any:
            def of_record(u: Any, drawn: Any) -> jax.Array:
                record, own_key = drawn
                return loss(u, (record, draws.base_noise if own_key is None else own_key))

            size = self.sampler.usual_size() if self.physical_size is None else self.physical_size
            clipping = self.mechanism.clipping
            total = clipped_sum_in_parts(
                of_record, u, chosen, minibatch.mask, clip, self.strategy, size, clipping, self.rules
            )
            return self.mechanism.add(total, noise)

        gradient = self.estimator.gradient(self.split, params, draws.base_noise, self.sampler.sampling_rate, release)
        scaled = jax.tree.map(lambda leaf: leaf / self.split.num_records, gradient)
        updated = self.optim.update(scaled, state.optim_state)
        return DPVIState(updated, state.step + 1, state.key, self._averaged(state, updated))

    @property
    def _clip(self) -> Any:
        return self.mechanism.clip if self._numbers is None else self._numbers.clip

    @property
    def _averages_from(self) -> Any:
        return self.average_from if self._numbers is None else self._numbers.average_from

    def _averaged(self, state: DPVIState, updated: Any) -> Any:
        if self.average_from is None:
            return None
        count = state.step + 1 - self._averages_from  # iterates in the mean, with the new one
        weight = 1 / jnp.maximum(count, 1).astype(jnp.float32)
        return jax.tree.map(
            lambda mean, new: mean + weight.astype(mean.dtype) * (new - mean), state.average, self.optim.get_params(updated)
        )

    def update(self, state: DPVIState, *records: jax.Array) -> tuple[DPVIState, None]:
        """Draw and take one step, as ``numpyro.infer.SVI.update``; the place of the loss is None.

        :param records: all records, as ``init`` saw them: the step draws its minibatch from them itself.
        :raises ArgumentError: if they are others than ``init`` saw, a minibatch for example.
        """
        return self.step(state, records, self.draw(state.key, state.step)), None

    def unconstrained(self, state: DPVIState, averaged: bool = False) -> dict[str, Any]:
        """The parameters as the optimiser sees them: the last iterate, or the mean of the iterates once there is one."""
        last = self.optim.get_params(state.optim_state)
        if not _validate.flag("averaged", averaged):
            return last
        if self.average_from is None:
            raise _validate.ArgumentError("averaged", averaged, "no average was kept: give average_from to DPVI.")
        begun = state.step > self._averages_from
        return jax.tree.map(lambda mean, new: jnp.where(begun, mean, new), state.average, last)

    def get_params(self, state: DPVIState, averaged: bool = False) -> dict[str, Any]:
        """The guide's and model's parameters, constrained to their declared supports.

        :param averaged: the mean of the unconstrained iterates since ``average_from`` in the place of the last one. Both
            are functions of the noised gradients, so the guarantee covers both.
        """
        return self.split.constrain(self.unconstrained(state, averaged))

    def run(
        self,
        key: jax.Array,
        num_steps: int,
        *records: Any,
        progress_bar: bool = True,
        init_state: DPVIState | None = None,
        init_params: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> DPVIRunResult:
        """``num_steps`` steps in compiled chunks, as ``numpyro.infer.SVI.run``.

        :param key: as in ``init``; not used where ``init_state`` is given. :param records: all records, first axis N.
        :param progress_bar: show one on standard error. :param init_state: go on from here; the newest state of its run.
        :return: ``DPVIRunResult``; a failed or interrupted run keeps what it has.
        :raises ArgumentError: naming ``key`` or ``state``, if noise would be drawn that this process has drawn before.
        """
        from tqdm import tqdm

        from workbench.inference.training import run as training_run

        num_steps = _validate.integer("num_steps", num_steps, at_least=1, at_most=2**31 - 1)
        progress_bar = _validate.flag("progress_bar", progress_bar)
        if init_state is None:
            if self._target and self._target["iterations"] is None:
                self._target["iterations"] = num_steps
            init_state = self.init(key, *records, init_params=init_params, **kwargs)
        first = int(init_state.step)
        planned = self._plan.settings.iterations if self._plan is not None else None
        if planned is not None and first + num_steps > planned:
            raise _validate.ArgumentError("num_steps", num_steps, f"{planned} were planned and {first} are taken.")
        _key_use.check_steps(init_state.key, first)
        snapshots = training_run(
            self, init_state, records, first + num_steps,
            before_chunk=lambda state, limit: _key_use.draw_steps(state.key, int(state.step), limit),
        )  # fmt: skip
        with tqdm(total=num_steps, disable=not progress_bar, unit="step") as bar:
            while True:
                try:
                    last = next(snapshots)
                except StopIteration as finished:
                    return DPVIRunResult(last.params, finished.value, None, last.status, last.message)
                bar.update(last.step - first - bar.n)

    def evaluate(self, state: DPVIState, *records: Any, public: bool = False, num_draws: int = 1) -> Evaluation:
        """The negative ELBO of N records, as ``numpyro.infer.SVI.evaluate``, with the likelihood taken on ``records``.

        No noise is added. :param public: whether ``records`` are public, which only the caller can know; the label says
        it. :param num_draws: draws of the latents.
        """
        label = "public data" if _validate.flag("public", public) else "outside the guarantee"
        key = fast_key(jax.random.fold_in(jax.random.fold_in(state.key, _EVALUATION), state.step))
        records = tuple(jnp.asarray(array) for array in records)
        elbo = elbo_per_record(self.split, self.unconstrained(state), key, records, num_draws)
        return Evaluation(-elbo * self.split.num_records, label)

    def guarantee(self, state: DPVIState, unit: str = "record") -> Guarantee:
        """What is promised for a run that is at ``state``.

        :raises ArgumentError: if more steps were taken than planned, or sampler and mechanism were given without a plan.
        """
        if self._plan is None:
            raise _validate.ArgumentError("mechanism", self.mechanism, "has no plan: give epsilon and delta instead.")
        taken, planned = int(state.step), self._plan.settings.iterations
        if taken > planned:
            raise _validate.ArgumentError("state", taken, f"steps were taken, but noise was planned for {planned}.")
        secret = is_secret(state.key) and _key_use.has_begun(state.key)
        if secret:
            caveats = (_OF_THE_KEY,)
        elif is_secret(state.key):
            caveats = ("The run began inside a JAX transformation, where it is not seen whether others had the same key.",)
        else:
            caveats = ("The noise is predictable to whoever knows the key that the caller gave.",)
        promise = self._plan.guarantee(steps_taken=taken, unit=unit, dimension=self.noise_size, caveats=caveats)
        return dataclasses.replace(promise, secure_randomness=secret)


def _there(value: Any) -> Any:
    if value is None:
        raise RuntimeError("call init(key, *records) first: it reads the model and calibrates the noise.")
    return value


def held_out(
    split: RecordModel, params: dict[str, jax.Array], key: jax.Array, records: Record, num_draws: int
) -> tuple[jax.Array, jax.Array | None]:
    """(ELBO, log-likelihood) per record, in nats, scalars, over ``num_draws`` draws of the guide.

    The ELBO is mean_i E_q[log p(record_i | theta)] - E_q[log q(theta) - log p(theta)] / N, with its likelihood term taken on
    ``records``. The log-likelihood is mean_i log E_q[p(record_i | theta)], the log of the posterior predictive density; None
    where records have latents or base noise of their own, for their density is an integral then. Both are functions of
    ``records`` without noise: what they may be used for depends on whose records they are.

    :param params: unconstrained parameters.
    """

    def one(draw_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        shared, global_loss = split.release_point(params, draw_key)
        return -split.record_losses(shared, records, draw_key), -global_loss / split.num_records

    densities, global_terms = jax.vmap(one)(jax.random.split(key, num_draws))
    elbo = jnp.mean(densities) + jnp.mean(global_terms)
    if split.uses_base_noise:
        return elbo, None
    return elbo, jnp.mean(jax.nn.logsumexp(densities, axis=0)) - jnp.log(num_draws)


def elbo_per_record(
    split: RecordModel, params: dict[str, jax.Array], key: jax.Array, records: Record, num_draws: int
) -> jax.Array:
    """The ELBO of ``held_out`` alone."""
    return held_out(split, params, key, records, num_draws)[0]
