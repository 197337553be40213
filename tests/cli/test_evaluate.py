"""``workbench evaluate``: what it scores, prints and spends."""

import json
import shutil

import pytest

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS, refused
from workbench.ledger.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_report")

SCHEMA = {"dose": (0, 200), "age": (0, 200), "ill": bool}


@pytest.fixture(scope="module", params=EITHER_STEPS)
def results(request, private_frame, tmp_path_factory):
    """Folders of two results, of other records than those of clinic.csv."""
    other, folder = private_frame.sample(frac=0.5, random_state=1), tmp_path_factory.mktemp("saved")
    more = {"family": "bernoulli", "schema": SCHEMA, "ledger": False, "epsilon": 2.0}
    more |= {"iterations": 30, "privacy": wb.Privacy(look=0.0)}
    with fakes.installed(request.param == "made up"):
        for name, formula in (("both", "ill ~ dose + age"), ("one", "ill ~ age")):
            wb.fit(formula, other, **more).save(folder / name)
    return folder


@pytest.fixture
def saved(results, place):
    shutil.copytree(results, place, dirs_exist_ok=True)


def test_scores_are_printed_with_their_promise_and_spent(command, saved):
    code, out, err = command("evaluate both clinic.csv --epsilon 1 --delta 0.001")
    assert (code, err) == (0, "")
    assert "auc" in out
    assert "(covered)" in out
    (row,) = Ledger().spends()
    assert row.guarantee.statement() in out
    assert {entry.name for entry in Ledger().datasets()} == {"clinic"}


def test_a_difference_as_one_object(command, saved):
    code, out, _ = command("evaluate both clinic.csv --against one --epsilon 1 --json")
    assert code == 0
    answer = json.loads(out)
    (name,) = answer["metrics"]
    low, high = answer["intervals"][name]
    assert low <= answer["metrics"][name] <= high
    assert (answer["calibration"], answer["label"]) == ([], "covered")
    assert answer["guarantee"]["epsilon"] == 1.0


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("evaluate none clinic.csv --epsilon 1", "none"),
        ("evaluate both none.csv --epsilon 1", "none.csv"),
        ("evaluate both clinic.csv --epsilon 0", "epsilon"),
        ("evaluate both clinic.csv", "--epsilon"),
    ],
)
def test_what_cannot_be_used_is_named(command, saved, words, names):
    assert names in refused(command(words))
    assert not Ledger().spends()
