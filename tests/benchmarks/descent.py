"""Steps of stochastic gradient descent on a network: what the workbench's and jax_privacy's have in
common.

Needs jax and numpy only. A step is ``step(state, key, x, y) -> state`` with state (params, number
of the step).
"""

import functools

import jax
import jax.numpy as jnp
from turns import seconds

__all__ = ["Steps", "apart", "begun", "checked", "descended", "non_private", "peak_bytes"]

TURN, SLOW = 0.25, 2.0  # seconds


class Steps:
    """A turn of ``count`` steps on one minibatch, each a call of one compiled program that is given
    its state's buffers.

    :param step: ``step(state, key, x, y) -> state``, not yet compiled. :param compiled: False calls
        it as it is.
    """

    def __init__(self, step, network, batch, key, compiled=True):
        self.count = 1
        self.step = _compiled(step) if compiled else step
        self.arguments = (key, *map(jnp.asarray, network.records(batch)))
        self.state = begun(network)

    def __call__(self):
        """Take the steps and return the parameters reached."""
        for _ in range(self.count):
            self.state = self.step(self.state, *self.arguments)
        return self.state[0]

    def fit(self):
        """Compile, and let a turn take about a quarter of a second, or one step if that takes
        longer.

        :return: True if it takes so long that one turn is enough.
        """
        seconds(self)
        a_step = seconds(self)
        self.count = max(1, round(TURN / a_step))
        return a_step > SLOW

    def a_step(self, times):
        """Seconds a step, from seconds of turns."""
        return [value / self.count for value in times]

    def peak_bytes(self):
        """What ``peak_bytes`` says of the program."""
        return peak_bytes(self.step, self.state, *self.arguments)


@functools.cache
def _compiled(step):
    return jax.jit(step, donate_argnums=0)


def peak_bytes(step, *arguments):
    """Bytes that a compiled step holds at most: arguments, results and what lies between, donated
    buffers counted once.
    """
    held = step.lower(*arguments).compile().memory_analysis()
    together = held.temp_size_in_bytes + held.argument_size_in_bytes + held.output_size_in_bytes
    return together - held.alias_size_in_bytes


def begun(network):
    """The state before the first step."""
    return network.init(jax.random.key(0)), jnp.int32(0)


def descended(network, state, gradient):
    """The state after a step along the gradient of the mean loss."""
    params, number = state
    rate = network.learning_rate
    return jax.tree.map(lambda leaf, slope: leaf - rate * slope, params, gradient), number + 1


def non_private(network):
    """A step on the mean loss of the minibatch; ``key`` is not used."""

    def mean_loss(params, x, y):
        return jax.vmap(network.loss, in_axes=(None, 0))(params, (x, y)).mean()

    def step(state, key, x, y):
        return descended(network, state, jax.value_and_grad(mean_loss)(state[0], x, y)[1])

    return step


def apart(flat, tree):
    """A vector cut into arrays shaped like the leaves of ``tree``."""
    leaves, places = jax.tree.flatten(tree)
    ends = [0]
    for leaf in leaves:
        ends.append(ends[-1] + leaf.size)
    cut = [
        flat[begin:end].reshape(leaf.shape)
        for begin, end, leaf in zip(ends[:-1], ends[1:], leaves, strict=True)
    ]
    return jax.tree.unflatten(places, cut)


def checked(steps):
    """Refuse to report the speed of steps that ended in NaN."""
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(steps.state)):
        raise RuntimeError(
            "The parameters are no longer finite: the seconds would not mean anything."
        )
