"""No record moves the clipped sum by more than C, also where one was made to: cancelling terms,
huge ones, half precision.

Norm and sum have to come from the same numbers. Where they do not, it shows with records whose
terms cancel.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.conftest import some_of
from workbench.clipping import clipped_sum
from workbench.clipping.clipped_sums import STRATEGIES
from workbench.noise.mechanism import CLIPPINGS

C = 1.0


def flat(tree):
    return np.concatenate(
        [np.ravel(np.asarray(leaf)).astype(np.float64) for leaf in jax.tree.leaves(tree)]
    )


def assert_keeps_clip(total, records, place, message=""):
    """Alone, no tolerance; beside others, what float32 loses in adding up M terms of C and one
    record's of 64 C in all.

    :param total: compiled ``total(records, mask)``. :param place: of the planted record.
    """
    size = len(jax.tree.leaves(records)[0])
    planted = np.arange(size) == place
    alone = flat(total(records, planted))
    assert np.linalg.norm(alone) <= C, message
    moved = flat(total(records, np.ones(size, bool))) - flat(total(records, ~planted))
    assert np.linalg.norm(moved - alone) <= 4 * (size + 64) * C * np.finfo(np.float32).eps, message


# --- a gradient that is evaluated twice -----------------------------------------------------------


def expression(kind, p, q, r):
    """Zero but for rounding where r[0] r[1] = r[2] r[3], and what is left of it depends on how the
    machine evaluates it.
    """
    return [p - q, q - p, p + q - 2 * p, 1.5 * (p - q), r[0] * r[1] - q, (p + 1) - (q + 1)][kind]


def cancelling_loss(kinds, ways, product):
    """:param ways: for each leaf, how its expression enters: 0 by entries, 1 scaled by a record's
    array, 2 summed.
    """

    def loss(u, r):
        p, q = r[0] * r[1], r[2] * r[3]
        result = 0.0
        for leaf, kind, way in zip("abc", kinds, ways, strict=True):
            value = expression(kind, p, q, r) * (1e-4 * r[0] if way == 1 else 1)
            result += jnp.sum(u[leaf]) * jnp.sum(value) if way == 2 else jnp.sum(u[leaf] * value)
        if product:
            result += 1e-3 * jnp.sum(jnp.tanh(u["w"].T @ (p - q)))
            result += jnp.sum((u["w"].T @ jnp.ones_like(p)) * (jnp.sum(p) - jnp.sum(q)))
        return result

    return loss


def cancelling_records(random, size, width, place, swapped=True):
    """Four arrays; of the planted record the first two, multiplied, are the other
    two multiplied.
    """
    arrays = [(0.1 * random.normal(size=(size, width))).astype(np.float32) for _ in range(4)]
    left, right = (3e4 * random.normal(size=width) for _ in range(2))
    again = (right, left) if swapped else (left, right)
    for array, planted in zip(arrays, (left, right, *again), strict=True):
        array[place] = planted
    return tuple(arrays)


def in_a_loop(total):
    """As in the chunks of a run, where XLA joins what it would not join outside."""

    def looped(records, mask):
        def body(carried):
            turn, _ = carried
            places = jnp.arange(len(mask)) + 0 * turn
            return turn + 1, total(tuple(array[places] for array in records), mask)

        return lax.while_loop(
            lambda carried: carried[0] < 2,
            body,
            (0, jax.tree.map(jnp.zeros_like, total(records, mask))),
        )[1]

    return looped


def compiled_total(loss, u, strategy, clipping="flat", looped=False, **options):
    def total(records, mask):
        return clipped_sum(loss, u, records, mask, C, strategy, clipping=clipping, **options)[0]

    return jax.jit(in_a_loop(total) if looped else total)


def check_cancelling(kinds, ways, product, size, width, looped, strategy, clipping="flat", seed=0):
    random = np.random.default_rng(seed)
    u = {name: jnp.full(width, 0.3) for name in "abc"} | {"w": jnp.full((width, 3), 0.1)}
    total = compiled_total(cancelling_loss(kinds, ways, product), u, strategy, clipping, looped)
    for turn in range(4):
        place = turn % size
        assert_keeps_clip(
            total,
            cancelling_records(random, size, width, place, turn % 2 == 0),
            place,
            f"{kinds} {ways} {strategy} {clipping}",
        )


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "auto"])
def test_what_is_measured_is_what_is_summed(strategy):
    """XLA evaluated the gradient once for the norm and once for the sum, with another rounding: up
    to 417 C.
    """
    check_cancelling((5, 1, 2), (1, 1, 2), False, 2, 8, True, strategy)
    check_cancelling((0, 1, 2), (0, 0, 0), False, 9, 8, False, strategy)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(12))
def test_what_is_measured_is_what_is_summed_in_any_loss(seed):
    random = np.random.default_rng(seed)
    for strategy, clipping in itertools.product(STRATEGIES[1:], CLIPPINGS):
        kinds, sums = tuple(random.integers(0, 6, 3)), tuple(random.random(3) < 0.3)
        size, width = random.choice([1, 2, 9, 120]), random.choice([1, 3, 8, 24, 300])
        check_cancelling(
            kinds,
            sums,
            random.random() < 0.5,
            size,
            width,
            bool(random.random() < 0.6),
            strategy,
            clipping,
            seed,
        )


# --- places that cancel ---------------------------------------------------------------------------


def places_loss(u, record):
    """Record i's gradient is a^T g, over its places."""
    a, g = record
    return jnp.sum((a @ u) * g)


def rows_loss(u, record):
    rows, g = record
    return jnp.sum(u[rows] * g)


def planted_places(random, size, places, width, outputs, length, remainder):
    """Ordinary records; the last one's second half of places takes back what the first half gives,
    but for a part.
    """
    a = 0.05 * random.normal(size=(size, places, width))
    g = 0.05 * random.normal(size=(size, places, outputs))
    half = places // 2
    a[-1, :half] = np.sqrt(length) * random.uniform(0.5, 1, (half, width))
    g[-1, :half] = np.sqrt(length) * random.uniform(0.5, 1, (half, outputs))
    a[-1, half:], g[-1, half:] = a[-1, :half] * (1 + remainder), -g[-1, :half]
    return a.astype(np.float32), g.astype(np.float32)


@pytest.mark.parametrize("places", [2, pytest.param(16, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("rule", some_of(["Gram matrix", "instantiated", "materialised"], 3))
def test_a_record_whose_places_cancel_does_not_round_off_the_others(rule, places):
    random = np.random.default_rng(places)
    records = [
        planted_places(random, 65, places, 40, 24, 1e9, remainder) for remainder in (0, 1e-6, 1e-3)
    ]
    for clipping in CLIPPINGS:
        total = compiled_total(
            places_loss, jnp.zeros((40, 24)), "bookkeeping", clipping, rules={"": rule}
        )
        for each in records:
            assert_keeps_clip(total, each, 64, f"{rule} {clipping}")


@pytest.mark.parametrize("rule", ["rows", "Gram matrix"])
@pytest.mark.parametrize("table", some_of([20, 300]))
def test_a_record_whose_mentions_of_a_row_cancel_does_not_round_off_the_others(rule, table):
    """Without a bound on its terms two of them, 8e6 C long, took .25 C of the others' sum."""
    random = np.random.default_rng(table)
    rows = random.integers(0, table, (65, 2)).astype(np.int32)
    rows[:, 0], rows[-1] = 3, 3  # all records meet the planted one's row
    total = compiled_total(rows_loss, jnp.zeros((table, 64)), "bookkeeping", rules={"": rule})
    for length in (1e3, 1e9):
        g = 0.02 * random.normal(size=(65, 2, 64))
        g[-1, 0] = length * random.uniform(0.5, 1, 64)
        g[-1, 1] = -g[-1, 0]
        assert_keeps_clip(total, (rows, g.astype(np.float32)), 64, rule)


def test_a_norm_from_products_of_many_terms_is_not_too_small():
    """Rounding of long products is larger than of short ones: the norm was a fifth of the true one
    here.
    """
    random, size, width = np.random.default_rng(0), 32, 4096
    left, right = random.uniform(0.5, 1, (2, size, 1, 1))
    remainder = np.geomspace(1e-3, 1e-1, size)[:, None, None]
    a = np.concatenate([left, left], 1) * np.ones(width)
    g = np.concatenate([right, -right * (1 - remainder)], 1) * np.ones(512)
    a, g = (1e3 * a).astype(np.float32), (1e3 * g).astype(np.float32)

    def norms(u, a, g):
        return clipped_sum(
            places_loss, u, (a, g), np.ones(size, bool), C, "bookkeeping", rules={"": "Gram matrix"}
        )[1]

    true = [
        np.linalg.norm(x.astype(np.float64).T @ y.astype(np.float64))
        for x, y in zip(a, g, strict=True)
    ]
    assert np.all(
        np.asarray(jax.jit(norms)(jnp.zeros((width, 512)), a, g), np.float64) * (1 + 4e-6) >= true
    )


# --- kernels made of leaves -----------------------------------------------------------------------

HALF_MASK = np.arange(24.0).reshape(6, 4) % 3


def normalised(u):
    return u["s"] * u["w"] / jnp.sqrt(jnp.sum(u["w"] * u["w"], axis=0))


# a kernel, 6 x 4, and the sizes of the leaves that it is made of
PREPARED = {
    "mask": (lambda u: u["w"] * HALF_MASK, {"w": (6, 4)}),
    "wide scale": (lambda u: jnp.exp(30 * u["w"]), {"w": (6, 4)}),
    "weight normalisation": (normalised, {"w": (6, 4), "s": (4,)}),
    "a sum of products": (
        lambda u: u["k"] + u["v"] @ u["w"] - (u["w"].T @ u["v"].T).T,
        {"k": (6, 4), "v": (6, 6), "w": (6, 4)},
    ),
    "difference of a leaf with itself": (
        lambda u: u["w"] * 1.1 - u["w"] * HALF_MASK,
        {"w": (6, 4)},
    ),
    "joined, half precision": (
        lambda u: jnp.concatenate([u["v"], u["w"]], 1).astype(jnp.bfloat16).astype(jnp.float32),
        {"v": (6, 1), "w": (6, 3)},
    ),
    "one code": (lambda u: (u["z"] @ jnp.tanh(u["w"])).reshape(6, 4), {"z": (3,), "w": (3, 24)}),
    "codes": (lambda u: (u["z"] @ u["w"]).reshape(6, 4), {"z": (2, 3), "w": (3, 12)}),
}


@pytest.mark.parametrize("name", some_of(list(PREPARED), 8, first=4))
@pytest.mark.parametrize("places", some_of([1, 2, 6], 3, 1))
def test_a_kernel_made_of_leaves_keeps_the_clipping_norm(name, places):
    """Records whose places cancel, and records along the leaf itself, of which normalisation takes
    everything away.
    """
    prepare, shapes = PREPARED[name]
    random = np.random.default_rng(places)
    u = {
        leaf: jnp.asarray(random.normal(size=shape), jnp.float32) for leaf, shape in shapes.items()
    }

    def loss(u, record):
        a, g = record
        return jnp.sum((a @ prepare(u)) * g)

    if places > 1:
        planted = [
            planted_places(random, 9, places, 6, 4, 1e9, remainder) for remainder in (0, 1e-6, 1e-3)
        ]
    else:
        planted = []
        for size, other in ((1e-15, 1e-4), (1e-10, 1e15), (1.0, 1.0), (1e9, 1e9), (1e-38, 3e38)):
            a, g = (0.05 * random.normal(size=(9, 1, width)).astype(np.float32) for width in (6, 4))
            a[-1, 0] = size * np.resize(np.asarray(next(iter(u.values())), np.float64).T, 6)
            g[-1, 0] = other * np.eye(4)[0]
            planted.append((a.astype(np.float32), g.astype(np.float32)))
    for clipping in CLIPPINGS:
        total = compiled_total(loss, u, "bookkeeping", clipping)
        for each in planted:
            assert_keeps_clip(total, each, 8, f"{name} {clipping}")
    rules = {
        row.rule for row in clipped_sum(loss, u, planted[0], np.ones(9, bool), C, explain=True).rows
    }
    assert "materialised" not in rules


@functools.cache
def norms_of_scaled():
    def loss(scale, u, record):
        a, g = record
        return jnp.sum((a @ (u * scale)) * g)

    def norms(a, g, scale):
        scaled = functools.partial(loss, scale)
        everyone = np.ones(len(a), bool)
        return clipped_sum(scaled, jnp.zeros(scale.shape), (a, g), everyone, C, "bookkeeping")[1]

    return jax.jit(norms)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_the_norm_of_a_scaled_gradient_is_not_too_small(size):
    """Scales, inputs and gradients of all magnitudes, whose squares overflow or are flushed to
    zero.
    """
    random = np.random.default_rng(0)
    shape, records = (40, 24), 32
    scale = (size * 10.0 ** random.uniform(-4, 0, shape) * (random.random(shape) < 0.3)).astype(
        np.float32
    )
    lengths = 10.0 ** random.uniform(-8, 8, (records, 1, 1))
    a = (random.normal(size=(records, 1, 40)) * lengths).astype(np.float32)
    g = (random.normal(size=(records, 1, 24)) / lengths / size).astype(np.float32)

    product = np.einsum("mtp,mtd->mpd", a.astype(np.float64), g.astype(np.float64)) * scale.astype(
        np.float64
    )
    true = np.sqrt(np.sum(product**2, axis=(1, 2)))
    found = np.asarray(norms_of_scaled()(a, g, scale), np.float64)
    assert np.all(found * (1 + 4e-6) >= true)
    if (
        size == 1
    ):  # at other magnitudes squares overflow, or what may have been flushed to zero is added
        np.testing.assert_allclose(found, true, rtol=1e-5)


# --- half precision -------------------------------------------------------------------------------


def mixed_loss(u, r):
    """Sums, a product with two places and a function, of two halves that cancel."""
    hidden = jnp.stack([r[0], r[2]]) @ u["w"]
    back = jnp.stack([r[1], -r[3]])[:, : hidden.shape[1]]
    smooth = jnp.sum(jnp.sin(u["a"]) * r[0] * r[1]) - jnp.sum(jnp.tanh(u["b"]) * r[2] * r[3])
    return smooth + jnp.sum(hidden * back) + jnp.sum(u["c"] * (r[0] * r[1] - r[2] * r[3]))


HALF = {
    "parameters": lambda dtype, u, r: (jax.tree.map(lambda leaf: leaf.astype(dtype), u), r),
    "loss": lambda dtype, u, r: jax.tree.map(lambda leaf: leaf.astype(dtype), (u, r)),
}


@pytest.mark.parametrize("dtype", some_of([jnp.bfloat16, jnp.float16]))
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "auto"])
@pytest.mark.parametrize("where", some_of(list(HALF)))
def test_half_precision_keeps_the_clipping_norm(where, strategy, dtype):
    """Of parameters, or of the arithmetic inside a loss of float32 parameters. A second pass in it
    gave 566 C.
    """
    random, width = np.random.default_rng(0), 16
    u = {name: jnp.full(width, 0.3) for name in "abc"} | {"w": jnp.full((width, 4), 0.1)}
    if where == "parameters":
        u, _ = HALF[where](dtype, u, ())

    def loss(u, r):
        return (
            mixed_loss(u, r)
            if where == "parameters"
            else mixed_loss(*HALF["loss"](dtype, u, r)).astype(jnp.float32)
        )

    total = compiled_total(loss, u, strategy)
    for turn, size in enumerate((3e4, 100.0)):
        records = cancelling_records(random, 9, width, turn)
        for array in records:
            array[turn] *= size / 3e4
        assert_keeps_clip(total, records, turn, f"{where} {strategy} {size}")


# --- values that are no ordinary numbers ----------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "clipping"),
    some_of([(name, way) for name in STRATEGIES if name != "auto" for way in CLIPPINGS]),
)
def test_overflow_nan_and_subnormal_numbers_keep_the_clipping_norm(strategy, clipping):
    def loss(u, r):
        return jnp.sum((r[0] @ u["w"]) * r[1]) + jnp.sum(u["b"] * r[1]) * r[0][0]

    total = compiled_total(loss, {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}, strategy, clipping)
    random = np.random.default_rng(0)
    for left, right in itertools.product(
        (1e-45, 1e-38, 1e-20, 1.0, 1e19, 3e38, np.inf, np.nan), repeat=2
    ):
        a, g = (random.normal(size=(5, width)).astype(np.float32) for width in (3, 2))
        a[2], g[2] = left, -right
        assert_keeps_clip(total, (a, g), 2, f"{left} {right}")
