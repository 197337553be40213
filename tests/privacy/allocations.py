"""Random allocation by other means than the accountant's: numerical integration and simulation."""

import math

import numpy as np
from scipy.special import ndtr


def expected_excess(mu, strike):
    """E[(Y - strike)_+] of one likelihood ratio Y = exp(mu X - mu^2 / 2), X ~ N(0, 1): the formula
    of an option's price.
    """
    strike = np.asarray(strike, float)
    safe = np.where(strike > 0, strike, 1.0)
    at = -np.log(safe) / mu
    return np.where(strike > 0, ndtr(at + mu / 2) - strike * ndtr(at - mu / 2), 1 - strike)


def excess_of_the_mean(mu, steps, strike):
    """E[(S - strike)_+] of the mean S of 1, 2 or 3 ratios, by integration over all but one of them;
    float[...].

    By the rule of rectangles, which converges fast for smooth integrands that vanish at the ends.
    """
    strike = np.asarray(strike, float)
    x = np.linspace(-10, 10 + mu, 801)
    ratios = np.exp(mu * x - mu**2 / 2)
    weights = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    if steps == 1:
        return expected_excess(mu, strike)
    if steps == 2:
        return expected_excess(mu, 2 * strike[..., None] - ratios) @ weights / 2
    left = 3 * strike[..., None, None] - ratios[:, None] - ratios
    return expected_excess(mu, left) @ weights @ weights / 3


def deltas_of_an_epoch(mu, steps, epsilon):
    """{direction: delta at ``epsilon``}. (1 - e^epsilon S)_+ = e^epsilon ((S - e^-epsilon)_+ - S +
    e^-epsilon).
    """
    grow = math.exp(epsilon)
    return {
        "remove": excess_of_the_mean(mu, steps, grow),
        "add": grow * (excess_of_the_mean(mu, steps, 1 / grow) - 1 + 1 / grow),
    }


def simulated_losses(generator, mu, steps, epochs, direction, trials, released=None):
    """Privacy losses of ``trials`` runs; of each epoch the first ``released`` of its steps are
    seen.
    """
    released = steps if released is None else released
    losses = np.zeros(trials)
    for _ in range(epochs):
        outcomes = generator.normal(size=(trials, released))
        if direction == "remove":
            entered = generator.integers(steps, size=trials)
            inside = entered < released
            outcomes[inside, entered[inside]] += mu
        ratio = np.exp(mu * outcomes - mu**2 / 2).sum(axis=1) / steps + (1 - released / steps)
        losses += np.log(ratio) if direction == "remove" else -np.log(ratio)
    return losses


def confident_delta(losses, epsilon, false_alarm):
    """(low, high) that contain delta at ``epsilon`` but for ``false_alarm`` (Maurer and Pontil's
    Bernstein bound).
    """
    values = -np.expm1(np.minimum(epsilon - losses, 0.0))
    logarithm = math.log(4 / false_alarm)
    off = math.sqrt(2 * values.var(ddof=1) * logarithm / len(values)) + 7 * logarithm / (
        3 * (len(values) - 1)
    )
    return values.mean() - off, values.mean() + off
