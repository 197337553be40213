"""Calls that numpyro's SVI takes, with one meaning, give the same run; the others are refused in
one sentence.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from numpyro.optim import Adam

from tests import zoo
from tests.conftest import quick_jit
from workbench._validate import ArgumentError
from workbench.inference import DPVI
from workbench.inference._arguments import Arguments
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler

NUM_RECORDS = 12
X, Y = zoo.logistic_data(NUM_RECORDS)
GUIDE = zoo.mean_field(weights=(3,))


def model(x, y=None, scale=1.0, label=None):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(3), scale).to_event(1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def of_a_dictionary(data, scale):
    model(jnp.stack([data["a"], data["b"], data["c"]], axis=1), data["y"], scale)


def guide(*args, **kwargs):
    GUIDE()


def trainer(model=model, *loss, **options):
    privacy = (PoissonSampler(NUM_RECORDS, 1.0, NUM_RECORDS), GaussianMechanism(10.0, 0.1))
    return DPVI(model, guide, Adam(0.05), *loss, privacy=privacy, **options)


def after_two(trainer, *args, **kwargs):
    state = trainer.init(key_from_seed(2), *args, **kwargs)
    for _ in range(2):
        state, _ = trainer.update(state, *args, **kwargs)
    return trainer.get_params(state)


COLUMNS = {"a": X[:, 0], "b": pd.Series(X[:, 1]), "c": X[:, 2].tolist(), "y": Y}
CALLS = {
    "by keyword": (trainer, (X,), {"y": Y}),
    "all by keyword": (trainer, (), {"x": X, "y": Y}),
    "a number and None by position": (trainer, (X, Y, 1.0, None), {}),
    "a word by keyword": (trainer, (X, Y), {"label": "clinic", "scale": 1.0}),
    "a dictionary of columns": (lambda: trainer(of_a_dictionary), (COLUMNS, 1.0), {}),
    "loss by position": (lambda: trainer(model, Trace_ELBO()), (X, Y), {}),
    "loss by keyword": (lambda: trainer(loss=Trace_ELBO()), (X, Y), {}),
}


@pytest.fixture(scope="module")
def expected():
    return after_two(trainer(), X, Y)


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(CALLS))
def test_the_call_gives_the_same_run(name, expected):
    make, args, kwargs = CALLS[name]
    jax.tree.map(np.testing.assert_array_equal, after_two(make(), *args, **kwargs), expected)


@pytest.mark.thorough
def test_run_and_evaluate_take_records_by_keyword():
    dpvi = trainer()
    result = dpvi.run(key_from_seed(2), 2, X, y=Y, progress_bar=False)
    by_position = trainer().run(key_from_seed(2), 2, X, Y, progress_bar=False)
    jax.tree.map(np.testing.assert_array_equal, result.params, by_position.params)
    few, more = (dpvi.evaluate(result.state, X[:n], y=Y[:n], public=True) for n in (4, 12))
    assert np.isfinite([float(few), float(more)]).all()
    svi = SVI(model, guide, Adam(0.05), Trace_ELBO())  # whose result is read alike
    assert set(svi.run(jax.random.key(0), 2, X, y=Y, progress_bar=False).params) == set(
        result.params
    )


def test_stable_update_is_an_update_that_keeps_finite_parameters():
    stable = trainer()
    before = stable.init(key_from_seed(4), X, Y)
    after, loss = quick_jit(stable.stable_update)(before, X, Y)
    assert loss is None
    assert int(after.step) == 1
    assert not np.array_equal(
        stable.get_params(after)["weights_loc"], stable.get_params(before)["weights_loc"]
    )


@pytest.mark.parametrize("loss", [TraceMeanField_ELBO(), Trace_ELBO(num_particles=3), "elbo"])
def test_another_loss_is_refused(loss):
    with pytest.raises(ArgumentError, match=r"^loss=.*must be Trace_ELBO\(\)"):
        trainer(loss=loss)


@pytest.mark.parametrize("make", [jax.random.PRNGKey, jax.random.key])
def test_a_key_that_anyone_can_guess_is_refused(make):
    with pytest.raises(TypeError, match=r"new_key\(\).*predict"):
        trainer().init(make(0), X, Y)


class Holder:
    """What may hold records where nothing sees them."""

    y = Y


REFUSED = {
    "a table": ((pd.DataFrame(X), Y), {}, r"table.*to_numpy"),
    "a list of records": ((list(X), Y), {}, r"np\.stack"),
    "words": ((X, np.array(["a"] * NUM_RECORDS)), {}, r"encode them as numbers"),
    "other lengths": ((X, Y, X[:5]), {}, r"by keyword"),
    "nothing": ((), {"scale": 1.0}, r"first axis is records"),
    "numbers of records by keyword": ((X, Y), {"label": Y.tolist()}, r"^label=.*number of records"),
    "numbers of records in a dictionary": (
        (X, Y),
        {"label": dict(enumerate(Y.tolist()))},
        r"^label=.*number of records",
    ),
    "numbers of records by position": (
        (X, Y, dict(enumerate(Y.tolist()))),
        {},
        r"^argument 2=.*one for each record",
    ),
    "a tuple of numbers of records": (
        (X, Y, tuple(Y.tolist())),
        {},
        r"^argument 2=.*one for each record",
    ),
    "an object": ((X, Y, Holder()), {}, r"^argument 2='Holder': is not an array, number or string"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_one_meaning_is_refused(name):
    args, kwargs, match = REFUSED[name]
    with pytest.raises(ArgumentError, match=match):
        trainer().init(new_key(), *args, **kwargs)


def held_by(arguments):
    """What an ``Arguments`` holds, which must not be records."""
    return [
        leaf
        for value in vars(arguments).values()
        for leaf in (value if isinstance(value, list) else [value])
    ]


def test_a_later_call_must_be_like_the_first():
    arguments = Arguments((X,), {"y": Y, "scale": 2.0})
    assert [array.shape for array in arguments.arrays((X[:5],), {"y": Y[:5]})] == [(5, 3), (5,)]
    args, kwargs = arguments.layout((1, 2))
    assert (args, kwargs) == ((1,), {"y": 2})
    assert arguments.static == {"scale": 2.0}
    assert not any(isinstance(value, np.ndarray) for value in held_by(arguments))
    arguments.arrays((X,), {"y": Y, "scale": 2.0})
    for args, kwargs in [
        ((X, Y), {}),
        ((X,), {"y": Y, "scale": 3.0}),
        ((X,), {"y": Y, "width": 3.0}),
    ]:
        with pytest.raises(ArgumentError):
            arguments.arrays(args, kwargs)


@pytest.mark.parametrize(
    ("first", "later"), [((X, 1.0), (X, 100.0)), ((X, None), (X, Y)), ((X, Y), (X, None))]
)
def test_a_later_call_has_the_constants_of_the_first(first, later):
    arguments = Arguments(first, {})
    arguments.arrays(first, {})
    with pytest.raises(ArgumentError, match=r"when the run began"):
        arguments.arrays(later, {})
