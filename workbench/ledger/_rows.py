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
from workbench.ledger.budget import CLONES, OVERRIDE, CapError, Entry, Spend
from workbench.ledger.file import digest_of, fact, now, set_fact
from workbench.ledger.renyi_filter import Cap
from workbench.privacy import events
from workbench.privacy.guarantee import Guarantee

__all__ = [
    "Known", "connected", "enter", "entries", "event", "number_of", "number_of_fit", "relate", "relatives_of",
    "rule_of", "separated_from", "set_cap", "spends", "user",
]  # fmt: skip


class Known(NamedTuple):
    """A data set as one ledger knows it.

    :param key: of the ledger. :param sketch: None if it is already entered. :param token: as of ``DatasetId``.
    """

    name: str
    unit: str
    fingerprint: str
    key: bytes
    sketch: bytes | None
    token: str = ""


def enter(database: sqlite3.Connection, known: Known) -> int:
    """The number of a data set. A new one is entered, with its relatives. Its token is noted, if it has one."""
    number = number_of(database, known)
    if number is None:
        related = _overlapping(database, known)
        number = database.execute(
            "INSERT INTO datasets (name, fingerprint, unit, sketch, time, key) VALUES (?, ?, ?, ?, ?, ?)",
            (known.name, known.fingerprint, known.unit, known.sketch, now(), digest_of(known.key)),
        ).lastrowid
        assert number is not None
        for other, how in related.items():
            database.execute("INSERT INTO relatives VALUES (?, ?, ?, 1, '', '', ?)", (other, number, how, now()))
    if known.token:
        members = _members(database, known.token) | {number}
        set_fact(database, _TOKEN + known.token, " ".join(map(str, sorted(members))))
    return number


_TOKEN = "fits with token "  # begins the name of a fact: the numbers of the data sets that these fits were on


def _members(database: sqlite3.Connection, token: str) -> set[int]:
    """Numbers of the data sets of all fits with a token."""
    return set(map(int, (fact(database, _TOKEN + token) or "").split()))


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
    numbers = {row["fingerprint"]: int(row["number"]) for row in rows}
    return numbers.get(known.fingerprint)


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
    """{number: how it is known} of the data sets that count together with one, as far as its rows do not say so yet."""
    clones = dict.fromkeys(_members(database, known.token), CLONES) if known.token else {}
    return {**clones, **_overlapping(database, known)}


def _overlapping(database: sqlite3.Connection, known: Known) -> dict[int, str]:
    """{number: how it is known} of the data sets that share records with one; none if that is entered already."""
    from workbench.ledger.overlap import overlap

    if known.sketch is None:
        return {}
    found = {
        row["number"]: overlap(known.sketch, row["sketch"], known.key)
        for row in database.execute("SELECT number, sketch FROM datasets")
    }
    return {number: shared.how for number, shared in found.items() if shared is not None}


def connected(database: sqlite3.Connection, start: Mapping[int, str]) -> dict[int, str]:
    """{number: how it is known} of ``start`` and of all data sets that count together with these.

    Fits with one token count together, but for pairs of data sets that somebody separated.
    """
    links, found, waiting = _links(database), dict(start), list(start)
    groups = [
        set(map(int, row["value"].split()))
        for row in database.execute("SELECT value FROM facts NOT INDEXED WHERE instr(name, ?) = 1", (_TOKEN,))
    ]
    while waiting:
        number = waiting.pop()
        clones = set().union(*(group for group in groups if number in group)) - found.keys()
        if clones:
            clones -= separated_from(database, number)
        for other, how in {**dict.fromkeys(clones, CLONES), **links.get(number, {})}.items():
            if other not in found:
                found[other] = how
                waiting.append(other)
    return found


def _links(database: sqlite3.Connection) -> dict[int, dict[int, str]]:
    """{number: {number: how it is known}} of data sets that are relatives of each other."""
    links: dict[int, dict[int, str]] = {}
    for row in database.execute("SELECT one, other, how FROM relatives WHERE counted"):
        links.setdefault(row["one"], {})[row["other"]] = row["how"]
        links.setdefault(row["other"], {})[row["one"]] = row["how"]
    return links


def separated_from(database: sqlite3.Connection, number: int | None) -> set[int]:
    """Numbers of the data sets that somebody declared to share no records with this one."""
    rows = database.execute("SELECT one, other FROM relatives WHERE NOT counted AND ? IN (one, other)", (number,))
    return {other for row in rows for other in row}


def relate(database: sqlite3.Connection, first: int, second: int, counted: int, why: str) -> None:
    """Count two data sets together (1) or separately (0) from now on, with the reason. :param first: the smaller number."""
    database.execute(
        "INSERT INTO relatives VALUES (?, ?, 'records', ?, ?, ?, ?) ON CONFLICT (one, other) DO UPDATE SET "
        "counted = excluded.counted, why = excluded.why, who = excluded.who, time = excluded.time",
        (first, second, counted, why, user(), now()),
    )


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
    found = []
    for row in database.execute("SELECT * FROM spends ORDER BY number"):
        fit = Guarantee.from_dict(json.loads(row["guarantee"]))
        found.append(Spend(**{**dict(row), "event": event(fit), "guarantee": fit}))
    return found


def event(fit: Guarantee) -> dict[str, Any]:
    """The dp-accounting event of a fit, JSON-ready."""
    return events.to_json(events.event_of(fit.accounted()))


def user() -> str:
    """NAME@MACHINE of the user of this process."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"{name}@{platform.node()}"
