"""The fit without privacy that private curves are compared with."""

import pytest

from workbench.fitting import baseline, fits


@pytest.fixture(scope="module")
def strict():
    """A fit whose noise ruins it."""
    prepared = fits.prepare("logistic", "breast_cancer", epsilon=0.05, iterations=200, seed=1)
    assert [snapshot.status for snapshot in prepared.run()][-1] == "done"
    return prepared


@pytest.mark.statistical
def test_without_privacy_a_fit_is_better_and_labelled(strict):
    scores = baseline.without_privacy(strict)
    assert scores.label == "outside the guarantee"
    assert scores["auc"] > 0.98
    assert scores["elbo"] > strict.result().metrics["elbo"] + 0.05


@pytest.mark.thorough
def test_a_baseline_that_is_stopped_gives_nothing(strict):
    assert baseline.without_privacy(strict, stop=lambda: True) is None


def test_private_evaluation_records_are_not_looked_at(secret):
    prepared, _ = secret
    assert baseline.without_privacy(prepared, stop=lambda: pytest.fail("it ran")) is None
