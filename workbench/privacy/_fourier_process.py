"""The Fourier accountant in its own process: reads a question as JSON from standard input, writes
the answer to output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import fourier_accountant
import numpy as np
from fourier_accountant.common import _evaluate_pld


def answer(question: dict[str, Any]) -> dict[str, float]:
    """epsilon on a grid and on a grid twice as fine, and how far the total probability of a step is
    from 1 at most.
    """
    rates, noises, steps = (np.array(column) for column in zip(*question["phases"], strict=True))
    added = question["relation"] == "add_or_remove_one"
    epsilon_of = fourier_accountant.get_epsilon_R if added else fourier_accountant.get_epsilon_S
    largest, points = question["largest"], question["points"]

    def epsilon(points: int) -> float:
        return float(
            epsilon_of(question["delta"], noises, rates, steps.astype(int), points, largest)
        )

    defects = []
    for rate, noise in zip(rates, noises, strict=True):
        once = np.array([1])
        _, density, width = _evaluate_pld(
            "R" if added else "S", np.array([noise]), np.array([rate]), once, points, largest
        )
        defects.append(abs(float(np.sum(density.real)) * width - 1))
    return {
        "epsilon": epsilon(points),
        "epsilon_on_twice_the_points": epsilon(2 * points),
        "mass_defect": max(defects),
    }


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(answer(json.load(sys.stdin))))
    except ValueError as error:
        sys.exit(str(error))
