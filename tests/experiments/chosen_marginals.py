"""Marginals that the fit chooses: 95 % intervals after the choice, and what the choice sees.

The tables of ``mixed_table`` ("star"): the outcome and a factor, a yes-or-no and a number, which
depend on each other through the outcome alone. The same quantities, each about a pair of the
outcome and another column. A pair is told where a marginal has both; else it counts as independent.
"""

import math
import sys
import time
import warnings

import numpy as np
import pandas as pd
from fits import OUT
from mixed_table import DELTA, QUANTITIES, SHAPE, STAR, analysed, sampled, truth_of

from workbench.data.dependence import PairScores
from workbench.fitting.marginals import OF_COLUMNS, share_for
from workbench.models.chosen_marginals import marginals_of
from workbench.models.joint_cells import in_order
from workbench.posterior.cell_tree import Cells
from workbench.posterior.joint_cells import LARGEST, draw, norm_of
from workbench.privacy.calibration import gaussian_mu, noise_multiplier
from workbench.privacy.steps import Phase

DRAWS, SIZE = 300, 2000
# the pair that each quantity is about; the slope's model has the factor, too
PAIRS = ((0, 2), (0, 1), (0, 3), (0, 2))


def chosen(table, epsilon, random):
    """(cliques, sigma of the release of their counts) of a table of counts."""
    scores = PairScores.of(SHAPE, LARGEST)
    share = share_for(scores, SIZE, epsilon, DELTA, "add_or_remove_one")
    look = 1 / (gaussian_mu(epsilon, DELTA) * math.sqrt(share))
    sigma = noise_multiplier(
        epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=1, before=Phase(1.0, look, 1)
    )
    codes = np.repeat(np.indices(SHAPE).reshape(4, -1).T, table.ravel().astype(int), axis=0)
    of_columns = look / math.sqrt(OF_COLUMNS) * scores.of_columns.sensitivity
    of_pairs = look / math.sqrt(1 - OF_COLUMNS) * scores.of_pairs.sensitivity
    counts = scores.counts(codes)
    margins = scores.margins(counts + of_columns * random.normal(size=len(counts)), of_columns)
    distances = scores.scores(codes, scores.references(margins, 1000), 1000) / 1000
    noised = distances + of_pairs * random.normal(size=len(distances))
    seen = scores.dependence(noised, of_pairs, margins)
    order = np.argsort(-seen.excess)
    clear = [scores.pairs[index] for index in order if seen.is_clear[index]]
    others = [scores.pairs[index] for index in order if not seen.is_clear[index]]
    return in_order(marginals_of(SHAPE, clear, others, margins.total, sigma)), sigma


def joint_of(cells, structure):
    """The probabilities of all combinations, of a draw's cells, float[2, 3, 2, 8]."""
    joint = np.ones(SHAPE)
    for number, clique in enumerate(structure.cliques):
        start, end = structure.ends[number : number + 2]
        table = cells[start:end].reshape(structure.shape(clique))
        separator = structure.separator(number)
        axes = tuple(axis for axis, column in enumerate(clique) if column not in separator)
        table = table / np.maximum(table.sum(axis=axes, keepdims=True), 1e-300)
        table = table.transpose(np.argsort(clique))
        joint = joint * table.reshape([SHAPE[c] if c in clique else 1 for c in range(4)])
    return joint


def interval(epsilon, seed):
    """(whether intervals hold the truth, whether a marginal has the pair) of each quantity."""
    random = np.random.default_rng(seed)
    truth = truth_of(STAR, np.array((0.5, 0.3, 0.2)))
    table = sampled(truth, SIZE, random)
    cliques, sigma = chosen(table, epsilon, random)
    structure = Cells.of(SHAPE, cliques)
    exact = np.concatenate(
        [
            table.sum(axis=tuple(axis for axis in range(4) if axis not in clique))
            .transpose(np.argsort(np.argsort(clique)))
            .ravel()
            for clique in cliques
        ]
    )
    noise = sigma * norm_of(structure)
    drawn = draw(exact + noise * random.normal(size=len(exact)), noise, structure, DRAWS, random)
    answers = [analysed(joint_of(row, structure))[0] for row in drawn.cells]
    low, high = np.quantile(answers, [0.025, 0.975], axis=0)
    actual = analysed(truth)[0]
    told = [any({*pair} <= {*clique} for clique in cliques) for pair in PAIRS]
    return (low <= actual) & (actual <= high), np.array(told)


def main(full):
    """Print and keep the table. :param full: 100 repeats instead of 20."""
    warnings.simplefilter("ignore")
    rows = []
    for epsilon in (0.5, 1.0, 4.0):
        began = time.perf_counter()
        results = [interval(epsilon, seed) for seed in range(100 if full else 20)]
        inside, told = (np.array(column) for column in zip(*results, strict=True))
        facts = {"epsilon": epsilon, "tree": np.mean(told[:, 1:].all(axis=1))}
        for index, name in enumerate(QUANTITIES):
            facts |= {
                name: inside[:, index].mean(),
                f"{name}, told": told[:, index].mean(),
                f"{name} where told": inside[told[:, index], index].mean(),
                f"{name} where not": inside[~told[:, index], index].mean(),
            }
        rows.append(facts | {"seconds": time.perf_counter() - began})
        print(pd.DataFrame(rows).round(3).T.to_string(), flush=True)
        pd.DataFrame(rows).to_csv(OUT / "chosen_marginals.csv", index=False)


if __name__ == "__main__":
    main("--full" in sys.argv)
