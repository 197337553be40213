"""Three owners from their plan to a result, through the command; what is refused; what it costs."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import SHARED_STATE, refused
from workbench.cli import main
from workbench.fitting import fits
from workbench.inference.state import Hyperparameters
from workbench.ledger.ledger import CapError, Ledger
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.integers import delta_cost
from workbench.owners import files, owner
from workbench.owners.agreements import agreement
from workbench.owners.planning import read_plan
from workbench.owners.sums import OwnSums
from workbench.posterior import statistics

pytestmark = pytest.mark.usefixtures("quick_report", "checked_models")

OWNERS = ["Aarhus", "Bern", "Cork"]
SCHEMA = {"days": (0, 30), "age": (18, 90)}
SIZES = [70, 41, 70]


def table(size, seed):
    random = np.random.default_rng(seed)
    age = random.uniform(18, 90, size)
    days = np.clip(5 + 0.1 * age + 2 * random.normal(size=size), 0, 30)
    return pd.DataFrame({"age": age, "days": days})


TABLES = [table(size, seed) for seed, size in enumerate(SIZES)]


def a_plan(**changes):
    facts = {"schema": SCHEMA, "owners": OWNERS, "epsilon": 8.0, "delta": 1e-3, "num_records": 300}
    return wb.owners.plan("days ~ age", **(facts | changes))


@pytest.fixture(scope="module")
def round_of_three(tmp_path_factory):
    """The files of a plan, of keys and of sums, written by the command; each owner has its own
    folder of files and ledger.
    """
    folder = tmp_path_factory.mktemp("owners")
    schema = {name: {"kind": "numeric", "low": low, "high": high}
              for name, (low, high) in SCHEMA.items()}  # fmt: skip
    (folder / "schema.json").write_text(json.dumps(schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = "owners plan plan.json --schema schema.json --epsilon 8 --delta 1e-3"
        words += f" --num-records 300 --owners {' '.join(OWNERS)}"
        assert main.main([*words.split(), "--model", "days ~ age"]) == 0
        for number, name in enumerate(OWNERS, 1):
            patch.setenv("WORKBENCH_STATE", str(folder / name))
            assert main.main(f"owners key plan.json --owner {name}".split()) == 0
            TABLES[number - 1].to_csv(f"{name}.csv", index=False)
        keys = " ".join(f"owner-{number}.key.json" for number in (1, 2, 3))
        for name in OWNERS:
            patch.setenv("WORKBENCH_STATE", str(folder / name))
            words = f"owners sum plan.json --owner {name} --data {name}.csv --keys {keys}"
            assert main.main(words.split()) == 0
            fakes.split_once(patch)  # the others' model is the same
        patch.setenv("WORKBENCH_STATE", SHARED_STATE)
    return folder


@pytest.fixture
def place(round_of_three, tmp_path, monkeypatch):
    """A copy of the files, which a test may change."""
    shutil.copytree(round_of_three, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def sums(place):
    return [place / f"owner-{number}.sum.json" for number in (1, 2, 3)]


def keys(place):
    return [place / f"owner-{number}.key.json" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def result(round_of_three):
    return wb.owners.fit(round_of_three / "plan.json", sums(round_of_three))


def exact_sums(tables, clip):
    """The sums by NumPy alone, in 64 bits."""
    frame = pd.concat(tables)
    x = (frame["age"].to_numpy() - 54) / 36
    y = (frame["days"].to_numpy() - 15) / 15
    radius, b = statistics.Scales.of(clip)
    z = np.stack([x, np.ones_like(x)], axis=1)
    w = np.minimum(1, radius / (z**2).sum(1))
    root = math.sqrt(2)
    columns = [x * x, root * x, np.ones_like(x), root * b * y * x, root * b * y, b * b * y * y, w]
    return np.sum(w[:, None] * np.stack(columns, axis=1), axis=0)


def test_the_result_is_that_of_all_records_with_the_promised_noise(result):
    guarantee = result.guarantee
    truth = exact_sums(TABLES, guarantee.clip)
    noise = np.asarray(result.params["sums"]) * 300 - truth
    deviation = guarantee.clip * guarantee.noise_multiplier * math.sqrt(3 / 2)
    assert np.abs(noise).max() < 6 * deviation
    assert noise.std() > deviation / 10  # and there is some
    assert (result.status, guarantee.relation) == ("done", "add_or_remove_one")
    age = result.coefficients().loc["age"]
    assert age["hdi_90%_low"] < age["mean"] < age["hdi_90%_high"]


def test_the_guarantee_says_who_learns_what(result):
    guarantee, statement = result.guarantee, result.guarantee.statement()
    assert "Aarhus, Bern, Cork" in statement
    assert "the coordinator learned the noised total and nothing else" in statement
    assert "against the coordinator and any owner together" in statement
    assert guarantee.secure_randomness
    assert guarantee.noise_delta >= delta_cost(3 * 7, guarantee.epsilon)
    alone = wb.privacy.epsilon(
        sampling_rate=1.0,
        noise_multiplier=guarantee.noise_multiplier,
        steps=1,
        delta=guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta,
    )
    assert alone <= guarantee.epsilon


def test_without_colluders_it_says_what_another_owner_learns():
    plan = a_plan(colluders=0, owners=OWNERS[:2])
    side = agreement(plan)
    (sentence,) = [line for line in side.guarantee.caveats if "knows its own noise" in line]
    said = float(sentence.partition("epsilon is ")[2].split()[0])
    guarantee = side.guarantee
    truth = wb.privacy.epsilon(
        sampling_rate=1.0,
        noise_multiplier=guarantee.noise_multiplier / math.sqrt(2),
        steps=1,
        delta=guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta,
    )
    assert said >= truth > 1.3 * guarantee.epsilon
    assert said < 1.01 * truth
    assert f"against it epsilon is {said:g} at the same delta" in plan.question()


@pytest.mark.parametrize(
    ("colluders", "words"),
    [
        (1, "This also holds against each of the other owners, who knows the noise that it added"),
        (2, "This also holds against any 2 of the other owners, even if they and the coordinator"),
    ],
)
def test_an_owner_is_asked_with_whom_it_need_not_trust(colluders, words):
    question = replace(a_plan(), colluders=colluders).question()
    assert words in question
    assert "against it epsilon" not in question


def test_each_ledger_has_the_charge_of_its_owner(round_of_three, result, monkeypatch):
    for name in OWNERS:
        monkeypatch.setenv("WORKBENCH_STATE", str(round_of_three / name))
        (row,) = Ledger().spends()
        assert row.guarantee.epsilon == 8.0
        assert row.guarantee.caveats == result.guarantee.caveats
        (entry,) = Ledger().datasets()
        assert entry.name == name


def without_noise(plan, frame, strategy):
    """The whole-number sum of one table, with its spacing."""
    side = agreement(plan, frame, "records")
    performance = side.step.performance._replace(strategy=strategy)
    step = replace(side.step, performance=performance)
    side, key = replace(side, step=step), key_from_seed(len(frame))
    sums = OwnSums.of(side)
    sums.begin(key)
    part = sums.at(0, sums.start)
    noise = step.draw(key, 0, Hyperparameters.of(step.mechanism)).noise.units
    return part.words - np.asarray(noise).view(np.uint32), *part.spacings


@pytest.mark.parametrize(
    ("strategy", "most"),
    [("loop", 0), pytest.param("auto", 2 * 4, marks=pytest.mark.thorough)],
)
def test_the_total_is_that_of_the_pooled_records(strategy, most):
    """Bit for bit where records are rounded one by one; in blocks, an owner's last one ends with
    its records, so up to a spacing for each block is between them.
    """
    plan, tables = a_plan(), TABLES[1:]
    parts = [without_noise(plan, frame, strategy) for frame in tables]
    whole, spacing = without_noise(plan, pd.concat(tables), strategy)
    assert {found for _, found in parts} == {spacing}
    apart = sum(words for words, _ in parts) - whole
    assert np.abs(apart.view(np.int32)).max() <= most


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda place: sums(place)[:2], "sums='Cork': its sum is missing"),
        (lambda place: [*sums(place), copied(place)], "is a second file of Aarhus"),
        (lambda place: edited(place, words="AAAA"), "was altered after it was written"),
        (
            lambda place: edited(place, honest=True, words="AAAAAAAAAAA="),
            "has 2 numbers in its file",
        ),
        (lambda place: edited(place, honest=True, plan="0" * 64), "belongs to another plan"),
        (lambda place: edited(place, honest=True, owner="Dover"), "is of nobody in the plan"),
        (lambda place: edited(place, honest=True, keys="0" * 64), "the masks do not cancel"),
        (lambda place: keys(place), "is not a file of an owners' sum"),
        (lambda place: edited(place, honest=True, grid=1), "is damaged: grid must be an object"),
    ],
)
def test_files_that_do_not_go_together_give_no_result(place, command, change, words):
    paths = " ".join(str(path) for path in change(place))
    assert words in refused(command(f"owners fit plan.json {paths} --out result"))
    assert not (place / "result").exists() or not list((place / "result").iterdir())


def copied(place):
    return shutil.copy(sums(place)[0], place / "copy.json")


def edited(place, honest=False, **changes):
    """The sums, of which the first was changed. :param honest: with the right checksum."""
    path = sums(place)[0]
    content = json.loads(path.read_text()) | changes
    if honest:
        del content["checksum"], content["kind"], content["format"]
        checksum = files.digest_of(content)
        content |= {"checksum": checksum, "kind": "sum", "format": files.FORMAT}
    path.write_text(json.dumps(content))
    return sums(place)


def test_a_total_whose_masks_do_not_cancel_gives_no_result(place):
    content = json.loads(sums(place)[0].read_text())
    other = json.loads(sums(place)[1].read_text())["words"]
    paths = edited(place, honest=True, words=other)
    with pytest.raises(wb.ArgumentError, match="what no records give"):
        wb.owners.fit("plan.json", paths)
    grid = content["grid"] | {"level": content["grid"]["level"] - 1}
    paths = edited(place, honest=True, words=content["words"], grid=grid)
    with pytest.raises(wb.ArgumentError, match="computed its sum for other noise"):
        wb.owners.fit("plan.json", paths)


def test_a_plan_is_answered_once(place, monkeypatch):
    monkeypatch.setenv("WORKBENCH_STATE", str(place / "Bern"))
    (place / "again").mkdir()
    for act in (
        lambda: wb.owners.write_sum("plan.json", "Bern", TABLES[2], keys(place), "again"),
        lambda: wb.owners.make_key("plan.json", "Bern", "again"),
    ):
        with pytest.raises(wb.ArgumentError, match="has answered this plan already"):
            act()
    assert not list((place / "again").iterdir())
    assert len(Ledger().spends()) == 1
    assert not list((place / "Bern" / "owners").glob("*.key"))


@pytest.fixture
def ready(tmp_path, monkeypatch):
    """A plan of two, and their keys, made here; nobody has answered."""
    monkeypatch.chdir(tmp_path)
    plan = a_plan(owners=OWNERS[:2])
    return plan, [wb.owners.make_key(plan, name) for name in plan.owners]


def test_a_cap_that_does_not_allow_it_leaves_no_file_and_the_key(ready, tmp_path):
    plan, paths = ready
    spec = agreement(plan, TABLES[0], "clinic").spec
    number = Ledger().add(spec.columns.dataset_id).number
    Ledger().set_cap(number, 1.0, 1e-3, why="a test")
    with pytest.raises(CapError):
        wb.owners.write_sum(plan, "Aarhus", TABLES[0], paths, name="clinic")
    assert not list(tmp_path.glob("*.sum.json"))
    assert not Ledger().spends()
    why = {"over_cap": "the board agreed"}
    assert wb.owners.write_sum(plan, "Aarhus", TABLES[0], paths, name="clinic", **why).exists()
    assert len(Ledger().spends()) == 1


def test_a_missing_value_is_refused_in_words_of_an_owner(ready, tmp_path):
    plan, paths = ready
    table = TABLES[0].assign(age=np.where(TABLES[0].index == 3, np.nan, TABLES[0]["age"]))
    with pytest.raises(wb.ArgumentError, match="fill or drop such rows first") as caught:
        wb.owners.write_sum(plan, "Aarhus", table, paths)
    assert "missing=" not in str(caught.value)  # which is an argument of fits
    assert not list(tmp_path.glob("*.sum.json"))
    assert wb.owners.write_sum(plan, "Aarhus", table.dropna(), paths).exists()


def test_an_owner_that_dies_has_paid_and_leaves_no_file(ready, tmp_path, monkeypatch):
    plan, paths = ready

    def dies(*arguments):
        assert len(Ledger().spends()) == 1  # charged before
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner.files, "write_new", dies)
        with pytest.raises(KeyboardInterrupt):
            wb.owners.write_sum(plan, "Aarhus", TABLES[0], paths)
    assert not list(tmp_path.glob("*.sum.json"))
    (row,) = Ledger().spends()
    assert row.promise.epsilon == 8.0  # all of it counts
    with pytest.raises(wb.ArgumentError, match="has answered this plan already, or began to"):
        wb.owners.write_sum(plan, "Aarhus", TABLES[0], paths)
    with pytest.raises(wb.ArgumentError, match="sums='Aarhus': its sum is missing"):
        wb.owners.fit(plan, [])


def test_of_two_answers_at_once_one_is_written(ready, monkeypatch, tmp_path):
    plan, paths = ready
    (tmp_path / "other").mkdir()
    taken = owner._Secret.take

    def overtaken(secret, name):
        taken(secret, name)
        taken(secret, name)

    monkeypatch.setattr(owner._Secret, "take", overtaken)
    with pytest.raises(wb.ArgumentError, match="has answered this plan already"):
        wb.owners.write_sum(plan, "Aarhus", TABLES[0], paths)
    assert not list(tmp_path.glob("*.sum.json"))
    assert Ledger().spends() == []  # who comes second pays nothing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"owner": "Cork"}, "owner='Cork'"),
        ({"data": TABLES[0][["age"]]}, "days"),
        ({"data": table(301, 0)}, "num_records"),
        ({"keys": []}, "keys='Aarhus'"),
        ({"folder": "nowhere"}, "folder='nowhere': is no folder"),
    ],
)
def test_what_cannot_be_summed_is_refused_before_it_costs_anything(ready, change, words):
    plan, paths = ready
    arguments = {"owner": "Aarhus", "data": TABLES[0], "keys": paths} | change
    with pytest.raises(wb.ArgumentError, match=words):
        wb.owners.write_sum(plan, **arguments)
    assert not Ledger().spends()


def test_a_key_of_somebody_else_under_my_name_is_refused(ready, tmp_path, monkeypatch):
    plan, paths = ready
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "elsewhere"))
    (tmp_path / "there").mkdir()
    other = wb.owners.make_key(plan, "Aarhus", "there")
    with pytest.raises(wb.ArgumentError, match="not the key that was made here"):
        wb.owners.write_sum(plan, "Aarhus", TABLES[0], paths)
    assert wb.owners.code(plan, paths) != wb.owners.code(plan, [other, paths[1]])


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"owners": ["Bern", "Bern "]}, "owners"),
        ({"owners": "Bern"}, "owners"),
        ({"colluders": 3}, "colluders"),
        ({"schema": {"days": (0, 30), "age": float}}, "schema['age']"),
        ({"schema": {"days": (0, 30)}}, "formula"),
        ({"options": {"family": "poisson"}, "settings": {"estimator": "statistics"}}, "estimator"),
        ({"settings": {"seed": 1}}, "settings"),
        ({"settings": {"iterations": 0}}, "iterations"),
        ({"options": {"missing": "drop"}}, "options"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1e-40}, "delta"),
        ({"delta": 0.01}, "delta"),
    ],
)
def test_plans_that_cannot_be_kept_are_refused(changes, argument):
    with pytest.raises(wb.ArgumentError) as caught:
        a_plan(**changes)
    assert caught.value.argument == argument


def test_a_plan_is_the_same_from_its_file(tmp_path):
    plan = a_plan(options={"priors": {"age": "Normal(0, 2)"}})
    read = read_plan(plan.save(tmp_path / "plan.json"))
    assert (read, read.digest) == (plan, plan.digest)
    assert a_plan().digest != a_plan().digest  # each is a round of its own
    with pytest.raises(wb.ArgumentError, match="is there already"):
        plan.save(tmp_path / "plan.json")


@pytest.mark.filterwarnings("ignore::workbench.results.fit_result.IntervalWarning")
@pytest.mark.parametrize(
    ("model", "schema", "options"),
    [
        pytest.param("normal_table", SCHEMA, {}, marks=pytest.mark.thorough),
        ("mixed_table", {"ill": bool, "ward": ["a", "b", "c"]}, {"marginals": [["ill", "ward"]]}),
    ],
)
def test_whole_tables_have_a_round_too(model, schema, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    more = {"ill": random.random(70) < 0.3, "ward": random.choice(["a", "b", "c"], 70)}
    tables = [TABLES[0].assign(**more), TABLES[0].assign(**more)]
    plan = wb.owners.plan(
        model,
        schema=schema,
        owners=OWNERS[:2],
        epsilon=8.0,
        delta=1e-3,
        num_records=200,
        options=options,
    )
    paths = [wb.owners.make_key(plan, name) for name in plan.owners]
    parts = [
        wb.owners.write_sum(plan, name, frame, paths, ledger=False)
        for name, frame in zip(plan.owners, tables, strict=True)
    ]
    made = wb.owners.fit(plan, parts)
    noise = made.guarantee.clip * made.guarantee.noise_multiplier * math.sqrt(2)
    if model == "mixed_table":
        counts = pd.crosstab(tables[0]["ill"], tables[0]["ward"]).to_numpy() * 2.0
        released = np.asarray(made.params["sums"]) * 200
        assert np.abs(released - counts.reshape(-1)).max() < 6 * noise
    (first, *_) = made.twins(sets=2, rows=5, seed=0)
    assert set(first.columns) == set(schema)


def test_one_pooled_fit_asks_for_the_same_noise():
    # c = 0: equal epsilon, equal noise; the share of the noise that c = 1 costs is M / (M - 1)
    _, pooled = fits.planned(
        "days ~ age",
        pd.concat(TABLES),
        schema=SCHEMA,
        epsilon=8.0,
        delta=1e-3,
        training=wb.Training(estimator="statistics"),
        privacy=wb.Privacy(num_records=300, look=0.0),
        ledger=False,
    )
    for colluders, factor in ((0, 1.0), (1, math.sqrt(1.5))):
        side = agreement(a_plan(colluders=colluders))
        every = a_plan(colluders=colluders).shares.in_all(side.privacy.mechanism)
        ratio = every.standard_deviation / pooled.mechanism.standard_deviation
        assert ratio == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize(("rows", "most"), [(0, 50), (1, 50), (1, 2), (2, 2), (3, 50)])
def test_no_number_of_records_is_refused(rows, most):
    """Else a file that is missing would tell it."""
    plan = a_plan(num_records=most, delta=1e-3)
    side = agreement(plan, table(rows, 0), "some")
    assert side.grid == agreement(plan).grid
    assert side.step.sampler.num_records == max(rows, 1)
    assert side.step.sampler.is_vacant == (rows == 0)


@pytest.mark.parametrize("name", ["A\u200b", "B\x1b[2J", " A"])
def test_a_plan_whose_names_cannot_be_read_is_refused(name, tmp_path):
    path = a_plan().save(tmp_path / "plan.json")
    path.write_text(path.read_text().replace('"Bern"', json.dumps(name)))
    with pytest.raises(wb.ArgumentError, match="plan"):
        read_plan(path)


def test_more_records_than_one_owners_noise_has_room_for_are_refused():
    with pytest.raises(wb.ArgumentError, match="num_records=70000000"):
        a_plan(owners=["A", "B"], num_records=70_000_000, epsilon=2.0, delta=1e-9, colluders=0)
