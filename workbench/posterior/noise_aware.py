"""A posterior that counts the privacy noise, from the release alone.

A step of the aligned estimator releases the gradient g_t of the log-likelihood at a known point
u_t, plus noise of known size. Near the posterior that gradient is linear in u::

    g_t = b - H (u_t - m) + e_t,    m = mean of u_t,    cov e_t = (sigma C / q)^2 I + (1 - q) / q H

where the second part is the noise of minibatches, by the information identity. So moments of (u_t,
g_t) say what the run knows of b, the gradient at m, and of H, the curvature. If H is known, the
posterior is normal: b given theta is normal with mean H (theta - m) and covariance H, and the mean
of n of g_t adds cov e_t / n. H is not known, because at small epsilon the noise hides most of it.
So it is drawn (``_curvature_chain``, which takes one variance r for all entries of e_t), each draw
gives one draw of theta, and their mixture has the spread of the data, of the noise, and of what is
unknown about the curvature. How much the run knows of H depends on how far apart the points are, so
``dither`` moves them apart where there is much noise.

If the prior is not normal, ``_quadratic_chain`` makes the draw of theta. For the curvature, a
normal prior of about its width takes its place.

It is post-processing: the guarantee covers it. Clipping bias it cannot repair: where many records
are clipped, g_t is the gradient of another function. Relative: NA-DPVI (Alrawajfeh, Jälkö and
Honkela, arXiv 2410.19371), which regresses on the guide's parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.random import Generator
from numpyro.distributions.transforms import IdentityTransform, biject_to

from workbench.inference import program_cache
from workbench.inference.running_moments import Moments
from workbench.posterior import _curvature_chain, _quadratic_chain
from workbench.posterior._curvature_chain import CHAINS, CURVATURES
from workbench.posterior.expected_curvature import ExpectedCurvature
from workbench.posterior.joint_prior import JointPrior, NoNoiseAwarePosterior, base_of
from workbench.record_model.model import RecordModel
from workbench.record_model.traces import family, is_latent

__all__ = [
    "CHAINS",
    "CURVATURES",
    "LARGEST",
    "NoNoiseAwarePosterior",
    "Prior",
    "ResidualScale",
    "dither",
    "draw",
    "noise_of_mean",
    "normal_of",
    "of_quadratics",
    "prior_of",
]

LARGEST = 100  # quantities; the Markov chains of their curvature take the cube of it in time
_LARGEST_JOINT = 120  # with those that are not released; their chains take the cube of it, too
_MIXTURES = ("MixtureSameFamily", "MixtureGeneral")
_FEWEST_STEPS = 10
_BLOCK = 512  # most draws at once
# dither, in units of what the noise would move, and its largest product with C; none of more than
# ``MANY`` quantities, whose points are apart anyway, and predict worse where they are moved further
_OF_NOISE, _STRAIGHT = (8.0, 3.0)


class Prior(NamedTuple):
    """A normal prior of all released quantities, as one vector: means and precisions, float[d]."""

    mean: np.ndarray
    precision: np.ndarray

    @property
    def reach(self) -> np.ndarray:
        """How far u may be dithered, float[d]: its standard deviations."""
        return self.precision**-0.5


@dataclass(frozen=True)
class ResidualScale:
    """The scale of residuals in u: the curvature of what moves their location falls as its square.

    :param index: of the scale. :param located: bool[d], which entries of u move the location.
    """

    index: int
    located: np.ndarray

    def spread_of_points(
        self, curvature: np.ndarray, center: np.ndarray, covariance: np.ndarray
    ) -> np.ndarray:
        """What points around m add to the mean gradient beyond the one at m, float[count, d].

        Residuals around points that vary by ``covariance`` are longer than those around m, and
        their mean square is a gradient of the scale: tr(H cov) / scale, by the third derivative of
        the log-likelihood.
        """
        chosen = np.flatnonzero(self.located)
        added = np.zeros(curvature.shape[:2])
        curved, spread = (array[..., chosen[:, None], chosen] for array in (curvature, covariance))
        added[:, self.index] = np.einsum("sij,ij->s", curved, spread) / center[self.index]
        return added


def prior_of(model: RecordModel) -> Prior | JointPrior:
    """The prior of the release point u, with that of all other latents unless it is normal with
    fixed means and scales.

    :raises NoNoiseAwarePosterior: unless u consists of at most ``LARGEST`` latents that the guide
        draws, the model has no parameters, and records have no latents of their own; for a mixture,
        unless the prior is normal; and where ``JointPrior`` does.
    """
    if model.shared_size > LARGEST:
        raise NoNoiseAwarePosterior(f"the model has more than {LARGEST} quantities")
    guide, trace, normals, reach = _priors(model)
    parameters = [
        name
        for name in (*model.shared, *trace)
        if trace.get(name, {"type": "param"})["type"] == "param"
    ]
    if parameters:
        raise NoNoiseAwarePosterior(f"{parameters[0]} is a parameter without a prior")
    if model.uses_base_noise:
        raise NoNoiseAwarePosterior("records have latents of their own")
    latents = [
        name for name, site in trace.items() if is_latent(site) and name not in model.of_records
    ]
    missing = [name for name in latents if name not in guide]
    if missing:
        raise NoNoiseAwarePosterior(f"the guide does not draw {missing[0]}")
    # factors and observations outside the record plate, which a normal prior of the latents does
    # not know of
    factors = [
        name
        for name, site in trace.items()
        if site["type"] == "sample" and name not in (*latents, *model.of_records)
    ]
    if any(family(site["fn"]) in _MIXTURES for name, site in trace.items() if name in latents):
        raise NoNoiseAwarePosterior(
            "a prior is a mixture, between whose modes a short chain does not move"
        )
    if factors or set(latents) != set(model.shared) or not normals.keys() >= set(latents):
        return _joint(model, trace, reach)
    means, scales = np.concatenate(
        [np.reshape(normals[name], (2, -1)) for name in model.shared], axis=1
    )
    return Prior(means, scales**-2.0)


def _priors(model: RecordModel) -> tuple[dict, dict, dict[str, np.ndarray], np.ndarray]:
    """Abstract traces of guide and model; means and scales of latents in u whose priors are normal
    with fixed ones; reach.

    One program finds these numbers. Traces of values would compile one for each operation of the
    model.
    """
    traces = {}

    def of_two_draws() -> tuple[list[dict[str, jax.Array]], list[jax.Array]]:
        per_draw = []
        for seed in (0, 1):  # what depends on other latents differs between two draws
            traces["guide"], traces["model"] = model._traces(model.start(), jax.random.key(seed))
            latents = {
                name: site
                for name, site in traces["model"].items()
                if name in model.shared and is_latent(site)
            }
            priors = {name: normal_of(site["fn"]) for name, site in latents.items()}
            per_draw.append({name: prior for name, prior in priors.items() if prior is not None})
        return per_draw, [
            _reach(latents[name]["fn"]).ravel() for name in model.shared if name in latents
        ]

    (first, second), reach = jax.tree.map(
        lambda array: np.asarray(array, float), program_cache.jit(of_two_draws)()
    )
    normals = {name: prior for name, prior in first.items() if np.array_equal(prior, second[name])}
    flat = np.concatenate([np.zeros(0), *reach])
    return traces["guide"], traces["model"], normals, np.where(np.isfinite(flat), flat, 0.0)


def _reach(prior: dist.Distribution) -> jax.Array:
    """Standard deviations of a latent, or 0 where it has bounds, beyond which it must not
    be moved.
    """
    shape = prior.batch_shape + prior.event_shape
    if not isinstance(biject_to(prior.support), IdentityTransform):
        return jnp.zeros(shape)
    try:
        return jnp.broadcast_to(jnp.sqrt(prior.variance), shape)
    except NotImplementedError:
        return jnp.zeros(shape)


def _joint(model: RecordModel, trace: dict, reach: np.ndarray) -> JointPrior:
    if any(family(trace[name]["fn"]) in _MIXTURES for name in model.observed):
        # measured: 90 % intervals of the gallery's Gaussian mixture hold the truth in 0.52 to 0.58
        # of cases
        raise NoNoiseAwarePosterior(
            "the likelihood is a mixture, and far from normal where components overlap"
        )
    joint = JointPrior(model)
    joint.reach = reach
    if joint.size > _LARGEST_JOINT:
        raise NoNoiseAwarePosterior(f"the model has more than {_LARGEST_JOINT} quantities")
    return joint


def normal_of(prior: dist.Distribution) -> jax.Array | None:
    """(means, scales) of a normal distribution with independent entries, float[2, ...]; None for
    another.
    """
    shape, base = prior.batch_shape + prior.event_shape, base_of(prior)
    if type(base) is not dist.Normal:
        return None
    return jnp.stack(
        [jnp.broadcast_to(jnp.asarray(value, float), shape) for value in (base.loc, base.scale)]
    )


def dither(
    reach: np.ndarray,
    step_noise: float,
    steps: float,
    num_records: int,
    clip: float,
    sampling_rate: float,
) -> np.ndarray:
    """By how much to move u in each coordinate, float32[d], so that the noise leaves the curvature
    visible.

    The noise, of variance r in a step, moves the posterior by sqrt(r / n) / H where the curvature
    is H. Points that vary by some of these show each entry of H up to a part of its size, at any
    epsilon. The size of H is guessed as N (C / 2)^2 / d: by the information identity it is the sum
    of squares of the records' gradients, which are taken to be half as long as C. u moves no
    farther than the prior is wide, nor by more than 3 / C: there the log-likelihood of a record
    changes by about 1, and beyond it gradients do not follow straight lines. Where there are many
    quantities it does not move.

    :param reach: of the step. :param step_noise: sigma C / q. :param steps: n, those whose moments
        will count.
    :param num_records: N. :param clip: C. :param sampling_rate: q.
    """
    reach = np.where(len(reach) > _curvature_chain.MANY, 0.0, reach)
    guessed = num_records * (clip / 2) ** 2 / len(reach)
    with np.errstate(over="ignore"):
        noise = np.hypot(step_noise, np.sqrt(_of_minibatches(sampling_rate) * guessed))
        wanted = min(_OF_NOISE * noise / np.sqrt(steps) / guessed, _STRAIGHT / clip)
        return np.minimum(wanted, reach).astype(np.float32)


def draw(
    moments: Moments,
    prior: Prior | JointPrior,
    spread: np.ndarray,
    *,
    step_noise: float,
    sampling_rate: float,
    count: int,
    generator: Generator,
    residuals: ResidualScale | None = None,
    expected: ExpectedCurvature | None = None,
) -> np.ndarray:
    """Draws of the released quantities, float[count, d]; with a ``JointPrior``, of its ``values``.

    :param moments: of the run. :param spread: standard deviations of the guide, float[d], a hint at
        the size of H.
    :param step_noise: sigma C / q, the noise's standard deviation in one g_t.
    :param residuals: where u has their scale. :param expected: what is known of the
        curvature beforehand.
    :raises NoNoiseAwarePosterior: if there were too few steps, if they are not finite or do not
        vary, if the guide does not vary, if there is no noise, or if a Markov chain does not
        settle.
    """
    steps = moments.steps
    center, gradient, points, products = moments.centred()
    if steps < _FEWEST_STEPS:
        raise NoNoiseAwarePosterior(
            f"it takes {_FEWEST_STEPS} steps after the first three tenths of the run"
        )
    if (
        not all(np.all(np.isfinite(array)) for array in (center, gradient, points, products))
        or np.diag(points).min() <= 0
    ):
        raise NoNoiseAwarePosterior(
            "the released gradients are not finite, or are all of one point"
        )
    if not (np.all(np.isfinite(spread)) and np.min(spread) > 0):
        raise NoNoiseAwarePosterior("the guide has a quantity that does not vary")
    precision = np.square(1 / spread)
    level = np.exp(np.mean(np.log(np.maximum(precision - prior.precision, 0.1 * precision))))
    noise = step_noise**2 + _of_minibatches(sampling_rate) * level
    if not 0 < noise < np.inf:
        raise NoNoiseAwarePosterior(
            "the released gradients have no noise, or more than can be counted"
        )
    curvatures = _curvature_chain.curvatures(
        (points + points.T) / 2, products, noise, level, prior.precision, generator, expected
    )
    of_mean = noise_of_mean(step_noise, sampling_rate, steps)
    gradients = np.broadcast_to(gradient, (len(curvatures), len(gradient)))
    if residuals is not None:
        gradients = gradients - residuals.spread_of_points(curvatures, center, points / steps)
    # blocks of one size, for which a Markov chain is compiled once
    blocks = -(-count // _BLOCK)
    size = -(-count // blocks)
    # each in turn, the first ones once more
    chosen = np.resize(np.arange(len(curvatures)), (blocks, size))
    drawn = [
        _locations(curvatures[block], prior, center, gradients[block], of_mean, generator)
        for block in chosen
    ]
    return np.concatenate(drawn)[:count]


def _of_minibatches(sampling_rate: float) -> float:
    """The covariance of minibatch noise in a step, relative to H."""
    return (1 - sampling_rate) / sampling_rate


def noise_of_mean(step_noise: float, sampling_rate: float, steps: float) -> tuple[float, float]:
    """The covariance of the noise in the mean of n gradients: (in units of 1, in units of H).
    :param steps: n.
    """
    return step_noise**2 / steps, _of_minibatches(sampling_rate) / steps


def _locations(
    curvature: np.ndarray,
    prior: Prior | JointPrior,
    center: np.ndarray,
    gradient: np.ndarray,
    noise: tuple[float, float],
    generator: Generator,
) -> np.ndarray:
    """A draw of theta for each curvature, float[count, d].

    :param gradient: at ``center``, float[count, d]. :param noise: of ``noise_of_mean``.
    """
    covariance = (1 + noise[1]) * curvature + noise[0] * np.eye(len(center))
    weighted = np.linalg.solve(covariance, curvature)  # V^-1 H
    information, linear = (
        curvature @ weighted,
        np.einsum("sji,sj->si", weighted, gradient + curvature @ center),
    )
    return of_quadratics(prior, information, linear, generator)


def of_quadratics(
    prior: Prior | JointPrior, information: np.ndarray, linear: np.ndarray, generator: Generator
) -> np.ndarray:
    """A draw of theta for each log-likelihood ``linear' theta - theta' information theta / 2``,
    float[count, d].

    :param information: float[count, d, d], symmetric up to rounding.
    :param linear: float[count, d].
    :raises NoNoiseAwarePosterior: if a Markov chain does not settle.
    """
    if isinstance(prior, JointPrior):
        return _quadratic_chain.draws(
            prior, (information + np.swapaxes(information, 1, 2)) / 2, linear, generator
        )
    precision, target = (
        information + np.diag(prior.precision),
        linear + prior.precision * prior.mean,
    )
    factor = np.linalg.cholesky((precision + np.swapaxes(precision, 1, 2)) / 2)
    half = np.linalg.solve(factor, target[..., None]) + generator.normal(size=(*target.shape, 1))
    return np.linalg.solve(np.swapaxes(factor, 1, 2), half)[..., 0]
