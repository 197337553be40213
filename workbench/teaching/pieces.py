"""Teaching pieces: small screens that a lecturer calls in one line, such as
``wb.teaching.clipping()``.

They use only made-up records and plans, so nothing on them is private. ``workbench app teaching``
serves all of them to a class. Each has ``close()``, and ``wait()`` for scripts.
"""

from __future__ import annotations

from workbench.teaching.accounts import CompositionScreen, PrivacyScreen
from workbench.teaching.steps import ClippingScreen, SamplersScreen

__all__ = ["clipping", "composition", "privacy", "samplers"]


def privacy(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    sampling_rate: float = 0.1,
    steps: int = 1000,
    accused: float = 0.01,
) -> PrivacyScreen:
    """Show what the best attacker can find in an (epsilon, delta)-private fit, with sliders for the
    plan.

    The fit draws Poisson minibatches and has the least noise that gives (epsilon, delta).
    Neighbours differ by one record added or removed. The fit's curve comes from the accountant of
    real fits (``wb.privacy.trade_off``). A second curve shows what epsilon and delta alone allow.

    :param epsilon: 0.05 to 16.
    :param delta: 1e-8 to 0.01.
    :param sampling_rate: q, 0.05 to 1.
    :param steps: T, 100 to 10 000.
    :param accused: share of non-members that the attacker wrongly accuses, 0.001 to 0.5.
    :raises ArgumentError: naming the argument and its value.
    """
    return PrivacyScreen(
        epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, steps=steps, accused=accused
    )


def clipping(
    *,
    clip: float = 1.0,
    noise_multiplier: float = 4.0,
    learning_rate: float = 0.3,
    sampling_rate: float = 0.5,
    seed: int | None = None,
) -> ClippingScreen:
    """Show clipping and noise in the plane, step by step: each record's pull, the ball of radius C,
    sum, noise and step.

    The records are made up. Clipping and noise are those of real fits (``wb.clipping.clipped_sum``,
    ``GaussianMechanism``).

    :param clip: C, 0.05 to 5.
    :param noise_multiplier: sigma, 0 (no noise) to 16.
    :param learning_rate: 0.05 to 1.
    :param sampling_rate: q, 0.1 to 1.
    :param seed: >= 0, for the same draws each time; None for new ones.
    :raises ArgumentError: naming the argument and its value.
    """
    return ClippingScreen(
        clip=clip,
        noise_multiplier=noise_multiplier,
        learning_rate=learning_rate,
        sampling_rate=sampling_rate,
        seed=seed,
    )


def samplers(
    *,
    batch_size: int = 4,
    noise_multiplier: float = 3.0,
    steps: int = 200,
    delta: float = 1e-5,
    seed: int | None = None,
) -> SamplersScreen:
    """Show which records the real samplers draw into each minibatch, and epsilon over steps under
    each sampler.

    :param batch_size: records per step, expected or exact, 2 to 40 of 40.
    :param noise_multiplier: sigma, 0.8 to 20.
    :param steps: T, 40 to 2000.
    :param delta: 1e-8 to 1e-3.
    :param seed: >= 0, for the same draws each time; None for new ones.
    :raises ArgumentError: naming the argument and its value.
    """
    return SamplersScreen(
        batch_size=batch_size,
        noise_multiplier=noise_multiplier,
        steps=steps,
        delta=delta,
        seed=seed,
    )


def composition(
    *,
    fits: int = 10,
    epsilon: float = 0.5,
    delta: float = 1e-6,
    sampling_rate: float = 0.1,
    steps: int = 1000,
) -> CompositionScreen:
    """Show what several fits on the same records spend together: the sum of their guarantees, and
    tighter bounds.

    The fits draw Poisson minibatches. Neighbours differ by one record added or removed.

    :param fits: 1 to 50.
    :param epsilon: of one fit, 0.1 to 8.
    :param delta: of one fit, 1e-8 to 1e-4.
    :param sampling_rate: q, 0.05 to 1.
    :param steps: T of one fit, 100 to 10 000.
    :raises ArgumentError: naming the argument and its value.
    """
    return CompositionScreen(
        fits=fits, epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, steps=steps
    )
