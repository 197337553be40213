"""Models of NumPyro's examples and of textbooks, rewritten for made-up records, as SVI's users
write them.

``EXAMPLES`` are fitted, and their gradients agree with numpyro's own. ``REFUSED`` are not, each
with the words that say why.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import betaln, gammaln, logsumexp
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform
from numpyro.infer import init_to_feasible
from numpyro.infer.autoguide import (
    AutoDAIS,
    AutoDelta,
    AutoDiagonalNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.reparam import LocScaleReparam, TransformReparam

N = 11
Normal = functools.partial(AutoNormal, init_loc_fn=init_to_feasible, init_scale=0.3)
Diagonal = functools.partial(AutoDiagonalNormal, init_loc_fn=init_to_feasible, init_scale=0.3)
Full = functools.partial(AutoMultivariateNormal, init_loc_fn=init_to_feasible, init_scale=0.3)
LowRank = functools.partial(
    AutoLowRankMultivariateNormal, init_loc_fn=init_to_feasible, init_scale=0.3
)
Mode = functools.partial(AutoDelta, init_loc_fn=init_to_feasible)
Laplace = functools.partial(AutoLaplaceApproximation, init_loc_fn=init_to_feasible)


@dataclasses.dataclass(frozen=True)
class Example:
    """:param source: where a model of this kind is found. :param guide: a guide, or what makes one
    of the model.
    :param why: words of the refusal. :param quick: whether it is in the default run.
    """

    source: str
    model: Callable
    guide: Any
    records: tuple[Any, ...]
    static: dict[str, Any] = dataclasses.field(default_factory=dict)
    why: str = ""
    quick: bool = False

    def made_guide(self) -> Callable:
        automatic = isinstance(self.guide, (functools.partial, type))
        return self.guide(self.model) if automatic else self.guide


EXAMPLES: dict[str, Example] = {}
REFUSED: dict[str, Example] = {}

_random = np.random.default_rng(11)


def reals(*shape: int) -> np.ndarray:
    return _random.normal(size=(N, *shape)).astype(np.float32)


def positives(*shape: int) -> np.ndarray:
    return _random.uniform(0.3, 2.5, (N, *shape)).astype(np.float32)


def shares(*shape: int) -> np.ndarray:
    return _random.uniform(0.1, 0.9, (N, *shape)).astype(np.float32)


def codes(levels: int, *shape: int) -> np.ndarray:
    values = _random.integers(0, levels, (N, *shape))
    values.flat[:levels] = np.arange(levels)
    return values.astype(np.int32)


def example(source: str, guide: Any, *records: Any, quick: bool = False, **static: Any) -> Callable:
    def add(model: Callable) -> Callable:
        EXAMPLES[model.__name__] = Example(source, model, guide, records, static, quick=quick)
        return model

    return add


def refused(
    source: str, why: str, guide: Any, *records: Any, quick: bool = False, **static: Any
) -> Callable:
    def add(model: Callable) -> Callable:
        REFUSED[model.__name__] = Example(source, model, guide, records, static, why, quick)
        return model

    return add


def normals(name: str, *shape: int, scale: float = 1.0) -> jax.Array:
    return numpyro.sample(name, dist.Normal(0, scale).expand(shape).to_event(len(shape)))


def mean_field(*sites: tuple[str, tuple[int, ...], Any]) -> None:
    """Global latents of a guide: name, shape and support."""
    for name, shape, support in sites:
        loc = numpyro.param(f"{name}_loc", jnp.full(shape, 0.1))
        scale = numpyro.param(
            f"{name}_scale", jnp.full(shape, 0.4), constraint=constraints.positive
        )
        base = dist.Normal(loc, scale).to_event(len(shape))
        drawn = (
            base if support is constraints.real else dist.LogNormal(loc, scale).to_event(len(shape))
        )
        numpyro.sample(name, drawn)


def amortised(x: jax.Array, name: str, outputs: int) -> tuple[jax.Array, jax.Array]:
    """Location and scale of each record's latents, a linear function of what is known of it."""
    features = jnp.concatenate([x.reshape(len(x), -1), jnp.ones((len(x), 1))], axis=1)
    start = (
        0.1
        * jnp.arange(2.0 * features.shape[1] * outputs).reshape(2, features.shape[1], outputs)
        % 0.7
    )
    weights = numpyro.param(f"{name}_weights", start)
    return features @ weights[0], jnp.exp(0.3 * features @ weights[1] - 1)


REAL, POSITIVE = constraints.real, constraints.positive

# --- regressions ----------------------------------------------------------------------------------


@example("notebooks/logistic_regression", Full, reals(3), codes(2), quick=True)
def logistic_regression(data, labels):
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(3), jnp.ones(3)))
    logits = jnp.sum(coefs * data, axis=-1)
    return numpyro.sample("obs", dist.Bernoulli(logits=logits), obs=labels)


@example("notebooks/bayesian_regression", Normal, reals(), reals(), reals())
def divorce(marriage, age, divorce):
    a = numpyro.sample("a", dist.Normal(0.0, 0.2))
    slopes = [numpyro.sample(name, dist.Normal(0.0, 0.5)) for name in ("bM", "bA")]
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mu = a + slopes[0] * marriage + slopes[1] * age
    numpyro.sample("obs", dist.Normal(mu, sigma), obs=divorce)


@example("notebooks/bayesian_regression, measurement errors", Normal, reals(), reals(), positives())
def divorce_with_errors(marriage, divorce, divorce_sd):
    a, slope = normals("a"), normals("bM")
    mu = numpyro.deterministic("mu", a + slope * marriage)
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    numpyro.sample("obs", dist.Normal(mu, jnp.sqrt(sigma**2 + divorce_sd**2)), obs=divorce)


@example(
    "notebooks/bayesian_hierarchical_linear_regression",
    Normal,
    codes(3),
    reals(),
    reals(),
    patients=3,
)
def lung_function(code, weeks, fvc, patients):
    means = [numpyro.sample(f"mean_{name}", dist.Normal(0.0, 5.0)) for name in "ab"]
    sds = [numpyro.sample(f"sd_{name}", dist.HalfNormal(5.0)) for name in "ab"]
    with numpyro.plate("plate_i", patients):
        a = numpyro.sample("a", dist.Normal(means[0], sds[0]))
        b = numpyro.sample("b", dist.Normal(means[1], sds[1]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
    with numpyro.plate("data", len(code)):
        numpyro.sample("obs", dist.Normal(a[code] + b[code] * weeks, sigma), obs=fvc)


@example("examples/covtype", Diagonal, reals(4), codes(2))
def covtype(data, labels):
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(4), jnp.ones(4)).to_event(1))
    numpyro.sample("obs", dist.Bernoulli(logits=jnp.dot(data, coefs)), obs=labels)


@example("examples/hmcecs", Normal, reals(3), codes(2), subsample_size=5)
def hmcecs(data, obs, subsample_size):
    theta = numpyro.sample("theta", dist.Normal(jnp.zeros(3), 0.5).to_event(1))
    with numpyro.plate("N", data.shape[0], subsample_size=subsample_size):
        batch, labels = numpyro.subsample(data, event_dim=1), numpyro.subsample(obs, event_dim=0)
        numpyro.sample("obs", dist.Bernoulli(logits=batch @ theta), obs=labels)


@example("documentation of numpyro.plate", Normal, reals(3), reals(), quick=True)
def minibatch_by_index(x, y):
    weights = normals("weights", 3)
    with numpyro.plate("data", len(x), subsample_size=4) as index:
        numpyro.sample("y", dist.Normal(x[index] @ weights, 1.0), obs=y[index])


@example("examples/horseshoe_regression", Normal, reals(3), codes(2))
def horseshoe(x, y):
    lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(3)))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    unscaled = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(3)))
    betas = numpyro.deterministic("betas", tau * lambdas * unscaled)
    numpyro.sample("y", dist.Bernoulli(logits=jnp.sum(x * betas, axis=-1)), obs=y)


@example("examples/bnn", Normal, reals(2), reals())
def bnn(x, y):
    first = normals("w1", 2, 3)
    second = normals("w2", 3, 1)
    z = jnp.tanh(x @ first) @ second
    sigma = 1.0 / jnp.sqrt(numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0)))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("Y", dist.Normal(z, sigma).to_event(1), obs=y[:, None])


@example("examples/zero_inflated_poisson", Normal, reals(2), codes(4))
def fishing(x, y):
    b1, b2 = normals("b1", 2), normals("b2", 2)
    with numpyro.plate("obs", x.shape[0]):
        gate = jax.nn.sigmoid(x @ b2)
        numpyro.sample(
            "Y", dist.ZeroInflatedDistribution(dist.Poisson(jnp.exp(x @ b1)), gate=gate), obs=y
        )


@example("examples/ucbadmit", Normal, codes(3), codes(2), codes(9) + 9, codes(9), depts=3)
def admissions(dept, male, applications, admit, depts):
    v_mu = numpyro.sample("v_mu", dist.Normal(0, 4.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("dept", depts):
        effect = numpyro.sample("v", dist.Normal(v_mu, sigma))
    slope = normals("b")
    with numpyro.plate("obs", len(dept)):
        numpyro.sample(
            "admit", dist.Binomial(applications, logits=effect[dept] + slope * male), obs=admit
        )


@example("examples/proportion_test", Normal, codes(2), codes(2))
def proportion_test(design, churn):
    beta = numpyro.sample("beta", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    logits = beta[0] + beta[1] * design
    with numpyro.plate("data", len(design)):
        numpyro.sample("obs", dist.Bernoulli(logits=logits), obs=churn)


@example("notebooks/ordinal_regression", Normal, codes(3), reals())
def ordinal_regression(y, x):
    slope = normals("b_X_eta")
    cutpoints = numpyro.sample(
        "c_y", dist.ImproperUniform(constraints.ordered_vector, (), event_shape=(2,))
    )
    numpyro.sample("c_y_prior", dist.Normal(0, 1).expand([2]).to_event(1), obs=cutpoints)
    with numpyro.plate("obs", len(x)):
        numpyro.sample("Y", dist.OrderedLogistic(x * slope, cutpoints), obs=y)


@example("notebooks/ordinal_regression, transformed", Normal, codes(3), reals())
def ordinal_by_transform(y, x):
    slope = normals("b_X_eta")
    prior = dist.TransformedDistribution(
        dist.Normal(0, 1).expand([2]).to_event(1), OrderedTransform()
    )
    with numpyro.handlers.reparam(config={"c_y": TransformReparam()}):
        cutpoints = numpyro.sample("c_y", prior)
    with numpyro.plate("obs", len(x)):
        numpyro.sample("Y", dist.OrderedLogistic(x * slope, cutpoints), obs=y)


@example("notebooks/censoring", Normal, reals(), positives(), codes(2))
def censored_survival(x, time, event):
    a, b = normals("a"), normals("b")
    rate = jnp.exp(a + b * x)
    with numpyro.plate("N", len(x)):
        with numpyro.handlers.mask(mask=event == 1):
            numpyro.sample("observed", dist.Exponential(rate), obs=time)
        with numpyro.handlers.mask(mask=event == 0):
            numpyro.factor("censored", -rate * time)


@example("notebooks/truncated_distributions", Normal, positives())
def truncated(x):
    loc = numpyro.sample("loc", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    with numpyro.plate("obs", x.shape[0]):
        numpyro.sample("x", dist.LeftTruncatedDistribution(dist.Normal(loc, scale), low=0.1), obs=x)


@example("notebooks/bad_posterior_geometry", Normal, reals(2), reals())
def collinear(x, y):
    betas = [normals(f"beta{n}") for n in range(2)]
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    numpyro.sample("y", dist.Normal(betas[0] * x[:, 0] + betas[1] * x[:, 1], sigma), obs=y)


@example("notebooks/hsgp_example", Diagonal, reals(), reals())
def basis_expansion(x, y):
    length = numpyro.sample("length", dist.LogNormal(0, 1))
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0, 1))
    frequencies = jnp.arange(1, 5) * jnp.pi / 8
    basis = jnp.sin(frequencies * (x[:, None] + 4)) / 2
    density = amplitude * jnp.sqrt(length) * jnp.exp(-0.25 * (length * frequencies) ** 2)
    f = basis @ (density * normals("beta", 4))
    noise = numpyro.sample("noise", dist.LogNormal(0, 1))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("y", dist.Normal(f, noise), obs=y)


@example("notebooks/bayesian_hierarchical_stacking", Normal, reals(2), -positives(3))
def stacking(x, log_densities):
    beta = normals("beta", 2, 2)
    logits = jnp.concatenate([x @ beta, jnp.zeros((len(x), 1))], axis=1)
    numpyro.factor("stacked", logsumexp(jax.nn.log_softmax(logits) + log_densities, axis=1))


@example("notebooks/bayesian_cuped", Normal, reals(), reals(), codes(2))
def cuped(before, after, treated):
    means, effect = normals("means", 2), normals("effect")
    scales = numpyro.sample("scales", dist.HalfNormal(1).expand([2]).to_event(1))
    correlation = numpyro.sample("corr", dist.LKJCholesky(2, 1.0))
    both = jnp.stack([before, after], axis=-1)
    loc = means + jnp.stack([jnp.zeros_like(before), effect * treated], axis=-1)
    with numpyro.plate("units", len(before)):
        numpyro.sample(
            "both", dist.MultivariateNormal(loc, scale_tril=scales[:, None] * correlation), obs=both
        )


@example("notebooks/tbip", Normal, codes(3), codes(4, 5), authors=3)
def ideal_points(author, counts, authors):
    topics = numpyro.sample("topics", dist.Gamma(1.0, 1.0).expand([2, 5]).to_event(2))
    polarity = normals("polarity", 2, 5)
    with numpyro.plate("authors", authors):
        position = numpyro.sample("position", dist.Normal(0, 1))
    with numpyro.plate("documents", len(author)):
        rates = jnp.sum(topics * jnp.exp(position[author][:, None, None] * polarity), axis=1)
        numpyro.sample("counts", dist.Poisson(rates).to_event(1), obs=counts)


@example("examples/mortality", Normal, codes(3), codes(2), codes(20) + 20, codes(5), areas=3)
def mortality(area, age, population, deaths, areas):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with (
        numpyro.plate("areas", areas),
        numpyro.handlers.reparam(config={"area": LocScaleReparam(0)}),
    ):
        effect = numpyro.sample("area", dist.Normal(0, sigma))
    walk = numpyro.sample("age", dist.GaussianRandomWalk(0.5, num_steps=2))
    with numpyro.plate("N", len(area)):
        numpyro.sample(
            "deaths", dist.Binomial(population, logits=effect[area] + walk[age] - 2), obs=deaths
        )


@example("textbook: robust regression", Normal, reals(2), reals())
def student_t(x, y):
    weights, sigma = normals("weights", 2), numpyro.sample("sigma", dist.HalfCauchy(1))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.StudentT(nu, x @ weights, sigma), obs=y)


@example("textbook: Poisson with exposure", Normal, reals(2), positives(), codes(5))
def poisson_with_exposure(x, exposure, y):
    weights = normals("weights", 2)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Poisson(exposure * jnp.exp(x @ weights)), obs=y)


@example("textbook: negative binomial", Normal, reals(2), codes(5))
def negative_binomial(x, y):
    weights, shape = normals("weights", 2), numpyro.sample("shape", dist.Exponential(1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ weights), shape), obs=y)


@example("textbook: beta regression", Normal, reals(2), shares())
def beta_regression(x, y):
    weights, precision = normals("weights", 2), numpyro.sample("precision", dist.Gamma(2, 0.5))
    mean = jax.nn.sigmoid(x @ weights)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Beta(mean * precision, (1 - mean) * precision), obs=y)


@example("textbook: Weibull survival", Normal, reals(2), positives())
def weibull(x, time):
    weights, shape = normals("weights", 2), numpyro.sample("shape", dist.LogNormal(0, 0.5))
    with numpyro.plate("N", len(x)):
        numpyro.sample("time", dist.Weibull(jnp.exp(x @ weights), shape), obs=time)


@example("textbook: multinomial logit", Normal, reals(2), codes(3))
def multinomial_logit(x, y):
    weights = normals("weights", 2, 3)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Categorical(logits=x @ weights), obs=y)


@example("textbook: quantile regression", Normal, reals(2), reals())
def quantile_regression(x, y):
    weights, scale = normals("weights", 2), numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.AsymmetricLaplaceQuantile(x @ weights, scale, 0.9), obs=y)


@example("textbook: varying slopes", Normal, codes(3), reals(), reals(), groups=3)
def varying_slopes(group, x, y, groups):
    scales = numpyro.sample("scales", dist.Exponential(1).expand([2]).to_event(1))
    correlation = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("groups", groups):
        effects = numpyro.sample(
            "effects", dist.MultivariateNormal(0, scale_tril=scales[:, None] * correlation)
        )
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(effects[group, 0] + effects[group, 1] * x, 1), obs=y)


@example("textbook: soft sum to zero", Normal, codes(4), reals(), items=4)
def soft_sum_to_zero(item, y, items):
    with numpyro.plate("items", items):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
    numpyro.factor("sum_to_zero", dist.Normal(0, 0.001 * items).log_prob(jnp.sum(effect)))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(effect[item], 1), obs=y)


@example(
    "textbook: Bradley and Terry", Normal, codes(4), codes(4)[::-1].copy(), codes(2), players=4
)
def bradley_terry(one, other, won, players):
    skill = normals("skill", players)
    with numpyro.plate("matches", len(won)):
        numpyro.sample("won", dist.Bernoulli(logits=skill[one] - skill[other]), obs=won)


@example("textbook: matrix factorisation", Normal, codes(4), codes(3), reals(), users=4, items=3)
def matrix_factorisation(user, item, rating, users, items):
    user_factors, item_factors = normals("u", users, 2), normals("v", items, 2)
    with numpyro.plate("ratings", len(rating)):
        numpyro.sample(
            "rating",
            dist.Normal(jnp.sum(user_factors[user] * item_factors[item], -1), 0.5),
            obs=rating,
        )


@example("textbook: change point", Normal, shares(), codes(5))
def change_point(time, y):
    rates = numpyro.sample("rates", dist.Exponential(1).expand([2]).to_event(1))
    at = numpyro.sample("at", dist.Beta(2, 2))
    late = jax.nn.sigmoid(20 * (time - at))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Poisson(rates[0] * (1 - late) + rates[1] * late), obs=y)


# --- mixtures and factors -------------------------------------------------------------------------


@example("notebooks/gmm", Normal, reals(), components=3)
def gmm(data, components):
    weights = numpyro.sample("weights", dist.Dirichlet(0.5 * jnp.ones(components)))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with numpyro.plate("components", components):
        locs = numpyro.sample("locs", dist.Normal(0.0, 10.0))
    with numpyro.plate("data", len(data)):
        numpyro.sample(
            "obs",
            dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(locs, scale)),
            obs=data,
        )


@example("examples/annotation, classes summed out", Normal, codes(3, 4), annotators=4, classes=3)
def annotation(votes, annotators, classes):
    prevalence = numpyro.sample("pi", dist.Dirichlet(jnp.ones(classes)))
    with numpyro.plate("annotator", annotators), numpyro.plate("class", classes):
        # [class, annotator, vote]
        confusion = numpyro.sample("beta", dist.Dirichlet(jnp.ones(classes) + 2))
    given = jnp.log(confusion)[:, jnp.arange(annotators), votes].sum(-1)  # [class, item]
    with numpyro.plate("item", len(votes)):
        numpyro.factor("votes", logsumexp(jnp.log(prevalence)[:, None] + given, axis=0))


@example("textbook: stick-breaking mixture", Normal, reals())
def stick_breaking(x):
    sticks = numpyro.sample("sticks", dist.Beta(1, 2).expand([2]).to_event(1))
    weights = jnp.concatenate([sticks, jnp.ones(1)]) * jnp.concatenate(
        [jnp.ones(1), jnp.cumprod(1 - sticks)]
    )
    locs = normals("locs", 3, scale=3)
    with numpyro.plate("N", len(x)):
        numpyro.sample(
            "x",
            dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(locs, 1)),
            obs=x,
        )


@example("textbook: factor analysis", LowRank, reals(4))
def factor_analysis(x):
    loadings = normals("loadings", 4, 2)
    noise = numpyro.sample("noise", dist.Gamma(2, 2).expand([4]).to_event(1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("x", dist.LowRankMultivariateNormal(jnp.zeros(4), loadings, noise), obs=x)


@example("textbook: Dirichlet and multinomial", Normal, codes(4, 3))
def dirichlet_multinomial(counts):
    alpha = numpyro.sample("alpha", dist.LogNormal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("N", len(counts)):
        numpyro.sample(
            "counts", dist.DirichletMultinomial(alpha, total_count=counts.sum(-1)), obs=counts
        )


@example("examples/minipyro", Mode, reals())
def most_probable(data):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(data)):
        numpyro.sample("obs", dist.Normal(loc, 1.0), obs=data)


@example("documentation of AutoLaplaceApproximation", Laplace, reals())
def laplace(data):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(data)):
        numpyro.sample("obs", dist.Normal(loc, 1.0), obs=data)


@example("documentation of obs_mask", Normal, reals(), codes(2))
def missing_outcomes(y, seen):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(loc, 1.0), obs=y, obs_mask=seen == 1)


# --- series, one a record -------------------------------------------------------------------------


@example("examples/ar2, a panel of series", Normal, reals(6))
def panel_ar(y):
    alpha, rho = normals("alpha"), numpyro.sample("rho", dist.Uniform(-1, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))

    def transition(previous, current):
        with numpyro.plate("series", y.shape[0]):
            now = numpyro.sample("y", dist.Normal(alpha + rho * previous, sigma), obs=current)
        return now, None

    scan(transition, y[:, 0], y[:, 1:].T)


@example("examples/hmm, a panel of sequences, states summed out", Normal, codes(3, 5))
def panel_hmm(words):
    transition = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    emission = numpyro.sample("emission", dist.Dirichlet(jnp.ones(3)).expand([2]).to_event(1))

    def forward(log_state, word):
        moved = logsumexp(log_state[..., None] + jnp.log(transition), axis=-2)
        return moved + jnp.log(emission)[:, word].T, None

    start = jnp.log(emission)[:, words[:, 0]].T - jnp.log(2)
    last, _ = jax.lax.scan(forward, start, words[:, 1:].T)
    with numpyro.plate("sequences", len(words)):
        numpyro.factor("words", logsumexp(last, axis=-1))


@example("examples/ode, notebooks/lotka_volterra_multiple", Normal, positives(4, 2))
def predator_and_prey(y):
    theta = numpyro.sample("theta", dist.LogNormal(-1, 0.3).expand([4]).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1))

    def euler(z, _):
        u, v = z[:, 0], z[:, 1]
        change = jnp.stack([(theta[0] - theta[1] * v) * u, (-theta[2] + theta[3] * u) * v], axis=-1)
        return z + 0.1 * change, z

    _, path = jax.lax.scan(euler, y[:, 0], None, length=4)
    with numpyro.plate("farms", len(y)):
        numpyro.sample(
            "y", dist.LogNormal(jnp.log(jnp.moveaxis(path, 0, 1)), sigma).to_event(2), obs=y
        )


# --- latents of each record, with amortised guides ------------------------------------------------


def schools_guide(y, sigma):
    mean_field(("mu", (), REAL), ("tau", (), POSITIVE))
    loc, scale = amortised(jnp.stack([y, sigma], -1), "theta", 1)
    with numpyro.plate("J", len(y)):
        numpyro.sample("theta", dist.Normal(loc[:, 0], scale[:, 0]))


@example("documentation: eight schools", schools_guide, reals(), positives())
def eight_schools(y, sigma):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


@example("examples/baseball, fully pooled", Normal, codes(5) + 5, codes(4))
def baseball_pooled(at_bats, hits):
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    with numpyro.plate("num_players", at_bats.shape[0]):
        numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)


def baseball_guide(at_bats, hits):
    mean_field(("loc", (), REAL), ("scale", (), POSITIVE))
    loc, scale = amortised(jnp.stack([at_bats, hits], -1) / 10.0, "alpha", 1)
    with numpyro.plate("num_players", len(hits)):
        numpyro.sample("alpha", dist.Normal(loc[:, 0], scale[:, 0]))


@example("examples/baseball, partially pooled with logits", baseball_guide, codes(5) + 5, codes(4))
def baseball_partially_pooled(at_bats, hits):
    loc, scale = (
        numpyro.sample("loc", dist.Normal(-1, 1)),
        numpyro.sample("scale", dist.HalfCauchy(1)),
    )
    with numpyro.plate("num_players", len(hits)):
        alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
        numpyro.sample("obs", dist.Binomial(at_bats, logits=alpha), obs=hits)


def pca_guide(x):
    mean_field(("loadings", (2, 4), REAL))
    loc, scale = amortised(x, "z", 2)
    with numpyro.plate("N", len(x)):
        numpyro.sample("z", dist.Normal(loc, scale).to_event(1))


@example("textbook: probabilistic PCA", pca_guide, reals(4))
def probabilistic_pca(x):
    loadings = normals("loadings", 2, 4)
    with numpyro.plate("N", len(x)):
        z = numpyro.sample("z", dist.Normal(jnp.zeros((len(x), 2)), 1).to_event(1))
        numpyro.sample("x", dist.Normal(z @ loadings, 0.5).to_event(1), obs=x)


def item_response_guide(answers):
    mean_field(("difficulty", (4,), REAL), ("discrimination", (4,), POSITIVE))
    loc, scale = amortised(answers.astype(jnp.float32), "ability", 1)
    with numpyro.plate("persons", len(answers), dim=-2):
        numpyro.sample("ability", dist.Normal(loc, scale))


@example("textbook: item response", item_response_guide, codes(2, 4))
def item_response(answers):
    difficulty = normals("difficulty", 4)
    discrimination = numpyro.sample(
        "discrimination", dist.LogNormal(0, 0.5).expand([4]).to_event(1)
    )
    with numpyro.plate("persons", len(answers), dim=-2):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
        with numpyro.plate("items", 4, dim=-1):
            numpyro.sample(
                "answers",
                dist.Bernoulli(logits=discrimination * (ability - difficulty)),
                obs=answers,
            )


def imputation_guide(age, seen, y):
    mean_field(("mean", (), REAL), ("slope", (), REAL))
    loc, scale = amortised(jnp.stack([jnp.where(seen == 1, age, 0.0), seen, y], -1), "age", 1)
    with numpyro.plate("N", len(y)), numpyro.handlers.mask(mask=seen == 0):
        numpyro.sample("age_unobserved", dist.Normal(loc[:, 0], scale[:, 0]))


@example("notebooks/bayesian_imputation", imputation_guide, reals(), codes(2), reals())
def imputed_covariate(age, seen, y):
    mean, slope = normals("mean"), normals("slope")
    with numpyro.plate("N", len(y)):
        complete = numpyro.sample("age", dist.Normal(mean, 1), obs=age, obs_mask=seen == 1)
        numpyro.sample("y", dist.Normal(slope * complete, 1), obs=y)


def local_level_guide(y):
    mean_field(("walk", (), POSITIVE), ("noise", (), POSITIVE))
    loc, scale = amortised(y, "state", y.shape[1])
    with numpyro.plate("series", len(y)):
        numpyro.sample("state", dist.Normal(loc.T, scale.T))


@example("notebooks/time_series_forecasting, a panel with states", local_level_guide, reals(5))
def local_level(y):
    walk, noise = (numpyro.sample(name, dist.HalfNormal(1)) for name in ("walk", "noise"))

    def transition(state, current):
        with numpyro.plate("series", y.shape[0]):
            state = numpyro.sample("state", dist.Normal(state, walk))
            numpyro.sample("y", dist.Normal(state, noise), obs=current)
        return state, None

    scan(transition, jnp.zeros(len(y)), y.T)


def topics_guide(docs):
    numpyro.param("topics", 0.1 * jnp.arange(10.0).reshape(2, 5) % 0.3)
    loc, scale = amortised(docs / 4.0, "logits", 2)
    with numpyro.plate("documents", len(docs)):
        numpyro.sample("logits", dist.Normal(loc, scale).to_event(1))


@example("examples/prodlda, without batch normalisation", topics_guide, codes(4, 5))
def prodlda(docs):
    topics = numpyro.param("topics", 0.1 * jnp.arange(10.0).reshape(2, 5) % 0.3)
    with numpyro.plate("documents", len(docs)):
        logits = numpyro.sample("logits", dist.Normal(jnp.zeros((len(docs), 2)), 1).to_event(1))
        words = jax.nn.softmax(logits) @ topics
        numpyro.sample(
            "obs",
            dist.Multinomial(total_count=docs.sum(-1), logits=words, total_count_max=16),
            obs=docs,
        )


# --- tutorials ------------------------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32)
_TAUGHT = codes(2, 4).astype(np.float32)
_TAUGHT[::3, 1] = np.nan


@example("textbook: item response, missing answers, abilities summed out", Normal, _TAUGHT)
def answers_missing(answers):
    with numpyro.plate("items", answers.shape[1]):
        slope, difficulty = (
            numpyro.sample("slope", dist.LogNormal(0, 0.5)),
            numpyro.sample("difficulty", dist.Normal(0, 1)),
        )
    seen = ~jnp.isnan(answers)
    terms = dist.Bernoulli(logits=slope * (_NODES[:, None, None] - difficulty)).log_prob(
        jnp.where(seen, answers, 0)
    )
    with numpyro.plate("people", len(answers)):
        by_ability = jnp.where(seen, terms, 0).sum(-1) + jnp.log(_WEIGHTS)[:, None]
        numpyro.factor("answers", logsumexp(by_ability, axis=0))


@example("textbook: hurdle model", Normal, reals(2), codes(3))
def hurdle(x, y):
    weights, gate = normals("weights", 2), normals("gate", 2)
    with numpyro.plate("N", len(x)):
        numpyro.sample("some", dist.Bernoulli(logits=x @ gate), obs=(y > 0).astype(int))
        with numpyro.handlers.mask(mask=y > 0):
            numpyro.sample("y", dist.Geometric(logits=x @ weights), obs=jnp.maximum(y - 1, 0))


@example("textbook: cure model of survival", Normal, positives(), reals(2), codes(2))
def cured(time, x, event):
    weights, cured = normals("weights", 2), numpyro.sample("cured", dist.Beta(2, 2))
    waiting = dist.Weibull(jnp.exp(x @ weights), numpyro.sample("shape", dist.Gamma(2, 2)))
    died = jnp.log1p(-cured) + waiting.log_prob(time)
    lived = jnp.log(cured + (1 - cured) * (1 - waiting.cdf(time)))
    with numpyro.plate("N", len(time)):
        numpyro.factor("survival", jnp.where(event == 1, died, lived))


@example("textbook: survival with a rate for each interval", Normal, positives(), codes(2))
def rates_by_interval(time, event):
    ends = jnp.array([0.5, 1.0, 2.0, 9.0])
    with numpyro.plate("intervals", 4):
        rate = numpyro.sample("rate", dist.Gamma(1, 1))
    starts = jnp.concatenate([jnp.zeros(1), ends[:-1]])
    exposure = jnp.clip(time[:, None] - starts, 0, ends - starts)
    with numpyro.plate("N", len(time)):
        numpyro.factor(
            "survival", event * jnp.log(rate[jnp.searchsorted(ends, time)]) - exposure @ rate
        )


@example("textbook: sparse Gaussian process, fixed inducing points", Full, reals(1), reals())
def inducing_points(x, y):
    points = jnp.linspace(-2, 2, 4)[:, None]
    length, noise = (
        numpyro.sample("length", dist.LogNormal(0, 0.3)),
        numpyro.sample("noise", dist.HalfNormal(1)),
    )

    def kernel(a, b):
        return jnp.exp(-0.5 * jnp.square(a[:, None] - b).sum(-1) / length**2)

    root = jnp.linalg.cholesky(kernel(points, points) + 1e-4 * jnp.eye(4))
    mean = jax.scipy.linalg.solve_triangular(root, kernel(points, x), lower=True).T @ normals(
        "whitened", 4
    )
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


@example("textbook: GARCH, a panel of series", Normal, reals(5))
def garch(returns):
    start, shock, keep = (
        numpyro.sample(name, dist.Uniform(0, 1)) for name in ("start", "shock", "keep")
    )

    def step(carried, now):
        variance, before = carried
        variance = start + shock * before**2 + keep * variance
        return (variance, now), variance

    ones = jnp.ones(len(returns))
    _, variances = jax.lax.scan(step, (ones, 0 * ones), returns.T)
    with (
        numpyro.plate("series", len(returns), dim=-2),
        numpyro.plate("times", returns.shape[1], dim=-1),
    ):
        numpyro.sample("returns", dist.Normal(0, jnp.sqrt(variances.T)), obs=returns)


@example("textbook: random walk over public weeks", Normal, codes(6), reals(), weeks=6)
def random_walk(week, y, weeks):
    step = numpyro.sample("step", dist.HalfNormal(1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(step, num_steps=weeks))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(level[week], 1), obs=y)


@example("textbook: mixture of regressions", Normal, reals(2), reals())
def mixture_of_regressions(x, y):
    shares, noise = (
        numpyro.sample("shares", dist.Dirichlet(jnp.ones(3))),
        numpyro.sample("noise", dist.HalfNormal(1)),
    )
    weights = normals("weights", 2, 3)
    with numpyro.plate("N", len(x)):
        mixture = dist.MixtureSameFamily(
            dist.Categorical(probs=shares), dist.Normal(x @ weights, noise)
        )
        numpyro.sample("y", mixture, obs=y)


@example("textbook: 2PL item response, abilities by quadrature", Normal, codes(2, 5))
def answers_by_quadrature(answers):
    with numpyro.plate("items", answers.shape[1]):
        slope = numpyro.sample("slope", dist.LogNormal(0, 0.5))
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    chances = dist.Bernoulli(logits=slope * (nodes[:, None] - difficulty))
    of_nodes = chances.log_prob(answers[:, None, :]).sum(-1)
    with numpyro.plate("persons", len(answers)):
        numpyro.factor("answers", logsumexp(of_nodes + np.log(weights / weights.sum()), axis=-1))


@example(
    "textbook: BG/NBD, customers who may have left", Normal, codes(5), positives(), positives()
)
def customers(purchases, latest, since):
    r, alpha, a, b = (numpyro.sample(name, dist.HalfNormal(3)) for name in ("r", "alpha", "a", "b"))
    age = latest + since
    here = -(r + purchases) * jnp.log(alpha + age)
    left = (
        jnp.log(a)
        - jnp.log(b + jnp.maximum(purchases, 1) - 1)
        - (r + purchases) * jnp.log(alpha + latest)
    )
    common = (
        gammaln(r + purchases)
        - gammaln(r)
        + r * jnp.log(alpha)
        + betaln(a, b + purchases)
        - betaln(a, b)
    )
    with numpyro.plate("customers", len(purchases)):
        numpyro.factor(
            "purchases", common + jnp.logaddexp(here, jnp.where(purchases > 0, left, -jnp.inf))
        )


@example(
    "textbook: mixed logit, a panel with public draws",
    Normal,
    reals(4, 3, 2),
    codes(3, 4),
    draws=_random.normal(size=(16, 2)),
)
def mixed_logit(alternatives, choices, draws):
    mean, scale = (
        normals("mean", 2),
        numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1)),
    )
    lower = numpyro.sample("lower", dist.LKJCholesky(2, 1.0))
    tastes = mean + draws @ (scale[:, None] * lower).T
    logs = jax.nn.log_softmax(jnp.einsum("ntak,rk->nrta", alternatives, tastes), axis=-1)
    chosen = jnp.take_along_axis(logs, choices[:, None, :, None], axis=-1)[..., 0].sum(-1)
    with numpyro.plate("people", len(choices)):
        numpyro.factor("choices", logsumexp(chosen, axis=1) - jnp.log(len(draws)))


@example("textbook: Q-learning, a subject a record", Normal, codes(2, 10), reals(10))
def q_learning(actions, rewards):
    rate, inverse = (
        numpyro.sample("rate", dist.Beta(2, 2)),
        numpyro.sample("inverse", dist.HalfNormal(3)),
    )

    def of_subject(actions, rewards):
        def trial(values, seen):
            action, reward = seen
            chance = jax.nn.log_softmax(inverse * values)[action]
            return values.at[action].add(rate * (reward - values[action])), chance

        return jax.lax.scan(trial, jnp.zeros(2), (actions, rewards))[1].sum()

    with numpyro.plate("subjects", len(actions)):
        numpyro.factor("choices", jax.vmap(of_subject)(actions, rewards))


@example("textbook: Plackett-Luce rankings", Normal, np.argsort(reals(4)).astype(np.int32))
def rankings(ranks):
    worth = normals("worth", 4)[ranks]
    with numpyro.plate("rankings", len(ranks)):
        numpyro.factor("order", (worth - jax.lax.cumlogsumexp(worth, axis=1, reverse=True)).sum(1))


@example(
    "textbook: conditional autoregression over public areas",
    Normal,
    codes(4),
    positives(),
    codes(6),
    neighbours=np.eye(4, k=1) + np.eye(4, k=-1),
)
def disease_map(area, expected, cases, neighbours):
    precision, correlation = (
        numpyro.sample("precision", dist.Gamma(3, 1)),
        numpyro.sample("correlation", dist.Uniform(0, 0.99)),
    )
    effect = numpyro.sample("effect", dist.CAR(jnp.zeros(4), correlation, precision, neighbours))
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    numpyro.sample("cases", dist.Poisson(expected * jnp.exp(mean + effect[area])), obs=cases)


# --- refused --------------------------------------------------------------------------------------

ACROSS = "has no term for each record"
MANY = f"the log density of {N} made-up records"
NUMBER = "depends on how many"


@refused("textbook: Cox", ACROSS, Normal, positives(), reals(2), codes(2))
def cox(time, x, event):
    weights = normals("weights", 2)
    order = jnp.argsort(-time)
    risk = (x @ weights)[order]
    numpyro.factor("partial", jnp.sum((risk - jax.lax.cumlogsumexp(risk)) * event[order]))


@refused("examples/gp", ACROSS, Normal, reals(), reals())
def gp(x, y):
    length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 1.0))
    kernel = jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + 0.1 * jnp.eye(x.shape[0])
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(x.shape[0]), kernel), obs=y)


@refused("examples/sparse_regression", ACROSS, Normal, reals(3), reals())
def sparse_regression(x, y):
    eta = numpyro.sample("eta", dist.LogNormal(0, 1).expand([3]).to_event(1))
    kernel = (1 + (x * eta) @ x.T) ** 2 + jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(0, kernel), obs=y)


@refused("examples/stochastic_volatility", NUMBER, Normal, reals())
def stochastic_volatility(returns):
    step = numpyro.sample("sigma", dist.Exponential(50.0))
    s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step, num_steps=jnp.shape(returns)[0]))
    numpyro.sample("r", dist.Normal(0, jnp.exp(s)), obs=returns)


@refused("examples/ar2, one series", ACROSS, Normal, reals())
def one_series(y):
    rho = numpyro.sample("rho", dist.Uniform(-1, 1))
    before = jnp.concatenate([jnp.zeros(1), y[:-1]])
    numpyro.sample("y", dist.Normal(rho * before, 1), obs=y)


@refused("examples/dais_demo", "released without noise", AutoDAIS, reals(2), codes(2), quick=True)
def dais_demo(x, y):
    weights = normals("weights", 2)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@refused("examples/funnel", "nothing to learn", Normal, reals(2))
def funnel(x):
    y = numpyro.sample("y", dist.Normal(0, 3))
    numpyro.sample("x", dist.Normal(jnp.zeros(9), jnp.exp(y / 2)).to_event(1))


@refused("examples/toy_mixture_model_discrete_enumeration", "discrete latent", Normal, reals())
def enumerated_mixture(x):
    locs = normals("locs", 2)
    with numpyro.plate("N", len(x)):
        which = numpyro.sample("which", dist.Bernoulli(0.5))
        numpyro.sample("x", dist.Normal(locs[which], 1), obs=x)


@refused(
    "documentation: eight schools, automatic guide",
    "amortised guide",
    Normal,
    reals(),
    positives(),
    quick=True,
)
def eight_schools_by_itself(y, sigma):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


@refused(
    "notebooks/bayesian_imputation, indices",
    "needs the values of records",
    Normal,
    reals(),
    reals(),
    quick=True,
)
def imputation_by_index(age, y):
    mean, slope = normals("mean"), normals("slope")
    missing = np.nonzero(np.isnan(age))[0]
    numpyro.sample("missing", dist.Normal(mean, 1).expand([len(missing)]).mask(False))
    numpyro.sample("y", dist.Normal(slope * age, 1), obs=y)


@refused("textbook: standardised inside the model", ACROSS, Normal, reals(2), reals(), quick=True)
def standardised(x, y):
    weights = normals("weights", 2)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal((x - x.mean(0)) / x.std(0) @ weights, 1), obs=y)


@refused(
    "textbook: groups counted inside the model",
    "needs the values of records",
    Normal,
    codes(3),
    reals(),
    quick=True,
)
def groups_counted(group, y):
    with numpyro.plate("groups", len(np.unique(group))):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(effect[group], 1), obs=y)


@refused(
    "textbook: whole numbers as parameters",
    "no gradient can change",
    lambda x: None,
    reals(),
    quick=True,
)
def whole_parameter(x):
    loc = numpyro.param("loc", jnp.array([1, 2]))
    numpyro.sample("x", dist.Normal(loc.sum(), 1), obs=x)


@refused("textbook: printing", "calls Python", Normal, reals(), quick=True)
def printing(x):
    loc = normals("loc")
    jax.debug.print("{}", x)
    numpyro.sample("x", dist.Normal(loc, 1), obs=x)


@refused("textbook: another model for large data", MANY, Normal, reals(2), reals(), quick=True)
def another_for_many(x, y):
    weights = normals("weights", 2)
    noise = 2.0 if len(x) > 5 else 1.0
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(x @ weights, noise), obs=y)


@refused(
    "textbook: groups by the index of a record",
    "uses the index of the record plate",
    Normal,
    reals(2),
    reals(),
)
def groups_by_index(x, y):
    with numpyro.plate("groups", 3):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
    with numpyro.plate("N", len(x)) as index:
        numpyro.sample("y", dist.Normal(effect[index // 4], 1), obs=y)


@refused(
    "textbook: bounds of a parameter from the data",
    "the bounds of parameter",
    lambda x: None,
    reals(),
)
def bounds_of_data(x):
    loc = numpyro.param("loc", 0.0, constraint=constraints.interval(x.min(), x.max()))
    numpyro.sample("x", dist.Normal(loc, 1), obs=x)


# --- the page of the documentation ----------------------------------------------------------------

_WORDS = {
    ACROSS: "its likelihood mixes records",
    NUMBER: "a latent for each time of the one series",
    "released without noise": "the guide runs on the likelihood: `AutoMultivariateNormal` works",
    "nothing to learn": "it has no data",
    "discrete latent": "sum the discrete latent out (`MixtureSameFamily`), as above",
    "amortised guide": "latents of each record need an amortised guide: the error has one to paste",
    "needs the values of records": "which entries, or how many groups, is a constant by keyword",
    "no gradient can change": "start the parameter from floats",
    MANY: "it does something else for many records than for few",
    "uses the index of the record plate": "the group is a column of the record",
    "the bounds of parameter": "bounds are public constants",
    "calls Python": "it would print private records",
}


_HEAD = """# Examples of NumPyro

These are models of NumPyro's examples and notebooks and of textbooks, rewritten for made-up
records, as users of `SVI`
write them. The tests (`tests/record_model/examples_of_numpyro.py`) fit each with this guide. They
compare the gradient
of a step without noise on all records with that of numpyro's own `Trace_ELBO`, for the same draws
of the latents."""


def page() -> str:
    """docs/examples_of_numpyro.md."""
    lines = [*_HEAD.splitlines(), "", "| model | from | guide |", "| --- | --- | --- |"]
    for name, each in EXAMPLES.items():
        guide = (
            each.guide.func.__name__ if isinstance(each.guide, functools.partial) else "amortised"
        )
        lines.append(f"| `{name}` | {each.source} | {guide} |")
    lines += [
        "",
        "These are refused before any step:",
        "",
        "| model | from | why, and what to do |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| `{name}` | {each.source} | {_WORDS[each.why]} |" for name, each in REFUSED.items()
    ]
    lines += [
        "",
        "[Writing a model](writing_a_model.md) goes from three of NumPyro's examples to a "
        "private fit.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import pathlib

    pathlib.Path(__file__).parents[2].joinpath("docs/examples_of_numpyro.md").write_text(
        page(), encoding="utf-8"
    )
