"""What the coordinator does: add up the files of all owners, and make a result of the total."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench._schema import number, record, text, whole
from workbench._validate import ArgumentError
from workbench.fitting.fits import begun
from workbench.fitting.one_shot import OneShot
from workbench.fitting.spec import FitSpec
from workbench.inference.state import Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.owners import files
from workbench.owners.planning import Agreement, Plan, agreement, as_plan
from workbench.owners.shares import Shares
from workbench.posterior import statistics
from workbench.privacy.plan import PrivacyPlan
from workbench.results import FitResult

__all__ = ["fit"]

_FORM = record(
    {
        "plan": text(),
        "keys": text(),
        "owner": text(),
        "grid": record(
            {
                "clip": number(above=0),
                "noise_multiplier": number(above=0),
                "level": whole(at_least=-(2**31)),
                "capacity": whole(),
                "size": whole(at_least=1),
                "spacing": number(above=0),
            }
        ),
        "words": text(),
        "checksum": text(),
    }
)
_ALONE = Shares(1, 0)
_FAR = 20  # standard deviations of the noise, beyond which no total is


class _Part(NamedTuple):
    owner: str
    keys: str
    spacing: float
    grid: Mapping[str, Any]
    words: np.ndarray


def fit(plan: Plan | str | Path, sums: Iterable[str | Path]) -> FitResult:
    """The result of a plan, from the files that its owners wrote.

    It is that of a fit of all records by ``wb.fit`` with the estimator "statistics", and its
    guarantee says who learns what. The ledgers of the owners have what it costs.

    :param plan: or its file. :param sums: the files that ``write_sum`` wrote, of all owners.
    :raises ArgumentError: naming ``sums``, and then nothing is shown: for a file of another plan,
        two of one owner, an owner whose file is missing, other keys or another grid than the
        others', or numbers that were altered.
    """
    agreed = as_plan(plan)
    answers = _parts(agreed, sums)
    side = agreement(agreed)
    released = _total(side, answers)
    _require_possible(agreed, side, released)
    estimation = _OfOwners.of(side.estimation, agreed.shares)
    spec = replace(side.spec, estimation=estimation)
    prepared = begun(side.request, spec, side.privacy, spec.new_key())
    # a step of SGD from 0 by the mean gradient, as the step of a fit takes it
    prepared.adopt({statistics.SITE: -released / agreed.num_records}, {}, 0.0)
    return replace(prepared.result(), guarantee=side.guarantee)


@dataclass(frozen=True, eq=False, repr=False)
class _OfOwners(OneShot):
    """A fit from sums with the noise of all owners. :param division: how it was divided."""

    division: Shares = _ALONE

    @classmethod
    def of(cls, one_shot: OneShot, division: Shares) -> _OfOwners:
        fields = (one_shot.model, one_shot.sums, one_shot.predict, one_shot.score)
        return cls(*fields, division=division)

    def hyper(self, spec: FitSpec, plan: PrivacyPlan, step: PrivateStep) -> Hyperparameters:
        return Hyperparameters.of(self.division.in_all(plan.mechanism), None)


def _parts(plan: Plan, paths: Iterable[str | Path]) -> list[_Part]:
    """The files of all owners, in their order. :raises ArgumentError: naming ``sums``."""
    by_owner: dict[str, _Part] = {}
    for path in paths:
        content = files.read("sums", path, "sum", _FORM)
        checksum, owner = content.pop("checksum"), content["owner"]
        if checksum != files.digest_of(content):
            raise ArgumentError("sums", str(path), "was altered after it was written.")
        plan.require_of("sums", path, content)
        if owner in by_owner:
            raise ArgumentError("sums", str(path), f"is a second file of {owner}.")
        grid = dict(content["grid"])
        try:
            words = np.frombuffer(base64.b64decode(content["words"], validate=True), "<u4")
        except (binascii.Error, ValueError):
            words = np.empty(0, np.uint32)
        by_owner[owner] = _Part(owner, content["keys"], grid.pop("spacing"), grid, words)
    plan.require_all("sums", by_owner, "its sum")
    answers = [by_owner[owner] for owner in plan.owners]
    for answer in answers[1:]:
        if (answer.keys, answer.spacing) != (answers[0].keys, answers[0].spacing):
            raise ArgumentError(
                "sums",
                answer.owner,
                f"used other keys or another spacing than {answers[0].owner}, so the masks do not "
                "cancel: agree on a new plan.",
            )
    return answers


def _total(side: Agreement, answers: list[_Part]) -> np.ndarray:
    """The noised sum over all records, float[d]. :raises ArgumentError: naming ``sums``."""
    total = np.zeros(side.size, np.uint32)
    for answer in answers:
        if answer.grid != side.grid:
            reason = (
                "computed its sum for other noise than here: all must use the same version of the "
                "workbench."
            )
            raise ArgumentError("sums", answer.owner, reason)
        if answer.words.shape != total.shape:
            reason = f"has {len(answer.words)} numbers in its file instead of {side.size}."
            raise ArgumentError("sums", answer.owner, reason)
        total = total + answer.words.astype(np.uint32)
    return total.view(np.int32).astype(float) * answers[0].spacing


def _require_possible(plan: Plan, side: Agreement, released: np.ndarray) -> None:
    """:raises ArgumentError: for a total that no records and no noise give, as where masks do not
    cancel.
    """
    noise = plan.shares.in_all(side.privacy.mechanism).standard_deviation
    largest = plan.num_records * float(side.privacy.mechanism.clip) * 1.01 + _FAR * 1.01 * noise
    if np.any(np.abs(released) > largest):
        raise ArgumentError(
            "sums",
            None,
            "add up to what no records give: a file was altered, or the owners have more records "
            f"together than the {plan.num_records} of the plan. Nothing is shown; agree on a new "
            "plan.",
        )
