"""A made-up table with columns of all kinds, and its declaration."""

import numpy as np
import pandas as pd

SCHEMA = {
    "age": (0, 120),
    "bmi": (10, 50),
    "ward": ["a", "b", "c"],
    "sex": ["f", "m"],
    "site": list("uvwxyz"),
    "ill": bool,
    "cost": (-20, 60),
    "risk": (0.5, 4),
    "n": (1, 20, int),
    "wins": (0, 20, int),
    "grade": ["low", "mid", "high"],
    "days": (0, 40, int),
    "person": (0, 10**6, int),
}


def made(rows=3000, seed=0):
    random = np.random.default_rng(seed)
    age, bmi = random.uniform(20, 80, rows), random.uniform(15, 40, rows)
    ward, sex, site = (random.choice(list(levels), rows) for levels in ("abc", "fm", "uvwxyz"))
    risk, n = random.uniform(0.5, 4, rows), random.integers(1, 20, rows)
    linear = (
        -1
        + 0.03 * (age - 50)
        + 0.6 * (ward == "b")
        - 0.4 * (ward == "c")
        + 0.02 * (age - 50) * (sex == "m")
    )
    p = 1 / (1 + np.exp(-linear))
    return pd.DataFrame(
        {
            "age": age,
            "bmi": bmi,
            "ward": ward,
            "sex": sex,
            "site": site,
            "risk": risk,
            "n": n,
            "ill": random.random(rows) < p,
            "days": random.poisson(risk * np.exp(0.3 * linear)),
            "cost": 20 + 5 * linear + random.normal(0, 4, rows),
            "wins": random.binomial(n, p),
            "grade": random.choice(["low", "mid", "high"], rows),
            "person": np.arange(rows) // 3,
        }
    )
