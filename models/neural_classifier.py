"""Neural classifier: one of K classes for each record, by a network of a kind that you choose.

    y ~ Categorical(softmax(network(x)))

    (weights) ---+     +- records N -+      point: parameters
                 +---> |    [ y ]    |      bayesian: latents, weights ~ Normal(0, prior_scale)
    (biases) ----+     +-------------+

Global latents: none for point estimates, whose fit is known as DP-SGD; every weight for a Bayesian
network, with a normal distribution for each in the guide. Local latents: none. Fits tables, images
and token sequences with a target of two or more classes. Recurrent networks and the transformer
read an image row by row. Predicts the probability of class 1 if there are two classes, or the
probability of each class. Scores are accuracy, log-likelihood and, for two classes, AUC.

The networks (workbench/models/networks.py) are written with equinox. Its modules are pytrees of
arrays that are called with one record and keep nothing between calls, so a record's gradient
depends on that record alone by construction. In flax's nnx, a module is an object with references
and state, which must be split and merged at every call, also in the body of a scan. Here weights
enter a scan as constants of its body, where book-keeping finds them.

Weights are ``numpyro.param`` or ``numpyro.sample`` sites, named after their places in the network,
such as ``layers_0_weight``. To fit your own equinox network, ``numpyro.contrib.module.eqx_module``
is enough: call ``jax.vmap(eqx_module("network", network))(x)``. A single weight says little, and
the units of a layer may change places, so summaries and pictures use the root mean square of each
layer's weights.

References: Abadi et al. 2016, "Deep learning with differential privacy"; Blundell et al. 2015,
"Weight uncertainty in neural networks"; tanh as in Papernot et al. 2021, "Tempered sigmoid
activations for deep learning with differential privacy".
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from workbench import ArgumentError, data
from workbench.models import Model, checks, pictures, scoring

__all__ = ["guide", "model", "neural_classifier", "predict"]

_Network = Literal["fcnn", "cnn", "lstm", "gru", "transformer"]
_Weights = Literal["point", "bayesian"]
_INITIAL_SCALE = (
    0.05  # of the guide; weights are of size 1, so early steps see one network and not many
)
_TRANSFORMER_WIDTH = 32  # by default, as in workbench.models.networks
_LEAST_BATCH, _LARGEST_BATCH = 256, 1000
# the others read sequences: images and tokens
_READS = {"fcnn": ("table", "images", "tokens"), "cnn": ("images",)}
_SEQUENCES = ("images", "tokens")
_RECORDS = {
    "table": "a row of a table, whose columns have no order",
    "images": "an image",
    "tokens": "a sequence of tokens",
}


def _skeleton(x, num_classes, vocabulary_size, network, hidden, depth, heads) -> Any:
    from workbench.models.networks import skeleton  # equinox takes time to import

    return skeleton(x.shape[1:], num_classes, vocabulary_size, network, hidden, depth, heads)


def _starting_value(name: str, shape: tuple[int, ...], key: jax.Array) -> jax.Array:
    return jnp.zeros(shape) if name.endswith("bias") else jax.random.normal(key, shape)


def model(
    x,
    y=None,
    num_records=None,
    num_classes=2,
    vocabulary_size=0,
    network="fcnn",
    weights="point",
    hidden=None,
    depth=None,
    heads=4,
    prior_scale=1.0,
):
    """The NumPyro model.

    ``x``: float[B, D], float[B, H, W(, C)], or tokens int[B, T] where ``vocabulary_size`` is not 0;
    ``y``: int[B] or None.
    """
    from workbench.models.networks import filled, weight_shapes

    shaped = _skeleton(x, num_classes, vocabulary_size, network, hidden, depth, heads)
    values = {}
    for name, shape in weight_shapes(shaped).items():
        if weights == "point":
            values[name] = numpyro.param(name, functools.partial(_starting_value, name, shape))
        else:
            values[name] = numpyro.sample(
                name, dist.Normal(0, prior_scale).expand(shape).to_event()
            )
    logits = jax.vmap(filled(shaped, values))(x)
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def guide(
    x,
    y=None,
    num_records=None,
    num_classes=2,
    vocabulary_size=0,
    network="fcnn",
    weights="point",
    hidden=None,
    depth=None,
    heads=4,
    prior_scale=1.0,
):
    """A normal for each weight of a Bayesian network; nothing for point estimates."""
    from workbench.models.networks import weight_shapes

    if weights == "point":
        return
    shaped = _skeleton(x, num_classes, vocabulary_size, network, hidden, depth, heads)
    for name, shape in weight_shapes(shaped).items():
        location = numpyro.param(f"{name}_loc", functools.partial(_starting_value, name, shape))
        scale = numpyro.param(
            f"{name}_scale",
            jnp.full(shape, _INITIAL_SCALE),
            constraint=constraints.softplus_positive,
        )
        numpyro.sample(name, dist.Normal(location, scale).to_event())


def predict(
    values: dict[str, jax.Array], x: jax.Array, network="fcnn", hidden=None, depth=None, heads=4
) -> jax.Array:
    """Probability of class 1, float[B], or of each of K > 2 classes, float[B, K], under one draw of
    the weights.

    :param values: weights by name. :param network: and the other options, as in the fit.
    """
    from workbench.models.networks import filled

    vocabulary_size = values["embedding_weight"].shape[0] if "embedding_weight" in values else 0
    shaped = _skeleton(
        x, values["head_bias"].shape[0], vocabulary_size, network, hidden, depth, heads
    )
    probabilities = jax.nn.softmax(jax.vmap(filled(shaped, values))(x))
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities


def _layer_sizes(
    draws: dict[str, np.ndarray], params: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Root mean square over the entries of each weight, float[draws]."""
    return {
        f"{name}_rms": np.sqrt(
            np.mean(np.square(value, dtype=np.float64), axis=tuple(range(1, value.ndim)))
        )
        for name, value in draws.items()
    }


def _records_of(dataset: data.Dataset) -> str:
    """ "table", "images" or "tokens".

    :raises ArgumentError: naming ``data``, for records of another form or without classes.
    """
    x = dataset.train[0]
    if dataset.vocabulary_size:
        form = "tokens"
    elif dataset.image_shape:
        form = "images"
    elif x.ndim == 2 and np.issubdtype(x.dtype, np.floating):
        form = "table"
    else:
        raise ArgumentError(
            "data", dataset.name, "must be a table, images or token sequences for the classifier."
        )
    if len(dataset.classes) < 2:
        raise ArgumentError(
            "data",
            dataset.name,
            "must have a target of two or more named classes for the classifier.",
        )
    return form


def _check(dataset: data.Dataset, network: str) -> None:
    form = _records_of(dataset)
    fitting = [name for name in get_args(_Network) if form in _READS.get(name, _SEQUENCES)]
    if network not in fitting:
        raise ArgumentError(
            "network",
            network,
            f"reads {'images' if network == 'cnn' else 'images and token sequences'}, but a "
            f"record of {dataset.name!r} is {_RECORDS[form]}; choose "
            f"{' or '.join(map(repr, fitting))}.",
        )


def _constants(dataset: data.Dataset) -> dict[str, Any]:
    return {"num_classes": len(dataset.classes), "vocabulary_size": int(dataset.vocabulary_size)}


def _advice(dataset: data.Dataset, num_records: int, epsilon: float) -> dict[str, Any]:
    """Fewer and larger steps than for other models, because the noise in every weight grows with
    the root of their number.

    Clipping nearly all gradients, at norm 1, suits all networks here. Measured on digits and Adult.
    """
    steps = 100 * math.ceil(0.25 * num_records ** (1 / 3) - 1e-9)
    return {
        "iterations": steps,
        "batch_size": max(_LEAST_BATCH, min(_LARGEST_BATCH, num_records // 10)),
        "clip": 1.0,
        "learning_rate": 2 / math.sqrt(steps),
        "average": True,
    }


def neural_classifier(
    network: _Network = "fcnn",
    weights: _Weights = "point",
    hidden: int | None = None,
    depth: int | None = None,
    heads: int = 4,
    prior_scale: float = 1.0,
) -> Model:
    """Neural classifier.

    >>> model = wb.models.get("neural_classifier", network="cnn", hidden=16)
    >>> model.name, model.options["hidden"]
    ('neural_classifier', 16)

    :param network: "fcnn", layers of tanh units, for all data; "cnn", 3 by 3 convolutions that
        halve height and width, for images; "lstm", "gru" and "transformer" for token sequences, and
        for images, which they read row by row.
    :param weights: "point", one value for each weight (DP-SGD), or "bayesian", a normal
        distribution for each.
    :param hidden: units of a layer, channels of the last convolution, or width of the transformer
        and of the embedding of tokens. By default 64, for "cnn" and "transformer" 32.
    :param depth: number of layers, 1 by default, 2 for "cnn".
    :param heads: of the transformer's attention; they divide its width.
    :param prior_scale: standard deviation of a Bayesian network's weights, of which a layer adds up
        as many as it has inputs and divides by the square root of their number.
    """
    checks.choice("network", network, get_args(_Network))
    if hidden is not None:
        hidden = checks.integer("hidden", hidden, at_least=1)
    if depth is not None:
        depth = checks.integer("depth", depth, at_least=1, at_most=20)
    heads = checks.integer("heads", heads, at_least=1)
    width = _TRANSFORMER_WIDTH if hidden is None else hidden
    if network == "transformer" and width % heads:
        raise ArgumentError(
            "heads", heads, f"must divide the width of the transformer, hidden={width}."
        )
    layout: dict[str, Any] = {"network": network, "hidden": hidden, "depth": depth, "heads": heads}
    return Model(
        name="neural_classifier",
        summary="Neural classifier: one of several classes from tables, images or tokens, by a "
        "network of your choice.",
        model=model,
        guide=guide,
        predict=functools.partial(predict, **layout),
        score=scoring.class_scores,
        check=functools.partial(_check, network=network),
        constants=_constants,
        arrays=("x", "y"),
        options={
            **layout,
            "weights": checks.choice("weights", weights, get_args(_Weights)),
            "prior_scale": checks.number("prior_scale", prior_scale, above=0),
        },
        defaults=_advice,
        sort=_layer_sizes,
        pictures={"confusion": pictures.confusion},
        reference="Abadi et al. 2016; Blundell et al. 2015",
        is_for_scaled=True,
    )
