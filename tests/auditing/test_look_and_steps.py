"""A fit that looks at its columns first, attacked by the likelihood ratio of both releases.

The attacker knows all records but one and sees the noised counts of the look and the noised sum of
the one step after it. The claim is epsilon at the delta of the request, by the closed form of a
Gaussian mechanism (Balle and Wang 2018). What a record adds to the sum is computed here from the
definition of a logistic regression: at this C every gradient is clipped, so its length is C.
"""

import functools

import jax
import numpy as np
import numpyro
import pandas as pd
import pytest
from scipy.optimize import brentq

import workbench as wb
from tests.auditing.gaussian import gaussian_delta
from workbench.auditing.bounds import epsilon_lower_bound
from workbench.data.counting import counted, counting_of
from workbench.fitting import learned_scales
from workbench.fitting.spec import FitSpec

EPSILON, DELTA, CLIP, SHARE = 2.0, 0.01, 0.1, 0.4
RUNS = 400  # with the canary, and as many without
RANDOM = np.random.default_rng(5)
OTHERS = pd.DataFrame({"x": RANDOM.uniform(-1, 1, 399), "y": RANDOM.random(399) < 0.5})
CANARIES = {"inside the scales": {"x": 0.8, "y": True}, "in the tails": {"x": 90.0, "y": True}}


def gaussian_mu():
    """Sensitivity over noise of the Gaussian mechanism with exactly ``EPSILON`` at ``DELTA``."""
    return brentq(lambda mu: gaussian_delta(mu, EPSILON) - DELTA, 0.1, 10)


def gradients(frame, scale):
    """float[N, 2]: clipped gradients of the records within the scale, for weight and intercept."""
    x = frame["x"].to_numpy()
    inside = (scale.low <= x) & (x <= scale.high)
    scaled = (2 * x - scale.low - scale.high) / (scale.high - scale.low)
    design = np.column_stack([scaled, np.ones(len(x))])
    towards = np.where(frame["y"], -1.0, 1.0)[:, None] * design
    unit = towards / np.linalg.norm(towards, axis=1)[:, None]
    return CLIP * unit * inside[:, None]


@pytest.fixture
def one_step(monkeypatch):
    """Fits of the same number of records share one compiled step, which takes a second each."""
    steps, compiled = {}, {}
    assembled = FitSpec.private_step

    def shared(spec, plan, key):
        size = spec.data.num_train, bool(spec.scales)
        if size not in steps:
            steps[size] = assembled(spec, plan, key)
        return steps[size]

    def released(factor, fit):
        """float[2]: the noised sum of the first step, from what it did to the parameters."""
        step = fit.step
        if id(step) not in compiled:
            compiled[id(step)] = jax.jit(
                lambda state, records, hyper: step.optimizer.get_params(
                    step.step(state, records, step.draw(state.key, 0, hyper), hyper).optim_state
                )
            )
        records, state = fit.on_device
        before = step.optimizer.get_params(state.optim_state)
        drawn = fit.hyper.standard_deviation * factor
        after = compiled[id(step)](state, records, fit.hyper._replace(standard_deviation=drawn))
        names = "weights_auto_loc", "intercept_auto_loc"
        moved = [float(np.ravel(before[name] - after[name])[0]) for name in names]
        return np.array(moved) * (len(OTHERS) + 1)

    monkeypatch.setattr(FitSpec, "private_step", shared)
    return released


def prepared(frame):
    """A fit of one step on all records, with SGD: its parameters show the noised sum."""
    return wb.prepare(
        "y ~ x",
        frame,
        family="bernoulli",
        schema={"x": (-100, 100), "y": bool},
        epsilon=EPSILON,
        delta=DELTA,
        iterations=1,
        sampling_rate=1.0,
        clip=CLIP,
        ledger=False,
        privacy=wb.Privacy(look=SHARE, num_records=len(OTHERS) + 1),
        training=wb.Training(optimizer=numpyro.optim.SGD(1.0)),
        execution=wb.Execution(checkpoint=False),
    )


def scores(everybody, has_canary, one_step, monkeypatch):
    """The logarithm of the likelihood ratio of each of ``RUNS`` runs."""
    releases = []
    noised = learned_scales.noised

    def keep(*arguments):
        releases.append((arguments, noised(*arguments)))
        return releases[-1][1]

    monkeypatch.setattr(learned_scales, "noised", keep)
    inside, outside = prepared(everybody), prepared(OTHERS)
    counting = counting_of(outside.spec.source, ["x", "y"])
    before = counted(counting, outside.spec.source, 1)
    difference = counted(counting, inside.spec.source, 1) - before
    ratios = []
    for _ in range(RUNS):
        fit = (inside if has_canary else outside).again()
        fit._look()
        (_, _, multiplier, _), values = releases.pop()
        deviation = counting.deviation(multiplier)
        ratio = np.sum(difference * (values - before - difference / 2)) / deviation**2
        scale = fit.spec.scales["x"]
        *rest, mine = gradients(everybody, scale)
        spread = float(fit.hyper.standard_deviation) / fit.step.share_of_sum
        ratios.append(ratio + mine @ (one_step(fit) - np.sum(rest, axis=0) - mine / 2) / spread**2)
    monkeypatch.setattr(learned_scales, "noised", noised)
    return np.array(ratios)


def attacked(canary, one_step, monkeypatch, factor=1.0):
    """(the epsilon that the attack proves, the distance of mean scores, the mean of their
    variances).

    :param factor: of the noise that is drawn, by which the scores do not know.
    """
    everybody = pd.concat([OTHERS, pd.DataFrame([canary])], ignore_index=True)
    inside, outside = (
        scores(everybody, coin, functools.partial(one_step, factor), monkeypatch)
        for coin in (True, False)
    )
    proven = epsilon_lower_bound(inside, outside, DELTA, 0.99).epsilon
    return proven, inside.mean() - outside.mean(), (inside.var() + outside.var()) / 2


SQUARE = gaussian_mu() ** 2  # distance and variance of the scores that are claimed
TOLERANCE = 4 * gaussian_mu() * (2 / RUNS) ** 0.5  # four standard errors of either


# a part of a step's budget, 1 / 65, is for counts of norms, which the attack leaves out
@pytest.mark.statistical
@pytest.mark.parametrize(("canary", "share"), [("inside the scales", 1), ("in the tails", SHARE)])
def test_look_and_step_together_move_by_what_is_claimed(canary, share, one_step, monkeypatch):
    """A record outside the scales moves the look alone. Too little noise would show in the
    variance.
    """
    proven, apart, variance = attacked(CANARIES[canary], one_step, monkeypatch)
    assert proven < EPSILON
    assert apart == pytest.approx(share * SQUARE, abs=TOLERANCE)
    assert variance == pytest.approx(share * SQUARE, abs=TOLERANCE)


@pytest.mark.statistical
def test_the_attack_finds_a_step_with_half_the_noise(one_step, monkeypatch):
    canary = CANARIES["inside the scales"]
    *_, variance = attacked(canary, one_step, monkeypatch, factor=0.5)
    assert variance < SQUARE - TOLERANCE
