"""``private=False``: the same fit without clipping and noise, which nobody can take for a private
one.
"""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy import stats

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.fitting.groups import grouped
from workbench.ledger import composition
from workbench.ledger.ledger import Ledger
from workbench.privacy.no_privacy import NoPrivacy
from workbench.results.code import code_of
from workbench.widgets.workbench.history_panel import HistoryPanel
from workbench.widgets.workbench.result_panel import guarantee_card

SCHEMA = {"x": (0, 1), "z": (-2, 2), "linear": (-6, 8), "logistic": bool, "poisson": (0, 40)}
FAMILIES = {"linear": "gaussian", "logistic": "bernoulli", "poisson": "poisson"}
OF_STATSMODELS = {
    "linear": None,
    "logistic": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
}


def made(seed, count):
    random = np.random.default_rng(seed)
    x, z = random.uniform(0, 1, count), random.uniform(-2, 2, count)
    mean = 0.5 + x - 0.5 * z
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "linear": random.normal(mean, 0.8),
            "poisson": random.poisson(np.exp(mean)),
            "logistic": random.uniform(size=count) < 1 / (1 + np.exp(-mean)),
        }
    ).astype({"logistic": int})


def fitted(kind, frame, **options):
    return wb.fit(
        f"{kind} ~ x + z",
        frame,
        family=FAMILIES[kind],
        schema=SCHEMA,
        private=False,
        **grouped(options),
    )


@pytest.fixture(scope="module")
def public():
    return wb.fit("logistic", "breast_cancer", private=False, iterations=60, seed=1)


@pytest.mark.parametrize("kind", some_of(list(FAMILIES), 3, 1))
def test_estimates_and_their_errors_are_those_of_statsmodels(kind):
    frame = made(1, 800)
    table = fitted(kind, frame, seed=1).coefficients().loc[["intercept", "x", "z"]]
    expected = smf.glm(f"{kind} ~ x + z", frame, family=OF_STATSMODELS[kind]).fit()
    # 1000 draws know a mean to 0.03 and a deviation to 0.023 of it; four of these, and the weak
    # prior
    np.testing.assert_allclose(
        table["mean"], expected.params, atol=0.15 * float(expected.bse.max())
    )
    np.testing.assert_allclose(table["sd"], expected.bse, rtol=0.12)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", FAMILIES)
def test_intervals_of_ninety_per_cent_hold_the_truth(kind):
    """False alarms: once in 1000 for each family."""
    truth, held, repetitions = np.array([0.5, 1.0, -0.5]), 0, 60
    for seed in range(repetitions):
        table = fitted(kind, made(seed, 300), seed=seed, iterations=300).coefficients()
        table = table.loc[["intercept", "x", "z"]]
        low, high = (
            table[name].to_numpy(float)
            for name in table.columns
            if re.search("%_(low|high)$", str(name))
        )
        held += int(np.sum((low <= truth) & (truth <= high)))
    low, high = stats.binom.interval(0.999, repetitions, 0.9)  # as if the three of a fit were one
    assert 3 * low <= held <= 3 * high


def test_it_says_everywhere_that_there_is_no_privacy(public):
    guarantee = public.guarantee
    assert isinstance(guarantee, NoPrivacy)
    assert (guarantee.is_private, guarantee.epsilon, guarantee.delta) == (False, math.inf, 1.0)
    assert set(guarantee.attack_bounds().values()) == {1.0}
    page = public.report()
    assert "differentially private" not in page
    assert "<title>logistic on breast_cancer, NO PRIVACY</title>" in page
    shown = [
        guarantee.headline(),
        guarantee.statement(),
        repr(public),
        public._repr_html_(),
        public.interval_words,
        page,
        public.posterior["posterior"].attrs["guarantee"],
        public.coefficients()._repr_html_(),
        str(public.coefficients()),
        guarantee_card(public, ()),
    ]
    for words in shown:
        assert "NO PRIVACY" in words
        assert not re.search(r"epsilon.{0,3} [0-9]", words)
    assert public.settings["private"] is False
    assert [public.settings[name] for name in ("epsilon", "delta", "clip", "relation")] == [
        None
    ] * 4
    assert "private=False" in code_of(public)
    assert "epsilon" not in code_of(public)
    assert "NO PRIVACY" in public.plot().axes[0].figure.get_suptitle() + "".join(
        text.get_text() for text in public.plot().findobj(lambda part: hasattr(part, "get_text"))
    )
    history = HistoryPanel()
    history.add(public)
    assert "NO PRIVACY" in history.table.value


def test_a_saved_result_is_still_one_without_privacy(public, tmp_path, quick_report):
    folder = public.save(tmp_path / "result")
    loaded = wb.load(folder)
    assert loaded.guarantee == public.guarantee
    assert "NO PRIVACY" in repr(loaded)
    facts = json.loads((folder / "result.json").read_text())["guarantee"]
    assert (facts["private"], facts["epsilon"]) == (False, None)


def test_its_records_are_labelled_by_whose_they_are(public, made_up_steps):
    assert set(public.labels.values()) == {"public data"}
    result = fitted("logistic", made(1, 100), iterations=20)
    assert set(result.labels.values()) == {"outside the guarantee"}
    assert (result.spend, result.ledger) == ("", None)
    assert Ledger().datasets() == []


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 1.0},
        {"delta": 1e-5},
        {"clip": 1.0},
        {"clip": "auto"},
        {"clipping": "automatic"},
        {"over_cap": "why"},
        {"relation": "add_or_remove_one"},
        {"ledger": "own.sqlite"},
        {"checkpoint": "folder"},
    ],
)
def test_terms_of_privacy_beside_it_are_refused(terms):
    (name,) = terms
    with pytest.raises(ArgumentError, match=rf"^{name}=.*: must be left out, .* private=False"):
        wb.fit("logistic", "breast_cancer", private=False, **grouped(terms))


def test_no_ledger_and_no_checkpoint_may_be_said_too():
    """They are what it does anyway."""
    prepared = wb.prepare(
        "logistic",
        "breast_cancer",
        private=False,
        ledger=False,
        execution=wb.Execution(checkpoint=False),
    )
    assert not prepared.plan.guarantee(
        steps_taken=0, unit="record", dimension=1, caveats=()
    ).is_private


@pytest.mark.parametrize("value", [0, None, "no", np.bool_(False)])
def test_only_false_itself_turns_privacy_off(value):
    if value is np.False_ or isinstance(value, np.bool_):
        assert wb.prepare("logistic", "breast_cancer", private=value).privacy.epsilon == math.inf
        return
    with pytest.raises(ArgumentError, match=r"^private=.*must be True or False"):
        wb.prepare("logistic", "breast_cancer", private=value, epsilon=1.0)


def test_it_cannot_be_had_by_leaving_epsilon_out_nor_in_a_sweep():
    with pytest.raises(ArgumentError, match=r"^epsilon=None: must say how much .* private=False"):
        wb.fit("logistic", "breast_cancer")
    with pytest.raises(ArgumentError, match=r"^settings='private'"):
        wb.sweep("logistic", "breast_cancer", epsilons=[1.0], private=False)


def test_records_with_a_cap_are_refused(made_up_steps):
    frame = made(1, 100)
    options = {"family": "bernoulli", "schema": SCHEMA, "iterations": 5}
    wb.fit("logistic ~ x + z", frame, epsilon=0.1, **grouped(options))
    Ledger().set_cap(1, 1.0, 1e-2, why="rules")
    for ledger in (None, False):
        with pytest.raises(
            ArgumentError, match=r"^private=False: cannot be used: the ledger has a cap"
        ):
            wb.fit("logistic ~ x + z", frame, private=False, ledger=ledger, **grouped(options))


def test_it_is_no_part_of_a_total(public):
    private = wb.prepare("logistic", "breast_cancer", epsilon=1.0).guarantee(1)
    with pytest.raises(ArgumentError, match="a fit without noise, so there is no total"):
        composition.total([private, public.guarantee])
    with pytest.raises(ArgumentError, match="no finite epsilon"):
        public.guarantee.accounted()


def test_a_model_whose_likelihood_is_no_normal_one_has_the_guides_draws(made_up_steps):
    result = wb.fit("gmm", "mixture", private=False, iterations=20)
    assert (result.posterior_kind, result.posterior_note != "") == ("variational", True)
    assert f"the guide's own ({result.posterior_note})" in result.interval_words
