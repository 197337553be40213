"""Which rule and strategy "auto" takes by shapes, and that mixtures of them clip as each record by
hand.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_of
from tests.layers import FORMED, GRAM, MATERIALISED, OUTER, Case, assert_rules, compared, score
from workbench.clipping import _choice, clipped_sum
from workbench.clipping.bookkeeping import plan

SIZE = 31


def product(t, p, d):
    """A loss of one matrix product at t places."""
    shapes = {"w": jax.ShapeDtypeStruct((p, d), jnp.float32)}
    return (
        lambda u, x: score(jnp.tanh(x @ u["w"])),
        shapes,
        jax.ShapeDtypeStruct((SIZE, t, p), jnp.float32),
    )


def table(loss, u, records, strategy, size=SIZE):
    return clipped_sum(
        loss, u, records, jax.ShapeDtypeStruct((size,), bool), 1.0, strategy, explain=True
    )


@pytest.mark.parametrize(
    ("t", "p", "d", "rule"),
    [
        (4, 128, 128, GRAM),
        (64, 128, 128, FORMED),
        (64, 512, 512, GRAM),
        (16, 512, 16, FORMED),
        (128, 192, 768, FORMED),
    ],
)
def test_the_faster_of_gram_matrix_and_formed_gradient_is_taken(t, p, d, rule):
    """As measured; by bytes alone the second, fourth and last would be Gram matrices."""
    (row,) = table(*product(t, p, d), "bookkeeping").rows
    assert row.rule == rule


def test_gradients_that_do_not_stay_in_the_cache_are_formed_later():
    few, many = (_choice.gram_is_faster(64, 192, 192, 4 * 192 * 192 * size) for size in (1, 1000))
    assert (few, many) == (False, True)


def test_more_places_or_a_smaller_minibatch_never_turn_a_formed_gradient_into_a_gram_matrix():
    for p, d in ((3, 5), (9, 16), (128, 128), (512, 16), (2000, 2000)):
        for size in (1, 31, 1000):
            by_places = [_choice.gram_is_faster(t, p, d, 4 * size * p * d) for t in range(1, 300)]
            assert by_places == sorted(by_places, reverse=True)
        by_size = [
            _choice.gram_is_faster(40, p, d, 4 * size * p * d) for size in range(1, 3000, 50)
        ]
        assert by_size == sorted(by_size)


def test_small_gradients_are_formed_though_all_together_would_not_stay_in_the_cache():
    """As in a GRU cell, whose input kernels are small beside its recurrent ones."""

    def loss(u, x):
        return score(jnp.tanh(x @ u["small"]) @ u["large"])

    u = {"small": (28, 128), "large": (128, 128)}
    u = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in u.items()}
    large, small = table(
        loss, u, jax.ShapeDtypeStruct((400, 28, 28), jnp.float32), "auto", 400
    ).rows
    assert (small.rule, large.rule) == (FORMED, GRAM)


def test_few_long_rows_are_multiplied_with_each_other():
    def loss(u, tokens):
        return score(jnp.tanh(u["w"][tokens]))

    found = {}
    for count, width in ((4, 64), (4, 16), (20, 64)):
        u = {"w": jax.ShapeDtypeStruct((100, width), jnp.float32)}
        found[count, width] = (
            table(loss, u, jax.ShapeDtypeStruct((SIZE, count), jnp.int32), "auto").rows[0].rule
        )
    assert found == {(4, 64): GRAM, (4, 16): "rows", (20, 64): "rows"}


def test_auto_is_vmap_where_it_forms_the_same_gradients():
    loss, u, records = product(64, 128, 128)
    assert table(loss, u, records, "auto").strategy == "vmap"
    assert {row.rule for row in table(loss, u, records, "auto").rows} == {MATERIALISED}
    assert table(*product(4, 128, 128), "auto").strategy == "bookkeeping"


def test_a_rule_that_was_asked_for_is_not_replaced_by_vmap():
    loss, u, records = product(64, 128, 128)
    rules = {"['w']": FORMED}
    found = clipped_sum(
        loss, u, records, jax.ShapeDtypeStruct((SIZE,), bool), 1.0, rules=rules, explain=True
    )
    assert (found.strategy, found.rows[0].rule) == ("bookkeeping", FORMED)


def test_convolutions_and_scans_are_not_left_to_vmap():
    """Patches of few records at a time, and one product for all steps of a scan, are faster."""
    spec = ("NHWC", "HWIO", "NHWC")

    def convolution(u, x):
        return score(
            jax.lax.conv_general_dilated(x[None], u["w"], (1, 1), "SAME", dimension_numbers=spec)
        )

    def scan(u, x):
        return score(
            jax.lax.scan(lambda h, row: (jnp.tanh(h @ u["w"] + row), None), jnp.ones(5), x)[0]
        )

    kernel, square = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((3, 3, 2, 4), (5, 5)))
    images, rows = (
        jax.ShapeDtypeStruct((SIZE, *shape), jnp.float32) for shape in ((9, 9, 2), (20, 5))
    )
    for loss, leaf, records in ((convolution, kernel, images), (scan, square, rows)):
        found = table(loss, {"w": leaf}, records, "auto")
        assert (found.strategy, found.rows[0].rule) == ("bookkeeping", FORMED)


def test_the_choice_is_the_same_again_and_does_not_look_at_records():
    loss, u, records = product(16, 128, 128)
    mask, ones = (
        np.ones(SIZE, bool),
        jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), (u, records)),
    )
    noise = np.random.default_rng(0).normal(size=records.shape).astype(np.float32) * 1e10
    programs = {
        jax.jit(lambda u, x: clipped_sum(loss, u, x, mask, 1.0)).lower(ones[0], given).as_text()
        for given in (ones[1], noise)
    }
    assert len(programs) == 1
    one = jax.ShapeDtypeStruct(records.shape[1:], records.dtype)
    assert plan(loss, u, one, size=SIZE).rules == plan(loss, u, one, size=SIZE).rules


IMAGES = ("NHWC", "HWIO", "NHWC")


def mixture(u, x):
    """A convolution and a product with many places that are formed, one with few, one with one
    place, a bias and a scale.
    """
    image = (
        jax.lax.conv_general_dilated(
            x[None], u["kernel"], (1, 1), "SAME", dimension_numbers=IMAGES
        )[0]
        + u["bias"]
    )
    rows = jnp.tanh(image).reshape(36, 4) @ u["many"]
    few = jnp.tanh(rows * u["scale"]).reshape(3, 60) @ u["few"]
    return score(jnp.tanh(few.reshape(-1)) @ u["one"])


MIXED = Case(
    mixture,
    {
        "kernel": (3, 3, 2, 4),
        "bias": (4,),
        "many": (4, 5),
        "scale": (5,),
        "few": (60, 7),
        "one": (21, 6),
    },
    (6, 6, 2),
    {"kernel": FORMED, "many": FORMED, "few": GRAM, "one": OUTER},
)


def test_minibatches_are_taken_apart_evenly_where_a_count_is_near(monkeypatch):
    """What is left over is a second program to compile. Without an even count within a factor of
    two there is a rest.
    """
    u = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in MIXED.u.items()}
    (kernel,) = plan(mixture, u, jax.ShapeDtypeStruct(MIXED.record, jnp.float32)).taps[2]
    monkeypatch.setattr(_choice, "_PATCHES_AT_ONCE", 6 * 36 * 18 * 4)
    counts = {
        size: _choice.records_at_once(kernel.linear_uses, size)
        for size in (4, 6, 7, 8, 10, 12, 13, 32, 100)
    }
    assert counts == {4: 4, 6: 6, 7: 6, 8: 4, 10: 5, 12: 6, 13: 6, 32: 4, 100: 5}


@pytest.mark.parametrize("at_once", some_of([1, 2, 4], 2, 1))
@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_patches_of_some_records_at_a_time_change_no_result(at_once, width, monkeypatch):
    """Four records in turns of one, two or four; against each record's gradient clipped by hand."""
    monkeypatch.setattr(_choice, "_PATCHES_AT_ONCE", at_once * 36 * 18 * 4)
    assert_rules(MIXED)
    compared(MIXED, width)


@pytest.mark.parametrize("at_once", some_of([3, 1]))
def test_a_record_whose_patches_are_not_finite_contributes_zero_in_turns(at_once, monkeypatch):
    """Five records in turns of one or three, which leave a rest."""
    monkeypatch.setattr(_choice, "_PATCHES_AT_ONCE", at_once * 36 * 18 * 4)
    random = np.random.default_rng(0)
    u = {name: random.normal(size=shape).astype(np.float32) for name, shape in MIXED.u.items()}
    x = random.normal(size=(5, 6, 6, 2)).astype(np.float32)
    bad = x.copy()
    bad[2, 3, 3] = np.nan
    clipped = jax.jit(lambda x, mask: clipped_sum(mixture, u, x, mask, 0.1, "bookkeeping")[0])
    others = np.array([True, True, False, True, True])
    for left, right in zip(
        jax.tree.leaves(clipped(bad, np.ones(5, bool))),
        jax.tree.leaves(clipped(x, others)),
        strict=True,
    ):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)


def test_memory_does_not_grow_with_the_patches_of_the_minibatch():
    """64 images whose patches take 50 times their own room."""

    def loss(u, x):
        first = jax.lax.conv_general_dilated(
            x[None], u["w"], (1, 1), "SAME", dimension_numbers=IMAGES
        )
        return score(jnp.tanh(first))

    u, x = {"w": jnp.ones((7, 7, 4, 4))}, jnp.ones((64, 32, 32, 4))
    total = jax.jit(lambda u, x: clipped_sum(loss, u, x, jnp.ones(64, bool), 1.0, "bookkeeping")[0])
    held = total.lower(u, x).compile().memory_analysis().temp_size_in_bytes
    assert held < 64 * 32 * 32 * 4 * 49 * 4 / 4
