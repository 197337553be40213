"""What an analyst's 95 % intervals from twins are worth, on tables that the model describes.

Beside them: the posterior's own, which twins cannot better, and those from one set of N records of
``result.sample``, which looks like a table and is none. Inputs are uniform, and 500 other ones are
public. Slopes are drawn from a normal distribution. Bounds are honest and declared (look=0), delta
is 1e-4. Linear regressions are fitted from noised sums, logistic ones by steps.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm
from fits import OUT

import workbench as wb

SIZE, FEATURES, SETS, LEVEL, Z = 2000, 4, 30, 0.95, 1.959964
EPSILONS, WORLDS = (0.5, 1.0, 4.0), ("linear", "logistic")
NAMES = [f"x{number}" for number in range(FEATURES)]
METHODS = ("naive", "twins", "mixture", "posterior")


def inputs(random, size):
    return pd.DataFrame(random.uniform(-1, 1, (size, FEATURES)), columns=NAMES)


def world(kind, random):
    """(the private table, slopes and intercept)."""
    table = inputs(random, SIZE)
    truth = np.append(random.normal(size=FEATURES) * (0.5 if kind == "linear" else 1.0), 0.3)
    predictor = table.to_numpy() @ truth[:-1] + truth[-1]
    if kind == "linear":
        table["y"] = predictor + 0.5 * random.normal(size=SIZE)
    else:
        table["y"] = random.random(SIZE) < 1 / (1 + np.exp(-predictor))
    return table, truth


def analysed(kind, table):
    """The analyst's regression."""
    design = sm.add_constant(table[NAMES])
    y = (table["y"].astype(str) == "True") if kind == "logistic" else table["y"]
    return (
        sm.OLS(y, design).fit()
        if kind == "linear"
        else sm.GLM(y.astype(float), design, family=sm.families.Binomial()).fit()
    )


def intervals(kind, epsilon, seed):
    """Ends of the intervals by method, float[2, d + 1], and the truth."""
    random = np.random.default_rng(seed)
    table, truth = world(kind, random)
    result = wb.fit(
        "y ~ " + " + ".join(NAMES),
        table,
        family="gaussian" if kind == "linear" else "bernoulli",
        schema={**dict.fromkeys(NAMES, (-1, 1)), "y": (-6, 6) if kind == "linear" else bool},
        epsilon=epsilon,
        delta=1e-4,
        ledger=False,
        privacy=wb.Privacy(look=0),
        training=wb.Training(estimator="statistics" if kind == "linear" else None),
        execution=wb.Execution(checkpoint=False, progress=False),
    )
    public, order = inputs(random, 500), [*NAMES, "const"]
    one = analysed(kind, result.sample(SIZE, given=inputs(random, SIZE)))
    middle, reach = one.params[order].to_numpy(), Z * one.bse[order].to_numpy()
    answers = [analysed(kind, twin) for twin in result.twins(SETS, given=public)]
    own = result.coefficients(LEVEL, "eti").loc[[*NAMES, "intercept"]]
    ends = {
        "naive": np.stack([middle - reach, middle + reach]),
        "posterior": own[["eti_95%_low", "eti_95%_high"]].to_numpy(float).T,
    }
    for method, rule in (("twins", "variance"), ("mixture", "mixture")):
        combined = wb.combine(answers, interval=LEVEL, rule=rule).loc[order]
        ends[method] = combined[["95%_low", "95%_high"]].to_numpy().T
    return ends, truth


def measured(kind, epsilon, repeats, first=0):
    """A row of the table: coverage by method, and widths relative to the posterior's."""
    inside, widths, began = {}, {}, time.perf_counter()
    for seed in range(first, first + repeats):
        ends, truth = intervals(kind, epsilon, seed)
        for method, (low, high) in ends.items():
            inside.setdefault(method, []).append((low <= truth) & (truth <= high))
            widths.setdefault(method, []).append(high - low)
    own = np.array(widths["posterior"])
    row = {"world": kind, "epsilon": epsilon, "repeats": repeats}
    row |= {method: np.mean(inside[method]) for method in METHODS}
    row |= {f"width of {m}": np.median(np.array(widths[m]) / own) for m in METHODS[:-1]}
    return row | {"seconds": time.perf_counter() - began}


def main(full):
    """Print and keep the table. :param full: 400 repeats instead of 20."""
    warnings.simplefilter("ignore")
    rows = []
    for kind in WORLDS:
        for epsilon in EPSILONS:
            rows.append(measured(kind, epsilon, 400 if full else 20))
            print(pd.DataFrame(rows).round(3).to_string(), flush=True)
            pd.DataFrame(rows).to_csv(OUT / "twins.csv", index=False)


if __name__ == "__main__":
    main("--full" in sys.argv)
