import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro import optim

from workbench._validate import ArgumentError
from workbench.inference._optimizers import optimizer_for

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(3.0), "network": {"kernel": jnp.ones((2, 3))}}
GRADIENT = jax.tree.map(lambda leaf: 0.1 + leaf**2, PARAMS)


def assert_same(ours, theirs):
    jax.tree.map(
        lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-6), ours, theirs
    )


def after(optimizer, steps=3):
    state = optimizer.init(PARAMS)
    for _ in range(steps):
        state = optimizer.update(GRADIENT, state)
    return optimizer.get_params(state)


@pytest.mark.parametrize(
    "rule",
    [
        optim.Adam(0.1),
        optim.ClippedAdam(0.1, clip_norm=1.0),
        optim.SGD(0.1),
        optim.Momentum(0.1, 0.9),
        optim.Adagrad(0.1),
        optim.RMSProp(0.1),
        optim.RMSPropMomentum(0.1),
        optim.optax_to_numpyro(optax.adam(0.1)),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_the_steps_are_those_of_numpyro(rule):
    state = rule.init(PARAMS)
    for _ in range(3):
        state = rule.update(GRADIENT, state, value=1.0)
    assert_same(after(optimizer_for(PARAMS, rule)), rule.get_params(state))


def test_a_rule_that_looks_at_whole_arrays_sees_them():
    """Clipping each array's own norm is another rule than clipping the norm of one vector
    of all.
    """
    clipped = after(
        optimizer_for(PARAMS, optax.chain(optax.clip_by_block_rms(0.1), optax.sgd(1.0))), steps=1
    )
    moved = jax.tree.map(
        lambda new, old: float(jnp.sqrt(jnp.mean((new - old) ** 2))), clipped, PARAMS
    )
    assert jax.tree.leaves(moved) == pytest.approx([0.1, 0.1, 0.1], rel=1e-5)


def test_parameters_of_several_types_stay_apart():
    params = {"half": jnp.ones(2, jnp.bfloat16), "single": jnp.ones(2)}
    optimizer = optimizer_for(params, optim.SGD(0.5))
    state = optimizer.update(params, optimizer.init(params))
    types = jax.tree.map(lambda leaf: str(leaf.dtype), optimizer.get_params(state))
    assert types == {"half": "bfloat16", "single": "float32"}


def test_a_rule_that_uses_the_loss_gets_none():
    """It sees NaN, so its parameters are NaN and the run fails, rather than a loss leaving the
    core.
    """
    scaled = optax.GradientTransformationExtraArgs(
        lambda params: (),
        lambda updates, state, params=None, *, value, **_: (
            jax.tree.map(lambda u: u * value, updates),
            state,
        ),
    )
    assert all(
        np.all(np.isnan(leaf))
        for leaf in jax.tree.leaves(after(optimizer_for(PARAMS, scaled), steps=1))
    )


@pytest.mark.parametrize("rule", [optim.Minimize(), optim.SM3(0.1), "adam", 0.1])
def test_what_is_no_optimiser_is_refused(rule):
    with pytest.raises(ArgumentError, match=r"^optim="):
        optimizer_for(PARAMS, rule)


@pytest.mark.parametrize("make", [optim.Adam, optax.adam], ids=["numpyro", "optax"])
def test_a_learning_rate_that_is_given_later_is_the_one_that_counts(make):
    optimizer = optimizer_for(PARAMS, make, 0.5)
    state = optimizer.update(GRADIENT, optimizer.init(PARAMS), jnp.float32(0.1))
    expected = after(optimizer_for(PARAMS, make(0.1)), steps=1)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-6),
        optimizer.get_params(state),
        expected,
    )
