"""Optimisers as ``DPVI`` uses them: numpyro's, or optax's in numpyro's dress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpyro.optim
from jax.flatten_util import ravel_pytree
from numpyro.optim import _NumPyroOptim, optax_to_numpyro

from workbench import _validate

__all__ = ["Optimizer", "check_optimizer"]

# each treats every entry by itself, so it may see all parameters as one vector
_ELEMENTWISE = (
    numpyro.optim.Adagrad,
    numpyro.optim.Adam,
    numpyro.optim.ClippedAdam,
    numpyro.optim.Momentum,
    numpyro.optim.RMSProp,
    numpyro.optim.RMSPropMomentum,
    numpyro.optim.SGD,
)
_FEW = 2**14  # entries up to which one vector is quicker: a step of a small model is as slow as it has kernels


def check_optimizer(argument: str, optim: Any) -> None:
    """:raises ArgumentError: naming ``argument``, if it is no optimiser, or needs the loss, which stays in the core."""
    if isinstance(optim, numpyro.optim.Minimize):
        raise _validate.ArgumentError(argument, type(optim).__name__, "needs the loss, an un-noised function of records.")
    if not isinstance(optim, _NumPyroOptim) and not (hasattr(optim, "init") and hasattr(optim, "update")):
        raise _validate.ArgumentError(argument, optim, "must be an optimiser of numpyro.optim or optax.")


class Optimizer:
    """init / update / get_params of an optimiser, on small models over one vector of all parameters.

    :raises ArgumentError: if ``optim`` is no optimiser, or needs the loss, which stays in the core.
    """

    def __init__(self, optim: Any) -> None:
        check_optimizer("optim", optim)
        self._optim = optim if isinstance(optim, _NumPyroOptim) else optax_to_numpyro(optim)
        self._unravel: Callable[[jax.Array], Any] | None = None

    def like(self, optim: Any) -> Optimizer:
        """``optim``, of the same kind with another learning rate, over the parameters that ``init`` saw here."""
        other = Optimizer(optim)
        other._unravel = self._unravel
        return other

    def init(self, params: Any) -> Any:
        """The optimiser's state at ``params``, a pytree of float arrays."""
        leaves = jax.tree.leaves(params)
        few = sum(leaf.size for leaf in leaves) <= _FEW and len({leaf.dtype for leaf in leaves}) == 1
        self._unravel = None
        if few and type(self._optim) in _ELEMENTWISE:
            params, self._unravel = ravel_pytree(params)
        return self._optim.init(params)

    def update(self, gradient: Any, state: Any) -> Any:
        """The state after one step against ``gradient``, a pytree like the parameters."""
        if self._unravel is not None:
            gradient, _ = ravel_pytree(gradient)
        # optax's wrapper asks for the loss, which must not leave the core: a rule that really uses it sees NaN and fails
        return self._optim.update(gradient, state, value=jax.numpy.nan)

    def get_params(self, state: Any) -> Any:
        """The parameters at ``state``."""
        params = self._optim.get_params(state)
        return params if self._unravel is None else self._unravel(params)
