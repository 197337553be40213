"""A kernel that a record meets at two places, a table that it looks up twice, or both:
``kernel_factors`` has norms and sums of a^T g without forming it where that is dear.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_of
from tests.layers import (
    FORMED,
    GRAM,
    MATERIALISED,
    OUTER,
    PLANE,
    ROWS,
    SIZE,
    Case,
    compared,
    conv,
    dense,
    explained,
    rnn,
    score,
)
from workbench.clipping import clipped_sum, kernel_factors


def look_up(u, tokens):
    return score(jnp.tanh(u["w"][tokens]))


def tied(u, tokens):
    return score(jnp.tanh(u["w"][tokens]) @ u["w"].T)


# with the rules that the leaf may have
CASES = {
    "places": dense(lambda u: u["w"], (GRAM, FORMED), 2, w=(6, 5)),
    "look-ups": Case(look_up, {"w": (9, 3)}, (6,), {"w": (ROWS, GRAM)}, 9),
    "both": Case(tied, {"w": (70, 3)}, (4,), {"w": (GRAM,)}, 70),
    "one place": dense(lambda u: u["w"], (OUTER, FORMED), w=(6, 5)),
    "look-ups in few rows": Case(look_up, {"w": (4, 3)}, (6,), {"w": (ROWS, GRAM)}, 4),
    "both, of few rows": Case(tied, {"w": (7, 3)}, (4,), {"w": (GRAM,)}, 7),
    "both, the table turned": Case(
        lambda u, t: score(jnp.tanh(u["w"].T[t]) @ u["w"]), {"w": (3, 70)}, (4,), {"w": (GRAM,)}, 70
    ),
    "two look-ups": Case(
        lambda u, t: score(u["w"][t[:2]]) + score(jnp.tanh(u["w"][t[1:]])),
        {"w": (19, 3)},
        (4,),
        {"w": (GRAM,)},
        19,
    ),
    "two products": Case(
        lambda u, x: score(jnp.tanh(x @ u["w"]) @ u["w"].T),
        {"w": (4, 5)},
        (2, 4),
        {"w": (GRAM, FORMED)},
    ),
    "convolution": conv(PLANE, (3, 3, 2, 4), (7, 6, 2), (GRAM, FORMED), window_strides=(2, 3)),
    "groups": conv(PLANE, (2, 2, 2, 6), (3, 4, 6), (GRAM, FORMED), feature_group_count=3),
    "turns of a scan": Case(
        rnn, {"w": (2, 3), "v": (3, 3), "b": (3,)}, (5, 2), {"v": (GRAM, FORMED)}
    ),
}
DOUBLE = [(name, np.float64) for name in CASES]
# where no product between places is longer for rounding than the tolerance allows
SINGLE = [(name, np.float32) for name in ("both", "both, the table turned", "two look-ups")]


@pytest.mark.parametrize(("name", "width"), some_of([*DOUBLE, *SINGLE], 5))
def test_every_rule_that_a_leaf_may_have_gives_the_sum_of_gradients_clipped_by_hand(name, width):
    case = CASES[name]
    ((leaf, possible),) = case.rules.items()
    for rule in (*possible, MATERIALISED):
        rules = {f"['{leaf}']": rule}
        assert rule in [row.rule for row in explained(case, rules=rules).rows if row.leaf in rules]
        compared(case, width, rules=rules)


# --- norms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 1025, 50_000, 688_884])
def test_long_gradients_are_no_longer_than_their_computed_norm_says(size):
    """One large entry and many that it swallows where squares are added up one after the other: 1 %
    in the largest case.
    """
    entries = np.full(size, 2.0**-12.5, np.float32)
    for first in (0, size - 1):
        gradient = entries.copy()
        gradient[first] = 1.0
        squares = float(jax.jit(kernel_factors.squares_of)(jnp.asarray(gradient[None]))[0])
        true = np.linalg.norm(gradient.astype(np.float64))
        bound = kernel_factors.bound_of_formed(size, 1).norm
        assert np.sqrt(squares) >= true * (1 - bound)
        assert bound <= 1e-4
        assert (
            np.linalg.norm(gradient.astype(np.float64) * min(1, 1 / np.sqrt(squares))) <= 1 + bound
        )


@pytest.mark.parametrize("width", [3, 2000, 30_000])
def test_norms_of_outer_products_are_within_their_bound(width):
    random = np.random.default_rng(1)
    a, g = (random.exponential(size=(2, 1, 1, n)).astype(np.float32) ** 3 for n in (width, 7))
    squares = np.asarray(
        jax.jit(
            lambda a, g: kernel_factors.squared_norm(
                [kernel_factors.Factors(a, g)], width, 7, by_rows=False
            )
        )(a, g)
    )
    true = np.linalg.norm(a.astype(np.float64), axis=-1) * np.linalg.norm(
        g.astype(np.float64), axis=-1
    )
    bound = kernel_factors.bound_of_product(2, 1, width, 7, [1], [], by_rows=False).norm
    assert np.all(np.sqrt(squares) >= true[:, 0, 0] * (1 - bound))
    assert bound <= 1.3e-4


@pytest.mark.parametrize("places", some_of([2, 16, 100], 2, first=2))
def test_norms_from_gram_matrices_are_never_too_small(places):
    """Also where places cancel but for rounding."""
    random = np.random.default_rng(2)
    a = random.normal(size=(3, 1, places, 50)).astype(np.float32)
    g = random.normal(size=(3, 1, places, 20)).astype(np.float32)
    g[1] = np.where(np.arange(places) % 2, 1, -1)[:, None] * np.float32(1e3)
    a[1] = 1 + 1e-7 * a[1]
    norm = jax.jit(
        lambda a, g: kernel_factors.squared_norm(
            [kernel_factors.Factors(a, g)], 50, 20, by_rows=False
        )
    )
    true = np.linalg.norm(
        np.einsum("mstp,mstd->mspd", a.astype(np.float64), g.astype(np.float64)).reshape(3, -1),
        axis=1,
    )
    found = np.sqrt(np.asarray(norm(a, g), np.float64))
    assert np.all(found >= true * (1 - 1e-6))
    # random places: what is added for rounding is not much
    assert np.all(found[::2] <= true[::2] * (1 + 1e-4))


@pytest.mark.parametrize(
    ("places", "p", "d", "lookups"),
    some_of(
        [
            (16, 700, 3, False),
            (16, 700, 3, True),
            (2, 4096, 512, True),
            (2, 4096, 512, False),
            (3, 1, 300, True),
            (3, 1, 300, False),
        ]
    ),
)
def test_norms_from_gram_matrices_bear_lengths_of_all_magnitudes(places, p, d, lookups):
    """Each second place takes away nearly all of what the one before it adds; lookups of the same
    table join them.
    """
    random = np.random.default_rng(3)
    a, g = (random.uniform(0.5, 1, (8, 1, places, width)).astype(np.float32) for width in (p, d))
    a, g = (
        array * 10 ** random.uniform(-4, 4, (8, 1, places, 1)).astype(np.float32)
        for array in (a, g)
    )
    pairs = places // 2
    a[:, :, 1 : 2 * pairs : 2] = a[:, :, : 2 * pairs : 2]
    g[:, :, 1 : 2 * pairs : 2] = -g[:, :, : 2 * pairs : 2] * np.float32(1 - 1e-3)
    true = np.einsum("mstp,mstd->mspd", a.astype(np.float64), g.astype(np.float64))
    blocks = [(a, g)]
    if lookups:
        blocks.append((random.integers(0, min(p, 3), (8, 1, places), np.int32), g[:, :, ::-1]))
        records = np.arange(8)[:, None]
        np.add.at(true, (records, 0, blocks[1][0][:, 0]), blocks[1][1][:, 0].astype(np.float64))
    norm = jax.jit(
        lambda blocks: kernel_factors.squared_norm(
            [kernel_factors.Factors(*each) for each in blocks], p, d, by_rows=False
        )
    )
    found = np.sqrt(np.asarray(norm(blocks), np.float64))
    assert np.all(found >= np.linalg.norm(true.reshape(8, -1), axis=1) * (1 - 1e-6))


@pytest.mark.parametrize("rule", some_of([ROWS, GRAM]))
@pytest.mark.parametrize(
    "vocabulary", some_of([40, 40_000])
)  # few rows are merged by a table, many by sorting
def test_what_cancels_in_a_row_is_not_clipped_too_little(rule, vocabulary):
    """One token, many times, with gradients ten thousand times as long as their sum: the norm may
    only come out larger.
    """
    random = np.random.default_rng(0)
    terms = random.normal(size=(SIZE, 256, 3)) * 1e4
    terms[:, -1] -= terms.sum(1)  # what is left is rounding, and a little more
    terms[:, 0, 0] += 1
    terms = terms.astype(np.float32)
    terms[0], terms[0, 0] = (
        2.0**-24,
        1.0,
    )  # added up one after the other, all but the first are lost
    exact = np.linalg.norm(terms.astype(np.float64).sum(1), axis=1)

    def loss(u, record):
        tokens, direction = record
        return jnp.vdot(u["w"][tokens], direction)

    records = (np.full((SIZE, 256), 7, np.int32), terms)
    u = {"w": jnp.zeros((vocabulary, 3))}
    summed = functools.partial(clipped_sum, loss, strategy="bookkeeping", rules={"['w']": rule})
    _, norms = jax.jit(summed)(u, records, np.ones(SIZE, bool), 0.5)
    assert np.all(norms >= exact * (1 - 1e-6))


def test_a_scale_that_is_not_finite_leaves_zeros():
    """As gradients that are not finite do; half precision overflows to it."""

    def loss(u, x):
        return score(jnp.tanh(x @ (u["w"] * jnp.sqrt(u["v"]))))

    # the derivative of the root is infinite at zero
    u = {"w": jnp.ones((6, 5)), "v": jnp.zeros((6, 5)).at[0].set(1)}
    x = np.random.default_rng(0).normal(size=(SIZE, 6)).astype(np.float32)
    for strategy in ("bookkeeping", "vmap"):
        summed = functools.partial(clipped_sum, loss, strategy=strategy)
        total, norms = jax.jit(summed)(u, x, np.ones(SIZE, bool), 1.0)
        assert not np.isfinite(norms).any()
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(total))
