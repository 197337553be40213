"""The ledger's part of a release: the fits that count on the same records, each chained to the one
before it.

Seeds, people, reasons, folders and digests of plans are left out: a seed of another fit would give
away its noise. The chain shows a row that was altered, moved or removed before others, by accident
or by somebody who does not compute it again. It has no key, so it proves nothing about the owner of
the ledger.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from workbench._numbers import upper
from workbench._schema import FormError
from workbench._validate import ArgumentError
from workbench.ledger.composition import total
from workbench.ledger.ledger import Ledger
from workbench.privacy.chosen import Chosen
from workbench.privacy.cross_validated import CrossValidated
from workbench.privacy.guarantee import Guarantee, check_epsilon

__all__ = ["broken", "excerpt", "is_quick", "of_release", "of_total", "total_in_words"]

# known only after a fit, or worded then
_OF_THE_END = ("steps_taken", "epsilon_taken", "second_opinion", "caveats")
# of a choice the ledger reserves the plan of all candidates, not knowing which one is published
_OF_ONE_RUN = (
    *("sampling_rate", "noise_multiplier", "clip", "clipping", "steps", "adapts_clip"),
    *("look_noise", "noise_delta"),
)
_QUICK = 20  # fits
_FILTER = "Renyi filter"


def excerpt(ledger: Ledger, key: str) -> dict[str, Any]:
    """What ``ledger`` says of the fit with ``key``, and of all others on the same records.

    :raises ArgumentError: naming ``ledger``, if it does not have the fit.
    """
    spend = ledger.spend(key)
    if spend is None:
        raise ArgumentError(
            "ledger",
            str(ledger.path),
            "does not have this fit.",
            remedy="Name the file that the fit was recorded in, or False to release without it.",
        )
    names = {entry.number: entry.name for entry in ledger.datasets()}
    status = ledger.budget_status(spend.dataset)
    fits: list[dict[str, Any]] = []
    for counted in filter(attrgetter("counts"), status.spends):
        plain = ("number", "key", "model", "status", "rule", "planned", "taken", "version")
        row = {name: getattr(counted, name) for name in (*plain, "began", "ended")}
        row |= {"dataset": names[counted.dataset], "unit": counted.guarantee.unit}
        # not in caveats either, which name the seed of a fit that has one
        row["guarantee"] = {**counted.guarantee.to_dict(), "caveats": []}
        fits.append({**row, "chain": _chained(fits[-1:], row)})
    assert status.total is not None, "a fit that took a step counts"
    facts = dataclasses.asdict(status.total)
    if not math.isfinite(status.total.epsilon):
        facts["epsilon"] = None
    return {"format": 1, "key": key, "fits": fits, "total": facts}


def _chained(before: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> str:
    """The digest of a row and of all rows before it."""
    last = before[-1]["chain"] if before else ""
    content = {name: value for name, value in row.items() if name != "chain"}
    text = json.dumps([last, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def broken(values: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the rows, whatever they are about."""
    fits = values["fits"]
    for index, row in enumerate(fits):
        if row["chain"] != _chained(fits[:index], row):
            yield f"the row of fit {row['number']} was altered, or one before it is missing"
            return
        try:
            check_epsilon(Guarantee.from_dict(row["guarantee"]))
        except FormError as error:
            yield f"fit {row['number']} is wrong: guarantee.{error}"
    numbers = [row["number"] for row in fits]
    if sorted(set(numbers)) != numbers:
        yield "the numbers of fits do not ascend"


def of_release(
    values: Mapping[str, Any], index: Mapping[str, Any], fit: Guarantee
) -> Iterator[str]:
    """What contradicts the release in its own row. :param index: result.json."""
    rows = [row for row in values["fits"] if row["key"] == index["spend"]]
    if len(rows) != 1 or values["key"] != index["spend"]:
        yield f"the fit with the key {index['spend']} of result.json (spend) is not in it"
        return
    (row,), said = rows, fit.to_dict()
    free = (*_OF_THE_END, *(_OF_ONE_RUN if isinstance(fit, Chosen) else ()))
    if fit.look_noise and not isinstance(
        fit, CrossValidated
    ):  # C, and how many numbers get noise, may follow from it
        free += ("clip", "noise_delta")
    for name in sorted({*said, *row["guarantee"]} - {*free}):
        there = row["guarantee"].get(name)
        if there != said.get(name):
            yield f"its guarantee.{name} is {there}, but result.json has {said.get(name)}"
    pairs = {
        "model": (row["model"].removeprefix("choice of "), index["model"]),
        "unit": (row["unit"], fit.unit),
        "version": (row["version"], index["versions"].get("workbench")),
    }
    if not isinstance(fit, Chosen):
        pairs["taken"] = (row["taken"], fit.steps_taken)
        pairs["planned"] = (row["planned"], fit.steps)
    for name, (there, said_here) in pairs.items():
        if there != said_here:
            yield f"its {name} is {there}, but result.json has {said_here}"


def is_quick(values: Mapping[str, Any]) -> bool:
    """Whether the total of the fits is computed within seconds, and is no filter's."""
    fits = [Guarantee.from_dict(row["guarantee"]) for row in values["fits"]]
    kinds = (Guarantee, CrossValidated)
    plain = all(type(fit) in kinds and fit.sampler != "random_allocation" for fit in fits)
    return plain and len(fits) <= _QUICK and values["total"]["method"] != _FILTER


def seeded(values: Mapping[str, Any]) -> list[int]:
    """The numbers of fits with a seed, of which whoever knows it can take off the noise."""
    return [row["number"] for row in values["fits"] if not row["guarantee"]["secure_randomness"]]


def of_total(values: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the total that is stated. A cap that was kept may be less than a total."""
    stated = values["total"]
    fits = [Guarantee.from_dict(row["guarantee"]) for row in values["fits"]]
    least = total(fits, stated["delta"])
    epsilon = math.inf if stated["epsilon"] is None else stated["epsilon"]
    by_filter = stated["method"] == _FILTER
    smallest = max(fit.epsilon_taken for fit in fits) if by_filter else least.epsilon
    if stated["fits"] != least.fits:
        yield f"its total is of {stated['fits']} fits, but it has {least.fits}"
    elif epsilon < smallest:
        yield f"its total is epsilon {stated['epsilon']}, but its fits spend {smallest}"
    elif stated["relation"] != least.relation:
        yield f"its total is under {stated['relation']}, but its fits are under {least.relation}"
    elif not by_filter and math.isfinite(epsilon) and stated["method"] != least.method:
        yield f"its total is by {stated['method']!r}, but that of its fits is by {least.method!r}"


def total_in_words(values: Mapping[str, Any]) -> str:
    """What all fits spend together, as the ledger said."""
    stated = values["total"]
    epsilon = "no finite epsilon" if stated["epsilon"] is None else f"epsilon {stated['epsilon']}"
    fits = "The one fit" if stated["fits"] == 1 else f"All {stated['fits']} fits"
    return f"{fits} on these records together: {epsilon}, delta {upper(stated['delta'])}"
