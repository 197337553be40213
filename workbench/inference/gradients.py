"""Gradient estimators of DP-VI."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from workbench.inference.clipping import clipped_sum
from workbench.inference.records import Record, RecordModel
from workbench.privacy.mechanism import GaussianMechanism

__all__ = ["ESTIMATORS", "aligned"]

Params = dict[str, jax.Array]


def aligned(
    split: RecordModel,
    mechanism: GaussianMechanism,
    sampling_rate: float,
    params: Params,
    records: Record,
    mask: jax.Array,
    noise: jax.Array,
    key: jax.Array,
) -> Params:
    """The aligned DP-VI gradient of the negative full-data ELBO with respect to psi (DPVIm, arXiv 2210.15961, section 4).

    With u, l_i and the global loss of ``records.RecordModel``:
    G = sum_{i in S} clip_C(grad_u l_i(u)) + noise, and the gradient is J_u(psi)^T (G / q) + grad_psi [log q - log p].
    Only G touches records. G is divided by the public sampling rate q, never by the realised minibatch size, so an
    empty minibatch is a step on noise and prior alone.

    :param records: tuple of arrays with first axis M; ``mask``: bool[M].
    :param noise: float[size of u], standard deviation sigma C.
    :param key: base noise eta of the shared draw of the global latents.
    :return: gradient like ``params``, on the scale of the full data set (N records).
    """
    (shared, _), pull_back = jax.vjp(lambda psi: split.release_point(psi, key), params)
    total, _ = clipped_sum(lambda u, record: split.record_loss(u, record, key), shared, records, mask, mechanism.clip)
    released = mechanism.add(total, noise)
    estimate = jax.tree.map(lambda leaf: leaf / sampling_rate, released)
    (gradient,) = pull_back((estimate, jnp.ones(())))
    return gradient


ESTIMATORS: dict[str, Callable[..., Params]] = {"aligned": aligned}
