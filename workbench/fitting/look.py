"""``look``: the columns of private records through noise, as a result of its own."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import jax

from workbench import _validate
from workbench.data import Dataset, from_frame, load
from workbench.data.counting import counting_of, noised
from workbench.data.look import Look
from workbench.data.schema import as_table
from workbench.data.undeclared import Table, by_type, is_complete
from workbench.fitting.settings import described, setting, takes
from workbench.fitting.single_release import (
    SingleRelease,
    charged,
    declared_number,
    delta_of,
    promised,
)
from workbench.fitting.undeclared import Undeclared, id_of_table
from workbench.inference.state import Purpose
from workbench.ledger.reservation import id_of

__all__ = ["look"]


@dataclass(frozen=True, eq=False, repr=False)
class LookArguments(SingleRelease):
    """The arguments of ``look``."""

    data: Any = field(
        metadata=described("a name, a ``Dataset``, or a table whose columns ``schema`` declares")
    )
    _: KW_ONLY
    schema: Any = setting(None, "of a table: the declaration of its columns")


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
    declared = _declaration(request)
    if declared is None or is_complete(declared):
        data = _data_of(request, declared)
        counting = counting_of(data)
        plan, guarantee = promised(request, data, counting.sensitivity, counting.size)
        noise = plan.mechanism.noise_multiplier
        counting.per_record(noise)  # refuses what noise has no room for, before anything is spent
        identity = functools.partial(id_of, data)
        with charged(data, guarantee, "look", identity, **request.of_ledger) as charge:
            values = noised(counting, data, noise, jax.random.fold_in(charge.key, Purpose.LOOK))
        deviation = counting.deviation(noise)
        taken = Look(counting, values, deviation, data.unit, schema=data.schema)
        return replace(taken, guarantee=guarantee, token=charge.token, spend=charge.spend)
    table = Table(as_table("data", request.data), declared, request.unit_id, request.max_rows)
    columns = Undeclared(table, functools.partial(_data_of, request), request.missing)
    data = columns.data
    units = declared_number(request, data.num_train)
    of_texts = columns.delta_of_texts(delta_of(request, data.num_train))
    sensitivity, size = columns.largest_sensitivity, columns.size(units)
    plan, guarantee = promised(request, data, sensitivity, size, of_texts=of_texts)
    noise = plan.mechanism.noise_multiplier
    columns.require_visible(request.epsilon, noise, of_texts, units)
    identity = functools.partial(id_of_table, data, table)
    with charged(data, guarantee, "look", identity, **request.of_ledger) as charge:
        taken = columns.take(noise, charge.key, of_texts)
    return replace(taken, guarantee=guarantee, token=charge.token, spend=charge.spend)


def _declaration(request: LookArguments) -> Any:
    """How the columns of a table are declared, by their types where the request says nothing; None
    of what is a ``Dataset``.
    """
    if request.schema is not None or isinstance(request.data, (str, Dataset)):
        return request.schema
    return by_type(as_table("data", request.data), request.unit_id)


def _data_of(request: LookArguments, schema: Any) -> Dataset:
    """The records. :param schema: the declaration of a table; None for a ``Dataset``."""
    options = {
        "schema": schema,
        "unit_id": request.unit_id,
        "max_rows": request.max_rows,
        "missing": request.missing,
        "name": request.name,
    }
    of_table = {name: value for name, value in options.items() if value is not None}
    if not isinstance(request.data, (str, Dataset)):
        return from_frame(request.data, target=None, evaluation=False, **of_table)
    for name, value in of_table.items():
        raise _validate.ArgumentError(
            name, value, "applies only to a table; a Dataset already fixes it."
        )
    return load(request.data) if isinstance(request.data, str) else request.data
