"""Are the posterior's intervals right? Coverage against clip and epsilon, for a conjugate model and for logistic regression.

The true parameters are drawn from the prior, so the exact posterior's 90 % intervals cover them in 90 % of repeats. All
repeats of a setting differ in records and keys only and run as one vmapped loop over the library's own steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from fits import OUT
from numpyro.infer import MCMC, NUTS
from numpyro.optim import Adam
from scipy.stats import norm
from together import keys_of, train

from workbench.inference import DPVI
from workbench.models import get
from workbench.noise.chacha20 import key_from_seed
from workbench.plots import calibration_figure, png
from workbench.results._location_noise import coverage, location_noise

N, D, STEPS, RATE = 1000, 5, 1000, 0.1
NOMINAL = 0.9
PRIOR = 1.0  # of the weights


def conjugate(x, num_records=None):
    """x ~ Normal(mean, 1) with mean ~ Normal(0, 1): the posterior is known."""
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR).expand([D]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1).to_event(1), obs=x)


def conjugate_guide(x, num_records=None):
    """Mean field, which holds the exact posterior."""
    location = numpyro.param("mean_loc", jnp.zeros(D))
    scale = numpyro.param("mean_scale", jnp.full(D, 0.1), constraint=dist.constraints.softplus_positive)
    numpyro.sample("mean", dist.Normal(location, scale).to_event(1))


def means_and_records(repeats, seed):
    """(truth [repeats, D], records of each)."""
    rng = np.random.default_rng(seed)
    truth = PRIOR * rng.normal(size=(repeats, D))
    return truth, (jnp.asarray(truth[:, None] + rng.normal(size=(repeats, N, D)), jnp.float32),)


def weights_and_records(repeats, seed):
    """(truth [repeats, D + 1], intercept last; records of each), features uniform in [-1, 1]."""
    rng = np.random.default_rng(seed)
    truth = PRIOR * rng.normal(size=(repeats, D + 1))
    x = rng.uniform(-1, 1, (repeats, N, D))
    logits = np.einsum("rnd,rd->rn", x, truth[:, :-1]) + truth[:, -1:]
    y = rng.random((repeats, N)) < 1 / (1 + np.exp(-logits))
    return truth, (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))


def private_fits(model, guide, static, records, epsilon, clip):
    """(parameters averaged over the second half, [repeats, ...]; noise of a step)."""
    repeats = len(records[0])
    dpvi = DPVI(
        model, guide, Adam(STEPS**-0.5), epsilon=epsilon, delta=1e-4, iterations=STEPS, sampling_rate=RATE, clip=clip,
        average_from=STEPS // 2, **static,
    )  # fmt: skip
    state = dpvi.init(key_from_seed(0), *(array[0] for array in records), num_records=N)
    params = train(dpvi, state, keys_of(range(1, repeats + 1)), records, STEPS)["average"]
    fitted = jax.vmap(dpvi.private_step.model.constrain)(params)
    return jax.tree.map(np.asarray, fitted), dpvi.private_step.mechanism.noise_multiplier * clip / RATE


def exact_conjugate(records):
    """(means, standard deviations) of the posterior, [repeats, D]."""
    total = np.asarray(records[0], float).sum(1)
    precision = N + PRIOR**-2
    return total / precision, np.full(total.shape, precision**-0.5)


def exact_logistic(records, repeats):
    """(means, standard deviations) by NUTS without privacy, of the first ``repeats``."""
    sampler = MCMC(NUTS(get("logistic").model), num_warmup=300, num_samples=500, progress_bar=False)
    found = []
    for repeat in range(repeats):
        own = tuple(array[repeat] for array in records)
        sampler.run(jax.random.key(repeat), *own, num_records=N, prior_scale=PRIOR)
        draws = sampler.get_samples()
        found.append(np.concatenate([draws["weights"], draws["intercept"][:, None]], axis=1))
    return np.mean(found, axis=1), np.std(found, axis=1)


def rows(name, truth, means, scales, exact, step_noise, epsilon, clip):
    """Coverage, and how the private posterior stands to the exact one."""
    half = norm.ppf(0.5 + NOMINAL / 2)
    inside = np.abs(truth - means) < half * scales
    some = slice(0, len(exact[0]))
    noise = location_noise(
        scales, step_noise=step_noise, learning_rate=STEPS**-0.5, iterations=STEPS, averaged=True
    )  # fmt: skip
    return {
        "model": name,
        "epsilon": epsilon,
        "clip": round(clip, 2),
        "coverage": inside.mean(),
        "standard_error": inside.mean(1).std() / np.sqrt(len(inside)),  # coordinates of a repeat are not independent
        "foreseen": coverage(float(np.median(noise / scales)), NOMINAL),
        "sd / exact sd": float(np.mean(scales[some] / exact[1])),
        "mean off, exact sds": float(np.sqrt(np.mean(((means[some] - exact[0]) / exact[1]) ** 2))),
        "noise sd / sd": float(np.median(noise / scales)),
    }


def main(full):
    """Print coverage for both models, and draw it."""
    repeats = 50
    print(f"\nCalibration: {repeats} repeats, N = {N}, T = {STEPS}, q = {RATE}, averaged, 90 % intervals", flush=True)
    table = []
    truth, records = means_and_records(repeats, 1)
    largest = float(np.linalg.norm(np.asarray(records[0]) - truth[:, None], axis=-1).max())
    for epsilon in (1.0, 8.0):
        for clip in (0.3, 1.0, 2.0, largest):
            params, noise = private_fits(conjugate, conjugate_guide, {}, records, epsilon, clip)
            exact = exact_conjugate(records)
            table.append(rows("conjugate", truth, params["mean_loc"], params["mean_scale"], exact, noise, epsilon, clip))
    logistic = get("logistic", prior_scale=PRIOR)
    truth, records = weights_and_records(repeats, 2)
    exact = exact_logistic(records, 20 if full else 5)
    for epsilon in (1.0, 8.0):
        for clip in (0.3, 0.6, 1.0, 1.5, (D + 1) ** 0.5):
            params, noise = private_fits(logistic.model, logistic.guide, dict(logistic.options), records, epsilon, clip)
            means = np.concatenate([params["weights_loc"], params["intercept_loc"][:, None]], axis=1)
            scales = np.concatenate([params["weights_scale"], params["intercept_scale"][:, None]], axis=1)
            table.append(rows("logistic", truth, means, scales, exact, noise, epsilon, clip))
    table = pd.DataFrame(table)
    print(table.round(3).to_string(index=False), flush=True)
    table.to_csv(OUT / "calibration.csv", index=False)
    for name, own in table.groupby("model"):
        figure = calibration_figure(own, "public data", title=f"coverage of 90 % intervals, {name} model, N = {N}")
        (OUT / f"calibration_{name}.png").write_bytes(png(figure))
