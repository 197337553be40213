"""Distributions of a response given its mean's logarithm, with finite densities and gradients in
float32.

NumPyro's own overflow or round to nothing for predictors that a private step reaches: its gamma and
negative binomial have no finite gradient where a mean is 1e-20, and its censored densities are flat
in the tail. Each class has a NumPyro counterpart, which draws its samples. Densities are in natural
logarithms.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from workbench.formula.links import log_of_rest, safe_exp

__all__ = [
    "BetaOfMean",
    "CountsBehindHurdle",
    "GammaOfMean",
    "InverseGaussianOfMean",
    "LogNormalOfMedian",
    "NegativeBinomialOfMean",
    "PoissonOfMean",
    "Successes",
    "SuccessesOfBeta",
    "TimeToEvent",
    "ZeroInflatedCounts",
]

Array = jax.Array

# of a positive value: encoded ones are larger, but made-up records of a check may be anything
_SMALLEST = 1e-30
_EDGE = 1e-6  # of a share, likewise
_MOST_EVENTS = 2.0**30  # a mean that int32 draws may have
_LARGE = 10.0  # arguments from which Stirling's series is exact to float32
# of the logarithm of a value over its mean: the square of its exponential fits into float32
_STEEP = 15.0


class _OfMean(dist.Distribution):
    """A distribution of one number for each entry of its broadcast arguments."""

    def __init__(self, *arguments: ArrayLike, validate_args: bool | None = None) -> None:
        names = tuple(self.arg_constraints)
        arrays = jnp.broadcast_arrays(
            *(jnp.asarray(argument, jnp.result_type(float)) for argument in arguments)
        )
        for name, array in zip(names, arrays, strict=True):
            setattr(self, name, array)
        super().__init__(arrays[0].shape, validate_args=validate_args)

    def relative(self) -> dist.Distribution:
        """The same distribution of NumPyro."""
        raise NotImplementedError

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, sample_shape + batch_shape."""
        return self.relative().sample(key, sample_shape)


class _Counts(type(constraints.nonnegative_integer)):  # type: ignore[misc]  # numpyro names no class
    """Counts that need not be whole where they were multiplied together with their exposure
    (``Response.rescaled``).
    """

    def __call__(self, x: Array) -> Any:
        return x >= 0


class _CountsUpTo(constraints.integer_interval):
    """Likewise, up to a number of trials."""

    def __call__(self, x: Array) -> Any:
        return (x >= self.lower_bound) & (x <= self.upper_bound)


class PoissonOfMean(_OfMean):
    """Counts with the mean exp(log_mean)."""

    arg_constraints = {"log_mean": constraints.real}  # noqa: RUF012  # as NumPyro declares it
    support = _Counts()

    def relative(self) -> dist.Distribution:
        return dist.Poisson(jnp.minimum(safe_exp(self.log_mean), _MOST_EVENTS))

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        return value * self.log_mean - safe_exp(self.log_mean) - gammaln(value + 1.0)

    def log_zero(self) -> Array:
        """log of the probability of 0, which ``log_prob`` rounds where it is nearly 0."""
        return -safe_exp(self.log_mean)

    def sample_positive(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of counts above 0, sample_shape + batch_shape: the first event of a Poisson process
        on [0, 1] that has one, and what comes after it.
        """
        of_first, of_others = jax.random.split(key)
        mean = jnp.minimum(safe_exp(self.log_mean), _MOST_EVENTS)
        first = _first_hazard(of_first, mean, sample_shape + self.batch_shape)
        return 1 + jax.random.poisson(of_others, mean - first)


def _first_hazard(key: Array, hazard: Array, shape: tuple[int, ...]) -> Array:
    """The cumulative hazard of the first event, given that there is one until ``hazard``."""
    uniform = jax.random.uniform(key, shape)
    return jnp.minimum(-jnp.log1p(uniform * jnp.expm1(-hazard)), hazard)


class NegativeBinomialOfMean(_OfMean):
    """Counts with the mean m = exp(log_mean) and the variance m + m^2 / concentration."""

    arg_constraints = {"log_mean": constraints.real, "concentration": constraints.positive}  # noqa: RUF012
    support = _Counts()

    def relative(self) -> dist.Distribution:
        return dist.NegativeBinomial2(
            jnp.minimum(safe_exp(self.log_mean), _MOST_EVENTS), self.concentration
        )

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_concentration = jnp.log(self.concentration)
        gap = self.log_mean - log_concentration
        of_value = _log_rising(log_concentration, value) - gammaln(value + 1.0)
        return of_value - value * jax.nn.softplus(-gap) - self.concentration * jax.nn.softplus(gap)

    def log_zero(self) -> Array:
        """As Poisson's."""
        gap = self.log_mean - jnp.log(self.concentration)
        return -self.concentration * jax.nn.softplus(gap)

    def sample_positive(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of counts above 0, sample_shape + batch_shape.

        As Poisson's, for a process whose rate is gamma distributed: after a first event at the time
        t its shape is larger by 1, and its inverse scale by the mean until t.
        """
        of_first, of_rate, of_others = jax.random.split(key, 3)
        mean = jnp.minimum(safe_exp(self.log_mean), _MOST_EVENTS)
        hazard = self.concentration * jnp.log1p(mean / self.concentration)
        shape = sample_shape + self.batch_shape
        before = jnp.expm1(_first_hazard(of_first, hazard, shape) / self.concentration)
        rate = jax.random.gamma(of_rate, jnp.broadcast_to(self.concentration + 1, shape))
        after = jnp.maximum(mean / self.concentration - before, 0) / (1 + before)
        return 1 + jax.random.poisson(of_others, jnp.minimum(rate * after, _MOST_EVENTS))


def _log_rising(log_start: Array, count: Array) -> Array:
    """log(Gamma(start + count) / Gamma(start)); for a large start by Stirling's series, because the
    difference rounds.
    """
    start = safe_exp(log_start)
    large = jnp.maximum(start, _LARGE)
    end = large + count
    series = (
        (large - 0.5) * jnp.log1p(count / large)
        + count * (jnp.log(end) - 1)
        + (1 / end - 1 / large) / 12
    )
    # Gamma(start) = Gamma(start + 1) / start, which is finite where start itself rounds to 0
    small, positive = jnp.minimum(start, _LARGE), jnp.where(count > 0, count, 1.0)
    direct = log_start + gammaln(small + positive) - gammaln(small + 1)
    return jnp.where(start < _LARGE, jnp.where(count > 0, direct, 0.0), series)


class _WithZeros(dist.Distribution):
    """Counts with zeros of their own.

    :param counts: the distribution of the others, Poisson's or the negative binomial one.
    :param logit: of the probability of these zeros.
    """

    arg_constraints = {"logit": constraints.real}  # noqa: RUF012
    pytree_data_fields = ("counts", "logit")
    support = _Counts()

    def __init__(self, counts: Any, logit: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.counts = counts
        self.logit = jnp.broadcast_to(
            jnp.asarray(logit, jnp.result_type(float)), counts.batch_shape
        )
        super().__init__(counts.batch_shape, validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, sample_shape + batch_shape."""
        of_zeros, of_others = jax.random.split(key)
        shape = sample_shape + self.batch_shape
        is_zero = jax.random.bernoulli(of_zeros, jax.nn.sigmoid(self.logit), shape)
        return jnp.where(is_zero, 0, self._sample_others(of_others, sample_shape))


class ZeroInflatedCounts(_WithZeros):
    """Zeros with a probability, and else ``counts``, which may be 0 too."""

    def _sample_others(self, key: Array, sample_shape: tuple[int, ...]) -> Array:
        return self.counts.sample(key, sample_shape)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_zero, log_rest = jax.nn.log_sigmoid(self.logit), jax.nn.log_sigmoid(-self.logit)
        of_counts = log_rest + self.counts.log_prob(value)
        return jnp.where(value > 0, of_counts, jnp.logaddexp(log_zero, of_counts))


class CountsBehindHurdle(_WithZeros):
    """Zeros with a probability, and else ``counts`` that are above 0."""

    def _sample_others(self, key: Array, sample_shape: tuple[int, ...]) -> Array:
        return self.counts.sample_positive(key, sample_shape)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_zero, log_rest = jax.nn.log_sigmoid(self.logit), jax.nn.log_sigmoid(-self.logit)
        # a count that was made smaller with its exposure is still one that is not 0
        of_counts = self.counts.log_prob(jnp.maximum(value, 1))
        log_positive = log_of_rest(-self.counts.log_zero())
        return jnp.where(value > 0, log_rest + of_counts - log_positive, log_zero)


class Successes(_OfMean):
    """Successes in a number of trials, given log p and log(1 - p)."""

    arg_constraints = {  # noqa: RUF012
        "log_p": constraints.real,
        "log_q": constraints.real,
        "trials": constraints.nonnegative,
    }

    @property
    def support(self) -> constraints.Constraint:
        return _CountsUpTo(0, self.trials)

    def relative(self) -> dist.Distribution:
        return dist.Binomial(self.trials.astype(int), logits=self.log_p - self.log_q)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        value = jnp.clip(value, 0, self.trials)
        return (
            _log_choose(self.trials, value)
            + value * self.log_p
            + (self.trials - value) * self.log_q
        )


def _log_choose(trials: Array, value: Array) -> Array:
    """log of the binomial coefficient."""
    return gammaln(trials + 1) - gammaln(value + 1) - gammaln(trials - value + 1)


class SuccessesOfBeta(_OfMean):
    """Successes in a number of trials whose probability differs between records, with the mean p
    and the variance p (1 - p) / (1 + concentration), given log p and log(1 - p).
    """

    arg_constraints = {  # noqa: RUF012
        "log_p": constraints.real,
        "log_q": constraints.real,
        "trials": constraints.nonnegative,
        "concentration": constraints.positive,
    }

    @property
    def support(self) -> constraints.Constraint:
        return _CountsUpTo(0, self.trials)

    def relative(self) -> dist.Distribution:
        beta = BetaOfMean(self.log_p, self.log_q, self.concentration).relative()
        return dist.BetaBinomial(beta.concentration1, beta.concentration0, self.trials.astype(int))

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        value = jnp.clip(value, 0, self.trials)
        log_concentration = jnp.log(self.concentration)
        return (
            _log_choose(self.trials, value)
            + _log_rising(log_concentration + self.log_p, value)
            + _log_rising(log_concentration + self.log_q, self.trials - value)
            - _log_rising(log_concentration, self.trials)
        )


class GammaOfMean(_OfMean):
    """Positive numbers with the mean m = exp(log_mean) and the variance m^2 / shape."""

    arg_constraints = {"log_mean": constraints.real, "shape": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def relative(self) -> dist.Distribution:
        return dist.Gamma(self.shape, self.shape / safe_exp(self.log_mean))

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_value = jnp.log(jnp.maximum(value, _SMALLEST))
        ratio = log_value - self.log_mean
        beyond = jnp.where(ratio < 1, jnp.expm1(jnp.minimum(ratio, 1)), safe_exp(ratio) - 1)
        return _log_peak(self.shape) + self.shape * (ratio - beyond) - log_value


class InverseGaussianOfMean(_OfMean):
    """Positive numbers with the mean m = exp(log_mean) and the variance m^3 / shape."""

    arg_constraints = {"log_mean": constraints.real, "shape": constraints.positive}  # noqa: RUF012
    support = constraints.positive

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, sample_shape + batch_shape. The smaller root is
        written without their difference, which rounds.
        """
        of_normal, of_root = jax.random.split(key)
        shape = sample_shape + self.batch_shape
        square = jax.random.normal(of_normal, shape) ** 2
        spread = square * safe_exp(self.log_mean) / self.shape
        larger = 1 + spread / 2 + jnp.sqrt(spread) * jnp.sqrt(1 + spread / 4)  # over the mean
        is_larger = jax.random.uniform(of_root, shape) * (1 + larger) < 1
        return safe_exp(self.log_mean + jnp.where(is_larger, 1, -1) * jnp.log(larger))

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_value = jnp.log(jnp.maximum(value, _SMALLEST))
        ratio = log_value - self.log_mean
        near = jnp.abs(ratio) < 1  # farther below, the derivative of JAX's expm1 rounds to 0
        beyond = jnp.where(near, jnp.expm1(jnp.clip(ratio, -1, 1)), safe_exp(ratio, _STEEP) - 1)
        log_constant = 0.5 * (jnp.log(self.shape / (2 * jnp.pi)) - 3 * log_value)
        return log_constant - 0.5 * self.shape * beyond**2 / jnp.exp(log_value)


class LogNormalOfMedian(_OfMean):
    """Positive numbers whose logarithms are normal around log_median."""

    arg_constraints = {  # noqa: RUF012
        "log_median": constraints.real,
        "sigma": constraints.positive,
    }
    support = constraints.positive

    def _of_log(self) -> dist.Normal:
        return dist.Normal(self.log_median, self.sigma)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, sample_shape + batch_shape."""
        return safe_exp(self._of_log().sample(key, sample_shape))

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_value = jnp.log(jnp.maximum(value, _SMALLEST))
        return self._of_log().log_prob(log_value) - log_value


def _log_peak(shape: Array) -> Array:
    """shape log(shape) - shape - log Gamma(shape), whose terms cancel where the shape is large."""
    large, small = jnp.maximum(shape, _LARGE), jnp.minimum(shape, _LARGE)
    series = 0.5 * jnp.log(large / (2 * jnp.pi)) - 1 / (12 * large) + 1 / (360 * large**3)
    return jnp.where(shape < _LARGE, small * jnp.log(small) - small - gammaln(small), series)


class BetaOfMean(_OfMean):
    """Shares in (0, 1) with the mean p and the variance p (1 - p) / (1 + concentration), given log
    p and log(1 - p).
    """

    arg_constraints = {  # noqa: RUF012
        "log_p": constraints.real,
        "log_q": constraints.real,
        "concentration": constraints.positive,
    }
    support = constraints.unit_interval

    def _parts(self) -> tuple[Array, Array]:
        """The logarithms of both shapes."""
        log_concentration = jnp.log(self.concentration)
        return log_concentration + self.log_p, log_concentration + self.log_q

    def relative(self) -> dist.Distribution:
        first, second = (jnp.maximum(safe_exp(log_shape), _SMALLEST) for log_shape in self._parts())
        return dist.Beta(first, second)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        value = jnp.clip(value, _EDGE, 1 - _EDGE)
        total = gammaln(self.concentration)
        for log_shape, log_value in zip(
            self._parts(), (jnp.log(value), jnp.log1p(-value)), strict=True
        ):
            shape = safe_exp(log_shape)
            # gammaln(a) = gammaln(1 + a) - log a, which is finite where a itself rounds to 0
            total = total - gammaln(1 + shape) + log_shape + (shape - 1) * log_value
        return total


class TimeToEvent(_OfMean):
    """Weibull times, with the survival function exp(-(t / exp(log_scale))^shape); exponential where
    the shape is 1.

    ``observed`` is 1 where the event was seen at the time, and 0 where nothing had happened until
    then: right censoring. Times from ``latest`` on are censored too. Draws are times of events,
    whatever ``observed`` says.
    """

    arg_constraints = {  # noqa: RUF012
        "log_scale": constraints.real,
        "shape": constraints.positive,
        "observed": constraints.unit_interval,
        "latest": constraints.positive,
    }
    support = constraints.positive

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, sample_shape + batch_shape. NumPyro's own are no number where the shape
        is small.
        """
        waits = jax.random.exponential(key, sample_shape + self.batch_shape)
        return safe_exp(self.log_scale + jnp.log(waits) / self.shape)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        log_value = jnp.log(jnp.maximum(value, _SMALLEST))
        log_hazard = self.shape * (log_value - self.log_scale)  # cumulative
        observed = jnp.where(value < self.latest, self.observed, 0.0)
        return observed * (jnp.log(self.shape) + log_hazard - log_value) - safe_exp(log_hazard)
