"""Scales and shapes that clipping biases are marked wherever a result is shown."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy.special import digamma

import workbench as wb
from workbench._validate import ArgumentError
from workbench.formula.continuous import Gamma
from workbench.privacy.gradient_norms import GradientNorms
from workbench.results.card import card
from workbench.results.clipping_bias import ClippingBias
from workbench.results.fit_result import IntervalWarning
from workbench.results.report import coefficient_rows, render, summary_rows
from workbench.widgets.workbench.result_panel import posterior_table


def norms(share, deviation=0.001):
    return GradientNorms((0.5, 1.0), (1 - share, 0.0, share), deviation, 1.0)


@pytest.fixture(scope="module")
def short(done):
    """``done`` as if it were of a regression with a shape, and groups, with made-up draws."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"cost": [1.0, 2.0] * 9, "x": [0.0, 1.0] * 9, "ward": ["a", "b"] * 9})
    schema = {"cost": (0.01, 50), "x": (0, 1), "ward": ["a", "b"]}
    model = wb.models.formula("cost ~ x + (1 | ward)", family="gamma", schema=schema)
    data = model.view(model.dataset(frame))
    facts = {name: getattr(data, name) for name in ("name", "target_bounds")} | {
        "feature_names": list(data.feature_names),
        "target": data.target_name,
        "arrays": list(data.arrays),
        "record_shapes": [list(array.shape[1:]) for array in data.train],
        "record_types": [str(array.dtype) for array in data.train],
        "schema": data.schema.to_dict(),
    }
    shapes = {"intercept": (), "weights": (1,), "shape": (), "ward_sd": (1,), "ward": (2, 1)}
    return dataclasses.replace(
        done,
        model=model.name,
        model_options=dict(model.options),
        definition=model,
        data={**done.data, "classes": [], **facts},
        constants=dict(model.constants(data)),
        coordinates=model.coordinates(data),
        draws={name: np.exp(random.normal(size=(1000, *of))) for name, of in shapes.items()},
        variational_draws={},
        released=("intercept", "weights", "shape", "ward"),
        public_records=None,
        params={},
    )


def with_norms(result, found):
    return dataclasses.replace(result, gradient_norms=found, cautions=())


@pytest.mark.parametrize(
    ("found", "mark", "reason"),
    [
        (norms(0.3), "(clipped)", "is biased by clipping, .*about 30 % of the gradients"),
        (norms(0.12, 0.03), "(clipped?)", "may be biased by clipping, .*about "),
        (norms(0.3, 0.5), "(clipped?)", "may be biased .* the noise hides how many"),
        (None, "(clipped?)", "may be biased .* nothing was released about how many"),
    ],
)
def test_marks_are_in_every_table_and_sentences_beside_them(short, found, mark, reason):
    result = with_norms(short, found)
    with pytest.warns(IntervalWarning, match=reason):
        remarks = result.summary()["remark"]
    assert set(remarks[remarks != ""].index) == {"shape", "ward_sd[Intercept]"}
    assert set(remarks) == {mark, ""}
    table = result.coefficients()
    marked = [name for name, words in table["contrast"].items() if words.endswith(f" {mark}")]
    assert marked == ["sd of Intercept by ward", "shape"]
    assert mark in str(table)
    assert result.clipping_bias.words in " ".join(str(table).split())
    assert [row[0] for row in summary_rows(result) if mark in row[0]] == [
        f"shape {mark}",
        f"ward_sd[Intercept] {mark}",
    ]
    assert sum(mark in row[1] for row in coefficient_rows(result)[1]) == 2
    for page in (posterior_table(result), card(result)):
        assert mark in page


def test_a_report_has_the_mark_and_says_what_it_means(short):
    page = render(with_norms(short, norms(0.3)))
    assert "shape (clipped)" in page
    assert "What is marked (clipped) is biased by clipping" in page
    assert "Estimates and intervals may be wrong." in page


def test_few_clipped_gradients_leave_no_mark(short):
    result = with_norms(short, norms(0.05))
    assert result.clipping_bias == ClippingBias()
    assert "remark" not in result.summary_table()
    assert not any("clipped" in words for words in result.coefficients()["contrast"])


def test_coefficients_and_fits_without_clipping_have_no_mark(short, done):
    assert with_norms(done, norms(0.9)).clipping_bias == ClippingBias()  # weights and intercept
    of_sums = {**short.settings, "estimator": "statistics"}
    assert dataclasses.replace(short, settings=of_sums).clipping_bias == ClippingBias()


@pytest.mark.parametrize("is_centred", [False, True])
def test_a_narrow_posterior_is_marked_at_a_smaller_share(short, monkeypatch, is_centred):
    """5 % of clipped gradients move a shape by some 5 %, here 5 standard deviations, unless they
    are centred.
    """
    random = np.random.default_rng(1)
    if not is_centred:
        monkeypatch.setattr(Gamma, "centres", False)
    draws = {**short.draws, "shape": 2 + 0.02 * random.normal(size=1000)}
    narrow = dataclasses.replace(with_norms(short, norms(0.05)), draws=draws)
    if is_centred:
        assert narrow.clipping_bias == ClippingBias()
        assert dict(with_norms(narrow, norms(0.2)).clipping_bias.marks)["shape"] == "(clipped)"
        return
    assert dict(narrow.clipping_bias.marks) == {"shape": "(clipped)"}
    assert not with_norms(narrow, norms(0.002, 0.0005)).clipping_bias.words
    both = dataclasses.replace(narrow, gradient_norms=norms(0.09, 0.012))
    assert dict(both.clipping_bias.marks) == {"shape": "(clipped)", "ward_sd": "(clipped?)"}
    expected = "What is marked (clipped) is and what is marked (clipped?) may be biased by clipping"
    assert both.clipping_bias.words.startswith(expected)


@pytest.mark.parametrize("spread", [0.15, 0.7])
def test_a_scale_beside_a_parameter_that_was_not_learned_is_marked(short, spread):
    """The prior of nu, Gamma(2, 0.1), has logarithms with the standard deviation 0.8."""
    random = np.random.default_rng(2)
    schema = {"cost": (0.01, 50), "x": (0, 1), "ward": ["a", "b"]}
    model = wb.models.formula("cost ~ x", family="student_t", schema=schema)
    draws = {name: short.draws[name] for name in ("intercept", "weights")} | {
        "sigma": 0.3 + 0.01 * random.normal(size=1000),
        "nu": 15 * np.exp(spread * random.normal(size=1000)),
    }
    result = dataclasses.replace(
        with_norms(short, norms(0.01)),
        model_options=dict(model.options),
        definition=model,
        draws=draws,
    )
    bias = result.clipping_bias
    if spread < 0.4:
        assert bias == ClippingBias()
        return
    assert dict(bias.marks) == {"sigma": "(by the prior)", "nu": "(by the prior)"}
    assert bias.words.endswith("nu is about as wide as the prior.")
    assert "(by the prior)" in result.coefficients().loc["sigma", "contrast"]


@pytest.mark.parametrize("clipped", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("family", ["normal", "gamma"])
def test_clipping_moves_a_scale_by_about_the_share_that_it_clips(family, clipped):
    """Where the mean clipped score of made-up records is 0, without noise or a prior."""
    random, size = np.random.default_rng(3), 40_000
    x = np.stack([np.ones(size), *random.uniform(-(3**0.5), 3**0.5, (2, size))], axis=1)
    if family == "normal":
        y, truth = random.normal(size=size), np.zeros(4)
    else:
        y, truth = random.gamma(2.0, 0.5, size), np.array([0, 0, 0, np.log(2)])

    def scores(at):
        mean, width = x @ at[:3], np.exp(at[3])
        if family == "normal":
            residual = (y - mean) / width
            return np.column_stack([x * (residual / width)[:, None], residual**2 - 1])
        ratio = y * np.exp(-mean)
        of_shape = width * (np.log(width * ratio) + 1 - ratio - digamma(width))
        return np.column_stack([x * (width * (ratio - 1))[:, None], of_shape])

    clip = np.quantile(np.linalg.norm(scores(truth), axis=1), 1 - clipped)

    def mean_clipped(at, clip):
        values = scores(at)
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        return (values * np.minimum(1, clip / lengths)).mean(axis=0)

    best, moved = (optimize.root(mean_clipped, truth, args=(c,)).x[3] for c in (np.inf, clip))
    assert 0.7 * clipped < abs(moved - best) < 1.8 * clipped


# ---- diagnostics ---------------------------------------------------------------------------------


def test_diagnostics_stand_beside_coefficients(short):
    table = short.coefficients(diagnostics=True)
    assert list(table.columns[5:]) == ["prior mean", "prior sd", "ess", "r_hat"]
    assert table[["mean", "sd"]].equals(short.coefficients()[["mean", "sd"]])
    assert np.all((table["ess"] > 20) & (table["ess"] < 3000))
    assert np.all((table["r_hat"] > 0.99) & (table["r_hat"] < 1.3))
    heading = " ".join(str(table).split())
    assert "16 Markov chains, 4 after another in each chain" in heading
    assert "Arrival:" in heading
    assert "Clipping:" in heading
    assert "ess" in table._repr_html_()


def test_the_prior_is_in_own_units(short):
    """Half-normal group deviations, a log-normal shape and normal weights (docs/families.md)."""
    prior = short.coefficients(diagnostics=True)
    assert prior.loc["shape", "prior mean"] == pytest.approx(np.exp(1 + 1.5**2 / 2), rel=0.5)
    found = prior.loc["sd of Intercept by ward", "prior mean"]
    assert found == pytest.approx(np.sqrt(2 / np.pi), rel=0.1)
    units = short.definition.linear.own_units.matrix
    assert prior.loc["x", "prior sd"] == pytest.approx(2.5 * abs(units[1, 1]), rel=0.1)


def test_whether_the_fit_had_arrived_is_kept(done, tmp_path, quick_report):
    assert done.convergence.steps == done.settings["iterations"] / 2
    for score in (done.convergence.score, np.inf):
        kept = done.convergence._replace(score=score)
        dataclasses.replace(done, convergence=kept).save(tmp_path)
        assert wb.load(tmp_path).convergence == kept


def test_rows_of_one_name_have_one_line_each(done):
    """As the levels of a categorical response may."""
    twice = {"weights": ["a"] * 30}
    table = dataclasses.replace(done, coordinates=twice, data={**done.data, "schema": None})
    assert len(table.coefficients(diagnostics=True)) == 31


def test_diagnostics_must_be_true_or_false(short):
    with pytest.raises(ArgumentError, match="diagnostics"):
        short.coefficients(diagnostics="yes")
