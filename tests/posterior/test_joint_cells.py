"""What a table of levels releases in one step, and its posterior given the noised counts."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.conftest import some_of
from workbench.posterior import joint_cells
from workbench.posterior.cell_tree import Cells, Tree
from workbench.posterior.gram_chain import SETTLED
from workbench.posterior.joint_cells import crowded, draw, leaning, norm_of, prior_draws
from workbench.posterior.statistics import SITE, guide
from workbench.record_model.splitting import split

STAR = Cells.of((2, 3, 2), [(0, 1), (0, 2)])
CHAIN = Cells.of((2, 3, 2, 4), [(1, 0), (1, 2), (2, 3)])
TRIPLES = Cells.of((2, 3, 2, 2, 2), [(1, 2, 0), (1, 2, 3), (4,)])
# bins in order, of which one column has a level for missing values
BINS = Cells.of((2, 5, 3), [(0, 1), (0, 2)], (0, 4, 3))
BOTH = Cells.of((4, 2, 5), [(0, 1, 2)], (4, 0, 5))
TREES = [STAR, CHAIN, TRIPLES, BINS, BOTH]


def all_records(cells):
    return np.array(list(itertools.product(*map(range, cells.levels))))


def counts_of(cells, codes):
    """The counts, computed without the code that is tested."""
    counts = []
    for clique in cells.cliques:
        table = np.zeros([cells.levels[column] for column in clique])
        np.add.at(table, tuple(codes[:, column] for column in clique), 1)
        counts.append(table.ravel())
    return np.concatenate(counts)


def records(cells, size, seed=0):
    random = np.random.default_rng(seed)
    rows = all_records(cells)
    return rows[random.choice(len(rows), size, p=random.dirichlet(np.ones(len(rows))))]


# ---- what a record adds --------------------------------------------------------------------------


@pytest.mark.parametrize("cells", TREES)
def test_every_record_adds_exactly_the_norm_and_neighbouring_tables_differ_by_it(cells):
    rows = all_records(cells)
    added = np.asarray(cells.statistic(jnp.asarray(rows)), float)
    assert np.linalg.norm(added, axis=1) == pytest.approx(norm_of(cells), rel=1e-12)
    table = records(cells, 20)
    for row in rows:
        difference = counts_of(cells, np.vstack([table, row])) - counts_of(cells, table)
        assert np.linalg.norm(difference) == pytest.approx(norm_of(cells), rel=1e-12)


@pytest.mark.parametrize("cells", TREES)
def test_the_sums_are_the_marginals(cells):
    table = records(cells, 50)
    sums = np.asarray(cells.statistic(jnp.asarray(table)), float).sum(axis=0)
    assert np.array_equal(sums, counts_of(cells, table))


def test_the_gradient_of_a_record_is_its_statistic():
    shapes = (jax.ShapeDtypeStruct((3,), jnp.float32),)
    made = joint_cells.model_of(STAR, lambda x: x.astype(int))
    model = split(made, guide, jax.random.key(0), shapes, num_records=5)
    record = jnp.asarray([1.0, 2.0, 0.0])
    slope = jax.grad(lambda u: model.record_loss(u, (record,), jax.random.key(0)))(model.initial)
    expected = -counts_of(STAR, np.array([[1, 2, 0]]))
    assert np.asarray(slope[SITE]) == pytest.approx(expected)


# ---- the posterior -------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", TREES)
def test_the_slope_is_that_of_the_density(cells):
    random = np.random.default_rng(1)
    released = counts_of(cells, records(cells, 300)) + 8 * random.normal(size=cells.ends[-1])
    chain = joint_cells._Chain(released, 8.0, cells.rooted, 3, random)
    states, slope = chain.states, chain._slope(chain.states)
    for index in range(len(states)):
        step = np.zeros_like(states)
        step[index] = 1e-5
        numeric = (chain._log_density(states + step) - chain._log_density(states - step)) / 2e-5
        assert slope[index] == pytest.approx(numeric, rel=1e-4, abs=1e-5)


def of_whole_counts(released, noise):
    """Mean and standard deviation of the first cell's probability, by adding up all whole counts
    of one marginal, for each of many concentrations.
    """
    cells, counts = len(released), np.arange(int(max(released) + 6 * noise))
    size = max(released.sum(), noise, 1)
    most = max(1 / np.sqrt(cells * (noise / size) ** 2 + 1 / size) - 1, 0.5) / cells
    moments = []
    for standard in np.linspace(-4.5, 3.5, 81):
        a = np.exp(-1 + standard)
        beyond = max(np.log(a / most), 0) / 0.1
        likely = [-0.5 * ((counts - number) / noise) ** 2 for number in released]
        prior = special.gammaln(counts + a) - special.gammaln(counts + 1) - special.gammaln(a)
        first, *others = [np.exp(log + prior) for log in likely]
        others = functools.reduce(np.convolve, others)
        total = counts[:, None] + np.arange(len(others))
        logs = special.gammaln(total + 1) - special.gammaln(total + cells * a)
        logs += special.gammaln(cells * a) - standard**2 / 2 - beyond**2 / 2
        weights = first[:, None] * others * np.exp(logs)
        shape, together = counts[:, None] + a, total + cells * a
        mean = shape / together
        square = mean * (shape + 1) / (together + 1)
        moments.append([(weights * value).sum() for value in (1, mean, square)])
    whole, mean, square = np.sum(moments, axis=0)
    return mean / whole, np.sqrt(square / whole - (mean / whole) ** 2)


def beta_binomial(first, second, a):
    """The logarithm of the probability of counts whose shares are Beta(a, a)."""
    both = first + second
    choices = special.gammaln(both + 1) - special.gammaln(first + 1) - special.gammaln(second + 1)
    return choices + special.betaln(first + a, second + a) - special.betaln(a, a)


def of_whole_counts_in_halves(released, noise):
    """Mean and standard deviation of the first of four bins' probability and of the first two's, by
    adding up all whole counts, for each of many pairs of concentrations.
    """
    counts = np.arange(int(max(released) + 5 * noise))
    first, second = np.meshgrid(counts, counts, indexing="ij")
    pair = (first + second).ravel()
    total = max(sum(released), noise, 1)
    deviations = [np.sqrt(4 * (noise / total) ** 2 + 1 / total)]
    deviations.append(np.sqrt(8 * (noise / total) ** 2 + 2 / total))
    most = [max(1 / deviation - 1, 6) / 2 for deviation in deviations]
    covariance = np.full((2, 2), 1.2**2) + 0.75**2 * np.eye(2)
    likely = [np.exp(-0.5 * ((counts - number) / noise) ** 2) for number in released]
    logs = np.linspace(-4.5, 1.6, 28)
    moments = []
    for log_deep in logs:
        deep = np.exp(log_deep)
        within = np.exp(beta_binomial(first, second, deep))
        left = (likely[0][:, None] * likely[1] * within).ravel()
        right = (likely[2][:, None] * likely[3] * within).ravel()
        share = ((first + deep) / (first + second + 2 * deep)).ravel()
        square = share * ((first + deep + 1) / (first + second + 2 * deep + 1)).ravel()
        lefts = [np.bincount(pair, left * value) for value in (1, share, square)]
        rights = np.bincount(pair, right)
        for log_top in logs:
            top = np.exp(log_top)
            halves = np.arange(len(rights))
            a, b = halves[:, None], halves[None]
            weight = np.exp(beta_binomial(a, b, top)) * rights
            half = (a + top) / (a + b + 2 * top)
            half_square = half * (a + top + 1) / (a + b + 2 * top + 1)
            away = np.array([log_top, log_deep]) - 0.5
            beyond = np.maximum(np.array([log_top, log_deep]) - np.log(most), 0) / 0.1
            prior = np.exp(-0.5 * (away @ np.linalg.solve(covariance, away) + beyond @ beyond))
            moments.append(
                [
                    prior * (lefts[order] * (weight * value).sum(axis=1)).sum()
                    for order, value in (
                        (0, 1),
                        (1, half),
                        (2, half_square),
                        (0, half),
                        (0, half_square),
                    )
                ]
            )
    whole, mean, square, half, half_square = np.sum(moments, axis=0)
    means = np.array([mean, half]) / whole
    return means, np.sqrt(np.array([square, half_square]) / whole - means**2)


@pytest.mark.parametrize(("released", "noise"), [([20, 3, 5, 12], 4.0), ([30, 1, -2, 0], 5.0)])
def test_bins_have_that_of_all_whole_counts_in_halves(released, noise):
    means, deviations = of_whole_counts_in_halves(released, noise)
    cells = Cells.of([4], [(0,)], [4])
    drawn = draw(np.array(released, float), noise, cells, 3000, np.random.default_rng(2))
    assert drawn.spread <= SETTLED
    sums = np.column_stack([drawn.cells[:, 0], drawn.cells[:, :2].sum(axis=1)])
    assert np.all(np.abs(sums.mean(axis=0) - means) < 0.25 * deviations)
    assert sums.std(axis=0) == pytest.approx(deviations, rel=0.25)


def test_a_tree_divides_into_levels_first_and_then_into_halves():
    tree = Tree.of(BOTH.rooted)
    assert [layer.is_halved for layer in tree.layers] == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
    ]
    # 2 levels; the five bins; both columns' four and three, two and two, ...
    assert [layer.cells.stop - layer.cells.start for layer in tree.layers] == [
        1, 2, 4, 8, 16, 32, 40
    ]  # fmt: skip
    values = np.arange(40.0)
    added = tree.added(values)[:, 0]
    table = values.reshape(4, 2, 5)
    assert added[tree.layers[1].cells].tolist() == table.sum(axis=(0, 2)).tolist()
    assert added[tree.layers[2].cells].tolist() == [
        table[:, level, half].sum() for level in (0, 1) for half in (slice(0, 3), slice(3, 5))
    ]
    assert np.array_equal(added[tree.measured], values)
    assert tree.weights[tree.layers[2].cells, 0].tolist() == [1.2, 0.8, 1.2, 0.8]


def test_the_caution_names_levels_of_too_few_records():
    cells, noise = Cells.of((2, 2, 20), [(0, 1, 2)], (0, 0, 20)), 4.0
    random = np.random.default_rng(7)
    shape = np.exp(-np.arange(20) / 5)
    many, few = (np.outer([size / 2, size / 2], shape / shape.sum()) for size in (3000, 30))
    released = (np.stack([many, few]) + noise * random.normal(size=(2, 2, 20))).ravel()
    drawn = draw(released, noise, cells, 100, random)
    assert leaning(drawn, released, noise, cells) == [((0, 1, 2), 0, 1)]


def test_a_column_with_nearly_all_records_in_one_bin_is_named():
    cells = Cells.of((2, 6, 6), [(0, 1), (0, 2)], (0, 6, 6))
    zeros = np.outer([300, 200], [0.9, 0.02, 0.02, 0.02, 0.02, 0.02])
    spread = np.outer([300, 200], np.full(6, 1 / 6))
    released = np.concatenate([zeros.ravel(), spread.ravel()])
    drawn = draw(released, 3.0, cells, 50, np.random.default_rng(8))
    assert crowded(drawn, cells) == [(1, 0)]


EMPTY = np.rint(8 * np.random.default_rng(0).standard_normal(29))  # 29 cells that nobody is in


@pytest.mark.parametrize(
    ("released", "noise"),
    some_of(
        [
            ([30, 4], 6.0),
            ([4, 30], 6.0),
            ([6, -4], 10.0),
            ([100, 0, 0, 0], 1.0),
            ([98, 7, -6, 3], 8.0),
            ([3, 7, 98, -6], 8.0),
            ([60, *EMPTY], 8.0),
            ([*EMPTY, 60], 8.0),
        ],
        4,
        first=2,
    ),
)
def test_it_is_that_of_all_whole_counts(released, noise):
    """Also where nearly all cells are empty, and noise hides it."""
    mean, deviation = of_whole_counts(np.array(released, float), noise)
    cells = Cells.of([len(released)], [(0,)])
    drawn = draw(np.array(released, float), noise, cells, 6000, np.random.default_rng(2))
    assert drawn.spread <= SETTLED
    assert drawn.cells[:, 0].mean() == pytest.approx(mean, abs=0.25 * deviation)
    assert drawn.cells[:, 0].std() == pytest.approx(deviation, rel=0.25)


def test_without_noise_it_is_the_conjugate_one():
    table = records(STAR, 2000)
    exact = counts_of(STAR, table)
    drawn = draw(exact, 0.0, STAR, 2000, np.random.default_rng(3))
    assert drawn.spread <= SETTLED
    many = exact > 20  # records, of which the prior says little
    expected, cells = exact[many] / 2000, drawn.cells[:, many]
    deviations = np.sqrt(expected * (1 - expected) / 2000)
    assert np.all(np.abs(cells.mean(axis=0) - expected) < 0.15 * deviations)
    assert cells.std(axis=0) == pytest.approx(deviations, rel=0.12)


@pytest.fixture
def short_chains(monkeypatch):
    """For what holds wherever chains are."""
    monkeypatch.setattr(joint_cells, "_BURN_IN", (5, 5, 10))
    monkeypatch.setattr(joint_cells, "_RUNS", 1)


@pytest.mark.parametrize("cells", TREES)
@pytest.mark.parametrize("noise", some_of([5.0, 1e4]))
def test_draws_are_probabilities_of_which_cliques_agree(cells, noise, short_chains):
    random = np.random.default_rng(4)
    exact = counts_of(cells, records(cells, 400))
    drawn = draw(exact + noise * random.normal(size=len(exact)), noise, cells, 60, random)
    for probabilities in (drawn.cells, prior_draws(cells, 50, random)):
        assert np.all(probabilities >= 0)
        margins = {}
        for clique, start, end in zip(cells.cliques, cells.ends[:-1], cells.ends[1:], strict=True):
            shape = [cells.levels[column] for column in clique]
            table = probabilities[:, start:end].reshape(-1, *shape)
            for axis, column in enumerate(clique):
                others = tuple(1 + other for other in range(len(clique)) if other != axis)
                margin = table.sum(axis=others)
                assert margin.sum(axis=1) == pytest.approx(1)
                assert margins.setdefault(column, margin) == pytest.approx(margin)


def test_noise_widens_it_by_its_size():
    cells, noise = Cells.of([2], [(0,)]), 50.0
    drawn = draw(np.array([6000.0, 4000.0]), noise, cells, 1000, np.random.default_rng(5))
    # of s / (s + t): noise, and sampling
    expected = np.hypot(noise * np.hypot(0.6, 0.4) / 1e4, np.sqrt(0.24 / 1e4))
    assert drawn.cells[:, 0].std() == pytest.approx(expected, rel=0.12)


def test_no_records_and_one_level_break_nothing():
    random = np.random.default_rng(6)
    for cells in (STAR, Cells.of((1, 2), [(0, 1)])):
        drawn = draw(3 * random.normal(size=cells.ends[-1]), 3.0, cells, 50, random)
        assert np.all(np.isfinite(drawn.cells))
