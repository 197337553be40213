import dataclasses
import json
import math

import pytest

from workbench.privacy.guarantee import Guarantee

DONE = Guarantee(
    epsilon=1.5,
    delta=1e-3,
    relation="add_or_remove_one",
    unit="patient",
    sampler="poisson",
    sampling_rate=0.1,
    noise_multiplier=2.5,
    clip=0.7,
    steps=2000,
    steps_taken=2000,
    epsilon_taken=1.5,
    num_records=455,
    accountant="pld",
    overflow_delta=1e-7,
    truncation_delta=1e-9,
    secure_randomness=True,
    caveats=("The number of records is public.", "Only this release counts."),
)
STOPPED = dataclasses.replace(DONE, steps_taken=300, epsilon_taken=0.625)


@pytest.mark.parametrize("guarantee", [DONE, STOPPED])
def test_survives_json(guarantee):
    assert Guarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee


def test_headline_states_epsilon_delta_and_the_unit():
    headline = DONE.headline()
    assert "epsilon = 1.5" in headline
    assert "0.001 (delta)" in headline
    assert "adding or removing any one patient" in headline


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0, 13.9, 14.0, 40.0])
def test_factor_in_the_headline_is_not_understated(epsilon):
    headline = dataclasses.replace(DONE, epsilon=epsilon).headline()
    factor = float(headline.split("factor of at most ")[1].split(" ")[0].replace(",", ""))
    assert math.exp(epsilon) <= factor <= math.exp(epsilon) * 1.02


def test_headline_survives_an_enormous_epsilon():
    assert "epsilon = 5000" in dataclasses.replace(DONE, epsilon=5000.0).headline()


def test_statement_says_how_it_was_kept_and_on_what_conditions():
    statement = DONE.statement()
    assert statement.startswith(DONE.headline())
    for part in ("2,000 planned steps", "poisson", "rate 0.1", "norm 0.7", "noise of 2.5 times", "PLD", "add_or_remove_one"):
        assert part in statement
    assert all(caveat in statement for caveat in DONE.caveats)
    assert "stopped" not in statement


def test_statement_of_a_stopped_run_gives_both_epsilons():
    statement = STOPPED.statement()
    assert "stopped after 300 of 2,000 steps" in statement
    assert "stays epsilon = 1.5" in statement
    assert "epsilon = 0.625" in statement
    assert "not decided by looking at the outputs" in statement


def test_another_relation_is_said_in_its_own_words():
    headline = dataclasses.replace(DONE, relation="replace_one").headline()
    assert "replacing any one patient by another" in headline


def attack(epsilon, delta):
    return dataclasses.replace(DONE, epsilon=epsilon, delta=delta).attack_bounds()


def test_perfect_privacy_leaves_an_attacker_with_guessing():
    bounds = attack(1e-12, 1e-12)
    assert bounds["true_positive_rate_at_1_percent"] == pytest.approx(0.01, abs=1.01e-4)
    assert bounds["true_positive_rate_at_10_percent"] == pytest.approx(0.10, abs=1.01e-4)
    assert bounds["belief_from_half"] == pytest.approx(0.5, abs=1.01e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-3), (3.0, 0.01), (1.0, 0.0)])
def test_attack_bounds_are_the_region_of_epsilon_and_delta(epsilon, delta):
    """For every test TPR <= e^epsilon FPR + delta, and for its negation 1 - FPR <= e^epsilon (1 - TPR) + delta."""
    bounds = attack(epsilon, delta)
    for name, false_positives in (("1", 0.01), ("10", 0.10)):
        grow = math.exp(epsilon)
        exact = min(grow * false_positives + delta, 1 - (1 - false_positives - delta) / grow)
        assert exact <= bounds[f"true_positive_rate_at_{name}_percent"] <= exact + 1.01e-4


def test_belief_is_that_of_bayes():
    rate = math.e * 0.01 + 1e-3
    assert attack(1.0, 1e-3)["belief_from_half"] == pytest.approx(rate / (rate + 0.01), abs=1.01e-4)


def test_attack_bounds_grow_with_epsilon_and_stay_probabilities():
    epsilons = [1e-6, 0.01, 0.1, 0.5, 1, 2, 4, 5, 10, 100, 1000]
    rows = [attack(epsilon, 1e-5) for epsilon in epsilons]
    for name in rows[0]:
        values = [row[name] for row in rows]
        assert values == sorted(values)
        assert 0 < values[0] < values[-1] <= 1
