"""``workbench lab`` and ``workbench app``: serve the notebooks with JupyterLab, or a screen alone
with Voilà.
"""

from __future__ import annotations

import argparse
import importlib.resources
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench import _validate
from workbench.cli.shell import FAILED, Parser, add_command

__all__ = ["PAGES", "add"]

# the notebooks that ``workbench app`` serves, by page
PAGES = {"workbench": "app.ipynb", "teaching": "teaching.ipynb"}

# a pattern that matches nothing; traitlets has no empty list on a command line, nor one in brackets
_NO_FILE = "(?!)."
# Seconds after which the kernel of a page that was left ends; a page whose connection broke tries
# to come back for four minutes. A screen that runs a fit tells the server that it is active.
_CULLING = {"cull_idle_timeout": 300, "cull_interval": 30}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``lab`` and ``app`` to the command."""
    lab = add_command(commands, "lab", "open JupyterLab on the quickstart notebook")
    app = add_command(
        commands,
        "app",
        "serve the workbench screen or the teaching screens as a web page, with Voilà",
    )
    app.add_argument(
        "page",
        nargs="?",
        default="workbench",
        metavar="PAGE",
        help="workbench or teaching (default: workbench)",
    )
    for command, run, server in ((lab, _lab, "jupyter"), (app, _app, "voila")):
        command.add_argument(
            "--no-browser",
            action="store_true",
            help="do not open a browser (default: open one, unless $BROWSER is none or there is no "
            "display)",
        )
        command.add_argument(
            server,
            nargs="*",
            metavar="ARGUMENT",
            help=f"further arguments for {'jupyter lab' if run is _lab else server}, after --",
        )
        command.set_defaults(run=run)


def _lab(arguments: argparse.Namespace) -> int:
    """``workbench lab``: open JupyterLab in the working folder on the quickstart; its exit code."""
    if not _is_installed(
        "jupyterlab", "workbench lab: JupyterLab is not installed; pip install jupyterlab."
    ):
        return FAILED
    notebook = _notebook("quickstart.ipynb")
    command = [sys.executable, "-m", "jupyter", "lab", "--ServerApp.root_dir=."]
    command.append(f"--LabApp.default_url=/lab/tree/{notebook.as_posix()}")
    if arguments.no_browser or _has_no_display():
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return _become([*command, *arguments.jupyter])


def _app(arguments: argparse.Namespace) -> int:
    """``workbench app``: serve a screen or the teaching pieces without a notebook, with Voilà; its
    exit code.

    Everyone who opens the page acts as the user who serves it, so its address contains a token. By
    default Voilà serves pictures in its folder without the token; here it serves no file at all.
    Each page has a kernel of its own, which ends some minutes after the page was left, when no fit
    runs in it.

    :raises ArgumentError: naming ``page``, if it is not in ``PAGES``; or ``token``, if there would
        be none.
    """
    page, further = _validate.choice("page", arguments.page, PAGES), arguments.voila
    _check_token(further)
    if not _is_installed("voila", "workbench app: Voilà is not installed; pip install voila."):
        return FAILED
    command = [sys.executable, "-m", "voila", str(_notebook(PAGES[page]))]
    if _given(further, "token") is None:
        command.append("--Voila.auto_token=True")
    if _given(further, "file_allowlist") is None:
        command.append(f"--VoilaConfiguration.file_allowlist={_NO_FILE}")
    for name, seconds in _CULLING.items():
        if _given(further, name) is None:
            command.append(f"--MappingKernelManager.{name}={seconds}")
    _warn_of_exposure(further)
    if arguments.no_browser or _has_no_display():
        command.append("--no-browser")
    return _become([*command, *further])


def _given(further: Sequence[str], option: str) -> str | None:
    """The value of ``--option`` or ``--Class.option``, after = or as the next word; None if there
    is none.
    """
    setting = None
    for index, argument in enumerate(further):
        name, equals, value = argument.partition("=")
        if name.startswith("--") and name.lstrip("-").rpartition(".")[2] == option:
            following = further[index + 1 : index + 2]
            setting = (
                value
                if equals
                else next((word for word in following if not word.startswith("--")), None)
            )
    return setting


def _check_token(further: Sequence[str]) -> None:
    token, automatic = _given(further, "token"), _given(further, "auto_token")
    if (token is not None and not token.strip("'\"")) or (
        token is None and (automatic or "true").lower() in ("false", "0")
    ):
        raise _validate.ArgumentError(
            "token",
            "",
            "must not be empty, because everyone who opens the page acts as you. Leave it out to "
            "get one.",
        )


def _warn_of_exposure(further: Sequence[str]) -> None:
    """Warn if other machines can open the page, or if files are served."""
    address = _given(further, "ip")
    if address is not None and not (address in ("localhost", "::1") or address.startswith("127.")):
        sys.stderr.write(
            f"workbench app: warning: ip={address!r}: other machines can open the page, without "
            "encryption. Everyone who reads the token on its way can act as you. It is safer to "
            "leave ip out and forward the port with ssh -L.\n"
        )
    files = _given(further, "file_allowlist")
    if files is not None:
        sys.stderr.write(
            f"workbench app: warning: files that match {files} are served without the token.\n"
        )


def _is_installed(package: str, otherwise: str) -> bool:
    installed = importlib.util.find_spec(package) is not None
    if not installed:
        sys.stderr.write(f"{otherwise}\n")
    return installed


def _notebook(name: str) -> Path:
    """The notebook in this folder, or a new copy of the package's own. Kernels work in the folder
    of their notebook.
    """
    for path in (Path("notebooks", name), Path(name)):
        if path.is_file():
            return path
    shutil.copyfile(str(importlib.resources.files("workbench.notebooks").joinpath(name)), name)
    return Path(name)


def _has_no_display() -> bool:
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return os.environ.get("BROWSER") == "none" or (sys.platform.startswith("linux") and not shown)


def _become(command: list[str]) -> int:
    """Run ``command``, if possible instead of this process, so that ending the process ends the
    server.
    """
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.call(command)
