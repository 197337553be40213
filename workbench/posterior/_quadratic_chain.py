"""Draws from a quadratic log-likelihood times any prior, one for each of many quadratics, by as
many short Markov chains.

Chain s has the log density of its prior at z and t_s' u - u' A_s u / 2, where u = u(z) is the
release point. It starts at what would be a draw if the prior were normal and u linear: a draw of
the prior is moved by least squares towards data with noise of precision A_s ("randomise, then
optimise"). So it is a draw already where the quadratic says nothing, and nearly one where it says
all. Hamiltonian Monte Carlo corrects the rest, in coordinates in which the density is about as wide
in all directions. All chains step together, and share the length of their steps, which is tuned in
the first half of the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.random import Generator

from workbench.posterior.joint_prior import JointPrior, NoNoiseAwarePosterior

__all__ = ["draws"]

Array = jax.Array
_IMPROVEMENTS = 6  # least-squares steps that improve the start
# stages until the quadratic has its full weight, until nothing is tuned, and in all
_GROWING, _TUNED, _STAGES = (6, 8, 12)
_TRANSITIONS = 16  # of each chain in each stage
_LENGTH = 1.6  # of a trajectory, in standard deviations
_FEWEST, _MOST = 3, 40  # smallest and largest number of steps of a trajectory
_ACCEPTED = 0.8  # share of proposals that tuning aims to accept
_SHORTEST = 0.3  # a trajectory's steps are between this and 1 of the common length
_FEWEST_CHAINS = 20  # fewer cannot show whether they have settled
_STUCK = (
    10.0  # a chain is stuck if its log density is this many interquartile ranges below the others'
)


class _Quadratic(NamedTuple):
    """t' u - u' A u / 2, as ``slope`` (u - center) - (u - center)' A (u - center) / 2: small
    numbers keep their digits.

    :param root: R with R R' = A.
    """

    center: Array
    precision: Array
    slope: Array
    root: Array

    def times(self, factor: Array) -> _Quadratic:
        """The quadratic times a number."""
        return _Quadratic(
            self.center, factor * self.precision, factor * self.slope, jnp.sqrt(factor) * self.root
        )


class _State(NamedTuple):
    """Where a chain is, with log density and gradient there."""

    z: Array
    log_density: Array
    gradient: Array


class _Randomness(NamedTuple):
    """What the chains take by chance: draws of z from the prior and of normals for the starts;
    speeds and two uniforms for each of their transitions, float32[stages, transitions, s, ...].
    """

    drawn: Array
    noise: Array
    speeds: Array
    uniforms: Array


def draws(
    prior: JointPrior, precision: np.ndarray, linear: np.ndarray, generator: Generator
) -> np.ndarray:
    """A draw of ``prior.values`` for each quadratic, float[s, k].

    :param precision: A, float[s, d, d], symmetric without negative eigenvalues. :param linear: t,
        float[s, d].
    :raises NoNoiseAwarePosterior: if the chains do not settle.
    """
    typical = np.diag(prior.precision)
    center = np.linalg.solve(precision + typical, (linear + typical @ prior.mean)[..., None])
    slope = linear - (precision @ center)[..., 0]
    eigenvalues, vectors = np.linalg.eigh(precision)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0))[:, None]
    quadratic = _Quadratic(
        *(jnp.asarray(array, jnp.float32) for array in (center[..., 0], precision, slope, root))
    )
    shape = (_STAGES, _TRANSITIONS, len(linear))
    drawn = prior.sample[generator.integers(len(prior.sample), size=len(linear))]
    normals = (
        generator.standard_normal(argument, dtype=np.float32)
        for argument in (linear.shape, (*shape, prior.size))
    )
    uniforms = generator.random((*shape, 2), dtype=np.float32)
    randomness = _Randomness(
        *(jnp.asarray(array, jnp.float32) for array in (drawn, *normals, uniforms))
    )
    scales = (jnp.asarray(argument, jnp.float32) for argument in prior.typical[1::2])
    values, begun, ended, accepted = jax.device_get(
        prior.compiled(_run)(*scales, quadratic, randomness)
    )
    if not np.all(np.isfinite(values)) or (
        len(values) >= _FEWEST_CHAINS and not _settled(begun, ended, accepted)
    ):
        raise NoNoiseAwarePosterior("the Markov chains for it did not settle")
    return np.asarray(values, float)


def _settled(begun: np.ndarray, ended: np.ndarray, accepted: np.ndarray) -> bool:
    """Whether many chains accept proposals, and their medians stay, within what chance moves.

    :param begun: z when the last tuning was over, and ``ended`` at the end, float[s, n].
    """
    low, middle, high = np.quantile(ended, [0.05, 0.5, 0.95], axis=0)
    moved = np.abs(np.median(begun, axis=0) - middle)
    return bool(
        accepted.mean() > _ACCEPTED / 2
        and np.all(moved <= (high - low) * (0.05 + 2 / np.sqrt(len(ended))))
    )


def _run(
    prior: JointPrior, of_point: Array, of_z: Array, quadratics: _Quadratic, randomness: _Randomness
) -> tuple[Array, ...]:
    """Values at the end; z when the last tuning was over and at the end; and the share accepted
    after it, for each chain.

    :param of_point: typical scales of u under the prior, float[d]. :param of_z: of z, float[n].
    """
    # the quadratics grow from about the weight of the prior to their own
    typical = jnp.diagonal(quadratics.precision, axis1=1, axis2=2) * of_point**2
    growth = jnp.maximum(typical.max(1), 1.0) ** (-1 / _GROWING)

    def with_share(number: Array) -> _Quadratic:
        factor = growth ** jnp.maximum(_GROWING - number, 0)
        return jax.vmap(_Quadratic.times)(quadratics, factor)

    def started(drawn: Array, noise: Array, quadratic: _Quadratic) -> Array:
        return _improved(
            prior, drawn, quadratic._replace(slope=quadratic.slope + quadratic.root @ noise), of_z
        )

    z = jax.vmap(started)(randomness.drawn, randomness.noise, with_share(jnp.int32(0)))

    def stage(
        carry: tuple, inputs: tuple[Array, Array, Array]
    ) -> tuple[tuple, tuple[Array, Array]]:
        (z, log_length, centring, axes), (number, speeds, uniforms) = carry, inputs
        here = with_share(number)

        def tuned(z: Array, quadratic: _Quadratic) -> tuple[Array, Array, Array]:
            z, centring = prior.centred(z, jnp.diag(quadratic.precision))
            return z, centring, _axes(prior, z, centring, quadratic, of_z)[0]

        is_tuned = number < _TUNED
        new = jax.vmap(tuned)(_freed(prior, jax.vmap(prior.standard)(z, centring), here), here)
        z, centring, axes = jax.tree.map(
            lambda new, old: jnp.where(is_tuned, new, old), new, (z, centring, axes)
        )

        def evaluated(z: Array) -> tuple[Array, Array]:
            return jax.vmap(functools.partial(_evaluated, prior))(z, centring, here)

        def transition(carry: tuple, inputs: tuple[Array, Array, Array]) -> tuple[tuple, Array]:
            (state, log_length), (iteration, *random_inputs) = carry, inputs
            state, accepted = _moved(evaluated, state, axes, jnp.exp(log_length), *random_inputs)
            change = (jnp.mean(accepted) - _ACCEPTED) / jnp.sqrt(1.0 + iteration / 4)
            return (state, log_length + jnp.where(is_tuned, change, 0.0)), accepted

        first = _State(z, *evaluated(z)), log_length
        (state, log_length), accepted = jax.lax.scan(
            transition, first, (jnp.arange(_TRANSITIONS), speeds, uniforms)
        )
        return (state.z, log_length, centring, axes), (state.z, accepted.mean(0))

    first = z, jnp.log(0.5), jnp.zeros_like(z), jnp.zeros((*z.shape, z.shape[1]))
    over = (jnp.arange(_STAGES), randomness.speeds, randomness.uniforms)
    (z, _, centring, _), (path, accepted) = jax.lax.scan(stage, first, over)
    return jax.vmap(prior.values)(z, centring), path[_TUNED], z, accepted[_TUNED:].mean(0)


def _freed(prior: JointPrior, z: Array, quadratics: _Quadratic) -> Array:
    """z without centring of all chains, where those stuck far away are reset to the position of the
    best.
    """
    density, _ = jax.vmap(functools.partial(_evaluated, prior))(z, jnp.zeros_like(z), quadratics)
    ordered = jnp.sort(jnp.where(jnp.isnan(density), -jnp.inf, density))
    low, high = ordered[len(z) // 4], ordered[3 * len(z) // 4]
    stuck = ~(density >= low - _STUCK * (high - low))
    return jnp.where(stuck[:, None], z[jnp.nanargmax(density)], z)


def _evaluated(
    prior: JointPrior, z: Array, centring: Array, quadratic: _Quadratic
) -> tuple[Array, Array]:
    """Log density at z and its gradient."""

    def of_prior(z: Array) -> tuple[Array, Array]:
        return prior.log_density(z, centring), prior.point(z, centring)

    (log_density, point), pull_back = jax.vjp(of_prior, z)
    offset = point - quadratic.center
    pull = jnp.sum(quadratic.precision * offset, axis=1)
    (gradient,) = pull_back((jnp.ones(()), quadratic.slope - pull))
    return log_density + jnp.dot(quadratic.slope - pull / 2, offset), gradient


def _axes(
    prior: JointPrior, z: Array, centring: Array, quadratic: _Quadratic, scale: Array
) -> tuple[Array, Array]:
    """W with W W' about the covariance of z near ``z``, float[n, n], and du / dz."""
    slopes, standard = jax.jacfwd(
        lambda z: (prior.point(z, centring), prior.standard(z, centring))
    )(z)
    precision = slopes.T @ quadratic.precision @ slopes + standard.T @ (
        standard / scale[:, None] ** 2
    )
    inverse = jax.scipy.linalg.solve_triangular(
        jnp.linalg.cholesky(precision), jnp.eye(len(z)), lower=True
    )
    return inverse.T, slopes


def _improved(prior: JointPrior, drawn: Array, quadratic: _Quadratic, scale: Array) -> Array:
    """Where |(z - drawn) / scale|^2 / 2 less the quadratic is least, about: Gauss and Newton's
    steps, or parts of them.

    z and ``drawn`` are without centring.
    """
    centring = jnp.zeros_like(drawn)

    def misfit(z: Array) -> Array:
        offset = prior.point(z, centring) - quadratic.center
        total = (
            jnp.sum(((z - drawn) / scale) ** 2) / 2
            + offset @ quadratic.precision @ offset / 2
            - quadratic.slope @ offset
        )
        return jnp.where(jnp.isfinite(total), total, jnp.inf)

    def improve(z: Array, _: None) -> tuple[Array, None]:
        axes, slopes = _axes(prior, z, centring, quadratic, scale)
        pull = quadratic.slope - quadratic.precision @ (prior.point(z, centring) - quadratic.center)
        step = axes @ (axes.T @ (slopes.T @ pull + (drawn - z) / scale**2))
        tried = z + jnp.array([0.0, 0.05, 0.3, 1.0])[:, None] * step
        return tried[jnp.argmin(jax.vmap(misfit)(tried))], None

    return jax.lax.scan(improve, drawn, None, _IMPROVEMENTS)[0]


def _moved(
    evaluated: Callable, state: _State, axes: Array, length: Array, speeds: Array, uniforms: Array
) -> tuple[_State, Array]:
    """All chains after one proposal each, and the probabilities with which they were accepted.

    :param evaluated: z, float[s, n], to log densities and gradients. :param length: of a step,
        along the axes.
    """
    lengths = length * (_SHORTEST + (1 - _SHORTEST) * uniforms[:, :1])

    def along(gradient: Array) -> Array:
        # for small arrays faster than a product of matrices
        return jnp.sum(axes * gradient[:, :, None], axis=1)

    def step(_: Array, carry: tuple[_State, Array]) -> tuple[_State, Array]:
        at, speed = carry
        half = speed + lengths / 2 * along(at.gradient)
        z = at.z + lengths * jnp.sum(axes * half[:, None], axis=2)
        there = _State(z, *evaluated(z))
        return there, half + lengths / 2 * along(there.gradient)

    steps = jnp.clip(_LENGTH / length, _FEWEST, _MOST).astype(jnp.int32)
    there, final = jax.lax.fori_loop(0, steps, step, (state, speeds))
    gain = there.log_density - state.log_density + jnp.sum(speeds**2 - final**2, 1) / 2
    accepted = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0.0)), 0.0)
    goes = uniforms[:, 1] < accepted
    chosen = jax.tree.map(
        lambda new, old: jnp.where(goes.reshape(-1, *[1] * (new.ndim - 1)), new, old), there, state
    )
    return chosen, accepted
