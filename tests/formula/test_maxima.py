"""The maximum of a family's likelihood is that of statsmodels, or of scipy's density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special, stats
from scipy.optimize import minimize
from statsmodels.discrete.count_model import ZeroInflatedNegativeBinomialP, ZeroInflatedPoisson
from statsmodels.discrete.truncated_model import HurdleCountModel

from workbench.formula.families import Response, get

ROWS = 800
RANDOM = np.random.default_rng(7)
X = sm.add_constant(RANDOM.uniform(-1, 1, ROWS))
MEAN = np.exp(X @ [0.9, 0.6])
TRIALS = RANDOM.integers(2, 12, ROWS)
HAS_EXTRA_ZERO = RANDOM.random(ROWS) < 0.3


def counts(is_poisson):
    drawn = RANDOM.poisson(MEAN * (1 if is_poisson else RANDOM.gamma(2, 0.5, ROWS)))
    return np.where(HAS_EXTRA_ZERO, 0, drawn)


def of_glm(y):
    found = sm.GLM(y, X, sm.families.InverseGaussian(sm.families.links.Log())).fit()
    return *found.params, 1 / np.mean((y - found.mu) ** 2 / (found.mu**2 * y))


def of_logs(y):
    found = sm.OLS(np.log(y), X).fit()
    return *found.params, np.sqrt(np.mean(found.resid**2))


def of_zero_inflated(model):
    """:param model: of statsmodels; the logit of the zeros' probability comes first."""

    def reference(y):
        found = model(y, X, exog_infl=np.ones((ROWS, 1))).fit(disp=0, maxiter=2000, method="bfgs")
        logit, intercept, slope, *alpha = found.params
        return intercept, slope, special.expit(logit), *(1 / value for value in alpha)

    return reference


def of_hurdle(distribution):
    """Whose zeros have a regression of their own, and here a share."""

    def reference(y):
        found = HurdleCountModel(y, X, dist=distribution, zerodist="poisson").fit(
            disp=0, maxiter=2000
        )
        intercept, slope, *alpha = found.params[2:]
        return intercept, slope, np.mean(y == 0), *(1 / value for value in alpha)

    return reference


def by_scipy(y):
    """Beta-binomial."""

    def loss(theta):
        p, concentration = special.expit(X @ theta[:2]), np.exp(theta[2])
        return -stats.betabinom.logpmf(y, TRIALS, concentration * p, concentration * (1 - p)).sum()

    intercept, slope, log_concentration = minimize(loss, [0.0, 0.0, 1.0]).x
    return intercept, slope, np.exp(log_concentration)


SHARES = RANDOM.beta(4 * special.expit(X @ [0.3, 0.6]), 4 * special.expit(-X @ [0.3, 0.6]))
POSITIVE, COUNTS = Response("y", 0.01, 100), Response("y", 0, 50)
# {family: (response, its values, extras, parameters, reference of intercept, slope, parameters)}
CASES = {
    "lognormal": (POSITIVE, MEAN * np.exp(RANDOM.normal(0, 0.5, ROWS)), {}, ["sigma"], of_logs),
    "inverse_gaussian": (
        POSITIVE,
        stats.invgauss(MEAN / 3, scale=3).rvs(random_state=RANDOM),
        {},
        ["shape"],
        of_glm,
    ),
    "beta_binomial": (
        Response("y", 0, 12, extras={"trials": (1, 12)}),
        RANDOM.binomial(TRIALS, SHARES),
        {"trials": TRIALS},
        ["concentration"],
        by_scipy,
    ),
    "zero_inflated_poisson": (
        COUNTS,
        counts(True),
        {},
        ["zero_inflation"],
        of_zero_inflated(ZeroInflatedPoisson),
    ),
    "zero_inflated_negative_binomial": (
        COUNTS,
        counts(False),
        {},
        ["zero_inflation", "concentration"],
        of_zero_inflated(ZeroInflatedNegativeBinomialP),
    ),
    "hurdle_poisson": (COUNTS, counts(True), {}, ["zero_probability"], of_hurdle("poisson")),
    "hurdle_negative_binomial": (
        COUNTS,
        counts(False),
        {},
        ["zero_probability", "concentration"],
        of_hurdle("negbin"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_likelihood_has_the_maximum_of_another_program(name):
    response, y, extras, parameters, reference = CASES[name]
    family = get(name)
    shift, scale = family.units(response)

    def values(theta):
        inverse = {site: jnp.asarray if site == family.zeros else jnp.exp for site in parameters}
        return {
            site: inverse[site](value) for site, value in zip(parameters, theta[2:], strict=True)
        }

    def loss(theta):
        distribution = family.likelihood(
            response, (X @ theta[:2] - shift) / scale, values(theta), **extras
        )
        return -distribution.log_prob(y).sum()

    with jax.enable_x64(True):
        gradient = jax.jit(jax.value_and_grad(loss))
        start = np.zeros(2 + len(parameters))
        found = minimize(lambda theta: gradient(theta), start, jac=True).x
        own = family.own_parameters(response, values(found))
        estimates = *found[:2], *(float(own[site]) for site in parameters)
    np.testing.assert_allclose(estimates, reference(y), rtol=2e-3, atol=2e-3)
