"""NumPyro keeps its effect handlers in one list for the whole process; here it becomes one list per
thread.

A fit traces its model in a background thread while the notebook's own cells may run NumPyro, and
several fits may run at once. With one shared list the handlers of one thread would apply to the
sites of another: wrong traces, silently.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, MutableSequence
from typing import Any

import numpyro.primitives

__all__ = ["separate_handler_stacks"]


class _StackPerThread(MutableSequence):
    """A list whose contents belong to the thread that looks at it."""

    def __init__(self, contents: Iterable[Any] = ()) -> None:
        self._local = threading.local()
        self._mine.extend(contents)

    @property
    def _mine(self) -> list[Any]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack

    def __getitem__(self, index: Any) -> Any:
        return self._mine[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._mine[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._mine[index]

    def __len__(self) -> int:
        return len(self._mine)

    def insert(self, index: int, value: Any) -> None:
        """Insert before ``index``, as ``list.insert``."""
        self._mine.insert(index, value)


def separate_handler_stacks() -> None:
    """Give every thread its own stack of NumPyro handlers, wherever a NumPyro module holds the
    shared one; idempotent.
    """
    shared = numpyro.primitives._PYRO_STACK
    if isinstance(shared, _StackPerThread):
        return
    separate = _StackPerThread(shared)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "numpyro" and getattr(module, "_PYRO_STACK", None) is shared:
            module._PYRO_STACK = separate  # type: ignore[attr-defined]
