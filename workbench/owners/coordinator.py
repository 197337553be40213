"""What the coordinator does: add up the sums of all owners, and make a result of the totals."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench._schema import listed, mapped, number, record, text, whole
from workbench._validate import ArgumentError
from workbench.data.look import Look
from workbench.owners import files
from workbench.owners.agreements import Side, side_of
from workbench.owners.planning import Plan, as_plan
from workbench.results import FitResult

__all__ = ["Part", "fit", "total"]

_FORM = record(
    {
        "plan": text(),
        "keys": text(),
        "owner": text(),
        "round": whole(),
        "grid": mapped(number()),
        "spacings": listed(number(above=0)),
        "words": text(),
        "checksum": text(),
    }
)


class Part(NamedTuple):
    """The noised and masked sum of an owner.

    :param keys: SHA-256 of the keys of all. :param round: its number, from 0.
    :param spacings: g of the sum, and of counts of norms. :param grid: as of ``Agreement``.
    """

    owner: str
    keys: str
    round: int
    spacings: tuple[float, ...]
    grid: Mapping[str, Any]
    words: np.ndarray

    @classmethod
    def of(cls, plan: Plan, argument: str, path: object, written: str | bytes) -> Part:
        """The part that an owner wrote.

        :param argument: for errors. :param path: where it is from.
        :raises ArgumentError: if it is damaged, or of another plan.
        """
        content = files.checked(argument, path, written, "sum", _FORM)
        if content.pop("checksum") != files.digest_of(content):
            raise ArgumentError(argument, str(path), "was altered after it was written.")
        plan.require_of(argument, path, content)
        try:
            words = np.frombuffer(base64.b64decode(content["words"], validate=True), "<u4")
        except (binascii.Error, ValueError):
            words = np.empty(0, np.uint32)
        facts = (content["owner"], content["keys"], content["round"])
        return cls(*facts, tuple(content["spacings"]), content["grid"], words)


def fit(plan: Plan | str | Path, sums: Iterable[str | Path]) -> FitResult | Look:
    """The result of a plan, from the files that its owners wrote.

    It is that of a fit of all records by ``wb.fit`` with the estimator "statistics", and its
    guarantee says who learns what. The ledgers of the owners have what it costs.

    :param plan: or its file. :param sums: the files that ``write_sum`` wrote, of all owners.
    :raises ArgumentError: naming ``sums``, and then nothing is shown: for a file of another plan,
        two of one owner, an owner whose file is missing, other keys or another grid than the
        others', or numbers that were altered.
    """
    agreed = as_plan(plan)
    side = side_of(agreed)
    by_owner: dict[str, Part] = {}
    for path in sums:
        answer = Part.of(agreed, "sums", path, files.read_bytes("sums", path))
        if answer.owner in by_owner:
            raise ArgumentError("sums", str(path), f"is a second file of {answer.owner}.")
        by_owner[answer.owner] = answer
    (released,) = total(agreed, side, by_owner)
    return side.result(released)


def total(plan: Plan, side: Side, by_owner: Mapping[str, Part]) -> list[np.ndarray]:
    """The noised sums over all records, float[d], and counts of norms where there are some.

    :raises ArgumentError: naming ``sums``, if one is missing, or they do not go together.
    """
    plan.require_all("sums", by_owner, "its sum")
    answers = [by_owner[owner] for owner in plan.owners]
    units = np.zeros(side.size, np.uint32)
    for answer in answers:
        if answer[1:4] != answers[0][1:4]:
            raise ArgumentError(
                "sums",
                answer.owner,
                f"used other keys or another spacing than {answers[0].owner}, so the masks do not "
                "cancel: agree on a new plan.",
            )
        if answer.grid != side.grid:
            reason = (
                "computed its sum for other noise than here: all must use the same version of the "
                "workbench."
            )
            raise ArgumentError("sums", answer.owner, reason)
        grids = 1 + (side.size > side.noise_size)
        if answer.words.shape != units.shape or len(answer.spacings) != grids:
            numbers = f"has {len(answer.words)} numbers in its file"
            reason = f"{numbers} instead of {side.size}, or not {grids} spacings."
            raise ArgumentError("sums", answer.owner, reason)
        units = units + answer.words.astype(np.uint32)
    pieces = np.split(units.view(np.int32).astype(float), [side.noise_size])
    _require_possible(plan, side, pieces[0])
    return [x * spacing for x, spacing in zip(pieces, answers[0].spacings, strict=False)]


def _require_possible(plan: Plan, side: Side, units: np.ndarray) -> None:
    """:raises ArgumentError: for a total, in spacings, that no records and no noise give, as where
    masks do not cancel.
    """
    if np.any(np.abs(units) > side.largest):
        raise ArgumentError(
            "sums",
            None,
            "add up to what no records give: a file was altered, or the owners have more records "
            f"together than the {plan.num_records} of the plan. Nothing is shown; agree on a new "
            "plan.",
        )
