"""Numbers made of declared columns, with bounds that follow from the declared ones by interval
arithmetic.

An expression such as ``log(income) / 10`` is read as Python and computed here, never evaluated.
Whatever is computed for a row depends on that row and on declarations. A function that would look
at other rows is refused, with what to write instead.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from workbench.data.preprocessing import DECLARATION, middle_and_reach
from workbench.formula.hints import CALLS
from workbench.formula.limits import refused

__all__ = ["FUNCTIONS", "Bounded", "check_calls", "constant", "evaluate", "function_name"]


class Bounded(NamedTuple):
    """Numbers with public bounds.

    :param low: lower bound. :param high: upper bound.
    :param values: float64[N] within the bounds; None where bounds alone are asked for.
    """

    low: float
    high: float
    values: np.ndarray | None = None

    def cut(self) -> Bounded:
        """The same, with rounding beyond the bounds taken off."""
        return (
            self
            if self.values is None
            else self._replace(values=np.clip(self.values, self.low, self.high))
        )


Node = ast.expr
Columns = Mapping[str, Bounded]

_OF_TERMS = ("C", "poly", "bs", "s", "mo")  # functions that make a term
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_UNKNOWN = 1e18  # bounds of columns that a look learns are this large


def constant(node: Node) -> Any:
    """The value of a number, a text or a list of these. :raises ValueError: for anything else."""
    return ast.literal_eval(node)


def function_name(call: ast.Call) -> str:
    """The name of the function that is called, without ``np.``."""
    name = ast.unparse(call.func)
    return name.removeprefix("np.").removeprefix("numpy.")


def evaluate(formula: str, node: Node, columns: Columns) -> Bounded:
    """The numbers of an expression with their bounds.

    :param node: that passed ``check_calls``. :param columns: numeric columns by identifier.
    :raises ArgumentError: naming ``formula``, for what is no expression of these columns, or has no
        finite bounds.
    """
    bounded = _value(formula, node, columns)
    if not (math.isfinite(bounded.low) and math.isfinite(bounded.high)):
        raise refused(
            formula,
            f"{ast.unparse(node)} has no finite bounds within the declared ones: declare "
            "narrower bounds.",
        )
    return bounded.cut()


def _value(formula: str, node: Node, columns: Columns) -> Bounded:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            number = float(value)
            return Bounded(number, number, np.float64(number))  # type: ignore[arg-type]  # one number for all rows
        case ast.Name(id=name):
            if name in columns:
                return columns[name]
            raise refused(formula, f"uses {name} as a number, which it is not declared to be.")
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            bounded = _value(formula, inner, columns)
            return Bounded(-bounded.high, -bounded.low, _apply(operator.neg, bounded))
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(formula, inner, columns)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            operands = (_value(formula, left, columns), _value(formula, right, columns))
            return _ARITHMETIC[type(sign)](functools.partial(_unbounded, formula, node), *operands)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARED:
            first, second = _value(formula, left, columns), _value(formula, right, columns)
            truth = _apply(lambda a, b: _COMPARED[type(sign)](a, b).astype(float), first, second)
            return Bounded(0.0, 1.0, truth)
        case ast.Call():
            return _called(formula, node, columns)
        case ast.BoolOp() | ast.Compare() | ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            words = (
                "write one comparison in each pair of brackets, and * for and, as in I((age > "
                "18) * (age < 65))."
            )
            raise refused(formula, f"has {ast.unparse(node)}: {words}")
    raise refused(formula, f"has {ast.unparse(node)}, which is not arithmetic of columns.")


def check_calls(formula: str, node: Node) -> None:
    """:raises ArgumentError: naming ``formula``, for a function in ``node`` that is unknown, with
    what to write instead.
    """
    for call in (child for child in ast.walk(node) if isinstance(child, ast.Call)):
        name = function_name(call)
        if name in CALLS:
            raise refused(formula, f"has {name}(), which {CALLS[name]}.")
        if name in _OF_TERMS:
            reason = "which stands for columns and not for a number: write it as a term by itself."
            raise refused(formula, f"has {name}() within another function, {reason}")
        if name not in FUNCTIONS:
            known = ", ".join((*FUNCTIONS, *_OF_TERMS[:-1]))
            raise refused(
                formula,
                f"has {name}(), which is unknown; known are {known} and {_OF_TERMS[-1]}.",
            )


def _called(formula: str, node: ast.Call, columns: Columns) -> Bounded:
    name = function_name(node)
    if len(node.args) != 1 or node.keywords:
        raise refused(
            formula,
            f"must give {name}() one argument; it takes what else it needs from the declared "
            "bounds.",
        )
    return FUNCTIONS[name](
        functools.partial(_unbounded, formula, node), _value(formula, node.args[0], columns)
    )


def _unbounded(formula: str, node: Node, bounded: Bounded, needs: str) -> Exception:
    reach = f"by the declared bounds it may be anything from {bounded.low:g} to {bounded.high:g}"
    if max(abs(bounded.low), abs(bounded.high)) > _UNKNOWN:
        reach = "by its bounds it may be any number"
    return refused(
        formula,
        f"{ast.unparse(node)} {needs}, but {reach}: declare such bounds, or write another "
        "expression.",
        DECLARATION,
    )


def _apply(function: Callable[..., Any], *operands: Bounded) -> Any:
    """``function`` of the values; None where bounds alone are asked for."""
    if any(operand.values is None for operand in operands):
        return None
    with np.errstate(all="ignore"):  # bounds were checked; a value beyond them by rounding is cut
        return function(*(operand.values for operand in operands))


# ---- arithmetic ----------------------------------------------------------------------------------

Refusal = Callable[[Bounded, str], Exception]


def _ends(numbers: list[float]) -> tuple[float, float]:
    """The smallest and the largest; both are NaN if one is, as 0 times infinity, which ``evaluate``
    refuses.
    """
    return (math.nan, math.nan) if any(map(math.isnan, numbers)) else (min(numbers), max(numbers))


def _sum(refusal: Refusal, first: Bounded, second: Bounded) -> Bounded:
    return Bounded(
        first.low + second.low, first.high + second.high, _apply(operator.add, first, second)
    )


def _difference(refusal: Refusal, minuend: Bounded, subtrahend: Bounded) -> Bounded:
    return Bounded(
        minuend.low - subtrahend.high,
        minuend.high - subtrahend.low,
        _apply(operator.sub, minuend, subtrahend),
    )


def _product(refusal: Refusal, first: Bounded, second: Bounded) -> Bounded:
    ends = [a * b for a in first[:2] for b in second[:2]]
    return Bounded(*_ends(ends), _apply(operator.mul, first, second))


def _quotient(refusal: Refusal, dividend: Bounded, divisor: Bounded) -> Bounded:
    if divisor.low <= 0 <= divisor.high:
        raise refusal(divisor, "needs a divisor that is not 0")
    ends = [a / b for a in dividend[:2] for b in divisor[:2]]
    return Bounded(*_ends(ends), _apply(operator.truediv, dividend, divisor))


def _power(refusal: Refusal, base: Bounded, power: Bounded) -> Bounded:
    exponent = power.low
    if exponent != power.high:
        raise refusal(power, "needs a number as its exponent")
    if not exponent.is_integer() and base.low < 0:
        raise refusal(base, "needs a base of at least 0")
    if exponent < 0 and base.low <= 0 <= base.high:
        raise refusal(base, "needs a base that is not 0")
    try:
        ends = [base.low**exponent, base.high**exponent]
    except OverflowError:
        raise refusal(base, "is too large") from None
    if exponent > 0 and exponent % 2 == 0 and base.low < 0 < base.high:
        ends.append(0.0)
    return Bounded(*_ends(ends), _apply(operator.pow, base, power))


_ARITHMETIC: dict[type, Callable[[Refusal, Bounded, Bounded], Bounded]] = {
    ast.Add: _sum,
    ast.Sub: _difference,
    ast.Mult: _product,
    ast.Div: _quotient,
    ast.Pow: _power,
}


# ---- functions -----------------------------------------------------------------------------------


def _rising(
    function: Callable[..., Any], above: float | None = None, at_least: float | None = None
) -> Any:
    """A rising function of numbers, with the bound below which it does not exist."""

    def call(refusal: Refusal, argument: Bounded) -> Bounded:
        if above is not None and argument.low <= above:
            raise refusal(argument, f"needs numbers above {above:g}")
        if at_least is not None and argument.low < at_least:
            raise refusal(argument, f"needs numbers of at least {at_least:g}")
        with np.errstate(over="ignore"):
            low, high = float(function(argument.low)), float(function(argument.high))
        return Bounded(low, high, _apply(function, argument))

    return call


def _size(refusal: Refusal, argument: Bounded) -> Bounded:
    ends = [
        abs(argument.low),
        abs(argument.high),
        *([0.0] if argument.low < 0 < argument.high else []),
    ]
    return Bounded(*_ends(ends), _apply(np.abs, argument))


def _centred(refusal: Refusal, argument: Bounded) -> Bounded:
    """Less the middle of the bounds."""
    middle, reach = middle_and_reach((argument.low, argument.high))
    return Bounded(-reach, reach, _apply(lambda values: values - middle, argument))


def _scaled(refusal: Refusal, argument: Bounded) -> Bounded:
    """Less the middle of the bounds, over half their distance."""
    middle, reach = middle_and_reach((argument.low, argument.high))
    if not reach > 0:
        raise refusal(argument, "needs numbers that are not all the same")
    return Bounded(-1.0, 1.0, _apply(lambda values: (values - middle) / reach, argument))


FUNCTIONS: dict[str, Callable[[Refusal, Bounded], Bounded]] = {
    "I": lambda refusal, argument: argument,
    "log": _rising(np.log, above=0.0),
    "log2": _rising(np.log2, above=0.0),
    "log10": _rising(np.log10, above=0.0),
    "log1p": _rising(np.log1p, above=-1.0),
    "exp": _rising(np.exp),
    "expm1": _rising(np.expm1),
    "sqrt": _rising(np.sqrt, at_least=0.0),
    "abs": _size,
    "center": _centred,
    "scale": _scaled,
    "standardize": _scaled,
}
