"""Targets: which classes there are follows from what is declared and from the column's type,
whatever the rows hold.
"""

import io

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.targets import binary_target, class_names, declared_classes, thresholded


def column(values, kind=None):
    return pd.Series(values, name="outcome", dtype=kind)


@pytest.mark.parametrize("values", [[0, 1, 1], [0.0, 1.0, 1.0], [False, True, True]])
def test_zeros_and_ones_need_no_positive_value(values):
    labels, classes = binary_target(column(values))
    assert labels.dtype == np.int32
    assert labels.tolist() == [0, 1, 1]
    assert classes == (("False", "True") if values[0] is False else ("0", "1"))


@pytest.mark.parametrize("kind", ["bool", "boolean", "int8", "float32", "Int64"])
def test_classes_follow_from_the_type_though_one_of_them_does_not_occur(kind):
    """A class of a single record may not show by its absence."""
    both, one = (binary_target(column(values, kind)) for values in ([0, 0, 1], [0, 0, 0]))
    assert both[1] == one[1]
    assert (both[0].tolist(), one[0].tolist()) == ([0, 0, 1], [0, 0, 0])


def test_positive_value_decides_which_class_is_one_and_all_others_are_the_other():
    for values in (["a", "b", "a"], ["a", "a", "a"], ["a", "c", "rare"], ["b", "b", "b"]):
        labels, classes = binary_target(column(values), "a")
        assert labels.tolist() == [value == "a" for value in values]
        assert classes == ("(other)", "a")


def test_the_other_class_never_has_the_name_of_the_positive_one():
    assert binary_target(column(["(other)", "a"]), "(other)")[1] == ("not (other)", "(other)")


@pytest.mark.parametrize(
    ("values", "positive", "expected"),
    [
        ([0, 1, 1], 0, [1, 0, 0]),
        ([3, 7, 7], "3", [1, 0, 0]),  # a command line hands over text
        ([3.0, 7.5, 3], 3, [1, 0, 1]),
        (["3", "3.0", "x"], 3, [1, 1, 0]),  # as they are read where another row holds text
        (["01", "1", "1e0"], "1", [1, 1, 1]),
        (["yes", " yes", "Yes"], "yes", [1, 1, 1]),
        (["no", "yes ", "YES", "y"], "Yes", [0, 1, 1, 0]),
        (["True", "1", "False"], True, [1, 1, 0]),
    ],
)
def test_positive_values_are_compared_as_numbers_or_as_text(values, positive, expected):
    assert binary_target(column(values), positive)[0].tolist() == expected


@pytest.mark.parametrize("positive", [True, 1, 1.0, "True", "true", "1"])
@pytest.mark.parametrize(
    "cells",
    [
        [False, True],
        [0, 1],
        [0.0, 1.0],
        *map(str.split, ("False True", "false true", "FALSE TRUE", "0 1", "0.0 1.0")),
    ],
)
def test_a_truth_value_is_one_however_it_is_written(positive, cells):
    """A record of another kind turns the column into text or objects, which may not change the
    labels of all others.
    """
    for column_of in (column(cells), column(cells, object), column([*cells, "unknown"])):
        labels, classes = binary_target(column_of, positive)
        assert labels.tolist() == [0, 1, 0][: len(column_of)]
        assert classes == (
            "(other)",
            str(int(positive) if isinstance(positive, float) else positive),
        )


@pytest.mark.parametrize("positive", [False, 0, "0", "False"])
def test_false_may_be_the_positive_value(positive):
    labels, classes = binary_target(column([True, False]), positive)
    assert (labels.tolist(), classes) == ([0, 1], ("(other)", str(positive)))


@pytest.mark.parametrize("positive", [True, 1, "True", "1", "false"])
@pytest.mark.parametrize(
    "spelling", [("False", "True"), ("false", "true"), ("0", "1"), ("0.0", "1.0")]
)
def test_one_record_of_a_csv_file_relabels_no_other(positive, spelling):
    rows = [f"{age},{spelling[age % 2]}" for age in range(60)]

    def read(rows):
        content = "\n".join(["age,y", *rows]).encode()
        data = wb.data.from_csv(io.BytesIO(content), target="y", positive=positive, bounds=(0, 99))
        both = zip(
            *(np.concatenate(pair) for pair in zip(data.train, data.evaluation, strict=True)),
            strict=True,
        )
        return data.classes, {float(x[0]): int(y) for x, y in both}

    classes, labels = read(rows)
    assert sorted(labels.values()) == [0] * 30 + [1] * 30
    for odd in ("unknown", "2", "True", "7.5"):
        more_classes, more_labels = read([*rows, f"99,{odd}"])
        assert (more_classes, labels) == (classes, {x: more_labels[x] for x in labels})


def test_a_column_of_truth_values_needs_no_positive_value_at_the_loaders(tmp_path):
    frame = pd.DataFrame({"age": AGE, "y": [False, True] * 30})
    data = wb.data.from_frame(frame, target="y", bounds=(0, 99))
    assert data.classes == ("False", "True")
    assert data.train[1].sum() + data.evaluation[1].sum() == 30
    frame.to_csv(tmp_path / "table.csv", index=False)
    assert wb.data.from_csv(tmp_path / "table.csv", target="y", bounds=(0, 99)).classes == (
        "False",
        "True",
    )


@pytest.mark.parametrize("values", [[True, False], [1, 2]])
@pytest.mark.parametrize("positive", ["yes", "a"])
def test_a_positive_value_that_cannot_occur_in_a_column_of_this_type_is_named(values, positive):
    with pytest.raises(ArgumentError, match=r"^positive=.*must be .*'outcome' is a ") as caught:
        binary_target(column(values), positive)
    assert caught.value.argument == "positive"


def test_the_only_other_numbers_of_truth_values_are_0_and_1():
    with pytest.raises(
        ArgumentError, match=r"^positive=2: must be False or True, because 'outcome'"
    ):
        binary_target(column([True, False]), 2)


@pytest.mark.parametrize(
    "positive", [["Quagmire"], np.array(["Quagmire"]), pd.Series(["Quagmire"])]
)
def test_a_positive_value_is_one_value_and_others_are_not_quoted(positive):
    with pytest.raises(ArgumentError, match=r"^positive='\w+': must be a single value") as caught:
        binary_target(column(["Quagmire", "b"]), positive)
    assert "Quagmire" not in str(caught.value)


@pytest.mark.parametrize("values", [["malignant", "benign"], [0, 1, 2], [0, 5], ["0", "x"]])
def test_what_is_not_declared_is_asked_for_and_not_quoted(values):
    with pytest.raises(
        ArgumentError,
        match=r"^positive=None: .*'outcome' .*positive='yes'.*classes=\['no', 'yes'\]",
    ) as caught:
        binary_target(column(values))
    assert caught.value.argument == "positive"
    assert "malignant" not in str(caught.value)


@pytest.mark.parametrize("positive", [None, 1])
def test_a_missing_target_is_refused_without_a_count(positive):
    with pytest.raises(ArgumentError, match=r"^target='outcome': is missing in some row") as caught:
        binary_target(column([0, 1, None]), positive)
    assert caught.value.argument == "target"


def test_declared_classes_are_numbered_as_declared():
    labels, classes = declared_classes(column(["b", "a", "b", "c"]), ["a", "b", "c", "never"])
    assert (labels.tolist(), labels.dtype, classes) == (
        [1, 0, 1, 2],
        np.int32,
        ("a", "b", "c", "never"),
    )
    assert declared_classes(column([2.0, 0]), 3)[1] == ("0", "1", "2")


@pytest.mark.parametrize("spelling", ["{}", "{}.0", "{}.00"])
def test_whole_numbers_of_a_csv_file_are_the_same_classes_and_categories_with_a_point(spelling):
    rows = (f"{spelling.format(1 + n % 2)},{spelling.format(n % 3)},{n % 2}.0" for n in range(60))
    content = "\n".join(["stage,ward,y", *rows])
    options = {
        "target": "y",
        "classes": 2,
        "group": "ward",
        "groups": [0, 1, 2],
        "schema": {"stage": wb.data.Categorical([1, 2])},
    }
    read = wb.data.from_csv(io.BytesIO(content.encode()), **options)
    by_pandas = wb.data.from_frame(pd.read_csv(io.StringIO(content)), **options)
    assert read.declarations() == by_pandas.declarations()
    for one, other in zip(
        (*read.train, *read.evaluation), (*by_pandas.train, *by_pandas.evaluation), strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("values", [["a", "zzz"], ["a", None], [1, 2]])
def test_a_row_of_no_declared_class_is_not_quoted(values):
    with pytest.raises(
        ArgumentError, match=r"^target='outcome': has none of the 2 declared classes"
    ) as caught:
        declared_classes(column(values), ["a", "b"])
    assert "zzz" not in str(caught.value)


@pytest.mark.parametrize(
    "classes",
    [
        None,
        "ab",
        ["a"],
        [],
        {"a", "b"},
        {"a": 1},
        ["a", None],
        [["a"], "b"],
        1,
        0,
        True,
        2.5,
        10**9,
    ],
)
def test_classes_are_two_names_or_more(classes):
    with pytest.raises(ArgumentError, match=r"^classes=.*two or more"):
        class_names(classes)


def test_classes_that_are_the_same_as_text_are_refused():
    with pytest.raises(ArgumentError, match="compared as text"):
        class_names([1, "1"])


def test_threshold_makes_two_classes_of_numbers():
    labels, classes = thresholded(pd.Series([8, 9, 10], name="rings"), 9)
    assert labels.tolist() == [0, 0, 1]
    assert (labels.dtype, classes) == (np.int32, ("<= 9", "> 9"))


def test_one_class_is_fine_where_the_threshold_is_public():
    assert thresholded(pd.Series([1, 2]), 9)[0].tolist() == [0, 0]


@pytest.mark.parametrize("values", [[1, None], [1, "many"]])
def test_a_target_that_is_no_number_has_no_threshold(values):
    with pytest.raises(ArgumentError, match=r"^rings='(float64|object)': .* in some row") as caught:
        thresholded(pd.Series(values, name="rings"), 1)
    assert "many" not in str(caught.value)


@pytest.mark.parametrize("threshold", [float("nan"), "a", None])
def test_threshold_must_be_a_number(threshold):
    with pytest.raises(ArgumentError, match=r"^threshold="):
        thresholded(pd.Series([1, 2]), threshold)


# --- at the loaders -------------------------------------------------------------------------------

AGE = np.linspace(0, 99, 60)


def table(outcomes):
    return pd.DataFrame({"age": AGE, "outcome": [*outcomes, *["a", "b"] * 30][:60]})


@pytest.mark.parametrize("declared", [{"positive": "a"}, {"classes": ["a", "b", "rare"]}])
def test_a_rare_class_changes_nothing_but_its_own_record(declared):
    """It changed the classes, which are released and called declared."""
    without, single = (
        wb.data.from_frame(table(first), target="outcome", bounds=(0, 99), **declared)
        for first in ([], ["rare"])
    )
    assert without.classes == single.classes
    assert without.declarations() == single.declarations()
    assert (without.description, repr(without)) == (single.description, repr(single))


@pytest.mark.parametrize(
    "make",
    [
        lambda labels, **given: wb.data.from_images(np.zeros((60, 2, 2)), labels, **given),
        lambda labels, **given: wb.data.from_tokens(
            np.zeros((60, 2), int), labels, vocabulary_size=2, **given
        ),
    ],
)
def test_classes_of_arrays_are_declared_and_not_counted(make):
    labels = np.arange(60) % 3
    with pytest.raises(ArgumentError, match=r"^classes=None: must declare all possible classes"):
        make(labels)
    assert (
        make(labels, classes=5).classes
        == make(labels * 0, classes=5).classes
        == ("0", "1", "2", "3", "4")
    )
    with pytest.raises(ArgumentError, match=r"^(labels|y)="):
        make(labels, classes=2)


def test_several_classes_of_a_table_are_declared_in_one_line(tmp_path):
    data = wb.data.from_frame(
        table(["c"]), target="outcome", classes=["a", "b", "c"], bounds=(0, 99)
    )
    assert data.classes == ("a", "b", "c")
    data.check()
    table(["01"]).to_csv(tmp_path / "table.csv", index=False)
    read = wb.data.from_csv(
        tmp_path / "table.csv", target="outcome", classes=["a", "b", "01"], bounds=(0, 99)
    )
    assert read.train[1].max() == 2 or read.evaluation[1].max() == 2


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("positive", {"positive": "a", "threshold": 1.0}),
        ("positive", {"positive": "a", "classes": ["a", "b"]}),
        ("classes", {"threshold": 1.0, "classes": ["a", "b"]}),
        ("classes", {"target": None, "classes": ["a", "b"]}),
    ],
)
def test_one_way_of_declaring_classes_is_enough(argument, changes):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_frame(
            table([]), **{"target": "outcome", "features": ["age"], "bounds": (0, 99), **changes}
        )
    assert caught.value.argument == argument
