import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import norm

from workbench._validate import ArgumentError
from workbench.privacy import accounting
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy.pld import ComposedLoss
from workbench.privacy.rdp import renyi_loss
from workbench.privacy.sampled_gaussian import SampledGaussian
from workbench.privacy.steps import LAWS, SENSITIVITY, Steps

# Poisson, add_or_remove_one: (sigma, q, T, delta), epsilon by dp-accounting's PLD, by RDP, and the
# lower end of what Microsoft's PRV accountant allows (eps_error .01) where it was run.
REFERENCES = [
    ((4.0, 0.01, 10_000, 1e-5), 0.947, 1.03549, 0.9368),
    ((1.1, 0.004266666666666667, 14_062, 1e-5), 2.38169, 2.59656, 2.3715),
    ((0.8, 0.001, 1000, 1e-6), 0.46769, 1.46188, 0.4576),
    ((1.5, 0.04, 2250, 1e-5), 6.76879, 7.32933, 6.7584),
    ((6.0, 0.01, 10_000, 1e-5), 0.60105, 0.65915, None),
]


def plan(sigma, q, steps):
    return {"noise_multiplier": sigma, "sampling_rate": q, "steps": steps}


@pytest.mark.parametrize(("settings", "reference", "rdp", "prv_low"), REFERENCES)
def test_epsilon_agrees_with_other_accountants(settings, reference, rdp, prv_low):
    *numbers, delta = settings
    epsilon = accounting.epsilon(**plan(*numbers), delta=delta)
    # the references are upper bounds on buckets of 1e-4, up to .03 % above the truth
    assert reference * (1 - 4e-4) <= epsilon <= reference * (1 + 2e-4)
    assert epsilon <= rdp
    if prv_low is not None:
        assert epsilon >= prv_low


def gaussian_delta(epsilon, sigma, steps):
    """Exact delta of T Gaussian mechanisms without sampling: mu = sqrt(T) / sigma (Balle and Wang
    2018, Theorem 8).
    """
    mu = math.sqrt(steps) / sigma
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(
    ("sigma", "steps", "delta"),
    [(1.0, 1, 1e-5), (5.0, 30, 1e-3), (20.0, 1000, 1e-6), (60.0, 200, 1e-5)],
)
def test_without_sampling_the_bound_is_the_exact_gaussian_one(sigma, steps, delta):
    exact = brentq(
        lambda epsilon: gaussian_delta(epsilon, sigma, steps) - delta, 1e-9, 100, xtol=1e-12
    )
    epsilon = accounting.epsilon(**plan(sigma, 1.0, steps), delta=delta)
    assert exact * (1 - 1e-9) <= epsilon <= exact * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_without_sampling_delta_is_the_exact_gaussian_one(epsilon):
    exact = gaussian_delta(epsilon, 5.0, 10)
    assert exact <= accounting.delta(**plan(5.0, 1.0, 10), epsilon=epsilon) <= exact * (1 + 1e-2)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"), [(1.0, 0.01, 500, 1e-5), (2.0, 0.1, 200, 1e-3)]
)
def test_delta_is_the_inverse_of_epsilon(sigma, q, steps, delta):
    epsilon = accounting.epsilon(**plan(sigma, q, steps), delta=delta)
    assert accounting.delta(**plan(sigma, q, steps), epsilon=epsilon) == pytest.approx(
        delta, rel=1e-2
    )


def test_epsilon_grows_with_steps():
    values = [
        accounting.epsilon(**plan(1.0, 0.05, steps), delta=1e-5)
        for steps in (0, 1, 2, 5, 10, 100, 1000)
    ]
    assert values[0] == 0
    assert all(earlier < later for earlier, later in pairwise(values))


def test_epsilon_falls_with_noise_and_grows_with_the_sampling_rate():
    by_noise = [
        accounting.epsilon(**plan(sigma, 0.05, 100), delta=1e-5) for sigma in (0.5, 1.0, 2.0, 8.0)
    ]
    by_rate = [accounting.epsilon(**plan(1.0, q, 100), delta=1e-5) for q in (0.01, 0.05, 0.5, 1.0)]
    assert by_noise == sorted(by_noise, reverse=True)
    assert by_rate == sorted(by_rate)


def test_no_steps_cost_nothing():
    assert accounting.epsilon(**plan(1.0, 0.1, 0), delta=1e-5) == 0
    assert accounting.delta(**plan(1.0, 0.1, 0), epsilon=1.0) == 0


@pytest.mark.parametrize("epsilon", [0.0, 1e-4])
def test_delta_at_a_tiny_epsilon_needs_no_tower_of_memory(epsilon):
    """In a process of its own with 4 GiB and 20 s: a laptop must survive the question."""
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({4 * 2**30}, {4 * 2**30}))
from workbench.privacy import accounting
print(accounting.delta(noise_multiplier=1.0, sampling_rate=0.1, steps=10, epsilon={epsilon}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert 0 < float(done.stdout) < 1


def test_curve_bounds_epsilon_and_ends_with_it():
    settings = {"noise_multiplier": 1.0, "sampling_rate": 0.05, "delta": 1e-5}
    planned = accounting.epsilon(**settings, steps=400)
    curve = accounting.epsilon_curve(**settings, steps=400)
    steps = [count for count, _ in curve]
    assert steps == sorted(set(steps))
    assert curve[-1] == (400, accounting.round_up(planned, 3))
    for count, bound in curve:
        exact = accounting.epsilon(**settings, steps=count)
        assert exact <= bound <= 1.02 * exact + 1e-3


def test_curve_of_a_schedule_follows_its_phases():
    schedule = {"noise_multiplier": [1.0, 4.0], "sampling_rate": [0.1, 0.01], "delta": 1e-5}
    curve = dict(accounting.epsilon_curve(**schedule, steps=[50, 150], points=4))
    assert list(curve) == [13, 50, 113, 200]
    for count, bound in curve.items():
        exact = accounting.epsilon(**schedule, steps=[min(count, 50), max(0, count - 50)])
        assert exact <= bound <= 1.02 * exact + 1e-3


@pytest.mark.parametrize(("steps", "points"), [(1, 12), (0, 12), (7, 1)])
def test_short_curves(steps, points):
    curve = accounting.epsilon_curve(**plan(1.0, 0.1, steps), delta=1e-5, points=points)
    expected = accounting.round_up(accounting.epsilon(**plan(1.0, 0.1, steps), delta=1e-5), 3)
    assert curve == ([(steps, expected)] if steps else [])


# ---- samplers and relations ----------------------------------------------------------------------

# (sigma, q, T, delta): epsilon by dp-accounting's own composition of the same profile, the directed
# lower bound, and RDP
WITHOUT_REPLACEMENT = [
    ((2.3647, 0.01, 1000, 1e-5), 1.6056, 1.3319, 2.974),
    ((1.5, 0.0021333333333333334, 9360, 1.6666666666666667e-05), 2.5018, 1.9832, 3.5106),
]


@pytest.mark.parametrize(("settings", "reference", "never_below", "rdp"), WITHOUT_REPLACEMENT)
def test_without_replacement_agrees_with_references(settings, reference, never_below, rdp):
    *numbers, delta = settings
    epsilon = accounting.epsilon(sampler="without_replacement", **plan(*numbers), delta=delta)
    assert epsilon == pytest.approx(reference, rel=2e-4)
    assert never_below < epsilon < rdp


@pytest.mark.parametrize("sigma", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("q", [0.001, 0.1, 0.9])
@pytest.mark.parametrize("steps", [1, 300])
def test_without_replacement_is_never_under_the_directed_lower_bound(sigma, q, steps):
    """Where all others pull the other way, the sums are (1 - q) N(0, 1) + q N(2 / sigma, 1) and
    N(0, 1).
    """
    above = accounting.epsilon(sampler="without_replacement", **plan(sigma, q, steps), delta=1e-5)
    directed = ComposedLoss(((SampledGaussian(q, 2 / sigma, "remove"), steps),)).epsilon(1e-5)
    assert directed <= above * (1 + 1e-6)


@pytest.mark.parametrize(
    ("relation", "reference"),
    [("replace_one", 19.13077), ("replace_special", 8.00369), (None, 19.13077)],
)
def test_shuffled_epochs_are_gaussian_mechanisms(relation, reference):
    epsilon = accounting.epsilon(
        sampler="shuffle", relation=relation, **plan(6.0, 0.01, 10_000), delta=1e-5
    )
    assert epsilon == pytest.approx(reference, abs=5e-6)


def test_a_begun_epoch_counts_as_a_whole_one():
    def of(steps):
        return accounting.epsilon(sampler="shuffle", **plan(10.0, 0.1, steps), delta=1e-5)

    assert of(1) == of(10) < of(11) == of(20)


def uses_by_counting(phases):
    """Sum of 1 / sigma^2 of the steps that can hold a record at worst: step by step, an epoch at a
    time.
    """
    total, epoch, rate = 0.0, [], None
    for q, sigma, count in phases:
        for _ in range(count):
            if q != rate or len(epoch) == math.floor(1 / q + 1e-9):
                total, epoch, rate = total + max(epoch, default=0.0), [], q
            epoch.append(sigma**-2)
    return total + max(epoch, default=0.0)


@pytest.mark.parametrize(
    "phases",
    [
        [(0.1, 10.0, 5), (0.1, 1.0, 10)],
        [(0.1, 1.0, 5), (0.1, 10.0, 10)],
        [(0.25, 3.0, 1), (0.25, 2.0, 1), (0.25, 5.0, 1), (0.25, 4.0, 6), (0.25, 1.5, 3)],
        [(0.1, 8.0, 23), (0.1, 2.0, 7), (0.1, 4.0, 1)],
        [(0.1, 8.0, 5), (0.2, 2.0, 7), (0.1, 4.0, 5)],
        [(1.0, 2.0, 3), (1.0, 4.0, 2)],
    ],
)
@pytest.mark.parametrize("relation", ["replace_one", "replace_special"])
def test_shuffled_epochs_go_on_from_phase_to_phase(phases, relation):
    rates, sigmas, steps = (list(column) for column in zip(*phases, strict=True))
    settings = {
        "sampler": "shuffle",
        "relation": relation,
        **plan(sigmas, rates, steps),
        "delta": 1e-5,
    }
    mu = SENSITIVITY[relation] * math.sqrt(uses_by_counting(phases))
    assert accounting.epsilon(**settings) == pytest.approx(GaussianLoss(mu).epsilon(1e-5), rel=1e-9)
    for accountant in ("rdp", "rdp_classic"):
        assert accounting.epsilon(**settings, accountant=accountant) >= accounting.epsilon(
            **settings
        )
    steps_of_one = Steps.checked("shuffle", relation, rates, sigmas, steps)
    assert renyi_loss(steps_of_one, 8) == pytest.approx(8 * mu**2 / 2, rel=1e-8)


def test_less_noise_from_mid_epoch_on_costs_what_it_is_worth():
    settings = {
        "sampler": "shuffle",
        "relation": "replace_special",
        **plan([10.0, 1.0], 0.1, [5, 10]),
        "delta": 1e-5,
    }
    assert accounting.epsilon(**settings) == pytest.approx(6.57, abs=0.01)


@pytest.mark.parametrize("size", [1, 3, 7, 49, 128, 60_000])
def test_epochs_have_as_many_steps_as_whole_minibatches(size):
    for batch in {1, 2, size // 3 or 1, size // 2 or 1, size}:
        if batch <= size:
            assert LAWS["shuffle"].steps_per_epoch(batch / size) == size // batch


def test_at_q_one_the_samplers_of_replace_one_agree():
    settings = plan(30.0, 1.0, 50)
    values = {
        sampler: accounting.epsilon(sampler=sampler, **settings, delta=1e-5) for sampler in LAWS
    }
    assert values["without_replacement"] == values["shuffle"] > values["poisson"]


# ---- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement", "shuffle"])
def test_a_schedule_of_equal_phases_is_one_phase(sampler):
    whole = accounting.epsilon(sampler=sampler, **plan(2.0, 0.05, 200), delta=1e-5)
    split = accounting.epsilon(sampler=sampler, **plan([2.0, 2.0], 0.05, [80, 120]), delta=1e-5)
    assert split == pytest.approx(whole, rel=1e-4)


def test_a_schedule_lies_between_its_extremes():
    low, high = (accounting.epsilon(**plan(sigma, 0.05, 200), delta=1e-5) for sigma in (3.0, 1.5))
    assert low < accounting.epsilon(**plan([1.5, 3.0], 0.05, [100, 100]), delta=1e-5) < high


def test_schedules_agree_with_dp_accounting():
    parts = [(1.2, 0.02, 300), (2.0, 0.1, 100), (50.0, 1.0, 5)]
    composed = None
    for sigma, q, count in parts:
        part = privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sampling_prob=q
        ).self_compose(count)
        composed = part if composed is None else composed.compose(part)
    sigmas, rates, counts = (list(column) for column in zip(*parts, strict=True))
    assert accounting.epsilon(**plan(sigmas, rates, counts), delta=1e-6) == pytest.approx(
        composed.get_epsilon_for_delta(1e-6), rel=1e-3
    )


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("noise_multiplier", {"noise_multiplier": [1.0, 2.0], "steps": [1, 2, 3]}),
        ("noise_multiplier", {"noise_multiplier": []}),
        ("noise_multiplier", {"noise_multiplier": [1.0, 0.01]}),
    ],
)
def test_unusable_schedules_are_named(argument, changes):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        accounting.epsilon(**{**plan(1.0, 0.1, 10), "delta": 1e-5, **changes})


# ---- extremes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement"])
@pytest.mark.parametrize(("sigma", "steps"), [(0.1, 10**4), (0.3, 10**6), (100.0, 10**11)])
def test_plans_that_hide_nothing_have_a_delta(sampler, sigma, steps):
    plan = {"sampler": sampler, "sampling_rate": 0.1, "noise_multiplier": sigma, "steps": steps}
    assert accounting.delta(**plan, epsilon=1.0) == pytest.approx(1.0)
    assert accounting.trade_off(**plan, false_positive_rates=[0.1]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("q", "sigma", "delta"), [(1e-6, 300.0, 1e-12), (0.5, 1e5, 1e-12), (1e-3, 1e4, 1e-14)]
)
def test_tiny_epsilons_are_found_and_confirmed(q, sigma, delta):
    found = accounting.epsilon(**plan(sigma, q, 1000), delta=delta)
    assert 0 < found < 0.01
    assert accounting.delta(**plan(sigma, q, 1000), epsilon=found) <= delta


def test_next_to_no_noise_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^noise_multiplier=0.1: .*no epsilon up to 100000 holds"
    ):
        accounting.epsilon(**plan(0.1, 0.1, 10**6), delta=1e-5)


@pytest.mark.parametrize("sigma", [0.3, pytest.param(3.0, marks=pytest.mark.thorough), 300.0])
@pytest.mark.parametrize(
    ("q", "steps"), [(1.0, 1), (1.0, 10**6), (0.01, 1), (0.01, 10**6), (1e-6, 1000)]
)
@pytest.mark.parametrize("delta", [1e-12, 1e-3])
def test_extreme_plans_have_an_answer(sigma, q, steps, delta):
    """Within 10 s each: the whole suite's time limit is the test of that, ``tests/benchmarks``
    measures it.
    """
    assert 0 <= accounting.epsilon(**plan(sigma, q, steps), delta=delta) < math.inf


@pytest.mark.parametrize("target", [1e-3, 1.0, 100.0])
def test_tiny_and_huge_epsilons_are_resolved(target):
    """At q = 1 the exact answer is known; composed from the loss distributions of single steps it
    must be found again.
    """
    mu = brentq(lambda mu: GaussianLoss(mu).epsilon(1e-12) - target, 1e-6, 50)
    steps = 10**4
    loss = ComposedLoss(((SampledGaussian(1.0, mu / math.sqrt(steps), "remove"), steps),))
    assert target * (1 - 1e-9) <= loss.epsilon(1e-12) <= target * 1.001


def test_records_that_hardly_ever_enter_need_no_epsilon():
    assert accounting.epsilon(**plan(0.3, 1e-6, 100), delta=1e-3) == 0
    assert accounting.delta(**plan(0.3, 1e-6, 100), epsilon=0.0) <= 1.0001e-4


def test_a_delta_beyond_reach_is_refused():
    with pytest.raises(ArgumentError, match=r"^delta=1e-40: is too small"):
        accounting.epsilon(**plan(1.0, 0.1, 10), delta=1e-40)


# ---- trade-off curves ----------------------------------------------------------------------------


def test_trade_off_without_sampling_is_that_of_gaussians():
    rates = np.array([0.0, 0.001, 0.01, 0.1, 0.5, 1.0])
    curve = accounting.trade_off(**plan(20.0, 1.0, 100), false_positive_rates=rates)
    exact = norm.cdf(norm.ppf(rates) + 0.5)
    assert np.all(curve >= exact * (1 - 1e-9))
    np.testing.assert_allclose(curve, exact, rtol=5e-3, atol=1e-6)


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement", "shuffle"])
def test_no_epsilon_and_delta_allow_less_than_the_trade_off_curve(sampler):
    settings = {"sampler": sampler, **plan(8.0, 0.1, 200)}
    rates = np.array([0.01, 0.1, 0.5])
    curve = accounting.trade_off(**settings, false_positive_rates=rates)
    assert np.all(np.diff(curve) > 0)
    assert np.all(curve > rates)
    for delta in (1e-6, 1e-3, 0.1):
        epsilon = accounting.epsilon(**settings, delta=delta)
        assert np.all(curve <= accounting.region(epsilon, delta, rates) * 1.002)


def test_extra_delta_moves_the_trade_off_curve():
    settings = {**plan(8.0, 0.1, 200), "false_positive_rates": [0.01]}
    alone = accounting.trade_off(**settings)[0]
    assert alone + 0.0099 < accounting.trade_off(**settings, extra_delta=0.01)[0]
    only_zero = accounting.trade_off(**settings, extra_delta=0.01, largest_epsilon=0.0)[0]
    assert only_zero == pytest.approx(
        0.02 + accounting.delta(**plan(8.0, 0.1, 200), epsilon=0.0), rel=1e-3
    )


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_unusable_false_positive_rates_are_named(rate):
    with pytest.raises(ArgumentError, match=r"^false_positive_rates="):
        accounting.trade_off(**plan(8.0, 0.1, 200), false_positive_rates=[0.1, rate])


@pytest.mark.parametrize(
    ("value", "digits", "rounded"),
    [
        (1.0001, 3, 1.001),
        (1.0, 3, 1.0),
        (0.0, 2, 0.0),
        (1.41474, 4, 1.4148),
        (math.inf, 3, math.inf),
    ],
)
def test_round_up(value, digits, rounded):
    assert accounting.round_up(value, digits) == pytest.approx(rounded, rel=1e-12)


def test_round_up_never_goes_down():
    for number in range(1, 2000):
        value = number / 997
        for digits in (0, 2, 5):
            rounded = accounting.round_up(value, digits)
            assert value <= rounded <= value + 1.000001 * 10.0**-digits


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("sampler", "poison"),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.1),
        ("noise_multiplier", 0.05),
        ("noise_multiplier", math.nan),
        ("steps", -1),
        ("steps", 1.5),
        ("delta", 0.0),
        ("delta", 1.0),
        ("accountant", "guess"),
        ("relation", "replace_one"),
    ],
)
def test_unusable_arguments_are_named(argument, value):
    settings = {**plan(1.0, 0.1, 10), "delta": 1e-5, argument: value}
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        accounting.epsilon(**settings)


def test_delta_refuses_a_negative_epsilon():
    with pytest.raises(ArgumentError, match="epsilon=-1"):
        accounting.delta(**plan(1.0, 0.1, 10), epsilon=-1)


@pytest.mark.parametrize(
    "rates", ["no", ["no"], None, [[0.1, "x"]], [float("nan")], 1.5, [-0.1], {"a": 1}]
)
def test_rates_that_are_no_shares_are_refused_by_name(rates):
    with pytest.raises(ArgumentError) as caught:
        accounting.trade_off(**plan(20.0, 1.0, 100), false_positive_rates=rates)
    assert caught.value.argument == "false_positive_rates"


def test_one_rate_may_be_given_without_a_list():
    (alone,) = accounting.trade_off(**plan(20.0, 1.0, 100), false_positive_rates=0.1)
    assert (
        alone
        == accounting.trade_off(**plan(20.0, 1.0, 100), false_positive_rates=np.array([0.1]))[0]
    )
