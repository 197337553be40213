"""The best of K private runs: that its epsilon is never too small, and little too large."""

import functools
import itertools
import math
import secrets

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp import compute_epsilon as epsilon_of_renyi
from scipy import fft, special
from scipy.optimize import brentq

from tests.conftest import some_of
from workbench import ArgumentError
from workbench.privacy import attacker, noise_multiplier, selection
from workbench.privacy.calibration import Candidate, noise_of_candidates
from workbench.privacy.selection import _POWERS, Runs
from workbench.privacy.steps import Phase, Steps

LOOK = Phase(1.0, 20.0, 1)
LAWS = [Runs(0.0, 0.01, 200), Runs(1.0, 0.05, 200), Runs(-0.5, 0.02, 40), Runs(3.0, 0.3, 7)]


# --- the law of K ---------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", LAWS, ids=str)
def test_the_law_is_papernots_and_steinkes_up_to_the_largest_number(runs):
    k = np.arange(1, runs.most + 1)
    weights = (1 - runs.gamma) ** k * np.exp(
        special.gammaln(k + runs.eta) - special.gammaln(k + 1) - special.gammaln(1 + runs.eta)
    )
    np.testing.assert_allclose(runs.probabilities, weights / weights.sum(), rtol=1e-12)
    assert sum(runs.weights) == 2**128
    assert min(runs.weights) >= 0
    assert runs.mean == pytest.approx(k @ weights / weights.sum(), rel=1e-12)


def generating_function(runs, z):
    """E[z^K] at z in [0, 1]."""
    return np.polynomial.polynomial.polyval(z, [0.0, *runs.probabilities])


@pytest.mark.parametrize(("eta", "gamma"), [(0.0, 0.02), (1.0, 0.1), (0.5, 0.05)])
def test_with_room_the_law_is_the_one_in_closed_form(eta, gamma):
    runs = Runs(eta, gamma, 5000)
    z = np.array([0.2, 0.7, 0.99])
    if eta == 0:
        mean = (1 / gamma - 1) / math.log(1 / gamma)
        values = np.log(1 - (1 - gamma) * z) / math.log(gamma)
    else:
        mean = eta * (1 - gamma) / (gamma * (1 - gamma**eta))
        values = ((1 - (1 - gamma) * z) ** -eta - 1) / (gamma**-eta - 1)
    assert runs.mean == pytest.approx(mean, rel=1e-12)
    np.testing.assert_allclose(generating_function(runs, z), values, rtol=1e-10)


@pytest.mark.parametrize("runs", LAWS, ids=str)
def test_each_number_of_runs_has_exactly_its_share_of_all_secrets(runs):
    reached = 0
    for number, weight in enumerate(runs.weights, start=1):
        if weight:
            for inside in (reached, reached + weight - 1):
                assert runs.draw(inside.to_bytes(16, "little")) == number
        reached += weight


@pytest.mark.parametrize("mean", [1.5, 20, 400])
def test_a_mean_is_met(mean):
    runs = Runs.of_mean(mean)
    assert runs.mean == pytest.approx(mean, rel=1e-5)
    assert runs.most == math.ceil(10 * mean)
    assert runs == eval(repr(runs))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Runs(-1.0, 0.1, 10), "eta"),
        (lambda: Runs(0.0, 0.0, 10), "gamma"),
        (lambda: Runs(0.0, 1.0, 10), "gamma"),
        (lambda: Runs(0.0, 0.1, 1), "most"),
        (lambda: Runs.of_mean(1.0), "mean"),
        (lambda: Runs.of_mean(20, most=25), "most"),
        (lambda: Runs.of_mean(5).draw(b"123"), "secret"),
        (lambda: selection.epsilon((), Runs.of_mean(5), 1e-5), "candidates"),
        (lambda: selection.epsilon((fit(0.1, 1.0, 10),), Runs.of_mean(5), 1.0), "delta"),
        (lambda: selection.delta((fit(0.1, 1.0, 10),), Runs.of_mean(5), -1.0), "epsilon"),
        (lambda: selection.renyi_excess((fit(0.1, 1.0, 10),), Runs.of_mean(5), 1.0), "order"),
    ],
)
def test_what_cannot_be_used_is_named(make, argument):
    with pytest.raises(ArgumentError) as error:
        make()
    assert error.value.argument == argument


def test_an_error_does_not_show_the_secret():
    with pytest.raises(ArgumentError) as error:
        Runs.of_mean(5).draw(b"my secret")
    assert "my secret" not in str(error.value)


def test_candidates_of_two_relations_are_refused():
    other = Steps.checked("shuffle", "replace_one", 0.1, 1.0, 10)
    with pytest.raises(ArgumentError, match="same relation"):
        selection.epsilon((fit(0.1, 1.0, 10), other), Runs.of_mean(5), 1e-5)


# --- the bound, against the exact law of what is published ----------------------------------------


def divergence(p, q, epsilons):
    """delta of p against q at each epsilon, of any sign."""
    return np.maximum(p - np.exp(epsilons)[..., None] * q, 0).sum(axis=-1)


def published(outcomes, scores, probabilities):
    """The law of the best of K independent outcomes, where ties are broken at random."""
    counts = np.arange(1, len(probabilities) + 1)
    law = np.zeros_like(outcomes)
    for score in np.unique(scores):
        equal = scores == score
        below = outcomes[scores < score].sum()
        chances = np.array([below, below + outcomes[equal].sum()])
        powers = (probabilities * chances[:, None] ** counts).sum(axis=1)
        if chances[1] > chances[0]:
            law[equal] = outcomes[equal] * (powers[1] - powers[0]) / (chances[1] - chances[0])
    return law


def claimed(runs, p, q, epsilons):
    """What the module says of the delta of the published outcome, from the exact delta of a run."""
    weights, shifts = runs.terms(divergence(p, q, _POWERS), divergence(q, p, _POWERS))
    return np.array([weights @ divergence(p, q, epsilon - shifts) for epsilon in epsilons])


def test_the_first_of_the_best_runs_has_the_law_of_ties_that_are_broken_at_random():
    outcomes, scores = np.array([0.5, 0.2, 0.3]), np.array([1, 0, 1])
    runs = Runs(0.0, 0.3, 4)
    law = np.zeros(3)
    for count, chance in enumerate(runs.probabilities, start=1):
        for several in itertools.product(range(3), repeat=count):
            first = max(several, key=lambda outcome: scores[outcome])  # the first of the largest
            law[first] += chance * math.prod(outcomes[outcome] for outcome in several)
    np.testing.assert_allclose(law, published(outcomes, scores, runs.probabilities), rtol=1e-12)


def discrete_pairs(random, count):
    """Made-up (runs, P, Q, scores) with ties, and outcomes that only one of the two has."""
    for _ in range(count):
        size = random.integers(2, 8)
        p = random.dirichlet(np.full(size, 10.0 ** random.uniform(-1, 1)))
        q = p * np.exp(random.normal(0, random.choice([0.1, 0.5, 2.0]), size))
        if random.random() < 0.3:
            (p if random.random() < 0.5 else q)[random.integers(size)] = 0.0
        runs = Runs(
            float(random.choice([-0.7, 0.0, 0.5, 1.0, 3.0])),
            float(10 ** random.uniform(-3, -0.05)),
            int(random.choice([2, 3, 10, 40, 200])),
        )
        yield runs, p / p.sum(), q / q.sum(), random.integers(0, random.integers(1, size + 1), size)


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 60), pytest.param(1, 3000, marks=pytest.mark.thorough)]
)
def test_no_order_of_few_outcomes_costs_more_than_is_claimed(seed, count):
    epsilons = np.concatenate([[0.0], np.geomspace(0.01, 8, 25)])
    for runs, p, q, scores in discrete_pairs(np.random.default_rng(seed), count):
        exact = divergence(
            published(p, scores, runs.probabilities),
            published(q, scores, runs.probabilities),
            epsilons,
        )
        assert np.all(exact <= claimed(runs, p, q, epsilons) + 1e-14)


def test_what_is_beside_the_best_run_composes_with_it():
    epsilons = np.linspace(0.0, 4.0, 9)
    for runs, p, q, scores in discrete_pairs(np.random.default_rng(2), 40):
        a, b = np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.1, 0.5])
        best = [published(law, scores, runs.probabilities) for law in (p, q)]
        exact = divergence(np.outer(best[0], a).ravel(), np.outer(best[1], b).ravel(), epsilons)
        weights, shifts = runs.terms(divergence(p, q, _POWERS), divergence(q, p, _POWERS))
        both = np.outer(p, a).ravel(), np.outer(q, b).ravel()
        claims = [weights @ divergence(*both, epsilon - shifts) for epsilon in epsilons]
        assert np.all(exact <= np.array(claims) + 1e-14)


@pytest.mark.parametrize("order", some_of([1.5, 2, 8, 32]))
def test_renyi_moments_are_bounded_by_the_same_terms(order):
    for runs, p, q, scores in discrete_pairs(np.random.default_rng(3), 60):
        if np.any((p > 0) & (q == 0)):
            continue
        best = [published(law, scores, runs.probabilities) for law in (p, q)]
        moments = [np.nansum(x**order * y ** (1 - order)) for x, y in ((p, q), best)]
        weights, shifts = runs.terms(divergence(p, q, _POWERS), divergence(q, p, _POWERS))
        assert moments[1] <= moments[0] * (weights @ np.exp((order - 1) * shifts))


@pytest.mark.parametrize("runs", some_of(LAWS), ids=str)
def test_an_adversarial_order_costs_almost_all_that_is_claimed(runs):
    """First what is likelier under Q, so that few better outcomes become many; then what tells."""
    rare, shift = 1e-6, 0.5
    best, worst = np.geomspace(1e-5, 0.3, 60), 0.0
    for first in best:
        p = np.array([rare, first, 1 - rare - first])
        q = np.array([rare * 1e-9, min(first * math.exp(shift), 0.9), 0.0])
        q[2] = 1 - q[0] - q[1]
        laws = [published(law, np.array([1, 2, 0]), runs.probabilities) for law in (p, q)]
        epsilons = np.linspace(0.2, 2, 30)
        ratio = divergence(*laws, epsilons) / claimed(runs, p, q, epsilons)
        worst = max(worst, ratio.max())
        assert ratio.max() <= 1
    assert worst > 0.99


def test_a_fixed_number_of_runs_breaks_the_claim():
    runs = Runs(0.0, 0.01096, 2000)
    twenty = np.eye(20)[19]
    p, q = np.array([0.01, 0.99]), np.array([0.02, 0.98])
    epsilons, scores = np.array([1.0, 2.0]), np.array([0, 1])
    laws = [published(law, scores, twenty) for law in (q, p)]
    assert divergence(*laws, epsilons).max() > claimed(runs, q, p, epsilons).max()


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0])
def test_a_largest_number_of_runs_costs_nothing(eta):
    mu = 0.3
    own = np.array([selection.accounting.GaussianLoss(mu).delta(e) for e in _POWERS])
    shifts = [Runs(eta, 0.01, most).terms(own, own)[1][-1] for most in (20, 100, 500, 5000)]
    assert np.all(np.diff(shifts) >= -1e-6)


def test_a_drawn_candidate_costs_the_mean_of_deltas():
    """As which of them was drawn is known, they are one run with the outcomes of both."""
    runs, (cheap, dear) = Runs.of_mean(5), (fit(1.0, 9.0, 1), fit(1.0, 4.5, 1))

    def exact(*noise):
        losses = [selection.accounting.GaussianLoss(1 / sigma) for sigma in noise]
        return lambda e: np.mean(
            [
                [loss.delta(x) if x >= 0 else 1 - math.exp(x) * (1 - loss.delta(-x)) for x in e]
                for loss in losses
            ],
            axis=0,
        )

    for candidates, noise in (((cheap, dear), (9.0, 4.5)), ((dear, cheap, dear), (9.0, 4.5, 4.5))):
        epsilon = selection.epsilon(candidates, runs, 1e-4)
        delta = exact(*noise)
        weights, shifts = runs.terms(delta(_POWERS), delta(_POWERS))
        assert weights @ delta(epsilon - shifts) == pytest.approx(1e-4, rel=1e-3)
    assert (
        selection.epsilon((cheap,), runs, 1e-4) < epsilon < selection.epsilon((dear,), runs, 1e-4)
    )
    assert selection.epsilon((dear, dear), runs, 1e-4) == selection.epsilon((dear,), runs, 1e-4)


# --- plans ----------------------------------------------------------------------------------------


def fit(rate, sigma, steps, *before):
    """Steps sampled by Poisson, after others."""
    return Steps("poisson", "add_or_remove_one", (*before, Phase(rate, sigma, steps)))


@functools.cache
def runs_of(mean, eta=0.0):
    return Runs.of_mean(mean, eta, most=min(60 * mean, 3000))


def independent(rate, sigma, steps, look, runs, delta):
    """(epsilon of the best of K, that of the simpler bound) from dp-accounting's losses.

    Coded anew: an integral of g over the losses, with the maximum over u on a grid.
    """
    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), steps
    )
    width = min(1e-3, max(1e-5, rate / sigma / 40))
    accountant = PLDAccountant(value_discretization_interval=width).compose(event)
    if look:
        accountant.compose(dp_event.GaussianDpEvent(look))
    pld = accountant._pld
    directions = [pmf.to_dense_pmf() for pmf in (pld._pmf_remove, pld._pmf_add)]
    powers = np.linspace(-8, 8, 1601)
    u = np.concatenate([[0.0], np.geomspace(1e-9, 1, 4000)])
    k = np.arange(1, runs.most + 1)

    def h(ranks):
        """By the derivative of the sum for the law without a largest number, which none reaches."""
        if runs.eta == 0:
            return (
                (1 - runs.gamma) / (runs.gamma + (1 - runs.gamma) * ranks) / -math.log(runs.gamma)
            )
        scale = runs.eta * (1 - runs.gamma) / (runs.gamma**-runs.eta - 1)
        return scale * (runs.gamma + (1 - runs.gamma) * ranks) ** (-1 - runs.eta)

    mean = k @ runs.probabilities
    best, simple = 0.0, 0.0
    for own, reverse in (directions, directions[::-1]):
        deltas = np.array(reverse.get_delta_for_epsilon(list(powers)))
        reached = np.full(len(u), 1.0)
        for power, value in zip(powers, deltas, strict=True):
            reached = np.minimum(reached, math.exp(power) * u + value)
        top, bottom = h(u), h(reached)
        log_r = math.log((top / bottom).max())
        simple = max(simple, own.get_epsilon_for_delta(delta / mean) + log_r)
        losses = (own._lower_loss + np.arange(len(own._probs))) * own._discretization
        v = np.exp(log_r - np.append(np.geomspace(30, 1e-4, 1500), 0.0))
        g = np.array([max((top - bottom * factor).max(), 0.0) for factor in v])

        def excess(epsilon, own=own, losses=losses, v=v, g=g):
            values = np.interp(np.exp(epsilon - losses), v, g, left=mean, right=0.0)
            return own._probs @ values + own._infinity_mass * mean - delta

        best = max(best, brentq(excess, 0, 60, xtol=1e-6) if excess(0) > 0 else 0.0)
    return best, simple


def attacked(rate, sigma, steps, runs, delta, near):
    """An epsilon that an adversarial score reaches, with a pair of data sets that is computed
    exactly: a lower bound.

    :param near: about what it is, where the search begins.
    """
    step = attacker._merged(attacker._Step(rate, 1 / sigma, 0.0))
    size = 2**16
    masses = np.bincount(step.multiples % size, weights=step.probabilities, minlength=size)
    window = round(steps * step.cumulant(0.0)[1] / step.width) + np.arange(size) - size // 2
    present = fft.irfft(fft.rfft(masses) ** steps, size)[window % size]
    absent = present * np.exp(-window * step.width)
    # beyond the rounding of the transform; all others are one outcome, the worst
    sure = (present > 1e-13) & (absent > 1e-13)
    present, absent = present[sure], absent[sure]
    assert max(present.sum(), absent.sum()) < 1 + 1e-9
    best = 0.0
    for p, q in ((present, absent), (absent, present)):
        losses = np.log(p / q)
        rank = np.cumsum(p[np.argsort(losses)])[np.argsort(np.argsort(losses))]
        for first in np.geomspace(runs.gamma / 3, 6 * runs.gamma, 5):
            for telling in near * np.array([0.45, 0.65, 0.8]):
                # outcomes that tell P from Q come behind a share of those that tell Q from P
                order = np.argsort(np.where(losses > telling, first - 1e-9 * losses, rank))
                laws = []
                for law in (p, q):
                    better = np.minimum(np.cumsum(law[order]), 1.0)
                    powers = generating_function(runs, 1 - np.concatenate([[0.0], better]))
                    laws.append(-np.diff(powers))

                def gap(epsilon, laws=laws):
                    return float(divergence(*laws, np.array(epsilon))) - delta

                if gap(best) > 0:
                    best = brentq(gap, best, 60, xtol=1e-6)
    return best


def renyi(rate, sigma, steps, runs, delta):
    """Theorem 2 of Papernot and Steinke 2022, for eta >= 0."""
    orders = np.array([*(1 + np.arange(1, 100) / 20), *range(6, 128), 160, 256, 512, 1024])
    accountant = RdpAccountant(orders)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), steps)
    base, eta, gamma = accountant._rdp, runs.eta, runs.gamma
    second = ((1 + eta) * ((1 - 1 / orders) * base + math.log(1 / gamma) / orders)).min()
    tuned = base + second + math.log(runs.mean) / (orders - 1)
    return epsilon_of_renyi(orders, tuned, delta)[0]


def random_plans(count):
    random = np.random.default_rng(54)
    plans = []
    for _ in range(count):
        delta = float(10 ** random.uniform(-7, -3))
        rate, steps = float(10 ** random.uniform(-2, -0.7)), int(10 ** random.uniform(2, 3.7))
        target = float(10 ** random.uniform(-0.5, 0.6))
        sigma = max(rate * math.sqrt(steps) * math.sqrt(-2 * math.log(delta)) / target, 0.7)
        look = float(random.choice([0.0, 5.0 * math.sqrt(-2 * math.log(delta)) / target]))
        eta, mean = float(random.choice([0.0, 0.0, 1.0])), int(random.choice([3, 5, 10, 20, 50]))
        plans.append((round(rate, 5), round(sigma, 4), steps, round(look, 3), mean, eta, delta))
    return plans


PLANS = random_plans(200)


@pytest.mark.parametrize(
    "plan", [*PLANS[:4], *(pytest.param(plan, marks=pytest.mark.thorough) for plan in PLANS[4:])]
)
def test_an_independent_implementation_agrees(plan):
    rate, sigma, steps, look, mean, eta, delta = plan
    runs = runs_of(mean, eta)
    before = [Phase(1.0, look, 1)] if look else []
    ours = selection.epsilon((fit(rate, sigma, steps, *before),), runs, delta)
    theirs, simple = independent(rate, sigma, steps, look, runs, delta)
    assert ours == pytest.approx(theirs, abs=1e-3 * max(1, ours))
    assert ours <= simple + 1e-3
    if not look:
        lowest = attacked(rate, sigma, steps, runs, delta, ours)
        assert lowest <= ours
        assert lowest > 0.95 * ours or plan not in PLANS[:12]


@pytest.mark.parametrize(
    ("plan", "mean", "ours", "simple", "by_renyi", "reached"),
    some_of(
        [
            ("small", 5, 1.329, 1.38, 1.76, 1.32),
            ("small", 10, 1.451, 1.51, 1.91, 1.44),
            ("small", 20, 1.565, 1.64, 2.03, 1.55),
            ("small", 50, 1.706, 1.79, 2.18, 1.69),
            ("large", 5, 1.513, 1.60, 2.15, 1.48),
            ("large", 10, 1.706, 1.81, 2.38, 1.66),
            ("large", 20, 1.886, 2.00, 2.58, 1.84),
            ("large", 50, 2.109, 2.24, 2.81, 2.05),
        ],
        each=8,
        first=6,
    ),
)
def test_numbers_that_are_written_down(plan, mean, ours, simple, by_renyi, reached):
    rate, steps, delta = {"small": (0.0256, 3400, 1e-5), "large": (0.1, 1000, 1e-3)}[plan]
    sigma = noise_multiplier(epsilon=1.0, delta=delta, sampling_rate=rate, steps=steps)
    runs = runs_of(mean)
    epsilon = selection.epsilon((fit(rate, sigma, steps),), runs, delta)
    assert epsilon == pytest.approx(ours, abs=2e-3)
    assert independent(rate, sigma, steps, 0, runs, delta)[1] == pytest.approx(simple, abs=0.012)
    assert renyi(rate, sigma, steps, runs, delta) == pytest.approx(by_renyi, abs=0.03)
    assert reached <= attacked(rate, sigma, steps, runs, delta, epsilon) <= epsilon
    assert epsilon < simple < by_renyi


@pytest.mark.parametrize(
    "sampler", ["poisson", "without_replacement", "shuffle", "random_allocation"]
)
def test_every_sampler_can_be_chosen_among(sampler):
    steps = Steps.checked(sampler, None, 0.1, 20.0, 50)
    runs = Runs.of_mean(5)
    epsilon = selection.epsilon((steps,), runs, 1e-5)
    assert (
        selection.accounting.bound(steps, 1e-5)
        < epsilon
        < 2 * selection.accounting.bound(steps, 1e-5 / 5)
    )
    assert selection.delta((steps,), runs, epsilon) == pytest.approx(1e-5, rel=1e-2)
    assert selection.bound((steps,), runs, 1e-5, coarse=True) >= epsilon * (1 - 1e-6)


def test_other_fits_on_the_same_records_are_composed_before_the_terms():
    runs, base, other = Runs.of_mean(5), fit(1.0, 4.0, 1), fit(1.0, 3.0, 1)
    alone, both = (selection.accounting.GaussianLoss(mu) for mu in (1 / 4, 5 / 12))
    deltas = np.array([alone.delta(e) for e in _POWERS])
    weights, shifts = runs.terms(deltas, deltas)
    epsilon = selection.epsilon((base,), runs, 1e-5, beside=(other,))
    total = sum(
        weight * both.delta(epsilon - shift) for weight, shift in zip(weights, shifts, strict=True)
    )
    assert total == pytest.approx(1e-5, rel=1e-3)
    assert selection.epsilon((base,), runs, 1e-5) < epsilon
    by_terms = math.log(weights @ np.exp(2 * shifts)) / 2
    assert selection.renyi_excess((base,), runs, 3.0) == pytest.approx(by_terms, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.02, 0.1])
def test_losses_below_zero_count(epsilon):
    runs, loss = Runs(0.0, 0.5, 3), selection.accounting.GaussianLoss(1.0)

    def exact(power):
        if power >= 0:
            return loss.delta(power)
        return 1 - math.exp(power) * (1 - loss.delta(-power))

    deltas = np.array([exact(power) for power in _POWERS])
    weights, shifts = runs.terms(deltas, deltas)
    assert shifts[-1] > epsilon
    total = sum(
        weight * exact(epsilon - shift) for weight, shift in zip(weights, shifts, strict=True)
    )
    total = min(total, runs.mean * loss.delta(0.0))
    assert total <= selection.delta((fit(1.0, 1.0, 1),), runs, epsilon) * (1 + 1e-9)


def test_the_excess_of_renyi_is_less_than_that_of_papernot_and_steinke():
    runs, base = runs_of(20), fit(0.1, 8.2, 1000)
    for order in (4, 16, 64):
        orders = np.array([*(1 + np.arange(1, 100) / 20), *range(6, 128)])
        accountant = RdpAccountant(orders)
        event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(8.2))
        accountant.compose(event, 1000)
        second = (1 - 1 / orders) * accountant._rdp + math.log(1 / runs.gamma) / orders
        theirs = second.min() + math.log(runs.mean) / (order - 1)
        assert 0 < selection.renyi_excess((base,), runs, order) < theirs


@functools.cache
def claimed_of_one_step(rate, mu, epsilon):
    return selection.delta((fit(rate, 1 / mu, 1),), Runs.of_mean(20), epsilon)


@pytest.mark.parametrize(("rate", "mu"), [(1.0, 0.01), (1.0, 0.3), (1.0, 1.5), (1e-4, 5.0)])
@pytest.mark.parametrize("better", [1, -1], ids=["larger is better", "smaller is better"])
def test_delta_is_not_below_that_of_the_best_of_normal_draws(rate, mu, better):
    runs = Runs.of_mean(20)
    edges = np.concatenate([np.linspace(-9, 9 + mu, 20_001), [np.inf]])[::better]
    laws = []
    for share in (0.0, rate):
        below = (1 - share) * special.ndtr(better * edges)
        below += share * special.ndtr(better * (edges - mu))
        laws.append(np.diff(generating_function(runs, below)))
    for epsilon in (0.0, 0.01, 0.2, 1.0, 3.0):
        claim = claimed_of_one_step(rate, mu, epsilon)
        exact = max(divergence(*pair, np.array(epsilon)) for pair in (laws, laws[::-1]))
        assert exact <= claim + 1e-11  # the rounding of differences
        if rate < 1 and better == 1 and epsilon == 0:  # what is rare is seen in each of K runs
            assert claim < 1.1 * exact


def test_edges():
    runs = Runs.of_mean(20)
    rare = fit(1e-6, 1.0, 10)
    assert selection.epsilon((rare,), runs, 1e-3) == 0.0
    assert selection.epsilon((fit(1.0, 0.1, 10**7),), runs, 1e-5) == math.inf
    assert selection.delta((rare,), runs, 0.0) <= runs.mean * 1.0001e-5


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"sampling_rate": 0.1, "steps": 1000}, marks=pytest.mark.thorough),
        {"sampling_rate": 1.0, "steps": 1},
        {"sampling_rate": 0.05, "steps": 100, "before": LOOK},
    ],
)
def test_the_noise_is_the_least_that_keeps_epsilon(plan):
    runs = Runs.of_mean(20)
    sigma = noise_multiplier(epsilon=1.0, delta=1e-4, runs=runs, **plan)
    before = [plan["before"]] if "before" in plan else []

    def epsilon(noise):
        steps = fit(plan["sampling_rate"], noise, plan["steps"], *before)
        return selection.epsilon((steps,), runs, 1e-4)

    assert epsilon(sigma) <= 1.0 < epsilon(sigma * (1 - 1e-3))
    assert sigma > 1.2 * noise_multiplier(epsilon=1.0, delta=1e-4, **plan)


def test_candidates_that_differ_keep_epsilon_together():
    runs = Runs.of_mean(5)
    plans = [Candidate(1.0, 1), Candidate(0.1, 10), Candidate(1.0, 1), Candidate(1.0, 1, LOOK)]
    noise = noise_of_candidates(plans, epsilon=1.0, delta=1e-4, runs=runs)
    assert noise[0] == noise[2] < noise[3]
    steps = [
        fit(rate, sigma, steps, *([before] if before else []))
        for (rate, steps, before), sigma in zip(plans, noise, strict=True)
    ]
    assert 0.99 < selection.epsilon(tuple(steps), runs, 1e-4) <= 1.0


def test_a_calibration_of_many_runs_is_kept_apart_from_that_of_one(monkeypatch):
    from workbench.privacy import calibration

    plan = {"epsilon": 2.0, "delta": 1e-4, "sampling_rate": 1.0, "steps": 10}
    once = noise_multiplier(**plan)
    often = noise_multiplier(runs=Runs.of_mean(5), **plan)
    more_often = noise_multiplier(runs=Runs.of_mean(50), **plan)
    assert once < often < more_often
    calibration._smallest_noise.cache_clear()
    monkeypatch.setattr(calibration, "largest_kept", None)  # answers come from the disk
    assert noise_multiplier(**plan) == once
    assert noise_multiplier(runs=Runs.of_mean(5), **plan) == often


@pytest.mark.statistical
def test_draws_have_the_mean_of_the_law():
    """Fails once in 10 000 times."""
    runs = Runs.of_mean(20)
    draws = np.array([runs.draw(secrets.token_bytes(16)) for _ in range(20_000)])
    counts = np.arange(1, runs.most + 1)
    deviation = math.sqrt(runs.probabilities @ (counts - runs.mean) ** 2 / len(draws))
    assert abs(draws.mean() - runs.mean) < 3.9 * deviation
