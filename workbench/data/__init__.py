"""Data sets: embedded ones by name, the user's own with declared public bounds."""

from workbench.data.dataset import Dataset
from workbench.data.loaders import describe, from_csv, from_frame, load, names

__all__ = ["Dataset", "describe", "from_csv", "from_frame", "load", "names"]
