"""DP-VI as init / draw / step: pure functions of state, records and keys, with a class that only closes over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.optim import _NumPyroOptim, optax_to_numpyro

from workbench import _validate
from workbench.inference.gradients import ESTIMATORS
from workbench.inference.records import Record, RecordModel, split
from workbench.privacy.mechanism import GaussianMechanism
from workbench.privacy.randomness import fast_key
from workbench.sampling.poisson import Minibatch, PoissonSampler

__all__ = ["DPVI", "DPVIState", "Draws", "elbo_per_record"]

# One key serves a whole run; each step's draws come from fold_in(fold_in(key, purpose), step). Chunking, stopping and
# resuming therefore change no draw.
_STARTING_VALUES, _MINIBATCH, _NOISE, _BASE_NOISE = range(4)


class DPVIState(NamedTuple):
    """What a run carries: optimiser state, steps taken (int32), and the run's secret key."""

    optim_state: Any
    step: jax.Array
    key: jax.Array


class Draws(NamedTuple):
    """The randomness of one step: which records, the mechanism's noise (float[size of u]), the guide's base noise."""

    minibatch: Minibatch
    noise: jax.Array
    base_noise: jax.Array


class DPVI:
    """Differentially private variational inference for a NumPyro model and guide.

    The surface follows ``numpyro.infer.SVI``: ``init``, ``update``, ``get_params``. ``update`` returns no loss, because the
    loss of a minibatch is an un-noised function of records.

    :param model: NumPyro model with one record plate (see ``workbench.inference.records``).
    :param guide: NumPyro guide.
    :param optim: a ``numpyro.optim`` optimiser or an optax gradient transformation.
    :param sampler: decides which records enter a step; its rate q is public.
    :param mechanism: clipping norm C and noise multiplier sigma.
    :param num_records: N, a declared public constant that scales the likelihood; the sampler's size by default.
    :param gradient: "aligned".
    :param static_kwargs: further keyword arguments of model and guide.
    """

    def __init__(
        self,
        model: Callable,
        guide: Callable,
        optim: Any,
        *,
        sampler: PoissonSampler,
        mechanism: GaussianMechanism,
        num_records: int | None = None,
        gradient: str = "aligned",
        **static_kwargs: Any,
    ) -> None:
        self.model = model
        self.guide = guide
        self.optim = optim if isinstance(optim, _NumPyroOptim) else optax_to_numpyro(optim)
        self.sampler = sampler
        self.mechanism = mechanism
        self.num_records = _validate.integer(
            "num_records", sampler.num_records if num_records is None else num_records, at_least=2
        )
        self.estimator = ESTIMATORS[_validate.choice("gradient", gradient, ESTIMATORS)]
        self.static_kwargs = static_kwargs
        self.records_split: RecordModel | None = None

    @property
    def split(self) -> RecordModel:
        """The model's global and per-record parts; there after ``init``."""
        if self.records_split is None:
            raise RuntimeError("call init(key, *records) first: it reads the model.")
        return self.records_split

    def init(self, key: jax.Array, *records: Any) -> DPVIState:
        """The state before the first step. Only shapes and types of ``records`` (first axis: records) are used.

        :param key: the run's key, from ``workbench.privacy.randomness.new_key`` or ``key_from_seed``.
        :raises PrivacyModelError: if the model cannot be fitted privately.
        """
        shapes = tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in records)
        self.records_split = split(
            self.model,
            self.guide,
            fast_key(jax.random.fold_in(key, _STARTING_VALUES)),
            shapes,
            num_records=self.num_records,
            static=self.static_kwargs,
        )
        start = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), self.split.initial)
        return DPVIState(self.optim.init(start), jnp.zeros((), jnp.int32), key)

    def draw(self, key: jax.Array, step: jax.Array) -> Draws:
        """The randomness of step number ``step`` (int32 scalar) of the run with ``key``."""

        # one vmapped fold_in for all purposes: each ChaCha20 call site costs .2 s of compilation
        purposes = jnp.array([_MINIBATCH, _NOISE, _BASE_NOISE], jnp.uint32)
        streams = jax.vmap(jax.random.fold_in, (None, 0))(key, purposes)
        minibatch_key, noise_key, base_noise_key = jax.vmap(jax.random.fold_in, (0, None))(streams, step)
        return Draws(
            minibatch=self.sampler.draw(minibatch_key),
            noise=self.mechanism.noise(noise_key, self.split.shared_size),
            base_noise=fast_key(base_noise_key),
        )

    def step(self, state: DPVIState, records: Record, draws: Draws) -> DPVIState:
        """One step of the optimiser on the noised gradient divided by N."""
        params = self.optim.get_params(state.optim_state)
        chosen = tuple(array[draws.minibatch.indices] for array in records)
        gradient = self.estimator(
            self.split,
            self.mechanism,
            self.sampler.sampling_rate,
            params,
            chosen,
            draws.minibatch.mask,
            draws.noise,
            draws.base_noise,
        )
        scaled = jax.tree.map(lambda leaf: leaf / self.num_records, gradient)
        # optax's wrapper asks for the loss, which must not leave the core: a rule that really uses it sees NaN and fails
        updated = self.optim.update(scaled, state.optim_state, value=jnp.nan)
        return DPVIState(updated, state.step + 1, state.key)

    def update(self, state: DPVIState, *records: jax.Array) -> tuple[DPVIState, None]:
        """Draw and take one step, as ``numpyro.infer.SVI.update``; the place of the loss is None."""
        return self.step(state, records, self.draw(state.key, state.step)), None

    def get_params(self, state: DPVIState) -> dict[str, jax.Array]:
        """The guide's and model's parameters, constrained to their declared supports."""
        return self.split.constrain(self.optim.get_params(state.optim_state))


def elbo_per_record(
    split: RecordModel, params: dict[str, jax.Array], key: jax.Array, records: Record, num_draws: int
) -> jax.Array:
    """ELBO per record, in nats, with its likelihood term taken on ``records``, scalar.

    mean_i E_q[log p(record_i | theta)] - E_q[log q(theta) - log p(theta)] / N, over ``num_draws`` draws.
    It is a function of ``records`` without noise: what it may be used for depends on whose records they are.

    :param params: unconstrained parameters.
    """

    def one(draw_key: jax.Array) -> jax.Array:
        shared, global_loss = split.release_point(params, draw_key)
        losses = jax.vmap(lambda record: split.record_loss(shared, record, draw_key))(records)
        return -jnp.mean(losses) - global_loss / split.num_records

    return jnp.mean(jax.vmap(one)(jax.random.split(key, num_draws)))
