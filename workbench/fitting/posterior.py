"""What can be inferred from a fit's moments: draws from a posterior that counts the privacy noise,
and gradient norms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from workbench._blas import one_thread
from workbench.fitting.estimation import Inferred
from workbench.fitting.learned_scales import has_raw_bounds, looks_by_default
from workbench.inference import adaptive_clip, norm_counts
from workbench.inference.running_moments import Moments
from workbench.inference.state import Hyperparameters, Purpose, fast_child
from workbench.inference.step import PrivateStep
from workbench.models.functions import FunctionModel
from workbench.posterior import noise_aware
from workbench.posterior.convergence import FEWEST_STEPS, Convergence, convergence_of
from workbench.posterior.expected_curvature import ExpectedCurvature
from workbench.posterior.joint_prior import JointPrior
from workbench.posterior.noise_aware import LARGEST, NoNoiseAwarePosterior, Prior, prior_of
from workbench.privacy.gradient_norms import GradientNorms
from workbench.record_model.model import RecordModel

if TYPE_CHECKING:
    from workbench.fitting.spec import FitSpec

__all__ = [
    "FEWEST_DRAWS",
    "by_site",
    "cautions",
    "final_clip",
    "functions_of",
    "gradient_norms",
    "inferred",
    "noise_aware_draws",
    "prior_for",
]

FEWEST_DRAWS = 200  # from the guide, whose spread is needed
_LARGEST_RATE = 0.5  # the default is 1 / sqrt(steps); parameters are of order 1
_AS_DECLARED = (
    "Without a look the declared bounds stand for how columns are spread. Where one fills less "
    "than a fifth of them, its effect is drawn towards 0 and its interval may miss it."
)
_NEARLY_ALL = 0.8
_ALL_CLIPPED = (
    "Nearly all gradients were clipped, which draws estimates together, such as the shares of a "
    'mixture\'s components. clip="auto" adapts C, with more noise.'
)
_UNSEEN = (
    "The declared bounds stand for how columns are spread, because this fit did not look at them. "
    "Where a column fills less than a fifth of its bounds, its effect is drawn towards 0 and its "
    "interval may miss it: look=0.1 learns the scales for a tenth of epsilon."
)


def prior_for(spec: FitSpec, model: RecordModel) -> Prior | JointPrior:
    """The prior for a noise-aware posterior.

    :raises NoNoiseAwarePosterior: if there will be none.
    """
    if spec.settings.estimator != "aligned":
        raise NoNoiseAwarePosterior(
            "the vanilla estimator does not release the gradient of the likelihood"
        )
    if spec.privacy.clipping != "flat":
        raise NoNoiseAwarePosterior(f'clipping "{spec.privacy.clipping}" changes every gradient')
    return prior_of(model)


def noise_aware_draws(
    spec: FitSpec,
    step: PrivateStep,
    hyper: Hyperparameters,
    moments: Moments | None,
    norms: GradientNorms | None,
    guide: Mapping[str, np.ndarray],
    key: jax.Array,
) -> tuple[dict[str, np.ndarray] | None, str]:
    """Draws of the noise-aware posterior, by site, and ""; or None and why there are none.

    :param moments: of the run. :param norms: of ``gradient_norms``.
    :param guide: at least ``FEWEST_DRAWS`` draws from the guide. :param key: of the run.
    """
    model, rate = step.model, step.sampler.sampling_rate
    sigma = float(hyper.standard_deviation) / float(hyper.clip)
    # for these draws alone, of a fast generator: they protect nobody
    interval_key = fast_child(key, Purpose.INTERVALS)
    try:
        prior = prior_for(spec, model)
        if moments is None:
            raise NoNoiseAwarePosterior("no moments of the release were kept")
        flat = [np.reshape(guide[name], (len(guide[name]), -1)) for name in model.shared]
        are_clipped = norms is not None and norms.more_are_clipped()
        with one_thread():
            drawn = noise_aware.draw(
                moments,
                prior,
                np.concatenate(flat, axis=1).std(axis=0, dtype=float),
                step_noise=sigma * final_clip(hyper, moments) / (step.share_of_sum * rate),
                sampling_rate=rate,
                count=spec.settings.draws,
                generator=np.random.default_rng(np.asarray(jax.random.key_data(interval_key))),
                # clipped gradients move by less than the points' spread says
                residuals=None if are_clipped else _residual_scale(model, guide),
                expected=_expected(model, guide),
            )
    except NoNoiseAwarePosterior as reason:
        return None, str(reason)
    return by_site(model, prior, drawn, guide), ""


def _residual_scale(
    model: RecordModel, guide: Mapping[str, np.ndarray]
) -> noise_aware.ResidualScale | None:
    """Of a model whose callable names the site of its ``residual_scale``, and ``beside`` it what
    does not move their location.
    """
    scale, beside = getattr(model.model, "residual_scale", ("", ()))
    if scale not in model.shared:
        return None
    sites = np.repeat(model.shared, [math.prod(guide[name].shape[1:]) for name in model.shared])
    return noise_aware.ResidualScale(
        int(np.argmax(sites == scale)), ~np.isin(sites, (scale, *beside))
    )


def _expected(model: RecordModel, guide: Mapping[str, np.ndarray]) -> ExpectedCurvature | None:
    """Of a model whose callable knows something of it."""
    if not hasattr(model.model, "expected_curvature"):
        return None
    expected: ExpectedCurvature = model.model.expected_curvature(
        {name: guide[name].shape[1:] for name in model.shared}
    )
    return expected


def by_site(
    model: RecordModel,
    prior: Prior | JointPrior,
    drawn: np.ndarray,
    guide: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Draws of ``noise_aware``, float[draws, k], by site as the guide's, with the model's
    deterministic sites.
    """
    names = prior.names if isinstance(prior, JointPrior) else model.shared
    widths = [int(np.prod(guide[name].shape[1:])) for name in names]
    draws = {}
    for name, block in zip(names, np.split(drawn, np.cumsum(widths)[:-1], axis=1), strict=True):
        like = guide[name]
        draws[name] = block.reshape(len(drawn), *like.shape[1:]).astype(like.dtype)
    functions = [name for name in guide if name not in draws]
    if functions:
        draws |= functions_of(model, functions, draws)
    return {name: draws[name] for name in guide}


def functions_of(
    model: RecordModel, names: list[str], latents: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Deterministic sites of ``model``, for draws of its latents."""

    def one(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        trace = model.model_trace(values, jax.random.key(0))
        return {name: trace[name]["value"] for name in names}

    return jax.device_get(jax.jit(jax.vmap(one))(latents))


def final_clip(hyper: Hyperparameters, moments: Moments | None) -> float:
    """C of the steps that ``moments`` count, or of the newest step where none does yet."""
    if hyper.adaptive is None or moments is None or moments.rung is None:
        return float(hyper.clip)
    return float(adaptive_clip.clip_of(moments.rung, hyper.clip, hyper.adaptive))


def gradient_norms(
    step: PrivateStep, hyper: Hyperparameters, moments: Moments | None
) -> GradientNorms | None:
    """How long the records' gradients were; None where no step counted them. :param moments: of the
    run.
    """
    if moments is None or moments.norms is None or not np.asarray(moments.norms)[0]:
        return None
    steps, *counts = np.asarray(moments.norms, float)
    # gradients, by public numbers
    expected = steps * step.sampler.sampling_rate * step.model.num_records
    deviation = (
        float(hyper.standard_deviation)
        / float(hyper.clip)
        / norm_counts.OF_NORMS
        * math.sqrt(steps)
    )
    fractions = tuple(float(count / expected) for count in counts)
    first = None if hyper.adaptive is None else float(hyper.clip)
    return GradientNorms(
        norm_counts.EDGES, fractions, float(deviation / expected), final_clip(hyper, moments), first
    )


def inferred(
    spec: FitSpec,
    step: PrivateStep,
    hyper: Hyperparameters,
    moments: Moments | None,
    guide: dict[str, np.ndarray],
    key: jax.Array,
) -> Inferred:
    """All that follows from the release of a run. The arguments are those
    of ``noise_aware_draws``.
    """
    norms = gradient_norms(step, hyper, moments)
    draws, note = noise_aware_draws(spec, step, hyper, moments, norms, guide, key)
    sizes = {name: math.prod(guide[name].shape[1:]) for name in step.model.shared if name in guide}
    convergence = convergence_of(moments, sizes)
    doubts = (*_settings_cautions(spec), *cautions(step, convergence, norms, guide, draws))
    first = {name: values[: spec.settings.draws] for name, values in guide.items()}
    note = note if draws is None else " ".join(doubts)
    return Inferred(first, draws, note, norms, (*doubts, *_bounds_cautions(spec)), convergence)


def _bounds_cautions(spec: FitSpec) -> list[str]:
    """A sentence about bounds that the caller declared, where no scales were learned."""
    model, look = spec.model, spec.request.look
    is_off = isinstance(look, int | float) and look == 0
    if looks_by_default(model, spec.source):
        return [_AS_DECLARED] if is_off else []
    has_effects = (
        model.learns_scales or model.linear is not None or isinstance(model, FunctionModel)
    )
    are_known = model.columns_scaled is not None or spec.data.is_public or spec.scales
    if are_known or not has_effects or not has_raw_bounds(spec.source):
        return []
    return [_AS_DECLARED if is_off else _UNSEEN]


def _settings_cautions(spec: FitSpec) -> list[str]:
    """Sentences about settings with which no run arrives, whatever it releases."""
    words, steps, rate = [], spec.privacy.iterations, spec.settings.learning_rate
    if rate is not None and rate > _LARGEST_RATE:
        words.append(
            f"A learning rate of {rate:g} moves each parameter by about {rate:g} in a step, too "
            "far to settle. Estimates and intervals may be far off. Leave it out, or use a "
            "smaller one."
        )
    if not spec.averages and steps < 2 * FEWEST_STEPS:
        words.append(f"The fit took only {steps} steps, so estimates and intervals may be far off.")
    return words


def cautions(
    step: PrivateStep,
    convergence: Convergence | None,
    norms: GradientNorms | None,
    guide: Mapping[str, np.ndarray],
    draws: Mapping[str, np.ndarray] | None,
) -> tuple[str, ...]:
    """Sentences about what makes a fit's answer doubtful, worst first, from its release alone; none
    for a fit like others.

    :param guide: draws from the guide. :param draws: noise-aware ones; None where there are none.
    """
    sites = step.model.shared
    words = ["" if convergence is None else convergence.words]
    spreads = [np.std(guide[name], axis=0, dtype=float) for name in sites if name in guide]
    if not all(np.all(np.isfinite(spread) & (spread > 0)) for spread in spreads):
        words.insert(
            0,
            "Some quantities have no spread, so their intervals say nothing: the guide is a "
            "point, or the fit broke down, which a smaller learning rate prevents.",
        )
    if norms is not None and draws is not None:
        deviations = np.concatenate(
            [np.std(draws[name], axis=0, dtype=float).ravel() for name in sites]
        )
        words.append(norms.caution(deviations.tolist()))
    elif norms is not None and sum(map(np.size, spreads)) <= LARGEST:  # networks learn from these
        fraction, deviation = norms.clipped
        words.append(_ALL_CLIPPED * (fraction - 3 * deviation > _NEARLY_ALL))
    return tuple(filter(None, words))
