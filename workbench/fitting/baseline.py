"""Fits without privacy: the scores that private curves are compared with, and ``private=False``,
which checks a model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from workbench._blas import one_thread
from workbench._validate import ArgumentError
from workbench.fitting.estimation import Inferred
from workbench.fitting.functions import CompiledFunctions
from workbench.fitting.posterior import FEWEST_DRAWS, by_site, prior_for
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.run_log import RunLog
from workbench.fitting.settings import Settings, default_of
from workbench.fitting.spec import FitSpec
from workbench.inference.bringing import are_at_rest
from workbench.inference.state import Hyperparameters, Purpose, fast_child
from workbench.inference.step import PrivateStep
from workbench.inference.training import Snapshot, run, to_the_end
from workbench.ledger.reservation import id_of, ledger_for
from workbench.noise.chacha20 import new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.posterior.noise_aware import NoNoiseAwarePosterior
from workbench.posterior.normal_likelihood import draw as normal_likelihood
from workbench.privacy.no_privacy import NoPrivacyPlan
from workbench.results import FitResult
from workbench.results.scores import Scores

__all__ = [
    "FitWithoutPrivacy",
    "noiseless",
    "noiseless_hyper",
    "prepare_without_privacy",
    "refuse_terms_of_privacy",
    "without_privacy",
]

_OF_PRIVACY = (
    "epsilon",
    "delta",
    "relation",
    "clip",
    "clipping",
    "ledger",
    "over_cap",
    "checkpoint",
    "look",
)


def noiseless(step: PrivateStep) -> PrivateStep:
    """``step`` without clipping and noise, and without what only a noised release has.
    Not private.
    """
    return dataclasses.replace(step, mechanism=GaussianMechanism(math.inf, 0.0)).with_options(
        counts_norms=False
    )


def noiseless_hyper(hyper: Hyperparameters) -> Hyperparameters:
    """What ``noiseless(step)`` takes instead of ``hyper``."""
    clip, deviation = jnp.float32(math.inf), jnp.float32(0.0)
    return hyper._replace(
        clip=clip, standard_deviation=deviation, moments_from=None, adaptive=None, dither=None
    )


def without_privacy(
    prepared: PreparedFit, stop: Callable[[], bool] = lambda: False
) -> Scores | None:
    """Compute the metrics of the same fit without clipping and noise: same model, optimiser,
    minibatch sizes and steps.

    The numbers are exact functions of the private training records and labelled "outside the
    guarantee". Do not publish them unless the records are public.

    :param stop: called between chunks of steps; True ends the run.
    :raises ArgumentError: naming ``devices``, if they are of several processes.
    :return: None if the run was stopped or failed, or if no metrics may be computed on the
        evaluation records.
    """
    prepared.spec.processes.require_one("a fit without privacy")
    if not prepared.shows_metrics:
        return None
    evaluate = prepared.spec.estimation.evaluator(prepared, 0.0)
    free, hyper = noiseless(prepared.step), noiseless_hyper(prepared.hyper)
    records, _ = prepared.on_device
    state = prepared.spec.placed(jax.jit(free.init)(new_key(), hyper))
    steps = run(free, hyper, state, records, prepared.privacy.iterations, stop=stop)
    last, state = to_the_end(steps)
    if last.status != "done":
        return None
    return Scores(
        evaluate(free.unconstrained(state, prepared.spec.averages)), "outside the guarantee"
    )


class FitWithoutPrivacy(PreparedFit):
    """A fit without clipping and noise, for public and made-up records. Its guarantee says that
    there is none.
    """

    def result(self, *, last_iterate: bool = False) -> FitResult:
        """As of ``PreparedFit``, with labels that say what it is."""
        result = super().result(last_iterate=last_iterate)
        label = "public data" if self.data.is_public else "outside the guarantee"
        kind = (
            "normal likelihood" if result.posterior_kind == "noise-aware" else result.posterior_kind
        )
        return dataclasses.replace(result, release_label=label, posterior_kind=kind)

    def _posterior(self, last: Snapshot) -> Inferred:
        """Draws from the guide and, if there are any, from prior times a normal likelihood."""
        model, spec = self.step.model, self.spec
        count = max(self.settings.draws, FEWEST_DRAWS)
        guide = jax.device_get(self.functions.draw(last.params, self.key, count))
        guide_draws = {name: values[: self.settings.draws] for name, values in guide.items()}
        try:
            prior = prior_for(spec, model)
            if are_at_rest(self.data.train) or (
                self.data.units is not None and self.data.units.mean
            ):
                raise NoNoiseAwarePosterior(
                    "its records stay in a file, or weigh as much as their persons"
                )
            flat = [np.reshape(guide[name], (count, -1)) for name in model.shared]
            middle = np.concatenate(flat, axis=1).mean(axis=0, dtype=float)
            seed = np.asarray(jax.random.key_data(fast_child(self.key, Purpose.INTERVALS)))
            with one_thread():
                generator = np.random.default_rng(seed)
                drawn = normal_likelihood(
                    model, prior, middle, self.data.train, self.settings.draws, generator
                )
        except NoNoiseAwarePosterior as reason:
            doubt = (
                f"The intervals are the guide's own ({reason}) and may be several times too narrow."
            )
            return Inferred(guide_draws, None, str(reason), cautions=(doubt,))
        return Inferred(guide_draws, by_site(model, prior, drawn, guide), "")


def prepare_without_privacy(spec: FitSpec) -> FitWithoutPrivacy:
    """The fit of ``spec`` without clipping and noise, in no ledger and without checkpoints.

    :raises ArgumentError: naming ``private``, if the ledger has a cap on what may be spent on the
        records.
    """
    spec.processes.require_one("a fit without privacy")
    ledger = ledger_for(spec.source, None)
    if ledger is not None and ledger.budget_status(id_of(spec.source)).caps:
        raise _beside(
            "private",
            False,
            "cannot be used: the ledger has a cap on what is spent on these records.",
        )
    plan = NoPrivacyPlan.of(spec.plan())
    spec = dataclasses.replace(spec, privacy=plan.settings)
    key = spec.new_key()
    step = noiseless(spec.private_step(plan, key)).with_options(keeps_moments=False, reach=None)
    step, state = spec.begin(plan, key, step)
    log = RunLog(spec, plan, step.noised_coordinates, ledger=False, checkpoint=False)
    functions = CompiledFunctions(step, spec)
    return FitWithoutPrivacy(spec, plan, step, state, key, log, functions)


def refuse_terms_of_privacy(request: Settings) -> None:
    """:raises ArgumentError: naming the first setting that means nothing without privacy and is not
    at its default.
    """
    for name in _OF_PRIVACY:
        value = getattr(request, name)
        is_so = value is False and name in ("ledger", "checkpoint")  # there is none anyway
        if value != default_of(name, type(request)) and not is_so:
            raise _beside(name, value, "must be left out, because the fit has no privacy.")


def _beside(name: str, value: object, expectation: str) -> ArgumentError:
    """The error of what cannot be had without privacy."""
    remedy = "For a private fit, leave out private=False."
    return ArgumentError(name, value, expectation, code="without privacy", remedy=remedy)
