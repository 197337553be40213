"""The screen in JupyterLab, Notebook 7 and Voilà: every model, Resume, own models and data, a
reload, the keyboard.
"""

import re
import time

import numpy as np
import pandas as pd
import pytest

from tests.browser.conftest import TOKEN, Screen, chromium, served_app, wait_for

pytestmark = pytest.mark.browser

SHOW = "import workbench as wb\napp = wb.widgets.Workbench(iterations={})\napp"


def full_page(page, path, width, height=1900):
    page.set_viewport_size({"width": width, "height": height})
    time.sleep(0.5)  # for the layout to follow
    page.screenshot(path=path)
    page.set_viewport_size({"width": 1280, "height": 900})


def overflowing(page):
    """What no user should see on a screen: parts that stick out, text cut off, scrollbars, one text
    over another.
    """
    return page.evaluate("""() =>
      [...document.querySelectorAll('.dpvi-workbench')].flatMap(screen => {
      if (!screen.checkVisibility()) return [];
      const frame = screen.getBoundingClientRect();
      const aside = '.strips, .dpvi-help > span, svg, option, .dpvi-scrolls *, '
        + 'details:not([open]) > :not(summary)';
      const shown = [...screen.querySelectorAll('*')].filter(e => e.checkVisibility() &&
        !e.closest(aside));
      const name = e =>
        `${e.tagName}.${[...e.classList].join('.')} ${e.textContent.trim().slice(0, 40)}`;
      const out = shown.filter(e => { const box = e.getBoundingClientRect();
        return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1); })
        .map(e => 'sticks out: ' + name(e));
      const cut = shown.filter(e => e.matches('button, .widget-label, h3, th, b, .title span') &&
        e.clientWidth > 2)
        .filter(e => getComputedStyle(e).display !== 'inline')
        .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => 'cut: ' + name(e));
      const bars = shown.filter(e =>
        !e.matches('.dpvi-scrolls, input, textarea, select, pre')).filter(e => {
        const style = getComputedStyle(e), scrolls = way => way === 'auto' || way === 'scroll';
        return (scrolls(style.overflowY) && e.scrollHeight > e.clientHeight + 1) ||
          (scrolls(style.overflowX) && e.scrollWidth > e.clientWidth + 1);
          }).map(e => 'scrolls: ' + name(e));
      const texts = [];
      const walk = document.createTreeWalker(screen, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) {
        const node = walk.currentNode, holder = node.parentElement;
        if (!node.textContent.trim() || !holder.checkVisibility() ||
          holder.closest(aside + ', style, select')) continue;
        if (holder.getBoundingClientRect().width <= 2) continue;  // for screen readers alone
        const range = document.createRange(); range.selectNodeContents(node);
        const hidden = getComputedStyle(holder).overflowX !== 'visible',
          own = holder.getBoundingClientRect();
        for (const {left, right, top, bottom} of range.getClientRects()) texts.push([{top, bottom,
          left: hidden ? Math.max(left, own.left) : left, right: hidden ? Math.min(right,
            own.right) : right},
          node.textContent.trim().slice(0, 30), node]);
      }
      const over = [];
      texts.forEach(([one, first, node], place) => texts.slice(place + 1).forEach(([other, second,
        next]) => {
        if (node === next) return;
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const tall = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (wide > 2 && tall > 5) over.push(`overlap: ${first} | ${second}`); }));
      return [...out, ...cut, ...bars, ...over]; })""")


def planned(screen, fits):
    """Wait until the sweep's plan has this many fits."""
    screen.root.locator("b", has_text=re.compile(rf"^{fits} fits")).wait_for()
    screen.comes_to_rest()


def switch_theme(page, name):
    """As a user does, in JupyterLab's menu."""
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-item", has_text="Theme").first.hover()
    page.locator(".lm-Menu-item", has_text=re.compile(f"^{name}$")).click()
    page.locator(f"body[data-jp-theme-name='{name}']").wait_for(state="attached")


THEMES = ("JupyterLab Dark High Contrast", "JupyterLab Dark", "JupyterLab Light")


def seen_everywhere(
    page, screen, parts, screenshots, name, *, pictures=(), themes=THEMES, widths=(1280, 900)
):
    """What overflows in any theme, width and open part; pictures of some of them are kept. The last
    theme stays.
    """
    found = {}
    for theme in themes:
        page.set_viewport_size({"width": 1280, "height": 800})
        switch_theme(page, theme)
        for width in widths:
            if width < 600 and page.locator("#jp-left-stack:visible").count():
                page.keyboard.press("Control+b")  # the list of files, which would leave no room
            page.set_viewport_size({"width": width, "height": 900})
            for part in parts:
                screen.tab(part)
                screen.comes_to_rest()
                found |= {f"{theme}, {width}, {part}, {what}": 1 for what in overflowing(page)}
                if part in pictures:
                    picture = (
                        f"{name}-{theme[11:].lower().replace(' ', '-')}-{width}-{part.lower()}.png"
                    )
                    full_page(page, screenshots / picture, width, 1100)
                    page.set_viewport_size({"width": width, "height": 900})
    return sorted(found)


def seen(page, screen, parts, screenshots, name, pictures, widths=(1280, 900)):
    """What overflows in any part in one theme, and in those of which there are pictures in the
    others.
    """
    first, *others = THEMES
    return [
        what
        for these, themes in ((parts, (first,)), (pictures, others))
        for what in seen_everywhere(
            page, screen, these, screenshots, name, pictures=pictures, themes=themes, widths=widths
        )
    ]


def upload(page, screen, file):
    screen.choose("data", "a file of your own…")  # which opens the Data part
    with page.expect_file_chooser() as chooser:
        screen.root.locator("button", has_text="Upload a CSV file").click()
    chooser.value.set_files(file)


def words_shown(screen):
    """How many words stand in the first view. Those of closed menus, of marks, in the rows of the
    data, names of their quantities elsewhere and for screen readers alone do not count, nor do
    numbers.
    """
    return screen.root.evaluate("""root => { const walk = document.createTreeWalker(root,
    NodeFilter.SHOW_TEXT);
      const names = [...root.querySelectorAll('.rows tbody th')].map(row => row.textContent);
      const rest = text => names.reduce((left, name) => left.replaceAll(name, ''), text);
      let count = 0;
      while (walk.nextNode()) { const holder = walk.currentNode.parentElement;
        const data = 'style, option, .dpvi-help, .x, .y, .strips, .rows, ' +
          '.dpvi-worded .widget-label';
        if (holder.checkVisibility() && !holder.closest(data))
          count += rest(walk.currentNode.textContent).split(/\\s+/).filter(
            word => /[a-z]/i.test(word)).length; }
      return count; }""")


PARTS = (
    "Plan",
    "Model",
    "Data",
    "Settings",
    "Curves",
    "Guarantee",
    "Posterior",
    "Pictures",
    "Fits",
    "Export",
)


def test_all_that_matters_is_in_one_view(notebook, page, screenshots, tmp_path):
    page.set_viewport_size({"width": 1280, "height": 800})
    others = "wb.widgets.Sweep(seeds=2)", f"wb.widgets.Ledger({str(tmp_path / 'none.sqlite')!r})"
    # or stopped fits of others are offered
    own = f"import os\nos.environ['WORKBENCH_STATE'] = {str(tmp_path / 'state')!r}\n"
    book = notebook(own + SHOW.format("None"), *others, name="view", where="lab/tree")
    book.run(0)
    screen = Screen(page).is_ready()
    screen.comes_to_rest()
    assert words_shown(screen) <= 80
    before = screen.root.locator(".dpvi-tabs").bounding_box()
    assert before["y"] + before["height"] <= 800
    page.screenshot(path=screenshots / "view-before.png")
    screen.button("Fit").click()
    assert "800 of 800 steps" in screen.headline("Done")
    screen.comes_to_rest()
    after = screen.root.locator(".dpvi-tabs").bounding_box()
    assert after["y"] + after["height"] <= 800, screen.root.inner_text()
    assert abs(after["y"] - before["y"]) <= 4  # nothing jumps
    assert words_shown(screen) <= 80
    rows = screen.root.locator(".dpvi-forest tbody tr")
    assert rows.count() == 30
    first = rows.first.inner_text()
    screen.root.get_by_label("scaled").check()
    assert rows.first.inner_text() != first  # the same coefficient in the other unit
    # a mark and its value on the axis: at the middle of the bars, and at one of its ticks
    bar = screen.root.locator(".dpvi-forest td.bar").first.bounding_box()
    axis = screen.root.locator(".dpvi-forest .x > div").bounding_box()
    assert (bar["x"], bar["width"]) == pytest.approx((axis["x"], axis["width"]), abs=1)
    screen.root.get_by_label("The noise in intervals").wait_for()
    _, score = screen.root.locator(".dpvi-chart:visible").all()
    chart = score.bounding_box()
    page.mouse.move(chart["x"] + 0.6 * chart["width"], chart["y"] + 60)
    assert re.search(
        r"step \d+\nAUC ",
        screen.root.locator(".strip > span:visible").inner_text(),
    )
    page.mouse.move(0, 0)
    screen.type("epsilon", "0.5")
    screen.root.locator("b", has_text="Next fit:").wait_for()
    another = screen.root.locator(".dpvi-tabs").bounding_box()
    assert abs(another["y"] - before["y"]) <= 4
    screen.type("epsilon", "none")
    screen.root.get_by_role("alert").filter(has_text="epsilon = none").wait_for()
    screen.comes_to_rest()
    refused = screen.root.locator(".dpvi-tabs").bounding_box()
    assert abs(refused["y"] - before["y"]) <= 4
    screen.type("epsilon", "1")
    page.screenshot(path=screenshots / "view-after.png")
    # which values an axis has depends on the noise; the first may stand at its very end
    label = screen.root.locator(".dpvi-forest .x span").first
    label.evaluate("label => { label.style.left = 0; label.textContent = '-10000'; }")
    dark, light = ("JupyterLab Dark",), ("JupyterLab Light",)
    assert (
        seen_everywhere(page, screen, PARTS, screenshots, "view", themes=dark, widths=(900,)) == []
    )
    assert (
        seen_everywhere(
            page, screen, ("Plan", "Pictures"), screenshots, "view", themes=light, widths=(1280,)
        )
        == []
    )
    page.set_viewport_size({"width": 1280, "height": 800})
    for cell in (1, 2):
        book.run(cell)
    planned(Screen(page, 1), 10)
    Screen(page, 2).root.locator(
        ".widget-html-content", has_text="Nothing has been recorded"
    ).wait_for()
    for place in (1, 2):
        other = Screen(page, place)
        assert words_shown(other) <= 120
        assert other.root.bounding_box()["height"] <= 560  # of the 680 that JupyterLab leaves
    assert overflowing(page) == []


@pytest.mark.integration
def test_a_fit_is_shown_in_every_width_and_theme(notebook, page, screenshots):
    notebook(SHOW.format("None"), name="view", where="lab/tree").run(0)
    screen = Screen(page).is_ready()
    screen.button("Fit").click()
    screen.headline("Done")
    screen.comes_to_rest()
    assert (
        seen(page, screen, PARTS, screenshots, "view", pictures=("Plan", "Pictures", "Settings"))
        == []
    )


@pytest.mark.integration
def test_a_screen_has_a_tab_of_its_own(notebook, page, screenshots):
    opening = "import workbench as wb\napp = wb.widgets.Workbench(iterations=200)\napp.open({})"
    book = notebook(
        opening.format(""),
        opening.format("'right'"),
        "app.close()",
        name="places",
        where="lab/tree",
    )
    tabs = page.locator("#jp-main-dock-panel .lm-TabBar-tabLabel", has_text="DP-VI workbench")
    for cell, place in ((0, "tab"), (1, "right")):
        book.run(cell)
        tabs.nth(cell).wait_for()
        tabs.nth(cell).click()
        screen = Screen(page, cell).is_ready()
        screen.button("Fit").click()
        assert "200 of 200 steps" in screen.headline("Done")
        screen.comes_to_rest()
        page.screenshot(path=screenshots / f"place-{place}.png")
        assert overflowing(page) == []
        holder = page.locator(".jupyterlab-sidecar:visible").bounding_box()
        seen = screen.root.bounding_box()
        assert seen["width"] > 0.9 * holder["width"]
        assert screen.root.evaluate(
            "root => root.parentElement.scrollHeight <= root.parentElement.clientHeight + 1"
        )
        if place == "tab":
            page.locator(".lm-TabBar-tabLabel", has_text="places").click()
    book.run(2)
    wait_for(lambda: tabs.count() == 1, 20, "the closed screen's tab to go")


@pytest.mark.integration
def test_each_model_is_fitted_from_the_menus(notebook, page, screenshots):
    book = notebook(SHOW.format(300))
    book.run(0)
    screen = Screen(page).is_ready()
    models = [
        ("gmm", "mixture", "log-likelihood"),
        ("vae", "digits", "reconstruction error"),
        ("neural_classifier", "digits", "accuracy"),
        ("hierarchical_logistic", "hierarchical", "AUC"),
        ("logistic", "breast_cancer", "AUC"),
    ]
    for number, (model, data, score) in enumerate(models, 1):
        screen.choose("model", model)
        screen.choose("data", data)
        screen.type("epsilon", "4")
        screen.is_ready()
        screen.button("Fit").click()
        # until then, "Done" is said of the fit before
        title = re.compile(f"^Guarantee of fit {number}: {model} ")
        screen.root.locator(".widget-html-content", has_text=title).first.wait_for(state="attached")
        assert "300 of 300 steps" in screen.headline("Done")
        assert score in screen.root.locator(".dpvi-fact").first.inner_text()
        assert (
            "epsilon = 4"
            in screen.root.locator(
                ".widget-html-content", has_text=re.compile("^Guarantee")
            ).first.inner_text()
        )
        screen.tab("Pictures")
        wait_for(lambda: len(screen.pictures()) >= 1, 60, f"the picture of {model}")
        for width in (1280, 900):
            full_page(page, screenshots / f"{model}-{width}.png", width)
            assert overflowing(page) == []
        screen.tab("Posterior")
    screen.tab("Fits")
    table = screen.root.locator("table:visible", has_text="evaluation records").first.inner_text()
    assert all(model in table for model, _, _ in models)
    screen.root.get_by_title("Show this fit above").nth(1).click()
    title = screen.root.locator(".dpvi-forest > .title").inner_text
    wait_for(lambda: "vae on digits" in title(), 10, "the second fit to be shown again")
    screen.choose("compare fit", "4: hierarchical_logistic on hierarchical, epsilon 4")
    screen.root.locator("img[alt='curves of both fits over steps']:visible").wait_for()
    full_page(page, screenshots / "history-1280.png", 1280)
    screen.tab("Export")
    screen.button("Make file").click()
    with page.expect_download() as download:
        screen.root.locator("a", has_text="Download report.html").click()
    assert "changes any outcome" in download.value.path().read_text()
    full_page(page, screenshots / "export-1280.png", 1280)


@pytest.mark.integration
def test_stop_resume_and_another_cell_during_the_fit(notebook, page, screenshots):
    book = notebook(
        SHOW.format(1_600_000),
        "1 + 41",
        "app.live.drawing_seconds / app.result.seconds, app.live.frames",
    )
    book.run(0)
    screen = Screen(page).is_ready()
    screen.button("Fit").click()
    screen.headline("Fitting")
    screen.watch_curves()
    began = time.monotonic()
    book.run(1)
    waited = time.monotonic() - began
    assert "Fitting" in screen.headline("Fitting")
    time.sleep(3)
    frames = screen.curves_seen()
    rate = (len(frames) - 1) / (frames[-1] - frames[0]) * 1000
    screen.button("Stop").click()
    screen.headline("Stopped")
    assert (
        "The run stopped after"
        in screen.root.locator(
            ".widget-html-content", has_text=re.compile("^Guarantee")
        ).first.inner_text()
    )
    page.screenshot(path=screenshots / "stopped.png")
    screen.button("Resume").click()
    screen.headline("Fitting")
    assert "1\u202f600\u202f000 of 1\u202f600\u202f000 steps" in screen.headline("Done", 180)
    book.run(2)
    share = book.cells.nth(2).locator(".jp-OutputArea-output").inner_text()
    print(
        f"\nanother cell during a fit: {waited:.2f} s; frames a second: {rate:.1f}; (drawing "
        f"share, frames): {share}"
    )
    assert screen.button("Resume").is_disabled()


@pytest.mark.integration
def test_a_model_registered_in_a_cell_gets_its_form(notebook, page, screenshots):
    model = '''import numpyro, numpyro.distributions as dist
@wb.models.register("probit")
def probit(x, y=None, num_records=None, prior_scale=1.0, link="probit"):
    """Probit regression of my own."""
    from jax.scipy.stats import norm
    weights = numpyro.sample("weights", dist.Normal(0,
      prior_scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(norm.cdf(x @ weights)), obs=y)
app'''
    book = notebook(SHOW.format(200), model)
    book.run(0)
    Screen(page).is_ready()
    book.run(1)
    screen = Screen(page, place=1)
    screen.choose("model", "probit")
    screen.tab("Model")
    screen.root.locator(
        ".widget-html-content", has_text="Probit regression of my own."
    ).first.wait_for()
    screen.button("settings of this model").click()
    screen.type("prior scale", "-1")
    screen.type("prior scale", "2")
    screen.is_ready()
    screen.button("Fit").click()
    screen.headline("Done")
    # the same screen in both places
    assert "Done." in Screen(page, place=0).headline("Done")
    screen.root.scroll_into_view_if_needed()
    full_page(page, screenshots / "own-model.png", 1280, 2600)


@pytest.mark.integration
def test_a_newcomers_own_file_becomes_a_posterior(notebook, page, screenshots, tmp_path):
    """Semicolons, decimal commas, ids, dates, remarks in cp1252, missing values, an empty column;
    nothing is red at once.
    """
    file = tmp_path / "patients.csv"
    rows = [
        f"{1000 + i};2024-0{1 + i % 9}-1{i % 10};{'' if i % 17 == 0 else 20 + i % 60};"
        f"{i % 7},5;{'fm'[i % 2]};für {i};;{int(i % 60 > 30)}"
        for i in range(400)
    ]
    file.write_bytes(
        ("patient_id;visit;age;dose;sex;remark;später;ill\n" + "\n".join(rows) + "\n").encode(
            "cp1252"
        )
    )
    book = notebook(SHOW.format(200), name="own")
    book.run(0)
    screen = Screen(page).is_ready()
    began = time.monotonic()
    upload(page, screen, file)
    screen.root.locator(".widget-html-content:visible", has_text="Semicolons").first.wait_for()
    red = screen.root.locator("[role=alert]:visible")
    assert red.all_inner_texts() == []
    for width in (1280, 900):
        full_page(page, screenshots / f"schema-empty-{width}.png", width, 1400)
        assert overflowing(page) == []
    screen.choose("What do you want to predict?", "ill")
    for place, (low, high) in enumerate([("0", "120"), ("0", "10")]):
        for label, value in (("lowest", low), ("highest", high)):
            control = screen.root.get_by_label(label, exact=True).locator("visible=true").nth(place)
            control.fill(value)
            control.press("Enter")
    screen.type("all values", "f, m")
    assert red.all_inner_texts() == []
    screen.is_ready()
    full_page(page, screenshots / "schema-done.png", 1280, 1400)
    screen.button("Fit").click()
    screen.headline("Done")
    print(f"\nfrom the menu to the posterior: {time.monotonic() - began:.0f} s")
    assert "· covered" in screen.root.locator(".dpvi-forest .title").inner_text()
    screen.tab("Settings")
    screen.tick("show private evaluation curves (outside the guarantee)")
    screen.comes_to_rest()
    screen.is_ready()
    assert "in 1 fit" in screen.root.inner_text()  # nothing else was pressed
    screen.button("Fit").click()
    screen.root.locator(".dpvi-chart:visible", has_text="AUC").wait_for()
    screen.headline("Done")
    assert (
        "outside the guarantee"
        in screen.root.locator(".dpvi-chart:visible", has_text="AUC").inner_text()
    )
    full_page(page, screenshots / "private-curves.png", 1280, 1400)


@pytest.mark.integration
def test_a_file_of_which_nothing_is_declared_becomes_a_posterior(
    notebook, page, screenshots, tmp_path
):
    """Ranges and wards are learned within the guarantee, and their price is shown before."""
    random = np.random.default_rng(0)
    age, stay = random.integers(18, 90, 4000), random.gamma(2.0, 3.0, 4000)
    ward = random.choice(["north", "south"], 4000)
    ill = np.where(random.random(4000) < 1 / (1 + np.exp(-0.06 * (age - 50))), "yes", "no")
    file = tmp_path / "clinic.csv"
    pd.DataFrame({"age": age, "stay": stay, "ward": ward, "ill": ill}).to_csv(file, index=False)
    notebook(SHOW.format(200), name="undeclared").run(0)
    screen = Screen(page).is_ready()
    screen.choose("data", "a file of your own…")
    zone = screen.root.locator(".dpvi-drop")
    zone.wait_for()
    carried = page.evaluate_handle(
        """text => { const carried = new DataTransfer();
        carried.items.add(new File([text], 'clinic.csv', {type: 'text/csv'})); return carried; }""",
        file.read_text(),
    )
    zone.dispatch_event("drop", {"dataTransfer": carried})
    screen.choose("What do you want to predict?", "ill")
    full_page(page, screenshots / "undeclared-file.png", 1280, 1400)
    screen.button("Learn them in the fit").click()
    screen.is_ready()
    screen.tab("Data")
    wait_for(
        lambda: "of the privacy budget" in screen.root.inner_text(), 30, "the price of learning"
    )
    for width in (1280, 900):
        full_page(page, screenshots / f"undeclared-ready-{width}.png", width, 1400)
        assert overflowing(page) == []
    screen.button("Fit").click()
    screen.headline("Done")
    assert "· covered" in screen.root.locator(".dpvi-forest .title").inner_text()
    screen.tab("Posterior")
    wait_for(lambda: "ward=south" in screen.root.inner_text(), 30, "the learned level")
    full_page(page, screenshots / "undeclared-done.png", 1280, 2000)


@pytest.mark.integration
def test_a_column_can_say_whose_row_it_is(notebook, page, screenshots, tmp_path):
    """The promise is then to patients, and no identifier is shown; drawn by random allocation."""
    file = tmp_path / "visits.csv"
    rows = [f"{7000 + i // 4},{20 + i % 60},{int(i % 60 > 30)}" for i in range(1200)]
    file.write_text("patient_id,age,ill\n" + "\n".join(rows) + "\n")
    notebook(SHOW.format(200), name="visits").run(0)
    screen = Screen(page).is_ready()
    upload(page, screen, file)
    screen.choose("What do you want to predict?", "ill")
    screen.choose("patient_id", "person id")
    for label, value in (("lowest", "0"), ("highest", "120")):
        control = screen.root.get_by_label(label, exact=True).locator("visible=true").first
        control.fill(value)
        control.press("Enter")
    wait_for(
        lambda: "most rows of one person of patient_id" in screen.root.inner_text(),
        30,
        "what is still needed",
    )
    screen.type("most rows of one person", "3")
    screen.is_ready()
    full_page(page, screenshots / "visits.png", 1280, 1400)
    screen.tab("Settings")
    screen.choose("sampler", "allocated, in epochs")
    screen.is_ready()
    screen.button("Fit").click()
    screen.headline("Done")
    shown = screen.root.inner_text()
    assert "per patient" in shown
    assert "7001" not in shown
    screen.tab("Guarantee")
    wait_for(
        lambda: "by random allocation" in screen.root.inner_text(),
        30,
        "the sampler in the guarantee",
    )
    full_page(page, screenshots / "visits-done.png", 1280, 1400)


@pytest.mark.integration
def test_a_regression_from_a_formula(notebook, page, screenshots, tmp_path):
    """With counts for a response, which no model of the gallery fits."""
    file = tmp_path / "stays.csv"
    rows = [f"{20 + i % 60},{'abc'[i % 3]},{(i * 7) % 5 + i % 60 // 15}" for i in range(900)]
    file.write_text("age,ward,days\n" + "\n".join(rows) + "\n")
    notebook(SHOW.format(200), name="stays").run(0)
    screen = Screen(page).is_ready()
    upload(page, screen, file)
    screen.choose("What do you want to predict?", "days")
    screen.choose("what it is", "a number")
    for label, values in (("lowest", ("0", "0")), ("highest", ("120", "20"))):
        control = screen.root.get_by_label(label, exact=True).locator("visible=true")
        wait_for(lambda control=control: control.count() == 2, 30, "the fields of the target")
        for row, value in enumerate(values):
            control.nth(row).fill(value)
            control.nth(row).press("Enter")
    screen.type("all values", "a, b, c")
    screen.choose("model", "formula")
    screen.type("formula", "days ~ age + wrad")
    screen.root.locator("[role=alert]:visible", has_text="wrad").wait_for()
    screen.type("formula", "days ~ age + ward")
    screen.choose("family", "poisson")
    screen.is_ready()
    full_page(page, screenshots / "formula.png", 1280, 1000)
    assert overflowing(page) == []
    screen.button("Fit").click()
    screen.headline("Done")
    screen.tab("Posterior")
    wait_for(lambda: "weights[ward=b]" in screen.root.inner_text(), 30, "the coefficients")
    full_page(page, screenshots / "formula-done.png", 1280, 1200)
    assert overflowing(page) == []


@pytest.mark.integration
def test_a_reload_during_a_fit_finds_it_again(notebook, page, screenshots):
    book = notebook(SHOW.format(50_000_000), name="reload")
    book.run(0)
    screen = Screen(page).is_ready()
    screen.button("Fit").click()
    screen.headline("Fitting")
    page.keyboard.press("Control+s")
    time.sleep(2)
    page.reload()
    screen = Screen(page)
    screen.headline("Fitting")
    assert screen.button("Stop").is_enabled()
    page.screenshot(path=screenshots / "reloaded.png")
    screen.button("Stop").click()
    screen.headline("Stopped")


@pytest.mark.integration
def test_the_keyboard_reaches_every_control_in_order(notebook, page):
    book = notebook(SHOW.format(200))
    book.run(0)
    screen = Screen(page).is_ready()
    screen.field("model").focus()
    reached = []
    for _ in range(40):
        reached.append(
            page.evaluate("""() => { const e = document.activeElement;
              const box = e.closest('.widget-inline-hbox, .widget-radio');
              return (e.tagName === 'BUTTON' || e.tagName === 'SUMMARY') ? e.textContent.trim()
                : (box ?
                  box.querySelector('.widget-label, label').textContent.trim() : e.className); }""")
        )
        page.keyboard.press("Tab")
    print(f"\n{reached}")
    wanted = [
        "model",
        "data",
        "epsilon",
        "delta",
        "steps",
        "Fit",
        "Plan",
        "Model",
        "Data",
        "Settings",
        "Export",
    ]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places)


@pytest.mark.integration
def test_notebook_7_shows_the_screen_and_fits(notebook, page, screenshots):
    book = notebook(SHOW.format(300), name="seven", where="notebooks")
    book.run(0)
    screen = Screen(page).is_ready()
    screen.button("Fit").click()
    assert "300 of 300 steps" in screen.headline("Done")
    full_page(page, screenshots / "notebook7.png", 1280)


def kernels(log):
    """The kernels that a server has started and not ended, by its log."""
    said = log.read_text()
    ids = {
        what: re.findall(f"Kernel {what}: ([0-9a-f-]{{36}})", said)
        for what in ("started", "shutdown")
    }
    return [kernel for kernel in ids["started"] if kernel not in ids["shutdown"]]


@pytest.mark.integration
def test_kernels_of_pages_that_were_left_end_but_not_those_that_fit(tmp_path, page):
    words = ("--MappingKernelManager.cull_idle_timeout=6", "--MappingKernelManager.cull_interval=1")
    chromium()
    server, log = served_app(tmp_path, *words), tmp_path / "server.log"
    address = f"{next(server)}/?token={TOKEN}"
    try:
        page.goto(address)
        Screen(page).is_ready()
        page.goto(address)
        screen = Screen(page).is_ready()
        wait_for(lambda: len(kernels(log)) == 1, 60, "the kernel of the first page to end")
        (fitting,) = kernels(log)
        time.sleep(15)
        assert kernels(log) == [fitting]  # a page that is open keeps its kernel
        screen.type("steps", "50000000")
        screen.is_ready()
        screen.button("Fit").click()
        screen.headline("Fitting")
        page.goto(address)  # leaves the page, and comes back
        Screen(page).is_ready()
        page.goto("about:blank")
        wait_for(lambda: len(kernels(log)) == 1, 60, "the kernel of the third page to end")
        time.sleep(15)
        assert kernels(log) == [fitting]
    finally:
        server.close()


@pytest.mark.integration
def test_a_cell_that_runs_again_keeps_one_screen(notebook, page):
    book = notebook(
        SHOW.format(200),
        "import ipywidgets\nlen(ipywidgets.widgets.widget._instances)",
        name="rerun",
    )
    counts = []
    for _ in range(3):
        book.run(0)
        Screen(page).is_ready()
        book.run(1)
        counts.append(book.cells.nth(1).locator(".jp-OutputArea-output").inner_text())
    assert counts[0] == counts[1] == counts[2]
    assert page.locator(".dpvi-workbench:visible").count() == 1


@pytest.mark.integration
def test_voila_serves_the_screen_and_fits(voila, page, screenshots):
    page.goto(f"{voila}/?token={TOKEN}")
    screen = Screen(page).is_ready()
    assert page.locator(".jp-CodeMirrorEditor, .jp-InputArea:visible").count() == 0
    screen.type("steps", "300")
    screen.is_ready()
    screen.button("Fit").click()
    assert "300 of 300 steps" in screen.headline("Done")
    for width in (1280, 900, 400):
        full_page(page, screenshots / f"voila-{width}.png", width)
        assert overflowing(page) == []
