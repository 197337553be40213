"""A leaf that is rearranged before a record meets it, or enters a scan: ``_uses`` follows it there,
and says where it cannot.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.conftest import some_of
from tests.layers import (
    FORMED,
    GRAM,
    LINE,
    MASK,
    OUTER,
    ROWS,
    SIZE,
    Case,
    assert_rules,
    compared,
    dense,
    explained,
    halved,
    in_both_widths,
    made,
    score,
    stack,
    tripled,
)
from workbench.clipping import clipped_sum


def unstacked_views(u, x):
    """A table with the layers inside, turned about outside and inside of the scan."""

    def layer(h, kernel):
        return jnp.tanh(h @ kernel.reshape(3, 3).T), None

    return score(lax.scan(layer, x, jnp.moveaxis(u["w"], 1, 0))[0])


def attention_of_slices(u, x):
    """The kernel cut in three before it meets the rows."""
    q, k, v = (x @ kernel for kernel in jnp.split(u["w"], 3, axis=1))
    return score(jax.nn.softmax(q @ k.T) @ v)


ONE_PLACE = "outer product: one place, 6 x 5"
SMALLEST = {
    "transpose": dense(lambda u: u["w"].T, ONE_PLACE, w=(5, 6)),
    "into scan": Case(
        lambda u, x: score(lax.fori_loop(0, 2, lambda _, h: jnp.tanh(h @ u["w"]), x)),
        {"w": (6, 6)},
        (6,),
        {"w": "Gram matrix: 2 places, 6 x 6"},
    ),
    "a part for each turn of a scan": Case(
        stack(lambda parts: parts["w"].T),
        {"w": (4, 3, 3)},
        (3,),
        {"w": "outer product: 4 apart, one place, 3 x 3"},
    ),
}
FOLLOWED = {
    "a part for each turn, with places": Case(
        stack(lambda parts: parts["w"]), {"w": (3, 4, 4)}, (2, 4), {"w": GRAM}
    ),
    "reshape": dense(lambda u: u["w"].reshape(6, 5), ONE_PLACE, w=(30,)),
    "squeeze": dense(lambda u: jnp.squeeze(u["w"], 1), ONE_PLACE, w=(6, 1, 5)),
    "new axis": dense(lambda u: u["w"][:, None], "outer product: one place, 6 x 1", w=(6,)),
    "a chain of views": dense(
        lambda u: jnp.squeeze(u["w"].T.reshape(5, 6, 1), 2).T, ONE_PLACE, w=(6, 5)
    ),
    "into a product of the record": Case(
        lambda u, x: score(x @ (jnp.outer(x, x) @ jnp.tanh(u["w"]).T)),
        {"w": (3, 3)},
        (3,),
        {"w": "Gram matrix: 3 places, 3 x 3 after tanh"},
    ),
    "layers inside a table": Case(unstacked_views, {"w": (3, 4, 3)}, (3,), {"w": OUTER}),
    "attention, slices": Case(attention_of_slices, {"w": (4, 12)}, (2, 4), {"w": GRAM}),
}


def reused(u, x):
    """A kernel prepared outside of a scan that carries it and changes it."""
    kernel = u["w"] * MASK[:3, :3]
    step = lambda carry, _: ((jnp.tanh(carry[0] @ carry[1]), 0.5 * carry[1]), None)  # noqa: E731
    return score(lax.scan(step, (x, kernel), None, length=2)[0][0])


def half_known(u, x):
    """One use of a leaf is linear in what is made of it, the other is not."""
    return score(x @ (u["w"] * MASK[:3, :3])) + jnp.sum((u["w"] * MASK[:3, :3]) ** 2) * x[0]


def powers(u, x):
    """More ways from a leaf to a kernel than are followed."""
    w = u["w"]
    for _ in range(4):
        w = w @ w / 3
    return score(x @ w)


# of a kernel 3 x 3: (loss, reason)
SQUARE = {
    "a penalty besides": (
        lambda u, x: score(x @ u["w"]) + jnp.sum(u["w"] ** 2),
        "used 2 times, enters integer_pow",
    ),
    "used twice by one product": (
        lambda u, x: score(u["w"] @ u["w"]) * x[0],
        "used 2 times, meets itself",
    ),
    "used twice after one view": (
        lambda u, x: (lambda v: score(x @ v) + jnp.sum(v))(u["w"].T),
        "used 2 times, enters reduce_sum",
    ),
    "carried by scan": (
        lambda u, x: score(
            x @ jax.lax.scan(lambda w, _: (0.5 * w, None), u["w"], None, length=2)[0]
        ),
        "is what scan carries",
    ),
    "into cond": (
        lambda u, x: score(jax.lax.cond(x[0] > 0, lambda: x @ u["w"], lambda: 2 * x @ u["w"])),
        "enters cond",
    ),
    "sums along an axis": (lambda u, x: score(x @ jnp.cumsum(u["w"], 0)), "enters cumsum"),
    "entries that are sorted": (lambda u, x: score(x @ jnp.sort(u["w"], 0)), "enters sort"),
    "a constant and slices of one leaf": (
        lambda u, x: score(
            lax.scan(lambda h, row: (jnp.tanh(h @ u["w"]) @ row, None), x, u["w"][None])[0]
        ),
        "used 2 times, enters scan",
    ),
    "a mask that depends on the record": (
        lambda u, x: score(x @ (u["w"] * ((x[:, None] > 0) + 0.5))),
        "enters mul",
    ),
    "a scale that depends on the record": (
        lambda u, x: score(x @ (u["w"] / (1 + x[:, None] ** 2))),
        "enters div",
    ),
    "an addition from the record": (
        lambda u, x: score(jnp.tanh(x @ (u["w"] + x[:, None]))),
        "enters add",
    ),
    "joined with the record": (
        lambda u, x: score(x @ jnp.concatenate([u["w"], x[:, None]], 1)),
        "enters concatenate",
    ),
    "rounded": (
        lambda u, x: score(x @ (jnp.round(u["w"]) * 2 + u["w"])),
        "used 2 times, enters round",
    ),
    "converted to integers": (
        lambda u, x: score(x @ (u["w"] * u["w"].astype(int))),
        "used 2 times, enters convert_element_type",
    ),
    "complex": (lambda u, x: score(jnp.abs(x @ (u["w"] * MASK[:3, :3] * 1j))), "enters mul"),
    "stopped": (
        lambda u, x: score(x @ (u["w"] * lax.stop_gradient(u["w"]))),
        "used 2 times, enters stop_gradient",
    ),
    "a custom derivative between": (
        lambda u, x: score(x @ (tripled(u["w"] * 2) + u["w"])),
        "used 2 times, enters mul",
    ),
    "another custom derivative": (
        lambda u, x: score(x @ (halved(u["w"] * 2) + u["w"])),
        "used 2 times, enters mul",
    ),
    "carried by scan, prepared": (reused, "enters mul"),
    "the other use not linear": (half_known, "used 2 times, enters mul"),
    "too many ways": (powers, "used 8 times, meets itself"),
    "a penalty besides, prepared": (
        lambda u, x: score(x @ (u["w"] * 2)) + jnp.sum(jnp.exp(u["w"])),
        "used 2 times, enters exp",
    ),
    "chosen by the record": (
        lambda u, x: score(lax.cond(x[0] > 0, lambda w: x @ w, lambda w: 2 * (x @ w), u["w"] * 2)),
        "enters mul",
    ),
}
NOT_FOLLOWED = {
    **{
        name: Case(loss, {"w": (3, 3)}, (3,), {"w": f"materialised: {reason}"})
        for name, (loss, reason) in SQUARE.items()
    },
    "a bias": Case(
        lambda u, x: score(x + u["w"]), {"w": (6,)}, (6,), {"w": "materialised: enters add"}
    ),
    "the loss itself": Case(
        lambda u, x: u["w"], {"w": ()}, (6,), {"w": "materialised: is the loss itself"}
    ),
    "meets another leaf": Case(
        lambda u, x: score(x @ jnp.einsum("hpc,hcd->hpd", u["v"], u["w"])[0]),
        {"v": (2, 6, 5), "w": (2, 5, 2)},
        (6,),
        dict.fromkeys("vw", "materialised: meets another leaf"),
    ),
}
MORE = {**FOLLOWED, **NOT_FOLLOWED}
CASES = {**SMALLEST, **MORE}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(
    ("name", "width"), [*in_both_widths(SMALLEST), *some_of(in_both_widths(MORE), 11)]
)
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width)


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("half", some_of([jnp.bfloat16, jnp.float16]))
@pytest.mark.parametrize("rule", some_of([OUTER, GRAM, FORMED], 3, 1))
def test_a_kernel_converted_to_half_precision_has_the_gradient_of_its_factors(half, rule):
    """JAX rounds each record's gradient to half precision; here it is left as it is, longer or
    shorter by that rounding.
    """
    random = np.random.default_rng(0)
    places_ = {OUTER: 1, GRAM: 2, FORMED: 2}[rule]
    a = random.normal(size=(SIZE, places_, 8)).astype(np.float32)
    g = random.normal(size=(SIZE, places_, 5)).astype(np.float32)
    # halves, so that nothing is rounded on the way to the factors
    a, g = (np.asarray(jnp.asarray(array, half), np.float32) for array in (a, g))
    u = {"w": jnp.zeros((8, 5), jnp.float32), "b": jnp.zeros(5, jnp.float32)}

    def loss(u, record):
        a, g = (array.astype(half) for array in record)
        return jnp.sum(((a @ u["w"].astype(half) + u["b"].astype(half)) * g).astype(jnp.float32))

    total, norms = clipped_sum(
        loss, u, (a, g), np.ones(SIZE, bool), 1.0, "bookkeeping", rules={"['w']": rule}
    )
    double = a.astype(np.float64), g.astype(np.float64)
    kernels = np.einsum("mtp,mtd->mpd", *double)
    lengths = np.sqrt(np.sum(kernels**2, axis=(1, 2)) + np.sum(double[1].sum(1) ** 2, axis=1))
    # the bias is summed in half precision
    np.testing.assert_allclose(norms, lengths, rtol=2**-8 if places_ > 1 else 1e-6)
    assert total["w"].dtype == jnp.float32
    expected = np.tensordot(np.minimum(1, 1 / np.asarray(norms, np.float64)), kernels, 1)
    np.testing.assert_allclose(total["w"], expected, atol=5e-6 * np.max(np.abs(expected)))


@pytest.mark.thorough  # compiles for 10 s
def test_half_precision_networks_are_tapped():
    """A look-up, a dense layer and a convolution with float32 parameters, as flax computes with
    dtype=bfloat16.
    """

    def loss(u, tokens):
        x = u["table"].astype(jnp.bfloat16)[tokens]
        x = lax.conv_general_dilated(
            x[None], u["kernel"].astype(jnp.bfloat16), (1,), "SAME", dimension_numbers=LINE
        )[0]
        return score(jnp.tanh(x.reshape(-1) @ u["w"].astype(jnp.bfloat16))).astype(jnp.float32)

    case = Case(loss, {"table": (20, 3), "kernel": (3, 3, 8), "w": (32, 5)}, (4,), {}, 20)
    rules = {row.leaf[2:-2]: row.rule for row in explained(case).rows}
    assert rules == {"table": ROWS, "kernel": GRAM, "w": OUTER}
    u, tokens = made(case, np.float32)
    u = {name: 0.2 * leaf for name, leaf in u.items()}  # far from where tanh is flat
    norms = [
        clipped_sum(loss, u, tokens, np.ones(SIZE, bool), 1.0, strategy)[1]
        for strategy in ("bookkeeping", "vmap")
    ]
    np.testing.assert_allclose(norms[0], norms[1], rtol=2**-7)
