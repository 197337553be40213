"""Persons with several rows: their clipped sums against loops in NumPy, and what one person can
change.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import zoo
from tests.conftest import quick_jit, some_of
from workbench import ArgumentError
from workbench.inference.strata import clipped_sum_in_parts
from workbench.inference.units import UnitRows
from workbench.noise.mechanism import OnGrid
from workbench.record_model.base_noise import record_keys
from workbench.record_model.splitting import split
from workbench.sampling import Minibatch

KEY = jax.random.key(0)
WIDTHS = (10, 3, 1)
# not in the order of strata, for the last two
COUNTS = np.array([10, 7, 4, 3, 3, 2, 1, 1, 1, 1, 9, 1], np.int32)
X, Y = zoo.logistic_data(int(COUNTS.sum()), seed=3)
FIRSTS = np.cumsum(COUNTS) - COUNTS
POINT = {"weights": jnp.array([0.4, -0.3, 0.8]), "intercept": jnp.array(0.2)}
C = 1.1


def seen_as(most_rows=WIDTHS[0]):
    shapes = tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in (X, Y))
    model = split(zoo.logistic, zoo.logistic_guide, KEY, shapes, num_records=len(COUNTS))
    return dataclasses.replace(model, most_rows=most_rows)


def unit_sum(units, strategy="auto", ascending=True, size=4, spacing=None, clip=C):
    """``total(mask)``, of the clipped sum over all units that are not masked."""
    model = seen_as(units.widths[0])
    point = {name: POINT[name] for name in model.shared}

    def loss(u, drawn):
        return model.unit_loss(u, drawn[0], KEY)

    def spacing_for(slack, units):
        stated.update(slack=slack, units=units)
        return jnp.float32(spacing)

    stated = {}

    @quick_jit
    def total(mask, counts=None, indices=None):
        counts = jnp.asarray(COUNTS) if counts is None else counts
        indices = jnp.arange(len(COUNTS)) if indices is None else indices
        records = (jnp.asarray(X), jnp.asarray(Y), jnp.asarray(FIRSTS, jnp.int32), counts)
        strata = units.strata(
            Minibatch(indices, mask), records, None, size, needs_place=False, ascending=ascending
        )
        found, _ = clipped_sum_in_parts(
            loss, point, strata, clip, strategy, "flat", None, spacing_for if spacing else None
        )
        leaves = found.units if isinstance(found, OnGrid) else found
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(leaves)])

    return total, stated


def of_unit(unit, mean=False):
    """The gradient of one unit's rows together, float64[4]: intercept, then weights, as the pytree
    is flattened.
    """
    rows = slice(FIRSTS[unit], FIRSTS[unit] + COUNTS[unit])
    x = np.column_stack([np.ones(COUNTS[unit]), np.asarray(X[rows], np.float64)])
    weights = np.concatenate(
        [[float(POINT["intercept"])], np.asarray(POINT["weights"], np.float64)]
    )
    gradient = x.T @ (1 / (1 + np.exp(-x @ weights)) - Y[rows])
    return gradient / COUNTS[unit] if mean else gradient


def clipped(gradient, clip=C):
    return gradient * min(1, clip / np.linalg.norm(gradient))


@pytest.mark.parametrize("strategy", some_of(["bookkeeping", "vmap", "loop"]))
@pytest.mark.parametrize("mean", some_of([False, True]))
def test_each_unit_is_clipped_once_for_all_its_rows(strategy, mean):
    mask = np.arange(len(COUNTS)) != 4
    found = unit_sum(UnitRows(WIDTHS, mean), strategy, ascending=False)[0](jnp.asarray(mask))
    expected = sum(clipped(of_unit(unit, mean)) for unit in np.flatnonzero(mask))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    # some are cut, some are not
    assert sum(np.linalg.norm(of_unit(unit)) > C for unit in range(len(COUNTS))) >= 3
    assert sum(np.linalg.norm(of_unit(unit)) < C for unit in range(len(COUNTS))) >= 3


@pytest.mark.parametrize("widths", some_of([((10,),), ((10, 3),), ((10, 5, 2, 1),)], 3, first=2))
@pytest.mark.parametrize("size", some_of([1, 100]))
@pytest.mark.parametrize("spacing", some_of([None, 2.0**-27], first=1))
def test_strata_and_parts_do_not_change_the_sum(widths, size, spacing):
    """Nor do whole numbers, of which the sum is as large as a step lets it be."""
    everyone = jnp.ones(len(COUNTS), bool)
    expected = sum(clipped(of_unit(unit)) for unit in range(len(COUNTS)))
    found = unit_sum(UnitRows(widths), ascending=False, size=size, spacing=spacing)[0](everyone) * (
        spacing or 1
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_strata_without_anybody_are_left_out():
    """The narrowest is computed whether anybody is in it or not, the others only if there is
    anybody.
    """
    total, _ = unit_sum(UnitRows(WIDTHS))
    masks = np.stack([COUNTS == 1, COUNTS > 1, COUNTS > 3, (COUNTS > 1) & (COUNTS <= 3)])
    expected = [sum(clipped(of_unit(unit)) for unit in np.flatnonzero(mask)) for mask in masks]
    np.testing.assert_allclose(
        [total(jnp.asarray(mask)) for mask in masks], expected, rtol=2e-5, atol=2e-5
    )


@pytest.mark.thorough
def test_the_order_of_the_minibatch_does_not_matter_nor_do_lanes():
    total, _ = unit_sum(UnitRows(WIDTHS), ascending=False)
    masks = jnp.asarray(np.random.default_rng(0).random((5, len(COUNTS))) < 0.4)
    order = jnp.asarray(np.random.default_rng(1).permutation(len(COUNTS)))
    alone = np.stack([total(mask) for mask in masks])
    turned = np.stack([total(mask[order], indices=order) for mask in masks])
    np.testing.assert_allclose(turned, alone, rtol=1e-5, atol=1e-5)
    together = quick_jit(jax.vmap(lambda mask: total.__wrapped__(mask)))(masks)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    assert not np.any(total(jnp.zeros(len(COUNTS), bool)))


def test_no_unit_moves_the_sum_by_more_than_one_sensitivity():
    spacing = 2.0**-14
    total, stated = unit_sum(UnitRows(WIDTHS), spacing=spacing)
    everyone = jnp.ones(len(COUNTS), bool)
    whole = np.asarray(total(everyone), np.int64)
    for unit in range(len(COUNTS)):
        masked = np.asarray(total(everyone.at[unit].set(False)), np.int64)
        empty = np.asarray(total(everyone, counts=jnp.asarray(COUNTS).at[unit].set(0)), np.int64)
        np.testing.assert_array_equal(masked, empty)  # a unit without rows is one that is not there
        move = np.linalg.norm(whole - masked)
        assert move <= C * (1 + stated["slack"]) / spacing + np.sqrt(stated["units"])
        assert move >= 0.99 * np.linalg.norm(clipped(of_unit(unit))) / spacing - np.sqrt(
            stated["units"]
        )


@pytest.mark.parametrize("x64", some_of([True, False]))
def test_more_rows_than_can_be_told_apart_are_refused(x64):
    """Their numbers would begin again below 0, and so at rows of others."""

    def strata(x, present, indices, mask):
        units = UnitRows((10_000,))
        minibatch, records = Minibatch(indices, mask), units.in_rows((x, present))
        strata = units.strata(minibatch, records, None, 4, needs_place=False, ascending=True)
        return [stratum.mask for stratum in strata]

    def of(number):
        shapes = [
            ((number, 10_000, 1), jnp.float32),
            ((number, 10_000), jnp.float32),
            ((number,), jnp.int32),
        ]
        return jax.eval_shape(
            strata, *(jax.ShapeDtypeStruct(*each) for each in (*shapes, ((number,), jnp.bool)))
        )

    with jax.enable_x64(x64):
        of(214_748)
        with pytest.raises(ArgumentError, match=r"^records=2147490000: .* more than 2147483647"):
            of(214_749)


def test_rows_that_are_missing_do_not_count():
    """Whatever lies behind a unit's last row in the table."""
    model = seen_as()
    rows = (jnp.asarray(X[:3]), jnp.asarray(Y[:3]))
    point = {name: POINT[name] for name in model.shared}
    whole = quick_jit(model.unit_loss)(point, (*rows, jnp.array([1.0, 1.0, 0.0])), KEY)
    loss = quick_jit(model.record_loss)
    expected = sum(float(loss(point, (X[row], Y[row]), KEY)) for row in range(2))
    assert float(whole) == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
def test_every_row_draws_its_own_local_latents():
    x = np.random.default_rng(0).normal(size=(4,)).astype(np.float32)
    shape = (jax.ShapeDtypeStruct((), np.float32),)
    model = dataclasses.replace(
        split(zoo.noisy_means, zoo.noisy_means_guide, KEY, shape, num_records=10), most_rows=4
    )
    assert model.uses_base_noise
    values = model.release_point(model.initial, KEY)[0]

    def loss_at(place):
        return model.unit_loss(
            values, (jnp.asarray(x), jnp.ones(4)), record_keys(KEY, jnp.int32(place))
        )

    for place in (0, 5):
        rows = [
            model.record_loss(values, (x[row],), record_keys(KEY, jnp.int32(4 * place + row)))
            for row in range(4)
        ]
        assert float(loss_at(place)) == pytest.approx(float(sum(rows)), rel=1e-5)
    same = model.unit_loss(values, (jnp.full(4, x[0]), jnp.ones(4)), record_keys(KEY, jnp.int32(0)))
    assert (
        abs(
            float(same)
            - 4 * float(model.record_loss(values, (x[0],), record_keys(KEY, jnp.int32(0))))
        )
        > 1e-3
    )
