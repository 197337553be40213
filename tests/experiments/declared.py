"""How right the answers of a formula are by what is declared of its columns: nothing, far too much,
or the ranges that the columns have.

Tables are those that users have: bounds far too wide, skewed columns, long tails, clumps. A truth
is drawn for each repeat, in effects per standard deviation of the column as it is.
"""

import warnings

import numpy as np
import pandas as pd
from fits import OUT
from sklearn.linear_model import LogisticRegression

import workbench as wb

DELTA = 1e-5
WIDE = {"normal": (-3.3, 3.3), "uniform": (-1, 1), "ten times": (0, 1000), "fifty times": (0, 5000)}
WIDE |= {"incomes": (0, 1e6), "skewed": (0, 1e6), "heavy": (-1000, 1000), "clumps": (0, 1000)}
CASES = (  # kind of columns, family, N, epsilon, number of columns
    ("normal", "bernoulli", 5000, 1.0, 3),
    ("uniform", "bernoulli", 5000, 1.0, 3),
    ("ten times", "bernoulli", 5000, 1.0, 3),
    ("incomes", "bernoulli", 5000, 1.0, 3),
    ("skewed", "bernoulli", 5000, 1.0, 3),
    ("heavy", "bernoulli", 5000, 1.0, 3),
    ("clumps", "bernoulli", 5000, 1.0, 3),
    ("ten times", "bernoulli", 5000, 1.0, 10),
    ("ten times", "bernoulli", 1000, 0.3, 3),
    ("ten times", "poisson", 5000, 1.0, 3),
    ("ten times", "gaussian", 5000, 1.0, 3),
    ("incomes", "gaussian", 20000, 1.0, 3),
    ("skewed", "gaussian", 20000, 1.0, 3),
    ("groups", "bernoulli", 5000, 1.0, 3),
    ("fifty times", "bernoulli", 50000, 3.0, 3),
)


def columns(kind, random, size):
    """float64[size]: columns as they are, within what is declared of them."""
    z = random.normal(size=size)
    made = {
        "normal": lambda: z,
        "uniform": lambda: random.uniform(-1, 1, size),
        "ten times": lambda: 50 + 15 * z,
        "groups": lambda: 50 + 15 * z,
        "fifty times": lambda: 250 + 15 * z,
        "incomes": lambda: 30000 * np.exp(0.6 * z),
        "skewed": lambda: 100 * np.exp(2 * z),
        "heavy": lambda: random.standard_t(2.5, size),
        "clumps": lambda: np.where(random.random(size) < 0.5, 10, 20) + 0.3 * z,
    }[kind]()
    return np.clip(made, *WIDE.get(kind, (0, 1000)))


def table(kind, family, num_records, num_columns, seed):
    """(the table, effects per standard deviation, standard deviations, the formula)."""
    random = np.random.default_rng(1000 + seed)
    x = columns(kind, random, (num_records, num_columns))
    effects = random.normal(size=num_columns) * (0.35 if family == "poisson" else 0.7)
    spread = x.std(axis=0)
    predictor = ((x - np.median(x, axis=0)) / spread) @ effects + 0.3
    names = [f"x{number}" for number in range(num_columns)]
    frame, formula = pd.DataFrame(x, columns=names), f"y ~ {' + '.join(names)}"
    if kind == "groups":
        group = random.integers(0, 20, num_records)
        predictor = predictor + random.normal(0, 0.7, 20)[group]
        frame["ward"] = [f"ward {number}" for number in group]
        formula += " + (1 | ward)"
    frame["y"] = {
        "bernoulli": lambda: random.random(num_records) < 1 / (1 + np.exp(-predictor)),
        "poisson": lambda: random.poisson(np.exp(np.minimum(predictor, 4))),
        "gaussian": lambda: predictor + random.normal(0, 0.5, num_records),
    }[family]()
    return frame, effects, spread, formula


def declarations(kind, family, frame):
    """{what is declared: (schema, privacy)}."""
    names = [name for name in frame if name.startswith("x")]
    wide = {"bernoulli": bool, "poisson": (0, 100), "gaussian": (-100, 100)}[family]
    wards = {"ward": sorted(set(frame["ward"]))} if kind == "groups" else {}
    shown = {name: tuple(frame[name].quantile([0.001, 0.999])) for name in names}
    true_y = tuple(frame["y"].quantile([0.0005, 0.9995])) if family == "gaussian" else wide
    return {
        "nothing": (None, wb.Privacy()),
        "wide": (
            dict.fromkeys(names, WIDE.get(kind, (0, 1000))) | wards | {"y": wide},
            wb.Privacy(),
        ),
        "true ranges": (shown | wards | {"y": true_y}, wb.Privacy(look=0)),
    }


def fit(case, how, seed):
    """A line of the table of all fits."""
    kind, family, num_records, epsilon, num_columns = case
    frame, effects, spread, formula = table(kind, family, num_records, num_columns, seed)
    schema, privacy = declarations(kind, family, frame)[how]
    try:
        result = wb.fit(
            formula,
            frame,
            family=family,
            schema=schema,
            epsilon=epsilon,
            delta=DELTA,
            ledger=False,
            privacy=privacy,
            execution=wb.Execution(progress=False, checkpoint=False),
        )
    except wb.ArgumentError as error:
        if error.argument != "epsilon":  # which is too small to learn anything
            raise
        unknown = np.full(num_columns, np.nan)
        unseen = {"coverage": np.nan, "failed": True}
        return line(case, how, seed, effects, (unknown,) * 3) | unseen
    shown = result.coefficients().loc[[f"x{number}" for number in range(num_columns)]]
    mean, low, high = (
        np.asarray(shown[name], float) * spread for name in ("mean", "hdi_90%_low", "hdi_90%_high")
    )
    return line(case, how, seed, effects, (mean, low, high)) | {
        "cautious": bool(result.cautions),
        "failed": result.status != "done",
    }


def line(case, how, seed, effects, estimates):
    """What a fit says of the effects. :param estimates: mean, low and high, float[D] each."""
    mean, low, high = estimates
    return {
        **dict(zip(("columns", "family", "N", "epsilon", "D"), case, strict=True)),
        "declared": how,
        "seed": seed,
        "coverage": np.mean((low < effects) & (effects < high)),
        "square": np.mean((mean - effects) ** 2),
        "width": np.median(high - low),
        "slope": (mean @ effects) / (effects @ effects),
        "cautious": False,
        "failed": False,
    }


def likelihood(case, seed):
    """The line of maximum likelihood without privacy, for a logistic regression."""
    kind, family, num_records, _, num_columns = case
    frame, effects, spread, _ = table(kind, family, num_records, num_columns, seed)
    x = frame.drop(columns="y").to_numpy()
    z = (x - np.median(x, axis=0)) / spread
    fitted = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(z, frame["y"])
    chance = fitted.predict_proba(z)[:, 1]
    design = np.column_stack([np.ones(len(z)), z])
    information = design.T @ (design * (chance * (1 - chance))[:, None])
    reach = 1.645 * np.sqrt(np.diag(np.linalg.inv(information)))[1:]
    mean = fitted.coef_[0]
    return line(case, "no privacy", seed, effects, (mean, mean - reach, mean + reach))


def main(full):
    """Print coverage of 90 % intervals, error and width by what is declared, and how many repeats
    came with a caution.
    """
    warnings.simplefilter("ignore")
    lines = []
    for case in CASES:
        is_logistic = case[1] == "bernoulli" and case[0] != "groups"
        for how in ("nothing", "wide", "true ranges", *(["no privacy"] if is_logistic else [])):
            for seed in range((40 if full else 12) if case[2] < 50000 else 6):
                lines.append(
                    likelihood(case, seed) if how == "no privacy" else fit(case, how, seed)
                )
            pd.DataFrame(lines).to_csv(OUT / "declared.csv", index=False)
            of = pd.DataFrame(lines).tail(1 + lines[-1]["seed"])
            print(
                f"{case[0]:12} {case[1]:10} N {case[2]:<6} epsilon {case[3]:<4g} D {case[4]:<3} "
                f"{how:12} coverage {of.coverage.mean():.2f}  error {of.square.mean() ** 0.5:.4f}  "
                f"width {of.width.median():.3f}  slope {of.slope.mean():.2f}  "
                f"cautions {of.cautious.sum()}, refused {of.failed.sum()} of {len(of)}",
                flush=True,
            )
