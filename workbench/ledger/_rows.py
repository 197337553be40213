"""Rows of a ledger's tables, as the objects that ``Ledger`` and ``BudgetStatus`` use."""

from __future__ import annotations

import dataclasses
import getpass
import json
import platform
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workbench.ledger._errors import DamageError
from workbench.ledger._file import digest_of, now
from workbench.ledger.budget import OVERRIDE, CapError, Entry, Spend
from workbench.ledger.renyi_filter import Cap
from workbench.privacy import _events
from workbench.privacy.guarantee import Guarantee

__all__ = [
    "Known", "enter", "entries", "event", "links", "number_of", "number_of_fit", "present", "relatives_of", "rule_of",
    "separated_from", "spends", "user",
]  # fmt: skip


class Known(NamedTuple):
    """A data set as one ledger knows it.

    :param fingerprints: it may have been entered by any of these, and will be entered by the first.
    :param key: of the ledger. :param sketch: None if it is already entered.
    """

    name: str
    unit: str
    fingerprints: tuple[str, ...]
    key: bytes
    sketch: bytes | None


def enter(database: sqlite3.Connection, known: Known) -> int:
    """The number of a data set. A new one is entered, with its relatives."""
    number = number_of(database, known)
    if number is not None:
        return number
    related = relatives_of(database, known)
    number = database.execute(
        "INSERT INTO datasets (name, fingerprint, unit, sketch, time, key) VALUES (?, ?, ?, ?, ?, ?)",
        (known.name, known.fingerprints[0], known.unit, known.sketch, now(), digest_of(known.key)),
    ).lastrowid
    assert number is not None
    for other, how in related.items():
        database.execute("INSERT INTO relatives VALUES (?, ?, ?, 1, '', '', ?)", (other, number, how, now()))
    return number


def rule_of(check: Callable[[], str], over_cap: str | None) -> str:
    """The rule that allows fits: what ``check`` returns, or ``OVERRIDE`` if it raises and ``over_cap`` gives a reason."""
    try:
        return check()
    except CapError:
        if over_cap is None:
            raise
        return OVERRIDE


def number_of(database: sqlite3.Connection, known: Known) -> int | None:
    """The number of a data set, None if it is not entered.

    Reads the table and not its index, because a damaged index could make one data set two.
    """
    rows = database.execute("SELECT fingerprint, number FROM datasets NOT INDEXED")
    numbers = {row["fingerprint"]: row["number"] for row in rows}
    return next((int(numbers[each]) for each in known.fingerprints if each in numbers), None)


def number_of_fit(database: sqlite3.Connection, key: str) -> int | None:
    """The number of a fit, None if it is not there. Found by the index and proved by the table."""
    found = database.execute("SELECT number FROM spends WHERE key = ?", (key,)).fetchone()
    if found is None:
        return None
    row = database.execute("SELECT key FROM spends WHERE number = ?", (found["number"],)).fetchone()
    if row is None or row["key"] != key:
        raise DamageError("damaged", "the index of fits is wrong")
    return int(found["number"])


def relatives_of(database: sqlite3.Connection, known: Known) -> dict[int, str]:
    """{number: how it is known} of the data sets that share records with one that is not entered yet."""
    from workbench.ledger.overlap import overlap

    assert known.sketch is not None
    found = {
        row["number"]: overlap(known.sketch, row["sketch"], known.key)
        for row in database.execute("SELECT number, sketch FROM datasets")
    }
    return {number: shared.how for number, shared in found.items() if shared is not None}


def links(database: sqlite3.Connection) -> dict[int, dict[int, str]]:
    """{number: {number: how it is known}} of data sets that count together."""
    links: dict[int, dict[int, str]] = {}
    for row in database.execute("SELECT one, other, how FROM relatives WHERE counted"):
        links.setdefault(row["one"], {})[row["other"]] = row["how"]
        links.setdefault(row["other"], {})[row["one"]] = row["how"]
    return links


def separated_from(database: sqlite3.Connection, number: int | None) -> set[int]:
    """Numbers of the data sets that somebody declared to share no records with this one."""
    rows = database.execute("SELECT one, other FROM relatives WHERE NOT counted AND ? IN (one, other)", (number,))
    return {other for row in rows for other in row}


def entries(database: sqlite3.Connection) -> dict[int, Entry]:
    """All data sets by number, in ascending order."""
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


def spends(database: sqlite3.Connection) -> list[Spend]:
    """All fits, in the order in which they were reserved."""
    found = []
    for row in database.execute("SELECT * FROM spends ORDER BY number"):
        fit = Guarantee.from_dict(json.loads(row["guarantee"]))
        found.append(Spend(**{**present(dict(row)), "event": event(fit), "guarantee": fit}))
    return found


def present(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table of fits by present names: the file keeps the first name of the column ``status``."""
    return {"status" if name == "state" else name: value for name, value in row.items()}


def event(fit: Guarantee) -> dict[str, Any]:
    """The dp-accounting event of a fit, JSON-ready.

    Computed from the guarantee, because events that early versions wrote have their noise in units of C.
    """
    return _events.to_json(_events.event_of(fit.accounted()))


def user() -> str:
    """NAME@MACHINE of the user of this process."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"{name}@{platform.node()}"
