"""Where published data sets lie: a path that is given, the user's folder of data, or OpenML through scikit-learn's cache."""

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
    """The folder in the environment variable WORKBENCH_DATA, where the user keeps files of data; None where unset."""
    chosen = os.environ.get("WORKBENCH_DATA")
    return Path(chosen).expanduser() if chosen else None


def find_in_folder(*names: str) -> Path | None:
    """The first of these names that is there under ``$WORKBENCH_DATA``."""
    folder = data_folder()
    if folder is None:
        return None
    return next((folder / name for name in names if (folder / name).exists()), None)


def openml_folder() -> Path:
    """Where downloads are kept: ``$WORKBENCH_DATA/openml``, else ``dpvi-workbench/openml`` in the user's cache folder."""
    return (data_folder() or _folders.cache()) / "openml"


def fetch_openml(name: str, instead: str, /, **query: Any) -> Any:
    """A data set of OpenML, from the cache where it was downloaded before.

    :param name: what the data set is called here. :param instead: what the user may do without a network.
    :param query: what scikit-learn's ``fetch_openml`` takes.
    :raises ArgumentError: naming ``data``, with ``instead``, if it cannot be had.
    """
    from sklearn import datasets

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A network error occurred")  # the error below says it
            return datasets.fetch_openml(data_home=str(openml_folder()), n_retries=1, delay=0.1, parser="pandas", **query)
    # no network, no such entry, a cache that cannot be written, an answer cut short
    except (OSError, ValueError, EOFError, zlib.error, http.client.HTTPException, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _validate.ArgumentError("data", name, f"could not be had from OpenML ({reason}). {instead}") from error
