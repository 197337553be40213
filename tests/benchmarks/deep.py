"""Networks of several kinds, on which the strategies of clipped sums are compared.

Each is ``(params, loss(params, record), records(count), batch)``, in flax's linen but for those of
``networks.py``.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from networks import NETWORKS

__all__ = ["DEEP"]

CLASSES = 10


def _normal(count, *shape):
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


def _labels(count):
    return np.random.default_rng(1).integers(0, CLASSES, count)


def _says_classes(module, batch, *shape):
    def loss(params, record):
        x, y = record
        return -jax.nn.log_softmax(module.apply(params, x))[y]

    params = jax.jit(lambda key: module.init(key, jnp.zeros(shape)))(jax.random.key(0))
    return params, loss, lambda count: (_normal(count, *shape), _labels(count)), batch


def _says_values(module, batch, inputs, outputs):
    def loss(params, record):
        x, y = record
        return jnp.square(module.apply(params, x) - y).mean()

    params = jax.jit(lambda key: module.init(key, jnp.zeros(inputs)))(jax.random.key(0))
    return params, loss, lambda count: (_normal(count, *inputs), _normal(count, *outputs)), batch


class _Twice(nn.Module):
    """Two convolutions with group normalisation."""

    channels: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.relu(nn.GroupNorm(num_groups=8)(nn.Conv(self.channels, (3, 3))(x)))
        return x


class _UNet(nn.Module):
    """Ronneberger et al. 2015, of three levels."""

    widths: tuple = (16, 32, 64)

    @nn.compact
    def __call__(self, x):
        skipped = []
        for width in self.widths[:-1]:
            x = _Twice(width)(x)
            skipped.append(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = _Twice(self.widths[-1])(x)
        for width, skip in zip(self.widths[-2::-1], reversed(skipped), strict=True):
            x = nn.ConvTranspose(width, (2, 2), (2, 2))(x)
            x = _Twice(width)(jnp.concatenate([x, skip], axis=-1))
        return nn.Conv(1, (1, 1))(x)


class _Encoder(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(y)
        y = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(y)


class _ViT(nn.Module):
    """Dosovitskiy et al. 2021; "tiny" has 192 channels and 3 heads, here with 4 layers of 12."""

    width: int = 192
    layers: int = 4

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (4, 4), (4, 4), padding="VALID")(x)
        x = x.reshape(-1, self.width)
        x = jnp.concatenate([self.param("class", nn.initializers.zeros, (1, self.width)), x])
        x = x + self.param("places", nn.initializers.normal(0.02), x.shape)
        for _ in range(self.layers):
            x = _Encoder(3)(x)
        return nn.Dense(CLASSES)(nn.LayerNorm()(x)[0])


class _DeepSets(nn.Module):
    """Zaheer et al. 2017: 100 elements each."""

    @nn.compact
    def __call__(self, x):
        for _ in range(3):
            x = nn.relu(nn.Dense(128)(x))
        x = nn.relu(nn.Dense(128)(x.sum(0)))
        return nn.Dense(CLASSES)(x)


class _NeRF(nn.Module):
    """Mildenhall et al. 2020: a record is a ray of 32 points, rendered."""

    @nn.compact
    def __call__(self, x):
        scaled = (x[..., None] * 2.0 ** jnp.arange(6)).reshape(len(x), -1)
        encoded = jnp.concatenate([x, jnp.sin(scaled), jnp.cos(scaled)], -1)
        x = encoded
        for layer in range(4):
            x = nn.relu(nn.Dense(128)(jnp.concatenate([x, encoded], -1) if layer == 2 else x))
        x = nn.Dense(4)(x)
        density, colour = nn.softplus(x[:, 0]) / 32, nn.sigmoid(x[:, 1:])
        passed = jnp.exp(-jnp.cumsum(density) + density)
        return ((passed * (1 - jnp.exp(-density)))[:, None] * colour).sum(0)


class _ResNet(nn.Module):
    """He et al. 2016: 6 n + 2 layers, with group normalisation."""

    width: int = 16
    n: int = 3

    @nn.compact
    def __call__(self, x):
        norm = lambda: nn.GroupNorm(num_groups=8)  # noqa: E731
        x = nn.relu(norm()(nn.Conv(self.width, (3, 3))(x)))
        for stage in range(3):
            for block in range(self.n):
                width, strides = self.width << stage, 2 if stage and not block else 1
                y = nn.relu(norm()(nn.Conv(width, (3, 3), strides)(x)))
                y = norm()(nn.Conv(width, (3, 3))(y))
                if x.shape != y.shape:
                    x = nn.Conv(width, (1, 1), strides)(x)
                x = nn.relu(x + y)
        return nn.Dense(CLASSES)(x.mean((0, 1)))


class _Decoder(nn.Module):
    """The decoder of an auto-encoder of 28 x 28 pixels, with 5 x 5 kernels."""

    @nn.compact
    def __call__(self, z):
        x = nn.relu(nn.Dense(7 * 7 * 32)(z)).reshape(7, 7, 32)
        x = nn.relu(nn.ConvTranspose(32, (5, 5), (2, 2))(x))
        x = nn.relu(nn.ConvTranspose(16, (5, 5), (2, 2))(x))
        return nn.Conv(1, (5, 5))(x)


def _of_papers(name):
    network = NETWORKS[name]
    return lambda: (network.init(jax.random.key(0)), network.loss, network.records, network.batch)


# each builds its network, so that a benchmark pays for those asked for
DEEP = {
    "U-Net": lambda: _says_values(_UNet(), 16, (32, 32, 1), (32, 32, 1)),
    "ViT-tiny, 4 layers": lambda: _says_classes(_ViT(), 32, 32, 32, 3),
    "DeepSets": lambda: _says_classes(_DeepSets(), 64, 100, 3),
    "NeRF": lambda: _says_values(_NeRF(), 128, (32, 3), (3,)),
    "ResNet-20": lambda: _says_classes(_ResNet(), 32, 32, 32, 3),
    "decoder, 5 x 5": lambda: _says_values(_Decoder(), 64, (16,), (28, 28, 1)),
    **{
        name: _of_papers(name)
        for name in ("mlp", "mnist_cnn", "cifar_cnn", "imdb_lstm", "row_lstm", "transformer")
    },
}
