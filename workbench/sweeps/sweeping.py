"""A sweep from plan to table: ``prepare`` checks, calibrates and says what is spent; ``sweep`` also
fits.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench import _validate
from workbench.clipping.separation import PrivacyModelError
from workbench.fitting.fits import DeltaWarning
from workbench.fitting.groups import Execution, Privacy, Training, flattened, is_a, of
from workbench.fitting.settings import AUTO, Noted, setting, takes
from workbench.fitting.spec import FitSpec, resolve
from workbench.ledger.ledger import Ledger
from workbench.ledger.reservation import Reservation, id_of, ledger_for
from workbench.privacy.guarantee import Guarantee
from workbench.sweeps.grid import Cell, Grid
from workbench.sweeps.prepared import BudgetError, PreparedSweep, Progress, now, total_spent
from workbench.sweeps.request import DP, POOLED, SweepRequest, Swept
from workbench.sweeps.result import SweepResult
from workbench.sweeps.running import Run, plan_of
from workbench.sweeps.store import COLUMNS, Store

__all__ = ["BudgetError", "PreparedSweep", "Progress", "prepare", "progress_bar", "sweep"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _RunOptions(Noted):
    """How a sweep is run that was prepared."""

    accept_total_epsilon: float | None = setting(
        None, "on private records, run if all fits of the sweep together spend at most this epsilon"
    )
    executor: Any = setting(
        None,
        "a dask.distributed Client or a concurrent.futures executor that does the work",
        otherwise="this process",
    )
    max_lanes: int | None = setting(
        None, "the most fits that are stepped together", otherwise="as many as memory allows"
    )
    on_progress: Callable[[Progress], None] | None = setting(
        None, "called with ``Progress``", _validate.function, otherwise="a progress bar is shown"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Sweep(_RunOptions, SweepRequest):
    stop: Callable[[], bool] = setting(
        lambda: False,
        "called about twice a second; True ends the sweep and keeps what is finished",
        _validate.function,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrepareArguments(Swept):
    """The arguments of ``prepare``: what is swept, and settings of all fits in groups."""

    delta: float | None = of("delta")
    ledger: Any = of("ledger")
    privacy: Privacy = setting(
        Privacy(), f"of all fits, {Privacy.help()}", is_a(Privacy), changes_guarantee=True
    )
    training: Training = setting(Training(), f"of all fits, {Training.help()}", is_a(Training))
    execution: Execution = setting(Execution(), f"of all fits, {Execution.help()}", is_a(Execution))

    def __post_init__(self) -> None:
        """Check the groups; the rest is checked as a ``SweepRequest``. :raises ArgumentError:
        naming the argument.
        """
        for name, kind in (("privacy", Privacy), ("training", Training), ("execution", Execution)):
            object.__setattr__(self, name, is_a(kind)(name, getattr(self, name)))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepArguments(_RunOptions, PrepareArguments):
    """The arguments of ``sweep``."""


@takes(PrepareArguments)
def prepare(arguments: PrepareArguments) -> PreparedSweep:
    """Check a sweep, calibrate its fits and find what the store has of them, before any private
    record is touched.

    :raises ArgumentError: naming the argument and its value.
    """
    return _prepare(SweepRequest(**flattened(arguments, SweepRequest, "a sweep's prepare")))


def _prepare(request: SweepRequest) -> PreparedSweep:
    grid = Grid(request)
    store = request.store if isinstance(request.store, Store) else Store(request.store)
    if not grid.is_public:
        grid.key = store.key()
    done = {row["key"] for row in store.rows() if row["status"] == "done"}
    cells = {grid.key_of(cell): cell for cell in grid.cells()}
    plans: dict[Any, Any] = {}
    dimensions: dict[Any, int] = {}
    facts: dict[str, dict[str, Any]] = {}
    runs, refused = [], []
    first_error: Exception | None = None
    for key, cell in cells.items():
        if key in done:
            continue
        try:
            spec, calibrated = _resolved(grid, cell, plans)
            dimension = 0
            if calibrated is not None:
                dimension = _dimension(spec, calibrated, dimensions)
                calibrated = plan_of(spec, plans, dimension)
                # refuses what the noise cannot promise, before it is drawn
                calibrated.noise_delta(dimension)
            facts[key] = _facts(grid, key, cell, spec, calibrated, dimension)
            runs.append(Run(key, cell.method, spec, calibrated))
        except (_validate.ArgumentError, PrivacyModelError) as error:
            first_error = first_error or error
            refused.append(_refused(grid, key, cell, str(error)))
    if first_error is not None and not runs and done.isdisjoint(cells):
        raise first_error  # no fit of the sweep can be run
    spent = (
        None
        if grid.is_public
        else total_spent(store, map(grid.fingerprint_of, cells.values()), facts)
    )
    reservation_of = functools.partial(_reservation, grid, facts, request.ledger, request.over_cap)
    return PreparedSweep(
        grid, cells, runs, store, spent, reservation_of(runs), reservation_of, facts, refused
    )


def _resolved(grid: Grid, cell: Cell, plans: dict) -> tuple[FitSpec, Any]:
    """A cell's settings and plan. A baseline has no noise: if one epsilon cannot be kept, it takes
    the next one's.
    """
    *earlier, last = grid.levels_of(cell)
    for epsilon in earlier:
        with contextlib.suppress(_validate.ArgumentError):
            return _resolved_at(grid, cell, epsilon, plans)
    return _resolved_at(grid, cell, last, plans)


def _resolved_at(grid: Grid, cell: Cell, epsilon: float, plans: dict) -> tuple[FitSpec, Any]:
    spec = grid.with_shared_scales(
        resolve(grid.models[cell.model], grid.records_of(cell), **grid.settings_of(cell, epsilon))
    )
    return spec, None if cell.method == POOLED else plan_of(spec, plans)


def _reservation(
    grid: Grid,
    facts: Mapping[str, Mapping[str, Any]],
    ledger: str | Path | Ledger | Literal[False] | None,
    over_cap: str | None,
    runs: Sequence[Run],
) -> Reservation:
    """The ledger reservation for ``runs``. All fits of private records are on one data set."""
    source = grid.records_of(grid.cells()[0])
    private = [
        facts[run.key]["guarantee"] for run in runs if facts[run.key]["guarantee"] is not None
    ]
    reservation = Reservation(
        ledger_for(source, ledger),
        lambda: id_of(source),
        lambda: [Guarantee.from_dict(promised) for promised in private],
        model=" and ".join(dict.fromkeys(model.name for model in grid.models)),
        over_cap=over_cap,
    )
    if (look := grid.constant.get("look")) and look.token:
        reservation.count_with(look.token)
    return reservation


def _identity(grid: Grid, key: str, cell: Cell) -> dict[str, Any]:
    """The columns that say which fit a row is about."""
    model = grid.models[cell.model]
    return {
        "key": key,
        "fingerprint": grid.fingerprint_of(cell),
        "model": model.name,
        "options": dict(model.options),
        "data": grid.records_of(cell).name,
        "method": cell.method,
        "epsilon": cell.epsilon,
        "seed": cell.seed,
        "repetition": cell.repetition,
    }


def _facts(
    grid: Grid, key: str, cell: Cell, spec: FitSpec, plan: Any, dimension: int
) -> dict[str, Any]:
    """What is known of a fit before it runs, by column of the store."""
    private, stepped, privacy = cell.method == DP, plan is not None, spec.privacy
    guarantee = spec.guarantee(plan, privacy.iterations, dimension) if private else None
    covered = spec.data.is_public or private
    label = "covered" if private and spec.settings.covered_scores else spec.data.evaluation_label
    return {
        **_identity(grid, key, cell),
        "delta": privacy.delta if private else None,
        "iterations": privacy.iterations if stepped else None,
        "num_records": privacy.num_records,
        "sampler": privacy.sampler if stepped else None,
        "sampling_rate": plan.sampler.sampling_rate if stepped else None,
        "clip": privacy.clip if private and not privacy.adapts_clip else None,
        "learning_rate": spec.settings.learning_rate if stepped else None,
        "estimator": spec.settings.estimator if stepped else None,
        "noise_multiplier": plan.mechanism.noise_multiplier if private else None,
        "label": label if covered else "outside the guarantee",
        "release_label": "covered" if private else "outside the guarantee",
        "guarantee": None if guarantee is None else guarantee.to_dict(),
    }


def _refused(grid: Grid, key: str, cell: Cell, message: str) -> dict[str, Any]:
    """The row of a fit that cannot be run as asked."""
    dataset = grid.records_of(cell)
    return {
        **{name: cell.settings.get(name) for name in COLUMNS},
        "clip": None if cell.settings.get("clip") == AUTO else cell.settings.get("clip"),
        **_identity(grid, key, cell),
        "status": "refused",
        "message": message,
        "metrics": {},
        "intervals": {},
        "spend": "",
        "attempts": 0,
        "seconds": 0.0,
        "finished": now(),
        "label": dataset.evaluation_label,
        "release_label": "covered",
    }


def _dimension(spec: FitSpec, plan: Any, dimensions: dict[Any, int]) -> int:
    """The number of coordinates that get noise; the model is read once for data of one shape and
    noted in ``dimensions``.

    :raises ArgumentError: naming ``covered_scores``, if they are asked for and it has none.
    """
    shapes = tuple(array.shape[1:] for array in spec.data.train)
    constants = tuple(
        (name, getattr(value, "shape", value)) for name, value in spec.constants.items()
    )
    key = id(spec.model), shapes, repr(constants), spec.settings.estimator, spec.privacy.sampler
    if key not in dimensions:
        step = spec.private_step(plan, spec.new_key())
        spec.scorer.require(spec, step)
        dimensions[key] = step.noised_coordinates
    return dimensions[key]


@takes(SweepArguments)
def sweep(arguments: SweepArguments) -> SweepResult:
    """Fit a model over a grid of settings: every combination of the lists given.

    Fits that differ only in numbers are stepped together, each with the parameters that
    ``workbench.fit`` with its seed would give, up to rounding. On private records every fit spends
    its own epsilon, and all together spend more: the sweep says how much, and runs only when that
    is accepted.

    >>> result = wb.sweep("logistic", "breast_cancer", epsilons=[1, 8])
    >>> result.table["epsilon"].tolist()
    [1.0, 8.0]
    >>> figure = result.plot("auc")

    :raises ArgumentError: naming the argument and its value.
    :raises BudgetError: on private records, unless accepted.
    """
    request = _Sweep(**flattened(arguments, _Sweep, "a sweep"))
    prepared = _prepare(request)
    prepared.accept(request.accept_total_epsilon)
    for caution in prepared.cautions:
        warnings.warn(caution, DeltaWarning, stacklevel=3)
    shown = (
        progress_bar()
        if request.on_progress is None
        else contextlib.nullcontext(request.on_progress)
    )
    with shown as on_progress:
        return prepared.run(
            request.stop, on_progress, executor=request.executor, max_lanes=request.max_lanes
        )


@contextlib.contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A function that shows ``Progress`` as a bar on standard error, or as a widget
    in notebooks.
    """
    from tqdm.auto import tqdm

    with tqdm(unit="fit", desc="sweep", file=sys.stderr, mininterval=0.2, disable=quiet) as bar:

        def show(progress: Progress) -> None:
            bar.total = progress.planned
            if progress.elsewhere:
                bar.set_postfix_str(
                    f"{progress.elsewhere} run by another sweep with this store", refresh=False
                )
            if progress.steps:
                bar.set_postfix({"step": f"{progress.step:,} of {progress.steps:,}"}, refresh=False)
            bar.update(progress.fits - bar.n)
            bar.refresh()

        yield show
