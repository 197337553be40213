"""What goes into a step of DP-VI and comes out of it: state, randomness and the numbers that fits
may differ in.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench.inference import adaptive_clip, running_moments
from workbench.noise.chacha20 import fast_key
from workbench.noise.mechanism import GaussianMechanism, Noise
from workbench.sampling.minibatch import Minibatch

__all__ = [
    "DEFAULT_PERFORMANCE",
    "NO_OPTIONS",
    "DPVIState",
    "Draws",
    "Hyperparameters",
    "Performance",
    "Purpose",
    "StepOptions",
    "fast_child",
]


class Purpose(enum.IntEnum):
    """What a run's key is used for, besides its steps: each has its own child, fold_in(key,
    purpose).

    A step's draws come from the key's stream of that step's number. So chunks, stops and resumed
    runs draw the same.
    """

    STARTING_VALUES = 0
    LARGE_NOISE = 1
    LOSS = 2
    METRICS = 101
    POSTERIOR = 102
    INTERVALS = 103
    LOOK = 104
    STEPS_AFTER_LOOK = 105
    UNDECLARED = 106
    RUNS = 107
    SCORES = 108
    RANKS = 109
    PAIRS = 110
    PRODUCTS = 111


class DPVIState(NamedTuple):
    """What a run carries, a pytree. Saved (``inference.checkpoint``) and restored, it continues bit
    for bit.

    >>> from numpyro.optim import Adam
    >>> data, logistic = wb.data.load("breast_cancer"), wb.models.get("logistic")
    >>> target = {"epsilon": 1.0, "iterations": 100, "sampling_rate": 0.1}
    >>> dpvi = wb.inference.DPVI(logistic.model, logistic.guide, Adam(0.05), **target)
    >>> state = dpvi.init(wb.noise.new_key(), *data.train)
    >>> int(state.step), sorted(dpvi.get_params(state))
    (0, ['intercept_loc', 'intercept_scale', 'weights_loc', 'weights_scale'])

    :param optim_state: of the optimiser.
    :param step: steps taken, int32.
    :param key: the run's secret key.
    :param average: mean of the unconstrained iterates from ``average_from`` on, before that the
        last iterate; None where none is kept.
    :param moments: of the release from ``moments_from`` on; None where none are kept.
    """

    optim_state: Any
    step: jax.Array
    key: jax.Array
    average: Any = None
    moments: running_moments.Moments | None = None


class Draws(NamedTuple):
    """The randomness of one step.

    :param minibatch: which records.
    :param noise: the mechanism's, with a draw for each coordinate of u and each range of norms;
        None without noise.
    :param base_noise: the guide's.
    """

    minibatch: Minibatch
    noise: Noise | None
    base_noise: jax.Array


class Hyperparameters(NamedTuple):
    """What fits that share a compiled step may differ in, besides records and keys.

    :param clip: C, float32 scalar.
    :param standard_deviation: of the noise in a coordinate, sigma C, float32 scalar.
    :param learning_rate: float32 scalar; None where the optimiser has its own.
    :param average_from: step from which on iterates are averaged, int32 scalar; None where no
        average is kept.
    :param moments_from: step from which on moments of the release are kept, int32 scalar; None
        where none are kept.
    :param constants: arrays that the model takes by keyword, instead of those it was split with.
    :param adaptive: how C is adapted, which begins at ``clip``; None for one C. It takes counts of
        norms and moments.
    :param dither: by how much u is moved, up or down by chance, in the steps from ``moments_from``
        until ``average_from``, float32[d] (``noise_aware.dither``); None for not at all, or where
        one of these is None.
    """

    clip: Any
    standard_deviation: Any
    learning_rate: Any = None
    average_from: Any = None
    moments_from: Any = None
    constants: Any = {}  # noqa: RUF012 - a NamedTuple's default, which nothing writes to
    adaptive: adaptive_clip.Adaptive | None = None
    dither: Any = None

    @property
    def noise_multiplier(self) -> jax.Array:
        """sigma, also of a step whose C changes: sigma C_t is never formed, which
        could underflow.
        """
        return self.standard_deviation / self.clip

    @classmethod
    def of(
        cls,
        mechanism: GaussianMechanism,
        learning_rate: float | None = None,
        average_from: int | None = None,
        moments_from: int | None = None,
    ) -> Hyperparameters:
        """Those of one fit, as arrays."""
        return cls(
            jnp.float32(mechanism.clip),
            jnp.float32(mechanism.standard_deviation),
            None if learning_rate is None else jnp.float32(learning_rate),
            None if average_from is None else jnp.int32(average_from),
            None if moments_from is None else jnp.int32(moments_from),
        )


class Performance(NamedTuple):
    """How clipped sums are computed: settings of speed and memory, with the same result.

    :param strategy: of ``clipping.clipped_sum``.
    :param rules: of book-keeping, ``{leaf: rule}``.
    :param microbatch_size: records held at once; None for what the sampler usually draws.
    """

    strategy: str = "auto"
    rules: Mapping[str, str] | None = None
    microbatch_size: int | None = None


DEFAULT_PERFORMANCE = Performance()


class StepOptions(NamedTuple):
    """What a step releases and keeps besides the noised sum, and where C comes from.

    :param clip_schedule: ``clip_schedule(step) -> C_t``, used instead of C, with noise of sigma
        C_t; None for C.
    :param counts_norms: whether steps also release how many gradients have norms of which range
        (``norm_counts``).
    :param keeps_moments: whether moments of u and G are kept, where ``moments_from`` is given: 2
        d^2 numbers.
    :param reach: how far each coordinate of u may be dithered, float[d], for
        ``noise_aware.dither``; None for not at all.
    """

    clip_schedule: Callable[[jax.Array], jax.Array] | None = None
    counts_norms: bool = False
    keeps_moments: bool = True
    reach: np.ndarray | None = None


NO_OPTIONS = StepOptions()


@jax.jit
def fast_child(key: jax.Array, purpose: Purpose) -> jax.Array:
    """A key of a fast generator from a run's key, for draws that protect nobody. One program for
    all purposes.
    """
    return fast_key(jax.random.fold_in(key, purpose))
