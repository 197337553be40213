"""Figures of the code that CONTRIBUTING sets limits to; ``python tests/figures_of_the_code.py``
prints them.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ("workbench", "models")
# words of grammar: alone they do not say what a name stands for
WORDS = frozenset(
    [
        "found",
        "place",
        "places",
        "each",
        "part",
        "parts",
        "given",
        "known",
        "own",
        "others",
        "other",
        "left",
        "share",
        "shares",
        "seen",
        "kept",
        "held",
        "asked",
        "takes",
        "brought",
        "way",
        "ways",
        "thing",
        "things",
        "rest",
        "one",
        "two",
        "these",
        "those",
        "it",
        "what",
        "where",
        "whole",
    ]
)
COMBINATIONS = (
    "fitting/spec",
    "inference/step",
    "inference/compiling",
    "fitting/prepared",
    "inference/training",
)


def sources(folders):
    """{path: text} of the Python files in these folders of the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path: path.read_text() for path in paths}


def bound_names(node):
    """Names that a node of a syntax tree binds: assigned, looped over, caught, and parameters."""
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.arg):
        return [node.arg]
    return [node.name] if isinstance(node, ast.ExceptHandler) and node.name else []


def comments(text):
    """How many comments a file has, without those for tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not re.match(r"# (fmt:|type:|noqa|pragma)", text) for text in texts)


def counts(folders):
    """Counter of what the syntax trees of all Python files in these folders have."""
    total = Counter()
    for text in sources(folders).values():
        for node in ast.walk(ast.parse(text)):
            total["statements"] += isinstance(node, ast.stmt)
            total["expressions"] += isinstance(node, ast.expr)
            names = bound_names(node)
            total["names"] += len(names)
            total["of grammar"] += sum(name.strip("_") in WORDS for name in names)
            if isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                total["parameters"] += 1
                total["any"] += (
                    isinstance(node.annotation, ast.Name) and node.annotation.id == "Any"
                )
    return total


def conditions(module):
    """Conditional statements and expressions of a module of the library."""
    tree = ast.parse((ROOT / "workbench" / f"{module}.py").read_text())
    return sum(isinstance(node, (ast.If, ast.IfExp)) for node in ast.walk(tree))


def figures():
    """{figure: number}, of the library unless it says tests."""
    library, texts = counts(LIBRARY), sources(LIBRARY).values()
    lines = [line for text in texts for line in text.splitlines()]
    return {
        "statements": library["statements"],
        "expressions": library["expressions"],
        "names that say grammar, %": 100 * library["of grammar"] / library["names"],
        "parameters that are Any, %": 100 * library["any"] / library["parameters"],
        "lines of more than 100 columns": sum(len(line) > 100 for line in lines),
        "fmt: skip": sum("# fmt: skip" in line for line in lines),
        "comments in 1000 lines": 1000 * sum(map(comments, texts)) / len(lines),
        "conditions where settings meet": sum(map(conditions, COMBINATIONS)),
    }


if __name__ == "__main__":
    for figure, number in {
        **figures(),
        "expressions of tests": counts(("tests",))["expressions"],
    }.items():
        print(
            f"{figure:32} {number:10.1f}"
            if isinstance(number, float)
            else f"{figure:32} {number:10}"
        )
