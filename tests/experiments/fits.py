"""Many fits, side by side in processes, and the same models without privacy: what every experiment
is made of.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpyro.infer import SVI, Trace_ELBO
from numpyro.optim import Adam

import workbench as wb
from workbench.fitting import fits
from workbench.fitting.groups import grouped
from workbench.models.model import inputs_of

__all__ = ["OUT", "Job", "non_private", "run_all", "spread"]

OUT = Path("runs/experiments")


@dataclass(frozen=True)
class Job:
    """One fit: a model with options, a data set that ``source`` makes of ``arguments``, settings of
    ``wb.fit``.

    ``source`` is a function at the top of a module, or the name of one in ``wb.data``.

    ``about`` are the columns that the fit's rows carry. Without ``epsilon`` in the settings the fit
    is not private.
    """

    model: str
    source: Callable[..., Any] | str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


@functools.lru_cache(maxsize=4)
def _data(source, arguments):
    return (getattr(wb.data, source) if isinstance(source, str) else source)(**dict(arguments))


def run(job):
    """Rows of metrics on the evaluation records, one for the last iterate and one for
    the average.
    """
    data = _data(job.source, tuple(job.arguments.items()))
    model = wb.models.get(job.model, **job.options)
    if "epsilon" not in job.settings:
        return [{**job.about, "iterate": "last", **non_private(model, data, **job.settings)}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fits.DeltaWarning)  # the papers' delta is 1 / N
        prepared = fits.prepare(model, data, **grouped({"average": True, **job.settings}))
        for _ in prepared.run():
            pass
    rows = []
    for iterate in ("last", "average"):
        result = prepared.result(last_iterate=iterate == "last")
        if result.status != "done":
            raise RuntimeError(f"{job}: {result.status}, {result.message}")
        sigma = result.guarantee.noise_multiplier
        rows.append(
            {
                **job.about,
                "iterate": iterate,
                **result.metrics,
                "sigma": sigma,
                "seconds": result.seconds,
            }
        )
    return rows


def non_private(model, data, *, steps=3000, learning_rate=0.01, draws=50):
    """Metrics after numpyro's own SVI on all records at every step, on the evaluation records."""
    data = model.view(data)
    static = {**model.options, **model.constants(data), "num_records": data.num_train}
    guide = model.new_guide()
    svi = SVI(model.model, guide, Adam(learning_rate), Trace_ELBO())
    records = tuple(map(jnp.asarray, data.train))
    fitted = svi.run(jax.random.key(0), steps, *records, progress_bar=False, **static).params
    inputs = inputs_of(tuple(map(jnp.asarray, data.evaluation)))

    def prediction(key):
        from numpyro import handlers

        guide_key, model_key = jax.random.split(key)
        fixed = handlers.substitute(handlers.seed(guide, guide_key), data=fitted)
        drawn = {
            name: site["value"]
            for name, site in handlers.trace(fixed).get_trace(*records, **static).items()
            if site["type"] == "sample"
        }
        seeded = handlers.substitute(handlers.seed(model.model, model_key), data=fitted | drawn)
        values = {
            name: site["value"]
            for name, site in handlers.trace(seeded).get_trace(*records, **static).items()
        }
        return model.predict(fitted | values, *inputs)

    predictions = jnp.mean(jax.vmap(prediction)(jax.random.split(jax.random.key(1), draws)), axis=0)
    return model.score(np.asarray(data.evaluation[-1]), np.asarray(predictions))


def _start(cores):
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores.get()})


def run_all(jobs, processes=None):
    """All rows of all jobs as a table. Small fits run one a core; a process each, pinned."""
    available = (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(os.cpu_count() or 1))
    )
    available = available[:processes]
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in available:
        cores.put(core)
    rows = []
    with concurrent.futures.ProcessPoolExecutor(len(available), context, _start, (cores,)) as pool:
        for number, found in enumerate(pool.map(run, jobs, chunksize=1), start=1):
            rows += found
            if number % 20 == 0 or number == len(jobs):
                print(f"  {number} of {len(jobs)} fits", flush=True)
    return pd.DataFrame(rows)


def spread(table, by, metric):
    """Mean and standard deviation over seeds, as text, one row for each value of ``by``."""
    grouped = table.groupby(by, sort=False)[metric].agg(["mean", "std", "count"])
    text = grouped.apply(
        lambda row: f"{row['mean']:.4f} ({row['std']:.4f}, n={int(row['count'])})", axis=1
    )
    return text
