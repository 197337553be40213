"""What an owner does: make a key, and then release noised and masked sums of its records, once a
round: in a file, or in answers to a coordinator.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from workbench import _folders, _validate
from workbench._keys import make_key as make_secret
from workbench._keys import read_key
from workbench._validate import ArgumentError
from workbench.data.schema import as_table
from workbench.fitting.single_release import charged
from workbench.ledger.reservation import ledger_for
from workbench.owners import files
from workbench.owners.agreements import Side, side_of
from workbench.owners.masks import (
    Masks,
    digest_of_keys,
    keys_of_all,
    public_key,
    require_cryptography,
)
from workbench.owners.planning import Plan, as_plan
from workbench.owners.sums import Sum, Sums

__all__ = ["Ready", "make_key", "write_sum"]


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

    def put_back(self, private: bytes) -> None:
        """Write the key again, which was taken and not used."""
        make_secret(self.file, private)

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
    if agreed.rounds > 1:
        reason = "has more rounds than files can bring: answer it with wb.owners.answer."
        raise ArgumentError("plan", agreed.model, reason)
    path = _folder(folder) / f"owner-{agreed.position(owner) + 1}.sum.json"
    if path.exists():
        raise ArgumentError("folder", str(folder), f"has a file {path.name} already.")
    ready = Ready.of(agreed, owner, data, keys, name)
    with ready.charged(ledger, over_cap) as sums:
        return files.write_new("folder", path, "sum", ready.content(0, sums.at(0, sums.start)))


@dataclass(frozen=True, eq=False, repr=False)
class Ready:
    """An owner that can answer its plan: whatever can fail has not failed, and nothing is spent.

    :param plan: which it answers. :param owner: its name. :param keys: SHA-256 of all public keys.
    :param side: the plan with its records. :param masks: that cover its sums.
    :param sums: of its records, compiled.
    """

    plan: Plan
    owner: str
    keys: str
    side: Side
    masks: Masks
    sums: Sums
    _secret: _Secret
    _private: bytes

    @classmethod
    def of(
        cls, plan: Plan, owner: str, data: Any, keys: Iterable[str | Path], name: str | None
    ) -> Ready:
        """:raises ArgumentError: naming the argument and its value, as of ``write_sum``."""
        position = plan.position(owner)
        public = keys_of_all(plan, keys)
        secret = _Secret.of(plan, owner)
        private = secret.read(owner)
        if public_key(private) != public[position]:
            reason = "is not the key that was made here for this plan."
            raise ArgumentError("keys", public[position].hex(), reason)
        try:
            side = side_of(plan, as_table("data", data), name or f"records of {owner}")
        except ArgumentError as error:  # its remedies are arguments of a fit, which a plan fixes
            raise ArgumentError(error.argument, error.value, error.expectation) from None
        masks = Masks.of(plan, private, public, position)
        return cls(
            plan, owner, digest_of_keys(plan, public), side, masks, side.sums(), secret, private
        )

    def require_cap(self, ledger: Any, over_cap: str | None) -> None:
        """Refuse what a cap will not allow, before others wait for this owner and are charged.

        :raises CapError: as of ``charged``, which decides.
        """
        book = ledger_for(self.side.data, ledger)
        if book is not None and over_cap is None:
            book.budget_status(self.side.dataset_id()).check([self.side.guarantee])

    @contextlib.contextmanager
    def charged(self, ledger: Any, over_cap: str | None) -> Iterator[Sums]:
        """Its sums, once its secret key is deleted, which one process can do, and its ledger has
        the charge of all rounds. Where the ledger refuses, the key is there again.

        :raises ArgumentError: if the plan has been answered; ``CapError`` where a cap does not
            allow it.
        """
        side = self.side
        charge = charged(
            side.data,
            side.guarantee,
            side.released,
            side.dataset_id,
            side.counts_with,
            seed=None,  # which would let others predict its noise
            ledger=ledger,
            over_cap=over_cap,
        )
        self._secret.take(self.owner)
        with contextlib.ExitStack() as stack:
            try:
                key = stack.enter_context(charge).key
            except BaseException:
                self._secret.put_back(self._private)
                raise
            self.sums.begin(key)
            yield self.sums

    def content(self, number: int, answer: Sum) -> dict[str, Any]:
        """What others see of a sum. :param number: of the round, from 0."""
        words = answer.words + self.masks.at(number, len(answer.words))
        content = {
            "plan": self.plan.digest,
            "keys": self.keys,
            "owner": self.owner,
            "round": number,
            "grid": dict(self.side.grid),
            "spacings": answer.spacings,
            "words": base64.b64encode(words.astype("<u4").tobytes()).decode(),
        }
        return {**content, "checksum": files.digest_of(content)}
