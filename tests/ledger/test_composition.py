"""What several fits on the same records come to: never below the truth, and close to it."""

import dataclasses
import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tests.conftest import some_of
from workbench import ArgumentError
from workbench.ledger import composition
from workbench.ledger.composition import TotalPrivacy, total
from workbench.privacy import accounting
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.steps import SENSITIVITY, Phase, Steps
from workbench.widgets.ledger.words import spent_words

RELATIONS = {
    "poisson": "add_or_remove_one",
    "without_replacement": "replace_one",
    "shuffle": "replace_one",
    "random_allocation": "add_or_remove_one",
}


def fit(
    epsilon=1.0, sampler="poisson", *, delta=1e-5, steps=500, rate=0.05, records=2000, relation=None
):
    """The guarantee of a fit as its plan makes it, without running it."""
    plan = make_plan(
        PrivacySettings(epsilon, delta, steps, rate, sampler, 1.0, records, None, relation), records
    )
    return plan.guarantee(steps_taken=steps, unit="tumour", dimension=50, caveats=())


def arguments(guarantee):
    return {
        "sampler": guarantee.sampler,
        "relation": guarantee.relation,
        "sampling_rate": guarantee.sampling_rate,
        "noise_multiplier": guarantee.noise_multiplier,
    }


# --- fits under one relation ----------------------------------------------------------------------


@pytest.mark.parametrize("sampler", RELATIONS)
@pytest.mark.parametrize("epsilon", some_of([3.0, 0.3]))
def test_one_fit_comes_to_its_own_epsilon(sampler, epsilon):
    found = total([fit(epsilon, sampler)])
    assert epsilon <= found.epsilon <= epsilon * 1.01 + 1e-4
    assert (found.delta, found.relation, found.fits) == (1e-5, RELATIONS[sampler], 1)


@pytest.mark.parametrize("sampler", RELATIONS)
@pytest.mark.parametrize("count", some_of([10, 2]))
def test_equal_fits_are_one_of_so_many_times_the_steps(sampler, count):
    one = fit(0.5, sampler)
    found = total([one] * count)
    ideal = accounting.epsilon(**arguments(one), steps=count * one.steps, delta=1e-5)
    assert ideal <= found.epsilon <= ideal * 1.01 + 1e-4
    assert (found.method, found.delta) == ("pld", 1e-5)


def test_total_grows_with_every_fit_and_is_below_the_sum():
    fits = [fit(epsilon) for epsilon in (2.0, 0.5, 1.0, 2.0, 0.5)]
    totals = [total(fits[:count]).epsilon for count in range(1, 6)]
    assert all(earlier < later for earlier, later in pairwise(totals))
    assert all(
        value <= sum(each.epsilon for each in fits[: count + 1]) + 1e-4
        for count, value in enumerate(totals)
    )


def test_the_order_of_the_fits_hardly_matters():
    fits = [fit(0.5), fit(2.0), fit(1.0, rate=0.01)]
    values = [total(each).epsilon for each in itertools.permutations(fits)]
    assert max(values) - min(values) < 1e-3


@pytest.mark.parametrize("small", [0.01, 0.1])
def test_no_total_is_below_its_largest_fit(small):
    assert total([fit(2.0), fit(small)]).epsilon >= 2.0


def test_a_shorter_run_counts_with_its_planned_steps():
    one = fit()
    stopped = dataclasses.replace(one, steps_taken=1, epsilon_taken=0.01)
    assert total([stopped, stopped]) == total([one, one])


@pytest.mark.parametrize("sampler", RELATIONS)
def test_without_sampling_the_total_is_the_exact_gaussian_one(sampler):
    fits = [fit(epsilon, sampler, rate=1.0, steps=20) for epsilon in (0.5, 1.0, 1.0)]
    sensitivity = 2 if RELATIONS[sampler] == "replace_one" else 1
    mu = sensitivity * math.sqrt(sum(each.steps / each.noise_multiplier**2 for each in fits))

    def excess(epsilon):
        return (
            norm.cdf(mu / 2 - epsilon / mu)
            - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            - 1e-5
        )

    exact = brentq(excess, 0.1, 20)
    assert exact <= total(fits).epsilon <= exact * 1.001 + 1e-4


def test_samplers_under_one_relation_compose_to_one():
    drawn, shuffled = fit(1.0, "without_replacement"), fit(1.0, "shuffle")
    together = total([drawn, shuffled])
    assert (together.relation, together.method) == ("replace_one", "pld")
    alone = [total([each, each]).epsilon for each in (drawn, shuffled)]
    assert together.epsilon == pytest.approx(np.mean(alone), rel=0.05)


def test_a_larger_delta_allows_a_smaller_epsilon():
    values = [total([fit()] * 3, delta).epsilon for delta in (1e-6, 1e-5, 1e-4, 1e-3)]
    assert all(earlier > later for earlier, later in pairwise(values))


def test_a_delta_that_the_fits_do_not_have_is_that_of_the_total():
    fits = [fit(delta=1e-5), fit(delta=1e-6)]
    assert total(fits).delta == 1e-5
    assert total(fits, 1e-6).delta == 1e-6


# --- what the implementation costs ----------------------------------------------------------------


def test_overflow_and_tail_are_taken_from_delta():
    plain = fit()
    costly = dataclasses.replace(
        plain,
        overflow_delta=0.1e-5 * (1 + math.e),
        noise_delta=0.05e-5,
        arithmetic="floating point",
    )
    ideal = accounting.epsilon(
        **arguments(plain), steps=2 * 500, delta=1e-5 * math.exp(-0.1) - 0.3e-5
    )
    found = total([costly] * 2)
    assert (found.delta, found.method) == (1e-5, "pld")
    assert total([plain] * 2).epsilon < ideal <= found.epsilon <= ideal * 1.001 + 1e-4


def test_where_the_implementation_costs_more_than_half_of_delta_twice_the_cost_is_stated():
    costly = dataclasses.replace(fit(), overflow_delta=0.1e-5 * (1 + math.e))
    found = total([costly] * 20)
    assert (found.delta, found.method) == (pytest.approx(4.0e-5, rel=0.02), "pld")
    ideal = accounting.epsilon(**arguments(costly), steps=20 * 500, delta=found.delta - 2e-5)
    assert ideal <= found.epsilon <= ideal * 1.01
    assert found.delta >= 4e-5


def test_without_a_delta_for_the_mechanism_the_promises_are_added():
    costly = dataclasses.replace(fit(), noise_delta=0.6e-5, arithmetic="floating point")
    assert total([costly] * 3) == TotalPrivacy(
        3.0, 3e-5, "add_or_remove_one", 3, "basic composition"
    )


def test_where_no_loss_distribution_reaches_delta_the_promises_are_added():
    assert total([fit()] * 4, 1e-40) == TotalPrivacy(
        4.0, 4e-5, "add_or_remove_one", 4, "basic composition"
    )


def test_where_the_sum_of_the_promises_is_less_it_counts():
    assert total([fit(0.5)] * 2, 0.9).epsilon < 1.0
    few = dataclasses.replace(fit(0.5), noise_multiplier=1.0)  # far less than its promise needs
    assert total([few] * 2, 1e-4) == TotalPrivacy(
        1.0, 1e-4, "add_or_remove_one", 2, "basic composition"
    )


def test_rounding_of_a_sampler_is_bounded_for_any_number_of_records():
    sampler = make_plan(
        PrivacySettings(1.0, 1e-5, 500, 0.05, "poisson", 1.0, 2000, None), 2000
    ).sampler
    assert (
        0 < sampler.total_variation < composition._total_variation("poisson", 0.05, 2**30) < 1e-17
    )
    assert composition._total_variation("poisson", 1.0, 2**30) == 0


def test_rounding_costs_what_the_largest_losses_of_its_fit_make_of_it():
    one, share = dataclasses.replace(fit(3.0), noise_delta=0.0), 1e-9
    reached = accounting.bound(
        Steps("poisson", "add_or_remove_one", (Phase(0.05, one.noise_multiplier, 500),)), share
    )
    distance = 500 * composition._total_variation("poisson", 0.05, 2**30)
    found = composition._rounding(one, share, 1)
    assert (
        share + (1 + math.exp(reached)) * distance
        <= found
        <= share + (1 + math.exp(1.1 * reached)) * distance
    )
    for sampler in ("shuffle", "random_allocation"):
        exact = dataclasses.replace(fit(3.0, sampler), noise_delta=0.0)
        assert composition._rounding(exact, share, 1) == 0


@pytest.mark.parametrize("changes", [1, 2])
def test_noise_that_is_not_exact_costs_what_the_largest_losses_of_its_fit_make_of_it(changes):
    """At a distance p from exact draws, delta grows by p and e^epsilon p, whatever epsilon is asked
    for.
    """
    one, distance = dataclasses.replace(fit(3.0, "shuffle"), overflow_delta=0.0), 1e-12
    rough = dataclasses.replace(one, noise_delta=(1 + math.exp(3.0)) * distance)
    share = 1e-3 * 1e-5
    reached = composition._ideal_epsilon((one.accounted(),), share, changes)
    added = composition.implementation_delta([rough], 1e-5, changes)
    assert added >= (share + (2 + math.exp(reached)) * distance + rough.noise_delta) * (1 - 1e-9)
    assert added <= share + (2 + math.exp(1.2 * reached)) * distance + rough.noise_delta


# --- fits under several relations -----------------------------------------------------------------


@pytest.mark.parametrize(
    "others",
    [
        ("poisson", "without_replacement"),
        ("poisson", "shuffle"),
        ("poisson", "without_replacement", "shuffle"),
    ],
)
def test_several_relations_come_to_replacing_a_record(others):
    fits = [fit(0.5, sampler) for sampler in others]
    found = total(fits)
    assert (found.relation, found.method, found.delta, found.fits) == (
        "replace_one",
        "group privacy",
        1e-5,
        len(others),
    )
    assert found.epsilon >= total(fits[1:]).epsilon
    # more than twice epsilon, for delta grows as well; by how much, Gaussian mechanisms tell
    assert 1.0 + 0.5 < found.epsilon < 1.5 * (1.0 + 0.5 * len(others))


def test_blanking_and_replacing_come_to_replacing():
    blanked, replaced = fit(0.5, "shuffle", relation="replace_special"), fit(0.5, "shuffle")
    found = total([blanked, replaced])
    assert (found.relation, found.method, found.delta) == ("replace_one", "group privacy", 1e-5)
    # replacing is a Gaussian mechanism too, of twice the mu of blanking
    mu = {
        each.relation: SENSITIVITY[each.relation] / each.noise_multiplier
        for each in (blanked, replaced)
    }
    epochs = math.ceil(500 / 20)
    exact = GaussianLoss(
        math.sqrt(epochs * ((2 * mu["replace_special"]) ** 2 + mu["replace_one"] ** 2))
    ).epsilon(1e-5)
    assert exact <= found.epsilon <= 1.6 * exact


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_two_changes_of_gaussian_fits_cost_at_least_what_they_truly_do(epsilon):
    blanked = fit(epsilon, "shuffle", relation="replace_special")
    plans = (blanked.accounted(),)
    found = composition._ideal_epsilon(plans, 1e-5, 2)
    mu = 2 * math.sqrt(25) / blanked.noise_multiplier
    assert GaussianLoss(mu).epsilon(1e-5) <= found <= 1.3 * GaussianLoss(mu).epsilon(1e-5)
    half = found / 2
    assert (1 + math.exp(half)) * accounting.delta(
        **arguments(blanked), steps=500, epsilon=half
    ) <= 1e-5


def test_replacing_a_blanked_record_reaches_further_into_the_tail():
    blanked = fit(4.0, "shuffle", relation="replace_special")
    doubled = make_plan(
        PrivacySettings(4.0, 1e-5, 500, 0.05, "shuffle", 1.0, 2000, None, "replace_special"), 2000
    )
    reach = 1 / blanked.noise_multiplier
    assert doubled.mechanism.noise_multiplier == blanked.noise_multiplier
    # an earlier version, whose draws ended at B, charged these sums over coordinates for a reach of
    # 1 / sigma or more
    cut = dataclasses.replace(
        blanked, noise_delta=500 * tails_beyond_the_bound(reach), arithmetic="floating point"
    )
    assert composition._tail(cut, 2) >= 500 * tails_beyond_the_bound(2 * reach)
    assert composition._tail(cut, 1) == cut.noise_delta
    assert composition._tail(blanked, 2) == blanked.noise_delta


def tails_beyond_the_bound(reach):
    """Bound on what 50 coordinates that a record moves by ``reach`` standard deviations in all lose
    beyond B = 9.15.
    """
    few = math.e * math.sqrt(50) * reach * norm.pdf(9.15)
    return few + (reach * 9.15) ** 2 * norm.sf(9.15 - 1 / 9.15) + norm.sf(9.15 - reach)


def test_a_hopeless_sum_promises_nothing():
    found = total([fit(20.0, steps=100), fit(20.0, "without_replacement", steps=100)])
    assert (found.epsilon, found.delta) == (math.inf, 1e-5)
    assert "there is no guarantee" in found.statement("tumour")


# --- the rest -------------------------------------------------------------------------------------


def test_statement_says_what_holds_for_all():
    assert TotalPrivacy(12.3456, 1e-5, "add_or_remove_one", 60, "pld").statement("tumour") == (
        "All 60 fits together, on the same records, satisfy (epsilon = 12.3456, delta = "
        "1e-05)-differential privacy under adding or removing any one tumour (its place stays "
        "empty). Anyone who sees several of their results can combine them."
    )
    # bounds are never rounded down
    exact = TotalPrivacy(1.0, 1.23456741e-5, "add_or_remove_one", 1, "pld")
    assert "delta = 1.23457e-05)" in exact.statement("house")
    assert spent_words(exact) == "epsilon 1 at delta 1.23457e-05"
    assert "1.23457e-05)" in TotalPrivacy(1.0, 1.23456141e-5, "replace_one", 1, "pld").statement(
        "house"
    )
    assert TotalPrivacy(1.0, 1e-5, "replace_one", 1, "pld").statement("house") == (
        "The one fit satisfies (epsilon = 1, delta = 1e-05)-differential privacy under replacing "
        "any one house by another."
    )


def test_without_fits_there_is_no_total():
    with pytest.raises(ArgumentError, match=r"^guarantees=\[\]: "):
        total([])


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan])
def test_an_unusable_delta_is_named(delta):
    with pytest.raises(ArgumentError, match=r"^delta="):
        total([fit()], delta)


def test_plans_of_several_relations_have_no_common_epsilon():
    plans = tuple(
        Steps(sampler, relation, (Phase(0.1, 2.0, 10),))
        for sampler, relation in list(RELATIONS.items())[:2]
    )
    for wrong in (plans, ()):
        with pytest.raises(ArgumentError, match=r"^plans="):
            accounting.total_epsilon(wrong, 1e-5)
