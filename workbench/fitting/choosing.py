"""``choose``: the best of several private fits, with the choice inside the guarantee.

Candidates are drawn at random, a secret number of times K; each drawn one is fitted with noise of
its own and scored, and only the best fit leaves (``privacy.selection`` has the proof). All
randomness follows from one secret key. It is kept in a file while the choice runs, so that after a
crash the same call repeats the same runs: K is never drawn again, and nothing of the first try was
shown. The file is deleted before the result is returned.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import re
import uuid
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from workbench import _folders, _validate
from workbench.data import Dataset, load
from workbench.data.look import Look
from workbench.fitting import checkpoints, fits
from workbench.fitting.checkpoints import Checkpoint, Checkpoints
from workbench.fitting.digests import FORMAT, keyed
from workbench.fitting.evaluation import evaluation_key, evaluation_of, metrics_of
from workbench.fitting.groups import Training, flattened
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.scoring import (
    SCORES,
    ScoreWarning,
    fields_of,
    outcome_of,
    release_of,
    require_private_evaluation,
    scores_ahead,
)
from workbench.fitting.settings import about, described, names, setting, takes
from workbench.fitting.spec import FitSpec
from workbench.fitting.tables import OF_TABLES, is_formula, is_table, shared_table
from workbench.inference.state import Purpose
from workbench.inference.step import PrivateStep
from workbench.ledger.fingerprint import secret_key
from workbench.ledger.reservation import Reservation, id_of, ledger_for
from workbench.models.outcomes import LOSSES
from workbench.noise import key_use
from workbench.noise.chacha20 import child_key, key_from_bytes, key_from_seed, new_key, stream
from workbench.privacy.choosing import ChoicePlan, plan_choice
from workbench.privacy.plan import PrivacyPlan, default_delta
from workbench.privacy.selection import Runs
from workbench.results import FitResult

__all__ = [
    "SCORES",
    "Choice",
    "ChoiceStopped",
    "ChooseArguments",
    "candidates_of",
    "choose",
    "dataset_of",
    "planned",
    "usual_runs",
]

_GROWTH = 0.23  # about how much epsilon grows with log E[K]
# settings in which candidates may differ: not those that decide whether a fit has noise, what it
# reads, and what it tells while it runs
_OF_A_CANDIDATE = (
    *("model", "family", "link", "priors", "trials", "exposure", "observed"),
    *("iterations", "sampling_rate", "batch_size", "clip", "clipping", "learning_rate"),
    *names(Training),
)
_MOST_RUNS = 1000.0  # on average
_REFUSED = dict.fromkeys(
    ("on_snapshot", "progress", "devices", "evaluate_private", "covered_scores"),
    "is not for a choice, of which only the outcome is shown.",
)
_STATE = "step-000000000000.npz"


class ChoiceStopped(RuntimeError):
    """A choice was stopped before its end, so nothing of it is shown. The same call continues it,
    and its epsilon is spent once.
    """


def _runs(name: str, value: Any) -> float | None:
    return None if value is None else _validate.number(name, value, at_least=2, at_most=_MOST_RUNS)


def usual_runs(candidates: int) -> float:
    """How many fits a choice has on average: more where there are many candidates, of which few
    would be tried.
    """
    return min(max(20.0, 1.5 * candidates), _MOST_RUNS)


@dataclass(frozen=True, eq=False, repr=False)
class ChooseArguments(fits.CommonArguments):
    """The arguments of ``choose``."""

    candidates: Any = field(
        metadata=described(
            "what is compared: a list of models, formulas or mappings of settings of "
            "``workbench.fit`` (with ``model``); or one mapping of lists, all combinations of "
            "which are compared"
        )
    )
    data: Any = field(
        metadata=described(
            "a name, a ``Dataset`` with evaluation records, or a table whose columns ``schema`` "
            "declares, of which a fifth of the rows is held out"
        )
    )
    _: KW_ONLY
    epsilon: float = field(
        metadata=described(
            "privacy loss of the whole choice", about("epsilon").check, changes_guarantee=True
        )
    )
    runs: float | None = setting(
        None,
        "how many fits there are on average; there are at most ten times as many",
        _runs,
        otherwise="20, or one and a half times the number of candidates where that is more",
        changes_guarantee=True,
    )
    by: str = setting(
        "log_likelihood",
        "the score of held-out records that the best fit has: log_likelihood, auc, accuracy, rmse "
        "or mae",
    )


@dataclass(frozen=True)
class PublicScores:
    """Scores of public evaluation records, which cost nothing."""

    by: str

    def score(self, fit: PreparedFit, key: jax.Array) -> float:
        """The score of a run that ended, larger for better. :param key: for its noise."""
        score = fit.metrics.get(self.by, math.nan)
        return -score if self.by in LOSSES else score

    def published(self, fit: PreparedFit, key: jax.Array) -> dict[str, Any]:
        """Fields of ``FitResult`` about scores of the fit that was chosen."""
        return {}


@dataclass(frozen=True)
class PrivateScores:
    """Scores of private evaluation records through noise."""

    by: str
    noise_multiplier: float

    def score(self, fit: PreparedFit, key: jax.Array) -> float:
        return release_of(fit, self.noise_multiplier, key).order[self.by]

    def published(self, fit: PreparedFit, key: jax.Array) -> dict[str, Any]:
        """A release of its own: the one that it was chosen by is flattered by luck."""
        return fields_of(release_of(fit, self.noise_multiplier, key).scores)


@dataclass(frozen=True, eq=False)
class _Candidate:
    request: fits.FlatRequest
    spec: FitSpec
    plan: PrivacyPlan
    dimension: int
    score_draws: int


@dataclass(eq=False)
class Choice:
    """A choice that is planned: what may be drawn, what it spends and how it is scored."""

    candidates: list[_Candidate]
    plan: ChoicePlan
    scorer: PublicScores | PrivateScores
    reservation: Reservation
    checkpoint: Path | None
    facts: dict[str, Any]
    writes: Checkpoints | None = None
    _fits: dict[int, PreparedFit] = field(default_factory=dict)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What is wrong with delta >= 1/N, of the whole choice."""
        settings = self.candidates[0].plan.settings
        return dataclasses.replace(settings, delta=self.plan.delta).cautions()

    @property
    def scores_ahead(self) -> tuple[str, ...]:
        """What to expect of scores, before the choice."""
        spec, plan = self.candidates[0].spec, self.candidates[0].plan
        outcome = spec.model.outcome(spec.data)
        if not self.plan.score_noise or outcome is None:
            return ()
        return scores_ahead(outcome, self.plan.score_noise, plan.settings.num_records)

    def outcome(self, stop: Callable[[], bool]) -> FitResult:
        """Reserve what the choice spends, make it, and return the best fit.

        :param stop: as of ``fit``. :raises ChoiceStopped: if it stops; ``CapError`` where a cap
            does not allow it.
        """
        try:
            key = _kept_key(self)
            self.reservation.mark()  # from here on it counts, whatever becomes of this process
            result = self.run(key, stop)
            if self.writes is not None:  # before anything is seen
                checkpoints.forget(self.writes.folder)
        except BaseException:
            self.reservation.settle(None)
            raise
        finally:
            if self.writes is not None:
                self.writes.close()
        problem = self.reservation.settle(None)
        return dataclasses.replace(result, message=f"{result.message} {problem}".strip())

    def run(self, key: jax.Array, stop: Callable[[], bool]) -> FitResult:
        """Draw, fit and score, and return the best.

        :param stop: as of ``fit``. :raises ChoiceStopped: if it stops.
        """
        count = self.plan.runs.draw(np.asarray(stream(key, 0, 4), np.uint32).tobytes())
        best, chosen, score = None, -1, -math.inf
        for number in range(count):
            run_key = child_key(child_key(key, Purpose.RUNS), number)
            key_use.throw_away(run_key)  # the same call may repeat what is not shown
            drawn = np.asarray(stream(key, number + 1, 4), np.uint32).tobytes()
            index = int.from_bytes(drawn, "little") * len(self.candidates) >> 128
            fit = self._fit(index, run_key)
            for snapshot in fit.run(stop):
                if snapshot.status == "cancelled":
                    raise ChoiceStopped("the choice was stopped; the same call continues it.")
            reached = -math.inf
            if fit.is_done:
                reached = self.scorer.score(fit, child_key(run_key, Purpose.SCORES))
            reached = -math.inf if math.isnan(reached) else reached
            if best is None or reached > score:
                best, chosen, score = fit, index, reached
        assert best is not None
        outcome = child_key(key, Purpose.SCORES)
        result = best.result()
        published = self.scorer.published(best, outcome) if best.is_done else {}
        settings = {
            "epsilon": self.plan.epsilon,
            "delta": self.plan.delta,
            "candidates": len(self.candidates),
            "chosen": chosen + 1,
            "runs": float(f"{self.plan.runs.mean:.5g}"),
            "by": self.facts["by"],
        }
        return dataclasses.replace(
            result,
            guarantee=self.plan.guarantee(result.guarantee),
            settings={**result.settings, **settings},
            seconds=0.0,  # with what a run before it had compiled it is faster
            spend=next(iter(self.reservation.keys), ""),
            ledger=self.reservation.ledger,
            **published,
        )

    def _fit(self, index: int, key: jax.Array) -> PreparedFit:
        """Another run of a candidate, which is compiled once."""
        if index not in self._fits:
            drawn = self.candidates[index]
            self._fits[index] = fits.begun(drawn.request, drawn.spec, self.plan.plans[index], key)
            return self._fits[index]
        first = self._fits[index]
        # runs of a candidate may begin at one place, which no record decides
        return first.again(lambda: key, first.step if first.plan.look is None else None)


@takes(ChooseArguments)
def choose(arguments: ChooseArguments) -> FitResult:
    """Fit candidates privately, and return the best of a secret number of fits: the choice is
    inside the guarantee.

    All fits and scores together are (epsilon, delta)-differentially private. Each fit alone gets
    less: with 20 on average about as much noise as a fit with epsilon / 1.7. Scores are of
    evaluation records, which no fit reads: exact where these are public, through noise else. The
    outcome is scored once more, so that its score is not flattered by the choice among noise.

    >>> candidates = {"model": ["logistic"], "learning_rate": [0.01, 0.03]}
    >>> result = wb.choose(candidates, "breast_cancer", epsilon=1.0, runs=3)
    >>> result.guarantee.epsilon, result.settings["candidates"]
    (1.0, 2)

    A choice that was interrupted is continued by the same call, and spends nothing more.

    :return: ``FitResult``; ``settings["chosen"]`` is the candidate's number, from 1.
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow it.
    :raises ChoiceStopped: if ``execution.stop`` stops it.
    """
    choice = planned(arguments)
    for caution in choice.cautions:
        warnings.warn(caution, fits.DeltaWarning, stacklevel=3)
    for caution in choice.scores_ahead:
        warnings.warn(caution, ScoreWarning, stacklevel=3)
    return choice.outcome(arguments.execution.stop)


def planned(arguments: ChooseArguments) -> Choice:
    """Plan a choice, of which nothing is reserved yet. :raises ArgumentError: as ``choose``."""
    flat = flattened(arguments, fits.FlatRequest, "choose", _REFUSED)
    if jax.process_count() > 1:
        raise _validate.ArgumentError(
            "processes", jax.process_count(), "are not taken by a choice: use one."
        )
    listed = candidates_of(flat.pop("candidates"))
    by = _validate.choice("by", flat.pop("by", "log_likelihood"), SCORES)
    mean, epsilon = flat.pop("runs", None), flat.pop("epsilon")
    runs = Runs.of_mean(float(mean or usual_runs(len(listed))))
    flat.pop("stop", None)
    ledger, checkpoint = flat.pop("ledger", None), flat.pop("checkpoint", True)
    over_cap = flat.pop("over_cap", None)
    data = dataset_of(flat, listed[0])
    scores_cost = not data.evaluation_is_public
    if scores_cost or not data.num_evaluation:
        require_private_evaluation(data, flat.get("sampler", "poisson"), "candidates")
    size = flat.get("num_records") or data.num_train
    delta = flat.pop("delta", None) or default_delta(size)
    single = {
        "data": data,
        "epsilon": epsilon / (1 + _GROWTH * math.log(runs.mean)),
        "delta": delta / runs.mean,
        "ledger": False,
        "checkpoint": False,
    }
    sizes: dict[Hashable, tuple[int, int]] = {}
    candidates = [_candidate({**flat, **settings, **single}, by, sizes) for settings in listed]
    plan = plan_choice(
        [candidate.plan for candidate in candidates],
        [candidate.dimension for candidate in candidates],
        epsilon=epsilon,
        delta=delta,
        runs=runs,
        score_draws=max(candidate.score_draws for candidate in candidates),
    )
    for candidate, calibrated in zip(candidates, plan.plans, strict=True):
        calibrated.noise_delta(candidate.dimension)  # refuses, before anything is spent
    scorer = PrivateScores(by, plan.score_noise) if scores_cost else PublicScores(by)
    first = candidates[0]
    reserved = plan.guarantee(
        first.spec.guarantee(plan.plans[0], first.plan.settings.iterations, first.dimension)
    )
    names = [candidate.spec.model.name for candidate in candidates]
    reservation = Reservation(
        ledger_for(data, ledger),
        functools.partial(id_of, data),
        lambda: [reserved],
        model="choice of " + " and ".join(dict.fromkeys(names)),
        plan=lambda: uuid.uuid4().hex,
        seed=arguments.seed,
        over_cap=over_cap,
    )
    if isinstance(look := flat.get("look"), Look) and look.token:
        reservation.count_with(look.token)
    facts = {
        "guarantee": reserved.to_dict(),
        "fingerprint": first.spec.fingerprint,
        "candidates": [
            [
                entry.spec.model.name,
                _recognised(sorted(entry.spec.model.options.items())),
                entry.spec.run_settings(),
            ]
            for entry in candidates
        ],
        "settings": _recognised(dict(sorted(flat.items()))),
        "by": by,
        "seed": arguments.seed,
    }
    folder = None
    if checkpoint is not False and not data.is_public:
        name = keyed(facts, b"choice", secret_key())
        folder = _folders.state() / "choices" / name if checkpoint is True else Path(checkpoint)
        folder = folder.absolute()
    return Choice(candidates, plan, scorer, reservation, folder, facts)


def _recognised(settings: object) -> str:
    """Settings in words that are the same in another process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(settings))


def _kept_key(choice: Choice) -> jax.Array:
    """The key of the choice, on disk before anything is drawn; that of an interrupted choice of the
    same plan, whose fits are in the ledger already.
    """
    folder, reservation, seed = choice.checkpoint, choice.reservation, choice.facts["seed"]
    if folder is None:
        reservation.reserve()
        return new_key() if seed is None else key_from_seed(seed)
    digest = keyed(choice.facts, b"choice", secret_key())
    former = _former(folder, digest)
    if former is None:
        key = new_key() if seed is None else key_from_seed(seed)
    else:
        key = key_from_bytes(former.arrays()["key"].tobytes())
        if former.facts["spend"] is not None:
            reservation.continue_fit(former.facts["spend"])
    reservation.reserve()
    ledger, spend = reservation.ledger, next(iter(reservation.keys), None)
    facts = {
        "format": FORMAT,
        "plan": digest,
        "spend": spend,
        "ledger": None if ledger is None else str(ledger.path),
    }
    if former is not None and spend is None:  # it goes on without its ledger, where it stays
        facts |= {name: former.facts[name] for name in ("spend", "ledger")}
    choice.writes = Checkpoints(folder, facts, 1, lambda step: None)
    words = np.asarray(jax.random.key_data(key))
    try:
        choice.writes.claim(_STATE, {"key": words})
    except OSError as error:
        raise _validate.ArgumentError(
            "checkpoint",
            str(folder),
            f"cannot keep the key of the choice ({error}), so nothing was drawn.",
        ) from error
    return key


def _former(folder: Path, digest: str) -> Checkpoint | None:
    """What an interrupted choice left in its folder; None if nothing.

    :raises ArgumentError: naming ``checkpoint``, if it is of something else or goes on now.
    """
    if checkpoints.is_running(folder):
        raise _validate.ArgumentError(
            "checkpoint", str(folder), "is of a choice that is being made now."
        )
    if not checkpoints.holds_fit(folder):
        checkpoints.forget(folder)  # a kill may have come while a key was written
        return None
    former = checkpoints.newest(folder)
    if former.facts["plan"] != digest:
        raise _validate.ArgumentError(
            "checkpoint", str(folder), "is of another choice or of a fit: name another folder."
        )
    return former


def _candidate(
    settings: dict[str, Any], by: str, sizes: dict[Hashable, tuple[int, int]]
) -> _Candidate:
    """:param sizes: coordinates and scores that get noise, by program, which is read once."""
    request = fits.FlatRequest(**settings)
    spec, plan, _ = fits.planned_of(request)
    if spec.settings.estimator == "statistics":
        raise _validate.ArgumentError(
            "candidates",
            spec.model.name,
            "takes no steps, and a choice is among fits that do.",
            remedy='Give training=wb.Training(estimator="aligned").',
        )
    program = spec.program_key(plan)
    if program not in sizes:
        step = spec.private_step(plan, key_from_seed(0))
        draws = 0
        if spec.data.evaluation_is_public:
            _check_score(spec, step, by)
        else:
            outcome = outcome_of(spec, step, "candidates")
            _require_score(spec, by, outcome.scores)
            draws = outcome.draws
        sizes[program] = spec.most_coordinates(step), draws
    dimension, score_draws = sizes[program]
    return _Candidate(request, spec, plan.for_noise_in(dimension), dimension, score_draws)


def candidates_of(candidates: Any) -> list[dict[str, Any]]:
    """Settings of each candidate, with its model.

    :raises ArgumentError: naming ``candidates``.
    """
    if isinstance(candidates, Mapping):
        lists = [
            value if isinstance(value, (list, tuple)) else [value] for value in candidates.values()
        ]
        entries: Any = [
            dict(zip(candidates, values, strict=True)) for values in itertools.product(*lists)
        ]
    elif isinstance(candidates, Sequence) and not isinstance(candidates, str):
        entries = [
            dict(entry) if isinstance(entry, Mapping) else {"model": entry} for entry in candidates
        ]
    else:
        entries = []
    for entry in entries:
        if "model" not in entry:
            raise _validate.ArgumentError("candidates", entry, "must name a model each.")
        if unknown := [name for name in entry if name not in _OF_A_CANDIDATE]:
            raise _validate.ArgumentError(
                "candidates",
                unknown[0],
                "is no setting in which candidates may differ: these are "
                f"{', '.join(_OF_A_CANDIDATE)}.",
            )
    if not 1 <= len(entries) <= 1000:
        raise _validate.ArgumentError(
            "candidates",
            candidates,
            "must be 1 to 1000 models or mappings of settings, or a mapping of lists.",
        )
    return entries


def dataset_of(flat: dict[str, Any], first: Mapping[str, Any]) -> Dataset:
    """The data set of all fits; what only a table takes is taken off ``flat``.

    A table is split once, by all columns that are declared: by those of each formula, a record
    might be held out from one fit and read by another.

    :param first: the settings of one of the fits, its model among them.
    """
    data = flat.pop("data")
    if isinstance(data, str):
        return load(data)
    if isinstance(data, Dataset):
        return data
    if not is_table(data):
        raise _validate.ArgumentError(
            "data", type(data).__name__, "must be a name, a Dataset or a table."
        )
    if not is_formula(first["model"]):
        raise _validate.ArgumentError(
            "data", "DataFrame", "is for formulas; for other models make a Dataset of it."
        )
    made = shared_table(first["model"], data, fits.FlatRequest(**{**flat, **first, "data": data}))
    for name in ("schema", *OF_TABLES):
        flat.pop(name, None)
    return made


def _check_score(spec: FitSpec, step: PrivateStep, by: str) -> None:
    """:raises ArgumentError: naming ``by``, if the model has no such score of public records."""
    records = tuple(map(np.asarray, spec.data.evaluation))
    outputs = jax.eval_shape(
        evaluation_of(step, spec.model, len(records[0])),
        step.model.initial,
        records,
        evaluation_key(key_from_seed(0)),
    )
    zeros = jax.tree.map(lambda output: np.zeros(output.shape, output.dtype), outputs)
    names: Any = ()
    # a score may fail for what nobody would predict
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        names = metrics_of(spec.model, records[-1], zeros)
    if names:
        _require_score(spec, by, names)


def _require_score(spec: FitSpec, by: str, scores: Iterable[str]) -> None:
    """:raises ArgumentError: naming ``by``, unless it is one of ``scores``."""
    if by not in scores:
        raise _validate.ArgumentError(
            "by", by, f"is no score of the model {spec.model.name}, which has {', '.join(scores)}."
        )
