"""Calibrated numbers on disk, so that a machine calibrates a plan once.

Nothing private is stored: keys and values are plans. Readers verify a number before they use it, so
a damaged or forged file costs time and not privacy. A folder that cannot be written is not an
error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from workbench import _folders

__all__ = ["folder", "read", "write"]

_FORMAT = 1  # increase it when the same key would give another number


def folder() -> Path:
    """Where numbers are kept: ``$WORKBENCH_CACHE``, else ``dpvi-workbench`` under
    ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    chosen = os.environ.get("WORKBENCH_CACHE")
    return Path(chosen) if chosen else _folders.cache()


def _path(key: Any) -> Path:
    name = hashlib.sha256(json.dumps([_FORMAT, key], sort_keys=True).encode()).hexdigest()[:32]
    return folder() / "calibration" / f"{name}.json"


def read(key: Any) -> float | None:
    """The number stored for ``key`` (JSON-ready), None if there is none that can be read."""
    try:
        stored = json.loads(_path(key).read_text())
        return float(stored["value"]) if stored["key"] == json.loads(json.dumps(key)) else None
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def write(key: Any, value: float) -> None:
    """Store a number for ``key``, whole or not at all."""
    path = _path(key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, suffix=".partial", delete=False
        ) as file:
            partial = Path(file.name)
            try:
                json.dump({"key": key, "value": value}, file)
                file.close()
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)
