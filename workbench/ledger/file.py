"""The ledger's file, which is created atomically and verified before use, and the key that
recognises records.

*Checksum.* Besides its tables the file has the sum of a hash of every row and of the tables'
definitions. Each transaction brings it up to date. It is not keyed: it detects accidents, not
tampering. The column ``owner``, the process of a fit, is left out, because no total depends on it.

*Key.* ``ledger.sqlite.key`` is beside ``ledger.sqlite``, which has a digest of it. Everybody who
writes to the ledger fingerprints records with that key, and so finds the same data sets. The key is
not in the file itself, so the file can be copied, read and sent without it: with the key, guesses
about records could be tested against fingerprints.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench import _folders, _validate
from workbench._keys import make_key, read_key
from workbench.ledger._errors import (
    OTHER_FILE,
    RESTORE,
    DamageError,
    LedgerDiskError,
    LedgerError,
    LedgerFileError,
    LostLedgerError,
    is_locked,
    ledger_error,
)

__all__ = ["LedgerFile", "check_pages", "digest_of", "fact", "now", "set_fact", "transaction"]

_APPLICATION = 0x4450564C  # "DPVL", in the file's header
_FORMAT = 4
_BUSY_SECONDS = 60
_LEAST_BYTES = 512  # a database's smallest page
_MODULUS = 2**128

_TABLES = (
    # key: digest of the key that made the fingerprint
    """datasets (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
        fingerprint TEXT NOT NULL UNIQUE, unit TEXT NOT NULL,
        time TEXT NOT NULL, key TEXT NOT NULL)""",
    # names of the same records in later fits
    "aliases (dataset INTEGER NOT NULL, name TEXT NOT NULL, time TEXT NOT NULL, PRIMARY KEY "
    "(dataset, name))",
    # counted: 1 for data sets that count together, 0 for those that are counted separately
    """relatives (
        one INTEGER NOT NULL, other INTEGER NOT NULL, counted INTEGER NOT NULL, why TEXT NOT NULL,
        who TEXT NOT NULL,
        time TEXT NOT NULL, PRIMARY KEY (one, other))""",
    # the newest cap of a data set counts, and NULL as epsilon removes it; after: number of the last
    # spend at that time
    """caps (
        number INTEGER PRIMARY KEY AUTOINCREMENT, dataset INTEGER NOT NULL, epsilon REAL,
        delta REAL, relation TEXT,
        filter_order INTEGER, after INTEGER NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL,
        time TEXT NOT NULL)""",
    """spends (
        number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE,
        dataset INTEGER NOT NULL, model TEXT NOT NULL,
        plan TEXT NOT NULL, event TEXT NOT NULL, sampler TEXT NOT NULL, relation TEXT NOT NULL,
        guarantee TEXT NOT NULL,
        seed INTEGER, planned INTEGER NOT NULL, seen INTEGER NOT NULL, reached INTEGER NOT NULL,
          taken INTEGER,
        status TEXT NOT NULL,
        rule TEXT NOT NULL, why TEXT NOT NULL, who TEXT NOT NULL, version TEXT NOT NULL,
        owner TEXT NOT NULL,
        began TEXT NOT NULL, ended TEXT, run TEXT, result TEXT)""",
    "facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "seal (total TEXT NOT NULL)",
)
_SEALED = ("datasets", "aliases", "relatives", "caps", "spends", "facts")


class LedgerFile:
    """The file of one ledger. Any number of processes and threads may use it at once. :param path:
    absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key_path = path.with_name(f"{path.name}.key")
        self.owners = path.with_name(f"{path.name}.owners")

    def exists(self) -> bool:
        """Whether the file is there. False if it never was, as far as can be seen.

        :raises LostLedgerError: if it was there and is gone. :raises LedgerError: if that cannot be
            determined.
        """
        try:
            if self.path.exists():
                return True
            if self.path.is_symlink():
                target = os.readlink(self.path)
                raise LedgerFileError(
                    self.path,
                    f"is a link to {target}, which is not there.",
                    code="broken link",
                    remedy="Connect the disk or folder that holds it, or correct the link.",
                )
            remnants = [path for path in (self.key_path, self.owners) if path.exists()]
        except OSError as error:
            raise self.error(error) from error
        if remnants:
            reason = f"is gone: {remnants[0].name} beside it belongs to a ledger that was there."
            raise LostLedgerError(self.path, reason, code="gone", remedy=RESTORE)
        return False

    def error(
        self, error: OSError | sqlite3.Error | UnicodeDecodeError | DamageError
    ) -> LedgerError:
        """The ledger's error for an error of SQLite or of the file system."""
        return ledger_error(self.path, error)

    @contextlib.contextmanager
    def open(self, *, write: bool, checks_seal: bool = True) -> Iterator[sqlite3.Connection]:
        """The database in one transaction: everything inside is done, or nothing.

        :param checks_seal: first prove that the file is whole. False is for changes to rows that
            are already known.
        :raises LedgerError: if the file cannot be used.
        """
        try:
            self._check_size()
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as database:
                database.row_factory = sqlite3.Row
                # damaged text is a UnicodeDecodeError, apart from SQLite's errors
                database.text_factory = bytes.decode
                _check_form(database)
                _write_ahead(database)
                with transaction(database, "IMMEDIATE" if write else "DEFERRED"):
                    if checks_seal:
                        _check_seal(database)
                    with _sealing(database) if write else contextlib.nullcontext():
                        yield database
        except LedgerError:
            raise
        except (
            OSError,
            sqlite3.Error,
            UnicodeDecodeError,
            DamageError,
        ) as error:  # SQLite may quote damaged text
            raise self.error(error) from error

    def _check_size(self) -> None:
        """SQLite would take a missing, an empty or a one-byte file for a new database."""
        about = self.path.stat()
        size = about.st_size
        if not stat.S_ISREG(about.st_mode):
            raise DamageError("another database", "it is no regular file")
        if size < _LEAST_BYTES:
            raise DamageError("damaged", f"it has {size} bytes")

    def _make(self, facts: Sequence[tuple[str, str]] = ()) -> None:
        """Create an empty ledger, the whole file at once, so that no crash leaves part of one
        behind.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # readable for its owner alone
            handle, partial = tempfile.mkstemp(dir=self.path.parent, prefix=".ledger-")
            os.close(handle)
            try:
                with (
                    contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as database,
                    transaction(database, "IMMEDIATE"),
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
        # in a place such as /proc, or within a file; nothing was lost
        except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
            reason = f"its folder cannot be made or takes no files ({error})."
            raise LedgerFileError(
                self.path, reason, code="no folder", remedy=f"{OTHER_FILE}."
            ) from error
        except (OSError, sqlite3.Error) as error:
            raise self.error(error) from error

    def begin_anew(self) -> Path | None:
        """Create an empty ledger if the old one is gone or damaged; returns where a damaged file
        was moved.

        :raises LedgerError: if the ledger is in order, or was never there.
        """
        moved = None
        try:
            if not self.exists():
                reason = "was never there; the first fit on private records makes it."
                raise LedgerFileError(self.path, reason, code="never there")
            with self.open(write=False) as database:
                check_pages(database)
        except LostLedgerError:
            try:
                if self.path.exists():
                    moved = self.path.with_name(
                        f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
                    )
                    for end in (
                        "-wal",
                        "-shm",
                        "",
                    ):  # or SQLite would read the old files into the new ledger
                        with contextlib.suppress(FileNotFoundError):
                            os.rename(f"{self.path}{end}", f"{moved}{end}")
            except OSError as error:
                raise self.error(error) from error
        else:
            reason = (
                "is in order, so it is not begun anew. To keep a second ledger, name another file."
            )
            raise LedgerFileError(self.path, reason, code="in order")
        self._make([("begun anew", now())])
        return moved

    # ---- the key ---------------------------------------------------------------------------------

    def key(self) -> bytes:
        """The key of the ledger's fingerprints. Creates key and ledger if both are missing.

        :raises LedgerError: if the key file beside the ledger is missing, damaged or of another
            ledger.
        """
        if not self.exists():
            self._make()
        with self.open(write=True) as database:
            return self._agreed_key(database)

    def key_in(self, database: sqlite3.Connection) -> bytes | None:
        """The key, if the ledger has it. None otherwise: ``key`` finds out then."""
        key, digest = self._kept_key(), fact(database, "key")
        return None if key is None or digest != digest_of(key) else key

    def new_key(self) -> None:
        """Make another key if the old one is lost. It does not recognise data sets entered before.

        :raises LedgerError: if the ledger has its key.
        """
        with self.open(write=True) as database:
            key = None
            with contextlib.suppress(LedgerError):
                key = self._kept_key()
            if key is not None and fact(database, "key") == digest_of(key):
                raise LedgerFileError(
                    self.path, "has its key, which is not replaced.", code="in order"
                )
            try:
                if self.key_path.exists():
                    os.rename(
                        self.key_path,
                        self.key_path.with_name(f"{self.key_path.name}.old-{time.time_ns()}"),
                    )
            except OSError as error:
                raise self.error(error) from error
            set_fact(database, "key", digest_of(self._made_key()))

    def _kept_key(self) -> bytes | None:
        try:
            return read_key(self.key_path)
        except OSError as error:
            raise self._key_error(f"cannot be read ({error})", error) from error
        except _validate.ArgumentError as error:
            raise self._key_error(error.expectation.rstrip(".")) from error

    def _made_key(self) -> bytes:
        try:  # everybody who may use the ledger needs the key
            return make_key(self.key_path, None, self.path.stat().st_mode & 0o660)
        except OSError as error:
            raise self._key_error(f"cannot be made ({error})", error) from error

    def _key_error(self, problem: str, cause: OSError | None = None) -> LedgerError:
        """The error of a key that cannot be used. :param cause: a full or broken disk is reported
        as such.
        """
        if cause is not None and isinstance(disk_error := self.error(cause), LedgerDiskError):
            return disk_error
        return LedgerFileError(
            self.path,
            f"its key, {self.key_path.name} beside it, {problem}. Without the key no records are "
            "recognised, so no fit is recorded.",
            code="key",
            remedy="Put the key there from where the ledger was, or from a copy, readable for "
            "everybody who uses the ledger. If it is lost: workbench ledger new-key.",
        )

    def _agreed_key(self, database: sqlite3.Connection) -> bytes:
        """The key in the file beside the ledger, created if the ledger has none. Afterwards the
        ledger has its digest.
        """
        digest, key = fact(database, "key"), self._kept_key()
        is_empty = database.execute("SELECT count(*) FROM datasets").fetchone()[0] == 0
        if not is_empty and (key is None or digest != digest_of(key)):
            raise self._key_error("is missing" if key is None else "belongs to another ledger")
        key = key or self._made_key()
        if digest != digest_of(key):
            set_fact(database, "key", digest_of(key))
        return key


def digest_of(key: bytes) -> str:
    """The digest by which a ledger recognises its key."""
    return hashlib.blake2b(key, digest_size=16, person=b"ledger key").hexdigest()


def fact(database: sqlite3.Connection, name: str) -> str | None:
    """A fact about the ledger: the digest of its "key", when it was "begun anew", or a group of
    data sets (``_rows``).
    """
    row = database.execute("SELECT value FROM facts NOT INDEXED WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(database: sqlite3.Connection, name: str, value: str) -> None:
    """Write a fact about the ledger, over an earlier one of that name."""
    # REPLACE would delete the old row without firing the triggers that keep the checksum
    database.execute(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


# ---- form and checksum ---------------------------------------------------------------------------


def _check_form(database: sqlite3.Connection) -> None:
    """Prove that this is a ledger. :raises DamageError: if it is something else, or of another
    format.
    """
    try:
        application, form = (
            database.execute(text).fetchone()[0]
            for text in ("PRAGMA application_id", "PRAGMA user_version")
        )
        definitions = [
            row[0]
            for row in database.execute(
                "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%'"
            )
        ]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise DamageError(
            "damaged", str(error)
        ) from error  # nothing was asked for that a ledger does not have
    if application != _APPLICATION or not definitions:
        raise DamageError("another database", "it is a database of something else")
    if form != _FORMAT:
        raise DamageError(
            "another format", f"it has format {form}, and this version writes {_FORMAT}"
        )
    if set(definitions) != {f"CREATE TABLE {statement}" for statement in _TABLES}:
        raise DamageError("damaged", "its tables are not those of a ledger")


def check_pages(database: sqlite3.Connection) -> None:
    """Run SQLite's own check, also of indexes.

    :raises DamageError: if it finds anything.
    """
    (sound,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if sound != "ok":
        raise DamageError("damaged", str(sound))


def _check_seal(database: sqlite3.Connection) -> None:
    """Check the checksum. :raises DamageError: if it is not that of the tables."""
    if [row["total"] for row in database.execute("SELECT total FROM seal")] != [
        _hex(_total(database))
    ]:
        raise DamageError("damaged", "its content does not agree with its checksum")


def _hex(total: int) -> str:
    return f"{total % _MODULUS:032x}"


def _total(database: sqlite3.Connection) -> int:
    definitions = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    total = sum(_row_hash("sqlite_master", row) for row in definitions)
    for table in _SEALED:
        columns = ", ".join(_columns(database, table))
        total += sum(
            _row_hash(table, row) for row in database.execute(f"SELECT {columns} FROM {table}")
        )
    return total


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    names = [column[0] for column in database.execute(f"SELECT * FROM {table} LIMIT 0").description]
    return [name for name in names if name != "owner"]


def _row_hash(table: str, values: Sequence[Any]) -> int:
    """A 128-bit hash of one row."""
    text = repr((table, list(values))).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


@contextlib.contextmanager
def _sealing(database: sqlite3.Connection) -> Iterator[None]:
    """Update the checksum for all rows that change inside."""
    changes = 0

    def changed(sign: int, table: str, *values: Any) -> None:
        nonlocal changes
        changes += sign * _row_hash(table, values)

    database.create_function("changed", -1, changed)
    database.execute("PRAGMA temp_store = MEMORY")
    for table in _SEALED:
        names = _columns(database, table)
        calls = {
            row: f"SELECT changed({sign}, '{table}', "
            f"{', '.join(f'{row}.{name}' for name in names)});"
            for sign, row in ((-1, "OLD"), (1, "NEW"))
        }
        for event, body in (
            ("INSERT", calls["NEW"]),
            ("UPDATE", "".join(calls.values())),
            ("DELETE", calls["OLD"]),
        ):
            database.execute(
                f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {body} "
                "END"
            )
    yield
    if changes:
        ((total,),) = database.execute("SELECT total FROM seal").fetchall() or [("",)]
        try:
            database.execute("UPDATE seal SET total = ?", (_hex(int(total, 16) + changes),))
        except ValueError:
            raise DamageError("damaged", "it has no checksum") from None


@contextlib.contextmanager
def transaction(database: sqlite3.Connection, kind: str) -> Iterator[None]:
    """All that is done inside, or nothing. :param kind: "IMMEDIATE" to write, or "DEFERRED"."""
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _write_ahead(database: sqlite3.Connection) -> None:
    """Allow readers beside one writer, and lose nothing that was committed."""
    for attempt in range(100):  # the change of mode does not wait for other connections
        try:
            database.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if not is_locked(error) or attempt == 99:
                raise
            time.sleep(0.02)
    database.execute("PRAGMA synchronous = FULL")


def now() -> str:
    """The time as the ledger writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
