"""The guarantee of a choice, and the plan that keeps it."""

import dataclasses

import numpy as np
import pytest

from tests.privacy.test_selection import LOOK
from workbench import ArgumentError
from workbench._schema import FormError
from workbench.ledger.composition import total
from workbench.ledger.renyi_filter import Cap
from workbench.privacy import accounting, rdp, selection
from workbench.privacy.choosing import plan_choice
from workbench.privacy.chosen import Best, Chosen, EitherSide
from workbench.privacy.guarantee import Guarantee, check_epsilon
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.selection import Runs
from workbench.privacy.steps import Phase, Steps

RUNS = Runs.of_mean(20)
FACTS = {"unit": "patient", "dimension": 12, "caveats": ()}


def planned(*steps, epsilon=1.0, delta=1e-4, score_draws=41, runs=RUNS, look=0.0):
    run = {"delta": delta / runs.mean, "sampling_rate": 0.1, "sampler": "poisson", "clip": 1.0}
    run |= {"num_records": 5000, "seed": None, "look": look, "epsilon": epsilon / 1.7}
    plans = [
        make_plan(PrivacySettings(iterations=count, **run), 5000, look_size=100 if look else 0)
        for count in steps
    ]
    return plan_choice(
        plans,
        [12] * len(plans),
        epsilon=epsilon,
        delta=delta,
        runs=runs,
        score_draws=score_draws,
    )


def guarantee_of(plan, index=0):
    one = plan.plans[index]
    return plan.guarantee(one.guarantee(steps_taken=one.settings.iterations, **FACTS))


CHOICE = planned(300, 900, look=0.1)
CHOSEN = guarantee_of(CHOICE, 1)


def test_a_choice_is_planned_at_its_own_epsilon_and_delta():
    assert (CHOSEN.epsilon, CHOSEN.delta, CHOSEN.epsilon_taken) == (1.0, 1e-4, 1.0)
    assert CHOSEN.steps == CHOSEN.steps_taken == 900
    remaining = CHOSEN.delta - CHOSEN.overflow_delta - CHOSEN.noise_delta
    assert remaining > 0.95 * CHOSEN.delta
    law = RUNS, remaining
    drawn = tuple(Steps("poisson", "add_or_remove_one", phases) for phases in CHOSEN.candidates)
    assert [len(steps.phases) for steps in drawn] == [2, 2]  # each run looks anew
    fits = selection.epsilon(drawn, *law)
    score = Steps("poisson", "add_or_remove_one", (Phase(1.0, CHOSEN.score_noise, 1),))
    scores = selection.epsilon((score,), *law, beside=(score,))
    assert 0.99 < fits <= 1
    assert 0.999 < scores <= 1
    assert CHOSEN.accounted().epsilon(remaining) == max(fits, scores)


@pytest.mark.parametrize("score_draws", [0, 41])
def test_less_noise_than_planned_is_found_out(score_draws):
    plan = planned(300, score_draws=score_draws)
    chosen = guarantee_of(plan)
    check_epsilon(chosen)
    (phases,) = chosen.candidates
    quieter = ((*phases[:-1], phases[-1]._replace(noise_multiplier=0.97 * phases[-1][1])),)
    with pytest.raises(FormError, match="epsilon"):
        check_epsilon(dataclasses.replace(chosen, candidates=quieter))
    if score_draws:
        with pytest.raises(FormError, match="epsilon"):
            check_epsilon(dataclasses.replace(chosen, score_noise=0.97 * chosen.score_noise))
    else:
        assert chosen.score_noise == 0


def test_what_an_implementation_costs_counts_as_often_as_there_are_fits():
    plan = planned(300)
    one = guarantee_of(plan)
    single = plan.plans[0].guarantee(steps_taken=300, **FACTS)
    assert one.overflow_delta >= RUNS.mean * single.overflow_delta
    assert one.noise_delta > single.noise_delta
    assert one.expected_steps == pytest.approx(RUNS.mean * 300)
    with pytest.raises(ArgumentError, match="epsilon=40"):
        planned(300, epsilon=40.0)


def test_a_file_has_all_of_it():
    assert Guarantee.from_dict(CHOSEN.to_dict()) == CHOSEN
    assert isinstance(Guarantee.from_dict(CHOSEN.to_dict()), Chosen)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("candidates", []),
        ("candidates", [[]]),
        ("candidates", [[[0.1, 3.0]]]),
        ("candidates", [[[2.0, 3.0, 10]]]),
        ("candidates", "some"),
        ("runs", {"eta": 1.0, "gamma": 0.05}),
        ("runs", {"eta": 1.0, "gamma": 2.0, "most": 5}),
        ("runs", {"eta": 1.0, "gamma": 0.05, "most": 1}),
        ("score_noise", -1.0),
    ],
)
def test_a_damaged_file_is_refused(name, value):
    with pytest.raises(FormError, match=name):
        Guarantee.from_dict({**CHOSEN.to_dict(), name: value})


def test_the_statement_says_what_was_chosen_among_how_many():
    words = CHOSEN.statement()
    assert "20 on average and at most 200" in words
    assert "one of 2 candidates" in words
    assert f"noise of {CHOSEN.score_noise:g} times" in words
    assert "This is one choice." in words
    assert "This is one fit." not in words
    assert "scores of public records" in guarantee_of(planned(300, score_draws=0)).statement()


def test_attacks_are_bounded_by_the_whole_choice():
    bounds = CHOSEN.attack_bounds()
    one = CHOICE.plans[1].guarantee(steps_taken=900, **FACTS)
    rates = one.trade_off([0.01])[0], bounds["true_positive_rate_at_1_percent"]
    assert rates[0] < rates[1] <= min(1, accounting.region(1.0, 1e-4, 0.01) + 1e-4)


def test_a_total_is_between_what_is_certain_and_the_sum():
    fit = make_plan(
        PrivacySettings(1.0, 1e-4, 500, 0.1, "poisson", 1.0, 5000, None), 5000
    ).guarantee(steps_taken=500, **FACTS)
    with_fit, twice = total([CHOSEN, fit]), total([CHOSEN, CHOSEN])
    assert 1.2 < with_fit.epsilon < 1.9
    assert 1.5 < twice.epsilon < 2
    assert total([CHOSEN]).epsilon == 1.0
    beside = selection.epsilon(
        CHOSEN.accounted().sides[0].candidates, RUNS, 1e-4 * 0.98, beside=(fit.accounted(),)
    )
    assert with_fit.epsilon == pytest.approx(beside, rel=0.02)  # by another bound
    assert with_fit.method == "pld"


def test_a_cap_counts_a_choice_for_more_than_one_of_its_fits():
    cap = Cap.checked(8.0, 1e-3)
    single = CHOICE.plans[1].guarantee(steps_taken=900, **FACTS)
    assert cap.loss(CHOSEN).renyi > cap.loss(single).renyi
    assert 1 <= cap.how_many_more(CHOSEN, []) < cap.how_many_more(single, [])
    assert cap.largest_epsilon(CHOSEN, [CHOSEN] * 100) == 0


@pytest.mark.parametrize("order", [2, 8, 32])
def test_its_renyi_loss_covers_that_of_what_it_composes_as(order):
    bound = rdp.renyi_loss(CHOSEN.accounted(), order)
    for direction in ("remove", "add"):
        loss = CHOSEN.accounted().loss(direction)
        with np.errstate(divide="ignore"):
            exponents = np.log(loss.probabilities) + (order - 1) * loss.losses
        # rare losses alone, of a bound that is not tight there, may be more
        moment = np.log(np.exp(exponents[loss.losses < 3]).sum()) / (order - 1)
        assert moment <= bound * 1.01


def test_both_kinds_of_records_are_covered_when_a_choice_is_composed():
    """A table that is split anew may hold a record out here and fit it there."""
    steps = Steps("poisson", "add_or_remove_one", (LOOK, Phase(0.1, 40.0, 100)))
    loud = Steps("poisson", "add_or_remove_one", (Phase(1.0, 2.0, 1),))
    fits, scores = Best((steps,), RUNS), Best((loud,), RUNS, (loud,))
    quiet = EitherSide(steps.relation, (fits,))
    scored = EitherSide(steps.relation, (fits, scores))
    assert scored.epsilon(1e-5) > 2 * quiet.epsilon(1e-5)
    both = [accounting.total_epsilon((plan, steps), 1e-5) for plan in (quiet, scored)]
    assert both[1] > scored.epsilon(1e-5) > both[0]


def test_minibatches_of_all_candidates_count():
    (rare,) = CHOSEN.candidates[:1]
    often = (*rare[:-1], rare[-1]._replace(sampling_rate=0.3))
    both = dataclasses.replace(CHOSEN, candidates=(rare, often))
    assert both.sampling_rates == {0.1, 0.3}
