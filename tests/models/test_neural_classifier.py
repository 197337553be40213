"""The neural classifier: networks against NumPy, its sites, what it takes and refuses, and whether
it learns.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import special, stats
from workbench.gallery.neural_classifier import guide, model, predict

import workbench as wb
from tests.zoo import shapes_of
from workbench import ArgumentError, inference
from workbench.models import neural_classifier as entry
from workbench.models.networks import filled, skeleton, weight_shapes
from workbench.record_model.splitting import split

NETWORKS = ("fcnn", "cnn", "lstm", "gru", "transformer")
SMALL = {"hidden": 4, "depth": 2, "heads": 2}
RANDOM = np.random.default_rng(5)


def images(shape=(6, 5), classes=3, count=24):
    """A data set of noise."""
    rng = np.random.default_rng(0)
    x, y = rng.random((count, *shape)).astype(np.float32), np.arange(count) % classes
    return wb.data.from_images(
        x, y, classes=classes, evaluation_is_public=True, name="noise", split_seed=1
    )


def values_of(network, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in weight_shapes(network).items()
    }


def called(network, x, values=None):
    """(logits of one record, weights in double precision)."""
    values = values_of(network) if values is None else values
    doubled = {name: value.astype(float) for name, value in values.items()}
    return np.asarray(filled(network, values)(x)), doubled


def linear(values, layer, x):
    weight = values[f"{layer}_weight"]
    return (x @ weight + values[f"{layer}_bias"]) / np.sqrt(math.prod(weight.shape[:-1]))


def normalised(x, axes=-1):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


sigmoid = special.expit


# ---- networks ------------------------------------------------------------------------------------


def test_a_fully_connected_network_is_layers_of_tanh():
    x = RANDOM.normal(size=3).astype(np.float32)
    logits, values = called(skeleton((3,), 2, 0, "fcnn", 4, 2, 1), x)
    features = np.tanh(linear(values, "layers_1", np.tanh(linear(values, "layers_0", x))))
    assert logits == pytest.approx(linear(values, "head", features), abs=1e-5)


def convolved(values, layer, x):
    """Stride 2 with zeros around, as TensorFlow pads: more of them behind than before."""
    kernel = values[f"{layer}_weight"]
    sides = [-(-side // 2) for side in x.shape[:2]]
    before = [
        max(0, 2 * (out - 1) + 3 - side) // 2 for out, side in zip(sides, x.shape[:2], strict=True)
    ]
    padded = np.zeros((x.shape[0] + 4, x.shape[1] + 4, x.shape[2]))
    padded[before[0] : before[0] + x.shape[0], before[1] : before[1] + x.shape[1]] = x
    summed = np.array(
        [
            [
                np.einsum("hwc,hwco->o", padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3], kernel)
                for j in range(sides[1])
            ]
            for i in range(sides[0])
        ]
    )
    return (summed + values[f"{layer}_bias"]) / np.sqrt(math.prod(kernel.shape[:3]))


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(6, 5), (7, 4, 3)])
def test_a_convolutional_network_halves_the_picture_and_normalises_groups_of_channels(shape):
    x = RANDOM.random(shape).astype(np.float32)
    logits, values = called(skeleton(shape, 3, 0, "cnn", 8, 2, 1), x)
    features = x.reshape(*shape[:2], -1)
    for layer, channels in (("layers_0", 4), ("layers_1", 8)):
        features = convolved(values, layer, features)
        groups = features.reshape(*features.shape[:2], 4, channels // 4)
        features = np.tanh(normalised(groups, (0, 1, 3)).reshape(features.shape))
    assert logits == pytest.approx(linear(values, "head", features.reshape(-1)), abs=1e-4)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_network_goes_through_the_sequence(cell):
    x = RANDOM.normal(size=(5, 3)).astype(np.float32)
    logits, values = called(skeleton((5, 3), 2, 0, cell, 4, 1, 1), x)
    state = memory = np.zeros(4)
    states = []
    for row in x:
        given, own = linear(values, "layers_0_inputs", row), linear(values, "layers_0_state", state)
        if cell == "lstm":
            enter, keep, leave, new = np.split(given + own, 4)
            memory = sigmoid(keep + 1) * memory + sigmoid(enter) * np.tanh(new)
            state = sigmoid(leave) * np.tanh(memory)
        else:
            reset, keep = sigmoid(given + own)[:4], sigmoid(given + own)[4:8]
            state = keep * state + (1 - keep) * np.tanh(given[8:] + reset * own[8:])
        states.append(state)
    expected = linear(values, "head", np.concatenate([states[-1], np.mean(states, axis=0)]))
    assert logits == pytest.approx(expected, abs=1e-5)


@pytest.mark.thorough
def test_a_transformer_attends_in_heads():
    x = np.array([2, 0, 6, 2])
    logits, values = called(skeleton((4,), 2, 7, "transformer", 4, 1, 2), x)
    places, pair = np.arange(4)[:, None], np.arange(4) // 2
    angles = places / 10_000 ** (2 * pair / 4)
    features = values["embedding_weight"][x] + np.where(
        np.arange(4) % 2, np.cos(angles), np.sin(angles)
    )
    query, key, value = np.split(
        linear(values, "layers_0_attention", normalised(features)), 3, axis=1
    )
    heads = []
    for part in (slice(0, 2), slice(2, 4)):
        weights = special.softmax(query[:, part] @ key[:, part].T / np.sqrt(2), axis=1)
        heads.append(weights @ value[:, part])
    features = features + linear(values, "layers_0_mixed", np.concatenate(heads, axis=1))
    inner = np.asarray(jax.nn.gelu(linear(values, "layers_0_inner", normalised(features))))
    features = features + linear(values, "layers_0_outer", inner)
    assert logits == pytest.approx(
        linear(values, "head", normalised(features).mean(axis=0)), abs=1e-4
    )


def test_a_scan_has_no_product_with_the_inputs_inside():
    """It is one product for all times before the scan."""
    network = skeleton((20, 3), 2, 0, "gru", 4, 1, 1)
    jaxpr = jax.make_jaxpr(lambda x: filled(network, values_of(network))(x))(
        np.zeros((20, 3), np.float32)
    )
    (scan,) = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    body = str(scan.params["jaxpr"])
    assert body.count("dot_general") == 1
    assert "f32[20,12] = dot_general" in str(jaxpr)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (9, 5, 3)])
def test_logits_of_default_sizes_are_one_a_class(network, shape):
    made = skeleton(shape, 10, 0, network, None, None, 4)
    values = {
        name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in weight_shapes(made).items()
    }
    found = jax.eval_shape(
        lambda values, x: filled(made, values)(x), values, jax.ShapeDtypeStruct(shape, np.float32)
    )
    assert found.shape == (10,)


# ---- sites and densities -------------------------------------------------------------------------


X = RANDOM.normal(size=(5, 3)).astype(np.float32)
Y = np.array([0, 2, 1, 1, 0], np.int32)
VALUES = values_of(skeleton((3,), 3, 0, "fcnn", 4, 1, 4), seed=1)
OPTIONS = {"num_classes": 3, "hidden": 4}


def log_likelihood():
    doubled = {name: value.astype(float) for name, value in VALUES.items()}
    logits = linear(doubled, "head", np.tanh(linear(doubled, "layers_0", X)))
    return special.log_softmax(logits, axis=1)[np.arange(5), Y].sum()


def density(function, values, **options):
    with handlers.seed(rng_seed=0):
        return float(log_density(function, (X, Y), OPTIONS | options, values)[0])


@pytest.mark.thorough
def test_log_density_of_point_estimates_is_the_likelihood():
    assert density(model, VALUES) == pytest.approx(log_likelihood(), rel=1e-5)
    assert density(model, VALUES, num_records=50) == pytest.approx(10 * log_likelihood(), rel=1e-5)
    assert density(guide, VALUES) == 0


@pytest.mark.thorough
def test_log_density_of_a_bayesian_network_has_a_prior_of_each_weight():
    prior = sum(stats.norm.logpdf(value, scale=0.5).sum() for value in VALUES.values())
    found = density(model, VALUES, weights="bayesian", prior_scale=0.5)
    assert found == pytest.approx(log_likelihood() + prior, rel=1e-5)


def test_the_guide_has_a_normal_for_each_weight():
    def trace():
        return handlers.trace(handlers.seed(guide, 0)).get_trace(
            X, Y, weights="bayesian", **OPTIONS
        )

    sites = trace()
    for name, value in VALUES.items():
        assert (
            sites[f"{name}_loc"]["value"].shape
            == sites[f"{name}_scale"]["value"].shape
            == value.shape
        )
        assert sites[name]["value"].shape == value.shape
        assert sites[name]["fn"].event_dim == value.ndim
    assert not np.any(sites["head_bias_loc"]["value"])
    assert 0.3 < np.std(sites["layers_0_weight_loc"]["value"]) < 2


@pytest.mark.parametrize("weights", ["point", "bayesian"])
def test_the_privacy_core_noises_each_weight_once(weights):
    options = {"weights": weights, **OPTIONS}
    found = split(model, guide, jax.random.key(0), shapes_of(X, Y), num_records=9, static=options)
    assert set(found.shared) == set(VALUES)
    assert found.shared_size == sum(value.size for value in VALUES.values())
    assert not found.uses_base_noise
    assert set(found.latents(found.initial, jax.random.key(1))) == (
        set() if weights == "point" else set(VALUES)
    )


def test_predictions_are_probabilities_of_each_class_or_of_class_one():
    doubled = {name: value.astype(float) for name, value in VALUES.items()}
    expected = special.softmax(
        linear(doubled, "head", np.tanh(linear(doubled, "layers_0", X))), axis=1
    )
    assert np.asarray(predict(VALUES, X, hidden=4)) == pytest.approx(expected, abs=1e-5)
    two = VALUES | {name: VALUES[name][..., :2] for name in ("head_weight", "head_bias")}
    one = np.asarray(predict(two, X, hidden=4))
    assert one == pytest.approx(expected[:, 1] / expected[:, :2].sum(axis=1), abs=1e-5)


def test_classes_are_drawn_where_none_are_observed():
    drawn = handlers.trace(handlers.seed(handlers.substitute(model, VALUES), 0)).get_trace(
        X, None, num_records=9, **OPTIONS
    )
    assert drawn["y"]["value"].shape == (5,)


def test_scores_of_many_classes_and_of_two():
    score = entry().score
    probability = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    expected = np.log([0.5, 0.2, 0.6]).mean()
    assert score(np.array([0, 1, 0]), probability) == pytest.approx(
        {"accuracy": 2 / 3, "log_likelihood": expected}
    )
    two = score(np.array([0, 1, 1]), np.array([0.2, 0.4, 0.9]))
    assert two == pytest.approx(
        {"accuracy": 2 / 3, "auc": 1.0, "log_likelihood": np.log([0.8, 0.4, 0.9]).mean()}
    )


# ---- book-keeping --------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "data"),
    [
        ("fcnn", images),
        *(
            pytest.param(name, images, marks=pytest.mark.thorough)
            for name in ("cnn", "lstm", "gru", "transformer")
        ),
        *(
            pytest.param(name, wb.data.tokens, marks=pytest.mark.thorough)
            for name in ("fcnn", "gru", "lstm", "transformer")
        ),
    ],
)
def test_book_keeping_agrees_with_vmap(network, data):
    dataset = data()
    chosen = entry(network, **SMALL)
    found = split(
        model,
        guide,
        jax.random.key(0),
        shapes_of(*dataset.train),
        num_records=9,
        static={**chosen.options, **chosen.constants(dataset)},
    )
    shared, _ = found.release_point(found.initial, jax.random.key(1))
    records = tuple(jnp.asarray(array[:6]) for array in dataset.train)

    @functools.partial(jax.jit, static_argnums=0)
    def summed(strategy):
        return inference.clipped_sum(
            lambda u, record: found.record_loss(u, record, jax.random.key(2)),
            shared,
            records,
            jnp.ones(6, bool),
            0.05,
            strategy,
        )[0]

    book, reference = summed("bookkeeping"), summed("vmap")
    largest = max(np.abs(leaf).max() for leaf in reference.values())
    for name, leaf in reference.items():
        np.testing.assert_allclose(book[name], leaf, rtol=1e-5, atol=1e-6 * largest)


# ---- fits ----------------------------------------------------------------------------------------


def fitted(network, data=None, **options):
    """A few steps, with options of the model before and of the fit after ``**``."""
    return wb.fit(
        entry(network, **SMALL, **options),
        images() if data is None else data,
        epsilon=4.0,
        delta=1e-2,
        iterations=3,
        batch_size=6,
        seed=0,
        training=wb.Training(draws=4),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("weights", ["point", "bayesian"])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_is_fitted(network, weights):
    result = fitted(network, weights=weights)
    assert result.status == "done"
    assert {"elbo", "accuracy", "log_likelihood"} <= set(result.metrics)
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert result.predict().sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert bool(result.draws) == (weights == "bayesian")


@pytest.fixture(scope="module")
def bayesian():
    return fitted("fcnn", weights="bayesian")


@pytest.mark.thorough
def test_a_summary_has_a_row_for_each_layer_and_not_for_each_weight(bayesian):
    names = {
        "layers_0_weight",
        "layers_0_bias",
        "layers_1_weight",
        "layers_1_bias",
        "head_weight",
        "head_bias",
    }
    assert set(bayesian.draws) == names
    assert set(bayesian.summary_table().index) == {f"{name}_rms" for name in names}
    expected = np.sqrt(np.square(bayesian.draws["head_weight"]).mean(axis=(1, 2))).mean()
    assert bayesian.summary_table().loc["head_weight_rms", "mean"] == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.thorough
def test_tokens_outside_the_vocabulary_are_refused_by_a_loaded_result_too(tmp_path):
    data = wb.data.tokens()
    made = wb.fit(
        entry("fcnn", hidden=4),
        data,
        epsilon=4.0,
        delta=1e-4,
        iterations=3,
        batch_size=60,
        seed=0,
        training=wb.Training(draws=4),
    )
    result = wb.load(made.save(tmp_path / "tokens"))
    x = data.evaluation[0][:2]
    assert result.predict(x).shape == (2, 3)
    for wrong in (data.vocabulary_size, -1, 0.5):
        with pytest.raises(
            ArgumentError, match=r"^x='(int|float)(32|64)': must be whole numbers from 0 to 11"
        ):
            result.predict(np.where(np.arange(x.shape[1]) == 1, wrong, x))


@pytest.mark.thorough
def test_classes_of_new_records_are_drawn(bayesian):
    assert set(np.unique(bayesian.sample(40, seed=0))) <= {0, 1, 2}


@pytest.mark.thorough
def test_the_confusion_of_classes_is_a_picture_of_the_records(bayesian):
    figure = bayesian.plot("confusion")
    written = [text.get_text() for text in figure.axes[0].texts]
    # a row for each class
    assert sum(float(text) for text in written) == pytest.approx(100 * 3, abs=10)
    assert "public data" in figure._supxlabel.get_text()
    private = dataclasses.replace(images(), evaluation_is_public=False)
    assert "outside the guarantee" in bayesian.plot("confusion", data=private)._supxlabel.get_text()
    hidden = dataclasses.replace(bayesian, public_records=None)
    with pytest.raises(ArgumentError, match=r"^data=None: give a Dataset"):
        hidden.plot("confusion")


# ---- what it takes and refuses -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "networks"),
    [("breast_cancer", {"fcnn"}), ("digits", set(NETWORKS)), ("tokens", set(NETWORKS) - {"cnn"})],
)
def test_a_network_that_cannot_read_the_records_is_refused_with_those_that_can(name, networks):
    data = wb.data.load(name)
    for network in NETWORKS:
        if network in networks:
            entry(network).view(data)
            continue
        with pytest.raises(
            ArgumentError, match=rf"^network='{network}': reads .*{name}.*; choose "
        ) as caught:
            entry(network).view(data)
        assert all(repr(other) in str(caught.value) for other in networks)


def test_what_is_public_about_the_records_reaches_the_network():
    assert entry().constants(wb.data.load("tokens")) == {"num_classes": 3, "vocabulary_size": 12}
    assert entry().constants(wb.data.load("digits")) == {"num_classes": 10, "vocabulary_size": 0}


@pytest.mark.parametrize(
    ("num_records", "steps", "batch"), [(1400, 300, 256), (4000, 400, 400), (39_000, 900, 1000)]
)
def test_advice_follows_the_number_of_records(num_records, steps, batch):
    advice = entry().advice(images(), num_records, 1.0)
    assert (advice["iterations"], advice["batch_size"]) == (steps, batch)
    assert advice["learning_rate"] == pytest.approx(2 / steps**0.5)


@pytest.mark.parametrize(
    ("name", "words"), [("mixture", "has no array 'y'"), ("numbers", "two or more named classes")]
)
def test_records_without_classes_are_refused(name, words):
    data = (
        wb.data.load("mixture")
        if name == "mixture"
        else dataclasses.replace(wb.data.load("digits"), classes=())
    )
    with pytest.raises(ArgumentError, match=words):
        entry().view(data)


def test_heads_divide_the_width_of_the_transformer_alone():
    with pytest.raises(
        ArgumentError, match=r"^heads=3: must divide the width of the transformer, hidden=32"
    ):
        entry("transformer", heads=3)
    assert entry("gru", heads=3).options["heads"] == 3


# ---- learning ------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("network", NETWORKS)
def test_digits_are_learnt_privately(network):
    result = wb.fit(
        entry(network), "digits", epsilon=8.0, delta=1e-4, seed=0, training=wb.Training(draws=5)
    )
    assert result.metrics["accuracy"] > 0.8  # chance: .1


@pytest.mark.thorough
@pytest.mark.parametrize("network", ["lstm", "gru", "transformer"])
def test_the_order_of_tokens_is_learnt_privately(network):
    result = wb.fit(
        entry(network), "tokens", epsilon=8.0, delta=1e-4, seed=0, training=wb.Training(draws=5)
    )
    assert result.metrics["accuracy"] > 0.5  # chance: 1 / 3
