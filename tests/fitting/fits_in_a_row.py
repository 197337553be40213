"""Fits of formulas one after another; prints the resident memory in MiB after the tenth and after
the last.

As a user's session: tables of other lengths, formulas and families, each fitted, summarised and
predicted.
"""

import gc
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import workbench as wb

KINDS = (
    ("yes ~ x + z", "bernoulli"),
    ("count ~ x", "poisson"),
    ("yes ~ x + z + x:z", "bernoulli"),
    ("total ~ x + z", "gaussian"),
    ("yes ~ x + (1 | g)", "bernoulli"),
)
SCHEMA = {
    "x": (0, 10),
    "z": (-1, 1),
    "g": ["a", "b", "c"],
    "yes": bool,
    "count": (0, 30, int),
    "total": (-30, 30),
}


def table(random, rows):
    x, z, g = (
        random.uniform(0, 10, rows),
        random.uniform(-1, 1, rows),
        random.choice(list("abc"), rows),
    )
    yes = random.random(rows) < 1 / (1 + np.exp(5 - x))
    count = np.minimum(random.poisson(np.exp(x / 5)), 30)
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "g": g,
            "yes": yes,
            "count": count,
            "total": x + z + random.normal(size=rows),
        }
    )


def resident():
    """MiB of this process in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main(number):
    warnings.simplefilter("ignore")
    random = np.random.default_rng(0)
    for fit in range(1, number + 1):
        text, family = KINDS[fit % len(KINDS)]
        frame = table(random, int(random.integers(300, 600)))
        columns = {name: SCHEMA[name] for name in re.findall(r"[a-z]+", text)}
        result = wb.fit(
            text, frame, family=family, schema=columns, epsilon=1.0, delta=1e-4, iterations=200
        )
        result.coefficients()
        result.predict(frame)
        del result
        gc.collect()
        if fit in (1, 2, 5, 10, number) or fit % 20 == 0:
            print(fit, round(resident()), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
