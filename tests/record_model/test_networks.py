"""Networks of equinox and flax that keep state are refused by name; dropout with a key of the
record is not.
"""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from flax import linen, nnx
from numpyro.contrib.module import eqx_module, flax_module, nnx_module

from tests.conftest import some_of
from workbench.clipping.separation import PrivacyModelError
from workbench.record_model.splitting import split

KEY = jax.random.key(0)
SHAPES = (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.int32))


def model_of(logits):
    """A classifier of two classes with ``logits(x)`` called inside the record plate."""

    def model(x, y=None, num_records=None):
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=logits(x)[:, 0]), obs=y)

    return model


def no_latents(x, y=None, num_records=None):
    pass


def split_of(logits):
    return split(model_of(logits), no_latents, KEY, SHAPES, num_records=10)


def refusal(logits):
    with pytest.raises(PrivacyModelError) as caught:
        split_of(logits)
    return str(caught.value)


# ---- equinox -------------------------------------------------------------------------------------


def equinox_network(*middle):
    return eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=KEY), *middle, eqx.nn.Linear(4, 1, key=KEY)])


def with_statistics(inference=False):
    network, state = eqx.nn.make_with_state(
        lambda: equinox_network(eqx.nn.BatchNorm(4, "batch", mode="batch"))
    )()
    network = eqx.nn.inference_mode(network, inference)
    return lambda x: jax.vmap(
        lambda one: eqx_module("net", network)(one, state)[0], axis_name="batch"
    )(x)


def test_batch_statistics_of_equinox_are_refused_with_their_place():
    message = refusal(with_statistics())
    assert "network 'net' has batch statistics (layers[1]: BatchNorm)" in message
    assert "Use GroupNorm or LayerNorm" in message


def test_statistics_that_stand_still_are_taken():
    """As those of a network that was trained on public data."""
    assert split_of(with_statistics(inference=True)).shared == ("net$params",)


def test_state_of_equinox_is_refused_with_its_place():
    def make():
        return eqx.nn.Sequential(
            [eqx.nn.SpectralNorm(eqx.nn.Linear(3, 1, key=KEY), "weight", key=KEY)]
        )

    network, state = eqx.nn.make_with_state(make)()
    message = refusal(lambda x: jax.vmap(lambda one: eqx_module("net", network)(one, state)[0])(x))
    assert "network 'net' keeps mutable state (layers[0]: SpectralNorm)" in message


def test_dropout_of_equinox_without_a_key_is_refused():
    network = equinox_network(eqx.nn.Dropout(0.5))
    message = refusal(lambda x: jax.vmap(eqx_module("net", network))(x))
    assert "(layers[1]: Dropout)" in message
    assert "key = numpyro.prng_key() inside the record plate (net(x, key=key))" in message


def equinox_dropout(x):
    key = numpyro.prng_key()
    network = eqx_module("net", equinox_network(eqx.nn.Dropout(0.5)))
    return jax.vmap(lambda one: network(one, key=key))(x)


@pytest.mark.parametrize(
    "norm", [eqx.nn.LayerNorm(4), eqx.nn.GroupNorm(2, 4), eqx.nn.Dropout(0.5, inference=True)]
)
def test_layers_of_equinox_without_state_are_taken(norm):
    found = split_of(lambda x: jax.vmap(eqx_module("net", equinox_network(norm)))(x))
    assert (found.shared, found.uses_base_noise) == (("net$params",), False)


# ---- flax's linen --------------------------------------------------------------------------------


class Linen(linen.Module):
    middle: type
    options: dict

    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(self.middle(**self.options)(linen.Dense(4)(x)))


def statistics(**options):
    network = Linen(linen.BatchNorm, {"use_running_average": False, **options})
    return lambda x, **more: flax_module("net", network, input_shape=(1, 3), **more)(x)


def test_batch_statistics_of_linen_are_refused_with_their_place():
    message = refusal(lambda x: statistics()(x, mutable=["batch_stats"]))
    assert "network 'net' has batch statistics (BatchNorm_0: BatchNorm)" in message
    # flax itself would stumble over the missing statistics
    assert "(calm: BatchNorm)" in refusal(statistics(name="calm"))


def test_state_of_linen_is_refused_with_its_name():
    class Counting(linen.Module):
        @linen.compact
        def __call__(self, x):
            count = self.variable("seen", "count", lambda: jnp.zeros(()))
            count.value = count.value + 1
            return linen.Dense(1)(x)

    message = refusal(
        lambda x: flax_module("net", Counting(), input_shape=(1, 3), mutable=["seen"])(x)
    )
    assert "network 'net' keeps mutable state (seen.count)" in message


LINEN_DROPOUT = Linen(linen.Dropout, {"rate": 0.5, "deterministic": False})


def test_dropout_of_linen_without_a_key_is_refused():
    message = refusal(lambda x: flax_module("net", LINEN_DROPOUT, input_shape=(1, 3))(x))
    assert "(Dropout_0: Dropout)" in message
    assert "apply_rng=['dropout']" in message


def linen_dropout(x):
    network = flax_module("net", LINEN_DROPOUT, input_shape=(1, 3), apply_rng=["dropout"])
    return network(x, rngs={"dropout": numpyro.prng_key()})


# ---- flax's nnx ----------------------------------------------------------------------------------


class NNX(nnx.Module):
    def __init__(self, middle):
        self.first, self.middle = nnx.Linear(3, 4, rngs=nnx.Rngs(0)), middle
        self.last = nnx.Linear(4, 1, rngs=nnx.Rngs(0))

    def __call__(self, x, **options):
        return self.last(self.middle(self.first(x), **options))


class Counting(nnx.Module):
    def __init__(self):
        self.count = nnx.Variable(jnp.zeros(()))

    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("middle", "words"),
    [
        (nnx.BatchNorm(4, rngs=nnx.Rngs(0)), "has batch statistics (middle: BatchNorm)"),
        (Counting(), "keeps mutable state (middle: Counting)"),
        (nnx.Dropout(0.5), "without a per-record random key (middle: Dropout)"),
        (
            nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
            "without a per-record random key (middle: Dropout)",
        ),  # it counts its draws
    ],
)
def test_state_of_nnx_is_refused_with_its_place(middle, words):
    network = NNX(middle)
    message = refusal(lambda x: nnx_module("net", network)(x))
    assert "network 'net' " in message
    assert words in message


@pytest.mark.parametrize(
    "middle", [nnx.LayerNorm(4, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, deterministic=True)]
)
def test_layers_of_nnx_without_state_are_taken(middle):
    network = NNX(middle)
    assert not split_of(lambda x: nnx_module("net", network)(x)).uses_base_noise


NNX_DROPOUT = NNX(nnx.Dropout(0.5))


def nnx_dropout(x):
    return nnx_module("net", NNX_DROPOUT)(x, rngs=numpyro.prng_key())


# ---- dropout as base noise -----------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("logits", some_of([equinox_dropout, linen_dropout, nnx_dropout], 3))
def test_each_record_drops_units_of_its_own(logits):
    """Sixteen records that are the same: their losses differ, and follow the step's key."""
    found = split_of(logits)
    assert found.uses_base_noise
    shared, _ = found.release_point(found.initial, KEY)
    records = (jnp.ones((16, 3)), jnp.ones(16, jnp.int32))
    losses, again, other = (
        np.asarray(found.record_losses(shared, records, jax.random.key(n))) for n in (1, 1, 2)
    )
    assert len(np.unique(losses)) > 4
    assert np.array_equal(losses, again)
    assert not np.array_equal(losses, other)


def test_an_error_of_the_model_that_is_not_about_dropout_stays_what_it_is():
    network = equinox_network(eqx.nn.Dropout(0.5, inference=True))
    with pytest.raises(ZeroDivisionError):
        split_of(lambda x: jax.vmap(eqx_module("net", network))(x) / (1 // 0))


def test_an_automatic_guide_meets_the_refusal_too():
    from numpyro.infer.autoguide import AutoNormal

    model = model_of(with_statistics())
    with pytest.raises(PrivacyModelError, match=r"layers\[1\]: BatchNorm"):
        split(model, AutoNormal(model), KEY, SHAPES, num_records=10)


@pytest.mark.thorough
def test_neither_library_is_asked_for_until_a_network_needs_it():
    code = (
        "import sys, workbench.record_model.model, workbench.models; print({'equinox', 'flax'} & "
        "set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "set()"
