"""The ledger: what was spent on which records, and by whom, in one SQLite file (``_file``) on the
user's machine.

A fit on private records reserves its planned steps in one transaction before the first step. It
records how far it may go before it goes there, and at the end it settles to the steps that it took.
After a crash the reservation remains, and all its steps count. ``Ledger.recover`` settles it to the
steps that may have been taken.

A data set is its keyed fingerprint, its name, and what people relate. Data sets that somebody
related, or that have a token in common (``DatasetId``), share what is spent on them, and under a
cap so do those of one name, until somebody separates them (``_relatives``). The key belongs to the
ledger, so everybody who writes to it recognises the same data sets. Data sets that were entered
with another key cannot be compared. They count too, until somebody separates them. Caps are kept by
a filter that holds for fits chosen one after the other (``renyi_filter``). Besides it there is the
tighter total for plans that were fixed beforehand (``composition``).

The file holds plans, promises, names and times, and nothing computed from records but keyed hashes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import __version__, _folders, _validate
from workbench.ledger import _relatives, _rows, owners
from workbench.ledger._errors import LedgerDiskError, LedgerError, LedgerFileError, LostLedgerError
from workbench.ledger.budget import BudgetStatus, CapError
from workbench.ledger.entries import OVERRIDE, Entry, Spend, event_of
from workbench.ledger.file import LedgerFile, check_pages, fact, now
from workbench.ledger.renyi_filter import Cap
from workbench.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from workbench.ledger.report import BudgetReport

__all__ = [
    "BudgetStatus",
    "CapError",
    "DatasetId",
    "Entry",
    "Ledger",
    "LedgerDiskError",
    "LedgerError",
    "LedgerFileError",
    "LostLedgerError",
    "Spend",
    "default_path",
]


class DatasetId(NamedTuple):
    """How a ledger recognises a data set.

    :param name: short name.
    :param unit: what one record is, in words.
    :param fingerprint: ``fingerprint(key)`` is the data set's ``fingerprint.fingerprint`` with a
        key.
    :param token: random text of fits that count together, whatever records they are on; "" for
        none.
    """

    name: str
    unit: str
    fingerprint: Callable[[bytes], str]
    token: str = ""


def default_path() -> Path:
    """``$WORKBENCH_LEDGER`` if it is set, else ``ledger.sqlite`` in the user's folder of
    application data.
    """
    return Path(
        os.environ.get("WORKBENCH_LEDGER") or _folders.state() / "ledger.sqlite"
    ).expanduser()


_MOST = 2**63 - 1  # that SQLite holds
_OWN_LEDGER = "Use the ledger that the fit began with."


class Ledger:
    """The ledger in one file, which any number of processes and threads may use at once.

    :param path: of the file, which is created with the first entry; None for ``default_path()``.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = (default_path() if path is None else _validate.path("ledger", path)).absolute()
        if not self.path.name:
            raise _validate.ArgumentError("ledger", str(self.path), "must be the path of a file.")
        # a folder that may not be looked into is refused at the first use
        with contextlib.suppress(OSError):
            # the other files are beside the file, not beside the link
            if self.path.is_symlink() and self.path.exists():
                self.path = Path(os.path.realpath(self.path))
        self._file = LedgerFile(self.path)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def exists(self) -> bool:
        """Whether anything was ever entered.

        :raises LostLedgerError: if the file was there and is gone.
        :raises LedgerError: if that cannot be determined.
        """
        return self._file.exists()

    def begin_anew(self) -> Path | None:
        """Begin an empty ledger if the file is gone or damaged. It knows neither what was spent
        before nor any cap.

        :return: where a damaged file was moved to; None if there was no file.
        :raises LedgerError: if the ledger is in order.
        """
        return self._file.begin_anew()

    def new_key(self) -> None:
        """Make another key if the file with the old one is lost. The ledger recognises records by
        its key.

        Data sets entered before can no longer be compared with others. They count together until
        they are separated.

        :raises LedgerError: if the ledger has its key.
        """
        self._file.new_key()

    # ---- looking ---------------------------------------------------------------------------------

    def datasets(self) -> list[Entry]:
        """All data sets, in the order in which they were first seen."""
        if not self.exists():
            return []
        with self._file.open(write=False) as database:
            return list(_rows.entries(database).values())

    def entry(self, dataset: int | str) -> Entry:
        """The data set of a number, a name or the beginning of a fingerprint.

        :raises ArgumentError: if there is no such data set, or more than one.
        """
        if isinstance(dataset, bool) or not isinstance(dataset, (int, str)):
            raise _validate.ArgumentError(
                "dataset", dataset, "must be a number, a name or the beginning of a fingerprint."
            )
        entries = self.datasets()
        if isinstance(dataset, int):
            matches = [entry for entry in entries if entry.number == dataset]
        else:
            name = _validate.composed(dataset)
            matches = [
                entry for entry in entries if str(entry.number) == name or name in entry.names
            ] or [
                entry
                for entry in entries
                if len(dataset) >= 6 and entry.fingerprint.startswith(dataset)
            ]
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(f"{entry.number} ({entry.name})" for entry in matches or entries)
        problem = "is not in the ledger"
        if matches:
            problem = "is the name of several data sets; give a number"
            if any(str(entry.number) == dataset for entry in matches):
                problem = (
                    "is the number of one data set and the name of another; give the beginning of "
                    "a fingerprint"
                )
                names = ", ".join(f"{entry.fingerprint[:8]} ({entry.name})" for entry in matches)
        raise _validate.ArgumentError("dataset", dataset, f"{problem}: {names or 'none'}.")

    def budget_status(self, dataset: int | str | DatasetId) -> BudgetStatus:
        """What was spent on a data set and on those that count together with it. Nothing is
        written.
        """
        if not isinstance(dataset, DatasetId):
            entry = self.entry(dataset)
            with self._file.open(write=False) as database:
                return self._status(database, entry.number)
        if not self.datasets():
            return BudgetStatus(None)
        identity = self._known(dataset)
        with self._file.open(write=False) as database:
            number = _rows.number_of(database, identity)
            return self._status(database, number, identity)

    def _known(self, dataset: DatasetId) -> _rows.Known:
        """How the ledger knows a data set. This may take seconds, so the file is not locked for
        writing meanwhile.
        """
        if not isinstance(dataset, DatasetId):
            expectation = (
                "must be a DatasetId, which workbench.ledger.reservation.id_of makes of a Dataset."
            )
            raise _validate.ArgumentError("dataset", dataset, expectation)
        key = None
        if self.exists():
            with self._file.open(write=False) as database:
                key = self._file.key_in(database)
        key = key or self._file.key()
        return _rows.Known(dataset.name, dataset.unit, dataset.fingerprint(key), key, dataset.token)

    def _entered(self, database: sqlite3.Connection, identity: _rows.Known) -> int:
        """The number of a data set, which is entered with its name and token if they are new."""
        number = _rows.enter(database, identity)
        if identity.token:
            _relatives.note_token(database, identity.token, number)
        return number

    def _status(
        self, database: sqlite3.Connection, number: int | None, identity: _rows.Known | None = None
    ) -> BudgetStatus:
        """The status of a data set. :param number: and :param identity: as of
        ``_relatives.counted_with``.
        """
        entries = _rows.entries(database)
        counted = _relatives.counted_with(database, entries, number, identity)
        spends = [spend for spend in _rows.spends(database) if spend.dataset in counted]
        gone = tuple(
            spend.number for spend in spends if spend.status == "reserved" and self._is_gone(spend)
        )
        relatives = tuple(
            (entries[neighbour], counted[neighbour])
            for neighbour in sorted(counted.keys() - {number})
        )
        entry = None if number is None else entries[number]
        names = {
            *(() if entry is None else entry.names),
            *(() if identity is None else (identity.name,)),
        }
        decided = counted.keys() | _relatives.separated_from(database, number) | {number}
        namesakes = tuple(
            namesake
            for neighbour, namesake in entries.items()
            if neighbour not in decided and not names.isdisjoint(namesake.names)
        )
        return BudgetStatus(
            entry, relatives, tuple(spends), gone, namesakes, fact(database, "begun anew") or ""
        )

    def _own(self) -> str:
        """The name of this process in reservations."""
        try:
            return owners.own(self._file.owners)
        except OSError as error:
            raise self._file.error(error) from error

    def _is_gone(self, spend: Spend) -> bool:
        try:
            return not owners.is_alive(self._file.owners, spend.owner)
        except OSError:  # unknown counts as running
            return False

    def spends(self) -> list[Spend]:
        """All fits, in the order in which they were reserved."""
        if not self.exists():
            return []
        with self._file.open(write=False) as database:
            return _rows.spends(database)

    def spend(self, key: str) -> Spend | None:
        """The fit with this key."""
        return next((spend for spend in self.spends() if spend.key == key), None)

    def report(self, time: str | None = None) -> BudgetReport:
        """Who spent what on which records, and what is left: a page, a table and a registry's text.

        :param time: that the report states; by default now.
        :raises ArgumentError: naming ``time``, if it is no text.
        """
        from workbench.ledger.report import BudgetReport  # with yaml, which no fit needs

        stated = now() if time is None else _validate.text("time", time)
        groups: list[BudgetStatus] = []
        shown: set[int] = set()
        for entry in self.datasets():
            if entry.number not in shown:
                groups.append(self.budget_status(entry.number))
                shown |= {entry.number, *(other.number for other, _ in groups[-1].relatives)}
        return BudgetReport(self.path.name, stated, tuple(groups))

    def export(self) -> dict[str, Any]:
        """The tables of the file, JSON-ready."""
        names = ("datasets", "aliases", "relatives", "caps", "spends")
        if not self.exists():
            return {name: [] for name in names}
        with self._file.open(write=False) as database:
            tables = {
                name: [
                    dict(row) for row in database.execute(f"SELECT * FROM {name} ORDER BY rowid")
                ]
                for name in names
            }
        for number, row in enumerate(tables["spends"]):
            fit = Guarantee.from_dict(json.loads(row["guarantee"]))
            tables["spends"][number] = row | {"guarantee": fit.to_dict(), "event": event_of(fit)}
        return tables

    # ---- spending --------------------------------------------------------------------------------

    def reserve(
        self,
        dataset: DatasetId,
        fits: Sequence[Guarantee],
        *,
        model: str,
        plan: str = "",
        seed: int | None = None,
        over_cap: str | None = None,
        run: Callable[[str], Path] | None = None,
        check: Callable[[BudgetStatus], None] = lambda status: None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> list[str]:
        """Reserve all planned steps of fits that were planned together, all or none, before the
        first step of any.

        :param model: what is fitted.
        :param plan: digest of everything that decides the result except data and randomness.
        :param seed: of the noise; None if it is secret.
        :param over_cap: why caps are not kept this time, which is recorded; None to keep them.
        :param run: ``run(key)`` is the folder of a fit's checkpoints.
        :param check: called with what was spent before, in the transaction that reserves. What it
            raises refuses the fits.
        :param tell: called with each of ``BudgetStatus.mix_ups``.
        :return: a key for each fit.
        :raises CapError: if a cap would not be kept.
        :raises LedgerError: if the ledger could not be written.
        """
        if over_cap is not None:
            _validate.reason("over_cap", over_cap)
        identity = self._known(dataset)
        owner = self._own()
        with self._file.open(write=True) as database:
            check_pages(database)
            number = self._entered(database, identity)
            status = self._status(database, number)
            check(status)
            rule = _rows.rule_of(lambda: status.check(fits, seed), over_cap)
            keys = [uuid.uuid4().hex for _ in fits]
            for key, fit in zip(keys, fits, strict=True):
                values = {
                    "key": key,
                    "dataset": number,
                    "model": model,
                    "plan": plan,
                    "event": json.dumps(event_of(fit)),
                    "sampler": fit.sampler,
                    "relation": fit.relation,
                    "guarantee": json.dumps(fit.to_dict()),
                    "seed": seed,
                    "planned": fit.steps,
                    "seen": 0,
                    "reached": 0,
                    "taken": None,
                    "status": "reserved",
                    "rule": rule,
                    "why": over_cap if rule == OVERRIDE else "",
                    "who": _rows.user(),
                    "version": __version__,
                    "owner": owner,
                    "began": now(),
                    "ended": None,
                    "run": None if run is None else str(run(key)),
                    "result": None,
                }
                placeholders = ", ".join(f":{name}" for name in values)
                database.execute(
                    f"INSERT INTO spends ({', '.join(values)}) VALUES ({placeholders})", values
                )
        for sentence in status.mix_ups():
            tell(sentence)
        return keys

    def mark(self, keys: Iterable[str], step: int | None = None) -> None:
        """Record that fits may from now on go as far as ``step`` (None: to their end). Call it
        before they go there.
        """
        marked = list(keys)
        if step is not None:
            step = _validate.integer("step", step, at_least=0, at_most=_MOST)
        self._must_exist(marked)
        with self._file.open(write=True, checks_seal=False) as database:
            for key in marked:
                changed = database.execute(
                    "UPDATE spends SET reached = max(reached, min(planned, coalesce(?, planned))) "
                    "WHERE number = ? AND status = 'reserved'",
                    (step, _rows.number_of_fit(database, key)),
                ).rowcount
                if not changed:
                    reason = (
                        f"no longer has a reservation of fit {key}, so no further step is taken."
                    )
                    raise LedgerFileError(self.path, reason, code="no reservation")

    def settle(self, key: str, taken: int | None) -> None:
        """Record that a fit has ended after ``taken`` of its steps; None for all that were marked,
        0 if nothing was shown.

        Steps that may have been seen before the fit was resumed count in any case. A fit that has
        ended already, as in an older copy of the ledger, counts no less than these.
        """
        if taken is not None:
            taken = _validate.integer("taken", taken, at_least=0, at_most=_MOST)
        self._must_exist([key])
        with self._file.open(write=True, checks_seal=False) as database:
            number = _rows.number_of_fit(database, key)
            if number is None:
                reason = (
                    f"no longer has fit {key}, which took {'its' if taken is None else taken} "
                    "steps."
                )
                raise LedgerFileError(
                    self.path, reason, code="unknown fit", remedy="Restore a copy."
                )
            database.execute(
                "UPDATE spends SET status = 'settled', taken = min(planned, max(seen, "
                "coalesce(:taken, reached))), reached = min(planned, max(reached, "
                "coalesce(:taken, 0))), ended = :ended WHERE number = :number AND status = "
                "'reserved'",
                {"taken": taken, "ended": now(), "number": number},
            )
            database.execute(
                "UPDATE spends SET taken = min(planned, :taken), reached = max(reached, "
                "min(planned, :taken)) WHERE number = :number AND taken < :taken",
                {"taken": taken, "number": number},
            )

    def note_result(self, key: str, path: str | Path) -> None:
        """Record where the result of a fit was saved."""
        with self._file.open(write=True, checks_seal=False) as database:
            values = (
                str(_validate.path("path", path).absolute()),
                _rows.number_of_fit(database, key),
            )
            database.execute("UPDATE spends SET result = ? WHERE number = ?", values)

    def _must_exist(self, keys: Sequence[str]) -> None:
        if not self.exists():
            reason = f"is not there, so it does not have the fits {', '.join(keys)}."
            raise LedgerFileError(self.path, reason, code="unknown fit", remedy=_OWN_LEDGER)

    def resume(
        self, key: str, over_cap: str | None = None, *, reserved_here: bool = False
    ) -> Spend:
        """Reserve the rest of a fit that was stopped or interrupted. Nothing counts twice.

        :param reserved_here: whether the caller reserved the fit and could not settle it.
        :raises CapError: if a cap does not allow the rest.
        :raises LedgerError: if the fit is not in this ledger, or is running.
        """
        if over_cap is not None:
            _validate.reason("over_cap", over_cap)
        self._must_exist([key])
        owner = self._own()
        with self._file.open(write=True) as database:
            spend = next((spend for spend in _rows.spends(database) if spend.key == key), None)
            if spend is None:
                reason = f"does not have the fit {key}."
                raise LedgerFileError(self.path, reason, code="unknown fit", remedy=_OWN_LEDGER)
            if spend.status == "reserved" and not reserved_here and not self._is_gone(spend):
                process = "this process" if spend.owner == owner else "another process"
                raise LedgerFileError(
                    self.path,
                    f"says that fit {spend.number} is running in {process}.",
                    code="running",
                )
            status = self._status(database, spend.dataset)
            rule = _rows.rule_of(lambda: status.check_rest(spend), over_cap)
            why = spend.why if rule == spend.rule else over_cap if rule == OVERRIDE else ""
            database.execute(
                "UPDATE spends SET status = 'reserved', seen = coalesce(taken, reached), taken = "
                "NULL, ended = NULL, owner = ?, rule = ?, why = ? WHERE number = ?",
                (owner, rule, why, spend.number),
            )
        return spend

    def recover(self, keys: Iterable[str] | None = None) -> list[Spend]:
        """Settle the reservations of processes that have ended to the steps that may have been
        taken.

        :param keys: of the fits to look at; by default all.
        :return: the fits that changed.
        """
        if not self.exists():
            return []
        chosen = None if keys is None else set(keys)
        with self._file.open(write=True) as database:
            gone = {
                spend.number
                for spend in _rows.spends(database)
                if spend.status == "reserved"
                and (chosen is None or spend.key in chosen)
                and self._is_gone(spend)
            }
            database.executemany(
                "UPDATE spends SET status = 'recovered', taken = reached, ended = ? WHERE number "
                "= ?",
                [(now(), number) for number in gone],
            )
            return [spend for spend in _rows.spends(database) if spend.number in gone]

    # ---- caps and relatives ----------------------------------------------------------------------

    def add(self, dataset: DatasetId) -> Entry:
        """Enter a data set on which nothing was spent yet, to give it a cap."""
        identity = self._known(dataset)
        with self._file.open(write=True) as database:
            number = self._entered(database, identity)
            return _rows.entries(database)[number]

    def set_cap(
        self,
        dataset: int | str,
        epsilon: float,
        delta: float,
        relation: str = "add_or_remove_one",
        order: int | None = None,
        *,
        why: str,
    ) -> Entry:
        """Let all fits on a data set, its relatives and its namesakes together spend at most
        (epsilon, delta).

        It replaces an earlier cap of this data set. Those of others that count together with it
        stay.

        :param dataset: number, name or beginning of the fingerprint. ``Cap.checked`` describes the
            other arguments.
        :param why: the reason, which the ledger keeps.
        :raises ArgumentError: naming the argument and its value.
        """
        return self._set_cap(dataset, Cap.checked(epsilon, delta, relation, order), why)

    def remove_cap(self, dataset: int | str, why: str) -> Entry:
        """Remove a data set's cap, with the reason ``why``."""
        return self._set_cap(dataset, None, why)

    def _set_cap(self, dataset: int | str, cap: Cap | None, why: str) -> Entry:
        reason = _validate.reason("why", why)
        number = self.entry(dataset).number
        with self._file.open(write=True) as database:
            _rows.set_cap(database, number, cap, reason)
            return _rows.entries(database)[number]

    def keep_cap(self, dataset: DatasetId, cap: Cap, why: str) -> None:
        """Give a data set this cap, unless it counts for it already. Of several processes, one
        decides.

        :raises ArgumentError: naming ``cap``, if another one counts. Nothing is written then.
        """
        reason = _validate.reason("why", why)
        identity = self._known(dataset)
        with self._file.open(write=True) as database:
            number = self._entered(database, identity)
            status = self._status(database, number)
            status.check_cap(cap)
            if not status.caps:
                _rows.set_cap(database, number, cap, reason)

    def separate(self, one: int | str, other: int | str, why: str) -> None:
        """Count two data sets separately because they share no records, as ``why`` says.

        A third that counts together with both still connects them.
        """
        self._relate(one, other, 0, why)

    def relate(self, one: int | str, other: int | str, why: str) -> None:
        """Count two data sets together because they share records, as ``why`` says."""
        self._relate(one, other, 1, why)

    def _relate(self, one: int | str, other: int | str, counted: int, why: str) -> None:
        reason = _validate.reason("why", why)
        first, second = sorted((self.entry(one).number, self.entry(other).number))
        if first == second:
            raise _validate.ArgumentError("other", other, "is the same data set.")
        with self._file.open(write=True) as database:
            _relatives.relate(database, first, second, counted, reason)
