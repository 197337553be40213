"""What must agree within result.json, so that a number that was changed in one place shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from workbench._numbers import count, upper
from workbench.noise.integers import delta_cost
from workbench.privacy.chosen import Chosen, Scored
from workbench.privacy.cross_validated import CrossValidated
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.steps import LAWS
from workbench.releases.tables import KINDS

__all__ = ["contradictions", "of_tables"]

_SINGLE = 1e-5  # relative: of a number that went through float32
_DIGITS = 1e-4  # relative: of a mean that six digits of gamma give
# fields of the guarantee, by the settings that say the same
_SAME = {
    **{name: name for name in ("epsilon", "delta", "clip", "num_records", "sampler", "relation")},
    **{name: name for name in ("clipping", "adapts_clip")},
    "iterations": "steps",
}
_PROGRAM = "the program"

Pair = tuple[str, Any, str, Any]  # (field, its value, what says the same, the value there)


def contradictions(index: dict[str, Any], fit: Guarantee) -> list[str]:
    """What contradicts the guarantee in a result.json whose form was checked, a phrase each."""
    kind = _of_choice(index, fit) if isinstance(fit, Chosen) else _of_fit(index, fit)
    pairs = [*_pairs(index, fit), *kind]
    return [*_different(pairs), *_out_of_range(index, fit), *_costs(fit)]


def of_tables(index: dict[str, Any], fit: Guarantee) -> list[str]:
    """``contradictions`` of a look, an evaluation or a cross-validation."""
    kind = KINDS[index["kind"]]
    pairs: list[Pair] = [
        *_always(fit),
        ("secure_randomness", fit.secure_randomness, _PROGRAM, True),
        ("released", fit.released, "kind", kind.released),
        ("folds set", isinstance(fit, CrossValidated), "kind", kind.has_folds),
        ("steps_taken", fit.steps_taken, "guarantee.steps", fit.steps),
        ("look_noise > 0", fit.look_noise > 0, "kind", kind.has_folds),
    ]
    scores = [row for row in index["tables"].get("Scores", {"rows": []})["rows"] if len(row) == 4]
    outside = [name for name, value, low, high in scores if not low <= value <= high]
    phrases = [f"the score {name} is outside its interval" for name in outside]
    return [*_different(pairs), *phrases, *_costs(fit)]


def _different(pairs: Iterable[Pair]) -> list[str]:
    """A phrase for each pair of values that differ."""
    return [
        f"guarantee.{field} is {_said(value)}, but {source} says {_said(expected)}"
        for field, value, source, expected in pairs
        if value != expected
    ]


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _pairs(index: dict[str, Any], fit: Guarantee) -> Iterator[Pair]:
    settings, norms = index["settings"], index["gradient_norms"]
    for name, field in _SAME.items():
        if settings.get(name) is not None:
            yield field, getattr(fit, field), f"settings.{name}", settings[name]
    yield "unit", fit.unit, "data.unit", index["data"]["unit"]
    seed = settings.get("seed")
    yield "secure_randomness", fit.secure_randomness, f"settings.seed {seed}", seed is None
    yield from _always(fit)
    once, single = fit.released != "gradients", settings.get("estimator") == "statistics"
    yield "released in a single step", once, "settings.estimator", single
    look = settings.get("look")
    yield "look_noise > 0", fit.look_noise > 0, f"settings.look {look}", bool(look)
    if norms is not None:
        start, adapted = norms["clip"], norms["adapted_from"] is not None
        start = norms["adapted_from"] if adapted else start
        start = fit.clip if math.isclose(start, fit.clip, rel_tol=_SINGLE) else start
        yield "clip", fit.clip, "gradient_norms", start
        yield "adapts_clip", fit.adapts_clip, "gradient_norms.adapted_from", adapted


def _always(fit: Guarantee) -> Iterator[Pair]:
    """What holds for all that the program releases."""
    yield "arithmetic", fit.arithmetic, _PROGRAM, "whole numbers"
    yield "accountant", fit.accountant, _PROGRAM, "pld"
    rows = f"Here, a record is one {fit.unit} with all rows." in fit.caveats
    yield "max_rows set", fit.max_rows is not None, "guarantee.caveats", rows


def _of_fit(index: dict[str, Any], fit: Guarantee) -> Iterator[Pair]:
    scored = index["settings"].get("covered_scores", False)
    yield "score_noise set", isinstance(fit, Scored), "settings.covered_scores", scored


def _of_choice(index: dict[str, Any], fit: Chosen) -> Iterator[Pair]:
    settings, number = index["settings"], len(fit.candidates)
    yield "candidates", number, "settings.candidates", settings.get("candidates")
    chosen, mean = settings.get("chosen"), settings.get("runs", 0)
    if type(chosen) is int and 1 <= chosen <= number:
        names = ("sampling_rate", "noise_multiplier", "steps")
        for name, value in zip(names, fit.candidates[chosen - 1][-1], strict=True):
            yield name, getattr(fit, name), f"guarantee.candidates[{chosen - 1}]", value
    near = math.isclose(fit.runs.mean, mean, rel_tol=_DIGITS)
    yield "runs on average", fit.runs.mean, "settings.runs", fit.runs.mean if near else mean
    scored = index["metrics_label"] == "covered"
    yield "score_noise > 0", fit.score_noise > 0, "metrics_label", scored


def _out_of_range(index: dict[str, Any], fit: Guarantee) -> Iterator[str]:
    """Numbers that no fit has beside the others."""
    law, rate = LAWS[fit.sampler], index["settings"]["sampling_rate"]
    # minibatches of one size take round(q N) records
    size = 0.0 if law.hides_size or fit.sampling_rate == 1 else 0.5 / fit.num_records
    if abs(fit.sampling_rate - law.rate(rate)) > size + 1e-12:
        yield f"guarantee.sampling_rate is {fit.sampling_rate:g}, but settings.sampling_rate {rate}"
    if index["status"] == "done" and fit.steps_taken < fit.steps:
        yield f"guarantee.steps_taken is {fit.steps_taken} of {fit.steps}, but status is done"
    last = max((point["step"] for point in index["history"]), default=0)
    if last > fit.steps_taken:
        yield f"guarantee.steps_taken is {fit.steps_taken}, but history goes to step {last}"
    label = index["metrics_label"]
    if label != "public data" and index["history"]:
        yield f"history has metrics without noise, but metrics_label is {label}"
    if label == "outside the guarantee" and index["metrics"]:
        yield f"metrics are not empty, but metrics_label is {label}"
    if isinstance(fit, Scored) and label == "public data":
        yield f"guarantee.score_noise is of private records, but metrics_label is {label}"
    for name, (low, high) in index["metric_intervals"].items():
        value = index["metrics"].get(name)
        if value is not None and not low <= value <= high:
            yield f"the score {name} is outside its interval"


def _costs(fit: Guarantee) -> Iterator[str]:
    """What N, the draws of noise and minibatches of random sizes are said to cost."""
    law = LAWS[fit.sampler]
    if law.hides_size and f"N = {count(fit.num_records, ' ')})" not in " ".join(fit.caveats):
        yield f"guarantee.num_records is {fit.num_records}, but guarantee.caveats have another N"
    least = delta_cost(float(fit.expected_steps), fit.epsilon)
    if fit.noise_delta < least:
        yield f"guarantee.noise_delta is less than {upper(least)}, which the draws of noise cost"
    if law.hides_size and fit.overflow_delta == 0:
        yield "guarantee.overflow_delta is 0, but minibatches of random sizes can overflow"
