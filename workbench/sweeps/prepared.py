"""A checked and calibrated sweep: it says what it spends, fits what the store does not have, and
keeps the ledger.
"""

from __future__ import annotations

import functools
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench import _validate
from workbench._numbers import upper
from workbench.data import Dataset
from workbench.fitting.learned_scales import looks_by_default
from workbench.inference.bringing import are_at_rest
from workbench.ledger.budget import CapError
from workbench.ledger.composition import TotalPrivacy, total
from workbench.ledger.reservation import Reservation
from workbench.privacy.guarantee import Guarantee
from workbench.sweeps import executors
from workbench.sweeps.grid import Cell, Grid
from workbench.sweeps.one_by_one import run_one_by_one
from workbench.sweeps.result import SweepResult
from workbench.sweeps.running import Outcome, Run, groups_of, run_group
from workbench.sweeps.store import LOST, Claim, Store

__all__ = ["BudgetError", "PreparedSweep", "Progress", "now", "total_spent"]

_POLL_SECONDS = 0.5  # between two looks at fits that another sweep runs


class BudgetError(_validate.ArgumentError):
    """A sweep over private records was not accepted. ``total`` says what it would spend."""

    def __init__(self, accepted: float | None, total: TotalPrivacy, statement: str) -> None:
        self.total = total
        hint = (
            f" To run it, give accept_total_epsilon={total.epsilon!r}."
            if math.isfinite(total.epsilon)
            else ""
        )
        super().__init__("accept_total_epsilon", accepted, f"{statement}{hint}")


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    :param fits: number of fits that have ended, including those found in the store.
    :param planned: number of all fits.
    :param step: steps that each running fit has taken; 0 between batches, and if an executor does
        the work.
    :param steps: steps that each running fit will take.
    :param seconds: time since the run began.
    :param newest: keys of the fits that ended since the last report.
    :param elsewhere: number of fits that this sweep waits for, because another sweep with the same
        store runs them.
    """

    fits: int
    planned: int
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    newest: tuple[str, ...] = ()
    elsewhere: int = 0


class _Report:
    """Reports how far a run is: ``ended`` of ``planned`` fits."""

    def __init__(
        self, on_progress: Callable[[Progress], None], planned: int, remaining: int
    ) -> None:
        self._on_progress, self._began = on_progress, time.perf_counter()
        self.planned, self.ended = planned, planned - remaining

    def show(
        self, step: int = 0, steps: int = 0, newest: Iterable[str] = (), elsewhere: int = 0
    ) -> None:
        seconds = time.perf_counter() - self._began
        self._on_progress(
            Progress(self.ended, self.planned, step, steps, seconds, tuple(newest), elsewhere)
        )


@dataclass
class PreparedSweep:
    """A checked and calibrated sweep. ``run`` fits what the store does not have; ``result`` can be
    called at any time.

    :param grid: what was asked for.
    :param cells: all cells, by key.
    :param runs: the fits that are still to be run.
    :param store: where finished fits are kept.
    :param total: what all fits of private records spend together, including fits of the same
        records in the store; None for public records. After a run it is what was spent, and what
        the fits still to be run will spend.
    :param reservation: of the fits to be run, only to look at the ledger.
    :param refused: rows of the fits that cannot be run as asked; ``run`` writes them.
    """

    grid: Grid
    cells: Mapping[str, Cell]
    runs: Sequence[Run]
    store: Store
    total: TotalPrivacy | None
    reservation: Reservation
    _reservation_of: Callable[[Sequence[Run]], Reservation] = field(repr=False)
    _facts: Mapping[str, Mapping[str, Any]] = field(repr=False)
    refused: Sequence[Mapping[str, Any]] = field(repr=False)
    status: str = "planned"
    message: str = ""

    def __post_init__(self) -> None:
        """Give this sweep a name among those with the same store."""
        self._name = uuid.uuid4().hex
        self._spends: dict[
            str, tuple[Reservation, str]
        ] = {}  # of private fits in the ledger, by key of the cell
        self._reserved: set[str] = set()  # keys of the fits that are reserved now

    def statement(self) -> str:
        """What the sweep spends, and what it means to choose its best fit, in words."""
        data = self.grid.records_of(next(iter(self.cells.values())))
        about_look = self._look_says(data)
        if self.grid.is_public:
            return f"These records are public or made up: no privacy is spent. {about_look}".strip()
        if self.total is None:
            return "No private fit of these records is planned or in the store."
        words = [self.total.statement(data.unit), *self._ledger_says(data.unit)]
        if self.grid.baselines:
            words.append(
                "Baselines without privacy are exact functions of the records, outside any "
                "guarantee."
            )
        if self.grid.constant.get("covered_scores"):
            words.append(
                "Scores are released through noise, and this total covers a choice by them; "
                "workbench.choose makes the choice at a lower epsilon."
            )
        if not data.evaluation_is_public and self.grid.constant.get("evaluate_private"):
            words.append(
                "Choosing the fit with the best score on private evaluation records leaks about "
                "them: the choice is not noised, and no epsilon here covers it."
            )
        return " ".join(filter(None, [*words, about_look]))

    def _look_says(self, data: Dataset) -> str:
        """What an earlier look spent; without one, that fits of a sweep learn no scales where one
        fit would.
        """
        look = self.grid.constant.get("look")
        if look and look.guarantee is not None:
            return (
                "The look at the columns that they use spent epsilon = "
                f"{upper(look.guarantee.epsilon)} besides."
            )
        if look is not None or not any(looks_by_default(model, data) for model in self.grid.models):
            return ""
        return (
            "These fits keep the declared bounds, from which one fit alone learns scales first. If "
            "the bounds are much wider than the columns, give a look at the columns: "
            "privacy=wb.Privacy(look=wb.look(data, epsilon=0.1)); look=0 keeps the bounds."
        )

    def _ledger_says(self, unit: str) -> list[str]:
        """What the ledger knows of other fits of these records, and whether a cap allows the fits
        to be run.
        """
        planned = [fit for fit in (self._guarantee(run) for run in self.runs) if fit is not None]
        budget = self.reservation.budget_status() if planned and self.status == "planned" else None
        if budget is None:
            return []
        words = []
        if budget.parts and len(budget.units_with(*planned)) == 1:
            joint = total([*budget.parts, *planned])
            words.append(
                f"Together with other fits of these records in the ledger: {joint.statement(unit)}"
            )
        try:
            budget.check(planned)
        except CapError as error:
            words.append(f"The cap does not allow it: {error.explained()}")
        return words

    def _guarantee(self, run: Run) -> Guarantee | None:
        """The guarantee of a run; None for a baseline."""
        promised = self._facts[run.key]["guarantee"]
        return None if promised is None else Guarantee.from_dict(promised)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences about settings that are allowed but unwise; ``sweep`` shows them
        as warnings.
        """
        return tuple(dict.fromkeys(text for run in self.runs for text in _cautions_of(run)))

    def accept(self, total_epsilon: float | None) -> None:
        """Accept what the sweep spends on private records. If no fit is left to run, there is
        nothing to accept.

        :raises BudgetError: unless the total is at most ``total_epsilon``.
        """
        if total_epsilon is not None:
            total_epsilon = _validate.number("accept_total_epsilon", total_epsilon, above=0)
        if (
            self.total is not None
            and self.runs
            and not self.total.epsilon <= (total_epsilon or 0.0)
        ):
            raise BudgetError(total_epsilon, self.total, self.statement())

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        *,
        executor: Any = None,
        max_lanes: int | None = None,
    ) -> SweepResult:
        """Run the fits that are left, and write each row when its fit ends. A stopped run continues
        when called again.

        :param stop: called about twice a second; True ends the run. Running fits are then discarded
            unseen, and finished fits are kept.
        :param on_progress: called with ``Progress`` in this thread.
        :param executor: as for ``sweep``.
        :param max_lanes: the most fits that are stepped together.
        :raises ArgumentError: naming the argument and its value.
        :raises CapError: if a cap on what may be spent on the records does not allow the fits.
        :raises LedgerError: if they cannot be recorded in the ledger.
        """
        if max_lanes is not None:
            max_lanes = _validate.integer("max_lanes", max_lanes, at_least=1)
        _validate.function("stop", stop)
        _validate.function("on_progress", on_progress)
        workers = None if executor is None else executors.as_workers(executor)
        if workers is not None and self.grid.devices is not None:
            raise _validate.ArgumentError(
                "devices",
                len(self.grid.devices),
                "of this process, but an executor's workers have their own: leave one out.",
            )
        if workers is not None and self.grid.is_at_rest:
            raise _validate.ArgumentError(
                "executor",
                executor,
                "cannot have records that stay in a file of this process: open it with "
                "reading='memory'.",
            )
        report = _Report(on_progress, len(self.cells), len(self.runs))
        self.status, self.message = "running", ""
        report.show()
        try:
            self.store.add(self.refused)
            if self.reservation.ledger is not None:
                self.reservation.ledger.recover()  # of killed sweeps
            attempts = {key: row["attempts"] for key, row in self._rows_left().items()}
            while self.runs and not stop():
                mine = self._claim(attempts, report)
                if mine and not self._run_claimed(mine, stop, report, workers, max_lanes):
                    break
                if not mine and self.runs:
                    report.show(elsewhere=len(self.runs))
                    time.sleep(_POLL_SECONDS)
            self.status = "stopped" if self.runs else "done"
        except executors.LostExecutorError as error:
            self.status = "interrupted"
            self.message = (
                f"the executor was lost after {report.ended} of {report.planned} fits ({error}); "
                "these are kept."
            )
        except KeyboardInterrupt:
            self.status = "stopped"
        except BaseException as error:
            self.status, self.message = "failed", _validate.kind_and_message(error)
            raise
        finally:
            for key in list(self._reserved):
                self._settle(key, 0)  # discarded unseen
            self.store.release(self._name)
        if not self.grid.is_public:
            fingerprints = map(self.grid.fingerprint_of, self.cells.values())
            unfinished = {run.key: self._facts[run.key] for run in self.runs}
            self.total = total_spent(self.store, fingerprints, unfinished)
        report.show()
        return self.result()

    def _claim(self, attempts: dict[str, int], report: _Report) -> list[Run]:
        """Claim the fits to be run that no other sweep has. Fits that other sweeps ended meanwhile
        have ended here too.

        :param attempts: how often fits had been run when this run began; updated here.
        """
        mine, former = self.store.claim(
            self._name, [self._row(run, Outcome(run.key, "failed", LOST)) for run in self.runs]
        )
        self._take_over([claim for claim in former if not claim.begun])
        running = {
            claim.key for claim in self.store.claims() if claim.alive and claim.sweep != self._name
        }
        rows = self._rows_left()
        attempts |= {claim.key: rows[claim.key]["attempts"] for claim in former if claim.begun}
        over = {
            key
            for key, row in rows.items()
            if row["status"] == "done" or row["attempts"] > attempts.get(key, 0)
        }
        self._end(over - running, report)
        return [run for run in self.runs if run.key in mine]

    def _rows_left(self) -> dict[str, dict[str, Any]]:
        """The store's rows of the fits to be run, by key."""
        return {row["key"]: row for row in self.store.rows([run.key for run in self.runs])}

    def _run_claimed(
        self,
        runs: Sequence[Run],
        stop: Callable[[], bool],
        report: _Report,
        workers: executors.Workers | None,
        max_lanes: int | None,
    ) -> bool:
        """Reserve fits and run them; whether all of them have ended."""
        by_key, groups = {run.key: run for run in runs}, groups_of(runs)
        self._reserve(runs)
        if workers is None:
            batches = self._here(groups, stop, report, max_lanes)
        else:
            device = self.grid.constant.get("device")
            batches = executors.run_on(
                workers,
                groups,
                max_lanes=max_lanes,
                stop=stop,
                device=device,
                before=self._mark,
                lost=self._lose,
            )
        for outcomes in batches:
            for outcome in outcomes:  # before anyone can read the outcomes
                planned_steps = by_key[outcome.key].spec.privacy.iterations
                self._settle(outcome.key, 0 if outcome.status == "refused" else planned_steps)
            self.store.add([self._row(by_key[outcome.key], outcome) for outcome in outcomes])
            self._end([outcome.key for outcome in outcomes], report)
        return by_key.keys().isdisjoint(run.key for run in self.runs)

    def _here(
        self,
        groups: Sequence[Sequence[Run]],
        stop: Callable[[], bool],
        report: _Report,
        max_lanes: int | None,
    ) -> Iterator[list[Outcome]]:
        for group in groups:
            steps = functools.partial(report.show, steps=group[0].spec.privacy.iterations)
            if group[0].plan is not None and are_at_rest(group[0].spec.records):
                yield from run_one_by_one(group, stop, steps, self._mark)
                continue
            yield from run_group(
                group,
                max_lanes=max_lanes,
                devices=self.grid.devices,
                stop=stop,
                on_step=steps,
                before=self._mark,
            )

    def _end(self, keys: Collection[str], report: _Report) -> None:
        """Note that fits have ended."""
        if keys:
            self.runs = [run for run in self.runs if run.key not in keys]
            report.ended += len(keys)
            report.show(newest=keys)

    # ---- the ledger ------------------------------------------------------------------------------

    def _take_over(self, former: Sequence[Claim]) -> None:
        """Take over what an ended sweep had reserved for fits that it had not begun: a cap may
        count them already.
        """
        pending = {run.key: run for run in self.runs}
        reserved = {claim.spend: pending[claim.key] for claim in former if claim.spend}
        for spend in (
            []
            if self.reservation.ledger is None or not reserved
            else self.reservation.ledger.spends()
        ):
            run = reserved.get(spend.key)
            if run is not None and not spend.reached and spend.guarantee == self._guarantee(run):
                reservation = self._reservation_of([run])
                reservation.continue_fit(spend.key)
                self._spends[run.key] = reservation, spend.key

    def _reserve(self, runs: Sequence[Run]) -> None:
        """Reserve private fits, all or none. Fits that were reserved before and discarded unseen
        keep their reservation.
        """
        private = [run for run in runs if self._guarantee(run) is not None]
        renewed = [run.key for run in private if run.key in self._spends]
        new = [run for run in private if run.key not in self._spends]
        again: dict[Reservation, list[str]] = {}
        for reservation, spend in (self._spends[key] for key in renewed):
            again.setdefault(reservation, []).append(spend)
        for reservation, spends in again.items():
            reservation.reserve(spends)
        self._reserved.update(renewed)
        if new:
            reservation = self._reservation_of(new)
            reservation.reserve()  # makes no keys without a ledger
            self._spends |= {
                run.key: (reservation, spend)
                for run, spend in zip(new, reservation.keys, strict=False)
            }
        noted = {run.key: self._spends[run.key][1] for run in private if run.key in self._spends}
        self._reserved.update(noted)
        self.store.note(self._name, noted)

    def _mark(self, runs: Sequence[Run]) -> None:
        """Note that the first steps of fits are about to be taken."""
        self._reserve([run for run in runs if run.key not in self._reserved])
        # first, so that a fit that has not begun has marked nothing
        self.store.begin(self._name, [run.key for run in runs])
        for reservation, spend in (
            self._spends[run.key] for run in runs if run.key in self._reserved
        ):
            reservation.mark(keys=[spend])

    def _lose(self, runs: Sequence[Run]) -> None:
        """Charge the fits of a lost worker for all their steps, and make them ready to
        run again.
        """
        for run in runs:
            self._settle(run.key, run.spec.privacy.iterations)
            self._spends.pop(run.key, None)
        self.store.add(
            [self._row(run, Outcome(run.key, "failed", LOST)) for run in runs], again=True
        )

    def _settle(self, key: str, taken: int) -> None:
        if key in self._reserved:
            reservation, spend = self._spends[key]
            problem = reservation.settle(taken, spend)
            self.message = self.message or problem
            self._reserved.discard(key)

    def result(self) -> SweepResult:
        """The result so far."""
        return SweepResult(
            self.grid,
            self.cells,
            self.store,
            self.total,
            self.statement(),
            self.status,
            self.message,
            self.reservation.ledger,
        )

    def _row(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        return {
            **self._facts[run.key],
            "status": outcome.status,
            "message": outcome.message,
            "metrics": outcome.metrics,
            "intervals": outcome.intervals,
            "spend": self._spends[run.key][1] if run.key in self._spends else "",
            "seconds": outcome.seconds,
            "attempts": int(outcome.status != "refused"),
            "parameters": outcome.params,
            "finished": now(),
        }


def _cautions_of(run: Run) -> tuple[str, ...]:
    of_scores = () if run.plan is None else run.spec.scorer.cautions(run.spec, run.plan)
    return (*run.spec.privacy.cautions(), *of_scores)


def total_spent(
    store: Store, fingerprints: Iterable[str], planned: Mapping[str, Mapping[str, Any]]
) -> TotalPrivacy | None:
    """What ``planned`` fits and all fits of the same private records in the store spend together;
    None for no fit.

    It counts the fits that other sweeps with this store are about to run, and those that had begun
    when their process ended.
    """
    records = set(fingerprints)
    attempts = [row for row in store.rows() for _ in range(row["attempts"])]
    claimed = [
        claim
        for claim in store.claims()
        if (claim.key not in planned if claim.alive else claim.begun)
    ]
    try:
        spent = [
            row
            for row in (*attempts, *(claim.row for claim in claimed))
            if row["fingerprint"] in records
        ]
        promises = [
            Guarantee.from_dict(row["guarantee"])
            for row in (*spent, *planned.values())
            if row["guarantee"]
        ]
        return total(promises) if promises else None
    except (
        TypeError,
        KeyError,
        ValueError,
    ) as error:  # it comes from the store: the planned ones were made here
        raise store.damaged(error) from error


def now() -> str:
    """The local time as a sweep's table shows it."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
