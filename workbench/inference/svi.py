"""``DPVI``: differentially private variational inference with the interface of
``numpyro.infer.SVI``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.infer import Trace_ELBO

from workbench import _validate
from workbench._limits import MOST_STEPS
from workbench.clipping.clipped_sums import check_clipping, is_by_record
from workbench.inference import training
from workbench.inference._arguments import Arguments
from workbench.inference._optimizers import check_optimizer
from workbench.inference.assemble import assemble
from workbench.inference.state import DPVIState, Draws, Hyperparameters, Performance, Purpose
from workbench.inference.step import PrivateStep
from workbench.noise import key_use
from workbench.noise.chacha20 import fast_key, is_secret
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.elbo import elbo_per_record
from workbench.record_model.estimators import ESTIMATORS
from workbench.record_model.model import Record, common_length
from workbench.sampling.minibatch import Sampler

if TYPE_CHECKING:  # the core runs where no accountant is installed
    from workbench.privacy.guarantee import Guarantee
    from workbench.privacy.plan import PrivacyPlan, PrivacySettings

__all__ = ["DPVI", "DPVIRunResult", "Evaluation"]

_OF_THE_KEY = (
    "No step's noise may be drawn twice: that this run's key and states were not used again was "
    "checked for calls in the process that began it, not under jit and not in other processes (a "
    "fork, a saved state)."
)


class DPVIRunResult(NamedTuple):
    """What ``DPVI.run`` returns, in the order of numpyro's ``SVIRunResult``.

    :param params: constrained parameters after the last good step.
    :param state: to continue from or to save.
    :param losses: None, because the losses of minibatches are un-noised functions of records.
    :param status: "done", "cancelled" (interrupted) or "failed".
    :param message: why it failed.
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

    The interface is that of ``numpyro.infer.SVI``: ``init``, ``update``, ``get_params``, ``run``,
    ``evaluate``. Records are all N of them (first axis) where SVI takes a minibatch, and a privacy
    target replaces the loss::

        svi = SVI(model, guide, Adam(1e-3), Trace_ELBO())
        dpvi = DPVI(model, guide, Adam(1e-3), epsilon=1.0, delta=1e-5, sampling_rate=0.01)
        result = dpvi.run(new_key(), 10_000, x, y)

    ``update`` returns None instead of the loss, because a minibatch's loss is an un-noised function
    of records.

    :param model: NumPyro model with a term for each record (see ``workbench.record_model.model``).
    :param guide: NumPyro guide.
    :param optim: a ``numpyro.optim`` optimiser or an optax gradient transformation, with any
        schedule of the step size; or, with ``learning_rate``, a function that makes one of a
        learning rate, such as ``Adam`` itself.
    :param loss: ``Trace_ELBO()``, which is what is minimised, or None.
    :param privacy: what is to be promised: ``workbench.privacy.PrivacySettings``, a plan of
        ``workbench.privacy.plan``, or another run's guarantee, to be kept again; or a pair
        (sampler, mechanism), without accounting. It replaces the next seven arguments, which are
        the short form.
    :param epsilon: > 0.
    :param delta: in (0, 1); the largest power of ten below 1/N by default.
    :param iterations: T, planned steps; ``run``'s number of steps by default.
    :param sampling_rate: q in (0, 1], public.
    :param sampler: "poisson" (default), "without_replacement", "shuffle" or "random_allocation".
    :param clip: C > 0, 1 by default.
    :param clipping: how a record's gradient is brought to norm C: "flat" (default), "automatic" or
        "per_leaf" (``clipped_sum``).
    :param num_records: N, a declared public constant that scales the likelihood; the number of
        records by default. Where their number is hidden (add_or_remove_one), an upper bound on it.
    :param estimator: of the gradient: "aligned" or "vanilla"
        (``workbench.record_model.estimators``).
    :param learning_rate: given to ``optim``; fits that differ in it share a compiled step.
    :param average_from: step from which on iterates are averaged (Polyak), which costs no privacy;
        see ``get_params``.
    :param clip_schedule: ``clip_schedule(step) -> C_t`` instead of C, a JAX function of the step
        number (int32) alone. Noise is sigma C_t, so the guarantee is the same.
    :param strategy: how clipped sums are computed (``clipped_sum``); changes speed and memory only.
    :param rules: of book-keeping, ``{leaf: rule}``, as ``clipped_sum`` takes them; speed and memory
        only.
    :param microbatch_size: records held at once; a larger minibatch is summed in parts, the noise
        added once.
    :param static_kwargs: further keyword arguments of model and guide, public constants.
    :raises ArgumentError: naming the argument and its value.
    """

    def __init__(
        self,
        model: Callable,
        guide: Callable,
        optim: Any,
        loss: Trace_ELBO | None = None,
        *,
        privacy: PrivacySettings
        | PrivacyPlan
        | Guarantee
        | tuple[Sampler, GaussianMechanism]
        | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        iterations: int | None = None,
        sampling_rate: float | None = None,
        sampler: str | None = None,
        clip: float | None = None,
        clipping: str | None = None,
        num_records: int | None = None,
        estimator: str = "aligned",
        learning_rate: float | None = None,
        average_from: int | None = None,
        clip_schedule: Callable[[jax.Array], jax.Array] | None = None,
        strategy: str = "auto",
        rules: Mapping[str, str] | None = None,
        microbatch_size: int | None = None,
        **static_kwargs: Any,
    ) -> None:
        short = {
            "epsilon": epsilon,
            "delta": delta,
            "iterations": iterations,
            "sampling_rate": sampling_rate,
            "sampler": sampler,
            "clip": clip,
            "clipping": clipping,
        }
        _check_loss(loss)
        self._target = _target(
            privacy, {name: value for name, value in short.items() if value is not None}
        )
        self.model = model
        self.guide = guide
        self.optim = optim
        self.learning_rate = (
            None
            if learning_rate is None
            else _validate.number("learning_rate", learning_rate, above=0)
        )
        if learning_rate is not None and not callable(optim):
            raise _validate.ArgumentError(
                "learning_rate",
                learning_rate,
                "applies only to a function that makes an optimiser; set it in the optimiser "
                "given.",
            )
        check_optimizer("optim", optim if learning_rate is None else optim(self.learning_rate))
        self.num_records = (
            None
            if num_records is None
            else _validate.integer("num_records", num_records, at_least=2)
        )
        self.estimator = _validate.choice("estimator", estimator, ESTIMATORS)
        self.average_from = (
            None
            if average_from is None
            else _validate.integer("average_from", average_from, at_least=0)
        )
        if clip_schedule is not None and not callable(clip_schedule):
            raise _validate.ArgumentError(
                "clip_schedule", clip_schedule, "must be a function of the step's number."
            )
        self.clip_schedule = clip_schedule
        check_clipping(self._target.clipping, strategy, rules)
        size = (
            None
            if microbatch_size is None
            else _validate.integer("microbatch_size", microbatch_size, at_least=1)
        )
        self.performance = Performance(strategy, rules, size)
        self.static_kwargs = static_kwargs
        self._noise: _Noise | None = (
            None  # calibrated once, so that all states of this object have one plan
        )
        self._step: PrivateStep | None = None
        self._arguments: Arguments | None = None
        self._hyper: Hyperparameters | None = None

    @property
    def plan(self) -> PrivacyPlan | None:
        """The plan that a run keeps; None before ``init``, and where sampler and mechanism were
        given.
        """
        return None if self._noise is None else self._noise[2]

    @property
    def private_step(self) -> PrivateStep:
        """What a step computes, a frozen object; there after ``init``."""
        if self._step is None:
            raise RuntimeError(
                "call init(key, *records) first: it reads the model and calibrates the noise."
            )
        return self._step

    @property
    def hyper(self) -> Hyperparameters:
        """What the step takes as arguments besides state, records and draws; there
        after ``init``.
        """
        self.private_step  # noqa: B018 - raises before ``init``
        assert self._hyper is not None
        return self._hyper

    def init(
        self,
        key: jax.Array,
        /,
        *records: Any,
        init_params: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> DPVIState:
        """The state before the first step. Only shapes and types of ``records`` (first axis:
        records) are used.

        :param key: the run's key, from ``workbench.noise.new_key`` or ``key_from_seed``. A secret
            key begins one run: a second one would have the same noise.
        :param init_params: constrained starting values of some parameters, public.
        :param kwargs: ``num_records``, record arrays by keyword, and further static arguments, as
            in the constructor.
        :raises PrivacyModelError: if the model cannot be fitted privately (``splitting.split``,
            ``clipping.separation``).
        :raises ArgumentError: naming ``key``, if it began a run in this process.
        """
        return self._init(key, records, init_params, None, kwargs)

    def _init(
        self,
        key: jax.Array,
        records: tuple[Any, ...],
        init_params: dict[str, Any] | None,
        steps: int | None,
        kwargs: dict[str, Any],
    ) -> DPVIState:
        """``init``. :param steps: planned ones, where the target does not say."""
        declared = kwargs.pop("num_records", self.num_records)
        arguments = Arguments(records, kwargs)
        records = arguments.arrays(records, kwargs)
        size = common_length(records)
        if declared is not None:
            declared = _validate.integer("num_records", declared, at_least=2)
        if self._noise is None:
            self._noise = self._target.on(size, declared, steps)
        step = self._assembled(key, records, declared, arguments)
        plan = self.plan
        if (
            plan is not None
            and (affordable := plan.for_noise_in(step.noised_coordinates)) is not plan
        ):
            self._noise = _planned(affordable)
            step = self._assembled(key, records, declared, arguments)
        if self.plan is not None:
            self.plan.noise_delta(step.noised_coordinates)  # refuses what the noise cannot promise
            self._noise = _planned(self.plan.confirmed())
        self._step = step
        self._arguments = arguments
        self._hyper = Hyperparameters.of(step.mechanism, self.learning_rate, self.average_from)
        start = dict(step.model.initial)
        for name, value in (init_params or {}).items():
            if name not in start:
                raise _validate.unknown_name("init_params", name, start)
            start[name] = step.model.unconstrain({name: jax.tree.map(jnp.asarray, value)})[name]
        return step.init(key, self._hyper, start)

    def _assembled(
        self, key: jax.Array, records: Record, declared: int | None, arguments: Arguments
    ) -> PrivateStep:
        """The step with the sampler and the noise of now. :param declared: the number of records,
        where it was given.
        """
        assert self._noise is not None
        sampler, mechanism, plan = self._noise
        if declared is None and plan is not None:
            declared = plan.settings.num_records
        return assemble(
            self.model,
            self.guide,
            self.optim,
            key,
            records,
            sampler=sampler,
            mechanism=mechanism,
            num_records=declared,
            estimator=self.estimator,
            learning_rate=self.learning_rate,
            performance=self.performance,
            clip_schedule=self.clip_schedule,
            static={**self.static_kwargs, **arguments.static},
            layout=arguments.layout,
        )

    def draw(self, key: jax.Array, number: jax.Array) -> Draws:
        """The randomness of step ``number`` (int32 scalar, from 0) of the run with ``key``."""
        return self.private_step.draw(key, number, self.hyper)

    def step(self, state: DPVIState, records: Record, draws: Draws) -> DPVIState:
        """One step with given randomness; see ``PrivateStep.step``."""
        return self.private_step.step(state, records, draws, self.hyper)

    def _arrays(self, records: tuple[Any, ...], kwargs: dict[str, Any]) -> Record:
        self.private_step  # noqa: B018 - raises before ``init``
        assert self._arguments is not None
        kwargs.pop("num_records", None)
        return self._arguments.arrays(records, kwargs)

    def update(self, state: DPVIState, *records: Any, **kwargs: Any) -> tuple[DPVIState, None]:
        """Draw and take one step, as ``numpyro.infer.SVI.update``, with None instead of the loss.

        :param records: all records, as ``init`` saw them: the step draws its minibatch from them
            itself.
        :raises ArgumentError: if they are others than ``init`` saw, a minibatch for example.
        """
        return self.step(
            state, self._arrays(records, kwargs), self.draw(state.key, state.step)
        ), None

    def stable_update(
        self, state: DPVIState, *records: Any, **kwargs: Any
    ) -> tuple[DPVIState, None]:
        """``update``, which keeps parameters that would become infinite or NaN as they are. The
        step counts as taken.
        """
        new, _ = self.update(state, *records, **kwargs)
        leaves = jax.tree.leaves(self.private_step.unconstrained(new))
        is_finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
        stable = [
            jax.tree.map(lambda value, old: jnp.where(is_finite, value, old), *pair)
            for pair in ((new.optim_state, state.optim_state), (new.average, state.average))
        ]
        return new._replace(optim_state=stable[0], average=stable[1]), None

    def get_params(self, state: DPVIState, averaged: bool = False) -> dict[str, Any]:
        """The guide's and model's parameters, constrained; see ``PrivateStep.get_params``."""
        return self.private_step.get_params(state, averaged)

    def run(
        self,
        key: jax.Array,
        num_steps: int,
        *records: Any,
        progress_bar: bool = True,
        init_state: DPVIState | None = None,
        init_params: dict[str, Any] | None = None,
        stable_update: bool = False,
        **kwargs: Any,
    ) -> DPVIRunResult:
        """``num_steps`` steps in compiled chunks, as ``numpyro.infer.SVI.run``.

        :param key: as in ``init``; not used where ``init_state`` is given.
        :param records: all records, first axis N.
        :param progress_bar: show one on standard error.
        :param init_state: continue from here; the newest state of its run.
        :param stable_update: False. A run that would leave the finite numbers ends, with the
            parameters from before.
        :return: ``DPVIRunResult``; a failed or interrupted run keeps what it has.
        :raises ArgumentError: naming ``key`` or ``state``, if noise would be drawn that this
            process has drawn before.
        """
        from tqdm import tqdm

        num_steps = _validate.integer("num_steps", num_steps, at_least=1, at_most=MOST_STEPS)
        progress_bar = _validate.flag("progress_bar", progress_bar)
        if _validate.flag("stable_update", stable_update):
            raise _validate.ArgumentError(
                "stable_update",
                True,
                "is not supported by run, which stops before parameters become non-finite; call "
                "stable_update in a loop.",
            )
        if init_state is None:
            init_state = self._init(key, records, init_params, num_steps, dict(kwargs))
        records = self._arrays(records, kwargs)
        first = int(init_state.step)
        planned = None if self.plan is None else self.plan.settings.iterations
        if planned is not None and first + num_steps > planned:
            raise _validate.ArgumentError(
                "num_steps",
                num_steps,
                f"only {planned} steps were planned, and {first} have been taken.",
            )
        key_use.check_steps(init_state.key, first)
        snapshots = training.run(
            self.private_step,
            self.hyper,
            init_state,
            records,
            first + num_steps,
            before_chunk=lambda state, limit: key_use.draw_steps(state.key, int(state.step), limit),
        )
        with tqdm(total=num_steps, disable=not progress_bar, unit="step") as bar:
            last, state = training.to_the_end(
                snapshots, lambda snapshot: bar.update(snapshot.step - first - bar.n)
            )
        return DPVIRunResult(last.params, state, None, last.status, last.message)

    def evaluate(
        self,
        state: DPVIState,
        *records: Any,
        public: bool = False,
        num_draws: int = 1,
        **kwargs: Any,
    ) -> Evaluation:
        """The negative ELBO of N records, as ``numpyro.infer.SVI.evaluate``, with the likelihood
        taken on ``records``.

        No noise is added.

        :param public: whether ``records`` are public, which only the caller can know; the label
            says it.
        :param num_draws: draws of the latents.
        """
        label = "public data" if _validate.flag("public", public) else "outside the guarantee"
        step, key = (
            self.private_step,
            fast_key(jax.random.fold_in(jax.random.fold_in(state.key, Purpose.LOSS), state.step)),
        )
        arrays = tuple(jnp.asarray(array) for array in self._arrays(records, kwargs))
        elbo = elbo_per_record(step.model, step.unconstrained(state), key, arrays, num_draws)
        return Evaluation(-elbo * step.model.num_records, label)

    def guarantee(self, state: DPVIState, unit: str = "record") -> Guarantee:
        """What is promised for a run that is at ``state``.

        :raises ArgumentError: if more steps were taken than planned, or sampler and mechanism were
            given without a plan.
        """
        step = self.private_step
        if self.plan is None:
            raise _validate.ArgumentError(
                "privacy",
                step.mechanism,
                "was given without accounting; pass epsilon and delta to get a guarantee.",
            )
        taken, planned = int(state.step), self.plan.settings.iterations
        if taken > planned:
            raise _validate.ArgumentError(
                "state", taken, f"steps were taken, but noise was planned for {planned}."
            )
        secret = is_secret(state.key) and key_use.has_begun(state.key)
        caveats = (
            _OF_THE_KEY
            if secret
            else "Anyone who knows the key that the caller gave can predict the noise.",
        )
        if is_secret(state.key) and not secret:
            caveats = (
                "The run began inside a JAX transformation, where other runs with the same key "
                "cannot be seen.",
            )
        promise = self.plan.guarantee(
            steps_taken=taken,
            unit=unit,
            dimension=step.noised_coordinates,
            caveats=caveats,
            covers_deletion=is_by_record(step.performance.strategy),
        )
        return dataclasses.replace(promise, secure_randomness=secret)


def _check_loss(loss: Trace_ELBO | None) -> None:
    """:raises ArgumentError: naming ``loss``, unless it is what DP-VI minimises."""
    if loss is None or (
        type(loss) is Trace_ELBO and loss.num_particles == 1 and not loss.multi_sample_guide
    ):
        return
    raise _validate.ArgumentError(
        "loss",
        type(loss).__name__,
        "must be Trace_ELBO() with one particle: each record's gradient is of that loss.",
    )


_Noise = tuple[Sampler, GaussianMechanism, "PrivacyPlan | None"]


class _Target(NamedTuple):
    """What is to be promised.

    :param clipping: how gradients are clipped. :param on: ``on(size, num_records, steps)`` gives
        sampler, mechanism and plan for ``size`` records of which ``num_records`` are declared and,
        where the target does not say, ``steps`` steps.
    """

    clipping: str
    on: Callable[[int, int | None, int | None], _Noise]


def _target(privacy: Any, short: dict[str, Any]) -> _Target:
    """The target of ``DPVI``'s arguments. :raises ArgumentError: naming one that is wrong, missing
    or one too many.
    """
    if privacy is None:
        return _short_target(short)
    if short:
        argument, value = next(iter(short.items()))
        raise _validate.ArgumentError(
            argument, value, "cannot be given together with privacy=, which already sets it."
        )
    if isinstance(privacy, tuple):
        if (
            len(privacy) != 2
            or not hasattr(privacy[0], "draw_from")
            or not isinstance(privacy[1], GaussianMechanism)
        ):
            raise _validate.ArgumentError(
                "privacy", privacy, "must be a pair of a Sampler and a GaussianMechanism."
            )
        return _Target(privacy[1].clipping, lambda size, num_records, steps: (*privacy, None))
    from workbench.privacy.guarantee import Guarantee
    from workbench.privacy.plan import PrivacyPlan, PrivacySettings

    settings = privacy.settings if isinstance(privacy, PrivacyPlan) else privacy
    if isinstance(settings, PrivacySettings) and settings.adapts_clip:
        raise _validate.ArgumentError(
            "privacy", "adapts_clip=True", "is for workbench.fit: DPVI takes a number for C."
        )
    if isinstance(privacy, PrivacyPlan):
        return _Target(
            privacy.settings.clipping, lambda size, num_records, steps: _planned(privacy)
        )
    if isinstance(privacy, PrivacySettings):
        return _Target(
            privacy.clipping,
            lambda size, num_records, steps: _calibrated(size, **privacy.as_arguments()),
        )
    if isinstance(privacy, Guarantee):
        names = ("epsilon", "delta", "sampling_rate", "sampler", "relation", "clip", "clipping")
        terms = {name: getattr(privacy, name) for name in names} | {
            "iterations": privacy.steps,
            "seed": None,
        }
        return _Target(
            privacy.clipping,
            lambda size, num_records, steps: _calibrated(size, **terms, num_records=num_records),
        )
    raise _validate.ArgumentError(
        "privacy",
        privacy,
        "must be PrivacySettings, a PrivacyPlan, a Guarantee or a pair (sampler, mechanism).",
    )


def _short_target(short: dict[str, Any]) -> _Target:
    if "epsilon" not in short:
        raise _validate.ArgumentError(
            "epsilon", None, "is missing: give epsilon and sampling_rate, or privacy=."
        )
    if "sampling_rate" not in short:
        raise _validate.ArgumentError(
            "sampling_rate", None, "is needed with epsilon: a number in (0, 1]."
        )
    if not isinstance(short.get("sampler", ""), str):
        raise _validate.ArgumentError(
            "sampler", short["sampler"], "must be a name; a Sampler goes into privacy=."
        )
    terms = {
        "delta": None,
        "sampler": "poisson",
        "clip": 1.0,
        "clipping": "flat",
        "iterations": None,
        "seed": None,
    } | short

    def on(size: int, num_records: int | None, steps: int | None) -> _Noise:
        iterations = steps if terms["iterations"] is None else terms["iterations"]
        if iterations is None:
            raise _validate.ArgumentError(
                "iterations", None, "the planned number of steps: give it to DPVI, or call run."
            )
        return _calibrated(size, **{**terms, "iterations": iterations, "num_records": num_records})

    return _Target(terms["clipping"], on)


def _calibrated(
    size: int, *, delta: float | None, num_records: int | None, **settings: Any
) -> _Noise:
    from workbench.privacy.plan import PrivacySettings, default_delta, make_plan

    declared = size if num_records is None else num_records
    delta = default_delta(declared) if delta is None else delta
    return _planned(make_plan(PrivacySettings(delta=delta, num_records=declared, **settings), size))


def _planned(plan: PrivacyPlan) -> _Noise:
    return plan.sampler, plan.mechanism, plan
