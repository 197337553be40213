"""E1: hierarchical logistic regression, figures 4, 5 and 6 of the paper of d3p (experiments.md)."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
from fits import OUT, non_private
from numpyro.optim import Adam
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from together import keys_of, predictions_of, train

import workbench as wb
from workbench.inference import DPVI
from workbench.plots import png, trend_figure, utility_figure
from workbench.privacy.mechanism import GaussianMechanism
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.randomness import key_from_seed

RATE = 0.1
METHODS = ("aligned", "vanilla")
# d3p with Poisson sampling, q = .1, C = 1, Adam 1e-3, five seeds: mean AUC (experiments.md)
D3P = {1: 0.962, 2: 0.970, 4: 0.978, 8: 0.984}
PROTOTYPE = {0.25: 0.962, 0.5: 0.976, 1: 0.981, 2: 0.984, 4: 0.986, 8: 0.986}  # T = 1000, average of the last half


def fits(epsilons, seeds, gradient, *, num_records=500, steps=1000):
    """A row for each epsilon, seed (of data and noise) and iterate; default clip and learning rate."""
    model = wb.models.get("hierarchical_logistic")
    sets = [wb.data.hierarchical(num_records=num_records, num_evaluation=num_records, seed=seed) for seed in seeds]
    cells = [(epsilon, place) for epsilon in epsilons for place in range(len(sets))]
    clip = model.advice(sets[0], num_records, epsilons[0])["clip"]
    plans = {
        epsilon: make_plan(
            PrivacySettings(epsilon, 1 / num_records, steps, RATE, "poisson", clip, num_records, seed=0), num_records
        )
        for epsilon in epsilons
    }
    static = {**model.options, **model.constants(sets[0])}
    dpvi = DPVI(
        model.model,
        model.guide,
        Adam(steps**-0.5),
        # the plans' samplers differ in padding alone, and the widest serves all
        sampler=max((plan.sampler for plan in plans.values()), key=lambda sampler: sampler.capacity),
        mechanism=GaussianMechanism(clip, 1.0),
        gradient=gradient,
        average_from=steps // 2,
        **static,
    )
    start = dpvi.init(key_from_seed(0), *sets[0].train, num_records=num_records)

    def stacked(part):
        return tuple(jnp.stack([getattr(sets[place], part)[array] for _, place in cells]) for array in range(3))

    keys = keys_of([1000 + seeds[place] for _, place in cells])
    constants = {"group_features": jnp.stack([jnp.asarray(sets[place].group_features) for _, place in cells])}
    noise = [plans[epsilon].mechanism.noise_multiplier for epsilon, _ in cells]
    iterates = train(dpvi, start, keys, stacked("train"), steps, constants=constants, noise=noise)
    test = stacked("evaluation")
    rows = []
    for iterate, params in iterates.items():
        found = predictions_of(dpvi, model.predict, params, keys, test[:2], constants=constants)
        for (epsilon, place), probability, target in zip(cells, found, np.asarray(test[2]), strict=True):
            rows.append(
                {"epsilon": epsilon, "method": gradient, "N": num_records, "T": steps, "seed": seeds[place]}
                | {"iterate": iterate, "auc": roc_auc_score(target, probability)}
                | {"log_likelihood": -log_loss(target, np.clip(probability, 1e-7, 1 - 1e-7), labels=[0, 1])}
            )
    return rows


def baselines(seeds, num_records=500):
    """AUC without privacy: the same model, scikit-learn that knows nothing of groups, and the true weights."""
    found = {"non-private SVI": [], "pooled scikit-learn": []}
    for seed in seeds:
        data = wb.data.hierarchical(num_records=num_records, num_evaluation=num_records, seed=seed)
        (x, _, y), (test_x, _, test_y) = data.train, data.evaluation
        found["pooled scikit-learn"].append(
            roc_auc_score(test_y, LogisticRegression().fit(x, y).predict_proba(test_x)[:, 1])
        )
        found["non-private SVI"].append(non_private(wb.models.get("hierarchical_logistic"), data)["auc"])
    return {name: float(np.mean(values)) for name, values in found.items()}


def main(full):
    """Print and draw the three figures."""
    seeds = range(100, 120 if full else 110)
    epsilons = (0.25, 0.5, 1, 2, 4, 8)
    counts = (1000, 100_000) if full else (1000,)
    print(f"\nE1, figure 4: N = 500, delta = 1/N, q = .1, {len(seeds)} seeds (data and noise)", flush=True)
    table = pd.DataFrame([row for T in counts for method in METHODS for row in fits(epsilons, seeds, method, steps=T)])
    lines = baselines(seeds)
    shown = table.pivot_table(index=["T", "epsilon"], columns=["method", "iterate"], values="auc").round(4)
    shown["d3p"] = [D3P.get(epsilon, np.nan) for _, epsilon in shown.index]
    shown["prototype"] = [PROTOTYPE.get(epsilon, np.nan) for _, epsilon in shown.index]
    print("mean AUC\n" + shown.to_string(), "\n", lines, flush=True)
    deviations = table.pivot_table(index=["T", "epsilon"], columns=["method", "iterate"], values="auc", aggfunc="std")
    print("standard deviation\n" + deviations.round(4).to_string(), flush=True)
    for count in counts:
        figure = utility_figure(
            table[(table["T"] == count) & (table.iterate == "average")],
            "auc",
            "public data",
            baselines=lines,
            ylabel="AUC on fresh records",
            title=f"Hierarchical logistic regression, N = 500, T = {count:,}",
        )
        (OUT / f"e1_figure4_T{count}.png").write_bytes(png(figure))

    print("\nE1, figures 5 and 6: epsilon 2, N or T varies", flush=True)
    sizes, steps = (100, 200, 500, 1000), (100, 300, 1000, 10_000, *([100_000] if full else []))
    fifth = pd.DataFrame([row for N in sizes for method in METHODS for row in fits((2,), seeds, method, num_records=N)])
    sixth = pd.DataFrame([row for T in steps for method in METHODS for row in fits((2,), seeds, method, steps=T)])
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
