"""The sweep screen in JupyterLab: ranges, a figure that fills, Stop and Resume, a fit in the
Workbench, private records.
"""

import time

import pytest

from tests.browser.conftest import Screen, wait_for
from tests.browser.test_workbench import full_page, overflowing, planned

pytestmark = pytest.mark.browser

SHOW = "import workbench as wb\nsweep = wb.widgets.Sweep()\nsweep"
PRIVATE = """import numpy as np, pandas as pd, workbench as wb
random = np.random.default_rng(7)
table = pd.DataFrame({"dose": random.uniform(0, 200, 300), "age": random.uniform(0, 100, 300)})
table["ill"] = random.random(300) < 1 / (1 + np.exp((table.dose - 100) / 20))
clinic = wb.data.from_frame(table, target="ill", bounds={"dose": (0, 200), "age": (0, 100)},
  unit="patient", name="clinic")
sweep = wb.widgets.Sweep(data=clinic, epsilons=(0.5, 1), seeds=2, iterations=(50,))
sweep"""


def looked_at(page, screenshots, name, height=1500):
    for width in (1280, 900, 400):
        full_page(page, screenshots / f"{name}-{width}.png", width, height)
        page.set_viewport_size({"width": width, "height": height})
        assert overflowing(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.thorough
@pytest.mark.integration
def test_a_sweep_fills_its_figure_and_a_fit_of_it_opens(notebook, page, screenshots):
    book = notebook(SHOW, "sweep.result, sweep.opened.result.guarantee.epsilon", name="sweep")
    book.run(0)
    screen = Screen(page)
    planned(screen, 25)
    looked_at(page, screenshots, "sweep-ready")
    screen.type("epsilons", "0.5, one")
    screen.root.locator(".widget-html-content", has_text="“one” must be a finite number").wait_for()
    screen.headline("Not ready yet")  # said after the buttons are disabled
    assert screen.button("Start").is_disabled()
    full_page(page, screenshots / "sweep-bad.png", 1280)
    screen.type("epsilons", "0.5 1 2 4")
    screen.type("repetitions", "12")
    screen.type("steps", "20000")
    planned(screen, 48)
    screen.watch_curves()
    screen.button("Start").click()
    wait_for(screen.curves_seen, 120, "the figure")
    page.screenshot(path=screenshots / "sweep-running.png")
    screen.button("Stop").click()
    screen.headline("Stopped")
    assert "Resume runs the fits that are left" in screen.root.locator(".dpvi-side").inner_text()
    looked_at(page, screenshots, "sweep-stopped")
    screen.button("Resume").click()
    assert "48 of 48 fits" in screen.headline("Done", 240)
    assert len(screen.curves_seen()) >= 3
    screen.tab("Table")
    screen.root.locator("table:visible", has_text="AUC").wait_for()
    looked_at(page, screenshots, "sweep-done")
    screen.tab("Export")
    with page.expect_download() as download:
        screen.root.locator("a", has_text="table (CSV)").click()
    assert len(download.value.path().read_text().splitlines()) == 49
    looked_at(page, screenshots, "sweep-export")
    screen.tab("Fits")
    screen.choose("fit", "epsilon 2, seed 3")
    looked_at(page, screenshots, "sweep-opening")
    screen.button("Open in the Workbench").click()
    opened = Screen(page, place=1).is_ready()
    assert "20\u202f000 of 20\u202f000 steps" in opened.headline("Done")
    assert opened.field("epsilon").input_value() == "2"
    for width in (1280, 900):
        full_page(page, screenshots / f"sweep-opened-{width}.png", width, 3000)
    book.run(1)
    shown = book.cells.nth(1).locator(".jp-OutputArea-output").inner_text()
    assert "48 of 48 fits done, done), 2.0" in shown.replace("\n", " ")


@pytest.mark.integration
def test_a_sweep_over_private_records_asks_before_it_starts(notebook, page, screenshots):
    book = notebook(PRIVATE, name="sweep-private")
    book.run(0)
    screen = Screen(page)
    planned(screen, 4)
    assert screen.button("Start").is_disabled()
    screen.tab("Settings")
    screen.tick("show scores on private evaluation records (outside the guarantee)")
    screen.root.locator(".widget-html-content", has_text="leaks about them").wait_for()
    looked_at(page, screenshots, "sweep-private")
    screen.tick("I accept that these fits together spend epsilon")
    wait_for(screen.button("Start").is_enabled, 10, "Start")
    screen.button("Start").click()
    assert "4 of 4 fits" in screen.headline("Done", 180)
    time.sleep(0.5)
    screen.tab("Table")
    screen.root.locator(
        ".dpvi-part span:visible", has_text="outside the guarantee"
    ).first.wait_for()
    assert "outside the guarantee" in screen.root.locator(".dpvi-chart").inner_text()
    looked_at(page, screenshots, "sweep-private-done")


@pytest.mark.integration
def test_the_best_of_a_sweep_is_kept_inside_the_guarantee(notebook, page, screenshots):
    one_epsilon = PRIVATE.replace("epsilons=(0.5, 1)", "epsilons=(1,)").replace("(50,)", "(50, 80)")
    book = notebook(one_epsilon, name="sweep-best")
    book.run(0)
    screen = Screen(page)
    planned(screen, 4)
    screen.tab("Choose")
    screen.root.locator(".widget-html-content", has_text="spend epsilon 1,").wait_for()
    looked_at(page, screenshots, "sweep-best")
    screen.button("Keep the best").click()
    page.locator(".dpvi-workbench").nth(1).wait_for(timeout=240_000)
    opened = Screen(page, place=1).is_ready()
    assert "of 50 steps" in (done := opened.headline("Done", 180)) or "of 80 steps" in done
    screen.root.locator(".widget-html-content", has_text="of 2. The fit is shown below").wait_for()
    looked_at(page, screenshots, "sweep-best-kept", 3000)
