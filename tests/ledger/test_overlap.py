"""Sketches: what is known again, what is not, and that they give nothing away."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import examples, some_of
from workbench import ArgumentError
from workbench.data import from_arrays, from_frame, from_images, load
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.dataset import Dataset
from workbench.data.schema import Schema
from workbench.ledger.fingerprint import key_file
from workbench.ledger.overlap import Overlap, overlap, sketch


@pytest.fixture(autouse=True)
def state(own_state, tmp_path, monkeypatch):
    """The folder of the secret key, which is always the same here, and the hashes with it."""
    (tmp_path / "fingerprint.key").write_bytes(bytes(range(32)))
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path))
    return tmp_path


def people(random, size=2000):
    """A table as users have them: numbers of many kinds, categories, and a target."""
    return pd.DataFrame(
        {
            "height": random.normal(170, 10, size),
            "income": np.exp(random.normal(10, 1, size)).round(2),
            "marker": np.where(random.random(size) < 0.5, 0.0, random.exponential(2, size)),
            "age": random.integers(18, 90, size),
            "smoker": random.choice(["no", "yes"], size, p=[0.8, 0.2]),
            "outcome": (random.random(size) < 0.3).astype(int),
        }
    )


BOUNDS = {"height": (100, 250), "income": (0, 1e7), "marker": (0, 50), "age": (0, 120)}


def dataset_of(frame, factor=1.0, seed=0, whole=False):
    """A data set of a table like that of ``people``; with ``whole``, nearly all of it is training records."""
    schema = {
        name: Categorical(("no", "yes")) if frame[name].dtype.kind not in "fi" else Numeric(low, factor * high)
        for name in frame
        if name != "outcome"
        for low, high in [BOUNDS.get(name, (-10, 10))]
    }
    target = "outcome" if "outcome" in frame else None
    other = {"evaluation": frame[:1]} if whole else {"split_seed": seed}
    return from_frame(frame, schema=schema, target=target, **other)


def of(frame, **options):
    return sketch(dataset_of(frame, whole=True, **options))


TABLE = people(np.random.default_rng(1))


def shuffled(frame, seed=0):
    return frame.sample(frac=1, random_state=seed)


def extended(frame):
    return frame.assign(extra=np.random.default_rng(2).normal(size=len(frame)))


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda table: table, "records"),
        (shuffled, "records"),
        (lambda table: shuffled(table)[["age", "smoker", "income", "outcome", "marker", "height"]], "records"),
        (extended, "columns"),
        (lambda table: shuffled(extended(table)), "columns"),
        (lambda table: shuffled(table.drop(columns=["height", "age", "outcome"])), "columns"),
        (lambda table: shuffled(table.drop(columns="outcome")), "records"),
        (lambda table: shuffled(table)[["height"]], "columns"),
        (lambda table: shuffled(table.drop(columns=["height", "income", "marker"])), "columns"),
    ],
)
def test_records_in_another_order_or_choice_of_columns_are_known_again(change, how):
    found = overlap(of(TABLE), of(change(TABLE)))
    assert found == Overlap(pytest.approx(1, abs=1e-3), how)


def test_names_of_columns_do_not_matter():
    first = from_frame(TABLE.drop(columns="smoker"), target="outcome", bounds=(-10, 1e6), evaluation=TABLE[:1])
    columns = ["age", "income", "outcome", "marker", "height"]
    other = shuffled(TABLE)[columns].set_axis(["height", "b", "c", "d", "age"], axis=1)
    for table in (other, extended(other)):
        second = from_frame(table, target="c", bounds=(-10, 1e6), evaluation=table[:1])
        assert overlap(sketch(first), sketch(second)).share == pytest.approx(1, abs=1e-3)


def test_other_bounds_do_not_matter():
    for factor in (0.999, 3, 40):
        found = overlap(of(TABLE), of(shuffled(TABLE), factor=factor))
        assert found.how == "records"
        assert found.share > 0.9
    cut = {"height": (160, 180), "income": (1e4, 5e4), "marker": (0, 2), "age": (30, 60)}
    narrow = from_frame(TABLE[[*cut]], bounds=cut, evaluation=TABLE[:1])
    wide = from_frame(shuffled(TABLE)[[*cut]], bounds=BOUNDS, evaluation=TABLE[:1])
    assert overlap(sketch(narrow), sketch(wide)).share > 0.5


def test_another_split_shares_most_records():
    found = overlap(sketch(dataset_of(TABLE)), sketch(dataset_of(TABLE, seed=1)))
    assert found == Overlap(pytest.approx(0.8, abs=0.1), "records")


@pytest.mark.parametrize("size", [200, 1000])
def test_subsets_are_known_again(size):
    part = shuffled(TABLE)[:size]
    assert overlap(of(TABLE), of(part)) == Overlap(pytest.approx(1, abs=0.01), "records")
    assert overlap(of(TABLE), of(extended(part))) == Overlap(pytest.approx(1, abs=0.01), "columns")
    whole = dataset_of(TABLE)
    assert overlap(sketch(whole), sketch(whole.subset(size))) == Overlap(1.0, "records")


def test_the_share_is_that_of_the_smaller_data_set():
    other = pd.concat([TABLE[:300], people(np.random.default_rng(3), 700)])
    for pair in itertools.permutations((TABLE, other)):
        assert overlap(*map(of, pair)) == Overlap(pytest.approx(0.3, abs=0.1), "records")


def test_groups_targets_and_features_are_columns():
    random = np.random.default_rng(4)
    names = [f"ward {number}" for number in range(60)]
    table = pd.DataFrame({"a": random.integers(0, 10, 800), "b": random.integers(0, 10, 800)})
    table = table.assign(ward=np.array(names)[random.integers(0, 60, 800)], y=random.integers(0, 2, 800))

    def grouped(frame, **options):
        return sketch(from_frame(frame, target="y", group="ward", groups=names, bounds=(0, 9), **options))

    # the features alone tell few records apart
    assert overlap(grouped(table), grouped(table, split_seed=1)) == Overlap(pytest.approx(0.8, abs=0.1), "records")
    ungrouped = from_frame(table[["ward", "y", "b"]], schema={"b": (0, 20), "ward": names, "y": bool}, evaluation=table[:1])
    assert overlap(grouped(shuffled(table)[["a", "ward", "y"]], evaluation=table[:1]), sketch(ungrouped)).how == "columns"


def test_images_are_known_again():
    random = np.random.default_rng(5)
    images, others = random.integers(0, 256, (2, 1500, 9, 7), dtype=np.uint8)
    order = random.permutation(1500)
    whole = sketch(from_images(images, random.integers(0, 10, 1500), classes=10, evaluation=(images[:1], np.array([0]))))
    for part in (images[order], images[order[:150]], images / 255.0):
        assert overlap(whole, sketch(from_images(part, evaluation=(images[:1],)))) == Overlap(1.0, "records")
    assert overlap(whole, sketch(from_images(others))) is None
    assert overlap(whole, of(TABLE)) is None


def test_tables_of_categories_are_known_again_whole():
    random = np.random.default_rng(6)
    kinds = {"a": ["red", "green", "blue"], "b": ["x", "y", "z", "w"], "c": ["no", "yes"], "d": ["1", "2", "3", "4", "5"]}
    table = pd.DataFrame({name: random.choice(kind, 2000, p=uneven(len(kind))) for name, kind in kinds.items()})

    def categorical(frame):
        return sketch(
            from_frame(frame, schema={name: [*sorted(set(frame[name])), "-"] for name in frame}, evaluation=frame[:1])
        )

    added = shuffled(table).assign(new=random.choice(["u", "v"], 2000))
    assert overlap(categorical(table), categorical(added[["d", "new", "b", "c", "a"]])) == Overlap(1.0, "columns")
    renamed = added[["d", "b", "c", "a"]].set_axis(["a", "b", "x", "d"], axis=1)
    assert overlap(categorical(table), categorical(renamed)) == Overlap(1.0, "records")


def test_tables_of_zeros_and_ones_are_known_again():
    random = np.random.default_rng(7)
    table = pd.DataFrame((random.random((1000, 25)) < random.uniform(0.1, 0.9, 25)).astype(int)).add_prefix("q")

    def binary(frame, **schema):
        return sketch(from_frame(frame, schema=dict.fromkeys(frame, bool) | schema, evaluation=frame[:1]))

    whole = binary(table)
    assert overlap(whole, binary(shuffled(table)[:200])) == Overlap(1.0, "records")
    assert overlap(whole, binary(shuffled(table.assign(extra=table["q1"] ^ (table["q2"] & table["q3"]))))) == Overlap(
        1.0, "columns"
    )
    assert overlap(whole, binary(table, q3=(0, 1), q4=["0", "1"])) == Overlap(1.0, "records")
    renamed = shuffled(table)[table.columns[::-1]].set_axis(list(table), axis=1)
    assert overlap(whole, binary(renamed)) == Overlap(1.0, "records")


def test_data_sets_without_a_schema_are_known_again():
    first, second = load("breast_cancer"), load("breast_cancer", split_seed=1)
    plain = Dataset(
        "plain", "", (np.asarray(first.schema.decode(first.train[0]), np.float32),), first.evaluation[:1], arrays=("x",)
    )
    assert overlap(sketch(first), sketch(second)) == Overlap(pytest.approx(0.8, abs=0.1), "records")
    assert overlap(sketch(plain), sketch(second)) == Overlap(pytest.approx(0.8, abs=0.1), "records")
    assert overlap(sketch(first), sketch(first.select(("y",)))) is None


# --- what is not related ---------------------------------------------------------------------------------------------------


def uneven(size):
    weights = np.arange(1, size + 1) ** 1.5
    return weights / weights.sum()


def integers(most, columns):
    return lambda random, size: random.integers(0, most, (size, columns))


UNRELATED = {
    "one number": lambda random, size: random.normal(size=(size, 1)),
    "numbers": lambda random, size: random.normal(size=(size, 8)),
    "rounded numbers": lambda random, size: random.normal(size=(size, 6)).round(2),
    "money": lambda random, size: np.exp(random.normal(7, 1, (size, 4))).round(),
    "ages": integers(70, 1),
    "ages and more": integers(70, 2),
    "years of days": integers(3650, 2),
    "scores": integers(250, 8),
    "answers": integers(5, 12),
    "few answers": integers(4, 3),
    "coins": integers(2, 20),
    "rare events": lambda random, size: random.random((size, 40)) < 0.05,
    "many zeros": lambda random, size: random.normal(size=(size, 4)) * (random.random((size, 4)) < 0.2),
    "heavy tails": lambda random, size: np.minimum(random.zipf(1.5, (size, 4)), 10**6),
    "numbered": lambda random, size: np.stack([np.arange(size), random.random(size) < 0.2], axis=1),
    "numbers alone": lambda random, size: np.arange(size)[:, None],
    "steps": lambda random, size: np.stack([np.linspace(0, 1, size), random.integers(0, 2, size)], axis=1),
    "visits": lambda random, size: np.stack(
        [np.arange(size) // 4, np.arange(size) % 4, random.integers(0, 5, size)], axis=1
    ),
    "one value": lambda random, size: np.ones((size, 3)),
}


@pytest.mark.parametrize("kind", some_of(list(UNRELATED), 12))
def test_unrelated_data_are_not_related(kind):
    random = np.random.default_rng(8)
    for size, times in ((16, 8), (50, 8), (200, 6), (5000, 3)):
        tables = [UNRELATED[kind](random, number).astype(float) for number in (*[size] * times, 3 * size)]
        targets = [random.integers(0, 2, len(x)) for x in tables]
        sketches = [
            sketch(from_arrays(x, y, bounds=(x.min() - 1, x.max() + 1), evaluation=(x[:1], y[:1])))
            for x, y in zip(tables, targets, strict=True)
        ]
        assert all(overlap(*pair) is None for pair in itertools.combinations(sketches, 2))


def test_parts_without_common_records_are_not_related():
    for table in (TABLE, people(np.random.default_rng(9), 60)):
        order = shuffled(table)
        assert overlap(of(order[: len(table) // 2]), of(order[len(table) // 2 :])) is None


@examples(60)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32))
def test_small_tables_of_few_values_are_not_related(size, width, most, seed):
    random = np.random.default_rng(seed)
    tables = random.integers(0, most + 1, (2, size, width))
    one, other = (Dataset("x", "", (x.astype(np.float32),), (x[:1],), arrays=("x",)) for x in tables)
    assert overlap(sketch(one), sketch(other)) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38])
def test_any_number_is_taken(value):
    x = np.full((30, 2), value, np.float32)
    x[:, 1] = np.arange(30) ** 3
    blob = sketch(Dataset("x", "", (x,), (x[:1],), arrays=("x",)))
    assert overlap(blob, blob) is None or overlap(blob, blob).share == 1
    schema = Schema({"a": Numeric(-9e18, 9e18), "b": Boolean()})
    sketch(Dataset("x", "", (np.clip(x, -1, 1),), (x[:1],), arrays=("x",), feature_names=("a", "b"), schema=schema))


# --- what a sketch gives away ----------------------------------------------------------------------------------------------


def test_sketches_are_of_one_size_and_never_the_same():
    random = np.random.default_rng(10)
    blobs = [
        sketch(Dataset("x", "", (random.normal(size=size),), (), arrays=("x",))) for size in ((2, 1), (10, 3), (100_000, 2))
    ]
    blobs += [sketch(from_images(random.random((9, 8, 8)))), of(TABLE), of(TABLE)]
    assert {len(blob) for blob in blobs} == {len(blobs[0])}
    assert len(blobs[0]) < 2**16
    for one, other in itertools.combinations(blobs, 2):
        equal = np.frombuffer(one, np.uint8) == np.frombuffer(other, np.uint8)
        assert 0.002 < np.mean(equal) < 0.006  # 1 / 256 +- 8 standard deviations


def test_nothing_of_the_records_can_be_read():
    x = np.full((1000, 2), 1234.5)
    x[:, 1] = np.arange(1000)
    blob = sketch(from_arrays(x, bounds=(0, 2000), name="secret"))
    for kind in (np.float32, np.float64, np.int32):
        assert np.array(1234.5, kind).tobytes() not in blob
    counts = np.bincount(np.frombuffer(blob, np.uint8), minlength=256)
    assert np.sum((counts - len(blob) / 256) ** 2) / (len(blob) / 256) < 400  # chi-squared with 255 degrees of freedom


def test_damaged_sketches_are_related_to_nothing():
    blob = of(TABLE)
    assert overlap(blob, blob) is not None
    for place in (0, 20, len(blob) // 2, len(blob) - 1):
        damaged = bytearray(blob)
        damaged[place] ^= 1
        assert overlap(blob, bytes(damaged)) is None
        assert overlap(bytes(damaged), blob) is None
    for other in (b"", blob[:-1], blob + b"x", bytes(len(blob))):
        assert overlap(blob, other) is None


def test_another_key_reads_nothing(monkeypatch, tmp_path):
    blob = of(TABLE)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "other"))
    assert overlap(blob, blob) is None
    assert overlap(blob, of(TABLE)) is None
    assert overlap(of(TABLE), of(TABLE)) is not None
    key_file().write_bytes(b"short")
    for attempt in (lambda: of(TABLE), lambda: overlap(blob, blob)):
        with pytest.raises(ArgumentError, match=r"^key file="):
            attempt()


def test_evaluation_records_do_not_count():
    first, second = dataset_of(TABLE), dataset_of(people(np.random.default_rng(11)))
    other = Dataset(**{**vars(second), "evaluation": first.train})
    assert overlap(sketch(first), sketch(other)) is None


def test_arrays_of_other_names_and_of_several_columns_are_compared_too():
    random = np.random.default_rng(5)
    x, w = random.normal(size=(300, 2)), random.normal(size=(300, 3))
    y = random.integers(0, 2, 300)

    def made(rows):
        arrays = tuple(array[rows] for array in (x, w, y))
        return Dataset(
            "own", "Own.", arrays, tuple(a[:1] for a in arrays), ("a", "b"), "y", ("0", "1"), arrays=("x", "w", "y")
        )

    whole, part = sketch(made(np.arange(300))), sketch(made(np.arange(150)))
    assert overlap(whole, part).how == "records"
    others = random.normal(size=(300, 2)), random.normal(size=(300, 3)), y
    assert (
        overlap(whole, sketch(Dataset("o", "O.", others, others, ("a", "b"), "y", ("0", "1"), arrays=("x", "w", "y"))))
        is None
    )
