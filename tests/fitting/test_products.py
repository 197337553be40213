"""Noised products of a regression's columns: how far a record moves them, and what they tell."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.data.look import PRODUCTS, Products, scales_form, scales_from_dict, scales_to_dict
from workbench.fitting.products import divided, most_products, share_with_products, sums_of

STEP = 10_000  # spacings of 1
SCHEMA = {"stay": (0, 365), "income": (-1e6, 1e6), "ward": ["a", "b", "c"], "ill": bool}
EDGES = pd.DataFrame(
    {
        "stay": [0.0, -0.0, 365.0, 1e308, -1e308, 5e-324, 182.5, 182.5, 200.0, 100.0],
        "income": [0.0, 1e6, -1e6, 1e300, -1e300, 2.0**53 + 2, 0.0, 1.0, -1.0, 5e5],
        "ward": list("abcabcabca"),
        "ill": [True, False] * 5,
    }
)
SIZE, CORRELATION = 4000, 0.7


def of_formula(formula="ill ~ stay * income + ward", **options):
    return wb.models.formula(formula, schema=SCHEMA, **options)


def distance(first, second):
    """The squared distance of sums, in squared spacings, exactly."""
    return sum(int(gap) ** 2 for gap in first - second)


@pytest.mark.parametrize("sensitivity", [2.0, 12.5, 1e6])
def test_a_record_moves_sums_by_s_at_most_and_no_further(sensitivity):
    model = of_formula()
    whole = model.view(model.dataset(EDGES, evaluation_fraction=0.0))
    standard = model.standard
    total = sums_of(whole, standard, sensitivity, STEP)
    moved = []
    for row in range(len(EDGES)):
        rest = model.view(model.dataset(EDGES.drop(index=row), evaluation_fraction=0.0))
        moved.append(distance(total, sums_of(rest, standard, sensitivity, STEP)))
    assert max(moved) <= (sensitivity * STEP) ** 2
    if sensitivity == 2.0:  # which all rows reach: |v|^2 is at least 1, and rounding takes little
        assert max(moved) >= (0.999 * sensitivity * STEP) ** 2


def test_values_that_are_no_numbers_move_sums_no_further():
    model = of_formula()
    data = model.view(model.dataset(EDGES, evaluation_fraction=0.0))
    x = data.train[data.arrays.index("x")].copy()
    x[0], x[1], x[2] = np.nan, np.inf, -3e38
    spoiled = data.with_rows(np.ones(len(x), bool))
    object.__setattr__(spoiled, "train", (x, *data.train[1:]))
    total = sums_of(spoiled, model.standard, 5.0, STEP)
    for row in range(4):
        rest = spoiled.with_rows(np.arange(len(x)) != row)
        moved = distance(total, sums_of(rest, model.standard, 5.0, STEP))
        assert moved <= (5.0 * STEP) ** 2


def test_a_person_with_all_rows_moves_sums_no_further_than_a_record():
    people = EDGES.assign(person=[0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
    options = {"unit_id": "person", "max_rows": 4, "unit": "patient", "evaluation_fraction": 0.0}
    model = of_formula()
    total = sums_of(model.view(model.dataset(people, **options)), model.standard, 5.0, STEP)
    for person in range(4):
        rest = people[people["person"] != person]
        data = model.view(model.dataset(rest, **options))
        moved = distance(total, sums_of(data, model.standard, 5.0, STEP))
        assert 0 < moved <= (5.0 * STEP) ** 2


@pytest.mark.parametrize("noise", [0.3, 4.0, 12.3456, 500.0])
def test_counts_and_products_together_are_one_release_of_the_look(noise):
    parts = divided(noise, of_formula(), 2**29)
    assert min(parts) > 0
    assert sum(1 / part**2 for part in parts) <= 1 / noise**2
    assert divided(noise, of_formula("ill ~ stay"), 2**29) == (noise, 0.0)
    assert divided(noise, of_formula(), 2) == (noise, 0.0)  # which noise would hide


def test_a_look_costs_more_where_products_show_and_nothing_else():
    budget = 1.0, 1e-6, "add_or_remove_one"
    assert share_with_products(0.1, of_formula(), 10**6, *budget) == pytest.approx(0.15)
    assert share_with_products(0.1, of_formula(), 500, *budget) == 0.1
    assert share_with_products(0.0, of_formula(), 10**6, *budget) == 0.0


@pytest.mark.parametrize(
    ("formula", "options", "learns"),
    [
        ("ill ~ stay + income", {}, True),
        ("ill ~ stay + ward", {}, True),
        ("ill ~ stay + income + (1 | ward)", {}, True),
        ("ill ~ stay", {}, False),  # of one column
        ("ill ~ stay + income + (1 + stay | ward)", {}, False),  # slopes
        ("stay ~ income + ward", {}, False),  # mostly from sums, which have them
    ],
)
def test_which_models_learn_products(formula, options, learns):
    model = of_formula(formula, **options)
    assert model.learns_products == learns
    assert (most_products(model) > 0) == learns


# ---- what they tell ------------------------------------------------------------------------------


def table(seed=0, size=SIZE):
    random = np.random.default_rng(seed)
    z = math.sqrt(CORRELATION) * random.normal(size=(size, 1))
    z = z + math.sqrt(1 - CORRELATION) * random.normal(size=(size, 3))
    ill = random.random(size) < 1 / (1 + np.exp(-z @ [0.5, -0.4, 0.0]))
    frame = pd.DataFrame(50 + 15 * z, columns=["a", "b", "c"]).assign(ill=ill)
    return frame.assign(w=np.where(frame["a"] > 65, "high", "low"))


def looked(frame, formula="ill ~ a + b + c + C(w)", **options):
    """The fit on what its look learned."""
    more = {"epsilon": 4.0, "iterations": 20, "ledger": False, "seed": 1, **options}
    execution = wb.Execution(progress=False, checkpoint=False)
    return wb.fit(formula, frame, execution=execution, **more)


@pytest.fixture(scope="module")
def scales():
    """What a look of the run has learned of columns that are not declared, and its model."""
    prepared = wb.prepare(
        "ill ~ a + b + c + C(w)",
        table(),
        epsilon=4.0,
        iterations=20,
        ledger=False,
        seed=1,
        execution=wb.Execution(checkpoint=False),
    )
    assert prepared.model.learns_products
    next(iter(prepared.run(lambda: True)), None)
    return prepared.spec.scales, prepared.model, prepared


def test_products_are_those_of_the_records_with_noise_of_their_error(scales):
    learned, model, prepared = scales
    products = learned[PRODUCTS]
    assert isinstance(products, Products)
    data = prepared.spec.data
    x = np.asarray(data.train[data.arrays.index("x")], float)
    u = (x - products.means) / products.deviations
    v = np.column_stack([np.ones(len(u)), u])
    weights = np.minimum(1, (1 + 1.5 * u.shape[1] + 3) / np.square(v).sum(1))
    exact = (v * weights[:, None]).T @ v / weights.sum()
    gaps = np.array(products.matrix) - exact
    upper = gaps[np.triu_indices(len(gaps), 1)] * math.sqrt(2)
    assert np.abs(upper / products.error).max() < 5
    assert 0.2 < np.sqrt(np.mean(np.square(upper))) / products.error < 2.5
    moments = model.model.moments()
    assert moments.are_measured
    correlation = np.corrcoef(x[:, :3].T)
    drawn = moments.draws - moments.draws[:, 0, :, None] * moments.draws[:, 0, None]
    roots = np.sqrt(np.einsum("sii->si", drawn))[:, 1:4]
    learned_correlation = (drawn[:, 1:4, 1:4] / roots[:, :, None] / roots[:, None]).mean(0)
    np.testing.assert_allclose(learned_correlation, correlation, atol=0.25)
    assert learned_correlation[0, 1] > 0.4


def test_products_survive_files(scales):
    learned, model, _ = scales
    text = json.dumps(scales_to_dict(learned))
    scales_form("scales", json.loads(text))
    again = scales_from_dict(json.loads(text))
    assert isinstance(again[PRODUCTS], Products)
    same = model.with_scales(again).model.moments().draws
    np.testing.assert_array_equal(same, model.model.moments().draws)


def test_a_form_of_products_is_checked(scales):
    written = json.loads(json.dumps(scales_to_dict(scales[0])))
    written[PRODUCTS]["matrix"].pop()
    with pytest.raises(ValueError, match="square matrix"):
        scales_form("scales", written)


def test_products_of_other_columns_are_not_taken(scales):
    learned, model, _ = scales
    other = wb.models.formula("ill ~ c + b + a + C(w)", schema=model.columns.schema)
    assert not other.with_scales(learned).model.moments().are_measured


def test_noise_that_hides_products_leaves_what_is_supposed(scales):
    learned, model, _ = scales
    products = learned[PRODUCTS]
    assert (
        model.with_scales({name: scale for name, scale in learned.items() if name != PRODUCTS})
        .model.moments()
        .are_measured
        is False
    )
    hidden = products._replace(error=100.0)
    drawn = model.with_scales({**learned, PRODUCTS: hidden}).model.moments().draws
    assert np.all(np.linalg.eigvalsh(drawn) > -1e-9)


@pytest.mark.statistical
@pytest.mark.thorough
def test_intervals_of_columns_that_go_together_are_hardly_wider_than_their_errors():
    """Without products they were four times as wide as without privacy, and held everything."""
    widths, held = [], []
    for seed in range(6):
        frame = table(seed, 10_000)
        result = looked(frame, "ill ~ a + b + c", epsilon=1.0, iterations=None, seed=None)
        rows = result.coefficients().loc[["a", "b", "c"]]
        low, high = rows["hdi_90%_low"], rows["hdi_90%_high"]
        truth = np.array([0.5, -0.4, 0.0]) / 15
        held += [*((low <= truth) & (truth <= high))]
        widths.append(float((high - low).mean()))
    x = np.column_stack([np.ones(len(frame)), frame[["a", "b", "c"]]])
    chance = 1 / (1 + np.exp(-((x[:, 1:] - 50) / 15) @ [0.5, -0.4, 0.0]))
    information = (x * (chance * (1 - chance))[:, None]).T @ x
    errors = np.sqrt(np.diag(np.linalg.inv(information)))[1:]
    assert np.mean(held) >= 0.75
    assert np.median(widths) < 2.5 * 3.29 * errors.mean()
