"""The result of a fit: its guarantee, posterior, labelled metrics and settings."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import _validate
from workbench.data.dataset import EVALUATION_LABELS, Dataset
from workbench.privacy.gradient_norms import GradientNorms
from workbench.privacy.guarantee import Guarantee
from workbench.results import arviz_adapter, summaries
from workbench.results.scores import Scores

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from workbench.ledger.budget import BudgetStatus
    from workbench.ledger.ledger import Ledger
    from workbench.models import Model
    from workbench.posterior.convergence import Convergence
    from workbench.results.clipping_bias import ClippingBias
    from workbench.results.coefficient_table import CoefficientTable
    from workbench.results.effects import Comparisons, Effects
    from workbench.results.prediction import Predictor, Records
    from workbench.results.twins import Twins

__all__ = ["FitResult", "HistoryPoint", "IntervalWarning"]


class IntervalWarning(UserWarning):
    """The posterior's estimates or intervals should not be trusted: ``FitResult.interval_warning``
    says why.
    """


@dataclass(frozen=True)
class HistoryPoint:
    """Metrics at one step of a run.

    >>> last = wb.fit("logistic", "breast_cancer", epsilon=1.0).history[-1]
    >>> last.step, sorted(last.metrics)
    (800, ['auc', 'elbo', 'log_likelihood'])
    """

    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class FitResult:
    """The result of one fit. ``labels`` says which parts ``guarantee`` covers.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> result.labels["posterior"], result.labels["metrics"]
    ('covered', 'public data')

    :param status: "done", "cancelled" or "failed".
    :param message: what went wrong, else "".
    :param guarantee: the privacy guarantee of the steps that were taken.
    :param model: name.
    :param model_options: its options.
    :param data: public facts about the data set.
    :param settings: all settings of the run.
    :param params: constrained parameters of guide and model, ``{name: array}``.
    :param draws: from the posterior, ``{site: array[draws, ...]}``, of all Markov chains in turn.
    :param coordinates: labels for the entries of vector-valued sites.
    :param history: metrics over steps.
    :param metrics: the last ones: "elbo" (nats per evaluation record) and the model's own, such as
        "auc".
    :param metrics_label: "public data" if the evaluation records are public, "covered" if metrics
        were released with noise, else "outside the guarantee".
    :param metric_intervals: 90 % intervals of metrics that have one, which count noise and the
        sampling of evaluation records.
    :param release_label: "covered"; of a fit without privacy "outside the guarantee", or "public
        data".
    :param seconds: for training and evaluation, including compilation; 0 for the outcome of a
        choice, whose time would tell of other fits.
    :param finished: local time.
    :param constants: public facts about the data that the model took by keyword, such as group
        features.
    :param released: names of the global latents and parameters whose gradients were noised.
    :param definition: the model; None in a loaded result, whose model is looked up in the gallery.
    :param public_records: the evaluation records if they are public, else None; not saved.
    :param spend: the fit's key in the ledger; "" if it has none.
    :param ledger: that ledger; not saved.
    :param versions: of the workbench, Python, JAX and NumPyro in the fit.
    :param posterior_kind: "noise-aware" if ``draws`` count the noise, "variational" if the guide's,
        or "normal likelihood".
    :param posterior_note: why they are the guide's, or what is wrong with noise-aware ones.
    :param variational_draws: draws from the guide, where ``draws`` are noise-aware.
    :param gradient_norms: how long the records' gradients were; None where they were not counted.
    :param convergence: whether the fit had arrived; None where nothing tells.
    :param cautions: what makes the answer doubtful, worst first, in sentences computed from the
        release.
    """

    status: str
    message: str
    guarantee: Guarantee
    model: str
    model_options: dict[str, Any]
    data: dict[str, Any]
    settings: dict[str, Any]
    params: dict[str, np.ndarray]
    draws: dict[str, np.ndarray]
    coordinates: dict[str, list[str]]
    history: tuple[HistoryPoint, ...]
    metrics: dict[str, float]
    metrics_label: str
    seconds: float
    finished: str
    release_label: str = "covered"
    constants: dict[str, Any] = field(default_factory=dict)
    released: tuple[str, ...] = ()
    definition: Model | None = field(default=None, compare=False)
    public_records: tuple[np.ndarray, ...] | None = field(default=None, compare=False)
    spend: str = ""
    ledger: Ledger | None = field(default=None, compare=False)
    versions: dict[str, str] = field(default_factory=dict)
    posterior_kind: str = "variational"
    posterior_note: str = ""
    variational_draws: dict[str, np.ndarray] = field(default_factory=dict)
    gradient_norms: GradientNorms | None = None
    convergence: Convergence | None = None
    cautions: tuple[str, ...] = ()
    metric_intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, for ``pickle`` and ``copy``: what is derived from them holds compiled
        functions.
        """
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @property
    def labels(self) -> dict[str, str]:
        """The label of each part: "covered" by the guarantee, "public data" or "outside the
        guarantee".

        Parameters, draws and everything computed from them depend only on the private release.
        Metrics and curves are exact functions of the evaluation records.
        """
        release = dict.fromkeys(
            ("params", "draws", "posterior", "summary", "gradient_norms"), self.release_label
        )
        return release | dict.fromkeys(("metrics", "history"), self.metrics_label)

    @functools.cached_property
    def posterior(self) -> Any:
        """The posterior draws as an ArviZ object (InferenceData in ArviZ 0.23, DataTree in 1.x), in
        four or five chains; in fewer where the number of draws has no such divisor.

        Its attribute "chains" says which Markov chains they are, if any; ``inference_data`` adds
        prior and predictions. A group "log_likelihood" would have a number for each private record,
        so ``az.loo`` and ``az.waic`` cannot be had: ``wb.evaluate`` scores and compares fits.

        Where ``posterior_kind`` is "noise-aware", draws count the privacy noise besides what the
        data leave open (``posterior.noise_aware``). Else they are the guide's, and
        ``interval_warning`` says how far too narrow they may be.
        """
        return self.posterior_of(self.sorted_draws)

    @functools.cached_property
    def variational_posterior(self) -> Any:
        """Draws from the guide alone, which predictions and synthetic records use; its intervals do
        not count the noise.

        With ``estimator="statistics"`` there is no guide, and predictions use ``posterior``, which
        this is then.
        """
        kind = "variational" if self.variational_draws else ""
        return self.posterior_of(self.in_order(self.guide_draws), kind)

    def inference_data(
        self, data: Dataset | pd.DataFrame | None = None, *, seed: int | None = None
    ) -> Any:
        """``posterior`` with the groups "prior", "posterior_predictive" and "observed_data", as
        ArviZ's plots take them.

        >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
        >>> result.inference_data()["posterior_predictive"]["y"].shape
        (4, 50, 111)

        :param data: whose evaluation records are predicted, by default the fit's own if they are
            public, else none are; or the rows of a table, for a formula. Records that are not
            public make both groups "outside the guarantee", as their attribute "label" says.
        :param seed: a whole number, to get the same predictions again.
        :raises ArgumentError: naming what is wrong with the records.
        """
        from workbench.results.inference_data import inference_data

        return inference_data(self, data, seed)

    @property
    def interval_words(self) -> str:
        """What the posterior's intervals count, in a sentence."""
        return arviz_adapter.words_on_intervals(self)

    @property
    def guide_draws(self) -> dict[str, np.ndarray]:
        """Independent draws from the guide, ``{site: array[draws, ...]}``; from the posterior where
        there is no guide.
        """
        return self.variational_draws or self.draws

    def posterior_of(
        self,
        draws: dict[str, np.ndarray],
        kind: str = "",
        beside: arviz_adapter.Groups | None = None,
    ) -> Any:
        """``draws`` as an ArviZ object with this result's coordinates, guarantee and label.

        :param kind: of posterior; the result's own by default. :param beside: further groups, as of
            ``arviz_adapter.to_posterior``.
        """
        return arviz_adapter.posterior_of(self, draws, kind or self.draws_kind, beside)

    @property
    def draws_kind(self) -> str:
        """``posterior_kind``, or "sums" of a posterior given noised sums."""
        return "sums" if self.settings.get("estimator") == "statistics" else self.posterior_kind

    @functools.cached_property
    def sorted_draws(self) -> dict[str, np.ndarray]:
        """The posterior's draws with interchangeable parts, such as a mixture's components,
        ``in_order``.
        """
        return self.in_order(self.draws)

    def in_order(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Draws with interchangeable parts in the order that the model chooses."""
        sort = self.predictor.model.sort if self.model_is_known else None
        return draws if sort is None else sort(draws, self.params)

    @property
    def model_is_known(self) -> bool:
        """Whether the model is available: always after a fit; after loading, if the gallery has a
        model of its name.
        """
        from workbench.models.registry import is_known

        return self.definition is not None or is_known(self.model)

    @functools.cached_property
    def quantities_are_independent(self) -> bool:
        """Whether the posterior makes all quantities independent, as a mean-field guide does; False
        where unknown.
        """
        if self.posterior_kind != "variational":
            return False
        from workbench.results import description

        return description.quantities_are_independent(self)

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The fitted model, ready to predict.

        :raises ArgumentError: naming ``model``, if it is not in the gallery. Register it, or run
            the file that defines it.
        """
        from workbench.results.prediction import Predictor

        return Predictor(self)

    def summary(self, interval: float = 0.9, kind: str = "hdi") -> pd.DataFrame:
        """Posterior mean, sd and interval of each quantity. ``labels`` says whether it is covered.

        A noise-aware posterior counts the privacy noise. Of a guide's posterior, ``noise_sd``
        estimates how far privacy noise moved the mean, which sd and interval do not include (NaN
        where there is no estimate). An ``IntervalWarning`` says why the numbers should not be
        trusted: much too narrow intervals, or one of ``cautions``, or scales and shapes that
        clipping biases, which "remark" then marks.

        :param interval: probability of the interval, in (0, 1).
        :param kind: "hdi" (highest density) or "eti" (equal tails). The column names say which.
        """
        table, bias = self.summary_table(interval, kind), self.clipping_bias
        if bias.words:
            table["remark"] = [bias.of(str(name)).strip() for name in table.index]
        if self.doubts:
            warnings.warn(self.doubts, IntervalWarning, stacklevel=2)
        return table

    def summary_table(self, interval: float = 0.9, kind: str = "hdi") -> pd.DataFrame:
        """``summary`` for callers that show ``interval_warning`` themselves."""
        from workbench.results._location_noise import noise_sd

        table = summaries.summary(self.sorted_draws, self.coordinates, interval, kind)
        if self.posterior_kind == "variational":
            table["noise_sd"] = [noise_sd(self, str(name), sd) for name, sd in table["sd"].items()]
        return table

    def coefficients(
        self,
        interval: float = 0.9,
        kind: str = "hdi",
        *,
        groups: bool = False,
        diagnostics: bool = False,
    ) -> CoefficientTable:
        """A regression's coefficients in the columns' own units: mean, sd, interval, ratio and
        share above 0; and scaled.

        Features are columns that were scaled to [-1, 1] by their declared bounds. Here a
        coefficient is the effect of what "contrast" says, such as one unit more of the column.
        Ratios are exp of mean and interval.

        >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
        >>> result.coefficients().loc["mean radius", "contrast"]
        '1 more'

        :param interval: probability of the interval, in (0, 1).
        :param kind: as of ``summary``.
        :param groups: whether a formula's effects of groups have rows, such as "hospital=north".
        :param diagnostics: True has, in place of ratios and scaled ones, mean and sd of the prior,
            effective sample size and R-hat; and the heading says whether the fit had arrived and
            what was clipped.
        :raises ArgumentError: naming ``model``, if it is no regression (``Model.linear``).
        """
        from workbench.results import coefficients

        return coefficients.table(self, interval, kind, groups=groups, diagnostics=diagnostics)

    def effects(
        self,
        column: str,
        values: Sequence[Any] | None = None,
        *,
        by: str | None = None,
        at: Mapping[str, Any] | None = None,
        interval: float = 0.9,
        kind: str = "hdi",
        new_groups: bool = False,
    ) -> Effects:
        """The expected response over a column's declared range or levels, the others at their
        middles and references.

        A group without a value is a typical one, with no effect of its own; trials and exposure are
        1.

        >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
        >>> list(result.effects("mean radius", [10, 20]).table.columns[:2])
        ['mean', 'sd']

        :param values: of the column, in its own units.
        :param by: another column, with a curve for each of its levels.
        :param at: ``{column: value}`` of others.
        :param interval: probability, in (0, 1).
        :param kind: as of ``summary``.
        :param new_groups: as of ``predict``: whether ``values`` and ``at`` may have groups that
            were not declared, or None for a declared one at random.
        :raises ArgumentError: naming a column that is not declared, or a value outside its
            declaration.
        """
        from workbench.results import effects

        return effects.effects(self, column, values, by, at, interval, kind, new_groups)

    def comparisons(
        self,
        column: str,
        values: Sequence[Any] | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        interval: float = 0.9,
        kind: str = "hdi",
    ) -> Comparisons:
        """Differences of the expected response between a column's levels, or given values, and the
        share of draws above 0.

        >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
        >>> result.comparisons("mean radius", [10, 20]).values
        ('20.0 - 10.0',)

        Arguments are those of ``effects``; of numbers, ``values`` must be given.
        """
        from workbench.results import effects

        return effects.comparisons(self, column, values, at, interval, kind)

    def intervals(
        self,
        records: Records = None,
        interval: float = 0.9,
        kind: str = "hdi",
        *,
        new_groups: bool = False,
    ) -> pd.DataFrame:
        """Mean, sd and interval of the expected response of each record, over the posterior.

        :param records: as of ``predict``.
        :param interval: probability, in (0, 1).
        :param kind: as of ``summary``.
        :param new_groups: as of ``predict``.
        """
        from workbench.results import effects

        return effects.intervals(self, records, interval, kind, new_groups)

    @property
    def budget_status(self) -> BudgetStatus | None:
        """What the ledger says was spent on the records so far; None without a ledger and in a
        loaded result.

        :raises LedgerError: if the ledger cannot be read.
        """
        if self.ledger is None:
            return None
        spend = self.ledger.spend(self.spend)
        return None if spend is None else self.ledger.budget_status(spend.dataset)

    @functools.cached_property
    def interval_warning(self) -> str:
        """Why estimates or intervals should not be trusted: ``cautions``, and intervals that lack
        the noise; else "".
        """
        from workbench.results._location_noise import warning

        lacks_noise = self.posterior_kind == "variational"
        return " ".join(filter(None, [*self.cautions, warning(self) if lacks_noise else ""]))

    @functools.cached_property
    def clipping_bias(self) -> ClippingBias:
        """Which scales and shapes clipping biases: tables mark their rows."""
        from workbench.results.clipping_bias import clipping_bias

        return clipping_bias(self)

    @property
    def doubts(self) -> str:
        """``interval_warning``, and what the marks of rows mean; "" where nothing is wrong."""
        return " ".join(filter(None, [self.interval_warning, self.clipping_bias.words]))

    def label_beside(self, data: Dataset | None) -> str:
        """The label of a picture that shows the release with records of ``data``, or with the fit's
        own public records.
        """
        if self.release_label != "covered":
            return self.release_label
        return EVALUATION_LABELS[data is None or data.evaluation_is_public]

    # ---- using the model -------------------------------------------------------------------------

    def predict(self, records: Records = None, *, new_groups: bool = False) -> np.ndarray:
        """Predict each record with the model, averaged over posterior draws: for example the
        probability of class 1.

        Predictions depend only on the release and on ``records``, so they cost no further privacy.

        :param records: a DataFrame with the columns of the fitted table, in their own units; arrays
            as the model takes them, so on the scales of ``data["schema"]``; a ``Dataset``, to use
            its evaluation records; None to use the public evaluation records of the fit.
        :param new_groups: whether a table may have groups of a formula that were not declared. Such
            a group has in each draw an effect from Normal(0, sd), the same in all its rows; a row
            without a group is in each draw of a declared group at random.
        :raises ArgumentError: naming a column or array of the wrong form.
        """
        from workbench.results.new_groups import predictor_for

        predictor, inputs, _ = predictor_for(self, records, new_groups)
        return predictor.predict(inputs)

    def score(self, records: Records = None, *, public: bool = False) -> Scores:
        """ELBO, log-likelihood (nats per record) and the model's own metrics on labelled records.

        The numbers are exact functions of ``records``. If the records are private, the numbers are
        outside the guarantee, and their ``label`` says so.

        :param records: a ``Dataset``, to use its evaluation records; a tuple of all arrays that the
            model takes, the target included; None to use the public evaluation records of the fit.
        :param public: declares arrays public, which only the caller can know.
        """
        declared = _validate.flag("public", public)
        known_public = (
            records.evaluation_is_public
            if isinstance(records, Dataset)
            else records is None or declared
        )
        scores = self.predictor.score(self.predictor.all_arrays(records))
        return Scores(scores, EVALUATION_LABELS[known_public])

    def sample(
        self,
        count: int = 1000,
        given: Records = None,
        *,
        seed: int | None = None,
        new_groups: bool = False,
    ) -> Any:
        """Draw synthetic records from the private posterior predictive, each from its own draw of
        the guide.

        They show what the model has learnt. They are not for inference: an interval computed from
        them is several times too narrow, however many records are drawn. ``twins`` are.

        They depend only on the release and on ``given``, so they cost no further privacy and may be
        published where those inputs may. They resemble the data as far as the model describes them.
        A table comes back as a DataFrame in its own units (``.to_csv`` saves it), with the inputs
        beside the target if the model predicts one. Images come back as an array.

        :param count: number of records; ignored if ``given`` sets it.
        :param given: public inputs, as ``predict`` takes them, which are copied; by default public
            evaluation records, with replacement.
        :param seed: a whole number, to get the same records again.
        :param new_groups: as of ``predict``.
        :raises ArgumentError: naming ``given``, for a data set of private records.
        """
        from workbench.results.synthesis import synthetic_records

        return synthetic_records(self, count, given, seed, new_groups=new_groups)

    def twins(
        self,
        sets: int = 30,
        rows: int | None = None,
        given: Records = None,
        *,
        seed: int | None = None,
    ) -> Twins:
        """Synthetic tables for analysts: each is drawn from one draw of the posterior, so
        ``wb.combine`` gets valid intervals from all of them.

        Where the posterior counts the privacy noise (``posterior_kind`` "noise-aware"), so do the
        intervals; else an ``IntervalWarning`` says that they are not calibrated. Twins depend on
        the release and on ``given`` alone, so they cost no further privacy.

        >>> import statsmodels.api as sm
        >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
        >>> twins = result.twins(sets=20, rows=2000)
        >>> answers = [sm.OLS(table["mean area"], np.ones(2000)).fit() for table in twins]
        >>> list(wb.combine(answers).columns)
        ['estimate', 'se', '95%_low', '95%_high']

        :param sets: number of tables, 2 to the number of draws; 30 are enough.
        :param rows: of each table; by default 10 times the number of private records that the
            guarantee publishes.
        :param given: public inputs of a model that predicts a target, as ``predict`` takes them,
            by default public evaluation records. Rows of them are drawn again, with other weights
            for each table (the Bayesian bootstrap). Coefficients need inputs that cover what the
            analysis is about. Means and shares need inputs that are a sample of its population.
            Their columns that the model uses are copied, so they must be public.
        :param seed: a whole number, to get the same tables again.
        :raises ArgumentError: naming the argument; naming ``model``, if it draws images.
        """
        from workbench.results.twins import new_twins

        return new_twins(self, sets, rows, given, seed)

    @property
    def pictures(self) -> dict[str, Callable[..., Figure]]:
        """What ``plot`` can draw, by name: training curves, posterior summaries and the model's own
        pictures.
        """
        from workbench.results.pictures import pictures

        return pictures(self)

    def plot(self, picture: str = "curves", data: Dataset | pd.DataFrame | None = None) -> Figure:
        """Draw a picture as a matplotlib Figure that is labelled "covered", "public data" or
        "outside the guarantee".

        :param picture: "curves" (metrics over steps), "check" (posterior predictive check), or one
            of the model's own, such as "coefficients". "forest" shows all quantities of a model
            without "coefficients"; "pairs" shows correlations, if the guide has any. ``pictures``
            has all of them.
        :param data: whose evaluation records are drawn too, by default the fit's own if they are
            public. Private ones make the picture "outside the guarantee", and so do the rows of a
            table, which a fit of a formula takes.
        :raises ArgumentError: for an unknown picture, suggesting similar names, or for one that
            needs ``data``.
        """
        from workbench.results.pictures import records_of

        available = self.pictures
        if picture == "pairs" and self.quantities_are_independent:
            raise _validate.ArgumentError(
                "picture",
                picture,
                "would show no more than noise: the guide makes all quantities independent, so "
                "that their correlations are zero by construction. A guide such as "
                "AutoMultivariateNormal has correlations.",
            )
        return available[_validate.choice("picture", picture, available)](records_of(self, data))

    def report(self) -> str:
        """The report as one self-contained HTML page."""
        from workbench.results.report import render

        return render(self)

    def save(self, folder: str | Path) -> Path:
        """Write result.json, params.npz, posterior.nc, curves.png and report.html into ``folder``
        and return it.
        """
        from workbench.results.storage import save

        return save(self, folder)

    def _repr_html_(self) -> str:
        from workbench.results.card import card

        return card(self)

    def __repr__(self) -> str:
        from workbench.results.card import line

        return line(self)
