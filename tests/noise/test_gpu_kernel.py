"""The GPU's kernel of ChaCha20, interpreted on a CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

from workbench.noise import chacha20

GIVEN = functools.partial(np.random.default_rng(0).integers, 0, 2**32, dtype=np.uint32)


@pytest.fixture
def interpreted(monkeypatch):
    compiled = pallas.pallas_call
    chacha20._has_kernel.cache_clear()
    monkeypatch.setattr(
        pallas, "pallas_call", lambda *given, compiler_params, **how: compiled(*given, interpret=True, **how)
    )
    devices = jax.devices
    monkeypatch.setattr(jax, "devices", lambda kind=None: devices()[:1] if kind == "gpu" else devices(kind))
    yield
    chacha20._has_kernel.cache_clear()


@pytest.mark.parametrize("count", [1, 128, 300])
@pytest.mark.parametrize("keys", ["one key", "a key for each"])
def test_blocks_are_those_of_the_rfc(interpreted, count, keys):
    """``block`` is compared with the RFC's in ``test_noise``."""
    each = (count,) if keys == "a key for each" else ()
    given = [jnp.asarray(GIVEN(size=shape)) for shape in ((8, *each), (count,), (3, *each))]
    np.testing.assert_array_equal(chacha20._in_registers(*given), chacha20.block(*given))


def is_taken():
    """As when a step is traced."""
    found = []
    jax.jit(lambda: found.append(chacha20._has_kernel(False)))()
    return found == [True]


def test_it_is_taken_where_it_was_seen_to_be_right(interpreted):
    assert is_taken()


def wrong(key, counter, nonce):
    return chacha20.block(key, counter + 1, nonce)


def missing(key, counter, nonce):
    raise ImportError("no Triton")


@pytest.mark.parametrize("planted", [wrong, missing])
def test_it_is_not_taken_where_it_is_wrong_or_missing(interpreted, monkeypatch, planted):
    monkeypatch.setattr(chacha20, "_in_registers", planted)
    assert not is_taken()


def test_several_gpus_and_none_do_without(interpreted, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda kind=None: ["one", "another"])
    assert not is_taken()
    chacha20._has_kernel.cache_clear()
    monkeypatch.setattr(jax, "devices", lambda kind=None: [])
    assert not is_taken()
