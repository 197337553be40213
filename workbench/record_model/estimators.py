"""Gradient estimators of DP-VI.

An estimator sees records through one function only, ``release``: the noised sum of clipped
per-record gradients of a loss that it names. All else it computes without records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from workbench.record_model.base_noise import Key
from workbench.record_model.model import Record, RecordModel

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["ESTIMATORS", "Estimator", "RecordLoss", "Release", "aligned", "vanilla"]

Params = dict[str, Any]
RecordLoss = Callable[[Any, tuple[Record, Key]], jax.Array]

# release(loss, u) = sum_{i in S} clip_C(grad_u loss(u, (record_i, eta_i))) + noise, a pytree like
# u; eta_i is a key
Release = Callable[[RecordLoss, Any], Any]


def aligned(
    model: RecordModel, params: Params, key: jax.Array, sampling_rate: float, release: Release
) -> Params:
    """The aligned DP-VI gradient of the negative full-data ELBO with respect to psi (DPVIm, arXiv
    2210.15961, section 4).

    With u, l_i and the global loss of ``record_model.RecordModel``:
    G = sum_{i in S} clip_C(grad_u l_i(u)) + noise, and the gradient is J_u(psi)^T (G / q) +
    grad_psi [log q - log p]. Only G touches records. G is divided by the public sampling rate q,
    never by the realised minibatch size, so an empty minibatch is a step on noise and prior alone.

    :param key: base noise eta of the shared draw of the global latents.
    :param release: G as a function of loss and u.
    :return: gradient like ``params``, on the scale of the full data set (N records).
    """
    (shared, _), pull_back = jax.vjp(lambda psi: model.release_point(psi, key), params)
    released = release(lambda u, drawn: model.unit_loss(u, *drawn), shared)
    (gradient,) = pull_back((_divided(released, sampling_rate, shared), jnp.ones(())))
    return gradient


def vanilla(
    model: RecordModel, params: Params, key: jax.Array, sampling_rate: float, release: Release
) -> Params:
    """The published DP-VI gradient (Jälkö, Dikmen and Honkela 2017, algorithm 1; d3p), kept for
    comparison.

    Every record's gradient is that of its share of the negative ELBO with respect to psi, with its
    own draw of all latents: g_i = grad_psi [l_i(u(psi, eta_i)) + (log q - log p) / N], and the
    gradient is (sum_{i in S} clip_C(g_i) + noise) / q. Prior and entropy are clipped and noised
    too, and noise has psi's dimension.

    The arguments and the result are those of ``aligned``; ``key`` is not used.
    """

    def loss(psi: Params, drawn: tuple[Record, Key]) -> jax.Array:
        record, draw_key = drawn
        shared, global_loss = model.release_point(psi, draw_key)
        return model.unit_loss(shared, record, draw_key) + global_loss / model.num_records

    return _divided(release(loss, params), sampling_rate, params)


def _divided(released: PyTree, sampling_rate: float, like: PyTree) -> Any:
    """G / q, in the types of ``like``, which may be of half precision."""
    return jax.tree.map(
        lambda leaf, template: (leaf / sampling_rate).astype(template.dtype), released, like
    )


class Estimator(NamedTuple):
    """An estimator with what must be known before it runs.

    :param gradient: the function.
    :param noise_size: coordinates that its release has, from the model.
    :param needs_own_keys: whether each record's loss needs its own key.
    :param releases_likelihood: whether the release is the gradient of the log-likelihood in u.
    """

    gradient: Callable[..., Params]
    noise_size: Callable[[RecordModel], int]
    needs_own_keys: Callable[[RecordModel], bool]
    releases_likelihood: bool


ESTIMATORS = {
    "aligned": Estimator(
        aligned,
        lambda model: model.shared_size,
        lambda model: model.uses_base_noise,
        True,
    ),
    "vanilla": Estimator(
        vanilla,
        lambda model: sum(leaf.size for leaf in jax.tree.leaves(model.initial)),
        lambda model: True,
        False,
    ),
}
