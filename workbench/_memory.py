"""Memory that the C library holds free, given back to the operating system.

Compiling a program takes hundreds of MB for a moment. The allocator of glibc keeps what is between long-lived blocks, so a
process that fits one formula after another would look twice as large as what it uses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

__all__ = ["trim"]


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; on Windows None is no library
        return None


def trim() -> None:
    """Give free memory of all heaps back, where the C library can; takes some milliseconds."""
    release = _malloc_trim()
    if release is not None:
        release(0)
