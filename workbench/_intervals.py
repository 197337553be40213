"""The narrowest interval of draws."""

from __future__ import annotations

import numpy as np

__all__ = ["narrowest_interval"]


def narrowest_interval(
    draws: np.ndarray, probability: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the narrowest interval that contains the share ``probability`` of ``draws``. The
    first axis is draws.
    """
    ordered = np.sort(draws, axis=0)
    inside = min(int(np.floor(probability * len(ordered))), len(ordered) - 1)
    widths = ordered[inside:] - ordered[: len(ordered) - inside]
    start = np.argmin(widths, axis=0)[None]
    low = np.take_along_axis(ordered, start, axis=0)[0]
    return low, np.take_along_axis(ordered, start + inside, axis=0)[0]
