"""Accountants of published papers, for comparison: Rényi differential privacy and the Fourier
accountant.
"""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dp_accounting import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from workbench import _validate
from workbench.privacy import events
from workbench.privacy.rdp import renyi_loss
from workbench.privacy.steps import Steps

__all__ = ["epsilon"]

_RELATIONS = {
    "add_or_remove_one": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
    "replace_special": NeighboringRelation.REPLACE_SPECIAL,
}
_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256)  # of random allocation, whole ones
_FOURIER_SECONDS = 20.0
_FOURIER_POINTS = 10**6
_FOURIER_LARGEST = 100.0


def epsilon(
    plan: Steps, delta: float, accountant: str, bound: Callable[[Steps, float], float]
) -> float:
    """epsilon by "rdp" or "rdp_classic", upper bounds, or by "fourier", an approximation.

    :param bound: ``bound(plan, delta)``, an upper bound on epsilon that "fourier" is compared with.
    :raises ArgumentError: if "fourier" is not reliable or does not apply.
    """
    if not plan.phases:
        return 0.0
    if accountant == "fourier":
        return _fourier(plan, delta, bound)
    if plan.law.participation == "random step":
        losses = ((order, renyi_loss(plan, order)) for order in _ORDERS)
        return min(_converted(order, loss, delta, accountant) for order, loss in losses)
    if plan.law.participation == "known step":
        squares = sum(phase.steps / phase.noise_multiplier**2 for phase in plan.uses_of_a_record)
        return _of_gaussian(plan.sensitivity**2 * squares / 2, delta, accountant)
    renyi = RdpAccountant(neighboring_relation=_RELATIONS[plan.relation])
    with _quiet():
        for phase in plan.phases:
            renyi.compose(events.of_phase(plan, phase), phase.steps)
    if accountant == "rdp":
        return float(renyi.get_epsilon(delta))
    return float(
        min(
            _classic(cost, order, delta)
            for order, cost in zip(renyi._orders, renyi._rdp, strict=True)
        )
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence dp-accounting, which warns about each Rényi order that it leaves out. That only makes
    the bound larger.
    """
    logger = logging.getLogger("absl")
    logger.addFilter(_says_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_says_nothing)


def _says_nothing(_: logging.LogRecord) -> bool:
    return False


def _classic(cost: float, order: float, delta: float) -> float:
    """Mironov 2017, Proposition 3."""
    return cost + math.log(1 / delta) / (order - 1)


def _of_gaussian(rho: float, delta: float, accountant: str) -> float:
    """Epsilon of a Gaussian mechanism, whose Rényi divergence is rho times the order, at the best
    order.
    """
    if accountant == "rdp_classic":
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    orders = [1 + math.sqrt(math.log(1 / delta) / rho) * 1.03**power for power in range(-80, 81)]
    return min(_converted(a, rho * a, delta, accountant) for a in orders)


def _converted(order: float, loss: float, delta: float, accountant: str) -> float:
    """Epsilon of a Rényi divergence of ``loss`` at ``order``."""
    if accountant == "rdp_classic":
        return _classic(loss, order, delta)
    # Canonne, Kamath and Steinke 2020, Proposition 12
    return max(0.0, loss + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))


def _fourier(plan: Steps, delta: float, bound: Callable[[Steps, float], float]) -> float:
    """The Fourier accountant of Koskela, Jälkö and Honkela (2020), in its own process because it
    can hang.
    """

    def unreliable(reason: str) -> _validate.ArgumentError:
        return _validate.ArgumentError("accountant", "fourier", f"not reliable here: {reason}")

    if not plan.law.fourier:
        raise _validate.ArgumentError(
            "accountant", "fourier", f"is for Poisson minibatches only, not for {plan.sampler!r}."
        )
    if any(phase.sampling_rate == 1 for phase in plan.phases):
        raise unreliable("it is not defined at q = 1.")
    reference = bound(Steps(plan.sampler, plan.law.relations[0], plan.phases), delta)
    if not reference <= _FOURIER_LARGEST:
        raise unreliable(f"epsilon is above {_FOURIER_LARGEST:g}, where it fails.")
    question = {
        "relation": plan.relation,
        "phases": plan.phases,
        "delta": delta,
        # the largest loss on its grid; twice as much where the relation doubles the loss
        "largest": max(20.0, 3 * reference * plan.sensitivity),
        "points": _FOURIER_POINTS,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "workbench.privacy._fourier_process"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=_FOURIER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise unreliable(f"it did not answer within {_FOURIER_SECONDS:g} s.") from None
    if done.returncode != 0:
        raise unreliable((done.stderr.strip().splitlines() or ["it ended without an answer."])[-1])
    answer: dict[str, Any] = json.loads(done.stdout)
    value, doubled, defect = (
        answer["epsilon"],
        answer["epsilon_on_twice_the_points"],
        answer["mass_defect"],
    )
    steps = sum(phase.steps for phase in plan.phases)
    if defect * steps > 1e-2:
        raise unreliable(
            f"its probabilities of one step miss 1 by {defect:.1e}, which is too much for "
            f"{steps:,} steps."
        )
    if not abs(value - doubled) <= 1e-2 * abs(doubled):
        raise unreliable(f"its answer is {value:.4g}, but {doubled:.4g} on twice the points.")
    if plan.relation == "add_or_remove_one" and doubled < 0.98 * reference:
        raise unreliable(
            f"its answer is {doubled:.4g}, but privacy loss distributions give {reference:.4g}."
        )
    return float(doubled)
