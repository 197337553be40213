"""The ledger: what was spent on which records, by whom, kept in one SQLite file (``_ledger_file``) on the user's machine.

A fit on private records reserves its planned steps in one transaction before the first of them, writes down how far it may
have come before it goes there, and settles to the steps that it took at the end. A crash leaves the reservation standing,
counted whole; ``Ledger.recover`` settles it to the steps that may have been taken.

A data set is known by its keyed fingerprint, its relatives by their keyed and encrypted sketch (``data.sketch``): data sets
that share records share what is spent on them. The key belongs to the ledger, so all who write to it know the same data
sets. Those that were entered with another key cannot be compared and count too, until they are separated. Caps are kept by a
filter that holds for fits chosen one after the other (``ledger.renyi_filter``); beside it there is the tighter total for
plans settled beforehand (``ledger.composition``).

The file holds plans, promises, names and times, and nothing that came from records.
"""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import platform
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workbench import __version__, _folders, _validate
from workbench.ledger import _owners
from workbench.ledger._file import LedgerError, LedgerFile, LostLedgerError, check_pages, digest_of, fact, now, own_key
from workbench.ledger.budget import NOT_COMPARED, OVERRIDE, BudgetStatus, CapError, Entry, Spend
from workbench.ledger.renyi_filter import Cap
from workbench.privacy import _events
from workbench.privacy.guarantee import Guarantee

__all__ = [
    "BudgetStatus",
    "CapError",
    "Entry",
    "Ledger",
    "LedgerError",
    "LostLedgerError",
    "Records",
    "Spend",
    "default_path",
]


class Records(NamedTuple):
    """What a ledger is told about a data set.

    :param name: short name. :param unit: what one record is, in words.
    :param fingerprint: makes the data set's ``data.fingerprint`` with a key. :param sketch: makes its ``data.sketch`` with a
        key, called only where the fingerprint is new.
    """

    name: str
    unit: str
    fingerprint: Callable[[bytes], str]
    sketch: Callable[[bytes], bytes]


class _Known(NamedTuple):
    """A data set as one ledger knows it.

    :param fingerprints: by any of which it may have been entered; by the first it will be. :param key: of the ledger.
    :param sketch: None where it is entered already.
    """

    name: str
    unit: str
    fingerprints: tuple[str, ...]
    key: bytes
    sketch: bytes | None


def default_path() -> Path:
    """``$WORKBENCH_LEDGER``, else ``ledger.sqlite`` in the user's folder of application data."""
    return Path(os.environ.get("WORKBENCH_LEDGER") or _folders.state() / "ledger.sqlite").expanduser()


class Ledger:
    """The ledger in one file, which any number of processes and threads may use at once.

    :param path: of the file, made with the first entry; ``default_path()`` where it is None.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = (default_path() if path is None else Path(path).expanduser()).absolute()
        if self.path.is_symlink() and os.path.exists(self.path):  # the key and the rest lie beside the file itself
            self.path = Path(os.path.realpath(self.path))
        self._file = LedgerFile(self.path)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def exists(self) -> bool:
        """Whether anything was ever entered.

        :raises LostLedgerError: if the file was there and is gone. :raises LedgerError: if that cannot be found out.
        """
        return self._file.exists()

    def begin_anew(self) -> Path | None:
        """Begin an empty ledger where the file is gone or damaged: all that was spent before, and caps, is unknown to it.

        :return: where a damaged file was moved to; None where there was none.
        :raises LedgerError: if the ledger is in order.
        """
        return self._file.begin_anew()

    def new_key(self) -> None:
        """Make another key, by which records are known again, where the file with the old one is lost.

        Data sets entered before cannot be compared with others any more: they count together, until they are separated.

        :raises LedgerError: if the ledger has its key.
        """
        self._file.new_key()

    # ---- looking --------------------------------------------------------------------------------------------------------

    def datasets(self) -> list[Entry]:
        """All data sets, in the order in which they were first seen."""
        if not self.exists():
            return []
        with self._file.open(write=False) as database:
            return list(_entries(database).values())

    def entry(self, dataset: int | str) -> Entry:
        """The data set of a number, a name or the beginning of a fingerprint.

        :raises ArgumentError: if there is none, or more than one.
        """
        known = self.datasets()
        text = str(dataset)
        found = [entry for entry in known if str(entry.number) == text]
        found = found or [entry for entry in known if entry.name == text]
        found = found or [entry for entry in known if len(text) >= 6 and entry.fingerprint.startswith(text)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f"{entry.number} ({entry.name})" for entry in found or known) or "none"
        reason = "is the name of several; give a number" if found else "is not in the ledger"
        raise _validate.ArgumentError("dataset", dataset, f"{reason}: {names}.")

    def standing(self, dataset: int | str | Records) -> BudgetStatus:
        """What was spent on a data set and on those that share records with it; nothing is written."""
        if not isinstance(dataset, Records):
            entry = self.entry(dataset)
            with self._file.open(write=False) as database:
                return self._standing(database, entry.number)
        if not self.datasets():
            return BudgetStatus(None)
        known = self._known(dataset)
        with self._file.open(write=False) as database:
            number = _number_of(database, known)
            related = _relatives_of(database, known) if number is None else {}
            return self._standing(database, number, related, known)

    def _known(self, records: Records) -> _Known:
        """What the ledger knows a data set by. It may take seconds, so nobody is kept from writing meanwhile."""
        if self.exists():
            with self._file.open(write=False) as database:
                key = self._file.key_in(database)
                if key is not None:
                    return self._told(database, records, key)
        key = self._file.key()
        with self._file.open(write=False) as database:
            return self._told(database, records, key)

    def _told(self, database: sqlite3.Connection, records: Records, key: bytes) -> _Known:
        known, own = _Known(records.name, records.unit, (records.fingerprint(key),), key, None), own_key()
        keys = {entry.key for entry in _entries(database).values()}
        if own is not None and digest_of(own) in keys - {digest_of(key)}:  # from when each user had a key
            known = known._replace(fingerprints=(*known.fingerprints, records.fingerprint(own)))
        return known if _number_of(database, known) is not None else known._replace(sketch=records.sketch(key))

    def _standing(
        self,
        database: sqlite3.Connection,
        number: int | None,
        related: Mapping[int, str] | None = None,
        known: _Known | None = None,
    ) -> BudgetStatus:
        """:param related: numbers and how, and :param known: of a data set that is not in the ledger."""
        entries, links = _entries(database), _links(database)
        found = dict(related or {})
        waiting = [number] if number is not None else list(found)
        reached = set(waiting)
        while waiting:
            for other, how in links.get(waiting.pop(), {}).items():
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
                    found.setdefault(other, how)
        entry = None if number is None else entries[number]
        apart = _separated_from(database, number)
        own_key = entry.key if entry is not None else "" if known is None else digest_of(known.key)
        for other, its in entries.items():
            if other not in reached | apart and not its.key == own_key != "":
                reached.add(other)
                found[other] = NOT_COMPARED
        spends = [spend for spend in _spends(database) if spend.dataset in reached]
        gone = tuple(spend.number for spend in spends if spend.state == "reserved" and self._is_gone(spend))
        others = tuple((entries[other], found[other]) for other in sorted(reached - {number}))
        called = entry.name if entry is not None else "" if known is None else known.name
        namesakes = tuple(
            its for other, its in entries.items() if its.name == called and other not in reached | apart | {number}
        )
        return BudgetStatus(entry, others, tuple(spends), gone, namesakes, fact(database, "begun anew") or "")

    def _own(self) -> str:
        """This process, as reservations name it."""
        try:
            return _owners.own(self._file.owners)
        except OSError as error:
            raise self._file.error(error) from error

    def _is_gone(self, spend: Spend) -> bool:
        try:
            return not _owners.is_alive(self._file.owners, spend.owner)
        except OSError:  # what cannot be told counts as running
            return False

    def spends(self) -> list[Spend]:
        """All fits, in the order in which they were reserved."""
        if not self.exists():
            return []
        with self._file.open(write=False) as database:
            return _spends(database)

    def spend(self, key: str) -> Spend | None:
        """The fit with this key."""
        return next((spend for spend in self.spends() if spend.key == key), None)

    def export(self) -> dict[str, Any]:
        """Everything but sketches, JSON-ready."""
        if not self.exists():
            return {"datasets": [], "relatives": [], "caps": [], "spends": []}
        with self._file.open(write=False) as database:
            tables = {
                name: [dict(row) for row in database.execute(f"SELECT * FROM {name} ORDER BY rowid")]
                for name in ("datasets", "relatives", "caps", "spends")
            }
        for row in tables["datasets"]:
            del row["sketch"]
        for row in tables["spends"]:
            fit = Guarantee.from_dict(json.loads(row["guarantee"]))
            row["guarantee"], row["event"] = fit.to_dict(), _event(fit)
        return tables

    # ---- spending -------------------------------------------------------------------------------------------------------

    def reserve(
        self,
        records: Records,
        fits: Sequence[Guarantee],
        *,
        model: str,
        plan: str = "",
        seed: int | None = None,
        over_cap: str | None = None,
        run: Callable[[str], Path] | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> list[str]:
        """Reserve all planned steps of fits that were settled together, all or none, before the first step of any.

        :param model: what is fitted. :param plan: digest of all that decides the result but data and randomness.
        :param seed: of the noise, None where it is secret.
        :param over_cap: why caps are not to be kept this time, which is recorded; None to keep them.
        :param run: folder of a fit's checkpoints, from its key. :param tell: called with each of ``BudgetStatus.mix_ups``.
        :return: a key for each.
        :raises CapError: if a cap would not be kept. :raises LedgerError: if it could not be written.
        """
        if over_cap is not None and not str(over_cap).strip():
            raise _validate.ArgumentError("over_cap", over_cap, "must say why, in words that others will read.")
        known = self._known(records)
        owner = self._own()
        with self._file.open(write=True) as database:
            check_pages(database)
            number = _enter(database, known)
            standing = self._standing(database, number)
            rule = _rule(lambda: standing.check(fits, seed), over_cap)
            keys = [uuid.uuid4().hex for _ in fits]
            for key, fit in zip(keys, fits, strict=True):
                values = {
                    "key": key, "dataset": number, "model": model, "plan": plan, "event": json.dumps(_event(fit)),
                    "sampler": fit.sampler, "relation": fit.relation, "guarantee": json.dumps(fit.to_dict()), "seed": seed,
                    "planned": fit.steps, "seen": 0, "reached": 0, "taken": None, "state": "reserved", "rule": rule,
                    "why": over_cap if rule == OVERRIDE else "", "who": _user(), "version": __version__, "owner": owner,
                    "began": now(), "ended": None, "run": None if run is None else str(run(key)), "result": None,
                }  # fmt: skip
                places = ", ".join(f":{name}" for name in values)
                database.execute(f"INSERT INTO spends ({', '.join(values)}) VALUES ({places})", values)
        for sentence in standing.mix_ups():
            tell(sentence)
        return keys

    def mark(self, keys: Iterable[str], step: int | None = None) -> None:
        """Write down that fits may come as far as ``step`` (None: to their end) from here on; before they go there."""
        marked = list(keys)
        self._must_exist(marked)
        with self._file.open(write=True, whole=False) as database:
            for key in marked:
                changed = database.execute(
                    "UPDATE spends SET reached = max(reached, min(planned, coalesce(?, planned))) "
                    "WHERE number = ? AND state = 'reserved'",
                    (step, _number_of_fit(database, key)),
                ).rowcount
                if not changed:
                    raise LedgerError(self.path, f"has no reservation of fit {key} any more; no further step is taken.")

    def settle(self, key: str, taken: int | None) -> None:
        """A fit has ended after ``taken`` of its steps, 0 where nobody saw anything of it; None for all that were marked.

        What may have been seen of it before it was resumed counts in any case.
        """
        self._must_exist([key])
        with self._file.open(write=True, whole=False) as database:
            number = _number_of_fit(database, key)
            if number is None:
                raise LedgerError(self.path, f"has no fit {key} any more, which spent {taken} steps: restore a copy.")
            database.execute(
                "UPDATE spends SET state = 'settled', taken = min(planned, max(seen, coalesce(:taken, reached))), "
                "reached = min(planned, max(reached, coalesce(:taken, 0))), ended = :ended "
                "WHERE number = :number AND state = 'reserved'",
                {"taken": taken, "ended": now(), "number": number},
            )

    def note_result(self, key: str, path: str | Path) -> None:
        """Where the result of a fit was saved."""
        with self._file.open(write=True, whole=False) as database:
            values = str(Path(path).absolute()), _number_of_fit(database, key)
            database.execute("UPDATE spends SET result = ? WHERE number = ?", values)

    def _must_exist(self, keys: Sequence[str]) -> None:
        if not self.exists():
            raise LedgerError(self.path, f"is not there, and does not know {', '.join(keys)}: use the one they began with.")

    def resume(self, key: str, over_cap: str | None = None, *, held: bool = False) -> Spend:
        """Reserve the rest of a fit that was stopped or interrupted, and count nothing twice.

        :param held: whether the caller is the one that reserved it and could not settle it.
        :raises CapError: if a cap does not allow the rest.
        :raises LedgerError: if the fit is not in this ledger, or is running.
        """
        self._must_exist([key])
        owner = self._own()
        with self._file.open(write=True) as database:
            spend = next((spend for spend in _spends(database) if spend.key == key), None)
            if spend is None:
                raise LedgerError(self.path, f"does not know the fit {key}; resume it with the ledger that it began with.")
            if spend.state == "reserved" and not held and not self._is_gone(spend):
                where = "this process" if spend.owner == owner else "another process"
                raise LedgerError(self.path, f"says that fit {spend.number} is running in {where}.")
            standing = self._standing(database, spend.dataset)
            rule = _rule(lambda: standing.check_rest(spend), over_cap)
            why = spend.why if rule == spend.rule else over_cap if rule == OVERRIDE else ""
            database.execute(
                "UPDATE spends SET state = 'reserved', seen = coalesce(taken, reached), taken = NULL, ended = NULL, "
                "owner = ?, rule = ?, why = ? WHERE number = ?",
                (owner, rule, why, spend.number),
            )
        return spend

    def recover(self, keys: Iterable[str] | None = None) -> list[Spend]:
        """Settle the reservations of processes that are gone to the steps that may have been taken; those that changed.

        :param keys: of the fits to be looked at; by default all.
        """
        if not self.exists():
            return []
        chosen = None if keys is None else set(keys)
        with self._file.open(write=True) as database:
            gone = {
                spend.number
                for spend in _spends(database)
                if spend.state == "reserved" and (chosen is None or spend.key in chosen) and self._is_gone(spend)
            }
            database.executemany(
                "UPDATE spends SET state = 'recovered', taken = reached, ended = ? WHERE number = ?",
                [(now(), number) for number in gone],
            )
            return [spend for spend in _spends(database) if spend.number in gone]

    # ---- caps and relatives ---------------------------------------------------------------------------------------------

    def add(self, records: Records) -> Entry:
        """Enter a data set on which nothing has been spent, to give it a cap."""
        known = self._known(records)
        with self._file.open(write=True) as database:
            number = _enter(database, known)
            return _entries(database)[number]

    def set_cap(
        self,
        dataset: int | str,
        epsilon: float,
        delta: float,
        relation: str = "add_or_remove_one",
        order: int | None = None,
        why: str = "",
    ) -> Entry:
        """Let all fits on a data set and its relatives together spend at most (epsilon, delta); replaces its former cap.

        :param dataset: number, name or beginning of the fingerprint. See ``Cap.checked`` for the others.
        :param why: recorded.
        """
        cap = Cap.checked(epsilon, delta, relation, order)
        return self._set_cap(dataset, (cap.epsilon, cap.delta, cap.relation, cap.order), why)

    def remove_cap(self, dataset: int | str, why: str) -> Entry:
        """Take a data set's cap away. :param why: recorded; must not be empty."""
        if not why.strip():
            raise _validate.ArgumentError("why", why, "must say why the cap is taken away.")
        return self._set_cap(dataset, (None,) * 4, why)

    def _set_cap(self, dataset: int | str, values: tuple[Any, ...], why: str) -> Entry:
        number = self.entry(dataset).number
        with self._file.open(write=True) as database:
            database.execute(
                "INSERT INTO caps (dataset, epsilon, delta, relation, filter_order, after, why, who, time) "
                "VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) FROM spends), ?, ?, ?)",
                (number, *values, why, _user(), now()),
            )
            return _entries(database)[number]

    def separate(self, one: int | str, other: int | str, why: str) -> None:
        """Count two data sets apart, which share no records. :param why: recorded; must not be empty."""
        self._relate(one, other, 0, why)

    def relate(self, one: int | str, other: int | str, why: str) -> None:
        """Count two data sets together, which share records. :param why: recorded; must not be empty."""
        self._relate(one, other, 1, why)

    def _relate(self, one: int | str, other: int | str, counted: int, why: str) -> None:
        if not why.strip():
            raise _validate.ArgumentError("why", why, "must say why; it is recorded.")
        first, second = sorted((self.entry(one).number, self.entry(other).number))
        if first == second:
            raise _validate.ArgumentError("other", other, "is the same data set.")
        with self._file.open(write=True) as database:
            database.execute(
                "INSERT INTO relatives VALUES (?, ?, 'records', ?, ?, ?, ?) ON CONFLICT (one, other) DO UPDATE SET "
                "counted = excluded.counted, why = excluded.why, who = excluded.who, time = excluded.time",
                (first, second, counted, why, _user(), now()),
            )


# ---- rows ---------------------------------------------------------------------------------------------------------------


def _enter(database: sqlite3.Connection, known: _Known) -> int:
    """The number of a data set, entered with its relatives where it is new."""
    number = _number_of(database, known)
    if number is not None:
        return number
    related = _relatives_of(database, known)
    number = database.execute(
        "INSERT INTO datasets (name, fingerprint, unit, sketch, time, key) VALUES (?, ?, ?, ?, ?, ?)",
        (known.name, known.fingerprints[0], known.unit, known.sketch, now(), digest_of(known.key)),
    ).lastrowid
    assert number is not None
    for other, how in related.items():
        database.execute("INSERT INTO relatives VALUES (?, ?, ?, 1, '', '', ?)", (other, number, how, now()))
    return number


def _rule(check: Callable[[], str], over_cap: str | None) -> str:
    """By which rule fits may run: that of ``check``, or on purpose where it refuses them."""
    try:
        return check()
    except CapError:
        if over_cap is None:
            raise
        return OVERRIDE


def _number_of(database: sqlite3.Connection, known: _Known) -> int | None:
    """Of the table itself: an index that is damaged would make one data set two."""
    rows = database.execute("SELECT fingerprint, number FROM datasets NOT INDEXED")
    numbers = {row["fingerprint"]: row["number"] for row in rows}
    return next((int(numbers[each]) for each in known.fingerprints if each in numbers), None)


def _number_of_fit(database: sqlite3.Connection, key: str) -> int | None:
    """By the index, and proved by the table."""
    found = database.execute("SELECT number FROM spends WHERE key = ?", (key,)).fetchone()
    if found is None:
        return None
    row = database.execute("SELECT key FROM spends WHERE number = ?", (found["number"],)).fetchone()
    if row is None or row["key"] != key:
        raise sqlite3.DatabaseError("malformed: the index of fits is wrong")
    return int(found["number"])


def _relatives_of(database: sqlite3.Connection, known: _Known) -> dict[int, str]:
    """Numbers of the data sets that share records with one that is not entered, and how that is known."""
    from workbench.ledger.overlap import overlap

    assert known.sketch is not None
    found = {
        row["number"]: overlap(known.sketch, row["sketch"], known.key)
        for row in database.execute("SELECT number, sketch FROM datasets")
    }
    return {number: shared.how for number, shared in found.items() if shared is not None}


def _links(database: sqlite3.Connection) -> dict[int, dict[int, str]]:
    links: dict[int, dict[int, str]] = {}
    for row in database.execute("SELECT one, other, how FROM relatives WHERE counted"):
        links.setdefault(row["one"], {})[row["other"]] = row["how"]
        links.setdefault(row["other"], {})[row["one"]] = row["how"]
    return links


def _separated_from(database: sqlite3.Connection, number: int | None) -> set[int]:
    """Numbers of the data sets of which it was said that they share no records with this one."""
    rows = database.execute("SELECT one, other FROM relatives WHERE NOT counted AND ? IN (one, other)", (number,))
    return {other for row in rows for other in row}


def _entries(database: sqlite3.Connection) -> dict[int, Entry]:
    entries = {
        row["number"]: Entry(**{name: row[name] for name in ("number", "name", "fingerprint", "unit", "time", "key")})
        for row in database.execute("SELECT * FROM datasets ORDER BY number")
    }
    for row in database.execute("SELECT * FROM caps ORDER BY number"):
        cap = None
        if row["epsilon"] is not None:
            cap = Cap(row["epsilon"], row["delta"], row["relation"], row["filter_order"])
        entries[row["dataset"]] = dataclasses.replace(entries[row["dataset"]], cap=cap, why=row["why"], after=row["after"])
    return entries


def _spends(database: sqlite3.Connection) -> list[Spend]:
    rows = database.execute("SELECT * FROM spends ORDER BY number").fetchall()
    promises = [Guarantee.from_dict(json.loads(row["guarantee"])) for row in rows]
    return [Spend(**{**dict(row), "event": _event(fit), "guarantee": fit}) for row, fit in zip(rows, promises, strict=True)]


def _event(fit: Guarantee) -> dict[str, Any]:
    """Made anew for each reader: events that early versions wrote have their noise in units of C."""
    return _events.to_json(_events.event_of(fit.accounted()))


def _user() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"{name}@{platform.node()}"
