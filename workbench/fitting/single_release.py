"""One release of counts or sums from all records: its noise, its promise and its ledger row."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax

from workbench.data import Dataset
from workbench.fitting.groups import of
from workbench.fitting.settings import LedgerSettings, Noted, about, check_all, described
from workbench.ledger.ledger import DatasetId
from workbench.ledger.reservation import Reservation, ledger_for
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan, PrivacySettings, default_delta, make_plan
from workbench.privacy.steps import LAWS

__all__ = ["SingleRelease", "charged", "declared_number", "delta_of", "promised"]


class Charged(NamedTuple):
    """A release that the ledger counts.

    :param key: of its noise. :param token: of looks and fits that count together with it.
    :param spend: its key in the ledger; "" without one.
    """

    key: jax.Array
    token: str
    spend: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SingleRelease(LedgerSettings, Noted):
    """What a user asks of one release: the arguments that ``look`` and ``evaluate`` have."""

    epsilon: float = field(
        metadata=described(
            "privacy loss of the release", about("epsilon").check, changes_guarantee=True
        )
    )
    delta: float | None = of("delta")
    num_records: int | None = of("num_records")
    seed: int | None = of("seed")
    unit_id: Any = of("unit_id")
    max_rows: int | None = of("max_rows")
    missing: Any = of("missing")
    name: str | None = of("name")

    def __post_init__(self) -> None:
        """Check every value. :raises ArgumentError: naming the argument and its value."""
        check_all(self)

    @property
    def of_ledger(self) -> dict[str, Any]:
        """What ``charged`` takes."""
        return {name: getattr(self, name) for name in ("seed", "ledger", "over_cap")}


def declared_number(request: SingleRelease, size: int) -> int:
    """The public number of records. :param size: how many there are."""
    return LAWS["poisson"].public_size(request.num_records or size, size)


def delta_of(request: SingleRelease, size: int) -> float:
    """Delta as it was asked for, else the default of the public number of records.

    :param size: how many there are.
    """
    if request.delta is not None:
        return request.delta
    return default_delta(declared_number(request, size))


def promised(
    request: SingleRelease,
    data: Dataset,
    sensitivity: float,
    dimension: int,
    *,
    size: int | None = None,
    of_texts: float = 0.0,
    released: str = "counts",
) -> tuple[PrivacyPlan, Guarantee]:
    """The plan of a release, and its guarantee, under add_or_remove_one.

    :param sensitivity: how far a record moves the numbers. :param dimension: how many there are at
        most, public. :param size: of records that are read; those of training by default.
    :param of_texts: part of delta for texts of one unit that pass their threshold.
    :param released: as of ``Guarantee``.
    """
    number = data.num_train if size is None else size
    settings = PrivacySettings(
        epsilon=request.epsilon,
        delta=delta_of(request, number),
        iterations=1,
        sampling_rate=1.0,
        sampler="poisson",
        clip=sensitivity,
        num_records=declared_number(request, number),
        seed=request.seed,
    )
    plan = make_plan(settings, number, delta_of_texts=of_texts)
    plan = plan.for_noise_in(dimension).confirmed()
    guarantee = plan.guarantee(
        steps_taken=1,
        unit=data.unit,
        dimension=dimension,
        caveats=(),
        max_rows=None if data.units is None else data.units.max_rows,
        covers_deletion=True,  # numbers do not depend on the places of records
        in_steps=False,
    )
    return plan, replace(guarantee, released=released)


@contextlib.contextmanager
def charged(
    data: Dataset,
    guarantee: Guarantee,
    name: str,
    dataset_id: Callable[[], DatasetId],
    token: str = "",
    *,
    seed: int | None,
    ledger: Any,
    over_cap: str | None,
) -> Iterator[Charged]:
    """A release that the ledger counts from here on.

    :param name: of what is released, in the ledger. :param token: of a look with which it counts
        together; a new one by default. The others are as of a fit.
    """
    token = token or uuid.uuid4().hex
    reservation = Reservation(
        ledger_for(data, ledger),
        dataset_id,
        lambda: [guarantee],
        model=name,
        plan=lambda: uuid.uuid4().hex,
        seed=seed,
        over_cap=over_cap,
    )
    reservation.count_with(token)
    reservation.reserve()
    reservation.mark()  # from here on it counts, whatever becomes of this process
    key = new_key() if seed is None else key_from_seed(seed)
    yield Charged(key, token, next(iter(reservation.keys), ""))
    reservation.settle(None)
