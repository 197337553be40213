import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.conftest import examples, some_of
from workbench._validate import ArgumentError
from workbench.clipping import clipped_sum

SIZE, WIDTH = 5, 4
MASKS = arrays(bool, SIZE)
CLIPS = st.sampled_from([0.01, 0.7, 1.0, 50.0])
ORDINARY = arrays(np.float32, (SIZE, WIDTH), elements=st.floats(-1000, 1000, width=32))
ANYTHING = arrays(np.float32, (SIZE, WIDTH), elements=st.floats(width=32))

clipped_in_one = jax.jit(clipped_sum, static_argnums=0)
properties = settings(examples(150, few=75), derandomize=True)


def linear(u, record):
    """Its gradient in u is the record."""
    return jnp.vdot(u, record)


@partial(jax.jit, static_argnums=2)
def clipped(records, mask, clip):
    return clipped_sum(linear, jnp.zeros(records.shape[1]), records, mask, clip)[0]


def contribution(records, mask, clip, place):
    """What the record at ``place`` adds to the sum, in float64."""
    alone = np.zeros(len(mask), bool)
    alone[place] = mask[place]
    return np.asarray(clipped(records, alone, clip), np.float64)


def rounding(records, clip):
    """What adding up float32 numbers in another order may change: a few units in the last place of
    each entry.
    """
    return 4 * len(records) * clip * np.finfo(np.float32).eps


@given(ANYTHING, CLIPS)
@properties
def test_no_contribution_exceeds_the_clipping_norm(records, clip):
    """No tolerance: the noise is calibrated to C."""
    for place in range(SIZE):
        assert np.linalg.norm(contribution(records, np.ones(SIZE, bool), clip, place)) <= clip


@pytest.mark.parametrize("size", [1, 3, 1000, 200_000])
def test_no_contribution_exceeds_the_clipping_norm_in_many_dimensions(size):
    """Rounding grows with the number of terms; equal ones round the same way every time."""
    random = np.random.default_rng(0)
    gradients = [random.normal(size=size)] + [
        np.full(size, value) for value in random.uniform(0.5, 2, 15)
    ]
    for gradient in gradients:
        longer = (10 * gradient / np.linalg.norm(gradient)).astype(np.float32)
        total = clipped(longer[None], np.ones(1, bool), 1.0)
        assert 1 - 1e-5 < np.linalg.norm(np.asarray(total, np.float64)) <= 1


@pytest.mark.parametrize("dtype", some_of([jnp.float16, jnp.bfloat16], 2))
def test_no_contribution_exceeds_the_clipping_norm_in_half_precision(dtype):
    random = np.random.default_rng(0)
    for _ in range(20):
        records = jnp.asarray(random.normal(size=(1, 300)), dtype)
        total, _ = clipped_in_one(linear, jnp.zeros(300, dtype), records, np.ones(1, bool), 1.0)
        assert np.linalg.norm(np.asarray(total, np.float64)) <= 1


@pytest.mark.parametrize("clip", [1e-12, 1e-6, 1e30])
def test_no_contribution_exceeds_an_extreme_clipping_norm(clip):
    for size in (1e-25, 1e-21, 1e-16, 1e-12, 1.0, 1e15):
        records = np.full((1, 3), size, np.float32)
        assert (
            np.linalg.norm(np.asarray(clipped(records, np.ones(1, bool), clip), np.float64)) <= clip
        )


@given(ANYTHING, MASKS, CLIPS, st.integers(0, SIZE - 1))
@properties
def test_adding_or_removing_one_record_moves_the_sum_by_at_most_clip(records, mask, clip, place):
    mask[place] = True
    without = mask.copy()
    without[place] = False
    moved = np.asarray(clipped(records, mask, clip), np.float64) - np.asarray(
        clipped(records, without, clip), np.float64
    )
    assert np.linalg.norm(moved) <= clip + rounding(records, clip)


@given(ORDINARY, MASKS, CLIPS)
@properties
def test_sum_is_the_sum_of_contributions(records, mask, clip):
    separate = sum(contribution(records, mask, clip, place) for place in range(SIZE))
    np.testing.assert_allclose(
        clipped(records, mask, clip), separate, atol=rounding(records, clip), rtol=0
    )


@given(ORDINARY, MASKS, CLIPS, st.permutations(range(SIZE)))
@properties
def test_order_of_records_does_not_matter(records, mask, clip, order):
    order = np.array(order)
    shuffled = clipped(records[order], mask[order], clip)
    np.testing.assert_allclose(
        shuffled, clipped(records, mask, clip), atol=rounding(records, clip), rtol=0
    )


@given(ANYTHING, ANYTHING, MASKS, CLIPS)
@properties
def test_padding_contributes_nothing(records, other, mask, clip):
    replaced = np.where(mask[:, None], records, other)
    np.testing.assert_array_equal(clipped(records, mask, clip), clipped(replaced, mask, clip))


@given(ANYTHING, MASKS, CLIPS)
@properties
def test_sum_is_always_finite(records, mask, clip):
    assert np.all(np.isfinite(clipped(records, mask, clip)))


@given(ORDINARY)
@properties
def test_long_gradients_keep_their_direction_and_short_ones_their_length(records):
    clip = 50.0
    for place, gradient in enumerate(records.astype(np.float64)):
        expected = gradient * min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))
        ours = contribution(records, np.ones(SIZE, bool), clip, place)
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-30)


@given(ORDINARY)
@properties
def test_infinite_clip_switches_clipping_off(records):
    total = clipped(records, np.ones(SIZE, bool), math.inf)
    np.testing.assert_allclose(total, records.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_record_without_a_finite_gradient_contributes_zero(bad):
    records = np.ones((SIZE, WIDTH), np.float32)
    records[2, 1] = bad
    np.testing.assert_array_equal(
        contribution(records, np.ones(SIZE, bool), 1.0, 2), np.zeros(WIDTH)
    )
    total = np.linalg.norm(np.asarray(clipped(records, np.ones(SIZE, bool), 1.0)))
    assert total == pytest.approx(SIZE - 1, rel=1e-5)


def test_empty_minibatch_gives_zeros():
    records = np.full((SIZE, WIDTH), math.nan, np.float32)
    np.testing.assert_array_equal(clipped(records, np.zeros(SIZE, bool), 1.0), np.zeros(WIDTH))


def test_norm_spans_all_leaves_of_a_tree():
    """3, 4 and 12 in three leaves make 13, so one clipped record has norm C over all leaves
    together.
    """
    u = {"a": jnp.zeros(2), "b": (jnp.zeros((1, 1)), jnp.zeros(()))}
    records = {
        "a": np.array([[3.0, 0.0]], np.float32),
        "b": (np.full((1, 1, 1), 4, np.float32), np.array([12.0], np.float32)),
    }

    def loss(u, record):
        return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, u, record)))

    total, norms = clipped_in_one(loss, u, records, np.ones(1, bool), 1.0)
    assert jax.tree.structure(total) == jax.tree.structure(u)
    assert jax.tree.map(jnp.shape, total) == jax.tree.map(jnp.shape, u)
    np.testing.assert_allclose(norms, [13.0])
    for ours, record in zip(jax.tree.leaves(total), jax.tree.leaves(records), strict=True):
        np.testing.assert_allclose(ours, record[0] / 13, rtol=1e-5)


def test_norms_are_those_before_clipping():
    records = np.array([[3, 4, 0, 0], [0.3, 0.4, 0, 0]], np.float32)
    _, norms = clipped_in_one(linear, jnp.zeros(4), records, np.array([True, False]), 1.0)
    np.testing.assert_allclose(norms, [5.0, 0.5], rtol=1e-6)


@pytest.mark.thorough
@given(ORDINARY, MASKS, CLIPS)
@settings(examples(20), derandomize=True)
def test_jit_equals_eager(records, mask, clip):
    eager, _ = clipped_sum(linear, jnp.zeros(WIDTH), records, mask, clip)
    np.testing.assert_allclose(
        clipped(records, mask, clip), eager, atol=rounding(records, clip), rtol=1e-6
    )


def test_a_nonlinear_loss_is_differentiated_at_u():
    u = jnp.array([0.5, -1.0])
    records = np.array([[1.0, 2.0], [-3.0, 0.5]], np.float32)

    def loss(u, record):
        return jnp.sum(jnp.sin(u * record))

    expected = np.sum(records * np.cos(np.asarray(u) * records), axis=0)
    total, _ = clipped_in_one(loss, u, records, np.ones(2, bool), 100.0)
    np.testing.assert_allclose(total, expected, rtol=1e-5)


@pytest.mark.thorough
def test_scan_and_vmap_over_u_agree_with_single_calls():
    records = np.random.default_rng(1).normal(size=(SIZE, WIDTH)).astype(np.float32)
    points = jnp.asarray(np.random.default_rng(2).normal(size=(3, WIDTH)), jnp.float32)

    def loss(u, record):
        return jnp.sum(jnp.square(u - record))

    def total(u):
        return clipped_sum(loss, u, records, np.ones(SIZE, bool), 1.0)[0]

    single = np.stack([total(point) for point in points])
    np.testing.assert_allclose(jax.vmap(total)(points), single, rtol=1e-5)
    np.testing.assert_allclose(jax.lax.map(total, points), single, rtol=1e-5)


def test_an_unknown_strategy_is_named():
    with pytest.raises(ArgumentError, match="strategy='ghost'"):
        clipped_sum(
            linear, jnp.zeros(WIDTH), np.zeros((1, WIDTH)), np.ones(1, bool), 1.0, strategy="ghost"
        )


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, 1e-30])
def test_an_unusable_clip_is_named(clip):
    """NaN would switch clipping off in silence, and squares of float32 underflow beside 1e-30."""
    with pytest.raises(ArgumentError, match="clip="):
        clipped_sum(
            linear, jnp.zeros(WIDTH), np.zeros((1, WIDTH), np.float32), np.ones(1, bool), clip
        )


# --- other ways of clipping -----------------------------------------------------------------------


def two_leaves(u, record):
    """Its gradients are the record's two halves."""
    return jnp.vdot(u["a"], record[:2]) + jnp.vdot(u["b"], record[2:])


@partial(jax.jit, static_argnums=(2, 3, 4))
def clipped_leaves(records, mask, clip, clipping, strategy="vmap"):
    return clipped_sum(
        two_leaves,
        {"a": jnp.zeros(2), "b": jnp.zeros(2)},
        records,
        mask,
        clip,
        strategy,
        clipping=clipping,
    )[0]


@given(ANYTHING, CLIPS, st.sampled_from(["automatic", "per_leaf"]))
@properties
def test_no_contribution_exceeds_the_clipping_norm_however_it_is_clipped(records, clip, clipping):
    """No tolerance: the noise is calibrated to C. Nothing that is not finite comes in."""
    for place in range(SIZE):
        total = clipped_leaves(records, np.arange(SIZE) == place, clip, clipping)
        entries = np.concatenate([np.asarray(leaf, np.float64) for leaf in total.values()])
        assert np.linalg.norm(entries) <= clip
        if not np.isfinite(records[place]).all():
            assert not entries.any()


@pytest.mark.parametrize("strategy", ["bookkeeping", "vmap", "loop"])
def test_automatic_clipping_is_division_by_the_norm_and_a_hundredth(strategy):
    records = (
        np.random.default_rng(0).normal(size=(SIZE, WIDTH)).astype(np.float32)
        * 10.0 ** np.arange(-4, 1)[:, None]
    )
    total = clipped_leaves(
        records.astype(np.float32), np.ones(SIZE, bool), 2.0, "automatic", strategy
    )
    expected = sum(2 * record / (np.linalg.norm(record) + 0.01) for record in records)
    np.testing.assert_allclose(np.concatenate([total["a"], total["b"]]), expected, rtol=2e-5)


@pytest.mark.parametrize("strategy", ["bookkeeping", "vmap", "loop"])
def test_clipping_per_leaf_gives_each_its_share_of_the_norm(strategy):
    records = np.array([[3, 4, 0.1, 0], [0.1, 0, 3, 4], [0.1, 0.1, 0.1, 0.1]], np.float32)
    share = 1 / math.sqrt(2)
    total = clipped_leaves(records, np.ones(3, bool), 1.0, "per_leaf", strategy)
    np.testing.assert_allclose(total["a"], [0.6 * share + 0.2, 0.8 * share + 0.1], rtol=2e-5)
    np.testing.assert_allclose(total["b"], [0.2 + 0.6 * share, 0.1 + 0.8 * share], rtol=2e-5)


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("clipping", {"clipping": "ghost"}),
        ("strategy", {"strategy": "two_pass"}),
        ("clip", {"clipping": "automatic", "clip": math.inf}),
        ("clip", {"clipping": "per_leaf", "clip": math.inf}),
    ],
)
def test_ways_of_clipping_that_cannot_be_are_named(argument, options):
    with pytest.raises(ArgumentError, match=f"{argument}=") as refusal:
        clipped_sum(
            linear,
            jnp.zeros(WIDTH),
            np.zeros((1, WIDTH)),
            np.ones(1, bool),
            **{"clip": 1.0, **options},
        )
    assert refusal.value.argument == argument
