"""A record's loss that may see other records, or show its own, is refused while it is traced."""

import equinox.internal
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.custom_batching import custom_vmap, sequential_vmap
from numpyro.optim import Adam

from tests import zoo
from workbench._validate import ArgumentError
from workbench.clipping import PrivacyModelError, clipped_sum
from workbench.clipping.separation import has_axis_of_records, require_separate
from workbench.inference import DPVI
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler

SIZE, WIDTH = 7, 3
X = np.random.default_rng(0).normal(size=(SIZE, WIDTH)).astype(np.float32)
EVERYONE = jnp.asarray(X)
ROW = jax.ShapeDtypeStruct((WIDTH,), jnp.float32)


def total(loss, **options):
    """Traced alone, which is when models are read."""
    return jax.eval_shape(
        lambda u: clipped_sum(loss, u, X, np.ones(SIZE, bool), 1.0, **options), jnp.zeros(WIDTH)
    )


@custom_vmap
def summed(x):
    """The identity for one record, and for many the sum of them all."""
    return x


@summed.def_vmap
def _(size, in_batched, x):
    return jnp.broadcast_to(x.sum(0), x.shape), True


@jax.custom_vjp
def in_backward(u, x):
    return jnp.vdot(u, x)


in_backward.defvjp(
    lambda u, x: (jnp.vdot(u, x), x), lambda x, g: (g * summed(x), jnp.zeros_like(x))
)


@jax.custom_jvp
def in_derivative(u, x):
    return jnp.vdot(u, x)


@in_derivative.defjvp
def _(primals, tangents):
    return in_derivative(*primals), jnp.vdot(tangents[0], summed(primals[1]))


def called_back(u, x):
    """What moved the sum by 97 C: NumPy sees the whole minibatch."""
    mixed = jax.pure_callback(
        lambda x: np.broadcast_to(x.sum(0), x.shape), ROW, x, vmap_method="broadcast_all"
    )
    return jnp.vdot(u, mixed)


def printed(u, x):
    jax.debug.print("{}", x)
    return jnp.vdot(u, x)


def watched(u, x):
    jax.debug.callback(lambda x: None, x)
    return jnp.vdot(u, x)


def turns(x):
    return jnp.int32(jnp.abs(x[0]))


MIXING = {
    "pure_callback": called_back,
    "debug print": printed,
    "debug callback": watched,
    "io_callback": lambda u, x: jnp.vdot(u, jax.experimental.io_callback(lambda x: x, ROW, x)),
    "custom_vmap": lambda u, x: jnp.vdot(u, summed(x)),
    "betainc": lambda u, x: (
        jnp.sum(u) * jax.scipy.special.betainc(2.0, 3.0, jax.nn.sigmoid(jnp.sum(u * x)))
    ),
    "sequential_vmap": lambda u, x: jnp.vdot(u, sequential_vmap(jnp.sin)(x)),
    "foreign code": lambda u, x: jnp.vdot(
        u, jax.ffi.ffi_call("stranger", ROW, vmap_method="broadcast_all")(x)
    ),
    "in scan": lambda u, x: jnp.vdot(
        u, jax.lax.scan(lambda carry, _: (summed(carry), None), x, None, length=2)[0]
    ),
    "in cond": lambda u, x: jnp.vdot(u, jax.lax.cond(x[0] > 0, summed, lambda x: x, x)),
    "in while": lambda u, x: jnp.vdot(u, jax.lax.fori_loop(0, turns(x), lambda _, x: summed(x), x)),
    "in remat and jit": jax.checkpoint(jax.jit(lambda u, x: jnp.vdot(u, summed(x)))),
    "in a derivative of its own": in_derivative,
    "in the backward pass": in_backward,
    "any of all": lambda u, x: jnp.vdot(u, jnp.where(equinox.internal.unvmap_any(x[0] > 1), -x, x)),
    "largest of all": lambda u, x: jnp.vdot(u, x * equinox.internal.unvmap_max(turns(x))),
    "keys of type rbg": lambda u, x: jnp.vdot(
        u, jax.random.normal(jax.random.key(turns(x), impl="rbg"), (WIDTH,))
    ),
}


@pytest.mark.parametrize("name", MIXING)
def test_what_could_see_the_whole_minibatch_is_refused(name):
    with pytest.raises(PrivacyModelError, match=r"the model, guide or loss .*\(operation "):
        total(MIXING[name])


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this JAX has none")
@pytest.mark.parametrize("strategy", ["vmap", "loop"])
def test_a_loss_that_writes_down_what_it_saw_is_refused(strategy):
    memory = jax.new_ref(jnp.zeros(WIDTH))

    def loss(u, x):
        others = memory[...]
        memory[...] = x
        return jnp.vdot(u, x + others)

    with pytest.raises(PrivacyModelError, match="writes to an array outside itself"):
        total(loss, strategy=strategy)


CLOSED_OVER = {
    "as it is": lambda u, x: jnp.vdot(u, x - jnp.mean(X, 0)),
    "transposed": lambda u, x: jnp.vdot(u, EVERYONE.T @ jnp.ones(SIZE)),
    "in jit": lambda u, x: jax.jit(lambda u: jnp.vdot(u, x - EVERYONE.mean(0)))(u),
    "in scan": lambda u, x: jax.lax.scan(
        lambda sum_, _: (sum_ + jnp.vdot(u, EVERYONE[0]), None), 0.0, None, length=2
    )[0],
    "in cond": lambda u, x: jax.lax.cond(
        x[0] > 0, lambda: jnp.vdot(u, EVERYONE[0]), lambda: jnp.vdot(u, x)
    ),
}


@pytest.mark.parametrize("name", CLOSED_OVER)
def test_all_records_closed_over_are_refused(name):
    with pytest.raises(
        PrivacyModelError, match=rf"axis of {SIZE}, which is the number of records.*by position"
    ):
        total(CLOSED_OVER[name])


@pytest.mark.parametrize(
    "copy", [EVERYONE.ravel(), EVERYONE.reshape(-1, 1)], ids=["flat", "column"]
)
def test_a_copy_with_all_entries_of_the_records_is_refused(copy):
    with pytest.raises(
        PrivacyModelError, match=rf"as many entries as {SIZE} rows, which is the number of records"
    ):
        total(lambda u, x: jnp.vdot(u, x) + copy.sum() * u.sum())
    assert not has_axis_of_records((SIZE * WIDTH - 1,), SIZE, {WIDTH})
    assert not has_axis_of_records((1, SIZE * WIDTH), SIZE, {WIDTH})


def test_records_that_a_jitted_caller_closes_over_are_refused():
    def caller(records):
        return clipped_sum(
            lambda u, x: jnp.vdot(u, x - records.mean(0)),
            jnp.zeros(WIDTH),
            records,
            np.ones(SIZE),
            1.0,
        )

    with pytest.raises(PrivacyModelError, match="number of records"):
        jax.jit(caller)(EVERYONE)


def test_there_is_a_way_for_public_arrays_of_that_length():
    public = EVERYONE[None]
    total(lambda u, x: jnp.vdot(u, x - public[0].mean(0)))
    assert [
        has_axis_of_records(shape, SIZE)
        for shape in [(SIZE,), (WIDTH, SIZE), (1, SIZE), (), (WIDTH,)]
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not has_axis_of_records((1,), 1)


def test_of_a_minibatch_the_number_of_all_records_may_be_named():
    def loss(u, x):
        return jnp.vdot(u, x - EVERYONE.mean(0))

    with pytest.raises(PrivacyModelError, match="number of records"):
        clipped_sum(loss, jnp.zeros(WIDTH), X[:2], np.ones(2, bool), 1.0, num_records=SIZE)
    total(loss, num_records=100)


def test_what_networks_are_made_of_is_accepted():
    """Functions with derivatives of their own, linear algebra, loops and ordinary keys."""

    def loss(u, x):
        drawn = jax.random.gamma(jax.random.key(turns(x)), 2.0 + jnp.exp(u))
        matrix = jnp.outer(x, x) + jnp.diag(jnp.exp(u))
        smooth = (
            jax.nn.gelu(u @ x)
            + jax.nn.softplus(u[0])
            + jax.scipy.special.logsumexp(u)
            + jnp.linalg.slogdet(matrix)[1]
        )
        return (
            smooth
            + jnp.sum(jax.lax.map(jnp.tanh, u * drawn))
            + jnp.sum(jnp.linalg.solve(matrix, u))
        )

    require_separate(loss, jnp.zeros(WIDTH), ROW, SIZE)


# --- models ---------------------------------------------------------------------------------------

RECORDS = zoo.logistic_data(SIZE * 5)
NUM_RECORDS = SIZE * 5


def begun(model, guide, gradient="aligned", **options):
    trainer = DPVI(
        model,
        guide,
        Adam(0.05),
        privacy=(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
        estimator=gradient,
        **options,
    )
    return trainer.init(key_from_seed(0), *RECORDS)


def centred_on_all(x, y=None, *, num_records, **ignored):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=(x - jnp.mean(RECORDS[0], 0)) @ weights), obs=y)


def with_a_prior_from_all(x, y=None, *, num_records, **ignored):
    weights = numpyro.sample("weights", dist.Normal(jnp.mean(RECORDS[0], 0), 1.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def printing(x, y=None, *, num_records):
    jax.debug.print("{}", x)
    return zoo.logistic(x, y, num_records=num_records)


def taking_more(x, y=None, *, num_records, extra):
    return zoo.logistic(x, y, num_records=num_records)


def taking_more_guide(x, y=None, *, num_records, extra):
    return zoo.logistic_guide(x, y, num_records=num_records)


@pytest.mark.parametrize("gradient", ["aligned", "vanilla"])
@pytest.mark.parametrize("model", [centred_on_all, with_a_prior_from_all])
def test_a_model_that_closes_over_the_records_is_refused_by_init(model, gradient):
    """A prior made of the records would enter every step exactly, without clipping or noise."""
    with pytest.raises(
        PrivacyModelError, match=rf"axis of {NUM_RECORDS}, which is the number of records"
    ):
        begun(model, zoo.mean_field(weights=(3,)), gradient=gradient)


def test_a_model_that_prints_records_is_refused_by_init():
    with pytest.raises(PrivacyModelError, match=r"jax\.debug\.print"):
        begun(printing, zoo.logistic_guide)


@pytest.mark.parametrize(
    "extra",
    [{"all": RECORDS[0]}, [{"deep": (RECORDS[0].T,)}], RECORDS[1], {"all": list(RECORDS[0])}],
)
def test_records_inside_of_constants_are_refused(extra):
    with pytest.raises(ArgumentError, match=r"^extra.*the number of records.*by position"):
        begun(taking_more, taking_more_guide, extra=extra)


@pytest.mark.parametrize("extra", [[{"deep": (RECORDS[0].T,)}], {"all": list(RECORDS[0])}])
def test_records_inside_of_keyword_arguments_of_init_are_refused_unless_their_first_axis_is_records(
    extra,
):
    trainer = DPVI(
        taking_more,
        taking_more_guide,
        Adam(0.05),
        privacy=(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
    )
    with pytest.raises(ArgumentError, match=r"^extra"):
        trainer.init(key_from_seed(0), *RECORDS, extra=extra)


def test_a_public_array_of_that_length_may_have_an_axis_of_one_in_front():
    begun(taking_more, taking_more_guide, extra={"all": RECORDS[0][None]})
