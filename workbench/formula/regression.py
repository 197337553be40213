"""The NumPyro model of a formula.

    eta_i = intercept + x_i . weights + sum over groups of effects_group(i) . (1, x of the group)_i
    y_i   ~ family(link(mean) = shift + scale eta_i, further parameters)       for each record i

    weights, intercept, further parameters ~ priors from the declared bounds, or the user's
    effects_l ~ Normal(0, sd),   sd ~ HalfNormal    for each group and column

Everything but y is global, groups' effects too: a group has many records. Effects of one group are
independent of each other, as in bambi: ``(1 + x | g)`` is ``(1 + x || g)``.

Records do not tell the mean of a term's effects over its L groups from the intercept and weights.
So the latents that records use are

    mean intercept, mean weights = intercept, weights + B (sum over terms of mean effects)
    contrasts = Q' effects,   Q float[L, L - 1] orthonormal, orthogonal to 1

and above them, where no noise is added, are sd and the means:

    contrasts ~ Normal(0, sd),   mean effects ~ Normal(0, sd / sqrt(L))

This is the same model, with effects as they enter the likelihood ("centred") and a likelihood that
is not flat in any direction. Weights of curves have their scale above them in the same way
(``shapes``).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import init_to_feasible
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from workbench.formula.centring import shift, shift_of_square
from workbench.formula.design import Effects, sd_of
from workbench.formula.families import Family, Response
from workbench.formula.priors import LogarithmOver, moved, side_by_side
from workbench.formula.shapes import Curve, Monotone
from workbench.formula.squares import SecondMoments
from workbench.posterior.expected_curvature import ExpectedCurvature, of_moments

__all__ = [
    "INTERCEPT",
    "LINES",
    "WEIGHTS",
    "Joint",
    "MeanField",
    "Regression",
    "log_site_of",
    "sites_of",
]

INTERCEPT, WEIGHTS = "intercept", "weights"
LINES = "weights_of_lines"  # of all columns but those of shapes
_LEAST = 1e-6  # of the lower bound of an exposure, whose logarithm is taken
_INITIAL_SCALE = 0.1  # of the guide: narrow, so that early steps see a mean rather than the prior


def sites_of(group: str) -> tuple[str, str]:
    """The sites of a term's mean effects and of its contrasts."""
    return f"{group}_mean", f"{group}_contrasts"


class MeanField(AutoNormal):
    """Independent normals, which begin around 0."""

    def __init__(self, model: Regression) -> None:
        super().__init__(model.latents, init_loc_fn=init_to_feasible, init_scale=_INITIAL_SCALE)


class Joint(AutoMultivariateNormal):
    """One normal with all covariances, which begins around 0."""

    def __init__(self, model: Regression) -> None:
        super().__init__(model.latents, init_loc_fn=init_to_feasible, init_scale=_INITIAL_SCALE)


@dataclass(frozen=True, eq=False)
class Regression:
    """The NumPyro model; record arrays first, in the order of ``arrays``, then ``num_records``.

    :param arrays: "x", for each group its index and maybe its own columns, the family's extras,
        "y".
    :param weights: the priors of the weights but those of ``shapes``.
    :param intercept: that of the intercept; None without one.
    :param sds: those of each group's standard deviations. :param parameters: those of the family's
        further latents.
    :param shared: ``{group: B}``, float[1 + P, K] or float[P, K] without an intercept: the columns
        of the effects as combinations of the others. Terms that are not in it are not split.
    :param shapes: terms whose weights have a prior of their own.
    :param moments: gives those of ``squares.second_moments``.
    """

    family: Family
    response: Response
    arrays: tuple[str, ...]
    groups: tuple[Effects, ...]
    weights: Sequence[dist.Distribution]
    intercept: dist.Distribution | None
    sds: Mapping[str, Sequence[dist.Distribution]]
    parameters: Mapping[str, dist.Distribution]
    shared: Mapping[str, np.ndarray]
    shapes: Sequence[Curve | Monotone]
    moments: Callable[[], SecondMoments] = field(repr=False)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """With the names of the arrays, which diagrams and checks read."""
        arrays = [
            inspect.Parameter(_identifier(name), inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in self.arrays
        ]
        arrays[-1] = arrays[-1].replace(default=None)
        size = inspect.Parameter(
            "num_records", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None
        )
        return inspect.Signature(
            [*arrays, size, inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)]
        )

    @functools.cached_property
    def _predictors(self) -> int:
        """How many each record has; 0 for one that is a number."""
        count = self.family.num_predictors(self.response)
        return 0 if count == 1 else count

    def __call__(self, *records: jax.Array, num_records: int | None = None, **options: Any) -> None:
        """:param options: those of the model, which this object was made of."""
        arrays = dict(zip(self.arrays, records, strict=False))
        values = self._latents()
        size = arrays["x"].shape[0]
        with numpyro.plate("records", num_records or size, subsample_size=size):
            numpyro.sample("y", self.likelihood(values, arrays), obs=arrays.get("y"))

    def latents(self, *records: jax.Array, **options: Any) -> None:
        """The model without records and densities, called as the model is.

        An automatic guide needs the sites, their shapes and their bounds. Densities would be
        evaluated too, by one compiled program for each operation.
        """
        with handlers.mask(mask=False):
            self._latents()

    def _latents(self) -> dict[str, Any]:
        """The quantities that records use, by the names that ``predictor`` takes."""
        several = self._predictors
        logarithms = self.family.logarithms
        values = {
            name: _by_logarithm(name, prior, logarithms[name])
            if name in logarithms
            else numpyro.sample(name, prior)
            for name, prior in self.parameters.items()
        }
        of_groups = {effects.name: self._effects(effects) for effects in self.groups}
        first = int(self.intercept is not None)
        if self.intercept is not None:
            prior = self.intercept.expand([several]).to_event(1) if several else self.intercept
            values[INTERCEPT] = _with(INTERCEPT, prior, self._of_means(of_groups, 0))
        if self.num_weights:
            values[WEIGHTS] = self._weights(self._of_means(of_groups, slice(first, None)))
        return values | {name: deviations for name, (_, deviations) in of_groups.items()}

    @property
    def num_weights(self) -> int:
        """Of each predictor."""
        return len(self.weights) + sum(len(shape.columns) for shape in self.shapes)

    def _weights(self, shift: jax.Array | None) -> jax.Array:
        """All weights plus ``shift``; those of shapes are latents of their own."""
        several = self._predictors
        if not self.shapes:
            return _with(WEIGHTS, side_by_side(self.weights, several), shift)
        of_shapes = [shape.weights(several) for shape in self.shapes]
        shaped = [column for shape in self.shapes for column in shape.columns]
        lines_at = np.setdiff1d(np.arange(self.num_weights), shaped)
        order = np.argsort([*lines_at, *shaped])

        def joined(of_others: jax.Array) -> jax.Array:
            return jnp.concatenate([of_others, *of_shapes])[order]

        if not self.weights:
            return numpyro.deterministic(WEIGHTS, joined(jnp.zeros(0)))
        prior = side_by_side(self.weights, several)
        if shift is None:
            total = lines = numpyro.sample(LINES, prior)
        else:
            total = numpyro.sample(LINES, moved(prior, shift[lines_at]))
            lines = total - shift[lines_at]
        numpyro.deterministic(WEIGHTS, joined(lines))
        return joined(total)

    def _of_means(
        self, of_groups: Mapping[str, tuple[Any, jax.Array]], rows: int | slice
    ) -> jax.Array | None:
        """What mean effects add to the intercept or to the weights; None where they add nothing."""
        added = [
            jnp.tensordot(np.float32(matrix[rows]), of_groups[name][0], 1)
            for name, matrix in self.shared.items()
            if np.any(matrix[rows])
        ]
        return functools.reduce(jnp.add, added) if added else None

    def _effects(self, effects: Effects) -> tuple[Any, jax.Array]:
        """The mean effects of a term, float[K, ...], and the deviations from them, float[L, K,
        ...].
        """
        name, count = effects.name, len(effects.labels)
        sd = numpyro.sample(sd_of(name), side_by_side(self.sds[name], self._predictors))

        def normal(site: str, rows: tuple[int, ...], scale: Any) -> jax.Array:
            shape = (*rows, *sd.shape)
            return numpyro.sample(site, dist.Normal(jnp.zeros(shape), scale).to_event(len(shape)))

        if name not in self.shared:
            return 0.0, normal(name, (count,), sd)
        of_mean, of_contrasts = sites_of(name)
        mean = normal(of_mean, (), sd / count**0.5)
        contrasts = normal(of_contrasts, (count - 1,), sd)
        deviations = jnp.tensordot(_contrasts(count), contrasts, 1)
        numpyro.deterministic(name, mean + deviations)
        return mean, deviations

    def predictor(self, values: Mapping[str, Any], arrays: Mapping[str, jax.Array]) -> jax.Array:
        """eta of each record, float[B] or float[B, K - 1].

        :param values: of the sites. :param arrays: record arrays by name.
        """
        x = arrays["x"]
        shape = (x.shape[0], self._predictors) if self._predictors else (x.shape[0],)
        eta = x @ values[WEIGHTS] if self.num_weights else jnp.zeros(shape)
        if self.intercept is not None:
            eta = eta + values[INTERCEPT]
        for effects in self.groups:
            # [B, K] or [B, K, number of predictors]
            group_effects = values[effects.name][arrays[effects.name]]
            if effects.block.columns:
                columns = arrays[f"{effects.name}_x"]
                slopes = group_effects[:, int(effects.block.intercept) :]
                eta = eta + (
                    jnp.einsum("bk,bkm->bm", columns, slopes)
                    if self._predictors
                    else (columns * slopes).sum(-1)
                )
            if effects.block.intercept:
                eta = eta + group_effects[:, 0]
        return eta

    def _extras(self, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Not below 0, as encoded ones are; made-up records, with which models are looked at, may
        be.
        """
        bounds = self.response.extras
        extras = {name: arrays[name] for name in self.family.extras if name in arrays}
        return {
            name: jnp.maximum(array, _LEAST * bounds[name][0]) if name in bounds else array
            for name, array in extras.items()
        }

    def likelihood(
        self, values: Mapping[str, Any], arrays: Mapping[str, jax.Array]
    ) -> dist.Distribution:
        """The distribution of the records' responses."""
        parameters = {name: values[name] for name in self.parameters}
        return self.family.likelihood(
            self.response, self.predictor(values, arrays), parameters, **self._extras(arrays)
        )

    @property
    def residual_scale(self) -> tuple[str, tuple[str, ...]]:
        """The site of the scale of residuals, "" where the predictor is not their location; and
        those of other parameters.
        """
        scale = self.family.residual_scale
        is_location = self.family.link == "identity" or self.family.name == "lognormal"
        nuisances = tuple(self._site_of(name) for name in self.parameters if name != scale)
        return (scale if is_location else ""), nuisances

    def expected_curvature(self, shapes: Mapping[str, tuple[int, ...]]) -> ExpectedCurvature:
        """What the design says of the curvature in what records use; of parameters nothing.

        :param shapes: of the sites that records use, in their order.
        """
        per_site, predictors = self._gradients(), np.eye(max(self._predictors, 1))
        names = np.repeat([*shapes], [math.prod(shape) for shape in shapes.values()])
        rows = np.flatnonzero(np.isin(names, [*per_site]))
        gradients = np.vstack(
            [np.kron(per_site[name], predictors) for name in shapes if name in per_site]
        )
        second = self.moments()
        of_predictor = gradients @ np.kron(second.draws, predictors) @ gradients.T
        moments = np.tile(np.eye(len(names)), (len(of_predictor), 1, 1))
        moments[:, rows[:, None], rows] = of_predictor
        is_intercept = np.isin(names, (INTERCEPT, f"mean_{INTERCEPT}"))
        order = np.argsort(is_intercept, kind="stable")
        return of_moments(moments, order, are_measured=second.are_measured)

    def _gradients(self) -> dict[str, np.ndarray]:
        """By site, the gradient of a predictor in its entries, as combinations of the columns of
        ``moments``.
        """
        width = 1 + self.num_weights
        sizes = [len(effects.labels) * len(effects.columns) for effects in self.groups]
        columns = np.eye(width + sum(sizes))
        shaped = [column for shape in self.shapes for column in shape.columns]
        of_weights = columns[1:width]
        sites = {INTERCEPT: columns[:1], WEIGHTS: of_weights}
        sites[LINES] = np.delete(of_weights, shaped, axis=0)
        sites |= {f"mean_{name}": rows for name, rows in sites.items()}
        sites |= {shape.name: of_weights[[*shape.columns]] for shape in self.shapes}
        for effects, size in zip(self.groups, sizes, strict=True):
            sites[effects.name] = columns[width : width + size]
            contrasts = _contrasts(len(effects.labels)).T
            mixed = np.kron(contrasts, np.eye(len(effects.columns))) @ sites[effects.name]
            sites[sites_of(effects.name)[1]] = mixed
            width += size
        return sites

    @property
    def clipping_correction(self) -> Callable[..., jax.Array] | None:
        """``_correction``, where expectations over responses are taken: where events are censored,
        nobody knows when others would have been.
        """
        is_one = self.family.centres and not self._predictors and "observed" not in self.arrays
        return self._correction if is_one else None

    def _correction(
        self, shared: Mapping[str, Any], records: tuple[jax.Array, ...], clip: jax.Array
    ) -> jax.Array:
        """Of one record, float scalar: its gradient in ``shared`` is the shift that ``centring``
        explains.

        :param shared: values of the sites that records use. :param records: arrays of one record,
            with an axis of records.
        """
        arrays = dict(zip(self.arrays, records, strict=False))
        with handlers.seed(rng_seed=0), handlers.substitute(data=dict(shared)):
            values = self._latents()  # those that are not shared are not used
        sites = {name: self._site_of(name) for name in self.parameters}
        eta, parameters = self.predictor(values, arrays)[0], [shared[s] for s in sites.values()]
        is_pivotal, extras = self.family.is_pivotal, self._extras(arrays)
        # nothing of a record in the former: under vmap the same for all
        point = jax.lax.stop_gradient(jnp.stack([0.0 if is_pivotal else eta, *parameters]))

        def values_of(coordinates: jax.Array) -> dict[str, jax.Array]:
            factors = self.family.logarithms
            return {
                name: jnp.exp(factors[name] * value) if name in factors else value
                for name, value in zip(sites, coordinates[1:], strict=True)
            }

        def log_density(coordinates: jax.Array, y: jax.Array) -> jax.Array:
            predictor = jnp.broadcast_to(coordinates[0], y.shape)
            return self.family.likelihood(
                self.response, predictor, values_of(coordinates), **extras
            ).log_prob(y)

        alone = {name: array[0] for name, array in extras.items()}
        nodes = self.family.nodes(self.response, point[0], values_of(point), **alone)
        shifted = shift_of_square if is_pivotal else shift
        a = shifted(log_density, point, nodes, self._square(arrays), clip)
        return jnp.dot(a, jnp.stack([eta, *parameters]))

    def _square(self, arrays: Mapping[str, jax.Array]) -> jax.Array:
        """That of the gradient of one record's predictor in the sites that records use."""
        total = jnp.sum(arrays["x"] ** 2) + (self.intercept is not None)
        for effects in self.groups:
            columns = arrays[f"{effects.name}_x"] if effects.block.columns else jnp.zeros(())
            count = len(effects.labels)
            within = 1 - 1 / count if effects.name in self.shared else 1.0
            total = total + within * (effects.block.intercept + jnp.sum(columns**2))
        return total

    def _site_of(self, parameter: str) -> str:
        return log_site_of(parameter) if parameter in self.family.logarithms else parameter

    def outcome(self, values: Mapping[str, Any], *inputs: jax.Array) -> dist.Distribution:
        """The distribution of the responses of records under one draw, as the model has them."""
        return self.likelihood(values, dict(zip(self.arrays, inputs, strict=False)))

    def predict(self, values: Mapping[str, Any], *inputs: jax.Array) -> jax.Array:
        """The expected response of each record under one draw, in own units; of classes their
        probabilities.
        """
        arrays = dict(zip(self.arrays, inputs, strict=False))
        parameters = {name: values[name] for name in self.parameters}
        return self.family.mean(
            self.response, self.predictor(values, arrays), parameters, **self._extras(arrays)
        )


def _contrasts(count: int) -> np.ndarray:
    """Helmert's, float32[L, L - 1]: orthonormal columns that are orthogonal to 1."""
    steps = np.arange(1, count)
    columns = np.triu(np.ones((count, count - 1))) - np.vstack(
        [np.zeros(count - 1), np.diag(steps)]
    )
    return (columns / np.sqrt(steps * (steps + 1))).astype(np.float32)


def _with(name: str, prior: dist.Distribution, shift: jax.Array | None) -> jax.Array:
    """A latent with this prior plus ``shift``, which records use; the latent itself is then
    deterministic.
    """
    if shift is None:
        return numpyro.sample(name, prior)
    total = numpyro.sample(f"mean_{name}", moved(prior, shift))
    numpyro.deterministic(name, total - shift)
    return total


def log_site_of(parameter: str) -> str:
    """The site of a parameter's logarithm."""
    return f"log_{parameter}"


def _by_logarithm(name: str, prior: dist.Distribution, factor: float) -> jax.Array:
    """A latent with this prior, of which records use the logarithm over ``factor``; the latent
    itself is then deterministic.
    """
    scaled = numpyro.sample(log_site_of(name), LogarithmOver(prior, factor))
    return numpyro.deterministic(name, jnp.exp(factor * scaled))


def _identifier(name: str) -> str:
    """A name that a signature may have."""
    return (
        name
        if name.isidentifier()
        else "".join(character if character.isalnum() else "_" for character in f"_{name}")
    )
