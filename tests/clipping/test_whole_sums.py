"""Sums in whole numbers: no record moves one by more than the sensitivity that the noise is for,
whatever is added up.

What is compared with is computed in NumPy, from each record's own gradient in 64 bits.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import quick_jit, some_of
from workbench._limits import LARGEST_CLIP
from workbench.clipping import whole_sums
from workbench.inference.strata import Stratum, clipped_sum_in_parts
from workbench.noise.mechanism import OnGrid

C = 1.0
G = 2.0**-20


def whole_sum(
    loss,
    u,
    size,
    strategy="auto",
    rules=None,
    spacing=G,
    parts=None,
    clipping="flat",
    jit=quick_jit,
):
    """(``total(records, mask, clip)`` in whole numbers float64[d], dict that holds slack and units
    once it has run).

    :param spacing: for C = 1; that of another ``clip`` is as many times as wide.
    """
    stated = {}

    @jit
    def total(records, mask, clip):
        def spacing_for(slack, units):
            stated.update(slack=slack, units=units)
            return clip * jnp.float32(spacing)

        found, _ = clipped_sum_in_parts(
            loss,
            u,
            [
                Stratum(
                    lambda places: jax.tree.map(lambda array: array[places], records),
                    mask,
                    parts or size,
                )
            ],
            clip,
            strategy,
            clipping,
            rules,
            spacing_for,
        )
        assert isinstance(found, OnGrid)
        assert all(leaf.dtype == jnp.int32 for leaf in jax.tree.leaves(found.units))
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(found.units)])

    def summed(records, mask, clip=C):
        return np.asarray(total(records, jnp.asarray(mask), jnp.float32(clip)), np.float64)

    return summed, stated


def sensitivity(stated, spacing=G):
    """In spacings, as the module states it."""
    return C * (1 + stated["slack"]) / spacing + np.sqrt(stated["units"])


def linear(u, record):
    """The record's gradient is the record itself."""
    return u["a"] @ record


def dense(u, record):
    return jnp.sum(jnp.sin(record @ u["a"]))


def places(u, record):
    return jnp.sum(jnp.sin(record.reshape(4, -1) @ u["a"]))


def rows(u, record):
    return jnp.sum(u["a"][jnp.abs(record * 7).astype(jnp.int32) % 100] * record[:, None])


def few_rows(u, record):
    return u["a"][jnp.abs(record[0] * 7).astype(jnp.int32) % 5] * jnp.sin(record[1])


def tied(u, record):
    return jnp.sum(jnp.sin(u["a"] @ jnp.sin(record[:8] @ u["a"])))


def masked(u, record):
    return jnp.sum(jnp.sin(record @ (u["a"] * jnp.tri(8, 5))))


CASES = {
    "linear": (linear, (8,), None),
    "outer product": (dense, (8, 5), None),
    "formed": (dense, (8, 5), {"['a']": "instantiated"}),
    "materialised": (dense, (8, 5), {"['a']": "materialised"}),
    "Gram matrix": (places, (2, 5), {"['a']": "Gram matrix"}),
    "rows": (rows, (100, 3), {"['a']": "rows"}),
    "few rows": (few_rows, (5,), None),
    "tied": (tied, (8, 8), None),
    "masked": (masked, (8, 5), None),
}


def gradients_of(loss, u, records):
    """Each record's clipped gradient, float64[M, d], clipped in 64 bits."""
    each = quick_jit(jax.vmap(jax.grad(loss), (None, 0)))(u, records)
    flat = np.concatenate(
        [np.asarray(leaf, np.float64).reshape(len(records), -1) for leaf in jax.tree.leaves(each)],
        1,
    )
    return flat * np.minimum(1, C / np.linalg.norm(flat, axis=1))[:, None]


def made(shape, size, scale=3.0):
    random = np.random.default_rng(0)
    u = {"a": jnp.asarray(random.normal(size=shape), jnp.float32)}
    return u, jnp.asarray(scale * random.normal(size=(size, 8)), jnp.float32)


@pytest.mark.parametrize("strategy", some_of(["auto", "vmap", "loop"]))
@pytest.mark.parametrize("case", some_of(list(CASES)))
def test_a_sum_is_that_of_the_clipped_gradients_in_spacings(case, strategy):
    loss, shape, rules = CASES[case]
    u, records = made(shape, 150)
    mask = np.arange(150) % 7 != 3
    total, stated = whole_sum(loss, u, 150, strategy, rules if strategy == "auto" else None)
    found = total(records, mask)
    expected = gradients_of(loss, u, records)[mask].sum(0) / G
    # the bound of one block for each of the blocks, and what clipping a millionth shorter takes
    tolerance = 150 * (stated["slack"] + 1e-5) * C / G + 3 * np.sqrt(stated["units"])
    assert np.linalg.norm(found - expected) <= tolerance
    assert np.linalg.norm(found - expected) <= 2e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("case", some_of(list(CASES), 2, 1))
def test_one_record_moves_a_sum_by_its_own_term_and_what_is_stated(case):
    """Any of them, taken away in its place."""
    loss, shape, rules = CASES[case]
    u, records = made(shape, 150)
    total, stated = whole_sum(loss, u, 150, "auto", rules)
    everyone = np.ones(150, bool)
    whole, own = total(records, everyone), gradients_of(loss, u, records) / G
    for place in (0, 74, 149):
        moved = whole - total(records, np.arange(150) != place)
        assert np.linalg.norm(moved) <= sensitivity(stated)
        assert np.linalg.norm(moved - own[place]) <= sensitivity(stated) - C / G + 1e-5 * C / G


@pytest.mark.parametrize("parts", [150, 64, 10])
def test_a_minibatch_in_parts_counts_every_record_once(parts):
    loss, shape, _ = CASES["outer product"]
    u, records = made(shape, 150)
    for mask in (np.arange(150) % 3 > 0, np.arange(150) < 70, np.zeros(150, bool)):
        total, _ = whole_sum(loss, u, 150, parts=parts)
        expected = gradients_of(loss, u, records)[mask].sum(0) / G
        np.testing.assert_allclose(total(records, mask), expected, atol=1e-4 * mask.sum() / G)


def half_an_ulp(size, width):
    """Many small values that a large one swallows in floating point, and a record that makes it
    large.

    Casacuberta, Shoemate, Vadhan and Wagaman 2022 (arXiv 2207.10635), section 5: 1 + 2^-24 is 1 in
    float32, so that whether a sum begins at 1 or at 0 decides whether thousands of such values
    count.
    """
    records = np.zeros((size, width), np.float32)
    records[:, 0] = np.float32(2.0**-18) * (1 - 2.0**-10)
    records[: size // 2, 0] = 1.0  # a sum of thousands, whose ulp is 2^-12 and more
    return records


@pytest.mark.parametrize("size", [4096, 20_000])
@pytest.mark.parametrize("strategy", ["auto", "vmap"])
def test_values_of_half_an_ulp_move_a_sum_by_no_more_than_is_stated(size, strategy):
    u = {"a": jnp.zeros(3, jnp.float32)}
    records = half_an_ulp(size, 3)
    total, stated = whole_sum(linear, u, size, strategy, spacing=2.0**-14)
    everyone = np.ones(size, bool)
    whole = total(records, everyone)
    exact = records.astype(np.float64).sum(0) * (1 - 4e-6) / 2.0**-14
    # in floating point half of the small values are lost, or rounded up
    assert abs(whole[0] - exact[0]) <= size / 64
    for place in (0, size // 2 - 1, size // 2, size - 1):
        moved = whole - total(records, np.arange(size) != place)
        assert np.linalg.norm(moved) <= sensitivity(stated, 2.0**-14)


def test_in_floating_point_such_values_move_a_sum_by_more():
    """The test above can fail: added up one after the other, whether the first record is there
    decides about all others.
    """
    values = np.full(20_000, 2.0**-24, np.float32)
    with_one, without = (
        np.add.accumulate(np.append(np.float32(first), values))[-1] for first in (1.0, 0.0)
    )
    assert abs(float(with_one) - float(without) - 1) > 1e-3


@pytest.mark.parametrize("size", [34, 70, 500])
def test_sums_of_the_largest_clip_are_finite_whatever_is_added_up(size):
    """A sum that is infinite would be some whole number, and another one without the record that
    made it so.
    """
    records = np.zeros((size, 4), np.float32)
    records[:, 0] = 1.0
    total, stated = whole_sum(
        linear, {"a": jnp.zeros(4)}, size, spacing=2.0**-16, clipping="automatic"
    )
    whole, others = (
        total(jnp.asarray(records), mask, LARGEST_CLIP)
        for mask in (np.ones(size, bool), np.arange(size) > 0)
    )
    assert whole[0] == pytest.approx(size / 1.01 * 2**16, rel=1e-4)
    assert np.linalg.norm(whole - others) <= sensitivity(stated, 2.0**-16)
    kinds = (1, 1.0), (1, 64.0), (2, 64.0), (1000, 64.0)
    longest = max(
        whole_sums.records_in_block(10**4, places, spread) * spread for places, spread in kinds
    )
    assert longest * LARGEST_CLIP < float(np.finfo(np.float32).max) / 2


# --- blocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 68, 69, 1000, 10**6])
@pytest.mark.parametrize(("terms", "spread"), [(1, 1.0), (4, 64.0), (1000, 64.0)])
def test_blocks_keep_their_bound_and_cover_the_minibatch(size, terms, spread):
    records = whole_sums.records_in_block(size, terms, spread)
    bound = whole_sums.of_block(size, 10, 0.0, terms, spread)
    assert 1 <= records <= size
    assert records == 1 or bound.blocks[records] <= 3e-4
    blocks = -(-size // records)
    assert blocks * records - size < blocks + records
    whole = whole_sums.in_whole_blocks(size)
    assert size <= whole < size + whole_sums.records_in_block(size)
    assert whole % whole_sums.records_in_block(size) == 0


@pytest.mark.parametrize("size", [5, 100, 137])
def test_a_block_is_added_up_in_floating_point_and_blocks_without_error(monkeypatch, size):
    """Each block's rounded sum, worked out in NumPy; also where not all blocks' sums are held at
    once.
    """
    values = np.random.default_rng(3).normal(size=(size, 6)).astype(np.float32)
    grid = whole_sums.Grid(jnp.float32(2.0**16))
    records = whole_sums.records_in_block(size)
    padded = np.zeros((-(-size // records) * records, 6), np.float32)
    padded[:size] = values
    blocks = padded.reshape(-1, records, 6).astype(np.float64).sum(1)
    for at_once in (2**22, 1):
        monkeypatch.setattr(whole_sums, "_AT_ONCE", at_once)
        found = whole_sums.total(lambda array: jnp.sum(array, 0), [jnp.asarray(values)], grid)
        assert found.dtype == jnp.int32
        np.testing.assert_allclose(found, np.round(blocks * 2.0**16).sum(0), atol=2 * len(blocks))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_whole_numbers_are_exact_modulo_two_to_the_32(kind):
    """So terms that cancel do, however long they are."""
    exact = 2**31
    near = np.array([2.0**24, 2.0**31, 2.0**32, 3 * 2.0**31, 2.0**40, 2.0**53], kind)
    around = np.concatenate([near, np.nextafter(near, kind(0)), np.nextafter(near, kind(1e30))])
    values = np.concatenate([around, -around, np.array([1e18, -3e25, 1e38, 0.5, 1.5, -2.5], kind)])
    with jax.enable_x64(kind is np.float64):
        found = np.asarray(
            jax.jit(whole_sums.Grid(jnp.float32(1.0)).rounded)(jnp.asarray(values))
        ).tolist()
    assert found == [(round(float(value)) + exact) % 2**32 - exact for value in values]


@pytest.mark.parametrize("parts", [200, 4])
def test_long_terms_of_a_record_that_cancel_do_so_in_whole_numbers(parts):
    """A record looks up one row three times. Its terms are as long as a norm of 1/64 of their
    lengths together allows.
    """
    spacing = 2.0**-20

    def thrice(u, record):
        return jnp.sum(u["a"][jnp.array([3, 3, 3])][:, 0] * record)

    records = np.tile(np.array([1e4, -6e3, -4e3], np.float32), (200, 1))
    rules = {"['a']": "rows"}
    total, stated = whole_sum(
        thrice, {"a": jnp.zeros((100, 1))}, 200, "auto", rules, spacing=spacing, parts=parts
    )
    everyone = np.ones(200, bool)
    moved = total(jnp.asarray(records), everyone) - total(jnp.asarray(records), np.arange(200) != 0)
    assert np.linalg.norm(moved) <= sensitivity(stated, spacing)


def test_a_bound_of_several_leaves_adds_what_can_add_up():
    """Rounding of leaves adds up in squares; errors of blocks of the same records are
    one leaf's.
    """
    one, same, other = (
        whole_sums.Bound(norm, blocks, 9.0)
        for norm, blocks in ((1e-5, {64: 2e-4}), (2e-5, {64: 1e-4}), (0, {8: 3e-4}))
    )
    found = whole_sums.combined([one, same, other])
    assert found._replace(norm=0.0) == whole_sums.Bound(0.0, {64: 2e-4, 8: 3e-4}, 27.0)
    assert found.norm == pytest.approx(2e-5 + 2**-24)  # two additions of squares
    assert found.slack == pytest.approx(2e-5 + 2 * 5e-4, rel=2e-4)


# --- numbers at the ends of the range -------------------------------------------------------------


@functools.cache
def sum_at(case):
    """``whole_sum`` of a case, and its records."""
    loss, shape, rules = CASES[case]
    u, records = made(shape, 3)
    return *whole_sum(loss, u, 3, rules=rules), records


@pytest.mark.parametrize("clip", [1e-12, 1e-6, 1.0, 1e37])
@pytest.mark.parametrize("size", [1e-38, 1e-20, 1e-6, 1.0, 1e18, 1e38])
@pytest.mark.parametrize("case", ["linear", "outer product", "rows", "materialised"])
def test_records_of_any_size_keep_any_clip(case, size, clip):
    """Factors and products below the smallest normal number may be rounded up by half of
    themselves.
    """
    total, stated, records = sum_at(case)
    scaled = jnp.asarray(np.clip(records * np.float64(size), -3e38, 3e38), jnp.float32)
    everyone = np.ones(3, bool)
    whole = total(scaled, everyone, clip)
    for place in range(3):
        moved = whole - total(scaled, np.arange(3) != place, clip)
        assert np.linalg.norm(moved) <= (1 + stated["slack"]) * 2**20 + np.sqrt(stated["units"])


def test_a_step_in_64_bits_has_64_bits_from_end_to_end():
    with jax.enable_x64(True):
        u, records = (
            {"a": jnp.ones((8, 5))},
            jnp.asarray(np.random.default_rng(0).normal(size=(10, 8))),
        )
        total, stated = whole_sum(dense, u, 10)
        everyone = np.ones(10, bool)
        moved = total(records, everyone) - total(records, np.arange(10) != 3)
        assert np.linalg.norm(moved) <= sensitivity(stated)
        np.testing.assert_allclose(moved, gradients_of(dense, u, records)[3] / G, atol=2)


# --- found by attacks -----------------------------------------------------------------------------


def test_a_product_that_look_ups_of_the_same_table_cancel_is_added_up_as_what_cancels():
    """Twenty records whose product with the table is 13 C long and whose look-up takes nearly all
    of it away.
    """

    def loss(u, record):
        x, y, rows = record
        return (x @ u["a"])[0] + jnp.sum(u["a"][rows][:, 0] * y)

    size, spacing = 68, 2.0**-16
    lengths, looked_up = np.zeros(size, np.float32), np.zeros((size, 2), np.float32)
    lengths[:20], lengths[20] = np.float32(255.5 / 20), 1.0
    lengths[21:] = -255.5 * 2.0**-24 * (1 - 2.0**-9)
    looked_up[:20, 0] = -lengths[:20] * np.float32(1 - 1 / 34)
    x = np.zeros((size, 100), np.float32)
    x[:, 0] = lengths
    rows = np.tile(np.array([0, 99], np.int32), (size, 1))
    total, stated = whole_sum(loss, {"a": jnp.zeros((100, 1))}, size, spacing=spacing)
    everyone, records = np.ones(size, bool), (x, looked_up, rows)
    for place in (0, 20, 67):
        moved = total(records, everyone) - total(records, np.arange(size) != place)
        assert np.linalg.norm(moved) <= sensitivity(stated, spacing)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["auto", "vmap"])
def test_squares_of_a_thousand_leaves_are_added_up_within_the_bound(strategy):
    u = {f"{number:04d}": jnp.zeros(1) for number in range(1000)}

    def loss(u, record):
        return sum(jnp.sum(leaf * record[place]) for place, leaf in enumerate(u.values()))

    record = np.full((1, 1000), 2.0**-12 * (1 - 2.0**-9), np.float32)
    record[0, 0] = 1.0
    total, stated = whole_sum(loss, u, 1, strategy, spacing=2.0**-22)
    assert np.linalg.norm(total(record, np.ones(1, bool))) <= sensitivity(stated, 2.0**-22)


@functools.cache
def sum_of_products(width):
    def loss(u, record):
        x, y = record
        return jnp.sum((x @ u["a"])[:, 0] * y)

    u, rules = {"a": jnp.zeros((width, 1))}, {"['a']": "Gram matrix"}
    return whole_sum(loss, u, 1, "bookkeeping", rules, spacing=2.0**-16)[0]


@pytest.mark.parametrize("size", [1e18, 1.5e19, 1e30, 3e38])
@pytest.mark.parametrize("width", [1, 40])
@pytest.mark.parametrize("clip", [1e-12, 1.0])
def test_of_places_that_cancel_none_is_lost_by_underflow(clip, width, size):
    """A factor that is flushed to zero beside another that is not would leave the other place
    alone.
    """
    x, y = np.zeros((1, 2, width), np.float32), np.zeros((1, 2), np.float32)
    total = sum_of_products(width)
    for small in (2.0**-126, 2.0**-100, clip / size):
        x[0, :, 0] = size, np.float32(0.9) * np.float32(size)
        y[0] = np.float32(0.9 * small), np.float32(-1.00002 * small)
        assert np.linalg.norm(total((x, y), np.ones(1, bool), clip)) <= 2**16 * 1.001 + np.sqrt(
            width
        )


def test_automatic_clipping_at_the_largest_clip_has_finite_factors():
    """C / .01 is infinite in float32, and infinity times the gradient of a record without one is no
    number.
    """
    records = np.zeros((4, 4), np.float32)
    records[1:, :] = 1e-3
    total, _ = whole_sum(linear, {"a": jnp.zeros(4)}, 4, spacing=2.0**-16, clipping="automatic")
    assert np.all(total(records, np.ones(4, bool), 1e37) > 0)


def test_sums_are_rounded_to_the_nearest_whole_number():
    """Rounding towards zero would be as private, but each sum would be short."""
    grid = whole_sums.Grid(jnp.float32(4.0))  # spacings of a quarter
    assert grid.rounded(
        jnp.array([0.0, 0.1, 0.15, 0.24, -0.1, -0.15, -0.24], jnp.float32)
    ).tolist() == [
        0,
        0,
        1,
        1,
        0,
        -1,
        -1,
    ]


# --- a row that is deleted ------------------------------------------------------------------------


def without_the_first(records):
    """(``records`` without the first, whose place stays empty; with later ones moved up): (records,
    mask) each.
    """
    size = len(records)
    moved = np.concatenate([records[1:], np.zeros_like(records[:1])])
    return (records, np.arange(size) > 0), (moved, np.arange(size) < size - 1)


def moves_of_deletion(strategy):
    """(what is stated, how far the sum moves if a place stays empty, if rows move up) for rows that
    are made for it.

    The first and last rows of blocks add up to almost half a spacing, and to a little more with the
    next block's first.
    """
    size, width, spacing, more = 68 * 24, 400, 2.0**-6, 1e-2
    block, number = 68, np.arange(24)
    assert whole_sums.records_in_block(size) == block
    records = np.zeros((size, width), np.float32)
    records[number * block] = (more * (1 + number) * spacing)[:, None]
    records[number * block + block - 1] = ((0.5 - more / 2 - more * (1 + number)) * spacing)[
        :, None
    ]
    total, stated = whole_sum(
        lambda u, r: u @ r, np.zeros(width, np.float32), size, strategy, spacing=spacing
    )
    whole = total(records, np.ones(size, bool), C)
    moves = [
        np.linalg.norm(total(*each, C) - whole) * spacing for each in without_the_first(records)
    ]
    return C * (1 + stated["slack"]) + np.sqrt(stated["units"]) * spacing, *moves


def test_a_deleted_row_moves_blocks_by_more_than_noise_is_for():
    """Where its place stays empty it does not. Nothing limits how often: there are as many as
    blocks.
    """
    stated, emptied, deleted = moves_of_deletion("auto")
    assert emptied <= stated
    assert deleted > 5 * stated


def test_where_records_are_rounded_one_by_one_a_deleted_row_is_a_place_that_stays_empty():
    stated, emptied, deleted = moves_of_deletion("loop")
    assert max(emptied, deleted) <= stated


@pytest.mark.parametrize("width", some_of([200, 3], first=1))
@pytest.mark.parametrize("network", some_of([False, True]))
def test_what_is_computed_one_by_one_does_not_depend_on_the_place(width, network):
    """To the last bit. At once they do: of 1075 records with 200 features one had another gradient
    at the next place.
    """
    random, size = np.random.default_rng(2), 300
    records = random.normal(size=(size, width)).astype(np.float32)

    def loss(u, r):
        return jnp.logaddexp(0.0, (jnp.tanh(r @ u["w"]) @ u["v"]) if network else r @ u["v"])

    u = {
        "w": 0.3 * random.normal(size=(width, 16)),
        "v": random.normal(size=16 if network else width),
    }
    total, _ = whole_sum(
        loss, jax.tree.map(np.float32, u), size, "loop", spacing=2.0**-26, jit=jax.jit
    )
    emptied, deleted = (total(*each, C) for each in without_the_first(records))
    np.testing.assert_array_equal(emptied, deleted)
