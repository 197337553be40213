"""Second opinions on epsilons: that they agree, are independent, and stop what they contradict."""

import pytest

from workbench.privacy import accounting, second_opinion
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.second_opinion import DisagreementError, SecondOpinion, confirm
from workbench.privacy.steps import LAWS, Steps


def both(sampler, rate, sigma, steps, delta, relation=None):
    """(our epsilon, the second opinion)."""
    plan = Steps.checked(sampler, relation, rate, sigma, steps)
    return accounting.bound(plan, delta), second_opinion.second_opinion(plan, delta)


@pytest.mark.parametrize(
    "settings",
    [
        ("poisson", 0.1, 7.35, 800, 1e-3),
        ("poisson", 0.0034, 4.5, 5219, 2.6e-9),
        ("poisson", 1.0, 50.0, 10_000, 1e-5),
        ("shuffle", 0.1, 50.0, 805, 1e-5),
        ("shuffle", 0.1, 25.0, 805, 1e-5, "replace_special"),
        ("without_replacement", 1.0, 100.0, 1000, 1e-5),
    ],
)
def test_dp_accounting_agrees_about_poisson_and_gaussian_steps(settings):
    ours, opinion = both(*settings)
    assert opinion.source == "dp-accounting"
    assert opinion.epsilon == pytest.approx(ours, rel=5e-4)


@pytest.mark.parametrize(
    ("settings", "slack"),
    [
        (("random_allocation", 0.1, 7.3, 800, 1e-3), 0.003),
        (("random_allocation", 0.01, 1.0, 1050, 1e-5), 0.003),
        (("without_replacement", 0.1, 20.0, 200, 1e-4), 0.08),
    ],
)
def test_lower_bounds_are_a_little_below_what_is_promised_of_the_others(settings, slack):
    ours, opinion = both(*settings)
    assert opinion.source == "lower bound"
    assert (1 - slack) * ours < opinion.epsilon <= ours


@pytest.mark.parametrize("share", [0.9, 0.99])
@pytest.mark.parametrize("sampler", ["poisson", "random_allocation"])
def test_a_promise_that_is_too_small_is_found(sampler, share):
    plan = Steps.checked(sampler, None, 0.1, 7.3, 800)
    ours = accounting.bound(plan, 1e-3)
    assert confirm(plan, 1e-3, ours).epsilon > 0
    with pytest.raises(DisagreementError, match="is not promised: by"):
        confirm(plan, 1e-3, share * ours)


@pytest.mark.parametrize(
    ("plan", "delta", "epsilon"),
    [
        (("poisson", 0.1, 1.0, 2 * 10**5), 1e-5, 1.0),
        (("poisson", 1e-5, 1.0, 100), 1e-5, 1.0),
        (("poisson", 0.1, 0.3, 10), 1e-5, 1.0),
        (("poisson", 0.1, 1.0, 10), 1e-20, 1.0),
        (("poisson", 0.1, 1.0, 10), 1e-5, 60.0),
        (("random_allocation", 0.1, 1.0, 2 * 10**5), 1e-5, 1.0),
    ],
)
def test_plans_that_others_do_not_resolve_get_no_opinion(plan, delta, epsilon):
    assert confirm(Steps.checked(plan[0], None, *plan[1:]), delta, epsilon) is None


@pytest.mark.parametrize("sampler", LAWS)
def test_a_guarantee_names_both_numbers(sampler):
    settings = PrivacySettings(1.0, 1e-4, 100, 0.1, sampler, 1.0, 455, None)
    plan = make_plan(settings, 455)
    promise = {"steps_taken": 100, "unit": "patient", "dimension": 3, "caveats": ()}
    assert plan.guarantee(**promise).second_opinion == ""
    guarantee = plan.confirmed().guarantee(**promise)
    words = (
        "confirmed by dp-accounting: " if sampler in ("poisson", "shuffle") else "no epsilon below "
    )
    assert guarantee.second_opinion.startswith(words)
    assert (
        f"(accountant: PLD, an upper bound; {guarantee.second_opinion}; relation: "
        in guarantee.statement()
    )
    assert type(guarantee).from_dict(guarantee.to_dict()) == guarantee


def test_a_plan_that_is_contradicted_is_not_confirmed(monkeypatch):
    monkeypatch.setattr(
        second_opinion, "second_opinion", lambda plan, delta: SecondOpinion(1.01, "lower bound")
    )
    plan = make_plan(PrivacySettings(1.0, 1e-4, 100, 0.1, "poisson", 1.0, 455, None), 455)
    with pytest.raises(
        DisagreementError,
        match=r"^epsilon = 1 is not promised: by lower bound it is 1\.01 at delta",
    ):
        plan.confirmed()
