"""Linear algebra of many small matrices."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

__all__ = ["one_thread"]

_LOCK = threading.Lock()  # two threads that both set the number and set it back would leave it at 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """NumPy takes one thread of the process: for small matrices several take ten times the
    processor time, waiting.
    """
    with _LOCK, threadpool_limits(1, "blas"):
        yield
