"""Environments of the benchmark's peers, made on demand under .bench/ in the repository.

A peer has an environment of its own because it pins releases of jax, numpyro and numpy on which the workbench does not run.
"""

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["PeerUnavailable", "d3p_python"]

REQUIREMENTS = Path(__file__).with_name("d3p-requirements.txt")
D3P = "d3p==0.2.0"
REPOSITORY = Path(__file__).parents[3]
PYTHON = "python3.11"  # the newest for which jaxlib 0.4.13 has wheels


class PeerUnavailable(RuntimeError):
    """A peer's environment cannot be made here; the message is one line that says why."""


def d3p_python() -> Path:
    """The Python interpreter of d3p's environment, .bench/d3p, which is made first where it is missing or out of date.

    Making it takes about 20 seconds and 500 MB; afterwards the call only compares a file. An environment whose making was
    cut short, or whose requirements have changed since, is made anew.

    :raises PeerUnavailable: no Python 3.11, or pip could not install.
    """
    folder = REPOSITORY / ".bench" / "d3p"
    python = folder / "bin" / "python"
    complete = folder / "installed"
    wanted = REQUIREMENTS.read_text() + D3P + "\n"
    if python.exists() and complete.exists() and complete.read_text() == wanted:
        return python
    _run("make an environment for d3p", _python311(), "-m", "venv", "--clear", "--without-pip", folder)
    # the pip of the calling environment serves the new one: Debian's python3.11 may come without ensurepip
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet")
    _run("install the releases that d3p runs on", *pip, "-r", REQUIREMENTS)
    _run(f"install {D3P}", *pip, "--no-deps", D3P)
    _run(f"import {D3P}", python, "-c", "import d3p.svi, d3p.minibatch, d3p.random")
    complete.write_text(wanted)
    return python


def _python311():
    """A Python 3.11 that runs: this one, or one on the path (where pyenv may keep a shim that does not)."""
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which(PYTHON)
    if found is None:
        raise PeerUnavailable(f"Cannot make an environment for d3p: {PYTHON} is not on the path.")
    _run(f"run {found}", found, "-c", "")
    return found


def _run(purpose, *command):
    """Run a command quietly; where it fails, raise with its last words."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeerUnavailable(f"Cannot {purpose}: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or [f"exit status {done.returncode}"]
        raise PeerUnavailable(f"Cannot {purpose}: {errors[-1].removeprefix('ERROR: ')}")
