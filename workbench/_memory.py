"""Memory that a process does not need after a fit, given back.

JAX keeps what it traced and compiled for as long as the process lives: a session that fits one
formula after another grows by megabytes with each. And the allocator of glibc keeps what is free
between long-lived blocks, of which compiling leaves hundreds of megabytes.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
from collections.abc import Callable

import jax

__all__ = ["FITS_BETWEEN", "give_back", "tidy"]

# fits between two times that JAX's caches are emptied; the next fit then takes some seconds more
FITS_BETWEEN = 50
_fits = itertools.count(1)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; on Windows None is no library
        return None


def _trim() -> None:
    """Give back what the C library holds free, where it can; takes some milliseconds."""
    release = _malloc_trim()
    if release is not None:
        release(0)


def give_back() -> None:
    """Collect garbage, and give back what is free then: after a fit that nobody holds any more."""
    gc.collect()
    _trim()


def tidy() -> None:
    """Give memory back after a fit: now and then what JAX keeps, then what the C library holds
    free.
    """
    if next(_fits) % FITS_BETWEEN == 0:
        jax.clear_caches()
    _trim()
