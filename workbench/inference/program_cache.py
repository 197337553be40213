"""The compiled programs that this process used last, found by what they do.

A program is looked up by its own text, after it was traced again. So whatever model, guide and
optimiser read decides: globals, attributes and closures too, which no comparison of functions would
see. Tracing takes a fraction of the time that XLA takes, and checks that are made while a step is
traced are made for every fit.

Besides the text everything counts that the text leaves out: which arguments it takes (unused ones
are not in it), their types and trees, donated memory, the device, compiler options and JAX's
configuration. A program that calls Python, has effects, closes over much data or spans several
devices is never kept.

Only executables are kept: no records, keys, results, models, nor what was traced.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import config as jax_config
from jax.interpreters.partial_eval import dce_jaxpr

from workbench.clipping.jaxprs import constants, primitives

__all__ = ["Identity", "compiled", "digest_of", "forget", "identity_of", "jit"]

MOST = 10  # programs, of 5 to 10 MB each; a fit has five
_MOST_BYTES = 2**20  # of constants in one of them
_NOT_KEPT = ("callback", "ffi", "infeed", "outfeed", "shard_map", "sharding", "custom_partitioning")

_programs: OrderedDict[str, tuple[Any, Any]] = OrderedDict()  # (trees, executable)
_lock = threading.Lock()


class Identity(NamedTuple):
    """What a program's text leaves out.

    :param facts: in words. :param trees: of arguments and results, which are compared and not
        written out.
    """

    facts: str
    trees: tuple[Any, ...]


def identity_of(traced: jax.stages.Traced, arguments: tuple[Any, ...]) -> Identity | None:
    """The identity of what ``jax.jit(...).trace(*arguments)`` returned; None if it must not be
    kept.

    :param arguments: those that were not static.
    """
    closed = traced.jaxpr
    arrays = [leaf for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array)]
    devices = {device for leaf in arrays for device in leaf.devices()}
    context = _context()
    # constants are, not arguments
    in_text = getattr(jax.config, "jax_use_simplified_jaxpr_constants", None) is False
    if closed.effects or len(devices) > 1 or context is None or not in_text:
        return None
    if any(fragment in name for name in primitives(closed.jaxpr) for fragment in _NOT_KEPT):
        return None
    if (
        sum(np.size(value) * np.dtype(_plain(value)).itemsize for value in constants(closed))
        > _MOST_BYTES
    ):
        return None
    _, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    facts = (
        [
            array_type.str_short() + str(array_type.weak_type)
            for array_type in (*closed.in_avals, *closed.out_avals)
        ],
        used,
        traced.donate_argnums,
        [(device.platform, device.id) for device in devices],
        [getattr(leaf, "committed", None) for leaf in arrays],
        sorted(jax.config.values.items()),
        context,
        os.environ.get("XLA_FLAGS", ""),
    )
    return Identity(repr(facts), (traced.in_tree, traced.out_tree))


def _context() -> Any:
    """What decides in this thread how JAX traces; None where this JAX does not say."""
    trace_context = getattr(jax_config, "trace_context", None)
    return None if trace_context is None else trace_context()


def _plain(value: object) -> Any:
    """The type of a constant; that of keys is not NumPy's."""
    kind = getattr(value, "dtype", type(value))
    return np.uint64 if jax.dtypes.issubdtype(kind, jax.dtypes.prng_key) else kind


def digest_of(text: str, constant_values: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """32 hexadecimal digits: equal in all processes for programs that do the same with equal
    arguments.

    :param constant_values: constants. :param options: of the compiler.
    """
    digest = hashlib.blake2b(f"{sorted(options.items())}{text}".encode(), digest_size=16)
    for (
        constant
    ) in constant_values:  # in the text too, unless a later JAX turns them into arguments
        is_key = jax.dtypes.issubdtype(getattr(constant, "dtype", np.float32), jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(constant) if is_key else constant)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def compiled(digest: str, identity: Identity | None, compile: Callable[[], Any]) -> Any:
    """The executable of a program: one that is kept, or else what ``compile`` returns.

    :param digest: of ``digest_of``. :param identity: of ``identity_of``.
    """
    if identity is None:
        return compile()
    name = hashlib.blake2b(f"{digest}{identity.facts}".encode()).hexdigest()
    with _lock:
        trees, program = _programs.get(name, (None, None))
        if program is not None and _are_same(trees, identity.trees):
            _programs.move_to_end(name)
            return program
    program = compile()
    with _lock:
        _programs[name] = identity.trees, program
        _programs.move_to_end(name)
        while len(_programs) > MOST:
            _programs.popitem(last=False)
    return program


def _are_same(first: object, second: object) -> bool:
    try:
        return bool(first == second)
    except Exception:  # a tree holds whatever the nodes of a user's own compare by
        return False


def forget() -> None:
    """Keep no program."""
    with _lock:
        _programs.clear()


def jit(
    function: Callable[..., Any],
    options: Mapping[str, Any] | None = None,
    static: int | None = None,
) -> Callable[..., Any]:
    """``jax.jit`` with compiler options, whose programs are those that are kept; it traces once for
    each kind of arguments.

    :param static: the place of a static argument.
    """
    chosen = dict(options or {})
    jitted = jax.jit(function, static_argnums=static)
    programs: dict[Any, Any] = {}

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        dynamic = tuple(
            argument for position, argument in enumerate(arguments) if position != static
        )
        leaves, tree = jax.tree.flatten(dynamic)
        context = _context()
        if context is None or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return jitted(*arguments)
        kinds = tuple((jax.typeof(leaf), getattr(leaf, "sharding", None)) for leaf in leaves)
        key = tree, kinds, context, None if static is None else arguments[static]
        if key not in programs:
            traced = jitted.trace(*arguments)
            lowered, identity = traced.lower(), identity_of(traced, dynamic)
            digest = (
                ""
                if identity is None
                else digest_of(lowered.as_text(), tuple(constants(traced.jaxpr)), chosen)
            )
            programs[key] = compiled(
                digest, identity, lambda: lowered.compile(compiler_options=chosen)
            )
        return programs[key](*dynamic)

    return call
