"""What a fit writes down while it runs: its spend, and checkpoints that it goes on from."""

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import stat
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.optim import Adam

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS, rewrite, some_of
from workbench import ArgumentError
from workbench.fitting import checkpoints, digests, fits, resuming, run_log
from workbench.fitting.groups import grouped
from workbench.ledger import ledger as ledger_module
from workbench.ledger.fingerprint import key_file, secret_key
from workbench.ledger.ledger import CapError, Ledger, LedgerDiskError, LedgerError
from workbench.ledger.reservation import LedgerWarning, id_of
from workbench.sweeps import sweeping
from workbench.sweeps.request import LISTS

SETTINGS = {
    "epsilon": 1.0,
    "delta": 1e-4,
    "iterations": 600,
    "sampling_rate": 0.2,
    "clip": 1.0,
    "seed": 3,
}
WHOLE = {}


@pytest.fixture
def state(monkeypatch, tmp_path):
    """A folder of the workbench's own with nothing in it but the secret key."""
    folder = tmp_path / "state"
    folder.mkdir()
    if key_file().exists():
        # fingerprints that were computed before stay what they were
        shutil.copy(key_file(), folder)
    monkeypatch.setenv("WORKBENCH_STATE", str(folder))
    return folder


@pytest.fixture
def often(monkeypatch):
    """A checkpoint before every chunk."""
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "_SHARE", 1.0)


def fit(data, **changes):
    return wb.fit("logistic", data, **grouped({**SETTINGS, **changes}))


def stopped(data, after=100, **changes):
    """A fit that is stopped when it has taken so many steps, and where its checkpoints are."""
    steps = [0]
    prepared = fits.prepare("logistic", data, **grouped({**SETTINGS, **changes}))
    for snapshot in prepared.run(lambda: steps[-1] >= after):
        steps.append(snapshot.step)
    return prepared.result(), prepared.run_log.folder


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


@pytest.fixture(autouse=True, params=EITHER_STEPS)
def kind(request):
    """Of the steps of a test's fits; real ones if it is marked ``whole_fit``."""
    real = request.param == "real" or request.node.get_closest_marker("whole_fit") is not None
    with fakes.installed(not real) as patch:
        fakes.trust_models(patch)
        yield "real" if real else "made up"


@pytest.fixture
def whole(private_data, kind):
    """An uninterrupted fit, entered nowhere."""
    if kind not in WHOLE:
        WHOLE[kind] = fit(private_data, ledger=False, checkpoint=False)
    return WHOLE[kind]


# --- spends ---------------------------------------------------------------------------------------


def test_a_private_fit_is_entered_before_its_first_step(private_data, state):
    seen = []
    result = fit(
        private_data,
        on_snapshot=lambda snapshot: seen.append((snapshot.step, Ledger().spends()[0])),
    )
    first, spend = seen[0]
    assert (first, spend.status, spend.planned, spend.reached) == (0, "reserved", 600, 0)
    for step, spend in seen[:-1]:
        assert spend.status == "reserved"
        assert spend.reached >= step
    after = Ledger().spends()[0]
    assert (after.status, after.counted, after.key, after.seed) == ("settled", 600, result.spend, 3)
    assert after.guarantee.epsilon == 1.0
    assert result.budget_status.total.epsilon == 1.0


@pytest.mark.thorough
def test_a_public_fit_spends_nothing(state):
    result = wb.fit("logistic", "breast_cancer", epsilon=1.0, iterations=50)
    assert result.spend == ""
    assert result.budget_status is None
    assert not Ledger().path.exists()


@pytest.mark.thorough
def test_a_fit_that_is_to_be_entered_nowhere_is_not(private_data, state):
    assert fit(private_data, iterations=50, ledger=False).spend == ""
    assert not Ledger().path.exists()


def test_a_fit_above_the_cap_takes_no_step(private_data, state):
    fit(private_data, iterations=50)
    Ledger().set_cap("clinic", 1.2, 1e-4, why="a test")
    seen = []
    with pytest.raises(CapError, match="above its cap"):
        fit(private_data, on_snapshot=seen.append)
    assert seen == []
    assert len(Ledger().spends()) == 1
    fit(private_data, iterations=50, over_cap="a test")
    assert Ledger().spends()[-1].why == "a test"


def test_a_fit_that_cannot_be_entered_takes_no_step(private_data, state, tmp_path):
    (tmp_path / "broken").write_text("no database")
    seen = []
    with pytest.raises(LedgerError, match="is damaged"):
        fit(private_data, ledger=tmp_path / "broken", on_snapshot=seen.append)
    assert seen == []


def test_an_end_that_cannot_be_written_counts_whole_and_is_said(private_data, state, monkeypatch):
    def refused(*_):
        raise LedgerDiskError(Ledger().path, errno.ENOSPC, "the disk is full.", code="disk full")

    monkeypatch.setattr(Ledger, "settle", refused)
    steps = [0]
    with pytest.warns(LedgerWarning, match="stays reserved, so all its planned steps count"):
        result = fit(
            private_data,
            on_snapshot=lambda snapshot: steps.append(snapshot.step),
            stop=lambda: steps[-1] >= 100,
        )
    assert "the disk is full" in result.message
    assert Ledger().spends()[0].counted == 600


@pytest.mark.parametrize("end", ["stop", "break", "error"])
def test_however_a_fit_ends_no_step_that_was_shown_is_missing(private_data, state, end):
    shown = []

    def show(snapshot):
        shown.append(snapshot.step)
        if end == "error" and snapshot.step >= 60:
            raise ZeroDivisionError

    if end == "break":
        prepared = fits.prepare("logistic", private_data, **SETTINGS)
        for snapshot in prepared.run():
            show(snapshot)
            if snapshot.step >= 60:
                break
        del prepared, snapshot
    else:
        with contextlib.suppress(ZeroDivisionError):
            fit(private_data, on_snapshot=show, stop=lambda: end == "stop" and shown[-1] >= 60)
    (spend,) = Ledger().spends()
    assert spend.status == "settled"
    assert max(shown) <= spend.counted < 600


@pytest.mark.thorough
def test_where_a_result_is_saved_is_noted(private_data, state, tmp_path):
    result = fit(private_data, iterations=50)
    result.save(tmp_path / "run")
    assert Ledger().spends()[0].result == str(tmp_path / "run")
    assert wb.load(tmp_path / "run").spend == result.spend


# --- sweeps ---------------------------------------------------------------------------------------


def sweep(data, **changes):
    return wb.sweep(
        "logistic",
        data,
        **grouped(
            {
                "epsilons": [0.5, 1.0],
                "iterations": 60,
                "delta": 1e-4,
                "accept_total_epsilon": 5.0,
                **changes,
            },
            direct=LISTS,
        ),
    )


@pytest.mark.thorough
def test_the_fits_of_a_sweep_are_entered_together(private_data, state, tmp_path):
    store = tmp_path / "fits.sqlite"
    sweep(private_data, store=store)
    assert [(spend.status, spend.counted) for spend in Ledger().spends()] == [("settled", 60)] * 2
    sweep(private_data, store=store)  # nothing is left to be done
    assert len(Ledger().spends()) == 2
    more = {"epsilons": [0.5, 1.0, 2.0], "iterations": 60, "delta": 1e-4}
    prepared = sweeping.prepare(
        "logistic", private_data, store=store, **grouped(more, direct=LISTS)
    )
    assert (
        "Together with other fits of these records in the ledger: All 3 fits together"
        in prepared.statement()
    )


def test_a_sweep_above_the_cap_is_refused_whole(private_data, state):
    book = Ledger()
    book.set_cap(book.add(id_of(private_data)).number, 0.6, 1e-4, why="a test")
    with pytest.raises(CapError, match="these 2 fits would raise"):
        sweep(private_data)
    assert book.spends() == []


@pytest.mark.thorough
def test_fits_of_a_stopped_sweep_that_nobody_saw_are_not_counted(private_data, state):
    before_they_are_entered = iter([False])
    result = sweep(private_data, stop=lambda: next(before_they_are_entered, True))
    assert result.status == "stopped"
    assert [spend.counted for spend in Ledger().spends()] == [0, 0]
    assert Ledger().budget_status("clinic").total is None


def test_a_sweep_stopped_at_once_enters_nothing(private_data, state):
    assert sweep(private_data, stop=lambda: True).status == "stopped"
    assert Ledger().spends() == []


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.whole_fit
@pytest.mark.usefixtures("often")
def test_a_stopped_fit_goes_on_in_another_process_bit_for_bit(private_data, state, whole):
    result, folder = stopped(private_data)
    taken = result.guarantee.steps_taken
    assert 100 <= taken < 600
    assert Ledger().spends()[0].counted == taken
    assert len(list(folder.iterdir())) == 2  # the newest two of many
    resumed = wb.resume(folder, data=private_data)
    assert resumed.status == "done"
    assert_equal(resumed, whole)
    np.testing.assert_array_equal(resumed.draws["weights"], whole.draws["weights"])
    (spend,) = Ledger().spends()
    assert (spend.status, spend.counted, spend.key) == ("settled", 600, resumed.spend)


@pytest.mark.thorough
def test_the_history_of_both_parts_is_kept(state, private_data):
    public = dataclasses.replace(private_data, evaluation_is_public=True)
    result, folder = stopped(public)
    resumed = wb.resume(folder, data=public)
    assert resumed.history[: len(result.history)] == result.history
    assert resumed.history[-1].step == 600
    assert resumed.seconds > result.seconds


@pytest.mark.thorough
def test_an_older_checkpoint_serves_where_the_newest_is_damaged(private_data, state, often, whole):
    _, folder = stopped(private_data)
    older, newest = sorted(folder.iterdir())
    newest.write_bytes(newest.read_bytes()[:100])
    assert checkpoints.newest(folder).path == older
    assert_equal(wb.resume(folder, data=private_data), whole)


def test_a_finished_fit_leaves_its_release_and_no_key(private_data, state, whole):
    prepared = fits.prepare("logistic", private_data, **SETTINGS)
    list(prepared.run())
    folder = prepared.run_log.folder
    assert [path.name for path in folder.iterdir()] == ["finished.npz"]
    again = wb.resume(folder, data=private_data)
    assert again.status == "done"
    assert_equal(again, whole)
    assert len(Ledger().spends()) == 1
    secret = np.asarray(jax.random.key_data(prepared.key)).tobytes()
    assert not any(secret in path.read_bytes() for path in state.rglob("*") if path.is_file())


@pytest.mark.thorough
def test_a_fit_that_finished_and_could_not_say_so_is_settled_by_its_result(
    private_data, state, monkeypatch
):
    prepared = fits.prepare("logistic", private_data, **SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "settle", lambda *_: None)
        list(prepared.run())
    assert Ledger().spends()[0].status == "reserved"
    wb.resume(prepared.run_log.folder, data=private_data)
    assert [(spend.status, spend.counted) for spend in Ledger().spends()] == [("settled", 600)]


@pytest.mark.thorough
def test_a_fit_that_was_entered_nowhere_stays_so(private_data, state):
    _, folder = stopped(private_data, ledger=False)
    wb.resume(folder, data=private_data)
    assert not Ledger().path.exists()


def test_the_owner_alone_may_read_them(private_data, state):
    _, folder = stopped(private_data)
    for path in (*folder.iterdir(), Ledger().path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_checkpoint_is_resumed_with_no_other_records(private_data, state):
    """Its noise would be added to other sums, and the difference of both would show what
    it hides.
    """
    _, folder = stopped(private_data)
    x, y = private_data.train
    changed = x.copy()
    changed[0, 0] += 0.01
    for other in (dataclasses.replace(private_data, train=(changed, y)), private_data.subset(150)):
        with pytest.raises(
            ArgumentError, match=r"path=.* other records, to which the same noise must not be added"
        ):
            wb.resume(folder, data=other)
    assert len(Ledger().spends()) == 1


@pytest.mark.thorough
def test_a_checkpoint_is_resumed_with_no_other_reference_level(state):
    """The fingerprint does not depend on it, but the gradients do."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"ward": random.choice(["a", "b"], 200), "y": random.integers(0, 2, 200)})
    first, second = (
        wb.data.from_frame(
            frame, target="y", schema={"ward": wb.data.Categorical(["a", "b"], reference=level)}
        )
        for level in "ab"
    )
    _, folder = stopped(first)
    with pytest.raises(
        ArgumentError, match=r"path=.* other records, to which the same noise must not be added"
    ):
        wb.resume(folder, data=second)
    wb.resume(folder, data=first)


def rewritten(folder, *, sealed=True, settings=None, **changes):
    """The newest checkpoint with other facts, written as a fit would have written them, or by
    somebody else.
    """
    path = checkpoints.newest(folder).path
    with np.load(path) as file:
        arrays = dict(file)
    facts = {**json.loads(str(arrays["facts"])), **changes}
    facts["settings"] |= settings or {}
    if sealed:
        del facts["seal"]
        facts["seal"] = digests.keyed(facts, b"checkpoint", secret_key())
    arrays["facts"] = np.array(json.dumps(facts))
    np.savez(path, **arrays)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change",
    some_of(
        [
            {"learning_rate": 0.1},
            {"clip": 2.0},
            {"epsilon": 2.0},
            {"iterations": 601},
            {"sampling_rate": 0.3},
            {"seed": 4},
        ],
        6,
    ),
    ids=lambda change: next(iter(change)),
)
def test_a_checkpoint_of_another_plan_is_refused(private_data, state, change):
    _, folder = stopped(private_data, after=20)
    rewritten(folder, settings=change)
    with pytest.raises(
        ArgumentError, match=r"path=.* another plan, version, model or kind of machine"
    ):
        wb.resume(folder, data=private_data)


@pytest.mark.thorough
def test_steps_that_may_have_been_seen_are_repeated_on_processors_that_repeat_exactly_alone(
    private_data, state, monkeypatch
):
    _, folder = stopped(private_data, after=20)
    monkeypatch.setattr(run_log, "repeats_exactly", lambda device: False)
    resuming.prepare(folder, data=private_data)  # nothing was taken after it was stopped
    rewritten(folder, reached=300)
    with pytest.raises(
        ArgumentError, match=r"interrupted on .* may not repeat steps to the last bit"
    ):
        wb.resume(folder, data=private_data)


def test_steps_that_a_crash_may_have_shown_count_however_the_fit_goes_on(private_data, state):
    """Here it is stopped at once, where it was taken up."""
    _, folder = stopped(private_data, after=20)
    (spend,) = Ledger().spends()
    rewrite(Ledger().path, status="reserved", owner="gone", taken=None, reached=300)
    rewritten(folder, reached=300)
    assert wb.resume(folder, data=private_data, stop=lambda: True).status == "cancelled"
    assert Ledger().spend(spend.key).counted == 300
    assert checkpoints.newest(folder).repeats


def test_what_cannot_be_resumed_is_said(private_data, state, tmp_path):
    with pytest.raises(ArgumentError, match=r"path=.*nowhere.*: contains no checkpoint"):
        wb.resume(tmp_path / "nowhere")
    (tmp_path / "step-000000000001.npz").write_text("no archive")
    with pytest.raises(ArgumentError, match="holds no saved state"):
        wb.resume(tmp_path)
    _, folder = stopped(private_data, after=20)
    with pytest.raises(
        ArgumentError, match="data=None: checkpoints do not contain the records of 'clinic'"
    ):
        wb.resume(folder)


@pytest.mark.thorough
def test_an_optimiser_of_ones_own_is_given_again(private_data, state):
    result, folder = stopped(private_data, after=20, optimizer=Adam(0.02))
    with pytest.raises(ArgumentError, match="optimizer=None"):
        wb.resume(folder, data=private_data)
    assert wb.resume(folder, data=private_data, optimizer=Adam(0.02)).status == "done"
    assert result.status == "cancelled"


def test_no_step_is_taken_that_no_checkpoint_covers(private_data, state, often, monkeypatch):
    """A full disk stops the run with what it has, and it goes on when there is room."""
    written = []

    def full_after_two(file):
        if "runs" in os.readlink(f"/proc/self/fd/{file}"):  # the ledger and its key have room
            written.append(file)
        if len(written) > 4:  # a file and its folder each
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_after_two)
        prepared = fits.prepare("logistic", private_data, **SETTINGS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LedgerWarning)
            snapshots = list(prepared.run())
    assert snapshots[-1].status == "cancelled"
    assert "no checkpoint could be written" in snapshots[-1].message
    assert "No space left" in prepared.result().message
    (spend,) = Ledger().spends()
    assert snapshots[-1].step <= spend.reached < 600
    assert not any(path.name.startswith(".") for path in prepared.run_log.folder.iterdir())
    assert prepared.can_resume
    assert list(prepared.run())[-1].status == "done"


@pytest.mark.thorough
def test_finished_runs_are_bounded_in_number(private_data, state, monkeypatch):
    monkeypatch.setattr(checkpoints, "_RUNS_KEPT", 2)
    prepared = fits.prepare("logistic", private_data, **SETTINGS, ledger=False)
    folders = []
    for _ in range(4):
        list(prepared.run())
        folders.append(prepared.run_log.folder)
        os.utime(folders[-1], (len(folders), len(folders)))
        prepared = prepared.again()
    kept = [folder for folder in folders if folder.exists()]
    assert len(kept) == 2
    assert folders[-1] in kept
    assert [run.is_finished for run in resuming.saved_runs()] == [True, True]


@pytest.mark.thorough
def test_public_fits_are_resumed_by_name(state):
    data, changes = "breast_cancer", {"seed": 1, "iterations": 400}
    uninterrupted = wb.fit("logistic", data, epsilon=1.0, **grouped(checkpoint=False, **changes))
    result, folder = stopped(data, after=50, delta=None, sampling_rate=None, clip=None, **changes)
    assert result.status == "cancelled"
    resumed = wb.resume(folder)
    assert_equal(resumed, uninterrupted)
    assert resumed.metrics == uninterrupted.metrics
    assert not ledger_module.Ledger().path.exists()


# one each time, and all of them in the long run
DIGESTED = [
    pytest.param(name, data, marks=() if name == "logistic" else pytest.mark.thorough)
    for name, data in (
        ("logistic", "breast_cancer"),
        ("hierarchical_logistic", "hierarchical"),
        ("gmm", "mixture"),
        ("vae", "digits"),
        ("neural_classifier", "digits"),
    )
]


@pytest.mark.integration
@pytest.mark.parametrize(("name", "data"), DIGESTED)
def test_a_fits_digest_is_the_same_in_another_process(name, data, state):
    """Or nothing could be resumed: programs are traced anew, in whatever order Python hashes, after
    other work or none.
    """
    import subprocess
    import sys

    script = (
        "import sys, workbench as wb\nfit = wb.prepare(sys.argv[1], sys.argv[2], epsilon=1.0, "
        "iterations=50, sampling_rate=0.1, checkpoint=False)\nprint(fit._digest(to_run=False))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script, name, data],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    here = wb.prepare(
        name,
        data,
        epsilon=1.0,
        iterations=50,
        sampling_rate=0.1,
        execution=wb.Execution(checkpoint=False),
    )
    assert found == {f"{here._digest(to_run=False)}\n"}


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.whole_fit
def test_no_private_value_is_in_any_file(private_data, state, planted, often):
    """In any form in which a program writes numbers; and the search finds what is there."""
    forms = set()
    for value in (*planted, np.float32(planted[0])):
        for kind in (np.float64, np.float32, np.float16):
            forms |= (
                {kind(value).tobytes(), kind(value).byteswap().tobytes()}
                if kind is not np.float16
                else set()
            )
        forms |= {
            text.encode()
            for text in (repr(float(value)), f"{float(value):.6f}", f"{float(value):.4f}")
        }
    forms.add(f"{planted[0]:.3f}".encode())
    stopped(private_data)
    fit(private_data)
    sweep(private_data, store=state / "fits.sqlite")
    files = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert {path.name for path in files} >= {"ledger.sqlite", "fits.sqlite", "finished.npz"}
    for path, content in files.items():
        assert not any(form in content for form in forms), path
    np.savez(state / "leak.npz", *private_data.train)
    assert any(form in (state / "leak.npz").read_bytes() for form in forms)
