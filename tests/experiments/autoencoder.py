"""E3: the variational auto-encoder on Fashion-MNIST at sigma 1.5, minibatch 128, 20 epochs
(experiments.md).
"""

import time

import numpy as np
import pandas as pd
from fits import OUT

import workbench as wb
from workbench.fitting import fits
from workbench.plots import png, reconstructions_figure

PAPER = {"DP": 304.74, "non-private": 243.99}
SIGMA, BATCH, DELTA = 1.5, 128, 1 / 60_000


def fit(data, epochs, sampler, epsilon):
    """(rows of both iterates, result of the average)."""
    steps = round(epochs * data.num_train / BATCH)
    began = time.perf_counter()
    prepared = fits.prepare(
        wb.models.get("vae"),
        data,
        epsilon=epsilon,
        delta=DELTA,
        batch_size=BATCH,
        iterations=steps,
        seed=1,
        privacy=wb.Privacy(sampler=sampler),
        training=wb.Training(average=True),
    )
    for _ in prepared.run():
        pass
    rows = []
    for iterate in ("last", "average"):
        result = prepared.result(last_iterate=iterate == "last")
        rows.append(
            {
                "sampler": sampler,
                "relation": result.guarantee.relation,
                "epsilon": round(epsilon, 3),
                "epochs": epochs,
                "sigma": round(result.guarantee.noise_multiplier, 3),
                "iterate": iterate,
                "test loss": -result.metrics["elbo"],
                "reconstruction error": result.metrics["reconstruction_error"],
                "seconds": time.perf_counter() - began,
            }
        )
    return rows, result


def main(full):
    """Print the losses and draw reconstructions; without Debian's dataset-fashion-mnist a line says
    what is missing.
    """
    try:
        data = wb.data.load("fashion_mnist")
    except wb.ArgumentError as error:
        print(f"\nE3: skipped. {error}")
        return
    epochs = 20 if full else 2
    steps = round(epochs * data.num_train / BATCH)
    honest = wb.privacy.epsilon(
        sampling_rate=BATCH / data.num_train,
        noise_multiplier=SIGMA,
        steps=round(20 * data.num_train / BATCH),
        delta=DELTA,
    )
    print(
        f"\nE3: Fashion-MNIST, VAE 784-400-50, sigma {SIGMA}, minibatch {BATCH}, {epochs} epochs "
        f"({steps} steps); 20 epochs cost epsilon {honest:.3f} at delta 1/60000 with Poisson "
        f"minibatches. Paper: {PAPER}",
        flush=True,
    )
    spent = wb.privacy.epsilon(
        sampling_rate=BATCH / data.num_train, noise_multiplier=SIGMA, steps=steps, delta=DELTA
    )
    rows, result = fit(data, epochs, "poisson", spent)
    print(pd.DataFrame(rows).round(2).to_string(index=False), flush=True)
    originals = data.evaluation[0][:12]
    figure = reconstructions_figure(originals, result.predict(originals), "public data")
    (OUT / "e3_reconstructions.png").write_bytes(png(figure))
    if full:
        print(
            f"\nThe same at epsilon {honest:.3f}: each sampler with the noise that its "
            "accountant asks for",
            flush=True,
        )
        for sampler in ("random_allocation", "without_replacement", "shuffle"):
            own, _ = fit(data, epochs, sampler, honest)
            rows += own
            print(pd.DataFrame(own).round(2).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(OUT / "e3.csv", index=False)
    assert np.all(np.isfinite(table["test loss"]))
