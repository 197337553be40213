"""The settings of a fit from what the caller gave: checked, and completed where something was left out.

Nothing is calibrated or compiled here, so a sweep can settle hundreds of fits before it begins.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpyro

from workbench import _validate
from workbench.data import Dataset
from workbench.data import load as load_data
from workbench.fitting import defaults
from workbench.inference._optimizers import check_optimizer
from workbench.inference.assemble import assemble
from workbench.inference.clipping import check_clipping
from workbench.inference.estimators import ESTIMATORS
from workbench.inference.step import DPVIState, Hyperparameters, Performance, PrivateStep
from workbench.ledger.fingerprint import fingerprint
from workbench.models import Model
from workbench.models import get as get_model
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.privacy.accounting import MAX_EPSILON
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan, PrivacySettings, default_delta, make_plan, sampling_rate_of
from workbench.privacy.steps import SAMPLERS
from workbench.sampling.poisson import MOST_RECORDS

__all__ = ["FitSpec", "RunSettings", "data_named", "device_named", "is_array", "model_named", "resolve"]

_MOST_DRAWS = 1_000_000  # from the posterior, each as large as all global latents


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


def device_named(name: Any) -> jax.Device:
    """None stands for JAX's first one; "cpu", "gpu", "gpu:1".

    :raises ArgumentError: naming ``device``.
    """
    if isinstance(name, jax.Device):
        return name
    if name is None:
        return jax.devices()[0]
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    try:
        if not kind:  # which JAX takes for its first one
            raise ValueError
        return {device.id: device for device in jax.devices(kind)}[int(number or 0)]
    except (RuntimeError, KeyError, ValueError):
        known = ", ".join(f"{device.platform}:{device.id}" for device in jax.devices())
        raise _validate.ArgumentError("device", name, f"no such device; JAX sees {known}.") from None


def model_named(model: Any) -> Model:
    """The model of a name, or the one that was given. :raises ArgumentError: naming ``model``."""
    chosen = get_model(model) if isinstance(model, str) else model
    if not isinstance(chosen, Model):
        raise _validate.ArgumentError("model", model, "must be a name or a workbench.models.Model.")
    return chosen


def data_named(data: Any) -> Dataset:
    """The data set of a name, or the one that was given. :raises ArgumentError: naming ``data``."""
    source = load_data(data) if isinstance(data, str) else data
    if not isinstance(source, Dataset):
        raise _validate.ArgumentError("data", type(data).__name__, "must be a name or a workbench.data.Dataset.")
    return source


@dataclass(frozen=True, repr=False)
class FitSpec:
    """What a fit is to be, every setting checked and none left out; made by ``settle``, without calibration.

    :param data: as the model sees it. :param source: as it was given. :param constants: of the model for this data set.
    :param optimizer: None for Adam with ``settings.learning_rate``.
    """

    model: Model
    data: Dataset
    source: Dataset
    constants: dict[str, Any]
    privacy: PrivacySettings
    settings: RunSettings
    optimizer: Any
    device: jax.Device

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of the records as they were given (``data.fingerprint``)."""
        return fingerprint(self.source)

    def plan(self) -> PrivacyPlan:
        """Sampler and noise that keep the promise.

        :raises ArgumentError: if none do.
        """
        return make_plan(self.privacy, self.data.num_train)

    def private_step(self, plan: PrivacyPlan, key: jax.Array) -> PrivateStep:
        """The fit's step, with starting values for the run with ``key``; only shapes and types of records are read."""
        return assemble(
            self.model.model,
            self.model.new_guide(),
            numpyro.optim.Adam if self.optimizer is None else self.optimizer,
            key,
            self.data.train,
            sampler=plan.sampler,
            mechanism=plan.mechanism,
            num_records=self.privacy.num_records,
            estimator=self.settings.gradient,
            learning_rate=self.settings.learning_rate,
            performance=Performance(self.settings.strategy, None, self.settings.physical_size),
            static={**self.model.options, **self.constants},
        )

    def hyper(self, plan: PrivacyPlan) -> Hyperparameters:
        """What the step takes as arguments besides state, records and draws."""
        average_from = self.privacy.iterations // 2 if self.settings.average else None
        return Hyperparameters.of(plan.mechanism, self.settings.learning_rate, average_from)

    def begin(self, plan: PrivacyPlan, key: jax.Array) -> tuple[PrivateStep, DPVIState]:
        """The fit's step, and the state of the run with ``key`` before the first one."""
        step = self.private_step(plan, key)
        return step, step.init(key, self.hyper(plan), step.model.initial)

    def program(self, plan: PrivacyPlan) -> Hashable:
        """Equal for fits whose steps are one compiled program with other ``inference.step.Hyperparameters``.

        Arrays among the constants count by their shapes alone.
        """
        settings, model = self.settings, self.model
        shapes = tuple((array.shape, str(array.dtype)) for array in (*self.data.train, *self.data.evaluation))
        return (
            model.model, model.guide, model.predict, repr(sorted(model.options.items())), shapes, self.privacy.num_records,
            self.privacy.iterations, self.privacy.clipping, plan.sampler, settings.gradient, settings.strategy,
            settings.physical_size, settings.average, settings.evaluate_private, id(self.optimizer), str(self.device),
            tuple((name, np.shape(value) if is_array(value) else repr(value)) for name, value in self.constants.items()),
        )  # fmt: skip

    def new_key(self) -> jax.Array:
        """The key of one run: a secret one, or the seed's."""
        return new_key() if self.privacy.seed is None else key_from_seed(self.privacy.seed)

    @property
    def shows_metrics(self) -> bool:
        """Whether metrics on the evaluation records are computed: they are public, or the user asked."""
        return self.data.evaluation_is_public or self.settings.evaluate_private

    def guarantee(self, plan: PrivacyPlan, steps_taken: int, dimension: int) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps with noise in ``dimension`` coordinates."""
        caveats = self.data.caveats
        if self.shows_metrics and not self.data.evaluation_is_public:
            caveats += ("Metrics on private evaluation records were computed on request; they are outside the guarantee.",)
        return plan.guarantee(steps_taken=steps_taken, unit=self.data.unit, dimension=dimension, caveats=caveats)


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array, scalars apart."""
    return bool(getattr(value, "ndim", 0))


def resolve(
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
) -> FitSpec:
    """Check every setting and choose those that are left out; the arguments are those of ``fit``.

    :raises ArgumentError: naming the argument and its value.
    """
    _validate.choice("gradient", gradient, ESTIMATORS)
    _validate.choice("sampler", sampler, SAMPLERS)
    check_clipping(clipping, strategy)
    draws = _validate.integer("draws", draws, at_least=2, at_most=_MOST_DRAWS)
    epsilon = _validate.number("epsilon", epsilon, above=0, at_most=MAX_EPSILON)
    if iterations is not None:
        iterations = _validate.integer("iterations", iterations, at_least=1, at_most=2**31 - 1)
    if physical_size is not None:
        physical_size = _validate.integer("physical_size", physical_size, at_least=1)
    evaluate_private = _validate.flag("evaluate_private", evaluate_private)
    if average is not None:
        average = _validate.flag("average", average)
    if optimizer is not None:
        check_optimizer("optimizer", optimizer)
        if learning_rate is not None:
            raise _validate.ArgumentError("learning_rate", learning_rate, "belongs to the optimizer given; set it there.")
    where = device_named(device)
    chosen, source = model_named(model), data_named(data)
    dataset = chosen.view(source)
    constants = dict(chosen.constants(dataset))

    given = dataset.num_train if num_records is None else num_records
    declared = _validate.integer("num_records", given, at_least=2, at_most=MOST_RECORDS)
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
        clipping=clipping,
        num_records=declared,
        seed=seed,
        relation=relation,
    )
    if optimizer is None:
        learning_rate = _validate.number("learning_rate", chosen_settings["learning_rate"], above=0)
    settings = RunSettings(
        gradient=gradient,
        learning_rate=learning_rate,
        average=_validate.flag("average", chosen_settings["average"]),
        strategy=strategy,
        physical_size=physical_size,
        draws=draws,
        device=f"{where.platform}:{where.id} ({where.device_kind})",
        evaluate_private=evaluate_private,
    )
    return FitSpec(chosen, dataset, source, constants, privacy, settings, optimizer, where)
