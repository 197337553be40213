"""E1: hierarchical logistic regression, figures 4, 5 and 6 of the paper of d3p (experiments.md)."""

import numpy as np
import pandas as pd
from fits import OUT, Job, run_all
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import workbench as wb
from workbench.plots import png, trend_figure, utility_figure

# d3p with Poisson sampling, q = .1, C = 1, Adam 1e-3, five seeds: mean AUC, as published beside the issue
D3P = {1: 0.962, 2: 0.970, 4: 0.978, 8: 0.984}
PROTOTYPE = {0.25: 0.962, 0.5: 0.976, 1: 0.981, 2: 0.984, 4: 0.986, 8: 0.986}  # T = 1000, average of the last half


def job(seed, epsilon, gradient, *, num_records=500, iterations=None):
    """One fit on data of their own seed."""
    about = {"epsilon": epsilon, "method": gradient, "N": num_records, "T": iterations, "seed": seed}
    settings = {}
    if epsilon is not None:
        settings = {
            "epsilon": epsilon,
            "delta": 1 / num_records,
            "sampling_rate": 0.1,
            "gradient": gradient,
            "seed": 1000 + seed,
            "iterations": iterations,
        }
    data = {"num_records": num_records, "num_evaluation": num_records, "seed": seed}
    return Job("hierarchical_logistic", "hierarchical", data, settings, about=about)


def pooled(seeds, num_records=500):
    """AUC of scikit-learn's logistic regression that knows nothing of groups."""
    scores = []
    for seed in seeds:
        data = wb.data.hierarchical(num_records=num_records, num_evaluation=num_records, seed=seed)
        (x, _, y), (test_x, _, test_y) = data.train, data.evaluation
        scores.append(roc_auc_score(test_y, LogisticRegression().fit(x, y).predict_proba(test_x)[:, 1]))
    return float(np.mean(scores))


def main(full):
    """Print and draw the three figures."""
    seeds = range(100, 110 if full else 105)
    steps = (1000, 100_000) if full else (1000,)
    methods = ("aligned", "vanilla")
    print(f"\nE1, figure 4: N = 500, delta = 1/N, q = .1, seeds {len(seeds)} (data and noise)", flush=True)
    jobs = [
        job(seed, epsilon, method, iterations=count)
        for count in steps
        for epsilon in (0.25, 0.5, 1, 2, 4, 8)
        for method in methods
        for seed in seeds
    ]
    jobs += [job(seed, None, "non-private") for seed in seeds]
    table = run_all(jobs)
    baselines = {
        "non-private SVI": table[table.method == "non-private"].auc.mean(),
        "pooled scikit-learn": pooled(seeds),
    }
    private = table[table.method != "non-private"]
    shown = private.pivot_table(index=["T", "epsilon"], columns=["method", "iterate"], values="auc").round(4)
    shown["d3p"] = [D3P.get(epsilon, np.nan) for _, epsilon in shown.index]
    shown["prototype"] = [PROTOTYPE.get(epsilon, np.nan) for _, epsilon in shown.index]
    print("mean AUC\n" + shown.to_string(), "\n", baselines, flush=True)
    deviations = private.pivot_table(index=["T", "epsilon"], columns=["method", "iterate"], values="auc", aggfunc="std")
    print("standard deviation\n" + deviations.round(4).to_string(), flush=True)
    for count in steps:
        chosen = private[(private["T"] == count) & (private.iterate == "average")]
        figure = utility_figure(
            chosen,
            "auc",
            "public data",
            baselines=baselines,
            ylabel="AUC on fresh records",
            title=f"Hierarchical logistic regression, N = 500, T = {count:,}",
        )
        (OUT / f"e1_figure4_T{count}.png").write_bytes(png(figure))

    few = seeds if full else seeds[:3]
    print("\nE1, figure 5: epsilon 2, T = 1000, N varies", flush=True)
    fifth = run_all([
        job(seed, 2, method, num_records=size, iterations=1000)
        for size in (100, 200, 500, 1000) for method in methods for seed in few
    ])  # fmt: skip
    print("\nE1, figure 6: epsilon 2, N = 500, T varies", flush=True)
    sixth = run_all([
        job(seed, 2, method, iterations=count)
        for count in ((100, 300, 1000, 10_000, 100_000) if full else (100, 300, 1000, 10_000))
        for method in methods for seed in few
    ])  # fmt: skip
    for name, rows, x in (("figure5", fifth, "N"), ("figure6", sixth, "T")):
        print(rows.pivot_table(index=x, columns=["method", "iterate"], values="auc").round(4).to_string(), flush=True)
        figure = trend_figure(
            rows[rows.iterate == "average"],
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
