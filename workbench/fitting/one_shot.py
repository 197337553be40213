"""A fit from one release of noised sums (``sums``): which fits have it, its step, its posterior and
its metrics.

A whole table (``Model.table``) always has it. For a regression it is chosen by default
where a model declares that it is a linear regression with normal residuals
(``LinearPredictor.residuals``), each record is a unit, no setting of DP-VI's steps is given, and
there is little noise (``is_better``). docs/one_shot.md says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from workbench import _validate
from workbench._blas import one_thread
from workbench.clipping.separation import PrivacyModelError
from workbench.data import Dataset
from workbench.data.dataset import is_at_rest
from workbench.fitting.estimation import Estimation, Inferred, Metrics
from workbench.fitting.sums import Draws, Sums, of_regression, of_table
from workbench.inference.assemble import assemble
from workbench.inference.state import Hyperparameters, Performance, Purpose, fast_child
from workbench.inference.step import PrivateStep
from workbench.inference.training import Snapshot
from workbench.models import Model
from workbench.models.model import inputs_of
from workbench.noise.chacha20 import fast_key, key_from_seed
from workbench.posterior import statistics
from workbench.privacy.plan import PrivacyPlan, default_delta
from workbench.record_model import estimators
from workbench.record_model.elbo import predictive
from workbench.record_model.model import RecordModel
from workbench.record_model.splitting import split

if TYPE_CHECKING:
    from workbench.fitting.prepared import PreparedFit
    from workbench.fitting.settings import Settings
    from workbench.fitting.spec import FitSpec

__all__ = ["ESTIMATORS", "STATISTICS", "OneShot", "one_shot_for"]

STATISTICS = "statistics"
ESTIMATORS = (*estimators.ESTIMATORS, STATISTICS)

_AT_ONCE = 4096  # records
_PREDICTIONS = 200  # draws that a metric averages over


# of a fit: its key, how many draws to keep, C, standard deviation of the noise
Facts = tuple[jax.Array, int, float, float]

# what a caller gives for DP-VI; the values that the one step has
_STEP = {
    "iterations": 1,
    "sampling_rate": 1.0,
    "batch_size": None,
    "sampler": "poisson",
    "relation": "add_or_remove_one",
    "clipping": "flat",
    "average": False,
    "learning_rate": None,
    "optimizer": None,
}


@dataclass(frozen=True, eq=False, repr=False)
class OneShot(Estimation):
    """The ``Estimation`` of a model from noised sums.

    :param model: the user's, split by records. :param sums: what is summed.
    :param predict: of the ``Model``. :param score: of the ``Model``.
    """

    model: RecordModel
    sums: Sums
    predict: Callable[..., Any] | None
    score: Callable[..., dict[str, float]]
    _newest: dict[Any, tuple[Draws, str]] = field(default_factory=dict)

    released = "sums"

    @property
    def fixed_settings(self) -> dict[str, Any]:
        return {"estimator": STATISTICS, "learning_rate": None}

    def of_model(
        self, model: Model, data: Dataset, constants: Mapping[str, Any], num_records: int
    ) -> Estimation:
        return _split(model, data, constants, num_records)

    def private_step(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> PrivateStep:
        """The step whose noised sum is the release. One step of gradient descent makes it the
        parameter, divided by N.
        """
        microbatch = spec.settings.microbatch_size
        step = assemble(
            self.sums.model(plan.mechanism.clip),
            statistics.guide,
            numpyro.optim.SGD(1.0),
            key,
            spec.records,
            sampler=plan.sampler,
            mechanism=plan.mechanism,
            num_records=plan.settings.num_records,
            performance=Performance(
                spec.settings.strategy, None, _AT_ONCE if microbatch is None else microbatch
            ),
            source=spec.record_source,
        )
        return step.with_options(keeps_moments=False)

    def hyper(self, spec: FitSpec, plan: PrivacyPlan, step: PrivateStep) -> Hyperparameters:
        return Hyperparameters.of(plan.mechanism, None)

    def evaluator(self, fit: PreparedFit, deviation: float) -> Metrics:
        return functools.partial(self.evaluate, _facts(fit, deviation), fit.data.evaluation)

    def posterior(self, fit: PreparedFit, last: Snapshot) -> Inferred:
        facts = _facts(fit, float(fit.hyper.standard_deviation))
        draws, note = self.draws(facts, last.params)
        cautions = (f"Intervals may be wrong: {note}.",) if note else ()
        return Inferred({}, draws, note, cautions=cautions)

    def sites(self, step: PrivateStep) -> tuple[str, ...]:
        """As of ``Estimation``; the step's own site is that of the sums."""
        return self.model.shared

    def draws(self, facts: Facts, params: Mapping[str, Any]) -> tuple[Draws, str]:
        """Draws from the posterior by site, and "" or what is wrong with them.

        :param params: what the step left. Before the step there is no release, and the draws are
            the prior's.
        """
        key, count, clip, deviation = facts
        interval_key = fast_child(key, Purpose.INTERVALS)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(interval_key)))
        released = np.asarray(params[statistics.SITE], float) * self.model.num_records
        if not np.any(released):
            return self.sums.prior(count, generator, interval_key), ""
        # those of the newest release are kept, because metrics and the result take the same
        cache_key = (released.tobytes(), deviation, count)
        if cache_key not in self._newest:
            self._newest.clear()
            with one_thread():
                self._newest[cache_key] = self.sums.posterior(
                    released, clip, deviation, count, generator
                )
        return self._newest[cache_key]

    def evaluate(
        self, facts: Facts, records: tuple[Any, ...], params: Mapping[str, Any]
    ) -> dict[str, float]:
        """Log-likelihood per record in nats, and the model's own scores; none before the step.

        :param records: to evaluate on. :param params: as of ``draws``.
        """
        if not np.any(params[statistics.SITE]):
            return {}
        draws, _ = self.draws(facts, params)
        count = len(next(iter(draws.values())))
        indices = np.unique(np.linspace(0, count - 1, min(count, _PREDICTIONS)).round().astype(int))
        values = {name: jnp.asarray(array[indices]) for name, array in draws.items()}
        scores = {
            "log_likelihood": float(
                jax.jit(functools.partial(predictive, self.model))(values, records)
            )
        }
        if self.predict is None:
            return scores
        inputs, predict = inputs_of(records), self.predict
        predictions = jax.jit(
            lambda values: jnp.mean(jax.vmap(lambda drawn: predict(drawn, *inputs))(values), axis=0)
        )
        return scores | dict(self.score(np.asarray(records[-1]), np.asarray(predictions(values))))

    def settings(self, request: Settings, data: Dataset, num_records: int) -> dict[str, Any]:
        """The settings of the one step.

        :param request: what the caller gave, as ``fitting.settings.Settings``.
        :param num_records: N, which is public.
        :raises ArgumentError: naming the one that is another.
        """
        for name, value in _STEP.items():
            requested = getattr(request, name)
            if requested is not None and requested != value:
                raise _validate.ArgumentError(
                    name,
                    requested,
                    f'is a setting of DP-VI steps; estimator="{STATISTICS}" makes one release '
                    "from all records.",
                )
        clip, least = request.clip, self.sums.smallest_norm
        if isinstance(clip, str) or (clip is not None and clip < least):
            raise _validate.ArgumentError(
                "clip",
                clip,
                f'must be a number of at least {least} for estimator="{STATISTICS}".',
            )
        usual = self.sums.norm(data, num_records, request.epsilon)
        return _STEP | {"clip": usual if clip is None else clip}


def _facts(fit: PreparedFit, deviation: float) -> Facts:
    return fit.key, fit.settings.draws, float(fit.hyper.clip), deviation


def one_shot_for(
    request: Settings,
    model: Model,
    data: Dataset,
    constants: Mapping[str, Any],
    num_records: int,
    learns_scales: bool,
) -> OneShot | None:
    """The model as it is fitted from noised sums, if it is asked for or chosen by default; else
    None.

    :param request: what the caller gave, as ``fitting.settings.Settings``. :param num_records: N,
        which is public. :param learns_scales: whether columns are on learned scales.
    :raises ArgumentError: naming ``estimator``, if it is asked for and impossible.
    """
    is_asked = request.estimator == STATISTICS or model.table is not None
    if model.table is not None and request.estimator not in (None, STATISTICS):
        raise _validate.ArgumentError(
            "estimator",
            request.estimator,
            f"takes steps, and {model.name} comes from one noised release. A fit without privacy "
            "takes steps too.",
            remedy=f'Use estimator="{STATISTICS}", with privacy.',
        )
    changed = {
        name
        for name in (*_STEP, "clip")
        if getattr(request, name) != type(request).__dataclass_fields__[name].default
    }
    if not is_asked and (request.estimator is not None or changed):
        return None
    try:
        one_shot = _split(model, data, constants, num_records)
        delta = default_delta(num_records) if request.delta is None else request.delta
        return (
            one_shot
            if is_asked
            or one_shot.sums.are_better(data, num_records, request.epsilon, delta, learns_scales)
            else None
        )
    except PrivacyModelError as error:
        if is_asked:
            argument, value, subject = "estimator", STATISTICS, f"{model.name} and {data.name}"
            if request.estimator is None:
                argument, value, subject = "model", model.name, data.name
            raise _validate.ArgumentError(
                argument, value, f"cannot be used with {subject}: {error}."
            ) from None
        return None


def _split(model: Model, data: Dataset, constants: Mapping[str, Any], num_records: int) -> OneShot:
    """:raises PrivacyModelError: if the model is none that comes from sums, or the data have other
    records.
    """
    linear, table = model.linear, model.table
    if table is None and (linear is None or linear.residuals is None):
        raise PrivacyModelError(
            "the model declares no linear predictor with normal residuals (Model.linear)"
        )
    if data.units is not None:
        raise PrivacyModelError(
            f"a {data.unit} may have several rows, and the release needs one of each {data.unit}, "
            "such as the last or their means"
        )
    if any(map(is_at_rest, data.train)):
        raise PrivacyModelError("the data set stays in a file")
    record = tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in data.train)
    static = {**model.options, **constants}
    key = fast_key(key_from_seed(0))
    by_record = split(
        model.model, statistics.guide, key, record, num_records=num_records, static=static
    )
    sums: Sums
    if table is not None:
        sums = of_table(by_record, table, constants)
    else:
        assert linear is not None
        assert linear.residuals is not None
        sums = of_regression(by_record, linear, linear.residuals)
    return OneShot(by_record, sums, model.predict, model.score)
