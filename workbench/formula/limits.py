"""Limits of a formula's text: what is beyond them is refused before a parser sees it.

A parser takes time and memory that grow with a power of what it reads, or by more: ``(x + z)**20``
multiplies out to a million products, and brackets in brackets end a recursion.
"""

from __future__ import annotations

import ast
import re
import unicodedata

from workbench import _validate

__all__ = ["MOST_FACTORS", "MOST_POWER", "MOST_PRODUCTS", "check_text", "python_of", "refused"]

_LONGEST = 20_000  # characters
_LONGEST_CALL = 5_000  # characters
_DEEPEST = 40  # brackets in brackets
_DEEPEST_CALL = 100  # operations in operations
_MOST_DIGITS = 30
MOST_PRODUCTS = 10_000  # products of terms in all, before equal ones are merged
MOST_POWER = 10
MOST_FACTORS = 8  # of an interaction
_DIGITS = re.compile(rf"(?<!\w)\d[\da-fA-FxX_]{{{_MOST_DIGITS},}}")


def refused(formula: object, expectation: str, code: str = "") -> _validate.ArgumentError:
    """The error about a formula."""
    return _validate.ArgumentError("formula", formula, expectation, code=code)


def check_text(formula: str) -> None:
    """:raises ArgumentError: naming ``formula``, for text that is too long or deep, or has numbers
    that are too long.
    """
    if len(formula) > _LONGEST:
        raise refused(formula, f"has {len(formula)} characters; at most {_LONGEST} are possible.")
    unseen = next((sign for sign in formula if not (sign.isprintable() or sign.isspace())), None)
    if unseen is not None:
        name = unicodedata.name(unseen, "no name").lower()
        raise refused(
            formula.replace(unseen, "?"),
            f"has the invisible character U+{ord(unseen):04X} ({name}): delete it.",
        )
    depth = deepest = 0
    for sign in formula:
        depth += (sign in "([") - (sign in ")]")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        raise refused(
            formula, f"has {deepest} brackets in brackets; at most {_DEEPEST} are possible."
        )
    for digits in _DIGITS.findall(formula):
        raise refused(
            formula, f"has a number of {len(digits)} digits; at most {_MOST_DIGITS} are possible."
        )


def python_of(formula: str, text: str) -> ast.expr | None:
    """A call or a name, read as Python; None for what Python cannot read.

    :raises ArgumentError: naming ``formula``, if it is too long or deep.
    """
    if len(text) > _LONGEST_CALL:
        raise refused(
            formula, f"has a call of {len(text)} characters; at most {_LONGEST_CALL} are possible."
        )
    too_deep = refused(
        formula,
        f"has more than {_DEEPEST_CALL} operations in operations: name the result as a column.",
    )
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):
        raise too_deep from None
    level: list[ast.AST] = [node]
    for _ in range(_DEEPEST_CALL):
        level = [child for parent in level for child in ast.iter_child_nodes(parent)]
    if level:
        raise too_deep
    return node
