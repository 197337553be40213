"""The rule of workbench/fitting/defaults.py and the clipping norm of the logistic model, chosen on
synthetic tables.

Held-out log-likelihood and AUC against the clipping norm as a share of the largest norm that a
record's gradient can have, sqrt(D + 1), and against the number of steps.
"""

import numpy as np
import pandas as pd
from fits import OUT, Job, run_all

import workbench as wb


def table(num_records, num_features, seed, num_evaluation=2000):
    """Correlated features in [-1, 1], away from zero as scaled tables are, and a target drawn from
    a logistic model.
    """
    rng = np.random.default_rng(seed)
    rows, factors = num_records + num_evaluation, max(2, num_features // 5)
    common = (
        rng.normal(size=(rows, factors))
        @ rng.normal(size=(factors, num_features))
        / np.sqrt(factors)
    )
    x = np.tanh(0.5 * common + 0.2 * rng.normal(size=(rows, num_features)) - 0.5)
    logits = x @ rng.normal(size=num_features) * 3 * np.sqrt(3 / num_features)
    y = (rng.random(rows) < 1 / (1 + np.exp(logits.mean() - logits))).astype(np.int32)
    return wb.data.from_arrays(
        x[:num_records],
        y[:num_records],
        evaluation=(x[num_records:], y[num_records:]),
        bounds=(-1, 1),
        evaluation_is_public=True,
        name=f"table {num_records} x {num_features}",
    )


def main(full):
    """Print what each share and each number of steps reaches, averaged over seeds."""
    sizes = ((300, 5), (1000, 10), (1000, 30), (5000, 10), (5000, 50)) if full else ((1000, 10),)
    seeds = range(3 if full else 2)
    epsilons = (0.1, 1, 8) if full else (1,)
    shares = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0) if full else (0.2, 0.5, 1.0)

    def job(size, epsilon, seed, share=0.5, steps=1000):
        about = {"N": size[0], "D": size[1], "epsilon": epsilon, "share": share, "T": steps}
        settings = {
            "epsilon": epsilon,
            "delta": 1 / size[0],
            "clip": share * (size[1] + 1) ** 0.5,
            "iterations": steps,
        }
        data = {"num_records": size[0], "num_features": size[1], "seed": seed}
        return Job("logistic", table, data, {**settings, "seed": 1 + seed}, about=about)

    grid = [(size, epsilon, seed) for size in sizes for epsilon in epsilons for seed in seeds]
    found = run_all([job(*cell, share=share) for cell in grid for share in shares])
    steps = run_all([job(*cell, steps=count) for cell in grid for count in (300, 1000, 3000)])
    print("\nThe rule: clipping norm as a share of sqrt(D + 1); T = 1000, averaged", flush=True)
    for metric in ("log_likelihood", "auc"):
        shown = found[found.iterate == "average"].pivot_table(
            index=["N", "D", "epsilon"], columns="share", values=metric
        )
        print(f"{metric}\n{shown.round(3).to_string()}", flush=True)
    shown = steps.pivot_table(
        index=["N", "D", "epsilon"], columns=["iterate", "T"], values="log_likelihood"
    )
    print(f"steps: log_likelihood\n{shown.round(3).to_string()}", flush=True)
    pd.concat([found, steps]).to_csv(OUT / "rule.csv", index=False)
