"""A sweep from plan to table: ``prepare`` checks, calibrates and says what is spent, ``PreparedSweep.run`` fits."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench.data import Dataset
from workbench.fitting.fits import DeltaWarning
from workbench.fitting.settings import FitSpec, resolve
from workbench.inference.record_model import PrivacyModelError
from workbench.ledger.budget import CapError
from workbench.ledger.composition import TotalPrivacy, total
from workbench.ledger.fingerprint import fingerprint
from workbench.ledger.reservation import Reservation, id_of, ledger_for
from workbench.models import Model
from workbench.privacy.guarantee import Guarantee
from workbench.sweeps import executors
from workbench.sweeps.grid import DP, POOLED, Cell, Grid
from workbench.sweeps.result import SweepResult
from workbench.sweeps.running import Outcome, Run, groups_of, plan_of, run_group
from workbench.sweeps.store import COLUMNS, LOST, Claim, Store

__all__ = ["BudgetError", "PreparedSweep", "Progress", "prepare", "sweep"]

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
    state: str = "planned"
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
        standing = self.account.budget_status() if planned and self.state == "planned" else None
        if standing is None:
            return []
        words = []
        if standing.parts:
            whole = total([*standing.parts, *planned])
            words.append(f"With what the ledger has of these records: {whole.statement(unit)}")
        try:
            standing.check(planned)
        except CapError as error:
            words.append(f"The cap does not allow it: {error.explained()}")
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
            raise BudgetError(total_epsilon, self.total, self.statement())

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
        self.state, self.message = "running", ""
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
            self.state = "stopped" if self.runs else "done"
        except executors.LostExecutorError as error:
            self.state = "interrupted"
            self.message = (
                f"the executor was lost when {report.over} of {report.planned} fits were done ({error}); they are kept."
            )
        except KeyboardInterrupt:
            self.state = "stopped"
        except BaseException as error:
            self.state, self.message = "failed", f"{type(error).__name__}: {error}"
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
                self._settle(outcome.key, 0 if outcome.state == "refused" else planned_steps)
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
        return _spent(
            self.store,
            map(self.grid.fingerprint_of, self.cells.values()),
            {run.key: self._facts[run.key] for run in self.runs},
        )

    def result(self) -> SweepResult:
        """The table so far."""
        return SweepResult(self.grid, self.cells, self.store, self.total, self.statement(), self.state, self.message)

    def _row(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        return {
            **self._facts[run.key], "state": outcome.state, "message": outcome.message, "metrics": outcome.metrics,
            "seconds": outcome.seconds, "attempts": int(outcome.state != "refused"),
            "parameters": outcome.params, "finished": _now(),
        }  # fmt: skip


def prepare(
    model: str | Model | None = None,
    data: str | Dataset | Callable[..., Dataset] | None = None,
    *,
    epsilons: Sequence[float] | float,
    seeds: int | Sequence[int] = 1,
    iterations: Sequence[int | None] | int | None = None,
    num_records: Sequence[int | None] | int | None = None,
    models: Sequence[str | Model] = (),
    samplers: Sequence[str] | str = "poisson",
    clips: Sequence[float | None] | float | None = None,
    learning_rates: Sequence[float | None] | float | None = None,
    sampling_rates: Sequence[float | None] | float | None = None,
    batch_sizes: Sequence[int | None] | int | None = None,
    gradients: Sequence[str] | str = "aligned",
    baselines: Sequence[str] = (),
    store: str | Path | Store | None = None,
    ledger: Any = None,
    over_cap: str | None = None,
    **settings: Any,
) -> PreparedSweep:
    """Check a sweep, calibrate its fits and find what the store has of them, before any private record is touched.

    The arguments are those of ``sweep``.
    """
    more = [models] if isinstance(models, (str, Model)) else models
    if not isinstance(more, (list, tuple)):
        raise _validate.ArgumentError("models", models, "must be a list of names or workbench.models.Model objects.")
    chosen = [*([] if model is None else [model]), *more]
    if not chosen:
        raise _validate.ArgumentError("model", None, "name a model, or several with models=.")
    if data is None:
        raise _validate.ArgumentError("data", None, "name a data set, or give a Dataset or a function that makes one up.")
    unknown = sorted(set(settings) - _SHARED)
    if unknown:
        raise _validate.unknown_name("settings", unknown[0], _SHARED)
    grid = Grid(
        chosen, data, epsilons, seeds, iterations, num_records, samplers, clips, learning_rates, sampling_rates,  # type: ignore[arg-type]
        batch_sizes, gradients, baselines, settings,  # type: ignore[arg-type]
    )  # fmt: skip
    kept = store if isinstance(store, Store) else Store(store)
    if not grid.is_public:
        records = grid.records_of(grid.cells()[0])  # the same of all cells
        grid.key = kept.key(lambda key: fingerprint(records, key))
    cells = {grid.key_of(cell): cell for cell in grid.cells()}
    done = {row["key"] for row in kept.rows(list(cells)) if row["state"] == "done"}
    plans: dict[Any, Any] = {}
    dimensions: dict[Any, int] = {}
    facts: dict[str, dict[str, Any]] = {}
    runs, refused = [], []
    first_error: Exception | None = None
    for key, cell in cells.items():
        if key in done:
            continue
        try:
            spec, plan = _resolved(grid, cell, plans)
            dimension = 0 if plan is None else _dimension(spec, plan, dimensions)
            facts[key] = _facts(grid, key, cell, spec, plan, dimension)
            runs.append(Run(key, cell.method, spec, plan))
        except (_validate.ArgumentError, PrivacyModelError) as error:
            first_error = first_error or error
            refused.append(_refused(grid, key, cell, str(error)))
    if first_error is not None and not runs and not done:
        raise first_error  # nothing of the sweep can be run
    spent = None if grid.is_public else _spent(kept, map(grid.fingerprint_of, cells.values()), facts)
    account_of = functools.partial(_account, grid, facts, ledger, over_cap)
    return PreparedSweep(grid, cells, runs, kept, spent, account_of(runs), account_of, facts, refused)


def _resolved(grid: Grid, cell: Cell, plans: dict) -> tuple[FitSpec, Any]:
    """A cell's settings and plan. A baseline has no noise: where one epsilon cannot be kept, it takes the next one's."""
    *others, last = grid.levels_of(cell)
    for epsilon in others:
        with contextlib.suppress(_validate.ArgumentError):
            return _settled_at(grid, cell, epsilon, plans)
    return _settled_at(grid, cell, last, plans)


def _settled_at(grid: Grid, cell: Cell, epsilon: float, plans: dict) -> tuple[FitSpec, Any]:
    spec = resolve(grid.models[cell.model], grid.records_of(cell), **grid.settings_of(cell, epsilon))
    return spec, None if cell.method == POOLED else plan_of(spec, plans)


def _account(
    grid: Grid, facts: Mapping[str, Mapping[str, Any]], ledger: Any, over_cap: str | None, runs: Sequence[Run]
) -> Reservation:
    """What ``runs`` would spend. Those of private records are on one data set."""
    cell = next(iter(grid.cells()))
    source = grid.records_of(cell)
    private = [facts[run.key]["guarantee"] for run in runs if facts[run.key]["guarantee"] is not None]
    return Reservation(
        ledger_for(source, ledger),
        lambda: id_of(source),
        lambda: [Guarantee.from_dict(promised) for promised in private],
        model=" and ".join(dict.fromkeys(model.name for model in grid.models)),
        over_cap=over_cap,
    )


_SHARED = {"delta", "relation", "clipping", "average", "strategy", "physical_size", "evaluate_private", "device"}


def _facts(grid: Grid, key: str, cell: Cell, spec: FitSpec, plan: Any, dimension: int) -> dict[str, Any]:
    """What is known of a fit before it runs, by column of the store."""
    private, stepped, privacy = cell.method == DP, plan is not None, spec.privacy
    guarantee = spec.guarantee(plan, privacy.iterations, dimension) if private else None
    covered = spec.data.is_public or private
    return {
        "key": key, "fingerprint": grid.fingerprint_of(cell), "model": spec.model.name,
        "options": dict(spec.model.options), "data": spec.data.name, "method": cell.method, "epsilon": cell.epsilon,
        "delta": privacy.delta if private else None, "seed": cell.seed, "repetition": cell.repetition,
        "iterations": privacy.iterations if stepped else None, "num_records": privacy.num_records,
        "sampler": privacy.sampler if stepped else None,
        "sampling_rate": plan.sampler.sampling_rate if stepped else None, "clip": privacy.clip if private else None,
        "learning_rate": spec.settings.learning_rate if stepped else None,
        "gradient": spec.settings.gradient if stepped else None,
        "noise_multiplier": plan.mechanism.noise_multiplier if private else None,
        "label": spec.data.evaluation_label if covered else "outside the guarantee",
        "release_label": spec.data.release_label if private else "outside the guarantee",
        "guarantee": None if guarantee is None else guarantee.to_dict(),
    }  # fmt: skip


def _refused(grid: Grid, key: str, cell: Cell, message: str) -> dict[str, Any]:
    """The row of a fit that cannot be run as asked."""
    model, dataset = grid.models[cell.model], grid.records_of(cell)
    row = dict.fromkeys(COLUMNS)
    return {
        **row, "key": key, "fingerprint": grid.fingerprint_of(cell), "model": model.name, "options": dict(model.options),
        "data": dataset.name, "method": cell.method, "epsilon": cell.epsilon, "seed": cell.seed,
        "repetition": cell.repetition, "iterations": cell.iterations, "num_records": cell.num_records,
        "sampler": cell.sampler, "sampling_rate": cell.sampling_rate, "clip": cell.clip,
        "learning_rate": cell.learning_rate, "gradient": cell.gradient, "state": "refused", "message": message,
        "metrics": {}, "attempts": 0, "label": dataset.evaluation_label, "release_label": dataset.release_label,
        "seconds": 0.0, "finished": _now(),
    }  # fmt: skip


def _dimension(spec: FitSpec, plan: Any, known: dict[Any, int]) -> int:
    """Coordinates that get noise; the model is read once for data of one shape. ``known`` is written to."""
    shapes = tuple(array.shape[1:] for array in spec.data.train)
    constants = tuple((name, getattr(value, "shape", value)) for name, value in spec.constants.items())
    place = id(spec.model), shapes, repr(constants), spec.settings.gradient
    if place not in known:
        known[place] = spec.private_step(plan, spec.new_key()).noise_size
    plan.truncation_delta(known[place])  # refuses what the noise cannot promise, before it is drawn
    return known[place]


def _spent(store: Store, fingerprints: Iterable[str], planned: Mapping[str, Mapping[str, Any]]) -> TotalPrivacy | None:
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


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def _plural(unit: str) -> str:
    return unit if unit.endswith("s") else f"{unit}s"


def sweep(
    model: str | Model | None = None,
    data: str | Dataset | Callable[..., Dataset] | None = None,
    *,
    epsilons: Sequence[float] | float,
    seeds: int | Sequence[int] = 1,
    iterations: Sequence[int | None] | int | None = None,
    num_records: Sequence[int | None] | int | None = None,
    models: Sequence[str | Model] = (),
    samplers: Sequence[str] | str = "poisson",
    clips: Sequence[float | None] | float | None = None,
    learning_rates: Sequence[float | None] | float | None = None,
    sampling_rates: Sequence[float | None] | float | None = None,
    batch_sizes: Sequence[int | None] | int | None = None,
    gradients: Sequence[str] | str = "aligned",
    baselines: Sequence[str] = (),
    store: str | Path | Store | None = None,
    ledger: Any = None,
    over_cap: str | None = None,
    accept_total_epsilon: float | None = None,
    executor: Any = None,
    max_lanes: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> SweepResult:
    """Fit a model over a grid of settings: every combination of the lists given.

        result = wb.sweep("hierarchical_logistic", wb.data.hierarchical, epsilons=[1, 2, 4, 8], seeds=range(10))
        result.table; result.plot()

    Fits that differ in numbers only are stepped together, each with the parameters that ``workbench.fit`` with its seed
    would give, up to rounding. On private records every fit spends its own epsilon, and all together spend more: the sweep
    says how much and runs only when that is accepted.

    :param model: a name or a ``Model``. :param data: a name, a ``Dataset``, or a function that makes up records from
        ``seed=`` (and ``num_records=``), which then differ from seed to seed.
    :param epsilons: each > 0. :param seeds: how many times a fit is repeated with secret randomness; or a list of seeds,
        for public records only.
    :param iterations: T. :param num_records: N; public records are cut to it by a public choice.
    :param models: several, in the place of ``model``. :param samplers: names. :param clips: C > 0.
    :param learning_rates: of Adam. :param sampling_rates: q in (0, 1]. :param batch_sizes: in their place.
    :param gradients: "aligned", "vanilla".
    :param baselines: "non-private" (the same steps with neither clipping nor noise), "scikit-learn" (pooled logistic
        regression): exact functions of the records, outside the guarantee.
    :param store: a SQLite file to keep finished fits in: fits that it has are not run again. Without one they are kept in
        memory.
    :param ledger: where fits of private records are entered, as for ``workbench.fit``; all fits of a sweep are reserved
        together.
    :param over_cap: why their cap may be overrun, as for ``workbench.fit``.
    :param accept_total_epsilon: on private records, the sweep runs if all its fits together spend at most this epsilon.
    :param executor: a dask.distributed Client or a concurrent.futures executor to do the work; this process by default.
    :param max_lanes: fits stepped together at most; memory decides by default.
    :param on_progress: called with ``Progress``; by default a progress bar is shown.
    :param stop: asked about twice a second; True keeps what is finished.
    :param settings: of ``workbench.fit``, the same for all: delta, relation, clipping, average, strategy, physical_size,
        evaluate_private, device.
    :raises ArgumentError: naming the argument and its value. :raises BudgetError: on private records, unless accepted.
    """
    prepared = prepare(
        model, data, epsilons=epsilons, seeds=seeds, iterations=iterations, num_records=num_records, models=models,
        samplers=samplers, clips=clips, learning_rates=learning_rates, sampling_rates=sampling_rates,
        batch_sizes=batch_sizes, gradients=gradients, baselines=baselines, store=store, ledger=ledger, over_cap=over_cap,
        **settings,
    )  # fmt: skip
    prepared.accept(accept_total_epsilon)
    for caution in prepared.cautions:
        warnings.warn(caution, DeltaWarning, stacklevel=2)
    if on_progress is not None:
        return prepared.run(stop, on_progress, executor=executor, max_lanes=max_lanes)
    with progress_bar() as show:
        return prepared.run(stop, show, executor=executor, max_lanes=max_lanes)


@contextlib.contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error, in notebooks a widget, to be called with ``Progress``."""
    from tqdm.auto import tqdm

    with tqdm(unit="fit", desc="sweep", file=sys.stderr, mininterval=0.2, disable=quiet) as bar:

        def show(progress: Progress) -> None:
            bar.total = progress.planned
            if progress.elsewhere:
                bar.set_postfix_str(f"{progress.elsewhere} run by another sweep with this store", refresh=False)
            if progress.steps:
                bar.set_postfix({"step": f"{progress.step:,} of {progress.steps:,}"}, refresh=False)
            bar.update(progress.fits - bar.n)
            bar.refresh()

        yield show
