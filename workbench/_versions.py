"""The versions of what decides about a fit's numbers."""

from __future__ import annotations

import importlib.metadata
import platform

__all__ = ["versions"]


def versions() -> dict[str, str]:
    """Versions of the workbench, Python, JAX and NumPyro, by name."""
    import workbench

    packages = {name: importlib.metadata.version(name) for name in ("jax", "numpyro", "numpy")}
    return {"workbench": workbench.__version__, "python": platform.python_version(), **packages}
