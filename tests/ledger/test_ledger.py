"""The ledger's file: no spend is lost or counted twice, whatever ends a process; caps hold between
processes.
"""

import contextlib
import errno
import json
import os
import pathlib
import re
import sqlite3
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

import workbench as wb
from tests.privacy.promises import promise
from workbench import ArgumentError
from workbench.ledger import file, ledger
from workbench.ledger._errors import ledger_error
from workbench.ledger.composition import total
from workbench.ledger.entries import RELATED
from workbench.ledger.ledger import (
    CapError,
    DatasetId,
    Ledger,
    LedgerError,
    LedgerFileError,
    LostLedgerError,
)
from workbench.ledger.renyi_filter import Cap
from workbench.ledger.reservation import LedgerWarning, Reservation, id_of
from workbench.privacy import events


def records(name="clinic", fingerprint=None, unit="patient"):
    """A data set that is no other's relative."""
    return DatasetId(name, unit, lambda key: fingerprint or f"{name:0<32}")


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "below" / "ledger.sqlite")


def end_of_process(key, book):
    """What is left of a reservation whose process is gone."""
    with contextlib.closing(sqlite3.connect(book.path)) as database, database:
        database.execute("UPDATE spends SET owner = 'gone' WHERE key = ?", (key,))


# --- spends ---------------------------------------------------------------------------------------


def test_a_fit_is_reserved_whole_and_settles_to_what_it_took(book):
    (key,) = book.reserve(records(), [promise()], model="logistic", plan="p", seed=3)
    reserved = book.spend(key)
    assert (reserved.status, reserved.counted, reserved.reached, reserved.rule) == (
        "reserved",
        500,
        0,
        "no cap",
    )
    assert book.budget_status("clinic").total.epsilon >= 1.0
    book.mark([key], 120)
    book.settle(key, 100)
    spec = book.spend(key)
    assert (spec.status, spec.counted, spec.reached, spec.seed, spec.model) == (
        "settled",
        100,
        120,
        3,
        "logistic",
    )
    # an output may have decided when to stop
    assert book.budget_status("clinic").total.epsilon >= 1.0
    assert (
        "1 fit ended early. Totals count all planned steps"
        in book.budget_status("clinic").statement()
    )
    assert spec.began <= spec.ended
    assert spec.version == wb.__version__


def test_what_nobody_saw_spends_nothing(book):
    (key,) = book.reserve(records(), [promise()], model="logistic")
    book.settle(key, 0)
    assert book.budget_status("clinic").total is None
    assert (
        book.budget_status("clinic").statement()
        == "According to this ledger, nothing was spent on these records."
    )


def test_nothing_is_made_by_looking(book):
    assert book.datasets() == book.spends() == []
    assert book.budget_status(records()).total is None
    assert book.export()["spends"] == []
    assert book.recover() == []
    assert not book.path.exists()


def test_fits_of_one_reservation_are_entered_all_or_none(book):
    book.set_cap(book.add(records()).number, 1.5, 1e-5, why="a test")
    with pytest.raises(CapError):
        book.reserve(records(), [promise(1.0)] * 3, model="logistic")
    assert book.spends() == []
    assert len(book.reserve(records(), [promise(0.3)] * 3, model="logistic")) == 3


def test_events_are_dp_accountings(book):
    fits = [promise(sampler=sampler) for sampler in ("poisson", "without_replacement", "shuffle")]
    for key, fit in zip(book.reserve(records(), fits, model="logistic"), fits, strict=True):
        event = events.from_json(json.loads(json.dumps(book.spend(key).event)))
        assert event == events.event_of(fit.accounted())
    event = book.spends()[0].event
    assert (event["class"], event["count"]) == ("SelfComposedDpEvent", 500)
    assert event["event"]["class"] == "PoissonSampledDpEvent"


def test_a_ledger_without_the_fit_says_so(book, tmp_path):
    (key,) = book.reserve(records(), [promise()], model="logistic")
    other = Ledger(tmp_path / "other.sqlite")
    for use in (
        lambda: other.settle(key, 5),
        lambda: other.mark([key], 5),
        lambda: other.resume(key),
    ):
        with pytest.raises(LedgerError, match=key):
            use()


def test_an_older_copy_that_is_put_back_counts_no_less_than_what_a_fit_says(book):
    """Of before the fit was resumed: it has ended there."""
    (key,) = book.reserve(records(), [promise()], model="logistic")
    book.mark([key], 100)
    book.settle(key, 100)
    with contextlib.closing(sqlite3.connect(book.path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = book.path.read_bytes()
    book.resume(key)
    book.mark([key], 300)
    book.path.write_bytes(older)
    for end in ("-wal", "-shm"):
        book.path.with_name(f"{book.path.name}{end}").unlink(missing_ok=True)
    with pytest.raises(LedgerFileError, match="no further step is taken"):
        book.mark([key], 400)
    for taken, counted in ((300, 300), (200, 300), (None, 300), (10**6, 500)):
        book.settle(key, taken)
        assert book.spends()[0].counted == counted


def test_a_fit_that_an_older_copy_lacks_is_said_to_be_missing_there(book, tmp_path):
    book.add(records())
    with contextlib.closing(sqlite3.connect(book.path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = book.path.read_bytes()
    reservation = Reservation(book, records, lambda: [promise()], model="logistic")
    reservation.reserve()
    reservation.mark(100)
    book.path.write_bytes(older)
    for end in ("-wal", "-shm"):
        book.path.with_name(f"{book.path.name}{end}").unlink(missing_ok=True)
    with pytest.raises(LedgerFileError, match="no further step is taken"):
        reservation.mark(200)
    words = (
        r"took 100 steps.*What the fit spent \(epsilon .*, delta .*\) is not counted there: "
        r"put the newest copy back"
    )
    with pytest.warns(LedgerWarning, match=words):
        assert "took 100 steps" in reservation.settle(100)


@pytest.mark.parametrize("dataset", [1, "1", "clinic", "clinic0000"])
def test_data_sets_go_by_number_name_or_fingerprint(book, dataset):
    book.add(records())
    book.add(records("ward"))
    assert book.entry(dataset).name == "clinic"


def test_a_data_set_that_is_not_one_is_told_with_those_that_are(book):
    book.add(records())
    book.add(records("clinic", "f" * 32))
    with pytest.raises(
        ArgumentError, match=r"dataset='ward': is not in the ledger: 1 \(clinic\), 2 \(clinic\)"
    ):
        book.entry("ward")
    with pytest.raises(ArgumentError, match=r"dataset='clinic': is the name of several"):
        book.entry("clinic")


# --- caps -----------------------------------------------------------------------------------------


def capped(book, epsilon=3.0, **options):
    return book.set_cap(book.add(records()).number, epsilon, 1e-5, **{"why": "a test", **options})


def test_a_fit_above_the_cap_is_refused_with_what_would_fit(book):
    capped(book)
    for _ in range(book.budget_status("clinic").how_many_more(promise())):
        book.reserve(records(), [promise()], model="logistic")
    with pytest.raises(
        CapError,
        match=r"^epsilon=1.0: this fit would raise .* The same with epsilon=(0\.\d+) would fit",
    ) as caught:
        book.reserve(records(), [promise()], model="logistic")
    assert caught.value.status.used() < 1
    fits = float(str(caught.value).partition("epsilon=0.")[2].split()[0].join(["0.", ""]))
    book.reserve(records(), [promise(fits)], model="logistic")


def test_going_over_a_cap_is_recorded_with_the_reason(book):
    capped(book, 0.5)
    with pytest.raises(ArgumentError, match="over_cap=' ': must say why"):
        book.reserve(records(), [promise()], model="logistic", over_cap=" ")
    (key,) = book.reserve(records(), [promise()], model="logistic", over_cap="the board agreed")
    assert (book.spend(key).rule, book.spend(key).why) == ("override", "the board agreed")
    assert (
        "went over a cap on purpose: 'the board agreed'" in book.budget_status("clinic").statement()
    )
    assert "in any case" not in book.budget_status("clinic").statement()
    with pytest.raises(CapError, match="Nothing like it would fit"):
        book.reserve(records(), [promise()], model="logistic")


def test_an_override_that_is_not_needed_is_none(book):
    capped(book)
    (key,) = book.reserve(records(), [promise(0.2)], model="logistic", over_cap="to be sure")
    assert (book.spend(key).rule, book.spend(key).why) == ("filter", "")


def test_a_plan_that_used_the_whole_cap_stays_whole_however_it_ended(book):
    """Or else a stop decided by its results would allow another fit."""
    capped(book, 1.0)
    (key,) = book.reserve(records(), [promise(1.0)], model="logistic")
    assert book.spend(key).rule == "plan"
    book.settle(key, 5)
    with pytest.raises(CapError):
        book.reserve(records(), [promise(0.9)], model="logistic")


def stopped(book, many, steps=100):
    """Fits that end after ``steps`` of 500 steps, one after the other."""
    for _ in range(many):
        (key,) = book.reserve(records(), [promise(1.0)], model="logistic")
        book.settle(key, steps)


def test_a_cap_that_runs_out_of_delta_says_so_and_what_helps(book):
    """Many fits of a small epsilon: each costs a little delta, for minibatches that overflow."""
    fit = promise(0.005)
    book.set_cap(book.add(records()).number, 100.0, 1e-5, why="plenty")
    many = book.budget_status("clinic").how_many_more(fit)
    book.reserve(records(), [fit] * many, model="logistic")
    status = book.budget_status("clinic")
    assert status.total.epsilon < 2
    short = (
        r"It runs short of delta \(9\d % of .* used\), not of epsilon \(\d %\)\. Fits with a "
        r"smaller delta"
    )
    for refused in ([fit], [promise(0.001)] * 2):
        with pytest.raises(CapError, match=f"of which 9. % is used. {short}"):
            book.reserve(records(), refused, model="logistic")
    assert any(re.match(f"Cap of 'clinic': {short}", line) for line in status.cautions())
    helps = promise(0.005, delta=1e-8)
    book.reserve(records(), [helps], model="logistic")
    book.set_cap("clinic", 100.0, 2e-5, why="delta ran out")
    book.reserve(records(), [fit], model="logistic")


def test_a_cap_that_runs_out_of_epsilon_says_nothing_of_delta(book):
    capped(book, 2.0)
    book.reserve(
        records(),
        [promise(1.0)] * book.budget_status("clinic").how_many_more(promise(1.0)),
        model="logistic",
    )
    with pytest.raises(CapError) as caught:
        book.reserve(records(), [promise(1.0)], model="logistic")
    assert "of delta" not in str(caught.value)
    assert "of delta" not in book.budget_status("clinic").statement()


def test_a_stop_lowers_what_a_cap_counts_and_no_total(book):
    """A total of the steps taken is no bound if a look at the outputs decided when to stop."""
    stopped(book, 3)
    three = book.budget_status("clinic").total
    whole = total([promise(1.0)] * 3)
    assert (three.epsilon, three.delta) == (whole.epsilon, whole.delta)
    capped(book, 3.0)
    status = book.budget_status("clinic")
    assert status.used() < 3 * status.entry.cap.used([promise(1.0)]).most / 3


def test_where_a_cap_was_kept_from_the_first_fit_on_its_figure_is_the_total_if_that_is_less(book):
    """The filter holds for any stops, so more fits may run than their plans would have allowed
    together.
    """
    capped(book, 1.5)
    stopped(book, 4)
    status = book.budget_status("clinic")
    assert {spend.rule for spend in status.spends} == {"filter"}
    assert total(status.parts).epsilon > 1.5
    assert (status.total.epsilon, status.total.delta, status.total.method) == (
        1.5,
        1e-5,
        "Renyi filter",
    )
    assert (
        "All 4 fits together, on the same records, satisfy (epsilon = 1.5, delta = 1e-05)"
        in status.statement()
    )
    assert "The cap holds for others too, and however stops were decided." in status.statement()
    # and not where somebody went over it
    book.reserve(records(), [promise(3.0)], model="logistic", over_cap="asked for")
    assert book.budget_status("clinic").total.epsilon > 3


@pytest.mark.parametrize("change", ["cap", "relative"])
def test_a_cap_that_was_not_there_for_all_fits_is_no_total(book, change):
    capped(book, 1.5)
    stopped(book, 4)
    if change == "cap":
        book.set_cap("clinic", 1.6, 1e-5, why="a test")
    else:
        book.reserve(records("ward"), [promise(0.1)], model="logistic")
        book.relate("clinic", "ward", "the same people")
    assert book.budget_status("clinic").total.method == "pld"
    assert book.budget_status("clinic").total.epsilon > 1.6


def test_a_cap_that_a_later_relation_broke_is_not_said_to_hold(book):
    capped(book, 1.5)
    stopped(book, 2)
    book.reserve(records("ward"), [promise(1.4)], model="logistic")
    assert "The cap holds" in book.budget_status("clinic").statement()
    book.relate("clinic", "ward", "the same people")
    assert "The cap holds" not in book.budget_status("clinic").statement()


def test_a_cap_of_another_relation_refuses_what_it_cannot_count(book):
    capped(book)
    with pytest.raises(CapError, match=r"^relation='replace_one'"):
        book.reserve(records(), [promise(0.1, "shuffle")], model="logistic")
    book.reserve(records(), [promise(0.1, "shuffle")], model="logistic", over_cap="asked for")
    assert book.budget_status("clinic").used() == np.inf
    assert book.budget_status("clinic").how_many_more(promise(0.1)) == 0


def test_totals_of_relations_are_said_apart(book):
    book.reserve(records(), [promise(0.5), promise(0.5, "shuffle")], model="logistic")
    standing = book.budget_status("clinic")
    assert [total.relation for total in standing.totals] == ["add_or_remove_one", "replace_one"]
    assert standing.total.relation == "replace_one"
    assert standing.total.epsilon > max(total.epsilon for total in standing.totals)
    assert standing.statement().count("satisf") == 3


def test_a_cap_after_the_first_fit_says_when_it_holds(book):
    book.reserve(records(), [promise(0.5)], model="logistic")
    book.set_cap("clinic", 3.0, 1e-5, why="a test")
    assert "was set or changed after fits had begun" in book.budget_status("clinic").statement()
    book.reserve(records(), [promise(0.5)], model="logistic")
    assert "The cap holds for others too" in book.budget_status("clinic").statement()


def test_the_newest_cap_counts_and_can_be_taken_away(book):
    capped(book, 1.0, why="first")
    book.set_cap("clinic", 2.0, 1e-6, "replace_one", 9, why="second")
    entry = book.entry("clinic")
    assert (entry.cap.epsilon, entry.cap.delta, entry.cap.relation, entry.cap.order, entry.why) == (
        2.0,
        1e-6,
        "replace_one",
        9,
        "second",
    )
    with pytest.raises(ArgumentError, match="why="):
        book.remove_cap("clinic", " ")
    assert book.remove_cap("clinic", "the study is over").cap is None
    assert len(book.export()["caps"]) == 3


def test_one_seed_for_different_fits_promises_nothing(book):
    book.reserve(records(), [promise(0.5)], model="logistic", plan="a", seed=1)
    # the very same release
    book.reserve(records(), [promise(0.5)], model="logistic", plan="a", seed=1)
    assert book.budget_status("clinic").total.epsilon < 2
    book.reserve(records(), [promise(0.5)], model="logistic", plan="b", seed=1)
    assert book.budget_status("clinic").total.epsilon == np.inf
    assert (
        "from the same seed. Together they have no guarantee."
        in book.budget_status("clinic").statement()
    )
    book.set_cap("clinic", 50.0, 1e-5, why="a test")
    with pytest.raises(CapError, match=r"^seed=1: gave the noise of an earlier fit"):
        book.reserve(records(), [promise(0.5)], model="logistic", plan="c", seed=1)


# --- relatives ------------------------------------------------------------------------------------


def test_relatives_share_what_is_spent(book):
    for name in ("clinic", "ward"):
        book.reserve(records(name), [promise()], model="logistic")
    assert book.budget_status("ward").total.fits == 1
    book.relate("clinic", "ward", "the same patients")
    assert [(entry.name, why) for entry, why in book.budget_status("ward").relatives] == [
        ("clinic", RELATED)
    ]
    for name in ("clinic", "ward"):
        assert book.budget_status(name).total.fits == 2
    book.set_cap("clinic", 1.2, 1e-5, why="a test")
    with pytest.raises(CapError, match="'clinic'"):  # a relative's cap counts
        book.reserve(records("ward"), [promise()], model="logistic")
    book.separate("ward", "clinic", "other people")
    assert book.budget_status("clinic").total.fits == 1
    with pytest.raises(ArgumentError, match="is the same data set"):
        book.separate("clinic", "clinic", "itself")


def test_namesakes_that_are_counted_apart_are_named_until_it_is_said_what_they_are(book):
    first, second = records(), records(fingerprint="f" * 32)
    book.reserve(first, [promise()], model="logistic")
    assert (
        "Data set 1 is also called 'clinic' and is counted separately"
        in book.budget_status(second).statement()
    )
    book.reserve(second, [promise()], model="logistic")
    assert "Data set 2 is also called 'clinic'" in book.budget_status(1).statement()
    assert book.budget_status(1).total.fits == 1
    book.relate(1, 2, "the same patients, a year later")
    assert book.budget_status(1).total.fits == 2
    assert "called" not in book.budget_status(1).statement()
    book.separate(1, 2, "two hospitals")
    assert book.budget_status(2).total.fits == 1
    assert "called" not in book.budget_status(2).statement()


# --- crashes and recovery -------------------------------------------------------------------------


def test_a_reservation_stands_until_it_is_recovered(book):
    keys = book.reserve(records(), [promise(), promise()], model="logistic")
    book.mark(keys[:1], 120)
    assert book.recover() == []  # this process is there
    for key in keys:
        end_of_process(key, book)
    standing = book.budget_status("clinic")
    assert standing.interrupted == (1, 2)
    assert "2 fits were interrupted" in standing.statement()
    assert [part.steps for part in standing.parts] == [500, 500]
    assert [spend.taken for spend in book.recover()] == [120, 0]
    assert [spend.status for spend in book.spends()] == ["recovered"] * 2
    assert book.recover() == []
    with pytest.raises(
        LedgerError, match="no longer has a reservation"
    ):  # whoever is there after all must go no further
        book.mark(keys[:1], 300)


def test_a_fit_that_goes_on_is_counted_once(book):
    capped(book, 1.3)
    (key,) = book.reserve(records(), [promise()], model="logistic")
    book.settle(key, 200)
    book.resume(key)
    assert (book.spend(key).status, book.spend(key).counted) == ("reserved", 500)
    book.settle(key, 500)
    assert [spend.counted for spend in book.spends()] == [500]


def test_what_may_have_been_seen_before_counts_however_a_fit_goes_on(book):
    (key,) = book.reserve(records(), [promise()], model="logistic")
    book.mark([key], 300)
    with pytest.raises(LedgerError, match="running in this process"):
        book.resume(key)
    end_of_process(key, book)
    book.resume(key)
    book.settle(key, 0)
    assert book.spend(key).counted == 300
    book.resume(key)
    book.settle(key, 310)
    book.resume(key)
    book.settle(key, None)
    assert book.spend(key).counted == 310


def test_the_rest_of_a_fit_needs_room_under_the_cap(book):
    capped(book, 1.4)
    (key,) = book.reserve(records(), [promise()], model="logistic")
    book.settle(key, 50)
    book.reserve(
        records(),
        [promise(0.2)] * book.budget_status("clinic").how_many_more(promise(0.2)),
        model="logistic",
    )
    with pytest.raises(CapError):
        book.resume(key)
    assert book.spend(key).counted == 50
    assert book.resume(key, over_cap="nearly there").number == 1
    assert book.spend(key).rule == "override"


PROLOGUE = """
import sys
from promises import promise
from workbench.ledger.ledger import CapError, Ledger, DatasetId
book = Ledger(sys.argv[1])
clinic = DatasetId("clinic", "patient", lambda key: f"{'clinic':0<32}")
"""


def another_process(script, book):
    """A process that runs ``script`` with the ledger as ``book``."""
    return subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + script, book.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1] / "privacy")},
    )


def test_a_fit_that_runs_elsewhere_is_not_resumed(book):
    script = (
        "print(*book.reserve(clinic, [promise()], model='logistic'), flush=True); sys.stdin.read()"
    )
    with another_process(script, book) as other:
        key = other.stdout.readline().strip()
        with pytest.raises(LedgerError, match="running in another process"):
            book.resume(key)
        assert book.recover() == []
        other.kill()
    assert book.budget_status("clinic").interrupted == (1,)
    assert book.resume(key).key == key


FORKED = """
import os, sys, pathlib
from workbench.ledger import owners
folder = pathlib.Path(sys.argv[1]) / "owners"
here = owners.own(folder)
reader, writer = os.pipe()
child = os.fork()
if not child:
    os.write(writer, owners.own(folder).encode())
    os._exit(0)
os.waitpid(child, 0)
there = os.read(reader, 100).decode()
print(there != here, owners.own(folder) == here, owners.is_alive(folder, here),
      owners.is_alive(folder, there))
"""


def test_a_forked_child_is_a_process_of_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FORKED, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True", "True", "False"]


# --- several processes ----------------------------------------------------------------------------


UNTIL_REFUSED = """
fit = promise(0.3)
print("ready", flush=True)
sys.stdin.readline()
count = 0
try:
    while True:
        (key,) = book.reserve(clinic, [fit], model="logistic")
        book.mark([key])
        book.settle(key, fit.steps)
        count += 1
except CapError:
    print(count, flush=True)
"""


def test_two_kernels_cannot_both_pass_a_cap(book):
    capped(book, 1.5)
    allowed = book.budget_status("clinic").how_many_more(promise(0.3))
    with contextlib.ExitStack() as stack:
        kernels = [stack.enter_context(another_process(UNTIL_REFUSED, book)) for _ in range(2)]
        for kernel in kernels:
            assert kernel.stdout.readline() == "ready\n"
        for kernel in kernels:
            kernel.stdin.write("go\n")
            kernel.stdin.flush()
        counts = [int(kernel.stdout.readline()) for kernel in kernels]
    assert sum(counts) == allowed == len(book.spends())
    assert [spend.number for spend in book.spends()] == list(range(1, allowed + 1))


# --- files that cannot be used --------------------------------------------------------------------


def permissions(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_owner_alone_may_read(book):
    book.reserve(records(), [promise()], model="logistic")
    with contextlib.closing(sqlite3.connect(book.path)) as database:
        database.execute("BEGIN")
        database.execute("SELECT * FROM spends").fetchall()
        beside = sorted(path.name for path in book.path.parent.iterdir() if path.is_file())
        assert beside == [
            "ledger.sqlite",
            "ledger.sqlite-shm",
            "ledger.sqlite-wal",
            "ledger.sqlite.key",
        ]
        for name in beside:
            assert permissions(book.path.with_name(name)) == 0o600
    assert permissions(book.path.parent) == 0o700
    for owner in book.path.with_name("ledger.sqlite.owners").iterdir():
        assert permissions(owner) == 0o600


@pytest.mark.parametrize("damage", ["header", "middle", "cut", "text", "other"])
def test_a_damaged_file_is_refused_and_left_as_it_is(book, damage):
    book.reserve(records(), [promise()] * 40, model="logistic")
    content = bytearray(book.path.read_bytes())
    if damage == "header":
        content[:16] = b"no database here"
    elif damage == "middle":
        content[4096:-4096] = os.urandom(len(content) - 8192)
    elif damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "text":
        content = b"a text, and no database\n"
    book.path.write_bytes(content)
    if damage == "other":
        book.path.unlink()
        with contextlib.closing(sqlite3.connect(book.path)) as database, database:
            database.execute("CREATE TABLE notes (text TEXT)")
    before = book.path.read_bytes()
    with pytest.raises(LedgerFileError) as caught:
        book.reserve(records(), [promise()], model="logistic")
    assert caught.value.code == ("another database" if damage == "other" else "damaged")
    assert isinstance(caught.value, LostLedgerError) == (damage != "other")
    assert "It was left as it is." in str(caught.value)
    assert str(book.path) in str(caught.value)
    assert book.path.read_bytes() == before


@pytest.mark.parametrize("number", [0, 1, 2, 3, 99])
def test_a_ledger_of_another_format_is_refused(book, number):
    book.add(records())
    with contextlib.closing(sqlite3.connect(book.path)) as database:
        database.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(
        LedgerFileError, match=f"has format {number}, and this version writes"
    ) as caught:
        book.datasets()
    assert caught.value.code == "another format"


def refused_by_disk(use, number, code="disk full"):
    """``use`` raises an ``OSError`` of the ledger, which is no ``ArgumentError``, with the error
    number kept.
    """
    with pytest.raises(LedgerError) as caught:
        use()
    error = caught.value
    assert isinstance(error, OSError)
    assert not isinstance(error, ArgumentError)
    assert (error.errno, error.code, error.argument) == (number, code, "ledger")
    assert str(error.path) == error.filename
    assert repr(error.filename) in str(error)


def test_a_full_disk_is_an_error_of_the_system_and_loses_nothing(book, monkeypatch):
    book.reserve(records(), [promise()], model="logistic")
    connect = sqlite3.connect

    def small(*arguments, **options):
        database = connect(*arguments, **options)
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    with monkeypatch.context() as patched:
        patched.setattr(ledger.sqlite3, "connect", small)
        refused_by_disk(
            lambda: book.reserve(records(), [promise()] * 60, model="logistic"), errno.ENOSPC
        )
        assert len(book.spends()) == 1
    book.reserve(records(), [promise()] * 60, model="logistic")
    assert len(book.spends()) == 61


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk full"), (errno.EDQUOT, "disk full"), (errno.EIO, "disk error")],
)
@pytest.mark.parametrize("place", ["ledger", "key", "owner"])
def test_a_file_that_the_disk_does_not_take_leaves_no_part_behind(
    book, monkeypatch, number, code, place
):
    """The first reservation makes the ledger, its key and the lock of this process."""
    call = "open" if place == "owner" else "fsync"
    real, part = (
        getattr(os, call),
        {"ledger": "/.ledger-", "key": "/tmp", "owner": ".owners"}[place],
    )

    def failing(*arguments, **options):
        name = (
            str(arguments[0]) if place == "owner" else os.readlink(f"/proc/self/fd/{arguments[0]}")
        )
        if part in name.removeprefix(str(book.path.parent.parent)):
            raise OSError(number, os.strerror(number), name)
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        refused_by_disk(
            lambda: book.reserve(records(), [promise()], model="logistic"), number, code
        )
    left = [path.name for path in book.path.parent.iterdir() if path.is_file()]
    assert set(left) <= {"ledger.sqlite", "ledger.sqlite.key"}
    book.reserve(records(), [promise()], model="logistic")
    assert len(book.spends()) == 1


def test_a_ledger_that_another_process_locks_is_refused_by_its_code(book, monkeypatch):
    book.add(records())
    monkeypatch.setattr(file, "_BUSY_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(book.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerFileError) as caught:
            book.set_cap(1, 3.0, 1e-5, why="a test")
    assert caught.value.code == "locked"
    book.set_cap(1, 3.0, 1e-5, why="a test")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk error"),
        (sqlite3.SQLITE_FULL, "disk full"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "not writable"),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, "not reachable"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "damaged"),
        (sqlite3.SQLITE_NOTADB, "damaged"),
        (sqlite3.SQLITE_ERROR, "not done"),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, "not done"),
        (sqlite3.SQLITE_MISMATCH, "not done"),
        (sqlite3.SQLITE_TOOBIG, "not done"),
        (sqlite3.SQLITE_NOMEM, "not done"),
        (sqlite3.SQLITE_INTERRUPT, "not done"),
        (None, "not done"),
    ],
)
def test_errors_of_sqlite_are_known_by_their_codes(tmp_path, number, code):
    # words that say nothing
    error = sqlite3.OperationalError("the disk is full, locked and readonly")
    if number is not None:
        error.sqlite_errorcode = number
    found = ledger_error(tmp_path / "ledger.sqlite", error)
    assert found.code == code
    assert ("begin-anew" in str(found)) == isinstance(found, LostLedgerError) == (code == "damaged")


def test_a_value_that_sqlite_does_not_take_is_no_damage(book):
    """Or the advice would be to begin an empty ledger."""
    book.reserve(records(), [promise()], model="logistic")
    before = book.export()
    for use in (
        lambda: book.settle([], 3),
        lambda: book.mark([{}], 3),
        lambda: book.note_result([], "there"),
    ):
        with pytest.raises(
            LedgerFileError, match=r"could not do what was asked .* Nothing was changed\."
        ) as caught:
            use()
        assert caught.value.code == "not done"
        assert not isinstance(caught.value, LostLedgerError)
        assert "begin-anew" not in str(caught.value)
    assert book.export() == before
    with pytest.raises(LedgerError, match="is in order"):
        book.begin_anew()


NO_REASONS = [
    None,
    "",
    " ",
    "\n",
    "a\0b",
    -1,
    0.5,
    True,
    False,
    [],
    {},
    b"why",
    "no",
    "True",
    "\udc80",
]


@pytest.mark.parametrize("why", NO_REASONS)
def test_what_needs_a_reason_is_refused_without_one(book, why):
    book.set_cap(book.add(records()).number, 3.0, 1e-5, why="the board")
    book.add(records("ward"))
    before = book.export()
    uses = [
        lambda: book.set_cap(1, 2.0, 1e-5, why=why),
        lambda: book.remove_cap(1, why),
        lambda: book.separate(1, 2, why),
        lambda: book.relate(1, 2, why),
        lambda: book.keep_cap(records("ward"), Cap.checked(1.0, 1e-5), why),
    ]
    for use in uses:
        with pytest.raises(ArgumentError) as caught:
            use()
        assert (caught.value.argument, caught.value.value) == ("why", why)
        assert str(caught.value).startswith(f"why={why!r}: ")
    if why is not None:
        for use in (
            lambda: book.reserve(records(), [promise()], model="logistic", over_cap=why),
            lambda: book.resume("a fit", over_cap=why),
        ):
            with pytest.raises(ArgumentError) as caught:
                use()
            assert str(caught.value).startswith(f"over_cap={why!r}: ")
    assert book.export() == before


@pytest.mark.parametrize(
    ("argument", "use"),
    [
        ("dataset", lambda book: book.entry(None)),
        ("dataset", lambda book: book.entry(True)),
        ("dataset", lambda book: book.entry(10**5000)),
        ("dataset", lambda book: book.budget_status([1])),
        ("dataset", lambda book: book.set_cap({}, 1.0, 1e-5, why="a test")),
        ("dataset", lambda book: book.reserve("clinic", [promise()], model="logistic")),
        ("dataset", lambda book: book.add(1)),
        ("other", lambda book: book.separate(1, 1, "other people")),
        ("epsilon", lambda book: book.set_cap(1, "3", 1e-5, why="a test")),
        ("order", lambda book: book.set_cap(1, 3.0, 1e-5, order=[], why="a test")),
        ("taken", lambda book: book.settle("a fit", "3")),
        ("taken", lambda book: book.settle("a fit", -1)),
        ("step", lambda book: book.mark(["a fit"], 10**30)),
        ("path", lambda book: book.note_result("a fit", None)),
    ],
)
def test_arguments_of_a_wrong_type_are_named(book, argument, use):
    book.add(records())
    with pytest.raises(ArgumentError) as caught:
        use(book)
    assert caught.value.argument == argument


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        LedgerFileError, match=r"ledger='.*file/ledger.sqlite': .*ledger="
    ) as caught:
        Ledger(tmp_path / "file" / "ledger.sqlite").reserve(
            records(), [promise()], model="logistic"
        )
    assert caught.value.code == "no folder"


def test_a_read_only_file_is_said(book, monkeypatch):
    """As SQLite says it; to the superuser, who runs these tests in a container, no file is
    read-only.
    """
    book.reserve(records(), [promise()], model="logistic")
    connect = sqlite3.connect

    def read_only(path, **options):
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ledger.sqlite3, "connect", read_only)
        with pytest.raises(LedgerFileError) as caught:
            book.reserve(records(), [promise()], model="logistic")
        assert caught.value.code == "not writable"
        assert len(book.spends()) == 1
    assert len(book.spends()) == 1


def test_a_clock_that_jumps_changes_no_order_and_no_spend(book, monkeypatch):
    keys = []
    for moment in (2e9, 0.0, 1e9, -1e9):
        monkeypatch.setattr(
            time,
            "gmtime",
            lambda moment=moment: time.struct_time((1970 + int(moment // 3e7), *[1] * 8)),
        )
        keys += book.reserve(records(), [promise()], model="logistic")
        book.set_cap("clinic", 40.0 + moment / 1e9, 1e-5, why="a test")
        book.settle(keys[-1], 500)
    assert [spend.key for spend in book.spends()] == keys
    assert [spend.status for spend in book.spends()] == ["settled"] * 4
    assert book.entry("clinic").cap.epsilon == 39.0  # the newest
    assert book.recover() == []


def test_everything_is_exported(book, private_data):
    book.reserve(id_of(private_data), [promise()], model="logistic")
    book.add(id_of(private_data)._replace(name="ward"))
    book.set_cap("clinic", 5.0, 1e-5, why="a test")
    exported = json.loads(json.dumps(book.export()))
    tables = ("datasets", "aliases", "relatives", "caps", "spends")
    assert [len(exported[name]) for name in tables] == [1, 1, 0, 1, 1]
    assert exported["spends"][0]["guarantee"]["epsilon"] == 1.0


def test_refusals_of_a_cap_have_codes(book):
    book.reserve(records(), [promise()], model="logistic", seed=1)
    book.set_cap(1, 3.0, 1e-5, why="a test")
    refused = {}
    for name, fits, seed in (
        ("over cap", [promise(4.0)], None),
        ("cap relation", [promise(0.1, "shuffle")], None),
        ("cap seed", [promise(0.1)], 1),
    ):
        with pytest.raises(CapError) as caught:
            book.reserve(records(), fits, model="logistic", seed=seed)
        assert caught.value.status.total.fits == 1
        refused[name] = caught.value
    assert [error.code for error in refused.values()] == list(refused)
    assert [error.argument for error in refused.values()] == ["epsilon", "relation", "seed"]
    assert ["over_cap=" in error.remedy for error in refused.values()] == [True, True, False]
    assert not any("over_cap" in error.expectation for error in refused.values())


def test_a_cap_is_kept_for_records_that_have_none(book):
    def reservation(epsilon=1.0, name="clinic", ledger=book):
        return Reservation(
            ledger, lambda: records(name), lambda: [promise(epsilon)], model="logistic"
        )

    reservation().keep_cap(3.0, 1e-5, "add_or_remove_one", "the board's")
    entry = book.entry("clinic")
    assert (entry.cap.epsilon, entry.cap.delta, entry.why) == (3.0, 1e-5, "the board's")
    assert book.spends() == []
    reservation().keep_cap(3.0, 1e-5, "add_or_remove_one", "again")
    assert book.entry("clinic").why == "the board's"
    for other in (
        (4.0, 1e-5, "add_or_remove_one"),
        (3.0, 1e-6, "add_or_remove_one"),
        (3.0, 1e-5, "replace_one"),
    ):
        with pytest.raises(ArgumentError, match=r"^cap=\(") as caught:
            reservation().keep_cap(*other, "again")
        assert caught.value.code == "another cap"
    for wrong in ((-1.0, 1e-5), (1.0, 2.0), (1e-9, 1e-9)):
        with pytest.raises(ArgumentError, match=r"^cap=\("):
            reservation(ledger=None).keep_cap(*wrong, "add_or_remove_one", "again")
