"""Accounting: an upper bound on epsilon at delta, from a sampler, a noise multiplier and a number
of steps.

Each sampler has accountants for its own neighbouring relations and for no other. Guarantees always
use "pld": privacy loss distributions if records are sampled, the exact Gaussian formula if they are
not. "rdp" is a looser upper bound, "rdp_classic" the bound of papers before 2020, and "fourier" an
approximation that is not a bound. These three serve for comparison with published numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from workbench import _validate
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy._windows import Step
from workbench.privacy.allocated_gaussian import AllocatedGaussian
from workbench.privacy.pld import LARGEST_EPSILON, ComposedLoss
from workbench.privacy.sampled_gaussian import SampledGaussian
from workbench.privacy.steps import (
    SENSITIVITY,
    Epochs,
    Phase,
    Repeated,
    Steps,
    first_steps,
    no_law,
)

__all__ = [
    "ACCOUNTANTS",
    "Plan",
    "delta",
    "epsilon",
    "epsilon_curve",
    "profiles",
    "round_up",
    "total_epsilon",
    "trade_off",
    "trade_off_of",
]

ACCOUNTANTS = ("pld", "rdp", "rdp_classic", "fourier")

_SMALLEST_DELTA = 1e-20  # the distributions of sampled steps leave out rarer outcomes


def round_up(value: float, digits: int) -> float:
    """``value`` rounded up to ``digits`` decimals; never below ``value``."""
    if not math.isfinite(value):
        return value
    rounded = math.ceil(value * 10**digits) / 10**digits
    return rounded if rounded >= value else rounded + 10.0**-digits


Plan: TypeAlias = Steps | Repeated


def _parts(plans: Sequence[Plan]) -> tuple[float, list[Phase], list[Epochs]]:
    """What plans compose of.

    :return: (sum of 1 / sigma^2 over the steps that a record enters for sure, without sampling;
        sampled steps; epochs of random allocation).
    """
    squares = 0.0
    sampled: list[Phase] = []
    allocated: list[Epochs] = []
    for plan in plans:
        if not isinstance(plan, Steps):
            continue  # it has a loss of its own
        if plan.law.participation == "random step":
            allocated += [epoch for epoch in plan.epochs if epoch.length > 1]
            unsampled = [
                Phase(1.0, epoch.noise_multiplier, epoch.repeated)
                for epoch in plan.epochs
                if epoch.length == 1
            ]
        elif plan.law.participation == "known step":
            unsampled = list(plan.uses_of_a_record)
        elif plan.law.participation in ("coin", "subset"):
            sampled += [phase for phase in plan.phases if phase.sampling_rate < 1]
            unsampled = [phase for phase in plan.phases if phase.sampling_rate == 1]
        else:
            raise no_law(plan.sampler)
        squares += sum(phase.steps / phase.noise_multiplier**2 for phase in unsampled)
    return squares, sampled, allocated


def _losses(plans: Sequence[Plan], coarse: bool) -> list[GaussianLoss | ComposedLoss]:
    """The privacy loss of all plans under one relation, in each direction (a single one if both are
    the same).
    """
    relation = plans[0].relation
    squares, sampled, allocated = _parts(plans)
    # Gaussian mechanisms compose to one
    mu = SENSITIVITY[relation] * math.sqrt(squares)
    repeated = [plan for plan in plans if not isinstance(plan, Steps)]
    if not (sampled or allocated or repeated):
        return [GaussianLoss(mu)]
    directions = ("replace",) if relation == "replace_one" else ("remove", "add")

    def composed(direction: str) -> ComposedLoss:
        counts: dict[Step, int] = {}
        for phase in sampled:
            step = SampledGaussian(
                phase.sampling_rate, SENSITIVITY[relation] / phase.noise_multiplier, direction
            )
            counts[step] = counts.get(step, 0) + phase.steps
        for epochs in allocated:
            epoch = AllocatedGaussian(
                epochs.length, 1 / epochs.noise_multiplier, direction, epochs.released
            )
            counts[epoch] = counts.get(epoch, 0) + epochs.repeated
        for plan in repeated:
            loss = plan.loss(direction)
            counts[loss] = counts.get(loss, 0) + 1
        if mu > 0:
            counts[SampledGaussian(1.0, mu, direction)] = 1
        return ComposedLoss(tuple(counts.items()), coarse)

    return [composed(direction) for direction in directions]


def _participation(plans: Sequence[Plan]) -> float:
    """Upper bound on the probability that a given record enters any step. With this delta even
    epsilon = 0 holds.
    """
    squares, sampled, allocated = _parts(plans)
    if not all(isinstance(plan, Steps) for plan in plans):
        return 1.0
    if squares or any(epoch.released == epoch.length for epoch in allocated):
        return 1.0
    rates = [(phase.sampling_rate, phase.steps) for phase in sampled]
    rates += [(epoch.released / epoch.length, epoch.repeated) for epoch in allocated]
    logarithm = sum(count * math.log1p(-rate) for rate, count in rates)
    return -math.expm1(logarithm) * (1 + 1e-12)


@functools.lru_cache(maxsize=1024)
def total_epsilon(plans: tuple[Plan, ...], delta: float, coarse: bool = False) -> float:
    """Upper bound by "pld" on epsilon of several runs on the same records, by any samplers under
    one relation.

    :param plans: at least one.
    :param coarse: up to some per cent higher and a few times faster.
    """
    if len({plan.relation for plan in plans}) != 1:
        raise _validate.ArgumentError(
            "plans", plans, "must be one or more plans, all under the same relation."
        )
    if len(plans) == 1 and not isinstance(plans[0], Steps):
        return plans[0].epsilon(delta)
    if _participation(plans) <= delta:
        return 0.0
    worst = max(loss.epsilon(delta) for loss in _losses(plans, coarse))
    closed_form = _known(plans)
    return worst if closed_form is None else min(worst, closed_form.epsilon(delta))


def _known(plans: Sequence[Plan]) -> GaussianLoss | None:
    """If records are allocated, a loss that is no smaller: that of the same steps, if a record
    entered known ones.

    It has an answer where no grid is large enough.
    """
    steps = [plan for plan in plans if isinstance(plan, Steps)]
    if len(steps) < len(plans) or not any(
        plan.law.participation == "random step" for plan in steps
    ):
        return None
    uses = [phase for plan in steps for phase in plan.uses_of_a_record]
    squares = sum(phase.steps / phase.noise_multiplier**2 for phase in uses)
    return GaussianLoss(SENSITIVITY[plans[0].relation] * math.sqrt(squares))


@functools.lru_cache(maxsize=4096)
def bound(steps: Plan, delta: float, coarse: bool = False) -> float:
    """``total_epsilon`` of one run."""
    return total_epsilon((steps,), delta, coarse)


@functools.lru_cache(maxsize=1024)
def _delta_bound(steps: Steps, epsilon: float) -> float:
    worst = max(loss.delta(epsilon) for loss in _losses((steps,), False))
    closed_form = _known((steps,))
    return min(
        worst, _participation((steps,)), 1.0 if closed_form is None else closed_form.delta(epsilon)
    )


def epsilon(
    *,
    sampler: str = "poisson",
    relation: str | None = None,
    sampling_rate: float | Sequence[float],
    noise_multiplier: float | Sequence[float],
    steps: int | Sequence[int],
    delta: float,
    accountant: str = "pld",
) -> float:
    """Upper bound on epsilon at ``delta`` after ``steps`` steps.

    The sampler is taken as ideal. The overflow of a padded minibatch is a part of delta
    (``Guarantee.overflow_delta``). A schedule is given as sequences of equal length with one entry
    per phase, such as ``noise_multiplier=[1.0, 1.2], steps=[500, 500]``. Epochs of shuffled records
    continue from one phase to the next, and a new one begins where the sampling rate changes.

    >>> plan = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 1000}
    >>> round(wb.privacy.epsilon(delta=1e-5, **plan), 3)
    1.828

    :param sampler: "poisson": every record enters a step with probability q; "without_replacement":
        minibatches are uniform subsets of q N records; "shuffle": epochs of floor(1/q) steps in
        which a record enters at most one; "random_allocation": epochs of t steps, of which each
        record enters one, uniformly chosen for itself, where t is 1/q rounded to a whole number. An
        epoch that is not finished is charged for the steps that were taken alone.
    :param relation: the neighbouring relation, by default and usually the sampler's only one:
        add_or_remove_one for "poisson" and "random_allocation", replace_one for
        "without_replacement", replace_one or replace_special (a record is blanked in place) for
        "shuffle". The sensitivity is C, and 2 C under replace_one.
    :param sampling_rate: q in (0, 1], public.
    :param noise_multiplier: sigma = noise standard deviation / clipping norm C, in [0.1, 1e5].
    :param steps: T >= 0; at 0 epsilon is 0.
    :param delta: in (0, 1).
    :param accountant: "pld", which guarantees use; "rdp" and "rdp_classic", upper bounds by Rényi
        differential privacy with today's conversion and with that of 2017; "fourier", the
        approximation of the package fourier-accountant.
    :raises ArgumentError: naming the argument and its value; also if "fourier" is not reliable,
        with the reason.

    Sources: Doroshenko et al. 2022 ("Connect the Dots") for the discretisation, Zhu, Dong and Wang
    2022 for the dominating pairs, Balle and Wang 2018 for steps without sampling.
    """
    accountant = _validate.choice("accountant", accountant, ACCOUNTANTS)
    plan = Steps.checked(
        sampler,
        relation,
        sampling_rate,
        noise_multiplier,
        steps,
        accountant=accountant,
    )
    delta = _validate.probability("delta", delta)
    if accountant == "pld":
        value = bound(plan, delta)
        if math.isfinite(value):
            return value
        if delta < _SMALLEST_DELTA:
            raise _validate.ArgumentError(
                "delta",
                delta,
                "is too small: outcomes beyond 12 standard deviations are more likely.",
            )
        raise _validate.ArgumentError(
            "noise_multiplier",
            noise_multiplier,
            f"is so small that no epsilon up to {LARGEST_EPSILON:g} holds.",
        )
    from workbench.privacy import other_accountants

    return other_accountants.epsilon(plan, delta, accountant, bound)


def delta(
    *,
    sampler: str = "poisson",
    relation: str | None = None,
    sampling_rate: float | Sequence[float],
    noise_multiplier: float | Sequence[float],
    steps: int | Sequence[int],
    epsilon: float,
) -> float:
    """Upper bound on delta at ``epsilon`` >= 0 after ``steps`` steps; see ``epsilon`` for the other
    arguments.

    >>> plan = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 1000}
    >>> wb.privacy.delta(epsilon=2.0, **plan) < 1e-5
    True
    """
    plan = Steps.checked(sampler, relation, sampling_rate, noise_multiplier, steps)
    return _delta_bound(plan, _validate.number("epsilon", epsilon, at_least=0))


def epsilon_curve(
    *,
    sampler: str = "poisson",
    relation: str | None = None,
    sampling_rate: float | Sequence[float],
    noise_multiplier: float | Sequence[float],
    steps: int | Sequence[int],
    delta: float,
    points: int = 12,
) -> list[tuple[int, float]]:
    """[(number of steps, upper bound on epsilon)] at about ``points`` numbers of steps up to all of
    them; see ``epsilon``.

    Made for display: fast (about 20 ms per point), with bounds that are some per mille higher than
    those of ``epsilon`` and rounded up to 3 decimals. The last is that of ``epsilon``. If no
    epsilon holds, the curve is infinite from there on.

    >>> plan = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 1000}
    >>> wb.privacy.epsilon_curve(delta=1e-5, points=3, **plan)
    [(112, 0.746), (445, 1.263), (1000, 1.829)]
    """
    plan = Steps.checked(sampler, relation, sampling_rate, noise_multiplier, steps)
    delta = _validate.probability("delta", delta)
    points = _validate.integer("points", points, at_least=1, at_most=1000)
    total = sum(phase.steps for phase in plan.phases)
    last = bound(plan, delta)
    counts = (
        sorted({max(1, math.ceil(total * (point / points) ** 2)) for point in range(1, points + 1)})
        if total
        else []
    )
    curve = [
        (count, round_up(min(bound(first_steps(plan, count), delta, True), last), 3))
        for count in counts[:-1]
    ]
    return [*curve, *((count, round_up(last, 3)) for count in counts[-1:])]


def profiles(
    plans: Sequence[Plan], near: float = 0.0, coarse: bool = False
) -> list[Callable[[np.ndarray], np.ndarray]]:
    """Upper bounds on delta of several runs on the same records, as functions of many epsilons >=
    0: one for each direction, or a single one if both are the same.

    :param plans: as of ``total_epsilon``.
    :param near: an epsilon around which they are accurate relatively, also in the far tail.
    """
    certain, closed_form = _participation(plans), _known(plans)
    exact = [] if closed_form is None else [closed_form.profile()]

    def limited(profile: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
        bounds = (profile, *exact)
        return lambda epsilons: np.minimum(
            np.min([bound(epsilons) for bound in bounds], 0), certain
        )

    return [limited(loss.profile(near)) for loss in _losses(plans, coarse)]


@functools.lru_cache(maxsize=256)
def _profile(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """(epsilons, upper bounds on delta at them), from which trade-off curves are computed."""
    epsilons = np.concatenate([[0.0], np.geomspace(1e-4, 60.0, 240)])
    return epsilons, np.max([profile(epsilons) for profile in profiles((plan,))], axis=0)


def trade_off(
    *,
    sampler: str = "poisson",
    relation: str | None = None,
    sampling_rate: float | Sequence[float],
    noise_multiplier: float | Sequence[float],
    steps: int | Sequence[int],
    false_positive_rates: Any,
    extra_delta: float = 0.0,
    largest_epsilon: float = math.inf,
) -> np.ndarray:
    """The trade-off curve: upper bounds on the true-positive rate of any test for one record's
    presence, float[n].

    The attacker knows everything else, sees the release and accuses the given share of outsiders
    wrongly. Every (epsilon, delta) of the plan bounds the true-positive rate (Kairouz et al. 2015,
    Theorem 2.1), and the least bound counts.

    >>> plan = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 1000}
    >>> wb.privacy.trade_off(false_positive_rates=[0.01, 0.1], **plan).round(3)
    array([0.029, 0.194])

    :param false_positive_rates: numbers in [0, 1].
    :param extra_delta: what an implementation adds to delta at every epsilon up to
        ``largest_epsilon``; larger epsilons are not used.
    :raises ArgumentError: naming the argument and its value.
    """
    plan = Steps.checked(sampler, relation, sampling_rate, noise_multiplier, steps)
    return trade_off_of(plan, false_positive_rates, extra_delta, largest_epsilon)


def trade_off_of(
    plan: Plan,
    false_positive_rates: Any,
    extra_delta: float = 0.0,
    largest_epsilon: float = math.inf,
) -> np.ndarray:
    """``trade_off`` of anything that composes."""
    several = isinstance(false_positive_rates, (list, tuple, np.ndarray))
    requested_rates = list(false_positive_rates) if several else [false_positive_rates]
    rates = np.array(
        [
            _validate.number("false_positive_rates", rate, at_least=0, at_most=1)
            for rate in requested_rates
        ]
    )
    extra = _validate.number("extra_delta", extra_delta, at_least=0)
    epsilons, deltas = _profile(plan)
    used = epsilons <= largest_epsilon
    epsilons, deltas = epsilons[used], deltas[used]
    return region(epsilons[:, None], deltas[:, None] + extra, rates).min(axis=0)


def region(epsilon: Any, delta: Any, false_positive_rate: Any) -> np.ndarray:
    """The largest true-positive rate that (epsilon, delta) allows at a false-positive rate; arrays
    are broadcast.
    """
    grow = np.exp(np.minimum(epsilon, 700.0))
    accused = grow * false_positive_rate + delta
    spared = 1 - (1 - delta - false_positive_rate) / grow
    return np.minimum(1.0, np.minimum(accused, spared))
