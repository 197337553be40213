"""A linear regression from one release of noised sums, beside DP-VI and the posterior without
privacy.

Truths are drawn from the prior: weights Normal(0, .15 sqrt(5 / D)), intercept Normal(0, .15), scale
HalfNormal(.1). Hardly a target leaves [-1, 1], where it is cut. Features are uniform in [-1, 1] or,
"alike", share a factor. delta is 1e-4. C is what a fit chooses, and for DP-VI what a formula's
advice is.
"""

import math
import time

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from fits import OUT

import workbench as wb
from workbench.fitting.sums import usual_norm
from workbench.models import LinearPredictor, Model, NormalResiduals
from workbench.posterior import gram_chain
from workbench.posterior.noise_aware import Prior
from workbench.posterior.statistics import LinearGaussian, statistic, sums_in
from workbench.privacy.calibration import noise_multiplier

LEVELS, EPSILONS, DELTA, DRAWS = (0.5, 0.9, 0.95), (0.1, 0.25, 0.5, 1.0, 2.0, 8.0), 1e-4, 500
WORLDS = ((1000, 5, "apart"), (5000, 20, "apart"), (1000, 5, "alike"))
SCALE, CENTRE = 0.1, 0.15


def deviation_of(features):
    return 0.15 * math.sqrt(5 / max(features, 5))


def world(random, size, features, kind):
    """(x, y, truth): weights, intercept and scale."""
    if kind == "alike":
        x = np.clip(
            random.uniform(-0.8, 0.8, (size, 1)) + 0.2 * random.normal(size=(size, features)), -1, 1
        )
    else:
        x = random.uniform(-1, 1, (size, features))
    weights = deviation_of(features) * random.normal(size=features)
    truth = np.array([*weights, CENTRE * random.normal(), abs(SCALE * random.normal())])
    y = x @ weights + truth[-2] + truth[-1] * random.normal(size=size)
    return x.astype(np.float32), np.clip(y, -1, 1).astype(np.float32), truth


def line(x, y=None, num_records=None):
    features = x.shape[-1]
    weights = numpyro.sample(
        "weights", dist.Normal(0, deviation_of(features)).expand([features]).to_event(1)
    )
    intercept, scale = (
        numpyro.sample("intercept", dist.Normal(0, CENTRE)),
        numpyro.sample("scale", dist.HalfNormal(SCALE)),
    )
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights + intercept, scale), obs=y)


LINE = Model(
    "line",
    "A line.",
    line,
    arrays=("x", "y"),
    linear=LinearPredictor("weights", "intercept", residuals=NormalResiduals("scale")),
)


def from_sums(x, y, epsilon, random):
    """Draws [draws, D + 2] from one release; without noise where epsilon is infinite."""
    size, features = x.shape
    clip = usual_norm(features, size, epsilon)
    sigma = 0.0
    if math.isfinite(epsilon):
        sigma = noise_multiplier(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=1)
    else:
        clip = usual_norm(features, size, 1e9)
    exact = np.asarray(statistic(jnp.asarray(x), jnp.asarray(y), clip), float).sum(0)
    sums = sums_in(exact + sigma * clip * random.normal(size=exact.shape), clip, sigma * clip)
    deviations = np.full(features + 1, deviation_of(features))
    deviations[-1] = CENTRE
    known = LinearGaussian(Prior(np.zeros(features + 1), deviations**-2.0), dist.HalfNormal(SCALE))
    found = gram_chain.draw(sums, known, DRAWS, random)
    return np.column_stack([found.coefficients, found.scale]), found.spread


def by_dp_vi(x, y, epsilon):
    """The same from DP-VI with its usual settings and a gaussian formula's C, and the noise-aware
    posterior.
    """
    signal = (x.shape[0] * epsilon / x.shape[1]) ** (1 / 3)
    share = min(1.0, max(min(0.7, 0.1 * signal), 0.05 * signal))
    clip = share * math.sqrt(x.shape[1] + 1) / 0.3
    data = wb.data.Dataset("made up", "Made up.", (x, y), (x[:2], y[:2]), is_public=True)
    made = wb.fit(
        LINE,
        data,
        epsilon=epsilon,
        delta=DELTA,
        clip=clip,
        ledger=False,
        training=wb.Training(estimator="aligned", draws=DRAWS),
        execution=wb.Execution(checkpoint=False),
    )
    assert made.posterior_kind == "noise-aware", made.posterior_note
    draws = made.draws
    return np.column_stack([draws["weights"], draws["intercept"], draws["scale"]]), 1.0


def row(facts, found, truths, spreads, seconds):
    """Coverage, width and error of weights, and of the other two."""
    table = dict(facts)
    truths, weights = np.array(truths), slice(0, -2)
    for level in LEVELS:
        low, high = np.quantile(np.array(found), [0.5 - level / 2, 0.5 + level / 2], axis=1)
        inside = (low <= truths) & (truths <= high)
        table[f"{level:.0%}"] = inside[:, weights].mean()
        if level == 0.9:
            table |= {
                "width": (high - low)[:, weights].mean(),
                "intercept": inside[:, -2].mean(),
                "scale": inside[:, -1].mean(),
            }
    error = np.array(found).mean(1) - truths
    table["rms"] = np.sqrt(np.square(error[:, weights]).mean())
    table |= {
        "rms of scale": np.sqrt(np.square(error[:, -1]).mean()),
        "R-hat": np.median(spreads),
        "seconds": seconds,
    }
    return table


def measured(method, size, features, kind, epsilon, repeats):
    """A row of the table."""
    random, found, truths, spreads, began = (
        np.random.default_rng(7),
        [],
        [],
        [],
        time.perf_counter(),
    )
    for _ in range(repeats):
        x, y, truth = world(random, size, features, kind)
        draws, spread = (
            by_dp_vi(x, y, epsilon) if method == "dp-vi" else from_sums(x, y, epsilon, random)
        )
        found.append(draws)
        truths.append(truth)
        spreads.append(spread)
    facts = {
        "N": size,
        "D": features,
        "kind": kind,
        "epsilon": epsilon,
        "method": method,
        "repeats": repeats,
    }
    return row(facts, found, truths, spreads, (time.perf_counter() - began) / repeats)


def main(full):
    """Print the table."""
    table = []
    for size, features, kind in WORLDS:
        for epsilon in (*EPSILONS, math.inf):
            methods = {"sums": 400 if full else 100} | (
                {"dp-vi": 60 if full else 10} if math.isfinite(epsilon) else {}
            )
            for method, repeats in methods.items():
                table.append(measured(method, size, features, kind, epsilon, repeats))
                print(pd.DataFrame(table[-1:]).round(3).to_string(index=False), flush=True)
    pd.DataFrame(table).to_csv(OUT / "one_shot.csv", index=False)
