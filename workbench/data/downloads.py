"""Sources of published data sets: the user's data folder, or OpenML through scikit-learn's cache."""

from __future__ import annotations

import http.client
import os
import warnings
import zlib
from pathlib import Path
from typing import Any

from workbench import _folders, _validate

__all__ = ["data_folder", "fetch_openml", "find_in_folder", "openml_folder"]


def data_folder() -> Path | None:
    """The user's data folder, in the environment variable WORKBENCH_DATA; None if that is not set."""
    chosen = os.environ.get("WORKBENCH_DATA")
    return Path(chosen).expanduser() if chosen else None


def find_in_folder(*names: str) -> Path | None:
    """The first of these names that exists under ``$WORKBENCH_DATA``; None if none does."""
    folder = data_folder()
    if folder is None:
        return None
    return next((folder / name for name in names if (folder / name).exists()), None)


def openml_folder() -> Path:
    """Where downloads are kept: ``$WORKBENCH_DATA/openml``, else ``dpvi-workbench/openml`` in the user's cache folder."""
    return (data_folder() or _folders.cache()) / "openml"


def fetch_openml(name: str, instead: str, /, **query: Any) -> Any:
    """A data set of OpenML, from the cache if it was downloaded before.

    :param name: its name here.
    :param instead: what the user may do without a network.
    :param query: arguments of scikit-learn's ``fetch_openml``.
    :raises ArgumentError: naming ``data``, with ``instead``, if it cannot be downloaded.
    """
    from sklearn import datasets

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A network error occurred")  # the error below says so
            return datasets.fetch_openml(data_home=str(openml_folder()), n_retries=1, delay=0.1, parser="pandas", **query)
    # no network, no such entry, a cache that cannot be written, an answer cut short
    except (OSError, ValueError, EOFError, zlib.error, http.client.HTTPException, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _validate.ArgumentError("data", name, f"could not be downloaded from OpenML ({reason}). {instead}") from error
