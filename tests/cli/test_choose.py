"""``workbench choose``: what it compares, prints, keeps and refuses, and how it exits."""

import contextlib
import json
import re
from pathlib import Path

import pytest

import workbench as wb
from tests.conftest import refused, some_of
from workbench.cli import choose
from workbench.fitting.choosing import Choice
from workbench.ledger.ledger import Ledger
from workbench.privacy.selection import Runs

pytestmark = pytest.mark.usefixtures("made_up_steps", "quick_report")

TABLE = "choose --data clinic.csv --target ill --bounds dose=0:200 age=0:100"
FORMULAS = "choose --data clinic.csv --schema schema.json --family bernoulli"
FAST = "--epsilon 1 --runs 3 --iterations 20"
TWO = "--candidate model=logistic,clip=0.5 --candidate 'model=logistic, learning_rate=0.01'"


@pytest.fixture
def clinic(place):
    columns = {name: {"kind": "numeric", "low": 0, "high": 200} for name in ("dose", "age")}
    (place / "schema.json").write_text(json.dumps({**columns, "ill": {"kind": "boolean"}}))
    return place


@pytest.fixture(autouse=True)
def of_many_records(request, monkeypatch):
    """No scores are so noisy that there is a warning, in tests of what else is said."""
    if "warning" not in request.node.name:
        monkeypatch.setattr(Choice, "scores_ahead", ())


@pytest.fixture(autouse=True)
def of_two_runs(monkeypatch):
    """How many there are is random."""
    monkeypatch.setattr(Runs, "draw", lambda self, secret: 2)


def test_the_best_of_formulas_is_shown_and_saved_under_one_promise(command, clinic):
    formulas = ["ill ~ dose", "ill ~ dose + age"]
    words = [f"--formula '{formula}'" for formula in formulas]
    code, out, err = command(FORMULAS, *words, FAST, "--out run")
    assert (code, err) == (0, "")
    result = wb.load("run")
    number = result.settings["chosen"]
    assert result.model_options["formula"] == formulas[number - 1]
    first, *others = out.splitlines()
    assert first == f"Chosen: candidate {number} of 2, model={formulas[number - 1]}"
    text = "\n".join(others)
    assert result.guarantee.statement() in text
    assert f"Coefficients: {formulas[number - 1]}\n" in text
    score = r"-?\d\.\d{4} \(\S+ to \S+\)"
    assert re.search(rf"\nHeld-out \(covered\): log_likelihood {score}, auc ", text)
    assert text.endswith("Ledger: on 'clinic' one fit spent epsilon = 1 at delta = 0.001.")
    (row,) = Ledger().spends()
    assert row.guarantee.epsilon == 1.0


def test_candidates_of_a_table_as_one_object_beside_a_warning_of_noise(command, clinic):
    code, out, err = command(TABLE, TWO, FAST, "--by auc --json")
    assert code == 0
    assert re.search(r"warning: Noise is more than twice .* of fewer than about \d+ held-out", err)
    answer = json.loads(out)
    texts = ["model=logistic,clip=0.5", "model=logistic,learning_rate=0.01"]
    assert answer["candidate"] == texts[answer["chosen"] - 1]
    assert list(answer["metrics"]) == list(answer["intervals"])
    assert answer["guarantee"]["epsilon"] == 1.0
    assert len(answer["guarantee"]["candidates"]) == 2


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("model=logistic", {"model": "logistic"}),
        ("model=logistic, clip=0.5,average=false", {"clip": 0.5, "average": False}),
        ("model=ill ~ s(age, k=3) + dose,clip=1", {"model": "ill ~ s(age, k=3) + dose", "clip": 1}),
        (
            'model={"name": "logistic", "prior_scale": 2},clip=1',
            {"model": {"name": "logistic", "prior_scale": 2}, "clip": 1},
        ),
    ],
)
def test_a_candidate_in_one_text(text, settings):
    assert choose._candidate(text) == {"model": "logistic", **settings}


PLANS = {
    "lists.toml": """
epsilon = 3
runs = 3
[candidates]
model = ["logistic", {name = "logistic", prior_scale = 0.5}]
clip = [0.5, 1.0]
[privacy]
clipping = "automatic"
""",
    "tables.toml": """
epsilon = 3
runs = 3
[privacy]
clipping = "automatic"
[[candidates]]
model = "logistic"
[[candidates]]
model = {name = "logistic", prior_scale = 0.5}
clip = 0.5
""",
    "list.json": json.dumps(
        {
            "epsilon": 3,
            "runs": 3,
            "privacy": {"clipping": "automatic"},
            "candidates": ["logistic", {"model": "logistic", "clip": 0.5}],
        }
    ),
}


@pytest.mark.parametrize("name", some_of(list(PLANS)))
def test_a_plan_has_candidates_and_settings_and_options_override_it(command, clinic, name):
    Path(name).write_text(PLANS[name])
    code, out, err = command(TABLE, "--iterations 20 --json --epsilon 1", name)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert len(answer["guarantee"]["candidates"]) == (4 if name == "lists.toml" else 2)
    assert answer["guarantee"]["clipping"] == "automatic"
    assert answer["guarantee"]["epsilon"] == 1.0
    assert Runs(**answer["guarantee"]["runs"]) == Runs.of_mean(3)


def test_nothing_tells_how_many_fits_there_were(command, clinic, monkeypatch):
    shown = []
    for number in (1, 4):
        monkeypatch.setattr(Runs, "draw", lambda self, secret, number=number: number)
        words = "--candidate model=logistic --no-ledger --delta 0.01"
        code, out, err = command(TABLE, words, FAST)
        before, _, after = out.partition("Parameters and posterior")
        names = ("Coefficients", "intercept", "dose", "age", "Held-out")
        rows = [line.split()[0] for line in after.splitlines() if line.startswith(names)]
        shown.append((code, before.partition("Caution")[0], rows, err))
    assert shown[0] == shown[1]
    code, _, _, err = shown[0]
    assert code == 0
    assert err.startswith("workbench choose: warning: delta=0.01 ")
    assert err.count("\n") == 1


def test_a_stopped_choice_shows_nothing_and_the_same_command_continues_it(
    command, clinic, monkeypatch
):
    plan = Path("plan.toml")
    plan.write_text(PLANS["lists.toml"])
    with monkeypatch.context() as stopped:
        stopped.setattr(
            choose, "stopped_by_interrupt", lambda words: contextlib.nullcontext(lambda: True)
        )
        code, out, err = command(TABLE, FAST, "--out run", plan)
    assert (code, out) == (130, "")
    assert err == (
        "workbench choose: stopped; nothing is shown. The same command continues the choice, whose "
        "epsilon is spent once.\n"
    )
    assert not Path("run").exists()
    assert command(TABLE, FAST, "--out run", plan)[0] == 0
    (row,) = Ledger().spends()
    assert row.status == "settled"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (f"{TABLE} {FAST}", "candidates=[]: must be options --candidate and --formula, or"),
        (f"{TABLE} {TWO} --runs 3", "epsilon=None: must be a finite number"),
        (f"{TABLE} {TWO} {FAST} --by elbo", "by='elbo': unknown name; known: "),
        (f"{TABLE} --candidate logistic {FAST}", "candidate='logistic': write NAME=VALUE, as in "),
        (f"{TABLE} --candidate clip=1 {FAST}", "model=None: must be a name or a file"),
        (f"{TABLE} --candidate model=logistic,epsilon=9 {FAST}", "candidates='epsilon': is no "),
        (f"{FORMULAS} --formula 'ill ~ dose' {FAST} --target ill", "target='ill': is not for"),
        (f"{TABLE} {FAST} plan.json {TWO}", "must be options --candidate and --formula, or else"),
        (f"{TABLE} {FAST} none.json", "plan='none.json': no such file."),
        (f"{TABLE} {FAST} data.json", "plan='data': unknown name"),
        (f"choose {TWO} {FAST}", "--data"),
        (f"{TABLE} {TWO} {FAST} --quiet", "--quiet"),
        (f"{TABLE} {TWO} {FAST} --evaluate-private", "--evaluate-private"),
    ],
)
def test_what_cannot_be_chosen_is_one_line_and_spends_nothing(command, clinic, words, line):
    Path("plan.json").write_text('{"candidates": ["logistic"]}')
    Path("data.json").write_text('{"candidates": ["logistic"], "data": "breast_cancer"}')
    assert line in refused(command(words))
    assert not Ledger().spends()
