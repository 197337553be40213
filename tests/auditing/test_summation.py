"""One record among thousands moves a sum in floating point by more than C, and a sum on a grid by
what is paid for.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.auditing import planted, summation
from tests.auditing.summation import CLIP, SIGMA, worst_move
from tests.conftest import some_of
from workbench.clipping import whole_sums
from workbench.inference.state import Hyperparameters
from workbench.inference.strata import Stratum, clipped_sum_in_parts
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import Minibatch


@pytest.mark.parametrize("bug", ["float_sums", "float_noise"])
def test_sums_in_floating_point_are_caught(bug):
    assert worst_move(bug=bug, microbatch_size=summation.SIZE).ratio > 1.5


@pytest.mark.thorough
@pytest.mark.parametrize("size", [8, summation.SIZE])
def test_sums_on_the_grid_move_by_what_is_paid_for(size):
    """Some records at once and all at once."""
    assert 0 < worst_move(microbatch_size=size).ratio <= 1


SETTINGS = [
    ({"strategy": "loop"},),
    ({"strategy": "vmap"},),
    ({"strategy": "bookkeeping"},),
    ({"microbatch_size": 64},),
    ({"strategy": "loop", "microbatch_size": 100},),
    ({"clipping": "automatic"},),
    ({"clipping": "per_leaf"},),
]


@pytest.mark.parametrize("options", some_of(SETTINGS, len(SETTINGS)))
def test_what_is_paid_for_is_nearly_reached_and_not_exceeded(options):
    found = worst_move(**options)
    assert 0.999 < found.ratio <= 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options", [*SETTINGS[:2], ({"clipping": "automatic", "strategy": "loop"},)]
)
def test_the_larger_the_minibatch_the_further_floats_go(options):
    assert worst_move(2**14, "float_sums", **options[0]).ratio > 3


@pytest.mark.thorough
def test_parts_of_a_minibatch_in_floating_point():
    assert worst_move(2**16, bug="float_sums", microbatch_size=8).ratio > 5
    assert worst_move(2**16, microbatch_size=8).ratio <= 1


def test_made_records_have_the_gradients_that_are_wanted():
    """Their clipped gradients, computed by hand."""
    lengths = np.array([0.3, -0.2, 1e-9])
    for clipping in ("flat", "automatic"):
        gradients = -planted.rows_for(lengths, 4, CLIP, clipping).astype(np.float64)
        norms = np.linalg.norm(gradients, axis=1)
        factors = CLIP / (norms + 0.01) if clipping == "automatic" else np.minimum(1, CLIP / norms)
        clipped = gradients * factors[:, None]
        np.testing.assert_allclose(clipped, np.repeat(lengths[:, None] / 2, 4, axis=1), rtol=1e-6)


def shifting(size, width, spacing):
    """Lengths such that each block's sum is rounded to another number if its first record is the
    next block's.
    """
    per_block = whole_sums.records_in_block(size)
    starts = np.arange(0, size - 1, per_block)
    step = 0.02
    ramp = step * (np.arange(len(starts)) % 20)
    found = np.zeros(size)
    found[starts], found[starts + 1] = ramp, 0.5 - step / 2 - ramp
    found *= spacing * np.sqrt(width)
    found[0] -= CLIP * 0.999
    return found


@pytest.mark.thorough
def test_a_row_that_closes_the_gap_it_leaves_moves_rows_that_were_made_for_that():
    """The promise is about an empty place, for the number of records is public; docs/sharp_edges.md
    says what this shows.

    Where later rows move up, other blocks are rounded. These were constructed so that all blocks
    are rounded down before and up after; where rows are drawn at random the roundings cancel.
    """
    size, width = 2**14, 300
    blank, key = np.zeros((size, width), np.float32), key_from_seed(1)
    step, seen = planted.step_of((blank,), key, GaussianMechanism(CLIP, SIGMA))
    hyper = Hyperparameters.of(seen)
    start = step.init(key, hyper, step.model.initial)
    draws = step.draw(start.key, start.step, hyper)
    silent = draws.noise._replace(units=jnp.zeros_like(draws.noise.units))

    @jax.jit
    def total(rows, count):
        minibatch = Minibatch(jnp.arange(size, dtype=jnp.int32), jnp.arange(size) < count)
        seen.begin(minibatch)
        step.step(start, (rows,), draws._replace(minibatch=minibatch, noise=silent), hyper)
        return seen.total()

    spacing = float(total(blank, size)[1])
    allowed = 2.0 ** (11 + int(draws.noise.level)) / SIGMA
    drawn = np.random.default_rng(0).normal(0, CLIP / 3, size)
    drawn[0] = CLIP
    for values, least, most in ((shifting(size, width, spacing), 1.1, 2.0), (drawn, 0.9, 1.0)):
        rows = planted.rows_for(values, width, CLIP, "flat")
        closed = np.asarray(total(np.roll(rows, -1, axis=0), size - 1)[0], np.int64)
        move = np.linalg.norm(np.asarray(total(rows, size)[0], np.int64) - closed)
        assert least < move / allowed < most
        kept = rows.copy()
        kept[0] = 0  # leaves its place empty
        assert (
            np.linalg.norm(
                np.asarray(total(rows, size)[0], np.int64) - np.asarray(total(kept, size)[0])
            )
            <= allowed
        )


def test_a_table_that_is_looked_up_and_multiplied_keeps_what_is_paid_for():
    """What is looked up is rounded record by record and what is multiplied block by block, both in
    the same entries.
    """
    size, width, clip = 16, 1000, 1.0
    mechanism = GaussianMechanism(clip, SIGMA)
    level = mechanism.level(2**18)
    spacing_for = functools.partial(mechanism.spacing, jnp.float32(SIGMA), jnp.float32(clip), level)

    def loss(table, record):
        rows, looked_up, left, right = record
        return jnp.sum(table[rows] * looked_up) + left @ (table @ right)

    @jax.jit
    def total(records, mask):
        chosen = lambda places: jax.tree.map(lambda array: array[places], records)  # noqa: E731
        return clipped_sum_in_parts(
            loss,
            jnp.zeros((2, width)),
            [Stratum(chosen, mask, size)],
            clip,
            "bookkeeping",
            "flat",
            spacing_for=spacing_for,
        )[0]

    records = [np.zeros((size, *shape), np.float32) for shape in ((2, width), (2,), (width,))]
    records = [np.zeros((size, 2), np.int32), *records]
    everyone = np.ones(size, bool)
    spacing = float(total(records, everyone).spacing)
    _, looked_up, left, right = records
    looked_up[0] = 31.503 * spacing  # as long as C together, and rounded up twice
    # without the first record rounded down
    left[:2], right[0], right[1] = (1, 0.015 * spacing, 0.4925 * spacing)
    there, gone = (
        np.asarray(total(records, mask).units, np.int64) for mask in (everyone, np.arange(size) > 0)
    )
    allowed = 2.0 ** (11 + int(level)) / SIGMA
    move = np.linalg.norm(there - gone)
    print(f"{move:.1f} spacings, of {allowed:.0f} that are allowed: {move / allowed:.4f}")
    assert move <= allowed
