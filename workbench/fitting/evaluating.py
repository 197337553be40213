"""``evaluate``: scores of a finished fit on private records, and its difference from another fit,
through one release with noise.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import Dataset, Schema, load
from workbench.data.schema import as_table
from workbench.data.undeclared import Table, by_type
from workbench.fitting.scoring import NO_SCORES, fields_of
from workbench.fitting.settings import described, setting, takes
from workbench.fitting.single_release import SingleRelease, charged, promised
from workbench.fitting.undeclared import id_of_table
from workbench.inference.state import Purpose
from workbench.ledger.ledger import DatasetId
from workbench.ledger.reservation import id_of
from workbench.models import get
from workbench.models.by_record import has_shape, in_blocks
from workbench.models.estimates import covered_means
from workbench.models.outcomes import RANKS, Bin, Numbers, Outcome, Predicted, Released
from workbench.noise.chacha20 import child_key, stream
from workbench.privacy.guarantee import Guarantee
from workbench.results import FitResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EvaluateArguments", "Evaluation", "evaluate"]

_CUT = 4.0  # nats: of the difference of two fits for a record
_OF_DIFFERENCE = "log_likelihood_difference"
_OF_FITS = (
    "It covers the records that are scored. What scores tell about the records that a fit has read "
    "is covered by the guarantee of that fit, if it has one."
)
_DENSITY = Numbers(0.0, 1.0, has_errors=False)  # of which only densities are read


@dataclass(frozen=True, eq=False, repr=False)
class EvaluateArguments(SingleRelease):
    """The arguments of ``evaluate``."""

    result: FitResult = field(metadata=described("the fit that is evaluated"))
    data: Any = field(
        metadata=described(
            "private records that it did not read: a ``Dataset``, to use its evaluation records, "
            "or for a formula a table, to use all its rows"
        )
    )
    _: KW_ONLY
    against: FitResult | None = setting(
        None, "another fit, whose log-likelihood is taken off that of ``result``"
    )

    def __post_init__(self) -> None:
        """Check every value. :raises ArgumentError: naming the argument and its value."""
        super().__post_init__()
        for name, fit in (("result", self.result), ("against", self.against)):
            if not isinstance(fit, FitResult) and not (name == "against" and fit is None):
                raise _validate.ArgumentError(name, fit, "must be the result of a fit.")


@dataclass(frozen=True)
class Evaluation:
    """Scores of a fit on private records, through noise; made by ``wb.evaluate``.

    :param metrics: scores by name, in nats a record, in units of the target, or as shares.
    :param metric_intervals: their 90 % intervals, which count noise and sampling.
    :param calibration: bins of a check of calibration; none where the model predicts classes, times
        or a difference.
    :param guarantee: of the evaluation by itself.
    :param model: what was computed, as a ledger calls it.
    :param spend: its key in the ledger; "" if it has none.
    """

    metrics: Mapping[str, float]
    metric_intervals: Mapping[str, tuple[float, float]]
    calibration: tuple[Bin, ...]
    guarantee: Guarantee
    metrics_label: str = "covered"
    model: str = "evaluation"
    spend: str = ""

    def table(self) -> pd.DataFrame:
        """The scores and their intervals."""
        rows = [(value, *self.metric_intervals[name]) for name, value in self.metrics.items()]
        return pd.DataFrame(rows, index=list(self.metrics), columns=["value", "5 %", "95 %"])

    def plot(self) -> Figure:
        """Draw the calibration: the share of class 1 by predicted probability, or ranks of the
        target among draws of the model, which are even where it is right.

        :raises ArgumentError: if there is none.
        """
        from workbench.plots.checks import covered_check_figure

        if not self.calibration:
            raise _validate.ArgumentError(
                "calibration", (), "is of fits that predict yes or no, or a number."
            )
        return covered_check_figure(self.calibration, self.metrics_label)

    def __repr__(self) -> str:
        scores = [
            f"{name} {value:.4g} ({self.metric_intervals[name][0]:.4g} to "
            f"{self.metric_intervals[name][1]:.4g})"
            for name, value in self.metrics.items()
        ]
        return f"{', '.join(scores)}; covered, {self.guarantee.label()}"

    def _repr_html_(self) -> str:
        statement = html.escape(self.guarantee.statement())
        return f"{self.table().to_html(float_format='%.4g')}<p>{statement}</p>"


@dataclass(frozen=True)
class _Scores:
    """All scores of a fit, with a check of calibration where there is one.

    ``distance`` is how far a record moves the numbers at most, and ``draws`` how many get noise.
    """

    result: FitResult
    outcome: Outcome

    @property
    def distance(self) -> float:
        return math.sqrt(self.outcome.squared_distance + self.outcome.has_ranks)

    @property
    def draws(self) -> int:
        return self.outcome.draws + RANKS * self.outcome.has_ranks

    def answer(
        self,
        views: tuple[tuple[np.ndarray, ...], ...],
        rows: np.ndarray | None,
        key: jax.Array,
        noise_multiplier: float,
    ) -> Released:
        """The release.

        :param views: the records as each fit's model takes them. :param rows: as of ``Predicted``.
        """
        (records,), predictor, ranks = views, self.result.predictor, None
        if self.outcome.has_ranks:
            seeds = stream(child_key(key, Purpose.RANKS), 0, 2 * len(records[0]))
            ranks = predictor.ranks(records, np.asarray(seeds).reshape(-1, 2))
        said = in_blocks(jax.jit(predictor.by_record(self.outcome)), records)
        predicted = Predicted(records[-1], said[0], said[1], rows, ranks)
        return self.outcome.release(predicted, child_key(key, Purpose.SCORES), noise_multiplier)


@dataclass(frozen=True)
class _Difference:
    """The mean difference of two fits' log predictive densities of a record, cut to 4 nats."""

    first: FitResult
    second: FitResult
    distance = math.sqrt(3)
    draws = 3

    def answer(
        self,
        views: tuple[tuple[np.ndarray, ...], ...],
        rows: np.ndarray | None,
        key: jax.Array,
        noise_multiplier: float,
    ) -> Released:
        densities = [
            in_blocks(jax.jit(fit.predictor.by_record(_DENSITY)), records)[1]
            for fit, records in zip((self.first, self.second), views, strict=True)
        ]
        with np.errstate(invalid="ignore"):
            differences = np.subtract(*map(np.asarray, densities), dtype=np.float64)
        # of two fits that find a record impossible neither is better
        differences = np.nan_to_num(differences, nan=0.0)
        means = covered_means(
            differences[:, None] / _CUT,
            child_key(key, Purpose.SCORES),
            noise_multiplier=noise_multiplier,
            rows=rows,
        )
        difference = means.mean(0).moved(lambda mean: _CUT * mean)
        return Released({_OF_DIFFERENCE: difference}, {_OF_DIFFERENCE: float(means.sums[0])})


@takes(EvaluateArguments)
def evaluate(request: EvaluateArguments) -> Evaluation:
    """Score a finished fit on private records through noise, or compare two fits on them.

    One release with Gaussian noise is (epsilon, delta)-differentially private for the records that
    are scored, under add_or_remove_one. The ledger recognises a table by all its columns. Rows of a
    person count as their mean. ``against`` gives the difference of the two fits' log predictive
    densities alone, which is far more precise than two scores.

    >>> random = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"age": random.uniform(0, 100, 900)})
    >>> frame["ill"] = random.random(900) < frame["age"] / 100
    >>> declared = {"family": "bernoulli", "schema": {"age": (0, 100), "ill": bool}}
    >>> fit = wb.fit("ill ~ age", frame[:600], epsilon=2.0, **declared)
    >>> evaluation = wb.evaluate(fit, frame[600:], epsilon=1.0, name="the second's")
    >>> sorted(evaluation.metrics), evaluation.guarantee.epsilon
    (['accuracy', 'auc', 'log_likelihood'], 1.0)

    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow it.
    """
    fits = [fit for fit in (request.result, request.against) if fit is not None]
    data, identity = _records(request, fits)
    in_evaluation = bool(data.num_evaluation)
    viewed = [fit.predictor.model.view(data) for fit in fits]
    views = []
    for fit, view in zip(fits, viewed, strict=True):
        if view.units is not None and view.units.are_padded:
            raise _validate.ArgumentError(
                "data", data.name, f"has all rows of a {data.unit} in a record of {fit.model}."
            )
        arrays = data if in_evaluation else tuple(map(np.asarray, view.train))
        views.append(fit.predictor.all_arrays(arrays))
    question = _question(request, viewed[0], views[0])
    counts = None
    if data.units is not None:
        counts = data.units.evaluation_counts if in_evaluation else data.units.counts
        counts = np.asarray(counts)[np.asarray(counts) > 0]
    plan, guarantee = promised(
        request,
        data,
        question.distance,
        question.draws,
        size=len(views[0][0]) if counts is None else len(counts),
        released="scores",
    )
    secret = all(fit.guarantee.secure_randomness for fit in fits)
    guarantee = replace(guarantee, caveats=(_OF_FITS, *guarantee.caveats))
    guarantee = guarantee.made_of("a fit that is scored", is_secret=secret)
    noise = plan.mechanism.noise_multiplier
    with charged(data, guarantee, "evaluation", identity, **request.of_ledger) as charge:
        released = question.answer(tuple(views), counts, charge.key, noise)
    return Evaluation(
        guarantee=guarantee,
        calibration=released.calibration,
        spend=charge.spend,
        **fields_of(released.scores),
    )


def _question(
    request: EvaluateArguments, viewed: Dataset, records: tuple[np.ndarray, ...]
) -> _Scores | _Difference:
    """:param viewed: the data set as the model of ``result`` sees it. :param records: of it.

    :raises ArgumentError: naming ``result`` or ``against``, for a model without such scores."""
    for name, fit in (("result", request.result), ("against", request.against)):
        if request.against is not None and fit is not None and fit.predictor.split.uses_base_noise:
            raise _validate.ArgumentError(
                name, fit.model, "has latents of each record, whose densities are integrals."
            )
    if request.against is not None:
        return _Difference(request.result, request.against)
    predictor = request.result.predictor
    outcome = predictor.model.outcome(viewed)
    if (
        outcome is None
        or (outcome.uses_densities and predictor.split.uses_base_noise)
        or not has_shape(outcome, predictor.by_record(outcome), records)
    ):
        raise _validate.ArgumentError("result", request.result.model, NO_SCORES)
    return _Scores(request.result, outcome)


def _records(
    request: EvaluateArguments, fits: list[FitResult]
) -> tuple[Dataset, Callable[[], DatasetId]]:
    """The records that are scored, and how a ledger recognises them: a table by all its columns,
    whichever a formula uses.

    :raises ArgumentError: naming ``data`` or an argument that applies only to a table.
    """
    data = load(request.data) if isinstance(request.data, str) else request.data
    options = {
        name: getattr(request, name)
        for name in ("unit_id", "max_rows", "missing", "name")
        if getattr(request, name) is not None
    }
    if isinstance(data, Dataset):
        for name, value in options.items():
            raise _validate.ArgumentError(
                name, value, "applies only to a table; a Dataset already fixes it."
            )
        if data.is_public or (data.num_evaluation and data.evaluation_is_public):
            raise _validate.ArgumentError(
                "data", data.name, "is public: result.score(data) has its exact scores, free."
            )
        if not data.num_evaluation:
            raise _validate.ArgumentError(
                "data",
                data.name,
                "has no evaluation records, and scores of records that a fit read flatter it.",
                remedy="Hold some out, or give new ones: from_frame(..., evaluation=table).",
            )
        return data, lambda: id_of(data)
    table = as_table("data", data)
    columns: Any = [_declared(fit) for fit in fits]
    schema = dict(columns[0].schema.columns)
    for second in columns[1:]:
        _require_alike(request, columns[0], second)
        schema |= {
            name: column for name, column in second.schema.columns.items() if name not in schema
        }
    try:
        made: Dataset = replace(columns[0], schema=Schema(schema)).dataset(
            table, evaluation_fraction=0.0, **options
        )
    except _validate.ArgumentError as error:
        if error.argument not in ("frame", "schema", "evaluation_fraction"):
            raise
        words = error.expectation
        if error.argument == "evaluation_fraction":
            words = "has too few records to be scored."
        elif error.argument == "schema":
            words = f"has no column {error.value!r}, which the fit uses."
        elif isinstance(error.value, str) and error.value != "DataFrame":
            words = f"{error.value!r} {words}"
        raise _validate.ArgumentError("data", "DataFrame", words) from None
    described_table = Table(
        table, by_type(table, request.unit_id), request.unit_id, request.max_rows
    )
    return made, lambda: id_of_table(made, described_table)


def _require_alike(request: EvaluateArguments, first: Any, second: Any) -> None:
    """:raises ArgumentError: naming ``against``, if it explains another response, or a value would
    be cut for one of the fits alone.
    """
    assert request.against is not None
    formula = request.against.model_options["formula"]
    if first.response.name != second.response.name:
        raise _validate.ArgumentError(
            "against", formula, f"explains another response than {first.response.name!r}."
        )
    bounds = first.schema.bounds
    for name, ends in second.schema.bounds.items():
        if bounds.get(name, ends) != ends:
            raise _validate.ArgumentError(
                "against",
                formula,
                f"was fitted with {name} in {ends}, and the other fit with {bounds[name]}, so the "
                "two are not of the same values: declare the same bounds for both.",
            )


def _declared(fit: FitResult) -> Any:
    """The columns of a formula as they were declared, before their scales were learned.

    :raises ArgumentError: naming ``data``, for a fit of something else.
    """
    columns = getattr(fit.predictor.model, "columns", None)
    if columns is None:
        raise _validate.ArgumentError(
            "data",
            "DataFrame",
            "is for fits of a formula; for other models make a Dataset of it.",
        )
    declared: Any = get(fit.model, **fit.model_options)
    return declared.columns
