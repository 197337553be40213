"""How a notebook shows a result that is the value of a cell: what was promised, how well it did,
and how to go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from workbench import _html
from workbench._numbers import count, fixed, places_for, upper
from workbench.plots.metrics import in_words
from workbench.results.entries import entry_names

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["SEEDED", "card", "line"]

# whoever knows the seed, which may stand in the cell above
SEEDED = "The noise of this fit follows from a seed: whoever knows it can take it off."
_ROWS = 5  # of the summary
_NEXT = ("result.summary()", "result.plot()", "result.guarantee", 'result.save("folder")')


def line(result: FitResult) -> str:
    """A result on one line."""
    metrics = [
        f"{name}={value:.4g}" if isinstance(value, (int, float)) else f"{name}={value}"
        for name, value in result.metrics.items()
    ]
    cautions = len(result.cautions)
    doubts = [f"{cautions} caution{'s' * (cautions > 1)}"] * bool(cautions)
    guarantee = result.guarantee
    epsilon = f"epsilon={upper(guarantee.epsilon)}" if guarantee.is_private else guarantee.label()
    fitted = f"{result.model} on {result.data['name']}"
    return f"FitResult({', '.join([result.status, fitted, epsilon, *metrics, *doubts])})"


def card(result: FitResult) -> str:
    """HTML in the page's colours. Each part has its label; it shows no record."""
    guarantee = result.guarantee
    steps = f"{count(guarantee.steps_taken)} of {count(guarantee.steps)} steps"
    blocks = [
        _html.note(f"{result.model} on {result.data['name']}", f"· {result.status} · {steps}"),
        _html.quiet(result.message) if result.message else "",
        _html.sentence(guarantee.headline()),
    ]
    if not guarantee.secure_randomness and guarantee.is_private:
        blocks.append(_html.sentence(SEEDED))
    doubts = (*result.cautions, result.clipping_bias.words)
    blocks.extend(_html.sentence(words) for words in doubts if words)
    if result.metrics:
        blocks.append(
            _html.note(
                "Metrics:",
                ", ".join(in_words(result.metrics, intervals=result.metric_intervals)),
                _html.badge(result.metrics_label),
            )
        )
    quantities = list(itertools.islice(_quantities(result), _ROWS))
    if quantities:
        total = sum(int(np.prod(draws.shape[1:])) for draws in result.sorted_draws.values())
        blocks.append(
            _html.note(
                "Posterior:",
                f"{len(quantities)} of {count(total)} quantities",
                _html.badge(result.release_label),
            )
        )
        facts = [(float(np.mean(draws)), float(np.std(draws, ddof=1))) for _, draws in quantities]
        decimals = places_for([spread for _, spread in facts])
        numbers = [
            [fixed(value, digits) for value in row]
            for row, digits in zip(facts, decimals, strict=True)
        ]
        mark = result.clipping_bias.of
        rows = [
            [f"{name}{mark(name)}", *row]
            for (name, _), row in zip(quantities, numbers, strict=True)
        ]
        blocks.append(_html.table(["", "mean", "sd"], rows))
    if result.gradient_norms is not None:
        blocks.append(
            _html.note(
                "Clipping:", result.gradient_norms.words(), _html.badge(result.release_label)
            )
        )
    steps_on = " · ".join(map(_html.code, _NEXT))
    blocks.append(
        f'<div style="opacity:.85">To go on: {steps_on}, where <i>result</i> is this object.</div>'
    )
    return _html.box(*blocks)


def _quantities(result: FitResult) -> Iterator[tuple[str, np.ndarray]]:
    """Name and draws of each coordinate of the posterior, as in ``FitResult.summary``."""
    for site, draws in result.sorted_draws.items():
        names = entry_names(site, result.coordinates.get(site), draws.shape[1:])
        yield from zip(names, draws.reshape(len(draws), -1).T, strict=True)
