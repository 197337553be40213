"""One plan under every sampler, relation and accountant, for comparison with published numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench._validate import ArgumentError, choice
from workbench.privacy import accounting
from workbench.privacy.steps import LAWS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare"]

_NOTES = {
    "pld": "upper bound; used for guarantees",
    "rdp": "looser upper bound",
    "rdp_classic": "upper bound with the conversion of 2017, as in papers before 2020",
    "fourier": "approximation, not a bound",
}


def compare(
    *,
    sampling_rate: Any,
    noise_multiplier: Any,
    steps: Any,
    delta: float,
    accountants: Any = accounting.ACCOUNTANTS,
) -> pd.DataFrame:
    """Epsilon of one plan under every sampler, neighbouring relation and accountant.

    The rows answer different questions. A smaller epsilon under another relation does not mean
    better privacy, and a number holds only for a training loop that draws its minibatches with that
    sampler.

    >>> plan = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "steps": 1000}
    >>> table = wb.privacy.compare(delta=1e-5, accountants=["pld"], **plan)
    >>> table[["sampler", "relation", "epsilon"]]
                   sampler           relation  epsilon
    0              poisson  add_or_remove_one   1.8283
    1  without_replacement        replace_one  14.8208
    2              shuffle        replace_one  46.2113
    3              shuffle    replace_special  17.8566
    4    random_allocation  add_or_remove_one   1.7037

    :param sampling_rate: q in (0, 1], or a sequence for schedules, as ``noise_multiplier`` and
        ``steps``: see ``accounting.epsilon``.
    :param delta: in (0, 1).
    :param accountants: some of ``accounting.ACCOUNTANTS``.
    :return: a data frame with columns sampler, relation, accountant, epsilon (rounded up to 4
        decimals; missing if the accountant is not reliable) and note.
    :raises ArgumentError: naming the argument and its value.
    """
    for accountant in accountants:
        choice("accountants", accountant, accounting.ACCOUNTANTS)
    plan = {
        "sampling_rate": sampling_rate,
        "noise_multiplier": noise_multiplier,
        "steps": steps,
        "delta": delta,
    }
    rows = []
    for sampler, law in LAWS.items():
        for relation in dict.fromkeys((*law.relations, *law.fourier)):
            # each once, the approximation last
            for accountant in sorted(dict.fromkeys(accountants), key="fourier".__eq__):
                if relation in (law.fourier if accountant == "fourier" else law.relations):
                    rows.append(_row(sampler, relation, accountant, plan))
    import pandas as pd

    return pd.DataFrame(rows)


def _row(sampler: str, relation: str, accountant: str, plan: dict[str, Any]) -> dict[str, Any]:
    epsilon, note = None, _NOTES[accountant]
    try:
        epsilon = accounting.epsilon(
            sampler=sampler, relation=relation, accountant=accountant, **plan
        )
    except ArgumentError as error:
        if error.argument != "accountant":
            raise
        note = error.expectation
    return {
        "sampler": sampler,
        "relation": relation,
        "accountant": accountant,
        "epsilon": None if epsilon is None else accounting.round_up(epsilon, 4),
        "note": note,
    }
