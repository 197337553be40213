"""``release``: a result as a folder that a reviewer checks without the records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from workbench import __version__, _validate
from workbench.ledger.ledger import Ledger
from workbench.ledger.reservation import check_ledger
from workbench.releases import signing
from workbench.releases.checks import script
from workbench.releases.contents import (
    DEPLOYMENT,
    DESCRIPTION,
    LEDGER,
    MANIFEST,
    SCRIPT,
    STATEMENT,
    Contents,
)
from workbench.releases.description import answers_of, write
from workbench.releases.excerpt import excerpt
from workbench.results import FitResult, load

__all__ = ["release"]


def release(
    result: FitResult | str | Path,
    out: str | Path,
    *,
    ledger: str | Path | Ledger | Literal[False] | None = None,
    describe: Mapping[str, Any] | str | Path | None = None,
    sign: bool = False,
) -> Path:
    """Write a result into a new folder, with what a reviewer needs to check it.

    Beside the files of a saved result there are the statement, the ledger's part, a script that
    recomputes epsilon without the workbench, and a manifest with digests. Metrics that the
    guarantee does not cover are left out, since they were computed on private records.

    >>> folder = wb.release(wb.fit("logistic", "breast_cancer", epsilon=1.0), "released")
    >>> sorted(path.name for path in folder.iterdir())[:3]
    ['check_epsilon.py', 'curves.png', 'manifest.json']

    :param result: of a fit or a choice, or the folder of a saved one.
    :param out: a folder that is new or empty.
    :param ledger: that the fit was recorded in; by default the user's own. False leaves it out.
    :param describe: answers to ``releases.questions()``, or their file: the folder then has an
        entry for the Differential Privacy Deployments Registry.
    :param sign: with your Ed25519 key, which is made at its first use (package cryptography).
    :raises ArgumentError: naming ``describe``; ``result``, if it promises nothing or has a seed,
        from which its noise follows; ``out``, if something is there; or ``ledger``, if it does not
        have the fit.
    """
    check_ledger(ledger)
    key = signing.private_key() if sign else None
    answers = None if describe is None else answers_of(describe)
    saved = result if isinstance(result, FitResult) else load(result)
    _require_promise(saved)
    path = _validate.path("out", out, "must be the path of a folder.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise _validate.ArgumentError("out", str(out), "must be a new or an empty folder.")
    rows: dict[str, Any] | None = None
    if saved.spend and ledger is not False:
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        rows = excerpt(book, saved.spend)
    _without_private_numbers(saved).save(path)
    (path / STATEMENT).write_text(saved.guarantee.statement() + "\n", encoding="utf-8")
    (path / SCRIPT).write_bytes(script())
    if rows is not None:
        (path / LEDGER).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if answers is not None:
        write(path / DESCRIPTION, answers)
        (path / DEPLOYMENT).write_text(Contents(path).entry, encoding="utf-8")
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.iterdir())
    }
    manifest = {"format": 1, "workbench": __version__, "files": digests}
    content = (json.dumps(manifest, indent=1) + "\n").encode()
    (path / MANIFEST).write_bytes(content)
    if key is not None:
        (path / signing.SIGNATURE).write_bytes(signing.sign(key, content))
    return path


def _require_promise(result: FitResult) -> None:
    if not result.guarantee.is_private or result.guarantee.steps_taken == 0:
        reason = "promises nothing that could be checked, or took no step."
        raise _validate.ArgumentError("result", result.guarantee.label(), reason)
    if not result.guarantee.secure_randomness:
        raise _validate.ArgumentError(
            "result",
            result.guarantee.label(),
            "has noise that follows from a seed: its own, or that of a look or a fit that it is "
            "made of.",
            remedy="Look and fit again without a seed.",
        )


def _without_private_numbers(result: FitResult) -> FitResult:
    """The result without what was computed on private records and has no noise."""
    if result.metrics_label != "outside the guarantee":
        return result
    return dataclasses.replace(result, metrics={}, metric_intervals={}, history=())
