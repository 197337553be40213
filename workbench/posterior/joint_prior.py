"""The prior of all global latents of a model, as one density on unconstrained space.

A latent with bounds enters through NumPyro's transform to the real line. One with a location and a
scale enters partly centred: group effects that the data leave open are then independent of their
scale, and a chain does not have to follow it into a funnel. No record is looked at: the model is
traced with made-up ones, and its likelihood is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions.transforms import IdentityTransform, Transform, biject_to
from numpyro.infer.reparam import Reparam

from workbench.record_model.model import RecordModel
from workbench.record_model.traces import is_latent, log_density

__all__ = ["JointPrior", "NoNoiseAwarePosterior", "base_of"]

Array = jax.Array
_PARTLY, _LOCATION, _SCALE = "/partly centred", "/location", "/scale"  # after names of latents
_SAMPLE = 4000
# prior scale of the logarithm of a positive latent, say; at 10 chains stay where the likelihood is
# flat
_WIDEST = 6.0
# arguments besides location and scale
_LOCATION_SCALE: dict[type, tuple[str, ...]] = {
    dist.Normal: (),
    dist.StudentT: ("df",),
    dist.Cauchy: (),
    dist.Laplace: (),
    dist.Logistic: (),
}
_NORMAL_RANGE = 2 * 1.6448536269514722  # from the 5 % to the 95 % quantile of a normal distribution


class NoNoiseAwarePosterior(Exception):
    """The reason there is no noise-aware posterior, as a clause for messages."""


def base_of(prior: dist.Distribution) -> dist.Distribution:
    """A distribution without what plates and ``to_event`` put around it."""
    while isinstance(prior, (dist.Independent, dist.ExpandedDistribution)):
        prior = prior.base_dist
    return prior


class _PartlyCentred(Reparam):
    """A latent u = location + scale^(1 - c) (y - c location), where y has location c location and
    scale scale^c.

    :param share: c: 0 makes y independent of location and scale, and 1 makes it the latent.
    """

    def __init__(self, degree: Array | float) -> None:
        self._share = degree

    def __call__(self, name: str, fn: dist.Distribution, obs: Any) -> tuple[None, Array]:
        shape, base = fn.batch_shape + fn.event_shape, base_of(fn)
        fixed = {
            parameter: jnp.broadcast_to(getattr(base, parameter), shape)
            for parameter in _LOCATION_SCALE[type(base)]
        }
        location, scale = (
            jnp.broadcast_to(parameter, shape) for parameter in (base.loc, base.scale)
        )
        numpyro.deterministic(name + _LOCATION, location)
        numpyro.deterministic(name + _SCALE, scale)
        middle, degree = self._share * location, self._share
        family = type(base)(**fixed, loc=middle, scale=scale**degree)
        drawn = numpyro.sample(name + _PARTLY, family.to_event(len(fn.event_shape)))
        return None, location + scale ** (1 - degree) * (drawn - middle)


class JointPrior:
    """The prior of ``model``'s global latents as a density of one vector z, float[n].

    z comes with a centring, a share in [0, 1] for each entry, which matters where there is a
    location and a scale. ``names`` are those of the latents in the order of ``values``: first those
    of the release point u. ``reach`` is how far u may be dithered, float[d].

    :raises NoNoiseAwarePosterior: if a latent is discrete or cannot be drawn, has bounds that
        depend on other latents or, as part of u, fewer dimensions than entries.
    """

    reach: np.ndarray | None = None

    def __init__(self, model: RecordModel) -> None:
        self._model, self._compiled = model, dict[Callable, Callable]()
        self._transforms: dict[str, Transform] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        try:
            first, second = (self._trace({}, jax.random.key(seed), {}) for seed in (0, 1))
        except NotImplementedError:  # as ImproperUniform says
            raise NoNoiseAwarePosterior("the prior cannot be drawn from") from None
        for name, site in first.items():
            if is_latent(site) and name not in model.of_records:
                latent = name.removesuffix(_PARTLY)
                pair = _transform(latent, site, second[name], latent in model.shared)
                self._transforms[name], self._shapes[name] = pair
        latents = {name.removesuffix(_PARTLY) for name in self._shapes}
        self.names = (*model.shared, *sorted(latents - set(model.shared)))
        self._sizes = [int(np.prod(shape)) for shape in self._shapes.values()]

    def compiled(self, fn: Callable) -> Callable:
        """``fn`` with this prior as its first argument, compiled once."""
        if fn not in self._compiled:
            self._compiled[fn] = jax.jit(functools.partial(fn, self))
        return self._compiled[fn]

    @functools.cached_property
    def sample(self) -> np.ndarray:
        """Draws of z without centring from the prior, float[4000, n], always the same."""
        return np.asarray(
            self.compiled(JointPrior._draws)(jax.random.split(jax.random.key(2), _SAMPLE)), float
        )

    @functools.cached_property
    def typical(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Middles and scales of u, float[d], and of z without centring, float[n], under the prior.

        They are those of normal distributions with its median and 90 % range, which heavy tails do
        not move.
        :raises NoNoiseAwarePosterior: if they are not finite.
        """
        z = jnp.asarray(self.sample, jnp.float32)
        points = self.compiled(lambda prior, z: jax.vmap(prior.point)(z, jnp.zeros_like(z)))(z)
        summary = (*_middle_and_scale(np.asarray(points, float)), *_middle_and_scale(self.sample))
        if not (
            np.all(np.isfinite(summary[0]))
            and all(np.all(np.isfinite(scale) & (scale > 0)) for scale in summary[1::2])
        ):
            raise NoNoiseAwarePosterior("the prior's draws are not finite, or do not vary")
        for (name, transform), scales in zip(
            self._transforms.items(), self._split(summary[3]), strict=True
        ):
            if not isinstance(transform, IdentityTransform) and np.max(scales, initial=0) > _WIDEST:
                raise NoNoiseAwarePosterior(
                    f"the prior of {name} spans so many powers of ten that a chain may not cross "
                    "them"
                )
        return summary

    @property
    def mean(self) -> np.ndarray:
        """The middle of u, float[d]: of a normal prior, the mean."""
        return self.typical[0]

    @property
    def precision(self) -> np.ndarray:
        """1 / the square of the scale of u, float[d]: of a normal prior, the precision."""
        return self.typical[1] ** -2.0

    @property
    def size(self) -> int:
        """n."""
        return sum(self._sizes)

    def _split(self, flat: Any) -> list[Any]:
        return (jnp if isinstance(flat, jax.Array) else np).split(flat, np.cumsum(self._sizes)[:-1])

    def _parts(self, flat: Array) -> dict[str, Array]:
        """Entries of a vector like z, by site."""
        segments = self._split(flat)
        return {
            name: segment.reshape(shape)
            for (name, shape), segment in zip(self._shapes.items(), segments, strict=True)
        }

    def _trace(self, values: Mapping[str, Any], key: Array, degrees: Mapping[str, Array]) -> dict:
        def reparam(site: dict[str, Any]) -> Reparam | None:
            name = site["name"]
            fits = (
                is_latent(site)
                and site["value"] is None
                and type(base_of(site["fn"])) in _LOCATION_SCALE
            )
            if not fits or name.endswith(_PARTLY):
                return None
            return _PartlyCentred(degrees[name + _PARTLY] if degrees else 0.0)

        return self._model.model_trace(
            dict(values), key, lambda model: handlers.reparam(model, config=reparam)
        )

    def _traced(self, z: Array, centring: Array) -> tuple[dict, Array]:
        """The model's trace at z, and the logarithm of the Jacobian of what it took."""
        values, volume = {}, jnp.zeros(())
        for name, free in self._parts(z).items():
            transform = self._transforms[name]
            values[name] = transform(free)
            volume = volume + jnp.sum(transform.log_abs_det_jacobian(free, values[name]))
        return self._trace(values, jax.random.key(0), self._parts(centring)), volume

    def log_density(self, z: Array, centring: Array) -> Array:
        """log p(z), up to a constant, float scalar."""
        trace, volume = self._traced(z, centring)
        for name, site in trace.items():
            if site["type"] == "sample" and name not in self._model.of_records:
                volume = volume + log_density(site)
        return volume

    def point(self, z: Array, centring: Array) -> Array:
        """u as one vector, float[d]."""
        return self._flat(z, centring, self._model.shared)

    def values(self, z: Array, centring: Array) -> Array:
        """All latents ``names``, in the form in which the model has them, as one vector."""
        return self._flat(z, centring, self.names)

    def _flat(self, z: Array, centring: Array, names: tuple[str, ...]) -> Array:
        trace, _ = self._traced(z, centring)
        return jnp.concatenate([jnp.ravel(trace[name]["value"]) for name in names])

    def standard(self, z: Array, centring: Array) -> Array:
        """The same point without centring."""
        trace, _ = self._traced(z, centring)
        segments = []
        for name, segment in self._parts(z).items():
            latent = name.removesuffix(_PARTLY)
            if latent != name:
                segment = (trace[latent]["value"] - trace[latent + _LOCATION]["value"]) / trace[
                    latent + _SCALE
                ]["value"]
            segments.append(jnp.ravel(segment))
        return jnp.concatenate(segments)

    def centred(self, z: Array, information: Array) -> tuple[Array, Array]:
        """z of no centring, with the centring for data that have ``information`` of each entry of
        u, float[d]: (z, c).

        Under a normal prior, effects and their location are then uncorrelated.
        """
        trace, _ = self._traced(z, jnp.zeros_like(z))
        sizes = [trace[name]["value"].size for name in self._model.shared]
        told = dict(
            zip(self._model.shared, jnp.split(information, np.cumsum(sizes)[:-1]), strict=True)
        )
        segments, degrees = [], []
        for name, segment in self._parts(z).items():
            latent, degree = name.removesuffix(_PARTLY), jnp.zeros_like(segment)
            if latent != name:
                location, scale = (
                    trace[latent + suffix]["value"] for suffix in (_LOCATION, _SCALE)
                )
                if latent in told:
                    ratio = told[latent].reshape(segment.shape) * scale**2
                    degree = ratio / (1 + ratio)
                segment = degree * location + scale**degree * segment
            segments.append(jnp.ravel(segment))
            degrees.append(jnp.ravel(degree))
        return jnp.concatenate(segments), jnp.concatenate(degrees)

    def _draws(self, keys: Array) -> Array:
        def one(key: Array) -> Array:
            trace = self._trace({}, key, {})
            free = [
                transform.inv(trace[name]["value"]) for name, transform in self._transforms.items()
            ]
            return jnp.concatenate([jnp.ravel(value) for value in free])

        return jax.vmap(one)(keys)


def _transform(
    name: str, site: dict[str, Any], redrawn: dict[str, Any], is_released: bool
) -> tuple[Transform, tuple[int, ...]]:
    """From unconstrained space to the support of a latent, and the shape there. :param redrawn:
    another draw's site.
    """
    prior, shape = site["fn"], jnp.shape(site["value"])
    if prior.support.is_discrete:
        raise NoNoiseAwarePosterior(f"{name} is discrete")
    transform, another = (biject_to(drawn["fn"].support) for drawn in (site, redrawn))
    free = transform.inverse_shape(shape)
    if is_released and free != shape:
        raise NoNoiseAwarePosterior(f"the entries of {name} are not free of each other")
    point = jnp.full(free, 0.5)
    if not np.array_equal(transform(point), another(point)):
        raise NoNoiseAwarePosterior(f"the bounds of {name} depend on other quantities")
    return transform, free


def _middle_and_scale(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the normal distributions that agree with the columns in median
    and 90 % range.
    """
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    return middle, (high - low) / _NORMAL_RANGE
