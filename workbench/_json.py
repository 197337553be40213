"""JSON that people write by hand."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["TwiceError", "loads"]


class TwiceError(ValueError):
    """A key that occurs twice in one object."""


def loads(text: str | bytes) -> Any:
    """Read JSON.

    :raises ValueError: if it is none.
    :raises TwiceError: if a key occurs twice: Python's reader takes the last.
    """
    return json.loads(text, object_pairs_hook=_mapping)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise TwiceError(f"the key {key!r} occurs twice")
        mapping[key] = value
    return mapping
