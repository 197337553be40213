"""The rule for C, as a share of the largest norm of a record's gradient."""

from __future__ import annotations

__all__ = ["clip_share"]


def clip_share(records: float, *, noise_ratio: float = 1.0) -> float:
    """C over the largest norm of a record's gradient, in (0, 1].

    It is 0.7; less where the noise that such a C brings would outweigh the bias of clipping, and
    more, up to the whole norm, where there is so little noise that this bias would be larger than
    the interval of any weight. tests/experiments/rule.py and clipping.py compare other shares.

    >>> wb.models.clip_share(2_000), wb.models.clip_share(100.0) < 0.5
    (0.7, True)

    :param records: N epsilon over the largest sum of squares of a record's features.
    :param noise_ratio: how much more the noise is felt than with a feature for each column, where
        some columns become several features: below 1.
    """
    signal = records ** (1 / 3)
    return min(1.0, max(min(0.7, 0.1 * noise_ratio * signal), 0.05 * signal))
