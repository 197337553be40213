"""Epsilon of the result in this folder, computed again by the package dp-accounting alone.

To run it: pip install dp-accounting, then python check_epsilon.py. It reads result.json and uses
no code of the workbench. Exit codes: 0 confirmed, 1 contradicted, 2 not checked.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

NOT_CHECKED = """not checked by this script: the shares of delta for minibatches that overflow and
for the rounding of noise (overflow_delta, noise_delta); that the program did what is stated"""


def epsilon_of(phases: list[tuple[float, float, int]], delta: float) -> float | None:
    """Epsilon at ``delta`` of T releases, each of a share q of the records by Poisson sampling,
    with noise of s times what a record adds; None where it takes long or loses digits.

    :param phases: (q, s, T)
    """
    squares = sum(t / s**2 for q, s, t in phases if q == 1)  # many Gaussian releases are one
    sampled = [phase for phase in phases if phase[0] < 1]
    if delta < 1e-12 or any(t > 10**5 or q < 1e-4 or s < 0.5 for q, s, t in sampled):
        return None
    # (standard deviation, largest) of the loss of a step
    losses = [
        (q * math.sqrt(math.expm1(s**-2)), math.log1p(q * math.expm1((9 + 1 / s) / s)))
        for q, s, _ in sampled
    ] or [(math.sqrt(squares), 10 * math.sqrt(squares))]
    grid = min(min(max(sd / 40, 1e-6), 2e-3, max(end / 1e4, 1e-4)) for sd, end in losses)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, grid)
    if squares:
        accountant.compose(dp_event.GaussianDpEvent(1 / math.sqrt(squares)))
    for q, s, t in sampled:
        accountant.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(s)), t)
    return float(accountant.get_epsilon(delta))


def recompute(fit: dict[str, Any]) -> list[tuple[str, str]]:
    """(status, sentence) for all that reads a record. :param fit: the guarantee in result.json."""
    look = [(1.0, fit["look_noise"], 1)] if fit["look_noise"] else []
    steps = [*look, (fit["sampling_rate"], fit["noise_multiplier"], fit["steps"])]
    runs = {f"run {number}": phases for number, phases in enumerate(fit.get("candidates", []), 1)}
    reads = runs or {"the fit": steps}
    if fit.get("score_noise"):
        reads["the scores"] = [(1.0, fit["score_noise"], 1)]
    costs = (fit["overflow_delta"], fit["noise_delta"])
    delta = fit["delta"] - sum(costs)
    ranges = [0 < q <= 1 and s > 0 and t >= 1 for phases in reads.values() for q, s, t in phases]
    if not (all(ranges) and min(costs) >= 0 and 0 < delta < 1 and 0 < fit["epsilon"] < 1e6):
        return [("failed", "the guarantee has a number that none can have")]
    moves = 2 if fit["relation"] == "replace_one" else 1  # how far a record moves a sum, in C
    answers = []
    for name, phases in reads.items():
        if fit["sampler"] == "shuffle":  # a record enters one step of each epoch
            phases = [(1.0, s, math.ceil(t / ((1 + 1e-12) // q))) for q, s, t in phases]
        epsilon = None
        if all(q == 1 for q, _, _ in phases) or (fit["sampler"], moves) == ("poisson", 1):
            epsilon = epsilon_of([(q, s / moves, t) for q, s, t in phases], delta)
        if epsilon is None:
            answers.append(("not checked", f"dp-accounting has nothing exact and quick for {name}"))
        else:
            status = "failed" if epsilon > 1.002 * fit["epsilon"] else "passed"
            answers.append((status, f"{name}: epsilon {epsilon:.6g}, claimed {fit['epsilon']:g}"))
    if runs:
        answers.append(("not checked", "dp-accounting has no accountant for the best of K runs"))
    return answers


if __name__ == "__main__":
    index = json.loads(Path(__file__).with_name("result.json").read_text("utf-8"))
    results = recompute(index["guarantee"])
    print(*(f"{status}: {sentence}" for status, sentence in results), NOT_CHECKED, sep="\n")
    statuses = {status for status, _ in results}
    sys.exit(1 if "failed" in statuses else 2 if "not checked" in statuses else 0)
