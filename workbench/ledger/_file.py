"""The ledger's file: made whole, proved whole before what it says is believed, and the key by which it knows records.

*Checksum.* Beside its tables the file has the sum of a hash of every row (and of the tables' definitions), which each
transaction brings up to date. It is not keyed: it finds what an accident did to the file, not what somebody did on purpose.
Left out is the column ``owner``, the process of a fit: whatever that says, no total changes.

*Key.* ``ledger.sqlite.key`` lies beside ``ledger.sqlite``, which has a digest of it. All who write to the ledger fingerprint
records with that key, and so find the same data sets. It is not in the file itself, so that the file can be copied, read and
sent without it: with the key, guesses about records could be tested against fingerprints and sketches.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench import _folders, _validate

__all__ = ["LedgerError", "LedgerFile", "LostLedgerError", "check_pages", "digest_of", "fact", "now", "own_key"]

_APPLICATION = 0x4450564C  # "DPVL", in the file's header
_FORMAT = 2  # 1 had neither facts, seal nor the column datasets.key
_BUSY_SECONDS = 60
_LEAST_BYTES = 512  # a database's smallest page
_MODULUS = 2**128
_FACTS = "facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_SEAL = "seal (total TEXT NOT NULL)"

_TABLES = (
    # key: digest of the one that fingerprint and sketch were made with, "" where that is not known
    """datasets (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, fingerprint TEXT NOT NULL UNIQUE, unit TEXT NOT NULL,
        sketch BLOB NOT NULL, time TEXT NOT NULL, key TEXT NOT NULL DEFAULT '')""",
    """relatives (
        one INTEGER NOT NULL, other INTEGER NOT NULL, how TEXT NOT NULL, counted INTEGER NOT NULL, why TEXT NOT NULL,
        who TEXT NOT NULL, time TEXT NOT NULL, PRIMARY KEY (one, other))""",
    # the newest of a data set counts, an empty epsilon takes it away; "after" is the last spend's number by then
    """caps (
        number INTEGER PRIMARY KEY AUTOINCREMENT, dataset INTEGER NOT NULL, epsilon REAL, delta REAL, relation TEXT,
        filter_order INTEGER, after INTEGER NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL, time TEXT NOT NULL)""",
    """spends (
        number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, dataset INTEGER NOT NULL, model TEXT NOT NULL,
        plan TEXT NOT NULL, event TEXT NOT NULL, sampler TEXT NOT NULL, relation TEXT NOT NULL, guarantee TEXT NOT NULL,
        seed INTEGER, planned INTEGER NOT NULL, seen INTEGER NOT NULL, reached INTEGER NOT NULL, taken INTEGER,
        state TEXT NOT NULL,
        rule TEXT NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL, version TEXT NOT NULL, owner TEXT NOT NULL,
        began TEXT NOT NULL, ended TEXT, run TEXT, result TEXT)""",
    _FACTS,
    _SEAL,
)
_SEALED = ("datasets", "relatives", "caps", "spends", "facts")


class LedgerError(_validate.ArgumentError):
    """The ledger's file cannot be used; nothing that it holds was changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__("ledger", str(path), reason)


class LostLedgerError(LedgerError):
    """The ledger's file is gone or damaged, and with it what was spent and allowed."""


class LedgerFile:
    """The file of one ledger, which any number of processes and threads may use at once. :param path: absolute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key_path = path.with_name(f"{path.name}.key")
        self.owners = path.with_name(f"{path.name}.owners")

    def exists(self) -> bool:
        """Whether there is one; False where there never was, as far as can be seen.

        :raises LostLedgerError: if there was one. :raises LedgerError: if that cannot be found out.
        """
        try:
            if self.path.exists():
                return True
            left = [path for path in (self.key_path, self.owners) if path.exists()]
        except OSError as error:
            raise self.error(error) from error
        if left:
            raise LostLedgerError(
                self.path, f"is gone: {left[0].name} beside it is of a ledger that was there. {_HOW_TO_GO_ON}"
            )
        return False

    def error(self, error: OSError | sqlite3.Error | UnicodeDecodeError) -> LedgerError:
        """What to do about an error of SQLite or of the file system."""
        kind, meaning = _meaning(error)
        return kind(self.path, f"{meaning} ({error}).")

    @contextlib.contextmanager
    def open(self, *, write: bool, whole: bool = True) -> Iterator[sqlite3.Connection]:
        """The database in one transaction: all that is done inside, or nothing.

        :param whole: prove first that it is whole. False is for changes to rows that are known already.
        :raises LedgerError: if it cannot be used.
        """
        try:
            self._check_size()
            with contextlib.closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
                database.row_factory = sqlite3.Row
                _check_form(database)
                _write_ahead(database)
                with _transaction(database, "IMMEDIATE" if write else "DEFERRED"):
                    if whole:
                        _check_seal(database)
                    with _sealing(database) if write else contextlib.nullcontext():
                        yield database
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes damaged text in its errors
            raise self.error(error) from error

    def _check_size(self) -> None:
        """SQLite takes no file, an empty one and one of a byte for a new database."""
        size = self.path.stat().st_size
        if size < _LEAST_BYTES:
            raise sqlite3.DatabaseError(f"malformed: it has {size} bytes")

    def _make(self, facts: Sequence[tuple[str, str]] = ()) -> None:
        """An empty ledger: the whole file at once, so that no crash leaves a part of one behind."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=self.path.parent, prefix=".ledger-")  # readable for its owner alone
            os.close(handle)
            try:
                with (
                    contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as database,
                    _transaction(database, "IMMEDIATE"),
                ):
                    for statement in _TABLES:
                        database.execute(f"CREATE TABLE {statement}")
                    database.executemany("INSERT INTO facts VALUES (?, ?)", facts)
                    database.execute(f"PRAGMA application_id = {_APPLICATION}")
                    database.execute(f"PRAGMA user_version = {_FORMAT}")
                    database.execute("INSERT INTO seal VALUES (?)", (_hex(_total(database)),))
                _folders.put_new(Path(partial), self.path)
            finally:
                Path(partial).unlink(missing_ok=True)
        except FileNotFoundError as error:  # in a place such as /proc; nothing was lost
            reason = "its folder cannot be made or takes no files: name another file with ledger= or $WORKBENCH_LEDGER"
            raise LedgerError(self.path, f"{reason} ({error}).") from error
        except (OSError, sqlite3.Error) as error:
            raise self.error(error) from error

    def begin_anew(self) -> Path | None:
        """An empty ledger where there was one that is gone or damaged; returns where a damaged file was moved.

        :raises LedgerError: if there is one in order, or none was ever there.
        """
        moved = None
        try:
            if not self.exists():
                raise LedgerError(self.path, "was never there; the first fit on private records makes it.")
            with self.open(write=False) as database:
                check_pages(database)
        except LostLedgerError:
            try:
                if self.path.exists():
                    moved = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
                    for end in ("-wal", "-shm", ""):  # what is left of the old one must not be taken for the new one's
                        with contextlib.suppress(FileNotFoundError):
                            os.rename(f"{self.path}{end}", f"{moved}{end}")
            except OSError as error:
                raise self.error(error) from error
        else:
            raise LedgerError(self.path, "is in order: it is not begun anew. Name another file to keep another ledger.")
        self._make([("begun anew", now())])
        return moved

    # ---- the key --------------------------------------------------------------------------------------------------------

    def key(self) -> bytes:
        """The key of the ledger's fingerprints and sketches; with it the ledger is made, where there is none.

        :raises LedgerError: if the file beside the ledger is missing, damaged or another one.
        """
        if not self.exists():
            self._make()
        with self.open(write=True) as database:
            return self._agreed_key(database)

    def key_in(self, database: sqlite3.Connection) -> bytes | None:
        """The key, where the ledger has it and knows by which key each data set was entered; else ``key`` finds out."""
        key, digest = self._kept_key(), fact(database, "key")
        return None if key is None or digest != digest_of(key) or _unknown(database) else key

    def new_key(self) -> None:
        """Another key where the old one is lost. Data sets entered before are not known again by it.

        :raises LedgerError: if the ledger has its key.
        """
        with self.open(write=True) as database:
            with contextlib.suppress(LedgerError):
                key = self._kept_key()
                if key is not None and fact(database, "key") == digest_of(key):
                    raise _validate.ArgumentError("ledger", str(self.path), "has its key, which is not replaced.")
            try:
                if self.key_path.exists():
                    os.rename(self.key_path, self.key_path.with_name(f"{self.key_path.name}.old-{time.time_ns()}"))
            except OSError as error:
                raise self.error(error) from error
            _set_fact(database, "key", digest_of(self._made_key(None)))

    def _kept_key(self) -> bytes | None:
        from workbench.ledger.fingerprint import read_key

        try:
            return read_key(self.key_path)
        except (OSError, _validate.ArgumentError) as error:
            reason = error.expectation if isinstance(error, _validate.ArgumentError) else str(error)
            raise self._key_error(f"cannot be used ({reason.rstrip('.')})") from error

    def _made_key(self, key: bytes | None) -> bytes:
        from workbench.ledger.fingerprint import make_key

        try:  # all who may use the ledger need it
            return make_key(self.key_path, key, self.path.stat().st_mode & 0o660)
        except OSError as error:
            raise self._key_error(f"cannot be made ({error})") from error

    def _key_error(self, what: str) -> LedgerError:
        return LedgerError(
            self.path,
            f"its key, {self.key_path.name} beside it, {what}: without it no records are known again, so no fit is entered. "
            "Put it there from where the ledger was or from a copy, readable for all who use the ledger; if it is lost: "
            "workbench ledger new-key.",
        )

    def _agreed_key(self, database: sqlite3.Connection) -> bytes:
        """The key of the file beside the ledger, made where the ledger has none; the ledger has its digest from now on."""
        digest, key, own = fact(database, "key"), self._kept_key(), own_key()
        _label(database, own)
        known = {row["key"] for row in database.execute("SELECT key FROM datasets")}
        if known and digest is not None and (key is None or digest != digest_of(key)):
            raise self._key_error("is missing" if key is None else "is that of another ledger")
        if key is None:
            # ledgers were written with the user's own key once; what that does not open was another user's
            key = self._made_key(own if own is not None and digest_of(own) in known else None)
        if digest != digest_of(key):
            _set_fact(database, "key", digest_of(key))
        _label(database, key)
        return key


def own_key() -> bytes | None:
    """The user's own, where there is one that can be read."""
    from workbench.ledger.fingerprint import key_file, read_key

    try:
        return read_key(key_file())
    except (OSError, _validate.ArgumentError):
        return None


def digest_of(key: bytes) -> str:
    """By which a ledger knows its key."""
    return hashlib.blake2b(key, digest_size=16, person=b"ledger key").hexdigest()


def fact(database: sqlite3.Connection, name: str) -> str | None:
    """What the ledger knows of itself: the digest of its "key", and when it was "begun anew"."""
    found = database.execute("SELECT value FROM facts NOT INDEXED WHERE name = ?", (name,)).fetchone()
    return None if found is None else str(found[0])


def _set_fact(database: sqlite3.Connection, name: str, value: str) -> None:
    # REPLACE would delete the old row behind the back of the triggers that keep the checksum
    database.execute(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )


def _unknown(database: sqlite3.Connection) -> list[sqlite3.Row]:
    """Data sets of which it is not known by which key they were entered."""
    return database.execute("SELECT number, sketch FROM datasets WHERE key = ''").fetchall()


def _label(database: sqlite3.Connection, key: bytes | None) -> None:
    """Find out which of ``_unknown`` were entered with ``key``."""
    from workbench.ledger.overlap import is_of

    if key is not None:
        for row in _unknown(database):
            if is_of(row["sketch"], key):
                database.execute("UPDATE datasets SET key = ? WHERE number = ?", (digest_of(key), row["number"]))


# ---- form and checksum ----------------------------------------------------------------------------------------------------


def _check_form(database: sqlite3.Connection) -> None:
    """Prove that this is a ledger, of this version once it has been seen.

    :raises sqlite3.DatabaseError: if it is something else, or of a later version.
    """
    application, form, tables = (
        database.execute(text).fetchone()[0]
        for text in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if application != _APPLICATION or not tables:
        raise sqlite3.DatabaseError("it is a database of something else")
    if form == 1:
        with _transaction(database, "IMMEDIATE"):
            if database.execute("PRAGMA user_version").fetchone()[0] == 1:  # no other process was first
                check_pages(database)
                for statement in (
                    "ALTER TABLE datasets ADD COLUMN key TEXT NOT NULL DEFAULT ''",
                    f"CREATE TABLE {_FACTS}",
                    f"CREATE TABLE {_SEAL}",
                ):
                    database.execute(statement)
                _label(database, own_key())
                database.execute("INSERT INTO seal VALUES (?)", (_hex(_total(database)),))
                database.execute(f"PRAGMA user_version = {_FORMAT}")
    elif form != _FORMAT:
        raise sqlite3.DatabaseError(f"it has format {form}, this version writes {_FORMAT}")


def check_pages(database: sqlite3.Connection) -> None:
    """SQLite's own check, of indexes too.

    :raises sqlite3.DatabaseError: if it finds anything.
    """
    (sound,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if sound != "ok":
        raise sqlite3.DatabaseError(f"malformed: {sound}")


def _check_seal(database: sqlite3.Connection) -> None:
    """:raises sqlite3.DatabaseError: if the checksum is not that of what the tables hold."""
    if [row["total"] for row in database.execute("SELECT total FROM seal")] != [_hex(_total(database))]:
        raise sqlite3.DatabaseError("malformed: what it holds does not agree with its checksum")


def _hex(total: int) -> str:
    return f"{total % _MODULUS:032x}"


def _total(database: sqlite3.Connection) -> int:
    definitions = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    total = sum(_row_hash("sqlite_master", row) for row in definitions)
    for table in _SEALED:
        columns = ", ".join(_columns(database, table))
        total += sum(_row_hash(table, row) for row in database.execute(f"SELECT {columns} FROM {table}"))
    return total


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    found = [column[0] for column in database.execute(f"SELECT * FROM {table} LIMIT 0").description]
    return [name for name in found if name != "owner"]


def _row_hash(table: str, values: Sequence[Any]) -> int:
    """Of one row: a 128-bit number."""
    short = [hashlib.blake2b(value).hexdigest() if isinstance(value, bytes) else value for value in values]
    text = repr((table, short)).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


@contextlib.contextmanager
def _sealing(database: sqlite3.Connection) -> Iterator[None]:
    """Bring the checksum up to date with all rows that change inside."""
    changes = 0

    def changed(sign: int, table: str, *values: Any) -> None:
        nonlocal changes
        changes += sign * _row_hash(table, values)

    database.create_function("changed", -1, changed)
    database.execute("PRAGMA temp_store = MEMORY")
    for table in _SEALED:
        names = _columns(database, table)
        calls = {
            row: f"SELECT changed({sign}, '{table}', {', '.join(f'{row}.{name}' for name in names)});"
            for sign, row in ((-1, "OLD"), (1, "NEW"))
        }
        for event, body in (("INSERT", calls["NEW"]), ("UPDATE", "".join(calls.values())), ("DELETE", calls["OLD"])):
            database.execute(f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {body} END")
    yield
    if changes:
        ((total,),) = database.execute("SELECT total FROM seal").fetchall() or [("",)]
        try:
            database.execute("UPDATE seal SET total = ?", (_hex(int(total, 16) + changes),))
        except ValueError:
            raise sqlite3.DatabaseError("malformed: it has no checksum") from None


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection, kind: str) -> Iterator[None]:
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


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


def now() -> str:
    """The time as the ledger writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_HOW_TO_GO_ON = (
    "Restore a copy, for what it recorded is spent. If there is none, workbench ledger begin-anew begins an empty one, "
    "which knows nothing of what was spent before, nor of any cap."
)


def _meaning(error: OSError | sqlite3.Error | UnicodeDecodeError) -> tuple[type[LedgerError], str]:
    """What to do about an error of SQLite or of the file system, and whether the ledger is lost."""
    text = str(error)
    if "full" in text or "No space" in text:
        return LedgerError, "the disk is full: nothing was recorded, and what was recorded before is safe; make room"
    if "readonly" in text or isinstance(error, PermissionError) or "Read-only" in text:
        return LedgerError, "cannot be written: name another file with ledger= or $WORKBENCH_LEDGER, or make it writable"
    if "has format" in text:
        return LedgerError, "was written by another version"
    if "something else" in text:
        return LedgerError, "is damaged or no ledger: it was left as it is; move it away or restore a copy"
    if isinstance(error, FileNotFoundError):
        return LostLedgerError, f"is not there. {_HOW_TO_GO_ON[:-1]}"
    if isinstance(error, OSError) or any(word in text for word in ("locked", "unable to open", "disk I/O")):
        return LedgerError, "cannot be used: name another file with ledger= or $WORKBENCH_LEDGER"
    return LostLedgerError, f"is damaged or no ledger: it was left as it is. {_HOW_TO_GO_ON[:-1]}"
