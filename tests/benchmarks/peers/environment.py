"""Environments of the benchmark's peers, made on demand under .bench/ in the repository.

A peer has an environment of its own because it pins releases of jax, numpyro and numpy on which the
workbench does not run, or brings a framework that the workbench does without.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["PEERS", "PeerUnavailable", "peer_python"]

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
PYTHON = "python3.11"  # the newest for which jaxlib 0.4.13 has wheels


class Peer(NamedTuple):
    """What is installed for a peer, besides the releases that its file of requirements pins.

    :param modules: what must import. :param apart: a package that is installed without its own
        requirements.
    :param any_python: False where it must be 3.11.
    """

    modules: str
    apart: str | None = None
    any_python: bool = True


PEERS = {
    "d3p": Peer("d3p.svi, d3p.minibatch, d3p.random", apart="d3p==0.2.0", any_python=False),
    "opacus": Peer("opacus, torch"),
    "jax_privacy": Peer("jax_privacy"),
    "diffprivlib": Peer("diffprivlib.models"),
}


class PeerUnavailable(RuntimeError):
    """A peer's environment cannot be made here; the message is one line that says why."""


def peer_python(name: str) -> Path:
    """The Python interpreter of a peer's environment, .bench/NAME, which is made first where it is
    missing or out of date.

    Making one takes half a minute to two minutes and 500 MB to 1 GB; afterwards the call only
    compares a file. One whose making was cut short, or whose requirements have changed since, is
    made anew.

    :raises PeerUnavailable: pip could not install, or there is no Python 3.11 for a peer that needs
        it.
    """
    peer = PEERS[name]
    requirements = HERE / f"{name}-requirements.txt"
    folder = REPOSITORY / ".bench" / name
    python = folder / "bin" / "python"
    complete = folder / "installed"
    wanted = requirements.read_text() + (f"{peer.apart}\n" if peer.apart else "")
    if python.exists() and complete.exists() and complete.read_text() == wanted:
        return python
    mother = sys.executable if peer.any_python else _python311()
    _run(
        f"make an environment for {name}", mother, "-m", "venv", "--clear", "--without-pip", folder
    )
    # the pip of the calling environment serves the new one: Debian's python3.11 may come without
    # ensurepip
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        python,
        "install",
        "--quiet",
    )
    _run(f"install the releases that {name} runs on", *pip, "-r", requirements)
    if peer.apart:
        _run(f"install {peer.apart}", *pip, "--no-deps", peer.apart)
    _run(f"import {name}", python, "-c", f"import {peer.modules}")
    complete.write_text(wanted)
    return python


def _python311():
    """A Python 3.11 that runs: this one, or one on the path (where pyenv may keep a shim that does
    not).
    """
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which(PYTHON)
    if found is None:
        raise PeerUnavailable(f"Cannot make an environment: {PYTHON} is not on the path.")
    _run(f"run {found}", found, "-c", "")
    return found


def _run(purpose, *command):
    """Run a command quietly; where it fails, raise with its last words."""
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise PeerUnavailable(f"Cannot {purpose}: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = (
            [line for line in lines if line.startswith("ERROR")]
            or lines
            or [f"exit status {done.returncode}"]
        )
        raise PeerUnavailable(f"Cannot {purpose}: {errors[-1].removeprefix('ERROR: ')}")
