import functools
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom, norm

from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.auditing import bounds as audit
from workbench.auditing.bounds import (
    epsilon_lower_bound,
    one_run_epsilon_lower_bound,
    one_run_p_value,
    usual_guesses,
)


def gaussian_epsilon(mu, delta):
    """Exact epsilon of N(mu, 1) against N(0, 1), both directions (Balle and Wang 2018,
    theorem 8).
    """

    def excess(epsilon):
        return (
            norm.cdf(mu / 2 - epsilon / mu)
            - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            - delta
        )

    return brentq(excess, 0, 60)


def assert_rate(violations, repeats, allowed):
    """One-sided binomial test that violations happen with probability at most ``allowed``; false
    alarms 1e-6.
    """
    assert violations <= binom.isf(1e-6, repeats, allowed), (
        f"{violations} of {repeats} where {allowed:g} is allowed"
    )


# --- many runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "delta"), some_of([(0.5, 1e-2), (1.0, 1e-5), (2.0, 1e-3)]))
def test_bound_of_a_gaussian_mechanism_stays_under_its_epsilon(mu, delta):
    """At 90 % confidence at most 10 % of the bounds may lie above. False alarms one seed in a
    million for each case.
    """
    random, true, repeats = np.random.default_rng(0), gaussian_epsilon(mu, delta), 400
    bounds = [
        epsilon_lower_bound(random.normal(mu, 1, 400), random.normal(0, 1, 400), delta, 0.9)[0]
        for _ in range(repeats)
    ]
    print(
        f"mu {mu}: epsilon {true:.3f}, mean bound {np.mean(bounds):.3f}, largest {max(bounds):.3f}"
    )
    assert_rate(sum(bound > true for bound in bounds), repeats, 0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_bound_is_valid_and_not_idle_where_one_event_attains_epsilon(delta):
    """Randomised response that shows its answer with probability delta: the best event is plain, so
    Clopper-Pearson is all that keeps the bound under epsilon. False alarms one seed in a million.
    """
    random, epsilon, repeats, trials = np.random.default_rng(1), 1.5, 1000, 300
    right = expit(epsilon)

    def answers(truth):
        honest = np.where(random.random(trials) < right, truth, 1 - truth).astype(float)
        return np.where(random.random(trials) < delta, truth * 3.0 - 1, honest)  # -1 and 2: shown

    bounds = np.array(
        [epsilon_lower_bound(answers(1), answers(0), delta, 0.8)[0] for _ in range(repeats)]
    )
    assert_rate(int(np.sum(bounds > epsilon)), repeats, 0.2)
    # a bound that is never wrong would be too weak
    assert np.sum(bounds > epsilon) > 0.01 * repeats
    assert np.mean(bounds) > 0.6 * epsilon


@pytest.mark.thorough
def test_choosing_and_counting_on_the_same_trials_would_be_wrong():
    """Fifty random scores: the best looks like a leak on the trials that chose it, but not on fresh
    trials.
    """
    random, repeats, confidence = np.random.default_rng(2), 30, 0.95
    honest = dishonest = 0
    for _ in range(repeats):
        inside, outside = random.normal(size=(2, 400, 50))
        honest += epsilon_lower_bound(inside, outside, 0.0, confidence).epsilon > 0
        test = audit._best_test(inside[::2], outside[::2], 0.0, confidence)
        dishonest += (
            audit._log_ratio(*audit._counts(test, inside[::2], outside[::2]), 0.0, confidence) > 0
        )
    assert_rate(honest, repeats, 1 - confidence)
    assert dishonest > repeats / 2


def test_bound_grows_with_trials_and_finds_too_little_noise():
    """A mechanism with half of the claimed noise is clearly refuted."""
    random, delta, trials = np.random.default_rng(3), 1e-2, 10_000
    claimed = gaussian_epsilon(0.5, delta)
    few, many = (
        epsilon_lower_bound(random.normal(1, 1, n), random.normal(0, 1, n), delta, 0.999)[0]
        for n in (500, trials)
    )
    sound = epsilon_lower_bound(
        random.normal(0.5, 1, trials), random.normal(0, 1, trials), delta, 0.999
    )[0]
    print(
        f"claimed {claimed:.3f}: sound {sound:.3f}, half the noise {many:.3f} ({few:.3f} from "
        "500 trials)"
    )
    assert few < many
    assert sound < claimed < 1.3 * claimed < many


def test_absence_may_be_the_evidence():
    """Runs without the canary sometimes reveal it with certainty; runs with it never reveal
    anything.
    """
    scores_in, scores_out = np.zeros(2000), np.where(np.arange(2000) // 2 % 4 == 0, -1.0, 0.0)
    bound = epsilon_lower_bound(scores_in, scores_out, 0.01)
    assert bound.epsilon > 3
    assert (
        bound.evidence == "less than 0 in 250 of 1000 runs without the canary and in 0 of 1000 with"
    )


def test_the_score_that_tells_most_is_chosen():
    random = np.random.default_rng(4)
    inside, outside = random.normal(size=(2, 2000, 3))
    inside[:, 1] += 2
    bound = epsilon_lower_bound(inside, outside, 0.0)
    assert bound.score == 1
    assert bound.epsilon == pytest.approx(
        epsilon_lower_bound(inside[:, 1], outside[:, 1], 0.0).epsilon
    )


def test_scores_that_say_nothing_or_the_contrary_bound_nothing():
    same = np.zeros(100)
    assert epsilon_lower_bound(same, same, 0.0).epsilon == 0
    assert epsilon_lower_bound(same, same + 1, 0.0).epsilon == 0  # higher must speak for the canary
    assert epsilon_lower_bound(same + 1, same, 0.999).epsilon == 0


def test_perfect_scores_prove_what_the_number_of_trials_allows():
    trials = 2000
    epsilon = epsilon_lower_bound(np.full(trials, np.inf), np.full(trials, -np.inf), 0.0).epsilon
    assert math.log(trials / 8) < epsilon < math.log(trials / 7)


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("scores_in", {"scores_in": [1.0, 2.0, 3.0]}),
        ("scores_in", {"scores_in": np.full(10, np.nan)}),
        ("scores_out", {"scores_out": np.zeros((10, 2))}),
        ("scores_out", {"scores_out": np.zeros((10, 2, 2))}),
        ("delta", {"delta": 1.0}),
        ("delta", {"delta": -0.1}),
        ("confidence", {"confidence": 1.0}),
    ],
)
def test_bad_arguments_of_many_runs_are_named(argument, change):
    arguments = {
        "scores_in": np.zeros(10),
        "scores_out": np.zeros(10),
        "delta": 0.1,
        "confidence": 0.9,
    } | change
    with pytest.raises(ArgumentError) as caught:
        epsilon_lower_bound(**arguments)
    assert caught.value.argument == argument


# --- one run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "delta", "published"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_published_bounds_are_met(canaries, guesses, correct, delta, published):
    """Printed in arXiv 2305.08846v1: appendix D, page 46 (rounded), and section 7, page 28 (cut
    off).
    """
    assert audit._smallest_epsilon(canaries, guesses, correct, delta, 0.05) == pytest.approx(
        published, abs=1e-3
    )


def test_p_value_without_delta_is_the_binomial_tail():
    assert one_run_p_value(50, 20, 17, 0.7, 0.0) == pytest.approx(binom.sf(16, 20, expit(0.7)))
    assert one_run_p_value(50, 20, 0, 0.7, 0.1) == 1


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-4, 1e-3])
@pytest.mark.parametrize(
    ("guesses", "correct"), [(1, 1), (20, 13), (100, 100), (100, 61), (900, 700)]
)
def test_p_value_grows_with_epsilon_while_it_can_refute(guesses, correct, delta):
    """The search for the bound stops at the first epsilon that is not refuted, so none below may be
    accepted.
    """
    values = np.array(
        [
            one_run_p_value(1000, guesses, correct, epsilon, delta)
            for epsilon in np.linspace(0, 8, 200)
        ]
    )
    falls = np.diff(values) < -1e-12
    assert not np.any(falls & (values[1:] < 0.4))


def included_at_random(random, size):
    return random.random(size) < 0.5


@pytest.mark.parametrize(("epsilon", "delta"), some_of([(1.0, 0.0), (1.0, 1e-3), (0.0, 1e-3)], 3))
def test_one_run_of_randomised_response_stays_under_its_epsilon(epsilon, delta, monkeypatch):
    """Each coin is answered by randomised response, or shown with probability delta: with all
    answers guessed the bound is close to exact. At 80 % confidence at most 20 % may lie above;
    false alarms one seed in a million.
    """
    # the bound follows from the number of right guesses
    monkeypatch.setattr(audit, "_smallest_epsilon", functools.cache(audit._smallest_epsilon))
    random, repeats, size = np.random.default_rng(5), 400, 200
    bounds = []
    for _ in range(repeats):
        coins = included_at_random(random, size)
        answers = np.where(random.random(size) < expit(epsilon), coins, ~coins)
        scores = np.where(random.random(size) < delta, coins * 3.0 - 1, answers)
        bounds.append(
            one_run_epsilon_lower_bound(scores, coins, delta, 0.8, [(size // 2, size // 2)])[0]
        )
    assert_rate(sum(bound > epsilon for bound in bounds), repeats, 0.2)
    assert epsilon == 0 or np.mean(bounds) > 0.4 * epsilon


@pytest.mark.thorough
@pytest.mark.parametrize(
    "mu",
    [
        0.5,
        pytest.param(1.0, marks=pytest.mark.statistical),
        pytest.param(2.0, marks=pytest.mark.statistical),
        pytest.param(4.0, marks=pytest.mark.thorough),
    ],
)
def test_one_run_with_gaussian_scores_stays_under_epsilon(mu):
    """m independent Gaussian mechanisms; the usual guesses, at 90 % confidence. False alarms one
    seed in a million.
    """
    random, repeats, size, delta = np.random.default_rng(6), 60, 1000, 1e-6
    true, bounds = gaussian_epsilon(mu, delta), []
    for _ in range(repeats):
        coins = included_at_random(random, size)
        bounds.append(
            one_run_epsilon_lower_bound(random.normal(mu * coins, 1), coins, delta, 0.9)[0]
        )
    print(
        f"mu {mu}: epsilon {true:.2f}, mean bound {np.mean(bounds):.2f}, largest {max(bounds):.2f}"
    )
    assert_rate(sum(bound > true for bound in bounds), repeats, 0.1)
    assert np.mean(bounds) > min(0.25 * true, 4)


@pytest.mark.parametrize("kinds", some_of([1, 20], 2))
def test_one_run_counts_every_test_it_makes(kinds):
    """Random scores, up to twenty per canary: a bound above zero is a false alarm, for at most 20 %
    of the seeds.
    """
    random, repeats, size = np.random.default_rng(7), 150, 200
    found = 0
    for _ in range(repeats):
        scores, coins = random.normal(size=(size, kinds)), included_at_random(random, size)
        found += one_run_epsilon_lower_bound(scores, coins, 0.0, 0.8).epsilon > 0
    assert_rate(found, repeats, 0.2)


def test_one_run_tells_which_score_and_which_guesses():
    coins = np.arange(640) % 2 == 0
    scores = np.stack([np.zeros(640), coins.astype(float)], axis=1)
    bound = one_run_epsilon_lower_bound(scores, coins, 1e-9)
    assert bound.score == 1
    assert bound.evidence.startswith(
        "320 of 320 guesses that a canary is in and 0 of 0 that it is out are right"
    )
    assert math.log(640 / 12) < bound.epsilon < math.log(640 / 8)


def test_one_run_without_evidence_or_with_a_large_delta_bounds_nothing():
    coins = np.arange(200) % 2 == 0
    assert one_run_epsilon_lower_bound(np.zeros(200), coins, 0.0).epsilon == 0
    assert one_run_epsilon_lower_bound(coins.astype(float), coins, 0.5).epsilon == 0


def test_usual_guesses_depend_on_the_number_of_canaries_alone_and_fit_into_it():
    assert usual_guesses(1000) == ((500, 0), (250, 250), (125, 0), (63, 62), (31, 0), (16, 15))
    for size in range(2, 200):
        assert all(1 <= sum(pair) <= size and min(pair) >= 0 for pair in usual_guesses(size))


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("scores", {"scores": [1.0]}),
        ("included", {"included": np.ones(9, bool)}),
        ("included", {"included": np.ones(10)}),
        ("guesses", {"guesses": [(6, 5)]}),
        ("guesses", {"guesses": [(0, 0)]}),
        ("guesses", {"guesses": [(-1, 5)]}),
        ("delta", {"delta": 2}),
        ("confidence", {"confidence": 0}),
    ],
)
def test_bad_arguments_of_one_run_are_named(argument, change):
    arguments = {"scores": np.zeros(10), "included": np.ones(10, bool), "delta": 0.1} | change
    with pytest.raises(ArgumentError) as caught:
        one_run_epsilon_lower_bound(**arguments)
    assert caught.value.argument == argument
