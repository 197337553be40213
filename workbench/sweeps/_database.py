"""SQLite files of the workbench's own: readable for their owner alone, known by their header, made where missing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

__all__ = ["create_file", "prepare"]


def create_file(path: Path) -> None:
    """An empty file for ``sqlite3.connect`` if there is none, with permissions that SQLite's others take over."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def prepare(database: sqlite3.Connection, *, application: int, version: int, statements: Sequence[str]) -> None:
    """Make the tables of an empty database, or prove that it has them.

    :param application: number in the file's header that tells whose it is. :param version: of the tables' form.
    :param statements: SQL that makes the tables; each must do no harm where another process was first.
    :raises sqlite3.DatabaseError: if it is a database of something else or of another version.
    """
    (found,), (tables,) = (
        database.execute(text).fetchone() for text in ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
    )
    if tables and found != application:
        raise sqlite3.DatabaseError("it is a database of something else")
    if tables:
        (form,) = database.execute("PRAGMA user_version").fetchone()
        if form != version:
            raise sqlite3.DatabaseError(f"it has format {form}, this version writes {version}")
        return
    database.execute("BEGIN IMMEDIATE")
    for statement in (*statements, f"PRAGMA application_id = {application}", f"PRAGMA user_version = {version}"):
        database.execute(statement)
    database.execute("COMMIT")
