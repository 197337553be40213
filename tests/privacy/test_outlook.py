"""What is told of a plan before any fit."""

import dataclasses
import math
import re

import numpy as np
import pytest

from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.privacy.outlook import Outlook, outlook
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.steps import LAWS

SETTINGS = PrivacySettings(
    epsilon=1.0,
    delta=1e-3,
    iterations=800,
    sampling_rate=0.1,
    sampler="poisson",
    clip=2.0,
    num_records=455,
    seed=None,
)
CASES = [(law.name, relation) for law in LAWS.values() for relation in law.relations]


def plan_of(num_train=455, **changes):
    return make_plan(dataclasses.replace(SETTINGS, **{"relation": None, **changes}), num_train)


def promised(plan, dimension=31):
    steps = plan.settings.iterations
    return plan.guarantee(steps_taken=steps, unit="record", dimension=dimension, caveats=())


@pytest.fixture(scope="module")
def seen():
    return outlook(plan_of(), 31)


@pytest.mark.parametrize(("sampler", "relation"), CASES)
def test_numbers_are_those_of_the_guarantee(sampler, relation):
    plan = plan_of(sampler=sampler, relation=relation)
    ahead, guarantee = outlook(plan, 31), promised(plan)
    assert ahead.settings == plan.settings
    assert ahead.noise_multiplier == guarantee.noise_multiplier
    assert ahead.attack_bounds == guarantee.attack_bounds()
    at_1_percent = dict(ahead.trade_off)[0.01]
    assert at_1_percent == ahead.attack_bounds["true_positive_rate_at_1_percent"]


@pytest.mark.parametrize(("sampler", "relation"), CASES)
def test_the_curve_bounds_epsilon_and_ends_at_the_plan(sampler, relation):
    plan = plan_of(sampler=sampler, relation=relation)
    curve = outlook(plan, 31).epsilon_curve
    steps, values = zip(*curve, strict=True)
    assert list(steps) == sorted(set(steps))
    assert list(values) == sorted(values)
    assert curve[-1] == (800, 1.0)
    assert all(plan.epsilon_after(count) <= value + 1e-3 for count, value in curve[::4])


def test_a_plan_of_one_step_is_told_too():
    assert outlook(plan_of(iterations=1), 31).epsilon_curve == ((1, 1.0),)


def test_what_is_told_is_the_same_whatever_the_private_number_of_records(seen):
    for count in (2, 441, 454):
        told = outlook(plan_of(count), 31)
        assert (told, told.epsilon_curve, repr(told)) == (seen, seen.epsilon_curve, repr(seen))


@pytest.mark.parametrize(
    ("sampler", "num_train", "size"),
    [
        ("poisson", 441, 45.5),
        ("without_replacement", 455, 46),
        ("shuffle", 455, 46),
        ("shuffle", 500, 50),
    ],
)
def test_the_minibatch_is_that_of_the_declared_records_or_the_samplers(sampler, num_train, size):
    assert outlook(plan_of(num_train, sampler=sampler), 31).minibatch_size == pytest.approx(
        size, rel=1e-12
    )


def test_the_signal_is_at_most_the_minibatchs_against_noise_in_all_coordinates(seen):
    """Gradients of norm C that all point the same way, and Gaussian noise, drawn: their ratio is
    the limit.
    """
    clip, random = SETTINGS.clip, np.random.default_rng(5)
    noise = random.normal(scale=seen.noise_multiplier * clip, size=(4000, 31))
    signal = 45.5 * clip
    assert seen.signal_to_noise == pytest.approx(
        signal / math.sqrt(np.mean(np.sum(noise**2, axis=1))), rel=0.02
    )
    means = noise.reshape(5, 800, 31).mean(axis=1)
    assert seen.mean_signal_to_noise == pytest.approx(
        signal / math.sqrt(np.mean(np.sum(means**2, axis=1))), rel=0.3
    )
    assert seen.mean_signal_to_noise == pytest.approx(math.sqrt(800) * seen.signal_to_noise)


def test_more_coordinates_mean_more_noise_and_the_same_privacy(seen):
    wide = outlook(plan_of(), 4 * 31)
    assert wide.signal_to_noise == pytest.approx(seen.signal_to_noise / 2)
    assert wide.noise_multiplier == seen.noise_multiplier
    assert wide.epsilon_curve == seen.epsilon_curve


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shared", [0.3, 0.6])
def test_the_noise_leaves_room_for_no_more_quantities_than_told(seed, shared):
    """Of logistic models of made-up records: how many directions of the parameters the mean of the
    steps determines.
    """
    random, (records, features, clip, sigma, rate, steps) = (
        np.random.default_rng(seed),
        (300, 20, 0.4, 17.0, 0.1, 400),
    )
    x = (1 - shared) * random.uniform(-1, 1, (records, features)) + shared * random.uniform(
        -1, 1, (records, 1)
    )
    probability = 1 / (1 + np.exp(-x @ random.normal(size=features)))
    gradients = ((random.random(records) < probability) - probability)[:, None] * x
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients *= np.minimum(1, clip / norms)
    curvatures = np.linalg.eigvalsh(gradients.T @ gradients)
    deviations = sigma * clip / rate / math.sqrt(steps) / curvatures
    settings = dataclasses.replace(
        SETTINGS, num_records=records, iterations=steps, sampling_rate=rate, clip=clip
    )
    told = Outlook(settings, features, sigma, rate * records, tuple, {}, ())
    assert 0 < np.sum(deviations <= 0.5 / clip) <= told.room < features
    # one direction may take it all: the limit is reached
    together = clip * np.ones((records, 1))
    (all_of_it,) = np.linalg.eigvalsh(together.T @ together)
    assert sigma * clip / rate / math.sqrt(steps) / all_of_it == pytest.approx(
        0.5 / clip / told.room
    )


def test_the_verdict_names_what_would_leave_room_for_all():
    told = outlook(plan_of(), 31)
    assert told.verdict == ("Noise may hide most of the model's 31 quantities.")
    assert told.words()[-1] == (
        f"{told.verdict} The signal is at most 2.8 times the bare minimum for so many quantities; "
        "trials needed 30 times to show most."
    )
    middle = outlook(plan_of(), 1)
    assert middle.verdict == "Noise may hide the model's quantity."
    assert re.search(r"at most 8\d times .* needed 100 times to show all\.$", middle.words()[-1])
    little = outlook(plan_of(epsilon=0.1), 31)
    assert f"at most {math.floor(little.room)} of the model's 31" in little.verdict
    least, records = re.search(
        r"at least epsilon ([\d.]+) or ([\d ,]+) records", little.verdict
    ).groups()
    assert outlook(plan_of(epsilon=float(least)), 31).room == pytest.approx(31, rel=0.1)
    assert float(records.replace(" ", "").replace(",", "")) == pytest.approx(
        455 * 31 / little.room, rel=0.1
    )
    network = outlook(plan_of(), 456)  # of more quantities than records
    assert network.verdict.startswith("The model's 456 quantities are more than the records")
    assert network.words()[-1] == network.verdict


@pytest.mark.parametrize("sampler", some_of(list(LAWS), 4))
def test_noise_near_is_that_of_plans_with_these_epsilons(sampler):
    seen = outlook(plan_of(sampler=sampler), 31)
    near, times = zip(*seen.noise_near, strict=True)
    assert near == (0.25, 0.5, 1.0, 2.0, 4.0)
    for epsilon, found in zip(near, times, strict=True):
        other = plan_of(sampler=sampler, epsilon=epsilon).mechanism.noise_multiplier
        assert found == pytest.approx(other / seen.noise_multiplier, rel=3e-3)  # samplers round q


def test_noise_near_is_of_the_plans_epsilon_among_powers_of_two():
    near, times = zip(*outlook(plan_of(epsilon=3.0), 31).noise_near, strict=True)
    assert near == (1.0, 2.0, 3.0, 4.0, 8.0)
    assert times[2] == 1
    assert sorted(times, reverse=True) == list(times)


def test_no_noise_is_told_of_epsilons_that_no_noise_keeps():
    tiny = outlook(plan_of(epsilon=0.05, sampling_rate=1.0, iterations=10**6, delta=1e-6), 31)
    near = [near for near, _ in tiny.noise_near]
    assert near == [0.05, 0.0625, 0.125]


def test_no_epsilon_is_named_where_none_would_do():
    tiny = outlook(plan_of(iterations=1, epsilon=0.01), 455)
    assert tiny.epsilon_for_all is None
    assert re.search(r"it takes at least [\d ,]+ records\.$", tiny.verdict)


def test_the_trade_off_rises_from_guessing_to_one(seen):
    rates, found = map(np.array, zip(*seen.trade_off, strict=True))
    assert (rates[0], rates[-1]) == (0.0, 1.0)
    assert np.all(np.diff(rates) > 0)
    assert np.all(np.diff(found) >= 0)
    assert np.all(found >= rates)
    assert found[-1] == 1


def test_the_trade_off_is_rounded_up():
    guarantee = promised(plan_of())
    rates = np.linspace(0, 1, 37)
    shown, exact = guarantee.trade_off(rates), guarantee._true_positive_rates(list(rates))
    assert np.all(shown >= exact)
    assert np.all(shown <= exact + 1e-4 + 1e-12)
    with pytest.raises(ArgumentError, match=r"^false_positive_rates=1.5: "):
        guarantee.trade_off([1.5])


def test_words_name_the_numbers_rounded_to_the_safe_side(seen):
    noise, attacker, signal, room = seen.words()
    assert room.startswith(seen.verdict)
    assert f"sigma = {seen.noise_multiplier:g}" in noise
    assert "31 coordinates" in noise
    found, belief = (float(text) for text in re.findall(r"at most ([\d.]+) %", attacker))
    bounds = seen.attack_bounds
    assert 0 <= found - 100 * bounds["true_positive_rate_at_1_percent"] < 0.11
    assert 0 <= belief - 100 * bounds["belief_from_half"] < 0.11
    once, mean = (float(text) for text in re.findall(r"at most ([\d.,]+) times", signal))
    assert 0 <= once / seen.signal_to_noise - 1 < 0.1
    assert 0 <= mean / seen.mean_signal_to_noise - 1 < 0.1
    assert "800 steps" in signal
    assert "larger than any signal" not in signal


@pytest.mark.parametrize(
    ("dimension", "once", "mean"),
    [(1, "46", "1 300"), (10**4, "0.46", "13"), (10**8, "0.0046", "0.13")],
)
def test_ratios_of_any_size_are_readable(seen, dimension, once, mean):
    words = dataclasses.replace(seen, noise_multiplier=1.0, dimension=dimension).words()[2]
    assert f"at most {once} times the noise" in words
    assert f"at most {mean} times in the mean of 800 steps." in words
    assert ("larger than any signal" in words) == (dimension == 10**8)


@pytest.mark.parametrize("dimension", [0, 2.5, "31"])
def test_an_unusable_dimension_is_named(dimension):
    with pytest.raises(ArgumentError, match=r"^dimension="):
        outlook(plan_of(), dimension)


def test_it_is_found_where_the_other_names_of_privacy_are():
    import workbench as wb

    assert wb.privacy.Outlook is Outlook
