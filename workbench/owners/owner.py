"""What an owner does: make a key, and then write the noised and masked sum of its records, once."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from workbench import _folders, _validate
from workbench._keys import make_key as make_secret
from workbench._keys import read_key
from workbench._validate import ArgumentError
from workbench.fitting.single_release import charged
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.owners import files
from workbench.owners.masks import (
    digest_of_keys,
    keys_of_all,
    mask,
    public_key,
    require_cryptography,
)
from workbench.owners.planning import Agreement, Plan, agreement, as_plan
from workbench.record_model.model import Record

__all__ = ["Sum", "make_key", "write_sum"]


class Sum(NamedTuple):
    """A noised sum in whole numbers. :param words: uint32[d]. :param spacing: g, public."""

    words: np.ndarray
    spacing: float


class _Secret(NamedTuple):
    """The secret key of an owner for one plan: a file that is deleted as it is used, beside a mark
    that it was there.
    """

    file: Path
    mark: Path

    @classmethod
    def of(cls, plan: Plan, owner: str) -> _Secret:
        stem = _folders.state() / "owners" / f"{plan.digest}-{plan.position(owner) + 1}"
        return cls(stem.with_suffix(".key"), stem.with_suffix(".mark"))

    def make(self, owner: str) -> bytes:
        """The key, which is made if there was none. :raises ArgumentError: if it was used."""
        try:
            self.mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.file.exists():
                os.close(os.open(self.mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return make_secret(self.file)
        except FileExistsError:
            raise self._gone(owner) from None
        except OSError as error:
            reason = f"has no key, because {self.file} cannot be written ({error.strerror})."
            raise ArgumentError("owner", owner, reason) from None

    def read(self, owner: str) -> bytes:
        """The key. :raises ArgumentError: if there is none, or no more."""
        try:
            secret = read_key(self.file)
        except OSError as error:
            reason = f"has a key that cannot be read ({self.file}: {error.strerror})."
            raise ArgumentError("owner", owner, reason) from None
        if secret is None:
            raise self._gone(owner)
        return secret

    def take(self, owner: str) -> None:
        """Delete the key. Of several processes that want to use it one succeeds.

        :raises ArgumentError: if another has taken it.
        """
        try:
            self.file.unlink()
            with contextlib.suppress(PermissionError):  # Windows does not open folders
                _folders.flush(self.file.parent)  # otherwise it may be back after a power cut
        except OSError:
            raise self._gone(owner) from None

    def _gone(self, owner: str) -> ArgumentError:
        if self.mark.exists():
            reason = (
                "has answered this plan already, or began to: it is answered once, because the "
                "same masks on other records would show the difference. Agree on a new plan."
            )
        else:
            reason = "has no key for this plan here: make one with make_key first."
        return ArgumentError("owner", owner, reason)


def _folder(folder: str | Path) -> Path:
    path = _validate.path("folder", folder)
    if not path.is_dir():
        raise ArgumentError("folder", str(folder), "is no folder.")
    return path


def make_key(plan: Plan | str | Path, owner: str, folder: str | Path = ".") -> Path:
    """Make an owner's keys for a plan: the secret one stays with the files of your user account,
    the public one is a file for all others.

    :param plan: or its file. :param owner: as the plan names it. :param folder: for the file.
    :return: ``owner-2.key.json`` for the second owner.
    :raises ArgumentError: naming the argument and its value; also where this owner has had a key
        for the plan.
    """
    require_cryptography()
    agreed = as_plan(plan)
    path = _folder(folder) / f"owner-{agreed.position(owner) + 1}.key.json"
    if path.exists():
        raise ArgumentError("folder", str(folder), f"has a file {path.name} already.")
    key = public_key(_Secret.of(agreed, owner).make(owner))
    content = {"plan": agreed.digest, "owner": owner, "public_key": key.hex()}
    return files.write_new("folder", path, "key", content)


def write_sum(
    plan: Plan | str | Path,
    owner: str,
    data: Any,
    keys: Iterable[str | Path],
    folder: str | Path = ".",
    *,
    name: str | None = None,
    ledger: Any = None,
    over_cap: str | None = None,
) -> Path:
    """Write an owner's part of the release: the sum of its records with its part of the noise,
    covered by masks that cancel in the total.

    The ledger has the charge before the file is there, and keeps it whatever happens then. A plan
    is answered once: the secret key is deleted as it is used.

    :param plan: or its file. :param owner: as the plan names it.
    :param data: the owner's own table.
    :param keys: the files that ``make_key`` wrote, of all owners.
    :param folder: for the file.
    :param name: of the records in the ledger. :param ledger: as of ``wb.fit``.
    :param over_cap: why to spend more than a cap of these records allows.
    :return: ``owner-2.sum.json`` for the second owner, for the coordinator.
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow it: then there is no file.
    """
    agreed = as_plan(plan)
    position = agreed.position(owner)
    path = _folder(folder) / f"owner-{position + 1}.sum.json"
    if path.exists():
        raise ArgumentError("folder", str(folder), f"has a file {path.name} already.")
    public = keys_of_all(agreed, keys)
    secret = _Secret.of(agreed, owner)
    private = secret.read(owner)
    if public_key(private) != public[position]:
        reason = "is not the key that was made here for this plan."
        raise ArgumentError("keys", public[position].hex(), reason)
    side = agreement(agreed, data, name or f"records of {owner}")
    # whatever can fail fails before anything is spent
    covering, summed = mask(agreed, private, public, position, side.size), compiled(side)
    spec = side.spec
    with charged(
        spec.source,
        side.guarantee,
        spec.model.name,
        lambda: spec.columns.dataset_id,
        seed=None,  # which would let others predict its noise
        ledger=ledger,
        over_cap=over_cap,
    ) as charge:
        secret.take(owner)
        answer = summed(charge.key)
        words = answer.words + covering
        content = {
            "plan": agreed.digest,
            "keys": digest_of_keys(agreed, public),
            "owner": owner,
            "grid": {**side.grid, "spacing": answer.spacing},
            "words": base64.b64encode(words.astype("<u4").tobytes()).decode(),
        }
        checksum = files.digest_of(content)
        return files.write_new("folder", path, "sum", {**content, "checksum": checksum})


def compiled(side: Agreement) -> Any:
    """``summed(key) -> Sum`` of the records of one owner, compiled; nothing is computed yet."""
    spec, step = side.spec, side.step
    hyper = Hyperparameters.of(step.mechanism)
    size = step.sampler.num_records  # without what ``agreement`` fills up with
    records = tuple(array[:size] for array in spec.placed_records())

    def total(state: DPVIState, records: Record) -> Any:
        draws = step.draw(state.key, state.step, hyper)
        return step.release(state, records, draws, hyper).total

    like = step.init(key_from_seed(0), hyper, step.model.initial)
    program = jax.jit(total).lower(like, records).compile()

    def summed(key: jax.Array) -> Sum:
        on_grid = program(step.init(key, hyper, step.model.initial), records)
        (units,) = jax.tree.leaves(on_grid.units)
        return Sum(np.asarray(units).reshape(-1).view(np.uint32), float(on_grid.spacing))

    return summed
