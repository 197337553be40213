"""formulaic's operators with limits: what multiplies out to too many terms is refused before it is made."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection
from typing import Any

from workbench.formula.limits import MOST_POWER, check_products, refused

__all__ = ["terms_of"]

_PRODUCTS = ("*", "/", "in", ":")
_POWERS = ("**", "^")


def terms_of(formula: str, source: str) -> list[tuple[str, ...]]:
    """The terms of ``source`` in order, each as the texts of its factors; the intercept is ("1",).

    :param formula: the text to which errors refer.
    :raises ArgumentError: naming ``formula``, for too many products, or a power of one term.
    """
    parser = importlib.import_module("formulaic.parser")
    resolver = _resolver()(feature_flags=set())
    resolver.formula = formula
    terms = parser.DefaultFormulaParser(operator_resolver=resolver, feature_flags=set()).get_terms(source)
    return [tuple(str(factor.expr) for factor in term.factors) for term in terms]


@functools.cache
def _resolver() -> type:
    """formulaic's resolver of operators with limits; formulaic is imported where a formula is read."""
    base = importlib.import_module("formulaic.parser.parser").DefaultOperatorResolver

    class Limited(base):  # type: ignore[misc, valid-type]
        formula = ""

        @property
        def operators(self) -> list[Any]:
            operators: list[Any] = super().operators
            for operator in operators:
                if operator.symbol in _PRODUCTS:
                    operator._to_terms = functools.partial(_multiplied, self.formula, operator._to_terms)
                elif operator.symbol in _POWERS:
                    operator._to_terms = functools.partial(_power, self.formula)
            return operators

    return Limited


def _multiplied(formula: str, to_terms: Callable[..., Any], *sets: Collection[Any]) -> Any:
    check_products(formula, *sets)
    return to_terms(*sets)


def _power(formula: str, base: Any, exponent: Collection[Any]) -> Any:
    """``base`` multiplied by itself: as many products as there are different ones, and not their power."""
    literal = ":".join(str(factor.expr) for term in exponent for factor in term.factors)
    if not literal.isdecimal() or int(literal) < 1:
        raise refused(formula, f"has a power of terms that is no whole number of at least 1: {literal}.")
    if int(literal) > MOST_POWER:
        raise refused(formula, f"has the power {literal} of terms; at most {MOST_POWER} is possible.")
    if len(base) == 1 and int(literal) > 1:
        (term,) = base
        name = ":".join(str(factor.expr) for factor in term.factors)
        raise refused(formula, f"has a power of {name}, which is {name} in a formula: write I({name}**{literal}).")
    product = base
    for _ in range(min(int(literal), len(base)) - 1):  # more factors give no further terms
        check_products(formula, product, base)
        product = type(base)(one * other for one in product for other in base)
    return product
