"""Spellings of other programs either work or say what to write here; limits are refused before a
parser sees them.
"""

import re
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import workbench as wb
from tests.conftest import examples
from workbench import ArgumentError
from workbench.data import Schema
from workbench.formula import hints
from workbench.formula.bases import BASES
from workbench.formula.design import design_of
from workbench.formula.expressions import FUNCTIONS
from workbench.formula.families import FAMILIES, get
from workbench.formula.parsing import Group, parse, term_name

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "âge") for form in ("NFC", "NFD"))
SCHEMA = Schema.from_declaration(
    {
        "y": (0, 50),
        "x": (1, 9),
        "z": (1, 9),
        "k": (1, 5, int),
        "my col": (0, 1),
        "Length (cm)": (0, 9),
        " age": (0, 90),
        **{f"g{number}": ["a", "b", "c"] for number in range(12)},
        **{f"v{number}": (0, 1) for number in range(40)},
    }
)


def design(right):
    return design_of(parse(f"y ~ {right}"), SCHEMA)


# ---- what works ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "same"),
    [
        ("Q('x') + Q(\"my col\")", "x + `my col`"),
        ("as.factor(k) + x", "C(k) + x"),
        ("factor(k)", "C(k)"),
        ("factor(g1):x", "C(g1):x"),
        ("I(Q('my col') ** 2)", "I(`my col` ** 2)"),
        ("0 + Intercept + x", "1 + x"),
        ("x + 0 + Intercept", "x"),
    ],
)
def test_spellings_of_other_programs_work(right, same):
    assert design(right).block.names == design(same).block.names
    assert design(right).block.intercept == design(same).block.intercept


def test_the_intercept_of_brms_is_no_column_of_this_name():
    schema = {"y": (0, 9), "Intercept": (0, 1), "x": (0, 1)}
    error = refusal(lambda: wb.models.formula("y ~ 0 + Intercept + x", schema=schema))
    assert "rename it" in error.expectation
    model = wb.models.formula("y ~ 0 + `Intercept`", schema=schema)
    assert model.columns.design.block.names == ("Intercept",)
    with pytest.raises(ArgumentError, match="Intercept"):
        wb.models.formula("y ~ I(x * 1.0 + Intercept)", schema={"y": (0, 9), "x": (0, 1)})
    assert parse("y ~ (0 + Intercept | g)").groups == (Group(True, (), ("g",)),)


@pytest.mark.parametrize("by", ["C(k)", "factor(k)", "as.factor(k)", "gr(k)", "Q('k')", "k"])
def test_groups_are_columns_of_categories_in_any_spelling(by):
    assert parse(f"y ~ x + (1 | {by})").groups == (Group(True, (), ("k",)),)
    assert design(f"x + (1 + z | {by})").groups[0].labels == ("1", "2", "3", "4", "5")


@pytest.mark.parametrize("of_schema", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("of_formula", [COMPOSED, DECOMPOSED])
def test_names_with_accents_match_in_any_form(of_schema, of_formula):
    """Tables and declarations name a column in its composed form (``wb.data``), whatever form was
    typed.
    """
    group = unicodedata.normalize(("NFC", "NFD")[of_schema == DECOMPOSED], "hôpital")
    schema = {"y": (0, 9), of_schema: (0, 90), group: ["a", "b"]}
    for left, name in (
        (f"{of_formula} ~ y", COMPOSED),
        (f"y ~ {of_formula} + I({of_formula}**2)", "y"),
        (f"y ~ `{of_formula}`", "y"),
    ):
        columns = wb.models.formula(left, schema=schema).columns
        assert columns.response.name == name
        assert set(columns.schema.columns) == {"y", COMPOSED}
    model = wb.models.formula(f"y ~ (1 | {unicodedata.normalize('NFC', group)})", schema=schema)
    assert model.columns.design.groups[0].name == unicodedata.normalize("NFC", group)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Gamma", "gamma"),
        ("Negative Binomial", "negative_binomial"),
        ("negative-binomial", "negative_binomial"),
        ("POISSON", "poisson"),
        # R, statsmodels, bambi and brms
        ("inverse.gaussian", "inverse_gaussian"),
        ("wald", "inverse_gaussian"),
        ("InverseGaussian", "inverse_gaussian"),
        ("Gaussian", "gaussian"),
        ("normal", "gaussian"),
        ("t", "student_t"),
        ("student", "student_t"),
        ("nb", "negative_binomial"),
        ("negativebinomial", "negative_binomial"),
        ("NegativeBinomial", "negative_binomial"),
        ("negbinomial", "negative_binomial"),
        ("betabinomial", "beta_binomial"),
        ("zero_inflated_negativebinomial", "zero_inflated_negative_binomial"),
        ("zero_inflated_negbinomial", "zero_inflated_negative_binomial"),
        ("ZeroInflatedNegativeBinomialP", "zero_inflated_negative_binomial"),
        ("ZeroInflatedPoisson", "zero_inflated_poisson"),
        ("hurdle_negativebinomial", "hurdle_negative_binomial"),
        ("hurdle_negbinomial", "hurdle_negative_binomial"),
        ("log-normal", "lognormal"),
    ],
)
def test_families_are_named_in_any_case_and_as_elsewhere(name, family):
    assert get(name) is FAMILIES[family]


@pytest.mark.parametrize("name", ["POISSON", "pois"])
def test_a_model_says_its_family_by_its_name_here(name):
    options = wb.models.formula("y ~ x", name, {"y": (1, 9), "x": (0, 1)}).options
    assert options["family"] == "poisson"


@pytest.mark.parametrize(
    ("name", "link", "family", "same"),
    [
        ("logistic", None, "bernoulli", "logit"),
        ("logistic", "log-odds", "bernoulli", "logit"),
        ("probit", None, "bernoulli", "probit"),
        ("ologit", None, "cumulative", "logit"),
        ("oprobit", None, "cumulative", "probit"),
        ("gamma", "inverse_power", "gamma", "inverse"),
        ("Gamma", "1/mu", "gamma", "inverse"),
        ("gaussian", "ident", "gaussian", "identity"),
    ],
)
def test_a_link_is_named_as_elsewhere_or_with_its_family(name, link, family, same):
    assert get(name, link) == replace(FAMILIES[family], link=same)


def test_a_name_with_a_link_and_another_link_contradict_each_other():
    error = refusal(get, "probit", "logit")
    assert (error.argument, error.value) == ("family", "probit")
    assert "for another one write 'bernoulli'" in error.expectation


def test_binomial_without_trials_is_yes_or_no_as_in_r():
    schema = {"ill": bool, "n": (1, 9, int), "k": (0, 9, int), "x": (0, 1)}
    model = wb.models.formula("ill ~ x", "binomial", schema, link="probit")
    assert (model.options["family"], model.options["link"]) == ("bernoulli", "probit")
    for left, options in (("p(k, n)", {}), ("k", {"trials": "n"})):
        model = wb.models.formula(f"{left} ~ x", "binom", schema, **options)
        assert model.options["family"] == "binomial"
    error = refusal(wb.models.formula, "k ~ x", "binomial", schema)
    assert "name the column of these" in error.expectation


def test_links_are_named_in_any_case():
    assert get("bernoulli", "Probit").link == "probit"


# ---- what is told --------------------------------------------------------------------------------


def refusal(function, *arguments):
    with pytest.raises(ArgumentError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", [name for name in hints.CALLS if name not in ("factor", "offset")])
def test_each_function_of_other_programs_has_its_hint(name):
    assert hints.CALLS[name] in refusal(design, f"{name}(x)").expectation
    assert hints.CALLS[name] in refusal(design, f"z + I({name}(x) + 1)").expectation


@pytest.mark.parametrize("name", hints.LEFT)
def test_each_response_of_other_programs_has_its_hint(name):
    assert hints.LEFT[name] in refusal(parse, f"{name}(y, 30) ~ x").expectation
    assert hints.LEFT[name] in refusal(parse, f"y | {name}(30) ~ x").expectation


@pytest.mark.parametrize("name", hints.FAMILIES)
def test_each_family_of_other_programs_has_its_hint(name):
    assert hints.FAMILIES[name] in refusal(get, name).expectation
    assert hints.FAMILIES[name] in refusal(get, f"{name[:1]} {name[1:]}".upper()).expectation


@pytest.mark.parametrize("name", hints.LINKS)
def test_each_link_of_other_programs_has_its_hint(name):
    error = refusal(get, "bernoulli", name)
    assert hints.LINKS[name] in error.expectation
    assert error.argument == "link"


def test_hints_name_what_there_is():
    families = {word for text in hints.FAMILIES.values() for word in text.split("'")[1::2]}
    assert families <= {*FAMILIES}
    links = {word for text in hints.LINKS.values() for word in text.split("'")[1::2]}
    assert links <= {link for family in FAMILIES.values() for link in family.links}
    plain = {name.replace("_", "") for name in FAMILIES}
    named = [*hints.FAMILIES, *hints.WITH_LINK, *" ".join(hints.SAME.values()).split()]
    assert len(plain) + len(named) == len({*plain, *named})  # each means one thing
    assert {*hints.SAME} <= {*FAMILIES}


@pytest.mark.parametrize("link", ["", 3, "probitt"])
def test_links_that_cannot_be(link):
    assert refusal(get, "bernoulli", link).argument == "link"


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ("my col", "needs backticks: `my col`"),
        ("length", r"Did you mean `Length \(cm\)`"),
        ("age", "Did you mean ` age`, in backticks"),
        ("offset(x)", "gaussian response subtract"),
        ("x**2", r"write I\(x\*\*2\)"),
        ("(1 | gr(g1, by=g2))", "write the name of a column"),
        ("(1 | g1 + I(x > 3))", "write the name of a column"),
        ("(x + z)**k", "whole number of at least 1"),
        ("I(x^2)", r"write I\(x\*\*2\)"),
        ("z + log((x + 1)^2)", r"write log\(\(x \+ 1\)\*\*2\)"),
        ("I(`my col`^2)", r"write I\(`my col`\*\*2\)"),
        ("(x>5)", r"write I\(x > 5\)"),
        ("z + x<= 5", r"write I\(x <= 5\)"),
        ("(x != 5 | g1)", r"write I\(x != 5\)"),
        ("`my col` == 1", r"write I\(`my col` == 1\)"),
        ("(x + z) > 5", r"write I\(age > 65\)"),
        ("x & z", "write x:z"),
        ("2*x", r"write I\(2 \* x\), or x alone"),
        ("1*x", r"write I\(1 \* x\), or x alone"),
        ("z + x*0", r"write I\(x \* 0\), or x alone"),
        ("z - 2*x", r"write I\(2 \* x\), or x alone"),
        ("z + x:0.5", r"write I\(x \* 0.5\), or x alone"),
        ("x/2", r"write I\(x / 2\), or x alone"),
        ("x + 2", "numbers belong inside I"),
        ("I(x > 3 and z < 5)", r"I\(\(age > 18\) \* \(age < 65\)\)"),
        ("I(3 < x < 5)", r"I\(\(age > 18\) \* \(age < 65\)\)"),
        ("I((x > 3) & (z < 5))", r"I\(\(age > 18\) \* \(age < 65\)\)"),
        ("X", r"Did you mean `x`\?$"),
    ],
)
def test_what_is_near_is_told(right, words):
    with pytest.raises(ArgumentError, match=words):
        design(right)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("I(x**2)", "I(x ** 2)"),
        ("I( x **2 )", "I(x ** 2)"),
        ("log( x )", "log(x)"),
        ("x:log( x)", "x:log(x)"),
        ("I(`my col`**2)", "I(my col ** 2)"),
        ("bs(z,df=5)", "bs(z, df=5)"),
    ],
)
def test_priors_are_named_as_the_formula_writes_their_terms(written, name):
    right = (
        "x + I(x**2) + log(x) + x:log(x) + I(`my col`**2) + bs(z,df=5) + `Length (cm)` + (1 + x "
        "| g1)"
    )
    model = wb.models.formula(
        f"y ~ {right}", schema=SCHEMA, basis="scaled", priors={written: "Normal(0, 9)"}
    )
    plain = wb.models.formula(
        f"y ~ {right}", schema=SCHEMA, basis="scaled", priors={name: "Normal(0, 9)"}
    )
    pd.testing.assert_frame_equal(model.priors, plain.priors)
    assert (model.priors["prior"] == "Normal(0, 9)").any()
    assert model.options == plain.options
    for line in model.lines:
        for known in line.names:
            assert known in SCHEMA.columns or term_name(known) == known
    with pytest.raises(ArgumentError, match="two spellings of"):
        wb.models.formula(
            f"y ~ {right}", schema=SCHEMA, priors={name: "Normal(0, 9)", written: "Normal(0, 8)"}
        )


def test_an_offset_of_a_gaussian_is_told():
    with pytest.raises(ArgumentError, match="gaussian response subtract the offset"):
        wb.models.formula("y ~ x + offset(log(z))", schema=SCHEMA)
    with pytest.raises(ArgumentError, match="binomial"):
        wb.models.formula("p(y, k) ~ x", schema=SCHEMA)


# ---- limits --------------------------------------------------------------------------------------

TOO_MUCH = {
    "(x + z)**18": "power 18 of terms; at most 10",
    "(x + z)**1000000000": "power 1000000000 of terms; at most 10",
    "(x + z)**" + "9" * 400: "400 digits; at most 30",
    "(x + z)^200": "power 200",
    "(" + " + ".join(f"v{place}" for place in range(40)) + ")**6": "multiplies out to 34400 terms",
    "*".join(f"g{place}" for place in range(12)) + "*v1*v2": "multiplies out to",
    "*".join(f"v{place}" for place in range(20)): "multiplies out to 16369 terms; at most 10000",
    " + ".join(
        "*".join(f"v{at}{place}" for place in range(8)) for at in range(300)
    ): "multiplies out to",
    "(1 + "
    + " * ".join(f"v{place}" for place in range(15))
    + " | g0)": "multiplies out to 16369 terms",
    "/".join(f"v{place}" for place in range(2000)): "interaction of more than 100 columns",
    ":".join(f"v{place}" for place in range(3000)): "interaction of more than 100 columns",
    ":".join(f"g{place}" for place in range(12)): "interaction of 12 columns; at most 8",
    " + ".join(
        f"{one}:g2:g3:g4:g5:g6:g7" for one in ("g0:g1", "g0:g8", "g1:g9", "g9:g10")
    ): "26244 columns",
    "(1 | g0:g1:g2:g3:g4:g5:g6:g7) + (1 | "
    + ":".join(f"g{place}" for place in range(12))
    + ")": "at most 8",
    "(" * 5000 + "x" + ")" * 5000: "5000 brackets in brackets; at most 40",
    "(" * 50_000 + "x" + ")" * 50_000: "characters; at most 20000",
    "I(" + "-" * 4000 + "x)": "operations in operations",
    "I(" + "-" * 15_000 + "x)": "call of 15004 characters; at most 5000",
    "I(x" + "+1" * 2000 + ")": "operations in operations",
    "I(x" + "**1" * 1500 + ")": "operations in operations",
    "log1p(" * 100 + "x" + ")" * 100: "100 brackets",
    "I(x * " + "9" * 400 + ")": "400 digits",
    "I(x > 0x" + "f" * 400 + ")": "digits",
    "I(x * 1e999)": "no finite bounds",
    "I(x ** 9 ** 9 ** 9)": "too large",
    "x + \0": r"invisible character U\+0000",
    "x + \u202ez": r"U\+202E \(right-to-left override\)",
    "x + \ufeffz": r"U\+FEFF",
    "x + \ud800": r"U\+D800",
    "x + \N{GRINNING FACE}": "cannot be read",
    "a" * 100_000: "characters",
}


@pytest.mark.parametrize("right", TOO_MUCH, ids=range(len(TOO_MUCH)))
def test_limits_are_said_at_once(right):
    begin = time.process_time()
    with pytest.raises(ArgumentError, match=TOO_MUCH[right]) as caught:
        design(right)
    assert time.process_time() - begin < 2
    assert caught.value.argument == "formula"
    str(caught.value).encode()  # an error can be printed


def test_what_is_within_the_limits_works():
    assert (
        len(design("(v0 + v1 + v2 + v3 + v4 + v5 + v6 + v7)**5").block.columns)
        == 8 + 28 + 56 + 70 + 56
    )
    assert design("(x + z)**9").block.names == ("x", "z", "x:z")
    assert design("((x + z)**2)**2").block.names == ("x", "z", "x:z")
    assert (
        len(
            design("I((" + " + ".join(f"v{place}" for place in range(40)) + ") / 40)").block.columns
        )
        == 1
    )
    assert design("(" * 30 + "x" + ")" * 30).block.names == ("x",)
    assert design("I(x * 123456789012345678901234567890)").block.names


PIECES = [
    "x",
    "z",
    "g1",
    "g2",
    "k",
    "my col",
    "`my col`",
    "+",
    "-",
    "*",
    ":",
    "/",
    "**",
    "^",
    "|",
    "||",
    "~",
    "(",
    ")",
    "[",
    "]",
    "I(",
    "C(",
    "poly(",
    "bs(",
    "log(",
    "offset(",
    "1",
    "0",
    "2",
    "3.5",
    "1e999",
    ",",
    "'",
    '"',
    "%in%",
    "`",
    ".",
    "{",
    "=",
    ">",
    "df=5",
    "é",
    "\N{GRINNING FACE}",
    "\u202e",
    "as.factor(",
    "Q('x')",
    " ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=14))
@example(["(", "x", "+", "z", ")", "**", "2"])
@examples(2000, 200)
def test_any_text_is_a_design_or_an_argument_error(pieces):
    try:
        found = design(" ".join(pieces)).orthogonal(())
    except ArgumentError:
        return
    columns = SCHEMA.columns.items()
    cells = {
        name: [column.labels[0] if hasattr(column, "labels") else column.low]
        for name, column in columns
    }
    arrays = found.encode(found.values(pd.DataFrame(cells)))
    assert all(np.isfinite(array).all() for array in arrays.values())


# ---- tables that do not fit their declaration ----------------------------------------------------


@pytest.mark.parametrize("cells", [(1, 2), (-1, 1), ("nein", "ja")])
def test_two_values_other_than_those_of_bool_are_told_how_to_be_declared(cells):
    frame = pd.DataFrame({"y": [*cells] * 30, "x": np.linspace(0, 1, 60)})
    bounds = {"x": (0, 1)}
    declared_bool = wb.models.formula("y ~ x", "bernoulli", {"y": bool, **bounds})
    error = refusal(declared_bool.dataset, frame)
    assert (
        "Declare its two values as text, first the one that counts as 0: schema={'y': ['1', '2']}"
        in error.expectation
    )
    as_told = wb.models.formula(
        "y ~ x", "bernoulli", {"y": [str(cell) for cell in cells], **bounds}
    )
    assert as_told.dataset(frame).classes == tuple(map(str, cells))


@pytest.mark.parametrize(
    "cells", [(0, 1), (False, True), ("F", "T"), ("No", "yes"), ("False", "True"), ("0", "1")]
)
def test_a_boolean_response_takes_the_words_that_a_boolean_column_takes(cells):
    frame = pd.DataFrame({"y": [*cells] * 30, "x": np.linspace(0, 1, 60)})
    model = wb.models.formula("y ~ x", "bernoulli", {"y": bool, "x": (0, 1)})
    assert wb.data.Schema({"y": wb.data.Boolean()}).encode(frame[:2]).tolist() == [[-1], [1]]
    for table in (frame, frame.set_index("y")):
        made = model.dataset(table, evaluation=table.head(2))
        assert [array.tolist() for array in (made.train[-1][:2], made.evaluation[-1])] == [
            [0, 1],
            [0, 1],
        ]
    for word in ("maybe", ""):
        assert (
            "Declare its two values"
            in refusal(model.dataset, frame.assign(y=[word, *frame["y"][1:]])).expectation
        )
    assert refusal(model.dataset, frame.assign(y=[None, *frame["y"][1:]])).code == "missing"


def test_an_empty_table_has_too_few_rows():
    frame = pd.DataFrame({"y": [0.5], "x": [0.5]})
    model = wb.models.formula("y ~ x", schema={"y": (0, 1), "x": (0, 1)})
    for rows in (0, 1):
        assert "has too few rows" in refusal(model.dataset, frame.head(rows)).expectation


def test_the_page_has_all_that_a_formula_understands():
    """Each call in the tables of docs/formulas.md makes a design, and they have all functions."""
    page = (Path(__file__).parents[2] / "docs" / "formulas.md").read_text(encoding="utf-8")
    numbers = page[page.index("## Numbers and transforms") :].split("\n\n")
    table = next(block for block in numbers if block.startswith("| write | for |"))
    spans = [
        span for row in table.splitlines() for span in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]
    schema = {"x": wb.data.Numeric(1, 99, missing=True), "y": (1, 9), "r": (1, 9)}
    levels = {"x": (1, 3, int), "r": (1, 9)}
    named = set()
    for span in spans:
        term = span if "(" in span else f"{span}(x)"
        named.add(term.partition("(")[0])
        wb.models.formula(f"r ~ {term}", schema=levels if term.startswith("mo") else schema)
    assert named == {*FUNCTIONS, *BASES, "mo", "missing"}
