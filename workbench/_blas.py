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

    While another thread is in such a block the number is 1 already, and is not waited for.
    """
    with contextlib.ExitStack() as stack:
        if _LOCK.acquire(blocking=False):
            stack.callback(_LOCK.release)
            stack.enter_context(threadpool_limits(1, "blas"))
        yield
