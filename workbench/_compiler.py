"""Options of XLA with which small models compile quickly, and waiting for what compiles."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import jax

__all__ = ["StoppedError", "awaited", "compiler_options"]

_POLL_SECONDS = 0.1
_Result = TypeVar("_Result")

_FEW_CALLS = 100_000  # of a step: until then, a longer compilation takes more time than it saves
_SHORT = (
    64  # coordinates up to which YNNPACK's reductions of many short rows are slow (up to ten times)
)


class StoppedError(Exception):
    """A request to stop came before something was compiled."""


def awaited(compiled: Future[_Result], stop: Callable[[], bool]) -> _Result:
    """The result of ``compiled``, whose thread goes on after a stop: nothing can end it.

    :raises StoppedError: soon after ``stop()`` has become true.
    """
    while not wait((compiled,), _POLL_SECONDS).done:
        if stop():
            raise StoppedError
    return compiled.result()


def compiler_options(
    platform: str, noise_size: int, level: int = 1, *, calls: float = math.inf
) -> dict[str, Any]:
    """Options with which small models compile on CPUs in three quarters of the time, and step as
    quickly or quicker.

    Those that this jaxlib does not know are left out.

    :param level: of optimisation; 2 where many steps are worth a longer compilation.
    :param calls: about how many there will be. A few compile in half of the time, and take up to a
        sixth longer each.
    """
    if platform != "cpu" or noise_size > _SHORT:
        return {}
    options: dict[str, Any] = {"xla_cpu_experimental_ynn_fusion_type": ""}
    if calls <= _FEW_CALLS:
        options["xla_cpu_use_fusion_emitters"] = False
    if "xla_backend_optimization_level" not in os.environ.get("XLA_FLAGS", ""):
        options["xla_backend_optimization_level"] = level
    return dict(_known(tuple(options.items())))


@functools.cache
def _known(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Those that this jaxlib knows: one compilation where it knows all."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except jax.errors.JaxRuntimeError:
        return tuple(option for option in options if len(options) > 1 and _known((option,)))
    return options
