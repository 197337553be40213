"""Link functions as logarithms of means and probabilities, with finite values and gradients in
float32.

A fit's first steps, and every private step, may put the predictor anywhere. So a mean that must be
positive stays positive: exponentials go on as straight lines where float32 would overflow, and the
identity and inverse links bend below a small floor.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

__all__ = [
    "log_cdf",
    "log_interval",
    "log_mean",
    "log_of_rest",
    "log_positive",
    "log_probabilities",
    "log_survival",
    "safe_exp",
]

Array = jax.Array

# exponents; exp(60) times the largest declared number, and its square root's square, fit into
# float32
_LARGEST = 60.0
_TINY = 1e-30


def safe_exp(exponent: Array, largest: float = _LARGEST) -> Array:
    """exp, continued linearly above ``largest``. A density that depends on it is 0 in float32 there
    anyway.
    """
    return jnp.exp(jnp.minimum(exponent, largest)) * (1 + jnp.maximum(exponent - largest, 0))


def log_positive(value: Array, floor: float) -> Array:
    """log of ``value``, continued linearly below ``floor``, so that every value has one."""
    return jnp.log(jnp.maximum(value, floor)) + jnp.minimum(value / floor - 1, 0)


def log_mean(link: str, linear: Array, floor: float) -> Array:
    """log of a positive mean. ``link`` is "log", "identity" or "inverse"; ``floor`` is of the
    link's scale.
    """
    if link == "log":
        return linear
    return log_positive(linear, floor) * (1 if link == "identity" else -1)


def log_of_rest(exponent: Array) -> Array:
    """log(1 - exp(-exponent)), for an exponent above 0."""
    return jnp.log(-jnp.expm1(-jnp.maximum(exponent, _TINY)))


def log_cdf(link: str, z: Array) -> Array:
    """log F(z), where F is the inverse link: logistic, normal, or 1 - exp(-exp(z))."""
    if link == "logit":
        return jax.nn.log_sigmoid(z)
    return log_ndtr(z) if link == "probit" else log_of_rest(safe_exp(z))


def log_survival(link: str, z: Array) -> Array:
    """log(1 - F(z)), without the rounding of the difference."""
    return -safe_exp(z) if link == "cloglog" else log_cdf(link, -z)


def log_probabilities(link: str, predictor: Array) -> tuple[Array, Array]:
    """log p and log(1 - p)."""
    return log_cdf(link, predictor), log_survival(link, predictor)


def log_interval(link: str, low: Array, high: Array) -> Array:
    """log(F(high) - F(low)), for low < high, accurate in both tails."""
    if link == "logit":  # F(high) - F(low) = F(high) F(-low) (1 - exp(low - high))
        return jax.nn.log_sigmoid(high) + jax.nn.log_sigmoid(-low) + log_of_rest(high - low)
    if link == "probit":  # in the lower tail, by symmetry
        mirrored = low + high > 0
        low, high = jnp.where(mirrored, -high, low), jnp.where(mirrored, -low, high)
        top = log_ndtr(high)
        return top + log_of_rest(top - log_ndtr(low))
    # exp(-exp(low)) - exp(-exp(high)); above 30 the second is negligible next to the first, and
    # nothing overflows
    return -safe_exp(low) + log_of_rest(
        jnp.exp(jnp.minimum(low, 30)) * jnp.expm1(jnp.minimum(high - low, 30))
    )
