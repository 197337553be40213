"""The workbench's SQLite files: readable only by their owner, recognised by their header, created
if missing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

__all__ = ["create_file", "prepare"]


def create_file(path: Path) -> None:
    """Create an empty file for ``sqlite3.connect`` if there is none; SQLite's other files get its
    permissions.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def prepare(
    database: sqlite3.Connection, *, application: int, version: int, statements: Sequence[str]
) -> None:
    """Create the tables of an empty database, or check that it has them.

    :param application: number in the file's header that identifies the program.
    :param version: of the form of the tables.
    :param statements: SQL that creates the tables; each must be harmless if another process was
        first.
    :raises sqlite3.DatabaseError: if it is a database of another program or version.
    """
    (application_id,), (tables,) = (
        database.execute(text).fetchone()
        for text in ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
    )
    if tables and application_id != application:
        raise sqlite3.DatabaseError("it is a database of another program")
    if tables:
        (form,) = database.execute("PRAGMA user_version").fetchone()
        if form != version:
            raise sqlite3.DatabaseError(f"it has format {form}, this version writes {version}")
        return
    database.execute("BEGIN IMMEDIATE")
    for statement in (
        *statements,
        f"PRAGMA application_id = {application}",
        f"PRAGMA user_version = {version}",
    ):
        database.execute(statement)
    database.execute("COMMIT")
