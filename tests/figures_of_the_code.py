"""Figures of the code that CONTRIBUTING sets limits to; ``python tests/figures_of_the_code.py`` prints them."""

import ast
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
COMBINATIONS = ("fitting/spec", "inference/step", "inference/compiling", "fitting/prepared", "inference/training")


def sources(folders):
    """{path: text} of the Python files in these folders of the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path: path.read_text() for path in paths}


def bindings(tree):
    """Names that are bound: assigned, looped over, caught, imported under, and parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def parameters(tree):
    """(name, annotation or None) of all parameters but self and cls."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if argument.arg not in ("self", "cls"):
                    yield argument.arg, argument.annotation and ast.unparse(argument.annotation)


def comments(path):
    """How many comments a file has, without those for tools."""
    with tokenize.open(path) as file:
        tokens = tokenize.generate_tokens(file.readline)
        texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not re.match(r"# (fmt:|type:|noqa|pragma)", text) for text in texts)


def size(folders):
    """(statements, expressions) in the syntax trees of all Python files in these folders."""
    nodes = [node for text in sources(folders).values() for node in ast.walk(ast.parse(text))]
    return sum(isinstance(node, ast.stmt) for node in nodes), sum(isinstance(node, ast.expr) for node in nodes)


def branches(module):
    """Conditional statements and expressions of a module of the library."""
    tree = ast.parse((ROOT / "workbench" / f"{module}.py").read_text())
    return sum(isinstance(node, (ast.If, ast.IfExp)) for node in ast.walk(tree))


def figures():
    """{figure: number}, of the library unless it says tests."""
    library = sources(("workbench", "models"))
    trees = [ast.parse(text) for text in library.values()]
    names = [name for tree in trees for name in bindings(tree)]
    annotations = [annotation for tree in trees for _, annotation in parameters(tree)]
    lines = [line for text in library.values() for line in text.splitlines()]
    statements, expressions = size(("workbench", "models"))
    return {
        "statements": statements,
        "expressions": expressions,
        "expressions of tests": size(("tests",))[1],
        "names that say grammar, %": 100 * sum(name.strip("_") in WORDS for name in names) / len(names),
        "parameters that are Any, %": 100 * sum(text == "Any" for text in annotations) / len(annotations),
        "lines of more than 100 columns": sum(len(line) > 100 for line in lines),
        "fmt: skip": sum("# fmt: skip" in line for line in lines),
        "comments in 1000 lines": 1000 * sum(map(comments, library)) / len(lines),
        "conditions where settings meet": sum(map(branches, COMBINATIONS)),
    }


if __name__ == "__main__":
    for figure, number in figures().items():
        print(f"{figure:32} {number:10.1f}" if isinstance(number, float) else f"{figure:32} {number:10}")
