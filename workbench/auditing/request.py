"""What an audit is asked for: every setting with its default, its help and its check."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench import _validate
from workbench.auditing.bugs import PLANTED_BUGS
from workbench.auditing.canaries import Rows
from workbench.auditing.result import PARTS
from workbench.data import Dataset
from workbench.fitting.settings import about, check_all, described, setting
from workbench.models.registry import AnyModel
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy.steps import LAWS, SENSITIVITY
from workbench.sampling import Sampler

__all__ = ["MODES", "AuditRequest", "ReleaseRequest"]

MODES = ("many_runs", "one_run")

_positive = functools.partial(_validate.number, above=0)
_integer = functools.partial(functools.partial, _validate.integer)  # with limits


def _as_in_fit(name: str, default: Any) -> Any:
    """The setting of a fit, with the default of an audit."""
    return field(
        default=default, metadata={"setting": dataclasses.replace(about(name), otherwise="")}
    )


def _parts(name: str, value: Sequence[str]) -> Sequence[str]:
    for item in value:
        _validate.choice(name, item, PARTS)
    return value


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Attack:
    """The settings of every audit."""

    mode: str = setting(
        "many_runs",
        '"many_runs" or "one_run"',
        lambda name, value: _validate.choice(name, value, MODES),
    )
    trials: int = setting(10_000, 'runs on each side, for "many_runs"', _integer(at_least=100))
    confidence: float = setting(0.95, "confidence of the lower bound", _validate.probability)
    estimator: str = _as_in_fit("estimator", "aligned")
    strategy: str = _as_in_fit("strategy", "auto")
    devices: int | str | None = _as_in_fit("devices", None)
    microbatch_size: int | None = _as_in_fit("microbatch_size", None)
    max_rows: int | None = setting(
        None,
        "rows that each record stands for, all alike: a person with that many is then the unit",
        _integer(at_least=1),
        otherwise="a record is the unit",
        unit="rows",
    )
    seed: int | None = setting(
        None, "makes the audit reproducible", _validate.seed, otherwise="secret randomness"
    )
    bug: str | None = setting(
        None,
        "one of ``PLANTED_BUGS``, to audit a run that is broken on purpose",
        lambda name, value: _validate.choice(name, value, PLANTED_BUGS),
    )
    parts: Sequence[str] = setting(
        PARTS,
        'some of ``workbench.auditing.PARTS``. T may be large without "attack", because no other '
        "part takes T steps",
        _parts,
        otherwise="all",
    )

    def __post_init__(self) -> None:
        """Check every value.

        :raises ArgumentError: naming the argument and its value.
        """
        check_all(self)

    def of_attack(self) -> dict[str, Any]:
        """The settings that every audit has, by name."""
        return {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(_Attack)}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _OfFit(_Attack):
    epsilon: float = _as_in_fit("epsilon", 1.0)
    delta: float = _as_in_fit("delta", 1e-2)
    iterations: int = _as_in_fit("iterations", 20)
    sampling_rate: float = _as_in_fit("sampling_rate", 0.5)
    sampler: str = _as_in_fit("sampler", "poisson")
    relation: str | None = _as_in_fit("relation", None)
    clip: float | str = _as_in_fit("clip", 1.0)
    clipping: str = _as_in_fit("clipping", "flat")
    num_canaries: int = setting(1000, 'number of canaries, for "one_run" without ``canaries``')
    num_others: int = setting(
        9,
        "number of records of ``data`` besides the canaries; the first are used. A guarantee "
        "holds for every data set, so the attacker chooses a small one, which hides a canary "
        "least",
        _integer(at_least=1),
    )
    canaries: Rows | None = setting(
        None,
        'record arrays, first axis m (1 for "many_runs")',
        otherwise="rows at the bounds of their features",
    )
    replacements: Rows | None = setting(
        None,
        "what replaces absent canaries under replace_one",
        otherwise="the same features with the other target",
    )
    learning_rate: float | None = setting(
        None, "learning rate of Adam", _positive, otherwise="very small"
    )


@dataclass(frozen=True, eq=False, repr=False)
class AuditRequest(_OfFit):
    """An audit of what ``fit`` would promise."""

    model: AnyModel = setting(
        "logistic", "name in the registry, a NumPyro function, or a ``Model``"
    )
    data: str | Dataset | None = setting(
        None,
        "name, ``Dataset``, or None for records made for the audit (for models of a table with a "
        "binary target). The result is an exact function of its training records, so use public "
        "ones",
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _OfSteps(_Attack):
    relation: str = field(metadata=described("neighbouring relation of the claim"))
    sampler: Sampler = field(
        metadata=described(
            "a frozen dataclass; under add_or_remove_one it is used with as many records as a "
            "data set has"
        )
    )
    mechanism: GaussianMechanism = field(metadata=described("the claimed C and sigma > 0"))
    epsilon: float = field(metadata=described("epsilon of the claim", _positive))
    delta: float = field(metadata=described("delta of the claim, in (0, 1)", _validate.probability))
    iterations: int = field(metadata=described("number of steps T", _integer(at_least=1)))
    optim: Any = setting(
        None,
        "optimiser, as for ``DPVI``",
        otherwise="Adam with steps so small that the canaries' gradients stay long",
    )
    static: Mapping[str, Any] | None = setting(
        None, "further keyword arguments of model and guide, public constants"
    )
    adapts_clip: bool = setting(
        False,
        'attack runs that adapt C, beginning at the claimed one, as fits with clip="auto" do',
        _validate.flag,
    )
    model_name: str = setting("the model", "what the result's statement calls the model")
    data_name: str = setting("the caller's records", "what the result calls the data")

    def __post_init__(self) -> None:
        """Check every value, and those that exclude each other.

        :raises ArgumentError: naming the argument and its value.
        """
        super().__post_init__()
        _validate.number("noise_multiplier", self.mechanism.noise_multiplier, above=0)
        if self.bug == "realised_size" and self.relation != "add_or_remove_one":
            raise _validate.ArgumentError(
                "bug", self.bug, "changes nothing where every minibatch has the same public size."
            )
        if self.bug == "clip_by_row" and (self.max_rows or 1) < 2:
            raise _validate.ArgumentError(
                "bug", self.bug, "changes nothing where a record is one row: give max_rows."
            )
        # a sampler that the caller wrote has no accountant here, so it allows every relation
        law = LAWS.get(self.sampler.name)
        _validate.choice("relation", self.relation, law.relations if law else SENSITIVITY)


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseRequest(_OfSteps):
    """An audit of T steps with a sampler and a mechanism."""

    model: Callable = field(metadata=described("NumPyro model"))
    guide: Callable = field(metadata=described("NumPyro guide"))
    others: Rows = field(
        metadata=described("arrays of records that are in every data set, first axis n >= 1")
    )
    present: Rows = field(
        metadata=described('arrays of the canaries, first axis m (1 for "many_runs")')
    )
    absent: Rows | None = setting(
        None,
        "under replace_one, the records that replace absent canaries, first axis m; gradients "
        "opposite to those of the canaries make the strongest attack. None under the other "
        "relations: an absent canary leaves no row under add_or_remove_one, and a blank row "
        "under replace_special (its numbers are NaN, and its gradient counts as zero)",
    )
