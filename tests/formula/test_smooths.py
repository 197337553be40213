"""Curves and monotone effects: columns, priors, and what becomes of them in a result."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from scipy import linalg, stats

import workbench as wb
from tests import fakes
from tests.conftest import shell_words
from workbench import ArgumentError
from workbench.cli import main
from workbench.formula.shapes import OneSign, scale_of
from workbench.record_model.traces import log_density

SCHEMA = {
    "y": (-8, 8),
    "x": (0, 10),
    "z": (0, 1),
    "e": ["low", "mid", "high", "top"],
    "n": (1, 4, int),
    "g": ["a", "b"],
    "ill": bool,
    "kind": ["u", "v", "w"],
}


def frame_of(rows=12):
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "y": random.normal(size=rows),
            "x": random.uniform(0, 10, rows),
            "z": random.uniform(0, 1, rows),
            "e": random.choice(SCHEMA["e"], rows),
            "n": random.integers(1, 5, rows),
            "g": random.choice(SCHEMA["g"], rows),
            "ill": random.random(rows) < 0.5,
            "kind": random.choice(SCHEMA["kind"], rows),
        }
    )


def columns_of(formula, frame, form="own"):
    design = wb.models.formula(formula, schema=SCHEMA).columns.design
    return design.block, design.block.encode(design.values(frame), form=form, dtype=np.float64)


# ---- columns -------------------------------------------------------------------------------------


def test_modes_are_those_of_the_smoothing_splines_penalty():
    """The reference: eigenvectors of the integral of f''^2, by finite differences over the beam."""
    x = np.linspace(-5 / 9, 10 + 5 / 9, 801)  # a ninth longer than the range
    bends = np.diff(np.eye(len(x)), 2, axis=0)
    values, vectors = linalg.eigh(bends.T @ bends, subset_by_index=[0, 9])
    assert values[:2] == pytest.approx([0, 0], abs=1e-12)  # the lines
    inside = (x >= 0) & (x <= 10)
    block, columns = columns_of("y ~ s(x)", pd.DataFrame({"x": x[inside]}))
    assert columns[:, 0] == pytest.approx(x[inside] - 5)
    for index in range(8):
        mode = vectors[inside, 2 + index] / np.abs(vectors[:, 2 + index]).max()
        sign = np.sign(mode @ columns[:, 1 + index])
        assert columns[:, 1 + index] == pytest.approx(sign * mode, abs=0.02)
    scales = [*block.curves["s(x)"].values()]
    assert scales == pytest.approx(np.sqrt(values[2] / values[2:]), rel=0.01)


def test_a_curve_depends_on_the_declared_range_and_its_own_row_alone():
    frame = frame_of(20)
    _, columns = columns_of("y ~ s(x, k=7)", frame, "fitted")
    assert columns.shape == (20, 6)
    assert np.abs(columns).max() <= 1
    for row in (0, 7):
        _, alone = columns_of("y ~ s(x, k=7)", frame.iloc[[row]], "fitted")
        assert np.array_equal(alone[0], columns[row])
    outside = frame.assign(x=[-5.0] + [99.0] * 19)
    _, ends = columns_of("y ~ s(x, k=7)", frame.assign(x=[0.0] + [10.0] * 19), "fitted")
    assert np.array_equal(columns_of("y ~ s(x, k=7)", outside, "fitted")[1], ends)


@pytest.mark.parametrize("k", [3, 30])
def test_the_smallest_and_the_largest_basis(k):
    frame = pd.DataFrame({"x": np.linspace(0, 10, 2001)})
    _, columns = columns_of(f"y ~ s(x, k={k})", frame, "fitted")
    assert columns.shape == (2001, k - 1)
    assert np.linalg.cond(columns) < 10


def test_a_curve_of_an_expression():
    frame = frame_of()
    block, columns = columns_of("y ~ s(log1p(x), k=4)", frame)
    assert block.names[0] == "s(log1p(x), k=4)[linear]"
    assert columns[:, 0] == pytest.approx(np.log1p(frame["x"]) - np.log(11) / 2)


def test_curves_are_fitted_as_they_are_written():
    """Columns before, which nearly say the same, do not change what a curve's prior is of."""
    model = wb.models.formula("y ~ I(x**2) + s(x)", schema=SCHEMA)
    block = model.columns.design.block
    assert not {index for curve in block.curves.values() for index in curve} & {*block.residuals}


def test_monotone_columns_say_which_levels_are_reached():
    frame = pd.DataFrame({"e": SCHEMA["e"], "n": [4, 3, 2, 1]})
    block, columns = columns_of("y ~ mo(e) + mo(n)", frame, "fitted")
    triangle = np.tril(np.ones((4, 4)))[:, 1:]
    assert np.array_equal(columns, np.hstack([triangle, triangle[::-1]]))
    assert block.names[:3] == ("mo(e)[mid]", "mo(e)[high]", "mo(e)[top]")
    assert block.contrasts()[3:] == ["2 against 1", "3 against 2", "4 against 3"]


# ---- priors --------------------------------------------------------------------------------------


FORMULAS = (
    "y ~ s(x, k=5)",
    "y ~ z + s(x, k=5) + mo(e)",
    "y ~ 0 + mo(e)",
    "y ~ s(x, k=4) + s(z, k=4) + (1 + x | g)",
)


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_density_is_that_of_the_formula_as_it_is_written(formula):
    """Up to the constant Jacobian of groups' means and contrasts; and records see all weights."""
    model, frame = wb.models.formula(formula, schema=SCHEMA), frame_of()
    block, lines = model.columns.design.block, {line.site: line.prior for line in model.lines}
    priors = {line.names[0]: line.prior for line in model.lines}
    arrays, differences = model.arrays_of(frame), []
    for seed in range(4):
        trace = handlers.trace(handlers.seed(model.model, seed)).get_trace(
            *arrays.values(), np.float32(frame["y"] / 8), num_records=len(frame)
        )
        values = {name: np.asarray(site["value"], float) for name, site in trace.items()}
        sampled = sum(
            float(log_density(site))
            for name, site in trace.items()
            if site["type"] == "sample" and name != "y"
        )
        weights, written = values["weights"], stats.halfnorm.logpdf(values["sigma"])
        if "intercept" in values:
            written += stats.norm.logpdf(values["intercept"], scale=1.0)
        for name, weight in zip(block.names, weights, strict=True):
            if name in priors:
                written += float(priors[name].log_prob(weight))
        for name, scales in block.curves.items():
            sd = values[scale_of(name)]
            written += float(lines[scale_of(name)].log_prob(sd))
            spread = sd * np.array([*scales.values()])
            written += stats.norm.logpdf(weights[[*scales]], scale=spread).sum()
        for name, places in block.monotone.items():
            steps = weights[[*places]]
            shares = np.abs(steps) / np.abs(steps).sum()
            written += float(lines[name].log_prob(steps.mean()))
            written += stats.dirichlet.logpdf(shares / shares.sum(), np.ones(len(steps)))
            # from (average, shares) to steps
            written -= np.log(len(steps)) + (len(steps) - 1) * np.log(np.abs(steps.sum()))
        for effects in model.model.groups:
            sds = values[f"{effects.name}_sd"]
            written += stats.halfnorm.logpdf(sds, scale=0.5).sum()
            written += stats.norm.logpdf(values[effects.name], scale=sds).sum()
        differences.append(sampled - written)
        mean = model.model.predictor({**values, **_effects(values, model)}, arrays)
        assert np.asarray(trace["y"]["fn"].loc) == pytest.approx(8 * np.asarray(mean), abs=3e-4)
    assert differences == pytest.approx([differences[0]] * 4, abs=5e-3)
    if not model.model.groups:
        assert differences[0] == pytest.approx(0, abs=5e-3)


def _effects(values, model):
    return {effects.name: values[effects.name] for effects in model.model.groups}


def test_steps_have_the_density_of_their_average_and_shares():
    steps = OneSign(dist.Normal(0.0, 2.0), 3)
    drawn = np.asarray(steps.sample(jax.random.key(0), (20_000,)), float)
    assert ((drawn >= 0).all(axis=1) | (drawn <= 0).all(axis=1)).all()
    average, shares = drawn.mean(axis=1), drawn / drawn.sum(axis=1, keepdims=True)
    assert stats.kstest(average, stats.norm(scale=2).cdf).pvalue > 1e-3
    assert stats.kstest(shares[:, 1], stats.beta(1, 2).cdf).pvalue > 1e-3
    # the density integrates to the share of draws in a box away from 0
    edges = [np.linspace(0.5, 1.5, 41)] * 3
    middles = np.stack(np.meshgrid(*((edge[1:] + edge[:-1]) / 2 for edge in edges)), axis=-1)
    density = np.exp(np.asarray(steps.log_prob(jnp.asarray(middles.reshape(-1, 3)))))
    inside = ((drawn > 0.5) & (drawn < 1.5)).all(axis=1).mean()
    assert density.mean() == pytest.approx(inside, rel=0.15)


def test_steps_are_a_smooth_function_of_free_numbers():
    transform = biject_to(OneSign(dist.Normal(0.0, 1.0), 4).support)
    for average in (-1.3, -1e-3, 1e-3, 2.0):
        free = jnp.array([average, 0.3, -0.7, 1.1])
        steps = transform(free)
        assert bool((steps * average > 0).all())
        assert np.asarray(transform.inv(steps)) == pytest.approx(np.asarray(free), rel=1e-3)
        jacobian = np.asarray(jax.jacfwd(transform)(free), float)
        volume = float(transform.log_abs_det_jacobian(free, steps))
        assert volume == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-3)
    nothing = jnp.zeros(4)
    prior = OneSign(dist.Normal(0.0, 1.0), 4)

    def density(free):
        steps = transform(free)
        return prior.log_prob(steps) + transform.log_abs_det_jacobian(free, steps)

    # at 0, where fits begin, the infinite density of steps cancels
    assert np.isfinite(density(nothing))
    assert np.isfinite(jax.grad(density)(nothing)).all()
    assert np.isfinite(transform.inv(transform(nothing))).all()


def test_records_use_no_scale_and_no_share():
    model = wb.models.formula("y ~ s(x, k=6) + mo(e)", schema=SCHEMA)
    step = wb.prepare(model, frame_of(60), epsilon=1.0, iterations=10, ledger=False).step
    assert set(step.model.shared) == {
        "intercept",
        "weights_of_lines",
        "s(x, k=6)",
        "mo(e)",
        "sigma",
    }
    assert step.model.shared_size == 1 + 1 + 4 + 3 + 1


def test_priors_are_of_the_scale_and_of_the_average_step():
    priors = {
        "s(x)_sd": "HalfNormal(3)",
        "mo(e)": "Normal(0, 0.1)",
        "s(x)[linear]": "Laplace(0, 1)",
    }
    model = wb.models.formula("y ~ s(x) + mo(e)", schema=SCHEMA, priors=priors)
    for name, prior in priors.items():
        assert model.priors.loc[name, "prior"] == prior
    assert [*model.priors.index] == ["Intercept", "s(x)[linear]", "s(x)_sd", "mo(e)", "sigma"]
    for name in ("s(x)", "s(x)[1]", "mo(e)[mid]"):
        with pytest.raises(ArgumentError, match=r"s\(x\)_sd") as caught:
            wb.models.formula("y ~ s(x) + mo(e)", schema=SCHEMA, priors={name: "Normal(0, 1)"})
        assert caught.value.argument == "priors"


def test_learned_ranges_keep_the_meaning_of_priors():
    """In a range that is four times as wide as a column's spread, the same curve has four times the
    slope, and 8 times the bends that a column of this spread has.
    """
    model = wb.models.formula("y ~ s(x)", schema=SCHEMA)
    assert model.learns_scales
    scale = wb.data.look.Scale(2.0, 10.0, 6.0, 1.0, 0.0)
    learned = model.with_scales({"x": scale})
    assert learned.priors.loc["s(x)[linear]", "prior"] == "Normal(0, 8)"
    assert learned.priors.loc["s(x)_sd", "prior"] == "HalfNormal(16)"
    fixed = wb.models.formula("y ~ s(x)", schema=SCHEMA, priors={"s(x)_sd": "HalfNormal(1)"})
    assert not fixed.learns_scales


@pytest.mark.parametrize("k", [3, 6, 10, 30])
def test_the_largest_gradient_counts_all_columns(k):
    schema = {**SCHEMA, "y": bool}
    model = wb.models.formula(f"y ~ s(x, k={k}) + mo(e)", "bernoulli", schema)
    frame = pd.DataFrame({"y": 0, "x": np.linspace(0, 10, 2001), "e": "top"})
    data = model.view(model.dataset(frame, evaluation_fraction=0))
    # an intercept, the columns of the curve and 3 steps
    largest = np.sqrt(1 + np.square(data.train[0]).sum(1)).max()
    assert largest <= model.advice(data, 1000, 1.0)["largest_clip"] < 1.1 * largest


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ s(x, bs='cr')", r"write s\(x, k=10\)"),
        ("y ~ s(x, z)", r"s\(x\) \+ s\(z\)"),
        ("y ~ s(x, 31)", "at most 30"),
        ("y ~ s(x, by=g)", r"C\(g\) \+ s\(x\)"),
        ("y ~ s(x, k=2)", "at least 3"),
        ("y ~ s(x, k=31)", "at most 30"),
        ("y ~ s(x):g", r"s\(x\) \+ C\(g\)"),
        ("y ~ s(x) * z", r"s\(x\) \+ C\(g\)"),
        ("y ~ x + (s(x) | g)", r"s\(x\) \+ C\(g\)"),
        ("y ~ x + (mo(e) | g)", r"mo\(e\) \+ C\(g\)"),
        ("y ~ I(s(x) + 1)", "term by itself"),
        ("y ~ s(e)", "computes with e, which is declared as categories"),
        ("y ~ t2(x, z)", r"s\(x\) \+ s\(z\)"),
        ("y ~ hsgp(x, m=10, c=1.5)", r"write s\(x, k=10\)"),
        ("y ~ gp(x)", r"write s\(x, k=10\)"),
        ("y ~ mo(x)", r"has mo\(x\), but x is declared as numbers"),
        ("y ~ mo(g)", r"three levels.*write C\(g\)"),
        ("y ~ mo(e, id='a')", r"must write mo\(e\)"),
        ("y ~ mo(log(x))", r"must name a column in mo\(\)"),
        ("kind ~ mo(e)", r"write C\(\)"),
    ],
)
def test_refusals_say_what_to_type(formula, words):
    family = "categorical" if formula.startswith("kind") else "gaussian"
    with pytest.raises(ArgumentError, match=words) as caught:
        wb.models.formula(formula, family, SCHEMA)
    assert caught.value.argument == "formula"


# ---- results -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    """A result whose draws are made up, so that the same can be computed by hand."""
    with fakes.installed():
        done = wb.fit(
            "y ~ s(x, k=5) + mo(e)", frame_of(60), schema=SCHEMA, epsilon=5.0, iterations=5, seed=1,
            ledger=False, privacy=wb.Privacy(look=0), delta=1e-4,
        )  # fmt: skip
    random = np.random.default_rng(0)
    draws = {
        name: np.exp(random.normal(-1, 0.2, (2000, *old.shape[1:])))
        if name == "sigma" or name.endswith("_sd")
        else random.normal(0.1, 0.3, (2000, *old.shape[1:]))
        for name, old in done.draws.items()
    }
    average, shares = random.normal(0.1, 0.1, 2000), random.dirichlet(np.ones(3), 2000)
    draws["weights"][:, 4:] = 3 * average[:, None] * shares
    draws = {name: np.float32(values) for name, values in draws.items()}
    done = dataclasses.replace(
        done, draws=draws, variational_draws={}, posterior_kind="noise-aware"
    )
    return done, average, shares


def test_draws_have_weights_in_the_order_of_columns(fitted):
    result, _, _ = fitted
    names = {name.split("[")[0] for name in result.summary_table().index}
    assert names == {"intercept", "weights", "s(x, k=5)_sd", "sigma"}
    assert result.draws["weights"].shape[1] == 4 + 3
    names = list(result.coordinates["weights"])
    assert names[0] == "s(x, k=5)[linear]"
    assert names[4:] == ["mo(e)[mid]", "mo(e)[high]", "mo(e)[top]"]


def test_a_table_has_steps_averages_shares_and_scales(fitted):
    result, average, shares = fitted
    table = result.coefficients()
    assert table.loc["mo(e)[top]", "contrast"] == "top against high"
    assert table.loc["mo(e)[top]", "mean"] == pytest.approx(
        8 * (3 * average * shares[:, 2]).mean(), rel=1e-4
    )
    assert table.loc["average of mo(e)", "mean"] == pytest.approx(8 * average.mean(), rel=1e-4)
    assert table.loc["share of mo(e)[high]", "mean"] == pytest.approx(shares[:, 1].mean(), rel=1e-4)
    scale = 8 * result.draws["s(x, k=5)_sd"].mean()
    assert table.loc["sd of s(x, k=5)", "mean"] == pytest.approx(scale, rel=1e-4)
    slope = 8 / 5 * result.draws["weights"][:, 0].mean()  # for 1 more of x
    assert table.loc["s(x, k=5)[linear]", "mean"] == pytest.approx(slope, rel=1e-4)


def test_effects_and_predictions_are_those_of_the_columns(fitted):
    result, _, _ = fitted
    _, columns = columns_of(
        "y ~ s(x, k=5) + mo(e)", pd.DataFrame({"x": [1.0, 4.0, 9.0], "e": "mid"}), "fitted"
    )
    draws = result.draws
    expected = 8 * (draws["intercept"][:, None] + draws["weights"] @ columns.T)
    table = result.effects("x", [1.0, 4.0, 9.0], at={"e": "mid"}).table
    assert table["mean"].to_numpy() == pytest.approx(expected.mean(axis=0), rel=1e-4)
    assert table["sd"].to_numpy() == pytest.approx(expected.std(axis=0, ddof=1), rel=1e-3)
    assert len(result.effects("x").plot().axes) > 0
    levels = result.effects("e").table["mean"].to_numpy()
    assert len(levels) == 4
    rows = frame_of(7)
    assert len(result.predict(rows)) == 7
    assert set(result.sample(given=rows, seed=1)["e"]) == set(rows["e"])


def test_a_result_comes_back_from_its_folder(fitted, tmp_path):
    result, _, _ = fitted
    result.save(tmp_path / "fit")
    loaded = wb.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(loaded.coefficients(), result.coefficients(), rtol=1e-5)
    rows = frame_of(5)
    assert loaded.predict(rows) == pytest.approx(result.predict(rows), rel=1e-5)


def test_the_shell_fits_curves_and_steps(tmp_path, capsys):
    frame_of(60).to_csv(tmp_path / "t.csv", index=False)
    declared = wb.data.Schema.from_declaration(SCHEMA).to_dict()
    (tmp_path / "schema.json").write_text(json.dumps(declared))
    with fakes.installed():
        code = main.main(
            shell_words(
                "fit --epsilon 5 --iterations 5 --formula 'y ~ s(x, k=5) + mo(e)' --data",
                tmp_path / "t.csv",
                "--schema",
                tmp_path / "schema.json",
                "--out",
                tmp_path / "out",
            )
        )
    assert code == 0
    assert "share of mo(e)[top]" in capsys.readouterr().out
    assert "sd of s(x, k=5)" in wb.load(tmp_path / "out").coefficients().index


def test_last_bends_that_are_clear_are_announced(fitted):
    result, _, _ = fitted
    model, draws = result.definition, dict(result.draws)
    assert model.doubts(draws) == []
    clear = draws["weights"].copy()
    clear[:, 3] = 1 + 0.3 * (clear[:, 3] - 0.1)
    (words,) = model.doubts(draws | {"weights": clear})
    assert "larger k" in words
    assert model.doubts({}) == []


def test_classes_have_a_curve_each():
    model = wb.models.formula("kind ~ s(x, k=4)", "categorical", SCHEMA)
    arrays = model.arrays_of(frame_of())
    trace = handlers.trace(handlers.seed(model.model, 0)).get_trace(*arrays.values())
    assert trace["weights"]["value"].shape == (3, 2)
    assert trace["s(x, k=4)_sd"]["value"].shape == (2,)
