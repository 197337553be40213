"""How long a user waits: printed as medians, asserted nowhere, because a busy machine must not fail
a test.
"""

import re
import statistics
import time

import pytest

from tests.browser.conftest import Screen, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.integration]

CELL = "import workbench as wb\napp = wb.widgets.Workbench()\napp"
KERNELS, FITS = 3, 10
LEARNED = re.compile("clear of zero|Posterior shows", re.IGNORECASE)  # without a caution, or with


def since(began):
    return 1000 * (time.monotonic() - began)


def press_fit(screen):
    """Press Fit and wait for the first curve: when it was pressed, and how long that took."""
    screen.watch_curves()
    began = time.monotonic()
    screen.button("Fit").click()
    wait_for(screen.curves_seen, 60, "the first curve")
    return began, since(began)


def test_what_a_user_waits_for(notebook, page):
    found = {"cell to first display, new kernel": [], "click to first curve, nothing compiled": []}
    for kernel in range(KERNELS):
        book = notebook(CELL, name=f"timing{kernel}")
        book.start(0)  # which returns when the cell runs
        began = time.monotonic()
        screen = Screen(page)
        screen.button("Fit").wait_for()
        found["cell to first display, new kernel"].append(since(began))
        screen.is_ready()
        found["click to first curve, nothing compiled"].append(press_fit(screen)[1])
        screen.headline("Done")
        screen.comes_to_rest()
    warm = {
        "key to consequences": [],
        "click to first curve": [],
        "click to score and promise of another epsilon": [],
        "click to its posterior": [],
    }
    facts = screen.root.locator(".dpvi-abreast")
    for number in range(FITS):
        screen.comes_to_rest()
        time.sleep(2)  # as a user who reads the result: its pictures are drawn meanwhile
        epsilon = f"{2.11 + number / 10:.2f}"
        screen.field("epsilon").fill(epsilon)
        began = time.monotonic()
        screen.field("epsilon").press("Enter")
        wait_for(lambda: f"epsilon {epsilon} per" in facts.inner_text(), 20, "the consequences")  # noqa: B023
        warm["key to consequences"].append(since(began))
        screen.comes_to_rest()
        began, waited = press_fit(screen)
        warm["click to first curve"].append(waited)
        wait_for(lambda: "AUC" in facts.inner_text(), 60, "the result")
        warm["click to score and promise of another epsilon"].append(since(began))
        wait_for(lambda: LEARNED.search(facts.inner_text()), 60, "the posterior")
        warm["click to its posterior"].append(since(began))
    for name, times in (found | warm).items():
        print(
            f"\n{name}: median {statistics.median(times):.0f} ms of {len(times)}, "
            f"{min(times):.0f} to {max(times):.0f}",
            end="",
        )
        assert times
