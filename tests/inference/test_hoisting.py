import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workbench.inference._hoisting import hoist

KEY = jax.random.key(3)


def step(key, rest):
    """Draws from a key, from a key that is split in a nested call, and from state; a constant; an
    unused draw.
    """
    state, data = rest
    first, second = jax.random.split(key)
    draw = jax.jit(lambda k: jax.random.normal(k, (3,)))(first)
    jax.random.normal(second, (1000,))
    return {
        "state": state * draw + jnp.arange(3.0),
        "sum": jnp.sum(jax.vmap(lambda x: x @ draw)(data)),
    }


REST = (jnp.ones(3), jnp.arange(12.0).reshape(4, 3))


@pytest.mark.thorough
def test_the_two_parts_together_are_the_whole():
    early, late = hoist(step, KEY, REST)
    jax.tree.map(np.testing.assert_array_equal, late(early(KEY), REST), step(KEY, REST))


def test_the_early_part_hands_over_the_draws_and_nothing_else():
    early, _ = hoist(step, KEY, REST)
    assert [value.shape for value in early(KEY)] == [(3,)]


def test_nothing_is_drawn_in_the_late_part():
    early, late = hoist(step, KEY, REST)
    text = str(jax.make_jaxpr(late)(early(KEY), REST))
    assert "random" not in text
    assert "threefry" not in text
    assert "random_bits" in str(jax.make_jaxpr(early)(KEY))


def test_draws_that_depend_on_the_rest_stay_late():
    def fn(key, rest):
        return jax.random.normal(jax.random.fold_in(key, rest), ())

    early, late = hoist(fn, KEY, jnp.int32(5))
    assert float(late(early(KEY), jnp.int32(7))) == float(fn(KEY, jnp.int32(7)))


@pytest.mark.thorough
def test_many_keys_at_once():
    early, late = hoist(step, KEY, REST)
    keys = jax.random.split(KEY, 4)
    drawn = jax.vmap(early)(keys)
    third = late([value[2] for value in drawn], REST)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-6),
        third,
        step(keys[2], REST),
    )
