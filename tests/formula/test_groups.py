"""Effects of groups: what is sampled is the model as it is written, and groups that were not
declared have effects of their own.
"""

import dataclasses

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers

import workbench as wb
from tests import fakes
from workbench import ArgumentError
from workbench.formula.regression import sites_of
from workbench.record_model.traces import log_density

SCHEMA = {
    "y": (-8, 8),
    "x": (0, 10),
    "z": (0, 1),
    "g": ["a", "b", "c"],
    "h": ["u", "v"],
    "k": (1, 4, int),
}
FORMULAS = (
    "y ~ x + (1 | g)",
    "y ~ x + (1 + x | g) + (1 | h)",
    "y ~ 0 + x + (0 + x | g)",
    "y ~ 0 + h + (0 + h | g)",
    "y ~ x + I(x**2) + (1 + x | g)",
    "y ~ (1 | g / h)",
)


def frame_of(rows=12):
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "y": random.normal(size=rows),
            "x": random.uniform(0, 10, rows),
            "z": random.uniform(0, 1, rows),
            "g": random.choice(list("abc"), rows),
            "h": random.choice(list("uv"), rows),
            "k": random.integers(1, 5, rows),
        }
    )


def traced(model, seed, frame):
    arrays = model.arrays_of(frame)
    target = np.float32(frame["y"].to_numpy() / 8)
    return arrays, handlers.trace(handlers.seed(model.model, seed)).get_trace(
        *arrays.values(), target, num_records=len(frame)
    )


@pytest.mark.parametrize("formula", FORMULAS)
def test_means_and_contrasts_are_the_model_as_it_is_written(formula):
    """Their density is that of intercept, weights and effects, up to the constant Jacobian, and
    records have the same likelihood.
    """
    model, frame = wb.models.formula(formula, schema=SCHEMA), frame_of()
    regression, differences = model.model, []
    assert set(regression.shared) == {effects.name for effects in regression.groups}
    for seed in range(4):
        arrays, trace = traced(model, seed, frame)
        values = {name: site["value"] for name, site in trace.items()}
        sampled = sum(
            log_density(site)
            for name, site in trace.items()
            if site["type"] == "sample" and name != "y"
        )
        written = dist.HalfNormal(1.0).log_prob(values["sigma"])
        if "intercept" in values:
            written += regression.intercept.log_prob(values["intercept"])
        for weight, prior in zip(values.get("weights", []), regression.weights, strict=False):
            written += prior.log_prob(weight)
        for effects in regression.groups:
            sd = values[f"{effects.name}_sd"]
            written += sum(
                prior.log_prob(one)
                for prior, one in zip(regression.sds[effects.name], sd, strict=True)
            )
            written += dist.Normal(0, sd).log_prob(values[effects.name]).sum()
        differences.append(float(sampled - written))
        mean = np.asarray(regression.predictor(values, arrays))
        assert np.asarray(trace["y"]["fn"].loc) == pytest.approx(8 * mean, abs=2e-4)
    assert differences == pytest.approx([differences[0]] * 4, abs=1e-3)


def test_terms_whose_columns_are_not_among_the_others_stay_whole():
    for formula in ("y ~ 0 + x + (1 + x | g)", "y ~ z + (1 + x | g)"):
        model = wb.models.formula(formula, schema=SCHEMA)
        assert not model.model.shared
        _, trace = traced(model, 0, frame_of())
        assert trace["g"]["type"] == "sample"
        assert trace["g"]["value"].shape == (3, 2)


def test_contrasts_between_hundreds_of_groups_would_take_too_long():
    levels = {number: [f"m{each}" for each in range(number)] for number in (200, 201)}
    is_split = [
        bool(wb.models.formula("y ~ (1 | m)", schema={**SCHEMA, "m": names}).model.shared)
        for names in levels.values()
    ]
    assert is_split == [True, False]


def test_records_use_no_mean_and_no_deviation():
    """So noise is added to neither, and the likelihood is flat in no direction."""
    model = wb.models.formula("y ~ x + (1 + x | g)", schema=SCHEMA)
    step = wb.prepare(model, frame_of(60), epsilon=1.0, iterations=10, ledger=False).step
    mean, contrasts = sites_of("g")
    assert set(step.model.shared) == {contrasts, "mean_intercept", "mean_weights", "sigma"}
    assert mean not in step.model.shared
    assert step.model.shared_size == 2 * 2 + 3


def test_the_largest_gradient_counts_effects_of_groups():
    schema = {**SCHEMA, "y": bool}
    model = wb.models.formula("y ~ x + (1 + x | g) + (1 | h)", "bernoulli", schema)
    frame = frame_of().assign(y=[0, 1] * 6, x=10.0)
    data = model.view(model.dataset(frame, evaluation_fraction=0))
    largest = model.advice(data, 1000, 1.0)["largest_clip"]
    assert largest == pytest.approx(5**0.5)  # 1 and x, of the formula and of g, and 1 of h

    def gradient(values, row):
        def log_density_of(values):
            arrays = dict(
                zip(model.arrays, (array[row : row + 1] for array in data.train), strict=True)
            )
            substituted = handlers.substitute(model.model, data=values)
            trace = handlers.trace(handlers.seed(substituted, 0)).get_trace(*arrays.values())
            return trace["y"]["fn"].log_prob(arrays["y"]).sum()

        return jax.grad(log_density_of)(values)

    released = {
        "mean_intercept": np.float32(40.0),
        "mean_weights": np.zeros(1, np.float32),
        "g_contrasts": np.zeros((2, 2), np.float32),
        "h_contrasts": np.zeros((1, 1), np.float32),
    }
    norms = [
        np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(gradient(released, row))))
        for row in range(len(frame))
    ]
    assert max(norms) <= largest
    assert max(norms) > 0.85 * largest


def test_cautions_say_which_intervals_are_not_right():
    schema = {**SCHEMA, "y": bool, "m": [f"m{number}" for number in range(105)]}
    cautions = {
        formula: " ".join(wb.models.formula(formula, "bernoulli", schema).cautions)
        for formula in (*FORMULAS, "y ~ z + (1 + x | g)", "y ~ (1 | m)")
    }
    assert [bool(words) for words in cautions.values()] == [False] * 5 + [True] * 3
    assert "effects of g:h " in cautions["y ~ (1 | g / h)"]
    assert "effects of g " in cautions["y ~ z + (1 + x | g)"]
    assert "more than 100 quantities" in cautions["y ~ (1 | m)"]
    assert "sigma" in " ".join(wb.models.formula("y ~ x + (1 | g)", schema=SCHEMA).cautions)
    assert not wb.models.formula("y ~ x", schema=SCHEMA).cautions


# ---- groups that were not declared ---------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    """Results whose draws are made up, so that the same can be computed by hand."""
    kept = {}

    def of(formula):
        if formula not in kept:
            with fakes.installed():
                done = wb.fit(
                    formula, frame_of(60), schema=SCHEMA, epsilon=5.0, iterations=5, seed=1,
                    ledger=False, privacy=wb.Privacy(look=0), delta=1e-4,
                )  # fmt: skip
            random = np.random.default_rng(0)
            draws = {
                name: np.exp(random.normal(-1, 0.2, (4000, *old.shape[1:])))
                if name == "sigma" or name.endswith("_sd")
                else random.normal(0.1, 0.3, (4000, *old.shape[1:]))
                for name, old in done.draws.items()
            }
            kept[formula] = dataclasses.replace(
                done, draws=draws, variational_draws={}, posterior_kind="noise-aware"
            )
        return kept[formula]

    return of


ROW = {"x": 7.5, "z": 0.5, "g": "a", "h": "u", "k": 1}


def test_a_group_that_was_not_declared_is_refused_with_what_to_type(fitted):
    result = fitted("y ~ x + (1 | g)")
    for group in ("new", None):
        frame = pd.DataFrame([ROW | {"g": group}])
        for use in (result.predict, result.intervals, lambda table: result.sample(given=table)):
            with pytest.raises(ArgumentError, match="new_groups=True") as caught:
                use(frame)
            assert caught.value.argument == "g"
    with pytest.raises(ArgumentError, match="new_groups=True"):
        result.effects("x", at={"g": "new"})


def test_a_new_group_has_effects_of_the_learned_deviation(fitted):
    result = fitted("y ~ x + (1 + x | g)")
    frame = pd.DataFrame([ROW, ROW | {"g": "new"}, ROW | {"g": "new", "x": 5.0}, ROW | {"g": "w"}])
    draws, x = result.draws, 0.5  # 7.5 of 0 to 10, scaled
    table = result.intervals(frame, new_groups=True)
    base = draws["intercept"] + draws["weights"][:, 0] * x
    expected = 8 * base.std()
    spread = 8 * np.sqrt(base.var() + np.mean(draws["g_sd"] ** 2 @ [1, x**2]))
    own = base + draws["g"][:, 0] @ np.array([1, x])
    assert table["mean"].iloc[0] == pytest.approx(8 * own.mean(), rel=1e-3)
    assert table["sd"].iloc[[1, 3]].to_numpy() == pytest.approx([spread, spread], rel=0.05)
    assert spread > 1.5 * expected
    means = result.predict(frame, new_groups=True)
    assert len(set(means.round(6))) == 4
    # a group is the same in any table, and rows of it have the same effects
    again = result.predict(frame.iloc[[2, 1, 0]], new_groups=True)
    assert again == pytest.approx(means[[2, 1, 0]], rel=1e-5)
    drawn = result.sample(given=pd.concat([frame.iloc[[1]]] * 3000), seed=1, new_groups=True)
    random = np.random.default_rng(2)
    eta = base + draws["g_sd"] * random.normal(size=(4000, 2)) @ np.array([1, x])
    by_hand = np.clip(8 * random.normal(eta, draws["sigma"]), -8, 8)  # as a record is cut
    assert drawn["y"].std() == pytest.approx(by_hand.std(), rel=0.06)
    assert set(drawn["g"]) == {"new"}


def test_a_missing_group_is_a_declared_one_at_random(fitted):
    result = fitted("y ~ x + (1 | g / h)")
    draws = result.draws
    table = result.effects("x", [5.0], at={"g": None, "h": "v"}, new_groups=True).draws.ravel() / 8
    base = draws["intercept"]
    groups = np.stack(
        [base + draws["g"][:, one, 0] + draws["g:h"][:, 2 * one + 1, 0] for one in range(3)]
    )
    # each draw is that of one group, the same in both terms, and each is as frequent
    match = np.abs(groups - table).argmin(axis=0)
    assert np.abs(groups - table).min(axis=0).max() < 1e-5
    assert np.bincount(match) / len(table) == pytest.approx([1 / 3] * 3, abs=0.03)


def test_one_term_may_have_a_new_group_and_another_a_declared_one(fitted):
    result = fitted("y ~ x + (1 | g / h)")
    draws = result.draws
    at = {"g": "b", "h": "new"}
    table = result.effects("x", [5.0], at=at, new_groups=True).draws.ravel() / 8
    left = table - draws["intercept"] - draws["g"][:, 1, 0]
    standard = left / draws["g:h_sd"][:, 0]
    assert [standard.mean(), standard.std()] == pytest.approx([0, 1], abs=0.06)


def test_numbers_that_name_groups_may_be_new(fitted):
    result = fitted("y ~ x + (1 | k)")
    frame = pd.DataFrame([ROW | {"k": 4}, ROW | {"k": 9}, ROW | {"k": np.nan}])
    with pytest.raises(ArgumentError, match="new_groups=True"):
        result.predict(frame)
    assert len(set(result.predict(frame, new_groups=True).round(6))) == 3
    known = result.predict(frame.iloc[:1])
    assert result.predict(frame, new_groups=True)[:1] == pytest.approx(known, rel=1e-5)


def test_a_group_that_was_put_together_with_others_is_a_new_one():
    """What was learned of "(other)" is about all of them together."""
    schema = {"x": (0, 1), "y": (0, 1), "g": wb.data.Categorical(["a", "b"], other=True)}
    model = wb.models.formula("y ~ x + (1 | g)", family="gaussian", schema=schema)
    frame = pd.DataFrame({"x": 0.5, "g": ["b", "(other)", "new", "new", None]})
    with pytest.raises(ArgumentError, match="new_groups=True"):
        model.arrays_of(frame)
    groups = model.new_groups(frame)
    index = groups.arrays(model.columns.inputs(groups.frame))["g"]
    assert [*index] == [1, 2, 3, 3, 4]


def test_large_numbers_of_new_groups_are_told_apart(fitted):
    result = fitted("y ~ x + (1 | k)")
    frame = pd.DataFrame([ROW | {"k": number} for number in (1000001, 1000002, 1000002.2)])
    first, second, third = result.predict(frame, new_groups=True)
    assert abs(first - second) > 1e-3
    assert second == third
    with pytest.raises(ArgumentError, match=r"declared group: 1 to 4.*new_groups=True"):
        result.effects("k", [1, 9])
    with pytest.raises(ArgumentError, match=r"^values=\[1\]: must be a group's name"):
        result.effects("k", [[1]], new_groups=True)
    with pytest.raises(ArgumentError, match="each value once"):
        result.effects("k", [None, np.nan], new_groups=True)


def test_new_groups_are_for_groups_alone(fitted):
    with pytest.raises(ArgumentError, match="for a formula with groups") as caught:
        fitted("y ~ x").predict(pd.DataFrame([ROW]), new_groups=True)
    assert caught.value.argument == "new_groups"
    both = fitted("y ~ g + (1 | g)")  # levels of g are columns, too
    with pytest.raises(ArgumentError, match="declared categories"):
        both.predict(pd.DataFrame([ROW | {"g": "new"}]), new_groups=True)


def test_coefficients_have_rows_of_groups(fitted):
    result = fitted("y ~ x + (1 + x | g)")
    table = result.coefficients(groups=True)
    plain = result.coefficients()
    assert [*table.index] == [
        "intercept",
        "x",
        *(f"{column} of g={label}" for column in ("Intercept", "x") for label in "abc"),
        *plain.index[2:],
    ]
    slope = table.loc["x of g=b"]
    assert slope["mean"] == pytest.approx(8 / 5 * result.draws["g"][:, 1, 1].mean(), rel=1e-5)
    assert slope["contrast"] == "against a typical group, 1 more"
    with pytest.raises(ArgumentError, match="formulas with groups"):
        fitted("y ~ x").coefficients(groups=True)


def test_a_picture_has_a_row_for_each_effect(fitted):
    figure = fitted("y ~ x + (1 + x | g)").plot("group effects")
    names = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    assert len(names) == 6
    assert names[0] == "Intercept of g=a"


def test_a_summary_has_effects_and_not_what_they_are_made_of(fitted):
    names = {name.split("[")[0] for name in fitted("y ~ x + (1 + x | g)").summary_table().index}
    assert names == {"intercept", "weights", "g", "g_sd", "sigma"}
