"""Synthetic tables for analysts: what differs between them, what they keep, what they are silent
about.
"""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import PLANTED, PRIVATE_BOUNDS, some_of
from workbench import ArgumentError
from workbench.results.fit_result import IntervalWarning

SCHEMA = {"age": (0, 100, int), "dose": (0, 200), "ward": ["a", "b"], "ill": bool, "score": (0, 50)}


def people(size, seed, decimals=9):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.integers(20, 90, size),
            "dose": random.uniform(0, 200, size),
            "ward": random.choice(["a", "b"], size),
            "ill": random.random(size) < 0.4,
            "name": [f"person {number}" for number in range(size)],
        }
    )
    frame["score"] = (20 + frame["dose"] / 20 + random.normal(0, 3, size)).round(decimals)
    return frame


def fit(formula, frame, family, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wb.fit(
            formula,
            frame,
            family=family,
            schema=SCHEMA,
            epsilon=8.0,
            ledger=False,
            execution=wb.Execution(progress=False, checkpoint=False),
            **{"seed": 1, **options},
        )


@pytest.fixture(scope="module")
def private():
    return people(500, 1)


@pytest.fixture(scope="module")
def public():
    return people(80, 2)


@pytest.fixture(scope="module")
def linear(private):
    return fit(
        "score ~ age + dose + ward",
        private,
        "gaussian",
        privacy=wb.Privacy(look=0),
        training=wb.Training(estimator="statistics", draws=100),
    )


@pytest.fixture(scope="module")
def logistic(private):
    with fakes.installed():
        return fit("ill ~ age + ward", private, "bernoulli", iterations=40)


@pytest.fixture(scope="module")
def grouped():
    with fakes.installed():
        return wb.fit("hierarchical_logistic", "hierarchical", epsilon=8.0, iterations=40, seed=1)


def quiet(result, *arguments, **options):
    """Its twins, whatever is to be warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IntervalWarning)
        return result.twins(*arguments, **options)


# ---- what a set is -------------------------------------------------------------------------------


def test_all_rows_of_a_set_come_from_one_draw_and_sets_from_others(linear, public):
    """By least squares: within a set the residuals do not show that draws differ."""
    twins = quiet(linear, sets=40, rows=4000, given=public, seed=3)
    slopes, errors = [], []
    for table in twins:
        x = np.column_stack([np.ones(4000), table["dose"], table["age"], table["ward"] == "b"])
        found, squares, *_ = np.linalg.lstsq(x, table["score"].to_numpy(float))
        slopes.append(found[1])
        errors.append(np.sqrt(squares[0] / 3996 * np.linalg.inv(x.T @ x)[1, 1]))
    # 25 is half of the range of the score, and 100 of the dose
    expected = linear.draws["weights"][:, 1] * 25 / 100
    assert np.mean(slopes) == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(40))
    spread = np.sqrt(np.var(slopes) - np.mean(np.square(errors)))
    assert spread == pytest.approx(expected.std(), rel=0.45)  # 4 standard errors
    assert spread > 2 * np.mean(errors)


def test_a_set_is_the_same_whenever_it_is_read(linear, public):
    twins = quiet(linear, sets=5, rows=20, given=public)
    assert twins[2].equals(twins[2])
    assert twins[-1].equals(twins[4])
    assert [len(table) for table in twins[1:3]] == [20, 20]
    assert len(list(twins)) == len(twins) == 5
    with pytest.raises(IndexError):
        twins[5]
    assert not twins[0].equals(twins[1])
    assert not twins[0].equals(quiet(linear, sets=5, rows=20, given=public)[0])


def test_sets_are_of_different_draws(linear, public):
    twins = quiet(linear, sets=100, rows=2, given=public)
    assert sorted(twins._chosen) == list(range(100))
    with pytest.raises(ArgumentError, match=r"^sets=101: must be .* at most 100"):
        linear.twins(sets=101, given=public)


def test_inputs_have_other_weights_in_each_set(linear, public):
    """The Bayesian bootstrap: the share of a row varies by about its size, not by its root."""
    twins = quiet(linear, sets=60, rows=5000, given=public, seed=1)
    row = public["dose"].iloc[7]
    shares = np.array([(table["dose"] == row).mean() for table in twins])
    assert shares.mean() == pytest.approx(1 / 80, rel=0.5)
    assert 0.6 / 80 < shares.std() < 1.6 / 80  # resampling alone: .13 / 80


# ---- what they keep ------------------------------------------------------------------------------


def test_columns_types_bounds_and_levels_are_those_declared(linear, public):
    odd = public.assign(dose=public["dose"] * 3 - 100)
    with pytest.warns(UserWarning, match="outside the bounds of a column"):
        twins = quiet(linear, sets=2, rows=3000, given=odd)
    table = twins[0]
    assert list(table.columns) == ["age", "dose", "ward", "score"]  # and no name
    assert table["dose"].between(0, 200).all()
    assert table["dose"].max() == 200
    assert table["score"].between(0, 50).all()
    assert set(table["ward"]) == {"a", "b"}
    assert table["age"].dtype.kind == "i"


def test_truth_values_and_numbers_of_classes_are_such_again(logistic, public):
    assert quiet(logistic, sets=2, rows=50, given=public)[0]["ill"].dtype == bool
    zeros = dataclasses.replace(logistic, data=logistic.data | {"classes": ["0", "1"]})
    assert quiet(zeros, sets=2, rows=50, given=public)[0]["ill"].dtype.kind == "i"


def test_whole_records_need_no_inputs():
    with fakes.installed():
        result = wb.fit("gmm", "mixture", epsilon=8.0, iterations=40, seed=1)
    twins = quiet(result, sets=3, rows=100)
    assert twins[0].shape == (100, 2)
    assert twins.inputs_words == ""
    with pytest.raises(ArgumentError, match=r"^given=.*draws whole records"):
        result.twins(given=pd.DataFrame())


def test_groups_and_public_evaluation_records_are_used(grouped):
    table = quiet(grouped, sets=2, rows=300)[0]
    assert set(table.iloc[:, -2]) <= set(wb.data.load("hierarchical").groups)
    assert len(table) == 300


def test_a_loaded_result_gives_the_same_files(linear, public, tmp_path):
    """So they are functions of what was released and saved, of the inputs and the seed alone."""
    loaded = wb.load(linear.save(tmp_path / "result"))
    first = quiet(linear, 3, 200, public, seed=5).save(tmp_path / "first")
    second = quiet(loaded, 3, 200, public, seed=5).save(tmp_path / "second")
    names = sorted(path.name for path in first.iterdir())
    assert names == ["README.txt", "twin_1.csv", "twin_2.csv", "twin_3.csv"]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


# ---- what they are silent about ------------------------------------------------------------------


def test_the_number_of_rows_follows_from_the_declared_number_of_records(private, public):
    """500 records, of which the declaration says at most 600."""
    with fakes.installed():
        result = fit(
            "ill ~ age", private, "bernoulli", iterations=40, privacy=wb.Privacy(num_records=600)
        )
    twins = quiet(result, given=public)
    assert twins.rows == 10 * result.guarantee.num_records == 6000
    assert "500" not in twins.words()


@pytest.mark.parametrize("decimals", some_of([0, 2, 9], 3, first=2))
def test_decimals_follow_from_declared_bounds(public, decimals):
    """Whatever those of the private column are."""
    result = fit(
        "score ~ dose",
        people(300, 4, decimals),
        "gaussian",
        privacy=wb.Privacy(look=0),
        training=wb.Training(estimator="statistics", draws=50),
    )
    scores = quiet(result, sets=2, rows=500, given=public)[0]["score"]
    assert (scores == scores.round(4)).all()
    assert (scores != scores.round(3)).mean() > 0.8


def test_neither_ends_nor_any_cell_are_private_values(private_frame, tmp_path):
    """The largest private dose is planted; no cell has it, or the ends of the private column."""
    frame = private_frame.assign(dose=private_frame["dose"].clip(upper=PLANTED))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = wb.fit(
            "dose ~ age",
            frame,
            schema=PRIVATE_BOUNDS,
            epsilon=8.0,
            ledger=False,
            privacy=wb.Privacy(look=0),
            training=wb.Training(estimator="statistics", draws=50),
            execution=wb.Execution(progress=False, checkpoint=False),
        )
    public = pd.DataFrame({"age": np.linspace(1, 99, 50)})
    twins = quiet(result, 5, 2000, public)
    with pytest.warns(IntervalWarning, match="beyond the declared bounds"):  # a dose is not normal
        folder = twins.save(tmp_path / "twins")
    doses = np.concatenate([pd.read_csv(path)["dose"] for path in folder.glob("*.csv")])
    assert not np.isin(frame["dose"], doses).any()
    assert (doses.min(), doses.max()) == PRIVATE_BOUNDS["dose"]
    assert all(str(PLANTED) not in path.read_text() for path in folder.iterdir())


def test_rows_have_no_order(linear, public):
    """The private rows may be sorted; the first half of a set is like the second."""
    table = quiet(linear, sets=2, rows=4000, given=public.sort_values("dose"), seed=2)[0]
    lag = np.corrcoef(table["dose"][1:], table["dose"][:-1])[0, 1]
    assert abs(lag) < 5 / np.sqrt(4000)
    first, second = np.split(table["score"].to_numpy(), 2)
    assert abs(first.mean() - second.mean()) < 5 * table["score"].std() * np.sqrt(2 / 2000)


def test_missing_shares_are_those_of_the_public_inputs(private, public):
    """A fifth of the private ages is missing, and three of 80 public ones."""
    schema = SCHEMA | {"age": wb.data.Numeric(0, 100, missing=True)}
    gaps = private.assign(age=private["age"].where(np.arange(500) % 5 > 0))
    with fakes.installed():
        result = wb.fit(
            "ill ~ age",
            gaps,
            family="bernoulli",
            schema=schema,
            epsilon=8.0,
            ledger=False,
            iterations=40,
            privacy=wb.Privacy(look=0),
        )
    few = public.assign(age=public["age"].where(np.arange(80) >= 3))
    tables = quiet(result, sets=20, rows=500, given=few, seed=1)
    share = np.mean([table["age"].isna().mean() for table in tables])
    assert share == pytest.approx(3 / 80, abs=0.03)
    none = quiet(result, sets=2, rows=500, given=public)
    assert not none[0]["age"].isna().any()


def test_sizes_of_files_follow_from_the_tables_alone(linear, private, public, tmp_path):
    """Twins of a release whose private table is ten times as large are as large."""
    twins = quiet(linear, 2, 100, public, seed=1)
    more = dataclasses.replace(linear, definition=None, public_records=None, ledger=None)
    folders = [twins.save(tmp_path / "a"), quiet(more, 2, 100, public, seed=1).save(tmp_path / "b")]
    sizes = [[(folder / "twin_1.csv").stat().st_size] for folder in folders]
    assert sizes[0] == sizes[1]


# ---- files and words -----------------------------------------------------------------------------


def test_parquet_files_hold_the_same_tables(linear, public, tmp_path):
    twins = quiet(linear, 2, 50, public)
    folder = twins.save(tmp_path / "twins", format="parquet")
    read = pd.read_parquet(folder / "twin_2.parquet")
    assert np.array_equal(read["score"], twins[1]["score"])
    assert "read_parquet" in (folder / "README.txt").read_text()


def test_a_folder_with_files_is_left_alone(linear, public, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match=r"^folder=.*has files already"):
        quiet(linear, 2, 10, public).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ArgumentError, match=r"^format='xlsx'"):
        quiet(linear, 2, 10, public).save(tmp_path / "new", format="xlsx")


def test_a_save_that_fails_leaves_nothing(linear, public, tmp_path, monkeypatch):
    twins = quiet(linear, 2, 10, public)
    monkeypatch.setattr(type(twins), "words", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        twins.save(tmp_path / "twins")
    assert list(tmp_path.iterdir()) == []


def test_the_readme_says_what_they_are_and_what_to_do(linear, public):
    text = quiet(linear, 3, 100, public).words()
    for words in (
        "3 tables of 100 rows each: twin_1.csv to twin_3.csv",
        "Only score was drawn",
        "80 rows",
        "dose: numbers from 0 to 200",
        "score: drawn; numbers from 0 to 50",
        "wb.combine",
        "T = (1 + 1/3) B - W",
        "Label: covered",
        "an interaction",
    ):
        assert words in " ".join(text.split()), words
    assert linear.guarantee.headline()[:60] in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 88


def test_twins_of_the_guide_say_first_that_they_are_not_calibrated(guided):
    with pytest.warns(IntervalWarning, match=r"^INTERVALS FROM THESE TABLES ARE NOT CALIBRATED"):
        twins = guided.twins(sets=2, rows=10)
    assert "NOT CALIBRATED" in " ".join(twins.words().split())[:120]
    assert "see .warning" in repr(twins)


def test_without_privacy_the_label_says_so(linear, public):
    open_one = dataclasses.replace(linear, release_label="outside the guarantee")
    twins = quiet(open_one, 2, 10, public)
    assert twins.label == "outside the guarantee"
    assert "Label: outside the guarantee" in twins.words()
    assert "no further privacy" not in " ".join(twins.words().split())


def test_columns_that_are_cut_to_their_bounds_are_said(linear, public, tmp_path):
    """A scale as wide as the bounds, as much noise leaves it."""
    wide = linear.draws | {"sigma": np.full_like(linear.draws["sigma"], 1.0)}
    twins = quiet(dataclasses.replace(linear, draws=wide), 2, 500, public)
    with pytest.warns(IntervalWarning, match=r"^Many values of score were drawn beyond") as caught:
        folder = twins.save(tmp_path / "twins")
    assert len(caught) == 1
    text = " ".join((folder / "README.txt").read_text().split())
    assert text.startswith("SYNTHETIC TABLES FOR ANALYSIS CAUTION. Many values of score")
    assert "CAUTION" not in quiet(linear, 2, 500, public).words()


# ---- misuse --------------------------------------------------------------------------------------


def test_inputs_are_needed_and_must_have_the_columns(linear, public):
    with pytest.raises(ArgumentError, match=r"^given=None:.*Pass a public table of inputs"):
        linear.twins()
    with pytest.raises(ArgumentError, match="dose"):
        linear.twins(given=public.drop(columns="dose"))


def test_private_evaluation_records_are_not_copied(private_data, public):
    """A data set's evaluation records serve as inputs only where they are declared public."""
    with fakes.installed():
        result = wb.fit(
            "logistic", private_data, epsilon=8.0, iterations=40, ledger=False, delta=1e-3
        )
    for draw in (result.twins, result.sample):
        with pytest.raises(ArgumentError, match=r"^given='clinic': .*are private"):
            draw(given=private_data)
    with pytest.raises(ArgumentError, match=r"^given=None"):
        result.twins()


@pytest.mark.parametrize("argument", [{"sets": 1}, {"rows": 0}, {"sets": "many"}, {"rows": 1e12}])
def test_bad_numbers_are_named(linear, public, argument):
    with pytest.raises(ArgumentError, match=rf"^{next(iter(argument))}="):
        linear.twins(given=public, **argument)


def test_images_are_refused(linear, public):
    images = dataclasses.replace(linear, data=linear.data | {"image_shape": [8, 8]})
    with pytest.raises(ArgumentError, match=r"^model=.*draws images"):
        images.twins(given=public)


def test_a_fit_that_broke_down_is_refused(linear, public):
    broken = {name: np.full_like(values, np.nan) for name, values in linear.draws.items()}
    with pytest.raises(ArgumentError, match=r"^result=.*not finite"):
        dataclasses.replace(linear, draws=broken).twins(given=public)
