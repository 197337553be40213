"""What other programs write, and what to write here: names of functions, families and links, as
data.
"""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["CALLS", "FAMILIES", "LEFT", "LINKS", "OFFSET", "ROLES"]


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
            "ns rcs rcspline cr cc cs te ti t2 s lo smooth",
            f"{_ROWS}write bs(x, df=5), whose knots are public",
        ),
        **_all(
            "lag lead diff cumsum",
            f"{_ROWS}compute the column per person before you pass the table",
        ),
        **_all("hashed", f"{_ROWS}write C(x) for a column whose values are declared"),
        **_all("factor", "stands inside another call: write C(x) by itself"),
        **_all("ordered as.ordered mo", "has no orders of categories here: write C(x)"),
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
        **_all("gp hsgp", "is a Gaussian process, which is not here: write bs(x, df=5)"),
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
            "is p(successes, trials) here: make a column with the number of trials of each row",
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

_LEVELS = "declare the levels of the response, as in schema={'y': ['a', 'b', 'c']}"

# names of families that other programs have
FAMILIES = MappingProxyType(
    {
        **_all("normal norm lm ols linear gauss", "write 'gaussian'."),
        **_all("t student studentt robust tdist", "write 'student_t'."),
        **_all("logit logistic logreg binary bool", "write 'bernoulli', for yes or no."),
        **_all("probit cloglog", "is a link: write family='bernoulli' and name it as link=."),
        **_all(
            "binom betabinomial beta_binomial",
            "write 'binomial', and trials= for the number of trials.",
        ),
        **_all("pois count log", "write 'poisson'."),
        **_all(
            "nb negbin nbinom negativebinomial nbinom1 nbinom2 neg_binomial",
            "write 'negative_binomial'.",
        ),
        **_all(
            "quasipoisson",
            "has no likelihood: write 'negative_binomial', whose variance is larger than the mean.",
        ),
        **_all(
            "quasibinomial quasi",
            "has no likelihood: write 'binomial', with (1 | g) for what groups share.",
        ),
        **_all("multinomial softmax mnlogit mlogit", f"write 'categorical', and {_LEVELS}."),
        **_all(
            "ordinal ordered ologit polr clm sratio cratio acat",
            f"write 'cumulative', and {_LEVELS}, in order.",
        ),
        **_all(
            "cox coxph survival",
            "has no likelihood of one record: write 'weibull' or 'exponential'.",
        ),
        **_all("exp", "write 'exponential'."),
        **_all(
            "inverse_gaussian inversegaussian invgauss wald", "is not here: the nearest is 'gamma'."
        ),
        **_all(
            "lognormal",
            "take the logarithm of the response before you pass the table, and write 'gaussian'.",
        ),
        **_all("tweedie", "is not here: the nearest is 'gamma', for a response above 0."),
        **_all(
            "zero_inflated_poisson zip hurdle hurdle_poisson zero_inflated_negative_binomial zinb",
            "is not here: the nearest is 'negative_binomial'.",
        ),
        **_all(
            "laplace asymmetric_laplace asymmetriclaplace asym_laplace double_exponential quantile",
            "is not here: the nearest is 'student_t', for heavy tails.",
        ),
        **_all(
            "skew_normal skewnormal",
            "is not here: write 'gamma' for a response above 0, or 'student_t' for heavy tails.",
        ),
        **_all(
            "vonmises von_mises",
            "is not here: regress sine and cosine of the angle, each as 'gaussian'.",
        ),
        **_all("dirichlet", "is not here: regress one share after the other, as 'beta'."),
    }
)

# names of links that other programs have
LINKS = MappingProxyType(
    {
        **_all("linear none id ident", "write 'identity'."),
        **_all("ln exp logarithm", "write 'log'."),
        **_all("logistic sigmoid log_odds softmax inverse_logit", "write 'logit'."),
        **_all("normal norm phi", "write 'probit'."),
        **_all(
            "complementary_log_log loglog gompertz cauchit", "the nearest is 'cloglog' or 'probit'."
        ),
        **_all("reciprocal inv inverse_power 1/mu", "write 'inverse'."),
        **_all(
            "inverse_squared 1/mu^2 sqrt power", "is not here: the nearest are 'inverse' and 'log'."
        ),
    }
)
