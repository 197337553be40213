"""Releases that a reviewer can check: a folder with the result, its statement, the ledger's part
and a script that recomputes epsilon.
"""

from typing import TYPE_CHECKING, Any

from workbench import _lazy

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.releases.description import questions
    from workbench.releases.registry import deployment, text_of
    from workbench.releases.verifying import Finding, Verification, verify
    from workbench.releases.writing import release

# entries know all kinds of results, which take half a second to import and verifying does not need
_HOMES = {
    **dict.fromkeys(("deployment", "text_of"), "registry"),
    "questions": "description",
    **dict.fromkeys(("Finding", "Verification", "verify"), "verifying"),
    "release": "writing",
}

__all__ = [
    "Finding",
    "Verification",
    "deployment",
    "questions",
    "release",
    "text_of",
    "verify",
]


def __getattr__(name: str) -> Any:
    return _lazy.named(__name__, name, _HOMES)
