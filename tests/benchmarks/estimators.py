"""Held-out AUC and seconds of the private classifier beside diffprivlib's logistic regression, at
equal epsilon.

    python estimators.py [breast_cancer] [adult] [--adult FILE] [--epsilons E ...] [--repeats K]

Both get the same training records, whose columns are scaled to [-1, 1] by public bounds, and are
scored on the same other records. diffprivlib perturbs the objective once and promises pure epsilon;
it is told the largest norm of a record, the root of the number of columns. The workbench takes
noisy steps and promises epsilon with delta, a power of ten below 1/N. All else is at its default.
Both draw secret noise, so fits are repeated. Adult is read from a CSV file, or where
``$WORKBENCH_DATA`` says.

OpenDP 0.16 has no logistic regression: ``opendp.extras.sklearn`` has principal components and the
regression of one column.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from turns import answer_of, here

import workbench as wb

DATASETS = ("breast_cancer", "adult")


def ours(train, test, epsilon, repeats):
    """AUC and seconds of fits, the first of which also compiles."""
    found = {"auc": [], "seconds": []}
    for _ in range(repeats + 1):
        began = time.perf_counter()
        fitted = wb.sklearn.PrivateClassifier(epsilon=epsilon, bounds=(-1, 1), ledger=False).fit(
            *train
        )
        found["seconds"].append(time.perf_counter() - began)
        found["auc"].append(roc_auc_score(test[1], fitted.predict_proba(test[0])[:, 1]))
    return found


def compare(name, options):
    """Print a line for each contender and epsilon."""
    data = wb.data.load(name, **({"path": options.adult} if name == "adult" else {}))
    train, test = data.train, data.evaluation
    columns = len(data.schema.columns)
    known = LogisticRegression(max_iter=5000).fit(*train)
    without = roc_auc_score(test[1], known.predict_proba(test[0])[:, 1])
    print(
        f"\n{name}: {len(train[1])} records, {columns} columns, {train[0].shape[1]} features; "
        f"AUC without privacy {without:.4f}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.npz"
        np.savez(file, x=train[0], y=train[1], test_x=test[0], test_y=test[1])
        for epsilon in options.epsilons:
            theirs = answer_of(
                "diffprivlib",
                "diffprivlib_logistic.py",
                file,
                "--epsilon",
                epsilon,
                "--norm",
                columns**0.5,
                "--repeats",
                options.repeats,
            )
            own = ours(train, test, epsilon, options.repeats)
            for contender, found, first in (
                ("workbench", own, own["seconds"][0]),
                ("diffprivlib", theirs, None),
            ):
                repeated = found["seconds"][1 if first else 0 :]
                print(
                    f"  epsilon {epsilon:<4g} {contender:12} AUC "
                    f"{statistics.mean(found['auc']):.4f} (from {min(found['auc']):.4f} to "
                    f"{max(found['auc']):.4f})   {statistics.median(repeated):7.3f} s a fit"
                    + (f", the first {first:.1f} s" if first else ""),
                    flush=True,
                )


def main():
    """Compare on the chosen data sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", choices=[*DATASETS, []])
    parser.add_argument("--adult", help="CSV file of Adult")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 3.0])
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    print(here())
    for name in options.datasets or DATASETS:
        compare(name, options)


if __name__ == "__main__":
    main()
