"""Draws of a posterior that has skewed quantities."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def draws():
    """Draws of three skewed weights and an intercept."""
    random = np.random.default_rng(5)
    skewed = random.gamma(1.5, 2.0, (4000, 3))
    return {
        "weights": skewed.astype(np.float32),
        "intercept": random.normal(-1, 3, 4000).astype(np.float32),
    }
