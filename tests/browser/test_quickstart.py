"""The main job as a newcomer does it: open the quickstart in JupyterLab, press Fit, read the guarantee, press Stop."""

import time

import pytest

from tests.browser.conftest import TOKEN

pytestmark = pytest.mark.browser

CELLS_UP_TO_THE_APP = 6


def button(page, name):
    return page.locator(".jp-OutputArea button", has_text=name)


def wait_for(condition, seconds, what):
    """Poll every 20 ms, so that a picture that is shown for a moment only is seen too."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


def open_quickstart(page, lab):
    page.goto(f"{lab}/doc/tree/notebooks/quickstart.ipynb?reset&token={TOKEN}")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    # the kernel's first state is unknown, and keys pressed then are lost
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    # by the menu command for a selected cell, one at a time: a timer would race with a slow machine
    cells = page.locator(".jp-Notebook .jp-Cell")
    for place in range(CELLS_UP_TO_THE_APP):
        cell = cells.nth(place)
        cell.locator(".jp-InputPrompt, .jp-MarkdownOutput").first.click()
        page.keyboard.press("Control+Enter")
        if "jp-CodeCell" in (cell.get_attribute("class") or ""):
            wait_for(
                lambda cell=cell: cell.locator(".jp-InputPrompt").inner_text().strip("[]: ").isdigit(), 60, f"cell {place}"
            )
    button(page, "Fit").wait_for()


def test_fit_draws_itself_and_stop_keeps_the_partial_result(lab, page, screenshots):
    open_quickstart(page, lab)
    picture = page.locator(".jp-OutputArea img.widget-image")
    picture.wait_for()
    seen = [picture.get_attribute("src")]
    page.screenshot(path=screenshots / "quickstart-ready.png")

    button(page, "Fit").click()
    clicked = time.monotonic()
    first_curve = None

    def ended():
        nonlocal first_curve
        source = picture.get_attribute("src")
        if source != seen[-1]:
            seen.append(source)
            if first_curve is None and page.locator(".jp-OutputArea b", has_text="Fitting...").count():
                first_curve = time.monotonic() - clicked
                page.screenshot(path=screenshots / "quickstart-fitting.png")
        return page.locator(".jp-OutputArea b", has_text="Done.").count()

    wait_for(ended, 180, "the fit to end")
    print(f"\nFit click to first drawn curve: {first_curve:.1f} s; pictures drawn: {len(seen) - 1}")
    assert len(seen) - 1 >= 3

    guarantee = page.locator(".jp-OutputArea .widget-html-content", has_text="Guarantee").first
    guarantee.wait_for()
    assert "epsilon = 1" in guarantee.inner_text()
    assert "AUC" in page.locator(".jp-OutputArea .widget-html-content", has_text="Done.").first.inner_text()
    page.locator(".jp-OutputArea summary", has_text="Kept in this notebook").wait_for()
    page.locator(".jp-OutputArea summary", has_text="Kept in this notebook").scroll_into_view_if_needed()
    page.screenshot(path=screenshots / "quickstart-done.png", full_page=True)

    steps = page.locator(".jp-OutputArea .widget-inline-hbox", has_text="iterations").locator("input")
    steps.fill("50000000")
    steps.press("Enter")
    button(page, "Fit").click()
    page.locator(".jp-OutputArea b", has_text="Fitting...").wait_for()
    button(page, "Stop").click()
    page.locator(".jp-OutputArea b", has_text="Cancelled.").wait_for()
    guarantee.wait_for()
    assert "The run stopped after" in guarantee.inner_text()
    picture.scroll_into_view_if_needed()
    page.screenshot(path=screenshots / "quickstart-stopped.png")


def test_a_bad_epsilon_is_explained_beside_its_field(lab, page, screenshots):
    open_quickstart(page, lab)
    field = page.locator(".jp-OutputArea .widget-inline-hbox", has_text="epsilon").locator("input")
    field.fill("-1")
    field.press("Enter")
    page.locator(".jp-OutputArea .widget-html-content", has_text="must be a finite number greater than 0").wait_for()
    page.screenshot(path=screenshots / "quickstart-bad-epsilon.png")
