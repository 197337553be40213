"""``Model``: a NumPyro model with its guide, predictions, scores, options and pictures."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpyro.infer.autoguide import AutoGuide, AutoNormal

from workbench import _validate
from workbench.models.outcomes import Classes, Numbers, Outcome, YesOrNo
from workbench.models.relations import records_of, relations_of
from workbench.models.scoring import binary_scores

if TYPE_CHECKING:
    import pandas as pd

    from workbench.data import Dataset
    from workbench.data.look import Standard

__all__ = ["LinearPredictor", "Model", "NormalResiduals", "OwnUnits", "inputs_of", "parameters_of"]


def _default_scores(target: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Scores of probabilities for a target of 0 and 1; none for other targets, for which no score
    is declared.
    """
    return binary_scores(target, predictions) if np.isin(target, (0, 1)).all() else {}


def _nothing(dataset: Dataset) -> dict[str, Any]:
    return {}


class NormalResiduals(NamedTuple):
    """Declares that a target is normal around its linear predictor of features in [-1, 1]; a fit
    from sums checks it.

    With the target's bounds, of middle m and half width r, its mean is m + r (features . weights +
    intercept), and its standard deviation r times that of the site.

    >>> wb.models.NormalResiduals("sigma", (0, 200)).bounds
    (0, 200)

    :param scale: the site of the residuals' standard deviation.
    :param bounds: (low, high) of the target, declared public.
    :param squares: the largest sum of squares of a record's features; by default the number of the
        table's columns, of which each adds at most 1, however many features it becomes.
    """

    scale: str
    bounds: tuple[float, float] = (-1.0, 1.0)
    squares: float | None = None


class OwnUnits(NamedTuple):
    """A linear predictor in the columns' own units, where more than each column's scale is to be
    taken back.

    >>> schema = {"ill": bool, "age": (0, 120)}
    >>> model = wb.models.formula("ill ~ age", family="bernoulli", schema=schema)
    >>> model.linear.own_units.matrix.round(4).tolist()
    [[1.0, -1.0], [0.0, 0.0167]]

    :param matrix: of which the product with the weights, the intercept's first if there is one, has
        them in own units.
    :param contrasts: what each of the products compares, in words.
    :param shift: to be added to the products, a number for all or one for each.
    """

    matrix: np.ndarray
    contrasts: tuple[str, ...]
    shift: float | np.ndarray = 0.0


class LinearPredictor(NamedTuple):
    """A regression's features . weights + intercept.

    >>> wb.models.get("logistic").linear.ratio
    'odds ratio'

    :param weights: the site of one weight for each feature.
    :param intercept: its site; "" where there is none.
    :param ratio: what exp of a weight is, such as "odds ratio" or "rate ratio"; "" for nothing that
        has a name.
    :param own_units: how weights become those in the columns' own units; by default as the schema
        of the data set says.
    :param residuals: where the target is normal around the linear predictor; such a model can be
        fitted by ``estimator="statistics"``.
    """

    weights: str
    intercept: str = ""
    ratio: str = ""
    own_units: OwnUnits | None = None
    residuals: NormalResiduals | None = None


class NormalTable(NamedTuple):
    """Declares that records are normal in all their features, which are scaled to [-1, 1].

    :param mean: the site of the mean. :param root: that of the entries of the covariance's Cholesky
        factor, row by row.
    """

    mean: str
    root: str


class CellTable(NamedTuple):
    """Declares that records are those of a decomposable model of levels, with the keywords "levels"
    and "cliques" of ``mixed_table``.

    :param site: of the probabilities of all cells. :param with_marginals: the model, given names of
        columns in marginals, where the fit is to choose these; else None.
    """

    site: str
    with_marginals: Callable[[list[list[str]]], Model] | None = None


@dataclass(frozen=True)
class Model:
    """A NumPyro model with its guide, predictions, scores, options and pictures. The first three
    fields are enough.

    >>> model = wb.models.get("logistic")
    >>> model.name, model.arrays, list(model.pictures)
    ('logistic', ('x', 'y'), ['coefficients'])

    :param name: short name in the registry.
    :param summary: one sentence for lists of models.
    :param model: NumPyro model; record arrays first, then ``num_records`` and the options by
        keyword.
    :param guide: NumPyro guide with the same arguments, an automatic guide, or a class of automatic
        guides, which is called with ``model``. ``AutoNormal`` by default.
    :param predict: ``predict(values, *record arrays but the last) -> predictions``. ``values`` is
        ``{name: array}`` of the global latents and deterministic sites of one posterior draw, and
        of the fit's parameters. It returns one prediction per record (first axis: records), such as
        the probability of class 1. A model of a single array gets that array. Without ``predict``,
        ELBO and log-likelihood are the only metrics.
    :param score: ``score(last record array, predictions) -> {metric: value}``, with predictions
        averaged over draws. By default AUC and log-likelihood if the target is 0 and 1, otherwise
        nothing.
    :param check: ``check(dataset)`` raises ``ArgumentError`` if the model cannot fit the data set.
        By default ``model`` must take the data set's number of record arrays.
    :param coordinates: ``coordinates(dataset) -> {site: labels}`` names the entries of
        vector-valued sites, which are numbered by default. ``{site: (labels, labels)}`` names the
        rows and columns of a matrix.
    :param options: keyword arguments of model and guide with their values, such as prior scales.
    :param reference: where the model is described.
    :param arrays: names of the data set's arrays that the model takes, in order
        (``Dataset.arrays``); all by default.
    :param constants: ``constants(dataset) -> {keyword: value}``: public facts about the data set
        that model and guide take by keyword, such as group features.
    :param defaults: settings of ``workbench.fit`` that suit the model, such as ``{"clip": 0.3}``,
        or ``defaults(dataset, num_records, epsilon)`` that returns them from public facts about the
        data set (not from its exact size: ``num_records`` is the declared one). The caller's
        settings have priority. ``epochs`` may be given instead of iterations; ``largest_clip``,
        which an adapted C never exceeds, if the largest norm of a record's gradient is known; and
        ``adapts_clip``, True where the run is to adapt C unless the caller gives one.
    :param pictures: ``{name: picture(result, dataset) -> Figure}``, drawn by ``result.plot(name)``.
        ``dataset`` has records to draw beside the release, or is None. A screen shows the first
        picture.
    :param sort: ``sort(draws, params) -> draws`` puts ``{site: array[draws, ...]}`` into an order
        that people expect, such as components by weight, or replaces them by readable values, such
        as sizes of a network's layers. Only summaries and pictures use it.
    :param linear: the sites of a regression's linear predictor, for coefficients in the columns'
        own units.
    :param table: the sites of a distribution of whole records, which is fitted from one release of
        moments (``normal_table``) or marginals (``mixed_table``).
    :param cautions: sentences about what is allowed but unwise, from public facts; shown with the
        plan and the result.
    :param is_for_scaled: True where priors and first values are for columns that fill [-1, 1], so
        that a fit of a private table learns scales first unless its columns were scaled before.
    :raises ArgumentError: if ``model`` or another of the functions is not callable.
    """

    name: str
    summary: str
    model: Callable
    guide: Callable | type[AutoGuide] | None = None
    predict: Callable | None = None
    score: Callable[..., dict[str, float]] = _default_scores
    check: Callable[[Any], None] = None  # type: ignore[assignment]  # filled in below: it depends on ``model``
    coordinates: Callable[[Any], dict[str, Any]] = _nothing
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
    arrays: tuple[str, ...] | None = None
    constants: Callable[[Any], dict[str, Any]] = _nothing
    defaults: Mapping[str, Any] | Callable[[Any, int, float], Mapping[str, Any]] = field(
        default_factory=dict
    )
    pictures: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    sort: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], dict[str, np.ndarray]] | None = (
        None
    )
    linear: LinearPredictor | None = None
    table: NormalTable | CellTable | None = None
    cautions: tuple[str, ...] = ()
    is_for_scaled: bool = False

    def __post_init__(self) -> None:
        if self.check is None:
            object.__setattr__(self, "check", functools.partial(_check_record_arrays, self.model))
        if self.linear is not None and not isinstance(self.linear, LinearPredictor):
            raise _validate.ArgumentError(
                "linear", self.linear, "must be a workbench.models.LinearPredictor or None."
            )
        for attribute, optional in _FUNCTIONS.items():
            value = getattr(self, attribute)
            if not callable(value) and not (optional and value is None):
                raise _validate.ArgumentError(
                    attribute, value, f"must be a function{' or None' if optional else ''}."
                )

    def view(self, dataset: Dataset) -> Any:
        """``dataset`` with the arrays that the model takes, checked.

        :raises ArgumentError: naming ``data``, if the model cannot fit it.
        """
        selected = dataset if self.arrays is None else dataset.select(self.arrays)
        self.check(selected)
        return selected

    @property
    def has_own_arrays(self) -> bool:
        """Whether the model makes its own arrays of a table's columns, which the data set's schema
        cannot decode.
        """
        return False

    @property
    def learns_scales(self) -> bool:
        """Whether a fit looks at the columns first by default."""
        return self.is_for_scaled

    @property
    def learns_products(self) -> bool:
        """Whether a look of the run also takes products of the design's columns, which tell how
        sure weights of columns that go together are. Public: whatever the records are.
        """
        return False

    @property
    def standard(self) -> Standard | None:
        """How the columns of a design, the array x, become standard ones; None without one."""
        return None

    @property
    def columns_used(self) -> frozenset[str] | None:
        """Names of the columns of a table that it takes, the target among them; None for all."""
        return None

    @property
    def columns_scaled(self) -> frozenset[str] | None:
        """Columns of numbers whose bounds only scale them; None for all."""
        return None

    @property
    def responses(self) -> tuple[str, ...]:
        """Columns that are explained, whose scale may be learned too."""
        return ()

    def with_scales(self, scales: Mapping[str, Any]) -> Model:
        """The same model for columns whose scales were learned.

        :param scales: as ``data.look.Scales``.
        """
        return self

    def doubts(self, draws: Mapping[str, np.ndarray]) -> list[str]:
        """Sentences about what makes a posterior doubtful, beside ``cautions``.

        :param draws: of its sites.
        """
        return []

    def beside_target(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of a synthetic table that follow from drawn targets, before these are cut to
        their bounds.
        """
        return {}

    @property
    def target_words(self) -> str:
        """What is modelled, such as "probability of ill = yes"; "" where only a data set
        says it.
        """
        return ""

    def outcome(self, dataset: Dataset) -> Outcome | None:
        """What is predicted of a record, for scores through noise; None where no such scores are
        known.

        :param dataset: as of ``view``.
        """
        if dataset.arrays[-1] != "y":
            return None
        if dataset.classes:
            return YesOrNo() if len(dataset.classes) == 2 else Classes(len(dataset.classes))
        if dataset.target_bounds is None:
            return None
        return Numbers(*dataset.target_bounds, has_errors=self.predict is not None)

    def arrays_of(self, frame: pd.DataFrame) -> dict[str, np.ndarray] | None:
        """The arrays that the model predicts from, of a table in its own units; None unless it
        ``has_own_arrays``.

        :raises ArgumentError: naming a column, never a cell.
        """
        return None

    def advice(self, dataset: Dataset, num_records: int, epsilon: float) -> Mapping[str, Any]:
        """``defaults`` for this data set of publicly declared size."""
        return (
            self.defaults(dataset, num_records, epsilon)
            if callable(self.defaults)
            else self.defaults
        )

    def diagram(self, dataset: Dataset) -> Any:
        """The plate diagram as a Figure, which a notebook displays; ``get_label()`` describes it in
        words.

        It uses no record of ``dataset`` and does not show their number: the record plate is
        labelled "records". Plates of a public size, such as groups, show their size.

        :raises ArgumentError: naming ``data``, if the model cannot fit it.
        """
        from workbench.plots import plate_figure

        selected = self.view(dataset)
        relations, labels = relations_of(self, records_of(selected), self.constants(selected))
        return plate_figure(relations, self.name, labels=labels)

    def new_guide(self) -> Callable:
        """A guide for one fit. An automatic guide keeps the shapes of its first data set, so each
        fit gets a new one.
        """
        automatic: Callable = AutoNormal
        if isinstance(self.guide, type):
            automatic = self.guide
        elif self.guide is not None:
            return copy.deepcopy(self.guide) if isinstance(self.guide, AutoGuide) else self.guide
        return automatic(self.model)


_FUNCTIONS = {
    "model": False,
    "guide": True,
    "predict": True,
    "score": False,
    "check": False,
    "coordinates": False,
    "constants": False,
    "sort": True,
}


def parameters_of(function: Callable) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function by name; none where it has no signature to read."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # no signature to read, as with some built-in callables
        return {}


def inputs_of(records: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays that a prediction may use: all but the last, or the only one."""
    return records[:-1] or records


def _check_record_arrays(model: Callable, dataset: Dataset) -> None:
    parameters = parameters_of(model)
    if "num_records" not in parameters or any(
        p.kind is p.VAR_POSITIONAL for p in parameters.values()
    ):
        return  # the signature does not say
    arrays = list(parameters)[: list(parameters).index("num_records")]
    required = sum(parameters[name].default is inspect.Parameter.empty for name in arrays)
    number = len(dataset.train)
    if not required <= number <= len(arrays):
        raise _validate.ArgumentError(
            "data",
            dataset.name,
            f"has {number} array(s) per record, but the model takes {', '.join(arrays) or 'none'}.",
        )
