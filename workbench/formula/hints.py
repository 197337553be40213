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


def _by_name(words: dict[str, str]) -> MappingProxyType[str, str]:
    """{name: words}. :param words: by several names with blanks between them."""
    return MappingProxyType({name: said for names, said in words.items() for name in names.split()})


_ROWS = "would look at all rows of the private table: "

# functions of columns
CALLS = _by_name(
    {
        "mean median std sd var sum min max quantile": f"{_ROWS}write the public number itself",
        "rank cut qcut ntile": f"{_ROWS}write comparisons with public numbers, as in I(age > 65)",
        "ns rcs rcspline cr cc cs lo smooth": f"{_ROWS}write bs(x, df=5), whose knots are public, "
        "or s(x), a smooth",
        "te ti t2": "is a smooth of several columns: write a curve for each, s(x) + s(z)",
        "lag lead diff cumsum": f"{_ROWS}compute the column per person before you pass the table",
        "hashed": f"{_ROWS}write C(x) for a column whose values are declared",
        "factor": "stands inside another call: write C(x) by itself",
        "ordered as.ordered": "is mo(x), for a monotone effect, or C(x)",
        "relevel": "names a reference level: write C(x, Treatment('b'))",
        "interaction": "is an interaction: write a:b",
        "as.numeric as.integer float int": "is not needed: declare the column as numbers and "
        "write its name",
        "as.character as.logical str bool": "is not needed: declare the column's levels and "
        "write its name",
        "is.na isna isnull": "is missing(x), for a column declared as Numeric(low, high, "
        "missing=True)",
        "pow power square": "is a power: write I(x**2)",
        "ifelse where": "is a comparison: write I(x > 3), which is 1 where it is true",
        "log1mexp logit inv_logit probit": "is not known here: compute the column before you "
        "pass the table",
        "identity Identity": "is not needed: write the column's name",
        "offset": "stands inside another term: write + offset(log(exposure)) by itself",
        "gp hsgp": "is a Gaussian process, which is not here: write s(x, k=10)",
        "mm mmc": "is a term of several memberships, which is not here",
        "me mi": "is a model of errors or missing values, which is not here: see missing= of fit",
        "strata cluster frailty": "is a term of groups: write (1 | g)",
        "ar arma ma cosy unstr": "is a correlation between rows, which is not here",
    }
)

# functions on the left-hand side, or behind its |
LEFT = _by_name(
    {
        "p prop proportion trials": "needs two columns here. For a number of trials that is the "
        "same in all rows make a column of it, as in frame.assign(n=30), declare it, as in 'n': "
        "(0, 30, int), and write p(successes, n)",
        "rate": "needs a column with the exposure, as in visits | rate(days)",
        "cbind": "is p(successes, trials) here: make a column with the number of trials of each "
        "row, as in frame.assign(n=frame['wins'] + frame['losses']), and write p(wins, n)",
        "cens": "is censored(time, status) here, with levels ['none', 'right'], or Surv(time, "
        "observed)",
        "Surv censored": "takes two columns here: Surv(time, observed) or censored(time, status)",
        "weights se": "is not known: each record counts once, because the guarantee bounds what "
        "it may do",
        "trunc mi resp_trunc": "is not known here",
        "mvbind mvbrmsformula": "is of several responses: fit one after the other",
        "log log2 log10 log1p sqrt exp scale center I C factor": "transforms the response. Do "
        "this before you pass the table, and declare the bounds of the result",
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


# names of one family each in R, statsmodels, bambi, brms and PyMC, with blanks between them
SAME = MappingProxyType(
    {
        "gaussian": "normal norm gauss lm ols linear",
        "student_t": "t student tdist",
        "bernoulli": "binary bool boolean",
        "binomial": "binom",
        "beta_binomial": "betabinom",
        "poisson": "pois",
        "negative_binomial": "nb negbin negbinom negbinomial nbinom nbinom2 nb2",
        "zero_inflated_poisson": "zip",
        "zero_inflated_negative_binomial": "zinb zeroinflatednegbinomial "
        "zeroinflatednegativebinomialp",
        "hurdle_negative_binomial": "hurdlenegbinomial",
        "inverse_gaussian": "wald invgauss invgaussian",
        "lognormal": "lognorm lnorm",
        "beta": "betareg",
        "categorical": "multinomial multinom softmax mnlogit mlogit",
        "cumulative": "ordinal ordered polr clm",
        "exponential": "exp expon",
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
FAMILIES = _by_name(
    {
        "robust": "write 'student_t', for heavy tails.",
        "log count": "write 'poisson' or 'negative_binomial'.",
        "nbinom1": "has a variance in proportion to the mean: the nearest is 'negative_binomial'.",
        "quasipoisson": "has no likelihood: write 'negative_binomial', whose variance is larger "
        "than the mean.",
        "quasibinomial quasi": "has no likelihood: write 'beta_binomial' for successes in trials "
        "that vary more.",
        "sratio cratio acat stoppingratio": "is not here: the nearest is 'cumulative', for "
        "levels in order.",
        "cox coxph survival": "has no likelihood of one record: write 'weibull' or 'exponential'.",
        "tweedie": "is not here: the nearest is 'gamma', for a response above 0.",
        "zeroinfl": "write 'zero_inflated_poisson' or 'zero_inflated_negative_binomial'.",
        "hurdle": "write 'hurdle_poisson' or 'hurdle_negative_binomial'.",
        "hurdlegamma hurdlelognormal": "is not here: fit whether it is 0 as 'bernoulli', and the "
        "rest as 'gamma'.",
        "laplace asymmetriclaplace asymlaplace doubleexponential quantile": "is not here: the "
        "nearest is 'student_t', for heavy tails.",
        "skewnormal": "is not here: write 'lognormal' for a response above 0, or 'student_t' for "
        "heavy tails.",
        "vonmises": "is not here: regress sine and cosine of the angle, each as 'gaussian'.",
        "dirichlet": "is not here: regress one share after the other, as 'beta'.",
    }
)

# names of one link each in other programs
SAME_LINKS = MappingProxyType(
    {
        "identity": "id ident linear",
        "log": "ln logarithm",
        "logit": "logistic sigmoid logodds",
        "cloglog": "complementaryloglog",
        "inverse": "reciprocal inv inversepower 1/mu",
    }
)

# names of links that are not here, or of several
LINKS = _by_name(
    {
        "none": "write 'identity'.",
        "exp": "write 'log'.",
        "softmax inverselogit": "write 'logit'.",
        "normal norm phi": "write 'probit'.",
        "loglog gompertz cauchit": "the nearest is 'cloglog' or 'probit'.",
        "inversesquared 1/mu^2 sqrt power": "is not here: the nearest are 'inverse' and 'log'.",
    }
)
