"""The evidence lower bound and the log-likelihood of records that are not trained on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from workbench.record_model.model import Record, RecordModel

__all__ = ["elbo_per_record", "held_out", "predictive"]


def held_out(
    model: RecordModel, params: dict[str, Any], key: jax.Array, records: Record, num_draws: int
) -> tuple[jax.Array, jax.Array | None]:
    """(ELBO, log-likelihood) per record, in nats, scalars, over ``num_draws`` draws of the guide.

    The ELBO is mean_i E_q[log p(record_i | theta)] - E_q[log q(theta) - log p(theta)] / N, with its
    likelihood term taken on ``records``. The log-likelihood is mean_i log E_q[p(record_i | theta)],
    the log of the posterior predictive density; None where records have latents or base noise of
    their own, because their density is an integral then. Both are functions of ``records`` without
    noise: what they may be used for depends on whose records they are.

    :param params: unconstrained parameters. :param key: of a fast generator. :param records: arrays
        with first axis B.
    """

    def one(draw_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        shared, global_loss = model.release_point(params, draw_key)
        return -model.record_losses(shared, records, draw_key), -global_loss / model.num_records

    densities, global_terms = jax.vmap(one)(jax.random.split(key, num_draws))
    elbo = jnp.mean(densities) + jnp.mean(global_terms)
    if model.uses_base_noise:
        return elbo, None
    return elbo, jnp.mean(jax.nn.logsumexp(densities, axis=0)) - jnp.log(num_draws)


def predictive(model: RecordModel, draws: dict[str, Any], records: Record) -> jax.Array:
    """The log-likelihood of ``held_out``, over draws of the latents themselves, ``{site:
    array[draws, ...]}``.

    :param model: whose records have no latents of their own.
    """

    def one(shared: dict[str, Any]) -> jax.Array:
        return -model.record_losses(shared, records, jax.random.key(0))

    densities = jax.vmap(one)({name: draws[name] for name in model.shared})
    return jnp.mean(jax.nn.logsumexp(densities, axis=0)) - jnp.log(len(densities))


def elbo_per_record(
    model: RecordModel, params: dict[str, Any], key: jax.Array, records: Record, num_draws: int
) -> jax.Array:
    """The ELBO of ``held_out`` alone."""
    return held_out(model, params, key, records, num_draws)[0]
