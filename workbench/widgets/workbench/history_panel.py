"""A table of the session's fits and of saved ones, and a comparison of two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from workbench import plots
from workbench._numbers import count, duration, shown, upper
from workbench._validate import ArgumentError
from workbench.plots.metrics import of_score, score_name, words_of
from workbench.privacy.guarantee import percent
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.presses import Presses

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["HistoryPanel"]

_COLUMNS = [
    "fit",
    "model",
    "data",
    "epsilon",
    "steps",
    "ELBO",
    "score",
    "evaluation records",
    "time of steps",
    "status",
]
_NOT_COMPARED = {"seed"}


class HistoryPanel:
    """A table with a row for each fit, and a comparison of the settings, metrics and curves of two
    fits.

    ``view`` is the widget to display, and ``presses`` must be on the page too; ``add`` appends a
    fit, and ``open`` one of an earlier session.

    :param show_again: called with the number, from 0, of a fit whose button is pressed.
    """

    def __init__(self, show_again: Callable[[int], None] = lambda number: None) -> None:
        self.results: list[Any] = []
        self.selected: Any = None  # the result that the screen shows
        self.presses = Presses(show_again)
        self._opened: list[Any] = []
        self._is_offering = False
        self.table = widgets.HTML(markup.quiet("No fit has ended yet."))
        self.first = fields.choice("first", "compare fit", [("none", -1)], -1)
        self.second = fields.choice("second", "with fit", [("none", -1)], -1)
        self.comparison = widgets.HTML()
        self.folder = fields.text(
            "folder",
            "open a saved fit",
            placeholder="its folder, such as runs/first",
            help="A folder that Export, result.save or workbench fit --out wrote. Opening a fit "
            "spends nothing.",
        )
        self.folder.on_change(self._open)
        self.view = widgets.VBox(
            [self.table, self.folder.view, self.first.view, self.second.view, self.comparison]
        )
        for field in (self.first, self.second):
            field.visible = False
            field.on_change(self.compare)

    def add(self, result: FitResult, *, continues: bool = False) -> None:
        """Add a fit that has ended, and show it.

        :param continues: whether it is the last fit, resumed after a stop; it then replaces that
            fit.
        """
        self.keep(result, continues=continues)
        self.show()

    def keep(self, result: FitResult, *, continues: bool = False) -> None:
        """``add`` without ``show``."""
        fitted = [
            index for index, earlier in enumerate(self.results) if not _is_in(earlier, self._opened)
        ]
        if continues and fitted:
            self.results[fitted[-1]] = result
        else:
            self.results.append(result)

    def open(self, folder: str) -> Any:
        """Add the fit that was saved in ``folder``, and return its result.

        :raises ArgumentError: naming ``folder``, if it holds no saved result.
        """
        from workbench.results import load

        result = load(folder)
        self._opened.append(result)
        self.results.append(result)
        self.show()
        return result

    def _open(self) -> None:
        folder = self.folder.value.strip()
        if not folder:
            return
        try:
            self.open(folder)
        except ArgumentError as error:
            self.folder.show_error(error.expectation)
            return
        except Exception as error:  # a file that no version wrote must not silence the screen
            self.folder.show_error(f"cannot be opened: {fields.in_words(error)}")
            return
        self.folder.show_error("")
        self.folder.value = ""

    def show(self, *, compares: bool = True) -> None:
        """Show all fits, and a comparison of two of them.

        :param compares: False to leave out the comparison, whose picture takes most of the time,
            until ``compare``.
        """
        rows = []
        for index, result in enumerate(self.results):
            is_on = result is self.selected
            button = self.presses.button(index, str(index + 1), "Show this fit above", is_on=is_on)
            rows.append(_row(button, result, _is_in(result, self._opened)))
        self.table.value = markup.cards(_COLUMNS, rows) + markup.quiet(
            "Fits on the same private records add up: each fit spends its own epsilon. Choosing "
            "between fits by private scores leaks as well."
        )
        if len(self.results) < 2:
            return
        options = [
            (
                f"{number}: {result.model} on {result.data['name']}, {result.guarantee.label()}",
                number - 1,
            )
            for number, result in enumerate(self.results, start=1)
        ]
        chosen = (
            self.first.value if self.first.value >= 0 else len(self.results) - 2,
            len(self.results) - 1,
        )
        self._is_offering = True
        for field, value in zip((self.first, self.second), chosen, strict=True):
            field.offer(options, value)
            field.visible = True
        self._is_offering = False
        if compares:
            self.compare()

    def compare(self) -> None:
        """Compare the two fits that are chosen, if there are two."""
        if self._is_offering or len(self.results) < 2:
            return
        indices = self.first.value, self.second.value
        chosen = {f"fit {index + 1}": self.results[index] for index in indices}
        if len(chosen) < 2:
            self.comparison.value = markup.quiet("Choose two different fits.")
            return
        rows = _differences(chosen)
        same = markup.quiet("Settings and metrics are the same.")
        inner = markup.table(["setting", *chosen], rows, numbers=False) if rows else same
        if len({result.data["name"] for result in chosen.values()}) > 1:
            inner += markup.quiet(
                "The fits are of different data, so their scores and curves do not measure the "
                "same."
            )
        if all(result.history for result in chosen.values()):
            from workbench.plots.curves import two_runs_figure

            picture = markup.image(
                plots.png(two_runs_figure(chosen)), "curves of both fits over steps", 700
            )
            inner += f"<div style='margin-top:12px'>{picture}</div>"
        self.comparison.value = inner

    def close(self) -> None:
        """Forget the fits."""
        self.selected = None
        self.results.clear()
        self._opened.clear()


def _is_in(result: FitResult, results: list[Any]) -> bool:
    return any(result is member for member in results)


def _row(number: str, result: FitResult, is_opened: bool) -> list[str]:
    guarantee, metrics = result.guarantee, result.metrics
    score = score_name(metrics)
    taken = count(guarantee.steps_taken)
    return [
        number,
        result.model,
        result.data["name"],
        upper(guarantee.epsilon) if guarantee.is_private else guarantee.label(),
        taken
        if guarantee.steps_taken == guarantee.steps
        else f"{taken} of {count(guarantee.steps)}",
        _shown(metrics.get("elbo")),
        f"{words_of(score)[0]} {_score(score, result)}" if score else "-",
        result.metrics_label if metrics else "-",
        duration(result.seconds),
        f"{result.status}, opened" if is_opened else result.status,
    ]


def _shown(value: object) -> str:
    return "-" if value is None else shown(value) if isinstance(value, float) else str(value)


def _score(name: str, result: FitResult) -> str:
    value = result.metrics.get(name)
    return "-" if value is None else of_score(name, value)


def _differences(chosen: Mapping[str, Any]) -> list[list[str]]:
    """Rows (name, value in each fit) of the settings that differ, and of all metrics."""
    facts = []
    for result in chosen.values():
        bounds = result.guarantee.attack_bounds()
        facts.append(
            {
                "model": result.model,
                "data": result.data["name"],
                **result.model_options,
                **{
                    name: value
                    for name, value in result.settings.items()
                    if name not in _NOT_COMPARED
                },
                "epsilon": upper(result.guarantee.epsilon),
                "delta": upper(result.guarantee.delta),
                "noise multiplier sigma": result.guarantee.noise_multiplier,
                "attacker finds at most, at 1 % false alarms": percent(
                    bounds["true_positive_rate_at_1_percent"]
                ),
                "steps taken": result.guarantee.steps_taken,
                "status": result.status,
                "time of steps": duration(result.seconds),
            }
        )
    names = list(dict.fromkeys(name for values in facts for name in values))
    differing = [
        name for name in names if any(values.get(name) != facts[0].get(name) for values in facts)
    ]
    rows = [
        [name.replace("_", " "), *(_shown(values.get(name)) for values in facts)]
        for name in differing
    ]
    metrics = list(dict.fromkeys(name for result in chosen.values() for name in result.metrics))
    for name in metrics:
        labels = {result.metrics_label for result in chosen.values()}
        label = "outside the guarantee" if len(labels) > 1 else labels.pop()
        rows.append(
            [
                f"{words_of(name)[0]} ({label})",
                *(_score(name, result) for result in chosen.values()),
            ]
        )
    return rows
