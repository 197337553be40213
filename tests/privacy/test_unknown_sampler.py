"""A sampler whose law nobody wrote is refused everywhere: it must not be priced as another."""

import dataclasses

import numpy as np
import pytest

import workbench as wb
from workbench.privacy import attacker, events, other_accountants, steps
from workbench.privacy.accounting import total_epsilon
from workbench.privacy.rdp import renyi_loss
from workbench.privacy.steps import LAWS
from workbench.teaching import simulations

MINE = steps.Steps("mine", "add_or_remove_one", (steps.Phase(0.1, 1.0, 10),))
WHOLE = steps.Steps("mine", "add_or_remove_one", (steps.Phase(1.0, 1.0, 10),))


@pytest.fixture(params=[None, "two steps"])
def registered(request, monkeypatch):
    """An entry of the table that says nothing of how a record enters the steps, or a way of that
    which nobody else knows.
    """
    law = dataclasses.replace(LAWS["poisson"], name="mine", participation=request.param)
    monkeypatch.setitem(LAWS, "mine", law)


@pytest.mark.parametrize("plan", [MINE, WHOLE], ids=["sampled", "whole"])
@pytest.mark.parametrize(
    "price",
    [
        lambda plan: total_epsilon((plan,), delta=1e-5),
        lambda plan: renyi_loss(plan, 8),
        lambda plan: renyi_loss(plan, 8, changes=2),
        lambda plan: events.event_of(plan),
        lambda plan: other_accountants.epsilon(plan, 1e-5, "rdp", total_epsilon),
        lambda plan: attacker.epsilon_lower_bound(
            sampler=plan.sampler,
            relation=plan.relation,
            sampling_rate=plan.phases[0].sampling_rate,
            noise_multiplier=1.0,
            steps=10,
            delta=1e-5,
        ),
    ],
    ids=[
        "epsilon",
        "loss under a cap",
        "loss of two changes",
        "event",
        "rdp",
        "attack",
    ],
)
def test_code_without_a_law_for_a_sampler_refuses_it(price, plan, registered, monkeypatch):
    with pytest.raises(NotImplementedError, match="the sampler 'mine' is written here"):
        price(plan)
    monkeypatch.delitem(LAWS, "mine")
    with pytest.raises(NotImplementedError, match="the sampler 'mine' is written here"):
        price(plan)


def test_no_fit_is_planned_with_a_sampler_without_a_law(registered):
    with pytest.raises(NotImplementedError, match="the sampler 'mine' is written here"):
        wb.prepare(
            "logistic",
            "breast_cancer",
            epsilon=1.0,
            iterations=10,
            privacy=wb.Privacy(sampler="mine"),
        )


def test_epochs_and_memberships_of_a_sampler_without_a_law_are_refused(registered):
    with pytest.raises(NotImplementedError):
        MINE.law.steps_per_epoch(0.1)
    with pytest.raises(NotImplementedError):
        simulations._membership("mine", 10, 2, 3)
    known = steps.Steps("poisson", MINE.relation, MINE.phases)
    assert np.isfinite(total_epsilon((known,), delta=1e-5))
