"""A posterior that counts the privacy noise, from the release alone.

A step of the aligned estimator releases the gradient g_t of the log-likelihood at a known point u_t, plus noise of known
size. Near the posterior that gradient is linear in u::

    g_t = b - H (u_t - m) + e_t,    m = mean of u_t,    var e_t = r = (sigma C / q)^2 + (1 - q) / q tr(H) / d

where the second part of r is the noise of minibatches. So moments of (u_t, g_t) say what the run knows of b, the gradient at
m, and of H, the curvature. If H is known, the posterior is normal: b given theta is normal with mean H (theta - m) and
covariance H (the information identity), and the mean of g_t adds r / n. H is not known, because at small epsilon the noise
hides most of it. So it is drawn, each draw gives one draw of theta, and their mixture has the spread of the data, of the
noise, and of what is unknown about the curvature:

- Diagonal: log H_jj is normal around a common level, with unknown level and spread, on a grid.
- Correlations C_ij = H_ij / sqrt(H_ii H_jj): normal with mean 0 and an unknown spread on a grid. Draws that are no
  correlation matrix are brought to one: negative eigenvalues become 0, the diagonal 1.

If the prior is not normal, ``_quadratic_chain`` makes the draw of theta. For the curvature, a normal prior of about its
width takes its place.

It is post-processing: the guarantee covers it. Clipping bias it cannot repair: where many records are clipped, g_t is the
gradient of another function. Relative: NA-DPVI (Alrawajfeh, Jälkö and Honkela, arXiv 2410.19371), which regresses on
the guide's parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.random import Generator
from scipy.special import logsumexp

from workbench.inference import _programs, _quadratic_chain
from workbench.inference._joint_prior import JointPrior, NoNoiseAwarePosterior, base_of
from workbench.inference._moments import Moments
from workbench.inference._traces import family, is_latent
from workbench.inference.record_model import RecordModel

__all__ = ["LARGEST", "NoNoiseAwarePosterior", "Prior", "draw", "normal_of", "prior_of"]

LARGEST = 40  # quantities; the correlations of d of them take d^2 / 2 unknowns, and the cube of that in time
_LARGEST_JOINT = 100  # with those that are not released; their Markov chains take the cube of it
_MIXTURES = ("MixtureSameFamily", "MixtureGeneral")
_FEWEST_STEPS = 10
_BLOCK = 500  # draws at once
_FEWEST_SOUND = 0.9  # of the draws of correlations, to reject the others
_SWEEPS = 4  # between diagonal and correlations, for each draw
_LOG = np.linspace(-5.0, 4.0, 145)  # log of H_jj over the level that the guide suggests
_LEVELS, _LEVEL_SD = np.linspace(-2.0, 2.0, 49), 0.5
_SPREADS, _SPREAD_SD = np.array([0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.1]), 0.5
_CORRELATIONS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8])
_ODDS = np.array([7, 1, 1, 1, 1, 1, 1, 1])  # half of the prior on hardly any correlation


class Prior(NamedTuple):
    """A normal prior of all released quantities, as one vector: means and precisions, float[d]."""

    mean: np.ndarray
    precision: np.ndarray


def prior_of(model: RecordModel) -> Prior | JointPrior:
    """The prior of the release point u, with that of all other latents unless it is normal with fixed means and scales.

    :raises NoNoiseAwarePosterior: unless u consists of at most ``LARGEST`` latents that the guide draws, the model has no
        parameters, and records have no latents of their own; for a mixture, unless the prior is normal; and where
        ``JointPrior`` does.
    """
    if model.shared_size > LARGEST:
        raise NoNoiseAwarePosterior(f"the model has more than {LARGEST} quantities")
    guide, one, normals = _priors(model)
    parameters = [name for name in (*model.shared, *one) if one.get(name, {"type": "param"})["type"] == "param"]
    if parameters:
        raise NoNoiseAwarePosterior(f"{parameters[0]} is a parameter without a prior")
    if model.uses_base_noise:
        raise NoNoiseAwarePosterior("records have latents of their own")
    latents = [name for name, site in one.items() if is_latent(site) and name not in model.of_records]
    missing = [name for name in latents if name not in guide]
    if missing:
        raise NoNoiseAwarePosterior(f"the guide does not draw {missing[0]}")
    # factors and observations outside the record plate, which a normal prior of the latents does not know of
    others = [name for name, site in one.items() if site["type"] == "sample" and name not in (*latents, *model.of_records)]
    if any(family(site["fn"]) in _MIXTURES for name, site in one.items() if name in latents):
        raise NoNoiseAwarePosterior("a prior is a mixture, between whose modes a short chain does not move")
    if others or set(latents) != set(model.shared) or not normals.keys() >= set(latents):
        return _joint(model, one)
    means, scales = np.concatenate([np.reshape(normals[name], (2, -1)) for name in model.shared], axis=1)
    return Prior(means, scales**-2.0)


def _priors(model: RecordModel) -> tuple[dict, dict, dict[str, np.ndarray]]:
    """Abstract traces of guide and model, and means and scales of the latents in u whose priors are normal with fixed ones.

    One program finds these numbers. Traces of values would compile one for each operation of the model.
    """
    traces = {}

    def of_two_draws() -> list[dict[str, jax.Array]]:
        found = []
        for seed in (0, 1):  # what depends on other latents differs between two draws
            traces["guide"], traces["model"] = model._traces(model.start(), jax.random.key(seed))
            latents = {name: site for name, site in traces["model"].items() if name in model.shared and is_latent(site)}
            priors = {name: normal_of(site["fn"]) for name, site in latents.items()}
            found.append({name: prior for name, prior in priors.items() if prior is not None})
        return found

    first, second = jax.tree.map(lambda array: np.asarray(array, float), _programs.jit(of_two_draws)())
    normals = {name: prior for name, prior in first.items() if np.array_equal(prior, second[name])}
    return traces["guide"], traces["model"], normals


def _joint(model: RecordModel, trace: dict) -> JointPrior:
    if any(family(trace[name]["fn"]) in _MIXTURES for name in model.observed):
        # measured: 90 % intervals of the gallery's Gaussian mixture hold the truth in 0.60 to 0.65 of cases
        raise NoNoiseAwarePosterior("the likelihood is a mixture, and far from normal where components overlap")
    found = JointPrior(model)
    if found.size > _LARGEST_JOINT:
        raise NoNoiseAwarePosterior(f"the model has more than {_LARGEST_JOINT} quantities")
    return found


def normal_of(prior: dist.Distribution) -> jax.Array | None:
    """(means, scales) of a normal distribution with independent entries, float[2, ...]; None for another."""
    shape, base = prior.batch_shape + prior.event_shape, base_of(prior)
    if type(base) is not dist.Normal:
        return None
    return jnp.stack([jnp.broadcast_to(jnp.asarray(value, float), shape) for value in (base.loc, base.scale)])


def draw(
    moments: Moments,
    prior: Prior | JointPrior,
    spread: np.ndarray,
    *,
    step_noise: float,
    sampling_rate: float,
    count: int,
    generator: Generator,
) -> np.ndarray:
    """Draws of the released quantities, float[count, d]; with a ``JointPrior``, of its ``values``.

    :param moments: of the run. :param spread: standard deviations of the guide, float[d], a hint at the size of H.
    :param step_noise: sigma C / q, the noise's standard deviation in one g_t.
    :raises NoNoiseAwarePosterior: if there were too few steps, or if they are not finite or do not vary.
    """
    steps = moments.steps
    center, gradient, points, products = moments.centred()
    points = (points + points.T) / 2
    if steps < _FEWEST_STEPS:
        raise NoNoiseAwarePosterior(f"it takes {_FEWEST_STEPS} steps after the first third of the run")
    if not all(np.all(np.isfinite(part)) for part in (center, gradient, points, products)) or np.diag(points).min() <= 0:
        raise NoNoiseAwarePosterior("the released gradients are not finite, or are all of one point")
    precision = np.square(1 / spread)
    level = np.exp(np.mean(np.log(np.maximum(precision - prior.precision, 0.1 * precision))))
    noise = step_noise**2 + (1 - sampling_rate) / sampling_rate * level
    diagonal = _Diagonal(np.diag(points), gradient, center - prior.mean, prior.precision, level, noise, steps)
    alone = np.diag(products)
    first = diagonal.draw(alone, diagonal.starting(alone, _BLOCK, generator), generator)
    correlations = _Correlations(points, products, np.exp(np.log(first).mean(0)), noise)
    found = []
    for start in range(0, count, _BLOCK):
        left, chosen = alone, diagonal.starting(alone, min(_BLOCK, count - start), generator)
        for _ in range(_SWEEPS):
            entries = diagonal.draw(left, chosen, generator)
            chosen = diagonal.choose(entries, generator)
            off = correlations.draw(entries, generator)
            left = alone + np.einsum("jk,skj->sj", points, off)
        curvature = _possible(off, diagonal.draw(left, chosen, generator), generator)
        found.append(_locations(curvature, prior, center, gradient, noise / steps, generator))
    return np.concatenate(found)


def _chosen(logits: np.ndarray, generator: Generator) -> np.ndarray:
    """Places on the last axis, drawn with these unnormalised log probabilities."""
    below = np.cumsum(np.exp(logits - logits.max(axis=-1, keepdims=True)), axis=-1)
    return np.sum(below < below[..., -1:] * generator.random((*logits.shape[:-1], 1)), axis=-1)


class _Diagonal:
    """What the run knows of each H_jj besides the correlations: a grid for each, and one for their level and spread.

    :param points: sums of squares of u - m, float[d]. :param offset: m - prior mean. :param precision: of the prior.
    :param noise: r. :param steps: n.
    """

    def __init__(
        self, points: np.ndarray, gradient: np.ndarray, offset: np.ndarray, precision: np.ndarray, level: float,
        noise: float, steps: float,
    ) -> None:  # fmt: skip
        self._level, self._values, self._known = level, level * np.exp(_LOG), points[:, None] / noise
        self._points = points
        variance = self._values**2 / precision[:, None] + self._values + noise / steps  # of the mean gradient
        misfit = (gradient[:, None] + self._values * offset[:, None]) ** 2 / variance
        self._of_gradient = -0.5 * (np.log(variance) + misfit)  # [d, grid]
        self._spreads, self._levels = (part.ravel() for part in np.meshgrid(_SPREADS, _LEVELS, indexing="ij"))
        self._means = self._levels - 0.5 * self._spreads**2
        log_prior = -0.5 * ((_LOG - self._means[:, None]) / self._spreads[:, None]) ** 2
        self._log_prior = log_prior - logsumexp(log_prior, axis=1, keepdims=True)
        self._of_pairs = -0.5 * ((self._spreads / _SPREAD_SD) ** 2 + (self._levels / _LEVEL_SD) ** 2)

    def _log_likelihood(self, left: np.ndarray) -> np.ndarray:
        """float[..., d, grid]. :param left: what the correlations leave of the sums of (u - m) g, float[..., d]."""
        slopes = -(left / self._points)[..., None]
        return self._of_gradient - 0.5 * (self._values - slopes) ** 2 * self._known

    def starting(self, left: np.ndarray, count: int, generator: Generator) -> np.ndarray:
        """Pairs of spread and level, int[count], drawn with the entries summed out, given which they are independent."""
        of_entries = logsumexp(self._log_prior[:, None] + self._log_likelihood(left), axis=2).sum(1)
        return _chosen(np.broadcast_to(of_entries + self._of_pairs, (count, len(self._of_pairs))), generator)

    def choose(self, entries: np.ndarray, generator: Generator) -> np.ndarray:
        """Pairs given the entries."""
        logs, number = np.log(entries / self._level), entries.shape[1]
        total, squares = logs.sum(1)[:, None], np.square(logs).sum(1)[:, None]
        distances = squares - 2 * total * self._means + number * self._means**2  # sums over entries of (log - mean)^2
        likelihood = -0.5 * distances / self._spreads**2 - number * np.log(self._spreads)
        return _chosen(likelihood + self._of_pairs, generator)

    def draw(self, left: np.ndarray, pairs: np.ndarray, generator: Generator) -> np.ndarray:
        """H_jj given pairs, float[draws, d]."""
        places = _chosen(self._log_prior[pairs][:, None] + self._log_likelihood(left), generator)
        within = (_LOG[1] - _LOG[0]) * (generator.random(places.shape) - 0.5)
        return self._level * np.exp(_LOG[places] + within)


class _Correlations:
    """What the run knows of the off-diagonal of H besides its diagonal: normal for each spread of the prior.

    :param typical: of the diagonal, float[d]: entries are counted in units of its roots.
    """

    def __init__(self, points: np.ndarray, products: np.ndarray, typical: np.ndarray, noise: float) -> None:
        self._size = len(typical)
        self._upper = rows, columns = np.triu_indices(self._size, 1)
        self._scale = np.sqrt(typical[rows] * typical[columns])
        # sum over steps of |off-diagonal part of H (u - m)|^2, as a quadratic form of the entries above the diagonal
        quadratic = np.zeros((len(rows), len(rows)))
        for left, right in ((rows, columns), (columns, rows)):
            for first, second in ((rows, columns), (columns, rows)):
                quadratic += points[np.ix_(left, first)] * (right[:, None] == second[None])
        values, self._vectors = np.linalg.eigh(quadratic * np.outer(self._scale, self._scale) / noise)
        self._to_vectors = -self._vectors * (self._scale / noise)[:, None]
        self._products, self._points = (products + products.T)[self._upper], points[self._upper]
        self._prior = _CORRELATIONS[:, None] ** -2.0
        self._precisions = np.maximum(values, 0) + self._prior  # [spreads, entries]

    def draw(self, diagonals: np.ndarray, generator: Generator) -> np.ndarray:
        """Off-diagonal parts of H, one for each of ``diagonals``, float[draws, d, d]."""
        rows, columns = self._upper
        linear = (self._products + self._points * (diagonals[:, rows] + diagonals[:, columns])) @ self._to_vectors
        weights = 0.5 * (np.log(self._prior / self._precisions).sum(1) + np.square(linear) @ (1 / self._precisions).T)
        weights += np.log(_ODDS)
        precisions = self._precisions[_chosen(weights, generator)]
        entries = linear / precisions + generator.normal(size=precisions.shape) / np.sqrt(precisions)
        found = np.zeros((len(diagonals), self._size, self._size))
        found[:, rows, columns] = (entries @ self._vectors.T) * self._scale
        return found + np.swapaxes(found, 1, 2)


def _possible(off: np.ndarray, diagonals: np.ndarray, generator: Generator) -> np.ndarray:
    """Curvatures with these diagonals and off-diagonal parts.

    Draws with a negative eigenvalue are rejected, that is, replaced by others; where most are, they are brought to the
    nearest that is possible instead.
    """
    roots = np.sqrt(diagonals)
    correlations = off / roots[:, :, None] / roots[:, None] + np.eye(off.shape[1])
    is_sound = np.array([_is_definite(each) for each in correlations])
    if is_sound.mean() >= _FEWEST_SOUND:
        kept = np.where(is_sound, np.arange(len(off)), generator.choice(np.flatnonzero(is_sound), len(off)))
        correlations, roots = correlations[kept], roots[kept]
    else:
        values, vectors = np.linalg.eigh(correlations)
        correlations = (vectors * np.maximum(values, 0)[:, None]) @ np.swapaxes(vectors, 1, 2)
        roots = roots / np.sqrt(np.einsum("sii->si", correlations))
    return correlations * roots[:, :, None] * roots[:, None]


def _is_definite(matrix: np.ndarray) -> bool:
    """Whether all eigenvalues of a symmetric matrix are above 0; a tenth of the time that it takes to know them."""
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False


def _locations(
    curvature: np.ndarray,
    prior: Prior | JointPrior,
    center: np.ndarray,
    gradient: np.ndarray,
    noise: float,
    generator: Generator,
) -> np.ndarray:
    """A draw of theta for each curvature, float[count, d]. :param noise: r / n."""
    weighted = np.linalg.solve(curvature + noise * np.eye(len(center)), curvature)  # V^-1 H
    known, linear = curvature @ weighted, np.einsum("sji,sj->si", weighted, gradient + curvature @ center)
    if isinstance(prior, JointPrior):
        return _quadratic_chain.draws(prior, (known + np.swapaxes(known, 1, 2)) / 2, linear, generator)
    precision, target = known + np.diag(prior.precision), linear + prior.precision * prior.mean
    factor = np.linalg.cholesky((precision + np.swapaxes(precision, 1, 2)) / 2)
    half = np.linalg.solve(factor, target[..., None]) + generator.normal(size=(*target.shape, 1))
    return np.linalg.solve(np.swapaxes(factor, 1, 2), half)[..., 0]
