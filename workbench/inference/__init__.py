"""The shared inference core: DP-VI on JAX and NumPyro alone (no Jupyter, plots or accountants)."""

from workbench.inference.checkpoint import load_state, save_state
from workbench.inference.state import DPVIState
from workbench.inference.step import PrivateStep
from workbench.inference.svi import DPVI
from workbench.inference.training import Snapshot, run

__all__ = [
    "DPVI",
    "DPVIState",
    "PrivateStep",
    "Snapshot",
    "load_state",
    "run",
    "save_state",
]
