"""Intervals of whole fits hold the right answer about as often as they say.

In thirty columns that resemble each other, where the noise moves everything; and in tables so large
that a small C would be the only error.
"""

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC, NUTS

import workbench as wb

FITS = 12
pytestmark = [
    pytest.mark.statistical,
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:.*counted separately"),
]


def interval_of(result):
    """Ends of 90 % intervals of weights and intercept, and their means."""
    assert result.posterior_kind == "noise-aware", result.posterior_note
    posterior = result.posterior.posterior
    weights = np.asarray(posterior["weights"])
    draws = np.column_stack(
        [weights.reshape(-1, weights.shape[-1]), np.ravel(posterior["intercept"])]
    )
    return *np.quantile(draws, [0.05, 0.95], axis=0), draws.mean(0)


def test_of_thirty_columns_that_resemble_each_other():
    """They hold the mean of the posterior without privacy."""
    data = wb.data.load("breast_cancer")
    chain = MCMC(
        NUTS(wb.models.get("logistic").model, target_accept_prob=0.9),
        num_warmup=500,
        num_samples=1000,
        progress_bar=False,
    )
    chain.run(jax.random.key(0), *data.train[:2])
    drawn = chain.get_samples()
    answer = np.column_stack([drawn["weights"], drawn["intercept"]]).mean(0)
    held = []
    for seed in range(FITS):
        low, high, _ = interval_of(wb.fit("logistic", data, epsilon=1.0, delta=1e-3, seed=seed))
        held.append((low <= answer) & (answer <= high))
    assert 0.85 <= np.mean(held) <= 0.95


def test_of_a_hundred_thousand_rows_with_large_weights():
    """They hold the truth, and their means are nearly as good as without privacy."""
    truth, held, errors, oracle = np.array([4.0, 4.2, 0.0, 0.0, -0.5]), [], [], []
    for seed in range(FITS):
        random = np.random.default_rng(seed)
        x = random.uniform(-1, 1, (100_000, 4))
        probability = 1 / (1 + np.exp(-x @ truth[:4] - truth[4]))
        frame = pd.DataFrame(x, columns=list("abcd")).assign(
            y=(random.random(len(x)) < probability).astype(int)
        )
        data = wb.data.from_frame(frame, target="y", bounds=dict.fromkeys("abcd", (-1.0, 1.0)))
        low, high, mean = interval_of(wb.fit("logistic", data, epsilon=1.0, delta=1e-6, seed=seed))
        held.append((low <= truth) & (truth <= high))
        errors.append(mean - truth)
        columns = np.column_stack([x, np.ones(len(x))])
        of_all = columns.T @ (columns * (probability * (1 - probability))[:, None])
        share = data.num_train / len(x)
        oracle.append(np.diag(np.linalg.inv(share * of_all)))
    assert 0.82 <= np.mean(held) <= 0.97  # 60 intervals, whose standard error is 0.04
    assert np.mean(np.square(errors)) < 1.5**2 * np.mean(oracle)
