"""Scales and shapes of formulas: how far from the estimate without privacy, and how often the
interval holds it.

Made-up tables of one truth, one column uniform and one skewed. All repeats of a setting are stepped
together by the library's own lanes, without a look. The estimate of maximum likelihood is that of
the same records, and what an interval is to hold is its median over the tables.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from fits import OUT
from numpyro.distributions.transforms import biject_to
from scipy.special import gamma

import workbench as wb
from workbench.fitting import posterior
from workbench.fitting.learned_scales import rows_inside
from workbench.inference.batched import _AXES, BatchedProgram
from workbench.noise.chacha20 import key_from_seed

SITES = {"weights", "sigma", "log_nu", "log_shape", "log_concentration"}


def responses(family, random, eta, groups):
    """(responses, declared bounds)."""
    size = eta.shape
    return {
        "gaussian": lambda: (eta + groups + 0.8 * random.normal(size=size), (-4, 6)),
        "student_t": lambda: (eta + 0.8 * random.standard_t(2.6, size), (-12, 12)),
        "weibull": lambda: (
            np.exp(eta) * random.weibull(1.5, size) / gamma(1 + 1 / 1.5),
            (0.01, 40),
        ),
        "gamma": lambda: (np.exp(eta) * random.gamma(2.0, 0.5, size), (0.01, 40)),
        "negative_binomial": lambda: (
            random.poisson(np.exp(eta + 0.7) * random.gamma(1.5, 1 / 1.5, size)),
            (0, 60),
        ),
    }[family]()


def table_of(family, seed, has_groups, rows):
    """(table, bounds of y)."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, rows)
    z = np.exp(0.8 * random.normal(size=rows) - 1).clip(0, 6)
    group = random.integers(20, size=rows)
    effects = 0.6 * np.random.default_rng(5).normal(size=20)[group] * has_groups
    y, bounds = responses(family, random, 0.3 + 0.5 * x + 0.3 * z, effects)
    return pd.DataFrame({"x": x, "z": z, "g": [f"g{number}" for number in group], "y": y}), bounds


def maximum(model, records, starts):
    """(maximum likelihood, its standard deviation) of all sites, float[repeats, d].

    :param starts: values near it, float[repeats, d].
    """
    trace = model.model_trace({}, jax.random.key(0))
    transforms = {name: biject_to(trace[name]["fn"].support) for name in model.shared}
    shapes = {name: jnp.shape(trace[name]["value"]) for name in model.shared}
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])

    def values(free):
        segments = zip(shapes.items(), jnp.split(free, ends[:-1]), strict=True)
        return {name: transforms[name](each.reshape(shape)) for (name, shape), each in segments}

    def free_of(flat):
        segments = zip(shapes.items(), jnp.split(flat, ends[:-1]), strict=True)
        free = [transforms[name].inv(each.reshape(shape)) for (name, shape), each in segments]
        return jnp.concatenate(list(map(jnp.ravel, free)))

    def one(of_table, start):
        def loss(free):
            losses = model.record_losses(values(free), of_table, jax.random.key(0))
            return jnp.sum(losses) + 1e-3 * jnp.sum(free**2)

        def newton(_, free):
            size, basis = jnp.linalg.eigh(jax.hessian(loss)(free))
            step = basis @ ((basis.T @ jax.grad(loss)(free)) / jnp.maximum(jnp.abs(size), 1.0))
            return free - step * jnp.minimum(1, 1 / jnp.linalg.norm(step))

        free = jax.lax.fori_loop(0, 60, newton, free_of(start))
        spread = jnp.linalg.inv(jax.hessian(loss)(free))
        slopes = jax.jacobian(
            lambda free: jnp.concatenate(list(map(jnp.ravel, values(free).values())))
        )
        at = slopes(free)
        return jnp.concatenate(list(map(jnp.ravel, values(free).values()))), jnp.sqrt(
            jnp.diag(at @ spread @ at.T)
        )

    return jax.jit(jax.vmap(one))(records, starts)


def rows_of(family, epsilon, width, repeats, has_groups=False, rows=2000, looks=False):
    """A row for each weight and parameter.

    :param width: how many times wider than the data the bounds are. :param looks: whether scales
        are learned; those of the first table are used for all.
    """
    _, (low, high) = table_of(family, 0, has_groups, rows)
    schema = {
        "x": (-width, width),
        "z": (0, 6 * width),
        "g": [f"g{number}" for number in range(20)],
        "y": (low / width if low > 0 else low * width, high * width),
    }
    formula = "y ~ x + z + (1 | g)" if has_groups else "y ~ x + z"
    model = wb.models.formula(formula, family=family, schema=schema)
    datasets = [
        model.dataset(table_of(family, seed, has_groups, size)[0], evaluation_fraction=0)
        for seed, size in enumerate([rows] + [int(1.1 * rows) if looks else rows] * (repeats - 1))
    ]
    fit = wb.prepare(
        model, datasets[0], epsilon=epsilon, seed=1, ledger=False,
        privacy=wb.Privacy(look=None if looks else 0), training=wb.Training(estimator="aligned"),
    )  # fmt: skip
    if looks:
        fit._look()
    step, hyper, spec = fit.step, fit.hyper, fit.spec
    tables = [spec.model.view(data) for data in datasets]
    if looks:  # which leaves records out
        tables = [
            view.with_rows(rows_inside(data, spec.model, spec.scales))
            for view, data in zip(tables, datasets, strict=True)
        ]
    records = tuple(
        jnp.stack([jnp.asarray(array[: spec.data.num_train]) for array in arrays])
        for arrays in zip(*(view.train for view in tables), strict=True)
    )
    lanes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (repeats, *jnp.shape(leaf))), hyper)
    keys = jnp.stack([key_from_seed(seed) for seed in range(1, repeats + 1)])
    start = jax.jit(
        jax.vmap(lambda key, of: step.init(key, of, step.model.initial), out_axes=_AXES)
    )
    program = BatchedProgram(step, repeats, shared=False, devices=jax.devices()[:1])
    end = program.run(start(keys, lanes), records, lanes, fit.privacy.iterations).state
    latents = jax.jit(jax.vmap(step.model.latents, (None, 0)))
    prior = posterior.prior_for(fit.spec, step.model)
    posterior.prior_for = lambda *_: prior  # whose program is compiled once
    draws, clipped, marked = [], [], []
    for lane in range(repeats):
        moments = jax.tree.map(lambda leaf, lane=lane: np.asarray(leaf[lane]), end.moments)
        params = jax.tree.map(lambda leaf, lane=lane: leaf[lane], end.average)
        guide = jax.device_get(latents(params, jax.random.split(jax.random.key(3), 300)))
        norms = posterior.gradient_norms(step, hyper, moments)
        drawn, why = posterior.noise_aware_draws(
            fit.spec, step, hyper, moments, norms, guide, keys[lane]
        )
        assert drawn is not None, why
        draws.append(
            np.concatenate(
                [drawn[name].reshape(len(drawn[name]), -1) for name in step.model.shared], 1
            )
        )
        clipped.append(norms.above(1.0)[0])
        marked.append(norms.more_are_clipped() is not False)
    draws = np.stack(draws)
    known, errors = map(np.asarray, maximum(step.model, records, jnp.asarray(draws.mean(1))))
    truth = np.median(known, 0)
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    names = [
        name for name in step.model.shared for _ in range(guide[name].reshape(300, -1).shape[1])
    ]
    means, error = draws.mean(1), np.median(errors, 0)
    return [
        {
            "family": family + (" with groups" if has_groups else ""),
            "rows": rows,
            "looks": looks,
            "epsilon": epsilon,
            "width": width,
            "quantity": name,
            "clipped": np.mean(clipped),
            "marked": np.mean(marked),
            "bias": np.mean(means - known, 0)[index] / error[index],
            "rmse": np.sqrt(np.mean((means - truth) ** 2, 0))[index] / error[index],
            "sd": draws.std(1).mean(0)[index] / error[index],
            "share": np.mean((low <= truth) & (truth <= high), 0)[index],
        }
        for index, name in enumerate(names)
        if name in SITES
    ]


def main(full):
    """Print the table."""
    repeats, table = (60 if full else 10), []
    families = ("gaussian", "student_t", "weibull", "gamma", "negative_binomial")
    settings = [(family, 1.0, 1.0, repeats) for family in families]
    settings += [("gaussian", 8.0, 1.0, repeats, True), ("student_t", 8.0, 1.0, repeats)]
    if full:
        settings += [(name, epsilon, 1.0, repeats) for name in families for epsilon in (0.5, 8.0)]
        settings += [(name, 8.0, 10.0, repeats) for name in families]
        settings += [(name, 1.0, 10.0, repeats, False, 2000, True) for name in families]
        settings += [
            (name, 1.0, 1.0, repeats, False, rows) for name in families for rows in (500, 1000)
        ]
        settings += [("gaussian", 1.0, 1.0, repeats, True)]
    for setting in settings:
        table += rows_of(*setting)
        print(
            pd.DataFrame(table[-4:]).to_string(index=False, float_format="{:.2f}".format),
            flush=True,
        )
    pd.DataFrame(table).to_csv(OUT / "nuisance.csv", index=False)
