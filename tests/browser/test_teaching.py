"""The teaching pieces in JupyterLab, Notebook 7 and Voilà: pictures that follow the sliders, by
mouse and by keyboard.
"""

import re

import pytest

from tests.browser.conftest import TOKEN, Screen, chromium, free_port, served, wait_for
from tests.browser.test_workbench import full_page

pytestmark = [pytest.mark.browser, pytest.mark.integration]

TITLES = {
    "privacy": "One record in or out",
    "clipping": "Clipping and noise, step by step",
    "samplers": "Who is in which minibatch",
    "composition": "Several fits on the same records",
}
SLIDERS = {
    "privacy": "epsilon",
    "clipping": "clipping norm C",
    "samplers": "noise sigma (times C)",
    "composition": "number of fits",
}


class Piece(Screen):
    """A teaching piece on the page."""

    def __init__(self, page, place):
        super().__init__(page, place)
        self.wait_until("computing…", gone=True)

    def words(self):
        """The text of the pictures."""
        return self.root.locator(".widget-html-content").last.inner_text()

    def wait_until(self, words, *, gone=False, seconds=60):
        wait_for(
            lambda: (words in self.root.inner_text()) != gone,
            seconds,
            f"{words} {'to go' if gone else 'to come'}",
        )

    def handle(self, label):
        """The handle of the slider with this description."""
        boxes = self.root.locator(".widget-inline-hbox")
        box = boxes.filter(
            has=self.page.locator(".widget-label", has_text=re.compile(f"^{re.escape(label)}$"))
        )
        return box.locator(".noUi-handle")

    def press(self, label, key):
        """Move a slider by a key; milliseconds of the page's clock until a picture changed."""
        self.handle(label).focus()
        self.page.evaluate(
            """root => { window.changed = []; window.watcher?.disconnect();
              window.watcher = new MutationObserver(() => window.changed.push(performance.now()));
              for (const each of root.querySelectorAll('img'))
                window.watcher.observe(each, {attributes: true, attributeFilter: ['src']});
              window.pressed = null;
              root.addEventListener('keydown', () => { window.pressed ??= performance.now(); },
                {capture: true, once: true});
            }""",
            self.root.element_handle(),
        )
        self.page.keyboard.press(key)
        wait_for(
            lambda: self.page.evaluate("() => window.changed.length"),
            30,
            f"a picture after {key} on {label}",
        )
        return self.page.evaluate("() => window.changed[0] - window.pressed")


def overflowing(page):
    """Labels and buttons whose text is cut off, and parts that overflow."""
    return page.evaluate("""() =>
      [...document.querySelectorAll('.dpvi-workbench')].flatMap(screen => {
      const right = screen.getBoundingClientRect().right;
      const seen = [...screen.querySelectorAll('button, .widget-label, .widget-readout, h3, img')]
        .filter(e => e.offsetParent);
      const cut = seen.filter(e => e.scrollWidth > e.clientWidth + 1).map(e =>
        'cut: ' + e.textContent);
      const out = seen.filter(e => e.getBoundingClientRect().right > right + 1).map(e =>
        'sticks out: ' + e.textContent);
      return [...cut, ...out];
    })""")


def looked_at(page, screenshots, name, height):
    for width in (1280, 900, 400):
        full_page(page, screenshots / f"{name}-{width}.png", width, height)
        page.set_viewport_size({"width": width, "height": 900})
        assert overflowing(page) == []
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.fixture
def teaching_app(tmp_path):
    """The address of the teaching pieces alone, as ``workbench app teaching`` serves them."""
    chromium()
    port = free_port()
    command = ["app", "teaching", "--no-browser", "--", f"--port={port}", f"--Voila.token={TOKEN}"]
    yield from served(tmp_path, command, port, "/voila/static/voila.js")


@pytest.mark.parametrize("name", list(TITLES))
def test_a_piece_follows_its_sliders_by_keyboard(
    notebook, page, screenshots, name, record_property
):
    book = notebook(
        f"import workbench as wb\npiece = wb.teaching.{name}()\npiece", name=f"teaching-{name}"
    )
    book.run(0)
    piece = Piece(page, 0)
    assert piece.root.locator("h3").first.inner_text() == TITLES[name]
    before = piece.words()
    times = [
        piece.press(SLIDERS[name], key) for key in ["ArrowRight", "ArrowRight", "ArrowLeft"] * 3
    ]
    wait_for(lambda: piece.words() != before, 10, "other words")
    record_property("milliseconds", sorted(round(each) for each in times))
    print(
        f"{name}: milliseconds from key to picture, sorted: {sorted(round(each) for each in times)}"
    )
    looked_at(page, screenshots, f"teaching-{name}", 1100)


def test_steps_are_taken_played_and_forgotten_by_keyboard(notebook, page, screenshots):
    show = "import workbench as wb\npiece = wb.teaching.clipping(seed=1)\npiece"
    book = notebook(show, "piece.close()\n'closed'", name="teaching-steps")
    book.run(0)
    piece = Piece(page, 0)
    piece.wait_until("Next is step 1:")
    for count in (2, 3):
        piece.button("Step").focus()
        page.keyboard.press("Enter")
        piece.wait_until(f"Next is step {count}:")
    before = piece.words()
    piece.button("Fresh noise").press("Enter")
    wait_for(lambda: piece.words() != before, 10, "other noise")
    piece.wait_until("Next is step 3:")
    piece.button("Play").press("Enter")
    piece.wait_until("Next is step 8:")
    piece.button("Pause").press("Enter")
    page.screenshot(path=screenshots / "teaching-played.png")
    piece.button("Play").wait_for()
    piece.button("Reset").press("Enter")
    piece.wait_until("Next is step 1:")
    book.run(1)
    wait_for(lambda: page.locator(".dpvi-workbench:visible").count() == 0, 10, "the piece to go")


def test_all_accountants_are_shown_in_notebook_7(notebook, page, screenshots):
    book = notebook(
        "import workbench as wb\nwb.teaching.samplers(steps=100)",
        name="teaching-samplers-7",
        where="notebooks",
    )
    book.run(0)
    piece = Piece(page, 0)
    piece.wait_until("RDP")
    piece.button("All accountants").press("Enter")
    piece.root.locator("table").wait_for()
    assert "Fourier" in piece.root.locator("table").inner_text()
    looked_at(page, screenshots, "teaching-accountants", 1500)


def test_voila_serves_all_pieces_to_a_class(teaching_app, page, screenshots):
    page.goto(f"{teaching_app}/?token={TOKEN}")
    for place, (name, title) in enumerate(TITLES.items()):
        piece = Piece(page, place)
        assert piece.root.locator("h3").first.inner_text() == title
        before = piece.words()
        piece.press(SLIDERS[name], "ArrowRight")
        wait_for(lambda piece=piece, before=before: piece.words() != before, 10, "other words")
    looked_at(page, screenshots, "teaching-voila", 3300)
