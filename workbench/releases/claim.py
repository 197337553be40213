"""The claim of a release along the pyramid of NIST SP 800-226, level by level, with what is not
covered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from workbench import _html
from workbench.privacy.guarantee import Guarantee, change_of

__all__ = ["CENTRAL", "NOISE", "NOT_QUERIED", "NO_LEDGER", "levels", "neighbours", "page"]

NOISE = (
    "Noise and sum are whole numbers, so the last bits of floating-point numbers reveal nothing "
    "(Mironov 2012). Noise and minibatches come from ChaCha20 with a secret key of the operating "
    "system."
)
CENTRAL = "The owner runs the program on the records and publishes what it released with noise."
NOT_QUERIED = "Nobody queries the records. What is published can be used without limit."
NO_LEDGER = "No ledger says what else was spent."
_LEDGER = (
    "ledger.json has the fits on the same records that the owner's ledger knows, and their total."
)
_INTRODUCTION = (
    "NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees) compares "
    "such a claim to a pyramid: each level is worth as much as those below it. The levels stand "
    "here from the top down. What is claimed follows from the numbers in result.json, and "
    "workbench verify checks that. What is not covered is up to the owner: ask."
)


Status = Literal["claimed", "not covered"]


def neighbours(fit: Guarantee) -> str:
    """Which data sets are adjacent, in a sentence or two."""
    most = "" if fit.max_rows is None else f" A {fit.unit} has at most {fit.max_rows} rows."
    change = change_of(fit.relation, fit.unit, fit.covers_deletion)
    return f"Adjacent data sets differ by {change} ({fit.relation}).{most}"


def levels(fit: Guarantee, *, has_ledger: bool) -> Iterator[tuple[str, Status, str]]:
    """(name, status, what is claimed or not covered) of the pyramid's levels, from the top down.

    :param has_ledger: whether ledger.json says what else was spent on the same records.
    """
    yield ("Epsilon and delta", "claimed", f"{fit.label(with_delta=True)}. {fit.in_brief()}")
    yield ("Unit of privacy", "claimed", f"Each {fit.unit}. {neighbours(fit)}")
    yield ("Composition within the release", "claimed", fit.composition())
    if has_ledger:
        yield ("Composition with other releases", "claimed", _LEDGER)
    else:
        yield ("Composition with other releases", "not covered", NO_LEDGER)
    yield ("Mechanism", "claimed", " ".join(fit.origin()))
    yield ("Implementation of noise", "claimed", NOISE)
    conditions = " ".join(fit.caveats) or "None."
    yield ("Conditions and public facts", "claimed", conditions)
    yield (
        "Utility and bias",
        "not covered",
        "Clipping and noise can move results, those of small groups most. The guarantee says "
        "nothing about that.",
    )
    yield ("Query model", "claimed", NOT_QUERIED)
    yield ("Trust model", "claimed", f"Central. {CENTRAL}")
    yield ("Timing and other side channels", "not covered", "How long the program runs.")
    if fit.against_storage:
        words = "The order of reads of the encrypted file of records tells its storage nothing."
        yield ("Reads of the storage", "claimed", words)
    yield (
        "Security and access",
        "not covered",
        "Who can read the records, the program's memory, its checkpoints and its keys.",
    )
    yield (
        "Data collection",
        "not covered",
        "How the records were collected, by what consent, and what else they were used for.",
    )


def page(fit: Guarantee, *, has_ledger: bool) -> str:
    """``levels`` as a page."""
    table = _html.table(
        ("level", "status", "what"), levels(fit, has_ledger=has_ledger), numbers=False
    )
    title = "What is claimed, and what is not covered"
    return _html.page(title, _html.paragraph(_INTRODUCTION), table)
