"""Checks that a record's loss neither sees other records nor shows its own, read off the loss's
jaxpr.

Everything else in this package relies on it. Clipping bounds what a record does to its own term of
the sum. Nothing bounds what it does to the terms of others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from workbench._validate import in_one_line, printable
from workbench.clipping.jaxprs import aval, constants, equations

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "BY_POSITION",
    "PrivacyModelError",
    "has_axis_of_records",
    "has_entry_for_each_record",
    "require_no_records",
    "require_plain",
    "require_separate",
    "row_sizes_of",
]

BY_POSITION = (
    "Give record arrays by position, so that each record sees its own row. An array that is "
    "public and has this length by chance can come in with an axis of one in front: array[None] "
    "outside the model, [0] inside it."
)

_RANDOM = (
    "draws all records' random numbers from the first one's key, as JAX does for keys of type "
    "'rbg': use keys of type 'threefry2x32' (the usual ones)"
)
_CALLS_PYTHON = (
    "calls Python, as jax.debug.print, pure_callback and io_callback do: it would see all "
    "records of a minibatch, and could show them. Take it out"
)
_ACROSS = (
    "looks across all records of a minibatch (equinox.internal.unvmap_any, say): write it for "
    "one record"
)
# operations whose rule for a whole minibatch, or whatever runs behind them, is known to mix records
# or is not known
_REFUSED = {
    "custom_vmap_call": "has its own rule for many records at once (jax.custom_batching), which "
    "may mix them: call the function itself, without custom_vmap or sequential_vmap",
    "ffi_call": "calls foreign code (jax.ffi), which may see all records of a minibatch: write it "
    "in JAX",
    "rng_bit_generator": _RANDOM,
    "debug_print": _CALLS_PYTHON,
    # its loop for a whole minibatch turns until the last record has converged, which changes the
    # last bits of all others
    "regularized_incomplete_beta": "uses jax.scipy.special.betainc, as the cdf of Beta, Binomial "
    "and Student's t does. Its rule for a whole minibatch mixes records: write it with other "
    "functions, such as a sum of densities",
    **dict.fromkeys(("unvmap_any", "unvmap_all", "unvmap_max"), _ACROSS),
}
_SOUND_KEYS = ("key<fry>", "key<cc20>")  # threefry and noise.chacha20


class PrivacyModelError(ValueError):
    """The model or guide cannot be fitted privately; the message names the site and says why.

    :param message: may quote names of any length and with any characters, and is shown by a
        terminal.
    :param to_paste: lines of code that solve the problem, shown below the message.
    """

    def __init__(self, message: str, to_paste: str = "") -> None:
        super().__init__(in_one_line(message), "\n".join(map(printable, to_paste.split("\n"))))

    def __str__(self) -> str:
        message, to_paste = self.args
        return f"{message}\n\n{to_paste}" if to_paste else str(message)


def require_separate(
    loss: Callable[[Any, Any], jax.Array], u: PyTree, record: PyTree, *num_records: int
) -> None:
    """Trace the gradient of ``loss(u, record)`` in u, and look at its operations and constants.

    What cannot be found so: what was made of the records outside and has neither their number of
    rows nor of entries (means, some of the rows or columns, flat or not, single rows as constants
    of their own), what has an axis of one in front, and primitives of the caller's own
    (``jax.extend.core.Primitive``).

    :param u: pytree of float arrays, or their shapes and types. :param record: of one record,
        likewise.
    :param num_records: see ``require_no_records``.
    :raises PrivacyModelError: naming what was found, and what to write instead.
    """
    closed = jax.make_jaxpr(jax.grad(loss))(u, record)
    require_plain(closed)
    require_no_records(closed, *num_records, row_sizes=row_sizes_of(jax.tree.leaves(record)))


def row_sizes_of(record: Collection[Any]) -> frozenset[int]:
    """How many entries a record has in each of its arrays, where it has several. :param record: one
    record's arrays.
    """
    return frozenset({math.prod(array.shape) for array in record} - {0, 1})


def require_plain(closed: ClosedJaxpr) -> None:
    """Refuse operations that may mix or show records, and writing to anything outside.

    :raises PrivacyModelError: naming the operation.
    """
    for equation in equations(closed.jaxpr):
        name = equation.primitive.name
        reason = _CALLS_PYTHON if "callback" in name else _REFUSED.get(name)
        types = {
            str(getattr(aval(atom), "dtype", "")) for atom in (*equation.invars, *equation.outvars)
        }
        if reason is None and any(
            dtype.startswith("key<") and dtype not in _SOUND_KEYS for dtype in types
        ):
            reason = _RANDOM
        if reason is not None:
            raise PrivacyModelError(f"the model, guide or loss {reason} (operation {name}).")
    if closed.effects:
        raise PrivacyModelError(
            "the model, guide or loss writes to an array outside itself (a jax.new_ref, say), "
            "which would carry records from one to another: return values instead."
        )


def require_no_records(
    closed: ClosedJaxpr, *num_records: int, row_sizes: Collection[int] = ()
) -> None:
    """Refuse a computation that depends on a constant that looks like all of the records.

    :param num_records: their number; with units, those of units and of rows. :param row_sizes: of
        ``row_sizes_of``.
    :raises PrivacyModelError: with the shape of the constant.
    """
    for constant, number in itertools.product(constants(closed), num_records):
        shape = tuple(getattr(constant, "shape", ()))
        if has_axis_of_records(shape, number, row_sizes):
            trait = (
                f"an axis of {number}, which is"
                if number in shape
                else f"as many entries as {number} rows, which is"
            )
            raise PrivacyModelError(
                f"an array of shape {shape} that the model, guide or loss closes over has {trait} "
                f"the number of records: every record would see all of them. {BY_POSITION}"
            )


def has_entry_for_each_record(value: object, num_records: int) -> bool:
    """Whether a list, tuple or dictionary has a number or an array for each record. Words, such as
    names, are no records.
    """
    if not isinstance(value, (list, tuple, dict)) or len(value) != num_records or num_records < 2:
        return False
    entries = value.values() if isinstance(value, dict) else value
    return all(
        isinstance(entry, (bool, int, float, np.generic)) or np.ndim(entry) > 0 for entry in entries
    )


def has_axis_of_records(
    shape: tuple[int, ...], num_records: int, row_sizes: Collection[int] = ()
) -> bool:
    """Whether an array looks like all of the records: an axis of ``num_records``, and none of one
    in front.

    :param row_sizes: of ``row_sizes_of``. An array with as many entries as so many rows, flat or
        not, looks like them too.
    """
    if num_records <= 1 or not shape or shape[0] == 1:
        return False
    return num_records in shape or math.prod(shape) in {num_records * size for size in row_sizes}
