"""Groups of records: declared names, codes and public features."""

import numpy as np
import pandas as pd
import pytest

from workbench import ArgumentError
from workbench.data.groups import checked_group_features, checked_groups, group_codes

GROUPS = ("a", "b", "3")
FACTS = pd.DataFrame({"size": [10.0, 20.0, 30.0], "city": [0, 1, 0]}, index=["b", 3, "a"])


def refused(argument, function, *arguments):
    with pytest.raises(ArgumentError) as caught:
        function(*arguments)
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_codes_are_places_in_the_declared_list():
    codes = group_codes(pd.Series(["b", 3, 3.0, "3", "a"], name="school"), GROUPS)
    assert codes.tolist() == [1, 2, 2, 2, 0]
    assert codes.dtype == np.int32


def test_a_group_without_records_is_fine():
    assert group_codes(pd.Series(["b"], name="school"), GROUPS).tolist() == [1]


@pytest.mark.parametrize("values", [["a", "zzz"], ["a", None], ["a", 44]])
def test_an_undeclared_group_is_refused_and_not_quoted(values):
    message = refused("school", group_codes, pd.Series(values, name="school", dtype=object), GROUPS)
    assert message.startswith("school='object': some row has none of the 3 declared groups")
    assert "zzz" not in message


def test_groups_are_declared_and_never_read_from_records():
    assert "must list the names of all groups" in refused("groups", checked_groups, None)


@pytest.mark.parametrize(
    "groups", ["abc", 3, [], ["a", None], ["a", "a"], [1, "1"], {"a": 1}, [["a"]]]
)
def test_groups_must_be_distinct_names(groups):
    refused("groups", checked_groups, groups)


def test_the_features_may_say_which_groups_there_are():
    assert checked_groups(None, FACTS) == ("b", "3", "a")
    assert checked_groups(None, {"x": [1], 2: [0]}) == ("x", "2")
    assert checked_groups(["a"], FACTS) == ("a",)


def test_features_come_in_the_order_of_the_groups():
    values, names = checked_group_features(FACTS, GROUPS)
    assert (values.dtype, names) == (np.float32, ("size", "city"))
    assert values.tolist() == [[30, 0], [10, 0], [20, 1]]


@pytest.mark.parametrize(
    "facts",
    [
        {"3": [5, 6], "a": [1, 2], "b": [3, 4]},
        [[1, 2], [3, 4], [5, 6]],
        np.arange(1, 7).reshape(3, 2),
    ],
)
def test_features_may_be_a_mapping_or_an_array(facts):
    values, names = checked_group_features(facts, GROUPS)
    assert values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert names == ("group feature 1", "group feature 2")


def test_one_number_a_group_is_enough():
    assert checked_group_features({"a": 1, "b": 2, 3: 3}, GROUPS)[0].tolist() == [[1], [2], [3]]
    assert checked_group_features(pd.Series([1, 2, 3], index=GROUPS, name="size"), GROUPS)[1] == (
        "size",
    )


def test_without_features_there_is_an_intercept():
    values, names = checked_group_features(None, GROUPS)
    assert (values.tolist(), names) == ([[1.0]] * 3, ("intercept",))


@pytest.mark.parametrize(
    "facts",
    [
        FACTS.drop(index="b"),
        FACTS[[]],
        pd.concat([FACTS, FACTS]),
        pd.concat([FACTS, FACTS], axis=1),
        {"a": [1], "b": [1, 2], "3": [1]},
        {"a": [1], "b": [2]},
        {"a": [[1]], "b": [[2]], "3": [[3]]},
        [[1], [2]],
        [1, 2, 3],
        "features",
    ],
)
def test_features_that_do_not_fit_the_groups_are_refused(facts):
    refused("group_features", checked_group_features, facts, GROUPS)


@pytest.mark.parametrize("value", ["large", None, float("inf")])
def test_a_feature_that_is_no_number_is_named(value):
    facts = FACTS.assign(size=[1.0, 2.0, value])
    assert "some group" in refused("group_features['size']", checked_group_features, facts, GROUPS)
