"""Published files: in the user's data folder, or downloaded and kept, with a hash that says that
they are the right ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from workbench import _folders, _validate

__all__ = ["data_folder", "download_folder", "downloaded", "find_in_folder"]

_RETRIES, _PATIENCE = 2, 30  # seconds without an answer


def data_folder() -> Path | None:
    """The user's data folder, in the environment variable WORKBENCH_DATA; None if that is
    not set.
    """
    chosen = os.environ.get("WORKBENCH_DATA")
    return Path(chosen).expanduser() if chosen else None


def find_in_folder(*names: str) -> Path | None:
    """The first of these names that exists under ``$WORKBENCH_DATA``; None if none does."""
    folder = data_folder()
    if folder is None:
        return None
    return next((folder / name for name in names if (folder / name).exists()), None)


def download_folder() -> Path:
    """Where downloads are kept: ``$WORKBENCH_DATA/downloads``, else ``dpvi-workbench/downloads`` in
    the cache folder.
    """
    return (data_folder() or _folders.cache()) / "downloads"


def downloaded(name: str, base: str, files: Mapping[str, str], instead: str) -> list[Path]:
    """The files of a published data set, which are downloaded unless they were before.

    :param name: its name here, also that of their folder.
    :param base: address before the names of the files.
    :param files: hash of each file by its name, as "md5:..." or of SHA-256.
    :param instead: what the user may do without a network.
    :raises ArgumentError: naming ``data``, with ``instead``, if a file cannot be downloaded, or is
        another one.
    """
    import pooch  # takes long to import

    log, fetcher = pooch.get_logger(), pooch.HTTPDownloader(timeout=_PATIENCE)
    level = log.level
    log.setLevel(logging.WARNING)  # or it writes to standard error
    try:
        store = pooch.create(
            download_folder() / name, base, registry=dict(files), retry_if_failed=_RETRIES
        )
        return [Path(store.fetch(file, downloader=fetcher)) for file in files]
    except (
        OSError,
        ValueError,
    ) as error:  # no network, a folder that cannot be written; a file with another hash
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _validate.ArgumentError(
            "data", name, f"could not be downloaded ({reason}). {instead}"
        ) from error
    finally:
        log.setLevel(level)
