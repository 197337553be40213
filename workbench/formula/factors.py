"""The factors of a formula's terms: numbers with public bounds, and categories with declared
levels.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench._validate import nearest
from workbench.data.columns import Boolean, Categorical, Column, Numeric, indicator_of
from workbench.data.preprocessing import DECLARATION, listed, text_of
from workbench.data.schema import Schema
from workbench.formula.bases import BASES, basis
from workbench.formula.expressions import Bounded, check_calls, constant, evaluate, function_name
from workbench.formula.limits import python_of
from workbench.formula.parsing import Parsed, refused, unquoted

__all__ = ["Factor", "Levels", "Number", "Values", "declared_column", "factors_of", "level_names"]

_MOST_LEVELS = 1000  # of a column of whole numbers as categories
_CONTRASTS = ("Treatment", "contr.treatment")


class Values(NamedTuple):
    """N rows by column.

    :param numbers: float64[N] within the declared bounds. :param levels: int[N], places among the
        levels.
    """

    rows: int
    numbers: Mapping[str, np.ndarray]
    levels: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Number:
    """A factor of one or several columns of numbers.

    :param name: as in the formula. :param labels: of its columns. :param bounds: float64[K, 2],
        public.
    :param compute: float64[N, K] from ``Values``. :param columns: of the table, of which it is
        made.
    :param sums_to_one: whether the squares of a row's columns add up to 1 at most, as splines' do.
    :param is_truth: whether values are 0/1 and must not be rescaled, as for categories.
    :param scales: of a smooth, as ``Basis`` has them.
    :param curve_of: of a smooth, the text of its number.
    :param steps: of a monotone effect, what 1 more of each column compares.
    """

    name: str
    labels: tuple[str, ...]
    bounds: np.ndarray
    compute: Callable[[Values], np.ndarray]
    columns: tuple[str, ...]
    sums_to_one: bool = False
    is_truth: bool = False
    scales: tuple[float, ...] = ()
    curve_of: str = ""
    steps: tuple[str, ...] = ()

    @property
    def stands_alone(self) -> bool:
        """Whether its weights have a prior of their own, and it cannot be in an interaction."""
        return bool(self.scales or self.steps)


@dataclass(frozen=True, eq=False)
class Levels:
    """A factor of categories.

    :param name: as in the formula; that of the column, unless another level is the reference there.
    :param column: its name. :param labels: of all levels. :param reference: the place of the
        reference among them.
    """

    name: str
    column: str
    labels: tuple[str, ...]
    reference: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column of the table."""
        return (self.column,)


Factor = Number | Levels


def level_names(column: Column) -> tuple[str, ...] | None:
    """The levels of a column as categories; None for a column of numbers that are not declared
    whole, or too many.
    """
    if isinstance(column, Categorical):
        return column.labels
    if isinstance(column, Boolean):
        return ("False", "True")
    low, high = math.ceil(column.low), math.floor(column.high)
    return (
        tuple(map(str, range(low, high + 1)))
        if column.whole and high - low < _MOST_LEVELS
        else None
    )


def factors_of(parsed: Parsed, schema: Schema) -> dict[str, Factor]:
    """``{text in the formula: factor}`` of all terms.

    :raises ArgumentError: naming ``formula`` or ``schema``.
    """
    terms = [*parsed.terms, *(term for group in parsed.groups for term in group.terms)]
    texts = dict.fromkeys(text for term in terms for text in term)
    return {text: _factor(parsed, schema, text) for text in texts}


def declared_column(parsed: Parsed, columns: Mapping[str, Column], name: str) -> Column:
    """The declaration of a column that a formula names. :raises ArgumentError: naming ``formula``,
    if there is none.
    """
    if name in columns:
        return columns[name]
    meant = [column for column in columns if _plain(column) == _plain(name)] or nearest(
        name, columns
    )
    quoting = "" if all(map(str.isidentifier, meant)) else ", in backticks"
    hint = (
        f" Did you mean {' or '.join(f'`{column}`' for column in meant)}{quoting}?" if meant else ""
    )
    raise refused(
        parsed.text,
        f"uses {name!r}, which is none of the columns {listed(columns)}.{hint}",
    )


def _plain(name: str) -> str:
    """A name without what tables differ in: case, blanks, and signs for blanks."""
    return re.sub(r"[\W_]", "", name.casefold())


def _factor(parsed: Parsed, schema: Schema, text: str) -> Factor:
    node = python_of(parsed.text, text)
    if not isinstance(node, (ast.Name, ast.Call)) and text in schema.columns:
        raise refused(
            parsed.text,
            f"has the column {text} without backticks, which a name like this needs: `{text}`.",
        )
    if node is None:
        raise refused(parsed.text, f"has {text!r}, which is neither a column nor a call.")
    if isinstance(node, ast.Name):
        name = parsed.quoted.get(node.id, node.id)
        column = declared_column(parsed, schema.columns, name)
        if isinstance(column, Numeric):
            return _number(parsed, schema, node, name)
        return _levels(name, column, name, None)
    if not isinstance(node, ast.Call):
        raise refused(parsed.text, f"has {text!r}: write arithmetic as I({text}).")
    function = function_name(node)
    if function in ("C", "factor"):
        return _categories(parsed, schema, node)
    if function == "mo":
        return _monotone(parsed, schema, node)
    if function == "missing":
        return _missing(parsed, schema, node)
    numbers = _basis if function in BASES else _number
    return numbers(parsed, schema, node, unquoted(text, parsed.quoted))


def _categories(parsed: Parsed, schema: Schema, call: ast.Call) -> Levels:
    """``C(x)`` or ``C(x, Treatment("b"))``."""
    name, column = _column_of_levels(parsed, schema, call)
    arguments = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    of_numbers = isinstance(column, Numeric)
    if not arguments:
        return _levels(f"C({name})" if of_numbers else name, column, name, None)
    reference = None
    if (
        len(arguments) == 1
        and isinstance(arguments[0], ast.Call)
        and ast.unparse(arguments[0].func) in _CONTRASTS
    ):
        chosen = [*arguments[0].args, *(keyword.value for keyword in arguments[0].keywords)]
        reference = (
            constant(chosen[0])
            if len(chosen) == 1 and isinstance(chosen[0], ast.Constant)
            else None
        )
    if reference is None or text_of(reference) not in (level_names(column) or ()):
        raise refused(
            parsed.text,
            f"has {unquoted(ast.unparse(call), parsed.quoted)}; after the column there may be a "
            f"reference level, as in C({name}, "
            f"Treatment({(level_names(column) or ('a',))[-1]!r})). Levels come from schema=.",
        )
    return _levels(f"C({name}, Treatment({reference!r}))", column, name, text_of(reference))


def _column_of_levels(parsed: Parsed, schema: Schema, call: ast.Call) -> tuple[str, Column]:
    """The column that a call such as ``C(x)`` names."""
    function = function_name(call)
    if not call.args or not isinstance(call.args[0], ast.Name):
        words = f"must name a column in {function}(), whose levels schema= declares."
        raise refused(parsed.text, words)
    name = parsed.quoted.get(call.args[0].id, call.args[0].id)
    column = declared_column(parsed, schema.columns, name)
    if level_names(column) is None:
        raise refused(
            parsed.text,
            f"has {function}({name}), but {name} is declared as numbers: declare its values, as in "
            f"schema={{{name!r}: ['a', 'b']}}, or a range of whole numbers, as in (1, 5, int).",
            DECLARATION,
        )
    return name, column


def _monotone(parsed: Parsed, schema: Schema, call: ast.Call) -> Number:
    """``mo(x)``: for each level but the first whether x is at least that."""
    name, column = _column_of_levels(parsed, schema, call)
    if len(call.args) > 1 or call.keywords:
        words = f"must write mo({name}) without more: all shares of the effect are as likely."
        raise refused(parsed.text, words)
    labels = level_names(column) or ()
    if len(labels) < 3 or getattr(column, "other", False):
        raise refused(
            parsed.text,
            f"has mo({name}), which needs at least three levels in order, declared from low to "
            f"high and without others: write C({name}).",
        )
    text, thresholds = f"mo({name})", np.arange(1, len(labels))
    return Number(
        text,
        tuple(f"{text}[{label}]" for label in labels[1:]),
        np.tile([0.0, 1.0], (len(thresholds), 1)),
        lambda values: (values.levels[name][:, None] >= thresholds).astype(np.float64),
        (name,),
        is_truth=True,
        steps=tuple(f"{upper} against {lower}" for lower, upper in itertools.pairwise(labels)),
    )


def _levels(text: str, column: Column, name: str, reference: str | None) -> Levels:
    labels = level_names(column) or ()
    chosen = getattr(column, "reference", None) if reference is None else reference
    return Levels(text, name, labels, labels.index(chosen) if chosen in labels else 0)


# ---- numbers -------------------------------------------------------------------------------------


def _columns_in(parsed: Parsed, schema: Schema, node: ast.expr) -> dict[str, tuple[str, Bounded]]:
    """``{identifier: (column, its bounds)}`` of an expression's columns of numbers."""
    functions = {id(child.func) for child in ast.walk(node) if isinstance(child, ast.Call)}
    functions |= {
        id(descendant)
        for child in ast.walk(node)
        if id(child) in functions
        for descendant in ast.walk(child)
    }
    columns = {}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and id(child) not in functions:
            name = parsed.quoted.get(child.id, child.id)
            column = declared_column(parsed, schema.columns, name)
            if isinstance(column, Categorical):
                raise refused(
                    parsed.text, f"computes with {name}, which is declared as categories."
                )
            low, high = (0.0, 1.0) if isinstance(column, Boolean) else (column.low, column.high)
            columns[child.id] = name, Bounded(low, high)
    return columns


def _number(parsed: Parsed, schema: Schema, node: ast.expr, name: str) -> Number:
    """One column of numbers."""
    check_calls(parsed.text, node)
    columns = _columns_in(parsed, schema, node)
    if not columns:
        raise refused(parsed.text, f"has {name}, which uses no column.")
    text = parsed.text
    bounds = evaluate(
        text, node, {identifier: bounded for identifier, (_, bounded) in columns.items()}
    )

    def compute(values: Values) -> np.ndarray:
        arguments = {
            name: bounded._replace(values=values.numbers[column])
            for name, (column, bounded) in columns.items()
        }
        computed = evaluate(text, node, arguments).values
        assert computed is not None
        return np.broadcast_to(computed, values.rows)[:, None]

    used = tuple(column for column, _ in columns.values())
    inner = (
        node.args[0]
        if isinstance(node, ast.Call) and function_name(node) == "I" and node.args
        else node
    )
    is_truth = isinstance(inner, ast.Compare)
    return Number(name, (name,), np.array([bounds[:2]]), compute, used, is_truth=is_truth)


def _missing(parsed: Parsed, schema: Schema, call: ast.Call) -> Number:
    """``missing(x)``: 1 where x is missing."""
    name = (
        parsed.quoted.get(ast.unparse(call.args[0]), ast.unparse(call.args[0]))
        if len(call.args) == 1
        else ""
    )
    column = declared_column(parsed, schema.columns, name)
    if not isinstance(column, Numeric) or not column.missing:
        raise refused(
            parsed.text,
            f"has missing({name}), but {name} is not declared as Numeric(..., missing=True).",
            DECLARATION,
        )
    label = f"missing({name})"
    return Number(
        label,
        (label,),
        np.array([[0.0, 1.0]]),
        lambda values: values.numbers[indicator_of(name)][:, None],
        (name,),
        is_truth=True,
    )


def _basis(parsed: Parsed, schema: Schema, call: ast.Call, name: str) -> Number:
    """Columns of polynomials or splines."""
    if not call.args:
        raise refused(parsed.text, f"must name a column in {name}.")
    inner = _number(parsed, schema, call.args[0], name)
    low, high = inner.bounds[0]
    made = basis(parsed.text, call, Bounded(float(low), float(high)))
    return Number(
        name,
        tuple(f"{name}[{label}]" for label in made.labels),
        made.bounds,
        lambda values: made.compute(inner.compute(values)[:, 0]),
        inner.columns,
        function_name(call) == "bs",
        scales=made.scales,
        curve_of=unquoted(ast.unparse(call.args[0]), parsed.quoted) if made.scales else "",
    )
