"""The guarantee: the one object that all privacy numbers on screen, in files and in reports come
from.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import _html
from workbench._numbers import count, upper
from workbench._schema import Form, FormError, flag, listed, number, optional, record, text, whole
from workbench._validate import ArgumentError
from workbench.privacy import accounting
from workbench.privacy.accounting import round_up
from workbench.privacy.steps import LAWS, Steps, looked

__all__ = [
    "ASKED_FOR",
    "Guarantee",
    "change_of",
    "check_epsilon",
    "check_form",
    "epsilon_of_steps",
    "percent",
]

_RELATIONS = {
    "add_or_remove_one": "adding or removing any one {unit}",
    "replace_one": "replacing any one {unit} by another",
    "replace_special": "blanking any one {unit} in its place",
}
_CHANGES = {  # by the relation, and whether it covers a deleted row
    ("add_or_remove_one", False): "With any one {unit}'s place empty",
    ("add_or_remove_one", True): "With or without any one {unit}",
    ("replace_one", False): "With any one {unit} replaced",
    ("replace_one", True): "With any one {unit} replaced",
    ("replace_special", False): "With any one {unit} blanked",
    ("replace_special", True): "With any one {unit} blanked",
}
# without it, rows that move up are rounded in other blocks of the sum, which may move it by many
# times C
_PLACE_STAYS = " (its place stays empty)"
_DELETION = (
    "The guarantee does not cover a row that is deleted so that later rows move up: these are "
    "then rounded in other blocks "
    "of the sum, and the effect grows without limit, about with the square of the size of a "
    "minibatch. A fit with "
    'strategy="loop", which is slower, covers it.'
)
_OTHER_MACHINE = 1e-6  # share by which rounding may differ where a result is read
_HARDLY = 1.0  # epsilon: a positive answer raises a suspicion of 50 % to at most 73 %
_KNOWN = {
    "add_or_remove_one": "whether that {unit} was in the data",
    "replace_one": "whether that {unit} or another one was in the data",
    "replace_special": "whether that {unit} was in the data or blanked",
}
_CLIPPED = {
    "flat": "clipped to norm {clip:g}",
    "automatic": "scaled to norm {clip:g} or a little less",
    "per_leaf": "clipped parameter by parameter, to norm {clip:g} in total",
}
_ADAPTED = (
    "clipped to a norm C that started at {clip:g} and was then adapted from noised counts, at no "
    "extra privacy cost"
)
_LOOK = (
    "It also covers what a look learned first, such as the scales of the columns or which of them "
    "go together: from counts of the columns' values, and maybe sums of their products, with "
    "Gaussian noise of {noise:g} times the most that one of them can move these."
)
_SINGLE_RELEASES = {
    "sums": "The guarantee comes from {release} of sums over all records: the vector that "
    "each record adds to them was",
    "counts": "The guarantee comes from {release} of counts over all records: the counts "
    "that a record adds 1 to form a vector",
    "scores": "The guarantee comes from {release} of scores of a fit: what each record "
    "adds to counts and sums forms a vector",
}
_AGAINST_STORAGE = (
    "It also holds against an observer of the storage, who sees where and in which order the "
    "encrypted file of records and its scratch file are read and written. It does not hold "
    "against somebody who sees the memory of the process, how long it computes, or the run's "
    "checkpoints, which hold its secret key."
)

ASKED_FOR = "was asked for"  # in the caveat of a plan that keeps a smaller epsilon

_FORMS = {
    "epsilon": number(above=0),
    "delta": number(above=0, below=1),
    "relation": text(_RELATIONS),
    "unit": text(empty=False),
    "sampler": text(LAWS),
    "sampling_rate": number(above=0, at_most=1),
    "noise_multiplier": number(above=0),
    "clip": number(above=0),
    "steps": whole(at_least=1),
    "steps_taken": whole(),
    "epsilon_taken": number(at_least=0),
    "num_records": whole(at_least=1),
    "accountant": text(empty=False),
    "overflow_delta": number(at_least=0, below=1),
    "noise_delta": number(at_least=0, below=1),
    "secure_randomness": flag,
    "caveats": listed(text()),
    "clipping": text(_CLIPPED),
    "arithmetic": text(("whole numbers", "floating point")),
    "max_rows": optional(whole(at_least=1)),
    "second_opinion": text(),
    "adapts_clip": flag,
    "released": text(("gradients", *_SINGLE_RELEASES)),
    "against_storage": flag,
    "covers_deletion": flag,
    "look_noise": number(at_least=0),
}


def check_form(field: str, values: Any) -> None:
    """Check what ``Guarantee.to_dict`` wrote.

    :param field: its name, for errors. :raises FormError: naming a field in it.
    """
    kind = _kind_of(values)
    record({**_FORMS, **kind.forms()})(field, values)
    is_private = values.get("private") is not False
    within = f"{field}." if field else ""
    if is_private:
        try:
            Steps.checked(
                values["sampler"],
                values["relation"],
                *looked(
                    values["look_noise"],
                    values["sampling_rate"],
                    values["noise_multiplier"],
                    values["steps"],
                ),
            )
        except ArgumentError as error:
            raise FormError(f"{within}{error.argument}", error.expectation) from None
    if values["steps_taken"] > values["steps"]:
        raise FormError(f"{within}steps_taken", "must not be greater than steps.")
    if is_private and values["overflow_delta"] + values["noise_delta"] >= values["delta"]:
        raise FormError(
            f"{within}delta", "must be greater than overflow_delta and noise_delta together."
        )
    if is_private and values["epsilon_taken"] > values["epsilon"]:
        raise FormError(f"{within}epsilon_taken", "must not be greater than epsilon.")


def _kind_of(values: object) -> type[Guarantee]:
    """The class whose ``to_dict`` wrote ``values``."""
    if isinstance(values, dict) and values.get("private") is False:
        from workbench.privacy.no_privacy import NoPrivacy

        return NoPrivacy
    if isinstance(values, dict) and "candidates" in values:
        from workbench.privacy.chosen import Chosen

        return Chosen
    if isinstance(values, dict) and "folds" in values:
        from workbench.privacy.cross_validated import CrossValidated

        return CrossValidated
    if isinstance(values, dict) and "score_noise" in values:
        from workbench.privacy.chosen import Scored

        return Scored
    return Guarantee


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee of a release, made by the code that ran it.

    >>> guarantee = wb.fit("logistic", "breast_cancer", epsilon=1.0).guarantee
    >>> guarantee.epsilon, guarantee.delta, guarantee.relation, guarantee.unit
    (1.0, 0.001, 'add_or_remove_one', 'tumour')

    :param epsilon: the planned epsilon, which holds whenever and however the run ended.
    :param delta: the planned delta, ``overflow_delta`` and ``noise_delta`` included.
    :param relation: which data sets are neighbours: "add_or_remove_one", "replace_one" or
        "replace_special".
    :param unit: what one record is, in words ("training record", "patient").
    :param sampler: how minibatches were drawn.
    :param sampling_rate: q, public.
    :param noise_multiplier: sigma, noise standard deviation / C.
    :param clip: C, at the beginning where ``adapts_clip``.
    :param steps: planned T.
    :param steps_taken: steps that ran.
    :param epsilon_taken: epsilon of the steps taken at the same delta, rounded up. After an early
        stop it is smaller than ``epsilon``, and holds only if the stop was not decided by looking
        at the outputs.
    :param num_records: N, treated as a public constant.
    :param accountant: which accountant computed epsilon.
    :param overflow_delta: share of delta for minibatches that overflow their padding, and for the
        sampler's rounding.
    :param noise_delta: share of delta for the noise's distance from the Gaussian that is accounted
        for.
    :param secure_randomness: True if noise and minibatches came from a secret 256-bit key, and so
        did the noise of earlier releases that the result is made of, such as a look.
    :param caveats: conditions of the guarantee, the most serious first, a sentence each.
    :param clipping: how per-record gradients were clipped to norm C
        (``noise.mechanism.CLIPPINGS``).
    :param arithmetic: in which noise was drawn and added: "whole numbers"; "floating point", whose
        last bits are not covered, where nothing is promised.
    :param max_rows: how many rows of one unit were used at most; None where a row is a unit.
    :param second_opinion: what an independent computation said of epsilon before the run, in words;
        "" where there is none. It is no part of the promise: two that differ in it are equal.
    :param adapts_clip: whether C followed what was released before. Noise was sigma times the C of
        each step.
    :param released: what noise was added to: sums of "gradients" in each step, or once "sums" of
        products of columns, "counts" of their values, or "scores" of a fit.
    :param against_storage: whether it also holds against an observer of the storage, who sees every
        read and write of an encrypted file of records and of its scratch file.
    :param covers_deletion: whether it also holds where a removed record's row is deleted and later
        rows move up, instead of leaving its place empty: sums were rounded record by record.
    :param look_noise: noise of the counts of columns that were released before the first step, in
        multiples of their sensitivity; 0 where there were none.
    """

    epsilon: float
    delta: float
    relation: str
    unit: str
    sampler: str
    sampling_rate: float
    noise_multiplier: float
    clip: float
    steps: int
    steps_taken: int
    epsilon_taken: float
    num_records: int
    accountant: str
    overflow_delta: float
    noise_delta: float
    secure_randomness: bool
    caveats: tuple[str, ...] = ()
    clipping: str = "flat"
    arithmetic: str = "floating point"
    max_rows: int | None = None
    second_opinion: str = dataclasses.field(default="", compare=False)
    adapts_clip: bool = False
    released: str = "gradients"
    against_storage: bool = False
    covers_deletion: bool = False
    look_noise: float = 0.0

    @property
    def is_private(self) -> bool:
        """Whether anything is promised: of a fit with ``private=False`` nothing is
        (``no_privacy.NoPrivacy``).
        """
        return True

    @property
    def asked_for(self) -> str:
        """What was asked for, in words, where a smaller epsilon is kept; "" where it is kept."""
        return next(
            (caveat.partition(",")[0] for caveat in self.caveats if ASKED_FOR in caveat), ""
        )

    def made_of(self, earlier: str, *, is_secret: bool) -> Guarantee:
        """The guarantee of a result that an earlier release of private records has entered.

        :param earlier: that release, in words.
        :param is_secret: whether its noise came from a secret key, and from no seed.
        """
        if is_secret:
            return self
        caveat = (
            f"Everybody who knows the seed of {earlier} can predict its noise: do not share this "
            "result."
        )
        return dataclasses.replace(self, secure_randomness=False, caveats=(caveat, *self.caveats))

    def label(self, with_delta: bool = False) -> str:
        """Epsilon, and delta if it is asked for, as captions have them."""
        return f"epsilon {upper(self.epsilon)}" + (
            f", delta {upper(self.delta)}" if with_delta else ""
        )

    @classmethod
    def forms(cls) -> dict[str, Form]:
        """The forms of fields that only this kind has in a file."""
        return {}

    @property
    def expected_steps(self) -> float:
        """How many planned steps read minibatches, on average."""
        return self.steps

    @property
    def sampling_rates(self) -> set[float]:
        """Those of all minibatches."""
        return {self.sampling_rate}

    def accounted(self, steps: int | None = None) -> accounting.Plan:
        """The look and the first ``steps`` steps as accountants take them; by default all planned
        steps.
        """
        count = self.steps if steps is None else steps
        schedule = looked(self.look_noise, self.sampling_rate, self.noise_multiplier, count)
        return Steps.checked(self.sampler, self.relation, *schedule)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-ready values."""
        return {**dataclasses.asdict(self), "caveats": list(self.caveats)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Guarantee:
        """The inverse of ``to_dict``.

        :raises FormError: naming a field that no guarantee has.
        """
        check_form("", values)
        kind = _kind_of(values)
        return kind(**kind.decoded({**values, "caveats": tuple(values["caveats"])}))

    @classmethod
    def decoded(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The fields of what is in a file, whose form was checked."""
        return values

    def attack_bounds(self) -> dict[str, float]:
        """Bounds on the success of an attacker who knows everything except whether one record is in
        the data.

        They follow from the trade-off curve of the planned steps (``accounting.trade_off``, with
        the implementation's delta) and from epsilon and delta alone, and the smaller bound counts.

        :return: ``true_positive_rate_at_1_percent`` and ``..._at_10_percent``: the largest share of
            present records that any test can find while it wrongly accuses 1 % or 10 % of absent
            records; and ``belief_from_half``: how far a positive answer of the test at 1 % can
            raise a suspicion of 50 %. All rounded up.
        """
        at_1_percent, at_10_percent = (
            float(rate) for rate in self._true_positive_rates([0.01, 0.10])
        )
        return {
            "true_positive_rate_at_1_percent": min(1.0, round_up(at_1_percent, 4)),
            "true_positive_rate_at_10_percent": min(1.0, round_up(at_10_percent, 4)),
            "belief_from_half": min(1.0, round_up(at_1_percent / (at_1_percent + 0.01), 4)),
        }

    def trade_off(self, false_positive_rates: Sequence[float]) -> np.ndarray:
        """The largest share of present records that any test can find, float[n], rounded up to 4
        decimals.

        This is the curve behind ``attack_bounds``.

        :param false_positive_rates: shares in [0, 1] of absent records that the test wrongly
            accuses.
        :raises ArgumentError: if one is out of range.
        """
        rates = self._true_positive_rates(false_positive_rates)
        return np.array([min(1.0, round_up(float(rate), 4)) for rate in rates])

    def _true_positive_rates(self, rates: Sequence[float]) -> np.ndarray:
        extra = self.overflow_delta + self.noise_delta
        curve = accounting.trade_off_of(self.accounted(), rates, extra, self.epsilon)
        return np.minimum(curve, accounting.region(self.epsilon, self.delta, np.array(rates)))

    def in_brief(self) -> str:
        """The bound that the guarantee puts on every outcome, without what follows from it."""
        change = _CHANGES[self.relation, self.covers_deletion]
        return (
            f"{change.format(unit=self.unit)}, outcomes are at most {self._factor} times as "
            f"likely, plus {upper(self.delta)} (delta)."
        )

    @property
    def _factor(self) -> str:
        return _sensible(math.exp(min(self.epsilon, 700.0)))

    def headline(self) -> str:
        """The guarantee in one sentence."""
        claim = _KNOWN[self.relation].format(unit=self.unit)
        change = change_of(self.relation, self.unit, self.covers_deletion)
        factor = f"{self._factor} (epsilon = {upper(self.epsilon)})"
        told = (
            f"somebody who sees this result can hardly tell {claim}"
            if self.epsilon <= _HARDLY
            else f"there is a limit to how confidently anyone who sees this result can tell {claim}"
        )
        return (
            f"For each {self.unit}: {told}, because {change} changes any outcome's probability "
            f"by at most a factor of {factor} plus {upper(self.delta)} (delta)."
        )

    def _repr_html_(self) -> str:
        headline, *paragraphs = self.statement().split("\n\n")
        return _html.box(_html.note(headline), *map(_html.sentence, paragraphs))

    @property
    def _gradients(self) -> str:
        if self.max_rows is None:
            return "per-record gradients"
        rows = "1 row" if self.max_rows == 1 else f"up to {self.max_rows} rows together"
        return f"gradients per {self.unit}, of {rows},"

    def statement(self) -> str:
        """The guarantee in plain words: headline, meaning for an attacker, how it was kept, and
        conditions.
        """
        bounds = self.attack_bounds()
        caught = percent(bounds["true_positive_rate_at_1_percent"])
        lines = [
            self.headline(),
            f"A test that wrongly accuses 1 % of outsiders finds at most {caught} of those who "
            "took part, and its positive answer raises a suspicion of 50 % to at most "
            f"{percent(bounds['belief_from_half'])}.",
            *self.origin(),
        ]
        if self.relation == "add_or_remove_one" and not self.covers_deletion:
            lines.append(_DELETION)
        if self.against_storage:
            lines.append(_AGAINST_STORAGE)
        if self.steps_taken < self.steps:
            taken, planned = (_plain_count(steps) for steps in (self.steps_taken, self.steps))
            lines.append(
                f"The run stopped after {taken} of {planned} steps. The guarantee is still "
                f"epsilon = {upper(self.epsilon)}. For the steps taken alone it is epsilon = "
                f"{upper(self.epsilon_taken)} at the same delta, if the stop was not decided by "
                "looking at the outputs."
            )
        if self.caveats:
            lines.append("Conditions: " + " ".join(self.caveats))
        return "\n\n".join(lines)

    def origin(self) -> list[str]:
        """What was done to the records, paragraphs of ``statement``."""
        law = LAWS[self.sampler]
        epoch = law.steps_per_epoch(self.sampling_rate) if law.has_epochs else 0
        minibatches = law.minibatches.format(rate=self.sampling_rate, epoch=_plain_count(epoch))
        opinion = f"; {self.second_opinion}" if self.second_opinion else ""
        relation = self.relation.replace("_", " ")
        clipped = (_ADAPTED if self.adapts_clip else _CLIPPED[self.clipping]).format(clip=self.clip)
        origin = (
            f"The guarantee comes from {_plain_count(self.steps)} planned steps of DP-VI: "
            f"{minibatches}, {self._gradients}"
        )
        if self.released != "gradients":
            release = "a release" if self.look_noise else "a single release,"
            origin = _SINGLE_RELEASES[self.released].format(release=release)
        if self.released in ("counts", "scores"):
            clipped = f"of norm {self.clip:g} at most"
        lines = [
            f"{origin} {clipped}, Gaussian noise of {self.noise_multiplier:g} times that norm "
            f"(accountant: {self.accountant.upper()}, an upper bound{opinion}; relation: "
            f"{relation}).",
        ]
        if self.look_noise:
            lines.append(_LOOK.format(noise=self.look_noise))
        return lines

    def composition(self) -> str:
        """How the costs of all that reads the records add up, in words."""
        if self.released != "gradients" and not self.look_noise:
            return "There is a single release, so nothing is composed."
        look = " and of the look" if self.look_noise else ""
        released = (
            f"{_plain_count(self.steps)} steps" if self.released == "gradients" else self.released
        )
        return (
            f"The privacy losses of the {released}{look} are composed by "
            "numerical privacy loss distributions, an upper bound."
        )


def change_of(relation: str, unit: str, covers_deletion: bool = False) -> str:
    """What tells neighbouring data sets apart, in words, with its condition.

    :param covers_deletion: as of ``Guarantee``.
    """
    change = _RELATIONS[relation].format(unit=unit)
    return change if covers_deletion or relation != "add_or_remove_one" else change + _PLACE_STAYS


def check_epsilon(fit: Guarantee) -> None:
    """Check that noise and steps spend no more than the epsilons that a private fit states.

    :raises FormError: naming the field that states less.
    """
    for field, steps in (("epsilon", fit.steps), ("epsilon_taken", fit.steps_taken)):
        spent = _bound(fit, steps)
        if spent > getattr(fit, field) * (1 + _OTHER_MACHINE):
            raise FormError(
                field, f"must be at least {upper(spent)}, which the noise of its steps spends."
            )


def epsilon_of_steps(fit: Guarantee, steps: int) -> float:
    """Upper bound on epsilon of the first ``steps`` steps of ``fit``, rounded up."""
    return round_up(_bound(fit, steps), 4)


def _bound(fit: Guarantee, steps: int) -> float:
    return accounting.bound(fit.accounted(steps), fit.delta - fit.overflow_delta - fit.noise_delta)


def percent(fraction: float) -> str:
    """A share of 1 as per cent, rounded up to one decimal."""
    return f"{round_up(100 * fraction, 1):g} %"


def _sensible(ratio: float) -> str:
    """A factor rounded up to three digits."""
    exponent = math.floor(math.log10(ratio))
    if exponent >= 6:
        return f"{round_up(ratio / 10.0**exponent, 2):.2f}e{exponent}"
    digits = max(0, 2 - exponent)
    return f"{round_up(ratio, digits):,.{digits}f}".replace(",", " ")


# statements are also printed where there is nothing but ASCII
_plain_count = functools.partial(count, space=" ")
