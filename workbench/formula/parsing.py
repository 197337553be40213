"""The text of a formula as a tree of terms. No table is looked at.

``formulaic`` parses the terms. It refuses what it does not understand, keeps a call's arguments as
Python (``bs(x, df=5)``, ``bs(x, knots=[1, 2])``) and knows R's operators. bambi's ``formulae`` 0.9
knows terms of groups as well, but it reads ``y ~ x %in% z`` as ``y ~ x`` and does not say so, and
takes no lists in calls. So the terms of groups, ``(... | g)``, are found here with formulaic's own
scanner, and their two sides go to its parser.
"""

from __future__ import annotations

import ast
import importlib
import keyword
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from workbench import _validate
from workbench.formula.hints import CALLS, LEFT, OFFSET
from workbench.formula.limits import MOST_FACTORS, check_text, python_of, refused
from workbench.formula.operators import check_size, check_tokens, terms_of

__all__ = ["Group", "Parsed", "Term", "parse", "refused", "term_name", "unquoted"]

Term = tuple[str, ...]  # its factors: names of columns and calls

_QUOTED = re.compile(r"`([^`]+)`")
_OFFSET = re.compile(r"offset\((?:np\.)?log\((\w+)\)\)")
_PLACEHOLDER = "quoted_column_{}_"
_GROUP_RULE = "write terms of groups in brackets and add them, as in age + (1 + age | hospital)."
_UNREAD = {
    r"[{}]": "has { or }: for arithmetic write I(...), as in I(age / 10).",
    r"%": "has a %: for b %in% a write a:b, and a / b for a + a:b.",
    r"(^|[~+*:/(|-])\s*\.\s*($|[~+*:/)|-])": "has a . for all columns: name the columns.",
}
# other programs' spellings of what there is here
_SPELLINGS = (
    (re.compile(r"\bQ\(\s*(['\"])([^'\"`]+)\1\s*\)"), r"`\2`"),
    (re.compile(r"\bas\.factor\("), "C("),
    (_INTERCEPT := re.compile(r"(?<![\w.])0\s*\+\s*Intercept\b"), "1"),  # brms's
)
_DOTTED = re.compile(r"\b((?:as|is)\.\w+)\(")  # calls of R that are no Python
_GROUPED = re.compile(r"(?:C|factor|gr)\(\s*(\w+)\s*\)")
_OF_THE_RESPONSE = {"trials": "trials", "rate": "exposure"}  # brms's spelling
_SHARES = ("p", "prop", "proportion")  # bambi's


class Group(NamedTuple):
    """A term ``(terms | by)``: each group of the columns ``by`` has its own intercept and slopes.

    :param intercept: whether it has an intercept.
    """

    intercept: bool
    terms: tuple[Term, ...]
    by: Term


@dataclass(frozen=True)
class Parsed:
    """A formula's parts.

    :param text: the formula on one line.
    :param response: the name of the response's column.
    :param terms: without the intercept, in the order of their degrees.
    :param extras: ``{"trials", "exposure", "observed" or "status": name of a column}`` from the
        left-hand side, or from ``offset(log(exposure))``.
    :param quoted: ``{identifier: name}`` of columns in backticks.
    """

    text: str
    response: str
    intercept: bool
    terms: tuple[Term, ...]
    groups: tuple[Group, ...] = ()
    extras: dict[str, str] = field(default_factory=dict)
    quoted: dict[str, str] = field(default_factory=dict)

    def matched(self, columns: Iterable[str]) -> Parsed:
        """With the names of ``columns`` that differ in their Unicode form alone, as accents do
        between systems.

        :raises ArgumentError: naming ``formula``, if it calls the intercept as a column is called.
        """
        declared = set(columns)
        if "Intercept" in declared and _INTERCEPT.search(self.text):
            words = "has 0 + Intercept for the intercept, and a column has this name: rename it."
            raise refused(self.text, words)
        same = {_normal(name): name for name in declared}

        def spelled(name: str) -> str:
            return name if name in declared else same.get(_normal(name), name)

        composed = {
            form: name for form, name in same.items() if form != name and form not in declared
        }
        return replace(
            self,
            response=spelled(self.response),
            extras={role: spelled(name) for role, name in self.extras.items()},
            quoted=composed
            | {identifier: spelled(name) for identifier, name in self.quoted.items()},
        )


def _normal(name: str) -> str:
    """As Python reads identifiers."""
    return unicodedata.normalize("NFKC", name)


def unquoted(text: str, quoted: dict[str, str]) -> str:
    """``text`` with the names of quoted columns instead of their identifiers."""
    for identifier, name in quoted.items():
        text = text.replace(identifier, name)
    return text


def term_name(text: str) -> str:
    """The name of the term that ``text`` is in a formula; ``text`` itself, if it is no term with a
    call.

    >>> from workbench.formula.parsing import term_name
    >>> term_name("I(yr**2)")
    'I(yr ** 2)'
    """
    if "(" not in text:
        return text
    try:
        parsed = parse(f"y ~ 0 + {text}")
    except _validate.ArgumentError:
        return text
    is_term = len(parsed.terms) == 1 and not (parsed.intercept or parsed.groups or parsed.extras)
    return unquoted(":".join(parsed.terms[0]), parsed.quoted) if is_term else text


def parse(formula: str) -> Parsed:
    """The parts of a formula such as "readmitted ~ age + C(ward) + (1 + age | hospital)".

    >>> from workbench.formula.parsing import parse
    >>> parsed = parse("y ~ a*b + (1 + a | site) - 1")
    >>> parsed.response, parsed.intercept, parsed.terms
    ('y', False, (('a',), ('b',), ('a', 'b')))
    >>> parsed.groups
    (Group(intercept=True, terms=(('a',),), by=('site',)),)

    :raises ArgumentError: naming ``formula``, for text that is no formula.
    """
    identifiers: dict[str, str] = {}  # by the name in backticks

    def hidden(match: re.Match[str]) -> str:
        if match[1].isidentifier() and not keyword.iskeyword(match[1]):
            return match[1]
        return identifiers.setdefault(match[1], _PLACEHOLDER.format(len(identifiers)))

    plain = _spelled(formula) if isinstance(formula, str) else ""
    plain = _QUOTED.sub(hidden, plain)
    if plain.count("~") != 1 or not plain.split("~")[0].strip():
        raise refused(
            formula,
            "must be text such as 'readmitted ~ age + C(ward)', with one response and one ~.",
        )
    text, plain = " ".join(formula.split()), " ".join(plain.split())
    check_text(plain)
    for name in _DOTTED.findall(plain):
        if name in CALLS:
            raise refused(text, f"has {name}(), which {CALLS[name]}.")
    for sign, remedy in _UNREAD.items():
        if re.search(sign, plain):
            raise refused(text, remedy)
    quoted = {identifier: name for name, identifier in identifiers.items()}
    response_text, terms_text = plain.split("~")
    response, extras = _response(text, response_text)
    plain, pairs = _split(text, terms_text, quoted)
    check_size(text, (plain, *(side for pair in pairs for side in pair)))
    intercept, terms = _terms(text, plain)
    terms, offsets = _without_offsets(text, terms)
    if offsets.keys() & extras.keys():
        raise refused(text, "has an offset and rate(): one exposure is enough.")
    groups = [group for lhs, rhs in pairs for group in _groups(text, lhs, rhs)]
    named = {role: quoted.get(name, name) for role, name in (extras | offsets).items()}
    return Parsed(
        text, quoted.get(response, response), intercept, terms, _merged(groups), named, quoted
    )


def _spelled(formula: str) -> str:
    """The formula with what there is here for other programs' spellings of it."""
    formula = unicodedata.normalize("NFC", formula)
    for spelling, instead in _SPELLINGS:
        formula = spelling.sub(instead, formula)
    return formula


def _merged(groups: list[Group]) -> tuple[Group, ...]:
    """Terms of the same groups as one: ``(1 | g) + (0 + x | g)`` is ``(1 + x | g)``, because
    effects are independent.
    """
    merged: dict[Term, Group] = {}
    for group in groups:
        earlier = merged.get(group.by, Group(False, (), group.by))
        terms = tuple(dict.fromkeys((*earlier.terms, *group.terms)))
        merged[group.by] = Group(earlier.intercept or group.intercept, terms, group.by)
    return tuple(merged.values())


# ---- the right-hand side -------------------------------------------------------------------------


def _split(text: str, right: str, quoted: dict[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """(the right-hand side without terms of groups, the two sides of each of these)."""
    try:
        tokenizer = importlib.import_module("formulaic.parser.algos.tokenize")
        tokens = list(tokenizer.tokenize(right))
    except Exception as error:
        raise refused(text, f"cannot be read: {_reason(error)}") from None
    spans, opened = [], list[int]()  # of brackets and bars
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and {before.kind.value, token.kind.value} <= {
            "name",
            "value",
            "python",
        }:
            raise refused(
                text,
                f"has no operator between {before.token} and {token.token}; a name with a blank "
                f"needs backticks: `{before.token} {token.token}`.",
            )
        if token.token == "(" and token.kind.value == "context":
            opened.append(token.source_start)
        elif token.token == ")" and token.kind.value == "context" and opened:
            spans.append((opened.pop(), token.source_end))
        elif set(token.token) == {"|"} and token.kind.value == "operator":
            spans.append((token.source_start, token.source_end))
    bars = [(start, end) for start, end in spans if set(right[start : end + 1]) == {"|"}]
    plain, pairs = right, []
    for start, end in reversed(bars):
        around = [span for span in spans if span[0] < start and end < span[1]]
        if not around or end - start > 1:
            raise refused(text, f"has a | that stands alone: {_GROUP_RULE}")
        first, last = max(around)
        before, after = plain[:first].rstrip(), plain[last + 1 :].lstrip()
        if len(bars) > 1 and any(first < bar < last for bar, _ in bars if bar != start):
            raise refused(text, f"has two | in one pair of brackets: {_GROUP_RULE}")
        if (before and before[-1] != "+") or (after and after[0] not in "+-"):
            raise refused(text, f"multiplies a term of groups: {_GROUP_RULE}")
        pairs.append((right[first + 1 : start], right[end + 1 : last]))
        plain = f"{before.removesuffix('+').rstrip() or '1'} {after}"
    check_tokens(text, tokens, quoted)
    return plain, pairs[::-1]


def _terms(text: str, source: str) -> tuple[bool, tuple[Term, ...]]:
    """(whether there is an intercept, the other terms)."""
    try:
        terms = terms_of(text, source)
    except _validate.ArgumentError:
        raise
    except Exception as error:
        raise refused(text, f"cannot be read: {_reason(error)}") from None
    if any(len(term) > MOST_FACTORS for term in terms):
        most = max(map(len, terms))
        raise refused(
            text, f"has an interaction of {most} columns; at most {MOST_FACTORS} are possible."
        )
    # a:a is a, as in R
    distinct = dict.fromkeys(
        tuple(dict.fromkeys(factor for factor in term if factor != "1")) for term in terms
    )
    return () in distinct, tuple(sorted(filter(None, distinct), key=len))


def _without_offsets(text: str, terms: tuple[Term, ...]) -> tuple[tuple[Term, ...], dict[str, str]]:
    """(the other terms, the exposure of ``offset(log(exposure))``)."""
    offsets = [term for term in terms if any(factor.startswith("offset(") for factor in term)]
    matches = [_OFFSET.fullmatch(":".join(term)) for term in offsets]
    if len(matches) > 1 or None in matches:
        raise refused(text, OFFSET)
    remaining = tuple(term for term in terms if term not in offsets)
    return remaining, ({} if not matches or matches[0] is None else {"exposure": matches[0][1]})


def _reason(error: Exception) -> str:
    """Why a formula cannot be read, on one line and without the colours of a terminal."""
    line = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).strip().partition("\n")[0]
    return line if line.endswith(".") else f"{line}."


def _groups(text: str, lhs: str, rhs: str) -> list[Group]:
    intercept, terms = _terms(text, lhs)
    if not intercept and not terms:
        raise refused(text, f"has a term of groups without an intercept or a slope: {_GROUP_RULE}")
    _, by = _terms(text, f"0 + {rhs}")
    if not by:
        raise refused(text, f"does not say of which groups: {_GROUP_RULE}")
    return [Group(intercept, terms, tuple(_grouped(text, name) for name in term)) for term in by]


def _grouped(text: str, name: str) -> str:
    """A column of groups, which is one of categories in any spelling."""
    if name.isidentifier():
        return name
    spelled = _GROUPED.fullmatch(name)
    if spelled is None:
        raise refused(
            text, f"has groups of {name}: write the name of a column, as in (1 | hospital)."
        )
    return spelled[1]


# ---- the left-hand side --------------------------------------------------------------------------


def _response(text: str, source: str) -> tuple[str, dict[str, str]]:
    """(column of the response, its other columns): ``y``, ``p(y, n)``, ``y | trials(n)``,
    ``Surv(time, event)``, ...
    """
    node = python_of(text, source.strip())
    match node:
        case ast.Name(id=name):
            return name, {}
        case ast.Call(
            func=ast.Name(id=kind), args=[ast.Name(id=name), ast.Name(id=other)], keywords=[]
        ):
            if kind in _SHARES:
                return name, {"trials": other}
            if kind == "Surv":
                return name, {"observed": other}
            if kind == "censored":
                return name, {"status": other}
        case ast.BinOp(
            ast.Name(id=name), ast.BitOr(), ast.Call(ast.Name(id=kind), [ast.Name(id=other)], [])
        ):
            if kind in _OF_THE_RESPONSE:
                return name, {_OF_THE_RESPONSE[kind]: other}
    for call in ast.walk(node) if node is not None else ():
        name = ast.unparse(call.func).removeprefix("np.") if isinstance(call, ast.Call) else ""
        if name in LEFT:
            raise refused(text, f"has {name}() before the ~, which {LEFT[name]}.")
    raise refused(
        text,
        "must have a column before the ~, or p(successes, trials), y | trials(n), y | "
        "rate(exposure), Surv(time, observed) or censored(time, status). Names with other signs "
        "than letters, digits and _, and words of Python, need backticks. Transform a response "
        "before you pass the table, and declare the bounds of the result.",
    )
