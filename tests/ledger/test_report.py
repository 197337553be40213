"""The report of a ledger: every fit and total, what is left, and no seed."""

import contextlib
import csv
import io
import sqlite3

import pytest
import yaml

from tests.privacy.promises import promise
from workbench.ledger.ledger import DatasetId, Ledger

SEED = 7654321


def spent(book, name, epsilon, steps, **options):
    """A fit that ended after ``steps`` steps; None leaves it reserved by a process that is gone."""
    identity = DatasetId(name, "patient", lambda key: f"{name:0<32}")
    fit = {"model": "logistic", "plan": str(epsilon), **options}
    (key,) = book.reserve(identity, [promise(epsilon)], **fit)
    book.mark([key], steps)
    if steps is not None:
        book.settle(key, steps)
        return
    with contextlib.closing(sqlite3.connect(book.path)) as database, database:
        database.execute("UPDATE spends SET owner = 'gone' WHERE key = ?", (key,))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    book = Ledger(tmp_path_factory.mktemp("report") / "book.sqlite")
    spent(book, "<clinic>", 0.5, 500)
    spent(book, "<clinic>", 0.4, 3, seed=SEED)
    spent(book, "<clinic>", 0.3, 3, seed=SEED)
    book.set_cap(1, 2.0, 1e-5, why="the <board> decided")
    spent(book, "other", 1.0, None)
    spent(book, "related", 0.5, 500)
    book.relate("other", "related", why="the same people")
    return book


def test_the_page_says_who_spent_what_and_what_is_left(book):
    first, second = (book.budget_status(number) for number in (1, 2))
    page = book.report().to_html()
    assert page.count("<h2>") == 2 + 2  # related data sets have one
    assert "Data set 1 (&lt;clinic&gt;)" in page
    assert "Data set 2 (other), 3 (related)" in page
    assert "<board>" not in page
    assert "Reason: the &lt;board&gt; decided" in page
    for status in (first, second):
        for spend in status.spends:
            assert f">{spend.number}</td>" in page
            assert spend.who in page
    more = first.how_many_more(first.spends[-1].guarantee)
    assert f"{more} more fits like the last" in page
    assert "1 interrupted" in page
    assert f"epsilon {second.total.epsilon:g} at delta 1e-05" in page
    assert "no finite epsilon" in page  # of two fits with one seed
    assert "Fits with a seed: 2, 3." in page


def test_somebody_in_all_data_sets_lost_more_than_in_one(tmp_path):
    book = Ledger(tmp_path / "book.sqlite")
    for name in ("one", "two"):
        spent(book, name, 0.5, 500)
    one = book.budget_status("one").total.epsilon
    page = book.report().to_html()
    totals = page.split("Totals by protected unit")[1].split("</table>")[0]
    both = float(totals.rsplit("epsilon ", 1)[1].split()[0])
    assert one == 0.5
    assert 0.6 < both < 1.0


def test_the_table_has_a_line_for_each_fit(book):
    rows = list(csv.DictReader(io.StringIO(book.report().to_csv())))
    assert [row["fit"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["status"] for row in rows][3] == "interrupted"
    assert [row["total_epsilon"] for row in rows][:3] == ["", "", ""]
    assert float(rows[4]["total_epsilon"]) == book.budget_status(2).total.epsilon
    assert [row["seeded"] for row in rows] == ["False", "True", "True", "False", "False"]


def test_a_registry_gets_no_reasons_and_no_conditions(book):
    texts = yaml.safe_load(book.report().composition())
    assert list(texts) == ["1 (<clinic>)", "2 (other), 3 (related)"]
    assert "board" not in str(texts)
    assert "Both fits together" in texts["2 (other), 3 (related)"]


@pytest.mark.parametrize("form", ["to_html", "to_csv", "composition"])
def test_no_seed_is_in_a_report(book, form):
    assert str(SEED) not in getattr(book.report(), form)()


def test_an_empty_ledger_has_a_report(tmp_path):
    report = Ledger(tmp_path / "none.sqlite").report("2026-01-31T12:00:00Z")
    assert "Nothing has been recorded" in report.to_html()
    assert "2026-01-31 12:00 UTC" in report.to_html()
    assert (report.to_csv(), report.composition()) == ("", "{}\n")
