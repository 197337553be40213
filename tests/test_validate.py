import math
import pickle
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.clipping import PrivacyModelError
from workbench.data.files import UnreadableFileError
from workbench.ledger.budget import BudgetStatus, CapError
from workbench.ledger.composition import TotalPrivacy
from workbench.ledger.ledger import LedgerFileError
from workbench.ledger.renyi_filter import RelationError
from workbench.sweeps import BudgetError


@pytest.mark.parametrize("value", [1, 1.5, np.float32(0.5), np.int64(3)])
def test_number_returns_a_python_float(value):
    result = _validate.number("clip", value, above=0)
    assert type(result) is float
    assert result == float(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, True, 1j, [1.0]])
def test_number_refuses_what_is_no_finite_number(value):
    with pytest.raises(ArgumentError, match="must be a finite number"):
        _validate.number("clip", value)


@pytest.mark.parametrize(
    ("limits", "inside", "outside", "words"),
    [
        ({"above": 0}, 1e-9, 0, "greater than 0"),
        ({"at_least": 0.1}, 0.1, 0.0999, "at least 0.1"),
        ({"below": 1}, 0.999, 1, "less than 1"),
        ({"at_most": 1}, 1, 1.0001, "at most 1"),
    ],
)
def test_number_keeps_its_limits(limits, inside, outside, words):
    assert _validate.number("rate", inside, **limits) == inside
    with pytest.raises(ArgumentError, match=words):
        _validate.number("rate", outside, **limits)


def test_message_is_one_line_with_the_name_the_value_and_all_limits():
    with pytest.raises(ArgumentError) as caught:
        _validate.number("sampling_rate", 1.5, above=0, at_most=1)
    assert (
        str(caught.value)
        == "sampling_rate=1.5: must be a finite number greater than 0 and at most 1."
    )


def test_error_carries_its_parts():
    error = ArgumentError("epsilon", -1, "must be positive.")
    assert (error.argument, error.value, error.expectation) == ("epsilon", -1, "must be positive.")
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        ArgumentError("epsilon", -1, "must be positive.", code="small", remedy="Give more."),
        ArgumentError("bounds", [1, None, "a"], "must be pairs."),
        RelationError("relation", "replace_one", "cannot be counted."),
        CapError("epsilon", 2.0, "is too much.", BudgetStatus(None), code="over cap"),
        BudgetError(None, TotalPrivacy(3.0, 1e-5, "add_or_remove_one", 2, "pld"), "All 2 fits."),
        UnreadableFileError("path", "a.csv", "cannot be read."),
        LedgerFileError(Path("/a/ledger.sqlite"), "is locked.", code="locked", remedy="Wait."),
        PrivacyModelError("site 'y' is not in the plate."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error):
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("value", [lambda: 0, (1, object), {"a": lambda: 0}, threading.Lock()])
def test_an_error_about_what_cannot_be_sent_says_in_another_process_what_it_was(value):
    error = ArgumentError("stop", value, "must be a function.", code="kind")
    other = pickle.loads(pickle.dumps(error))
    assert str(other) == str(error) == other.worded()
    assert (other.argument, other.code, repr(other.value)) == ("stop", "kind", repr(value))
    assert error.value is value


def test_what_a_terminal_would_obey_is_written_out():
    error = PrivacyModelError("site '\x1b[2J' of\n\tthe guide\r is 'é', not '\u202e'.")
    assert str(error) == "site '\\x1b[2J' of the guide is 'é', not '\\u202e'."


def test_a_name_of_any_length_leaves_the_rest_of_a_message_readable():
    error = PrivacyModelError(f"site {'x' * 10**6} is not in the model.")
    assert str(error).startswith("site xxx")
    assert str(error).endswith("x... is not in the model.")
    assert len(str(error)) < 300


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.1])
def test_probability_is_open_at_both_ends(value):
    assert _validate.probability("delta", 0.5) == 0.5
    with pytest.raises(ArgumentError):
        _validate.probability("delta", value)


@pytest.mark.parametrize("value", [2000, 2000.0, np.int32(2000), np.float64(2000)])
def test_integer_accepts_whole_numbers_of_any_type(value):
    result = _validate.integer("steps", value, at_least=1)
    assert type(result) is int
    assert result == 2000


@pytest.mark.parametrize("value", [2000.5, math.nan, math.inf, "3", None, False, 0, 11])
def test_integer_refuses_the_rest(value):
    with pytest.raises(ArgumentError, match="whole number of at least 1 and at most 10"):
        _validate.integer("steps", value, at_least=1, at_most=10)


def test_integer_keeps_all_digits_of_a_long_one():
    assert _validate.integer("seed", 2**63 + 1, at_least=0) == 2**63 + 1


@pytest.mark.parametrize(
    "check",
    [
        lambda value: _validate.number("n", value),
        lambda value: _validate.integer("n", value, at_least=0),
    ],
)
def test_an_integer_too_long_for_a_float_is_an_argument_error(check):
    with pytest.raises(ArgumentError):
        check(10**400)


def test_choice_lists_the_options_and_the_nearest():
    assert _validate.choice("sampler", "poisson", ["poisson", "shuffle"]) == "poisson"
    with pytest.raises(ArgumentError, match=r"did you mean 'poisson'\? known: poisson, shuffle\."):
        _validate.choice("sampler", "poison", ["shuffle", "poisson"])


def test_choice_guesses_nothing_where_nothing_is_near():
    with pytest.raises(ArgumentError) as caught:
        _validate.choice("sampler", "zzz", ["poisson"])
    assert "did you mean" not in str(caught.value)


def test_nearest_is_best_first():
    assert _validate.nearest("logistc", ["hierarchical_logistic", "logistic"])[0] == "logistic"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.zeros((3, 2)), "ndarray of shape (3, 2)"),
        (pd.DataFrame({"a": [1, 2]}), "DataFrame of shape (2, 1)"),
        (pd.Series([123.456]), "Series of shape (1,)"),
        (np.array(7), "array(7)"),
        ("two\nlines", "'two\\nlines'"),
        ("two  spaces", "'two  spaces'"),
        ([np.zeros((2, 2))], "[array([[0., 0.], [0., 0.]])]"),
        ("a" * 198, repr("a" * 198)),
        ("a" * 199, "'" + "a" * 196 + "..."),
    ],
)
def test_message_shows_any_value_on_one_line(value, shown):
    assert (
        str(ArgumentError("data", value, "must be another.")) == f"data={shown}: must be another."
    )


@pytest.mark.parametrize(
    "check",
    [
        lambda value: _validate.number("x", value),
        lambda value: _validate.integer("x", value, at_least=1),
        lambda value: _validate.probability("x", value),
        lambda value: _validate.choice("x", value, ["poisson", "shuffle"]),
    ],
)
@pytest.mark.parametrize("value", [np.arange(20.0).reshape(4, 5), ["poisson"], {"a": 1}, None])
def test_every_check_refuses_what_holds_several_values_on_one_line(check, value):
    with pytest.raises(ArgumentError) as caught:
        check(value)
    # an error is kept and logged: of an array, which may hold records, it has the shape alone
    assert caught.value.value is value or (
        isinstance(value, np.ndarray) and "shape (4, 5)" in caught.value.value
    )
    assert "\n" not in str(caught.value)


def test_a_seed_fits_into_a_ledger():
    assert _validate.seed("seed", 2**63 - 1) == 2**63 - 1
    for value in (-1, 2**63, 2**64, 10**5000, 1.5):
        with pytest.raises(_validate.ArgumentError, match=r"^seed="):
            _validate.seed("seed", value)


def test_a_remedy_is_worded_by_code():
    error = ArgumentError(
        "epsilon", 3.0, "is above the cap.", code="over cap", remedy="Give over_cap=."
    )
    assert str(error) == "epsilon=3.0: is above the cap. Give over_cap=."
    assert (
        error.worded({"over cap": "Give --over-cap."})
        == "epsilon=3.0: is above the cap. Give --over-cap."
    )
    assert error.explained({"over cap": "Write a reason."}) == "is above the cap. Write a reason."
    assert error.explained({"another": "No."}) == "is above the cap. Give over_cap=."
    assert error.expectation == "is above the cap."


def test_an_error_without_a_remedy_says_what_is_expected_alone():
    error = ArgumentError("epsilon", -1, "must be positive.")
    assert (error.code, error.remedy, str(error)) == ("", "", "epsilon=-1: must be positive.")
    assert error.worded({"": ""}) == str(error)


@pytest.mark.parametrize("why", ["\u200b", "...", "\x1b[31mred", "a" * 10_001, "fine \u202e"])
def test_a_reason_has_words_that_can_be_read(why):
    with pytest.raises(ArgumentError, match=r"^why=.*: must (say why in words|have at most 10000)"):
        _validate.reason("why", why)


@pytest.mark.parametrize(
    "why", ["the board agreed", "第二次", "two\nlines\tand a tab", "a" * 10_000]
)
def test_a_reason_may_be_in_any_language_and_of_several_lines(why):
    assert _validate.reason("why", why) == why


def test_text_that_is_no_file_name_is_refused_as_a_path():
    with pytest.raises(ArgumentError, match="cannot be the name of a file here"):
        _validate.path("folder", "\ud800")
