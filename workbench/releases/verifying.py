"""``verify``: whether a released folder says what its own numbers prove."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from workbench import _html, _validate
from workbench.releases.checks import CHECKS, Answer, Status
from workbench.releases.contents import MANIFEST, Contents, Gap
from workbench.releases.journal import opened

__all__ = ["Finding", "Verification", "verify"]

_KEY = re.compile("[0-9A-Fa-f]{64}")
_WORST: tuple[Status, ...] = ("failed", "not checked", "passed")
UNPROVEN = (
    "No check can tell whether these records were used, or whether the software was altered. Who "
    "writes all files anew with other numbers makes a folder that agrees with itself."
)


class Finding(NamedTuple):
    """What one check of a folder found.

    >>> folder = wb.release(wb.fit("logistic", "breast_cancer", epsilon=1.0), "released")
    >>> wb.verify(folder).findings[0].check
    'files'

    :param check: its name.
    :param status: "passed", "failed" or "not checked".
    :param sentence: what it found, on one line.
    """

    check: str
    status: Status
    sentence: str

    def __str__(self) -> str:
        return f"{self.status}: {self.check}. {self.sentence}"


@dataclass(frozen=True)
class Verification:
    """What all checks of a folder found, made by ``workbench.verify``.

    >>> folder = wb.release(wb.fit("logistic", "breast_cancer", epsilon=1.0), "released")
    >>> wb.verify(folder).status  # the records are public, so no ledger has the fit
    'not checked'

    :param findings: one for each check.
    """

    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def status(self) -> Status:
        """The worst of all: "failed", "not checked" or "passed"."""
        return min((finding.status for finding in self.findings), key=_WORST.index)

    def __str__(self) -> str:
        return "\n".join([self.verdict, *map(str, self.findings), UNPROVEN])

    @property
    def verdict(self) -> str:
        """All checks in one sentence, with the names of those that did not pass."""
        names = [finding.check for finding in self.findings if finding.status == self.status]
        count = f"{len(names)} of {len(self.findings)} checks"
        if self.status == "failed":
            return f"{count} failed: {'; '.join(names)}. Do not accept this release."
        if self.status == "not checked":
            return f"No check failed, but {count} could not be made: {'; '.join(names)}."
        return f"All {len(names)} checks passed."

    def _repr_html_(self) -> str:
        return _html.box(*map(_html.sentence, str(self).splitlines()))


def verify(folder: str | Path, *, signer: str | None = None) -> Verification:
    """Check a folder or a zip file that ``workbench.release`` wrote, without the records.

    Nothing in it is run, and it may come from anybody. A check that cannot be made because
    a file is missing or damaged is "not checked"; the checks of files and of form say which.

    >>> folder = wb.release(wb.fit("logistic", "breast_cancer", epsilon=1.0), "released")
    >>> [finding.check for finding in wb.verify(folder) if finding.status == "failed"]
    []

    :param signer: the public key that the folder must be signed with, 64 hexadecimal digits, as
        its owner states it; by default anybody may have signed it, or nobody.
    :raises ArgumentError: naming ``folder``, if it is no release, or ``signer``.
    """
    if signer is not None and not _KEY.fullmatch(_validate.text("signer", signer)):
        raise _validate.ArgumentError("signer", signer, "must be 64 hexadecimal digits.")
    path = _validate.path("folder", folder, "must be the path of a folder or a zip file.")
    with opened(path) as place:
        if not (place / MANIFEST).is_file():
            raise _validate.ArgumentError(
                "folder",
                str(folder),
                f"is no released folder ({MANIFEST} is missing).",
                remedy="workbench release RESULT --out FOLDER makes one of a saved result.",
            )
        contents = Contents(place, signer)
        return Verification(tuple(Finding(name, *_checked(name, contents)) for name in CHECKS))


def _checked(name: str, contents: Contents) -> Answer:
    try:
        status, sentence = CHECKS[name](contents)
    except Gap as gap:
        status, sentence = (
            "failed" if name in ("files", "signature", "form") else "not checked",
            str(gap),
        )
    except Exception as error:  # whatever a forged file does to a check, it has not passed
        status, sentence = "failed", f"cannot be read ({_validate.kind_and_message(error)})."
    return Answer(status, _validate.in_one_line(sentence))
