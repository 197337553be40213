"""Fits that run at once, one of which meets a record without a finite gradient: what is done about
it is a branch, which ``lanes`` keeps one, where plain vmap would compute both sides in every lane.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.clipping import clipped_sum
from workbench.clipping.jaxprs import primitives
from workbench.clipping.lanes import in_any_lane, largest_in_any_lane


def test_a_record_that_is_not_finite_is_left_out_of_its_own_lane():
    """Against the records' gradients, clipped by NumPy in 64 bits."""
    records = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    exact = np.float64(records)
    shortened = exact * np.minimum(1, 1 / np.linalg.norm(exact, axis=2, keepdims=True))
    records[1, 2, 0] = np.nan
    shortened[1, 2] = 0
    total, norms = jax.vmap(
        lambda u, x: clipped_sum(jnp.vdot, u, x, jnp.ones(4, bool), 1.0), (0, 0)
    )(jnp.zeros((3, 2)), records)
    np.testing.assert_allclose(total, shortened.sum(1), atol=2e-5)
    assert np.array_equal(np.isfinite(norms), np.isfinite(records).all(2))


def branching(decide):
    """A function with a branch, and its operations under vmap."""

    def function(x):
        return lax.cond(decide(x > 2), lambda x: x + 10, lambda x: x, x)

    return jax.vmap(function), primitives(jax.make_jaxpr(jax.vmap(function))(jnp.arange(4)).jaxpr)


def test_a_branch_that_any_lane_needs_stays_a_branch_and_is_taken_by_all():
    function, operations = branching(in_any_lane)
    assert "cond" in operations
    assert "select_n" not in operations
    assert function(jnp.arange(3)).tolist() == [0, 1, 2]
    assert function(jnp.arange(4)).tolist() == [10, 11, 12, 13]
    alone, operations = branching(lambda needed: needed)
    assert "select_n" in operations
    assert alone(jnp.arange(4)).tolist() == [0, 1, 2, 13]


def test_the_largest_number_is_that_of_all_lanes_however_they_are_nested():
    numbers = jnp.arange(6).reshape(2, 3)
    assert largest_in_any_lane(numbers[0, 1]) == 1
    together = jax.vmap(jax.vmap(largest_in_any_lane))(numbers)
    assert together.tolist() == [[5, 5, 5], [5, 5, 5]]
