"""Fits from many noised gradients: DP-VI's own steps, and the posterior that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from workbench import _validate
from workbench.fitting.estimation import Estimation, Inferred, Metrics
from workbench.fitting.evaluation import evaluation_key, metrics_of
from workbench.fitting.posterior import FEWEST_DRAWS, inferred, prior_for
from workbench.fitting.settings import AUTO
from workbench.inference import adaptive_clip, norm_counts
from workbench.inference.assemble import assemble
from workbench.inference.state import Hyperparameters, Performance
from workbench.inference.step import PrivateStep
from workbench.inference.training import Snapshot
from workbench.posterior import noise_aware
from workbench.posterior.joint_prior import JointPrior
from workbench.posterior.noise_aware import NoNoiseAwarePosterior
from workbench.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from workbench.data import Dataset
    from workbench.fitting.prepared import PreparedFit
    from workbench.fitting.spec import FitSpec
    from workbench.models import Model

__all__ = ["Gradients"]

_SETTLED = 0.3  # fraction of the steps after which a run is taken to be near the posterior


@dataclass(frozen=True)
class Gradients(Estimation):
    """The ``Estimation`` of DP-VI.

    :param estimator: of the gradient, one of ``record_model.estimators.ESTIMATORS``.
    :param has_learning_rate: whether steps take one; a user's optimizer has its own.
    """

    estimator: str
    has_learning_rate: bool

    released = "gradients"

    @property
    def fixed_settings(self) -> dict[str, Any]:
        without_rate = {} if self.has_learning_rate else {"learning_rate": None}
        return {"estimator": self.estimator, **without_rate}

    def of_model(
        self, model: Model, data: Dataset, constants: Mapping[str, Any], num_records: int
    ) -> Estimation:
        return self

    def private_step(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> PrivateStep:
        """As of ``Estimation``; only shapes and types of records are read."""
        settings = spec.settings
        step = assemble(
            spec.model.model,
            spec.model.new_guide(),
            numpyro.optim.Adam if settings.optimizer is None else settings.optimizer,
            key,
            spec.records,
            sampler=plan.sampler,
            mechanism=plan.mechanism,
            num_records=spec.privacy.num_records,
            estimator=self.estimator,
            learning_rate=settings.learning_rate,
            performance=Performance(settings.strategy, None, settings.microbatch_size),
            static={**spec.model.options, **spec.constants},
            source=spec.record_source,
        )
        try:
            prior = prior_for(spec, step.model)
            reach = prior.reach
            # the first C says little of gradients whose C adapts, and a dither that is too large
            # moves scales of residuals, which are no linear function of it
            if spec.privacy.adapts_clip and isinstance(prior, JointPrior) and reach is not None:
                reach = np.zeros_like(reach)
        except NoNoiseAwarePosterior:
            reach = None
        # for other clipping modes, a norm above C does not tell whether the gradient was changed
        is_flat = spec.privacy.clipping == "flat"
        counts_norms = is_flat and norm_counts.have_room(plan.mechanism, plan.sampler.capacity)
        if spec.privacy.adapts_clip and not counts_norms:
            raise _validate.ArgumentError(
                "clip",
                AUTO,
                "needs noised counts of gradient norms, and this much noise leaves no room: give "
                "a number.",
            )
        return step.with_options(
            counts_norms=counts_norms, keeps_moments=reach is not None, reach=reach
        )

    def hyper(self, spec: FitSpec, plan: PrivacyPlan, step: PrivateStep) -> Hyperparameters:
        iterations = spec.privacy.iterations
        average_from = iterations // 2 if spec.averages else None
        options = step.options
        keeps = options.counts_norms or options.keeps_moments
        moments_from = int(_SETTLED * iterations) if keeps else None
        hyper = Hyperparameters.of(
            plan.mechanism, spec.settings.learning_rate, average_from, moments_from
        )
        if options.reach is not None and moments_from is not None and average_from is not None:
            rate, clip = plan.sampler.sampling_rate, plan.mechanism.clip
            noise = plan.mechanism.standard_deviation / (step.share_of_sum * rate)
            sizes = noise_aware.dither(
                options.reach,
                noise,
                iterations - moments_from,
                step.model.num_records,
                clip,
                rate,
            )
            hyper = hyper._replace(dither=jnp.asarray(sizes))
        if not spec.privacy.adapts_clip:
            return hyper
        return hyper._replace(
            adaptive=adaptive_clip.of(iterations, spec.largest_clip, is_centred=step.is_centred)
        )

    def evaluator(self, fit: PreparedFit, deviation: float) -> Metrics:
        """As of ``Estimation``; the noise does not matter."""
        key = evaluation_key(fit.key)
        held_out = tuple(map(np.asarray, fit.data.evaluation))
        records, target = jax.device_put(held_out, fit.device), held_out[-1]
        compute = fit.functions.compute
        return lambda params: metrics_of(fit.model, target, compute(params, records, key))

    def posterior(self, fit: PreparedFit, last: Snapshot) -> Inferred:
        count = max(fit.settings.draws, FEWEST_DRAWS)
        guide = jax.device_get(fit.functions.draw(last.params, fit.key, count))
        return inferred(fit.spec, fit.step, fit.hyper, fit.moments, guide, fit.key)

    def sites(self, step: PrivateStep) -> tuple[str, ...]:
        return step.model.shared
