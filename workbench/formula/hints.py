"""What other programs write, and what to write here: names of functions, families and links, as
data.
"""

from __future__ import annotations

from types import MappingProxyType

__all__ = [
    "CALLS",
    "FAMILIES",
    "LEFT",
    "LINKS",
    "OFFSET",
    "ROLES",
    "SAME",
    "SAME_LINKS",
    "WITH_LINK",
]


def _all(names: str, words: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), words)


_ROWS = "would look at all rows of the private table: "

# functions of columns
CALLS = MappingProxyType(
    {
        **_all(
            "mean median std sd var sum min max quantile", f"{_ROWS}write the public number itself"
        ),
        **_all(
            "rank cut qcut ntile",
            f"{_ROWS}write comparisons with public numbers, as in I(age > 65)",
        ),
        **_all(
            "ns rcs rcspline cr cc cs lo smooth",
            f"{_ROWS}write bs(x, df=5), whose knots are public, or s(x), a smooth",
        ),
        **_all("te ti t2", "is a smooth of several columns: write a curve for each, s(x) + s(z)"),
        **_all(
            "lag lead diff cumsum",
            f"{_ROWS}compute the column per person before you pass the table",
        ),
        **_all("hashed", f"{_ROWS}write C(x) for a column whose values are declared"),
        **_all("factor", "stands inside another call: write C(x) by itself"),
        **_all("ordered as.ordered", "is mo(x), for a monotone effect, or C(x)"),
        **_all("relevel", "names a reference level: write C(x, Treatment('b'))"),
        **_all("interaction", "is an interaction: write a:b"),
        **_all(
            "as.numeric as.integer float int",
            "is not needed: declare the column as numbers and write its name",
        ),
        **_all(
            "as.character as.logical str bool",
            "is not needed: declare the column's levels and write its name",
        ),
        **_all(
            "is.na isna isnull",
            "is missing(x), for a column declared as Numeric(low, high, missing=True)",
        ),
        **_all("pow power square", "is a power: write I(x**2)"),
        **_all("ifelse where", "is a comparison: write I(x > 3), which is 1 where it is true"),
        **_all(
            "log1mexp logit inv_logit probit",
            "is not known here: compute the column before you pass the table",
        ),
        **_all("identity Identity", "is not needed: write the column's name"),
        **_all("offset", "stands inside another term: write + offset(log(exposure)) by itself"),
        **_all("gp hsgp", "is a Gaussian process, which is not here: write s(x, k=10)"),
        **_all("mm mmc", "is a term of several memberships, which is not here"),
        **_all(
            "me mi",
            "is a model of errors or missing values, which is not here: see missing= of fit",
        ),
        **_all("strata cluster frailty", "is a term of groups: write (1 | g)"),
        **_all("ar arma ma cosy unstr", "is a correlation between rows, which is not here"),
    }
)

# functions on the left-hand side, or behind its |
LEFT = MappingProxyType(
    {
        **_all(
            "p prop proportion trials",
            "needs two columns here. For a number of trials that is the same in all rows make a "
            "column of it, as in frame.assign(n=30), declare it, as in 'n': (0, 30, int), and "
            "write p(successes, n)",
        ),
        **_all("rate", "needs a column with the exposure, as in visits | rate(days)"),
        **_all(
            "cbind",
            "is p(successes, trials) here: make a column with the number of trials of each row, as "
            "in frame.assign(n=frame['wins'] + frame['losses']), and write p(wins, n)",
        ),
        **_all(
            "cens",
            "is censored(time, status) here, with levels ['none', 'right'], or Surv(time, "
            "observed)",
        ),
        **_all(
            "Surv censored",
            "takes two columns here: Surv(time, observed) or censored(time, status)",
        ),
        **_all(
            "weights se",
            "is not known: each record counts once, because the guarantee bounds what it may do",
        ),
        **_all("trunc mi resp_trunc", "is not known here"),
        **_all("mvbind mvbrmsformula", "is of several responses: fit one after the other"),
        **_all(
            "log log2 log10 log1p sqrt exp scale center I C factor",
            "transforms the response. Do this before you pass the table, and declare the bounds "
            "of the result",
        ),
    }
)

OFFSET = (
    "has an offset() that is not one offset(log(exposure)), of a column with the exposure of "
    "counts. For a gaussian response subtract the offset before you pass the table, and declare "
    "the bounds of the difference."
)

# columns besides the response
ROLES = MappingProxyType(
    {
        "exposure": "counts have exposures, in an offset(log(exposure)) too. From a gaussian "
        "response subtract the offset before you pass the table",
        "trials": "write family='binomial' for successes in trials",
        "observed": "write family='exponential' or 'weibull' for times to an event",
    }
)


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


# names of one family each in R, statsmodels, bambi, brms and PyMC, without blanks and underscores
SAME = MappingProxyType(
    {
        "gaussian": _keys("normal norm gauss lm ols linear"),
        "student_t": _keys("t student tdist"),
        "bernoulli": _keys("binary bool boolean"),
        "binomial": _keys("binom"),
        "beta_binomial": _keys("betabinom"),
        "poisson": _keys("pois"),
        "negative_binomial": _keys("nb negbin negbinom negbinomial nbinom nbinom2 nb2"),
        "zero_inflated_poisson": _keys("zip"),
        "zero_inflated_negative_binomial": _keys(
            "zinb zeroinflatednegbinomial zeroinflatednegativebinomialp"
        ),
        "hurdle_negative_binomial": _keys("hurdlenegbinomial"),
        "inverse_gaussian": _keys("wald invgauss invgaussian"),
        "lognormal": _keys("lognorm lnorm"),
        "beta": _keys("betareg"),
        "categorical": _keys("multinomial multinom softmax mnlogit mlogit"),
        "cumulative": _keys("ordinal ordered polr clm"),
        "exponential": _keys("exp expon"),
    }
)

# names that say a link as well: (family, link)
WITH_LINK = MappingProxyType(
    {
        **dict.fromkeys(("logit", "logistic", "logreg"), ("bernoulli", "logit")),
        "probit": ("bernoulli", "probit"),
        "cloglog": ("bernoulli", "cloglog"),
        "ologit": ("cumulative", "logit"),
        "oprobit": ("cumulative", "probit"),
    }
)

# names of families that are not here, or of several
FAMILIES = MappingProxyType(
    {
        **_all("robust", "write 'student_t', for heavy tails."),
        **_all("log count", "write 'poisson' or 'negative_binomial'."),
        **_all(
            "nbinom1",
            "has a variance in proportion to the mean: the nearest is 'negative_binomial'.",
        ),
        **_all(
            "quasipoisson",
            "has no likelihood: write 'negative_binomial', whose variance is larger than the mean.",
        ),
        **_all(
            "quasibinomial quasi",
            "has no likelihood: write 'beta_binomial' for successes in trials that vary more.",
        ),
        **_all(
            "sratio cratio acat stoppingratio",
            "is not here: the nearest is 'cumulative', for levels in order.",
        ),
        **_all(
            "cox coxph survival",
            "has no likelihood of one record: write 'weibull' or 'exponential'.",
        ),
        **_all("tweedie", "is not here: the nearest is 'gamma', for a response above 0."),
        **_all("zeroinfl", "write 'zero_inflated_poisson' or 'zero_inflated_negative_binomial'."),
        **_all("hurdle", "write 'hurdle_poisson' or 'hurdle_negative_binomial'."),
        **_all(
            "hurdlegamma hurdlelognormal",
            "is not here: fit whether it is 0 as 'bernoulli', and the rest as 'gamma'.",
        ),
        **_all(
            "laplace asymmetriclaplace asymlaplace doubleexponential quantile",
            "is not here: the nearest is 'student_t', for heavy tails.",
        ),
        **_all(
            "skewnormal",
            "is not here: write 'lognormal' for a response above 0, or 'student_t' for heavy "
            "tails.",
        ),
        **_all(
            "vonmises",
            "is not here: regress sine and cosine of the angle, each as 'gaussian'.",
        ),
        **_all("dirichlet", "is not here: regress one share after the other, as 'beta'."),
    }
)

# names of one link each in other programs
SAME_LINKS = MappingProxyType(
    {
        "identity": _keys("id ident linear"),
        "log": _keys("ln logarithm"),
        "logit": _keys("logistic sigmoid logodds"),
        "cloglog": _keys("complementaryloglog"),
        "inverse": _keys("reciprocal inv inversepower 1/mu"),
    }
)

# names of links that are not here, or of several
LINKS = MappingProxyType(
    {
        **_all("none", "write 'identity'."),
        **_all("exp", "write 'log'."),
        **_all("softmax inverselogit", "write 'logit'."),
        **_all("normal norm phi", "write 'probit'."),
        **_all("loglog gompertz cauchit", "the nearest is 'cloglog' or 'probit'."),
        **_all(
            "inversesquared 1/mu^2 sqrt power", "is not here: the nearest are 'inverse' and 'log'."
        ),
    }
)
