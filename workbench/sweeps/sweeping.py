"""A sweep from plan to table: ``prepare`` checks, calibrates and says what is spent, ``PreparedSweep.run`` fits."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench.data import Dataset
from workbench.fitting import DeltaWarning
from workbench.inference.records import PrivacyModelError
from workbench.models import Model
from workbench.privacy.composition import TotalPrivacy, total
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.standing import CapError
from workbench.settling import Settled, settle
from workbench.spending import Account, ledger_for, records_of
from workbench.sweeps import executors
from workbench.sweeps.grid import DP, POOLED, Cell, Grid
from workbench.sweeps.result import SweepResult
from workbench.sweeps.running import Outcome, Run, groups_of, plan_of, run_group
from workbench.sweeps.store import COLUMNS, Store

__all__ = ["BudgetError", "PreparedSweep", "Progress", "prepare", "sweep"]


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
    """

    fits: int
    planned: int
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    newest: tuple[str, ...] = ()


@dataclass
class PreparedSweep:
    """A checked and calibrated sweep. ``run`` fits what the store does not have; ``result`` is there at any time.

    :param grid: what was asked for. :param cells: by key, all of them. :param runs: those still to be done.
    :param refused: rows of those that cannot be run as asked; ``run`` writes them.
    :param total: what all fits over private records spend together, those of the same records in the store included; None
        for public records. :param account: of the fits to be done, in the ledger.
    """

    grid: Grid
    cells: Mapping[str, Cell]
    runs: Sequence[Run]
    store: Store
    total: TotalPrivacy | None
    account: Account
    _facts: Mapping[str, Mapping[str, Any]] = field(repr=False)
    refused: Sequence[Mapping[str, Any]] = field(repr=False)
    state: str = "planned"
    message: str = ""

    def __post_init__(self) -> None:
        """The account's fits are those of the private runs, in their order."""
        self._private = [run.key for run in self.runs if self._guarantee(run) is not None]

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
        standing = self.account.standing() if planned and self.state == "planned" else None
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
        return tuple(dict.fromkeys(text for run in self.runs for text in run.settled.privacy.cautions()))

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
        began, planned = time.perf_counter(), len(self.cells)
        by_key = {run.key: run for run in self.runs}
        over = planned - len(by_key)
        groups = groups_of(self.runs)
        ended: set[str] = set()
        entries = self._entries()
        self.state, self.message = "running", ""

        def tell(step: int = 0, steps: int = 0, newest: Sequence[str] = ()) -> None:
            on_progress(Progress(over, planned, step, steps, time.perf_counter() - began, tuple(newest)))

        def here() -> Iterator[list[Outcome]]:
            for group in groups:
                tell_step = functools.partial(tell, steps=group[0].settled.privacy.iterations)
                yield from run_group(group, max_lanes=max_lanes, stop=stop, on_step=tell_step, before=mark)

        def mark(runs: Sequence[Run]) -> None:
            self.account.mark(keys=[entries[run.key] for run in runs if run.key in entries])

        tell()
        self.store.add(self.refused)
        try:
            batches = here()
            if executor is not None:
                others, device = executors.as_workers(executor), self.grid.constant.get("device")
                mark(self.runs)
                batches = executors.run_on(others, groups, max_lanes=max_lanes, stop=stop, device=device)
            for outcomes in batches:
                for outcome in outcomes:  # before anybody can read what came of them
                    planned_steps = by_key[outcome.key].settled.privacy.iterations
                    self._settle(entries, outcome.key, 0 if outcome.state == "refused" else planned_steps)
                self.store.add([self._row(by_key[outcome.key], outcome) for outcome in outcomes])
                over += len(outcomes)
                ended.update(outcome.key for outcome in outcomes)
                tell(newest=[outcome.key for outcome in outcomes])
            self.state = "stopped" if over < planned else "done"
        except executors.LostExecutorError as error:
            self.state = "interrupted"
            self.message = f"the executor was lost when {over} of {planned} fits were done ({error}); they are kept."
        except KeyboardInterrupt:
            self.state = "stopped"
        except BaseException as error:
            self.state, self.message = "failed", f"{type(error).__name__}: {error}"
            raise
        finally:
            for key in entries.keys() - ended:
                self._settle(entries, key, 0)  # forgotten unseen
            self.runs = [run for run in self.runs if run.key not in ended]
        tell()
        return self.result()

    def _entries(self) -> dict[str, str]:
        """Reserve the private fits to be done: their keys in the ledger by those of their cells; empty without a ledger."""
        left = {run.key for run in self.runs}
        if not left.intersection(self._private):
            return {}
        going_on = [entry for key, entry in zip(self._private, self.account.keys, strict=False) if key in left]
        self.account.begin(going_on)
        return {key: entry for key, entry in zip(self._private, self.account.keys, strict=False) if key in left}

    def _settle(self, entries: Mapping[str, str], key: str, taken: int) -> None:
        problem = self.account.end(taken, entries[key]) if key in entries else ""
        self.message = self.message or problem

    def result(self) -> SweepResult:
        """The table so far."""
        return SweepResult(self.grid, self.cells, self.store, self.total, self.statement(), self.state, self.message)

    def _row(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        return {
            **self._facts[run.key], "state": outcome.state, "message": outcome.message, "metrics": outcome.metrics,
            "seconds": outcome.seconds, "attempts": 1, "parameters": outcome.params, "finished": _now(),
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
    chosen = [*([] if model is None else [model]), *([models] if isinstance(models, (str, Model)) else models)]
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
            settled, plan = _settled(grid, cell, plans)
            dimension = 0 if plan is None else _dimension(settled, plan, dimensions)
            facts[key] = _facts(grid, key, cell, settled, plan, dimension)
            runs.append(Run(key, cell.method, settled, plan))
        except (_validate.ArgumentError, PrivacyModelError) as error:
            first_error = first_error or error
            refused.append(_refused(grid, key, cell, str(error)))
    if first_error is not None and not runs and not done:
        raise first_error  # nothing of the sweep can be run
    spent = None if grid.is_public else _spent(kept, [grid.fingerprint_of(cell) for cell in cells.values()], facts)
    return PreparedSweep(grid, cells, runs, kept, spent, _account(grid, runs, facts, ledger, over_cap), facts, refused)


def _settled(grid: Grid, cell: Cell, plans: dict) -> tuple[Settled, Any]:
    """A cell's settings and plan. A baseline has no noise: where one epsilon cannot be kept, it takes the next one's."""
    *others, last = grid.levels_of(cell)
    for epsilon in others:
        with contextlib.suppress(_validate.ArgumentError):
            return _settled_at(grid, cell, epsilon, plans)
    return _settled_at(grid, cell, last, plans)


def _settled_at(grid: Grid, cell: Cell, epsilon: float, plans: dict) -> tuple[Settled, Any]:
    settled = settle(grid.models[cell.model], grid.records_of(cell), **grid.settings_of(cell, epsilon))
    return settled, None if cell.method == POOLED else plan_of(settled, plans)


def _account(
    grid: Grid, runs: Sequence[Run], facts: Mapping[str, Mapping[str, Any]], ledger: Any, over_cap: str | None
) -> Account:
    """What ``runs`` would spend. Those of private records are on one data set."""
    cell = next(iter(grid.cells()))
    source = grid.records_of(cell)
    private = [facts[run.key]["guarantee"] for run in runs if facts[run.key]["guarantee"] is not None]
    return Account(
        ledger_for(source, ledger),
        lambda: records_of(source),
        lambda: [Guarantee.from_dict(promised) for promised in private],
        model=" and ".join(dict.fromkeys(model.name for model in grid.models)),
        over_cap=over_cap,
    )


_SHARED = {"delta", "relation", "clipping", "average", "strategy", "physical_size", "evaluate_private", "device"}


def _facts(grid: Grid, key: str, cell: Cell, settled: Settled, plan: Any, dimension: int) -> dict[str, Any]:
    """What is known of a fit before it runs, by column of the store."""
    private, stepped, privacy = cell.method == DP, plan is not None, settled.privacy
    guarantee = settled.guarantee(plan, privacy.iterations, dimension) if private else None
    covered = settled.data.is_public or private
    return {
        "key": key, "fingerprint": grid.fingerprint_of(cell), "model": settled.model.name,
        "options": dict(settled.model.options), "data": settled.data.name, "method": cell.method, "epsilon": cell.epsilon,
        "delta": privacy.delta if private else None, "seed": cell.seed, "repetition": cell.repetition,
        "iterations": privacy.iterations if stepped else None, "num_records": privacy.num_records,
        "sampler": privacy.sampler if stepped else None,
        "sampling_rate": plan.sampler.sampling_rate if stepped else None, "clip": privacy.clip if private else None,
        "learning_rate": settled.settings.learning_rate if stepped else None,
        "gradient": settled.settings.gradient if stepped else None,
        "noise_multiplier": plan.mechanism.noise_multiplier if private else None,
        "label": settled.data.evaluation_label if covered else "outside the guarantee",
        "release_label": settled.data.release_label if private else "outside the guarantee",
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


def _dimension(settled: Settled, plan: Any, known: dict[Any, int]) -> int:
    """Coordinates that get noise; the model is read once for data of one shape. ``known`` is written to."""
    shapes = tuple(array.shape[1:] for array in settled.data.train)
    constants = tuple((name, getattr(value, "shape", value)) for name, value in settled.constants.items())
    place = id(settled.model), shapes, repr(constants), settled.settings.gradient
    if place not in known:
        dpvi = settled.trainer(plan)
        settled.begin(dpvi, settled.new_key())
        known[place] = dpvi.noise_size
    plan.truncation_delta(known[place])  # refuses what the noise cannot promise, before it is drawn
    return known[place]


def _spent(store: Store, fingerprints: Iterable[str], planned: Mapping[str, Mapping[str, Any]]) -> TotalPrivacy | None:
    """What ``planned`` fits and all that the store has of the same private records spend together; None for no fit."""
    records = set(fingerprints)
    found = [row for row in store.rows() if row["fingerprint"] in records for _ in range(row["attempts"])]
    promises = [Guarantee.from_dict(row["guarantee"]) for row in (*found, *planned.values()) if row["guarantee"] is not None]
    return total(promises) if promises else None


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
            if progress.steps:
                bar.set_postfix({"step": f"{progress.step:,} of {progress.steps:,}"}, refresh=False)
            bar.update(progress.fits - bar.n)
            bar.refresh()

        yield show
