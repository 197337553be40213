"""``choose``: what it runs, what it spends and what it shows."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

import workbench as wb
from tests.conftest import PRIVATE_BOUNDS
from workbench.fitting import choosing, evaluation, prepared
from workbench.fitting.choosing import ChoiceStopped, PrivateScores
from workbench.ledger.ledger import Ledger
from workbench.models import outcomes
from workbench.models.by_record import in_blocks
from workbench.models.outcomes import YesOrNo
from workbench.noise.chacha20 import new_key
from workbench.privacy.selection import Runs

CANDIDATES = {"model": ["logistic"], "learning_rate": [0.01, 0.03], "clip": [0.5, 1.0]}
FAST = {"epsilon": 1.0, "iterations": 20, "runs": 3}
SCHEMA = {"dose": (0, 200), "age": (0, 100), "ill": bool}

pytestmark = pytest.mark.usefixtures("made_up_steps")


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(5)
    dose, age = random.uniform(0, 200, 3000), random.uniform(0, 100, 3000)
    ill = random.random(3000) < 1 / (1 + np.exp((dose - 100) / 20))
    return pd.DataFrame({"dose": dose, "age": age, "ill": ill})


@pytest.fixture
def runs(monkeypatch):
    """The fits of a choice, in order, as (learning rate, clip)."""
    made = []
    run = prepared.PreparedFit.run

    def noted(self, *arguments):
        made.append((self.settings.learning_rate, self.plan.mechanism.clip))
        return run(self, *arguments)

    monkeypatch.setattr(prepared.PreparedFit, "run", noted)
    return made


def test_the_outcome_is_one_of_the_candidates_with_one_promise(private_data, runs):
    result = wb.choose(CANDIDATES, private_data, **FAST)
    guarantee = result.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-3)
    assert (result.settings["epsilon"], result.settings["delta"]) == (1.0, 1e-3)
    assert result.settings["candidates"] == len(guarantee.candidates) == 4
    number = result.settings["chosen"] - 1
    chosen = result.settings["learning_rate"], result.settings["clip"]
    assert chosen == [(0.01, 0.5), (0.01, 1.0), (0.03, 0.5), (0.03, 1.0)][number]
    assert chosen in runs
    assert guarantee.clip == chosen[1]
    (row,) = Ledger().spends()
    assert row.guarantee.epsilon == 1.0
    assert (row.status, row.model) == ("settled", "choice of logistic")
    assert row.key == result.spend
    assert Ledger().budget_status(choosing.id_of(private_data)).total.epsilon == 1.0


def test_private_scores_have_noise_an_interval_and_a_label(private_data):
    result = wb.choose(CANDIDATES, private_data, **FAST)
    assert result.metrics_label == result.labels["metrics"] == "covered"
    assert set(result.metrics) == set(result.metric_intervals) == set(YesOrNo().scores)
    for name, (low, high) in result.metric_intervals.items():
        assert low <= result.metrics[name] <= high
    assert not result.history
    assert result.public_records is None


def test_nothing_tells_how_many_fits_there_were(private_data, monkeypatch, runs, capfd):
    """Two choices whose numbers of fits differ have results of one form, and say nothing."""
    results = []
    for number in (1, 9):
        monkeypatch.setattr(Runs, "draw", lambda self, secret, number=number: number)
        results.append(wb.choose(CANDIDATES, private_data, **FAST))
        assert capfd.readouterr() == ("", "")
    assert len(runs) == 10
    assert {result.seconds for result in results} == {0}
    one, nine = (json.loads(_text(result)) for result in results)
    assert _form(one) == _form(nine)
    first, second = Ledger().spends()
    assert dataclasses.replace(first.guarantee, caveats=()) == dataclasses.replace(
        second.guarantee, caveats=()
    )


def _text(result):
    from workbench.results.storage import _encode

    return json.dumps(_encode(result), default=str)


def _form(values):
    if isinstance(values, dict):
        return {name: _form(value) for name, value in values.items() if name != "delta"}
    return [_form(value) for value in values] if isinstance(values, list) else type(values).__name__


def test_the_best_score_wins(private_data, monkeypatch, runs):
    scores = []

    def score(self, fit, key):
        scores.append((float(np.random.default_rng(len(scores)).random()), fit))
        return scores[-1][0]

    monkeypatch.setattr(Runs, "draw", lambda self, secret: 8)
    monkeypatch.setattr(PrivateScores, "score", score)
    result = wb.choose(CANDIDATES, private_data, **FAST)
    best = max(scores, key=lambda entry: entry[0])[1]
    assert result.settings["learning_rate"] == best.settings.learning_rate
    np.testing.assert_array_equal(result.params["weights_loc"], best._last.params["weights_loc"])


def test_a_fit_that_fails_loses_and_is_published_only_if_all_do(private_data, monkeypatch):
    monkeypatch.setattr(Runs, "draw", lambda self, secret: 4)
    values = iter([float("nan"), -0.5, float("nan"), -0.7])
    monkeypatch.setattr(PrivateScores, "score", lambda self, fit, key: next(values))
    assert wb.choose(CANDIDATES, private_data, **FAST).status == "done"


def test_fits_and_candidates_are_drawn_by_their_law(private_data, monkeypatch):
    """150 choices of which nothing is fitted."""
    counts, drawn = [], Counter()

    class Fit:
        is_done = True

        def run(self, stop):
            counts[-1] += 1
            return iter(())

    planned = choosing.planned(
        choosing.ChooseArguments(CANDIDATES, private_data, **{**FAST, "runs": 4})
    )
    fits = [Fit() for _ in planned.candidates]

    def fit(self, index, key):
        drawn[index] += 1
        return fits[index]

    class Ended(Exception):
        pass

    def result(self):
        raise Ended

    monkeypatch.setattr(choosing.Choice, "_fit", fit)
    monkeypatch.setattr(PrivateScores, "score", lambda *_: 0.0)
    Fit.result = result
    for _ in range(150):
        counts.append(0)
        with pytest.raises(Ended):
            planned.run(new_key(), lambda: False)
    law = planned.plan.runs.probabilities
    seen = np.bincount(counts, minlength=len(law) + 1)[1:]
    expected = 150 * law
    tail = expected.cumsum() > 140
    pooled = [np.append(values[~tail], values[tail].sum()) for values in (seen, expected)]
    assert chisquare(*pooled).pvalue > 1e-4
    assert chisquare([drawn[index] for index in range(4)]).pvalue > 1e-4


def test_a_seed_makes_it_again(private_data):
    first, second = (wb.choose(CANDIDATES, private_data, seed=4, **FAST) for _ in range(2))
    assert first.settings == second.settings
    assert first.metrics == second.metrics
    np.testing.assert_array_equal(first.params["weights_loc"], second.params["weights_loc"])
    assert "Everybody who knows the seed (4)" in first.guarantee.statement()


# ---- records -------------------------------------------------------------------------------------


def test_formulas_of_a_table_share_one_split(frame, monkeypatch):
    """Whether a row is held out does not depend on the columns of a formula."""
    kept = []

    def noted(request):
        kept.append(request.data)
        return planned_of(request)

    planned_of = choosing.fits.planned_of
    monkeypatch.setattr(choosing.fits, "planned_of", noted)
    result = wb.choose(
        ["ill ~ dose", "ill ~ age", "ill ~ dose + age"],
        frame,
        schema=SCHEMA,
        family="bernoulli",
        **FAST,
    )
    assert len({id(data) for data in kept}) == 1
    assert 0.15 < kept[0].num_evaluation / len(frame) < 0.25
    assert result.model_options["formula"] in ("ill ~ dose", "ill ~ age", "ill ~ dose + age")


def test_a_choice_counts_together_with_the_look_that_it_uses(frame):
    privacy = wb.Privacy(look=wb.look(frame, epsilon=0.5, schema=SCHEMA))
    wb.choose(["ill ~ dose"], frame, schema=SCHEMA, family="bernoulli", privacy=privacy, **FAST)
    look, choice = Ledger().spends()
    assert look.dataset != choice.dataset
    assert Ledger().budget_status(choice.dataset).total.fits == 2


def test_predictions_of_a_record_do_not_depend_on_others():
    """Not on their values, not on how many there are, and not where the model compares them."""
    data = wb.data.load("breast_cancer")

    def compared(values, x):
        return 1 / (1 + np.e ** -((x - x.mean()) @ values["weights"]))

    model = dataclasses.replace(wb.models.get("logistic"), predict=compared)
    fit = wb.prepare(model, data, epsilon=1.0, iterations=20)
    said = evaluation.predictor_of(fit.step, model, YesOrNo())
    params, key = fit.step.unconstrained(fit.state), evaluation.evaluation_key(fit.key)
    records = tuple(map(np.asarray, data.evaluation))
    made, _ = in_blocks(said, records, params, key)
    fewer = tuple(array[:50] for array in records)
    np.testing.assert_array_equal(in_blocks(said, fewer, params, key)[0], made[:50], strict=True)
    changed = tuple(np.concatenate([array[:50], 0 * array[50:]]) for array in records)
    np.testing.assert_array_equal(
        in_blocks(said, changed, params, key)[0][:50], made[:50], strict=True
    )


def test_a_score_that_a_model_does_not_have_is_refused(frame):
    table = wb.Table(evaluation_is_public=True)
    schema = {"dose": (0, 200), "age": (0, 100)}
    arguments = {"schema": schema, "table": table, **FAST}
    wb.choose(["age ~ dose"], frame, **arguments)
    for by in ("auc", "accuracy"):
        with pytest.raises(wb.ArgumentError, match="is no score of the model") as refused:
            wb.choose(["age ~ dose"], frame, by=by, **arguments)
        assert refused.value.argument == "by"
    assert len(Ledger().spends()) == 1


def test_public_records_cost_nothing_and_give_exact_scores():
    result = wb.choose(CANDIDATES, "breast_cancer", by="auc", **FAST)
    assert result.metrics_label == "public data"
    assert result.guarantee.score_noise == 0
    assert result.metrics["auc"] == result.history[-1].metrics["auc"]
    assert result.metric_intervals == {}
    assert not Ledger().spends()


@pytest.mark.parametrize(
    ("argument", "more"),
    [
        ("candidates", {"candidates": []}),
        ("candidates", {"candidates": "logistic"}),
        ("candidates", {"candidates": [{"clip": 1.0}]}),
        ("candidates", {"candidates": [{"model": "logistic", "epsilon": 3.0}]}),
        ("candidates", {"candidates": [{"model": "logistic", "sampler": "shuffle"}]}),
        ("candidates", {"candidates": [{"model": "logistic", "clipp": 3.0}]}),
        ("candidates", {"candidates": [{"model": "logistic", "private": False}]}),
        ("candidates", {"candidates": [{"model": "logistic", "evaluate_private": True}]}),
        ("candidates", {"candidates": [{"model": "logistic", "on_snapshot": print}]}),
        ("candidates", {"candidates": ["gmm"]}),
        ("candidates", {"candidates": [{"model": "logistic", "ledger": False}]}),
        ("candidates", {"candidates": [{"model": "logistic", "stop": lambda: True}]}),
        ("candidates", {"candidates": [{"model": "logistic", "unit": "visit"}]}),
        ("clip", {"candidates": [{"model": "logistic", "clip": -1.0}]}),
        ("model", {"candidates": ["logistics"]}),
        ("runs", {"runs": 1}),
        ("runs", {"runs": 1e9}),
        ("by", {"by": "elbo"}),
        ("epsilon", {"epsilon": 0}),
        ("epsilon", {"epsilon": 60}),
        ("progress", {"execution": wb.Execution(progress=True)}),
        ("sampler", {"privacy": wb.Privacy(sampler="shuffle")}),
        ("evaluate_private", {"privacy": wb.Privacy(evaluate_private=True)}),
    ],
)
def test_what_cannot_be_chosen_is_refused_before_anything_is_spent(argument, more, private_data):
    arguments = {"candidates": CANDIDATES, **FAST, **more}
    with pytest.raises(wb.ArgumentError) as refused:
        wb.choose(arguments.pop("candidates"), private_data, **arguments)
    assert refused.value.argument == argument
    assert not Ledger().spends()


def test_records_without_others_to_compare_by_are_refused(private_frame):
    whole = wb.data.from_frame(
        private_frame, target="ill", bounds=PRIVATE_BOUNDS, evaluation_fraction=0.0
    )
    with pytest.raises(wb.ArgumentError, match="no evaluation records"):
        wb.choose(CANDIDATES, whole, **FAST)
    with pytest.raises(wb.ArgumentError, match="schema"):
        wb.choose(["ill ~ dose"], private_frame, family="bernoulli", **FAST)


def test_a_person_with_several_rows_counts_once_in_a_score(private_frame, monkeypatch):
    persons = private_frame.assign(person=np.arange(240) // 2)
    of_persons = wb.data.from_frame(
        persons, target="ill", bounds=PRIVATE_BOUNDS, unit_id="person", max_rows=2
    )
    read = []
    release = outcomes.covered_scores

    def noted(target, probability, key, **more):
        read.append((len(target), more["rows"]))
        return release(target, probability, key, **more)

    monkeypatch.setattr(outcomes, "covered_scores", noted)
    result = wb.choose(CANDIDATES, of_persons, **FAST)
    assert result.guarantee.unit == "person"
    for size, rows in read:
        assert size == rows.sum() == of_persons.num_evaluation
        assert set(rows) <= {1, 2}


# ---- a choice that does not end ------------------------------------------------------------------


def test_a_stopped_choice_shows_nothing_and_goes_on_with_its_key(private_data, monkeypatch):
    keys, shown = [], []
    run = choosing.Choice.run

    def noted(self, key, stop):
        keys.append(np.asarray(choosing.jax.random.key_data(key)).tobytes())
        return run(self, key, stop)

    monkeypatch.setattr(choosing.Choice, "run", noted)
    stop = wb.Execution(stop=lambda: True)
    for _ in range(2):
        with pytest.raises(ChoiceStopped) as stopped:
            shown.append(wb.choose(CANDIDATES, private_data, execution=stop, **FAST))
        assert "same call" in str(stopped.value)
    assert Ledger().spends()[0].counted > 0
    wb.choose(CANDIDATES, private_data, **FAST)
    assert not shown
    assert len({*keys}) == 1
    (row,) = Ledger().spends()
    assert row.status == "settled"
    wb.choose(CANDIDATES, private_data, **FAST)  # after its end it is another one
    assert len({*keys}) == 2
    assert len(Ledger().spends()) == 2


def test_the_caution_is_about_the_delta_of_the_whole_choice(private_data):
    with pytest.warns(choosing.fits.DeltaWarning, match=r"delta=0\.01 is not below 1/N"):
        wb.choose(CANDIDATES, private_data, delta=0.01, **FAST)


def test_other_candidates_are_another_choice(private_data):
    with pytest.raises(ChoiceStopped):
        wb.choose(CANDIDATES, private_data, execution=wb.Execution(stop=lambda: True), **FAST)
    wb.choose(CANDIDATES, private_data, by="auc", **FAST)
    wb.choose(CANDIDATES, private_data, training=wb.Training(draws=5), **FAST)
    assert len(Ledger().spends()) == 3


@pytest.mark.parametrize("more", [{}, {"ledger": False}])
def test_a_choice_that_goes_on_is_not_made_a_second_time(private_data, monkeypatch, more):
    """Two outcomes of one key would have the same noise."""
    run, refused = choosing.Choice.run, []

    def during(self, key, stop):
        if not refused:
            refused.append(None)
            with pytest.raises(wb.ArgumentError, match="made now") as error:
                wb.choose(CANDIDATES, private_data, **FAST, **more)
            refused.append(error.value.argument)
        return run(self, key, stop)

    monkeypatch.setattr(choosing.Choice, "run", during)
    wb.choose(CANDIDATES, private_data, **FAST)
    assert refused[1:] == ["checkpoint"]


def test_a_call_is_recognised_in_another_process():
    """Where functions are at other addresses."""
    model = wb.models.get("logistic")
    assert "function" in choosing._recognised({"model": model})
    assert "0x" not in choosing._recognised({"model": model, "check": lambda: 3})


def test_a_key_that_was_half_written_is_no_key(private_data, monkeypatch):
    stop = wb.Execution(stop=lambda: True)
    with pytest.raises(ChoiceStopped):
        wb.choose(CANDIDATES, private_data, execution=stop, **FAST)
    (folder,) = (Path(os.environ["WORKBENCH_STATE"]) / "choices").iterdir()
    (folder / choosing._STATE).rename(folder / f".{choosing._STATE}.partial")
    wb.choose(CANDIDATES, private_data, **FAST)
    assert not folder.exists()


def test_where_no_key_can_be_kept_nothing_is_spent(private_data, tmp_path):
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(wb.ArgumentError, match="nothing was drawn"):
        wb.choose(CANDIDATES, private_data, execution=wb.Execution(checkpoint=taken), **FAST)
    assert [row.counted for row in Ledger().spends()] == [0]


def test_the_same_models_are_the_same_choice_in_another_process(private_data):
    """Whose functions are at other addresses."""
    for _ in range(2):
        models = [wb.models.get("logistic", prior_scale=scale) for scale in (1.0, 2.0)]
        with pytest.raises(ChoiceStopped):
            wb.choose(models, private_data, execution=wb.Execution(stop=lambda: True), **FAST)
    assert len(Ledger().spends()) == 1


def test_a_folder_of_another_choice_is_refused(private_data, tmp_path):
    folder = tmp_path / "mine"
    stop = wb.Execution(checkpoint=folder, stop=lambda: True)
    with pytest.raises(ChoiceStopped):
        wb.choose(CANDIDATES, private_data, execution=stop, **FAST)
    with pytest.raises(wb.ArgumentError, match="another choice"):
        wb.choose(CANDIDATES, private_data, by="auc", execution=stop, **FAST)
    with pytest.raises(wb.ArgumentError, match="of a choice"):
        wb.resume(folder)
    assert wb.forget(folder).counted > 0  # given up, and paid for
    assert not folder.exists()


def test_a_folder_of_a_finished_fit_is_refused_before_anything_is_spent(private_data, tmp_path):
    mine = wb.Execution(checkpoint=tmp_path / "mine")
    wb.fit("logistic", private_data, epsilon=1.0, iterations=20, execution=mine)
    with pytest.raises(wb.ArgumentError, match="of a fit"):
        wb.choose(CANDIDATES, private_data, execution=mine, **FAST)
    assert len(Ledger().spends()) == 1


def test_the_key_is_gone_before_anything_is_seen(private_data, monkeypatch):
    folders = []
    settle = choosing.Reservation.settle

    def noted(self, taken, key=None):
        if self.ledger is not None:
            folders.append(list((Path(os.environ["WORKBENCH_STATE"]) / "choices").glob("*")))
        return settle(self, taken, key)

    monkeypatch.setattr(choosing.Reservation, "settle", noted)
    wb.choose(CANDIDATES, private_data, **FAST)
    assert folders == [[]]


KILLED = """
import sys, time
import numpy as np, pandas as pd
import workbench as wb
from workbench.fitting import choosing
random = np.random.default_rng(3)
dose = random.uniform(0, 200, 400)
ill = random.random(400) < 1 / (1 + np.exp((dose - 100) / 20))
frame = pd.DataFrame({"dose": dose, "ill": ill})
run = choosing.Choice.run
def noted(self, key, stop):
    print(np.asarray(choosing.jax.random.key_data(key)).tobytes().hex(), flush=True)
    if "slow" in sys.argv:
        time.sleep(100)
    return run(self, key, stop)
choosing.Choice.run = noted
schema = {"dose": (0, 200), "ill": bool}
result = wb.choose(["ill ~ dose", "ill ~ 1"], frame, schema=schema, family="bernoulli", epsilon=1.0,
                   iterations=20, runs=2)
print(result.spend)
"""


@pytest.mark.integration
def test_a_killed_choice_is_paid_once_and_draws_nothing_anew(tmp_path):
    script, environment = tmp_path / "choose.py", {**os.environ, "WORKBENCH_STATE": str(tmp_path)}
    script.write_text(KILLED)
    command = [sys.executable, script]
    slow = [*command, "slow"]
    with subprocess.Popen(slow, stdout=subprocess.PIPE, env=environment, text=True) as child:
        key = child.stdout.readline().strip()
        child.send_signal(signal.SIGKILL)
    answer = subprocess.run(command, capture_output=True, env=environment, text=True, check=True)
    assert answer.stdout.split()[0] == key
    (row,) = Ledger(tmp_path / "ledger.sqlite").spends()
    assert row.key == answer.stdout.split()[1]
    assert row.status == "settled"
    again = subprocess.run(command, capture_output=True, env=environment, text=True, check=True)
    assert again.stdout.split()[0] != key


# ---- an attack on the code that chooses ----------------------------------------------------------


class Published(Exception):
    """Ends a choice with the outcome that it would publish."""


class Noised:
    """A fit that is one noised number, whose score is that number."""

    is_done = True

    def __init__(self, value):
        self.value = value

    def run(self, stop):
        return iter(())

    def result(self):
        raise Published(self.value)


def published(choice, shift, trials, generator, monkeypatch):
    """What ``trials`` choices publish, with ``shift`` in every fit."""
    monkeypatch.setattr(choosing, "child_key", lambda key, purpose: key)
    monkeypatch.setattr(choosing.key_use, "throw_away", lambda key: None)
    monkeypatch.setattr(
        choosing, "stream", lambda key, number, count: generator.integers(2**32, size=count)
    )
    monkeypatch.setattr(
        choosing.Choice, "_fit", lambda *_: Noised(generator.standard_normal() + shift)
    )
    monkeypatch.setattr(PrivateScores, "score", lambda self, fit, key: fit.value)
    outcomes = []
    for _ in range(trials):
        with pytest.raises(Published) as ended:
            choice.run(None, lambda: False)
        outcomes.append(ended.value.args[0])
    return np.array(outcomes)


@pytest.mark.statistical
@pytest.mark.parametrize(("mean", "fixed"), [(5, None), (20, None), (20, 20)])
def test_an_attack_by_scores_stays_below_the_claim_unless_k_is_fixed(
    mean, fixed, private_data, monkeypatch
):
    """The score of a fit is the likelihood ratio of a canary. What is published is seldom small
    where the canary is in the data, and a fixed number of fits makes that too certain.

    The choice keeps its claim if it fails once in 3 million times; the planted K breaks it.
    """
    claim = {"epsilon": 1.0, "delta": 1e-3}
    runs, trials = Runs.of_mean(mean), 60_000
    sigma = wb.privacy.noise_multiplier(sampling_rate=1.0, steps=1, runs=runs, **claim)
    choice = choosing.planned(
        choosing.ChooseArguments(CANDIDATES, private_data, epsilon=1.0, iterations=20, runs=mean)
    )
    if fixed:
        monkeypatch.setattr(Runs, "draw", lambda self, secret: fixed)
    generator = np.random.default_rng(mean)
    absent, present = (
        published(choice, shift, trials, generator, monkeypatch) for shift in (0, 1 / sigma)
    )
    excesses = []
    for threshold in np.linspace(-1, 3, 41):
        for event in (np.less, np.greater):
            first, second = (event(seen, threshold).mean() for seen in (absent, present))
            for larger, smaller in ((first, second), (second, first)):
                spread = np.sqrt((larger + np.e**2 * smaller + 1 / trials) / trials)
                excesses.append((larger - np.e * smaller - claim["delta"]) / spread)
    assert bool(max(excesses) > 5) is (fixed is not None)
