import mpmath
import pytest

from workbench.privacy._gaussian import GaussianLoss

MUS = [1e-6, 1e-3, 0.1, 1.0, 5.0, 40.0]


def exact_delta(mu, epsilon):
    """Balle and Wang 2018, Theorem 8, with 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        first = mpmath.ncdf(mu / 2 - epsilon / mu)
        return first - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 3.0, 7.0])
def test_delta_is_the_exact_one_rounded_up(mu, spread):
    epsilon = spread * mu + mu**2 / 2
    exact = float(exact_delta(mu, epsilon))
    assert exact <= GaussianLoss(mu).delta(epsilon) <= exact * (1 + 2e-6)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 1e-3, 0.3])
def test_epsilon_is_the_exact_one_rounded_up(mu, delta):
    epsilon = GaussianLoss(mu).epsilon(delta)
    assert exact_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert exact_delta(mu, epsilon * (1 - 2e-6)) > delta


def test_nothing_released_costs_nothing():
    assert GaussianLoss(0.0).epsilon(1e-12) == GaussianLoss(0.0).delta(0.0) == 0


@pytest.mark.parametrize("mu", [1.01e-4, 1.3e-4, 3e-4, 1e-3, 0.01])
@pytest.mark.parametrize("spread", [9.0, 12.0, 13.2, 18.3, 28.0, 35.0])
def test_delta_is_no_less_far_out_where_two_terms_are_nearly_equal(mu, spread):
    exact = exact_delta(mu, spread * mu)
    assert exact <= GaussianLoss(mu).delta(spread * mu) <= exact * (1 + 2e-6)
