"""The checks of a released folder. Each is a function of the folder's contents that returns the
problems it found, and what it means that there is none.

A new check is a new function in ``CHECKS``. A new mechanism needs none: its guarantee says what
``accounting`` composes, and what dp-accounting can say of it is in ``privacy/check_epsilon.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from workbench import __version__
from workbench._schema import FormError
from workbench.privacy.guarantee import check_epsilon
from workbench.privacy.second_opinion import second_opinion
from workbench.privacy.steps import Steps
from workbench.releases import claim, consistency, excerpt, journal
from workbench.releases.contents import (
    BARE_NOTEBOOK,
    CLAIM,
    DATA,
    DEPLOYMENT,
    LEDGER,
    MANIFEST,
    NOTEBOOK,
    REPORT,
    REQUIREMENTS,
    SCRIPT,
    STATEMENT,
    Contents,
    Gap,
)
from workbench.releases.declaration import declaration
from workbench.releases.signing import SIGNATURE, is_signed_by
from workbench.releases.tables import Tables
from workbench.results.report import coefficient_rows, settings_rows, summary_rows

__all__ = ["CHECKS", "Answer", "Status", "script"]

Status = Literal["passed", "failed", "not checked"]
_NUMBER = re.compile(r"\d")
_EPSILON = re.compile(r"(?:epsilon|\u03b5)(?: is| of)?\W{1,3}(\d[\d.e+-]*\d|\d)")


class Answer(NamedTuple):
    """What one check found. :param sentence: one or more, on a line."""

    status: Status
    sentence: str


def _answer(problems: Iterable[str], otherwise: str) -> Answer:
    phrases = list(problems)
    return Answer("failed", "; ".join(phrases) + ".") if phrases else Answer("passed", otherwise)


def _files(contents: Contents) -> Answer:
    """The digests of all files are those of the manifest, and there is no other file."""
    listed = contents.values_of(MANIFEST)["files"]

    def problems() -> Iterator[str]:
        for name in {*contents.names, STATEMENT, SCRIPT} - {*listed, MANIFEST, SIGNATURE}:
            yield f"{name} is not in the manifest"
        for name in contents.irregular:
            yield f"{name} is a hidden folder or a link"
        for name, digest in listed.items():
            try:
                if hashlib.sha256(contents.bytes_of(name)).hexdigest() != digest:
                    yield f"{name} is not the file that was released"
            except Gap as gap:
                yield str(gap).rstrip(".")

    return _answer(sorted(problems()), f"All {len(listed)} files are those that were released.")


def _form(contents: Contents) -> Answer:
    """Result, draws and parameters have their form and belong together."""
    try:
        result = contents.result
    except Gap as gap:
        return Answer("failed", str(gap))
    if not result.guarantee.is_private:
        return Answer(
            "failed", "The fit was without privacy (guarantee.private): it promises nothing."
        )
    return Answer("passed", "The result is complete, and its files belong together.")


def _own_epsilon(contents: Contents) -> Answer:
    """The accountant of the workbench, which has every sampler and the choice of the best run."""
    fit = contents.guarantee
    try:
        check_epsilon(fit)
    except FormError as error:
        return Answer("failed", f"guarantee.{error}")
    steps, delta = fit.accounted(), fit.delta - fit.overflow_delta - fit.noise_delta
    opinion = second_opinion(steps, delta) if isinstance(steps, Steps) else None
    if opinion is not None and opinion.epsilon > fit.epsilon * 1.002:
        return Answer("failed", f"guarantee.epsilon is {fit.epsilon:g}, but {opinion.words()}.")
    return Answer(
        "passed",
        f"The noise and the steps keep {fit.label(with_delta=True)} by the workbench's accountant.",
    )


def _other_epsilon(contents: Contents) -> Answer:
    """The package dp-accounting, which is of other authors."""
    from workbench.privacy import check_epsilon

    answers = check_epsilon.recompute(contents.guarantee.to_dict())
    for status in ("failed", "not checked", "passed"):
        if sentences := [sentence for kind, sentence in answers if kind == status]:
            break
    return Answer(status, "; ".join(sentences) + ".")


def _consistency(contents: Contents) -> Answer:
    """C, sigma, q, T, N, relation and unit are the same wherever result.json has them."""
    fit = contents.result.guarantee  # and the index has its form
    kind = isinstance(contents.result, Tables)
    problems = (consistency.of_tables if kind else consistency.contradictions)(contents.index, fit)
    return _answer(problems, "C, q, T, N, relation and unit are the same wherever they stand.")


def _statement(contents: Contents) -> Answer:
    """The statement is the one that follows from the numbers."""
    return _follows(contents, STATEMENT, contents.guarantee.statement())


def _claim(contents: Contents) -> Answer:
    """The page along the pyramid of NIST SP 800-226 follows from the numbers."""
    return _follows(
        contents, CLAIM, claim.page(contents.guarantee, has_ledger=LEDGER in contents.names)
    )


def _data(contents: Contents) -> Answer:
    """The declaration of the records follows from the result."""
    return _follows(contents, DATA, declaration(contents.result))


def _requirements(contents: Contents) -> Answer:
    """The versions to install are those that the result was computed with."""
    lines = contents.text_of(REQUIREMENTS).splitlines()
    pinned = journal.pinned(contents.index.get("versions", {}))
    missing = {f"{name}=={number}" for name, number in pinned.items()} - {*lines}
    problems = (f"{REQUIREMENTS} lacks {line}, the version that fitted" for line in sorted(missing))
    return _answer(problems, f"{REQUIREMENTS} has the versions that the result was computed with.")


def _notebook(contents: Contents) -> Answer:
    """The notebooks have no output without a label, and are the same but for outputs."""
    if NOTEBOOK not in contents.names:
        return Answer("passed", "There is no notebook.")
    notebook = contents.values_of(NOTEBOOK)

    def problems() -> Iterator[str]:
        for number, cell in enumerate(notebook["cells"], 1):
            if any(map(journal.may_be_private, cell.get("outputs", []))):
                yield f"{NOTEBOOK} has an output without a label, in cell {number}"
        if contents.text_of(BARE_NOTEBOOK) != journal.bare(notebook):
            yield f"{BARE_NOTEBOOK} is not {NOTEBOOK} without its outputs"

    return _answer(problems(), "All outputs of the notebook are labelled as covered or public.")


def _entry(contents: Contents) -> Answer:
    """The registry's entry follows from the numbers and the owner's answers."""
    if DEPLOYMENT not in contents.names:
        return Answer("passed", "There is no entry for a registry.")
    return _follows(contents, DEPLOYMENT, contents.entry)


def _follows(contents: Contents, name: str, expected: str) -> Answer:
    """Whether a file has the words that follow from the numbers."""
    written, follows = contents.text_of(name).split(), expected.split()
    if written == follows:
        return Answer("passed", f"{name} says what follows from the numbers.")
    position = next(
        (k for k, words in enumerate(zip(written, follows, strict=False)) if words[0] != words[1]),
        min(len(written), len(follows)),
    )
    near = slice(max(0, position - 4), position + 3)
    said, wanted = (" ".join(words[near]) for words in (written, follows))
    sentence = f'{name} says "{said}" where the numbers give "{wanted}".'
    numbers = [[word for word in words if _NUMBER.search(word)] for words in (written, follows)]
    if numbers[0] == numbers[1] and _version(contents).status != "passed":
        return Answer("not checked", f"{sentence} Another version words it otherwise.")
    return Answer("failed", sentence)


def _report(contents: Contents) -> Answer:
    """The report has the statement, the settings and the tables of the result, and no other
    epsilon.
    """
    result = contents.result
    if isinstance(result, Tables):
        return _follows(contents, REPORT, result.page())
    page = "\n".join(["", *contents.report.blocks, ""])
    fit = result.guarantee
    rows: list[Sequence[str]] = [*settings_rows(result)]
    if result.model_is_known:
        rows += [*summary_rows(result), *coefficient_rows(result)[1]]
    cells = [*([paragraph] for paragraph in fit.statement().split("\n\n")), *rows]
    blocks = ["\n".join(filter(None, (" ".join(cell.split()) for cell in row))) for row in cells]

    def false() -> Iterator[str]:
        said, expected = (
            {float(text) for text in _EPSILON.findall(text)} for text in (page, str(blocks))
        )
        for epsilon in sorted(said - expected - {fit.epsilon, fit.epsilon_taken}):
            yield f"{REPORT} says epsilon {epsilon:g}, which the result does not have"
        if contents.report.programs:
            yield f"{REPORT} has {', '.join(sorted(contents.report.programs))}: do not open it"
        if ("\nThis run was stopped early" in page) != (result.status == "cancelled"):
            yield f"{REPORT} says otherwise how the run ended than status {result.status}"

    lacks = [f'{REPORT} lacks "{_short(block)}"' for block in blocks if f"\n{block}\n" not in page]
    problems = [*false(), *lacks]
    if problems == lacks != [] and _version(contents).status != "passed":
        return Answer("not checked", f"{'; '.join(lacks)}. Another version words it otherwise.")
    if not problems and not result.model_is_known:
        sentence = f"Statement and settings of {REPORT} are right; its tables need a model of"
        return Answer("not checked", f"{sentence} the owner's.")
    return _answer(problems, f"{REPORT} has the statement, tables and settings of the result.")


def _short(block: str) -> str:
    words = block.replace("\n", " | ")
    return words if len(words) < 90 else f"{words[:87]}..."


def _ledger(contents: Contents) -> Answer:
    """The ledger's rows are unbroken, this release is one of them, and their total is right."""
    if not contents.index.get("spend"):
        return Answer(
            "not checked",
            "result.json names no row of a ledger, so nobody says what else was spent.",
        )
    values = contents.values_of(LEDGER)
    problems = [*excerpt.broken(values)]
    if not problems:
        problems = [*excerpt.of_release(values, contents.index, contents.guarantee)]
    if not problems and excerpt.is_quick(values):
        problems = [*excerpt.of_total(values)]
    words = excerpt.total_in_words(values)
    if not problems and (numbers := excerpt.seeded(values)):
        fits = ", ".join(map(str, numbers))
        return Answer(
            "not checked", f"{words}; not for whoever knows the seeds of the fits {fits}."
        )
    if problems or excerpt.is_quick(values):
        return _answer((f"{LEDGER}: {problem}" for problem in problems), f"{words}.")
    return Answer(
        "not checked", f"{words}; the rows are whole, but their total takes long to check."
    )


def _version(contents: Contents) -> Answer:
    """The program that checks is of the version that fitted and released."""
    fitted = contents.index.get("versions", {})
    released = contents.values_of(MANIFEST)["workbench"]
    if fitted.get("workbench") == released == __version__:
        packages = ", ".join(f"{name} {number}" for name, number in fitted.items())
        return Answer("passed", f"Fitted, released and checked by one version: {packages}.")
    return Answer(
        "not checked",
        f"Fitted by version {fitted.get('workbench')}, released by {released}, and checked by "
        f"{__version__}: check again with the version that released it.",
    )


def _signature(contents: Contents) -> Answer:
    """The owner's key signed the manifest."""
    if SIGNATURE not in contents.names:
        if contents.signer:
            return Answer("failed", f"{SIGNATURE} is missing: nobody signed the folder.")
        return Answer("passed", "Nobody signed the folder: get it from its owner directly.")
    values, manifest = contents.values_of(SIGNATURE), contents.bytes_of(MANIFEST)
    key = values["key"]
    is_right = is_signed_by(key, values["signature"], manifest)
    if is_right is None:
        return Answer("not checked", "To check the signature: pip install cryptography.")
    if not is_right:
        return Answer("failed", f"{SIGNATURE} is not a signature of this {MANIFEST}.")
    if contents.signer and key != contents.signer.lower():
        return Answer("failed", f"{SIGNATURE} is of another key than was asked for: {key}.")
    signer = "the key that was asked for" if contents.signer else f"{key}: ask whose key that is"
    return Answer("passed", f"Signed with {signer}.")


def script() -> bytes:
    """The program that checks epsilon alone, as it is put into folders."""
    import importlib.resources

    return importlib.resources.files("workbench.privacy").joinpath(SCRIPT).read_bytes()


def _script(contents: Contents) -> Answer:
    """The script in the folder is ours. It is not run."""
    if contents.bytes_of(SCRIPT) == script():
        return Answer("passed", f"{SCRIPT} is that of this version.")
    if _version(contents).status == "passed":
        return Answer("failed", f"{SCRIPT} was altered: do not run it.")
    return Answer(
        "not checked", f"{SCRIPT} is not that of this version: read it before you run it."
    )


CHECKS: dict[str, Callable[[Contents], Answer]] = {
    "files": _files,
    "signature": _signature,
    "form": _form,
    "version": _version,
    "epsilon": _own_epsilon,
    "epsilon, by dp-accounting": _other_epsilon,
    "consistency": _consistency,
    "statement": _statement,
    "claim": _claim,
    "report": _report,
    "data": _data,
    "requirements": _requirements,
    "notebook": _notebook,
    "ledger": _ledger,
    "registry": _entry,
    "script": _script,
}
