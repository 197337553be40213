"""A fit that chooses the marginals of its table: a look of the run scores pairs of columns, and the
release is of the marginals that follow.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench._validate import ArgumentError
from workbench.data.counting import deviation, with_noise
from workbench.data.dependence import Dependence, PairScores
from workbench.data.look import Scales
from workbench.data.preprocessing import listed
from workbench.fitting.columns import Budget, Columns, Declared
from workbench.inference.state import Purpose
from workbench.models import Model
from workbench.models.chosen_marginals import marginals_of
from workbench.models.joint_cells import codes_of
from workbench.models.model import CellTable
from workbench.posterior.joint_cells import LARGEST
from workbench.privacy.accounting import round_up
from workbench.privacy.calibration import gaussian_mu
from workbench.privacy.plan import PrivacyPlan
from workbench.privacy.steps import SENSITIVITY

if TYPE_CHECKING:
    from workbench.fitting.spec import FitSpec

__all__ = ["OF_COLUMNS", "ChosenMarginals", "for_model", "share_for"]

# standard deviation of a score's noise, as a share of the records, that a look is to have by
# default; the least and the largest share of the budget for that
_NOISE = 0.02
_LEAST, _LARGEST = 0.05, 0.33
OF_COLUMNS = 0.25  # of that, for the counts of the columns
_ROWS = 100_000  # that are coded at once
_MOST_COLUMNS = 40  # of which the choice takes half a minute at most
_NAMED = 5  # of the pairs in a caution

_CHOSEN = (
    "The marginals were chosen from noised scores of pairs of columns, within the guarantee and "
    "for {percent:.2g} % of its budget: {marginals}."
)
_HIDDEN = (
    "{count} of {all} pairs of columns could not be told from independent through the noise "
    "({pairs}). In posterior and twins they are independent, or depend on each other only through "
    "other columns, whatever they do in the records: a dependence in up to about {percent:.0f} % "
    "of the records may have been missed."
)
_INDIRECT = (
    "{count} of {all} pairs of columns depend on each other but are in no marginal together "
    "({pairs}). In posterior and twins they do so only through other columns, or not at all, which "
    "may be less or otherwise than in the records. For these pairs name the marginals."
)


def for_model(columns: Columns, model: Model) -> Columns:
    """How a fit of ``model`` learns from its columns."""
    is_to_choose = isinstance(model.table, CellTable) and model.table.with_marginals
    return ChosenMarginals(columns.source, model) if is_to_choose else columns


def share_for(
    scores: PairScores, num_records: int, epsilon: float, delta: float, relation: str
) -> float:
    """The default share of the budget for the look, from public facts."""
    alone = SENSITIVITY[relation] / gaussian_mu(epsilon, delta) * scores.of_pairs.sensitivity
    needed = (alone / (_NOISE * num_records)) ** 2 / (1 - OF_COLUMNS)
    return float(min(max(needed, _LEAST), _LARGEST))


@dataclass(frozen=True, eq=False, repr=False)
class ChosenMarginals(Declared):
    """The columns of a table whose marginals a look of the run chooses.

    :param model: without marginals.
    """

    model: Model

    @functools.cached_property
    def _levels(self) -> Sequence[Mapping[str, Any]]:
        levels: Sequence[Mapping[str, Any]] = self.model.constants(self.source)["levels"]
        return levels

    @functools.cached_property
    def _scores(self) -> PairScores:
        return PairScores.of([len(column["labels"]) for column in self._levels], LARGEST)

    @property
    def most_coordinates(self) -> int:  # type: ignore[override]
        return math.ceil(LARGEST / sum(self._scores.levels))

    def share(
        self, asked: float | None, model: Model, is_alone: bool, budget: Budget
    ) -> float | None:
        """:raises ArgumentError: naming ``marginals``, for no look, or where none can be chosen."""
        if len(self._levels) == 1:
            return 0.0
        if not self._scores.pairs or len(self._levels) > _MOST_COLUMNS:
            raise ArgumentError(
                "marginals",
                None,
                f"cannot be chosen: each pair of columns has more than {LARGEST} cells, or there "
                f"are more than {_MOST_COLUMNS} columns.",
                remedy="Name them, or leave columns out, or give fewer bins.",
            )
        if asked == 0 or not is_alone:
            raise ArgumentError(
                "marginals",
                None,
                "are chosen by a look of the run, and there is none: look=0, a look that was taken "
                "before, a sweep, several owners or several processes.",
                remedy="Name them, as in wb.models.mixed_table([('sex', 'ill'), ('age', 'ill')]).",
            )
        return share_for(self._scores, *budget) if asked is None else asked

    def num_counts(self, spec: FitSpec) -> int:
        counted = self._scores.of_columns.size + self._scores.of_pairs.size
        return counted if spec.privacy.look else 0

    def require_visible(self, spec: FitSpec, plan: PrivacyPlan) -> None:
        """:raises ArgumentError: naming ``look``, where noise is more than whole numbers hold."""
        if plan.look is not None:
            self._spacings(plan.look.noise_multiplier)

    def _spacings(self, noise_multiplier: float) -> tuple[int, int]:
        """How many a record adds to a count of a column and to a score at most, for two releases
        that are one of ``noise_multiplier`` together.
        """
        of_columns = round_up(noise_multiplier / math.sqrt(OF_COLUMNS), 4)
        of_pairs = round_up(noise_multiplier / math.sqrt(1 - OF_COLUMNS), 4)
        scores = self._scores
        return scores.of_columns.per_record(of_columns), scores.of_pairs.per_record(of_pairs)

    def looked(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> FitSpec:
        assert plan.look is not None
        scores, codes = self._scores, self._codes()
        of_columns, of_pairs = self._spacings(plan.look.noise_multiplier)
        child = jax.random.fold_in(key, Purpose.LOOK)
        counts = with_noise(of_columns * scores.counts(codes), of_columns, child)
        margins = scores.margins(counts, deviation(of_columns))
        distances = scores.scores(codes, scores.references(margins, of_pairs), of_pairs)
        child = jax.random.fold_in(key, Purpose.PAIRS)
        noised = with_noise(distances, of_pairs, child)
        dependence = scores.dependence(noised, deviation(of_pairs), margins)
        order = np.argsort(-dependence.excess)
        clear = [scores.pairs[index] for index in order if dependence.is_clear[index]]
        unclear = [scores.pairs[index] for index in order if not dependence.is_clear[index]]
        sigma = plan.mechanism.noise_multiplier
        chosen = marginals_of(scores.levels, clear, unclear, margins.total, sigma)
        return self.learned(spec, {}, self._facts(chosen, clear, dependence, spec.privacy.look))

    def _codes(self) -> np.ndarray:
        """The level in each column of all training records, int[N, D]."""
        x = self.source.train[self.source.arrays.index("x")]
        starts = range(0, len(x), _ROWS)
        return np.concatenate(
            [codes_of(self._levels, jnp.asarray(x[start : start + _ROWS])) for start in starts]
        )

    def _facts(
        self,
        chosen: list[list[int]],
        clear: list[tuple[int, int]],
        dependence: Dependence,
        share: float,
    ) -> dict[str, Any]:
        """What was learned, ready for JSON, and sentences on what the marginals lack.

        :param clear: pairs that depend on each other. :param share: of the budget.
        """
        names = [column["name"] for column in self._levels]
        missed = dict(zip(self._scores.pairs, dependence.missed, strict=True))
        every = list(itertools.combinations(range(len(names)), 2))
        unclear = [pair for pair in every if pair not in clear]
        apart = [pair for pair in every if not any({*pair} <= {*clique} for clique in chosen)]
        hidden = [pair for pair in unclear if pair in apart]
        indirect = [pair for pair in clear if pair in apart]

        def words(groups: Sequence[Sequence[int]]) -> list[str]:
            return [" x ".join(names[column] for column in group) for group in groups]

        chosen_words = ", ".join(words(chosen))
        declarations = [_CHOSEN.format(percent=100 * share, marginals=chosen_words)]
        cautions = []
        if unclear:
            declarations.append(f"Not told from independent: {', '.join(words(unclear))}.")
        if hidden:
            percent = 100 * max(missed.get(pair, 1.0) for pair in hidden)
            few = listed(words(hidden), _NAMED)
            cautions.append(
                _HIDDEN.format(count=len(hidden), all=len(every), pairs=few, percent=percent)
            )
        if indirect:
            few = listed(words(indirect), _NAMED)
            cautions.append(_INDIRECT.format(count=len(indirect), all=len(every), pairs=few))
        marginals = [[names[column] for column in group] for group in chosen]
        return {"marginals": marginals, "cautions": cautions, "declarations": declarations}

    def learned(self, spec: FitSpec, scales: Scales, schema: Mapping[str, Any]) -> FitSpec:
        """As of ``Columns``. :param schema: what ``_facts`` wrote."""
        assert isinstance(self.model.table, CellTable)
        assert self.model.table.with_marginals is not None
        model = self.model.table.with_marginals(schema["marginals"])
        model = dataclasses.replace(model, cautions=tuple(schema["cautions"]))
        return spec.declared_as(model, self.source, schema, {})

    def declarations(self, spec: FitSpec) -> list[str]:
        return [*super().declarations(spec), *spec.learned.get("declarations", [])]
