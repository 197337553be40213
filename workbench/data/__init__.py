"""Data sets: published and made-up sets by name, and the user's own with declared public facts."""

from workbench.data.arrays import from_arrays
from workbench.data.catalogue import DataInfo, all_names, describe, info, load, names
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.dataset import Dataset
from workbench.data.files import from_csv, from_file, from_npz, from_parquet, read_table
from workbench.data.images import from_images
from workbench.data.schema import Schema
from workbench.data.sequences import from_tokens
from workbench.data.storage.packing import pack
from workbench.data.storage.reading import open_records as open
from workbench.data.synthetic import hierarchical, mixture, tokens
from workbench.data.tables import from_frame
from workbench.data.units import Units

__all__ = [
    "Boolean",
    "Categorical",
    "DataInfo",
    "Dataset",
    "Numeric",
    "Schema",
    "Units",
    "all_names",
    "describe",
    "from_arrays",
    "from_csv",
    "from_file",
    "from_frame",
    "from_images",
    "from_npz",
    "from_parquet",
    "from_tokens",
    "hierarchical",
    "info",
    "load",
    "mixture",
    "names",
    "open",
    "pack",
    "read_table",
    "tokens",
]
