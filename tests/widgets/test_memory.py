"""Twenty fits in a row do not fill the kernel."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import os, sys
    import workbench as wb

    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    screen = wb.widgets.Workbench(iterations=300)
    for number in range(21):
        for worker in (screen._outlooks, screen._compilations):
            assert worker.wait(120)
        screen.fit()
        assert screen.wait(120)
        assert screen.result.status == "done"
        for worker in (screen._outlooks, screen._compilations, screen.outcome._latest):
            assert worker.wait(120)
        print(resident(), flush=True)
    screen.close()
"""


@pytest.mark.integration
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_twenty_fits_after_the_first_take_less_than_50_mib():
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = [float(line) for line in done.stdout.split()]
    print(f"\nMiB after the first fit: {sizes[0]:.0f}, after twenty more: {sizes[-1]:.0f}")
    assert len(sizes) == 21
    assert sizes[-1] - sizes[0] <= 50
