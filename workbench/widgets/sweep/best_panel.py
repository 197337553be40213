"""Keep the best of a sweep's combinations, with the choice inside the guarantee."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from workbench._numbers import upper
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.results.fit_result import FitResult
from workbench.widgets.kit import fields, markup
from workbench.widgets.sweep.settings import SweepSettings

__all__ = ["BestPanel"]

_ABOUT = (
    "A sweep publishes all its fits. This keeps one, the fit with the best log-likelihood of "
    "held-out records, out of a secret number of private fits: {runs:g} on average, of "
    "combinations drawn at random. Nothing of the others is shown, so together they spend epsilon "
    "{epsilon}, and no more."
)


class BestPanel:
    """What a choice among the combinations would do, and the button that makes it; ``view`` is the
    widget to display.

    :param on_choose: called when the button is pressed.
    """

    def __init__(self, on_choose: Callable[[], None]) -> None:
        self._about, self._said = fields.line(), fields.line()
        self.choose = fields.button(
            "Keep the best", on_choose, primary=True, layout={"width": None}
        )
        self._code = widgets.HTML()
        self.view = widgets.VBox([self._about, self.choose, self._said, self._code])
        self.show_unknown()

    def show(self, settings: SweepSettings, dataset: Dataset) -> None:
        """Show what ``settings`` would choose among."""
        from workbench.fitting.choosing import candidates_of, usual_runs

        try:
            arguments = settings.choice()
        except ArgumentError as error:
            self.show_unknown(f"To keep the best: {fields.in_words(error)}")
            return
        if not (dataset.num_evaluation or dataset.is_public):
            self.show_unknown("To keep the best, the data set needs evaluation records.")
            return
        epsilon = upper(arguments["epsilon"])
        runs = usual_runs(len(candidates_of(arguments["candidates"])))
        fields.say(self._about, markup.quiet(_ABOUT.format(runs=runs, epsilon=epsilon)))
        self._code.value = markup.code_box(settings.choice_as_code())
        self.choose.disabled = False

    def show_unknown(self, reason: str = "") -> None:
        """Show why nothing can be chosen."""
        self.choose.disabled = True
        fields.say(self._about, markup.quiet(reason) if reason else "")
        self._code.value = ""

    def show_running(self) -> None:
        """Show that fits are compared, and nothing of them."""
        self.choose.disabled = True
        fields.say(self._said, markup.quiet("choosing; nothing is shown until the end…"))

    def show_end(self, outcome: FitResult | Exception) -> None:
        """Show what was chosen, or the error that ended the choice."""
        self.choose.disabled = False
        if isinstance(outcome, Exception):
            fields.say(self._said, markup.problem(fields.in_words(outcome)))
            return
        number, total = outcome.settings["chosen"], outcome.settings["candidates"]
        fields.say(
            self._said,
            markup.quiet(f"Kept: combination {number} of {total}. The fit is shown below."),
        )
