"""The ledger below the Fit button: what was spent on the chosen records, what a cap leaves, and
fits to resume.

``LedgerPanel.look`` reads the ledger, off the main thread; ``show`` displays what it found.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ipywidgets as widgets

from workbench import _numbers
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.ledger.budget import BudgetStatus, CapError
from workbench.ledger.ledger import DatasetId
from workbench.privacy.guarantee import Guarantee
from workbench.widgets.kit import fields, markup
from workbench.widgets.ledger import words

if TYPE_CHECKING:
    from workbench.fitting.columns import Columns
    from workbench.fitting.prepared import PreparedFit
    from workbench.fitting.resuming import SavedRun

__all__ = ["PROBLEMS", "LedgerPanel", "Seen", "prepare_saved"]

PROBLEMS = ("ledger", "over_cap", "run")  # arguments whose problems are shown here
_MANY = 1_000_000
_SHOWN_RUNS = 3
_DISMISSED = set[Path]()  # folders of runs that no screen of this process offers again
_QUIET_SECONDS = (
    120  # without a new checkpoint, after which a run that is in no ledger counts as ended
)


class Seen(NamedTuple):
    """What the ledger says about the records of a prepared fit.

    :param said: as HTML.
    :param fits: HTML of the table of fits, "" for none.
    :param problems: ``{argument: why}`` if a cap does not allow the fit and no reason to exceed it
        is given.
    :param goes_over: whether the fit, or the rest of one of ``runs``, needs such a reason.
    :param runs: runs on the same records that can be resumed.
    :param refused: those of ``runs`` that need a reason.
    :param is_public: whether the records are public, so that nothing can change.
    """

    said: str
    fits: str = ""
    problems: dict[str, str] = {}  # noqa: RUF012 - never written to
    goes_over: bool = False
    runs: tuple[SavedRun, ...] = ()
    refused: tuple[SavedRun, ...] = ()
    is_public: bool = False


class LedgerPanel:
    """The ledger beside a fit; ``view`` is the widget to display.

    ``reason`` is the field for the reason to exceed a cap, shown when a fit would exceed one.

    :param on_change: called after a change of the reason.
    :param on_resume: called with the run whose button was pressed.
    :param on_refresh: called when the ledger is to be read again.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        on_resume: Callable[[SavedRun], None],
        on_refresh: Callable[[], None],
    ) -> None:
        self._on_resume = on_resume
        self._forgetting = False
        self._key: Hashable = None  # of the data source that is shown
        self._source: tuple[Dataset, DatasetId, str] | None = None
        self._listed: tuple[Any, list[SavedRun]] = (None, [])
        self._enabled, self._closed = True, False
        self._refused_before = False
        self._said = widgets.HTML(layout=widgets.Layout(flex="1 1 200px", min_width="0"))
        self.refresh = fields.button(
            "Refresh",
            on_refresh,
            "Read the ledger again",
            icon="refresh",
            layout={"width": "112px", "flex": "0 0 auto"},
        )
        self._problem = fields.line()
        self.reason = fields.text(
            "over_cap",
            "reason to exceed the cap",
            help="The ledger keeps it. It holds only for the next fit.",
        )
        self.reason.control.style.description_width = "176px"
        self.runs = widgets.VBox()
        self._table = widgets.HTML()
        self.fold = fields.Fold("fits on these records", [self._table], self._fill)
        self._fits = ""
        self.view = widgets.VBox(
            [
                widgets.HBox(
                    [self._said, self.refresh],
                    layout={"flex_flow": "row wrap", "align_items": "flex-start"},
                ),
                self._problem,
                self.reason.view,
                self.runs,
                self.fold.view,
            ],
            layout=widgets.Layout(width="auto", margin="0 0 6px 0"),
        )
        self.reason.on_change(lambda: None if self._forgetting else on_change())
        self._clear("")

    def over_cap(self, key: Hashable) -> str | None:
        """The reason to exceed the cap that was typed for the data source ``key``, or None."""
        return (self.reason.value.strip() or None) if key == self._key else None

    # ---- reading ---------------------------------------------------------------------------------

    def look(
        self, prepared: PreparedFit, over_cap: str | None = None, resumable: Path | None = None
    ) -> Seen:
        """Read what the ledger says about the records of ``prepared``. This may take seconds: call
        it off the main thread.

        :param over_cap: the reason that ``prepared`` was given.
        :param resumable: folder of a run that the Resume button resumes.
        """
        try:
            return self._look(prepared, over_cap, resumable)
        except ArgumentError as error:
            return Seen(
                markup.problem(f"The ledger cannot say what was spent on these records: {error}")
            )
        except Exception as error:
            # the rest of the screen works without the ledger; other messages may quote records
            return Seen(
                markup.problem(
                    "The ledger cannot say what was spent on these records "
                    f"({type(error).__name__})."
                )
            )

    def _look(self, prepared: PreparedFit, over_cap: str | None, resumable: Path | None) -> Seen:
        dataset, account = prepared.spec.source, prepared.run_log.reservation
        records, fingerprint = self._records(prepared.spec.columns)
        budget = None if account.ledger is None else account.ledger.budget_status(records)
        runs = self._runs(fingerprint, budget, resumable)
        if budget is None:
            why = (
                "Public data spend nothing."
                if dataset.is_public
                else "This fit is not recorded in a ledger (ledger=False)."
            )
            return Seen(markup.quiet(why), runs=runs, is_public=dataset.is_public)
        fit, problems = prepared.guarantee(prepared.privacy.iterations), {}
        try:
            budget.check([fit], prepared.privacy.seed)
        except CapError as error:
            problems = {error.argument: error.explained(words.REMEDIES)}
        refused = tuple(run for run in runs if _is_refused(run, budget))
        return Seen(
            _said(budget, fit, bool(problems), over_cap),
            words.fits_table(budget) if budget.spends else "",
            {} if over_cap else problems,
            bool(problems or refused),
            runs,
            refused,
        )

    def _records(self, columns: Columns) -> tuple[DatasetId, str]:
        """The ledger's key of the records and the user's own fingerprint of them; those of the last
        data set are kept.
        """
        source = self._source
        if source is None or source[0] is not columns.source:
            source = columns.source, columns.dataset_id, columns.fingerprint
            if not self._closed:
                self._source = source
        return source[1:]

    def _runs(
        self, fingerprint: str, budget: BudgetStatus | None, resumable: Path | None
    ) -> tuple[SavedRun, ...]:
        """Saved runs of the same records that can be resumed."""
        with contextlib.suppress(
            OSError, ArgumentError
        ):  # a run was deleted meanwhile, or may not be read
            runs = [
                run
                for run in self._saved_runs()
                if run.fingerprint == fingerprint and not run.is_finished
            ]
            ended = (run for run in runs if run.path not in _DISMISSED and _has_ended(run, budget))
            # the Resume button resumes ``resumable``, but cannot give a reason to exceed a cap
            return tuple(run for run in ended if run.path != resumable or _is_refused(run, budget))
        return ()

    def _saved_runs(self) -> list[SavedRun]:
        """``resuming.saved_runs()``. It reads every checkpoint, so it is called only when one has
        changed.
        """
        from workbench.fitting import checkpoints, resuming

        now = [(folder, folder.stat().st_mtime_ns) for folder in checkpoints.saved_runs()]
        if self._listed[0] != now:
            self._listed = now, resuming.saved_runs()
        return self._listed[1]

    # ---- showing ---------------------------------------------------------------------------------

    def computing(self, key: Hashable) -> None:
        """Show that the ledger is being read for the data source ``key``."""
        if key != self._key:  # the text and the reason are about other records
            self._key = key
            self._clear("reading the ledger…")
            self.forget_reason()

    def outdated(self) -> None:
        """Show that a fit begins, which changes what was spent on private records."""
        if not self._is_public:
            self._said.value = markup.quiet(
                "What was spent on these records is read again after the fit."
            )

    def show_unknown(self) -> None:
        """Show that there is no plan, so it is unknown what it would add."""
        self._clear("What was spent on these records is shown here when the plan is known.")

    def _clear(self, text: str) -> None:
        self._put(Seen(markup.quiet(text)))
        self._is_public = False
        self.refresh.layout.display = "none"

    def show(self, report: Seen) -> bool:
        """Show what ``look`` found; return whether the problems beside other fields must be
        updated.
        """
        self._put(report)
        self._is_public = report.is_public
        self.refresh.layout.display = "none" if report.is_public else None
        if not report.goes_over and self.reason.value:
            self.reason.value = ""
        before, self._refused_before = self._refused_before, bool(report.problems)
        return before or bool(report.problems)

    def _put(self, report: Seen) -> None:
        self._said.value = report.said
        self.reason.visible = report.goes_over
        self._fits = report.fits
        self.fold.view.layout.display = None if report.fits else "none"
        self._fill()
        old, self.runs.children = (
            self.runs.children,
            [self._row(run, report.refused) for run in report.runs[:_SHOWN_RUNS]],
        )
        for row in old:
            fields.close_all(row)
        more = len(report.runs) - _SHOWN_RUNS
        if more > 0:
            text = (
                f"And {words.count(more, 'older fit')}: the command workbench resume lists all "
                "of them."
            )
            self.runs.children = (*self.runs.children, widgets.HTML(markup.quiet(text)))

    def _fill(self) -> None:
        self._table.value = self._fits if self.fold.is_open else ""

    def _row(self, run: SavedRun, refused: Sequence[SavedRun]) -> Any:
        text = (
            f"An earlier fit of these records stopped at step {_numbers.count(run.step)} of "
            f"{_numbers.count(run.steps)} ({run.model}, epsilon {_numbers.upper(run.epsilon)}, "
            f"{run.written[:16]} UTC)."
        )
        if run in refused:
            text += " Its remaining steps would now exceed the cap."
        button = fields.button(
            "Resume this fit",
            lambda: self._on_resume(run),
            f"Continue from step {_numbers.count(run.step)}; it spends no more than was reserved "
            "for it",
            icon="forward",
            disabled=not self._enabled,
            layout={"width": "152px", "flex": "0 0 auto"},
        )
        dismiss = fields.button(
            "Dismiss",
            lambda: self._dismiss(run, row),
            "Not again before the kernel restarts; workbench resume still lists it",
            layout={"width": "80px", "flex": "0 0 auto"},
        )
        line = widgets.HTML(
            markup.sentence(text), layout=widgets.Layout(flex="1 1 260px", min_width="0")
        )
        row = widgets.HBox(
            [line, button, dismiss],
            layout=widgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        return row

    def _dismiss(self, run: SavedRun, row: widgets.Widget) -> None:
        _DISMISSED.add(run.path)
        self.runs.children = tuple(child for child in self.runs.children if child is not row)
        fields.close_all(row)

    def show_problems(self, problems: dict[str, str]) -> None:
        """Show what is wrong with the ledger, the reason or a run to resume."""
        fields.show_problems({"over_cap": self.reason}, problems, self._problem)

    def enable(self, enabled: bool) -> None:
        """Enable or disable the buttons that resume a fit."""
        self._enabled = enabled
        for row in self.runs.children:
            if isinstance(row, widgets.HBox):
                row.children[1].disabled = not enabled

    def forget_reason(self) -> None:
        """Empty the reason, which holds for one fit, without calling ``on_change``."""
        self._forgetting = True
        self.reason.value = ""
        self._forgetting = False

    def close(self) -> None:
        """Forget the records."""
        self._closed = True
        self._source = None
        self._listed = (None, [])


def _said(budget: BudgetStatus, fit: Guarantee, is_refused: bool, over_cap: str | None) -> str:
    """What the ledger says about private records, as HTML."""
    spent = (
        f"Spent on these records: {words.spent_words(budget.total)} {words.counted(budget.total)}"
    ).strip()
    running = len(budget.reserved) - len(budget.interrupted)
    if running:
        spent += f"; {words.count(running, 'fit')} running, with all planned steps reserved"
    fit_with = "Another fit with" if budget.spends else "A fit with"
    lines = [markup.sentence(f"{spent}."), markup.sentence(_left(budget, fit, is_refused))]
    if is_refused:
        lines.append(
            markup.sentence(
                f"{fit_with} these settings exceeds the cap. The ledger keeps your reason."
            )
            if over_cap
            else markup.problem(
                f"{fit_with} these settings is refused, because it would exceed the cap."
            )
        )
    lines += map(markup.sentence, words.also_counted(budget))
    return "".join([*lines, *map(markup.quiet, budget.cautions())])


def _left(budget: BudgetStatus, fit: Guarantee, is_refused: bool) -> str:
    caps = [entry.cap for entry in budget.caps if entry.cap is not None]
    if not caps:
        how = (
            "wb.widgets.Ledger() sets one"
            if budget.entry
            else "wb.widgets.Ledger(data=...) sets one before the first fit"
        )
        return f"No cap is set; {how}."
    text = f"Cap: {' and '.join(map(words.cap_words, caps))}"
    fractions = words.shares(budget)
    if fractions is not None:
        which = "it" if len(caps) == 1 else "the tightest"
        text += (
            f"; {words.percent(fractions[2])} of {which} is left, in what it counts (Rényi "
            "divergence, not epsilon)"
        )
    if is_refused:
        return f"{text}."
    more = budget.how_many_more(fit) or 0
    many = (
        f"more than {_numbers.count(_MANY)} more fits"
        if more > _MANY
        else words.count(more, "more fit")
    )
    return f"{text}: {many} like this."


def _is_running(key: str, budget: BudgetStatus) -> bool:
    """Whether a live process has reserved the fit."""
    return any(
        spend.key == key for spend in budget.reserved if spend.number not in budget.interrupted
    )


def _has_ended(run: SavedRun, budget: BudgetStatus | None) -> bool:
    """Whether ``run`` is no longer running, as far as is known."""
    if run.spend is None:
        return time.time() - run.path.stat().st_mtime > _QUIET_SECONDS
    is_recorded = budget is not None and any(spend.key == run.spend for spend in budget.spends)
    return is_recorded and budget is not None and not _is_running(run.spend, budget)


def _is_refused(run: SavedRun, budget: BudgetStatus | None) -> bool:
    """Whether a cap does not allow the remaining steps of ``run``."""
    if run.spend is None or budget is None:
        return False
    try:
        budget.check_rest(next(spend for spend in budget.spends if spend.key == run.spend))
    except CapError:
        return True
    return False


def prepare_saved(run: SavedRun, data: Any, over_cap: str | None) -> Any:
    """Prepare to resume a run that may have been resumed elsewhere meanwhile.

    :param data: its records, as ``resuming.prepare`` takes them.
    :raises ArgumentError: naming ``run``, if it cannot be resumed.
    """
    from workbench.fitting import resuming

    try:
        prepared = resuming.prepare(run.path, data=data, over_cap=over_cap)
    except ArgumentError as error:
        if error.argument != "path":
            raise
        raise ArgumentError("run", error.value, error.expectation) from None
    budget = prepared.run_log.reservation.budget_status()
    if run.spend is not None and budget is not None and _is_running(run.spend, budget):
        raise ArgumentError("run", str(run.path), "is running elsewhere: stop it there first.")
    return prepared
