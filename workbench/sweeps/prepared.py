"""A checked and calibrated sweep: it says what it spends, fits what the store does not have, and keeps the ledger."""

from __future__ import annotations

import functools
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench import _validate
from workbench.ledger.budget import CapError
from workbench.ledger.composition import TotalPrivacy, total
from workbench.ledger.reservation import Reservation
from workbench.privacy.guarantee import Guarantee
from workbench.sweeps import executors
from workbench.sweeps.grid import Cell, Grid
from workbench.sweeps.result import SweepResult
from workbench.sweeps.running import Outcome, Run, groups_of, run_group
from workbench.sweeps.store import LOST, Claim, Store

__all__ = ["BudgetError", "PreparedSweep", "Progress", "now", "total_spent"]

_POLL_SECONDS = 0.5  # how often the store is asked for fits that another sweep runs


class BudgetError(_validate.ArgumentError):
    """A sweep over private records was not confirmed. ``total`` says what it would spend."""

    def __init__(self, given: float | None, total: TotalPrivacy, statement: str) -> None:
        self.total = total
        hint = f" To run it, give accept_total_epsilon={total.epsilon!r}." if math.isfinite(total.epsilon) else ""
        super().__init__("accept_total_epsilon", given, f"{statement}{hint}")


@dataclass(frozen=True)
class Progress:
    """Where a sweep is.

    :param fits: that are over, those found in the store included. :param planned: fits in all.
    :param step: steps taken by the fits under way, of ``steps``; 0 between batches, and where others do the work.
    :param seconds: since the run began. :param newest: keys of fits that ended since the last one of these.
    :param elsewhere: fits that another sweep with the same store runs, which are waited for.
    """

    fits: int
    planned: int
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    newest: tuple[str, ...] = ()
    elsewhere: int = 0


class _Report:
    """Tells how far a run is: ``over`` fits of ``planned``."""

    def __init__(self, on_progress: Callable[[Progress], None], planned: int, left: int) -> None:
        self._on_progress, self._began = on_progress, time.perf_counter()
        self.planned, self.over = planned, planned - left

    def tell(self, step: int = 0, steps: int = 0, newest: Iterable[str] = (), elsewhere: int = 0) -> None:
        seconds = time.perf_counter() - self._began
        self._on_progress(Progress(self.over, self.planned, step, steps, seconds, tuple(newest), elsewhere))


@dataclass
class PreparedSweep:
    """A checked and calibrated sweep. ``run`` fits what the store does not have; ``result`` is there at any time.

    :param grid: what was asked for. :param cells: by key, all of them. :param runs: those still to be done.
    :param refused: rows of those that cannot be run as asked; ``run`` writes them.
    :param total: what all fits over private records spend together, those of the same records in the store included; None
        for public records. Once the sweep ran, that is what was spent, and what the fits still to be done will.
    :param account: of the fits to be done, in the ledger; it only looks. :param _account_of: makes that of some of them.
    """

    grid: Grid
    cells: Mapping[str, Cell]
    runs: Sequence[Run]
    store: Store
    total: TotalPrivacy | None
    account: Reservation
    _account_of: Callable[[Sequence[Run]], Reservation] = field(repr=False)
    _facts: Mapping[str, Mapping[str, Any]] = field(repr=False)
    refused: Sequence[Mapping[str, Any]] = field(repr=False)
    status: str = "planned"
    message: str = ""

    def __post_init__(self) -> None:
        """Name this sweep among those with the same store."""
        self._name = uuid.uuid4().hex
        self._entries: dict[str, tuple[Reservation, str]] = {}  # of private fits in the ledger, by the keys of their cells
        self._reserved: set[str] = set()  # those of them that are reserved now

    def statement(self) -> str:
        """In plain words what the sweep spends, and what looking for its best fit means."""
        data = self.grid.records_of(next(iter(self.cells.values())))
        if self.grid.is_public:
            return f"The {_plural(data.unit)} are public or made up: no privacy is spent."
        if self.total is None:
            return "No private fit is planned, and none of these records was found."
        words = [self.total.statement(data.unit), *self._ledger_says(data.unit)]
        if self.grid.baselines:
            words.append("Baselines without privacy are exact functions of the records, outside any guarantee.")
        if not data.evaluation_is_public and self.grid.constant.get("evaluate_private"):
            words.append(
                "Choosing the fit with the best score on private evaluation records leaks about them: the choice is not "
                "noised, and no epsilon here covers it."
            )
        return " ".join(words)

    def _ledger_says(self, unit: str) -> list[str]:
        """What is known of fits beyond this sweep and its store, and whether a cap allows those to be done."""
        planned = [fit for fit in (self._guarantee(run) for run in self.runs) if fit is not None]
        standing = self.account.standing() if planned and self.status == "planned" else None
        if standing is None:
            return []
        words = []
        if standing.parts:
            whole = total([*standing.parts, *planned])
            words.append(f"With what the ledger has of these records: {whole.statement(unit)}")
        try:
            standing.check(planned)
        except CapError as error:
            words.append(f"The cap does not allow it: {error.expectation}")
        return words

    def _guarantee(self, run: Run) -> Guarantee | None:
        """What a run promises, None for a baseline."""
        promised = self._facts[run.key]["guarantee"]
        return None if promised is None else Guarantee.from_dict(promised)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences about settings that are allowed but unwise; ``sweep`` raises them as warnings."""
        return tuple(dict.fromkeys(text for run in self.runs for text in run.spec.privacy.cautions()))

    def accept(self, total_epsilon: float | None) -> None:
        """Confirm what the sweep spends on private records; nothing to do where there is nothing left to run.

        :raises BudgetError: unless the total is at most ``total_epsilon``.
        """
        if total_epsilon is not None:
            total_epsilon = _validate.number("accept_total_epsilon", total_epsilon, above=0)
        if self.total is not None and self.runs and not self.total.epsilon <= (total_epsilon or 0.0):
            raise BudgetError(total_epsilon, self.total, self.statusment())

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        *,
        executor: Any = None,
        max_lanes: int | None = None,
    ) -> SweepResult:
        """Fit what is still to be done, writing rows as they finish; a stopped run goes on when called again.

        :param stop: asked about twice a second; True ends the run. Fits under way are then forgotten unseen, finished ones
            are kept.
        :param on_progress: called in this thread. :param executor: see ``sweep``.
        :param max_lanes: fits stepped together at most.
        :raises CapError: if a cap on what is spent on the records does not allow the fits. :raises LedgerError: if they
            cannot be entered in the ledger.
        """
        if max_lanes is not None:
            max_lanes = _validate.integer("max_lanes", max_lanes, at_least=1)
        _validate.function("stop", stop)
        _validate.function("on_progress", on_progress)
        workers = None if executor is None else executors.as_workers(executor)
        report = _Report(on_progress, len(self.cells), len(self.runs))
        self.status, self.message = "running", ""
        report.tell()
        try:
            self.store.add(self.refused)
            if self.account.ledger is not None:
                self.account.ledger.recover()  # sweeps that were killed leave reservations
            attempts = {key: row["attempts"] for key, row in self._rows_left().items()}
            while self.runs and not stop():
                mine = self._claim(attempts, report)
                if mine and not self._run_claimed(mine, stop, report, workers, max_lanes):
                    break
                if not mine and self.runs:
                    report.tell(elsewhere=len(self.runs))
                    time.sleep(_POLL_SECONDS)
            self.status = "stopped" if self.runs else "done"
        except executors.LostExecutorError as error:
            self.status = "interrupted"
            self.message = (
                f"the executor was lost when {report.over} of {report.planned} fits were done ({error}); they are kept."
            )
        except KeyboardInterrupt:
            self.status = "stopped"
        except BaseException as error:
            self.status, self.message = "failed", f"{type(error).__name__}: {error}"
            raise
        finally:
            for key in list(self._reserved):
                self._settle(key, 0)  # forgotten unseen
            self.store.release(self._name)
        self.total = None if self.grid.is_public else self._spent()
        report.tell()
        return self.result()

    def _claim(self, attempts: dict[str, int], report: _Report) -> list[Run]:
        """The fits to be done that no other sweep has; those that others have ended since are over here too.

        :param attempts: how often fits had been run when this run began; is written to.
        """
        mine, former = self.store.claim(self._name, [self._row(run, Outcome(run.key, "failed", LOST)) for run in self.runs])
        self._adopt([claim for claim in former if not claim.begun])
        running = {claim.key for claim in self.store.claims() if claim.alive and claim.sweep != self._name}
        rows = self._rows_left()
        attempts |= {claim.key: rows[claim.key]["attempts"] for claim in former if claim.begun}
        over = {key for key, row in rows.items() if row["state"] == "done" or row["attempts"] > attempts.get(key, 0)}
        self._end(over - running, report)
        return [run for run in self.runs if run.key in mine]

    def _rows_left(self) -> dict[str, dict[str, Any]]:
        """What the store has of the fits to be done, by key."""
        return {row["key"]: row for row in self.store.rows([run.key for run in self.runs])}

    def _run_claimed(
        self, runs: Sequence[Run], stop: Callable[[], bool], report: _Report, workers: Any, max_lanes: int | None
    ) -> bool:
        """Reserve fits and run them; whether all of them are over."""
        by_key, groups = {run.key: run for run in runs}, groups_of(runs)
        self._reserve(runs)
        if workers is None:
            batches = self._here(groups, stop, report, max_lanes)
        else:
            device = self.grid.constant.get("device")
            batches = executors.run_on(
                workers, groups, max_lanes=max_lanes, stop=stop, device=device, before=self._mark, lost=self._lose
            )
        for outcomes in batches:
            for outcome in outcomes:  # before anybody can read what came of them
                planned_steps = by_key[outcome.key].spec.privacy.iterations
                self._settle(outcome.key, 0 if outcome.status == "refused" else planned_steps)
            self.store.add([self._row(by_key[outcome.key], outcome) for outcome in outcomes])
            self._end([outcome.key for outcome in outcomes], report)
        return by_key.keys().isdisjoint(run.key for run in self.runs)

    def _here(
        self, groups: Sequence[Sequence[Run]], stop: Callable[[], bool], report: _Report, max_lanes: int | None
    ) -> Iterator[list[Outcome]]:
        for group in groups:
            steps = functools.partial(report.tell, steps=group[0].spec.privacy.iterations)
            yield from run_group(group, max_lanes=max_lanes, stop=stop, on_step=steps, before=self._mark)

    def _end(self, keys: Collection[str], report: _Report) -> None:
        """Fits are over."""
        if keys:
            self.runs = [run for run in self.runs if run.key not in keys]
            report.over += len(keys)
            report.tell(newest=keys)

    # ---- the ledger -----------------------------------------------------------------------------------------------------

    def _adopt(self, former: Sequence[Claim]) -> None:
        """Take over what a sweep that is gone had reserved for fits that it had not begun, which a cap may count already."""
        left = {run.key: run for run in self.runs}
        reserved = {claim.entry: left[claim.key] for claim in former if claim.entry}
        for spend in [] if self.account.ledger is None or not reserved else self.account.ledger.spends():
            run = reserved.get(spend.key)
            if run is not None and not spend.reached and spend.guarantee == self._guarantee(run):
                account = self._account_of([run])
                account.adopt(spend.key)
                self._entries[run.key] = account, spend.key

    def _reserve(self, runs: Sequence[Run]) -> None:
        """Reserve private fits, all or none; of those that were reserved before and forgotten unseen, the same ones."""
        private = [run for run in runs if self._guarantee(run) is not None]
        new = [run for run in private if run.key not in self._entries]
        known: dict[Reservation, list[str]] = {}
        for account, entry in (self._entries[run.key] for run in private if run.key in self._entries):
            known.setdefault(account, []).append(entry)
        for account, entries in known.items():
            account.begin(entries)
        self._reserved.update(run.key for run in private if run.key in self._entries)
        if new:
            account = self._account_of(new)
            account.begin()
            self._entries |= {run.key: (account, entry) for run, entry in zip(new, account.keys, strict=False)}
        self._reserved.update(run.key for run in new if run.key in self._entries)
        self.store.note(self._name, {run.key: self._entries[run.key][1] for run in private if run.key in self._entries})

    def _mark(self, runs: Sequence[Run]) -> None:
        """The first steps of fits are about to be taken."""
        self._reserve([run for run in runs if run.key not in self._reserved])
        self.store.begin(self._name, [run.key for run in runs])  # first: who has not begun has marked nothing
        for account, entry in (self._entries[run.key] for run in runs if run.key in self._reserved):
            account.mark(keys=[entry])

    def _lose(self, runs: Sequence[Run]) -> None:
        """The worker is gone that had begun with fits: what it may have taken is spent, and they are begun anew."""
        for run in runs:
            self._settle(run.key, run.spec.privacy.iterations)
            self._entries.pop(run.key, None)
        self.store.add([self._row(run, Outcome(run.key, "failed", LOST)) for run in runs], again=True)

    def _settle(self, key: str, taken: int) -> None:
        if key in self._reserved:
            account, entry = self._entries[key]
            problem = account.end(taken, entry)
            self.message = self.message or problem
            self._reserved.discard(key)

    def _spent(self) -> TotalPrivacy | None:
        return total_spent(
            self.store,
            map(self.grid.fingerprint_of, self.cells.values()),
            {run.key: self._facts[run.key] for run in self.runs},
        )

    def result(self) -> SweepResult:
        """The table so far."""
        return SweepResult(self.grid, self.cells, self.store, self.total, self.statusment(), self.status, self.message)

    def _row(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        return {
            **self._facts[run.key], "state": outcome.status, "message": outcome.message, "metrics": outcome.metrics,
            "seconds": outcome.seconds, "attempts": int(outcome.status != "refused"),
            "parameters": outcome.params, "finished": now(),
        }  # fmt: skip


def total_spent(store: Store, fingerprints: Iterable[str], planned: Mapping[str, Mapping[str, Any]]) -> TotalPrivacy | None:
    """What ``planned`` fits and all that the store has of the same private records spend together; None for no fit.

    Of other sweeps with this store, what they are about to run, and what they had begun when their process ended. What
    may be of these records counts too.
    """
    records = {*fingerprints, *store.unknown()}
    found = [row for row in store.rows() for _ in range(row["attempts"])]
    claimed = [claim for claim in store.claims() if (claim.key not in planned if claim.alive else claim.begun)]
    try:
        spent = [row for row in (*found, *(claim.row for claim in claimed)) if row["fingerprint"] in records]
        promises = [Guarantee.from_dict(row["guarantee"]) for row in (*spent, *planned.values()) if row["guarantee"]]
        return total(promises) if promises else None
    except (TypeError, KeyError, ValueError) as error:  # the planned ones were made here
        raise store.damaged(error) from error


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def _plural(unit: str) -> str:
    return unit if unit.endswith("s") else f"{unit}s"
