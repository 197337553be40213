"""The part of the sweep screen that fills during a sweep: progress, the figure, the table, fits to
open, and files.

Only one presenter thread at a time calls ``begin``, ``show`` and ``finish`` and so writes these
traits. Another thread makes the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from workbench import _csv, _numbers
from workbench._lazy import pd
from workbench._numbers import duration
from workbench._validate import ArgumentError
from workbench.plots.metrics import interval_of, words_of
from workbench.sweeps.request import DP
from workbench.sweeps.result import SweepResult
from workbench.sweeps.sweeping import PreparedSweep
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.latest import Latest
from workbench.widgets.sweep.figure import learnt, planned, scored
from workbench.widgets.sweep.session import Moment, SweepSession
from workbench.widgets.workbench.live_panel import traceback_fold
from workbench.widgets.workbench.result_panel import PICTURES, drawn

__all__ = ["SweepPanel", "figure_of", "table_html"]

_ENDS = {"done": ("Done.", ""), "stopped": ("Stopped.", "cancelled")}
_SETTINGS = (
    "method",
    "epsilon",
    "seed",
    "repetition",
    "iterations",
    "num_records",
    "sampler",
    "clip",
    "learning_rate",
    "noise_multiplier",
)
_BOUNDS = ("epsilon", "noise_multiplier")  # rounded up
_MOST_ROWS = 300
_NO_SCORES = (
    "The posteriors under Fits. The evaluation records are private, and their scores were not "
    "requested."
)
_NEXT = "Open a fit under Fits, for its posterior, its pictures and its guarantee."
_RESUME = "Resume runs the fits that are left; what is done is not run again."
_NO_FILES = "The files are made when the sweep has ended."
_NO_ROWS = "The fits appear here when they have ended."
_NONE = ("none yet", -1)


class SweepPanel:
    """The outcome of a sweep. The screen displays ``status``, ``curves``, ``sentences``, ``table``,
    ``opening``, ``export``.

    :param open_fit: called with the result and the number of the row whose fit is to be opened; it
        must return quickly.
    """

    def __init__(self, open_fit: Callable[[SweepResult, int], None]) -> None:
        self._open_fit = open_fit
        self._result: SweepResult | None = None
        self._drawing = Latest("dpvi-sweep-files", pause=0.0)
        self.status, self.curves, self.sentences = (
            widgets.HTML(),
            widgets.HTML(planned(None)),
            widgets.HTML(),
        )
        self.ready()
        self.table = widgets.HTML(markup.quiet(_NO_ROWS))
        self.fit = fields.choice(
            "fit",
            "fit",
            [_NONE],
            _NONE[1],
            help="It opens in a Workbench below, with its settings. Nothing is fitted again and "
            "nothing is spent.",
        )
        self.open = fields.button(
            "Open in the Workbench",
            self._ask_for_fit,
            "Show the posterior, pictures and guarantee of this fit below",
            icon="external-link",
            disabled=True,
            layout={"align_self": "flex-start"},
        )
        self.opened = fields.line()
        self.opening = widgets.VBox([self.fit.view, self.open, self.opened])
        self.metric = fields.choice("metric", "score", [("none yet", "")], "")
        self.metric.visible = False
        self.files = widgets.HTML(markup.quiet(_NO_FILES))
        self.code = widgets.HTML()
        self.export = widgets.VBox(
            [
                widgets.HTML(markup.heading("Files")),
                self.metric.view,
                self.files,
                widgets.HTML(markup.heading("Code")),
                self.code,
            ]
        )
        self.metric.on_change(self._make_files)

    def ready(self, missing: str = "") -> None:
        """Show that a sweep can begin. :param missing: what must be done before, a sentence; "" for
        nothing.
        """
        note = (
            markup.note("Not ready yet.", missing)
            if missing
            else markup.note("Ready.", "Press Start.")
        )
        self.status.value = markup.status(note, 0.0)

    def show_plan(self, prepared: PreparedSweep) -> None:
        """Show what is planned where no sweep has run yet, or what the store has if nothing is left
        to run.
        """
        if self._result is not None:
            return
        if prepared.runs:
            self.curves.value = planned(prepared)
        else:
            self._fill(prepared.result())
            self._make_files()

    def show_unknown(self) -> None:
        """Remove a plan that the controls no longer have."""
        if self._result is None:
            self.curves.value = planned(None)

    def show_code(self, call: str) -> None:
        """Show the code that repeats the sweep."""
        self.code.value = markup.code_box(f"import workbench as wb\n{call}")

    def begin(self, session: SweepSession, resumed: bool) -> None:
        """Show that a sweep begins. A resumed sweep keeps its table and figure."""
        self.status.value = markup.status(markup.note("Preparing…"), 0.0)
        if resumed:
            return
        self._result = None
        self.show_plan(session.prepared)
        self.table.value, self.files.value, self.sentences.value = (
            markup.quiet(_NO_ROWS),
            markup.quiet(_NO_FILES),
            "",
        )
        self.fit.offer([_NONE], _NONE[1])
        self.open.disabled = True

    def show(self, session: SweepSession, result: SweepResult | None) -> None:
        """Show the progress.

        :param result: the table so far if fits have ended since the last call, else None.
        """
        now = session.now()
        headline = (
            "Stopping…"
            if session.stopping
            else "Fitting…"
            if now.step or now.fraction
            else "Compiling…"
        )
        self.status.value = markup.status(
            markup.note(headline, " · ".join(_facts(now))), now.fraction
        )
        if result is not None:
            self._fill(result)

    def finish(self, session: SweepSession, result: SweepResult) -> None:
        """Show the table and the figure of a sweep that has ended."""
        self.status.value = markup.status(markup.note("Finishing…"), session.now().fraction)
        self._fill(result)
        learning = learnt(result) or ("" if result.total is None else _NO_SCORES)
        now = session.now()
        then = _NEXT if now.fits == now.planned else _RESUME
        self.sentences.value = markup.paragraphs(
            {"What was learnt.": learning, "What to try next.": then}
        )
        self._make_files()

    def show_end(self, session: SweepSession, result: SweepResult) -> None:
        """Show how a sweep ended: another can begin now."""
        now = session.now()
        first, style = _ENDS.get(result.status, ("Ended early.", "failed"))
        statuses = result.table["status"].value_counts()
        unfinished = [f"{count} {status}" for status, count in statuses.items() if status != "done"]
        words = [f"{now.fits} of {now.planned} fits in {duration(now.seconds)}", *unfinished]
        line = (
            markup.note(first, " · ".join(words))
            + markup.problem(session.problem)
            + traceback_fold(session.details)
        )
        self.status.value = markup.status(line, now.fraction, style)

    def show_broken(self, details: str) -> None:
        """Show that the screen failed and not the sweep, with a folded traceback."""
        line = markup.note(
            "The sweep has ended, but it cannot be shown.",
            "Its table, if there is one, is in the screen's attribute result.",
        )
        self.status.value = markup.status(line + traceback_fold(details), 0.0)

    def show_opened(self, problem: str) -> None:
        """Show that the fit is open below, or why it cannot be opened."""
        fields.say(
            self.opened,
            markup.problem(problem) if problem else markup.quiet("The fit is open below."),
        )
        self.open.disabled = False

    def _ask_for_fit(self) -> None:
        if self._result is not None:
            self.open.disabled = True
            fields.say(self.opened, markup.quiet("opening it…"))
            self._open_fit(self._result, self.fit.value)

    def _fill(self, result: SweepResult) -> None:
        self._result = result
        self.table.value = table_html(result)
        fits = _to_open(result)
        self.fit.offer(fits or [_NONE], self.fit.value)
        self.open.disabled = not fits
        self.metric.offer(
            [(words_of(name)[0], name) for name in result.metrics] or [("none yet", "")],
            self.metric.value,
        )
        self.metric.visible = len(result.metrics) > 1
        self.curves.value = scored(result) or self.curves.value

    def _make_files(self) -> None:
        result, metric = self._result, self.metric.value
        if result is not None:
            self._drawing.ask(lambda: _links(result, metric), self._show_files)

    def _show_files(self, made: str | Exception) -> None:
        self.files.value = (
            markup.problem(f"The files cannot be made: {made}")
            if isinstance(made, Exception)
            else made
        )

    def close(self) -> None:
        """Stop drawing and forget the table."""
        self._drawing.close()
        self._result = None


def figure_of(result: SweepResult, metric: str = "") -> Any:
    """The figure of ``metric``, "" for the first; None if no finished fit has scores."""
    with contextlib.suppress(ArgumentError):
        return result.plot(metric or None)
    return None


def _links(result: SweepResult, metric: str) -> str:
    """Links to the table as a file and, if there are scores, to the figure of ``metric``."""
    links = [
        markup.download(
            "table (CSV)",
            "sweep.csv",
            _csv.to_csv(result.table, index_label="number").encode(),
            "text/csv",
        )
    ]
    figure = figure_of(result, metric)
    if figure is not None:
        links += [
            markup.download(
                f"{words} of {words_of(metric)[0]}",
                f"sweep-{metric}.{form}",
                drawn(figure, form),
                media,
            )
            for words, (form, media) in PICTURES.items()
        ]
    return "<br>".join(links)


def _facts(now: Moment) -> list[str]:
    facts = [f"{now.fits} of {now.planned} fits"]
    if now.step < now.steps:
        facts.append(f"step {_numbers.count(now.step)} of {_numbers.count(now.steps)}")
    facts.append(f"{duration(now.seconds)} so far")
    facts.append(
        "time left not known yet"
        if now.seconds_left is None
        else f"about {duration(now.seconds_left)} left"
    )
    return facts


def _varying(table: pd.DataFrame) -> list[str]:
    """Columns of settings in which the private fits of ``table`` differ, and always epsilon."""
    private = table[table["method"] == DP]
    return [
        name
        for name in _SETTINGS
        if name == "epsilon"
        or (table if name == "method" else private)[name].nunique(dropna=False) > 1
    ]


def table_html(result: SweepResult) -> str:
    """The table as HTML: the settings that vary, the scores, and how the fits ended."""
    table = result.table
    names = [
        *_varying(table),
        *result.metrics,
        "status",
        *(["message"] if table["message"].any() else []),
    ]
    columns = [list(map(str, table.index)), *(_shown(table[name]) for name in names)]
    for index, name in enumerate(names, 1):
        if f"{name}_low" in table:
            ends = table[f"{name}_low"], table[f"{name}_high"]
            intervals = [interval_of(name, {name: pair}) for pair in zip(*ends, strict=True)]
            columns[index] = list(map("".join, zip(columns[index], intervals, strict=True)))
    rows = list(zip(*columns, strict=True))
    labels = sorted(set(table["label"])) if result.metrics else []
    badges = f"<div>Scores: {' '.join(map(markup.badge, labels))}</div>" if labels else ""
    titles = [
        "number",
        *("noise sigma" if name == "noise_multiplier" else words_of(name)[0] for name in names),
    ]
    more = len(rows) - _MOST_ROWS
    hidden = markup.quiet(f"and {more} more rows, which are in the file") if more > 0 else ""
    return f"{badges}{markup.cards(titles, rows[:_MOST_ROWS], numbers=True)}{hidden}"


def _shown(column: pd.Series) -> list[str]:
    """The cells of a column; numbers of one column have the same decimals."""
    if not pd.api.types.is_float_dtype(column):
        return ["-" if pd.isna(value) else str(value) for value in column]
    if column.name in _SETTINGS:
        return [
            "-"
            if pd.isna(value)
            else _numbers.upper(value, 4)
            if column.name in _BOUNDS
            else f"{value:.4g}"
            for value in column
        ]
    spread = float(column.std())
    return [_numbers.shown(value, spread if spread > 0 else None) for value in column]


def _to_open(result: SweepResult) -> list[tuple[str, int]]:
    """(words, number) of the finished fits. The words are the settings in which they differ."""
    table = result.table
    fits = table[(table["method"] == DP) & (table["status"] == "done")]
    if fits.empty:
        return []
    settings = {*result.flat_settings_of(int(fits.index[0])), "repetition", "num_records"}
    names = [name for name in _varying(fits) if name in settings]
    return [
        (
            ", ".join(
                f"{name.replace('_', ' ')} {cell}" for name, cell in zip(names, cells, strict=True)
            ),
            int(number),
        )
        for number, *cells in zip(fits.index, *(_shown(fits[name]) for name in names), strict=True)
    ]
