"""Names and ranges of the metrics that curves show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench._numbers import MINUS, shown

__all__ = [
    "in_words",
    "interval_of",
    "labelled",
    "limits",
    "of_score",
    "score_name",
    "title_of",
    "words_of",
]

# the first of these that a run has is shown beside the ELBO: (name, unit)
_WORDS = {
    "auc": ("AUC", ""),
    "accuracy": ("accuracy", ""),
    "log_likelihood": ("log-likelihood", "nats per record"),
    "reconstruction_error": ("reconstruction error", "RMSE per pixel"),
}
_ELBO = ("ELBO", "nats per record")
_SHARES = ("auc", "accuracy")  # of at most 1
_FALLING = ("reconstruction_error",)  # better when smaller
_SMALLEST_RANGE = 0.02  # of a y axis, so that small changes do not look large


def score_name(metrics: Iterable[str]) -> str:
    """The metric shown beside the ELBO: the first of the known ones in ``metrics``, else the first
    other one, else "".
    """
    scores = [name for name in metrics if name != "elbo"]
    standard = [name for name in _WORDS if name in scores]
    return (standard or scores or [""])[0]


def words_of(metric: str) -> tuple[str, str]:
    """The usual spelling of a metric's name, and its unit."""
    return _ELBO if metric == "elbo" else _WORDS.get(metric, (metric.replace("_", " "), ""))


def labelled(unit: str, label: str) -> str:
    """A curve's unit, "" for none, and whether its evaluation records may be shown."""
    sign = "\N{WARNING SIGN} " if label == "outside the guarantee" else ""
    return " · ".join(filter(None, [unit, f"evaluation records: {sign}{label}"]))


def in_words(
    metrics: Mapping[str, Any],
    names: Iterable[str] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> list[str]:
    """Name and value of each metric, or of ``names``; a value that is not a number, as a user's own
    may be, as it is.

    :param intervals: of metrics that have one.
    """
    return [
        f"{words_of(name)[0]} {of_score(name, value)}{interval_of(name, intervals or {})}"
        for name in names or metrics
        if (value := metrics.get(name)) is not None
    ]


def interval_of(metric: str, intervals: Mapping[str, tuple[float, float]]) -> str:
    """ " (low to high)", or nothing for a metric without an interval."""
    if metric not in intervals:
        return ""
    low, high = (of_score(metric, end) for end in intervals[metric])
    return f" ({low} to {high})"


def of_score(metric: str, value: object) -> str:
    """A score with the digits that matter. One just below a perfect 1 is not rounded up to it.

    A value that is not a number, as a user's own may be, stays as it is.
    """
    if not isinstance(value, (int, float)):
        return str(value)
    text = shown(value)
    return (
        "> 0.999"
        if metric in _SHARES and 0 < value < 1 and float(text.replace(MINUS, "-")) == 1
        else text
    )


def title_of(metric: str) -> str:
    """The title of a metric's curve."""
    name, unit = words_of(metric)
    prefix = "" if metric in _FALLING else "evaluation "
    return f"{prefix}{name}" + (f" ({unit})" if unit else "")


def limits(name: str, values: Sequence[float]) -> tuple[float, float]:
    """The y range of a curve. It ignores bad values in the first tenth of a run, so that the rest
    is readable.
    """
    later = values[len(values) // 10 :]
    if name in _FALLING:
        low, high = min(values), max(later)
        high = max(high, low + _SMALLEST_RANGE)
    else:
        low, high = min(later), max(values)
        low = min(low, high - _SMALLEST_RANGE)
    margin = 0.08 * (high - low)
    return low - margin, min(high + margin, 1.002) if name == "auc" else high + margin
