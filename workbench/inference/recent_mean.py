"""The mean of recent iterates, for curves of a run that returns the mean of its later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["RecentMean", "copied"]


@jax.jit
def copied(tree: PyTree) -> Any:
    """The pytree in memory of its own."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


@jax.jit
def _between(first: PyTree, second: PyTree, fraction: jax.Array) -> Any:
    """The pytree that lies this fraction of the way from ``first`` to ``second``."""
    return jax.tree.map(lambda a, b: a + fraction.astype(a.dtype) * (b - a), first, second)


class RecentMean:
    """The mean of about the last half of the iterates so far.

    The noise of single iterates would look like a fit that gets worse, and the mean that a run
    returns begins only at half of its steps. This one becomes that mean at the end.

    :param average_from: step from which on the run's own mean is kept; 0 for a run that returns its
        last iterate, which is shown then.
    """

    def __init__(self, average_from: int) -> None:
        self._average_from = average_from
        self._mean: Any = None

    def follow(self, newest: PyTree, step: int, steps: int) -> None:
        """Take in the iterate after ``step``, which is ``steps`` newer than the last one."""
        if step >= self._average_from:
            return
        if self._mean is None or 2 * steps >= step:
            self._mean = copied(newest)
        else:
            self._mean = _between(self._mean, newest, jnp.float32(2 * steps / step))

    def at(self, step: int, returned: PyTree) -> Any:
        """The mean after ``step``.

        :param returned: what the run would return: its own mean, or the newest iterate before there
            is one.
        """
        covered = 2 * (step - self._average_from) / max(step, 1)
        if self._mean is None or covered >= 1:
            return returned
        return self._mean if covered <= 0 else _between(self._mean, returned, jnp.float32(covered))
