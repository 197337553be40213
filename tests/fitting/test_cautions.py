"""An answer that cannot be trusted says so first, wherever it is shown."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from numpyro import distributions as dist

import workbench as wb
from workbench.fitting.groups import grouped
from workbench.results.fit_result import IntervalWarning
from workbench.widgets.workbench import result_panel

# fits of which only the number of steps is asked make them up
pytestmark = pytest.mark.usefixtures("made_up_steps")
# of counts; a look would have the steps traced a second time
PLAN = {"epsilon": 8.0, "seed": 1, "ledger": False, "privacy": wb.Privacy(look=0.0)}


@pytest.fixture(scope="module")
def moving():
    """Takes the programs of ``done``."""
    return wb.fit(
        "logistic", "breast_cancer", epsilon=1.0, iterations=300, seed=1, learning_rate=1e-5
    )


@pytest.mark.whole_fit
def test_a_fit_by_default_has_none(done):
    assert (done.posterior_kind, done.cautions, done.interval_warning) == ("noise-aware", (), "")


def test_a_tiny_learning_rate_is_a_fit_that_was_still_moving(moving):
    assert moving.posterior_kind == "noise-aware"
    assert moving.cautions[0].startswith("The fit was still moving when it ended")
    assert moving.posterior_note.startswith(moving.cautions[0])


def test_every_place_shows_them_before_the_numbers(moving, tmp_path):
    first = moving.cautions[0]
    with pytest.warns(IntervalWarning, match="was still moving"):
        moving.summary()
    assert moving.coefficients().note.startswith(first)
    page = moving.report()
    assert 0 < page.index("was still moving") < page.index("Posterior mean")
    assert "was still moving" in moving._repr_html_()
    panel = result_panel.ResultPanel()
    panel.show(moving, None, ())
    assert "was still moving" in panel.warnings.value  # which stands above the numbers
    assert "was still moving" in result_panel.posterior_table(moving)
    moving.save(tmp_path)
    assert wb.load(tmp_path).cautions == moving.cautions
    assert dataclasses.replace(moving, cautions=()).interval_warning == ""


@pytest.mark.whole_fit
def test_thirty_steps_are_too_few_to_tell_and_the_command_says_so(command, tmp_path, quick_report):
    words = "fit --model logistic --data breast_cancer --epsilon 2 --iterations 30 --quiet --out"
    code, shown, problem = command(words, tmp_path / "run")
    assert code == 0, problem
    assert "\nCaution: Only 15 steps" in shown
    assert wb.load(tmp_path / "run").cautions[0].startswith("Only 15 steps")


@pytest.fixture(scope="module")
def counts():
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, 2000)
    frame = pd.DataFrame({"y": random.poisson(np.exp(1.0 + 0.5 * x)), "x": x})
    model = wb.models.formula("y ~ x", "poisson", {"y": (0, 25), "x": (-1, 1)})
    return model, model.dataset(frame, evaluation=False)


@pytest.mark.whole_fit
def test_clipping_bias_has_a_caution_and_adapting_c_by_default_has_neither(counts):
    """A gradient of counts has no bound; the standard deviation of the intercept is .014 without
    privacy.
    """
    model, data = counts
    plain = model.advice(model.view(data), 2000, 8.0)["clip"]
    fixed = wb.fit(model, data, clip=plain / 2, **PLAN)
    assert "Clipping may have moved some estimates by up to" in fixed.posterior_note
    assert 'Use clip="auto" or a larger clip' in fixed.coefficients().note
    assert abs(fixed.coefficients().loc["intercept", "mean"] - 1.0) > 0.05
    adapted = wb.fit(model, data, **PLAN)
    assert adapted.guarantee.adapts_clip
    assert adapted.gradient_norms.clip > plain
    (caution,) = adapted.cautions
    assert caution.startswith("Without a look the declared bounds stand for")
    assert abs(adapted.coefficients().loc["intercept", "mean"] - 1.0) < 0.05


def test_thirty_steps_that_are_not_averaged_have_a_caution(counts):
    model, data = counts
    result = wb.fit(model, data, **PLAN, **grouped({"average": False, "iterations": 30}))
    assert result.cautions[0].startswith("The fit took only 30 steps")


@pytest.mark.whole_fit
def test_a_large_learning_rate_has_a_caution_and_so_have_quantities_without_a_spread(counts):
    """Iterates that leapt away: the guide's scales became 0."""
    model, data = counts
    result = wb.fit(model, data, **PLAN, learning_rate=20.0)
    words = "A learning rate of 20 moves each parameter by about 20 in a step"
    assert result.cautions[0].startswith(words)
    spreads = [np.std(result.draws[name], axis=0).min() for name in result.released]
    assert min(spreads) > 0 or any(
        words.startswith("Some quantities have no spread") for words in result.cautions
    )


def test_intervals_of_groups_have_a_caution():
    """Where they were measured to be wrong: of the residuals' scale, and of effects whose mean is
    not apart from another quantity.
    """
    schema = {"y": (0, 1), "g": ["a", "b"], "h": ["c", "d"]}
    for formula in ("y ~ 0 + (1 | g)", "y ~ (1 | g / h)"):
        caution, of_sigma = wb.models.formula(formula, "gaussian", schema).cautions
        assert "may be several times too narrow" in caution
        assert "estimates of sigma may be off" in of_sigma
    (caution,) = wb.models.formula("y ~ (1 | g)", "gaussian", schema).cautions
    assert caution == of_sigma


def stays(**bounds):
    random = np.random.default_rng(0)
    table = {"age": random.integers(18, 95, 60), "stay": random.gamma(2, 3, 60)}
    frame = pd.DataFrame(table | {"ill": random.random(60) < 0.5})
    return wb.data.from_frame(
        frame, target="ill", bounds={"age": (0, 120), **bounds}, evaluation=False, name="stays"
    )


def test_a_column_without_a_visible_scale_is_said_of_models_of_the_gallery():
    """As of formulas: most of its values are the same, so its declared bounds stand for a scale."""
    random = np.random.default_rng(0)
    table = {"age": random.uniform(0, 90, 4000), "rare": 5.0 * (random.random(4000) < 0.03)}
    frame = pd.DataFrame({**table, "ill": random.random(4000) < 0.5})
    schema = {"age": (0, 120), "rare": (0, 365)}
    data = wb.data.from_frame(frame, target="ill", schema=schema, evaluation=False)
    result = wb.fit("logistic", data, epsilon=2.0, iterations=20, seed=1, ledger=False)
    assert "age" in result.data["scales"]
    (said,) = [words for words in result.cautions if words.startswith("No scale of rare showed")]
    assert "0 to 365 stands for it" in said


def own_logistic(x, y=None, num_records=None):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(2), 1).to_event(1))
    with numpyro.plate("records", num_records or len(x), dim=-1):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (own_logistic, {}, "because this fit did not look at them"),
        (own_logistic, {"look": 0.2}, ""),
        ("logistic", {"look": 0.0}, "Without a look the declared bounds stand"),
        ("logistic", {"epsilon": 1.0, "delta": 1e-3}, "too few records for this epsilon"),
        ("logistic", {}, ""),
    ],
)
def test_declared_bounds_that_stand_for_a_spread_are_said(model, options, words):
    """Where a stay of 6 days is declared as 0 to 365, its effect is drawn towards 0."""
    common = {"epsilon": 50.0, "iterations": 40, "seed": 1, "ledger": False}
    privacy = {"privacy": wb.Privacy(look=options["look"])} if "look" in options else {}
    plain = {name: value for name, value in options.items() if name != "look"}
    result = wb.fit(model, stays(stay=(0, 365)), **{**common, **plain}, **privacy)
    said = [caution for caution in result.cautions if "declared bounds" in caution]
    assert len(said) == bool(words)
    assert all(words in caution for caution in said)


@pytest.mark.whole_fit
@pytest.mark.parametrize(("records", "words"), [(1500, "Nearly all gradients"), (6000, None)])
def test_clusters_of_different_widths_have_their_shares_or_a_caution(records, words):
    """Of a narrow cluster with four fifths of the records and a wide one. C of few records is
    fixed, and clips nearly all gradients.
    """
    random = np.random.default_rng(0)
    is_narrow = random.random((records, 1)) < 0.8
    apart = random.normal(size=(records, 2))
    values = np.where(is_narrow, 40 + 4 * apart, 70 + 12 * apart).clip(0, 100)
    table = pd.DataFrame(values, columns=["a", "b"])
    bounds = {"a": (0, 100), "b": (0, 100)}
    data = wb.data.from_frame(table, schema=bounds, evaluation=False)
    mixture = wb.models.get("gmm", num_components=2)
    result = wb.fit(mixture, data, epsilon=1, seed=0, ledger=False)
    if words is None:
        assert abs(result.draws["weights"].mean(axis=0).max() - 0.8) < 0.06
    assert [caution[:20] for caution in result.cautions] == ([] if words is None else [words])
