"""The screens of several owners: three of them and a coordinator in one process."""

import re
import time

import pytest

import workbench as wb
from tests.owners.test_look import a_plan as a_look
from tests.owners.test_rounds import HERE, TABLES, a_plan, a_port, answering, readies
from workbench.ledger.ledger import Ledger

pytestmark = pytest.mark.usefixtures("checked_models")


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Table:
    """A plan, its owners, and a screen of the coordinator. All that traces models is done one
    after the other.
    """

    def __init__(self, folder, **settings):
        self.folder, self.port, self.server = folder, a_port(), ""
        self.server = HERE.format(self.port)
        self.plan = a_plan(**settings)
        self.others = readies(self.plan, folder, TABLES[:2])
        self.keys = sorted(folder.glob("*.key.json"))
        self.screen = wb.widgets.Coordinator(self.plan, self.keys, port=self.port)

    def owner(self):
        book = self.folder / "ledger.sqlite"
        return wb.widgets.Owner(
            self.plan, "Cork", TABLES[2], self.keys, self.server, name="ward", ledger=str(book)
        )

    def listen(self):
        self.screen.start()
        until(lambda: says(self.screen, "Waiting for"))


def says(screen, words):
    return re.search(words, re.sub("<[^>]*>", " ", screen.status.value))


@pytest.fixture
def seats(tmp_path):
    made = Table(tmp_path)
    yield made
    made.screen.close()


def test_three_owners_and_a_coordinator_see_one_fit(seats):
    screen, owner = seats.screen, seats.owner()
    for each in (screen, owner):
        assert says(each, "Ready.")
        assert wb.owners.code(seats.plan, seats.keys) in each.asked.value
        assert "at most 300 together" in each.asked.value
        assert each.end.disabled
    seats.listen()
    assert says(screen, "Waiting for Aarhus, Bern, Cork. *nobody has joined yet")
    assert (screen.begin.disabled, screen.end.disabled, screen.result) == (True, False, None)
    owner.start()
    until(lambda: says(screen, "Waiting for Aarhus, Bern. *Cork joined"))
    assert says(owner, "Waiting. *The ledger is charged once all owners are here, not before")
    with answering(seats.others, seats.server):
        pass
    assert screen.wait(60)
    assert owner.wait(60)
    assert screen.result.status == "done"
    assert says(screen, "Done. *6 of 6 steps")
    assert says(owner, "Done. *Round 6 of 6")
    assert "age" in screen.view.children[4].children[0].value
    for each in (screen, owner):
        assert "epsilon = 8" in each.promise.value
        assert (each.begin.disabled, each.end.disabled) == (True, True)
    assert len(Ledger(seats.folder / "ledger.sqlite").spends()) == 1
    owner.start()  # a plan is answered once
    owner.wait(60)
    assert says(owner, "has answered this plan already")
    owner.close()


def test_nothing_is_charged_where_one_stops_before_all_are_here(seats):
    screen, owner = seats.screen, seats.owner()
    seats.listen()
    owner.start()
    until(lambda: says(screen, "Cork joined"))
    owner.stop()
    assert owner.wait(60)
    assert says(owner, "stopped before the first round: nothing is charged")
    until(lambda: says(screen, "nobody has joined"))
    screen.stop()
    assert screen.wait(60)
    assert says(screen, "stopped before all owners had joined")
    assert screen.result is None
    assert not Ledger(seats.folder / "ledger.sqlite").spends()
    owner.start()
    owner.wait(60)
    assert says(owner, "server=.*cannot be reached")
    owner.close()


def test_an_owner_who_stops_in_mid_fit_ends_it_for_all(tmp_path):
    seats = Table(tmp_path, settings={"iterations": 20_000, "sampling_rate": 0.5})
    screen, owner = seats.screen, seats.owner()
    seats.listen()
    owner.start()
    with answering(seats.others, seats.server) as outcomes:
        until(lambda: says(owner, "The ledger has the charge. *Round [1-9]"))
        owner.close()  # which stops it
    assert screen.wait(60)
    assert screen.result.status == "failed"
    assert says(screen, "Failed. .*Cork left in round")
    assert "Cork left" in str(outcomes[0])
    assert len(Ledger(tmp_path / "ledger.sqlite").spends()) == 1
    screen.close()


def test_a_screen_whose_cell_runs_again_takes_the_rounds_over(seats):
    seats.listen()
    again = wb.widgets.Coordinator(seats.plan, seats.keys, port=seats.port)
    again._succeed(seats.screen)
    until(lambda: says(again, "nobody has joined yet"))
    again.stop()
    again.wait(60)
    assert says(again, "stopped before all owners had joined")
    again.close()


def test_what_cannot_be_shown_or_listened_at_is_said(seats, tmp_path):
    look = a_look()
    keys = [wb.owners.make_key(look, owner, tmp_path / "..") for owner in look.owners]
    with pytest.raises(wb.ArgumentError, match="plan='look': has one round"):
        wb.widgets.Coordinator(look, keys)
    with pytest.raises(wb.ArgumentError, match="keys"):
        wb.widgets.Coordinator(seats.plan, [])
    with pytest.raises(wb.ArgumentError, match="owner='Oslo'"):
        wb.widgets.Owner(seats.plan, "Oslo", TABLES[0], seats.keys, seats.server)
    nowhere = wb.widgets.Coordinator(seats.plan, seats.keys, port=70_000)
    nowhere.start()
    assert nowhere.wait(60)
    assert says(nowhere, "Failed. *⚠ port=70000: must be")
    nowhere.close()
