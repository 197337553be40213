"""A newcomer's first steps: open the quickstart in JupyterLab, press Fit, read the guarantee, press
Stop.
"""

import re
import time

import pytest

from tests.browser.conftest import TOKEN, Screen, open_notebook, wait_for

pytestmark = pytest.mark.browser

CELLS_UP_TO_THE_APP = 6


@pytest.fixture
def screen(page, lab):
    """The screen of the quickstart."""
    return opened(page, lab)


def opened(page, lab):
    """The screen of the quickstart, after its first cells."""
    notebook = open_notebook(page, f"{lab}/doc/tree/notebooks/quickstart.ipynb?reset&token={TOKEN}")
    for place in range(CELLS_UP_TO_THE_APP):
        notebook.run(place)
    return Screen(page)


def test_fit_draws_itself_and_stop_keeps_the_partial_result(screen, page, screenshots):
    screen.button("Fit").wait_for()
    shown = time.monotonic()
    screen.is_ready()
    ready = time.monotonic() - shown
    page.screenshot(path=screenshots / "quickstart-ready.png")

    screen.type("steps", "400000")  # some seconds: with fewer, a fast machine draws two pictures
    screen.is_ready()
    screen.watch_curves()
    screen.comes_to_rest()
    screen.button("Fit").click()
    screen.headline("Fitting")
    page.screenshot(path=screenshots / "quickstart-fitting.png")
    assert "400" in screen.headline("Done", 180)
    frames = screen.curves_seen()
    print(f"\nthe consequences are there {ready:.1f} s after the screen")
    assert len(frames) >= 3

    assert "AUC" in screen.root.locator(".dpvi-fact").first.inner_text()
    guarantee = screen.root.locator(".widget-html-content", has_text=re.compile("^Guarantee")).first
    assert "epsilon = 1" in guarantee.inner_text()
    kept = page.locator(".jp-OutputArea summary", has_text="Kept in this notebook")
    kept.wait_for()
    page.set_viewport_size({"width": 1280, "height": 1700})
    page.screenshot(path=screenshots / "quickstart-done.png")
    page.set_viewport_size({"width": 1280, "height": 900})

    screen.type("steps", "50000000")
    screen.comes_to_rest()
    screen.button("Fit").click()
    screen.headline("Fitting")
    screen.button("Stop").click()
    screen.headline("Stopped")
    assert "The run stopped after" in guarantee.inner_text()
    page.screenshot(path=screenshots / "quickstart-stopped.png")


@pytest.mark.integration
@pytest.mark.parametrize("reading", [0.0, 8.0])
def test_time_from_the_click_to_the_first_curve(cold_lab, page, reading):
    """The time is printed, not asserted, because it depends on the machine. ``reading``: seconds
    before the click.
    """
    screen = opened(page, cold_lab).is_ready()
    time.sleep(reading)
    screen.watch_curves()
    clicked = page.evaluate("() => performance.now()")
    screen.button("Fit").click()
    wait_for(screen.curves_seen, 60, "a curve")
    first = (screen.curves_seen()[0] - clicked) / 1000
    print(
        f"\nclick {reading:g} s after the consequences to first curve, nothing compiled before: "
        f"{first:.1f} s"
    )
    screen.headline("Done", 180)


@pytest.mark.integration
def test_a_bad_epsilon_is_explained_beside_its_field(screen, page, screenshots):
    screen.type("epsilon", "-1")
    screen.root.locator(
        ".widget-html-content", has_text="must be a finite number greater than 0"
    ).wait_for()
    page.screenshot(path=screenshots / "quickstart-bad-epsilon.png")
    screen.button("Fit").click()
    time.sleep(0.3)
    assert screen.button("Stop").is_disabled()
    screen.type("epsilon", "2")
    screen.is_ready()
    assert (
        screen.root.locator(
            ".widget-html-content:visible", has_text="must be a finite number"
        ).count()
        == 0
    )
