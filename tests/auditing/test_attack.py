import dataclasses
import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.optim import SGD
from scipy.stats import norm

import workbench
from tests import zoo
from tests.conftest import quick_jit, some_of
from workbench import privacy
from workbench._validate import ArgumentError
from workbench.auditing import PARTS, AuditResult, Check, audit, audit_release
from workbench.auditing.attack import clipped_gradients, evidence_of
from workbench.auditing.bugs import watched as watched_mechanism
from workbench.auditing.canaries import Canaries
from workbench.inference.assemble import assemble
from workbench.inference.state import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid
from workbench.sampling import (
    Minibatch,
    PoissonSampler,
    RandomAllocationSampler,
    ShuffleSampler,
    WithoutReplacementSampler,
)

# Every comparison with a claim is made at this confidence: a sound mechanism fails one seed in ten
# thousand for each audit, and a planted bug is found by more than luck.
CONFIDENCE = 0.9999
DELTA = 1e-2
ATTACK = ("attack",)  # the other parts have files of their own
OF_THE_ATTACK = ("half_noise", "no_clipping", "realised_size")


def show(result):
    """One line of the table that a run of the statistical tests prints."""
    print(
        f"\n{result.model:20s} {result.sampler:20s} q={result.sampling_rate:.2f} "
        f"T={result.iterations:<3d} {result.relation:18s} {result.mode:9s} "
        f"{result.bug or 'sound':14s} claimed {result.claimed_epsilon:6.3f}  bound "
        f"{result.lower_bound:6.3f}"
    )
    return result


# --- quick ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", [pytest.param(None, marks=pytest.mark.statistical), "no_clipping"])
def test_one_run_catches_a_missing_clip_and_nothing_else(bug):
    """Gradients fifty times as long as C: 300 canaries in two steps give them away."""
    result = audit(
        epsilon=1,
        delta=1e-8,
        iterations=2,
        sampling_rate=1,
        clip=0.1,
        mode="one_run",
        num_canaries=300,
        confidence=CONFIDENCE,
        seed=0,
        bug=bug,
        parts=ATTACK,
    )
    show(result)
    assert result.passed == (bug is None)
    assert bug is None or result.lower_bound > 1.4
    assert result.trials == 1
    assert result.canaries == 300
    assert result.data == "made for the audit"


@pytest.mark.parametrize(
    ("bug", "epsilon", "iterations"), some_of([("half_noise", 1.0, 3), ("realised_size", 0.5, 5)])
)
def test_a_few_thousand_runs_catch_wrong_noise(bug, epsilon, iterations):
    """The statistical tests below show that sound runs stay under the claim."""
    settings = {
        "epsilon": epsilon,
        "iterations": iterations,
        "sampling_rate": 1,
        "trials": 4000,
        "seed": 0,
    }
    result = show(audit(delta=DELTA, confidence=CONFIDENCE, bug=bug, parts=ATTACK, **settings))
    assert not result.passed


NUM_RECORDS = 6
RECORDS = zoo.logistic_data(NUM_RECORDS)


def begun(mechanism, seed, rate=0.5):
    """(step, hyperparameters, starting state)."""
    sampler, key = PoissonSampler(NUM_RECORDS, rate, NUM_RECORDS + 1), key_from_seed(seed)
    step = assemble(
        zoo.logistic,
        zoo.logistic_guide,
        SGD(0.1),
        key,
        RECORDS,
        sampler=sampler,
        mechanism=mechanism,
    )
    hyper = Hyperparameters.of(mechanism)
    return step, hyper, step.init(key, hyper)


@pytest.mark.thorough
def test_watching_changes_nothing_and_sees_what_the_step_used():
    """SGD on one parameter per coordinate of u: the steps themselves show the noised sums."""
    plain = GaussianMechanism(1.0, 1.5)
    watched = watched_mechanism(plain, None, math.nan)
    (ordinary, hyper, state), (observed, _, _) = begun(plain, 0), begun(watched, 0)
    records = tuple(map(jnp.asarray, RECORDS))

    @quick_jit
    def step(state):
        draws = observed.draw(state.key, state.step, hyper)
        watched.begin(draws.minibatch)
        after = observed.step(state, records, draws, hyper)
        theta, _ = observed.model.release_point(observed.unconstrained(state), draws.base_noise)
        return after, watched.noised_sum(), theta

    after, noised, theta = step(state)
    expected = quick_jit(
        lambda state: ordinary.step(state, records, ordinary.draw(state.key, 0, hyper), hyper)
    )(state)
    before, last, same = (ordinary.unconstrained(each) for each in (state, after, expected))
    jax.tree.map(np.testing.assert_array_equal, last, same)
    moved = np.append(
        before["intercept_loc"] - last["intercept_loc"], before["weights_loc"] - last["weights_loc"]
    )
    # which no record touches
    prior = np.append(theta["intercept"], theta["weights"]) / zoo.PRIOR_SCALE**2
    np.testing.assert_allclose(
        moved / 0.1 * NUM_RECORDS, noised / 0.5 + prior, rtol=1e-4, atol=1e-5
    )


def test_planted_bugs_are_what_they_say():
    claimed = GaussianMechanism(0.5, 2.0)
    total, noise = (
        OnGrid({"a": jnp.full(3, 2)}, jnp.float32(0.5)),
        Noise(2 * jnp.arange(3), jnp.int32(0)),
    )
    half, unclipped, rescaled, short = (
        watched_mechanism(claimed, bug, 4.0)
        for bug in ("half_noise", "no_clipping", "realised_size", "short_norms")
    )
    assert (half.clip, half.standard_deviation) == (0.5, 0.5)
    assert unclipped.clip > 1e8
    assert unclipped.standard_deviation == pytest.approx(claimed.standard_deviation)
    assert (rescaled.clip, rescaled.standard_deviation) == (0.5, 1.0)
    assert (short.clip, short.standard_deviation) == (0.625, 1.0)
    for realised, factor in ((8, 0.5), (0, 4.0)):
        mask = jnp.arange(10) < realised
        rescaled.begin(Minibatch(jnp.zeros(10, jnp.int32), mask))
        np.testing.assert_allclose(rescaled.add(total, noise)["a"], factor * (1 + np.arange(3)))
        np.testing.assert_allclose(rescaled.noised_sum(), factor * (1 + np.arange(3)))


def test_planted_bugs_can_be_reached_from_the_audit_alone():
    """Only the command line uses this module; its command runs ``audit``. Type checkers are told
    the name.
    """
    root = Path(workbench.__file__).parent
    imports = re.compile(r"^\s*(from|import) .*\bauditing\b", re.MULTILINE)
    elsewhere = [path for path in root.rglob("*.py") if "auditing" not in path.parts]
    users = {path.name for path in elsewhere if imports.search(path.read_text())}
    assert users <= {"audit.py", "__init__.py"}
    door = Path(workbench.__file__).read_text()
    assert imports.findall(door) == imports.findall(
        door.split("if TYPE_CHECKING:")[1].split("__version__")[0]
    )


def test_a_part_that_is_left_out_is_not_run():
    result = audit(epsilon=1, delta=DELTA, iterations=10**6, parts=())
    assert result.passed
    assert (result.trials, result.lower_bound, result.checks) == (0, 0, ())
    assert set(PARTS) == {"attack", "sensitivity", "accountant"}


def test_canaries_are_rows_by_coins():
    others, present, absent = (
        (np.arange(2.0),),
        (np.array([10.0, 11.0, 12.0]),),
        (np.array([20.0, 21.0, 22.0]),),
    )
    coins = np.array([True, False, True])
    np.testing.assert_array_equal(Canaries(present, None, others).rows(coins)[0], [0, 1, 10, 12])
    np.testing.assert_array_equal(
        Canaries(present, absent, others).rows(coins)[0], [0, 1, 10, 21, 12]
    )


@pytest.mark.thorough
def test_gradients_of_the_attack_are_the_cores_own():
    """At u: clipped gradients of each canary, nothing for none, and the sum over the others."""
    fitted, hyper, state = begun(GaussianMechanism(0.3, 1.0), 1)
    canaries = Canaries(
        tuple(array[:2] for array in RECORDS), None, tuple(array[2:] for array in RECORDS)
    )

    @quick_jit
    def attacked(state):
        draws, params = fitted.draw(state.key, state.step, hyper), fitted.unconstrained(state)
        u, _ = fitted.model.release_point(params, draws.base_noise)
        return u, clipped_gradients(fitted, 0.3, params, draws, canaries)

    u, (present, absent, others) = attacked(state)
    x, y = RECORDS
    slope = 1 / (1 + np.exp(-(x @ np.asarray(u["weights"]) + float(u["intercept"])))) - y
    # intercept first, as in u
    gradients = slope[:, None] * np.column_stack([np.ones(NUM_RECORDS), x])
    clipped = gradients * np.minimum(1, 0.3 / np.linalg.norm(gradients, axis=1, keepdims=True))
    np.testing.assert_allclose(present, clipped[:2], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(absent, np.zeros((2, 4)))
    np.testing.assert_allclose(others, clipped[2:].sum(axis=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_evidence_is_the_log_likelihood_ratio(rate):
    """One canary beside records without gradient: the densities are known."""
    random, deviation = np.random.default_rng(0), 0.7
    noised, there, instead = random.normal(size=(3, 5))
    gradients = tuple(
        jnp.asarray(array, jnp.float32) for array in (there[None], instead[None], np.zeros(5))
    )
    ratio, log_size = evidence_of(jnp.asarray(noised, jnp.float32), gradients, rate, deviation)

    def density(gradient):
        return rate * np.prod(norm.pdf(noised, gradient, deviation)) + (1 - rate) * np.prod(
            norm.pdf(noised, 0, deviation)
        )

    assert ratio[0] == pytest.approx(math.log(density(there) / density(instead)), rel=1e-4)
    rest = noised - rate * (there + instead) / 2
    assert log_size == pytest.approx(math.log(np.mean(rest**2)), rel=1e-4)


def result_with(**changes):
    fields = {field.name: 1 for field in dataclasses.fields(AuditResult)}
    given = {
        "checks": (),
        "claimed_epsilon": 2.0,
        "lower_bound": 1.5,
        "delta": 1e-3,
        "mode": "many_runs",
        "trials": 500,
        "bug": None,
    }
    return AuditResult(
        **fields
        | given
        | {"confidence": 0.95, "relation": "replace_one", "sampler": "shuffle"}
        | changes
    )


def test_statement_says_what_was_found_and_that_it_proves_nothing():
    sound, broken = (
        result_with(),
        result_with(lower_bound=2.5, bug="half_noise", mode="one_run", canaries=99),
    )
    assert sound.passed
    assert "500 runs with and 500 without one canary" in sound.statement()
    assert "epsilon is at least 1.5 at delta = 0.001" in sound.statement()
    assert "proves nothing" in sound.statement()
    assert not broken.passed
    assert "99 canaries" in broken.statement()
    assert "'half_noise' was planted" in broken.statement()
    assert "The claim is refuted" in broken.statement()
    assert "proves nothing" not in broken.statement()


def test_what_another_part_found_fails_the_audit_and_is_said():
    failed = Check("sensitivity", False, "moves by 3 times the allowed distance.", 3.0)
    checks = (Check("accountant", True, "no lower bound."), failed)
    result = result_with(checks=checks, trials=0, bug="short_norms")
    assert not result.passed
    assert result_with(checks=checks[:1]).passed
    assert result.statement().splitlines() == [
        "1 was not attacked. The bug 'short_norms' was planted.",
        "accountant, passed: no lower bound.",
        "sensitivity, FAILED: moves by 3 times the allowed distance.",
    ]


@pytest.mark.parametrize("checks", [(), (Check("accountant", True, "fine", 0.5),)])
def test_result_goes_into_json(checks):
    result = result_with(checks=checks)
    read = json.loads(json.dumps(result.to_dict()))
    assert read.pop("passed") is True
    assert read.pop("statement") == result.statement()
    assert AuditResult(**read) == result


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("epsilon", {"epsilon": 0}),
        ("delta", {"delta": 1}),
        ("confidence", {"confidence": 0}),
        ("trials", {"trials": 99}),
        ("mode", {"mode": "both"}),
        ("bug", {"bug": "none"}),
        ("parts", {"parts": ("attack", "nothing")}),
        ("seed", {"seed": -1}),
        ("sampler", {"sampler": "poison"}),
        ("num_canaries", {"mode": "one_run", "num_canaries": 3}),
        ("num_others", {"num_others": 0}),
        ("data", {"data": "nowhere"}),
        ("model", {"model": "nothing"}),
    ],
)
def test_bad_arguments_are_named(argument, change):
    with pytest.raises(ArgumentError) as caught:
        audit(**{"epsilon": 1, "delta": 1e-2, "iterations": 2} | change)
    assert caught.value.argument == argument


SHUFFLE = ShuffleSampler(NUM_RECORDS + 1, 2)


def release(**changes):
    """An audit of the zoo's logistic regression that fails before it runs."""
    arguments = {
        "model": zoo.logistic,
        "guide": zoo.logistic_guide,
        "others": RECORDS,
        "present": tuple(array[:1] for array in RECORDS),
        "relation": "add_or_remove_one",
        "sampler": PoissonSampler(NUM_RECORDS + 1, 0.5, NUM_RECORDS + 1),
        "mechanism": GaussianMechanism(1.0, 1.0),
        "epsilon": 1.0,
        "delta": DELTA,
        "iterations": 1,
    }
    return audit_release(**arguments | changes)


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("present", {"present": RECORDS}),
        ("present", {"present": (RECORDS[0][:1], RECORDS[1])}),
        ("others", {"others": tuple(array[:0] for array in RECORDS)}),
        ("absent", {"absent": tuple(array[:1] for array in RECORDS)}),
        ("absent", {"sampler": SHUFFLE, "relation": "replace_one", "absent": RECORDS}),
        ("absent", {"sampler": SHUFFLE, "relation": "replace_one"}),
        ("relation", {"relation": "replace_one"}),
        ("bug", {"sampler": SHUFFLE, "relation": "replace_one", "bug": "realised_size"}),
        ("noise_multiplier", {"mechanism": GaussianMechanism(1.0, 0.0)}),
    ],
)
def test_bad_arguments_of_audit_release_are_named(argument, change):
    with pytest.raises(ArgumentError) as caught:
        release(**change)
    assert caught.value.argument == argument
    assert "[" not in str(caught.value)  # no records in the message


def test_a_blank_record_needs_a_number_that_can_be_nan():
    with pytest.raises(ArgumentError, match="present"):
        release(
            present=(np.zeros((1, 3), np.int32), np.zeros(1, np.int32)),
            sampler=SHUFFLE,
            relation="replace_special",
        )


# --- statistical: the real core, with every sampler -----------------------------------------------


STEPS = 4
SAMPLERS = {  # sampler of n records, relation, noise multiplier for an epsilon of 1 to 3
    "poisson": (lambda n: PoissonSampler(n, 0.5, n), "add_or_remove_one", 2.0),
    "poisson, all": (lambda n: PoissonSampler(n, 1.0, n), "add_or_remove_one", 4.0),
    "without_replacement": (lambda n: WithoutReplacementSampler(n, n // 2), "replace_one", 4.0),
    "without_replacement, all": (lambda n: WithoutReplacementSampler(n, n), "replace_one", 4.0),
    "shuffle": (lambda n: ShuffleSampler(n, n // 2), "replace_one", 4.0),
    "shuffle, all": (lambda n: ShuffleSampler(n, n), "replace_one", 4.0),
    "shuffle, blanked": (lambda n: ShuffleSampler(n, n), "replace_special", 2.0),
    "random_allocation": (lambda n: RandomAllocationSampler(n, 2, n), "add_or_remove_one", 1.5),
    "random_allocation, all": (
        lambda n: RandomAllocationSampler(n, 1, n),
        "add_or_remove_one",
        4.0,
    ),
}


def row(*values):
    """One record."""
    return tuple(
        np.asarray(value, np.int32 if isinstance(value, int) else np.float32)[None]
        for value in values
    )


LONG = [10.0, 10.0, 10.0]
CANARIES = {  # a record with a long gradient, and one with a gradient that is as long and opposite
    "logistic": (row(LONG, 1), row(LONG, 0)),
    "hierarchical": (row(LONG, 1), row(LONG, 0)),
    "gaussian mixture": (row([20.0, 20.0]), row([0.0, 0.0])),  # scales must grow or shrink
    "weights of records": (row(20.0, 2.0), row(-20.0, 2.0)),
    "local latents": (row(20.0), row(1.0)),
    "vae": (row([1.0] * zoo.PIXELS), row([0.0] * zoo.PIXELS)),
}


def audit_case(case, sampler, **options):
    """Many runs of a model in the zoo, with the sampler's epsilon from its accountant."""
    make_sampler, relation, sigma = SAMPLERS[sampler]
    chosen = zoo.ZOO[case]
    model, guide = chosen.build()
    present, absent = CANARIES[case]
    size = zoo.NUM_RECORDS
    drawn = make_sampler(size)
    claimed = privacy.epsilon(
        sampler=drawn.name,
        relation=relation,
        sampling_rate=drawn.sampling_rate,
        noise_multiplier=sigma,
        steps=STEPS,
        delta=DELTA,
    )
    return show(
        audit_release(
            model,
            guide,
            tuple(array[: size - 1] for array in chosen.records()),
            present,
            absent if relation == "replace_one" else None,
            relation=relation,
            sampler=drawn,
            mechanism=GaussianMechanism(1.0, sigma),
            epsilon=claimed,
            delta=DELTA,
            iterations=STEPS,
            confidence=CONFIDENCE,
            static=chosen.static,
            seed=0,
            parts=ATTACK,
            model_name=case,
            **options,
        )
    )


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("case", "sampler"),
    [
        *(("logistic", sampler) for sampler in SAMPLERS),
        *(
            (case, name)
            for case in list(CANARIES)[1:]
            for name in ("poisson", "without_replacement, all", "shuffle")
        ),
    ],
)
def test_bound_stays_under_the_claim_for_every_sampler_and_model(case, sampler):
    """False alarms: one seed in ten thousand for each audit."""
    result = audit_case(case, sampler)
    assert result.passed
    # the attack must be strong for a canary that differs clearly; the order of an epoch is unknown
    # to it, as claimed
    if case == "logistic" and sampler != "shuffle":
        assert result.lower_bound > 0.3 * result.claimed_epsilon


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("bug", "sampler"),
    [
        *(("half_noise", sampler) for sampler in SAMPLERS if sampler != "shuffle"),
        *(("no_clipping", sampler) for sampler in SAMPLERS),
        ("realised_size", "poisson, all"),
    ],
)
def test_planted_bug_is_caught_with_every_sampler(bug, sampler):
    """Shuffling hides missing noise: the claim assumes that the attacker knows a record's step, but
    he does not.
    """
    assert not audit_case("logistic", sampler, bug=bug).passed


@pytest.mark.statistical
@pytest.mark.parametrize("bug", [None, *OF_THE_ATTACK])
def test_audit_with_its_defaults_tells_a_bug_from_a_sound_run(bug):
    """What ``workbench audit`` does: noise calibrated to epsilon 1, ten Poisson steps."""
    result = show(
        audit(epsilon=1, delta=DELTA, confidence=CONFIDENCE, seed=0, bug=bug, parts=ATTACK)
    )
    assert result.passed == (bug is None)
    assert result.lower_bound > 0.3


@pytest.mark.statistical
@pytest.mark.parametrize("bug", [None, "half_noise"])
def test_vanilla_gradients_are_audited_too(bug):
    result = show(
        audit(
            epsilon=1,
            delta=DELTA,
            estimator="vanilla",
            confidence=CONFIDENCE,
            seed=0,
            bug=bug,
            parts=ATTACK,
        )
    )
    assert result.passed == (bug is None)


@pytest.mark.statistical
@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
@pytest.mark.parametrize("bug", [None, "half_noise", "no_clipping"])
def test_other_ways_of_clipping_are_audited_too(clipping, bug):
    """Both have the same sensitivity, and a canary uses almost all of it."""
    result = show(
        audit(
            epsilon=1,
            delta=DELTA,
            clipping=clipping,
            confidence=CONFIDENCE,
            seed=0,
            bug=bug,
            parts=ATTACK,
        )
    )
    assert result.passed == (bug is None)
    assert result.lower_bound > 0.3


@pytest.mark.statistical
@pytest.mark.parametrize("bug", [None, *OF_THE_ATTACK])
def test_one_run_stays_under_the_claim_and_sees_gross_bugs_only(bug):
    """A thousand canaries show missing clipping, but not half the noise or division by the realised
    size.
    """
    result = show(
        audit(
            epsilon=1,
            delta=1e-8,
            clip=0.1,
            mode="one_run",
            confidence=CONFIDENCE,
            seed=0,
            bug=bug,
            parts=ATTACK,
        )
    )
    assert result.passed == (bug != "no_clipping")


@pytest.mark.statistical
def test_a_data_set_of_the_registry_is_audited():
    result = show(
        audit(
            "logistic",
            "breast_cancer",
            epsilon=1,
            delta=DELTA,
            confidence=CONFIDENCE,
            seed=0,
            parts=ATTACK,
        )
    )
    assert result.passed
    assert result.data == "breast_cancer"


@pytest.mark.statistical
@pytest.mark.parametrize("bug", [None, "half_noise"])
def test_runs_that_adapt_c_keep_the_claim(bug):
    """Sums and counts of norms are attacked together, at the C of each step."""
    result = audit(
        epsilon=2,
        delta=DELTA,
        iterations=20,
        sampling_rate=1,
        clip="auto",
        trials=3000,
        confidence=CONFIDENCE,
        seed=0,
        bug=bug,
        parts=ATTACK,
    )
    show(result)
    assert result.passed == (bug is None)
    assert result.lower_bound > (0.5 if bug is None else 2)
