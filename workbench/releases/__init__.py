"""Releases that a reviewer can check: a folder with the result, its statement, the ledger's part
and a script that recomputes epsilon.
"""

from workbench.releases.deployment import deployment, text_of
from workbench.releases.description import questions
from workbench.releases.verifying import Finding, Verification, verify
from workbench.releases.writing import release

__all__ = [
    "Finding",
    "Verification",
    "deployment",
    "questions",
    "release",
    "text_of",
    "verify",
]
