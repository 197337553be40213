"""The teaching screens about steps: clipping and noise in the plane, and the records that samplers
draw.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import ipywidgets as widgets
import numpy as np

from workbench import _numbers, _validate
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.privacy.steps import LAWS
from workbench.teaching.figures import CASES, DescentFigure, MinibatchFigure, SpendingFigure
from workbench.teaching.screen import TeachingScreen, around, rests
from workbench.teaching.simulations import (
    CLOUD,
    Descent,
    clipped_location,
    minibatches,
    spent,
    spent_by_steps,
)
from workbench.widgets.kit import markup
from workbench.widgets.kit.fields import button
from workbench.widgets.kit.latest import Latest
from workbench.widgets.kit.threads import background

__all__ = ["ClippingScreen", "SamplersScreen"]

CLIPS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
SIGMAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LEARNING_RATES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
RATES = (0.1, 0.25, 0.5, 1.0)
_START = (3.0, -1.5)
_DELTA = 1e-5
_FRAME_SECONDS = 0.25
_MOST_STEPS = 500
_NEIGHBOURS = {
    "add_or_remove_one": "add/remove",
    "replace_one": "replace",
    "replace_special": "blank",
}
_ACCOUNTANTS = {
    "pld": "PLD",
    "rdp": "RDP",
    "rdp_classic": "RDP, classic",
    "fourier": "Fourier, no bound",
}


class ClippingScreen(TeachingScreen):
    """The screen of ``workbench.teaching.clipping``.

    ``steps`` is the number of steps taken, ``path`` the parameters before and after each,
    float[steps + 1, 2].
    """

    forms: ClassVar = {
        "clip": ("clipping norm C", CLIPS),
        "noise_multiplier": (
            "noise sigma (times C)",
            SIGMAS,
            lambda sigma: "none" if sigma == 0 else f"{sigma:g}",
        ),
        "learning_rate": ("learning rate", LEARNING_RATES),
        "sampling_rate": ("minibatch rate q", RATES),
    }

    def __init__(self, *, seed: int | None, **starts: float) -> None:
        self._descent = Descent(seed=seed)
        self.step = button(
            "Step",
            lambda: self.take(1),
            "Take the step in the picture",
            icon="step-forward",
            primary=True,
        )
        self.play = widgets.ToggleButton(
            value=False,
            description="Play",
            icon="play",
            tooltip="Take steps until pressed again",
            layout=widgets.Layout(width="auto"),
        )
        self.reset = button("Reset", self._reset, "Start again with the same draws", icon="undo")
        self.fresh = button(
            "Fresh noise",
            self._renew,
            "Draw other noise for the step in the picture",
            icon="random",
        )
        self.play.observe(lambda _: self._turn(), names="value")
        self._lock = threading.Lock()
        self._wanted = self._fresh = 0
        self._begin_anew = False
        self._forget()
        self._figure = DescentFigure()
        buttons = widgets.HBox(
            [self.step, self.play, self.reset, self.fresh],
            layout=widgets.Layout(flex_flow="row wrap"),
        )
        super().__init__(
            "Clipping and noise, step by step",
            "The fit searches for the mean of 40 made-up records. Each record in the minibatch "
            "pulls the parameters towards itself (dashed). Its pull is clipped to length C "
            "(arrows that end on or in the circle). The step is the sum of the arrows plus noise.",
            starts,
            [
                (
                    "Records, pulls, the ball of radius C, and circles of equal loss; then the "
                    "sum and the noise.",
                    self._figure,
                )
            ],
            buttons,
        )

    def _forget(self) -> None:
        self.path = np.array([_START], np.float32)
        self._phases: list[tuple[float, float, int]] = []  # (q, sigma, steps) of the steps taken

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return len(self.path) - 1

    # ---- buttons, which only set flags -----------------------------------------------------------

    def take(self, steps: int) -> None:
        """Take this many steps, as the button takes one; return at once."""
        with self._lock:
            self._wanted += steps
        self.ask()

    def _reset(self) -> None:
        self.play.value = False
        with self._lock:
            self._begin_anew, self._wanted, self._fresh = True, 0, 0
        self.ask()

    def _renew(self) -> None:
        with self._lock:
            self._fresh += 1
        self.ask()

    def _turn(self) -> None:
        playing = self.play.value
        self.play.description, self.play.icon = ("Pause", "pause") if playing else ("Play", "play")
        if playing:
            self._stop = threading.Event()
            background(
                functools.partial(self._play, self._stop), "dpvi-teaching-play", self._stop.set
            )
        else:
            self._stop.set()

    def _play(self, stop: threading.Event) -> None:
        """Ask for a step whenever the one before is shown."""
        while not stop.wait(_FRAME_SECONDS) and not self._closed:
            if self.steps >= _MOST_STEPS:
                self.play.value = False
            elif not self._wanted:
                self.take(1)

    # ---- in the thread ---------------------------------------------------------------------------

    def _update(self, is_old: Callable[[], bool]) -> None:
        numbers = self.values()
        with self._lock:
            if self._begin_anew:
                self._forget()
                self._begin_anew = False
            wanted, self._wanted, fresh = self._wanted, 0, self._fresh
            if wanted:
                self._fresh = 0
        for _ in range(min(wanted, _MOST_STEPS - self.steps)):
            taken = self._descent.step(self.path[-1], self.steps, fresh=fresh, **numbers)
            self.path = np.concatenate([self.path, taken.after[None]])
            self._count(numbers["sampling_rate"], numbers["noise_multiplier"])
            fresh = 0
        shown = self._descent.step(self.path[-1], self.steps, fresh=fresh, **numbers)
        resting = clipped_location(CLOUD, numbers["clip"])
        self._figure.draw(
            shown,
            self.path,
            resting,
            clip=numbers["clip"],
            sigma=numbers["noise_multiplier"],
            rate=numbers["sampling_rate"],
        )
        mean, drawn = CLOUD.mean(axis=0), int(shown.drawn.sum())
        scale = numbers["sampling_rate"] * len(CLOUD)
        deviation = numbers["noise_multiplier"] * numbers["clip"]
        self.show(
            0,
            self._figure.frame(),
            [
                f"Next is step {self.steps + 1}: {drawn} records are drawn. Pulls longer than C, "
                f"which are clipped: {shown.num_clipped}.",
                f"The sum has length {_length(shown.total)}. The noise has standard deviation "
                f"sigma C = {deviation:.3g} in each coordinate; here it has length "
                f"{_length(shown.noise)}. Both together, divided by q N = {scale:g} and times "
                f"the learning rate, move the parameters by {_length(shown.change)}.",
                f"The parameters are {_length(self.path[-1] - mean)} from the mean of the "
                f"records. Without noise they would settle {_length(resting - mean)} from it "
                "with this C.",
                self._spent(),
            ],
        )

    def _count(self, rate: float, sigma: float) -> None:
        if self._phases and self._phases[-1][:2] == (rate, sigma):
            self._phases[-1] = (rate, sigma, self._phases[-1][2] + 1)
        else:
            self._phases.append((rate, sigma, 1))

    def _spent(self) -> str:
        if not self._phases:
            return "No step has been taken yet, so nothing is spent."
        epsilon = spent_by_steps(tuple(self._phases), _DELTA)
        made = "1 step" if self.steps == 1 else f"{self.steps} steps"
        if not math.isfinite(epsilon):
            guarantees = "has" if self.steps == 1 else "have"
            return (
                f"The {made} {guarantees} no guarantee: without enough noise there is no epsilon."
            )
        return (
            f"The noised sums of the {made} alone would have epsilon {epsilon:g} at delta "
            f"{_DELTA:g} (one record added or removed). Everything else here shows the records "
            "themselves, which a private fit never does."
        )

    def _ahead(self) -> Iterable[Callable[[], object]]:
        numbers = self.values()
        for _, rate in self.sliders["sampling_rate"].options:  # compile for each rate
            yield functools.partial(
                self._descent.step, _START, 0, **{**numbers, "sampling_rate": rate}
            )

    def close(self) -> None:
        """Stop playing, remove the view and end the threads."""
        self.play.value = False
        super().close()


def _length(vector: np.ndarray) -> str:
    return f"{float(np.linalg.norm(vector)):.3g}"


RECORDS, SHOWN_STEPS = 40, 40
SIZES = (2, 4, 8, 20, 40)
NOISES = (0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
STEPS = (40, 100, 200, 400, 1000, 2000)
DELTAS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


class SamplersScreen(TeachingScreen):
    """The screen of ``workbench.teaching.samplers``."""

    forms: ClassVar = {
        "batch_size": (f"size (of {RECORDS} records)", SIZES),
        "noise_multiplier": ("noise sigma (times C)", NOISES),
        "steps": ("steps T", STEPS, _numbers.count),
        "delta": ("delta (probability)", DELTAS),
    }

    def __init__(self, *, seed: int | None, **starts: float) -> None:
        self._key = new_key() if seed is None else key_from_seed(_validate.seed("seed", seed))
        self._draws = 0
        self._drawn: tuple[int, int] | None = None  # draws and size in the picture
        self.again = button("Draw again", self._redraw, "Draw other minibatches", icon="random")
        self.compare = button(
            "All accountants",
            self._compare,
            "Compute the plan's epsilon with every accountant; takes seconds",
            icon="table",
        )
        self.table = widgets.HTML()
        self._comparing = Latest("dpvi-teaching-table", pause=0.0)
        self._minibatches, self._spending = MinibatchFigure(RECORDS, SHOWN_STEPS), SpendingFigure()
        buttons = widgets.HBox(
            [self.again, self.compare], layout=widgets.Layout(flex_flow="row wrap")
        )
        super().__init__(
            "Who is in which minibatch",
            "First, 40 records (rows) and 40 steps (columns): a filled cell is a record in a "
            "minibatch. Then, the epsilon of all steps. Each sampler has its own accountants and "
            "its own neighbouring relation, so the epsilons of different lines mean different "
            "things.",
            starts,
            [
                (
                    "Records over steps under four samplers, and how often each record is drawn.",
                    self._minibatches,
                ),
                (
                    "Epsilon over steps under every sampler and relation: lines PLD, open "
                    "markers RDP.",
                    self._spending,
                ),
            ],
            buttons,
            self.table,
        )

    def _redraw(self) -> None:
        self._draws += 1
        self.ask()

    def _plan(self) -> dict[str, Any]:
        plan = self.values()
        size = plan.pop("batch_size")
        return {**plan, "sampling_rate": size / RECORDS}

    def _update(self, is_old: Callable[[], bool]) -> None:
        plan, batch = self._plan(), (self._draws, self.sliders["batch_size"].value)
        if batch != self._drawn:
            self._minibatches.draw([self._members(sampler, *batch) for sampler in LAWS])
            self._drawn = batch
            self.draw(0, self._minibatches.frame())
        results = []
        for accountant in ("pld", "rdp"):
            if accountant == "rdp" and not rests(
                is_old
            ):  # it takes longer, and would delay the next picture
                return
            for case in CASES:
                if is_old():
                    return
                results.append(spent(*case, accountant, **plan))
            self._spending.draw(results, plan["steps"])
            self.show(
                1,
                self._spending.frame(),
                self._sentences({result[:3]: result.epsilon for result in results}),
            )

    def _members(self, sampler: str, draws: int, size: int) -> np.ndarray:
        import jax

        key = jax.random.fold_in(self._key, draws)
        return minibatches(
            sampler, num_records=RECORDS, batch_size=size, steps=SHOWN_STEPS, key=key
        )

    def _sentences(self, epsilons: dict[tuple[str, ...], float]) -> list[str]:
        def of(sampler: str, relation: str) -> str:
            value = epsilons[sampler, relation, "pld"]
            return f"epsilon {_numbers.upper(value, 3)}" if math.isfinite(value) else "no epsilon"

        values = self.values()
        size, steps = values["batch_size"], values["steps"]
        rounds = steps / (RECORDS // size)
        has_markers = any(
            name == "rdp" and 0 < value < math.inf for (_, _, name), value in epsilons.items()
        )
        return [
            f"{_numbers.count(steps)} steps, q = {size / RECORDS:g}, sigma = "
            f"{values['noise_multiplier']:g}, delta = {values['delta']:g}.",
            f"Poisson: {of('poisson', 'add_or_remove_one')} for one record added or removed. "
            f"Without replacement: {of('without_replacement', 'replace_one')} for one record "
            f"replaced, which moves a sum by up to 2 C. Shuffle: {of('shuffle', 'replace_one')} "
            f"for one replaced, {of('shuffle', 'replace_special')} for one blanked in place, "
            f"after {_numbers.count(math.ceil(rounds))} epochs without amplification by "
            f"sampling. Random allocation: {of('random_allocation', 'add_or_remove_one')} for "
            "one added or removed, each once an epoch.",
            *(
                ["RDP (open markers) is also an upper bound, but a looser one."]
                if has_markers
                else []
            ),
        ]

    def _compare(self) -> None:
        plan = self._plan()
        self.compare.disabled = True
        self.table.value = markup.quiet(
            "computing; the Fourier accountant runs in its own process…"
        )

        def work() -> str:
            from workbench.privacy.comparison import compare

            epsilons: dict[str, dict[str, str]] = {}
            for row in compare(**plan).itertuples():
                case = f"{LAWS[row.sampler].label}, {_NEIGHBOURS[row.relation]}"
                shown = "-" if math.isnan(row.epsilon) else _numbers.upper(row.epsilon, 3)
                epsilons.setdefault(case, {})[row.accountant] = shown
            rows = [
                [case, *(by_accountant.get(name, "") for name in _ACCOUNTANTS)]
                for case, by_accountant in epsilons.items()
            ]
            count = _numbers.count(plan["steps"])
            caption = (
                f"epsilon for sigma {plan['noise_multiplier']:g}, q {plan['sampling_rate']:g}, "
                f"{count} steps"
            )
            return markup.quiet(caption) + markup.table(
                ["sampler, neighbours", *_ACCOUNTANTS.values()], rows
            )

        def done(made: str | Exception) -> None:
            if not self._closed:
                self.table.value = (
                    markup.problem(str(made)) if isinstance(made, Exception) else made
                )
                self.compare.disabled = False

        self._comparing.ask(work, done)

    def _ahead(self) -> Iterable[Callable[[], object]]:
        plan = self._plan()
        for _, size in self.sliders["batch_size"].options:  # compile for each size
            for sampler in LAWS:
                yield functools.partial(self._members, sampler, 0, size)
        changes = [
            {name: value}
            for name in ("noise_multiplier", "steps", "delta")
            for value in around(self.sliders[name])
        ]
        sizes = around(self.sliders["batch_size"])
        changes += [{"sampling_rate": size / RECORDS} for size in sizes]
        for change in changes:
            for accountant in ("pld", "rdp"):
                for case in CASES:
                    yield functools.partial(spent, *case, accountant, **{**plan, **change})

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pictures are up to date and a requested table is filled."""
        return super().wait(timeout) and self._comparing.wait(timeout)

    def close(self) -> None:
        """Remove the view and end the threads."""
        self._comparing.close()
        super().close()
