"""``workbench ledger``, and what ``workbench fit`` enters in it and says of it."""

import csv
import errno
import json
import os
import warnings

import pytest

import workbench as wb
from tests.conftest import PRIVATE_BOUNDS, refused, rewrite
from tests.privacy.promises import promise
from workbench import _validate
from workbench.ledger.ledger import Ledger, LedgerDiskError
from workbench.ledger.reservation import id_of

pytestmark = pytest.mark.usefixtures("made_up_steps", "quick_report")

BOUNDS = "--target ill --bounds dose=0:200 age=0:100 --look 0"


@pytest.fixture
def fit(command, place):
    """Runs a short fit: (exit code, standard output, standard error)."""

    def run(*options, data="clinic.csv", epsilon="1", seed="3", ledger=("--ledger", "book.sqlite")):
        settings = ["--delta 1e-3 --iterations 40 --quiet --epsilon", epsilon, "--seed", seed]
        return command("fit --data", data, BOUNDS, *settings, *ledger, *options)

    return run


@pytest.fixture
def enter(private_frame, place):
    """Enters a fit of some of the patients, which has ended, in that ledger."""

    def put(rows=200, name="clinic"):
        data = wb.data.from_frame(
            private_frame.head(rows), target="ill", bounds=PRIVATE_BOUNDS, name=name
        )
        book = Ledger("book.sqlite")
        (key,) = book.reserve(id_of(data), [promise(delta=1e-3, steps=40)], model="logistic")
        book.settle(key, 40)

    return put


@pytest.fixture
def ledger(command, place):
    """Runs ``workbench ledger`` on that ledger: what it prints, or with --json what it answers."""

    def run(action, *arguments):
        code, out, err = command("ledger", action, *arguments, "--ledger book.sqlite")
        assert (code, err) == (0, "")
        return json.loads(out) if "--json" in " ".join([action, *arguments]) else out

    return run


def test_nothing_is_made_by_looking(ledger, command, place):
    assert ledger("list") == f"{place / 'book.sqlite'} has no entries.\n"
    assert ledger("list --json") == {"ledger": str(place / "book.sqlite"), "datasets": []}
    assert ledger("recover") == "No fit was interrupted.\n"
    assert json.loads(ledger("export")) == {
        "datasets": [],
        "aliases": [],
        "relatives": [],
        "caps": [],
        "spends": [],
    }
    for action in ("show 1", "cap 1", "separate 1 2 --why x"):
        assert "no such file" in refused(command("ledger", action, "--ledger book.sqlite"))
    assert os.listdir(place) == ["clinic.csv"]


def test_a_fit_is_entered_and_says_what_was_spent(fit, ledger, place):
    code, out, _ = fit("--out run")
    assert code == 0
    assert out.splitlines()[-1] == "Ledger: on 'clinic' one fit spent epsilon = 1 at delta = 0.001."
    answer = json.loads(fit("--json", seed="4")[1])["ledger"]
    assert (answer["name"], answer["fits"], answer["delta"], answer["stopped"]) == (
        "clinic",
        2,
        0.001,
        [],
    )
    assert 1 < answer["epsilon"] <= 2
    assert (answer["caps"], answer["used"], answer["how_many_more"]) == ([], None, None)
    assert "fingerprint" not in answer  # it is not to be published with the result

    header, row = (line.split() for line in ledger("list").splitlines())
    assert header == ["number", "name", "fits", "spent", "reserved", "cap", "used", "relatives"]
    assert row == [
        "1",
        "clinic",
        "2",
        *f"epsilon = {answer['epsilon']:g} at delta = 0.001".split(),
        "0",
        "-",
        "-",
        "-",
    ]
    (listed,) = ledger("list --json")["datasets"]
    assert listed["epsilon"] == answer["epsilon"]

    shown = ledger("show clinic")
    assert "Both fits together, on the same records, satisfy (epsilon = " in shown
    assert "Set a cap to be safe in any case" in shown
    first, second = (line.split() for line in shown.splitlines() if line.startswith(("1  ", "2  ")))
    assert first[:9] == ["1", "1", "logistic", "1", "0.001", "40", "of", "40", "settled"]
    assert (first[-1], second[-1]) == (str(place / "run"), "-")
    details = ledger("show", listed["fingerprint"][:8], "--json")
    assert details["statement"] in shown
    assert [
        (spend["promised_epsilon"], spend["taken"], spend["seed"]) for spend in details["spends"]
    ] == [(1.0, 40, 3), (1.0, 40, 4)]


def test_without_a_ledger_nothing_is_entered(fit, ledger, place):
    code, out, _ = fit("--no-checkpoint --json", ledger=["--no-ledger"])
    assert (code, json.loads(out)["ledger"]) == (0, None)
    assert "has no entries" in ledger("list")
    assert not (place / "state" / "runs").exists()
    assert not (place / "state" / "ledger.sqlite").exists()


def test_the_users_own_ledger_is_the_default(fit, command, place):
    fit(ledger=[])
    assert "epsilon = 1 at delta = 0.001" in command("ledger list")[1]
    assert (place / "state" / "ledger.sqlite").exists()


def test_a_fit_names_one_ledger_or_none(command):
    line = refused(command("fit --data x.csv --epsilon 1 --no-ledger --ledger book.sqlite"))
    assert "not allowed with argument" in line


@pytest.mark.thorough
def test_two_fits_with_one_seed_promise_nothing(fit, ledger):
    fit()
    last = fit(epsilon="2")[1].splitlines()[-1]
    assert last == "Ledger: on 'clinic' 2 fits together promise nothing."
    assert "promise nothing" in ledger("list").splitlines()[1]
    assert ledger("list --json")["datasets"][0]["epsilon"] is None
    assert "Several fits drew their noise from the same seed (3)" in ledger("show 1")


# ---- caps ----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_cap_is_set_told_and_kept(fit, ledger):
    fit()
    assert ledger("cap clinic") == "1 (clinic) has no cap.\n"
    lines = ledger("cap clinic --epsilon 3 --delta 1e-3 --why 'the board'").splitlines()
    assert lines[0].startswith("Cap of 1 (clinic): all fits on these records")
    assert "at most epsilon = 3 at delta = 0.001 under add_or_remove_one" in lines[0]
    assert lines[1].startswith("Used: ")
    assert lines[2].startswith("The cap of 'clinic' was set or changed after fits had begun")
    assert ledger("cap 1").splitlines() == lines

    facts = ledger("cap 1 --json")
    (cap,) = facts["caps"]
    assert (cap["epsilon"], cap["delta"], cap["relation"], cap["why"]) == (
        3.0,
        0.001,
        "add_or_remove_one",
        "the board",
    )
    assert f"A Renyi filter of order {cap['order']} enforces it." in lines[0]
    assert lines[1] == f"Used: {100 * facts['used']:.3g} %."
    assert ledger("list").splitlines()[1].split()[-3:] == [*lines[1].rstrip(".").split()[1:], "-"]

    last = fit(seed="4")[1].splitlines()[-1]
    assert " at delta = 0.001 (if plans did not depend on results); " in last
    assert last.endswith("more fits like this.")
    refusal = refused(fit(epsilon="3", seed="5"))
    assert refusal.startswith(
        "workbench fit: epsilon=3.0: this fit would raise what is spent on 'clinic' above its cap"
    )
    assert "would fit" in refusal
    assert refusal.endswith("To exceed it on purpose, which is recorded, give --over-cap REASON.\n")
    assert len(ledger("show 1 --json")["spends"]) == 2


def test_a_cap_is_set_with_relation_and_order_and_taken_away(enter, ledger, command):
    enter()
    options = ["--epsilon 3 --delta 1e-3 --relation replace_one --order 4 --why 'a test'"]
    (cap,) = ledger("cap 1", *options, "--json")["caps"]
    assert (cap["relation"], cap["order"]) == ("replace_one", 4)
    assert "why=None: must say why" in refused(
        command("ledger cap 1 --remove --ledger book.sqlite")
    )
    assert ledger("cap 1 --remove --why 'a mistake'") == "1 (clinic) has no cap.\n"
    removed = json.loads(ledger("export"))["caps"][-1]
    assert (removed["epsilon"], removed["why"]) == (None, "a mistake")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("cap 1 --epsilon 2", "delta=None: "),
        ("cap 1 --delta 1e-3", "epsilon=None: "),
        ("cap 1 --why because", "epsilon=None: "),
        ("cap 1 --epsilon -1 --delta 1e-3", "epsilon=-1: "),
        ("cap 1 --epsilon 1 --delta 1e-3 --order 1", "order=1: "),
        ("cap 1 --epsilon 1 --delta 1e-3 --relation neighbours", "relation='neighbours': "),
        ("cap 1 --epsilon 1 --remove", "not allowed with argument"),
        ("cap 1 --epsilon 1 --delta 1e-3", "why=None: must say why"),
        ("cap 1 --epsilon 1 --delta 1e-3 --why ' '", "why=' ': must say why"),
        ("cap 1 --why ''", "epsilon=None: "),
        (
            "cap 2 --epsilon 1 --delta 1e-3 --why 'a test'",
            "dataset='2': is not in the ledger: 1 (clinic).",
        ),
        ("show hospital", "dataset='hospital': is not in the ledger: 1 (clinic)."),
        ("separate 1 1 --why 'other people'", "other='1': is the same data set"),
        ("relate 1 1 --why 'the same people'", "other='1': is the same data set"),
        ("separate 1 1", "why=None: must say why"),
        ("relate 1 1 --why yes", "why='yes': must say why"),
        ("export --out book.txt", "out='book.txt': must end in .json, .html, .csv, .yaml."),
        ("export --out nowhere/book.csv", "out='nowhere/book.csv': cannot write there."),
        ("show", "the following arguments are required: DATASET"),
        ("burn", "invalid choice: 'burn'"),
    ],
)
def test_what_cannot_be_done_is_said_on_one_line(command, known, arguments, line):
    assert line in refused(command("ledger", arguments, "--ledger", known))


@pytest.fixture(scope="module")
def known(private_data, tmp_path_factory):
    """A ledger that knows one data set, on which nothing was spent."""
    book = Ledger(tmp_path_factory.mktemp("known") / "book.sqlite")
    book.add(id_of(private_data))
    return str(book.path)


def test_a_file_that_is_no_ledger_is_named(command, place):
    (place / "book.sqlite").write_text("my notes, which are not to be overwritten")
    line = refused(command("ledger list --ledger book.sqlite"))
    assert line.startswith(
        f"workbench ledger: ledger={str(place / 'book.sqlite')!r}: is damaged or not a ledger"
    )
    assert (place / "book.sqlite").read_text().startswith("my notes")


# ---- relatives, recovery, export -----------------------------------------------------------------


def test_data_sets_are_related_and_separated(enter, ledger):
    enter()
    enter(150, "part")
    assert [each["fits"] for each in ledger("list --json")["datasets"]] == [1, 1]
    assert ledger("relate 1 2 --why '150 of them'") == "1 (clinic) and 2 (part) count together.\n"
    assert [line.split()[-1] for line in ledger("list").splitlines()[1:]] == ["2", "1"]
    assert "Fits on 1 (clinic) count too: they were related in the ledger." in ledger("show part")
    assert ledger("separate clinic part --why 'another hospital'") == (
        "1 (clinic) and 2 (part) are counted separately.\n"
    )
    assert [each["fits"] for each in ledger("list --json")["datasets"]] == [1, 1]
    assert json.loads(ledger("export"))["relatives"][0]["why"] == "another hospital"


def test_data_sets_of_one_name_count_together_under_a_cap_until_they_are_separated(
    fit, enter, ledger, private_frame, place
):
    for rows in (200, 170, 150):
        enter(rows)
    assert [each["fits"] for each in ledger("list --json")["datasets"]] == [1, 1, 1]
    lines = ledger("cap 1 --epsilon 3 --delta 1e-3 --why 'the board'")
    assert (
        "Counted too, because of the name and the cap: 2 (clinic), 3 (clinic). In the ledger, "
        "separate" in lines
    )
    assert (
        "Fits on 2 (clinic), 3 (clinic) count too: they have one name, and there is a cap."
        in ledger("show 1")
    )
    assert [each["fits"] for each in ledger("list --json")["datasets"]] == [3, 3, 3]
    assert "would raise what is spent on 'clinic' above its cap" in refused(
        fit(epsilon="2", seed="6")
    )

    assert ledger("separate 1 2 --why 'other people'") == (
        "1 (clinic) and 2 (clinic) are counted separately.\nFits on 2 (clinic) still count "
        "together with 1 (clinic), because both count together with other data sets.\n"
    )
    answer = ledger("separate 1 3 2 --why 'other people' --json")
    assert answer == {"number": 1, "separated": [3, 2], "count_together": []}
    assert [each["fits"] for each in ledger("list --json")["datasets"]] == [1, 1, 1]


def test_a_fit_without_checkpoints_that_ended_without_a_word_is_recovered(enter, ledger, gone):
    enter()
    gone("book.sqlite", reached=10)
    assert "1 (1 interrupted)" in ledger("list")
    shown = ledger("show 1")
    assert "Fit 1 was interrupted at step 10 or earlier. It has no checkpoint" in shown
    assert "1 fit was interrupted" in shown
    answer = ledger("recover")
    assert answer == "Fit 1 (logistic): 10 of 40 steps may have been taken and count.\n"
    (spend,) = ledger("show 1 --json")["spends"]
    assert (spend["status"], spend["taken"], spend["interrupted"]) == ("recovered", 10, False)
    assert (
        "Totals count all planned steps, because an output may have decided when to stop"
        in ledger("show 1")
    )
    assert spend["epsilon"] == spend["promised_epsilon"] == 1
    assert ledger("recover --json") == {"recovered": []}


@pytest.fixture
def gone():
    """Turns the fits of a ledger into those of a process that is gone."""

    def put(path, reached):
        rewrite(path, status="reserved", owner="gone", taken=None, ended=None, reached=reached)

    return put


def test_everything_is_exported(fit, ledger, command, place):
    fit()
    assert command("ledger export --ledger book.sqlite --out all.json")[2] == "Saved: all.json\n"
    assert (
        json.loads((place / "all.json").read_text())
        == json.loads(ledger("export"))
        == Ledger("book.sqlite").export()
    )
    command("ledger export --ledger book.sqlite --out fits.csv")
    with open("fits.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["model"], row["epsilon"], row["planned"]) == (
        "clinic",
        "logistic",
        "1.0",
        "40",
    )
    assert (row["status"], row["taken"]) == ("settled", "40")
    assert json.loads(row["event"])["class"]


def test_a_ledger_that_breaks_under_a_fit_is_told_and_the_result_kept(fit, place, monkeypatch):
    def broken(self, *_):
        raise LedgerDiskError(self.path, errno.ENOSPC, "the disk is full.", code="disk full")

    for name in ("settle", "note_result", "budget_status"):
        monkeypatch.setattr(Ledger, name, broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = fit("--out run")
    assert code == 0
    assert (place / "run" / "result.json").exists()
    assert "Note: ledger=" in out
    assert "Ledger: " not in out
    lines = err.splitlines()
    assert len(lines) == 3
    assert all(
        line.startswith(f"workbench fit: warning: ledger={str(place / 'book.sqlite')!r}: the disk")
        for line in lines
    )


def test_a_full_disk_ends_a_fit_in_one_line_that_is_no_bad_argument(fit, monkeypatch):
    def full(self, *_, **__):
        raise LedgerDiskError(self.path, errno.ENOSPC, "the disk is full.", code="disk full")

    monkeypatch.setattr(Ledger, "reserve", full)
    code, out, err = fit()
    assert (code, out) == (1, "")
    assert err.startswith("workbench fit: ledger=")
    assert err.count("\n") == 1


def test_a_file_that_may_not_be_used_ends_a_command_in_one_line(command, monkeypatch):
    """Of any file; what has neither a file nor a reason is an error of the program, with its
    traceback.
    """

    def refused(self):
        raise PermissionError(errno.EACCES, "Permission denied", "/state/file")

    monkeypatch.setattr(Ledger, "datasets", refused)
    assert command("ledger list") == (1, "", "workbench ledger: /state/file: Permission denied.\n")
    monkeypatch.setattr(Ledger, "datasets", lambda self: os.close(-1))
    with pytest.raises(OSError, match="Bad file descriptor"):
        command("ledger list")


# ---- names that would do something, files that are lost ------------------------------------------


HOSTILE = "=1+1\x1b[2J\x1b]0;owned\x07\n\u202e"


@pytest.fixture
def hostile(place, private_data):
    """As another program may have written it: none of it is accepted here."""
    book = Ledger("book.sqlite")
    known = id_of(private_data)._replace(name=HOSTILE, unit="\x1b[31mpatient")
    book.reserve(known, [promise()], model="@model")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_validate, "reason", lambda name, value: value)
        book.set_cap(1, 3.0, 1e-5, why="\x1b[5m")
    return book


def test_names_do_not_steer_the_terminal(command, hostile):
    for arguments in ("list", "show 1", "cap 1", "recover", "show 2"):
        _, out, err = command("ledger", arguments, "--ledger book.sqlite")
        assert all(line.isprintable() for line in (out + err).splitlines())
        if arguments != "recover":
            assert r"=1+1\x1b[2J\x1b]0;owned\x07\n\u202e" in out + err


def test_names_are_no_formulas_in_an_exported_table(command, hostile, place):
    assert command("ledger export --out spends.csv --ledger book.sqlite")[0] == 0
    with open(place / "spends.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["model"], row["epsilon"]) == (f"'{HOSTILE}", "'@model", "1.0")


def test_a_lost_ledger_is_refused_until_it_is_begun_anew(command, hostile, place):
    (place / "book.sqlite").write_bytes(b"")
    line = refused(command("ledger list --ledger book.sqlite"))
    assert "is damaged or not a ledger" in line
    assert "workbench ledger begin-anew" in line
    code, out, _ = command("ledger begin-anew --ledger book.sqlite")
    assert code == 0
    assert "is a new, empty ledger" in out
    assert "The damaged file was moved to" in out
    assert "has no entries" in command("ledger list --ledger book.sqlite")[1]
    assert "is in order" in refused(command("ledger begin-anew --ledger book.sqlite"))


def test_a_lost_key_is_replaced_on_demand(command, hostile, place, fit):
    (place / "book.sqlite.key").unlink()
    line = refused(fit())
    assert "its key, book.sqlite.key beside it, is missing" in line
    assert command("ledger new-key --ledger book.sqlite")[0] == 0
    assert "has its key" in refused(command("ledger new-key --ledger book.sqlite"))


@pytest.mark.parametrize("what", ["file", "key"])
def test_a_folder_that_cannot_be_used_is_said_on_one_line(fit, place, what):
    """Of the workbench's own; a fit that was to be entered nowhere does without it."""
    if what == "file":
        (place / "state").write_text("no folder")
    else:
        (place / "state" / "ledger.sqlite.key").mkdir(parents=True)
        (place / "state" / "fingerprint.key").mkdir()
    assert "workbench fit: ledger=" in refused(fit(ledger=[]))
    code, _, err = fit(ledger=["--no-ledger"])
    assert code == 0
    assert "warning: No checkpoints are written, so a crash would lose the fit: " in err
    assert fit("--no-checkpoint", ledger=["--no-ledger"])[2] == ""
