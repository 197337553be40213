"""The plan of a private run: what was asked for, the noise calibrated to it, and what the implementation costs in delta.

delta is split: the subsampled Gaussian mechanism gets all but a thousandth (and what the sampler costs), to which the
noise is calibrated; minibatches that overflow their padding and the noise's missing tail may use a thousandth each.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from workbench import _validate
from workbench.noise.mechanism import CLIPPINGS, GaussianMechanism
from workbench.noise.normals import NORMAL_BOUND
from workbench.privacy import accounting
from workbench.privacy.calibration import noise_multiplier
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.steps import SAMPLERS, SENSITIVITY
from workbench.sampling import PoissonSampler, Sampler, ShuffleSampler, WithoutReplacementSampler
from workbench.sampling.poisson import MOST_RECORDS, SMALLEST_RATE, log_overflow_probability, overflow_capacity

__all__ = ["PrivacyPlan", "PrivacySettings", "default_delta", "make_plan", "sampling_rate_of"]

_IMPLEMENTATION_SHARE = 1e-3
_EPSILON_OF_PADDING = 10.0


@dataclass(frozen=True)
class PrivacySettings:
    """Settings that change the guarantee, checked when made.

    :param epsilon: in (0, 100]. :param delta: in (0, 1). :param iterations: T >= 1, planned steps.
    :param sampling_rate: q in [2^-32, 1], public. :param sampler: "poisson", "without_replacement" or "shuffle".
    :param clip: C > 0. :param num_records: N in 2 .. 2^30 - 1, declared public. :param seed: None for secret randomness; a
        number >= 0 makes the run reproducible and the noise predictable to whoever knows it.
    :param relation: the neighbouring relation; None stands for the sampler's own (``steps.SAMPLERS``).
    :param clipping: how a record's gradient is brought to norm C, one of ``noise.mechanism.CLIPPINGS``.
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

    def __post_init__(self) -> None:
        relations = SAMPLERS[_validate.choice("sampler", self.sampler, SAMPLERS)]
        checked = {
            "epsilon": _validate.number("epsilon", self.epsilon, above=0, at_most=accounting.MAX_EPSILON),
            "delta": _validate.probability("delta", self.delta),
            "iterations": _validate.integer("iterations", self.iterations, at_least=1, at_most=2**31 - 1),
            "sampling_rate": _validate.number("sampling_rate", self.sampling_rate, at_least=SMALLEST_RATE, at_most=1),
            "clip": _validate.number("clip", self.clip, at_least=1e-12),
            "num_records": _validate.integer("num_records", self.num_records, at_least=2, at_most=MOST_RECORDS),
            "relation": _validate.choice("relation", relations[0] if self.relation is None else self.relation, relations),
            "clipping": _validate.choice("clipping", self.clipping, CLIPPINGS),
            "seed": None if self.seed is None else _validate.seed("seed", self.seed),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def cautions(self) -> tuple[str, ...]:
        """Sentences about values that are allowed but unwise."""
        if self.delta < 1 / self.num_records:
            return ()
        return (
            f"delta={self.delta:g} is not below 1/N = {1 / self.num_records:.3g} for N = {self.num_records} records: that "
            "would allow a mechanism that publishes one record in full. "
            f"{default_delta(self.num_records):g} is a usual choice here.",
        )


def default_delta(num_records: int) -> float:
    """The largest power of ten below 1 / N."""
    exponent = math.ceil(math.log10(num_records))
    value = float(f"1e-{exponent}")
    return value if value < 1 / num_records else float(f"1e-{exponent + 1}")


@dataclass(frozen=True)
class PrivacyPlan:
    """Settings with the sampler and the noise that keep them; made by ``make_plan``.

    :param sampler: draws the minibatches. :param mechanism: clips to C and adds noise of sigma C.
    :param overflow_delta: share of delta for the sampler's padding and rounding.
    """

    settings: PrivacySettings
    sampler: Sampler
    mechanism: GaussianMechanism
    overflow_delta: float

    def truncation_delta(self, dimension: int) -> float:
        """The delta that the noise's missing tail costs in T steps of ``dimension`` coordinates.

        A draw never leaves [-B, B], B = 9.15. Where outputs are possible under both of two neighbouring data sets, their
        densities have the ratio of the full Gaussians; where they are possible under one only, their probability
        counts as delta. In units of sigma C the two sums differ by s with |s| <= r = 1 / sigma (2 / sigma where a record is
        replaced), so a step costs at most
        sum_j P(B - |s_j| < Z <= B). Coordinates with |s_j| <= 1 / B add at most e sqrt(d) r phi(B) together (phi(B - s)
        <= e phi(B), and sum |s_j| <= sqrt(d) r); for the others P(B - s < Z) / s^2 is largest at an end of [1 / B, r],
        so they add at most r^2 B^2 P(Z > B - 1 / B) + P(Z > B - r).

        :raises ArgumentError: if it is more than a thousandth of delta.
        """
        bound = NORMAL_BOUND
        reach = SENSITIVITY[self._relation] / self.mechanism.noise_multiplier
        small = math.e * math.sqrt(dimension) * reach * math.exp(-(bound**2) / 2) / math.sqrt(2 * math.pi)
        large = (reach * bound) ** 2 * ndtr(1 / bound - bound) + ndtr(reach - bound)
        conditioning = self.settings.delta * 2 * dimension * ndtr(-bound)  # the cut densities are larger by this share
        cost = float(self.settings.iterations * (small + large + conditioning))
        if cost > self.settings.delta * _IMPLEMENTATION_SHARE:
            raise _validate.ArgumentError(
                "epsilon",
                self.settings.epsilon,
                f"so large that noise of {self.mechanism.noise_multiplier:g} times the clipping norm is enough, and there "
                f"the tail that 64-bit draws lack costs a delta of {cost:.1e}; take a smaller one, more iterations or a "
                "larger delta.",
            )
        return cost

    def epsilon_after(self, steps: int) -> float:
        """Upper bound on epsilon of the first ``steps`` steps at the plan's delta, rounded up; never above the plan's."""
        taken = accounting.epsilon(**self._accounted(steps))
        return min(accounting.round_up(taken, 4), self.settings.epsilon)

    def _accounted(self, steps: int) -> dict[str, Any]:
        """The arguments that accountants take for the first ``steps`` steps."""
        return {
            "sampler": self.settings.sampler,
            "relation": self._relation,
            "sampling_rate": self.sampler.sampling_rate,
            "noise_multiplier": self.mechanism.noise_multiplier,
            "steps": steps,
            "delta": _mechanism_delta(self.settings, self.overflow_delta),
        }

    @property
    def _relation(self) -> str:
        return str(self.settings.relation)

    def epsilon_curve(self) -> list[tuple[int, float]]:
        """(steps, upper bound on epsilon of so many steps at the plan's delta), ascending; the last is T."""
        curve = accounting.epsilon_curve(**self._accounted(self.settings.iterations))
        return [(count, min(value, self.settings.epsilon)) for count, value in curve]

    def epsilon_so_far(self) -> Callable[[int], float]:
        """A quick upper bound on ``epsilon_after`` for display: steps of ``epsilon_curve``, at the next point above."""
        counts, values = zip((0, 0.0), *self.epsilon_curve(), strict=True)
        return lambda step: values[bisect.bisect_left(counts, step)]

    def guarantee(self, *, steps_taken: int, unit: str, dimension: int, caveats: tuple[str, ...]) -> Guarantee:
        """The guarantee after ``steps_taken`` of the planned steps with noise in ``dimension`` coordinates."""
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
            steps=settings.iterations,
            steps_taken=steps_taken,
            epsilon_taken=self.epsilon_after(steps_taken),
            num_records=settings.num_records,
            accountant="pld",
            overflow_delta=self.overflow_delta,
            truncation_delta=self.truncation_delta(dimension),
            secure_randomness=settings.seed is None,
            caveats=(*caveats, *self._caveats()),
        )

    def _caveats(self) -> tuple[str, ...]:
        settings = self.settings
        lines = []
        if settings.seed is not None:
            lines.append(f"The noise is predictable to whoever knows the seed ({settings.seed}): do not share this result.")
        if self._relation == "add_or_remove_one":
            constants = f"The number of records (N = {settings.num_records})"
        else:
            constants = f"Under {self._relation} the number of records (N = {self.sampler.num_records}) is not hidden; it"
        lines.append(f"{constants}, the sampling rate and any bounds declared for scaling are treated as public constants.")
        if isinstance(self.sampler, ShuffleSampler) and self.sampler.left_out:
            lines.append(
                f"Minibatches of {self.sampler.batch_size} do not divide {self.sampler.num_records} records: each epoch "
                f"leaves {self.sampler.left_out} out, others every time."
            )
        lines += [
            "This is one fit: several on the same records add up, and choosing between them by private scores leaks too.",
            "Noise is drawn in floating point, whose last bits are not covered (Mironov 2012).",
        ]
        return tuple(lines)


def sampling_rate_of(sampling_rate: Any, batch_size: Any, num_records: int) -> float:
    """q from one of q and the (expected) minibatch size, .1 where neither is given.

    :raises ArgumentError: if both are given or one is out of range.
    """
    if batch_size is None:
        return _validate.number("sampling_rate", 0.1 if sampling_rate is None else sampling_rate, above=0, at_most=1)
    if sampling_rate is not None:
        raise _validate.ArgumentError("batch_size", batch_size, f"give either it or sampling_rate={sampling_rate}.")
    return _validate.integer("batch_size", batch_size, at_least=1, at_most=num_records) / num_records


def make_plan(settings: PrivacySettings, num_train: int) -> PrivacyPlan:
    """Sampler and noise for ``settings`` on ``num_train`` records.

    A sampler with minibatches of one size takes round(q N) records each. What drawing them is not exactly ideal costs
    (1 + e^epsilon) T times its probability of delta.

    :raises ArgumentError: if no supported noise keeps the promise.
    """
    sampler, failure = _sampler(settings, num_train)
    overflow_delta, share = math.exp(_log_factor(settings)) * failure, settings.delta * _IMPLEMENTATION_SHARE
    if overflow_delta > share:
        raise _validate.ArgumentError(
            "epsilon",
            settings.epsilon,
            f"so large that rounding and padding of minibatches alone cost a delta of {overflow_delta:.1e}; take less.",
        )
    if isinstance(sampler, PoissonSampler):
        overflow_delta = share  # the whole allowance: the exact figure would tell of a private number of records
    sigma = noise_multiplier(
        epsilon=settings.epsilon,
        delta=_mechanism_delta(settings, overflow_delta),
        sampler=settings.sampler,
        relation=settings.relation,
        sampling_rate=sampler.sampling_rate,
        steps=settings.iterations,
    )
    return PrivacyPlan(settings, sampler, GaussianMechanism(settings.clip, sigma, settings.clipping), overflow_delta)


def _log_factor(settings: PrivacySettings) -> float:
    """log((1 + e^epsilon) T): what a failure's probability in one step costs of delta (design: section 4)."""
    return float(np.logaddexp(0.0, settings.epsilon)) + math.log(settings.iterations)


def _sampler(settings: PrivacySettings, num_train: int) -> tuple[Sampler, float]:
    """The sampler, and the probability that its minibatch is not the ideal one."""
    batch_size = max(1, round(settings.sampling_rate * num_train))
    if settings.sampler == "without_replacement":
        without_replacement = WithoutReplacementSampler(num_train, batch_size)
        return without_replacement, without_replacement.total_variation
    if settings.sampler == "shuffle":
        # its guarantee counts on no randomness: a record enters at most once an epoch in whatever order
        return ShuffleSampler(num_train, batch_size), 0.0
    # the padding M follows the declared N; only if there are more records than declared, it follows them
    size = max(num_train, settings.num_records)
    share = settings.delta * _IMPLEMENTATION_SHARE
    # as for an epsilon of 10 where it is smaller: some places more, and fits that differ in epsilon share a compiled step
    padded = replace(settings, epsilon=max(settings.epsilon, _EPSILON_OF_PADDING))
    capacity = overflow_capacity(size, settings.sampling_rate, math.log(share / 2) - _log_factor(padded))
    sampler = PoissonSampler(num_train, settings.sampling_rate, capacity)
    overflow = math.exp(log_overflow_probability(size, settings.sampling_rate, capacity))
    return sampler, overflow + sampler.total_variation


def _mechanism_delta(settings: PrivacySettings, overflow_delta: float) -> float:
    """The part of delta that the subsampled Gaussian mechanism itself may use."""
    return settings.delta * (1 - _IMPLEMENTATION_SHARE) - overflow_delta
