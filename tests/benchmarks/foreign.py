"""Networks as flax, equinox and papers write them, whose kernels are made of others before a record
meets them.

Each is ``(params, loss(params, record), records(count))``.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

__all__ = ["FOREIGN"]

INPUTS, HIDDEN, CLASSES, TOKENS, VOCABULARY = 784, 256, 10, 256, 10_000


def _rows(count, *shape):
    random = np.random.default_rng(0)
    return random.normal(size=(count, *shape)).astype(np.float32), random.integers(
        0, CLASSES, count
    )


def _words(count):
    random = np.random.default_rng(0)
    return random.integers(0, VOCABULARY, (count, TOKENS)), random.integers(0, CLASSES, count)


def _network(init, logits, records):
    def loss(params, record):
        x, y = record
        return -jax.nn.log_softmax(logits(params, x).astype(jnp.float32))[y]

    return jax.jit(init)(jax.random.key(0)), loss, records


def _of_flax(module, *shape):
    return _network(
        lambda key: module.init(key, jnp.zeros(shape)),
        module.apply,
        lambda count: _rows(count, *shape),
    )


class _Dense(nn.Module):
    """Two dense layers. :param wrap: around each, a module that prepares its kernel."""

    dtype: jnp.dtype | None = None
    wrap: type | None = None

    @nn.compact
    def __call__(self, x):
        first, second = nn.Dense(HIDDEN, dtype=self.dtype), nn.Dense(CLASSES, dtype=self.dtype)
        if self.wrap is not None:
            first, second = self.wrap(first), self.wrap(second)
        return second(nn.relu(first(x)))


class _Convolutions(nn.Module):
    dtype: jnp.dtype | None = None

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(16, (3, 3), strides=2, dtype=self.dtype)(x))
        x = nn.relu(nn.Conv(32, (3, 3), strides=2, dtype=self.dtype)(x))
        return nn.Dense(CLASSES, dtype=self.dtype)(x.reshape(-1))


class _Recurrent(nn.Module):
    cell: type

    @nn.compact
    def __call__(self, x):
        return nn.Dense(CLASSES)(nn.RNN(self.cell(128))(x)[-1])


class _Mixer(nn.Module):
    """A block of MLP-Mixer, for nn.scan over blocks."""

    @nn.compact
    def __call__(self, x, _):
        tokens, channels = x.shape
        y = nn.LayerNorm()(x).T
        x = x + nn.Dense(tokens)(nn.gelu(nn.Dense(64)(y))).T
        y = nn.LayerNorm()(x)
        return x + nn.Dense(channels)(nn.gelu(nn.Dense(128)(y))), None


class _Mixers(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(64)(x)
        x, _ = nn.scan(
            _Mixer, variable_axes={"params": 0}, split_rngs={"params": True}, length=4
        )()(x, None)
        return nn.Dense(CLASSES)(x.mean(0))


def _vmapped_embedding():
    table = eqx.nn.Embedding(VOCABULARY, 16, key=jax.random.key(0))
    output = eqx.nn.Linear(16, CLASSES, key=jax.random.key(1))
    params, rest = eqx.partition((table, output), eqx.is_inexact_array)

    def logits(params, tokens):
        table, output = eqx.combine(params, rest)
        return output(jax.vmap(table)(tokens).mean(0))

    return _network(lambda key: params, logits, _words)


def _normal(*shapes):
    def init(key):
        keys = jax.random.split(key, len(shapes))
        return [
            jax.random.normal(key, shape) * shape[0] ** -0.5
            for key, shape in zip(keys, shapes, strict=True)
        ]

    return init


def _merged_lora():
    def logits(params, x):
        kernel, left, right, output = params
        return nn.relu(x @ (kernel + left @ right)) @ output

    return _network(
        _normal((INPUTS, HIDDEN), (INPUTS, 8), (8, HIDDEN), (HIDDEN, CLASSES)),
        logits,
        lambda n: _rows(n, INPUTS),
    )


def _masked():
    """MADE (Germain et al. 2015): entries of the kernels are masked."""
    random = np.random.default_rng(0)
    degrees = [random.integers(0, 50, size) for size in (INPUTS, HIDDEN, CLASSES)]
    masks = [
        (before[:, None] <= after).astype(np.float32)
        for before, after in itertools.pairwise(degrees)
    ]

    def logits(params, x):
        for kernel, mask in zip(params, masks, strict=True):
            x = nn.relu(x) @ (kernel * mask)
        return x

    return _network(
        _normal((INPUTS, HIDDEN), (HIDDEN, CLASSES)), logits, lambda n: _rows(n, INPUTS)
    )


def _codes():
    """A kernel that a linear hypernetwork makes from codes of its rows."""

    def logits(params, x):
        codes, decoder, output = params
        return nn.relu(x @ (codes @ decoder)) @ output

    return _network(
        _normal((INPUTS, 16), (16, HIDDEN), (HIDDEN, CLASSES)), logits, lambda n: _rows(n, INPUTS)
    )


def _one_code():
    """A kernel that a linear hypernetwork makes from a single code."""

    def logits(params, x):
        code, decoder, output = params
        return nn.relu(x @ (code @ decoder).reshape(INPUTS, 32)) @ output

    return _network(
        _normal((8,), (8, INPUTS * 32), (32, CLASSES)), logits, lambda n: _rows(n, INPUTS)
    )


def _kan():
    """Kolmogorov-Arnold network with Gaussian bumps, and a scale for each edge."""
    centres = np.linspace(-2, 2, 8, dtype=np.float32)

    def layer(base, bumps, scale, x):
        basis = jnp.exp(-jnp.square(x[:, None] - centres)).reshape(-1)
        return base @ nn.silu(x) + (bumps * scale[..., None]).reshape(scale.shape[0], -1) @ basis

    def logits(params, x):
        return layer(*params[3:], layer(*params[:3], x))

    sizes = [(64, 32), (32, CLASSES)]
    shapes = [shape for i, o in sizes for shape in ((o, i), (o, i, 8), (o, i))]
    return _network(_normal(*shapes), logits, lambda n: _rows(n, 64))


def _experts():
    """Two of eight experts, their kernels gathered by the routing."""

    def logits(params, x):
        router, up, down, output = params
        gates, chosen = jax.lax.top_k(nn.softmax(x @ router), 2)
        hidden = nn.relu(jnp.einsum("p,kpd->kd", x, up[chosen]))
        return jnp.einsum("k,kd,kdp->p", gates, hidden, down[chosen]) @ output

    return _network(
        _normal((64, 8), (8, 64, 128), (8, 128, 64), (64, CLASSES)), logits, lambda n: _rows(n, 64)
    )


def _s4d():
    """A diagonal state space model (Gu et al. 2022), its kernel convolved by FFT."""

    def logits(params, x):
        inputs, log_real, imaginary, c, d, step, output = params
        x = x @ inputs  # [T, H]
        rate = (-jnp.exp(log_real) + 1j * imaginary) * jnp.exp(step)[:, None]
        powers = jnp.exp(rate[..., None] * jnp.arange(x.shape[0]))
        kernel = 2 * jnp.real(jnp.einsum("hn,hnt->ht", c[0] + 1j * c[1], powers)).T
        size = 2 * x.shape[0]
        y = jnp.fft.irfft(
            jnp.fft.rfft(x, size, axis=0) * jnp.fft.rfft(kernel, size, axis=0), size, axis=0
        )[: x.shape[0]]
        return nn.gelu(y + d * x).mean(0) @ output

    shapes = ((28, 64), (64, 16), (64, 16), (2, 64, 16), (64,), (64,), (64, CLASSES))
    return _network(_normal(*shapes), logits, lambda n: _rows(n, 28, 28))


# each builds its network, so that a benchmark pays for those asked for
FOREIGN = {
    "dense, float32": lambda: _of_flax(_Dense(), INPUTS),
    "dense, bfloat16": lambda: _of_flax(_Dense(dtype=jnp.bfloat16), INPUTS),
    "convolutions, bfloat16": lambda: _of_flax(_Convolutions(dtype=jnp.bfloat16), 28, 28, 1),
    "embedding under vmap": _vmapped_embedding,
    "LSTMCell": lambda: _of_flax(_Recurrent(nn.LSTMCell), 28, 28),
    "OptimizedLSTMCell": lambda: _of_flax(_Recurrent(nn.OptimizedLSTMCell), 28, 28),
    "GRUCell": lambda: _of_flax(_Recurrent(nn.GRUCell), 28, 28),
    "merged LoRA": _merged_lora,
    "weight normalisation": lambda: _of_flax(_Dense(wrap=nn.WeightNorm), INPUTS),
    "masked kernels": _masked,
    "kernels of codes": _codes,
    "kernel of one code": _one_code,
    "KAN": _kan,
    "scanned MLP-Mixer": lambda: _of_flax(_Mixers(), 49, 16),
    "gathered experts": _experts,
    "S4D": _s4d,
}
