"""Finished fits of sweeps in one SQLite file: written at once, found again by any later sweep.

The file holds releases, labelled metrics and guarantees, never records; it is readable for its owner alone, because metrics
on private evaluation records are outside the guarantee. Table ``fits`` has a row a fit, table ``columns`` says what its
columns mean.
"""

from __future__ import annotations

import io
import json
import math
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _databases, _validate

__all__ = ["COLUMNS", "Store"]

_APPLICATION = 0x44505649  # "DPVI", in the file's header
_FORMAT = 1

COLUMNS = {
    "key": ("TEXT PRIMARY KEY", "digest of the model, the records' fingerprint and the settings: equal for the same fit"),
    "fingerprint": ("TEXT NOT NULL", "of the records; keyed with a secret of this user's where they are private"),
    "model": ("TEXT NOT NULL", "name of the model"),
    "options": ("TEXT NOT NULL", "options of the model, JSON"),
    "data": ("TEXT NOT NULL", "name of the data set"),
    "method": ("TEXT NOT NULL", "dp-vi, or a baseline: non-private, scikit-learn"),
    "epsilon": ("REAL", "of the whole fit; infinite for baselines"),
    "delta": ("REAL", "of the whole fit"),
    "seed": ("INTEGER", "of the fit, and of made-up records; empty for secret randomness"),
    "repetition": ("INTEGER NOT NULL", "number of the fit among those that differ in randomness alone"),
    "iterations": ("INTEGER", "T, planned steps, all of them taken"),
    "num_records": ("INTEGER", "N as declared publicly"),
    "sampler": ("TEXT", "how minibatches were drawn"),
    "sampling_rate": ("REAL", "q"),
    "clip": ("REAL", "C, largest norm of one record's gradient"),
    "learning_rate": ("REAL", "of Adam"),
    "gradient": ("TEXT", "aligned or vanilla"),
    "noise_multiplier": ("REAL", "sigma, noise standard deviation / C"),
    "state": ("TEXT NOT NULL", "done, failed, or refused: it could not be run as asked"),
    "message": ("TEXT NOT NULL", "why it failed or was refused"),
    "attempts": ("INTEGER NOT NULL", "how often it was run, failures included: each time spends its epsilon"),
    "metrics": ("TEXT NOT NULL", "on the evaluation records, JSON"),
    "label": ("TEXT NOT NULL", "what the metrics are: public data, or outside the guarantee"),
    "release_label": ("TEXT NOT NULL", "what the parameters are: covered, or outside the guarantee"),
    "guarantee": ("TEXT", "of this fit alone, JSON; empty for baselines"),
    "seconds": ("REAL NOT NULL", "its share of the time that stepping took"),
    "finished": ("TEXT NOT NULL", "when"),
    "parameters": ("BLOB", "the released parameters, NumPy npz; empty where they are large or not private"),
}


class Store:
    """Rows of finished fits by key. Safe to use from several threads; several processes may write to one file.

    :param path: of the file, made where it is missing; None keeps rows in memory.
    :raises ArgumentError: naming ``store``, if the file is something else or cannot be written.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path).expanduser()
        self._lock = threading.RLock()
        try:
            if self.path is not None:
                _databases.create_file(self.path)
            self._database = sqlite3.connect(
                ":memory:" if self.path is None else self.path, timeout=30, isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._database.close)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise _validate.ArgumentError("store", str(path), f"cannot be used as the file of a sweep ({error}).") from None

    def _prepare(self) -> None:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        meanings = ", ".join(
            "('{}', '{}')".format(name, meaning.replace("'", "''")) for name, (_, meaning) in COLUMNS.items()
        )
        _databases.prepare(
            self._database,
            application=_APPLICATION,
            version=_FORMAT,
            statements=[
                f"CREATE TABLE IF NOT EXISTS fits ({columns})",
                "CREATE TABLE IF NOT EXISTS columns (name TEXT PRIMARY KEY, meaning TEXT NOT NULL)",
                f"INSERT OR IGNORE INTO columns VALUES {meanings}",
            ],
        )

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, all or none; a row of the same key is replaced, unless it is done and the new one is not.

        :param rows: values by column; metrics, options and guarantee as mappings, parameters as ``{name: array}``.
        :raises OSError: if they cannot be written, with the file's name.
        """
        values = [_encoded(row) for row in rows]
        names = ", ".join(COLUMNS)
        kept = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in ("key", "attempts"))
        statement = (
            f"INSERT INTO fits ({names}) VALUES ({', '.join('?' * len(COLUMNS))}) "
            f"ON CONFLICT (key) DO UPDATE SET attempts = fits.attempts + excluded.attempts, {kept} "
            "WHERE fits.state != 'done' OR excluded.state = 'done'"
        )
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany(statement, values)
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise OSError(f"{self.path}: finished fits could not be written ({error}).") from error

    def rows(self, keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows in the order of ``keys``, where they are there; all without. Parameters are left out."""
        names = [name for name in COLUMNS if name != "parameters"]
        with self._lock:
            found = self._database.execute(f"SELECT {', '.join(names)} FROM fits").fetchall()
        rows = {values[0]: _decoded(dict(zip(names, values, strict=True))) for values in found}
        return list(rows.values()) if keys is None else [rows[key] for key in keys if key in rows]

    def parameters(self, key: str) -> dict[str, np.ndarray] | None:
        """The released parameters of a fit, None where they were not kept."""
        with self._lock:
            found = self._database.execute("SELECT parameters FROM fits WHERE key = ?", (key,)).fetchone()
        if found is None or found[0] is None:
            return None
        with np.load(io.BytesIO(found[0]), allow_pickle=False) as file:
            return dict(file)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def _encoded(row: Mapping[str, Any]) -> list[Any]:
    values = dict(row)
    values["metrics"] = json.dumps(
        {name: value if math.isfinite(value) else None for name, value in values["metrics"].items()}
    )
    values["options"] = json.dumps(values["options"], default=repr)
    values["guarantee"] = None if values["guarantee"] is None else json.dumps(values["guarantee"])
    if values["parameters"] is not None:
        buffer = io.BytesIO()
        np.savez(buffer, **values["parameters"])
        values["parameters"] = buffer.getvalue()
    return [values[name] for name in COLUMNS]


def _decoded(values: dict[str, Any]) -> dict[str, Any]:
    metrics = {name: math.nan if value is None else value for name, value in json.loads(values["metrics"]).items()}
    guarantee = None if values["guarantee"] is None else json.loads(values["guarantee"])
    return {**values, "metrics": metrics, "options": json.loads(values["options"]), "guarantee": guarantee}
