"""Scales and shapes that clipping biases are marked wherever a result is shown."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench._validate import ArgumentError
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


def test_clipping_does_bias_the_shape_that_is_marked():
    """The score of a gamma response in its shape, clipped with that in the mean: of made-up
    records its mean is not 0 at the truth, so that no fit finds it.
    """
    from scipy.special import digamma

    random, shape = np.random.default_rng(3), 2.0
    ratio = random.gamma(shape, 1 / shape, 400_000)  # of responses to their mean
    scores = np.stack(
        [shape * (ratio - 1), shape * (np.log(shape * ratio) + 1 - ratio - digamma(shape))]
    )
    lengths = np.linalg.norm(scores, axis=0)
    clip = np.quantile(lengths, 0.7)
    bias = (scores * np.minimum(1, clip / lengths)).mean(axis=1)
    error = scores.std(axis=1) / np.sqrt(5000)  # of a mean of 5000 records
    assert np.all(np.abs(scores.mean(axis=1)) < 0.2 * error)
    assert abs(bias[1]) > 5 * error[1]


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
