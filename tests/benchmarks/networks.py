"""The networks on which papers time per-record clipping (experiments.md, E5), in plain JAX, one
record at a time.

Five are those of Subramani et al. 2021 (Enabling Fast Differentially Private SGD via Just-in-Time
Compilation and Vectorization); their sizes follow from the numbers of parameters that the paper
gives. For its network for Adult it prints 5 532, which no hidden layer reaches; 104-50-2, the
network of its published program, has 5 352. Needs jax only, for a peer imports it in an environment
of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from problems import NUM_FEATURES, NUM_TOKENS, RECORDS, VOCABULARY

__all__ = ["NETWORKS", "Network"]


@dataclass(frozen=True)
class Network:
    """A network that says one of several classes.

    :param shapes: ``{layer: {parameter: shape}}``. :param logits: ``logits(params, x)`` of one
        record.
    :param num_parameters: what ``shapes`` must add up to.
    """

    name: str
    shapes: dict[str, dict[str, tuple[int, ...]]]
    logits: Callable[[Any, jax.Array], jax.Array]
    num_parameters: int
    batch: int = 128
    clip: float = 1.0
    noise_multiplier: float = 1.0
    learning_rate: float = 0.01

    def init(self, key: jax.Array) -> dict[str, dict[str, jax.Array]]:
        """Biases of zero, scales of one, and normal weights whose variance is one over the number
        of inputs.
        """
        places = jax.tree.structure(self.shapes, is_leaf=lambda node: isinstance(node, tuple))
        keys = jax.tree.unflatten(places, list(jax.random.split(key, places.num_leaves)))
        params = {
            layer: {name: _drawn(keys[layer][name], name, shape) for name, shape in shapes.items()}
            for layer, shapes in self.shapes.items()
        }
        count = sum(leaf.size for leaf in jax.tree.leaves(params))
        if count != self.num_parameters:
            raise AssertionError(f"{self.name} has {count} parameters, not {self.num_parameters}.")
        return params

    def loss(self, params: Any, record: tuple[jax.Array, jax.Array]) -> jax.Array:
        """Cross-entropy of one record (x, y)."""
        x, y = record
        return -jax.nn.log_softmax(self.logits(params, x))[y]

    def records(self, num_records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Random records of the right shapes."""
        return tuple(RECORDS[self.name](num_records, seed))


def _drawn(key, name, shape):
    if name == "bias":
        return jnp.zeros(shape)
    if name == "scale":
        return jnp.ones(shape)
    deviation = 0.1 if name == "table" else math.prod(shape[:-1]) ** -0.5
    return deviation * jax.random.normal(key, shape)


# --- layers ---------------------------------------------------------------------------------------


def _dense_shapes(inputs, outputs):
    return {"kernel": (inputs, outputs), "bias": (outputs,)}


def _conv_shapes(size, inputs, outputs):
    return {"kernel": (size, size, inputs, outputs), "bias": (outputs,)}


def _dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def _conv(layer, image, stride=1, padding="SAME"):
    """[height, width, channels] -> the same with other channels."""
    dimensions = ("NHWC", "HWIO", "NHWC")
    out = lax.conv_general_dilated(
        image[None], layer["kernel"], (stride, stride), padding, dimension_numbers=dimensions
    )
    return out[0] + layer["bias"]


def _max_pool(image):
    """The largest of 2 by 2 neighbours, at every place."""
    return lax.reduce_window(image, -jnp.inf, lax.max, (2, 2, 1), (1, 1, 1), "VALID")


def _mean_pool(image):
    """Means of 2 by 2 neighbours, half as many in each direction."""
    height, width, channels = image.shape
    return image.reshape(height // 2, 2, width // 2, 2, channels).mean((1, 3))


def _layer_norm(layer, x):
    centred = x - x.mean(-1, keepdims=True)
    return (
        layer["scale"] * centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        + layer["bias"]
    )


def _cell_shapes(inputs, hidden, gates):
    return {
        "inputs": (inputs, gates * hidden),
        "recurrent": (hidden, gates * hidden),
        "bias": (gates * hidden,),
    }


def _lstm(layer, sequence):
    """Hidden states, [T, hidden]. What the inputs add to the gates is one product for all times,
    outside the loop.
    """
    hidden = layer["recurrent"].shape[0]

    def step(state, from_input):
        short, long = state
        write, read, keep, new = jnp.split(from_input + short @ layer["recurrent"], 4)
        long = jax.nn.sigmoid(keep) * long + jax.nn.sigmoid(write) * jnp.tanh(new)
        short = jax.nn.sigmoid(read) * jnp.tanh(long)
        return (short, long), short

    from_inputs = sequence @ layer["inputs"] + layer["bias"]
    return lax.scan(step, (jnp.zeros(hidden), jnp.zeros(hidden)), from_inputs)[1]


def _rnn(layer, sequence):
    """The last hidden state of h = tanh(W x + U h + b)."""

    def step(hidden, from_input):
        return jnp.tanh(from_input + hidden @ layer["recurrent"]), None

    from_inputs = sequence @ layer["inputs"] + layer["bias"]
    return lax.scan(step, jnp.zeros(layer["recurrent"].shape[0]), from_inputs)[0]


# --- networks -------------------------------------------------------------------------------------


def _fcnn(params, x):
    return _dense(params["output"], jax.nn.relu(_dense(params["hidden"], x)))


def _mnist_cnn(params, x):
    image = _max_pool(jax.nn.relu(_conv(params["first"], x[:, :, None], stride=2)))
    image = _max_pool(jax.nn.relu(_conv(params["second"], image, stride=2, padding="VALID")))
    return _dense(params["output"], jax.nn.relu(_dense(params["hidden"], image.reshape(-1))))


CIFAR_CHANNELS = (3, 32, 32, 64, 64, 128, 128, 256, 10)


def _cifar_cnn(params, image):
    last = len(CIFAR_CHANNELS) - 2
    for number in range(last):
        image = jax.nn.relu(_conv(params[f"conv{number}"], image))
        if number in (1, 3, 5):
            image = _mean_pool(image)
    return _conv(params[f"conv{last}"], image).mean((0, 1))


def _imdb_lstm(params, tokens):
    return _dense(params["output"], _lstm(params["lstm"], params["words"]["table"][tokens]).mean(0))


def _embedding(params, tokens):
    return _dense(params["output"], params["words"]["table"][tokens].mean(0))


def _mlp(params, x):
    hidden = jax.nn.relu(_dense(params["first"], x.reshape(-1)))
    return _dense(params["output"], jax.nn.relu(_dense(params["second"], hidden)))


def _row_rnn(params, image):
    return _dense(params["output"], _rnn(params["rnn"], image))


def _row_lstm(params, image):
    return _dense(params["output"], _lstm(params["lstm"], image)[-1])


HEADS, WIDTH, FEED_FORWARD = 4, 128, 256


def _positions():
    """Sines and cosines of the place of a word, [T, WIDTH]."""
    angles = np.arange(NUM_TOKENS)[:, None] / 10_000 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _attention(params, x):
    query, key, value = (
        _dense(params[name], x).reshape(len(x), HEADS, -1) for name in ("query", "key", "value")
    )
    weights = jax.nn.softmax(jnp.einsum("shd,thd->hst", query, key) * (WIDTH // HEADS) ** -0.5)
    return _dense(params["mixed"], jnp.einsum("hst,thd->shd", weights, value).reshape(len(x), -1))


def _transformer(params, tokens):
    x = params["words"]["table"][tokens] + _positions()
    x = _layer_norm(params["first_norm"], x + _attention(params, x))
    fed = _dense(params["narrow"], jax.nn.relu(_dense(params["wide"], x)))
    return _dense(params["output"], _layer_norm(params["second_norm"], x + fed).mean(0))


_NORM = {"scale": (WIDTH,), "bias": (WIDTH,)}

_ALL = (
    Network(
        "fcnn",
        {"hidden": _dense_shapes(NUM_FEATURES, 50), "output": _dense_shapes(50, 2)},
        _fcnn,
        5_352,
    ),
    Network(
        "mnist_cnn",
        {
            "first": _conv_shapes(8, 1, 16),
            "second": _conv_shapes(4, 16, 32),
            "hidden": _dense_shapes(512, 32),
            "output": _dense_shapes(32, 10),
        },
        _mnist_cnn,
        26_010,
    ),
    Network(
        "cifar_cnn",
        {
            f"conv{number}": _conv_shapes(3, *CIFAR_CHANNELS[number : number + 2])
            for number in range(8)
        },
        _cifar_cnn,
        605_226,
    ),
    Network(
        "imdb_lstm",
        {
            "words": {"table": (VOCABULARY, 100)},
            "lstm": _cell_shapes(100, 100, 4),
            "output": _dense_shapes(100, 2),
        },
        _imdb_lstm,
        1_081_002,
    ),
    Network(
        "embedding",
        {"words": {"table": (VOCABULARY, 16)}, "output": _dense_shapes(16, 2)},
        _embedding,
        160_098,
    ),
    Network(
        "mlp",
        {
            "first": _dense_shapes(784, 128),
            "second": _dense_shapes(128, 256),
            "output": _dense_shapes(256, 10),
        },
        _mlp,
        136_074,
    ),
    Network(
        "row_rnn",
        {"rnn": _cell_shapes(28, 128, 1), "output": _dense_shapes(128, 10)},
        _row_rnn,
        21_386,
    ),
    Network(
        "row_lstm",
        {"lstm": _cell_shapes(28, 128, 4), "output": _dense_shapes(128, 10)},
        _row_lstm,
        81_674,
    ),
    Network(
        # one encoder block, as Lee and Kifer 2021 have it, of a width that two cores can bear
        "transformer",
        {
            "words": {"table": (VOCABULARY, WIDTH)},
            **{name: _dense_shapes(WIDTH, WIDTH) for name in ("query", "key", "value", "mixed")},
            "first_norm": _NORM,
            "wide": _dense_shapes(WIDTH, FEED_FORWARD),
            "narrow": _dense_shapes(FEED_FORWARD, WIDTH),
            "second_norm": _NORM,
            "output": _dense_shapes(WIDTH, 2),
        },
        _transformer,
        1_413_250,
    ),
)
NETWORKS = {network.name: network for network in _ALL}
