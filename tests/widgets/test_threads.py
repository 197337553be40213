"""Threads in the background end before the interpreter does."""

import subprocess
import sys
import textwrap
import threading

import pytest

from workbench.widgets.kit.threads import background


def test_work_runs_in_a_daemon_thread_of_that_name():
    seen = []
    thread = background(lambda: seen.append(threading.current_thread()), "some-name")
    thread.join(20)
    assert seen == [thread]
    assert (thread.name, thread.daemon) == ("some-name", True)


@pytest.mark.thorough
def test_the_end_of_the_interpreter_stops_and_waits_for_them():
    program = """
        import threading, time
        from workbench.widgets.kit.threads import background

        stop = threading.Event()

        def work():
            stop.wait(60)
            time.sleep(0.2)
            print("ended in order", flush=True)

        background(work, "work", stop.set)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "ended in order\n"


@pytest.mark.integration
def test_a_program_may_end_while_a_screen_compiles():
    program = (
        "import workbench as wb; screen = wb.widgets.Workbench(iterations=20); "
        "screen._outlooks.wait(60); screen.fit()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
