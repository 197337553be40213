"""The one-shot release of a linear regression: noised sums of products of its columns, over all
records.

For a record with features x and target y, all of them in [-1, 1], let z = (x, 1). The sums are
those of::

    w z z',    b w z y,    b^2 w y^2,    w^2,        w = min(1, R / |z|^2)

the first without the entries that it has twice, which count sqrt(2). So a record's statistic has a
norm of at most

    C = sqrt((R + b^2)^2 + 1),    because    |(w z z', ...)| = w |z|^2 + b^2 w y^2 <= R + b^2.

The weight w depends on x alone, so weighted least squares is as unbiased as least squares. It is 1
for all but records with many columns near their bounds, and R far below the largest |z|^2 lowers
the noise of all sums. The factor b of the target balances the noise of its sums with that of the
others. C decides both (``Scales.of``).

The release is one step of DP-VI with a loss that is linear in its parameters: the gradient of a
record is its statistic. So clipping, noise in whole numbers, sampler, accounting and checkpoints
are those of every other step. Bernstein and Sheldon 2019 release such sums too, with other scales;
``gram_chain`` has the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from workbench.clipping.separation import PrivacyModelError
from workbench.data.preprocessing import middle_and_reach
from workbench.posterior.noise_aware import Prior, normal_of
from workbench.record_model.model import RecordModel
from workbench.record_model.traces import is_latent

__all__ = [
    "LARGEST",
    "SITE",
    "SMALLEST_NORM",
    "LinearGaussian",
    "NoisedSums",
    "Scales",
    "guide",
    "linear_gaussian",
    "model_of",
    "model_of_sums",
    "statistic",
    "sums_in",
    "symmetric",
    "triangle",
]

Bounds = tuple[float, float]

LARGEST = 40  # features: the posterior takes the cube of it in time
SMALLEST_NORM = 2.0  # C, below which R is less than the 1 in every z
SITE = "sums"  # the parameter of ``model_of``, sums divided by N


class Scales(NamedTuple):
    """What C decides. :param squares: R. :param target: b."""

    squares: float
    target: float

    @classmethod
    def of(cls, clip: float) -> Scales:
        """R + b^2 = sqrt(C^2 - 1), with R = b^2 + b^4.

        That b minimises (R + b^2)^2 (1 / b^2 + 1 / 2), about the variance of the noise in X'y - X'X
        theta where |theta|^2 is 1 / 2. (A target in [-1, 1] leaves room for little more.)
        """
        total = math.sqrt(clip**2 - 1)
        squared = math.sqrt(1 + total) - 1
        return cls(total - squared, math.sqrt(squared))

    @classmethod
    def norm_for(cls, squares: float) -> float:
        """C with this R."""
        squared = (math.sqrt(1 + 4 * squares) - 1) / 2
        return math.hypot(squares + squared, 1.0)


def statistic(x: jax.Array, y: jax.Array, clip: float, bounds: Bounds = (-1.0, 1.0)) -> jax.Array:
    """The statistics of records, float32[B, k], each of norm at most C. What is beyond [-1, 1] or
    the bounds is cut.

    :param x: [B, D]. :param y: [B]. :param bounds: of y, which become -1 and 1.
    """
    squares, target = Scales.of(clip)
    inside = jnp.clip(x.astype(jnp.float32), -1, 1)
    z = jnp.concatenate([inside, jnp.ones_like(inside[:, :1])], axis=1)
    weight = jnp.minimum(1.0, squares / jnp.sum(z**2, axis=1, keepdims=True))
    middle, reach = middle_and_reach(bounds)
    response = target * jnp.clip((y.astype(jnp.float32) - middle) / reach, -1, 1)[:, None]
    rows, columns, counts = triangle(z.shape[1])
    blocks: list[Any] = [
        counts * z[:, rows] * z[:, columns],
        math.sqrt(2) * response * z,
        response**2,
        weight,
    ]
    return weight * jnp.concatenate(blocks, axis=1)


def triangle(width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows and columns of a symmetric matrix's own entries, and their factors, 1 or sqrt(2)."""
    rows, columns = np.triu_indices(width)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2)).astype(np.float32)


def symmetric(entries: np.ndarray, width: int) -> np.ndarray:
    """Symmetric matrices, float[..., width, width], of their own entries, float[..., k]."""
    rows, columns = np.triu_indices(width)
    matrices = np.empty((*entries.shape[:-1], width, width))
    matrices[..., rows, columns] = matrices[..., columns, rows] = entries
    return matrices


def size_of(features: int) -> int:
    """k, the number of sums."""
    return (features + 1) * (features + 2) // 2 + features + 3


def model_of(features: int, clip: float, bounds: Bounds = (-1.0, 1.0)) -> Callable[..., None]:
    """As ``model_of_sums``, of records (x, y)."""
    return model_of_sums(size_of(features), lambda x, y: statistic(x, y, clip, bounds))


def model_of_sums(size: int, statistic: Callable[..., jax.Array]) -> Callable[..., None]:
    """A NumPyro model of records whose gradient with respect to its parameter is minus a record's
    statistic.

    :param size: k. :param statistic: of records, float[B, k].
    """

    def model(*records: jax.Array, num_records: int | None = None) -> None:
        direction, batch = numpyro.param(SITE, jnp.zeros(size)), records[0].shape[0]
        with numpyro.plate("records", num_records or batch, subsample_size=batch):
            numpyro.factor("statistic", statistic(*records) @ direction)

    return model


def guide(*records: jax.Array, num_records: int | None = None, **static: object) -> None:
    """The guide of ``model_of``, which has nothing to draw; and of models that are only read."""


class NoisedSums(NamedTuple):
    """The sums as they were released, in the units of the records, with the noise that they have.

    :param products: of w z z', float[D + 1, D + 1], the constant last. :param with_target: of w z
        y, float[D + 1].
    :param of_target: of w y^2. :param squared_weights: of w^2.
    :param noise: standard deviation of the noise in the diagonal of ``products``; off it 1 /
        sqrt(2) of that.
    :param target: b. ``with_target`` has noise / (sqrt(2) b), and ``of_target`` noise / b^2.
    """

    products: np.ndarray
    with_target: np.ndarray
    of_target: float
    squared_weights: float
    noise: float
    target: float


def sums_in(released: np.ndarray, clip: float, noise: float) -> NoisedSums:
    """:param released: float[k], the noised sum of statistics. :param noise: standard deviation in
    each of them.
    """
    width = math.isqrt(2 * len(released)) - 1
    while size_of(width - 1) > len(released):
        width -= 1
    rows, _, counts = triangle(width)
    values, target = np.asarray(released, float), Scales.of(clip).target
    products = symmetric(values[: len(rows)] / counts, width)
    with_target = values[len(rows) : -2] / (math.sqrt(2) * target)
    return NoisedSums(
        products, with_target, float(values[-2] / target**2), float(values[-1]), noise, target
    )


class LinearGaussian(NamedTuple):
    """What a model says besides its likelihood, y ~ Normal(x . weights + intercept, scale).

    :param prior: of weights, and of the intercept if there is one, as one vector.
    :param scale: prior of the residuals' scale.
    """

    prior: Prior
    scale: dist.Distribution

    def log_prior(self, logs: np.ndarray) -> np.ndarray:
        """Log density of the prior of log scale, at each of ``logs``."""
        return (
            np.asarray(self.scale.log_prob(jnp.exp(jnp.asarray(logs, jnp.float32))), float) + logs
        )


def linear_gaussian(
    model: RecordModel, weights: str, intercept: str, scale: str, bounds: Bounds = (-1.0, 1.0)
) -> LinearGaussian:
    """Read the priors of a model of records (x, y), and check that it is what its
    ``LinearPredictor`` declares.

    :param weights: the site of the weights. :param intercept: its site, or "". :param scale: that
        of the residuals' scale.
    :param bounds: of y.
    :raises PrivacyModelError: saying what it is not.
    """
    start = model.start()
    (_, first_trace), (_, second_trace) = (
        model._traces(start, jax.random.key(seed)) for seed in (0, 1)
    )
    sites = [weights, *([intercept] if intercept else []), scale]
    latents = {
        name
        for name, site in first_trace.items()
        if is_latent(site) and name not in model.of_records
    }
    if latents != set(sites) or set(model.shared) != latents or len(model.observed) != 1:
        raise PrivacyModelError(
            f"the model must have the latents {', '.join(sites)}, one observed site and nothing "
            "else"
        )
    shapes = [array.shape for array in model.blank_record]
    if len(shapes) != 2 or len(shapes[0]) != 1 or shapes[1] != ():
        raise PrivacyModelError("its records are not features and one target")
    if shapes[0][0] > LARGEST:
        raise PrivacyModelError(f"it has more than {LARGEST} features")
    means, precisions = [], []
    for name in sites[:-1]:
        first, second = (normal_of(trace[name]["fn"]) for trace in (first_trace, second_trace))
        if first is None or second is None or not np.array_equal(first, second):
            raise PrivacyModelError(f"the prior of {name} is not normal with fixed mean and scale")
        mean, deviation = np.reshape(np.asarray(first, float), (2, -1))
        means.append(mean)
        precisions.append(deviation**-2.0)
    prior = first_trace[scale]["fn"]
    if prior.event_shape or prior.batch_shape or not _is_positive(prior):
        raise PrivacyModelError(f"the prior of {scale} must be a distribution on positive numbers")
    points = np.geomspace(1e-2, 10.0, 7).astype(np.float32)
    if not np.array_equal(prior.log_prob(points), second_trace[scale]["fn"].log_prob(points)):
        raise PrivacyModelError(f"the prior of {scale} depends on other quantities")
    _require_normal(model, weights, intercept, scale, bounds)
    return LinearGaussian(Prior(np.concatenate(means), np.concatenate(precisions)), prior)


def _is_positive(prior: dist.Distribution) -> bool:
    from numpyro.distributions import constraints

    support = prior.support
    return (
        support is constraints.positive
        or support is constraints.nonnegative
        or support is constraints.softplus_positive
    )


def _require_normal(
    model: RecordModel, weights: str, intercept: str, scale: str, bounds: Bounds
) -> None:
    """:raises PrivacyModelError: unless the likelihood is that of the normal linear model, at a few
    made-up points.
    """
    (size,), (middle, reach) = model.blank_record[0].shape, middle_and_reach(bounds)
    loss = jax.jit(model.record_loss)
    for number in range(1, 4):
        waves = np.sin(np.arange(1, 2 * size + 4) * (1.0 + number / 7)).astype(np.float32)
        slopes, x = waves[:size], waves[size : 2 * size]
        constant, width, y = (
            waves[-3] if intercept else np.float32(0),
            np.exp(waves[-2]),
            middle + reach * waves[-1],
        )
        values = {weights: slopes, scale: width} | ({intercept: constant} if intercept else {})
        record = tuple(
            jnp.asarray(value, like.dtype)
            for value, like in zip((x, y), model.blank_record, strict=True)
        )
        mean = middle + reach * float(x @ slopes + constant)
        expected = -dist.Normal(mean, reach * float(width)).log_prob(float(record[1]))
        actual = loss(values, record, jax.random.key(0))
        if not np.allclose(actual, expected, rtol=1e-3, atol=1e-3):
            raise PrivacyModelError(
                "its likelihood is not normal around features . weights + intercept"
            )
