"""The ledger's file: what an accident did to it is seen, and its key goes with it."""

import contextlib
import json
import os
import random
import shutil
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.privacy.promises import promise
from workbench import ArgumentError
from workbench.ledger.fingerprint import key_file
from workbench.ledger.ledger import CapError, DatasetId, Ledger, LedgerError, LostLedgerError
from workbench.ledger.reservation import LedgerWarning, Reservation, id_of

FIT = promise(0.8)


def records(name="clinic"):
    """A data set that is no other's relative."""
    return DatasetId(name, "patient", lambda key: f"{name:0<32}")


def clinic(seed=0, name="clinic"):
    """Made-up patients, which are taken for private."""
    draws = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": draws.uniform(20, 90, 120), "ill": draws.random(120) < 0.4})
    return wb.data.from_frame(
        frame, target="ill", bounds={"age": (0, 120)}, unit="patient", name=name
    )


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "shared" / "ledger.sqlite")


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Goes on as another user, with a folder of one's own."""
    return lambda name: monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / name))


def content_of(book):
    """Everything that counts: totals follow from it."""
    exported = book.export()
    for spend in exported["spends"]:
        del spend["owner"]
    standings = [book.budget_status(entry.number) for entry in book.datasets()]
    return json.dumps(exported), [
        (standing.parts, standing.caps, standing.cautions()) for standing in standings
    ]


# --- accidents ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A ledger with data sets, relatives, a cap and fits; its content is not to be changed."""
    book = Ledger(tmp_path_factory.mktemp("filled") / "ledger.sqlite")
    for name, fit in (
        ("clinic", promise(0.2)),
        ("ward", promise(0.1)),
        ("clinic", promise(0.1, "shuffle")),
    ):
        (key,) = book.reserve(records(name), [fit], model="logistic", seed=3, plan="a plan")
        book.mark([key], 100)
        book.settle(key, 60)
    book.relate(1, 2, "the same people")
    book.set_cap(2, 3.0, 1e-5, "replace_one", why="the board")
    return book


def refusals(filled, book, count, seed):
    """What is said of ledgers with one bit changed that are refused; the others say what they said
    before.
    """
    content, expected, chosen, said = (
        filled.path.read_bytes(),
        content_of(filled),
        random.Random(seed),
        [],
    )
    used = [place for place, byte in enumerate(content) if byte]
    book.path.parent.mkdir()
    shutil.copy(f"{filled.path}.key", f"{book.path}.key")
    for number in range(count):
        damaged = bytearray(content)
        # much of a page is empty
        place = chosen.choice(used) if number % 2 else chosen.randrange(len(content))
        damaged[place] ^= 1 << chosen.randrange(8)
        for end in ("-wal", "-shm"):
            Path(f"{book.path}{end}").unlink(missing_ok=True)
        book.path.write_bytes(damaged)
        try:
            assert content_of(book) == expected, f"byte {place}"
        except LedgerError as error:
            said.append(error.code)
    assert set(said) <= {"damaged", "another database", "another format"}
    return said


def test_a_bit_that_flipped_changes_no_total(filled, book):
    assert len(refusals(filled, book, 60, 1)) >= 10


@pytest.mark.thorough
def test_many_bits_that_flipped_change_no_total(filled, book):
    assert len(refusals(filled, book, 2000, 2)) >= 500


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE spends SET taken = 0 WHERE number = 2",
        "UPDATE spends SET guarantee = replace(guarantee, '0.1', '0.2')",
        "UPDATE caps SET epsilon = 3.5",
        "DELETE FROM caps",
        "DELETE FROM spends WHERE number = 3",
        "DELETE FROM relatives",
        "UPDATE relatives SET counted = 0",
        "UPDATE datasets SET fingerprint = 'f' || substr(fingerprint, 2) WHERE number = 1",
        "INSERT INTO caps SELECT 7, dataset, 9.0, delta, relation, filter_order, after, why, "
        "who, time FROM caps",
        "DELETE FROM facts",
        "DELETE FROM seal",
        "UPDATE seal SET total = 'none'",
    ],
)
def test_rows_that_changed_on_their_own_are_seen(filled, book, change):
    """By SQLite itself they were written soundly."""
    shutil.copytree(filled.path.parent, book.path.parent)
    content_of(book)
    with contextlib.closing(sqlite3.connect(book.path)) as database, database:
        database.execute(change)
    for use in (
        book.spends,
        book.recover,
        lambda: book.reserve(records(), [FIT], model="logistic"),
    ):
        with pytest.raises(LostLedgerError) as caught:
            use()
        assert caught.value.code == "damaged"


def test_the_checksum_is_kept_by_every_change(book):
    first, second = book.reserve(records(), [FIT, FIT], model="logistic")
    changes = [
        lambda: book.mark([first, second], 30),
        lambda: book.settle(first, 20),
        lambda: book.resume(first),
        lambda: book.note_result(first, "there"),
        lambda: book.add(records("ward")),
        lambda: book.set_cap(1, 90.0, 1e-5, why="a test"),
        lambda: book.remove_cap(1, "a mistake"),
        lambda: book.separate(1, 2, "other people"),
        lambda: book.relate(1, 2, "the same people"),
        lambda: book.relate(1, 2, "for another reason"),
        book.recover,
    ]
    for change in changes:
        change()
        assert len(book.spends()) == 2


@pytest.mark.parametrize(
    "size", [0, 1, 99, 511, 512, 4095, 4096, 5000, 8192, 0.3, 0.6, 0.9, -4096, -1]
)
def test_a_file_that_was_cut_off_is_refused(filled, book, size):
    shutil.copytree(filled.path.parent, book.path.parent)
    content = book.path.read_bytes()
    book.path.write_bytes(content[: int(size * len(content)) if isinstance(size, float) else size])
    cut = book.path.read_bytes()
    uses = [book.datasets, book.spends, book.export, book.recover, lambda: book.entry(1)]
    uses.append(lambda: book.set_cap(1, 9.0, 1e-5, why="a test"))
    for use in (
        *uses,
        lambda: book.reserve(records(), [FIT], model="logistic"),
        lambda: book.budget_status(records()),
    ):
        with pytest.raises(LostLedgerError, match=r"Restore a copy.*begin-anew") as caught:
            use()
        assert caught.value.code == "damaged"
    assert book.path.read_bytes() == cut


def test_a_ledger_that_was_deleted_is_missed(book):
    (key,) = book.reserve(records(), [FIT], model="logistic")
    book.path.unlink()
    uses = [
        book.datasets,
        book.recover,
        lambda: book.settle(key, 3),
        lambda: book.mark([key], 3),
        lambda: book.add(records()),
    ]
    for use in (
        *uses,
        lambda: book.reserve(records(), [FIT], model="logistic"),
        lambda: book.budget_status(records()),
    ):
        with pytest.raises(LostLedgerError, match=r"ledger\.sqlite\.key.*Restore a copy") as caught:
            use()
        assert caught.value.code == "gone"
    assert not book.path.exists()


@pytest.mark.parametrize("folder", ["/proc/x", "/proc"])
def test_a_folder_that_cannot_be_made_is_no_lost_ledger(folder):
    if not os.path.isdir("/proc"):
        pytest.skip("no folder here that takes no files from anybody")
    book = Ledger(f"{folder}/ledger.sqlite")
    with pytest.raises(LedgerError, match="ledger=") as caught:
        book.reserve(records(), [FIT], model="logistic")
    assert caught.value.code == "no folder"
    assert not isinstance(caught.value, LostLedgerError)
    assert "Restore" not in str(caught.value)


def test_a_link_to_a_ledger_is_that_ledger(book, tmp_path):
    link = tmp_path / "link.sqlite"
    link.symlink_to(book.path)
    (key,) = book.reserve(records(), [FIT], model="logistic")
    linked = Ledger(link)
    linked.settle(key, 3)
    linked.reserve(records(), [FIT], model="logistic")
    assert len(linked.datasets()) == 1
    assert [spend.number for spend in book.spends()] == [1, 2]
    assert linked.path == book.path
    assert {file.name for file in tmp_path.iterdir()} == {"link.sqlite", "shared"}


def test_a_link_to_a_ledger_that_is_not_there_begins_none(book, tmp_path):
    """As where the drive that holds it is not mounted."""
    link = tmp_path / "link.sqlite"
    link.symlink_to(book.path)
    with pytest.raises(LedgerError, match=r"link\.sqlite': is a link to .*, which is not"):
        Ledger(link).reserve(records(), [FIT], model="logistic")
    assert not book.path.exists()


@pytest.mark.parametrize("damage", [None, b"", b"x", b"x" * 5000])
def test_a_lost_ledger_is_begun_anew_on_demand_and_says_so(book, damage):
    book.reserve(records(), [FIT], model="logistic")
    with pytest.raises(LedgerError, match="is in order"):
        book.begin_anew()
    book.path.unlink() if damage is None else book.path.write_bytes(damage)
    moved = book.begin_anew()
    assert (moved is None) == (damage is None)
    assert moved is None or moved.read_bytes() == damage
    assert book.spends() == []
    book.reserve(records(), [FIT], model="logistic")
    assert "The ledger was begun anew on 2" in book.budget_status("clinic").statement()


def test_what_never_was_is_not_begun_anew(book):
    with pytest.raises(LedgerError, match="was never there"):
        book.begin_anew()
    assert not book.path.parent.exists()


def test_no_crash_leaves_a_part_of_a_ledger(book, monkeypatch):
    """Wherever the first fit is killed, the next one finds a ledger in order."""
    calls = ("link", "rename", "fsync", "unlink", "chmod")

    class Killed(BaseException):
        pass

    done, moment = False, 0
    while not done:
        left = [moment]

        def failing(real, left=left):
            def call(*arguments, **options):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patched:
            for name in calls:
                patched.setattr(os, name, failing(getattr(os, name)))
            try:
                Ledger(book.path).add(records())
                done = True
            except Killed:
                pass
        assert Ledger(book.path).add(records()).number == 1
        assert len(book.datasets()) == 1
        shutil.rmtree(book.path.parent)
        moment += 1
    assert moment > 5


# --- the key --------------------------------------------------------------------------------------


def test_users_of_one_ledger_share_its_cap(book, user):
    """They read the same file, each with a folder of one's own; one of them has lost
    it meanwhile.
    """
    allowed = 0
    for name in ("anna", "berta", "carla", "anna"):
        user(name)
        known = id_of(clinic())
        if not book.exists():
            book.set_cap(book.add(known).number, 1.0, 1e-5, why="a test")
        try:
            book.reserve(known, [FIT], model="logistic")
            allowed += 1
        except CapError:
            pass
        shutil.rmtree(key_file().parent, ignore_errors=True)
    assert allowed == len(book.spends()) == len(book.datasets()) == 1


def test_the_key_is_not_in_the_file_and_what_is_there_tells_nothing_of_it(book):
    book.add(id_of(clinic()))
    key = Path(f"{book.path}.key").read_bytes()
    content = book.path.read_bytes()
    assert len(key) == 32
    assert key not in content
    assert key.hex().encode() not in content
    assert not key_file().exists() or key_file().read_bytes() != key


def test_another_key_is_refused_before_anything_is_entered(book):
    book.add(id_of(clinic()))
    kept = Path(f"{book.path}.key")
    right = kept.read_bytes()
    for wrong, what in (
        (bytes(32), "belongs to another ledger"),
        (b"short", "holds 5 bytes"),
        (None, "is missing"),
    ):
        kept.unlink() if wrong is None else kept.write_bytes(wrong)
        for use in (
            lambda: book.reserve(id_of(clinic()), [FIT], model="logistic"),
            lambda: book.add(records("ward")),
        ):
            with pytest.raises(
                LedgerError,
                match=f"its key, ledger.sqlite.key beside it, {what}.*workbench ledger new-key",
            ):
                use()
        assert len(book.datasets()) == 1  # reading needs no key
    kept.write_bytes(right)
    book.reserve(id_of(clinic()), [FIT], model="logistic")
    with pytest.raises(ArgumentError, match="has its key"):
        book.new_key()


def test_with_a_new_key_what_was_entered_before_counts_until_it_is_separated(book):
    book.reserve(id_of(clinic()), [FIT], model="logistic")
    book.set_cap(1, 1.0, 1e-5, why="a test")
    Path(f"{book.path}.key").unlink()
    book.new_key()
    with pytest.raises(CapError):  # the very same records, of which that can no longer be told
        book.reserve(id_of(clinic()), [FIT], model="logistic")
    standing = book.budget_status(id_of(clinic(1, "ward")))
    assert [spend.number for spend in standing.spends] == [1]
    assert "are counted too: 1 (clinic). Nobody can tell" in standing.statement()
    book.add(id_of(clinic(1, "ward")))
    book.separate(2, 1, "other people")
    assert book.budget_status(2).spends == ()
    book.reserve(id_of(clinic(1, "ward")), [FIT], model="logistic")


def test_a_namesake_that_is_counted_apart_is_reported_at_the_fit(book):
    def begin(data):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Reservation(book, lambda: id_of(data), lambda: [FIT], model="logistic").reserve()
        assert all(issubclass(warning.category, LedgerWarning) for warning in caught)
        return [str(warning.message) for warning in caught]

    assert begin(clinic(0)) == begin(clinic(0)) == []
    (line,) = begin(clinic(1))
    assert line.startswith("Data set 1 is also called 'clinic' and is counted separately")
    assert begin(clinic(1)) == [line]
    (several,) = begin(clinic(2))
    assert several.startswith(
        "These data sets are also called 'clinic' and are counted separately, because there is "
        "no cap: 1, 2. In the ledger,"
    )
    book.separate(1, 3, "other people")
    (line,) = begin(clinic(2))
    assert line.startswith("Data set 2 is also called 'clinic'")
    book.separate(2, 3, "other people")
    book.separate(1, 2, "other people")
    assert begin(clinic(1)) == begin(clinic(2, "ward")) == []


def test_all_who_may_write_to_a_ledger_may_read_its_key(book):
    book.add(records())
    key = Path(f"{book.path}.key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    book.path.chmod(0o660)
    book.new_key()
    assert key.stat().st_mode & 0o777 == 0o660
