"""How book-keeping treats a leaf: what takes the least time, by the shapes of its linear uses alone."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.inference._linear_uses import LinearUse

__all__ = ["records_at_once"]

# Bytes of patches that stay in a core's own cache until they are multiplied
_PATCHES_AT_ONCE = 2**20


def records_at_once(linear_uses: Sequence[LinearUse]) -> int | None:
    """Of how many records patches of images are made at a time, where a gradient is formed; None where there are none."""
    convolutions = [use for use in linear_uses if use.operation.kind == "convolution"]
    held = sum(s * t * p * 4 for s, t, p, _ in (use.operation.shape for use in convolutions))
    return max(1, _PATCHES_AT_ONCE // held) if held else None
