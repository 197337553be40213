"""The teaching screens about plans: what an attacker can find, and what several fits spend
together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from workbench import _numbers
from workbench.privacy.guarantee import percent
from workbench.teaching.figures import AttackFigure, CompositionFigure
from workbench.teaching.screen import TeachingScreen, around
from workbench.teaching.simulations import Attack, Several, attack, several_fits

__all__ = ["CompositionScreen", "PrivacyScreen"]

EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
DELTAS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
RATES = (0.05, 0.1, 0.25, 0.5, 1.0)
STEPS = (100, 300, 1000, 3000, 10_000)
ACCUSED = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
FITS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50)


_PLAN = ("epsilon", "delta", "steps", "sampling_rate")  # names of the sliders


class _PlanScreen(TeachingScreen):
    """A screen about plans, with a slider for each of epsilon, delta, q and the number of steps."""

    # computes what the screen shows about a plan; repeated calls are free
    _account: Callable[..., Any]

    def _plan(self) -> dict[str, float]:
        values = self.values()
        return {name: values[name] for name in _PLAN}

    def _ahead(self) -> Iterable[Callable[[], object]]:
        plan = self._plan()
        for name in _PLAN:
            for value in around(self.sliders[name]):
                yield functools.partial(self._account, **{**plan, name: value})


class PrivacyScreen(_PlanScreen):
    """The screen of ``workbench.teaching.privacy``."""

    forms: ClassVar = {
        "epsilon": ("epsilon", EPSILONS),
        "delta": ("delta (probability)", DELTAS),
        "sampling_rate": ("sampling rate q", RATES),
        "steps": ("steps T", STEPS, _numbers.count),
        "accused": ("wrongly accused (%)", ACCUSED, lambda rate: f"{100 * rate:g}"),
    }

    def __init__(self, **starts: float) -> None:
        self._figure = AttackFigure()
        super().__init__(
            "One record in or out",
            "An attacker knows every other record and sees the fit. He guesses for each person "
            "whether they were in the data, and chooses how many outsiders he is willing to "
            "accuse wrongly. How many members can he find?",
            starts,
            [
                (
                    "The largest share of members that an attacker can find, over the share of "
                    "non-members wrongly accused.",
                    self._figure,
                )
            ],
        )

    def _update(self, is_old: Callable[[], bool]) -> None:
        plan, rate = self._plan(), self.sliders["accused"].value
        account = self._account(**plan)
        (promised, accounted), belief = account.found(rate), account.belief(rate)
        self._figure.draw(account, rate)
        self.show(
            0,
            self._figure.frame(),
            [
                f"Of 100 members, an attacker who wrongly accuses {100 * rate:g} % of "
                f"non-members finds at most {percent(accounted).removesuffix(' %')}.",
                f"Random guesses that ignore the fit find {100 * rate:g}; (epsilon, delta) alone "
                f"would allow {percent(promised).removesuffix(' %')}. If he suspects someone at "
                f"50 % and then accuses them, his suspicion rises to at most {percent(belief)}.",
                f"The fit: {_numbers.count(plan['steps'])} steps, Poisson minibatches at q = "
                f"{plan['sampling_rate']:g}, noise multiplier sigma = "
                f"{account.noise_multiplier:g}, the smallest with epsilon = {plan['epsilon']:g}, "
                f"delta = {plan['delta']:g} when one record is added or removed.",
            ],
        )

    def _account(self, **plan: Any) -> Attack:
        return attack(**plan)


class CompositionScreen(_PlanScreen):
    """The screen of ``workbench.teaching.composition``."""

    forms: ClassVar = {
        "fits": ("number of fits", FITS),
        "epsilon": ("epsilon of one fit", EPSILONS[1:-2]),
        "delta": ("delta of one fit", DELTAS[:-2]),
        "sampling_rate": ("sampling rate q", RATES),
        "steps": ("steps T of one fit", STEPS, _numbers.count),
    }

    def __init__(self, **starts: float) -> None:
        self._figure = CompositionFigure()
        super().__init__(
            "Several fits on the same records",
            "Someone who sees several fits learns from all of them. Their guarantees can be "
            "added up, but an accountant that knows every step proves a much smaller epsilon. "
            "All three lines are upper bounds at the same delta.",
            starts,
            [
                (
                    "Three upper bounds on the epsilon of all fits together, over their number. "
                    "Quote the lowest one.",
                    self._figure,
                )
            ],
        )

    def _update(self, is_old: Callable[[], bool]) -> None:
        plan, count = self._plan(), self.sliders["fits"].value
        several = self._account(**plan)
        added, advanced, composed = several.of(count)
        self._figure.draw(several, count)
        they = "1 fit has" if count == 1 else f"{count} fits together have"
        self.show(
            0,
            self._figure.frame(),
            [
                f"{they} epsilon {composed:g} at most, at delta = {count * plan['delta']:g}, "
                "counted step by step.",
                f"Their guarantees add up to epsilon {added:g}. Advanced composition, which uses "
                "only the guarantees, "
                f"{'gives nothing smaller' if advanced >= added else f'proves {advanced:g}'}.",
                f"Each fit: {_numbers.count(plan['steps'])} steps, Poisson minibatches at q = "
                f"{plan['sampling_rate']:g}, sigma = {several.noise_multiplier:g}. Neighbours "
                "differ by one record added or removed. The bounds hold if all fits were planned "
                "beforehand and each drew its own noise.",
            ],
        )

    def _account(self, **plan: Any) -> Several:
        return several_fits(
            **plan, counts=tuple(value for _, value in self.sliders["fits"].options)
        )
