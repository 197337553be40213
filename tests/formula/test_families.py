"""Families of responses: densities, means and draws against scipy and sums by brute force, and what
they refuse.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

import workbench as wb
from tests.conftest import some_of
from workbench.data.preprocessing import MISSING
from workbench.formula import families
from workbench.formula.families import FAMILIES, Response, get

ZEROS = {"zero_inflated": "zero_inflation", "hurdle": "zero_probability"}
COUNTS = [
    *(plain := ("poisson", "negative_binomial")),
    *(f"{kind}_{name}" for kind in ZEROS for name in plain),
]
RESPONSES = {
    "gaussian": Response("salary", 10_000, 90_000),
    "student_t": Response("salary", 10_000, 90_000),
    "bernoulli": Response("readmitted", levels=("no", "yes")),
    "binomial": Response("successes", 0, 20, extras={"trials": (1, 20)}),
    "beta_binomial": Response("successes", 0, 20, extras={"trials": (1, 20)}),
    **dict.fromkeys(COUNTS, Response("visits", 0, 40, extras={"exposure": (0.5, 4)})),
    **dict.fromkeys(("gamma", "inverse_gaussian", "lognormal"), Response("cost", 20, 5000)),
    "beta": Response("share", 0.001, 0.999),
    "categorical": Response("party", levels=("a", "b", "c", "d")),
    "cumulative": Response("grade", levels=("low", "middle", "high", "top")),
    "exponential": Response("days", 0.5, 365),
    "weibull": Response("days", 0.5, 365),
}
PARAMETERS = {
    "gaussian": {"sigma": 0.4},
    "student_t": {"sigma": 0.4, "nu": 4.5},
    "beta_binomial": {"concentration": 12.0},
    "negative_binomial": {"concentration": 2.5},
    **{f"{kind}_poisson": {site: -0.8} for kind, site in ZEROS.items()},
    **{
        f"{kind}_negative_binomial": {"concentration": 2.5, site: -0.8}
        for kind, site in ZEROS.items()
    },
    "gamma": {"shape": 3.0},
    "inverse_gaussian": {"shape": 3.0},
    "lognormal": {"sigma": 0.8},
    "beta": {"concentration": 12.0},
    "cumulative": {"cutpoints": np.array([-1.3, 0.2, 1.1])},
    "weibull": {"shape": 1.7},
}
# what a record has beside its response
EXTRAS = {
    "binomial": {"trials": 9},
    "beta_binomial": {"trials": 9},
    **{key: {"exposure": 1.6} for key in COUNTS},
    "exponential": {"observed": 1.0},
    "weibull": {"observed": 1.0},
}
Y = {
    "gaussian": [10_000.0, 35_000.0, 90_000.0],
    "student_t": [10_000.0, 35_000.0, 90_000.0],
    "bernoulli": [0, 1],
    "binomial": [0, 4, 9],
    "beta_binomial": [0, 4, 9],
    **{key: [0, 1, 3, 40] for key in COUNTS},
    **{key: [20.0, 300.0, 5000.0] for key in ("gamma", "inverse_gaussian", "lognormal")},
    "beta": [0.001, 0.3, 0.999],
    "categorical": [0, 1, 3],
    "cumulative": [0, 1, 2, 3],
    "exponential": [0.5, 20.0, 365.0],
    "weibull": [0.5, 20.0, 365.0],
}
EVERY = [(name, link) for name, family in FAMILIES.items() for link in family.links]
PROBABILITY = {
    "logit": special.expit,
    "probit": stats.norm.cdf,
    "cloglog": lambda z: -np.expm1(-np.exp(z)),
}


def inputs(name):
    """Family's response, parameters and extras."""
    return RESPONSES[name], PARAMETERS.get(name, {}), EXTRAS.get(name, {})


def predictors(name, values):
    """[B], or [B, K - 1] for a family with several."""
    values = np.asarray(values, np.float32)
    return jnp.asarray(
        np.stack([values, 0.3 - values, 0.5 * values], 1) if name == "categorical" else values
    )


def mean_of(family, response, predictor):
    """The inverse link of the predictor in units that the bounds declare, in float64."""
    predictor = np.asarray(predictor, np.float64)
    if family.link in PROBABILITY:
        return PROBABILITY[family.link](predictor)
    shift, scale = family.units(response)
    linear = shift + scale * predictor
    return {"identity": np.positive, "log": np.exp, "inverse": np.reciprocal}[family.link](linear)


class WithZeros:
    """Zeros with a probability beside counts of scipy, in float64, by sums over the support."""

    def __init__(self, counts, probability, is_hurdle):
        self.support = np.arange(20_000)
        masses = counts.pmf(self.support[:, None])
        if is_hurdle:
            masses[0] = 0
            masses /= masses.sum(axis=0)
        masses *= 1 - probability
        masses[0] += probability
        self.masses, self.dist = masses, counts.dist

    def logpmf(self, y):
        return np.log(self.masses[int(y)])

    def stats(self, moments):
        mean = self.support @ self.masses
        central = [(self.support[:, None] - mean) ** power for power in (2, 4)]
        variance, fourth = ((power * self.masses).sum(axis=0) for power in central)
        return mean, variance, fourth / variance**2 - 3


def known(family, response, predictor, parameters, extras):
    """scipy's frozen distribution; for levels their probabilities."""
    mean = mean_of(family, response, predictor) * (
        extras.get("exposure", 1) if family.name != "binomial" else 1
    )
    reach = (response.high - response.low) / 2 if response.high is not None else None
    if family.name == "categorical":
        return special.softmax(
            np.concatenate([np.zeros((len(mean), 1)), predictor], axis=1).astype(np.float64), axis=1
        )
    if family.name == "cumulative":
        below = PROBABILITY[family.link](
            parameters["cutpoints"] - np.asarray(predictor, np.float64)[:, None]
        )
        ends = np.zeros((len(below), 1))
        return np.diff(np.concatenate([ends, below, ends + 1], axis=1), axis=1)
    shape = parameters.get("shape")
    own_shape = family.own_parameters(response, parameters).get("shape")
    concentration = parameters.get("concentration")
    for kind, site in ZEROS.items():
        if family.name.startswith(kind):
            counts = known(
                get(family.name[len(kind) + 1 :], family.link),
                response,
                predictor,
                parameters,
                extras,
            )
            return WithZeros(counts, special.expit(parameters[site]), is_hurdle=kind == "hurdle")
    return {
        "gaussian": lambda: stats.norm(mean, reach * parameters["sigma"]),
        "student_t": lambda: stats.t(parameters["nu"], mean, reach * parameters["sigma"]),
        "bernoulli": lambda: stats.bernoulli(mean),
        "binomial": lambda: stats.binom(extras["trials"], mean),
        "beta_binomial": lambda: stats.betabinom(
            extras["trials"], concentration * mean, concentration * (1 - mean)
        ),
        "poisson": lambda: stats.poisson(mean),
        "negative_binomial": lambda: stats.nbinom(
            concentration, concentration / (concentration + mean)
        ),
        "gamma": lambda: stats.gamma(shape, scale=mean / shape),
        # scipy's has the mean mu scale and the variance mu^3 scale^2
        "inverse_gaussian": lambda: stats.invgauss(mean / own_shape, scale=own_shape),
        "lognormal": lambda: stats.lognorm(parameters["sigma"], scale=mean),
        "beta": lambda: stats.beta(concentration * mean, concentration * (1 - mean)),
        "exponential": lambda: stats.expon(scale=mean),
        "weibull": lambda: stats.weibull_min(shape, scale=mean / special.gamma(1 + 1 / shape)),
    }[family.name]()


def log_density(family, response, predictor, parameters, extras, y):
    return family.likelihood(response, predictor, parameters, **extras).log_prob(jnp.asarray(y))


# ---- densities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "link"), some_of(EVERY, 5))
@pytest.mark.parametrize("size", some_of([0.2, 0.9]))
def test_densities_are_those_of_scipy(name, link, size):
    family, (response, parameters, extras) = get(name, link), inputs(name)
    predictor = predictors(name, np.linspace(-size, size, 7))
    reference = known(family, response, predictor, parameters, extras)
    for y in Y[name]:
        found = log_density(family, response, predictor, parameters, extras, y)
        assert found.shape == (7,)
        assert found.dtype == jnp.float32
        if name in ("categorical", "cumulative"):
            expected = np.log(reference[:, y])
        else:
            expected = (reference.logpdf if hasattr(reference.dist, "pdf") else reference.logpmf)(y)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["exponential", "weibull"])
def test_censored_times_have_the_survival_function(name):
    response, parameters, _ = inputs(name)
    predictor = predictors(name, np.linspace(-3, 3, 7))
    for link in ("log",):
        family = get(name, link)
        reference = known(family, response, predictor, parameters, {})
        for y in Y[name]:
            found = log_density(
                family, response, predictor, parameters, {"observed": jnp.zeros(7)}, y
            )
            np.testing.assert_allclose(found, reference.logsf(y), rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(
                family.survival(response, predictor, parameters, y),
                reference.sf(y),
                rtol=1e-4,
                atol=1e-7,
            )


def test_without_observed_every_time_is_that_of_an_event():
    family, (response, parameters, extras) = get("weibull"), inputs("weibull")
    assert log_density(family, response, 0.3, parameters, {}, 20.0) == log_density(
        family, response, 0.3, parameters, extras, 20.0
    )


@pytest.mark.parametrize(
    ("name", "parameters", "reference"),
    [
        (
            "negative_binomial",
            {"concentration": 2e5},
            lambda y, m: stats.nbinom.logpmf(y, 2e5, 2e5 / (2e5 + m)),
        ),
        (
            "negative_binomial",
            {"concentration": 1e-3},
            lambda y, m: stats.nbinom.logpmf(y, 1e-3, 1e-3 / (1e-3 + m)),
        ),
        ("gamma", {"shape": 3e4}, lambda y, m: stats.gamma.logpdf(y, 3e4, scale=m / 3e4)),
        ("gamma", {"shape": 0.01}, lambda y, m: stats.gamma.logpdf(y, 0.01, scale=m / 0.01)),
    ],
)
def test_large_and_small_parameters_are_not_rounded_away(name, parameters, reference):
    family, response = get(name), RESPONSES[name]
    mean = float(mean_of(family, response, 0.0))
    for y in (np.round(mean), np.round(1.02 * mean)):
        found = log_density(family, response, jnp.float32(0), parameters, {}, y)
        assert found == pytest.approx(reference(y, mean), rel=3e-4, abs=3e-4)


# ---- extremes ------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "link"), some_of(EVERY, 4, 0))
def test_values_and_gradients_are_finite_at_extremes(name, link):
    family, (response, parameters, extras) = get(name, link), inputs(name)
    ends = {
        role: response.extras.get(role, (0.0, 1.0) if role == "observed" else (value,))
        for role, value in extras.items()
    }
    rows = jnp.asarray([-200.0, -50, -20, -1, 0, 1, 20, 50, 200], jnp.float32)

    def of(row, parameters, extra, y):
        predictor = jnp.stack([row, -row, 0 * row]) if name == "categorical" else row
        return log_density(family, response, predictor, parameters, extra, y)

    # by row: a sum would hide which
    at_all = jax.jit(jax.vmap(jax.value_and_grad(of, (0, 1)), (0, None, None, None)))
    for factor, y, place in itertools.product(
        (0.02, 1.0, 50.0), (Y[name][0], Y[name][-1]), (0, -1)
    ):
        extra = {role: jnp.asarray(pair[place]) for role, pair in ends.items()}
        scaled = {
            site: value if site == "cutpoints" else factor * value
            for site, value in parameters.items()
        }
        scaled = {site: jnp.asarray(value, jnp.float32) for site, value in scaled.items()}
        y = jnp.asarray(min(y, int(extra["trials"])) if "trials" in extra else y)
        for found in jax.tree.leaves(at_all(rows, scaled, extra, y)):
            assert np.isfinite(found).all(), (factor, y, extra, found)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "link"), some_of(EVERY, 6, 1))
def test_the_gradient_leads_back_from_far_away(name, link):
    """Where no density is 0 in float32 the predictor that a response is unlikely under has a
    gradient.
    """
    family, (response, parameters, extras) = get(name, link), inputs(name)

    def of(predictor, y):
        several = jnp.stack([predictor] * 3, -1) if name == "categorical" else predictor
        return log_density(family, response, several, parameters, extras, y)

    smallest, largest = (0, 0) if name == "categorical" else (Y[name][0], Y[name][-1])
    if family.zeros:  # a zero may be one that says nothing of the predictor
        smallest = 1
    increasing = -1 if link == "inverse" else 1
    if name != "categorical":
        assert increasing * jax.grad(of)(jnp.float32(-increasing * 30), largest) > 0
    if not (link == "cloglog" and name == "cumulative"):
        assert increasing * jax.grad(of)(jnp.float32(increasing * 30), smallest) < 0


@pytest.mark.parametrize(
    ("name", "link"),
    some_of([(name, link) for name, link in EVERY if get(name, link).gradient(RESPONSES[name])[1]]),
)
def test_a_bound_on_the_gradient_is_one_and_is_reached(name, link):
    family, (response, _, _) = get(name, link), inputs(name)
    size = family.gradient(response).size
    largest = 0.0
    for y in range(len(response.levels) or 21):
        for cutpoints in ([-30.0, 0, 30], [-1, 0, 1], [-0.01, 0, 0.01]):

            def of(predictor, y=y, cutpoints=cutpoints):
                parameters = {"cutpoints": jnp.asarray(cutpoints)}
                return log_density(family, response, predictor, parameters, {"trials": 20.0}, y)

            rows = predictors(name, np.linspace(-40, 40, 161))
            gradients = np.asarray(jax.vmap(jax.grad(of))(rows)).reshape(len(rows), -1)
            largest = max(largest, np.linalg.norm(gradients, axis=1).max())
    assert 0.7 * size <= largest <= size * (1 + 1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "link"), some_of(EVERY, 12, 2))
def test_a_typical_gradient_is_of_that_size(name, link):
    """Its deviation over responses drawn at the middle, with the priors' medians as parameters."""
    family, response = get(name, link), RESPONSES[name]
    size, is_bound = family.gradient(response)
    if is_bound or name == "cumulative":
        return
    medians = {
        "gaussian": {"sigma": 0.3},
        "student_t": {"sigma": 0.3, "nu": 17.0},
        "lognormal": {"sigma": 0.67},
    }
    parameters = medians.get(name) or {
        site: 0.0 if site == family.zeros else float(np.exp(prior.loc))
        for site, prior in family.parameters(response).items()
    }
    extras = {"trials": 20.0} if "trials" in response.extras else {}
    if "exposure" in response.extras:
        extras = {"exposure": np.float32(np.sqrt(0.5 * 4))}
    middle = jnp.zeros(4000)
    y = family.sample(jax.random.key(1), response, middle, parameters, **extras)
    gradients = jax.vmap(
        jax.grad(lambda e, y: log_density(family, response, e, parameters, extras, y))
    )(middle, y)
    assert size / 2 < np.sqrt(np.mean(gradients**2)) < 2 * size


# ---- means and draws -----------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "link"), some_of(EVERY, 12, 0))
def test_means_are_expectations_of_the_density(name, link):
    family, (response, parameters, extras) = get(name, link), inputs(name)
    predictor = predictors(name, [-0.6, 0.1, 0.7])
    found = np.asarray(family.mean(response, predictor, parameters, **extras), np.float64)
    density = jax.jit(
        lambda y: jnp.exp(log_density(family, response, predictor, parameters, extras, y))
    )
    if family.kind == "class":
        probabilities = np.stack([density(y) for y in range(len(response.levels))], axis=1)
        expected = probabilities if name != "bernoulli" else probabilities[:, 1]
        np.testing.assert_allclose(np.sum(probabilities, axis=1), 1, rtol=1e-5)
    elif family.kind == "count":
        counts = np.arange(10 if "trials" in extras else 1500)
        masses = np.stack([np.asarray(density(int(y)), np.float64) for y in counts])
        np.testing.assert_allclose(masses.sum(axis=0), 1, rtol=3e-4)
        expected = counts @ masses
    else:
        low, high = {
            "beta": (1e-6, 1 - 1e-6),
            "gaussian": (-4e5, 5e5),
            "student_t": (-1e6, 1.1e6),
        }.get(name, (1e-6, 3e5))
        grid = (
            np.linspace(low, high, 200_001)
            if low < 0 or high < 1
            else np.geomspace(low, high, 200_001)
        )
        values = np.stack([density(y) for y in grid[::50]], axis=1).astype(np.float64)
        expected = integrate.simpson(values * grid[::50], x=grid[::50], axis=1)
    np.testing.assert_allclose(found, expected, rtol=4e-3)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "link"), some_of(EVERY, 12, 1))
def test_draws_have_the_mean_and_the_variance(name, link):
    """Each within five standard errors: a false alarm in about a million comparisons; there are
    about 90.
    """
    family, (response, parameters, extras) = get(name, link), inputs(name)
    draws = 20_000
    predictor = predictors(name, np.full(draws, 0.4))
    y = np.asarray(
        family.sample(jax.random.key(0), response, predictor, parameters, **extras), np.float64
    )
    assert y.shape == (draws,)
    reference = known(family, response, predictor[:1], parameters, extras)
    if name in ("categorical", "cumulative"):
        share = np.bincount(y.astype(int), minlength=4) / draws
        assert (np.abs(share - reference[0]) < 5 * np.sqrt(reference[0] / draws)).all()
        return
    mean, variance, excess = (float(np.squeeze(each)) for each in reference.stats(moments="mvk"))
    assert abs(y.mean() - mean) < 5 * np.sqrt(variance / draws)
    if np.isfinite(excess) and name != "student_t":  # whose fourth moment hardly exists
        assert abs(y.var() - variance) < 5 * variance * np.sqrt((excess + 2) / draws) + 1e-9


@pytest.mark.parametrize("name", some_of(list(FAMILIES), 4, 1))
def test_draws_are_finite_far_away(name):
    family, (response, parameters, extras) = get(name), inputs(name)
    far = predictors(name, np.repeat([-200.0, -30, 30, 200], 100))
    y = family.sample(jax.random.key(0), response, far, parameters, **extras)
    assert np.isfinite(y).all()
    assert family.kind in ("number", "share") or (y >= 0).all()


def test_draws_behind_a_hurdle_are_the_others_without_their_zeros():
    """Where nearly all of them are 0, too: the count is 1 then."""
    for name in ("hurdle_poisson", "hurdle_negative_binomial"):
        family, (response, parameters, _) = get(name), inputs(name)
        parameters = {**parameters, "zero_probability": -60.0}
        small = jnp.full(1000, -40.0)
        assert (family.sample(jax.random.key(0), response, small, parameters) == 1).all()
        assert family.mean(response, small[0], parameters) == pytest.approx(1)
        assert log_density(family, response, small[0], parameters, {}, 1) == pytest.approx(
            0, abs=1e-4
        )


def test_a_mean_without_trials_or_exposure_is_that_of_one():
    for name, extra in (("binomial", "trials"), ("poisson", "exposure")):
        family, response = get(name), RESPONSES[name]
        one = family.mean(response, jnp.float32(0.3), {})
        assert family.mean(
            response, jnp.float32(0.3), {}, **{extra: jnp.float32(3)}
        ) == pytest.approx(3 * float(one), rel=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_ordinal_probabilities_sum_to_one(link):
    family, response = get("cumulative", link), RESPONSES["cumulative"]
    for cutpoints in ([-1.3, 0.2, 1.1], [-0.001, 0, 0.001], [-20, -5, 30]):
        rows = jnp.linspace(-12, 12, 49)
        probabilities = np.asarray(
            family.mean(response, rows, {"cutpoints": jnp.asarray(cutpoints)}), np.float64
        )
        assert probabilities.shape == (49, 4)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=3e-6)
        reference = known(family, response, rows, {"cutpoints": np.asarray(cutpoints)}, {})
        np.testing.assert_allclose(probabilities, reference, rtol=1e-3, atol=1e-6)


def test_two_ordered_levels_are_a_logistic_regression():
    response = Response("y", levels=("no", "yes"))
    found = get("cumulative").mean(response, jnp.float32([0.3, -2]), {"cutpoints": jnp.zeros(1)})[
        :, 1
    ]
    np.testing.assert_allclose(found, special.expit([0.3, -2]), rtol=1e-5)


# ---- units and priors ----------------------------------------------------------------------------


def test_the_declared_range_is_minus_one_to_one_of_the_predictor():
    for name, link in (("gaussian", "identity"), ("poisson", "identity"), ("gamma", "inverse")):
        family, response = get(name, link), Response("y", 2, 50)
        low, high = (2.5, 50.5) if name == "poisson" else (2, 50)
        ends = sorted(float(family.mean(response, jnp.float32(end), {})) for end in (-1, 1))
        np.testing.assert_allclose(ends, [low, high], rtol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(1, 10_000), (0, 10_000), (3, 5)])
def test_the_intercept_on_a_scale_of_logarithms_covers_the_declared_range(low, high):
    family, response = get("poisson"), Response("y", low, high)
    prior = family.intercept_prior(response)
    for deviations, end in ((-1, low), (1, high)):
        mean = float(family.mean(response, jnp.float32(deviations * prior.scale), {}))
        assert (mean - end) * deviations > 0 or mean == pytest.approx(end + 0.5, rel=1e-4)


def test_the_exposure_divides_the_rate_of_the_prior():
    family = get("poisson")
    plain, exposed = Response("y", 0, 40), Response("y", 0, 40, extras={"exposure": (10, 1000)})
    assert float(family.mean(exposed, 0.0, {}, exposure=100.0)) == pytest.approx(
        float(family.mean(plain, 0.0, {})), rel=1e-5
    )


@pytest.mark.parametrize(("name", "link"), EVERY)
def test_priors_are_those_of_the_documentation(name, link):
    family, response = get(name, link), RESPONSES[name]
    intercept = family.intercept_prior(response)
    assert intercept.loc == 0
    table = {
        "logit": (2.5, 2.5, 1),
        "probit": (1.5, 1.5, 0.6),
        "cloglog": (2.5, 2.5, 1),
        "log": (None, 2.5, 1),
    }
    wide, slope, group = table.get(link, (1, 2, 0.5))
    assert wide is None or intercept.scale == wide
    assert (family.slope_scale(response), family.group_scale(response)) == (slope, group)
    priors = family.parameters(response)
    assert set(priors) == set(PARAMETERS.get(name, {}))
    for site, prior in priors.items():
        draw = prior.sample(jax.random.key(0), (50,))
        if site == "cutpoints":
            assert (np.diff(draw, axis=1) > 0).all()
        else:
            assert site == family.zeros or (draw > 0).all()
    own = dict(family.own_parameters(response, PARAMETERS.get(name, {})))
    if name in ("gaussian", "student_t"):  # 0.4 of half the declared range
        assert own.pop("sigma") == pytest.approx(16_000)
    if name == "inverse_gaussian":  # of the mean in the middle of what is declared
        assert own.pop("shape") == pytest.approx(3 * mean_of(family, response, 0.0))
    if family.zeros:  # of a logit
        assert own.pop(family.zeros) == pytest.approx(special.expit(-0.8))
    assert own == {site: PARAMETERS[name][site] for site in own}


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_prior_cutpoints_lie_around_equally_likely_levels(link):
    family, response = get("cumulative", link), RESPONSES["cumulative"]
    base = family.parameters(response)["cutpoints"].base_dist.base_dist
    cutpoints = np.concatenate([base.loc[:1], base.loc[0] + np.cumsum(np.exp(base.loc[1:]))])
    np.testing.assert_allclose(PROBABILITY[link](cutpoints), [0.25, 0.5, 0.75], rtol=1e-5)


# ---- records -------------------------------------------------------------------------------------


def test_values_are_cut_to_the_declared_bounds_row_by_row():
    alone = get("poisson").encode(Response("y", 2, 9), {"y": [0, 5, 50]})
    assert (alone["y"].tolist(), alone["y"].dtype) == ([2, 5, 9], np.int32)
    number = get("gaussian").encode(Response("y", -1, 1), {"y": pd.Series([-7, 0.5, 4])})
    assert (number["y"].tolist(), number["y"].dtype) == ([-1, 0.5, 1], np.float32)


def test_values_that_belong_together_are_cut_together():
    """The rate of a count and the proportion of successes stay, and a time above its bound is
    censored.
    """
    rates = get("poisson").encode(
        Response("y", 0, 9, extras={"exposure": (1, 3)}),
        {"y": [1, 5, 8, 50], "exposure": [0.5, 2, 6.0, 9.0]},
    )
    np.testing.assert_allclose(rates["y"], [2, 5, 4, 9], rtol=1e-6)
    np.testing.assert_allclose(rates["exposure"], [1, 2, 3, 1.62], rtol=1e-6)
    successes = get("binomial").encode(
        RESPONSES["binomial"], {"y": [3, 28, 7], "trials": [5, 30, 40]}
    )
    np.testing.assert_allclose(successes["y"], [3, 28 * 20 / 30, 3.5], rtol=1e-6)
    assert successes["trials"].tolist() == [5, 20, 20]
    # successes have a smaller bound than trials
    few = Response("y", 0, 6, extras={"trials": (1, 20)})
    both = get("binomial").encode(few, {"y": [12, 3], "trials": [20, 20]})
    assert (both["y"].tolist(), both["trials"].tolist()) == ([6, 3], [10, 20])
    times = get("weibull").encode(
        Response("t", 0.5, 9), {"y": [0, 20, 9, 20], "observed": [True, True, True, False]}
    )
    np.testing.assert_allclose(times["y"], [0.5, 9, 9, 9])
    assert times["observed"].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("name", "response", "values"),
    [
        ("binomial", RESPONSES["binomial"], {"y": [0.0, 3, 28, 7], "trials": [3.0, 5, 30, 41]}),
        ("poisson", RESPONSES["poisson"], {"y": [0.0, 3, 90, 200], "exposure": [0.01, 2, 30, 3]}),
        (
            "negative_binomial",
            RESPONSES["poisson"],
            {"y": [0.0, 3, 90, 200], "exposure": [0.01, 2, 30, 3]},
        ),
        ("weibull", RESPONSES["weibull"], {"y": [0.1, 30, 365, 900], "observed": [1.0, 1, 1, 1]}),
    ],
)
def test_what_was_cut_together_stays_as_it_is(name, response, values):
    family, before = get(name), {role: np.array(column) for role, column in values.items()}
    once = family.cut_together(response, before)
    for role, again in family.cut_together(response, once).items():
        np.testing.assert_allclose(again, once[role], rtol=1e-12)
    for role, encoded in family.encode(response, once).items():
        np.testing.assert_allclose(encoded, family.encode(response, before)[role], rtol=1e-6)
    (role,) = family.extras
    nothing = family.cut_together(
        response, {"y": np.array([np.nan, 3.0]), role: np.array([1.0, np.nan])}
    )
    assert np.isnan(nothing["y"][0])
    assert np.isnan(nothing[role][1])


def test_a_time_at_its_bound_without_a_status_is_censored():
    """It may have been cut to it."""
    family, response = get("exponential"), RESPONSES["exponential"]
    reference = known(family, response, np.float32([0.3]), {}, {})
    assert log_density(family, response, 0.3, {}, {}, 365.0) == pytest.approx(
        reference.logsf(365.0)[0], rel=1e-5
    )
    assert log_density(family, response, 0.3, {}, {}, 364.0) == pytest.approx(
        reference.logpdf(364.0)[0], rel=1e-5
    )


def test_levels_are_codes_in_the_declared_order():
    family, response = get("cumulative"), RESPONSES["cumulative"]
    assert family.encode(response, {"y": ["top", "low", "middle"]})["y"].tolist() == [3, 0, 1]
    assert get("bernoulli").encode(RESPONSES["bernoulli"], {"y": ["yes", "no"]})["y"].tolist() == [
        1,
        0,
    ]
    assert get("bernoulli").encode(Response("y"), {"y": [True, False]})["y"].tolist() == [1, 0]
    whole = Response("y", levels=(1, 2.0, "3"))
    assert get("categorical").encode(whole, {"y": pd.Series([3.0, 1.0])})["y"].tolist() == [2, 0]


REFUSED = [
    ("poisson", {"y": [1, 2.5]}, "visits", "whole"),
    ("poisson", {"y": [1, -8675309]}, "visits", "below 0"),
    ("poisson", {"y": [1, 2], "exposure": [1, -8675309]}, "exposure", "below 0"),
    ("poisson", {"y": [1, 2], "exposure": [1, 0]}, "exposure", "0 in some row"),
    ("poisson", {"y": [1, 2.5], "exposure": [1, 1]}, "visits", "whole"),
    ("binomial", {"y": [0], "trials": [0]}, "trials", "0 in some row"),
    ("binomial", {"y": [1], "trials": [0.5]}, "trials", "whole"),
    ("binomial", {"y": [18], "trials": [11]}, "successes", "more successes than trials"),
    ("binomial", {"y": [1]}, "trials", "needed"),
    ("bernoulli", {"y": ["yes", "8675309"]}, "readmitted", "declared levels"),
    ("bernoulli", {"y": ["yes", None]}, "readmitted", "missing"),
    ("cumulative", {"y": ["low", "8675309"]}, "grade", "declared levels"),
    ("categorical", {"y": [float("nan")]}, "party", "missing"),
    ("gaussian", {"y": [1.0, float("inf")]}, "salary", "missing or infinite"),
    ("gaussian", {"y": ["8675309x"]}, "salary", "not a number"),
    ("gaussian", {"y": pd.to_datetime(["2020-01-01"])}, "salary", "plain numbers"),
    ("gamma", {"y": [-8675309.0]}, "cost", "below 0"),
    ("beta", {"y": [8675309.0]}, "share", "outside 0 .. 1"),
    ("weibull", {"y": [-1.0]}, "days", "below 0"),
    ("weibull", {"y": [1.0], "observed": [8675309]}, "observed", "censored"),
    ("exponential", {"y": [1.0], "observed": [None]}, "observed", "missing"),
]


@pytest.mark.parametrize(("name", "values", "argument", "words"), REFUSED)
def test_a_value_that_cannot_be_names_the_column_and_never_the_cell(name, values, argument, words):
    with pytest.raises(wb.ArgumentError, match=words) as refused:
        get(name).encode(RESPONSES[name], values)
    assert refused.value.argument == argument
    assert "8675309" not in str(refused.value)
    assert (refused.value.code == MISSING) == ("missing" in words)


WRONG = [
    ("gaussian", None, Response("y"), "response", "declared bounds"),
    ("gaussian", None, Response("y", levels=("a", "b")), "response", "declared bounds"),
    ("gaussian", None, Response("y", 0, 1e15), "response", "bounds within"),
    ("gaussian", None, Response("y", 1_000_000, 1_000_010), "response", "not far from 0"),
    ("gaussian", "log", Response("y", -5, -1), "link", "above 0"),
    ("gamma", None, Response("y", 0, 10), "response", "above 0"),
    ("weibull", None, Response("y", 0, 10), "response", "above 0"),
    ("exponential", None, Response("y", -1, 10), "response", "above 0"),
    ("beta", None, Response("y", 0, 1), "response", "between 0 and 1"),
    ("poisson", None, Response("y", -1, 10), "response", "bounds of counts"),
    ("poisson", None, Response("y", 0, 1e9), "response", "bounds of counts"),
    ("poisson", None, Response("y", 0, 10, extras={"exposure": (0, 1)}), "exposure", "above 0"),
    ("negative_binomial", None, Response("y", 0.2, 0.8), "response", "bounds of counts"),
    ("binomial", None, Response("y", 0, 10), "trials", "declared bounds"),
    (
        "binomial",
        None,
        Response("y", 0, 10, extras={"trials": (0, 0.5)}),
        "trials",
        "bounds of counts",
    ),
    ("hurdle_poisson", None, Response("y", 1, 10), "response", "lower bound 0"),
    ("zero_inflated_poisson", "identity", Response("y", 2, 10), "response", "lower bound 0"),
    ("inverse_gaussian", None, Response("y", 0, 10), "response", "above 0"),
    ("lognormal", None, Response("y", 0, 10), "response", "above 0"),
    ("beta_binomial", None, Response("y", 0, 10), "trials", "declared bounds"),
    ("bernoulli", None, Response("y", 0, 10), "response", "2 levels"),
    ("bernoulli", None, Response("y", levels=("a", "b", "c")), "response", "2 levels"),
    ("categorical", None, Response("y", 0, 3), "response", "2 to 200 levels"),
    ("cumulative", None, Response("y", levels=("a",)), "response", "2 to 200 levels"),
]


@pytest.mark.parametrize(("name", "link", "response", "argument", "words"), WRONG)
def test_a_declaration_that_does_not_suit_is_refused(name, link, response, argument, words):
    with pytest.raises(wb.ArgumentError, match=words) as refused:
        get(name, link).check(response)
    assert refused.value.argument == argument


@pytest.mark.parametrize("name", FAMILIES)
def test_a_declaration_that_suits_is_accepted(name):
    for link in FAMILIES[name].links:
        get(name, link).check(RESPONSES[name])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Response("", 0, 1),
        lambda: Response("y", 0),
        lambda: Response("y", 3, 3),
        lambda: Response("y", 0, float("inf")),
        lambda: Response("y", levels=("1", 1.0)),
        lambda: Response("y", 0, 1, extras={"trials": 5}),
    ],
)
def test_a_response_is_declared_well_or_not_at_all(wrong):
    with pytest.raises(wb.ArgumentError) as refused:
        wrong()
    assert refused.value.argument == "response"


def test_families_and_links_are_found_by_name():
    assert get("gamma").link == "log"
    assert get(get("gamma", "inverse")).link == "inverse"
    assert get(get("gamma", "inverse"), "log").link == "log"
    with pytest.raises(wb.ArgumentError, match="did you mean 'poisson'") as refused:
        get("poison")
    assert refused.value.argument == "family"
    with pytest.raises(
        wb.ArgumentError, match="must be one of logit, probit, cloglog for bernoulli"
    ) as refused:
        get("bernoulli", "log")
    assert refused.value.argument == "link"
    for name, family in FAMILIES.items():
        assert family.name == name
        assert family.summary.endswith(".")
        assert set(family.optional) <= set(family.extras)
    assert families.__all__


def test_a_family_follows_from_the_type_of_the_response():
    types = {"ill": bool, "sex": ["f", "m"], "ward": ["a", "b", "c"], "days": (0, 30)}
    expected = {"ill": "bernoulli", "sex": "bernoulli", "ward": "categorical", "days": "gaussian"}
    for name, family in expected.items():
        model = wb.models.formula(f"{name} ~ age", schema=types | {"age": (0, 120)})
        assert model.columns.family.name == family
    ordered = wb.models.formula("ward ~ 1", "cumulative", types)
    assert ordered.columns.family.name == "cumulative"


# ---- scores --------------------------------------------------------------------------------------


def test_scores_of_numbers_are_those_of_scikit_learn():
    from sklearn import metrics

    random = np.random.default_rng(0)
    y, predictions = random.normal(size=60), random.normal(size=60)
    scores = get("gaussian").scores(RESPONSES["gaussian"], y, predictions)
    assert scores["rmse"] == pytest.approx(metrics.root_mean_squared_error(y, predictions))
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(y, predictions))
    assert scores["r2"] == pytest.approx(metrics.r2_score(y, predictions))
    assert set(get("poisson").scores(RESPONSES["poisson"], np.full(3, 2), np.ones(3))) == {
        "rmse",
        "mae",
    }


def test_scores_of_levels_are_those_of_classes():
    y, probabilities = (
        np.array([0, 2, 1]),
        np.array([[0.6, 0.2, 0.2, 0], [0.1, 0.2, 0.7, 0], [0.5, 0.3, 0.2, 0]]),
    )
    found = get("cumulative").scores(RESPONSES["cumulative"], y, probabilities)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log_likelihood"] == pytest.approx(np.mean(np.log([0.6, 0.7, 0.3])))
    assert (
        get("bernoulli").scores(RESPONSES["bernoulli"], np.array([0, 1]), np.array([0.2, 0.9]))[
            "auc"
        ]
        == 1
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_concordance_is_that_of_all_pairs(seed):
    random = np.random.default_rng(seed)
    # with ties of both
    times, predictions = (random.integers(1, 9, 40) / 2, random.integers(0, 6, 40) / 4)
    observed = random.random(40) < 0.6
    right = pairs = 0.0
    for one in range(40):
        for other in range(40):
            later = times[other] > times[one] or (
                times[other] == times[one] and not observed[other]
            )
            if observed[one] and later:
                pairs += 1
                right += (predictions[other] > predictions[one]) + 0.5 * (
                    predictions[other] == predictions[one]
                )
    family, response = get("weibull"), RESPONSES["weibull"]
    assert family.scores(response, times, predictions, observed=observed) == {
        "concordance": pytest.approx(right / pairs)
    }
    assert family.scores(response, times, predictions) == {}
    assert family.scores(response, times, predictions, observed=np.zeros(40)) == {}
