"""``mixed_table`` without marginals: the fit chooses them within its guarantee."""

import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

import workbench as wb
from workbench import ArgumentError
from workbench.data.dependence import PairScores
from workbench.fitting import marginals
from workbench.fitting.marginals import share_for
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.run_log import RunLog
from workbench.ledger.ledger import Ledger
from workbench.models.chosen_marginals import marginals_of
from workbench.models.joint_cells import in_order
from workbench.results.code import code_of

pytestmark = pytest.mark.usefixtures("checked_models")

PLACES = [f"place {number}" for number in range(40)]  # too many cells to count in vain
SCHEMA = {"ill": bool, "ward": ["a", "b", "c"], "age": (0, 100, int), "place": PLACES}
QUIET = wb.Execution(progress=False, checkpoint=False)
UNKEPT = wb.Execution(checkpoint=False)


def frame(size=800, seed=0):
    random = np.random.default_rng(seed)
    ill = random.random(size) < 0.4
    ward = np.where(ill, random.choice(list("aab"), size), random.choice(list("bcc"), size))
    age = random.normal(40 + 25 * ill, 8).clip(0, 100).round()
    place = random.choice(PLACES, size)
    return pd.DataFrame({"ill": ill, "ward": ward, "age": age, "place": place})


def data_of(table, schema=SCHEMA, **options):
    return wb.data.from_frame(table, schema=schema, evaluation=False, **options)


def few_cells():
    """A data set of three columns whose posterior takes no time."""
    table = frame(500)
    table = table[["ill", "ward"]].assign(west=table["place"] < "place 25")
    return data_of(table, {"ill": bool, "ward": ["a", "b", "c"], "west": bool})


def arguments(**options):
    few = wb.Training(draws=200)
    usual = {"epsilon": 2.0, "delta": 1e-5, "ledger": False, "seed": 1, "training": few}
    return {**usual, **options}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("ledger") / "ledger.sqlite")


@pytest.fixture(scope="module")
def fitted(book):
    model = wb.models.mixed_table(bins=5)
    return wb.fit(model, data_of(frame()), **arguments(ledger=book, execution=QUIET))


@pytest.mark.filterwarnings("ignore:.*not be told:workbench.results.fit_result.IntervalWarning")
def test_what_depends_is_chosen_and_the_rest_is_named(fitted, tmp_path):
    chosen = fitted.model_options["marginals"]
    assert all(any({"ill", name} <= {*one} for one in chosen) for name in ("ward", "age"))
    assert ["place"] in chosen
    (caution,) = [words for words in fitted.cautions if "could not be told" in words]
    assert "ill x place" in caution
    assert "ill x ward" not in caution
    assert any("1 of 6 pairs" in words and "(ward x age)" in words for words in fitted.cautions)
    declared = " ".join(fitted.data["declarations"])
    share = 100 * fitted.settings["look"]
    assert f"guarantee and for {share:.2g} % of its budget: ill x ward, ill x age, pl" in declared
    assert "Not told from independent: ill x place, ward x place, age x place." in declared
    twins = fitted.twins(sets=10, rows=2000, seed=1)
    gap = np.mean([one.groupby("ill")["age"].mean().diff().iloc[1] for one in twins])
    assert gap == pytest.approx(25, abs=4)
    assert "could not be told" in (twins.save(tmp_path / "twins") / "README.txt").read_text()


@pytest.mark.filterwarnings("ignore:.*not be told:workbench.results.fit_result.IntervalWarning")
def test_a_saved_result_has_the_marginals_and_its_code_chooses_again(fitted, tmp_path):
    loaded = wb.load(fitted.save(tmp_path / "result"))
    assert "ill x ward, ill x age, place" in loaded.predictor.model.summary
    assert loaded.cautions == fitted.cautions
    assert loaded.twins(sets=2, rows=50, seed=1)[1].equals(fitted.twins(2, 50, seed=1)[1])
    assert "mixed_table(bins=5)" in code_of(loaded)
    assert f"look={fitted.settings['look']}" in code_of(loaded)


def test_the_choice_is_inside_epsilon_by_dp_accounting(fitted, book):
    guarantee = fitted.guarantee
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for noise in (guarantee.look_noise, guarantee.noise_multiplier):
        accountant.compose(dp_event.GaussianDpEvent(noise))
    spare = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    assert 1.99 < accountant.get_epsilon(spare) <= 2.001
    (spend,) = book.spends()
    assert spend.guarantee.epsilon == guarantee.epsilon == 2.0
    assert spend.guarantee.look_noise == guarantee.look_noise > 0
    assert guarantee.clip == pytest.approx(len(fitted.model_options["marginals"]) ** 0.5)
    assert "which of them go together" in guarantee.statement()
    assert "of the sums and of the look are composed" in guarantee.composition()
    assert "comes from a release of sums" in guarantee.statement()


def test_only_noised_numbers_decide(monkeypatch):
    """Both releases have the noise that is stated, and what follows is a function of them alone."""
    released, seen, options = [], [], arguments(seed=2, execution=UNKEPT)

    def noised(counts, per_record, key):
        released.append((np.array(counts), per_record, marginals.deviation(per_record)))
        seen.append(original(counts, per_record, key))
        return seen[-1]

    original = marginals.with_noise
    monkeypatch.setattr(marginals, "with_noise", noised)
    prepared = wb.prepare(wb.models.mixed_table(bins=5), data_of(frame(500)), **options)
    spec, plan = prepared.spec, prepared.plan
    first = spec.columns.looked(spec, plan, prepared.key).learned
    assert [len(values) for values in seen] == [2 + 3 + 5 + 40, 6]
    sigma = plan.look.noise_multiplier
    sizes = (4, 6)
    precision = sum(
        (size**0.5 / noise[2]) ** 2 for size, noise in zip(sizes, released, strict=True)
    )
    assert precision**-0.5 >= sigma
    assert precision**-0.5 == pytest.approx(sigma, rel=1e-3)
    # other records and the same noised numbers: the same is learned
    again = iter(list(seen))
    monkeypatch.setattr(marginals, "with_noise", lambda *arguments: next(again))
    other = wb.prepare(wb.models.mixed_table(bins=5), data_of(frame(500, 9)), **options)
    assert other.spec.columns.looked(other.spec, other.plan, other.key).learned == first


def test_it_resumes_with_the_marginals_that_were_chosen(tmp_path):
    execution = wb.Execution(checkpoint=tmp_path / "run", stop=lambda: True, progress=False)
    data = few_cells()
    stopped = wb.fit("mixed_table", data, **arguments(execution=execution, seed=None))
    resumed = wb.resume(tmp_path / "run", data=data)
    assert (stopped.status, resumed.status) == ("cancelled", "done")
    assert resumed.model_options == stopped.model_options
    assert resumed.model_options["marginals"] is not None
    assert resumed.data["declarations"] == stopped.data["declarations"]
    assert resumed.cautions[-1] == stopped.cautions[-1]
    assert resumed.params["sums"].any()


def dies(*_, **__):
    raise KeyboardInterrupt


def resumed_after_death(data, folder, monkeypatch, clip=None):
    """Released sums of a run that dies before its end is written, and the result of resuming it.

    :param clip: that the checkpoint says, if anything.
    """
    released = []
    with monkeypatch.context() as patched:
        patched.setattr(PreparedFit, "_write_end", dies)
        execution = wb.Execution(
            progress=False,
            checkpoint=folder,
            on_snapshot=lambda snapshot: released.append(snapshot.params["sums"]),
        )
        if clip is not None:
            patched.setattr(RunLog, "_left_to_look", lambda _: {"clip": clip})
        with pytest.raises(KeyboardInterrupt):
            wb.fit("mixed_table", data, **arguments(execution=execution))
    return data.num_train * released[-1], wb.resume(folder, data=data)


def test_a_run_that_dies_after_its_release_is_resumed_to_the_same(tmp_path, monkeypatch):
    first, second = resumed_after_death(few_cells(), tmp_path / "run", monkeypatch)
    np.testing.assert_array_equal(500.0 * second.params["sums"], first)
    assert second.guarantee.clip == pytest.approx(len(second.model_options["marginals"]) ** 0.5)


def test_the_same_noise_in_another_size_is_refused(tmp_path, monkeypatch):
    """Two sizes of the same draws give the counts away."""
    with pytest.raises(ArgumentError, match="chose other settings after its look"):
        resumed_after_death(data_of(frame(400)), tmp_path / "run", monkeypatch, clip=2.0)


def test_noise_after_a_look_follows_from_what_was_chosen():
    keys = []
    for clip in (None, None, 2.0):
        fit = wb.prepare("mixed_table", few_cells(), clip=clip, **arguments())
        fit._look()
        keys.append(jax.random.key_data(fit.key).tobytes())
    assert keys[0] == keys[1] != keys[2]


def test_where_nothing_can_be_chosen_it_is_refused():
    data = data_of(frame(100))
    with pytest.raises(ArgumentError, match=r"^marginals=None: are chosen by a look .*look=0"):
        wb.fit("mixed_table", data, **arguments(privacy=wb.Privacy(look=0)))
    with pytest.raises(ArgumentError, match=r"^marginals=None"):
        wb.sweep("mixed_table", data, epsilons=[1.0, 2.0], ledger=False)
    schema = {"ill": bool, "old": bool}
    options = {"owners": ["a", "b"], "epsilon": 1.0, "num_records": 1000}
    with pytest.raises(ArgumentError, match=r"^marginals=None"):
        wb.owners.plan("mixed_table", schema=schema, **options)
    persons = frame(100).assign(person=np.arange(100) // 2)
    with pytest.raises(ArgumentError, match=r"^model='mixed_table': .* may have several rows"):
        wb.fit("mixed_table", data_of(persons, unit_id="person", max_rows=2), **arguments())


def test_a_table_of_one_column_has_nothing_to_choose():
    data = data_of(frame(300)[["ward"]], {"ward": ["a", "b", "c"]})
    prepared = wb.prepare("mixed_table", data, **arguments(execution=UNKEPT))
    assert prepared.plan.look is None
    assert prepared.spec.constants["cliques"] == [[0]]


@pytest.mark.parametrize(("columns", "levels"), [(2, 71), (41, 2)])
def test_a_table_of_too_many_cells_or_columns_is_refused(columns, levels):
    """Before: all columns were independent, and nothing said so."""
    schema = {f"c{number}": [str(level) for level in range(levels)] for number in range(columns)}
    data = data_of(pd.DataFrame(dict.fromkeys(schema, ["0", "1"] * 100)), schema)
    with pytest.raises(ArgumentError, match=r"^marginals=None: cannot be chosen") as refused:
        wb.prepare("mixed_table", data, **arguments(execution=UNKEPT))
    assert "Name them" in str(refused.value)


def test_public_facts_decide_about_the_share():
    few, many = PairScores.of((3,) * 5, 5000), PairScores.of((3,) * 20, 5000)
    terms = [(500, 0.3), (2000, 1.0), (40_000, 4.0)]
    shares = [share_for(few, size, eps, 1e-5, "add_or_remove_one") for size, eps in terms]
    assert shares[0] == 0.33 > shares[1] > shares[2] == 0.05
    assert share_for(many, 2000, 2.0, 1e-5, "add_or_remove_one") > shares[1]


# ---- the graph -----------------------------------------------------------------------------------


def test_a_forest_of_the_clearest_pairs_without_room_for_more():
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3)]
    assert marginals_of([9] * 5, pairs, [], 1000, 1.0) == [[0, 1], [1, 2], [2, 3], [4]]


def test_three_columns_are_counted_together_where_cells_have_many_records():
    pairs, others = [(0, 1), (1, 2)], [(0, 2)]
    assert marginals_of([2, 2, 2], pairs, others, 1000, 1.0) == [[0, 1, 2]]
    assert marginals_of([2, 2, 2], pairs, others, 100, 1.0) == [[0, 1], [1, 2]]


def test_pairs_that_may_be_independent_are_counted_where_it_costs_little():
    others = [(0, 2), (0, 1), (1, 2), (0, 3)]
    assert marginals_of([9] * 4, [], others, 600, 1.0) == [[0], [1], [2], [3]]
    assert marginals_of([9] * 4, [], others, 2000, 1.0) == [[0, 1], [0, 2], [0, 3]]
    assert marginals_of([2, 2, 2, 60], [(0, 1)], others, 600, 1.0) == [[0, 1, 2], [3]]


def test_pairs_of_too_many_cells_together_are_left_out():
    chosen = marginals_of([60, 60, 60, 2], [(0, 1), (1, 2), (2, 3)], [], 1e6, 1.0)
    assert chosen == [[0, 1], [2, 3]]


@pytest.mark.parametrize("seed", range(20))
def test_any_pairs_make_a_decomposable_model(seed):
    random = np.random.default_rng(seed)
    every = list(itertools.combinations(range(8), 2))
    pairs = [every[index] for index in random.permutation(len(every))[: random.integers(1, 20)]]
    others = [pair for pair in every if pair not in pairs]
    chosen = marginals_of(random.integers(2, 6, 8).tolist(), pairs, others, 50_000, 1.0)
    assert in_order(chosen) is not None
    assert {column for one in chosen for column in one} == set(range(8))
    assert max(map(len, chosen)) <= 3
    # what a pair joins is joined in the model
    for first, second in pairs:
        reached, grown = {first}, set()
        while reached != grown:
            grown = set(reached)
            reached |= {c for one in chosen if reached & {*one} for c in one}
        assert second in reached
