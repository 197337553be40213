import dataclasses
import json
import math

import pytest
from scipy.stats import norm

from tests.conftest import some_of
from workbench._schema import FormError
from workbench.privacy.calibration import noise_multiplier
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.steps import LAWS

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
    noise_delta=1e-9,
    secure_randomness=True,
    caveats=("The number of records is public.", "Only this release counts."),
)
STOPPED = dataclasses.replace(DONE, steps_taken=300, epsilon_taken=0.625)


@pytest.mark.parametrize("guarantee", [DONE, STOPPED])
def test_survives_json(guarantee):
    assert Guarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee


def test_a_promise_with_many_digits_is_read_as_it_was_written():
    settings = PrivacySettings(1 / 3, 1e-5, 2000, 0.1, "without_replacement", 1.0, 2000, None)
    made = make_plan(settings, 2000).guarantee(
        steps_taken=2000, unit="record", dimension=50, caveats=()
    )
    assert Guarantee.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_headline_states_epsilon_delta_and_the_unit():
    headline = DONE.headline()
    assert "epsilon = 1.5" in headline
    assert "0.001 (delta)" in headline
    assert "adding or removing any one patient" in headline
    assert "(its place stays empty) changes any outcome's probability" in headline
    assert headline.startswith(
        "For each patient: there is a limit to how confidently anyone who sees this result can tell"
    )


def test_a_deleted_row_is_covered_only_where_records_are_rounded_one_by_one():
    """The headline has the condition, and the statement says that what is left out has no limit."""
    covered = dataclasses.replace(DONE, covers_deletion=True)
    replaced = dataclasses.replace(DONE, relation="replace_one", sampler="shuffle")
    for guarantee in (covered, replaced):
        assert "place" not in guarantee.headline().replace("replacing", "")
        assert "deleted" not in guarantee.statement()
    assert "grows without limit" in DONE.statement()


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({}, "With any one patient's place empty, "),
        ({"covers_deletion": True}, "With or without any one patient, "),
        ({"relation": "replace_one", "sampler": "shuffle"}, "With any one patient replaced, "),
        (
            {"relation": "replace_one", "sampler": "shuffle", "covers_deletion": True},
            "With any one patient replaced, ",
        ),
        ({"relation": "replace_special"}, "With any one patient blanked, "),
    ],
)
def test_the_brief_bound_is_that_of_its_relation(changes, begins):
    told = dataclasses.replace(DONE, **changes).in_brief()
    assert told == f"{begins}outcomes are at most 4.49 times as likely, plus 0.001 (delta)."


@pytest.mark.parametrize(
    ("epsilon", "hardly"), [(0.1, True), (1.0, True), (1.1, False), (30.0, False)]
)
def test_only_a_small_epsilon_hides_well(epsilon, hardly):
    headline = dataclasses.replace(DONE, epsilon=epsilon).headline()
    told = (
        "For each patient: somebody who sees this result can hardly tell whether that patient "
        "was in"
    )
    assert headline.startswith(told) == hardly
    assert (
        "there is a limit to how confidently anyone who sees this result can tell whether"
        in headline
    ) == (not hardly)


def test_bounds_in_the_statement_are_never_rounded_down():
    exact = dataclasses.replace(
        STOPPED, epsilon=1.2345671, delta=1.2345671e-5, epsilon_taken=0.12345671
    )
    statement = exact.statement()
    for bound in ("(epsilon = 1.23457)", "1.23457e-05 (delta)", "it is epsilon = 0.123457 "):
        assert bound in statement


def test_the_statement_can_be_printed_everywhere():
    assert dataclasses.replace(STOPPED, epsilon=12.0).statement().isascii()


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0, 13.9, 14.0, 40.0])
def test_factor_in_the_headline_is_not_understated(epsilon):
    headline = dataclasses.replace(DONE, epsilon=epsilon).headline()
    factor = float(headline.split("at most a factor of ")[1].split(" (")[0].replace(" ", ""))
    assert math.exp(epsilon) <= factor <= math.exp(epsilon) * 1.02


def test_headline_survives_an_enormous_epsilon():
    assert "epsilon = 5000" in dataclasses.replace(DONE, epsilon=5000.0).headline()


def test_statement_says_how_it_was_kept_and_on_what_conditions():
    statement = DONE.statement()
    assert statement.startswith(DONE.headline())
    for part in (
        "2 000 planned steps",
        "Poisson",
        "rate 0.1",
        "norm 0.7",
        "noise of 2.5 times",
        "PLD",
        "add or remove one",
    ):
        assert part in statement
    assert all(caveat in statement for caveat in DONE.caveats)
    assert "stopped" not in statement


def test_the_way_of_clipping_is_said():
    said = {
        "flat": "clipped to norm 0.7",
        "automatic": "scaled to norm 0.7 or a little less",
        "per_leaf": "clipped parameter by parameter, to norm 0.7 in total",
    }
    for clipping, words in said.items():
        assert words in dataclasses.replace(DONE, clipping=clipping).statement()


def test_statement_of_a_stopped_run_gives_both_epsilons():
    statement = STOPPED.statement()
    assert "stopped after 300 of 2 000 steps" in statement
    assert "is still epsilon = 1.5" in statement
    assert "epsilon = 0.625" in statement
    assert "not decided by looking at the outputs" in statement


def test_another_relation_is_said_in_its_own_words():
    headline = dataclasses.replace(DONE, relation="replace_one").headline()
    assert "replacing any one patient by another" in headline
    assert "whether that patient or another one was in the data" in headline


def test_a_blanked_record_is_said_in_its_own_words():
    headline = dataclasses.replace(DONE, sampler="shuffle", relation="replace_special").headline()
    assert "blanking any one patient in its place" in headline
    assert "whether that patient was in the data or blanked" in headline


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (
            "without_replacement",
            "minibatches without replacement, each with a share of 0.1 of the records",
        ),
        ("shuffle", "shuffled minibatches, each with a share of 0.1 of the records"),
    ],
)
def test_other_samplers_are_named_in_the_statement(sampler, words):
    assert (
        words
        in dataclasses.replace(
            DONE, sampler=sampler, relation="replace_one", noise_multiplier=9.0
        ).statement()
    )


# ---- what an attacker can do ---------------------------------------------------------------------


def made(epsilon, delta, sampler="poisson", steps=50, sampling_rate=0.1):
    """A guarantee as a plan makes it: with the noise that epsilon and delta need."""
    plan = {"sampler": sampler, "sampling_rate": sampling_rate, "steps": steps}
    return dataclasses.replace(
        DONE,
        epsilon=epsilon,
        delta=delta,
        relation=LAWS[sampler].relations[0],
        noise_multiplier=noise_multiplier(epsilon=epsilon, delta=delta, **plan),
        overflow_delta=0.0,
        noise_delta=0.0,
        **plan,
    )


def test_nearly_perfect_privacy_leaves_an_attacker_with_guessing():
    bounds = made(1e-3, 1e-9).attack_bounds()
    assert bounds["true_positive_rate_at_1_percent"] == pytest.approx(0.01, abs=2e-4)
    assert bounds["true_positive_rate_at_10_percent"] == pytest.approx(0.10, abs=2e-4)
    assert bounds["belief_from_half"] == pytest.approx(0.5, abs=1e-3)


def test_at_q_one_the_bounds_are_those_of_the_gaussian_mechanism():
    guarantee = made(2.0, 1e-5, sampling_rate=1.0)
    mu = math.sqrt(guarantee.steps) / guarantee.noise_multiplier
    bounds = guarantee.attack_bounds()
    for name, rate in (("1", 0.01), ("10", 0.10)):
        exact = norm.sf(norm.isf(rate) - mu)
        assert exact <= bounds[f"true_positive_rate_at_{name}_percent"] <= exact * 1.01 + 1e-4


@pytest.mark.parametrize("sampler", list(LAWS))
@pytest.mark.parametrize(("epsilon", "delta"), some_of([(0.3, 1e-6), (2.0, 1e-4), (8.0, 1e-5)]))
def test_the_trade_off_curve_says_more_than_epsilon_and_delta(sampler, epsilon, delta):
    bounds = made(epsilon, delta, sampler).attack_bounds()
    for name, rate in (("1", 0.01), ("10", 0.10)):
        region = min(math.exp(epsilon) * rate + delta, 1 - (1 - rate - delta) * math.exp(-epsilon))
        assert rate < bounds[f"true_positive_rate_at_{name}_percent"] < region


def test_where_only_epsilon_and_delta_help_they_count():
    """Noise that would not keep the promise by itself: the smaller of both bounds stands."""
    bounds = dataclasses.replace(
        DONE, noise_multiplier=0.5, epsilon=1.0, delta=1e-3
    ).attack_bounds()
    assert bounds["true_positive_rate_at_1_percent"] == pytest.approx(
        math.e * 0.01 + 1e-3, abs=1.01e-4
    )


def test_what_the_implementation_costs_is_added():
    guarantee = made(1.0, 1e-4)
    costly = dataclasses.replace(guarantee, overflow_delta=1e-3)
    plain, added = (
        each.attack_bounds()["true_positive_rate_at_1_percent"] for each in (guarantee, costly)
    )
    assert added == pytest.approx(plain + 1e-3, abs=2.1e-4)


def test_belief_is_that_of_bayes():
    bounds = made(1.0, 1e-4).attack_bounds()
    rate = bounds["true_positive_rate_at_1_percent"]
    assert bounds["belief_from_half"] == pytest.approx(rate / (rate + 0.01), abs=2e-3)


def test_attack_bounds_grow_with_epsilon_and_stay_probabilities():
    rows = [made(epsilon, 1e-5).attack_bounds() for epsilon in (0.01, 0.5, 2, 10, 50)]
    for name in rows[0]:
        values = [row[name] for row in rows]
        assert values == sorted(values)
        assert 0 < values[0] < values[-1] <= 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("look_noise", 1e9), ("noise_multiplier", 0.01), ("relation", "replace_one")],
)
def test_values_that_no_accountant_takes_are_not_read(field, value):
    """Their statement would end in an error."""
    with pytest.raises(FormError, match="relation" if field == "relation" else "noise_multiplier"):
        Guarantee.from_dict(DONE.to_dict() | {field: value})
