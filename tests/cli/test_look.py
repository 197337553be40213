"""``workbench look``: what it shows, prints and spends."""

import json

import pytest

from tests.conftest import refused
from workbench.ledger.ledger import Ledger


def test_columns_are_shown_with_their_promise_and_spent(command, place, private_frame):
    code, out, err = command("look clinic.csv --epsilon 1 --bounds dose=0:200 age=0:200")
    assert (code, err) == (0, "")
    dose, age = out.splitlines()[:2]
    assert dose.startswith("dose  median ")
    median = float(age.partition("median ")[2].partition(",")[0])
    assert abs(median - private_frame["age"].median()) < 10
    (row,) = Ledger().spends()
    assert row.guarantee.statement() in out
    assert {entry.name for entry in Ledger().datasets()} == {"clinic"}


def test_of_all_columns_as_one_object(command, place):
    code, out, _ = command("look clinic.csv --epsilon 20 --json")
    assert code == 0
    answer = json.loads(out)
    assert {"dose", "age", "ill"} <= answer["columns"].keys()
    assert answer["guarantee"]["epsilon"] == 20.0


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("look none.csv --epsilon 1", "none.csv"),
        ("look clinic.csv", "--epsilon"),
        ("look clinic.csv --epsilon 1 --bounds 0:200", "bounds"),
        ("look clinic.csv --epsilon 1 --bounds dse=0:200", "'dose'"),
    ],
)
def test_what_cannot_be_used_is_named(command, place, words, names):
    assert names in refused(command(words))
    assert not Ledger().spends()
