"""Which C has the smallest error, what share of the gradients it clips, and how near to it a run
comes that adapts C.

The worlds of ``calibration``, made-up regressions whose truth is drawn from the prior. All repeats
of a setting are stepped together by the library's own lanes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from calibration import STEPS, WORLDS
from fits import OUT
from numpyro.optim import Adam

from workbench.inference import DPVI, adaptive_clip, norm_counts
from workbench.inference.batched import _AXES, BatchedProgram, starting_states
from workbench.noise.chacha20 import key_from_seed

SHARES = (0.15, 0.3, 0.6, 1.2)  # of the largest gradient, or of one that few exceed
NAMES = ("linear", "logistic, N = 1000, d = 6", "logistic, N = 5000, d = 21", "Poisson")


def fits(world, records, epsilon, clip, adapts=False):
    """(averaged locations [R, d], C at the end [R], share of the gradients that were
    clipped [R]).
    """
    dpvi = DPVI(
        world.model,
        world.guide,
        Adam(STEPS**-0.5),
        epsilon=epsilon,
        delta=1e-4,
        iterations=STEPS,
        sampling_rate=world.rate,
        clip=clip,
        average_from=STEPS // 2,
    )
    dpvi.init(key_from_seed(0), *(array[0] for array in records), num_records=world.num_records)
    step, repeats = (
        dpvi.private_step.with_options(counts_norms=True, keeps_moments=False),
        len(records[0]),
    )
    one = dpvi.hyper._replace(moments_from=jnp.int32(int(0.3 * STEPS)))
    if adapts:
        one = one._replace(adaptive=adaptive_clip.of(STEPS))
    hyper = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (repeats,)), one)
    state = starting_states(step, [key_from_seed(seed) for seed in range(1, repeats + 1)], hyper)
    end = (
        BatchedProgram(step, repeats, shared=False, devices=jax.devices()[:1])
        .run(state, records, hyper, STEPS)
        .state
    )
    counted, *counts = np.asarray(end.moments.norms, float).T
    above = sum(counts[norm_counts.EDGES.index(1.0) + 1 :]) / (
        counted * world.rate * world.num_records
    )
    clips = jax.vmap(step.clip, in_axes=(_AXES, 0))(end, hyper)
    return np.asarray(jax.vmap(step.model.constrain)(end.average)["loc"]), np.asarray(clips), above


def main(full):
    """Print the table."""
    repeats = 60 if full else 16
    print(f"\nClipping: {repeats} repeats, T = {STEPS}, averaged", flush=True)
    table = []
    for number, world in enumerate(world for world in WORLDS if world.name in NAMES):
        random = np.random.default_rng(number)
        truth = world.prior * random.normal(size=(repeats, world.size))
        records = tuple(
            jnp.asarray(array, jnp.int32 if array.dtype == np.int32 else jnp.float32)
            for array in world.records(random, truth, world.num_records)
        )
        for epsilon in (0.25, 1.0, 8.0):
            for share in SHARES:
                for adapts in (False, True):
                    found, clips, above = fits(
                        world, records, epsilon, share * world.largest, adapts
                    )
                    rms = np.sqrt(np.mean((found - truth) ** 2))
                    facts = {
                        "share of the largest": share,
                        "adapts": adapts,
                        "C": np.exp(np.log(clips).mean()),
                    }
                    table.append(
                        {
                            "world": world.name,
                            "epsilon": epsilon,
                            **facts,
                            "clipped": above.mean(),
                            "rms": rms,
                        }
                    )
    print(pd.DataFrame(table).round(3).to_string(index=False), flush=True)
    pd.DataFrame(table).to_csv(OUT / "clipping.csv", index=False)
