"""Data sets from a DataFrame or from NumPy arrays."""

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.splits import by_record


@pytest.fixture
def frame():
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {"age": random.uniform(0, 100, 60), "dose": random.uniform(0, 5, 60), "ill": [0, 1] * 30}
    )


BOUNDS = {"age": (0, 100), "dose": (0, 5)}


def test_frame_becomes_a_private_data_set(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    assert dataset.evaluation_label == "outside the guarantee"
    assert dataset.feature_names == ("age", "dose")
    assert dataset.target_name == "ill"
    assert dataset.num_train + dataset.num_evaluation == 60


def test_evaluation_records_are_public_once_declared(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS, evaluation_is_public=True)
    assert dataset.evaluation_label == "public data"


def test_arrays_have_the_types_the_models_expect(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    assert [array.dtype for array in (*dataset.train, *dataset.evaluation)] == [
        np.float32,
        np.int32,
    ] * 2


def test_a_chosen_feature_needs_no_bounds_for_the_others(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds={"dose": (0, 5)}, features=["dose"])
    assert dataset.feature_names == ("dose",)
    assert dataset.train[0].shape[1] == 1


def test_features_and_target_stay_together(frame):
    frame = frame.assign(ill=(frame.dose > 2.5).astype(int))
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    for features, target in (dataset.train, dataset.evaluation):
        assert np.array_equal(features[:, 1] > 0, target == 1)


def test_changing_one_row_changes_that_record_only(frame):
    changed = frame.copy()
    changed.loc[5, ["age", "dose"]] = [1e6, -1e6]
    before, after = (
        wb.data.from_frame(table, target="ill", bounds=BOUNDS) for table in (frame, changed)
    )
    sides = [
        [{row.tobytes() for row in side[0]} for side in (data.train, data.evaluation)]
        for data in (before, after)
    ]
    gone, new = (
        sum(len(a - b) for a, b in zip(*pair, strict=True)) for pair in (sides, sides[::-1])
    )
    assert (gone, new) == (1, 1)  # the other one may be on the other side
    assert (before.bounds, before.classes, before.description) == (
        after.bounds,
        after.classes,
        after.description,
    )


@pytest.mark.parametrize("gone", [0, 30, 59])
def test_taking_away_a_row_leaves_the_other_records_where_they_were(frame, gone):
    whole = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    shorter = wb.data.from_frame(frame.drop(index=gone), target="ill", bounds=BOUNDS)
    row = whole.schema.encode(frame)[gone]
    for before, after in (
        (whole.train[0], shorter.train[0]),
        (whole.evaluation[0], shorter.evaluation[0]),
    ):
        assert np.array_equal(before[np.any(before != row, axis=1)], after)


def test_an_unusual_index_does_not_matter(frame):
    plain = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    repeated = wb.data.from_frame(frame.set_axis([0] * 60, axis=0), target="ill", bounds=BOUNDS)
    assert np.array_equal(plain.train[0], repeated.train[0])


def test_the_users_frame_is_left_alone(frame):
    before = frame.copy()
    wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    pd.testing.assert_frame_equal(frame, before)


NO_EVALUATION = ({"evaluation_fraction": 0}, {"evaluation": False})


def refused(argument, frame, **changes):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_frame(frame, **{"target": "ill", "bounds": BOUNDS, **changes})
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unknown_target_names_the_nearest_column(frame):
    assert "did you mean 'ill'" in refused("target", frame, target="iil")


def test_unknown_feature_names_the_nearest_column(frame):
    assert "did you mean 'dose'" in refused("features", frame, features=["doses"])


@pytest.mark.parametrize("features", [[], ["age", "ill"]])
def test_features_must_be_columns_other_than_the_target(frame, features):
    refused("features", frame, features=features)


def test_a_column_name_may_not_occur_twice(frame):
    assert "'age'" in refused("frame", frame.set_axis(["age", "age", "ill"], axis=1))


def test_a_number_and_its_text_are_the_same_column_name(frame):
    assert "'1'" in refused("frame", frame.set_axis([1, "1", "ill"], axis=1))


@pytest.mark.parametrize("table", [[[1, 2]], {"ill": [0, 1]}, None])
def test_only_a_data_frame_will_do(table):
    assert repr(type(table).__name__) in refused("frame", table)


def test_a_fraction_of_zero_keeps_all_rows_for_training(frame):
    options = {"target": "ill", "bounds": (0, 200)}
    data, asked_for_none = (wb.data.from_frame(frame, **options, **none) for none in NO_EVALUATION)
    assert (data.num_train, data.num_evaluation) == (len(frame), 0)
    for one, other in zip(data.train, asked_for_none.train, strict=True):
        np.testing.assert_array_equal(one, other)
    assert "evaluation_fraction=0" in refused(
        "evaluation_is_public", frame, evaluation_fraction=0, evaluation_is_public=True
    )


def test_a_feature_may_not_be_chosen_twice(frame):
    refused("features", frame.assign(extra=1.0), features=["age", "age", "dose"])


# --- what is declared -----------------------------------------------------------------------------


def test_columns_must_be_declared(frame):
    message = refused("bounds", frame, bounds=None)
    assert message.startswith("bounds=None: must declare the public range")
    assert "A fit of a formula learns ranges that nobody declares" in message


# --- names of columns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [[0, 1, 2], ["0", "1", "2"], pd.Index([0, 1, 2], dtype="uint8")],
    ids=["int", "text", "uint8"],
)
@pytest.mark.parametrize("given", [int, str])
def test_columns_may_be_given_as_whole_numbers_or_as_their_text(frame, labels, given):
    dataset = wb.data.from_frame(
        frame.set_axis(labels, axis=1),
        target=given(2),
        bounds={given(0): (0, 100), given(1): (0, 5)},
        features=[given(0), given(1)],
    )
    assert (dataset.feature_names, dataset.target_name) == (("0", "1"), "2")
    assert np.array_equal(
        dataset.train[0], wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train[0]
    )


def test_other_labels_may_be_given_as_they_stand_in_the_frame(frame):
    day = pd.Timestamp("2020-01-01")
    table = frame.set_axis([("a", 1), day, 2.5], axis=1)
    dataset = wb.data.from_frame(table, target=2.5, bounds={day: (0, 5)}, features=[day])
    assert (dataset.feature_names, dataset.target_name) == ((str(day),), "2.5")


@pytest.mark.parametrize("label", [3, True, None, ["ill"], np.array([1, 2])])
def test_a_label_that_is_no_column_is_named(frame, label):
    if label is not None:  # no target at all is a table without one
        refused("target", frame, target=label)
    refused("features", frame, features=[label])


@pytest.mark.parametrize("features", ["age", 3])
def test_features_must_be_a_list(frame, features):
    assert "list of column names" in refused("features", frame, features=features)


@pytest.mark.parametrize("bounds", [np.zeros((3, 2)), {"age": np.arange(3.0), "dose": (0, 5)}])
def test_bounds_that_are_arrays_are_refused_on_one_line(frame, bounds):
    refused("bounds['age']", frame, bounds=bounds)


# --- tables without a target, with categories, with a threshold -----------------------------------

SCHEMA = {"age": (0, 100), "sex": ["f", "m"], "smoker": bool}


@pytest.fixture
def patients(frame):
    return frame.assign(
        sex=["f", "m", "m"] * 20, smoker=[True, False] * 30, ward=["east", "west", 3] * 20
    )


def test_a_table_without_a_target_has_one_array(frame):
    dataset = wb.data.from_frame(frame[["age", "dose"]], bounds=BOUNDS)
    assert (dataset.arrays, dataset.target_name, dataset.classes) == (("x",), "", ())
    assert len(dataset.train) == len(dataset.evaluation) == 1
    assert sorted(np.concatenate([*dataset.train, *dataset.evaluation])[:, 0]) == sorted(
        dataset.schema.encode(frame)[:, 0]
    )


def test_bounds_are_a_schema_of_numbers(frame):
    by_bounds, by_schema = (
        wb.data.from_frame(frame, target="ill", **{kind: BOUNDS}) for kind in ("bounds", "schema")
    )
    assert by_bounds.schema == by_schema.schema == wb.data.Schema.from_declaration(BOUNDS)
    assert np.array_equal(by_bounds.train[0], by_schema.train[0])


@pytest.mark.parametrize(
    "schema", [SCHEMA, wb.data.Schema.from_declaration(SCHEMA)], ids=["short", "whole"]
)
def test_a_schema_names_and_encodes_its_columns(patients, schema):
    dataset = wb.data.from_frame(patients, target="ill", schema=schema)
    assert dataset.feature_names == ("age", "sex=m", "smoker")
    assert dataset.bounds == {"age": (0.0, 100.0)}
    encoded = dataset.schema.encode(patients)
    whole = dataset.schema.with_all_levels().encode(patients)  # the reference level decides nothing
    held_out = by_record([whole, patients.ill.to_numpy(np.int32)], 0.2, 0)
    assert np.array_equal(dataset.train[0], encoded[~held_out])


def test_features_choose_columns_of_a_schema(patients):
    assert wb.data.from_frame(
        patients, schema=SCHEMA, features=["smoker", "age"]
    ).feature_names == ("smoker", "age")
    assert "did you mean 'sex'" in refused(
        "features", patients, bounds=None, schema=SCHEMA, features=["sexx"]
    )
    refused("features", patients, bounds=None, schema=SCHEMA, features=[])


def test_a_column_of_the_schema_must_be_in_the_table(patients):
    assert "did you mean 'age'" in refused("schema", patients, bounds=None, schema={"agee": (0, 1)})
    refused("schema", patients, bounds=None, schema={"age": (0, 1), "ill": bool})
    refused("schema['age']", patients, bounds=None, schema={"age": 3})
    refused("sex", patients, bounds=None, schema={"sex": ["f"]})


def test_schema_takes_the_place_of_bounds(frame):
    assert "use one of the two" in refused("schema", frame, schema=SCHEMA)


def test_a_public_threshold_turns_numbers_into_a_target(frame):
    dataset = wb.data.from_frame(
        frame, target="age", threshold=50, bounds={"dose": (0, 5)}, features=["dose"]
    )
    assert dataset.classes == ("<= 50", "> 50")
    assert dataset.train[1].sum() + dataset.evaluation[1].sum() == (frame.age > 50).sum()
    assert "if threshold is given" in refused("positive", frame, threshold=0.5, positive=1)


@pytest.mark.parametrize("changes", [{"positive": 1}, {"threshold": 1.0}])
def test_what_concerns_a_target_needs_one(frame, changes):
    assert "needs target=" in refused(next(iter(changes)), frame, target=None, **changes)


# --- groups ---------------------------------------------------------------------------------------

WARDS = {"east": [1, 0.5], "west": [1, -2], "north": [1, 7], 3: [1, 0]}


def test_groups_become_an_array_beside_their_public_features(patients):
    dataset = wb.data.from_frame(
        patients, target="ill", schema=SCHEMA, group="ward", group_features=WARDS
    )
    assert dataset.arrays == ("x", "group", "y")
    assert [array.dtype for array in dataset.train] == [np.float32, np.int32, np.int32]
    assert (dataset.group_name, dataset.groups) == ("ward", ("east", "west", "north", "3"))
    assert dataset.group_features.tolist() == [[1, 0.5], [1, -2], [1, 7], [1, 0]]
    assert set(np.concatenate([dataset.train[1], dataset.evaluation[1]])) == {0, 1, 3}


def test_the_group_is_no_feature_by_default(frame):
    table = frame.assign(ward=[1, 2] * 30)
    dataset = wb.data.from_frame(table, target="ill", bounds=BOUNDS, group="ward", groups=[1, 2])
    assert dataset.feature_names == ("age", "dose")


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("groups", {"group": "ward"}),
        ("ward", {"group": "ward", "groups": ["east", "west"]}),
        ("group", {"group": "wards", "groups": ["east"]}),
        ("group", {"group": "ill", "groups": [0, 1]}),
        ("groups", {"groups": ["east"]}),
        ("group_features", {"group_features": WARDS}),
        ("group_features", {"group": "ward", "groups": [*WARDS, "south"], "group_features": WARDS}),
        (
            "schema",
            {
                "group": "ward",
                "groups": WARDS.keys(),
                "bounds": None,
                "schema": {"ward": ["east", "west", 3]},
            },
        ),
    ],
)
def test_groups_that_cannot_be_used_are_named(patients, argument, changes):
    refused(
        argument,
        patients,
        **{"features": None if "schema" in changes else ["age", "dose"], **changes},
    )


# --- evaluation records of their own --------------------------------------------------------------


def test_evaluation_records_may_come_from_a_table_of_their_own(frame):
    dataset = wb.data.from_frame(
        frame[:40], target="ill", bounds=BOUNDS, evaluation=frame[["ill", "dose", "age"]][40:]
    )
    assert (dataset.num_train, dataset.num_evaluation) == (40, 20)
    whole = dataset.schema.encode(frame)
    assert np.array_equal(dataset.train[0], whole[:40])
    assert np.array_equal(dataset.evaluation[0], whole[40:])


@pytest.mark.parametrize(
    "evaluation",
    [[[1, 2, 3]], pd.DataFrame({"age": [1.0]}), pd.DataFrame(columns=["age", "dose", "ill"])],
)
def test_an_evaluation_table_that_does_not_fit_is_named(frame, evaluation):
    refused("evaluation", frame, evaluation=evaluation)


# --- arrays ---------------------------------------------------------------------------------------


def test_arrays_give_the_same_records_as_their_table(frame):
    x, y = frame[["age", "dose"]].to_numpy(), frame["ill"].to_numpy()
    dataset = wb.data.from_arrays(
        x, y, bounds=BOUNDS, feature_names=["age", "dose"], target_name="ill", unit="patient"
    )
    other = wb.data.from_frame(frame, target="ill", bounds=BOUNDS, unit="patient", name="arrays")
    assert all(
        map(np.array_equal, dataset.train + dataset.evaluation, other.train + other.evaluation)
    )
    assert (dataset.feature_names, dataset.target_name, dataset.unit) == (
        ("age", "dose"),
        "ill",
        "patient",
    )


def test_columns_of_an_array_are_numbered():
    points = wb.data.from_arrays(np.arange(20.0).reshape(10, 2), bounds=(0, 20))
    assert (points.feature_names, points.arrays) == (("x1", "x2"), ("x",))
    assert points.bounds == {"x1": (0.0, 20.0), "x2": (0.0, 20.0)}


def test_arrays_may_come_with_groups_and_their_own_evaluation_records():
    x, group, y = (
        np.arange(8.0).reshape(4, 2),
        np.array(["a", "b", "a", "c"]),
        np.array([0, 1, 0, 1]),
    )
    dataset = wb.data.from_arrays(
        x,
        y,
        group=group,
        groups=["a", "b", "c", "d"],
        bounds=(0, 8),
        evaluation=(x[:1], group[1:2], y[:1]),
    )
    assert dataset.arrays == ("x", "group", "y")
    assert dataset.train[1].tolist() == [0, 1, 0, 2]
    assert dataset.evaluation[1].tolist() == [1]


TABLE = np.arange(20.0).reshape(10, 2)
TARGET = np.array([0, 1] * 5)


@pytest.mark.parametrize(
    ("argument", "arguments", "options"),
    [
        ("x", (np.zeros(4),), {}),
        ("x", (np.zeros((4, 2, 2)),), {}),
        ("x", (np.zeros((4, 0)),), {}),
        ("x", ("text",), {}),
        ("y", (TABLE, TARGET[:9]), {}),
        ("y", (TABLE, TARGET[:, None]), {}),
        ("group", (TABLE,), {"group": TARGET[:3], "groups": [0, 1]}),
        ("feature_names", (TABLE,), {"feature_names": ["a"]}),
        ("feature_names", (TABLE, TARGET), {"feature_names": ["a", "y"]}),
        ("evaluation", (TABLE, TARGET), {"evaluation": (TABLE,)}),
        ("evaluation", (TABLE,), {"evaluation": TABLE}),
        ("feature_names", (TABLE,), {"evaluation": (TABLE[:, :1],)}),
        ("evaluation y", (TABLE, TARGET), {"evaluation": (TABLE, TARGET[:2])}),
        ("x2", (np.where(TABLE == 3, np.nan, TABLE), TARGET), {}),
        ("x1", (np.array([["a", 1], ["b", 2]] * 20, object),), {}),
        ("positive", (TABLE, TARGET + 1), {}),
        ("x", (np.ma.masked_equal(TABLE, 3), TARGET), {}),
        ("x", ([np.ma.masked_equal(row, 3) for row in TABLE], TARGET), {}),
        ("y", (TABLE, np.ma.masked_equal(TARGET, 0)), {}),
        ("group", (TABLE,), {"group": np.ma.masked_equal(TARGET, 0), "groups": [0, 1]}),
        ("evaluation x", (TABLE,), {"evaluation": (np.ma.masked_equal(TABLE, 3),)}),
        ("unit", (TABLE,), {"unit_id": np.ma.masked_equal(TARGET, 0), "max_rows": 9}),
        (
            "group_features",
            (TABLE,),
            {
                "group": TARGET,
                "groups": [0, 1],
                "group_features": np.ma.masked_equal([[1], [2]], 2),
            },
        ),
        (
            "group_features",
            (TABLE,),
            {"group": TARGET, "group_features": {0: [1], 1: np.ma.masked_equal([2], 2)}},
        ),
        ("y", (TABLE, pd.array([0, None] * 5, dtype="Int64")), {}),
        ("x1", (pd.DataFrame({"a": pd.array([0, None] * 5, dtype="Int64")}),), {}),
    ],
)
def test_arrays_that_cannot_be_used_are_named(argument, arguments, options):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_arrays(*arguments, **{"bounds": (0, 20), **options})
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)


def test_all_rows_can_be_training_records(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS, evaluation=False)
    assert (dataset.num_train, dataset.num_evaluation) == (60, 0)
    # in their order
    np.testing.assert_allclose(dataset.train[0][:, 0], frame.age / 50 - 1, atol=1e-6)
    assert dataset.train[1].tolist() == frame.ill.tolist()
    assert [array.shape for array in dataset.evaluation] == [(0, 2), (0,)]
    dataset.check()
    assert "There are no evaluation records." in dataset.declarations()
    assert not any("evaluation records are" in line for line in dataset.declarations())
    same = wb.data.from_arrays(
        frame[["age", "dose"]].to_numpy(), frame.ill, bounds=(0, 100), evaluation=False
    )
    assert same.num_train == 60


def test_all_units_can_be_training_units(frame):
    frame = frame.assign(patient_id=np.arange(60) // 3)
    dataset = wb.data.from_frame(
        frame, target="ill", bounds=BOUNDS, unit_id="patient_id", max_rows=2, evaluation=False
    )
    assert (dataset.num_train, dataset.num_evaluation) == (20, 0)
    assert len(dataset.train[0]) == 40


def test_without_evaluation_records_nothing_is_said_of_them(frame):
    def refused(argument, table=frame, **options):
        with pytest.raises(ArgumentError) as caught:
            wb.data.from_frame(table, target="ill", bounds=BOUNDS, evaluation=False, **options)
        assert caught.value.argument == argument

    refused("evaluation_is_public", evaluation_is_public=True)
    refused("frame", frame[:1])
    holes = frame.assign(age=frame.age.where(frame.index < 2))
    assert (
        wb.data.from_frame(
            holes, target="ill", bounds=BOUNDS, evaluation=False, missing="drop"
        ).num_train
        == 2
    )
    refused("missing", holes.assign(age=frame.age.where(frame.index < 1)), missing="drop")
    for wrong in (True, 0, "no"):
        with pytest.raises(ArgumentError, match=r"^evaluation="):
            wb.data.from_frame(frame, target="ill", bounds=BOUNDS, evaluation=wrong)


def test_a_fit_without_evaluation_records_has_no_metrics(frame, made_up_steps):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS, evaluation=False)
    result = wb.fit("logistic", dataset, epsilon=1.0, iterations=20)
    assert (result.metrics, result.public_records, result.history) == ({}, None, ())
    with pytest.raises(ArgumentError, match=r"^evaluate_private=True: needs evaluation records"):
        wb.fit(
            "logistic",
            dataset,
            epsilon=1.0,
            iterations=20,
            privacy=wb.Privacy(evaluate_private=True),
        )
    assert wb.ledger.Ledger().budget_status("data frame").total.epsilon == 1.0


# --- values that a declaration does not foresee ---------------------------------------------------

FORESEEN = {
    "missing": "drop",
    "schema": {"age": (0, 100), "ward": wb.data.Categorical(["a", "b"], other=True)},
}
ROW = {"age": 50.0, "ward": "a", "ill": "no"}


def wards(**row):
    """A hundred rows as declared, and another."""
    random = np.random.default_rng(1)
    known = pd.DataFrame(
        {
            "age": random.uniform(0, 99, 100),
            "ward": ["a", "b"] * 50,
            "ill": ["no", "no", "yes", "yes"] * 25,
        }
    )
    return pd.concat([known, pd.DataFrame([ROW | row])], ignore_index=True)


@pytest.mark.parametrize(
    "row",
    [
        {"ill": "8675309"},
        {"ward": "8675309"},
        {"ward": None},
        {"age": np.nan},
        {"age": -1e30},
        {"ill": None},
    ],
)
def test_with_a_declaration_of_all_values_no_row_decides_whether_a_table_can_be_read(row):
    """All other records are what they are without the row, and on the same side of the split."""
    whole = wb.data.from_frame(wards(**row), target="ill", positive="yes", name="wards", **FORESEEN)
    fewer = wb.data.from_frame(
        wards().iloc[:100], target="ill", positive="yes", name="wards", **FORESEEN
    )
    assert (whole.classes, whole.feature_names) == (fewer.classes, fewer.feature_names)
    for side in ("train", "evaluation"):
        rows, others = (np.column_stack(getattr(each, side)) for each in (whole, fewer))
        assert len(rows) - len(others) in (0, 1)
        np.testing.assert_array_equal(rows[: len(others)], others)
