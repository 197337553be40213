"""``workbench sweep``: what it runs, asks, prints and keeps, and how it exits."""

import contextlib
import gc
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from tests import fakes
from tests.conftest import EITHER_STEPS, shell_words
from workbench.cli import main
from workbench.sweeps import prepared as prepared_sweeps
from workbench.sweeps import sweeping

pytestmark = pytest.mark.usefixtures("made_up_steps")

ROOT = pathlib.Path(__file__).parents[2]
PUBLIC = """
model: logistic
data: breast_cancer
epsilons: [1, 4]
seeds: [0, 1]
iterations: 20
delta: 1e-3
baselines: [scikit-learn]
store: fits.sqlite
"""
PRIVATE = """
model = "logistic"
epsilons = [1, 4]
seeds = 2
iterations = 20
[data]
file = "clinic.csv"
target = "ill"
unit = "patient"
bounds = {dose = [0, 200], age = [0, 100]}
"""
SETTINGS = {
    "method",
    "epsilon",
    "seed",
    "noise_multiplier",
    "auc",
    "elbo",
    "status",
    "label",
    "release_label",
}


@pytest.fixture(scope="module", params=EITHER_STEPS)
def public(request, tmp_path_factory):
    """(exit code, standard output, standard error, folder) of a sweep over public records with
    --json and --out.
    """
    folder = tmp_path_factory.mktemp("public")
    (folder / "plan.yaml").write_text(PUBLIC)
    arguments = ["sweep", str(folder / "plan.yaml"), "--json --out", str(folder / "out" / "first")]
    with (
        fakes.installed(request.param == "made up"),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main.main(shell_words(*arguments))
    return code, out.getvalue(), err.getvalue(), folder


@pytest.fixture
def private(private_frame, tmp_path):
    """A plan over private records."""
    private_frame.to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "plan.toml").write_text(PRIVATE)
    return tmp_path / "plan.toml"


@pytest.fixture
def no_steps(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a fit was begun")

    monkeypatch.setattr(prepared_sweeps, "run_group", refuse)


@pytest.fixture
def ends(monkeypatch):
    """Puts an end of a chosen kind in place of the fits."""

    def put(status, message=""):
        def run(prepared, *_, **__):
            prepared.status, prepared.message = status, message
            return prepared.result()

        monkeypatch.setattr(sweeping.PreparedSweep, "run", run)

    return put


@pytest.fixture
def at_terminal(monkeypatch):
    """Answers what is asked at a terminal."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def answer(text):
        monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    return answer


def refused(command, *arguments):
    """The last line on standard error with which a sweep is refused."""
    code, out, err = command("sweep", *arguments)
    assert (code, out) == (2, "")
    return err.splitlines()[-1]


def test_json_is_one_object_on_standard_output(public):
    code, out, err, _ = public
    assert (code, out.count("\n")) == (0, 1)
    answer = json.loads(out)
    assert list(answer) == ["status", "message", "statement", "total", "planned", "stored", "fits"]
    assert (answer["status"], answer["message"], answer["total"]) == ("done", "", None)
    assert (answer["planned"], answer["stored"]) == (5, 0)
    assert answer["statement"] == "These records are public or made up: no privacy is spent."
    assert "5/5" in err


def test_fits_are_rows_without_infinities(public, request):
    *fits, baseline = json.loads(public[1])["fits"]
    assert all(fit.keys() >= SETTINGS for fit in fits)
    assert sorted((fit["epsilon"], fit["seed"]) for fit in fits) == [
        (1.0, 0),
        (1.0, 1),
        (4.0, 0),
        (4.0, 1),
    ]
    assert {fit["label"] for fit in fits} == {"public data"}
    least = 0.8 if "real" in request.node.name else 0
    assert all(least < fit["auc"] <= 1 for fit in fits)
    assert (baseline["method"], baseline["epsilon"], baseline["elbo"]) == (
        "scikit-learn",
        None,
        None,
    )
    assert 0.9 < baseline["auc"] <= 1


def test_table_figure_and_plan_are_written(public):
    *_, err, folder = public
    out = folder / "out" / "first"
    assert {file.name for file in out.iterdir()} == {"table.csv", "figure.png", "plan.yaml"}
    assert (out / "plan.yaml").read_text() == PUBLIC
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(out / "table.csv", index_col="number")
    assert table["auc"].tolist() == pytest.approx(
        [fit["auc"] for fit in json.loads(public[1])["fits"]]
    )
    assert f"Saved: {out / 'table.csv'}\n" in err
    assert f"Saved: {out / 'figure.png'}\n" in err


def test_a_second_call_takes_all_fits_from_the_store(command, public, no_steps):
    *_, folder = public
    code, out, _ = command("sweep", folder / "plan.yaml", "--json --quiet")
    first, second = json.loads(public[1]), json.loads(out)
    assert code == 0
    assert second.pop("stored") == 5
    first.pop("stored")
    assert second == first


def test_people_get_mean_and_deviation(command, public, no_steps):
    *_, folder = public
    code, out, err = command("sweep", folder / "plan.yaml", "--quiet")
    assert (code, err) == (0, "")
    title, _, header, *rows = out.splitlines()
    assert title == "Held-out auc:"
    assert header.split() == ["method", "epsilon", "label", "fits", "mean", "deviation"]
    fits = pd.DataFrame(json.loads(public[1])["fits"])
    mean, deviation = (fits.loc[fits["epsilon"] == 4, "auc"].agg(name) for name in ("mean", "std"))
    assert rows[1].split() == [
        "dp-vi",
        "4",
        "public",
        "data",
        "2",
        f"{mean:.4g}",
        f"{deviation:.4g}",
    ]
    assert rows[2].split()[:2] + rows[2].split()[-1:] == ["scikit-learn", "inf", "-"]
    assert rows[3:] == [
        "",
        "5 of 5 fits are done.",
        "These records are public or made up: no privacy is spent.",
    ]


def test_a_dry_run_says_what_there_is_to_do(command, public, no_steps, tmp_path):
    *_, folder = public
    (folder / "more.yaml").write_text(
        PUBLIC.replace("[1, 4]", "[1, 2, 4]").replace("20", "[20, 30]")
    )
    code, out, err = command("sweep", folder / "more.yaml", "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(
        "13 fits: 5 in the store, 8 to run, 0 that cannot be run.\nThese records are public"
    )
    code, out, _ = command(
        "sweep", folder / "more.yaml", "--dry-run --json --store", tmp_path / "none.sqlite"
    )
    answer = json.loads(out)
    assert (code, answer["status"], answer["planned"], answer["stored"]) == (0, "planned", 13, 0)
    assert answer["fits"] == []
    assert list(tmp_path.iterdir()) == []


def test_fits_that_cannot_be_run_are_told_and_the_others_kept(command, public):
    *_, folder = public
    (folder / "large.yaml").write_text(PUBLIC.replace("delta", "batch_sizes: [null, 1000]\ndelta"))
    _, out, _ = command("sweep", folder / "large.yaml", "--dry-run")
    assert out.startswith(
        "9 fits: 5 in the store, 0 to run, 4 that cannot be run.\n4 refused: batch_size=1000: "
    )
    code, out, _ = command("sweep", folder / "large.yaml", "--quiet")
    assert code == 1
    assert "5 of 9 fits are done.\n4 refused: batch_size=1000: " in out


@pytest.mark.thorough
def test_a_caution_is_one_line_however_many_fits_it_is_about(command, public, tmp_path):
    (tmp_path / "plan.yaml").write_text(PUBLIC.replace("1e-3", "0.1"))
    code, out, err = command("sweep", tmp_path / "plan.yaml", "--dry-run --json")
    assert (code, json.loads(out)["planned"]) == (0, 5)
    assert err.startswith("workbench sweep: warning: delta=0.1 ")
    assert err.count("\n") == 1


def test_private_records_are_left_alone_until_the_total_is_accepted(command, private, no_steps):
    _, out, err = command("sweep", private, "--dry-run --json")
    answer = json.loads(out)
    total = answer["total"]
    assert (err, answer["status"], total["fits"]) == ("", "planned", 4)
    assert total["epsilon"] > 4
    line = refused(command, private)
    assert line.startswith(
        f"workbench sweep: accept_total_epsilon=None: {answer['statement']} To run it, give "
    )
    assert line.endswith(f" --accept-total-epsilon {total['epsilon']}.")
    line = refused(command, private, "--accept-total-epsilon", total["epsilon"] - 1e-4)
    assert line.startswith(
        f"workbench sweep: accept_total_epsilon={total['epsilon'] - 1e-4}: All 4 fits together"
    )


def test_an_accepted_sweep_over_private_records_runs_and_goes_on_from_its_store(
    command, private, monkeypatch
):
    total = json.loads(command("sweep", private, "--dry-run --json")[1])["total"]["epsilon"]
    accepted = [
        "sweep",
        private,
        "--accept-total-epsilon",
        total,
        "--store",
        private.parent / "s.sqlite",
        "--quiet",
    ]
    code, out, err = command(*accepted, "--out", private.parent / "out", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, f"Saved: {private.parent / 'out' / 'table.csv'}\n")
    assert answer["total"]["epsilon"] == total
    assert [fit["status"] for fit in answer["fits"]] == ["done"] * 4
    assert {fit["release_label"] for fit in answer["fits"]} == {"covered"}
    assert not {"auc", "elbo"}.intersection(answer["fits"][0])
    begun = []
    monkeypatch.setattr(
        prepared_sweeps, "run_group", lambda group, **_: begun.append(group) or iter(())
    )
    code, out, _ = command(*accepted)
    assert (code, begun) == (0, [])
    assert out.startswith("No held-out metrics: the evaluation records are private")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("YES", 0), ("", 130), ("n", 130)])
def test_at_a_terminal_the_total_is_asked_for(command, private, at_terminal, ends, answer, code):
    ends("done")
    at_terminal(answer)
    found, out, err = command("sweep", private, "--json")
    assert found == code
    assert "All 4 fits together, on the same records, satisfy" in err
    assert "Spend this? [y/N] " in err
    assert "without --store only the table is kept" in err
    assert err.endswith("not accepted; no epsilon spent.\n") == (code == 130)
    assert (out == "") == (code == 130)


def test_what_was_given_is_not_asked_again(command, private, at_terminal, ends):
    ends("done")
    at_terminal("y")
    assert refused(command, private, "--accept-total-epsilon 0.1").startswith(
        "workbench sweep: accept_total_epsilon=0.1: "
    )
    code, _, err = command(
        "sweep",
        private,
        "--accept-total-epsilon 99 --store",
        private.parent / "s.sqlite",
        "--quiet",
    )
    assert (code, err) == (0, "")


@pytest.mark.parametrize(("status", "code"), [("stopped", 130), ("interrupted", 1), ("done", 0)])
def test_exit_codes_follow_how_the_sweep_ended(command, public, ends, status, code):
    ends(status, "why.")
    found, out, _ = command("sweep", public[-1] / "plan.yaml", "--json")
    assert found == code
    assert json.loads(out)["message"] == "why."
    assert json.loads(out)["status"] == status


def test_a_store_that_fails_is_one_line(command, public, monkeypatch):
    def run(*_, **__):
        raise OSError("fits.sqlite: the disk is full.")

    monkeypatch.setattr(sweeping.PreparedSweep, "run", run)
    line = "workbench sweep: fits.sqlite: the disk is full.\n"
    assert command("sweep", public[-1] / "plan.yaml", "--quiet") == (1, "", line)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--workers 0", "workers=0: must be a whole number of at least 1 and at most 1024."),
        ("--workers two", "argument --workers: 'two' is not a number."),
        (
            "--workers 2 --scheduler tcp://here:1",
            "argument --scheduler: not allowed with argument --workers",
        ),
        ("--devices 99", "devices=99: is more than there are: JAX sees 1 of that kind."),
        ("--devices all --workers 2", "argument --workers: not allowed with argument --devices"),
        (
            "--scheduler here",
            "scheduler='here': cannot be reached (missing port number in address 'here').",
        ),
        ("--store /no/such/fits.sqlite", "store='/no/such/fits.sqlite': cannot be used"),
        ("--out /dev/null/out", "out='/dev/null/out': cannot write there"),
    ],
)
def test_an_unusable_option_is_named_with_its_value(command, public, no_steps, options, line):
    assert line in refused(command, public[-1] / "plan.yaml", options)
    gc.collect()  # of a client that has no scheduler, which dask would take for the default one


def test_a_plan_that_cannot_be_used_is_refused(command, tmp_path):
    (tmp_path / "plan.yaml").write_text("model: logistic\nepsilons: [")
    assert "cannot be read as YAML: " in refused(command, tmp_path / "plan.yaml")
    (tmp_path / "plan.yaml").write_text("model: logistic\ndata: breast_cancer\nepsilons: -1")
    assert refused(command, tmp_path / "plan.yaml").startswith("workbench sweep: epsilons=-1: ")


def test_a_scheduler_without_its_package_is_explained(command, public, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert 'pip install "dpvi-workbench[cluster]"' in refused(
        command, public[-1] / "plan.yaml", "--scheduler tcp://a:1"
    )


def test_a_scheduler_gets_the_work(command, public, monkeypatch):
    run, given = sweeping.PreparedSweep.run, []

    def noted(prepared, *arguments, executor, max_lanes):
        given.append((executor, max_lanes))
        return run(prepared, *arguments)

    monkeypatch.setattr(
        "distributed.Client", lambda address, timeout: contextlib.nullcontext(address)
    )
    monkeypatch.setattr(sweeping.PreparedSweep, "run", noted)
    code, _, _ = command("sweep", public[-1] / "plan.yaml", "--scheduler tcp://a:1 --max-lanes 3")
    assert (code, given) == (0, [("tcp://a:1", 3)])


def test_help_says_that_a_sweep_asks(command):
    text = " ".join(command("sweep --help")[1].split())
    assert "says what epsilon it spends in total, and asks before it begins" in text


@pytest.mark.integration
@pytest.mark.parametrize("public", ["real"], indirect=True)
def test_processes_of_their_own_fit_the_same(command, public, tmp_path):
    options = ["--json --quiet --store", tmp_path / "fits.sqlite", "--workers 2"]
    code, out, err = command("sweep", public[-1] / "plan.yaml", *options)
    assert (code, err) == (0, "")
    for ours, others in zip(json.loads(out)["fits"], json.loads(public[1])["fits"], strict=True):
        assert ours["auc"] == pytest.approx(others["auc"], abs=1e-3)


@pytest.mark.integration
def test_ctrl_c_keeps_finished_fits(tmp_path):
    (tmp_path / "plan.yaml").write_text(
        PUBLIC.replace("[1, 4]", "4").replace("[0, 1]", "[1]").replace("20", "[20, 5000000]")
    )
    progress = tmp_path / "progress"
    with open(progress, "w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench", "sweep", str(tmp_path / "plan.yaml"), "--json"],
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            deadline = time.monotonic() + 120
            while "of 5,000,000" not in progress.read_text():
                assert process.poll() is None, progress.read_text()
                assert time.monotonic() < deadline, progress.read_text()
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130
    answer = json.loads(out)
    assert answer["status"] == "stopped"
    assert [fit["iterations"] for fit in answer["fits"]] == [20]
    assert "finished fits are kept" in progress.read_text()
    assert "Traceback" not in progress.read_text()
    assert (tmp_path / "fits.sqlite").stat().st_size > 0
