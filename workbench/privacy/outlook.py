"""The outlook: what the plan of a private run means, computed before any fit and before any private
record is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench import _validate
from workbench._limits import MAX_EPSILON
from workbench._numbers import count
from workbench._validate import ArgumentError
from workbench.privacy.accounting import epsilon, round_up
from workbench.privacy.calibration import noise_multiplier
from workbench.privacy.guarantee import percent
from workbench.privacy.plan import PrivacyPlan, PrivacySettings

__all__ = ["ALL", "MOST", "Outlook", "outlook"]

# room for how many times the quantities sufficed in regressions on made-up records, as a test
# checks
MOST, ALL = 30, 100  # for most of them, for all of them

_TIMES = 4.0  # how far epsilons that are compared are from the plan's
# false-positive rates of the trade-off curve, denser where they are small and the curve bends most
_FALSE_POSITIVE_RATES = (
    *(0.0001 * step**2 for step in range(40)),
    *(0.02 * step for step in range(8, 51)),
)


@dataclass(frozen=True)
class Outlook:
    """The consequences of a plan. They depend on its public settings alone, so showing them costs
    no privacy.

    >>> from workbench.privacy.outlook import outlook
    >>> prepared = wb.prepare("logistic", "breast_cancer", epsilon=1.0)
    >>> print(outlook(prepared.plan, prepared.step.noise_size).words()[1])
    An attacker who wrongly accuses 1 % of outsiders finds at most 2.7 % of those who took part, and
    raises a suspicion of 50 % to at most 72.5 %.

    :param settings: of the plan; its ``num_records`` is the declared N.
    :param dimension: d, the number of coordinates that get noise.
    :param noise_multiplier: sigma, the noise's standard deviation in one coordinate / C.
    :param minibatch_size: expected number of records in a minibatch, q N, or their fixed number if
        the sampler has one.
    :param curve: ``PrivacyPlan.epsilon_curve``, which takes a tenth of a second and is called where
        it is shown.
    :param attack_bounds: ``Guarantee.attack_bounds`` of the whole plan.
    :param trade_off: (false-positive rate, upper bound on the true-positive rate) of any test for
        one record's presence, from 0 to 1: ``Guarantee.trade_off``.
    :param epsilon_for_all: epsilon at which ``room`` would be ``dimension``, all else equal; None
        where it is that already, or where epsilon would be too large to account for.
    """

    settings: PrivacySettings
    dimension: int
    noise_multiplier: float
    minibatch_size: float
    # a plan knows private numbers
    curve: Callable[[], Sequence[tuple[int, float]]] = field(repr=False, compare=False)
    attack_bounds: Mapping[str, float]
    trade_off: tuple[tuple[float, float], ...]
    epsilon_for_all: float | None = None

    @property
    def epsilon_curve(self) -> tuple[tuple[int, float], ...]:
        """(number of steps, upper bound on their epsilon), as ``PrivacyPlan.epsilon_curve`` has
        them.
        """
        return tuple(self.curve())

    @property
    def signal_to_noise(self) -> float:
        """An upper limit on the norm of one step's signal over the norm of its noise.

        The clipped gradients of an expected minibatch add up to a norm of at most q N C, which they
        reach only if all records pull in the same direction. The noise has about the norm sigma C
        sqrt(d). So the limit is q N / (sigma sqrt(d)).
        """
        return self.minibatch_size / (self.noise_multiplier * math.sqrt(self.dimension))

    @property
    def mean_signal_to_noise(self) -> float:
        """The same limit for the mean of T steps: sqrt(T) times that of one step, because
        independent noise averages out.
        """
        return self.signal_to_noise * math.sqrt(self.settings.iterations)

    @property
    def room(self) -> float:
        """An upper limit on how many quantities the release can tell apart from nothing: N q
        sqrt(T) / (2 sigma).

        A quantity counts if the mean of T noised gradients leaves it a standard deviation of at
        most half of 1 / C, the change by which a record's log-likelihood changes by at most 1. With
        curvature h that deviation is sigma C / (q sqrt(T) h), and over orthogonal directions the
        curvatures, which are mean squares of gradients, add up to at most N C^2. Columns that
        resemble each other share theirs, so of such data fewer quantities can be told.
        """
        settings = self.settings
        return self.minibatch_size * math.sqrt(settings.iterations) / (2 * self.noise_multiplier)

    @functools.cached_property
    def noise_near(self) -> tuple[tuple[float, float], ...]:
        """(epsilon, its sigma over this plan's), for the plan's epsilon and powers of two from a
        quarter of it to four times, all else equal.

        The noise of a release, and with it what noise adds to the standard deviation of a posterior
        interval, is proportional to sigma. Which part of an interval that is depends on the
        records. An epsilon that no supported noise keeps is left out.
        """
        epsilon = self.settings.epsilon
        powers = range(
            math.ceil(math.log2(epsilon / _TIMES)), math.floor(math.log2(epsilon * _TIMES)) + 1
        )
        noises = {
            near: self._noise_for(near) for near in sorted({epsilon, *(2.0**k for k in powers)})
        }
        planned = noises[epsilon]
        return tuple(
            (near, sigma / planned)
            for near, sigma in noises.items()
            if planned is not None and sigma is not None
        )

    def _noise_for(self, epsilon: float) -> float | None:
        """Sigma of this plan with another epsilon; None where none is supported."""
        settings = self.settings
        try:
            return noise_multiplier(
                epsilon=epsilon,
                delta=settings.delta,
                sampler=settings.sampler,
                relation=settings.relation,
                sampling_rate=settings.sampling_rate,
                steps=settings.iterations,
            )
        except ArgumentError:
            return None

    @property
    def verdict(self) -> str:
        """Whether the signal can suffice for the model.

        ``room`` is reached where gradients are as long as C and point in orthogonal directions.
        Those of records are shorter, so room for all quantities needs to be there many times over.
        """
        quantities, settings = self.dimension, self.settings
        if quantities > settings.num_records:
            return (
                f"The model's {count(quantities)} quantities are more than the records: noise may "
                "hide most of what it learns."
            )
        if self.room >= quantities:
            if self.room >= ALL * quantities:
                every = (
                    "the model's quantity"
                    if quantities == 1
                    else f"all {count(quantities)} quantities of the model"
                )
                return (
                    f"The noise leaves room for {every}, unless columns resemble each other "
                    "closely."
                )
            many = "most" if self.room < MOST * quantities else "some"
            if quantities == 1:
                return "Noise may hide the model's quantity."
            return f"Noise may hide {many} of the model's {count(quantities)} quantities."
        more = [f"{_rounded_up(settings.num_records * quantities / max(self.room, 1e-9))} records"]
        if self.epsilon_for_all is not None:
            more.insert(0, f"epsilon {_rounded_up(self.epsilon_for_all)}")
        most = count(math.floor(self.room))
        return (
            f"The noise leaves room for at most {most} of the model's {count(quantities)} "
            "quantities, and for fewer where columns resemble each other. For all of them it "
            f"takes at least {' or '.join(more)}."
        )

    @property
    def _margin(self) -> str:
        """How many times the bare minimum the signal is, where that matters; "" elsewhere."""
        times = self.room / self.dimension
        if self.dimension > self.settings.num_records or not 1 <= times < ALL:
            return ""
        enough = f"{MOST} times to show most" if times < MOST else f"{ALL} times to show all"
        return (  # regressions on made-up records
            f"The signal is at most {_rounded_down(times)} times the bare minimum for so many "
            f"quantities; trials needed {enough}."
        )

    def words(self) -> list[str]:
        """What sigma means, what an attacker can learn and how strong the signal can be, in plain
        words.
        """
        sigma = f"{self.noise_multiplier:g}"
        caught, belief = (
            self.attack_bounds["true_positive_rate_at_1_percent"],
            self.attack_bounds["belief_from_half"],
        )
        steps = count(self.settings.iterations, " ")
        # how many there are may follow from a look
        coordinates = "each coordinate"
        if not self.settings.look:
            coordinates = f"each of {count(self.dimension, ' ')} coordinates"
        verdict = (
            " Below 1, the noise is larger than any signal."
            if self.mean_signal_to_noise < 1
            else ""
        )
        return [
            f"sigma = {sigma}: every step adds random noise to {coordinates}, {sigma} times "
            "as large as the most that one record may contribute there.",
            f"An attacker who wrongly accuses 1 % of outsiders finds at most {percent(caught)} of "
            f"those who took part, and raises a suspicion of 50 % to at most {percent(belief)}.",
            "Even if all records pulled in the same direction, the signal would be at most "
            f"{_rounded_up(self.signal_to_noise)} times the noise in one step, and at most "
            f"{_rounded_up(self.mean_signal_to_noise)} times in the mean of {steps} "
            f"steps.{verdict}",
            f"{self.verdict} {self._margin}".strip(),
        ]


def outlook(plan: PrivacyPlan, dimension: int) -> Outlook:
    """What ``plan`` means with noise in ``dimension`` coordinates
    (``PreparedFit.step.noise_size``).

    It takes a hundredth of a second after the calibration, and its curve a tenth, which a fit of
    the same plan reuses.

    :param dimension: d >= 1.
    :raises ArgumentError: if ``dimension`` is out of range, or epsilon is too large for the noise
        to keep it.
    """
    dimension = _validate.integer("dimension", dimension, at_least=1)
    settings = plan.settings
    guarantee = plan.guarantee(
        steps_taken=settings.iterations, unit="record", dimension=dimension, caveats=()
    )
    # under add_or_remove_one the number of records that the sampler draws from is private
    records = (
        settings.num_records
        if guarantee.relation == "add_or_remove_one"
        else plan.sampler.num_records
    )
    rates = guarantee.trade_off(_FALSE_POSITIVE_RATES)
    result = Outlook(
        settings=settings,
        dimension=dimension,
        noise_multiplier=guarantee.noise_multiplier,
        minibatch_size=guarantee.sampling_rate * records,
        curve=plan.epsilon_curve,
        attack_bounds=guarantee.attack_bounds(),
        trade_off=tuple(zip(_FALSE_POSITIVE_RATES, map(float, rates), strict=True)),
    )
    return replace(result, epsilon_for_all=_epsilon_for_all(result, guarantee.relation))


def _epsilon_for_all(result: Outlook, relation: str) -> float | None:
    """Epsilon of the plan with so much less noise that ``room`` is d."""
    settings = result.settings
    if result.room >= result.dimension or result.dimension > settings.num_records:
        return None
    try:
        value = epsilon(
            sampler=settings.sampler,
            relation=relation,
            sampling_rate=settings.sampling_rate,
            noise_multiplier=result.noise_multiplier * result.room / result.dimension,
            steps=settings.iterations,
            delta=settings.delta,
        )
    except ArgumentError:  # too little noise to account for
        return None
    return value if value <= MAX_EPSILON else None


def _rounded_down(value: float) -> str:
    """``value`` between 1 and 100, rounded down to two digits."""
    return f"{math.floor(10 * value) / 10:.1f}" if value < 10 else f"{math.floor(value)}"


def _rounded_up(value: float) -> str:
    """``value`` > 0 rounded up to two digits."""
    exponent = math.floor(math.log10(value)) - 1
    if exponent >= 0:
        return count(math.ceil(value / 10**exponent) * 10**exponent, " ")
    return f"{round_up(value, -exponent):.{-exponent}f}"
