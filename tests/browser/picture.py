"""Makes the README's picture, notebooks/workbench.png, from the real screen: ``make picture``."""

import contextlib
import io
import os
import tempfile
from pathlib import Path

from conftest import ROOT, TOKEN, Screen, chromium, served_app
from PIL import Image
from playwright.sync_api import sync_playwright

OUT = ROOT / "notebooks" / "workbench.png"
WIDTH, HEIGHT = 1160, 620


def main():
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # not the ledger of whoever takes the picture
        os.environ["WORKBENCH_STATE"] = str(folder / "state")
        address = stack.enter_context(contextlib.contextmanager(served_app)(folder))
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"{address}/?token={TOKEN}")
        screen = Screen(page).is_ready()
        for epsilon in ("1", "4"):  # the first fit stays as a thin line
            screen.type("epsilon", epsilon)
            screen.is_ready()
            screen.button("Fit").click()
            ranked = screen.root.locator(".dpvi-forest:has(.units)", has_text=f"epsilon {epsilon} ")
            ranked.wait_for()
            screen.root.locator("button:not([disabled])", has_text="Fit").first.wait_for()
            screen.root.get_by_text("relative interval noise").first.wait_for()  # computed behind
            screen.comes_to_rest()
        taken = page.screenshot()
        browser.close()
    # few colours suffice, and the file stays small
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(96).save(OUT, optimize=True)
    print(f"{OUT.relative_to(ROOT)}: {OUT.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
