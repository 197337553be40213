"""A fit in several processes (``--processes``): the command starts itself again, or joins those
that a cluster started.
"""

from __future__ import annotations

import argparse
import atexit
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import IO, Any

from workbench import _validate
from workbench._validate import ArgumentError
from workbench.cli.shell import DONE, FAILED, STOPPED

__all__ = ["add_processes", "end", "follows", "join"]

# address of process 0, and which process this is
_COORDINATOR, _PLACE = ("WORKBENCH_COORDINATOR", "WORKBENCH_PROCESS")
_HERE = "127.0.0.1"
_SECONDS_TO_START = 120
_SECONDS_TO_SAVE = 24 * 3600  # that the others wait for the first at the end

_WITH_PARENT = "WORKBENCH_WITH_PARENT"  # of a process that the command started

_joined = False
_code = FAILED  # with which this process ends
_connected, _here = threading.Event(), threading.Event()
_started: list[
    tuple[subprocess.Popen[bytes], IO[bytes]]
] = []  # the others on this machine, and their standard error


def add_processes(command: argparse._ActionsContainer) -> None:
    """The option ``--processes``."""
    command.add_argument(
        "--processes",
        type=_count,
        metavar="COUNT",
        help="spread the records over the devices of COUNT processes. The command starts them on "
        f"this machine's CPU; on a cluster, start it COUNT times, each with ${_COORDINATOR} and "
        f"${_PLACE}. With auto, the processes are those that SLURM or Kubernetes started",
    )


def _count(text: str) -> int | str:
    try:
        return text if text == "auto" else _validate.integer("processes", int(text), at_least=1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is neither a number from 1 nor "auto".'
        ) from None


def join(arguments: argparse.Namespace, words: Sequence[str]) -> None:
    """Begin what ``--processes`` asks for, before JAX has started its devices;
    ``arguments.devices`` are all then.

    :param words: of the same command.
    :raises ArgumentError: naming ``processes``.
    """
    global _joined
    count = arguments.processes
    if count is None or count == 1:
        return
    if arguments.devices not in (None, "all"):
        raise ArgumentError(
            "devices",
            arguments.devices,
            "cannot be combined with --processes, which uses all devices.",
        )
    arguments.devices = "all"
    rank, coordinator = os.environ.get(_PLACE), os.environ.get(_COORDINATOR)
    _keep_output_apart()
    import jax
    from jax.experimental import multihost_utils

    _joined = True
    jax.config.update("jax_enable_preemption_service", False)  # which would ignore SIGTERM
    atexit.register(_leave)  # runs before JAX waits for all other processes
    options: dict[str, Any] = {"shutdown_timeout_seconds": _SECONDS_TO_SAVE}
    if count != "auto" and (rank is None) != (coordinator is None):
        raise ArgumentError(
            "processes", count, f"needs both ${_COORDINATOR} and ${_PLACE}, or neither."
        )
    is_local = False
    if count != "auto":
        number = _number(rank, count)
        if coordinator is None:
            coordinator = _free_address()
            _start(count, coordinator, words)
        is_local = _WITH_PARENT in os.environ or bool(_started)
        if is_local:
            _stay_on_this_machine(jax)
        options |= {
            "coordinator_address": coordinator,
            "coordinator_bind_address": coordinator,
            "num_processes": count,
            "process_id": number,
            "initialization_timeout": _SECONDS_TO_START,
        }
    try:
        jax.distributed.initialize(**options)
        if is_local:
            jax.devices()  # begins Gloo
            _require_here(count)
        multihost_utils.sync_global_devices("workbench")
    except ArgumentError:
        raise
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError(
            "processes", count, f"they did not find each other ({reason})."
        ) from error
    _connected.set()


def follows() -> bool:
    """Whether another process saves and prints what this one takes part in."""
    if not _joined:
        return False
    import jax

    return bool(jax.process_index() > 0)


def _number(rank: str | None, count: int) -> int:
    """The process that this is."""
    if rank is None:
        return 0
    if not rank.isdecimal() or int(rank) >= count:
        raise ArgumentError(
            "processes",
            count,
            f"${_PLACE} must be a whole number below the number of processes, not {rank!r}.",
        )
    return int(rank)


def _keep_output_apart() -> None:
    """Leave standard output to Python alone: Gloo writes there that it is connected."""
    sys.stdout.flush()
    output = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(
        output, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False
    )


# ---- on this machine -----------------------------------------------------------------------------


def _free_address() -> str:
    with socket.create_server((_HERE, 0)) as server:
        return f"{_HERE}:{server.getsockname()[1]}"


def _start(count: int, coordinator: str, words: Sequence[str]) -> None:
    """Start the other processes, which end with this one."""
    for rank in range(1, count):
        environment = {
            **os.environ,
            _COORDINATOR: coordinator,
            _PLACE: str(rank),
            _WITH_PARENT: "1",
        }
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - open while the process runs
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench", *words],
            env=environment,
            # the operating system closes it when this process ends, however it ends
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for this process, which tells the others
        )
        _started.append((process, errors))
    threading.Thread(target=_watch_start, daemon=True).start()


def _stay_on_this_machine(jax: ModuleType) -> None:
    """Compute on the CPU, and let no other machine connect."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    _listen_here()
    if _WITH_PARENT in os.environ:
        threading.Thread(target=_end_with_parent, daemon=True).start()


def _listen_here() -> None:
    """Make Gloo listen at ``_HERE`` alone, instead of the address of this machine's name.

    This is the only use of JAX's own code: JAX 0.10 has no setting for that address. A test fails
    when JAX begins Gloo otherwise, and ``_require_here`` then refuses the fit.
    """
    from jax._src.lib import _jax

    make: Any = getattr(_jax, "make_gloo_tcp_collectives", None)

    def made(**options: Any) -> Any:
        _here.set()
        return make(**options, hostname=_HERE)

    _jax.make_gloo_tcp_collectives = made


def _require_here(count: int) -> None:
    """:raises ArgumentError: naming ``processes``, unless Gloo was begun by what ``_listen_here``
    put there.
    """
    if not _here.is_set():
        raise ArgumentError(
            "processes", count, f"cannot be kept to {_HERE} with this version of JAX."
        )


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(FAILED)


def _watch_start() -> None:
    """End this process if another one ends before all are connected: JAX would wait for it."""
    while not _connected.wait(0.1):
        if ended := _ended():
            print(f"workbench: {ended}", file=sys.stderr, flush=True)
            os._exit(FAILED)


def _ended() -> str:
    """Which of the processes that this one started have ended, in a sentence for each; "" if none
    has.
    """
    sentences = []
    for rank, (process, errors) in enumerate(_started, 1):
        if process.poll() is not None:
            errors.seek(0)
            *_, last = errors.read().decode(errors="replace").strip().splitlines() or [""]
            sentences.append(
                f"process {rank} ended with code {process.returncode}{f': {last}' if last else '.'}"
            )
    return " ".join(sentences)


# ---- the end -------------------------------------------------------------------------------------


def end(code: int) -> int:
    """Let the other processes end too, when this one has written everything; the exit code.

    After an error nobody is waited for: JAX would wait for a process that has ended.
    """
    global _code
    _code = code
    if not _joined:
        return code
    if _WITH_PARENT in os.environ:
        threading.Event().wait()  # until the first process ends
    if code == FAILED and (ended := _ended()):
        print(f"workbench: {ended}", file=sys.stderr)
    if code in (DONE, STOPPED) and not _started:
        import jax

        jax.distributed.shutdown()  # waits for all
    return code


def _leave() -> None:
    """End this process at once: JAX's own end would wait for the others."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for process, _ in _started:
        process.kill()
        process.wait()
    os._exit(_code)
