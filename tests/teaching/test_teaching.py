"""The teaching pieces through their traits, without a browser: numbers follow the sliders, and
everything is freed.
"""

import html
import re
import threading
import time

import ipywidgets
import numpy as np
import pytest

from tests.conftest import some_of
from tests.widget_tree import inside
from workbench import ArgumentError
from workbench._numbers import upper
from workbench.privacy.guarantee import percent
from workbench.teaching import pieces as teaching
from workbench.teaching.simulations import CLOUD, attack, several_fits, spent
from workbench.widgets.kit import base

SVG = b"<?xml"
PATIENCE = 120
PIECES = {
    "privacy": ["epsilon", "delta", "sampling_rate", "steps", "accused"],
    "clipping": ["clip", "noise_multiplier", "learning_rate", "sampling_rate"],
    "samplers": ["batch_size", "noise_multiplier", "steps", "delta"],
    "composition": ["fits", "epsilon", "delta", "sampling_rate", "steps"],
}


@pytest.fixture
def pieces():
    """Makes pieces that are closed when the test ends."""
    made = []

    def make(name, **options):
        made.append(getattr(teaching, name)(**options))
        return settled(made[-1])

    yield make
    for piece in made:
        piece.close()


def settled(piece):
    assert piece.wait(PATIENCE)
    return piece


def text(piece):
    return html.unescape(re.sub("<[^>]*>", " ", piece.words.value))


def seen(piece):
    """The pictures' bytes; a trait reads back as a memoryview."""
    return [bytes(part.value) for picture in piece.pictures for part in picture]


@pytest.mark.parametrize("name", some_of(list(PIECES), 2, 1))
def test_a_piece_is_one_call_and_every_slider_says_what_it_sets(pieces, name):
    piece = pieces(name)
    assert all(picture.startswith(SVG) for picture in seen(piece))
    assert "computing" not in text(piece)
    controls = [piece.sliders[each] for each in PIECES[name]]
    assert all(control.description and control.continuous_update for control in controls)
    sliders = [part for part in inside(piece.view) if isinstance(part, ipywidgets.SelectionSlider)]
    assert sliders == controls


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(list(PIECES), 2, first=1))
def test_every_slider_changes_picture_and_words(pieces, name):
    piece = pieces(name, **({"seed": 1} if name in ("clipping", "samplers") else {}))
    for each in PIECES[name]:
        control = piece.sliders[each]
        before = seen(piece), text(piece)
        control.index = (
            control.index + 1 if control.index + 1 < len(control.options) else control.index - 1
        )
        settled(piece)
        assert seen(piece) != before[0]
        assert text(piece) != before[1]


@pytest.mark.thorough
@pytest.mark.parametrize("name", PIECES)
def test_starting_values_are_taken_and_bad_ones_named(pieces, name):
    values = {
        "privacy": {"epsilon": 1.25, "steps": 500},
        "clipping": {"clip": 0.6},
        "samplers": {"batch_size": 10},
        "composition": {"fits": 7},
    }[name]
    piece = pieces(name, **values)
    assert all(piece.sliders[each].value == value for each, value in values.items())
    for each in PIECES[name]:
        for bad in (-1, "many", float("nan"), True):
            with pytest.raises(ArgumentError) as caught:
                getattr(teaching, name)(**{each: bad})
            assert caught.value.argument == each


def test_privacy_shows_the_accountants_numbers(pieces):
    piece = pieces("privacy", epsilon=2.0, delta=1e-6, sampling_rate=0.25, steps=300, accused=0.05)
    best = attack(epsilon=2.0, delta=1e-6, sampling_rate=0.25, steps=300)
    promised, kept = best.found(0.05)
    found = percent(kept).removesuffix(" %")
    assert (
        f"Of 100 members, an attacker who wrongly accuses 5 % of non-members finds at most {found}."
        in text(piece)
    )
    assert f"(epsilon, delta) alone would allow {percent(promised).removesuffix(' %')}" in text(
        piece
    )
    assert f"sigma = {best.noise_multiplier:g}" in text(piece)
    assert "one record is added or removed" in text(piece)


def test_composition_shows_three_bounds(pieces):
    piece = pieces("composition", fits=50, epsilon=0.2)
    counts = tuple(value for _, value in piece.sliders["fits"].options)
    several = several_fits(epsilon=0.2, delta=1e-6, sampling_rate=0.1, steps=1000, counts=counts)
    added, advanced, composed = several.of(50)
    assert f"50 fits together have epsilon {composed:g} at most, at delta = 5e-05" in text(piece)
    assert f"add up to epsilon {added:g}" in text(piece)
    assert f"proves {advanced:g}" in text(piece)
    piece.sliders["fits"].value = 1
    assert "1 fit has epsilon 0.2 at most" in text(settled(piece))
    assert "gives nothing smaller" in text(piece)


@pytest.mark.thorough
def test_samplers_show_each_sampler_under_its_own_relation(pieces):
    piece = pieces("samplers", batch_size=8, noise_multiplier=5.0, steps=100)
    plan = {"sampling_rate": 0.2, "noise_multiplier": 5.0, "steps": 100, "delta": 1e-5}
    for sampler, relation in [
        ("poisson", "add_or_remove_one"),
        ("without_replacement", "replace_one"),
        ("shuffle", "replace_one"),
        ("shuffle", "replace_special"),
        ("random_allocation", "add_or_remove_one"),
    ]:
        assert f"epsilon {upper(spent(sampler, relation, 'pld', **plan).epsilon, 3)} for" in text(
            piece
        )
    assert "20 epochs" in text(piece)
    before = seen(piece)[0]
    piece.again.click()
    settled(piece)
    assert seen(piece)[0] != before
    piece.compare.click()
    assert piece.compare.disabled
    settled(piece)
    assert not piece.compare.disabled
    columns = re.findall(r"<th[^>]*>([^<]*)</th>", piece.table.value)
    assert columns == ["sampler, neighbours", "PLD", "RDP", "RDP, classic", "Fourier, no bound"]
    rows = re.findall(r"<tr[^>]*>(<td.*?)</tr>", piece.table.value)
    cells = {
        each[0]: each[1:] for each in (re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows)
    }
    assert cells["shuffle, replace"][0] == upper(
        spent("shuffle", "replace_one", "pld", **plan).epsilon, 3
    )


def test_steps_are_taken_and_counted(pieces):
    piece = pieces("clipping", seed=1, noise_multiplier=8.0)
    assert "nothing is spent" in text(piece)
    piece.step.click()
    settled(piece)
    piece.take(9)
    settled(piece)
    assert piece.steps == 10
    assert piece.path.shape == (11, 2)
    assert "noised sums of the 10 steps alone would have epsilon" in text(piece)
    piece.sliders["noise_multiplier"].value = 0.0
    piece.take(1)
    settled(piece)
    assert "The 11 steps have no guarantee" in text(piece)
    piece.reset.click()
    settled(piece)
    assert piece.steps == 0
    assert "Next is step 1:" in text(piece)


def test_a_step_that_is_shown_is_the_one_that_is_taken(pieces):
    piece = pieces("clipping", seed=2)
    for button in (None, piece.fresh, piece.fresh):
        if button is not None:
            button.click()
            settled(piece)
        moves = float(re.search(r"move the parameters by ([\d.e-]+)\.", text(piece))[1])
        before = piece.path[-1]
        piece.step.click()
        settled(piece)
        assert np.linalg.norm(piece.path[-1] - before) == pytest.approx(moves, rel=0.01)


def test_fresh_noise_keeps_the_minibatch(pieces):
    piece = pieces("clipping", seed=3)
    first = text(piece)
    piece.fresh.click()
    second = text(settled(piece))
    drawn, noise = r"Next is step 1: (\d+) records are drawn", r"here it has length ([\d.]+)"
    assert re.search(drawn, first)[1] == re.search(drawn, second)[1]
    assert re.search(noise, first)[1] != re.search(noise, second)[1]
    assert piece.steps == 0


@pytest.mark.thorough
def test_play_takes_steps_until_paused(pieces):
    piece = pieces("clipping", seed=1)
    piece.play.value = True
    assert piece.play.description == "Pause"
    end = time.monotonic() + PATIENCE
    while piece.steps < 3 and time.monotonic() < end:
        time.sleep(0.05)
    piece.play.value = False
    assert piece.play.description == "Play"
    time.sleep(0.4)  # longer than a frame: a step that was asked for is taken, no other follows
    taken = settled(piece).steps
    time.sleep(0.6)
    assert piece.steps == taken >= 3


@pytest.mark.thorough
def test_without_noise_the_parameters_go_where_clipping_leads(pieces):
    piece = pieces("clipping", noise_multiplier=0.0, sampling_rate=1.0, learning_rate=1.0, clip=5.0)
    piece.take(60)
    settled(piece)
    np.testing.assert_allclose(piece.path[-1], CLOUD.mean(axis=0), atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PIECES)
def test_close_frees_widgets_and_threads(name):
    kept = set(ipywidgets.widgets.widget._instances)
    running = set(threading.enumerate())
    piece = settled(getattr(teaching, name)())
    if name == "clipping":
        piece.play.value = True
    piece.close()
    assert set(ipywidgets.widgets.widget._instances) <= kept
    end = time.monotonic() + PATIENCE
    while set(threading.enumerate()) - running and time.monotonic() < end:
        time.sleep(0.05)
    assert set(threading.enumerate()) <= running


@pytest.mark.parametrize("name", some_of(list(PIECES), 4, first=1))
def test_a_picture_follows_a_slider(pieces, name, record_property):
    """The time is reported, not tested, because it depends on the machine's other work."""
    piece = pieces(name)
    times = []
    for each in PIECES[name]:
        control = piece.sliders[each]
        for place in (0, len(control.options) - 1, len(control.options) // 2):
            if control.index == place:
                continue
            before, began = piece.words.value, time.perf_counter()
            control.index = place
            while piece.words.value == before and time.perf_counter() - began < PATIENCE:
                time.sleep(0.002)
            times.append(1000 * (time.perf_counter() - began))
            settled(piece)
    record_property("milliseconds", (round(float(np.median(times))), round(max(times))))
    print(f"{name}: median {np.median(times):.0f} ms, worst {max(times):.0f} ms of {len(times)}")
    assert len(times) > 2 * len(PIECES[name])


def test_what_goes_wrong_is_told_until_a_picture_follows_again(pieces, monkeypatch):
    piece = pieces("composition")
    draw = piece._figure.draw
    monkeypatch.setattr(piece._figure, "draw", lambda *_: 1 / 0)
    piece.sliders["fits"].index += 1
    assert "ZeroDivisionError: division by zero" in settled(piece)._problem.value
    monkeypatch.setattr(piece._figure, "draw", draw)
    piece.sliders["fits"].index += 1
    assert settled(piece)._problem.value == ""


@pytest.mark.parametrize("voila", [False, True])
def test_in_voila_a_piece_is_displayed_when_it_is_complete(monkeypatch, voila):
    """What changes while Voilà's page connects to the kernel is lost."""
    shown, may_draw = [], threading.Event()
    piece = settled(teaching.composition())
    draw = piece._figure.draw
    monkeypatch.setattr(
        piece._figure, "draw", lambda *given: may_draw.wait(PATIENCE) and draw(*given)
    )
    monkeypatch.setattr(base, "display", lambda _: shown.append(piece._newest.wait(0)))
    if voila:
        monkeypatch.setenv("VOILA_REQUEST_URL", "http://localhost")
    piece.sliders["fits"].index += 1
    displayed = threading.Thread(target=piece._ipython_display_)
    displayed.start()
    displayed.join(0.5)
    assert displayed.is_alive() == voila
    may_draw.set()
    displayed.join(PATIENCE)
    assert shown == [voila]
    piece.close()
