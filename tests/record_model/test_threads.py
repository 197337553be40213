import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal

from tests import zoo
from workbench.record_model.splitting import split
from workbench.record_model.threads import separate_handler_stacks, without_validation


def trace_together(*names):
    """Traces one model a thread; all threads stand inside their models at the same time."""
    together = threading.Barrier(len(names))

    def sites_of(name):
        def model():
            numpyro.sample(f"{name} first", dist.Normal(0, 1))
            together.wait(timeout=30)
            numpyro.sample(f"{name} second", dist.Normal(0, 1))
            together.wait(timeout=30)

        with handlers.seed(rng_seed=0):
            return list(handlers.trace(model).get_trace())

    def sites_or_abort(name):
        try:
            return sites_of(name)
        except Exception:
            together.abort()  # nobody shall wait for a thread that broke
            raise

    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(sites_or_abort, names), strict=True))


def test_threads_see_their_own_sites_only():
    seen = trace_together("red", "blue", "green")
    for name, sites in seen.items():
        assert sites == [f"{name} first", f"{name} second"]


def test_one_shared_stack_would_mix_them(monkeypatch):
    """NumPyro as it comes: the test above would fail."""
    shared = []
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "numpyro" and hasattr(module, "_PYRO_STACK"):
            monkeypatch.setattr(module, "_PYRO_STACK", shared)
    with pytest.raises(Exception):  # noqa: B017, PT011 - one of several, as the threads happen to meet
        assert trace_together("red", "blue") == {
            "red": ["red first", "red second"],
            "blue": ["blue first", "blue second"],
        }


def test_every_module_of_numpyro_has_the_same_stack():
    stacks = {
        id(module._PYRO_STACK)
        for name, module in list(sys.modules.items())
        if name.split(".")[0] == "numpyro" and hasattr(module, "_PYRO_STACK")
    }
    assert len(stacks) == 1


def test_separating_twice_changes_nothing():
    before = numpyro.primitives._PYRO_STACK
    separate_handler_stacks()
    assert numpyro.primitives._PYRO_STACK is before


def test_a_handler_around_a_thread_does_not_reach_into_it():
    with handlers.trace() as outer, handlers.seed(rng_seed=0), ThreadPoolExecutor(1) as pool:
        inner = pool.submit(
            lambda: list(
                handlers.trace(
                    handlers.seed(lambda: numpyro.sample("x", dist.Normal()), 0)
                ).get_trace()
            )
        )
        assert inner.result() == ["x"]
    assert list(outer) == []


def test_stack_is_empty_after_an_error_in_a_model():
    def broken():
        raise RuntimeError("broken model")

    with pytest.raises(RuntimeError, match="broken model"), handlers.seed(rng_seed=0):
        broken()
    assert len(numpyro.primitives._PYRO_STACK) == 0


def test_models_are_split_in_several_threads_at_once():
    (x,) = zoo.normal_mean_data(20)
    logistic = zoo.logistic_data(20)

    def read(number):
        key = jax.random.key(number)
        if number % 2:
            return split(
                zoo.normal_mean, zoo.normal_mean_guide, key, zoo.shapes_of(x), num_records=20
            ).shared
        return split(
            zoo.logistic, zoo.logistic_guide, key, zoo.shapes_of(*logistic), num_records=20
        ).shared

    with ThreadPoolExecutor(4) as pool:
        shared = list(pool.map(read, range(8)))
    assert shared == [("intercept", "weights"), ("mean",)] * 4


def validates():
    """Whether distributions do; then a density is -inf outside of its support."""
    try:
        dist.Normal(0.0, -1.0)
    except ValueError:
        return True
    return False


def test_a_thread_that_does_not_validate_leaves_the_densities_of_others():
    """A trace that is half done would have another density from there on."""
    for is_validated in (True, False, True):
        with numpyro.validation_enabled(is_validated), ThreadPoolExecutor(1) as pool:
            with without_validation():
                assert not validates()
                assert pool.submit(validates).result() is is_validated
            assert validates() is is_validated


def test_one_model_is_split_alike_in_four_threads():
    """With a guide each, and with one guide for two of them."""
    data, validated = zoo.logistic_data(20), []

    def model(x, y, num_records=None):
        validated.append(validates())
        return zoo.logistic(x, y, num_records=num_records)

    def read(guide):
        split(model, guide, jax.random.key(0), zoo.shapes_of(*data), num_records=20)
        return guide.model is model

    for _ in range(2):
        guide = AutoNormal(model)
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, [guide, guide, AutoNormal(model), AutoNormal(model)]))
    assert validated.count(False) == 2 * 3 * 2  # a guide's first call has the model twice
