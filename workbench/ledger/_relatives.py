"""Which data sets count together: those that somebody related, those of one token, and, under a
cap, those of one name.

What a data set is called says who is in it, as far as anybody said. Under a cap that is taken at
its word: a bootstrap sample, a doubled table or a part of the records under the same name counts,
until somebody separates it with a reason. Without a cap nothing can be refused, so data sets of one
name are reported instead.
"""

from __future__ import annotations

import functools
import sqlite3
import unicodedata
from collections.abc import Mapping

from workbench.ledger._rows import Known, user
from workbench.ledger.entries import CLONES, NAMESAKES, NOT_COMPARED, RELATED, Entry
from workbench.ledger.file import digest_of, fact, now, set_fact

__all__ = ["counted_with", "note_token", "relate", "separated_from"]

# begins the name of a fact: the numbers of the data sets that these fits were on
_TOKEN = "fits with token "

_Groups = list[tuple[str, set[int]]]  # (why, numbers) of data sets of which each counts with each


def note_token(database: sqlite3.Connection, token: str, number: int) -> None:
    """Count a data set together with those of all fits that have the same token."""
    members = {*map(int, (fact(database, _TOKEN + token) or "").split()), number}
    set_fact(database, _TOKEN + token, " ".join(map(str, sorted(members))))


def counted_with(
    database: sqlite3.Connection,
    entries: Mapping[int, Entry],
    number: int | None,
    identity: Known | None,
) -> dict[int, str]:
    """{number: why} of the data sets that count together with one, and of itself.

    A pair that somebody separated is no link, but a third data set may still connect the two.

    :param number: of the data set, None if it is not entered.
    :param identity: its present name and token, which its rows may lack; None for what its rows
        say.
    """
    this = 0 if number is None else number  # data sets are numbered from 1
    related, separated = _pairs(database)
    tokens, names = _tokens(database), _names(entries)
    own_key = "" if identity is None else digest_of(identity.key)
    if number is not None:
        own_key = entries[number].key
    if identity is not None:
        names.setdefault(_alike(identity.name), set()).add(this)
        if identity.token:
            tokens.setdefault(identity.token, set()).add(this)
    not_compared = {
        neighbour: NOT_COMPARED
        for neighbour, entry in entries.items()
        if neighbour not in separated.get(this, ()) and not entry.key == own_key != ""
    }

    def connected(groups: _Groups) -> dict[int, str]:
        reached = {**not_compared, **_connected(this, related, separated, groups)}
        return {neighbour: why for neighbour, why in reached.items() if neighbour}

    clones = [(CLONES, members) for members in tokens.values()]
    counted = connected([*clones, *((NAMESAKES, members) for members in names.values())])
    return (
        counted
        if any(entries[neighbour].cap is not None for neighbour in counted)
        else connected(clones)
    )


def _connected(
    start: int, related: Mapping[int, set[int]], separated: Mapping[int, set[int]], groups: _Groups
) -> dict[int, str]:
    """{number: why} of ``start`` and of all that are connected with it."""
    reached, waiting = {start: ""}, [start]
    unreached: dict[int, list[tuple[str, set[int]]]] = {}
    for why, members in groups:
        unvisited = set(members)  # one set for all members of the group
        for member in members:
            unreached.setdefault(member, []).append((why, unvisited))
    while waiting:
        number = waiting.pop()
        near = [(RELATED, related.get(number, set()))]
        for why, unvisited in unreached.get(number, ()):
            neighbours = unvisited - separated.get(number, set())
            unvisited -= neighbours
            near.append((why, neighbours))
        for why, neighbours in near:
            fresh = [neighbour for neighbour in neighbours if neighbour not in reached]
            reached.update(dict.fromkeys(fresh, why))
            waiting += fresh
    return reached


def _pairs(database: sqlite3.Connection) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """({number: those that somebody related to it}, {number: those that somebody separated from
    it}).
    """
    pairs: tuple[dict[int, set[int]], dict[int, set[int]]] = {}, {}
    for row in database.execute("SELECT one, other, counted FROM relatives"):
        neighbours = pairs[0 if row["counted"] else 1]
        neighbours.setdefault(row["one"], set()).add(row["other"])
        neighbours.setdefault(row["other"], set()).add(row["one"])
    return pairs


def _tokens(database: sqlite3.Connection) -> dict[str, set[int]]:
    """{token: numbers of the data sets of all fits with it}."""
    rows = database.execute(
        "SELECT name, value FROM facts NOT INDEXED WHERE instr(name, ?) = 1", (_TOKEN,)
    )
    return {row["name"].removeprefix(_TOKEN): set(map(int, row["value"].split())) for row in rows}


def _names(entries: Mapping[int, Entry]) -> dict[str, set[int]]:
    """{name: numbers of the data sets that have it}, names as ``_alike`` writes them."""
    names: dict[str, set[int]] = {}
    for number, entry in entries.items():
        for name in entry.names:
            names.setdefault(_alike(name), set()).add(number)
    return names


@functools.lru_cache(4096)
def _alike(name: str) -> str:
    """The same text for names that differ in capitals or in the width of letters alone."""
    return unicodedata.normalize("NFKC", name).casefold()


def separated_from(database: sqlite3.Connection, number: int | None) -> set[int]:
    """Numbers of the data sets that somebody declared to share no records with this one."""
    rows = database.execute(
        "SELECT one, other FROM relatives WHERE NOT counted AND ? IN (one, other)", (number,)
    )
    return {neighbour for row in rows for neighbour in row}


def relate(database: sqlite3.Connection, first: int, second: int, counted: int, why: str) -> None:
    """Count two data sets together (1) or separately (0) from now on, with the reason. :param
    first: the smaller number.
    """
    database.execute(
        "INSERT INTO relatives VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (one, other) DO UPDATE SET "
        "counted = excluded.counted, why = excluded.why, who = excluded.who, time = excluded.time",
        (first, second, counted, why, user(), now()),
    )
