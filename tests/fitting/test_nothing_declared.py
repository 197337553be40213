"""``wb.fit`` of a table of which nothing but the types of its columns is declared."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

import workbench as wb
from workbench import ArgumentError
from workbench.data.counting import counting_of
from workbench.data.undeclared import Table
from workbench.fitting import undeclared
from workbench.fitting.undeclared import Undeclared
from workbench.ledger.ledger import Ledger

pytestmark = pytest.mark.usefixtures("made_up_steps")  # ``result`` takes real ones

SIZE = 4000
QUIET = wb.Execution(progress=False, checkpoint=False)


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(0)
    age = random.normal(50, 15, SIZE)
    ward = random.choice(["north", "south", "tiny"], SIZE, p=[0.6, 0.399, 0.001])
    chance = 1 / (1 + np.exp(-(0.06 * (age - 50) + (ward == "south"))))
    table = {"age": age, "ward": ward, "visits": random.poisson(3, SIZE)}
    return pd.DataFrame(table).assign(ill=(random.random(SIZE) < chance).astype(int))


def fit(frame, formula="ill ~ age + ward", **options):
    defaults = {"family": "bernoulli", "epsilon": 2.0, "delta": 1e-5, "iterations": 60}
    return wb.fit(formula, frame, **{**defaults, "ledger": False, "execution": QUIET, **options})


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("ledger") / "ledger.sqlite")


@pytest.fixture(scope="module")
def result(frame, book):
    return fit(frame, iterations=600, ledger=book, seed=7)


def test_ranges_and_levels_are_learned_inside_one_guarantee(result, book, tmp_path, quick_report):
    table = result.coefficients()
    assert list(table.index) == ["intercept", "age", "ward=south", "ward=(other)"]
    assert table["hdi_90%_low"]["age"] < 0.06 < table["hdi_90%_high"]["age"]
    assert abs(table["mean"]["age"] - 0.06) < 0.015
    low, high = result.data["schema"]["age"]["low"], result.data["schema"]["age"]["high"]
    assert -60 < low < 15
    assert 85 < high < 160
    assert any("only the type is declared" in line for line in result.data["declarations"])
    assert "tiny" not in str(result.data)
    guarantee = result.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (2.0, 1e-5)
    spend = book.spends()[0]
    assert spend.guarantee.epsilon == 2.0
    assert guarantee.overflow_delta > 1e-6  # a tenth of delta is for rare texts
    loaded = wb.load(result.save(tmp_path / "result"))
    pd.testing.assert_frame_equal(loaded.coefficients(), table)


def test_look_and_steps_keep_epsilon_at_the_rest_of_delta_by_dp_accounting(result):
    guarantee = result.guarantee
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_event.GaussianDpEvent(guarantee.look_noise))
    step = dp_event.GaussianDpEvent(guarantee.noise_multiplier)
    sampled = dp_event.PoissonSampledDpEvent(guarantee.sampling_rate, step)
    accountant.compose(sampled, guarantee.steps)
    spare = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    assert spare < 0.9 * guarantee.delta
    assert 1.9 < accountant.get_epsilon(spare) <= 2.001


def test_each_release_has_the_noise_that_is_stated(frame, monkeypatch):
    """Counts minus what is counted, over all counts: a standard deviation within four standard
    errors.
    """
    names = {"age": float, "visits": int, "ward": str}
    released = []

    def keep(function):
        def call(*arguments):
            released.append(function(*arguments))
            return released[-1]

        return call

    monkeypatch.setattr(undeclared, "with_noise", keep(undeclared.with_noise))
    monkeypatch.setattr(undeclared, "noised", keep(undeclared.noised))
    seen = wb.look(frame[list(names)], epsilon=1.0, schema=names, seed=5, ledger=False)
    first = Table(frame, names).counting()
    second = counting_of(
        wb.data.from_frame(frame[list(names)], target=None, evaluation=False, schema=seen.schema)
    )
    precision = 0.0
    for counting, noised, counts in (
        (first, released[0], Table(frame, names).counted(first, 1)),
        (second, released[1], _counts(second, frame[list(names)], seen.schema)),
    ):
        errors = noised - counts
        multiplier = errors.std() / counting.sensitivity
        assert abs(errors.mean()) < 4 * errors.std() / len(errors) ** 0.5
        precision += 1 / multiplier**2
    stated = seen.guarantee.noise_multiplier
    assert precision**-0.5 == pytest.approx(stated, rel=4 / (2 * len(released[1])) ** 0.5)
    assert precision**-0.5 > 0.98 * stated


def _counts(counting, frame, schema):
    """The counts of a look, one by one."""
    counts = []
    for column in counting.columns:
        encoded = schema.columns[column.name].encode(frame[column.name])
        if hasattr(column, "labels"):
            levels = schema.columns[column.name].decode(encoded)
            counts += [np.sum(levels == label) for label in column.labels]
            continue
        place = (encoded[:, 0].astype(float) + 1) / 2
        leaf = np.minimum((place * 2**column.depth).astype(int), 2**column.depth - 1)
        for level in range(column.depth):
            counts += list(np.bincount(leaf >> level, minlength=2 ** (column.depth - level)))
    return np.array(counts, float)


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_a_stopped_fit_resumes_to_the_same_result(frame, result, tmp_path):
    stop = itertools.chain([False], itertools.repeat(True))
    execution = wb.Execution(checkpoint=tmp_path / "run", stop=lambda: next(stop), progress=False)
    stopped = fit(frame, seed=7, iterations=600, execution=execution)
    assert stopped.status == "cancelled"
    resumed = wb.resume(tmp_path / "run", data=frame)
    assert resumed.status == "done"
    for name, value in result.params.items():
        np.testing.assert_array_equal(resumed.params[name], value)
    assert resumed.data == result.data
    with pytest.raises(ArgumentError, match="other records"):
        wb.resume(tmp_path / "run", data=frame.assign(visits=0))


@pytest.mark.parametrize(
    ("formula", "options", "argument"),
    [
        ("ill ~ log(age)", {}, "formula"),
        ("ill ~ age", {"privacy": wb.Privacy(look=0)}, "look"),
        ("ill ~ age", {"epsilon": 0.02}, "epsilon"),
        ("ill ~ age", {"table": wb.Table(missing={"age": 3.0})}, "missing['age']"),
        ("ill ~ ward", {"table": wb.Table(missing={"ward": "north"})}, "missing['ward']"),
        ("ill ~ age", {"table": wb.Table(evaluation_fraction=0.2)}, "evaluation_fraction"),
        ("ill ~ agee", {}, "formula"),
        (
            "ill ~ age",
            {"table": wb.Table(priors={"Intercept": "Normal(0, 1)"})},
            "priors['Intercept']",
        ),
        ("ward ~ age", {}, "ward"),
        ("age ~ visits", {"family": "gamma"}, "schema['age']"),
        (
            "visits ~ age",
            {"family": "poisson", "table": wb.Table(exposure="age")},
            "schema['age']",
        ),
        ("ill = age", {"family": None}, "model"),
        ("ward ~ age", {"family": None}, "family"),
        ("ill ~ age", {"private": False, "epsilon": None, "ledger": None}, "schema"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_anything_is_spent(
    frame, formula, options, argument, tmp_path
):
    book = Ledger(tmp_path / "ledger.sqlite")
    options = {"ledger": book, **options}
    if options.get("private") is False:
        options |= {"delta": None}
        del options["ledger"]
    with pytest.raises(ArgumentError) as caught:
        fit(frame, formula, **options)
    assert caught.value.argument == argument
    assert book.spends() == []


def test_a_look_that_fails_is_settled_and_counts(frame, tmp_path, monkeypatch):
    book = Ledger(tmp_path / "ledger.sqlite")

    def take(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(Undeclared, "take", take)
    with pytest.raises(MemoryError):
        fit(frame, ledger=book)
    (spend,) = book.spends()
    assert (spend.status, spend.taken) == ("settled", 0)
    assert book.budget_status(spend.dataset).total.epsilon == 2.0  # stopped fits count as planned


@pytest.mark.parametrize("term", ["log(age)", "bs(age, knots=[40, 60])"])
def test_a_term_that_needs_bounds_says_what_to_declare(frame, term):
    with pytest.raises(ArgumentError, match=r"as in schema=\{'age': \(0, 100\)\}"):
        fit(frame, f"ill ~ visits + {term}")


@pytest.mark.whole_fit
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formula", "options", "names"),
    [
        ("age ~ visits + ward", {"family": "gaussian"}, ["intercept", "visits", "ward=south"]),
        ("ill ~ age + (1 | ward)", {}, ["intercept", "age"]),
        ("ill ~ age * ward", {}, ["intercept", "age", "ward=south"]),
        ("ill ~ age + I(age**2)", {}, ["intercept", "age"]),
        ("ill ~ bs(age, df=4)", {}, ["intercept", "bs(age, df=4)[1]"]),
        ("ill ~ age + ward", {"schema": {"ill": bool, "age": (0, 120), "ward": str}}, ["age"]),
    ],
)
def test_formulas_of_all_kinds_learn_their_columns(frame, formula, options, names):
    result = fit(frame, formula, iterations=20, **options)
    assert result.status == "done"
    assert set(names) <= set(result.coefficients().index)


def test_counts_are_never_below_0(frame):
    result = fit(frame, "visits ~ age", family="poisson", iterations=20)
    assert result.data["target_bounds"][0] == 0


def test_a_learned_range_of_a_family_with_zeros_begins_at_0(frame):
    """Also where hardly any is 0: no fit is refused after its look was charged."""
    many = frame.assign(visits=frame["visits"] + 100.0)
    result = fit(many, "visits ~ age", family="hurdle_poisson", iterations=20)
    assert result.data["target_bounds"][0] == 0
    plain = fit(many, "visits ~ age", family="poisson", iterations=20)
    assert plain.data["target_bounds"][0] > 0


@pytest.mark.parametrize("family", ["binomial", None])
def test_yes_or_no_is_bernoulli(frame, family):
    frame = frame.astype({"ill": bool})
    result = fit(frame, "ill ~ age", family=family, iterations=20)
    assert result.coefficients().heading["Family"] == "bernoulli, link logit"


@pytest.mark.parametrize("how", [bool, ["0", "1"]])
def test_a_declared_response_decides_beside_columns_of_which_only_types_are(frame, how):
    declared = {"schema": {"ill": how, "age": float}, "table": wb.Table(link="probit")}
    prepared = wb.prepare("ill ~ age", frame, epsilon=4, ledger=False, **declared)
    family = prepared.model.columns.family
    assert (family.name, family.link) == ("bernoulli", "probit")


@pytest.mark.parametrize(
    ("declared", "others"),
    [
        ({"age": (0, 120), "ill": bool}, {"ward": str}),
        ({"ward": ["north", "south", "tiny"]}, {"age": float, "ill": wb.data.Boolean()}),
    ],
)
def test_columns_that_a_declaration_leaves_out_have_their_types(frame, declared, others):
    frame = frame.astype({"ill": bool})
    few = fit(frame, schema=declared, seed=3)
    all_of_them = fit(frame, schema={**others, **declared}, seed=3)
    pd.testing.assert_frame_equal(few.coefficients(), all_of_them.coefficients())


@pytest.mark.parametrize("data", [{"age": [1.0], "ill": [0]}, np.zeros((3, 2)), [1, 2]])
def test_what_is_no_table_is_refused_with_how_to_make_one(data):
    with pytest.raises(ArgumentError, match=r"must be a pandas DataFrame.*pd\.DataFrame\(data\)"):
        wb.fit("ill ~ age", data, epsilon=1)


def test_dates_that_a_formula_names_are_refused_with_what_to_do(frame):
    dated = frame.assign(since=pd.Timestamp("2020-01-01"), sin=1.0)
    prepared = wb.prepare("ill ~ age + sin", dated, epsilon=4, ledger=False)
    assert "since" not in prepared.model.columns_used
    with pytest.raises(ArgumentError, match=r"schema\['since'\].*days since a public date"):
        wb.prepare("ill ~ age + since", dated, epsilon=4, ledger=False)


def test_a_declaration_of_what_the_table_lacks_is_refused(frame):
    with pytest.raises(ArgumentError, match="schema='agee': unknown name; did you mean 'age'"):
        fit(frame, schema={"agee": (0, 120)})
    with pytest.raises(ArgumentError, match=r"uses .Age.*Did you mean `age`"):
        fit(frame, "ill ~ Age", schema={"ill": bool})


def test_texts_of_which_none_is_frequent_are_said_and_leave_the_intercept_alone(frame):
    """As where numbers with decimal commas or dates are read as text."""
    texts = frame.assign(dose=[f"{number},5" for number in range(SIZE)])
    used = fit(texts, "ill ~ age + ward + dose")
    assert [*used.coefficients().index][-1] == "dose=(none)"
    assert not [words for words in used.cautions if "ward" in words]
    (words,) = (words for words in used.cautions if "dose" in words)
    assert re.match(r"About (100|99|98)% of the records have values of dose that are no", words)
    assert "17,5" not in str(used.data)


def test_numbers_of_0_and_1_without_a_family_are_said_to_be_a_straight_line(frame):
    used = fit(frame, "ill ~ age", family=None)
    (words,) = (words for words in used.cautions if 'family="bernoulli"' in words)
    assert words.startswith("ill has whole numbers from")
    assert not [words for words in fit(frame, "ill ~ age").cautions if "bernoulli" in words]


@pytest.mark.whole_fit
@pytest.mark.thorough
def test_evaluation_records_that_come_apart_are_read_by_what_was_learned(frame):
    table = wb.Table(evaluation=frame[3000:], evaluation_is_public=True)
    result = fit(frame[:3000], iterations=60, table=table)
    assert result.metrics_label == "public data"
    assert result.metrics["auc"] > 0.5


def test_persons_with_several_rows_are_the_unit(frame, monkeypatch):
    counted, with_noise = [], undeclared.with_noise

    def keep(counts, per_record, key):
        counted.append(counts.sum() / per_record)
        return with_noise(counts, per_record, key)

    monkeypatch.setattr(undeclared, "with_noise", keep)
    rows = frame.assign(who=np.arange(SIZE) // 2)
    result = fit(rows, iterations=20, epsilon=4.0, table=wb.Table(unit_id="who", max_rows=2))
    assert counted == [17 * SIZE / 2]  # as often as of a record, of each person
    assert result.guarantee.max_rows == 2
    assert "who" not in result.data["schema"]


def test_fits_and_looks_of_one_table_are_one_data_set_in_the_ledger(frame, result, book):
    wb.look(frame, epsilon=0.5, ledger=book)
    assert len({spend.dataset for spend in book.spends()}) == 1
    of_fits = [
        wb.prepare(formula, frame, family=family, epsilon=2.0, ledger=False).spec.fingerprint
        for formula, family in (("ill ~ age", "bernoulli"), ("visits ~ ward", "poisson"))
    ]
    assert of_fits[0] == of_fits[1]


def test_a_column_of_text_keeps_its_most_frequent_levels_only():
    random = np.random.default_rng(1)
    codes = random.integers(0, 150, 60_000)
    table = Table(pd.DataFrame({"t": [f"level {code}" for code in codes]}), {"t": str})
    columns = Undeclared(
        table,
        lambda schema: wb.data.from_frame(
            table.table, target=None, evaluation=False, schema=schema
        ),
    )
    first = table.counting()
    schema = table.schema(first, table.counted(first, 1).astype(float), 1.0, 1e-6)
    labels = schema.columns["t"].categories
    counts = pd.Series([f"level {code}" for code in codes]).value_counts()
    assert len(labels) == 100
    assert counts[list(labels)].min() >= counts.iloc[100]
    assert columns.most_coordinates == 100**2
    assert columns.size(60_000) > 150


def test_columns_that_the_formula_does_not_use_need_no_look(frame):
    schema = {"ill": bool, "age": (0, 120), "ward": str}
    prepared = wb.prepare("ill ~ age", frame, family="bernoulli", schema=schema, epsilon=1.0)
    assert prepared.spec.columns.price(prepared.spec) is None
    assert prepared.data.num_train == SIZE


def test_the_price_of_what_is_not_declared_has_the_shares_of_plans(frame):
    table = wb.Table(unit="patient", name="clinic")
    given = {"family": "bernoulli", "epsilon": 1.0, "table": table}
    learns = wb.prepare("ill ~ age", frame, schema={"ill": bool, "age": float}, **given)
    declared = wb.prepare("ill ~ age", frame, schema={"ill": bool, "age": (0, 120)}, **given)
    price = learns.spec.columns.price(learns.spec)
    assert price == (("age",), learns.privacy.look, declared.privacy.look)
    assert (learns.data.unit, learns.data.name) == ("patient", "clinic")


@pytest.mark.whole_fit
def test_records_that_many_columns_leave_out_together_are_said():
    """Each column alone leaves out few."""
    random = np.random.default_rng(0)
    columns = {f"c{index}": random.standard_t(2, 20_000) for index in range(12)}
    frame = pd.DataFrame(columns)
    frame["y"] = 0.3 * frame.sum(axis=1) + random.normal(size=len(frame))
    formula = f"y ~ {' + '.join(columns)}"
    result = wb.fit(formula, frame, epsilon=3, iterations=300, seed=0, ledger=False)
    inside = np.ones(len(frame), bool)
    for name, scale in result.data["scales"].items():
        if name != "y":
            inside &= frame[name].between(scale["low"], scale["high"]).to_numpy()
    said = [words for words in result.cautions if "% of the declared records take" in words]
    share = float(re.search(r"About (\d+) %", said[0])[1]) / 100
    assert share == pytest.approx(1 - inside.mean(), abs=0.03)
    assert result.gradient_norms.clip < 100 * result.gradient_norms.adapted_from
