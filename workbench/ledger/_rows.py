"""Rows of a ledger's tables, as the objects that ``Ledger`` and ``BudgetStatus`` use."""

from __future__ import annotations

import dataclasses
import getpass
import json
import platform
import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from workbench.ledger._errors import DamageError
from workbench.ledger.budget import CapError
from workbench.ledger.entries import OVERRIDE, Entry, Spend
from workbench.ledger.file import digest_of, now
from workbench.ledger.renyi_filter import Cap
from workbench.privacy.guarantee import Guarantee

__all__ = [
    "Known",
    "enter",
    "entries",
    "number_of",
    "number_of_fit",
    "rule_of",
    "set_cap",
    "spends",
    "user",
]


class Known(NamedTuple):
    """A data set as one ledger knows it.

    :param key: of the ledger. :param token: as of ``DatasetId``.
    """

    name: str
    unit: str
    fingerprint: str
    key: bytes
    token: str = ""


def enter(database: sqlite3.Connection, identity: Known) -> int:
    """The number of a data set. A new one is entered, and so is a new name of one that
    is entered.
    """
    number = number_of(database, identity)
    if number is None:
        number = database.execute(
            "INSERT INTO datasets (name, fingerprint, unit, time, key) VALUES (?, ?, ?, ?, ?)",
            (identity.name, identity.fingerprint, identity.unit, now(), digest_of(identity.key)),
        ).lastrowid
        assert number is not None
    elif identity.name not in _names_of(database, number):
        database.execute("INSERT INTO aliases VALUES (?, ?, ?)", (number, identity.name, now()))
    return number


def _names_of(database: sqlite3.Connection, number: int) -> set[str]:
    """All names of one data set."""
    rows = database.execute(
        "SELECT name FROM datasets WHERE number = :number "
        "UNION SELECT name FROM aliases NOT INDEXED WHERE dataset = :number",
        {"number": number},
    )
    return {row["name"] for row in rows}


def rule_of(check: Callable[[], str], over_cap: str | None) -> str:
    """The rule that allows fits: what ``check`` returns, or ``OVERRIDE`` if it raises and
    ``over_cap`` gives a reason.
    """
    try:
        return check()
    except CapError:
        if over_cap is None:
            raise
        return OVERRIDE


def number_of(database: sqlite3.Connection, identity: Known) -> int | None:
    """The number of a data set, None if it is not entered.

    Reads the table and not its index, because a damaged index could make one data set two.
    """
    rows = database.execute("SELECT fingerprint, number FROM datasets NOT INDEXED")
    numbers = {row["fingerprint"]: int(row["number"]) for row in rows}
    return numbers.get(identity.fingerprint)


def number_of_fit(database: sqlite3.Connection, key: str) -> int | None:
    """The number of a fit, None if it is not there. Found by the index and proved by the table."""
    indexed = database.execute("SELECT number FROM spends WHERE key = ?", (key,)).fetchone()
    if indexed is None:
        return None
    row = database.execute(
        "SELECT key FROM spends WHERE number = ?", (indexed["number"],)
    ).fetchone()
    if row is None or row["key"] != key:
        raise DamageError("damaged", "the index of fits is wrong")
    return int(indexed["number"])


def entries(database: sqlite3.Connection) -> dict[int, Entry]:
    """All data sets by number, in ascending order."""
    entries = {
        row["number"]: Entry(
            **{name: row[name] for name in ("number", "name", "fingerprint", "unit", "time", "key")}
        )
        for row in database.execute("SELECT * FROM datasets ORDER BY number")
    }
    for row in database.execute("SELECT * FROM aliases ORDER BY dataset, rowid"):
        entry = entries[row["dataset"]]
        entries[row["dataset"]] = dataclasses.replace(entry, aliases=(*entry.aliases, row["name"]))
    for row in database.execute("SELECT * FROM caps ORDER BY number"):
        cap = None
        if row["epsilon"] is not None:
            cap = Cap(row["epsilon"], row["delta"], row["relation"], row["filter_order"])
        entries[row["dataset"]] = dataclasses.replace(
            entries[row["dataset"]], cap=cap, why=row["why"], after=row["after"]
        )
    return entries


def set_cap(database: sqlite3.Connection, number: int, cap: Cap | None, why: str) -> None:
    """Give a data set a cap, None for none, with the reason."""
    values = (None,) * 4 if cap is None else (cap.epsilon, cap.delta, cap.relation, cap.order)
    database.execute(
        "INSERT INTO caps (dataset, epsilon, delta, relation, filter_order, after, why, who, time) "
        "VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) FROM spends), ?, ?, ?)",
        (number, *values, why, user(), now()),
    )


def spends(database: sqlite3.Connection) -> list[Spend]:
    """All fits, in the order in which they were reserved."""
    fits = []
    for row in database.execute("SELECT * FROM spends ORDER BY number"):
        fit = Guarantee.from_dict(json.loads(row["guarantee"]))
        values = {**dict(row), "guarantee": fit}
        del values["event"]  # for other programs; here it follows from the guarantee
        fits.append(Spend(**values))
    return fits


def user() -> str:
    """NAME@MACHINE of the user of this process."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"{name}@{platform.node()}"
