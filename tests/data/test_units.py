"""Tables with several rows for a person: the split, the rows that are kept, and what is refused."""

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench._validate import ArgumentError
from workbench.data.units import strata_widths, unit_called

OPTIONS = {"target": "ill", "bounds": (0, 1), "unit_id": "patient_id", "max_rows": 5}


def visits(patients=200, seed=0, most=9):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, most + 1, patients)
    ids = np.repeat(np.arange(patients), rows)
    frame = pd.DataFrame(
        {
            "patient_id": [f"p{each}" for each in ids],
            "age": rng.permutation(len(ids)) / len(ids),
            "dose": rng.random(len(ids)),
        }
    )
    frame["ill"] = (rng.random(len(ids)) < 0.5).astype(int)
    return frame.sample(frac=1, random_state=seed, ignore_index=True)


def content(data):
    """{rows of a unit, as a set: how often} of the training units."""
    firsts, counts = data.units.index
    rows = np.column_stack([data.train[0], data.train[1]])
    return [
        frozenset(map(tuple, rows[first : first + count]))
        for first, count in zip(firsts, counts, strict=True)
    ]


def by_patient(frame, data, arrays):
    """The patients of rows, found again by their values, which are all different."""
    known = {
        round(2 * age - 1, 4): patient
        for age, patient in zip(frame["age"], frame["patient_id"], strict=True)
    }
    return {known[round(float(age), 4)] for age in arrays[0][:, data.feature_names.index("age")]}


def test_a_patient_is_the_unit_and_is_called_so():
    frame = visits()
    data = wb.data.from_frame(frame, **OPTIONS)
    assert (data.unit, data.feature_names) == ("patient", ("age", "dose"))
    assert data.num_train == len(data.units.counts) < frame["patient_id"].nunique()
    assert data.units.counts.max() == 5
    assert sum(data.units.counts) == len(data.train[0]) == len(data.train[1])
    assert any(
        "a patient with all rows is the privacy unit" in line for line in data.declarations()
    )
    assert not any(
        "patient_id" in text or "p17" in text
        for text in (repr(data), data._repr_html_(), *data.declarations())
    )
    assert not any(
        array.dtype == object for array in (*data.train, data.units.counts, *data.evaluation)
    )
    data.check()


def test_no_patient_is_on_both_sides():
    frame = visits()
    data = wb.data.from_frame(frame, **OPTIONS)
    training, evaluation = (
        by_patient(frame, data, data.train),
        by_patient(frame, data, data.evaluation),
    )
    assert not training & evaluation
    assert len(training) + len(evaluation) == frame["patient_id"].nunique()
    assert 0.1 < len(evaluation) / 200 < 0.3


def test_units_are_in_the_order_of_their_strata():
    data = wb.data.from_frame(visits(most=30), **OPTIONS | {"max_rows": 25})
    assert strata_widths(25) == data.units.widths == (25, 7, 2, 1)
    strata = [
        min(width for width in data.units.widths if width >= count) for count in data.units.index[1]
    ]
    assert strata == sorted(strata)
    assert set(strata) == {25, 7, 2, 1}
    firsts, counts = data.units.in_place
    np.testing.assert_array_equal(firsts, np.cumsum(counts) - counts)
    assert sorted(zip(*data.units.index, strict=True)) == sorted(zip(firsts, counts, strict=True))


def test_a_replaced_unit_with_more_rows_keeps_its_place():
    frame = visits()
    rows = frame.index[frame["patient_id"] == "p3"]
    other = frame.drop(index=rows[1:])  # the same patient with one row
    before, after = (
        wb.data.from_frame(each, **OPTIONS | {"evaluation_fraction": 0.01}).units.in_place[1]
        for each in (frame, other)
    )
    assert len(before) == len(after)
    assert np.count_nonzero(before != after) == 1


def test_nothing_private_is_printed():
    assert (
        repr(wb.data.from_frame(visits(), **OPTIONS).units)
        == "Units(max_rows=5, mean=False, are_padded=False)"
    )


@pytest.mark.parametrize("gone", ["p3", "p17", "p111"])
def test_removing_a_patient_changes_no_other(gone):
    frame = visits()
    whole = content(wb.data.from_frame(frame, **OPTIONS))
    fewer = content(wb.data.from_frame(frame[frame["patient_id"] != gone], **OPTIONS))
    assert [unit for unit in whole if unit in set(fewer)] == fewer
    assert len(whole) - len(fewer) in (0, 1)  # 0 for a patient of the evaluation records


def test_neither_the_order_of_rows_nor_the_names_of_patients_matter():
    frame = visits()
    data = wb.data.from_frame(frame, **OPTIONS)
    other = frame.sample(frac=1, random_state=7, ignore_index=True)
    other["patient_id"] = other["patient_id"].map(
        {name: 1000 - int(name[1:]) for name in other["patient_id"].unique()}
    )
    assert sorted(map(sorted, content(data))) == sorted(
        map(sorted, content(wb.data.from_frame(other, **OPTIONS)))
    )


def test_rows_beyond_the_largest_number_are_a_uniform_sample():
    """Of 12 rows each, in 3000 patients, of which 3 are kept: by place in the table and by value
    alike.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "patient_id": np.repeat(np.arange(3000), 12),
            "age": rng.random(36_000),
            "place": np.tile(np.arange(12), 3000),
        }
    )
    data = wb.data.from_frame(
        frame, bounds={"age": (0, 1), "place": (0, 11)}, unit_id="patient_id", max_rows=3
    )
    assert set(data.units.counts) == {3}
    places = np.rint((data.train[0][:, 1] + 1) * 5.5).astype(int)
    seen, expected = np.bincount(places, minlength=12), len(places) / 12
    assert np.all(np.abs(seen - expected) < 4.5 * np.sqrt(expected))
    assert abs(data.train[0][:, 0].mean()) < 4.5 * np.sqrt(1 / 3 / len(places))


def test_equal_rows_of_a_patient_stay_several():
    frame = pd.DataFrame(
        {"patient_id": np.repeat(np.arange(40), 4), "age": np.repeat(np.arange(40) / 40, 4)}
    )
    data = wb.data.from_frame(frame, bounds=(0, 1), unit_id="patient_id", max_rows=3)
    assert set(data.units.counts) == {3}


def test_what_is_refused():
    frame = visits(20)
    short = {"target": "ill", "bounds": (0, 1)}

    def refused(change=lambda frame: frame, **options):
        with pytest.raises(ArgumentError) as caught:
            wb.data.from_frame(change(frame), **{**OPTIONS, **options})
        assert "\n" not in str(caught.value)
        assert "p1" not in str(caught.value)
        return caught.value.argument

    assert (
        refused(lambda frame: frame.assign(patient_id=frame["patient_id"].where(frame.index > 0)))
        == "unit_id"
    )
    assert refused(lambda frame: frame.assign(patient_id=np.arange(len(frame)))) == "unit_id"
    assert (
        refused(lambda frame: frame.assign(patient_id=[1, "1"] + [2] * (len(frame) - 2)))
        == "unit_id"
    )
    assert (
        refused(lambda frame: frame.assign(patient_id=np.arange(len(frame)) // 2 + 0.5))
        == "unit_id"
    )
    for large in (2.0**53, np.float32(2.0**24), np.inf):
        assert (
            refused(lambda frame, large=large: frame.assign(patient_id=np.full(len(frame), large)))
            == "unit_id"
        )
    mixed = pd.Categorical([1, "1"] + [2] * (len(frame) - 2))
    assert refused(lambda frame: frame.assign(patient_id=mixed)) == "unit_id"
    assert refused(lambda frame: frame.assign(patient_id=[[1]] * len(frame))) == "unit_id"
    assert refused(unit_id="nobody") == refused(unit_id="ill") == "unit_id"
    assert refused(features=["age", "patient_id"]) == "features"
    assert refused(bounds=None, schema={"age": (0, 1), "patient_id": ["p1"]}) == "schema"
    assert [refused(max_rows=most) for most in (0, None, 1.5, 10**6)] == ["max_rows"] * 4
    assert refused(evaluation=frame) == "unit_id"
    for argument, value in (("max_rows", 5), ("max_rows", 0), ("unit_mean", True)):
        with pytest.raises(ArgumentError, match="needs unit_id"):
            wb.data.from_frame(frame.drop(columns="patient_id"), **short, **{argument: value})


def test_a_row_without_a_patient_can_be_left_out():
    frame = visits(50)
    frame.loc[:2, "patient_id"] = None
    frame.loc[frame["patient_id"] == "p5", "age"] = np.nan  # nothing is left of this patient
    data = wb.data.from_frame(frame, missing="drop", **OPTIONS)
    assert "p5" not in by_patient(frame, data, data.train) | by_patient(
        frame, data, data.evaluation
    )


def test_arrays_and_files(tmp_path):
    frame = visits(60)
    data = wb.data.from_frame(frame, **OPTIONS)
    arrays = wb.data.from_arrays(
        frame[["age", "dose"]],
        frame["ill"],
        bounds=(0, 1),
        unit_id=frame["patient_id"].to_numpy(),
        max_rows=5,
    )
    assert arrays.unit == "unit"
    frame.to_csv(tmp_path / "visits.csv", index=False)
    from_csv = wb.data.from_csv(tmp_path / "visits.csv", **OPTIONS)
    for other in (arrays, from_csv):
        pairs = zip(
            (*data.train, data.units.counts), (*other.train, other.units.counts), strict=True
        )
        assert all(np.array_equal(a, b) for a, b in pairs)


def test_identifiers_in_a_file_are_text(tmp_path):
    """As numbers, 7 and 007 would be one person, but only as long as nobody's identifier has a
    letter.
    """
    ids = [7, "007", 2**60, 2**60 + 1, *range(100, 130)]
    rows = [f"{identifier},{number % 9}" for number, identifier in enumerate(ids * 3)]
    (tmp_path / "visits.csv").write_text("\n".join(["patient_id,age", *rows]))
    options = {"bounds": (0, 9), "unit_id": "patient_id", "max_rows": 5, "evaluation": False}
    assert wb.data.from_csv(tmp_path / "visits.csv", **options).num_train == len(ids)
    (tmp_path / "visits.csv").write_text("\n".join(["patient_id,age", *rows, ",3"]))
    assert wb.data.from_csv(tmp_path / "visits.csv", missing="drop", **options).num_train == len(
        ids
    )


def as_arrays(frame, ending=""):
    pairs = {
        "x": frame[["age", "dose"]],
        "y": frame["ill"],
        "patient_id": frame["patient_id"].to_numpy("U8"),
    }
    return {name + ending: np.asarray(column) for name, column in pairs.items()}


def test_a_file_of_arrays_has_identifiers_too(tmp_path):
    frame, path = visits(60), tmp_path / "visits.npz"
    np.savez(path, **as_arrays(frame))
    declared = {"bounds": (0, 1), "unit_id": "patient_id", "max_rows": 5, "unit_mean": True}
    data, expected = (
        wb.data.from_file(path, **declared),
        wb.data.from_frame(frame, unit_mean=True, **OPTIONS),
    )
    assert (data.unit, data.units.max_rows, data.units.mean, data.feature_names) == (
        "patient",
        5,
        True,
        ("x1", "x2"),
    )
    pairs = zip(
        (*data.train, data.units.counts), (*expected.train, expected.units.counts), strict=True
    )
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert wb.data.from_npz(path, unit="client", **declared).unit == "client"

    def refused(argument, **changes):
        with pytest.raises(ArgumentError) as caught:
            wb.data.from_npz(path, **{**declared, **changes})
        assert (caught.value.argument, "\n" in str(caught.value)) == (argument, False)

    for other in ("x", "y", "nobody", 3, ["patient_id"]):
        refused("unit_id", unit_id=other)
    for most in (0, None, True):
        refused("max_rows", max_rows=most)
    refused("unit_id", vocabulary_size=3)
    refused("max_rows", unit_id=None)
    refused("unit_mean", unit_id=None, max_rows=None)
    np.savez(path, **as_arrays(frame) | {"patient_id": np.zeros((len(frame), 2))})
    refused("unit")


def test_identifiers_of_evaluation_records_that_are_given(tmp_path):
    frame, path = visits(60), tmp_path / "visits.npz"
    is_held = frame["patient_id"].isin([f"p{number}" for number in range(12)])
    parts = as_arrays(frame[~is_held], "_train") | as_arrays(frame[is_held], "_test")
    np.savez(path, **parts)
    declared = {"bounds": (0, 1), "max_rows": 5}
    data = wb.data.from_npz(path, unit_id="patient_id", **declared)
    assert (data.num_train, len(data.units.evaluation_counts)) == (48, 12)
    assert len(data.evaluation[0]) == is_held.sum()
    mixed = [parts[f"patient_id_{side}"] for side in ("train", "test")]
    with pytest.raises(ArgumentError, match="of one unit in both tables"):
        wb.data.from_arrays(
            parts["x_train"],
            unit_id=mixed[0],
            evaluation=(parts["x_test"], np.resize(mixed[0], len(mixed[1]))),
            **declared,
        )
    with pytest.raises(ArgumentError, match=r"must be a tuple of arrays \(x, unit\)"):
        wb.data.from_arrays(
            parts["x_train"], unit_id=mixed[0], evaluation=(parts["x_test"],), **declared
        )
    del parts["patient_id_test"]
    np.savez(path, **parts)
    with pytest.raises(ArgumentError, match="has 'x_test' but no 'patient_id_test'"):
        wb.data.from_npz(path, unit_id="patient_id", **declared)


def test_a_part_of_such_a_table_cannot_be_chosen():
    with pytest.raises(ArgumentError, match="several rows per patient"):
        wb.data.from_frame(visits(50), **OPTIONS).subset(10)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("patient_id", "patient"),
        ("PupilID", "Pupil"),
        ("person", "person"),
        ("id", "id"),
        ("house id", "house"),
    ],
)
def test_units_are_named_after_the_column(column, unit):
    assert unit_called(column) == unit
