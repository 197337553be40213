"""A store knows private records by its own key: another user, or one who lost theirs, does not pay
twice.
"""

import contextlib
import hashlib
import sqlite3

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data import Dataset
from workbench.sweeps import sweeping

PLAN = {"epsilons": [1.0, 2.0], "seeds": 2, "iterations": 5, "delta": 1e-3, "ledger": False}


def records(name="clinic", shift=0.0):
    x = np.random.default_rng(0).uniform(-1, 1, (40, 2)).astype(np.float32) + np.float32(shift)
    y = (x[:, 0] > shift).astype(np.int32)
    return Dataset(
        name,
        "Patients.",
        (x[:30], y[:30]),
        (x[30:], y[30:]),
        arrays=("x", "y"),
        classes=("no", "yes"),
    )


@pytest.fixture
def users(tmp_path, monkeypatch):
    """Become one of several users, each with a key of their own."""
    return lambda name: monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / name))


def prepared(store, data=None, **changes):
    return sweeping.prepare("logistic", data or records(), store=store, **{**PLAN, **changes})


def fill(store, data=None):
    """Rows of finished fits, without the time that the fits would take."""
    plan = prepared(store, data)
    done = {"message": "", "status": "done", "metrics": {}, "parameters": None, "seconds": 0.0}
    done |= {"intervals": {}, "spend": ""}
    plan.store.add(
        [{**plan._facts[run.key], **done, "attempts": 1, "finished": ""} for run in plan.runs]
    )
    plan.store.close()
    return plan.total


def by_sqlite(file, *statements):
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        return [database.execute(*statement).fetchall() for statement in statements]


@pytest.mark.thorough
def test_another_user_finds_the_fits_and_their_cost(users, tmp_path):
    store = tmp_path / "s.sqlite"
    users("A")
    spent = fill(store)
    users("B")
    again = prepared(store)
    assert (again.runs, again.total) == ([], spent)
    (tmp_path / "A" / "fingerprint.key").unlink(missing_ok=True)
    users("A")
    assert prepared(store).runs == []
    key = (tmp_path / "s.sqlite.key").read_bytes()
    assert by_sqlite(store, ("SELECT value FROM facts",)) == [
        [(hashlib.blake2b(key, digest_size=16, person=b"ledger key").hexdigest(),)]
    ]
    assert key.hex() not in store.read_bytes().hex()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda key: key.unlink(), "is missing"),
        (lambda key: key.write_bytes(bytes(32)), "belongs to another store"),
        (lambda key: key.write_bytes(b"short"), "holds 5 bytes instead of 32"),
    ],
)
def test_without_its_key_a_store_is_refused_for_private_records_alone(tmp_path, harm, says):
    store = tmp_path / "s.sqlite"
    fill(store)
    harm(tmp_path / "s.sqlite.key")
    with pytest.raises(
        ArgumentError, match=f"^store=.*s.sqlite.key beside it, .*{says}.*name another store"
    ) as error:
        prepared(store)
    assert "\n" not in str(error.value)
    sweeping.prepare("logistic", "breast_cancer", store=store, **{**PLAN, "seeds": [0]})


def test_a_store_of_public_records_has_no_key_and_takes_private_ones_later(tmp_path):
    store = tmp_path / "s.sqlite"
    fill(store, wb.data.load("breast_cancer"))
    assert not (tmp_path / "s.sqlite.key").exists()
    assert len(prepared(store).runs) == 4


@pytest.mark.parametrize(
    "harm", [lambda store: store.unlink(), lambda store: store.write_bytes(b"")]
)
def test_a_store_that_is_gone_or_empty_is_not_taken_for_a_new_one(tmp_path, harm):
    store = tmp_path / "s.sqlite"
    fill(store)
    harm(store)
    with pytest.raises(
        ArgumentError, match=r"gone or empty, but s\.sqlite\.key beside it.*restore a copy"
    ):
        prepared(store)


@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_store_of_another_format_is_refused(tmp_path, number):
    store = tmp_path / "s.sqlite"
    fill(store)
    by_sqlite(store, (f"PRAGMA user_version = {number}",))
    with pytest.raises(ArgumentError, match=f"it has format {number}, this version writes 3"):
        prepared(store)
