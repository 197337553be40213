"""The networks of ``neural_classifier``, written with equinox: fully connected, convolutional,
recurrent, transformer.

A network is called with one record and returns float[num_classes], one logit per class. It begins
with ``jax.ShapeDtypeStruct`` leaves, which ``filled`` replaces by arrays. Weights are of size 1: a
layer divides its result by the square root of the number of its inputs, and a bias counts as one
more input. So one learning rate suits layers of all widths, noise of one size moves a narrow layer
no less than a wide one, and one prior fits all.

Normalisation is over the entries of one record (LayerNorm, GroupNorm). It has no weights of its
own, because these would get noise too, and the next layer has weights. Batch statistics mix
records, so they are not possible.

References: Hochreiter and Schmidhuber 1997 (LSTM); Cho et al. 2014 (GRU); Vaswani et al. 2017 and
Xiong et al. 2020 (the transformer, and where it normalises); De et al. 2022, arXiv 2204.13650
(GroupNorm under differential privacy).
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["filled", "skeleton", "weight_shapes"]

Array = jax.Array

_WIDTHS = {"fcnn": 64, "cnn": 32, "lstm": 64, "gru": 64, "transformer": 32}
_GROUPS = 4  # of channels, at most
_WIDENING = 2  # of a transformer's inner layer


def _leaf(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _normalised(x: Array, axes: int | tuple[int, ...] = -1) -> Array:
    """Mean 0 and variance 1 over ``axes``."""
    centred = x - x.mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + 1e-5)


# ---- layers --------------------------------------------------------------------------------------


class _Linear(eqx.Module):
    """float[..., inputs] -> float[..., outputs]."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight, self.bias = _leaf(inputs, outputs), _leaf(outputs)

    def __call__(self, x: Array) -> Array:
        return (x @ self.weight + self.bias) * self.weight.shape[0] ** -0.5


class _Embedding(eqx.Module):
    """Token ids int[T] -> float[T, width]."""

    weight: Array

    def __init__(self, vocabulary_size: int, width: int) -> None:
        self.weight = _leaf(vocabulary_size, width)

    def __call__(self, tokens: Array) -> Array:
        return self.weight[tokens]


class _Convolution(eqx.Module):
    """A 3 by 3 convolution with stride 2: float[H, W, inputs] -> float[H / 2, W / 2, outputs],
    sides rounded up.
    """

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight, self.bias = _leaf(3, 3, inputs, outputs), _leaf(outputs)

    def __call__(self, x: Array) -> Array:
        layout = ("NHWC", "HWIO", "NHWC")
        summed = jax.lax.conv_general_dilated(
            x[None], self.weight, (2, 2), "SAME", dimension_numbers=layout
        )[0]
        return (summed + self.bias) * math.prod(self.weight.shape[:3]) ** -0.5


class _Recurrent(eqx.Module):
    """One LSTM or GRU layer: float[T, inputs] -> float[T, hidden].

    The inputs' part of the gates is one matrix product for all times, before the scan. Only the
    state's part is in the scan.
    """

    inputs: _Linear
    state: _Linear
    cell: str = eqx.field(static=True)

    def __init__(self, inputs: int, hidden: int, cell: str) -> None:
        gates = {"gru": 3, "lstm": 4}[cell]
        self.inputs, self.state, self.cell = (
            _Linear(inputs, gates * hidden),
            _Linear(hidden, gates * hidden),
            cell,
        )

    def __call__(self, x: Array) -> Array:
        zeros = jnp.zeros(self.state.weight.shape[0], x.dtype)

        def step(carried: tuple[Array, ...], inputs: Array) -> tuple[tuple[Array, ...], Array]:
            from_state = self.state(carried[0])
            carried = (
                _gru(carried, inputs, from_state)
                if self.cell == "gru"
                else _lstm(carried, inputs, from_state)
            )
            return carried, carried[0]

        start: tuple[Array, ...] = (zeros,) if self.cell == "gru" else (zeros, zeros)
        return jax.lax.scan(step, start, self.inputs(x))[1]


def _gru(carried: tuple[Array, ...], from_inputs: Array, from_state: Array) -> tuple[Array]:
    (state,) = carried
    (reset_in, keep_in, new_in), (reset, keep, new) = (
        jnp.split(from_inputs, 3),
        jnp.split(from_state, 3),
    )
    keep = jax.nn.sigmoid(keep_in + keep)
    return (keep * state + (1 - keep) * jnp.tanh(new_in + jax.nn.sigmoid(reset_in + reset) * new),)


def _lstm(carried: tuple[Array, ...], from_inputs: Array, from_state: Array) -> tuple[Array, Array]:
    enter, keep, leave, new = jnp.split(from_inputs + from_state, 4)
    # a forget gate that starts open lets gradients reach early inputs (Jozefowicz et al. 2015)
    memory = jax.nn.sigmoid(keep + 1) * carried[1] + jax.nn.sigmoid(enter) * jnp.tanh(new)
    return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


class _Block(eqx.Module):
    """Self-attention and a layer for each position, with residual connections: float[T, width] ->
    float[T, width].
    """

    attention: _Linear
    mixed: _Linear
    inner: _Linear
    outer: _Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int) -> None:
        self.attention, self.mixed = _Linear(width, 3 * width), _Linear(width, width)
        self.inner, self.outer = (
            _Linear(width, _WIDENING * width),
            _Linear(_WIDENING * width, width),
        )
        self.heads = heads

    def __call__(self, x: Array) -> Array:
        length, width = x.shape
        projected = self.attention(_normalised(x)).reshape(
            length, 3, self.heads, width // self.heads
        )
        query, key, value = (projected[:, index] for index in range(3))
        scores = jnp.einsum("thd,shd->hts", query, key) * (width // self.heads) ** -0.5
        attended = jnp.einsum("hts,shd->thd", jax.nn.softmax(scores), value).reshape(length, width)
        x = x + self.mixed(attended)
        return x + self.outer(jax.nn.gelu(self.inner(_normalised(x))))


def _positions(length: int, width: int) -> np.ndarray:
    """Positional encoding, float32[length, width] of sines and cosines, without weights."""
    angles = np.arange(length)[:, None] / 10_000 ** (2 * (np.arange(width) // 2) / width)
    return np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles)).astype(np.float32)


# ---- networks ------------------------------------------------------------------------------------


class _Network(eqx.Module):
    """An embedding if the records are tokens, the layers, and the logits."""

    embedding: _Embedding | None
    layers: tuple[Any, ...]
    head: _Linear

    def sequence(self, x: Array) -> Array:
        """float[T, width]: embedded tokens, or the rows of an image with all their pixels and
        channels.
        """
        return x.reshape(x.shape[0], -1) if self.embedding is None else self.embedding(x)


class _FullyConnected(_Network):
    def __call__(self, x: Array) -> Array:
        features = (x if self.embedding is None else self.embedding(x)).reshape(-1)
        for layer in self.layers:
            features = jnp.tanh(layer(features))
        return self.head(features)


class _Convolutional(_Network):
    def __call__(self, x: Array) -> Array:
        features = x.reshape(*x.shape[:2], -1)
        for layer in self.layers:
            features = layer(features)
            rows, columns, channels = features.shape
            groups = features.reshape(rows, columns, math.gcd(channels, _GROUPS), -1)
            features = jnp.tanh(_normalised(groups, (0, 1, 3)).reshape(features.shape))
        return self.head(features.reshape(-1))


class _RecurrentNetwork(_Network):
    def __call__(self, x: Array) -> Array:
        features = self.sequence(x)
        for layer in self.layers:
            features = layer(features)
        return self.head(jnp.concatenate([features[-1], features.mean(axis=0)]))


class _Transformer(_Network):
    first: _Linear | None

    def __call__(self, x: Array) -> Array:
        features = self.sequence(x)
        features = features if self.first is None else self.first(features)
        features = features + _positions(*features.shape)
        for layer in self.layers:
            features = layer(features)
        return self.head(_normalised(features).mean(axis=0))


@functools.lru_cache(maxsize=64)
def skeleton(
    shape: tuple[int, ...],
    num_classes: int,
    vocabulary_size: int,
    network: str,
    hidden: int | None,
    depth: int | None,
    heads: int,
) -> Any:
    """The network for records of ``shape``, with shapes in place of its weights.

    >>> networks = wb.models.networks
    >>> network = networks.skeleton((8, 8), 10, 0, "cnn", hidden=4, depth=1, heads=1)
    >>> sum(int(np.prod(shape)) for shape in networks.weight_shapes(network).values())
    690

    :param vocabulary_size: V > 0 for tokens, int[T] in 0 .. V - 1; 0 for numbers.
    :param network: "fcnn", "cnn", "lstm", "gru" or "transformer".
    :param hidden: units, or channels of the last convolution, or the width of a transformer.
    :param depth: layers.
    :param heads: of a transformer's attention.
    """
    hidden = _WIDTHS[network] if hidden is None else hidden
    depth = (2 if network == "cnn" else 1) if depth is None else depth
    embedding = _Embedding(vocabulary_size, hidden) if vocabulary_size else None
    # numbers at each place of a sequence
    features = hidden if vocabulary_size else math.prod(shape[1:])
    if network == "fcnn":
        widths = [shape[0] * features, *[hidden] * depth]
        return _FullyConnected(embedding, _chain(_Linear, widths), _Linear(hidden, num_classes))
    if network == "cnn":
        colours = shape[2] if len(shape) == 3 else 1
        widths = [colours, *(max(1, hidden >> (depth - 1 - number)) for number in range(depth))]
        cells = math.prod(-(-side // 2**depth) for side in shape[:2])
        return _Convolutional(
            None, _chain(_Convolution, widths), _Linear(cells * hidden, num_classes)
        )
    head = _Linear(hidden, num_classes)
    if network == "transformer":
        first = None if vocabulary_size else _Linear(features, hidden)
        return _Transformer(
            embedding, tuple(_Block(hidden, heads) for _ in range(depth)), head, first
        )
    layer = functools.partial(_Recurrent, cell=network)
    # the last state depends on the order of the inputs, and the mean keeps early inputs
    head = _Linear(2 * hidden, num_classes)
    return _RecurrentNetwork(embedding, _chain(layer, [features, *[hidden] * depth]), head)


def _chain(layer: Callable[[int, int], eqx.Module], widths: list[int]) -> tuple[Any, ...]:
    return tuple(layer(inputs, outputs) for inputs, outputs in itertools.pairwise(widths))


def _name(path: tuple[Any, ...]) -> str:
    """layers_0_weight for ``.layers[0].weight``."""
    return re.sub(r"\W+", "_", jax.tree_util.keystr(path)).strip("_")


def weight_shapes(network: eqx.Module) -> dict[str, tuple[int, ...]]:
    """Shapes of a network's weights, named after their places in the network.

    >>> networks = wb.models.networks
    >>> network = networks.skeleton((30,), 2, 0, "fcnn", hidden=8, depth=1, heads=1)
    >>> networks.weight_shapes(network)
    {'layers_0_weight': (30, 8), 'layers_0_bias': (8,), 'head_weight': (8, 2), 'head_bias': (2,)}
    """
    return {
        _name(path): leaf.shape for path, leaf in jax.tree_util.tree_flatten_with_path(network)[0]
    }


def filled(network: eqx.Module, values: Mapping[str, Array]) -> Any:
    """``network`` with the weights ``values[name]``.

    >>> networks = wb.models.networks
    >>> network = networks.skeleton((30,), 2, 0, "fcnn", hidden=8, depth=1, heads=1)
    >>> weights = {
    ...     name: np.zeros(shape, "float32")
    ...     for name, shape in networks.weight_shapes(network).items()
    ... }
    >>> networks.filled(network, weights)(np.ones(30, "float32")).shape
    (2,)
    """
    return jax.tree_util.tree_map_with_path(lambda path, _: values[_name(path)], network)
