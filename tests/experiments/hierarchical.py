"""E1: hierarchical logistic regression, figures 4, 5 and 6 of the paper of d3p (experiments.md)."""

import warnings

import numpy as np
import pandas as pd
from fits import OUT

import workbench as wb
from workbench.fitting.fits import DeltaWarning
from workbench.plots import png, trend_figure, utility_figure

RATE = 0.1
METHODS = ("aligned", "vanilla")
# d3p with Poisson sampling, q = .1, C = 1, Adam 1e-3, five seeds: mean AUC (experiments.md)
D3P = {1: 0.962, 2: 0.970, 4: 0.978, 8: 0.984}
# T = 1000, average of the last half
PROTOTYPE = {0.25: 0.962, 0.5: 0.976, 1: 0.981, 2: 0.984, 4: 0.986, 8: 0.986}


def fits(epsilons, seeds, *, num_records=(500,), iterations=(1000,), baselines=()):
    """The table of a sweep over seeds of data and noise, with column ``iterate``: delta = 1/N,
    default clip and rate.
    """
    tables = []
    warnings.simplefilter("ignore", DeltaWarning)  # the papers' delta is 1 / N
    for size in num_records:
        for averaged in (False, True):
            result = wb.sweep(
                "hierarchical_logistic",
                wb.data.hierarchical,
                epsilons=epsilons,
                seeds=seeds,
                num_records=size,
                iterations=iterations,
                estimators=METHODS,
                sampling_rates=RATE,
                delta=1 / size,
                baselines=baselines if averaged else (),
                on_progress=lambda progress: None,
                training=wb.Training(average=averaged),
            )
            tables.append(result.table.assign(iterate="average" if averaged else "last"))
    return pd.concat(tables, ignore_index=True).rename(
        columns={"num_records": "N", "iterations": "T"}
    )


def lines_of(table):
    """Mean AUC of the baselines."""
    return table[table["method"] != "dp-vi"].groupby("method")["auc"].mean().round(4).to_dict()


def private(table):
    """The private fits, the estimator in the column of methods."""
    return table[table["method"] == "dp-vi"].assign(method=table["estimator"])


def main(full):
    """Print and draw the three figures."""
    seeds = range(100, 120 if full else 110)
    epsilons = (0.25, 0.5, 1, 2, 4, 8)
    counts = (1000, 100_000) if full else (1000,)
    print(
        f"\nE1, figure 4: N = 500, delta = 1/N, q = .1, {len(seeds)} seeds (data and noise)",
        flush=True,
    )
    everything = fits(epsilons, seeds, iterations=counts, baselines=["non-private", "scikit-learn"])
    table, lines = private(everything), lines_of(everything)
    shown = table.pivot_table(
        index=["T", "epsilon"], columns=["method", "iterate"], values="auc"
    ).round(4)
    shown["d3p"] = [D3P.get(epsilon, np.nan) for _, epsilon in shown.index]
    shown["prototype"] = [PROTOTYPE.get(epsilon, np.nan) for _, epsilon in shown.index]
    print("mean AUC\n" + shown.to_string(), "\n", lines, flush=True)
    deviations = table.pivot_table(
        index=["T", "epsilon"], columns=["method", "iterate"], values="auc", aggfunc="std"
    )
    print("standard deviation\n" + deviations.round(4).to_string(), flush=True)
    for count in counts:
        figure = utility_figure(
            table[(table["T"] == count) & (table["iterate"] == "average")],
            "auc",
            "public data",
            baselines=lines,
            ylabel="AUC on fresh records",
            title=f"Hierarchical logistic regression, N = 500, T = {count:,}",
        )
        (OUT / f"e1_figure4_T{count}.png").write_bytes(png(figure))

    print("\nE1, figures 5 and 6: epsilon 2, N or T varies", flush=True)
    sizes, steps = (100, 200, 500, 1000), (100, 300, 1000, 10_000, *([100_000] if full else []))
    fifth, sixth = (
        private(fits((2,), seeds, num_records=sizes)),
        private(fits((2,), seeds, iterations=steps)),
    )
    for name, rows, x in (("figure5", fifth, "N"), ("figure6", sixth, "T")):
        print(
            rows.pivot_table(index=x, columns=["method", "iterate"], values="auc")
            .round(4)
            .to_string(),
            flush=True,
        )
        figure = trend_figure(
            rows[rows["iterate"] == "average"].astype({x: float}),
            x,
            "auc",
            "method",
            "public data",
            xlabel=x,
            ylabel="AUC on fresh records",
            title=f"Hierarchical logistic regression, epsilon 2, {x} varies",
        )
        (OUT / f"e1_{name}.png").write_bytes(png(figure))
    pd.concat([table, fifth, sixth]).to_csv(OUT / "e1.csv", index=False)
