"""What only the owner of a release can say, asked for once and kept in a small file."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.sweeps.plan_file import read_mapping

__all__ = ["QUESTIONS", "answers_of", "ask", "checked", "questions", "write"]

_SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_REMEDY = "Write the answers into the file, which workbench release --describe FILE makes."

QUESTIONS = {
    "name": "Name of what is published",
    "data_curators": "Who publishes it; several names are separated by semicolons",
    "intended_use": "What it is to be used for",
    "data_product_region": "Which region the records describe, or whose laws apply",
    "publication_date": "Date of publication, as 2026-01-31",
    "data_product_sector": f"Sector: {', '.join(_SECTORS)}; or nothing",
    "actors": "Who may see it, who saw the records, and why they are trusted",
    "future_uses": "Whether more will be published about these records",
    "preparation": (
        "What was done with the records before: cleaning, exploration, tuning; and whether that "
        "was private"
    ),
    "protection": "How the records themselves are protected: storage and access",
    "justification": "Who chose epsilon, the unit and the model, and why",
    "registry_authors": "Who writes this entry; separated by semicolons",
    "sources": "Links to papers or pages about it; or nothing",
}
_OPTIONAL = ("data_product_sector", "sources")  # which need no answer


def questions() -> dict[str, str]:
    """What only the owner of a release can say for its entry in a registry, by name.

    >>> wb.releases.questions()["data_product_region"]
    'Which region the records describe, or whose laws apply'
    """
    return dict(QUESTIONS)


def checked(answers: Mapping[str, Any]) -> dict[str, str]:
    """The answers, all of them text.

    :raises ArgumentError: naming ``describe``, if one is missing, unknown or cannot be meant.
    """
    for name in answers:
        if name not in QUESTIONS:
            raise _validate.unknown_name("describe", name, list(QUESTIONS))
    for name, value in answers.items():
        if not isinstance(value, (str, int, float, datetime.date, type(None))):
            raise ArgumentError("describe", name, "must be text.")
    texts = {name: str(answers.get(name) or "").strip() for name in QUESTIONS}
    missing = [name for name, text in texts.items() if name not in _OPTIONAL and not text]
    if missing:
        raise ArgumentError(
            "describe",
            ", ".join(missing),
            "has no answer: nobody but you knows it.",
            remedy=_REMEDY,
        )
    for name, text in texts.items():
        if text and (problem := _problem(name, text)):
            raise ArgumentError("describe", f"{name}: {text}", problem)
    sentences = ("preparation", "protection")  # which stand within others
    return texts | {name: texts[name].rstrip(".") + "." for name in sentences}


def _problem(name: str, text: str) -> str:
    """Why ``text`` answers no question ``name``; "" if it does."""
    if name == "data_product_sector" and text not in _SECTORS:
        return f"must be one of {', '.join(_SECTORS)}, or empty."
    is_list = name in ("data_curators", "registry_authors")
    if is_list and not any(map(str.strip, text.split(";"))):
        return "must be a name."
    if name == "publication_date":
        try:
            if datetime.date.fromisoformat(text).isoformat() != text:
                raise ValueError
        except ValueError:
            return "must be a date such as 2026-01-31."
    return ""


def answers_of(describe: Mapping[str, Any] | str | Path) -> dict[str, str]:
    """The answers in a mapping or a file. :raises ArgumentError: naming ``describe``."""
    if isinstance(describe, Mapping):
        return checked(describe)
    path = _validate.path("describe", describe, "must be the path of a YAML file.")
    if not path.exists():
        raise ArgumentError("describe", str(describe), "no such file.", remedy=_REMEDY)
    return checked(read_mapping("describe", path))


def ask(file: Path, answer: Callable[[str], str] | None) -> None:
    """Ask the questions that ``file`` has no answer to, and keep each answer there at once.

    :param answer: shows a question and returns the answer, such as ``input``; None to ask nobody,
        and only to write a new file with the questions.
    :raises ArgumentError: naming ``describe``.
    """
    if file.suffix not in (".yaml", ".yml"):
        raise ArgumentError("describe", str(file), "must be the name of a .yaml file.")
    answers = read_mapping("describe", file) if file.exists() else {}
    if answer is None:
        if not file.exists():
            write(file, answers)
        return
    for name, question in QUESTIONS.items():
        is_needed = name not in _OPTIONAL
        if name in answers and (answers[name] or not is_needed):
            continue
        text = answer(f"{question}: ").strip()
        while (is_needed and not text) or (text and (problem := _problem(name, text))):
            text = answer(f"{problem if text else 'An answer is needed.'} {question}: ").strip()
        answers[name] = text
        write(file, answers)


def write(file: Path, answers: Mapping[str, Any]) -> None:
    """Write the answers, with their questions as comments."""
    lines = ["# What only you can say about the release, for its entry in a registry."]
    for name, question in QUESTIONS.items():
        if name in answers or name not in _OPTIONAL or not answers:
            value = yaml.safe_dump({name: answers.get(name, "")}, allow_unicode=True, width=88)
            lines.append(f"# {question}\n{value.rstrip()}")
    try:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        reason = f"cannot write there ({error.strerror})."
        raise ArgumentError("describe", str(file), reason) from None
