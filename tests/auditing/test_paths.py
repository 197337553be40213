"""Chunks, checkpoints and lanes release the same as single steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import zoo
from tests.conftest import some_of
from workbench.auditing import audit, paths
from workbench.inference import PrivateStep
from workbench.inference.assemble import assemble
from workbench.inference.state import Hyperparameters, Performance
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler, RandomAllocationSampler, ShuffleSampler, WithoutReplacementSampler

SIZE = 12


def maker(
    model=zoo.normal_mean, guide=zoo.normal_mean_guide, sampler=None, clipping="flat", kind=PrivateStep, estimator="aligned",
    **performance,
):  # fmt: skip
    def make_step(optim, key, rows):
        step = assemble(
            model, guide, optim, key, rows, sampler=sampler or PoissonSampler(SIZE, 0.5, SIZE), estimator=estimator,
            mechanism=GaussianMechanism(1.0, 1.0, clipping), performance=Performance(**performance),
        )  # fmt: skip
        return kind(**vars(step))

    return make_step


def checked(make_step, rows=None, bug=None, **options):
    rows = zoo.normal_mean_data(SIZE) if rows is None else rows
    found = paths.check(make_step, rows, key_from_seed(0), 1e-3, bug, **options)
    print(found.finding)
    return found


@pytest.mark.parametrize("bug", some_of([None, "shared_key"], 2))
@pytest.mark.thorough
def test_one_key_for_all_lanes_is_caught(bug):
    found = checked(maker(), bug=bug)
    assert found.passed == (bug is None)
    assert bug is None or "lane" in found.finding


class OneDrawForAChunk(PrivateStep):
    """A likely mistake when drawing ahead: all steps of a block get the noise of the first. Single steps are correct."""

    def draw(self, key, number, hyper):
        ahead = isinstance(hyper.clip, jax.core.Tracer)  # as chunks have them
        return super().draw(key, number // 4 * 4 if ahead else number, hyper)


@pytest.mark.thorough
def test_noise_that_is_wrong_in_chunks_alone_is_caught():
    found = checked(maker(kind=OneDrawForAChunk))
    assert not found.passed
    assert "a fit's chunks and single steps" in found.finding


def test_the_log_of_an_optimiser_is_every_gradient_it_was_given():
    """Gradient descent: the parameters show the same."""
    rows, key = tuple(map(jnp.asarray, zoo.normal_mean_data(SIZE))), key_from_seed(1)
    step = maker()(paths.logging_sgd(3, 0.1), key, rows)
    hyper = Hyperparameters.of(step.mechanism)
    state = step.init(key, hyper)
    shown = [step.unconstrained(state)]
    once = jax.jit(lambda state: step.step(state, rows, step.draw(state.key, state.step, hyper), hyper))
    for _ in range(3):
        state = once(state)
        shown.append(step.unconstrained(state))
    flat = np.array([[float(params[name]) for name in sorted(params)] for params in shown])
    np.testing.assert_allclose(-np.diff(flat, axis=0) / 0.1, paths._log_of(state), rtol=1e-3, atol=1e-5)


def half(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree)


CASES = {
    "logistic": {"model": zoo.logistic, "guide": zoo.logistic_guide},
    "vanilla": {"estimator": "vanilla"},
    "without replacement": {"sampler": WithoutReplacementSampler(SIZE, 4)},
    "shuffle": {"sampler": ShuffleSampler(SIZE, 4)},
    "random allocation": {"sampler": RandomAllocationSampler(SIZE, 4, SIZE)},
    "parts of a minibatch": {"microbatch_size": 5},
    "loop": {"strategy": "loop", "clipping": "automatic"},
    "book-keeping": {"model": zoo.logistic, "guide": zoo.logistic_guide, "strategy": "bookkeeping", "clipping": "per_leaf"},
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_all_that_fits_accept_goes_the_same_way(case):
    rows = zoo.logistic_data(SIZE) if "model" in CASES[case] else None
    assert checked(maker(**CASES[case]), rows).passed


@pytest.mark.thorough
def test_half_precision_goes_the_same_way():
    assert checked(maker(estimator="vanilla"), cast=half).passed


@pytest.mark.thorough
def test_double_precision_goes_the_same_way():
    with jax.enable_x64(True):
        assert checked(maker()).passed


@pytest.mark.thorough
def test_the_audit_looks_at_the_paths_of_what_it_attacks():
    for bug in (None, "shared_key"):
        assert audit(seed=0, parts=("paths",), bug=bug).passed == (bug is None)
