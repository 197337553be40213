"""The ledger screen: the data sets in the ledger, and the spending, the fits and the cap of one of
them.

One thread reads the ledger and computes totals, another writes to it. Callbacks only start them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as widgets

from workbench import _numbers, _validate
from workbench.data import Dataset
from workbench.ledger import ledger as books
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.composition import TotalPrivacy
from workbench.privacy.steps import NEIGHBOURS
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.base import Screen, framed
from workbench.widgets.kit.late import send, unsent
from workbench.widgets.kit.latest import Latest
from workbench.widgets.kit.tabs import Tabs
from workbench.widgets.ledger import words

__all__ = ["Ledger"]

_COLUMNS = ["no.", "data set", "fits", "epsilon", "delta", "reserved", "cap", "used", "relatives"]
_ALWAYS = 5  # columns that are shown even if they are empty
_NOTHING = "Nothing has been recorded: the first fit on private records creates the ledger."
_CAP_HELP = (
    "All fits on this data set, on its relatives and on all data sets of its name together then "
    "spend at most this, however each fit is chosen. Set the cap before the first fit, or at "
    "least before you look at any results."
)


class _Page(NamedTuple):
    """What the screen shows about one data set. ``spent``, ``statement`` and ``fits`` are HTML."""

    entry: books.Entry
    row: list[str]
    spent: str
    statement: str
    fits: str


class _Seen(NamedTuple):
    """The whole ledger at one moment.

    :param interrupted: number of reservations whose process is gone.
    """

    pages: dict[int, _Page]
    interrupted: int


class Ledger(Screen):
    """A screen of the ledger of spent privacy; display it in a notebook cell.

    >>> screen = wb.widgets.Ledger("project.db")

    :param path: of the ledger's file, or a ``workbench.ledger.ledger.Ledger``; None for the user's
        own.
    :param data: a private data set to choose first. It is entered if it is not in the ledger, so
        that it can get a cap before its first fit.
    """

    @unsent()
    def __init__(
        self, path: str | Path | books.Ledger | None = None, *, data: Dataset | None = None
    ) -> None:
        if not (path is None or isinstance(path, (str, Path, books.Ledger))):
            raise _validate.ArgumentError("path", path, "must be the path of a ledger's file.")
        if data is not None and (not isinstance(data, Dataset) or data.is_public):
            value = data.name if isinstance(data, Dataset) else type(data).__name__
            raise _validate.ArgumentError("data", value, "must be a Dataset of private records.")
        self._reading, self._writing = (
            Latest("dpvi-ledger"),
            Latest("dpvi-ledger-writing", pause=0.0),
        )
        self._files = Latest("dpvi-files")
        # in this order: the ledger is read after each write
        super().__init__(self._writing, self._reading, self._files)
        self.ledger = path if isinstance(path, books.Ledger) else books.Ledger(path)
        self._pages: dict[int, _Page] = {}
        self._filled = 0  # the data set that the form was filled for
        self._make_list()
        self._make_form()
        self.view = self._arranged()
        self._show_chosen()
        if data is None:
            self.look()
        else:
            self._enter(data)
        send(self.view)

    # ---- controls --------------------------------------------------------------------------------

    def _make_list(self) -> None:
        self.table = widgets.HTML(markup.quiet("reading the ledger…"))
        self.message = fields.line()
        self.refresh = fields.button(
            "Refresh", self._refresh, "Read the ledger again", icon="refresh"
        )
        self.recover = fields.button(
            "Recover",
            self._recover,
            "Charge interrupted fits only for the steps that they may have taken",
            icon="wrench",
            disabled=True,
        )
        self.export = fields.button(
            "Make file",
            self._export,
            "Make a page for an officer and a file with everything in the ledger",
            icon="download",
            layout={"align_self": "flex-start"},
        )
        self.link = widgets.HTML()
        self.dataset = fields.choice("dataset", "data set", [("none yet", 0)], 0)
        self.spent, self.statement, self.fits = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.dataset.on_change(self._choose)

    def _make_form(self) -> None:
        self.cap = widgets.HTML()
        self.epsilon = fields.text("epsilon", "epsilon")
        self.delta = fields.text("delta", "delta (probability)")
        relations = [(label, name) for name, label in NEIGHBOURS.items()]
        self.relation = fields.choice(
            "relation",
            "neighbours",
            relations,
            relations[0][1],
            help="Under replace one, fits of all samplers count.",
        )
        self.why = fields.text(
            "why", "why", help="The reason to set or remove the cap, which the ledger keeps."
        )
        self.set_cap = fields.button(
            "Set cap",
            self._set_cap,
            "Let all fits together spend at most this",
            icon="check",
            primary=True,
        )
        self.remove_cap = fields.button(
            "Remove", self._remove_cap, "Remove the cap of this data set", icon="times"
        )
        self._fields = {
            field.name: field
            for field in (self.dataset, self.epsilon, self.delta, self.relation, self.why)
        }

    def _arranged(self) -> Any:
        """All data sets beside what is spent on the chosen one. Its fits and the form for its cap
        are one click away.
        """
        buttons = fields.styled(widgets.HBox([self.refresh, self.recover]), "dpvi-buttons")
        chosen = fields.styled(self.dataset.view, "dpvi-long")
        bar = fields.styled(widgets.Box([chosen, buttons]), "dpvi-bar")
        short = [field.view for field in (self.epsilon, self.delta, self.relation)]
        why = fields.styled(self.why.view, "dpvi-whole")
        form = fields.styled(widgets.Box([*short, why]), "dpvi-fields")
        about = widgets.HTML(markup.help_mark(_CAP_HELP))
        pressed = widgets.HBox([self.set_cap, self.remove_cap, about])
        location = widgets.HTML(markup.quiet(f"Kept in {self.ledger.path}"))
        self.tabs = Tabs(
            {
                "Fits": self.fits,
                "Cap": widgets.VBox([self.cap, form, fields.styled(pressed, "dpvi-buttons")]),
                "Export": widgets.VBox([location, self.export, self.link]),
            },
            late=("Cap", "Export"),
        )
        self.tabs.open = "Fits"
        main = fields.beside(widgets.VBox([self.table, self.statement]), self.spent)
        return framed(bar, self.message, fields.styled(main, "dpvi-low"), self.tabs.view)

    def _ipython_display_(self) -> None:
        self.look()
        super()._ipython_display_()

    def _panels(self) -> Sequence[Any]:
        return (self.tabs,)

    # ---- reading ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Read the ledger again, as the Refresh button does; return at once."""
        self._reading.ask(self._read, self._show)

    def _read(self) -> _Seen:
        budgets = [self.ledger.budget_status(entry.number) for entry in self.ledger.datasets()]
        interrupted = {number for budget in budgets for number in budget.interrupted}
        pages = [page for page in map(_page, budgets) if page is not None]
        return _Seen({page.entry.number: page for page in pages}, len(interrupted))

    def _show(self, report: _Seen | Exception) -> None:
        with self._showing:
            if self._closed:
                return
            if isinstance(report, Exception):
                self._say_problems(_problems(report))
                return
            self._pages = report.pages
            self.table.value = _all_sets([page.row for page in report.pages.values()])
            if report.interrupted:
                self.table.value += markup.problem(
                    f"{words.count(report.interrupted, 'fit')} "
                    f"{'was' if report.interrupted == 1 else 'were'} interrupted. All their "
                    "planned steps are charged until you resume them in the Workbench or press "
                    "Recover."
                )
            self.recover.disabled = not report.interrupted
            chosen = self.dataset.value
            self.dataset.offer(
                [
                    (f"{page.entry.number}: {page.entry.name}", number)
                    for number, page in report.pages.items()
                ]
                or [("none yet", 0)],
                chosen,
            )
            if self.dataset.value == chosen:
                self._show_chosen()

    def _refresh(self) -> None:
        self._say_problems({})
        self.look()

    def _choose(self) -> None:
        self._say_problems({})
        self._show_chosen()

    def _show_chosen(self) -> None:
        with self._showing:
            page = self._pages.get(self.dataset.value)
            self.set_cap.disabled = page is None
            self.remove_cap.disabled = page is None or page.entry.cap is None
            if page is None:
                self.spent.value = self.statement.value = self.fits.value = self.cap.value = ""
                return
            self.spent.value, self.statement.value, self.fits.value = (
                page.spent,
                page.statement,
                page.fits,
            )
            entry, cap = page.entry, page.entry.cap
            self.cap.value = markup.sentence(
                f"{entry.name} has no cap."
                if cap is None
                else f"{entry.name}: at most {words.cap_words(cap)}. Reason: {entry.why}"
            )
            if entry.number != self._filled:
                self._filled = entry.number
                self.epsilon.value, self.delta.value = (
                    ("", "") if cap is None else (f"{cap.epsilon:g}", f"{cap.delta:g}")
                )
                if cap is not None:
                    self.relation.value = cap.relation

    # ---- writing ---------------------------------------------------------------------------------

    def _write(self, work: Callable[[], Any], message: Callable[[Any], str]) -> None:
        """Do ``work`` in the background, show the message about its result, and read the ledger
        again.

        The buttons that write are disabled meanwhile.
        """
        if not self._writing.wait(0):
            return
        self._say_problems({})
        for button in (self.set_cap, self.remove_cap, self.recover):
            button.disabled = True

        def done(outcome: Any) -> None:
            with self._showing:
                if self._closed:
                    return
                self._show_chosen()
                if isinstance(outcome, Exception):
                    self._say_problems(_problems(outcome))
                else:
                    fields.say(self.message, markup.quiet(message(outcome)))
                    self.why.value = ""
            self.look()

        self._writing.ask(work, done)

    def _set_cap(self) -> None:
        number, relation, why = self.dataset.value, self.relation.value, self.why.value
        epsilon, delta = (fields.number_in(field.value) for field in (self.epsilon, self.delta))
        self._write(
            lambda: self.ledger.set_cap(number, epsilon, delta, relation, why=why),  # type: ignore[arg-type]
            lambda entry: f"The cap of {entry.name} is {words.cap_words(entry.cap)}.",
        )

    def _remove_cap(self) -> None:
        number, why = self.dataset.value, self.why.value
        self._write(
            lambda: self.ledger.remove_cap(number, why),
            lambda entry: f"The cap of {entry.name} is removed.",
        )

    def _recover(self) -> None:
        self._write(
            self.ledger.recover,
            lambda spends: (
                f"{words.count(len(spends), 'fit')} recovered: only the steps that may have been "
                "taken are charged."
                if spends
                else "No fit is interrupted any more."
            ),
        )

    def _enter(self, data: Dataset) -> None:
        def work() -> books.Entry:
            from workbench.ledger.reservation import id_of

            return self.ledger.add(id_of(data))

        def message(entry: books.Entry) -> str:
            self.dataset.offer([(f"{entry.number}: {entry.name}", entry.number)], entry.number)
            return f"{entry.name} is data set {entry.number} of the ledger."

        self._write(work, message)

    def _export(self) -> None:
        self.link.value = markup.quiet("making the file…")

        def work() -> list[tuple[str, bytes, str]]:
            page, tables = self.ledger.report().to_html(), self.ledger.export()
            return [
                ("ledger.json", json.dumps(tables, indent=2).encode(), "application/json"),
                ("ledger.html", page.encode(), "text/html"),
            ]

        def done(made: list[tuple[str, bytes, str]] | Exception) -> None:
            with self._showing:
                self.link.value = ""
                if isinstance(made, Exception):
                    self._say_problems(_problems(made))
                else:
                    self.link.value = "<br>".join(
                        markup.download(
                            f"Download {name} ({_numbers.count(max(1, len(content) // 1024))} KiB)",
                            name,
                            content,
                            kind,
                        )
                        for name, content, kind in made
                    )

        self._files.ask(work, done)

    def _say_problems(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, and the others below the table."""
        fields.show_problems(self._fields, problems, self.message)


def _problems(error: Exception) -> dict[str, str]:
    """``{argument: what is wrong}``; the argument is "" for errors that are not about one."""
    if isinstance(error, books.LedgerError):
        return {"": str(error)}
    if isinstance(error, _validate.ArgumentError):
        return {error.argument: error.expectation}
    return {"": _validate.kind_and_message(error)}


def _page(budget: BudgetStatus) -> _Page | None:
    entry, total, used = budget.entry, budget.total, budget.used()
    if entry is None:
        return None
    interrupted = len(budget.interrupted)
    reserved = (
        [f"{len(budget.reserved) - interrupted} running"]
        if len(budget.reserved) > interrupted
        else []
    )
    reserved += [f"{interrupted} interrupted"] if interrupted else []
    row = [
        str(entry.number),
        entry.name,
        str(len(budget.spends)),
        *_spent(total),
        ", ".join(reserved) or words.EMPTY,
        words.EMPTY if entry.cap is None else f"{entry.cap.epsilon:g}",
        _share(used),
        ", ".join(f"{relative.number} ({relative.name})" for relative, _ in budget.relatives)
        or words.EMPTY,
    ]
    cautions = budget.cautions()
    unit = f"One record is one {entry.unit}; first entered {words.when(entry.time)}."
    headline = markup.note(f"Spent on {entry.name}: {words.spent_words(total)}.")
    spent = headline + words.cap_bar(budget) + "".join(map(markup.problem, cautions))
    return _Page(
        entry,
        row,
        spent,
        markup.sentence(budget.spending()) + markup.quiet(unit),
        words.fits_table(budget),
    )


def _spent(total: TotalPrivacy | None) -> tuple[str, str]:
    """Epsilon and delta of all fits together."""
    if total is None:
        return "0", words.EMPTY
    return (words.number(total.epsilon) if math.isfinite(total.epsilon) else "∞"), _numbers.upper(
        total.delta
    )


def _all_sets(rows: list[list[str]]) -> str:
    """A table of all data sets, without columns that are empty."""
    if not rows:
        return markup.quiet(_NOTHING)
    shown = [
        index
        for index in range(len(_COLUMNS))
        if index < _ALWAYS or any(row[index] != words.EMPTY for row in rows)
    ]
    return markup.cards(
        [_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows]
    )


def _share(used: float | None) -> str:
    if used is None:
        return words.EMPTY
    if used > 1:
        return "more than 100 %" if math.isfinite(used) else "unknown"
    return words.percent(used)
