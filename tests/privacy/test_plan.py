import dataclasses
import math

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from scipy import stats

import workbench as wb
from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.auditing import audit
from workbench.ledger.renyi_filter import Cap
from workbench.noise.integers import delta_cost
from workbench.privacy import accounting
from workbench.privacy.plan import PrivacySettings, make_plan, sampling_rate_of
from workbench.privacy.steps import LAWS
from workbench.sampling import (
    PoissonSampler,
    RandomAllocationSampler,
    ShuffleSampler,
    WithoutReplacementSampler,
)

SETTINGS = PrivacySettings(
    epsilon=2.0,
    delta=1e-4,
    iterations=200,
    sampling_rate=0.1,
    sampler="poisson",
    clip=1.0,
    num_records=455,
    seed=None,
)
SAMPLERS = list(LAWS)


def settings(**changes):
    return dataclasses.replace(SETTINGS, relation=None, **changes)


def guarantee(plan, steps_taken=200):
    return plan.guarantee(
        steps_taken=steps_taken, unit="patient", dimension=10, caveats=("First of all.",)
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_sampler_that_runs_is_the_one_that_is_accounted_for(sampler):
    plan = make_plan(settings(sampler=sampler), 455)
    kinds = {
        "poisson": PoissonSampler,
        "without_replacement": WithoutReplacementSampler,
        "shuffle": ShuffleSampler,
        "random_allocation": RandomAllocationSampler,
    }
    assert isinstance(plan.sampler, kinds[sampler])
    promised = guarantee(plan)
    assert (promised.sampler, promised.relation) == (plan.sampler.name, LAWS[sampler].relations[0])
    assert promised.sampling_rate == plan.sampler.sampling_rate
    spent = accounting.epsilon(
        sampler=plan.sampler.name,
        relation=promised.relation,
        sampling_rate=plan.sampler.sampling_rate,
        noise_multiplier=plan.mechanism.noise_multiplier,
        steps=200,
        delta=promised.delta - promised.overflow_delta - promised.noise_delta,
    )
    assert 0.999 * promised.epsilon < spent <= promised.epsilon


def test_fixed_minibatches_have_the_rate_of_a_whole_number_of_records():
    plan = make_plan(settings(sampler="without_replacement"), 455)
    assert plan.sampler.batch_size == 46  # round(45.5)
    assert guarantee(plan).sampling_rate == 46 / 455


def test_a_rate_of_less_than_a_record_still_takes_one():
    assert make_plan(settings(sampler="shuffle", sampling_rate=1e-4), 455).sampler.batch_size == 1


def test_a_blanked_record_needs_half_the_noise():
    replaced, blanked = (
        make_plan(dataclasses.replace(SETTINGS, sampler="shuffle", relation=relation), 455)
        for relation in ("replace_one", "replace_special")
    )
    assert blanked.mechanism.noise_multiplier == pytest.approx(
        replaced.mechanism.noise_multiplier / 2, rel=1e-4
    )
    assert guarantee(blanked).relation == "replace_special"


def test_what_is_charged_for_overflow_tells_nothing_of_the_private_count():
    fewer, declared = (make_plan(SETTINGS, count) for count in (440, 455))
    assert fewer.overflow_delta == declared.overflow_delta > 0
    assert make_plan(settings(sampler="shuffle"), 455).overflow_delta == 0


def test_shuffling_says_what_happens_to_the_rest():
    assert any(
        "each epoch leaves out 41" in line
        for line in guarantee(make_plan(settings(sampler="shuffle"), 455)).caveats
    )
    even = make_plan(settings(sampler="shuffle"), 460)
    assert not any("epoch" in line for line in guarantee(even).caveats)


@pytest.mark.parametrize(
    ("sampler", "size", "words"),
    [
        ("poisson", 450, "The number of records (N = 455)"),
        ("shuffle", 460, "The number of records (N = 460)"),
    ],
)
def test_what_is_public_follows_the_relation(sampler, size, words):
    plan = make_plan(settings(sampler=sampler), size)
    lines = guarantee(plan).caveats
    assert lines[0] == "First of all."
    assert any(line.startswith(words) for line in lines)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_epsilon_so_far_bounds_epsilon_and_never_passes_the_plan(sampler):
    plan = make_plan(settings(sampler=sampler), 455)
    shown = plan.epsilon_so_far()
    values = [shown(step) for step in range(201)]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (0.0, 2.0)
    for step in (1, 17, 60, 199):
        assert plan.epsilon_after(step) <= shown(step) + 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_noise_that_is_not_exact_is_charged_for_every_draw(sampler):
    """T steps of d coordinates."""
    plan = make_plan(settings(sampler=sampler, epsilon=8.0), 455)
    for dimension in (1, 1000, 10**6):
        assert plan.noise_delta(dimension) == delta_cost(200 * dimension, 8.0)


def test_a_delta_below_what_the_noise_costs_is_refused():
    plan = make_plan(settings(), 455)
    plan = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, delta=1e-30))
    with pytest.raises(
        ArgumentError, match=r"^delta=1e-30: is so small that the rounding of the noise alone costs"
    ):
        plan.noise_delta(10**6)


def test_more_noise_than_whole_numbers_hold_is_refused():
    """sigma sqrt(d) spacings of rounding would be a large part of the noise itself."""
    plan = make_plan(settings(epsilon=0.1, iterations=10**5, sampling_rate=1.0), 455)
    plan.noise_delta(1000)
    with pytest.raises(
        ArgumentError,
        match=r"^epsilon=0\.1: is so small that it takes noise of .* in each of 1000000 co",
    ):
        plan.noise_delta(10**6)


@pytest.mark.parametrize("epsilon", some_of([100.0, 30.0]))
@pytest.mark.parametrize(
    "sampler",
    [*SAMPLERS[:-1], pytest.param(SAMPLERS[-1], marks=pytest.mark.thorough)],  # it takes seconds
)
def test_a_large_epsilon_is_kept_by_the_largest_at_which_roundings_have_their_share(
    sampler, epsilon
):
    asked = settings(sampler=sampler, epsilon=epsilon, iterations=800)
    plan = make_plan(asked, 455).for_noise_in(50)
    kept = plan.settings.epsilon
    assert 20 < kept < epsilon == plan.requested_epsilon
    share = asked.delta / 1000
    assert (
        plan.noise_delta(50)
        == delta_cost(800 * 50, kept)
        <= share
        < delta_cost(800 * 50, kept + 0.1)
    )
    assert plan.overflow_delta <= share
    promised = plan.guarantee(steps_taken=800, unit="patient", dimension=50, caveats=())
    assert promised.epsilon == kept
    assert f"epsilon = {epsilon:g} was asked for, and {kept:g} is kept" in promised.statement()
    assert promised.asked_for == f"epsilon = {epsilon:g} was asked for"
    assert plan.for_noise_in(50) is plan
    assert plan.confirmed().settings.epsilon == kept  # by dp-accounting, where it has a bound


def test_a_known_seed_is_told_before_a_smaller_epsilon():
    asked = settings(epsilon=100.0, iterations=800, seed=7)
    first, second, *_ = (
        make_plan(asked, 455)
        .for_noise_in(50)
        .guarantee(steps_taken=800, unit="patient", dimension=50, caveats=())
        .caveats
    )
    assert first.startswith("Everybody who knows the seed (7)")
    assert second.startswith("epsilon = 100 was asked for")


def test_what_a_plan_of_a_large_epsilon_costs_is_within_delta_by_another_accountant():
    """dp-accounting's epsilon at the delta that the plan leaves the mechanism, with (1 + e^epsilon)
    of each rounding.
    """
    plan = make_plan(settings(epsilon=100.0, iterations=800), 455).for_noise_in(50)
    kept, sampler = plan.settings.epsilon, plan.sampler
    overflow = stats.binom.sf(sampler.capacity, 456, 0.1) + sampler.total_variation
    rounding = (1 + math.exp(kept)) * 800 * overflow + plan.noise_delta(50)
    event = dp_event.PoissonSampledDpEvent(
        0.1, dp_event.GaussianDpEvent(plan.mechanism.noise_multiplier)
    )
    accountant = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-3
    )
    assert rounding <= 2e-3 * 1e-4
    assert accountant.compose(event, 800).get_delta(kept * 1.002) + rounding <= 1e-4


def test_epsilons_that_roundings_leave_alone_are_kept_as_they_are():
    for epsilon in (0.1, 1.0, 8.0, 20.0):
        plan = make_plan(settings(epsilon=epsilon, iterations=800), 455)
        assert plan.for_noise_in(50) is plan
        assert plan.settings.epsilon == plan.requested_epsilon == epsilon


def test_a_delta_that_no_epsilon_leaves_its_share_is_refused():
    with pytest.raises(
        ArgumentError,
        match=r"^delta=1e-26: is so small that rounding and padding of minibatches alone",
    ):
        make_plan(settings(delta=1e-26), 455)


@pytest.mark.parametrize(
    "ask",
    [
        lambda epsilon: settings(epsilon=epsilon),
        lambda epsilon: wb.prepare("logistic", "breast_cancer", epsilon=epsilon),
        lambda epsilon: wb.sweep("logistic", "breast_cancer", epsilons=[1, epsilon]),
        lambda epsilon: wb.privacy.noise_multiplier(
            epsilon=epsilon, delta=1e-5, sampling_rate=0.1, steps=10
        ),
        lambda epsilon: wb.privacy.max_steps(
            epsilon=epsilon, delta=1e-5, sampling_rate=0.1, noise_multiplier=1.0
        ),
        lambda epsilon: wb.privacy.max_sampling_rate(
            epsilon=epsilon, delta=1e-5, noise_multiplier=1.0, steps=10
        ),
        lambda epsilon: Cap.checked(epsilon, 1e-5),
        lambda epsilon: audit("logistic", epsilon=epsilon),
    ],
)
def test_one_limit_of_epsilon_in_the_same_words_at_every_door(ask):
    with pytest.raises(
        ArgumentError, match=r"at most 100, because e\^100 as a bound promises nothing"
    ) as caught:
        ask(100.5)
    assert caught.value.code == "epsilon too large"


@pytest.mark.parametrize(
    ("sampling_rate", "batch_size", "rate"),
    [(None, None, 0.1), (0.3, None, 0.3), (None, 91, 0.2), (None, 455, 1.0)],
)
def test_rate_or_minibatch_size(sampling_rate, batch_size, rate):
    assert sampling_rate_of(sampling_rate, batch_size, 455) == rate


@pytest.mark.parametrize(
    ("sampling_rate", "batch_size", "message"),
    [
        (0.1, 10, r"^batch_size=10: must be left out, because sampling_rate=0.1"),
        (None, 700, r"^batch_size=700: must be a whole number of at least 1 and at most 455"),
        (None, 0, r"^batch_size=0: "),
        (None, 2.5, r"^batch_size=2.5: "),
        (1.5, None, r"^sampling_rate=1.5: "),
    ],
)
def test_unusable_sizes_are_named(sampling_rate, batch_size, message):
    with pytest.raises(ArgumentError, match=message):
        sampling_rate_of(sampling_rate, batch_size, 455)


@pytest.mark.parametrize(
    ("sampler", "relation"),
    [("poisson", "replace_one"), ("shuffle", "add_or_remove_one"), ("without_replacement", "x")],
)
def test_a_relation_that_is_not_the_samplers_is_refused(sampler, relation):
    with pytest.raises(ArgumentError, match=f"^relation='{relation}'"):
        dataclasses.replace(SETTINGS, sampler=sampler, relation=relation)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("num_records", 2**30), ("num_records", 10**18), ("sampling_rate", 1e-15)],
)
def test_more_records_than_can_be_sampled_are_refused(argument, value):
    """The tables of a sampler of 1e18 records took 14 GB."""
    with pytest.raises(ArgumentError, match=f"^{argument}=.* at (least|most) ") as caught:
        settings(**{argument: value})
    assert caught.value.argument == argument


def test_no_part_of_a_plan_follows_a_number_of_records_below_the_declared_one():
    """Parts of a minibatch set blocks and spacing of its sum, which show in every number that is
    released.
    """
    samplers = [make_plan(settings(), size).sampler for size in (400, 454, 455)]
    assert {
        (sampler.capacity, sampler.usual_size(), sampler.usual_size(8), sampler.words)
        for sampler in samplers
    } == {
        (
            samplers[0].capacity,
            samplers[0].usual_size(),
            samplers[0].usual_size(8),
            samplers[0].words,
        )
    }
    assert [sampler.num_records for sampler in samplers] == [400, 454, 455]


@pytest.mark.parametrize("sampler", ["poisson", "random_allocation"])
def test_a_declared_number_is_an_upper_bound(sampler):
    """With more records, blocks and spacing followed the private number: with 300 declared, 333 and
    334 differed.
    """
    with pytest.raises(ArgumentError, match="upper bound") as refused:
        make_plan(settings(sampler=sampler), 456)
    assert (refused.value.argument, refused.value.value) == ("num_records", 455)
    assert "456" not in str(refused.value)


def test_a_number_that_is_not_hidden_may_be_declared_as_any():
    assert make_plan(settings(sampler="shuffle"), 456).sampler.num_records == 456
