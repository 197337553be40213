"""A table of numbers from one release of its moments: 95 % intervals of a mean, a regression slope
among columns, a correlation, a deviation and the difference of two columns' means, from the
posterior and from twins.

Records are normal, bounds are four standard deviations from the mean or ten times as far ("wide"),
and delta is 1e-5. The naive intervals are those from one set of N records of one draw.
"""

import sys
import time
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
from fits import OUT

import workbench as wb
from workbench.posterior.joint_normal import NormalWishart, draw, norm_of, statistic
from workbench.privacy.calibration import noise_multiplier

SIZE, COLUMNS, SETS, DRAWS, Z = 2000, 3, 30, 400, 1.959964
EPSILONS, DELTA = (0.5, 1.0, 4.0), 1e-5
TRUTH = np.array([[1.0, 0.5, 0.3], [0.5, 1.0, -0.2], [0.3, -0.2, 1.0]])
QUANTITIES = ("mean", "slope", "correlation", "log deviation", "difference of means")


def of_moments(mean, covariance):
    """The quantities of one table's or of many draws' moments, float[..., 5]."""
    slopes = np.linalg.solve(covariance[..., 1:, 1:], covariance[..., 1:, :1])[..., 0]
    deviations = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    correlation = covariance[..., 0, 1] / deviations[..., 0] / deviations[..., 1]
    difference = mean[..., 0] - mean[..., 1]
    logs = np.log(deviations[..., 0])
    return np.stack([mean[..., 0], slopes[..., 0], np.arctanh(correlation), logs, difference], -1)


def analysed(table):
    """The quantities of a table and their variances, by an analyst's usual formulas."""
    mean, covariance = table.mean(axis=0), np.cov(table.T)
    design = np.column_stack([np.ones(len(table)), table[:, 1:]])
    inverse = np.linalg.inv(design.T @ design)
    residuals = table[:, 0] - design @ (inverse @ (design.T @ table[:, 0]))
    of_slope = residuals @ residuals / (len(table) - 3) * inverse[1, 1]
    count = len(table)
    of_difference = (covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) / count
    variances = [covariance[0, 0] / count, of_slope, 1 / (count - 3), 0.5 / (count - 1)]
    variances.append(of_difference)
    return of_moments(mean, covariance), np.array(variances)


def intervals(epsilon, width, seed):
    """Ends of intervals by method, float[2, 5], of scaled columns; the truth; and R-hat."""
    random = np.random.default_rng(seed)
    scale = 1 / (4 * width)
    mean, covariance = np.full(COLUMNS, 0.5 * scale), TRUTH * scale**2
    table = np.clip(random.multivariate_normal(mean, covariance, SIZE), -1, 1)
    exact = np.asarray(statistic(jnp.asarray(table)), float).sum(axis=0)
    sigma = noise_multiplier(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=1)
    noise = sigma * norm_of(COLUMNS)
    released = exact + noise * random.normal(size=exact.shape)
    drawn = draw(released, noise, NormalWishart(), DRAWS, random)
    own = np.quantile(of_moments(drawn.mean, drawn.covariance), [0.025, 0.975], axis=0)
    answers = []
    for place in random.permutation(DRAWS)[:SETS]:
        rows = random.multivariate_normal(drawn.mean[place], drawn.covariance[place], 10 * SIZE)
        answers.append(analysed(np.clip(rows, -1, 1)))
    middle, variances = analysed(np.clip(rows[:SIZE], -1, 1))
    reach = Z * np.sqrt(variances)
    ends = {"naive": np.stack([middle - reach, middle + reach]), "posterior": own}
    for method, rule in (("twins", "variance"), ("mixture", "mixture")):
        combined = wb.combine(
            [answer[0] for answer in answers], [np.diag(answer[1]) for answer in answers], rule=rule
        )
        ends[method] = combined[["95%_low", "95%_high"]].to_numpy().T
    return ends, of_moments(mean, covariance), drawn.spread


def row(epsilon, width, found, seconds):
    """Coverage by method and quantity, and median widths relative to the posterior's."""
    facts = {"epsilon": epsilon, "bounds": "wide" if width > 1 else "honest", "repeats": len(found)}
    for method in ("naive", "twins", "mixture", "posterior"):
        inside = [
            (ends[method][0] <= truth) & (truth <= ends[method][1]) for ends, truth, _ in found
        ]
        facts |= {
            f"{method} {q}": share for q, share in zip(QUANTITIES, np.mean(inside, 0), strict=True)
        }
    ratios = [np.ptp(ends["twins"], 0) / np.ptp(ends["posterior"], 0) for ends, *_ in found]
    facts["width"] = np.median(ratios)
    facts["settled"] = np.mean([spread <= 1.1 for *_, spread in found])
    return facts | {"seconds": seconds}


def main(full):
    """Print and keep the table. :param full: 400 repeats instead of 20."""
    warnings.simplefilter("ignore")
    rows = []
    for width in (1, 10):
        for epsilon in EPSILONS:
            began = time.perf_counter()
            found = [intervals(epsilon, width, seed) for seed in range(400 if full else 20)]
            rows.append(row(epsilon, width, found, time.perf_counter() - began))
            print(pd.DataFrame(rows).round(3).T.to_string(), flush=True)
            pd.DataFrame(rows).to_csv(OUT / "normal_table.csv", index=False)


if __name__ == "__main__":
    main("--full" in sys.argv)
