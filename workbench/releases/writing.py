"""``release``: a result as a folder, or a zip, that a reviewer checks without the records."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from workbench import __version__, _validate
from workbench._validate import ArgumentError
from workbench.data.look import Look
from workbench.fitting.evaluating import Evaluation
from workbench.ledger.ledger import Ledger
from workbench.ledger.reservation import check_ledger
from workbench.privacy.guarantee import Guarantee
from workbench.releases import claim, journal, signing
from workbench.releases.checks import script
from workbench.releases.contents import (
    BARE_NOTEBOOK,
    CLAIM,
    DATA,
    DEPLOYMENT,
    DESCRIPTION,
    LEDGER,
    MANIFEST,
    NOTEBOOK,
    REQUIREMENTS,
    SCRIPT,
    STATEMENT,
    Contents,
)
from workbench.releases.declaration import declaration
from workbench.releases.description import answers_of, write
from workbench.releases.excerpt import excerpt
from workbench.releases.tables import Tables
from workbench.results import FitResult, load
from workbench.results.twins import Twins
from workbench.sweeps.result import SweepResult

__all__ = ["release"]


def release(
    result: FitResult | Look | Evaluation | str | Path,
    out: str | Path,
    *,
    ledger: str | Path | Ledger | Literal[False] | None = None,
    describe: Mapping[str, Any] | str | Path | None = None,
    notebook: str | Path | None = None,
    sign: bool = False,
) -> Path:
    """Write a result into a new folder or zip file, with what a reviewer needs to check it.

    Beside the files of a saved result there are the statement, the claim along the pyramid of NIST
    SP 800-226, the ledger's part, what is declared of the records, exact versions of packages, a
    script that recomputes epsilon without the workbench, and a manifest with digests. Metrics that
    the guarantee does not cover are left out, since they were computed on private records.

    >>> folder = wb.release(wb.fit("logistic", "breast_cancer", epsilon=1.0), "released")
    >>> sorted(path.name for path in folder.iterdir())[:3]
    ['check_epsilon.py', 'claim.html', 'curves.png']

    :param result: of a fit or a choice, or the folder of a saved one; a look by itself; or the
        scores of ``evaluate`` or ``cross_validate``.
    :param out: a folder that is new or empty, or a new file whose name ends in .zip.
    :param ledger: that the fit was recorded in; by default the user's own. False leaves it out.
    :param describe: answers to ``releases.questions()``, or their file: the folder then has an
        entry for the Differential Privacy Deployments Registry.
    :param notebook: that made the result (.ipynb). It is put in twice: without outputs, and with
        those that the workbench labelled as covered or public data.
    :param sign: with your Ed25519 key, which is made at its first use (package cryptography).
    :raises ArgumentError: naming ``describe``; ``notebook``; ``result``, if it promises nothing,
        has a seed, from which its noise follows, or is no result that is released by itself;
        ``out``, if something is there; or ``ledger``, if it does not have the fit.
    """
    check_ledger(ledger)
    key = signing.private_key() if sign else None
    answers = None if describe is None else answers_of(describe)
    notes = None if notebook is None else journal.read_notebook(notebook)
    saved = _published(result)
    path = _validate.path("out", out, "must be the path of a folder or a zip file.")
    is_zip = path.suffix == ".zip"
    if path.exists() and (is_zip or not path.is_dir() or any(path.iterdir())):
        raise ArgumentError("out", str(out), "must be a new or an empty folder, or a new zip file.")
    rows: dict[str, Any] | None = None
    # one that is named must have it: a fit of a sweep does not know its row
    if ledger is not False and (saved.spend or ledger is not None):
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        rows = excerpt(book, saved.spend)
    with _all_or_nothing(path), tempfile.TemporaryDirectory(prefix="dpvi-release-") as directory:
        folder = Path(directory, "release") if is_zip else path
        saved.save(folder)
        texts = {
            STATEMENT: saved.guarantee.statement() + "\n",
            CLAIM: claim.page(saved.guarantee, has_ledger=rows is not None),
            DATA: declaration(saved),
            REQUIREMENTS: journal.requirements(saved.versions),
            SCRIPT: script().decode(),
        }
        if rows is not None:
            texts[LEDGER] = json.dumps(rows, indent=1) + "\n"
        if notes is not None:
            texts |= {NOTEBOOK: journal.labelled(notes), BARE_NOTEBOOK: journal.bare(notes)}
        for name, text in texts.items():
            (folder / name).write_bytes(text.encode())
        if answers is not None:
            write(folder / DESCRIPTION, answers)
            (folder / DEPLOYMENT).write_text(Contents(folder).entry, encoding="utf-8")
        _seal(folder, key)
        if is_zip:
            path.parent.mkdir(parents=True, exist_ok=True)
            journal.pack(folder, path)
    return path


@contextlib.contextmanager
def _all_or_nothing(path: Path) -> Iterator[None]:
    """Leave nothing at ``path`` after an error, so that the same call can be made again.

    :raises ArgumentError: naming ``out``, if it cannot be written.
    """
    was_there = path.is_dir()  # and empty
    try:
        yield
    except BaseException as error:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            if was_there:
                path.mkdir(exist_ok=True)
        if isinstance(error, OSError):
            reason = f"cannot write there ({error.strerror or error})."
            raise ArgumentError("out", str(path), reason) from error
        raise


def _seal(folder: Path, key: Any) -> None:
    """Write the manifest. :param key: to sign it with; None for no signature."""
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
    }
    manifest = {"format": 1, "workbench": __version__, "files": digests}
    content = (json.dumps(manifest, indent=1) + "\n").encode()
    (folder / MANIFEST).write_bytes(content)
    if key is not None:
        (folder / signing.SIGNATURE).write_bytes(signing.sign(key, content))


def _without_private_numbers(result: FitResult) -> FitResult:
    """The result without what was computed on private records and has no noise."""
    if result.metrics_label == "public data":
        return result
    if result.metrics_label == "covered":  # scores have noise, curves have none
        return dataclasses.replace(result, history=())
    return dataclasses.replace(result, metrics={}, metric_intervals={}, history=())


def _of_look(look: Look) -> Tables:
    if look.guarantee is None:
        reason = "is part of a fit, and is released with it."
        raise ArgumentError("result", "a look", reason, remedy="Release the result of the fit.")
    return Tables.of_look(look)


_PUBLISHED: dict[type, Callable[[Any], FitResult | Tables]] = {
    FitResult: _without_private_numbers,
    Look: _of_look,
    Evaluation: Tables.of_evaluation,
}
# what is no release by itself, with what to release in its place
_INSTEAD: dict[type, str] = {
    SweepResult: "Release one of its fits: wb.release(sweep.fit(1), out). "
    "wb.releases.deployment(sweep, answers) makes an entry for all of them.",
    Twins: "Release the result that they were drawn from, which costs no more: "
    "wb.release(result, out).",
}


def _published(result: Any) -> FitResult | Tables:
    """The result as it is released.

    :raises ArgumentError: naming ``result``, for one that is not.
    """
    loaded = load(result) if isinstance(result, (str, Path)) else result
    made = _PUBLISHED.get(type(loaded))
    if made is None:
        raise ArgumentError(
            "result",
            type(loaded).__name__,
            "is no result that is released by itself.",
            remedy=_INSTEAD.get(
                type(loaded), "Give a fit, a choice, a look or the scores of an evaluation."
            ),
        )
    saved = made(loaded)
    _require_promise(saved.guarantee)
    return saved


def _require_promise(fit: Guarantee) -> None:
    if not fit.is_private or fit.steps_taken == 0:
        reason = "promises nothing that could be checked, or took no step."
        raise ArgumentError("result", fit.label(), reason)
    if not fit.secure_randomness:
        raise ArgumentError(
            "result",
            fit.label(),
            "has noise that follows from a seed: its own, or that of a look or a fit that it is "
            "made of.",
            remedy="Look and fit again without a seed.",
        )
