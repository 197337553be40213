"""Caps that hold although each fit is chosen after seeing the others."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from tests.conftest import examples, some_of
from tests.privacy.promises import promise
from workbench import ArgumentError
from workbench.ledger.composition import implementation_delta, total
from workbench.ledger.renyi_filter import Cap, RelationError, taken_part
from workbench.privacy.guarantee import Guarantee


def gaussian(mu, delta=1e-5):
    """One step with all records, whose sum has sensitivity ``mu`` in units of the noise: no
    implementation costs.
    """
    return Guarantee(
        epsilon=50.0,
        delta=delta,
        relation="add_or_remove_one",
        unit="record",
        sampler="poisson",
        sampling_rate=1.0,
        noise_multiplier=1 / mu,
        clip=1.0,
        steps=1,
        steps_taken=1,
        epsilon_taken=50.0,
        num_records=100,
        accountant="pld",
        overflow_delta=0.0,
        noise_delta=0.0,
        secure_randomness=True,
    )


def gaussian_delta(mu, epsilon):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-3), (1.0, 1e-5), (8.0, 1e-7), (60.0, 0.01)]
)
def test_whatever_the_filter_allows_keeps_the_cap(epsilon, delta):
    """Gaussian mechanisms, for which the exact answer is known: the most that is allowed has no
    larger delta.
    """
    cap = Cap.checked(epsilon, delta)
    low, high = 1e-6, 100.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if cap.allows([cap.loss(gaussian(middle, delta))]) else (low, middle)
        )
    assert gaussian_delta(low, epsilon) <= delta
    # and it is not far below what could be allowed to fits that were settled beforehand
    exact = next(
        mu for mu in np.geomspace(low, 10 * low, 4000) if gaussian_delta(mu, epsilon) > delta
    )
    assert low > 0.75 * exact


@examples(25, few=10)
@given(
    st.lists(st.sampled_from([0.1, 0.3, 1.0, 2.0]), min_size=1, max_size=12),
    st.sampled_from([2.0, 6.0]),
    st.sampled_from([2, 5, 16, 40, None]),
)
def test_fits_that_pass_one_after_the_other_stay_below_the_cap(epsilons, cap_epsilon, order):
    """Whatever the order of the filter, their total as a plan is at most the cap."""
    try:
        cap = Cap.checked(cap_epsilon, 1e-5, order=order)
    except ArgumentError:
        return  # no fit keeps a cap at this order
    passed = []
    for epsilon in epsilons:
        if cap.admits([promise(epsilon)], passed):
            passed.append(promise(epsilon))
    if passed:
        assert total(passed, 1e-5).epsilon <= cap_epsilon


def test_the_first_plan_may_use_the_whole_cap():
    """Its Renyi loss alone would not allow it; afterwards nothing is left."""
    cap, fit = Cap.checked(1.0, 1e-5), promise(1.0)
    assert not cap.allows([cap.loss(fit)])
    assert cap.admits([fit], [])
    assert cap.how_many_more(fit, []) == 1
    assert cap.how_many_more(fit, [fit]) == 0
    assert cap.used([fit]).most > 1
    assert not cap.admits([promise(0.1)], [fit])


def test_a_plan_of_several_fits_is_judged_as_a_whole():
    fits = [promise(0.5)] * 3
    together = total(fits, 1e-5).epsilon
    assert Cap.checked(together * 1.001, 1e-5).admits(fits, [])
    assert not Cap.checked(together * 0.98, 1e-5).admits(fits, [])


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_so_many_more_are_admitted_and_no_more(epsilon):
    cap, fit = Cap.checked(3.0, 1e-5), promise(epsilon)
    count = cap.how_many_more(fit, [fit])
    before = [fit] * (1 + count)
    assert count > 1
    assert cap.admits([fit], before[:-1])
    assert not cap.admits([fit], before)


def test_costs_in_delta_end_a_cap_too():
    """Many fits that are next to nothing but for their delta."""
    cap = Cap.checked(5.0, 1e-8)
    fit = promise(0.01, delta=1e-4)
    assert cap.loss(fit).renyi * cap.how_many_more(fit, []) < 0.5 * cap.budget
    assert not cap.admits([fit], [fit] * (1 + cap.how_many_more(fit, [fit])))


def test_a_fit_is_charged_what_its_rounding_costs():
    """It has no minibatch that can overflow, so nearly all fits that epsilon has room for run."""
    cap, fit = Cap.checked(100.0, 1e-5, "replace_one"), promise(0.01, "shuffle")
    used = cap.used([fit] * 10_000)
    assert used.delta < 0.02
    assert used.most == used.epsilon
    assert cap.how_many_more(fit, [fit] * 10_000) > 100_000
    # the noise alone is known to cost as much as this at every epsilon (``composition``)
    assert cap.loss(fit).delta >= fit.noise_delta


@pytest.mark.parametrize(
    ("epsilon", "sampler"),
    some_of(
        [
            (epsilon, sampler)
            for epsilon in (0.01, 1.0, 8.0)
            for sampler in ("poisson", "without_replacement", "shuffle", "random_allocation")
        ],
        5,
    ),
)
def test_the_cost_of_rounding_is_one_of_its_bounds(epsilon, sampler):
    """Each share of delta for the largest losses gives a bound, and the smallest is charged."""
    fit = promise(epsilon, sampler)
    cap = Cap.checked(100.0, 1e-5, fit.relation)
    bounds = [
        implementation_delta([fit], share * cap.delta, 1) for share in np.geomspace(1e-9, 1, 28)
    ]
    assert 0.9 * min(bounds) <= cap.loss(fit).delta <= bounds[-4]


@pytest.mark.parametrize("look", [0.0, 0.15])
def test_what_would_fit_does_and_is_the_largest(look):
    """The noise of a look is less in proportion, as that of the steps."""
    cap, fit = Cap.checked(3.0, 1e-5), promise(1.0, look=look)
    before = [fit] * 6
    assert (fit.look_noise > 0) == (look > 0)
    assert not cap.admits([fit], before)
    epsilon = cap.largest_epsilon(fit, before)
    assert 0 < epsilon < 1
    assert cap.admits([promise(epsilon, look=look)], before)
    assert not cap.admits([promise(epsilon * 1.02, look=look)], before)
    assert cap.largest_epsilon(fit, [fit] * 20) == 0
    # also where the look of what is refused would be too much by itself
    assert Cap.checked(2.0, 1e-5).largest_epsilon(promise(5.0, look=look), [fit]) > 0


def test_relations_are_not_mixed_silently():
    one, replaced = promise(0.5), promise(0.5, "without_replacement")
    with pytest.raises(
        RelationError,
        match=r"^relation='replace_one': cannot be counted under a cap for add_or_remove_one",
    ):
        Cap.checked(3.0, 1e-5).loss(replaced)
    cap = Cap.checked(3.0, 1e-5, "replace_one")
    # two changes
    assert cap.loss(one).renyi > 2 * Cap(3.0, 1e-5, "add_or_remove_one", cap.order).loss(one).renyi
    assert cap.loss(replaced).renyi > 0
    special = promise(0.5, "shuffle", relation="replace_special")
    assert cap.loss(special).renyi > 0
    with pytest.raises(RelationError):
        Cap.checked(3.0, 1e-5, "replace_special").loss(one)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0.0, 1e-5), "epsilon=0"),
        ((math.inf, 1e-5), "epsilon=inf"),
        ((1.0, 1.0), "delta=1"),
        ((1.0, 1e-5, "swap"), "relation='swap'"),
        ((1.0, 1e-5, "replace_one", 1), "order=1"),
        ((1.0, 1e-5, "replace_one", 2.5), "order=2.5"),
        ((1e-4, 1e-9), "epsilon=0.0001: is so small that no fit keeps it"),
        ((1.0, 1e-5, "replace_one", 2), "epsilon=1.0: is so small"),
    ],
)
def test_a_cap_that_cannot_be_used_is_refused(arguments, match):
    with pytest.raises(ArgumentError, match=match):
        Cap.checked(*arguments)


def test_part_of_a_fit_is_the_fit_of_fewer_steps():
    fit = promise(1.0)
    part = taken_part(fit, 50)
    assert (part.steps, part.steps_taken) == (50, 50)
    assert 0 < part.epsilon < 0.5
    assert taken_part(fit, fit.steps) == fit
    cap = Cap.checked(3.0, 1e-5)
    assert cap.loss(part).renyi == pytest.approx(cap.loss(fit).renyi / 10)


def test_how_a_fit_ended_does_not_change_what_its_plan_costs():
    cap, fit = Cap.checked(3.0, 1e-5), promise(1.0)
    stopped = dataclasses.replace(fit, steps_taken=3, epsilon_taken=0.1, caveats=("Stopped.",))
    assert cap.loss(stopped) == cap.loss(fit)
