"""NumPyro keeps its effect handlers, and whether distributions validate, for the whole process;
here each thread has its own.

A fit traces its model in a background thread while the notebook's own cells may run NumPyro, and
several fits may run at once. With one shared list the handlers of one thread would apply to the
sites of another. And a density is -inf outside of its support only where distributions validate, so
a thread that switches this off for all would change the densities of another. Both are wrong
traces, silently.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

import numpyro.primitives
from numpyro.distributions import Distribution

__all__ = ["separate_handler_stacks", "without_validation"]

_THREAD = threading.local()


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


class _Validation:
    """Whether a distribution validates that was not told so. :param default: of the process."""

    def __init__(self, default: bool) -> None:
        self._default = default

    def __get__(self, distribution: Any, kind: type) -> bool:
        return self._default and not getattr(_THREAD, "is_made_up", False)


@contextlib.contextmanager
def without_validation() -> Iterator[None]:
    """Distributions of this thread do not validate; those of others go on as they did."""
    default: Any = vars(Distribution)["_validate_args"]
    if not isinstance(default, _Validation):  # which ``numpyro.enable_validation`` replaces
        Distribution._validate_args = _Validation(default)
    _THREAD.is_made_up = True
    try:
        yield
    finally:
        _THREAD.is_made_up = False
