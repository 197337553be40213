"""UCI Adult, logistic regression: AUC over epsilon against scikit-learn without privacy."""

import numpy as np
import pandas as pd
from fits import OUT, Job, run_all
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import workbench as wb
from workbench.plots import png, utility_figure

# T = 1000, q = .01, C = 1, averaged
PROTOTYPE = {0.1: 0.8965, 0.5: 0.9018, 1: 0.9020, 2: 0.9021, 8: 0.9022}
PROTOTYPE_WITHOUT_PRIVACY = 0.9023


def main(full):
    """Print the table and draw it; skipped with a line where the file is neither at hand nor to be
    had.
    """
    try:
        data = wb.data.load("adult")
    except wb.ArgumentError as error:
        print(f"\nAdult: skipped. {error}")
        return
    (x, y), (test_x, test_y) = data.train, data.evaluation
    predicted = LogisticRegression(max_iter=2000).fit(x, y).predict_proba(test_x)[:, 1]
    best = roc_auc_score(test_y, predicted)
    print(
        f"\nAdult: {len(x)} training records, {x.shape[1]} features; scikit-learn AUC "
        f"{best:.4f}, log-likelihood {-log_loss(test_y, predicted):.4f}; delta 1e-5, default "
        "settings",
        flush=True,
    )
    jobs = [
        Job(
            "logistic",
            "load",
            {"name": "adult"},
            {"epsilon": epsilon, "delta": 1e-5, "estimator": gradient, "seed": seed},
            about={"epsilon": epsilon, "method": gradient, "seed": seed},
        )
        for epsilon in (0.1, 0.5, 1, 2, 8)
        for gradient in ("aligned", "vanilla")
        for seed in range(5 if full else 2)
    ]
    table = run_all(jobs)
    shown = table.pivot_table(index="epsilon", columns=["method", "iterate"], values="auc").round(4)
    shown["prototype"] = [PROTOTYPE.get(epsilon, np.nan) for epsilon in shown.index]
    print(
        "AUC\n" + shown.to_string(),
        f"\nprototype without privacy {PROTOTYPE_WITHOUT_PRIVACY}",
        flush=True,
    )
    likelihoods = table.pivot_table(
        index="epsilon", columns=["method", "iterate"], values="log_likelihood"
    )
    print("log-likelihood\n" + likelihoods.round(4).to_string(), flush=True)
    figure = utility_figure(
        table[table.iterate == "average"],
        "auc",
        "public data",
        baselines={"scikit-learn, no privacy": best},
        ylabel="AUC on the test records",
        title="Adult, logistic regression, default settings",
    )
    (OUT / "adult.png").write_bytes(png(figure))
    pd.DataFrame(table).to_csv(OUT / "adult.csv", index=False)
