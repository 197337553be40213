"""The ledger's lines below the Fit button: what is spent on the chosen records, what a cap leaves, what can be gone on with.

``LedgerStrip.look`` reads the ledger, off the main thread; ``show`` puts on the screen what it found.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ipywidgets as widgets

from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.ledger.budget import NOT_COMPARED, BudgetStatus, CapError
from workbench.ledger.ledger import Records
from workbench.privacy.guarantee import Guarantee
from workbench.widgets._kit import fields, markup
from workbench.widgets.ledger import words

if TYPE_CHECKING:
    from workbench.fitting.resuming import SavedRun

__all__ = ["PROBLEMS", "LedgerStrip", "Seen", "prepare_saved"]

PROBLEMS = ("ledger", "over_cap", "run")  # arguments whose problems stand here
_MANY = 1_000_000
_SHOWN_RUNS = 3
_QUIET_SECONDS = 120  # after which a run that is in no ledger, and writes no checkpoint, is taken to have ended
_SHARED = {
    "records": "they have records in common",
    "columns": "they have values of columns in common",
    NOT_COMPARED: "it was entered with another key, so that nobody can tell whether they share records",
}


class Seen(NamedTuple):
    """What the ledger said of the records of a prepared fit, when it was looked at.

    :param said: HTML. :param fits: HTML of their table, "" for none.
    :param problems: ``{argument: why}`` where a cap does not allow the fit and no reason to go over it is given.
    :param goes_over: whether the fit, or the rest of one of ``runs``, needs such a reason.
    :param runs: of the same records, that can be gone on with. :param refused: those that need a reason.
    """

    said: str
    fits: str = ""
    problems: dict[str, str] = {}  # noqa: RUF012 - never written to
    goes_over: bool = False
    runs: tuple[SavedRun, ...] = ()
    refused: tuple[SavedRun, ...] = ()


class LedgerStrip:
    """``view`` is what to put on the screen. ``reason`` is the field for why a cap is gone over, seen where one would be.

    :param on_change: called after a change of the reason. :param on_resume: called with the run whose button was pressed.
    :param on_refresh: called when the ledger is to be looked at again.
    """

    def __init__(
        self, on_change: Callable[[], None], on_resume: Callable[[SavedRun], None], on_refresh: Callable[[], None]
    ) -> None:
        self._on_resume = on_resume
        self._forgetting = False
        self._key: Hashable = None  # of the data source that all this is about
        self._source: tuple[Dataset, Records, str] | None = None
        self._listed: tuple[Any, list[SavedRun]] = (None, [])
        self._enabled, self._closed = True, False
        self._refused_before = False
        self._said = widgets.HTML(layout=widgets.Layout(flex="1 1 300px", min_width="0"))
        self.refresh = widgets.Button(
            description="Read again",
            icon="refresh",
            tooltip="Look into the ledger again",
            layout=widgets.Layout(width="112px", flex="0 0 auto"),
        )
        self._problem = fields.line()
        self.reason = fields.text(
            "over_cap", "reason to go over the cap", help="It is recorded, and counts for the next fit alone."
        )
        self.reason.control.style.description_width = "176px"
        self.runs = widgets.VBox()
        self._table = widgets.HTML()
        self.fold = fields.Fold("fits on these records", [self._table], self._fill)
        self._fits = ""
        self.view = widgets.VBox(
            [
                widgets.HBox([self._said, self.refresh], layout=widgets.Layout(align_items="flex-start")),
                self._problem, self.reason.view, self.runs, self.fold.view,
            ],
            layout=widgets.Layout(width="auto", margin="0 0 6px 0"),
        )  # fmt: skip
        self.refresh.on_click(lambda _: on_refresh())
        self.reason.on_change(lambda: None if self._forgetting else on_change())
        self._clear("")

    def over_cap(self, key: Hashable) -> str | None:
        """The reason that was written for the data source ``key``; None for none."""
        return (self.reason.value.strip() or None) if key == self._key else None

    # ---- looking --------------------------------------------------------------------------------------------------

    def look(self, prepared: Any, over_cap: str | None = None, own: Path | None = None) -> Seen:
        """What the ledger says of the records of ``prepared``. It may take seconds: call it off the main thread.

        :param over_cap: the reason that ``prepared`` was given. :param own: folder of a run that has a button elsewhere.
        """
        try:
            return self._look(prepared, over_cap, own)
        except ArgumentError as error:
            return Seen(markup.problem(f"What is spent on these records is not known: {error}"))
        except Exception as error:  # the rest of the screen works without; other errors' words may quote records
            return Seen(markup.problem(f"What is spent on these records is not known ({type(error).__name__})."))

    def _look(self, prepared: Any, over_cap: str | None, own: Path | None) -> Seen:
        dataset, account = prepared.spec.source, prepared.run_log.reservation
        records, fingerprint = self._records(dataset)
        standing = None if account.ledger is None else account.ledger.standing(records)
        runs = self._runs(fingerprint, standing, own)
        if standing is None:
            why = (
                "These records are public: no privacy is spent."
                if dataset.is_public
                else "No ledger is kept (ledger=False)."
            )
            return Seen(markup.quiet(why), runs=runs)
        fit, problems = prepared.guarantee(prepared.privacy.iterations), {}
        try:
            standing.check([fit], prepared.privacy.seed)
        except CapError as error:
            problems = {error.argument: words.on_screen(error.expectation)}
        refused = tuple(run for run in runs if _is_refused(run, standing))
        return Seen(
            _said(standing, fit, bool(problems), over_cap),
            words.fits_table(standing) if standing.spends else "",
            {} if over_cap else problems,
            bool(problems or refused),
            runs,
            refused,
        )

    def _records(self, dataset: Dataset) -> tuple[Records, str]:
        """What a ledger is told about ``dataset``, and the user's own fingerprint of it; the last one's are kept."""
        from workbench.ledger.fingerprint import fingerprint
        from workbench.ledger.reservation import records_of

        source = self._source
        if source is None or source[0] is not dataset:
            source = dataset, records_of(dataset), fingerprint(dataset)
            if not self._closed:
                self._source = source
        return source[1:]

    def _runs(self, fingerprint: str, standing: BudgetStatus | None, own: Path | None) -> tuple[SavedRun, ...]:
        """Those of the same records that can be gone on with."""
        with contextlib.suppress(OSError):  # one was deleted while it was looked at
            runs = [run for run in self._saved_runs() if run.fingerprint == fingerprint and not run.is_finished]
            ended = (run for run in runs if _has_ended(run, standing))
            # the other button could give no reason to go over a cap
            return tuple(run for run in ended if run.path != own or _is_refused(run, standing))
        return ()

    def _saved_runs(self) -> list[SavedRun]:
        """``resuming.saved_runs()``, which reads every checkpoint: only when one has changed."""
        from workbench.fitting import checkpoints, resuming

        now = [(folder, folder.stat().st_mtime_ns) for folder in checkpoints.saved_runs()]
        if self._listed[0] != now:
            self._listed = now, resuming.saved_runs()
        return self._listed[1]

    # ---- showing --------------------------------------------------------------------------------------------------

    def computing(self, key: Hashable) -> None:
        """The ledger is about to be looked at for the data source ``key``."""
        if key != self._key:  # what was said, and a reason, were of other records
            self._key = key
            self._clear("reading the ledger…")
            self.forget_reason()

    def show_unknown(self) -> None:
        """There is no plan, so it is not known what it would add."""
        self._clear("What is spent on these records is shown with the consequences of the plan.")

    def _clear(self, said: str) -> None:
        self._put(Seen(markup.quiet(said)))
        self.refresh.layout.display = "none"

    def show(self, seen: Seen) -> bool:
        """Show what ``look`` found; whether the problems beside other fields are to be shown anew."""
        self._put(seen)
        self.refresh.layout.display = None
        if not seen.goes_over and self.reason.value:
            self.reason.value = ""
        before, self._refused_before = self._refused_before, bool(seen.problems)
        return before or bool(seen.problems)

    def _put(self, seen: Seen) -> None:
        self._said.value = seen.said
        self.reason.visible = seen.goes_over
        self._fits = seen.fits
        self.fold.view.layout.display = None if seen.fits else "none"
        self._fill()
        old, self.runs.children = self.runs.children, [self._row(run, seen.refused) for run in seen.runs[:_SHOWN_RUNS]]
        for row in old:
            fields.close_all(row)
        more = len(seen.runs) - _SHOWN_RUNS
        if more > 0:
            told = f"And {words.count(more, 'older fit')}: workbench resume, in a terminal, lists all."
            self.runs.children = (*self.runs.children, widgets.HTML(markup.quiet(told)))

    def _fill(self) -> None:
        self._table.value = self._fits if self.fold.is_open else ""

    def _row(self, run: SavedRun, refused: Sequence[SavedRun]) -> Any:
        told = (
            f"A fit of these records stopped at step {run.step:,} of {run.steps:,} ({run.model}, epsilon {run.epsilon:g}, "
            f"{run.written[:16]})."
        )
        if run in refused:
            told += " By now its rest would go over the cap."
        button = widgets.Button(
            description="Resume this fit", icon="forward", disabled=not self._enabled,
            tooltip=f"Go on from step {run.step:,}; it spends no more than was reserved for it",
            layout=widgets.Layout(width="152px", flex="0 0 auto"),
        )  # fmt: skip
        button.on_click(lambda _: self._on_resume(run))
        line = widgets.HTML(markup.sentence(told), layout=widgets.Layout(flex="1 1 260px", min_width="0"))
        return widgets.HBox([line, button], layout=widgets.Layout(flex_flow="row wrap", align_items="center"))

    def show_problems(self, problems: dict[str, str]) -> None:
        """Say what is wrong with the ledger, the reason or a run to be gone on with."""
        self.reason.show_error(problems.get("over_cap", ""))
        told = [f"{name}: {text}" for name, text in problems.items() if name != "over_cap"]
        fields.say(self._problem, "".join(map(markup.problem, told)))

    def enable(self, enabled: bool) -> None:
        """Let the buttons that go on with a fit be pressed, or not."""
        self._enabled = enabled
        for row in self.runs.children:
            if isinstance(row, widgets.HBox):
                row.children[1].disabled = not enabled

    def forget_reason(self) -> None:
        """A reason holds for one fit; not told as a change."""
        self._forgetting = True
        self.reason.value = ""
        self._forgetting = False

    def close(self) -> None:
        """Forget the records."""
        self._closed = True
        self._source = None
        self._listed = (None, [])


def _said(standing: BudgetStatus, fit: Guarantee, is_refused: bool, over_cap: str | None) -> str:
    """The lines of the ledger on private records."""
    spent = f"Spent on these records: {words.spent_words(standing.total)} {words.counted(standing.total)}".strip()
    running = len(standing.reserved) - len(standing.interrupted)
    if running:
        spent += f"; {words.count(running, 'fit')} running, with all planned steps reserved"
    lines = [markup.sentence(f"{spent}."), markup.sentence(_left(standing, fit, is_refused))]
    if is_refused:
        lines.append(
            markup.sentence("A fit with these settings goes over the cap; the reason is recorded.")
            if over_cap
            else markup.problem("A fit with these settings would go over the cap, and is refused.")
        )
    for entry, how in standing.relatives:
        shared = _SHARED.get(how, how)
        lines.append(markup.sentence(f"Related to data set {entry.number} ({entry.name}), whose fits count too: {shared}."))
    return "".join([*lines, *map(markup.quiet, standing.cautions())])


def _left(standing: BudgetStatus, fit: Guarantee, is_refused: bool) -> str:
    caps = [entry.cap for entry in standing.caps if entry.cap is not None]
    if not caps:
        how = (
            "wb.widgets.Ledger() sets one" if standing.entry else "wb.widgets.Ledger(data=...) sets one before the first fit"
        )
        return f"No cap is set; {how}."
    told = f"Cap: {' and '.join(map(words.cap_words, caps))}"
    parts = words.shares(standing)
    if parts is not None:
        told += f"; {words.percent(parts[2])} of {'it' if len(caps) == 1 else 'the tightest'} is left"
    if is_refused:
        return f"{told}."
    more = standing.how_many_more(fit) or 0
    many = f"more than {_MANY:,} more fits" if more > _MANY else words.count(more, "more fit")
    return f"{told}: {many} like this."


def _is_running(key: str, standing: BudgetStatus) -> bool:
    """Whether a process that is there has the fit reserved."""
    return any(spend.key == key for spend in standing.reserved if spend.number not in standing.interrupted)


def _has_ended(run: SavedRun, standing: BudgetStatus | None) -> bool:
    """Whether nobody runs ``run`` any more, as far as can be told."""
    if run.spend is None:
        return time.time() - run.path.stat().st_mtime > _QUIET_SECONDS
    known = standing is not None and any(spend.key == run.spend for spend in standing.spends)
    return known and standing is not None and not _is_running(run.spend, standing)


def _is_refused(run: SavedRun, standing: BudgetStatus | None) -> bool:
    """Whether a cap does not allow the rest of ``run``."""
    if run.spend is None or standing is None:
        return False
    try:
        standing.check_rest(next(spend for spend in standing.spends if spend.key == run.spend))
    except CapError:
        return True
    return False


def prepare_saved(run: SavedRun, dataset: Dataset, over_cap: str | None) -> Any:
    """``resuming.prepare`` of a run that may have been taken up elsewhere meanwhile.

    :raises ArgumentError: naming ``run`` where it cannot be gone on with.
    """
    from workbench.fitting import resuming

    try:
        prepared = resuming.prepare(run.path, data=dataset, over_cap=over_cap)
    except ArgumentError as error:
        if error.argument != "path":
            raise
        raise ArgumentError("run", error.value, error.expectation) from None
    standing = prepared.run_log.reservation.standing()
    if run.spend is not None and standing is not None and _is_running(run.spend, standing):
        raise ArgumentError("run", str(run.path), "is running: stop it where it was started.")
    return prepared
