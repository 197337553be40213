"""formulaic's operators with limits: what multiplies out to too many terms is refused before it is
expanded.
"""

from __future__ import annotations

import ast
import functools
import importlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.formula.limits import MOST_FACTORS, MOST_POWER, MOST_PRODUCTS, python_of, refused

__all__ = ["check_size", "check_tokens", "terms_of"]

_LONGEST = 100  # columns of an interaction that - may still take away
_POWERS = ("**", "^")
_COMPARISON = re.compile(r"[<>]=?|[=!]=")
_ARITHMETIC = {"*": "*", ":": "*", "/": "/"}


def terms_of(formula: str, source: str) -> list[tuple[str, ...]]:
    """The terms of ``source`` in order, each as the texts of its factors; the intercept is ("1",).

    :param formula: the text to which errors refer.
    :raises ArgumentError: naming ``formula``, for a power of one term, or one that is too high.
    """
    terms = _parser(formula).get_terms(source)
    return [tuple(str(factor.expr) for factor in term.factors) for term in terms]


def _parser(formula: str) -> Any:
    parser = importlib.import_module("formulaic.parser")
    resolver = _resolver()(feature_flags=set())
    resolver.formula = formula
    return parser.DefaultFormulaParser(operator_resolver=resolver, feature_flags=set())


def check_tokens(formula: str, tokens: Sequence[Any], quoted: Mapping[str, str]) -> None:
    """Refuse arithmetic outside ``I(...)``, and powers written with ^ inside it, with what to write
    instead.

    :param tokens: formulaic's, of the right-hand side. :param quoted: ``{identifier: name}`` of
        columns in backticks.
    :raises ArgumentError: naming ``formula``.
    """
    texts = [token.token for token in tokens]
    for identifier, name in quoted.items():
        texts = [text.replace(identifier, f"`{name}`") for text in texts]
    kinds = [token.kind.value for token in tokens]

    def operand(index: int) -> str:
        return (
            texts[index]
            if 0 <= index < len(texts) and kinds[index] in ("name", "value", "python")
            else ""
        )

    for index, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        if kind == "python":
            # before formulaic reads it, which has no limits
            node = python_of(formula, tokens[index].token)
            if node is not None and any(isinstance(child, ast.BitXor) for child in ast.walk(node)):
                raise refused(
                    formula,
                    f"has {text}, in which ^ is not a power: write {text.replace('^', '**')}.",
                )
        before, after = operand(index - 1), operand(index + 1)
        if kind == "operator" and _COMPARISON.match(text):
            written = f"{before} {text} {after}" if before and after else "age > 65"
            raise refused(
                formula,
                f"has a comparison outside I(...): write I({written}), which is 1 where it is "
                "true.",
            )
        if kind == "operator" and text[0] == "&":
            raise refused(
                formula, f"has &: for an interaction write {before or 'a'}:{after or 'b'}."
            )
        if kind == "value" and re.fullmatch(r"[\d.]+", text):
            _check_number(formula, index, texts, operand)


def _check_number(
    formula: str, index: int, texts: Sequence[str], operand: Callable[[int], str]
) -> None:
    """:raises ArgumentError: for a number that is no exponent of terms."""
    before = texts[index - 1] if index else ""
    after = texts[index + 1] if index + 1 < len(texts) else ""
    if before in _POWERS or (texts[index] in ("0", "1") and not {before, after} & {"*", "/"}):
        return
    for sign, name, name_first in (
        (after, operand(index + 2), False),
        (before, operand(index - 2), True),
    ):
        if sign in _ARITHMETIC and name:
            sides = (name, texts[index]) if name_first else (texts[index], name)
            written = f"I({sides[0]} {_ARITHMETIC[sign]} {sides[1]})"
            raise refused(
                formula,
                f"has a number outside I(...): write {written}, or {name} alone, whose weight "
                "learns it.",
            )
    raise refused(
        formula,
        "has a number as a factor: numbers belong inside I(...), and 0 or - 1 leaves out the "
        "intercept.",
    )


# ---- how much a formula multiplies out to --------------------------------------------------------


@dataclass(frozen=True)
class _Size:
    """Upper bounds for a set of terms.

    :param count: of its terms. :param longest: factors of a term. :param factors: a bit for each
        different factor.
    """

    count: int = 0
    longest: int = 0
    factors: int = 0

    def times(self, multiplier: _Size) -> _Size:
        """The products of all pairs of terms: at most one for each set of factors."""
        factors = self.factors | multiplier.factors
        different = factors.bit_count()
        longest = min(self.longest + multiplier.longest, different)
        count, sets = self.count * multiplier.count, 0
        for size in range(1, longest + 1):
            sets += math.comb(different, size)
            if sets >= count:
                return _Size(count, longest, factors)
        return _Size(min(count, sets), longest, factors)

    def plus(self, addend: _Size) -> _Size:
        """The union."""
        longest = max(self.longest, addend.longest)
        return _Size(self.count + addend.count, longest, self.factors | addend.factors)

    def joined(self) -> _Size:
        """The product of all terms."""
        return _Size(min(self.count, 1), self.factors.bit_count(), self.factors)


def check_size(formula: str, sources: Iterable[str]) -> None:
    """Count the products of terms that all ``sources`` make, before any is made.

    :param formula: the text to which errors refer.
    :raises ArgumentError: naming ``formula``, for too many products, or an interaction of too many
        columns.
    """
    bits: dict[str, int] = {}
    products = 0

    def multiplied(multiplicand: _Size, multiplier: _Size) -> _Size:
        nonlocal products
        products += multiplicand.count * multiplier.count
        made = multiplicand.times(multiplier)
        if made.longest > _LONGEST:
            words = (
                f"has an interaction of more than {_LONGEST} columns; at most {MOST_FACTORS} are "
                "possible."
            )
            raise refused(formula, words)
        if products > MOST_PRODUCTS:
            words = f"multiplies out to {products} terms; at most {MOST_PRODUCTS} are possible."
            raise refused(formula, words)
        return made

    def combined(symbol: str, args: Sequence[Any], sizes: Sequence[_Size]) -> _Size:
        if len(sizes) == 1:
            return _Size() if symbol == "-" else sizes[0]
        lhs, rhs = sizes
        if symbol == "+":
            return lhs.plus(rhs)
        if symbol == "*":
            return lhs.plus(rhs).plus(multiplied(lhs, rhs))
        if symbol == ":":
            return multiplied(lhs, rhs)
        if symbol in ("/", "in"):
            parents, nested = (lhs, rhs) if symbol == "/" else (rhs, lhs)
            return parents.plus(multiplied(parents.joined(), nested))
        if symbol in _POWERS:
            written = str(getattr(args[1], "token", ""))
            power = min(int(written) if written.isdecimal() else MOST_POWER, MOST_POWER, lhs.count)
            return functools.reduce(multiplied, [lhs] * max(power, 1))
        return lhs

    for source in sources:
        try:
            tree = _parser(formula).get_ast(source)
        except Exception:  # ``terms_of`` says why it cannot be read
            continue
        waiting, sizes = [(tree, False)], list[_Size]()
        while waiting:
            node, has_sizes = waiting.pop()
            if not hasattr(node, "args"):
                text = str(getattr(node, "token", ""))
                sizes.append(_Size(1, 1, 1 << bits.setdefault(text, len(bits))))
            elif has_sizes:
                first = len(sizes) - len(node.args)
                sizes[first:] = [combined(node.operator.symbol, node.args, sizes[first:])]
            else:
                waiting += [(node, True), *((argument, False) for argument in reversed(node.args))]


@functools.cache
def _resolver() -> type:
    """formulaic's resolver of operators with limits; formulaic is imported where a formula
    is read.
    """
    base = importlib.import_module("formulaic.parser.parser").DefaultOperatorResolver

    class Limited(base):  # type: ignore[misc, valid-type]
        formula = ""

        @property
        def operators(self) -> list[Any]:
            operators: list[Any] = super().operators
            for operator in operators:
                if operator.symbol in _POWERS:
                    operator._to_terms = functools.partial(_power, self.formula)
            return operators

    return Limited


def _power(formula: str, base: Any, exponent: Collection[Any]) -> Any:
    """``base`` multiplied by itself: as many products as there are different ones, and not their
    power.
    """
    literal = ":".join(str(factor.expr) for term in exponent for factor in term.factors)
    if not literal.isdecimal() or int(literal) < 1:
        raise refused(
            formula, f"has a power of terms that is no whole number of at least 1: {literal}."
        )
    if int(literal) > MOST_POWER:
        raise refused(
            formula, f"has the power {literal} of terms; at most {MOST_POWER} is possible."
        )
    if len(base) == 1 and int(literal) > 1:
        (term,) = base
        name = ":".join(str(factor.expr) for factor in term.factors)
        raise refused(
            formula,
            f"has a power of {name}, which is {name} in a formula: write I({name}**{literal}).",
        )
    product = base
    for _ in range(min(int(literal), len(base)) - 1):  # more factors give no further terms
        product = type(base)(partial * multiplier for partial in product for multiplier in base)
    return product
