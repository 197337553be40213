"""The columns of a fit's table: how a look of the run learns from them, and what may be said about
them before.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax

from workbench import _validate
from workbench.data import Dataset
from workbench.data import load as load_data
from workbench.data.counting import Counting, counting_of
from workbench.data.look import Scales
from workbench.fitting.learned_scales import looks_by_default, require_scalable, share_for, take
from workbench.fitting.products import (
    most_products,
    parts_of,
    share_with_products,
    with_products,
)
from workbench.ledger.fingerprint import fingerprint
from workbench.ledger.ledger import DatasetId
from workbench.ledger.reservation import id_of
from workbench.models import Model
from workbench.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from workbench.fitting.spec import FitSpec

__all__ = ["Columns", "Declared", "Price", "columns_of", "data_named"]

Budget = tuple[int, float, float, str]  # N, epsilon, delta, the neighbouring relation


class Price(NamedTuple):
    """What a run pays for columns that are declared by their type alone.

    :param columns: their names. :param share: of the budget, for the look that learns them.
    :param share_if_declared: the default share of a look, if these columns were declared too.
    """

    columns: tuple[str, ...]
    share: float
    share_if_declared: float


class Columns(Protocol):
    """How a fit's columns are declared, and what a look of the run learns about them."""

    @property
    def source(self) -> Dataset:
        """The data set before anything is learned."""

    @property
    def dataset_id(self) -> DatasetId:
        """How ledgers recognise the records."""

    @property
    def fingerprint(self) -> str:
        """How checkpoints recognise the records."""

    @property
    def most_coordinates(self) -> int:
        """How many times more coordinates a model has after a look, at most."""

    def share(
        self, asked: float | None, model: Model, is_alone: bool, budget: Budget
    ) -> float | None:
        """The share of the budget for a look of the run.

        :param asked: None for the default. :param is_alone: whether one process takes the steps;
            several do not look yet.
        """

    def num_counts(self, spec: FitSpec) -> int:
        """How many counts a look of the run releases at most; 0 for no look."""

    def delta_of_texts(self, delta: float) -> float:
        """The part of delta for texts of one unit that a look may show."""

    def require_visible(self, spec: FitSpec, plan: PrivacyPlan) -> None:
        """Refuse a look that would show nothing. :raises ArgumentError: naming ``epsilon``."""

    def looked(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> FitSpec:
        """The fit with what a look has learned. :param key: of the run."""

    def learned(self, spec: FitSpec, scales: Scales, schema: Mapping[str, Any]) -> FitSpec:
        """The fit with what an earlier look has learned."""

    def declarations(self, spec: FitSpec) -> list[str]:
        """What is public about the data, a sentence each. :param spec: of the end of a run, or
        before it.
        """

    def price(self, spec: FitSpec) -> Price | None:
        """What a run pays for columns that are declared by their type alone; None for no such
        column.
        """


@dataclass(frozen=True, eq=False, repr=False)
class Declared:
    """Columns with declared ranges and levels; a look learns scales within them."""

    source: Dataset
    most_coordinates = 1

    @functools.cached_property
    def dataset_id(self) -> DatasetId:
        return id_of(self.source)

    @functools.cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.source)

    def _counting(self, model: Model) -> Counting:
        return counting_of(self.source, model.columns_used)

    def share(
        self, asked: float | None, model: Model, is_alone: bool, budget: Budget
    ) -> float | None:
        if asked is not None or not (is_alone and looks_by_default(model, self.source)):
            return asked
        return share_with_products(share_for(self._counting(model), *budget), model, *budget)

    def num_counts(self, spec: FitSpec) -> int:
        """:raises ArgumentError: naming ``look``, where nothing can be learned."""
        if not spec.privacy.look:
            return 0
        counting = self._counting(spec.model)
        require_scalable(counting, spec.model, self.source, spec.processes.count)
        return counting.size + most_products(spec.model)

    def delta_of_texts(self, delta: float) -> float:
        return 0.0

    def require_visible(self, spec: FitSpec, plan: PrivacyPlan) -> None:
        pass  # ``share`` is 0 then

    def looked(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> FitSpec:
        assert plan.look is not None
        counting = self._counting(spec.model)
        of_counts, of_products = parts_of(spec, plan.look.noise_multiplier)
        fit = spec.with_scales(take(counting, spec.model, self.source, of_counts, key))
        return with_products(fit, of_products, key, spec.with_scales)

    def learned(self, spec: FitSpec, scales: Scales, schema: Mapping[str, Any]) -> FitSpec:
        return spec.with_scales(scales)

    def declarations(self, spec: FitSpec) -> list[str]:
        return (spec.declared or spec).data.declarations()

    def price(self, spec: FitSpec) -> Price | None:
        return None


def columns_of(data: Any) -> Columns:
    """The columns of a data set, of its name, or those that were given."""
    is_so = callable(getattr(type(data), "looked", None))  # no property is computed for that
    return data if is_so else Declared(data_named(data))


def data_named(data: str | Dataset) -> Dataset:
    """The data set of a name, or the one that was given. :raises ArgumentError: naming ``data``."""
    source = load_data(data) if isinstance(data, str) else data
    if not isinstance(source, Dataset):
        raise _validate.ArgumentError(
            "data", type(data).__name__, "must be a name or a workbench.data.Dataset."
        )
    return source
