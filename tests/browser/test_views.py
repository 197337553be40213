"""The sweep and ledger screens in JupyterLab: one view, in every width and theme, where nothing
jumps.
"""

import re

import pytest

from tests.browser.conftest import Screen, wait_for
from tests.browser.test_workbench import planned, seen
from workbench.widgets.kit.presses import Presses

pytestmark = [pytest.mark.browser, pytest.mark.integration]

SWEEP = (
    "import workbench as wb\nsweep = wb.widgets.Sweep(epsilons=(0.5, 1, 4), seeds=2, "
    "iterations=(100,))\nsweep"
)
SPEND = """import numpy as np, pandas as pd
random = np.random.default_rng(11)
table = pd.DataFrame({{"dose": random.uniform(0, 200, 400), "age": random.uniform(0, 100, 400)}})
table["ill"] = random.random(400) < 1 / (1 + np.exp((table.dose - 100) / 20))
ward = wb.data.from_frame(table, target="ill", bounds={{"dose": (0, 200), "age": (0, 100)}},
  unit="patient", name="ward")
book = wb.ledger.ledger.Ledger({path!r})
for epsilon in (0.3, 0.5):
    fit = wb.fit("logistic", ward, epsilon=epsilon, iterations=20, ledger=book)
book.set_cap("ward", 2, 1e-3, why="agreed with the ward")
None"""
LEDGER = "wb.widgets.Ledger(book)"
SWEEP_PARTS = ("Model", "Data", "Settings", "Table", "Fits", "Export")
LEDGER_PARTS = ("Fits", "Cap", "Export")
WIDTHS = (1280, 900, 400)


def end_of(screen):
    """How far below the screen's top its line of parts ends, in pixels."""
    tabs, root = screen.root.locator(".dpvi-tabs").bounding_box(), screen.root.bounding_box()
    return tabs["y"] + tabs["height"] - root["y"]


def test_a_sweep_stays_in_place_and_answers_the_mouse(notebook, page, screenshots):
    page.set_viewport_size({"width": 1280, "height": 800})
    notebook(SWEEP, name="view-sweep", where="lab/tree").run(0)
    screen = Screen(page)
    planned(screen, 6)
    before, ends = end_of(screen), []
    screen.button("Start").click()

    def is_done():
        ends.append(end_of(screen))
        return screen.root.locator("b", has_text="What was learnt.").count()

    wait_for(is_done, 120, "the end of the sweep")
    screen.comes_to_rest()
    assert max(abs(end - before) for end in [*ends, end_of(screen)]) <= 4  # nothing jumps
    chart = screen.root.locator(".dpvi-chart").bounding_box()
    page.mouse.move(chart["x"] + 0.55 * chart["width"], chart["y"] + 60)
    assert re.fullmatch(
        r"epsilon 1\nAUC \S+\nELBO \S+", screen.root.locator(".strip > span:visible").inner_text()
    )
    assert (
        seen(
            page,
            screen,
            SWEEP_PARTS,
            screenshots,
            "view-sweep",
            pictures=("Settings", "Table"),
            widths=WIDTHS,
        )
        == []
    )


def test_a_ledger_in_every_width_and_theme(notebook, page, screenshots, tmp_path):
    cells = (
        "import workbench as wb\nimport workbench.ledger.ledger",
        SPEND.format(path=str(tmp_path / "spent.sqlite")),
        LEDGER,
    )
    book = notebook(*cells, name="view-ledger", where="lab/tree")
    for cell in range(3):
        book.run(cell)
    screen = Screen(page)
    screen.root.locator("b", has_text="Spent on ward:").wait_for()
    screen.comes_to_rest()
    assert end_of(screen) <= 500
    assert (
        seen(
            page,
            screen,
            LEDGER_PARTS,
            screenshots,
            "view-ledger",
            pictures=("Fits", "Cap"),
            widths=WIDTHS,
        )
        == []
    )


def test_focus_stays_where_it_was_although_what_is_pressed_is_drawn_anew(page):
    presses = Presses(print)
    buttons = [presses.button(number, f"fit {number}", "Show it") for number in range(3)]
    hidden = "".join(
        f'<button class="{press._dom_classes[0]}" hidden></button>'
        for press in presses.view.children
    )
    page.set_content(f'<div class="widget-html-content">{"".join(buttons)}</div>{hidden}')
    # as ipywidgets does, which draws HTML again for each of its changes
    redraw = """([number, html]) => { const place = document.querySelector('.widget-html-content');
      document.querySelectorAll('button[hidden]')[number].onclick = () => {
        for (const delay of [20, 40]) setTimeout(() => { place.innerHTML = html }, delay); } }"""
    focused = "document.activeElement.textContent"
    for number, left, then in (
        (1, buttons, "fit 1"),
        (2, buttons, "fit 2"),  # at once after another one
        (1, [buttons[0]], "fit 0"),  # it has gone
        (0, ["no button"], "no button"),
    ):
        page.evaluate(redraw, [number, "".join(left)])
        page.get_by_text(f"fit {number}", exact=True).focus()
        page.keyboard.press("Enter")
        page.wait_for_timeout(150)
        assert page.evaluate(focused) == then
