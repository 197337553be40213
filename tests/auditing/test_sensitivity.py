"""No record, however extreme, moves the released sum by more than C; larger moves are found."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from tests import zoo
from tests.auditing.planted import ClampedIndices
from workbench.auditing import audit, sensitivity
from workbench.auditing.bugs import watched
from workbench.auditing.canaries import Canaries
from workbench.inference import PrivateStep
from workbench.inference import step as step_module
from workbench.inference.assemble import assemble
from workbench.inference.state import Performance
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, OnGrid
from workbench.sampling import PoissonSampler, ShuffleSampler

OTHERS = 5
CLIP = 0.5


def places(x, y=None, num_records=None):
    """Each record has places whose parts of the gradient may cancel: they are weighed and
    added up.
    """
    weights = numpyro.sample("weights", dist.Normal(0.0, 2.0).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample(
            "y",
            dist.Bernoulli(logits=(x @ weights) @ jnp.tile(jnp.array([1.0, 2.0, 2.0, 1.0]), 8)),
            obs=y,
        )


RANDOM = np.random.default_rng(0)
PLACES = (
    RANDOM.normal(size=(OTHERS, 32, 3)).astype(np.float32),
    np.arange(OTHERS, dtype=np.int32) % 2,
)
CASES = {
    "logistic": (zoo.logistic, zoo.logistic_guide, zoo.logistic_data(OTHERS + 1)),
    "places": (
        places,
        zoo.mean_field(weights=(3,)),
        tuple(np.concatenate([array, array[:1]]) for array in PLACES),
    ),
}


def maker(
    case="logistic",
    bug=None,
    clipping="flat",
    kind=PrivateStep,
    sampler=None,
    estimator="aligned",
    **performance,
):
    model, guide, _ = CASES[case]
    size = OTHERS + 1

    def make_step(key, rows):
        mechanism = watched(GaussianMechanism(CLIP, 1.0, clipping), bug, size / 2)
        sampled = sampler or PoissonSampler(size, 0.5, size)
        step = assemble(
            model,
            guide,
            numpyro.optim.SGD(0.1),
            key,
            rows,
            sampler=sampled,
            mechanism=mechanism,
            estimator=estimator,
            performance=Performance(**performance),
        )
        return kind(**vars(step)), mechanism

    return make_step


def canaries_of(case="logistic"):
    rows = CASES[case][2]
    return Canaries(tuple(array[-1:] for array in rows), None, tuple(array[:-1] for array in rows))


def checked(make_step, case="logistic", precisions=("float32",)):
    found = sensitivity.check(make_step, canaries_of(case), CLIP, key_from_seed(0), precisions)
    print(found.finding)
    return found


def test_the_core_keeps_c():
    """The worst record almost reaches the limit, so the attack is strong."""
    found = checked(maker())
    assert found.passed
    assert found.worst > 0.999


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"bug": "short_norms"}, 1.249),
        pytest.param({"bug": "no_clipping"}, 10, marks=pytest.mark.thorough),
        pytest.param(
            {"kind": ClampedIndices}, 2.5, marks=pytest.mark.thorough
        ),  # the record in the middle stands for three
    ],
)
def test_planted_bugs_are_caught_with_their_size(options, least):
    found = checked(maker(**options))
    assert not found.passed
    assert found.worst > least


def norms_of_places(loss, u, records, mask, clip, strategy, *, clipping, rules=None):
    """PLANTED: the norm of a mean over places from half-precision parts, and a second pass that
    trusts it.
    """
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(u, records)
    leaves = jax.tree.leaves(gradients)
    squares = sum(
        jnp.sum(leaf.astype(jnp.bfloat16).astype(jnp.float32) ** 2, axis=range(1, leaf.ndim))
        for leaf in leaves
    )
    norms = jnp.sqrt(squares)
    factors = jnp.where(
        mask & jnp.isfinite(norms), jnp.minimum(1, clip / jnp.maximum(norms, 1e-30)), 0
    )
    return jax.tree.map(
        lambda leaf: jnp.tensordot(factors, jnp.nan_to_num(leaf), 1), gradients
    ), norms


def test_norms_in_half_precision_are_caught(monkeypatch):
    """By up to four thousandths, too little for an attack with many runs."""
    real = step_module.clipped_sum_in_parts

    def planted(loss, u, strata, clip, strategy, *others):
        (chosen, mask, _), *_ = strata
        everyone = chosen(jnp.arange(mask.shape[0]))
        total, _ = norms_of_places(loss, u, everyone, mask, clip, strategy, clipping="flat")
        spacing = others[2](0.0, 0.0)
        return OnGrid(
            jax.tree.map(lambda leaf: jnp.round(leaf / spacing).astype(jnp.int32), total), spacing
        ), None

    monkeypatch.setattr(step_module, "clipped_sum_in_parts", functools.wraps(real)(planted))
    found = checked(maker())
    assert not found.passed
    assert 1.001 < found.worst < 1.01


def move_by_short_arrays(make_step):
    """How far a step made for six records moves on three if their last is replaced, relative to the
    allowed distance.
    """
    canaries = canaries_of()
    one = tuple(array[:1] for array in canaries.present)
    step, seen, state = sensitivity._begun(make_step, canaries, one, key_from_seed(0))
    release = sensitivity._released(step, seen, state)
    rest = [others[: OTHERS // 2] for others in canaries.others]
    sums = []
    for record in (one, (np.zeros_like(one[0]), one[1])):
        short = [jnp.asarray(np.concatenate(pair)) for pair in zip(rest, record, strict=True)]
        sums.append(
            np.asarray(
                release(step.unconstrained(state), tuple(short), jnp.ones(OTHERS + 1, bool)),
                np.float64,
            )
        )
    return np.linalg.norm(sums[0] - sums[1]) / (2 * CLIP)


def test_arrays_of_another_size_that_are_read_by_clamping_are_caught():
    assert move_by_short_arrays(maker(kind=ClampedIndices)) > 1.4


def test_arrays_of_another_size_are_refused():
    with pytest.raises(ValueError, match="records"):
        move_by_short_arrays(maker())


def test_adversarial_records_are_like_the_canary():
    template = tuple(array[:1] for array in PLACES)
    found = dict(sensitivity.adversarial_records(template))
    assert len(found) > 15
    for record in found.values():
        assert [array.shape for array in record] == [array.shape for array in template]
        assert [array.dtype for array in record] == [array.dtype for array in template]
        np.testing.assert_array_equal(record[1], template[1])
    cancelling = [record[0] for name, record in found.items() if "cancel" in name]
    assert any((array.sum(axis=1) == 0).all() and array.any() for array in cancelling)
    assert any(np.isnan(record[0]).all() for record in found.values())


@pytest.mark.thorough
@pytest.mark.parametrize("precision", sensitivity.PRECISIONS)
@pytest.mark.parametrize("clipping", ["flat", "automatic", "per_leaf"])
@pytest.mark.parametrize("strategy", ["auto", "vmap", "loop", "bookkeeping"])
@pytest.mark.parametrize("case", CASES)
def test_the_core_keeps_c_whatever_it_runs(case, strategy, clipping, precision):
    found = checked(maker(case, clipping=clipping, strategy=strategy), case, (precision,))
    assert found.passed


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [{"estimator": "vanilla"}, {"microbatch_size": 4}, {"sampler": ShuffleSampler(OTHERS + 1, 2)}],
    ids=str,
)
@pytest.mark.parametrize("precision", sensitivity.PRECISIONS)
def test_the_core_keeps_c_with_other_settings(options, precision):
    assert checked(maker(**options), precisions=(precision,)).passed


@pytest.mark.thorough
@pytest.mark.parametrize("bug", [None, "short_norms", "no_clipping"])
def test_the_audit_looks_at_what_it_attacks(bug):
    result = audit(seed=0, parts=("sensitivity",), bug=bug)
    assert result.passed == (bug is None)


@pytest.mark.thorough
def test_records_of_half_precision_are_audited_by_a_step_that_takes_them():
    """A step refuses records of another type than it was made for, which ended every
    whole audit.
    """
    assert checked(maker(), precisions=("bfloat16",)).passed
