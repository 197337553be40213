"""Estimates of regressions, ``{row of a table: (value, standard error)}``: by statsmodels, or by
scipy from likelihoods that are written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import patsy
import statsmodels.formula.api as smf
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import t as student
from statsmodels.miscmodels.ordinal_model import OrderedModel
from statsmodels.othermod.betareg import BetaModel
from statsmodels.tools.numdiff import approx_hess

Estimates = dict[str, tuple[float, float]]
Frame = pd.DataFrame


def row_name(name: str) -> str:
    """A column of patsy as the table calls it: "C(ward)[T.b]:age" is "ward=b:age"."""
    if name == "Intercept":
        return "intercept"
    return re.sub(
        r"(?:C\((\w+)\)|(\w+))\[(?:T\.)?([^\]]+)\]",
        lambda found: f"{found[1] or found[2]}={found[3]}",
        name,
    )


def renamed(
    reference: Callable[[Frame], Estimates], names: Mapping[str, str]
) -> Callable[[Frame], Estimates]:
    """The same with other names of rows."""
    return lambda frame: {names.get(name, name): pair for name, pair in reference(frame).items()}


def _rows(names: Sequence[str], values: Any, errors: Any) -> Estimates:
    pairs = zip(np.asarray(values, float).tolist(), np.asarray(errors, float).tolist(), strict=True)
    return dict(zip(map(row_name, names), pairs, strict=True))


def least_squares(formula: str) -> Callable[[Frame], Estimates]:
    """Ordinary ones, with the residuals' standard deviation."""

    def reference(frame: Frame) -> Estimates:
        found = smf.ols(formula, frame).fit()
        sigma = float(np.sqrt(found.scale))
        return _rows(found.params.index, found.params, found.bse) | {
            "sigma": (sigma, sigma / np.sqrt(2 * found.df_resid))
        }

    return reference


def generalised(
    formula: str, family: Any, exposure: str | None = None
) -> Callable[[Frame], Estimates]:
    """A generalised linear model. :param family: of ``sm.families``. :param exposure: a column."""

    def reference(frame: Frame) -> Estimates:
        found = smf.glm(
            formula, frame, family=family, exposure=None if exposure is None else frame[exposure]
        ).fit()
        return _rows(found.params.index, found.params, found.bse)

    return reference


def negative_binomial(formula: str) -> Callable[[Frame], Estimates]:
    def reference(frame: Frame) -> Estimates:
        found = smf.negativebinomial(formula, frame).fit(disp=0, method="bfgs", maxiter=1000)
        rows = _rows(found.params.index, found.params, found.bse)
        alpha, error = rows.pop("alpha")
        return rows | {"concentration": (1 / alpha, error / alpha**2)}

    return reference


def beta(formula: str) -> Callable[[Frame], Estimates]:
    def reference(frame: Frame) -> Estimates:
        found = BetaModel.from_formula(formula, frame).fit(disp=0)
        rows = _rows(found.params.index, found.params, found.bse)
        log, error = rows.pop("precision")
        return rows | {"concentration": (float(np.exp(log)), float(np.exp(log)) * error)}

    return reference


def multinomial(response: str, right: str, levels: Sequence[str]) -> Callable[[Frame], Estimates]:
    """Against the first of ``levels``."""

    def reference(frame: Frame) -> Estimates:
        codes = frame.assign(
            code=frame[response].map({level: place for place, level in enumerate(levels)})
        )
        found = smf.mnlogit(f"code ~ {right}", codes).fit(disp=0)
        rows: Estimates = {}
        for place, level in enumerate(levels[1:]):
            own = _rows(found.params.index, found.params[place], np.asarray(found.bse)[:, place])
            rows |= {f"{level}: {name}": pair for name, pair in own.items()}
        return rows

    return reference


def ordered(formula: str) -> Callable[[Frame], Estimates]:
    """Proportional odds. The response is an ordered ``pd.Categorical``."""

    def reference(frame: Frame) -> Estimates:
        found = OrderedModel.from_formula(formula, frame, distr="logit").fit(
            method="bfgs", disp=0, maxiter=500
        )
        count = found.model.exog.shape[1]
        # parameters are the first cutpoint and logarithms of distances
        steps = np.r_[1.0, np.exp(found.params[count + 1 :])]
        slopes = np.tril(np.tile(steps, (len(steps), 1)))
        errors = np.sqrt(
            np.diag(slopes @ np.asarray(found.cov_params())[count:, count:] @ slopes.T)
        )
        cutpoints = found.model.transform_threshold_params(found.params)[1:-1]
        pairs = enumerate(zip(cutpoints.tolist(), errors.tolist(), strict=True))
        beside = {f"cutpoints[{place}]": pair for place, pair in pairs}
        return _rows(found.params.index[:count], found.params[:count], found.bse[:count]) | beside

    return reference


def robust(formula: str) -> Callable[[Frame], Estimates]:
    """Student's t residuals."""

    def log_likelihood(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
        sigma, nu = np.exp(theta[-2:])
        return float(student.logpdf(y, nu, x @ theta[:-2], sigma).sum())

    def reference(frame: Frame) -> Estimates:
        y, x = _matrices(formula, frame)
        start = np.linalg.lstsq(x, y, rcond=None)[0]
        beside = {"log_sigma": float(np.log(np.std(y - x @ start))), "log_nu": 1.5}
        return _maximised(
            lambda theta: log_likelihood(x.to_numpy(), y, theta), list(x), start, beside
        )

    return reference


def survival(
    formula: str, observed: Callable[[Frame], Any], *, weibull: bool
) -> Callable[[Frame], Estimates]:
    """Times with right censoring, whose mean's logarithm is linear. :param observed: where the
    event was seen.
    """

    def log_likelihood(x: np.ndarray, y: np.ndarray, seen: np.ndarray, theta: np.ndarray) -> float:
        shape = float(np.exp(theta[x.shape[1]])) if weibull else 1.0
        log_scale = x @ theta[: x.shape[1]] - gammaln(1 + 1 / shape)
        hazard = shape * (np.log(y) - log_scale)
        return float((seen * (np.log(shape) + hazard - np.log(y)) - np.exp(hazard)).sum())

    def reference(frame: Frame) -> Estimates:
        y, x = _matrices(formula, frame)
        seen = np.asarray(observed(frame), float)
        start = np.r_[np.log(y.mean()), np.zeros(x.shape[1] - 1)]
        beside = {"log_shape": 0.0} if weibull else {}
        return _maximised(
            lambda theta: log_likelihood(x.to_numpy(), y, seen, theta), list(x), start, beside
        )

    return reference


def _matrices(formula: str, frame: Frame) -> tuple[np.ndarray, Frame]:
    y, x = patsy.dmatrices(formula, frame, return_type="dataframe")
    return y.to_numpy()[:, 0], x


def _maximised(
    log_likelihood: Callable[[np.ndarray], float],
    names: list[str],
    start: np.ndarray,
    beside: Mapping[str, float],
) -> Estimates:
    """:param beside: logarithms of further parameters, "log_" before the name, with their starting
    values.
    """
    first = np.r_[start, list(beside.values())]
    found = minimize(lambda theta: -log_likelihood(theta), first, method="BFGS")
    errors = np.sqrt(
        np.diag(np.linalg.inv(approx_hess(found.x, lambda theta: -log_likelihood(theta))))
    )
    rows = _rows([*names, *beside], found.x, errors)
    for name in beside:
        log, error = rows.pop(name)
        rows[name.removeprefix("log_")] = float(np.exp(log)), float(np.exp(log) * error)
    return rows


def mixed(
    formula: str, group: str, slope: str | None = None, centre: float = 0.0
) -> Callable[[Frame], Estimates]:
    """Normal residuals, and independent normal intercepts and slopes of groups, by marginal
    likelihood.

    :param slope: a column. :param centre: of the slope's column, where intercepts are independent
        of slopes.
    """

    def reference(frame: Frame) -> Estimates:
        y, x = _matrices(formula, frame)
        ones = np.ones(len(frame))
        columns = np.stack(
            [ones] if slope is None else [ones, frame[slope].to_numpy() - centre], axis=1
        )
        rows_of = [np.flatnonzero(frame[group] == each) for each in frame[group].unique()]
        parts = [(y[rows], x.to_numpy()[rows], columns[rows]) for rows in rows_of]

        def log_likelihood(theta: np.ndarray) -> float:
            fixed, logs = theta[: x.shape[1]], theta[x.shape[1] :]
            total = 0.0
            for own_y, own_x, z in parts:
                covariance = (
                    np.exp(2 * logs[-1]) * np.eye(len(z)) + (z * np.exp(2 * logs[:-1])) @ z.T
                )
                left = own_y - own_x @ fixed
                total -= 0.5 * (
                    np.linalg.slogdet(covariance)[1] + left @ np.linalg.solve(covariance, left)
                )
            return total

        start = np.linalg.lstsq(x, y, rcond=None)[0]
        spread = float(np.log(np.std(y - x @ start)))
        sds = [
            f"sd of Intercept by {group}",
            *([] if slope is None else [f"sd of {slope} by {group}"]),
        ]
        scales = [0.0, *([] if slope is None else [float(np.log(np.std(columns[:, 1])))])]
        beside = {
            f"log_{name}": spread - 0.7 - scale for name, scale in zip(sds, scales, strict=True)
        }
        return _maximised(log_likelihood, list(x), start, beside | {"log_sigma": spread})

    return reference
