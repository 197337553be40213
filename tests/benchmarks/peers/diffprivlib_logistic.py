"""Logistic regression of diffprivlib on what estimators.py wrote to a file. Prints AUC and seconds
of fits as JSON.
"""

import argparse
import json
import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression
from sklearn.metrics import roc_auc_score


def main():
    """Fit and print the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--norm", type=float, required=True, help="largest norm of a record")
    parser.add_argument("--repeats", type=int, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = np.load(options.file)
    found = {"auc": [], "seconds": []}
    for _ in range(options.repeats):
        began = time.perf_counter()
        model = LogisticRegression(
            epsilon=options.epsilon, data_norm=options.norm, max_iter=1000
        ).fit(data["x"], data["y"])
        found["seconds"].append(time.perf_counter() - began)
        found["auc"].append(
            roc_auc_score(data["test_y"], model.predict_proba(data["test_x"])[:, 1])
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
