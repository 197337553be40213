"""Small NumPyro models and guides that the tests share: record arrays first, then ``num_records``.

Beside each stands what is known about it in closed form, in NumPy or plain JAX, for the tests to
compare with.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import init_to_feasible
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.reparam import LocScaleReparam

from workbench.record_model.splitting import split

PRIOR_SCALE = 2.0


def shapes_of(*arrays):
    """Shapes and types of one record of ``arrays``, which is all that ``split`` may look at."""
    return tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in arrays)


class Drawn(handlers.Messenger):
    """Values of the latents that are drawn in its context, by site; in a scan as they come out of
    it.
    """

    def __enter__(self):
        super().__enter__()
        self.values = {}
        return self

    def postprocess_message(self, message):
        if message["type"] == "sample" and not message["is_observed"]:
            self.values[message["name"]] = message["value"]


def mean_field(**shapes):
    """A guide of independent normals, ``{site: shape}``; quicker to make than an automatic one, for
    tests.
    """

    def guide(*records, num_records=None, **static):
        for name, shape in shapes.items():
            loc = numpyro.param(f"{name}_loc", jnp.full(shape, 0.1))
            scale = numpyro.param(
                f"{name}_scale", jnp.full(shape, 0.4), constraint=constraints.positive
            )
            numpyro.sample(name, dist.Normal(loc, scale).to_event(len(shape)))

    return guide


# --- logistic regression --------------------------------------------------------------------------


def logistic(x, y=None, num_records=None):
    weights = numpyro.sample(
        "weights", dist.Normal(0, PRIOR_SCALE).expand([x.shape[-1]]).to_event(1)
    )
    intercept = numpyro.sample("intercept", dist.Normal(0, PRIOR_SCALE))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)


def logistic_guide(x, y=None, num_records=None):
    for name, shape in (("weights", (x.shape[-1],)), ("intercept", ())):
        loc = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(
            f"{name}_scale", jnp.full(shape, 0.1), constraint=constraints.positive
        )
        numpyro.sample(name, dist.Normal(loc, scale).to_event(len(shape)))


def logistic_data(num_records=200, features=3, seed=0):
    """(x in [-1, 1], y) with all true weights 2."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (num_records, features)).astype(np.float32)
    y = (rng.uniform(size=num_records) < 1 / (1 + np.exp(-2 * x.sum(axis=1)))).astype(np.int32)
    return x, y


def logistic_losses(weights, intercept, x, y):
    """-log p(y_i | x_i) for each record, in float64."""
    logits = np.asarray(x, np.float64) @ np.asarray(weights, np.float64) + float(intercept)
    return np.logaddexp(0, logits) - np.asarray(y) * logits


# --- a hyper-parameter that enters no record ------------------------------------------------------


def hierarchical(x, y=None, num_records=None):
    """Logistic regression whose weights share an unknown prior scale: given the weights, no record
    depends on it.
    """
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    weights = numpyro.sample("weights", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def hierarchical_guide(x, y=None, num_records=None):
    loc = numpyro.param("scale_loc", 0.0)
    width = numpyro.param("scale_width", 0.1, constraint=constraints.positive)
    numpyro.sample("scale", dist.LogNormal(loc, width))
    weights_loc = numpyro.param("weights_loc", jnp.zeros(x.shape[-1]))
    weights_scale = numpyro.param(
        "weights_scale", jnp.full(x.shape[-1], 0.1), constraint=constraints.positive
    )
    numpyro.sample("weights", dist.Normal(weights_loc, weights_scale).to_event(1))


# --- a mean with a conjugate prior ----------------------------------------------------------------


def normal_mean(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)


def normal_mean_guide(x, num_records=None):
    loc = numpyro.param("loc", 0.0)
    scale = numpyro.param("scale", 0.5, constraint=constraints.positive)
    numpyro.sample("mean", dist.Normal(loc, scale))


def normal_mean_data(num_records=100, seed=0):
    return (np.random.default_rng(seed).normal(1.5, 1.0, num_records).astype(np.float32),)


def normal_mean_posterior(x):
    """(mean, standard deviation) of the exact posterior."""
    precision = PRIOR_SCALE**-2 + len(x)
    return float(np.sum(x, dtype=np.float64)) / precision, precision**-0.5


# --- grouped records (experiments.md E1) ----------------------------------------------------------


def grouped_logistic(x, group, y=None, num_records=None, group_features=None):
    """Each group has weights of its own around what its public features predict; a record looks its
    group's up.
    """
    effects = numpyro.sample(
        "effects", dist.Normal(0, 4).expand([x.shape[-1], group_features.shape[-1]]).to_event(2)
    )
    with numpyro.plate("groups", len(group_features)):
        weights = numpyro.sample("weights", dist.Normal(group_features @ effects.T, 1).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.sum(x * weights[group], axis=-1)), obs=y)


def grouped_guide(x, group, y=None, num_records=None, group_features=None):
    mean_field(effects=(2, 2))(x)
    loc = numpyro.param("weights_loc", jnp.zeros((3, 2)))
    scale = numpyro.param("weights_scale", jnp.full((3, 2), 0.5), constraint=constraints.positive)
    with numpyro.plate("groups", 3):
        numpyro.sample("weights", dist.Normal(loc, scale).to_event(1))


# --- other models without local latents -----------------------------------------------------------


def gaussian_mixture(x, num_records=None, num_components=3):
    """Which component a record belongs to is summed out."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(num_components)))
    with numpyro.plate("components", num_components):
        means = numpyro.sample("means", dist.Normal(0, 3).expand([x.shape[-1]]).to_event(1))
        scales = numpyro.sample("scales", dist.LogNormal(0, 0.5))
    components = dist.Normal(means, scales[:, None]).to_event(1)
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), components), obs=x)


def linear_regression(x, offset, precision, y=None, num_records=None):
    """Four data arguments: each record brings its own offset and the precision of
    its measurement.
    """
    weights = numpyro.sample("weights", dist.Normal(0, 2).expand([x.shape[-1]]).to_event(1))
    width = numpyro.sample("width", dist.HalfNormal(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Normal(x @ weights + offset, width / jnp.sqrt(precision)), obs=y)


def spline(x, y=None, num_records=None, knots=None, degree=1, link="identity"):
    """Static keyword arguments: a public array, a whole number and a word."""
    coefficients = numpyro.sample(
        "coefficients", dist.Normal(0, 1).expand([len(knots)]).to_event(1)
    )
    basis = jnp.maximum(x[:, None] - knots, 0) ** degree
    mean = {"identity": lambda value: value, "exp": jnp.exp}[link](basis @ coefficients)
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def growth_curves(x, length, num_records=None):
    """A record is a series of time points, an inner plate; those after its length are padding."""
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    width = numpyro.sample("width", dist.LogNormal(0, 0.3))
    times = jnp.arange(x.shape[1])
    records = numpyro.plate("records", num_records, subsample_size=len(x), dim=-2)
    with (
        records,
        numpyro.plate("times", x.shape[1], dim=-1),
        numpyro.handlers.mask(mask=times < length[:, None]),
    ):
        numpyro.sample("x", dist.Normal(slope * times, width), obs=x)


def bigrams(tokens, num_records=None, vocabulary=5):
    """A record is a sentence: every token looks up a row of the table that predicts the
    next one.
    """
    table = numpyro.sample("table", dist.Normal(0, 1).expand([vocabulary, vocabulary]).to_event(2))
    before, after = tokens[:, :-1], tokens[:, 1:]
    records = numpyro.plate("records", num_records, subsample_size=len(tokens), dim=-2)
    with records, numpyro.plate("places", after.shape[1], dim=-1):
        numpyro.sample("after", dist.Categorical(logits=table[before]), obs=after)


class ZeroInflatedPoisson(dist.Distribution):
    """A count that is always zero with probability 1 / (1 + exp(-gate)); whether it is, is summed
    out.
    """

    arg_constraints = {"gate": constraints.real, "rate": constraints.positive}  # noqa: RUF012 (numpyro's convention)
    support = constraints.nonnegative_integer

    def __init__(self, gate, rate, *, validate_args=None):
        self.gate, self.rate = numpyro.distributions.util.promote_shapes(gate, rate)
        batch_shape = jnp.broadcast_shapes(jnp.shape(gate), jnp.shape(rate))
        super().__init__(batch_shape, (), validate_args=validate_args)

    def log_prob(self, value):
        counted = dist.Poisson(self.rate).log_prob(value) - jax.nn.softplus(self.gate)
        always_zero = -jax.nn.softplus(-self.gate)
        return jnp.where(value == 0, jnp.logaddexp(always_zero, counted), counted)


def visits(x, count=None, num_records=None):
    gate = numpyro.sample("gate", dist.Normal(0, 1))
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("count", ZeroInflatedPoisson(gate, jnp.exp(x @ weights)), obs=count)


# --- handlers around or inside a model ------------------------------------------------------------


def tempered(x, y=None, num_records=None):
    with numpyro.handlers.scale(scale=0.5):
        logistic(x, y, num_records)


def weighted(x, weight, num_records=None):
    """Every record counts as often as its weight says."""
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    with (
        numpyro.plate("records", num_records, subsample_size=len(x)),
        numpyro.handlers.scale(scale=weight),
    ):
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)


def weighted_times(x, weight, num_records=None):
    """A weight for each time point of each record."""
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    records = numpyro.plate("records", num_records, subsample_size=len(x), dim=-2)
    with records, numpyro.plate("times", x.shape[1], dim=-1), numpyro.handlers.scale(scale=weight):
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)


def partly_observed(x, seen, num_records=None):
    """A record whose value is missing says nothing."""
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    with (
        numpyro.plate("records", num_records, subsample_size=len(x)),
        numpyro.handlers.mask(mask=seen),
    ):
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)


def random_effects(x, group, num_records=None, num_groups=3):
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    spread = numpyro.sample("spread", dist.LogNormal(0, 0.5))
    with numpyro.plate("groups", num_groups):
        effects = numpyro.sample("effects", dist.Normal(mean, spread))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("x", dist.Normal(effects[group], 1), obs=x)


def without_centring():
    """``random_effects``, its effects written as mean + spread times a standard normal."""
    return numpyro.handlers.reparam(random_effects, config={"effects": LocScaleReparam(centered=0)})


# --- local latents --------------------------------------------------------------------------------


def noisy_means(x, num_records=None):
    """A latent in the record plate around a global one."""
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        hidden = numpyro.sample("hidden", dist.Normal(mean, 1))
        numpyro.sample("x", dist.Normal(hidden, 0.5), obs=x)


def noisy_means_guide(x, num_records=None):
    normal_mean_guide(x, num_records)
    slope, shift = numpyro.param("slope", 0.7), numpyro.param("shift", 0.1)
    width = numpyro.param("width", 0.4, constraint=constraints.positive)
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("hidden", dist.Normal(slope * x + shift, width))


def levels(x, num_records=None):
    """A latent level for each record and a latent state for each of its time points, an inner
    plate.
    """
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    with numpyro.plate("records", num_records, subsample_size=len(x), dim=-2):
        level = numpyro.sample("level", dist.Normal(mean, 1))
        with numpyro.plate("times", x.shape[1], dim=-1):
            state = numpyro.sample("state", dist.Normal(level, 0.5))
            numpyro.sample("x", dist.Normal(state, 0.5), obs=x)


def levels_guide(x, num_records=None):
    normal_mean_guide(x, num_records)
    slopes = numpyro.param("slopes", jnp.array([0.5, 0.6]))
    widths = numpyro.param("widths", jnp.array([0.3, 0.4]), constraint=constraints.positive)
    with numpyro.plate("records", num_records, subsample_size=len(x), dim=-2):
        numpyro.sample(
            "level", dist.Normal(slopes[0] * jnp.mean(x, axis=1, keepdims=True), widths[0])
        )
        with numpyro.plate("times", x.shape[1], dim=-1):
            numpyro.sample("state", dist.Normal(slopes[1] * x, widths[1]))


# --- variational auto-encoders, by where their networks come from ---------------------------------

PIXELS, HIDDEN, CODE = 5, 4, 2


def vae(network):
    """A variational auto-encoder; ``network(name, inputs, outputs)`` declares a network and returns
    its function.
    """

    def model(x, num_records=None):
        decode = network("decoder", CODE, PIXELS)
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            code = numpyro.sample("code", dist.Normal(jnp.zeros((len(x), CODE)), 1).to_event(1))
            numpyro.sample("x", dist.Bernoulli(logits=decode(code)).to_event(1), obs=x)

    def guide(x, num_records=None):
        encode = network("encoder", PIXELS, 2 * CODE)
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            loc, log_scale = jnp.split(encode(x), 2, axis=-1)
            numpyro.sample("code", dist.Normal(loc, jnp.exp(log_scale)).to_event(1))

    return model, guide


def plain_network(name, inputs, outputs):
    """One ``numpyro.param`` for each array."""

    def array(part, *shape):
        values = np.random.default_rng([len(name), *shape]).normal(size=shape) / np.sqrt(shape[0])
        return numpyro.param(f"{name}_{part}", jnp.asarray(values))

    kernels = array("first", inputs, HIDDEN), array("second", HIDDEN, outputs)
    shifts = array("first_shift", HIDDEN), array("second_shift", outputs)
    return lambda x: jnp.tanh(x @ kernels[0] + shifts[0]) @ kernels[1] + shifts[1]


def stax_network(name, inputs, outputs):
    """``numpyro.module``, from before numpyro.contrib.module."""
    from jax.example_libraries import stax

    return numpyro.module(
        name, stax.serial(stax.Dense(HIDDEN), stax.Softplus, stax.Dense(outputs)), (-1, inputs)
    )


def flax_network(name, inputs, outputs):
    linen = pytest.importorskip("flax.linen")
    from numpyro.contrib.module import flax_module

    layers = [linen.Dense(HIDDEN), linen.softplus, linen.Dense(outputs)]
    return flax_module(name, linen.Sequential(layers), input_shape=(1, inputs))


def nnx_vae():
    """nnx makes its arrays at once, so the networks stand outside of model and guide."""
    nnx = pytest.importorskip("flax.nnx")
    from numpyro.contrib.module import nnx_module

    class Perceptron(nnx.Module):
        def __init__(self, inputs, outputs, rngs):
            self.first = nnx.Linear(inputs, HIDDEN, rngs=rngs)
            self.second = nnx.Linear(HIDDEN, outputs, rngs=rngs)

        def __call__(self, x):
            return self.second(nnx.gelu(self.first(x)))

    rngs = nnx.Rngs(0)
    networks = {
        "decoder": Perceptron(CODE, PIXELS, rngs),
        "encoder": Perceptron(PIXELS, 2 * CODE, rngs),
    }
    return vae(lambda name, inputs, outputs: nnx_module(name, networks[name]))


# --- all of them ----------------------------------------------------------------------------------

NUM_RECORDS = 6


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and guide with records and static keyword arguments.

    :param build: makes model and guide. :param make_records: what ``records`` returns, from a NumPy
        generator.
    :param shared: the names in u. :param static: keyword arguments besides num_records.
    :param has_local_latents: whether a record's loss needs base noise.
    :param covers_all_latents: False where the guide leaves latents to the model; numpyro counts
        their prior, we do not.
    """

    build: Callable
    make_records: Callable
    shared: tuple[str, ...]
    static: dict[str, Any] = dataclasses.field(default_factory=dict)
    has_local_latents: bool = False
    covers_all_latents: bool = True

    def records(self, width=np.float32):
        """``NUM_RECORDS`` records, their floats as wide as ``width``."""
        return _wide(width, tuple(map(np.asarray, self.make_records(np.random.default_rng(3)))))


def _wide(width, tree):
    return jax.tree.map(
        lambda leaf: leaf.astype(width) if np.issubdtype(leaf.dtype, np.floating) else leaf, tree
    )


def automatic(make_guide, make_model, **options):
    """Model with a guide made for it by numpyro."""

    def build():
        model = make_model()
        return model, make_guide(model, **options)

    return build


# the usual search for a starting point compiles the model for seconds, so one model alone starts so
feasible = functools.partial(automatic, init_loc_fn=init_to_feasible, init_scale=0.4)


def _with_labels(random):
    return random.uniform(-1, 1, (NUM_RECORDS, 3)), random.integers(0, 2, NUM_RECORDS, np.int32)


def _values(random):
    return (random.normal(1, 1, NUM_RECORDS),)


def _values_with_weights(random):
    return random.normal(1, 1, NUM_RECORDS), random.uniform(0.5, 2, NUM_RECORDS)


def _in_groups(random):
    x = random.normal(size=(NUM_RECORDS, 2))
    return (
        x,
        random.integers(0, 3, NUM_RECORDS, np.int32),
        random.integers(0, 2, NUM_RECORDS, np.int32),
    )


def _images(random):
    return (random.integers(0, 2, (NUM_RECORDS, PIXELS)).astype(float),)


_GROUP_FEATURES = {"group_features": np.array([[1.0, 0.5], [-0.3, 0.8], [0.2, -1.0]], np.float32)}
_LOGISTIC_SHARED = ("intercept", "weights")
_PLAIN_SHARED = tuple(
    f"{name}_{part}"
    for name in ("decoder", "encoder")
    for part in ("first", "first_shift", "second", "second_shift")
)

ZOO = {
    "logistic": Case(lambda: (logistic, logistic_guide), _with_labels, _LOGISTIC_SHARED),
    "logistic AutoNormal": Case(
        automatic(AutoNormal, lambda: logistic), _with_labels, _LOGISTIC_SHARED
    ),
    "logistic AutoDiagonalNormal": Case(
        feasible(AutoDiagonalNormal, lambda: logistic), _with_labels, _LOGISTIC_SHARED
    ),
    "logistic AutoLowRankMultivariateNormal": Case(
        feasible(AutoLowRankMultivariateNormal, lambda: logistic), _with_labels, _LOGISTIC_SHARED
    ),
    "logistic AutoMultivariateNormal": Case(
        feasible(AutoMultivariateNormal, lambda: logistic), _with_labels, _LOGISTIC_SHARED
    ),
    "hierarchical": Case(lambda: (hierarchical, hierarchical_guide), _with_labels, ("weights",)),
    "grouped logistic": Case(
        lambda: (grouped_logistic, grouped_guide), _in_groups, ("weights",), _GROUP_FEATURES
    ),
    "grouped logistic without a guide for the groups": Case(
        lambda: (grouped_logistic, mean_field(effects=(2, 2))),
        _in_groups,
        ("weights",),
        _GROUP_FEATURES,
        covers_all_latents=False,
    ),
    "gaussian mixture": Case(
        feasible(AutoDiagonalNormal, lambda: gaussian_mixture),
        lambda random: (random.normal(0, 2, (NUM_RECORDS, 2)),),
        ("means", "scales", "weights"),
        {"num_components": 3},
    ),
    "linear regression": Case(
        feasible(AutoMultivariateNormal, lambda: linear_regression),
        lambda random: (
            random.normal(size=(NUM_RECORDS, 3)),
            random.normal(size=NUM_RECORDS),
            random.uniform(0.5, 2, NUM_RECORDS),
            random.normal(size=NUM_RECORDS),
        ),
        ("weights", "width"),
    ),
    "spline": Case(
        feasible(AutoNormal, lambda: spline),
        lambda random: (random.normal(size=NUM_RECORDS), random.normal(size=NUM_RECORDS)),
        ("coefficients",),
        {"knots": np.array([-3.0, -2.0, -1.0], np.float32), "degree": 2, "link": "exp"},
    ),
    "growth curves": Case(
        feasible(AutoDiagonalNormal, lambda: growth_curves),
        lambda random: (
            random.normal(size=(NUM_RECORDS, 4)),
            np.array([4, 1, 3, 2, 4, 2], np.int32),
        ),
        ("slope", "width"),
    ),
    "bigrams": Case(
        lambda: (bigrams, mean_field(table=(5, 5))),
        lambda random: (random.integers(0, 5, (NUM_RECORDS, 4), np.int32),),
        ("table",),
        {"vocabulary": 5},
    ),
    "zero-inflated Poisson": Case(
        feasible(AutoNormal, lambda: visits),
        lambda random: (
            random.uniform(-1, 1, (NUM_RECORDS, 2)),
            np.array([0, 3, 0, 1, 0, 2], np.int32),
        ),
        ("gate", "weights"),
    ),
    "scale": Case(lambda: (tempered, logistic_guide), _with_labels, _LOGISTIC_SHARED),
    "weights of records": Case(
        lambda: (weighted, mean_field(mean=())), _values_with_weights, ("mean",)
    ),
    "weights of time points": Case(
        lambda: (weighted_times, mean_field(mean=())),
        lambda random: (
            random.normal(size=(NUM_RECORDS, 3)),
            random.uniform(0.5, 2, (NUM_RECORDS, 3)),
        ),
        ("mean",),
    ),
    "mask": Case(
        lambda: (partly_observed, mean_field(mean=())),
        lambda random: (
            random.normal(size=NUM_RECORDS),
            np.array([True, True, True, False, True, True]),
        ),
        ("mean",),
    ),
    "reparam": Case(
        feasible(AutoNormal, without_centring),
        lambda random: (
            random.normal(size=NUM_RECORDS),
            random.integers(0, 3, NUM_RECORDS, np.int32),
        ),
        ("effects_decentered", "mean", "spread"),
    ),
    "local latents": Case(
        lambda: (noisy_means, noisy_means_guide),
        _values,
        ("mean", "shift", "slope", "width"),
        has_local_latents=True,
    ),
    "local latents in an inner plate": Case(
        lambda: (levels, levels_guide),
        lambda random: (random.normal(size=(NUM_RECORDS, 3)),),
        ("mean", "slopes", "widths"),
        has_local_latents=True,
    ),
    "vae": Case(lambda: vae(plain_network), _images, _PLAIN_SHARED, has_local_latents=True),
    "vae numpyro.module": Case(
        lambda: vae(stax_network),
        _images,
        ("decoder$params", "encoder$params"),
        has_local_latents=True,
    ),
    "vae flax_module": Case(
        lambda: vae(flax_network),
        _images,
        ("decoder$params", "encoder$params"),
        has_local_latents=True,
    ),
    "vae nnx_module": Case(
        nnx_vae, _images, ("decoder$params", "encoder$params"), has_local_latents=True
    ),
}


@functools.cache
def split_case(name):
    """``ZOO[name]`` split, once for all tests: the starting point of an automatic guide takes
    seconds to find.

    In single precision, whichever test asks first: what is kept here serves tests of both.
    """
    case = ZOO[name]
    shapes = shapes_of(*case.records())
    with jax.enable_x64(False):
        return split(
            *case.build(), jax.random.key(5), shapes, num_records=NUM_RECORDS, static=case.static
        )


def split_case_in_double_precision(name):
    """``split_case(name)`` for use inside ``jax.enable_x64(True)``."""
    single = split_case(name)
    wide = {
        field: _wide(np.float64, getattr(single, field)) for field in ("initial", "blank_record")
    }
    return dataclasses.replace(single, **wide)
