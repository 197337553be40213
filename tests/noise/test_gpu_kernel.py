"""The GPU's kernel of ChaCha20, interpreted on a CPU."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

from tests.conftest import some_of
from workbench.clipping.jaxprs import primitives
from workbench.noise import chacha20
from workbench.noise.chacha20 import key_from_seed, stream

SIZES = itertools.count(64, 16)  # another one for each test: JAX keeps what it has traced
KEYS = jax.random.split(key_from_seed(1), 2)
GIVEN = functools.partial(np.random.default_rng(0).integers, 0, 2**32, dtype=np.uint32)


@pytest.fixture
def interpreted(monkeypatch):
    compiled = pallas.pallas_call
    chacha20._has_kernel.cache_clear()
    monkeypatch.setattr(
        pallas,
        "pallas_call",
        lambda *given, compiler_params, **how: compiled(*given, interpret=True, **how),
    )
    devices = jax.devices
    monkeypatch.setattr(
        jax, "devices", lambda kind=None: devices()[:1] if kind == "gpu" else devices(kind)
    )
    yield
    chacha20._has_kernel.cache_clear()


@pytest.mark.parametrize(
    ("count", "keys"),
    some_of(
        [
            (300, "a key for each"),
            (128, "a key for each"),
            (1, "a key for each"),
            (300, "one key"),
            (128, "one key"),
            (1, "one key"),
        ],
        6,
    ),
)
def test_blocks_are_those_of_the_rfc(interpreted, count, keys):
    """``block`` is compared with the RFC's in ``test_noise``."""
    each = (count,) if keys == "a key for each" else ()
    given = [jnp.asarray(GIVEN(size=shape)) for shape in ((8, *each), (count,), (3, *each))]
    np.testing.assert_array_equal(chacha20._in_registers(*given), chacha20.block(*given))


def is_taken(wide=False):
    """As when a step is traced."""
    size = next(SIZES)
    with jax.enable_x64(wide):
        kernels = primitives(jax.make_jaxpr(jax.vmap(lambda key: stream(key, 3, size)))(KEYS).jaxpr)
    assert chacha20._has_kernel(wide) == ("pallas_call" in kernels)
    return "pallas_call" in kernels


@pytest.mark.parametrize("wide", some_of([True, False]))
def test_it_is_taken_where_it_was_seen_to_be_right(interpreted, wide):
    assert is_taken(wide)


def test_it_is_taken_where_it_is_first_asked_for_on_several_devices(interpreted):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("each",))
    spec = jax.sharding.PartitionSpec("each")
    size = next(SIZES)
    mapped = jax.shard_map(
        lambda keys: jax.vmap(lambda key: stream(key, 3, size))(keys),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    assert "pallas_call" in primitives(jax.make_jaxpr(mapped)(KEYS).jaxpr)


def test_a_draw_of_nothing_takes_no_kernel(interpreted):
    assert "pallas_call" not in primitives(
        jax.make_jaxpr(lambda key: stream(key, 3, 0))(KEYS[0]).jaxpr
    )


def wrong(key, counter, nonce):
    return chacha20.block(key, counter + 1, nonce)


def missing(key, counter, nonce):
    raise ImportError("no Triton")


@pytest.mark.parametrize(("planted", "why"), [(wrong, "it is wrong there"), (missing, "no Triton")])
def test_it_is_not_taken_where_it_is_wrong_or_missing(interpreted, monkeypatch, planted, why):
    monkeypatch.setattr(chacha20, "_in_registers", planted)
    with pytest.warns(UserWarning, match=why):
        assert not is_taken()


@pytest.mark.parametrize("gpus", [[], ["one", "another"]])
def test_several_gpus_and_none_do_without(interpreted, monkeypatch, gpus):
    devices = jax.devices
    monkeypatch.setattr(jax, "devices", lambda kind=None: gpus if kind == "gpu" else devices(kind))
    assert not is_taken()
