"""What a fit is: a request with every setting checked and completed, its records and its model.

Nothing is calibrated or compiled here, so a sweep can resolve hundreds of fits before it begins.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import jax
import numpy as np

from workbench import _validate
from workbench._limits import LARGEST_CLIP
from workbench.clipping.clipped_sums import check_clipping, is_by_record
from workbench.data import Dataset, Schema
from workbench.data.dataset import is_at_rest
from workbench.data.look import Scale, Scales, learned
from workbench.data.storage.oblivious import SAMPLERS as OBLIVIOUS_SAMPLERS
from workbench.fitting import defaults
from workbench.fitting.columns import Columns, columns_of
from workbench.fitting.devices import devices_named
from workbench.fitting.estimation import Estimation
from workbench.fitting.gradients import Gradients
from workbench.fitting.learned_scales import (
    as_setting,
    looks_by_default,
    rows_inside,
    share_and_scales,
)
from workbench.fitting.marginals import for_model
from workbench.fitting.one_shot import one_shot_for
from workbench.fitting.scoring import CoveredScorer, Scorer
from workbench.fitting.settings import Settings, about, described, names, takes
from workbench.inference.bringing import are_at_rest
from workbench.inference.processes import Processes
from workbench.inference.sharding import source_on
from workbench.inference.sources import RecordSource
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.inference.units import UnitRows
from workbench.models import Model
from workbench.models.registry import AnyModel, as_model
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import (
    OF_CLIP,
    PrivacyPlan,
    PrivacySettings,
    default_delta,
    make_plan,
    sampling_rate_of,
)
from workbench.privacy.steps import LAWS

__all__ = ["FitRequest", "FitSpec", "is_array", "resolve"]

# settings that differ between fits of one compiled program: numbers that its steps take, or used
# after the steps
_NOT_COMPILED = ("learning_rate", "draws", "covered_scores")
_SCORERS: dict[bool, type[Scorer]] = {True: CoveredScorer, False: Scorer}
_EARLIER_LOOK = (
    "Columns were scaled by an earlier look at records, whose epsilon counts beside this one."
)
# settings of a plan that hold before a look and after it
_PLANNED = tuple(
    entry.name for entry in fields(PrivacySettings) if entry.name not in (*OF_CLIP, "look")
)


@dataclass(frozen=True, eq=False, repr=False)
class FitRequest(Settings):
    """Model, data and settings as a caller gives them."""

    model: AnyModel = field(
        metadata=described(
            "a name from ``workbench.models.names()``, a NumPyro function, a "
            "``workbench.models.Model``, or a formula"
        )
    )
    data: str | Dataset | Columns = field(
        metadata=described("a name from ``workbench.data.names()`` or a ``workbench.data.Dataset``")
    )


@dataclass(frozen=True, repr=False)
class FitSpec:
    """A fit with every setting checked and chosen, before calibration; made by ``resolve``.

    :param data: the records as the model sees them.
    :param source: the data set as it was given.
    :param constants: public facts about this data set that the model takes by keyword.
    :param devices: among which the records are spread; mostly one.
    :param largest_clip: which an adapted C never exceeds: the largest norm of a gradient, where the
        model knows it.
    :param estimation: how the steps are taken, and what follows from them.
    :param request: by which it was resolved.
    :param scales: of columns, learned from noised counts; none before a look.
    :param columns: of the table, and how a look of the run learns from them.
    :param learned: the declaration of the columns as ``Schema.to_dict`` has it, or the marginals,
        where a look of the run learned them; ready for JSON.
    :param declared: the fit as it was before they were learned.
    :param is_vacant: whether no record is inside the learned scales; the fit goes on as any other,
        because an error would say so, and the one in ``data`` enters no minibatch.
    :param scorer: what is released about private evaluation records.
    :param has_secret_look: whether the noise of an earlier look came from a secret key; True
        without one.
    :param scales_are_guessed: whether declared bounds stand for scales because noise would hide
        those of the records.
    """

    model: Model
    data: Dataset
    source: Dataset
    constants: dict[str, Any]
    privacy: PrivacySettings
    settings: Settings
    devices: tuple[jax.Device, ...]
    estimation: Estimation
    request: FitRequest
    columns: Columns
    largest_clip: float = LARGEST_CLIP
    scales: Scales = field(default_factory=dict)
    declared: FitSpec | None = None
    scales_are_guessed: bool = False
    learned: Mapping[str, Any] = field(default_factory=dict)
    is_vacant: bool = False
    scorer: Scorer = field(default_factory=Scorer)
    has_secret_look: bool = True

    def with_scales(self, scales: Scales) -> FitSpec:
        """The same fit on scales that were learned from noised counts, which replace declared
        bounds; with the C that the model advises on them, unless one was chosen.
        """
        source = self.source
        scales = {
            name: scale
            for name, scale in scales.items()
            if isinstance(scale, Scale) or name != source.target_name
        }
        model = self.model.with_scales(scales)
        if not model.has_own_arrays:
            source = source.rescaled(learned(source.schema or Schema({}), scales))
        data, is_vacant = model.view(source), False
        privacy = self.privacy
        if privacy.clip_follows_look:
            # before records are left out: how many remain is private
            size = LAWS[privacy.sampler].public_size(privacy.num_records, data.num_train)
            clip = defaults.clip_of(model.advice(data, size, privacy.epsilon), data.rows_clipped)
            privacy = dataclasses.replace(privacy, clip=clip, clip_follows_look=False)
        if self.leaves_out:
            rows = rows_inside(self.source, model, scales)
            is_vacant = not rows.any()
            rows[0] |= is_vacant
            data = data.with_rows(rows)
        constants = dict(model.constants(data))
        return dataclasses.replace(
            self,
            privacy=privacy,
            settings=dataclasses.replace(self.settings, clip=privacy.as_arguments()["clip"]),
            model=model,
            source=source,
            data=data,
            constants=constants,
            estimation=self.estimation.of_model(model, data, constants, self.privacy.num_records),
            scales=scales,
            is_vacant=is_vacant,
            declared=self,
        )

    @property
    def leaves_out(self) -> bool:
        """Whether records with a value outside the learned scales take no part, instead of being
        cut to them: where the number of records is hidden, and each record is one row in memory.

        A regression on some values of its columns is right about those; one on values that were cut
        is not.
        """
        return (
            LAWS[self.privacy.sampler].hides_size
            and self.source.units is None
            and self.source.schema is not None
            and "x" in self.source.arrays
            and not any(map(is_at_rest, self.source.train))
        )

    def declared_as(
        self, model: Model, source: Dataset, facts: Mapping[str, Any], scales: Scales
    ) -> FitSpec:
        """The same fit of a table that is declared now, with C and the learning rate of its model
        unless they were chosen. Sampler, steps and noise multiplier stay.

        :param facts: which a look has learned, as ``learned`` has them.
        """
        kept = {name: getattr(self.privacy, name) for name in _PLANNED}
        settings: dict[str, Any] = {
            entry.name: getattr(self.request, entry.name) for entry in fields(Settings)
        }
        settings |= {**kept, "batch_size": None, "estimator": self.settings.estimator}
        settings |= {"look": as_setting(scales), "model": model, "data": source}
        spec = resolve(**settings)
        privacy = dataclasses.replace(spec.privacy, look=self.privacy.look)
        return dataclasses.replace(spec, privacy=privacy, declared=self, learned=facts)

    @property
    def device(self) -> jax.Device:
        """The device that it runs on, of several the first of this process."""
        return next(
            device for device in self.devices if device.process_index == jax.process_index()
        )

    @functools.cached_property
    def record_source(self) -> RecordSource:
        """Where steps read the records, and how rows make units."""
        units = self.data.units
        if units is None or units.are_padded:
            return source_on(self.devices)
        has_strata = self._may_lack_units and not are_at_rest(self.data.train)
        return UnitRows(units.widths if has_strata else units.widths[:1], units.mean)

    @property
    def processes(self) -> Processes:
        """The processes that take the steps together; mostly one."""
        return self.record_source.processes

    def placed(self, tree: Any) -> Any:
        """``tree`` on the device, or on all of them."""
        return self.record_source.placed(tree, self.device)

    def placed_records(self) -> tuple[Any, ...]:
        """``records`` on the device, or spread; those of a file stay there, unless they
        are spread.
        """
        public_size = self.privacy.num_records if self._may_lack_units else None
        return self.record_source.placed_records(self.records, self.device, public_size)

    @functools.cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the records as they were given."""
        return self.columns.fingerprint

    @property
    def averages(self) -> bool:
        """Whether the result is the mean of the iterates of the run's second half."""
        return bool(self.settings.average)

    def plan(self) -> PrivacyPlan:
        """Sampler and noise that keep the promise.

        :raises ArgumentError: if no supported noise does.
        """
        stored, privacy = self.source.stored, self.privacy
        plan = make_plan(
            privacy,
            self.data.num_train,
            stored is not None and stored.reading == "oblivious",
            self.columns.num_counts(self),
            self.columns.delta_of_texts(privacy.delta),
        )
        self.columns.require_visible(self, plan)
        return plan.after_look(privacy, self.data.num_train, is_vacant=self.is_vacant)

    def most_coordinates(self, step: PrivateStep) -> int:
        """In how many coordinates steps may add noise, before and after a look."""
        return step.noised_coordinates * self.columns.most_coordinates

    @property
    def _may_lack_units(self) -> bool:
        return self.privacy.relation == "add_or_remove_one"

    @property
    def records(self) -> tuple[np.ndarray, ...]:
        """What the steps read: the training arrays, and with units where the rows of each are.

        Units are sorted by strata where one may be missing. One that may be replaced by one with
        more rows keeps its place, and one in a file has its own place there, with room for the
        largest number of rows.
        """
        units = self.data.units
        if units is None or units.are_padded:
            return self.data.train
        if are_at_rest(self.data.train):
            return self.data.units_at_rest()
        return (*self.data.train, *(units.index if self._may_lack_units else units.in_place))

    def private_step(self, plan: PrivacyPlan, key: jax.Array) -> PrivateStep:
        """The fit's step, with starting values for the run with ``key``."""
        return self.estimation.private_step(self, plan, key)

    def hyper(self, plan: PrivacyPlan, step: PrivateStep) -> Hyperparameters:
        """What ``step`` takes as arguments besides state, records and draws."""
        return self.estimation.hyper(self, plan, step)

    def begin(
        self, plan: PrivacyPlan, key: jax.Array, step: PrivateStep | None = None
    ) -> tuple[PrivateStep, DPVIState]:
        """The fit's step, and the state of the run with ``key`` before the first one.

        :param step: of ``private_step`` for the same plan, where it has been made; the run begins
            at its starting values, whatever its key was.
        """
        step = self.private_step(plan, key) if step is None else step
        return step, step.init(key, self.hyper(plan, step), step.model.initial)

    def run_settings(self) -> dict[str, Any]:
        """The settings that do not change the guarantee, ready for JSON."""
        shown = (
            name for name in names() if not about(name).changes_guarantee and about(name).is_text
        )
        values = {name: getattr(self.settings, name) for name in shown}
        return {
            **values,
            "device": f"{', '.join(map(_named, self.devices))} ({self.device.device_kind})",
        }

    def plan_after_look(self, plan: PrivacyPlan) -> PrivacyPlan:
        """The plan of a fit with what a look has learned. :param plan: before it."""
        return plan.after_look(self.privacy, self.data.num_train, is_vacant=self.is_vacant)

    def program_key(self, plan: PrivacyPlan) -> Hashable:
        """Equal for fits whose steps are one compiled program with other
        ``inference.state.Hyperparameters``.

        Of arrays among the constants only the shapes count.
        """
        model = self.model
        shapes = tuple(
            (array.shape, str(array.dtype)) for array in (*self.records, *self.data.evaluation)
        )
        compiled = {
            name: value for name, value in self.run_settings().items() if name not in _NOT_COMPILED
        }
        return (
            model.model,
            model.guide,
            model.predict,
            repr(sorted(model.options.items())),
            shapes,
            self.privacy.num_records,
            self.record_source,
            self.privacy.adapts_clip,
            self.privacy.iterations,
            self.privacy.clipping,
            plan.sampler,
            tuple(compiled.items()),
            id(self.settings.optimizer),
            tuple(
                (name, np.shape(value) if is_array(value) else repr(value))
                for name, value in self.constants.items()
            ),
        )

    def new_key(self) -> jax.Array:
        """The key of one run: a secret one, or the seed's; the same in all processes.

        :raises ProcessError: if one of them has ended.
        """
        if self.privacy.seed is not None:
            return key_from_seed(self.privacy.seed)
        return new_key(self.processes.from_first)

    @property
    def shows_metrics(self) -> bool:
        """Whether metrics on the evaluation records are computed: there are some that are public,
        or the user asked.
        """
        return self.data.num_evaluation > 0 and (
            self.data.evaluation_is_public or self.settings.evaluate_private
        )

    @property
    def hides_reads(self) -> bool:
        """Whether reads of the records tell an observer of their storage nothing."""
        return self.source.stored is not None and self.source.stored.hides_reads

    def guarantee(
        self, plan: PrivacyPlan, steps_taken: int, dimension: int, hid_reads: bool = True
    ) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps with noise in ``dimension``
        coordinates.

        :param hid_reads: whether steps that another process took hid their reads too.
        """
        caveats: tuple[str, ...] = ()
        if self.shows_metrics and not self.data.evaluation_is_public:
            caveats = (
                "Metrics on private evaluation records were computed on request; they are "
                "outside the guarantee.",
            )
        caveats += (_EARLIER_LOOK,) * (bool(self.scales) > bool(self.privacy.look))
        most = None if self.data.units is None else self.data.units.max_rows
        guarantee = plan.guarantee(
            steps_taken=steps_taken,
            unit=self.data.unit,
            dimension=dimension,
            caveats=caveats,
            max_rows=most,
            against_storage=self.hides_reads and hid_reads,
            covers_deletion=is_by_record(self.settings.strategy),
        )
        released = dataclasses.replace(guarantee, released=self.estimation.released).made_of(
            "the look that scaled its columns", is_secret=self.has_secret_look
        )
        return self.scorer.promised(plan, released)


def is_array(value: object) -> bool:
    """Whether ``value`` is an array, and no scalar."""
    return bool(getattr(value, "ndim", 0))


def _named(device: jax.Device) -> str:
    return f"{device.platform}:{device.id}"


@takes(FitRequest)
def resolve(request: FitRequest) -> FitSpec:
    """Check a request and choose the settings that it leaves out.

    :raises ArgumentError: naming the argument and its value.
    """
    check_clipping(request.clipping, request.strategy)
    devices = devices_named(request.devices, request.device)
    model = as_model(request.model)
    columns = for_model(columns_of(request.data), model)
    source = columns.source
    share, scales, is_secret = share_and_scales(request.look, model, source)
    if source.units is not None and source.units.are_padded:
        raise _validate.ArgumentError(
            "data",
            source.name,
            'is padded already: pass the data set itself, with "present" among the arrays of the '
            "model.",
        )
    is_oblivious = source.stored is not None and source.stored.reading == "oblivious"
    if is_oblivious and request.sampler not in OBLIVIOUS_SAMPLERS:
        raise _validate.ArgumentError(
            "sampler",
            request.sampler,
            f"cannot be used with oblivious reading; use one of: {', '.join(OBLIVIOUS_SAMPLERS)}.",
        )
    data = model.view(source)
    if len(devices) > 1 and is_oblivious:
        raise _validate.ArgumentError(
            "devices",
            request.devices,
            f"cannot spread the records of {source.name!r}, which are read obliviously; open "
            "it with reading='direct', which hides no reads, or with 'memory'.",
        )
    if len(devices) > 1 and data.units is not None:
        raise _validate.ArgumentError(
            "devices",
            request.devices,
            f"cannot be used when a {data.unit} has several rows; use one device.",
        )
    if request.evaluate_private and not data.num_evaluation:
        raise _validate.ArgumentError(
            "evaluate_private",
            True,
            f"needs evaluation records, and {data.name!r} has none: hold some out, as with "
            "evaluation_fraction=0.2, or give evaluation=.",
        )
    declared = data.num_train if request.num_records is None else request.num_records
    drawn_from = LAWS[request.sampler].public_size(declared, data.num_train)
    requested = {entry.name: getattr(request, entry.name) for entry in fields(Settings)}
    rows = data.rows_clipped
    constants = dict(model.constants(data))
    delta = default_delta(declared) if request.delta is None else request.delta
    relation = request.relation or LAWS[request.sampler].relations[0]
    # processes that take steps together do not look yet
    is_alone = len({device.process_index for device in devices}) == 1
    looks = share is None and looks_by_default(model, source) and is_alone
    budget = declared, request.epsilon, delta, relation
    share = columns.share(share, model, is_alone, budget)
    learns = bool(share or scales)
    one_shot = one_shot_for(request, model, data, constants, declared, learns)
    estimation: Estimation = one_shot or Gradients(
        request.estimator or "aligned", request.optimizer is None
    )
    if one_shot is not None:
        requested |= one_shot.settings(request, data, drawn_from)
    advice = model.advice(data, drawn_from, request.epsilon)
    by_rule = requested["clip"] is None and request.clipping == "flat"
    adapts_clip = isinstance(request.clip, str) or (by_rule and bool(advice.get("adapts_clip")))
    if isinstance(request.clip, str):
        requested["clip"] = None
    follows = learns and one_shot is None and requested["clip"] is None
    chosen = defaults.complete(requested, advice, drawn_from, rows) | {
        "delta": delta,
        "num_records": declared,
        **estimation.fixed_settings,
        "look": share or 0.0,
    }
    chosen["sampling_rate"] = sampling_rate_of(
        chosen["sampling_rate"], chosen["batch_size"], drawn_from
    )
    of_clip = {"clip": chosen["clip"], "adapts_clip": adapts_clip, "clip_follows_look": follows}
    planned = {name: chosen[name] for name in (*_PLANNED, "look")}
    privacy = PrivacySettings(**planned, **of_clip)
    chosen |= {**privacy.as_arguments(), "batch_size": None, "device": _named(devices[0])}
    if scales:
        chosen["look"] = as_setting(scales, is_secret=is_secret)
    if len(devices) > 1:
        chosen |= {"device": None, "devices": [_named(entry) for entry in devices]}
    # rows of a person add up
    largest = min(rows * float(advice.get("largest_clip", LARGEST_CLIP)), LARGEST_CLIP)
    spec = FitSpec(
        model,
        data,
        source,
        constants,
        privacy,
        Settings(**chosen),
        devices,
        estimation,
        request,
        columns,
        largest,
        scales_are_guessed=looks and not share,
        scorer=_SCORERS[request.covered_scores](),
        has_secret_look=is_secret,
    )
    return spec.with_scales(scales) if scales else spec
