"""The plan of a private run: the settings, the noise calibrated to them, and what the
implementation costs in delta.

delta is split. The subsampled Gaussian mechanism gets all but a thousandth (and what the sampler
costs), and the noise is calibrated to that. Minibatches that overflow their padding, and noise that
is not quite Gaussian, may use a thousandth each.

If an implementation differs from what is accounted for with probability p, that costs a delta of (1
+ e^epsilon) p (``noise.integers.delta_cost``, step 3). At a large epsilon this would be more than
its share of delta. Such a plan keeps a smaller epsilon instead, the largest in tenths at which the
cost has its share. What is (epsilon, delta)-private is so at every larger epsilon too, so what was
asked for is kept.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from workbench import _validate
from workbench._limits import LARGEST_CLIP, MOST_RECORDS, MOST_STEPS, SMALLEST_CLIP
from workbench._numbers import count, upper
from workbench.noise.integers import delta_cost
from workbench.noise.mechanism import CLIPPINGS, GaussianMechanism
from workbench.privacy import accounting
from workbench.privacy.calibration import Candidate, gaussian_mu, noise_multiplier
from workbench.privacy.guarantee import ASKED_FOR, Guarantee
from workbench.privacy.implementation import (
    SHARE,
    affordable,
    failure_cost,
    log_factor,
    mechanism_delta,
    sampler_for,
)
from workbench.privacy.second_opinion import SecondOpinion, confirm
from workbench.privacy.steps import LAWS, SENSITIVITY, Phase, Steps, looked
from workbench.sampling import Sampler
from workbench.sampling.poisson import SMALLEST_RATE

__all__ = [
    "OF_CLIP",
    "PrivacyPlan",
    "PrivacySettings",
    "default_delta",
    "make_plan",
    "sampling_rate_of",
]

OF_CLIP = ("clip", "adapts_clip", "clip_follows_look")  # settings that may change after a look

_LEAST_LOOK_NOISE = 0.2  # as calibrated noise is never less


@dataclass(frozen=True)
class PrivacySettings:
    """The settings that change the guarantee. Creating it checks them.

    :param epsilon: in (0, 100].
    :param delta: in (0, 1).
    :param iterations: T >= 1, planned steps.
    :param sampling_rate: q in [2^-32, 1], public. For "random_allocation" it is at least 1e-7, and
        becomes 1 / t, with t = 1 / q rounded to a whole number.
    :param sampler: "poisson", "without_replacement", "shuffle" or "random_allocation".
    :param clip: C > 0.
    :param num_records: N in 2 .. 2^30 - 1, declared public; an upper bound under add_or_remove_one.
    :param seed: None for secret randomness; a number >= 0 makes the run reproducible, and its noise
        predictable for everybody who knows the number.
    :param relation: the neighbouring relation; None stands for the sampler's own
        (``steps.LAWS``).
    :param clipping: how a record's gradient is brought to norm C, one of
        ``noise.mechanism.CLIPPINGS``.
    :param adapts_clip: whether the run adapts C, which begins at ``clip``, from what it releases;
        with "flat" only.
    :param look: share of the budget, at most a half, for noised counts of the columns before the
        first step; 0 for none.
    :param clip_follows_look: whether C is chosen anew on the scales that the look learns; until
        then ``clip`` is that of the declared bounds.
    :raises ArgumentError: naming the argument and its value.
    """

    epsilon: float
    delta: float
    iterations: int
    sampling_rate: float
    sampler: str
    clip: float
    num_records: int
    seed: int | None
    relation: str | None = None
    clipping: str = "flat"
    adapts_clip: bool = False
    look: float = 0.0
    clip_follows_look: bool = False

    def __post_init__(self) -> None:
        law = LAWS[_validate.choice("sampler", self.sampler, LAWS)]
        checked = {
            "epsilon": _validate.epsilon("epsilon", self.epsilon),
            "delta": _validate.probability("delta", self.delta),
            "iterations": _validate.integer(
                "iterations", self.iterations, at_least=1, at_most=MOST_STEPS
            ),
            "sampling_rate": _validate.number(
                "sampling_rate", self.sampling_rate, at_least=SMALLEST_RATE, at_most=1
            ),
            "clip": _validate.number(
                "clip", self.clip, at_least=SMALLEST_CLIP, at_most=LARGEST_CLIP
            ),
            "num_records": _validate.integer(
                "num_records", self.num_records, at_least=2, at_most=MOST_RECORDS
            ),
            "relation": _validate.choice(
                "relation",
                law.relations[0] if self.relation is None else self.relation,
                law.relations,
            ),
            "clipping": _validate.choice("clipping", self.clipping, CLIPPINGS),
            "seed": None if self.seed is None else _validate.seed("seed", self.seed),
            "adapts_clip": _validate.flag("adapts_clip", self.adapts_clip),
            "look": _validate.number("look", self.look, at_least=0, at_most=0.5),
        }
        if self.adapts_clip and self.clipping != "flat":
            raise _validate.ArgumentError(
                "clip", "auto", f'takes clipping="flat", not {self.clipping!r}.'
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "sampling_rate", law.rate(self.sampling_rate))

    def as_arguments(self) -> dict[str, Any]:
        """The same settings as ``workbench.fit`` takes them."""
        return without_flags_of_clip(asdict(self))

    def facts(self) -> dict[str, Any]:
        """The settings by name, as results keep them: after a look, if there was one."""
        facts = asdict(self)
        return {name: facts[name] for name in facts if name != "clip_follows_look"}

    def cautions(self) -> tuple[str, ...]:
        """A sentence about each value that is allowed but unwise."""
        if self.delta < 1 / self.num_records:
            return ()
        return (
            f"delta={self.delta:g} is not below 1/N = {1 / self.num_records:.3g} for N = "
            f"{self.num_records} records. Such a delta allows a mechanism that publishes one "
            f"record in full. {default_delta(self.num_records):g} is a usual choice here.",
        )


def without_flags_of_clip(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` with C as a caller gives it: "auto" where the run adapts it, None where nobody
    chose it and it follows a look.
    """
    clip = None if settings.get("clip_follows_look") else settings["clip"]
    return {name: settings[name] for name in settings if name not in OF_CLIP} | {
        "clip": "auto" if settings.get("adapts_clip") else clip
    }


def default_delta(num_records: int) -> float:
    """The largest power of ten below 1 / N."""
    exponent = math.ceil(math.log10(num_records))
    value = float(f"1e-{exponent}")
    return value if value < 1 / num_records else float(f"1e-{exponent + 1}")


class LookPhase(NamedTuple):
    """Noised counts of the columns, from all records, before the first step.

    :param noise_multiplier: sigma, standard deviation of the noise over the counts' sensitivity.
    :param size: number of counts.
    """

    noise_multiplier: float
    size: int


@dataclass(frozen=True)
class PrivacyPlan:
    """Settings, with the sampler and the noise that keep them. Made by ``make_plan``.

    :param sampler: draws the minibatches.
    :param mechanism: clips to C and adds noise of sigma C.
    :param overflow_delta: share of delta for the sampler's padding and rounding.
    :param opinion: of an independent computation of epsilon; None where there is none
        (``confirmed``).
    :param requested_epsilon: what was asked for, at least that of ``settings``, which is kept.
    :param reads_obliviously: as of ``make_plan``.
    :param look: at the columns, before the first step; None for none.
    :param delta_of_texts: share of delta for texts of one record that the look may show.
    """

    settings: PrivacySettings
    sampler: Sampler
    mechanism: GaussianMechanism
    overflow_delta: float
    opinion: SecondOpinion | None = None
    requested_epsilon: float = 0.0
    reads_obliviously: bool = False
    look: LookPhase | None = None
    delta_of_texts: float = 0.0

    def for_noise_in(self, dimension: int) -> PrivacyPlan:
        """The plan for noise in ``dimension`` coordinates: this one, or one of an epsilon at which
        the noise has its share.

        >>> from workbench.privacy.plan import PrivacySettings, make_plan
        >>> asked = PrivacySettings(50.0, 1e-5, 1000, 0.1, "poisson", 1.0, 5000, None)
        >>> make_plan(asked, 5000).for_noise_in(10).settings.epsilon
        22.9

        :raises ArgumentError: as ``make_plan``; where no epsilon leaves the noise its share,
            ``noise_delta`` says so.
        """
        draws = self.draws(dimension)
        settings = affordable(self.settings, lambda epsilon: delta_cost(draws, epsilon))
        if settings.epsilon == self.settings.epsilon:
            return self
        made = make_plan(
            settings,
            self.sampler.num_records,
            self.reads_obliviously,
            self._look_size,
            self.delta_of_texts,
        )
        plan = replace(made, requested_epsilon=self.requested_epsilon)
        return plan if type(plan.sampler) is type(self.sampler) else plan.with_sampler(self.sampler)

    def with_sampler(self, sampler: Sampler) -> PrivacyPlan:
        """The same plan with another implementation of its sampler, for ``DPVI(privacy=plan)``;
        nothing else changes.

        The accountant counts what minibatches by the law of that name cost. That the implementation
        draws by this law, but for its ``total_variation``, is for those who wrote it to show.

        >>> from workbench.privacy.plan import PrivacySettings, make_plan
        >>> settings = PrivacySettings(1.0, 1e-5, 1000, 0.1, "poisson", 1.0, 5000, None)
        >>> other = wb.sampling.PoissonSampler(5000, 0.1, capacity=900)
        >>> make_plan(settings, 5000).with_sampler(other).sampler.capacity
        900

        :param sampler: of the same name, number of records and rate as the plan's; and capacity,
            where sizes are fixed.
        :raises ArgumentError: naming ``sampler``, for another one, or one that costs more delta
            than the plan has for it.
        """
        facts = ["name", "num_records", "public_size", "sampling_rate", "has_random_size"]
        for fact in facts if self.sampler.has_random_size else [*facts, "capacity"]:
            expected = getattr(self.sampler, fact)
            if getattr(sampler, fact, None) != expected:
                raise _validate.ArgumentError(
                    "sampler", sampler, f"must have {fact} = {expected!r}, as the plan's has."
                )
        cost = failure_cost(self.settings, sampler, self.settings.epsilon, self.reads_obliviously)
        if not cost <= self.overflow_delta:
            raise _validate.ArgumentError(
                "sampler",
                sampler,
                f"costs a delta of {cost:.1e}, and the plan has {self.overflow_delta:.1e} for "
                "that: give it more places for minibatches, or let it be nearer to its law.",
            )
        return replace(self, sampler=sampler)

    def after_look(
        self, settings: PrivacySettings, num_train: int, *, is_vacant: bool = False
    ) -> PrivacyPlan:
        """The same plan with what may follow from its look: C and how it is chosen, as in
        ``settings``, since the noise is relative to C; and fewer records, if their number is
        hidden. :param is_vacant: whether there is none, and one stands for them.
        """
        changed = replace(self.settings, **{name: getattr(settings, name) for name in OF_CLIP})
        mechanism, sampler = replace(self.mechanism, clip=settings.clip), self.sampler
        if LAWS[settings.sampler].hides_size:
            records = {"num_records": num_train, "is_vacant": is_vacant}
            sampler = replace(sampler, **records)  # type: ignore[type-var]
        return replace(self, settings=changed, mechanism=mechanism, sampler=sampler)

    @property
    def candidate(self) -> Candidate:
        """The steps as a choice draws them, without their noise."""
        before = Phase(1.0, self._look_noise, 1) if self._look_noise else None
        return Candidate(self.sampler.sampling_rate, self.settings.iterations, before)

    @property
    def accounted(self) -> Steps:
        """What accountants take."""
        terms = self._accounted(self.settings.iterations)
        return Steps.checked(**{name: terms[name] for name in terms if name != "delta"})

    @property
    def score_noise(self) -> float:
        """Noise of one release from records that no step reads, at the plan's epsilon."""
        delta = mechanism_delta(self.settings, self._outside_delta)
        return noise_multiplier(
            epsilon=self.settings.epsilon, delta=delta, sampling_rate=1.0, steps=1
        )

    def failure_delta(self, epsilon: float) -> float:
        """Upper bound on what minibatches that are not ideal, and texts, cost in delta at
        ``epsilon``.
        """
        growth = log_factor(epsilon, 1) - log_factor(self.settings.epsilon, 1)
        return self.delta_of_texts + self.overflow_delta * math.exp(max(growth, 0.0))

    def with_noise(self, noise_multiplier: float) -> PrivacyPlan:
        """The same steps with other noise, and the epsilon that they keep at the same delta."""
        mechanism = replace(self.mechanism, noise_multiplier=noise_multiplier)
        plan = replace(self, mechanism=mechanism, requested_epsilon=0.0)
        epsilon = accounting.round_up(
            max(accounting.epsilon(**plan._accounted(self.settings.iterations)), 1e-4), 4
        )
        return replace(plan, settings=replace(self.settings, epsilon=epsilon))

    def confirmed(self) -> PrivacyPlan:
        """The same plan with a second opinion on its epsilon, which every run asks for before its
        first step.

        :raises DisagreementError: if the opinion is larger by more than rounding.
        """
        delta = mechanism_delta(self.settings, self._outside_delta)
        return replace(self, opinion=confirm(self.accounted, delta, self.settings.epsilon))

    def noise_delta(self, dimension: int, *, in_steps: bool = True) -> float:
        """The delta that noise in ``dimension`` coordinates costs in T steps, for its distance from
        rounded Gaussians.

        :param in_steps: False for a release whose whole numbers have 64 bits.
        :raises ArgumentError: if it is more than a thousandth of delta, or if there is more noise
            than whole numbers hold.
        """
        settings, sigma = self.settings, self.mechanism.noise_multiplier
        cost = delta_cost(self.draws(dimension), settings.epsilon)
        if cost > settings.delta * SHARE:
            raise _validate.ArgumentError(
                "delta",
                settings.delta,
                f"is so small that the rounding of the noise alone costs {cost:.1e}: choose a "
                "larger delta, a smaller epsilon or fewer iterations.",
            )
        if in_steps and not self.mechanism.has_room(self.sampler.capacity, dimension):
            raise _validate.ArgumentError(
                "epsilon",
                settings.epsilon,
                f"is so small that it takes noise of {sigma:g} times the clipping norm in each "
                f"of {dimension} coordinates, more than whole numbers of 32 bits hold: choose a "
                "larger epsilon, fewer iterations or a smaller model.",
            )
        return cost

    def epsilon_after(self, steps: int) -> float:
        """Upper bound on epsilon of the first ``steps`` steps at the plan's delta, rounded up; at
        most the plan's own.
        """
        taken = accounting.epsilon(**self._accounted(steps))
        return min(accounting.round_up(taken, 4), self.settings.epsilon)

    def _accounted(self, steps: int) -> dict[str, Any]:
        """The arguments of accountants for the look and the first ``steps`` steps."""
        schedule = looked(
            self._look_noise, self.sampler.sampling_rate, self.mechanism.noise_multiplier, steps
        )
        return {
            "sampler": self.settings.sampler,
            "relation": self._relation,
            **schedule._asdict(),
            "delta": mechanism_delta(self.settings, self._outside_delta),
        }

    @property
    def _outside_delta(self) -> float:
        """The part of delta that the noise has nothing to do with."""
        return self.overflow_delta + self.delta_of_texts

    def draws(self, dimension: int) -> float:
        """How many draws of noise a run takes in ``dimension`` coordinates."""
        return float(self.settings.iterations) * dimension + self._look_size

    @property
    def _look_size(self) -> int:
        return 0 if self.look is None else self.look.size

    @property
    def _look_noise(self) -> float:
        return 0.0 if self.look is None else self.look.noise_multiplier

    @property
    def _relation(self) -> str:
        return str(self.settings.relation)

    def epsilon_curve(self) -> list[tuple[int, float]]:
        """(number of steps, upper bound on their epsilon at the plan's delta), ascending; the last
        is for T steps.
        """
        curve = accounting.epsilon_curve(**self._accounted(self.settings.iterations))
        before = self.look is not None  # one step of what is accounted for
        return [(count - before, min(value, self.settings.epsilon)) for count, value in curve]

    def epsilon_so_far(self) -> Callable[[int], float]:
        """A fast upper bound on ``epsilon_after`` for display: the value of ``epsilon_curve`` at
        the next point above.
        """
        start = (0, self.epsilon_after(0))
        points = [point for point in self.epsilon_curve() if point[0] > 0]
        counts, values = zip(start, *points, strict=True)
        return lambda step: values[bisect.bisect_left(counts, step)]

    def guarantee(
        self,
        *,
        steps_taken: int,
        unit: str,
        dimension: int,
        caveats: tuple[str, ...],
        max_rows: int | None = None,
        against_storage: bool = False,
        covers_deletion: bool = False,
        in_steps: bool = True,
    ) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps with noise in ``dimension``
        coordinates.

        :param unit: what one record is.
        :param max_rows: how many rows it may have, if it has several.
        :param against_storage: whether reads of the records tell an observer of their storage
            nothing.
        :param covers_deletion: whether sums do not depend on the places of records
            (``clipping.clipped_sums.is_by_record``).
        :param in_steps: as of ``noise_delta``.
        """
        settings = self.settings
        return Guarantee(
            epsilon=settings.epsilon,
            delta=settings.delta,
            relation=self._relation,
            unit=unit,
            sampler=settings.sampler,
            sampling_rate=self.sampler.sampling_rate,
            noise_multiplier=self.mechanism.noise_multiplier,
            clip=settings.clip,
            clipping=settings.clipping,
            adapts_clip=settings.adapts_clip,
            steps=settings.iterations,
            steps_taken=steps_taken,
            epsilon_taken=self.epsilon_after(steps_taken),
            num_records=settings.num_records,
            accountant="pld",
            overflow_delta=self._outside_delta,
            noise_delta=self.noise_delta(dimension, in_steps=in_steps),
            arithmetic="whole numbers",
            secure_randomness=settings.seed is None,
            second_opinion="" if self.opinion is None else self.opinion.words(),
            caveats=(
                *caveats,
                *([f"Here, a record is one {unit} with all rows."] if max_rows else ()),
                *self._caveats(),
            ),
            max_rows=max_rows,
            against_storage=against_storage,
            covers_deletion=covers_deletion,
            look_noise=self._look_noise,
        )

    def _caveats(self) -> tuple[str, ...]:
        settings = self.settings
        lines = []
        if settings.seed is not None:
            lines.append(
                f"Everybody who knows the seed ({settings.seed}) can predict the noise: do not "
                "share this result."
            )
        if self.requested_epsilon > settings.epsilon:
            lines.append(
                f"epsilon = {upper(self.requested_epsilon)} {ASKED_FOR}, and "
                f"{upper(settings.epsilon)} is kept: with less noise, the rounding of noise and "
                "minibatches would cost more than a thousandth of delta."
            )
        if self._relation == "add_or_remove_one":
            size = settings.num_records
        else:
            size = self.sampler.num_records
            lines.append(f"Under {self._relation} the number of records is not hidden.")
        lines.append(
            f"The number of records (N = {count(size, ' ')}), the sampling rate and any bounds "
            "declared for scaling are treated as public constants."
        )
        if settings.clip_follows_look:
            lines.append(
                "The norm that gradients are clipped to follows the scales that the look learns, "
                "and the noise stays the same multiple of it."
            )
        if self.sampler.remark:
            lines.append(self.sampler.remark)
        lines += [
            "This is one fit. The epsilons of several fits on the same records add up, and "
            "choosing among them by private scores leaks too.",
        ]
        return tuple(lines)


def sampling_rate_of(sampling_rate: Any, batch_size: Any, num_records: int) -> float:
    """q, from q itself or the (expected) minibatch size; 0.1 if neither is given.

    :raises ArgumentError: if both are given or one is out of range.
    """
    if batch_size is None:
        return _validate.number(
            "sampling_rate", 0.1 if sampling_rate is None else sampling_rate, above=0, at_most=1
        )
    if sampling_rate is not None:
        raise _validate.ArgumentError(
            "batch_size",
            batch_size,
            f"must be left out, because sampling_rate={sampling_rate} is given.",
        )
    return (
        _validate.integer("batch_size", batch_size, at_least=1, at_most=num_records) / num_records
    )


def make_plan(
    settings: PrivacySettings,
    num_train: int,
    reads_obliviously: bool = False,
    look_size: int = 0,
    delta_of_texts: float = 0.0,
) -> PrivacyPlan:
    """Sampler and noise for ``settings`` on ``num_train`` records.

    A sampler with minibatches of one size takes round(q N) records each. If drawing a minibatch is
    not ideal with probability p, that costs a delta of (1 + e^epsilon) T p. Where that is more than
    its share of delta, the plan keeps a smaller epsilon.

    :param reads_obliviously: whether records are brought from a file by passes that may fail, which
        is charged alike.
    :param look_size: number of counts of the look that ``settings`` asks for.
    :param delta_of_texts: share of delta for texts of one record that the look may show.
    :raises ArgumentError: if no supported noise keeps epsilon, or as ``SamplerLaw.public_size``.
    """
    requested_epsilon, allowance = settings.epsilon, settings.delta * SHARE

    def cost(epsilon: float) -> float:
        return failure_cost(
            settings, sampler_for(settings, num_train, epsilon), epsilon, reads_obliviously
        )

    settings = affordable(settings, cost)
    sampler, overflow_delta = (
        sampler_for(settings, num_train, settings.epsilon),
        cost(settings.epsilon),
    )
    if overflow_delta > allowance:
        raise _validate.ArgumentError(
            "delta",
            settings.delta,
            "is so small that rounding and padding of minibatches alone cost "
            f"{overflow_delta:.1e}: choose a larger delta or fewer iterations.",
        )
    if sampler.has_random_size:
        # the whole allowance, because the exact figure depends on the private number of records
        overflow_delta = allowance
    delta = mechanism_delta(settings, overflow_delta + delta_of_texts)
    look = _look_phase(settings, delta, look_size) if settings.look else None
    sigma = noise_multiplier(
        epsilon=settings.epsilon,
        delta=delta,
        sampler=settings.sampler,
        relation=settings.relation,
        sampling_rate=sampler.sampling_rate,
        steps=settings.iterations,
        before=None if look is None else Phase(1.0, look.noise_multiplier, 1),
    )
    mechanism = GaussianMechanism(settings.clip, sigma, settings.clipping)
    return PrivacyPlan(
        settings,
        sampler,
        mechanism,
        overflow_delta,
        None,
        requested_epsilon,
        reads_obliviously,
        look,
        delta_of_texts,
    )


def _look_phase(settings: PrivacySettings, delta: float, size: int) -> LookPhase:
    """The look that has ``settings.look`` of the budget of a Gaussian mechanism: 1 / sigma^2 of it
    is that share of the whole budget's.
    """
    mu = gaussian_mu(settings.epsilon, delta) * math.sqrt(settings.look)
    sigma = accounting.round_up(SENSITIVITY[str(settings.relation)] / mu, 4)
    return LookPhase(max(sigma, _LEAST_LOOK_NOISE), size)
