"""The variational auto-encoder against sums written out by hand, and its networks' shapes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from workbench.gallery.vae import decode, encode, guide, model, predict

import workbench as wb
from tests.conftest import some_of
from tests.zoo import shapes_of
from workbench import ArgumentError
from workbench.models import vae as entry
from workbench.record_model.splitting import split

RANDOM = np.random.default_rng(2)
SHAPE = (4, 3)
X = RANDOM.random((5, *SHAPE)).astype(np.float32)
CODE = RANDOM.normal(size=(5, 2)).astype(np.float32)
SMALL = {"image_shape": SHAPE, "hidden": 6, "latent": 2}
KERNELS = {
    "encoder_hidden": (12, 6),
    "encoder_mean": (6, 2),
    "encoder_log_scale": (6, 2),
    "decoder_hidden": (2, 6),
    "decoder_pixels": (6, 12),
}
VALUES = {
    f"{layer}_{part}": (RANDOM.normal(size=shape if part == "kernel" else shape[1:])).astype(
        np.float32
    )
    for layer, shape in KERNELS.items()
    for part in ("kernel", "bias")
}


def dense(layer, inputs):
    kernel, bias = VALUES[f"{layer}_kernel"].astype(float), VALUES[f"{layer}_bias"].astype(float)
    return inputs @ kernel / np.sqrt(len(kernel)) + 0.1 * bias


def softplus(values):
    return np.log1p(np.exp(values))


def activated(values):
    return softplus(values) - np.log(2)


def pixel_logits(code):
    return dense("decoder_pixels", activated(dense("decoder_hidden", code))).reshape(-1, *SHAPE)


def images(shape, count=24):
    """A data set of noise, with ``shape`` for each image."""
    rng = np.random.default_rng(0)
    arrays = [(rng.random((number, *shape)).astype(np.float32),) for number in (count, 8)]
    return dataclasses.replace(
        wb.data.mixture(num_records=10),
        name="noise",
        train=arrays[0],
        evaluation=arrays[1],
        feature_names=(),
        image_shape=shape,
    )


def parameter_shapes(**options):
    def values():
        x = jnp.zeros((1, *options["image_shape"]))
        with handlers.seed(rng_seed=0):
            traces = [
                handlers.trace(function).get_trace(x, num_records=9, **options)
                for function in (model, guide)
            ]
        sites = {name: site for trace in traces for name, site in trace.items()}
        return {name: site["value"] for name, site in sites.items() if site["type"] == "param"}

    return {name: value.shape for name, value in jax.eval_shape(values).items()}


def density(function, values, **options):
    with numpyro.handlers.seed(rng_seed=0):
        return float(log_density(function, (X,), SMALL | options, VALUES | values)[0])


# ---- densities -----------------------------------------------------------------------------------


def test_log_density_with_bernoulli_pixels_counts_grey_values():
    logits = pixel_logits(CODE)
    expected = stats.norm.logpdf(CODE).sum() + np.sum(X * logits - softplus(logits))
    assert density(model, {"code": CODE}) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("pixel_scale", [0.1, 0.5])
def test_log_density_with_gaussian_pixels(pixel_scale):
    means = 1 / (1 + np.exp(-pixel_logits(CODE)))
    expected = stats.norm.logpdf(CODE).sum() + stats.norm.logpdf(X, means, pixel_scale).sum()
    assert density(
        model, {"code": CODE}, likelihood="gaussian", pixel_scale=pixel_scale
    ) == pytest.approx(expected, rel=1e-4)


def test_grey_values_pass_where_distributions_are_validated():
    with numpyro.validation_enabled():
        assert math.isfinite(density(model, {"code": CODE}))


def test_log_density_of_the_guide_is_that_of_the_encoders_normal():
    hidden = activated(dense("encoder_hidden", X.reshape(5, -1)))
    mean, scale = dense("encoder_mean", hidden), np.exp(dense("encoder_log_scale", hidden))
    assert density(guide, {"code": CODE}) == pytest.approx(
        stats.norm.logpdf(CODE, mean, scale).sum(), rel=1e-5
    )
    found = encode(VALUES, X)
    assert np.asarray(found[0]) == pytest.approx(mean, abs=1e-5)
    assert np.asarray(found[1]) == pytest.approx(scale, rel=1e-5)


def test_likelihood_of_a_minibatch_is_scaled_to_all_records():
    assert density(model, {"code": CODE}, num_records=50) == pytest.approx(
        10 * density(model, {"code": CODE}), rel=1e-5
    )


def test_prediction_is_the_image_of_the_mean_code():
    hidden = activated(dense("encoder_hidden", X.reshape(5, -1)))
    expected = 1 / (1 + np.exp(-pixel_logits(dense("encoder_mean", hidden))))
    assert np.asarray(predict(VALUES, X)) == pytest.approx(expected, abs=1e-5)


def test_score_is_the_root_mean_squared_error_of_a_pixel():
    assert entry().score(np.zeros((3, 4, 4)), np.full((3, 4, 4), 0.5)) == {
        "reconstruction_error": 0.5
    }
    assert entry().score(np.array([0.0, 1.0]), np.array([0.3, 0.6]))[
        "reconstruction_error"
    ] == pytest.approx(0.125**0.5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "likelihood"), some_of([("dense", "bernoulli"), ("convolutional", "gaussian")])
)
def test_images_are_drawn_where_none_are_observed(layout, likelihood):
    @jax.jit
    def draw():
        options = {
            "num_records": 7,
            "image_shape": (5, 9),
            "hidden": 4,
            "likelihood": likelihood,
            "layout": layout,
        }
        return handlers.trace(handlers.seed(model, 0)).get_trace(**options)["x"]["value"]

    drawn = np.asarray(draw())
    assert drawn.shape == (7, 5, 9)
    assert (set(np.unique(drawn)) <= {0, 1}) == (likelihood == "bernoulli")


# ---- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "hidden", "latent"),
    [((28, 28), 400, 50), ((8, 8), 128, 8), ((32, 32, 3), 400, 50), ((2, 2), 8, 1)],
)
def test_default_sizes_follow_the_number_of_pixels(shape, hidden, latent):
    found = parameter_shapes(image_shape=shape)
    assert found["encoder_hidden_kernel"] == (math.prod(shape), hidden)
    assert found["decoder_hidden_kernel"] == (latent, hidden)


def test_the_size_of_the_literature_has_its_number_of_parameters():
    assert (
        sum(math.prod(shape) for shape in parameter_shapes(image_shape=(28, 28)).values())
        == 688_884
    )


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28), (8, 8), (9, 5, 3)])
@pytest.mark.parametrize("layout", ["dense", "convolutional"])
def test_codes_and_reconstructions_have_the_images_shape(layout, shape):
    def both(x):
        with handlers.seed(rng_seed=0):
            options = {"num_records": 9, "image_shape": shape, "layout": layout, "latent": 3}
            traces = [
                handlers.trace(function).get_trace(x, **options) for function in (model, guide)
            ]
        values = {
            name: site["value"]
            for trace in traces
            for name, site in trace.items()
            if site["type"] == "param"
        }
        return encode(values, x), decode(values, jnp.zeros((6, 3)), shape), predict(values, x)

    code, decoded, predicted = jax.eval_shape(both, jnp.zeros((2, *shape)))
    assert [part.shape for part in code] == [(2, 3), (2, 3)]
    assert decoded.shape == (6, *shape)
    assert predicted.shape == (2, *shape)


@pytest.mark.thorough
def test_a_convolution_sees_the_neighbourhood_of_a_pixel():
    """Against JAX's own convolution, with the same kernel."""
    from workbench.gallery.vae import _patches

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 8, 16, 3)).astype(np.float32)
    kernel = rng.normal(size=(27, 5)).astype(np.float32)
    for stride in (1, 2):
        expected = jax.lax.conv_general_dilated(
            x,
            kernel.reshape(3, 3, 3, 5),
            (stride, stride),
            [(1, 1), (1, 1)],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        assert np.asarray(_patches(x, stride) @ kernel) == pytest.approx(
            np.asarray(expected), abs=1e-4
        )


def test_doubling_puts_the_channels_of_a_cell_side_by_side():
    from workbench.gallery.vae import _doubled

    cells = jnp.arange(8.0).reshape(1, 1, 2, 4)
    assert np.asarray(_doubled(cells))[0, :, :, 0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_the_convolutional_layout_has_three_convolutions_each_way():
    assert set(parameter_shapes(image_shape=(9, 9), layout="convolutional")) == {
        f"{layer}_{part}"
        for layer in (
            "encoder_convolution_1",
            "encoder_convolution_2",
            "encoder_convolution_3",
            "encoder_mean",
            "encoder_log_scale",
            "decoder_cells",
            "decoder_convolution_1",
            "decoder_convolution_2",
            "decoder_convolution_3",
        )
        for part in ("kernel", "bias")
    }


@pytest.mark.thorough
@pytest.mark.parametrize("layout", some_of(["dense", "convolutional"], first=1))
def test_the_privacy_core_accepts_it(layout):
    options = {"image_shape": (8, 8), "layout": layout, "hidden": 8, "latent": 2}
    found = split(
        model,
        guide,
        jax.random.key(0),
        shapes_of(np.zeros((3, 8, 8), np.float32)),
        num_records=9,
        static=options,
    )
    assert found.local_latents == ("code",)
    assert set(found.shared) == set(parameter_shapes(**options))
    assert found.latents(found.initial, jax.random.key(1)) == {}


# ---- the registry entry --------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "layout", ["dense", pytest.param("convolutional", marks=pytest.mark.thorough)]
)
def test_a_fit_reconstructs(layout):
    data = images((8, 8))
    model_of_gallery = entry(layout, hidden=8, latent=2)
    result = wb.fit(
        model_of_gallery,
        data,
        epsilon=2.0,
        delta=1e-2,
        iterations=20,
        batch_size=6,
        seed=0,
        training=wb.Training(draws=5),
    )
    assert result.status == "done"
    assert set(result.metrics) == {"elbo", "reconstruction_error"}
    # .289 is as good as noise can be predicted
    assert 0.25 < result.metrics["reconstruction_error"] < 0.45


def test_images_are_accepted_whatever_else_a_record_has():
    digits = entry().view(wb.data.load("digits"))
    assert digits.arrays == ("x",)
    assert entry().constants(digits) == {"image_shape": (8, 8)}


def test_a_table_is_refused():
    with pytest.raises(ArgumentError, match=r"^data='breast_cancer': .*images") as caught:
        entry().view(wb.data.load("breast_cancer"))
    assert caught.value.argument == "data"


def test_channels_of_the_convolutional_layout_come_in_fours():
    with pytest.raises(ArgumentError, match=r"^hidden=6: must be a multiple of 4"):
        entry(layout="convolutional", hidden=6)
    assert entry(hidden=6).options["hidden"] == 6
