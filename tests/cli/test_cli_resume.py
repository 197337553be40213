"""``workbench resume``: fits that were stopped or killed come to the end that they would have come
to.
"""

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest

import workbench as wb
from tests.conftest import refused, rewrite, shell_words
from workbench.cli import fit, main
from workbench.fitting import fits, prepared
from workbench.ledger.ledger import Ledger
from workbench.models import registry

pytestmark = pytest.mark.usefixtures("made_up_steps", "quick_report")

ROOT = pathlib.Path(__file__).parents[2]
FIT = "fit --data clinic.csv --target ill --epsilon 1 --delta 1e-3 --seed 3 --quiet"
BOUNDS = "--bounds dose=0:200 age=0:100 --look 0"
MODEL_FILE = """
import numpyro
import numpyro.distributions as dist
from workbench.models import register


def share(x, y=None, num_records=None, prior_scale=1.0):
    "How often it happens."
    level = numpyro.sample("level", dist.Normal(0.0, prior_scale))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=level), obs=y)
"""


@pytest.fixture
def stopped(command, place, monkeypatch):
    """Runs a command that is stopped after some chunks: (its answer with --json, the path to
    resume).
    """

    def run(*arguments, chunks=5):
        counter = itertools.count()
        with monkeypatch.context() as patch:
            patch.setattr(
                fit,
                "stopped_by_interrupt",
                lambda _: contextlib.nullcontext(lambda: next(counter) >= chunks),
            )
            code, out, err = command(*arguments, "--json --quiet")
        name = f"workbench {arguments[0].split()[0]}"
        kept = f"{name}: stopped; the partial result is kept.\n"
        # then it is kept nowhere
        assert (code, err) == (130, "" if "--no-checkpoint" in arguments[-1] else kept)
        answer = json.loads(out)
        assert answer["status"] == "cancelled"
        return answer, answer["resume"]

    return run


@pytest.fixture
def paused(stopped):
    """The path of a run of 400 steps that was stopped after 10 of them."""
    answer, path = stopped(FIT, BOUNDS, "--iterations 400", chunks=1)
    assert answer["guarantee"]["steps_taken"] == 10
    return path


@pytest.fixture
def no_steps(paused, monkeypatch):
    """From here on, ``paused`` must not go on."""
    _refuse_steps(monkeypatch)


def _refuse_steps(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a step was taken")

    monkeypatch.setattr(prepared, "run_training", refuse)


def same_params(one, other):
    one, other = wb.load(one).params, wb.load(other).params
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def killed_amid(arguments, runs):
    """Runs the command in a process of its own and kills it when it has written a checkpoint amid
    its steps.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *shell_words(*arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 120
    try:
        while not list(runs.glob("*/step-*[1-9]*.npz")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == -9, errors


@pytest.mark.integration
@pytest.mark.whole_fit  # begun by another process
def test_a_killed_fit_ends_as_it_would_have_ended_and_counts_once(command, place):
    settings = [BOUNDS, "--iterations 100000"]
    killed_amid([FIT, *settings, "--out killed"], place / "state" / "runs")

    facts = json.loads(command("ledger show clinic --json")[1])
    (spend,) = facts["spends"]
    assert (facts["interrupted"], facts["epsilon"], facts["delta"]) == ([1], 1.0, 0.001)  # whole
    assert (spend["status"], spend["interrupted"], spend["taken"]) == ("reserved", True, None)
    assert 0 < spend["reached"] <= spend["planned"] == 100_000
    shown = command("ledger show clinic")[1]
    assert f"To continue it: workbench resume {shlex.quote(spend['run'])}\n" in shown
    assert "1 fit was interrupted" in shown
    (run,) = json.loads(command("resume --json")[1])["runs"]
    assert (run["path"], run["is_finished"]) == (spend["run"], False)
    assert 0 < run["step"] < 100_000

    code, out, _ = command("resume", spend["run"])
    assert code == 0
    assert out.splitlines()[-1] == "Ledger: on 'clinic' one fit spent epsilon = 1 at delta = 0.001."
    assert f"Saved: {place / 'killed' / 'report.html'}" in out
    facts = json.loads(command("ledger show clinic --json")[1])
    (spend,) = facts["spends"]
    assert (facts["interrupted"], facts["epsilon"]) == ([], 1.0)
    assert (spend["status"], spend["taken"], spend["result"]) == (
        "settled",
        100_000,
        str(place / "killed"),
    )

    command(FIT, *settings, "--no-ledger --out whole")
    assert same_params("killed", "whole")


def test_a_stopped_fit_says_how_to_go_on(command, place, monkeypatch):
    monkeypatch.setattr(fit, "stopped_by_interrupt", lambda _: contextlib.nullcontext(lambda: True))
    code, out, _ = command(FIT, BOUNDS, "--iterations 400")
    (run,) = (place / "state" / "runs").iterdir()
    assert code == 130
    assert f"To continue within the same promise: workbench resume {run}\n" in out
    assert out.splitlines()[-1] == "Ledger: on 'clinic' one fit spent nothing."


def test_a_fit_without_checkpoints_does_not(stopped):
    answer, path = stopped(FIT, BOUNDS, "--iterations 400 --no-checkpoint")
    assert path is None
    assert answer["ledger"]["stopped"] == [1]
    # of all planned steps: an output may have decided when to stop
    assert answer["ledger"]["epsilon"] == 1


def test_a_stopped_fit_spent_what_was_planned(command, paused, monkeypatch):
    chunks = itertools.count()
    monkeypatch.setattr(
        fit, "stopped_by_interrupt", lambda _: contextlib.nullcontext(lambda: next(chunks) >= 2)
    )
    out = command("resume", paused, "--quiet")[1]
    assert out.splitlines()[-1].endswith("one fit spent epsilon = 1 at delta = 0.001.")


@pytest.mark.thorough
def test_a_fit_may_be_stopped_again_and_go_on(command, stopped, paused):
    answer, path = stopped("resume", paused)
    assert path == paused
    assert 10 < answer["guarantee"]["steps_taken"] < 400
    code, out, err = command("resume", path, "--json --quiet --out run")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["status"], answer["resume"], answer["out"]) == ("done", None, "run")
    assert (answer["ledger"]["fits"], answer["ledger"]["epsilon"]) == (1, 1.0)
    command(FIT, BOUNDS, "--iterations 400 --no-ledger --out whole")
    assert same_params("run", "whole")


def test_the_bar_begins_where_the_run_goes_on(command, paused):
    _, _, err = command("resume", paused)
    assert "10/400" in err
    assert "400/400" in err


@pytest.mark.thorough
def test_files_are_found_from_another_folder(command, place, stopped, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (place / "share.py").write_text(MODEL_FILE)
    schema = {name: {"kind": "numeric", "low": 0, "high": 200} for name in ("dose", "age")}
    (place / "schema.json").write_text(json.dumps(schema))
    options = [
        "--model share.py:share --option prior_scale=2 --schema schema.json --iterations 400"
    ]
    _, path = stopped(FIT, *options, "--out run --ledger book.sqlite")
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    code, out, _ = command(
        "resume", pathlib.Path("..") / pathlib.Path(path).relative_to(place), "--quiet"
    )
    assert code == 0
    assert f"Saved: {place / 'run' / 'report.html'}" in out
    monkeypatch.chdir(place)
    assert [spend.status for spend in Ledger("book.sqlite").spends()] == ["settled"]
    command(FIT, *options, "--no-ledger --out whole")
    assert same_params("run", "whole")


def test_runs_are_listed(command, place, paused):
    command(FIT, BOUNDS, "--iterations 40 --no-ledger")
    header, newest, oldest = command("resume")[1].splitlines()
    assert header.split() == ["model", "data", "epsilon", "steps", "written", "path"]
    assert newest.split()[:4] == ["logistic", "clinic", "1", "finished"]
    assert oldest.split()[:6] == ["logistic", "clinic", "1", "10", "of", "400"]
    assert oldest.split()[-1] == paused
    runs = json.loads(command("resume --json")[1])["runs"]
    assert [(run["step"], run["steps"], run["is_finished"]) for run in runs] == [
        (40, 40, True),
        (10, 400, False),
    ]


def test_without_runs_there_is_nothing_to_list(command, place):
    assert command("resume") == (0, "No run has checkpoints.\n", "")
    assert json.loads(command("resume --json")[1]) == {"runs": [], "unusable": []}
    assert "path=None: name the run" in refused(command("resume --out run"))


# ---- refusals ------------------------------------------------------------------------------------


def test_a_run_of_another_version_process_or_records_is_refused_and_a_damaged_one(
    command, place, paused, no_steps, private_frame, monkeypatch
):
    from workbench.fitting import digests

    with monkeypatch.context() as patch:
        patch.setattr(digests, "__version__", "0.0.0")
        line = refused(command("resume", paused))
        assert "another plan, version, model or kind of machine" in line

    records, table = (place / "clinic.csv").read_bytes(), place / "clinic.csv"
    private_frame.head(200).assign(age=50).to_csv(table, index=False)
    assert "other records" in refused(command("resume", paused))
    table.unlink()
    assert f"path={str(table)!r}: no such file." in refused(command("resume", paused))
    table.write_bytes(records)

    book = place / "state" / "ledger.sqlite"
    rewrite(book, status="reserved", taken=None, owner="another")
    with open(place / "state" / "ledger.sqlite.owners" / "another", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "says that fit 1 is running in another process" in refused(command("resume", paused))

    for file in pathlib.Path(paused).iterdir():
        file.write_bytes(b"no checkpoint any more")
    assert "holds no saved state" in refused(command("resume", paused))
    lines = command("resume")[1].splitlines()
    # its files may hold the key all the same
    assert (lines[0], lines[-1]) == ("No run has checkpoints.", paused)
    for file in pathlib.Path(paused).iterdir():
        file.unlink()
    assert command("resume")[1] == "No run has checkpoints.\n"
    assert f"workbench resume: path={paused!r}: contains no checkpoint of a fit.\n" == refused(
        command("resume", paused)
    )


def test_a_cap_holds_for_the_rest_unless_it_is_overrun(command, paused):
    command("ledger cap clinic --epsilon .5 --delta 1e-3 --why 'the board'")
    line = refused(command("resume", paused, "--quiet"))
    assert line.startswith(
        "workbench resume: epsilon=1.0: this fit would raise what is spent on 'clinic' above its "
        "cap"
    )
    assert "give --over-cap REASON" in line
    code, out, _ = command("resume", paused, "--quiet --over-cap 'it had begun'")
    assert code == 0
    assert " of the cap " in out.splitlines()[-1]
    assert "over the cap: it had begun" in command("ledger show clinic")[1]


def test_interrupting_the_preparation_spends_no_more(command, paused, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(fits, "prepare", interrupt)
    code, out, err = command("resume", paused)
    assert (code, out) == (130, "")
    assert "no further epsilon spent" in err


# ---- fits from elsewhere -------------------------------------------------------------------------


def stopped_call(data, folder, **settings):
    """``workbench.fit`` in Python, stopped early."""
    chunks = itertools.count()
    return wb.fit(
        "logistic",
        data,
        epsilon=1.0,
        iterations=300,
        seed=1,
        **settings,
        execution=wb.Execution(checkpoint=folder, stop=lambda: next(chunks) >= 5),
    )


def test_a_fit_of_a_call_goes_on(command, place):
    assert stopped_call("breast_cancer", "run").status == "cancelled"
    code, out, _ = command("resume run --json --quiet")
    answer = json.loads(out)
    assert (code, answer["status"], answer["ledger"]) == (0, "done", None)
    assert answer["guarantee"]["steps_taken"] == 300


def test_a_fit_of_records_in_memory_cannot_be_asked_for_again(command, place, private_data):
    stopped_call(private_data, place / "run", delta=1e-3)
    assert "data=None: checkpoints do not contain the records of 'clinic'" in refused(
        command("resume", place / "run")
    )


# ---- the words of a fit --------------------------------------------------------------------------


def asked_for(*arguments):
    """The arguments of a fit as the command understands them."""
    return main.parser().parse_args(shell_words("fit", *arguments))


@pytest.mark.parametrize(
    "options",
    [
        "--seed 9007199254740993 --sampling-rate 1/3 --iterations 2000 --no-average",
        ("--average --evaluation-public --unit-mean --split-seed 1 --evaluation-fraction .5"),
        "--bounds -1:1 --positive=-yes --features 'a b' c --groups x",
        "--formula 'ill ~ age' --family bernoulli --link probit --unit-id who --max-rows 2",
        "--no-ledger --no-checkpoint --over-cap 'two words' --json --quiet",
        ("--option prior_scale=2 prior=normal --model gmm --sampler shuffle --device gpu:1"),
    ],
)
def test_the_words_of_a_fit_give_its_arguments_again(options):
    asked = asked_for("--data adult --epsilon 1", options)
    again = fit.fit_arguments(fit.fit_words(asked))
    assert vars(again) == {
        name: value for name, value in vars(asked).items() if name not in ("command", "run")
    }


def test_paths_in_the_words_are_absolute(place):
    asked = asked_for(
        "--data clinic.csv --epsilon 1 --model my.py:one --bounds bounds.json --out run --schema "
        "schema.json --group-features groups.csv --ledger ~/book.sqlite --path adult --target "
        "clinic.csv"
    )
    found = vars(fit.fit_arguments(fit.fit_words(asked)))
    assert {
        name: found[name] for name in ("data", "model", "out", "schema", "group_features", "path")
    } == {
        "data": str(place / "clinic.csv"),
        "model": str(place / "my.py:one"),
        "out": str(place / "run"),
        "schema": str(place / "schema.json"),
        "group_features": str(place / "groups.csv"),
        "path": str(place / "adult"),
    }
    assert found["bounds"] == [str(place / "bounds.json")]
    assert found["ledger"] == os.path.expanduser("~/book.sqlite")
    assert found["target"] == "clinic.csv"


@pytest.mark.parametrize(
    "options", ["--data adult", "--model logistic", "--bounds dose=0:200 age=0:1"]
)
def test_names_are_left_as_they_are(options):
    needed = "" if "--data" in options else "--data adult"
    found = fit.fit_words(asked_for(needed, "--epsilon 1", options))
    assert not any(os.sep in word for word in found)
