"""Optimisers as a private step uses them: numpyro's, or optax's behind numpyro's interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro.optim
from numpyro.optim import _NumPyroOptim, optax_to_numpyro

from workbench import _validate
from workbench.clipping.kernel_factors import single

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["Optimizer", "averaged", "check_optimizer", "optimizer_for"]

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
# entries up to which one vector is quicker: a step of a small model is as slow as it has kernels
_FEW = 2**14


def check_optimizer(argument: str, optim: object) -> None:
    """:raises ArgumentError: naming ``argument``, unless it is an optimiser that can be compiled
    and needs no loss.
    """
    if isinstance(optim, numpyro.optim.Minimize):
        raise _validate.ArgumentError(
            argument, type(optim).__name__, "needs the loss, an un-noised function of records."
        )
    if isinstance(optim, numpyro.optim.SM3):
        raise _validate.ArgumentError(
            argument, "SM3", "cannot be compiled: take another, such as Adagrad."
        )
    if not isinstance(optim, _NumPyroOptim) and not (
        hasattr(optim, "init") and hasattr(optim, "update")
    ):
        raise _validate.ArgumentError(
            argument, optim, "must be an optimiser of numpyro.optim or optax."
        )


def _as_numpyro(optim: Any) -> _NumPyroOptim:
    check_optimizer("optim", optim)
    return optim if isinstance(optim, _NumPyroOptim) else optax_to_numpyro(optim)


@dataclass(frozen=True, eq=False)
class Optimizer:
    """init / update / get_params of an optimiser, on small models over one vector of all
    parameters.

    Parameters of half precision are single to the optimiser, or small steps would be lost: Adam in
    bfloat16 never moves.

    :param optim: numpyro's. :param of_rate: makes one like it from a learning rate; None where it
        has its own.
    :param vector: structure and shapes of the parameters where they are one vector to ``optim``,
        else None.
    :param kinds: the parameters' types, a pytree like them.
    """

    optim: _NumPyroOptim
    of_rate: Callable[[Any], Any] | None
    vector: tuple[Any, tuple[tuple[int, ...], ...]] | None
    kinds: Any

    def init(self, params: PyTree) -> Any:
        """The optimiser's state at ``params``, a pytree of float arrays."""
        return self.optim.init(self._flat(params))

    def update(
        self, gradient: PyTree, state: PyTree, learning_rate: float | jax.Array | None = None
    ) -> Any:
        """The state after one step against ``gradient``, a pytree like the parameters.

        :param learning_rate: float scalar, which may be traced; None where the optimiser has its
            own.
        """
        optim = self.optim if self.of_rate is None else _as_numpyro(self.of_rate(learning_rate))
        # optax's wrapper asks for the loss, which must not leave the core: a rule that really uses
        # it sees NaN and fails
        return optim.update(self._flat(gradient), state, value=jnp.nan)

    def get_params(self, state: PyTree) -> Any:
        """The parameters at ``state``."""
        return self.as_parameters(self._tree(self.optim.get_params(state)))

    def as_parameters(self, tree: PyTree) -> Any:
        """A pytree like the parameters, in their types."""
        return jax.tree.map(lambda leaf, kind: leaf.astype(kind), tree, self.kinds)

    def _tree(self, params: PyTree) -> Any:
        if self.vector is None:
            return params
        treedef, shapes = self.vector
        leaves, start = [], 0
        for shape in shapes:
            size = math.prod(shape)
            leaves.append(params[start : start + size].reshape(shape))
            start += size
        return jax.tree.unflatten(treedef, leaves)

    def _flat(self, tree: PyTree) -> Any:
        tree = single(tree)
        return (
            tree
            if self.vector is None
            else jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        )


def optimizer_for(params: PyTree, optim: Any, learning_rate: float | None = None) -> Optimizer:
    """``optim`` over parameters like ``params``, a pytree of float arrays.

    :param optim: of numpyro.optim or optax; with ``learning_rate`` a function that makes one of a
        learning rate.
    :raises ArgumentError: naming ``optim``, if it is no optimiser, or needs the loss, which stays
        in the core.
    """
    base = _as_numpyro(optim if learning_rate is None else optim(learning_rate))
    leaves, treedef = jax.tree.flatten(params)
    few = sum(leaf.size for leaf in leaves) <= _FEW and len({leaf.dtype for leaf in leaves}) == 1
    is_vector = few and type(base) in _ELEMENTWISE
    vector = (treedef, tuple(leaf.shape for leaf in leaves)) if is_vector else None
    kinds = jax.tree.map(lambda leaf: leaf.dtype, params)
    return Optimizer(base, None if learning_rate is None else optim, vector, kinds)


def averaged(average: PyTree, newest: PyTree, count: jax.Array) -> Any:
    """The mean of iterates with the newest one. :param count: iterates in it, int32 scalar; below 1
    it is the newest.
    """

    def of_leaf(mean: jax.Array, new: jax.Array) -> jax.Array:
        weight = (1 / jnp.maximum(count, 1).astype(jnp.float32)).astype(mean.dtype)
        return jnp.where(count <= 1, new, mean + weight * (new - mean))

    return jax.tree.map(of_leaf, average, newest)
