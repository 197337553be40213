"""A look at the columns by several owners, and fits on the scales that are learned from it."""

import json
import math

import jax
import numpy as np
import pandas as pd
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy.stats import chi2

import workbench as wb
from tests import fakes
from tests.conftest import SHARED_STATE
from workbench.cli import main
from workbench.data.counting import counted
from workbench.data.look import Look
from workbench.inference.state import Purpose
from workbench.ledger.ledger import Ledger
from workbench.noise import integers
from workbench.noise.chacha20 import new_key
from workbench.owners.agreements import agreement, side_of
from workbench.owners.planning import as_plan, read_plan

pytestmark = pytest.mark.usefixtures("checked_models")

OWNERS = ["Aarhus", "Bern", "Cork"]
SCHEMA = {"days": (0, 1000), "age": (0, 2000), "ward": ["a", "b"]}


def table(size, seed):
    random = np.random.default_rng(seed)
    age = random.uniform(18, 90, size)
    days = np.clip(5 + 0.1 * age + 2 * random.normal(size=size), 0, 30)
    return pd.DataFrame(
        {"age": age, "days": days, "ward": np.where(random.random(size) < 0.7, "a", "b")}
    )


TABLES = [table(size, seed) for seed, size in enumerate([900, 1, 700])]


def a_plan(model="look", **changes):
    facts = {"schema": SCHEMA, "owners": OWNERS, "epsilon": 4.0, "delta": 1e-4, "num_records": 2000}
    return wb.owners.plan(model, **(facts | changes))


def taken(plan, tables=TABLES, *, folder, **options):
    """What owners with these tables come to, by files in ``folder``."""
    folder.mkdir(exist_ok=True)
    keys = [wb.owners.make_key(plan, owner, folder) for owner in plan.owners]
    files = [
        wb.owners.write_sum(plan, owner, frame, keys, folder, name=owner, **options)
        for owner, frame in zip(plan.owners, tables, strict=True)
    ]
    return wb.owners.fit(plan, files)


def counts_by_hand(tables):
    """Leaves of the trees of both columns of numbers, and wards, by NumPy alone."""
    frame = pd.concat(tables)
    leaves = {
        name: np.histogram(frame[name], bins=2**14, range=SCHEMA[name])[0]
        for name in ("days", "age")
    }
    wards = frame["ward"].value_counts().reindex(["a", "b"]).to_numpy()
    return leaves, wards


def test_words_are_counts_with_the_noise_of_the_key_modulo_2_to_the_32():
    side = side_of(a_plan(), TABLES[0], "records")
    sums, key = side.sums(), new_key()
    sums.begin(key)
    words, spacings = sums.at(0, sums.start)
    noise_key = jax.random.fold_in(key, Purpose.LOOK)
    noise = np.asarray(integers.rounded_gaussian(noise_key, side.size, side.level))
    counts = (words - noise.view(np.uint32)).view(np.int32) / side.per_record
    leaves, wards = counts_by_hand(TABLES[:1])
    by_column = {column.name: counts[places] for column, places in side.counting.slices()}
    for name in ("days", "age"):
        assert by_column[name][: 2**14] == pytest.approx(leaves[name], abs=0)
        assert by_column[name][-2:].sum() == 900  # the two halves of the range
    assert by_column["ward"].tolist() == wards.tolist()
    assert spacings == [1 / side.per_record]
    with pytest.raises(wb.ArgumentError):  # the same noise on other counts would show them
        sums.at(0, sums.start)


@pytest.mark.parametrize("colluders", [0, 1])
def test_a_total_has_the_noise_that_is_promised(tmp_path, colluders):
    """Its deviation over 65 000 counts is known to a third of a per cent."""
    plan = a_plan(colluders=colluders)
    seen = taken(plan, folder=tmp_path, ledger=False)
    guarantee = seen.guarantee
    promised = guarantee.noise_multiplier * seen.counting.sensitivity
    assert seen.counting.sensitivity == pytest.approx(math.sqrt(14 + 14 + 1))
    leaves, _ = counts_by_hand(TABLES)
    apart = np.concatenate(
        [
            seen.values[places][: 2**14] - leaves[column.name]
            for column, places in seen.counting.slices()
            if column.name in leaves
        ]
    )
    ratio = (apart / promised).var() * (3 - colluders) / 3
    low, high = chi2.ppf([1e-6, 1 - 1e-6], len(apart)) / len(apart)
    assert low < ratio < high * 1.01
    assert seen.deviation == pytest.approx(apart.std(), rel=0.02)


def test_the_guarantee_is_that_of_an_independent_accountant():
    guarantee = side_of(a_plan()).guarantee
    accountant = PLDAccountant()
    accountant.compose(dp_event.GaussianDpEvent(guarantee.noise_multiplier))
    assert accountant.get_epsilon(guarantee.delta) <= guarantee.epsilon <= 4.0
    statement = guarantee.statement()
    assert "Aarhus, Bern, Cork" in statement
    assert guarantee.released == "counts"


def test_a_record_moves_the_counts_by_no_more_than_their_sensitivity():
    plan = a_plan()
    base = pd.DataFrame({"days": [3.0, 4.0], "age": [30.0, 40.0], "ward": ["a", "b"]})

    def counts(frame):
        side = side_of(plan, frame, "some")
        return counted(side.counting, side.data, side.per_record), side

    before, side = counts(base)
    for value in [0.0, 1e-9, 500.0, 999.99, 1000.0, -5.0, 1e300]:
        row = pd.DataFrame({"days": [value], "age": [2 * value], "ward": ["b"]})
        after, _ = counts(pd.concat([base, row]))
        distance = np.linalg.norm(after - before)
        assert 0 < distance <= side.per_record * side.counting.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_no_number_of_records_shows(rows):
    """Made-up records that fill a table up are not counted, and all grids are the same."""
    plan = a_plan()
    side = side_of(plan, table(rows, 0), "some")
    assert side.grid == side_of(plan).grid
    assert counted(side.counting, side.data, 1)[:2].sum() + rows == rows  # none at the low end
    _, wards = list(side.counting.slices())[-1]
    assert counted(side.counting, side.data, 1)[wards].sum() == rows


@pytest.mark.parametrize("number", [2, 10**4, 10**7])
def test_there_is_room_for_all_records_and_all_noise(number):
    """With 11 standard deviations of the noise of each owner, which no draw passes."""
    owners = [f"{place}" for place in range(100)]
    plan = a_plan(owners=owners, num_records=number, delta=1e-9, epsilon=8.0)
    side = side_of(plan)
    assert number * side.per_record + 100 * 11 * 2.0 ** (11 + side.level) < 2**31
    exact = 2.0 ** (11 + side.level) / (side.noise_multiplier * side.counting.sensitivity)
    assert side.per_record <= exact < side.per_record + 1.001


def test_more_records_than_there_is_room_for_are_refused():
    with pytest.raises(wb.ArgumentError, match="num_records=4000000000"):
        a_plan(num_records=4_000_000_000, delta=1e-12, epsilon=50.0)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A look with a ledger for all owners, which are counted together there."""
    folder = tmp_path_factory.mktemp("look")
    with pytest.MonkeyPatch.context() as patch:
        fakes.split_once(patch)
        return taken(a_plan(), folder=folder, ledger=str(folder / "ledger.jsonl")), folder


def test_scales_are_learned_from_ranges_that_are_far_too_wide(seen):
    look, _ = seen
    assert isinstance(look, Look)
    days = look.quantiles("days", [0.5])
    assert days["low"].item() - 1 < 10.4 < days["high"].item() + 1
    plan = a_plan("days ~ age + C(ward)", look=look)
    scales = plan.settings["look"]
    assert scales["days"]["high"] < 100
    assert scales["age"]["high"] < 200
    assert plan.settings["estimator"] == "statistics"
    assert "earlier look" in plan.question()


def test_a_fit_on_learned_scales_finds_what_wide_ranges_hide(seen, tmp_path):
    """A day more for ten years: the ranges are 30 times too wide."""
    look, folder = seen
    plan = read_plan(
        a_plan("days ~ age + C(ward)", look=look, epsilon=1.0).save(tmp_path / "p.json")
    )
    result = taken(plan, folder=tmp_path, ledger=str(folder / "ledger.jsonl"))
    age = result.coefficients().loc["age"]
    width = age["hdi_90%_high"] - age["hdi_90%_low"]
    assert age["hdi_90%_low"] - width < 0.1 < age["hdi_90%_high"] + width  # five deviations
    assert width < 0.08
    assert any("earlier look" in words for words in result.guarantee.caveats)
    ledger = Ledger(folder / "ledger.jsonl")
    (_, second) = [entry.number for entry in ledger.datasets() if entry.name == "Bern"]
    assert [part.released for part in ledger.budget_status(second).parts].count("counts") == 3
    assert len(ledger.budget_status(second).parts) == 6  # a look and a fit of each
    wide = a_plan("days ~ age + C(ward)", epsilon=1.0)
    before = taken(wide, folder=tmp_path / "wide", ledger=False).coefficients().loc["age"]
    widths = [line["hdi_90%_high"] - line["hdi_90%_low"] for line in (age, before)]
    assert widths[0] < widths[1] / 4


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_records_outside_the_scales_take_no_part(seen, rows):
    """They are not among an owner's records, and nothing else of what all agree on changes."""
    look, _ = seen
    settings = {"iterations": 5, "sampling_rate": 0.5}
    plan = as_plan(a_plan("ward ~ age", look=look, settings=settings, epsilon=1.0))
    inside, outside = table(rows, 3), table(2, 4).assign(age=1900.0)
    for frame, number in ((inside, rows), (pd.concat([inside, outside]), rows), (outside, 0)):
        side = agreement(plan, frame, "some")
        assert side.grid == agreement(plan).grid
        assert side.step.sampler.num_records == max(number, 1)
        assert side.step.sampler.is_vacant == (number == 0)
    assert not agreement(plan).step.sampler.is_vacant


def test_what_is_no_look_of_owners_is_refused(seen, tmp_path):
    look, _ = seen
    seeded = wb.look(TABLES[0], schema=SCHEMA, epsilon=4.0, delta=1e-4, seed=1, ledger=False)
    for argument, changes in [
        ("look", {"look": 0.1}),
        ("look", {"look": seeded}),
        ("settings", {"settings": {"look": 0.1}}),
        ("look", {"model": "look", "look": look}),
        ("settings", {"model": "look", "settings": {"iterations": 3}}),
    ]:
        with pytest.raises(wb.ArgumentError, match=f"^{argument}="):
            a_plan(**{"model": "days ~ age", **changes})
    path = a_plan("days ~ age", look=look).save(tmp_path / "plan.json")
    content = json.loads(path.read_text())
    age = content["settings"]["look"]["age"]
    inverted, without = {**age, "low": age["high"]}, {**age, "spread": 0.0}
    for damaged in (0.3, None, {"age": {"low": 3}}, [1], {"age": inverted}, {"age": without}):
        settings = {"estimator": "statistics", "look": damaged}
        path.write_text(json.dumps({**content, "settings": settings}))
        with pytest.raises(wb.ArgumentError, match="damaged"):
            as_plan(path)
    path.write_text(json.dumps({**content, "counts_with": ""}))
    with pytest.raises(wb.ArgumentError, match="must come with the look that they are from"):
        as_plan(path)


def test_a_model_without_scaled_columns_counts_with_the_look_too(seen):
    look, _ = seen
    plan = as_plan(a_plan("ward ~ 1", look=look, settings={"iterations": 5}))
    assert (plan.settings["look"], plan.counts_with) == (0.0, look.token)
    assert "earlier look" not in plan.question()


@pytest.mark.parametrize("data", [None, {"days": [1.0]}, "days.csv"])
def test_an_owner_without_a_table_is_refused(tmp_path, data):
    """Or made-up records would count as its own."""
    plan = a_plan()
    keys = [wb.owners.make_key(plan, owner, tmp_path) for owner in plan.owners]
    with pytest.raises(wb.ArgumentError, match=r"^data="):
        wb.owners.write_sum(plan, "Bern", data, keys, tmp_path, ledger=False)


def test_the_command_looks_and_plans_with_what_it_saw(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kinds = {
        "days": {"kind": "numeric", "low": 0, "high": 1000},
        "age": {"kind": "numeric", "low": 0, "high": 2000},
    }
    (tmp_path / "schema.json").write_text(json.dumps(kinds))
    common = "--schema schema.json --epsilon 4 --delta 1e-4 --num-records 2000 --owners A B"
    assert main.main(f"owners plan look.json --model look {common}".split()) == 0
    for owner, frame in zip("AB", (TABLES[0], TABLES[2]), strict=True):
        monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / owner))
        assert main.main(f"owners key look.json --owner {owner}".split()) == 0
        frame.to_csv(f"{owner}.csv", index=False)
    for owner in "AB":
        monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / owner))
        words = f"owners sum look.json --owner {owner} --data {owner}.csv"
        assert main.main([*words.split(), "--keys", "owner-1.key.json", "owner-2.key.json"]) == 0
    monkeypatch.setenv("WORKBENCH_STATE", SHARED_STATE)
    sums = ["owner-1.sum.json", "owner-2.sum.json"]
    capsys.readouterr()
    assert main.main(["owners", "fit", "look.json", *sums, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["columns"]) == {"days", "age"}
    assert main.main(["owners", "fit", "look.json", *sums, "--out", "there"]) != 0
    assert "a look goes into a plan, with --look" in capsys.readouterr().err
    planned = ["owners", "plan", "fit.json", "--model", "days ~ age", *common.split()]
    assert main.main([*planned, "--look", "look.json", *sums]) == 0
    assert read_plan("fit.json").settings["look"]["days"]["high"] < 100
