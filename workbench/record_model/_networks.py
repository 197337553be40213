"""Networks that keep state or need random numbers, found and named by layer.

Batch statistics mix the records of a minibatch. State carries what it saw of records from step to
step. Both would be released without noise. Dropout is allowed where each record has its own random
numbers. numpyro's helpers show a handler the parameters, not the network they belong to: equinox
and nnx modules are read off the helper's running call, and linen modules, which are created as they
are called, are found there (``linen.intercept_methods``).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
from numpyro.contrib.module import eqx_module, nnx_module
from numpyro.primitives import Messenger

from workbench.clipping.separation import PrivacyModelError

if TYPE_CHECKING:
    from types import TracebackType

    from jaxtyping import PyTree

__all__ = ["NetworkWatch"]


_INSTEAD_OF_STATISTICS = "Use GroupNorm or LayerNorm, which normalise within one record."
_INSTEAD_OF_STATE = "Use layers that keep nothing between calls."
_INSTEAD_OF_DROPOUT = (
    "Call it with a key of the record, key = numpyro.prng_key() inside the record plate ({how}), "
    "or in inference mode."
)
_HOW = {
    "equinox": "net(x, key=key)",
    "linen": "net(x, rngs={'dropout': key}), after flax_module(..., apply_rng=['dropout'])",
    "nnx": "net(x, rngs=key), of Dropout(rate) that was made without rngs",
}


def _at(path: str, module: object) -> str:
    """ "layers[2]: BatchNorm", or the class alone for the whole network."""
    return f"{path}: {type(module).__name__}" if path else type(module).__name__


def _statistics(name: str, location: str) -> PrivacyModelError:
    return PrivacyModelError(
        f"network {name!r} has batch statistics ({location}): they mix the records of a minibatch, "
        "and as mutable state they would carry records from step to step un-noised. "
        f"{_INSTEAD_OF_STATISTICS}"
    )


def _state(name: str, location: str) -> PrivacyModelError:
    return PrivacyModelError(
        f"network {name!r} keeps mutable state ({location}): it would carry records from step to "
        f"step un-noised. {_INSTEAD_OF_STATE}"
    )


def _dropout(name: str, location: str, library: str) -> PrivacyModelError:
    return PrivacyModelError(
        f"network {name!r} uses dropout without a per-record random key ({location}). "
        + _INSTEAD_OF_DROPOUT.format(how=_HOW[library])
    )


class NetworkWatch(Messenger):
    """Looks at the networks of a model or guide while it is traced.

    :param fn: model or guide, whose calls are watched; or None, for a context around the trace.
    :raises PrivacyModelError: for batch statistics, other mutable state, and dropout without a key.
        The message names the network, and the layer by its path and class.
    """

    def __enter__(self) -> NetworkWatch:
        self._stack = contextlib.ExitStack()
        self._intercepts = False
        self._names: list[str] = []  # of the networks, in the order in which they are registered
        self._dropouts: list[
            tuple[str, str, str]
        ] = []  # (network, where, library) of those that may want a key
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._stack.close()
        wants_key = (
            isinstance(error, Exception)
            and not isinstance(error, PrivacyModelError)
            and "dropout" in str(error).lower()
        )
        if wants_key and self._dropouts:
            raise _dropout(*self._dropouts[0]) from error

    def process_message(self, msg: dict[str, Any]) -> None:
        name, _, kind = str(msg.get("name")).rpartition("$")
        if kind not in ("params", "state"):
            return
        if kind == "params":
            self._names.append(name)
        if "flax.linen" in sys.modules and not self._intercepts:
            self._stack.enter_context(sys.modules["flax.linen"].intercept_methods(self._called))
            self._intercepts = True
        for helper, look_at in (
            (eqx_module, self._look_at_equinox),
            (nnx_module, self._look_at_nnx),
        ):
            network = _argument_of(helper, "nn_module")
            if network is not None:
                look_at(name, network)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        name, _, kind = str(msg.get("name")).rpartition("$")
        if msg["type"] == "mutable" and kind == "state" and msg["value"] is not None:
            leaves = jax.tree_util.tree_flatten_with_path(msg["value"])[0]
            raise _state(
                name,
                ", ".join(
                    jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves
                ),
            )

    # ---- one library each ------------------------------------------------------------------------

    def _look_at_equinox(self, name: str, network: PyTree) -> None:
        layers = sys.modules["equinox"].nn
        for path, module, inner in _equinox_modules(network):
            location = _at(path, module)
            if isinstance(module, layers.BatchNorm) and not module.inference:
                raise _statistics(name, location)
            stateful = any(isinstance(child, layers.StateIndex) for child in inner)
            if stateful and not getattr(module, "inference", False):
                raise _state(name, location)
            if isinstance(module, layers.Dropout) and not module.inference:
                self._dropouts.append((name, location, "equinox"))

    def _look_at_nnx(self, name: str, network: Any) -> None:
        nnx = sys.modules["flax.nnx"]
        for path, module in nnx.iter_modules(network):
            location = _at(".".join(map(str, path)), module)
            if isinstance(module, nnx.BatchNorm):
                raise _statistics(name, location)
            if isinstance(module, nnx.Dropout):
                if module.rngs is not None:
                    raise _dropout(name, location, "nnx")
                self._dropouts.append((name, location, "nnx"))
            for value in vars(module).values():
                if isinstance(value, nnx.Variable) and not isinstance(value, nnx.Param):
                    raise _state(name, location)

    def _called(self, function: Callable, arguments: Any, keywords: Any, context: Any) -> Any:
        """A method of a linen module is called."""
        linen, module = sys.modules["flax.linen"], context.module
        name = self._names[-1]
        location = _at(".".join(module.path), module)
        if isinstance(module, linen.BatchNorm):
            raise _statistics(name, location)
        if isinstance(module, linen.Dropout):
            self._dropouts.insert(0, (name, location, "linen"))
        return function(*arguments, **keywords)


def _equinox_modules(network: PyTree, path: str = "") -> Iterator[tuple[str, Any, list[Any]]]:
    """(path, module, the modules right below it) of each equinox module of a pytree."""
    module = sys.modules["equinox"].Module
    below = jax.tree_util.tree_flatten_with_path(
        network, is_leaf=lambda child: child is not network and isinstance(child, module)
    )
    inner = [
        (path + jax.tree_util.keystr(step), child)
        for step, child in below[0]
        if isinstance(child, module)
    ]
    if isinstance(network, module):
        yield path.lstrip("."), network, [child for _, child in inner]
    for child_path, child in inner:
        yield from _equinox_modules(child, child_path)


def _argument_of(function: Callable, argument: str) -> Any:
    """The value of ``argument`` in the innermost running call of ``function``; None where it is not
    running.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_locals.get(argument)
