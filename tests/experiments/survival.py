"""Survival curves from one release of a mixed table: the share of 90 % intervals that hold the
truth, with bins in halves and with one prior of all cells.

Exponential times with means of 3 to 6 years by group, censored evenly between 2 and 12 years, in
bins of 10 years; delta is 1e-5. Shares are over all ends of bins but the last.
"""

import sys

import numpy as np
import pandas as pd
from fits import OUT

from workbench.posterior.cell_tree import Cells
from workbench.posterior.joint_cells import draw
from workbench.privacy.calibration import noise_multiplier
from workbench.results.survival import _life_table

DRAWS, DELTA = 160, 1e-5
TABLES = (  # records, epsilon, bins, shares of the groups
    (500, 0.3, 20, (1.0,)),
    (500, 1.0, 20, (1.0,)),
    (2000, 1.0, 20, (0.95, 0.05)),
    (2000, 0.3, 40, (0.5, 0.3, 0.2)),
    (3000, 1.0, 32, (0.5, 0.5)),
)


def held(size, epsilon, bins, shares, seed, in_order):
    """Whether each interval holds the truth, bool[bins - 2, groups]; and R-hat."""
    random, groups = np.random.default_rng(seed), len(shares)
    means = np.linspace(3, 6, groups) if groups > 1 else np.array([3.0])
    truth = np.exp(-np.linspace(0, 10, bins + 1)[1:-1, None] / means)
    group = random.choice(groups, size, p=shares)
    event, censored = random.exponential(means[group]), random.uniform(2, 12, size)
    reached = np.minimum(np.minimum(event, censored), 9.999)
    table = np.zeros((groups, 2, bins))
    where = group, (event < censored).astype(int), (reached / 10 * bins).astype(int)
    np.add.at(table, where, 1)
    sigma = noise_multiplier(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=1)
    released = (table + sigma * random.normal(size=table.shape)).ravel()
    cells = Cells.of(table.shape, [(0, 1, 2)], (0, 0, bins if in_order else 0))
    drawn = draw(released, sigma, cells, DRAWS, random)
    joint = np.moveaxis(drawn.cells.reshape(DRAWS, groups, 2, bins), (1, 2, 3), (3, 2, 1))
    curves = _life_table(joint, slice(None), is_incidence=False)[:, :-1]
    low, high = np.quantile(curves, [0.05, 0.95], axis=0)
    return (low <= truth) & (truth <= high), drawn.spread


def main(full):
    """Print and keep the table. :param full: 48 repeats instead of 6."""
    rows = []
    for size, epsilon, bins, shares in TABLES:
        for in_order in (True, False):
            results = [
                held(size, epsilon, bins, shares, seed, in_order)
                for seed in range(48 if full else 6)
            ]
            rows.append(
                {
                    "records": size,
                    "epsilon": epsilon,
                    "bins": bins,
                    "halves": in_order,
                    "share": np.mean([inside for inside, _ in results], axis=(0, 1)).round(3),
                    "settled": np.mean([spread <= 1.1 for _, spread in results]),
                }
            )
            print(pd.DataFrame(rows).to_string(), flush=True)
            pd.DataFrame(rows).to_csv(OUT / "survival.csv", index=False)


if __name__ == "__main__":
    main("--full" in sys.argv)
