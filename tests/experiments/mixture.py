"""E2: a Gaussian mixture of five spherical components in two dimensions, figure 7 of the paper of
d3p (experiments.md).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from fits import OUT
from numpyro.optim import Adam
from scipy.special import logsumexp

import workbench as wb
from workbench.inference import DPVI
from workbench.inference.batched import BatchedProgram, stacked, starting_states, unconstrained
from workbench.noise.chacha20 import fast_key, key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.plots import png, utility_figure
from workbench.record_model.elbo import held_out
from workbench.sampling import PoissonSampler
from workbench.sampling.poisson import overflow_capacity

N, TEST, STEPS, BATCH, DELTA = 2000, 100, 1000, 6, 1e-3
ITERATES = ("last", "average")
SIGMAS = (0.27, 0.34, 0.48, 1.05, 2.0)
D3P = {0.27: -3.96, 0.34: -3.97, 0.48: -3.97, 1.05: -4.00, 2.0: -4.05, 0.0: -3.69}
PROTOTYPE = {0.27: -3.754, 0.34: -3.771, 0.48: -3.781, 1.05: -3.844, 2.0: -3.937}


def fits(sigma, repeats, model, settings, gradient):
    """Held-out log-likelihood a point of the last and the averaged iterate, float[repeats, 2]; data
    and keys differ.
    """
    sets = [
        wb.data.mixture(num_records=N, num_evaluation=TEST, seed=100 + repeat)
        for repeat in range(repeats)
    ]
    train_sets, test_sets = (
        jnp.stack([getattr(data, part)[0] for data in sets]) for part in ("train", "evaluation")
    )
    rate = BATCH / N
    sampler = PoissonSampler(N, rate, overflow_capacity(N, rate, np.log(1e-12)))
    static = {**model.options, **model.constants(sets[0])}
    privacy = sampler, GaussianMechanism(settings["clip"], sigma)
    optim = Adam(settings["learning_rate"])
    dpvi = DPVI(
        model.model,
        model.guide,
        optim,
        privacy=privacy,
        average_from=STEPS // 2,
        estimator=gradient,
        **static,
    )
    dpvi.init(key_from_seed(0), sets[0].train[0])
    keys = [key_from_seed(seed) for seed in range(200, 200 + repeats)]
    step, hyper = dpvi.private_step, stacked([dpvi.hyper] * repeats)
    program = BatchedProgram(step, repeats, shared=False, devices=jax.devices()[:1])
    end = program.run(starting_states(step, keys, hyper), (train_sets,), hyper, STEPS).state

    def score(params, key, test):
        return held_out(step.model, params, fast_key(key), (test,), 100)[1]

    iterates = [unconstrained(step, end, averaged=name == "average") for name in ITERATES]
    return np.stack(
        [jax.jit(jax.vmap(score))(params, jnp.stack(keys), test_sets) for params in iterates],
        axis=1,
    )


def truth(repeats):
    """The same of the density that the points were drawn from: what nothing can beat but
    by luck.
    """
    centres = np.array([(0, 0), (2, 2), (2, -2), (-2, 2), (-2, -2)])
    found = []
    for repeat in range(repeats):
        (points,) = wb.data.mixture(
            num_records=N, num_evaluation=TEST, seed=100 + repeat
        ).evaluation
        distances = np.sum((points[:, None] - centres) ** 2, axis=-1)
        found.append(
            np.mean(
                logsumexp(-distances / (2 * 0.5), axis=1) - np.log(2 * np.pi * 0.5 * len(centres))
            )
        )
    return float(np.mean(found))


def main(full):
    """Print the table and draw figure 7."""
    repeats = 20 if full else 10
    model = wb.models.get("gmm", num_components=5)
    advice = dict(model.advice(wb.data.mixture(), N, 1.0))
    settings = {
        "clip": advice.get("clip", 1.0),
        "learning_rate": advice.get("learning_rate", STEPS**-0.5),
    }
    print(
        f"\nE2: mixture of 5 in 2-D, N = {N}, T = {STEPS}, minibatch {BATCH}, {settings}, "
        f"{repeats} repeats",
        flush=True,
    )
    rows = []
    for sigma in (*SIGMAS, 0.0):
        epsilon = np.inf
        if sigma:
            epsilon = wb.privacy.epsilon(
                sampling_rate=BATCH / N, noise_multiplier=sigma, steps=STEPS, delta=DELTA
            )
        for gradient in ("aligned", "vanilla"):
            found = fits(sigma, repeats, model, settings, gradient)
            for place, iterate in enumerate(ITERATES):
                rows += [
                    {
                        "sigma": sigma,
                        "epsilon": epsilon,
                        "method": gradient,
                        "iterate": iterate,
                        "value": value,
                    }
                    for value in found[:, place]
                ]
    table = pd.DataFrame(rows)
    shown = table.pivot_table(
        index=["sigma", "epsilon"], columns=["method", "iterate"], values="value"
    ).round(3)
    shown["d3p"] = [D3P[sigma] for sigma, _ in shown.index]
    shown["prototype"] = [PROTOTYPE.get(sigma, np.nan) for sigma, _ in shown.index]
    best = truth(repeats)
    print(
        f"held-out log-likelihood a point; the true density has {best:.3f} on these "
        f"points\n{shown.to_string()}",
        flush=True,
    )
    figure = utility_figure(
        table[(table.iterate == "average") & (table.sigma > 0)].round({"epsilon": 2}),
        "value",
        "public data",
        baselines={
            "true density": best,
            "without noise": table.query(
                "sigma == 0 and iterate == 'average' and method == 'aligned'"
            ).value.mean(),
        },
        ylabel="log-likelihood a point (nats)",
        title=f"Mixture of five, N = {N}, T = {STEPS}, delta = {DELTA:g}",
    )
    (OUT / "e2_figure7.png").write_bytes(png(figure))
    table.to_csv(OUT / "e2.csv", index=False)
