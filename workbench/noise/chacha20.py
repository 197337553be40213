"""Secure randomness: ChaCha20 keys for JAX.

Noise and minibatches decide whether a guarantee holds, so both are drawn from ChaCha20 (RFC 8439)
with 256-bit keys from the operating system. ``CHACHA20`` is a JAX PRNG implementation: its keys
work in the ordinary ``jax.random`` functions, ``split`` and ``fold_in`` included, and under jit,
scan and vmap.

Layout of the 96-bit nonce: (purpose, argument, lane). The purpose is one of bits, split, fold_in
and stream. The argument is the bit width, or the number that is folded in or streamed. Only streams
have lanes. No (key, nonce, counter) is used for two purposes, so no block is used twice.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.random import define_prng_impl

from workbench.noise import key_use

if TYPE_CHECKING:
    from jax.typing import ArrayLike

__all__ = [
    "CHACHA20",
    "child_key",
    "fast_key",
    "is_secret",
    "key_from_bytes",
    "key_from_seed",
    "new_key",
    "require_secure",
    "stream",
]

_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
_BITS, _SPLIT, _FOLD_IN, _STREAM = (
    int.from_bytes(word, "little") for word in (b"bits", b"splt", b"fold", b"strm")
)
_WORDS_PER_BLOCK = 16
_TILE = 256  # blocks that a CPU computes at a time; their state is half of its L1 cache
_THREADS = 128  # of a GPU that share a part of a kernel, one for each block


def _rotate_left(word: jax.Array, distance: int) -> jax.Array:
    return (word << np.uint32(distance)) | (word >> np.uint32(32 - distance))


def _quarter_round(a, b, c, d):
    """RFC 8439, section 2.1."""
    a = a + b
    d = _rotate_left(d ^ a, 16)
    c = c + d
    b = _rotate_left(b ^ c, 12)
    a = a + b
    d = _rotate_left(d ^ a, 8)
    c = c + d
    b = _rotate_left(b ^ c, 7)
    return a, b, c, d


_COLUMNS_THEN_DIAGONALS = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


def _double_round(words: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    state = list(words)
    for quarter in _COLUMNS_THEN_DIAGONALS:
        mixed = _quarter_round(*(state[position] for position in quarter))
        for position, word in zip(quarter, mixed, strict=True):
            state[position] = word
    return tuple(state)


def block(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> jax.Array:
    """The ChaCha20 block function (RFC 8439, section 2.3) for many counters at once.

    :param key: uint32[8], the words of the 256-bit key, little-endian, or uint32[8, n], one for
        each counter.
    :param counter: uint32[n].
    :param nonce: uint32[3], or uint32[3, n], one for each counter.
    :return: uint32[16, n]; column i is the block of ``counter[i]``.
    """
    return jnp.stack(_twenty_rounds(_start(key, counter, nonce)))


def _start(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> tuple[jax.Array, ...]:
    """The state before the first round, of the arguments of ``block``: 16 words uint32[n]."""
    words = [jnp.uint32(word) for word in _CONSTANTS] + [key[position] for position in range(8)]
    words += [counter] + [nonce[position] for position in range(3)]
    return tuple(jnp.broadcast_to(word, counter.shape) for word in words)


def _twenty_rounds(start: tuple[jax.Array, ...]) -> list[jax.Array]:
    end = lax.fori_loop(0, 10, lambda _, state: _double_round(state), start)
    return [before + after for before, after in zip(start, end, strict=True)]


def _one_kernel(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> jax.Array:
    """``block`` of at most ``_TILE`` counters as one CPU kernel instead of five hundred small ones.

    From jax 0.12 on, XLA does this by itself for a computation of this size. Earlier versions need
    to be asked. It is not possible for larger ones, which XLA divides among cores.
    """
    blocks = jax.jit(block)(key, counter, nonce)
    if jax.__version_info__ >= (0, 12):
        return blocks
    return set_xla_metadata(blocks, xla_cpu_small_call="true", inlineable="false")


def _in_tiles(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> jax.Array:
    """``block``, one tile of counters at a time. If n is not a multiple of the tile, the last two
    tiles overlap.
    """
    count = counter.shape[0]
    if count <= _TILE:
        return _one_kernel(key, counter, nonce)

    def fill(tile: jax.Array, blocks: jax.Array) -> jax.Array:
        first = jnp.minimum(tile * _TILE, count - _TILE)
        inputs = [
            lax.dynamic_slice_in_dim(array, first, _TILE, axis=-1)
            if array.shape[-1] == count
            else array
            for array in (key, counter, nonce)
        ]
        return lax.dynamic_update_slice_in_dim(blocks, _one_kernel(*inputs), first, axis=1)

    return lax.fori_loop(
        0, -(-count // _TILE), fill, jnp.empty((_WORDS_PER_BLOCK, count), jnp.uint32)
    )


def _in_registers(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> jax.Array:
    """``block`` as one GPU kernel, which holds the state of ``_THREADS`` counters in registers from
    first to last round.

    Left to itself XLA makes 16 copies of the state and some 20 kernels in each turn of the loop:
    five to seven times as long on an H100. Unrolled, it would take half a minute to compile.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    # references to memory, for which Pallas has no public type
    def kernel(start: Any, blocks: Any) -> None:
        words = _twenty_rounds(tuple(start[index, :] for index in range(_WORDS_PER_BLOCK)))
        for index, word in enumerate(words):
            blocks[index, :] = word

    count = counter.shape[0]
    turns = -(-count // _THREADS)
    start = jnp.pad(jnp.stack(_start(key, counter, nonce)), ((0, 0), (0, turns * _THREADS - count)))
    spec = pallas.BlockSpec((_WORDS_PER_BLOCK, _THREADS), lambda turn: (0, turn))
    padded = pallas.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(start.shape, jnp.uint32),
        grid=(turns,),
        in_specs=[spec],
        out_specs=spec,
        compiler_params=triton.CompilerParams(num_warps=_THREADS // 32),
    )(start)
    return padded[:, :count]


@functools.cache
def _has_kernel(wide: bool) -> bool:
    """Whether there is one GPU, and ``_in_registers`` gives there what ``block`` gives on the CPU.
    Tried once.

    Several GPUs take ``block``: nobody has tried the kernel there. :param wide: whether JAX has
    64-bit numbers.
    """
    try:
        (gpu,) = jax.devices("gpu")
    except (RuntimeError, ValueError):  # none, or several
        return False
    # as good as any keys
    words = np.arange(12 * 5000, dtype=np.uint32).reshape(12, 5000) * np.uint32(0x9E3779B1)

    def on(device: jax.Device, blocks: Callable[..., jax.Array]) -> np.ndarray:
        with jax.enable_x64(wide), jax.default_device(device):
            return np.asarray(jax.jit(blocks)(words[:8], words[8], words[9:]))

    def is_right() -> bool:
        return bool(np.array_equal(on(gpu, _in_registers), on(jax.devices("cpu")[0], block)))

    with ThreadPoolExecutor(1) as thread:  # has no part in what a caller traces
        try:
            if thread.submit(is_right).result():
                return True
            why = "it is wrong there"
        except Exception as error:  # of what is experimental in JAX, anything may fail
            why = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"The GPU's own kernel of ChaCha20 is not used, which makes steps slower ({why}).",
        stacklevel=2,
    )
    return False


@custom_vmap
def _blocks(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> jax.Array:
    """``block`` in the way that is fastest on the device: tiles in a CPU's L1 cache, a GPU's
    registers, or all at once.
    """
    elsewhere = (
        _in_registers
        if counter.size and _has_kernel(bool(jax.config.read("jax_enable_x64")))
        else block
    )
    return lax.platform_dependent(key, counter, nonce, cpu=_in_tiles, default=elsewhere)


@_blocks.def_vmap
def _blocks_of_batch(
    size: int, in_batched: list[bool], key: jax.Array, counter: jax.Array, nonce: jax.Array
) -> tuple[jax.Array, bool]:
    """One row of lanes for the whole batch. A short row for each entry would take two to three
    times as long.
    """
    count = counter.shape[-1]

    def in_a_row(words: jax.Array, batched: bool) -> jax.Array:
        """uint32[w] or uint32[w, n], also with a first axis for the batch, as uint32[w, size
        * n].
        """
        words = words if batched else words[None]
        words = words if words.ndim == 3 else words[:, :, None]
        spread = jnp.broadcast_to(words, (size, words.shape[1], count))
        # -1 would fail if n is 0
        return jnp.moveaxis(spread, 0, 1).reshape(words.shape[1], size * count)

    counters = jnp.broadcast_to(counter, (size, count)).reshape(-1)
    keys, nonces = (
        in_a_row(words, batched) if batched or words.ndim == 2 else words
        for words, batched in ((key, in_batched[0]), (nonce, in_batched[2]))
    )
    blocks = _blocks(keys, counters, nonces).reshape(_WORDS_PER_BLOCK, size, count)
    return jnp.moveaxis(blocks, 1, 0), True


def _nonce(purpose: int, argument: ArrayLike, lane: ArrayLike = 0) -> jax.Array:
    return jnp.stack(
        [
            jnp.uint32(purpose),
            jnp.asarray(argument).astype(jnp.uint32),
            jnp.asarray(lane).astype(jnp.uint32),
        ]
    )


def _words(key: jax.Array, nonce: jax.Array, count: int) -> jax.Array:
    """``count`` uint32 words of keystream: the first word of every block, then the second of every
    block, and so on.
    """
    blocks = -(-count // _WORDS_PER_BLOCK)
    if blocks >= 2**32:
        raise ValueError(
            f"count={count!r}: one ChaCha20 key gives at most 2**36 words; split the key first."
        )
    return _blocks(key, jnp.arange(blocks, dtype=jnp.uint32), nonce).reshape(-1)[:count]


@functools.partial(jax.jit, static_argnums=(1, 2))
def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    count = math.prod(shape)
    if bit_width == 32:
        return _words(key, _nonce(_BITS, 32), count).reshape(shape)
    if bit_width == 64:
        pairs = _words(key, _nonce(_BITS, 64), 2 * count).reshape(*shape, 2)
        return lax.bitcast_convert_type(pairs, jnp.uint64)
    per_word = 32 // bit_width
    words = _words(key, _nonce(_BITS, bit_width), -(-count // per_word))
    return (
        lax.bitcast_convert_type(words, jnp.dtype(f"uint{bit_width}"))
        .reshape(-1)[:count]
        .reshape(shape)
    )


@functools.partial(jax.jit, static_argnums=1)
def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    count = math.prod(shape)
    blocks = -(-count // 2)
    stream = _blocks(key, jnp.arange(blocks, dtype=jnp.uint32), _nonce(_SPLIT, 0))
    return stream.T.reshape(2 * blocks, 8)[:count].reshape(*shape, 8)


@jax.jit
def _fold_in(key: jax.Array, number: jax.Array) -> jax.Array:
    return _blocks(key, jnp.zeros(1, jnp.uint32), _nonce(_FOLD_IN, number))[:8, 0]


def _refuse_seed(seed: jax.Array) -> jax.Array:
    raise TypeError(
        "A ChaCha20 key has 256 bits: use new_key() for a secret key, or key_from_seed(seed) for "
        "a reproducible one."
    )


CHACHA20 = define_prng_impl(
    key_shape=(8,),
    seed=_refuse_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="dpvi_chacha20",
    tag="cc20",
)


@functools.cache
def _hide_keys(key_type: Any) -> None:
    """Hide the bits of ChaCha20 keys in what JAX prints.

    ``repr`` of a typed key shows its bits, and notebooks, logs and tracebacks with local variables
    store ``repr``. JAX has one class for all kinds of keys, so its ``__repr__`` is replaced by one
    that shows other kinds of keys as before.
    """
    shown = key_type.__repr__

    def hidden(self: jax.Array) -> str:
        if jax.random.key_impl(self) != CHACHA20:
            return str(shown(self))
        return f"<secret key{f's of shape {self.shape}' if self.shape else ''}>"

    key_type.__repr__ = key_type.__str__ = hidden


def key_from_bytes(secret: bytes) -> jax.Array:
    """A typed JAX key, shape (), from exactly 32 bytes.

    >>> import secrets
    >>> wb.noise.is_secret(wb.noise.key_from_bytes(secrets.token_bytes(32)))
    False

    :raises ValueError: if ``secret`` has another length (its value is not shown).
    """
    if len(secret) != 32:
        raise ValueError(f"secret: a ChaCha20 key takes 32 bytes, not {len(secret)}.")
    words = np.frombuffer(secret, dtype="<u4").astype(np.uint32)
    key = jax.random.wrap_key_data(jnp.asarray(words), impl=CHACHA20)
    kind: Any = type(key)
    _hide_keys(kind)  # not before the first key: asking for its class starts JAX's devices
    return key


def new_key(broadcast: Callable[[bytes], bytes] = bytes) -> jax.Array:
    """A secret key with 256 bits from the operating system, for one run.

    >>> key = wb.noise.new_key()
    >>> key.shape, wb.noise.is_secret(key)
    ((), True)

    :param broadcast: of the bytes that each process of a fit drew, returns those of one.
    :raises TypeError: if it is traced, because a compiled function would return the same key at
        each call.
    """
    key = key_from_bytes(broadcast(os.urandom(32)))
    if isinstance(key, jax.core.Tracer):
        raise TypeError(
            "new_key() was called in a function that JAX compiles, so every call would use the "
            "same key: pass it in."
        )
    key_use.note_made(key, secret=True)
    return key


def is_secret(key: jax.Array) -> bool:
    """Whether ``new_key`` made ``key`` in this process. Others may have any other key."""
    return key_use.is_secret(key)


def key_from_seed(seed: int) -> jax.Array:
    """A reproducible key from a whole number >= 0 (its SHA-256).

    Everybody who knows the seed can compute every noise draw and subtract it. The guarantee of a
    run with such a key has this caveat.
    """
    key = key_from_bytes(hashlib.sha256(b"dpvi-workbench seed " + str(int(seed)).encode()).digest())
    key_use.note_made(key, secret=False)
    return key


def child_key(key: jax.Array, purpose: int) -> jax.Array:
    """Another key for ``purpose``, which begins a run of its own and is as secret as ``key``."""
    child = jax.random.fold_in(key, purpose)
    key_use.note_child(key, child)
    return child


def require_secure(key: jax.Array) -> None:
    """Refuse a key that is not from this module. Checked while tracing, at no cost.

    :raises TypeError: if ``key`` is not a typed ChaCha20 key; ``jax.random.key(0)`` is not one.
    """
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed or jax.random.key_impl(key) != CHACHA20:
        raise TypeError(
            "key: noise and minibatches need a key from workbench.noise.chacha20: new_key(), or "
            "key_from_seed(seed). Anyone can predict the draws of jax.random.PRNGKey(0) and of "
            "other keys of jax.random."
        )


def stream(key: jax.Array, number: ArrayLike, count: int, lane: ArrayLike = 0) -> jax.Array:
    """``count`` uint32 words of the keystream ``(number, lane)``, two uint32, for jit, scan and
    vmap.

    It does in one pass what ``fold_in`` and ``bits`` do in two, because each call of ChaCha20 has a
    fixed cost that matters for small draws.

    :raises TypeError: if ``key`` is not a ChaCha20 key.
    """
    require_secure(key)
    return _words(jax.random.key_data(key), _nonce(_STREAM, number, lane), count)


def fast_key(key: jax.Array) -> jax.Array:
    """A threefry key from a secure one, for draws that protect nobody: base noise of guides,
    starting values, posteriors.

    It consists of 64 bits of the secure key: give it a separate key (from ``fold_in``) and use that
    for nothing else.

    :param key: a ChaCha20 key, or uint32[2] words of a ``stream`` that are used for nothing else.
    """
    words = jax.random.key_data(key)[:2] if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return jax.random.wrap_key_data(words, impl="threefry2x32")
