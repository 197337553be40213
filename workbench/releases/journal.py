"""What a journal asks for beside a release: exact versions, the notebook that made it, and one zip
file with everything.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench import _folders, _html, _json, _validate
from workbench._validate import ArgumentError
from workbench.results.card import SEEDED

__all__ = [
    "MOST_BYTES",
    "PLAIN_NAME",
    "bare",
    "labelled",
    "may_be_private",
    "opened",
    "pack",
    "pinned",
    "read_notebook",
    "requirements",
]

MOST_BYTES = 2**30  # of one file, and of all files of a zip together
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MOST_FILES = 100
# others take memory that a zip may name
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError)
_REQUIRED = re.compile(r"([A-Za-z0-9._-]+)[^;]*(;?)(.*)")
_OF_NOTEBOOK = ("cells", "metadata", "nbformat", "nbformat_minor")
_OF_CELL = ("cell_type", "id", "source", "attachments")
_KERNEL = ("kernelspec", "language_info")
_OUTSIDE = "outside the guarantee"
_LABELS = tuple(map(_html.badge, ("covered", "public data")))
_SHOWN = ("text/html", "text/plain")
_REMOVED = "This output was removed: the workbench has not labelled it as covered or public data."
_STANDS_FOR = {"output_type": "stream", "name": "stdout", "text": [f"{_REMOVED}\n"]}


# ---- versions ------------------------------------------------------------------------------------


def requirements(versions: Mapping[str, str]) -> str:
    """The installed versions of the workbench's dependencies and theirs, as pip reads them.

    :param versions: of packages by name, which decided about the numbers: these come first.
    """
    lines = dict(pinned(versions))
    names = ["dpvi-workbench"]
    for name in names:  # which grows
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            distribution = importlib.metadata.distribution(name)
            lines.setdefault(_normal(name), distribution.version)
            for text in distribution.requires or ():
                match = _REQUIRED.match(text)
                needed = _normal(match[1]) if match and "extra" not in match[3] else name
                names += [needed] if needed not in map(_normal, names) else []
    return "".join(f"{name}=={version}\n" for name, version in lines.items())


def pinned(versions: Mapping[str, str]) -> dict[str, str]:
    """Packages and versions as ``requirements`` names them, of the versions that a result has."""
    names = {"workbench": "dpvi-workbench"}
    packages = {name: version for name, version in versions.items() if name != "python"}
    return {names.get(name, name): version for name, version in packages.items()}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- the notebook --------------------------------------------------------------------------------


def read_notebook(path: str | Path) -> dict[str, Any]:
    """The notebook in a file.

    :raises ArgumentError: naming ``notebook``, for anything but a notebook of format 4.
    """
    file = _validate.path("notebook", path, "must be the path of a notebook.")
    try:
        content = _json.loads(_folders.content(file, MOST_BYTES))
        notebook = {name: content[name] for name in _OF_NOTEBOOK}
        is_one = notebook["nbformat"] == 4 and isinstance(notebook["metadata"], dict)
        is_one = is_one and all(map(_has_outputs, notebook["cells"]))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        is_one = False
    if not is_one:
        raise ArgumentError("notebook", str(path), "must be a notebook (.ipynb) of format 4.")
    return notebook


def _has_outputs(cell: Mapping[str, Any]) -> bool:
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    return all(isinstance(entry, dict) and _is_text(entry.get("text/html", "")) for entry in data)


def _is_text(value: Any) -> bool:
    """Whether it is text, or a list of its lines."""
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(line, str) for line in value)
    )


def may_be_private(output: Mapping[str, Any]) -> bool:
    """Whether an output may be private: it has no label "covered" or "public data", or one that
    says that it is outside the guarantee, or is of a fit with a seed, which the notebook may have.
    A sentence that stands for a removed one is not.
    """
    page = "".join(output.get("data", {}).get("text/html", ""))
    has_label = any(label in page for label in _LABELS)
    is_outside = any(words in json.dumps(output) for words in (_OUTSIDE, SEEDED))
    return output != _STANDS_FOR and (not has_label or is_outside)


def labelled(notebook: Mapping[str, Any]) -> str:
    """The notebook with its labelled outputs; a sentence stands for each of the others.

    What widgets and other programs keep beside the cells is left out: it may hold anything.
    """

    def shown(outputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [_STANDS_FOR if may_be_private(output) else _as_text(output) for output in outputs]

    return _with_outputs(notebook, shown)


def _as_text(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """An output without what its label says nothing of, such as a picture of something else."""
    if "data" not in output:
        return output
    texts = {name: output["data"][name] for name in _SHOWN if name in output["data"]}
    return {**output, "data": texts, "metadata": {}}


def bare(notebook: Mapping[str, Any]) -> str:
    """The notebook without outputs."""
    return _with_outputs(notebook, lambda outputs: [])


def _with_outputs(
    notebook: Mapping[str, Any],
    change: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]],
) -> str:
    cells = []
    for cell in notebook["cells"]:
        made = {name: cell[name] for name in _OF_CELL if name in cell} | {"metadata": {}}
        if "outputs" in cell:
            made |= {"outputs": change(cell["outputs"]), "execution_count": None}
        cells.append(made)
    metadata = {
        name: notebook["metadata"][name] for name in _KERNEL if name in notebook["metadata"]
    }
    return json.dumps({**notebook, "cells": cells, "metadata": metadata}, indent=1) + "\n"


# ---- the zip -------------------------------------------------------------------------------------


def pack(folder: Path, out: Path) -> None:
    """Put the files of a folder into a new zip file, always the same bytes for the same files."""
    with out.open("xb") as target:
        try:
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(folder.iterdir()):
                    member = zipfile.ZipInfo(file.name)  # of 1980, so that times tell nothing
                    member.compress_type = zipfile.ZIP_DEFLATED
                    member.external_attr = 0o644 << 16
                    archive.writestr(member, file.read_bytes())
        except BaseException:
            out.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder at ``path``; of a zip file a temporary folder with its files.

    A zip may come from anybody: no file leaves that folder, and what it takes is limited.

    :raises ArgumentError: naming ``folder``, for a zip that cannot be read or is no release.
    """
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="dpvi-release-") as directory:
        try:
            with _folders.open_regular(path) as file, zipfile.ZipFile(file) as archive:
                _extract(archive, Path(directory), str(path))
        except ArgumentError:
            raise
        # all that zipfile raises for files that are damaged or forged
        except (*_DAMAGED, OSError, ValueError, EOFError, RuntimeError, KeyError) as error:
            reason = f"is no released folder, and no zip file that can be read ({error})."
            raise ArgumentError("folder", str(path), reason) from None
        yield Path(directory)


def _extract(archive: zipfile.ZipFile, folder: Path, name: str) -> None:
    members = archive.infolist()
    names = {member.filename for member in members}
    size = sum(member.file_size for member in members)
    if len(names) != len(members) or not all(map(PLAIN_NAME.fullmatch, names)):
        raise ArgumentError("folder", name, "has folders, or names that no release has.")
    if any(member.compress_type not in _COMPRESSIONS for member in members):
        raise ArgumentError("folder", name, "is compressed in another way than releases are.")
    if len(members) > _MOST_FILES or size > MOST_BYTES:
        raise ArgumentError(
            "folder",
            name,
            f"has {len(members)} files of {size / 2**20:.0f} MiB, more than a release has.",
        )
    for member in members:
        # no more than file_size is read of a member, whatever is in it
        with archive.open(member) as source, (folder / member.filename).open("xb") as target:
            shutil.copyfileobj(source, target)
