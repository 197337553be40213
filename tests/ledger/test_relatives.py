"""Which data sets count together: what has one name does so under a cap, however the records were
changed.
"""

import time

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.privacy.promises import promise
from workbench import ArgumentError
from workbench.ledger import Ledger
from workbench.ledger.budget import CapError
from workbench.ledger.composition import total
from workbench.ledger.entries import CLONES, NAMESAKES, RELATED
from workbench.ledger.ledger import DatasetId
from workbench.ledger.renyi_filter import Cap
from workbench.ledger.reservation import id_of

DELTA = 1e-4


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "ledger.sqlite")


def records(name="clinic", number=0, token=""):
    """A data set with a fingerprint that follows from its name and a number."""
    return DatasetId(name, "patient", lambda key: f"{name}{number}".ljust(32, "0"), token)


def fits(book, number):
    return len(book.budget_status(number).spends)


# ---- whole fits ----------------------------------------------------------------------------------


def table(seed=0, size=300):
    draws = np.random.default_rng(seed)
    age = draws.integers(18, 90, size)
    return pd.DataFrame({"age": age, "ill": draws.random(size) < age / 100})


def bootstrap(frame, seed):
    return frame.sample(frac=1.0, replace=True, random_state=seed, ignore_index=True)


CHANGED = {
    "bootstrap": bootstrap,
    "doubled": lambda frame, seed: pd.concat([frame] * (seed + 2), ignore_index=True),
    "part": lambda frame, seed: frame[: 100 + 10 * seed],
    "shuffled": lambda frame, seed: frame.sample(frac=1.0, random_state=seed, ignore_index=True),
    "one record less": lambda frame, seed: frame.drop(index=seed),
    "another column": lambda frame, seed: frame.assign(
        more=np.linspace(0, 1 + seed, len(frame)) / 100
    ),
    "a column renamed": lambda frame, seed: frame.rename(columns={"age": f"years{seed}"}),
    "another unit of measure": lambda frame, seed: frame.assign(age=frame["age"] / (seed + 2)),
    "other bounds": lambda frame, seed: frame,
}


def fitted(data, ledger):
    wb.fit("logistic", data, epsilon=0.6, delta=DELTA, iterations=5)


def reserved(data, ledger):
    ledger.reserve(id_of(data), [promise(0.6, delta=DELTA, steps=5, rate=1.0)], model="logistic")


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.parametrize(
    ("change", "spend"), [*((change, reserved) for change in CHANGED), ("bootstrap", fitted)]
)
def test_a_loop_of_fits_with_one_name_stops_at_the_cap(change, spend):
    """Whatever was done to the table, the ledger takes its name at its word."""
    cap, ledger = 1.5, Ledger()

    def fit(seed):
        frame = CHANGED[change](table(), seed)
        bounds = {name: (0, 120 + seed) for name in frame if name != "ill"}
        data = wb.data.from_frame(frame, target="ill", bounds=bounds, name="clinic")
        spend(data, ledger)

    def fit_all():
        for seed in range(1, 12):
            fit(seed)

    fit(0)
    ledger.set_cap("clinic", cap, DELTA, why="a test")
    with pytest.raises(CapError, match=r"above its cap .* because of the name and the cap"):
        fit_all()
    assert 1 < len(ledger.spends()) < 12
    assert len(ledger.datasets()) > 1
    assert total([spend.guarantee for spend in ledger.spends()], DELTA).epsilon <= cap


# ---- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize("capped", [1, 2, 3])
def test_a_cap_of_any_data_set_of_a_name_is_for_all_of_them(book, capped):
    for number in range(3):
        book.reserve(records(number=number), [promise(0.3)], model="logistic")
    assert [fits(book, number) for number in (1, 2, 3)] == [1, 1, 1]
    book.set_cap(capped, 1.0, 1e-5, why="the board")
    for number in (1, 2, 3):
        status = book.budget_status(number)
        assert [why for _, why in status.relatives] == [NAMESAKES, NAMESAKES]
        assert len(status.spends) == status.total.fits == 3
        assert [entry.number for entry in status.caps] == [capped]
        assert status.namesakes == ()
    with pytest.raises(
        CapError,
        match=r"Counted too, because of the name and the cap: 1 \(clinic\), 2 \(clinic\), 3 \(",
    ):
        book.reserve(records(number=3), [promise(0.9)], model="logistic")
    assert len(book.datasets()) == 3
    book.remove_cap(capped, "the study has ended")
    assert [fits(book, number) for number in (1, 2, 3)] == [1, 1, 1]


def test_a_data_set_that_is_not_entered_yet_is_counted_with_its_namesakes(book):
    book.reserve(records(), [promise(0.3)], model="logistic")
    book.set_cap(1, 1.0, 1e-5, why="the board")
    status = book.budget_status(records(number=1))
    assert (status.entry, len(status.spends), len(status.caps)) == (None, 1, 1)
    assert book.budget_status(records("ward")).spends == ()


def test_a_data_set_keeps_all_names_that_it_was_given(book):
    """Or records could leave a cap by being called otherwise once."""
    book.add(records("ward"))
    book.set_cap(book.add(records("clinic")).number, 1.0, 1e-5, why="the board")
    same = records("ward")._replace(name="clinic")
    assert [entry.name for entry in book.budget_status(same).caps] == ["clinic"]
    with pytest.raises(CapError):
        book.reserve(same, [promise(2.0)], model="logistic")
    assert book.entry(1).names == ("ward",)  # nothing of a fit that was refused is entered
    book.reserve(same, [promise(0.9)], model="logistic")
    assert book.entry(1).names == ("ward", "clinic")
    with pytest.raises(CapError):  # under its former name too
        book.reserve(records("ward"), [promise(0.9)], model="logistic")
    with pytest.raises(CapError):
        book.reserve(records("clinic", 7), [promise(0.9)], model="logistic")
    with pytest.raises(ArgumentError, match=r"dataset='clinic': is the name of several"):
        book.entry("clinic")


def test_another_name_is_other_people_until_somebody_relates_them(book):
    book.set_cap(book.add(records()).number, 1.0, 1e-5, why="the board")
    book.reserve(records(), [promise(0.8)], model="logistic")
    book.reserve(records("ward"), [promise(0.8)], model="logistic")
    assert fits(book, 1) == 1
    book.relate(1, 2, "half of them")
    assert book.budget_status(2).relatives == ((book.entry(1), RELATED),)
    with pytest.raises(CapError):
        book.reserve(records("ward"), [promise(0.8)], model="logistic")


def test_separated_namesakes_count_apart_and_a_third_joins_them(book):
    for number in range(2):
        book.reserve(records(number=number), [promise(0.3)], model="logistic")
    book.set_cap(1, 1.0, 1e-5, why="the board")
    book.separate(2, 1, "two hospitals")
    assert [fits(book, number) for number in (1, 2)] == [1, 1]
    assert book.budget_status(2).caps == book.budget_status(2).cautions() == ()
    # of either, as far as anybody said
    book.reserve(records(number=2), [promise(0.1)], model="logistic")
    assert [fits(book, number) for number in (1, 2, 3)] == [3, 3, 3]
    book.separate(3, 2, "of the first hospital")
    assert [fits(book, number) for number in (1, 2, 3)] == [2, 1, 2]
    book.relate(1, 2, "a mistake")
    assert [fits(book, number) for number in (1, 2, 3)] == [3, 3, 3]


def test_a_cap_that_is_given_with_a_fit_is_not_replaced_by_a_namesakes(book):
    book.keep_cap(records(), Cap.checked(1.0, 1e-5), "the board")
    with pytest.raises(
        ArgumentError, match=r"the cap of data set 1 \(clinic\), with which .* give another name="
    ) as caught:
        book.keep_cap(records(number=1), Cap.checked(2.0, 1e-5), "mine")
    assert caught.value.code == "another cap"
    book.keep_cap(records(number=1), Cap.checked(1.0, 1e-5), "mine")  # it counts already
    assert [len(book.export()[name]) for name in ("caps", "datasets")] == [1, 2]
    book.keep_cap(records("ward"), Cap.checked(2.0, 1e-5), "mine")


def test_why_a_data_set_counts_is_the_strongest_reason(book):
    for number in range(3):
        book.add(records(number=number, token="copies" if number else ""))
    book.relate(1, 3, "the same people")
    book.set_cap(1, 1.0, 1e-5, why="the board")
    for third in (3, records(number=2), records(number=2, token="copies")):
        whys = {entry.number: why for entry, why in book.budget_status(third).relatives}
        assert whys == {1: RELATED, 2: CLONES}
    whys = {entry.number: why for entry, why in book.budget_status(1).relatives}
    assert whys == {2: NAMESAKES, 3: RELATED}


@pytest.mark.thorough
def test_ten_thousand_data_sets_of_one_name_are_joined_in_a_moment(book):
    """As of estimators whose name nobody gave."""
    key = book.add(records()).key
    with book._file.open(write=True) as database:
        for number in range(10_000):
            values = ("clinic", f"{number:032}", "patient", "2026-01-01T00:00:00Z", key)
            database.execute(
                "INSERT INTO datasets (name, fingerprint, unit, time, key) VALUES (?, ?, ?, ?, ?)",
                values,
            )
            database.execute(
                "INSERT INTO facts VALUES (?, ?)", (f"fits with token {number}", str(number + 2))
            )
    book.set_cap(1, 1.0, 1e-5, why="the board")
    start = time.process_time()
    assert len(book.budget_status(1).relatives) == 10_000
    assert time.process_time() - start < 2


@pytest.mark.parametrize("name", ["Clinic", "CLINIC", "\uff43linic", "clinic"])
def test_names_that_differ_in_capitals_or_width_are_one_name_under_a_cap(book, name):
    book.reserve(records(), [promise(0.9)], model="logistic")
    book.set_cap(1, 1.0, 1e-5, why="the board")
    with pytest.raises(CapError):
        book.reserve(records(name, number=7), [promise(0.9)], model="logistic")


@pytest.mark.parametrize(
    "name", ["clinic ", " clinic", "clinic\u00a0", "cli\u0301nic  north", "cl\u00ednic north"]
)
def test_a_data_set_has_the_composed_name_with_single_spaces(name):
    dataset = wb.data.from_frame(table(), target="ill", bounds={"age": (0, 120)}, name=name)
    assert dataset.name in ("clinic", "cl\u00ednic north")


@pytest.mark.parametrize("name", ["cli\u200bnic", "clinic\u00ad", "\u202ecinilc", "a\x1b[31m"])
@pytest.mark.parametrize("argument", ["name", "unit"])
def test_letters_that_nobody_sees_are_refused_in_names(name, argument):
    with pytest.raises(ArgumentError, match="control characters or invisible ones") as caught:
        wb.data.from_frame(table(), target="ill", bounds={"age": (0, 120)}, **{argument: name})
    assert caught.value.argument == argument


def test_a_name_that_is_the_number_of_another_data_set_is_ambiguous(book):
    book.reserve(records(), [promise(0.3)], model="logistic")
    book.reserve(records("1"), [promise(0.3)], model="logistic")
    with pytest.raises(ArgumentError, match="is the number of one data set and the name of anoth"):
        book.set_cap("1", 1.0, 1e-5, why="the board")
    book.set_cap(2, 1.0, 1e-5, why="the board")
    assert [entry.cap is None for entry in book.datasets()] == [True, False]
    assert book.entry(book.entry(2).fingerprint[:8]).number == 2
