"""``look``: the columns of private records through noise, as a result of its own."""

from __future__ import annotations

import uuid
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import jax

from workbench import _validate
from workbench.data import Dataset, from_frame, load
from workbench.data.counting import counting_of, noised
from workbench.data.look import Look
from workbench.fitting.groups import of
from workbench.fitting.settings import Noted, about, check_all, described, setting, takes
from workbench.inference.state import Purpose
from workbench.ledger.reservation import Reservation, id_of, ledger_for
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.privacy.plan import PrivacySettings, default_delta, make_plan, require_declared

__all__ = ["look"]


@dataclass(frozen=True, eq=False, repr=False)
class LookArguments(Noted):
    """The arguments of ``look``."""

    data: Any = field(
        metadata=described("a name, a ``Dataset``, or a table whose columns ``schema`` declares")
    )
    _: KW_ONLY
    epsilon: float = field(
        metadata=described(
            "privacy loss of the look", about("epsilon").check, changes_guarantee=True
        )
    )
    delta: float | None = of("delta")
    schema: Any = setting(None, "of a table: the declaration of its columns")
    num_records: int | None = of("num_records")
    seed: int | None = of("seed")
    unit_id: Any = of("unit_id")
    max_rows: int | None = of("max_rows")
    missing: Any = of("missing")
    ledger: Any = of("ledger")
    over_cap: str | None = of("over_cap")

    def __post_init__(self) -> None:
        """Check every value. :raises ArgumentError: naming the argument and its value."""
        check_all(self)


@takes(LookArguments)
def look(request: LookArguments) -> Look:
    """Look at the columns of private records through noise: quantiles, levels, missing values.

    One release of counts with Gaussian noise, from all records, is (epsilon, delta)-differentially
    private under add_or_remove_one. ``wb.Privacy(look=that)`` scales a fit by it without paying
    again; the ledger adds both up.

    >>> frame = pd.DataFrame({"age": np.arange(5000) % 90, "ward": ["a", "b"] * 2500})
    >>> schema = {"age": (0, 120), "ward": ["a", "b"]}
    >>> ages = wb.look(frame, schema=schema, epsilon=1, seed=1).quantiles("age", [0.5])
    >>> bool(ages["low"].item() < 45 < ages["high"].item())
    True

    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow it.
    """
    data = _data_of(request)
    declared = data.num_train if request.num_records is None else request.num_records
    require_declared(declared, data.num_train)
    counting = counting_of(data)
    settings = PrivacySettings(
        epsilon=request.epsilon,
        delta=default_delta(declared) if request.delta is None else request.delta,
        iterations=1,
        sampling_rate=1.0,
        sampler="poisson",
        clip=counting.sensitivity,
        num_records=declared,
        seed=request.seed,
    )
    plan = make_plan(settings, data.num_train).for_noise_in(counting.size).confirmed()
    guarantee = replace(
        plan.guarantee(
            steps_taken=1,
            unit=data.unit,
            dimension=counting.size,
            caveats=data.caveats,
            max_rows=None if data.units is None else data.units.max_rows,
            covers_deletion=True,  # counts do not depend on the places of records
        ),
        released="counts",
    )
    noise = plan.mechanism.noise_multiplier
    counting.per_record(noise)  # refuses what noise has no room for, before anything is spent
    reservation = Reservation(
        ledger_for(data, request.ledger),
        lambda: id_of(data),
        lambda: [guarantee],
        model="look",
        plan=lambda: uuid.uuid4().hex,
        seed=request.seed,
        over_cap=request.over_cap,
    )
    reservation.reserve()
    reservation.mark()  # from here on it counts, whatever becomes of this process
    key = new_key() if request.seed is None else key_from_seed(request.seed)
    values = noised(counting, data, noise, jax.random.fold_in(key, Purpose.LOOK))
    reservation.settle(1)
    return Look(counting, values, counting.deviation(noise), data.unit, guarantee)


def _data_of(request: LookArguments) -> Dataset:
    of_table = {
        name: getattr(request, name)
        for name in ("schema", "unit_id", "max_rows", "missing")
        if getattr(request, name) is not None
    }
    if not isinstance(request.data, (str, Dataset)):
        return from_frame(request.data, target=None, evaluation=False, **of_table)
    for name, value in of_table.items():
        raise _validate.ArgumentError(
            name, value, "applies only to a table; a Dataset already fixes it."
        )
    return load(request.data) if isinstance(request.data, str) else request.data
