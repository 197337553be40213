"""The ledger on both screens in JupyterLab: spending, a cap that refuses a fit, and a fit that
outlives its kernel.
"""

import re
import time

import pytest

from tests.browser.conftest import Screen, wait_for
from tests.browser.test_workbench import overflowing

pytestmark = pytest.mark.browser

SHOW = """import os
os.environ["WORKBENCH_STATE"] = {state!r}
import numpy as np, pandas as pd, workbench as wb
random = np.random.default_rng(11)
table = pd.DataFrame({{"dose": random.uniform(0, 200, 400), "age": random.uniform(0, 100, 400)}})
table["ill"] = random.random(400) < 1 / (1 + np.exp((table.dose - 100) / 20))
ward = wb.data.from_frame(table, target="ill", bounds={{"dose": (0, 200), "age": (0, 100)}},
  unit="patient", name="ward")
app = wb.widgets.Workbench(data=ward, iterations={iterations})
app"""


def looked_at(page, screen, screenshots, name, height=2500):
    """Take pictures of one screen, and check that no label is cut off and nothing overflows."""
    for width in (1280, 900):
        page.set_viewport_size({"width": width, "height": height})
        time.sleep(0.5)  # for the layout to follow
        screen.root.screenshot(path=screenshots / f"{name}-{width}.png")
        assert overflowing(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})


def says(screen, words):
    """Wait until the screen shows a line with these words, and return it."""
    line = screen.root.locator(".widget-html-content:visible", has_text=re.compile(words)).first
    line.wait_for()
    return line.inner_text()


@pytest.mark.thorough
@pytest.mark.integration
def test_what_is_spent_is_shown_and_a_cap_refuses_what_would_go_over_it(
    notebook, page, screenshots, tmp_path
):
    book = notebook(
        SHOW.format(state=str(tmp_path / "state"), iterations=300),
        "wb.widgets.Ledger()",
        "[(round(result.guarantee.epsilon, 2), result.status) for result in app.results]",
        name="ledger",
    )
    book.run(0)
    screen = Screen(page).is_ready()
    says(screen, "Spent on these records: nothing")
    screen.button("Fit").click()
    screen.headline("Done")
    says(screen, "Spent on these records: epsilon 1 at delta 0.001 in 1 fit")
    screen.tab("Guarantee")
    assert "According to the ledger, epsilon 1" in says(screen, "^Guarantee")
    looked_at(page, screen, screenshots, "ledger-panel")
    book.run(1)
    ledger = Screen(page, place=1)
    says(ledger, "Spent on ward: epsilon 1 at delta 0.001")
    ledger.tab("Cap")
    ledger.type("epsilon", "many")
    ledger.button("Set cap").click()
    says(ledger, "epsilon = many: must be a finite number")
    looked_at(page, ledger, screenshots, "ledger-bad")
    ledger.type("epsilon", "2")
    ledger.type("delta (probability)", "0.001")
    ledger.type("why", "agreed with the ward")
    ledger.button("Set cap").click()
    says(ledger, "The cap of ward is epsilon 2 at delta 0.001")
    says(ledger, "left under the cap")
    looked_at(page, ledger, screenshots, "ledger-cap")
    screen.button("Refresh").last.click()
    says(screen, "1 more fit like this")
    screen.type("epsilon", "5")
    told = says(screen, "epsilon = 5: this fit would raise")
    fits = float(re.search(r"The same with epsilon=([\d.]+) would fit", told).group(1))
    screen.root.locator(".widget-label", has_text="reason to exceed the cap").wait_for()
    looked_at(page, screen, screenshots, "ledger-refused")
    screen.button("Fit").click()
    assert screen.headline("Refused") == "Refused. The reason stands above."
    says(screen, "epsilon = 5: this fit would raise")
    looked_at(page, screen, screenshots, "ledger-failed")
    screen.type("epsilon", f"{fits:g}")
    screen.is_ready()
    says(screen, r"\d more fits? like this")
    screen.button("Fit").click()
    screen.headline("Done")
    says(screen, "in 2 fits, if their plans were fixed beforehand")
    screen.root.locator("button", has_text="fits on these records").click()
    screen.root.locator("table:visible", has_text="within the cap").wait_for()
    looked_at(page, screen, screenshots, "ledger-second")
    ledger.button("Refresh").click()
    ledger.tab("Fits")
    ledger.root.locator("table:visible", has_text="within the cap").wait_for()
    ledger.tab("Export")
    ledger.button("Make file").click()
    with page.expect_download() as download:
        ledger.root.locator("a", has_text="Download ledger.json").click()
    assert '"spends"' in download.value.path().read_text()
    looked_at(page, ledger, screenshots, "ledger-two")
    book.run(2)
    shown = book.cells.nth(2).locator(".jp-OutputArea-output").inner_text()
    assert shown == f"[(1.0, 'done'), ({fits}, 'done')]"


@pytest.mark.integration
def test_a_fit_goes_on_when_its_kernel_has_died(notebook, page, screenshots, tmp_path):
    folder = tmp_path / "state"
    book = notebook(
        SHOW.format(state=str(folder), iterations=20_000_000),
        "os.kill(os.getpid(), 9)",
        name="died",
    )
    book.run(0)
    screen = Screen(page).is_ready()
    screen.button("Fit").click()
    screen.headline("Fitting")
    wait_for(
        lambda: any(
            not each.stem.endswith("-" + 12 * "0") for each in folder.glob("runs/*/step-*.npz")
        ),
        60,
        "a step",
    )
    book.start(1)
    page.locator(".jp-Dialog button", has_text=re.compile("Ok|OK|Dismiss")).first.click()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    book.run(0)
    screen = Screen(page).is_ready()
    assert "of 20\u202f000\u202f000" in says(
        screen, "An earlier fit of these records stopped at step [1-9]"
    )
    says(screen, "1 fit was interrupted")
    looked_at(page, screen, screenshots, "ledger-died")
    screen.button("Resume this fit").click()
    screen.headline("Fitting")
    assert screen.button("Resume this fit").is_disabled()
    screen.button("Stop").click()
    screen.headline("Stopped")
    wait_for(screen.button("Resume").is_enabled, 60, "Resume")
    wait_for(lambda: screen.button("Resume this fit").count() == 0, 60, "the offer to go")
