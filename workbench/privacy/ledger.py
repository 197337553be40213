"""The ledger: what was spent on which records, by whom, kept in one SQLite file on the user's machine.

A fit on private records reserves its planned steps in one transaction before the first of them, writes down how far it may
have come before it goes there, and settles to the steps that it took at the end. A crash leaves the reservation standing,
counted whole; ``Ledger.recover`` settles it to the steps that may have been taken.

A data set is known by its keyed fingerprint, its relatives by their keyed and encrypted sketch (``data.sketch``): data sets
that share records share what is spent on them. Caps are kept by a filter that holds for fits chosen one after the other
(``privacy.renyi_filter``); beside it stands the tighter total for plans settled beforehand (``privacy.composition``).

The file holds plans, promises, names and times, and nothing that came from records.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import json
import os
import platform
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workbench import __version__, _databases, _folders, _validate
from workbench.privacy import _events, _owners
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.renyi_filter import Cap
from workbench.privacy.standing import OVERRIDE, CapError, Entry, Spend, Standing

__all__ = ["CapError", "Entry", "Ledger", "LedgerError", "Records", "Spend", "Standing", "default_path"]

_APPLICATION = 0x4450564C  # "DPVL", in the file's header
_FORMAT = 1
_BUSY_SECONDS = 30

_TABLES = (
    """CREATE TABLE IF NOT EXISTS datasets (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, fingerprint TEXT NOT NULL UNIQUE, unit TEXT NOT NULL,
        sketch BLOB NOT NULL, time TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS relatives (
        one INTEGER NOT NULL, other INTEGER NOT NULL, how TEXT NOT NULL, counted INTEGER NOT NULL, why TEXT NOT NULL,
        who TEXT NOT NULL, time TEXT NOT NULL, PRIMARY KEY (one, other))""",
    # the newest of a data set counts, an empty epsilon takes it away; "after" is the last spend's number by then
    """CREATE TABLE IF NOT EXISTS caps (
        number INTEGER PRIMARY KEY AUTOINCREMENT, dataset INTEGER NOT NULL, epsilon REAL, delta REAL, relation TEXT,
        filter_order INTEGER, after INTEGER NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL, time TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS spends (
        number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, dataset INTEGER NOT NULL, model TEXT NOT NULL,
        plan TEXT NOT NULL, event TEXT NOT NULL, sampler TEXT NOT NULL, relation TEXT NOT NULL, guarantee TEXT NOT NULL,
        seed INTEGER, planned INTEGER NOT NULL, seen INTEGER NOT NULL, reached INTEGER NOT NULL, taken INTEGER,
        state TEXT NOT NULL,
        rule TEXT NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL, version TEXT NOT NULL, owner TEXT NOT NULL,
        began TEXT NOT NULL, ended TEXT, run TEXT, result TEXT)""",
)


class LedgerError(_validate.ArgumentError):
    """The ledger's file cannot be used; nothing that it holds was changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__("ledger", str(path), reason)


class Records(NamedTuple):
    """What a ledger is told about a data set.

    :param name: short name. :param fingerprint: of ``data.fingerprint``. :param unit: what one record is, in words.
    :param sketch: makes the data set's ``data.sketch``, called only where the fingerprint is new.
    """

    name: str
    fingerprint: str
    unit: str
    sketch: Callable[[], bytes]


def default_path() -> Path:
    """``$WORKBENCH_LEDGER``, else ``ledger.sqlite`` in the user's folder of application data."""
    return Path(os.environ.get("WORKBENCH_LEDGER") or _folders.state() / "ledger.sqlite").expanduser()


class Ledger:
    """The ledger in one file, which any number of processes and threads may use at once.

    :param path: of the file, made with the first entry; ``default_path()`` where it is None.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = (default_path() if path is None else Path(path).expanduser()).absolute()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @property
    def _owners(self) -> Path:
        return self.path.with_name(f"{self.path.name}.owners")

    # ---- the file -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """The database, in one transaction where it is written to: all of what is done inside, or nothing.

        :raises LedgerError: if it cannot be used.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _databases.create_file(self.path)
            with contextlib.closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
                database.row_factory = sqlite3.Row
                _databases.prepare(database, application=_APPLICATION, version=_FORMAT, statements=_TABLES)
                _write_ahead(database)
                database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield database
                    database.execute("COMMIT")
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(self.path, f"{_meaning(error)} ({error}).") from error

    # ---- looking --------------------------------------------------------------------------------------------------------

    def datasets(self) -> list[Entry]:
        """All data sets, in the order in which they were first seen."""
        if not self.path.exists():
            return []
        with self._open(write=False) as database:
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

    def standing(self, dataset: int | str | Records) -> Standing:
        """What was spent on a data set and on those that share records with it; nothing is written."""
        if not isinstance(dataset, Records):
            number = self.entry(dataset).number
            with self._open(write=False) as database:
                return self._standing(database, number)
        if not self.path.exists():
            return Standing(None)
        sketch = self._sketch_if_new(dataset)
        with self._open(write=False) as database:
            known = _number_of(database, dataset.fingerprint)
            related = _relatives_of(database, sketch) if known is None and sketch is not None else {}
            return self._standing(database, known, related, dataset.name)

    def _sketch_if_new(self, records: Records) -> bytes | None:
        with self._open(write=False) as database:
            known = _number_of(database, records.fingerprint) is not None
        return None if known else records.sketch()

    def _standing(
        self, database: sqlite3.Connection, number: int | None, related: Mapping[int, str] | None = None, name: str = ""
    ) -> Standing:
        """:param related: numbers and how, and :param name: of a data set that is not in the ledger."""
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
        spends = [spend for spend in _spends(database) if spend.dataset in reached]
        gone = tuple(spend.number for spend in spends if spend.state == "reserved" and self._is_gone(spend))
        others = tuple((entries[other], found[other]) for other in sorted(reached - {number}))
        entry = None if number is None else entries[number]
        called = name if entry is None else entry.name
        apart = reached.union(_separated_from(database, number))
        namesakes = tuple(other for other in entries.values() if other.name == called and other.number not in apart)
        return Standing(entry, others, tuple(spends), gone, namesakes)

    def _own(self) -> str:
        """This process, as reservations name it."""
        try:
            return _owners.own(self._owners)
        except OSError as error:
            raise LedgerError(self.path, f"{_meaning(error)} ({error}).") from error

    def _is_gone(self, spend: Spend) -> bool:
        try:
            return not _owners.is_alive(self._owners, spend.owner)
        except OSError:  # what cannot be told counts as running
            return False

    def spends(self) -> list[Spend]:
        """All fits, in the order in which they were reserved."""
        if not self.path.exists():
            return []
        with self._open(write=False) as database:
            return _spends(database)

    def spend(self, key: str) -> Spend | None:
        """The fit with this key."""
        return next((spend for spend in self.spends() if spend.key == key), None)

    def export(self) -> dict[str, Any]:
        """Everything but sketches, JSON-ready."""
        if not self.path.exists():
            return {"datasets": [], "relatives": [], "caps": [], "spends": []}
        with self._open(write=False) as database:
            tables = {
                name: [dict(row) for row in database.execute(f"SELECT * FROM {name} ORDER BY rowid")]
                for name in ("datasets", "relatives", "caps", "spends")
            }
        for row in tables["datasets"]:
            del row["sketch"]
        for row in tables["spends"]:
            row["guarantee"] = json.loads(row["guarantee"])
            row["event"] = _event(Guarantee.from_dict(row["guarantee"]))
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
    ) -> list[str]:
        """Reserve all planned steps of fits that were settled together, all or none, before the first step of any.

        :param model: what is fitted. :param plan: digest of all that decides the result but data and randomness.
        :param seed: of the noise, None where it is secret.
        :param over_cap: why caps are not to be kept this time, which is recorded; None to keep them.
        :param run: folder of a fit's checkpoints, from its key.
        :return: a key for each.
        :raises CapError: if a cap would not be kept. :raises LedgerError: if it could not be written.
        """
        if over_cap is not None and not str(over_cap).strip():
            raise _validate.ArgumentError("over_cap", over_cap, "must say why, in words that others will read.")
        sketch = self._sketch_if_new(records)
        owner = self._own()
        with self._open(write=True) as database:
            (sound,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise sqlite3.DatabaseError(f"malformed: {sound}")
            number = _enter(database, records, sketch)
            standing = self._standing(database, number)
            rule = _rule(lambda: standing.check(fits, seed), over_cap)
            keys = [uuid.uuid4().hex for _ in fits]
            for key, fit in zip(keys, fits, strict=True):
                values = {
                    "key": key, "dataset": number, "model": model, "plan": plan, "event": json.dumps(_event(fit)),
                    "sampler": fit.sampler, "relation": fit.relation, "guarantee": json.dumps(fit.to_dict()), "seed": seed,
                    "planned": fit.steps, "seen": 0, "reached": 0, "taken": None, "state": "reserved", "rule": rule,
                    "why": over_cap if rule == OVERRIDE else "", "who": _user(), "version": __version__, "owner": owner,
                    "began": _now(), "ended": None, "run": None if run is None else str(run(key)), "result": None,
                }  # fmt: skip
                places = ", ".join(f":{name}" for name in values)
                database.execute(f"INSERT INTO spends ({', '.join(values)}) VALUES ({places})", values)
            return keys

    def mark(self, keys: Iterable[str], step: int | None = None) -> None:
        """Write down that fits may come as far as ``step`` (None: to their end) from here on; before they go there."""
        with self._open(write=True) as database:
            for key in keys:
                changed = database.execute(
                    "UPDATE spends SET reached = max(reached, min(planned, coalesce(?, planned))) "
                    "WHERE key = ? AND state = 'reserved'",
                    (step, key),
                ).rowcount
                if not changed:
                    raise LedgerError(self.path, f"has no reservation of fit {key} any more; no further step is taken.")

    def settle(self, key: str, taken: int | None) -> None:
        """A fit has ended after ``taken`` of its steps, 0 where nobody saw anything of it; None for all that were marked.

        What may have been seen of it before it was resumed counts in any case.
        """
        with self._open(write=True) as database:
            database.execute(
                "UPDATE spends SET state = 'settled', taken = min(planned, max(seen, coalesce(:taken, reached))), "
                "reached = min(planned, max(reached, coalesce(:taken, 0))), ended = :ended "
                "WHERE key = :key AND state = 'reserved'",
                {"taken": taken, "ended": _now(), "key": key},
            )
            if not database.execute("SELECT 1 FROM spends WHERE key = ?", (key,)).fetchone():
                raise LedgerError(self.path, f"has no fit {key} any more, which spent {taken} steps: restore a copy.")

    def note_result(self, key: str, path: str | Path) -> None:
        """Where the result of a fit was saved."""
        with self._open(write=True) as database:
            database.execute("UPDATE spends SET result = ? WHERE key = ?", (str(Path(path).absolute()), key))

    def resume(self, key: str, over_cap: str | None = None, *, held: bool = False) -> Spend:
        """Reserve the rest of a fit that was stopped or interrupted, and count nothing twice.

        :param held: whether the caller is the one that reserved it and could not settle it.
        :raises CapError: if a cap does not allow the rest.
        :raises LedgerError: if the fit is not in this ledger, or is running.
        """
        owner = self._own()
        with self._open(write=True) as database:
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
                "owner = ?, rule = ?, why = ? WHERE key = ?",
                (owner, rule, why, key),
            )
        return spend

    def recover(self) -> list[Spend]:
        """Settle the reservations of processes that are gone to the steps that may have been taken; those that changed."""
        if not self.path.exists():
            return []
        with self._open(write=True) as database:
            gone = [spend for spend in _spends(database) if spend.state == "reserved" and self._is_gone(spend)]
            for spend in gone:
                database.execute(
                    "UPDATE spends SET state = 'recovered', taken = reached, ended = ? WHERE key = ?", (_now(), spend.key)
                )
            keys = {spend.key for spend in gone}
            return [spend for spend in _spends(database) if spend.key in keys]

    # ---- caps and relatives ---------------------------------------------------------------------------------------------

    def add(self, records: Records) -> Entry:
        """Enter a data set on which nothing has been spent, to give it a cap."""
        sketch = self._sketch_if_new(records)
        with self._open(write=True) as database:
            number = _enter(database, records, sketch)
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
        with self._open(write=True) as database:
            database.execute(
                "INSERT INTO caps (dataset, epsilon, delta, relation, filter_order, after, why, who, time) "
                "VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) FROM spends), ?, ?, ?)",
                (number, *values, why, _user(), _now()),
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
        with self._open(write=True) as database:
            database.execute(
                "INSERT INTO relatives VALUES (?, ?, 'records', ?, ?, ?, ?) ON CONFLICT (one, other) DO UPDATE SET "
                "counted = excluded.counted, why = excluded.why, who = excluded.who, time = excluded.time",
                (first, second, counted, why, _user(), _now()),
            )


# ---- rows ---------------------------------------------------------------------------------------------------------------


def _enter(database: sqlite3.Connection, records: Records, sketch: bytes | None) -> int:
    """The number of a data set, entered with its relatives where it is new."""
    number = _number_of(database, records.fingerprint)
    if number is not None:
        return number
    assert sketch is not None
    related = _relatives_of(database, sketch)
    number = database.execute(
        "INSERT INTO datasets (name, fingerprint, unit, sketch, time) VALUES (?, ?, ?, ?, ?)",
        (records.name, records.fingerprint, records.unit, sketch, _now()),
    ).lastrowid
    assert number is not None
    for other, how in related.items():
        database.execute("INSERT INTO relatives VALUES (?, ?, ?, 1, '', '', ?)", (other, number, how, _now()))
    return number


def _rule(check: Callable[[], str], over_cap: str | None) -> str:
    """By which rule fits may run: that of ``check``, or on purpose where it refuses them."""
    try:
        return check()
    except CapError:
        if over_cap is None:
            raise
        return OVERRIDE


def _number_of(database: sqlite3.Connection, fingerprint: str) -> int | None:
    found = database.execute("SELECT number FROM datasets WHERE fingerprint = ?", (fingerprint,)).fetchone()
    return None if found is None else int(found[0])


def _relatives_of(database: sqlite3.Connection, sketch: bytes) -> dict[int, str]:
    """Numbers of the data sets that share records with the one that ``sketch`` is of, and how that is known."""
    from workbench.data.sketch import overlap

    found = {
        row["number"]: overlap(sketch, row["sketch"]) for row in database.execute("SELECT number, sketch FROM datasets")
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
        row["number"]: Entry(*(row[name] for name in ("number", "name", "fingerprint", "unit", "time")))
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
    return _events.to_json(_events.event_of(fit))


def _write_ahead(database: sqlite3.Connection) -> None:
    """Readers and a writer at once, and nothing lost that was committed."""
    for attempt in range(100):  # the change of mode does not wait for others
        try:
            database.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == 99:
                raise
            time.sleep(0.02)
    database.execute("PRAGMA synchronous = FULL")


def _meaning(error: OSError | sqlite3.Error) -> str:
    """What to do about an error of SQLite or of the file system."""
    text = str(error)
    if "full" in text or "No space" in text:
        return "the disk is full: nothing was recorded, and what was recorded before is safe; make room"
    if "readonly" in text or isinstance(error, PermissionError) or "Read-only" in text:
        return "cannot be written: name another file with ledger= or $WORKBENCH_LEDGER, or make it writable"
    if "malformed" in text or "not a database" in text or "something else" in text:
        return "is damaged or no ledger: it was left as it is; move it away or restore a copy, for what it records is spent"
    if "format" in text:
        return "was written by another version"
    return "cannot be used"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _user() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"{name}@{platform.node()}"
