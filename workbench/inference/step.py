"""One step of differentially private variational inference.

A step draws a minibatch, clips the gradient of each of its records to norm C, adds the gradients
up, adds Gaussian noise of standard deviation sigma C, and hands the result to an optimiser.
``PrivateStep`` holds what is fixed when a step is compiled. Records, keys and ``Hyperparameters``
are arguments, so one compiled step serves many fits. Apart from the check that no key begins two
runs and no step is taken twice, all methods are pure functions.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench._limits import LARGEST_CLIP, SMALLEST_CLIP
from workbench.clipping import kernel_factors
from workbench.inference import _release, adaptive_clip, norm_counts, running_moments
from workbench.inference._optimizers import Optimizer, averaged
from workbench.inference._release import Release
from workbench.inference.sources import ON_ONE_DEVICE, RecordSource
from workbench.inference.state import (
    DEFAULT_PERFORMANCE,
    NO_OPTIONS,
    DPVIState,
    Draws,
    Hyperparameters,
    Performance,
    Purpose,
    StepOptions,
    fast_child,
)
from workbench.inference.strata import clipped_sum_in_parts
from workbench.noise import key_use
from workbench.noise.chacha20 import fast_key, require_secure, stream
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.base_noise import record_keys, signs
from workbench.record_model.estimators import Estimator, RecordLoss
from workbench.record_model.model import Record, RecordModel
from workbench.sampling.minibatch import Minibatch, Sampler

__all__ = ["PrivateStep"]

_LARGE = 2**16  # coordinates from which noise has a key of its own and is drawn in chunks


@dataclass(frozen=True, eq=False)
class PrivateStep:
    """A step of DP-VI as functions of state, records and randomness.

    >>> prepared = wb.prepare("logistic", "breast_cancer", epsilon=1.0)
    >>> prepared.step.noise_size
    31

    :param model: model and guide, split by records.
    :param sampler: which records enter a step.
    :param mechanism: how clipping is done, and the noise. C and sigma C themselves are taken from
        ``Hyperparameters``.
    :param estimator: of the gradient.
    :param optimizer: over the model's parameters.
    :param performance: speed and memory only.
    :param source: where records are, and how rows make privacy units, whose gradients are clipped.
    :param options: what the step releases and keeps besides the noised sum.
    """

    model: RecordModel
    sampler: Sampler
    mechanism: GaussianMechanism
    estimator: Estimator
    optimizer: Optimizer
    performance: Performance = DEFAULT_PERFORMANCE
    source: RecordSource = ON_ONE_DEVICE
    options: StepOptions = NO_OPTIONS

    def with_options(self, **changes: Any) -> PrivateStep:
        """This step with other ``options``."""
        return dataclasses.replace(self, options=self.options._replace(**changes))

    @property
    def noise_size(self) -> int:
        """d, the number of coordinates of the noised sum."""
        return self.estimator.noise_size(self.model)

    @property
    def noised_coordinates(self) -> int:
        """How many coordinates get noise in a step: d, and one for each range of norms that is
        counted.
        """
        return self.noise_size + (norm_counts.RANGES if self.options.counts_norms else 0)

    @property
    def share_of_sum(self) -> float:
        """By what the noise multiplier is divided for the sum, in (0, 1]: what counting norms
        leaves to it.
        """
        return norm_counts.OF_SUM if self.options.counts_norms else 1.0

    @property
    def is_centred(self) -> bool:
        """Whether records' gradients are shifted so that clipping leaves their mean under the model
        0 (``RecordModel.clipping_correction``).
        """
        return (
            self.estimator.releases_likelihood
            and self.mechanism.clipping == "flat"
            and self.model.clipping_correction is not None
        )

    def init(
        self, key: jax.Array, hyper: Hyperparameters, params: dict[str, Any] | None = None
    ) -> DPVIState:
        """The state before the first step of the run with ``key``; it depends on no record.

        :param params: unconstrained starting values; drawn with ``key`` by default. (Automatic
            guides draw theirs once, when the model is split.)
        :raises ArgumentError: naming ``key``, if a run began with it in this process.
        :raises TypeError: if it is no key of ``workbench.noise``.
        """
        require_secure(key)
        self.require_noise(hyper)
        if hyper.adaptive is not None and (
            not self.options.counts_norms or hyper.moments_from is None
        ):
            raise _validate.ArgumentError(
                "hyper",
                "adaptive",
                "adapting C requires a step with counts_norms=True and moments_from set.",
            )
        if params is None:
            params = self.model.starting_values(
                fast_child(key, Purpose.STARTING_VALUES), hyper.constants
            )
        optim_state, start = jax.jit(self._start)(params)
        key_use.begin_run(key)  # last: a run that was refused above may begin with this key later
        average = None if hyper.average_from is None else start
        moments = None
        if hyper.moments_from is not None:
            moment_size = self.noise_size if self.options.keeps_moments else None
            moments = running_moments.empty(
                moment_size, self.options.counts_norms, hyper.adaptive is not None
            )
        return DPVIState(optim_state, jnp.int32(0), key, average, moments)

    def _start(self, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        copies = [jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), params) for _ in range(2)]
        return self.optimizer.init(copies[0]), kernel_factors.single(copies[1])

    def draw(
        self,
        key: jax.Array,
        number: jax.Array,
        hyper: Hyperparameters,
        minibatch: Minibatch | None = None,
    ) -> Draws:
        """The randomness of step ``number`` (int32 scalar, from 0) of the run with ``key``.

        :param minibatch: of that step, if the sampler has prepared its epoch; the same is drawn if
            it is left out.
        """
        # one stream for all: each call of ChaCha20 costs 0.2 s of compilation and some microseconds
        coordinates = self.noised_coordinates
        is_large = coordinates >= _LARGE
        sizes = (self.sampler.words, 0 if is_large else self.mechanism.words_for(coordinates), 2)
        words = stream(key, number, sum(sizes))
        for_minibatch, for_noise, for_base_noise = jnp.split(words, np.cumsum(sizes[:-1]))
        level = self.mechanism.level(self.sampler.capacity, hyper.noise_multiplier)
        if is_large:
            noise_key = jax.random.fold_in(jax.random.fold_in(key, Purpose.LARGE_NOISE), number)
            noise = self.mechanism.noise(noise_key, coordinates, level)
        else:
            noise = self.mechanism.noise_from(for_noise, coordinates, level)
        if minibatch is None:
            minibatch = self.sampler.draw_from(for_minibatch, key, number)
        return Draws(minibatch, noise, fast_key(for_base_noise))

    def step(
        self, state: DPVIState, records: Record, draws: Draws, hyper: Hyperparameters
    ) -> DPVIState:
        """One step of the optimiser on the noised gradient divided by N.

        :param records: all N records, of which the step reads its minibatch; with ``units`` their
            rows, first rows and numbers of rows.
        :param draws: of ``draw`` for this very step and no other: draws that are used twice cancel
            between two releases.
        :raises ArgumentError: as ``require_records`` does, or naming ``state``, if this process has
            taken that step before; the latter not under jit, which cannot see it.
        """
        records = self._checked(state, records)

        def release(loss: RecordLoss, u: Any) -> Release:
            return self._release_at(loss, u, state, records, draws, hyper)

        return self._advanced(state, draws, hyper, release)

    def advanced(
        self,
        state: DPVIState,
        base_noise: jax.Array,
        total: Any,
        counts: jax.Array | None,
        hyper: Hyperparameters,
    ) -> DPVIState:
        """One step of the optimiser on a noised sum from elsewhere.

        :param base_noise: of the ``draws`` that ``point`` had.
        :param total: the noised sum of clipped gradients at that point, a pytree like it.
        :param counts: noised counts of their norms, as of ``Release``.
        """
        drawn: Any = None  # where the sum comes from
        draws = Draws(drawn, None, base_noise)
        return self._advanced(state, draws, hyper, lambda loss, u: Release(u, total, counts))

    def _advanced(
        self,
        state: DPVIState,
        draws: Draws,
        hyper: Hyperparameters,
        release: Callable[[RecordLoss, Any], Release],
    ) -> DPVIState:
        """One step of the optimiser on what ``release(loss, u)`` returns."""
        model = self._model_with(hyper)
        released: list[Release] = []

        def noised_sum(loss: RecordLoss, u: Any) -> Any:
            released.append(release(loss, self.dithered(u, state, draws, hyper)))
            return jax.tree.map(
                lambda leaf, like: leaf.astype(kernel_factors.single(like).dtype),
                released[0].total,
                u,
            )

        # the estimator takes the noised sum, divides it by q, and adds what depends on no record:
        # prior and entropy
        params = self.optimizer.get_params(state.optim_state)
        gradient = self.estimator.gradient(
            model, params, draws.base_noise, self.sampler.sampling_rate, noised_sum
        )
        mean = jax.tree.map(lambda leaf: leaf / model.num_records, gradient)
        optim_state = self.optimizer.update(mean, state.optim_state, hyper.learning_rate)
        average = self._averaged(state, optim_state, hyper)
        moments = self._moments(state, released[0], hyper)
        if moments is not None and moments.pull is not None:
            moments = self._with_pull(moments, model, params, mean, draws, state, hyper)
        return DPVIState(optim_state, state.step + 1, state.key, average, moments)

    def point(self, state: DPVIState, draws: Draws, hyper: Hyperparameters) -> Any:
        """u, where ``step`` takes the records' gradients. It reads no record."""
        return self._visited(state, draws, hyper, lambda loss, u: u)

    def release(
        self, u: Any, state: DPVIState, records: Record, draws: Draws, hyper: Hyperparameters
    ) -> Release:
        """What a step at ``u`` releases, for an optimiser elsewhere (``point``, ``advanced``). The
        other arguments and errors are those of ``step``.

        :param u: a pytree as ``point`` returns; whoever chooses it has no influence on the noise.
        """
        records = self._checked(state, records)
        return self._visited(
            state,
            draws,
            hyper,
            lambda loss, _: self._release_at(loss, u, state, records, draws, hyper),
        )

    def _visited(
        self,
        state: DPVIState,
        draws: Draws,
        hyper: Hyperparameters,
        visit: Callable[[RecordLoss, Any], Any],
    ) -> Any:
        """What ``visit(loss, u)`` returns where a step takes gradients of ``loss``."""
        visited: list[Any] = []

        def noised_sum(loss: RecordLoss, u: Any) -> Any:
            visited.append(visit(loss, self.dithered(u, state, draws, hyper)))
            return jax.tree.map(jnp.zeros_like, u)

        self.estimator.gradient(
            self._model_with(hyper),
            self.optimizer.get_params(state.optim_state),
            draws.base_noise,
            self.sampler.sampling_rate,
            noised_sum,
        )
        return visited[0]

    def dithered(self, u: Any, state: DPVIState, draws: Draws, hyper: Hyperparameters) -> Any:
        """``u`` moved by plus or minus ``hyper.dither`` in each coordinate, between the starts of
        moments and average.

        At points farther apart the noise leaves more of the likelihood's curvature visible
        (``noise_aware``). The parameters that a run ends with follow from steps that are not
        dithered, as they were before.
        """
        if hyper.dither is None:
            return u
        flat, restored = jax.flatten_util.ravel_pytree(u)
        is_dithered = (state.step >= hyper.moments_from) & (state.step < hyper.average_from)
        size = jnp.where(is_dithered, hyper.dither, 0.0)
        return restored((flat + size * signs(draws.base_noise, flat.size)).astype(flat.dtype))

    def _model_with(self, hyper: Hyperparameters) -> RecordModel:
        """The model with the constants of ``hyper``."""
        return self.model.with_static(hyper.constants) if hyper.constants else self.model

    def _averaged(self, state: DPVIState, optim_state: Any, hyper: Hyperparameters) -> Any:
        """The mean of the iterates of ``state`` with the one of ``optim_state``; None where none is
        kept.
        """
        if hyper.average_from is None:
            return None
        return averaged(
            state.average,
            self.optimizer.get_params(optim_state),
            state.step + 1 - hyper.average_from,
        )

    def _release_at(
        self,
        loss: RecordLoss,
        u: Any,
        state: DPVIState,
        records: Record,
        draws: Draws,
        hyper: Hyperparameters,
    ) -> Release:
        """The sum of the minibatch's clipped gradients at ``u``, plus noise."""
        clipped, sigma, of_norms = self._clipped_sums(loss, state, draws, hyper)
        total, counts = self.source.sum_of(
            clipped, self.sampler.public_size, u, records, draws.minibatch
        )
        return Release(
            u,
            *_release.noised(
                self.mechanism, self.noise_size, total, counts, draws.noise, sigma / of_norms
            ),
        )

    def _clipped_sums(
        self, loss: RecordLoss, state: DPVIState, draws: Draws, hyper: Hyperparameters
    ) -> tuple[Callable[..., tuple[Any, Any]], jax.Array, Any]:
        """(how clipped gradients are added up, as ``Shards.sum_of`` takes it; sigma, and by what it
        is divided for counts).

        Only here records meet parameters.
        """
        clip, noise, sigma = self.clip(state, hyper), draws.noise, hyper.noise_multiplier
        of_sum, of_norms = self.shares(state.step, hyper)
        spacing_for = count = None
        if noise is not None:
            smallest = self.share_of_sum if hyper.adaptive is None else adaptive_clip.SMALLEST_SHARE
            room = self.mechanism, self.sampler.capacity, smallest
            spacing_for = functools.partial(
                _release.spacing, *room, sigma / of_sum, clip, noise.level
            )
            count = (
                functools.partial(norm_counts.counts_of, clip=clip)
                if self.options.counts_norms
                else None
            )

        model = self._model_with(hyper)

        def of_record(u: Any, drawn: Any) -> jax.Array:
            record, position = drawn
            record_key = (
                draws.base_noise if position is None else record_keys(draws.base_noise, position)
            )
            value = loss(u, (record, record_key))
            return value + model.correction(u, record, clip, is_centred=self.is_centred)

        strategy, rules, microbatch_size = self.performance
        size = self.source.usual_size(self.sampler) if microbatch_size is None else microbatch_size
        ascending = self.sampler.ascends
        own_keys = self.estimator.needs_own_keys(self.model)

        def clipped(
            u: Any, records: Record, minibatch: Minibatch, at: jax.Array | None = None
        ) -> tuple[Any, Any]:
            strata = self.source.strata(
                minibatch, records, at, size, needs_place=own_keys, ascending=ascending
            )
            clipping = self.mechanism.clipping
            return clipped_sum_in_parts(
                of_record, u, strata, clip, strategy, clipping, rules, spacing_for, count
            )

        return clipped, sigma, of_norms

    def _checked(self, state: DPVIState, records: Record) -> Record:
        """``records`` as JAX arrays. :raises ArgumentError: as ``step`` does."""
        self.require_records(records)
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in (state.key, state.step)):
            key_use.draw_steps(state.key, int(state.step), int(state.step) + 1)
        return tuple(map(jnp.asarray, records))  # NumPy's cannot be indexed by what is traced

    def clip(self, state: DPVIState, hyper: Hyperparameters) -> jax.Array:
        """C of the step that follows ``state``."""
        if hyper.adaptive is not None and state.moments is not None:
            return adaptive_clip.clip_of(state.moments.rung, hyper.clip, hyper.adaptive)
        if self.options.clip_schedule is None:
            return hyper.clip
        clip = jnp.asarray(self.options.clip_schedule(state.step), jnp.float32)
        if clip.shape != ():  # several would clip by record and scale the noise by coordinate
            raise _validate.ArgumentError(
                "clip_schedule", clip.shape, "must return one number, C_t."
            )
        return jnp.clip(clip, SMALLEST_CLIP, LARGEST_CLIP)

    def shares(self, number: jax.Array, hyper: Hyperparameters) -> tuple[Any, Any]:
        """By what the noise multiplier is divided for sum and counts of step ``number``."""
        if hyper.adaptive is not None:
            return adaptive_clip.shares(number, hyper.adaptive)
        return self.share_of_sum, norm_counts.OF_NORMS

    def _with_pull(
        self,
        moments: running_moments.Moments,
        model: RecordModel,
        params: Any,
        gradient: Any,
        draws: Draws,
        state: DPVIState,
        hyper: Hyperparameters,
    ) -> running_moments.Moments:
        """``moments`` with the direction in which ``gradient``, that of the parameters, moves u
        (``convergence``).
        """

        def point(params: Any) -> Any:
            return model.release_point(params, draws.base_noise)[0]

        _, direction = jax.jvp(
            point, (kernel_factors.single(params),), (kernel_factors.single(gradient),)
        )
        first = (
            hyper.moments_from
            if hyper.average_from is None
            else jnp.maximum(hyper.moments_from, hyper.average_from)
        )
        return running_moments.with_pull(moments, direction, state.step >= first)

    def _moments(
        self, state: DPVIState, release: Release, hyper: Hyperparameters
    ) -> running_moments.Moments | None:
        """Those of the state that follows ``state``; None where none are kept."""
        moments = state.moments
        if hyper.moments_from is None or moments is None:
            return None
        if hyper.adaptive is not None and release.counts is not None:
            expected = self.sampler.sampling_rate * self.model.num_records
            facts = hyper.adaptive, hyper.clip, hyper.noise_multiplier, self.noise_size, expected
            rung, warm_up = adaptive_clip.with_counts(
                moments.rung, moments.warm_up, release.counts, state.step, *facts
            )
            moments = moments._replace(rung=rung, warm_up=warm_up)
        gradient = jax.tree.map(lambda leaf: -leaf / self.sampler.sampling_rate, release.total)
        counts = state.step >= hyper.moments_from
        return running_moments.with_release(
            moments, release.point, gradient, release.counts, counts
        )

    def unconstrained(self, state: DPVIState, averaged: bool = False) -> dict[str, Any]:
        """The parameters as the optimiser sees them: the last iterate, or the mean of the iterates
        once there is one.

        :raises ArgumentError: naming ``averaged``, if no average was kept.
        """
        if not _validate.flag("averaged", averaged):
            return self.optimizer.get_params(state.optim_state)
        if state.average is None:
            raise _validate.ArgumentError(
                "averaged", averaged, "no average was kept: give average_from."
            )
        return self.optimizer.as_parameters(state.average)

    def get_params(self, state: DPVIState, averaged: bool = False) -> dict[str, Any]:
        """The guide's and model's parameters, constrained to their declared supports.

        :param averaged: the mean of the unconstrained iterates since ``average_from`` instead of
            the last one. Both are functions of the noised gradients, so the guarantee covers both.
        """
        return self.model.constrain(self.unconstrained(state, averaged))

    def require_noise(self, hyper: Hyperparameters) -> None:
        """:raises ArgumentError: naming ``hyper``, if it has no noise and the mechanism has some,
            or the other way round.

        Such a step would be without noise, for a fit that was promised some. Under jit nothing is
        checked.
        """
        deviation = hyper.standard_deviation
        if isinstance(deviation, jax.core.Tracer):
            return
        expected = (
            "a standard deviation above 0" if self.mechanism.noise_multiplier > 0 else "no noise"
        )
        if np.any((np.asarray(deviation) > 0) != (self.mechanism.noise_multiplier > 0)):
            raise _validate.ArgumentError(
                "hyper",
                f"standard_deviation {deviation}",
                f"does not match this step, whose mechanism has {expected}.",
            )

    def require_records(self, records: tuple[Any, ...]) -> None:
        """:raises ArgumentError: naming ``records``, unless number, shapes and types are those the
            step was made for.

        Only shapes count, so a step asks while it is traced. JAX reads beyond the end of an array
        as its last entry: of fewer records the last one would enter many times.
        """
        rows, _ = self.source.parted(records)
        self.model.require_like(rows)
        size, planned = self.source.num_units(records, self.sampler), self.sampler.num_records
        if size != planned:
            raise _validate.ArgumentError(
                "records",
                size,
                f"init was given {planned} records; pass the same whole arrays, not a minibatch "
                "(each step draws its own).",
            )
        for array, expected in zip(rows, self.model.blank_record, strict=True):
            if jax.dtypes.canonicalize_dtype(array.dtype) != expected.dtype:
                raise _validate.ArgumentError(
                    "records", str(array.dtype), f"init was given {expected.dtype} in this array."
                )
