"""Ctrl-C in the shell's commands: at every moment it ends with 130 and one line, and nothing is
spent without a result.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from workbench import _interrupt
from workbench.ledger.ledger import Ledger

# the child is made by a fork, which JAX warns of; it runs another program at once
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:os.fork:RuntimeWarning"
)

FIT = [
    "fit",
    "--data",
    "clinic.csv",
    "--target",
    "ill",
    "--bounds",
    "dose=0:200",
    "age=0:100",
    "--epsilon",
    "1",
]
LONG = ["--iterations", "50000000", "--quiet", "--json"]

# each stops the process with SIGINT when it gets there: in a module that is half imported, in the
# reading of the records, in the calibration; the garbage collector's callback is where Python
# prints KeyboardInterrupt and forgets it
MOMENTS = {
    "import": "sys.addaudithook(lambda event, given: event == 'import' and given[0] == 'jaxlib' "
    "and press())",
    "half a module": "sys.addaudithook(lambda event, given: event == 'import' and given[0] == "
    "'jax._src.core' and press())",
    "collecting": "gc.callbacks.append(lambda *_: 'jax' in sys.modules and press())",
    "loading": "import workbench.data.files as room; room.read_csv = lambda *_, **__: press() or "
    "time.sleep(60)",
    "calibrating": "import workbench.fitting as room; room.prepare = lambda *_, **__: press() or "
    "time.sleep(60)",
}
PROGRAM = """
import gc, os, signal, sys, time
from workbench import __main__
done = []
def press():
    if not done:
        done.append(True)
        os.kill(os.getpid(), signal.SIGINT)
{moment}
sys.exit(__main__.main())
"""


def run(program, *words, **options):
    command = [sys.executable, *program, *words]
    start = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **start, **options
    )


def ended(process):
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


@pytest.mark.parametrize(
    "moment",
    [
        "import",
        *(
            pytest.param(name, marks=pytest.mark.integration)
            for name in MOMENTS
            if name != "import"
        ),
    ],
)
def test_ctrl_c_before_the_first_step_ends_at_once_and_spends_nothing(place, moment):
    code, out, err = ended(
        run(["-c", PROGRAM.format(moment=MOMENTS[moment])], *FIT, *LONG, "--out", "run")
    )
    assert (code, out) == (130, "")
    assert err.strip() == "workbench fit: interrupted before there was a result; no epsilon spent."
    assert not (place / "run").exists()
    assert Ledger().spends() == []


@pytest.mark.integration
@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0, 4.0])
def test_ctrl_c_after_some_seconds_is_never_swallowed(place, seconds):
    process = run(["-m", "workbench"], *FIT, *LONG, "--out", "run")
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err
    assert "Traceback" not in err
    assert all(spend.counted < 50_000_000 for spend in Ledger().spends())


SAVING = """
import os, signal, sys
from workbench import __main__
from workbench.fitting import prepared
from workbench.results import storage
save = storage.save
storage.save = lambda *given: os.kill(os.getpid(), signal.SIGINT) or save(*given)
compile = prepared.compile_ahead
if {compiling}:
    prepared.compile_ahead = lambda *given: os.kill(os.getpid(), signal.SIGINT) or compile(*given)
sys.exit(__main__.main())
"""


@pytest.mark.integration
def test_ctrl_c_while_the_steps_are_compiled_saves_and_spends_nothing(place):
    code, _, err = ended(run(["-c", SAVING.format(compiling=True)], *FIT, *LONG, "--out", "run"))
    assert code == 130
    assert "stopped before the first step: nothing is saved in run" in err
    assert "kept" not in err
    assert not (place / "run").exists()
    assert [spend.counted for spend in Ledger().spends()] in ([], [0])


@pytest.mark.integration
def test_ctrl_c_while_a_result_is_saved_keeps_it(place):
    code, _, err = ended(
        run(
            ["-c", SAVING.format(compiling=False)],
            *FIT,
            "--iterations",
            "20",
            "--quiet",
            "--out",
            "run",
        )
    )
    assert code == 0, err
    assert (place / "run" / "report.html").exists()


def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _interrupt.leave_at_once()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _interrupt.leave_at_once()
        assert signal.getsignal(signal.SIGINT) is _interrupt.leave
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_entry_imports_nothing_heavy_before_it_listens():
    program = (
        "import sys; import workbench.__main__; print(any(name in sys.modules for name in "
        "('argparse', 'jax', 'numpy')))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert answer.stdout.strip() == "False"
