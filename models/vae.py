"""Variational auto-encoder: a network maps a short code, one per image, to the distribution of the
image's pixels.

    code ~ Normal(0, I)                                         for each image, `latent` numbers
    x    ~ Bernoulli(decoder(code))  or  Normal(sigmoid(decoder(code)), pixel_scale)

    +--------- records N ---------+
    |   (code) ------> [ x ]      |        decoder: parameters that all images share
    +-----------------------------+        encoder: the guide's, code ~ Normal(mean(x), scale(x))

Global latents: none. The parameters of the networks, ``encoder_...`` and ``decoder_...``, are
learnt from all images, and noise is added to them. Local latents: ``code``, one for each image. No
fit keeps codes: a network computes the code of an image when it is needed (``encode``). Fits images
with pixels in [0, 1], grey or with channels. Predicts an image's reconstruction, the decoder's
image of the mean code. Its score is the root mean squared error of a pixel.

The Bernoulli likelihood takes grey values as probabilities, as in the literature: p(x) = prod p^x
(1 - p)^(1 - x). This is not a normalised density if x is neither 0 nor 1, but all papers compare
it.

Copy this file to start a model with your own networks: parameters are plain ``numpyro.param``
sites.

Reference: Kingma and Welling 2014, "Auto-encoding variational Bayes"; sizes and private training of
Prediger, Loppi, Kaski and Honkela 2022, "d3p - a Python package for differentially private
probabilistic programming", section 5.1.
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

from workbench import ArgumentError, data
from workbench.models import Model, checks, pictures

__all__ = ["decode", "encode", "guide", "model", "predict", "vae"]

_Layout = Literal["dense", "convolutional"]
_Likelihood = Literal["bernoulli", "gaussian"]
_BIAS_SCALE = 0.1  # Adam moves a bias as far as an entry of a kernel, which has less effect
_BATCH, _EPOCHS = 128, 20  # of the private fits in the literature


# ---- networks: parameters by name, functions of them ---------------------------------------------


def _parameters(network: str, sizes: dict[str, tuple[int, int]]) -> dict[str, jax.Array]:
    """Declares the kernels and biases of the layers ``{name: (inputs, outputs)}`` of ``network``
    and returns them by name.
    """
    values = {}
    for layer, shape in sizes.items():
        kernel, bias = f"{network}_{layer}_kernel", f"{network}_{layer}_bias"
        values[kernel] = numpyro.param(
            kernel, lambda key, shape=shape: jax.random.normal(key, shape)
        )
        values[bias] = numpyro.param(bias, jnp.zeros(shape[1]))
    return values


def _apply(values: dict[str, jax.Array], layer: str, inputs: jax.Array) -> jax.Array:
    """One layer: inputs . kernel / sqrt(number of inputs) + a tenth of the bias.

    With the division here instead of in the starting values, all kernels are of size 1. So one
    learning rate suits layers of all widths, and noise, which has the same size in all coordinates,
    moves a narrow layer no less than a wide one.
    """
    kernel, bias = values[f"{layer}_kernel"], values[f"{layer}_bias"]
    return (inputs * kernel.shape[0] ** -0.5) @ kernel + _BIAS_SCALE * bias


def _activated(inputs: jax.Array) -> jax.Array:
    """softplus(inputs) - log 2, which is 0 at 0.

    The constant could be a part of the next layer's bias. Here it removes a part that all records
    have in common from their gradients, which would otherwise use up the clipping norm.
    """
    return jax.nn.softplus(inputs) - math.log(2)


def _sizes(
    image_shape: tuple[int, ...], layout: str, hidden: int | None, latent: int | None
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]], int]:
    """Layers of encoder and decoder, {name: (inputs, outputs)}, and the length of a code."""
    pixels = math.prod(image_shape)
    latent = max(1, min(50, pixels // 8)) if latent is None else latent
    if layout == "dense":
        hidden = min(400, 2 * pixels) if hidden is None else hidden
        encoder = {
            "hidden": (pixels, hidden),
            "mean": (hidden, latent),
            "log_scale": (hidden, latent),
        }
        return encoder, {"hidden": (latent, hidden), "pixels": (hidden, pixels)}, latent
    third = 32 if hidden is None else hidden
    first, second = third // 4, third // 2
    colours = image_shape[2] if len(image_shape) == 3 else 1
    # of the picture after three halvings, rounded up
    cells = math.prod(-(-side // 8) for side in image_shape[:2])
    encoder = {
        "convolution_1": (9 * colours, first),
        "convolution_2": (9 * first, second),
        "convolution_3": (9 * second, third),
        "mean": (cells * third, latent),
        "log_scale": (cells * third, latent),
    }
    decoder = {
        "cells": (latent, cells * third),
        "convolution_1": (9 * third, 4 * second),
        "convolution_2": (9 * second, 4 * first),
        "convolution_3": (9 * first, 4 * colours),
    }
    return encoder, decoder, latent


def _patches(images: jax.Array, stride: int) -> jax.Array:
    """The 3 by 3 neighbourhood of every ``stride``-th pixel: [B, H, W, C] -> [B, H / stride, W /
    stride, 9 C].

    A convolution is then one matrix product, whose per-record gradients cost little.
    """
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, down : down + height : stride, right : right + width : stride]
        for down in range(3)
        for right in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _doubled(cells: jax.Array) -> jax.Array:
    """Each cell's 4 C channels spread over 2 by 2 pixels: [B, H, W, 4 C] -> [B, 2 H, 2 W, C]."""
    batch, height, width, channels = cells.shape
    spread = cells.reshape(batch, height, width, 2, 2, channels // 4).transpose(0, 1, 3, 2, 4, 5)
    return spread.reshape(batch, 2 * height, 2 * width, channels // 4)


def encode(values: dict[str, jax.Array], x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of each image's code, two float[B, latent].

    :param values: the fit's parameters by name; their names and shapes say what the networks look
        like.
    :param x: images, float[B, H, W] or float[B, H, W, C].
    """
    if "encoder_hidden_kernel" in values:
        features = _activated(_apply(values, "encoder_hidden", x.reshape(x.shape[0], -1)))
    else:
        features = x.reshape(*x.shape[:3], -1)
        features = jnp.pad(features, ((0, 0), (0, -x.shape[1] % 8), (0, -x.shape[2] % 8), (0, 0)))
        for number in (1, 2, 3):
            features = _activated(
                _apply(values, f"encoder_convolution_{number}", _patches(features, 2))
            )
        features = features.reshape(x.shape[0], -1)
    return _apply(values, "encoder_mean", features), jnp.exp(
        _apply(values, "encoder_log_scale", features)
    )


def _pixel_logits(
    values: dict[str, jax.Array], code: jax.Array, image_shape: tuple[int, ...]
) -> jax.Array:
    if "decoder_hidden_kernel" in values:
        features = _activated(_apply(values, "decoder_hidden", code))
        return _apply(values, "decoder_pixels", features).reshape(code.shape[0], *image_shape)
    rows, columns = (-(-side // 8) for side in image_shape[:2])
    features = _apply(values, "decoder_cells", code).reshape(code.shape[0], rows, columns, -1)
    for number in (1, 2, 3):
        features = _doubled(
            _apply(values, f"decoder_convolution_{number}", _patches(_activated(features), 1))
        )
    return features[:, : image_shape[0], : image_shape[1]].reshape(code.shape[0], *image_shape)


def decode(
    values: dict[str, jax.Array], code: jax.Array, image_shape: tuple[int, ...]
) -> jax.Array:
    """The pixels' means, float[B, H, W] or float[B, H, W, C] in (0, 1), of ``code`` float[B,
    latent].

    :param values: the fit's parameters by name.
    """
    return jax.nn.sigmoid(_pixel_logits(values, code, image_shape))


# ---- the model -----------------------------------------------------------------------------------


def model(
    x=None,
    num_records=None,
    image_shape=(28, 28),
    layout="dense",
    hidden=None,
    latent=None,
    likelihood="bernoulli",
    pixel_scale=0.1,
):
    """The NumPyro model. ``x``: float[B, H, W] or float[B, H, W, C] in [0, 1], or None to draw
    ``num_records`` images.
    """
    batch = num_records if x is None else x.shape[0]
    _, sizes, length = _sizes(image_shape, layout, hidden, latent)
    values = _parameters("decoder", sizes)
    with numpyro.plate("records", num_records or batch, subsample_size=batch):
        code = numpyro.sample("code", dist.Normal(jnp.zeros((batch, length)), 1).to_event(1))
        logits = _pixel_logits(values, code, image_shape)
        # not validated, because grey values are not draws of a Bernoulli distribution
        if likelihood == "bernoulli":
            pixels = dist.Bernoulli(logits=logits, validate_args=False)
        else:
            pixels = dist.Normal(jax.nn.sigmoid(logits), pixel_scale, validate_args=False)
        numpyro.sample("x", dist.Independent(pixels, len(image_shape), validate_args=False), obs=x)


def guide(
    x=None,
    num_records=None,
    image_shape=(28, 28),
    layout="dense",
    hidden=None,
    latent=None,
    likelihood="bernoulli",
    pixel_scale=0.1,
):
    """The encoder: a normal with mean and standard deviation for each number of a code."""
    sizes, _, _ = _sizes(image_shape, layout, hidden, latent)
    values = _parameters("encoder", sizes)
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        mean, scale = encode(values, x)
        numpyro.sample("code", dist.Normal(mean, scale).to_event(1))


def predict(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Each image's reconstruction through its mean code, shaped like ``x``."""
    mean, _ = encode(values, x)
    return decode(values, mean, x.shape[1:])


def _score(x: np.ndarray, reconstruction: np.ndarray) -> dict[str, float]:
    """Root mean squared error of a pixel, on the scale of the pixels."""
    return {
        "reconstruction_error": float(
            np.sqrt(np.mean((np.asarray(x, np.float64) - reconstruction) ** 2))
        )
    }


# ---- the registry entry --------------------------------------------------------------------------


def _check(dataset: data.Dataset) -> None:
    if len(dataset.train) != 1 or len(dataset.image_shape) not in (2, 3):
        raise ArgumentError(
            "data",
            dataset.name,
            "must be images (height, width and maybe channels) for the auto-encoder.",
        )


def _constants(dataset: data.Dataset) -> dict[str, Any]:
    return {"image_shape": tuple(dataset.image_shape)}


def _defaults(dataset: data.Dataset, num_records: int, epsilon: float) -> dict[str, Any]:
    # clipping nearly all gradients works best; networks need many steps, at least 1000 for small
    # data
    return {
        "batch_size": _BATCH,
        "epochs": max(_EPOCHS, _BATCH * 1000 / num_records),
        "clip": 1.0,
        "average": True,
    }


def vae(
    layout: _Layout = "dense",
    hidden: int | None = None,
    latent: int | None = None,
    likelihood: _Likelihood = "bernoulli",
    pixel_scale: float = 0.1,
) -> Model:
    """Variational auto-encoder.

    >>> model = wb.models.get("vae", latent=8)
    >>> list(model.pictures)
    ['samples', 'reconstructions', 'latent plane']

    :param layout: "dense", one hidden layer each way, or "convolutional", three 3 by 3 convolutions
        each way, each halving (doubling) height and width. Images of any size: sides are padded to
        multiples of 8 and the result is cut.
    :param hidden: units of the hidden layers (dense), twice the number of pixels and at most 400 by
        default; or channels of the last convolution, a multiple of 4, 32 by default. The first two
        convolutions have a quarter and half as many; a step of 128 images of 28 by 28 pixels takes
        0.2 s on two CPU cores, twenty times as long as in the dense layout.
    :param latent: numbers in a code, an eighth of the number of pixels and at most 50 by default.
        So 28 by 28 pixels get 784-400-50, and 8 by 8 get 64-128-8.
    :param likelihood: "bernoulli" or "gaussian".
    :param pixel_scale: standard deviation of a pixel for "gaussian".
    """
    checks.choice("layout", layout, get_args(_Layout))
    if hidden is not None:
        hidden = checks.integer("hidden", hidden, at_least=1)
        if layout == "convolutional" and hidden % 4:
            raise ArgumentError(
                "hidden", hidden, "must be a multiple of 4 in the convolutional layout."
            )
    if latent is not None:
        latent = checks.integer("latent", latent, at_least=1)
    return Model(
        name="vae",
        summary="Variational auto-encoder: images from short codes, with networks that find the "
        "code of an image.",
        model=model,
        guide=guide,
        predict=predict,
        score=_score,
        check=_check,
        constants=_constants,
        arrays=("x",),
        options={
            "layout": layout,
            "hidden": hidden,
            "latent": latent,
            "likelihood": checks.choice("likelihood", likelihood, get_args(_Likelihood)),
            "pixel_scale": checks.number("pixel_scale", pixel_scale, above=0),
        },
        defaults=_defaults,
        pictures={
            "samples": functools.partial(pictures.samples, decode=decode),
            "reconstructions": pictures.reconstructions,
            "latent plane": functools.partial(pictures.latent_plane, encode=encode, decode=decode),
        },
        reference="Kingma and Welling 2014; Prediger et al. 2022, section 5.1",
        is_for_scaled=True,
    )
