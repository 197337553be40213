"""Finished fits of sweeps in one SQLite file: written as soon as they end, and found by any later
sweep.

Sweeps that run at the same time claim their fits here, so that none is run twice. A claim is valid
while its process lives. After that another sweep takes it over; if the fit had begun, it is
charged.

The file holds releases, labelled metrics and guarantees, never records. Only its owner can read it,
because metrics on private evaluation records are outside the guarantee. Table ``fits`` has one row
for each fit, table ``columns`` explains its columns, table ``claims`` has the fits that sweeps are
running, and table ``facts`` has a digest of the key.

The key is in a file beside the store, ``sweep.sqlite.key``, like a ledger's. By it all users of the
store recognise the same private records. Without it nobody can use the private fits and pay for
them a second time by mistake.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sqlite3
import threading
import time
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench import _validate
from workbench._keys import make_key, read_key
from workbench.ledger import owners
from workbench.ledger.file import digest_of, transaction
from workbench.privacy.guarantee import Guarantee

__all__ = ["COLUMNS", "LOST", "Claim", "Store", "key_path"]

_APPLICATION = 0x44505649  # "DPVI", in the file's header
_FORMAT = 3
_LONGEST_REASON = 200  # characters
_MOST_ATTEMPTS = 10**6

COLUMNS = {
    "key": (
        "TEXT PRIMARY KEY",
        "digest of the model, the records' fingerprint and the settings: equal for the same fit",
    ),
    "fingerprint": (
        "TEXT NOT NULL",
        "of the records; keyed with the secret beside this file where they are private",
    ),
    "model": ("TEXT NOT NULL", "name of the model"),
    "options": ("TEXT NOT NULL", "options of the model, JSON"),
    "data": ("TEXT NOT NULL", "name of the data set"),
    "method": ("TEXT NOT NULL", "dp-vi, or a baseline: non-private, scikit-learn"),
    "epsilon": ("REAL", "of the whole fit; infinite for baselines"),
    "delta": ("REAL", "of the whole fit"),
    "seed": ("INTEGER", "of the fit, and of made-up records; empty for secret randomness"),
    "repetition": (
        "INTEGER NOT NULL",
        "number of the fit among those that differ in randomness alone",
    ),
    "iterations": ("INTEGER", "T, planned steps, all of them taken"),
    "num_records": ("INTEGER", "N as declared publicly"),
    "sampler": ("TEXT", "how minibatches were drawn"),
    "sampling_rate": ("REAL", "q"),
    "clip": ("REAL", "C, largest norm of one record's gradient; empty where the fit adapted it"),
    "learning_rate": ("REAL", "of Adam"),
    "estimator": ("TEXT", "of the gradient: aligned or vanilla"),
    "noise_multiplier": ("REAL", "sigma, noise standard deviation / C"),
    "status": ("TEXT NOT NULL", "done, failed, or refused: it could not be run as asked"),
    "message": ("TEXT NOT NULL", "why it failed or was refused"),
    "attempts": (
        "INTEGER NOT NULL",
        "how often it was run, failures included: each time spends its epsilon",
    ),
    "metrics": ("TEXT NOT NULL", "on the evaluation records, JSON"),
    "intervals": (
        "TEXT NOT NULL DEFAULT '{}'",
        "90 % intervals of metrics that were released through noise, JSON",
    ),
    "label": (
        "TEXT NOT NULL",
        "what the metrics are: public data, covered, or outside the guarantee",
    ),
    "release_label": (
        "TEXT NOT NULL",
        "what the parameters are: covered, or outside the guarantee",
    ),
    "guarantee": ("TEXT", "of this fit alone, JSON; empty for baselines"),
    "spend": ("TEXT NOT NULL DEFAULT ''", "its key in the ledger; empty without one"),
    "seconds": ("REAL NOT NULL", "its share of the time that stepping took"),
    "finished": ("TEXT NOT NULL", "when"),
    "parameters": (
        "BLOB",
        "the released parameters, NumPy npz; empty where they are large or not private",
    ),
}


LOST = "its process or worker ended before the fit did; all its steps count."

# "begun" is set before a fit's first step; the guarantee is empty for baselines
_CLAIMS = """CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, sweep TEXT NOT NULL, owner TEXT NOT NULL, begun INTEGER NOT NULL,
    row TEXT NOT NULL,
    entry TEXT NOT NULL, time TEXT NOT NULL)"""
# "key": digest of it
_FACTS = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_DAMAGES = (
    sqlite3.Error,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    OSError,
    RecursionError,
    OverflowError,
    zipfile.BadZipFile,
)


class Claim(NamedTuple):
    """A fit that a sweep runs or is about to run.

    :param key: of the cell.
    :param sweep: name of the sweep.
    :param alive: whether the sweep's process is alive.
    :param begun: whether steps may have been taken.
    :param row: the part of its row that says whose records it is about.
    :param spend: its key in the ledger; "" if it has none.
    """

    key: str
    sweep: str
    alive: bool
    begun: bool
    row: Mapping[str, Any]
    spend: str


def key_path(path: Path) -> Path:
    """The path of the key of the store in ``path``."""
    return path.with_name(f"{path.name}.key")


class Store:
    """Rows of finished fits by key. Several threads may use it, and several processes may write to
    one file.

    :param path: the file, which is created if it is missing; None keeps rows in memory.
    :raises ArgumentError: naming ``store``, if the file is something else or cannot be written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = (
            None
            if path is None
            else _validate.location("store", path, "must be the path of a SQLite file.")
        )
        self._lock = threading.RLock()
        try:
            if self.path is not None:
                # its key is made later: such a store with private fits was lost
                is_lost = not self.path.exists() or not self.path.stat().st_size
                if is_lost and key_path(self.path).exists():
                    raise _validate.ArgumentError(
                        "store",
                        str(path),
                        f"is gone or empty, but {key_path(self.path).name} beside it belongs to a "
                        "store with private fits: restore a copy of that store, or name another "
                        "file.",
                    )
                # SQLite's other files get its permissions
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database = sqlite3.connect(
                ":memory:" if self.path is None else self.path,
                timeout=30,
                isolation_level=None,
                check_same_thread=False,
            )
            weakref.finalize(self, self._database.close)
            self._prepare()
        except (
            OSError,
            sqlite3.Error,
            UnicodeDecodeError,
        ) as error:  # SQLite may quote damaged text
            raise _validate.ArgumentError(
                "store", str(path), f"cannot be used as the file of a sweep ({error})."
            ) from None

    def _prepare(self) -> None:
        """Create the tables of an empty file, or check that it has them. :raises
        sqlite3.DatabaseError: if it is of another program or version.
        """
        application, form, number = (
            self._database.execute(text).fetchone()[0]
            for text in (
                "PRAGMA application_id",
                "PRAGMA user_version",
                "SELECT count(*) FROM sqlite_master",
            )
        )
        if number and application != _APPLICATION:
            raise sqlite3.DatabaseError("it is a database of another program")
        if number:
            if form == 2:
                self._add_columns()
            elif form != _FORMAT:
                raise sqlite3.DatabaseError(f"it has format {form}, this version writes {_FORMAT}")
            return
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        meanings = ", ".join(
            "('{}', '{}')".format(name, meaning.replace("'", "''"))
            for name, (_, meaning) in COLUMNS.items()
        )
        # each is harmless if another process was first
        for statement in (
            "BEGIN IMMEDIATE",
            f"CREATE TABLE IF NOT EXISTS fits ({columns})",
            "CREATE TABLE IF NOT EXISTS columns (name TEXT PRIMARY KEY, meaning TEXT NOT NULL)",
            f"INSERT OR IGNORE INTO columns VALUES {meanings}",
            _FACTS,
            _CLAIMS,
            f"PRAGMA application_id = {_APPLICATION}",
            f"PRAGMA user_version = {_FORMAT}",
            "COMMIT",
        ):
            self._database.execute(statement)

    def _add_columns(self) -> None:
        """Give a file of format 2 the columns that it lacks."""
        with self._writing() as database:
            if database.execute("PRAGMA user_version").fetchone() != (2,):
                return  # another process was first
            for name in ("intervals", "spend"):
                kind, meaning = COLUMNS[name]
                database.execute(f"ALTER TABLE fits ADD COLUMN {name} {kind}")
                database.execute("INSERT INTO columns VALUES (?, ?)", (name, meaning))
            database.execute(f"PRAGMA user_version = {_FORMAT}")

    # ---- the key ---------------------------------------------------------------------------------

    def key(self) -> bytes | None:
        """The key of private records' fingerprints, made when the first is needed; None, for the
        user's own, in memory.

        :raises ArgumentError: naming ``store``, if the key is missing, is another store's, or
            cannot be determined.
        """
        if self.path is None:
            return None
        key = _kept_key(self.path)
        try:
            with self._writing() as database:
                digest = database.execute("SELECT value FROM facts WHERE name = 'key'").fetchone()
                if digest is None:
                    return self._first_key(self.path, database)
                if key is None or digest != (digest_of(key),):
                    raise _key_error(
                        self.path, "is missing" if key is None else "belongs to another store"
                    )
                return key
        except OSError as error:
            raise _validate.ArgumentError(
                "store", str(self.path), f"cannot be used ({error})."
            ) from error

    def _first_key(self, path: Path, database: sqlite3.Connection) -> bytes:
        """Make the key of a store that has none, and note its digest."""
        try:  # all users of the store need it
            key = make_key(key_path(path), None, path.stat().st_mode & 0o660)
        except OSError as error:
            raise _key_error(path, f"cannot be made ({error})") from error
        database.execute("INSERT INTO facts VALUES ('key', ?)", (digest_of(key),))
        return key

    # ---- claims ----------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path | None:
        """The folder of the files that show which processes are alive."""
        return None if self.path is None else self.path.with_name(f"{self.path.name}.owners")

    def claim(self, sweep: str, rows: Sequence[Mapping[str, Any]]) -> tuple[set[str], list[Claim]]:
        """Claim fits for ``sweep``, and return (keys that it has now, claims of ended sweeps that
        it took over).

        Fits that are done and fits of living sweeps are left out. If an ended sweep had begun a
        fit, its row is written.

        :param rows: rows of the fits, as ``add`` takes them, each for a failed attempt.
        :raises OSError: as ``add`` does.
        """
        owner = "" if self._folder is None else owners.own(self._folder)
        with self._writing() as database:
            done = {
                key for (key,) in database.execute("SELECT key FROM fits WHERE status = 'done'")
            }
            current = {claim.key: claim for claim in self.claims()}
            mine: set[str] = set()
            former: list[Claim] = []
            for row in rows:
                key = row["key"]
                existing = current.get(key)
                # nothing is to do, or another sweep is doing it
                if key in done or (
                    existing is not None and existing.alive and existing.sweep != sweep
                ):
                    continue
                mine.add(key)
                # claimed before, by this sweep
                if existing is not None and existing.sweep == sweep:
                    continue
                if existing is not None:
                    # the steps of an ended sweep may have spent epsilon: they count
                    former.append(existing)
                    self._insert([row] if existing.begun else [])
                values = (
                    key,
                    sweep,
                    owner,
                    0,
                    json.dumps(_plain(row)),
                    "",
                    time.strftime("%Y-%m-%d %H:%M:%S %z"),
                )
                database.execute(
                    "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)", values
                )
        return mine, former

    def note(self, sweep: str, spends: Mapping[str, str]) -> None:
        """Note the keys of claimed fits' reservations in the ledger. :raises OSError: if they
        cannot be written.
        """
        with self._writing() as database:
            rows = [(spend, sweep, key) for key, spend in spends.items()]
            database.executemany("UPDATE claims SET entry = ? WHERE sweep = ? AND key = ?", rows)

    def begin(self, sweep: str, keys: Iterable[str]) -> None:
        """Note that the first steps of claimed fits are about to be taken. :raises OSError: if that
        cannot be written.
        """
        rows = [(sweep, key) for key in keys]
        with self._writing() as database:
            changed = database.executemany(
                "UPDATE claims SET begun = 1 WHERE sweep = ? AND key = ?", rows
            ).rowcount
            if rows and changed != len(rows):
                raise sqlite3.DatabaseError("claims are gone")

    def release(self, sweep: str) -> None:
        """Give back all claims of ``sweep``, on fits of which nothing was seen. :raises OSError: as
        ``add`` does.
        """
        with self._writing() as database:
            database.execute("DELETE FROM claims WHERE sweep = ?", (sweep,))

    def claims(self) -> list[Claim]:
        """All claims. :raises ArgumentError: naming ``store``, if they cannot be read."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT key, sweep, owner, begun, row, entry FROM claims"
            ).fetchall()
            alive = {owner: self._is_alive(owner) for owner in {row[2] for row in rows}}
            return [
                Claim(key, sweep, alive[owner], bool(begun), json.loads(row), spend)
                for key, sweep, owner, begun, row, spend in rows
            ]

    def _is_alive(self, owner: str) -> bool:
        if self._folder is None:
            return True  # it is another sweep in this process
        try:
            return owners.is_alive(self._folder, Path(owner).name)
        except OSError:  # if it is unknown, it counts as running
            return True

    # ---- rows ------------------------------------------------------------------------------------

    def add(self, rows: Iterable[Mapping[str, Any]], *, again: bool = False) -> None:
        """Write rows, all or none. A row of the same key is replaced, unless it is done and the new
        one is not.

        :param rows: values by column; metrics, intervals, options and guarantee as mappings,
            parameters as ``{name: array}``.
        :param again: whether the fits will be run again: then their claims stay, as not begun; else
            their claims end.
        :raises OSError: with the file's name, if they cannot be written.
        """
        entries = list(rows)
        with self._writing() as database:
            self._insert(entries)
            end = (
                "UPDATE claims SET begun = 0 WHERE key = ?"
                if again
                else "DELETE FROM claims WHERE key = ?"
            )
            database.executemany(end, [(row["key"],) for row in entries])

    def _insert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = list(COLUMNS)
        names = ", ".join(columns)
        sets = ", ".join(
            f"{name} = excluded.{name}" for name in columns if name not in ("key", "attempts")
        )
        statement = (
            f"INSERT INTO fits ({names}) VALUES ({', '.join('?' * len(COLUMNS))}) "
            f"ON CONFLICT (key) DO UPDATE SET attempts = fits.attempts + excluded.attempts, {sets} "
            "WHERE fits.status != 'done' OR excluded.status = 'done'"
        )
        self._database.executemany(statement, [_encoded(row) for row in rows])

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction. :raises OSError: with the file's name, if it cannot be written."""
        with self._lock:
            try:
                with transaction(self._database, "IMMEDIATE"):
                    yield self._database
            except sqlite3.Error as error:
                raise OSError(
                    f"{self.path}: the fits of the sweep could not be written ({error})."
                ) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The database, to read from. :raises ArgumentError: naming ``store``, if its content
        cannot be read.
        """
        with self._lock:
            try:
                yield self._database
            except _DAMAGES as error:
                raise self.damaged(error) from error

    def damaged(self, error: BaseException) -> _validate.ArgumentError:
        """The error for a file whose content this class did not write."""
        reason = _validate.kind_and_message(error)[:_LONGEST_REASON]
        return _validate.ArgumentError(
            "store",
            str(self.path),
            f"is damaged ({reason}) and was not changed: move it away, or restore a copy.",
        )

    def rows(self, keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The rows of ``keys`` that exist, in that order; all rows without ``keys``. Parameters are
        left out.
        """
        names = [name for name in COLUMNS if name != "parameters"]
        with self._reading() as database:
            fetched = database.execute(f"SELECT {', '.join(names)} FROM fits").fetchall()
            rows = {
                values[0]: _decoded(dict(zip(names, values, strict=True))) for values in fetched
            }
        return list(rows.values()) if keys is None else [rows[key] for key in keys if key in rows]

    def parameters(self, key: str) -> dict[str, np.ndarray] | None:
        """The released parameters of a fit; None if they were not kept."""
        with self._reading() as database:
            row = database.execute("SELECT parameters FROM fits WHERE key = ?", (key,)).fetchone()
            if row is None or row[0] is None:
                return None
            with np.load(io.BytesIO(row[0]), allow_pickle=False) as file:
                return dict(file)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def _kept_key(path: Path) -> bytes | None:
    """The key of the store in ``path``; None if it is missing. :raises ArgumentError: if it cannot
    be used.
    """
    try:
        return read_key(key_path(path))
    except (OSError, _validate.ArgumentError) as error:
        reason = (
            error.expectation.rstrip(".")
            if isinstance(error, _validate.ArgumentError)
            else str(error)
        )
        raise _key_error(path, f"cannot be used ({reason})") from error


def _key_error(path: Path, reason: str) -> _validate.ArgumentError:
    return _validate.ArgumentError(
        "store",
        str(path),
        f"its key, {key_path(path).name} beside it, {reason}. Without the key the private fits in "
        "the store cannot be recognised, and would be paid for again. Restore the key from where "
        "the store was or from a copy, readable for all users of the store, or name another "
        "store.",
    )


def _encoded(row: Mapping[str, Any]) -> list[Any]:
    values = dict(row)
    values["metrics"] = json.dumps(
        {name: value if math.isfinite(value) else None for name, value in values["metrics"].items()}
    )
    values["intervals"] = json.dumps(values["intervals"])
    values["options"] = json.dumps(values["options"], default=repr)
    values["guarantee"] = None if values["guarantee"] is None else json.dumps(values["guarantee"])
    if values["parameters"] is not None:
        buffer = io.BytesIO()
        np.savez(buffer, **values["parameters"])
        values["parameters"] = buffer.getvalue()
    return [values[name] for name in COLUMNS]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a row that says whose records the fit is about, JSON-ready."""
    return {name: row[name] for name in ("fingerprint", "model", "guarantee")}


_KINDS: dict[str, Any] = {"REAL": (int, float), "INTEGER": int, "TEXT": str}


def _check(values: Mapping[str, Any]) -> None:
    """Check that every value has its column's type, as SQLite does not. :raises TypeError: naming
    the column.
    """
    for name, value in values.items():
        kind, *constraints = COLUMNS[name][0].split()  # NOT NULL, or a key
        if not isinstance(value, _KINDS[kind]) and (constraints or value is not None):
            raise TypeError(f"column {name} holds {type(value).__name__}")
    if not 0 <= values["attempts"] <= _MOST_ATTEMPTS:
        raise TypeError(f"column attempts holds {values['attempts']}")


def _decoded(values: dict[str, Any]) -> dict[str, Any]:
    _check(values)
    metrics = {
        name: math.nan if value is None else value
        for name, value in json.loads(values["metrics"]).items()
    }
    guarantee = (
        None
        if values["guarantee"] is None
        else Guarantee.from_dict(json.loads(values["guarantee"])).to_dict()
    )
    return {
        **values,
        "metrics": metrics,
        "intervals": {
            name: (float(low), float(high))
            for name, (low, high) in json.loads(values["intervals"]).items()
        },
        "options": json.loads(values["options"]),
        "guarantee": guarantee,
    }
