"""Mean products of a design's columns, against those of a table that is looked at."""

import numpy as np
import pandas as pd
import pytest
from numpyro import handlers

import workbench as wb
from workbench.data.counting import counted, counting_of
from workbench.data.look import Look, Shares

SIZE = 20_000
LEVELS = tuple("abcdef")
SCHEMA = {
    "x": (0, 500),
    "z": (0, 1000),
    "b": bool,
    "w": (*LEVELS, "nobody"),
    "g": tuple("pqrs"),
    "y": (0, 1),
}


def table():
    random = np.random.default_rng(0)
    share = 0.5 ** np.arange(len(LEVELS))
    return pd.DataFrame(
        {
            "x": random.lognormal(3, 0.4, SIZE),
            "z": random.normal(400, 20, SIZE),
            "b": random.random(SIZE) < 0.1,
            "w": random.choice(LEVELS, SIZE, p=share / share.sum()),
            "g": random.choice(list("pqrs"), SIZE, p=[0.6, 0.3, 0.09, 0.01]),
            "y": random.random(SIZE),
        }
    )


def fitted(formula, frame, deviation=1e-3):
    """The model on the scales that a look learns, whose noise happens to be 0."""
    model = wb.models.formula(formula, family="gaussian", schema=SCHEMA)
    data = model.dataset(frame, evaluation_fraction=0.0)
    counting = counting_of(data, model.columns_used)
    look = Look(counting, counted(counting, data, 1).astype(float), deviation)
    return model.with_scales(look.scales(model.responses))


def of_table(design, frame):
    """The columns of ``second_moments``, of records."""
    arrays = design.encode(design.values(frame))
    columns = [np.ones((len(frame), 1)), arrays["x"]]
    for effects in design.groups:
        slopes = [
            np.ones((len(frame), int(effects.block.intercept))),
            arrays.get(f"{effects.name}_x"),
        ]
        slopes = np.hstack([array for array in slopes if array is not None])
        is_of = arrays[effects.name][:, None] == np.arange(len(effects.labels))
        columns.append((is_of[:, :, None] * slopes[:, None]).reshape(len(frame), -1))
    return np.hstack(columns).astype(float)


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ x + z + b + w",
        "y ~ b * w + b:z",
        "y ~ s(x) + w:z",
        "y ~ bs(x, df=4) + C(w) + z",
        "y ~ x + I(x**2) + (1 + z | g)",
    ],
)
def test_moments_are_those_of_the_table_where_its_columns_are_independent(formula):
    frame = table()
    model = fitted(formula, frame)
    moments = model.model.moments().draws
    columns = of_table(model.columns.design, frame)
    wanted = columns.T @ columns / SIZE
    np.testing.assert_allclose(moments.mean(axis=0), wanted, atol=0.15)
    np.testing.assert_allclose(np.median(np.abs(moments.mean(axis=0) - wanted)), 0.0, atol=0.01)
    seen = np.diag(wanted) > 20 / SIZE
    assert seen.sum() > 4
    squares = np.einsum("sii->si", moments)
    np.testing.assert_allclose(
        np.log(squares.mean(0))[seen], np.log(np.diag(wanted)[seen]), atol=0.7
    )
    assert np.linalg.eigvalsh(moments).min() > -1e-12
    assert np.all(squares[:, ~seen] <= 20 / SIZE)
    assert np.all(np.log(squares[:, seen]).std(axis=0) < 0.01)


def test_a_level_without_records_is_as_unsure_as_the_noise_that_hides_it():
    frame = table()
    model = fitted("y ~ w", frame, deviation=50.0)
    nobody = [*model.columns.design.block.names].index("w=nobody")
    logarithms = np.log(np.einsum("sii->si", model.model.moments().draws)[:, 1 + nobody])
    # from a hundredth of a record to as many as the noise hides, all orders alike
    assert logarithms.mean() == pytest.approx(np.log((0.01 * 50.0) ** 0.5 / SIZE), abs=0.5)
    assert logarithms.std() == pytest.approx(np.log(50.0 / 0.01) / 12**0.5, abs=0.3)


def test_a_gradient_of_each_site_is_that_of_the_predictor():
    """By differences of the predictor of records, for one predictor and for two."""
    frame = table().head(50)
    for family, schema in (("gaussian", {}), ("categorical", {"y": ("p", "q", "r")})):
        formula = "y ~ s(x) + z + w + (1 + z | g)"
        frame = frame.assign(y="p") if schema else frame
        model = wb.models.formula(formula, family=family, schema=SCHEMA | schema)
        design, regression = model.columns.design, model.model
        arrays = design.encode(design.values(frame))
        columns = of_table(design, frame)
        sites = ["g_contrasts", "mean_intercept", "weights_of_lines", "s(x)"]
        per_site = regression._gradients()
        random = np.random.default_rng(0)
        values, eta = {}, 0.0
        for name in sites:
            several = (2,) if schema else ()
            flat = random.normal(size=(len(per_site[name]), *several))
            shapes = {"g_contrasts": (3, 2, *several), "mean_intercept": several}
            values[name] = flat.reshape(shapes.get(name, flat.shape))
            eta = eta + columns @ per_site[name].T @ flat
        with handlers.seed(rng_seed=0), handlers.substitute(data=values):
            found = regression.predictor(regression._latents(), arrays)
        np.testing.assert_allclose(found, eta, rtol=1e-3, atol=1e-3)


def test_entries_are_as_those_of_the_sites_and_parameters_have_none():
    declared = wb.models.formula("y ~ x + w + (1 | g)", family="gaussian", schema=SCHEMA)
    levels = {"w": (*LEVELS, "nobody"), "g": "pqrs"}
    even = {
        name: Shares({level: [1 / len(labels), 0.0] for level in labels})
        for name, labels in levels.items()
    }
    model = declared.with_scales(even)
    shapes = {"g_contrasts": (3, 1), "log_sigma": (), "mean_intercept": (), "weights": (7,)}
    expected = model.model.expected_curvature(shapes)
    curvature = expected.mixing @ np.diag(np.exp(expected.logarithms)) @ expected.mixing.T
    diagonal = np.array([*[1 / 4] * 3, 1, 1, 1 / 3, *[1 / 7] * 6])
    level = np.log(diagonal).mean()
    np.testing.assert_allclose(np.log(np.diag(curvature)), np.log(diagonal) - level, atol=0.02)
    alone = np.delete(curvature[3], 3)
    np.testing.assert_array_equal(alone, 0)


def test_levels_that_nobody_counted_are_less_sure():
    counted = Shares({level: [1 / 7, 0.0] for level in (*LEVELS, "nobody")})
    model = wb.models.formula("y ~ w", family="gaussian", schema=SCHEMA)
    sure, unsure = (
        some.model.moments().draws[:, 1, 1] for some in (model.with_scales({"w": counted}), model)
    )
    np.testing.assert_allclose(sure, 1 / 7, rtol=0.01)
    assert 0.5 < np.log(unsure).std() < 1.2
