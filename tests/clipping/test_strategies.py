"""The strategies of ``clipped_sum`` against each other: over the zoo's models and over random small
networks.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import zoo
from tests.conftest import examples, quick_jit, some_of
from workbench.clipping import clipped_sum
from workbench.clipping.clipped_sums import STRATEGIES

KEY = jax.random.key(2)
SIZE = zoo.NUM_RECORDS
EVERYONE = np.ones(SIZE, bool)

# Cases that differ in their guides alone have the same loss of a record. Networks of all libraries
# are tapped alike (test_bookkeeping), so two of them stand for all; and of models that differ
# little, one is compiled in double precision too.
LOSSES = [
    name
    for name in zoo.ZOO
    if not name.startswith(("logistic Auto", "grouped logistic without", "vae nnx", "vae numpyro"))
]
IN_DOUBLE = [name for name in LOSSES if name not in ("hierarchical", "scale", "vae flax_module")]
EVERY_CASE = pytest.mark.parametrize("name", some_of(LOSSES, 6))


# "auto" is one of the others and has a test of its own
BASIC = tuple(strategy for strategy in STRATEGIES if strategy != "auto")


def all_strategies(loss, u, records, mask, clip):
    """{strategy: (sum, norms)}."""
    return {strategy: clipped_sum(loss, u, records, mask, clip, strategy) for strategy in BASIC}


@functools.cache
def problem(name, width):
    """(compiled strategies, u, records) of a case of the zoo; records come with keys for their base
    noise.
    """
    with jax.enable_x64(width is np.float64):
        seen = (
            zoo.split_case(name)
            if width is np.float32
            else zoo.split_case_in_double_precision(name)
        )
        u, _ = jax.jit(seen.release_point)(seen.initial, KEY)
        keys = jax.random.split(KEY, SIZE)
    strategies = quick_jit(
        functools.partial(all_strategies, lambda u, drawn: seen.record_loss(u, *drawn))
    )
    return strategies, u, (zoo.ZOO[name].records(width), keys)


def solved(name, width, clip, mask=EVERYONE, records=None):
    strategies, u, usual = problem(name, width)
    with jax.enable_x64(width is np.float64):
        return jax.tree.map(
            np.asarray,
            strategies(u, usual if records is None else records, mask, jnp.asarray(clip, width)),
        )


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64)


def assert_agree(results, mask, tolerance, of="vmap"):
    """Sums to ``tolerance`` of the largest entry; norms of counted records to ``tolerance`` each,
    or of the mean one.
    """
    expected, expected_norms = results[of]
    assert np.any(flat(expected) != 0)
    largest = np.max(np.abs(flat(expected)))
    for strategy, (total, norms) in results.items():
        assert jax.tree.structure(total) == jax.tree.structure(expected)
        np.testing.assert_allclose(
            flat(total), flat(expected), rtol=0, atol=tolerance * largest, err_msg=strategy
        )
        # a norm of zero may come out a little larger
        smallest = tolerance * np.mean(expected_norms[mask])
        np.testing.assert_allclose(
            norms[mask], expected_norms[mask], tolerance, smallest, err_msg=strategy
        )


def clip_that_binds(name, width):
    """Half of the shortest norm that is not zero: it binds for every record that says anything."""
    _, norms = solved(name, width, 1e6)["vmap"]
    return 0.5 * float(np.min(norms[norms > 0]))


TOLERANCE = {np.float32: 1e-5, np.float64: 1e-10}


DOUBLE = some_of([(name, np.float64) for name in IN_DOUBLE], 8)
SINGLE = some_of([(name, np.float32) for name in LOSSES], 16, first=1)


@pytest.mark.parametrize(("name", "width"), [*SINGLE, *DOUBLE])
def test_strategies_agree_on_every_model(name, width):
    """With clipping that binds for all, for some and for none, and with padding."""
    _, norms = solved(name, width, 1e6)["vmap"]
    some = np.array([True, False, True, True, False, True])
    for clip in (clip_that_binds(name, width), float(np.median(norms)), 1e6):
        for mask in (EVERYONE, some):
            results = solved(name, width, clip, mask)
            assert all(leaf.dtype == width for leaf in jax.tree.leaves(results))
            assert_agree(results, mask, TOLERANCE[width])


@pytest.mark.parametrize("name", some_of(IN_DOUBLE, 8))
def test_the_sum_is_that_of_gradients_clipped_by_hand(name):
    """An oracle that shares no code with the strategies: each record's gradient, clipped
    in NumPy.
    """
    _, u, (records, keys) = problem(name, np.float64)
    clip = clip_that_binds(name, np.float64)
    with jax.enable_x64(True):
        seen = zoo.split_case_in_double_precision(name)
        gradient = quick_jit(jax.grad(seen.record_loss))
        expected = 0.0
        for place in range(SIZE):
            one = flat(gradient(u, tuple(array[place] for array in records), keys[place]))
            expected = expected + one * min(1.0, clip / max(np.linalg.norm(one), 1e-300))
    # clipped_sum shrinks every contribution by four millionths, against rounding in single
    # precision
    for strategy, (total, _) in solved(name, np.float64, clip).items():
        np.testing.assert_allclose(
            flat(total), expected, rtol=0, atol=1e-5 * np.max(np.abs(expected)), err_msg=strategy
        )


@pytest.mark.parametrize("bad", some_of([np.nan, np.inf]))
@EVERY_CASE
def test_a_record_that_is_not_finite_contributes_zero_and_leaves_the_others_alone(name, bad):
    _, _, (records, keys) = problem(name, np.float32)
    if not any(np.issubdtype(array.dtype, np.floating) for array in records):
        pytest.skip("whole numbers are finite")
    place = 2
    spoilt = tuple(array.copy() for array in records)
    for array in spoilt:
        if np.issubdtype(array.dtype, np.floating):
            array[place] = bad
    clip = clip_that_binds(name, np.float32)
    without = np.arange(SIZE) != place
    expected = solved(name, np.float32, clip, without)
    results = solved(name, np.float32, clip, records=(spoilt, keys))
    for strategy in BASIC:
        (total, norms), (expected_total, expected_norms) = results[strategy], expected[strategy]
        assert not np.isfinite(norms[place]), strategy
        np.testing.assert_allclose(
            norms[without], expected_norms[without], rtol=1e-6, err_msg=strategy
        )
        largest = np.max(np.abs(flat(expected_total)))
        np.testing.assert_allclose(
            flat(total), flat(expected_total), rtol=0, atol=1e-6 * largest, err_msg=strategy
        )


@EVERY_CASE
def test_no_record_moves_the_sum_by_more_than_the_clipping_norm(name):
    """Alone, no tolerance: the noise is calibrated to C. Beside others, what float32 loses in
    adding them up.
    """
    clip = clip_that_binds(name, np.float32)
    everyone = solved(name, np.float32, clip)
    rounding = 4 * SIZE * clip * np.finfo(np.float32).eps
    for place in range(SIZE):
        alone = solved(name, np.float32, clip, np.arange(SIZE) == place)
        others = solved(name, np.float32, clip, np.arange(SIZE) != place)
        for strategy in BASIC:
            assert np.linalg.norm(flat(alone[strategy][0])) <= clip, strategy
            moved = flat(everyone[strategy][0]) - flat(others[strategy][0])
            assert np.linalg.norm(moved) <= clip + rounding, strategy


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numpy_records_and_a_clip_known_beforehand_work_without_jit(strategy):
    """As a user calls it in a notebook."""
    random = np.random.default_rng(0)
    records = (
        random.normal(size=(SIZE, 3)).astype(np.float32),
        random.normal(size=SIZE).astype(np.float32),
    )
    weights = random.normal(size=3).astype(np.float32)

    def loss(u, record):
        x, y = record
        return jnp.square(x @ u - y) / 2

    total, norms = clipped_sum(loss, jnp.asarray(weights), records, EVERYONE, 0.5, strategy)
    gradients = (records[0] @ weights - records[1])[:, None] * records[0]
    lengths = np.linalg.norm(gradients, axis=1)
    np.testing.assert_allclose(norms, lengths, rtol=1e-5)
    np.testing.assert_allclose(total, np.minimum(1, 0.5 / lengths) @ gradients, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "chosen"), [("grouped logistic", "bookkeeping"), ("gaussian mixture", "vmap")]
)
@pytest.mark.thorough
def test_auto_is_book_keeping_where_there_is_a_tap(name, chosen):
    seen, (_, u, (records, _)) = zoo.split_case(name), problem(name, np.float32)
    clip = clip_that_binds(name, np.float32)

    @quick_jit
    def auto(u, records):
        return clipped_sum(
            lambda u, record: seen.record_loss(u, record, KEY), u, records, EVERYONE, clip
        )

    total, norms = auto(u, records)
    assert_agree(
        {"vmap": solved(name, np.float32, clip)["vmap"], "auto": (total, np.asarray(norms))},
        EVERYONE,
        1e-5,
    )
    table = clipped_sum(
        lambda u, record: seen.record_loss(u, record, KEY), u, records, EVERYONE, clip, explain=True
    )
    assert table.strategy == chosen


# --- random small networks ------------------------------------------------------------------------


@jax.custom_jvp
def soft_sign(x):
    return x / (1 + jnp.abs(x))


@soft_sign.defjvp
def _(primals, tangents):
    """Deliberately not its derivative."""
    return soft_sign(primals[0]), 0.7 * tangents[0]


@jax.custom_vjp
def rounded(x):
    return jnp.round(x * 8) / 8


# straight through, inside [-1, 1]
rounded.defvjp(lambda x: (rounded(x), x), lambda x, g: (g * (jnp.abs(x) < 1),))


@jax.custom_vjp
def quantised(kernel):
    return jnp.round(kernel * 16) / 16


quantised.defvjp(lambda kernel: (quantised(kernel), None), lambda _, g: (0.5 * g,))

ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,  # a custom_jvp and a nested jit
    "custom_jvp": soft_sign,
    "custom_vjp": rounded,
}

# how a kernel is kept in u, and how it becomes inputs x outputs
KEPT = {
    "plain": (lambda p, d: (p, d), lambda kernel, p, d: kernel),
    "transposed": (lambda p, d: (d, p), lambda kernel, p, d: kernel.T),
    "flat": (lambda p, d: (p * d,), lambda kernel, p, d: kernel.reshape(p, d)),
    "leading one": (lambda p, d: (1, p, d), lambda kernel, p, d: kernel[0]),
    "flat and transposed": (lambda p, d: (d * p,), lambda kernel, p, d: kernel.reshape(d, p).T),
    "outputs in two axes": (lambda p, d: (p, 1, d), lambda kernel, p, d: jnp.squeeze(kernel, 1)),
    "custom_vjp": (lambda p, d: (p, d), lambda kernel, p, d: quantised(kernel)),
}

CALLS = {
    "plain": lambda layer: layer,
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "jit in remat": lambda f: jax.checkpoint(jax.jit(f)),
}

layers = st.fixed_dictionaries(
    {
        "outputs": st.sampled_from([2, 3, 5]),
        "activation": st.sampled_from(sorted(ACTIVATIONS)),
        "kept": st.sampled_from(sorted(KEPT)),
        "call": st.sampled_from(sorted(CALLS)),
        "bias": st.booleans(),
        # the layer's kernel is used once more on its own output, and so has to be square
        "again": st.booleans(),
    }
)
networks = st.fixed_dictionaries(
    {
        "layers": st.lists(layers, min_size=1, max_size=3),
        "input": st.sampled_from(["vector", "leading one", "positions", "look-up", "look-ups"]),
        # the outputs are compared with rows of the embedding or with what the first kernel says
        "tied": st.booleans(),
        "seed": st.integers(0, 9),
    }
)

INPUTS, POSITIONS, VOCABULARY = 3, 2, 4


def network_loss(network, u, record):
    x, tokens = record
    if network["input"] == "look-up":
        x = u["table"][tokens[0]]
    elif network["input"] == "look-ups":
        x = u["table"][tokens]
    elif network["input"] == "leading one":
        x = x[:1]
    elif network["input"] == "vector":
        x = x[0]
    for number, layer in enumerate(network["layers"]):
        x = _layer(layer, u[f"kernel{number}"], u.get(f"bias{number}"), x)
    if network["tied"]:
        first = "table" if "table" in u else "kernel0"
        return jnp.sum(jnp.square(x)) + jnp.sum(jnp.sin(u[first])) * jnp.mean(x)
    return jnp.sum(jnp.square(x - 0.3)) + jnp.sum(jnp.sin(x))


def _layer(layer, kernel, bias, x):
    inputs, outputs = x.shape[-1], x.shape[-1] if layer["again"] else layer["outputs"]

    def apply(kernel, x):
        x = x @ KEPT[layer["kept"]][1](kernel, inputs, outputs)
        return ACTIVATIONS[layer["activation"]](x if bias is None else x + bias)

    call = CALLS[layer["call"]](apply)
    return call(kernel, call(kernel, x)) if layer["again"] else call(kernel, x)


def network_parameters(network, random):
    u, inputs = {}, INPUTS
    if network["input"].startswith("look-up"):
        u["table"] = random.normal(size=(VOCABULARY, INPUTS))
    for number, layer in enumerate(network["layers"]):
        outputs = inputs if layer["again"] else layer["outputs"]
        u[f"kernel{number}"] = 0.7 * random.normal(size=KEPT[layer["kept"]][0](inputs, outputs))
        if layer["bias"]:
            u[f"bias{number}"] = 0.3 * random.normal(size=outputs)
        inputs = outputs
    return u


@pytest.mark.thorough
@given(
    networks, st.lists(st.booleans(), min_size=4, max_size=4), st.sampled_from([0.01, 1.0, 100.0])
)
@settings(examples(40), derandomize=True)
def test_book_keeping_agrees_with_materialised_gradients_on_random_networks(network, mask, clip):
    """In double precision, where agreement to 1e-10 leaves no room for a wrong term."""
    random = np.random.default_rng(network["seed"])
    mask = np.array(mask)
    mask[1] = True
    with jax.enable_x64(True):
        u = network_parameters(network, random)
        records = (
            random.normal(size=(4, POSITIONS, INPUTS)),
            random.integers(0, VOCABULARY, (4, POSITIONS)),
        )

        @quick_jit
        def solve(u, records, mask):
            loss = functools.partial(network_loss, network)
            return {
                name: clipped_sum(loss, u, records, mask, clip, name)
                for name in ("bookkeeping", "vmap")
            }

        results = jax.tree.map(np.asarray, solve(u, records, mask))
    _, norms = results["vmap"]
    assert np.all(np.isfinite(norms))
    if np.any(norms[mask] > 0):  # all units of a layer may be off
        assert_agree(results, mask, 1e-10)
