"""A table of levels from one release of its marginals: 95 % intervals of a logistic regression's
slope, an odds ratio, a difference of means and one of proportions, from the posterior and from
twins.

An outcome, a factor of three levels, a yes-or-no and a number in eight bins; delta is 1e-5. Records
are from the model ("triple" has the first three columns in one marginal, "star" pairs with the
outcome), or from it with a level of 1 % and one that nobody has ("rare"). The naive intervals are
those from one set of N records of one draw.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
from fits import OUT

import workbench as wb
from workbench.posterior.cell_tree import Cells
from workbench.posterior.joint_cells import draw, norm_of
from workbench.privacy.calibration import noise_multiplier

SETS, DRAWS, Z, DELTA = 30, 400, 1.959964, 1e-5
QUANTITIES = ("slope", "log odds ratio", "difference of means", "of proportions")
SHAPE = (2, 3, 2, 8)  # outcome, factor, yes-or-no, number
STAR, TRIPLE = [(0, 1), (0, 2), (0, 3)], [(0, 1, 2), (0, 3)]
TABLES = {  # marginals, shares of the factor's levels, records, epsilons
    "star": (STAR, (0.5, 0.3, 0.2), 2000, (0.5, 1.0, 4.0)),
    "triple": (TRIPLE, (0.5, 0.3, 0.2), 2000, (0.5, 1.0, 4.0)),
    "rare": (STAR, (0.99, 0.01, 0.0), 500, (0.3, 1.0, 4.0)),
}


def truth_of(marginals, factor):
    """Probabilities of all combinations, float[2, 3, 2, 8], that the model can have."""
    number = np.exp(-((np.arange(8) - np.array([[3], [4]])) ** 2) / 4)
    number /= number.sum(axis=1, keepdims=True)
    if marginals is TRIPLE:
        inputs = np.outer(factor, (0.6, 0.4)) * np.array([[1.1, 0.85], [0.9, 1.15], [1, 1]])
        score = -0.8 + np.array([[0.0], [0.5], [1.0]]) + np.array([0.0, 0.7])
        ill = 1 / (1 + np.exp(-score))
        first = np.stack([inputs * (1 - ill), inputs * ill])
    else:
        levels = np.array([factor, factor * np.array([1, 2, 1])])
        levels /= levels.sum(axis=1, keepdims=True)
        yes = np.array([[0.7, 0.3], [0.5, 0.5]])
        first = np.array([0.65, 0.35])[:, None, None] * levels[:, :, None] * yes[:, None]
    return first[..., None] / first.sum() * number[:, None, None]


def joint_of(cells, marginals):
    """The same of a draw's cells."""
    ends = Cells.of(SHAPE, marginals).ends
    tables = [
        cells[start:end].reshape([SHAPE[column] for column in clique])
        for clique, start, end in zip(marginals, ends[:-1], ends[1:], strict=True)
    ]
    outcome = tables[0].reshape(2, -1).sum(axis=1)
    given = [
        table / table.reshape(2, -1).sum(axis=1).reshape(2, *[1] * (table.ndim - 1))
        for table in tables
    ]
    if marginals is TRIPLE:
        return np.einsum("y,yab,yn->yabn", outcome, *given)
    return np.einsum("y,ya,yb,yn->yabn", outcome, *given)


def analysed(counts, within=1 / 12):
    """The quantities of a table of weights and their variances, by an analyst's usual formulas.

    :param within: variance in a bin, of which the width is 1.
    """
    triple = counts.sum(axis=3)
    inputs = np.array([[1, a == 1, a == 2, b] for a in range(3) for b in range(2)], float)
    ill, total = triple[1].ravel(), triple.sum(axis=0).ravel()
    used = [0, 1, 2, 3] if triple[:, 2].sum() > 0 else [0, 1, 3]
    used = used if triple[:, 1].sum() > 0 else [0, 3]
    design, weights = inputs[:, used], np.zeros(len(used))
    for _ in range(25):
        probability = 1 / (1 + np.exp(-np.clip(design @ weights, -20, 20)))
        information = (design.T * (total * probability * (1 - probability))) @ design
        weights = weights + np.linalg.solve(
            information + 1e-9 * total.sum() * np.eye(len(used)),
            design.T @ (ill - total * probability),
        )
    pairs = triple.sum(axis=2)[:, :2] + 0.5 * (counts.sum() > 2)
    number = counts.sum(axis=(1, 2))
    sizes, middles = number.sum(axis=1), np.arange(8) + 0.5
    means = number @ middles / sizes
    spread = number @ middles**2 / sizes - means**2 + within
    shares = triple.sum(axis=1)[:, 1] / sizes
    estimates = [
        weights[-1],
        np.log(pairs[1, 1] * pairs[0, 0] / pairs[0, 1] / pairs[1, 0]),
        means[1] - means[0],
        shares[1] - shares[0],
    ]
    variances = [
        np.linalg.inv(information)[-1, -1],
        (1 / pairs).sum(),
        (spread / sizes).sum(),
        (shares * (1 - shares) / sizes).sum(),
    ]
    return np.array(estimates), np.array(variances)


def sampled(joint, size, random):
    """A table of ``size`` records."""
    return random.multinomial(size, joint.ravel() / joint.sum()).reshape(SHAPE).astype(float)


def intervals(marginals, factor, size, epsilon, seed):
    """Ends of intervals by method, float[2, 4]; the truth; and R-hat."""
    random = np.random.default_rng(seed)
    truth, cells = truth_of(marginals, np.array(factor)), Cells.of(SHAPE, marginals)
    table = sampled(truth, size, random)
    exact = np.concatenate(
        [
            table.sum(axis=tuple(axis for axis in range(4) if axis not in clique)).ravel()
            for clique in marginals
        ]
    )
    sigma = noise_multiplier(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=1)
    noise = sigma * norm_of(cells)
    drawn = draw(exact + noise * random.normal(size=len(exact)), noise, cells, DRAWS, random)
    joints = [joint_of(row, marginals) for row in drawn.cells]
    own = np.quantile([analysed(joint)[0] for joint in joints], [0.025, 0.975], axis=0)
    chosen = random.permutation(DRAWS)[:SETS]
    answers = [analysed(sampled(joints[index], 10 * size, random)) for index in chosen]
    middle, variances = analysed(sampled(joints[chosen[0]], size, random))
    reach = Z * np.sqrt(variances)
    ends = {"naive": np.stack([middle - reach, middle + reach]), "posterior": own}
    for method, rule in (("twins", "variance"), ("mixture", "mixture")):
        combined = wb.combine(
            [answer[0] for answer in answers], [np.diag(answer[1]) for answer in answers], rule=rule
        )
        ends[method] = combined[["95%_low", "95%_high"]].to_numpy().T
    return ends, analysed(truth)[0], drawn.spread


def row(name, epsilon, results, seconds):
    """Coverage by method and quantity, and median widths relative to the posterior's."""
    facts = {"table": name, "epsilon": epsilon, "repeats": len(results)}
    for method in ("naive", "twins", "mixture", "posterior"):
        inside = [
            (ends[method][0] <= truth) & (truth <= ends[method][1]) for ends, truth, _ in results
        ]
        facts |= {
            f"{method} {q}": rate for q, rate in zip(QUANTITIES, np.mean(inside, 0), strict=True)
        }
    ratios = [np.ptp(ends["twins"], 0) / np.ptp(ends["posterior"], 0) for ends, *_ in results]
    facts["width"] = np.median(ratios)
    facts["settled"] = np.mean([spread <= 1.1 for *_, spread in results])
    return facts | {"seconds": seconds}


def main(full):
    """Print and keep the table. :param full: 100 repeats instead of 20."""
    warnings.simplefilter("ignore")
    rows = []
    for name, (marginals, factor, size, epsilons) in TABLES.items():
        for epsilon in epsilons:
            began = time.perf_counter()
            results = [
                intervals(marginals, factor, size, epsilon, seed)
                for seed in range(100 if full else 20)
            ]
            rows.append(row(name, epsilon, results, time.perf_counter() - began))
            print(pd.DataFrame(rows).round(3).T.to_string(), flush=True)
            pd.DataFrame(rows).to_csv(OUT / "mixed_table.csv", index=False)


if __name__ == "__main__":
    main("--full" in sys.argv)
