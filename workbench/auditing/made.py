"""A model whose per-record gradients an attacker chooses freely, for the parts "reachable" and "summation".

At a mean of zero, the gradient of a record's negative log-likelihood is the record with the other sign.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

__all__ = ["guide", "model", "rows_for"]

_STABILITY = 0.01  # what automatic clipping adds to a norm


def model(x: Any, num_records: int) -> None:
    """Normal observations with a common mean. :param x: float[M, d]."""
    mean = numpyro.sample("mean", dist.Normal(jnp.zeros(x.shape[-1]), 10.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=x)


def guide(x: Any, num_records: int) -> None:
    """All of its mass is at the location, which is zero."""
    location = numpyro.param("location", jnp.zeros(x.shape[-1]))
    numpyro.sample("mean", dist.Delta(location).to_event(1))


def rows_for(lengths: np.ndarray, width: int, clip: float, clipping: str) -> np.ndarray:
    """Records whose clipped gradients have these lengths, and the same entry in each coordinate, float32[n, width].

    :param lengths: in (-C, C), float64[n]; negative ones point the other way.
    """
    if clipping == "automatic":  # which multiplies by C / (length + _STABILITY)
        lengths = _STABILITY * lengths / (clip - np.abs(lengths))
    return np.repeat(-lengths[:, None] / math.sqrt(width), width, axis=1).astype(np.float32)
