"""The NumPyro model of a formula.

    eta_i = intercept + x_i . weights + sum over groups of effects_group(i) . (1, x of the group)_i
    y_i   ~ family(link(mean) = shift + scale eta_i, further parameters)       for each record i

    weights, intercept, further parameters ~ priors from the declared bounds, or the user's
    effects_l = sd * z_l,   z_l ~ Normal(0, 1),   sd ~ HalfNormal    for each group and column

Everything but y is global, groups' effects too: a group has many records. They are not centred, so
that few records or much noise leave no funnel. Effects of one group are independent of each other,
as in bambi: ``(1 + x | g)`` is ``(1 + x || g)``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import init_to_feasible
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from workbench.formula.design import Effects, sd_of
from workbench.formula.families import Family, Response
from workbench.formula.priors import side_by_side

__all__ = ["INTERCEPT", "WEIGHTS", "Joint", "MeanField", "Regression"]

INTERCEPT, WEIGHTS = "intercept", "weights"
_LEAST = 1e-6  # of the lower bound of an exposure, whose logarithm is taken
_INITIAL_SCALE = 0.1  # of the guide: narrow, so that early steps see a mean rather than the prior


class MeanField(AutoNormal):
    """Independent normals, which begin around 0."""

    def __init__(self, model: Callable) -> None:
        super().__init__(model, init_loc_fn=init_to_feasible, init_scale=_INITIAL_SCALE)


class Joint(AutoMultivariateNormal):
    """One normal with all covariances, which begins around 0."""

    def __init__(self, model: Callable) -> None:
        super().__init__(model, init_loc_fn=init_to_feasible, init_scale=_INITIAL_SCALE)


@dataclass(frozen=True, eq=False)
class Regression:
    """The NumPyro model; record arrays first, in the order of ``arrays``, then ``num_records``.

    :param arrays: "x", for each group its index and maybe its own columns, the family's extras,
        "y".
    :param weights: the priors of the weights. :param intercept: that of the intercept; None without
        one.
    :param sds: those of each group's standard deviations. :param parameters: those of the family's
        further latents.
    """

    family: Family
    response: Response
    arrays: tuple[str, ...]
    groups: tuple[Effects, ...]
    weights: Sequence[dist.Distribution]
    intercept: dist.Distribution | None
    sds: Mapping[str, Sequence[dist.Distribution]]
    parameters: Mapping[str, dist.Distribution]

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

    def _latents(self) -> dict[str, Any]:
        """All global latents, by site, and the groups' effects by group."""
        several = self._predictors
        values = {name: numpyro.sample(name, prior) for name, prior in self.parameters.items()}
        if self.intercept is not None:
            prior = self.intercept.expand([several]).to_event(1) if several else self.intercept
            values[INTERCEPT] = numpyro.sample(INTERCEPT, prior)
        if self.weights:
            values[WEIGHTS] = numpyro.sample(WEIGHTS, side_by_side(self.weights, several))
        for effects in self.groups:
            sd = numpyro.sample(sd_of(effects.name), side_by_side(self.sds[effects.name], several))
            shape = (len(effects.labels), *sd.shape)
            z = numpyro.sample(
                f"{effects.name}_z", dist.Normal(0, 1).expand(shape).to_event(len(shape))
            )
            values[effects.name] = numpyro.deterministic(effects.name, z * sd)
        return values

    def predictor(self, values: Mapping[str, Any], arrays: Mapping[str, jax.Array]) -> jax.Array:
        """eta of each record, float[B] or float[B, K - 1].

        :param values: of the sites. :param arrays: record arrays by name.
        """
        x = arrays["x"]
        shape = (x.shape[0], self._predictors) if self._predictors else (x.shape[0],)
        eta = x @ values[WEIGHTS] if self.weights else jnp.zeros(shape)
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

    def predict(self, values: Mapping[str, Any], *inputs: jax.Array) -> jax.Array:
        """The expected response of each record under one draw, in own units; of classes their
        probabilities.
        """
        arrays = dict(zip(self.arrays, inputs, strict=False))
        parameters = {name: values[name] for name in self.parameters}
        return self.family.mean(
            self.response, self.predictor(values, arrays), parameters, **self._extras(arrays)
        )


def _identifier(name: str) -> str:
    """A name that a signature may have."""
    return (
        name
        if name.isidentifier()
        else "".join(character if character.isalnum() else "_" for character in f"_{name}")
    )
