"""Whether the last bits of what a step releases tell with which records it was made.

The attacker knows all records but one, the minibatch and every setting, computes the sum without
noise with that record and without it, and sees one noised sum, or the parameters after one step of
plain gradient descent: from zero, with a learning rate of 1 and eight records, they are the noised
sum over -8, to the last bit. For each of the two, the attacker counts the coordinates in which the
noise cannot have led from there to what is seen, guesses the one with fewer, and flips a coin if
the counts are equal. Noise in floating point has gaps (Mironov 2012, "On significance of the least
significant bits for differential privacy"), so this finds the record with any amount of noise. Here
there is so much noise that all else which is released reveals next to nothing.
"""

import math
from contextlib import nullcontext
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.special import bdtrc, ndtr

from tests.auditing import planted
from workbench.inference.state import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.key_use import throw_away
from workbench.noise.mechanism import GaussianMechanism
from workbench.noise.normals import upper_tail_quantile
from workbench.sampling import Minibatch

PRECISIONS = ("float32", "float64")
SIZE = 8  # records; a power of two, by which parameters are divided without rounding
SIGMA = 30.0  # about epsilon 0.1 for one sum at delta 1e-5
WIDTH = 1000  # coordinates
TRIALS = 40  # in each precision
FALSE_ALARM = 1e-6  # of all guesses in two precisions

_NEIGHBOURS = 6  # probabilities on each side that an attacker tries


class Seen(NamedTuple):
    """What a test looks at. ``deviation``: sigma C; ``spacing``: g, or 1 where there is no grid."""

    noised: np.ndarray
    deviation: float
    spacing: float


def _draws(probabilities):
    """Draws of ``normals.normal`` without their signs, as float64."""
    return np.asarray(
        jax.jit(upper_tail_quantile)(jnp.asarray(probabilities, jnp.float32)), np.float64
    )


def not_from_float32(seen, total):
    """Coordinates in which no float32 normal times sigma C leads from ``total`` to what is seen,
    bool[d].

    ``normals.normal`` inverts a probability, whose float32 neighbours are further apart than those
    of small draws. The attacker inverts the difference, and computes the draws of the probabilities
    around it. What compilers may round otherwise, an ulp of the draw, is left to the noise. In
    float64 the difference must also be a float32 number.
    """
    noise = seen.noised.astype(np.float64) - total
    size = np.abs(noise) / seen.deviation
    # the tail of ``normals`` is off by more than float32 resolves: one step towards what it inverts
    near = ndtr(-size)
    near += (_draws(near) - size) * np.exp(-(size**2) / 2) / math.sqrt(2 * math.pi)
    below = above = near.astype(np.float32)
    tried = [below]
    for _ in range(_NEIGHBOURS):
        below, above = (
            np.nextafter(below, np.float32(0)),
            np.minimum(np.nextafter(above, np.float32(1)), np.float32(0.5)),
        )
        tried += [below, above]
    apart = np.min(np.abs(_draws(np.stack(tried)) * seen.deviation - np.abs(noise)), axis=0)
    rounding = np.maximum(
        np.spacing(np.abs(seen.noised)), np.spacing(np.abs(total.astype(seen.noised.dtype)))
    )
    rounding = rounding.astype(np.float64)
    single = np.abs(noise).astype(np.float32)
    gap = np.abs(single.astype(np.float64) - np.abs(noise))
    return (apart > rounding + np.spacing(single)) | (gap > rounding)


def not_on_grid(seen, total):
    """Coordinates in which no whole multiple of g leads from ``total`` to what is seen, bool[d]."""
    apart = (seen.noised.astype(np.float64) - total) / seen.spacing
    rounding = (np.abs(seen.noised) + np.abs(total)) / seen.spacing * 2.0**-23
    return np.abs(apart - np.round(apart)) > 1e-3 + rounding


TESTS = {"float32 normals": not_from_float32, "multiples of the spacing": not_on_grid}


def _guessed(seen, totals, test, coin):
    """Whether the attacker says that the record is there."""
    counts = {
        present: int(np.count_nonzero(test(seen, total))) for present, total in totals.items()
    }
    return coin if counts[True] == counts[False] else counts[True] < counts[False]


def _rows(claimed, width):
    """Records with dense gradients of length C / 2, in directions of their own, so that the sum is
    short: small ulps.
    """
    directions = np.random.default_rng(0).normal(size=(SIZE, width))
    lengths = np.full(SIZE, claimed.clip / 2)
    entries = np.abs(
        planted.rows_for(lengths, 1, claimed.clip, claimed.clipping).astype(np.float64)
    )
    return entries * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def right_guesses(
    bug=None, precision="float32", trials=TRIALS, width=WIDTH, clip=1.0, clipping="flat", **settings
):
    """How many of ``trials`` guesses are right, by what the attacker sees and which of ``TESTS`` is
    used.
    """
    key = key_from_seed(PRECISIONS.index(precision))
    throw_away(key)
    claimed = GaussianMechanism(clip, SIGMA, clipping)
    coins = np.asarray(jax.random.bernoulli(jax.random.fold_in(key, 1), shape=(2, trials)))
    with jax.enable_x64(True) if precision == "float64" else nullcontext():
        rows = (_rows(claimed, width).astype(precision),)
        step, watched = planted.step_of(rows, key, claimed, bug, **settings)
        hyper = Hyperparameters.of(watched)
        start = step.init(key, hyper, step.model.initial)
        records = tuple(map(jnp.asarray, rows))

        def release(key, there, loud):
            noise = step.draw(key, start.step, hyper).noise
            minibatch = Minibatch(jnp.arange(SIZE, dtype=jnp.int32), (jnp.arange(SIZE) > 0) | there)
            draws = step.draw(start.key, start.step, hyper)._replace(
                minibatch=minibatch, noise=noise._replace(units=jnp.where(loud, noise.units, 0))
            )
            watched.begin(minibatch)
            parameters, _ = ravel_pytree(
                step.unconstrained(step.step(start, records, draws, hyper))
            )
            return {"sum": watched.noised_sum(), "parameters": parameters * -SIZE}, watched.total()[
                1
            ]

        compiled = jax.jit(release)
        quiet = {there: compiled(key, there, False)[0] for there in (True, False)}
        right = {}
        for number, (there, coin) in enumerate(coins.T.tolist()):
            loud, spacing = compiled(jax.random.fold_in(key, 2 + number), there, True)
            for what, noised in loud.items():
                totals = {
                    present: np.asarray(seen[what], np.float64) for present, seen in quiet.items()
                }
                # else there would be nothing to guess
                assert not np.array_equal(totals[True], totals[False])
                seen = Seen(
                    np.asarray(noised),
                    float(np.float32(claimed.standard_deviation)),
                    float(spacing),
                )
                for name, test in TESTS.items():
                    guess = _guessed(seen, totals, test, coin)
                    right[f"{what}, {name}"] = right.get(f"{what}, {name}", 0) + (guess == there)
        return right


def most_right(trials, sigma, false_alarm):
    """How many right guesses of ``trials`` a Gaussian mechanism gives, but for a probability of
    ``false_alarm``.

    Two normal distributions that are C apart, sigma C wide and equally likely can be distinguished
    with probability Phi(1 / (2 sigma)) at best.
    """
    chance = float(ndtr(1 / (2 * sigma)))
    return next(count for count in range(trials + 1) if bdtrc(count, trials, chance) <= false_alarm)


def tells(bug=None, precisions=PRECISIONS, trials=TRIALS, **settings):
    """Whether guesses from what the noise can reach are better than chance, in any precision."""
    most = most_right(trials, SIGMA, FALSE_ALARM / (len(PRECISIONS) * len(TESTS) * 2))
    guesses = {
        precision: right_guesses(bug, precision, trials, **settings) for precision in precisions
    }
    print(bug, guesses, "chance:", most)
    return max(right for counts in guesses.values() for right in counts.values()) > most
