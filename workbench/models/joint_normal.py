"""``normal_table``: a joint normal distribution of all columns of a table, from one noised release.

    covariance ~ InverseWishart(D + 1, diag(s_1^2, ..., s_D^2)),  log s_j ~ Normal(log 0.1, 1)
    mean       ~ Normal(0, covariance / 0.01)
    x_i        ~ Normal(mean, covariance)                         of columns scaled to [-1, 1]

``posterior.joint_normal`` has the release and the posterior with this prior. The NumPyro model here
is for what is made of the draws: log-likelihoods and synthetic records. It has the root of the
covariance in place of the covariance, and wide normal distributions, which nothing uses, in place
of the prior.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from workbench import _validate
from workbench.data import Dataset
from workbench.data.columns import Numeric
from workbench.models.model import Model, NormalTable

__all__ = ["normal_table"]

_SITES = NormalTable("scaled_mean", "scaled_root")
_SHOWN = ("mean", "covariance", "correlation")  # the sites in the columns' own units


def _model(
    x: jax.Array | None = None,
    num_records: int | None = None,
    *,
    middle: jax.Array,
    reach: jax.Array,
) -> None:
    """:param x: float[B, D], or None to draw. :param middle: of the columns' bounds, float[D].
    :param reach: half of their distance.
    """
    size, batch = len(middle), num_records if x is None else x.shape[0]
    entries = size * (size + 1) // 2
    mean = numpyro.sample(_SITES.mean, dist.Normal(0, 1).expand([size]).to_event(1))
    lower = numpyro.sample(_SITES.root, dist.Normal(0, 1).expand([entries]).to_event(1))
    root = jnp.zeros((size, size)).at[np.tril_indices(size)].set(lower)
    with numpyro.plate("records", num_records or batch, subsample_size=batch):
        numpyro.sample("x", dist.MultivariateNormal(mean, scale_tril=root), obs=x)
    covariance = root @ root.T
    deviations = jnp.sqrt(jnp.diagonal(covariance))
    numpyro.deterministic("mean", middle + reach * mean)
    numpyro.deterministic("covariance", covariance * reach[:, None] * reach)
    numpyro.deterministic("correlation", covariance / deviations[:, None] / deviations)


def _guide(x: jax.Array | None = None, num_records: int | None = None, **static: object) -> None:
    """Nothing to draw: the posterior follows from the release."""


def _check(dataset: Dataset) -> None:
    columns = {} if dataset.schema is None else dataset.schema.columns
    numbers = [isinstance(column, Numeric) and not column.missing for column in columns.values()]
    if not numbers or not all(numbers) or tuple(dataset.arrays) != ("x",):
        raise _validate.ArgumentError(
            "data",
            dataset.name,
            "must be a table of numbers with declared bounds and no target, as of "
            "wb.data.from_frame(frame, bounds={'age': (0, 120)}, evaluation=False).",
        )


def _constants(dataset: Dataset) -> dict[str, np.ndarray]:
    bounds = np.array(list(dataset.bounds.values()), np.float64)
    return {
        "middle": bounds.mean(axis=1).astype(np.float32),
        "reach": (bounds[:, 1] / 2 - bounds[:, 0] / 2).astype(np.float32),
    }


def _coordinates(dataset: Dataset) -> dict[str, Any]:
    names = list(dataset.feature_names)
    matrices = dict.fromkeys(("covariance", "correlation"), (names, names))
    return {_SITES.mean: names, "mean": names, **matrices}


def normal_table() -> Model:
    """A joint normal distribution of all columns of a table of numbers, from one noised release of
    their first and second moments.

    Its posterior has the mean, the covariance and the correlation of the columns in their own
    units, and counts the privacy noise. ``result.twins()`` are whole tables. Bounds are declared;
    columns that fill little of them have wide intervals.

    >>> frame = pd.DataFrame({"height": np.linspace(150, 190, 500)})
    >>> frame["weight"] = frame["height"] - 100 + 10 * np.sin(np.arange(500))
    >>> bounds = {"height": (120, 220), "weight": (30, 150)}
    >>> data = wb.data.from_frame(frame, bounds=bounds, evaluation=False)
    >>> result = wb.fit(wb.models.normal_table(), data, epsilon=1.0, delta=1e-4)
    >>> result.posterior.posterior["correlation"].shape[2:]
    (2, 2)
    """
    return Model(
        name="normal_table",
        summary="Joint normal distribution of all columns, from one release of their moments.",
        model=_model,
        guide=_guide,
        check=_check,
        constants=_constants,
        coordinates=_coordinates,
        score=lambda target, predictions: {},
        sort=lambda draws, params: {name: draws[name] for name in _SHOWN},
        table=_SITES,
    )
