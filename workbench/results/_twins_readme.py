"""The README.txt beside the tables of ``twins``."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from workbench import _numbers

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult
    from workbench.results.twins import Twins

__all__ = ["readme"]

_WIDTH = 88
_PYTHON = """\
    import glob, pandas as pd, statsmodels.formula.api as smf, workbench as wb
    tables = map(pd.read_{suffix}, sorted(glob.glob("twin_*.{suffix}")))
    answers = [smf.ols("...", table).fit() for table in tables]  # or logit, glm, ...
    print(wb.combine(answers))"""
_BY_HAND = (
    "By hand, or in another language, for each estimate: q = the mean of the {sets} estimates; "
    "W = the mean of their {sets} squared standard errors; B = the variance of the {sets} "
    "estimates (divided by {one_less}); T = (1 + 1/{sets}) B - W. The estimate is q, its standard "
    "error the root of T, and its 95 % interval q -/+ {quantile:.2f} times that (Student's t with "
    "{one_less} degrees of freedom). Where T is not positive, the tables are too small for this."
)
_NOT = (
    "Do not analyse one table alone, and do not stack them into one: intervals would be several "
    "times too narrow, because they would count neither what the private records leave open nor "
    "the privacy noise.",
    "Do not ask for what the model does not have: an interaction, a curve or a column that it "
    "lacks is absent from these tables, whatever it is in the private records, and the interval "
    "will say so with confidence.",
    "Do not look for persons: no row is a copy of a private record.",
)


def readme(
    twins: Twins, result: FitResult, cautions: list[str], names: list[str], suffix: str
) -> str:
    """The text.

    :param cautions: to begin with. :param names: of the files. :param suffix: of them.
    """
    from scipy import stats

    sets, rows = len(twins), _numbers.count(twins.rows, " ")
    blocks = [
        "SYNTHETIC TABLES FOR ANALYSIS",
        *(f"CAUTION. {words}" for words in cautions),
        f"{sets} tables of {rows} rows each: {names[0]} to {names[-1]}. They were drawn from a "
        "statistical model of private records, each table with other parameters: one draw from "
        "the model's posterior. So the tables differ as much as the parameters are uncertain.",
        f"Model: {result.predictor.model.summary}",
        *([twins.inputs_words] if twins.inputs_words else []),
        _heading("What is promised"),
        f"Label: {twins.label}. {_promise(twins.label, result)}",
        _heading("Columns"),
        "\n".join(
            textwrap.fill(f"{name}: {words}", _WIDTH, subsequent_indent="    ")
            for name, words in twins.column_words()
        )
        or "Numbers; the columns were not declared.",
        _heading("How to analyse them"),
        "Do the same analysis of each table, as if it was the real one, and combine the "
        f"{sets} answers. In Python:",
        _PYTHON.format(suffix=suffix),
        _BY_HAND.format(sets=sets, one_less=sets - 1, quantile=stats.t.ppf(0.975, sets - 1)),
        _heading("What not to do"),
        *_NOT,
    ]
    wrapped = (block if "\n" in block else textwrap.fill(block, _WIDTH) for block in blocks)
    return "\n\n".join(wrapped) + "\n"


def _promise(label: str, result: FitResult) -> str:
    if label == "covered":
        return (
            f"{result.guarantee.headline()} The tables were computed from what was released under "
            "this promise and from public data, so they cost no further privacy. Their number of "
            "rows was chosen and says nothing more than the promise does."
        )
    return f"{result.guarantee.headline()} The tables were computed from that result."


def _heading(words: str) -> str:
    return f"{words}\n{'-' * len(words)}"
