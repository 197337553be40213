"""The part of the sweep screen that fills during a sweep: progress, the figure, the table, fits to open, and files.

Only one presenter thread at a time calls ``begin``, ``show`` and ``finish`` and so writes these traits. When another score
is chosen, another thread redraws the figure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ipywidgets as widgets

from workbench import _numbers, plots
from workbench._lazy import pd
from workbench._numbers import duration
from workbench._validate import ArgumentError
from workbench.plots.metrics import words_of
from workbench.sweeps.request import DP
from workbench.sweeps.result import SweepResult
from workbench.widgets._kit import fields, markup
from workbench.widgets._kit.latest import Latest
from workbench.widgets.sweep.session import Moment, SweepSession
from workbench.widgets.workbench.live_panel import traceback_fold
from workbench.widgets.workbench.result_panel import PICTURES, drawn

__all__ = ["SweepPanel", "table_html"]

_ENDS = {"done": ("Done.", "success"), "stopped": ("Stopped.", "warning")}
_SETTINGS = (
    "method", "epsilon", "seed", "repetition", "iterations", "num_records", "sampler", "clip", "learning_rate",
    "noise_multiplier",
)  # fmt: skip
_MOST_ROWS = 300
_NO_FIGURE = "No figure: the evaluation records are private, and their scores were not requested. You can open the fits."
_NONE = ("none yet", -1)


class SweepPanel:
    """The outcome of a sweep. The screen displays ``live`` and the tabs ``table``, ``opening`` and ``export``.

    :param open_fit: called with the result and the number of the row whose fit is to be opened; it must return quickly.
    """

    def __init__(self, open_fit: Callable[[SweepResult, int], None]) -> None:
        self._open_fit = open_fit
        self._result: SweepResult | None = None
        self._is_over = False
        self._drawn = ""  # the score in the picture
        self._figures = Latest("dpvi-sweep-figure")
        self.status = widgets.HTML(markup.note("Ready.", "Set the ranges, read what they mean, and press Start."))
        self.progress = widgets.FloatProgress(
            value=0.0, min=0.0, max=1.0, description="fits done", style={"description_width": "96px"},
            layout=widgets.Layout(width="100%", height="18px"),
        )  # fmt: skip
        self.metric = fields.choice("metric", "score", [("none yet", "")], "")
        self.metric.visible = False
        self.about = widgets.HTML(markup.quiet("The figure fills when batches of fits end."))
        self.picture = widgets.Image(format="svg+xml", layout=widgets.Layout(width="100%", max_width="700px", height="auto"))
        self.picture.add_class("dpvi-figure")
        self.picture.layout.display = "none"
        self.picture.add_class("dpvi-curves")
        self.live = widgets.VBox([self.status, self.progress, self.metric.view, self.about, self.picture])
        self.table = widgets.HTML(markup.quiet("The fits appear here when they have ended."))
        self.fit = fields.choice(
            "fit", "fit", [_NONE], _NONE[1],
            help="It opens in a Workbench below, with its settings. Nothing is fitted again and nothing is spent.",
        )  # fmt: skip
        self.open = widgets.Button(
            description="Open in the Workbench", icon="external-link", disabled=True, layout=widgets.Layout(width="auto"),
            tooltip="Show the posterior, pictures and guarantee of this fit below",
        )  # fmt: skip
        self.opened = fields.line()
        self.opening = widgets.VBox([self.fit.view, self.open, self.opened])
        self.files = widgets.HTML(markup.quiet("The table and the figure can be downloaded when the sweep has ended."))
        self.code = widgets.HTML()
        self.export = widgets.VBox(
            [widgets.HTML(markup.heading("Files")), self.files, widgets.HTML(markup.heading("Code")), self.code]
        )
        self.metric.on_change(self._draw_another)
        self.open.on_click(lambda _: self._ask_for_fit())

    def show_code(self, call: str) -> None:
        """Show the code that repeats the sweep."""
        self.code.value = markup.fold("Copy as code", markup.code_box(f"import workbench as wb\n{call}"), is_open=True)

    def begin(self, resumed: bool) -> None:
        """Show that a sweep begins. A resumed sweep keeps its table and figure."""
        self.progress.bar_style = ""
        self.progress.value = 0.0
        self.status.value = markup.note("Preparing...")
        if resumed:
            return
        self._result = None
        self._show_picture(_Pictured("", b"", "The figure fills when batches of fits end.", ""))
        self.table.value = markup.quiet("The fits appear here when they have ended.")
        self.fit.offer([_NONE], _NONE[1])
        self.open.disabled = True

    def show(self, session: SweepSession, result: SweepResult | None) -> None:
        """Show the progress.

        :param result: the table so far if fits have ended since the last call, else None.
        """
        now = session.now()
        self.progress.value = now.share
        headline = "Stopping..." if session.stopping else "Fitting..." if now.step or now.share else "Compiling..."
        self.status.value = markup.note(headline, " · ".join(_facts(now)))
        if result is not None:
            self._fill(result, is_over=False)

    def finish(self, session: SweepSession, result: SweepResult) -> None:
        """Show how the sweep ended."""
        now = session.now()
        first, style = _ENDS.get(result.status, ("Ended early.", "danger"))
        statuses = result.table["status"].value_counts()
        others = [f"{count} {status}" for status, count in statuses.items() if status != "done"]
        remedy = "" if now.fits == now.planned else "Resume runs the others"
        words = [f"{now.fits} of {now.planned} fits in {duration(now.seconds)}", *others, *([remedy] if remedy else [])]
        self.status.value = (
            markup.note(first, " · ".join(words)) + markup.problem(session.problem) + traceback_fold(session.details)
        )
        self.progress.bar_style = style
        self.progress.value = now.share
        self._fill(result, is_over=True)

    def show_broken(self, details: str) -> None:
        """Show that the screen failed and not the sweep, with a folded traceback."""
        self.status.value = markup.note(
            "The sweep has ended, but it cannot be shown.",
            "Its table, if there is one, is in the screen's attribute result.",
        ) + traceback_fold(details)

    def show_opened(self, problem: str) -> None:
        """Show that the fit is open below, or why it cannot be opened."""
        fields.say(self.opened, markup.problem(problem) if problem else markup.quiet("The fit is open below."))
        self.open.disabled = False

    def _ask_for_fit(self) -> None:
        if self._result is not None:
            self.open.disabled = True
            fields.say(self.opened, markup.quiet("opening it…"))
            self._open_fit(self._result, self.fit.value)

    def _fill(self, result: SweepResult, *, is_over: bool) -> None:
        self._result, self._is_over = result, is_over
        self.table.value = table_html(result)
        fits = _to_open(result)
        self.fit.offer(fits or [_NONE], self.fit.value)
        self.open.disabled = not fits
        self.metric.offer([(words_of(name)[0], name) for name in result.metrics] or [("none yet", "")], self.metric.value)
        self.metric.visible = len(result.metrics) > 1
        self._show_picture(_pictured(result, self.metric.value, is_over))

    def _draw_another(self) -> None:
        result, metric = self._result, self.metric.value
        if result is not None and metric and metric != self._drawn:
            self._figures.ask(lambda: _pictured(result, metric, self._is_over), self._show_picture)

    def _show_picture(self, made: _Pictured | Exception) -> None:
        if isinstance(made, Exception):
            self.about.value = markup.problem(f"The figure cannot be drawn: {made}")
            return
        self._drawn = made.metric
        self.picture.value = made.shown
        self.picture.layout.display = None if made.shown else "none"
        self.about.value = markup.quiet(made.about) if made.about else ""
        self.files.value = made.files or markup.quiet("The files are made when the sweep has ended.")

    def close(self) -> None:
        """Stop drawing and forget the table."""
        self._figures.close()
        self._result = None


class _Pictured(NamedTuple):
    """The figure of a score as PNG, a text instead if there is none, and links to files."""

    metric: str
    shown: bytes
    about: str
    files: str


def _pictured(result: SweepResult, metric: str, with_files: bool) -> _Pictured:
    try:
        figure = result.plot(metric or None)
    except ArgumentError as error:
        about = _NO_FIGURE if not result.metrics and result.total is not None else f"No figure yet: {error.expectation}"
        return _Pictured("", b"", about, _table_link(result) if with_files else "")
    files = ""
    if with_files:
        links = [
            markup.download(f"{words} of {words_of(metric)[0]}", f"sweep-{metric}.{form}", drawn(figure, form), media)
            for words, (form, media) in PICTURES.items()
        ]
        files = "<br>".join([_table_link(result), *links])
    return _Pictured(metric, plots.svg(figure), "", files)


def _table_link(result: SweepResult) -> str:
    content = result.table.to_csv(index_label="number").encode()
    return markup.download("table (CSV)", "sweep.csv", content, "text/csv")


def _facts(now: Moment) -> list[str]:
    facts = [f"{now.fits} of {now.planned} fits"]
    if now.step < now.steps:
        facts.append(f"step {_numbers.count(now.step)} of {_numbers.count(now.steps)}")
    facts.append(f"{duration(now.seconds)} so far")
    facts.append("time left not known yet" if now.seconds_left is None else f"about {duration(now.seconds_left)} left")
    return facts


def _varying(table: pd.DataFrame) -> list[str]:
    """Columns of settings in which the private fits of ``table`` differ, and always epsilon."""
    private = table[table["method"] == DP]
    return [
        name for name in _SETTINGS
        if name == "epsilon" or (table if name == "method" else private)[name].nunique(dropna=False) > 1
    ]  # fmt: skip


def table_html(result: SweepResult) -> str:
    """The table as HTML: the settings that vary, the scores, and how the fits ended."""
    table = result.table
    names = [*_varying(table), *result.metrics, "status", *(["message"] if table["message"].any() else [])]
    rows = [[str(number), *map(_shown, values)] for number, values in zip(table.index, table[names].to_numpy(), strict=True)]
    labels = sorted(set(table["label"])) if result.metrics else []
    badges = f"<div>Scores: {' '.join(map(markup.badge, labels))}</div>" if labels else ""
    titles = ["number", *(words_of(name)[0] for name in names)]
    more = len(rows) - _MOST_ROWS
    hidden = markup.quiet(f"and {more} more rows, which are in the file") if more > 0 else ""
    return (
        f"{badges}<div class='dpvi-scrolls' style='max-height:360px;overflow:auto;overflow-wrap:normal'>"
        f"{markup.table(titles, rows[:_MOST_ROWS])}</div>{hidden}"
    )


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _to_open(result: SweepResult) -> list[tuple[str, int]]:
    """(words, number) of the finished fits. The words are the settings in which they differ."""
    table = result.table
    fits = table[(table["method"] == DP) & (table["status"] == "done")]
    if fits.empty:
        return []
    asked = {*result.settings_of(int(fits.index[0])), "repetition", "num_records"}
    names = [name for name in _varying(fits) if name in asked]
    return [
        (", ".join(f"{name.replace('_', ' ')} {_shown(row[name])}" for name in names), int(number))
        for number, row in fits.iterrows()
    ]
